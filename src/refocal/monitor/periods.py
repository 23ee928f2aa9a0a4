"""The sums of a period, which can be added over machines, regions and days."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from refocal._arrays import Vector
from refocal.calibrators._plain import field, number
from refocal.errors import FormatError
from refocal.metrics._inputs import Rows
from refocal.metrics.intervals import Interval, normal_interval, share_interval
from refocal.metrics.scores import brier_terms
from refocal.monitor.evidence import ALTERNATIVES, LEAST, log_ratios

N_BINS = 10


@dataclass(frozen=True)
class Period:
    """Sums over the rows of a period whose labels are known, and how many others there are."""

    n: int
    log_loss: float
    brier: float
    bins: Vector  # rows, probabilities and events, (3, N_BINS), in bins of equal width
    ratios: Vector

    @classmethod
    def empty(cls) -> Period:
        """Of no rows."""
        return cls(0, 0.0, 0.0, np.zeros((3, N_BINS)), np.zeros(len(ALTERNATIVES)))

    @classmethod
    def of(cls, rows: Rows) -> Period:
        """Of rows with their labels; with more than two classes the event is that the top class is right."""
        p, happened = rows.event(1) if rows.n_classes == 2 else rows.confidence()
        of_label = np.where(happened, p, 1.0 - p)
        if rows.n_classes > 2:
            of_label = rows.probabilities[np.arange(len(p)), rows.labels]
        at = np.minimum((p * N_BINS).astype(np.int64), N_BINS - 1)
        sums = [np.bincount(at, weights, N_BINS) for weights in (np.ones(len(p)), p, happened.astype(np.float64))]
        return cls(
            n=len(p),
            log_loss=-float(np.sum(np.log(np.clip(of_label, LEAST, 1.0)))),
            brier=float(np.sum(np.square(p - happened) if rows.n_classes == 2 else brier_terms(rows))),
            bins=np.array(sums),
            ratios=log_ratios(p, happened),
        )

    def plus(self, other: Period) -> Period:
        """Of the rows of both."""
        return Period(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Period)))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        counts, p, events = self.bins.tolist()
        whole = {"rows": [int(count) for count in counts], "p": p, "events": [int(count) for count in events]}
        return {"n": self.n, "log_loss": self.log_loss, "brier": self.brier, **whole, "ratios": self.ratios.tolist()}

    @classmethod
    def from_dict(cls, data: Any) -> Period:
        """What `to_dict` described."""
        if not isinstance(data, dict):
            raise FormatError("a period must be an object.")
        bins = np.array([numbers(data, name, N_BINS) for name in ("rows", "p", "events")])
        n = field(data, "n", int)
        if n < 0 or bins.min() < 0.0 or bins[0].sum() != n or np.any(bins[1:] > bins[0] + 1e-6):
            raise FormatError("the counts of a period must fit each other.")
        ratios = np.array(numbers(data, "ratios", len(ALTERNATIVES)))
        return cls(n, number(data, "log_loss"), number(data, "brier"), bins, ratios)


def numbers(data: dict[str, Any], name: str, n: int) -> list[float]:
    """A list of so many numbers in a file."""
    values = field(data, name, list)
    if len(values) != n or not all(type(value) in (int, float) for value in values):
        raise FormatError(f"the field {name!r} must be {n} numbers.")
    return [float(value) for value in values]


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


def summarise(first: str, last: str, period: Period, level: float) -> WindowSummary | None:
    """A period in numbers; None without rows."""
    if period.n == 0:
        return None
    n, (count, p, events) = period.n, period.bins
    mean, rate = float(p.sum()) / n, float(events.sum()) / n
    used = count > 0
    spread = p[used] * (1.0 - p[used] / count[used])
    error = math.sqrt(max(rate * (1.0 - rate), 1.0 / n) / n)
    return WindowSummary(
        first=first,
        last=last,
        n=n,
        log_loss=period.log_loss / n,
        brier_score=period.brier / n,
        ece=float(np.abs(p - events).sum()) / n,
        ece_by_chance=float(np.sqrt(2.0 / np.pi * spread).sum()) / n,
        mean_p=mean,
        rate=share_interval(rate, n, level),
        bias=normal_interval(mean - rate, error, level, (-1.0, 1.0)),
    )
