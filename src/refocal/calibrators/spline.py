"""Spline calibration: a smooth curve that rises."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np

from refocal.calibrators import settings as setting
from refocal.calibrators.one_vs_rest import ClassRows, OneVsRestCalibrator
from refocal.fitting.curves import CurvePrior, Splines, equal_mass_knots, spline
from refocal.maps.curves import Curve


@dataclass(eq=False, repr=False)
class SplineCalibration(OneVsRestCalibrator):
    """A smooth monotone curve for each class against the rest: a quadratic spline from log-odds to log-odds.

    The slope is linear between knots and nowhere negative; beyond the outer knots the curve is straight. Splines as in
    Lucena (2018), fitted by log-loss, with slopes that are shrunk towards each other and towards 1.

    Parameters
    ----------
    n_knots : int
        Number of knots, placed so that each interval between them has the same share of Σq(1-q).
    smoothing : float
        The weight of the prior that the curve is the identity; large values give temperature scaling.
    base : "temperature" or "softmax"
        The starting point of the curves.
    input : "logits" or "probabilities"
        What the columns hold.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(2000, 3))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> report = SplineCalibration().fit(4.0 * logits, labels).fit_report_
    >>> report["after"]["log_loss"] < report["before"]["log_loss"]
    True
    """

    n_knots: int = setting.integer(6, least=2)
    _: KW_ONLY
    smoothing: float = setting.number(10.0, above=0.0)

    def _fit_curve(self, rows: ClassRows) -> Curve:
        # How much stiffer the curve is against bending than against a slope other than 1.
        stiffness = 10.0
        prior = CurvePrior(self.smoothing, stiffness * self.smoothing, self.smoothing)
        knots = equal_mass_knots(rows.score, rows.weight * rows.q * (1.0 - rows.q), self.n_knots)
        if len(knots) < 2:
            knots = rows.score[0] + np.array([-1.0, 1.0])
        return spline(knots, Splines(knots, rows.score).fit(rows.target, rows.weight, prior).theta)
