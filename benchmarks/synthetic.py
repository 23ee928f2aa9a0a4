"""Where could the default do badly? Synthetic sets with few rows, beside the model itself and simple methods.

    python benchmarks/synthetic.py [--rows 20 100 300] [--draws 3]

Each method is fitted on each number of rows, in which two classes both occur, and measured by the log-loss of 8,000
others; the tables of benchmarks/results/synthetic.md.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable

import numpy as np
from scipy.special import expit, logit, softmax

import peers
from refocal.calibrators.registry import make

Rng, Rows = np.random.Generator, tuple[np.ndarray, np.ndarray]
TESTED = 8_000
METHODS = ("none", "ts", "fts", "logistic", "auto", "scikit-learn sigmoid")
MANY_CLASSES = 20  # beyond it no curve is fitted for each class


def labels_of(rng: Rng, log_p: np.ndarray) -> np.ndarray:
    return np.argmax(log_p + rng.gumbel(size=log_p.shape), axis=1)


def scores(n: int, rng: Rng, n_classes: int, factor: float = 1.0, prior: float = 0.0, known: bool = True) -> Rows:
    """Logits that are too large by a factor, of classes whose shares fall by exp(prior), as the model knows or not."""
    z, shift = 2.0 * rng.normal(size=(n, n_classes)), -np.linspace(0.0, prior, n_classes)
    return factor * (z + shift if known else z), labels_of(rng, z + shift)


def noisy(n: int, rng: Rng, n_classes: int, margin: float, share: float) -> Rows:
    """Classes that lie far apart, some labels of which are drawn at random."""
    labels = rng.integers(n_classes, size=n)
    z = rng.normal(size=(n, n_classes)) + margin * np.eye(n_classes)[labels]
    return z, np.where(rng.random(n) < share, rng.integers(n_classes, size=n), labels)


def two(n: int, rng: Rng, rate: float, slope: float = 1.0, shift: float = 0.0) -> Rows:
    """Log-odds of a class, wrong by a slope and an intercept."""
    x = 1.5 * rng.normal(size=n) + logit(rate)
    return np.stack([np.zeros(n), slope * x + shift], axis=1), (rng.random(n) < expit(x)).astype(int)


def impossible(n: int, rng: Rng, n_classes: int) -> Rows:
    """A third of the classes cannot occur."""
    z = 2.0 * rng.normal(size=(n, n_classes))
    z[rng.random(z.shape) < 0.3] = -np.inf
    z[np.arange(n), rng.integers(n_classes, size=n)] = 3.0
    return 2.5 * z, labels_of(rng, z)


def repeated(n: int, rng: Rng, n_classes: int) -> Rows:
    """Every row occurs ten times."""
    z = np.repeat(2.0 * rng.normal(size=(n // 10 + 1, n_classes)), 10, axis=0)[:n]
    return 2.0 * z, labels_of(rng, z)


def forest(n: int, rng: Rng, n_classes: int, trees: int, prior: float = 0.0) -> Rows:
    """Shares of the votes of some trees, zeros and ones among them."""
    z = 2.0 * rng.normal(size=(n, n_classes)) - np.linspace(0.0, prior, n_classes)
    return rng.multinomial(trees, softmax(z, axis=1)) / trees, labels_of(rng, z)


SETS: dict[str, Callable[[int, Rng], Rows]] = {
    "10 classes, calibrated": lambda n, rng: scores(n, rng, 10),
    "10 classes, logits × 10": lambda n, rng: scores(n, rng, 10, 10.0),
    "10 classes, logits / 10": lambda n, rng: scores(n, rng, 10, 0.1),
    "100 classes, logits × 3": lambda n, rng: scores(n, rng, 100, 3.0),
    "10 classes, shares 1 : 100": lambda n, rng: scores(n, rng, 10, 2.0, np.log(100.0)),
    "10 classes, shares 1 : 100, unknown to the model": lambda n, rng: scores(n, rng, 10, 1.0, np.log(100.0), False),
    "10 classes, 20 % of labels at random": lambda n, rng: noisy(n, rng, 10, 6.0, 0.2),
    "10 classes, 1 % of labels at random": lambda n, rng: noisy(n, rng, 10, 12.0, 0.01),
    "10 classes, separable": lambda n, rng: noisy(n, rng, 10, 30.0, 0.0),
    "10 classes, labels at random": lambda n, rng: noisy(n, rng, 10, 3.0, 1.0),
    "10 classes, a third -inf": lambda n, rng: impossible(n, rng, 10),
    "10 classes, rows ten times": lambda n, rng: repeated(n, rng, 10),
    "5 classes, forest of 10 trees": lambda n, rng: forest(n, rng, 5, 10),
    "2 classes, 1 %": lambda n, rng: two(n, rng, 0.01),
    "2 classes, 1 %, balanced": lambda n, rng: two(n, rng, 0.01, shift=4.6),
    "2 classes, 1 %, log-odds × 10": lambda n, rng: two(n, rng, 0.01, 10.0),
    "2 classes, 10 %, log-odds / 5": lambda n, rng: two(n, rng, 0.1, 0.2),
    "2 classes, 50 %, shifted by 2": lambda n, rng: two(n, rng, 0.5, shift=2.0),
    "2 classes, 1 % of labels at random": lambda n, rng: noisy(n, rng, 2, 12.0, 0.01),
    "2 classes, labels at random": lambda n, rng: noisy(n, rng, 2, 3.0, 1.0),
    "2 classes, labels swapped": lambda n, rng: two(n, rng, 0.5, -1.0),
    "2 classes, margins": lambda n, rng: two(n, rng, 0.5, 0.1),
    "2 classes, forest of 100 trees, 3 %": lambda n, rng: forest(n, rng, 2, 100, 5.0),
}


def log_loss(method: str, x: np.ndarray, y: np.ndarray, test: np.ndarray, y_test: np.ndarray, kind: str) -> float:
    if method in ("none", *peers.PEERS):
        p, p_test = (each if kind == "probabilities" else softmax(each, axis=1) for each in (x, test))
        p = np.maximum(p_test if method == "none" else peers.predict(method, p, y, p_test), 1e-12)
        return -float(np.mean(np.log(p[np.arange(len(y_test)), y_test])))
    log_p = make(method, input=kind).fit(x, y).predict_log_proba(test)
    return -float(np.mean(log_p[np.arange(len(y_test)), y_test]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[20, 100, 300])
    parser.add_argument("--draws", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for size in options.rows:
        print(f"\n{size} rows:\n\n| set | {' | '.join(METHODS)} | share of each class |\n|---|{'---|' * 7}")
        for name, draw_set in SETS.items():
            found = []
            for draw in range(options.draws):
                rng = np.random.default_rng([size, draw])
                while True:
                    x, y = draw_set(size + TESTED, rng)
                    if x.shape[1] > 2 or len(np.unique(y[:size])) == 2:
                        break
                kind, n_classes = "probabilities" if "forest" in name else "logits", x.shape[1]
                split = x[:size], y[:size], x[size:], y[size:]
                share = (np.bincount(y[:size], minlength=n_classes) + 1.0) / (size + n_classes)
                found.append(
                    [
                        np.nan
                        if n_classes > MANY_CLASSES and ("logistic" in m or "sigmoid" in m)
                        else log_loss(m, *split, kind)
                        for m in METHODS
                    ]
                    + [-float(np.mean(np.log(share[y[size:]])))]
                )
            cells = ["" if np.isnan(value) else f"{value:.4f}" for value in np.mean(found, axis=0)]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
