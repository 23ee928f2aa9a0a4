"""A metric of multi-label data: for each label, averaged, and over all labels together."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from refocal._arrays import Vector, as_array, to_numpy
from refocal._validation import check_weight
from refocal.errors import LabelError, ShapeError
from refocal.metrics.inputs import read_log_probabilities, read_probabilities
from refocal.metrics.logistic_regression import NoValueError
from refocal.metrics.record import Metric
from refocal.metrics.records import as_metric, record_of_function
from refocal.rows.class_names import check_label_order
from refocal.rows.labels import IgnoreIndex
from refocal.rows.marks import labelled_rows
from refocal.rows.scores import column_names

__all__ = ["LabelScores", "by_label"]


@dataclass(frozen=True)
class LabelScores:
    """A metric for each label, NaN where its entries do not define it; their mean; and over all columns together.

    >>> from refocal.metrics import brier_score
    >>> by_label(brier_score, [[1, 0], [1, 1]], [[0.9, 0.5], [0.9, 0.5]]).labels.round(2)
    array([0.01, 0.25])
    """

    labels: Vector
    mean: float
    pooled: float


def by_label(
    metric: Callable[..., Any] | Metric | str,
    y_true: Any,
    probabilities: Any,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    **options: Any,
) -> LabelScores:
    """A metric of two classes for each column of (N, K) probabilities; options are passed on.

    Parameters
    ----------
    metric : callable, Metric or str
        Such as `brier_score`, its record or its name; `log_loss` takes log-probabilities here too, and of a metric with
        several parts the number counts that evaluations report. A function of your own needs the argument
        `sample_weight` only where there are weights.
    y_true, probabilities : array (N, K)
        Ones and zeros, and the probability of each label.
    sample_weight : array (N,), optional
        The weights of the rows. A label of whose entries none is known and has weight gets NaN, and so does one of
        which all are of one class where the metric needs both, as `roc_auc` does, or whose probabilities define none,
        as where they separate the classes that a slope is asked of; the mean leaves them out.
    ignore_index : int or several, optional
        The entry of `y_true` that marks an unknown label.

    Examples
    --------
    >>> from refocal.metrics import expected_calibration_error
    >>> found = by_label(expected_calibration_error, [[1, 0], [1, 1]], [[0.9, 0.5], [0.9, 0.5]], n_bins=1)
    >>> found.labels.round(2), round(found.mean, 2), round(found.pooled, 2)
    (array([0.1, 0. ]), 0.05, 0.05)
    """
    measure = _number_of(metric)
    check_label_order(column_names(probabilities), column_names(y_true), "y_true", "by_label")
    labels = to_numpy(as_array(y_true, "y_true", "by_label"))
    p = to_numpy(as_array(probabilities, "probabilities", "by_label"))
    if labels.ndim != 2 or labels.shape != p.shape:
        expected = "two-dimensional, of the shape of y_true: one column per label"
        raise ShapeError("probabilities", "by_label", expected=expected, got=f"shape {p.shape} for {labels.shape}")
    known = labelled_rows(labels, ignore_index, "y_true", "by_label")
    of_rows = None if sample_weight is None else check_weight(sample_weight, labels.shape[:1], "by_label")
    weight = None if of_rows is None else np.broadcast_to(of_rows[:, None], labels.shape)
    counted = known if weight is None else known & (weight > 0.0)

    def of(some: Any) -> float:
        present = np.unique(labels[some][counted[some]])
        if not len(present):
            return math.nan
        try:
            weights = {} if weight is None else {"sample_weight": weight[some]}
            return float(measure(labels[some], p[some], **weights, **options))
        except NoValueError:
            return math.nan
        except LabelError:
            if len(present) == 1 and present[0] in (0, 1):
                return math.nan
            raise

    columns = [np.nonzero(known & (np.arange(labels.shape[1]) == k)) for k in range(labels.shape[1])]
    values = np.array([of(some) for some in columns])
    measured = values[~np.isnan(values)]
    return LabelScores(values, float(measured.mean()) if len(measured) else math.nan, of(np.nonzero(known)))


def _number_of(metric: Callable[..., Any] | Metric | str) -> Callable[..., Any]:
    """A metric as a function of labels and probabilities that returns a number, also where it has several parts."""
    if callable(metric) and record_of_function(metric) is None:
        return metric  # of the caller's own
    return partial(_of_record, as_metric(metric, "by_label"))


def _of_record(record: Metric, y_true: Any, probabilities: Any, sample_weight: Any = None, **options: Any) -> float:
    """The number of a metric of this package, of one label."""
    read = read_log_probabilities if record.takes_logs else read_probabilities
    return record.measure(read(y_true, probabilities, sample_weight, "by_label", ignore_index=None), **options)
