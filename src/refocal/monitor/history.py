"""The test of a monitor: the periods that have entered it, and the alarms that it raised.

Recent periods, and those that wait for their labels, are kept one by one; older ones are joined. A period enters the
test once, when enough of its labels are known, and periods enter in the order in which that happens. Labels that come
after another period has entered count in the sums of their own period alone. So the evidence is that of a sequence of
whole periods, however late and in whatever order labels come. Rows that are declared independent enter with the call
that brings them.
"""

from __future__ import annotations

import copy
import math
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import ClassVar, NamedTuple

from refocal.errors import FormatError
from refocal.monitor.evidence import BatchTest
from refocal.monitor.independent import ALTERNATIVES, Wealth
from refocal.monitor.period_sums import (
    Period,
    ScoreScale,
    expected_of,
    log_odds_of,
    start_of_change,
    stream_in_words,
)
from refocal.monitor.periods import Key, in_order
from refocal.rows import Predictions

LARGEST_LOG_E = 700.0
"""Whose exponential is a float."""


@dataclass(frozen=True)
class Alarm:
    """An alarm, as it was when it was raised."""

    period: str
    """In which it was raised."""
    e_value: float
    """The evidence then."""
    n_rows: int
    """The labelled rows that had entered the test."""
    moved: list[str] = field(default_factory=list)
    """What has moved, with a familywise error of at most alpha; what has most evidence if nothing has enough alone."""
    since: str = ""
    """The period with which the change seems to have begun, as `start_of_change` has it, where it is known."""
    acknowledged: str = ""
    """The last period before the recalibration that answered it; empty until then."""
    monitor: str = ""
    """The id of the monitor that raised it, if that was merged into this one."""


@dataclass(frozen=True)
class Entry:
    """The evidence after a period has entered."""

    period: str
    log_e: float
    n_rows: int


class LabelledPart(NamedTuple):
    """Labelled rows of one period."""

    key: Key
    rows: Predictions
    is_measured: bool
    """Whether the scale of the scores already counts them, as it counts rows that waited. Other rows are counted when
    their period enters, so that the evidence is the same whether periods come in one call or in several."""


@dataclass
class History:
    """The periods, the test and the alarms of a monitor as plain values, for JSON.

    `test` is the evidence of whole periods, `wealth` that of independent rows.
    """

    most_open: ClassVar[int] = 60
    """The number of labelled periods that are kept one by one. Periods between and after them that have no labels yet
    are kept too: however late their labels come, they enter the test."""

    independent: bool = False
    periods: list[Period] = field(default_factory=list)
    old: list[Period] = field(default_factory=list)
    scale: ScoreScale = field(default_factory=ScoreScale)
    test: BatchTest = field(default_factory=BatchTest)
    before: BatchTest = field(default_factory=BatchTest)
    """The test before the last period entered, which may still grow."""
    wealth: Wealth = field(default_factory=Wealth)
    last: Key = None
    """The period that entered last."""
    n_entered: int = 0
    """The labelled rows that have entered."""
    path: list[Entry] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)
    is_restarted: bool = False
    """Whether there were labelled rows before, which a restart has put aside."""

    @property
    def n_rows(self) -> int:
        """How many labelled rows there were."""
        return sum(period.n for period in (*self.old, *self.periods))

    @property
    def log_e(self) -> float:
        """The logarithm of the e-value."""
        return self.wealth.log_e if self.independent else self.test.log_e

    @property
    def open_alarm(self) -> Alarm | None:
        """The alarm of this monitor that was not acknowledged."""
        return next((alarm for alarm in self.alarms if not alarm.acknowledged and not alarm.monitor), None)

    def expect(self, key: Key, rows: Predictions) -> None:
        """What predictions of a period say about their own performance, before their labels."""
        expected = expected_of(rows, labelled=False, predicted=True)
        self._put(replace(Period.empty(key), expected=expected))

    def measure(self, rows: Predictions) -> None:
        """The scale of the scores after further predictions."""
        p, _ = rows.confidence()
        self.scale = self.scale.after(log_odds_of(p))

    def add(self, parts: list[LabelledPart], waiting: dict[Key, int], enough: float, alpha: float) -> None:
        """Add labelled rows, period by period; `waiting` has the number of rows of each period without labels.

        A period enters the test when a share of `enough` of its rows has labels; independent rows enter at once.
        """
        in_turn = sorted(parts, key=lambda part: in_order(part.key))
        for key, of_period in groupby(in_turn, key=lambda part: part.key):
            together = list(of_period)
            for part in together:
                if not part.is_measured:
                    self.measure(part.rows)
            for part in together:
                self._add(key, part.rows, waiting.get(key, 0), enough, alpha)
        while self._is_full:
            self._close(alpha)

    def _add(self, key: Key, rows: Predictions, n_waiting: int, enough: float, alpha: float) -> None:
        """Add labelled rows of one period; `n_waiting` further rows of it have no labels yet."""
        period = Period.of(key, rows, self.scale, independent=self.independent)
        self._put(period)
        if self.independent:
            self.wealth = self.wealth.after(period.ratios)
            self.n_entered += len(rows)
            self._note(key, alpha)
            return
        known = self._kept(key)
        if known is None:
            return  # of long ago: it counts in the sums
        if known.n >= enough * (known.n + n_waiting):
            self._enter(known, len(rows), alpha)

    @property
    def _is_full(self) -> bool:
        """Whether more labelled periods are kept one by one than `most_open`."""
        return sum(period.n > 0 for period in self.periods) > self.most_open

    def _kept(self, key: Key) -> Period | None:
        """The period of this name among those that are kept one by one; None if it is not among them."""
        return next((period for period in self.periods if period.first == key), None)

    def _put(self, period: Period) -> None:
        """Add sums of a period to its earlier ones, or to those of the older periods that it belongs to."""
        key = period.first
        at = next((i for i, old in enumerate(self.old) if in_order(key) <= in_order(old.last)), None)
        if at is not None:
            self.old[at] = self.old[at].plus(replace(period, sums={}))
            return
        position = bisect_left(self.periods, in_order(key), key=lambda each: in_order(each.first))
        is_known = position < len(self.periods) and self.periods[position].first == key
        if is_known:
            self.periods[position] = self.periods[position].plus(period)
        else:
            self.periods.insert(position, period)

    def _enter(self, period: Period, n_new: int, alpha: float) -> None:
        """Enter a period into the test; if it is the one that entered last, its rows are counted anew."""
        if period.has_entered and period.first != self.last:
            return
        if period.first == self.last:
            self.test = self.before.copied()
            self.path = self.path[:-1]
            self.n_entered += n_new
        else:
            self.before = self.test.copied()
            self.n_entered += period.n
        sums = {name: (pair[0], pair[1]) for name, pair in period.sums.items()}
        self.test.add(self._within_limits(sums))
        self.last = period.first
        self.periods = [
            replace(each, has_entered=True) if each.first == period.first else each for each in self.periods
        ]
        self._note(period.first, alpha)

    def _within_limits(self, sums: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        """The sums without those of further groups than a test has room for."""
        most_groups = 40
        known = [name for name in self.test.streams if name.startswith("group/")]
        new = [name for name in sums if name.startswith("group/") and name not in self.test.streams]
        left_out = {*new[max(most_groups - len(known), 0) :]}
        return {name: pair for name, pair in sums.items() if name not in left_out}

    def _note(self, key: Key, alpha: float) -> None:
        """Keep the evidence after a period, and the alarm if it is one; an alarm is never changed."""
        log_e = self.log_e
        self.path = [*self.path, Entry(str(key), log_e, self.n_entered)][-self.most_open :]
        if log_e < -math.log(alpha) or self.open_alarm is not None:
            return
        moved = [self.wealth.moved()]
        since = ""
        if not self.independent:
            streams = self.test.streams
            best = max(streams, key=lambda name: streams[name].log_e + self.test.log_share[name])
            moved = [stream_in_words(name, streams[name].mean) for name in self.test.moved(alpha) or [best]]
            since = start_of_change([*self.old, *self.periods], best)
        self.alarms.append(Alarm(str(key), math.exp(min(log_e, LARGEST_LOG_E)), self.n_entered, moved, since))

    def merge(self, other: History, alpha: float) -> None:
        """Add the periods of another history.

        If all periods of both are kept one by one, the test is that of the joint periods. Otherwise it is the mean of
        both tests, which is a valid test whatever the two share.
        """
        other = copy.deepcopy(other)
        is_new = self.n_rows == 0
        is_whole = not self.old and not other.old
        last = max((in_order(old.last) for old in (*self.old, *other.old)), default=None)
        for history in (self, other):
            while last is not None and history.periods and in_order(history.periods[0].first) <= last:
                history._close(alpha)
        own = copy.deepcopy((self.test, self.wealth, self.n_entered))
        both = sorted([*self.old, *other.old], key=lambda old: (in_order(old.last), in_order(old.first)))
        self.old = _shortened(both)
        for period in other.periods:
            self._put(period)
        scales = (self.scale, other.scale)
        self.scale = ScoreScale(*(sum(getattr(scale, name) for scale in scales) for name in ("n", "total", "squares")))
        if is_whole and not self._is_full:
            self._replay(alpha)
        else:
            self.test = other.test if is_new else own[0].averaged(other.test)
            self.wealth = other.wealth if is_new else own[1].averaged(other.wealth)
            self.n_entered = own[2] + other.n_entered
            self.before = copy.deepcopy(self.test)
            self.last = None
            self.path = (other.path if is_new else self.path)[-self.most_open :]
            if self.periods:
                self._note(self.periods[-1].first, alpha)
            while self._is_full:
                self._close(alpha)

    def _replay(self, alpha: float) -> None:
        """The test of the periods that have entered, in their order."""
        entered = [period for period in self.periods if period.has_entered or (self.independent and period.n > 0)]
        self.test = BatchTest()
        self.before = BatchTest()
        self.wealth = Wealth()
        self.last = None
        self.n_entered = 0
        self.path = []
        self.periods = [replace(period, has_entered=False) for period in self.periods]
        for period in entered:
            if self.independent:
                self.wealth = self.wealth.after(period.ratios)
                self.n_entered += period.n
                self._note(period.first, alpha)
            else:
                self._enter(replace(period, has_entered=False), period.n, alpha)

    def check(self) -> None:
        """Refuse what no monitor can have written."""
        for period in (*self.old, *self.periods):
            period.check()
        kinds = {type(key) for period in (*self.old, *self.periods) for key in (period.first, period.last)}
        if not (kinds <= {int} or kinds <= {str}):
            raise FormatError("periods must be all whole numbers or all text.")
        if len(self.wealth.log_won) != len(ALTERNATIVES) or self.wealth.n_periods < 0:
            raise FormatError(f"'wealth' must be what {len(ALTERNATIVES)} alternatives have won.")
        for stream in (*self.test.streams.values(), *self.before.streams.values()):
            stream.check()

    def _close(self, alpha: float) -> None:
        """Move the first period to the older ones; if it has not entered the test, it enters with the labels it has."""
        period = self.periods[0]
        if not self.independent and not period.has_entered and period.n > 0:
            self._enter(period, period.n, alpha)
        period = self.periods.pop(0)
        # Only sums of streams of the test are kept, which show where a change began: groups would become ever more.
        sums = {name: pair for name, pair in period.sums.items() if name in self.test.streams}
        self.old = _shortened([*self.old, replace(period, sums=sums, ratios=[])])


def _shortened(old: list[Period]) -> list[Period]:
    """At most `most_old` entries: the two neighbours with the fewest rows are joined until no more are left."""
    # The number of entries for older, closed periods.
    most_old = 20
    while len(old) > most_old:
        at = min(range(len(old) - 1), key=lambda i: old[i].n + old[i + 1].n)
        old[at : at + 2] = [old[at].plus(old[at + 1])]
    return old
