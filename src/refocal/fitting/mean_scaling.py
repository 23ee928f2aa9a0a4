"""A mean of several scalings of the classes, with weights by stacking.

All members are affine maps of the same features z, the tempered log-probabilities log softmax(logits / T):

    temperature     z                    temperature scaling
    none            T z                  no calibration: softmax(T z) = softmax(logits)
    shares          log π                the share π of each class, whatever the logits
    vector          w ∘ z + b            a factor and an intercept for each class
    matrix          W z + b              with a weak ridge: the mean with the others shrinks it

and so is their mean, Σₖ ωₖ Wₖ z + Σₖ ωₖ bₖ: it is applied as fast as any one of them. The weights ω, and whatever
follows the mean, are fitted on the scores of rows that the members were not fitted on.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from refocal._arrays import Array, Flags, Indices, Vector, in_library_of, namespace, to_numpy
from refocal.engine import Block, Dataset
from refocal.fitting import affine
from refocal.fitting.affine import EXACT, TIGHT, Features, Recipe, Scaling
from refocal.fitting.stacking import weights_of_scores
from refocal.maps.steps import features, keep_top


class WeightSettings(NamedTuple):
    """How the weights are found; settled on real data sets and networks (benchmarks/results/arena.md)."""

    pseudo_rows: float = 8.0
    """The pseudo-counts of all weights together."""
    temperature: float = 4.0
    """The pseudo-count of temperature scaling relative to that of others."""
    log_temperature_deviation: float = math.log(2.0)
    """How far from 0 the logarithm of the temperature lies where no calibration has 60 % of its pseudo-count: scores
    that are far too large, as those of naive Bayes, would have an effect by the smallest weight."""
    rows_per_entry: float = 20.0
    """With fewer rows for each entry of the matrix, it has a smaller pseudo-count in proportion."""
    max_entries: int = 1 << 16
    """The most scores of a member, in rows times classes, that the weights are fitted on."""
    min_rows: int = 500
    max_rows: int = 5_000
    """The most rows that the weights are fitted on, with many classes and with few."""
    least_weight: float = 0.02
    """Members of less weight are left out."""


WEIGHTS = WeightSettings()


def recipes_for(n_rows: int, n_classes: int) -> list[Recipe]:
    """The vector, and the matrix if there are enough rows: one for each entry, and with many classes 20.

    The limit of many classes is one of time: a pass over the rows takes as many operations as a matrix has entries.
    """
    return [affine.VECTOR, affine.MATRIX] if n_rows >= rows_for_matrix(n_classes) else [affine.VECTOR]


def rows_for_matrix(n_classes: int) -> int:
    """From how many rows on the matrix is among the members."""
    many_classes = 30
    return int((1 if n_classes < many_classes else WEIGHTS.rows_per_entry) * n_classes**2)


class LeftOutScores(NamedTuple):
    """The scores of all members for n rows that they were not fitted on: what weights are fitted and measured on."""

    names: tuple[str, ...]
    """Of the K members."""
    scores: NDArray[np.float64]
    """(K, n, C)"""
    rows: Block
    """The n rows, with their logits."""
    fold: Indices
    """(n,)"""
    counts: Vector
    """How many rows of the fit each one stands for, (n,): the pseudo-counts are numbers of such rows."""
    pseudo_counts: Vector
    """(K,)"""

    def fit_weights(self, some: Any = slice(None), similar: Vector | None = None) -> Vector:
        """The weights (K,) by some of the rows, from those of `similar` rows on."""
        labels = to_numpy(self.rows.labels)
        return weights_of_scores(self.scores[:, some], labels[some], self.counts[some], self.pseudo_counts, similar)

    def mean(self, omega: Vector, *, order_preserving: bool) -> Block:
        """The rows with the scores of the mean; -inf where a logit is."""
        scores = np.tensordot(omega, self.scores, axes=1)
        scores[to_numpy(self.rows.logits) == -np.inf] = -np.inf
        if order_preserving:
            logits = self.rows.logits
            scores = keep_top(np, scores, to_numpy(namespace(logits).argmax(logits, axis=-1, keepdims=True)))
        return Block(scores, to_numpy(self.rows.labels), self.rows.weight)

    def log_losses(self) -> dict[str, Vector]:
        """The log-loss of every row (n,) by each member."""
        of_label = np.take_along_axis(self.scores, to_numpy(self.rows.labels)[None, :, None], axis=2)[:, :, 0]
        return dict(zip(self.names, logsumexp(self.scores, axis=2) - of_label, strict=True))


class Members:
    """The members of the mean: their fits to all rows, and their scores (N, C) for rows left out."""

    def __init__(self, rows: Block, temperature: float, fold: Indices) -> None:
        # The members that are not fitted by a ridge.
        fixed = ("temperature", "none", "shares")
        self.rows = rows
        self.temperature = temperature
        self.fold = fold
        self.recipes = recipes_for(rows.n_rows, rows.n_classes)
        self.names = (*fixed, *(recipe.name for recipe in self.recipes))
        self._z = _features(rows, temperature)
        self.scalings = list(affine.fit_scalings(rows, self.recipes, TIGHT, temperature=temperature))
        scores = affine.out_of_fold(rows, self.recipes, fold, temperature=temperature, starts=self.scalings)
        self._scores = dict(zip((recipe.name for recipe in self.recipes), scores, strict=True))
        labels = to_numpy(rows.labels)
        by_fold = [
            log_shares(labels[fold != i], rows.weights[fold != i], rows.n_classes) for i in range(fold.max() + 1)
        ]
        self._log_shares = np.stack(by_fold)

    def scores(self, name: str, index: Any = slice(None)) -> Array:
        """The scores of one member for some rows left out."""
        if name == "temperature":
            return self._z[index]
        if name == "none":
            return self.temperature * self._z[index]
        if name == "shares":
            return in_library_of(self._z, self._log_shares[self.fold[index]])
        return self._scores[name][index]

    @property
    def pseudo_counts(self) -> Vector:
        """The pseudo-counts of the weights: temperature scaling has most, a matrix on few rows least."""
        of_matrix = min(1.0, self.rows.n_rows / (WEIGHTS.rows_per_entry * self.rows.n_classes**2))
        of_none = np.exp(-0.5 * (np.log(self.temperature) / WEIGHTS.log_temperature_deviation) ** 2)
        counts = [WEIGHTS.temperature, of_none, 1.0, *[1.0, of_matrix][: len(self.recipes)]]
        return np.asarray(WEIGHTS.pseudo_rows * np.array(counts) / np.sum(counts))

    def left_out(self) -> LeftOutScores:
        """The scores of all members, for all rows or for every n-th where there are many."""
        max_rows = np.clip(WEIGHTS.max_entries // self.rows.n_classes, WEIGHTS.min_rows, WEIGHTS.max_rows)
        stride = -(-self.rows.n_rows // int(max_rows))
        some = slice(None, None, stride)
        rows = self.rows.take(some)
        scores = np.stack([to_numpy(self.scores(name, some)) for name in self.names])
        return LeftOutScores(
            self.names,
            _without_infinities(scores.astype(np.float64), to_numpy(rows.logits) > -np.inf),
            rows,
            self.fold[some],
            stride * rows.weights,
            self.pseudo_counts,
        )

    def mean_scores(self, omega: Vector, *, order_preserving: bool) -> Array:
        """The scores of the mean for rows left out; -inf where a logit is."""
        xp = namespace(self._z)
        of_temperature, of_none, of_shares, *others = omega.tolist()
        mean = (of_temperature + of_none * self.temperature) * self._z
        if of_shares > 0.0:
            mean += xp.astype(of_shares * self.scores("shares"), mean.dtype, copy=False)
        for share, scores in zip(others, self._scores.values(), strict=True):
            if share > 0.0:
                mean += share * scores
        if xp.any(xp.min(self.rows.logits, axis=-1) == -xp.inf):
            mean = xp.where(self.rows.logits == -xp.inf, -xp.inf, mean)
        if not order_preserving:
            return mean
        return keep_top(xp, mean, xp.argmax(self.rows.logits, axis=-1, keepdims=True))

    def mean_scaling(self, omega: Vector, whole: Dataset) -> Scaling:
        """The mean of the members as one scaling.

        A vector and a matrix that were fitted on a sample are fitted on all rows first. T is of all rows already, and
        the shares of the classes stay those of the sample.
        """
        shares = dict(zip(self.names, omega.tolist(), strict=True))
        scalings = [scaling for scaling in self.scalings if shares[scaling.recipe.name] > 0.0]
        if whole is not self.rows:
            # Rows outside the sample are not summed in the order of their keys: an exact end hides what that changes.
            recipes = [scaling.recipe for scaling in scalings]
            fits = affine.fit_scalings(whole, recipes, EXACT, temperature=self.temperature, starts=scalings)
            scalings = list(fits)
        n_classes = self.rows.n_classes
        is_matrix = any(scaling.recipe.shape == "matrix" for scaling in scalings)
        identity = np.eye(n_classes) if is_matrix else np.ones(n_classes)
        weights = (shares["temperature"] + shares["none"] * self.temperature) * identity
        labels = to_numpy(self.rows.labels)
        intercept = shares["shares"] * log_shares(labels, self.rows.weights, n_classes)
        for scaling in scalings:
            share = shares[scaling.recipe.name]
            own = np.diag(scaling.weights) if is_matrix and scaling.weights.ndim == 1 else scaling.weights
            weights = weights + share * own
            intercept = intercept + share * scaling.intercept
        return Scaling(
            Recipe("tempered", "matrix" if is_matrix else "vector"),
            self.temperature,
            weights,
            intercept - intercept.mean(),
            float("nan"),
            converged=all(scaling.converged for scaling in scalings),
            passes=sum(scaling.passes for scaling in scalings),
        )


def without_smallest(omega: Vector) -> Vector:
    """Weights with those that are negligible set to 0: without a matrix the mean is applied by the fast kernels."""
    kept = np.where(omega < WEIGHTS.least_weight, 0.0, omega)
    return np.asarray(kept / kept.sum())


def log_shares(labels: Indices, weight: Vector, n_classes: int) -> Vector:
    """The logarithm of the share of each class, as if each had been seen half a time more."""
    count = np.bincount(labels, weights=weight, minlength=n_classes) + 0.5
    return np.asarray(np.log(count / count.sum()))


def _without_infinities(scores: NDArray[np.float64], is_possible: Flags) -> NDArray[np.float64]:
    """Scores (K, n, C) with those of classes that cannot occur far below all others of their row, which may be means.

    Their probability is 0, and so is their score times a weight of 0.
    """
    below = 1e4
    largest = 1e30  # its square is no infinity
    bounded = np.clip(scores, -largest, largest)
    least = np.min(bounded, axis=2, where=is_possible, initial=largest, keepdims=True)
    return np.where(is_possible, bounded, least - below)


def _features(rows: Block, temperature: float) -> Array:
    """The features of all rows, which are cached for the fits unless they are on a GPU."""
    if rows.on_gpu:
        return features(namespace(rows.logits), rows.logits, "tempered", temperature)
    return Features("tempered", temperature).of(rows)
