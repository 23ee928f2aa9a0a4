"""The affine family: vector and matrix scaling, Dirichlet calibration, and their structured forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from refocal._validation import check_integer, check_number
from refocal.calibrators._base import Calibrator
from refocal.calibrators._crossfit import (
    MIN_ROWS,
    Recipe,
    Scaling,
    fit_scalings,
    folds,
    losses,
    out_of_fold,
    usable_rows,
)
from refocal.calibrators._fitted import Fitted, HasFocalPoint
from refocal.engine import Block, Dataset
from refocal.errors import UnsupportedError
from refocal.fitting import Solution, Surface, find
from refocal.fitting.solution import Status
from refocal.maps.chain import Chain, Step
from refocal.maps.steps import Affine, Focal, Temperature

# What strength="auto" chooses from, by the out-of-fold log-loss; the first is the strongest.
STRENGTHS = (10.0, 3.0, 1.0, 0.3, 0.1)
# A matrix of more than so many entries for each row is fitted at strength 1, at once: its choice would take minutes.
MAX_ENTRIES = 20
# How weakly the diagonal of a matrix is held, beside its other entries.
FREE_DIAGONAL = 0.1


class RidgeScaling(HasFocalPoint, Calibrator):
    """W z + b of scaled logits z, shrunk towards temperature scaling by a ridge, and optionally the focal map after it.

    The logits are first divided by `inner_temperature_`, that of temperature scaling; `weights_` and `intercept_` are W
    and b; `gamma_` and `temperature_` follow, 0 and 1 without the focal map. The order of the classes may change:
    `fit_report_["accuracy_change"]` is the change of accuracy on the rows of the fit, `choice_` what was fitted.
    """

    solution_: Solution
    path_: Surface | None = None  # not saved to a file
    _kind: ClassVar[str] = "tempered"
    _matrix: ClassVar[bool] = False

    def __init__(
        self,
        *,
        strength: Any = "auto",
        focal: bool = False,
        n_folds: int = 5,
        random_state: int = 0,
        input: str = "logits",  # noqa: A002
    ) -> None:
        self.strength = strength
        self.focal = focal
        self.n_folds = n_folds
        self.random_state = random_state
        self.input = input

    @property
    def inner_temperature_(self) -> float:
        """The temperature that the logits are divided by first."""
        return float(self.chain_.find(Affine, "inner_temperature"))

    @property
    def weights_(self) -> NDArray[np.float32]:
        """W: a matrix (C, C), or the diagonal of one."""
        return np.asarray(self.chain_.find(Affine, "weights"))

    @property
    def intercept_(self) -> NDArray[np.float32]:
        """b, one number a class."""
        return np.asarray(self.chain_.find(Affine, "intercept"))

    @property
    def choice_(self) -> dict[str, Any]:
        """What was fitted, as the report of the fit says."""
        return dict(self.fit_report_.get("scaling", {}))

    def _recipe(self, strength: float) -> Recipe:
        return Recipe(self._kind, self._matrix, strength, strength)

    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> Fitted:
        check_cross_fitting(self.n_folds, self.random_state, type(self).__name__)
        strength = self._checked_strength()
        dataset.start()
        if not isinstance(dataset, Block):
            return self._fit_once(dataset, strength or 1.0)
        rows = usable_rows(dataset, there=True)
        few = rows.n_rows < max(MIN_ROWS, self.n_folds)
        large = self._matrix and rows.n_classes**2 > MAX_ENTRIES * rows.n_rows
        if strength is None and not (few or large):
            recipes = [Recipe(self._kind, None), *(self._recipe(s) for s in STRENGTHS)]
        else:
            recipes = [self._recipe(strength or 1.0)]
        chosen, scores = 0, None
        if len(recipes) > 1 or (self.focal and not few):
            tried = out_of_fold(rows, recipes, folds(rows.labels, self.n_folds, self.random_state))
            chosen = int(np.argmin([rows.average(losses(rows, each)) for each in tried]))
            scores = tried[chosen]
        (scaling,) = fit_scalings(rows, [recipes[chosen]])
        if self.focal and scores is not None:
            out_of_folds = Block(scores, rows.labels, rows.weight)
            solution, path = find(out_of_folds, objective="auto", search="auto", function=type(self).__name__)
        else:
            solution, path = untouched(scaling), None
        return behind(scaling.step(), solution, path, recipes[chosen].describe(scaling))

    def _fit_once(self, dataset: Dataset, strength: float) -> Fitted:
        """Of data in blocks no folds are made: "auto" is 1, and so many rows leave the ridge little to say."""
        if self.focal:
            raise UnsupportedError(f"{type(self).__name__} with the focal map behind needs all rows in memory.")
        recipe = self._recipe(strength)
        (scaling,) = fit_scalings(dataset, [recipe])
        return behind(scaling.step(), untouched(scaling), None, recipe.describe(scaling))

    def _checked_strength(self) -> float | None:
        """None if the data are to choose."""
        if isinstance(self.strength, str) and self.strength == "auto":
            return None
        return check_number(self.strength, "strength", type(self).__name__, above=0.0, also="'auto' or ")


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
        rule.
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

    def _recipe(self, strength: float) -> Recipe:
        return Recipe(self._kind, self._matrix, FREE_DIAGONAL * strength, strength)


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

    def __init__(
        self,
        *,
        strength: Any = 1.0,
        focal: bool = False,
        n_folds: int = 5,
        random_state: int = 0,
        input: str = "logits",  # noqa: A002
    ) -> None:
        super().__init__(strength=strength, focal=focal, n_folds=n_folds, random_state=random_state, input=input)


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


def untouched(scaling: Scaling) -> Solution:
    """γ = 0 and T = 1: the scaling as it is."""
    if scaling.affine.converged:
        status: Status = "converged"
        message = "log-loss and ridge together have their minimum here"
    else:
        status = "not converged"
        message = "the scaling has not settled: it lies between temperature scaling and its aim, and can be used"
    return Solution(0.0, 1.0, scaling.affine.log_loss, status, message, scaling.affine.passes)


def behind(scaling: Step, solution: Solution, path: Surface | None, choice: dict[str, Any]) -> Fitted:
    """A scaling, and behind it the focal map and the temperature that were found, unless they change nothing."""
    point = (solution.gamma, solution.temperature)
    steps = () if point == (0.0, 1.0) else (Temperature(solution.temperature), Focal(solution.gamma))
    return Fitted(Chain((scaling, *steps)), solution, path, {"scaling": choice})


def check_cross_fitting(n_folds: Any, random_state: Any, function: str) -> None:
    """Two folds or more, and a seed."""
    for argument, value, least in (("n_folds", n_folds, 2), ("random_state", random_state, 0)):
        check_integer(value, argument, function, least=least)
