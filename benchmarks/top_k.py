"""Fits from the k best classes beside fits from all of them: `python benchmarks/top_k.py FILE.npz … [--k 5 20]`.

Each .npz (`val`, `yv`, `test`, `yt`) is one network. Temperature scaling and focal temperature scaling, by log-loss,
are fitted on the k best log-probabilities of the validation rows with each approximation of the others, and applied
to the whole logits of the test rows. Prints a table of the differences from the fits on whole logits.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from refocal import FocalTemperatureScaling, TemperatureScaling
from refocal.io import TopK, blocks
from refocal.maps import log_softmax
from refocal.metrics import expected_calibration_error, log_loss

KINDS = {"ts": TemperatureScaling, "fts-nll": lambda: FocalTemperatureScaling(objective="nll")}


def figures(fitted: object, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """T, γ, and ECE in % and log-loss on the test rows."""
    log_p = fitted.predict_log_proba(logits)
    ece = 100.0 * expected_calibration_error(labels, np.exp(log_p))
    return np.array([fitted.temperature_, getattr(fitted, "gamma_", 0.0), ece, log_loss(labels, log_p)])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--k", type=int, nargs="+", default=[5, 20])
    arguments = parser.parse_args()
    print("| network | method | k | tail | T | γ | ECE, points | log-loss |\n|---|---|---|---|---|---|---|---|")
    for file in arguments.files:
        data = np.load(file)
        val, yv, test, yt = (data[name] for name in ("val", "yv", "test", "yt"))
        val, test = val.astype(np.float64), test.astype(np.float64)
        log_p = np.asarray(log_softmax(val))
        order = np.argsort(-log_p, axis=1, kind="stable")
        for name, kind in KINDS.items():
            whole = figures(kind().fit(val, yv), test, yt)
            print(
                f"| {file.stem} | {name} | all | | {whole[0]:.3f} | {whole[1]:.3f} | {whole[2]:.2f} | {whole[3]:.4f} |"
            )
            for k in arguments.k:
                for tail in ("power law", "uniform"):
                    indices = order[:, :k]
                    rows = TopK(np.take_along_axis(log_p, indices, axis=1), indices, yv, val.shape[1], tail=tail)
                    apart = figures(kind().fit(blocks(rows)), test, yt) - whole
                    cells = f"{apart[0]:+.3f} | {apart[1]:+.3f} | {apart[2]:+.2f} | {apart[3]:+.4f}"
                    print(f"| | | {k} | {tail} | {cells} |")


if __name__ == "__main__":
    main()
