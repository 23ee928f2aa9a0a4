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
from refocal.calibrators.answers import group_columns
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
# 64 cells for every factor of two in p: as fine as thousands of groups allow.
CELLS = Cells(6)


def banded(bins: Bins, level: float) -> Reliability:
    """The curve of bins, with the band in which a calibrated model's accuracies would lie.

    The band has the quantiles of as many rows as the bin has, each right with the bin's mean confidence; with weights,
    of their effective number.
    """
    # SciPy loads when a comparison needs it, as everywhere.
    from scipy.special import bdtrik

    size = np.maximum(np.round(bins.size_at(bins.p)), 1.0)
    tails = np.array([[0.5 - 0.5 * level], [0.5 + 0.5 * level]])
    binomial_quantiles = np.ceil(bdtrik(tails, size, bins.p))
    # Where nothing can happen the quantile is 0.
    low, high = np.where(bins.p > 0.0, binomial_quantiles / size, 0.0)
    return reliability_of(bins, low, high)


def reliability_of(bins: Bins, low: Vector, high: Vector) -> Reliability:
    """Confidence and accuracy of bins, with the ends of a band."""
    return Reliability(
        bins.count.tolist(),
        bins.p.tolist(),
        bins.rate.tolist(),
        low.tolist(),
        high.tolist(),
    )


def sum_decisions(rows: Predictions) -> Vector:
    """The weight of the rows from each threshold on, of those where the event occurred, and weight × p."""
    p, happened = rows.confidence()
    weight = rows.weights
    return np.stack(at_or_above(DECISION_THRESHOLDS, p, weight, weight * happened, weight * p))


def decision_table(shares: Vector) -> DecisionTable:
    """What `sum_decisions` summed, as shares of the weight."""
    decided, right, promised = ([round(float(share), 6) for share in row] for row in shares)
    return DecisionTable(DECISION_THRESHOLDS.tolist(), decided, right, promised)


def count_classes(rows: Predictions) -> Vector:
    """For each class the rows that have it and those predicted as it, and the latter's weight, hits and confidence.

    (5, classes).
    """
    confidence, correct, predicted = rows.top
    weight = rows.weights
    n_classes = rows.n_classes
    return np.stack([
        np.bincount(rows.labels, minlength=n_classes),
        np.bincount(predicted, np.ones(len(confidence)), n_classes),
        np.bincount(predicted, weight, n_classes),
        np.bincount(predicted, weight * correct, n_classes),
        np.bincount(predicted, weight * confidence, n_classes),
    ])  # fmt: skip


def class_row(counts: Vector, label: int, ece: float, detail: ClassDetail | None = None) -> ClassRow:
    """One class, from what `count_classes` counted."""
    n_rows, n_predicted, weight, correct, confidence = counts[:, label].tolist()
    precision = correct / weight if weight > 0 else None
    mean_confidence = confidence / weight if weight > 0 else None
    return ClassRow(label, int(n_rows), int(n_predicted), precision, mean_confidence, ece, detail)


def classes_of(rows: Predictions) -> list[ClassRow]:
    """All classes of rows in memory, or those with the most rows where there are too many to show."""
    confidence, _, predicted = rows.top
    counts = count_classes(rows)
    confusions = _confusions(rows.labels, predicted)
    n_rows = counts[0]
    labels = np.sort(np.argsort(-n_rows, kind="stable")[:MOST_CLASSES]).tolist()
    classes = []
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
            confusions.get((0, label), []),
            confusions.get((1, label), []),
            wrong[np.argsort(-confidence[wrong], kind="stable")[:MOST_EXAMPLES]].tolist(),
        )
        classes.append(class_row(counts, label, norm_of_gaps(bins, "l1"), detail))
    return classes


def _confusions(labels: Indices, predicted: Indices) -> dict[tuple[int, int], list[list[int]]]:
    """The most frequent others by (0, class) for rows of a class and by (1, class) for rows predicted as it."""
    wrong = labels != predicted
    width = int(max(labels.max(), predicted.max())) + 1
    pairs, counts = np.unique(labels[wrong] * width + predicted[wrong], return_counts=True)
    confusions: dict[tuple[int, int], list[list[int]]] = {}
    for i in np.argsort(-counts, kind="stable").tolist():
        label_and_prediction = divmod(int(pairs[i]), width)
        for side in (0, 1):
            others = confusions.setdefault((side, label_and_prediction[side]), [])
            if len(others) < MOST_EXAMPLES:
                others.append([label_and_prediction[1 - side], int(counts[i])])
    return confusions


class Group(NamedTuple):
    """The rows of a group in cells of rising probability `p`: of class 1 of two, otherwise of the top class.

    In memory every row is a cell; in blocks the rows of a cell count as if they had its mean.
    """

    column: str
    name: str
    p: Vector
    cells: Bins


def measure_groups(groups: Sequence[Group], level: float, level_of_mean: float, seed: int) -> list[GroupRow]:
    """Every group, the worst first: the one whose mean is farthest from its rate, relative to its interval.

    The interval of each mean has a level of its own, such that all statements of a report hold together.
    """
    n_diagrams = 12  # the worst groups have a reliability diagram
    rows = [_group_row(group, level, level_of_mean, seed) for group in groups]
    # Sorted by the least distance of the mean from the rate, then by the estimated one.
    rows.sort(key=lambda row: (-max(row.difference.low, -row.difference.high, 0.0), -abs(row.difference.value)))
    return [row if i < n_diagrams else replace(row, reliability=None) for i, row in enumerate(rows)]


def _group_row(group: Group, level: float, level_of_mean: float, seed: int) -> GroupRow:
    """One group; the ECE by chance, and the band of the reliability, are those of simulated outcomes."""
    rows_of_a_bin = 50  # smaller groups have one bin
    cells = group.cells
    n_rows = int(cells.count.sum())
    total = float(cells.weight.sum())
    n_bins = min(N_BINS, max(1, n_rows // rows_of_a_bin))
    starts = Ranked(group.p, cells).starts(n_bins)
    bins = join_cells(cells, starts)
    simulated_rates = _simulated_rates(group, starts, bins, seed)
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(simulated_rates, [tail, 1.0 - tail], axis=0)
    simulated_eces = np.abs(bins.p - simulated_rates) @ bins.share
    return GroupRow(
        column=group.column,
        name=group.name,
        n=n_rows,
        mean=float(cells.confidence.sum() / total),
        rate=float(cells.correct.sum() / total),
        difference=interval_of_shift(cells, level_of_mean),
        ece=norm_of_gaps(bins, "l1"),
        ece_by_chance=float(simulated_eces.mean()),
        reliability=reliability_of(bins, low, high),
    )


def _simulated_rates(group: Group, starts: Indices, bins: Bins, seed: int) -> Vector:
    """Rates of the bins, (replicates, bins), if the events of all rows had the predicted probabilities.

    `starts` are the first cells of the bins.
    """
    n_replicates = 200
    cells = group.cells
    n_cells = len(group.p)
    has_one_row_each = int(cells.count.sum()) == n_cells
    generator = np.random.default_rng(seed)
    parts = []
    for size_of_chunk in chunks(n_replicates, n_cells):
        shape = (size_of_chunk, n_cells)
        rate_of_cell: Vector | Flags
        if has_one_row_each:
            rate_of_cell = generator.random(shape) < group.p
        else:
            size = np.maximum(np.round(cells.size), 1.0).astype(np.int64)
            rate_of_cell = generator.binomial(size, group.p, size=shape) / size
        parts.append(np.add.reduceat(cells.weight * rate_of_cell, starts, axis=1))
    has_weight = np.add.reduceat(cells.weight, starts) > 0.0  # `bins` are without the others
    event_weight = np.concatenate(parts)[:, has_weight]
    return bins.rescale_noise(event_weight / bins.weight)


def groups_of(rows: Predictions, groups: Groups) -> list[Group]:
    """Every group of every column that has weight."""
    p, happened = rows.confidence()
    by_confidence = np.argsort(p, kind="stable")
    cells = row_cells(p, happened, rows.weight)
    of_all_columns = []
    for column, names in groups.items():
        values, number = np.unique(names[by_confidence], return_inverse=True)
        by_group = by_confidence[np.argsort(number, kind="stable")]
        rows_of_groups = np.split(by_group, np.cumsum(np.bincount(number))[:-1])
        for name, members in zip(values.tolist(), rows_of_groups, strict=True):
            if cells.weight[members].sum() > 0.0:
                of_all_columns.append(Group(column, name, p[members], cells.take(members)))
    return of_all_columns


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
        cell = CELLS.index(p)
        keys = np.concatenate([number * CELLS.size + cell for number in numbers])
        columns = np.stack(row_cells(p, happened, rows.weight).columns)
        distinct, sums = _sums_by_key(keys, np.tile(columns, len(numbers)))
        return cls(names, distinct, sums)

    def merge(self, other: GroupCounts) -> GroupCounts:
        """The sums over the rows of both."""
        names = sorted({*self.names, *other.names})
        column, most = next(iter(Counter(column for column, _ in names).most_common(1)), ("", 0))
        if most > MOST_GROUPS:
            expected = f"of at most {MOST_GROUPS:,} groups in a column"
            raise ParameterError("groups", "evaluate", expected=expected, got=f"{most:,} or more in {column!r}")
        keys = np.concatenate([self._keys_among(names), other._keys_among(names)])
        distinct, sums = _sums_by_key(keys, np.concatenate([self.sums, other.sums], axis=1))
        return GroupCounts(names, distinct, sums)

    def _keys_among(self, names: list[tuple[str, str]]) -> Indices:
        """The keys where the groups are numbered by their places among these names."""
        number_of = {name: number for number, name in enumerate(names)}
        new_number = np.array([number_of[name] for name in self.names], dtype=np.int64)
        old_number, cell = np.divmod(self.keys, CELLS.size)
        keys: Indices = new_number[old_number] * CELLS.size + cell
        return keys

    def groups(self) -> list[Group]:
        """Every group that has weight."""
        number_of_cell = self.keys // CELLS.size
        has_weight = self.sums[1] > 0.0
        groups = []
        for number, (column, name) in enumerate(self.names):
            count, *sums = self.sums[:, (number_of_cell == number) & has_weight]
            if len(count):
                cells = Bins(count.astype(np.int64), *sums)
                groups.append(Group(column, name, np.clip(cells.p, 0.0, 1.0), cells))
        return groups


def _sums_by_key(keys: Indices, values: Vector) -> tuple[Indices, Vector]:
    """The distinct keys, in ascending order, and the sums of the values (columns, keys) of each."""
    distinct, place = np.unique(keys, return_inverse=True)
    return distinct, np.stack([np.bincount(place, column, len(distinct)) for column in values])


NO_GROUPS = GroupCounts([], np.empty(0, dtype=np.int64), np.empty((6, 0)))
