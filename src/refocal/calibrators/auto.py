"""The default: a scaling of the classes, the focal map and a curve of the confidence, as far as the rows allow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import xlogy

from refocal._arrays import Vector, to_numpy
from refocal.calibrators._cross_fitted import CrossFitted
from refocal.calibrators.fitted import Fitted
from refocal.engine import Block, Dataset
from refocal.engine.sampling import sampled
from refocal.errors import FitWarning, warn
from refocal.fitting import affine
from refocal.fitting.affine import EXACT, TIGHT, Recipe
from refocal.fitting.confidence import IDENTITY, Tail, draft_tail, fit_tail, two_class_step
from refocal.fitting.temperature import laplace_temperature, newton_temperature
from refocal.maps.chain import Chain
from refocal.maps.steps import KeepTop, Temperature

# The rows for each entry of a matrix from which on all matrices are tried.
ROWS_PER_ENTRY = 20
# With more classes for each row, as in a vocabulary, not even an intercept per class is tried: most never occur.
CLASSES_PER_ROW = 10
# The most rows, and the most logits, that all but the last fit of the scaling use: more would change the log-loss by
# less than 1e-4.
SCALING_ROWS = 100_000
SCALING_ENTRIES = 1 << 25
# The simplest scaling that is worse than the best by at most this number of standard errors is chosen.
STANDARD_ERRORS = 0.25


@dataclass(kw_only=True, eq=False, repr=False)
class AutoCalibration(CrossFitted):
    """The calibrator to start with: as much of a scaling, the focal map and a confidence curve as the rows support.

    Three classes or more:

    1. Temperature scaling, vector scaling with an intercept for each class, or a matrix, all shrunk towards temperature
       scaling by a ridge. They are compared by out-of-fold log-loss after the next two steps; the simplest within a
       quarter of a standard error of the best is chosen and refitted on all rows.
    2. The focal map with γ, and a temperature T.
    3. A curve of the confidence: a monotone quadratic spline from the log-odds of the top class to calibrated ones. The
       other classes share the remaining probability as before, and the top class stays on top.

    γ, T and the curve are fitted together by log-loss on the out-of-fold scores, and shrunk towards 0, 1 and the
    identity. The curve is the mean of six that are shrunk more or less, weighted by their evidence.

    Two classes: a slope and an intercept of the log-odds, by targets halfway from the labels to Platt's, the slope
    shrunk towards 1 on few rows; followed by a monotone curve. The intercept corrects models with wrong class shares,
    as with `class_weight="balanced"`.

    On few rows the result is close to temperature scaling; n rows without an error count as right with probability
    (n+1)/(n+2), by Laplace's rule. Every part is chosen by log-loss, and nothing by ECE.

    Parameters
    ----------
    order_preserving : bool
        Keep the most probable class of every row, and so the accuracy. By default the scaling may change it; with two
        classes the threshold then moves from 1/2 to where the two classes are equally frequent.
    n_folds, random_state : int
        The number of folds of the cross-fitting, and their seed.
    input : "logits" or "probabilities"
        What the columns hold. Probabilities of 0 count as half the smallest other one among the rows of the fit, and
        so do those of new rows that are smaller still.

    Attributes
    ----------
    report_ : str
        What was chosen and why, and what was left out because there are too few rows.
    choice_ : dict
        The same as numbers: what was chosen, with the out-of-fold log-losses of all candidates; on few rows the
        log-loss of the fit.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> log_p = 2.0 * rng.normal(size=(3000, 4))
    >>> labels = np.argmax(log_p + [1.0, 0.0, 0.0, -1.0] + rng.gumbel(size=log_p.shape), axis=1)
    >>> calibrator = AutoCalibration().fit(3.0 * log_p, labels)
    >>> calibrator.choice_["chosen"]
    'vector'
    >>> print(calibrator.report_.splitlines()[0])
    A vector scaling with an intercept for each class was chosen.
    """

    order_preserving: bool = False
    chooses: ClassVar[bool] = True

    @property
    def report_(self) -> str:
        """What was chosen and why, one sentence per line."""
        return "\n".join(self.fit_report_.get("sentences", ()))

    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> Fitted:
        dataset.start()
        # There are too few rows of a vocabulary to tell even one parameter for each class.
        n_rows = min(dataset.n_rows, SCALING_ENTRIES // dataset.n_classes)
        is_vocabulary = n_rows * CLASSES_PER_ROW < dataset.n_classes
        rows, whole = _sample(dataset, is_vocabulary)
        few = rows.n_rows < max(affine.MIN_ROWS, self.n_folds)
        if rows.n_classes == 2:
            chain, choice = self._two_classes(rows, few)
        elif rows is whole and rows.correct.all():
            chain = Chain((Temperature(laplace_temperature(rows)),))
            choice = {"chosen": "laplace"}
        elif few or is_vocabulary:
            chain, choice = self._only_temperature(whole, rows)
        else:
            chain, choice = self._many_classes(whole, rows)
        references = _references(rows)
        sentences = _sentences(rows, choice, few, references)
        warnings = _warnings(choice, references)
        for warning in warnings:
            warn(f"{type(self).__name__}.fit: {warning}", FitWarning)
        return Fitted(chain, notes={"scaling": choice, "sentences": sentences + warnings})

    def _two_classes(self, rows: Block, few: bool) -> tuple[Chain, dict[str, Any]]:
        """A line and a curve of the log-odds; their log-loss is cross-validated unless there are few rows."""
        choice: dict[str, Any] = {"chosen": "curve", "name": "curve"}
        if not few:
            fold = affine.folds(rows, self.n_folds, self.random_state)
            losses = np.empty(rows.n_rows)
            for i in range(self.n_folds):
                step = two_class_step(rows.take(fold != i))
                held_out = rows.take(fold == i)
                losses[fold == i] = affine.losses(held_out, Chain((step,)).scores(held_out.logits))
            choice["log_loss_out_of_fold"] = {"curve": rows.average(losses)}
        step = two_class_step(rows)
        return Chain((KeepTop((step,)) if self.order_preserving else step,)), choice

    def _only_temperature(self, whole: Dataset, rows: Block) -> tuple[Chain, dict[str, Any]]:
        """Temperature scaling and a tail; `log_loss` is that of the rows of the fit."""
        temperature = newton_temperature(whole).temperature
        candidate = _Candidate(affine.TEMPERATURE, rows, *draft_tail(rows, _after(temperature)))
        log_losses = {candidate.recipe.name: rows.average(candidate.losses)}
        return self._fitted(whole, rows, candidate, temperature, {"log_loss": log_losses})

    def _many_classes(self, whole: Dataset, rows: Block) -> tuple[Chain, dict[str, Any]]:
        """The simplest scaling that is not clearly worse than the best on rows left out, and a tail.

        Temperature scaling, the vector and the best of the matrices are compared after their tails; the matrices among
        each other without.
        """
        temperature = newton_temperature(whole).temperature
        recipes = [affine.VECTOR, *_matrices(rows)]
        fold = affine.folds(rows, self.n_folds, self.random_state)
        scores = affine.out_of_fold(
            rows, recipes, fold, order_preserving=bool(self.order_preserving), temperature=temperature
        )
        compared = [0]
        if len(recipes) > 1:
            log_losses = [rows.average(affine.losses(rows, of_matrix)) for of_matrix in scores[1:]]
            compared.append(1 + int(np.argmin(log_losses)))
        first = _Candidate(affine.TEMPERATURE, rows, *draft_tail(rows, _after(temperature)))
        candidates = [first]
        for i in compared:
            scaled = Block(scores[i], rows.labels, rows.weight)
            start = first.tail._replace(inner_temperature=1.0)
            candidates.append(_Candidate(recipes[i], scaled, *draft_tail(scaled, start)))
        chosen = candidates[_simplest(rows, [candidate.losses for candidate in candidates])]
        out_of_fold = {candidate.recipe.name: rows.average(candidate.losses) for candidate in candidates}
        return self._fitted(whole, rows, chosen, temperature, {"log_loss_out_of_fold": out_of_fold})

    def _fitted(
        self, whole: Dataset, rows: Block, chosen: _Candidate, temperature: float, log_losses: dict[str, Any]
    ) -> tuple[Chain, dict[str, Any]]:
        """The chain of the chosen scaling, fitted on all rows, and its tail; and what was chosen, for the report."""
        tail = fit_tail(chosen.scaled, chosen.tail)
        # Rows outside the sample are not summed in the order of their keys: an exact end hides what the order changes.
        accuracy = TIGHT if whole is rows else EXACT
        (scaling,) = affine.fit_scalings(whole, [chosen.recipe], accuracy, temperature=temperature)
        choice = scaling.choice | {
            "name": chosen.recipe.name,
            **log_losses,
            "gamma": tail.gamma,
            "temperature": tail.temperature,
        }
        if chosen.recipe.shape == "temperature":  # one temperature instead of two
            return Chain((Temperature(temperature * tail.temperature), *tail.steps[1:])), choice
        return Chain((scaling.step(order_preserving=bool(self.order_preserving)), *tail.steps)), choice


class _Candidate(NamedTuple):
    """A scaling, the rows after it (out of fold where it has parameters), a tail, and the log-loss of every row."""

    recipe: Recipe
    scaled: Block
    tail: Tail
    losses: Vector


def _after(temperature: float) -> Tail:
    """The start of a tail of rows that are divided by a temperature first."""
    return IDENTITY._replace(inner_temperature=temperature)


def _matrices(rows: Block) -> tuple[Recipe, ...]:
    """The matrices that there are enough rows for: all of them, the two with the strongest ridges, or none."""
    if rows.n_rows < _least_rows(rows.n_classes):
        return ()
    return affine.MATRICES if rows.n_rows >= ROWS_PER_ENTRY * rows.n_classes**2 else affine.MATRICES[:2]


def _least_rows(n_classes: int) -> int:
    """How many rows a matrix needs: five for each entry, and more with many classes, where it takes longest."""
    many_classes = 30
    return (5 if n_classes < many_classes else ROWS_PER_ENTRY) * n_classes**2


def _sample(dataset: Dataset, is_vocabulary: bool) -> tuple[Block, Dataset]:
    """A sample of the rows, and all rows; both are the same object if the sample has all of them.

    Sampled rows are in the order of their keys, which are computed from their values, so that a fit does not depend on
    the order of the rows or on blocks. Those of a vocabulary keep their order: nothing is fitted to single classes.
    """
    n_rows = min(SCALING_ROWS, SCALING_ENTRIES // dataset.n_classes)
    if not isinstance(dataset, Block):
        rows: Block = dataset.look(affine.usable_rows, min(n_rows, dataset.n_rows))
        return rows, (rows if rows.n_rows == dataset.n_rows else dataset)
    if is_vocabulary:
        usable = affine.counted_rows(dataset)
        rows = usable if usable.n_rows <= n_rows else usable.part(n_rows)
    else:
        usable = affine.usable_rows(dataset, keep_on_gpu=dataset.n_classes > 2)
        rows = sampled(usable, n_rows, dataset.floor)
    return rows, (rows if rows.n_rows == usable.n_rows else usable)


def _simplest(rows: Block, losses: Sequence[Vector]) -> int:
    """The first candidate that is not clearly worse than the best, by the log-losses (N,) of each."""
    best = int(np.argmin([rows.average(of_candidate) for of_candidate in losses]))
    for i in range(best):
        excess = losses[i] - losses[best]
        mean = rows.average(excess)
        standard_error = float(np.sqrt(np.sum(rows.weights**2 * (excess - mean) ** 2))) / rows.total_weight
        if mean <= STANDARD_ERRORS * standard_error:
            return i
    return best


SCALINGS = {
    "curve": "A slope and an intercept of the log-odds, followed by a monotone curve, were fitted.",
    "laplace": "Every row is right, so the temperature was fitted as if each were right with probability (n+1)/(n+2).",
    "temperature": "Temperature scaling was chosen: no richer scaling was clearly better on rows left out.",
    "only temperature": "Temperature scaling was fitted.",
    "vector": "A vector scaling with an intercept for each class was chosen.",
    "matrix": "A matrix scaling was chosen.",
}


def _sentences(rows: Block, choice: dict[str, Any], few: bool, references: dict[str, float]) -> list[str]:
    """What was chosen and why, and what to beware of."""
    tried = choice.get("log_loss_out_of_fold", {})
    only_temperature = "log_loss" in choice
    sentences = [SCALINGS["only temperature" if only_temperature else choice["chosen"]]]
    if choice["chosen"] == "laplace":
        return sentences
    if tried:
        values = ", ".join(f"{name} {value:.4f}" for name, value in (tried | references).items() if value < math.inf)
        sentences.append(f"Log-loss on rows left out: {values}.")
    if "gamma" in choice:
        sentences.append(
            f"It is followed by the focal map with γ = {choice['gamma']:.2f}, T = {choice['temperature']:.2f} and a "
            "curve of the confidence, fitted together by log-loss."
        )
    if few:
        left_out = "a scaling of the classes was left out" if rows.n_classes > 2 else "nothing was cross-validated"
        sentences.append(f"With {rows.n_rows:,} rows, fewer than {affine.MIN_ROWS}, {left_out}.")
    elif only_temperature:
        sentences.append(
            f"A scaling of the {rows.n_classes:,} classes was left out: there are more than {CLASSES_PER_ROW} for each "
            "row."
        )
    elif rows.n_classes > 2 and "matrix" not in " ".join(tried):
        needed = _least_rows(rows.n_classes)
        sentences.append(f"A matrix scaling was left out: it needs {needed:,} rows for {rows.n_classes:,} classes.")
    return sentences


def _references(rows: Block) -> dict[str, float]:
    """Log-losses that a calibrator should stay below."""
    share = np.bincount(to_numpy(rows.labels), weights=rows.weight, minlength=rows.n_classes) / rows.total_weight
    # Shares of classes that occur once say nothing about other rows.
    by_share = -float(xlogy(share, share).sum()) if rows.n_classes < rows.n_rows else math.inf
    before = rows.means("temperature", 1.0, rough=True)[0]
    return {"no calibration": before, "predicting the share of each class": by_share}


def _warnings(choice: dict[str, Any], references: dict[str, float]) -> list[str]:
    """Warnings about references that the result is worse than, on rows left out where there are such."""
    where = "the rows of the fit" if "log_loss" in choice else "rows left out"
    log_losses = choice.get("log_loss", choice.get("log_loss_out_of_fold", {}))
    log_loss = log_losses.get(choice.get("name"), math.nan)
    return [
        f"On {where} the log-loss, {log_loss:.4f}, is higher than that of {reference}, {value:.4f}."
        for reference, value in references.items()
        if log_loss > value
    ]
