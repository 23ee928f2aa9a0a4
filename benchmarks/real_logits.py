"""Every calibrator on real networks, beside the peers, with 95 % intervals and paired differences.

    python benchmarks/real_logits.py FOLDER_OR_FILE … [--methods ts auto …] [--files PART …] [--rows 500] [--jobs 2]
        [-o OUT]

Each .npz (`val`, `yv`, `test`, `yt`) is one network: every calibrator of the registry, a few settings of the paper, and
the peers that are installed are fitted on the validation rows and measured on the test rows. Files named logits.npz go
by the name of their folder. `--methods` takes names, `--files` parts of file names; with `--rows` only that many
validation rows, drawn at random, are used; with `--halves` files of `logits` and `labels` are read and split in random
halves. Writes real_logits.md and .json into OUT after each network, with the options in their names.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
from real_logits_table import render

import peers
from refocal import (
    FocalTemperatureScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    metrics,
)
from refocal._files import write_atomically
from refocal.calibrators.registry import NAMED, make
from refocal.engine.scoring import mean_error
from refocal.fitting.objective import BALANCE
from refocal.maps import log_softmax

BASELINE = "ts"
# Some peers give probability 0 to classes that occur, and so an infinite log-loss: those count as this.
LEAST = 1e-12
SETTINGS = {
    "ts-ece, the paper's grid": lambda: TemperatureScaling(objective="ece", search="grid"),
    "fts-ece, the paper's grid": lambda: FocalTemperatureScaling(objective="ece", search="grid"),
    "fts-ece, within 2 %": lambda: FocalTemperatureScaling(objective="ece", search="grid", nll_tolerance=0.02),
    "fts-ece, 3m line": lambda: FocalTemperatureScaling(objective="ece", search="line"),
    "svs, focal": lambda: StructuredVectorScaling(focal=True),
    "sms, focal": lambda: StructuredMatrixScaling(focal=True),
}
METHODS = ("none", *NAMED, *SETTINGS, *peers.PEERS)


def multi_resolution_ece(labels: np.ndarray, p: np.ndarray) -> float:
    """The mean of the equal-mass ECEs with 5 to 50 bins, refocal's own guide."""
    return mean_error(p.max(axis=1), p.argmax(axis=1) == labels, None, resolutions=BALANCE.resolutions)


RESAMPLED = {
    "log_loss": metrics.log_loss,
    "ece": metrics.expected_calibration_error,
    "brier": metrics.brier_score,
    "accuracy": metrics.accuracy,
}
VALUES = {
    "multi_ece": multi_resolution_ece,
    "smooth_ece": metrics.smooth_ece,
    "classwise_ece": metrics.classwise_ece,
}


def is_network(path: Path) -> bool:
    """Whether a file has rows to fit on and rows to test; logits in the course of a training have no test rows."""
    with np.load(path) as data:
        return "test" in data or "logits" in data


def read(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    data = np.load(path)
    if "val" in data:
        parts = [data[name] for name in ("val", "yv", "test", "yt")]
    else:
        first, second = np.array_split(np.random.default_rng(0).permutation(len(data["labels"])), 2)
        parts = [data[name][half] for half in (first, second) for name in ("logits", "labels")]
    val, y, test, y_test = parts
    return val.astype(np.float32), y.astype(np.int64), test.astype(np.float32), y_test.astype(np.int64)


def name_of(path: Path) -> str:
    return path.parent.name if path.stem == "logits" else path.stem


def predict(method: str, val: np.ndarray, y: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, dict[str, object]]:
    """Log-probabilities of the test rows, and what is worth knowing about the fit."""
    if method == "none":
        return log_softmax(test).astype(np.float64), {}
    if method in peers.PEERS:
        p, p_test = (np.exp(log_softmax(x.astype(np.float64))) for x in (val, test))
        start = time.perf_counter()
        found = peers.predict(method, p, y, p_test)
        seconds = time.perf_counter() - start
        return np.log(np.maximum(found, LEAST)), {"seconds": seconds}
    calibrator = SETTINGS[method]() if method in SETTINGS else make(method)
    start = time.perf_counter()
    calibrator.fit(val, y)
    about: dict[str, object] = {"seconds": time.perf_counter() - start}
    for key in ("gamma", "temperature", "choice"):
        if hasattr(calibrator, f"{key}_"):
            about[key] = getattr(calibrator, f"{key}_")
    return calibrator.predict_log_proba(test).astype(np.float64), about


def measure(path: Path, methods: list[str], n_resamples: int, n_rows: int | None) -> dict[str, dict]:
    """All methods on one network; the resamples are the same rows for all, so that differences are paired."""
    val, y, test, y_test = read(path)
    if n_rows is not None:
        some = np.random.default_rng(0).permutation(len(y))[:n_rows]
        val, y = val[some], y[some]
    wanted = [m for m in methods if val.shape[1] <= peers.FEW_CLASSES.get(m, val.shape[1])]
    rows, draws = {}, {}
    for method in dict.fromkeys((BASELINE, *wanted)):
        log_p, row = predict(method, val, y, test)
        p = np.exp(log_p)
        draws[method] = {
            key: metrics.resample(metric, y_test, log_p if key == "log_loss" else p, n_resamples=n_resamples)
            for key, metric in RESAMPLED.items()
        }
        for key, drawn in draws[method].items():
            # Resampling adds noise to a calibration error; the basic interval undoes it.
            row[key] = asdict(drawn.interval(method="basic" if key == "ece" else "percentile"))
            row[f"{key}_difference"] = asdict(drawn.minus(draws[BASELINE][key]))
        if method in peers.PEERS:
            row["zeros"] = int(np.sum(p[np.arange(len(y_test)), y_test] <= 2.0 * LEAST))
        rows[method] = row | {key: float(metric(y_test, p)) for key, metric in VALUES.items()}
        print(f"{name_of(path)}: {method}, {row.get('seconds', 0.0):.1f} s", flush=True)
    return {method: rows[method] for method in methods if method in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS, metavar="METHOD")
    parser.add_argument("--files", nargs="+", default=[""], help="parts of file names")
    parser.add_argument("--halves", action="store_true", help="files of `logits` and `labels` instead, split in halves")
    parser.add_argument("--rows", type=int, help="of the validation set")
    parser.add_argument("--jobs", type=int, default=1, help="networks at a time")
    parser.add_argument("--resamples", type=int, default=500)
    parser.add_argument("-o", "--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    found = [p for s in options.sources for p in (sorted(s.rglob("*.npz")) if s.is_dir() else [s])]
    files = [p for p in found if any(part in name_of(p) for part in options.files)]
    files = [p for p in files if is_network(p) and ("val" in np.load(p)) != options.halves]
    methods = list(dict.fromkeys((BASELINE, *options.methods)))
    methods.sort(key=METHODS.index)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    work = partial(measure, methods=methods, n_resamples=options.resamples, n_rows=options.rows)
    options.out.mkdir(parents=True, exist_ok=True)
    name = "real_logits" + "_halves" * options.halves + (f"_{options.rows}" if options.rows else "")
    results = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for path, rows in zip(files, pool.map(work, files), strict=True):
            results[name_of(path)] = rows
            write_atomically(options.out / f"{name}.json", json.dumps(results, indent=1) + "\n")
            write_atomically(options.out / f"{name}.md", render(results))


if __name__ == "__main__":
    main()
