"""The log-loss of rows left out that `AutoCalibration` reports, against the true one of the fit, on simulated logits.

    python benchmarks/left_out_loss.py [--classes 2 10] [--rows 300 1000 5000] [--fits 60 40 16]

The true log-loss is the expectation over 20,000 rows of known probabilities. What luck adds to any log-loss of a
sample, that of the true probabilities on its rows less their expected one, is taken off the reported figure. It prints
a table of benchmarks/results/arena.md.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from scipy.special import log_softmax

from refocal import AutoCalibration

LOGITS = {
    "calibrated": lambda log_p: log_p,
    "1.7 times too large, and shifted": lambda log_p: 1.7 * log_p + 0.3 * np.linspace(-1.0, 1.0, log_p.shape[1]),
}


def sample(n_rows: int, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities (N, C), and labels that are drawn by them."""
    rng = np.random.default_rng(seed)
    if n_classes == 2:
        log_odds = 2.0 * rng.normal(size=n_rows) - 0.5
        log_p = log_softmax(np.stack([0.0 * log_odds, log_odds], axis=1), axis=1)
    else:
        log_p = log_softmax(2.0 * rng.normal(size=(n_rows, n_classes)), axis=1)
    return log_p, np.argmax(log_p + rng.gumbel(size=log_p.shape), axis=1)


def line(n_classes: int, n_rows: int, name: str, n_fits: int) -> str:
    """A line of the table."""
    distorted = LOGITS[name]
    new, _ = sample(20_000, n_classes, seed=999)
    p = np.exp(new)
    without = -np.mean(np.sum(p * log_softmax(distorted(new), axis=1), axis=1))
    excess, errors = [], []
    n_warned = n_worse = 0
    for seed in range(n_fits):
        log_p, labels = sample(n_rows, n_classes, seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fitted = AutoCalibration().fit(distorted(log_p), labels)
        n_warned += any("higher than that of no calibration" in str(warning.message) for warning in caught)
        true = -np.mean(np.sum(p * fitted.predict_log_proba(distorted(new)), axis=1))
        n_worse += bool(true > without)
        own_losses = -log_p[np.arange(n_rows), labels]
        luck = own_losses.mean() + np.mean(np.sum(p * new, axis=1))
        excess.append(fitted.choice_["log_loss_out_of_fold"]["mean"] - luck - true)
        errors.append(own_losses.std() / np.sqrt(n_rows))
    return (
        f"| {n_classes} | {n_rows:,} | {name} | {np.mean(excess):+.4f} | ± {np.std(excess) / np.sqrt(n_fits):.4f} "
        f"| {0.5 * np.mean(errors):.4f} | {n_warned} of {n_fits} | {n_worse} of {n_fits} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, nargs="+", default=[2, 10])
    parser.add_argument("--rows", type=int, nargs="+", default=[300, 1000, 5000])
    parser.add_argument("--fits", type=int, nargs="+", default=[60, 40, 16])
    given = parser.parse_args()
    for n_classes in given.classes:
        for n_rows, n_fits in zip(given.rows, given.fits, strict=True):
            for name in LOGITS:
                print(line(n_classes, n_rows, name, n_fits), flush=True)


if __name__ == "__main__":
    main()
