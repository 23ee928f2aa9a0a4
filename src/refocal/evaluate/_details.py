"""What an evaluation shows beside its measures: reliability, decisions from a threshold on, classes and groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from refocal._arrays import Flags, Indices, Vector
from refocal._groups import MOST_GROUPS, Groups
from refocal.calibrators import Calibrator
from refocal.calibrators._answers import group_columns
from refocal.decide import at_or_above
from refocal.errors import InputWarning, ParameterError, warn
from refocal.evaluate.evaluation import ClassDetail, ClassRow, DecisionTable, GroupRow, Reliability
from refocal.metrics.bins import Bins, Ranked, join_cells, make_bins, norm_of_gaps, row_cells
from refocal.metrics.histogram_cells import Cells
from refocal.metrics.intervals import interval_of_shift
from refocal.metrics.resampling import chunks
from refocal.rows import Predictions

N_BINS = 15
# The edges of the histogram of the confidence.
EDGES = np.linspace(0.0, 1.0, 21)
DECISION_THRESHOLDS = np.array([*(i / 100 for i in range(100)), 0.995, 0.999])
# The largest number of classes with a row of their own: the classes with the most rows, or none in blocks.
MOST_CLASSES = 1000
CLASS_BINS = 10
# The number of confusions and of examples that are kept for each class.
MOST_EXAMPLES = 5
# The rows of a bin of a group; smaller groups have one bin.
ROWS_OF_A_BIN = 50
# The number of groups with a reliability diagram: the worst ones.
DRAWN = 12
DRAWS = 200
# 64 cells for every factor of two in p: as fine as thousands of groups allow.
CELLS = Cells(6)


def banded(bins: Bins, level: float) -> Reliability:
    """The curve of bins, with the band in which a calibrated model's accuracies would lie.

    The band has the quantiles of as many rows as the bin has, each right with the bin's mean confidence; with weights,
    of their effective number.
    """
    # SciPy loads when a comparison needs it, as everywhere.
    from scipy.special import bdtrik

    size, tails = np.maximum(np.round(bins.size_at(bins.p)), 1.0), np.array([[0.5 - 0.5 * level], [0.5 + 0.5 * level]])
    # A binomial quantile; where nothing can happen it is 0.
    low, high = np.where(bins.p > 0.0, np.ceil(bdtrik(tails, size, bins.p)) / size, 0.0)
    return reliability_of(bins, low, high)


def reliability_of(bins: Bins, low: Vector, high: Vector) -> Reliability:
    """Confidence and accuracy of bins, with the ends of a band."""
    return Reliability(*(each.tolist() for each in (bins.count, bins.p, bins.rate, low, high)))


def sum_decisions(rows: Predictions) -> Vector:
    """The weight of the rows from each threshold on, of those where the event occurred, and weight × p."""
    (p, happened), weight = rows.confidence(), rows.weights
    return np.stack(at_or_above(DECISION_THRESHOLDS, p, weight, weight * happened, weight * p))


def decision_table(shares: Vector) -> DecisionTable:
    """What `sum_decisions` summed, as shares of the weight."""
    return DecisionTable(DECISION_THRESHOLDS.tolist(), *([round(float(each), 6) for each in row] for row in shares))


def count_classes(rows: Predictions) -> Vector:
    """For each class the rows that have it and those predicted as it, and the latter's weight, hits and confidence."""
    top, correct, predicted = rows.top
    weight, n = rows.weights, rows.n_classes
    sums = [np.bincount(predicted, each, n) for each in (np.ones(len(top)), weight, weight * correct, weight * top)]
    return np.stack([np.bincount(rows.labels, minlength=n), *sums])


def class_row(counts: Vector, label: int, ece: float, detail: ClassDetail | None = None) -> ClassRow:
    """One class, from what `count_classes` counted."""
    n, predicted, weight, correct, confidence = counts[:, label].tolist()
    precision, mean = (correct / weight, confidence / weight) if weight > 0 else (None, None)
    return ClassRow(label, int(n), int(predicted), precision, mean, ece, detail)


def classes_of(rows: Predictions) -> list[ClassRow]:
    """All classes of rows in memory, or those with the most rows where there are too many to show."""
    top, _, predicted = rows.top
    counts, others = count_classes(rows), _confusions(rows.labels, predicted)
    labels = np.sort(np.argsort(-counts[0], kind="stable")[:MOST_CLASSES]).tolist()
    found = []
    for label, (p, occurs) in zip(labels, rows.events(labels), strict=True):
        bins = make_bins(p, occurs, rows.weight, n_bins=N_BINS, strategy="quantile")
        # For a diagram of one class, whose probability is small in most rows, bins of equal mass would all lie at 0.
        apart = make_bins(p, occurs, rows.weight, n_bins=CLASS_BINS, strategy="uniform")
        wrong = np.flatnonzero(occurs & (predicted != label))
        detail = ClassDetail(
            apart.count.tolist(),
            # Four digits are what a diagram shows; a file with thousands of classes stays small.
            apart.p.round(4).tolist(),
            apart.rate.round(4).tolist(),
            others.get((0, label), []),
            others.get((1, label), []),
            wrong[np.argsort(-top[wrong], kind="stable")[:MOST_EXAMPLES]].tolist(),
        )
        found.append(class_row(counts, label, norm_of_gaps(bins, "l1"), detail))
    return found


def _confusions(labels: Indices, predicted: Indices) -> dict[tuple[int, int], list[list[int]]]:
    """The most frequent others by (0, class) for rows of a class and by (1, class) for rows predicted as it."""
    wrong = labels != predicted
    width = int(max(labels.max(), predicted.max())) + 1
    pairs, counts = np.unique(labels[wrong] * width + predicted[wrong], return_counts=True)
    found: dict[tuple[int, int], list[list[int]]] = {}
    for i in np.argsort(-counts, kind="stable").tolist():
        pair = divmod(int(pairs[i]), width)
        for side in (0, 1):
            listed = found.setdefault((side, pair[side]), [])
            if len(listed) < MOST_EXAMPLES:
                listed.append([pair[1 - side], int(counts[i])])
    return found


class Group(NamedTuple):
    """The rows of a group in cells of rising probability `p`: of class 1 of two, otherwise of the top class.

    In memory every row is a cell; in blocks the rows of a cell count as if they had its mean.
    """

    column: str
    name: str
    p: Vector
    cells: Bins


def measure_groups(groups: Sequence[Group], level: float, seed: int) -> list[GroupRow]:
    """Every group, the worst first: the one whose mean is farthest from its rate, relative to its interval.

    The intervals hold for all groups together: by Šidák each has the level to the power of 1 over their number.
    """
    level_of_each = level ** (1.0 / max(len(groups), 1))
    rows = [_group_row(group, level, level_of_each, seed) for group in groups]
    # Sorted by the least distance of the mean from the rate, then by the estimated one.
    rows.sort(key=lambda r: (-max(r.difference.low, -r.difference.high, 0.0), -abs(r.difference.value)))
    return [row if i < DRAWN else replace(row, reliability=None) for i, row in enumerate(rows)]


def _group_row(group: Group, level: float, level_of_difference: float, seed: int) -> GroupRow:
    p, cells = group.p, group.cells
    weight, n_rows, total = cells.weight, int(cells.count.sum()), float(cells.weight.sum())
    rate = float(cells.correct.sum() / total)
    n_bins = min(N_BINS, max(1, n_rows // ROWS_OF_A_BIN))
    starts = Ranked(p, cells).starts(n_bins)
    bins = join_cells(cells, starts)
    # Outcomes are drawn from the probabilities: the weight of the drawn events in each bin, (draws, bins).
    generator, hits = np.random.default_rng(seed), []
    for n_draws in chunks(DRAWS, len(p)):
        shape = (n_draws, len(p))
        happened: Vector | Flags
        if n_rows == len(p):
            happened = generator.random(shape) < p
        else:
            size = np.maximum(np.round(cells.size), 1.0).astype(np.int64)
            happened = generator.binomial(size, p, size=shape) / size
        hits.append(np.add.reduceat(weight * happened, starts, axis=1))
    by_chance = np.concatenate(hits)[:, np.add.reduceat(weight, starts) > 0.0]
    by_chance = bins.rescale_noise(by_chance / bins.weight)
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(by_chance, [tail, 1.0 - tail], axis=0)
    return GroupRow(
        column=group.column,
        name=group.name,
        n=n_rows,
        mean=float(cells.confidence.sum() / total),
        rate=rate,
        difference=interval_of_shift(cells, level_of_difference),
        ece=norm_of_gaps(bins, "l1"),
        ece_by_chance=float((np.abs(bins.p - by_chance) @ bins.share).mean()),
        reliability=reliability_of(bins, low, high),
    )


def groups_of(rows: Predictions, groups: Groups) -> list[Group]:
    """Every group of every column that has weight."""
    p, happened = rows.confidence()
    order, found = np.argsort(p, kind="stable"), []
    cells = row_cells(p, happened, rows.weight)
    for column, names in groups.items():
        values, place = np.unique(names[order], return_inverse=True)
        by_group = np.split(order[np.argsort(place, kind="stable")], np.cumsum(np.bincount(place))[:-1])
        for name, some in zip(values.tolist(), by_group, strict=True):
            if cells.weight[some].sum() > 0.0:
                found.append(Group(column, name, p[some], cells.take(some)))
    return found


def warn_of_groups(methods: Mapping[str, Calibrator | None], columns: Collection[str]) -> None:
    """Warn that a calibrator of groups is measured without them where the rows have none."""
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
    """The rows of each cell of each group, and the other sums of `Bins`.

    `keys` are the number of a group times that of all cells, plus the cell.
    """

    names: list[tuple[str, str]]
    keys: Indices
    sums: Vector

    @classmethod
    def of(cls, rows: Predictions, names: list[tuple[str, str]], numbers: list[Indices]) -> GroupCounts:
        """The sums of some rows, by the numbers of their groups."""
        p, happened = rows.confidence()
        keys = np.concatenate([number * CELLS.size + CELLS.index(p) for number in numbers])
        of_rows = np.stack(row_cells(p, happened, rows.weight).columns)
        return cls(names, *_added(keys, np.tile(of_rows, len(numbers))))

    def merge(self, other: GroupCounts) -> GroupCounts:
        """The sums over the rows of both."""
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

    def groups(self) -> list[Group]:
        """Every group that has weight."""
        number, found = self.keys // CELLS.size, []
        for i, (column, name) in enumerate(self.names):
            count, *sums = self.sums[:, (number == i) & (self.sums[1] > 0.0)]
            if len(count):
                cells = Bins(count.astype(np.int64), *sums)
                found.append(Group(column, name, np.clip(cells.p, 0.0, 1.0), cells))
        return found


def _added(keys: Indices, sums: Vector) -> tuple[Indices, Vector]:
    """The distinct keys, in ascending order, and the sums of the values of each."""
    distinct, at = np.unique(keys, return_inverse=True)
    return distinct, np.stack([np.bincount(at, row, len(distinct)) for row in sums])


NO_GROUPS = GroupCounts([], np.empty(0, dtype=np.int64), np.empty((6, 0)))
