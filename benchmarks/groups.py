"""What a shrunken correction for each group gains and costs, beside none and a calibrator fitted on each group alone.

Simulated groups whose true log-odds are a·x + b, with b and a spread over the groups by a known deviation; the table
has the log-loss above that of the true probabilities, in thousandths, on fresh rows. Run it with

    python benchmarks/groups.py --output benchmarks/results/groups.md
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from pathlib import Path

import numpy as np

from refocal import GroupCalibration, LogisticCalibration
from refocal.errors import FitWarning

GROUPS, ROWS, DEVIATIONS = (5, 40), (30, 100, 400), (0.0, 0.2, 0.5, 1.0)
TEST_ROWS = 400


def sigmoid(x):
    """Probabilities of log-odds."""
    return 1.0 / (1.0 + np.exp(-x))


def draw(rng, lines, n_rows):
    """Scores, true probabilities, outcomes and groups, with the number of rows of each."""
    group = np.repeat(np.arange(len(lines)), n_rows)
    score = rng.normal(-1.0, 1.5, len(group))
    truth = sigmoid(lines[group, 0] + lines[group, 1] * score)
    return score, truth, (rng.random(len(group)) < truth).astype(int), group


def log_loss(truth, p):
    """The expected log-loss of p where the truth is known."""
    return float(-np.mean(truth * np.log(p) + (1.0 - truth) * np.log1p(-p)))


def alone(train, test):
    """A line for each group from its own rows; a group of one outcome has its smoothed rate."""
    score, _, outcome, group = train
    p = np.empty(len(test[0]))
    for g in np.unique(group):
        mine, there = group == g, test[3] == g
        if len(np.unique(outcome[mine])) == 2:
            fitted = LogisticCalibration(input="log-odds").fit(score[mine], outcome[mine])
            p[there] = fitted.predict_proba(test[0][there])[:, 1]
        else:
            p[there] = (outcome[mine].sum() + 0.5) / (mine.sum() + 1.0)
    return np.clip(p, 1e-6, 1.0 - 1e-6)


def measure(n_groups, n_rows, deviation, n_draws, seed=0):
    """Mean excess of the log-loss, in thousandths, of the three ways, and the standard error of the second's gain."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n_draws):
        slopes = np.exp(rng.normal(0.0, 0.5 * deviation, n_groups))
        lines = np.stack([rng.normal(0.5, deviation, n_groups), slopes], axis=1)
        train, test = draw(rng, lines, n_rows), draw(rng, lines, TEST_ROWS)
        common = LogisticCalibration(input="log-odds").fit(train[0], train[2]).predict_proba(test[0])[:, 1]
        group = GroupCalibration(method="logistic", input="log-odds").fit(train[0], train[2], groups=train[3])
        ways = (common, group.predict_proba(test[0], groups=test[3])[:, 1], alone(train, test))
        best = log_loss(test[1], test[1])
        found.append([1000.0 * (log_loss(test[1], p) - best) for p in ways])
    gain = np.array(found)[:, 1] - np.array(found)[:, 0]
    return np.mean(found, axis=0), gain.std(ddof=1) / np.sqrt(n_draws)


def main():
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore", FitWarning)
    lines = [
        "# A correction for each group: excess of the log-loss, in thousandths",
        "",
        f"Simulated, {given.draws} draws each: `python benchmarks/groups.py --draws {given.draws}`.",
        "",
        "| groups | rows of each | deviation | one for all | group calibration | one for each | gain ± error |",
        "|---|---|---|---|---|---|---|",
    ]
    for n_groups, n_rows, deviation in itertools.product(GROUPS, ROWS, DEVIATIONS):
        (common, group, own), error = measure(n_groups, n_rows, deviation, given.draws)
        numbers = f"{common:.1f} | {group:.1f} | {own:.1f} | {common - group:+.1f} ± {error:.1f}"
        lines.append(f"| {n_groups} | {n_rows} | {deviation:g} | {numbers} |")
        print(lines[-1], flush=True)
    text = "\n".join(lines) + "\n"
    if given.output is not None:
        given.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
