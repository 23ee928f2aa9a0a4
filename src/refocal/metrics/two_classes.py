"""Metrics of two classes: the mean probability against the rate, skill against the rate alone, AUC, average precision.

Their intervals come from influences: how much one row moves the metric (Hampel 1974; for the AUC that is DeLong's).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from refocal._arrays import Vector, without_warnings
from refocal._validation import IgnoreIndex
from refocal.errors import LabelError, ShapeError
from refocal.metrics._inputs import Rows, mean, read_log_probabilities, read_probabilities
from refocal.metrics._resampling import base_weight
from refocal.metrics.intervals import Interval, PairedDifference, normal_difference, normal_interval
from refocal.metrics.record import Metric, mean_metric
from refocal.metrics.scores import brier_terms, log_loss_terms

__all__ = ["average_precision", "brier_skill", "log_loss_skill", "mean_bias", "roc_auc"]


@dataclass(frozen=True, eq=False)
class InfluenceSummary:
    """A metric with the influence of each row on it, weights included: the error is that of their sum."""

    value: float
    influence: Vector
    limits: tuple[float, float]

    def interval(self, *, level: float = 0.95) -> Interval:
        """By the normal approximation."""
        return normal_interval(self.value, float(np.linalg.norm(self.influence)), level, self.limits)

    def minus(self, other: InfluenceSummary, *, level: float = 0.95) -> PairedDifference:
        """The difference on the same rows."""
        error = float(np.linalg.norm(self.influence - other.influence))
        return normal_difference(self.value, other.value, error, level)


def mean_bias(y_true: Any, probabilities: Any, *, sample_weight: Any = None, ignore_index: IgnoreIndex = None) -> float:
    """Mean probability of class 1 less its rate, of two classes: above 0 the model expects too many.

    >>> mean_bias([0, 0, 0, 1], [0.5, 0.25, 0.5, 0.75])
    0.25
    """
    rows = _two(y_true, probabilities, sample_weight, ignore_index, "mean_bias", both=False)
    return mean(bias_terms(rows), rows.weight)


def bias_terms(rows: Rows) -> Vector:
    """Probability less outcome, row by row."""
    p, happened = rows.event(1)
    return p - happened


def log_loss_skill(
    y_true: Any, log_probabilities: Any, *, sample_weight: Any = None, ignore_index: IgnoreIndex = None
) -> float:
    """1 less the log-loss over that of the rate alone: 1 is perfect, 0 no better than always saying the rate.

    >>> p = np.array([0.2, 0.2, 0.8, 0.8])
    >>> round(log_loss_skill([0, 0, 1, 1], np.log(np.stack([1 - p, p], axis=1))), 3)
    0.678
    """
    return _of_logs(_two(y_true, log_probabilities, sample_weight, ignore_index, "log_loss_skill", logs=True))


def brier_skill(
    y_true: Any, probabilities: Any, *, sample_weight: Any = None, ignore_index: IgnoreIndex = None
) -> float:
    """1 less the Brier score over that of the rate alone: 1 is perfect, 0 no better than always saying the rate.

    >>> brier_skill([0, 0, 1, 1], [0.25, 0.25, 0.75, 0.75])
    0.75
    """
    return _of_squares(_two(y_true, probabilities, sample_weight, ignore_index, "brier_skill"))


def roc_auc(y_true: Any, probabilities: Any, *, sample_weight: Any = None, ignore_index: IgnoreIndex = None) -> float:
    """Area under the ROC curve: how often a row of class 1 has a higher probability than one of class 0, ties by half.

    >>> roc_auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    0.75
    """
    return _auc(_two(y_true, probabilities, sample_weight, ignore_index, "roc_auc"))[0]


def average_precision(
    y_true: Any, probabilities: Any, *, sample_weight: Any = None, ignore_index: IgnoreIndex = None
) -> float:
    """Mean, over the rows of class 1, of the share of class 1 among the rows with at least their probability.

    >>> round(average_precision([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]), 4)
    0.8333
    """
    return _precision(_two(y_true, probabilities, sample_weight, ignore_index, "average_precision"))[0]


def _two(
    y_true: Any,
    values: Any,
    sample_weight: Any,
    ignore_index: IgnoreIndex,
    function: str,
    *,
    logs: bool = False,
    both: bool = True,
) -> Rows:
    """Checked rows of two classes, which both occur where `both` asks for it."""
    read = read_log_probabilities if logs else read_probabilities
    rows = read(y_true, values, sample_weight, function, ignore_index)
    if rows.n_classes != 2:
        argument = "log_probabilities" if logs else "probabilities"
        raise ShapeError(argument, function, expected="of two classes", got=f"{rows.n_classes} classes")
    if both and not 0.0 < _rate(rows) < 1.0:
        expected = "of both classes, with weight"
        raise LabelError("y_true", function, expected=expected, got=f"a rate of class 1 of {_rate(rows):g}")
    return rows


def _rate(rows: Rows) -> float:
    return mean((rows.labels == 1).astype(np.float64), rows.weight)


def _skill(rows: Rows, loss: Vector, of_rate: float, slope: float) -> tuple[float, Vector]:
    """1 - mean loss / loss of the rate, and its influences; `slope` is the derivative of the latter in the rate."""
    if of_rate <= 0.0:
        return math.nan, np.zeros_like(loss)
    average = mean(loss, rows.weight)
    moved = -(loss - average) / of_rate + average / of_rate**2 * slope * ((rows.labels == 1) - _rate(rows))
    return 1.0 - average / of_rate, moved


def _log_skill(rows: Rows) -> tuple[float, Vector]:
    rate = _rate(rows)
    if not 0.0 < rate < 1.0:
        return math.nan, np.zeros(len(rows.labels))
    entropy = -rate * math.log(rate) - (1.0 - rate) * math.log1p(-rate)
    return _skill(rows, log_loss_terms(rows), entropy, math.log((1.0 - rate) / rate))


def _square_skill(rows: Rows) -> tuple[float, Vector]:
    rate = _rate(rows)
    return _skill(rows, brier_terms(rows), rate * (1.0 - rate), 1.0 - 2.0 * rate)


def _of_logs(rows: Rows) -> float:
    return _log_skill(rows)[0]


def _of_squares(rows: Rows) -> float:
    return _square_skill(rows)[0]


@dataclass(frozen=True)
class _Ranked:
    """The distinct probabilities, ascending: the weight of each class at them, and where each row's is."""

    ones: Vector
    zeros: Vector
    place: Any
    happened: Vector

    @classmethod
    def of(cls, rows: Rows) -> _Ranked:
        p, happened = rows.event(1)
        values, place = np.unique(p, return_inverse=True)
        weight, n = base_weight(rows), len(values)
        ones: Vector = np.bincount(place, weight * happened, n).astype(np.float64)
        zeros: Vector = np.bincount(place, weight * ~happened, n).astype(np.float64)
        return cls(ones, zeros, place, happened.astype(np.float64))


@without_warnings
def _auc(rows: Rows) -> tuple[float, Vector]:
    """The area and its influences: the share of the other class that a row is on the right side of."""
    ranked = _Ranked.of(rows)
    n_ones, n_zeros = ranked.ones.sum(), ranked.zeros.sum()
    if n_ones == 0.0 or n_zeros == 0.0:
        return math.nan, np.zeros(len(rows.labels))
    zeros_below = (np.cumsum(ranked.zeros) - 0.5 * ranked.zeros) / n_zeros
    ones_above = 1.0 - (np.cumsum(ranked.ones) - 0.5 * ranked.ones) / n_ones
    value = float(ranked.ones @ zeros_below / n_ones)
    total = n_ones + n_zeros
    of_one, of_zero = (zeros_below - value) * total / n_ones, (ones_above - value) * total / n_zeros
    return value, np.where(ranked.happened > 0, of_one[ranked.place], of_zero[ranked.place])


@without_warnings
def _precision(rows: Rows) -> tuple[float, Vector]:
    """The average precision U/π with U = E[y A(s)/B(s)], A and B the weights of class 1 and of all rows from s on."""
    ranked = _Ranked.of(rows)
    total, n_ones = float(ranked.ones.sum() + ranked.zeros.sum()), float(ranked.ones.sum())
    if n_ones == 0.0 or n_ones == total:
        return math.nan, np.zeros(len(rows.labels))
    ones = np.cumsum(ranked.ones[::-1])[::-1] / total
    all_rows = np.cumsum((ranked.ones + ranked.zeros)[::-1])[::-1] / total
    precision = np.divide(ones, all_rows, out=np.zeros_like(ones), where=all_rows > 0.0)
    rate = n_ones / total
    value = float(ranked.ones @ precision) / n_ones
    # A row also moves the precision at every threshold below its own probability.
    at = np.divide(ranked.ones / total, all_rows, out=np.zeros_like(ones), where=all_rows > 0.0)
    count, weighted = np.cumsum(at)[ranked.place], np.cumsum(at * precision)[ranked.place]
    y = ranked.happened
    moved = y * precision[ranked.place] - value * rate + y * count - weighted
    return value, (moved - value * (y - rate)) / rate


def _summary(parts: Callable[[Rows], tuple[float, Vector]], limits: tuple[float, float]) -> Callable[..., Any]:
    def summary(rows: Rows) -> InfluenceSummary:
        value, moved = parts(rows)
        weight = base_weight(rows)
        return InfluenceSummary(value, moved * weight / weight.sum(), limits)

    return summary


SKILL = {"range": (-math.inf, 1.0), "unit": "%", "lower_is_better": False, "objective": False, "two_classes": True}
AREA = {"lower_is_better": False, "objective": False, "two_classes": True, "shown": "with interval"}

METRICS = (
    mean_metric(
        "mean_bias",
        mean_bias,
        "mean p − rate",
        bias_terms,
        unit="%",
        range=(-1.0, 1.0),
        shown="with interval",
        objective=False,
        two_classes=True,
        signed=True,
    ),
    Metric(
        "log_loss_skill",
        log_loss_skill,
        "log-loss skill",
        _of_logs,
        summary=_summary(_log_skill, (-math.inf, 1.0)),
        takes_logs=True,
        shown="with interval",
        **SKILL,  # type: ignore[arg-type]
    ),
    Metric(
        "brier_skill",
        brier_skill,
        "Brier skill",
        _of_squares,
        summary=_summary(_square_skill, (-math.inf, 1.0)),
        shown="with interval",
        **SKILL,  # type: ignore[arg-type]
    ),
    Metric("roc_auc", roc_auc, "AUC", lambda rows: _auc(rows)[0], summary=_summary(_auc, (0.0, 1.0)), **AREA),  # type: ignore[arg-type]
    Metric(
        "average_precision",
        average_precision,
        "average precision",
        lambda rows: _precision(rows)[0],
        summary=_summary(_precision, (0.0, 1.0)),
        **AREA,  # type: ignore[arg-type]
    ),
)
