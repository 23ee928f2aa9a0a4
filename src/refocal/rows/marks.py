"""Labels that mark rows without one, also among the ones and zeros of several labels per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Flags, Indices, as_array, to_numpy
from refocal._validation import check_shape
from refocal.errors import LabelError, ParameterError
from refocal.rows.keys import BOOLEAN_NUMBERS, label_key
from refocal.rows.label_errors import outside_columns
from refocal.rows.labels import IgnoreIndex, LabelMap, LabelRule, distinct_labels, raw_labels


def check_marks(ignore_index: IgnoreIndex, function: str) -> tuple[int, ...]:
    """The labels that mark rows without one: none, one or several integers."""
    marks = [] if ignore_index is None else np.ravel(ignore_index).tolist()
    if any(type(mark) is not int for mark in marks):
        raise ParameterError("ignore_index", function, expected="an integer or several", got=repr(ignore_index))
    return tuple(marks)


def are_marks(labels: NDArray[Any], marks: Sequence[int]) -> Flags:
    """Which labels are marks of rows without one, however they are stored.

    >>> are_marks(np.array([2, 255]), (255,)), are_marks(np.array(["cat", "-1"]), (-1,))
    (array([False,  True]), array([False,  True]))
    """
    if not marks:
        return np.zeros(labels.shape, dtype=np.bool_)
    if labels.dtype.kind in "biuf":
        return np.isin(labels, marks)
    flat = labels.ravel().tolist()
    keys = {label: label_key(label) for label in set(flat)}
    known = {label: BOOLEAN_NUMBERS.get(str(key), key) in marks for label, key in keys.items()}
    return np.array([known[label] for label in flat], dtype=np.bool_).reshape(labels.shape)


def labelled_rows(labels: Any, ignore_index: IgnoreIndex, argument: str, function: str) -> Flags:
    """Which rows have a label, where `ignore_index`, one or several, marks those without one; at least one has."""
    raw = to_numpy(raw_labels(labels, argument, function).values)
    kept = ~are_marks(raw, check_marks(ignore_index, function))
    if not kept.any():
        expected = "of at least one row that 'ignore_index' does not leave out"
        raise LabelError(argument, function, expected=expected, got=f"{kept.size:,} labels, none of another kind")
    return kept


def check_targets(
    labels: Any, shape: tuple[int, ...], ignore_index: IgnoreIndex, argument: str, function: str
) -> tuple[Indices, Flags]:
    """Ones and zeros of several labels, of the shape of their scores; and which of them are known."""
    target = to_numpy(as_array(labels, argument, function))
    check_shape(target, shape, argument, function, ", ones and zeros, one column per label")
    known = labelled_rows(target, ignore_index, argument, function)
    rule = LabelRule(2, argument=argument, function=function)
    numbers = np.zeros(target.shape, dtype=np.int64)
    distinct = distinct_labels(target[known], argument, function)
    if any(LabelMap(2, None).column(label) < 0 for label in distinct):
        if target.dtype.kind == "f" and any(not float(label).is_integer() for label in distinct):
            got = "Unknown label type: continuous numbers"
            raise LabelError(argument, function, expected="integers or other whole numbers", got=got)
        raise outside_columns(rule, int(distinct[0]), int(distinct[-1]))
    numbers[known] = LabelMap(2, None).numbers(target[known])
    return numbers, known
