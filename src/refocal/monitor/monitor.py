"""The monitor: batches in, sums kept, an alarm and advice out."""

from __future__ import annotations

import json
import math
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from refocal._arrays import as_array, in_single, is_bfloat16, to_numpy
from refocal._files import write_atomically
from refocal._groups import as_groups, name_of
from refocal._json import read_json
from refocal._validation import check_integer, check_number, check_shape, without_rounding_of_sums
from refocal.errors import DataError, FormatError, InputWarning, ParameterError, ShapeError, warn
from refocal.metrics.inputs import read_probabilities
from refocal.monitor.advice import (
    Advice,
    ExpectedPerformance,
    PresentState,
    Trust,
    advise,
    expected_performance,
    present_state,
    trust_of,
)
from refocal.monitor.batches import (
    UncheckedBatch,
    batch_of_array,
    batch_of_predictions,
    read_with_names,
    read_without_names,
)
from refocal.monitor.columns import KnownColumns, either_moved
from refocal.monitor.history import LARGEST_LOG_E, Alarm, History, LabelledPart
from refocal.monitor.period_sums import WindowSummary, summary_of
from refocal.monitor.periods import Key, by_period, check_order, keys_of_rows, periods_of_clusters
from refocal.monitor.state import MonitorState, check_mergeable
from refocal.monitor.waiting import (
    Waiting,
    columns_of_groups,
    first_of_each_id,
    new_ids,
    waiting_beside,
    waiting_file,
    warn_of_unknown_ids,
    write_waiting,
)
from refocal.rows import Predictions
from refocal.rows.class_names import names_in_order
from refocal.rows.labels import raw_labels
from refocal.rows.scores import as_scores


class CalibrationMonitor:
    """Watches probabilities in production: of class 1 of two, or of the top class of more.

    Labels may come with a batch or later, matched by id. Only sums per period (a day, an hour, a batch) are kept, so
    monitors of several machines or regions can be merged. The evidence is an e-process of whole periods, since rows
    that share a day are alike: for a calibrated model the probability that an alarm is ever raised is at most `alpha`,
    however often it is inspected and whatever the rows of a period share, if that is as often too high as too low.

    Parameters
    ----------
    alpha : float
        The probability of a false alarm, over all time.
    smallest_shift : float
        Calibration errors below this are not worth recalibrating, however certain they are.
    level : float
        Of the intervals.
    class_names : sequence of str, optional
        The names of the columns, of two the positive class second. By default those of the first batch, or its
        numbers where its `first_label` is not 0; columns that get names after rows without names have come must be
        named here.
    independent : bool
        Whether rows are independent even within a period: then an earlier alarm is possible, and where it is not true,
        false alarms are.
    enough_labels : float
        A period whose labels come late enters the test when this share of its rows has labels. Further labels count in
        the test only while no other period has entered.

    Attributes
    ----------
    class_names : tuple of str or None
        The names of the columns: `refocal monitor` matches those of the next batch with them.
    calibrated_by : str or None
        What `refocal monitor` knows the calibrator of all batches by: '' if they have none, None if that is unknown.
    group_columns : tuple of str or None
        The columns of groups that `refocal monitor` watches; None where they are not known.
    id : str
        What a state is known by, whatever its file is called: the rows of a monitor are merged into another once.
    merged : dict
        The ids of all monitors whose rows this one has, and how many labelled rows each had when it was merged.
    alarms : list of Alarm
        All alarms, as they were when they were raised; `restart` acknowledges them.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> monitor = CalibrationMonitor()
    >>> for day in range(1, 41):
    ...     p = rng.beta(1, 3, 500)
    ...     shift = 0.1 if day > 10 else 0.0
    ...     _ = monitor.update(p, rng.random(500) < p + shift, period=f"day {day:02}")
    >>> monitor.alarm, monitor.alarms[0].since, monitor.advice().action
    ('day 23', 'day 11', 'recalibrate')
    """

    def __init__(
        self,
        *,
        alpha: float = 0.05,
        smallest_shift: float = 0.005,
        level: float = 0.95,
        class_names: Sequence[str] | None = None,
        independent: bool = False,
        enough_labels: float = 0.5,
    ) -> None:
        name = type(self).__name__
        self.alpha = check_number(alpha, "alpha", name, above=0.0, below=1.0)
        self.smallest_shift = check_number(smallest_shift, "smallest_shift", name, least=0.0)
        self.level = check_number(level, "level", name, above=0.0, below=1.0)
        names = None if class_names is None else tuple(map(str, names_in_order(class_names, name)))
        self.n_classes: int | None = None if names is None else len(names)
        self.class_names: tuple[str, ...] | None = names
        if names is not None and not 2 <= len(names) == len({*names}):
            raise ParameterError("class_names", name, expected="two different names or more", got=", ".join(names))
        self.whole_names: tuple[str, ...] | None = None
        """The names of the columns with the beginning that they share, such as p_cat, which later labels may be too."""
        self.labels_by_name: bool | None = None
        """Whether labels of named columns were read by name so far; None where none have come."""
        self.positive_label: str | None = None
        """What the positive class of two was said to be called, where the other one has no name yet."""
        self.columns_moved: bool | None = False
        """Whether a batch had its columns in another order than `class_names`; None where a state does not tell."""
        self.calibrated_by: str | None = None
        self.group_columns: tuple[str, ...] | None = None
        self.id = uuid.uuid4().hex
        self.merged: dict[str, int] = {}
        self.enough_labels = check_number(enough_labels, "enough_labels", name, least=0.0, most=1.0)
        self._history = History(independent=bool(independent))
        self._waiting: dict[str, Waiting] = {}
        self._gathered: list[LabelledPart] | None = None
        """The labelled rows of batches that enter the test together; None where each enters by itself."""
        self._keys_together: list[Key] = []
        """The periods of these batches."""

    @property
    def independent(self) -> bool:
        """Whether rows were declared independent."""
        return self._history.independent

    @property
    def alarms(self) -> list[Alarm]:
        """All alarms, those of merged monitors too, as they were when they were raised."""
        return [*self._history.alarms]

    @property
    def n_waiting(self) -> int:
        """How many predictions have no label yet."""
        return len(self._waiting)

    def update(
        self,
        probabilities: Any,
        labels: Any = None,
        *,
        ids: Any = None,
        period: Any = None,
        clusters: Any = None,
        groups: Any = None,
    ) -> int:
        """Add a batch; returns the number of labelled rows added.

        Parameters
        ----------
        probabilities : array (N,) or (N, C), or Predictions
            What was predicted. The columns of a data frame are names of classes, which labels may be. Predictions have
            their labels and groups, unless `ids` are given: then they wait.
        labels : array (N,), optional
            The outcomes. Without them `ids` are needed, and the rows wait for `add_labels`.
        ids : sequence of N, optional
            The name of each row, for labels that come later. With `labels` it must be none that waits: such rows would
            count again with `add_labels`.
        period : str, int or date, optional
            What the batch belongs to; periods are in their sorted order, in which day2 is before day10. By default each
            batch is one, counted from 1. More rows of the last period are added to it.
        clusters : sequence of N, or mapping or data frame of one column, optional
            The period of each row, for a batch of several: `clusters=table["day"]`. By default the clusters of
            Predictions, unless `period` is given.
        groups : array (N,), mapping or data frame, optional
            Groups that are watched by themselves too, unless rows are declared independent.
        """
        function = "CalibrationMonitor.update"
        if period is not None and clusters is not None:
            raise ParameterError("clusters", function, expected="left out where period is given", got="both")
        if isinstance(probabilities, Predictions):
            batch = batch_of_predictions(probabilities, labels, self._known_columns, function)
            is_labelled = ids is None
            if period is None and clusters is None:
                clusters = periods_of_clusters(probabilities)
        else:
            scores = as_array(as_scores(probabilities), "probabilities", function)
            p = to_numpy(scores)
            p = without_rounding_of_sums(p) if is_bfloat16(scores) and p.ndim == 2 else p
            if np.size(p) == 0:
                warn(InputWarning("an empty batch was ignored.", function=function))
                return 0
            batch = batch_of_array(probabilities, p, self._known_columns, function)
            is_labelled = labels is not None
            if labels is None and ids is None:
                raise ParameterError("ids", function, expected="given where labels are not", got="None")
        own_groups = None if groups is None else as_groups(groups, batch.n_rows, function)
        before = self._history.periods
        keys = keys_of_rows(period, clusters, batch.n_rows, before[-1].last if before else None, function)
        together = [*dict.fromkeys([*self._keys_together, *keys])]
        check_order(together, [each.last for each in before], function)
        if is_labelled and ids is not None:
            check_ids(self, ids, batch.n_rows, function)
        # Read last: labels tell the monitor its classes, and those of a refused batch must not.
        rows = self._rows_of(batch, labels, function)
        names = batch.names
        rows = replace(rows, class_names=names, groups=rows.groups if own_groups is None else own_groups)
        if rows.groups and self.independent:
            text = "groups are not watched where rows are declared independent: that test is of all rows together."
            warn(InputWarning(text, function=function))
        self.columns_moved = rows.source.swapped or self.columns_moved
        if self._gathered is not None:
            self._keys_together = together
        if not is_labelled:
            self._wait(rows, ids, keys, names, function)
            self._know_whole_names(batch.columns)
            return 0
        self._check_classes(rows, function)
        self.class_names = names or self.class_names
        self._know_whole_names(batch.columns)
        parts = by_period(keys, rows)
        for key, part in parts:
            self._history.expect(key, part)
        self._enter([LabelledPart(key, part, is_measured=False) for key, part in parts])
        return len(rows)

    def add_labels(self, ids: Iterable[Any], labels: Any) -> int:
        """Add labels of earlier predictions; returns how many were matched.

        Add the labels of whole periods, or of rows chosen at random: if bad outcomes are known earlier than good ones,
        the labels so far are a biased sample.

        >>> monitor = CalibrationMonitor()
        >>> monitor.update([0.1, 0.8], ids=["a", "b"], period="2026-05-01")
        0
        >>> monitor.add_labels(["b"], [1]), monitor.n_waiting
        (1, 1)
        """
        function = "CalibrationMonitor.add_labels"
        names = [name_of(name) for name in ids]
        given = to_numpy(raw_labels(labels, "labels", function).values)
        check_shape(given, (len(names),), "labels", function)
        of_waiting = [i for i, name in enumerate(names) if name in self._waiting]
        matched: list[str] = []
        n_matched = len(of_waiting)
        if of_waiting:
            p = np.array([self._waiting[names[i]].p for i in of_waiting])
            names_of_classes = (self.class_names, self.whole_names)
            rows = self._read(given[of_waiting], p, function, *names_of_classes, moved=self.columns_moved)
            first = first_of_each_id([names[i] for i in of_waiting], rows.labels.tolist(), function)
            matched = [names[of_waiting[place]] for place in first]
            waited = [self._waiting[name] for name in matched]
            rows = replace(rows.take(np.array(first)), groups=columns_of_groups(waited), class_names=self.class_names)
            for name in matched:
                del self._waiting[name]
            is_new = np.array([entry.counts for entry in waited])
            if is_new.any():
                keys = [entry.key for entry in waited if entry.counts]
                parts = by_period(keys, rows.take(np.flatnonzero(is_new)))
                self._enter([LabelledPart(key, part, is_measured=True) for key, part in parts])
            if not is_new.all():
                n_old = np.count_nonzero(~is_new)
                text = f"{n_old:,} labels are of predictions made before the recalibration: they do not count."
                warn(InputWarning(text, function=function))
        if n_matched < len(names):
            warn_of_unknown_ids(names, {*matched}, len(names) - n_matched, function)
        return len(matched)

    def merge(self, other: CalibrationMonitor, *, raise_alarm: bool = True) -> Self:
        """Add the rows of another monitor; those of the same period are summed.

        An alarm is raised if the evidence of both is one, unless `raise_alarm` is False, as for all but the last of
        several monitors: otherwise what some of them say would be the alarm of all, whose period is their order's.

        Rows count once: a monitor that was merged before, by itself or within another, is refused, also if it has more
        rows now. To have these, merge all monitors into a new one. One of another calibrator, or without groups that
        this one watches, is refused too, where both are known.

        >>> east, west = CalibrationMonitor(), CalibrationMonitor()
        >>> _ = east.update([0.2, 0.7], [0, 1], period="May"), west.update([0.4], [0], period="May")
        >>> east.merge(west).summary().n
        3
        """
        function = "CalibrationMonitor.merge"
        if not isinstance(other, CalibrationMonitor):
            raise DataError("other", function, expected="a CalibrationMonitor", got=f"a {type(other).__name__}")
        check_mergeable(self._state(), other._state(), function)
        both = sorted(self._waiting.keys() & other._waiting.keys())
        if both:
            raise DataError("other", function, expected="a monitor of other rows", got=f"the id {both[0]!r} in both")
        self._history.independent = other.independent
        self.merged |= other.merged | {other.id: other._history.n_rows}
        alarms_before = [*self._history.alarms]
        self._history.merge(other._history, self.alpha)
        if not raise_alarm:
            self._history.alarms = alarms_before
        self._history.alarms += [replace(alarm, monitor=alarm.monitor or other.id) for alarm in other.alarms]
        self._waiting |= other._waiting
        self.columns_moved = either_moved(self.columns_moved, other.columns_moved)
        self.n_classes = other.n_classes if self.n_classes is None else self.n_classes
        self.class_names = self.class_names or other.class_names
        self.whole_names = self.whole_names or other.whole_names
        self.positive_label = self.positive_label or other.positive_label
        if self.labels_by_name is None:
            self.labels_by_name = other.labels_by_name
        # Where both are known the calibrators are the same, and the other has all groups of this one.
        self.calibrated_by = other.calibrated_by if self.calibrated_by is None else self.calibrated_by
        self.group_columns = self.group_columns if other.group_columns is None else other.group_columns
        return self

    @property
    def e_value(self) -> float:
        """The evidence against calibration now; at 1/alpha an alarm is raised."""
        return math.exp(min(self._history.log_e, LARGEST_LOG_E))

    @property
    def alarm(self) -> str | None:
        """The period of the alarm that has not been acknowledged by `restart`; None if there is none."""
        alarm = self._history.open_alarm
        return None if alarm is None else alarm.period

    def summary(self, last: int | None = None) -> WindowSummary | None:
        """The `last` periods in numbers, by default all that are kept one by one; None without labelled rows."""
        if last is not None:
            check_integer(last, "last", "CalibrationMonitor.summary")
        labelled = [period for period in self._history.periods if period.n > 0]
        return summary_of(labelled[-(last or 0) :], self.level, independent=self.independent)

    def history(self) -> list[WindowSummary]:
        """Each period in numbers, those of long ago several at a time."""
        summaries = (period.summary(self.level) for period in (*self._history.old, *self._history.periods))
        return [each for each in summaries if each is not None]

    def evidence(self) -> list[tuple[str, float]]:
        """The e-value after each of the last periods that entered the test, in the order in which they did."""
        return [(entry.period, math.exp(min(entry.log_e, LARGEST_LOG_E))) for entry in self._history.path]

    def streams(self) -> dict[str, float]:
        """The e-value of each of the streams that are watched: the mean, the slope, classes, groups.

        >>> monitor = CalibrationMonitor()
        >>> _ = monitor.update([0.2, 0.7], [0, 1], groups=["north", "south"])
        >>> list(monitor.streams())
        ['mean/all rows', 'shape/slope', 'shape/high scores', 'group/group = north', 'group/group = south']
        """
        test = self._history.test
        return {name: math.exp(min(stream.log_e, LARGEST_LOG_E)) for name, stream in test.streams.items()}

    def expected(self) -> list[ExpectedPerformance]:
        """What the predictions of each period say about their own performance, and what the labels said later.

        >>> monitor = CalibrationMonitor()
        >>> _ = monitor.update([0.2, 0.7], ids=["a", "b"])
        >>> monitor.expected()[0].expected_accuracy, monitor.expected()[0].accuracy
        (0.75, None)
        """
        return [expected_performance(period) for period in self._history.periods if period.expected.n > 0]

    def trust(self) -> Trust | None:
        """How the estimates without labels did once labels came; None until three periods have some."""
        return trust_of(self.expected(), self.level)

    def present(self) -> PresentState | None:
        """What is off in the last periods, by the scatter of these; None without labelled rows."""
        return present_state(self._history.periods, self.level, independent=self.independent)

    @property
    def compared(self) -> tuple[str, str]:
        """The two numbers that agree for a calibrated model: their names, for two classes or more."""
        return ("mean probability", "rate") if self.n_classes == 2 else ("mean confidence", "accuracy")

    def advice(self) -> Advice:
        """Whether to recalibrate now, by what is off in the last periods."""
        return advise(self._history, self.alpha, self.smallest_shift, self.level, self.compared)

    def restart(self) -> Self:
        """Start over after recalibration: alarms are acknowledged, and the test starts anew.

        Labels of predictions that still wait are matched, but do not count: they were made before. The monitor has a
        new `id`, since its rows are new, which may be of another calibrator and of other groups.

        >>> monitor = CalibrationMonitor(alpha=0.01)
        >>> _ = monitor.update([0.2, 0.7], [0, 1])
        >>> monitor.restart().summary() is None, monitor.alpha
        (True, 0.01)
        """
        self.id = uuid.uuid4().hex
        self.merged = {}
        before = self._history
        last = str(before.periods[-1].last) if before.periods else "the start"
        alarms = [replace(alarm, acknowledged=alarm.acknowledged or last) for alarm in before.alarms]
        is_restarted = before.is_restarted or before.n_rows > 0
        self._history = History(independent=before.independent, alarms=alarms, is_restarted=is_restarted)
        self.calibrated_by = None
        self.group_columns = None
        self._waiting = {name: entry._replace(counts=False) for name, entry in self._waiting.items()}
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON, without predictions that wait: for two classes without groups less than 100 kB."""
        return self._state().to_dict()

    def _state(self) -> MonitorState:
        """All but the predictions that wait."""
        return MonitorState(
            alpha=self.alpha,
            smallest_shift=self.smallest_shift,
            level=self.level,
            n_classes=self.n_classes,
            n_waiting=self.n_waiting,
            history=self._history,
            class_names=None if self.class_names is None else list(self.class_names),
            id=self.id,
            merged=self.merged,
            labels_by_name=self.labels_by_name,
            enough_labels=self.enough_labels,
            positive_label=self.positive_label,
            columns_moved=self.columns_moved,
            whole_names=None if self.whole_names is None else list(self.whole_names),
            calibrated_by=self.calibrated_by,
            group_columns=None if self.group_columns is None else list(self.group_columns),
        )

    @classmethod
    def from_dict(cls, data: Any) -> CalibrationMonitor:
        """The monitor that `to_dict` described."""
        state = MonitorState.of_file(data)
        try:
            made = cls(
                alpha=state.alpha,
                smallest_shift=state.smallest_shift,
                level=state.level,
                enough_labels=state.enough_labels,
            )
        except ParameterError as error:
            raise FormatError(str(error)) from error
        made.n_classes = state.n_classes
        made._history = state.history
        made.id = state.id or made.id
        made.merged = state.merged
        made.class_names = None if state.class_names is None else tuple(state.class_names)
        made.labels_by_name = state.labels_by_name
        made.positive_label = state.positive_label
        made.columns_moved = state.columns_moved
        made.whole_names = None if state.whole_names is None else tuple(state.whole_names)
        made.calibrated_by = state.calibrated_by
        made.group_columns = None if state.group_columns is None else tuple(state.group_columns)
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write as JSON, whole or not at all; predictions that wait for labels go to a file beside it.

        That of monitor.json is monitor.json.waiting.npz.

        >>> import tempfile
        >>> monitor = CalibrationMonitor()
        >>> _ = monitor.update([0.2, 0.7], [0, 1])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     monitor.save(f"{folder}/monitor.json")
        ...     CalibrationMonitor.load(f"{folder}/monitor.json").summary() == monitor.summary()
        True
        """
        beside = waiting_file(path)
        if self._waiting:
            write_waiting(beside, self._waiting, self.id)
        write_atomically(path, json.dumps(self.to_dict(), separators=(",", ":"), allow_nan=False) + "\n")
        if not self._waiting:
            beside.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CalibrationMonitor:
        """Read what `save` wrote; invalid contents are refused with a reason."""
        most_bytes = 64 << 20

        def build_both(data: Any) -> CalibrationMonitor:
            made = cls.from_dict(data)
            made._waiting = waiting_beside(path, made.id, data["n_waiting"])
            return made

        return read_json(path, build_both, what="a monitor", max_bytes=most_bytes)

    def __repr__(self) -> str:
        n_rows = sum(each.n for each in self.history())
        return f"CalibrationMonitor({n_rows:,} rows: {self.advice().action})"

    def _enter(self, parts: list[LabelledPart]) -> None:
        """Add labelled rows to the test, or to those that will enter it together."""
        if self._gathered is not None:
            self._gathered.extend(parts)
            return
        waiting = Counter(entry.key for entry in self._waiting.values() if entry.counts)
        self._history.add(parts, waiting, self.enough_labels, self.alpha)

    def _know_whole_names(self, columns: tuple[Any, ...] | None) -> None:
        """Keep what the columns of a batch are called, in the order of the classes, where they have names."""
        whole = tuple(str(name) for name in columns or ())
        if whole and self.class_names not in (None, whole):
            self.whole_names = whole

    def _wait(
        self,
        rows: Predictions,
        ids: Iterable[Any],
        keys: list[Key],
        class_names: tuple[str, ...] | None,
        function: str,
    ) -> int:
        """Keep predictions until their labels come, by their ids."""
        names = new_ids(ids, len(rows), self._waiting, function)
        self._check_classes(rows, function)
        self.class_names = class_names or self.class_names
        for key, part in by_period(keys, rows):
            self._history.expect(key, part)
            self._history.measure(part)
        for i, name in enumerate(names):
            groups = {column: str(values[i]) for column, values in rows.groups.items()}
            self._waiting[name] = Waiting(keys[i], rows.values[i], groups, counts=True)
        return 0

    @property
    def _known_columns(self) -> KnownColumns:
        """What the batches so far tell of the columns of the next one."""
        has_rows = bool(self._waiting) or self._history.n_rows > 0
        return KnownColumns(self.class_names, self.n_classes is not None, has_rows)

    def _rows_of(self, batch: UncheckedBatch, labels: Any, function: str) -> Predictions:
        """The checked rows of a batch; those without labels get the label 0."""
        if isinstance(batch.given, Predictions):
            rows = batch.given.as_probabilities()
            return replace(rows, values=to_numpy(in_single(rows.values)))
        if labels is None:
            unknown = np.zeros(batch.n_rows, dtype=np.int64)
            return read_probabilities(unknown, batch.given.astype(np.float64), None, function, labels_name="labels")
        return self._read(labels, batch.given, function, batch.names, batch.columns)

    def _read(
        self,
        labels: Any,
        p: Any,
        function: str,
        class_names: tuple[str, ...] | None,
        whole_names: tuple[Any, ...] | None = None,
        *,
        moved: bool | None = False,
    ) -> Predictions:
        """Checked rows with labels, of as many classes as those before, which are read as those before were."""
        if class_names is None:
            rows = read_without_names(labels, p, function)
            self._check_classes(rows, function)
            return rows
        rows, by_name = read_with_names(labels, p, function, class_names, whole_names, self.labels_by_name, moved=moved)
        self._check_classes(rows, function)
        self.class_names = class_names
        self.labels_by_name = by_name
        return rows

    def _check_classes(self, rows: Predictions, function: str) -> None:
        """Rows of as many classes as those before."""
        if self.n_classes is not None and rows.n_classes != self.n_classes:
            expected = f"of {self.n_classes} classes, as those before"
            raise ShapeError("probabilities", function, expected=expected, got=f"{rows.n_classes} classes")
        self.n_classes = rows.n_classes


def check_ids(monitor: CalibrationMonitor, ids: Iterable[Any], n_rows: int, function: str) -> None:
    """Refuse ids of rows with labels unless all differ and none waits, since such a row would count twice.

    >>> check_ids(CalibrationMonitor(), ["a", "b"], 2, "f")
    """
    new_ids(ids, n_rows, monitor._waiting, function)
