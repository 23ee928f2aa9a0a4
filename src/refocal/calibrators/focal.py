"""The focal family: temperature scaling, focal calibration, and focal temperature scaling, which composes them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from refocal.calibrators._base import Calibrator
from refocal.calibrators._fitted import Fitted, HasFocalPoint
from refocal.engine import Dataset
from refocal.errors import ParameterError
from refocal.fitting import Solution, Surface, find
from refocal.maps.steps import Chain, Focal, Step, Temperature


class _FocalFamily(HasFocalPoint, Calibrator):
    """γ and T, found by a search: `gamma_`, `temperature_`, `solution_`, and the surface looked at in `path_`.

    The order of the classes is never changed, so neither is accuracy.
    """

    solution_: Solution
    path_: Surface | None = None  # what a file does not keep

    def _steps(self, gamma: float, temperature: float) -> tuple[Step, ...]:
        return Temperature(temperature), Focal(gamma)

    @abstractmethod
    def _options(self) -> dict[str, Any]:
        """What the search is told."""

    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> Fitted:
        solution, path = find(dataset, function=type(self).__name__, progress=progress, **self._options())
        return Fitted(Chain(self._steps(solution.gamma, solution.temperature)), solution, path)


class TemperatureScaling(_FocalFamily):
    """Temperature scaling: softmax(logits / T), with T chosen on held-out data.

    Parameters
    ----------
    objective : "nll", "ece", "auto", the name of a metric of `refocal.metrics`, or a callable
        What T minimises; a callable takes (y_true, probabilities) and returns a float.
    search : "auto", "newton" or "grid"
        "newton" finds the exact minimum of the log-loss; "grid" tries `temperatures` (the paper's by default);
        "auto" is "newton" for the log-loss and otherwise a grid around its optimum, so that any scale of logits does.
    temperatures : list of float, optional
        The temperatures of a grid.
    nll_tolerance : float, optional
        Consider only points whose log-loss is at most (1 + tolerance) times the best one.
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

    def __init__(
        self,
        *,
        objective: Any = "nll",
        search: str = "auto",
        temperatures: Any = None,
        nll_tolerance: float | None = None,
        input: str = "logits",  # noqa: A002
    ) -> None:
        self.objective = objective
        self.search = search
        self.temperatures = temperatures
        self.nll_tolerance = nll_tolerance
        self.input = input

    def _steps(self, gamma: float, temperature: float) -> tuple[Step, ...]:
        return (Temperature(temperature),)

    def _options(self) -> dict[str, Any]:
        _check_no_line(self.search, type(self).__name__)
        return {
            "objective": self.objective,
            "search": self.search,
            "gammas": 0.0,
            "temperatures": self.temperatures,
            "nll_tolerance": self.nll_tolerance,
        }


class FocalCalibration(_FocalFamily):
    """The focal calibration map alone, at T = 1: for networks trained with focal loss.

    Parameters
    ----------
    gamma : float, optional
        The γ > -1 of the map, such as the one of the training loss; None finds it by the search.
    objective, search, gammas, nll_tolerance, input
        As for `FocalTemperatureScaling`; used if `gamma` is None.

    Examples
    --------
    >>> import numpy as np
    >>> calibrator = FocalCalibration(gamma=2.0).fit(np.log([[0.6, 0.4], [0.3, 0.7]]), [0, 1])
    >>> calibrator.predict_proba(np.log([[0.6266, 0.3734]])).round(3)
    array([[0.8, 0.2]])
    """

    def __init__(
        self,
        gamma: float | None = None,
        *,
        objective: Any = "auto",
        search: str = "auto",
        gammas: Any = None,
        nll_tolerance: float | None = None,
        input: str = "logits",  # noqa: A002
    ) -> None:
        self.gamma = gamma
        self.objective = objective
        self.search = search
        self.gammas = gammas
        self.nll_tolerance = nll_tolerance
        self.input = input

    def _steps(self, gamma: float, temperature: float) -> tuple[Step, ...]:
        return (Focal(gamma),)

    def _options(self) -> dict[str, Any]:
        _check_no_line(self.search, type(self).__name__)
        given = self.gamma is not None
        return {
            "objective": self.objective,
            "search": "grid" if given else self.search,
            "gammas": self.gamma if given else self.gammas,
            "temperatures": 1.0,
            "nll_tolerance": self.nll_tolerance,
        }


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
        otherwise a grid around its optimum, so that any scale of logits does.
    nll_tolerance : float, optional
        Consider only points whose log-loss is at most (1 + tolerance) times the best one: 0.02 buys calibration for at
        most 2 % of log-loss.
    gammas, temperatures : list of float, optional
        The points of a grid; one number fixes the parameter.
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

    def __init__(
        self,
        *,
        objective: Any = "auto",
        search: str = "auto",
        nll_tolerance: float | None = None,
        gammas: Any = None,
        temperatures: Any = None,
        input: str = "logits",  # noqa: A002
    ) -> None:
        self.objective = objective
        self.search = search
        self.nll_tolerance = nll_tolerance
        self.gammas = gammas
        self.temperatures = temperatures
        self.input = input

    def _options(self) -> dict[str, Any]:
        return {
            "objective": self.objective,
            "search": self.search,
            "gammas": self.gammas,
            "temperatures": self.temperatures,
            "nll_tolerance": self.nll_tolerance,
        }


def _check_no_line(search: str, function: str) -> None:
    """A line needs both parameters."""
    if search == "line":
        raise ParameterError("search", function, expected="'auto', 'newton' or 'grid'", got="'line'")
