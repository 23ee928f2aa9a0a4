"""Logistic calibration: a straight line in log-odds, after Platt."""

from __future__ import annotations

import numpy as np

from refocal.calibrators._logistic import fit_line
from refocal.calibrators._one_vs_rest import Curve, OneVsRest, Rows


class LogisticCalibration(OneVsRest):
    """Platt's calibration of each class against the rest: a slope and an intercept in log-odds.

    scikit-learn calls it "sigmoid". It is fitted by log-loss to Platt's targets, (n₊ + 1)/(n₊ + 2) for the n₊ rows of a
    class and 1/(n₋ + 2) for the others, so that its coefficients stay finite on rows without an error.

    Parameters
    ----------
    base : "temperature" or "softmax"
        Where the log-odds of more than two classes come from; irrelevant for two classes.
    input : "logits" or "probabilities"
        What the columns hold.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(5000, 2))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> fitted = LogisticCalibration(base="softmax").fit(2.0 * logits + [0.0, 1.0], labels)
    >>> intercept, slope = fitted.curve_.coefficients[:, 0, 0]
    >>> float(slope.round(1)), float(intercept.round(1))
    (0.5, -0.5)
    """

    _needs_line = False  # it is one

    def _fit_curve(self, rows: Rows) -> Curve:
        slope, intercept = fit_line(rows.score, rows.target, rows.weight)
        return np.zeros(1), (np.repeat(intercept, 2), np.repeat(slope, 2))
