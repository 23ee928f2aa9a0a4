"""What kernel.c and refocal/maps compute of an element or of a row, under the same names, for the kernels of a GPU.

docs/focal-map.md derives the focal map and shows the three side by side.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
import triton
import triton.language as tl

from refocal._validation import LARGE
from refocal.engine.array_engine import LARGE_SINGLE

# Triton reads globals of a kernel only as constexpr.
LN2 = tl.constexpr(0.6931471805599453)
LOG2E = tl.constexpr(1.4426950408889634)
LARGEST_GAP = tl.constexpr(LARGE)
LARGEST_GAP_SINGLE = tl.constexpr(LARGE_SINGLE)

# What is summed up of a row: its softmax alone, p and p² after the focal map, or p and its derivatives.
SOFTMAX = tl.constexpr(0)
SQUARES = tl.constexpr(1)
DERIVATIVES = tl.constexpr(2)

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
"""Whether Triton's interpreter runs the kernels, which knows nothing of a GPU's own instructions."""

Launcher = TypeVar("Launcher", bound=Callable[..., Any])

OPTIONS = {"enable_fp_fusion": True}
"""Options of every kernel: products and sums in one instruction, which Triton gives up as its default in 3.10."""


def beside_its_tensors(launcher: Launcher) -> Launcher:
    """A function that launches kernels, on the GPU of its first tensor: Triton takes the current GPU, maybe another."""

    @wraps(launcher)
    def launch(*given: Any, **options: Any) -> Any:
        first = next(value for value in given if isinstance(value, torch.Tensor))
        with torch.cuda.device_of(first):
            return launcher(*given, **options)

    return launch  # type: ignore[return-value]


@triton.jit
def chunk_of(logits, row, j, stride, n_rows, n_classes):
    """Some classes of a tile of rows, in the precision to compute in; -inf beyond the last."""
    inside = (row < n_rows)[:, None] & (j < n_classes)
    x = tl.load(logits + row[:, None] * stride + j, mask=inside, other=float("-inf"))
    return x if x.dtype == tl.float64 else x.to(tl.float32)


@triton.jit
def part_of(numbers, k, n_rows):
    """Where the k-th part begins, of parts with a number for each row; it may lie further than 32 bits can count."""
    return numbers + tl.full([], k, tl.int64) * n_rows


@triton.jit
def exp2(x):
    """2^x; in single precision by one instruction, to the last bit but one, with small results rounded to 0."""
    if INTERPRETED or x.dtype == tl.float64:
        power = tl.exp2(x)
    else:
        power = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
    return power


@triton.jit
def inverse(x):
    """1/x; in single precision by one instruction, to the last bit."""
    if INTERPRETED or x.dtype == tl.float64:
        quotient = 1.0 / x
    else:
        quotient = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
    return quotient


@triton.jit
def log2(x):
    """log2(x); in single precision by one instruction, to 2^-22 next to 1."""
    if INTERPRETED or x.dtype == tl.float64:
        logarithm = tl.log2(x)
    else:
        logarithm = tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
    return logarithm


@triton.jit
def twice_atanh(s):
    """2 atanh(s) for |s| <= 0.172, which is log(1+f) at s = f / (2+f)."""
    z = s * s
    p = 2.0 / 11.0 + z * (2.0 / 13.0 + z * (2.0 / 15.0 + z * (2.0 / 17.0 + z * (2.0 / 19.0))))
    p = 2.0 / 3.0 + z * (2.0 / 5.0 + z * (2.0 / 7.0 + z * (2.0 / 9.0 + z * p)))
    return 2.0 * s + s * z * p


@triton.jit
def log1p(r):
    """log(1+r), with all digits where r is small; the hardware's logarithm has few of them near 1."""
    near = tl.abs(r) < 0.25
    f = tl.where(near, r, 0.0)
    return tl.where(near, twice_atanh(f * inverse(2.0 + f)), tl.log(1.0 + r))


@triton.jit
def raised(raw):
    """Distances to the top that are absurd, and infinite ones, raised until their squares are finite."""
    return tl.maximum(raw, -(LARGEST_GAP if raw.dtype == tl.float64 else LARGEST_GAP_SINGLE))


@triton.jit
def top_of(below, total, some, slope):
    """kernel.c, top_of: rest, log(1+rest), log(1-q), h(q)."""
    log_rest = below * slope + tl.log(tl.where(some, total, 1.0))
    rest = tl.where(some, tl.exp(log_rest), 0.0)
    log_norm = log1p(rest)
    small = rest < 1e-3
    series = 1.0 - rest * (0.5 - rest * (1.0 / 3.0 - rest * 0.25))
    h = tl.where(small, series, log_norm * inverse(tl.where(small, 1.0, rest)))
    return rest, log_norm, tl.where(some, log_rest - log_norm, 0.0), h


@triton.jit
def log_not(q):
    """log(1-q) of q up to 1/2: with all digits in double; in single, with those that count beside 1."""
    if q.dtype == tl.float64:
        doubled = q > 0.29289321881345254
        f = tl.where(doubled, 1.0 - 2.0 * q, -q)
        logarithm = twice_atanh(f * inverse(2.0 + f))
        return tl.where(doubled, logarithm - LN2, logarithm)
    return log2(1.0 - q) * LN2


@triton.jit
def other(q, log_q, gamma):
    """kernel.c, other: log(1-q), 1/(1-q), q/(1-q), h(q), and 1/(1 + γ h(q)); one division for both."""
    rest = 1.0 - q
    low = -log_q * q
    bent = rest + gamma * low
    both = inverse(rest * bent)
    per_rest = both * bent
    return log_not(q), per_rest, q * per_rest, low * per_rest, rest * (rest * both)


@triton.jit
def others_curve(log_not_q, per_rest, odds, h, damp, gamma):
    """Derivatives of what the map adds to log q, and log q itself: in γ, log q, and twice (γ², γ log q, log² q)."""
    h_1 = h * odds + (h - odds)
    lost = h * damp
    lost_1 = h_1 * damp
    turn = gamma * lost_1
    by_log_q = gamma * (odds - lost_1) + 1.0
    curved = gamma * (per_rest * (odds + lost - 2.0 * lost_1) + turn * lost_1)
    return -log_not_q - lost, by_log_q, lost * lost, odds - lost_1 * damp, curved


@triton.jit
def top_curve(rest, log_not_q, h, gamma, mean, variance):
    """kernel.c, top_curve."""
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
def others(raw, row_terms, PART: tl.constexpr, HALVINGS: tl.constexpr):
    """The terms to sum over all classes but the top: p, and p² or the parts of the derivatives.

    Each halving takes one half of the classes after the other, which needs fewer registers, and adds them up.
    """
    if HALVINGS:
        one, two = tl.split(tl.reshape(raw, [raw.shape[0], raw.shape[1] // 2, 2]))
        a, b, c, d, e, f, g = others(one, row_terms, PART, HALVINGS - 1)
        h, i, j, k, m, n, o = others(two, row_terms, PART, HALVINGS - 1)
        return a + h, b + i, c + j, d + k, e + m, f + n, g + o
    else:  # noqa: RET505  Triton compiles what follows a return
        slope, slope_2, log_norm, log_norm_2, level, gamma, gamma_2, center = row_terms
        q = exp2(raw * slope_2 - log_norm_2)
        log_not_q, per_rest, odds, h, damp = other(q, raw * slope - log_norm, gamma)
        p = exp2(raw * slope_2 + level - gamma_2 * log_not_q) * damp
        g, b, gg, gb, bb = others_curve(log_not_q, per_rest, odds, h, damp, gamma)
        away = raw - center
        p_g = p * g
        p_away = p * away
        p_b = p_away * b
        second = p * p if PART == SQUARES else p_g
        return p, second, p_b, p * gg + p_g * g, p_away * gb + p_b * g, p_away * away * (bb + b * b), p * b
