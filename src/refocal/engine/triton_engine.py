"""The engine in Triton, which torch brings along with CUDA: the passes over the logits as GPU kernels.

The same formulas as kernel.c and refocal/maps, under the same names: read them there first. A pass of all classes sums
up what a formula needs of each row, some classes at a time, so that rows may be of any length; what remains to be
computed of a row alone is done for many rows at a time.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from refocal._validation import LARGE
from refocal.engine.array_engine import LARGE_SINGLE, split, vector
from refocal.engine.protocol import Plan
from refocal.engine.triton_affine import MAX_CLASSES as MAX_AFFINE

__all__ = ["focal", "inspect", "plan", "predict", "split", "temperature", "usable", "vector"]

# Classes that a program looks at together, and entries of a tile: several rows where rows are short.
MAX_CHUNK, TILE, NUM_WARPS = 1 << 8, 1 << 9, 1
# Rows whose sums are finished together.
ROWS_AT_ONCE = 128

LN2 = tl.constexpr(0.6931471805599453)
FAR, FAR_SINGLE = tl.constexpr(LARGE), tl.constexpr(LARGE_SINGLE)


# The interpreter knows nothing of a GPU's own functions.
INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


@triton.jit
def _exp(x):
    """The exponential function; in single precision, with small results rounded to 0."""
    if INTERPRETED or x.dtype == tl.float64:
        found = tl.exp(x)
    else:
        found = libdevice.fast_expf(x)
    return found


@triton.jit
def _inverse(x):
    """1/x; in single precision, to the last bit but one."""
    if INTERPRETED or x.dtype == tl.float64:
        found = 1.0 / x
    else:
        found = libdevice.fast_dividef(x * 0.0 + 1.0, x)
    return found


@triton.jit
def _twice_atanh(s):
    """2 atanh(s) for |s| <= 0.172, which is log(1+f) at s = f / (2+f)."""
    z = s * s
    p = 2.0 / 11.0 + z * (2.0 / 13.0 + z * (2.0 / 15.0 + z * (2.0 / 17.0 + z * (2.0 / 19.0))))
    p = 2.0 / 3.0 + z * (2.0 / 5.0 + z * (2.0 / 7.0 + z * (2.0 / 9.0 + z * p)))
    return 2.0 * s + s * z * p


@triton.jit
def _log1p(r):
    """log(1+r), with all digits where r is small; the hardware's logarithm has few of them near 1."""
    near = tl.abs(r) < 0.25
    f = tl.where(near, r, 0.0)
    return tl.where(near, _twice_atanh(f / (2.0 + f)), tl.log(1.0 + r))


@triton.jit
def _log1p_ratio(r):
    small = r < 1e-3
    safe = tl.where(small, 1.0, r)
    return tl.where(small, 1.0 - r * (0.5 - r * (1.0 / 3.0 - r * 0.25)), _log1p(safe) / safe)


@triton.jit
def _raised(raw):
    """Distances to the top that are absurd, and infinite ones, raised until their squares are finite."""
    return tl.maximum(raw, -(FAR if raw.dtype == tl.float64 else FAR_SINGLE))


@triton.jit
def _chunk(logits, row, j, stride, n_rows, n_classes):
    """Some classes of a tile of rows, in the precision to compute in; -inf behind the last."""
    inside = (row < n_rows)[:, None] & (j < n_classes)
    x = tl.load(logits + row[:, None] * stride + j, mask=inside, other=float("-inf"))
    return x if x.dtype == tl.float64 else x.to(tl.float32)


@triton.jit
def _softmax_kernel(logits, settings, tops, places, stride, n_rows, n_classes, ROWS: tl.constexpr, CHUNK: tl.constexpr):
    """kernel.c, rank and weigh: of each row the top and its place; what the others' weights sum to, and their mean.

    Five numbers a row: the top, the second's distance from it (-inf if there is none), the sum of the weights relative
    to the second, and mean and variance of the distances to the second.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j = tl.arange(0, CHUNK)[None, :]
    best = _chunk(logits, row, j, stride, n_rows, n_classes)
    dtype: tl.constexpr = best.dtype
    runner = tl.full([ROWS, CHUNK], float("-inf"), dtype)
    place = j + tl.zeros([ROWS, CHUNK], tl.int32)
    for start in range(CHUNK, n_classes, CHUNK):
        x = _chunk(logits, row, start + j, stride, n_rows, n_classes)
        runner = tl.maximum(runner, tl.minimum(best, x))
        place = tl.where(x > best, start + j, place)
        best = tl.maximum(best, x)
    top = tl.max(best, axis=1)
    at = tl.min(tl.where(best == top[:, None], place, n_classes), axis=1)
    below = tl.max(tl.where(place == at[:, None], runner, best), axis=1) - top
    below = tl.where(top > float("-inf"), below, float("-inf"))
    some = below > float("-inf")
    second = tl.where(some, _raised(below), 0.0)
    slope = tl.load(settings).to(dtype)
    total = tl.zeros([ROWS, CHUNK], dtype)
    first = tl.zeros([ROWS, CHUNK], dtype)
    square = tl.zeros([ROWS, CHUNK], dtype)
    for start in range(0, n_classes, CHUNK):
        x = _chunk(logits, row, start + j, stride, n_rows, n_classes)
        other = (x > float("-inf")) & (start + j != at[:, None])
        lower = tl.where(other, _raised(x - top[:, None]) - second[:, None], 0.0)
        e = tl.where(other, _exp(lower * slope), 0.0)
        total += e
        first += e * lower
        square += e * lower * lower
    total_, safe = tl.sum(total, axis=1), tl.where(some, tl.sum(total, axis=1), 1.0)
    mean = tl.sum(first, axis=1) / safe
    spread = tl.sum(square, axis=1) / safe - mean * mean
    is_row = row < n_rows
    tl.store(places + row, at, mask=is_row)
    tl.store(tops + row, top, mask=is_row)
    tl.store(tops + n_rows + row, tl.where(some, second, float("-inf")), mask=is_row)
    tl.store(tops + 2 * n_rows + row, total_, mask=is_row)
    tl.store(tops + 3 * n_rows + row, mean, mask=is_row)
    tl.store(tops + 4 * n_rows + row, spread, mask=is_row)


@triton.jit
def _softmax_of(tops, row, n_rows):
    """What `_softmax_kernel` stored; 0 classes but the top behind the last row."""
    is_row = row < n_rows
    top = tl.load(tops + row, mask=is_row, other=0.0)
    below = tl.load(tops + n_rows + row, mask=is_row, other=float("-inf"))
    total = tl.load(tops + 2 * n_rows + row, mask=is_row, other=0.0)
    mean = tl.load(tops + 3 * n_rows + row, mask=is_row, other=0.0)
    spread = tl.load(tops + 4 * n_rows + row, mask=is_row, other=0.0)
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
    return tl.where(own > float("-inf"), _raised(own), own), is_top


@triton.jit
def _top(below, total, some, slope):
    """kernel.c, top_of: rest, log(1+rest), log(1-q), h(q)."""
    log_rest = below * slope + tl.log(tl.where(some, total, 1.0))
    rest = tl.where(some, tl.exp(log_rest), 0.0)
    log_norm = _log1p(rest)
    return rest, log_norm, tl.where(some, log_rest - log_norm, 0.0), _log1p_ratio(rest)


@triton.jit
def _log_not(q):
    """log(1-q) of q up to 1/2: with all digits in double; in single, with those that count beside 1."""
    if q.dtype == tl.float64:
        doubled = q > 0.29289321881345254
        f = tl.where(doubled, 1.0 - 2.0 * q, -q)
        found = _twice_atanh(f / (2.0 + f))
        return tl.where(doubled, found - LN2, found)
    # -log(1-q) / q by Chebyshev's interpolation, to 1e-8; the logarithm itself takes twice as long.
    p = -0.5900887 + q * (1.9598706 + q * (-2.4589620 + q * 1.7336119))
    p = 0.33325517 + q * (0.25195679 + q * (0.17544077 + q * (0.34074646 + q * p)))
    return -q * (1.0 + q * (0.50000119 + q * p))


@triton.jit
def _other(q, log_q, gamma):
    """kernel.c, other: log(1-q), q/(1-q), h(q), and 1/(1 + γ h(q)); one division for both."""
    rest = 1.0 - q
    low = -log_q * q
    bent = rest + gamma * low
    both = _inverse(rest * bent)
    per_rest = both * bent
    return _log_not(q), q * per_rest, low * per_rest, rest * rest * both


@triton.jit
def _others_curve(log_not_q, odds, h, damp, gamma, slope, curvature):
    bend = odds * (h - 1.0)
    h_1 = h + bend
    part = gamma * damp
    turn = part * h_1
    lost = h * damp
    x_1 = 1.0 + gamma * odds - turn
    x_2 = (1.0 + odds) * (gamma * odds - part * (h_1 + bend)) + turn * turn
    bb = x_2 * slope * slope + x_1 * curvature
    return -log_not_q - lost, x_1 * slope, lost * lost, (odds - h_1 * damp * damp) * slope, bb


@triton.jit
def _top_curve(rest, log_not_q, h, gamma, mean, variance):
    q = 1.0 / (1.0 + rest)
    not_q = rest * q
    h_1 = q - h
    h_2 = -not_q * q - h_1
    damp = 1.0 / (1.0 + gamma * h)
    turn = gamma * damp * h_1
    lost = h * damp
    x_1 = -not_q - gamma * q - turn
    x_2 = (gamma - 1.0) * not_q * q - gamma * damp * h_2 + turn * turn
    bb = x_2 * mean * mean + x_1 * variance
    return -log_not_q - lost, x_1 * mean, lost * lost, -(q + h_1 * damp * damp) * mean, bb


@triton.jit
def _label(at_label, is_top, below, safe, rest, log_norm, gamma, slope):
    """kernel.c, label_of: the label as if it were not the top."""
    possible = at_label > float("-inf")
    raw = tl.where(possible, at_label, 0.0)
    q = tl.exp((raw - below) * slope) * (rest / (1.0 + rest) / safe)
    q = tl.where(possible & (is_top == 0), q, 0.0)
    log_not_q, odds, h, damp = _other(q, raw * slope - log_norm, gamma)
    return raw, log_not_q, odds, h, damp, possible


@triton.jit
def _focal_gap(raw, log_not_q, h, possible, is_top, top_log_not_q, top_h, gamma, slope):
    gap = raw * slope
    found = gap - gamma * (log_not_q - top_log_not_q) - (_log1p(gamma * h) - _log1p(gamma * top_h))
    found = tl.where((gap != 0.0) & (found < 0.0) & (is_top == 0), found, 0.0)
    return tl.where(possible, found, float("-inf"))


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
    _add(out, 0, 3, _log1p(rest) - at_label * slope, row, weights, n_rows, HAS_WEIGHTS)
    _add(out, 1, 3, others * mean - at_label, row, weights, n_rows, HAS_WEIGHTS)
    _add(out, 2, 3, others * (spread + mean * mean * q), row, weights, n_rows, HAS_WEIGHTS)


@triton.jit
def _others_kernel(
    logits, settings, tops, places, sums, stride, n_rows, n_classes,
    DERIVATIVES: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Behind the focal map, sums over the classes but the top: of p / p_top and its square, or of its derivatives."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j = tl.arange(0, CHUNK)[None, :]
    top, below, total, _, raw_mean, spread, some = _softmax_of(tops, row, n_rows)
    at = tl.load(places + row, mask=row < n_rows, other=0)
    slope = tl.load(settings).to(top.dtype)
    gamma = tl.load(settings + 1).to(top.dtype)
    rest, log_norm, top_log_not_q, top_h = _top(below, total, some, slope)
    not_top = rest / (1.0 + rest)
    mean = not_top * raw_mean
    curvature = mean * mean - not_top * (spread + raw_mean * raw_mean)
    t_g, t_b, _, _, _ = _top_curve(rest, top_log_not_q, top_h, gamma, raw_mean, spread)
    factor = 1.0 + gamma * top_h
    zero = tl.zeros([ROWS, CHUNK], top.dtype)
    s, s_g, s_b, s_gg, s_gb, s_bb = zero, zero, zero, zero, zero, zero
    for start in range(0, n_classes, CHUNK):
        x = _chunk(logits, row, start + j, stride, n_rows, n_classes)
        raw = _raised(tl.where(start + j == at[:, None], float("-inf"), x) - top[:, None])
        gap = raw * slope
        log_q = gap - log_norm[:, None]
        log_not_q, odds, h, damp = _other(_exp(log_q), log_q, gamma)
        p = _exp(gap - gamma * (log_not_q - top_log_not_q[:, None])) * (factor[:, None] * damp)
        s += p
        if DERIVATIVES:
            g, b, gg, gb, bb = _others_curve(log_not_q, odds, h, damp, gamma, raw - mean[:, None], curvature[:, None])
            g = g - t_g[:, None]
            b = b - t_b[:, None]
            s_g += p * g
            s_b += p * b
            s_gg += p * (gg + g * g)
            s_gb += p * (gb + g * b)
            s_bb += p * (bb + b * b)
        else:
            s_g += p * p
    is_row = row < n_rows
    tl.store(sums + row, tl.sum(s, axis=1), mask=is_row)
    tl.store(sums + n_rows + row, tl.sum(s_g, axis=1), mask=is_row)
    if DERIVATIVES:
        tl.store(sums + 2 * n_rows + row, tl.sum(s_b, axis=1), mask=is_row)
        tl.store(sums + 3 * n_rows + row, tl.sum(s_gg, axis=1), mask=is_row)
        tl.store(sums + 4 * n_rows + row, tl.sum(s_gb, axis=1), mask=is_row)
        tl.store(sums + 5 * n_rows + row, tl.sum(s_bb, axis=1), mask=is_row)


@triton.jit
def _focal_kernel(
    logits, labels, weights, settings, tops, places, sums, out, stride, n_rows,
    HAS_WEIGHTS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_row = row < n_rows
    top, below, total, safe, raw_mean, spread, some = _softmax_of(tops, row, n_rows)
    at_label, is_top = _label_of(logits, labels, places, top, row, stride, n_rows)
    slope = tl.load(settings).to(top.dtype)
    gamma = tl.load(settings + 1).to(top.dtype)
    rest, log_norm, top_log_not_q, top_h = _top(below, total, some, slope)
    not_top = rest / (1.0 + rest)
    mean = not_top * raw_mean
    curvature = mean * mean - not_top * (spread + raw_mean * raw_mean)
    t_g, t_b, t_gg, t_gb, t_bb = _top_curve(rest, top_log_not_q, top_h, gamma, raw_mean, spread)
    w = tl.load(sums + row, mask=is_row, other=0.0)
    norm = 1.0 / (1.0 + w)
    mean_g = tl.load(sums + n_rows + row, mask=is_row, other=0.0) * norm
    mean_b = tl.load(sums + 2 * n_rows + row, mask=is_row, other=0.0) * norm
    sum_gg = tl.load(sums + 3 * n_rows + row, mask=is_row, other=0.0)
    sum_gb = tl.load(sums + 4 * n_rows + row, mask=is_row, other=0.0)
    sum_bb = tl.load(sums + 5 * n_rows + row, mask=is_row, other=0.0)
    mean_gg = (sum_gg - w * t_gg) * norm - mean_g * mean_g
    mean_gb = (sum_gb - w * t_gb) * norm - mean_g * mean_b
    mean_bb = (sum_bb - w * t_bb) * norm - mean_b * mean_b
    y_raw, y_log, y_odds, y_h, y_damp, y_possible = _label(at_label, is_top, below, safe, rest, log_norm, gamma, slope)
    g, b, gg, gb, bb = _others_curve(y_log, y_odds, y_h, y_damp, gamma, y_raw - mean, curvature)
    gap_y = _focal_gap(y_raw, y_log, y_h, y_possible, is_top, top_log_not_q, top_h, gamma, slope)
    _add(out, 0, 6, _log1p(w) - gap_y, row, weights, n_rows, HAS_WEIGHTS)
    _add(out, 1, 6, mean_g - tl.where(is_top, 0.0, g - t_g), row, weights, n_rows, HAS_WEIGHTS)
    _add(out, 2, 6, mean_b - tl.where(is_top, 0.0, b - t_b), row, weights, n_rows, HAS_WEIGHTS)
    _add(out, 3, 6, mean_gg - tl.where(is_top, 0.0, gg - t_gg), row, weights, n_rows, HAS_WEIGHTS)
    _add(out, 4, 6, mean_gb - tl.where(is_top, 0.0, gb - t_gb), row, weights, n_rows, HAS_WEIGHTS)
    _add(out, 5, 6, mean_bb - tl.where(is_top, 0.0, bb - t_bb), row, weights, n_rows, HAS_WEIGHTS)


@triton.jit
def _predict_kernel(logits, labels, settings, tops, places, sums, out, stride, n_rows, ROWS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_row = row < n_rows
    top, below, total, safe, _, _, some = _softmax_of(tops, row, n_rows)
    at_label, is_top = _label_of(logits, labels, places, top, row, stride, n_rows)
    slope = tl.load(settings).to(top.dtype)
    gamma = tl.load(settings + 1).to(top.dtype)
    rest, log_norm, top_log_not_q, top_h = _top(below, total, some, slope)
    y_raw, y_log, _, y_h, _, y_possible = _label(at_label, is_top, below, safe, rest, log_norm, gamma, slope)
    gap_y = _focal_gap(y_raw, y_log, y_h, y_possible, is_top, top_log_not_q, top_h, gamma, slope)
    w = tl.load(sums + row, mask=is_row, other=0.0)
    squares = tl.load(sums + n_rows + row, mask=is_row, other=0.0)
    norm = 1.0 / (1.0 + w)
    tl.store(out + row, gap_y - _log1p(w), mask=is_row)
    tl.store(out + n_rows + row, norm, mask=is_row)
    tl.store(out + 2 * n_rows + row, (1.0 + squares) * norm * norm, mask=is_row)


def usable(logits: Any) -> bool:
    """Whether these logits can be given to the kernels."""
    return bool(logits.is_cuda and logits.stride(-1) == 1)


def plan(logits: Any) -> Plan:
    """All rows at once."""
    n_rows, n_classes = map(int, logits.shape)
    precision = float(torch.finfo(_precision(logits)).eps)
    return Plan(n_rows * n_classes, 1, precision, has_affine=n_classes <= MAX_AFFINE)


def temperature(x: Tensor, y: Tensor, weight: Tensor | None, slope: float, *, rough: bool = False) -> Tensor:
    """See `Engine.temperature`."""
    settings = _on_device(x, slope)
    return _sums(_temperature_kernel, 3, x, y, weight, settings, *_softmax(x, settings))


def focal(x: Tensor, y: Tensor, weight: Tensor | None, gamma: float, slope: float, *, rough: bool = False) -> Tensor:
    """See `Engine.focal`."""
    settings = _on_device(x, slope, gamma)
    found = _softmax(x, settings)
    return _sums(_focal_kernel, 6, x, y, weight, settings, *found, _others(x, settings, *found, derivatives=True))


def predict(x: Tensor, y: Tensor, gammas: tuple[float, ...], slope: float, *, rough: bool = False) -> Tensor:
    """See `Engine.predict`."""
    out = torch.empty(len(gammas), 3, len(x), dtype=_precision(x), device=x.device)
    found = _softmax(x, _on_device(x, slope))
    grid = (triton.cdiv(len(x), ROWS_AT_ONCE),)
    for gamma, part in zip(gammas, out, strict=True):
        settings = _on_device(x, slope, gamma)
        sums = _others(x, settings, *found, derivatives=False)
        _predict_kernel[grid](x, y.contiguous(), settings, *found, sums, part, x.stride(0), len(x), ROWS=ROWS_AT_ONCE)
    return out.transpose(0, 1)


def inspect(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """See `Engine.inspect`; where all weights are 1, the sum and the mean are those of the distances."""
    (_, below, count, mean, _), places = _softmax(x, _on_device(x, 0.0))
    distance = torch.where(count > 0.0, -count.double() * (below.double() + mean.double()), 0.0)
    return places == y, distance.sum()


def _softmax(x: Tensor, settings: Tensor) -> tuple[Tensor, Tensor]:
    grid, tile = _tile(x)
    tops = torch.empty(5, len(x), dtype=_precision(x), device=x.device)
    places = torch.empty(len(x), dtype=torch.int32, device=x.device)
    _softmax_kernel[grid](x, settings, tops, places, x.stride(0), *x.shape, **tile)
    return tops, places


def _others(x: Tensor, settings: Tensor, tops: Tensor, places: Tensor, *, derivatives: bool) -> Tensor:
    grid, tile = _tile(x)
    sums = torch.empty(6 if derivatives else 2, len(x), dtype=tops.dtype, device=x.device)
    _others_kernel[grid](x, settings, tops, places, sums, x.stride(0), *x.shape, DERIVATIVES=derivatives, **tile)
    return sums


def _sums(kernel: Any, width: int, x: Tensor, y: Tensor, weight: Tensor | None, *found: Tensor) -> Tensor:
    """The sums of a kernel that finishes what was found of each row."""
    grid = (triton.cdiv(len(x), ROWS_AT_ONCE),)
    out = torch.empty(*grid, width, dtype=torch.float64, device=x.device)
    weights = out if weight is None else weight.contiguous()
    kernel[grid](
        x, y.contiguous(), weights, *found, out, x.stride(0), len(x), HAS_WEIGHTS=weight is not None, ROWS=ROWS_AT_ONCE
    )
    return out.sum(0)


def _precision(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _on_device(x: Tensor, *settings: float) -> Tensor:
    """In double: as arguments of a kernel they would be rounded to float32."""
    return torch.tensor(settings, dtype=torch.float64).to(x.device)


def _tile(x: Tensor) -> tuple[tuple[int], dict[str, int]]:
    """How many programs, and the tile of each."""
    chunk = min(MAX_CHUNK, triton.next_power_of_2(x.shape[-1]))
    rows = max(1, TILE // chunk)
    return (triton.cdiv(len(x), rows),), {"ROWS": rows, "CHUNK": chunk, "num_warps": NUM_WARPS}
