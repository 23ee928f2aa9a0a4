"""Passes over rows in blocks: what each block adds to the sums of every method."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from refocal._arrays import Vector, as_floating, row_blocks
from refocal.engine import Block, BlockedDataset, Pass
from refocal.engine.refining import MAX_REFINEMENTS, REPORT_BITS, finer_cells, repeat_with_finer_cells
from refocal.evaluate import _details as details
from refocal.evaluate._block_sums import Counts, MethodCounts, Sums, TermSums, cluster_factors, mean_metrics
from refocal.evaluate._cluster_sums import ClusterSums, merged
from refocal.evaluate._details import N_BINS
from refocal.evaluate.predicted import Methods, Predicted, ZerosAtLabels, log_proba_of_logits, log_proba_of_model
from refocal.evaluate.statements import score_terms
from refocal.metrics import CalibrationHistogram
from refocal.metrics.histogram_cells import finest_bits
from refocal.metrics.record import Metric
from refocal.rows import Predictions


def sum_rows(rows: BlockedDataset, methods: Methods) -> Sums:
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
    return replace(total, methods=[replace(of_method, histogram=histogram) for of_method, histogram in pairs])


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
            predicted = []
            for calibrator in self.methods.values():
                if calibrator is None and self.of_probabilities:
                    log_p = log_proba_of_model(np.maximum(logits, np.log(np.finfo(logits.dtype).eps)))
                else:
                    log_p = log_proba_of_logits(calibrator, logits, part.groups)
                predicted.append(Predicted.by(log_p, part))
            yield part, predicted


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
    cubes = np.zeros((len(metrics) + 1, 2 * n_methods + 1, 2 * n_methods + 1))
    score_variances = np.zeros(n_methods)
    clusters: ClusterSums | None = None
    zeros = ZerosAtLabels(0, 0.0, 0.0)
    for part, predicted in predict.parts(block):
        zeros = zeros.merge(ZerosAtLabels.of(predicted[0].logs.values, part))
        group_names, group_numbers = details.numbered(part.groups)
        for counts, of_method in zip(methods, predicted, strict=True):
            counts.count(of_method.rows, group_names, group_numbers)
        weight = part.weights
        ones = np.ones(len(weight))
        scores, variances = _scores(predicted)
        of_metrics = [[metric.terms(each.of(metric)) for each in predicted if metric.terms] for metric in metrics]
        terms = np.array([[*of_methods, ones] for of_methods in (*of_metrics, scores)])  # (metrics, methods, rows)
        sums += terms @ weight
        score_variances += np.asarray(variances) @ weight**2
        if part.clusters is None:
            products += (terms * weight**2) @ terms.transpose(0, 2, 1)
            powers = np.concatenate([terms, np.square(terms[:, :-1])], axis=1)
            cubes += (powers * weight**3) @ powers.transpose(0, 2, 1)
        else:
            of_part = ClusterSums.of(part.clusters, (terms * weight).reshape(-1, len(weight)))
            clusters = merged(clusters, of_part)
    return Counts(methods, TermSums(sums, products, cubes, score_variances, clusters), zeros)


def _scores(predicted: Sequence[Predicted]) -> tuple[list[Vector], list[Vector]]:
    """The terms of the score test of each method, and their variances if the model is right.

    Both are 0 of the model itself, which is the first.
    """
    model = predicted[0].logs
    scores = [np.zeros(len(model.labels))]
    variances = [np.zeros(len(model.labels))]
    for of_method in predicted[1:]:
        score, variance = score_terms(model.values, of_method.logs.values, model.labels)
        scores.append(score)
        variances.append(variance)
    return scores, variances


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
            with np.errstate(divide="ignore", invalid="ignore"):  # a row that has all the weight says nothing: NaN
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


def sum_clusters_in_bins(rows: BlockedDataset, methods: Methods, total: Sums) -> ClustersInBins:
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
