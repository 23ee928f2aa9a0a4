"""All entries, the public names that each one calls, and those that take rows and are no entries, with the reasons."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import matrix_commands
import matrix_entries
import matrix_measures
import matrix_moved

from refocal.metrics import METRICS

PREDICT = ("predict", "predict_proba", "predict_log_proba")
ROWS = "refocal.io.Predictions"


def methods_of(name, *methods):
    return tuple(f"refocal.{name}.{method}" for method in methods)


# The public names of entries that do not say them themselves.
CALLED = {
    "fit_ts": methods_of("Calibrator", "fit", "dataset"),
    "predict": methods_of("Calibrator", *PREDICT),
    "fit_group": methods_of("GroupCalibration", "fit", *PREDICT),
    "fit_multilabel": methods_of("MultiLabelCalibration", "fit", "score", *PREDICT),
    "layer": ("refocal.nn.CalibrationLayer.forward",),
    "rows": (f"{ROWS}.from_logits", f"{ROWS}.from_probabilities", f"{ROWS}.from_log_odds"),
    "evaluate": ("refocal.evaluate.evaluate",),
    "compare": ("refocal.evaluate.compare",),
    "decide": ("refocal.decide.evaluate_decisions",),
    "monitor": ("refocal.monitor.CalibrationMonitor.update",),
    "read": ("refocal.io.read",),
    "open_rows_fit": ("refocal.io.open_rows",),
    "apply": ("refocal.io.apply",),
    "blocks_fit": ("refocal.io.blocks",),
    "refocal_fit": ("$ refocal fit",),
    "refocal_evaluate": ("$ refocal evaluate",),
    "refocal_compare": ("$ refocal compare",),
    "refocal_decide": ("$ refocal decide",),
    "refocal_apply": ("$ refocal apply",),
}
for name, record in METRICS.items():
    function = record.function.func if isinstance(record.function, partial) else record.function
    CALLED[f"metric_{name}"] = (f"refocal.metrics.{function.__name__}",)

MODULES = (matrix_entries, matrix_measures, matrix_moved, matrix_commands)
ENTRIES = [
    replace(entry, covers=entry.covers + CALLED.get(entry.name, ())) for module in MODULES for entry in module.ENTRIES
]

TRAINING = "column numbers in tensors of a training loop: no names, no tables, no files"
LANGUAGE = "answers of language models, which have no columns of classes"
ELSEWHERE = {
    "refocal.CalibratedClassifier": "its rows are features of another estimator: tests/calibrators/test_classifier.py",
    "refocal.Calibrator.fit_chain": "written by those who extend: it takes what `fit` has read",
    "refocal.detection": "boxes with scores of one class each: tests/detection",
    "refocal.evaluate.ComparedMetric.cost": "values of metrics",
    "refocal.io.Predictions.events": "as `event`, for many classes at once",
    "refocal.io.Predictions.from_top_k": LANGUAGE,
    "refocal.io.TopK": LANGUAGE,
    "refocal.io.answer_confidence": LANGUAGE,
    "refocal.io.generated_log_p": LANGUAGE,
    "refocal.io.multiple_choice": LANGUAGE,
    "refocal.io.option_log_p": LANGUAGE,
    "refocal.io.read_lm_eval": LANGUAGE,
    "refocal.io.read_token_log_p": LANGUAGE,
    "refocal.io.stated_confidence": LANGUAGE,
    "refocal.io.read_values": "the contents of a file before they are read as rows",
    "refocal.losses": "formulas of arrays and column numbers",
    "refocal.maps": "formulas of arrays",
    "refocal.metrics.Metric.check_classes": "rows that have been read",
    "refocal.metrics.judged_rate": LANGUAGE,
    "refocal.monitor.AtAlarm.observe": "batches that `backtest` has read",
    "refocal.monitor.Forgetting.observe": "batches that `backtest` has read",
    "refocal.monitor.Keep.observe": "batches that `backtest` has read",
    "refocal.monitor.Window.observe": "batches that `backtest` has read",
    "refocal.nn.AdaFocalLoss": TRAINING,
    "refocal.nn.AsymmetricFocalLoss": TRAINING,
    "refocal.nn.BrierLoss": TRAINING,
    "refocal.nn.FocalLoss": TRAINING,
    "refocal.nn.MMCE": TRAINING,
    "refocal.nn.MultiLabelLayer": "tensors of a model: tests/nn",
    "refocal.nn.SampleDependentFocalLoss": TRAINING,
    "refocal.nn.SigmoidFocalLoss": TRAINING,
    "refocal.nn.collect_logits": "batches of a model: tests/nn",
    "refocal.segments.FoundSegments.groups": "features alone",
    "refocal.shift.OnlineUpdate.partial_fit": "log-probabilities and column numbers that have been read",
    "$ refocal demo": "its own rows",
    "$ refocal diff": "evaluations",
    "$ refocal explore": "no rows",
    "$ refocal show": "a calibrator",
    "$ refocal theory": "no rows",
}
"""What takes rows and is no entry: a name, or all names that begin with it and a point."""
