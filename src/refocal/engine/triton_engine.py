"""The Triton engine (torch with CUDA includes Triton): one GPU kernel a pass, which reads the logits once.

The same formulas as kernel.c and refocal/maps, under the same names: read them there first. A program takes a tile of
whole rows into registers; rows longer than MAX_CLASSES are left to the array functions.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from refocal._validation import LARGE
from refocal.engine.array_engine import LARGE_SINGLE, split, vector
from refocal.engine.protocol import Plan
from refocal.engine.triton_affine import MAX_CLASSES as MAX_AFFINE

__all__ = ["focal", "inspect", "plan", "predict", "split", "temperature", "usable", "vector"]

# Rows longer than this no longer fit the registers of a program.
MAX_CLASSES = 1 << 14
# Entries of a tile, several rows where rows are short.
TILE = 1 << 11

LN2 = tl.constexpr(0.6931471805599453)
FAR, FAR_SINGLE = tl.constexpr(LARGE), tl.constexpr(LARGE_SINGLE)


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
def _within_reach(raw):
    """As in array_engine.within_reach."""
    reach = FAR if raw.dtype == tl.float64 else FAR_SINGLE
    return tl.where((raw < -reach) & (raw > float("-inf")), -reach, raw)


@triton.jit
def _load(logits, labels, stride, n_rows, n_classes, ROWS: tl.constexpr, CLASSES: tl.constexpr):
    """A tile of rows less their top, -inf at the top itself; the label's distance, and where the label is the top."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j = tl.arange(0, CLASSES)[None, :]
    inside = (row < n_rows)[:, None] & (j < n_classes)
    x = tl.load(logits + row[:, None] * stride + j, mask=inside, other=float("-inf"))
    x = x if x.dtype == tl.float64 else x.to(tl.float32)
    x = tl.where((row < n_rows)[:, None], x, tl.where(j == 0, 0.0, float("-inf")))  # rows behind the last: harmless
    top, at = tl.max(x, axis=1, return_indices=True)
    y = tl.load(labels + row, mask=row < n_rows, other=0).to(tl.int64)
    own = tl.load(logits + row * stride + y, mask=row < n_rows, other=0.0).to(x.dtype)
    raw, at_label = _within_reach(x - top[:, None]), _within_reach(own - top)
    return row, tl.where(j == at[:, None], float("-inf"), raw), at_label, y == at


@triton.jit
def _weigh(raw, slope):
    """kernel.c, weigh: below, e, its sum, and the mean and variance of raw that it gives."""
    below = tl.max(raw, axis=1)
    some = below > float("-inf")
    below = tl.where(some, below, 0.0)
    possible = raw > float("-inf")
    lower = tl.where(possible, raw - below[:, None], 0.0)
    e = tl.where(possible, tl.exp(lower * slope), 0.0)
    total = tl.sum(e, axis=1)
    safe = tl.where(some, total, 1.0)
    mean_lower = tl.sum(e * lower, axis=1) / safe
    spread = tl.sum(e * lower * lower, axis=1) / safe - mean_lower * mean_lower
    return below, e, total, safe, tl.where(some, below + mean_lower, 0.0), spread, some


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
    near = -q * (1.0 + q * (0.5 + q * (1.0 / 3.0 + q * (0.25 + q * (0.2 + q * (1.0 / 6.0))))))
    return tl.where(q < 0.0625, near, tl.log(1.0 - q))


@triton.jit
def _other(q, log_q, gamma):
    """kernel.c, other: log(1-q), q/(1-q), h(q), and 1/(1 + γ h(q)); one division for both."""
    rest = 1.0 - q
    low = -log_q * q
    bent = rest + gamma * low
    both = 1.0 / (rest * bent)
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
    logits, labels, weights, settings, out, stride, n_rows, n_classes,
    HAS_WEIGHTS: tl.constexpr, ROWS: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    row, raw, at_label, _ = _load(logits, labels, stride, n_rows, n_classes, ROWS, CLASSES)
    slope = tl.load(settings).to(raw.dtype)
    below, _, total, _, mean, spread, some = _weigh(raw, slope)
    rest = tl.where(some, tl.exp(below * slope) * total, 0.0)
    top = 1.0 / (1.0 + rest)
    others = rest * top
    _add(out, 0, 3, _log1p(rest) - at_label * slope, row, weights, n_rows, HAS_WEIGHTS)
    _add(out, 1, 3, others * mean - at_label, row, weights, n_rows, HAS_WEIGHTS)
    _add(out, 2, 3, others * (spread + mean * mean * top), row, weights, n_rows, HAS_WEIGHTS)


@triton.jit
def _focal_kernel(
    logits, labels, weights, settings, out, stride, n_rows, n_classes,
    HAS_WEIGHTS: tl.constexpr, ROWS: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    row, raw, at_label, is_top = _load(logits, labels, stride, n_rows, n_classes, ROWS, CLASSES)
    slope = tl.load(settings).to(raw.dtype)
    gamma = tl.load(settings + 1).to(raw.dtype)
    below, e, total, safe, raw_mean, spread, some = _weigh(raw, slope)
    rest, log_norm, top_log_not_q, top_h = _top(below, total, some, slope)
    not_top = rest / (1.0 + rest)
    mean = not_top * raw_mean
    curvature = mean * mean - not_top * (spread + raw_mean * raw_mean)
    t_g, t_b, t_gg, t_gb, t_bb = _top_curve(rest, top_log_not_q, top_h, gamma, raw_mean, spread)

    possible = e > 0.0
    raw = tl.where(possible, raw, 0.0)
    gap = raw * slope
    log_not_q, odds, h, damp = _other(e * (not_top / safe)[:, None], gap - log_norm[:, None], gamma)
    p = tl.exp(gap - gamma * (log_not_q - top_log_not_q[:, None])) * ((1.0 + gamma * top_h)[:, None] * damp)
    p = tl.where(possible, p, 0.0)
    g, b, gg, gb, bb = _others_curve(log_not_q, odds, h, damp, gamma, raw - mean[:, None], curvature[:, None])
    g = g - t_g[:, None]
    b = b - t_b[:, None]
    w = tl.sum(p, axis=1)
    norm = 1.0 / (1.0 + w)
    mean_g = tl.sum(p * g, axis=1) * norm
    mean_b = tl.sum(p * b, axis=1) * norm
    mean_gg = (tl.sum(p * (gg + g * g), axis=1) - w * t_gg) * norm - mean_g * mean_g
    mean_gb = (tl.sum(p * (gb + g * b), axis=1) - w * t_gb) * norm - mean_g * mean_b
    mean_bb = (tl.sum(p * (bb + b * b), axis=1) - w * t_bb) * norm - mean_b * mean_b

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
def _predict_kernel(
    logits, labels, settings, log_p, confidence, squares, stride, n_rows, n_classes, n_gammas,
    ROWS: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    row, raw, at_label, is_top = _load(logits, labels, stride, n_rows, n_classes, ROWS, CLASSES)
    slope = tl.load(settings).to(raw.dtype)
    below, e, total, safe, _, _, some = _weigh(raw, slope)
    rest, log_norm, top_log_not_q, top_h = _top(below, total, some, slope)
    possible = e > 0.0
    gap = tl.where(possible, raw * slope, 0.0)
    scale = (rest / (1.0 + rest) / safe)[:, None]
    q, log_q = e * scale, gap - log_norm[:, None]
    apart = _log_not(q) - top_log_not_q[:, None]
    for k in range(n_gammas):
        gamma = tl.load(settings + 1 + k).to(raw.dtype)
        rest_q = 1.0 - q
        damp = rest_q / (rest_q - gamma * log_q * q)  # 1/(1 + γ h(q))
        p = tl.exp(gap - gamma * apart) * ((1.0 + gamma * top_h)[:, None] * damp)
        p = tl.where(possible, p, 0.0)
        w = tl.sum(p, axis=1)
        norm = 1.0 / (1.0 + w)
        y_raw, y_log, _, y_h, _, y_possible = _label(at_label, is_top, below, safe, rest, log_norm, gamma, slope)
        gap_y = _focal_gap(y_raw, y_log, y_h, y_possible, is_top, top_log_not_q, top_h, gamma, slope)
        at = k * n_rows + row
        tl.store(log_p + at, gap_y - _log1p(w), mask=row < n_rows)
        tl.store(confidence + at, norm, mask=row < n_rows)
        tl.store(squares + at, (1.0 + tl.sum(p * p, axis=1)) * norm * norm, mask=row < n_rows)


@triton.jit
def _inspect_kernel(logits, labels, correct, out, stride, n_rows, n_classes, ROWS: tl.constexpr, CLASSES: tl.constexpr):
    row, raw, _, is_top = _load(logits, labels, stride, n_rows, n_classes, ROWS, CLASSES)
    tl.store(correct + row, is_top, mask=row < n_rows)
    distance = -tl.sum(tl.where(raw > float("-inf"), raw, 0.0), axis=1)
    _add(out, 0, 1, distance, row, out, n_rows, False)


def usable(logits: Any) -> bool:
    """Whether these logits can be given to the fused passes."""
    return bool(logits.is_cuda and logits.stride(-1) == 1 and logits.shape[-1] <= MAX_CLASSES)


def plan(logits: Any) -> Plan:
    """All rows at once."""
    precision = torch.finfo(torch.float64 if logits.dtype == torch.float64 else torch.float32).eps
    n_rows, n_classes = map(int, logits.shape)
    return Plan(n_rows * n_classes, 1, float(precision), has_affine=n_classes <= MAX_AFFINE)


def temperature(x: Tensor, y: Tensor, weight: Tensor | None, slope: float, *, rough: bool = False) -> Tensor:
    """See `Engine.temperature`."""
    return _sums(_temperature_kernel, 3, x, y, weight, slope)


def focal(x: Tensor, y: Tensor, weight: Tensor | None, gamma: float, slope: float, *, rough: bool = False) -> Tensor:
    """See `Engine.focal`."""
    return _sums(_focal_kernel, 6, x, y, weight, slope, gamma)


def predict(x: Tensor, y: Tensor, gammas: tuple[float, ...], slope: float, *, rough: bool = False) -> Tensor:
    """See `Engine.predict`."""
    grid, tile = tile_of(x)
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    out = torch.empty(3, len(gammas), len(x), dtype=dtype, device=x.device)
    settings = _on_device(x, slope, *gammas)
    _predict_kernel[grid](x, y.contiguous(), settings, *out, x.stride(0), *x.shape, len(gammas), **tile)
    return out


def inspect(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """See `Engine.inspect`."""
    grid, tile = tile_of(x)
    correct = torch.empty(len(x), dtype=torch.bool, device=x.device)
    out = torch.empty(*grid, 1, dtype=torch.float64, device=x.device)
    _inspect_kernel[grid](x, y.contiguous(), correct, out, x.stride(0), *x.shape, **tile)
    return correct, out.sum()


def _sums(kernel: Any, width: int, x: Tensor, y: Tensor, weight: Tensor | None, *settings: float) -> Tensor:
    grid, tile = tile_of(x)
    out = torch.empty(*grid, width, dtype=torch.float64, device=x.device)
    weights = out if weight is None else weight.contiguous()
    kernel[grid](
        x, y.contiguous(), weights, _on_device(x, *settings), out, x.stride(0), *x.shape,
        HAS_WEIGHTS=weight is not None, **tile,
    )  # fmt: skip
    return out.sum(0)


def _on_device(x: Tensor, *settings: float) -> Tensor:
    """In double: as arguments of a kernel they would be rounded to float32."""
    return torch.tensor(settings, dtype=torch.float64).to(x.device)


def tile_of(x: Tensor) -> tuple[tuple[int], dict[str, int]]:
    """How many programs, the tile of each, and its warps."""
    classes = triton.next_power_of_2(x.shape[-1])
    rows = max(1, TILE // classes)
    return (triton.cdiv(len(x), rows),), {"ROWS": rows, "CLASSES": classes, "num_warps": max(4, classes >> 10)}
