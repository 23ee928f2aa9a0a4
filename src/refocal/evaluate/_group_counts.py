"""Groups of rows in blocks: sums of each group by cells of the probability, which add up over blocks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Indices, Vector
from refocal._groups import MOST_GROUPS, Groups
from refocal.errors import ParameterError
from refocal.evaluate._groups import DRAWS
from refocal.evaluate._look import banded
from refocal.evaluate.evaluation import Reliability
from refocal.metrics import Interval
from refocal.metrics._bins import Bins, Ranked, join_cells, quantile_starts
from refocal.metrics._histogram_cells import Cells
from refocal.metrics._inputs import Rows
from refocal.metrics._resampling import base_weight
from refocal.metrics.reliability import curve_of
from refocal.metrics.shift import interval_of_shift

# 64 cells for every factor of two in p: as fine as thousands of groups allow.
CELLS = Cells(6)


@dataclass(frozen=True)
class Coded:
    """The groups of some rows: their names, column by column, and the number of each row's group in each column."""

    names: list[tuple[str, str]]
    numbers: list[Indices]

    @classmethod
    def of(cls, groups: Groups) -> Coded:
        """The groups by number, all columns together."""
        names: list[tuple[str, str]] = []
        numbers = []
        for column, values in groups.items():
            distinct, place = np.unique(values, return_inverse=True)
            numbers.append(place + len(names))
            names += [(column, name) for name in distinct.tolist()]
        return cls(names, numbers)


@dataclass(frozen=True)
class GroupCounts:
    """Rows, and sums of weight, weight × p, weight × outcome and weight², of each cell of each group that has rows.

    `keys` are the number of a group times that of all cells, plus the cell.
    """

    names: list[tuple[str, str]]
    keys: Indices
    count: Indices
    sums: Vector

    @classmethod
    def of(cls, rows: Rows, names: list[tuple[str, str]], numbers: list[Indices]) -> GroupCounts:
        """The sums of some rows, by the numbers of their groups."""
        p, happened = rows.confidence()
        weight, cell = base_weight(rows), CELLS.index(p)
        terms = (weight, weight * p, weight * happened, weight * weight)
        if not numbers:
            return NO_GROUPS
        keys = np.concatenate([number * CELLS.size + cell for number in numbers])
        return cls(names, *_added(keys, np.ones(len(keys)), np.tile(np.stack(terms), len(numbers))))

    def merge(self, other: GroupCounts) -> GroupCounts:
        """Both together."""
        if not self.names or not other.names:
            return self if self.names else other
        names = sorted({*self.names, *other.names})
        column, most = next(iter(Counter(column for column, _ in names).most_common(1)), ("", 0))
        if most > MOST_GROUPS:
            expected = f"of at most {MOST_GROUPS:,} groups in a column"
            raise ParameterError("groups", "evaluate", expected=expected, got=f"{most:,} or more in {column!r}")
        both = (self, other)
        keys = np.concatenate([each._renumbered(names) for each in both])
        sums = np.concatenate([each.sums for each in both], axis=1)
        return GroupCounts(names, *_added(keys, np.concatenate([each.count for each in both]), sums))

    def members(self, seed: int) -> list[tuple[str, str, CellsOfGroup]]:
        """Every group that has weight, by its column and its name."""
        group, found = self.keys // CELLS.size, []
        for number, (column, name) in enumerate(self.names):
            mine = (group == number) & (self.sums[0] > 0.0)
            if mine.any():
                found.append((column, name, CellsOfGroup(Bins(self.count[mine], *self.sums[:, mine]), seed)))
        return found

    def _renumbered(self, names: list[tuple[str, str]]) -> Indices:
        number = {name: i for i, name in enumerate(names)}
        new = np.array([number[name] for name in self.names], dtype=np.int64)
        return new[self.keys // CELLS.size] * CELLS.size + self.keys % CELLS.size


def _added(keys: Indices, count: NDArray[np.generic], sums: Vector) -> tuple[Indices, Indices, Vector]:
    """The distinct keys, rising, and what belongs to each, added up."""
    distinct, at = np.unique(keys, return_inverse=True)
    n = len(distinct)
    counts: Indices = np.bincount(at, count, n).astype(np.int64)
    return distinct, counts, np.stack([np.bincount(at, row, n) for row in sums])


NO_GROUPS = GroupCounts([], np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty((4, 0)))


@dataclass(frozen=True)
class CellsOfGroup:
    """A group by the cells of its probabilities, whose rows count as if they had the mean of their cell."""

    cells: Bins
    seed: int

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.cells.count.sum())

    @property
    def mean(self) -> float:
        """The mean probability."""
        return float(self.cells.confidence.sum() / self.cells.weight.sum())

    @property
    def rate(self) -> float:
        """How often the event occurred."""
        return float(self.cells.correct.sum() / self.cells.weight.sum())

    @property
    def _p(self) -> Vector:
        return np.clip(self.cells.confidence / self.cells.weight, 0.0, 1.0)

    def difference(self, level: float) -> Interval:
        """Mean less rate."""
        total = self.cells.weight.sum()
        squared = self.cells.squared_weight / total**2
        return interval_of_shift(self._p, self.cells.weight / total, squared, self.rate, level)

    def bins(self, n_bins: int) -> Bins:
        """Bins of nearly equal mass: they end where cells do."""
        return join_cells(self.cells, self._starts(n_bins))

    def ece_by_chance(self, n_bins: int) -> float:
        """The mean ECE of outcomes that are drawn from the probabilities."""
        size = np.maximum(np.round(self.cells.weight**2 / self.cells.squared_weight), 1.0).astype(np.int64)
        happened = np.random.default_rng(self.seed).binomial(size, self._p, size=(DRAWS, len(size)))
        gaps = self.cells.weight * (self._p - happened / size)
        errors = np.abs(np.add.reduceat(gaps, self._starts(n_bins), axis=1)).sum(axis=1)
        return float(errors.mean() / self.cells.weight.sum())

    def reliability(self, n_bins: int, level: float) -> Reliability:
        """The curve with its band."""
        return banded(curve_of(self.bins(n_bins), level), level)

    def _starts(self, n_bins: int) -> Indices:
        starts = quantile_starts(Ranked(self._p, self.cells.correct, self.cells.weight), n_bins)
        return np.unique(starts[starts < len(self.cells.weight)])
