"""How docstrings appear in the reference: doctests as code blocks, and the main names of a module first."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import griffe

DOCTEST = re.compile(r"(?:^[ ]*>>> .*\n?(?:^[ ]*\S.*\n?)*)+", re.M)
# The names that a reader of a module looks for first; the others follow in the order of `__all__`.
FIRST = {
    "refocal.calibrators": ("AutoCalibration", "CalibratedClassifier", "load", "TemperatureScaling"),
    "refocal.decide": ("best_actions", "evaluate_decisions", "cost_matrix", "optimal_threshold"),
    "refocal.decomposition": ("log_loss_decomposition",),
    "refocal.detection": ("DetectionCalibration", "Detections", "read_coco", "detection_ece"),
    "refocal.engine": ("Dataset", "Block", "Pass"),
    "refocal.evaluate": ("compare", "evaluate", "Evaluation", "verdict", "recommendation", "load_evaluation"),
    "refocal.export": ("append_to_onnx", "to_onnx", "to_torch_export"),
    "refocal.fitting": ("find",),
    "refocal.io": ("Predictions", "read", "split", "load_sample", "open_rows", "blocks", "rows_of", "apply"),
    "refocal.losses": ("focal", "proper_focal", "cross_entropy"),
    "refocal.maps": ("focal", "inverse_focal", "focal_temperature", "log_softmax"),
    "refocal.metrics": ("expected_calibration_error", "log_loss", "brier_score", "reliability_curve"),
    "refocal.monitor": ("CalibrationMonitor",),
    "refocal.nn": ("collect_logits", "CalibrationLayer", "FocalLoss"),
    "refocal.shift": ("adapt", "estimate_performance", "update"),
    "refocal.report": ("write_report", "plot_reliability"),
}


class FenceDoctests(griffe.Extension):
    """Wraps every run of `>>>` lines, with what they print, in a block of its own."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one object, as griffe has read it."""
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = DOCTEST.sub(_fenced, obj.docstring.value)


class MainNamesFirst(griffe.Extension):
    """Orders `__all__` of each module, which the reference follows."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Reorder the names as soon as the package is read."""
        for path, first in FIRST.items():
            names = import_module(path).__all__
            pkg[path.removeprefix(f"{pkg.path}.")].exports = [*first, *(name for name in names if name not in first)]


def _fenced(match: re.Match[str]) -> str:
    return f"```pycon\n{match[0].rstrip()}\n```\n"
