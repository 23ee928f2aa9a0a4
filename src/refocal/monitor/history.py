"""The periods of a monitor: recent ones individually, older ones summarised."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate

import numpy as np

from refocal.errors import FormatError
from refocal.monitor.evidence import ALTERNATIVES, Wealth
from refocal.monitor.periods import Period, WindowSummary

# The number of periods kept individually, and the number of entries for older, closed periods.
MOST_OPEN, MOST_OLD = 60, 20


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
    """No more than so many entries: the two neighbours of fewest rows become one."""
    while len(old) > MOST_OLD:
        at = min(range(len(old) - 1), key=lambda i: old[i].n + old[i + 1].n)
        old[at : at + 2] = [old[at].plus(old[at + 1])]
    return old
