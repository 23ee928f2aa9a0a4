"""The periods of a monitor: their sums, the test that they enter, and the alarms that it raised.

Sums can be added over machines, regions and days; recent periods are kept one by one, older ones together. A period
enters the test once, when most of its labels are known, in the order in which that happens; labels of a period that
come when another has entered count in its sums alone. So the evidence is that of a sequence of whole periods, however
late and in whatever order labels come. Rows that are declared independent enter with the call that brings them.
"""

from __future__ import annotations

import copy
import math
import re
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import zip_longest
from typing import Any

import numpy as np
from scipy.stats import t as student

from refocal._arrays import Vector, take_label
from refocal.errors import FormatError
from refocal.metrics.bins import uniform_index
from refocal.metrics.intervals import Interval, normal_interval, share_interval
from refocal.metrics.scores import brier_terms
from refocal.monitor.evidence import BatchTest
from refocal.monitor.independent import ALTERNATIVES, SMALLEST_P, Wealth, log_ratios
from refocal.rows import Predictions

N_BINS = 10
"""The bins of equal width of the ECE."""
# The number of periods kept individually.
MOST_OPEN = 60
LARGEST_LOG_E = 700.0
# Intervals by the scatter of periods need some of them.
LEAST_PERIODS = 5

Key = Any
"""The name of a period: a whole number or a text, all of a monitor of one kind. `in_order` says how they are sorted."""
StreamSums = dict[str, list[float]]
"""Σ g (y - p) and Σ g² p (1 - p), by the name of a stream: its family, a slash and its own."""


@dataclass(frozen=True)
class ScoreScale:
    """The mean and the spread of the log-odds of all predictions so far, which the slope is measured by."""

    n: int = 0
    total: float = 0.0
    squares: float = 0.0

    def after(self, log_odds: Vector) -> ScoreScale:
        """With further predictions."""
        return ScoreScale(
            self.n + len(log_odds), self.total + float(log_odds.sum()), self.squares + float(log_odds @ log_odds)
        )

    def standardised(self, log_odds: Vector) -> Vector:
        """Log-odds less their mean, in standard deviations."""
        mean = self.total / max(self.n, 1)
        variance = self.squares / max(self.n, 1) - mean**2
        return (log_odds - mean) / math.sqrt(max(variance, 1e-12))


def log_odds_of(p: Vector) -> Vector:
    """The log-odds of probabilities, bounded."""
    # Log-odds beyond this count as this in the slope.
    largest = 12.0
    smallest = math.exp(-largest)
    p = np.clip(p, smallest, 1.0 - smallest)
    return np.log(p) - np.log1p(-p)


def stream_sums(rows: Predictions, scale: ScoreScale) -> StreamSums:
    """What some labelled rows add to each stream; with more than two classes the event is that the top class is right.

    Streams: the mean of all rows; the slope, g = (η - mean η) / 2 sd within ±1 of the log-odds η; high scores, more
    than a standard deviation above the mean; each class of several; each group.
    """
    # Classes have streams of their own up to this number, and so have groups; a state stays small.
    most_classes = 30
    p, happened = rows.confidence()
    residual = happened - p
    variance = p * (1.0 - p)
    place = scale.standardised(log_odds_of(p))
    slope = np.clip(0.5 * place, -1.0, 1.0)
    high = (place > 1.0).astype(np.float64)
    sums = {
        "mean/all rows": _weighted(np.ones(len(p)), residual, variance),
        "shape/slope": _weighted(slope, residual, variance),
        "shape/high scores": _weighted(high, residual, variance),
    }
    if 2 < rows.n_classes <= most_classes:
        for label in range(rows.n_classes):
            p_class, is_class = rows.event(label)
            name = f"class/{rows.name_of(label)}"
            sums[name] = _weighted(np.ones(len(p)), is_class - p_class, p_class * (1.0 - p_class))
    for column, groups in rows.groups.items():
        for group in np.unique(groups).tolist():
            is_member = (groups == group).astype(np.float64)
            sums[f"group/{column} = {group}"] = _weighted(is_member, residual, variance)
    return sums


def _weighted(g: Vector, residual: Vector, variance: Vector) -> list[float]:
    """Σ g r and Σ g² v."""
    return [float(g @ residual), float((g * g) @ variance)]


def added(one: StreamSums, other: StreamSums) -> StreamSums:
    """The sums of both."""
    return {
        name: np.add(one.get(name, [0.0, 0.0]), other.get(name, [0.0, 0.0])).tolist()
        for name in dict.fromkeys([*one, *other])
    }


@dataclass(frozen=True)
class Expected:
    """What predictions say about their own performance, and what labels said later: sums over rows."""

    n: int = 0
    """The number of predictions, with and without labels."""
    correct: float = 0.0
    """Σ of the largest probability, the expected number of correct predictions."""
    log_loss: float = 0.0
    """Σ of the entropy."""
    labelled_correct: float = 0.0
    """The same sums over the rows that have labels now."""
    labelled_log_loss: float = 0.0
    n_correct: int = 0
    """How many of these were correct."""

    def plus(self, other: Expected) -> Expected:
        """The sums of both."""
        return Expected(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


def expected_of(rows: Predictions, *, labelled: bool, predicted: bool) -> Expected:
    """The sums of rows that are predicted now, labelled now, or both."""
    p = rows.values[:, None] if rows.binary else rows.values
    if rows.binary:
        p = np.concatenate([1.0 - p, p], axis=1)
    p = np.clip(p, SMALLEST_P, 1.0)
    correct = float(p.max(axis=1).sum())
    log_loss = -float(np.sum(p * np.log(p)))
    made = Expected()
    if predicted:
        made = replace(made, n=len(rows), correct=correct, log_loss=log_loss)
    if labelled:
        n_correct = int(np.count_nonzero(rows.top[1]))
        made = replace(made, labelled_correct=correct, labelled_log_loss=log_loss, n_correct=n_correct)
    return made


@dataclass(frozen=True)
class Period:
    """Sums over the labelled rows of a period, or of several, from `first` to `last`: plain values, for JSON."""

    first: Key
    last: Key
    n: int
    log_loss: float
    brier: float
    rows: list[int]  # in bins of equal width of the probability, as are the next two
    p: list[float]
    events: list[int]
    ratios: list[float] = field(default_factory=list)
    """Of independent rows; see `independent`."""
    sums: dict[str, list[float]] = field(default_factory=dict)
    """Of whole batches; see `evidence`."""
    expected: Expected = field(default_factory=Expected)
    has_entered: bool = False
    """Whether it is part of the test."""

    @classmethod
    def empty(cls, key: Key) -> Period:
        """A period without rows."""
        nothing = [0] * N_BINS
        return cls(key, key, 0, 0.0, 0.0, nothing, [0.0] * N_BINS, nothing)

    @classmethod
    def of(cls, key: Key, rows: Predictions, scale: ScoreScale, *, independent: bool) -> Period:
        """A period of rows with their labels; with more than two classes the event is that the top class is right."""
        p, happened = rows.confidence()
        of_label = np.where(happened, p, 1.0 - p) if rows.binary else take_label(rows.values, rows.labels)
        index = uniform_index(p, N_BINS)
        return cls(
            first=key,
            last=key,
            n=len(p),
            log_loss=-float(np.sum(np.log(np.clip(of_label, SMALLEST_P, 1.0)))),
            brier=float(np.sum(brier_terms(rows))),
            rows=np.bincount(index, minlength=N_BINS).tolist(),
            p=np.bincount(index, p, N_BINS).tolist(),
            events=np.bincount(index[happened], minlength=N_BINS).tolist(),
            ratios=log_ratios(p, happened).tolist() if independent else [],
            sums={} if independent else stream_sums(rows, scale),
            expected=expected_of(rows, labelled=True, predicted=False),
        )

    def plus(self, other: Period) -> Period:
        """A period with the rows of both."""
        ratios = [each for each in (self.ratios, other.ratios) if each]
        return Period(
            first=min(self.first, other.first, key=in_order),
            last=max(self.last, other.last, key=in_order),
            n=self.n + other.n,
            log_loss=self.log_loss + other.log_loss,
            brier=self.brier + other.brier,
            rows=np.add(self.rows, other.rows).tolist(),
            p=np.add(self.p, other.p).tolist(),
            events=np.add(self.events, other.events).tolist(),
            ratios=np.sum(ratios, axis=0).tolist() if ratios else [],
            sums=added(self.sums, other.sums),
            expected=self.expected.plus(other.expected),
            has_entered=self.has_entered or other.has_entered,
        )

    def check(self) -> None:
        """Refuse sums in a file that no rows can have."""
        if [len(values) for values in (self.rows, self.p, self.events)] != [N_BINS] * 3:
            raise FormatError(f"a period must have {N_BINS} bins.")
        if len(self.ratios) not in (0, len(ALTERNATIVES)) or any(len(pair) != 2 for pair in self.sums.values()):
            raise FormatError(f"a period must have {len(ALTERNATIVES)} ratios and two sums of each stream.")
        rows, p, events = np.array([self.rows, self.p, self.events])
        is_within = np.all([p, events] <= rows + 1e-6)
        if min(self.n, rows.min(), p.min(), events.min()) < 0 or rows.sum() != self.n or not is_within:
            raise FormatError("the counts of a period must fit each other.")

    @property
    def n_events(self) -> int:
        """How many events there were."""
        return sum(self.events)

    @property
    def total_p(self) -> float:
        """Σ p, the expected number of events."""
        return sum(self.p)

    def summary(self, level: float, spread: Spread | None = None) -> WindowSummary | None:
        """The period in numbers; None without rows. `spread` is that of the periods within, where it is known."""
        if self.n == 0:
            return None
        n = self.n
        count = np.array(self.rows)
        p = np.array(self.p)
        events = np.array(self.events)
        mean = float(p.sum()) / n
        rate = float(events.sum()) / n
        # Of the events of each bin, if all of its rows had its mean probability: n p (1 - p).
        variance = p * (1.0 - p / np.maximum(count, 1))
        standard_error = math.sqrt(max(rate * (1.0 - rate), 1.0 / n) / n)
        rate_interval = share_interval(rate, n, level)
        bias = normal_interval(mean - rate, standard_error, level, (-1.0, 1.0))
        if spread is not None:
            margin = spread.quantile(level)
            reach = margin * max(spread.rate, standard_error)
            rate_interval = Interval(
                rate, max(0.0, rate - reach), min(1.0, rate + reach), level, reach / margin, 0.0, 0
            )
            reach = margin * max(spread.bias, standard_error)
            ends = (max(-1.0, mean - rate - reach), min(1.0, mean - rate + reach))
            bias = Interval(mean - rate, *ends, level, reach / margin, 0.0, 0)
        return WindowSummary(
            first=str(self.first),
            last=str(self.last),
            n=n,
            log_loss=self.log_loss / n,
            brier_score=self.brier / n,
            ece=float(np.abs(p - events).sum()) / n,
            ece_by_chance=float(np.sqrt(2.0 / np.pi * variance).sum()) / n,  # E|X| = σ √(2/π) of a normal X
            mean_p=mean,
            rate=rate_interval,
            bias=bias,
        )


@dataclass(frozen=True)
class Spread:
    """The standard errors of a rate and a bias by the scatter of periods, which are clusters of rows."""

    rate: float
    bias: float
    n_periods: int

    @classmethod
    def of(cls, periods: list[Period]) -> Spread | None:
        """√(m/(m-1) Σ_t d_t²) / n of the deviations d_t of m periods; None for a few."""
        some = [period for period in periods if period.n > 0]
        m = len(some)
        if m < LEAST_PERIODS:
            return None
        n = np.array([period.n for period in some], dtype=np.float64)
        events = np.array([period.n_events for period in some], dtype=np.float64)
        p = np.array([period.total_p for period in some])

        def standard_error(total: Vector) -> float:
            deviation = total - n * (total.sum() / n.sum())
            return math.sqrt(m / (m - 1) * float(deviation @ deviation)) / float(n.sum())

        return cls(standard_error(events), standard_error(p - events), m)

    def quantile(self, level: float) -> float:
        """Student's, of as many periods."""
        return float(student.ppf(0.5 + 0.5 * level, self.n_periods - 1))


@dataclass(frozen=True)
class WindowSummary:
    """The measures of some periods. With more than two classes p is the confidence, and the event a correct prediction.

    Intervals of several periods are by their scatter, unless rows are declared independent.

    >>> from refocal.monitor import CalibrationMonitor
    >>> monitor = CalibrationMonitor()
    >>> monitor.update([0.2, 0.9, 0.6], [0, 1, 0], period="Monday")
    3
    >>> found = monitor.summary()
    >>> found.n, round(found.mean_p, 3), round(found.rate.value, 3)
    (3, 0.567, 0.333)
    """

    first: str
    last: str
    n: int
    log_loss: float
    brier_score: float
    ece: float
    """Over ten bins of equal width."""
    ece_by_chance: float
    """Its mean if the probabilities were right."""
    mean_p: float
    rate: Interval
    bias: Interval
    """Mean p less the rate."""


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
    """The period with which the change seems to have begun, where it is known."""
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


@dataclass
class History:
    """Plain values, for JSON. `test` is that of whole batches, `wealth` that of independent rows."""

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

    def predicted(self, key: Key, rows: Predictions) -> None:
        """Predictions of a period, before their labels."""
        p, _ = rows.confidence()
        self.scale = self.scale.after(log_odds_of(p))
        expected = expected_of(rows, labelled=False, predicted=True)
        self._put(replace(Period.empty(key), expected=expected))

    def add(self, parts: list[tuple[Key, Predictions]], waiting: dict[Key, int], enough: float, alpha: float) -> None:
        """Labelled rows by period; `waiting` has the rows of these periods without labels.

        A period enters the test when a share of `enough` of its rows has labels.
        """
        parts = sorted(parts, key=lambda part: in_order(part[0]))
        ratios = []
        for key, rows in parts:
            period = Period.of(key, rows, self.scale, independent=self.independent)
            ratios.append(period.ratios)
            self._put(period)
            if not self.independent:
                known = self._kept(key)
                if known is None:
                    continue  # of long ago: it counts in the sums
                if known.n >= enough * (known.n + waiting.get(key, 0)):
                    self._enter(known, len(rows), alpha)
        if self.independent and ratios:
            self.wealth = self.wealth.after(np.sum(ratios, axis=0))
            self.n_entered += sum(len(rows) for _, rows in parts)
            self._note(parts[-1][0], alpha)
        while len(self.periods) > MOST_OPEN:
            self._close(alpha)

    def _kept(self, key: Key) -> Period | None:
        """A period that is kept one by one."""
        return next((period for period in self.periods if period.first == key), None)

    def _put(self, period: Period) -> None:
        """Add the sums of a period to those that it has."""
        key = period.first
        at = next((i for i, old in enumerate(self.old) if in_order(key) <= in_order(old.last)), None)
        if at is not None:
            self.old[at] = self.old[at].plus(period)
            return
        position = bisect_left(self.periods, in_order(key), key=lambda each: in_order(each.first))
        is_known = position < len(self.periods) and self.periods[position].first == key
        if is_known:
            self.periods[position] = self.periods[position].plus(period)
        else:
            self.periods.insert(position, period)

    def _enter(self, period: Period, n_new: int, alpha: float) -> None:
        """A period enters the test; the one that entered last may grow."""
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
        self.path = [*self.path, Entry(str(key), log_e, self.n_entered)][-MOST_OPEN:]
        if log_e < -math.log(alpha) or self.open_alarm is not None:
            return
        moved = [self.wealth.moved()]
        since = ""
        if not self.independent:
            streams = self.test.streams
            best = max(streams, key=lambda name: streams[name].log_e + self.test.log_share[name])
            moved = [self.described(name) for name in self.test.moved(alpha) or [best]]
            n_back = streams[best].n_entered - streams[best].likely_start
            since = self.path[-min(n_back, len(self.path))].period
        self.alarms.append(Alarm(str(key), math.exp(min(log_e, LARGEST_LOG_E)), self.n_entered, moved, since))

    def described(self, name: str) -> str:
        """A stream and its direction, for people."""
        family, own = name.split("/", 1)
        stream = self.test.streams[name]
        if name == "shape/slope":
            return "probabilities too extreme" if stream.mean < 0.0 else "probabilities too close to the mean"
        words = own if family in ("mean", "shape") else f"class {own}" if family == "class" else own
        return f"{words}: probabilities too {'high' if stream.mean < 0.0 else 'low'}"

    def merge(self, other: History, alpha: float) -> None:
        """Add what another has seen.

        Where all periods are kept one by one, the test is that of the joint periods; otherwise it is the mean of the
        two, which is one too, whatever they share.
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
        if is_whole and len(self.periods) <= MOST_OPEN:
            self._replay(alpha)
        else:
            self.test = other.test if is_new else own[0].averaged(other.test)
            self.wealth = other.wealth if is_new else own[1].averaged(other.wealth)
            self.n_entered = own[2] + other.n_entered
            self.before = copy.deepcopy(self.test)
            self.last = None
            self.path = (other.path if is_new else self.path)[-MOST_OPEN:]
            if self.periods:
                self._note(self.periods[-1].first, alpha)
            while len(self.periods) > MOST_OPEN:
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
        """The first of the periods kept one by one is no longer; it enters with the labels that it has."""
        period = self.periods[0]
        if not self.independent and not period.has_entered and period.n > 0:
            self._enter(period, period.n, alpha)
        period = self.periods.pop(0)
        self.old = _shortened([*self.old, replace(period, sums={}, ratios=[])])


def summary_of(periods: list[Period], level: float, *, independent: bool = True) -> WindowSummary | None:
    """Some periods together; None without labelled rows."""
    if not periods:
        return None
    return reduce(Period.plus, periods).summary(level, None if independent else Spread.of(periods))


def _shortened(old: list[Period]) -> list[Period]:
    """A limited number of entries: the two neighbours with the fewest rows are joined until then."""
    # The number of entries for older, closed periods.
    most_old = 20
    while len(old) > most_old:
        at = min(range(len(old) - 1), key=lambda i: old[i].n + old[i + 1].n)
        old[at : at + 2] = [old[at].plus(old[at + 1])]
    return old


def in_order(key: Key) -> Any:
    """What periods are sorted by; the numbers in a text count as numbers.

    >>> sorted(["day10", "day2", "2026-05-01", "day1"], key=in_order)
    ['2026-05-01', 'day1', 'day2', 'day10']
    """
    if isinstance(key, int):
        return key
    # Text stands at even places and digits at odd ones; of two numbers the one with more digits is larger.
    parts = re.split("([0-9]+)", key)
    digits = [part.lstrip("0") for part in parts[1::2]]
    return [*zip_longest(parts[::2], [(len(each), each) for each in digits], fillvalue=(0, ""))], key
