"""Calibrators: scikit-learn estimators that turn logits into probabilities."""

from refocal.calibrators._base import Calibrator
from refocal.calibrators.beta import BetaCalibration
from refocal.calibrators.binning import BayesianBinning, HistogramBinning
from refocal.calibrators.classifier import CalibratedClassifier
from refocal.calibrators.ensemble import EnsembleTemperatureScaling
from refocal.calibrators.focal import FocalCalibration, FocalTemperatureScaling, TemperatureScaling
from refocal.calibrators.isotonic import IsotonicCalibration
from refocal.calibrators.serialize import load
from refocal.calibrators.spline import SplineCalibration

__all__ = [
    "BayesianBinning",
    "BetaCalibration",
    "CalibratedClassifier",
    "Calibrator",
    "EnsembleTemperatureScaling",
    "FocalCalibration",
    "FocalTemperatureScaling",
    "HistogramBinning",
    "IsotonicCalibration",
    "SplineCalibration",
    "TemperatureScaling",
    "load",
]
