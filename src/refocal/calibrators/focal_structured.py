"""Focal structured scaling: a structured scaling chosen by cross-validation, then the focal map and a temperature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal.calibrators._crossfit import (
    MIN_ROWS,
    Recipe,
    fit_scalings,
    folds,
    losses,
    mean_and_error,
    out_of_fold,
    usable_rows,
)
from refocal.calibrators._fitted import Fitted
from refocal.calibrators.scaling import AffineCalibrator, behind, check_cross_fitting, untouched
from refocal.engine import Block, Dataset
from refocal.fitting import Solution, Surface, find
from refocal.maps.steps import Chain

# The candidates: temperature scaling alone, a vector, and matrices with strong to weak ridges.
TEMPERATURE = Recipe("tempered", None)
VECTOR = Recipe("tempered", False)
MATRICES = tuple(Recipe("tempered", True, strength, strength) for strength in (3.0, 1.0, 0.3, 0.1))
# A matrix is tried if it has at most this many entries per row.
MAX_ENTRIES = 10
# The largest share of temperature scaling's log-loss that may be lost, and the standard errors added to the loss.
MAX_LOSS, STANDARD_ERRORS = 0.005, 2.0


class FocalStructuredScaling(AffineCalibrator):
    """Structured scaling, then focal temperature scaling; never far from temperature scaling on too few rows.

    The candidates are temperature scaling, structured vector scaling, and structured matrix scaling of several
    strengths. Each is fitted on all folds but one and predicts that one. The candidate of least out-of-fold log-loss is
    taken, and γ and T are searched on its out-of-fold predictions. The result must not be worse than temperature
    scaling: the difference of their out-of-fold log-losses, plus two standard errors, may be 0.5 % at most. Otherwise
    a simpler candidate is tried, at last temperature scaling itself. What was chosen is then refitted on all rows.

    Parameters
    ----------
    objective, nll_tolerance
        What γ and T minimise, as for `FocalTemperatureScaling`.
    order_preserving : bool
        Keep the model's most probable class, and so the accuracy: where the scaling would put another class on top,
        the two share their probability.
    n_folds, random_state : int
        Of the cross-fitting.
    input : "logits" or "probabilities"
        What the columns hold.

    Attributes
    ----------
    choice_ : dict
        The candidate, "temperature", "vector" or "matrix", with the out-of-fold log-losses of all.

    Examples
    --------
    >>> import numpy as np
    >>> from refocal.maps import inverse_focal
    >>> rng = np.random.default_rng(0)
    >>> log_p = 2.0 * rng.normal(size=(3000, 4))
    >>> labels = np.argmax(log_p + [1.0, 0.0, 0.0, -1.0] + rng.gumbel(size=log_p.shape), axis=1)
    >>> calibrator = FocalStructuredScaling().fit(inverse_focal(log_p, gamma=3.0), labels)
    >>> calibrator.choice_["chosen"] != "temperature", calibrator.gamma_ > 0.0
    (True, True)
    """

    def __init__(
        self,
        *,
        objective: Any = "auto",
        nll_tolerance: float | None = None,
        order_preserving: bool = False,
        n_folds: int = 5,
        random_state: int = 0,
        input: str = "logits",  # noqa: A002
    ) -> None:
        self.objective = objective
        self.nll_tolerance = nll_tolerance
        self.order_preserving = order_preserving
        self.n_folds = n_folds
        self.random_state = random_state
        self.input = input

    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> Fitted:
        check_cross_fitting(self.n_folds, self.random_state, type(self).__name__)
        rows, keep = usable_rows(self._block_of(dataset), there=True), bool(self.order_preserving)
        recipes = _candidates(rows.n_rows, rows.n_classes)
        if rows.n_rows < max(MIN_ROWS, self.n_folds):
            (scaling,) = fit_scalings(rows, [TEMPERATURE])
            self._search(rows, Chain((scaling.step(),)).scores(rows.logits))  # bad settings are errors on few rows too
            step = scaling.step(order_preserving=keep)
            return behind(step, untouched(scaling), None, TEMPERATURE.describe(scaling))
        fold = folds(rows.labels, self.n_folds, self.random_state)
        scores = out_of_fold(rows, recipes, fold, order_preserving=keep)
        recipe, solution, path, tried = self._choose(rows, recipes, scores)
        (scaling,) = fit_scalings(rows, [recipe])
        choice = recipe.describe(scaling) | {"log_loss_out_of_fold": tried}
        return behind(scaling.step(order_preserving=keep), solution or untouched(scaling), path, choice)

    def _choose(
        self, rows: Block, recipes: list[Recipe], scores: list[NDArray[Any]]
    ) -> tuple[Recipe, Solution | None, Surface | None, dict[str, float]]:
        """The first candidate that passes, from the one of least loss on to simpler ones; γ and T unless none does."""
        loss = [losses(rows, each) for each in scores]
        mean = [rows.average(each) for each in loss]
        tried = {recipe.name: value for recipe, value in zip(recipes, mean, strict=True)}
        best = int(np.argmin(mean))
        for i in dict.fromkeys((best, min(best, 1), 0)):
            solution, path = self._search(rows, scores[i])
            found = losses(rows, scores[i], solution.gamma, solution.temperature)
            lost, error = mean_and_error(rows, found - loss[0])
            if lost + STANDARD_ERRORS * error <= MAX_LOSS * mean[0]:
                return recipes[i], solution, path, tried
        return TEMPERATURE, None, None, tried

    def _search(self, rows: Block, scores: NDArray[Any]) -> tuple[Solution, Surface | None]:
        return find(
            Block(scores, rows.labels, rows.weight),
            objective=self.objective,
            search="auto",
            nll_tolerance=self.nll_tolerance,
            function=type(self).__name__,
        )


def _candidates(n_rows: int, n_classes: int) -> list[Recipe]:
    """The candidates, the simplest first."""
    return [TEMPERATURE, VECTOR, *(MATRICES if n_classes**2 <= MAX_ENTRIES * n_rows else ())]
