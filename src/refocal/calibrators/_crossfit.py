"""Scalings fitted on all rows, and their predictions for rows that they were not fitted on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, as_floating, namespace, to_numpy, without_warnings
from refocal.calibrators._affine import COARSE_GAIN, SMALL_GAIN, Affine, Penalty, fit_affine
from refocal.maps.affine import Front, features
from refocal.search import Problem
from refocal.search.newton import newton_temperature

Vector = NDArray[np.float64]

# Less than so many rows are not divided further.
MIN_ROWS = 100


class Rows(NamedTuple):
    """Logits (N, C) as float32 or float64, labels 0 … C-1, and weights that are all positive."""

    logits: NDArray[Any]
    labels: NDArray[np.int64]
    weight: Vector | None

    def part(self, index: Any) -> Rows:
        """Some of the rows."""
        return Rows(self.logits[index], self.labels[index], None if self.weight is None else self.weight[index])

    def mean(self, values: Vector) -> float:
        """The weighted mean of one number a row."""
        return float(np.average(values, weights=self.weight))


class Recipe(NamedTuple):
    """What is fitted: W z + b of which features, and how strongly each part is held to temperature scaling.

    The strengths are multiplied by C/n for the diagonal and the intercept and by C(C-1)/n for the off-diagonal: a part
    of so many parameters is worth that share of n rows. `matrix=None` is temperature scaling alone.
    """

    kind: str
    matrix: bool | None
    diagonal: float = 1.0
    others: float = 1.0

    def penalty(self, n_rows: float, n_classes: int) -> Penalty:
        """The ridge for so many rows and classes."""
        unit = n_classes / n_rows
        return Penalty(self.diagonal * unit, self.others * unit * (n_classes - 1), self.others * unit)

    @property
    def name(self) -> str:
        """In a word and its strength."""
        if self.matrix is None:
            return "temperature"
        return f"{'matrix' if self.matrix else 'vector'} {self.others:g}"

    def describe(self, scaling: Scaling) -> dict[str, Any]:
        """What was fitted, for the report of a fit."""
        if self.matrix is None:
            return {"chosen": "temperature"}
        return {
            "chosen": "matrix" if self.matrix else "vector",
            "strength": self.others,
            "passes": scaling.affine.passes,
            "converged": scaling.affine.converged,
        }


class Scaling(NamedTuple):
    """A fitted recipe."""

    kind: str
    temperature: float
    affine: Affine

    def front(self, *, order_preserving: bool = False) -> Front:
        """As it is applied. Weights are rounded to float32: more digits say nothing, and files stay small."""
        weights, intercept = (np.asarray(part, dtype=np.float32) for part in self.affine[:2])
        return Front(self.kind, self.temperature, weights, intercept, order_preserving)


@without_warnings
def scores_of(front: Front, logits: Array) -> Array:
    """What stands before the focal map, in the logits' library and the precision to compute in."""
    x, _ = as_floating(logits, "logits", "predict")
    xp, device = namespace(x), array_api_compat.device(x)
    weights, intercept = (xp.asarray(part, dtype=x.dtype, device=device) for part in (front.weights, front.intercept))
    return front._replace(weights=weights, intercept=intercept).scores(xp, x)


def as_rows(logits: Array, labels: Array, weight: Vector | None) -> Rows:
    """Checked data as NumPy arrays; rows of weight 0 are left out."""
    x, _ = as_floating(to_numpy(logits), "logits", "fit")
    rows = Rows(x, to_numpy(labels).astype(np.int64, copy=False), weight)
    return rows if weight is None else rows.part(weight > 0.0)


def fit_scalings(rows: Rows, recipes: list[Recipe], gain: float = SMALL_GAIN) -> Iterator[Scaling]:
    """One scaling after the other, each from where the last of its shape ended, all at the temperature of the rows."""
    temperature = newton_temperature(Problem.of(*rows)).temperature
    n_classes = rows.logits.shape[1]
    n_rows = len(rows.labels) if rows.weight is None else float(rows.weight.sum())  # a weight of 2 is a row twice
    last: dict[tuple[str, bool], Affine] = {}
    z: dict[str, NDArray[Any]] = {}
    for recipe in recipes:
        if recipe.matrix is None:
            yield Scaling(recipe.kind, temperature, Affine(np.ones(n_classes), np.zeros(n_classes)))
            continue
        key = recipe.kind, recipe.matrix
        if recipe.kind not in z:
            z[recipe.kind] = features(np, rows.logits, recipe.kind, temperature)
        last[key] = fit_affine(
            z[recipe.kind],
            rows.labels,
            rows.weight,
            recipe.penalty(n_rows, n_classes),
            matrix=recipe.matrix,
            start=last.get(key),
            gain=gain,
        )
        yield Scaling(recipe.kind, temperature, last[key])


def out_of_fold(
    rows: Rows, recipes: list[Recipe], n_folds: int, seed: int, *, order_preserving: bool = False
) -> list[NDArray[Any]]:
    """Scores (N, C) of every recipe, each row's by scalings that were fitted without it."""
    fold = _folds(rows.labels, n_folds, seed)
    found = [np.empty_like(rows.logits) for _ in recipes]
    for i in range(n_folds):
        held_out = fold == i
        for scores, scaling in zip(found, fit_scalings(rows.part(~held_out), recipes, COARSE_GAIN), strict=True):
            scores[held_out] = scores_of(scaling.front(order_preserving=order_preserving), rows.logits[held_out])
    return found


def losses(rows: Rows, scores: NDArray[Any], gamma: float = 0.0, temperature: float = 1.0) -> Vector:
    """The log-loss of every row under focal temperature scaling of the scores."""
    return -Problem(scores, rows.labels).predictions((gamma,), temperature)[0].label_log_p


def _folds(labels: NDArray[np.int64], n_folds: int, seed: int) -> NDArray[np.int64]:
    """A fold for each row, every class spread evenly over them."""
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    fold = np.empty(len(labels), dtype=np.int64)
    fold[by_class] = np.arange(len(labels)) % n_folds
    return fold
