"""Calibrators: scikit-learn estimators that turn logits into probabilities."""

from refocal.calibrators._base import Calibrator
from refocal.calibrators.classifier import CalibratedClassifier
from refocal.calibrators.focal import FocalCalibration, FocalTemperatureScaling, TemperatureScaling
from refocal.calibrators.serialize import load

__all__ = [
    "CalibratedClassifier",
    "Calibrator",
    "FocalCalibration",
    "FocalTemperatureScaling",
    "TemperatureScaling",
    "load",
]
