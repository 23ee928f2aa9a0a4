"""Scalings of the classes: affine maps of least log-loss, and their predictions for rows that they were not fitted on.

Of features z (C numbers for each row, the scaled logits) a scaling W z + b with W (C, C) or a diagonal of it (C,) and
b (C,) minimises

    F(W, b) = Σᵢ wᵢ (log Σ_c exp(W zᵢ + b)_c - (W zᵢ + b)_{yᵢ}) / Σᵢ wᵢ + Σⱼ ridgeⱼ xⱼ²,   x = (W - I, b)

over rows i with labels y and weights w. The ridge shrinks it towards temperature scaling, W = I and b = 0. Whatever the
number of classes, too few rows lead back to temperature scaling and not away from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import array_api_compat
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import softmax

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
from refocal.engine.cache import CacheKey
from refocal.fitting.solver import LBFGS, FirstOrder, LBFGSState, Preconditioner, Tolerance, minimise
from refocal.fitting.temperature import newton_temperature
from refocal.maps.chain import Chain, Step
from refocal.maps.steps import FLOOR, Affine, KeepTop, features, unmasked

Shape = Literal["temperature", "vector", "matrix"]


class Recipe(NamedTuple):
    """What is fitted: W z + b of which kind of features, W of which shape, and the strengths of the ridge.

    "temperature" is temperature scaling alone, W = I and b = 0.
    """

    kind: str
    shape: Shape
    diagonal_strength: float = 1.0
    """Of the diagonal of W."""
    strength: float = 1.0
    """Of the rest: off the diagonal of W, and b."""

    def ridge(self, n_rows: float, n_classes: int) -> Vector:
        """The ridge of each of x = (W - I, b), beside the mean log-loss.

        A part with more parameters has a stronger ridge: the strengths are multiplied by C/n for the diagonal and b,
        and by C(C-1)/n off the diagonal.
        """
        if self.shape == "matrix":
            off_diagonal = (n_classes - 1) * self.strength
            weights = np.where(np.eye(n_classes) > 0.0, self.diagonal_strength, off_diagonal).ravel()
        else:
            weights = np.full(n_classes, self.diagonal_strength)
        return np.append(weights, np.full(n_classes, self.strength)) * (n_classes / n_rows)

    @property
    def name(self) -> str:
        """The shape and the strength."""
        return self.shape if self.shape == "temperature" else f"{self.shape} {self.strength:g}"


# What `AutoCalibration` averages: a vector, and a matrix with a weak ridge.
VECTOR = Recipe("tempered", "vector")
MATRIX = Recipe("tempered", "matrix", diagonal_strength=0.03, strength=0.03)


class Accuracy(NamedTuple):
    """How exactly a scaling is fitted."""

    tolerance: Tolerance
    in_double: bool = False
    """Whether sums are computed in double precision, so that the order of the rows does not matter."""
    curvature_rows: int | None = None
    """About how many rows of a block give the preconditioner of a matrix; all of them if None."""


TIGHT = Accuracy(Tolerance(gain=1e-8, rounding=1e-7, max_steps=200))
# Until nothing is gained but rounding.
EXACT = Accuracy(Tolerance(gain=1e-18, rounding=1e-13, max_steps=1_000), in_double=True)


class Scaling(NamedTuple):
    """A fitted scaling: W (C, C) or its diagonal (C,), b (C,), their log-loss, and how the search ended."""

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
        chosen = {"chosen": self.recipe.shape}
        if self.recipe.shape == "temperature":
            return chosen
        return chosen | {"strength": self.recipe.strength, "passes": self.passes, "converged": self.converged}

    def step(self, *, order_preserving: bool = False) -> Step:
        """The step that applies it. Weights are rounded to float32: more digits mean nothing, and files stay small."""
        weights = np.asarray(self.weights, dtype=np.float32)
        intercept = np.asarray(self.intercept, dtype=np.float32)
        step = Affine(self.recipe.kind, self.temperature, weights, intercept)
        return KeepTop((step,)) if order_preserving else step


def fit_affine(
    dataset: Dataset, recipe: Recipe, temperature: float, start: Scaling | None = None, accuracy: Accuracy = TIGHT
) -> Scaling:
    """The scaling of least F, a convex problem, by L-BFGS from `start` or from temperature scaling."""
    n_classes = dataset.n_classes
    identity = np.eye(n_classes) if recipe.shape == "matrix" else np.ones(n_classes)
    ridge = recipe.ridge(dataset.total_weight, n_classes)  # a weight of 2 is a row twice
    z = Features(recipe.kind, temperature, dataset.total_weight)
    x = np.zeros(len(ridge))
    if start is not None:
        x = np.concatenate([(start.weights - identity).ravel(), start.intercept])
    fit = _fit_matrix if recipe.shape == "matrix" else _fit_vector
    minimum = fit(dataset, z, ridge, x, accuracy)
    weights = minimum.at.point[:-n_classes].reshape(identity.shape) + identity
    intercept = minimum.at.point[-n_classes:]
    log_loss = minimum.at.value - float(ridge @ minimum.at.point**2)
    return Scaling(recipe, temperature, weights, intercept, log_loss, minimum.has_converged, minimum.passes)


# Added to every curvature, so that none is 0: that of a class that never occurs would be.
LEAST_CURVATURE = 1e-12


def _fit_matrix(dataset: Dataset, z: Features, ridge: Vector, start: Vector, accuracy: Accuracy) -> LBFGSState:
    """The x = (W - I, b) of a matrix, preconditioned by the Hessian of some rows, or by its diagonal.

    The entries of W depend on each other so strongly that the diagonal alone takes some 200 passes, and the Hessian 15.
    """
    # To make and to factorise the Hessian of more classes takes longer than the passes that it saves.
    max_classes = 40
    # Of all rows of a block, the Hessian does not depend on their order; of a thousand, it saves as many passes.
    max_products = 1e9
    least_hessian_rows = 1_000

    def objective(x: Vector) -> tuple[float, Vector]:
        sums = dataset.reduce(Pass(partial(_matrix_sums, z, parameters=x, exact=accuracy.in_double), np.add))
        return _with_ridge(sums, x, ridge)

    precondition: Preconditioner
    if dataset.n_classes <= max_classes and dataset.n_rows >= dataset.n_classes**2:
        n_rows = max(least_hessian_rows, int(max_products / len(start) ** 2))
        n_rows = min(n_rows, accuracy.curvature_rows or n_rows)
        hessian_pass = Pass(partial(_matrix_hessian, z, parameters=start, n_rows=n_rows), np.add)
        precondition = _solver_of(dataset.reduce(hessian_pass) + np.diag(2.0 * ridge))
    else:
        curvature_pass = Pass(partial(_matrix_curvature, z, n_rows=accuracy.curvature_rows), np.add)
        curvature = dataset.reduce(curvature_pass) + 2.0 * ridge + LEAST_CURVATURE

        def precondition(gradient: Vector) -> Vector:
            return np.asarray(gradient / curvature)

    at_start = FirstOrder(start, *objective(start))
    return minimise(LBFGS(objective, precondition, accuracy.tolerance), at_start)


def _solver_of(hessian: Vector) -> Preconditioner:
    """The function that solves H s = g, for a positive semidefinite H."""
    # What rounding may take from the least eigenvalue, as a share of the largest.
    rounding = 1e-12
    shift = LEAST_CURVATURE + rounding * float(np.trace(hessian))
    factor = cho_factor(hessian + shift * np.eye(len(hessian)), lower=True, check_finite=False)

    def solve(gradient: Vector) -> Vector:
        return np.asarray(cho_solve(factor, gradient, check_finite=False))

    return solve


def _fit_vector(dataset: Dataset, z: Features, ridge: Vector, start: Vector, accuracy: Accuracy) -> LBFGSState:
    """The x = (diagonal of W - I, b) of a vector, preconditioned by the Hessian of each class's two parameters."""
    n = dataset.n_classes

    def sums_at(x: Vector, *, with_curvature: bool) -> Vector:
        task = partial(_vector_sums, z, parameters=x, exact=accuracy.in_double, with_curvature=with_curvature)
        return np.asarray(dataset.reduce(Pass(task, np.add)))

    def objective(x: Vector) -> tuple[float, Vector]:
        return _with_ridge(sums_at(x, with_curvature=False), x, ridge)

    sums = sums_at(start, with_curvature=True)
    curvature_ww, curvature_wb, curvature_bb = sums[1 + 2 * n :].reshape(3, n)
    curvature_ww = curvature_ww + 2.0 * ridge[:n] + LEAST_CURVATURE
    curvature_bb = curvature_bb + 2.0 * ridge[n:] + LEAST_CURVATURE

    def precondition(gradient: Vector) -> Vector:
        gradient_w, gradient_b = gradient.reshape(2, n)
        # A number added to all intercepts changes nothing but the ridge: their mean stays 0.
        gradient_b = gradient_b - gradient_b.mean()
        determinant = curvature_ww * curvature_bb - curvature_wb * curvature_wb
        step_w = (curvature_bb * gradient_w - curvature_wb * gradient_b) / determinant
        step_b = (curvature_ww * gradient_b - curvature_wb * gradient_w) / determinant
        return np.concatenate([step_w, step_b - step_b.mean()])

    at_start = FirstOrder(start, *_with_ridge(sums, start, ridge))
    return minimise(LBFGS(objective, precondition, accuracy.tolerance), at_start)


def _with_ridge(sums: Vector, x: Vector, ridge: Vector) -> tuple[float, Vector]:
    """F and its gradient in x, from the mean log-loss and its gradient, which come first in the sums of a pass."""
    log_loss = float(sums[0])
    gradient = sums[1 : 1 + len(ridge)]
    return log_loss + float(ridge @ x**2), gradient + 2.0 * ridge * x


@dataclass(frozen=True)
class FeatureKey(CacheKey[Array]):
    """Under what the features of a block are cached."""

    kind: str
    temperature: float

    def cached(self, block: Block) -> Array | None:
        """The features of a block, if they were computed before."""
        return block.cache.get(self)

    def store(self, block: Block, z: Array) -> None:
        """Keep the features of a block for further passes."""
        block.cache.keep(self, z)


class FeaturePart(NamedTuple):
    """Some rows of a block: the functions of their library, z (n, C), labels (n,), and shares of all weight (n,)."""

    xp: Any
    z: Array
    labels: Array
    share: Array


class Features(NamedTuple):
    """The features z that a scaling is applied to, and the weight of all rows of the fit."""

    kind: str
    temperature: float
    total_weight: float = 1.0

    @property
    def key(self) -> FeatureKey:
        """Under what they are cached."""
        return FeatureKey(self.kind, self.temperature)

    def of(self, block: Block) -> Array:
        """Z of a block (N, C), in float32 or float64; cached for further passes."""
        z = self.key.cached(block)
        if z is None:
            z = _features(block.logits, self.kind, self.temperature)
            self.key.store(block, z)
        return z

    def parts(self, block: Block, stride: int = 1) -> Iterator[FeaturePart]:
        """Every `stride`-th row of a block, in parts that are large enough for matrix products but not for memory.

        On a GPU, where memory is dear and arithmetic is not, z is computed again in every pass.
        """
        cpu_entries = 1 << 20
        on_gpu = block.on_gpu
        values = block.logits[::stride] if on_gpu else self.of(block)[::stride]
        labels = block.labels[::stride]
        share = stride * block.weights[::stride] / self.total_weight
        for rows in row_blocks(len(values), block.n_classes, entries=array_engine.GPU_PART if on_gpu else cpu_entries):
            z = _features(values[rows], self.kind, self.temperature) if on_gpu else values[rows]
            yield FeaturePart(namespace(z), z, labels[rows], in_library_of(z, share[rows]))


@without_warnings
def _features(logits: Array, kind: str, temperature: float) -> Array:
    """Z of logits (N, C)."""
    few_classes = 50  # with fewer, sums over the classes of a row are faster in a copy that is ordered by class
    x, _ = as_floating(logits, "logits", "fit")
    if not isinstance(x, np.ndarray):
        return features(namespace(x), x, kind, temperature)
    z = np.empty(x.shape, dtype=x.dtype)
    for rows in row_blocks(x.shape[0], x.shape[1], entries=array_engine.CACHE_PART):
        part = np.asfortranarray(x[rows]) if x.shape[1] < few_classes else x[rows]
        z[rows] = features(np, part, kind, temperature)
    return z


def take_with_features(block: Block, rows: Any, key: FeatureKey) -> Block:
    """Some rows of a block, with those of its features z: z is computed once for all rows.

    On a GPU every pass computes z again.
    """
    selected = block.take(rows)
    if not block.on_gpu:
        z = Features(key.kind, key.temperature).of(block)
        z = z[rows] if isinstance(rows, slice) else np.take(z, rows, axis=0)  # in a fifth of the time of an index
        key.store(selected, z)
    return selected


def _vector_sums(z: Features, block: Block, parameters: Vector, exact: bool, with_curvature: bool) -> Vector:
    """A block's part of the mean log-loss of a vector, of its gradient in x (2C,) and of its curvature (3C,).

    The curvature has the second derivatives of each class in (w, w), (w, b) and (b, b); it may be left out.
    """
    weights_and_intercept = parameters + np.repeat([1.0, 0.0], block.n_classes)
    if not block.on_gpu:
        # The pass scales the scores of a block: here the features.
        of_features = Block(z.of(block), block.labels, block.weight)
        return of_features.sums("vector", weights_and_intercept, rough=not exact) / z.total_weight

    def by_arrays(stride: int) -> Vector:
        """The same by array functions, from every `stride`-th row."""
        sums = (
            array_engine.vector(part.z, part.labels, part.share, weights_and_intercept)
            for part in z.parts(block, stride)
        )
        return np.asarray(sum(map(to_numpy, sums)))

    if not block.plan.has_affine:
        return by_arrays(1)
    sums = block.affine_sums(z.kind, z.temperature, parameters, exact=exact) / z.total_weight
    if not with_curvature:
        return sums
    curvature_rows = 20_000  # enough for a preconditioner
    curvature = by_arrays(max(1, block.n_rows // curvature_rows))[len(sums) :]
    return np.concatenate([sums, curvature])


def _matrix_sums(z: Features, block: Block, parameters: Vector, exact: bool) -> Vector:
    """A block's part of the mean log-loss of a matrix, and of its gradient in x (C² + C,).

    With p the probabilities of a row and e the unit vector of its label, it is (p - e) zᵀ in W and p - e in b.
    """
    n = block.n_classes
    log_loss = 0.0
    gradient_w: Any = 0.0
    gradient_b: Any = 0.0
    for xp, part, labels, share in z.parts(block):
        dtype = xp.float64 if exact else part.dtype
        rows, excess = _filled(xp, xp.astype(part, dtype, copy=False))
        device = array_api_compat.device(rows)
        x = xp.asarray(parameters, dtype=dtype, device=device)
        # One row per class, since sums over few classes are slow within a row; in place, to save memory.
        p = xp.reshape(x[:-n], (n, n)) @ rows.T
        p += rows.T
        if excess is not None:
            p += excess.T * (1.0 + x[: n * n : n + 1])[:, None]
        p += x[-n:][:, None]
        p -= xp.max(p, axis=0)
        index = xp.arange(len(labels), device=device)
        score_of_label = xp.astype(p[labels, index], xp.float64)
        xp.exp(p, out=p)
        total = xp.sum(p, axis=0)
        log_loss += float(share @ (xp.log(xp.astype(total, xp.float64)) - score_of_label))
        p *= xp.astype(share / total, dtype)
        p[labels, index] -= xp.astype(share, dtype)
        gradient_w = gradient_w + xp.astype(p @ rows, xp.float64)
        if excess is not None:
            own = xp.sum(p * excess.T, axis=1)
            gradient_w = gradient_w + xp.astype(xp.eye(n, dtype=dtype, device=device) * own, xp.float64)
        gradient_b = gradient_b + xp.astype(xp.sum(p, axis=1), xp.float64)
    return np.concatenate([[log_loss], to_numpy(gradient_w).ravel(), to_numpy(gradient_b)])


def _filled(xp: Any, z: Array) -> tuple[Array, Array | None]:
    """Features z in which masked classes are filled in (`unmasked` of maps/steps.py), and z less these.

    The latter are None where no class of these rows is masked: features of masked classes lie below -`FLOOR`, of
    whatever kind.
    """
    if xp.min(z) > -FLOOR:
        return z, None
    filled = unmasked(xp, z)
    return filled, z - filled


def _matrix_curvature(z: Features, block: Block, n_rows: int | None) -> Vector:
    """A block's part of the diagonal of a matrix's Hessian at temperature scaling (C² + C,), of `n_rows` or all rows.

    It is p(1 - p) z² in W and p(1 - p) in b.
    """
    stride = 1 if n_rows is None else max(1, block.n_rows // n_rows)
    curvature_w: Any = 0.0
    curvature_b: Any = 0.0
    for xp, rows, _, share in z.parts(block, stride):
        p = xp.exp(rows.T - xp.max(rows.T, axis=0))
        p /= xp.sum(p, axis=0)
        variance = p * (1.0 - p) * xp.astype(share, rows.dtype)
        curvature_w = curvature_w + xp.astype(variance @ _filled(xp, rows)[0] ** 2, xp.float64)
        curvature_b = curvature_b + xp.astype(xp.sum(variance, axis=1), xp.float64)
    return np.concatenate([to_numpy(curvature_w).ravel(), to_numpy(curvature_b)])


def _matrix_hessian(z: Features, block: Block, parameters: Vector, n_rows: int) -> Vector:
    """A block's part of a matrix's Hessian at x (C² + C, C² + C), from about `n_rows` rows, in double precision.

    With p the probabilities of a row, δ the unit matrix and z̃ = (z, 1), the second derivative in the parameters that
    multiply z̃ᵢ in class c and z̃ⱼ in class d is

        p_c (δ_cd - p_d) z̃ᵢ z̃ⱼ.
    """
    n = block.n_classes
    weights = parameters[:-n].reshape(n, n) + np.eye(n)
    intercept = parameters[-n:]
    hessian = np.zeros((len(parameters), len(parameters)))
    for _, part, _, part_share in z.parts(block, max(1, block.n_rows // n_rows)):
        rows, excess = _filled(np, to_numpy(part).astype(np.float64, copy=False))
        share = to_numpy(part_share).astype(np.float64, copy=False)
        scores = rows @ weights.T + intercept
        p = softmax(scores if excess is None else scores + excess * np.diagonal(weights), axis=1)
        rows_by_class = (p[:, :, None] * rows[:, None, :]).reshape(len(rows), n * n)
        p_rows = np.concatenate([rows_by_class, p], axis=1)  # p_c z̃ᵢ, in the order of x
        p_rows *= np.sqrt(share)[:, None]
        hessian -= p_rows.T @ p_rows
        with_one = np.column_stack([rows, np.ones(len(rows))])
        for c in range(n):
            of_class = np.append(np.arange(c * n, (c + 1) * n), n * n + c)
            hessian[np.ix_(of_class, of_class)] += with_one.T @ ((share * p[:, c])[:, None] * with_one)
    return hessian


def usable_rows(block: Block, *, keep_on_gpu: bool = False) -> Block:
    """The rows of weight above 0, as NumPy arrays in float32 or float64; those on a GPU stay there if asked to."""
    if keep_on_gpu and block.on_gpu:
        return counted_rows(block)
    logits = to_numpy(as_floating(block.logits, "logits", "fit")[0])
    labels = to_numpy(block.labels).astype(np.int64, copy=False)
    if logits is block.logits and labels is block.labels:
        return counted_rows(block)
    return counted_rows(Block(logits, labels, block.weight, block.groups, clusters=block.clusters))


def counted_rows(block: Block) -> Block:
    """The rows of a weight above 0."""
    return block if block.weight is None or block.weight.all() else block.take(block.weight > 0.0)


def fit_scalings(
    dataset: Dataset,
    recipes: list[Recipe],
    accuracy: Accuracy = TIGHT,
    *,
    temperature: float | None = None,
    starts: Sequence[Scaling] = (),
) -> Iterator[Scaling]:
    """One scaling after the other, each from where the last of its kind and shape ended, or from that of `starts`.

    The features are divided by the given temperature, or else by that of least log-loss.
    """
    log_loss = math.nan
    if temperature is None:
        solution = newton_temperature(dataset)
        temperature = solution.temperature
        log_loss = solution.value
    keys = [FeatureKey(recipe.kind, temperature) for recipe in recipes]
    if isinstance(dataset, Block) and all(key.cached(dataset) is None for key in keys):
        dataset = dataset.take(slice(None))  # so that features are cached for these fits only
    previous: dict[tuple[str, Shape], Scaling] = {}
    start_of = {scaling.recipe: scaling for scaling in starts}
    for recipe in recipes:
        if recipe.shape == "temperature":
            ones = np.ones(dataset.n_classes)
            zeros = np.zeros(dataset.n_classes)
            yield Scaling(recipe, temperature, ones, zeros, log_loss)
            continue
        start = start_of.get(recipe, previous.get((recipe.kind, recipe.shape)))
        scaling = fit_affine(dataset, recipe, temperature, start, accuracy)
        previous[recipe.kind, recipe.shape] = scaling
        yield scaling


def out_of_fold(
    rows: Block,
    recipes: list[Recipe],
    fold: Indices,
    *,
    temperature: float | None = None,
    starts: Sequence[Scaling] = (),
) -> list[Array]:
    """Scores (N, C) of every recipe, each row's by scalings that were fitted without it, from `starts` on.

    The temperature that they start from is that of the other folds, unless it is given: a single number for all rows
    hardly knows them, and folds without a wrong row have none. Recipes of one kind then share their features.
    """
    # These fits only help to choose: at most 1e-5 of log-loss are lost. Another preconditioner takes another path,
    # which would end other fits elsewhere within their tolerance.
    coarse = Accuracy(Tolerance(gain=1e-6, rounding=1e-7, max_steps=200), curvature_rows=2_000)
    first_row, _ = as_floating(rows.logits[:1], "logits", "fit")
    device = array_api_compat.device(first_row)
    xp = namespace(rows.logits)
    scores: list[Array] = [xp.empty(rows.logits.shape, dtype=first_row.dtype, device=device) for _ in recipes]
    shared = None if temperature is None else FeatureKey(recipes[0].kind, temperature)
    for split in _splits(rows, fold, shared):
        scalings = fit_scalings(split.others, recipes, coarse, temperature=temperature, starts=starts)
        index = in_library_of(rows.logits, split.places)
        for of_recipe, scaling in zip(scores, scalings, strict=True):
            of_recipe[index] = _scores(rows.logits[index], split.held_out, scaling)
    return scores


class _Split(NamedTuple):
    """One fold and all others."""

    places: Indices
    """Of the rows of the fold among all."""
    held_out: Block
    others: Block


def _splits(rows: Block, fold: Indices, shared: FeatureKey | None) -> Iterator[_Split]:
    """The splits of the rows into each fold and all others; with their features where all fits share these."""

    def select(block: Block, selection: Any) -> Block:
        return block.take(selection) if shared is None else take_with_features(block, selection, shared)

    # With the rows twice, one fold after the other, all folds but one are a slice, which is no copy.
    order = np.argsort(fold.astype(np.uint16), kind="stable")
    twice = select(rows, np.concatenate([order, order]))
    ends = np.cumsum(np.bincount(fold)).tolist()
    for start, stop in pairwise([0, *ends]):
        held_out = select(twice, slice(start, stop))
        others = select(twice, slice(stop, start + rows.n_rows))
        yield _Split(order[start:stop], held_out, others)


def _scores(logits: Array, rows: Block, scaling: Scaling) -> Array:
    """The scores of some rows after a scaling, from their features where these are cached."""
    step = scaling.step()
    z = FeatureKey(scaling.recipe.kind, scaling.temperature).cached(rows)
    if z is None or not isinstance(step, Affine):
        return Chain((step,)).scores(logits)
    scores = step.of_features(z)
    if not np.isneginf(logits.min()):
        return scores
    return np.where(logits == -np.inf, -np.inf, scores)  # the features are finite where logits are -inf


def losses(rows: Block, scores: Array) -> Vector:
    """The log-loss of every row (N,), by its scores."""
    (predictions,) = Block(scores, rows.labels).predictions((0.0,), 1.0, rough=True)
    return np.asarray(-predictions.label_log_p)
