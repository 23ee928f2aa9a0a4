"""A metric of multi-label data: for each label, averaged, and over all labels together."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from refocal._arrays import Vector, as_array, to_numpy
from refocal._validation import IgnoreIndex, labelled_rows
from refocal.errors import ShapeError

__all__ = ["LabelScores", "by_label"]


@dataclass(frozen=True)
class LabelScores:
    """A metric for each label, NaN if none of its entries is known; their mean; and over all columns together.

    >>> from refocal.metrics import brier_score
    >>> by_label(brier_score, [[1, 0], [1, 1]], [[0.9, 0.5], [0.9, 0.5]]).labels.round(2)
    array([0.01, 0.25])
    """

    labels: Vector
    mean: float
    pooled: float


def by_label(
    metric: Callable[..., float],
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
    metric : callable
        Such as `brier_score` or `expected_calibration_error`; `log_loss` takes log-probabilities here too.
    y_true, probabilities : array (N, K)
        Ones and zeros, and the probability of each label.
    sample_weight : array (N,), optional
        The weights of the rows.
    ignore_index : int or several, optional
        The entry of `y_true` that marks an unknown label.

    Examples
    --------
    >>> from refocal.metrics import expected_calibration_error
    >>> found = by_label(expected_calibration_error, [[1, 0], [1, 1]], [[0.9, 0.5], [0.9, 0.5]], n_bins=1)
    >>> found.labels.round(2), round(found.mean, 2), round(found.pooled, 2)
    (array([0.1, 0. ]), 0.05, 0.05)
    """
    labels = to_numpy(as_array(y_true, "y_true", "by_label"))
    p = to_numpy(as_array(probabilities, "probabilities", "by_label"))
    if labels.ndim != 2 or labels.shape != p.shape:
        expected = "two-dimensional, of the shape of y_true: one column per label"
        raise ShapeError("probabilities", "by_label", expected=expected, got=f"shape {p.shape} for {labels.shape}")
    known = labelled_rows(labels, ignore_index, "y_true", "by_label")
    weight = None if sample_weight is None else np.broadcast_to(np.asarray(sample_weight)[:, None], labels.shape)

    def of(some: Any) -> float:
        weights = None if weight is None else weight[some]
        return float(metric(labels[some], p[some], sample_weight=weights, **options))

    columns = [np.nonzero(known & (np.arange(labels.shape[1]) == k)) for k in range(labels.shape[1])]
    values = np.array([of(some) if len(some[0]) else np.nan for some in columns])
    measured = values[np.isfinite(values)]
    return LabelScores(values, float(measured.mean()) if len(measured) else math.nan, of(np.nonzero(known)))
