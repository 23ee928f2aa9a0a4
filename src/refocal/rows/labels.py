"""The one place where a label becomes a column number.

If the columns have names, labels are matched with the names (numbers and booleans by their text; 2.0 is 2). They are
column numbers only where the columns have no names, or no label is a name and all are whole numbers from 0. What fits
both ways or neither is refused, with both readings in the message.

How a number is stored (integer, float, boolean, text, category, bytes) never changes the reading. The positive label
of two classes moves columns and labels together. Where a caller says `first_label`, labels that are numbers of columns
counted from it are that, whatever the names.

A fit on columns without names has one more rule (`LabelRule.sorts`), as in scikit-learn: labels that are not all
column numbers name the columns in sorted order, and there must be as many as columns. `Calibrator.fit` takes no
`first_label`.

One module does without this one: `calibrators/classifier.py` fits the classifier itself, so that there are no columns
to match labels with; its codes are places in the sorted classes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, Indices, masked_error, namespace, to_numpy
from refocal._validation import IGNORED, number_of_text
from refocal.errors import LabelError, ParameterError, Remedy, ShapeError
from refocal.rows.class_names import shortened
from refocal.rows.keys import (
    BOOLEAN_NUMBERS,
    LabelKey,
    categories_of,
    columns_by_number_within,
    label_key,
    number_keys,
)
from refocal.rows.label_errors import (
    listed,
    missing_label,
    neither_names_nor_numbers,
    no_column_numbers,
    numbered_otherwise,
    outside_columns,
)

IgnoreIndex = int | Sequence[int] | None
"""What an argument `ignore_index` takes: the label, or several, of rows that have none and are left out."""


class RawLabels(NamedTuple):
    """Labels as they came: an array of integers, floats, booleans, text or Python's objects, of any shape.

    `categories` are those of a categorical column of pandas or polars, in their order.
    """

    values: Array
    categories: tuple[Any, ...] | None = None


def raw_labels(values: Any, argument: str, function: str) -> RawLabels:
    """Labels of any carrier as an array, of their own library where they are numbers; bytes become text."""
    if np.ma.is_masked(values):
        raise masked_error(values, argument, function)
    categories = categories_of(values)
    if array_api_compat.is_array_api_obj(values):
        labels = values
    else:
        try:
            labels = np.asarray(values)
        except ValueError as error:
            got = "rows of different lengths" if "inhomogeneous" in str(error) else str(error)
            raise ShapeError(argument, function, expected="an array with rows of equal length", got=got) from error
    if not isinstance(labels, np.ndarray):
        return RawLabels(labels, categories)
    try:
        if labels.dtype.kind == "S":
            labels = np.char.decode(labels, "utf-8")
        elif labels.dtype.kind == "O":
            labels = _with_text(labels)
        elif labels.dtype == "M8[ns]":  # of pandas; as objects of Python they would be integers
            labels = labels.astype("M8[us]")
        categories = None if categories is None else tuple(_as_text(category) for category in categories)
    except UnicodeDecodeError as error:
        raise LabelError(argument, function, expected="text in UTF-8", got=f"the bytes {error.object!r}") from None
    if labels.dtype.kind not in "biufUTOMm":
        expected = "integers or other whole numbers, booleans, or names of classes"
        raise LabelError(argument, function, expected=expected, got=f"dtype {labels.dtype}")
    if labels.dtype.kind == "O":
        several = (label for label in labels.ravel() if isinstance(label, (list, tuple, set, dict, np.ndarray)))
        if (first := next(several, None)) is not None:
            raise LabelError(argument, function, expected="one label for each row", got=f"{first!r:.40}")
    return RawLabels(labels, categories)


def _with_text(labels: NDArray[Any]) -> NDArray[Any]:
    """Python's objects with text in the place of bytes."""
    flat = labels.ravel()
    if not any(isinstance(label, bytes) for label in flat):
        return labels
    decoded = np.empty_like(flat)
    decoded[:] = [_as_text(label) for label in flat]
    return decoded.reshape(labels.shape)


def _as_text(label: Any) -> Any:
    """The text of bytes; any other label as it is."""
    return label.decode("utf-8") if isinstance(label, bytes) else label


@dataclass(frozen=True)
class LabelMap:
    """How labels become column numbers: by the names of the columns, or as numbers that count from `first_label`.

    >>> LabelMap(3, None, first_label=1).numbers(np.array([1, 3, 4]))
    array([ 0,  2, -1])
    """

    n_classes: int
    columns: dict[LabelKey, int] | None
    """The column of each name; None where labels are column numbers."""
    first_label: int = 0

    @classmethod
    def of_names(cls, names: Sequence[Any]) -> LabelMap:
        """The map of labels that are these names of columns."""
        return cls(len(names), {label_key(name): i for i, name in enumerate(names)})

    @property
    def by(self) -> str:
        """How labels are read, in words."""
        if self.columns is not None:
            return "by name"
        return "column numbers" if self.first_label == 0 else f"column numbers from {self.first_label}"

    def counted(self) -> range:
        """The numbers of all columns, as labels count them."""
        return range(self.first_label, self.first_label + self.n_classes)

    def column(self, label: Any) -> int:
        """The column of one label; -1 if it has none."""
        key = label_key(label)
        if self.columns is not None:
            number = self.columns.get(key)
            if number is None and key in BOOLEAN_NUMBERS:
                number = self.columns.get(BOOLEAN_NUMBERS[str(key)])
            return -1 if number is None else number
        whole = BOOLEAN_NUMBERS.get(key) if isinstance(key, str) else key
        if whole is None or not 0 <= whole - self.first_label < self.n_classes:
            return -1
        return whole - self.first_label

    def reordered(self, order: Sequence[int]) -> LabelMap:
        """The map to the same columns in another order; `order` has their present positions."""
        if self.columns is None:
            return self
        position = {column: i for i, column in enumerate(order)}
        return replace(self, columns={key: position[column] for key, column in self.columns.items()})

    def numbers(self, values: Array) -> Indices:
        """The column of each label, as a NumPy array of the same shape; -1 where a label has none."""
        labels = to_numpy(values)
        if self.columns is None and labels.dtype.kind in "biuf":
            return self._counted(labels)
        if labels.dtype.kind in "biu":
            distinct, place = np.unique(labels, return_inverse=True)
            columns = np.array([self.column(label) for label in distinct.tolist()], dtype=np.int64)
            return columns[place].reshape(labels.shape)
        flat = labels.ravel().tolist()
        table = {label: self.column(label) for label in set(flat)}
        return np.array([table[label] for label in flat], dtype=np.int64).reshape(labels.shape)

    def _counted(self, labels: NDArray[Any]) -> Indices:
        if labels.dtype.kind == "f":
            usable = np.isfinite(labels) & (labels == np.round(labels))
            usable &= (labels >= self.first_label) & (labels < self.first_label + self.n_classes)
            return np.where(usable, labels - self.first_label, -1).astype(np.int64)
        if labels.dtype == np.uint64:  # those that int64 cannot hold are beyond any column
            labels = np.minimum(labels, np.uint64(np.iinfo(np.int64).max))
        numbers = labels.astype(np.int64) - self.first_label
        if numbers.size and (numbers.min() < 0 or numbers.max() >= self.n_classes):
            return np.where((numbers < 0) | (numbers >= self.n_classes), -1, numbers)
        return numbers


class Resolved(NamedTuple):
    """Labels as column numbers, and the class of each column as `predict` returns it."""

    numbers: Indices
    classes: NDArray[Any]
    label_map: LabelMap


@dataclass(frozen=True)
class LabelRule:
    """All that decides what labels mean, besides the labels themselves.

    >>> rule = LabelRule(n_classes=3, names=("1", "2", "other"))
    >>> rule.decide([1, 2]).by, rule.decide(["1", "other"]).by
    ('by name', 'by name')
    >>> rule.decide([0, 1, 2])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    refocal.errors.LabelError: The 'labels' of read must be among the class names (1, 2, other), or column numbers ...
    """

    n_classes: int
    names: tuple[Any, ...] | None = None
    """The names of the columns, of any type; None where they have none."""
    whole_names: tuple[str, ...] = ()
    """The names with the beginnings that they share, such as logit_cat; labels may have all or some of these too."""
    first_label: int | None = None
    """The label of the first column, where a caller says it."""
    sorts: bool = False
    """Whether labels name columns without names in sorted order, as in scikit-learn."""
    argument: str = "labels"
    function: str = "read"

    def __post_init__(self) -> None:
        if self.first_label is not None and type(self.first_label) is not int:
            expected = "a whole number, such as 1"
            raise ParameterError("first_label", self.function, expected=expected, got=repr(self.first_label))

    def columns_by_name(self) -> dict[LabelKey, int]:
        """The column of each name; names that labels could not tell apart, such as 1 and 1.0, are an error."""
        names = self.names or ()
        known: dict[LabelKey, int] = {}
        for i, name in enumerate(names):
            other = known.setdefault(label_key(name), i)
            if other != i:
                expected = "different names, one for each column"
                got = f"{str(names[other])!r} and {str(name)!r}"
                raise ShapeError("class_names", self.function, expected=expected, got=got)
        whole = {label_key(name): i for i, name in enumerate(self.whole_names)}
        # Names that share beginnings may be written without some of them, as class_1 for p_class_1.
        parts = [*shortened(self.whole_names)[1:-1], *shortened(names)[1:2]]
        numbered = [{label_key(name): i for i, name in enumerate(part)} for part in parts]
        short = {key: i for each in numbered if len(each) == self.n_classes for key, i in each.items()}
        called = short | whole | known
        if {*known} == {"True", "False"}:  # how a truth is stored does not matter
            called |= {1: known["True"], 0: known["False"]}
        return called

    def by_name(self) -> LabelMap:
        """The map of labels that are names of columns."""
        return LabelMap(self.n_classes, self.columns_by_name())

    def by_number(self) -> LabelMap:
        """The map of labels that are column numbers, counted from `first_label` or 0."""
        return LabelMap(self.n_classes, None, self.first_label or 0)

    @property
    def needs_distinct(self) -> bool:
        """Whether labels of all rows must be known before those of any can be read.

        They need not be where the columns have no names, or where none of the names could be a column number.
        """
        if self.names is None:
            return self.sorts
        numbers = self.by_number().counted()
        if self.first_label is None:
            within = columns_by_number_within(self.names)
            are_numbered_otherwise = any(within.get(number, i) != i for i, number in enumerate(numbers))
            if are_numbered_otherwise or self._numbered_otherwise(numbers) is not None:
                return True
        known = self.columns_by_name()
        are_names = any(number in known for number in numbers)
        are_in_place = all(known.get(number) == i for i, number in enumerate(numbers))
        return are_names and not are_in_place

    def are_column_numbers(self, distinct: Iterable[Any]) -> bool:
        """Whether all of these labels are numbers of columns, counted from 0."""
        by_number = LabelMap(self.n_classes, None)
        return all(by_number.column(label) >= 0 for label in distinct)

    def names_by_labels(self, distinct: Iterable[Any]) -> bool:
        """Whether labels give names to columns without names, in sorted order: see `sorted_classes`."""
        if not self.sorts or self.names is not None or self.by_whole_name(distinct) is not None:
            return False
        return not self.are_column_numbers(distinct)

    def by_whole_name(self, distinct: Iterable[Any]) -> LabelMap | None:
        """The map of labels that are the whole names of columns that only count, such as class_0; None if some are not.

        >>> LabelRule(2, whole_names=("class_0", "class_1")).by_whole_name(["class_1"]).column("class_1")
        1
        """
        if self.names is not None or not self.whole_names:
            return None
        label_map = self.by_name()
        columns = {label_map.column(label) for label in distinct}
        return None if -1 in columns or not columns else label_map

    def decide(self, distinct: Iterable[Any]) -> LabelMap:
        """How labels are read, given the distinct ones; labels that fit both ways or neither are an error."""
        keys = {label_key(label) for label in distinct}
        if None in keys:
            raise missing_label(self.argument, self.function)
        by_number = self.by_number()
        numbers = {by_number.column(key) for key in keys}
        are_numbers = -1 not in numbers
        if self.names is None:
            if are_numbers:
                return by_number
            by_whole_name = self.by_whole_name(keys)
            if by_whole_name is not None:
                return by_whole_name
            raise no_column_numbers(self, keys)
        by_name = self.by_name()
        named = {key for key in keys if by_name.column(key) >= 0}
        if self.first_label is not None and are_numbers:
            return by_number
        if named == keys:
            return by_name
        if not named and are_numbers:
            number = self._numbered_otherwise(numbers)
            if number is not None:
                raise numbered_otherwise(self, number, numbers, self._columns_by_count(numbers))
            return by_number
        raise neither_names_nor_numbers(self, keys, named, are_numbers)

    def _columns_by_count(self, numbers: Collection[int]) -> dict[LabelKey, int]:
        """The column of each label by the number in its name; of names that count from 1, 0 is the one numbered 1."""
        within = columns_by_number_within(self.names or ())
        counts_from_one = {*within} == {*range(1, self.n_classes + 1)}
        if counts_from_one and not {*numbers} <= within.keys():
            return {number: within[number + 1] for number in range(self.n_classes)}
        return within

    def _numbered_otherwise(self, numbers: Collection[int]) -> int | None:
        """The first column number that another column has in its name; None if numbers and names agree."""
        by_count = self._columns_by_count(numbers)
        if not {*numbers} <= by_count.keys():
            return None
        return next((number for number in sorted(numbers) if by_count[number] != number), None)


def resolve(raw: RawLabels, rule: LabelRule) -> Resolved:
    """Labels of rows in memory as column numbers; the first rule that is broken is an error.

    >>> rule = LabelRule(n_classes=3, names=("1", "2", "other"))
    >>> resolve(RawLabels(np.array([1.0, 2.0])), rule).numbers
    array([0, 1])
    """
    labels = raw.values
    if not _is_text(labels) and rule.names is None and math.prod(labels.shape):
        numbers = _numbers_in_range(labels, rule)
        if numbers is not None:
            by_number = rule.by_number()
            is_boolean = namespace(labels).isdtype(labels.dtype, "bool")
            return Resolved(numbers, _classes(rule, by_number, [False, True] if is_boolean else [0]), by_number)
    distinct = distinct_labels(labels, rule.argument, rule.function)
    if rule.names_by_labels(distinct):
        values = to_numpy(labels)
        dtype = None if values.dtype.kind in ("O", "T") else values.dtype
        classes = sorted_classes(distinct, rule, categories=raw.categories, dtype=dtype)
        label_map = LabelMap.of_names(classes.tolist())
        return Resolved(label_map.numbers(labels), classes, label_map)
    label_map = rule.decide(distinct)
    return Resolved(label_map.numbers(labels), _classes(rule, label_map, distinct), label_map)


def _is_text(labels: Array) -> bool:
    return isinstance(labels, np.ndarray) and labels.dtype.kind in "UTOMm"


def _numbers_in_range(labels: Array, rule: LabelRule) -> Indices | None:
    """Column numbers that are stored as numbers, without a search for the distinct ones; None if some are none."""
    xp = namespace(labels)
    if xp.isdtype(labels.dtype, "real floating"):
        if bool(xp.any(xp.isnan(labels))):
            raise missing_label(rule.argument, rule.function)
        if not bool(xp.all(xp.isfinite(labels))):
            got = f"Input {rule.argument} contains NaN or infinity"
            raise LabelError(rule.argument, rule.function, expected="integers or other whole numbers", got=got)
        if not bool(xp.all(labels == xp.round(labels))):
            got = "Unknown label type: continuous numbers"
            raise LabelError(rule.argument, rule.function, expected="integers or other whole numbers", got=got)
    numbers = rule.by_number().numbers(labels)
    return None if (numbers < 0).any() else numbers


def distinct_labels(labels: Array, argument: str, function: str) -> list[Any]:
    """The distinct labels, in sorted order where they have one; text and numbers side by side have none."""
    values = to_numpy(labels)
    if values.dtype.kind in "biuf":
        if values.dtype.kind == "f" and np.isnan(values).any():
            raise missing_label(argument, function)
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            got = f"Input {argument} contains NaN or infinity"
            raise LabelError(argument, function, expected="integers or other whole numbers", got=got)
        distinct: list[Any] = np.unique(values).tolist()
        return distinct
    found = set(values.ravel().tolist())
    with_nul = [label for label in found if isinstance(label, str) and label.endswith("\0")]
    if with_nul:
        expected = "text that does not end in NUL, which arrays of text drop"
        raise LabelError(argument, function, expected=expected, got=repr(min(with_nul)))
    kinds = {type(label) for label in found}
    if len(kinds) > 1 and (type(None) in kinds or float in kinds) and any(label_key(label) is None for label in found):
        words = " and ".join(sorted(kind.__name__ for kind in kinds))
        expected = "of one kind, all numbers or all text, and none missing"
        raise LabelError(argument, function, expected=expected, got=f"labels of the types {words}")
    return in_sorted_order(found)


def in_sorted_order(labels: Iterable[Any]) -> list[Any]:
    """Labels in sorted order; text and numbers side by side have none, and are sorted by their types."""
    distinct = list(labels)
    try:
        return sorted(distinct)
    except TypeError:
        return sorted(distinct, key=lambda label: (str(type(label)), str(label)))


def _classes(rule: LabelRule, label_map: LabelMap, distinct: Collection[Any]) -> NDArray[Any]:
    """The class of each column in the type of the labels: its name, or its number where labels count the columns."""
    if label_map.columns is None:
        return classes_like_labels(label_map.counted(), label_map, distinct)
    return classes_like_labels(rule.names or rule.whole_names, label_map, distinct)


def classes_like_labels(names: Sequence[Any], label_map: LabelMap, distinct: Collection[Any]) -> NDArray[Any]:
    """The names or numbers of columns in the type of the distinct labels, so that a prediction is like a label.

    Numbers and truths are text where labels are, written as these if every column has a label; other names are text.

    >>> by_name = LabelMap(2, {2: 0, 1: 1})
    >>> classes_like_labels(("2", "1"), by_name, [1, 2]), classes_like_labels(("2", "1"), by_name, ["1"])
    (array([2, 1]), array(['2', '1'], dtype='<U1'))
    >>> classes_like_labels(range(2), LabelMap(2, None), [False]), classes_like_labels(("a", "b"), by_name, [1, 2])
    (array([False,  True]), array(['a', 'b'], dtype='<U1'))
    """
    keys = [label_key(name) for name in names]
    numbers = number_keys(names)
    are_truths = {*numbers} == {0, 1} and len(numbers) == 2
    if not all(isinstance(number, int) for number in numbers) or (not are_truths and numbers != keys):
        return _fractions_or_times(names, label_map, distinct)
    if any(isinstance(label, str) for label in distinct):
        written = {label_map.column(label): str(label) for label in distinct}
        is_written = len(written) == len(distinct) == len(keys)
        return np.array([written[i] if is_written else str(name) for i, name in enumerate(names)])
    has_truths = len(distinct) > 0 and all(isinstance(label, (bool, np.bool_)) for label in distinct)
    if are_truths and (has_truths or numbers != keys):
        return np.array([number == 1 for number in numbers])
    return np.array(numbers)


def _fractions_or_times(names: Sequence[Any], label_map: LabelMap, distinct: Collection[Any]) -> NDArray[Any]:
    """Names as numbers or times where all labels are such, and all names can be; else as text."""
    if len(distinct) > 0 and all(isinstance(label, float) for label in distinct):
        try:
            return np.array([number_of_text(str(name)) for name in names])
        except ValueError:
            pass
    label_of = {label_map.column(label): label for label in distinct}
    times = [label_of.get(i, name) for i, name in enumerate(names)]
    if all(isinstance(time, datetime) and time.tzinfo is None for time in times):
        return np.array(times, dtype="datetime64[us]")
    return np.array([str(name) for name in names])


def typed_classes(
    names: Sequence[Any] | None, rule: LabelRule, label_map: LabelMap, distinct: Collection[Any]
) -> NDArray[Any] | None:
    """The classes in the type of the labels, or None where they are the usual ones: see `unless_usual`.

    `names` are those of the columns, where labels or the positive one may have given them to columns without names.
    """
    if names is None and not {*(label_map.columns or ())} <= {0, 1}:  # the other one of two words is not known
        return None
    return unless_usual(classes_like_labels(names or label_map.counted(), label_map, distinct), names, rule, label_map)


def unless_usual(
    classes: NDArray[Any], names: Sequence[Any] | None, rule: LabelRule, label_map: LabelMap
) -> NDArray[Any] | None:
    """The classes as `Predictions.given_classes` has them: None where they are the usual ones.

    The usual ones are the names of the columns or, without names, their numbers from 0 on.
    """
    return None if _are_usual(classes, names, rule, label_map) else classes


def _are_usual(classes: NDArray[Any], names: Sequence[Any] | None, rule: LabelRule, label_map: LabelMap) -> bool:
    """Whether the names or the numbers of the columns tell the classes."""
    if rule.names is not None and label_map.columns is None:  # labels count columns that have names
        return True
    if names is None:
        return classes.dtype.kind in "iu" and np.array_equal(classes, np.arange(rule.n_classes))
    # Names that are numbers or truths may be classes of another type than text.
    are_numbers = all(isinstance(number, int) for number in number_keys(names))
    return not are_numbers and classes.dtype.kind == "U"


def used_categories(
    categories: tuple[Any, ...] | None, keys: Collection[LabelKey], rule: LabelRule
) -> tuple[Any, ...] | None:
    """The categories of text labels that name columns without names; None if there are none, or they are numbers.

    scikit-learn's classifiers have their classes in sorted order, and models of the codes of categories in that of the
    categories: where the two differ, nothing says which one columns have.
    """
    used = tuple(categories or ())
    if len(used) != rule.n_classes:
        used = tuple(category for category in used if label_key(category) in keys)
    if len(used) != rule.n_classes or not all(isinstance(label_key(category), str) for category in used):
        return None
    if not all(isinstance(category, str) for category in used) or list(used) == sorted(used):
        return used
    expected = "labels of which columns without names are in one order; name the columns"
    got = f"categories {listed(used)}, in sorted order {listed(sorted(used))}"
    raise LabelError(rule.argument, rule.function, expected=expected, got=got)


def sorted_classes(
    labels: Iterable[Any], rule: LabelRule, *, categories: tuple[Any, ...] | None = None, dtype: Any = None
) -> NDArray[Any]:
    """The classes of columns without names: the distinct labels, or their categories, in sorted order.

    There must be as many as columns. `dtype` is the type of the labels.
    """
    distinct = in_sorted_order(labels)
    keys = [label_key(label) for label in distinct]
    if None in keys:
        raise missing_label(rule.argument, rule.function)
    used = used_categories(categories, keys, rule)
    if used is not None:
        return np.array(used)
    _check_names_of_columns(distinct, keys, rule)
    if all(isinstance(label, str) for label in distinct) and all(isinstance(key, int) for key in keys):
        distinct = sorted(distinct, key=lambda label: int(label_key(label) or 0))  # text of numbers: 9 before 10
    return np.array(distinct, dtype=dtype)


def _check_names_of_columns(distinct: list[Any], keys: list[LabelKey], rule: LabelRule) -> None:
    """Labels of one kind, as many different ones as columns.

    Integers may be names too, such as -1 and 1, unless all those that are no column numbers are values that usually
    mark rows without a label.
    """
    by_number = LabelMap(rule.n_classes, None)
    outside = {key for key in keys if by_number.column(key) < 0}
    whole = sorted(key for key in keys if isinstance(key, int))
    if any(isinstance(label, (float, np.floating)) and isinstance(label_key(label), str) for label in distinct):
        got = "Unknown label type: continuous numbers"
        raise LabelError(rule.argument, rule.function, expected="integers or other whole numbers", got=got)
    has_marks = len(outside) < len(keys) and outside <= {*IGNORED} and whole != [-1, 1]
    if has_marks:
        raise outside_columns(rule, whole[0], whole[-1])
    kinds = {isinstance(label, str) for label in distinct}
    if len(kinds) > 1:
        expected = "of one kind, all numbers or all text, and none missing"
        words = " and ".join(sorted({type(label).__name__ for label in distinct}))
        raise LabelError(rule.argument, rule.function, expected=expected, got=f"labels of the types {words}")
    if len(keys) < 2:
        got = f"only one class, {distinct[0]!r}"
        raise LabelError(rule.argument, rule.function, expected="of at least two classes", got=got)
    if len(keys) != rule.n_classes or len(set(keys)) < len(keys):
        n_classes = rule.n_classes
        expected = f"of {n_classes} distinct classes, as X has columns, or integers from 0 to {n_classes - 1}"
        got = f"{len(keys)} distinct labels from {distinct[0]!r} to {distinct[-1]!r}"
        raise LabelError(rule.argument, rule.function, expected=expected, got=got, remedy=Remedy.CLASS_NAMES)
