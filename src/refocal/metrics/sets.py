"""Coverage and size of prediction sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from refocal._arrays import as_array, to_numpy
from refocal.errors import DataError, ShapeError
from refocal.metrics.inputs import check_level, mean, read
from refocal.metrics.intervals import Interval, interval_of_share
from refocal.rows.gate import names_of_columns
from refocal.rows.labels import IgnoreIndex
from refocal.rows.scores import column_names

__all__ = ["SetCoverage", "set_coverage"]


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


def set_coverage(
    y_true: Any,
    sets: Any,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    level: float = 0.95,
    clusters: Any = None,
) -> SetCoverage:
    """Coverage of prediction sets (N, C), booleans as returned by `PredictionSets.predict_set`, with its interval.

    `clusters` has what each row belongs to, such as its customer: rows of one are not independent.

    >>> import numpy as np
    >>> found = set_coverage([0, 1, 2, 2], [[1, 0, 0], [1, 1, 0], [1, 1, 1], [0, 1, 0]])
    >>> found.coverage.value, found.mean_size, found.worst_class, found.worst_coverage
    (0.75, 1.75, 2, 0.5)
    """
    function = "set_coverage"
    check_level(level, function)
    given = to_numpy(as_array(sets, "sets", function))
    if given.ndim < 2 or given.ndim != np.ndim(y_true) + 1 or given.shape[-1] < 2:
        raise ShapeError("sets", function, expected="of shape (N, C), one column per class", got=f"shape {given.shape}")
    if not np.all((given == 0) | (given == 1)):
        raise DataError("sets", function, expected="booleans", got=f"values such as {given.ravel()[0]!r}")
    names, _ = names_of_columns(column_names(sets))
    known = None if names is None else tuple(str(name) for name in names)
    given_table = given.astype(np.float64)
    options: dict[str, Any] = {"class_names": known, "clusters": clusters}
    rows, _ = read(y_true, given_table, sample_weight, "sets", function, ignore_index, **options)
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
    )
