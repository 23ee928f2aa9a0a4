"""The maps of softmax outputs: temperature, the focal map, its inverse and derivatives, and label smoothing undone.

The inverse is the prediction that minimises focal loss at given true probabilities. The derivatives are what a search
needs of focal temperature scaling: the label's log-probability, slope and curvature in one pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from refocal._arrays import Array, is_traced, namespace, stop_gradient, take_label, without_warnings
from refocal._validation import check_class_weight, check_labels, check_logits, check_number, check_parameter
from refocal.errors import ConvergenceError
from refocal.maps.row import Row, gaps, log1p_ratio, log_minus, normalise, normalised, shares, softmax_row

MADE_FOR = (-0.99, 200.0)
"""For γ within these bounds Newton's method has ended on every row tried, of 2 to 20,000 classes."""

MAX_STEPS = 20
"""The most steps of Newton's method: it needed at most 18."""


@without_warnings
def log_softmax(logits: Array, temperature: float | Array = 1.0) -> Array:
    """Log-probabilities of temperature-scaled logits: log softmax(logits / T), T > 0.

    >>> import numpy as np
    >>> np.exp(log_softmax(np.log([0.9, 0.1]), temperature=2.0)).round(3)
    array([0.75, 0.25])
    """
    x, dtype = check_logits(logits, "logits", "log_softmax")
    scale = check_parameter(temperature, "temperature", "log_softmax", above=0.0, like=x)
    xp = namespace(x)
    return xp.astype(normalise(xp, *gaps(xp, x, scale)), dtype, copy=False)


@without_warnings
def focal(log_q: Array, gamma: float | Array, *, class_weight: Array = None) -> Array:
    """Focal calibration map: what a focal-loss minimiser predicts → the probabilities it stands for.

    log p_j = log q_j - γ log(1-q_j) - log1p(γ h(q_j)) + const,  h(q) = -q log q / (1-q),  γ > -1; γ = 0 is the identity

    Rows of `log_q` are normalised first, so unnormalised log-probabilities (logits) do as well. Where the loss of class
    j was multiplied by `class_weight[j]`, p_j is divided by it after the map; the order of the classes may change.

    >>> import numpy as np
    >>> np.exp(focal(np.log([0.6266, 0.3734]), gamma=2.0)).round(3)
    array([0.8, 0.2])
    >>> np.exp(focal(np.log([0.6, 0.4]), gamma=2.0, class_weight=[0.75, 0.25])).round(3)
    array([0.497, 0.503])
    """
    return _focal(log_q, "log_q", gamma, 1.0, class_weight, "focal")


@without_warnings
def focal_temperature(
    logits: Array, gamma: float | Array, temperature: float | Array, *, class_weight: Array = None
) -> Array:
    """Focal temperature scaling: the logits are divided by T, then the focal calibration map is applied.

    `class_weight` is taken out after the map, as in `focal`.

    >>> import numpy as np
    >>> np.exp(focal_temperature([2.0, 1.0, 0.0], gamma=1.0, temperature=1.5)).round(3)
    array([0.649, 0.237, 0.115])
    """
    return _focal(logits, "logits", gamma, temperature, class_weight, "focal_temperature")


def _focal(values: Any, argument: str, gamma: Any, temperature: Any, class_weight: Any, function: str) -> Array:
    x, dtype = check_logits(values, argument, function)
    gamma = check_parameter(gamma, "gamma", function, above=-1.0, like=x)
    scale = check_parameter(temperature, "temperature", function, above=0.0, like=x)
    xp = namespace(x)
    log_p = focal_map_of_row(xp, softmax_row(xp, x, scale), gamma)
    if class_weight is not None:
        log_weight = xp.log(check_class_weight(class_weight, function, like=log_p))
        log_p = normalised(xp, log_p - log_weight)
    return xp.astype(log_p, dtype, copy=False)


def focal_map_of_row(xp: Any, row: Row, gamma: Any) -> Array:
    """The focal calibration map of a prepared row."""
    return normalise(xp, focal_gaps(xp, row, gamma), row.is_top)


def focal_gaps(xp: Any, row: Row, gamma: Any) -> Array:
    """Log p_j - log p_top: all relative to the top, so that γ = 0 gives the softmax's bits."""
    gap = (
        row.gap
        - gamma * (row.log_not_q - row.top_log_not_q)
        - (xp.log1p(gamma * row.h) - xp.log1p(gamma * row.top_h))
    )  # fmt: skip
    # The map keeps the order of the classes; keep it against the last bit of rounding too, ties included.
    return gap - stop_gradient(xp.where((row.gap == 0.0) | (gap > 0.0), gap, 0.0))


@without_warnings
def unsmooth(log_u: Array, label_smoothing: float) -> Array:
    """Inverse of label smoothing: log p with p = (u - ε/C) / (1-ε), from unnormalised log u.

    With labels smoothed by ε the truth p is seen as u = (1-ε) p + ε/C, and that is what a network learns to predict.
    No p leads to a u below ε/C: such a class gets probability 0, and the others share what is left in proportion.
    For focal loss with weights: ``unsmooth(focal(log_q, gamma, class_weight=w), label_smoothing)``.

    >>> import numpy as np
    >>> np.exp(unsmooth(np.log([0.75, 0.21, 0.04]), label_smoothing=0.1)).round(3)
    array([0.796, 0.196, 0.007])
    """
    x, dtype = check_logits(log_u, "log_u", "unsmooth")
    epsilon = check_number(label_smoothing, "label_smoothing", "unsmooth", least=0.0, below=1.0)
    xp = namespace(x)
    log_p = unsmoothed(xp, normalised(xp, x), epsilon)
    return xp.astype(normalised(xp, log_p), dtype, copy=False)


def unsmoothed(xp: Any, log_u: Array, epsilon: Any) -> Array:
    """log(u - ε/C) of log-probabilities, which are scores of p; -inf where u is no larger than ε/C."""
    log_difference, is_larger = log_minus(xp, log_u, epsilon / log_u.shape[-1])
    return xp.where(is_larger, log_difference, -xp.inf)


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
    lowest, highest = MADE_FOR
    raise ConvergenceError(
        f"inverse_focal did not converge in {MAX_STEPS} Newton steps, as it is known to do for "
        f"γ from {lowest:g} to {highest:g}. "
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
    # One step from a constant has the right first derivatives alone, two have the second and third ones as well.
    for _ in range(2):
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
    """One Newton step on all unknowns of a row at once, and the size of the step relative to the unknowns.

    The unknowns are t_j = log q_j of the others and t = log r of the top, r = (1-q)/q. The equations are

        x(t_j) - X(t) = target_j   and   log Σ_j exp(t_j) = log(1 - q_top) = t - log(1+r).

    The Jacobian is arrow-shaped: eliminating the steps Δ_j = (X' Δ - excess_j) / x'_j of the others leaves one equation
    for the step Δ of t.
    """
    top_weight, top_slope = _top_weight(xp, state.log_rest, gamma)
    weight, slope = _weight(xp, state.log_q, gamma)
    excess = xp.where(possible, weight - top_weight - target, 0.0)
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
    change_of_rest = xp.abs(step_rest) / (1.0 + xp.abs(log_rest))
    return Unknowns(log_q, log_rest), xp.maximum(change, change_of_rest)


def _weight(xp: Any, log_q: Array, gamma: Any) -> tuple[Array, Array]:
    """x(q) = log q - γ log(1-q) - log1p(γh) for q ≤ 1/2, and dx / d log q."""
    q = xp.exp(log_q)
    odds = q / (1.0 - q)
    h = -odds * log_q
    gamma_damp = gamma / (1.0 + gamma * h)
    weight = log_q - gamma * xp.log1p(-q) - xp.log1p(gamma * h)
    slope = 1.0 + gamma * odds - gamma_damp * (h + odds * (h - 1.0))
    return weight, slope


def _top_weight(xp: Any, log_rest: Array, gamma: Any) -> tuple[Array, Array]:
    """X of the top class and its slope, in log r = log((1-q)/q), where both hold for q up to 1."""
    rest = xp.exp(log_rest)
    log_norm = xp.log1p(rest)
    h = log1p_ratio(xp, rest)
    q = 1.0 / (1.0 + rest)
    weight = -log_norm - gamma * (log_rest - log_norm) - xp.log1p(gamma * h)
    slope = -rest * q - gamma * q - gamma * (q - h) / (1.0 + gamma * h)
    return weight, slope


def _at_most(xp: Any, x: Array, limit: float) -> Array:
    """Clip from above while letting gradients through: at the solution the limit is touched only by exact ties."""
    return xp.where(x > limit, limit + (x - stop_gradient(x)), x)


class LabelDerivatives(NamedTuple):
    """log p of each row's label and its derivatives with respect to (γ, 1/T).

    >>> import numpy as np
    >>> label = label_derivatives(np.array([[2.0, 0.0]]), np.array([0]), gamma=0.0, temperature=1.0)
    >>> np.exp(label.log_p).round(4), label.gradient.shape, label.hessian.shape
    (array([0.8808]), (1, 2), (1, 2, 2))
    """

    log_p: Array  # (...)
    gradient: Array  # (..., 2)
    hessian: Array  # (..., 2, 2)


@without_warnings
def label_derivatives(
    logits: Array, labels: Array, gamma: float | Array, temperature: float | Array
) -> LabelDerivatives:
    """Value, gradient and Hessian of the label's log-probability under focal temperature scaling in (γ, 1/T).

    A label whose logit is -inf has log-probability -inf wherever (γ, T) lies, and derivatives 0.

    >>> import numpy as np
    >>> label_derivatives(np.array([[2.0, 0.0]]), np.array([0]), gamma=1.0, temperature=1.0).gradient.round(4)
    array([[0.0467, 0.0987]])
    """
    name = "label_derivatives"
    x, dtype = check_logits(logits, "logits", name)
    y = check_labels(labels, x, name)
    gamma = check_parameter(gamma, "gamma", name, above=-1.0, like=x)
    scale = check_parameter(temperature, "temperature", name, above=0.0, like=x)
    xp = namespace(x)
    return LabelDerivatives(*(xp.astype(part, dtype, copy=False) for part in derivatives(xp, x, y, gamma, scale)))


def derivatives(xp: Any, x: Array, y: Array, gamma: Any, scale: Any) -> LabelDerivatives:
    """`label_derivatives` of checked arrays."""
    row = softmax_row(xp, x, scale)
    return derivatives_of_row(xp, row, focal_map_of_row(xp, row, gamma), y, gamma, scale)


def derivatives_of_row(xp: Any, row: Row, log_p: Array, y: Array, gamma: Any, scale: Any) -> LabelDerivatives:
    """The derivatives at log-probabilities (..., C) that the focal map made of a row, with constants added after it.

    With log-weights x_j, log p_y = x_y - log Σ_j exp(x_j). Its derivatives in (γ, b), b = 1/T, are those of x_y less

        E_p[x_u]   and   E_p[x_uv + x_u x_v] - E_p[x_u] E_p[x_v],   u and v either γ or b,

    where x_u are derivatives of x_j, and E_p is the mean over the classes with weights p_j.
    """
    g, b, gg, gb, bb = relative_derivatives(xp, row, gamma, scale)
    p = xp.exp(log_p)
    mean_g = xp.vecdot(p, g)
    mean_b = xp.vecdot(p, b)
    mean_gg = xp.vecdot(p, gg + g * g) - mean_g * mean_g
    mean_gb = xp.vecdot(p, gb + g * b) - mean_g * mean_b
    mean_bb = xp.vecdot(p, bb + b * b) - mean_b * mean_b

    is_possible = take_label(row.gap, y) > -xp.inf

    def of_label(derivative: Array, mean: Array) -> Array:
        return xp.where(is_possible, take_label(derivative, y) - mean, 0.0)

    gradient = xp.stack([of_label(g, mean_g), of_label(b, mean_b)], axis=-1)
    label_gb = of_label(gb, mean_gb)
    first_row = xp.stack([of_label(gg, mean_gg), label_gb], axis=-1)
    second_row = xp.stack([label_gb, of_label(bb, mean_bb)], axis=-1)
    return LabelDerivatives(take_label(log_p, y), gradient, xp.stack([first_row, second_row], axis=-2))


def _sum(xp: Any, x: Array) -> Array:
    return xp.sum(x, axis=-1, keepdims=True)


class WeightDerivatives(NamedTuple):
    """First and second derivatives of the log-weight x_j with respect to γ (g) and b = 1/T."""

    g: Array
    b: Array
    gg: Array
    gb: Array
    bb: Array


def relative_derivatives(xp: Any, row: Row, gamma: Any, scale: Any) -> WeightDerivatives:
    """The derivatives of x_j - x_top, (..., C): with these the top drops out of every sum over classes.

    Nothing large cancels where it is close to 1.
    """
    # Derivatives are taken along the raw gaps; an impossible class has no weight, so any finite stand-in does.
    raw_gap = xp.where(row.gap == -xp.inf, 0.0, row.gap * scale)
    of_top = _top_derivatives(xp, row, raw_gap, gamma)
    of_others = _others_derivatives(xp, row, raw_gap, gamma)
    pairs = zip(of_others, of_top, strict=True)
    return WeightDerivatives(*(xp.where(row.is_top, 0.0, other - top) for other, top in pairs))


def _top_derivatives(xp: Any, row: Row, raw_gap: Array, gamma: Array) -> WeightDerivatives:
    """The derivatives of the log-weight of the top class, (..., 1).

    With t = log r, r = (1-q)/q, the log-weight is x(t) = -log(1+r) - γ log(1-q) - log(1 + γ h), h = log(1+r)/r.
    x_1 and x_2 are its derivatives in t, and h_1 and h_2 those of h. In b, t has the mean of the others' gaps as first
    derivative and their variance as second.
    """
    mean = _sum(xp, row.share * raw_gap)
    variance = _sum(xp, row.share * (raw_gap - mean) ** 2)
    q = 1.0 / (1.0 + row.top_rest)
    not_q = row.top_rest * q
    h = row.top_h
    h_1 = q - h
    h_2 = -not_q * q - h_1
    damp = 1.0 / (1.0 + gamma * h)
    x_1 = -not_q - gamma * q - gamma * damp * h_1
    x_2 = (gamma - 1.0) * not_q * q - gamma * damp * h_2 + (gamma * damp * h_1) ** 2
    return WeightDerivatives(
        g=-row.top_log_not_q - h * damp,
        b=x_1 * mean,
        gg=(h * damp) ** 2,
        gb=-(q + h_1 * damp**2) * mean,
        bb=x_2 * mean**2 + x_1 * variance,
    )


def _others_derivatives(xp: Any, row: Row, raw_gap: Array, gamma: Array) -> WeightDerivatives:
    """The derivatives of the log-weight of every other class, (..., C).

    With t = log q, the log-weight is x(t) = t - γ log(1-q) - log(1 + γ h), h = -t q/(1-q). x_1 and x_2 are its
    derivatives in t, and h_1 is that of h. In b, t has its gap less the mean of all gaps as first derivative, and minus
    the variance of all gaps as second.
    """
    not_top = row.top_rest / (1.0 + row.top_rest)
    mean = not_top * _sum(xp, row.share * raw_gap)
    t_b = raw_gap - mean
    t_bb = mean**2 - not_top * _sum(xp, row.share * raw_gap**2)
    odds = row.odds
    h = row.h
    excess = odds * (h - 1.0)
    h_1 = h + excess
    damp = 1.0 / (1.0 + gamma * h)
    gamma_damp = gamma * damp
    log_damp_1 = gamma_damp * h_1  # the derivative of log(1 + γ h)
    x_1 = 1.0 + gamma * odds - log_damp_1
    x_2 = (1.0 + odds) * (gamma * odds - gamma_damp * (h_1 + excess)) + log_damp_1 * log_damp_1
    h_damp = h * damp
    return WeightDerivatives(
        g=-row.log_not_q - h_damp,
        b=x_1 * t_b,
        gg=h_damp * h_damp,
        gb=(odds - h_1 * damp * damp) * t_b,
        bb=x_2 * t_b * t_b + x_1 * t_bb,
    )
