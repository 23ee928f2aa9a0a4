"""One row for each method, by a short name: all that the rest of the package knows of it. It imports no library."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import refocal

if TYPE_CHECKING:
    from refocal.calibrators import Calibrator

NONE = "none"
"""The name of the uncalibrated model in a comparison."""


class Method(NamedTuple):
    """What a short name stands for. The command line, `compare`, `load`, error messages and the docs read this row."""

    title: str
    class_name: str
    settings: Mapping[str, Any] = {}
    usual: bool = True
    """Whether a comparison has it by default; the others rarely win or take long."""
    keeps_order: bool = False
    """Whether the order of the classes, and so the accuracy, stays."""
    in_blocks: bool = False
    """Whether it fits on rows in blocks, which need not fit into memory."""
    own: type[Calibrator] | None = None
    """The class, where it is none of this package."""

    @property
    def kind(self) -> type[Calibrator]:
        """The class, which is loaded with the libraries that it needs."""
        if self.own is not None:
            return self.own
        kind: type[Calibrator] = getattr(refocal.calibrators, self.class_name)
        return kind


BY_ECE = {"objective": "ece"}
KEPT = {"order_preserving": True}
BOTH: dict[str, Any] = {"keeps_order": True, "in_blocks": True}

NAMED = {
    "auto": Method("automatic calibration", "AutoCalibration", in_blocks=True),
    "auto-order": Method(
        "automatic calibration that keeps the predicted class", "AutoCalibration", KEPT, False, **BOTH
    ),
    "ts": Method("temperature scaling", "TemperatureScaling", **BOTH),
    "ts-ece": Method("temperature scaling by ECE", "TemperatureScaling", BY_ECE, usual=False, **BOTH),
    "focal": Method("focal calibration", "FocalCalibration", **BOTH),
    "fts": Method("focal temperature scaling", "FocalTemperatureScaling", **BOTH),
    "fts-nll": Method("focal temperature scaling by log-loss", "FocalTemperatureScaling", {"objective": "nll"}, **BOTH),
    "fts-ece": Method("focal temperature scaling by ECE", "FocalTemperatureScaling", BY_ECE, usual=False, **BOTH),
    "vs": Method("vector scaling", "VectorScaling", usual=False, in_blocks=True),
    "ms": Method("matrix scaling", "MatrixScaling", usual=False, in_blocks=True),
    "dirichlet": Method("Dirichlet calibration", "DirichletCalibration", usual=False, in_blocks=True),
    "svs": Method("structured vector scaling", "StructuredVectorScaling", in_blocks=True),
    "sms": Method("structured matrix scaling", "StructuredMatrixScaling", in_blocks=True),
    "ets": Method("ensemble temperature scaling", "EnsembleTemperatureScaling", keeps_order=True),
    "logistic": Method("logistic calibration", "LogisticCalibration", usual=False),
    "beta": Method("beta calibration", "BetaCalibration"),
    "spline": Method("spline calibration", "SplineCalibration"),
    "isotonic": Method("isotonic calibration", "IsotonicCalibration"),
    "histogram": Method("histogram binning", "HistogramBinning", usual=False),
    "bbq": Method("Bayesian binning into quantiles", "BayesianBinning", usual=False),
    "venn-abers": Method("Venn-Abers calibration", "VennAbersCalibration", usual=False),
    "venn-abers-cross": Method("cross Venn-Abers calibration", "VennAbersCalibration", {"n_folds": 5}, usual=False),
}

SETS = {
    "lac": Method("prediction sets by LAC", "PredictionSets", {"conformity_score": "lac"}, usual=False),
    "aps": Method("prediction sets by APS", "PredictionSets", {"conformity_score": "aps"}, usual=False),
    "raps": Method("prediction sets by RAPS", "PredictionSets", {"conformity_score": "raps"}, usual=False),
}
"""Methods that predict sets of classes: fitted, saved and applied as the others are, and not compared with them."""

GROUPED = {"group": Method("a correction for each group", "GroupCalibration", usual=False)}
"""Methods that take the groups of the rows: a comparison has them where there are groups."""

LABELLED = {"multi-label": Method("a method for several labels", "MultiLabelCalibration", usual=False)}
"""Saved and loaded as the others are, and not called by its name: it fits one of them on rows with several labels."""

METHODS = ChainMap(GROUPED, SETS, NAMED)
"""All rows by their names; those of `refocal.register` are in NAMED too."""

OTHER_NAMES = {
    "sigmoid": "logistic",
    "platt": "logistic",
    "temperature": "ts",
}
"""Names of methods in scikit-learn and elsewhere."""

OF_TWO_CLASSES = ("auto", "logistic", "beta", "isotonic", "venn-abers")
"""The methods of a comparison on rows of two classes, by default: each has an intercept, and can move a wrong mean."""

OF_LABELS = ("auto", "logistic", "ts")
"""The methods of a comparison on rows with several labels, by default."""

DEMO = ("auto", "ts", "focal", "fts", "fts-nll")
"""The methods of `refocal demo`."""

ALL = "all"
"""Every method, where a comparison asks for names."""
