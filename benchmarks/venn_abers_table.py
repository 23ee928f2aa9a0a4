"""Venn-Abers beside other calibrators of two classes, on files with arrays `p` and `labels`.

python benchmarks/venn_abers_table.py FOLDER    writes benchmarks/results/venn_abers.md
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np

from refocal.calibrators.registry import make
from refocal.metrics import expected_calibration_error

RESULTS = Path(__file__).parent / "results" / "venn_abers.md"
METHODS = ("logistic", "isotonic", "auto", "venn-abers", "venn-abers-cross")
DRAWS = 5


def measured(folder: Path, n_rows: int) -> dict[str, tuple[float, float]]:
    """Mean change of the test log-loss against logistic calibration, and mean ECE, over files and draws."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in METHODS}
    for file in sorted(folder.glob("*.npz")):
        data = np.load(file)
        p, y = data["p"].astype(np.float64), data["labels"]
        for seed in range(DRAWS):
            order = np.random.default_rng(seed).permutation(len(p))
            fit, test = order[:n_rows], order[len(p) // 2 :]
            for name in METHODS:
                q = make(name, input="probabilities").fit(p[fit], y[fit]).predict_proba(p[test])[:, 1]
                loss = -np.mean(np.where(y[test] == 1, np.log(q), np.log1p(-q)))
                found[name].append((float(loss), expected_calibration_error(y[test], q)))
    base = np.array(found[METHODS[0]])[:, 0]
    tables = {name: np.array(rows) for name, rows in found.items()}
    return {name: (float(np.mean(t[:, 0] / base - 1.0)), float(t[:, 1].mean())) for name, t in tables.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    sizes = (200, 500, 5000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        columns = [measured(folder, n) for n in sizes]
    n_files = len(list(folder.glob("*.npz")))
    said = [
        "# Venn-Abers on two classes",
        "",
        f"`python benchmarks/venn_abers_table.py FOLDER`: {n_files} models, {DRAWS} draws of the rows of the fit each,",
        "tested on half of the rows. Test log-loss against logistic calibration, and test ECE.",
        "",
        "| method | " + " | ".join(f"{n:,} rows: log-loss | ECE" for n in sizes) + " |",
        "|---|" + "---|" * 2 * len(sizes),
    ]
    for name in METHODS:
        cells = (f"{100 * column[name][0]:+.1f} % | {100 * column[name][1]:.2f} %" for column in columns)
        said.append(f"| {name} | " + " | ".join(cells) + " |")
    RESULTS.write_text("\n".join(said) + "\n", encoding="utf-8")
    print("\n".join(said))


if __name__ == "__main__":
    main()
