"""A calibrator as settings of a served model: what vLLM's pooler subtracts from logits and divides them by."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from refocal.calibrators import Calibrator
from refocal.errors import ParameterError, UnsupportedError
from refocal.maps.steps import Temperature


def to_vllm(calibrator: Calibrator) -> dict[str, float]:
    """A fitted calibrator as `logit_mean` and `logit_sigma` of vLLM's `--pooler-config`.

    A classifier or reward model served by vLLM gives σ((z - logit_mean) / logit_sigma) of a single logit z, or the
    softmax of several (documented for vLLM 0.23). Temperature scaling is logit_sigma = T, for any number of classes;
    a line a z + b of a single logit, as `LogisticCalibration(input="log-odds")` fits it, is logit_sigma = 1/a and
    logit_mean = -b/a. Other calibrators are no such line and are refused.

    >>> from refocal import TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> z = 3.0 * rng.normal(size=2000)
    >>> fitted = TemperatureScaling(input="log-odds").fit(z, rng.random(2000) < 1 / (1 + np.exp(-z / 2.0)))
    >>> settings = to_vllm(fitted)  # vllm serve MODEL --pooler-config '{"logit_mean": 0.0, "logit_sigma": …}'
    >>> sorted(settings), 1.8 < settings["logit_sigma"] < 2.2
    (['logit_mean', 'logit_sigma'], True)
    """
    if not isinstance(calibrator, Calibrator):
        got = type(calibrator).__name__
        raise ParameterError("calibrator", "to_vllm", expected="a fitted calibrator of logits", got=got)
    check_is_fitted(calibrator)
    steps = calibrator.chain_.steps
    if calibrator.input != "probabilities" and steps and all(isinstance(step, Temperature) for step in steps):
        temperatures = [value for _, value in calibrator.chain_.parameters()]
        return {"logit_mean": 0.0, "logit_sigma": float(math.prod(temperatures))}
    if calibrator.input == "log-odds":
        line = _line_of(calibrator)
        if line is not None:
            slope, intercept = line
            return {"logit_mean": -intercept / slope, "logit_sigma": 1.0 / slope}
    raise UnsupportedError(
        f"{type(calibrator).__name__} with input={calibrator.input!r} is no line of logits, which is all that vLLM's "
        "pooler computes. Use TemperatureScaling, or LogisticCalibration(input='log-odds') for a single logit."
    )


def _line_of(calibrator: Any) -> tuple[float, float] | None:
    """Slope and intercept of the calibrated log-odds; None where they are no rising line of those that come in."""
    log_odds = np.array([-8.0, -3.0, 0.0, 1.0, 5.0, 8.0])
    log_p = np.asarray(calibrator.predict_log_proba(log_odds))
    calibrated = log_p[:, 1] - log_p[:, 0]
    slope = float(calibrated[-1] - calibrated[0]) / 16.0
    intercept = float(calibrated[2])
    tolerance = 1e-6 * (1.0 + abs(slope) + abs(intercept))
    is_line = bool(np.all(np.abs(slope * log_odds + intercept - calibrated) < 16.0 * tolerance))
    return (slope, intercept) if is_line and slope > 0.0 else None
