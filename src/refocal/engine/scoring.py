"""Measures of several predictors as sums over blocks: means, and histograms for the ECE."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from refocal._arrays import Array, Vector, in_library_of, namespace, row_blocks
from refocal.engine.block import Block, RowPredictions
from refocal.engine.dataset import Dataset
from refocal.engine.passes import Pass
from refocal.metrics._bins import norm_of_gaps, quantile_bins
from refocal.metrics.histogram import CalibrationHistogram

Predict = Callable[[Block], Iterable[tuple[RowPredictions, Array]]]

# Histogram cells of a search, of its final comparison and of a report; a report refines its cells until the bound is
# small enough.
SEARCH_BITS, FINE_BITS, REPORT_BITS = 6, 10, 12
# Where answers are sent between processes, a report begins with coarse cells: a second pass cuts the few that matter.
TRAVELLING_BITS = 4
ECE_BOUND, MAX_REFINEMENTS = 1e-4, 3
# The number of points measured in one pass.
POINTS = 16
# The number of rows processed at a time: a few numbers per row and predictor are held.
PART_ROWS = 1 << 18


@dataclass(frozen=True)
class FocalPoints:
    """Predictions at points (γ, T); those of one temperature share the softmax. `there`: left on a GPU."""

    points: tuple[tuple[float, float], ...]
    there: bool = False

    def __call__(self, block: Block) -> list[tuple[RowPredictions, Array]]:
        """The predictions at each point, in their order."""
        found = {}
        for temperature in dict.fromkeys(t for _, t in self.points):
            gammas = tuple(dict.fromkeys(g for g, t in self.points if t == temperature))
            predictions = block.predictions(gammas, temperature, there=self.there)
            found.update({(gamma, temperature): each for gamma, each in zip(gammas, predictions, strict=True)})
        correct = block.tops.correct if self.there else block.correct
        return [(found[point], correct) for point in self.points]


@dataclass
class PredictorSums:
    """Sums over rows for each predictor: of weights, and of log-loss, Brier score and accuracy (3, predictors)."""

    weight: float
    sums: Vector
    histograms: list[CalibrationHistogram]


def sums_of(block: Block, predict: Predict, cells: tuple[CalibrationHistogram, ...]) -> PredictorSums:
    """Sums over a block; `cells` are empty histograms, one per predictor, or none."""
    total = PredictorSums(0.0, np.zeros(()), [each.fresh() for each in cells])
    for rows in row_blocks(block.n_rows, 1, entries=PART_ROWS):
        part, terms = block.take(rows), []
        for i, (found, correct) in enumerate(predict(part)):
            terms.append((-found.label_log_p, squared_errors(found, part), correct.astype(np.float64)))
            if cells:
                p, happened = measured_on(found, correct, part)
                # Rounding may leave a little more than 1.
                total.histograms[i].count_rows(np.clip(p, 0.0, 1.0), happened, part.weight)
        weight = part.weights
        total.weight += float(weight.sum())
        total.sums = total.sums + np.array(terms).transpose(1, 0, 2) @ weight
    return total


def join_sums(first: PredictorSums, second: PredictorSums) -> PredictorSums:
    """The sums over the rows of both."""
    return PredictorSums(
        first.weight + second.weight,
        first.sums + second.sums,
        [mine.merge(other) for mine, other in zip(first.histograms, second.histograms, strict=True)],
    )


def scores(found: PredictorSums, resolutions: tuple[int, ...]) -> Vector:
    """Log-loss and error of each predictor (2, predictors): the mean ECE at these numbers of bins, or Brier score."""
    log_loss, error, _ = found.sums / found.weight
    if resolutions:
        error = np.array([np.mean([h.equal_mass(n).ece for n in resolutions]) for h in found.histograms])
    return np.stack([log_loss, error])


class Measures(NamedTuple):
    """The reported measures of each predictor."""

    means: Vector
    """Log-loss, Brier score and accuracy (3, predictors)."""
    ece: list[float]
    bound: float
    """How far an ECE may be off."""
    finer: tuple[CalibrationHistogram, ...]
    """Empty histograms with a smaller error bound, where that is needed."""


def measures(found: PredictorSums, n_bins: int) -> Measures:
    """The measures from sums with histograms."""
    cut = [histogram.equal_mass(n_bins) for histogram in found.histograms]
    bound = max(each.error_bound for each in cut)
    finer = () if bound <= ECE_BOUND else tuple(each.refined(n_bins=n_bins) for each in found.histograms)
    return Measures(found.sums / found.weight, [each.ece for each in cut], bound, finer)


def score_points(
    dataset: Dataset, points: list[tuple[float, float]], resolutions: tuple[int, ...], bits: int = SEARCH_BITS
) -> Vector:
    """Log-loss and error of points (γ, T), (2, points): the mean of the ECEs at these numbers of bins by histograms.

    Without numbers of bins the error is the Brier score.
    """
    parts = []
    for first in range(0, len(points), POINTS):
        some = tuple(points[first : first + POINTS])
        if dataset.on_gpu:  # a sort there takes less time than a histogram
            exact = measure_predictors(dataset, FocalPoints(some, there=True), len(some), resolutions)
            names = ("log_loss", "ece" if resolutions else "brier_score")
            parts.append(np.array([[each[name] for each in exact] for name in names]))
            continue
        cells = (CalibrationHistogram(bits=bits),) * len(some) if resolutions else ()
        finish = partial(scores, resolutions=resolutions)
        parts.append(dataset.reduce(Pass(partial(sums_of, predict=FocalPoints(some), cells=cells), join_sums, finish)))
    return np.concatenate(parts, axis=1)


def measure(dataset: Dataset, predict: Predict, n_bins: int, cells: tuple[CalibrationHistogram, ...]) -> Measures:
    """Means and ECE of predictors; passes again with finer cells until the ECE is known to 1e-4."""
    for _ in range(1 + MAX_REFINEMENTS):
        task = Pass(partial(sums_of, predict=predict, cells=cells), join_sums, partial(measures, n_bins=n_bins))
        found: Measures = dataset.reduce(task)
        if not found.finer:
            break
        cells = found.finer
    return found


def squared_errors(found: RowPredictions, block: Block) -> Array:
    """The Brier score of each row; for two classes that of class 1 alone."""
    xp = namespace(found.label_log_p)
    if block.n_classes == 2:
        return xp.expm1(found.label_log_p) ** 2
    return found.squares - 2.0 * xp.exp(found.label_log_p) + 1.0


def measured_on(found: RowPredictions, correct: Array, block: Block) -> tuple[Array, Array]:
    """What the ECE is measured on: the probability of class 1 of two, or else of the top class; and what happened."""
    if block.n_classes != 2:
        return found.confidence, correct
    xp, happened = namespace(found.confidence), in_library_of(correct, block.labels) == 1
    # Not from the label's probability: equal scores would differ in their last digit by what happened.
    return xp.where(correct == happened, found.confidence, 1.0 - found.confidence), happened


def mean_error(p: Array, happened: Array, weight: Vector | None, resolutions: tuple[int, ...]) -> float:
    """The mean of the equal-mass ECEs at several numbers of bins, from one sort."""
    errors = [norm_of_gaps(bins, "l1") for bins in quantile_bins(p, happened, weight, resolutions)]
    return sum(errors) / len(errors)


def measure_predictors(
    dataset: Dataset, predict: Predict, n_predictors: int, resolutions: tuple[int, ...] = (15,)
) -> list[dict[str, float]]:
    """Log-loss, ECE, Brier score and accuracy of each predictor: exactly in memory, the ECE to 1e-4 in blocks.

    In memory the ECE is the mean of those at several numbers of bins; 0 for none.
    """
    described = []
    if isinstance(dataset, Block):
        for found, correct in predict(dataset):
            xp, on = namespace(correct), measured_on(found, correct, dataset)
            described.append(
                {
                    "log_loss": -dataset.average(found.label_log_p),
                    "ece": mean_error(*on, dataset.weight, resolutions) if resolutions else 0.0,
                    "brier_score": dataset.average(squared_errors(found, dataset)),
                    "accuracy": dataset.average(xp.astype(correct, xp.float64)),
                }
            )
        return described
    bits = TRAVELLING_BITS if dataset.answers_travel else REPORT_BITS
    measured = measure(dataset, predict, resolutions[0], (CalibrationHistogram(bits=bits),) * n_predictors)
    for (log_loss, brier, accuracy), ece in zip(measured.means.T.tolist(), measured.ece, strict=True):
        described.append({"log_loss": log_loss, "ece": ece, "brier_score": brier, "accuracy": accuracy})
    return described
