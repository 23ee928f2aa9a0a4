"""The fit of the affine maps: least log-loss plus a ridge on the distance from temperature scaling, W = I and b = 0.

Whatever the number of classes, too few rows lead back to temperature scaling and not away from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import array_api_compat
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from refocal._arrays import (
    Array,
    Vector,
    as_floating,
    in_library_of,
    namespace,
    on_gpu,
    row_blocks,
    to_numpy,
    without_warnings,
)
from refocal.engine import Block, Dataset, Pass
from refocal.engine.array_engine import GPU_PART
from refocal.maps.affine import features, transform

# Rows are walked through in blocks of so many numbers: large enough for matrix products, small enough for memory.
BLOCK = 1 << 20
MAX_STEPS = 200
# The scale of the parameters, for fits that only help to choose, is taken from about so many rows of a block.
SCALE_ROWS = 2_000
# Gradient, in units of the scaled parameters, and relative gain of a step at which a fit ends; and the gain for fits
# that only help to choose, which then lose 1e-5 of log-loss at most and take half the time.
SMALL_GRADIENT, SMALL_GAIN, COARSE_GAIN = 1e-5, 1e-8, 1e-6
# The same for fits in double precision that end where rounding does, with so many steps.
EXACT_GRADIENT, EXACT_GAIN, EXACT_STEPS = 1e-9, 1e-15, 1_000


class Penalty(NamedTuple):
    """What a unit of squared distance from temperature scaling costs, beside the mean log-loss."""

    diagonal: float
    off_diagonal: float
    intercept: float


class Affine(NamedTuple):
    """W as a matrix (C, C) or, for a diagonal one, a vector (C,); b; their log-loss, and how they were found."""

    weights: NDArray[Any]
    intercept: NDArray[Any]
    log_loss: float
    converged: bool = True
    passes: int = 0


def fit_affine(
    dataset: Dataset,
    kind: str,
    temperature: float,
    penalty: Penalty,
    *,
    matrix: bool,
    start: Affine | None = None,
    gain: float = SMALL_GAIN,
    exact: bool = False,
) -> Affine:
    """The affine map of least penalised log-loss, from `start` or temperature scaling on; a convex problem.

    A pass over the rows sums up the loss and its gradient, a number for each parameter; `exact`: in double precision,
    until nothing is gained, so that the order of the rows does not matter.
    """
    ridge = _ridge(penalty, dataset.n_classes, matrix)
    z: dict[str, Any] = {"kind": kind, "temperature": temperature, "total_weight": dataset.total_weight}
    # Some rows give the scale of a fit that only helps to choose; another path would end another fit elsewhere.
    n_rows = SCALE_ROWS if gain > SMALL_GAIN else None
    curvature = dataset.reduce(Pass(partial(_curvature, matrix=matrix, n_rows=n_rows, **z), np.add))

    def loss(parameters: Vector) -> tuple[float, Vector]:
        task = partial(_loss, parameters=parameters, matrix=matrix, exact=exact, **z)
        found = dataset.reduce(Pass(task, np.add))
        return float(found[0]), found[1:]

    ends = {"maxiter": MAX_STEPS, "gtol": SMALL_GRADIENT, "ftol": gain}
    if exact:
        ends = {"maxiter": EXACT_STEPS, "gtol": EXACT_GRADIENT, "ftol": EXACT_GAIN}
    return _minimised(loss, curvature + 1e-12, ridge, dataset.n_classes, matrix, start, ends)


def _minimised(
    loss: Callable[[Vector], tuple[float, Vector]],
    curvature: Vector,
    ridge: Vector,
    n_classes: int,
    matrix: bool,
    start: Affine | None,
    ends: dict[str, float],
) -> Affine:
    """Least loss plus ridge.

    The parameters are scaled by the diagonal of the Hessian, after which L-BFGS needs some ten to a hundred passes.
    """
    identity = np.eye(n_classes) if matrix else np.ones(n_classes)
    scale = 1.0 / np.sqrt(curvature + 2.0 * ridge)

    def objective(scaled: Vector) -> tuple[float, Vector]:
        parameters = scaled * scale
        found, gradient = loss(parameters)
        found += float(ridge @ parameters**2)
        return found, (gradient + 2.0 * ridge * parameters) * scale

    first = np.zeros_like(scale)
    if start is not None:
        first = np.concatenate([(start.weights - identity).ravel(), start.intercept]) / scale
    end = minimize(objective, first, jac=True, method="L-BFGS-B", options={"maxcor": 10, **ends})
    weights, intercept = _unpack(end.x * scale, n_classes, matrix)
    log_loss = float(end.fun - ridge @ (end.x * scale) ** 2)
    return Affine(weights + identity, intercept, log_loss, bool(end.success), int(end.nfev))


def _ridge(penalty: Penalty, n_classes: int, matrix: bool) -> Vector:
    intercept = np.full(n_classes, penalty.intercept)
    if not matrix:
        return np.concatenate([np.full(n_classes, penalty.diagonal), intercept])
    block = np.full((n_classes, n_classes), penalty.off_diagonal)
    np.fill_diagonal(block, penalty.diagonal)
    return np.concatenate([block.ravel(), intercept])


def _unpack(parameters: Vector, n_classes: int, matrix: bool) -> tuple[Vector, Vector]:
    weights, intercept = parameters[:-n_classes], parameters[-n_classes:]
    return (weights.reshape(n_classes, n_classes) if matrix else weights), intercept


def features_of(block: Block, kind: str, temperature: float) -> Array:
    """Z of a block, in float32 or float64; kept with the block for the passes to come."""
    known = (kind, temperature)
    if known not in block.memo:
        block.memo[known] = _features(block.logits, kind, temperature)
    return block.memo[known]


@without_warnings
def _features(logits: Array, kind: str, temperature: float) -> Array:
    x, _ = as_floating(logits, "logits", "fit")
    return features(namespace(x), x, kind, temperature)


def with_features(block: Block, rows: NDArray[np.bool_], kind: str, temperature: float) -> Block:
    """Some of the rows with nothing but Z, which was computed for all: enough for `fit_affine`; all of it on a GPU."""
    if on_gpu(block.logits):
        return block.take(rows)
    z = features_of(block, kind, temperature)[rows]
    some = Block(z, block.labels[rows], None if block.weight is None else block.weight[rows])
    some.memo[kind, temperature] = z
    return some


def _parts(
    block: Block, kind: str, temperature: float, total_weight: float, step: int = 1
) -> Iterator[tuple[Any, Array, Array, Array]]:
    """Every so-manieth row, some at a time: the functions of their library, Z, labels, and shares of all weight.

    On a GPU, where memory is dear and arithmetic is not, Z is computed anew for every pass.
    """
    there = on_gpu(block.logits)
    z = block.logits[::step] if there else features_of(block, kind, temperature)[::step]
    share = np.full(block.n_rows, 1.0 / total_weight) if block.weight is None else block.weight / total_weight
    labels, share = block.labels[::step], step * share[::step]
    for rows in row_blocks(len(z), block.n_classes, entries=GPU_PART if there else BLOCK):
        some = _features(z[rows], kind, temperature) if there else z[rows]
        yield namespace(some), some, labels[rows], in_library_of(some, share[rows])


def _loss(
    block: Block, parameters: Vector, matrix: bool, exact: bool, kind: str, temperature: float, total_weight: float
) -> Vector:
    """A block's part of the log-loss, and of its gradient in (W - I, b)."""
    if not matrix and block.plan.has_affine:
        return block.affine_sums(kind, temperature, parameters, exact=exact) / total_weight
    loss, slope, offset = 0.0, 0.0, 0.0
    for xp, z, y, w in _parts(block, kind, temperature, total_weight):
        dtype = xp.float64 if exact else z.dtype
        some = xp.astype(z, dtype, copy=False)
        device = array_api_compat.device(some)
        weights, intercept = (
            xp.asarray(part, dtype=dtype, device=device) for part in _unpack(parameters, z.shape[1], matrix)
        )
        p = some + transform(some, weights, intercept)
        p -= xp.max(p, axis=1, keepdims=True)
        index = xp.arange(len(y), device=device)
        at_label = xp.astype(p[index, y], xp.float64)
        xp.exp(p, out=p)
        total = xp.sum(p, axis=1)
        loss += float(w @ (xp.log(xp.astype(total, xp.float64)) - at_label))
        p *= xp.astype(w / total, dtype)[:, None]
        p[index, y] -= xp.astype(w, dtype)
        slope = slope + xp.astype(p.T @ some if matrix else xp.einsum("ij,ij->j", p, some), xp.float64)
        offset = offset + xp.astype(xp.sum(p, axis=0), xp.float64)
    return np.concatenate([[loss], to_numpy(slope).ravel(), to_numpy(offset)])


def _curvature(
    block: Block, matrix: bool, n_rows: int | None, kind: str, temperature: float, total_weight: float
) -> Vector:
    """A block's part of the diagonal of the log-loss's Hessian at temperature scaling, of `n_rows` or all rows."""
    step = 1 if n_rows is None else max(1, block.n_rows // n_rows)
    slope, offset = 0.0, 0.0
    for xp, z, _, w in _parts(block, kind, temperature, total_weight, step):
        p = xp.exp(z - xp.max(z, axis=1, keepdims=True))
        p /= xp.sum(p, axis=1, keepdims=True)
        p = p * (1.0 - p) * xp.astype(w, z.dtype)[:, None]
        slope = slope + xp.astype(p.T @ z**2 if matrix else xp.einsum("ij,ij->j", p, z**2), xp.float64)
        offset = offset + xp.astype(xp.sum(p, axis=0), xp.float64)
    return np.concatenate([to_numpy(slope).ravel(), to_numpy(offset)])
