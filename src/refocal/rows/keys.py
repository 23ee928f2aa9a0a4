"""What labels and names of columns are compared by, and the numbers that names contain."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from refocal._groups import without_time_of_day

LabelKey = int | str | None
"""What labels and names of columns are compared by; None is the key of a missing label."""

BOOLEAN_NUMBERS = {"True": 1, "False": 0}


def label_key(label: Any) -> LabelKey:
    """What a label, or the name of a column, is compared by: numbers and days are the same however they are written.

    >>> label_key(2.0) == label_key("2") == label_key(np.int8(2)) == 2
    True
    >>> label_key("2026-01-31") == label_key("2026-01-31 00:00:00") == label_key(np.datetime64("2026-01-31"))
    True
    >>> label_key("cat"), label_key(True), label_key("false"), label_key(2.5), label_key(None)
    ('cat', 'True', 'False', '2.5', None)
    """
    if isinstance(label, str):
        return _text_key(label)
    if isinstance(label, (bool, np.bool_)):
        return str(bool(label))
    if isinstance(label, (int, np.integer)):
        return int(label)
    if isinstance(label, (float, np.floating)):
        if math.isnan(label):
            return None
        return int(label) if float(label).is_integer() else repr(float(label))
    if isinstance(label, bytes):
        return _text_key(label.decode("utf-8", errors="backslashreplace"))
    text = str(label)
    return None if label is None or text in ("<NA>", "NaT") else _text_key(text)


def _text_key(text: str) -> LabelKey:
    if text == "":
        return None
    if re.fullmatch(r"[+-]?\d+(\.0*)?", text):
        return int(text.partition(".")[0])
    if text[0].isdigit():
        return without_time_of_day(text)
    return {"true": "True", "false": "False"}.get(text.lower(), text)


def categories_of(values: Any) -> tuple[Any, ...] | None:
    """The categories of a categorical column of pandas, polars or Dask, in their order; None of other values."""
    dtype: Any = getattr(values, "dtype", None)
    return tuple(dtype.categories) if type(dtype).__name__ in ("CategoricalDtype", "Enum") else None


def number_keys(names: Iterable[Any]) -> list[LabelKey]:
    """The keys of the names of columns, of which False and True are the numbers 0 and 1.

    >>> number_keys(["True", "False"]), number_keys(["p", "true"])
    ([1, 0], ['p', 1])
    """
    return [BOOLEAN_NUMBERS.get(str(key), key) for key in map(label_key, names)]


def order_of_numbers(names: Sequence[Any] | None) -> list[int] | None:
    """The positions of the columns called 0 … C-1, or False and True, among names; None if they are called otherwise.

    >>> order_of_numbers(["2", "0", "1"]), order_of_numbers(["True", "False"]), order_of_numbers(["cat", "dog"])
    ([1, 2, 0], [1, 0], None)
    """
    keys = number_keys(names or ())
    if not keys or {*keys} != {*range(len(keys))}:
        return None
    return [keys.index(number) for number in range(len(keys))]


def consecutive_numbers(keys: Sequence[LabelKey]) -> list[int] | None:
    """The keys of names of columns, if they are numbers of which none is left out, in any order; else None.

    >>> consecutive_numbers([2, 1]), consecutive_numbers([-1, 1]), consecutive_numbers([1, "other"])
    ([2, 1], None, None)
    """
    numbers = [key for key in keys if isinstance(key, int)]
    if not numbers or len(numbers) < len(keys) or {*numbers} != {*range(min(numbers), min(numbers) + len(keys))}:
        return None
    return numbers


def columns_by_number_within(names: Sequence[Any]) -> dict[LabelKey, int]:
    """The column of each number in the names of columns, where they differ in it alone, as c1 and c2 do; else none.

    False and True are 0 and 1, as in P(False) and P(True).

    >>> columns_by_number_within(("1_prob", "0_prob")), columns_by_number_within(("p", "q"))
    ({1: 0, 0: 1}, {})
    """
    whole = r"(?<!\d)(?<!\d\.)\d+(?:\.0*)?(?!\.?\d)|true|false"
    with_sign = rf"[+-]?(?:{whole})"  # as in -1_score
    for number in (whole, with_sign):
        texts = [_texts_beside(str(name), number) for name in names]
        shared = set.intersection(*map(set, texts)) if texts else set()
        columns = {text[beside]: i for i, text in enumerate(texts) for beside in shared}
        if len(shared) == 1 and len(columns) == len(texts):
            return columns
    return {}


def _texts_beside(name: str, number: str) -> dict[tuple[str, str], LabelKey]:
    """Each number in a name, by what stands before and after it.

    >>> _texts_beside("m1_class2", "[0-9]+")
    {('m', '_class2'): 1, ('m1_class', ''): 2}
    """
    found_at = re.finditer(number, name, re.IGNORECASE)
    return {(name[: at.start()], name[at.end() :]): number_keys([at.group()])[0] for at in found_at}
