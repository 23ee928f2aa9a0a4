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
from refocal.engine import Block, BlockedDataset, Pass
from refocal.engine.refining import MAX_REFINEMENTS, REPORT_BITS, finer_cells, repeat_with_finer_cells
from refocal.errors import DataError, ParameterError
from refocal.evaluate import _details as details
from refocal.evaluate._details import N_BINS, NO_GROUPS, GroupCounts
from refocal.evaluate._results import BINS_NOTE, SEED, Details, Progress, Result, Results, reported
from refocal.evaluate.evaluation import Histogram
from refocal.evaluate.predicted import Methods, Predicted, log_proba_of_logits
from refocal.metrics import METRICS, CalibrationHistogram
from refocal.metrics.histogram_cells import finest_bits
from refocal.metrics.intervals import InfluenceSummary
from refocal.metrics.record import BlockSums, Metric, StreamedMetric
from refocal.metrics.smooth import GRID_POINTS, residuals_on_grid
from refocal.rows import Predictions


def measure_in_blocks(
    rows: BlockedDataset,
    methods: Methods,
    report: Progress,
    *,
    n_resamples: int | None,
    seed: int | None,
    groups: Any,
) -> Results:
    """Every metric of every method; a method that fails raises, since one pass over the rows serves all."""
    _refuse_options(n_resamples, seed, groups)
    _refuse_methods(rows, methods)
    watch = rows.watch
    start = time.perf_counter()
    rows.watch = watch or (lambda done, total: report(done, total or 0, "measuring"))
    try:
        rows.start(needs_classes=False)
        total = _sum_rows(rows, methods)
        measured = _measure(rows, methods, total)
    finally:
        rows.watch = watch
    seconds = (time.perf_counter() - start) / len(methods)
    results = {}
    for i, (name, of_method) in enumerate(zip(methods, total.methods, strict=True)):
        metrics_of_method = {metric: values[i] for metric, values in measured.items()}
        results[name] = _result(of_method, metrics_of_method, total.terms.weight, seconds)
    notes = dict(BINS_NOTE)
    if rows.n_skipped:
        notes["rows skipped"] = str(rows.n_skipped)
    if rows.bad_parts:
        notes["files skipped"] = str(len(rows.bad_parts))
    group_columns = list(dict(total.methods[0].groups.names))
    return Results(results, rows.n_rows, group_columns, notes)


def _refuse_options(n_resamples: int | None, seed: int | None, groups: Any) -> None:
    """Refuse the options of rows in memory."""
    for argument, value in (("n_resamples", n_resamples), ("seed", seed)):
        if value is not None:
            expected = "left out for rows in blocks, which are not resampled"
            raise ParameterError(argument, "evaluate", expected=expected, got=repr(value))
    if groups is not None:
        expected = "left out for rows in blocks, which have those that they were opened with: open_rows(…, groups=…)"
        raise ParameterError("groups", "evaluate", expected=expected, got=type(groups).__name__)


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
    covariances need, Σ w² x xᵀ, (metrics, k + 1, k + 1).
    """

    sums: Vector
    products: Vector

    @property
    def weight(self) -> float:
        """The weight of all rows."""
        return float(self.sums[0, -1])

    @property
    def means(self) -> Vector:
        """The means, (metrics, k)."""
        return np.asarray(self.sums[:, :-1] / self.weight)

    def covariances(self) -> list[Vector]:
        """The covariance of each mean between the methods, (k, k): Σ w² (x - mean)(x - mean)ᵀ / (Σ w)²."""
        covariances = []
        for mean, products in zip(self.means, self.products, strict=True):
            centre = np.column_stack([np.eye(len(mean)), -mean])  # takes x and 1 to x - mean
            covariances.append(centre @ products @ centre.T / self.weight**2)
        return covariances

    def merge(self, other: TermSums) -> TermSums:
        """The sums over the rows of both."""
        return TermSums(self.sums + other.sums, self.products + other.products)


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
        names = [metric.name for metric in mean_metrics(n_classes)]
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

    def covariances(self) -> dict[str, Vector]:
        """The covariance between the methods of each metric that is a mean, (methods, methods), by its name."""
        return dict(zip(self.methods[0].means, self.terms.covariances(), strict=True))


# Passes over the rows.


def _sum_rows(rows: BlockedDataset, methods: Methods) -> Sums:
    """All sums in one pass; then, where an ECE needs finer cells, histograms of the confidence in further ones."""
    empty_histograms = [CalibrationHistogram(bits=REPORT_BITS)] * len(methods)
    predict = Predictor(methods, rows.input == "probabilities")
    has_classes = rows.n_classes <= details.MOST_CLASSES
    count = partial(count_block, predict=predict, empty_histograms=empty_histograms, has_classes=has_classes)
    total: Sums = rows.reduce(Pass(count, Counts.merge, Counts.finish), raised=False)
    histograms = [of_method.histogram for of_method in total.methods]
    finer = ConfidenceHistograms(histograms).finer
    if not finer:
        return total

    def one_pass(empty: Sequence[CalibrationHistogram]) -> ConfidenceHistograms:
        count = partial(count_confidence, predict=predict, empty_histograms=empty)
        counted: ConfidenceHistograms = rows.reduce(Pass(count, ConfidenceHistograms.merge), raised=False)
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
    sums = np.zeros((len(metrics), n_methods + 1))
    products = np.zeros((len(metrics), n_methods + 1, n_methods + 1))
    for part, predicted in predict.parts(block):
        group_names, group_numbers = details.numbered(part.groups)
        for counts, of_method in zip(methods, predicted, strict=True):
            counts.count(of_method.rows, group_names, group_numbers)
        weight = part.weights
        ones = np.ones(len(weight))
        terms = np.array([
            [*(metric.terms(of_method.of(metric)) for of_method in predicted if metric.terms), ones]
            for metric in metrics
        ])  # fmt: skip
        sums += terms @ weight
        products += (terms * weight**2) @ terms.transpose(0, 2, 1)
    return Counts(methods, TermSums(sums, products))


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


def cross_products(block: Block, predict: Predictor, influences: Sequence[MetricInfluences]) -> Vector:
    """Σ w² of the products of influences, (metrics, methods, methods): their covariances but for the weight."""
    n_methods = len(predict.methods)
    total = np.zeros((len(influences), n_methods, n_methods))
    for part, predicted in predict.parts(block):
        for i, (metric, of_methods) in enumerate(influences):
            pairs = zip(of_methods, predicted, strict=True)
            weighted = np.array([influence(of_method.of(metric)) for influence, of_method in pairs]) * part.weights
            total[i] += weighted @ weighted.T
    return total


# From sums to metrics and their intervals.


def _measure(rows: BlockedDataset, methods: Methods, total: Sums) -> dict[str, list[StreamedMetric]]:
    """Every reported metric of every method, by its name; influences take one more pass."""
    covariances = total.covariances()
    measured: dict[str, list[StreamedMetric]] = {}
    influences: list[MetricInfluences] = []
    for metric in (*reported("with interval", rows.n_classes), *reported("value", rows.n_classes)):
        if metric.name in covariances:
            measured[metric.name] = [StreamedMetric(of_method.means[metric.name]) for of_method in total.methods]
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
        count = partial(cross_products, predict=predict, influences=tuple(influences))
        products = rows.reduce(Pass(count, np.add), raised=False) / total.terms.weight**2
        for (metric, _), of_metric in zip(influences, products, strict=True):
            covariances[metric.name] = of_metric
    for name, covariance in covariances.items():
        measured[name] = _with_intervals(measured[name], covariance, METRICS[name].range)
    return measured


def _with_intervals(
    values: list[StreamedMetric], covariance: Vector, limits: tuple[float, float]
) -> list[StreamedMetric]:
    """The values of one metric for all methods, with summaries of this covariance.

    The summary of a method needs influences of rows, of which only products matter: with the covariance V Λ Vᵀ, the
    rows of V √Λ have the same products.
    """
    eigenvalues, eigenvectors = np.linalg.eigh(covariance)
    root = eigenvectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    return [
        value._replace(summary=InfluenceSummary(value.value, influence, limits))
        for value, influence in zip(values, root, strict=True)
    ]


def _result(sums: MethodSums, measured: dict[str, StreamedMetric], weight: float, seconds: float) -> Result:
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
        histogram=Histogram(details.EDGES.tolist(), sums.calibration.right, sums.calibration.wrong),
        seconds=seconds,
        details=partial(_details_of, sums, weight),
    )


def _details_of(sums: MethodSums, weight: float, level: float) -> Details:
    """Classes, groups and decisions."""
    return Details(
        classes=[
            details.class_row(sums.class_counts, label, of_class.ece) for label, of_class in enumerate(sums.classes)
        ],
        groups=details.measure_groups(sums.groups.groups(), level, SEED),
        decisions=details.decision_table(sums.decisions / weight),
    )
