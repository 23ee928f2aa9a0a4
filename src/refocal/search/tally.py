"""Measures of several predictors as sums over blocks: means with standard errors, and histograms for the ECE."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import row_blocks
from refocal.metrics.histogram import CalibrationHistogram, StreamedCalibration
from refocal.search.problem import Predictions, Problem
from refocal.search.rows import Block

Vector = NDArray[np.float64]
Predict = Callable[[Problem], Iterable[tuple[Predictions, NDArray[np.bool_]]]]

# So many rows at a time: a few numbers of each, for every predictor, are held.
PART_ROWS = 1 << 18

LOG_LOSS, BRIER, ACCURACY = range(3)


@dataclass(frozen=True)
class FocalPoints:
    """Predictions at points (γ, T); those of one temperature share the softmax."""

    points: tuple[tuple[float, float], ...]

    def __call__(self, problem: Problem) -> list[tuple[Predictions, NDArray[np.bool_]]]:
        """One for each point, in their order."""
        found = {}
        for temperature in dict.fromkeys(t for _, t in self.points):
            gammas = tuple(dict.fromkeys(g for g, t in self.points if t == temperature))
            for gamma, predictions in zip(gammas, problem.predictions(gammas, temperature), strict=True):
                found[gamma, temperature] = predictions
        return [(found[point], problem.correct) for point in self.points]


@dataclass
class Tally:
    """Sums over rows for each predictor; `moments` and `products` are weighted by w², for standard errors."""

    weight: float
    squared_weight: float
    sums: Vector
    moments: Vector
    products: Vector
    histograms: list[CalibrationHistogram]


def tally(block: Block, predict: Predict, cells: tuple[CalibrationHistogram, ...]) -> Tally:
    """Count a block; `cells` are empty histograms, one for each predictor or none."""
    histograms = [each.fresh() for each in cells]
    total: Tally | None = None
    for rows in row_blocks(len(block.labels), 1, entries=PART_ROWS):
        weight = None if block.weight is None else block.weight[rows]
        part = block._replace(values=block.values[rows], labels=block.labels[rows], weight=weight)
        found = _tally_part(problem_of(part), predict, histograms)
        total = found if total is None else join_tallies(total, found)
    if total is None:
        raise ValueError("a block without rows has no tally")
    return replace(total, histograms=histograms)


def _tally_part(problem: Problem, predict: Predict, histograms: list[CalibrationHistogram]) -> Tally:
    rows = []
    for i, (found, correct) in enumerate(predict(problem)):
        squares = found.squares - 2.0 * np.exp(found.label_log_p) + 1.0
        rows.append((-found.label_log_p, squares, correct.astype(np.float64)))
        if histograms:
            confidence = np.minimum(found.confidence, 1.0)  # rounding may leave a little more
            histograms[i].count_rows(confidence, correct, problem.weight)
    terms = np.array(rows).transpose(1, 0, 2)
    weight = np.ones(problem.n_rows) if problem.weight is None else problem.weight
    squared = weight * weight
    return Tally(
        float(weight.sum()),
        float(squared.sum()),
        terms @ weight,
        terms @ squared,
        (terms * squared) @ terms.transpose(0, 2, 1),
        [],
    )


def join_tallies(first: Tally, second: Tally) -> Tally:
    """Both together."""
    return Tally(
        first.weight + second.weight,
        first.squared_weight + second.squared_weight,
        first.sums + second.sums,
        first.moments + second.moments,
        first.products + second.products,
        [mine.merge(other) for mine, other in zip(first.histograms, second.histograms, strict=True)],
    )


class Means(NamedTuple):
    """Log-loss, Brier score and accuracy of each predictor (3, M), and the covariances of these means (3, M, M)."""

    values: Vector
    covariance: Vector


def means(found: Tally) -> Means:
    """The means of a tally."""
    values = found.sums / found.weight
    # Σ w² (x_i - m_i)(x_j - m_j), multiplied out.
    crossed = found.moments[:, :, None] * values[:, None, :]
    about = found.squared_weight * values[:, :, None] * values[:, None, :]
    return Means(values, (found.products - crossed - crossed.transpose(0, 2, 1) + about) / found.weight**2)


class Scores(NamedTuple):
    """What a search wants to know of each point: its means, and the mean of its ECEs at several numbers of bins."""

    log_loss: Vector
    brier: Vector
    ece: Vector


def scores(found: Tally, resolutions: tuple[int, ...]) -> Scores:
    """The scores of a tally; without histograms the ECE is 0."""
    values = found.sums / found.weight
    errors = [np.mean([h.compute(n_bins=n).ece for n in resolutions]) for h in found.histograms]
    return Scores(values[LOG_LOSS], values[BRIER], np.array(errors) if errors else np.zeros(values.shape[1]))


class Measures(NamedTuple):
    """What is reported of each predictor; `finer` are empty histograms that would leave less doubt."""

    means: Means
    calibration: list[StreamedCalibration]
    finer: tuple[CalibrationHistogram, ...]


def measures(found: Tally, n_bins: int) -> Measures:
    """The measures of a tally with histograms."""
    calibration = [histogram.compute(n_bins=n_bins) for histogram in found.histograms]
    return Measures(means(found), calibration, tuple(h.refined(n_bins=n_bins) for h in found.histograms))


def problem_of(block: Block) -> Problem:
    """A prepared block as the problem that its passes are made for."""
    values = block.values if block.values.dtype.kind == "f" else block.values.astype(np.float64)
    return Problem(values, block.labels, block.weight)
