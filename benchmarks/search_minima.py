"""How often the order of rows decides which minimum of the log-loss FTS finds: `python benchmarks/search_minima.py`.

Where γ hardly matters the log-loss has several minima. Rows are generated as a network trained with focal loss would
give them, with other temperatures and shifted classes, and fitted in their order and in reverse.
"""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np

from refocal import FocalTemperatureScaling
from refocal.errors import FitWarning
from refocal.maps import inverse_focal

SEEDS, ROWS, CLASSES, GAMMAS = range(12), (500, 4000, 20_000), (2, 3, 10, 100), (0.0, 1.0, 3.0, 7.0)
MOST_ENTRIES = 400_000


def generated(seed: int, n_rows: int, n_classes: int, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels; every other set has shifted classes."""
    rng = np.random.default_rng(1000 * seed + n_classes)
    log_p = rng.choice([1.0, 2.0, 4.0]) * rng.normal(size=(n_rows, n_classes))
    labels = np.argmax(log_p + rng.gumbel(size=log_p.shape), axis=1)
    logits = inverse_focal(log_p, gamma=gamma) * rng.choice([0.5, 1.3, 2.5])
    return (logits + 0.3 * rng.normal(size=n_classes) if seed % 2 else logits), labels


def main() -> None:
    """Print how many sets have another log-loss in reverse, by how much, and the passes over all rows."""
    warnings.simplefilter("ignore", FitWarning)
    differences, passes = [], []
    for seed, n_rows, n_classes, gamma in product(SEEDS, ROWS, CLASSES, GAMMAS):
        if n_rows * n_classes > MOST_ENTRIES:
            continue
        logits, labels = generated(seed, n_rows, n_classes, gamma)
        found = [
            FocalTemperatureScaling(objective="nll").fit(logits[order], labels[order]).solution_
            for order in (slice(None), slice(None, None, -1))
        ]
        differences.append(abs(found[0].value - found[1].value))
        passes += [each.passes for each in found]
    print(f"{len(differences)} sets, {np.mean(passes):.1f} passes a fit")
    for limit in (1e-7, 1e-5, 1e-4):
        print(f"log-losses differ by more than {limit:g}: {np.count_nonzero(np.array(differences) > limit)}")
    print(f"at most: {max(differences):.2g}")


if __name__ == "__main__":
    main()
