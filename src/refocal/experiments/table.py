"""The paper's table from the cells there are, beside the paper's own numbers.

python -m refocal.experiments.table RUNS [-o FOLDER]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from refocal._files import write_atomically
from refocal.experiments.measure import measure_cell
from refocal.experiments.recipe import LOSSES, paper


class Printed(NamedTuple):
    """A row of the paper's table: mean (T); γ of focal temperature scaling, or None."""

    accuracy: float
    log_loss: str
    ece: str
    gamma: float | None = None


# Komisarenko & Kull (2024), Table 1, means over five seeds: temperature scaling, then focal temperature scaling.
PAPER: dict[tuple[str, str], tuple[Printed, Printed]] = {
    ("cifar100", "cross-entropy"): (
        Printed(77.6, "0.88 (1.31)", "3.01 (1.45)"),
        Printed(77.6, "0.86 (1.17)", "2.13 (1.35)", -0.5),
    ),
    ("cifar100", "focal-1"): (
        Printed(77.7, "0.83 (1.05)", "1.66 (1.15)"),
        Printed(77.7, "0.82 (1.00)", "1.34 (1.10)", -0.25),
    ),
    ("cifar100", "focal-3"): (
        Printed(77.3, "0.81 (0.87)", "1.28 (0.91)"),
        Printed(77.3, "0.82 (0.87)", "1.23 (0.95)", 0.05),
    ),
    ("cifar100", "focal-7"): (
        Printed(76.3, "0.83 (0.70)", "1.83 (0.65)"),
        Printed(76.3, "0.83 (0.75)", "0.99 (0.75)", 0.5),
    ),
    ("cifar100", "flsd-53"): (
        Printed(77.5, "0.88 (1.20)", "1.89 (1.27)"),
        Printed(77.5, "0.88 (1.05)", "1.68 (1.15)", 0.25),
    ),
}


class Row(NamedTuple):
    """One line of the table: means and spreads over the seeds."""

    training: str
    method: str
    recipe: str
    seeds: int
    accuracy: str
    log_loss: str
    ece: str
    paper: Printed | None


def build_rows(cells: list[dict[str, Any]]) -> list[Row]:
    """Two lines for each training and recipe, temperature scaling and focal temperature scaling."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for cell in cells:
        recipe = cell["recipe"]
        kind = "paper's" if recipe["epochs"] == paper(recipe["dataset"]).epochs else f"{recipe['epochs']} epochs"
        groups[recipe["dataset"], recipe["network"], kind, recipe["loss"]].append(cell)
    order = sorted(groups, key=lambda key: (*key[:3], LOSSES.index(key[3])))
    rows = []
    for key in order:
        dataset, network, kind, loss = key
        printed = PAPER.get((dataset, loss)) if network == "resnet50" else None
        for i, method in enumerate(("ts", "fts")):
            group = groups[key]
            rows.append(
                Row(
                    f"{dataset}, {network}, {loss}",
                    method.upper(),
                    kind,
                    len(group),
                    _spread([100.0 * cell["accuracy"] for cell in group], 1),
                    _chosen(group, method, "nll", "log_loss", 1.0),
                    _chosen(group, method, "ece", "ece", 100.0),
                    printed[i] if printed else None,
                )
            )
    return rows


def markdown(rows: list[Row]) -> str:
    """The table as Markdown, the paper's numbers in their own columns."""
    lines = [
        "| training | method | recipe | seeds | accuracy, % | log-loss (γ, T) | ECE, % (γ, T) "
        "| paper: accuracy | log-loss (T) | ECE (T) | γ |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        other = row.paper
        theirs = ("–",) * 4 if other is None else (other.accuracy, other.log_loss, other.ece, other.gamma)
        cells = [*row[:7], *("" if value is None else value for value in theirs)]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def latex(rows: list[Row]) -> str:
    """The table as LaTeX, our columns only."""
    lines = [r"\begin{tabular}{llrrrr}", r"Training & Method & Seeds & Accuracy & Log-loss & ECE \\ \hline"]
    for row in rows:
        cells = (row.training, row.method, str(row.seeds), row.accuracy, row.log_loss, row.ece)
        lines.append(" & ".join(cells).replace("±", r"$\pm$").replace("γ", r"$\gamma$") + r" \\")
    return "\n".join([*lines, r"\end{tabular}"]) + "\n"


def claims(cells: list[dict[str, Any]]) -> str:
    """The paper's claims about choosing and focal temperature scaling, as mean relative changes over the cells."""

    def change(measure: str, first: tuple[str, str], second: tuple[str, str]) -> str:
        ratios = np.array([cell[first[0]][first[1]][measure] / cell[second[0]][second[1]][measure] for cell in cells])
        return f"{100.0 * (ratios.mean() - 1.0):+.1f} % ({int((ratios < 1.0).sum())} of {len(ratios)} smaller)"

    lines = {
        "test ECE, TS chosen by ECE against by log-loss": ("ece", ("ts", "ece"), ("ts", "nll")),
        "test ECE, FTS chosen by ECE against by log-loss": ("ece", ("fts", "ece"), ("fts", "nll")),
        "test log-loss, TS chosen by log-loss against by ECE": ("log_loss", ("ts", "nll"), ("ts", "ece")),
        "test ECE, FTS against TS, both chosen by ECE": ("ece", ("fts", "ece"), ("ts", "ece")),
        "test log-loss, FTS against TS, both chosen by log-loss": ("log_loss", ("fts", "nll"), ("ts", "nll")),
        "test log-loss, FTS chosen by ECE against TS chosen by log-loss": ("log_loss", ("fts", "ece"), ("ts", "nll")),
        "test ECE, our default against TS chosen by ECE": ("ece", ("default", "auto"), ("ts", "ece")),
        "test log-loss, our default against TS chosen by log-loss": ("log_loss", ("default", "auto"), ("ts", "nll")),
    }
    return "".join(f"- {text}: {change(*what)}\n" for text, what in lines.items())


def _chosen(group: list[dict[str, Any]], method: str, criterion: str, measure: str, scale: float) -> str:
    found = [cell[method][criterion] for cell in group]
    gamma = f"{np.mean([f['gamma'] for f in found]):.2f}, " if method == "fts" else ""
    temperature = f"{np.mean([f['temperature'] for f in found]):.2f}"
    return f"{_spread([scale * f[measure] for f in found], 2 if scale == 100.0 else 3)} ({gamma}{temperature})"


def _spread(values: list[float], digits: int) -> str:
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"


def main(arguments: list[str] | None = None) -> int:
    """Measure every cell of a folder and print the table."""
    parser = argparse.ArgumentParser(prog="python -m refocal.experiments.table", description="Build the paper's table.")
    parser.add_argument("runs", type=Path, help="the folder that holds the cells' folders")
    parser.add_argument("-o", "--out", type=Path, help="where table.md, table.tex and table.json go")
    options = parser.parse_args(arguments)
    folders = sorted(path.parent for path in options.runs.glob("*/recipe.json"))
    cells = [measure_cell(folder) for folder in folders]
    rows = build_rows(cells)
    text = markdown(rows) + "\n" + claims(cells)
    sys.stdout.write(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        write_atomically(options.out / "table.md", text)
        write_atomically(options.out / "table.tex", latex(rows))
        write_atomically(options.out / "table.json", json.dumps([row._asdict() for row in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
