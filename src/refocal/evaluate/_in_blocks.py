"""Results of methods on rows in blocks, in a few passes over the rows and constant memory, from sums that add up.

The confidence and each class's probability have a histogram, with cells as fine as a fixed memory allows, so that
errors come with the bound that these leave. The smooth error is that of memory but for rounding: its sums on a grid
add up.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Vector, as_floating, row_blocks, to_numpy
from refocal.calibrators import Calibrator
from refocal.decide import at_or_above
from refocal.engine import Block, BlockedDataset, Pass
from refocal.engine.scoring import ECE_BOUND, MAX_REFINEMENTS, REPORT_BITS
from refocal.errors import DataError, ParameterError
from refocal.evaluate._groups import NO_GROUPS, GroupCounts, measure_groups, numbered
from refocal.evaluate._results import (
    BINS,
    DECISION_THRESHOLDS,
    EDGES,
    MOST_CLASSES,
    N_BINS,
    SEED,
    Details,
    Failures,
    Predicted,
    Progress,
    Result,
    Results,
    banded,
    class_row,
    count_classes,
    decision_table,
    log_proba_of,
    reported,
)
from refocal.evaluate.evaluation import ClassRow, DecisionTable, Histogram
from refocal.metrics import METRICS, CalibrationHistogram
from refocal.metrics._histogram_cells import Cells
from refocal.metrics._inputs import Rows
from refocal.metrics.intervals import InfluenceSummary
from refocal.metrics.record import BlockSums, Metric, StreamedMetric
from refocal.metrics.smooth import residuals_on_grid

# Cells of all histograms of classes together; one takes 88 bytes.
CELLS = 1 << 20
MOST_BITS = 12
# The number of probabilities held at a time, and the fewest columns of them.
ENTRIES, FEWEST_COLUMNS = 1 << 21, 8

Methods = tuple[Calibrator | None, ...]
"""Calibrators, and None for the model as it is."""


class MethodMeasures(NamedTuple):
    """The measures of one method; `finer` is an empty histogram of the confidence with a smaller error bound."""

    sums: BlockSums
    classes: list[ClassRow]
    decisions: DecisionTable
    groups: GroupCounts
    finer: CalibrationHistogram


class BlockMeasures(NamedTuple):
    """The measures from the sums: the weight of all rows, the covariances of means by their names, and each method."""

    weight: float
    covariance: dict[str, Vector]
    methods: list[MethodMeasures]


def measure_blocks(
    rows: BlockedDataset,
    methods: Mapping[str, Calibrator | None],
    report: Progress,
    failures: Failures,
    *,
    level: float,
    **refused: Any,
) -> Results:
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
    if rows.input == "probabilities":  # zeros count as they do in memory; each calibrator has a floor of its own
        rows.floor = math.log(np.finfo(np.float64).eps)
    try:
        rows.start()
        found = _measure(rows, tuple(methods.values()))
        measured = _metrics(rows, tuple(methods.values()), found)
    finally:
        rows.watch = watch
    seconds = (time.perf_counter() - start) / len(methods)
    results = {
        name: _result_of(one, {metric: each[i] for metric, each in measured.items()}, level, seconds)
        for i, (name, one) in enumerate(zip(methods, found.methods, strict=True))
    }
    counts = {"rows skipped": rows.n_skipped, "files skipped": len(rows.bad_parts)}
    skipped = {name: str(count) for name, count in counts.items() if count}
    columns = list(dict(found.methods[0].groups.names))
    return Results(results, rows.n_rows, columns, BINS | skipped)


def _measure(rows: BlockedDataset, methods: Methods) -> BlockMeasures:
    """All sums in one pass, and in more where the ECE needs finer cells."""

    def measure(cells: tuple[CalibrationHistogram, ...], each_class: bool) -> BlockMeasures:
        count = partial(count_block, methods=methods, cells=cells, each_class=each_class)
        answer: BlockMeasures = rows.reduce(Pass(count, join_sums, finish_sums))
        return answer

    found = measure((CalibrationHistogram(bits=REPORT_BITS),) * len(methods), rows.n_classes <= MOST_CLASSES)
    for _ in range(MAX_REFINEMENTS):
        if max(each.sums.calibration.error_bound for each in found.methods) <= ECE_BOUND:
            break
        again = measure(tuple(each.finer for each in found.methods), False)
        for i, (known, exact) in enumerate(zip(found.methods, again.methods, strict=True)):
            sums = known.sums._replace(calibration=exact.sums.calibration, histogram=exact.sums.histogram)
            found.methods[i] = known._replace(sums=sums, finer=exact.finer)
    return found


def _metrics(rows: BlockedDataset, methods: Methods, found: BlockMeasures) -> dict[str, list[StreamedMetric]]:
    """Every reported metric of every method, by its name; influences take one more pass."""
    measured: dict[str, list[StreamedMetric]] = {}
    covariance, moving = dict(found.covariance), []
    for metric in (*reported("with interval", rows.n_classes), *reported("value", rows.n_classes)):
        if metric.name in covariance:
            measured[metric.name] = [StreamedMetric(each.sums.means[metric.name]) for each in found.methods]
        elif metric.streamed is not None:
            answers = [metric.streamed(one.sums) for one in found.methods]
            known = [each for each in answers if each is not None and not math.isnan(each.value)]
            if len(known) < len(methods):  # the sums lack what it needs
                continue
            measured[metric.name] = known
            influences = tuple(each.influence for each in known if each.influence is not None)
            if influences:
                moving.append((metric, influences))
    if moving:
        count = partial(cross_products, methods=methods, influences=tuple(moving))
        products = rows.reduce(Pass(count, np.add)) / found.weight**2
        covariance |= {metric.name: of_metric for (metric, _), of_metric in zip(moving, products, strict=True)}
    for name, of_metric in covariance.items():
        # The rows of a root of the covariance stand for influences of the same products.
        squares, axes = np.linalg.eigh(of_metric)
        pairs = zip(measured[name], axes * np.sqrt(np.maximum(squares, 0.0)), strict=True)
        limits = METRICS[name].range
        measured[name] = [one._replace(summary=InfluenceSummary(one.value, row, limits)) for one, row in pairs]
    return measured


def _result_of(found: MethodMeasures, measured: dict[str, StreamedMetric], level: float, seconds: float) -> Result:
    values = {name: each.value for name, each in measured.items() if each.summary is None}
    bounds = {f"{name}_bound": each.bound for name, each in measured.items() if each.bound is not None}
    calibration = found.sums.calibration
    return Result(
        summaries={name: each.summary for name, each in measured.items() if each.summary is not None},
        values=values | bounds,
        reliability=banded(found.sums.bins, level),
        histogram=Histogram(EDGES.tolist(), calibration.right, calibration.wrong),
        seconds=seconds,
        details=lambda: Details(found.classes, measure_groups(found.groups.groups(), level, SEED), found.decisions),
    )


@dataclass
class MethodSums:
    """Sums over rows for one method."""

    confidence: CalibrationHistogram
    classes: list[CalibrationHistogram]
    groups: GroupCounts = NO_GROUPS
    counts: Any = 0.0
    """What `count_classes` counts."""
    residuals: Any = 0.0
    decided: Any = 0.0
    """What `at_or_above` sums for the table of decisions."""


@dataclass
class Sums:
    """Sums over rows: those of each method, and of the terms of means, with products for their covariances.

    Of k methods, with 1 as the last term, `sums` is (means, k + 1); `products`, of weight w², is (means, k + 1, k + 1).
    """

    methods: list[MethodSums]
    sums: Any = 0.0
    products: Any = 0.0


def mean_metrics(n_classes: int) -> list[Metric]:
    """The reported metrics that are means of terms."""
    return [metric for metric in reported("with interval", n_classes) if metric.terms is not None]


def count_block(
    block: Block, methods: Methods, cells: tuple[CalibrationHistogram, ...], each_class: bool = True
) -> Sums:
    """The sums of a block for each method; `cells` are empty histograms of the confidence, one for each of them."""
    n_classes = block.n_classes
    bits, n_histograms = class_bits(n_classes * len(cells)), n_classes if each_class else 0
    empty = [[CalibrationHistogram(bits=bits) for _ in range(n_histograms)] for _ in cells]
    total = Sums([MethodSums(each.fresh(), classes) for each, classes in zip(cells, empty, strict=True)])
    names, numbers = numbered(block.groups)
    for part, found in predicted(block, methods):
        for (rows, _), sums in zip(found, total.methods, strict=True):
            (p, happened), weight = rows.confidence(), rows.weights
            sums.confidence.count_rows(p, happened, rows.weight)
            for histogram, event in zip(sums.classes, rows.events(range(n_histograms)), strict=True):
                histogram.count_rows(*event, rows.weight)
            if numbers:
                sums.groups = sums.groups.merge(GroupCounts.of(rows, names, [number[part] for number in numbers]))
            sums.counts += count_classes(rows)
            sums.residuals += residuals_on_grid(p, happened, rows.weight)
            sums.decided += np.stack(at_or_above(DECISION_THRESHOLDS, p, weight, weight * happened, weight * p))
        ones = np.ones(len(weight))
        terms = np.array([[*(m.terms(one.of(m)) for one in found if m.terms), ones] for m in mean_metrics(n_classes)])
        total.sums += terms @ weight
        total.products += (terms * weight**2) @ terms.transpose(0, 2, 1)
    return total


def predicted(block: Block, methods: Methods) -> Iterator[tuple[slice, list[Predicted]]]:
    """Yield some rows of a block at a time: their indices, and the predictions of each method."""
    for part in row_blocks(block.n_rows, max(block.n_classes, FEWEST_COLUMNS), entries=ENTRIES):
        logits, labels = as_floating(block.logits[part], "logits", "evaluate")[0], block.labels[part]
        weight = None if block.weight is None else block.weight[part]
        groups = {name: column[part] for name, column in block.groups.items()}
        found = []
        for calibrator in methods:
            log_p = np.asarray(to_numpy(log_proba_of(calibrator, logits, groups)))
            p = np.exp(log_p).astype(np.float64, copy=False)
            rows = Rows(labels, np.minimum(p, 1.0, out=p), weight).of_positive()
            found.append(Predicted(rows, Rows(labels, log_p, weight)))
        yield part, found


Influences = tuple[tuple[Metric, tuple[Callable[[Rows], Vector], ...]], ...]
"""Metrics, with the influence of each row on their values for every method."""


def cross_products(block: Block, methods: Methods, influences: Influences) -> Vector:
    """Σ w² of the products of influences, (metrics, methods, methods): their covariances but for the weight."""
    total = np.zeros((len(influences), len(methods), len(methods)))
    for _, found in predicted(block, methods):
        for i, (metric, of_methods) in enumerate(influences):
            moved = np.array([of(one.of(metric)) for of, one in zip(of_methods, found, strict=True)])
            moved *= found[0].rows.weights
            total[i] += moved @ moved.T
    return total


def join_sums(first: Any, second: Any) -> Any:
    """The sums over the rows of both: fields and entries one by one, numbers and arrays by addition."""
    if hasattr(first, "merge"):
        return first.merge(second)
    if isinstance(first, list):
        return list(map(join_sums, first, second))
    if isinstance(first, (Sums, MethodSums)):
        return type(first)(*map(join_sums, vars(first).values(), vars(second).values()))
    return first + second


def finish_sums(found: Sums) -> BlockMeasures:
    """Means, errors with their bounds due to cells, and a row for each class."""
    weight = float(found.sums[0, -1])
    means = found.sums[:, :-1] / weight
    names = [metric.name for metric in mean_metrics(found.methods[0].counts.shape[1])]
    covariance = {}
    for name, mean, products in zip(names, means, found.products, strict=True):
        about = np.column_stack([np.eye(len(mean)), -mean])  # each term less its mean
        covariance[name] = about @ products @ about.T / weight**2
    methods = []
    for each, own in zip(found.methods, means.T.tolist(), strict=True):
        classes = [histogram.compute(n_bins=N_BINS) for histogram in each.classes]
        calibration, residuals = each.confidence.compute(n_bins=N_BINS), each.residuals / weight
        sums = BlockSums(calibration, classes, residuals, each.confidence, dict(zip(names, own, strict=True)))
        rows = [class_row(each.counts, label, known.ece) for label, known in enumerate(classes)]
        decisions, finer = decision_table(each.decided / weight), each.confidence.refined(n_bins=N_BINS)
        methods.append(MethodMeasures(sums, rows, decisions, each.groups, finer))
    return BlockMeasures(weight, covariance, methods)


@cache
def class_bits(n_histograms: int) -> int:
    """The finest cells for this number of histograms."""
    return max((bits for bits in range(2, MOST_BITS + 1) if Cells(bits).size * n_histograms <= CELLS), default=1)
