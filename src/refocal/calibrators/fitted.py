"""The result of a fit, and its report."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Array, Indices, Vector, to_numpy
from refocal.calibrators import settings as setting
from refocal.engine import Block, Dataset
from refocal.engine.apply import probabilities_of
from refocal.engine.cache import CacheKey, NamedKey
from refocal.engine.scoring import MEASURED, measure_chains
from refocal.fitting import Solution, Surface
from refocal.maps.chain import Chain, Step, number_field
from refocal.maps.steps import Focal, Temperature
from refocal.metrics.intervals import effective_rows
from refocal.metrics.logistic_regression import fit_logistic

BEFORE: CacheKey[dict[str, float]] = NamedKey("before")
"""Under what the measures of the rows before any calibration are cached."""


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

    gamma_ = setting.fitted(Focal, "gamma", float, "γ of the focal map; 0 without it.", 0.0)
    temperature_ = setting.fitted(Temperature, "temperature", float, "T, after the scaling if any; 1 without it.", 1.0)


@dataclass(frozen=True)
class ZerosOfModel(Step, keeps_order=True):
    """Probabilities that a fit has raised to its floor, as the model had them: 0, up to the machine epsilon.

    The floor is half the smallest other probability, which may be 1/2: rows of it would not be those of the model.
    """

    floor: float = number_field()

    def are_zeros(self, scores: Array) -> Array:
        """Which log-probabilities are at the floor, up to rounding: all others are at least log 2 above."""
        return scores < self.floor + 0.5 * math.log(2.0)

    def apply(self, xp: Any, scores: Array) -> Array:
        """Log-probabilities, those of zeros as `model_log_probabilities` has them."""
        return xp.where(self.are_zeros(scores), math.log(float(xp.finfo(scores.dtype).eps)), scores)


def _uncalibrated(dataset: Dataset) -> Chain:
    """What is measured as the model before a fit."""
    if dataset.floor is None or dataset.floor < math.log(dataset.precision):
        return Chain()
    step = ZerosOfModel(dataset.floor)
    if isinstance(dataset, Block) and not bool(step.are_zeros(dataset.logits).any()):  # the engine is faster
        return Chain()
    return Chain((step,))


def _measures(dataset: Dataset, chains: list[Chain]) -> list[list[float]]:
    """The `MEASURED` of each chain."""
    values: list[list[float]] = measure_chains(dataset, tuple(chains), rough=True).T.tolist()
    return values


def report_of(fitted: Fitted, dataset: Dataset) -> dict[str, Any]:
    """The data that a calibrator was fitted on, and its measures there before and after."""
    before = dataset.cache.get(BEFORE)
    after: dict[str, float] | None = fitted.notes.get("after")
    # What is not known is measured in one pass.
    chains = []
    if before is None:
        chains.append(_uncalibrated(dataset))
    if after is None:
        chains.append(fitted.chain)
    measured = [dict(zip(MEASURED, values, strict=True)) for values in _measures(dataset, chains)]
    if before is None:
        before = measured[0]
    if after is None:
        after = measured[-1]
    shares: list[float] = []
    means: dict[str, Any] | None = None
    dataset.cache.keep(BEFORE, dict(before))
    counted: dict[str, float] = {"n_skipped": dataset.n_skipped, "n_bad_parts": len(dataset.bad_parts)}
    # The shares of so many classes are kept in a report, for `Calibrator.adapt`.
    most_shares = 1_000
    if isinstance(dataset, Block):  # the labels of data in blocks are not in memory
        rows = np.bincount(to_numpy(dataset.labels), weights=dataset.weight, minlength=dataset.n_classes)
        counted["n_absent_classes"] = int(np.count_nonzero(rows == 0))
        if dataset.weight is not None:
            # What intervals of `Calibrator.adapt` and expected performance rest on.
            counted["n_effective"] = float(f"{effective_rows(dataset.weight):.6g}")
        if dataset.n_classes <= most_shares:
            shares = [float(f"{share:.6g}") for share in rows / rows.sum()]
            means = mean_probabilities(fitted.chain, dataset)
    # The columns of so many classes are kept, for tables that the calibrator is applied to.
    most_columns = 1_000
    columns = list(dataset.columns) if len(dataset.columns) <= most_columns else []
    return {
        "n_samples": dataset.n_rows,
        "n_classes": dataset.n_classes,
        **({"columns": columns} if columns else {}),
        **{name: count for name, count in counted.items() if count},
        **({"class_shares": shares} if shares else {}),
        **({"mean_probabilities": means} if means else {}),
        "before": before,
        "after": after,
        "accuracy_change": after["accuracy"] - before["accuracy"],
        **fitted.notes,
    }


def mean_probabilities(chain: Chain, block: Block) -> dict[str, Any] | None:
    """The mean of the calibrated probabilities of each class over rows of the fit, and how many rows these are worth.

    Where a fit has no intercepts, or shrinks them, they are not the shares of the labels.
    """
    # Of more rows every so many are taken: a report must not take longer than the fit.
    most_rows = 10_000
    most_numbers = 300_000
    numbers_at_once = 100_000
    if block.counts is not None or block.label_of_row is not None:
        return None
    stride = math.ceil(max(block.n_rows / most_rows, block.n_rows * block.n_classes / most_numbers))
    logits = block.logits[::stride]
    n_rows = len(logits)
    weight = np.ones(n_rows) if block.weight is None else block.weight[::stride]
    if not weight.sum() > 0.0:
        return None
    rows_at_once = max(1, numbers_at_once // block.n_classes)
    sums = np.zeros(block.n_classes)
    last_column = np.empty(n_rows)
    for start in range(0, n_rows, rows_at_once):
        rows = slice(start, start + rows_at_once)
        p = to_numpy(probabilities_of(chain, logits[rows]))
        sums += weight[rows] @ p
        last_column[rows] = p[:, -1]
    n_known = n_rows if block.weight is None else float(f"{effective_rows(weight):.6g}")
    noted = {"n_rows": n_known, "values": [float(f"{mean:.6g}") for mean in sums / weight.sum()]}
    if block.n_classes == 2:
        noted["slope"] = float(f"{slope_of_labels(last_column, to_numpy(block.labels[::stride]), weight):.6g}")
    return noted


def slope_of_labels(p: Vector, labels: Indices, weight: Vector) -> float:
    """The slope of the log-odds of labels over those of p = P(y = 1): below 1 where probabilities are too extreme.

    That of largest posterior, of P(y = 1) = σ(a + b z), z = log p/(1-p), with a prior of one row around (0, 1).
    """
    event = np.clip(p.astype(np.float64), 1e-12, 1.0 - 1e-12)
    log_odds = np.log(event) - np.log1p(-event)
    design = np.stack([np.ones(len(event)), log_odds], axis=1)
    found = fit_logistic(design, weight * labels, weight, log_odds, prior_rows=1.0)
    return 1.0 if found is None else 1.0 + float(found.coefficients[1])
