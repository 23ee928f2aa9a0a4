"""The periods of a monitor: recent ones individually, older ones summarised."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from functools import reduce

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

    @property
    def n_rows(self) -> int:
        """Rows with labels."""
        return sum(period.n for period in (*self.old, *self.periods))

    def next_key(self) -> int:
        """One more than the last period, where they are counted."""
        last = self.periods[-1].last if self.periods else 0
        return last + 1 if isinstance(last, int) else 1

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

    def merged(self, other: History) -> History:
        """What both have seen. Closed parts are two e-processes; their mean is one, whatever they have in common."""
        mine, others = copy.deepcopy(self), copy.deepcopy(other)
        last = max((old.last for old in (*mine.old, *others.old)), default=None)
        for history in (mine, others):
            while last is not None and history.periods and history.periods[0].first <= last:
                history._close()
        if mine.old and others.old:
            won = np.logaddexp(mine.closed.log_won, others.closed.log_won) - math.log(2.0)
            peak = max(mine.peak, others.peak, key=lambda each: each.log_e)
            mine.closed = Wealth(won.tolist(), max(mine.closed.n_periods, others.closed.n_periods))
            mine.peak = Peak(peak.log_e - math.log(2.0), peak.period)
        elif others.old:
            mine.closed, mine.peak = others.closed, others.peak
        mine.old = _shortened(sorted([*mine.old, *others.old], key=lambda old: (old.last, old.first)))
        for period in others.periods:
            mine.add(period)
        return mine

    def path(self) -> list[float]:
        """The logarithm of the e-value after each period that is kept one by one."""
        wealth, found = self.closed, []
        for period in self.periods:
            wealth = wealth.after(period.ratios)
            found.append(wealth.log_e)
        return found

    def first_above(self, log_e: float) -> str | None:
        """The first period after which the e-process was so high."""
        if self.peak.log_e >= log_e:
            return self.peak.period
        return next((str(each.last) for each, at in zip(self.periods, self.path(), strict=True) if at >= log_e), None)

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
