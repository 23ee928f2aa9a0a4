"""States of version 1, of refocal 0.1.0, whose test was that of independent rows."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from refocal._json import build
from refocal.errors import FormatError
from refocal.monitor.history import LARGEST_LOG_E, MOST_OPEN, Alarm, Entry, History, Period, in_order
from refocal.monitor.independent import ALTERNATIVES, Wealth


@dataclass(frozen=True)
class Peak:
    """The largest logarithm of the e-value of closed periods, and the period after which it was so large."""

    log_e: float = 0.0
    period: str = ""


@dataclass
class OldHistory:
    """The fields of a history of version 1."""

    periods: list[Period] = field(default_factory=list)
    old: list[Period] = field(default_factory=list)
    closed: Wealth = field(default_factory=Wealth)
    peak: Peak = field(default_factory=Peak)


def history_of_version_1(data: Any, alpha: Any) -> dict[str, Any]:
    """The history of such a state, as one of rows that are declared independent: that is what its test assumed."""
    before = build(OldHistory, data, "monitor.history")
    if not isinstance(alpha, float) or not 0.0 < alpha < 1.0:
        raise FormatError("'alpha' must be a number between 0 and 1.")
    for period in (*before.old, *before.periods):
        period.check()
        if len(period.ratios) != len(ALTERNATIVES):
            raise FormatError(f"a period must have {len(ALTERNATIVES)} ratios.")
    if len(before.closed.log_won) != len(ALTERNATIVES) or before.closed.n_periods < 0:
        raise FormatError(f"'closed' must be what {len(ALTERNATIVES)} alternatives have won.")
    for periods in (before.old, before.periods):  # text was once sorted as text, day10 before day2
        if len({type(period.last) for period in periods}) > 1:
            raise FormatError("periods must be all whole numbers or all text.")
        periods.sort(key=lambda period: in_order(period.last))
    wealth = before.closed
    n_rows = sum(period.n for period in before.old)
    made = History(independent=True, periods=before.periods, old=before.old)
    highest = before.peak
    for period in before.periods:
        wealth = wealth.after(period.ratios)
        n_rows += period.n
        made.path.append(Entry(str(period.last), wealth.log_e, n_rows))
        if highest.log_e < -math.log(alpha) <= wealth.log_e:
            highest = Peak(wealth.log_e, str(period.last))
    if highest.log_e >= -math.log(alpha):
        made.alarms.append(Alarm(highest.period, math.exp(min(highest.log_e, LARGEST_LOG_E)), n_rows, [wealth.moved()]))
    made.wealth = wealth
    made.n_entered = n_rows
    made.path = made.path[-MOST_OPEN:]
    return asdict(made)
