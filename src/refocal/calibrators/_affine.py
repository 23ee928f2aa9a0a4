"""The fit of the affine maps: least log-loss plus a ridge on the distance from temperature scaling, W = I and b = 0.

Whatever the number of classes, too few rows lead back to temperature scaling and not away from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, Vector, as_floating, in_library_of, namespace, row_blocks, to_numpy, without_warnings
from refocal.engine import Block, Dataset, Pass, array_engine
from refocal.fitting.lbfgs import Ends, minimise
from refocal.maps.affine import features
from refocal.maps.chain import Step
from refocal.maps.steps import Affine, KeepTop

# The numbers of a block of rows: large enough for matrix products, small enough for memory.
BLOCK = 1 << 20
# About how many rows of a block give the scale of a matrix, in fits that only help to choose, and that of a vector on a
# GPU.
SCALE_ROWS, GPU_SCALE_ROWS = 2_000, 20_000
# What a step promises, relative to the log-loss, at which a fit ends; for fits that only help to choose, which then
# lose 1e-5 of log-loss at most; and for fits in double precision that end where rounding does.
TIGHT, COARSE, EXACT = Ends(1e-8, 1e-7, 200), Ends(1e-6, 1e-7, 200), Ends(1e-18, 1e-13, 1_000)
# With fewer classes a copy of the rows in which each class comes as a whole takes less time than it saves.
FEW_CLASSES = 50
# The least curvature.
LEAST = 1e-12


class Scaling(NamedTuple):
    """W as a matrix (C, C) or, for a diagonal one, a vector (C,); b; their log-loss, and how they were found."""

    kind: str
    temperature: float
    weights: NDArray[Any]
    intercept: NDArray[Any]
    log_loss: float
    converged: bool = True
    passes: int = 0

    def step(self, *, order_preserving: bool = False) -> Step:
        """The step that applies it. Weights are rounded to float32: more digits mean nothing, and files stay small."""
        weights, intercept = (np.asarray(part, dtype=np.float32) for part in (self.weights, self.intercept))
        step = Affine(self.kind, self.temperature, weights, intercept)
        return KeepTop((step,)) if order_preserving else step


def fit_affine(
    dataset: Dataset,
    kind: str,
    temperature: float,
    ridge: Vector,
    *,
    start: Scaling | None = None,
    ends: Ends = TIGHT,
) -> Scaling:
    """The affine map of least penalised log-loss, from `start` or temperature scaling on; a convex problem.

    `ridge` is what a unit of squared distance from temperature scaling costs beside the mean log-loss, for each number
    of W, a matrix or its diagonal, and of b.

    A pass over the rows sums up the loss and its gradient, a number for each parameter; with `EXACT` ends in double
    precision, until nothing is gained, so that the order of the rows does not matter.
    """
    n = dataset.n_classes
    matrix = len(ridge) > 2 * n
    identity = np.eye(n) if matrix else np.ones(n)
    first = np.zeros(len(ridge))
    if start is not None:
        first = np.concatenate([(start.weights - identity).ravel(), start.intercept])
    z: dict[str, Any] = {"kind": kind, "temperature": temperature, "total_weight": dataset.total_weight}

    def sums(parameters: Vector, *, bends: bool = False) -> Vector:
        given = z | {"parameters": parameters, "exact": ends is EXACT}
        task = partial(_loss, **given) if matrix else partial(_vector_sums, bends=bends, **given)
        return np.asarray(dataset.reduce(Pass(task, np.add)))

    here = sums(first, bends=True)
    if matrix:
        # Some rows give the scale of a fit that only helps to choose; another path would end another fit elsewhere.
        of_rows = partial(_curvature, n_rows=SCALE_ROWS if ends is COARSE else None, **z)
        curvature = dataset.reduce(Pass(of_rows, np.add)) + 2.0 * ridge + LEAST
    else:
        ww, wb, bb = here[1 + 2 * n :].reshape(3, n)
        ww, bb = ww + 2.0 * ridge[:n] + LEAST, bb + 2.0 * ridge[n:] + LEAST

    def objective(parameters: Vector) -> tuple[float, Vector]:
        found = here if parameters is first else sums(parameters)
        value, slope = float(found[0]), found[1 : 1 + len(ridge)]
        return value + float(ridge @ parameters**2), slope + 2.0 * ridge * parameters

    def solve(slope: Vector) -> Vector:
        """The slope divided by the diagonal of a matrix's curvature; of a vector by the curvature of each class."""
        if matrix:
            return np.asarray(slope / curvature)
        # A number added to all intercepts changes nothing but the ridge: their mean stays 0.
        (w, b), determinant = slope.reshape(2, n), ww * bb - wb * wb
        b = b - b.mean()
        intercept = (ww * b - wb * w) / determinant
        return np.concatenate([(bb * w - wb * b) / determinant, intercept - intercept.mean()])

    end = minimise(objective, first, solve, ends)
    weights, intercept = end.point[:-n].reshape(identity.shape), end.point[-n:]
    log_loss = end.value - float(ridge @ end.point**2)
    return Scaling(kind, temperature, weights + identity, intercept, log_loss, end.converged, end.passes)


def features_of(block: Block, kind: str, temperature: float) -> Array:
    """Z of a block, in float32 or float64; kept with the block for the passes to come."""
    known = (kind, temperature)
    if known not in block.memo:
        block.memo[known] = _features(block.logits, kind, temperature)
    return block.memo[known]


@without_warnings
def _features(logits: Array, kind: str, temperature: float) -> Array:
    x, _ = as_floating(logits, "logits", "fit")
    if not isinstance(x, np.ndarray):
        return features(namespace(x), x, kind, temperature)
    out = np.empty(x.shape, dtype=x.dtype)
    for rows in row_blocks(x.shape[0], x.shape[1], entries=array_engine.CACHE_PART):
        # Sums over few classes are slow within a row.
        some = np.asfortranarray(x[rows]) if x.shape[1] < FEW_CLASSES else x[rows]
        out[rows] = features(np, some, kind, temperature)
    return out


def with_features(block: Block, rows: Any, kind: str, temperature: float) -> Block:
    """Some of the rows with only Z, which was computed for all rows: enough for `fit_affine`; all of it on a GPU."""
    if block.on_gpu:
        return block.take(rows)
    z = features_of(block, kind, temperature)
    z = z[rows] if isinstance(rows, slice) else np.take(z, rows, axis=0)  # in a fifth of the time of an index
    some = Block(z, block.labels[rows], None if block.weight is None else block.weight[rows])
    some.memo[kind, temperature] = z
    return some


def _parts(
    block: Block, kind: str, temperature: float, total_weight: float, step: int = 1
) -> Iterator[tuple[Any, Array, Array, Array]]:
    """Every `step`-th row, in blocks: the functions of their library, Z, labels, and shares of all weight.

    On a GPU, where memory is dear and arithmetic is not, Z is computed anew for every pass.
    """
    there = block.on_gpu
    z = block.logits[::step] if there else features_of(block, kind, temperature)[::step]
    labels, share = block.labels[::step], step * block.weights[::step] / total_weight
    for rows in row_blocks(len(z), block.n_classes, entries=array_engine.GPU_PART if there else BLOCK):
        some = _features(z[rows], kind, temperature) if there else z[rows]
        yield namespace(some), some, labels[rows], in_library_of(some, share[rows])


def _vector_sums(
    block: Block, parameters: Vector, exact: bool, bends: bool, kind: str, temperature: float, total_weight: float
) -> Vector:
    """A block's part of the log-loss, of its gradient in (W - I, b) and, with `bends`, of its curvature."""
    around = parameters + np.repeat([1.0, 0.0], block.n_classes)
    if not block.on_gpu:
        rows = Block(features_of(block, kind, temperature), block.labels, block.weight)
        return rows.sums("vector", around, rough=not exact) / total_weight
    if not block.plan.has_affine:
        return _array_sums(block, around, 1, kind, temperature, total_weight)
    found = block.affine_sums(kind, temperature, parameters, exact=exact) / total_weight
    if not bends:
        return found
    step = max(1, block.n_rows // GPU_SCALE_ROWS)
    return np.concatenate([found, _array_sums(block, around, step, kind, temperature, total_weight)[len(found) :]])


def _array_sums(block: Block, around: Vector, step: int, kind: str, temperature: float, total_weight: float) -> Vector:
    """The same by array functions, from every `step`-th row."""
    parts = _parts(block, kind, temperature, total_weight, step)
    return np.asarray(sum(to_numpy(array_engine.vector(z, y, w, around)) for _, z, y, w in parts))


def _loss(block: Block, parameters: Vector, exact: bool, kind: str, temperature: float, total_weight: float) -> Vector:
    """A block's part of the log-loss of a matrix, and of its gradient in (W - I, b)."""
    n, loss, slope, offset = block.n_classes, 0.0, 0.0, 0.0
    for xp, z, y, w in _parts(block, kind, temperature, total_weight):
        dtype = xp.float64 if exact else z.dtype
        some = xp.astype(z, dtype, copy=False)
        device = array_api_compat.device(some)
        here = xp.asarray(parameters, dtype=dtype, device=device)
        weights, intercept = xp.reshape(here[:-n], (n, n)), here[-n:]
        p = weights @ some.T  # one row per class: sums over few classes are slow within a row
        p += some.T
        p += intercept[:, None]
        p -= xp.max(p, axis=0)
        index = xp.arange(len(y), device=device)
        at_label = xp.astype(p[y, index], xp.float64)
        xp.exp(p, out=p)
        total = xp.sum(p, axis=0)
        loss += float(w @ (xp.log(xp.astype(total, xp.float64)) - at_label))
        p *= xp.astype(w / total, dtype)
        p[y, index] -= xp.astype(w, dtype)
        slope = slope + xp.astype(p @ some, xp.float64)
        offset = offset + xp.astype(xp.sum(p, axis=1), xp.float64)
    return np.concatenate([[loss], to_numpy(slope).ravel(), to_numpy(offset)])


def _curvature(block: Block, n_rows: int | None, kind: str, temperature: float, total_weight: float) -> Vector:
    """A block's part of the diagonal of a matrix's Hessian at temperature scaling, of `n_rows` or all rows."""
    step = 1 if n_rows is None else max(1, block.n_rows // n_rows)
    slope, offset = 0.0, 0.0
    for xp, z, _, w in _parts(block, kind, temperature, total_weight, step):
        p = xp.exp(z.T - xp.max(z.T, axis=0))
        p /= xp.sum(p, axis=0)
        p = p * (1.0 - p) * xp.astype(w, z.dtype)
        slope = slope + xp.astype(p @ z**2, xp.float64)
        offset = offset + xp.astype(xp.sum(p, axis=1), xp.float64)
    return np.concatenate([to_numpy(slope).ravel(), to_numpy(offset)])
