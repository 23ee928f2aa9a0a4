"""Predictions of chains on rows, and their measures as sums over blocks: means, and histograms for the ECE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import (
    Array,
    Vector,
    as_floating,
    in_library_of,
    is_torch,
    namespace,
    row_blocks,
    take_label,
    to_numpy,
)
from refocal.engine.apply import apply
from refocal.engine.array_engine import GPU_PART
from refocal.engine.block import Block, RowPredictions
from refocal.engine.dataset import Dataset
from refocal.engine.passes import Pass
from refocal.engine.program import program_for
from refocal.engine.refining import MAX_REFINEMENTS, REPORT_BITS, finer_cells, repeat_with_finer_cells
from refocal.maps.chain import Chain, Step
from refocal.maps.steps import Focal, Temperature
from refocal.metrics.bins import norm_of_gaps, quantile_bins
from refocal.metrics.histogram import CalibrationHistogram

MEASURED = ("log_loss", "ece", "brier_score", "accuracy")
"""What is measured of a chain, in this order."""

SEARCH_BITS = 6
"""Bits of the histogram cells while a search compares many points."""
FINE_BITS = 10
"""Bits of the histogram cells in the final comparison of a search."""
POINTS = 16
"""The number of points (γ, T) measured in one pass."""
ENTRIES = 1 << 18
"""The number of scores that are processed at a time on a CPU, so that temporaries stay in the cache."""
PART_ROWS = 1 << 18
"""The number of rows whose predictions are held at a time: a few numbers per row and chain."""
SMALLEST_SINGLE = 1e-30
"""Probabilities below this may have lost digits in single precision, whose smallest normal number is 1.2e-38."""


class ChainPredictions(NamedTuple):
    """The measured predictions of a chain for some rows, and which of them are correct."""

    rows: RowPredictions
    correct: Array


class FocalEnd(NamedTuple):
    """A chain cut before the temperature and the focal map at its end: the `steps` before these, and γ and T."""

    steps: tuple[Step, ...]
    gamma: float
    temperature: float

    @classmethod
    def of(cls, chain: Chain) -> FocalEnd:
        """The end of a chain; γ is 0 and T is 1 where it has no such steps."""
        steps = chain.steps
        gamma = 0.0
        temperature = 1.0
        if steps and isinstance(last := steps[-1], Focal):
            gamma = last.gamma
            steps = steps[:-1]
        if steps and isinstance(last := steps[-1], Temperature):
            temperature = last.temperature
            steps = steps[:-1]
        return cls(steps, gamma, temperature)


def predictions_of(chains: Sequence[Chain], block: Block, *, rough: bool = False) -> list[ChainPredictions]:
    """The measured predictions of each chain, and which of them are correct; on the block's device.

    The empty chain is the uncalibrated model. `rough`: to the digits of the logits, where these are in single
    precision. A temperature and a focal map at the end of a chain are computed by the engine of the block, which shares
    the softmax of chains that differ in γ alone.
    """
    ends = [FocalEnd.of(chain) for chain in chains]
    predictions: dict[int, ChainPredictions] = {}
    for i, (chain, end) in enumerate(zip(chains, ends, strict=True)):
        if i in predictions:
            continue
        if end.steps:
            predictions[i] = _predict_in_parts(chain, block, rough)
            continue
        alike = [j for j, other in enumerate(ends) if not other.steps and other.temperature == end.temperature]
        gammas = tuple(ends[j].gamma for j in alike)
        rows_of_gammas = block.predictions(gammas, end.temperature, rough=rough, there=True)
        for j, rows in zip(alike, rows_of_gammas, strict=True):
            predictions[j] = ChainPredictions(rows, block.tops.correct)
    return [predictions[i] for i in range(len(chains))]


def _predict_in_parts(chain: Chain, block: Block, rough: bool) -> ChainPredictions:
    """The predictions of a chain that has other steps, some rows at a time."""
    entries = 4 * GPU_PART if block.on_gpu else ENTRIES
    parts = []
    for rows in row_blocks(block.n_rows, block.n_classes, entries):
        logits = block.logits[rows, :]
        labels = block.labels[rows]
        if block.on_gpu:
            parts.append(_predict_on_gpu(chain, logits, labels))
            continue
        if is_torch(logits):  # bfloat16, which NumPy lacks
            logits = to_numpy(logits)
            labels = to_numpy(labels)
        compiled = _predict_compiled(chain, logits, labels, rough)
        parts.append(_predict_with_arrays(chain, logits, labels) if compiled is None else compiled)
    predictions = _concatenate(parts)
    if chain.keeps_order:
        return ChainPredictions(predictions.rows, block.tops.correct)
    return predictions


def _concatenate(parts: Sequence[ChainPredictions]) -> ChainPredictions:
    """The predictions of all parts, one part after the other."""
    correct = [part.correct for part in parts]
    columns = zip(*(part.rows for part in parts), strict=True)
    rows = RowPredictions(*(namespace(*column).concat(column) for column in columns))
    return ChainPredictions(rows, namespace(*correct).concat(correct))


def _predict_compiled(chain: Chain, logits: Array, labels: Array, rough: bool) -> ChainPredictions | None:
    """The measured predictions of a few rows by the compiled engine, in single precision where that suffices.

    None where it does not know all steps, or where a probability of a label has lost its digits.
    """
    if not isinstance(logits, np.ndarray):
        return None
    may_be_single = rough and logits.dtype == np.float32
    for dtype in (np.float32, np.float64) if may_be_single else (np.float64,):
        predictions = _predict_in_precision(chain, logits.astype(dtype, copy=False), labels)
        if predictions is not None:
            return predictions
    return None


def _predict_in_precision(chain: Chain, scores: NDArray[Any], labels: Array) -> ChainPredictions | None:
    """The same in the precision of the scores; None where that does not suffice."""
    if program_for(chain, scores).before.steps:
        return None
    applied = apply(chain, scores)
    if applied is None:
        return None
    p = applied.probabilities
    is_single = p.itemsize == 4
    index = np.arange(len(labels))
    label_p = p[index, labels].astype(np.float64)
    if label_p.min() < (SMALLEST_SINGLE if is_single else 0.0) or not label_p.all():
        return None
    top = p.argmax(axis=1)
    squares = np.einsum("ij,ij->i", p, p)
    confidence = p[index, top].astype(np.float64)
    if is_single:
        # Next to 1 a confidence has few digits, where the probabilities of the other classes have all of theirs.
        p[index, top] = 0.0
        others = p @ np.ones(p.shape[1], dtype=p.dtype)
        confidence = np.where(others < 1e-3, 1.0 - others, confidence)
    rows = RowPredictions(np.log(label_p), confidence, squares.astype(np.float64))
    return ChainPredictions(rows, top == labels)


def _predict_with_arrays(chain: Chain, logits: Array, labels: Array) -> ChainPredictions:
    """The same with the array library of the logits."""
    end = FocalEnd.of(chain)
    part = Block(Chain(end.steps).scores(logits), labels)
    (rows,) = part.predictions((end.gamma,), end.temperature, there=True)
    return ChainPredictions(rows, part.tops.correct)


def _predict_on_gpu(chain: Chain, logits: Array, labels: Array) -> ChainPredictions:
    """The same on a GPU; only where the probability of the label is tiny is its logarithm computed apart."""
    scores = as_floating(logits, "logits", "fit")[0]
    applied = apply(chain, scores)
    p = chain.probabilities(scores) if applied is None else applied.probabilities
    confidence, top = p.max(-1)
    label_p = take_label(p, labels).double()
    label_log_p = label_p.log()
    is_tiny = label_p < SMALLEST_SINGLE
    if bool(is_tiny.any()):
        log_p = chain.log_probabilities(scores[is_tiny])
        label_log_p[is_tiny] = take_label(log_p, labels[is_tiny]).double()
    rows = RowPredictions(label_log_p, confidence.double(), (p * p).sum(-1).double())
    return ChainPredictions(rows, top == labels)


def squared_errors(predictions: RowPredictions, block: Block) -> Array:
    """The Brier score of each row, Σ_k p_k² - 2 p_label + 1; for two classes that of class 1 alone, (1 - p_label)²."""
    xp = namespace(predictions.label_log_p)
    if block.n_classes == 2:
        return xp.expm1(predictions.label_log_p) ** 2
    return predictions.squares - 2.0 * xp.exp(predictions.label_log_p) + 1.0


def measured_on(predictions: RowPredictions, correct: Array, block: Block) -> tuple[Array, Array]:
    """What the ECE is measured on: the probability of class 1 of two, or else of the top class; and what happened."""
    if block.n_classes != 2:
        return predictions.confidence, correct
    xp = namespace(predictions.confidence)
    happened = in_library_of(correct, block.labels) == 1
    # Not from the label's probability: equal scores would differ in their last digit by what happened.
    p = xp.where(correct == happened, predictions.confidence, 1.0 - predictions.confidence)
    return p, happened


def mean_error(p: Array, happened: Array, weight: Vector | None, resolutions: tuple[int, ...]) -> float:
    """The mean of the equal-mass ECEs at several numbers of bins, from one sort."""
    errors = [norm_of_gaps(bins, "l1") for bins in quantile_bins(p, happened, weight, resolutions)]
    return sum(errors) / len(errors)


@dataclass(frozen=True)
class ChainSums:
    """Sums over rows: of weights, and for each chain of log-loss, Brier score and accuracy, (3, chains).

    `histograms` are of the confidences of each chain, for its ECE; there are none if the ECE is not asked for.
    """

    weight: float
    sums: Vector
    histograms: list[CalibrationHistogram]

    def merge(self, other: ChainSums) -> ChainSums:
        """The sums over the rows of both."""
        pairs = zip(self.histograms, other.histograms, strict=True)
        return ChainSums(
            weight=self.weight + other.weight,
            sums=self.sums + other.sums,
            histograms=[mine.merge(theirs) for mine, theirs in pairs],
        )


def sums_of(
    block: Block, chains: Sequence[Chain], empty_histograms: Sequence[CalibrationHistogram], rough: bool = False
) -> ChainSums:
    """Sums over a block; `empty_histograms` have the cells to count in, one for each chain, or there are none."""
    total_weight = 0.0
    total_sums = np.zeros((3, len(chains)))
    histograms = [empty.fresh() for empty in empty_histograms]
    for rows in row_blocks(block.n_rows, 1, entries=PART_ROWS):
        part = block.take(rows)
        terms = []  # (chains, 3, rows)
        for i, (predictions, correct) in enumerate(predictions_of(chains, part, rough=rough)):
            log_loss = -predictions.label_log_p
            brier = squared_errors(predictions, part)
            accuracy = correct.astype(np.float64)
            terms.append((log_loss, brier, accuracy))
            if histograms:
                p, happened = measured_on(predictions, correct, part)
                # Rounding may leave a little more than 1.
                histograms[i].count_rows(np.clip(p, 0.0, 1.0), happened, part.weight)
        weight = part.weights
        total_weight += float(weight.sum())
        total_sums = total_sums + np.array(terms).transpose(1, 0, 2) @ weight
    return ChainSums(total_weight, total_sums, histograms)


class Measures(NamedTuple):
    """The `MEASURED` of each chain, (4, chains)."""

    values: Vector
    bound: float
    """How far an ECE may be off."""
    finer: tuple[CalibrationHistogram, ...]
    """Empty histograms with a smaller bound, where one is asked for and needed."""


def measures(total: ChainSums, resolutions: tuple[int, ...], refine: bool = False) -> Measures:
    """The measures from sums; the ECE is the mean of those at these numbers of bins, and 0 without any."""
    means = total.sums / total.weight
    means[-1] = np.minimum(means[-1], 1.0)  # rounding may leave a little more than all rows right
    eces = []
    bounds = []
    for histogram in total.histograms:
        at_resolutions = [histogram.equal_mass(n_bins) for n_bins in resolutions]
        eces.append(np.mean([equal_mass.ece for equal_mass in at_resolutions]))
        bounds += [equal_mass.error_bound for equal_mass in at_resolutions]
    bound = max(bounds, default=0.0)
    finer = finer_cells(total.histograms, bound, max(resolutions)) if refine and bounds else ()
    return Measures(np.insert(means, 1, eces or 0.0, axis=0), bound, finer)


def measure_chains(
    dataset: Dataset,
    chains: Sequence[Chain],
    resolutions: tuple[int, ...] = (15,),
    *,
    bits: int | None = None,
    rough: bool = False,
) -> Vector:
    """The `MEASURED` of each chain, (4, chains).

    The ECE is the mean of those at several numbers of bins; 0 for none. It is exact in memory and known to
    `ECE_TOLERANCE` in blocks; given `bits`, it comes from one histogram of so many, except on a GPU, where a sort takes
    less time.
    """
    if isinstance(dataset, Block) and (bits is None or dataset.on_gpu):
        predictions = predictions_of(chains, dataset, rough=rough)
        values = [measure_predictions(rows, correct, dataset, resolutions) for rows, correct in predictions]
        return np.array(values).T
    # Where answers are sent between processes, coarse cells come first: a second pass cuts the few that matter.
    bits_of_travellers = 4
    first_bits = bits or (bits_of_travellers if dataset.answers_travel else REPORT_BITS)
    n_histograms = len(chains) if resolutions else 0
    finish = partial(measures, resolutions=resolutions, refine=bits is None)

    def one_pass(empty_histograms: Sequence[CalibrationHistogram]) -> Measures:
        count = partial(sums_of, chains=chains, empty_histograms=empty_histograms, rough=rough)
        measured: Measures = dataset.reduce(Pass(count, ChainSums.merge, finish))
        return measured

    empty_histograms = (CalibrationHistogram(bits=first_bits),) * n_histograms
    return repeat_with_finer_cells(one_pass, empty_histograms, 1 + MAX_REFINEMENTS).values


def measure_predictions(
    predictions: RowPredictions, correct: Array, block: Block, resolutions: tuple[int, ...] = (15,)
) -> Vector:
    """The `MEASURED` of predictions in memory, (4,)."""
    ece = 0.0
    if resolutions:
        p, happened = measured_on(predictions, correct, block)
        ece = mean_error(p, happened, block.weight, resolutions)
    log_loss = -block.average(predictions.label_log_p)
    brier = block.average(squared_errors(predictions, block))
    accuracy = block.average(namespace(correct).astype(correct, predictions.squares.dtype))
    # Rounding may leave a little more than all rows right.
    return np.array([log_loss, ece, brier, min(accuracy, 1.0)])


def score_points(
    dataset: Dataset, points: list[tuple[float, float]], resolutions: tuple[int, ...], bits: int = SEARCH_BITS
) -> Vector:
    """Log-loss and error of points (γ, T), (2, points): the ECE, or the Brier score without numbers of bins."""
    chains = [Chain((Temperature(temperature), Focal(gamma))) for gamma, temperature in points]
    parts = []
    for first in range(0, len(chains), POINTS):
        parts.append(measure_chains(dataset, chains[first : first + POINTS], resolutions, bits=bits))
    values = np.concatenate(parts, axis=1)
    log_loss = values[MEASURED.index("log_loss")]
    error = values[MEASURED.index("ece" if resolutions else "brier_score")]
    return np.stack([log_loss, error])
