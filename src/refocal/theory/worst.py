"""How far focal calibration can lower a top probability: the worst prediction that has it (Proposition 5, corrected).

Among all predictions with a given top probability t, the top falls furthest where Σ_i F(q_i) is largest, F(q) = q r(q)
(see `refocal.theory.confidence`). F is concave up to a point and convex from there, so at that place some classes tie
with the top, at most one lies in between, and all others are equal: two numbers to search.
"""

from __future__ import annotations

import math

import numpy as np

from refocal._arrays import Vector
from refocal._validation import check_integer, check_number
from refocal.errors import ParameterError
from refocal.theory.confidence import confidence_threshold

# Values tried for the class in between, first over the whole range and then around the best.
POINTS = 41
# Top probabilities that are looked at for one that falls.
SCAN = 101
# Below this a fall is the rounding of a top probability that stays.
ROUNDING = 1e-14


def worst_top_change(top: float, gamma: float, n_classes: int) -> float:
    """The least p_top - q_top over all predictions of `n_classes` classes with q_top = `top`; γ > 0.

    Negative: some prediction with this top probability is made less confident by focal calibration.

    >>> worst_top_change(0.3277, gamma=0.5, n_classes=4) < -8e-5
    True
    >>> worst_top_change(0.5, gamma=0.5, n_classes=100) >= 0.0
    True
    """
    name = "worst_top_change"
    _check(gamma, n_classes, name)
    if not 1.0 / n_classes <= top < 1.0:
        expected = f"at least 1/{n_classes}, the lowest that a top class can have, and below 1"
        raise ParameterError("top", name, expected=expected, got=repr(top))
    ties = np.arange(min(n_classes - 2, math.floor((1.0 - top) / top * (1.0 + 1e-12))) + 1.0)[:, None]
    mass, n_equal = np.maximum(1.0 - top - ties * top, 0.0), n_classes - 2.0 - ties
    # What the class in between may have, so that the equal ones lie between 0 and the top.
    ends = (np.maximum(0.0, mass - n_equal * top), np.minimum(top, mass))
    low, high = ends
    for _ in range(4):  # each round looks twenty times closer
        between = low + (high - low) * np.linspace(0.0, 1.0, POINTS)
        equal = np.clip((mass - between) / np.maximum(n_equal, 1.0), 0.0, top)
        others = _weight(between, gamma) + n_equal * _weight(equal, gamma)
        best = np.argmax(others, axis=1)[:, None]
        step = (high - low) / (POINTS - 1)
        low, high = np.maximum(low + (best - 1) * step, ends[0]), np.minimum(low + (best + 1) * step, ends[1])
    possible = ends[0] <= ends[1] * (1.0 + 1e-12)
    own = float(_weight(np.array(top), gamma))
    most = float(np.max(np.where(possible, ties * own + others, -np.inf)))
    return own / (own + most) - top


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
    _check(gamma, n_classes, "highest_lowered_top")

    def lowers(top: float) -> bool:
        return worst_top_change(top, gamma, n_classes) < -ROUNDING

    limit = confidence_threshold(gamma)
    ties = math.floor(1.0 / limit) + 1
    known = 1.0 / ties if ties < n_classes else None
    start = known or 1.0 / n_classes
    grid = [float(top) for top in np.linspace(limit, start, SCAN)[:-1]] if limit > start else []
    first = next((i for i, top in enumerate(grid) if lowers(top)), None)
    if first is None:
        return known
    low, high = grid[first], grid[max(first - 1, 0)]
    while high - low > 1e-9:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if lowers(middle) else (low, middle)
    return low


def _weight(q: Vector, gamma: float) -> Vector:
    """F(q) = q / ((1-q)^γ (1 + γh(q))) for 0 ≤ q < 1."""
    log_q = np.log(np.where(q > 0.0, q, 1.0))
    result: Vector = q * np.exp(-gamma * np.log1p(-q) - np.log1p(-gamma * log_q * q / (1.0 - q)))
    return result


def _check(gamma: float, n_classes: int, name: str) -> None:
    check_number(gamma, "gamma", name, above=0.0)
    check_integer(n_classes, "n_classes", name, least=2)
