"""How often the intervals of O/E, calibration intercept and slope, ICI and the flexible curve hold the truth.

python benchmarks/recalibration_coverage.py > benchmarks/results/recalibration_coverage.md

Rows have log-odds z and a true rate; the truth of O/E, intercept and slope is their value on a million rows with the
true rates as outcomes, that of the ICI the mean of |p - rate|, that of the curve the rate at the median probability.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from refocal.metrics import METRICS
from refocal.metrics.bootstrap import MetricRows, summarise
from refocal.metrics.calibration_curve import curve_of_rows
from refocal.metrics.logistic_regression import fit_logistic
from refocal.rows.predictions import probability_rows

Vector = NDArray[np.float64]
LEVEL = 0.95
INFLUENCES = ("observed_expected", "calibration_intercept", "calibration_slope")


def sigmoid(x: Vector) -> Vector:
    return 1.0 / (1.0 + np.exp(-x))


# The mean and the standard deviation of the log-odds, and the log-odds of the true rate.
SETTINGS: dict[str, tuple[float, float, Callable[[Vector], Vector]]] = {
    "calibrated": (-1.0, 1.5, lambda z: z),
    "too extreme (slope 0.7)": (-1.0, 1.5, lambda z: 0.3 + 0.7 * z),
    "bent": (-1.0, 1.5, lambda z: z + 0.15 * np.square(z) - 0.4),
    "rare, 2 %, calibrated": (-5.0, 1.5, lambda z: z),
    "rare, expected twice too often": (-5.0, 1.5, lambda z: z - 0.7),
}


def truths(setting: str) -> dict[str, float]:
    """The values of the population."""
    centre, spread, of_truth = SETTINGS[setting]
    z = np.random.default_rng(0).normal(centre, spread, 1_000_000)
    p = sigmoid(z)
    rate = sigmoid(of_truth(z))
    ones = np.ones_like(z)
    intercept = fit_logistic(ones[:, None], rate, ones, z)
    line = fit_logistic(np.stack([ones, z], axis=1), rate, ones)
    if intercept is None or line is None:
        raise RuntimeError("the population has no line")
    return {
        "observed_expected": float(rate.mean() / p.mean()),
        "calibration_intercept": float(intercept.coefficients[0]),
        "calibration_slope": float(line.coefficients[1]),
        "ici": float(np.abs(p - rate).mean()),
    }


def coverage(setting: str, n_rows: int, n_simulations: int, n_of_test: int) -> dict[str, str]:
    """The shares of simulations whose intervals hold the truth, and in brackets the share that lies below it."""
    centre, spread, of_truth = SETTINGS[setting]
    truth = truths(setting)
    held: dict[str, list[int]] = {name: [] for name in (*INFLUENCES, "ici", "curve")}
    n_events = 0
    for seed in range(n_simulations):
        rng = np.random.default_rng([n_rows, seed])
        z = rng.normal(centre, spread, n_rows)
        labels = (rng.random(n_rows) < sigmoid(of_truth(z))).astype(np.int64)
        n_events += int(labels.sum())
        if labels.min() == labels.max():
            continue
        rows = probability_rows(labels, sigmoid(z))
        names = [*INFLUENCES, *(["ici"] if seed < n_of_test else [])]
        measured = [MetricRows.of(METRICS[name], rows) for name in names]
        measured = [each for each in measured if not np.isnan(each.value)]
        for metric, summary in zip(measured, summarise(measured, 300, seed), strict=True):
            interval = summary.interval(level=LEVEL)
            name = metric.record.name
            side = (truth[name] > interval.high) - (truth[name] < interval.low)
            held[name].append(int(side))
        curve = curve_of_rows(rows, LEVEL)
        if curve is not None:
            middle = float(sigmoid(np.array([centre]))[0])
            at_middle = float(sigmoid(of_truth(np.array([centre])))[0])
            low, high = (float(np.interp(middle, curve.probability, end)) for end in (curve.low, curve.high))
            held["curve"].append(int(at_middle > high) - int(at_middle < low))
    said = {"events": f"{n_events / n_simulations:.1f}"}
    for name, sides in held.items():
        if not sides:
            said[name] = "–"
            continue
        found = np.array(sides)
        shares = (np.mean(found == 0), np.mean(found > 0), np.mean(found < 0))
        inside, below, above = (100.0 * share for share in shares)
        said[name] = f"{inside:.1f} ({below:.1f}, {above:.1f})"
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("simulations", type=int, nargs="?", default=600)
    parser.add_argument("--ici", type=int, default=200, help="samples of which the ICI is measured")
    parser.add_argument("--only", default="", help="settings whose names begin so")
    given = parser.parse_args()
    n_of_test = min(given.ici, given.simulations)
    option = "".join(f" {word}" for word in sys.argv[1:])
    print("# Coverage of the intervals of O/E, calibration intercept and slope, ICI, and of the flexible curve\n")
    print(f"`python benchmarks/recalibration_coverage.py{option}`\n")
    print(f"Shares in %, of {given.simulations:,} simulated samples ({n_of_test} for the ICI), of 95 % intervals that")
    print("hold the truth; in brackets those that lie below it and above it. The curve is asked at the median")
    print("probability. Samples without an event, or with none that a line or curve exists for, are left out.")
    print("Events are a mean.\n")
    print("| truth | rows | events | O/E | intercept | slope | ICI | curve |")
    print("|---|---|---|---|---|---|---|---|")
    for setting in SETTINGS:
        if not setting.startswith(given.only):
            continue
        for n_rows in (250, 500, 1000, 5000) if "rare" in setting else (200, 1000, 5000):
            said = coverage(setting, n_rows, given.simulations, n_of_test)
            print(f"| {setting} | {n_rows:,} |", " | ".join(said.values()), "|", flush=True)


if __name__ == "__main__":
    main()
