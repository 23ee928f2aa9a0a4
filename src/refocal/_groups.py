"""The groups that rows belong to, by one or several columns, as text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import is_torch, to_numpy
from refocal.errors import ParameterError, ShapeError

UNNAMED = "group"
"""What one column of groups without a name is called."""
MISSING = "missing"
"""What rows without a group are called."""
MOST_GROUPS = 2000
Groups = dict[str, NDArray[np.str_]]
LABEL = "label"
"""The column of groups that has the labels of pooled rows of a multi-label model."""
_SECOND = 1_000_000_000
_NANOSECONDS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": _SECOND, "m": 60 * _SECOND, "h": 3600 * _SECOND}
_NANOSECONDS |= {"D": 86_400 * _SECOND, "W": 604_800 * _SECOND}
"""How many are in a unit of NumPy's durations."""


def as_groups(groups: Any, n_rows: int | tuple[int, ...], function: str) -> Groups:
    """Columns of groups by their names: of a mapping or a data frame, or of one array, which is called "group".

    `n_rows` is the shape of rows that had several axes, such as tokens (N, L): columns of it become one column, too.

    Text is the name of its group as it is: "1.0" and "1" are two groups, and "nan" is one. Numbers are named by their
    text, whole ones without a point: 1.0 and 1 are one group. None, an empty text, NaN among numbers, NaT, NA and
    masked entries are missing.

    >>> as_groups({"region": ["north", None], "age": [30.0, 50.0]}, 2, "f")["age"].tolist()
    ['30', '50']
    >>> as_groups(["a", "b"], 2, "f")
    {'group': array(['a', 'b'], dtype='<U1')}
    """
    return {name: _names(column, name, n_rows, function) for name, column in columns_of_groups(groups).items()}


def columns_of_groups(groups: Any) -> dict[str, Any]:
    """Columns of groups as they are, by their names; none of None.

    >>> columns_of_groups({"region": ["north"]}), columns_of_groups(["north"])
    ({'region': ['north']}, {'group': ['north']})
    """
    if groups is None:
        return {}
    columns = columns_of_table(groups)
    if columns is not None:
        return columns
    # A Series may have a name; that of a Dask array is one of Dask's own.
    name = getattr(groups, "name", None) if hasattr(groups, "to_frame") else None
    return {str(name or UNNAMED): groups}


def columns_of_table(table: Any) -> dict[str, Any] | None:
    """The columns of a mapping, or of a table of pandas, polars or Arrow, by their names; None of one column.

    >>> columns_of_table({"region": ["north"]}), columns_of_table(["north"])
    ({'region': ['north']}, None)
    """
    if isinstance(table, Mapping):
        names = list(table)
    elif hasattr(table, "to_pydict"):  # of Arrow, whose columns are arrays
        names = table.column_names
    elif hasattr(table, "columns"):
        names = list(table.columns)
    else:
        return None
    return {str(name): table[name] for name in names}


def _names(column: Any, name: str, n_rows: int | tuple[int, ...], function: str) -> NDArray[np.str_]:
    if isinstance(n_rows, tuple):
        column = exact(column).reshape(-1) if np.shape(column) == n_rows else column
        n_rows = math.prod(n_rows)
    made = names_of_column(column, name, n_rows, "groups", function)
    n_groups = len(np.unique(made))
    if n_groups > MOST_GROUPS:
        expected = f"of at most {MOST_GROUPS:,} groups in a column"
        raise ParameterError("groups", function, expected=expected, got=f"{n_groups:,} in {name!r}")
    return made


def names_of_column(
    column: Any, name: str, n_rows: int, argument: str, function: str, *, missing: str = MISSING
) -> NDArray[np.str_]:
    """The values of a column as text, by the rules of `as_groups`; what is `missing` is called so."""
    values = exact(column)
    if values.shape != (n_rows,):
        expected = f"of shape {(n_rows,)} in every column, one {argument.removesuffix('s')} for each row"
        raise ShapeError(argument, function, expected=expected, got=f"shape {values.shape} in {name!r}")
    if values.dtype.kind == "M":
        # By their own unit: as objects of Python, dates in nanoseconds would be integers.
        values = np.where(np.isnat(values), "", with_seconds(values).astype(np.str_))
    # Each value has its name by itself, whatever else is in its column: blocks of rows must agree.
    if values.dtype.kind in "fUm":
        distinct, place = np.unique(values, return_inverse=True)
        values = np.array([name_of(value) or missing for value in distinct])[place]
    elif values.dtype.kind not in "iub":
        values = np.array([name_of(value) or missing for value in values.tolist()])
    made: NDArray[np.str_] = values.astype(np.str_)
    return made


def as_column(column: Any) -> NDArray[Any]:
    """A column of any library as an array, in which masked entries, whose values NumPy would use, are missing.

    >>> as_column(np.ma.array([1, 2], mask=[False, True]))
    array([1, None], dtype=object)
    """
    if is_torch(column):
        return np.asarray(to_numpy(column))
    if not isinstance(column, np.ma.MaskedArray) or not np.ma.is_masked(column):
        return np.asarray(column)
    missing = {"f": np.nan, "m": "NaT", "M": "NaT"}.get(column.dtype.kind)
    values = np.array(column.data, dtype=object if missing is None else None)
    values[np.ma.getmaskarray(column)] = missing
    return values


def exact(column: Any) -> NDArray[Any]:
    """A column as an array.

    Large integers beside a missing value stay integers, which floats would round, and times of Arrow and polars keep
    their time zone, which NumPy's do not have.

    >>> exact(["a", 1.0, None])
    array(['a', 1.0, None], dtype=object)
    """
    if isinstance(column, (list, tuple)):  # NumPy would make text of None and of numbers that stand beside text
        return np.array(column, dtype=object)
    values = as_column(column)
    kind = str(getattr(column, "dtype", getattr(column, "type", ""))).lower()
    is_rounded = values.dtype.kind == "f" and "int" in kind and bool(np.any(np.abs(values) >= 2.0**53))
    loses_zone = values.dtype.kind == "M" and re.search("tz=|time_zone='", kind) is not None
    if not is_rounded and not loses_zone:
        return values
    listed = next((method for method in ("to_pylist", "to_list", "tolist") if hasattr(column, method)), None)
    return values if listed is None else np.array(getattr(column, listed)(), dtype=object)


def with_seconds(times: Any) -> Any:
    """Times of NumPy to the second where they are to the hour or minute, which would be other text; others as they are.

    >>> str(with_seconds(np.datetime64("2026-01-31T08"))), str(with_seconds(np.datetime64("2026-01-31")))
    ('2026-01-31T08:00:00', '2026-01-31')
    """
    return times.astype("datetime64[s]") if np.datetime_data(times.dtype)[0] in ("h", "m") else times


def name_of(value: Any) -> str:
    """A value as text, empty if missing.

    Whole numbers, which a missing one in their column makes floats, are written without a point.

    >>> name_of(1.0), name_of("1.0"), name_of(np.timedelta64(90, "s")), name_of(None)
    ('1', '1.0', '0 days 00:01:30', '')
    """
    if isinstance(value, bytes):
        value = text_of_cell(value)
    if isinstance(value, str):
        return without_time_of_day(str(value))
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return ""
    if isinstance(value, (timedelta, np.timedelta64)):
        return _duration(value)
    if isinstance(value, np.datetime64):
        return "" if np.isnat(value) else without_time_of_day(str(with_seconds(value)))
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if math.isnan(number):
            return ""
        # In its own precision: a third of float32 is 0.33333334, as in a text file.
        return str(int(number)) if number.is_integer() else str(value)
    return without_time_of_day(str(value))


def text_of_cell(cell: Any) -> str:
    r"""Bytes as the text that they are in UTF-8, or else in hexadecimal digits; a duration as groups are called by it.

    Anything else is as Python writes it.

    >>> text_of_cell(b"\xc3\xa9t\xc3\xa9"), text_of_cell(b"\xff\x00"), text_of_cell(timedelta(seconds=1))
    ('été', 'ff00', '0 days 00:00:01')
    """
    if isinstance(cell, timedelta):
        return _duration(cell)
    if not isinstance(cell, bytes):
        return str(cell)
    try:
        return cell.decode("utf-8")
    except UnicodeDecodeError:
        return cell.hex()


def _duration(value: timedelta | np.timedelta64) -> str:
    """A duration as pandas writes it, without zeros after the seconds; empty if missing.

    Those of NumPy in months, or in less than nanoseconds, are in their own words.

    >>> _duration(timedelta(hours=-1)), _duration(np.timedelta64(36, "h")), _duration(np.timedelta64(1500, "ms"))
    ('-1 days +23:00:00', '1 days 12:00:00', '0 days 00:00:01.5')
    """
    if isinstance(value, np.timedelta64):
        unit, step = np.datetime_data(value.dtype)
        if np.isnat(value):
            return ""
        if unit not in _NANOSECONDS:
            return str(value)
        nanoseconds = int(value.view(np.int64)) * step * _NANOSECONDS[unit]
    else:
        # Those of pandas have nanoseconds besides.
        nanoseconds = value // timedelta(microseconds=1) * 1000 + int(getattr(value, "nanoseconds", 0))
    days, rest = divmod(nanoseconds, _NANOSECONDS["D"])
    seconds, fraction = divmod(rest, _NANOSECONDS["s"])
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:09}"
    return without_time_of_day(f"{days} days {'+' if days < 0 else ''}{clock}")


def without_time_of_day(text: str) -> str:
    """A time as every format writes it: a day alone at midnight, no zeros after the seconds; other text as it is.

    A time of a time zone keeps its offset. A time without a day and a duration have no zeros after the seconds either.

    >>> [without_time_of_day(text) for text in ("2026-01-02T00:00:00.000", "2026-01-02 10:30:00.500", "2.0")]
    ['2026-01-02', '2026-01-02T10:30:00.5', '2.0']
    >>> without_time_of_day("08:00:00.000"), without_time_of_day("0 days 01:30:00.500000")
    ('08:00:00', '0 days 01:30:00.5')
    >>> without_time_of_day("2026-01-02 00:00:00+0100"), without_time_of_day("2026-01-02T08:00:00.000Z")
    ('2026-01-02T00:00:00+01:00', '2026-01-02T08:00:00+00:00')
    """
    if re.fullmatch(r"(-?\d+ days \+?)?\d\d:\d\d:\d\d\.\d+", text):
        return text.rstrip("0").rstrip(".")
    time_of_day = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(\.\d*)?(Z|[+-]\d\d:?\d\d)?")
    time = time_of_day.fullmatch(text)
    if time is None:
        return text
    day, clock, fraction, offset = time.groups()
    fraction = (fraction or "").rstrip("0").rstrip(".")
    if offset is not None:
        # Arrow writes an offset as +0100.
        return f"{day}T{clock}{fraction}" + ("+00:00" if offset == "Z" else f"{offset[:3]}:{offset[-2:]}")
    return day if clock == "00:00:00" and not fraction else f"{day}T{clock}{fraction}"
