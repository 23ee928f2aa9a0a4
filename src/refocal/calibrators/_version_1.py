"""Calibrators that version 0.1.0 wrote, as chains: format version 1 had fields of its own for each method."""

from __future__ import annotations

from typing import Any

import numpy as np

from refocal.calibrators._base import Calibrator
from refocal.calibrators.binning import bins, polyline
from refocal.calibrators.one_vs_rest import Curve, join_pieces, one_vs_rest
from refocal.calibrators.spline import spline
from refocal.maps.chain import Chain, Step
from refocal.maps.curves import Beta
from refocal.maps.steps import Affine, Floor, Focal, KeepTop, Mixture, Temperature, Uniform

# Probabilities below this counted as it, where they were of double precision.
LOWEST = float(np.finfo(np.float64).eps)


def chain_of(fitted: dict[str, Any], calibrator: Calibrator) -> Chain:
    """The chain of the fitted numbers of a file; KeyError, TypeError or ValueError where it cannot be one."""
    floor = (Floor(float(np.log(LOWEST))),) if calibrator.input == "probabilities" else ()
    return Chain((*floor, *_steps(fitted, calibrator)))


def _steps(fitted: dict[str, Any], calibrator: Calibrator) -> tuple[Step, ...]:
    temperature = Temperature(float(fitted["temperature"]))
    settings = calibrator.get_params(deep=False)
    if "intercept" in fitted:
        weights, intercept = (np.asarray(fitted[name], dtype=np.float32) for name in ("weights", "intercept"))
        kind = getattr(calibrator, "_kind", "tempered")
        affine: Step = Affine(kind, float(fitted["inner_temperature"]), weights, intercept)
        affine = KeepTop((affine,)) if settings.get("order_preserving") else affine
        return affine, temperature, Focal(float(fitted["gamma"]))
    if "weights" in fitted:
        return (Mixture((temperature, Chain(), Uniform()), np.asarray(fitted["weights"], dtype=np.float64)),)
    if "curves" in fitted:
        curves = [{name: np.asarray(value, dtype=np.float64) for name, value in c.items()} for c in fitted["curves"]]
        if "coefficients" in curves[0]:
            curve: Step = Beta(np.stack([each["coefficients"] for each in curves]))
        else:
            curve = join_pieces([_pieces(each, settings) for each in curves])
        return one_vs_rest(temperature.temperature, curve, float(fitted["floor"])).steps
    return temperature, Focal(float(fitted["gamma"]))


def _pieces(curve: dict[str, Any], settings: dict[str, Any]) -> Curve:
    if "knots" in curve:
        return spline(curve["knots"], np.append(curve["slopes"], curve["offset"]))
    if "edges" in curve:
        return bins(curve["edges"], curve["value"], settings["within"])
    return polyline(curve["score"], curve["log_odds"], settings["within"])
