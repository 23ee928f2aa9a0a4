"""The table of methods by their short names, which the rest of the package reads."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from refocal._validation import check_option
from refocal.calibrators._base import Calibrator
from refocal.calibrators.auto import AutoCalibration
from refocal.calibrators.binning import BayesianBinning, HistogramBinning, IsotonicCalibration
from refocal.calibrators.conformal import PredictionSets, VennAbersCalibration
from refocal.calibrators.focal import FocalCalibration, FocalTemperatureScaling, TemperatureScaling
from refocal.calibrators.group import GroupCalibration
from refocal.calibrators.multilabel import MultiLabelCalibration
from refocal.calibrators.one_vs_rest import BetaCalibration, LogisticCalibration
from refocal.calibrators.scaling import (
    DirichletCalibration,
    EnsembleTemperatureScaling,
    MatrixScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    VectorScaling,
)
from refocal.calibrators.spline import SplineCalibration
from refocal.errors import ParameterError

NONE = "none"
"""The name of the uncalibrated model in a comparison."""


class Method(NamedTuple):
    """What a short name stands for. The command line, `compare`, `load`, error messages and the docs read this row."""

    title: str
    kind: type[Calibrator]
    settings: Mapping[str, Any] = {}
    usual: bool = True
    """Whether a comparison has it by default; the others rarely win or take long."""
    keeps_order: bool = False
    """Whether the order of the classes, and so the accuracy, stays."""
    in_blocks: bool = False
    """Whether it fits on rows in blocks, which need not fit into memory."""


BY_ECE, BY_LOG_LOSS, KEPT = {"objective": "ece"}, {"objective": "nll"}, {"order_preserving": True}
BOTH: dict[str, Any] = {"keeps_order": True, "in_blocks": True}

NAMED = {
    "auto": Method("automatic calibration", AutoCalibration, in_blocks=True),
    "auto-order": Method("automatic calibration that keeps the predicted class", AutoCalibration, KEPT, False, **BOTH),
    "ts": Method("temperature scaling", TemperatureScaling, **BOTH),
    "ts-ece": Method("temperature scaling by ECE", TemperatureScaling, BY_ECE, usual=False, **BOTH),
    "focal": Method("focal calibration", FocalCalibration, **BOTH),
    "fts": Method("focal temperature scaling", FocalTemperatureScaling, **BOTH),
    "fts-nll": Method("focal temperature scaling by log-loss", FocalTemperatureScaling, BY_LOG_LOSS, **BOTH),
    "fts-ece": Method("focal temperature scaling by ECE", FocalTemperatureScaling, BY_ECE, usual=False, **BOTH),
    "vs": Method("vector scaling", VectorScaling, usual=False, in_blocks=True),
    "ms": Method("matrix scaling", MatrixScaling, usual=False, in_blocks=True),
    "dirichlet": Method("Dirichlet calibration", DirichletCalibration, usual=False, in_blocks=True),
    "svs": Method("structured vector scaling", StructuredVectorScaling, in_blocks=True),
    "sms": Method("structured matrix scaling", StructuredMatrixScaling, in_blocks=True),
    "ets": Method("ensemble temperature scaling", EnsembleTemperatureScaling, keeps_order=True),
    "logistic": Method("logistic calibration", LogisticCalibration, usual=False),
    "beta": Method("beta calibration", BetaCalibration),
    "spline": Method("spline calibration", SplineCalibration),
    "isotonic": Method("isotonic calibration", IsotonicCalibration),
    "histogram": Method("histogram binning", HistogramBinning, usual=False),
    "bbq": Method("Bayesian binning into quantiles", BayesianBinning, usual=False),
    "venn-abers": Method("Venn-Abers calibration", VennAbersCalibration, usual=False),
    "venn-abers-cross": Method("cross Venn-Abers calibration", VennAbersCalibration, {"folds": 5}, usual=False),
}

SETS = {
    "lac": Method("prediction sets by LAC", PredictionSets, {"conformity_score": "lac"}, usual=False),
    "aps": Method("prediction sets by APS", PredictionSets, {"conformity_score": "aps"}, usual=False),
    "raps": Method("prediction sets by RAPS", PredictionSets, {"conformity_score": "raps"}, usual=False),
}
"""Methods that predict sets of classes: fitted, saved and applied as the others are, and not compared with them."""

GROUPED = {"group": Method("a correction for each group", GroupCalibration, usual=False)}
"""Methods that take the groups of the rows: a comparison has them where there are groups."""

METHODS = ChainMap(GROUPED, SETS, NAMED)
"""All rows by their names."""

OTHER_NAMES = {
    "sigmoid": "logistic",
    "platt": "logistic",
    "temperature": "ts",
    "fss": "auto",
    "fss-order": "auto-order",
}
"""Names of methods in scikit-learn and elsewhere, and in refocal 0.1."""

ALL = "all"
"""Every method, where a comparison asks for names."""


def chosen_methods(names: Sequence[str] | str | None) -> list[str]:
    """The methods of a comparison: those named, every one for "all", the usual ones for None.

    >>> chosen_methods(None)[:2], len(chosen_methods("all")) == len(NAMED)
    (['auto', 'ts'], True)
    >>> chosen_methods(["platt", "isotonic"])
    ['logistic', 'isotonic']
    """
    if names is None:
        return [name for name, method in NAMED.items() if method.usual]
    wanted = [OTHER_NAMES.get(name, name) for name in ([names] if isinstance(names, str) else names)]
    if ALL in wanted:
        return list(NAMED)
    for name in wanted:
        check_option(name, (*NAMED, *GROUPED, ALL), "methods", "compare")
    return list(dict.fromkeys(wanted))


def make(name: str, **options: Any) -> Calibrator:
    """A new calibrator by its name; options that are None keep their defaults.

    >>> make("fts", objective="ece", nll_tolerance=0.01)
    FocalTemperatureScaling(nll_tolerance=0.01, objective='ece')
    >>> make("sigmoid")
    LogisticCalibration()
    """
    name = OTHER_NAMES.get(name, name)
    check_option(name, tuple(METHODS), "method", "make")
    calibrator = METHODS[name].kind(**METHODS[name].settings)
    given = {key: value for key, value in options.items() if value is not None}
    unknown = sorted(set(given) - set(calibrator.get_params(deep=False)))
    if unknown:
        expected = f"left out: the method {name!r} has no such option"
        raise ParameterError(unknown[0], "make", expected=expected, got=repr(given[unknown[0]]))
    made: Calibrator = calibrator.set_params(**given)
    return made


def named(name: str, argument: str, function: str) -> Calibrator:
    """A new calibrator of probabilities, by a name that was given as an argument of a function."""
    check_option(name, (*NAMED, *OTHER_NAMES), argument, function)
    return make(name)


def kinds(*, in_blocks: bool = False) -> dict[str, type[Calibrator]]:
    """The classes of all methods by their names, or of those that fit on rows in blocks.

    >>> kinds()["BetaCalibration"].__name__, "BetaCalibration" in kinds(in_blocks=True)
    ('BetaCalibration', False)
    """
    known = [method.kind for method in METHODS.values() if method.in_blocks or not in_blocks]
    # MultiLabelCalibration can be loaded from files but has no short name: comparisons take one label per row.
    return {kind.__name__: kind for kind in (known if in_blocks else [*known, MultiLabelCalibration])}


def title_of(name: str, calibrator: Calibrator | None = None) -> str:
    """The title of a method; with a calibrator, that of the method with its class and settings, whatever the name."""
    if name == NONE:
        return "no calibration"
    if calibrator is None:
        return METHODS[name].title if name in METHODS else name
    given = calibrator.get_params(deep=False)
    alike = [m for m in METHODS.values() if type(calibrator) is m.kind and m.settings.items() <= given.items()]
    if alike:
        return max(alike, key=lambda method: len(method.settings)).title
    return str(getattr(calibrator, "title", type(calibrator).__name__))
