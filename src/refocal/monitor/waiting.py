"""Predictions that wait for their labels, and the file that keeps them beside that of a monitor."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from refocal._files import replace_atomically
from refocal._groups import Groups, name_of
from refocal.errors import DataError, FormatError, InputWarning, LabelError, ShapeError, warn
from refocal.io.arrays import open_arrays
from refocal.monitor.period_sums import NO_GROUP
from refocal.monitor.periods import Key
from refocal.rows.label_errors import listed

WAITING_SUFFIX = ".waiting.npz"


class Waiting(NamedTuple):
    """A prediction that waits for its label."""

    key: Key
    p: Any
    groups: dict[str, str]
    counts: bool
    """Whether it was made since the last recalibration."""


def columns_of_groups(waiting: Sequence[Waiting]) -> Groups:
    """The groups of predictions that wait, by column: those of batches without such a column are in none of its groups.

    >>> batches = ({"region": "north"}, {})
    >>> columns_of_groups([Waiting("May", 0.5, groups, counts=True) for groups in batches])
    {'region': array(['north', ''], dtype='<U5')}
    """
    names = dict.fromkeys(name for entry in waiting for name in entry.groups)
    return {name: np.array([entry.groups.get(name, NO_GROUP) for entry in waiting]) for name in names}


def new_ids(ids: Iterable[Any], n_rows: int, waiting: Mapping[str, Waiting], function: str) -> list[str]:
    """The texts of ids, one for each row, which are all different and not among those that wait.

    >>> new_ids([1, 2.0], 2, {}, "f")
    ['1', '2']
    """
    names = [name_of(name) for name in ids]
    if len(names) != n_rows:
        raise ShapeError("ids", function, expected=f"{n_rows} ids, one for each row", got=f"{len(names)}")
    missing = next((row for row, name in enumerate(names) if name == ""), None)
    if missing is not None:
        raise DataError("ids", function, expected="known of every row", got=f"none in row {missing}")
    known: set[str] = set()
    for name in names:
        if name in waiting:
            expected = "none of predictions that wait, whose labels are for add_labels or --outcomes"
            raise DataError("ids", function, expected=expected, got=repr(name))
        if name in known:
            raise DataError("ids", function, expected="different for all rows", got=f"{name!r} twice")
        known.add(name)
    return names


def first_of_each_id(ids: Sequence[str], labels: Sequence[int], function: str) -> list[int]:
    """The place of each id among several; of one that is given twice the labels must agree.

    >>> first_of_each_id(["a", "b", "a"], [0, 1, 0], "f")
    [0, 1]
    """
    places: dict[str, int] = {}
    for i, name in enumerate(ids):
        first = places.setdefault(name, i)
        if labels[first] != labels[i]:
            raise LabelError("labels", function, expected="one for each id", got=f"different ones of {name!r}")
    return list(places.values())


def warn_of_unknown_ids(names: Sequence[str], matched: Collection[str], n_unknown: int, function: str) -> None:
    """Warn of labels of which the ids are not those of predictions that wait: `n_unknown` of the `names`."""
    unmatched = listed([name for name in dict.fromkeys(names) if name not in matched])
    unknown = f"{n_unknown:,} of {len(names):,} ids are not those of waiting predictions"
    text = f"{unknown}: {unmatched} ignored. A label that an id had before stays."
    warn(InputWarning(text, function=function))


def waiting_file(state: str | os.PathLike[str]) -> Path:
    """The file of the predictions that wait for labels: beside the file of the state itself, not beside a link to it.

    >>> waiting_file("state.east").name
    'state.east.waiting.npz'
    """
    path = Path(state).resolve()
    return path.with_name(path.name + WAITING_SUFFIX)


def write_waiting(file: Path, waiting: Mapping[str, Waiting], monitor: str) -> None:
    """Write predictions that wait, by id, whole or not at all; `monitor` is the id of theirs."""
    entries = [*waiting.values()]
    groups: dict[str, Any] = {f"group:{name}": column for name, column in columns_of_groups(entries).items()}
    with replace_atomically(file) as part, part.open("wb") as opened:
        np.savez(
            opened,
            monitor=monitor,
            ids=np.array(list(waiting)),
            periods=np.array([entry.key for entry in entries]),
            probabilities=np.array([entry.p for entry in entries]),
            counts=np.array([entry.counts for entry in entries]),
            **groups,
        )


def read_waiting(file: Path, monitor: str, n_waiting: int) -> dict[str, Waiting]:
    """The predictions that wait, by id; refused if they are those of another state."""
    contents = open_arrays(str(file))
    ids, keys, p = (np.asarray(contents.get(name)) for name in ("ids", "periods", "probabilities"))
    if not len(ids) == len(keys) == len(p):
        raise FormatError(f"{file.name} must hold as many ids as periods and probabilities.")
    if "monitor" in contents.names and str(np.asarray(contents.get("monitor"))) != monitor:
        raise FormatError(f"{file.name} holds the waiting predictions of another monitor.")
    if len(ids) != n_waiting:
        raise FormatError(f"{file.name} must hold {n_waiting:,} waiting predictions. Got {len(ids):,} instead.")
    counts = np.asarray(contents.get("counts")) if "counts" in contents.names else np.ones(len(ids), dtype=bool)
    columns = {
        name.removeprefix("group:"): np.asarray(contents.get(name))
        for name in contents.names
        if name.startswith("group:")
    }
    if any(len(values) != len(ids) for values in (counts, *columns.values())):
        raise FormatError(f"{file.name} must hold as many groups as ids.")
    made = {}
    for i, (name, key) in enumerate(zip(ids.tolist(), keys.tolist(), strict=True)):
        groups = {column: str(values[i]) for column, values in columns.items() if values[i] != NO_GROUP}
        made[name_of(str(name))] = Waiting(key, p[i], groups, counts=bool(counts[i]))
    return made


def waiting_beside(state: str | os.PathLike[str], monitor: str, n_waiting: int) -> dict[str, Waiting]:
    """The predictions that wait, of the file beside that of a state; a warning if it is missing."""
    if n_waiting == 0:
        return {}
    file = waiting_file(state)
    # Versions before 0.2.0 left out the ending of the state.
    older = Path(state).resolve().with_suffix(WAITING_SUFFIX)
    for each in (file, older):
        if each.is_file():
            return read_waiting(each, monitor, n_waiting)
    lost = f"{n_waiting:,} predictions wait for labels, but {file.name} is missing: they are lost."
    warn(InputWarning(lost, function="CalibrationMonitor.load"))
    return {}
