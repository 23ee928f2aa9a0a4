"""What a monitor keeps in its file, and what two of them must have in common to be merged."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from refocal._json import build, without_format
from refocal.errors import DataError, FormatError, Remedy
from refocal.monitor.history import History
from refocal.monitor.periods import PLAIN_NUMBERS, differently_worded, of_two_orders
from refocal.rows.keys import number_keys
from refocal.rows.labels import LabelRule

FORMAT = "refocal-monitor"
VERSION = 2


@dataclass(frozen=True)
class MonitorState:
    """The fields of a monitor in a file."""

    alpha: float
    smallest_shift: float
    level: float
    n_classes: int | None
    n_waiting: int
    history: History
    class_names: list[str] | None = None
    """In the order of the columns; of two the second is the positive class."""
    id: str = ""
    merged: dict[str, int] = field(default_factory=dict)
    labels_by_name: bool | None = None
    enough_labels: float = 0.5
    positive_label: str | None = None
    """What the positive class of two is called, where the other one has no name yet."""
    columns_moved: bool | None = None
    """See `CalibrationMonitor.columns_moved`; older states do not tell."""
    whole_names: list[str] | None = None
    """The names of the columns with the beginning that they share."""
    calibrated_by: str | None = None
    """A digest of the calibrator of all batches, '' where they have none; None where it is not known."""
    group_columns: list[str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON, with the format and its version."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}

    @classmethod
    def of_file(cls, data: Any) -> MonitorState:
        """What a file holds; refused if no monitor can have written it.

        A state with rows but without an id gets one.
        """
        values = without_format(data, "a monitor", FORMAT, VERSION)
        state = build(cls, values, "monitor")
        state.history.check()
        if state.n_classes is not None and state.n_classes < 2:
            raise FormatError("'n_classes' must be at least 2.")
        names = state.class_names
        if names is not None and not len(names) == len(set(names)) == state.n_classes:
            raise FormatError("'class_names' must be as many different ones as 'n_classes'.")
        whole = state.whole_names
        if whole is not None and (names is None or not len(whole) == len(set(whole)) == len(names)):
            raise FormatError("'whole_names' must be as many different ones as 'class_names'.")
        if any(count < 0 for count in state.merged.values()):
            raise FormatError("'merged' must have counts of rows, of 0 or more.")
        if not state.id and state.history.n_rows > 0:
            return replace(state, id=_id_of_content(values))
        return state


def check_mergeable(state: MonitorState, other: MonitorState, function: str) -> None:
    """Refuse a monitor of other classes, labels, periods, calibrators or groups, or with rows that this one has."""
    if None not in (state.n_classes, other.n_classes) and state.n_classes != other.n_classes:
        expected = f"a monitor of {state.n_classes} classes"
        raise DataError("other", function, expected=expected, got=f"one of {other.n_classes}")
    ours = ", ".join(_order_of_classes(state, other))
    theirs = ", ".join(_order_of_classes(other, state))
    if ours and theirs and ours != theirs:
        raise DataError("other", function, expected=f"a monitor of the classes {ours}", got=f"one of {theirs}")
    positive = [_positive_of(state), _positive_of(other)]
    if None not in positive and len({*number_keys(positive)}) > 1:
        expected = f"a monitor whose positive class is {positive[0]!r}"
        raise DataError("other", function, expected=expected, got=f"one where it is {positive[1]!r}")
    _check_other_rows(state, other, function)
    _check_same_options(state, other, function)
    class_names = state.class_names or other.class_names
    if class_names is not None and LabelRule(len(class_names), tuple(class_names)).needs_distinct:
        ways = {state.labels_by_name, other.labels_by_name}
        if ways >= {True, False}:
            expected = "a monitor whose labels were read in the same way"
            got = "labels read by the names of columns in one and as column numbers in the other"
            raise DataError("other", function, expected=expected, got=got)
    periods = (*state.history.periods, *other.history.periods)
    if len({type(period.first) for period in periods}) > 1:
        expected = "a monitor whose periods are of the same kind"
        raise DataError("other", function, expected=expected, got="whole numbers in one and text in the other")
    keys = [period.first for period in state.history.periods]
    other_keys = [period.first for period in other.history.periods]
    unlike = differently_worded([*keys, *other_keys])
    if keys and other_keys and {*keys} != {*other_keys} and unlike is not None:
        expected = "a monitor of the same periods, or all periods dates or texts that differ in their numbers alone"
        raise DataError("other", function, expected=expected, got=f"{unlike[0]!r} and {unlike[1]!r}")
    pair = of_two_orders([*keys, *other_keys])
    if pair is not None:
        expected = f"a monitor of periods in one order with these: {PLAIN_NUMBERS}"
        raise DataError("other", function, expected=expected, got=f"{pair[0]!r} and {pair[1]!r}")
    is_independent = state.history.independent
    if is_independent != other.history.independent and state.history.n_rows > 0:
        expected = "a monitor of rows that are independent, as these" if is_independent else "one of whole periods"
        raise DataError("other", function, expected=expected, got=f"independent={other.history.independent}")


def _order_of_classes(state: MonitorState, other: MonitorState) -> list[str]:
    """The names of the columns; where those of another monitor are numbers, also those of columns without names."""
    if state.class_names is not None:
        return state.class_names
    counted = [str(i) for i in range(state.n_classes or 0)]
    return counted if other.class_names is not None and {*other.class_names} == {*counted} else []


def _positive_of(state: MonitorState) -> str | None:
    """What the positive class of two is called, if it has a name."""
    if state.class_names is None:
        return state.positive_label
    return state.class_names[1] if len(state.class_names) == 2 else None


def _check_other_rows(state: MonitorState, other: MonitorState, function: str) -> None:
    """Refuse a monitor some of whose rows this one has already."""
    expected = "a monitor whose rows are not in this one"
    if other.id == state.id:
        raise DataError("other", function, expected=expected, got="the same monitor")
    twice = sorted(({state.id} | state.merged.keys()) & ({other.id} | other.merged.keys()))
    if not twice:
        return
    now = other.history.n_rows
    if twice == [other.id]:
        got = f"one that was merged when it had {state.merged[other.id]:,} labelled rows, and has {now:,} now"
    else:
        got = f"one that has rows of the same monitor {twice[0][:8]} as this one"
    raise DataError("other", function, expected=expected, got=got, remedy=Remedy.MERGE_ONCE)


def _check_same_options(state: MonitorState, other: MonitorState, function: str) -> None:
    """Refuse a monitor of another calibrator, or without some columns of groups of this one, where both are known.

    As a batch it may have further groups.
    """
    ours, theirs = state.calibrated_by, other.calibrated_by
    if None not in (ours, theirs) and ours != theirs:
        expected = "a monitor of rows without a calibrator" if ours == "" else "a monitor of the same calibrator"
        got = "one of rows without a calibrator" if theirs == "" else "one of another calibrator"
        raise DataError("other", function, expected=f"{expected}, as this one", got=got)
    if other.group_columns is not None and not {*(state.group_columns or ())} <= {*other.group_columns}:
        expected = f"a monitor of the groups {', '.join(state.group_columns or ())}, as this one"
        got = f"one of {', '.join(other.group_columns) or 'none'}"
        raise DataError("other", function, expected=expected, got=got)


def _id_of_content(values: dict[str, Any]) -> str:
    """The id of a file that has none: copies of the file have the same one."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]
