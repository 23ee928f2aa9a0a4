"""What an evaluation shows beside its measures: reliability, classes, and decisions from a threshold on."""

from __future__ import annotations

import numpy as np

from refocal._arrays import Indices, Vector
from refocal.decide import at_or_above
from refocal.evaluate.evaluation import ClassDetail, ClassRow, DecisionTable, Reliability
from refocal.metrics._bins import Bins, make_bins, norm_of_gaps
from refocal.metrics._inputs import Rows

N_BINS = 15
# The edges of the histogram of the confidence.
EDGES = np.linspace(0.0, 1.0, 21)
DECISION_THRESHOLDS = np.array([*(i / 100 for i in range(100)), 0.995, 0.999])
# The largest number of classes with a row of their own: the classes with the most rows, or none in blocks.
MOST_CLASSES = 1000
CLASS_BINS = 10
# The number of confusions and of examples that are kept for each class.
MOST_EXAMPLES = 5


def banded(bins: Bins, level: float) -> Reliability:
    """The curve of bins, with the band in which a calibrated model's accuracies would lie.

    The band has the quantiles of as many rows as the bin has, each right with the bin's mean confidence; with weights,
    of their effective number.
    """
    # SciPy loads when a comparison needs it, as everywhere.
    from scipy.special import bdtrik

    size, tails = np.maximum(np.round(bins.size), 1.0), np.array([[0.5 - 0.5 * level], [0.5 + 0.5 * level]])
    # A binomial quantile; where nothing can happen it is 0.
    low, high = np.where(bins.p > 0.0, np.ceil(bdtrik(tails, size, bins.p)) / size, 0.0)
    return reliability_of(bins, low, high)


def reliability_of(bins: Bins, low: Vector, high: Vector) -> Reliability:
    """Confidence and accuracy of bins, with the ends of a band."""
    return Reliability(*(each.tolist() for each in (bins.count, bins.p, bins.rate, low, high)))


def sum_decisions(rows: Rows) -> Vector:
    """The weight of the rows from each threshold on, of those where the event occurred, and weight × p."""
    (p, happened), weight = rows.confidence(), rows.weights
    return np.stack(at_or_above(DECISION_THRESHOLDS, p, weight, weight * happened, weight * p))


def decision_table(shares: Vector) -> DecisionTable:
    """What `sum_decisions` summed, as shares of the weight."""
    return DecisionTable(DECISION_THRESHOLDS.tolist(), *([round(float(each), 6) for each in row] for row in shares))


def count_classes(rows: Rows) -> Vector:
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


def classes_of(rows: Rows) -> list[ClassRow]:
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
