"""What an evaluation needs of rows in blocks, as sums that add up: of means, of histograms, of every class.

The confidence and each class's probability have a histogram, with cells as fine as a fixed memory allows, so that
errors come with the bound that these leave. The smooth error is that of memory but for rounding: its sums on a grid
add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Array, Vector, as_floating, row_blocks, to_numpy
from refocal._groups import Groups
from refocal.calibrators import Calibrator, GroupCalibration
from refocal.calibrators.group import GroupLines, with_lines
from refocal.engine import Block
from refocal.engine.apply import log_probabilities_of
from refocal.evaluate._group_counts import NO_GROUPS, GroupCounts, numbered
from refocal.evaluate._results import (
    DECISION_THRESHOLDS,
    class_row,
    count_classes,
    decision_sums,
    decision_table,
    reported,
)
from refocal.evaluate.evaluation import ClassRow, DecisionTable
from refocal.maps.chain import Chain
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


@dataclass
class PredictorSums:
    """Sums over rows for one predictor."""

    counts: Vector
    """What `count_classes` counts."""
    residuals: Vector
    confidence: CalibrationHistogram
    classes: list[CalibrationHistogram]
    decided: Vector
    """What `at_or_above` sums for the table of decisions."""
    groups: GroupCounts


@dataclass
class Sums:
    """Sums over rows: those of each predictor, and of the terms of means, with products for their covariances.

    `sums` and `moments` are (means, predictors), `products` (means, predictors, predictors); the last two are weighted
    by w².
    """

    weight: float
    squared_weight: float
    sums: Vector
    moments: Vector
    products: Vector
    predictors: list[PredictorSums]


def mean_metrics(n_classes: int) -> list[Metric]:
    """The reported metrics that are means of terms."""
    return [metric for metric in reported("with interval", n_classes) if metric.terms is not None]


class Predictor(NamedTuple):
    """What is applied to the rows: a chain, and lines for groups where the calibrator has them."""

    chain: Chain
    lines: Mapping[str, GroupLines]

    @classmethod
    def of(cls, calibrator: Calibrator | None) -> Predictor:
        """The model as it is, or a calibrator."""
        if calibrator is None:
            return cls(Chain(), {})
        return cls(calibrator.chain_, calibrator.lines_ if isinstance(calibrator, GroupCalibration) else {})

    def log_probabilities(self, logits: Array, groups: Groups) -> Array:
        """Log-probabilities of rows of these groups."""
        return with_lines(log_probabilities_of(self.chain, logits), self.lines, groups)


def count_block(
    block: Block, predictors: tuple[Predictor, ...], cells: tuple[CalibrationHistogram, ...], each_class: bool = True
) -> Sums:
    """The sums of a block for each predictor; `cells` are empty histograms of the confidence, one for each of them."""
    total, metrics = _empty(block.n_classes, cells, each_class), mean_metrics(block.n_classes)
    names, numbers = numbered(block.groups)
    for part, found, weight in predicted(block, predictors):
        here = [number[part] for number in numbers]
        for one, sums in zip(found, total.predictors, strict=True):
            _count(sums, one.rows)
            sums.groups = sums.groups.merge(GroupCounts.of(one.rows, names, here))
        terms = [[m.terms(one.of(m)) for m in metrics if m.terms is not None] for one in found]
        _add_terms(total, np.array(terms).transpose(1, 0, 2), weight)
    return total


class Predicted(NamedTuple):
    """Some rows as they are predicted: their probabilities, which of two classes are those of class 1, and logs."""

    rows: Rows
    logs: Rows

    def of(self, metric: Metric) -> Rows:
        """What a metric takes."""
        return self.logs if metric.takes_logs else self.rows


def predicted(
    block: Block, predictors: tuple[Predictor, ...]
) -> Iterator[tuple[slice, list[Predicted], Vector | None]]:
    """Some rows of a block at a time: which, as each predictor has them, and their weights."""
    for part in row_blocks(block.n_rows, max(block.n_classes, FEWEST_COLUMNS), entries=ENTRIES):
        logits, labels = as_floating(block.logits[part], "logits", "evaluate")[0], block.labels[part]
        weight = None if block.weight is None else block.weight[part]
        groups = {name: column[part] for name, column in block.groups.items()}
        found = []
        for predictor in predictors:
            log_p = np.asarray(to_numpy(predictor.log_probabilities(logits, groups)))
            p = np.exp(log_p).astype(np.float64, copy=False)
            rows = Rows(labels, np.minimum(p, 1.0, out=p), weight).of_positive()
            found.append(Predicted(rows, Rows(labels, log_p, weight)))
        yield part, found, weight


Influences = tuple[tuple[Metric, tuple[Callable[[Rows], Vector], ...]], ...]
"""Metrics, and for each of them what rows do to its value for every predictor."""


def cross_products(block: Block, predictors: tuple[Predictor, ...], influences: Influences) -> Vector:
    """Σ w² of the products of influences, (metrics, predictors, predictors): their covariances but for the weight."""
    total = np.zeros((len(influences), len(predictors), len(predictors)))
    for _, found, weight in predicted(block, predictors):
        for i, (metric, of_predictors) in enumerate(influences):
            moved = np.array([of(one.of(metric)) for of, one in zip(of_predictors, found, strict=True)])
            moved = moved if weight is None else moved * weight
            total[i] += moved @ moved.T
    return total


def join_sums(first: Any, second: Any) -> Any:
    """Both together: each field of sums, each entry of lists, and numbers and arrays by addition."""
    if hasattr(first, "merge"):
        return first.merge(second)
    if isinstance(first, list):
        return list(map(join_sums, first, second))
    if isinstance(first, (Sums, PredictorSums)):
        names = [each.name for each in fields(first)]
        return type(first)(*(join_sums(getattr(first, name), getattr(second, name)) for name in names))
    return first + second


class PredictorMeasures(NamedTuple):
    """What the sums say of one predictor; `finer` is an empty histogram of the confidence that leaves less doubt."""

    sums: BlockSums
    classes: list[ClassRow]
    decisions: DecisionTable
    groups: GroupCounts
    finer: CalibrationHistogram


class Moments(NamedTuple):
    """What the sums say: means (means, predictors) with their covariances, and what is known of each predictor."""

    weight: float
    means: Vector
    covariance: Vector
    predictors: list[PredictorMeasures]

    @property
    def bound(self) -> float:
        """How far the ECE of a predictor may be off."""
        return max(each.sums.calibration.error_bound for each in self.predictors)


def finish_sums(found: Sums, n_bins: int) -> Moments:
    """Means, errors with the bound of what cells leave in doubt, and a row for each class."""
    means = found.sums / found.weight
    # Σ w² (x_i - m_i)(x_j - m_j), multiplied out.
    crossed = found.moments[:, :, None] * means[:, None, :]
    about = found.squared_weight * means[:, :, None] * means[:, None, :]
    covariance = (found.products - crossed - crossed.transpose(0, 2, 1) + about) / found.weight**2
    names = [metric.name for metric in mean_metrics(found.predictors[0].counts.shape[1])]
    predictors = []
    for each, own in zip(found.predictors, means.T.tolist(), strict=True):
        classes = [histogram.compute(n_bins=n_bins) for histogram in each.classes]
        calibration, residuals = each.confidence.compute(n_bins=n_bins), each.residuals / found.weight
        sums = BlockSums(calibration, classes, residuals, each.confidence, dict(zip(names, own, strict=True)))
        rows = [class_row(each.counts, label, known.ece) for label, known in enumerate(classes)]
        decisions, finer = decision_table(each.decided / found.weight), each.confidence.refined(n_bins=n_bins)
        predictors.append(PredictorMeasures(sums, rows, decisions, each.groups, finer))
    return Moments(found.weight, means, covariance, predictors)


def with_finer(found: Moments, finer: Moments) -> Moments:
    """`found`, with the confidences of a later pass with finer cells."""
    predictors = []
    for known, exact in zip(found.predictors, finer.predictors, strict=True):
        sums = known.sums._replace(calibration=exact.sums.calibration, histogram=exact.sums.histogram)
        predictors.append(known._replace(sums=sums, finer=exact.finer))
    return found._replace(predictors=predictors)


@cache
def class_bits(n_histograms: int) -> int:
    """The finest cells for so many histograms."""
    return max((bits for bits in range(2, MOST_BITS + 1) if Cells(bits).size * n_histograms <= CELLS), default=1)


def _empty(n_classes: int, cells: tuple[CalibrationHistogram, ...], each_class: bool) -> Sums:
    bits = class_bits(n_classes * len(cells))

    def sums(histogram: CalibrationHistogram) -> PredictorSums:
        grid = residuals_on_grid(np.empty(0), np.empty(0), None)
        classes = [CalibrationHistogram(bits=bits) for _ in range(n_classes if each_class else 0)]
        decided = np.zeros((3, len(DECISION_THRESHOLDS)))
        return PredictorSums(np.zeros((5, n_classes)), grid, histogram.fresh(), classes, decided, NO_GROUPS)

    shape = (len(mean_metrics(n_classes)), len(cells))
    return Sums(0.0, 0.0, np.zeros(shape), np.zeros(shape), np.zeros((*shape, len(cells))), [sums(h) for h in cells])


def _count(total: PredictorSums, rows: Rows) -> None:
    measured = rows.confidence()
    total.confidence.count_rows(*measured, rows.weight)
    total.counts += count_classes(rows)
    total.residuals += residuals_on_grid(*measured, rows.weight)
    for histogram, event in zip(total.classes, rows.events(range(len(total.classes))), strict=True):
        histogram.count_rows(*event, rows.weight)
    total.decided += decision_sums(rows, rows.weights)


def _add_terms(total: Sums, terms: Vector, weight: Vector | None) -> None:
    weight = np.ones(terms.shape[-1]) if weight is None else weight
    squared = weight * weight
    total.weight += float(weight.sum())
    total.squared_weight += float(squared.sum())
    total.sums += terms @ weight
    total.moments += terms @ squared
    total.products += (terms * squared) @ terms.transpose(0, 2, 1)
