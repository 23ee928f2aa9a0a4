"""The temperature whose scaling comes closest to focal calibration, in the largest difference of a probability."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._validation import check_number
from refocal.errors import ParameterError
from refocal.maps import focal

# What is compared: all rows of logits whose classes lie up to the first number below the top, in steps of the second.
# Two classes: |s| ≤ 20. Three and four: every logit in [-5, 5], as in the paper.
LOGIT_RANGE = {2: (20.0, 0.005), 3: (10.0, 0.125), 4: (10.0, 0.25)}
# The grid in log(1/T), and how close the search in one of its valleys goes.
POINTS, MARGIN, WIDTH = 121, 0.1, 1e-13


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
    if n_classes not in LOGIT_RANGE:
        raise ParameterError("n_classes", "closest_temperature", expected="2, 3 or 4", got=repr(n_classes))
    logits = _sorted_logits(n_classes)
    # One class after the other, the top class, whose logit is 0, first: some two hundred softmaxes are taken.
    target = np.ascontiguousarray(np.exp(focal(logits, gamma)).T)
    gap = np.ascontiguousarray(logits[:, 1:].T)

    def error(log_slope: float) -> float:
        others = np.exp(math.exp(log_slope) * gap)
        top = 1.0 / (1.0 + others.sum(axis=0))
        return float(max(np.abs(top - target[0]).max(), np.abs(others * top - target[1:]).max()))

    # log(1/T) of every closest temperature lies between that of no change and that of the binary limit, γ + 1.
    ends = sorted((0.0, math.log1p(gamma)))
    grid = np.linspace(ends[0] - MARGIN, ends[1] + MARGIN, POINTS)
    values = np.array([error(u) for u in grid])
    valleys = [i for i in range(1, len(grid) - 1) if values[i] <= min(values[i - 1], values[i + 1])]
    found = [_golden_section(error, float(grid[i - 1]), float(grid[i + 1])) for i in valleys]
    best = min(found, key=error)
    return ClosestTemperature(math.exp(-best), error(best))


def _golden_section(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one valley is least. A largest difference has a kink there, so nothing smoother will do."""
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > WIDTH:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
    return 0.5 * (low + high)


def _sorted_logits(n_classes: int) -> NDArray[np.float64]:
    """One row for each set of gaps: both maps are symmetric in the classes and blind to a common shift."""
    depth, step = LOGIT_RANGE[n_classes]
    levels = -np.arange(0.0, depth + step / 2, step)
    gaps = np.array(list(combinations_with_replacement(levels, n_classes - 1)))
    return np.concatenate([np.zeros((len(gaps), 1)), gaps], axis=1)
