"""Rows in two parts, to fit on one and to measure on the other: at random, by cluster or by time."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Flags, Indices
from refocal._groups import columns_of_table, names_of_column
from refocal._validation import check_number
from refocal.errors import DataError, FitWarning, ParameterError, warn
from refocal.rows.predictions import CheckedRows

CheckedRowsT = TypeVar("CheckedRowsT", bound=CheckedRows)
AT_RANDOM = "at random"


def split(
    predictions: CheckedRowsT, fraction: float = 0.5, *, seed: int = 0, time: Any = None
) -> tuple[CheckedRowsT, CheckedRowsT]:
    """Two disjoint parts, the first with `fraction` of the rows, every class within one row of that share.

    With several labels per row, rows with equally many labels are spread evenly. Rows of one cluster stay together, and
    `fraction` is then that of the clusters.

    With `time`, a number or a date for each row (dates may be texts such as "2026-01-31"), the first part has the
    earlier rows and the second the later ones, as the model will meet them. Rows of one time stay together, so that the
    first part has about `fraction` of the rows. Clusters with rows in both parts are counted in a warning.

    >>> from refocal.io import Predictions
    >>> rows = Predictions.from_logits(np.zeros((10, 2)), [0] * 6 + [1] * 4)
    >>> validation, test = split(rows, 0.5)
    >>> np.bincount(validation.labels), np.bincount(test.labels)
    (array([3, 2]), array([3, 2]))
    >>> day = ["2026-01-31", "2026-01-05", "2026-01-05", "2026-02-01", "2026-01-02"] * 2
    >>> earlier, later = split(rows, time=day)
    >>> earlier.numbers, later.numbers
    (array([1, 2, 4, 6, 7, 9]), array([0, 3, 5, 8]))
    """
    if not isinstance(predictions, CheckedRows):
        expected = "Predictions, as Predictions.from_logits or refocal.io.read makes them"
        raise ParameterError("predictions", "split", expected=expected, got=type(predictions).__name__)
    check_number(fraction, "fraction", "split", above=0.0, below=1.0)
    if time is not None:
        how = "by time"
        is_first = _earlier(time, len(predictions), fraction)
    elif predictions.clusters is not None:
        how = f"by {predictions.cluster_name}"
        is_first = _of_some_clusters(predictions.clusters, fraction, seed)
    else:
        how = AT_RANDOM
        is_first = _stratified(predictions, fraction, seed)
    rows = replace(predictions, source=replace(predictions.source, divided=how))
    first = rows.take(np.flatnonzero(is_first))
    second = rows.take(np.flatnonzero(~is_first))
    shared = shared_clusters(first, second)
    if shared:
        warn(f"split: {shared}", FitWarning)
    return first, second


def shared_clusters(first: CheckedRows, second: CheckedRows) -> str:
    """A sentence on clusters that have rows in both of two parts; empty where there are none, or none are known.

    >>> from refocal.io import Predictions
    >>> rows = Predictions.from_probabilities([0.2, 0.9, 0.4], [0, 1, 0])
    >>> first = rows.with_clusters({"patient": ["a", "b", "b"]})
    >>> shared_clusters(first, rows.with_clusters({"patient": ["c", "d", "a"]}))
    '1 of 3 clusters (patient) of the second part has rows in the first: what is fitted on it is also measured on it.'
    """
    if first.cluster_name != second.cluster_name:
        return ""
    names = _names_of_clusters(second)
    n_shared = int(np.isin(names, _names_of_clusters(first)).sum())
    if not n_shared:
        return ""
    have, them = ("has", "it") if n_shared == 1 else ("have", "them")
    which = f"{n_shared:,} of {len(names):,} clusters ({second.cluster_name})"
    again = f"what is fitted on {them} is also measured on {them}"
    return f"{which} of the second part {have} rows in the first: {again}."


def _names_of_clusters(rows: CheckedRows) -> NDArray[np.str_]:
    """The names of the clusters that occur among some rows; none where they are not known."""
    if rows.clusters is None or rows.cluster_names is None:
        return np.empty(0, dtype=np.str_)
    return rows.cluster_names[np.unique(rows.clusters)]


def _stratified(predictions: CheckedRows, fraction: float, seed: int) -> Flags:
    """Rows of the first part, at random, every class within one row of its share."""
    n = len(predictions)
    shuffled = np.random.default_rng(seed).permutation(n)
    kind = predictions.labels.reshape(n, -1).sum(axis=1)
    by_class = shuffled[np.argsort(kind[shuffled], kind="stable")]
    # Every (1/fraction)-th row of the classes laid end to end: no class can miss its share by a whole row.
    steps = np.floor(np.arange(n + 1) * fraction + 1e-9)
    is_chosen = np.diff(steps) > 0
    if not 0 < np.count_nonzero(is_chosen) < n:
        raise ParameterError("fraction", "split", expected=f"such that {n} rows give two parts", got=repr(fraction))
    is_first = np.zeros(n, dtype=np.bool_)
    is_first[by_class[is_chosen]] = True
    return is_first


def _of_some_clusters(clusters: Indices, fraction: float, seed: int) -> Flags:
    """Rows of the first part, which shares no cluster with the other: what is known of one must say nothing of both."""
    distinct, number = np.unique(clusters, return_inverse=True)
    n_first = round(fraction * len(distinct))
    if not 0 < n_first < len(distinct):
        expected = f"such that {len(distinct)} clusters give two parts"
        raise ParameterError("fraction", "split", expected=expected, got=repr(fraction))
    is_first = np.zeros(len(distinct), dtype=np.bool_)
    is_first[np.random.default_rng(seed).permutation(len(distinct))[:n_first]] = True
    return np.asarray(is_first[number])


def _earlier(time: Any, n_rows: int, fraction: float) -> Flags:
    """Rows up to the time at which the share of earlier rows is nearest to `fraction`."""
    rank = _ranks_of_times(time, n_rows)
    n_up_to = np.cumsum(np.bincount(rank))  # rows up to each of the distinct times
    if len(n_up_to) < 2:
        raise DataError("time", "split", expected="of at least two different ones", got="1")
    last = int(np.argmin(np.abs(n_up_to[:-1] - fraction * n_rows)))
    return np.asarray(rank <= last)


def _ranks_of_times(time: Any, n_rows: int) -> Indices:
    """The place of each row's time among the distinct ones, from 0 on, of numbers or of dates."""
    columns = columns_of_table(time)
    if columns is not None and len(columns) != 1:
        raise ParameterError("time", "split", expected="one column", got=f"{len(columns)} columns")
    column = time if columns is None else next(iter(columns.values()))
    texts = names_of_column(column, "time", n_rows, "time", "split", missing="")
    distinct, number = np.unique(texts, return_inverse=True)
    if distinct[0] == "":
        raise DataError(
            "time", "split", expected="known of every row", got=f"none in row {int(np.argmax(texts == ''))}"
        )
    are_whole = all(re.fullmatch(r"[+-]?\d+", text) for text in distinct.tolist())
    if are_whole:  # nanoseconds have more digits than a float
        _, rank = np.unique(np.array([int(text) for text in distinct.tolist()], dtype=object), return_inverse=True)
        return np.asarray(rank[number])
    try:
        times = distinct.astype(np.float64)
    except ValueError:
        # What is neither a number nor a date is to blame, not the numbers before it.
        in_turn = sorted(range(len(distinct)), key=lambda i: _is_number(str(distinct[i])))
        times = np.empty(len(distinct))
        for i in in_turn:
            times[i] = _seconds_of(str(distinct[i]))
    if not np.isfinite(times).all():
        bad = str(distinct[np.argmin(np.isfinite(times))])
        raise DataError("time", "split", expected="numbers or dates", got=repr(bad))
    _, rank = np.unique(times, return_inverse=True)
    return np.asarray(rank[number])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _seconds_of(text: str) -> float:
    """A date, or a date with a time of day, in seconds; a month is its first day, and no time zone is UTC.

    >>> _seconds_of("1970-02"), _seconds_of("1970-01-01T01:00:00+01:00")
    (2678400.0, 0.0)
    """
    for whole in (text, f"{text}-01"):
        try:
            moment = datetime.fromisoformat(whole)
        except ValueError:
            continue
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    expected = "numbers, or dates such as 2026-01-31 or 2026-01-31 14:30"
    raise DataError("time", "split", expected=expected, got=repr(text))
