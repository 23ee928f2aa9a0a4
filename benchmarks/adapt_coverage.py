"""Coverage of the intervals of `adapt`, of rows whose shares and labels are known: shares, accuracy and log-loss.

python benchmarks/adapt_coverage.py                   writes benchmarks/results/adapt_coverage.md
python benchmarks/adapt_coverage.py --part weak-2     only prints the cells of a weak model of two classes
python benchmarks/adapt_coverage.py --part weak-2 --estimate     those of `estimate_performance`, of unchanged shares

Rows of class k have x ~ N(m_k, 1); the model knows the likelihoods, but its scores are too extreme and shifted:
(log-likelihood + log share) · 1.5 + shift. AutoCalibration is fitted on n labelled rows, then adapted to N new ones of
other shares. Intervals of 95 %. The truth of shares is what rows are drawn with; that of accuracy and log-loss is what
the labels of the new rows show of the adapted calibrator.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from refocal import AutoCalibration
from refocal.shift import estimate_performance

RESULTS = Path(__file__).parent / "results" / "adapt_coverage.md"
FIT_ROWS = (300, 1_000, 5_000)
NEW_ROWS = (200, 1_000)
SCALE = 1.5
SPREAD_OF_SHIFT = 0.3


@dataclass(frozen=True)
class World:
    """Classes whose rows are normal around means at this distance from 0."""

    name: str
    n_classes: int
    distance: float
    shares_of_fit: Any
    new_shares: dict[str, Any]
    shift: Any
    """Of the scores of each class."""

    def rows(self, rng: Any, n: int, shares: Any) -> tuple[Any, Any]:
        """Scores of the model, and labels."""
        labels = rng.choice(self.n_classes, n, p=shares)
        x = rng.normal(size=(n, self.n_classes))
        x[np.arange(n), labels] += self.distance
        # Σ (x - m_k)² differs between classes by the product with the mean alone.
        log_likelihood = self.distance * x
        return (log_likelihood + np.log(self.shares_of_fit)) * SCALE + self.shift, labels


def world(name: str, n_classes: int, distance: float) -> World:
    """Shares of the fit, and new ones: the same, some way off, and far off."""
    rng = np.random.default_rng(5)
    if n_classes == 2:
        old = np.array([0.6, 0.4])
        moderate = np.array([0.8, 0.2])
        strong = np.array([0.93, 0.07])
    else:
        old = np.full(n_classes, 1.0 / n_classes)
        moderate = 0.5 * old + 0.5 * rng.dirichlet(np.full(n_classes, 0.7))
        strong = 0.1 * old + 0.9 * rng.dirichlet(np.full(n_classes, 0.5))
    shift = SPREAD_OF_SHIFT * np.random.default_rng(9).normal(size=n_classes)
    return World(name, n_classes, distance, old, {"none": old, "moderate": moderate, "strong": strong}, shift)


# Of two classes 69 and 93 % are right, of ten 38 and 90 %, of a hundred 71 %.
WORLDS = {
    "weak-2": world("two classes, weak", 2, 0.7),
    "strong-2": world("two classes, strong", 2, 2.1),
    "weak-10": world("ten classes, weak", 10, 1.2),
    "strong-10": world("ten classes, strong", 10, 3.0),
    "100": world("100 classes", 100, 3.0),
}


def covered(adapted: Any, result: Any, logits: Any, labels: Any, shares: Any) -> list[float]:
    """Which share of intervals of shares cover, and whether those of accuracy and log-loss do."""
    log_p = adapted.predict_log_proba(logits)
    accuracy = float(np.mean(log_p.argmax(axis=1) == labels))
    log_loss = -float(np.mean(log_p[np.arange(len(labels)), labels]))
    of_shares = np.mean((np.array(result.low) <= shares) & (shares <= np.array(result.high)))
    performance = result.performance
    return [
        float(of_shares),
        float(performance.accuracy.low <= accuracy <= performance.accuracy.high),
        float(performance.log_loss.low <= log_loss <= performance.log_loss.high),
        float(np.mean(np.array(result.high) - np.array(result.low))),
        float(np.mean(np.abs(np.array(result.shares) - shares))),
    ]


def cells(of: World, runs: int, fit_rows: tuple[int, ...] = FIT_ROWS) -> list[str]:
    """A line of the table for each number of rows and change of the shares."""
    lines = []
    for n_fit in fit_rows:
        measured: dict[tuple[int, str], list[list[float]]] = {}
        for run in range(runs):
            rng = np.random.default_rng([run, of.n_classes, n_fit])
            val, y_val = of.rows(rng, n_fit, of.shares_of_fit)
            calibrator = AutoCalibration().fit(val, y_val)
            for n_new in NEW_ROWS:
                for change, shares in of.new_shares.items():
                    logits, labels = of.rows(rng, n_new, shares)
                    adapted, result = calibrator.adapt(logits, seed=run)
                    one = covered(adapted, result, logits, labels, shares)
                    measured.setdefault((n_new, change), []).append(one)
        for (n_new, change), values in measured.items():
            means = np.mean(values, axis=0)
            shown = " | ".join(f"{100.0 * mean:.1f} %" for mean in means[:3])
            label = f"{of.name} | {n_fit:,} | {n_new:,} | {change} | {len(values)}"
            lines.append(f"| {label} | {shown} | {means[3]:.3f} | {means[4]:.3f} |")
            print(lines[-1], flush=True)
    return lines


def estimate_cells(of: World, runs: int, fit_rows: tuple[int, ...] = FIT_ROWS) -> list[str]:
    """The coverage of accuracy and log-loss by `estimate_performance`, of 1,000 new rows of the shares of the fit."""
    n_new = 1_000
    lines = []
    for n_fit in fit_rows:
        measured = []
        for run in range(runs):
            rng = np.random.default_rng([run, of.n_classes, n_fit, n_new])
            calibrator = AutoCalibration().fit(*of.rows(rng, n_fit, of.shares_of_fit))
            logits, labels = of.rows(rng, n_new, of.shares_of_fit)
            expected = estimate_performance(calibrator, logits, seed=run)
            log_p = calibrator.predict_log_proba(logits)
            accuracy = float(np.mean(log_p.argmax(axis=1) == labels))
            log_loss = -float(np.mean(log_p[np.arange(n_new), labels]))
            of_accuracy = expected.accuracy.low <= accuracy <= expected.accuracy.high
            of_log_loss = expected.log_loss.low <= log_loss <= expected.log_loss.high
            measured.append((of_accuracy, of_log_loss))
        shown = " | ".join(f"{100.0 * mean:.1f} %" for mean in np.mean(measured, axis=0))
        lines.append(f"| {of.name} | {n_fit:,} | {n_new:,} | {runs} | {shown} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="a cell")
    parser.add_argument("--fit-rows", type=int, nargs="+", default=[*FIT_ROWS])
    parser.add_argument("--part", choices=[*WORLDS], help="only print this part")
    parser.add_argument("--estimate", action="store_true", help="of estimate_performance, with --part")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    header = [
        "| model | rows of the fit | new rows | change | runs | shares | accuracy | log-loss | width | error |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    if given.part:
        of_part = estimate_cells if given.estimate else cells
        of_part(WORLDS[given.part], given.runs, tuple(given.fit_rows))
        return
    text = [
        "# Coverage of the intervals of `adapt`",
        "",
        f"`python benchmarks/adapt_coverage.py --runs {given.runs}`: AutoCalibration of scores that are too extreme by",
        f"{SCALE} and shifted, intervals of 95 %. `width` is that of the intervals of shares, `error` the mean",
        "distance of the shares from the true ones.",
        "",
        *header,
        *(line for of in WORLDS.values() for line in cells(of, given.runs, tuple(given.fit_rows))),
    ]
    RESULTS.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
