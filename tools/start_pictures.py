"""Draws docs/demo.svg, the picture of the README, and those of the start page: `python tools/start_pictures.py`."""

from __future__ import annotations

import os
import runpy
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure

from refocal.evaluate import compare
from refocal.io import load_sample
from refocal.maps import log_softmax
from refocal.metrics import expected_calibration_error, reliability_band
from refocal.report import plot_reliability

ROOT = Path(__file__).parents[1]


def draw(name: str, *sides: tuple[Any, float]) -> None:
    """Two reliability diagrams side by side, each of a band and an ECE."""
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": name, "font.family": "sans-serif", "font.size": 10})
    figure = Figure(figsize=(7.6, 3.9), layout="constrained", facecolor="white")
    for ax, (band, ece), when in zip(figure.subplots(1, 2), sides, ("before", "after"), strict=True):
        plot_reliability(band, ax=ax, title=f"{when}: ECE {100 * ece:.2f} %")
    figure.savefig(ROOT / "docs" / name, metadata={"Date": None})


def side(labels: Any, p: Any) -> tuple[Any, float]:
    """The band and the ECE of some probabilities."""
    band = reliability_band(labels, p, kind="consistency", simultaneous=True)
    return band, expected_calibration_error(labels, p)


def start(name: str) -> dict[str, Any]:
    """The variables of a script of the start page, which is run in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        found = runpy.run_path(str(ROOT / "examples" / f"start_{name}.py"))
        os.chdir(ROOT)
    return found


def main() -> None:
    """The demo's network, then the three ways to start."""
    found = compare(*load_sample("cifar100-focal7"), ["fts"], chosen="fts", n_resamples=20)
    draw("demo.svg", *((each.reliability, each.measures["ece"].value) for each in (found.before, found.after)))

    file = start("file")
    labels = file["test"].labels
    before = np.exp(log_softmax(file["test"].values))
    draw("start-file.svg", side(labels, before), side(labels, file["probabilities"]))

    forest = start("sklearn")
    draw("start-sklearn.svg", *(side(forest["y_test"], forest[p]) for p in ("p_before", "p_after")))

    network = start("torch")
    with torch.no_grad():
        logits, log_p = (network[model](network["inputs"]) for model in ("model", "calibrated"))
    draw("start-torch.svg", *(side(network["truth"], x.exp()) for x in (logits.log_softmax(1), log_p)))


if __name__ == "__main__":
    main()
