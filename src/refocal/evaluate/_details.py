"""What an evaluation shows beside its measures: reliability, decisions from a threshold on, classes and groups."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from refocal._arrays import Flags, Indices, Vector, to_numpy
from refocal._groups import MOST_GROUPS, Groups
from refocal.calibrators import Calibrator, PredictionSets
from refocal.calibrators.answers import group_columns
from refocal.calibrators.class_order import InOrder
from refocal.decide.groups import exact_share_of_rows
from refocal.decide.net_benefit import at_or_above
from refocal.errors import InputWarning, ParameterError, warn
from refocal.evaluate._cluster_sums import ClusterSums, sums_by_key
from refocal.evaluate.decisions import usual_threshold
from refocal.evaluate.evaluation import (
    ClassDetail,
    ClassRow,
    DecisionTable,
    GroupErrors,
    GroupRow,
    Reliability,
    SmoothCurve,
)
from refocal.metrics import SetCoverage, set_coverage
from refocal.metrics.bias_interval import exact_interval_of_shift
from refocal.metrics.bins import Bins, Ranked, join_cells, make_bins, norm_of_gaps, reached_from, row_cells
from refocal.metrics.calibration_curve import curve_of_rows
from refocal.metrics.histogram_cells import Cells
from refocal.metrics.influence import variance_of_mean
from refocal.metrics.intervals import Interval
from refocal.metrics.reliability import UnitVariances, consistency_band
from refocal.metrics.resampling import chunks
from refocal.rows import Predictions

N_BINS = 15
# The edges of the histogram of the confidence.
EDGES = np.linspace(0.0, 1.0, 21)
DECISION_THRESHOLDS = np.array([*(i / 100 for i in range(100)), 0.995, 0.999])
# The largest number of classes with a row of their own: the classes with the most rows, or none in blocks.
MOST_CLASSES = 1000
# The number of confusions and of examples that are kept for each class.
MOST_EXAMPLES = 5
# 64 cells for every factor of two in p: as fine as thousands of groups allow.
CELLS = Cells(6)


def banded(bins: Bins, units: UnitVariances | None, level: float) -> Reliability:
    """The curve of bins, with the band in which all accuracies of a calibrated model lie with the level's probability.

    Accuracies of bins are independent given the confidences, so that each of k bins has the level to the power of 1/k;
    of clusters, which move several bins together, the band is rather too wide (Šidák 1967).
    """
    return reliability_of(bins, *consistency_band(bins, units, level, simultaneous=True))


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
    decided, right, promised = ([float(f"{share:.12g}") for share in row] for row in shares)
    return DecisionTable(DECISION_THRESHOLDS.tolist(), decided, right, promised)


def errors_of_groups(rows: Predictions, groups: Groups, table: DecisionTable, level: float) -> list[GroupErrors]:
    """Selection and errors of each group, of two classes, from the threshold on that a report begins with.

    Each of m intervals has the level to the power of 1/m (Šidák 1967), close to 1, for which it is exact. More groups
    than a page shows are left out.
    """
    most_groups = 100
    members = {
        (column, name): np.flatnonzero(names == name)
        for column, names in groups.items()
        for name in np.unique(names).tolist()
    }
    if rows.n_classes != 2 or not 0 < len(members) <= most_groups:
        return []
    threshold = table.threshold[usual_threshold(table, 2)]
    p, happened = rows.event_of_column(1)
    selected = p >= reached_from(np.array([threshold]))[0]
    n_rates = 4
    level_of_one = level ** (1.0 / (n_rates * len(members)))
    errors = []
    for (column, name), of_group in members.items():

        def share(
            event: Flags, among: Flags, of_group: Indices = of_group, *, is_class: bool = False
        ) -> Interval | None:
            """The share of an event among some rows of the group; None where there are none of these."""
            some = of_group[among[of_group]]
            return exact_share_of_rows(rows, some, event[some], level_of_one, is_class=is_class)

        of_all = share(selected, np.ones_like(selected))
        assert of_all is not None  # noqa: S101 - a group has rows
        errors.append(
            GroupErrors(
                column=column,
                name=name,
                n=len(of_group),
                threshold=threshold,
                selected=of_all,
                false_positive_rate=share(selected, ~happened),
                false_negative_rate=share(~selected, happened),
                ppv=share(happened, selected, is_class=True),
            )
        )
    return errors


def coverage_of_sets(
    rows: Predictions,
    calibrator: Calibrator | InOrder | None,
    groups: Groups,
    measured: Groups,
    level: float,
    seed: int,
) -> SetCoverage | None:
    """How often the sets of a calibrator hold the truth, by class and by the `measured` groups.

    None of one that makes no sets, or makes them by groups that are not among the `groups` of the rows.
    """
    own = calibrator.calibrator if isinstance(calibrator, InOrder) else calibrator
    if not isinstance(own, PredictionSets) or _lacking_groups(own, groups) is not None:
        return None
    order = calibrator.order if isinstance(calibrator, InOrder) else np.arange(rows.n_classes)
    p = to_numpy(rows.values).astype(np.float64)
    sets = own.sets_of(p[:, order], groups, seed)[:, np.argsort(order)]
    return set_coverage(
        rows.labels, sets, sample_weight=rows.weight, level=level, clusters=rows.clusters, groups=measured or None
    )


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


def classes_of(rows: Predictions, numbers: Indices) -> list[ClassRow]:
    """All classes of rows in memory, or those with the most rows where there are too many to show.

    `numbers` are those of the rows among all that were given.
    """
    confidence, _, predicted = rows.top
    counts = count_classes(rows)
    confusions = _confusions(rows.labels, predicted)
    n_rows = counts[0]
    labels = np.sort(np.argsort(-n_rows, kind="stable")[:MOST_CLASSES]).tolist()
    classes = []
    class_bins = 10
    for label, (p, occurs) in zip(labels, rows.events(labels), strict=True):
        bins = make_bins(p, occurs, rows.weight, n_bins=N_BINS, strategy="quantile")
        # For a diagram of one class, whose probability is small in most rows, bins of equal mass would all lie at 0.
        apart = make_bins(p, occurs, rows.weight, n_bins=class_bins, strategy="uniform")
        wrong = np.flatnonzero(occurs & (predicted != label))
        detail = ClassDetail(
            apart.count.tolist(),
            # Four digits are what a diagram shows; a file with thousands of classes stays small.
            apart.p.round(4).tolist(),
            apart.rate.round(4).tolist(),
            confusions.get((0, label), []),
            confusions.get((1, label), []),
            numbers[wrong[np.argsort(-confidence[wrong], kind="stable")[:MOST_EXAMPLES]]].tolist(),
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


def smooth_curve(rows: Predictions, level: float) -> SmoothCurve | None:
    """The flexible curve of rows of two classes; None where none exists, as of rows of one class alone."""
    curve = curve_of_rows(rows, level)
    if curve is None:
        return None
    columns = (curve.probability, curve.rate, curve.low, curve.high)
    return SmoothCurve(*(column.tolist() for column in columns))


class ClusteredBias(NamedTuple):
    """The variance of the mean of p less outcome, of rows in clusters, and how many these are."""

    variance: float
    n_clusters: int


class Group(NamedTuple):
    """The rows of a group in cells of rising probability `p`: of class 1 of two, otherwise of the top class.

    In memory every row is a cell; in blocks the rows of a cell count as if they had its mean.
    """

    column: str
    name: str
    p: Vector
    cells: Bins
    bias: ClusteredBias | None = None
    """The mean of p less outcome by clusters, where rows have these."""

    @property
    def design_effect(self) -> float:
        """By how much clusters raise the variance of the mean of p less outcome; 1 without clusters."""
        if self.bias is None or self.bias.n_clusters < 2:
            return 1.0
        p = np.clip(self.p, 0.0, 1.0)
        of_rows = float(np.square(self.cells.share) @ (p * (1.0 - p) / np.maximum(self.cells.size, 1.0)))
        return max(1.0, self.bias.variance / of_rows) if of_rows > 0.0 else 1.0

    def units_of(self, bins: Bins) -> UnitVariances | None:
        """The variances of the accuracies of bins of the group, as its mean has them; None without clusters."""
        if self.bias is None:
            return None
        of_rate = self.design_effect * bins.rate * (1.0 - bins.rate) / bins.size_at(bins.rate)
        return UnitVariances(of_rate, np.full(len(of_rate), max(self.bias.n_clusters, 2)))


def measure_groups(groups: Sequence[Group], level_of_mean: float, seed: int) -> list[GroupRow]:
    """Every group, the worst first: the one whose mean is farthest from its rate, relative to its interval.

    The interval of each mean, and the band of each diagram, has a level such that these hold together, and with the
    statements of a report on methods.
    """
    n_diagrams = 12  # the worst groups have a reliability diagram
    rows = [_group_row(group, level_of_mean, seed) for group in groups]
    # Sorted by the least distance of the mean from the rate, then by the estimated one.
    rows.sort(key=lambda row: (-max(row.difference.low, -row.difference.high, 0.0), -abs(row.difference.value)))
    return [row if i < n_diagrams else replace(row, reliability=None) for i, row in enumerate(rows)]


def _group_row(group: Group, level: float, seed: int) -> GroupRow:
    """One group; the ECE by chance is that of simulated outcomes."""
    rows_of_a_bin = 50  # smaller groups have one bin
    cells = group.cells
    n_rows = int(cells.count.sum())
    total = float(cells.weight.sum())
    n_bins = min(N_BINS, max(1, n_rows // rows_of_a_bin))
    starts = Ranked(group.p, cells).starts(n_bins)
    bins = join_cells(cells, starts)
    simulated_eces = np.abs(bins.p - _simulated_rates(group, starts, bins, seed)) @ bins.share
    return GroupRow(
        column=group.column,
        name=group.name,
        n=n_rows,
        mean=float(cells.confidence.sum() / total),
        rate=float(cells.correct.sum() / total),
        difference=group_bias(group, level),
        ece=norm_of_gaps(bins, "l1"),
        ece_by_chance=float(simulated_eces.mean()),
        reliability=banded(bins, group.units_of(bins), level),
    )


def group_bias(group: Group, level: float) -> Interval:
    """The mean probability of a group less its rate."""
    if group.bias is None:
        return exact_interval_of_shift(group.cells, level)
    if group.bias.n_clusters < 2:
        # One cluster says nothing about others: the rate may be any.
        total = float(group.cells.weight.sum())
        mean = float(group.cells.confidence.sum()) / total
        value = float(group.cells.gap.sum()) / total
        return Interval(value, mean - 1.0, mean, level, 0.5, 0.0, 0)
    return exact_interval_of_shift(group.cells, level, *group.bias)


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
    rates = bins.rescale_noise(event_weight / bins.weight)
    # Rows of one cluster move the rates of bins by as much more as they move that of the whole group.
    return np.clip(bins.p + math.sqrt(group.design_effect) * (rates - bins.p), 0.0, 1.0)


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
                bias = _bias_of_members(rows, p - happened, members)
                of_all_columns.append(Group(column, name, p[members], cells.take(members), bias))
    return of_all_columns


def _bias_of_members(rows: Predictions, residual: Vector, members: Indices) -> ClusteredBias | None:
    """The mean residual of some rows, by their clusters, if they have any."""
    if rows.clusters is None:
        return None
    distinct, clusters = np.unique(rows.clusters[members], return_inverse=True)
    weight = None if rows.weight is None else rows.weight[members]
    return ClusteredBias(float(variance_of_mean(residual[members], weight, clusters)), len(distinct))


def warn_of_groups(methods: Mapping[str, Calibrator | None], columns: Collection[str]) -> None:
    """Warn that a calibrator of groups is measured without them where the rows have none."""
    for name, calibrator in methods.items():
        missing = None if calibrator is None else _lacking_groups(calibrator, columns)
        if missing is not None:
            text = f"evaluate: the calibrator {name!r} was fitted with groups of {missing!r}, which the rows lack;"
            warn(f"{text} it is measured without them.", InputWarning)


def _lacking_groups(calibrator: Calibrator, columns: Collection[str]) -> str | None:
    """A column of groups of the fit that rows with these columns lack; one column needs no name."""
    needed = group_columns(calibrator)
    missing = [column for column in needed if column not in columns]
    return None if not missing or len(columns) == len(needed) == 1 else missing[0]


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
    clusters: dict[tuple[str, str], ClusterSums] = field(default_factory=dict)
    """Σ w (p - outcome) and Σ w of each cluster of each group, by the name of the group, where rows have clusters."""

    @classmethod
    def of(cls, rows: Predictions, names: list[tuple[str, str]], numbers: list[Indices]) -> GroupCounts:
        """The sums of some rows, by the numbers of their groups."""
        p, happened = rows.confidence()
        clusters = {}
        if rows.clusters is not None:
            of_rows = np.stack([rows.weights * (p - happened), rows.weights])
            for number in numbers:
                groups, counts = np.unique(number, return_counts=True)
                by_group = np.split(np.argsort(number, kind="stable"), np.cumsum(counts)[:-1])
                for group, members in zip(groups.tolist(), by_group, strict=True):
                    clusters[names[group]] = ClusterSums.of(rows.clusters[members], of_rows[:, members])
        cell = CELLS.index(p)
        keys = np.concatenate([number * CELLS.size + cell for number in numbers])
        columns = np.stack(row_cells(p, happened, rows.weight).columns)
        distinct, sums = sums_by_key(keys, np.tile(columns, len(numbers)))
        return cls(names, distinct, sums, clusters)

    def merge(self, other: GroupCounts) -> GroupCounts:
        """The sums over the rows of both."""
        names = sorted({*self.names, *other.names})
        column, most = next(iter(Counter(column for column, _ in names).most_common(1)), ("", 0))
        if most > MOST_GROUPS:
            expected = f"of at most {MOST_GROUPS:,} groups in a column"
            raise ParameterError("groups", "evaluate", expected=expected, got=f"{most:,} or more in {column!r}")
        keys = np.concatenate([self._keys_among(names), other._keys_among(names)])
        distinct, sums = sums_by_key(keys, np.concatenate([self.sums, other.sums], axis=1))
        clusters = dict(self.clusters)
        for name, of_group in other.clusters.items():
            clusters[name] = clusters[name].merge(of_group) if name in clusters else of_group
        return GroupCounts(names, distinct, sums, clusters)

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
                groups.append(Group(column, name, np.clip(cells.p, 0.0, 1.0), cells, self._bias_of(column, name)))
        return groups

    def _bias_of(self, column: str, name: str) -> ClusteredBias | None:
        """The mean residual of a group by its clusters, if rows have any."""
        clusters = self.clusters.get((column, name))
        if clusters is None:
            return None
        residual, weight = clusters.sums
        # The mean of R_g / W over clusters g is that of residuals R_g / W_g with the weights W_g.
        mean_of_cluster = np.divide(residual, weight, out=np.zeros_like(residual), where=weight > 0.0)
        return ClusteredBias(float(variance_of_mean(mean_of_cluster, weight)), clusters.n_clusters)


NO_GROUPS = GroupCounts([], np.empty(0, dtype=np.int64), np.empty((6, 0)))
