"""Logistic calibration: a straight line in log-odds, after Platt."""

from __future__ import annotations

import numpy as np

from refocal._validation import check_option
from refocal.calibrators._logistic import fit_logistic
from refocal.calibrators._one_vs_rest import Curve, OneVsRest, Rows

# A ridge that only matters where the rows say nothing, as when all scores are equal.
TINY = 1e-9
# Scores farther out than so many times the median are masks such as -1e9, which would rule the line: they are cut off.
FAR = 30.0


class LogisticCalibration(OneVsRest):
    """Platt's calibration of each class against the rest: a slope and an intercept in log-odds.

    scikit-learn calls it "sigmoid". It is fitted by log-loss to Platt's targets, (n₊ + 1)/(n₊ + 2) for the n₊ rows of a
    class and 1/(n₋ + 2) for the others, so that its coefficients stay finite on rows without an error.

    Parameters
    ----------
    base : "temperature" or "softmax"
        What the log-odds of more than two classes are taken of; with two classes it changes nothing.
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

    def __init__(self, *, base: str = "temperature", input: str = "logits") -> None:  # noqa: A002
        self.base = base
        self.input = input

    def _check_settings(self) -> None:
        check_option(self.base, ("temperature", "softmax"), "base", type(self).__name__)

    def _fit_curve(self, rows: Rows) -> Curve:
        hits = float(rows.weight @ rows.target)
        misses = float(rows.weight.sum()) - hits
        target = np.where(rows.target, (hits + 1.0) / (hits + 2.0), 1.0 / (misses + 2.0))
        far = FAR * float(np.median(np.abs(rows.score))) or np.inf
        score = np.clip(rows.score, -far, far)
        scale = float(np.abs(score).max()) or 1.0
        features = np.stack([score / scale, np.ones_like(score)], axis=1)
        start = np.array([0.0, np.log((hits + 1.0) / (misses + 1.0))])
        found = fit_logistic(features, target, rows.weight, start, TINY * np.eye(2), np.full(2, -np.inf))
        return np.zeros(1), (np.repeat(found[1], 2), np.repeat(found[0] / scale, 2))
