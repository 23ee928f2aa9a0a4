"""Calibration group by group, with intervals that hold for all groups at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from refocal._arrays import Flags, Indices, Vector
from refocal._groups import Groups
from refocal.calibrators import Calibrator
from refocal.calibrators._answers import group_columns
from refocal.errors import InputWarning, warn
from refocal.evaluate._results import N_BINS
from refocal.evaluate.evaluation import GroupRow, Reliability
from refocal.metrics import Interval
from refocal.metrics._bins import Bins, Ranked, join_cells, norm_of_gaps, quantile_starts, terms
from refocal.metrics._inputs import Rows
from refocal.metrics._resampling import chunks
from refocal.metrics.reliability import curve_of
from refocal.metrics.shift import interval_of_shift

# A bin of a group has so many rows, as long as that leaves a bin.
ROWS_OF_A_BIN = 50
# So many groups have a reliability diagram, the worst.
DRAWN = 12
DRAWS = 200


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
        starts = quantile_starts(Ranked(self.p, self.cells.correct, self.cells.weight), n_bins)
        return np.unique(starts[starts < len(self.p)])

    def difference(self, level: float) -> Interval:
        """Mean probability less rate."""
        weight, squared = self.cells.weight / self.total, self.cells.squared_weight / self.total**2
        return interval_of_shift(self.p, weight, squared, self.rate, level)

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


def warn_of_groups(name: str, calibrator: Calibrator | None, columns: Collection[str]) -> None:
    """A calibrator of groups is measured without them where the rows have none."""
    needed = [] if calibrator is None else group_columns(calibrator)
    missing = [column for column in needed if column not in columns]
    if missing and not len(columns) == len(needed) == 1:  # one column needs no name
        warn(
            f"evaluate: the calibrator {name!r} was fitted with groups of {missing[0]!r}, which the rows lack; it is "
            "measured without them.",
            InputWarning,
        )
