"""Intervals of a metric and of a difference: normal, Student's, on the log scale, Wilson's and exact ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Protocol, Self, TypeAlias

import numpy as np

from refocal._arrays import Flags, Indices, Vector
from refocal.metrics.bins import Bins, join_cells, row_cells
from refocal.metrics.influence import critical_value, influences_of_units, two_sided_p_value, variance_of_mean

__all__ = ["Interval", "PairedDifference"]


@dataclass(frozen=True)
class Interval:
    """A metric with its interval; `bias` estimates by how much noise increases the value on average.

    `n_resamples` is the number of resamples, or of simulated replicates; 0 where a formula has the interval.

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


def wilson(share: Any, size: Any, level: float, n_clusters: int | None = None) -> tuple[Vector, Vector]:
    """Wilson's interval for shares of `size` rows: within [0, 1], and wider than 0 even at shares of 0 and 1."""
    z2 = critical_value(level, n_clusters) ** 2
    centre = (share + z2 / (2.0 * size)) / (1.0 + z2 / size)
    half = np.sqrt(z2 * (share * (1.0 - share) / size + z2 / (4.0 * size * size))) / (1.0 + z2 / size)
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)


def exact_ends(share: Any, size: Any, level: float, n_clusters: int | None = None) -> tuple[Vector, Vector]:
    """The interval of Clopper & Pearson (1934) for shares of `size` rows; for clusters after Korn & Graubard (1998).

    Its ends are the shares at which a count as high, or as low, as the observed one has the probability
    (1 - level) / 2. It is for intervals that hold together, each of a level close to 1: there Wilson's is too short
    next to shares of 0 and 1. (After one event it excludes rates at which one sample in ten has an event.) With
    clusters the size is reduced until the normal interval is as wide as Student's.
    """
    # SciPy loads when it is needed.
    from scipy.special import betaincinv

    tail = (1.0 - level) / 2.0
    size = size * (critical_value(level) / critical_value(level, n_clusters)) ** 2
    events = share * size
    others = np.maximum(size - events, 0.0)
    low = np.where(events > 0.0, betaincinv(np.maximum(events, 1e-9), others + 1.0, tail), 0.0)
    high = np.where(others > 0.0, betaincinv(events + 1.0, np.maximum(others, 1e-9), 1.0 - tail), 1.0)
    return low, high


def share_interval(share: float, size: float, level: float, n_clusters: int | None = None) -> Interval:
    """Wilson's interval of one share."""
    share = min(max(share, 0.0), 1.0)
    low, high = wilson(share, size, level, n_clusters)
    error = (share * (1.0 - share) / size) ** 0.5
    return Interval(share, min(float(low), share), max(float(high), share), level, error, 0.0, 0)


def interval_of_share(
    happened: Vector | Flags, weight: Vector | None, level: float, clusters: Indices | None = None
) -> Interval:
    """Wilson's interval of the share of the rows in which something happened, on which weights may depend."""
    return ShareSummary.of(happened, weight, clusters).interval(level=level)


def exact_bounded_mean(mean: Any, size: Any, low: float, high: float, level: float) -> tuple[Vector, Vector]:
    """As `bounded_mean`, for a level close to 1: `exact_ends` of the share (mean - low) / (high - low).

    Values between the limits vary less than those at them, so that the interval is wide enough.
    """
    if high == low:
        return mean, mean
    share = np.clip((mean - low) / (high - low), 0.0, 1.0)
    lowest, highest = exact_ends(share, size, level)
    return low + (high - low) * lowest, low + (high - low) * highest


def bounded_mean(mean: Any, variance: Any, size: Any, low: float, high: float, level: float) -> tuple[Vector, Vector]:
    """The interval of means of values between `low` and `high`, from the variances of the means: Wilson's of shares."""
    z2 = NormalDist().inv_cdf(0.5 + level / 2.0) ** 2
    centre = (mean * size + z2 * (low + high) / 2.0) / (size + z2)
    half = np.sqrt(z2 * (variance * size**2 + z2 * (high - low) ** 2 / 4.0)) / (size + z2)
    return np.clip(centre - half, low, high), np.clip(centre + half, low, high)


def normal_interval(
    value: float, error: float, level: float, limits: tuple[float, float], n_clusters: int | None = None
) -> Interval:
    """The interval of a value with a known standard error, bounded to the range of the metric."""
    margin = critical_value(level, n_clusters) * error
    low, high = np.clip([value - margin, value + margin], *limits).tolist()
    return Interval(value, low, high, level, error, 0.0, 0)


def normal_difference(
    first: float, second: float, error: float, level: float, n_clusters: int | None = None
) -> PairedDifference:
    """The difference of two values whose standard error is known, or estimated from this number of clusters."""
    is_rounding = abs(first - second) <= 1e-12 * max(abs(first), abs(second))
    difference = 0.0 if is_rounding else first - second
    margin = critical_value(level, n_clusters) * error
    p_value = two_sided_p_value(difference / error, n_clusters) if error > 0 else float(difference == 0.0)
    return PairedDifference(
        difference=difference,
        low=difference - margin,
        high=difference + margin,
        level=level,
        p_value=p_value,
        first=first,
        second=second,
        n_resamples=0,
    )


def skewed_difference(
    first: float, second: float, error: float, skewness: float, level: float, n_units: int
) -> PairedDifference:
    """The difference of two means whose terms may be skewed, by the transformation of Hall (1992).

    A few confident mistakes make the difference of two losses and its standard error large together, so that Student's
    interval misses too often to one side. With W = (difference - truth) / error and g = Σ u³ / (Σ u²)^{3/2} of the
    influences u of the units,

        T(W) = W + g W² / 3 + g² W³ / 27 + g / 6 = ((1 + g W / 3)³ - 1) / g + g / 6

    is nearly Student's t of so many units. It rises with W, so that the ends are difference - error T⁻¹(± t). The
    skewness of few units is mostly chance: where Student's own interval reaches farther, its end is taken, and the
    larger of the two p-values.
    """
    is_rounding = abs(first - second) <= 1e-12 * max(abs(first), abs(second))
    difference = 0.0 if is_rounding else first - second
    if not (0.0 < error < math.inf) or is_rounding:
        return normal_difference(first, second, error, level, n_units)

    def transformed(w: float) -> float:
        return w + skewness * w**2 / 3.0 + skewness**2 * w**3 / 27.0 + skewness / 6.0

    def inverse(t: float) -> float:
        smallest_skewness = 1e-6  # below which T is W to more digits than 1 / g leaves
        if abs(skewness) < smallest_skewness:
            return t
        return 3.0 / skewness * (float(np.cbrt(1.0 + skewness * (t - skewness / 6.0))) - 1.0)

    t = critical_value(level, n_units)
    ratio = difference / error
    return PairedDifference(
        difference=difference,
        low=difference - error * max(inverse(t), t),
        high=difference - error * min(inverse(-t), -t),
        level=level,
        p_value=max(two_sided_p_value(transformed(ratio), n_units), two_sided_p_value(ratio, n_units)),
        first=first,
        second=second,
        n_resamples=0,
    )


IntervalForm: TypeAlias = Callable[[float, float, float, int | None], tuple[float, float]]
"""Value, variance, level and number of clusters, if there are any ↦ the ends of an interval."""


@dataclass(frozen=True, eq=False)
class InfluenceSummary:
    """A metric with the influence of each row on it, weights included: the error is that of their sum.

    With clusters there is one number for each cluster, the sum over its rows.
    """

    value: float
    influence: Vector
    limits: tuple[float, float]
    form: IntervalForm | None = None
    """How the variance becomes an interval, where that is not the normal one."""
    n_clusters: int | None = None
    """The number of clusters, or of rows of unequal weights, effectively, which Student's t takes."""
    of_pairs: bool = False
    """Whether rows count beside one another, as in an order; the influences of two clusters then say nothing.

    They lack what the pairs of a row of each add, which are half of all pairs.
    """

    @property
    def variance(self) -> float:
        """The variance of the value."""
        return float(np.sum(np.square(self.influence)))

    def interval(self, *, level: float = 0.95) -> Interval:
        """The interval by the normal approximation, or of the form that the metric has."""
        error = math.sqrt(self.variance)
        if self.form is None:
            margin = critical_value(level, self.n_clusters) * error
            ends = (self.value - margin, self.value + margin)
        else:
            ends = self.form(self.value, self.variance, level, self.n_clusters)
        low, high = np.clip(ends, *self.limits).tolist()
        return Interval(self.value, low, high, level, error, 0.0, 0)

    def minus(self, other: InfluenceSummary, *, level: float = 0.95) -> PairedDifference:
        """The difference on the same rows."""
        with np.errstate(invalid="ignore"):  # a single row has an influence without end
            error = float(np.linalg.norm(self.influence - other.influence))
        fewest_clusters = 3  # of which pairs say how much they vary
        if math.isnan(error) or (self.of_pairs and (self.n_clusters or fewest_clusters) < fewest_clusters):
            error = math.inf
        return normal_difference(self.value, other.value, error, level, self.n_clusters)


def number_of(clusters: Indices | None, weight: Vector | None = None) -> int | None:
    """From how many units a variance is estimated: clusters, or the effective number of rows of unequal weights.

    None for rows without clusters and weights, of which there are enough for the normal quantile.
    """
    if clusters is not None:
        return len(np.unique(clusters))
    if weight is None or np.ptp(weight) <= 1e-9 * weight.max():
        return None
    return max(whole_rows(effective_rows(weight)), 2)


def effective_rows(weight: Vector) -> float:
    """The number of rows of equal weights whose mean varies as much, (Σw)² / Σw²."""
    return float(weight.sum() ** 2 / (weight @ weight))


def whole_rows(n_rows: float) -> int:
    """An effective number of rows without its fraction; that of n rows of one weight is n, though its sums round."""
    return int(n_rows * (1.0 + 1e-9))


def share_ends(
    n_rows: float, value: float, variance: float, level: float, n_clusters: int | None = None
) -> tuple[float, float]:
    """Wilson's interval of a share of rows, of at most `n_rows` effectively, as `ShareSummary` has it."""
    of_row = value * (1.0 - value)
    size = min(of_row / variance, n_rows) if variance > 0.0 and of_row > 0.0 else n_rows
    interval = share_interval(value, size, level, n_clusters)
    return interval.low, interval.high


def positive_ends(value: float, variance: float, level: float, n_units: int | None = None) -> tuple[float, float]:
    """The ends value · exp(± t √variance / value) of a mean of positive terms, on the scale of its logarithm.

    The terms of a loss are skewed, a few confident mistakes being large: the upper end must be farther away than the
    lower one. t is Student's, of as many units as the variance comes from.
    """
    if value <= 0.0:
        return value, value
    largest = 700.0  # whose exponential is a float
    factor = math.exp(min(critical_value(level, n_units) * math.sqrt(variance) / value, largest))
    return value / factor, value * factor


def mean_ends(
    limits: tuple[float, float],
    n_rows: float,
    value: float,
    variance: float,
    level: float,
    n_clusters: int | None = None,
) -> tuple[float, float]:
    """The ends of a mean of terms within limits: by Student's t of the rows, effectively, or of the clusters.

    Those of losses, whose lower limit is 0, are on the log scale.
    """
    low, high = limits
    n_units = whole_rows(n_rows) if n_clusters is None else n_clusters
    if not math.isfinite(variance):  # of one row or cluster
        return limits
    rounding = 1e-6  # of terms in single precision, and of variances that are differences of sums over blocks
    if math.sqrt(variance * n_rows) <= rounding * abs(value) and math.isfinite(high - low):
        # All terms are equal, as where no mistake was seen: others may be anywhere within the limits.
        lowest, highest = bounded_mean(value, 0.0, n_rows, low, high, level)
        return float(lowest), float(highest)
    if low == 0.0:
        return positive_ends(value, variance, level, n_units)
    margin = critical_value(level, n_units) * math.sqrt(variance)
    return value - margin, value + margin


@dataclass(frozen=True, eq=False)
class MeanSummary:
    """A metric that is a mean over rows, with its terms: differences are those of the terms, tested as a mean."""

    value: float
    terms: Vector
    weight: Vector | None
    clusters: Indices | None
    limits: tuple[float, float]

    @property
    def n_rows(self) -> float:
        """The effective number of rows."""
        return len(self.terms) if self.weight is None else effective_rows(self.weight)

    def interval(self, *, level: float = 0.95) -> Interval:
        """The interval of `mean_ends`."""
        variance = float(variance_of_mean(self.terms, self.weight, self.clusters))
        ends = mean_ends(self.limits, self.n_rows, self.value, variance, level, number_of(self.clusters))
        lowest, highest = np.clip(ends, *self.limits).tolist()
        error = math.sqrt(variance)
        return Interval(self.value, min(lowest, self.value), max(highest, self.value), level, error, 0.0, 0)

    def minus(self, other: MeanSummary, *, level: float = 0.95) -> PairedDifference:
        """The difference on the same rows."""
        influence = influences_of_units(self.terms - other.terms, self.weight, self.clusters)
        n_units = number_of(self.clusters) or whole_rows(self.n_rows)
        error = float(np.linalg.norm(influence))
        third_moment = float(np.sum(influence**3))
        return skewed_difference(self.value, other.value, error, skewness_of(third_moment, error), level, n_units)


def skewness_of(third_moment: float, error: float) -> float:
    """Σ u³ / (Σ u²)^{3/2}, which is between -1 and 1 but for rounding; 0 where one unit, or none that varies, is."""
    if not (0.0 < error < math.inf) or not math.isfinite(third_moment):
        return 0.0
    return min(max(third_moment / error**3, -1.0), 1.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class SummedMean(InfluenceSummary):
    """A mean over rows in blocks, of one of several methods: the influences have the products of those of rows."""

    place: int
    """The place of the method among all."""
    third_moments: Vector
    """Σ u² v over the influences u and v of two methods on each row or cluster, (methods, methods)."""
    n_units: int
    """The effective number of rows, or that of clusters."""

    def minus(self, other: InfluenceSummary, *, level: float = 0.95) -> PairedDifference:
        """The difference on the same rows, as `MeanSummary` has it: (u - v)³ = u³ - 3 u² v + 3 u v² - v³."""
        if not isinstance(other, SummedMean):
            return super().minus(other, level=level)
        with np.errstate(invalid="ignore"):  # a single row has an influence without end
            error = float(np.linalg.norm(self.influence - other.influence))
        moments = self.third_moments
        i = self.place
        j = other.place
        third_moment = float(moments[i, i] - 3.0 * moments[i, j] + 3.0 * moments[j, i] - moments[j, j])
        skewness = skewness_of(third_moment, error)
        return skewed_difference(self.value, other.value, error, skewness, level, self.n_units)


@dataclass(frozen=True, eq=False, kw_only=True)
class ShareSummary(InfluenceSummary):
    """The share of the rows in which something happened, with Wilson's interval: wider than 0 at shares of 0 and 1."""

    size: float
    """The effective number of rows."""

    @classmethod
    def of(cls, happened: Vector | Flags, weight: Vector | None, clusters: Indices | None = None) -> ShareSummary:
        """The share of some rows."""
        cell = join_cells(row_cells(np.zeros(len(happened)), happened, weight), np.array([0]))
        share = min(max(float(cell.rate[0]), 0.0), 1.0)
        size = float(cell.size_at(cell.rate)[0])
        influence = influences_of_units(np.asarray(happened, dtype=np.float64), weight, clusters)
        variance = float(np.sum(np.square(influence)))
        if weight is not None:
            # A handful of events of small weights, or none of large ones, looks as if it were of more rows than there
            # are effectively (Korn & Graubard 1998 have no more rows than were sampled).
            size = min(size, effective_rows(weight))
        # Clusters that all have the same share show no variance, and say nothing about the size.
        if (clusters is not None or not has_equal_weights(cell)) and 0.0 < share < 1.0 and variance > 0.0:
            size = min(size, share * (1.0 - share) / variance)
        return cls(
            value=share, influence=influence, limits=(0.0, 1.0), n_clusters=number_of(clusters, weight), size=size
        )

    def interval(self, *, level: float = 0.95) -> Interval:
        """Wilson's interval; one cluster alone says nothing about others: the share may be any."""
        if self.n_clusters == 1:
            return Interval(self.value, 0.0, 1.0, level, 0.5, 0.0, 0)
        return share_interval(self.value, self.size, level, self.n_clusters)

    def exact_interval(self, *, level: float) -> Interval:
        """The interval of `exact_ends`, for a level close to 1."""
        if self.n_clusters == 1:
            return self.interval(level=level)
        low, high = exact_ends(self.value, self.size, level, self.n_clusters)
        error = math.sqrt(self.value * (1.0 - self.value) / self.size)
        return Interval(self.value, min(float(low), self.value), max(float(high), self.value), level, error, 0.0, 0)


def has_equal_weights(cells: Bins) -> bool:
    """Whether all rows of some cells have the same weight: N Σ w² = (Σ w)² but for rounding."""
    squares = float(cells.count.sum()) * float(cells.squared_weight.sum())
    return squares <= (1.0 + 1e-9) * float(cells.weight.sum()) ** 2
