"""The errors of labels that cannot be read as columns: what was expected, and the remedy where one is known."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from refocal._validation import IGNORED
from refocal.errors import LabelError, Remedy
from refocal.rows.keys import LabelKey

if TYPE_CHECKING:
    from refocal.rows.labels import LabelRule


def listed(names: Collection[Any]) -> str:
    """The first of some labels or names, for messages."""
    most_shown = 6  # labels or names
    some = ", ".join(str(name) for name in list(names)[:most_shown])
    return f"{some}, …" if len(names) > most_shown else some


def missing_label(argument: str, function: str, place: str = "") -> LabelError:
    """The error about a label that a row does not have: an empty cell, null or NaN."""
    got = f"a missing one in {place}" if place else "a missing one"
    return LabelError(argument, function, expected="labels of which none is missing", got=got)


def with_own_remedy(error: LabelError, *own: Remedy) -> LabelError:
    """The same error with a remedy that its function has: one of its `own`, or Predictions, which have all of them."""
    if error.remedy is None or error.remedy in own:
        return error
    return LabelError(error.argument, error.function, error.expected, error.got, Remedy.READ_PREDICTIONS)


def no_column_numbers(rule: LabelRule, keys: Collection[LabelKey]) -> LabelError:
    """The error about labels of columns without names that are no column numbers."""
    names = sorted(key for key in keys if isinstance(key, str))
    if names:
        return _text_as_labels(rule, names, n_distinct=len(keys))
    whole = sorted(key for key in keys if isinstance(key, int))
    lowest, highest = whole[0], whole[-1]
    first = rule.first_label or 0
    if lowest - first == 1 and highest - first == rule.n_classes:  # the most common mistake
        expected = f"between {first} and {first + rule.n_classes - 1}"
        return _error(rule, expected, f"labels from {lowest} to {highest}", Remedy.FIRST_LABEL)
    may_be_margins = not {*whole} & {-100, 255}  # -1 marks rows without a label, but is also a class beside 1
    if rule.n_classes == len(whole) == 2 and may_be_margins:
        return _error(rule, "between 0 and 1", f"labels {lowest} and {highest}", Remedy.POSITIVE_LABEL)
    return outside_columns(rule, lowest, highest)


def _text_as_labels(rule: LabelRule, names: list[str], n_distinct: int) -> LabelError:
    """The error about labels that are text, or fractions, some of them at least."""
    fractions = [name for name in names if _is_fraction(name)]
    if fractions:
        return _error(rule, "whole numbers or names of classes", fractions[0])
    is_two = n_distinct <= 2 and rule.n_classes == 2
    remedy = Remedy.POSITIVE_LABEL if is_two else Remedy.CLASS_NAMES
    return _error(rule, "integers", f"text such as {names[0]!r}", remedy)


def outside_columns(rule: LabelRule, lowest: int, highest: int) -> LabelError:
    """The error about whole numbers beyond the columns; those that usually mark rows without a label have a remedy."""
    mark = next((label for label in (lowest, highest) if label in IGNORED), None)
    marks = "" if mark is None else f"; {mark} names no class"
    first = rule.first_label or 0
    expected = f"between {first} and {first + rule.n_classes - 1}{marks}"
    remedy = None if mark is None else Remedy.IGNORE_INDEX
    return _error(rule, expected, f"labels from {lowest} to {highest}", remedy)


def numbered_otherwise(
    rule: LabelRule, number: int, numbers: Collection[int], column_of_number: Mapping[LabelKey, int]
) -> LabelError:
    """The error about labels that may be column numbers or the numbers in the names of columns, with both readings.

    `number` is the first of the labels `numbers` that mean two columns; `column_of_number` has the column of each
    number in a name.
    """
    names = rule.names or ()
    expected = f"plainly names ({listed(names)}) or plainly column numbers"
    readings = f"{number}: {names[column_of_number[number]]!r} by its number, {names[number]!r} counted from 0"
    may_count_from_one = 0 not in numbers and {*column_of_number} == {*range(1, rule.n_classes + 1)}
    return _error(rule, expected, readings, Remedy.FIRST_LABEL if may_count_from_one else None)


def neither_names_nor_numbers(
    rule: LabelRule, keys: Collection[LabelKey], named: Collection[LabelKey], are_numbers: bool
) -> LabelError:
    """The error about labels of named columns that are neither all names nor plainly column numbers.

    `named` are those that are names; `are_numbers`: whether all labels are column numbers too.
    """
    strangers = sorted((key for key in keys if key not in named), key=str)
    by_number = rule.by_number()
    counted = by_number.counted()
    expected = f"among the class names ({listed(rule.names or ())})"
    if any(isinstance(key, int) for key in strangers):
        expected += f", or column numbers from {counted[0]} to {counted[-1]}"
    if named and are_numbers:
        reading = f"by name {strangers[0]!r} is no class, and as column numbers {sorted(named, key=str)[0]!r} is"
        return _error(rule, f"{expected}, not both", f"{listed(sorted(keys, key=str))}: {reading} a name too")
    mark = next((key for key in strangers if key in IGNORED), None)
    remedy = None if mark is None else Remedy.IGNORE_INDEX
    # One that is neither a name nor a column number, where there is one.
    outside = [key for key in strangers if by_number.column(key) < 0]
    return _error(rule, expected, repr((outside or strangers)[0]), remedy)


def _is_fraction(text: str) -> bool:
    """Whether text is a number that is not whole."""
    try:
        return not float(text).is_integer()
    except (OverflowError, ValueError):  # infinity, and what is no number
        return text in ("inf", "-inf")


def _error(rule: LabelRule, expected: str, got: str, remedy: Remedy | None = None) -> LabelError:
    return LabelError(rule.argument, rule.function, expected=expected, got=got, remedy=remedy)
