"""Labels and the names of classes: the checks of what users pass in, each written once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from refocal._arrays import (
    Array,
    Flags,
    Indices,
    as_array,
    in_library_of,
    indices_beside,
    is_traced,
    namespace,
    to_numpy,
)
from refocal._validation import check_shape
from refocal.errors import LabelError, ParameterError, Remedy, ShapeError

IGNORED = (-100, -1, 255)
"""Labels that mark rows without one, in language models and in segmentation."""
IgnoreIndex = int | Sequence[int] | None
"""What an argument `ignore_index` takes: the label, or several, of rows that have none and are left out."""


def check_labels(
    values: Any, logits: Array, function: str, argument: str = "labels", remedy: Remedy | None = None
) -> Array:
    """Labels 0 … C-1, one for each row of `logits`, as an array of the same library and device."""
    labels = indices_beside(logits, whole_numbers(as_array(values, argument, function), argument, function))
    check_shape(labels, tuple(logits.shape[:-1]), argument, function, ", one label for each row of logits")
    xp, n_classes = namespace(logits), int(logits.shape[-1])
    if not is_traced(labels) and math.prod(labels.shape) > 0:
        check_label_range(int(xp.min(labels)), int(xp.max(labels)), n_classes, argument, function, remedy)
    return labels


def whole_numbers(labels: Array, argument: str, function: str) -> Array:
    """Labels as integers: so are booleans, and floats without a fraction."""
    xp = namespace(labels)
    if xp.isdtype(labels.dtype, "integral"):
        return labels
    if xp.isdtype(labels.dtype, "real floating") and not is_traced(labels):
        expected = "integers or other whole numbers"
        if not bool(xp.all(xp.isfinite(labels))):
            raise LabelError(argument, function, expected=expected, got=f"Input {argument} contains NaN or infinity")
        if not bool(xp.all(labels == xp.round(labels))):
            raise LabelError(argument, function, expected=expected, got="Unknown label type: continuous numbers")
    elif not xp.isdtype(labels.dtype, "bool"):
        raise LabelError(argument, function, expected="integers", got=f"dtype {labels.dtype}")
    return xp.astype(labels, xp.asarray(0).dtype)


def check_label_range(
    lowest: int, highest: int, n_classes: int, argument: str, function: str, remedy: Remedy | None = None
) -> None:
    """Labels between 0 and C-1; those that usually mark rows without one have their own remedy."""
    if lowest >= 0 and highest < n_classes:
        return
    ignored = next((label for label in (lowest, highest) if label in IGNORED), None)
    what = "" if ignored is None else f"; {ignored} names no class{'' if remedy else ': leave such rows out'}"
    expected, got = f"between 0 and {n_classes - 1}{what}", f"labels from {lowest} to {highest}"
    raise LabelError(argument, function, expected=expected, got=got, remedy=None if ignored is None else remedy)


def check_marks(ignore_index: IgnoreIndex, function: str) -> tuple[int, ...]:
    """The labels that mark rows without one: none, one or several integers."""
    marks = [] if ignore_index is None else np.ravel(ignore_index).tolist()
    if any(type(mark) is not int for mark in marks):
        raise ParameterError("ignore_index", function, expected="an integer or several", got=repr(ignore_index))
    return tuple(marks)


def are_marks(labels: NDArray[Any], marks: Sequence[int]) -> Flags:
    """Which labels are marks of rows without one; where labels are text, so are their marks.

    >>> are_marks(np.array([2, 255]), (255,)), are_marks(np.array(["cat", "-1"]), (-1,))
    (array([False,  True]), array([False,  True]))
    """
    kind, texts = labels.dtype.kind, list(map(str, marks))
    known = marks if kind in "biuf" else [text.encode() for text in texts] if kind == "S" else texts
    if not known:
        return np.zeros(labels.shape, dtype=np.bool_)
    return np.isin(labels.astype(str) if kind == "O" else labels, known)


def _numbers_or_text(labels: Any, argument: str, function: str) -> Array:
    """Labels as an array of any library; those that are text as one of NumPy."""
    with suppress(ValueError):  # of rows of different lengths, which as_array says
        array = labels if array_api_compat.is_array_api_obj(labels) else np.asarray(labels)
        kind = array.dtype.kind if isinstance(array, np.ndarray) else ""
        if kind in ("U", "S", "T") or (kind == "O" and any(isinstance(each, str) for each in array.ravel())):
            return array
    return as_array(labels, argument, function)


def labelled_rows(labels: Any, ignore_index: IgnoreIndex, argument: str, function: str) -> Flags:
    """Which rows have a label, where `ignore_index`, one or several, marks those without one; at least one has."""
    kept = ~are_marks(to_numpy(_numbers_or_text(labels, argument, function)), check_marks(ignore_index, function))
    if not kept.any():
        expected = "of at least one row that 'ignore_index' does not leave out"
        raise LabelError(argument, function, expected=expected, got=f"{kept.size:,} labels, none of another kind")
    return kept


def check_class_names(names: Iterable[Any] | None, n_classes: int, function: str) -> tuple[str, ...] | None:
    """The names of the columns as text, if there is a different one for each; None if they have none."""
    found = None if names is None else tuple(map(str, names))
    if found is not None and not len(found) == len(set(found)) == n_classes:
        expected = f"{n_classes} different names, one for each column"
        raise ShapeError("class_names", function, expected=expected, got=f"{len(set(found))} different ones")
    return found


def column_order(names: Sequence[str] | None, wanted: Sequence[str] | None, function: str) -> Indices | None:
    """The positions of the columns `wanted` among `names`; None if the order is the same, or there are no names.

    >>> column_order(("dog", "cat"), ("cat", "dog"), "f")
    array([1, 0])
    """
    if names is None or wanted is None:
        return None
    here, there = list(map(str, names)), list(map(str, wanted))
    if here == there:
        return None
    if sorted(here) != sorted(there):
        strangers = [name for name in here if name not in there] or [name for name in there if name not in here]
        got = f"{strangers[0]!r} in one of them only"
        raise ShapeError("class_names", function, expected="the same in both", got=got, remedy=Remedy.COLUMNS)
    at = {name: i for i, name in enumerate(here)}
    return np.array([at[name] for name in there])


def check_targets(
    labels: Any, shape: tuple[int, ...], ignore_index: IgnoreIndex, argument: str, function: str
) -> tuple[Indices, Flags]:
    """Ones and zeros of several labels, of the shape of their scores; and which of them are known."""
    target = to_numpy(whole_numbers(as_array(labels, argument, function), argument, function))
    check_shape(target, shape, argument, function, ", ones and zeros, one column per label")
    known = labelled_rows(target, ignore_index, argument, function)
    check_label_range(int(target[known].min()), int(target[known].max()), 2, argument, function, Remedy.IGNORE_INDEX)
    return target.astype(np.int64), known


def without_ignored(
    rows: tuple[Any, Any, Any], ignore_index: IgnoreIndex, names: tuple[str, str, str], function: str
) -> tuple[Any, Any, Any]:
    """Values, labels and weights without the rows whose label is `ignore_index`; DataFrames keep their names."""
    if not check_marks(ignore_index, function):
        return rows
    found: list[Any] = []
    kept = labelled_rows(rows[1], ignore_index, names[1], function)
    for values, argument in zip(rows, names, strict=True):
        if values is None:
            found.append(None)
        elif (hasattr(values, "columns") or hasattr(values, "cat")) and len(values) == len(kept):  # pandas, polars
            found.append(values[kept] if hasattr(values, "iloc") else values.filter(kept))
        else:
            read = _numbers_or_text if argument == names[1] else as_array
            array = read(values, argument, function)
            if tuple(array.shape[: kept.ndim]) != kept.shape:
                expected = f"of one row for each label, whose shape is {kept.shape}"
                raise ShapeError(argument, function, expected=expected, got=f"shape {tuple(array.shape)}")
            found.append(array[in_library_of(array, kept)])
    return found[0], found[1], found[2]
