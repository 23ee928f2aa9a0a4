"""Results of methods on test rows, in memory or in blocks.

Rows in memory have exact values, and intervals from the rows themselves. Rows in blocks are measured in a few passes
and constant memory, from sums that add up: the confidence and each class's probability have a histogram, with cells as
fine as a fixed memory allows, so that errors come with the bound that these leave. The smooth error is that of memory
but for rounding: its sums on a grid add up.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, Vector, as_floating, row_blocks, to_numpy
from refocal._groups import Groups
from refocal._validation import check_integer
from refocal.calibrators import Calibrator
from refocal.calibrators._classes import InOrder
from refocal.engine import Block, BlockedDataset, Pass
from refocal.engine.apply import probabilities_of
from refocal.engine.scoring import ECE_BOUND, MAX_REFINEMENTS, REPORT_BITS
from refocal.errors import DataError, ParameterError
from refocal.evaluate import _details as details
from refocal.evaluate._details import N_BINS, NO_GROUPS, GroupCounts
from refocal.evaluate.evaluation import Histogram
from refocal.maps.chain import Chain
from refocal.metrics import METRICS, CalibrationHistogram
from refocal.metrics.bins import Bins, bins_of, uniform_index
from refocal.metrics.bootstrap import MetricRows, summarise
from refocal.metrics.histogram_cells import finest_bits
from refocal.metrics.intervals import InfluenceSummary, Summary
from refocal.metrics.record import BlockSums, Metric, StreamedMetric
from refocal.metrics.resampling import forget_resamples
from refocal.metrics.smooth import residuals_on_grid
from refocal.rows import Predictions
from refocal.rows.predictions import probability_rows
from refocal.rows.scores import as_logits, model_log_probabilities

N_RESAMPLES = 500
SEED = 0
"""The seed of resamples, and of draws that show how far chance alone moves the ECE of a group."""
BINS = {"bins": f"{N_BINS} of equal mass"}
# Cells of all histograms of classes together; one takes 104 bytes.
CELLS = 1 << 20
MOST_BITS = 12
# The number of probabilities held at a time, and the fewest columns of them.
ENTRIES, FEWEST_COLUMNS = 1 << 21, 8

Progress = Callable[[float, int, str], None]
"""Called with the number of steps done, the number of all steps, and what comes next."""
Methods = Mapping[str, Calibrator | InOrder | None]
"""Calibrators by their names, and None for the model as it is."""


class Result(NamedTuple):
    """One method on the test rows; its probabilities are not kept: those of many methods would fill the memory."""

    summaries: dict[str, Summary]
    """The metrics with intervals, by their short names."""
    values: dict[str, float]
    bins: Bins
    """The confidence in bins of equal mass."""
    histogram: Histogram
    seconds: float
    details: Callable[[float], dict[str, Any]]
    """Classes, groups and decisions, with intervals of a level: only of the methods that are shown in detail."""


class Results(NamedTuple):
    """The results of all methods, the number of rows, the columns of their groups, and how they were measured."""

    of: dict[str, Result]
    n_rows: int
    groups: list[str]
    notes: dict[str, str]


class Predicted(NamedTuple):
    """Predictions for some rows: `rows` has their probabilities, for two classes those of class 1, `logs` the logs."""

    rows: Predictions
    logs: Predictions

    @classmethod
    def by(cls, log_p: NDArray[Any], rows: Predictions | Block) -> Predicted:
        """The predictions with these log-probabilities, for checked rows."""
        labels = to_numpy(rows.labels)
        logs = probability_rows(labels, log_p, rows.weight, "log-probabilities")
        return cls(probability_rows(labels, np.exp(log_p), rows.weight).of_positive(), logs)

    def of(self, metric: Metric) -> Predictions:
        """The rows or the logs, whichever the metric takes."""
        return self.logs if metric.takes_logs else self.rows


def reported(how: Literal["with interval", "value"], n_classes: int) -> list[Metric]:
    """The metrics that are reported this way: a value alone where the interval would take longer than all else."""
    return [metric for metric in METRICS.values() if metric.shown == how and metric.two_classes <= (n_classes == 2)]


def measure_rows(
    test: Predictions,
    methods: Methods,
    report: Progress,
    attempt: Callable[[str], AbstractContextManager[None]],
    *,
    n_resamples: int | None,
    seed: int | None,
    groups: Any,
) -> Results:
    """Every metric of every method on rows in memory; `attempt` may pass over the errors of a method."""
    test = test if groups is None else test.with_groups(groups)
    n_resamples = N_RESAMPLES if n_resamples is None else check_integer(n_resamples, "n_resamples", "evaluate")
    seed = SEED if seed is None else seed
    results: dict[str, Result] = {}
    for i, (name, calibrator) in enumerate(methods.items()):
        report(i, len(methods) + 1, f"measuring {name}")
        with attempt(name):
            results[name] = _result_of_rows(test, calibrator, n_resamples, seed)
    forget_resamples()
    notes = {"resamples": str(n_resamples), "seed": str(seed), **BINS}
    return Results(results, len(test), list(test.groups), notes)


def _result_of_rows(test: Predictions, calibrator: Calibrator | InOrder | None, n_resamples: int, seed: int) -> Result:
    """Every metric of one method."""
    start = time.perf_counter()
    predicted = Predicted.by(log_proba(test, calibrator), test)
    seconds = time.perf_counter() - start
    measured = []
    for metric in reported("with interval", test.n_classes):
        found = MetricRows.of(metric, predicted.of(metric))
        if metric.two_classes and np.isnan(found.value):  # only one of the classes occurs
            continue
        if not np.isfinite(found.value):
            expected = f"such that the {metric.label} is finite"
            raise DataError("test", "evaluate", expected=expected, got=repr(found.value))
        measured.append(found)
    summaries = summarise(measured, n_resamples, seed)
    rows, edges = predicted.rows, details.EDGES
    (confidence, correct), weight = rows.confidence(), rows.weights
    n_bins = len(edges) - 1
    place = uniform_index(confidence, n_bins)
    right, wrong = (np.bincount(place, weight * each, n_bins).tolist() for each in (correct, ~correct))
    return Result(
        summaries={each.record.name: summary for each, summary in zip(measured, summaries, strict=True)},
        values={m.name: float(m.measure(predicted.of(m))) for m in reported("value", test.n_classes)},
        bins=bins_of(rows, n_bins=N_BINS),
        histogram=Histogram(edges.tolist(), right, wrong),
        seconds=seconds,
        details=partial(_details_of_rows, test, calibrator, seed),
    )


def _details_of_rows(
    test: Predictions, calibrator: Calibrator | InOrder | None, seed: int, level: float
) -> dict[str, Any]:
    """Classes, groups and decisions, from new predictions."""
    rows = probability_rows(test.labels, np.exp(log_proba(test, calibrator)), test.weight)
    measured = rows.of_positive()
    return {
        "classes": details.classes_of(rows),
        "groups": details.measure_groups(details.groups_of(measured, test.groups), level, seed),
        "decisions": details.decision_table(details.sum_decisions(measured) / measured.weights.sum()),
    }


def log_proba(predictions: Predictions, calibrator: Calibrator | InOrder | None) -> NDArray[Any]:
    """Log-probabilities of a calibrator, or of the model itself, in float32 or float64.

    Predictions have been checked when they were made, and are not checked again.
    """
    of_probabilities = calibrator is not None and calibrator.input == "probabilities"
    if predictions.input == "probabilities":  # each calibrator of probabilities has a floor of its own for zeros
        to_logs = partial(as_logits, kind="probabilities") if of_probabilities else model_log_probabilities
        logits = to_logs(predictions.values)
    else:  # half precision would round the confidences that are to be measured
        logits = as_floating(predictions.values, "values", "evaluate")[0]
        logits = probabilities_of(Chain(), logits, log=True) if of_probabilities else logits
    return _log_proba_of(calibrator, logits, predictions.groups)


def _log_proba_of(calibrator: Calibrator | InOrder | None, logits: Array, groups: Groups) -> NDArray[Any]:
    """Log-probabilities of checked logits of these groups, by a calibrator or by the model itself."""
    if calibrator is None:
        log_p = probabilities_of(Chain(), logits, log=True)
    else:
        log_p = calibrator.log_proba_in_groups(logits, groups)
    return np.asarray(to_numpy(log_p))


@dataclass
class MethodSums(BlockSums):
    """Sums over rows for one method."""

    groups: GroupCounts = NO_GROUPS
    counts: Any = 0.0
    """What `count_classes` counts."""
    decided: Any = 0.0
    """What `sum_decisions` sums."""


@dataclass
class Sums:
    """Sums over rows: those of each method, and of the terms of means, with products for their covariances.

    Of k methods, with 1 as the last term, `sums` is (means, k + 1); `products`, of weight w², is (means, k + 1, k + 1).
    """

    methods: list[MethodSums]
    sums: Any = 0.0
    products: Any = 0.0

    @property
    def weight(self) -> float:
        """The weight of all rows."""
        return float(self.sums[0, -1])

    def covariances(self) -> list[Vector]:
        """Of each mean, between the methods."""
        found = []
        for mean, products in zip(self.sums[:, :-1] / self.weight, self.products, strict=True):
            about = np.column_stack([np.eye(len(mean)), -mean])  # each term less its mean
            found.append(about @ products @ about.T / self.weight**2)
        return found


def measure_blocks(rows: BlockedDataset, methods: Methods, report: Progress, **refused: Any) -> Results:
    """Every metric of every method; a method that fails raises, since one pass over the rows serves all."""
    for argument, value in refused.items():
        if value is not None:
            why = "have those that they were opened with: open_rows(…, groups=…)"
            expected = f"left out for rows in blocks, which {why if argument == 'groups' else 'are not resampled'}"
            got = type(value).__name__ if argument == "groups" else repr(value)
            raise ParameterError(argument, "evaluate", expected=expected, got=got)
    for name, calibrator in methods.items():
        # Log-odds are logits of two classes; what a probability of 0 counts as differs from calibrator to calibrator.
        if calibrator is not None and (calibrator.input == "probabilities") != (rows.input == "probabilities"):
            expected = f"{calibrator.input}, as the calibrator {name!r} takes"
            raise DataError("test", "evaluate", expected=expected, got=rows.input)
        if calibrator is not None and calibrator.row_axes == 2:
            expected = "of classes that exclude one another, for rows in blocks"
            raise ParameterError("calibrators", "evaluate", expected=expected, got=f"{name!r}, one of labels")
    watch, start = rows.watch, time.perf_counter()
    rows.watch = watch or (lambda done, total: report(done, total or 0, "measuring"))
    try:
        rows.start()
        found = _all_sums(rows, methods)
        measured = _metrics(rows, methods, found)
    finally:
        rows.watch = watch
    seconds = (time.perf_counter() - start) / len(methods)
    results = {
        name: _result_of_sums(sums, {metric: each[i] for metric, each in measured.items()}, found.weight, seconds)
        for i, (name, sums) in enumerate(zip(methods, found.methods, strict=True))
    }
    counts = {"rows skipped": rows.n_skipped, "files skipped": len(rows.bad_parts)}
    skipped = {name: str(count) for name, count in counts.items() if count}
    columns = list(dict(found.methods[0].groups.names))
    return Results(results, rows.n_rows, columns, BINS | skipped)


def _all_sums(rows: BlockedDataset, methods: Methods) -> Sums:
    """All sums in one pass, and in more where the ECE needs finer cells."""

    def sums(cells: list[CalibrationHistogram], each_class: bool) -> Sums:
        was_p = rows.input == "probabilities"
        count = partial(count_block, methods=methods, cells=cells, each_class=each_class, of_probabilities=was_p)
        answer: Sums = rows.reduce(Pass(count, join_sums, finish_sums), raised=False)
        return answer

    found = sums([CalibrationHistogram(bits=REPORT_BITS)] * len(methods), rows.n_classes <= details.MOST_CLASSES)
    for _ in range(MAX_REFINEMENTS):
        if max(each.calibration.error_bound for each in found.methods) <= ECE_BOUND:
            break
        again = sums([each.histogram.refined(n_bins=N_BINS) for each in found.methods], each_class=False)
        known = zip(found.methods, again.methods, strict=True)
        found.methods = [replace(each, histogram=finer.histogram) for each, finer in known]
    return found


def _metrics(rows: BlockedDataset, methods: Methods, found: Sums) -> dict[str, list[StreamedMetric]]:
    """Every reported metric of every method, by its name; influences take one more pass."""
    measured: dict[str, list[StreamedMetric]] = {}
    covariance, moving = dict(zip(found.methods[0].means, found.covariances(), strict=True)), []
    for metric in (*reported("with interval", rows.n_classes), *reported("value", rows.n_classes)):
        if metric.name in covariance:
            measured[metric.name] = [StreamedMetric(each.means[metric.name]) for each in found.methods]
        elif metric.streamed is not None:
            answers = [metric.streamed(one) for one in found.methods]
            known = [each for each in answers if each is not None and not math.isnan(each.value)]
            if len(known) < len(methods):  # the sums lack what it needs
                continue
            measured[metric.name] = known
            influences = tuple(each.influence for each in known if each.influence is not None)
            if influences:
                moving.append((metric, influences))
    if moving:
        was_p = rows.input == "probabilities"
        count = partial(cross_products, methods=methods, influences=tuple(moving), of_probabilities=was_p)
        products = rows.reduce(Pass(count, np.add), raised=False) / found.weight**2
        covariance |= {metric.name: of_metric for (metric, _), of_metric in zip(moving, products, strict=True)}
    for name, of_metric in covariance.items():
        # The rows of a root of the covariance stand for influences of the same products.
        squares, axes = np.linalg.eigh(of_metric)
        pairs = zip(measured[name], axes * np.sqrt(np.maximum(squares, 0.0)), strict=True)
        limits = METRICS[name].range
        measured[name] = [one._replace(summary=InfluenceSummary(one.value, row, limits)) for one, row in pairs]
    return measured


def _result_of_sums(sums: MethodSums, measured: dict[str, StreamedMetric], weight: float, seconds: float) -> Result:
    values = {name: each.value for name, each in measured.items() if each.summary is None}
    bounds = {f"{name}_bound": each.bound for name, each in measured.items() if each.bound is not None}
    return Result(
        summaries={name: each.summary for name, each in measured.items() if each.summary is not None},
        values=values | bounds,
        bins=sums.bins,
        histogram=Histogram(details.EDGES.tolist(), sums.calibration.right, sums.calibration.wrong),
        seconds=seconds,
        details=lambda level: {
            "classes": [details.class_row(sums.counts, label, each.ece) for label, each in enumerate(sums.classes)],
            "groups": details.measure_groups(sums.groups.groups(), level, SEED),
            "decisions": details.decision_table(sums.decided / weight),
        },
    )


def mean_metrics(n_classes: int) -> list[Metric]:
    """The reported metrics that are means of terms."""
    return [metric for metric in reported("with interval", n_classes) if metric.terms is not None]


def count_block(
    block: Block,
    methods: Methods,
    cells: list[CalibrationHistogram],
    each_class: bool = True,
    of_probabilities: bool = False,
) -> Sums:
    """The sums of a block for each method; `cells` are empty histograms of the confidence, one for each of them."""
    n_classes = block.n_classes
    bits = finest_bits(CELLS // (n_classes * len(cells)), MOST_BITS)
    n_histograms = n_classes if each_class else 0
    empty = [[CalibrationHistogram(bits=bits) for _ in range(n_histograms)] for _ in cells]
    total = Sums([MethodSums(each.fresh(), classes) for each, classes in zip(cells, empty, strict=True)])
    for part, found in predicted(block, methods, of_probabilities):
        weight, (names, numbers) = part.weights, details.numbered(part.groups)
        for (rows, _), sums in zip(found, total.methods, strict=True):
            p, happened = rows.confidence()
            sums.histogram.count_rows(p, happened, rows.weight)
            for histogram, event in zip(sums.classes, rows.events(range(n_histograms)), strict=True):
                histogram.count_rows(*event, rows.weight)
            if numbers:
                sums.groups = sums.groups.merge(GroupCounts.of(rows, names, numbers))
            sums.counts += details.count_classes(rows)
            sums.residuals += residuals_on_grid(p, happened, rows.weight)
            sums.decided += details.sum_decisions(rows)
        ones = np.ones(len(weight))
        terms = np.array([[*(m.terms(one.of(m)) for one in found if m.terms), ones] for m in mean_metrics(n_classes)])
        total.sums += terms @ weight
        total.products += (terms * weight**2) @ terms.transpose(0, 2, 1)
    return total


def predicted(block: Block, methods: Methods, of_probabilities: bool) -> Iterator[tuple[Block, list[Predicted]]]:
    """Yield some rows of a block at a time, and the predictions of each method; zeros count as they do in memory."""
    for some in row_blocks(block.n_rows, max(block.n_classes, FEWEST_COLUMNS), entries=ENTRIES):
        part = block.take(some)
        logits = as_floating(part.logits, "logits", "evaluate")[0]
        own = np.maximum(logits, np.log(np.finfo(logits.dtype).eps)) if of_probabilities else logits
        inputs = [(each, own if each is None else logits) for each in methods.values()]
        yield part, [Predicted.by(_log_proba_of(each, x, part.groups), part) for each, x in inputs]


Influences = tuple[tuple[Metric, tuple[Callable[[Predictions], Vector], ...]], ...]
"""Metrics, with the influence of each row on their values for every method."""


def cross_products(block: Block, methods: Methods, influences: Influences, of_probabilities: bool = False) -> Vector:
    """Σ w² of the products of influences, (metrics, methods, methods): their covariances but for the weight."""
    total = np.zeros((len(influences), len(methods), len(methods)))
    for part, found in predicted(block, methods, of_probabilities):
        for i, (metric, of_methods) in enumerate(influences):
            moved = np.array([of(one.of(metric)) for of, one in zip(of_methods, found, strict=True)]) * part.weights
            total[i] += moved @ moved.T
    return total


def join_sums(first: Any, second: Any) -> Any:
    """The sums over the rows of both: fields and entries one by one, numbers and arrays by addition."""
    if hasattr(first, "merge"):
        return first.merge(second)
    if isinstance(first, list):
        return list(map(join_sums, first, second))
    if isinstance(first, dict):
        return {name: join_sums(value, second[name]) for name, value in first.items()}
    if isinstance(first, Sums | MethodSums):
        return type(first)(**join_sums(vars(first), vars(second)))
    return first + second


def finish_sums(found: Sums) -> Sums:
    """Divide by the weight; the measures of classes take the place of their histograms, which are large to send."""
    names = [metric.name for metric in mean_metrics(found.methods[0].counts.shape[1])]
    for each, means in zip(found.methods, (found.sums[:, :-1] / found.weight).T.tolist(), strict=True):
        each.classes = [histogram.compute(n_bins=N_BINS) for histogram in each.classes]
        each.residuals, each.means = each.residuals / found.weight, dict(zip(names, means, strict=True))
    return found
