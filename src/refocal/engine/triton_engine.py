"""The engine in Triton, which torch brings along with CUDA: the passes over the logits as GPU kernels.

The same as kernel.c, under the same names: read it there first. One kernel reads the logits and sums up what a formula
needs of each row; what remains to be computed of a row alone is done by another, for many rows at a time. Rows that fit
the registers are read once, longer ones some classes at a time, more than once.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from refocal.engine.array_engine import condense, split, vector
from refocal.engine.protocol import Plan
from refocal.engine.triton_affine import MAX_CLASSES as MAX_AFFINE
from refocal.engine.triton_affine import affine, levels
from refocal.engine.triton_maths import (
    DERIVATIVES,
    LOG2E,
    OPTIONS,
    SOFTMAX,
    SQUARES,
    beside_its_tensors,
    chunk_of,
    exp2,
    inverse,
    log1p,
    other,
    others,
    others_curve,
    part_of,
    raised,
    top_curve,
    top_of,
)  # fmt: skip

__all__ = [
    "affine", "condense", "focal", "inspect", "levels", "plan", "predict", "split", "temperature", "usable", "vector",
]  # fmt: skip

MAX_WHOLE = 1 << 12
"""Classes of the longest row that a program keeps in its registers."""

MAX_CHUNK = 1 << 10
"""Classes of a longer row that a program reads together."""

ROWS_AT_ONCE = 128
"""Rows whose sums are finished together."""


@triton.jit
def _rank(x, logits, row, stride, n_rows, n_classes, WHOLE: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr):
    """kernel.c, rank, from the first classes on: the top and its place, the second's distance, and if there is one."""
    j = tl.arange(0, CHUNK)[None, :]
    best = x
    runner = tl.full([ROWS, CHUNK], float("-inf"), x.dtype)
    place = j + tl.zeros([ROWS, CHUNK], tl.int32)
    for start in range(CHUNK, CHUNK if WHOLE else n_classes, CHUNK):
        x = chunk_of(logits, row, start + j, stride, n_rows, n_classes)
        runner = tl.maximum(runner, tl.minimum(best, x))
        place = tl.where(x > best, start + j, place)
        best = tl.maximum(best, x)
    top = tl.max(best, axis=1)
    at = tl.min(tl.where(best == top[:, None], place, n_classes), axis=1)
    top = tl.where(top > float("-inf"), top, 0.0)  # rows beyond the last
    below = tl.max(tl.where(place == at[:, None], runner, best), axis=1) - top
    some = below > float("-inf")
    return top, at, tl.where(some, raised(below), 0.0), some


@triton.jit
def _center(rest, mean, spread):
    """Mean distance to the top and minus its variance, over all classes, from those over the others."""
    others = rest * inverse(1.0 + rest)
    return others * mean, others * (others * mean * mean - spread - mean * mean)


@triton.jit
def _rows_kernel(
    logits, settings, tops, places, sums, stride, n_rows, n_classes, n_gammas,
    PART: tl.constexpr, HALVINGS: tl.constexpr, WHOLE: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """kernel.c, rank and weigh; after the focal map, sums over the classes but the top of p / p_top and more.

    Five numbers per row: the top, the second's distance from it (-inf if there is none), the sum of the weights
    relative to the second, and mean and variance of the distances to the second.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_row = row < n_rows
    j = tl.arange(0, CHUNK)[None, :]
    x = chunk_of(logits, row, j, stride, n_rows, n_classes)
    dtype: tl.constexpr = x.dtype
    top, at, second, some = _rank(x, logits, row, stride, n_rows, n_classes, WHOLE, ROWS, CHUNK)
    slope = tl.load(settings).to(dtype)
    slope_2 = (tl.load(settings) * LOG2E).to(dtype)  # for powers of 2
    zero = tl.zeros([ROWS], dtype)
    total = zero
    first = zero
    square = zero
    for start in range(0, CHUNK if WHOLE else n_classes, CHUNK):
        if not WHOLE:
            x = chunk_of(logits, row, start + j, stride, n_rows, n_classes)
        gap = tl.where(start + j == at[:, None], float("-inf"), x) - top[:, None]
        raw = raised(gap)
        lower = raw - second[:, None]
        e = exp2(lower * slope_2)
        if PART == SOFTMAX:  # its slope may be 0
            e = tl.where(gap > float("-inf"), e, 0.0)
        total += tl.sum(e, axis=1)
        first += tl.sum(e * lower, axis=1)
        square += tl.sum(e * lower * lower, axis=1)
    safe = tl.where(some, total, 1.0)
    per_weight = inverse(safe)
    mean = first * per_weight
    spread = square * per_weight - mean * mean
    tl.store(places + row, at, mask=is_row)
    tl.store(tops + row, top, mask=is_row)
    tl.store(part_of(tops, 1, n_rows) + row, tl.where(some, second, float("-inf")), mask=is_row)
    tl.store(part_of(tops, 2, n_rows) + row, total, mask=is_row)
    tl.store(part_of(tops, 3, n_rows) + row, mean, mask=is_row)
    tl.store(part_of(tops, 4, n_rows) + row, spread, mask=is_row)
    if PART != SOFTMAX:
        rest, log_norm, top_log_not_q, top_h = top_of(second, total, some, slope)
        center, curvature = _center(rest, tl.where(some, second + mean, 0.0), spread)
        log_norm_2 = (log_norm * LOG2E)[:, None]
        for k in range(n_gammas):
            gamma = tl.load(settings + 1 + k).to(dtype)
            gamma_2 = (tl.load(settings + 1 + k) * LOG2E).to(dtype)
            level = (gamma_2 * top_log_not_q)[:, None]
            row_terms = (slope, slope_2, log_norm[:, None], log_norm_2, level, gamma, gamma_2, center[:, None])
            s = zero
            s_g = zero
            s_b = zero
            s_gg = zero
            s_gb = zero
            s_bb = zero
            for start in range(0, CHUNK if WHOLE else n_classes, CHUNK):
                if not WHOLE:
                    x = chunk_of(logits, row, start + j, stride, n_rows, n_classes)
                raw = raised(tl.where(start + j == at[:, None], float("-inf"), x) - top[:, None])
                a, b, c, d, e, f, g = others(raw, row_terms, PART, HALVINGS)
                s += tl.sum(a, axis=1)
                s_g += tl.sum(b, axis=1)
                if PART == DERIVATIVES:
                    s_b += tl.sum(c, axis=1)
                    s_gg += tl.sum(d, axis=1)
                    s_gb += tl.sum(e, axis=1)
                    s_bb += tl.sum(f, axis=1) + curvature * tl.sum(g, axis=1)
            factor = 1.0 + gamma * top_h
            own = part_of(sums, k * (6 if PART == DERIVATIVES else 2), n_rows) + row
            tl.store(own, factor * s, mask=is_row)
            if PART == DERIVATIVES:
                tl.store(part_of(own, 1, n_rows), factor * s_g, mask=is_row)
                tl.store(part_of(own, 2, n_rows), factor * s_b, mask=is_row)
                tl.store(part_of(own, 3, n_rows), factor * s_gg, mask=is_row)
                tl.store(part_of(own, 4, n_rows), factor * s_gb, mask=is_row)
                tl.store(part_of(own, 5, n_rows), factor * s_bb, mask=is_row)
            else:
                tl.store(part_of(own, 1, n_rows), factor * factor * s_g, mask=is_row)


@triton.jit
def _softmax_of(tops, row, n_rows):
    """What `_rows_kernel` stored; 0 classes but the top beyond the last row."""
    is_row = row < n_rows
    top = tl.load(tops + row, mask=is_row, other=0.0)
    below = tl.load(part_of(tops, 1, n_rows) + row, mask=is_row, other=float("-inf"))
    total = tl.load(part_of(tops, 2, n_rows) + row, mask=is_row, other=0.0)
    mean = tl.load(part_of(tops, 3, n_rows) + row, mask=is_row, other=0.0)
    spread = tl.load(part_of(tops, 4, n_rows) + row, mask=is_row, other=0.0)
    some = below > float("-inf")
    below = tl.where(some, below, 0.0)
    return top, below, total, tl.where(some, total, 1.0), tl.where(some, below + mean, 0.0), spread, some


@triton.jit
def _label_of(logits, labels, places, top, row, stride, n_rows):
    """The label's distance to the top, and whether it is the top."""
    is_row = row < n_rows
    y = tl.load(labels + row, mask=is_row, other=0).to(tl.int64)
    own = tl.load(logits + row * stride + y, mask=is_row, other=0.0).to(top.dtype) - top
    is_top = y == tl.load(places + row, mask=is_row, other=0)
    return tl.where(own > float("-inf"), raised(own), own), is_top


@triton.jit
def _focal_row(logits, labels, settings, tops, places, row, stride, n_rows):
    """kernel.c, label_of: after the focal map the label's distance to the top; derivatives of the top and the label.

    The label is taken as if it were not the top.
    """
    top, below, total, safe, mean, spread, some = _softmax_of(tops, row, n_rows)
    at_label, is_top = _label_of(logits, labels, places, top, row, stride, n_rows)
    slope = tl.load(settings).to(top.dtype)
    gamma = tl.load(settings + 1).to(top.dtype)
    rest, log_norm, top_log_not_q, top_h = top_of(below, total, some, slope)
    possible = at_label > float("-inf")
    raw = tl.where(possible, at_label, 0.0)
    gap = raw * slope
    q = tl.exp((raw - below) * slope) * (rest / (1.0 + rest) / safe)
    q = tl.where(possible & (is_top == 0), q, 0.0)
    log_not_q, per_rest, odds, h, damp = other(q, gap - log_norm, gamma)
    bent = log1p(gamma * h) - log1p(gamma * top_h)
    label_gap = gap - gamma * (log_not_q - top_log_not_q) - bent
    label_gap = tl.where((gap != 0.0) & (label_gap < 0.0) & (is_top == 0), label_gap, 0.0)
    label_gap = tl.where(possible, label_gap, float("-inf"))
    t_g, t_b, t_gg, t_gb, t_bb = top_curve(rest, top_log_not_q, top_h, gamma, mean, spread)
    g, x_1, gg, x_g, x_2 = others_curve(log_not_q, per_rest, odds, h, damp, gamma)
    center, curvature = _center(rest, mean, spread)
    away = raw - center
    bb = x_2 * away * away + x_1 * curvature
    return label_gap, is_top, t_g, t_b, t_gg, t_gb, t_bb, g, x_1 * away, gg, x_g * away, bb


@triton.jit
def _add(out, k, width, value, row, weights, n_rows, HAS_WEIGHTS: tl.constexpr):
    """One program's sum of a term, in double."""
    value = tl.where(row < n_rows, value, 0.0).to(tl.float64)
    if HAS_WEIGHTS:
        weight = tl.load(weights + row, mask=row < n_rows, other=0.0)
        value = tl.where(weight > 0.0, value * weight, 0.0)
    tl.store(out + tl.program_id(0).to(tl.int64) * width + k, tl.sum(value, axis=0))


@triton.jit
def _temperature_kernel(
    logits, labels, weights, settings, tops, places, out, stride, n_rows, HAS_WEIGHTS: tl.constexpr, ROWS: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    top, below, total, _, mean, spread, some = _softmax_of(tops, row, n_rows)
    at_label, _ = _label_of(logits, labels, places, top, row, stride, n_rows)
    slope = tl.load(settings).to(top.dtype)
    rest = tl.where(some, tl.exp(below * slope) * total, 0.0)
    q = 1.0 / (1.0 + rest)
    others = rest * q
    _add(out, 0, 3, log1p(rest) - at_label * slope, row, weights, n_rows, HAS_WEIGHTS)
    _add(out, 1, 3, others * mean - at_label, row, weights, n_rows, HAS_WEIGHTS)
    _add(out, 2, 3, others * (spread + mean * mean * q), row, weights, n_rows, HAS_WEIGHTS)


@triton.jit
def _focal_kernel(
    logits, labels, weights, settings, tops, places, sums, out, stride, n_rows,
    HAS_WEIGHTS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_row = row < n_rows
    gap, is_top, t_g, t_b, t_gg, t_gb, t_bb, g, b, gg, gb, bb = _focal_row(
        logits, labels, settings, tops, places, row, stride, n_rows
    )
    w = tl.load(sums + row, mask=is_row, other=0.0)
    norm = 1.0 / (1.0 + w)
    s_g = tl.load(part_of(sums, 1, n_rows) + row, mask=is_row, other=0.0)
    s_b = tl.load(part_of(sums, 2, n_rows) + row, mask=is_row, other=0.0)
    # From here on, derivatives are relative to the top's.
    g_ = s_g - w * t_g
    b_ = s_b - w * t_b
    gg_ = tl.load(part_of(sums, 3, n_rows) + row, mask=is_row, other=0.0) - t_g * (s_g + g_)
    gb_ = tl.load(part_of(sums, 4, n_rows) + row, mask=is_row, other=0.0) - t_b * s_g - t_g * b_
    bb_ = tl.load(part_of(sums, 5, n_rows) + row, mask=is_row, other=0.0) - t_b * (s_b + b_)
    mean_g = g_ * norm
    mean_b = b_ * norm
    mean_gg = (gg_ - w * t_gg) * norm - mean_g * mean_g
    mean_gb = (gb_ - w * t_gb) * norm - mean_g * mean_b
    mean_bb = (bb_ - w * t_bb) * norm - mean_b * mean_b
    _add(out, 0, 6, log1p(w) - gap, row, weights, n_rows, HAS_WEIGHTS)
    _add(out, 1, 6, mean_g - tl.where(is_top, 0.0, g - t_g), row, weights, n_rows, HAS_WEIGHTS)
    _add(out, 2, 6, mean_b - tl.where(is_top, 0.0, b - t_b), row, weights, n_rows, HAS_WEIGHTS)
    _add(out, 3, 6, mean_gg - tl.where(is_top, 0.0, gg - t_gg), row, weights, n_rows, HAS_WEIGHTS)
    _add(out, 4, 6, mean_gb - tl.where(is_top, 0.0, gb - t_gb), row, weights, n_rows, HAS_WEIGHTS)
    _add(out, 5, 6, mean_bb - tl.where(is_top, 0.0, bb - t_bb), row, weights, n_rows, HAS_WEIGHTS)


@triton.jit
def _predict_kernel(logits, labels, settings, tops, places, sums, out, stride, n_rows, ROWS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_row = row < n_rows
    gap, _, _, _, _, _, _, _, _, _, _, _ = _focal_row(logits, labels, settings, tops, places, row, stride, n_rows)
    w = tl.load(sums + row, mask=is_row, other=0.0)
    squares = tl.load(part_of(sums, 1, n_rows) + row, mask=is_row, other=0.0)
    norm = 1.0 / (1.0 + w)
    tl.store(out + row, gap - log1p(w), mask=is_row)
    tl.store(part_of(out, 1, n_rows) + row, norm, mask=is_row)
    tl.store(part_of(out, 2, n_rows) + row, (1.0 + squares) * norm * norm, mask=is_row)


def usable(logits: Any) -> bool:
    """Whether these logits can be given to the kernels."""
    return bool(logits.is_cuda and logits.stride(-1) == 1)


def plan(logits: Any) -> Plan:
    """All rows at once."""
    n_rows, n_classes = map(int, logits.shape)
    in_double = logits.dtype == torch.float64
    return Plan(
        part_entries=n_rows * n_classes,
        n_threads=1,
        precision=float(torch.finfo(torch.float64 if in_double else torch.float32).eps),
        has_affine=n_classes <= MAX_AFFINE,
    )


@beside_its_tensors
def temperature(x: Tensor, y: Tensor, weight: Tensor | None, slope: float, *, rough: bool = False) -> Tensor:
    """See `Engine.temperature`."""
    settings = _on_device(x, slope)
    tops, places, _ = _rows(x, settings)
    return _sums(_temperature_kernel, 3, x, y, weight, settings, tops, places)


@beside_its_tensors
def focal(x: Tensor, y: Tensor, weight: Tensor | None, gamma: float, slope: float, *, rough: bool = False) -> Tensor:
    """See `Engine.focal`."""
    settings = _on_device(x, slope, gamma)
    return _sums(_focal_kernel, 6, x, y, weight, settings, *_rows(x, settings, DERIVATIVES))


@beside_its_tensors
def predict(x: Tensor, y: Tensor, gammas: tuple[float, ...], slope: float, *, rough: bool = False) -> Tensor:
    """See `Engine.predict`."""
    tops, places, sums = _rows(x, _on_device(x, slope, *gammas), SQUARES)
    out = torch.empty(len(gammas), 3, len(x), dtype=tops.dtype, device=x.device)
    grid = (triton.cdiv(len(x), ROWS_AT_ONCE),)
    for gamma, own, part in zip(gammas, sums, out, strict=True):
        settings = _on_device(x, slope, gamma)
        _predict_kernel[grid](
            x, y.contiguous(), settings, tops, places, own, part, x.stride(0), len(x), ROWS=ROWS_AT_ONCE, **OPTIONS
        )
    return out.transpose(0, 1)


@beside_its_tensors
def inspect(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """See `Engine.inspect`; at a slope of 0 all weights are 1: their sum is a count, the mean that of the distances."""
    tops, places, _ = _rows(x, _on_device(x, 0.0))
    _, below, count, mean, _ = tops
    distance = torch.where(count > 0.0, -count.double() * (below.double() + mean.double()), 0.0)
    return places == y, distance.sum()


def _rows(x: Tensor, settings: Tensor, part: tl.constexpr = SOFTMAX) -> tuple[Tensor, Tensor, Tensor]:
    """What is summed up of each row, the place of its top, and for each γ of the settings the sums of a part."""
    precision = torch.float64 if x.dtype == torch.float64 else torch.float32
    tops = torch.empty(5, len(x), dtype=precision, device=x.device)
    places = torch.empty(len(x), dtype=torch.int32, device=x.device)
    n_gammas = len(settings) - 1
    widths = {SOFTMAX.value: 0, SQUARES.value: 2, DERIVATIVES.value: 6}  # numbers that are summed up of each part
    sums = torch.empty(n_gammas, widths[part.value], len(x), dtype=precision, device=x.device)
    whole = x.shape[1] <= MAX_WHOLE
    chunk = triton.next_power_of_2(x.shape[1]) if whole else MAX_CHUNK
    warp = 1 << 10  # entries of a warp, a quarter of them at a time
    short_rows = 1 << 8  # entries of a program where rows are short
    rows = max(1, short_rows // chunk)
    _rows_kernel[(triton.cdiv(len(x), rows),)](
        x, settings, tops, places, sums, x.stride(0), *x.shape, n_gammas, PART=part, HALVINGS=2 * (chunk >= warp),
        WHOLE=whole, ROWS=rows, CHUNK=chunk, num_warps=max(1, chunk // warp), **OPTIONS,
    )  # fmt: skip
    return tops, places, sums


def _sums(kernel: Any, width: int, x: Tensor, y: Tensor, weight: Tensor | None, *of_rows: Tensor) -> Tensor:
    """The sums of a kernel that finishes what was computed of each row."""
    grid = (triton.cdiv(len(x), ROWS_AT_ONCE),)
    out = torch.empty(*grid, width, dtype=torch.float64, device=x.device)
    weights = out if weight is None else weight.contiguous()
    kernel[grid](
        x, y.contiguous(), weights, *of_rows, out, x.stride(0), len(x),
        HAS_WEIGHTS=weight is not None, ROWS=ROWS_AT_ONCE, **OPTIONS,
    )  # fmt: skip
    return out.sum(0)


def _on_device(x: Tensor, *settings: float) -> Tensor:
    """The settings in double precision: as arguments of a kernel they would be rounded to float32."""
    return torch.tensor(settings, dtype=torch.float64).to(x.device)
