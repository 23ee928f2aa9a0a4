"""The rule for labels and columns as a dictionary model in plain Python, which knows nothing of the package."""

from __future__ import annotations

import os
import re

REFUSED = "LabelError"
UNCLEAR = "FormatError"
TRUTH = {"True": "1", "False": "0"}


def key(value):
    """A label or the name of a column as text, whole numbers without a point; None where it is missing."""
    if isinstance(value, bytes):
        value = value.decode()
    if value is None or value != value or value == "":
        return None
    text = str(value)
    if text.lower() in ("true", "false"):
        return text.capitalize()
    whole = re.fullmatch(r"([+-]?\d+)(\.0*)?", text)
    return str(int(whole[1])) if whole else text


def names_of(columns):
    """The column of each name: the whole one, and without what all begin with up to a separator."""
    shared = os.path.commonprefix(columns)  # noqa: RUF071 - names, not paths
    start = max(shared.rfind(separator) + 1 for separator in "_.: ")
    whole = {key(name): column for column, name in enumerate(columns)}
    names = whole | {key(name[start:]): column for column, name in enumerate(columns)}
    if names.keys() >= TRUTH.keys():  # how a truth is stored does not matter
        names |= {number: names[truth] for truth, number in TRUTH.items()}
    return names


def expected(columns, labels, n_classes, *, positive=None, first=0, mark=None, is_fit=False, is_one_number=False):
    """The column number of each label, None for rows that are left out; or the name of the error.

    `columns` are names or None, `positive` is the label of the positive class of two, if it was given, `first` the one
    that numbers count from, `mark` that of rows to leave out. In a fit, labels of unnamed columns may be as many names
    as there are columns. One number per row is about the positive class.
    """
    keys = [key(label) for label in labels]
    if None in keys:
        return REFUSED
    names = {} if columns is None else names_of(columns)
    if not TRUTH.keys() & names.keys():
        keys = [TRUTH.get(each, each) for each in keys]
    wanted = set(keys) - {key(mark)}
    counted = {str(first + column): column for column in range(n_classes)}
    if names and wanted <= names.keys():
        column_of = names
    elif not wanted & names.keys() and wanted <= counted.keys():
        column_of = counted
    elif columns is None and positive is not None and is_one_of_two(key(positive), wanted):
        column_of = {each: int(each == key(positive)) for each in wanted}
    elif columns is None and is_fit and len(wanted) == n_classes:
        are_numbers = all(re.fullmatch(r"-?\d+", each) for each in wanted)
        column_of = {name: column for column, name in enumerate(sorted(wanted, key=int if are_numbers else str))}
    else:
        return REFUSED
    if is_one_number and positive is not None:
        asked = TRUTH.get(key(positive), key(positive))
        column_of = {each: int(each == asked) for each in wanted}
    return [column_of.get(each) for each in keys]


def is_one_of_two(positive, wanted):
    """Whether labels are of two classes, one of them the positive; a single other word is the other class."""
    other = next(iter(wanted - {positive}), "")
    is_other = len(wanted) == 1 and re.search("[a-z]", other) is not None and other not in TRUTH
    return len(wanted | {positive}) <= 2 and (positive in wanted or is_other)


def positive_column(columns, labels, positive, *, is_one_number=False):
    """Which of two columns is that of the positive class: the second, unless a label is said to be positive.

    Columns that are numbered from 0, or called False and True, are in this order.
    """
    if is_one_number:
        return 1
    if positive is None:
        is_turned = columns is not None and [TRUTH.get(key(name), key(name)) for name in columns] == ["1", "0"]
        return 0 if is_turned else 1
    return expected(columns, [*labels, positive], 2, positive=positive)[-1]


def contradicts_calibrator(positive):
    """Whether one number per row is said to be about class 0, where it is about class 1 of a calibrator of 0 and 1."""
    return positive is not None and TRUTH.get(key(positive), key(positive)) == "0"


def classes_of(columns, labels, n_classes, first=0, *, is_in_memory=True):
    """The key of the class of each column after a fit; None where numbers are the labels of named columns.

    Those of a file that are numbered from 0 may be in the order of their numbers; False is before True there.
    """
    counted = [str(column) for column in range(n_classes)]
    is_numbered = columns is not None and sorted(key(name) for name in columns) == counted
    if first or (is_numbered and not is_in_memory):
        return None
    if columns is not None and not is_in_memory and {key(name) for name in columns} == {*TRUTH}:
        return sorted(TRUTH.values())
    columns_of_labels = expected(columns, labels, n_classes, is_fit=True)
    found = dict(zip(columns_of_labels, map(key, labels), strict=True))
    if columns is None and all(TRUTH.get(each, each) == str(column) for column, each in found.items()):
        return [str(column) for column in range(n_classes)]
    if columns is None:
        return [found[column] for column in range(n_classes)]
    names = {column: name for name, column in names_of(columns).items()}
    is_by_name = all(key(label) in names_of(columns) for label in labels)
    return [names[column] for column in range(n_classes)] if is_by_name else None


def is_plain(columns, labels, *, has_others=False, are_probabilities=False, mark=None):
    """Whether columns of a table are plainly those of the classes, so that none need be named.

    They begin alike, or labels are their names and no column is left over but of whole numbers, or labels count all of
    three or more: any two are counted by 0 and 1, also a score and an age. Sums of probabilities tell as well.
    """
    names = names_of(columns)
    if len(names) > len(columns) or are_probabilities:
        return True
    keys = {key(label) for label in labels} - {None, key(mark)}
    if not TRUTH.keys() & names.keys():
        keys = {TRUTH.get(each, each) for each in keys}
    numbers = {name for name in names if re.fullmatch(r"[+-]?\d+", name)}
    if keys and keys <= names.keys():
        called = keys | (numbers if keys & numbers else set())
        return called == names.keys()
    if len(numbers) > 1:
        return numbers == names.keys()
    counts = ({str(first + i) for i in range(len(columns))} for first in (0, 1))
    return not has_others and len(columns) > 2 and keys in counts
