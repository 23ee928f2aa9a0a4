"""Intervals of a metric and of a difference: normal, Wilson's, and by inverting a test.

An inverted test gives the true values of calibration errors and of the bias that fit the data. A calibration error is
never below 0 and every bin adds its noise, so that it is measured too high, and resampling rows adds the same noise
once more. Here the confidences stay and outcomes are simulated, from models that are off by t times the gaps that were
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
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import numpy as np

from refocal._arrays import Flags, Indices, Vector
from refocal.metrics.bins import Bins, join_cells, row_cells
from refocal.metrics.influence import (
    critical_value,
    influences_of_units,
    two_sided_p_value,
    variance_of_mean,
)
from refocal.metrics.inputs import check_level, read_probabilities
from refocal.rows import Predictions
from refocal.rows.labels import IgnoreIndex

__all__ = ["Interval", "PairedDifference", "mean_bias_interval"]

N_DRAWS = 500
"""The default number of replicates of the outcomes."""
SHAPE_BINS = 8
"""The bins whose gaps show where a model is off: `InvertedError.shape`."""


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


def wilson(share: Any, size: Any, level: float, n_clusters: int | None = None) -> tuple[Vector, Vector]:
    """Wilson's interval for shares of `size` rows: within [0, 1], and wider than 0 even at shares of 0 and 1."""
    z2 = critical_value(level, n_clusters) ** 2
    centre = (share + z2 / (2.0 * size)) / (1.0 + z2 / size)
    half = np.sqrt(z2 * (share * (1.0 - share) / size + z2 / (4.0 * size * size))) / (1.0 + z2 / size)
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)


def exact_ends(share: Any, size: Any, level: float, n_clusters: int | None = None) -> tuple[Vector, Vector]:
    """The interval of Clopper & Pearson (1934) for shares of `size` rows, after Korn & Graubard (1998) for units.

    Its ends are the shares at which so many rows, or so few, are not rarer than (1 - level) / 2. Intervals that hold
    together have a level close to 1 each, at which Wilson's is too short next to 0 and 1: of one event that was seen,
    it excludes rates at which one row in ten samples has it. With clusters there are as many rows as make the normal
    interval as wide as Student's.
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
        return normal_difference(self.value, other.value, error, level, self.n_clusters)


def number_of(clusters: Indices | None, weight: Vector | None = None) -> int | None:
    """From how many units a variance is estimated: clusters, or the effective number of rows of unequal weights.

    None for rows without clusters and weights, of which there are enough for the normal quantile.
    """
    if clusters is not None:
        return len(np.unique(clusters))
    if weight is None or np.ptp(weight) <= 1e-9 * weight.max():
        return None
    return max(int(effective_rows(weight)), 2)


def effective_rows(weight: Vector) -> float:
    """The number of rows of equal weights whose mean varies as much, (Σw)² / Σw²."""
    return float(weight.sum() ** 2 / (weight @ weight))


def share_ends(
    n_rows: float, value: float, variance: float, level: float, n_clusters: int | None = None
) -> tuple[float, float]:
    """Wilson's interval of a share of rows, `n_rows` of them effectively where its variance is 0."""
    of_row = value * (1.0 - value)
    size = of_row / variance if variance > 0.0 and of_row > 0.0 else n_rows
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


@dataclass(frozen=True, eq=False)
class MeanSummary:
    """A metric that is a mean over rows, with its terms: differences are those of the terms, tested as a mean."""

    value: float
    terms: Vector
    weight: Vector | None
    clusters: Indices | None
    limits: tuple[float, float]

    def interval(self, *, level: float = 0.95) -> Interval:
        """The interval by Student's t of the rows, effectively, or of the clusters; of losses on the log scale."""
        variance = float(variance_of_mean(self.terms, self.weight, self.clusters))
        n_rows = len(self.terms) if self.weight is None else effective_rows(self.weight)
        n_units = number_of(self.clusters) or int(n_rows)
        low, high = self.limits
        if not math.isfinite(variance):  # of one row or cluster
            ends = (low, high)
        elif variance == 0.0 and math.isfinite(high - low):
            # All terms are equal, as where no mistake was seen: others may be anywhere within the limits.
            lowest, highest = bounded_mean(self.value, 0.0, n_rows, low, high, level)
            ends = (float(lowest), float(highest))
        elif low == 0.0:
            ends = positive_ends(self.value, variance, level, n_units)
        else:
            margin = critical_value(level, n_units) * math.sqrt(variance)
            ends = (self.value - margin, self.value + margin)
        lowest, highest = np.clip(ends, low, high).tolist()
        error = math.sqrt(variance)
        return Interval(self.value, min(lowest, self.value), max(highest, self.value), level, error, 0.0, 0)

    def minus(self, other: MeanSummary, *, level: float = 0.95) -> PairedDifference:
        """The difference on the same rows."""
        error = math.sqrt(variance_of_mean(self.terms - other.terms, self.weight, self.clusters))
        return normal_difference(self.value, other.value, error, level, number_of(self.clusters))


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
        # Clusters that all have the same share show no variance, and say nothing about the size.
        if (clusters is not None or not has_equal_weights(cell)) and 0.0 < share < 1.0 and variance > 0.0:
            size = min(size, share * (1.0 - share) / variance)
        return cls(
            value=share, influence=influence, limits=(0.0, 1.0), n_clusters=number_of(clusters, weight), size=size
        )

    def interval(self, *, level: float = 0.95) -> Interval:
        """Wilson's interval."""
        return share_interval(self.value, self.size, level, self.n_clusters)

    def exact_interval(self, *, level: float) -> Interval:
        """The interval of `exact_ends`, for a level close to 1."""
        low, high = exact_ends(self.value, self.size, level, self.n_clusters)
        error = math.sqrt(self.value * (1.0 - self.value) / self.size)
        return Interval(self.value, min(float(low), self.value), max(float(high), self.value), level, error, 0.0, 0)


class ErrorModel(NamedTuple):
    """A calibration error as a function of the gaps between confidence and accuracy in cells of similar rows."""

    cells: Bins
    statistic: Callable[[Vector], Any]
    """What is measured: gaps of (draws, cells) ↦ one number for each draw."""
    population: Callable[[Vector], Any] | None = None
    """The true error of a model with these gaps, where it is not `statistic`."""
    observed: float | None = None
    """The measured value, where it is not the statistic of the cells."""
    seen: Vector | None = None
    """The gaps of the cells, smoothed, where those of the confidence do not show where the model is off."""
    by_confidence: bool = True
    """Whether each row is in one cell, of those of similar confidence; otherwise clusters cannot be told apart."""
    total_variance: float | None = None
    """The variance of the error to the first order, where rows have a part in several cells."""
    power: float = 1.0
    """The error is (Σ share · |gap|^k)^power for some k: how much the shares of the cells move it."""

    def slopes(self) -> tuple[Vector, Vector]:
        """How a row moves the error: the slope κ and the rest of its influence in each cell.

        The statistic T is homogeneous in the gaps g_b: with its slopes κ_b = ∂T/∂g_b over the shares s_b of the cells,
        T = Σ s_b κ_b g_b, and a row of weight w in cell b moves it by w / Σw times κ_b (c - y - g_b), which is the
        noise of outcomes, plus power · (κ_b g_b - T): a sample may have more rows of cells with large gaps than the
        population.
        """
        gap = self.cells.gap / self.cells.weight
        step = 1e-4 * max(float(np.abs(gap).max()), 1e-9)
        moves = step * np.eye(len(gap))
        difference = np.asarray(self.statistic(gap + moves) - self.statistic(gap - moves))
        slope = difference / (2.0 * step * self.cells.share)
        value = float(self.cells.share @ (slope * gap))
        return slope, self.power * (slope * gap - value)

    def further_variance(self) -> float:
        """The variance of the error, to the first order, beyond that of outcomes in their cells.

        Of plain rows it is small. Where weights depend on the label, rows that missed weigh more or less than those
        that did not, and it is not.
        """
        cells = self.cells
        slope, rest = self.slopes()
        # The rows of a cell count as of its mean confidence: c - y - g is rate - y.
        noise_of_zero = slope * cells.rate
        noise_of_one = noise_of_zero - slope
        squares_of_zero = np.square(noise_of_zero + rest) - np.square(noise_of_zero)
        squares_of_one = np.square(noise_of_one + rest) - np.square(noise_of_one)
        of_zeros = (cells.squared_weight - cells.squared_correct) @ squares_of_zero
        of_ones = cells.squared_correct @ squares_of_one
        return max(float(of_zeros + of_ones), 0.0) / float(cells.weight.sum()) ** 2

    def covariance_of_clusters(self, rows: Predictions) -> Vector:
        """The covariance of the gaps of the cells and, in the last place, of the rest of the error, by clusters.

        (cells + 1, cells + 1): m / (m - 1) Σ_u d_u d_uᵀ, where d_u sums over the rows of a cluster what they add to
        the gap of their cell, w (c - y - g_b) / W_b, and to the error besides.
        """
        # SciPy loads when it is needed.
        from scipy.sparse import csr_array

        assert rows.clusters is not None  # noqa: S101 - callers ask
        cells = self.cells
        n_cells = len(cells.weight)
        p, happened = rows.confidence()
        cell = np.empty(len(p), dtype=np.int64)
        cell[np.argsort(p, kind="stable")] = np.repeat(np.arange(n_cells), cells.count)
        _, rest = self.slopes()
        gap = cells.gap / cells.weight
        of_gap = rows.weights * (p - happened - gap[cell]) / cells.weight[cell]
        of_rest = rows.weights * rest[cell] / cells.weight.sum()
        _, unit = np.unique(rows.clusters, return_inverse=True)
        n_units = int(unit.max()) + 1
        entries = np.concatenate([of_gap, of_rest])
        places = (np.tile(unit, 2), np.concatenate([cell, np.full(len(p), n_cells)]))
        sums = csr_array((entries, places), shape=(n_units, n_cells + 1))
        return np.asarray((sums.T @ sums).toarray() * n_units / max(n_units - 1, 1))

    def covariance_of_sums(self, residual: Vector, weight: Vector) -> Vector:
        """The same from Σ w (c - y) and Σ w of each cluster in each cell, (cells, clusters)."""
        cells = self.cells
        _, rest = self.slopes()
        gap = cells.gap / cells.weight
        of_gap = (residual - gap[:, None] * weight) / cells.weight[:, None]
        of_rest = rest @ weight / cells.weight.sum()
        of_units = np.concatenate([of_gap, of_rest[None]])
        n_units = weight.shape[1]
        return np.asarray(of_units @ of_units.T * n_units / max(n_units - 1, 1))


class ClusterNoise(NamedTuple):
    """The covariance of `ErrorModel.covariance_of_clusters`, and the number of clusters."""

    covariance: Vector
    n_clusters: int

    def draws(self, generator: np.random.Generator, n_draws: int, level: float) -> tuple[Vector, Vector]:
        """Noise of the gaps, (n_draws, cells), and of the rest of the error, (n_draws,), with the tails of t."""
        eigenvalues, eigenvectors = np.linalg.eigh(self.covariance)
        root = eigenvectors * np.sqrt(np.maximum(eigenvalues, 0.0))
        noise = generator.standard_normal((n_draws, len(root))) @ root.T
        noise *= critical_value(level, self.n_clusters) / critical_value(level)
        return noise[:, :-1], noise[:, -1]


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
    clusters: ClusterNoise | None = None

    def minus(self, other: InvertedError, *, level: float = 0.95) -> None:
        """None; `squared_ece_difference` has a valid test instead."""

    def interval(self, *, level: float = 0.95) -> Interval:
        """The true errors under which the value is not unlikely.

        A model of direction d, (cells,), and size t has the true rates clip(c - t d, 0, 1) at the confidences c. Its
        replicates, (n_draws, cells), are its gaps plus normal noise of the variance rate (1 - rate) / size of each
        cell; what varies besides (`ErrorModel.further_variance`) is added to the statistic, in proportion to its error.
        The ends are the true errors of the models of which a share (1 ± level) / 2 of the replicates have at most the
        observed value, for the upper end at least the median of a calibrated model. Of clusters the noise has the
        covariance of their sums, and what the variance of a cell lacks besides.
        """
        cells = self.model.cells
        statistic = self.model.statistic
        population = statistic if self.model.population is None else self.model.population
        confidence = cells.p
        observed = self.model.observed
        if observed is None:
            observed = float(statistic(cells.gap / cells.weight))
        generator = np.random.default_rng(self.seed)
        noise = generator.standard_normal((self.n_draws, len(confidence)))
        if self.clusters is None:
            shared_noise = np.zeros_like(confidence)
            shared_variance = np.zeros_like(confidence)
            further_noise = generator.standard_normal(self.n_draws)
        else:
            shared_noise, further_noise = self.clusters.draws(generator, self.n_draws, level)
            shared_variance = np.diag(self.clusters.covariance)[:-1]
        seen = _smoothed_gaps(self.shape, cells) if self.model.seen is None else self.model.seen

        def true_gaps(direction: Vector, t: float) -> Vector:
            return confidence - np.clip(confidence - t * direction, 0.0, 1.0)

        def replicates_of_outcomes(gap: Vector) -> Any:
            rate = confidence - gap
            variance = np.maximum(rate * (1.0 - rate), 0.0) / cells.size_at(rate)
            own_variance = np.maximum(variance - shared_variance, 0.0)
            return statistic(gap + shared_noise + np.sqrt(own_variance) * noise)

        if self.clusters is None:
            if self.model.total_variance is None:
                further_variance = self.model.further_variance()
            else:
                # The rest is what the replicates lack, not what the cells lack: noise of a gap near 0 moves |gap| less.
                of_outcomes = float(np.var(replicates_of_outcomes(true_gaps(seen, 1.0))))
                further_variance = max(self.model.total_variance - of_outcomes, 0.0)
            further_noise = math.sqrt(further_variance) * further_noise
        raw_error = float(population(cells.gap / cells.weight))
        relative_noise = further_noise / raw_error if raw_error > 0.0 else np.zeros(self.n_draws)

        def replicates(direction: Vector, t: float) -> Any:
            gap = true_gaps(direction, t)
            return replicates_of_outcomes(gap) + float(population(gap)) * relative_noise

        def true_error_at(direction: Vector, share: float, value: float) -> float:
            def share_below(t: float) -> float:
                return float(np.mean(replicates(direction, t) <= value))

            t = _crossing(share_below, share)
            return float(population(true_gaps(direction, t)))

        shift = confidence * (1.0 - confidence)  # the change of the probability as all log-odds rise
        low = true_error_at(seen, 0.5 + level / 2.0, observed)
        # A value so low that even calibrated models rarely have it would reject every model, and the upper end would be
        # 0. It says no more than the value that half of them exceed does.
        for_high = max(observed, float(np.median(replicates(seen, 0.0))))
        high = max(true_error_at(direction, 0.5 - level / 2.0, for_high) for direction in (seen, shift, -shift))
        as_seen = replicates(seen, 1.0)
        return Interval(
            value=self.value,
            low=low,
            high=high,
            level=level,
            standard_error=float(np.std(as_seen, ddof=1)) if self.n_draws > 1 else 0.0,
            bias=float(np.mean(as_seen)) - float(population(true_gaps(seen, 1.0))),
            n_resamples=self.n_draws,
        )


def noise_of_clusters(model: ErrorModel, rows: Predictions) -> ClusterNoise | None:
    """The noise that clusters of rows have in common; None without clusters."""
    n_clusters = number_of(rows.clusters)
    return None if n_clusters is None else ClusterNoise(model.covariance_of_clusters(rows), n_clusters)


def _crossing(share_below: Callable[[float], float], share: float) -> float:
    """The t at which a falling function reaches a share, by bisection; 0 where it begins below."""
    largest_t = 64.0  # a model that is off by 64 times what was seen is at 0 or 1 nearly everywhere
    n_halvings = 12  # to 1/4096 of the bracket: less than the noise of some hundred replicates
    if share_below(0.0) <= share:
        return 0.0
    low = 0.0
    high = 1.0
    while share_below(high) > share:
        low = high
        high = 2.0 * high
        if high > largest_t:
            return low
    for _ in range(n_halvings):
        middle = (low + high) / 2.0
        if share_below(middle) > share:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def _smoothed_gaps(bins: Bins, cells: Bins) -> Vector:
    """The smoothed gaps of bins, at the ranks of the cells."""
    gap = smoothed(bins.gap / bins.weight)
    return np.asarray(np.interp(_mid_ranks(cells), _mid_ranks(bins), gap))


def smoothed(gap: Vector) -> Vector:
    """The gaps of bins, each averaged twice with its neighbours."""
    for _ in range(2):
        padded = np.concatenate([gap[:1], gap, gap[-1:]])
        gap = (padded[:-2] + 2.0 * gap + padded[2:]) / 4.0
    return gap


def _mid_ranks(bins: Bins) -> Vector:
    """The share of the weight below the middle of each bin."""
    ranks: Vector = (np.cumsum(bins.weight) - bins.weight / 2.0) / bins.weight.sum()
    return ranks


def mean_bias_interval(
    y_true: Any,
    probabilities: Any = None,
    *,
    level: float = 0.95,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    clusters: Any = None,
) -> Interval:
    """`mean_bias` with the interval of the shifts of all log-odds that the score test does not reject.

    With a shift d the outcomes have the probabilities p(d) = sigmoid(logit p + d); d is rejected if Σ w (p(d) - y)
    is larger than the normal quantile times √Σ w² p(d)(1 - p(d)), or with weights that depend on the label times the
    root of Σ w² (y - p(d))² as it is to be expected. Where the residuals p - y vary more than that, as those of an
    overconfident model do, the interval is as much wider. Where all probabilities are equal this is Wilson's
    interval of the rate. It holds where no row or every row is of class 1. Of more than two classes the confidence and
    the accuracy take the place of probability and rate. `clusters` has what each row belongs to, such as its customer:
    rows of one cluster are not independent.

    >>> found = mean_bias_interval([0] * 20, [0.1] * 20)
    >>> round(found.value, 3), round(found.low, 3), round(found.high, 3)
    (0.1, -0.061, 0.1)
    """
    check_level(level, "mean_bias_interval")
    rows = read_probabilities(
        y_true, probabilities, sample_weight, "mean_bias_interval", ignore_index, clusters=clusters
    )
    p, happened = rows.confidence()
    cells = row_cells(p, happened, rows.weight)
    if rows.clusters is None and rows.weight is None:
        return interval_of_shift(cells, level)
    variance = variance_of_mean(p - happened, rows.weight, rows.clusters)
    variance_of_units = variance if math.isfinite(variance) else None
    return interval_of_shift(cells, level, variance_of_units, number_of(rows.clusters))


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
    n_clusters: int | None

    def by_score(self, side: float) -> float:
        """Below 0 where the rate is not too high (`side` 1), above 0 where it is not too low (-1): score test."""
        return self.difference - side * critical_value(self.level, self.n_clusters) * math.sqrt(self.variance)

    def by_tail(self, side: float) -> float:
        """The same by the tail of a binomial of as many rows as give the variance, see `exact_ends`."""
        # SciPy loads when an interval needs it.
        from scipy.special import betainc

        ratio = critical_value(self.level) / critical_value(self.level, self.n_clusters)
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

    `variance` is that of the mean of p - y, where it is known from the rows or their clusters; otherwise it is that of
    rows that are independent of one another.
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
    model has larger residuals than its probabilities say, and so have rows of one cluster.
    """
    # SciPy loads when an interval needs it.
    from scipy.optimize import brentq

    smallest_p = 1e-12  # of which the log-odds are ± 28
    largest_shift = 60.0  # takes a probability of 1e-12 to one of 1 - 1e-12, and back
    cells = cells.with_weight()
    share = cells.share
    mean = float(share @ cells.p)
    rate = float(cells.correct.sum() / cells.weight.sum())
    inside = np.clip(cells.p, smallest_p, 1.0 - smallest_p)
    log_odds = np.log(inside) - np.log1p(-inside)
    z = critical_value(level, n_clusters)

    def shifted(shift: float) -> tuple[Vector, Vector]:
        """The probabilities after a shift, and one less them."""
        odds = np.exp(log_odds + shift)
        return odds / (1.0 + odds), 1.0 / (1.0 + odds)

    def difference(shift: float) -> float:
        """The rate less the mean after a shift, by the rarer outcome: 1 - p has lost the digits of a small p."""
        p, complement = shifted(shift)
        return float(rate - share @ p if rate < 0.5 else share @ complement - (1.0 - rate))

    def variance_at(shift: float) -> float:
        p, complement = shifted(shift)
        return float(share**2 @ (p * complement / cells.size_at(p)))

    of_residuals = _variance_of_bias(cells) if variance is None else variance
    dispersion = 1.0
    if difference(-largest_shift) > 0.0 > difference(largest_shift):
        of_rate = variance_at(brentq(difference, -largest_shift, largest_shift, xtol=1e-10))
        dispersion = max(1.0, of_residuals / of_rate)

    def end(side: float) -> float:
        """The rate at which the outcomes are just not too many (`side` 1), or not too few (-1)."""

        def excess(shift: float) -> float:
            p, complement = shifted(shift)
            test = RateTest(
                rate=rate,
                expected=min(float(share @ p), 1.0),
                complement=float(share @ complement),
                difference=difference(shift),
                variance=dispersion * variance_at(shift),
                level=level,
                n_clusters=n_clusters,
            )
            return excess_of(test, side)

        if excess(-largest_shift) * excess(largest_shift) > 0:
            return 0.0 if side > 0 else 1.0
        p, _ = shifted(brentq(excess, -largest_shift, largest_shift, xtol=1e-10))
        return float(share @ p)

    lowest_rate = end(1.0)
    highest_rate = end(-1.0)
    if not has_equal_weights(cells):
        # Weights that depend on the label make the mean of p vary together with the rate, so that the score test may
        # put too much of its interval on one side. The normal interval does not, and the wider end is taken.
        margin = z * math.sqrt(of_residuals)
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


def has_equal_weights(cells: Bins) -> bool:
    """Whether all rows of some cells have the same weight: N Σ w² = (Σ w)² but for rounding."""
    squares = float(cells.count.sum()) * float(cells.squared_weight.sum())
    return squares <= (1.0 + 1e-9) * float(cells.weight.sum()) ** 2


def _variance_of_bias(cells: Bins) -> float:
    """Σ w² (p - y - b)² / (Σ w)², b being the mean of p - y, where the rows of a cell count as of its mean p."""
    bias = float(cells.gap.sum() / cells.weight.sum())
    residual = cells.p - bias  # of a row without the event; 1 less of one with it
    squares = cells.squared_correct * (1.0 - 2.0 * residual) + cells.squared_weight * np.square(residual)
    return float(squares.sum() / cells.weight.sum() ** 2)
