"""How close binary focal calibration is to temperature scaling (Proposition 3), stated as it holds.

In log-odds s, focal calibration is FC(s) = σ((γ+1) s - log f(s)) with

    f(s) = (1 + γ e^s log(1+e^-s)) / (1 + γ e^-s log(1+e^s)),

so it lies where temperature scaling with 1/T = γ + 1 - c(s), c(s) = log f(s) / s, does. Bounds on c are bounds on T.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from refocal._validation import check_number
from refocal.errors import ParameterError


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
    return _ordered(1.0 / (gamma + 1.0), 1.0 / (gamma + 1.0 - math.log1p(gamma) / 2.0))


def tight_temperature_bounds(gamma: float, max_logit: float = math.inf) -> TemperatureRange:
    """The narrowest range of temperatures that bounds focal calibration for all log-odds |s| ≤ `max_logit`.

    The ends are those of c(s) on 0 < s ≤ max_logit. c goes from c(0) = γ (2 log 2 - 1) / (1 + γ log 2) to 0 at
    infinity: falling all the way up to γ = 5.63, with a rise before the fall beyond (at γ = 9 from 0.4803 to 0.4838).

    >>> low, high = tight_temperature_bounds(4.0, max_logit=20.0)
    >>> round(low, 4), round(high, 4)
    (0.2033, 0.2178)
    """
    gamma = check_number(gamma, "gamma", "tight_temperature_bounds", above=-1.0)
    if not max_logit > 0.0:
        raise ParameterError("max_logit", "tight_temperature_bounds", expected="greater than 0", got=repr(max_logit))
    at_zero = gamma * (2.0 * math.log(2.0) - 1.0) / (1.0 + gamma * math.log(2.0))
    # Beyond |s| = 60 nothing but 1/s changes in c, so a grid up to there sees every turn.
    grid = np.linspace(0.0, min(max_logit, 60.0), 6001)[1:]
    values = _offset(grid, gamma)
    sign = math.copysign(1.0, gamma)
    peak = int(np.argmax(sign * values))
    around = (float(grid[max(peak - 1, 0)]), float(grid[min(peak + 1, len(grid) - 1)]))
    best = minimize_scalar(lambda s: -sign * float(_offset(np.array(s), gamma)), bounds=around, method="bounded")
    extreme = sign * max(sign * at_zero, sign * float(values[peak]), -float(best.fun))
    last = float(_offset(np.array(max_logit), gamma)) if math.isfinite(max_logit) else 0.0
    flattest = sign * min(sign * at_zero, sign * last)
    return _ordered(1.0 / (gamma + 1.0 - flattest), 1.0 / (gamma + 1.0 - extreme))


def _offset(s: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    """c(s) = log f(s) / s for s > 0."""
    r = np.exp(-s)
    safe = np.where(r > 0.0, r, 1.0)
    rising = np.where(r > 0.0, np.log1p(safe) / safe, 1.0)
    result: NDArray[np.float64] = (np.log1p(gamma * rising) - np.log1p(gamma * r * (s + np.log1p(r)))) / s
    return result


def _ordered(a: float, b: float) -> TemperatureRange:
    return TemperatureRange(min(a, b), max(a, b))
