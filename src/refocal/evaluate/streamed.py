"""Rows in blocks and calibrators → Evaluation, in walks over the rows and a memory that does not grow with them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal.calibrators import Calibrator
from refocal.calibrators._fitted import Predictors
from refocal.calibrators.registry import title_of
from refocal.engine import Block, BlockedDataset, Pass
from refocal.engine.scoring import (
    ACCURACY,
    BRIER,
    LOG_LOSS,
    Measures,
    Tally,
    is_settled,
    join_tallies,
    measure,
    measures,
    report_cells,
    tally,
)
from refocal.errors import DataError, ShapeError
from refocal.evaluate._details import Detailed, Details, details, finished, join_details
from refocal.evaluate.evaluation import Histogram, Measured, Reliability
from refocal.maps.steps import Chain
from refocal.metrics import Interval, PairedDifference, ReliabilityCurve

Vector = NDArray[np.float64]

MEANS = {"log_loss": LOG_LOSS, "brier_score": BRIER, "accuracy": ACCURACY}


class StreamedLook:
    """Every method measured on rows in blocks; intervals by the normal approximation, which many rows justify."""

    def __init__(
        self, rows: BlockedDataset, calibrators: Mapping[str, Calibrator | None], n_bins: int, level: float
    ) -> None:
        _check_inputs(rows, calibrators)
        start = time.perf_counter()
        rows.start()
        if rows.input == "probabilities":  # zeros count as they do in memory; each calibrator has a floor of its own
            rows.floor = math.log(np.finfo(np.float64).eps)
        self.calibrators = dict(calibrators)
        self.names = list(calibrators)
        self.level = level
        self.n_rows, self.n_skipped = rows.n_rows, rows.n_skipped
        self.found, self.details = _walk(rows, tuple(calibrators.values()), n_bins)
        self._seconds = (time.perf_counter() - start) / len(calibrators)
        self._quantile = NormalDist().inv_cdf(0.5 + 0.5 * level)

    def value(self, name: str, measure: str) -> float:
        """One number."""
        i = self.names.index(name)
        if measure == "ece":
            return self.found.calibration[i].ece
        return float(self.found.means.values[MEANS[measure], i])

    def measured(self, name: str, against: str, none: str, described: dict[str, Any] | None) -> Measured:
        """What an evaluation says of one method."""
        i = self.names.index(name)
        calibration, detailed = self.found.calibration[i], self.details[i]
        keys = ("ece", *MEANS)
        edges = np.linspace(0.0, 1.0, len(calibration.right) + 1)
        return Measured(
            name=name,
            title=title_of(name, self.calibrators[name]),
            calibrator=described,
            measures={key: self._interval(name, key) for key in keys},
            values={
                **detailed.values,
                "max_calibration_error": calibration.largest_gap,
                "max_calibration_error_bound": calibration.largest_gap_bound,
                "ks_calibration_error": calibration.ks,
                "ks_calibration_error_bound": calibration.ks_bound,
                "ece_bound": calibration.error_bound,
            },
            against_none={key: self._difference(name, none, key) for key in keys},
            against_chosen={key: self._difference(name, against, key) for key in keys},
            reliability=_reliability(calibration.curve, self._quantile),
            histogram=Histogram(edges.tolist(), list(calibration.right), list(calibration.wrong)),
            classes=detailed.classes if name in (none, against) else None,
            fit_seconds=None,
            predict_seconds=self._seconds,
        )

    def _interval(self, name: str, key: str) -> Interval:
        value, error = self.value(name, key), math.sqrt(self._variance(name, name, key))
        low, high = value - self._quantile * error, value + self._quantile * error
        return Interval(value, max(low, 0.0), high, self.level, error, 0.0, 0)

    def _difference(self, name: str, other: str, key: str) -> PairedDifference:
        first, second = self.value(name, key), self.value(other, key)
        gap = first - second
        squared = sum(
            self._variance(a, b, key) * s for a, b, s in ((name, name, 1), (other, other, 1), (name, other, -2))
        )
        error = 0.0 if name == other else math.sqrt(max(squared, 0.0))
        p_value = 2.0 * NormalDist().cdf(-abs(gap) / error) if error > 0 else float(gap == 0.0)
        reach = self._quantile * error
        return PairedDifference(gap, gap - reach, gap + reach, self.level, p_value, first, second, 0)

    def _variance(self, name: str, other: str, key: str) -> float:
        """The covariance of a measure of two methods; of two ECEs it is not known, and 0 makes intervals wider."""
        i, j = self.names.index(name), self.names.index(other)
        if key != "ece":
            return max(float(self.found.means.covariance[MEANS[key], i, j]), 0.0 if i == j else -math.inf)
        return _ece_variance(self.found.calibration[i].curve) if i == j else 0.0


def _walk(
    rows: BlockedDataset, calibrators: tuple[Calibrator | None, ...], n_bins: int
) -> tuple[Measures, list[Detailed]]:
    """All measures in one walk, and in more where the ECE needs finer cells."""
    predict = Predictors(tuple(Chain() if each is None else each.chain_ for each in calibrators))
    count = partial(_counted, predict=predict, cells=report_cells(len(calibrators)))
    found, detailed = rows.reduce(Pass(count, _joined, partial(_finished, n_bins=n_bins)))
    if not is_settled(found):
        found = measure(rows, predict, n_bins, found.finer)
    return found, detailed


def _counted(block: Block, predict: Predictors, cells: Any) -> tuple[Tally, list[Details]]:
    return tally(block, predict, cells), details(block, predict.chains)


def _joined(first: tuple[Tally, list[Details]], second: tuple[Tally, list[Details]]) -> tuple[Tally, list[Details]]:
    return join_tallies(first[0], second[0]), join_details(first[1], second[1])


def _finished(found: tuple[Tally, list[Details]], n_bins: int) -> tuple[Measures, list[Detailed]]:
    return measures(found[0], n_bins), [finished(each, n_bins) for each in found[1]]


def _check_inputs(rows: BlockedDataset, calibrators: Mapping[str, Calibrator | None]) -> None:
    for name, calibrator in calibrators.items():
        if calibrator is None:
            continue
        if calibrator.n_features_in_ != rows.n_classes:
            expected = f"of {calibrator.n_features_in_} columns, as the calibrator {name!r} was fitted on"
            raise ShapeError("test", "evaluate", expected=expected, got=f"{rows.n_classes} columns")
        if calibrator.input != rows.input:
            expected = f"{calibrator.input}, as the calibrator {name!r} takes"
            raise DataError("test", "evaluate", expected=expected, got=rows.input)


def _ece_variance(curve: ReliabilityCurve) -> float:
    """Of a sum of |accuracy - confidence| over bins whose sides of the diagonal are sure: that of the accuracies."""
    weight, count, accuracy = (np.array(column) for column in (curve.weight, curve.count, curve.accuracy))
    share = weight / weight.sum()
    return float((share**2 * accuracy * (1.0 - accuracy) / count).sum())


def _reliability(curve: ReliabilityCurve, quantile: float) -> Reliability:
    """The curve, with the band in which a calibrated model's accuracies would lie."""
    confidence = np.array(curve.confidence)
    reach = quantile * np.sqrt(confidence * (1.0 - confidence) / np.array(curve.count))
    low, high = np.maximum(confidence - reach, 0.0), np.minimum(confidence + reach, 1.0)
    return Reliability(curve.count, curve.confidence, curve.accuracy, low.tolist(), high.tolist())
