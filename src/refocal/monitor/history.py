"""The periods of a monitor: their sums, and the evidence against calibration that they add up to.

Sums can be added over machines, regions and days; recent periods are kept one by one, older ones together. If the event
of a row has the predicted probability p, then the ratio of the likelihoods of another probability and of p is 1 on
average. Products of such ratios are martingales, and so is their mean over several alternatives and over the periods
with which a change may have begun: an e-process, which remains valid however often it is inspected. It ever exceeds 1/α
with a probability of at most α (Ville 1939).
"""

from __future__ import annotations

import copy
import math
import re
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate, zip_longest
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from refocal._arrays import Flags, Vector, take_label
from refocal.errors import FormatError
from refocal.metrics.bins import uniform_index
from refocal.metrics.intervals import Interval, normal_interval, share_interval
from refocal.metrics.scores import brier_terms
from refocal.rows import Predictions

N_BINS = 10
"""The bins of equal width of the ECE."""
# Alternatives (intercept, slope) of the log-odds, which are (0, 1) under calibration: probabilities that are too low or
# too high, and too extreme (slopes below 1) or too timid (above 1).
ALTERNATIVES = np.array([
    *((-shift, 1.0) for shift in (0.125, 0.25, 0.5, 1.0)),
    *((shift, 1.0) for shift in (0.125, 0.25, 0.5, 1.0)),
    *((0.0, slope) for slope in (0.6, 0.8, 1.25, 1.7)),
])  # fmt: skip
# Probabilities are clipped to this distance from 0 and 1: an "impossible" event may occur.
SMALLEST_P = 1e-12
# The number of periods kept individually.
MOST_OPEN = 60
# The number of entries for older, closed periods.
MOST_OLD = 20
# Stands for the logarithm of 0: JSON has no infinity.
LOG_ZERO = -1e300

Key = Any
"""The name of a period: a whole number or a text, all of a monitor of one kind. `in_order` says how they are sorted."""


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
    ratios: list[float]

    @classmethod
    def empty(cls, key: Key) -> Period:
        """A period without rows."""
        nothing = [0] * N_BINS
        return cls(key, key, 0, 0.0, 0.0, nothing, [0.0] * N_BINS, nothing, [0.0] * len(ALTERNATIVES))

    @classmethod
    def of(cls, key: Key, rows: Predictions) -> Period:
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
            ratios=log_ratios(p, happened).tolist(),
        )

    def plus(self, other: Period) -> Period:
        """A period with the rows of both."""
        return Period(
            first=min(self.first, other.first, key=in_order),
            last=max(self.last, other.last, key=in_order),
            n=self.n + other.n,
            log_loss=self.log_loss + other.log_loss,
            brier=self.brier + other.brier,
            rows=np.add(self.rows, other.rows).tolist(),
            p=np.add(self.p, other.p).tolist(),
            events=np.add(self.events, other.events).tolist(),
            ratios=np.add(self.ratios, other.ratios).tolist(),
        )

    def check(self) -> None:
        """Refuse sums in a file that no rows can have."""
        if [len(each) for each in (self.rows, self.p, self.events, self.ratios)] != [N_BINS] * 3 + [len(ALTERNATIVES)]:
            raise FormatError(f"a period must have {N_BINS} bins and {len(ALTERNATIVES)} ratios.")
        rows, p, events = np.array([self.rows, self.p, self.events])
        is_within = np.all([p, events] <= rows + 1e-6)
        if min(self.n, rows.min(), p.min(), events.min()) < 0 or rows.sum() != self.n or not is_within:
            raise FormatError("the counts of a period must fit each other.")

    def summary(self, level: float) -> WindowSummary | None:
        """The period in numbers; None without rows."""
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
        return WindowSummary(
            first=str(self.first),
            last=str(self.last),
            n=n,
            log_loss=self.log_loss / n,
            brier_score=self.brier / n,
            ece=float(np.abs(p - events).sum()) / n,
            ece_by_chance=float(np.sqrt(2.0 / np.pi * variance).sum()) / n,  # E|X| = σ √(2/π) of a normal X
            mean_p=mean,
            rate=share_interval(rate, n, level),
            bias=normal_interval(mean - rate, standard_error, level, (-1.0, 1.0)),
        )


@dataclass(frozen=True)
class WindowSummary:
    """The measures of some periods. With more than two classes p is the confidence, and the event a correct prediction.

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


def log_ratios(p: Vector, happened: Flags) -> Vector:
    """The logarithms of the likelihood ratios of all alternatives, added up over rows, (alternatives,).

    -log p(outcome) is log(1 + exp(∓l)) of the log-odds l; those of the alternative (a, b) are a + b l.
    """
    p = np.clip(p, SMALLEST_P, 1.0 - SMALLEST_P)
    log_odds = np.log(p) - np.log1p(-p)
    sign = np.where(happened, -1.0, 1.0)
    loss = np.logaddexp(0.0, sign * log_odds)
    ratios = []
    for intercept, slope in ALTERNATIVES:
        alternative_loss = np.logaddexp(0.0, sign * (intercept + slope * log_odds))
        ratios.append(float(np.sum(loss - alternative_loss)))
    return np.array(ratios)


@dataclass(frozen=True)
class Wealth:
    """Where the e-process stands: the logarithm of what each alternative has won, and how many periods there were.

    It starts with an e-value of 1.
    """

    log_won: list[float] = field(default_factory=lambda: [LOG_ZERO] * len(ALTERNATIVES))
    n_periods: int = 0

    @property
    def log_e(self) -> float:
        """The logarithm of the e-value."""
        won = np.logaddexp.reduce(self.log_won) - math.log(len(ALTERNATIVES))
        return float(np.logaddexp(won, math.log(left_after(self.n_periods))))

    def after(self, log_ratios: ArrayLike) -> Wealth:
        """One period later: a part of what was left is bet from here on."""
        won = np.logaddexp(self.log_won, log_bet(self.n_periods)) + log_ratios
        return Wealth(won.tolist(), self.n_periods + 1)


@dataclass(frozen=True)
class Peak:
    """The largest logarithm of the e-value so far, 0 at the start, and the period after which it was so large."""

    log_e: float = 0.0
    period: str = ""


@dataclass
class History:
    """Plain values, for JSON: `closed` is the e-process before the `periods` kept one by one, `peak` its largest."""

    periods: list[Period] = field(default_factory=list)
    old: list[Period] = field(default_factory=list)
    closed: Wealth = field(default_factory=Wealth)
    peak: Peak = field(default_factory=Peak)

    @property
    def n_rows(self) -> int:
        """How many labelled rows there were."""
        return sum(period.n for period in (*self.old, *self.periods))

    def add(self, period: Period) -> None:
        """Rows of a period, perhaps none; of one that is closed they count in its sums, and no longer in the test."""
        key = period.first
        at = next((i for i, old in enumerate(self.old) if in_order(key) <= in_order(old.last)), None)
        if at is not None:
            self.old[at] = self.old[at].plus(period)
            return
        known = {each.first: each for each in self.periods}
        known[key] = known[key].plus(period) if key in known else period
        self.periods = [known[each] for each in sorted(known, key=in_order)]
        while len(self.periods) > MOST_OPEN:
            self._close()

    def merge(self, other: History) -> None:
        """Add what another has seen. Closed parts are two e-processes; their mean is one, whatever they share."""
        other = copy.deepcopy(other)
        last = max((in_order(old.last) for old in (*self.old, *other.old)), default=None)
        for history in (self, other):
            while last is not None and history.periods and in_order(history.periods[0].first) <= last:
                history._close()
        if self.old and other.old:
            won = np.logaddexp(self.closed.log_won, other.closed.log_won) - math.log(2.0)
            peak = max(self.peak, other.peak, key=lambda each: each.log_e)
            self.closed = Wealth(won.tolist(), max(self.closed.n_periods, other.closed.n_periods))
            self.peak = Peak(peak.log_e - math.log(2.0), peak.period)
        elif other.old:
            self.closed = other.closed
            self.peak = other.peak
        both = sorted([*self.old, *other.old], key=lambda old: (in_order(old.last), in_order(old.first)))
        self.old = _shortened(both)
        for period in other.periods:
            self.add(period)

    def path(self) -> list[float]:
        """The logarithm of the e-value after each period that is kept one by one."""
        wealth = accumulate((period.ratios for period in self.periods), Wealth.after, initial=self.closed)
        return [each.log_e for each in wealth][1:]

    def likely_start(self) -> int:
        """Which of the periods kept one by one the change began with, by the alternative that won most."""
        total = np.cumsum([period.ratios for period in reversed(self.periods)], axis=0)[::-1]
        bets = [[log_bet(self.closed.n_periods + k)] for k in range(len(total))]
        return int(np.unravel_index(np.argmax(total + np.array(bets)), total.shape)[0])

    def check(self) -> None:
        """Refuse what no monitor can have written."""
        for period in (*self.old, *self.periods):
            period.check()
        kinds = {type(key) for period in (*self.old, *self.periods) for key in (period.first, period.last)}
        if not (kinds <= {int} or kinds <= {str}):
            raise FormatError("periods must be all whole numbers or all text.")
        if len(self.closed.log_won) != len(ALTERNATIVES) or self.closed.n_periods < 0:
            raise FormatError(f"'closed' must be what {len(ALTERNATIVES)} alternatives have won.")

    def _close(self) -> None:
        """The first of the periods kept one by one is no longer."""
        period = self.periods.pop(0)
        self.closed = self.closed.after(period.ratios)
        if self.closed.log_e > self.peak.log_e:
            self.peak = Peak(self.closed.log_e, str(period.last))
        self.old = _shortened([*self.old, period])


def summary_of(periods: list[Period], level: float) -> WindowSummary | None:
    """Some periods together; None without labelled rows."""
    return reduce(Period.plus, periods).summary(level) if periods else None


def _shortened(old: list[Period]) -> list[Period]:
    """At most MOST_OLD entries: the two neighbours with the fewest rows are joined until then."""
    while len(old) > MOST_OLD:
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


def left_after(n_periods: int) -> float:
    """What has not been bet after some periods; it falls to 0 slowly, so that late changes are found too.

    >>> left_after(0), left_after(2)
    (1.0, 0.5)
    """
    return 1.0 / math.log2(n_periods + 2)


def log_bet(n_periods: int) -> float:
    """The logarithm of what is bet from the period on that follows some others."""
    return math.log(left_after(n_periods) - left_after(n_periods + 1))
