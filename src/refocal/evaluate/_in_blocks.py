"""Results of methods on rows in blocks, in a few passes over the rows and constant memory."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from refocal.calibrators import Calibrator
from refocal.engine import BlockedDataset, Pass
from refocal.engine.scoring import ECE_BOUND, MAX_REFINEMENTS, REPORT_BITS
from refocal.errors import DataError, ParameterError
from refocal.evaluate._block_sums import (
    BlockMeasures,
    MethodMeasures,
    Methods,
    count_block,
    cross_products,
    finish_sums,
    join_sums,
)
from refocal.evaluate._failures import Failures
from refocal.evaluate._groups import measure_groups
from refocal.evaluate._results import BINS, EDGES, MOST_CLASSES, Details, Progress, Result, Results, banded, reported
from refocal.evaluate.evaluation import Histogram
from refocal.metrics import METRICS, CalibrationHistogram
from refocal.metrics.intervals import InfluenceSummary
from refocal.metrics.record import StreamedMetric

# Of the draws that say what chance does to the ECE of a group.
SEED = 0


def measure_blocks(
    rows: BlockedDataset,
    methods: Mapping[str, Calibrator | None],
    report: Progress,
    failures: Failures,
    *,
    level: float,
    **refused: Any,
) -> Results:
    """Every metric of every method; one that fails ends it, as the pass over the rows is one for all."""
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
    rows.watch = lambda done, total: report(done, total or 0, "measuring")
    start = time.perf_counter()
    if rows.input == "probabilities":  # zeros count as they do in memory; each calibrator has a floor of its own
        rows.floor = math.log(np.finfo(np.float64).eps)
    rows.start()
    found = _measure(rows, tuple(methods.values()))
    measured = _metrics(rows, tuple(methods.values()), found)
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
            known = [each for one in found.methods if (each := metric.streamed(one.sums)) is not None]
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
