"""What a finished cell shows: temperature against focal temperature scaling, chosen and scored as in the paper."""

from __future__ import annotations

import json
import math
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from refocal import metrics
from refocal._files import write_atomically
from refocal.calibrators import FocalTemperatureScaling, TemperatureScaling
from refocal.errors import FormatError
from refocal.maps import focal, log_softmax
from refocal_paper.protocol import measure_by_gamma
from refocal_paper.recipe import from_dict

# The paper's two rows for each training, and our default beside them; criterion → calibrator.
ROWS: dict[str, dict[str, Any]] = {
    "ts": {name: TemperatureScaling(objective=name, search="grid") for name in ("nll", "ece")},
    "fts": {name: FocalTemperatureScaling(objective=name, search="grid") for name in ("nll", "ece")},
    "default": {"auto": FocalTemperatureScaling()},
}
# What metrics.json holds, beside the recipe, and what it holds since later.
PARTS = ("accuracy", "raw", *ROWS, "differences")
LATER = {"pairs", "map_temperature", "by_gamma", "mapped", "squared_ece_difference"}


def find_cells(runs: Path) -> tuple[list[Path], list[Path]]:
    """The folders of finished cells, which can be measured or were, and those of unfinished ones."""
    folders = sorted({path.parent for name in ("recipe.json", "metrics.json") for path in runs.glob(f"*/{name}")})
    finished = [f for f in folders if (f / "metrics.json").is_file() or (f / "logits.npz").is_file()]
    return finished, [f for f in folders if f not in finished]


def measure_cell(folder: Path) -> dict[str, Any]:
    """The measures of a cell, from its logits; kept in metrics.json and read from there the next time.

    The logits may be gone by then. Where they are not, what an older version did not measure is added. What was
    measured beyond the test set right after training, in shift.json, comes with it.
    """
    shift = folder / "shift.json"
    return {**_measured(folder), **({"shift": _read_json(shift)} if shift.is_file() else {})}


def _measured(folder: Path) -> dict[str, Any]:
    kept, logits = folder / "metrics.json", folder / "logits.npz"
    found: dict[str, Any] = {}
    if kept.is_file():
        found = _read_json(kept)
        missing = [part for part in ("recipe", *PARTS) if part not in found]
        if missing:
            raise FormatError(f"{kept}: holds no {missing[0]!r}; remove it to have the cell measured again.")
        if found.keys() >= LATER or not logits.is_file():
            return found
    if not logits.is_file():
        raise FormatError(f"{folder}: no logits.npz; the cell has not been trained to its end.")
    recipe = _read_json(folder / "recipe.json")
    result = {"recipe": recipe, **measure(_read_logits(logits), from_dict(recipe, str(folder)).gamma), **found}
    write_atomically(kept, json.dumps(result, indent=1) + "\n")
    return result


def measure(data: dict[str, NDArray[Any]], gamma: float) -> dict[str, Any]:
    """The measures of logits `val`, `test` with labels `yv`, `yt` of a network trained with focal loss of a γ.

    With `train`, `ytr`, images that were learnt from, also how well it is calibrated on those.
    """
    val, test, y_val, y_test = (data[name] for name in ("val", "test", "yv", "yt"))
    log_p = {"raw": log_softmax(test)}
    result: dict[str, Any] = {"accuracy": metrics.accuracy(y_test, np.exp(log_p["raw"]))}
    result["raw"] = scores(y_test, log_p["raw"])
    result["mapped"] = scores(y_test, focal(log_p["raw"], gamma)) if gamma > 0.0 else None
    result["by_gamma"] = measure_by_gamma(val, y_val, test, y_test)
    fits: dict[str, dict[str, Any]] = {}
    for row, criteria in ROWS.items():
        fits[row] = {criterion: clone(calibrator).fit(val, y_val) for criterion, calibrator in criteria.items()}
        result[row] = {}
        for criterion, fitted in fits[row].items():
            log_p[f"{row} {criterion}"] = fitted.predict_log_proba(test)
            result[row][criterion] = {
                "gamma": fitted.gamma_,
                "temperature": fitted.temperature_,
                **scores(y_test, log_p[f"{row} {criterion}"]),
            }
    result["differences"] = {
        f"{row} - ts, log_loss": asdict(
            metrics.paired_bootstrap(metrics.log_loss, y_test, log_p[f"{row} {criterion}"], log_p["ts nll"])
        )
        for row, criterion in (("fts", "nll"), ("default", "auto"))
    }
    probabilities = (np.exp(log_p[f"{row} ece"]) for row in ("fts", "ts"))
    result["squared_ece_difference"] = asdict(metrics.squared_ece_difference(y_test, *probabilities))
    result["pairs"] = {
        name: [[row["gamma"], row[name]["temperature"]] for row in result["by_gamma"]] for name in ("nll", "ece")
    }
    result["map_temperature"] = map_temperature(val, gamma) if gamma > 0.0 else None
    if "train" in data:
        result["train"] = _train_measures(data["train"], data["ytr"], gamma)
    return result


def map_temperature(logits: NDArray[Any], gamma: float) -> float:
    """The temperature that does to these logits most nearly what the focal map with γ does, in mean KL divergence."""
    from scipy.optimize import minimize_scalar

    target = np.exp(focal(log_softmax(logits), gamma))

    def divergence(log_t: float) -> float:
        return -float((target * log_softmax(logits, math.exp(log_t))).sum(axis=1).mean())

    found = minimize_scalar(divergence, bounds=(-math.log1p(gamma) - 0.5, 0.5), method="bounded")
    return math.exp(found.x)


def _train_measures(logits: Any, labels: Any, gamma: float) -> dict[str, Any]:
    """How well a network is calibrated on what it learnt from: as it is, and after the focal map of its own γ."""
    log_p = log_softmax(logits)
    return {
        **scores(labels, log_p),
        "accuracy": metrics.accuracy(labels, np.exp(log_p)),
        "confidence": float(np.exp(log_p).max(axis=1).mean()),
        "temperature": TemperatureScaling(objective="nll", search="grid").fit(logits, labels).temperature_,
        "mapped": scores(labels, focal(log_p, gamma)) if gamma > 0.0 else None,
    }


def scores(y: Any, log_p: Any) -> dict[str, float]:
    """Log-loss, ECE and Brier score of log-probabilities."""
    p = np.exp(log_p)
    return {
        "log_loss": metrics.log_loss(y, log_p),
        "ece": metrics.expected_calibration_error(y, p),
        "brier_score": metrics.brier_score(y, p),
    }


def _read_logits(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            kept = {"val": "yv", "test": "yt", **({"train": "ytr"} if "train" in file else {})}
            logits = {name: file[name].astype(np.float32) for name in kept}
            return {**logits, **{name: file[name].astype(np.int64) for name in kept.values()}}
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise FormatError(f"{path}: must hold the arrays 'val', 'test', 'yv' and 'yt': {error}.") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FormatError(f"{path}: not a JSON file that can be read: {error}.") from error
    if not isinstance(found, dict):
        raise FormatError(f"{path}: must hold a JSON object.")
    return found
