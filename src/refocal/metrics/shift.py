"""An interval for the mean probability less the rate that holds on few rows and for rare events."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np

from refocal._arrays import Vector
from refocal._validation import IgnoreIndex
from refocal.metrics._inputs import check_level, read_probabilities
from refocal.metrics.intervals import Interval

__all__ = ["mean_bias_interval"]

# Log-odds are shifted no farther: a probability of 1e-12 becomes one of 1 - 1e-12, and back.
FARTHEST = 60.0
SMALLEST_P = 1e-12


def mean_bias_interval(
    y_true: Any, probabilities: Any, *, level: float = 0.95, sample_weight: Any = None, ignore_index: IgnoreIndex = None
) -> Interval:
    """`mean_bias` with the interval of the shifts of all log-odds that the score test does not reject.

    With a shift d the outcomes have the probabilities p(d) = sigmoid(logit p + d); d is rejected if Σ w (p(d) - y)
    is larger than the normal quantile times √Σ w² p(d)(1 - p(d)). Where all probabilities are equal this is Wilson's
    interval of the rate. It holds where no row or every row is of class 1. Of more than two classes the confidence and
    the accuracy take the place of probability and rate.

    >>> found = mean_bias_interval([0] * 20, [0.1] * 20)
    >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
    (0.1, -0.061, 0.1)
    """
    check_level(level, "mean_bias_interval")
    rows = read_probabilities(y_true, probabilities, sample_weight, "mean_bias_interval", ignore_index)
    p, happened = rows.confidence()
    weight = rows.weights / rows.weights.sum()
    return interval_of_shift(p, weight, np.square(weight), float(weight @ happened), level)


def interval_of_shift(p: Vector, weight: Vector, squared: Vector, rate: float, level: float) -> Interval:
    """The same of probabilities with weights that add up to 1, the squares of these, and the rate.

    An entry may stand for many rows of one probability; then it has the sum of their squared weights.
    """
    from scipy.optimize import brentq

    inside = np.clip(p, SMALLEST_P, 1.0 - SMALLEST_P)
    log_odds = np.log(inside) - np.log1p(-inside)
    mean = float(weight @ p)
    reach = NormalDist().inv_cdf(0.5 + 0.5 * level)

    def end(side: float) -> float:
        """The rate at which the outcomes are just not too many, or not too few."""

        def excess(shift: float) -> float:
            moved, other = _sigmoid(log_odds + shift), _sigmoid(-log_odds - shift)
            # By the rarer outcome: 1 - p has lost the digits of a small p.
            more = rate - weight @ moved if rate < 0.5 else weight @ other - (1.0 - rate)
            return float(more) - side * reach * math.sqrt(float(squared @ (moved * other)))

        if excess(-FARTHEST) * excess(FARTHEST) > 0:
            return 0.0 if side > 0 else 1.0
        return float(weight @ _sigmoid(log_odds + brentq(excess, -FARTHEST, FARTHEST, xtol=1e-10)))

    low, high = end(1.0), end(-1.0)
    return Interval(mean - rate, mean - high, mean - low, level, (high - low) / (2.0 * reach), 0.0, 0)


def _sigmoid(x: Vector) -> Vector:
    return 1.0 / (1.0 + np.exp(-x))
