"""Coverage and size of prediction sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refocal._arrays import Indices, Vector, as_array, to_numpy
from refocal._groups import Groups
from refocal.errors import DataError, LabelError, ShapeError
from refocal.metrics.inputs import check_clusters, check_level, groups_of_rows, label_rule, mean, read
from refocal.metrics.intervals import Interval, ShareSummary, interval_of_share
from refocal.rows import Predictions
from refocal.rows.gate import Arguments
from refocal.rows.keys import order_of_numbers
from refocal.rows.labels import IgnoreIndex
from refocal.rows.scores import column_names

__all__ = ["CoverageOfPart", "SetCoverage", "set_coverage"]


@dataclass(frozen=True)
class SetCoverage:
    """How often sets contain the true class, and how many classes they contain.

    >>> found = set_coverage([0, 1], [[True, False], [True, False]])
    >>> found.coverage.value, found.mean_size
    (0.5, 1.0)
    """

    coverage: Interval
    mean_size: float
    share_empty: float
    share_single: float
    worst_class: int
    """The class whose rows are covered least often; the guarantee is for all rows together, not for each class."""
    worst_coverage: float
    parts: list[CoverageOfPart] = field(default_factory=list)
    """The coverage of each class that has rows, and of each group; their intervals hold together."""


@dataclass(frozen=True)
class CoverageOfPart:
    """The coverage of the rows of one class, for which `column` is "class", or of one group.

    >>> found = set_coverage([0, 1], [[True, False], [True, False]], groups={"region": ["north", "south"]})
    >>> [(part.column, part.name, part.coverage.value) for part in found.parts]
    [('class', '0', 1.0), ('class', '1', 0.0), ('region', 'north', 1.0), ('region', 'south', 0.0)]
    """

    column: str
    name: str
    n: int
    coverage: Interval
    mean_size: float
    label: int | None = None
    """The column number of the class; None of a group, whose column may be called "class" too."""


def set_coverage(
    y_true: Any,
    sets: Any,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
    level: float = 0.95,
    clusters: Any = None,
    groups: Any = None,
) -> SetCoverage:
    """Coverage of prediction sets (N, C), booleans as returned by `PredictionSets.predict_set`, with its interval.

    `clusters` has what each row belongs to, such as its customer: rows of one are not independent. `parts` of the
    result has the coverage of each class and of each of the `groups`, in one or several columns.

    >>> import numpy as np
    >>> found = set_coverage([0, 1, 2, 2], [[1, 0, 0], [1, 1, 0], [1, 1, 1], [0, 1, 0]])
    >>> found.coverage.value, found.mean_size, found.worst_class, found.worst_coverage
    (0.75, 1.75, 2, 0.5)
    """
    function = "set_coverage"
    check_level(level, function)
    rows, known = _read_sets(y_true, sets, sample_weight, function, ignore_index, classes=classes, clusters=clusters)
    labels = rows.labels
    weight = rows.weight
    table = np.asarray(rows.values, dtype=np.float64)
    covered = table[np.arange(len(labels)), labels]
    size = table.sum(axis=1)
    class_weight = np.bincount(labels, rows.weights, table.shape[1])
    class_covered = np.bincount(labels, rows.weights * covered, table.shape[1])
    # Classes without rows get more than 1, so that they are never the worst.
    coverage_of_class = np.divide(class_covered, class_weight, where=class_weight > 0, out=class_weight + 2.0)
    worst = int(np.argmin(coverage_of_class))
    return SetCoverage(
        coverage=interval_of_share(covered, weight, level, rows.clusters),
        mean_size=mean(size, weight),
        share_empty=mean((size == 0.0).astype(np.float64), weight),
        share_single=mean((size == 1.0).astype(np.float64), weight),
        worst_class=worst,
        worst_coverage=float(coverage_of_class[worst]),
        parts=_parts(rows, covered, size, groups_of_rows(groups, y_true, rows, function), known, level),
    )


def _read_sets(
    y_true: Any,
    sets: Any,
    sample_weight: Any,
    function: str,
    ignore_index: IgnoreIndex,
    *,
    classes: Any,
    clusters: Any,
) -> tuple[Predictions, tuple[str, ...] | None]:
    """Checked rows whose values are sets, as ones and zeros, and the names of the classes, if these have names.

    Classes called 0 … C-1 are put in this order.
    """
    if isinstance(y_true, Predictions):
        raise LabelError("y_true", function, expected="labels, such as the labels of Predictions", got="Predictions")
    given = to_numpy(as_array(sets, "sets", function))
    if given.ndim < 2 or given.ndim != np.ndim(y_true) + 1 or given.shape[-1] < 2:
        raise ShapeError("sets", function, expected="of shape (N, C), one column per class", got=f"shape {given.shape}")
    if not np.all((given == 0) | (given == 1)):
        raise DataError("sets", function, expected="booleans", got=f"values such as {given.ravel()[0]!r}")
    columns = column_names(sets)
    arguments = Arguments("sets", "y_true")
    names = label_rule(columns, classes, given.shape[-1], arguments, function).names
    if classes is not None:
        columns = tuple(classes)
    known = None if names is None else tuple(str(name) for name in names)
    table = given.astype(np.float64)
    order = order_of_numbers(known)
    if order is not None and known is not None and columns is not None:
        known = tuple(known[i] for i in order)
        columns = tuple(columns[i] for i in order)
        table = table[..., order]
    rows, _ = read(
        y_true,
        table,
        sample_weight,
        arguments,
        function,
        ignore_index,
        class_names=None if names is None else columns,
        clusters=clusters,
    )
    check_clusters(rows.clusters, function)
    return rows, known


def _parts(
    rows: Predictions, covered: Vector, size: Vector, groups: Groups, names: Sequence[str] | None, level: float
) -> list[CoverageOfPart]:
    """The coverage of every class and group; each of m intervals has the level to the power of 1/m (Šidák 1967)."""
    members: list[tuple[str, str, int | None, Indices]] = []
    for label in np.unique(rows.labels).tolist():
        name = str(label) if names is None else names[label]
        members.append(("class", name, label, np.flatnonzero(rows.labels == label)))
    for column, values in groups.items():
        for name in np.unique(values).tolist():
            members.append((column, name, None, np.flatnonzero(values == name)))
    level_of_one = level ** (1.0 / len(members))
    parts = []
    for column, name, label, of_part in members:
        weight = None if rows.weight is None else rows.weight[of_part]
        clusters = None if rows.clusters is None else rows.clusters[of_part]
        coverage = ShareSummary.of(covered[of_part], weight, clusters).exact_interval(level=level_of_one)
        parts.append(CoverageOfPart(column, name, len(of_part), coverage, mean(size[of_part], weight), label))
    return parts
