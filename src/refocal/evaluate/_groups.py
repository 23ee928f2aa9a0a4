"""Calibration group by group, with intervals that hold for all groups at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from refocal._groups import Groups
from refocal.evaluate._look import N_BINS
from refocal.evaluate.evaluation import GroupRow, Reliability
from refocal.metrics import Interval
from refocal.metrics._bins import Bins, make_bins, norm_of_gaps
from refocal.metrics._inputs import Rows
from refocal.metrics._resampling import base_weight, chunks
from refocal.metrics.reliability import band_of, curve_of
from refocal.metrics.shift import shift_interval

# A bin of a group has so many rows, as long as that leaves a bin.
ROWS_OF_A_BIN = 50
# So many groups have a reliability diagram, the worst.
DRAWN = 12
DRAWS = 200


class Members(Protocol):
    """What is asked of a group, whose rows are at hand or were counted in blocks."""

    @property
    def n(self) -> int:
        """Number of rows."""

    @property
    def mean(self) -> float:
        """The mean probability of class 1 of two, otherwise of the top class."""

    @property
    def rate(self) -> float:
        """How often that class occurred."""

    def difference(self, level: float) -> Interval:
        """Mean less rate."""

    def bins(self, n_bins: int) -> Bins:
        """Bins of equal mass."""

    def ece_by_chance(self, n_bins: int) -> float:
        """The mean ECE of outcomes that are drawn from the probabilities: what a calibrated model would show."""

    def reliability(self, n_bins: int, level: float) -> Reliability:
        """The curve, with the band in which that of a calibrated model would lie."""


def measure_groups(groups: Sequence[tuple[str, str, Members]], level: float) -> list[GroupRow]:
    """Every group, by its column and its name, the worst first: its mean is farthest from its rate, for its interval.

    The intervals hold for all groups together: by Šidák each has the level to the power of 1 over their number.
    """
    each = level ** (1.0 / max(len(groups), 1))
    found = [(members.difference(each), column, name, members) for column, name, members in groups]
    found.sort(key=lambda row: (-_surely_off(row[0]), -abs(row[0].value)))
    return [
        _row(column, name, members, difference, level, drawn=i < DRAWN)
        for i, (difference, column, name, members) in enumerate(found)
    ]


def _surely_off(difference: Interval) -> float:
    """How far a mean is from its rate at least."""
    return max(difference.low, -difference.high, 0.0)


def _row(column: str, name: str, members: Members, difference: Interval, level: float, *, drawn: bool) -> GroupRow:
    n_bins = min(N_BINS, max(1, members.n // ROWS_OF_A_BIN))
    return GroupRow(
        column=column,
        name=name,
        n=members.n,
        mean=members.mean,
        rate=members.rate,
        difference=difference,
        ece=norm_of_gaps(members.bins(n_bins), "l1"),
        ece_by_chance=members.ece_by_chance(n_bins),
        reliability=members.reliability(n_bins, level) if drawn else None,
    )


def members_of(rows: Rows, groups: Groups, seed: int) -> list[tuple[str, str, RowsOfGroup]]:
    """Every group of every column that has weight."""
    parts = [
        (column, name, RowsOfGroup(rows.take(chosen), seed))
        for column, names in groups.items()
        for name, chosen in _places(names)
    ]
    return [part for part in parts if base_weight(part[2].rows).sum() > 0]


def _places(names: NDArray[np.str_]) -> list[tuple[str, NDArray[np.int64]]]:
    """The rows of each group."""
    values, place, counts = np.unique(names, return_inverse=True, return_counts=True)
    order = np.argsort(place, kind="stable")
    return list(zip(values.tolist(), np.split(order, np.cumsum(counts)[:-1]), strict=True))


@dataclass(frozen=True)
class RowsOfGroup:
    """A group whose rows are at hand."""

    rows: Rows
    seed: int

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.rows.labels)

    @property
    def mean(self) -> float:
        """The mean probability."""
        return float(np.average(self.rows.confidence()[0], weights=self.rows.weight))

    @property
    def rate(self) -> float:
        """How often the event occurred."""
        return float(np.average(self.rows.confidence()[1], weights=self.rows.weight))

    def difference(self, level: float) -> Interval:
        """Mean less rate."""
        return shift_interval(self.rows, level)

    def bins(self, n_bins: int) -> Bins:
        """Bins of equal mass."""
        return make_bins(*self.rows.confidence(), self.rows.weight, n_bins=n_bins, strategy="quantile")

    def ece_by_chance(self, n_bins: int) -> float:
        """The mean ECE of outcomes that are drawn from the probabilities."""
        p, _ = self.rows.confidence()
        order = np.argsort(p, kind="stable")
        weight, count = base_weight(self.rows)[order], self.bins(n_bins).count
        starts = np.cumsum(count) - count
        generator = np.random.default_rng(self.seed)
        errors = []
        for size in chunks(DRAWS, len(p)):
            gaps = weight * (p[order] - (generator.random((size, len(p))) < p[order]))
            errors.append(np.abs(np.add.reduceat(gaps, starts, axis=1)).sum(axis=1) / weight.sum())
        return float(np.concatenate(errors).mean())

    def reliability(self, n_bins: int, level: float) -> Reliability:
        """The curve with its band."""
        band = band_of(self.rows, kind="consistency", n_bins=n_bins, strategy="quantile", n_resamples=DRAWS,
                       level=level, seed=self.seed)  # fmt: skip
        found = curve_of(self.bins(n_bins), level)
        return Reliability(found.count, found.confidence, found.accuracy, band.low, band.high)
