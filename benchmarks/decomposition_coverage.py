"""How often the interval of `log_loss_decomposition` covers the miscalibration of a model whose truth is known.

python benchmarks/decomposition_coverage.py [--runs RUNS] [--rows 200 1000] [--classes 2 10] [--schemes plain …]
    [--models calibrated …]

The models and rows are those of benchmarks/interval_coverage.py. The truth is E[-log p_y of the model] less that of
the true probabilities: all that any recalibration could remove.
"""

from __future__ import annotations

import argparse
import warnings
from itertools import product

import numpy as np
from interval_coverage import SCHEMES, Setting, draw, population

from refocal.decomposition import log_loss_decomposition

MODELS = ("calibrated", "overconfident, a = 2")


def miscalibration(n_classes: int, model: str) -> float:
    """The log-loss of a model less that of the true probabilities, in its population."""
    rows = population(n_classes, model)
    return float((np.exp(rows.truth) * (rows.truth - rows.model)).sum(axis=1).mean())


def coverage(setting: Setting, n_runs: int) -> tuple[float, float]:
    """The share of intervals that cover the miscalibration, and the mean of what they are intervals of."""
    truth = miscalibration(setting.n_classes, setting.model)
    n_covered = 0
    measured = []
    for seed in range(n_runs):
        sample = draw(setting, seed)
        given = {"sample_weight": sample.weight, "clusters": sample.clusters}
        decomposition = log_loss_decomposition(sample.labels, sample.model, **given)
        interval = decomposition.calibration_interval
        n_covered += interval.low <= truth <= interval.high
        measured.append(decomposition.calibration)
    return n_covered / n_runs, float(np.mean(measured))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rows", type=int, nargs="*", default=(200, 1_000))
    parser.add_argument("--classes", type=int, nargs="*", default=(2, 10))
    parser.add_argument("--schemes", nargs="*", default=SCHEMES)
    parser.add_argument("--models", nargs="*", default=MODELS, choices=MODELS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| classes | rows | model | miscalibration | mean of the measured | covered |")
    print("|---|---|---|---|---|---|")
    for n_rows, n_classes, scheme, model in product(options.rows, options.classes, options.schemes, options.models):
        share, mean = coverage(Setting(n_classes, model, n_rows, scheme), options.runs)
        truth = miscalibration(n_classes, model)
        rows = f"{n_rows:,} {scheme}"
        print(f"| {n_classes} | {rows} | {model} | {truth:.4f} | {mean:.4f} | {share:.1%} |", flush=True)


if __name__ == "__main__":
    main()
