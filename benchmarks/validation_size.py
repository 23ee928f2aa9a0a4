"""How many held-out rows a calibrator needs: test log-loss and ECE of the fitted calibrator against the rows it saw.

    python benchmarks/validation_size.py FOLDER benchmarks/results/validation_size.json [METHOD …]
    python benchmarks/validation_size.py --table benchmarks/results/validation_size.json

FOLDER holds .npz files: `val`, `yv`, `test`, `yt` of one network each, or `logits` and `labels`. All rows of a network
are pooled; each draw sets 5,000 of them aside to score on and fits on the first n of the others, so that a draw's
calibrators see nested sets of rows. Methods are names of `refocal.calibrators.registry`. "calibrated" is what the ECE
would show if the confidences (those of temperature scaling on all rows) were exactly true: noise alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import mean

import numpy as np
from selection_rules import networks

from refocal import metrics
from refocal.calibrators.registry import make
from refocal.maps import log_softmax

SIZES, DRAWS, HELD_BACK = (200, 500, 1000, 2000, 5000, 10_000), 6, 5000
METHODS = ("ts", "fts", "fts-nll", "isotonic")


def score(log_p: np.ndarray, labels: np.ndarray) -> list[float]:
    """Log-loss, and ECE over 15 bins of equal mass."""
    values = metrics.log_loss(labels, log_p), metrics.expected_calibration_error(labels, np.exp(log_p))
    return [round(value, 6) for value in values]


def measure(logits: np.ndarray, labels: np.ndarray, methods: list[str], draw: int) -> dict[str, dict[str, list[float]]]:
    """For each method, and for "none" and "calibrated", its score at every size that the rows allow."""
    rng = np.random.default_rng(draw)
    order = rng.permutation(len(labels))
    test, rest = order[:HELD_BACK], order[HELD_BACK:]
    sizes = [n for n in SIZES if n <= len(rest)]
    as_it_is = score(log_softmax(logits[test]), labels[test])
    found = {"none": {str(n): as_it_is for n in sizes}}
    for method in methods:
        found[method] = {}
        for n in sizes:
            fitted = make(method).fit(logits[rest[:n]], labels[rest[:n]])
            found[method][str(n)] = score(np.asarray(fitted.predict_log_proba(logits[test])), labels[test])
    top = make("ts").fit(logits[rest], labels[rest]).predict_proba(logits[test]).max(axis=1)
    noise = metrics.expected_calibration_error((rng.random(HELD_BACK) < top).astype(int), top)
    found["calibrated"] = {str(n): [0.0, round(noise, 6)] for n in sizes}
    return found


def table(results: dict) -> None:
    """The mean over networks and draws: ECE, change of log-loss, and how often calibration did harm."""
    names = results["networks"]
    for size in map(str, SIZES):
        there = [draws for draws in names.values() if size in draws[0]["none"]]
        print(f"\n| {size} rows, {len(there)} networks | ECE % | log-loss | worse log-loss | worse ECE |")
        print("|---|---|---|---|---|")
        for method in there[0][0]:
            pairs = [(draw[method][size], draw["none"][size]) for draws in there for draw in draws]
            ece = f"{100 * mean(after[1] for after, _ in pairs):.2f}"
            change, *harm = (
                mean(after[0] / before[0] - 1 for after, before in pairs),
                mean(after[0] > before[0] for after, before in pairs),
                mean(after[1] > before[1] for after, before in pairs),
            )
            cells = ["", "", ""] if method in ("none", "calibrated") else [f"{100 * change:+.2f} %"]
            cells += [f"{100 * share:.0f} %" for share in harm] if len(cells) == 1 else []
            print(f"| {method} | {ece} | {' | '.join(cells)} |")


def main(folder: Path, output: Path, methods: list[str]) -> None:
    """Measure every network and write what was found."""
    results = {}
    for name, (logits, labels) in networks(folder).items():
        results[name] = [measure(logits, labels, methods, draw) for draw in range(DRAWS)]
        print(name, file=sys.stderr, flush=True)
    output.write_text(json.dumps({"draws": DRAWS, "test_rows": HELD_BACK, "networks": results}) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--table":
        table(json.loads(Path(sys.argv[2]).read_text()))
    else:
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] or list(METHODS))
