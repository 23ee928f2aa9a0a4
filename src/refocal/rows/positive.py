"""Which of two classes is the positive one: columns and labels move together, so that it is the second."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from refocal.errors import DataError, LabelError, ParameterError
from refocal.rows.keys import BOOLEAN_NUMBERS, LabelKey, label_key, number_keys
from refocal.rows.label_errors import listed, missing_label
from refocal.rows.labels import LabelMap, LabelRule


class PositiveOrder(NamedTuple):
    """How labels of two classes, one of them positive, are read before columns and labels swap."""

    label_map: LabelMap
    names: tuple[str, ...] | None
    swaps: bool
    """Whether the positive class is column 0: columns and labels then move together, so that it is column 1."""


def order_with_positive(
    positive: Any, rule: LabelRule, distinct: Collection[Any], has_one_column: bool
) -> PositiveOrder:
    """How labels of two classes, one of them positive, are read; `distinct` are the distinct labels."""
    if rule.n_classes != 2:
        expected = f"left out: it is for two classes, and there are {rule.n_classes}"
        raise ParameterError("positive_label", rule.function, expected=expected, got=repr(positive))
    if rule.names is not None:
        named = _positive_of_named(positive, rule, distinct, rule.names)
        if named.swaps and has_one_column:
            raise other_class(positive, rule.names, rule.function)
        return named
    if not has_one_column and rule.by_whole_name([*distinct, positive]) is not None:
        return _positive_of_named(positive, replace(rule, names=rule.whole_names), distinct, rule.whole_names)
    return _positive_of_unnamed(positive, rule, distinct, has_one_column)


def other_class(positive: Any, names: Sequence[Any], function: str) -> ParameterError:
    """The error about one number per row that names and a positive label say to be about different classes."""
    expected = f"{str(names[1])!r} or left out: one number per row is about the second of class_names"
    got = f"{positive!r}, as if it were about the first"
    return ParameterError("positive_label", function, expected=expected, got=got)


def is_called_by_other(column: str, classes: Sequence[Any]) -> bool:
    """Whether one column, whose numbers are about the second of two classes, is called by the first.

    >>> is_called_by_other("p_late", ("late", "ok")), is_called_by_other("p_ok", ("late", "ok"))
    (True, False)
    >>> [is_called_by_other(column, (0, 1)) for column in ("prob_class_0", "p0", "P(False)", "0_prob", "p", "p1")]
    [True, True, True, True, False, False]
    """
    of_scores = r"(?:p|probs?|proba|probability|logits?|log_odds|scores?|class)"
    if len(classes) != 2 or re.fullmatch(of_scores, column, re.IGNORECASE):
        return False  # p is the usual name of such a column
    without_beginning = re.sub(rf"^(?:{of_scores}(?:[_.: ]|(?=\d+$)))+", "", column, flags=re.IGNORECASE)
    without_end = re.sub(rf"[_.: ]{of_scores}$", "", column, flags=re.IGNORECASE)
    within_brackets = re.sub(rf"^{of_scores}[(\[](.+)[)\]]$", r"\1", column, flags=re.IGNORECASE)
    called = {*number_keys([column, without_beginning, without_end, within_brackets])}
    first, second = number_keys(classes)
    return first in called and second not in called


def check_series(values: Any, classes: Sequence[Any] | None, argument: str, function: str) -> None:
    """Refuse a Series of one number per row, of pandas, polars or Dask, that is called by the first of two classes.

    Classes without names, None, are 0 and 1. A Series called by a number, or '0', may be the column of a frame without
    names, as it is in pandas or as pandas writes and reads it in CSV, and says nothing about these.
    """
    name = getattr(values, "name", None)
    if not isinstance(name, (str, bool, np.bool_)) or label_key(name) == 0:
        return
    known = (0, 1) if classes is None else classes
    if is_called_by_other(str(name), known):
        expected = f"about {str(known[1])!r}, the positive class, or without a name"
        raise DataError(argument, function, expected=expected, got=f"a Series called {name!r}, by the other class")


def _positive_of_named(
    positive: Any, rule: LabelRule, distinct: Collection[Any], names: Sequence[Any]
) -> PositiveOrder:
    """The order of columns with names: the positive label is a name, or a column number if labels are."""
    label_map = rule.decide(distinct)
    column = rule.by_name().column(positive)
    if column < 0 and label_map.columns is None:
        column = label_map.column(positive)
    if column < 0:
        expected = f"one of {' and '.join(repr(str(name)) for name in names)}"
        raise ParameterError("positive_label", rule.function, expected=expected, got=repr(positive))
    return PositiveOrder(label_map, tuple(str(name) for name in names), column == 0)


def _positive_of_unnamed(
    positive: Any, rule: LabelRule, distinct: Collection[Any], has_one_column: bool
) -> PositiveOrder:
    """The order of columns without names: labels count them, or name them, with the positive label as the second.

    One number per row is about the positive class, whatever the labels are.
    """
    keys = sorted({label_key(label) for label in distinct}, key=lambda key: (str(type(key)), key))
    if None in keys:
        raise missing_label(rule.argument, rule.function)
    wanted = label_key(positive)
    if wanted not in keys and keys and {*keys} <= {"True", "False"} and wanted in (0, 1):
        wanted = str(bool(wanted))
    if wanted not in keys and keys and {*keys} <= {0, 1} and wanted in ("True", "False"):
        wanted = BOOLEAN_NUMBERS[wanted]
    by_number = rule.by_number()
    counts = all(by_number.column(key) >= 0 for key in keys)
    if counts and not has_one_column and by_number.column(positive) >= 0:
        swaps = by_number.column(positive) == 0
        numbers = (by_number.first_label, by_number.first_label + 1)
        names = (str(numbers[0]), str(numbers[1]))
        return PositiveOrder(by_number, names if swaps or numbers != (0, 1) else None, swaps)
    # Where all labels are of one class, the other one of numbers and truths is not in doubt, and a word that is not the
    # positive one is the other class. A number may be a mark, or count otherwise, and is not.
    others: dict[LabelKey, LabelKey] = {0: 1, 1: 0, "True": "False", "False": "True"}
    is_known = wanted in keys or keys == [others.get(wanted)] or _is_other_word(keys, wanted)
    if len(keys) > 2 or not is_known:
        expected = f"of at most two kinds, one of them the positive {positive!r}"
        raise LabelError(rule.argument, rule.function, expected=expected, got=listed([repr(key) for key in keys]))
    negative = next((key for key in keys if key != wanted), others.get(wanted))
    columns: dict[LabelKey, int] = {wanted: 1} if negative is None else {negative: 0, wanted: 1}
    label_map = LabelMap(2, columns)
    if negative is None or (negative, wanted) == (0, 1):
        return PositiveOrder(label_map, None, swaps=False)
    return PositiveOrder(label_map, (str(negative), str(wanted)), swaps=False)


def _is_other_word(keys: Sequence[LabelKey], wanted: LabelKey) -> bool:
    """Whether all labels are one word that is plainly not the positive one, which may be written otherwise."""
    if len(keys) != 1 or not isinstance(keys[0], str) or not isinstance(wanted, str):
        return False
    if {keys[0], wanted} & {"True", "False"}:
        return False
    return keys[0].strip().casefold() != wanted.strip().casefold()
