"""Calibration group by group, with intervals that hold for all groups at once; in blocks by sums that add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from refocal._arrays import Flags, Indices, Vector
from refocal._groups import MOST_GROUPS, Groups
from refocal.calibrators import Calibrator
from refocal.calibrators._answers import group_columns
from refocal.errors import InputWarning, ParameterError, warn
from refocal.evaluate._results import N_BINS
from refocal.evaluate.evaluation import GroupRow, Reliability
from refocal.metrics import Interval
from refocal.metrics._bins import Bins, Ranked, join_cells, norm_of_gaps, quantile_starts, terms
from refocal.metrics._histogram_cells import Cells
from refocal.metrics._inputs import Rows
from refocal.metrics._resampling import chunks
from refocal.metrics.inversion import interval_of_shift
from refocal.metrics.reliability import curve_of

# A bin of a group has so many rows, as long as that leaves a bin.
ROWS_OF_A_BIN = 50
# So many groups have a reliability diagram, the worst.
DRAWN = 12
DRAWS = 200
# 64 cells for every factor of two in p: as fine as thousands of groups allow.
CELLS = Cells(6)


@dataclass(frozen=True)
class Group:
    """The rows of a group in cells of rising probability `p`: of class 1 of two, otherwise of the top class.

    In memory every row is a cell; in blocks the rows of a cell count as if they had its mean.
    """

    column: str
    name: str
    p: Vector
    cells: Bins
    seed: int

    @cached_property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.cells.count.sum())

    @cached_property
    def total(self) -> float:
        """The weight of all rows."""
        return float(self.cells.weight.sum())

    @cached_property
    def rate(self) -> float:
        """How often the event occurred."""
        return float(self.cells.correct.sum() / self.total)

    @cached_property
    def starts(self) -> Indices:
        """The first cell of each bin of equal mass."""
        n_bins = min(N_BINS, max(1, self.n_rows // ROWS_OF_A_BIN))
        return quantile_starts(Ranked(self.p, self.cells.correct, self.cells.weight), n_bins)

    def difference(self, level: float) -> Interval:
        """Mean probability less rate."""
        return interval_of_shift(self.cells, level)

    @cached_property
    def by_chance(self) -> Vector:
        """Weighted outcomes of each bin, (draws, bins), that are drawn from the probabilities."""
        generator, weight = np.random.default_rng(self.seed), self.cells.weight
        hits = []
        for n_draws in chunks(DRAWS, len(self.p)):
            shape = (n_draws, len(self.p))
            happened: Vector | Flags
            if self.n_rows == len(self.p):
                happened = generator.random(shape) < self.p
            else:
                size = np.maximum(np.round(weight**2 / self.cells.squared_weight), 1.0).astype(np.int64)
                happened = generator.binomial(size, self.p, size=shape) / size
            hits.append(np.add.reduceat(weight * happened, self.starts, axis=1))
        return np.concatenate(hits)[:, np.add.reduceat(weight, self.starts) > 0.0]

    def row(self, difference: Interval, level: float, *, drawn: bool) -> GroupRow:
        """The results; `drawn` with a reliability diagram and its band."""
        bins = join_cells(self.cells, self.starts)
        chance = np.abs(bins.confidence - self.by_chance).sum(axis=1) / self.total
        reliability = None
        if drawn:
            curve, tail = curve_of(bins, level), (1.0 - level) / 2.0
            low, high = np.quantile(self.by_chance, [tail, 1.0 - tail], axis=0) / bins.weight
            reliability = Reliability(curve.count, curve.confidence, curve.accuracy, low.tolist(), high.tolist())
        return GroupRow(
            column=self.column,
            name=self.name,
            n=self.n_rows,
            mean=float(self.cells.confidence.sum() / self.total),
            rate=self.rate,
            difference=difference,
            ece=norm_of_gaps(bins, "l1"),
            ece_by_chance=float(chance.mean()),
            reliability=reliability,
        )


def measure_groups(groups: Sequence[Group], level: float) -> list[GroupRow]:
    """Every group, the worst first: its mean is farthest from its rate, for its interval.

    The intervals hold for all groups together: by Šidák each has the level to the power of 1 over their number.
    """
    each = level ** (1.0 / max(len(groups), 1))
    found = [(group.difference(each), group) for group in groups]
    # How far a mean is from its rate at least, and then how far it seems to be.
    found.sort(key=lambda pair: (-max(pair[0].low, -pair[0].high, 0.0), -abs(pair[0].value)))
    return [group.row(difference, level, drawn=i < DRAWN) for i, (difference, group) in enumerate(found)]


def groups_of(rows: Rows, groups: Groups, seed: int) -> list[Group]:
    """Every group of every column that has weight."""
    p, happened = rows.confidence()
    weight, order, found = rows.weights, np.argsort(p, kind="stable"), []
    columns = terms(p, happened, weight)
    for column, names in groups.items():
        values, place = np.unique(names[order], return_inverse=True)
        by_group = np.split(order[np.argsort(place, kind="stable")], np.cumsum(np.bincount(place))[:-1])
        for name, some in zip(values.tolist(), by_group, strict=True):
            cells = Bins(np.ones(len(some), dtype=np.int64), *(each[some] for each in columns))
            found.append(Group(column, name, p[some], cells, seed))
    return [group for group in found if group.total > 0.0]


def warn_of_groups(methods: Mapping[str, Calibrator | None], columns: Collection[str]) -> None:
    """A calibrator of groups is measured without them where the rows have none."""
    for name, calibrator in methods.items():
        needed = [] if calibrator is None else group_columns(calibrator)
        missing = [column for column in needed if column not in columns]
        if missing and not len(columns) == len(needed) == 1:  # one column needs no name
            text = f"evaluate: the calibrator {name!r} was fitted with groups of {missing[0]!r}, which the rows lack;"
            warn(f"{text} it is measured without them.", InputWarning)


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
    """Of each cell of each group that has rows: these, and sums of weight, weight × p, weight × outcome and weight².

    `keys` are the number of a group times that of all cells, plus the cell.
    """

    names: list[tuple[str, str]]
    keys: Indices
    sums: Vector

    @classmethod
    def of(cls, rows: Rows, names: list[tuple[str, str]], numbers: list[Indices]) -> GroupCounts:
        """The sums of some rows, by the numbers of their groups."""
        p, happened = rows.confidence()
        keys = np.concatenate([number * CELLS.size + CELLS.index(p) for number in numbers])
        of_rows = np.stack([np.ones(len(p)), *terms(p, happened, rows.weights)])
        return cls(names, *_added(keys, np.tile(of_rows, len(numbers))))

    def merge(self, other: GroupCounts) -> GroupCounts:
        """Both together."""
        names = sorted({*self.names, *other.names})
        column, most = next(iter(Counter(column for column, _ in names).most_common(1)), ("", 0))
        if most > MOST_GROUPS:
            expected = f"of at most {MOST_GROUPS:,} groups in a column"
            raise ParameterError("groups", "evaluate", expected=expected, got=f"{most:,} or more in {column!r}")
        number, keys = {name: i for i, name in enumerate(names)}, []
        for each in (self, other):
            group, cell = np.divmod(each.keys, CELLS.size)
            keys.append(np.array([number[name] for name in each.names], dtype=np.int64)[group] * CELLS.size + cell)
        return GroupCounts(names, *_added(np.concatenate(keys), np.concatenate([self.sums, other.sums], axis=1)))

    def groups(self, seed: int) -> list[Group]:
        """Every group that has weight."""
        number, found = self.keys // CELLS.size, []
        for i, (column, name) in enumerate(self.names):
            count, *sums = self.sums[:, (number == i) & (self.sums[1] > 0.0)]
            if len(count):
                cells = Bins(count.astype(np.int64), *sums)
                p = np.clip(cells.confidence / cells.weight, 0.0, 1.0)
                found.append(Group(column, name, p, cells, seed))
        return found


def _added(keys: Indices, sums: Vector) -> tuple[Indices, Vector]:
    """The distinct keys, rising, and what belongs to each, added up."""
    distinct, at = np.unique(keys, return_inverse=True)
    return distinct, np.stack([np.bincount(at, row, len(distinct)) for row in sums])


NO_GROUPS = GroupCounts([], np.empty(0, dtype=np.int64), np.empty((5, 0)))
