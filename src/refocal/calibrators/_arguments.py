"""Arguments of estimators: the axis of the classes, labels in a column, an array to fill, what rows exclude."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, as_array, namespace
from refocal.errors import LabelError, ParameterError, ShapeError, warn

if TYPE_CHECKING:
    from refocal.rows import Predictions


def classes_last(X: Array, class_axis: int, function: str) -> Array:
    """`X` with the classes moved to the last axis; unchanged if they are there already."""
    if class_axis == -1:
        return X
    values = as_array(X, "X", function)
    if not -values.ndim <= class_axis < values.ndim:
        raise ShapeError("class_axis", function, expected=f"an axis of {values.ndim}", got=str(class_axis))
    return namespace(values).moveaxis(values, class_axis, -1)


def filled(p: Array, out: NDArray[Any] | None) -> Array:
    """`out` filled with the probabilities; the probabilities themselves if `out` is None."""
    if out is None:
        return p
    out[...] = p
    return out


def refuse_class_axis(class_axis: int, function: str) -> None:
    """Classes lie on the last axis of rows that have groups."""
    if class_axis != -1:
        expected = "left out: a group is that of a row, so that classes lie on the last axis"
        raise ParameterError("class_axis", function, expected=expected, got=repr(class_axis))


def refuse_beside(own: str, function: str, **given: Any) -> None:
    """Labels, weights and groups are refused beside rows that have their own, as `own` says."""
    for argument, value in given.items():
        if value is not None:
            raise ParameterError(argument, function, expected=f"left out where {own}", got=type(value).__name__)


def check_several_classes(rows: Predictions, function: str) -> None:
    """Rows of a fit have labels of at least two classes."""
    if int(rows.labels.min()) == int(rows.labels.max()):
        got = f"only one class, {rows.classes[rows.labels[0]].item()!r}"
        raise LabelError("y", function, expected="of at least two classes", got=got)


def _shape(values: Any) -> tuple[int, ...]:
    """The shape of a list or an array; () for rows of different lengths, which the gate refuses."""
    if not isinstance(values, list):
        return getattr(values, "shape", ())
    try:
        return np.shape(values)
    except ValueError:
        return ()


def without_column_axis(labels: Any, scores: Any, kind: str) -> Any:
    """Labels (N, 1) of scores (N, C), or of one number for each row, (N,), as (N,), with scikit-learn's warning.

    Log-odds have the shape of their labels: those of shape (N, 1) have labels of this shape. A DataFrame of Dask is
    read with the scores, a few rows at a time.
    """
    shape = _shape(labels)
    of_scores = _shape(scores)
    is_column = len(shape) == 2 and shape[1] == 1
    is_like_scores = kind == "log-odds" and tuple(shape) == tuple(of_scores)
    is_read_later = hasattr(labels, "to_dask_array")
    if not is_column or is_like_scores or is_read_later or len(of_scores) not in (1, 2):
        return labels
    from sklearn.exceptions import DataConversionWarning

    warn(
        "A column-vector y was passed when a 1d array was expected. Please change the shape of y to (n_samples,).",
        DataConversionWarning,
    )
    return np.asarray(labels)[:, 0] if hasattr(labels, "columns") or isinstance(labels, list) else labels[:, 0]
