"""The focal family: temperature scaling, focal calibration, and focal temperature scaling, which composes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np

from refocal._arrays import Vector
from refocal._validation import INPUTS, check_class_weight, check_integer, check_number, check_option
from refocal.calibrators import settings as setting
from refocal.calibrators._base import Calibrator
from refocal.calibrators.fitted import Fitted, HasFocalPoint
from refocal.engine import Dataset
from refocal.errors import ParameterError
from refocal.fitting import Solution, find
from refocal.fitting.offset import fit_offset
from refocal.maps.chain import Chain, Step
from refocal.maps.steps import Focal, Offset, Temperature, Unsmooth
from refocal.rows.gate import in_order_of_classes


@dataclass(kw_only=True, eq=False, repr=False)
class _FocalFamily(HasFocalPoint, Calibrator):
    """γ and T, found by a search: `gamma_`, `temperature_`, `solution_`, and the searched surface in `path_`.

    Without class weights the order of the classes is never changed, so neither is accuracy.
    """

    objective: Any = "auto"
    search: str = setting.option("auto", "newton", "grid", "line")
    nll_tolerance: float | None = None
    class_weight: Any = None
    input: str = "logits"
    searched: ClassVar[tuple[type[Step], ...]] = (Temperature, Focal)
    """The steps whose parameters are searched for; the others are left out."""

    @property
    def class_weight_(self) -> Vector | None:
        """The class weights that are removed, of geometric mean 1; None if there are none."""
        offset = self.chain_.find(Offset, "offset")
        return None if offset is None else np.exp(np.mean(offset) - offset)

    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> Fitted:
        # The arguments of the search, and what they are where a calibrator has no such setting.
        searched = {"objective": "nll", "search": "auto", "gammas": 0.0, "temperatures": 1.0, "nll_tolerance": None}
        options: dict[str, Any] = {name: getattr(self, name, fixed) for name, fixed in searched.items()}
        name = type(self).__name__
        if self.search == "line" and len(self.searched) < 2:
            expected = "'auto', 'newton' or 'grid', since a line needs both γ and T"
            raise ParameterError("search", name, expected=expected, got="'line'")
        if getattr(self, "gamma", None) is not None:  # the one that a FocalCalibration was given
            options["gammas"] = self.gamma
            if self.class_weight is None:
                options["search"] = "grid"
        if self.class_weight is not None:
            solution, offset = self._fit_weighted(dataset, **options)
            return Fitted(Chain((*self._searched_steps(solution), Offset(offset))), solution)
        solution, path = find(dataset, function=name, progress=progress, **options)
        return Fitted(Chain(self._searched_steps(solution)), solution, path)

    def _searched_steps(self, solution: Solution) -> tuple[Step, ...]:
        """The steps whose parameters were searched for."""
        both = (Temperature(solution.temperature), Focal(solution.gamma))
        return tuple(step for step in both if isinstance(step, self.searched))

    def _fit_weighted(
        self, dataset: Dataset, objective: Any, search: str, gammas: Any, temperatures: Any, nll_tolerance: float | None
    ) -> tuple[Solution, Vector]:
        """γ and T, unless given, by the log-loss; and what is added to each class to remove the class weights."""
        name = type(self).__name__
        for argument, value, fit in (
            ("objective", objective, ("auto", "nll")),
            ("search", search, ("auto", "newton")),
            ("nll_tolerance", nll_tolerance, (None,)),
        ):
            if value not in fit:
                expected = f"{' or '.join(map(repr, fit))} together with class_weight, which is fitted by the log-loss"
                raise ParameterError(argument, name, expected=expected, got=repr(value))
        gamma, temperature = (
            None if value is None else check_number(value, argument, name, above=above, also="with class_weight, ")
            for argument, value, above in (("gammas", gammas, -1.0), ("temperatures", temperatures, 0.0))
        )
        known: Vector | None = None
        if not (isinstance(self.class_weight, str) and self.class_weight == "fit"):
            classes = np.arange(dataset.n_classes) if dataset.classes is None else dataset.classes
            weight = in_order_of_classes(self.class_weight, classes.tolist(), "class_weight", f"{name}.fit")
            like = np.zeros(dataset.n_classes)
            known = -np.log(check_class_weight(weight, f"{name}.fit", like=like, also="'fit' or "))
        return fit_offset(dataset, known, gamma, temperature)


@dataclass(kw_only=True, eq=False, repr=False)
class TemperatureScaling(_FocalFamily):
    """Temperature scaling: softmax(logits / T), with T chosen on held-out data.

    Parameters
    ----------
    objective : "nll", "ece", "auto", the name of a metric of `refocal.metrics`, or a callable
        What T minimises; a callable takes (y_true, probabilities) and returns a float.
    search : "auto", "newton" or "grid"
        "newton" finds the exact minimum of the log-loss; "grid" tries `temperatures` (the paper's by default);
        "auto" is "newton" for the log-loss and otherwise a grid around its optimum, so that the scale of the logits
        does not matter; or the `temperatures`, where several are given.
    temperatures : list of float, optional
        The temperatures of a grid.
    nll_tolerance : float, optional
        Consider only points whose log-loss is at most (1 + tolerance) times the best one.
    class_weight : array of C numbers, mapping, Series or "fit", optional
        The weights of the classes in the training loss, in the order of the columns, or by class: they are removed
        after the map.
        "fit" estimates them. The objective is then the log-loss, and the order of the classes may change.
    input : "logits" or "probabilities"
        What the columns hold.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(5000, 10))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> calibrator = TemperatureScaling().fit(3.0 * logits, labels)
    >>> round(calibrator.temperature_, 1)
    3.0
    """

    objective: Any = "nll"
    temperatures: Any = None
    searched: ClassVar[tuple[type[Step], ...]] = (Temperature,)


@dataclass(eq=False, repr=False)
class FocalCalibration(_FocalFamily):
    """The focal calibration map alone, at T = 1: for networks trained with focal loss.

    Parameters
    ----------
    gamma : float, optional
        The γ > -1 of the map, such as the one of the training loss; None finds it by the search.
    objective, search, gammas, nll_tolerance
        As for `FocalTemperatureScaling`; used if `gamma` is None.
    class_weight, input
        As for `FocalTemperatureScaling`.

    Examples
    --------
    >>> import numpy as np
    >>> calibrator = FocalCalibration(gamma=2.0).fit(np.log([[0.6, 0.4], [0.3, 0.7]]), [0, 1])
    >>> calibrator.predict_proba(np.log([[0.6266, 0.3734]])).round(3)
    array([[0.8, 0.2]])
    """

    gamma: float | None = setting.number(None, above=-1.0, also=None)
    _: KW_ONLY
    gammas: Any = None
    searched: ClassVar[tuple[type[Step], ...]] = (Focal,)

    @classmethod
    def from_training(
        cls,
        gamma: float,
        *,
        class_weight: Any = None,
        alpha: float | None = None,
        label_smoothing: float = 0.0,
        n_classes: int | None = None,
        input: str = "logits",  # noqa: A002
    ) -> Self:
        """A calibrator derived from the settings of the training loss alone, without any rows.

        It inverts the loss: exact for a network that is at the loss's minimum on new rows, which underfitted networks
        and detection heads come close to. With four classes and class weights the log-loss fell from 1.20 to 0.88 (the
        truth has 0.85) where 40,000 rows were trained on. Networks that fit their training set do not: the same
        network trained on 2,000 rows got worse, from 1.46 to 2.20, and its ECE too, and a calibrator fitted on
        held-out rows is needed (docs/guide/focal-loss.md, benchmarks/focal_practice.py).

        Parameters
        ----------
        gamma : float
            γ > -1 of the focal loss; 0 for cross-entropy.
        class_weight : array of C numbers, optional
            The weights of the classes in the loss, in the order of the columns.
        alpha : float, optional
            α of a sigmoid, between 0 and 1: class weights (1-α, α). Predictions take one logit per row, (N,).
        label_smoothing : float
            ε of the smoothed labels. Where a probability is no larger than ε/C it keeps a hundredth of itself.
        n_classes : int, optional
            The number of classes, if neither `class_weight` nor `alpha` determines it.

        Examples
        --------
        >>> import numpy as np
        >>> detector = FocalCalibration.from_training(gamma=2.0, alpha=0.25)
        >>> scores = np.array([0.3, 0.4, 0.5, 0.6])
        >>> detector.predict_proba(np.log(scores / (1 - scores)))[:, 1].round(2)
        array([0.24, 0.5 , 0.75, 0.9 ])
        """
        name = f"{cls.__name__}.from_training"
        check_option(input, INPUTS, "input", name)
        gamma = check_number(gamma, "gamma", name, above=-1.0)
        epsilon = check_number(label_smoothing, "label_smoothing", name, least=0.0, below=1.0)
        if alpha is not None:
            if class_weight is not None:
                raise ParameterError("class_weight", name, expected="left out where alpha is given", got="both")
            alpha = check_number(alpha, "alpha", name, above=0.0, below=1.0)
            class_weight = [1.0 - alpha, alpha]
        if class_weight is not None:  # without rows classes have no names but their numbers
            size = len(class_weight) if hasattr(class_weight, "__len__") else 1
            class_weight = in_order_of_classes(class_weight, range(size), "class_weight", name)
        known = n_classes if class_weight is None else np.size(class_weight)
        if n_classes is not None and n_classes != known:
            raise ParameterError("n_classes", name, expected=f"{known}, as there are weights", got=repr(n_classes))
        if known is None:
            raise ParameterError("n_classes", name, expected="given, or else class_weight or alpha", got="None")
        size = check_integer(known, "n_classes", name, least=2)
        made = cls(gamma, class_weight=class_weight, input=input)
        steps: list[Step] = [Focal(gamma)]
        if class_weight is not None:
            steps.append(Offset(-np.log(check_class_weight(class_weight, name, like=np.zeros(size)))))
        if epsilon > 0.0:
            steps.append(Unsmooth(epsilon))
        report = {"n_samples": 0, "n_classes": size, "before": {}, "after": {}}
        made._set_fitted(Fitted(Chain(tuple(steps))), np.arange(size), report)
        return made


@dataclass(kw_only=True, eq=False, repr=False)
class FocalTemperatureScaling(_FocalFamily):
    """Focal temperature scaling: the logits are divided by T, then the focal calibration map with γ is applied.

    Parameters
    ----------
    objective : "auto", "nll", "ece", the name of a metric of `refocal.metrics`, or a callable
        What is minimised on the data. "auto" balances log-loss and a calibration error averaged over several numbers of
        bins; "ece" is the paper's rule, 15 bins of equal mass; "nll" the log-loss. A callable takes
        (y_true, probabilities) and returns a float.
    search : "auto", "newton", "grid" or "line"
        "newton": the minimum of the log-loss in both parameters. "grid": `gammas` × `temperatures`, the paper's by
        default. "line": the best T for two γ, then along the line through them. "auto": "newton" for the log-loss,
        otherwise a grid around its optimum, so that the scale of the logits does not matter; or the points, where
        several are given.
    nll_tolerance : float, optional
        Consider only points whose log-loss is at most (1 + tolerance) times the best one: 0.02 allows
        up to 2 % more log-loss for better calibration.
    gammas, temperatures : list of float, optional
        The points of a grid; one number fixes the parameter.
    class_weight : array of C numbers, mapping, Series or "fit", optional
        The weights of the classes in the training loss, in the order of the columns, or by class: they are removed
        after the map.
        "fit" estimates them. The objective is then the log-loss, and the order of the classes may change.
    input : "logits" or "probabilities"
        What the columns hold.

    Examples
    --------
    >>> import numpy as np
    >>> from refocal.maps import inverse_focal
    >>> rng = np.random.default_rng(0)
    >>> log_p = 2.0 * rng.normal(size=(20000, 5))
    >>> labels = np.argmax(log_p + rng.gumbel(size=log_p.shape), axis=1)
    >>> trained_with_focal_loss = inverse_focal(log_p, gamma=3.0)
    >>> calibrator = FocalTemperatureScaling(objective="nll").fit(trained_with_focal_loss, labels)
    >>> round(calibrator.gamma_), round(calibrator.temperature_, 1)
    (3, 1.0)
    """

    gammas: Any = None
    temperatures: Any = None
