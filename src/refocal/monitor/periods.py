"""What a period is called, and which rows are of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np

from refocal._clusters import column_of_clusters
from refocal._groups import with_seconds, without_time_of_day
from refocal.errors import ParameterError, ShapeError
from refocal.rows import Predictions

Key = Any
"""The name of a period: a whole number or a text, all of a monitor of one kind. `in_order` says how they are sorted."""


def _calendar(full: str) -> dict[str, int]:
    """The place of each name, and of its first three letters."""
    places = {name: i for i, name in enumerate(full.split())}
    return {name[:3]: i for name, i in places.items()} | places


PLAIN_NUMBERS = "decimals with as many digits each, such as 0.25 and 0.50, or dates with the year first"
"""The numbers in texts whose order is plain."""
_MONTHS = _calendar("january february march april may june july august september october november december")
_WEEKDAYS = _calendar("monday tuesday wednesday thursday friday saturday sunday")


_DECIMAL = re.compile(r"(^-[0-9]+(?:[.,][0-9]+)?|(?<![0-9.,])[0-9]+(?:[.,][0-9]+)?)(?![0-9]|[.,][0-9])")
"""A number that may be a decimal, but not one of several between points, as in a date; with a sign in front alone."""
_VERSION = re.compile(r"(?<![a-z])(?:v|ver|version|rel|release)[ ._-]*$", re.IGNORECASE)
"""What stands before the number of a version."""


def in_order(key: Key) -> Any:
    """What periods are sorted by; the numbers in a text count as numbers, months and weekdays as in the calendar.

    Dates are sorted by year, month and day however these are separated, and times with an offset by the instant.

    >>> sorted(["day10", "day2", "2026-05-01", "day1"], key=in_order)
    ['2026-05-01', 'day1', 'day2', 'day10']
    >>> sorted(["Wed", "Mon", "Tue"], key=in_order), sorted(["0", "-2", "1", "-10"], key=in_order)
    (['Mon', 'Tue', 'Wed'], ['-10', '-2', '0', '1'])
    >>> sorted(["2026-02-01", "20260115", "2026-01-20T08:00+09:00", "2026-01-20T00:00Z"], key=in_order)
    ['20260115', '2026-01-20T08:00+09:00', '2026-01-20T00:00Z', '2026-02-01']
    """
    if isinstance(key, int):
        return key
    if re.fullmatch("-[0-9]+", key):
        return [("", (int(key), ""))], key
    for names in (_MONTHS, _WEEKDAYS):
        if key.lower() in names:
            return [("", (0, "")), ("", (names[key.lower()], ""))], key
    # Text stands at even places and digits at odd ones; of two numbers the one with more digits is larger.
    parts = re.split("([0-9]+)", _with_plain_dates(key))
    digits = [part.lstrip("0") for part in parts[1::2]]
    return [*zip_longest(parts[::2], [(len(each), each) for each in digits], fillvalue=(0, ""))], key


def _with_plain_dates(text: str) -> str:
    """The text with its date as 2026-01-31, and with a time as that of UTC where it has an offset.

    Fractions of a second have nine digits, as whose number they are sorted.

    >>> [_with_plain_dates(text) for text in ("scores_20260131", "2026/01/31", "2026-02-01T08:00+09:00")]
    ['scores_2026-01-31', '2026-01-31', '2026-01-31 23:00:00']
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is not None and moment.tzinfo is not None:
        text = str(moment.astimezone(UTC).replace(tzinfo=None))
    text = re.sub(r"(?<=:\d\d:\d\d)\.\d{1,9}(?!\d)", lambda fraction: fraction.group().ljust(10, "0"), text)
    text = re.sub(r"(?<![0-9])((?:19|20)\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?![0-9])", r"\1-\2-\3", text)
    text = re.sub(r"(?<![0-9])((?:19|20)\d\d)[./](\d{1,2})(?:[./](\d{1,2}))?(?![0-9])", _dashed, text)
    return re.sub(r"(?<=\d-\d\d)T(?=\d)", " ", text)


def _dashed(match: re.Match[str]) -> str:
    """The numbers of a date with dashes between them."""
    return "-".join(number for number in match.groups() if number)


def period_key(period: Any, last: Key | None, function: str) -> Key:
    """The name of a period: a whole number or a text, which dates become. By default the next whole number.

    Midnight is written as its day, and times as those of clusters are, whatever their type. `last` is the name of the
    last period, if there is one: all names are of its kind, numbers or text.
    """
    if period is None:
        period = last + 1 if isinstance(last, int) else 1
    elif isinstance(period, date) and period == period:  # NaT of pandas is a date that does not equal itself
        period = period.isoformat()
    elif isinstance(period, np.datetime64) and not np.isnat(period):
        period = str(with_seconds(period))
    if isinstance(period, str):
        period = without_time_of_day(period)
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
    """Whether the text has a date that is not sorted in the order of time.

    Such are a year behind its day, month, quarter, half or week; a day before its month; the name of a month beside a
    number; a weekday before the year; three numbers of two digits, since the year may be the first or the last; and a
    time of twelve hours. Other words are compared with those of other periods: see `check_order`.

    >>> [_is_out_of_order(text) for text in ("31.12.2025", "12/2025", "Dec 2025", "2025-12-31-2015", "May", "v1.2.3")]
    [True, True, True, False, False, False]
    >>> [_is_out_of_order(text) for text in ("31.12.25", "1/31/26", "Q1 2026", "Fri 2026-01-02", "1.2.10", "Q1")]
    [True, True, True, True, False, False]
    >>> [_is_out_of_order(text) for text in ("31/12", "31122025", "1H2026", "9:00 PM", "20251231", "12-31")]
    [True, True, True, True, False, False]
    """
    year = r"(?:19|20)\d{2}(?![0-9])"
    prefix = r"(?:[a-z]+[ _-]+)?"
    ending = r"(?:st|nd|rd|th|[.])?"  # codespell:ignore nd
    patterns_at_start = (
        r"\d{1,2}/\d{1,2}/\d{2}(?![0-9])|\d\d([.-])\d\d\1\d\d(?![0-9.-])",  # 31.12.25
        r"\d{1,2}/\d{1,2}$|\d{1,2}\.\d{1,2}\.$|(?:1[3-9]|2\d|3[01])[.-](?:0[1-9]|1[0-2])$",  # 31/12, 1.2., 31-12
        rf"{prefix}(?:q|h|s|t|w|kw|cw|week|quarter|half)[ _-]*\d{{1,2}}[ ,_./-]+{year}",  # week 3, 2026
        rf"{prefix}(?:q|h|quarter|half)[ _-]*[1-4](?:{year}|[ _'/-]+\d{{2}}(?![0-9]))",  # Q12026, Q1-26
        rf"{prefix}[1-4]{ending}[ _-]*(?:q|h|quart|half|trimest|semest)[a-z]*[ ._'/-]*(?:{year}|\d{{2}}$)",  # 1st H 26
        rf"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*[ ,_.-]+{year}",
    )
    if any(re.match(pattern, period, re.IGNORECASE) for pattern in patterns_at_start):
        return True
    patterns = (
        rf"(?<![0-9])(?<![0-9][./-])\d{{1,2}}[./-](?:\d{{1,2}}[./-])?{year}",  # 31.12.2025, 12/2025
        rf"(?<![0-9])(?:(?:0[1-9]|[12]\d|3[01])(?:0[1-9]|1[0-2])|(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])){year}",
        r"\d ?[ap]\.?m\b",  # 9:00 PM
    )
    if any(re.search(pattern, period, re.IGNORECASE) for pattern in patterns):
        return True
    words = {*re.findall(r"[^\W\d_]+", period.lower())}
    has_digits = re.search("[0-9]", period) is not None
    return has_digits and not words.isdisjoint({*_MONTHS, "sept"})


def keys_of_rows(period: Any, clusters: Any, n_rows: int, last: Key | None, function: str) -> list[Key]:
    """The period of each row: that of the whole batch, unless `clusters` has one for each row."""
    if clusters is None:
        return [period_key(period, last, function)] * n_rows
    _, column = column_of_clusters(clusters, function)
    values = column.to_pylist() if hasattr(column, "to_pylist") else list(column)  # of Arrow
    if len(values) != n_rows:
        raise ShapeError("clusters", function, expected=f"{n_rows} periods, one for each row", got=f"{len(values)}")
    known: dict[Any, Key] = {value: period_key(value, last, function) for value in dict.fromkeys(values)}
    return [known[value] for value in values]


def check_order(together: Iterable[Key], known: Sequence[Key], function: str) -> None:
    """Refuse periods whose order in time is known neither from their texts nor from the order in which they come.

    Texts that differ in their numbers alone are in the order of the numbers, unless these may be decimals. The only
    words with a known order are English months and weekdays. Periods with other words are refused if they come
    `together`, in one call or command. One that comes after the `known` periods may have words of its own, if it is
    sorted behind the last of them.

    >>> check_order(["day10", "day2"], [], "f")
    >>> check_order(["Lundi"], [], "f")
    >>> check_order(["Jeudi"], ["Lundi"], "f")
    Traceback (most recent call last):
    refocal.errors.ParameterError: The 'period' of f must be a date, or a text that is sorted behind 'Lundi' or ...
    """
    distinct = [*dict.fromkeys(together)]
    unlike = differently_worded(distinct)
    if unlike is not None:
        expected = "dates, whole numbers, or texts that differ in their numbers alone where several come together"
        raise ParameterError("period", function, expected=expected, got=f"{unlike[0]!r} and {unlike[1]!r}")
    pair = of_two_orders([*known, *distinct])
    if pair is not None:
        expected = f"dates, whole numbers, or {PLAIN_NUMBERS}"
        raise ParameterError("period", function, expected=expected, got=f"{pair[0]!r} and {pair[1]!r}")
    if not known:
        return
    last = known[-1]
    for key in distinct:
        is_behind = key in known or in_order(key) >= in_order(last)
        if not is_behind and differently_worded([key, last]) is not None:
            expected = f"a date, or a text that is sorted behind {last!r} or differs from it in its numbers alone"
            raise ParameterError("period", function, expected=expected, got=repr(key))


def differently_worded(keys: Sequence[Key]) -> tuple[Key, Key] | None:
    """Two of some periods that differ in more than their numbers, so that their order is not known; None if none do.

    A text may go on where another one ends, as a time of a day does.

    >>> differently_worded(["2026-01-31", "2026-01-31 09:00", "2026-02"]), differently_worded(["Lundi", "Jeudi"])
    (None, ('Lundi', 'Jeudi'))
    """
    if len(keys) < 2:
        return None
    longest = max(keys, key=lambda key: len(_wording(key)))
    whole = _wording(longest)
    for key in keys:
        wording = _wording(key)
        if wording != whole[: len(wording)]:
            return longest, key
    return None


def _wording(key: Key) -> tuple[str, ...]:
    """What a text has before, between and behind its numbers; months have one wording, and weekdays another.

    >>> _wording("scores_20260131"), _wording("2026/01"), _wording("May") == _wording("june")
    (('scores_', '-', '-'), ('', '-'), True)
    """
    if isinstance(key, int) or re.fullmatch("-[0-9]+", key):
        return ("",)
    for names, kind in ((_MONTHS, "month"), (_WEEKDAYS, "weekday")):
        if key.lower() in names:
            return (kind,)
    parts = re.split("[0-9]+", _with_plain_dates(key))
    if len(parts) > 1 and parts[-1] == "":
        parts = parts[:-1]
    return tuple(parts)


def of_two_orders(keys: Sequence[Key]) -> tuple[Key, Key] | None:
    """Two periods whose numbers may be read so that their order is not that of `in_order`; None if there are none."""
    return _decimals_of_two_orders(keys) or _days_of_two_orders(keys)


def _decimals_of_two_orders(keys: Sequence[Key]) -> tuple[Key, Key] | None:
    """Two texts that differ in a decimal first, whose order as numbers is not that of `in_order`; None if none do.

    1.25 is before 1.5, but version 1.10 after 1.9: v1.9 and v1.10 are plainly versions.

    >>> _decimals_of_two_orders(["2025.25", "2025.75", "2026"]), _decimals_of_two_orders(["1.25", "1.5"])
    (None, ('1.5', '1.25'))
    >>> _decimals_of_two_orders(["q2025.25", "q2025.5"]), _decimals_of_two_orders(["v1.9", "v1.10", "8:00:00.5"])
    (('q2025.5', 'q2025.25'), None)
    """
    texts = sorted({key for key in keys if isinstance(key, str)}, key=in_order)
    alike: dict[tuple[str, ...], list[tuple[Key, list[str]]]] = {}
    for text in texts:
        parts = _DECIMAL.split(text)
        alike.setdefault(tuple(parts[::2]), []).append((text, parts[1::2]))
    for wording, periods in alike.items():
        for (first, numbers), (second, others) in pairwise(periods):
            place = next((i for i in range(len(numbers)) if numbers[i] != others[i]), None)
            if place is None or _VERSION.search(wording[place]) is not None:
                continue
            pair = (numbers[place].replace(",", "."), others[place].replace(",", "."))
            if "." in "".join(pair) and float(pair[0]) > float(pair[1]):
                return first, second
    return None


def _days_of_two_orders(keys: Sequence[Key]) -> tuple[Key, Key] | None:
    """Two numbers of six digits that are plainly dates with the year behind, in another order; None if there are none.

    All of them are dates that way, and lie closer together than as dates with the year first.

    >>> _days_of_two_orders(["311225", "010126"]), _days_of_two_orders(["251231", "260101"])
    (('010126', '311225'), None)
    """
    six_digits = re.compile(r"[^0-9]*([0-9]{6})[^0-9]*")
    texts = {key: f"{key:06}" if isinstance(key, int) else key for key in keys}
    matches = {key: six_digits.fullmatch(text) for key, text in texts.items()}
    in_turn = sorted((key for key, match in matches.items() if match is not None), key=in_order)
    numbers = [match[1] for match in (matches[key] for key in in_turn) if match is not None]
    if len(numbers) < 2:
        return None
    year_first = _days(numbers, "%y%m%d")
    for form in ("%d%m%y", "%m%d%y"):
        days = _days(numbers, form)
        if days is None or (year_first is not None and max(year_first) - min(year_first) <= max(days) - min(days)):
            continue
        for i, (day, later) in enumerate(pairwise(days)):
            if day > later:
                return in_turn[i], in_turn[i + 1]
    return None


def _days(numbers: Sequence[str], form: str) -> list[int] | None:
    """The days, counted from one in the past, that numbers of six digits are; None if some are no dates."""
    try:
        return [datetime.strptime(number, form).toordinal() for number in numbers]
    except ValueError:
        return None


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
