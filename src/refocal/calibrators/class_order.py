"""The classes that a fitted calibrator knows, beside those of the rows that it is applied to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from refocal._arrays import Array, Indices, in_library_of
from refocal._groups import Groups
from refocal.errors import LabelError, Remedy
from refocal.rows.class_names import column_order, without_beginnings
from refocal.rows.gate import names_of_columns
from refocal.rows.keys import consecutive_numbers, label_key, number_keys, order_of_numbers
from refocal.rows.labels import LabelRule

if TYPE_CHECKING:
    from refocal.calibrators._base import Calibrator
    from refocal.engine import BlockedDataset
    from refocal.rows import Predictions


def named_classes(calibrator: Calibrator) -> list[str] | None:
    """The names of the columns that a calibrator was fitted on, if they had any: its classes, or feature names."""
    classes = np.asarray(calibrator.classes_)
    if classes.dtype.kind in "UOT":
        return [str(name) for name in classes.tolist()]
    is_counted = np.array_equal(classes, np.arange(len(classes)))  # also False and True
    if not is_counted:
        return [str(name) for name in classes.tolist()]
    names, _ = names_of_columns(tuple(getattr(calibrator, "feature_names_in_", ())) or None)
    return None if names is None else [str(name) for name in names]


def called_classes(calibrator: Calibrator) -> list[str]:
    """What the classes of a calibrator are called: their names, or their numbers where they have none."""
    return named_classes(calibrator) or [str(i) for i in range(calibrator.n_features_in_)]


def order_for(calibrator: Calibrator, rows: Predictions | BlockedDataset, function: str) -> Indices | None:
    """The positions of the calibrator's classes among the columns of rows; None where these are in its order."""
    source = rows.source if hasattr(rows, "source") else rows.reader.source
    return order_of_columns(calibrator, rows.class_names, function, swapped=source.swapped)


def labels_of(calibrator: Calibrator, rows: Predictions, function: str) -> Indices:
    """The labels of rows as positions of the calibrator's classes."""
    order = order_for(calibrator, rows, function)
    check_labels(calibrator, rows, function)
    return rows.labels if order is None else np.argsort(order)[rows.labels]


def check_labels(calibrator: Calibrator, rows: Predictions | BlockedDataset, function: str) -> None:
    """Refuse column numbers of rows without names that could all be meant as the calibrator's classes.

    Rows of the classes 1, 2, 3 that were read without these names, and happen to have no label 3, have the second
    column for a label 1, which was meant as the first class.
    """
    wanted = named_classes(calibrator)
    if rows.class_names is not None or wanted is None:
        return
    # Columns without names are then known by their numbers.
    if any(order_of_numbers(names) is not None for names in (wanted, without_beginnings(wanted))):
        return
    rule = LabelRule(len(wanted), tuple(wanted), function=function)
    label_map = rows.label_map if hasattr(rows, "label_map") else rows.reader
    counts_from = 0 if label_map is None else label_map.first_label
    if not rule.needs_distinct or counts_from:  # said by the caller: numbers of columns are meant
        return
    labels = np.unique(rows.labels).tolist() if hasattr(rows, "labels") else rows.distinct_labels()
    names = rule.columns_by_name()
    if any(label_key(label) not in names for label in labels):
        return
    expected = f"read with the calibrator's classes, {', '.join(wanted)}"
    got = "column numbers of rows without names, all of which are names of these classes too"
    raise LabelError("labels", function, expected=expected, got=got, remedy=Remedy.CLASSES_OF_CALIBRATOR)


def order_of_columns(
    calibrator: Calibrator, class_names: Sequence[str] | None, function: str, *, swapped: bool = False
) -> Indices | None:
    """The position of the column of each class of a calibrator; None where columns and classes are in one order.

    The first of these that applies decides:

    1. Columns without names are in the order of their numbers, or else of the classes: `_order_without_names`.
    2. Columns are called by the classes (`_keys_of_classes`).
    3. Columns called 0 … C-1 count the classes, whatever these are called.
    4. Names of columns and classes that both have them must be the same.
    5. Columns that alone have names keep the order of their file, which a positive label may have `swapped`.
    """
    if class_names is None:
        return _order_without_names(calibrator)
    counted = list(range(len(calibrator.classes_)))
    column_of = {key: column for column, key in enumerate(number_keys(class_names))}
    for keys in (*_keys_of_classes(calibrator), counted):
        if {*keys} == {*column_of}:
            order = np.array([column_of[key] for key in keys])
            return None if np.array_equal(order, counted) else order
    names = named_classes(calibrator)
    if names is not None and _are_names(calibrator):
        return column_order(class_names, names, function)
    return np.array([1, 0]) if swapped else None


def _order_without_names(calibrator: Calibrator) -> Indices | None:
    """The position of each class among columns in the order of the numbers that the classes are called by.

    None where these are in order, or where the classes are not called by consecutive numbers.
    """
    for keys in _keys_of_classes(calibrator):
        numbers = consecutive_numbers(keys)
        if numbers is not None:
            return None if numbers == sorted(numbers) else np.array(numbers) - min(numbers)
    return None


def _keys_of_classes(calibrator: Calibrator) -> list[list[Any]]:
    """What columns are matched with classes by: the keys of their names, with and without what all begin with.

    Classes may be whole names, such as class_1, of columns that are called without this beginning elsewhere.
    """
    names = named_classes(calibrator)
    return [] if names is None else [number_keys(names), number_keys(without_beginnings(names))]


def _are_names(calibrator: Calibrator) -> bool:
    """Whether the classes of a calibrator are text, or its columns had names."""
    return np.asarray(calibrator.classes_).dtype.kind in "UOT" or hasattr(calibrator, "feature_names_in_")


@dataclass(frozen=True)
class InOrder:
    """A calibrator for rows whose columns are in another order; `order` has the positions of its classes among them."""

    calibrator: Calibrator
    order: Indices

    @property
    def input(self) -> str:
        """What the calibrator takes."""
        return self.calibrator.input

    def log_proba_in_groups(self, logits: Array, groups: Groups) -> Array:
        """Log-probabilities (N, C) of checked logits, both in the order of the rows."""
        log_p = self.calibrator.log_proba_in_groups(logits[:, in_library_of(logits, self.order)], groups)
        return log_p[:, in_library_of(log_p, np.argsort(self.order))]


RowsT = TypeVar("RowsT", bound="Predictions | BlockedDataset")


def in_order_of(rows: RowsT, calibrator: Calibrator | None) -> RowsT:
    """Rows with their named columns in the order of a calibrator's classes; those without names stay as they are."""
    if rows.class_names is None:
        return rows
    order = None if calibrator is None else order_for(calibrator, rows, "in_order_of")
    return rows if order is None else rows.reordered(order)  # type: ignore[return-value]
