"""The periods of a monitor, recent ones individually, older ones summarised, and the evidence that they add up to.

The evidence is an e-process, which remains valid however often it is inspected: products of the likelihood ratios of
rows are martingales, and so is their mean over several alternatives and over the periods with which a change may have
begun. Such a martingale ever exceeds 1/α with a probability of at most α (Ville 1939).
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike

from refocal.errors import FormatError
from refocal.monitor.periods import ALTERNATIVES, Period, WindowSummary

# The number of periods kept individually, and the number of entries for older, closed periods.
MOST_OPEN, MOST_OLD = 60, 20
# The logarithm of nothing; JSON has no infinity.
NOTHING = -1e300


@dataclass(frozen=True)
class Wealth:
    """Where the e-process stands: the logarithm of what each alternative has won, and how many periods there were.

    It starts with an e-value of 1.
    """

    log_won: list[float] = field(default_factory=lambda: [NOTHING] * len(ALTERNATIVES))
    n_periods: int = 0

    @property
    def log_e(self) -> float:
        """The logarithm of the e-value."""
        won = np.logaddexp.reduce(self.log_won) - math.log(len(ALTERNATIVES))
        return float(np.logaddexp(won, math.log(left_after(self.n_periods))))

    def after(self, log_ratios: ArrayLike) -> Wealth:
        """One period later: a part of what was left is bet from here on."""
        n = self.n_periods + 1
        bet = math.log(left_after(n - 1) - left_after(n))
        return Wealth((np.logaddexp(self.log_won, bet) + log_ratios).tolist(), n)


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

    def add(self, period: Period) -> None:
        """Rows of a period, perhaps none; of one that is closed they count in its sums, and no longer in the test."""
        key = period.first
        if self.old and key <= self.old[-1].last:
            at = next(i for i, old in enumerate(self.old) if key <= old.last)
            self.old[at] = self.old[at].plus(period)
            return
        known = {each.first: each for each in self.periods}
        known[key] = known[key].plus(period) if key in known else period
        self.periods = [known[each] for each in sorted(known)]
        while len(self.periods) > MOST_OPEN:
            self._close()

    def merge(self, other: History) -> None:
        """Add what another has seen. Closed parts are two e-processes; their mean is one, whatever they share."""
        other = copy.deepcopy(other)
        last = max((old.last for old in (*self.old, *other.old)), default=None)
        for history in (self, other):
            while last is not None and history.periods and history.periods[0].first <= last:
                history._close()
        if self.old and other.old:
            won = np.logaddexp(self.closed.log_won, other.closed.log_won) - math.log(2.0)
            peak = max(self.peak, other.peak, key=lambda each: each.log_e)
            self.closed = Wealth(won.tolist(), max(self.closed.n_periods, other.closed.n_periods))
            self.peak = Peak(peak.log_e - math.log(2.0), peak.period)
        elif other.old:
            self.closed, self.peak = other.closed, other.peak
        self.old = _shortened(sorted([*self.old, *other.old], key=lambda old: (old.last, old.first)))
        for period in other.periods:
            self.add(period)

    def path(self) -> list[float]:
        """The logarithm of the e-value after each period that is kept one by one."""
        wealth = accumulate((period.ratios for period in self.periods), Wealth.after, initial=self.closed)
        return [each.log_e for each in wealth][1:]

    def likely_start(self) -> int:
        """Which of the periods kept one by one the change began with, by the alternative that won most."""
        total = np.cumsum([period.ratios for period in reversed(self.periods)], axis=0)[::-1]
        first = self.closed.n_periods
        bets = [math.log(left_after(k) - left_after(k + 1)) for k in range(first, first + len(total))]
        return int(np.unravel_index(np.argmax(total + np.array(bets)[:, None]), total.shape)[0])

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


def left_after(n_periods: int) -> float:
    """What has not been bet after some periods; it falls to 0 slowly, so that late changes are found too.

    >>> left_after(0), left_after(2)
    (1.0, 0.5)
    """
    return 1.0 / math.log2(n_periods + 2)
