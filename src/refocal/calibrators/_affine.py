"""The fit of the affine maps: least log-loss plus a ridge on the distance from temperature scaling, W = I and b = 0.

Whatever the number of classes, too few rows lead back to temperature scaling and not away from it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from refocal._arrays import as_floating, row_blocks
from refocal.maps.affine import features, transform
from refocal.search import StreamedProblem
from refocal.search.rows import Block

Vector = NDArray[np.float64]

# Rows are walked through in blocks of so many numbers: large enough for matrix products, small enough for memory.
BLOCK = 1 << 20
MAX_STEPS = 200
# Gradient, in units of the scaled parameters, and relative gain of a step at which a fit ends; and the gain for fits
# that only help to choose, which then lose 1e-5 of log-loss at most and take half the time.
SMALL_GRADIENT, SMALL_GAIN, COARSE_GAIN = 1e-5, 1e-8, 1e-6


class Penalty(NamedTuple):
    """What a unit of squared distance from temperature scaling costs, beside the mean log-loss."""

    diagonal: float
    off_diagonal: float
    intercept: float


class Affine(NamedTuple):
    """W as a matrix (C, C) or, for a diagonal one, a vector (C,); b; whether and in how many passes they were found."""

    weights: NDArray[Any]
    intercept: NDArray[Any]
    converged: bool = True
    passes: int = 0


def fit_affine(
    z: NDArray[Any],
    labels: NDArray[np.int64],
    weight: Vector | None,
    penalty: Penalty,
    *,
    matrix: bool,
    start: Affine | None = None,
    gain: float = SMALL_GAIN,
) -> Affine:
    """The affine map of least penalised log-loss, from `start` or temperature scaling on; a convex problem."""
    share = np.full(len(z), 1.0 / len(z)) if weight is None else weight / weight.sum()
    ridge = _ridge(penalty, z.shape[1], matrix)

    def loss(parameters: Vector) -> tuple[float, Vector]:
        return _loss(z, labels, share, parameters, matrix)

    return _minimised(loss, _curvature(z, share, matrix), ridge, z.shape[1], matrix, start, gain)


def fit_affine_in_blocks(
    problem: StreamedProblem, kind: str, temperature: float, penalty: Penalty, *, matrix: bool
) -> Affine:
    """The same for rows in blocks: a walk sums up the loss and its gradient, a number for each parameter."""
    scaled: dict[str, Any] = {"kind": kind, "temperature": temperature, "matrix": matrix}
    ridge = _ridge(penalty, problem.n_classes, matrix)
    curvature = problem.mean_of_blocks(partial(_block_curvature, **scaled))

    def loss(parameters: Vector) -> tuple[float, Vector]:
        value, *gradient = problem.mean_of_blocks(partial(_block_loss, parameters=parameters, **scaled))
        return float(value), np.array(gradient)

    return _minimised(loss, curvature, ridge, problem.n_classes, matrix, None, SMALL_GAIN)


def _minimised(
    loss: Callable[[Vector], tuple[float, Vector]],
    curvature: Vector,
    ridge: Vector,
    n_classes: int,
    matrix: bool,
    start: Affine | None,
    gain: float,
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
    options = {"maxiter": MAX_STEPS, "gtol": SMALL_GRADIENT, "ftol": gain, "maxcor": 10}
    end = minimize(objective, first, jac=True, method="L-BFGS-B", options=options)
    weights, intercept = _unpack(end.x * scale, n_classes, matrix)
    return Affine(weights + identity, intercept, bool(end.success), int(end.nfev))


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


def _block_loss(block: Block, parameters: Vector, kind: str, temperature: float, matrix: bool) -> Vector:
    z, weight = _block_features(block, kind, temperature)
    loss, gradient = _loss(z, block.labels, weight, parameters, matrix)
    return np.concatenate([[loss], gradient])


def _block_curvature(block: Block, kind: str, temperature: float, matrix: bool) -> Vector:
    return _curvature(*_block_features(block, kind, temperature), matrix)


def _block_features(block: Block, kind: str, temperature: float) -> tuple[NDArray[Any], Vector]:
    """Z of a block, in float32 or float64, and the weights of its rows."""
    values = as_floating(block.values, "logits", "fit")[0]
    return features(np, values, kind, temperature), np.ones(len(values)) if block.weight is None else block.weight


def _loss(
    z: NDArray[Any], labels: NDArray[np.int64], share: Vector, parameters: Vector, matrix: bool
) -> tuple[float, Vector]:
    """Log-loss, and its gradient in (W - I, b)."""
    weights, intercept = (part.astype(z.dtype) for part in _unpack(parameters, z.shape[1], matrix))
    loss, slope, offset = 0.0, np.zeros(weights.shape), np.zeros(z.shape[1])
    for rows in row_blocks(len(z), z.shape[1], entries=BLOCK):
        block, y, w = z[rows], labels[rows], share[rows]
        p = block + transform(block, weights, intercept)
        p -= p.max(axis=1, keepdims=True)
        index = np.arange(len(y))
        at_label = p[index, y].astype(np.float64)
        np.exp(p, out=p)
        total = p.sum(axis=1)
        loss += float(w @ (np.log(total.astype(np.float64)) - at_label))
        p *= (w / total).astype(z.dtype)[:, None]
        p[index, y] -= w.astype(z.dtype)
        slope += p.T @ block if matrix else np.einsum("ij,ij->j", p, block)
        offset += p.sum(axis=0)
    return loss, np.concatenate([slope.ravel(), offset])


def _curvature(z: NDArray[Any], share: Vector, matrix: bool) -> Vector:
    """The diagonal of the log-loss's Hessian at temperature scaling."""
    slope, offset = np.zeros((z.shape[1], z.shape[1]) if matrix else z.shape[1]), np.zeros(z.shape[1])
    for rows in row_blocks(len(z), z.shape[1], entries=BLOCK):
        block = z[rows]
        p = np.exp(block - block.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        p = p * (1.0 - p) * share[rows].astype(z.dtype)[:, None]
        slope += p.T @ block**2 if matrix else np.einsum("ij,ij->j", p, block**2)
        offset += p.sum(axis=0)
    return np.concatenate([slope.ravel(), offset]) + 1e-12
