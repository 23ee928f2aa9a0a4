"""Intervals of a metric and of a difference, and the normal approximation."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Protocol, Self

import numpy as np

from refocal._arrays import Vector

__all__ = ["Interval", "PairedDifference"]


@dataclass(frozen=True)
class Interval:
    """A metric with its interval; `bias` estimates by how much noise increases the value on average.

    `n_resamples` is the number of resamples; 0 for the normal approximation.

    >>> from refocal.metrics import bootstrap_interval, brier_score
    >>> y, p = [0, 1, 1, 1] * 25, [0.25, 0.75, 0.75, 1.0] * 25
    >>> found = bootstrap_interval(brier_score, y, p, n_resamples=100)
    >>> found.low < found.value < found.high, found.value
    (True, 0.046875)
    """

    value: float
    low: float
    high: float
    level: float
    standard_error: float
    bias: float
    n_resamples: int


@dataclass(frozen=True)
class PairedDifference:
    """First minus second, with its interval and a two-sided p-value for no difference.

    >>> from refocal.metrics import brier_score, paired_bootstrap
    >>> y, p = [0, 1, 1, 1] * 25, [0.25, 0.75, 0.75, 1.0] * 25
    >>> found = paired_bootstrap(brier_score, y, [0.5] * 100, p, n_resamples=100)
    >>> found.first, found.second, found.difference, found.low > 0
    (0.25, 0.046875, 0.203125, True)
    """

    difference: float
    low: float
    high: float
    level: float
    p_value: float
    first: float
    second: float
    n_resamples: int


class Summary(Protocol):
    """A metric of some rows, with what its interval and its difference from another need."""

    @property
    def value(self) -> float:
        """The metric."""

    def interval(self, *, level: float = 0.95) -> Interval:
        """The interval that holds for this metric."""

    def minus(self, other: Self, *, level: float = 0.95) -> PairedDifference | None:
        """The difference from the same metric of other predictions on the same rows; None where no interval holds."""


def effective_size(weight: Vector | None, n_rows: int) -> float:
    """The effective number of rows: (Σw)² / Σw²."""
    return float(n_rows) if weight is None else float(np.square(weight.sum()) / np.square(weight).sum())


def wilson(share: Any, size: Any, level: float) -> tuple[Vector, Vector]:
    """Wilson's interval for shares of `size` rows: within [0, 1], and wider than 0 even at shares of 0 and 1."""
    z2 = NormalDist().inv_cdf(0.5 + level / 2.0) ** 2
    centre = (share + z2 / (2.0 * size)) / (1.0 + z2 / size)
    half = np.sqrt(z2 * (share * (1.0 - share) / size + z2 / (4.0 * size * size))) / (1.0 + z2 / size)
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)


def share_interval(share: float, size: float, level: float) -> Interval:
    """Wilson's interval of one share."""
    share = min(max(share, 0.0), 1.0)
    low, high = wilson(share, size, level)
    error = (share * (1.0 - share) / size) ** 0.5
    return Interval(share, min(float(low), share), max(float(high), share), level, error, 0.0, 0)


def normal_interval(value: float, error: float, level: float, limits: tuple[float, float]) -> Interval:
    """The interval of a value with a known standard error, bounded to the range of the metric."""
    reach = NormalDist().inv_cdf(0.5 + 0.5 * level) * error
    low, high = np.clip([value - reach, value + reach], *limits).tolist()
    return Interval(value, low, high, level, error, 0.0, 0)


def normal_difference(first: float, second: float, error: float, level: float) -> PairedDifference:
    """The difference of two values whose standard error is known."""
    is_rounding = abs(first - second) <= 1e-12 * max(abs(first), abs(second))
    gap, reach = 0.0 if is_rounding else first - second, NormalDist().inv_cdf(0.5 + 0.5 * level) * error
    p_value = 2.0 * NormalDist().cdf(-abs(gap) / error) if error > 0 else float(gap == 0.0)
    return PairedDifference(gap, gap - reach, gap + reach, level, p_value, first, second, 0)


@dataclass(frozen=True, eq=False)
class InfluenceSummary:
    """A metric with the influence of each row on it, weights included: the error is that of their sum."""

    value: float
    influence: Vector
    limits: tuple[float, float]

    def interval(self, *, level: float = 0.95) -> Interval:
        """The interval by the normal approximation."""
        return normal_interval(self.value, float(np.linalg.norm(self.influence)), level, self.limits)

    def minus(self, other: InfluenceSummary, *, level: float = 0.95) -> PairedDifference:
        """The difference on the same rows."""
        error = float(np.linalg.norm(self.influence - other.influence))
        return normal_difference(self.value, other.value, error, level)
