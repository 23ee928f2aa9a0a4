"""The temperature whose scaling comes closest to focal calibration, in the largest difference of a probability."""

from __future__ import annotations

import math
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from refocal.errors import ParameterError
from refocal.maps import focal, log_softmax

# What is compared: all rows of logits whose classes lie up to the first number below the top, in steps of the second.
# Two classes: |s| ≤ 20. Three and four: every logit in [-5, 5], as in the paper.
_LOGIT_RANGE = {2: (20.0, 0.005), 3: (10.0, 0.125), 4: (10.0, 0.25)}


class ClosestTemperature(NamedTuple):
    """The minimax temperature and the largest difference of a probability that remains."""

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
    if not (math.isfinite(gamma) and gamma > -1.0):
        raise ParameterError("gamma", "closest_temperature", expected="finite and greater than -1", got=repr(gamma))
    if n_classes not in _LOGIT_RANGE:
        raise ParameterError("n_classes", "closest_temperature", expected="2, 3 or 4", got=repr(n_classes))
    logits = _sorted_logits(n_classes)
    target = np.exp(focal(logits, gamma))

    def error(log_slope: float) -> float:
        scaled = np.exp(log_softmax(logits, math.exp(-log_slope)))
        return float(np.max(np.abs(scaled - target)))

    # log(1/T) of every closest temperature lies between that of no change and that of the binary limit, γ + 1.
    ends = sorted((0.0, math.log1p(gamma)))
    grid = np.linspace(ends[0] - 0.1, ends[1] + 0.1, 121)
    values = np.array([error(u) for u in grid])
    valleys = [i for i in range(1, len(grid) - 1) if values[i] <= min(values[i - 1], values[i + 1])]
    found = [
        minimize_scalar(error, bounds=(grid[i - 1], grid[i + 1]), method="bounded", options={"xatol": 1e-9})
        for i in valleys
    ]
    best = min(found, key=lambda result: float(result.fun))
    return ClosestTemperature(math.exp(-best.x), float(best.fun))


def _sorted_logits(n_classes: int) -> NDArray[np.float64]:
    """One row for each set of gaps: both maps are symmetric in the classes and blind to a common shift."""
    depth, step = _LOGIT_RANGE[n_classes]
    levels = -np.arange(0.0, depth + step / 2, step)
    gaps = np.array(list(combinations_with_replacement(levels, n_classes - 1)))
    return np.concatenate([np.zeros((len(gaps), 1)), gaps], axis=1)
