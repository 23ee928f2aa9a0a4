"""The result of a fit, its report, and the measured predictions of a chain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Array, as_floating, is_torch, namespace, row_blocks, take_label, to_numpy
from refocal.engine import Block, Dataset, RowPredictions
from refocal.engine.apply import apply
from refocal.engine.array_engine import GPU_PART
from refocal.engine.scoring import measure_predictors
from refocal.fitting import Solution, Surface
from refocal.maps.chain import Chain
from refocal.maps.steps import Focal, Temperature

# The number of scores held at a time.
ENTRIES = 1 << 18
# Probabilities below this may have lost digits in single precision.
TINY = 1e-30
# Where all classes but the top have less than this together, its own probability is computed from theirs.
SURE = 1e-3


class Fitted(NamedTuple):
    """The result of a fit: the chain, how a search found it, and further entries of the report."""

    chain: Chain
    solution: Solution | None = None
    path: Surface | None = None
    notes: dict[str, Any] = {}  # noqa: RUF012


def focal_point(chain: Chain) -> tuple[float, float]:
    """(γ, T) of a chain: 0 and 1 where it has no such step."""
    return chain.find(Focal, "gamma", 0.0), chain.find(Temperature, "temperature", 1.0)


class HasFocalPoint:
    """γ and T of a calibrator, taken from its chain."""

    chain_: Chain
    solution_: Solution
    path_: Surface | None = None  # not saved to a file

    @property
    def gamma_(self) -> float:
        """γ of the focal map; 0 without it."""
        return focal_point(self.chain_)[0]

    @property
    def temperature_(self) -> float:
        """The temperature applied before the focal map, and after the scaling of the classes if any; 1 without it."""
        return focal_point(self.chain_)[1]


def report_of(found: Fitted, dataset: Dataset) -> dict[str, Any]:
    """The data that a calibrator was fitted on, and its measures there before and after."""
    known = {"before": dataset.memo.get("before"), "after": found.notes.get("after")}
    chains = {"before": Chain(), "after": found.chain}
    missing = tuple(chains[name] for name in known if known[name] is None)
    measured = iter(measure_predictors(dataset, partial(predictions_of, missing, rough=True), len(missing)))
    before, after = (found or next(measured) for found in known.values())
    dataset.memo["before"] = dict(before)
    counted = {
        "n_skipped": dataset.n_skipped,
        "n_bad_parts": len(dataset.bad_parts),
    }
    if isinstance(dataset, Block):  # the labels of data in blocks are not in memory
        rows = np.bincount(to_numpy(dataset.labels), weights=dataset.weight, minlength=dataset.n_classes)
        counted["n_absent_classes"] = int(np.count_nonzero(rows == 0))
    return {
        "n_samples": dataset.n_rows,
        "n_classes": dataset.n_classes,
        **{name: count for name, count in counted.items() if count},
        "before": before,
        "after": after,
        "accuracy_change": after["accuracy"] - before["accuracy"],
        **found.notes,
    }


def predictions_of(
    chains: Iterable[Chain], block: Block, *, rough: bool = False
) -> Iterator[tuple[RowPredictions, Array]]:
    """The measured predictions of each chain, and which of them are correct; on the block's device.

    The empty chain is the uncalibrated model. `rough`: to the digits of the logits, where these are in single
    precision. A temperature and a focal map at the end of a chain are computed by the engine of the block.
    """
    for chain in chains:
        steps, gamma, temperature = chain.steps, 0.0, 1.0
        if steps and isinstance(last := steps[-1], Focal):
            steps, gamma = steps[:-1], last.gamma
        if steps and isinstance(last := steps[-1], Temperature):
            steps, temperature = steps[:-1], last.temperature
        if not steps:
            yield block.predictions((gamma,), temperature, rough=rough, there=True)[0], block.tops.correct
            continue
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
        yield RowPredictions(*columns), block.tops.correct if chain.keeps_order else correct


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
