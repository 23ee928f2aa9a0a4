"""The loss of the kept networks, told from logits of training rows without a look at the recipe.

python benchmarks/loss_forensics.py [--folder paper/results] [--figure benchmarks/results/loss_forensics.svg]

Networks of paper/results that have logits of 5,000 training rows, evaluated without augmentation. A minute.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from refocal.forensics import training_loss

KNOWN = {"cross-entropy": "0", "flsd-53": "5 and 3", "adafocal": "moving"}


def cells(folder: Path) -> list[tuple[str, int, Any, Any]]:
    """The loss of training and its length in epochs, beside the estimate and what it explains on test rows."""
    rows = []
    for recipe in sorted(folder.glob("*/recipe.json")):
        logits = recipe.parent / "logits.npz"
        if not logits.exists():
            continue
        data = np.load(logits)
        if "train" not in data:
            continue
        loss = training_loss(data["ytr"], data["train"].astype(np.float32))
        gap = None if loss.gamma is None else loss.explain(data["yt"], data["test"].astype(np.float32))
        settings = json.loads(recipe.read_text(encoding="utf-8"))
        rows.append((f"{settings['dataset']}, {settings['loss']}", int(settings["epochs"]), loss, gap))
    return rows


def draw(rows: list[tuple[str, int, Any, Any]], path: Path) -> None:
    """γ of training against the estimate, for the networks trained with one γ."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "loss_forensics"}):
        figure = Figure(figsize=(4.0, 3.2), layout="constrained")
        ax = figure.subplots()
        ax.plot([0, 9], [0, 9], color="grey", linewidth=1)
        for name, _, loss, _ in rows:
            kind = name.partition(", ")[2]
            if loss.gamma is not None and kind.startswith("focal-"):
                value = loss.gamma.value
                margins = [[value - loss.gamma.low], [loss.gamma.high - value]]
                ax.errorbar([float(kind[6:])], [value], margins, fmt="o", color="tab:blue", capsize=3)
        ax.set(xlabel="γ of training", ylabel="γ told from training rows", xlim=(0, 9), ylim=(0, 9))
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Print a table of the networks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("paper/results"))
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = cells(arguments.folder)
    last = "test: confidence - accuracy = loss + fitting"
    print(f"| network | epochs | γ of training | γ told | rows that hold back | {last} |")
    print("|---|---|---|---|---|---|")
    for name, epochs, loss, gap in rows:
        kind = name.partition(", ")[2]
        truth = KNOWN.get(kind, kind.removeprefix("focal-"))
        told = "cannot be told"
        parts = "–"
        if loss.gamma is not None:
            told = f"{loss.gamma.value:.2f} [{loss.gamma.low:.2f}, {loss.gamma.high:.2f}]"
            shares = [100.0 * part.value for part in (gap.total, gap.by_loss, gap.by_fitting)]
            parts = f"{shares[0]:+.1f} = {shares[1]:+.1f} {shares[2]:+.1f} points"
        print(f"| {name} | {epochs} | {truth} | {told} | {loss.n_wrong} | {parts} |")
    if arguments.figure is not None:
        draw(rows, arguments.figure)


if __name__ == "__main__":
    main()
