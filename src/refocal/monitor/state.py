"""The periods of a monitor: recent ones individually, older ones summarised, and all of them as JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from refocal.calibrators._plain import field as read_field
from refocal.calibrators._plain import number
from refocal.errors import FormatError
from refocal.io.files import open_contents
from refocal.monitor.evidence import ALTERNATIVES, Wealth, nothing_won
from refocal.monitor.periods import Period, WindowSummary, numbers, summarise

FORMAT, VERSION, MAX_BYTES = "refocal-monitor", 1, 1 << 20
# The number of periods kept individually, and the number of entries for older, closed periods.
MOST_OPEN, MOST_OLD = 60, 20
# No logarithm of something won is further from 0 in a file: JSON has no infinity.
NOTHING = -1e300

Key = str | int


class Old(NamedTuple):
    """Some periods of long ago, for the history."""

    first: Key
    last: Key
    sums: Period


@dataclass
class History:
    """Periods by their keys; `closed` is the e-process before those kept one by one, and `peak` the largest it was."""

    open: dict[Key, Period] = field(default_factory=dict)
    old: list[Old] = field(default_factory=list)
    closed: Wealth = field(default_factory=nothing_won)
    peak: tuple[float, str] | None = None

    @property
    def n_rows(self) -> int:
        """Rows with labels."""
        return sum(period.n for period in self.open.values()) + sum(old.sums.n for old in self.old)

    def ordered(self) -> list[Key]:
        """The periods that are kept one by one, in their order."""
        return sorted(self.open)

    def next_key(self) -> int:
        """One more than the last period, where they are counted."""
        last = self.ordered()[-1] if self.open else 0
        return last + 1 if isinstance(last, int) else 1

    def add(self, key: Key, period: Period) -> None:
        """Rows of a period, perhaps none; of one that is closed they count in its sums, and no longer in the test."""
        if self.old and not key > self.old[-1].last:  # type: ignore[operator]
            at = next(i for i, old in enumerate(self.old) if not key > old.last)  # type: ignore[operator]
            self.old[at] = self.old[at]._replace(sums=self.old[at].sums.plus(period))
            return
        self.open[key] = self.open.get(key, Period.empty()).plus(period)
        while len(self.open) > MOST_OPEN:
            self._close(self.ordered()[0])

    def merged(self, other: History) -> History:
        """What both have seen. Closed parts are two e-processes; their mean is one, whatever they have in common."""
        mine, others = self._copy(), other._copy()
        last = max((old.last for history in (mine, others) for old in history.old), default=None)
        for history in (mine, others):
            while last is not None and history.open and not history.ordered()[0] > last:  # type: ignore[operator]
                history._close(history.ordered()[0])
        if mine.old and others.old:
            won = np.logaddexp(mine.closed.log_won, others.closed.log_won) - math.log(2.0)
            n_periods = max(mine.closed.n_periods, others.closed.n_periods)
            peaks = [(peak[0] - math.log(2.0), peak[1]) for peak in (mine.peak, others.peak) if peak is not None]
            mine.closed, mine.peak = Wealth(won, n_periods), max(peaks, default=None)
        elif others.old:
            mine.closed, mine.peak = others.closed, others.peak
        mine.old = _shortened(sorted([*mine.old, *others.old], key=lambda old: (old.last, old.first)))
        for key in others.ordered():
            mine.add(key, others.open[key])
        return mine

    def path(self) -> list[float]:
        """The logarithm of the e-value after each period that is kept one by one."""
        wealth, found = self.closed, []
        for key in self.ordered():
            wealth = wealth.after(self.open[key].ratios)
            found.append(wealth.log_e)
        return found

    def first_above(self, log_e: float) -> str | None:
        """The first period after which the e-process was so high."""
        if self.peak is not None and self.peak[0] >= log_e:
            return self.peak[1]
        return next((str(key) for key, at in zip(self.ordered(), self.path(), strict=True) if at >= log_e), None)

    def summary(self, keys: list[Key], level: float) -> WindowSummary | None:
        """Some of the periods that are kept one by one, together; None without labelled rows."""
        if not keys:
            return None
        return summarise(str(keys[0]), str(keys[-1]), reduce(Period.plus, map(self.open.__getitem__, keys)), level)

    def summaries(self, level: float) -> list[WindowSummary]:
        """All periods with labelled rows, in numbers."""
        entries = [*self.old, *(Old(key, key, self.open[key]) for key in self.ordered())]
        found = [summarise(str(first), str(last), sums, level) for first, last, sums in entries]
        return [each for each in found if each is not None]

    def _close(self, key: Key) -> None:
        period = self.open.pop(key)
        self.closed = self.closed.after(period.ratios)
        if self.peak is None or self.closed.log_e > self.peak[0]:
            self.peak = self.closed.log_e, str(key)
        self.old = _shortened([*self.old, Old(key, key, period)])

    def _copy(self) -> History:
        return History(dict(self.open), list(self.old), self.closed, self.peak)


def _shortened(old: list[Old]) -> list[Old]:
    """No more than so many entries: the two neighbours of fewest rows become one."""
    while len(old) > MOST_OLD:
        at = min(range(len(old) - 1), key=lambda i: old[i].sums.n + old[i + 1].sums.n)
        old[at : at + 2] = [Old(old[at].first, old[at + 1].last, old[at].sums.plus(old[at + 1].sums))]
    return old


def to_dict(history: History, settings: dict[str, float], n_classes: int | None, n_waiting: int) -> dict[str, Any]:
    """A monitor as plain values."""
    won = np.maximum(history.closed.log_won, NOTHING).tolist()
    return {
        "format": FORMAT,
        "version": VERSION,
        **settings,
        "classes": n_classes,
        "waiting": n_waiting,
        "closed": {"periods": history.closed.n_periods, "log_won": won, "peak": history.peak and list(history.peak)},
        "old": [{"first": first, "last": last, **sums.to_dict()} for first, last, sums in history.old],
        "periods": [{"period": key, **history.open[key].to_dict()} for key in history.ordered()],
    }


def from_dict(data: Any) -> tuple[dict[str, float], int | None, History]:
    """Settings, the number of classes and the periods that `to_dict` described."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise FormatError(f"not a monitor: 'format' must be {FORMAT!r}.")
    if data.get("version") != VERSION:
        raise FormatError(f"version {data.get('version')!r} is not known; this refocal reads version {VERSION}.")
    n_classes = read_field(data, "classes", object)
    if n_classes is not None and (type(n_classes) is not int or n_classes < 2):
        raise FormatError("'classes' must be a whole number of at least 2.")
    read_field(data, "waiting", int)
    closed = read_field(data, "closed", dict)
    won = np.array(numbers(closed, "log_won", len(ALTERNATIVES)))
    peak = read_field(closed, "peak", object)
    if peak is not None and not (isinstance(peak, list) and [type(each) for each in peak] == [float, str]):
        raise FormatError("'peak' must be a number and a period.")
    old = [
        Old(_read_key(each, "first"), _read_key(each, "last"), Period.from_dict(each))
        for each in read_field(data, "old", list)
    ]
    periods = {_read_key(each, "period"): Period.from_dict(each) for each in read_field(data, "periods", list)}
    kinds = {type(key) for key in periods} | {type(key) for each in old for key in each[:2]}
    if len(kinds) > 1:
        raise FormatError("periods must be all whole numbers or all text.")
    wealth = Wealth(np.where(won <= NOTHING, -np.inf, won), max(0, read_field(closed, "periods", int)))
    settings = {name: number(data, name) for name in ("alpha", "smallest_shift", "level")}
    return settings, n_classes, History(periods, old, wealth, None if peak is None else (peak[0], peak[1]))


def read_waiting(path: Path) -> dict[str, tuple[Key, Any]]:
    """The predictions that wait for labels; nothing in the file is executed."""
    contents = open_contents(path)
    ids, periods, p = (np.asarray(contents.get(name)) for name in ("ids", "periods", "probabilities"))
    if not len(ids) == len(periods) == len(p):
        raise FormatError(f"{path.name} must hold as many ids as periods and probabilities.")
    return {str(name): (key, row) for name, key, row in zip(ids, periods.tolist(), p, strict=True)}


def _read_key(data: Any, name: str) -> Key:
    key = data.get(name) if isinstance(data, dict) else None
    if type(key) not in (int, str):
        raise FormatError(f"the field {name!r} must be a whole number or a text.")
    return key  # type: ignore[return-value]
