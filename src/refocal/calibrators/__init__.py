"""Calibrators: scikit-learn estimators that turn logits into probabilities."""

from refocal.calibrators._base import Calibrator
from refocal.calibrators.classifier import CalibratedClassifier
from refocal.calibrators.focal import FocalCalibration, FocalTemperatureScaling, TemperatureScaling
from refocal.calibrators.focal_structured import FocalStructuredScaling
from refocal.calibrators.scaling import (
    DirichletCalibration,
    MatrixScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    VectorScaling,
)
from refocal.calibrators.serialize import load

__all__ = [
    "CalibratedClassifier",
    "Calibrator",
    "DirichletCalibration",
    "FocalCalibration",
    "FocalStructuredScaling",
    "FocalTemperatureScaling",
    "MatrixScaling",
    "StructuredMatrixScaling",
    "StructuredVectorScaling",
    "TemperatureScaling",
    "VectorScaling",
    "load",
]
