"""Scalings of the classes: affine maps of least log-loss, and their predictions for rows that they were not fitted on.

A ridge shrinks them towards temperature scaling, W = I and b = 0. Whatever the number of classes, too few rows lead
back to temperature scaling and not away from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from refocal._arrays import (
    Array,
    Indices,
    Vector,
    as_floating,
    in_library_of,
    namespace,
    row_blocks,
    to_numpy,
    without_warnings,
)
from refocal.engine import Block, Dataset, Pass, array_engine
from refocal.fitting.lbfgs import Tolerance as Ends
from refocal.fitting.lbfgs import minimise
from refocal.fitting.temperature import newton_temperature
from refocal.maps.chain import Chain, Step
from refocal.maps.steps import Affine, KeepTop, features

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
# Fewer rows than this are not divided further.
MIN_ROWS = 100


class Recipe(NamedTuple):
    """What is fitted: W z + b of which features, and how strongly each part is held to temperature scaling.

    The strengths are multiplied by C/n for the diagonal and the intercept and by C(C-1)/n for the off-diagonal: a part
    with more parameters is held more strongly. `matrix=None` is temperature scaling alone.
    """

    kind: str
    matrix: bool | None
    diagonal: float = 1.0
    others: float = 1.0

    def ridge(self, n_rows: float, n_classes: int) -> Vector:
        """What a unit of squared distance from temperature scaling costs beside the mean log-loss, in each of W and b.

        W is a matrix or its diagonal.
        """
        weights = np.full(n_classes, self.diagonal)
        if self.matrix:
            weights = np.where(np.eye(n_classes) > 0.0, self.diagonal, (n_classes - 1) * self.others).ravel()
        return np.append(weights, np.full(n_classes, self.others)) * (n_classes / n_rows)

    @property
    def word(self) -> str:
        """The kind of scaling."""
        return {None: "temperature", False: "vector", True: "matrix"}[self.matrix]

    @property
    def name(self) -> str:
        """The kind of scaling and its strength."""
        return self.word if self.matrix is None else f"{self.word} {self.others:g}"


# The candidates of `AutoCalibration`: temperature scaling alone, a vector, and matrices with strong to weak ridges.
TEMPERATURE = Recipe("tempered", None)
VECTOR = Recipe("tempered", False)
MATRICES = tuple(Recipe("tempered", True, strength, strength) for strength in (30.0, 10.0, 3.0, 1.0))


class Scaling(NamedTuple):
    """W as a matrix (C, C) or, for a diagonal one, a vector (C,); b; their log-loss, and how they were found."""

    recipe: Recipe
    temperature: float
    weights: NDArray[Any]
    intercept: NDArray[Any]
    log_loss: float
    converged: bool = True
    passes: int = 0

    @property
    def choice(self) -> dict[str, Any]:
        """What was fitted, for the report of a fit."""
        how = {"strength": self.recipe.others, "passes": self.passes, "converged": self.converged}
        return {"chosen": self.recipe.word} | ({} if self.recipe.matrix is None else how)

    def step(self, *, order_preserving: bool = False) -> Step:
        """The step that applies it. Weights are rounded to float32: more digits mean nothing, and files stay small."""
        weights, intercept = (np.asarray(part, dtype=np.float32) for part in (self.weights, self.intercept))
        step = Affine(self.recipe.kind, self.temperature, weights, intercept)
        return KeepTop((step,)) if order_preserving else step


def fit_affine(
    dataset: Dataset, recipe: Recipe, temperature: float, start: Scaling | None = None, ends: Ends = TIGHT
) -> Scaling:
    """The affine map of least penalised log-loss, from `start` or temperature scaling on; a convex problem.

    A pass over the rows sums up the loss and its gradient, a number for each parameter; with `EXACT` ends in double
    precision, until nothing is gained, so that the order of the rows does not matter.
    """
    n, matrix = dataset.n_classes, recipe.matrix
    ridge = recipe.ridge(dataset.total_weight, n)  # a weight of 2 is a row twice
    identity = np.eye(n) if matrix else np.ones(n)
    first = np.zeros(len(ridge))
    if start is not None:
        first = np.concatenate([(start.weights - identity).ravel(), start.intercept])
    z = Features(recipe.kind, temperature, dataset.total_weight)

    def sums(parameters: Vector, *, bends: bool = False) -> Vector:
        task = partial(_matrix_sums if matrix else _vector_sums, z, parameters=parameters, exact=ends is EXACT)
        return np.asarray(dataset.reduce(Pass(task if matrix else partial(task, bends=bends), np.add)))

    here = sums(first, bends=True)
    if matrix:
        # Some rows give the scale of a fit that only helps to choose; another path would end another fit elsewhere.
        of_rows = partial(_curvature, z, n_rows=SCALE_ROWS if ends is COARSE else None)
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
    return Scaling(recipe, temperature, weights + identity, intercept, log_loss, end.converged, end.passes)


class Features(NamedTuple):
    """What an affine map is applied to: Z, by its kind and temperature; and the weight of all rows."""

    kind: str
    temperature: float
    total_weight: float = 1.0

    def of(self, block: Block) -> Array:
        """Z of a block, in float32 or float64; kept with the block for the passes to come."""
        if self[:2] not in block.memo:
            block.memo[self[:2]] = _features(block.logits, self.kind, self.temperature)
        return block.memo[self[:2]]

    def parts(self, block: Block, step: int = 1) -> Iterator[tuple[Any, Array, Array, Array]]:
        """Every `step`-th row, in blocks: the functions of their library, Z, labels, and shares of all weight.

        On a GPU, where memory is dear and arithmetic is not, Z is computed anew for every pass.
        """
        there = block.on_gpu
        z = block.logits[::step] if there else self.of(block)[::step]
        labels, share = block.labels[::step], step * block.weights[::step] / self.total_weight
        for rows in row_blocks(len(z), block.n_classes, entries=array_engine.GPU_PART if there else BLOCK):
            some = _features(z[rows], self.kind, self.temperature) if there else z[rows]
            yield namespace(some), some, labels[rows], in_library_of(some, share[rows])


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
    z = Features(kind, temperature).of(block)
    z = z[rows] if isinstance(rows, slice) else np.take(z, rows, axis=0)  # in a fifth of the time of an index
    some = Block(z, block.labels[rows], None if block.weight is None else block.weight[rows])
    some.memo[kind, temperature] = z
    return some


def _vector_sums(z: Features, block: Block, parameters: Vector, exact: bool, bends: bool) -> Vector:
    """A block's part of the log-loss, of its gradient in (W - I, b) and, with `bends`, of its curvature."""
    around = parameters + np.repeat([1.0, 0.0], block.n_classes)
    if not block.on_gpu:
        return Block(z.of(block), block.labels, block.weight).sums("vector", around, rough=not exact) / z.total_weight

    def by_arrays(step: int) -> Vector:
        """The same by array functions, from every `step`-th row."""
        found = (array_engine.vector(some, y, w, around) for _, some, y, w in z.parts(block, step))
        return np.asarray(sum(map(to_numpy, found)))

    if not block.plan.has_affine:
        return by_arrays(1)
    found = block.affine_sums(z.kind, z.temperature, parameters, exact=exact) / z.total_weight
    if not bends:
        return found
    return np.concatenate([found, by_arrays(max(1, block.n_rows // GPU_SCALE_ROWS))[len(found) :]])


def _matrix_sums(z: Features, block: Block, parameters: Vector, exact: bool) -> Vector:
    """A block's part of the log-loss of a matrix, and of its gradient in (W - I, b)."""
    n, loss, slope, offset = block.n_classes, 0.0, 0.0, 0.0
    for xp, some, y, w in z.parts(block):
        dtype = xp.float64 if exact else some.dtype
        some = xp.astype(some, dtype, copy=False)
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


def _curvature(z: Features, block: Block, n_rows: int | None) -> Vector:
    """A block's part of the diagonal of a matrix's Hessian at temperature scaling, of `n_rows` or all rows."""
    step = 1 if n_rows is None else max(1, block.n_rows // n_rows)
    slope, offset = 0.0, 0.0
    for xp, some, _, w in z.parts(block, step):
        p = xp.exp(some.T - xp.max(some.T, axis=0))
        p /= xp.sum(p, axis=0)
        p = p * (1.0 - p) * xp.astype(w, some.dtype)
        slope = slope + xp.astype(p @ some**2, xp.float64)
        offset = offset + xp.astype(xp.sum(p, axis=1), xp.float64)
    return np.concatenate([to_numpy(slope).ravel(), to_numpy(offset)])


def usable_rows(block: Block, *, there: bool = False) -> Block:
    """The rows of a block that count, as NumPy arrays in float32 or float64: those of weight 0 are left out.

    With `there` those on a GPU stay as they are.
    """
    rows = block
    if not (there and block.on_gpu):
        logits = to_numpy(as_floating(block.logits, "logits", "fit")[0])
        labels = to_numpy(block.labels).astype(np.int64, copy=False)
        rows = block if logits is block.logits and labels is block.labels else Block(logits, labels, block.weight)
    return counted_rows(rows)


def counted_rows(block: Block) -> Block:
    """The rows of a weight above 0."""
    return block if block.weight is None or block.weight.all() else block.take(block.weight > 0.0)


def fit_scalings(
    dataset: Dataset, recipes: list[Recipe], ends: Ends = TIGHT, *, temperature: float | None = None
) -> Iterator[Scaling]:
    """One scaling after the other, each from where the last of its shape ended, all at the temperature of the rows."""
    value, n_classes = math.nan, dataset.n_classes
    if temperature is None:
        solution = newton_temperature(dataset)
        temperature, value = solution.temperature, solution.value
    if isinstance(dataset, Block) and not any((recipe.kind, temperature) in dataset.memo for recipe in recipes):
        dataset = dataset.take(slice(None))  # what is kept with a block is not needed after these fits
    last: dict[tuple[str, bool | None], Scaling] = {}
    for recipe in recipes:
        if recipe.matrix is None:
            yield Scaling(recipe, temperature, np.ones(n_classes), np.zeros(n_classes), value)
        else:
            last[recipe[:2]] = fit_affine(dataset, recipe, temperature, last.get(recipe[:2]), ends)
            yield last[recipe[:2]]


def out_of_fold(
    rows: Block,
    recipes: list[Recipe],
    fold: Indices,
    *,
    order_preserving: bool = False,
    temperature: float | None = None,
) -> list[Array]:
    """Scores (N, C) of every recipe, each row's by scalings that were fitted without it.

    The temperature that they start from is that of the other folds, unless it is given: a single number for all rows
    hardly knows them, and folds without a wrong row have none. Recipes of one kind then share their features.
    """
    xp, first = namespace(rows.logits), as_floating(rows.logits[:1], "logits", "fit")[0]
    device = array_api_compat.device(first)
    found: list[Array] = [xp.empty(rows.logits.shape, dtype=first.dtype, device=device) for _ in recipes]

    def part(block: Block, some: Any) -> Block:
        return block.take(some) if temperature is None else with_features(block, some, recipes[0].kind, temperature)

    # With the rows twice, one fold after the other, all folds but one are a slice.
    order = np.argsort(fold.astype(np.uint16), kind="stable")
    twice, ends = part(rows, np.concatenate([order, order])), np.cumsum(np.bincount(fold)).tolist()
    for start, stop in pairwise([0, *ends]):
        scalings = fit_scalings(part(twice, slice(stop, start + rows.n_rows)), recipes, COARSE, temperature=temperature)
        place, held_out = in_library_of(rows.logits, order[start:stop]), part(twice, slice(start, stop))
        for scores, scaling in zip(found, scalings, strict=True):
            scores[place] = _scores(rows.logits[place], held_out, scaling, order_preserving)
    return found


def _scores(logits: Array, rows: Block, scaling: Scaling, order_preserving: bool) -> Array:
    """The scores of some rows after a scaling, from their features where these are known."""
    step, z = scaling.step(order_preserving=order_preserving), rows.memo.get((scaling.recipe.kind, scaling.temperature))
    if z is None or not isinstance(step, Affine):
        return Chain((step,)).scores(logits)
    found = step.of_features(z)
    # The features are finite where logits are -inf: there the scores are -inf again.
    return np.where(logits == -np.inf, -np.inf, found) if np.isneginf(logits.min()) else found


def losses(rows: Block, scores: Array) -> Vector:
    """The log-loss of every row, by its scores."""
    return np.asarray(-Block(scores, rows.labels).predictions((0.0,), 1.0, rough=True)[0].label_log_p)


def folds(rows: Block, n_folds: int, seed: int) -> Indices:
    """A random fold for each row, with every class spread evenly over the folds.

    Chance is drawn for the hardest row of a class, for the next one and so on, so that neither the order of rows and
    classes nor the last digits of logits decide on the folds.
    """
    labels, log_p = to_numpy(rows.labels), rows.predictions((0.0,), 1.0)[0].label_log_p
    rank = np.argsort(np.argsort(np.bincount(labels, log_p)))
    of_class = rank.astype(np.min_scalar_type(len(rank)))[labels]  # small integers are sorted in no time

    def by_class(order: Indices) -> Indices:
        return order[np.argsort(of_class[order], kind="stable")]

    shuffled, fold = np.empty((2, rows.n_rows), dtype=np.int64)
    shuffled[np.random.default_rng(seed).permutation(rows.n_rows)] = by_class(np.argsort(log_p, kind="stable"))
    fold[by_class(shuffled)] = np.arange(rows.n_rows) % n_folds
    return fold
