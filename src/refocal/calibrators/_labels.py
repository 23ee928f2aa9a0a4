"""Labels of any kind as integers in the library of the logits, and the classes of the columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, indices_beside, namespace, take_label, to_numpy
from refocal._validation import IGNORED, check_label_range, read_labels
from refocal.errors import DataError, LabelError, Remedy, ShapeError, warn


def column_names(X: Any) -> NDArray[np.str_] | None:
    """The column names of a DataFrame, if all of them are text."""
    names = list(getattr(X, "columns", ()))
    return np.array(names, dtype=np.str_) if names and all(isinstance(name, str) for name in names) else None


def encode(y: Any, logits: Array, function: str, columns: NDArray[np.str_] | None = None) -> tuple[Array, NDArray[Any]]:
    """Labels as integers 0 … C-1 in the library of the logits, and the classes of the columns.

    Integers from 0 to C-1 are column numbers, and classes may be absent. Names are matched with the column names, else
    with the order of their categories, else in sorted order, in which case there must be C of them. Integers may be
    names too, such as -1 and 1, unless all those outside 0 … C-1 are values that usually mark unlabelled rows.
    """
    if y is None:
        raise LabelError("y", function, expected="given: requires y to be passed, but the target y is None", got="None")
    labels, categories = read_labels(y, "y", function)
    labels = _flat(labels, logits, function)
    xp, n_classes = namespace(labels), int(logits.shape[-1])
    is_number = categories is None and xp.isdtype(labels.dtype, "integral")
    if is_number and 0 <= int(xp.min(labels)) < int(xp.max(labels)) < n_classes:
        return indices_beside(logits, labels), np.arange(n_classes)
    values = to_numpy(labels)
    try:
        distinct = np.unique(values)
    except TypeError as error:
        kinds = " and ".join(sorted({type(value).__name__ for value in values.ravel()}))
        expected = "of one kind, all numbers or all text, and none missing"
        raise LabelError("y", function, expected=expected, got=f"labels of the types {kinds}") from error
    if len(distinct) < 2:
        got = f"only one class, {distinct.tolist()[0]!r}"
        raise LabelError("y", function, expected="of at least two classes", got=got)
    classes = _named_columns(distinct, n_classes, columns, categories)
    if classes is None:
        raise _misfit(distinct, n_classes, function)
    order = np.argsort(classes)
    return indices_beside(logits, order[np.searchsorted(classes[order], values)]), classes


def _flat(labels: Array, logits: Array, function: str) -> Array:
    """One label per row; a column vector is accepted with a warning, as in scikit-learn."""
    if labels.ndim == logits.ndim and labels.shape[-1] == 1 and logits.ndim == 2:
        from sklearn.exceptions import DataConversionWarning

        warn(
            "A column-vector y was passed when a 1d array was expected. Please change the shape of y to (n_samples,).",
            DataConversionWarning,
        )
        labels = labels[:, 0]
    if tuple(labels.shape) != tuple(logits.shape[:-1]):
        raise ShapeError(
            "y",
            function,
            expected=f"of shape {tuple(logits.shape[:-1])}, one label for each row of X{_one_hot_hint(labels, logits)}",
            got=f"shape {tuple(labels.shape)}",
        )
    return labels


def _named_columns(
    distinct: NDArray[Any],
    n_classes: int,
    columns: NDArray[np.str_] | None,
    categories: tuple[Any, ...] | None,
) -> NDArray[Any] | None:
    """The classes in the order of the columns; None if the labels do not determine it."""
    if columns is not None and distinct.dtype.kind == "U" and np.isin(distinct, columns).all():
        return columns
    if categories is not None:
        used = [category for category in categories if len(categories) == n_classes or category in distinct]
        if len(used) == n_classes:
            return np.array(used)
    if len(distinct) != n_classes or (distinct.dtype.kind in "iu" and _are_marks(distinct, n_classes)):
        return None
    return distinct


def _are_marks(distinct: NDArray[Any], n_classes: int) -> bool:
    """Whether some labels are column numbers and all others mark unlabelled rows; -1 and 1 are names."""
    outside = [label for label in distinct.tolist() if not 0 <= label < n_classes]
    return len(outside) < len(distinct) and set(outside) <= set(IGNORED) and distinct.tolist() != [-1, 1]


def _misfit(distinct: NDArray[Any], n_classes: int, function: str) -> LabelError:
    first, last = distinct.tolist()[0], distinct.tolist()[-1]
    if distinct.dtype.kind in "iu" and _are_marks(distinct, n_classes):
        check_label_range(first, last, n_classes, "y", function, Remedy.IGNORE_INDEX)
    return LabelError(
        "y",
        function,
        expected=f"of {n_classes} distinct classes, as X has columns, or integers from 0 to {n_classes - 1}",
        got=f"{len(distinct)} distinct labels from {first!r} to {last!r}",
    )


def _one_hot_hint(labels: Array, logits: Array) -> str:
    return "; of one-hot labels take the argmax first" if tuple(labels.shape) == tuple(logits.shape) else ""


def check_labels_possible(logits: Array, labels: Array, function: str) -> None:
    """Every label must have a finite logit."""
    xp = namespace(logits)
    impossible = to_numpy(take_label(logits, labels) == -xp.inf)
    if impossible.any():
        raise DataError(
            "X",
            function,
            expected="finite where the label points: no temperature gives probability to a logit of -inf",
            got=f"-inf at the label of row {int(np.argmax(impossible))}",
        )


def named_classes(calibrator: Any) -> list[str] | None:
    """The class names that a calibrator was fitted with, if any."""
    names = np.asarray(calibrator.classes_)
    return list(map(str, names)) if names.dtype.kind == "U" else None


def check_class_order(calibrator: Any, class_names: Sequence[str] | None, argument: str, function: str) -> None:
    """Named columns must be in the order of the calibrator's classes, if those have names."""
    wanted = named_classes(calibrator)
    if wanted is None or class_names is None or list(class_names) == wanted:
        return
    at = next(i for i, (here, there) in enumerate(zip_longest(class_names, wanted)) if here != there)
    expected = f"of columns in the order that the calibrator was fitted on: {wanted[at : at + 1]} at {at}"
    raise ShapeError(argument, function, expected=expected, got=f"{list(class_names)[at : at + 1]}")
