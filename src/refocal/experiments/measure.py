"""What a finished cell shows: temperature against focal temperature scaling, chosen and scored as in the paper."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from refocal import metrics
from refocal._files import write_atomically
from refocal.calibrators import FocalTemperatureScaling, TemperatureScaling
from refocal.errors import FormatError
from refocal.maps import log_softmax

# The paper's two rows for each training, and our default beside them; criterion → calibrator.
ROWS: dict[str, dict[str, Any]] = {
    "ts": {name: TemperatureScaling(objective=name, search="grid") for name in ("nll", "ece")},
    "fts": {name: FocalTemperatureScaling(objective=name, search="grid") for name in ("nll", "ece")},
    "default": {"auto": FocalTemperatureScaling()},
}


def measure_cell(folder: Path) -> dict[str, Any]:
    """The measures of a cell, from its logits; kept in metrics.json and read from there the next time."""
    kept = folder / "metrics.json"
    if kept.is_file():
        found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return found
    if not (folder / "logits.npz").is_file():
        raise FormatError(f"{folder}: no logits.npz; the cell has not been trained to its end.")
    data = np.load(folder / "logits.npz", allow_pickle=False)
    val, test = (data[name].astype(np.float32) for name in ("val", "test"))
    y_val, y_test = (data[name].astype(np.int64) for name in ("yv", "yt"))
    log_p = {"raw": log_softmax(test)}
    result: dict[str, Any] = {"recipe": json.loads((folder / "recipe.json").read_text(encoding="utf-8"))}
    result["accuracy"] = metrics.accuracy(y_test, np.exp(log_p["raw"]))
    result["raw"] = _scores(y_test, log_p["raw"])
    for row, criteria in ROWS.items():
        result[row] = {}
        for criterion, calibrator in criteria.items():
            fitted = calibrator.fit(val, y_val)
            log_p[f"{row} {criterion}"] = fitted.predict_log_proba(test)
            result[row][criterion] = {
                "gamma": fitted.gamma_,
                "temperature": fitted.temperature_,
                **_scores(y_test, log_p[f"{row} {criterion}"]),
            }
    result["differences"] = {
        f"{row} - ts, {name}": _difference(y_test, log_p[f"{row} {of}"], log_p[f"ts {criterion}"], name)
        for row, of_nll, of_ece in (("fts", "nll", "ece"), ("default", "auto", "auto"))
        for name, criterion, of in (("log_loss", "nll", of_nll), ("ece", "ece", of_ece))
    }
    write_atomically(kept, json.dumps(result, indent=1) + "\n")
    return result


def _scores(y: Any, log_p: Any) -> dict[str, float]:
    p = np.exp(log_p)
    return {
        "log_loss": metrics.log_loss(y, log_p),
        "ece": metrics.expected_calibration_error(y, p),
        "brier_score": metrics.brier_score(y, p),
    }


def _difference(y: Any, first: Any, second: Any, name: str) -> dict[str, Any]:
    if name == "log_loss":
        return asdict(metrics.paired_bootstrap(metrics.log_loss, y, first, second))
    return asdict(metrics.paired_bootstrap(metrics.expected_calibration_error, y, np.exp(first), np.exp(second)))
