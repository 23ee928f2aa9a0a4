"""Predictions of chains on rows, and their measures as sums over blocks: means, and histograms for the ECE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

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
from refocal.maps.chain import Chain, Step
from refocal.maps.steps import Focal, Temperature
from refocal.metrics.bins import norm_of_gaps, quantile_bins
from refocal.metrics.histogram import CalibrationHistogram

ChainPredictions = tuple[RowPredictions, Array]
"""The measured predictions of some rows, and which of them are correct."""

MEASURED = ("log_loss", "ece", "brier_score", "accuracy")
"""What is measured of a chain, in this order."""

# Histogram cells of a search, of its final comparison and of a report; a report refines its cells until the bound is
# small enough.
SEARCH_BITS, FINE_BITS, REPORT_BITS = 6, 10, 12
# Where answers are sent between processes, a report begins with coarse cells: a second pass cuts the few that matter.
TRAVELLING_BITS = 4
ECE_BOUND, MAX_REFINEMENTS = 1e-4, 3
# The number of points measured in one pass.
POINTS = 16
# The number of rows processed at a time: a few numbers per row and chain are held. And the number of scores.
PART_ROWS, ENTRIES = 1 << 18, 1 << 18
# Probabilities below this may have lost digits in single precision.
TINY = 1e-30
# Where all classes but the top have less than this together, its own probability is computed from theirs.
SURE = 1e-3


def predictions_of(chains: Sequence[Chain], block: Block, *, rough: bool = False) -> list[ChainPredictions]:
    """The measured predictions of each chain, and which of them are correct; on the block's device.

    The empty chain is the uncalibrated model. `rough`: to the digits of the logits, where these are in single
    precision. A temperature and a focal map at the end of a chain are computed by the engine of the block, which shares
    the softmax of chains that differ in γ alone.
    """
    ends = [_focal_end(chain) for chain in chains]
    found: dict[int, ChainPredictions] = {}
    for i, (chain, (steps, _, temperature)) in enumerate(zip(chains, ends, strict=True)):
        if steps:
            found[i] = _by_parts(chain, block, rough)
        elif i not in found:
            same = [j for j, end in enumerate(ends) if (end[0], end[2]) == ((), temperature)]
            gammas = tuple(ends[j][1] for j in same)
            rows = block.predictions(gammas, temperature, rough=rough, there=True)
            found |= {j: (each, block.tops.correct) for j, each in zip(same, rows, strict=True)}
    return [found[i] for i in range(len(chains))]


def _focal_end(chain: Chain) -> tuple[tuple[Step, ...], float, float]:
    """The steps of a chain without a temperature and a focal map at its end; and γ and T of these."""
    steps, gamma, temperature = chain.steps, 0.0, 1.0
    if steps and isinstance(last := steps[-1], Focal):
        steps, gamma = steps[:-1], last.gamma
    if steps and isinstance(last := steps[-1], Temperature):
        steps, temperature = steps[:-1], last.temperature
    return steps, gamma, temperature


def _by_parts(chain: Chain, block: Block, rough: bool) -> ChainPredictions:
    """The predictions of a chain that has other steps, some rows at a time."""
    steps, gamma, temperature = _focal_end(chain)
    parts = []
    for rows in row_blocks(block.n_rows, block.n_classes, 4 * GPU_PART if block.on_gpu else ENTRIES):
        logits, labels = block.logits[rows, :], block.labels[rows]
        if is_torch(logits) and not block.on_gpu:  # bfloat16, which NumPy lacks
            logits, labels = to_numpy(logits), to_numpy(labels)
        found = _measured_there(chain, logits, labels) if block.on_gpu else _compiled(chain, logits, labels, rough)
        if found is None:
            part = Block(Chain(steps).scores(logits), labels)
            found = (*part.predictions((gamma,), temperature, there=True)[0], part.tops.correct)
        parts.append(found)
    *columns, correct = (namespace(*column).concat(column) for column in zip(*parts, strict=True))
    return RowPredictions(*columns), block.tops.correct if chain.keeps_order else correct


def _compiled(chain: Chain, logits: Array, labels: Array, rough: bool) -> tuple[Array, ...] | None:
    """The measured predictions of a few rows by the compiled engine, in single precision where that suffices.

    None where it does not know all steps, or where a probability of a label has lost its digits.
    """
    if not isinstance(logits, np.ndarray):
        return None
    index = np.arange(len(labels))
    for dtype in (np.float32, np.float64) if rough and logits.dtype == np.float32 else (np.float64,):
        x = logits.astype(dtype, copy=False)
        found = None if chain.program_for(x).before.steps else apply(chain, x)
        if found is None:
            continue
        p = found.probabilities
        at_label, at, squares = p[index, labels].astype(np.float64), p.argmax(axis=1), np.einsum("ij,ij->i", p, p)
        if at_label.min() < (TINY if p.itemsize == 4 else 0.0) or not at_label.all():
            continue
        confidence = p[index, at].astype(np.float64)
        if p.itemsize == 4:  # next to 1 it has few digits, where what the others have together has all
            p[index, at] = 0.0
            rest = p @ np.ones(p.shape[1], dtype=p.dtype)
            confidence = np.where(rest < SURE, 1.0 - rest, confidence)
        return np.log(at_label), confidence, squares.astype(np.float64), at == labels
    return None


def _measured_there(chain: Chain, logits: Array, labels: Array) -> tuple[Array, ...]:
    """The same on a GPU; only where the probability of the label is tiny is its logarithm computed apart."""
    x = as_floating(logits, "logits", "fit")[0]
    found = apply(chain, x)
    p = chain.probabilities(x) if found is None else found.probabilities
    confidence, at = p.max(-1)
    of_label = take_label(p, labels).double()
    tiny = of_label < TINY
    log_p = of_label.log()
    if bool(tiny.any()):
        log_p[tiny] = take_label(chain.log_probabilities(x[tiny]), labels[tiny]).double()
    return log_p, confidence.double(), (p * p).sum(-1).double(), at == labels


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


@dataclass
class ChainSums:
    """Sums over rows for each chain: of weights, and of log-loss, Brier score and accuracy (3, chains)."""

    weight: float
    sums: Vector
    histograms: list[CalibrationHistogram]


def sums_of(
    block: Block, chains: Sequence[Chain], cells: Sequence[CalibrationHistogram], rough: bool = False
) -> ChainSums:
    """Sums over a block; `cells` are empty histograms, one per chain, or none."""
    total = ChainSums(0.0, np.zeros(()), [each.fresh() for each in cells])
    for rows in row_blocks(block.n_rows, 1, entries=PART_ROWS):
        part, terms = block.take(rows), []
        for i, (found, correct) in enumerate(predictions_of(chains, part, rough=rough)):
            terms.append((-found.label_log_p, squared_errors(found, part), correct.astype(np.float64)))
            if cells:
                p, happened = measured_on(found, correct, part)
                # Rounding may leave a little more than 1.
                total.histograms[i].count_rows(np.clip(p, 0.0, 1.0), happened, part.weight)
        weight = part.weights
        total.weight += float(weight.sum())
        total.sums = total.sums + np.array(terms).transpose(1, 0, 2) @ weight
    return total


def join_sums(first: ChainSums, second: ChainSums) -> ChainSums:
    """The sums over the rows of both."""
    return ChainSums(
        first.weight + second.weight,
        first.sums + second.sums,
        [mine.merge(other) for mine, other in zip(first.histograms, second.histograms, strict=True)],
    )


class Measures(NamedTuple):
    """The `MEASURED` of each chain, (4, chains)."""

    values: Vector
    bound: float
    """How far an ECE may be off."""
    finer: tuple[CalibrationHistogram, ...]
    """Empty histograms with a smaller bound, where one is asked for and needed."""


def measures(found: ChainSums, resolutions: tuple[int, ...], refine: bool = False) -> Measures:
    """The measures from sums; the ECE is the mean of those at these numbers of bins, and 0 without any."""
    means = found.sums / found.weight
    cut = [[histogram.equal_mass(n) for n in resolutions] for histogram in found.histograms]
    ece = [np.mean([each.ece for each in of_chain]) for of_chain in cut] or 0.0
    bound = max((each.error_bound for of_chain in cut for each in of_chain), default=0.0)
    is_off = refine and bound > ECE_BOUND
    finer = tuple(each.refined(n_bins=max(resolutions)) for each in found.histograms if is_off)
    return Measures(np.insert(means, 1, ece, axis=0), bound, finer)


def measure_chains(
    dataset: Dataset,
    chains: Sequence[Chain],
    resolutions: tuple[int, ...] = (15,),
    *,
    bits: int | None = None,
    rough: bool = False,
) -> Vector:
    """The `MEASURED` of each chain, (4, chains).

    The ECE is the mean of those at several numbers of bins; 0 for none. It is exact in memory and known to 1e-4 in
    blocks; given `bits`, it comes from one histogram of so many, except on a GPU, where a sort takes less time.
    """
    if isinstance(dataset, Block) and (bits is None or dataset.on_gpu):
        found = predictions_of(chains, dataset, rough=rough)
        return np.array([measure_rows(*each, dataset, resolutions) for each in found]).T
    first = bits or (TRAVELLING_BITS if dataset.answers_travel else REPORT_BITS)
    cells = (CalibrationHistogram(bits=first),) * len(chains) if resolutions else ()
    for _ in range(1 + MAX_REFINEMENTS):
        task = partial(sums_of, chains=chains, cells=cells, rough=rough)
        finish = partial(measures, resolutions=resolutions, refine=bits is None)
        measured: Measures = dataset.reduce(Pass(task, join_sums, finish))
        if not measured.finer:
            break
        cells = measured.finer
    return measured.values


def measure_rows(found: RowPredictions, correct: Array, block: Block, resolutions: tuple[int, ...] = (15,)) -> Vector:
    """The `MEASURED` of predictions in memory."""
    ece = mean_error(*measured_on(found, correct, block), block.weight, resolutions) if resolutions else 0.0
    hits = namespace(correct).astype(correct, found.squares.dtype)
    brier, accuracy = block.average(squared_errors(found, block)), block.average(hits)
    return np.array([-block.average(found.label_log_p), ece, brier, accuracy])


def score_points(
    dataset: Dataset, points: list[tuple[float, float]], resolutions: tuple[int, ...], bits: int = SEARCH_BITS
) -> Vector:
    """Log-loss and error of points (γ, T), (2, points): the ECE, or the Brier score without numbers of bins."""
    chains = [Chain((Temperature(temperature), Focal(gamma))) for gamma, temperature in points]
    parts = [
        measure_chains(dataset, chains[first : first + POINTS], resolutions, bits=bits)
        for first in range(0, len(chains), POINTS)
    ]
    return np.concatenate(parts, axis=1)[[0, 1 if resolutions else 2]]
