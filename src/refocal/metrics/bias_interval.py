"""The mean probability less the rate, with an interval that holds on few rows and for rare events."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Vector
from refocal.metrics.bins import Bins, row_cells
from refocal.metrics.influence import critical_value, variance_of_mean
from refocal.metrics.inputs import check_clusters, check_level, read_probabilities
from refocal.metrics.intervals import Interval, has_equal_weights, number_of, whole_rows
from refocal.rows.labels import IgnoreIndex

__all__ = ["mean_bias_interval"]


def mean_bias_interval(
    y_true: Any,
    probabilities: Any = None,
    *,
    level: float = 0.95,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
    clusters: Any = None,
) -> Interval:
    """`mean_bias` with the interval of the shifts of all log-odds that the score test does not reject.

    With a shift d the outcomes have the probabilities p(d) = sigmoid(logit p + d); d is rejected if Σ w (p(d) - y)
    is larger than the normal quantile times √Σ w² p(d)(1 - p(d)), or with weights that depend on the label times the
    root of Σ w² (y - p(d))² as it is to be expected. Where the residuals p - y vary more than that, as those of an
    overconfident model do, the interval is as much wider; where they vary more than five times as much, as those of
    probabilities of 0 and 1 do, it is the normal interval of the mean residual. Of rows of unequal weights the quantile
    is Student's, of as many rows as they are effectively. Where all probabilities are equal this is Wilson's interval
    of the rate. It holds where no row or every row is of class 1. Of more than two classes the confidence and the
    accuracy take the place of probability and rate. `clusters` has what each row belongs to, such as
    its customer: rows of one cluster are not independent.

    >>> found = mean_bias_interval([0] * 20, [0.1] * 20)
    >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
    (0.1, -0.061, 0.1)
    """
    check_level(level, "mean_bias_interval")
    rows = read_probabilities(
        y_true, probabilities, sample_weight, "mean_bias_interval", ignore_index, clusters=clusters, class_names=classes
    )
    check_clusters(rows.clusters, "mean_bias_interval")
    p, happened = rows.confidence()
    cells = row_cells(p, happened, rows.weight)
    if rows.clusters is None:
        return interval_of_shift(cells, level)
    variance = float(variance_of_mean(p - happened, rows.weight, rows.clusters))
    return interval_of_shift(cells, level, variance, number_of(rows.clusters))


LARGEST_SHIFT = 60.0
"""Of log-odds: it takes a probability of 1e-12 to one of 1 - 1e-12, and back."""


class RateTest(NamedTuple):
    """What a test of a shift compares: the rate that was seen with the one that the shift expects."""

    rate: float
    expected: float
    complement: float
    """One less the expected rate, to the digits of the rarer outcome."""
    difference: float
    """The rate less the expected one, to the digits of the rarer outcome."""
    variance: float
    """That of the rate under the shift."""
    level: float
    n_units: int | None

    def by_score(self, side: float) -> float:
        """Below 0 where the rate is not too high (`side` 1), above 0 where it is not too low (-1): score test."""
        return self.difference - side * critical_value(self.level, self.n_units) * math.sqrt(self.variance)

    def by_tail(self, side: float) -> float:
        """The same by the tail of a binomial of as many rows as give the variance, see `exact_ends`."""
        # SciPy loads when an interval needs it.
        from scipy.special import betainc

        ratio = critical_value(self.level) / critical_value(self.level, self.n_units)
        size = self.expected * self.complement / max(self.variance, 1e-300) * ratio**2
        events = min(self.rate * size, size)
        tail = (1.0 - self.level) / 2.0
        if side > 0.0:
            return tail - float(betainc(events, size - events + 1.0, self.expected)) if events > 0.0 else -tail
        return 1.0 - float(betainc(events + 1.0, size - events, self.expected)) - tail if events < size else tail


def interval_of_shift(
    cells: Bins, level: float, variance: float | None = None, n_clusters: int | None = None
) -> Interval:
    """The interval of `mean_bias_interval` for rows in cells, whose probabilities count as equal.

    `variance` is that of the mean of p - y, where rows have clusters; otherwise it is that of rows that are independent
    of one another, which is known as well as from the effective number of those of unequal weights.
    """
    return _interval_of_shift(cells, level, variance, n_clusters, RateTest.by_score)


def exact_interval_of_shift(
    cells: Bins, level: float, variance: float | None = None, n_clusters: int | None = None
) -> Interval:
    """As `interval_of_shift`, for a level close to 1, at which the score test rejects too often with few events."""
    return _interval_of_shift(cells, level, variance, n_clusters, RateTest.by_tail)


def _interval_of_shift(
    cells: Bins,
    level: float,
    variance: float | None,
    n_clusters: int | None,
    excess_of: Callable[[RateTest, float], float],
) -> Interval:
    """The rates that a test of a shift does not reject.

    With the shares s of the cells and p(d) = sigmoid(logit p + d), the ends are the rates s·p(d) of the shifts d with
    rate - s·p(d) = ± z √(φ Σ s² p(d)(1 - p(d)) / size), z being the critical value of the level, or at which the tails
    of a binomial of this variance have the probability (1 - level) / 2 (`RateTest`). The dispersion φ ≥ 1
    is the variance of the mean of p - y over what the sum is at the shift that has the observed rate: an overconfident
    model has larger residuals than its probabilities say, and so have rows of one cluster. Where independent rows alone
    make φ larger than 5, as where nearly all probabilities are 0 or 1, the ends are rate ± z √(φ Σ s² p(1 - p) / size).
    """
    cells = cells.with_weight()
    shifted = _ShiftedCells.of(cells)
    mean = float(shifted.share @ cells.p)
    rate = shifted.rate
    is_weighted = not has_equal_weights(cells)
    n_units = n_clusters
    if n_clusters is None and is_weighted:
        n_units = max(whole_rows(float(cells.weight.sum()) ** 2 / float(cells.squared_weight.sum())), 2)
    z = critical_value(level, n_units)

    of_independent = _variance_of_bias(cells)
    of_residuals = of_independent if variance is None else variance
    of_rate = shifted.variance_at_rate()
    dispersion = 1.0 if of_rate is None else max(1.0, of_residuals / of_rate)
    largest_dispersion = 5.0  # that of log-odds which are five times too large
    is_saturated = of_rate is not None and of_independent > largest_dispersion * of_rate
    margin = z * math.sqrt(of_residuals)

    def end(side: float) -> float:
        """The rate at which the outcomes are just not too many (`side` 1), or not too few (-1)."""

        def excess(shift: float) -> float:
            return excess_of(shifted.test(shift, dispersion, level, n_units), side)

        if excess(-LARGEST_SHIFT) * excess(LARGEST_SHIFT) > 0:
            return 0.0 if side > 0 else 1.0
        p, _ = shifted.probabilities(_root(excess))
        return float(shifted.share @ p)

    if is_saturated:
        # Hardly any log-odds are near 0, so that a shift moves few probabilities, and not as the outcomes vary: the
        # residuals alone say how far the rate may be.
        lowest_rate = max(rate - margin, 0.0)
        highest_rate = min(rate + margin, 1.0)
    else:
        lowest_rate = end(1.0)
        highest_rate = end(-1.0)
    if is_weighted:
        # Weights that depend on the label make the mean of p vary together with the rate, so that the score test may
        # put too much of its interval on one side. The normal interval does not, and the wider end is taken.
        lowest_rate = max(min(lowest_rate, rate - margin), 0.0)
        highest_rate = min(max(highest_rate, rate + margin), 1.0)
    return Interval(
        value=mean - rate,
        low=mean - highest_rate,
        high=mean - lowest_rate,
        level=level,
        standard_error=(highest_rate - lowest_rate) / (2.0 * z),
        bias=0.0,
        n_resamples=0,
    )


@dataclass(frozen=True)
class _ShiftedCells:
    """Cells of rows, with weight, as they are after a shift of all log-odds."""

    cells: Bins
    share: Vector
    rate: float
    """The observed rate of all rows."""
    log_odds: Vector

    @classmethod
    def of(cls, cells: Bins) -> _ShiftedCells:
        """The cells, with probabilities that have log-odds."""
        smallest_p = 1e-12  # log-odds of ± 28
        inside = np.clip(cells.p, smallest_p, 1.0 - smallest_p)
        rate = float(cells.correct.sum() / cells.weight.sum())
        return cls(cells, cells.share, rate, np.log(inside) - np.log1p(-inside))

    def probabilities(self, shift: float) -> tuple[Vector, Vector]:
        """The probabilities after a shift, and one less them."""
        odds = np.exp(self.log_odds + shift)
        return odds / (1.0 + odds), 1.0 / (1.0 + odds)

    def difference(self, shift: float) -> float:
        """The rate less the mean after a shift, by the rarer outcome: 1 - p has lost the digits of a small p."""
        p, complement = self.probabilities(shift)
        return float(self.rate - self.share @ p if self.rate < 0.5 else self.share @ complement - (1.0 - self.rate))

    def variance(self, shift: float) -> float:
        """The variance of the rate of independent rows with the probabilities after a shift."""
        p, complement = self.probabilities(shift)
        return float(self.share**2 @ (p * complement / self.cells.size_at(p)))

    def variance_at_rate(self) -> float | None:
        """The variance at the shift whose mean is the observed rate; None where that is beyond the largest shift."""
        if self.difference(-LARGEST_SHIFT) > 0.0 > self.difference(LARGEST_SHIFT):
            return self.variance(_root(self.difference))
        return None

    def test(self, shift: float, dispersion: float, level: float, n_units: int | None) -> RateTest:
        """What a test of a shift compares."""
        p, complement = self.probabilities(shift)
        return RateTest(
            rate=self.rate,
            expected=min(float(self.share @ p), 1.0),
            complement=float(self.share @ complement),
            difference=self.difference(shift),
            variance=dispersion * self.variance(shift),
            level=level,
            n_units=n_units,
        )


def _root(function: Callable[[float], float]) -> float:
    """The shift at which a function is 0, whose signs differ at the two largest shifts."""
    # SciPy loads when an interval needs it.
    from scipy.optimize import brentq

    return float(brentq(function, -LARGEST_SHIFT, LARGEST_SHIFT, xtol=1e-10))


def _variance_of_bias(cells: Bins) -> float:
    """Σ w² (p - y - b)² / (Σ w)², b being the mean of p - y, where the rows of a cell count as of its mean p."""
    bias = float(cells.gap.sum() / cells.weight.sum())
    residual = cells.p - bias  # of a row without the event; 1 less of one with it
    squares = cells.squared_correct * (1.0 - 2.0 * residual) + cells.squared_weight * np.square(residual)
    return float(squares.sum() / cells.weight.sum() ** 2)
