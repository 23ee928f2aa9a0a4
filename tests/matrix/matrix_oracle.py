"""The rule for labels and columns as a dictionary model in plain Python, which knows nothing of the package."""

from __future__ import annotations

import os
import re

REFUSED = "LabelError"
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
    return whole | {key(name[start:]): column for column, name in enumerate(columns)}


def expected(columns, labels, n_classes, *, positive=None, is_fit=False, is_one_number=False):
    """The column number of each label, or the name of the error.

    `columns` are names or None, `positive` is the label of the positive class of two, if it was given. In a fit, labels
    of unnamed columns may be as many names as there are columns. One number per row is about the positive class.
    """
    keys = [key(label) for label in labels]
    if None in keys:
        return REFUSED
    names = {} if columns is None else names_of(columns)
    if not TRUTH.keys() & names.keys():
        keys = [TRUTH.get(each, each) for each in keys]
    wanted = set(keys)
    counted = {str(column): column for column in range(n_classes)}
    if names and wanted <= names.keys():
        column_of = names
    elif not wanted & names.keys() and wanted <= counted.keys():
        column_of = counted
    elif columns is None and positive is not None and key(positive) in wanted and len(wanted) <= 2:
        column_of = {each: int(each == key(positive)) for each in wanted}
    elif columns is None and is_fit and len(wanted) == n_classes:
        are_numbers = all(re.fullmatch(r"-?\d+", each) for each in wanted)
        column_of = {name: column for column, name in enumerate(sorted(wanted, key=int if are_numbers else str))}
    else:
        return REFUSED
    if is_one_number and positive is not None:
        asked = TRUTH.get(key(positive), key(positive))
        column_of = {each: int(each == asked) for each in wanted}
    return [column_of[each] for each in keys]


def positive_column(columns, labels, positive, *, is_one_number=False):
    """Which of two columns is that of the positive class: the second, unless a label is said to be positive."""
    if positive is None or is_one_number:
        return 1
    with_it = expected(columns, [*labels, positive], 2, positive=positive)
    return with_it if with_it == REFUSED else with_it[-1]


def classes_of(columns, labels, n_classes):
    """The key of the class of each column after a fit; None where numbers are the labels of named columns."""
    columns_of_labels = expected(columns, labels, n_classes, is_fit=True)
    found = dict(zip(columns_of_labels, map(key, labels), strict=True))
    if columns is None and all(TRUTH.get(each, each) == str(column) for column, each in found.items()):
        return [str(column) for column in range(n_classes)]
    if columns is None:
        return [found[column] for column in range(n_classes)]
    names = {column: name for name, column in names_of(columns).items()}
    is_by_name = all(key(label) in names_of(columns) for label in labels)
    return [names[column] for column in range(n_classes)] if is_by_name else None
