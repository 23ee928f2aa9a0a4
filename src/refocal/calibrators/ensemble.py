"""Ensemble temperature scaling: a mixture of temperature scaling, the model itself and the uniform distribution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from refocal._arrays import Vector, to_numpy
from refocal.calibrators._base import FLOOR, Calibrator
from refocal.calibrators._fitted import Fitted, predictions_of
from refocal.engine import Dataset
from refocal.fitting.temperature import newton_temperature
from refocal.maps.chain import Chain
from refocal.maps.steps import Mixture, Temperature, Uniform

# A weight below this counts as 0.
NOTHING = 1e-9


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

    @property
    def temperature_(self) -> float:
        """T of the first member."""
        return float(self.chain_.find(Temperature, "temperature"))

    @property
    def weights_(self) -> Vector:
        """w₁, w₂ and w₃."""
        return np.asarray(self.chain_.find(Mixture, "weights"))

    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> Fitted:
        block = self._block_of(dataset)
        solution = newton_temperature(block)
        members = (Temperature(solution.temperature), Chain(), Uniform())
        log_p = np.stack([to_numpy(predictions_of(Chain((member,)), block)[0].label_log_p) for member in members])
        weights = _mixture(log_p, block.weights / block.total_weight, FLOOR / (1.0 + block.total_weight))
        return Fitted(Chain((Mixture(members, weights),)), solution)


def _mixture(log_p: Vector, share: Vector, floor: float) -> Vector:
    """The weights of least log-loss, a convex problem; the uniform member keeps every probability above 0."""
    p = np.exp(log_p - log_p.max(axis=0))
    least = np.array([0.0, 0.0, floor])

    def loss(v: Vector) -> tuple[float, Vector]:
        mixed = v @ p
        return -float(share @ np.log(mixed)), -(p / mixed) @ share

    found = minimize(
        loss,
        np.array([0.9, 0.05, 0.05]),
        jac=True,
        method="SLSQP",
        bounds=[(low, 1.0) for low in least],
        constraints={"type": "eq", "fun": lambda v: v.sum() - 1.0, "jac": lambda v: np.ones(3)},
        options={"ftol": 1e-13, "maxiter": 500},
    )
    best = np.maximum(np.where(found.x < NOTHING, 0.0, found.x), least)
    return np.asarray(best / best.sum())
