"""How far does one row move the default? AutoCalibration on 500 rows of ten classes, and on all of them but one.

python benchmarks/stability.py [--drops 50]

Prints, over fits that each lack one other row, the change of the probabilities of 2,000 rows that no fit has seen: the
largest of all, the mean over the fits of the largest of each, and the mean of all. Rows are those of the sample
"cifar10-focal3", and simulated logits of which every class is off by a slope and a shift of its own.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from scipy.special import log_softmax

from refocal import AutoCalibration
from refocal.io import load_sample

N_ROWS = 500
N_NEW = 2_000
N_CLASSES = 10


def simulated() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits and labels of the fit, and logits of new rows: 1.5 times too large on average."""
    rng = np.random.default_rng(0)
    log_p = log_softmax(2.0 * rng.normal(size=(N_ROWS + N_NEW, N_CLASSES)), axis=1)
    labels = np.argmax(log_p + rng.gumbel(size=log_p.shape), axis=1)
    logits = rng.uniform(1.2, 1.8, N_CLASSES) * log_p + 0.3 * rng.normal(size=N_CLASSES)
    return logits[:N_ROWS], labels[:N_ROWS], logits[N_ROWS:]


def of_network() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same of a network that was trained on CIFAR-10 with the focal loss."""
    validation, test = load_sample("cifar10-focal3")
    rows = np.random.default_rng(0).permutation(len(validation.labels))[:N_ROWS]
    return np.asarray(validation.logits)[rows], np.asarray(validation.labels)[rows], np.asarray(test.logits)[:N_NEW]


def changes(logits: np.ndarray, labels: np.ndarray, new: np.ndarray, n_drops: int) -> np.ndarray:
    """|change| of every new probability, (drops, rows, classes)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "worse than no calibration" is no matter here
        of_all = AutoCalibration().fit(logits, labels).predict_proba(new)
        dropped = np.random.default_rng(1).permutation(N_ROWS)[:n_drops]
        moved = []
        for row in dropped:
            others = np.delete(np.arange(N_ROWS), row)
            fitted = AutoCalibration().fit(logits[others], labels[others])
            moved.append(np.abs(fitted.predict_proba(new) - of_all))
    return np.array(moved)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drops", type=int, default=50)
    given = parser.parse_args()
    print("| rows | largest change | mean of the largest of a fit | mean change |")
    print("|---|---|---|---|")
    for name, rows in {"cifar10-focal3": of_network, "simulated": simulated}.items():
        moved = changes(*rows(), given.drops)
        largest_of_fit = moved.max(axis=(1, 2))
        print(f"| {name} | {moved.max():.4f} | {largest_of_fit.mean():.4f} | {moved.mean():.5f} |", flush=True)


if __name__ == "__main__":
    main()
