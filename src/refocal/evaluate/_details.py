"""What an evaluation shows beyond means and the ECE, as sums over blocks of rows: the smooth error, and every class.

Each class has a histogram of its probability, with cells as fine as a fixed memory allows; the class-wise error comes
with the bound that these leave. The smooth error is that of memory but for rounding: its sums on a grid add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import as_floating, row_blocks, to_numpy
from refocal.engine import Block
from refocal.evaluate.evaluation import ClassRow
from refocal.maps.steps import Chain
from refocal.metrics._cells import Cells
from refocal.metrics.histogram import CalibrationHistogram
from refocal.metrics.smooth import residuals_on_grid, smooth_error_of

Vector = NDArray[np.float64]

# Cells of all histograms of classes together; one takes 88 bytes.
CELLS = 1 << 20
MOST_BITS = 12
# Probabilities of so many entries are held at a time.
ENTRIES = 1 << 21


@dataclass
class Details:
    """Sums over rows for one predictor."""

    weight: float
    occurs: NDArray[np.int64]
    residuals: Vector
    predicted: NDArray[np.int64]
    of_predicted: Vector
    """Weight, weight × correct and weight × confidence of the rows for which each class is predicted."""
    histograms: list[CalibrationHistogram]


class Detailed(NamedTuple):
    """What the sums of one predictor say."""

    values: dict[str, float]
    classes: list[ClassRow]


@cache
def bits_for(n_histograms: int) -> int:
    """The finest cells for so many histograms."""
    return max((bits for bits in range(2, MOST_BITS + 1) if Cells(bits).size * n_histograms <= CELLS), default=1)


def details(block: Block, chains: tuple[Chain, ...]) -> list[Details]:
    """Count a block for each chain; an empty one is the network as it is."""
    found = []
    for chain in chains:
        some = _empty(block.n_classes, bits_for(block.n_classes * len(chains)))
        for rows in row_blocks(block.n_rows, block.n_classes, entries=ENTRIES):
            p = _probabilities(block.logits[rows], chain)
            _count(some, p, block.labels[rows], None if block.weight is None else block.weight[rows])
        found.append(some)
    return found


def join_details(first: list[Details], second: list[Details]) -> list[Details]:
    """Both together."""
    return [_joined(mine, other) for mine, other in zip(first, second, strict=True)]


def finished(found: Details, n_bins: int) -> Detailed:
    """Errors, with the bound of what cells leave in doubt, and a row for each class."""
    of_class = [histogram.compute(n_bins=n_bins) for histogram in found.histograms]
    values = {
        "classwise_ece": float(np.mean([each.ece for each in of_class])),
        "classwise_ece_bound": float(np.mean([each.error_bound for each in of_class])),
        "smooth_ece": smooth_error_of(found.residuals / found.weight),
    }
    weight, correct, confidence = found.of_predicted
    shares = [(c / w, s / w) if w > 0 else (None, None) for w, c, s in zip(weight, correct, confidence, strict=True)]
    rows = zip(found.occurs.tolist(), found.predicted.tolist(), shares, of_class, strict=True)
    classes = [ClassRow(k, n, said, mean[0], mean[1], each.ece) for k, (n, said, mean, each) in enumerate(rows)]
    return Detailed(values, classes)


def _empty(n_classes: int, bits: int) -> Details:
    zeros = np.zeros((2, n_classes), dtype=np.int64)
    nothing = residuals_on_grid(np.empty(0), np.empty(0), None)
    histograms = [CalibrationHistogram(bits=bits) for _ in range(n_classes)]
    return Details(0.0, zeros[0], nothing, zeros[1], np.zeros((3, n_classes)), histograms)


def _count(total: Details, p: Vector, labels: NDArray[np.int64], weight: Vector | None) -> None:
    n_classes, said = p.shape[1], p.argmax(axis=1)
    confidence, correct = np.take_along_axis(p, said[:, None], axis=1)[:, 0], said == labels
    weights = np.ones(len(p)) if weight is None else weight
    total.weight += float(weights.sum())
    total.occurs += np.bincount(labels, minlength=n_classes)
    total.residuals += residuals_on_grid(confidence, correct, weight)
    total.predicted += np.bincount(said, minlength=n_classes)
    terms = (weights, weights * correct, weights * confidence)
    total.of_predicted += np.stack([np.bincount(said, each, n_classes) for each in terms])
    for label, column in enumerate(np.ascontiguousarray(p.T)):
        total.histograms[label].count_rows(column, labels == label, weight)


def _joined(first: Details, second: Details) -> Details:
    return Details(
        first.weight + second.weight,
        first.occurs + second.occurs,
        first.residuals + second.residuals,
        first.predicted + second.predicted,
        first.of_predicted + second.of_predicted,
        [mine.merge(other) for mine, other in zip(first.histograms, second.histograms, strict=True)],
    )


def _probabilities(logits: NDArray[Any], chain: Chain) -> Vector:
    """In float64, and at most 1, as measures want them."""
    wide = as_floating(logits, "logits", "evaluate")[0]
    log_p = chain.log_probabilities(wide)
    p: Vector = np.exp(np.asarray(to_numpy(log_p))).astype(np.float64, copy=False)
    return np.minimum(p, 1.0, out=p)
