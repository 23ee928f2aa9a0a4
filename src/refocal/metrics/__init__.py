"""Measures of calibration: scores, binned and smooth errors, a streaming histogram, bootstrap intervals.

Every function takes `y_true` first, then probabilities (`log_loss`: log-probabilities) as NumPy arrays, torch
tensors or anything else of the array API, binary or with the classes on the last axis, with any leading axes.
"""

from refocal.metrics.binned import (
    ReliabilityCurve,
    classwise_ece,
    debiased_ece,
    ece_sweep,
    expected_calibration_error,
    reliability_curve,
)
from refocal.metrics.bootstrap import (
    Interval,
    PairedDifference,
    ReliabilityBand,
    Resamples,
    bootstrap_interval,
    paired_bootstrap,
    reliability_band,
    resample,
)
from refocal.metrics.histogram import CalibrationHistogram, StreamedCalibration
from refocal.metrics.scores import (
    BrierDecomposition,
    SpiegelhalterResult,
    accuracy,
    brier_decomposition,
    brier_score,
    error_rate,
    log_loss,
    spiegelhalter_test,
)
from refocal.metrics.smooth import CorpReliability, corp_reliability, ks_calibration_error, smooth_ece

__all__ = [
    "BrierDecomposition",
    "CalibrationHistogram",
    "CorpReliability",
    "Interval",
    "PairedDifference",
    "ReliabilityBand",
    "ReliabilityCurve",
    "Resamples",
    "SpiegelhalterResult",
    "StreamedCalibration",
    "accuracy",
    "bootstrap_interval",
    "brier_decomposition",
    "brier_score",
    "classwise_ece",
    "corp_reliability",
    "debiased_ece",
    "ece_sweep",
    "error_rate",
    "expected_calibration_error",
    "ks_calibration_error",
    "log_loss",
    "paired_bootstrap",
    "reliability_band",
    "reliability_curve",
    "resample",
    "smooth_ece",
    "spiegelhalter_test",
]
