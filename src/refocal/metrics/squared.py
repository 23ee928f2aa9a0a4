"""The squared calibration error, which is unbiased, and a valid test of the difference of two on the same rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Indices, Vector
from refocal._validation import check_integer
from refocal.metrics.binned import debiased_model
from refocal.metrics.bins import Bins, join_cells, rank
from refocal.metrics.influence import variance_of_mean, weighted_deviations
from refocal.metrics.inputs import check_level, read_pair, read_probabilities
from refocal.metrics.intervals import Interval, PairedDifference, normal_difference, whole_rows
from refocal.metrics.inverted_error import ClusterNoise, InvertedError, noise_of_clusters
from refocal.metrics.record import BlockSums, Metric, StreamedMetric
from refocal.rows import Predictions
from refocal.rows.labels import IgnoreIndex

__all__ = ["squared_ece", "squared_ece_difference"]


class GapSquares(NamedTuple):
    """Σ_b share_b gap_b² without its bias, as a sum over pairs of rows of a bin.

    `terms` has the share of each row, and adds up to the error. `pair_weight` is what a bin multiplies the product of
    two residuals (weight × (confidence - outcome)) with. Of clusters in blocks `terms` and `weight` are those of each
    cluster.
    """

    bin: Indices
    residual: Vector
    pair_weight: Vector
    terms: Vector
    weight: Vector
    bins: Bins
    clusters: Indices | None = None
    """The number of each row's cluster: pairs of rows of one cluster are left out."""

    @property
    def value(self) -> float:
        """The error; noise can make it negative."""
        return float(self.terms.sum())


@dataclass(frozen=True)
class SquaredSummary:
    """The squared error of some bins, with its standard error; `rows` unless they are in blocks."""

    value: float
    standard_error: float
    bins: Bins
    rows: GapSquares | None = None
    clusters: ClusterNoise | None = None

    @classmethod
    def of(cls, rows: Predictions, n_bins: int = 15, function: str = "squared_ece") -> SquaredSummary:
        """The error of rows in memory."""
        squares = gap_squares(rows, n_bins, function)
        noise = noise_of_clusters(debiased_model(squares.bins), rows, squares.bins)
        return cls(squares.value, standard_error(squares), squares.bins, squares, noise)

    @classmethod
    def of_sums(cls, bins: Bins, residual: Vector, weight: Vector) -> SquaredSummary:
        """The error from Σ w (c - y) and Σ w of each cluster in each bin, (bins, clusters).

        With R and W these sums, and R_b and W_b their totals, it is Σ_b share_b (R_b² - Σ R²) / (W_b² - Σ W²).
        """
        total = residual.sum(axis=1)
        weight_of_pairs = np.square(bins.weight) - np.square(weight).sum(axis=1)
        pair_weight = np.divide(
            bins.share, weight_of_pairs, out=np.zeros_like(weight_of_pairs), where=weight_of_pairs > 0
        )
        terms = pair_weight @ (residual * (total[:, None] - residual))
        n_clusters = weight.shape[1]
        nothing = np.zeros(0)
        squares = GapSquares(
            bin=nothing.astype(np.int64),
            residual=nothing,
            pair_weight=pair_weight,
            terms=terms,
            weight=weight.sum(axis=0),
            bins=bins,
            clusters=np.arange(n_clusters),
        )
        noise = ClusterNoise(debiased_model(bins).covariance_of_sums(residual, weight), n_clusters)
        return cls(squares.value, standard_error(squares), bins, squares, noise)

    def interval(self, *, level: float = 0.95) -> Interval:
        """The squared interval of the `debiased_ece`: a normal one would be too short where events are rare."""
        model = debiased_model(self.bins)
        root = InvertedError(self.value, model, self.bins, clusters=self.clusters).interval(level=level)
        return Interval(self.value, root.low**2, root.high**2, level, self.standard_error, 0.0, root.n_resamples)

    def minus(self, other: SquaredSummary, *, level: float = 0.95) -> PairedDifference:
        """See `squared_ece_difference`.

        The quantile is Student's, of the clusters or of as many rows as there are effectively. Errors of predictions on
        the same rows tend to go together: without the rows, intervals are rather too wide.
        """
        if self.rows is not None and other.rows is not None:
            error = standard_error(self.rows, other.rows)
        else:
            error = 0.0 if other is self else math.hypot(self.standard_error, other.standard_error)
        if self.clusters is None:
            bins = self.bins
            n_units = max(whole_rows(float(bins.weight.sum()) ** 2 / float(bins.squared_weight.sum())), 2)
        else:
            n_units = self.clusters.n_clusters
        return normal_difference(self.value, other.value, error, level, n_units)


def squared_ece(
    y_true: Any,
    probabilities: Any = None,
    *,
    n_bins: int = 15,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """Mean squared gap between confidence and accuracy over equal-mass bins, without bias.

    Σ_b w_b gap_b² is Σ over pairs of rows of the same bin of (c_i - y_i)(c_j - y_j); leaving out the pairs of a row
    with itself removes what noise alone would add. So the value may be negative, and is right on average, with
    weights too. Without weights it is nearly the square of the `debiased_ece`, where that is above 0.

    >>> y = [0, 1] * 50
    >>> round(squared_ece(y, [0.5] * 100, n_bins=1), 4), round(squared_ece(y, [0.7] * 100, n_bins=1), 4)
    (-0.0025, 0.0375)
    """
    rows = read_probabilities(y_true, probabilities, sample_weight, "squared_ece", ignore_index, class_names=classes)
    return gap_squares(rows, n_bins).value


def squared_ece_difference(
    y_true: Any,
    first: Any,
    second: Any,
    *,
    n_bins: int = 15,
    level: float = 0.95,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
    clusters: Any = None,
) -> PairedDifference:
    """Squared calibration error of `first` minus that of `second` on the same rows, with interval and p-value.

    Which of two sets of predictions is better calibrated? A bootstrap of the difference of two ECEs does not hold its
    level, since each has a bias of its own; the difference of these has none (its coverage is in
    benchmarks/results/interval_coverage.md). `clusters` as for `bootstrap_interval`; what `first` and `second` may be
    as for `paired_bootstrap`.

    >>> rng = np.random.default_rng(0)
    >>> p = rng.beta(4, 1, 2000)
    >>> y = (rng.random(2000) < p).astype(int)
    >>> found = squared_ece_difference(y, p**0.5, p)
    >>> found.low > 0, found.p_value < 0.001
    (True, True)
    """
    function = "squared_ece_difference"
    check_level(level, function)
    rows_of_first, rows_of_second = read_pair(
        y_true, first, second, sample_weight, function, ignore_index, clusters=clusters, class_names=classes
    )
    summary_of_first = SquaredSummary.of(rows_of_first, n_bins, function)
    summary_of_second = SquaredSummary.of(rows_of_second, n_bins, function)
    return summary_of_first.minus(summary_of_second, level=level)


def standard_error(first: GapSquares, second: GapSquares | None = None) -> float:
    """The standard error of the squared error, or of the difference of two.

    The error is the mean of `terms` over the shares of the rows in the weight. A row is in its own term and in those of
    the others of its bin: it moves the error by twice what its term is away from this mean. The jackknife counts twice
    what pairs of rows add beyond the rows themselves; half of that is taken off.
    """
    terms = first.terms if second is None else first.terms - second.terms
    if first.clusters is not None and len(np.unique(first.clusters)) < 3:
        return math.inf  # two clusters are one pair, of which each has half: how pairs vary is not known
    total = float(first.weight.sum())
    influence = 2.0 * total * np.divide(terms, first.weight, out=np.zeros_like(terms), where=first.weight > 0.0)
    if first.clusters is not None:
        # Clusters have rows in several bins, so that what pairs of them add is not known bin by bin.
        return math.sqrt(variance_of_mean(influence, first.weight, first.clusters))
    jackknife = float(np.square(weighted_deviations(influence, first.weight)).sum()) / total**2
    pairs = float(np.square(first.pair_weight) @ _pair_sums(np.square(first.residual), first.bin))
    if second is not None:
        pairs += float(np.square(second.pair_weight) @ _pair_sums(np.square(second.residual), second.bin))
        both = first.bin * len(second.pair_weight) + second.bin
        crossed = np.outer(first.pair_weight, second.pair_weight).ravel()[: both.max() + 1]
        pairs -= 2.0 * float(crossed @ _pair_sums(first.residual * second.residual, both))
    return math.sqrt(max(jackknife - 2.0 * max(pairs, 0.0), jackknife / 2.0))


def gap_squares(rows: Predictions, n_bins: int = 15, function: str = "squared_ece") -> GapSquares:
    """The parts of the squared error of checked rows."""
    check_integer(n_bins, "n_bins", function)
    confidence, correct = rows.confidence()
    weight = rows.weights
    ranked = rank(confidence, correct, rows.weight)
    starts = ranked.starts(n_bins)
    index = np.searchsorted(ranked.confidence[starts], confidence, side="right") - 1
    residual = weight * (confidence - correct)
    total = np.bincount(index, weight)
    own_weight = weight
    own_residual = residual
    if rows.clusters is not None:
        # The sums over the rows of a cluster in a bin take the place of the rows.
        _, unit = np.unique(index * (int(rows.clusters.max()) + 1) + rows.clusters, return_inverse=True)
        own_weight = np.bincount(unit, weight).astype(np.float64)[unit]
        own_residual = np.bincount(unit, residual).astype(np.float64)[unit]
    # (Σw)² - Σw² is the weight of all pairs of different rows: a bin of one row has none and carries no information.
    weight_of_pairs = total * total - np.bincount(index, weight * own_weight)
    pair_weight = np.divide(
        total / total.sum(), weight_of_pairs, out=np.zeros_like(weight_of_pairs), where=weight_of_pairs > 0
    )
    residual_of_others = np.bincount(index, residual)[index] - own_residual
    return GapSquares(
        bin=index,
        residual=residual,
        pair_weight=pair_weight,
        terms=pair_weight[index] * residual * residual_of_others,
        weight=weight,
        bins=join_cells(ranked.cells, starts),
        clusters=rows.clusters,
    )


def _pair_sums(values: Vector, index: Indices) -> Vector:
    """Σ of the products of two different rows of each group."""
    sums: Vector = np.square(np.bincount(index, values)) - np.bincount(index, values * values)
    return sums


def _streamed(sums: BlockSums) -> StreamedMetric:
    """The error over pairs of rows, as in memory, from sums of the cells of a histogram.

    With r = w (c - y), R_b = Σ r and W_b = Σ w over the rows of bin b, the error is
    Σ_b share_b (R_b² - Σ r²) / (W_b² - Σ w²). A cell is so narrow that its mean confidence c̄ stands for each c:
    Σ r² = c̄² Σ w² (1 - y) + (1 - c̄)² Σ w² y.
    """
    equal_mass = sums.histogram.equal_mass()
    bins = equal_mass.bins
    cells = equal_mass.cells
    confidence = cells.confidence / cells.weight
    squared_wrong = cells.squared_weight - cells.squared_correct
    squared_residual = np.square(confidence) * squared_wrong + np.square(1.0 - confidence) * cells.squared_correct
    first_cell = np.append(0, equal_mass.ends[:-1] + 1)
    own_pairs = np.add.reduceat(squared_residual, first_cell)
    weight_of_pairs = np.square(bins.weight) - bins.squared_weight
    squared_gap = np.divide(
        np.square(bins.gap) - own_pairs, weight_of_pairs, out=np.zeros_like(own_pairs), where=weight_of_pairs > 0
    )
    value = float(bins.share @ squared_gap)
    gap = bins.gap / bins.weight
    noise = np.maximum(np.square(gap) - squared_gap, 0.0)
    error = math.sqrt(float(np.square(bins.share) @ (4.0 * gap * gap * noise + 2.0 * noise * noise)))
    return StreamedMetric(value, summary=SquaredSummary(value, error, bins))


METRICS = (
    Metric(
        "squared_ece",
        squared_ece,
        "squared ECE",
        _streamed,
        summary=SquaredSummary.of,
        of_confidence=True,
        shown="with interval",
    ),
)
