"""Groups of rows in blocks: sums of each group by cells of the probability, which add up over blocks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Indices, Vector
from refocal._groups import MOST_GROUPS, Groups
from refocal.errors import ParameterError
from refocal.evaluate._groups import Group
from refocal.metrics._bins import Bins, terms
from refocal.metrics._histogram_cells import Cells
from refocal.metrics._inputs import Rows

# 64 cells for every factor of two in p: as fine as thousands of groups allow.
CELLS = Cells(6)


def numbered(groups: Groups) -> tuple[list[tuple[str, str]], list[Indices]]:
    """The names of all groups, column by column, and the number of each row's group in each column."""
    names: list[tuple[str, str]] = []
    numbers = []
    for column, values in groups.items():
        distinct, place = np.unique(values, return_inverse=True)
        numbers.append(place + len(names))
        names += [(column, name) for name in distinct.tolist()]
    return names, numbers


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
        if not numbers:
            return NO_GROUPS
        keys = np.concatenate([number * CELLS.size + CELLS.index(p) for number in numbers])
        sums = np.stack(terms(p, happened, rows.weights))
        return cls(names, *_added(keys, np.ones(len(keys)), np.tile(sums, len(numbers))))

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

    def groups(self, seed: int) -> list[Group]:
        """Every group that has weight."""
        number, found = self.keys // CELLS.size, []
        for i, (column, name) in enumerate(self.names):
            mine = (number == i) & (self.sums[0] > 0.0)
            if mine.any():
                cells = Bins(self.count[mine], *self.sums[:, mine])
                p = np.clip(cells.confidence / cells.weight, 0.0, 1.0)
                found.append(Group(column, name, p, cells, seed))
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
