"""Scalings of logits: vector, matrix and Dirichlet, their structured forms, and ensemble temperature scaling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize

from refocal._arrays import Vector, to_numpy
from refocal.calibrators import settings as setting
from refocal.calibrators._base import FLOOR, Calibrator
from refocal.calibrators._cross_fitted import CrossFitted
from refocal.calibrators.fitted import Fitted
from refocal.engine import Block, Dataset
from refocal.engine.scoring import predictions_of
from refocal.errors import FitWarning, UnsupportedError, warn
from refocal.fitting import Solution, affine, find
from refocal.fitting.affine import Recipe, Shape
from refocal.fitting.folds import folds
from refocal.fitting.solution import Status
from refocal.fitting.temperature import newton_temperature
from refocal.maps.chain import Chain
from refocal.maps.steps import Affine, Focal, Mixture, Temperature, Uniform

# How the search for a scaling can end.
MESSAGES = {
    "converged": "log-loss and ridge together have their minimum here",
    "not converged": "the scaling has not settled: it lies between temperature scaling and its aim, and can be used",
}


@dataclass(kw_only=True, eq=False, repr=False)
class RidgeScaling(CrossFitted):
    """W z + b of scaled logits z, shrunk towards temperature scaling by a ridge, and optionally the focal map after it.

    The logits are first divided by `inner_temperature_`, that of temperature scaling; `weights_` and `intercept_` are W
    and b; `gamma_` and `temperature_` follow, 0 and 1 without the focal map. The order of the classes may change:
    `fit_report_["accuracy_change"]` is the change of accuracy on the rows of the fit, `choice_` what was fitted.
    """

    strength: float | str = setting.number("auto", above=0.0, also="auto")
    focal: bool = setting.flag(default=False)
    _kind: ClassVar[str] = "tempered"
    _matrix: ClassVar[bool] = False
    _diagonal: ClassVar[float] = 1.0

    inner_temperature_ = setting.fitted(Affine, "inner_temperature", float, "What the logits are divided by first.")
    weights_ = setting.fitted(Affine, "weights", np.asarray, "W: a matrix (C, C), or the diagonal of one.")
    intercept_ = setting.fitted(Affine, "intercept", np.asarray, "b, one number per class.")

    def _recipe(self, strength: float) -> Recipe:
        shape: Shape = "matrix" if self._matrix else "vector"
        return Recipe(self._kind, shape, self._diagonal * strength, strength)

    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> Fitted:
        dataset.start()
        rows = affine.usable_rows(dataset, keep_on_gpu=True) if isinstance(dataset, Block) else dataset
        # Rows in blocks are not divided into folds either: "auto" is 1, since the ridge matters little for many rows.
        fewest_rows = 100  # that are divided into folds; the default has its own limit
        undivided = not rows.in_memory or rows.n_rows < max(fewest_rows, self.n_folds)
        # A matrix with more entries for each row is fitted at strength 1 without a choice, which would take minutes.
        max_entries = 20
        large = self._matrix and rows.n_classes**2 > max_entries * rows.n_rows
        # What strength="auto" chooses from, by the out-of-fold log-loss; the first is the strongest.
        strengths = (10.0, 3.0, 1.0, 0.3, 0.1)
        if self.strength == "auto" and not (undivided or large):
            recipes = [Recipe(self._kind, "temperature"), *(self._recipe(s) for s in strengths)]
        else:
            recipes = [self._recipe(1.0 if self.strength == "auto" else float(self.strength))]
        chosen = 0
        out_of_fold: Block | None = None  # the rows after the chosen scaling
        if isinstance(rows, Block) and (len(recipes) > 1 or (self.focal and not undivided)):
            scores = affine.out_of_fold(rows, recipes, folds(rows, self.n_folds, self.random_state))
            chosen = int(np.argmin([rows.average(affine.losses(rows, of_recipe)) for of_recipe in scores]))
            out_of_fold = Block(scores[chosen], rows.labels, rows.weight)
        elif self.focal and not rows.in_memory:
            raise UnsupportedError(f"{type(self).__name__} with focal=True needs all rows in memory.")
        if self.focal and out_of_fold is None:
            least = max(fewest_rows, self.n_folds)
            text = f"focal=True has no effect: it needs {least:,} rows or more. Got {rows.n_rows:,}."
            warn(f"{type(self).__name__}.fit: {text}", FitWarning)
        (scaling,) = affine.fit_scalings(rows, [recipes[chosen]])
        notes = {"scaling": scaling.choice}
        if not self.focal or out_of_fold is None:  # γ = 0 and T = 1: the scaling as it is
            status: Status = "converged" if scaling.converged else "not converged"
            solution = Solution(0.0, 1.0, scaling.log_loss, status, MESSAGES[status], scaling.passes)
            return Fitted(Chain((scaling.step(),)), solution, None, notes)
        solution, path = find(out_of_fold, objective="auto", search="auto", function=type(self).__name__)
        after = (Temperature(solution.temperature), Focal(solution.gamma))
        return Fitted(Chain((scaling.step(), *after)), solution, path, notes)


class VectorScaling(RidgeScaling):
    """Vector scaling (Guo et al. 2017): softmax(w ∘ z + b), one weight and one intercept per class.

    z are the logits divided by the temperature of temperature scaling, and centred. A ridge shrinks w and b towards
    temperature scaling, so that rare classes do not diverge.

    Parameters
    ----------
    strength : "auto" or float
        Strength of the ridge: with 1, C parameters count as C of the n rows. "auto" chooses by the log-loss of
        held-out rows, temperature scaling included.
    focal : bool
        Add the focal map and a temperature, chosen on out-of-fold predictions by `FocalTemperatureScaling`'s default
        rule; with fewer than 100 rows, or than folds, they are left out with a warning.
    n_folds, random_state : int
        The number of folds of the cross-fitting, and their seed.
    input : "logits" or "probabilities"
        What the columns hold.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> logits = 2.0 * rng.normal(size=(4000, 3))
    >>> labels = np.argmax(logits + [1.0, 0.0, 0.0] + rng.gumbel(size=logits.shape), axis=1)
    >>> calibrator = VectorScaling().fit(3.0 * logits, labels)
    >>> bool(calibrator.intercept_[0] - calibrator.intercept_[1] > 0.8)
    True
    """

    _kind = "logits"


class MatrixScaling(RidgeScaling):
    """Matrix scaling (Guo et al. 2017): softmax(W z + b), with off-diagonal and intercept regularisation (ODIR).

    Parameters are those of `VectorScaling`; `strength` applies to the off-diagonal, whose C(C-1) entries count as that
    many of the n rows with 1, and to the intercept. The diagonal is shrunk ten times less. If the matrix has more than
    20 entries per row, "auto" means 1.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> logits = 2.0 * rng.normal(size=(4000, 3))
    >>> mixed = logits @ np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> labels = np.argmax(mixed + rng.gumbel(size=logits.shape), axis=1)
    >>> calibrator = MatrixScaling().fit(logits, labels)
    >>> bool(calibrator.fit_report_["accuracy_change"] > 0.01)
    True
    """

    _kind = "logits"
    _matrix = True
    _diagonal = 0.1


class DirichletCalibration(MatrixScaling):
    """Dirichlet calibration (Kull et al. 2019): softmax(W log p + b), p the model's probabilities, with ODIR.

    `weights_` are those of log p divided by `inner_temperature_`, so that the identity is temperature scaling.
    Parameters as for `MatrixScaling`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> logits = 2.0 * rng.normal(size=(4000, 3))
    >>> labels = np.argmax(logits + [1.0, 0.0, 0.0] + rng.gumbel(size=logits.shape), axis=1)  # more of the first class
    >>> calibrator = DirichletCalibration().fit(3.0 * logits, labels)
    >>> bool(calibrator.intercept_[0] > calibrator.intercept_[1]), calibrator.weights_.shape
    (True, (3, 3))
    """

    _kind = "log-probabilities"


@dataclass(kw_only=True, eq=False, repr=False)
class StructuredVectorScaling(RidgeScaling):
    """Structured vector scaling, in the spirit of Berta et al. (2026): a vector scaling of tempered log-probabilities.

    The log-probabilities after temperature scaling are scaled and shifted for each class. The ridge of each part is its
    number of parameters divided by the number of rows, which needs no search: `strength=1`. The other parameters are
    those of `VectorScaling`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> logits = 2.0 * rng.normal(size=(4000, 3))
    >>> labels = np.argmax(logits + [1.0, 0.0, 0.0] + rng.gumbel(size=logits.shape), axis=1)  # more of the first class
    >>> calibrator = StructuredVectorScaling().fit(3.0 * logits, labels)
    >>> report = calibrator.fit_report_
    >>> report["after"]["log_loss"] < report["before"]["log_loss"] - 0.4
    True
    """

    strength: float | str = setting.number(1.0, above=0.0, also="auto")


class StructuredMatrixScaling(StructuredVectorScaling):
    """Structured matrix scaling, in the spirit of Berta et al. (2026): like the vector form, with a full matrix.

    The ridge is C/n for the diagonal and the intercept, and C(C-1)/n for each off-diagonal entry.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> logits = 2.0 * rng.normal(size=(4000, 3))
    >>> labels = np.argmax(logits + [1.0, 0.0, 0.0] + rng.gumbel(size=logits.shape), axis=1)  # more of the first class
    >>> StructuredMatrixScaling().fit(3.0 * logits, labels).predict_proba([[0.0, 0.0, 0.0]]).argmax()
    np.int64(0)
    """

    _matrix = True


@dataclass(kw_only=True, eq=False, repr=False)
class EnsembleTemperatureScaling(Calibrator):
    """Ensemble temperature scaling (Zhang, Kailkhura & Han 2020).

    p = w₁·softmax(logits / T) + w₂·softmax(logits) + w₃/C: first T, then the weights by the log-loss. Keeps the order
    of the classes. The results are `temperature_` and `weights_`.

    Parameters
    ----------
    input : "logits" or "probabilities"
        What the columns hold.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(5000, 10))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> calibrator = EnsembleTemperatureScaling().fit(3.0 * logits, labels)
    >>> calibrator.weights_.sum().round(12)
    np.float64(1.0)
    """

    input: str = "logits"

    temperature_ = setting.fitted(Temperature, "temperature", float, "T of the first member.")
    weights_ = setting.fitted(Mixture, "weights", np.asarray, "w₁, w₂ and w₃.")

    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> Fitted:
        block = self._block_of(dataset)
        solution = newton_temperature(block)
        members = (Temperature(solution.temperature), Chain(), Uniform())
        predictions = predictions_of([Chain((member,)) for member in members], block)
        log_p = np.stack([to_numpy(of_member.label_log_p) for of_member, _ in predictions])
        weights = _mixture(log_p, block.weights / block.total_weight, FLOOR / (1.0 + block.total_weight))
        return Fitted(Chain((Mixture(members, weights),)), solution)


def _mixture(log_p: Vector, share: Vector, floor: float) -> Vector:
    """The weights of least log-loss, a convex problem; the uniform member keeps every probability above 0."""
    p = np.exp(log_p - log_p.max(axis=0))
    least = np.array([0.0, 0.0, floor])

    def loss(v: Vector) -> tuple[float, Vector]:
        mixed = v @ p
        return -float(share @ np.log(mixed)), -(p / mixed) @ share

    bounds = [(low, 1.0) for low in least]
    start = np.array([0.9, 0.05, 0.05])
    sums_to_1 = {"type": "eq", "fun": lambda v: v.sum() - 1.0, "jac": lambda v: np.ones(3)}
    options = {"ftol": 1e-13, "maxiter": 500}
    result = minimize(loss, start, jac=True, method="SLSQP", bounds=bounds, constraints=sums_to_1, options=options)
    negligible = 1e-9  # a smaller weight counts as 0
    weights = np.maximum(np.where(result.x < negligible, 0.0, result.x), least)
    return np.asarray(weights / weights.sum())
