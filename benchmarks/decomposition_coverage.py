"""How often the interval of `log_loss_decomposition` covers the miscalibration of a model whose truth is known.

python benchmarks/decomposition_coverage.py [RUNS]

The models are those of benchmarks/interval_coverage.py, plain rows. The truth is E[-log p_y of the model] less that of
the true probabilities: all that any recalibration could remove.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from interval_coverage import Setting, draw, population

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
        decomposition = log_loss_decomposition(sample.labels, sample.model)
        interval = decomposition.calibration_interval
        n_covered += interval.low <= truth <= interval.high
        measured.append(decomposition.calibration)
    return n_covered / n_runs, float(np.mean(measured))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=int, nargs="?", default=200)
    n_runs = parser.parse_args().runs
    warnings.simplefilter("ignore")
    print("| classes | rows | model | miscalibration | mean of the measured | covered |")
    print("|---|---|---|---|---|---|")
    for n_classes in (2, 10):
        for n_rows in (200, 1_000):
            for model in MODELS:
                share, mean = coverage(Setting(n_classes, model, n_rows, "plain"), n_runs)
                truth = miscalibration(n_classes, model)
                print(f"| {n_classes} | {n_rows:,} | {model} | {truth:.4f} | {mean:.4f} | {share:.1%} |", flush=True)


if __name__ == "__main__":
    main()
