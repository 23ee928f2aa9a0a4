"""What the paper proves about focal loss and temperature scaling, with corrections (paper/docs/theory.md)."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from refocal._arrays import Array, as_floating, namespace, without_warnings
from refocal._validation import check_integer, check_number, check_parameter, check_probabilities
from refocal.errors import DataError
from refocal.maps import focal, inverse_focal
from refocal.maps.row import softmax_row
from refocal.maps.sigmoid import log1p_gamma_h

__all__ = [
    "ClosestTemperature",
    "TemperatureRange",
    "closest_temperature",
    "conditional_risk",
    "confidence_threshold",
    "focal_curvature",
    "focal_minimizer",
    "highest_lowered_top",
    "proper_weight",
    "raises_confidence",
    "temperature_bounds",
    "tight_temperature_bounds",
    "worst_top_change",
]

# What `closest_temperature` compares; the explorer in the browser does the same.
LOGIT_RANGE = {2: (20.0, 0.005), 3: (10.0, 0.125), 4: (10.0, 0.25)}
"""By the number of classes: how far below the top the classes of a row of logits lie at most, and in what steps.

Two classes: |s| ≤ 20. Three and four: every logit in [-5, 5], as in the paper.
"""


class ClosestSearch(NamedTuple):
    """How `closest_temperature` searches log(1/T); the explorer in the browser does the same."""

    points: int = 121
    """The points of the grid."""
    margin: float = 0.5
    """How far the grid reaches beyond 1/T = 1 and 1/T = γ + 1.

    With γ next to -1 the closest 1/T is above both: of two classes up to (2 log 2 - 1) / (1 - log 2) = exp(0.23)."""
    width: float = 1e-13
    """The width at which the search in one valley of the grid ends."""


CLOSEST_SEARCH = ClosestSearch()


# Focal loss as a proper loss after a map: Propositions 1, 2 and 4.


@without_warnings
def focal_minimizer(p: Array, gamma: float | Array) -> Array:
    """The prediction q that minimises expected focal loss when the true probabilities are p.

    >>> focal_minimizer([0.8, 0.2], gamma=2.0).round(4)
    array([0.6266, 0.3734])
    """
    p = check_probabilities(p, "p", "focal_minimizer")
    xp = namespace(p)
    g = check_parameter(gamma, "gamma", "focal_minimizer", above=-1.0, like=p)[..., 0]
    return xp.exp(inverse_focal(xp.log(p), g))


@without_warnings
def conditional_risk(p: Array, q: Array, loss: Callable[[Array, Array], Array]) -> Array:
    """Expected loss of predicting q when the true probabilities are p: R(p, q) = Σ_i p_i L(q, i).

    `loss` takes (log-probabilities, labels) and returns one value for each row, as those of `refocal.losses` do.

    >>> from functools import partial
    >>> from refocal import losses
    >>> loss = partial(losses.focal, gamma=2.0)
    >>> bool(conditional_risk([0.8, 0.2], [0.6266, 0.3734], loss) < conditional_risk([0.8, 0.2], [0.8, 0.2], loss))
    True
    """
    p = check_probabilities(p, "p", "conditional_risk")
    q = check_probabilities(q, "q", "conditional_risk")
    xp = namespace(p, q)
    p, q = xp.broadcast_arrays(p, q)
    log_q = xp.log(q)
    label = xp.zeros(tuple(q.shape[:-1]), dtype=xp.int64, device=getattr(q, "device", None))
    # A class that cannot occur costs nothing, even where its loss is infinite.
    terms = [xp.where(p[..., i] > 0, p[..., i] * loss(log_q, label + i), 0.0) for i in range(q.shape[-1])]
    return xp.sum(xp.stack(terms), axis=0)


@without_warnings
def proper_weight(p: Array, gamma: float) -> Array:
    """The weight w(p) of the proper part L* of binary focal loss, for 0 < p < 1 and γ ≥ 0 (Proposition 2).

    A binary loss is proper if dL*(p, 0)/dp = p w(p) and dL*(p, 1)/dp = -(1-p) w(p) with some w(p) > 0, which says how
    much the loss cares about probabilities near p. With l(q) = -(1-q)^γ log q and q = `focal_minimizer` of p,

        w = s³ / (l''(q) |l'(1-q)| + l''(1-q) |l'(q)|),   s = |l'(q)| + |l'(1-q)|.

    At γ = 0 it is that of cross-entropy, 1 / (p (1-p)).

    >>> proper_weight([0.5, 0.8], gamma=0.0)
    array([4.  , 6.25])
    >>> proper_weight([0.5, 0.8], gamma=2.0).round(3)
    array([0.892, 1.559])
    """
    p, xp = _strictly_between_0_and_1(p, "p", "proper_weight")
    g = check_number(gamma, "gamma", "proper_weight", least=0.0)
    q = focal_minimizer(xp.stack([p, 1.0 - p], axis=-1), g)
    rest = xp.flip(q, axis=-1)
    slope = rest**g * (1.0 - g * q * xp.log(q) / rest) / q  # |l'| of q and of 1-q
    other = xp.flip(slope, axis=-1)
    return xp.sum(slope, axis=-1) ** 3 / xp.sum(focal_curvature(q, g) * other, axis=-1)


@without_warnings
def focal_curvature(q: Array, gamma: float) -> Array:
    """Second derivative of focal loss -(1-q)^γ log q in q, for 0 < q < 1 (Proposition 1).

    (1-q)^γ [1/q² + γ (2/q - (1-γ) (-log q)/(1-q)) / (1-q)];  positive for every q if γ ≥ 0, so the loss is convex.
    For -1 < γ < 0 it is negative close to q = 1: there focal loss is not convex.

    >>> focal_curvature([0.25, 0.5], gamma=1.0)
    array([20.,  6.])
    """
    q, xp = _strictly_between_0_and_1(q, "q", "focal_curvature")
    g = check_parameter(gamma, "gamma", "focal_curvature", above=-1.0, like=q[..., None])[..., 0]
    ratio = -xp.log(q) / (1.0 - q)
    return (1.0 - q) ** g * (1.0 / q**2 + g * (2.0 / q - (1.0 - g) * ratio) / (1.0 - q))


def _strictly_between_0_and_1(values: Array, argument: str, function: str) -> tuple[Array, Any]:
    """Checked numbers, and the functions of their array library."""
    values, _ = as_floating(values, argument, function)
    xp = namespace(values)
    if not bool(xp.all((values > 0.0) & (values < 1.0))):
        raise DataError(argument, function, expected="between 0 and 1, both excluded", got="other values")
    return values, xp


# How close binary focal calibration is to temperature scaling: Proposition 3, stated as it holds.
#
# In log-odds s, focal calibration is FC(s) = σ((γ+1) s - log f(s)) with
#
#     f(s) = (1 + γ e^s log(1+e^-s)) / (1 + γ e^-s log(1+e^s)),
#
# so it lies where temperature scaling with 1/T = γ + 1 - c(s), c(s) = log f(s) / s, does. Bounds on c are bounds on T.


class TemperatureRange(NamedTuple):
    """Focal calibration lies between temperature scaling with the `lower` and with the `upper` temperature.

    >>> temperature_bounds(1.0).lower
    0.5
    """

    lower: float
    upper: float


def temperature_bounds(gamma: float) -> TemperatureRange:
    """Proposition 3: for every log-odds s, FC(s) lies between σ(s/T) for T = 1/(γ+1) and 1/(γ+1-log(γ+1)/2).

    For γ > 0 the lower temperature is the more confident side: σ(s/T_upper) < FC(s) < σ(s/T_lower) for s > 0, mirrored
    for s < 0. The paper prints the temperatures as 1/T and so reverses the inequalities: see paper/docs/theory.md.
    For -1 < γ < 0 the same two temperatures bound the map, in the other order.

    >>> temperature_bounds(4.0)
    TemperatureRange(lower=0.2, upper=0.23836305352698955)
    """
    gamma = check_number(gamma, "gamma", "temperature_bounds", above=-1.0)
    return _range(gamma, 0.0, math.log1p(gamma) / 2.0)


def tight_temperature_bounds(gamma: float, max_logit: float = math.inf) -> TemperatureRange:
    """The narrowest range of temperatures that bounds focal calibration for all log-odds |s| ≤ `max_logit`.

    The ends are those of c(s) on 0 < s ≤ max_logit. c goes from c(0) = γ (2 log 2 - 1) / (1 + γ log 2) to 0 at
    infinity: falling all the way up to γ = 5.63, with a rise before the fall beyond (at γ = 9 from 0.4803 to 0.4838).

    >>> low, high = tight_temperature_bounds(4.0, max_logit=20.0)
    >>> round(low, 4), round(high, 4)
    (0.2033, 0.2178)
    """
    gamma = check_number(gamma, "gamma", "tight_temperature_bounds", above=-1.0)
    if max_logit != math.inf:
        check_number(max_logit, "max_logit", "tight_temperature_bounds", above=0.0)
    at_zero = _offset_at_zero(gamma)
    # Beyond |s| = 60 nothing but 1/s changes in c, so a grid up to there has every local extremum.
    grid = np.linspace(0.0, min(max_logit, 60.0), 6001)[1:]
    values = _offset(grid, gamma)
    sign = math.copysign(1.0, gamma)
    peak = int(np.argmax(sign * values))
    around = (float(grid[max(peak - 1, 0)]), float(grid[min(peak + 1, len(grid) - 1)]))
    best = minimize_scalar(lambda s: -sign * float(_offset(s, gamma)), bounds=around, method="bounded")
    last = float(_offset(max_logit, gamma)) if math.isfinite(max_logit) else 0.0
    return _range(gamma, at_zero, float(values[peak]), -sign * float(best.fun), last)


def _offset(s: Any, gamma: float) -> Any:
    """c(s) = log f(s) / s for s > 0."""
    small = 1e-5  # below it c(s) is nearer to c(0) than to the quotient of two roundings

    s = np.asarray(s)
    safe = np.where(s < small, 1.0, s)
    quotient = (log1p_gamma_h(np, safe, gamma) - log1p_gamma_h(np, -safe, gamma)) / safe
    return np.where(s < small, _offset_at_zero(gamma), quotient)


def _offset_at_zero(gamma: float) -> float:
    """c(0)."""
    return gamma * (2.0 * math.log(2.0) - 1.0) / (1.0 + gamma * math.log(2.0))


def _range(gamma: float, *offsets: float) -> TemperatureRange:
    """The lowest and the highest of the temperatures at some values of c."""
    temperatures = [1.0 / (gamma + 1.0 - c) for c in offsets]
    return TemperatureRange(min(temperatures), max(temperatures))


class ClosestTemperature(NamedTuple):
    """The minimax temperature and the largest difference of a probability that remains.

    >>> closest_temperature(0.0, n_classes=2).temperature  # γ = 0 changes nothing
    1.0
    """

    temperature: float
    error: float


def closest_temperature(gamma: float, n_classes: int) -> ClosestTemperature:
    """The T that minimises the largest |focal calibration - temperature scaling| of any class over a grid of logits.

    Two classes: log-odds up to 20; three and four: logits in [-5, 5]. The error can have several local minima in T
    (with four classes it has), so every valley of a fine grid in log T is searched.

    >>> closest = closest_temperature(2.0, n_classes=3)
    >>> round(closest.temperature, 3), round(closest.error, 3)
    (0.465, 0.049)
    """
    check_number(gamma, "gamma", "closest_temperature", above=-1.0)
    check_integer(n_classes, "n_classes", "closest_temperature", least=2, most=4)
    # One row for each set of gaps below the top: both maps are symmetric in the classes and blind to a common shift.
    depth, step = LOGIT_RANGE[n_classes]
    levels = -np.arange(0.0, depth + step / 2, step)
    logits = np.array([(0.0, *gaps) for gaps in combinations_with_replacement(levels, n_classes - 1)])
    # One class after the other, the top class, whose logit is 0, first: some three hundred softmaxes are taken.
    target = np.ascontiguousarray(np.exp(focal(logits, gamma)).T)
    gap = np.ascontiguousarray(logits[:, 1:].T)

    def error(log_slope: float) -> float:
        others = np.exp(math.exp(log_slope) * gap)
        top = 1.0 / (1.0 + others.sum(axis=0))
        return float(max(np.abs(top - target[0]).max(), np.abs(others * top - target[1:]).max()))

    # log(1/T) of the closest temperature lies between that of no change and that of the binary limit, γ + 1, or little
    # beyond.
    lowest, highest = sorted((0.0, math.log1p(gamma)))
    margin = CLOSEST_SEARCH.margin
    grid = np.linspace(lowest - margin, highest + margin, CLOSEST_SEARCH.points)
    values = np.array([error(u) for u in grid])
    valleys = [i for i in range(1, len(grid) - 1) if values[i] <= min(values[i - 1], values[i + 1])]
    minima = [_golden_section(error, float(grid[i - 1]), float(grid[i + 1])) for i in valleys]
    best = min(minima, key=error)
    return ClosestTemperature(math.exp(-best), error(best))


def _golden_section(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one valley is least. A largest difference has a kink there, so nothing smoother will do."""
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    while high - low > CLOSEST_SEARCH.width:
        left = high - ratio * (high - low)
        right = low + ratio * (high - low)
        if function(left) <= function(right):
            high = right
        else:
            low = left
    return 0.5 * (low + high)


# When focal calibration raises the top probability: Proposition 5, corrected.
#
# With r(q) = 1 / ((1-q)^γ (1 + γh(q))), the map is p_j = q_j r(q_j) / Σ_i q_i r(q_i), so p_j ≥ q_j exactly if
# r(q_j) ≥ Σ_i q_i r(q_i). The paper states that this always holds for the top class; from four classes on it does not.


def _log_r(q: Any, gamma: float) -> Any:
    """The logarithm of r(q), for 0 ≤ q < 1."""
    log_q = np.log(np.where(q > 0.0, q, 1.0))
    return -gamma * np.log1p(-q) - np.log1p(-gamma * log_q * q / (1.0 - q))


def confidence_threshold(gamma: float) -> float:
    """The threshold τ(γ): top probabilities above it never decrease by focal calibration, for any number of classes.

    γ > 0. τ is the root in (0, 1) of (1-τ)^γ (1 + γh(τ)) = 1. It falls with γ, from 1/2 at γ → 0: top probabilities of
    1/2 or more never decrease.

    >>> round(confidence_threshold(1.0) * math.e, 12)
    1.0
    """
    check_number(gamma, "gamma", "confidence_threshold", above=0.0)
    # h(q) > q while log q < -1, so r < 1 for small q; at 1/2 it is above 1.
    return math.exp(brentq(lambda x: float(_log_r(np.exp(x), gamma)), -700.0, -math.log(2.0), xtol=1e-15, rtol=1e-15))


@without_warnings
def raises_confidence(q: Array, gamma: float | Array) -> Array:
    """Whether focal calibration leaves the top probability of each row of q as high as it was, or raises it.

    >>> raises_confidence([[0.3277, 0.3277, 0.3277, 0.0169], [0.6, 0.2, 0.1, 0.1]], gamma=0.5)
    array([False,  True])
    """
    q = check_probabilities(q, "q", "raises_confidence")
    xp = namespace(q)
    g = check_parameter(gamma, "gamma", "raises_confidence", above=-1.0, like=q)
    row = softmax_row(xp, xp.log(q), 1.0)
    log_r = -g * row.log_not_q - xp.log1p(g * row.h)
    log_r_top = -g * row.top_log_not_q - xp.log1p(g * row.top_h)
    # Σ_i q_i (r_i - r_top) ≤ 0, with the classes that tie with the top left out: theirs is exactly 0.
    change = xp.where(row.gap == 0.0, 0.0, row.share * xp.expm1(log_r - log_r_top))
    return xp.sum(change, axis=-1) <= 0.0


def worst_top_change(top: float, gamma: float, n_classes: int) -> float:
    """The least p_top - q_top over all predictions of `n_classes` classes with q_top = `top`; γ > 0.

    Negative: some prediction with this top probability is made less confident by focal calibration.

    >>> worst_top_change(0.3277, gamma=0.5, n_classes=4) < -8e-5
    True
    >>> worst_top_change(0.5, gamma=0.5, n_classes=100) >= 0.0
    True
    """
    n_tried = 41  # values of the class in between, in each round

    name = "worst_top_change"
    check_number(gamma, "gamma", name, above=0.0)
    check_integer(n_classes, "n_classes", name, least=2)
    check_number(top, "top", name, least=1.0 / n_classes, below=1.0)

    def weight(q: Any) -> Any:
        return q * np.exp(_log_r(q, gamma))

    # The top falls furthest where Σ_i F(q_i) is largest, F(q) = q r(q). F is concave up to a point and convex from
    # there, so at that place some classes tie with the top, at most one lies in between, and all others are equal: two
    # numbers to search.
    ties = np.arange(min(n_classes - 2, math.floor((1.0 - top) / top * (1.0 + 1e-12))) + 1.0)[:, None]
    mass = np.maximum(1.0 - top - ties * top, 0.0)
    n_equal = n_classes - 2.0 - ties
    # What the class in between may have, so that the equal ones lie between 0 and the top.
    lowest = np.maximum(0.0, mass - n_equal * top)
    highest = np.minimum(top, mass)
    low = lowest
    high = highest
    for _ in range(4):  # each round is twenty times finer
        between = low + (high - low) * np.linspace(0.0, 1.0, n_tried)
        equal = np.clip((mass - between) / np.maximum(n_equal, 1.0), 0.0, top)
        others = weight(between) + n_equal * weight(equal)
        best = np.argmax(others, axis=1)[:, None]
        step = (high - low) / (n_tried - 1)
        next_low = np.maximum(low + (best - 1) * step, lowest)
        next_high = np.minimum(low + (best + 1) * step, highest)
        low = next_low
        high = next_high
    is_possible = lowest <= highest * (1.0 + 1e-12)
    top_weight = float(weight(top))
    others_weight = float(np.max(np.where(is_possible, ties * top_weight + others, -np.inf)))
    return top_weight / (top_weight + others_weight) - top


def highest_lowered_top(gamma: float, n_classes: int) -> float | None:
    """The least upper bound of the top probabilities that focal calibration can lower; None where it lowers none.

    It grows with the number of classes and tends to `confidence_threshold(gamma)` = τ. If 1/k < τ and there are more
    than k classes it is at least 1/k: k classes at a little less than 1/k each, the others with what remains, fall.
    As τ < 1/2, that takes four classes or more.

    >>> highest_lowered_top(1.0, n_classes=3) is None
    True
    >>> round(highest_lowered_top(1.0, n_classes=1000), 3), round(confidence_threshold(1.0), 3)
    (0.366, 0.368)
    """
    n_tops = 101  # top probabilities that are tried for one that falls
    rounding = 1e-14  # a smaller fall is the rounding of a top probability that stays
    tolerance = 1e-9  # of the bound

    check_number(gamma, "gamma", "highest_lowered_top", above=0.0)
    check_integer(n_classes, "n_classes", "highest_lowered_top", least=2)

    def lowers(top: float) -> bool:
        return worst_top_change(top, gamma, n_classes) < -rounding

    limit = confidence_threshold(gamma)
    ties = math.floor(1.0 / limit) + 1
    known = 1.0 / ties if ties < n_classes else None
    start = known or 1.0 / n_classes
    grid = [float(top) for top in np.linspace(limit, start, n_tops)[:-1]] if limit > start else []
    first = next((i for i, top in enumerate(grid) if lowers(top)), None)
    if first is None:
        return known
    low = grid[first]
    high = grid[max(first - 1, 0)]
    while high - low > tolerance:
        middle = 0.5 * (low + high)
        if lowers(middle):
            low = middle
        else:
            high = middle
    return low
