"""Results of methods on rows in blocks, in a few passes and constant memory.

Every pass adds up sums. The confidence and each class's probability have a histogram, with cells as fine as a fixed
memory allows, so that errors come with the bound that these leave. The smooth error is that of memory but for
rounding: its sums on a grid add up. Intervals come from the normal approximation.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Indices, Vector, as_floating, row_blocks
from refocal.calibrators import MultiLabelCalibration
from refocal.calibrators.registry import NONE
from refocal.engine import Block, BlockedDataset, Pass
from refocal.engine.refining import MAX_REFINEMENTS, REPORT_BITS, finer_cells, repeat_with_finer_cells
from refocal.errors import DataError, ParameterError
from refocal.evaluate import _details as details
from refocal.evaluate._cluster_sums import ClusterSums, merged
from refocal.evaluate._details import N_BINS, NO_GROUPS, GroupCounts
from refocal.evaluate._results import BINS_NOTE, SEED, Details, Progress, Result, Results, reported
from refocal.evaluate.evaluation import Histogram
from refocal.evaluate.predicted import Methods, Predicted, log_proba_of_logits, warn_of_unseen
from refocal.evaluate.provenance import unit_notes
from refocal.evaluate.statements import ScoreTest, score_terms
from refocal.metrics import METRICS, CalibrationHistogram
from refocal.metrics.histogram_cells import finest_bits
from refocal.metrics.influence import variance_of_mean
from refocal.metrics.intervals import InfluenceSummary, positive_ends, share_ends
from refocal.metrics.inverted_error import ClusterNoise, InvertedError
from refocal.metrics.record import BlockSums, Metric, StreamedMetric
from refocal.metrics.reliability import UnitVariances
from refocal.metrics.smooth import GRID_POINTS, residuals_on_grid
from refocal.metrics.squared import SquaredSummary
from refocal.rows import Predictions


def measure_in_blocks(
    rows: BlockedDataset,
    methods: Methods,
    report: Progress,
    *,
    n_resamples: int | None,
    seed: int | None,
    groups: Any,
    clusters: Any,
) -> Results:
    """Every metric of every method; a method that fails raises, since one pass over the rows serves all."""
    _refuse_options(n_resamples, seed, groups=groups, clusters=clusters)
    _refuse_methods(rows, methods)
    watch = rows.watch
    start = time.perf_counter()
    rows.watch = watch or (lambda done, total: report(done, total or 0, "measuring"))
    try:
        rows.start(needs_classes=False)
        total = _sum_rows(rows, methods)
        measured = _measure(rows, methods, total)
        in_bins = None if total.n_clusters is None else _sum_clusters_in_bins(rows, methods, total)
    finally:
        rows.watch = watch
    seconds = (time.perf_counter() - start) / len(methods)
    results = {}
    variances_of_scores = np.diagonal(total.covariances()[SCORE])
    for i, (name, of_method) in enumerate(zip(methods, total.methods, strict=True)):
        metrics_of_method = {metric: values[i] for metric, values in measured.items()}
        score = None
        if name != NONE:
            error = math.sqrt(max(float(variances_of_scores[i]), 0.0))
            score = ScoreTest(of_method.means[SCORE], error, total.n_clusters)
        result = _result(of_method, metrics_of_method, total.terms.weight, score, seconds)
        results[name] = result if in_bins is None else _by_clusters(result, of_method, in_bins.of_method(i))
    notes = BINS_NOTE | unit_notes(rows.reader.clusters or "", total.n_clusters)
    if rows.n_skipped:
        notes["rows skipped"] = str(rows.n_skipped)
    if rows.bad_parts:
        notes["files skipped"] = str(len(rows.bad_parts))
    group_names = total.methods[0].groups.names
    columns = list(dict(group_names))
    seen = {column: np.array([name for of, name in group_names if of == column]) for column in columns}
    for calibrator in methods.values():
        warn_of_unseen(calibrator, seen, "evaluate")
    return Results(results, rows.n_rows, columns, len(group_names), notes)


def _refuse_options(n_resamples: int | None, seed: int | None, **of_rows: Any) -> None:
    """Refuse the options of rows in memory."""
    for argument, value in (("n_resamples", n_resamples), ("seed", seed)):
        if value is not None:
            expected = "left out for rows in blocks, which are not resampled"
            raise ParameterError(argument, "evaluate", expected=expected, got=repr(value))
    for argument, value in of_rows.items():
        if value is not None:
            opened = f"open_rows(…, {argument}=…)"
            expected = f"left out for rows in blocks, which have those that they were opened with: {opened}"
            raise ParameterError(argument, "evaluate", expected=expected, got=type(value).__name__)


def _refuse_methods(rows: BlockedDataset, methods: Methods) -> None:
    """Refuse calibrators that take other rows than these."""
    for name, calibrator in methods.items():
        if calibrator is None:
            continue
        # Log-odds are logits of two classes; what a probability of 0 counts as differs from calibrator to calibrator.
        if (calibrator.input == "probabilities") != (rows.input == "probabilities"):
            expected = f"{calibrator.input}, as the calibrator {name!r} takes"
            raise DataError("test", "evaluate", expected=expected, got=rows.input)
        if isinstance(calibrator, MultiLabelCalibration):
            expected = "of classes that exclude one another, for rows in blocks"
            raise ParameterError("calibrators", "evaluate", expected=expected, got=f"{name!r}, one of labels")


# Sums that add up over rows.


@dataclass
class MethodCounts:
    """Sums over some rows for one method: `count` adds rows to them, `merge` those of another block."""

    histogram: CalibrationHistogram
    """The confidence."""
    class_histograms: list[CalibrationHistogram]
    """The probability of each class; none where there are too many classes."""
    class_counts: Vector
    """What `count_classes` counts, (5, classes)."""
    residuals: Vector
    """Confidence less outcome on the grid of `smooth_ece`."""
    decisions: Vector
    """What `sum_decisions` sums, (3, thresholds)."""
    groups: GroupCounts

    @classmethod
    def empty(
        cls, histogram: CalibrationHistogram, class_histograms: list[CalibrationHistogram], n_classes: int
    ) -> MethodCounts:
        """The sums over no rows; the histograms are empty."""
        return cls(
            histogram=histogram,
            class_histograms=class_histograms,
            class_counts=np.zeros((5, n_classes)),
            residuals=np.zeros(GRID_POINTS),
            decisions=np.zeros((3, len(details.DECISION_THRESHOLDS))),
            groups=NO_GROUPS,
        )

    def count(self, rows: Predictions, group_names: list[tuple[str, str]], group_numbers: list[Indices]) -> None:
        """Add some rows; their groups are those of `details.numbered`."""
        p, happened = rows.confidence()
        self.histogram.count_rows(p, happened, rows.weight)
        classes = range(len(self.class_histograms))
        for histogram, (class_p, occurs) in zip(self.class_histograms, rows.events(classes), strict=True):
            histogram.count_rows(class_p, occurs, rows.weight)
        self.class_counts += details.count_classes(rows)
        self.residuals += residuals_on_grid(p, happened, rows.weight)
        self.decisions += details.sum_decisions(rows)
        if group_numbers:
            self.groups = self.groups.merge(GroupCounts.of(rows, group_names, group_numbers))

    def merge(self, other: MethodCounts) -> MethodCounts:
        """The sums over the rows of both."""
        class_pairs = zip(self.class_histograms, other.class_histograms, strict=True)
        return MethodCounts(
            histogram=self.histogram.merge(other.histogram),
            class_histograms=[mine.merge(theirs) for mine, theirs in class_pairs],
            class_counts=self.class_counts + other.class_counts,
            residuals=self.residuals + other.residuals,
            decisions=self.decisions + other.decisions,
            groups=self.groups.merge(other.groups),
        )


@dataclass(frozen=True)
class TermSums:
    """Sums of the terms of all metrics that are means, for k methods and with 1 as the last term.

    With x the k + 1 terms of a row and w its weight, `sums` is Σ w x, (metrics, k + 1), and `products`, which the
    covariances need, Σ w² x xᵀ, (metrics, k + 1, k + 1). The last of the metrics is the score test of each method.
    """

    sums: Vector
    products: Vector
    clusters: ClusterSums | None = None
    """Σ w x of each cluster, (metrics · (k + 1), clusters), where rows have clusters."""

    @property
    def weight(self) -> float:
        """The weight of all rows."""
        return float(self.sums[0, -1])

    @property
    def factor_of_rows(self) -> float:
        """The factor n / (n - 1) of n rows, effectively: what `metrics.influence` has for rows of the same weight."""
        squared_weight = float(self.products[0, -1, -1])
        return 1.0 / (1.0 - squared_weight / self.weight**2) if squared_weight < self.weight**2 else math.inf

    @property
    def means(self) -> Vector:
        """The means, (metrics, k)."""
        return np.asarray(self.sums[:, :-1] / self.weight)

    def covariances(self) -> list[Vector]:
        """The covariance of each mean between the methods, (k, k).

        Σ w² (x - mean)(x - mean)ᵀ / (Σ w)², by n / (n - 1).
        """
        covariances = []
        for mean, products in zip(self.means, self._products_of_units(), strict=True):
            centre = np.column_stack([np.eye(len(mean)), -mean])  # takes x and 1 to x - mean
            covariances.append(centre @ products @ centre.T / self.weight**2)
        return covariances

    def _products_of_units(self) -> Vector:
        """The products of what is independent: of rows, or of the sums of clusters."""
        if self.clusters is None:
            return self.products * self.factor_of_rows
        of_cluster = self.clusters.sums.reshape(*self.sums.shape, self.clusters.n_clusters)
        scaled = of_cluster * cluster_factors(of_cluster[0, -1])
        return np.asarray(scaled @ scaled.transpose(0, 2, 1))

    def merge(self, other: TermSums) -> TermSums:
        """The sums over the rows of both."""
        clusters = merged(self.clusters, other.clusters)
        return TermSums(self.sums + other.sums, self.products + other.products, clusters)


@dataclass(frozen=True)
class Counts:
    """All sums over some rows."""

    methods: list[MethodCounts]
    terms: TermSums

    def merge(self, other: Counts) -> Counts:
        """The sums over the rows of both."""
        pairs = zip(self.methods, other.methods, strict=True)
        return Counts([mine.merge(theirs) for mine, theirs in pairs], self.terms.merge(other.terms))

    def finish(self) -> Sums:
        """The sums over all rows; measures of classes take the place of their histograms, which are large to send."""
        n_classes = self.methods[0].class_counts.shape[1]
        names = [*(metric.name for metric in mean_metrics(n_classes)), SCORE]
        methods = []
        for counts, means in zip(self.methods, self.terms.means.T.tolist(), strict=True):
            methods.append(
                MethodSums(
                    histogram=counts.histogram,
                    classes=[histogram.compute(n_bins=N_BINS) for histogram in counts.class_histograms],
                    residuals=counts.residuals / self.terms.weight,
                    means=dict(zip(names, means, strict=True)),
                    class_counts=counts.class_counts,
                    decisions=counts.decisions,
                    groups=counts.groups,
                )
            )
        return Sums(methods, self.terms)


@dataclass(frozen=True, kw_only=True)
class MethodSums(BlockSums):
    """Sums over all rows for one method: what metrics take, and what its details are made of (`MethodCounts`)."""

    class_counts: Vector
    decisions: Vector
    groups: GroupCounts


@dataclass(frozen=True)
class Sums:
    """All sums over all rows."""

    methods: list[MethodSums]
    terms: TermSums

    @property
    def n_clusters(self) -> int | None:
        """The number of clusters; None where rows have none."""
        return None if self.terms.clusters is None else self.terms.clusters.n_clusters

    def covariances(self) -> dict[str, Vector]:
        """The covariance between the methods of each metric that is a mean, (methods, methods), by its name."""
        return dict(zip(self.methods[0].means, self.terms.covariances(), strict=True))


def cluster_factors(weight: Vector) -> Vector:
    """By what the sums of clusters of these weights are multiplied before they are squared, (clusters,).

    √((m - 1) / m) W / (W - W_u), as `metrics.influence` has it; one cluster alone says nothing about the variance.
    """
    if len(weight) < 2:
        return np.full_like(weight, math.inf)
    return np.asarray(math.sqrt(1.0 - 1.0 / len(weight)) * weight.sum() / (weight.sum() - weight))


# Passes over the rows.


def _sum_rows(rows: BlockedDataset, methods: Methods) -> Sums:
    """All sums in one pass; then, where an ECE needs finer cells, histograms of the confidence in further ones."""
    empty_histograms = [CalibrationHistogram(bits=REPORT_BITS)] * len(methods)
    predict = Predictor(methods, rows.input == "probabilities")
    has_classes = rows.n_classes <= details.MOST_CLASSES
    count = partial(count_block, predict=predict, empty_histograms=empty_histograms, has_classes=has_classes)
    total: Sums = rows.reduce(Pass(count, Counts.merge, Counts.finish), for_fit=False)
    histograms = [of_method.histogram for of_method in total.methods]
    finer = ConfidenceHistograms(histograms).finer
    if not finer:
        return total

    def one_pass(empty: Sequence[CalibrationHistogram]) -> ConfidenceHistograms:
        count = partial(count_confidence, predict=predict, empty_histograms=empty)
        counted: ConfidenceHistograms = rows.reduce(Pass(count, ConfidenceHistograms.merge), for_fit=False)
        return counted

    refined = repeat_with_finer_cells(one_pass, finer, MAX_REFINEMENTS)
    pairs = zip(total.methods, refined.histograms, strict=True)
    return Sums([replace(of_method, histogram=histogram) for of_method, histogram in pairs], total.terms)


@dataclass(frozen=True)
class Predictor:
    """The predictions of several methods on blocks; `of_probabilities`: the rows held these, and not logits."""

    methods: Methods
    of_probabilities: bool = False

    def parts(self, block: Block) -> Iterator[tuple[Block, list[Predicted]]]:
        """Yield some rows of a block at a time, and the predictions of each method; zeros count as in memory."""
        entries = 1 << 21  # the probabilities of a method held at a time: 16 MB
        fewest_columns = 8  # a row of few classes needs memory for other numbers too
        for some in row_blocks(block.n_rows, max(block.n_classes, fewest_columns), entries=entries):
            part = block.take(some)
            logits = as_floating(part.logits, "logits", "evaluate")[0]
            model_logits = logits
            if self.of_probabilities:
                model_logits = np.maximum(logits, np.log(np.finfo(logits.dtype).eps))
            predicted = []
            for calibrator in self.methods.values():
                scores = model_logits if calibrator is None else logits
                predicted.append(Predicted.by(log_proba_of_logits(calibrator, scores, part.groups), part))
            yield part, predicted


SCORE = "score"
"""The terms of the score test, among those of metrics that are means."""


def mean_metrics(n_classes: int) -> list[Metric]:
    """The reported metrics that are means of terms."""
    return [metric for metric in reported("with interval", n_classes) if metric.terms is not None]


def count_block(
    block: Block,
    predict: Predictor,
    empty_histograms: Sequence[CalibrationHistogram],
    has_classes: bool = True,
) -> Counts:
    """The sums of a block for each method.

    `empty_histograms` have the cells of the confidence, one for each method; `has_classes`: whether the probability of
    each class has a histogram too.
    """
    n_classes = block.n_classes
    n_methods = len(empty_histograms)
    # Cells of all histograms of classes together: 104 bytes each, so about 100 MB.
    class_bits = finest_bits((1 << 20) // (n_classes * n_methods), 12)
    methods = []
    for empty in empty_histograms:
        class_histograms = [CalibrationHistogram(bits=class_bits) for _ in range(n_classes if has_classes else 0)]
        methods.append(MethodCounts.empty(empty.fresh(), class_histograms, n_classes))
    metrics = mean_metrics(n_classes)
    sums = np.zeros((len(metrics) + 1, n_methods + 1))
    products = np.zeros((len(metrics) + 1, n_methods + 1, n_methods + 1))
    clusters: ClusterSums | None = None
    for part, predicted in predict.parts(block):
        group_names, group_numbers = details.numbered(part.groups)
        for counts, of_method in zip(methods, predicted, strict=True):
            counts.count(of_method.rows, group_names, group_numbers)
        weight = part.weights
        ones = np.ones(len(weight))
        terms = np.array([
            *(
                [*(metric.terms(of_method.of(metric)) for of_method in predicted if metric.terms), ones]
                for metric in metrics
            ),
            [*_scores(predicted), ones],
        ])  # fmt: skip
        sums += terms @ weight
        if part.clusters is None:
            products += (terms * weight**2) @ terms.transpose(0, 2, 1)
        else:
            of_part = ClusterSums.of(part.clusters, (terms * weight).reshape(-1, len(weight)))
            clusters = merged(clusters, of_part)
    return Counts(methods, TermSums(sums, products, clusters))


def _scores(predicted: Sequence[Predicted]) -> list[Vector]:
    """The terms of the score test of each method; 0 of the model itself, which is the first."""
    model = predicted[0].logs
    scores = [np.zeros(len(model.labels))]
    for of_method in predicted[1:]:
        scores.append(score_terms(model.values, of_method.logs.values, model.labels)[0])
    return scores


@dataclass(frozen=True)
class ConfidenceHistograms:
    """The confidence of each method."""

    histograms: list[CalibrationHistogram]

    def merge(self, other: ConfidenceHistograms) -> ConfidenceHistograms:
        """Those of the rows of both."""
        pairs = zip(self.histograms, other.histograms, strict=True)
        return ConfidenceHistograms([mine.merge(theirs) for mine, theirs in pairs])

    @property
    def finer(self) -> tuple[CalibrationHistogram, ...]:
        """Empty histograms for another pass, where the ECE of a method is not known well enough."""
        bound = max(histogram.equal_mass(N_BINS).error_bound for histogram in self.histograms)
        return finer_cells(self.histograms, bound, N_BINS)


def count_confidence(
    block: Block, predict: Predictor, empty_histograms: Sequence[CalibrationHistogram]
) -> ConfidenceHistograms:
    """The confidence of each method in a block."""
    histograms = [empty.fresh() for empty in empty_histograms]
    for _, predicted in predict.parts(block):
        for histogram, of_method in zip(histograms, predicted, strict=True):
            p, happened = of_method.rows.confidence()
            histogram.count_rows(p, happened, of_method.rows.weight)
    return ConfidenceHistograms(histograms)


class MetricInfluences(NamedTuple):
    """A metric with the influence of each row on its value, one function for every method."""

    metric: Metric
    of_methods: tuple[Callable[[Predictions], Vector], ...]


@dataclass(frozen=True)
class InfluenceSums:
    """Σ w² of the products of influences of rows, (metrics, methods, methods): covariances but for constants.

    `clusters` has Σ w of the influences of each cluster, (metrics · methods, clusters), where rows have clusters, and
    in the last place Σ w.
    """

    products: Vector
    clusters: ClusterSums | None = None

    def merge(self, other: InfluenceSums) -> InfluenceSums:
        """The sums over the rows of both."""
        clusters = merged(self.clusters, other.clusters)
        return InfluenceSums(self.products + other.products, clusters)

    def finish(self) -> Vector:
        """The products of what is independent, rows or clusters."""
        if self.clusters is None:
            return self.products
        weight = self.clusters.sums[-1]
        of_cluster = self.clusters.sums[:-1].reshape(*self.products.shape[:2], len(weight))
        scaled = of_cluster * cluster_factors(weight)
        return np.asarray(scaled @ scaled.transpose(0, 2, 1))


def sum_influences(
    block: Block, predict: Predictor, influences: Sequence[MetricInfluences], total_weight: float
) -> InfluenceSums:
    """The products of influences of a block, of rows by W / (W - w) as `metrics.influence` has them."""
    n_methods = len(predict.methods)
    products = np.zeros((len(influences), n_methods, n_methods))
    clusters: ClusterSums | None = None
    for part, predicted in predict.parts(block):
        weighted = np.array([
            [influence(of_method.of(metric)) for influence, of_method in zip(of_methods, predicted, strict=True)]
            for metric, of_methods in influences
        ]) * part.weights  # fmt: skip
        if part.clusters is None:
            scaled = weighted * (total_weight / (total_weight - part.weights))
            products += scaled @ scaled.transpose(0, 2, 1)
        else:
            columns = np.concatenate([weighted.reshape(-1, part.n_rows), part.weights[None]])
            of_part = ClusterSums.of(part.clusters, columns)
            clusters = merged(clusters, of_part)
    return InfluenceSums(products, clusters)


@dataclass(frozen=True)
class ClustersInBins:
    """Σ w (confidence - outcome), then Σ w, of each cluster in each bin of each method, one after the other."""

    sums: ClusterSums | None
    """None of no rows."""
    sizes: tuple[int, ...]
    """The number of bins of each method."""

    def merge(self, other: ClustersInBins) -> ClustersInBins:
        """The sums over the rows of both."""
        return ClustersInBins(merged(self.sums, other.sums), self.sizes)

    def of_method(self, i: int) -> tuple[Vector, Vector]:
        """Both sums of one method, (bins, clusters)."""
        first = 2 * sum(self.sizes[:i])
        size = self.sizes[i]
        sums = np.zeros((first + 2 * size, 0)) if self.sums is None else self.sums.sums
        return sums[first : first + size], sums[first + size : first + 2 * size]


def _sum_clusters_in_bins(rows: BlockedDataset, methods: Methods, total: Sums) -> ClustersInBins:
    """The sums of clusters in bins, in one more pass."""
    lowest = tuple(of_method.histogram.equal_mass(N_BINS).lowest for of_method in total.methods)
    predict = Predictor(methods, rows.input == "probabilities")
    count = partial(count_clusters_in_bins, predict=predict, lowest=lowest)
    counted: ClustersInBins = rows.reduce(Pass(count, ClustersInBins.merge), for_fit=False)
    return counted


def count_clusters_in_bins(block: Block, predict: Predictor, lowest: Sequence[Vector]) -> ClustersInBins:
    """The sums of the clusters of a block in bins; `lowest` has the lowest confidence of each bin of each method."""
    sums: ClusterSums | None = None
    sizes = tuple(len(of_method) for of_method in lowest)
    for part, predicted in predict.parts(block):
        keys, cluster = np.unique(np.asarray(part.clusters), return_inverse=True)
        columns = []
        for of_bins, of_method in zip(lowest, predicted, strict=True):
            p, happened = of_method.rows.confidence()
            bin_of_row = np.maximum(np.searchsorted(of_bins, p, side="right") - 1, 0)
            place = bin_of_row * len(keys) + cluster
            for values in (part.weights * (p - happened), part.weights):
                columns.append(np.bincount(place, values, len(of_bins) * len(keys)).reshape(len(of_bins), len(keys)))
        sums = merged(sums, ClusterSums(keys, np.concatenate(columns)).limited())
    return ClustersInBins(sums, sizes)


# From sums to metrics and their intervals.


def _measure(rows: BlockedDataset, methods: Methods, total: Sums) -> dict[str, list[StreamedMetric]]:
    """Every reported metric of every method, by its name; influences take one more pass."""
    covariances = total.covariances()
    del covariances[SCORE]
    measured: dict[str, list[StreamedMetric]] = {}
    influences: list[MetricInfluences] = []
    for metric in (*reported("with interval", rows.n_classes), *reported("value", rows.n_classes)):
        if metric.name in covariances:
            measured[metric.name] = [_streamed_mean(metric, of_method) for of_method in total.methods]
        elif metric.streamed is not None:
            answers = [metric.streamed(of_method) for of_method in total.methods]
            values = [answer for answer in answers if answer is not None and not math.isnan(answer.value)]
            if len(values) < len(methods):  # the sums lack what it needs
                continue
            measured[metric.name] = values
            of_methods = tuple(value.influence for value in values if value.influence is not None)
            if of_methods:
                influences.append(MetricInfluences(metric, of_methods))
    if influences:
        predict = Predictor(methods, rows.input == "probabilities")
        weight = total.terms.weight
        count = partial(sum_influences, predict=predict, influences=tuple(influences), total_weight=weight)
        task = Pass(count, InfluenceSums.merge, InfluenceSums.finish)
        products = rows.reduce(task, for_fit=False) / total.terms.weight**2
        if total.n_clusters is None:
            products = products * (1.0 - 1.0 / rows.n_rows)
        for (metric, _), of_metric in zip(influences, products, strict=True):
            covariances[metric.name] = of_metric
    for name, covariance in covariances.items():
        measured[name] = _with_intervals(measured[name], covariance, METRICS[name].range, total.n_clusters)
    return measured


def _streamed_mean(metric: Metric, sums: BlockSums) -> StreamedMetric:
    """A mean over rows: a loss has an interval on the log scale, and a share Wilson's, as in memory."""
    value = sums.means[metric.name]
    if metric.range[0] != 0.0:
        return StreamedMetric(value)
    if metric.range[1] == 1.0:
        bins = sums.bins
        n_rows = float(bins.weight.sum() ** 2 / bins.squared_weight.sum())
        return StreamedMetric(value, form=partial(share_ends, n_rows))
    return StreamedMetric(value, form=positive_ends)


def _with_intervals(
    values: list[StreamedMetric], covariance: Vector, limits: tuple[float, float], n_clusters: int | None
) -> list[StreamedMetric]:
    """The values of one metric for all methods, with summaries of this covariance.

    The summary of a method needs influences of rows, of which only products matter: with the covariance V Λ Vᵀ, the
    rows of V √Λ have the same products.
    """
    eigenvalues, eigenvectors = np.linalg.eigh(covariance)
    root = eigenvectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    return [
        value._replace(summary=InfluenceSummary(value.value, influence, limits, value.form, n_clusters))
        for value, influence in zip(values, root, strict=True)
    ]


def _result(
    sums: MethodSums, measured: dict[str, StreamedMetric], weight: float, score: ScoreTest | None, seconds: float
) -> Result:
    """The result of one method."""
    summaries = {}
    values = {}
    for name, metric in measured.items():
        if metric.summary is None:
            values[name] = metric.value
        else:
            summaries[name] = metric.summary
    for name, metric in measured.items():
        if metric.bound is not None:
            values[f"{name}_bound"] = metric.bound
    return Result(
        summaries=summaries,
        values=values,
        bins=sums.bins,
        units=None,
        histogram=Histogram(details.EDGES.tolist(), sums.calibration.right, sums.calibration.wrong),
        seconds=seconds,
        score=score,
        details=partial(_details_of, sums, weight),
    )


def _by_clusters(result: Result, sums: MethodSums, in_bins: tuple[Vector, Vector]) -> Result:
    """The result of a method whose calibration errors rest on clusters; the other intervals do already."""
    residual, weight = in_bins
    bins = sums.bins
    summaries = dict(result.summaries)
    error = summaries["ece"]
    if isinstance(error, InvertedError):
        noise = ClusterNoise(error.model.covariance_of_sums(residual, weight), weight.shape[1])
        summaries["ece"] = replace(error, clusters=noise)
    summaries["squared_ece"] = SquaredSummary.of_sums(bins, residual, weight)
    # The mean of a cluster in a bin, of which that of the bin is the mean with their weights.
    mean_of_cluster = np.divide(residual, weight, out=np.zeros_like(residual), where=weight > 0.0)
    pairs = zip(mean_of_cluster, weight, strict=True)
    of_rate = np.array([variance_of_mean(of_bin, weight_of_bin) for of_bin, weight_of_bin in pairs])
    return result._replace(summaries=summaries, units=UnitVariances(of_rate, weight.shape[1]))


def _details_of(sums: MethodSums, weight: float, level: float, level_of_curve: float) -> Details:
    """Classes, groups and decisions; the flexible curve takes rows in memory."""
    return Details(
        classes=[
            details.class_row(sums.class_counts, label, of_class.ece) for label, of_class in enumerate(sums.classes)
        ],
        groups=details.measure_groups(sums.groups.groups(), level, SEED),
        decisions=details.decision_table(sums.decisions / weight),
        curve=None,
        group_errors=[],
        sets=None,
    )
