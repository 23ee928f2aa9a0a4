"""The inverse of the focal calibration map: the prediction that minimises focal loss at given true probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from refocal._arrays import Array, is_traced, namespace, stop_gradient, without_warnings
from refocal._validation import check_class_weight, check_logits, check_parameter
from refocal.errors import ConvergenceError
from refocal.maps.row import gaps, log1p_ratio, shares

# For γ within these bounds Newton's method has ended on every row tried, of 2 to 20,000 classes, in at most 18 steps.
MAX_STEPS = 20
MADE_FOR = (-0.99, 200.0)


@without_warnings
def inverse_focal(log_p: Array, gamma: float | Array, *, class_weight: Array = None) -> Array:
    """Inverse of `focal`: the log q with focal(log q, γ) = log p, for every γ > -1.

    With x(q) the logarithm of the map's weight, x(q_j) - x(q_top) must equal log p_j - log p_top and the q_j must sum
    to 1. Given q_top, the first fixes the others and the second is strictly monotone, so there is one solution; for
    γ < 0 the margin is min(1/2, 1+γ) (paper/docs/theory.md). A few Newton steps find it; the last one carries the
    gradient, which makes that gradient exact. `class_weight`, as in `focal`, is multiplied in first.

    >>> import numpy as np
    >>> np.exp(inverse_focal(np.log([0.8, 0.2]), gamma=2.0)).round(4)
    array([0.6266, 0.3734])
    """
    x, dtype = check_logits(log_p, "log_p", "inverse_focal")
    gamma = check_parameter(gamma, "gamma", "inverse_focal", above=-1.0, like=x)
    xp = namespace(x)
    if class_weight is not None:
        x = x + xp.log(check_class_weight(class_weight, "inverse_focal", like=x))
    return xp.astype(invert(xp, x, gamma), dtype, copy=False)


class Unknowns(NamedTuple):
    """The unknowns of a row."""

    log_q: Array  # (..., C): log q_j of the others
    log_rest: Array  # (..., 1): log((1 - q_top) / q_top)


def solve(xp: Any, target: Array, possible: Array, gamma: Array) -> Unknowns:
    """The unknowns of every row, by Newton steps until none moves; in traced code, NaN for rows that move still."""
    state = _start(xp, target, possible, gamma)
    tolerance = math.sqrt(xp.finfo(target.dtype).eps)
    for _ in range(MAX_STEPS):
        state, change = _newton(xp, state, target, possible, gamma)
        if not is_traced(target) and bool(xp.all(change <= tolerance)):
            return state
    if is_traced(target):
        return Unknowns(state.log_q, xp.where(change <= tolerance, state.log_rest, xp.nan))
    known = " to ".join(f"{bound:g}" for bound in MADE_FOR)
    raise ConvergenceError(
        f"inverse_focal did not converge in {MAX_STEPS} Newton steps, as it is known to do for γ from {known}. "
        f"Got γ from {float(xp.min(gamma)):g} to {float(xp.max(gamma)):g}; if that is within, please report the input."
    )


Solver = Callable[[Any, Array, Array, Array], Unknowns]


def invert(xp: Any, x: Array, gamma: Array, solver: Solver = solve) -> Array:
    """`inverse_focal` of checked arrays; `gamma` has the shape (..., 1)."""
    gap, is_top = gaps(xp, x, 1.0)
    # Impossible classes stay so, and what comes close to the largest number becomes so: log q would lie beyond it. A
    # finite stand-in keeps them from making NaN on the way.
    possible = (gap > -1e-4 * float(xp.finfo(gap.dtype).max)) & ~is_top
    target = xp.where(possible, gap, 0.0)

    state = solver(xp, stop_gradient(target), possible, stop_gradient(gamma))
    state, _ = _newton(xp, state, target, possible, gamma)

    lonely = ~xp.any(possible, axis=-1, keepdims=True)
    rest = xp.where(lonely, 0.0, xp.exp(state.log_rest))
    return xp.where(is_top, -xp.log1p(rest), xp.where(possible, state.log_q, -xp.inf))


def _start(xp: Any, target: Array, possible: Array, gamma: Any) -> Unknowns:
    """The solution where the top is close to 1: x(q_j) ≈ log q_j and x(q_top) ≈ -γ log r - log(1+γ)."""
    _, log_sum, lonely = shares(xp, xp.where(possible, target, -xp.inf))
    log_sum = xp.where(lonely, 0.0, log_sum)
    log_rest = _at_most(xp, (log_sum - xp.log1p(gamma)) / (1.0 + gamma), math.log(target.shape[-1] - 1))
    weight, _ = _top_weight(xp, log_rest, gamma)
    return Unknowns(_at_most(xp, target + weight, -math.log(2.0)), log_rest)


def _newton(xp: Any, state: Unknowns, target: Array, possible: Array, gamma: Any) -> tuple[Unknowns, Array]:
    """One Newton step on all unknowns of a row at once (an arrow-shaped system), and the size of the step."""
    top, top_slope = _top_weight(xp, state.log_rest, gamma)
    weight, slope = _weight(xp, state.log_q, gamma)
    excess = xp.where(possible, weight - top - target, 0.0)
    share, log_sum, lonely = shares(xp, xp.where(possible, state.log_q, -xp.inf))
    rest = xp.exp(state.log_rest)
    mass_error = xp.where(lonely, 0.0, log_sum) - (state.log_rest - xp.log1p(rest))
    share = share / slope
    step_rest = (mass_error - xp.sum(share * excess, axis=-1, keepdims=True)) / (
        1.0 / (1.0 + rest) - top_slope * xp.sum(share, axis=-1, keepdims=True)
    )
    step_rest = xp.where(lonely, 0.0, step_rest)
    step = xp.where(possible, (top_slope * step_rest - excess) / slope, 0.0)
    # No class but the top exceeds 1/2, and the top is at least 1/C.
    log_rest = _at_most(xp, state.log_rest + step_rest, math.log(target.shape[-1] - 1))
    log_q = _at_most(xp, state.log_q + step, -math.log(2.0))
    change = xp.max(xp.abs(step) / (1.0 + xp.abs(log_q)), axis=-1, keepdims=True)
    return Unknowns(log_q, log_rest), xp.maximum(change, xp.abs(step_rest) / (1.0 + xp.abs(log_rest)))


def _weight(xp: Any, log_q: Array, gamma: Any) -> tuple[Array, Array]:
    """x(q) = log q - γ log(1-q) - log1p(γh) for q ≤ 1/2, and dx / d log q."""
    q = xp.exp(log_q)
    odds = q / (1.0 - q)
    h = -odds * log_q
    bend = gamma / (1.0 + gamma * h)
    return log_q - gamma * xp.log1p(-q) - xp.log1p(gamma * h), 1.0 + gamma * odds - bend * (h + odds * (h - 1.0))


def _top_weight(xp: Any, log_rest: Array, gamma: Any) -> tuple[Array, Array]:
    """X of the top class and its slope, in log r = log((1-q)/q), where both hold for q up to 1."""
    rest = xp.exp(log_rest)
    log_norm = xp.log1p(rest)
    h = log1p_ratio(xp, rest)
    q = 1.0 / (1.0 + rest)
    weight = -log_norm - gamma * (log_rest - log_norm) - xp.log1p(gamma * h)
    return weight, -rest * q - gamma * q - gamma * (q - h) / (1.0 + gamma * h)


def _at_most(xp: Any, x: Array, limit: float) -> Array:
    """Clip from above while letting gradients through: at the solution the limit is touched only by exact ties."""
    return xp.where(x > limit, limit + (x - stop_gradient(x)), x)
