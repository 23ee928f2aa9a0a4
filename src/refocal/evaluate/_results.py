"""What evaluations in memory and in blocks share: predictions of a method, and its results before all are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from refocal._arrays import Array, Vector
from refocal._groups import Groups
from refocal.calibrators import Calibrator
from refocal.calibrators.registry import NONE
from refocal.engine.apply import probabilities_of
from refocal.errors import RefocalError
from refocal.evaluate.evaluation import ClassDetail, ClassRow, DecisionTable, GroupRow, Histogram, Reliability
from refocal.maps.chain import Chain
from refocal.metrics import METRICS
from refocal.metrics._bins import Bins
from refocal.metrics._inputs import Rows
from refocal.metrics.intervals import Summary
from refocal.metrics.record import Metric

N_BINS = 15
SEED = 0
"""The seed of resamples, and of draws that show how far chance alone moves the ECE of a group."""
BINS = {"bins": f"{N_BINS} of equal mass"}
# The edges of the histogram of the confidence.
EDGES = np.linspace(0.0, 1.0, 21)
DECISION_THRESHOLDS = np.array([*(i / 100 for i in range(100)), 0.995, 0.999])
# The largest number of classes with a row of their own: the classes with the most rows, or none in blocks.
MOST_CLASSES = 1000


Progress = Callable[[float, int, str], None]
"""Called with the number of steps done, the number of all steps, and what comes next."""


class Details(NamedTuple):
    """What is kept of the uncalibrated model and of the method shown in detail."""

    classes: list[ClassRow]
    groups: list[GroupRow]
    decisions: DecisionTable


@dataclass(frozen=True)
class Result:
    """One method on the test rows; its probabilities are not kept: those of many methods would fill the memory."""

    summaries: dict[str, Summary]
    """The metrics with intervals, by their short names."""
    values: dict[str, float]
    reliability: Reliability
    histogram: Histogram
    seconds: float
    details: Callable[[], Details]


class Results(NamedTuple):
    """The results of all methods, the number of rows, the columns of their groups, and how they were measured."""

    of: dict[str, Result]
    n_rows: int
    groups: list[str]
    notes: dict[str, str]


@dataclass
class Failures:
    """The methods that failed, by their names, and why. The error of a method that is needed is raised.

    Needed are the uncalibrated model, the method shown in detail, and the last method that has not failed.
    """

    methods: Iterable[str]
    chosen: str | None
    reasons: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Record an error in one line and continue, unless the method is needed."""
        try:
            yield
        except Exception as error:
            if name in (NONE, self.chosen) or {*self.methods} - {NONE} - self.reasons.keys() == {name}:
                raise
            text = " ".join(str(error).split())
            self.reasons[name] = text if isinstance(error, RefocalError) else f"{type(error).__name__}: {text}"


class Predicted(NamedTuple):
    """Predictions for some rows: `rows` has their probabilities, for two classes those of class 1, `logs` the logs."""

    rows: Rows
    logs: Rows

    def of(self, metric: Metric) -> Rows:
        """The rows or the logs, whichever the metric takes."""
        return self.logs if metric.takes_logs else self.rows


def log_proba_of(calibrator: Calibrator | None, logits: Array, groups: Groups) -> Array:
    """Log-probabilities of checked logits of these groups, by a calibrator or by the model itself."""
    if calibrator is None:
        return probabilities_of(Chain(), logits, log=True)
    return calibrator.log_proba_in_groups(logits, groups)


def reported(how: Literal["with interval", "value"], n_classes: int) -> list[Metric]:
    """The metrics that are reported this way: a value alone where the interval would take longer than all else."""
    return [metric for metric in METRICS.values() if metric.shown == how and metric.two_classes <= (n_classes == 2)]


def count_classes(rows: Rows) -> Vector:
    """For each class the rows that have it and those predicted as it, and the latter's weight, hits and confidence."""
    top, correct, predicted = rows.top
    weight, n = rows.weights, rows.n_classes
    sums = [np.bincount(predicted, each, n) for each in (np.ones(len(top)), weight, weight * correct, weight * top)]
    return np.stack([np.bincount(rows.labels, minlength=n), *sums])


def class_row(counts: Vector, label: int, ece: float, detail: ClassDetail | None = None) -> ClassRow:
    """One class, from what `count_classes` counted."""
    n, predicted, weight, correct, confidence = counts[:, label].tolist()
    precision, mean = (correct / weight, confidence / weight) if weight > 0 else (None, None)
    return ClassRow(label, int(n), int(predicted), precision, mean, ece, detail)


def banded(bins: Bins, level: float) -> Reliability:
    """The curve of bins, with the band in which a calibrated model's accuracies would lie.

    The band has the quantiles of as many rows as the bin has, each right with the bin's mean confidence; with weights,
    of their effective number.
    """
    # SciPy loads when a comparison needs it, as everywhere.
    from scipy.special import bdtrik

    size, tails = np.maximum(np.round(bins.size), 1.0), np.array([[0.5 - 0.5 * level], [0.5 + 0.5 * level]])
    # A binomial quantile; where nothing can happen it is 0.
    low, high = np.where(bins.p > 0.0, np.ceil(bdtrik(tails, size, bins.p)) / size, 0.0)
    return Reliability(*(each.tolist() for each in (bins.count, bins.p, bins.rate, low, high)))


def decision_table(shares: Vector) -> DecisionTable:
    """What is decided from each threshold on: shares of the weight, of the sum of outcomes, of the sum of p."""
    return DecisionTable(DECISION_THRESHOLDS.tolist(), *([round(float(each), 6) for each in row] for row in shares))
