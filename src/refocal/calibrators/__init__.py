"""Calibrators: scikit-learn estimators that turn logits into probabilities."""

from refocal.calibrators._base import Calibrator
from refocal.calibrators.auto import AutoCalibration
from refocal.calibrators.binning import BayesianBinning, HistogramBinning, IsotonicCalibration
from refocal.calibrators.classifier import CalibratedClassifier
from refocal.calibrators.conformal import PredictionSets, VennAbersCalibration
from refocal.calibrators.focal import FocalCalibration, FocalTemperatureScaling, TemperatureScaling
from refocal.calibrators.group import GroupCalibration
from refocal.calibrators.multilabel import MultiLabelCalibration
from refocal.calibrators.one_vs_rest import BetaCalibration, LogisticCalibration
from refocal.calibrators.registry import register
from refocal.calibrators.scaling import (
    DirichletCalibration,
    EnsembleTemperatureScaling,
    MatrixScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    VectorScaling,
)
from refocal.calibrators.serialize import load
from refocal.calibrators.spline import SplineCalibration

__all__ = [
    "AutoCalibration",
    "BayesianBinning",
    "BetaCalibration",
    "CalibratedClassifier",
    "Calibrator",
    "DirichletCalibration",
    "EnsembleTemperatureScaling",
    "FocalCalibration",
    "FocalTemperatureScaling",
    "GroupCalibration",
    "HistogramBinning",
    "IsotonicCalibration",
    "LogisticCalibration",
    "MatrixScaling",
    "MultiLabelCalibration",
    "PredictionSets",
    "SplineCalibration",
    "StructuredMatrixScaling",
    "StructuredVectorScaling",
    "TemperatureScaling",
    "VectorScaling",
    "VennAbersCalibration",
    "load",
    "register",
]
