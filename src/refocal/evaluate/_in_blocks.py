"""A look at methods on rows in blocks, in passes over the rows and a memory that does not grow with them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist

import numpy as np

from refocal._arrays import Vector
from refocal.calibrators import Calibrator
from refocal.engine import BlockedDataset, Pass
from refocal.engine.scoring import ECE_BOUND, MAX_REFINEMENTS, report_cells
from refocal.errors import DataError
from refocal.evaluate._block_sums import (
    Measured,
    count_block,
    finish_sums,
    join_sums,
    mean_metrics,
    with_finer,
)
from refocal.evaluate._look import (
    MOST_CLASSES,
    N_BINS,
    Look,
    Looks,
    Progress,
    histogram_of,
    metrics_with_interval,
    metrics_with_value,
)
from refocal.evaluate._provenance import run_of
from refocal.evaluate.evaluation import Reliability
from refocal.maps.steps import Chain
from refocal.metrics import CalibrationHistogram, Interval, PairedDifference, ReliabilityCurve
from refocal.metrics.intervals import Summary, normal_difference, normal_interval
from refocal.metrics.record import StreamedMetric


@dataclass(frozen=True)
class MeanSummary:
    """A mean of one predictor, among those of all predictors: their covariances are known."""

    values: Vector
    covariance: Vector
    predictor: int
    limits: tuple[float, float]

    @property
    def value(self) -> float:
        """The mean."""
        return float(self.values[self.predictor])

    def interval(self, *, level: float = 0.95) -> Interval:
        """By the normal approximation, which many rows justify."""
        return normal_interval(self.value, self._error({self.predictor: 1.0}), level, self.limits)

    def minus(self, other: MeanSummary, *, level: float = 0.95) -> PairedDifference:
        """The difference from another predictor."""
        apart = other.predictor != self.predictor
        error = self._error({self.predictor: 1.0, other.predictor: -1.0}) if apart else 0.0
        return normal_difference(self.value, other.value, error, level)

    def _error(self, factors: dict[int, float]) -> float:
        squared = sum(a * b * self.covariance[i, j] for i, a in factors.items() for j, b in factors.items())
        return math.sqrt(max(float(squared), 0.0))


def look_at_blocks(
    rows: BlockedDataset, calibrators: Mapping[str, Calibrator | None], level: float, progress: Progress | None
) -> Looks:
    """Every metric of every method."""
    if progress is not None:
        rows.watch = lambda done, total: progress(done, total or 0, "measuring")
    for name, calibrator in calibrators.items():
        if calibrator is not None and calibrator.input != rows.input:
            expected = f"{calibrator.input}, as the calibrator {name!r} takes"
            raise DataError("test", "evaluate", expected=expected, got=rows.input)
    start = time.perf_counter()
    if rows.input == "probabilities":  # zeros count as they do in memory; each calibrator has a floor of its own
        rows.floor = math.log(np.finfo(np.float64).eps)
    rows.start()
    found = _measure(rows, tuple(calibrators.values()))
    seconds = (time.perf_counter() - start) / len(calibrators)
    looks = {name: _look(found, i, rows.n_classes, level, seconds) for i, name in enumerate(calibrators)}
    counts = {"rows skipped": rows.n_skipped, "files skipped": len(rows.bad_parts)}
    skipped = {name: str(count) for name, count in counts.items() if count}
    return Looks(looks, rows.n_rows, run_of(None, None) | skipped)


def _measure(rows: BlockedDataset, calibrators: tuple[Calibrator | None, ...]) -> Measured:
    """All sums in one pass, and in more where the ECE needs finer cells."""
    chains = tuple(Chain() if each is None else each.chain_ for each in calibrators)

    def measure(cells: tuple[CalibrationHistogram, ...], each_class: bool) -> Measured:
        count = partial(count_block, chains=chains, cells=cells, each_class=each_class)
        answer: Measured = rows.reduce(Pass(count, join_sums, partial(finish_sums, n_bins=N_BINS)))
        return answer

    found = measure(report_cells(len(calibrators)), rows.n_classes <= MOST_CLASSES)
    for _ in range(MAX_REFINEMENTS):
        if found.bound <= ECE_BOUND:
            break
        found = with_finer(found, measure(found.finer, False))
    return found


def _look(found: Measured, i: int, n_classes: int, level: float, seconds: float) -> Look:
    known = found.predictors[i]
    means = {
        metric.name: MeanSummary(found.means[k], found.covariance[k], i, metric.range)
        for k, metric in enumerate(mean_metrics(n_classes))
    }
    summaries: dict[str, Summary] = {}
    values: dict[str, float] = {}
    for metric in (*metrics_with_interval(n_classes), *metrics_with_value(n_classes)):
        if metric.name in means:
            summaries[metric.name] = means[metric.name]
        elif metric.streamed is not None:
            streamed = metric.streamed(known)
            if streamed is not None:
                _note(metric.name, streamed, summaries, values)
    calibration = known.calibration
    return Look(
        summaries=summaries,
        values=values,
        reliability=_reliability(calibration.curve, level),
        histogram=histogram_of(calibration.right, calibration.wrong),
        classes=lambda: found.classes[i],
        seconds=seconds,
    )


def _note(name: str, found: StreamedMetric, summaries: dict[str, Summary], values: dict[str, float]) -> None:
    """Keep a metric, and how far it may be off where histograms leave that open."""
    if found.summary is None:
        values[name] = found.value
    else:
        summaries[name] = found.summary
    if found.bound is not None:
        values[f"{name}_bound"] = found.bound


def _reliability(curve: ReliabilityCurve, level: float) -> Reliability:
    """The curve, with the band in which a calibrated model's accuracies would lie."""
    confidence = np.array(curve.confidence)
    quantile = NormalDist().inv_cdf(0.5 + 0.5 * level)
    reach = quantile * np.sqrt(confidence * (1.0 - confidence) / np.array(curve.count))
    low, high = np.maximum(confidence - reach, 0.0), np.minimum(confidence + reach, 1.0)
    return Reliability(curve.count, curve.confidence, curve.accuracy, low.tolist(), high.tolist())
