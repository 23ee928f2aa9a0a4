"""The calibrators with a curve for each class, and their textbook forms, against temperature scaling.

    python benchmarks/class_by_class.py FOLDER

FOLDER holds .npz files: `val`, `yv`, `test`, `yt` of one network each, or `logits` and `labels`. All rows of a network
are pooled and split anew at random into n rows to fit on and 5,000 others to score on. Printed is the mean relative
change of the test log-loss and ECE (15 equal-mass bins) against temperature scaling by log-loss, the worst network's
log-loss, and the mean change of accuracy.

    python benchmarks/class_by_class.py --time

prints the CPU seconds of fits on 10,000 rows of 1,000 classes, and the memory of the process at its peak.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import numpy as np
from selection_rules import networks
from sklearn.base import clone
from sklearn.isotonic import IsotonicRegression

from refocal import (
    BayesianBinning,
    BetaCalibration,
    EnsembleTemperatureScaling,
    HistogramBinning,
    IsotonicCalibration,
    SplineCalibration,
    TemperatureScaling,
    metrics,
)
from refocal.calibrators import Calibrator
from refocal.maps import log_softmax

SIZES, DRAWS = (5000, 1000, 300), 2
METHODS: dict[str, Calibrator] = {
    "ensemble temperature scaling": EnsembleTemperatureScaling(),
    "beta": BetaCalibration(),
    "beta, textbook": BetaCalibration(base="softmax", smoothing=1e-3),
    "spline": SplineCalibration(),
    "isotonic": IsotonicCalibration(),
    "histogram": HistogramBinning(),
    "histogram, textbook": HistogramBinning(within="constant", base="softmax"),
    "BBQ": BayesianBinning(),
    "BBQ, textbook": BayesianBinning(within="constant", base="softmax", smoothing=2.0),
}


def scikit_learn_isotonic(x: np.ndarray, y: np.ndarray, test: np.ndarray) -> np.ndarray:
    """One-vs-rest isotonic regression as CalibratedClassifierCV does it, its zeros raised to 1e-6."""
    q, q_test = np.exp(log_softmax(x)), np.exp(log_softmax(test))
    fits = [IsotonicRegression(out_of_bounds="clip").fit(q[:, k], y == k) for k in range(x.shape[1])]
    p = np.maximum(np.stack([fit.predict(q_test[:, k]) for k, fit in enumerate(fits)], axis=1), 1e-6)
    return np.log(p / p.sum(axis=1, keepdims=True))


def score(log_p: np.ndarray, labels: np.ndarray) -> tuple[float, float, float]:
    p = np.exp(log_p)
    ece = metrics.expected_calibration_error(labels, p)
    return metrics.log_loss(labels, log_p), ece, float(np.mean(p.argmax(axis=1) == labels))


def changes(logits: np.ndarray, labels: np.ndarray, size: int, draw: int) -> dict[str, np.ndarray]:
    order = np.random.default_rng(draw).permutation(len(labels))
    chosen, rest = order[:size], order[5000:10_000]
    x, y, test, truth = logits[chosen], labels[chosen], logits[rest], labels[rest]
    base = score(TemperatureScaling().fit(x, y).predict_log_proba(test), truth)
    found = {name: clone(method).fit(x, y).predict_log_proba(test) for name, method in METHODS.items()}
    found["isotonic of scikit-learn"] = scikit_learn_isotonic(x, y, test)
    return {
        name: np.array([loss / base[0] - 1, ece / base[1] - 1, accuracy - base[2]])
        for name, (loss, ece, accuracy) in ((name, score(log_p, truth)) for name, log_p in found.items())
    }


def main(folder: Path) -> None:
    data = networks(folder)
    print(f"{len(data)} networks: {', '.join(data)}")
    for size in SIZES:
        rows = [
            {key: np.mean([c[key] for c in draws], axis=0) for key in draws[0]}
            for draws in ([changes(*of, size, draw) for draw in range(DRAWS)] for of in data.values())
        ]
        print(f"\n| n = {size} | log-loss | worst network | ECE | accuracy, points |\n|---|---|---|---|---|")
        for name in rows[0]:
            all_of = np.array([row[name] for row in rows])
            loss, ece, accuracy = 100 * all_of.mean(axis=0)
            print(f"| {name} | {loss:+.2f} % | {100 * all_of[:, 0].max():+.2f} % | {ece:+.1f} % | {accuracy:+.2f} |")


def timing(n_rows: int = 10_000, n_classes: int = 1000) -> None:
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.standard_normal((n_rows, n_classes), dtype=np.float32)
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    for name, method in METHODS.items():
        if "textbook" not in name:
            start = time.process_time()
            clone(method).fit(1.8 * logits, labels)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            print(f"{name}: {time.process_time() - start:.1f} s, peak {peak:.2f} GB", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--time":
        timing()
    else:
        main(Path(sys.argv[1]))
