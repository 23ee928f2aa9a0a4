"""Beta calibration: a curve with three parameters that can bend on both sides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refocal._arrays import Vector
from refocal.calibrators import _settings as setting
from refocal.calibrators._logistic import fit_logistic, softplus
from refocal.calibrators._one_vs_rest import OneVsRest, Rows
from refocal.maps.chain import Step
from refocal.maps.curves import Beta

IDENTITY = np.array([1.0, 1.0, 0.0])
LOWER = np.array([0.0, 0.0, -np.inf])


@dataclass(kw_only=True, eq=False, repr=False)
class BetaCalibration(OneVsRest):
    """Beta calibration (Kull, Silva Filho & Flach 2017), of each class against the rest where there are more than two.

    log-odds = a·log q - b·log(1-q) + c with a, b ≥ 0, fitted by log-loss; a = b = 1, c = 0 changes nothing.

    Parameters
    ----------
    smoothing : float
        The weight of the prior: a, b and c lie around those of the identity with standard deviation 1/√smoothing. Near
        0 the fit is unregularised and diverges on separable rows.
    base : "temperature" or "softmax"
        The starting point of the curves.
    input : "logits" or "probabilities"
        What the columns hold.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(5000, 2))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> fitted = BetaCalibration(base="softmax").fit(2.0 * logits, labels)
    >>> fitted.curve_.coefficients[0, :2].round(1)
    array([0.5, 0.5])
    """

    smoothing: float = setting.number(30.0, above=0.0)

    def _fit_curve(self, rows: Rows) -> Vector:
        features = np.stack([-softplus(-rows.score), softplus(rows.score), np.ones_like(rows.score)], axis=1)
        penalty = self.smoothing * np.eye(3)
        return fit_logistic(features, rows.target, rows.weight, IDENTITY, penalty, LOWER)

    def _joined(self, curves: list[Vector]) -> Step:
        return Beta(np.stack(curves))
