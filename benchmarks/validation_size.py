"""How many held-out rows a calibrator needs: test log-loss and ECE of the fitted calibrator against the rows it saw.

    python benchmarks/validation_size.py FOLDER [METHOD …] > benchmarks/results/validation_size.json

FOLDER holds .npz files: `val`, `yv`, `test`, `yt` of one network each, or `logits` and `labels`. All rows of a network
are pooled; each draw sets 5,000 of them aside to score on and fits on the first n of the others, so that a draw's
calibrators see nested sets of rows. Methods are names of `refocal.calibrators.registry`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from selection_rules import networks

from refocal import metrics
from refocal.calibrators.registry import make
from refocal.maps import log_softmax

SIZES, DRAWS, HELD_BACK = (200, 500, 1000, 2000, 5000, 10_000), 6, 5000
METHODS = ("ts", "fts", "fts-nll", "isotonic")


def score(log_p: np.ndarray, labels: np.ndarray) -> list[float]:
    """Log-loss, and ECE over 15 bins of equal mass."""
    return [metrics.log_loss(labels, log_p), metrics.expected_calibration_error(labels, np.exp(log_p))]


def measure(logits: np.ndarray, labels: np.ndarray, methods: list[str], draw: int) -> dict[str, dict[int, list[float]]]:
    """For each method, and for "none", its score at every size that the rows allow."""
    order = np.random.default_rng(draw).permutation(len(labels))
    test, rest = order[:HELD_BACK], order[HELD_BACK:]
    sizes = [n for n in SIZES if n <= len(rest)]
    found = {"none": dict.fromkeys(sizes, score(log_softmax(logits[test]), labels[test]))}
    for method in methods:
        found[method] = {}
        for n in sizes:
            fitted = make(method).fit(logits[rest[:n]], labels[rest[:n]])
            found[method][n] = score(np.asarray(fitted.predict_log_proba(logits[test])), labels[test])
    return found


def main(folder: Path, methods: list[str]) -> None:
    results = {}
    for name, (logits, labels) in networks(folder).items():
        results[name] = [measure(logits, labels, methods, draw) for draw in range(DRAWS)]
        print(name, file=sys.stderr, flush=True)
    json.dump({"draws": DRAWS, "test_rows": HELD_BACK, "networks": results}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(METHODS))
