"""Scalings fitted on all rows, and their predictions for rows that they were not fitted on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import array_api_compat
import numpy as np

from refocal._arrays import Array, Indices, Vector, as_floating, in_library_of, namespace, to_numpy
from refocal.calibrators import _settings as setting
from refocal.calibrators._affine import COARSE, TIGHT, Scaling, fit_affine, with_features
from refocal.calibrators._base import Calibrator
from refocal.calibrators._fitted import HasFocalPoint
from refocal.engine import Block, Dataset
from refocal.fitting.lbfgs import Ends
from refocal.fitting.temperature import newton_temperature
from refocal.maps.affine import transform
from refocal.maps.chain import Chain
from refocal.maps.steps import Affine

# Fewer rows than this are not divided further.
MIN_ROWS = 100


@dataclass(kw_only=True, eq=False, repr=False)
class CrossFitted(HasFocalPoint, Calibrator):
    """A calibrator that chooses a scaling by its predictions for rows that it was not fitted on."""

    n_folds: int = setting.integer(5, least=2)
    random_state: int = setting.integer(0, least=0)
    input: str = "logits"

    @property
    def choice_(self) -> dict[str, Any]:
        """What was fitted, from `fit_report_`."""
        return dict(self.fit_report_.get("scaling", {}))


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
        """The `ridge` of `fit_affine`."""
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

    def describe(self, scaling: Scaling) -> dict[str, Any]:
        """What was fitted, for the report of a fit."""
        how = {"strength": self.others, "passes": scaling.passes, "converged": scaling.converged}
        return {"chosen": self.word} if self.matrix is None else {"chosen": self.word, **how}


# The candidates of `AutoCalibration`: temperature scaling alone, a vector, and matrices with strong to weak ridges.
TEMPERATURE = Recipe("tempered", None)
VECTOR = Recipe("tempered", False)
MATRICES = tuple(Recipe("tempered", True, strength, strength) for strength in (30.0, 10.0, 3.0, 1.0))


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
    last: dict[tuple[str, bool], Scaling] = {}
    for recipe in recipes:
        if recipe.matrix is None:
            yield Scaling(recipe.kind, temperature, np.ones(n_classes), np.zeros(n_classes), value)
            continue
        key = recipe.kind, recipe.matrix
        ridge = recipe.ridge(dataset.total_weight, n_classes)  # a weight of 2 is a row twice
        last[key] = fit_affine(dataset, recipe.kind, temperature, ridge, start=last.get(key), ends=ends)
        yield last[key]


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
    step, z = scaling.step(order_preserving=order_preserving), rows.memo.get((scaling.kind, scaling.temperature))
    if z is None or not isinstance(step, Affine):
        return Chain((step,)).scores(logits)
    found = transform(z, step.weights, step.intercept)
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
