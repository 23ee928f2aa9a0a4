"""What a period is called, and which rows are of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from itertools import zip_longest
from typing import Any

import numpy as np

from refocal.errors import ParameterError, ShapeError
from refocal.rows import Predictions

Key = Any
"""The name of a period: a whole number or a text, all of a monitor of one kind. `in_order` says how they are sorted."""


def _calendar(full: str) -> dict[str, int]:
    """The place of each name, and of its first three letters."""
    places = {name: i for i, name in enumerate(full.split())}
    return {name[:3]: i for name, i in places.items()} | places


_MONTHS = _calendar("january february march april may june july august september october november december")
_WEEKDAYS = _calendar("monday tuesday wednesday thursday friday saturday sunday")


def in_order(key: Key) -> Any:
    """What periods are sorted by; the numbers in a text count as numbers, months and weekdays as in the calendar.

    >>> sorted(["day10", "day2", "2026-05-01", "day1"], key=in_order)
    ['2026-05-01', 'day1', 'day2', 'day10']
    >>> sorted(["Wed", "Mon", "Tue"], key=in_order), sorted(["0", "-2", "1", "-10"], key=in_order)
    (['Mon', 'Tue', 'Wed'], ['-10', '-2', '0', '1'])
    """
    if isinstance(key, int):
        return key
    if re.fullmatch("-[0-9]+", key):
        return [("", (int(key), ""))], key
    for names in (_MONTHS, _WEEKDAYS):
        if key.lower() in names:
            return [("", (0, "")), ("", (names[key.lower()], ""))], key
    # Text stands at even places and digits at odd ones; of two numbers the one with more digits is larger.
    parts = re.split("([0-9]+)", key)
    digits = [part.lstrip("0") for part in parts[1::2]]
    return [*zip_longest(parts[::2], [(len(each), each) for each in digits], fillvalue=(0, ""))], key


def period_key(period: Any, last: Key | None, function: str) -> Key:
    """The name of a period: a whole number, or text, as dates are. By default the next number.

    `last` is that of the last period before, if there is one, whose kind is that of all.
    """
    if period is None:
        period = last + 1 if isinstance(last, int) else 1
    elif isinstance(period, date):
        period = period.isoformat()
    elif isinstance(period, np.datetime64) and not np.isnat(period):
        period = str(np.datetime_as_string(period, unit="auto"))
    if isinstance(period, str) and _is_out_of_order(period):
        expected = "a date such as 2026-01-31 or 2026-01, or a text in whose order periods come"
        raise ParameterError("period", function, expected=expected, got=repr(period))
    is_whole = isinstance(period, (int, np.integer)) and not isinstance(period, bool)
    if not is_whole and not (isinstance(period, str) and period):
        raise ParameterError("period", function, expected="a text, a date or a whole number", got=repr(period))
    if last is not None and isinstance(last, int) != is_whole:
        kind = "text or dates" if is_whole else "whole numbers"
        raise ParameterError("period", function, expected=f"{kind}, as those before", got=repr(period))
    return int(period) if is_whole else period


def _is_out_of_order(period: str) -> bool:
    """Whether the text has a date whose order is not that of time.

    That is a year behind its month, quarter or week, a name of a month or of a weekday before it, or three numbers of
    two digits, of which the year may be the first or the last.

    >>> [_is_out_of_order(text) for text in ("31.12.2025", "12/2025", "Dec 2025", "2025-12-31-2015", "May", "v1.2.3")]
    [True, True, True, False, False, False]
    >>> [_is_out_of_order(text) for text in ("31.12.25", "1/31/26", "Q1 2026", "Fri 2026-01-02", "1.2.10", "Q1")]
    [True, True, True, True, False, False]
    """
    names = {*_MONTHS, "sept"}
    short_year = r"\d{1,2}/\d{1,2}/\d{2}(?![0-9])|\d\d([.-])\d\d\1\d\d(?![0-9.-])"
    part_before_year = r"(?i)(?:q|w|kw|cw|week|quarter)[ _-]*\d{1,2}[ ,_./-]+(?:19|20)\d{2}(?![0-9])"
    weekday_before = r"(?i)(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*[ ,_.-]+(?:19|20)\d{2}(?![0-9])"
    if any(re.match(pattern, period) for pattern in (short_year, part_before_year, weekday_before)):
        return True
    year_behind = r"(?<![0-9])(?<![0-9][./-])\d{1,2}[./-](?:\d{1,2}[./-])?(?:19|20)\d{2}(?![0-9])"
    has_year_behind = re.search(year_behind, period) is not None
    has_month = not names.isdisjoint(re.findall("[a-z]+", period.lower()))
    return has_year_behind or (has_month and re.search("[0-9]", period) is not None)


def keys_of_rows(
    period: Any, clusters: Iterable[Any] | None, n_rows: int, last: Key | None, function: str
) -> list[Key]:
    """The period of each row: that of the whole batch, unless `clusters` has one for each row."""
    if clusters is None:
        return [period_key(period, last, function)] * n_rows
    values = list(clusters)
    if len(values) != n_rows:
        raise ShapeError("clusters", function, expected=f"{n_rows} periods, one for each row", got=f"{len(values)}")
    known: dict[Any, Key] = {value: period_key(value, last, function) for value in dict.fromkeys(values)}
    return [known[value] for value in values]


def periods_of_clusters(rows: Predictions) -> list[Any] | None:
    """The name of the cluster of each row, as whole numbers where all are; None where rows have no such names."""
    if rows.clusters is None or rows.cluster_names is None:
        return None
    names: list[Any] = rows.cluster_names.tolist()
    if all(name.removeprefix("-").isdecimal() and str(int(name)) == name for name in names):
        names = [int(name) for name in names]
    return [names[number] for number in rows.clusters.tolist()]


def by_period(keys: list[Key], rows: Predictions) -> list[tuple[Key, Predictions]]:
    """The rows of each period."""
    distinct = [*dict.fromkeys(keys)]
    if len(distinct) == 1:
        return [(distinct[0], rows)]
    rows_of: dict[Key, list[int]] = {key: [] for key in distinct}
    for i, key in enumerate(keys):
        rows_of[key].append(i)
    return [(key, rows.take(np.array(numbers))) for key, numbers in rows_of.items()]
