"""Probabilities behind a chain of steps on a GPU: one kernel, which reads the logits once and writes them once.

The same as apply.h, under the same names: read it there first.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from refocal.engine.triton_engine import _log1p, _log_not, _other, _top
from refocal.maps.affine import FLOOR, KINDS
from refocal.maps.chain import CODES, Program
from refocal.maps.curves import FARTHEST, ROUNDINGS

LOWEST, FAR, MARGIN = tl.constexpr(-FLOOR), tl.constexpr(FARTHEST), tl.constexpr(ROUNDINGS)
EPSILON, EPSILON_SINGLE = tl.constexpr(2.0**-52), tl.constexpr(2.0**-23)
IS_FLOOR, IS_TEMPERATURE, IS_AFFINE, IS_OFFSET, IS_FOCAL, IS_CONFIDENCE, IS_TWO_CLASSES, IS_REWEIGHT = (
    tl.constexpr(CODES.index(code))
    for code in ("floor", "temperature", "affine", "offset", "focal", "confidence", "two classes", "reweight")
)
IS_LOGITS, IS_LOG_PROBABILITIES = tl.constexpr(KINDS.index("logits")), tl.constexpr(KINDS.index("log-probabilities"))
NOT_NUMBERS, NOT_PROBABILITIES = 1, 2
# Longer rows do not fit the registers of a program; entries of a tile, several rows where rows are short.
MAX_CLASSES, TILE = 1 << 14, 1 << 10


@triton.jit
def _look(x, known):
    """For each row, the bits of apply.h, look."""
    wrong = tl.sum(tl.where(known & ~(x < float("inf")), 1, 0), axis=1) > 0
    none = tl.max(x, axis=1) == float("-inf")
    negative = tl.min(tl.where(known, x, 0.0), axis=1) < 0.0
    sums = tl.sum(tl.where(known, x, 0.0), axis=1)
    off = negative | ~((sums >= 0.99) & (sums <= 1.01))
    return tl.where(wrong | none, 1, 0) | tl.where(off, 2, 0)


@triton.jit
def _affine(x, known, slope, own, j, n_classes):
    """A diagonal affine map of slope · x: maps/affine.py."""
    kind = tl.load(own)
    inner = slope / tl.load(own + 1).to(x.dtype)
    scale = tl.where(kind == IS_LOG_PROBABILITIES, tl.load(own + 1), 1.0).to(x.dtype)
    gap = (x - tl.max(x, axis=1)[:, None]) * inner
    gap = tl.where(gap > LOWEST, gap, LOWEST)
    mean = tl.sum(tl.where(known, gap, 0.0), axis=1) / n_classes
    log_sum = tl.log(tl.sum(tl.where(known, tl.exp(gap * scale), 0.0), axis=1)) / scale
    z = gap - tl.where(kind == IS_LOGITS, mean, log_sum)[:, None]
    weights = tl.load(own + 2 + j, mask=j < n_classes, other=0.0).to(x.dtype)
    intercept = tl.load(own + 2 + n_classes + j, mask=j < n_classes, other=0.0).to(x.dtype)
    return tl.where(x > float("-inf"), z * weights + intercept, float("-inf"))


@triton.jit
def _weights(x, slope, j):
    """apply.h, softmax_weights: the top, distances to it, the second's, weights relative to that, and their sum."""
    top, at = tl.max(x, axis=1, return_indices=True)
    raw = tl.where(j == at[:, None], float("-inf"), x - top[:, None])
    below = tl.max(raw, axis=1)
    some = below > float("-inf")
    below = tl.where(some, below, 0.0)
    possible = raw > float("-inf")
    raw = tl.where(possible, raw, 0.0)
    e = tl.where(possible, tl.exp((raw - below[:, None]) * slope), 0.0)
    return at, raw, below, some, e, tl.sum(e, axis=1)


@triton.jit
def _log_sum(total, some):
    return _log1p(tl.where(some, total - 1.0, 0.0))


@triton.jit
def _focal(raw, below, some, e, total, slope, gamma):
    """apply.h, focal_odds: weights behind the focal map, their sum, and the log-odds of the top."""
    rest, log_norm, top_log_not_q, top_h = _top(below, total, some, slope)
    scale = rest / (1.0 + rest) / tl.where(some, total, 1.0)
    gap = below * slope
    second_log, _, second_h, _ = _other(scale, gap - log_norm, gamma)
    second = gap - gamma * (second_log - top_log_not_q) - (_log1p(gamma * second_h) - _log1p(gamma * top_h))
    second = tl.where((gap != 0.0) & (second < 0.0), second, 0.0)
    q = e * scale[:, None]
    log_q = raw * slope - log_norm[:, None]
    rest_q = 1.0 - q
    damp = rest_q / (rest_q - gamma * log_q * q)  # 1/(1 + γ h(q))
    lower = (raw - below[:, None]) * slope - gamma * (_log_not(q) - second_log[:, None])
    weight = tl.exp(lower) * ((1.0 + gamma * second_h)[:, None] * damp)
    e = tl.where(e > 0.0, tl.where(weight < 1.0, weight, 1.0), 0.0)
    total = tl.sum(e, axis=1)
    some = total > 0.0
    return e, total, tl.where(some, -(second + _log_sum(total, some)), FAR)


@triton.jit
def _curve(s, own):
    """apply.h, curve, in double."""
    n_knots = tl.load(own).to(tl.int32)
    n_powers = tl.load(own + 1).to(tl.int32)
    piece = tl.zeros_like(s).to(tl.int32)
    for k in range(n_knots):
        piece += (tl.load(own + 2 + k).to(s.dtype) <= s).to(tl.int32)
    distance = s.to(tl.float64) - tl.load(own + 2 + tl.where(piece > 0, piece - 1, 0))
    value = tl.zeros_like(distance)
    for k in range(n_powers):
        value = value * distance + tl.load(own + 2 + n_knots + (n_powers - 1 - k) * (n_knots + 1) + piece)
    return value.to(s.dtype)


@triton.jit
def _apply_kernel(
    logits, starts, numbers, out, seen, stride, out_stride, n_rows, n_classes,
    KINDS_OF_STEPS: tl.constexpr, N_STEPS: tl.constexpr, KEEPS_TOP: tl.constexpr,
    ROWS: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j = tl.arange(0, CLASSES)[None, :]
    is_row, known = row < n_rows, j < n_classes
    x = tl.load(logits + row[:, None] * stride + j, mask=is_row[:, None] & known, other=float("-inf"))
    x = x if x.dtype == tl.float64 else x.to(tl.float32)
    found = _look(x, known)
    tl.store(seen + row, found, mask=is_row)
    x = tl.where(is_row[:, None] & ((found & 1) == 0)[:, None], x, tl.where(j == 0, 0.0, float("-inf")))  # harmless
    slope = tl.full([], 1.0, x.dtype)
    for k in tl.static_range(N_STEPS):
        own = numbers + tl.load(starts + k)
        if (KINDS_OF_STEPS >> 4 * k) & 15 == IS_FLOOR:
            x = tl.where(known, tl.maximum(x, tl.load(own).to(x.dtype) / slope), float("-inf"))
        if (KINDS_OF_STEPS >> 4 * k) & 15 == IS_TEMPERATURE:
            slope = slope / tl.load(own).to(x.dtype)
        if (KINDS_OF_STEPS >> 4 * k) & 15 == IS_AFFINE:
            x = _affine(x, known, slope, own, j, n_classes)
            slope = tl.full([], 1.0, x.dtype)
        if (KINDS_OF_STEPS >> 4 * k) & 15 == IS_OFFSET:
            x = x * slope + tl.load(own + j, mask=known, other=0.0).to(x.dtype)
            slope = tl.full([], 1.0, x.dtype)
    at, raw, below, some, e, total = _weights(x, slope, j)
    log_odds = tl.where(some, -(below * slope + _log_sum(total, some)), FAR)
    for k in tl.static_range(N_STEPS):
        own = numbers + tl.load(starts + k)
        if (KINDS_OF_STEPS >> 4 * k) & 15 == IS_FOCAL:
            e, total, log_odds = _focal(raw, below, some, e, total, slope, tl.load(own).to(x.dtype))
        if (KINDS_OF_STEPS >> 4 * k) & 15 == IS_CONFIDENCE:
            some = total > 0.0
            curved = _curve(tl.where(log_odds < FAR, log_odds, FAR), own)
            second = -_log_sum(total, some)
            least = second + MARGIN * (EPSILON if x.dtype == tl.float64 else EPSILON_SINGLE) * (1.0 - second)
            log_odds = tl.where(some & (curved < least), least, curved)
        if (KINDS_OF_STEPS >> 4 * k) & 15 == IS_TWO_CLASSES:
            sign = tl.where(at == 1, 1.0, -1.0).to(x.dtype)
            curved = sign * _curve(sign * tl.where(log_odds < FAR, log_odds, FAR), own)
            log_odds = tl.where(total > 0.0, curved, log_odds)
    some = total > 0.0
    up = log_odds > 0.0
    small = tl.exp(tl.where(up, -log_odds, log_odds))  # exp of what is not positive
    share = 1.0 / (1.0 + small)
    top = tl.where(some, tl.where(up, share, small * share), 1.0)
    scale = tl.where(some, tl.where(up, small * share, share), 0.0) / tl.where(some, total, 1.0)
    p = e * scale[:, None]
    if KEEPS_TOP:
        p = tl.where(p < top[:, None], p, top[:, None])  # against the last rounding
    p = tl.where(j == at[:, None], top[:, None], p)
    for k in tl.static_range(N_STEPS):
        if (KINDS_OF_STEPS >> 4 * k) & 15 == IS_REWEIGHT:
            p = p * tl.load(numbers + tl.load(starts + k) + j, mask=known, other=0.0).to(x.dtype)
            p = p / tl.sum(p, axis=1)[:, None]
    tl.store(out + row[:, None] * out_stride + j, p, mask=is_row[:, None] & known)


def apply(program: Program, x: Tensor) -> tuple[Tensor, bool]:
    """Probabilities of rows of logits, in their precision; and whether they need a closer look, as `Applied` says."""
    classes = triton.next_power_of_2(x.shape[-1])
    tile = {"ROWS": max(1, TILE // classes), "CLASSES": classes, "num_warps": max(4, classes >> 10)}
    grid = (triton.cdiv(len(x), tile["ROWS"]),)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    seen = torch.empty(len(x), dtype=torch.int32, device=x.device)
    kinds, starts = program.steps[:, 0].tolist(), np.ascontiguousarray(program.steps[:, 1])
    _apply_kernel[grid](
        x, torch.from_numpy(starts).to(x.device), torch.from_numpy(program.numbers).to(x.device), out, seen,
        x.stride(0), out.stride(0), *x.shape,
        KINDS_OF_STEPS=sum(kind << 4 * k for k, kind in enumerate(kinds)), N_STEPS=len(kinds),
        KEEPS_TOP=CODES.index("two classes") not in kinds, **tile,
    )  # fmt: skip
    return out, bool(((seen & NOT_NUMBERS) != 0).any() | ((seen & NOT_PROBABILITIES) == 0).all())
