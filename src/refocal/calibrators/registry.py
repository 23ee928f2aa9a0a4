"""Calibrators by a short name, for the command line and for comparisons; a new method is added here alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from refocal._validation import check_option
from refocal.calibrators._base import Calibrator
from refocal.calibrators.beta import BetaCalibration
from refocal.calibrators.binning import BayesianBinning, HistogramBinning
from refocal.calibrators.ensemble import EnsembleTemperatureScaling
from refocal.calibrators.focal import FocalCalibration, FocalTemperatureScaling, TemperatureScaling
from refocal.calibrators.focal_structured import FocalStructuredScaling
from refocal.calibrators.isotonic import IsotonicCalibration
from refocal.calibrators.logistic import LogisticCalibration
from refocal.calibrators.scaling import (
    DirichletCalibration,
    MatrixScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    VectorScaling,
)
from refocal.calibrators.spline import SplineCalibration
from refocal.errors import ParameterError

NONE = "none"
"""The name of what the network says itself."""


class Named(NamedTuple):
    """What a name stands for, in words, and how to make it."""

    title: str
    make: Callable[[], Calibrator]
    usual: bool = True
    """Whether a comparison has it unless it is told otherwise; those left out rarely win or take long."""


NAMED = {
    "ts": Named("temperature scaling", TemperatureScaling),
    "ts-ece": Named("temperature scaling by ECE", lambda: TemperatureScaling(objective="ece"), usual=False),
    "focal": Named("focal calibration", FocalCalibration),
    "fts": Named("focal temperature scaling", FocalTemperatureScaling),
    "fts-nll": Named("focal temperature scaling by log-loss", lambda: FocalTemperatureScaling(objective="nll")),
    "fts-ece": Named("focal temperature scaling by ECE", lambda: FocalTemperatureScaling(objective="ece"), usual=False),
    "vs": Named("vector scaling", VectorScaling, usual=False),
    "ms": Named("matrix scaling", MatrixScaling, usual=False),
    "dirichlet": Named("Dirichlet calibration", DirichletCalibration, usual=False),
    "svs": Named("structured vector scaling", StructuredVectorScaling),
    "sms": Named("structured matrix scaling", StructuredMatrixScaling),
    "fss": Named("focal structured scaling", FocalStructuredScaling),
    "fss-order": Named(
        "focal structured scaling that keeps the order",
        lambda: FocalStructuredScaling(order_preserving=True),
        usual=False,
    ),
    "ets": Named("ensemble temperature scaling", EnsembleTemperatureScaling),
    "logistic": Named("logistic calibration", LogisticCalibration, usual=False),
    "beta": Named("beta calibration", BetaCalibration),
    "spline": Named("spline calibration", SplineCalibration),
    "isotonic": Named("isotonic calibration", IsotonicCalibration),
    "histogram": Named("histogram binning", HistogramBinning, usual=False),
    "bbq": Named("Bayesian binning into quantiles", BayesianBinning, usual=False),
}

ALL = "all"
"""Every method, where a comparison asks for names."""


def chosen_methods(names: Sequence[str] | str | None) -> list[str]:
    """The methods of a comparison: those named, every one for "all", the usual ones for None.

    >>> chosen_methods(None)[:2], len(chosen_methods("all")) == len(NAMED)
    (['ts', 'focal'], True)
    """
    if names is None:
        return [name for name, named in NAMED.items() if named.usual]
    wanted = [names] if isinstance(names, str) else list(names)
    if ALL in wanted:
        return list(NAMED)
    for name in wanted:
        check_option(name, (*NAMED, ALL), "methods", "compare")
    return list(dict.fromkeys(wanted))


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
        expected = f"left out: this method has no such option, {name!r}"
        raise ParameterError(unknown[0], "make", expected=expected, got=repr(given[unknown[0]]))
    made: Calibrator = calibrator.set_params(**given)
    return made


def title_of(name: str, calibrator: Calibrator | None = None) -> str:
    """A name in words; for a calibrator that is not of the registry, its class."""
    if name == NONE:
        return "no calibration"
    if name in NAMED:
        return NAMED[name].title
    return name if calibrator is None else type(calibrator).__name__
