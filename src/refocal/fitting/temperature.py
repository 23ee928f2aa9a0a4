"""The temperature of least log-loss by Newton's method, and what it shares with the search over (γ, T).

The search moves in log T. The mean log-loss of softmax(β · logits) is convex in β = 1/T, so it has one minimum.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from refocal._arrays import as_floating, namespace, to_numpy
from refocal._validation import LARGE, SMALL
from refocal.engine.block import Block
from refocal.engine.cache import CacheKey, NamedKey
from refocal.engine.dataset import Dataset
from refocal.errors import DataError
from refocal.fitting.solution import Solution, Status
from refocal.fitting.solver import Derivatives, Newton, Numbers, Tolerance
from refocal.maps.row import softplus

# The most Newton steps of one search, over T alone or over (γ, T).
MAX_STEPS = 100
# The most that one of them changes log T or log(1+γ) by.
LONGEST_STEP = 1.0
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


TEMPERATURE: CacheKey[Solution] = NamedKey("temperature")
"""Under what the temperature of least log-loss is cached."""

SAMPLES: CacheKey[list[Block]] = NamedKey("samples")
"""Under what the samples of the rows are cached on which a search begins."""


class SearchAccuracy(NamedTuple):
    """When a search ends, and how exactly it computes.

    Newton's method converges quadratically: after a step of relative size ε the error is about ε².
    """

    last_step: float
    """The step in log T and log(1+γ) after which a search ends."""
    rough: bool
    """Whether six digits of the log-loss suffice, in single precision."""

    def tolerance(self, dataset: Dataset) -> Tolerance:
        """When the solver ends; a mean over the rows is wrong by some 20 machine epsilons."""
        rough_precision = float(np.finfo(np.float32).eps)
        precision = max(dataset.precision, rough_precision) if self.rough else dataset.precision
        return Tolerance(gain=0.0, rounding=20.0 * precision, max_steps=MAX_STEPS, step=self.last_step)


FULL = SearchAccuracy(1e-5, rough=False)
ROUGH = SearchAccuracy(3e-3, rough=True)
DRAFT = SearchAccuracy(0.05, rough=True)


class LogitScale(NamedTuple):
    """Distances between the logits of a row: a starting temperature, and the range of those that are searched."""

    typical: float
    lowest: float
    highest: float


class TemperatureMinimum(NamedTuple):
    """Where a search for T ended, the log-loss there, and how."""

    temperature: float
    value: float
    status: Status


def newton_temperature(dataset: Dataset) -> Solution:
    """The temperature of least log-loss; computed once for each dataset."""
    cached = dataset.cache.get(TEMPERATURE)
    if cached is not None:
        return cached
    scale = scale_of(dataset)
    if scale is None:
        minimum = TemperatureMinimum(1.0, dataset.means("temperature", 1.0)[0], "flat")
    else:
        start = first_temperature(dataset, scale)
        draft = _descend(dataset, start, scale, ROUGH)
        minimum = _descend(dataset, draft.temperature, scale, FULL)
    status = minimum.status
    solution = Solution(0.0, minimum.temperature, minimum.value, status, MESSAGES[status], dataset.passes)
    return dataset.cache.keep(TEMPERATURE, solution)


def _descend(dataset: Dataset, start: float, scale: LogitScale, accuracy: SearchAccuracy) -> TemperatureMinimum:
    """The T of least log-loss, by Newton's method in log T from a first T."""
    separable_loss = 1e-9  # a log-loss this small means separable rows, for which T goes to 0
    solver = Newton(
        partial(_log_loss, dataset, accuracy.rough),
        accuracy.tolerance(dataset),
        lower=(math.log(scale.lowest),),
        upper=(math.log(scale.highest),),
        longest_step=LONGEST_STEP,
    )
    state = solver.init(solver.evaluate((math.log(start),)))
    while not solver.terminate(state) and state.at.value >= separable_loss:
        state = solver.step(state)
    status: Status = "converged" if state.has_converged else "not converged"
    if state.at_bound or state.at.value < separable_loss:
        status = "at a bound"
    return TemperatureMinimum(math.exp(state.at.point[0]), state.at.value, status)


def _log_loss(dataset: Dataset, rough: bool, u: Numbers) -> Derivatives:
    """One pass over the rows: the log-loss at u = log T with its first and second derivative in u, (1,) and (1, 1).

    By the chain rule from β = 1/T: ∂ᵤ = -β ∂β, ∂ᵤᵤ = β² ∂ββ - ∂ᵤ.
    """
    beta = math.exp(-u[0])
    value, b, bb = dataset.means("temperature", beta, rough=rough)
    first = -beta * b
    return value, (first,), ((beta**2 * bb - first,),)


def first_temperature(dataset: Dataset, scale: LogitScale) -> float:
    """A first T: the minimum of some of the rows, or else of the scale of the logits.

    Between networks the typical distance over the best T is about 1 + log C: the more classes, the further the best of
    them is from the others. Begun at the distance itself, a search takes a third more steps.
    """
    temperature = scale.typical / (1.0 + math.log(dataset.n_classes))
    if dataset.n_rows < 2 * FIRST_ROWS:
        return temperature
    for rows in samples_of(dataset):
        if rows.mean_gap > 0.0:
            minimum = _descend(rows, temperature, scale, DRAFT)
            if minimum.status == "converged":
                temperature = minimum.temperature
    return temperature


def samples_of(dataset: Dataset) -> list[Block]:
    """The samples of the rows on which a search begins, from a few rows to a fifth of all; kept with the dataset."""
    share = 0.2
    divided_again = 6_000  # a sample of at least as many rows has smaller ones before it
    cached = dataset.cache.get(SAMPLES)
    if cached is not None:
        return cached
    sample = dataset.part(max(FIRST_ROWS, int(share * dataset.n_rows)))
    smaller = samples_of(sample) if sample.n_rows >= divided_again else [dataset.part(FIRST_ROWS)]
    return dataset.cache.keep(SAMPLES, [*smaller, sample])


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
