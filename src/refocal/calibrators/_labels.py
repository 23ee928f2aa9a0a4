"""Labels of any kind as integers in the library of the logits, and the classes of the columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, Indices, indices_beside, masked_error, namespace, take, to_numpy
from refocal._label_checks import IGNORED, check_label_range, whole_numbers
from refocal._validation import FINITE_LABELS
from refocal.errors import DataError, LabelError, Remedy, ShapeError, warn

if TYPE_CHECKING:
    from refocal.calibrators._base import Calibrator


def column_names(X: Any) -> NDArray[np.str_] | None:
    """The column names of a DataFrame, if all of them are text."""
    names = list(getattr(X, "columns", ()))
    return np.array(names, dtype=np.str_) if names and all(isinstance(name, str) for name in names) else None


def read_labels(values: Any, argument: str, function: str) -> tuple[Array, tuple[Any, ...] | None]:
    """Labels as integers, booleans or text, and their categories where they are of pandas or polars and have some."""
    if np.ma.is_masked(values):
        raise masked_error(values, argument, function)
    dtype: Any = getattr(values, "dtype", None)
    categories = tuple(dtype.categories) if type(dtype).__name__ in ("CategoricalDtype", "Enum") else None
    labels = values if array_api_compat.is_array_api_obj(values) else np.asarray(values)
    if not isinstance(labels, np.ndarray) or labels.dtype.kind == "f":
        return whole_numbers(labels, argument, function), categories
    if labels.dtype.kind == "S":
        try:
            labels = np.char.decode(labels, "utf-8")
        except UnicodeDecodeError as error:
            raise LabelError(argument, function, expected="text in UTF-8", got=f"the bytes {error.object!r}") from None
    elif labels.dtype.kind == "O" and all(isinstance(each, str) for each in labels.ravel()):
        labels = labels.astype(np.str_)
    return labels, categories


def encode(y: Any, logits: Array, function: str, columns: NDArray[np.str_] | None = None) -> tuple[Array, NDArray[Any]]:
    """Labels as integers 0 … C-1 in the library of the logits, and the classes of the columns.

    Integers from 0 to C-1 are column numbers, and classes may be absent; other labels are names. Every label must have
    a finite logit.
    """
    if y is None:
        raise LabelError("y", function, expected="given: requires y to be passed, but the target y is None", got="None")
    labels, categories = read_labels(y, "y", function)
    shape, n_classes = tuple(logits.shape), int(logits.shape[-1])
    if labels.ndim == len(shape) == 2 and labels.shape[1] == 1:  # accepted with a warning, as in scikit-learn
        from sklearn.exceptions import DataConversionWarning

        warn(
            "A column-vector y was passed when a 1d array was expected. Please change the shape of y to (n_samples,).",
            DataConversionWarning,
        )
        labels = labels[:, 0]
    if tuple(labels.shape) != shape[:-1]:
        hint = "; of one-hot labels take the argmax first" if tuple(labels.shape) == shape else ""
        expected = f"of shape {shape[:-1]}, one label for each row of X{hint}"
        raise ShapeError("y", function, expected=expected, got=f"shape {tuple(labels.shape)}")
    xp, classes = namespace(labels), np.arange(n_classes)
    is_number = categories is None and xp.isdtype(labels.dtype, "integral")
    if not is_number or not 0 <= int(xp.min(labels)) < int(xp.max(labels)) < n_classes:
        labels, classes = _by_name(to_numpy(labels), n_classes, columns, categories, function)
    labels = indices_beside(logits, labels)
    impossible = to_numpy(take(logits, labels[..., None]) == -math.inf)
    if impossible.any():
        raise DataError(
            "X", function, expected=FINITE_LABELS, got=f"-inf at the label of row {int(np.argmax(impossible))}"
        )
    return labels, classes


def _by_name(
    values: NDArray[Any],
    n_classes: int,
    columns: NDArray[np.str_] | None,
    categories: tuple[Any, ...] | None,
    function: str,
) -> tuple[Indices, NDArray[Any]]:
    """Labels that are names as column numbers, and the name of each column.

    Names are matched with the column names, else with the order of their categories, else in sorted order, in which
    case there must be C of them. Integers may be names too, such as -1 and 1, unless all those outside 0 … C-1 are
    values that usually mark unlabelled rows.
    """
    try:
        distinct = np.unique(values)
    except TypeError as error:
        kinds = " and ".join(sorted({type(value).__name__ for value in values.ravel()}))
        expected = "of one kind, all numbers or all text, and none missing"
        raise LabelError("y", function, expected=expected, got=f"labels of the types {kinds}") from error
    known = distinct.tolist()
    if len(known) < 2:
        raise LabelError("y", function, expected="of at least two classes", got=f"only one class, {known[0]!r}")
    used = [category for category in categories or () if len(categories or ()) == n_classes or category in distinct]
    outside = {label for label in known if distinct.dtype.kind in "iu" and not 0 <= label < n_classes}
    has_marks = distinct.dtype.kind in "iu" and len(outside) < len(known) and outside <= {*IGNORED} and known != [-1, 1]
    if columns is not None and distinct.dtype.kind == "U" and np.isin(distinct, columns).all():
        classes: NDArray[Any] = columns
    elif len(used) == n_classes:
        classes = np.array(used)
    elif len(known) == n_classes and not has_marks:
        classes = distinct
    else:
        if has_marks:
            check_label_range(known[0], known[-1], n_classes, "y", function, Remedy.IGNORE_INDEX)
        expected = f"of {n_classes} distinct classes, as X has columns, or integers from 0 to {n_classes - 1}"
        got = f"{len(known)} distinct labels from {known[0]!r} to {known[-1]!r}"
        raise LabelError("y", function, expected=expected, got=got)
    order = np.argsort(classes)
    return order[np.searchsorted(classes[order], values)], classes


def named_classes(calibrator: Calibrator) -> list[str] | None:
    """The class names that a calibrator was fitted with, if any."""
    names = np.asarray(calibrator.classes_)
    return list(map(str, names)) if names.dtype.kind == "U" else None


def check_class_order(calibrator: Calibrator, class_names: Sequence[str] | None, argument: str, function: str) -> None:
    """Named columns must be in the order of the calibrator's classes, if those have names."""
    wanted = named_classes(calibrator)
    if wanted is None or class_names is None or list(class_names) == wanted:
        return
    at = next(i for i, (here, there) in enumerate(zip_longest(class_names, wanted)) if here != there)
    expected = f"of columns in the order that the calibrator was fitted on: {wanted[at : at + 1]} at {at}"
    raise ShapeError(argument, function, expected=expected, got=f"{list(class_names)[at : at + 1]}")
