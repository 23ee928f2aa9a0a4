"""Draws docs/demo.svg, the picture of the README: `python tools/readme_picture.py`."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from refocal.data import load_sample
from refocal.evaluate import compare
from refocal.report import plot_reliability


def main() -> None:
    """Reliability before and after, of the network of the demo."""
    found = compare(*load_sample("cifar100-focal7"), ["fts"], chosen="fts", n_resamples=20)
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "demo", "font.family": "sans-serif", "font.size": 10})
    figure = Figure(figsize=(7.6, 3.9), layout="constrained", facecolor="white")
    for ax, method, when in zip(figure.subplots(1, 2), (found.before, found.after), ("before", "after"), strict=True):
        ece = 100 * method.measures["ece"].value
        plot_reliability(method.reliability, ax, title=f"{when}: ECE {ece:.2f} %")
    figure.savefig(Path(__file__).parents[1] / "docs" / "demo.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
