"""Intervals of a metric and of a difference: normal, Wilson's, and by inverting a test.

An inverted test gives the true values of calibration errors and of the bias that fit the data. A calibration error is
never below 0 and every bin adds its noise, so that it is measured too high, and resampling rows adds the same noise
once more. Here the confidences stay and outcomes are drawn anew, from models that are off by t times the gaps that were
seen (smoothed over neighbouring bins): t = 0 is a calibrated model. The interval holds the true error of every such
model under which a value as small, or as large, as the measured one is not rare. Gaps that are mostly noise change
their sign from bin to bin and hide less than gaps of one sign, so that the upper end also asks models whose log-odds
are all too high, or too low.

The mean probability less the rate has an interval of its own, which holds on few rows and for rare events.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from refocal._arrays import Flags, Vector
from refocal.metrics.bins import Bins, join_cells, row_cells
from refocal.metrics.inputs import check_level, read_probabilities
from refocal.rows.labels import IgnoreIndex

__all__ = ["Interval", "PairedDifference", "mean_bias_interval"]

N_DRAWS = 500
"""The default number of draws of the outcomes."""
SHAPE_BINS = 8
_STEPS, _FARTHEST = 12, 64.0
# Log-odds are shifted no farther: a probability of 1e-12 becomes one of 1 - 1e-12, and back.
_FARTHEST_SHIFT, _SMALLEST_P = 60.0, 1e-12


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


def interval_of_share(happened: Vector | Flags, weight: Vector | None, level: float) -> Interval:
    """Wilson's interval of the share of the rows in which something happened, on which weights may depend."""
    cell = join_cells(row_cells(np.zeros(len(happened)), happened, weight), np.array([0]))
    return share_interval(float(cell.rate[0]), float(cell.size_at(cell.rate)[0]), level)


def bounded_mean(mean: Any, variance: Any, size: Any, low: float, high: float, level: float) -> tuple[Vector, Vector]:
    """The interval of means of values between `low` and `high`, from the variances of the means: Wilson's of shares."""
    z2 = NormalDist().inv_cdf(0.5 + level / 2.0) ** 2
    centre = (mean * size + z2 * (low + high) / 2.0) / (size + z2)
    half = np.sqrt(z2 * (variance * size**2 + z2 * (high - low) ** 2 / 4.0)) / (size + z2)
    return np.clip(centre - half, low, high), np.clip(centre + half, low, high)


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


class ErrorModel(NamedTuple):
    """A calibration error as a function of the gaps between confidence and accuracy in cells of similar rows."""

    cells: Bins
    statistic: Callable[[Vector], Any]
    """What is measured: gaps of (draws, cells) ↦ one number for each draw."""
    population: Callable[[Vector], Any] | None = None
    """The true error of a model with these gaps, where it is not `statistic`."""
    observed: float | None = None
    """The measured value, where it is not the statistic of the cells."""


@dataclass(frozen=True)
class InvertedError:
    """A calibration error of some rows, with what its interval needs.

    `shape` are bins, by rising confidence, whose gaps show where the model is off.
    """

    value: float
    model: ErrorModel
    shape: Bins
    n_draws: int = N_DRAWS
    seed: int = 0

    def minus(self, other: InvertedError, *, level: float = 0.95) -> None:
        """None; `squared_ece_difference` has a valid test instead."""

    def interval(self, *, level: float = 0.95) -> Interval:
        """The true errors under which the value is not unlikely."""
        cells, statistic, population, observed = self.model
        confidence, population = cells.p, population or statistic
        observed = statistic(cells.gap / cells.weight) if observed is None else observed
        noise = np.random.default_rng(self.seed).standard_normal((self.n_draws, len(confidence)))

        def gaps(off: Vector, t: float) -> Vector:
            return confidence - np.clip(confidence - t * off, 0.0, 1.0)

        def drawn(off: Vector, t: float) -> Any:
            gap = gaps(off, t)
            accuracy = confidence - gap
            variance = np.maximum(accuracy * (1.0 - accuracy), 0.0) / cells.size_at(accuracy)
            return statistic(gap + np.sqrt(variance) * noise)

        def error_at(off: Vector, share: float) -> float:
            t = _crossing(lambda t: float(np.mean(drawn(off, t) <= observed)), share)
            return float(population(gaps(off, t)))

        seen, lean = _smoothed_gaps(self.shape, cells), confidence * (1.0 - confidence)
        low = error_at(seen, 0.5 + level / 2.0)
        high = max(error_at(off, 0.5 - level / 2.0) for off in (seen, lean, -lean))
        likely = drawn(seen, 1.0)
        spread = float(np.std(likely, ddof=1)) if self.n_draws > 1 else 0.0
        bias = float(np.mean(likely)) - float(population(gaps(seen, 1.0)))
        return Interval(self.value, low, high, level, spread, bias, self.n_draws)


def _crossing(share_below: Callable[[float], float], share: float) -> float:
    """The t at which a falling function reaches a share; 0 where it begins below."""
    if share_below(0.0) <= share:
        return 0.0
    low, high = 0.0, 1.0
    while share_below(high) > share:
        low, high = high, 2.0 * high
        if high > _FARTHEST:
            return low
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if share_below(middle) > share else (low, middle)
    return (low + high) / 2.0


def _smoothed_gaps(bins: Bins, cells: Bins) -> Vector:
    """The gaps of bins, each averaged twice with its neighbours, at the ranks of the cells."""
    gap = bins.gap / bins.weight
    for _ in range(2):
        padded = np.concatenate([gap[:1], gap, gap[-1:]])
        gap = (padded[:-2] + 2.0 * gap + padded[2:]) / 4.0
    # The share of the weight below the middle of each.
    at, known = ((np.cumsum(each.weight) - each.weight / 2.0) / each.weight.sum() for each in (cells, bins))
    return np.asarray(np.interp(at, known, gap))


def mean_bias_interval(
    y_true: Any,
    probabilities: Any = None,
    *,
    level: float = 0.95,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
) -> Interval:
    """`mean_bias` with the interval of the shifts of all log-odds that the score test does not reject.

    With a shift d the outcomes have the probabilities p(d) = sigmoid(logit p + d); d is rejected if Σ w (p(d) - y)
    is larger than the normal quantile times √Σ w² p(d)(1 - p(d)), or with weights that depend on the label times the
    root of Σ w² (y - p(d))² as it is to be expected. Where all probabilities are equal this is Wilson's
    interval of the rate. It holds where no row or every row is of class 1. Of more than two classes the confidence and
    the accuracy take the place of probability and rate.

    >>> found = mean_bias_interval([0] * 20, [0.1] * 20)
    >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
    (0.1, -0.061, 0.1)
    """
    check_level(level, "mean_bias_interval")
    rows = read_probabilities(y_true, probabilities, sample_weight, "mean_bias_interval", ignore_index)
    return interval_of_shift(row_cells(*rows.confidence(), rows.weight), level)


def interval_of_shift(cells: Bins, level: float) -> Interval:
    """The same for rows in cells, whose probabilities count as equal."""
    # SciPy loads when an interval needs it.
    from scipy.optimize import brentq

    cells = cells.with_weight()
    total, weight = cells.weight.sum(), cells.share
    mean, rate = float(weight @ cells.p), float(cells.correct.sum() / total)
    inside = np.clip(cells.p, _SMALLEST_P, 1.0 - _SMALLEST_P)
    log_odds = np.log(inside) - np.log1p(-inside)
    reach = NormalDist().inv_cdf(0.5 + 0.5 * level)

    def end(side: float) -> float:
        """The rate at which the outcomes are just not too many, or not too few."""

        def excess(shift: float) -> float:
            odds = np.exp(log_odds + shift)
            moved, other = odds / (1.0 + odds), 1.0 / (1.0 + odds)
            # By the rarer outcome: 1 - p has lost the digits of a small p.
            more = rate - weight @ moved if rate < 0.5 else weight @ other - (1.0 - rate)
            return float(more) - side * reach * math.sqrt(float(weight**2 @ (moved * other / cells.size_at(moved))))

        if excess(-_FARTHEST_SHIFT) * excess(_FARTHEST_SHIFT) > 0:
            return 0.0 if side > 0 else 1.0
        odds = np.exp(log_odds + brentq(excess, -_FARTHEST_SHIFT, _FARTHEST_SHIFT, xtol=1e-10))
        return float(weight @ (odds / (1.0 + odds)))

    low, high = end(1.0), end(-1.0)
    return Interval(mean - rate, mean - high, mean - low, level, (high - low) / (2.0 * reach), 0.0, 0)
