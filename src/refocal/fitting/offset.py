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

# The γ to start from, beside that of least log-loss without an offset: the loss is not convex in γ.
STARTS = (0.0, 2.0)
# The number of rows on which they are compared.
PART = 1000
ENTRIES = 1 << 18  # the number of logits processed at a time


# How far log T may move from its optimum without an offset, in either direction.
REACH = 14.0
OPTIONS = {"maxiter": 300, "maxcor": 20}
# The gradient and the relative gain at which a fit ends, and their least values in single precision, in roundings.
SMALL_GRADIENT, SMALL_GAIN, ROUNDINGS = 1e-7, 1e-12, 10.0
# A gradient this small, in log(1+γ), log T and b, is that of a minimum.
SETTLED = 1e-4


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
    without = newton(dataset, fixed_gamma=gamma, fixed_temperature=temperature)
    first = _packed(without.gamma, without.temperature, np.zeros(dataset.n_classes) if offset is None else offset)
    free = np.array([gamma is None, temperature is None, *[offset is None] * dataset.n_classes])
    starts = [first]
    if gamma is None:  # the log-loss is not convex in γ
        starts += [_packed(each, without.temperature, first[2:]) for each in STARTS]
        some = dataset.part(PART)
        starts = [min((_minimum(some, start, free) for start in starts), key=lambda end: float(end.fun)).x]
    end = _minimum(dataset, starts[0], free)
    # What was given keeps its digits.
    point = (
        math.expm1(end.x[0]) if gamma is None else gamma,
        math.exp(end.x[1]) if temperature is None else temperature,
    )
    status: Status = "converged" if end.success else "not converged"
    return Solution(*point, float(end.fun), status, MESSAGES[status], dataset.passes), end.x[2:]


def _packed(gamma: float, temperature: float, offset: Vector) -> Vector:
    """(log(1+γ), log T, b), which may move freely."""
    return np.concatenate([[math.log1p(gamma), math.log(temperature)], offset])


def _minimum(dataset: Dataset, start: Vector, free: Flags) -> OptimizeResult:
    """L-BFGS, with b in units that make rare classes as easy to move as others; `fun` is the log-loss at the end."""
    shares = dataset.reduce(Pass(_class_weight, np.add)) / dataset.total_weight
    unit = np.concatenate([[1.0, 1.0], 1.0 / np.sqrt(shares + 1.0 / dataset.total_weight)])
    ridge = np.where(free, np.concatenate([[0.0, 0.0], np.full(dataset.n_classes, 0.5 / dataset.total_weight)]), 0.0)

    def objective(moved: Vector) -> tuple[float, Vector]:
        x = start + unit * moved
        loss, *gradient = dataset.reduce(Pass(partial(_sums, x=x), np.add)) / dataset.total_weight
        return loss + float(ridge @ x**2), (np.array(gradient) + 2.0 * ridge * x) * unit

    low, high = np.full(len(start), -np.inf), np.full(len(start), np.inf)
    low[:2] = math.log1p(GAMMA_BOUNDS[0]) - start[0], -REACH
    high[:2] = math.log1p(GAMMA_BOUNDS[1]) - start[0], REACH
    bounds = Bounds(np.where(free, low, 0.0), np.where(free, high, 0.0))
    in_double = not isinstance(dataset, Block) or _has_double(dataset.logits)
    rounding = 0.0 if in_double else ROUNDINGS * dataset.precision
    options = OPTIONS | {"gtol": max(SMALL_GRADIENT, rounding), "ftol": max(SMALL_GAIN, rounding)}
    end = minimize(objective, np.zeros_like(start), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    # A line search may find no further step among the roundings of the minimum.
    end.success = end.success or float(np.max(np.abs(end.jac[free]), initial=0.0)) <= SETTLED
    end.x = start + unit * end.x
    end.fun -= float(ridge @ end.x**2)
    return end


def _has_double(logits: Array) -> bool:
    """Whether the array's library and device compute in float64: JAX may not, and some devices of torch do not."""
    return isinstance(logits, np.ndarray) or (is_torch(logits) and logits.device.type in ("cpu", "cuda", "xpu"))


def _class_weight(block: Block) -> Vector:
    """The weight of each class's rows."""
    return np.bincount(to_numpy(block.labels), weights=block.weight, minlength=block.n_classes).astype(np.float64)


@without_warnings
def _sums(block: Block, x: Vector) -> Vector:
    """A block's log-loss and its gradient in (log(1+γ), log T, b), summed over the rows."""
    gamma, temperature = math.expm1(x[0]), math.exp(x[1])
    total = np.zeros(1 + len(x))
    for rows in row_blocks(block.n_rows, block.n_classes, entries=ENTRIES):
        logits, _ = as_floating(block.logits[rows, :], "logits", "fit")
        if _has_double(logits):  # a line search needs more digits than float32 leaves of a small gain
            logits = namespace(logits).astype(logits, namespace(logits).float64, copy=False)
        xp, labels = namespace(logits), block.labels[rows]
        row = softmax_row(xp, logits, temperature)
        offset = xp.asarray(x[2:], dtype=logits.dtype, device=array_api_compat.device(logits))
        log_p = normalised(xp, focal_gaps(xp, row, gamma) + offset)
        found = derivatives_of_row(xp, row, log_p, labels, gamma, temperature)
        by_row = to_numpy(xp.stack([found.log_p, found.gradient[..., 0], found.gradient[..., 1]])).astype(np.float64)
        weight = np.ones(len(labels)) if block.weight is None else block.weight[rows]
        value, slope_g, slope_b = -by_row @ weight
        total[:3] += value, (1.0 + gamma) * slope_g, -slope_b / temperature
        total[3:] += weight @ to_numpy(xp.exp(log_p))
    total[3:] -= _class_weight(block)
    return total
