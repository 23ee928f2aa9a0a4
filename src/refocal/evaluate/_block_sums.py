"""What an evaluation needs of rows in blocks, as sums that add up: of means, of histograms, of every class.

The confidence and each class's probability have a histogram, with cells as fine as a fixed memory allows, so that
errors come with the bound that these leave. The smooth error is that of memory but for rounding: its sums on a grid
add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Vector, as_floating, row_blocks, to_numpy
from refocal.calibrators import Calibrator
from refocal.decide.outcome import at_or_above
from refocal.engine import Block
from refocal.evaluate._groups import NO_GROUPS, GroupCounts, numbered
from refocal.evaluate._results import (
    DECISION_THRESHOLDS,
    N_BINS,
    Predicted,
    class_row,
    count_classes,
    decision_table,
    log_proba_of,
    reported,
)
from refocal.evaluate.evaluation import ClassRow, DecisionTable
from refocal.metrics._histogram_cells import Cells
from refocal.metrics._inputs import Rows
from refocal.metrics.histogram import CalibrationHistogram
from refocal.metrics.record import BlockSums, Metric
from refocal.metrics.smooth import residuals_on_grid

# Cells of all histograms of classes together; one takes 88 bytes.
CELLS = 1 << 20
MOST_BITS = 12
# Probabilities of so many entries are held at a time, for at least so many columns.
ENTRIES, FEWEST_COLUMNS = 1 << 21, 8

Methods = tuple[Calibrator | None, ...]
"""Calibrators, and None for the model as it is."""


@dataclass
class MethodSums:
    """Sums over rows for one method."""

    confidence: CalibrationHistogram
    classes: list[CalibrationHistogram]
    groups: GroupCounts = NO_GROUPS
    counts: Any = 0.0
    """What `count_classes` counts."""
    residuals: Any = 0.0
    decided: Any = 0.0
    """What `at_or_above` sums for the table of decisions."""


@dataclass
class Sums:
    """Sums over rows: those of each method, and of the terms of means, with products for their covariances.

    Of k methods, with 1 as the last term, `sums` is (means, k + 1); `products`, of weight w², is (means, k + 1, k + 1).
    """

    methods: list[MethodSums]
    sums: Any = 0.0
    products: Any = 0.0


def mean_metrics(n_classes: int) -> list[Metric]:
    """The reported metrics that are means of terms."""
    return [metric for metric in reported("with interval", n_classes) if metric.terms is not None]


def count_block(
    block: Block, methods: Methods, cells: tuple[CalibrationHistogram, ...], each_class: bool = True
) -> Sums:
    """The sums of a block for each method; `cells` are empty histograms of the confidence, one for each of them."""
    n_classes = block.n_classes
    bits, n_histograms = class_bits(n_classes * len(cells)), n_classes if each_class else 0
    empty = [[CalibrationHistogram(bits=bits) for _ in range(n_histograms)] for _ in cells]
    total = Sums([MethodSums(each.fresh(), classes) for each, classes in zip(cells, empty, strict=True)])
    names, numbers = numbered(block.groups)
    for part, found in predicted(block, methods):
        for (rows, _), sums in zip(found, total.methods, strict=True):
            (p, happened), weight = rows.confidence(), rows.weights
            sums.confidence.count_rows(p, happened, rows.weight)
            for histogram, event in zip(sums.classes, rows.events(range(n_histograms)), strict=True):
                histogram.count_rows(*event, rows.weight)
            if numbers:
                sums.groups = sums.groups.merge(GroupCounts.of(rows, names, [number[part] for number in numbers]))
            sums.counts += count_classes(rows)
            sums.residuals += residuals_on_grid(p, happened, rows.weight)
            sums.decided += np.stack(at_or_above(DECISION_THRESHOLDS, p, weight, weight * happened, weight * p))
        ones = np.ones(len(weight))
        terms = np.array([[*(m.terms(one.of(m)) for one in found if m.terms), ones] for m in mean_metrics(n_classes)])
        total.sums += terms @ weight
        total.products += (terms * weight**2) @ terms.transpose(0, 2, 1)
    return total


def predicted(block: Block, methods: Methods) -> Iterator[tuple[slice, list[Predicted]]]:
    """Some rows of a block at a time: which, and as each method predicts them."""
    for part in row_blocks(block.n_rows, max(block.n_classes, FEWEST_COLUMNS), entries=ENTRIES):
        logits, labels = as_floating(block.logits[part], "logits", "evaluate")[0], block.labels[part]
        weight = None if block.weight is None else block.weight[part]
        groups = {name: column[part] for name, column in block.groups.items()}
        found = []
        for calibrator in methods:
            log_p = np.asarray(to_numpy(log_proba_of(calibrator, logits, groups)))
            p = np.exp(log_p).astype(np.float64, copy=False)
            rows = Rows(labels, np.minimum(p, 1.0, out=p), weight).of_positive()
            found.append(Predicted(rows, Rows(labels, log_p, weight)))
        yield part, found


Influences = tuple[tuple[Metric, tuple[Callable[[Rows], Vector], ...]], ...]
"""Metrics, and for each of them what rows do to its value for every method."""


def cross_products(block: Block, methods: Methods, influences: Influences) -> Vector:
    """Σ w² of the products of influences, (metrics, methods, methods): their covariances but for the weight."""
    total = np.zeros((len(influences), len(methods), len(methods)))
    for _, found in predicted(block, methods):
        for i, (metric, of_methods) in enumerate(influences):
            moved = np.array([of(one.of(metric)) for of, one in zip(of_methods, found, strict=True)])
            moved *= found[0].rows.weights
            total[i] += moved @ moved.T
    return total


def join_sums(first: Any, second: Any) -> Any:
    """Both together: each field of sums, each entry of lists, and numbers and arrays by addition."""
    if hasattr(first, "merge"):
        return first.merge(second)
    if isinstance(first, list):
        return list(map(join_sums, first, second))
    if isinstance(first, (Sums, MethodSums)):
        return type(first)(*map(join_sums, vars(first).values(), vars(second).values()))
    return first + second


class MethodMeasures(NamedTuple):
    """What the sums say of one method; `finer` is an empty histogram of the confidence that leaves less doubt."""

    sums: BlockSums
    classes: list[ClassRow]
    decisions: DecisionTable
    groups: GroupCounts
    finer: CalibrationHistogram


class BlockMeasures(NamedTuple):
    """What the sums say: the weight of all rows, the covariances of means by their names, and each method."""

    weight: float
    covariance: dict[str, Vector]
    methods: list[MethodMeasures]


def finish_sums(found: Sums) -> BlockMeasures:
    """Means, errors with the bound of what cells leave in doubt, and a row for each class."""
    weight = float(found.sums[0, -1])
    means = found.sums[:, :-1] / weight
    names = [metric.name for metric in mean_metrics(found.methods[0].counts.shape[1])]
    covariance = {}
    for name, mean, products in zip(names, means, found.products, strict=True):
        about = np.column_stack([np.eye(len(mean)), -mean])  # each term less its mean
        covariance[name] = about @ products @ about.T / weight**2
    methods = []
    for each, own in zip(found.methods, means.T.tolist(), strict=True):
        classes = [histogram.compute(n_bins=N_BINS) for histogram in each.classes]
        calibration, residuals = each.confidence.compute(n_bins=N_BINS), each.residuals / weight
        sums = BlockSums(calibration, classes, residuals, each.confidence, dict(zip(names, own, strict=True)))
        rows = [class_row(each.counts, label, known.ece) for label, known in enumerate(classes)]
        decisions, finer = decision_table(each.decided / weight), each.confidence.refined(n_bins=N_BINS)
        methods.append(MethodMeasures(sums, rows, decisions, each.groups, finer))
    return BlockMeasures(weight, covariance, methods)


@cache
def class_bits(n_histograms: int) -> int:
    """The finest cells for so many histograms."""
    return max((bits for bits in range(2, MOST_BITS + 1) if Cells(bits).size * n_histograms <= CELLS), default=1)
