"""Least log-loss of γ and T with a number added to each class after the focal map: class weights taken out, or found.

    log p = log softmax(focal(logits / T, γ) + b)

b = -log w removes known class weights w. When fitted, b is shrunk towards 0 by a ridge worth about one row.
"""

from __future__ import annotations

import math
from functools import partial

import array_api_compat
import numpy as np
from scipy.optimize import Bounds, OptimizeResult, minimize

from refocal._arrays import (
    Array,
    Flags,
    Vector,
    as_floating,
    is_torch,
    namespace,
    row_blocks,
    to_numpy,
    without_warnings,
)
from refocal.engine.block import Block
from refocal.engine.dataset import Dataset
from refocal.engine.passes import Pass
from refocal.fitting.newton import newton
from refocal.fitting.solution import Solution, Status
from refocal.fitting.temperature import GAMMA_BOUNDS, MESSAGES
from refocal.maps.row import normalised, softmax_row
from refocal.maps.softmax import derivatives_of_row, focal_gaps


def fit_offset(
    dataset: Dataset, offset: Vector | None, gamma: float | None = None, temperature: float | None = None
) -> tuple[Solution, Vector]:
    """The point (γ, T) and the b of least log-loss; values that are given stay fixed.

    >>> rng = np.random.default_rng(0)
    >>> logits = 2.0 * rng.normal(size=(4000, 3))
    >>> labels = np.argmax(logits + np.log([1.0, 4.0, 1.0]) + rng.gumbel(size=logits.shape), axis=1)
    >>> solution, found = fit_offset(Block(logits, labels), None, gamma=0.0)
    >>> (found - found[0]).round(1)[:2], round(solution.temperature, 1)
    (array([0. , 1.4]), 1.0)
    """
    dataset.start()
    dataset.passes = 0
    without_offset = newton(dataset, fixed_gamma=gamma, fixed_temperature=temperature)
    first_offset = np.zeros(dataset.n_classes) if offset is None else offset
    start = _packed(without_offset.gamma, without_offset.temperature, first_offset)
    free = np.array([gamma is None, temperature is None, *[offset is None] * dataset.n_classes])
    if gamma is None:  # the log-loss is not convex in γ: several starts are compared on some of the rows
        compared_rows = 1_000
        others = [_packed(other_gamma, without_offset.temperature, first_offset) for other_gamma in (0.0, 2.0)]
        sample = dataset.part(compared_rows)
        minima = [_minimum(sample, candidate, free) for candidate in (start, *others)]
        start = min(minima, key=lambda minimum: float(minimum.fun)).x
    minimum = _minimum(dataset, start, free)
    # What was given keeps its digits.
    best_gamma = math.expm1(minimum.x[0]) if gamma is None else gamma
    best_temperature = math.exp(minimum.x[1]) if temperature is None else temperature
    status: Status = "converged" if minimum.success else "not converged"
    # Where the log-loss had no minimum in T before, and T has not moved since, it has none yet.
    if status == "converged" and temperature is None and math.isclose(best_temperature, without_offset.temperature):
        status = without_offset.status
    value = float(minimum.fun)
    return Solution(best_gamma, best_temperature, value, status, MESSAGES[status], dataset.passes), minimum.x[2:]


def _packed(gamma: float, temperature: float, offset: Vector) -> Vector:
    """X = (log(1+γ), log T, b) (2 + C,), which may move freely."""
    return np.concatenate([[math.log1p(gamma), math.log(temperature)], offset])


def _minimum(dataset: Dataset, start: Vector, free: Flags) -> OptimizeResult:
    """The x of least log-loss plus ridge, by scipy's L-BFGS-B; `fun` is the log-loss there.

    The search moves v, x = start + unit · v. The units of b make rare classes as easy to move as others: the curvature
    of the log-loss in bⱼ is about the share of class j.
    """
    total_weight = dataset.total_weight
    shares = dataset.reduce(Pass(_class_weight, np.add)) / total_weight
    unit = np.concatenate([[1.0, 1.0], 1.0 / np.sqrt(shares + 1.0 / total_weight)])
    ridge = np.concatenate([[0.0, 0.0], np.full(dataset.n_classes, 0.5 / total_weight)])
    ridge = np.where(free, ridge, 0.0)

    def objective(v: Vector) -> tuple[float, Vector]:
        x = start + unit * v
        log_loss, *gradient = dataset.reduce(Pass(partial(_sums, x=x), np.add)) / total_weight
        return log_loss + float(ridge @ x**2), (np.array(gradient) + 2.0 * ridge * x) * unit

    largest_log_temperature_change = 14.0
    low = np.full(len(start), -np.inf)
    low[0] = math.log1p(GAMMA_BOUNDS[0]) - start[0]
    low[1] = -largest_log_temperature_change
    high = np.full(len(start), np.inf)
    high[0] = math.log1p(GAMMA_BOUNDS[1]) - start[0]
    high[1] = largest_log_temperature_change
    bounds = Bounds(np.where(free, low, 0.0), np.where(free, high, 0.0))
    in_double = not isinstance(dataset, Block) or _has_double(dataset.logits)
    rounding = 0.0 if in_double else 10.0 * dataset.precision
    options = {"maxiter": 300, "maxcor": 20, "gtol": max(1e-7, rounding), "ftol": max(1e-12, rounding)}
    result = minimize(objective, np.zeros_like(start), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    # A line search may find no further step among the roundings of the minimum: a gradient this small is one.
    settled = 1e-4
    result.success = result.success or float(np.max(np.abs(result.jac[free]), initial=0.0)) <= settled
    result.x = start + unit * result.x
    result.fun -= float(ridge @ result.x**2)
    return result


def _has_double(logits: Array) -> bool:
    """Whether the array's library and device compute in float64: JAX may not, and some devices of torch do not."""
    return isinstance(logits, np.ndarray) or (is_torch(logits) and logits.device.type in ("cpu", "cuda", "xpu"))


def _class_weight(block: Block) -> Vector:
    """The weight of each class's rows."""
    return np.bincount(to_numpy(block.labels), weights=block.weight, minlength=block.n_classes).astype(np.float64)


@without_warnings
def _sums(block: Block, x: Vector) -> Vector:
    """A block's log-loss and its gradient in x = (log(1+γ), log T, b), summed over the rows.

    With p the probabilities of a row and e the unit vector of its label, the gradient in b is p - e.
    """
    max_entries = 1 << 18  # of the logits that are processed at a time
    gamma = math.expm1(x[0])
    temperature = math.exp(x[1])
    total = np.zeros(1 + len(x))
    for rows in row_blocks(block.n_rows, block.n_classes, entries=max_entries):
        logits, _ = as_floating(block.logits[rows, :], "logits", "fit")
        xp = namespace(logits)
        if _has_double(logits):  # a line search needs more digits than float32 leaves of a small gain
            logits = xp.astype(logits, xp.float64, copy=False)
        labels = block.labels[rows]
        row = softmax_row(xp, logits, temperature)
        offset = xp.asarray(x[2:], dtype=logits.dtype, device=array_api_compat.device(logits))
        log_p = normalised(xp, focal_gaps(xp, row, gamma) + offset)
        derivatives = derivatives_of_row(xp, row, log_p, labels, gamma, temperature)
        terms = xp.stack([derivatives.log_p, derivatives.gradient[..., 0], derivatives.gradient[..., 1]])
        weight = np.ones(len(labels)) if block.weight is None else block.weight[rows]
        value, gradient_gamma, gradient_beta = -to_numpy(terms).astype(np.float64) @ weight
        total[0] += value
        total[1] += (1.0 + gamma) * gradient_gamma
        total[2] += -gradient_beta / temperature
        total[3:] += weight @ to_numpy(xp.exp(log_p))
    total[3:] -= _class_weight(block)
    return total
