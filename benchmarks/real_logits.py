"""Temperature and focal temperature scaling on real networks, with 95 % intervals.

    python benchmarks/real_logits.py FOLDER [-o benchmarks/results]

For each .npz in FOLDER (`val`, `yv`, `test`, `yt`): every calibrator is fitted on the validation rows and measured on
the test rows. Writes a Markdown table and the numbers as JSON. Differences are against temperature scaling chosen by
the same measure (log-loss for log-loss and Brier, ECE for ECE), by a paired bootstrap.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
from sklearn.base import clone

from refocal import FocalTemperatureScaling, TemperatureScaling, metrics
from refocal._files import write_atomically
from refocal.maps import log_softmax
from refocal.search import PAPER_GAMMAS

WITH_ZERO = sorted((*PAPER_GAMMAS, 0.0))
METHODS = {
    "uncalibrated": None,
    "TS, log-loss": TemperatureScaling(),
    "TS, ECE": TemperatureScaling(objective="ece", search="grid"),
    "TS, auto": TemperatureScaling(objective="auto"),
    "FTS, log-loss": FocalTemperatureScaling(objective="nll"),
    "FTS, ECE (the paper's grid)": FocalTemperatureScaling(objective="ece", search="grid"),
    "FTS, ECE (with γ = 0)": FocalTemperatureScaling(objective="ece", search="grid", gammas=WITH_ZERO),
    "FTS, ECE, within 2 %": FocalTemperatureScaling(objective="ece", search="grid", nll_tolerance=0.02),
    "FTS, ECE, 3m line": FocalTemperatureScaling(objective="ece", search="line"),
    "FTS, Brier": FocalTemperatureScaling(objective="brier_score", temperatures=np.geomspace(0.3, 5.0, 30)),
    "FTS, auto (the default)": FocalTemperatureScaling(),
}
MEASURES = {
    "log_loss": (metrics.log_loss, "TS, log-loss", 1.0),
    "ece": (metrics.expected_calibration_error, "TS, ECE", 100.0),
    "brier": (metrics.brier_score, "TS, log-loss", 1.0),
}


def predict(
    calibrator: object, val: np.ndarray, y: np.ndarray, test: np.ndarray
) -> tuple[np.ndarray, dict[str, object]]:
    if calibrator is None:
        return log_softmax(test), {}
    start = time.perf_counter()
    fitted = clone(calibrator).fit(val, y)
    about = {"gamma": fitted.gamma_, "temperature": fitted.temperature_, "seconds": time.perf_counter() - start}
    return fitted.predict_log_proba(test), about


def measure(y: np.ndarray, found: dict[str, np.ndarray], name: str) -> dict[str, object]:
    row: dict[str, object] = {}
    for key, (metric, baseline, _) in MEASURES.items():
        mine, other = ((log_p if key == "log_loss" else np.exp(log_p)) for log_p in (found[name], found[baseline]))
        row[key] = asdict(metrics.bootstrap_interval(metric, y, mine))
        row[f"{key}_difference"] = asdict(metrics.paired_bootstrap(metric, y, mine, other))
    return row


def line(name: str, row: dict) -> str:
    cells = [name, f"{row['gamma']:.2f}, {row['temperature']:.3f}" if "gamma" in row else "–"]
    for key, (_, baseline, scale) in MEASURES.items():
        form = "{:.2f}" if scale == 100.0 else "{:.4f}"
        value, low, high = (form.format(scale * row[key][part]) for part in ("value", "low", "high"))
        text = f"{value} [{low}, {high}]"
        if name != baseline:
            apart = row[f"{key}_difference"]
            star = "*" if apart["low"] > 0 or apart["high"] < 0 else ""
            text += f" ({form.replace(':', ':+').format(scale * apart['difference'])}{star})"
        cells.append(text)
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    results: dict[str, dict] = {}
    text = [
        "95 % intervals in brackets; in parentheses the difference to temperature scaling chosen by the same measure,"
    ]
    text += ["with a star where its paired 95 % interval does not hold 0. ECE in percent, 15 equal-mass bins."]
    for path in sorted(options.folder.glob("*.npz")):
        data = np.load(path)
        val, test = (data[name].astype(np.float32) for name in ("val", "test"))
        y_val, y_test = (data[name].astype(np.int64) for name in ("yv", "yt"))
        found, rows = {}, {}
        for name, calibrator in METHODS.items():
            found[name], rows[name] = predict(calibrator, val, y_val, test)
        for name in METHODS:
            rows[name] |= measure(y_test, found, name)
        results[path.stem] = rows
        text += ["", f"### {path.stem}", "", "| method | γ, T | log-loss | ECE, % | Brier |", "|---|---|---|---|---|"]
        text += [line(name, row) for name, row in rows.items()]
        print("\n".join(text[-len(rows) - 4 :]), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    write_atomically(options.out / "real_logits.md", "\n".join(text) + "\n")
    write_atomically(options.out / "real_logits.json", json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
