"""The temperature of least log-loss by a bracketed Newton method, and what it shares with the search over (γ, T).

The mean log-loss of softmax(β · logits) is convex in β = 1/T, so that is what is searched for.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from refocal._arrays import as_floating, namespace, to_numpy
from refocal._validation import LARGE, SMALL
from refocal.engine.block import Block
from refocal.engine.dataset import Dataset
from refocal.errors import DataError
from refocal.fitting.solution import Solution, Status
from refocal.maps.row import softplus

# The most Newton steps of one search, over T alone or over (γ, T).
MAX_STEPS = 100
# Close to γ = -1 the map loses its inverse and the log-loss has minima that gain nothing on other data.
GAMMA_BOUNDS = (-0.9, 100.0)
# The fewest rows that a search begins on; twice as many are needed for a sample to be worth its time.
FIRST_ROWS = 300

MESSAGES: dict[Status, str] = {
    "converged": "the log-loss has a minimum here",
    "at a bound": (
        "the log-loss still falls at the end of the range. For T: every row is right (fit on more data, and on data "
        "the model was not trained on) or the labels have nothing to do with the logits (check their order). For γ: "
        f"the range is {GAMMA_BOUNDS[0]} to {GAMMA_BOUNDS[1]:g}"
    ),
    "not converged": f"no minimum after {MAX_STEPS} steps; try search='grid', and please report the data",
    "flat": "every row of logits is constant, so no temperature matters; it was kept",
}


class SearchAccuracy(NamedTuple):
    """When a search ends, and how exactly it computes.

    Newton's method converges quadratically: after a step of relative size ε the error is about ε².
    """

    step_tolerance: float
    """The relative step in 1/T, or the step in (log(1+γ), log T), after which a search ends."""
    rough: bool
    """Whether six digits of the log-loss suffice, in single precision."""


FULL = SearchAccuracy(1e-5, rough=False)
ROUGH = SearchAccuracy(3e-3, rough=True)
DRAFT = SearchAccuracy(0.05, rough=True)


class LogitScale(NamedTuple):
    """Distances between the logits of a row: a starting temperature, and the range of those that are searched."""

    typical: float
    lowest: float
    highest: float


class BracketedMinimum(NamedTuple):
    """Where a search for β = 1/T ended, the log-loss there, and how."""

    beta: float
    value: float
    status: Status


def newton_temperature(dataset: Dataset) -> Solution:
    """The temperature of least log-loss; computed once for each dataset."""
    cached: Solution | None = dataset.memo.get("temperature")
    if cached is not None:
        return cached
    scale = scale_of(dataset)
    if scale is None:
        minimum = BracketedMinimum(1.0, dataset.means("temperature", 1.0)[0], "flat")
    else:
        start = first_beta(dataset, scale)
        draft = bracketed_newton(dataset, start, scale, ROUGH)
        minimum = bracketed_newton(dataset, draft.beta if draft.status == "converged" else start, scale, FULL)
    status = minimum.status
    solution = Solution(0.0, 1.0 / minimum.beta, minimum.value, status, MESSAGES[status], dataset.passes)
    dataset.memo["temperature"] = solution
    return solution


def bracketed_newton(dataset: Dataset, beta: float, scale: LogitScale, accuracy: SearchAccuracy) -> BracketedMinimum:
    """Newton's method for L'(β) = 0 from a first β, kept within a bracket that every evaluation narrows.

    L is convex, so its minimum lies above β where L'(β) < 0 and below it elsewhere. A Newton step that leaves the
    bracket, or changes β by more than a factor of ten, is replaced by a factor of ten; where that would end at a side
    of the bracket, by its geometric mean.
    """
    separable_loss = 1e-9  # a log-loss this small means separable rows, for which T goes to 0
    largest_factor = 10.0
    lowest = 1.0 / scale.highest
    highest = 1.0 / scale.lowest
    low = lowest
    high = highest
    value = math.inf
    for _ in range(MAX_STEPS):
        value, first, second = dataset.means("temperature", beta, rough=accuracy.rough)
        if value < separable_loss:
            return BracketedMinimum(beta, value, "at a bound")
        target = beta - first / second if second > 0.0 else math.inf
        if abs(target - beta) <= accuracy.step_tolerance * beta:  # the last step needs no further pass
            return BracketedMinimum(target, value - 0.5 * first * first / second, "converged")
        if first < 0.0:
            low = beta
        else:
            high = beta
        if low >= highest or high <= lowest:
            return BracketedMinimum(beta, value, "at a bound")
        is_trusted = low < target < high and 0.1 < target / beta < largest_factor
        if not is_trusted:
            target = min(largest_factor * beta, high) if first < 0.0 else max(0.1 * beta, low)
            if target in (low, high) and target not in (lowest, highest):
                target = math.sqrt(low * high)
        beta = target
    return BracketedMinimum(beta, value, "not converged")


def first_beta(dataset: Dataset, scale: LogitScale) -> float:
    """A first β = 1/T: the minimum of some of the rows, or else the inverse scale of the logits."""
    beta = 1.0 / scale.typical
    if dataset.n_rows < 2 * FIRST_ROWS:
        return beta
    for rows in samples_of(dataset):
        if rows.mean_gap > 0.0:
            minimum = bracketed_newton(rows, beta, scale, DRAFT)
            if minimum.status == "converged":
                beta = minimum.beta
    return beta


def samples_of(dataset: Dataset) -> list[Block]:
    """The samples of the rows on which a search begins, from a few rows to a fifth of all; kept with the dataset."""
    share = 0.2
    divided_again = 6_000  # a sample of at least as many rows has smaller ones before it
    cached: list[Block] | None = dataset.memo.get("samples")
    if cached is not None:
        return cached
    sample = dataset.part(max(FIRST_ROWS, int(share * dataset.n_rows)))
    smaller = samples_of(sample) if sample.n_rows >= divided_again else [dataset.part(FIRST_ROWS)]
    samples = [*smaller, sample]
    dataset.memo["samples"] = samples
    return samples


def scale_of(dataset: Dataset) -> LogitScale | None:
    """The scale of the logits; None if all of each row are equal.

    Below the mean distance to the top there may be much smaller ones that matter, since a class that is far below
    hardly counts, however far: so the distances from the top to the runner-up of some of the rows are examined.
    """
    saturated = 1e6  # beyond this factor of the distances, probabilities are 0 and 1, or all equal, to all digits
    outlying = 1e3  # a mean as many times the median comes from classes that are masked by logits like -1e9
    max_entries = 1 << 20  # of the rows that are sorted
    mean = dataset.mean_gap
    if mean == 0.0:
        return None
    if not SMALL <= mean <= LARGE:
        expected = f"of logits whose distances lie between {SMALL:g} and {LARGE:g} (impossible classes may be -inf)"
        raise DataError("X", "fit", expected=expected, got=f"a mean distance of {mean:g}")
    rows = dataset.part(FIRST_ROWS)
    x, given_dtype = as_floating(rows.logits[: max(1, max_entries // rows.n_classes), :], "logits", "fit")
    xp = namespace(x)
    ranked = xp.sort(x, axis=-1)
    top = ranked[:, -1]
    gaps = top - ranked[:, -2]
    rounding = 64.0 * float(xp.finfo(given_dtype).eps) * xp.abs(top)
    is_meaningful = (gaps < xp.inf) & (gaps > rounding)  # the runner-up is possible, and not equal but for rounding
    meaningful = to_numpy(gaps[is_meaningful]).astype(np.float64)
    if len(meaningful) == 0:
        meaningful = np.array([mean])
    typical = min(mean, outlying * float(np.median(meaningful)))
    lowest = min(mean, float(meaningful.min())) / saturated
    return LogitScale(typical, lowest, mean * saturated)


def laplace_temperature(rows: Block) -> float:
    """The temperature of least log-loss where every one of n rows is right and counts as right by (n+1)/(n+2).

    A temperature that only gave the mean confidence (n+1)/(n+2) would leave no doubt at all where margins are wide.
    """
    from scipy.optimize import minimize_scalar

    max_rows = 20_000
    target = (rows.total_weight + 1.0) / (rows.total_weight + 2.0)
    some = rows.part(max_rows)
    scale = rows.mean_gap
    if scale == 0.0:  # all logits are equal
        return 1.0

    def log_loss(log_t: float) -> float:
        log_odds = some.split(0.0, scale * math.exp(log_t))[0, 0]
        return some.average(softplus(np, log_odds) - target * log_odds)

    minimum = minimize_scalar(log_loss, bounds=(-20.0, 20.0), method="bounded", options={"xatol": 1e-6})
    return scale * math.exp(minimum.x)
