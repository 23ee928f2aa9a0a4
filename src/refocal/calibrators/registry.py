"""Calibrators by a short name, for the command line and for comparisons; a new method is added here alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from refocal._arrays import check_option
from refocal.calibrators._base import Calibrator
from refocal.calibrators.focal import FocalCalibration, FocalTemperatureScaling, TemperatureScaling
from refocal.calibrators.focal_structured import FocalStructuredScaling
from refocal.calibrators.scaling import (
    DirichletCalibration,
    MatrixScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    VectorScaling,
)
from refocal.errors import ParameterError

NONE = "none"
"""The name of what the network says itself."""


class Named(NamedTuple):
    """What a name stands for, in words, and how to make it."""

    title: str
    make: Callable[[], Calibrator]


NAMED = {
    "ts": Named("temperature scaling", TemperatureScaling),
    "ts-ece": Named("temperature scaling by ECE", lambda: TemperatureScaling(objective="ece")),
    "focal": Named("focal calibration", FocalCalibration),
    "fts": Named("focal temperature scaling", FocalTemperatureScaling),
    "fts-nll": Named("focal temperature scaling by log-loss", lambda: FocalTemperatureScaling(objective="nll")),
    "fts-ece": Named("focal temperature scaling by ECE", lambda: FocalTemperatureScaling(objective="ece")),
    "vs": Named("vector scaling", VectorScaling),
    "ms": Named("matrix scaling", MatrixScaling),
    "dirichlet": Named("Dirichlet calibration", DirichletCalibration),
    "svs": Named("structured vector scaling", StructuredVectorScaling),
    "sms": Named("structured matrix scaling", StructuredMatrixScaling),
    "fss": Named("focal structured scaling", FocalStructuredScaling),
    "fss-order": Named(
        "focal structured scaling that keeps the order", lambda: FocalStructuredScaling(order_preserving=True)
    ),
}


def make(name: str, **options: Any) -> Calibrator:
    """A new calibrator by its name; options that are None keep their defaults.

    >>> make("fts", objective="ece", nll_tolerance=0.01)
    FocalTemperatureScaling(nll_tolerance=0.01, objective='ece')
    """
    check_option(name, tuple(NAMED), "method", "make")
    calibrator = NAMED[name].make()
    given = {key: value for key, value in options.items() if value is not None}
    unknown = sorted(set(given) - set(calibrator.get_params(deep=False)))
    if unknown:
        raise ParameterError(
            unknown[0], f"make({name!r})", expected="left out: this method has no such option", got="one"
        )
    made: Calibrator = calibrator.set_params(**given)
    return made


def title_of(name: str, calibrator: Calibrator | None = None) -> str:
    """A name in words; for a calibrator that is not of the registry, its class."""
    if name == NONE:
        return "no calibration"
    if name in NAMED:
        return NAMED[name].title
    return name if calibrator is None else type(calibrator).__name__
