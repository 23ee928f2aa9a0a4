"""Results of methods on rows in blocks, in a few passes over the rows and constant memory."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from refocal._arrays import Vector
from refocal.calibrators import Calibrator
from refocal.engine import BlockedDataset, Pass
from refocal.engine.scoring import ECE_BOUND, MAX_REFINEMENTS, REPORT_BITS
from refocal.errors import DataError, ParameterError
from refocal.evaluate._block_sums import (
    Moments,
    Predictor,
    PredictorMeasures,
    count_block,
    cross_products,
    finish_sums,
    join_sums,
    mean_metrics,
    with_finer,
)
from refocal.evaluate._failures import Failures
from refocal.evaluate._groups import measure_groups, warn_of_groups
from refocal.evaluate._provenance import run_of
from refocal.evaluate._results import EDGES, MOST_CLASSES, N_BINS, Progress, Result, Results, banded, reported
from refocal.evaluate.evaluation import Histogram
from refocal.metrics import CalibrationHistogram
from refocal.metrics.intervals import InfluenceSummary
from refocal.metrics.record import Metric, StreamedMetric
from refocal.metrics.reliability import bins_of_curve

# Of the draws that say what chance does to the ECE of a group.
SEED = 0


def measure_blocks(
    rows: BlockedDataset,
    calibrators: Mapping[str, Calibrator | None],
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
    rows.watch = lambda done, total: report(done, total or 0, "measuring")
    for name, calibrator in calibrators.items():
        if calibrator is not None:
            _check_input(name, calibrator, rows.input)
    start = time.perf_counter()
    if rows.input == "probabilities":  # zeros count as they do in memory; each calibrator has a floor of its own
        rows.floor = math.log(np.finfo(np.float64).eps)
    rows.start()
    predictors = tuple(map(Predictor.of, calibrators.values()))
    found = _measure(rows, predictors)
    for name, calibrator in calibrators.items():
        warn_of_groups(name, calibrator, {column for column, _ in found.predictors[0].groups.names})
    measured = _metrics(rows, predictors, found)
    seconds = (time.perf_counter() - start) / len(calibrators)
    results = {
        name: _result_of(one, {metric: each[i] for metric, each in measured.items()}, level, seconds)
        for i, (name, one) in enumerate(zip(calibrators, found.predictors, strict=True))
    }
    counts = {"rows skipped": rows.n_skipped, "files skipped": len(rows.bad_parts)}
    skipped = {name: str(count) for name, count in counts.items() if count}
    return Results(results, rows.n_rows, run_of(None, None) | skipped)


def _check_input(name: str, calibrator: Calibrator, given: str) -> None:
    """Log-odds are logits of two classes; what a probability of 0 counts as differs from calibrator to calibrator."""
    if (calibrator.input == "probabilities") != (given == "probabilities"):
        expected = f"{calibrator.input}, as the calibrator {name!r} takes"
        raise DataError("test", "evaluate", expected=expected, got=given)
    if calibrator.row_axes == 2:
        expected = "of classes that exclude one another, for rows in blocks"
        raise ParameterError("calibrators", "evaluate", expected=expected, got=f"{name!r}, one of labels")


def _measure(rows: BlockedDataset, predictors: tuple[Predictor, ...]) -> Moments:
    """All sums in one pass, and in more where the ECE needs finer cells."""

    def measure(cells: tuple[CalibrationHistogram, ...], each_class: bool) -> Moments:
        count = partial(count_block, predictors=predictors, cells=cells, each_class=each_class)
        answer: Moments = rows.reduce(Pass(count, join_sums, partial(finish_sums, n_bins=N_BINS)))
        return answer

    cells = (CalibrationHistogram(bits=REPORT_BITS),) * len(predictors)
    found = measure(cells, rows.n_classes <= MOST_CLASSES)
    for _ in range(MAX_REFINEMENTS):
        if found.bound <= ECE_BOUND:
            break
        found = with_finer(found, measure(tuple(each.finer for each in found.predictors), False))
    return found


def _metrics(
    rows: BlockedDataset, predictors: tuple[Predictor, ...], found: Moments
) -> dict[str, list[StreamedMetric]]:
    """Every reported metric of every predictor, by its name; influences take one more pass."""
    measured: dict[str, list[StreamedMetric]] = {}
    moving = []
    means = {metric.name: k for k, metric in enumerate(mean_metrics(rows.n_classes))}
    for metric in (*reported("with interval", rows.n_classes), *reported("value", rows.n_classes)):
        if metric.name in means:
            k = means[metric.name]
            measured[metric.name] = _together(metric, found.means[k], found.covariance[k])
        elif metric.streamed is not None:
            known = [each for one in found.predictors if (each := metric.streamed(one.sums)) is not None]
            if len(known) < len(predictors):  # the sums lack what it needs
                continue
            measured[metric.name] = known
            influences = tuple(each.influence for each in known if each.influence is not None)
            if influences:
                moving.append((metric, influences))
    if moving:
        count = partial(cross_products, predictors=predictors, influences=tuple(moving))
        products = rows.reduce(Pass(count, np.add)) / found.weight**2
        for (metric, _), covariance in zip(moving, products, strict=True):
            known = measured[metric.name]
            joint = _together(metric, np.array([each.value for each in known]), covariance)
            measured[metric.name] = [a._replace(summary=b.summary) for a, b in zip(known, joint, strict=True)]
    return measured


def _together(metric: Metric, values: Vector, covariance: Vector) -> list[StreamedMetric]:
    """A metric of every predictor; the rows of a root of their covariance stand for influences of the same products."""
    squares, axes = np.linalg.eigh(covariance)
    root = axes * np.sqrt(np.maximum(squares, 0.0))
    pairs = zip(values.tolist(), root, strict=True)
    return [StreamedMetric(value, summary=InfluenceSummary(value, row, metric.range)) for value, row in pairs]


def _result_of(found: PredictorMeasures, measured: dict[str, StreamedMetric], level: float, seconds: float) -> Result:
    values = {name: each.value for name, each in measured.items() if each.summary is None}
    bounds = {f"{name}_bound": each.bound for name, each in measured.items() if each.bound is not None}
    calibration = found.sums.calibration
    return Result(
        summaries={name: each.summary for name, each in measured.items() if each.summary is not None},
        values=values | bounds,
        reliability=banded(bins_of_curve(calibration.curve), level),
        histogram=Histogram(EDGES.tolist(), calibration.right, calibration.wrong),
        classes=lambda: found.classes,
        seconds=seconds,
        decisions=found.decisions,
        groups=lambda: measure_groups(found.groups.groups(SEED), level),
    )
