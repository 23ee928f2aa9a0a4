"""The sums of a period, which can be added over machines, regions and days.

Among them is the evidence against calibration: if the event of a row has the predicted probability p, then the ratio of
the likelihoods of another probability and of p is 1 on average.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from refocal._arrays import Flags, Vector
from refocal.errors import FormatError
from refocal.metrics._inputs import Rows
from refocal.metrics.intervals import Interval, normal_interval, share_interval
from refocal.metrics.scores import brier_terms

N_BINS = 10
# Alternatives: intercepts and slopes of the log-odds, which are 0 and 1 under calibration.
SHIFTS, SLOPES = (0.125, 0.25, 0.5, 1.0), (0.6, 0.8, 1.25, 1.7)
ALTERNATIVES = np.array([*((sign * shift, 1.0) for sign in (-1, 1) for shift in SHIFTS), *((0.0, b) for b in SLOPES)])
# Probabilities are clipped to this distance from 0 and 1: an "impossible" event may occur.
LEAST = 1e-12

Key = Any
"""The name of a period, by which it is sorted: a whole number or a text, all of a monitor of one kind."""


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
    def of(cls, key: Key, rows: Rows) -> Period:
        """A period of rows with their labels; with more than two classes the event is that the top class is right."""
        p, happened = rows.event(1) if rows.n_classes == 2 else rows.confidence()
        of_label = np.where(happened, p, 1.0 - p)
        if rows.n_classes > 2:
            of_label = rows.probabilities[np.arange(len(p)), rows.labels]
        at = np.minimum((p * N_BINS).astype(np.int64), N_BINS - 1)
        return cls(
            first=key,
            last=key,
            n=len(p),
            log_loss=-float(np.sum(np.log(np.clip(of_label, LEAST, 1.0)))),
            brier=float(np.sum(np.square(p - happened) if rows.n_classes == 2 else brier_terms(rows))),
            rows=np.bincount(at, minlength=N_BINS).tolist(),
            p=np.bincount(at, p, N_BINS).tolist(),
            events=np.bincount(at[happened], minlength=N_BINS).tolist(),
            ratios=log_ratios(p, happened).tolist(),
        )

    def plus(self, other: Period) -> Period:
        """A period with the rows of both."""
        (_, _, *mine), (_, _, *others) = vars(self).values(), vars(other).values()
        sums = [np.add(*both).tolist() for both in zip(mine, others, strict=True)]
        return Period(min(self.first, other.first), max(self.last, other.last), *sums)

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
        n, count, p, events = self.n, np.array(self.rows), np.array(self.p), np.array(self.events)
        mean, rate = float(p.sum()) / n, float(events.sum()) / n
        spread = p * (1.0 - p / np.maximum(count, 1))
        error = math.sqrt(max(rate * (1.0 - rate), 1.0 / n) / n)
        return WindowSummary(
            first=str(self.first),
            last=str(self.last),
            n=n,
            log_loss=self.log_loss / n,
            brier_score=self.brier / n,
            ece=float(np.abs(p - events).sum()) / n,
            ece_by_chance=float(np.sqrt(2.0 / np.pi * spread).sum()) / n,
            mean_p=mean,
            rate=share_interval(rate, n, level),
            bias=normal_interval(mean - rate, error, level, (-1.0, 1.0)),
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
    """The logarithms of the likelihood ratios of all alternatives, added up over rows."""
    p = np.clip(p, LEAST, 1.0 - LEAST)
    odds = np.log(p) - np.log1p(-p)
    sign = np.where(happened, -1.0, 1.0)
    said = np.logaddexp(0.0, sign * odds)
    return np.array([float(np.sum(said - np.logaddexp(0.0, sign * (a + b * odds)))) for a, b in ALTERNATIVES])
