"""Do 95 % intervals cover 95 %? The coverage tables of benchmarks/results/metrics.md, on models with known errors.

python benchmarks/interval_coverage.py                the default interval of every metric, beside resampling rows
python benchmarks/interval_coverage.py --differences  the paired difference of two calibrators on the same rows

--trials and --rows change how many draws there are, and how large; --jobs how many processes share the work.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import refocal.metrics as rm
from refocal.metrics.smooth import smooth_error

POPULATION = 2_000_000


class Model(NamedTuple):
    """A confidence c is drawn from `draw`; the event has probability `event(c)`."""

    draw: Callable[[np.random.Generator, int], Any]
    event: Callable[[Any], Any]


def common(rng: np.random.Generator, n: int) -> Any:
    return rng.beta(4, 1, n)


def rare(rng: np.random.Generator, n: int) -> Any:
    return rng.beta(1, 40, n)


def near_one(rng: np.random.Generator, n: int) -> Any:
    return 1 - 10 ** -rng.uniform(0.5, 4, n)


MODELS = {
    "calibrated": Model(common, lambda c: c),
    "over-confident": Model(common, lambda c: c**1.3),
    "under-confident": Model(common, lambda c: c**0.7),
    "rare events, calibrated": Model(rare, lambda c: c),
    "rare events, over-confident": Model(rare, lambda c: 0.6 * c),
    "sure, over-confident": Model(near_one, lambda c: c**1.5),
}
# Of each metric its default interval; of two also what resampling rows gives.
INTERVALS: dict[str, tuple[str, str | None]] = {
    "log_loss": ("log_loss", None),
    "brier_score": ("brier_score", None),
    "ece": ("ece", None),
    "debiased_ece": ("debiased_ece", None),
    "smooth_ece": ("smooth_ece", None),
    "ks_calibration_error": ("ks_calibration_error", None),
    "squared_ece": ("squared_ece", None),
    "ece, percentile": ("ece", "percentile"),
    "ece, basic": ("ece", "basic"),
}
PAIRS: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "c^0.77 and c (calibrated)": (common, lambda c: c**0.77, lambda c: c),
    "c^0.99 and c^1.01": (common, lambda c: c**0.99, lambda c: c**1.01),
    "c^0.8 and c^1.25": (common, lambda c: c**0.8, lambda c: c**1.25),
    "c^0.7 and c^0.8": (common, lambda c: c**0.7, lambda c: c**0.8),
    "sure: c^0.6 and c": (near_one, lambda c: c**0.6, lambda c: c),
    "rare: 1.5 c and c": (rare, lambda c: np.minimum(1.5 * c, 1.0), lambda c: c),
}


def truths(model: Model) -> dict[str, float]:
    """The metrics of a very large sample whose outcomes are their probabilities."""
    c = np.sort(model.draw(np.random.default_rng(1), POPULATION))
    event = model.event(c)
    gap = c - event
    return {
        "log_loss": float(-np.mean(event * np.log(c) + (1 - event) * np.log1p(-c))),
        "brier_score": float(np.mean(event * (1 - c) ** 2 + (1 - event) * c**2)),
        "ece": float(np.mean(np.abs(gap))),
        "debiased_ece": float(np.sqrt(np.mean(gap**2))),
        "squared_ece": float(np.mean(gap**2)),
        "smooth_ece": smooth_error(c, event, None),
        "ks_calibration_error": float(np.abs(np.cumsum(gap)).max() / len(c)),
    }


def trial(seed: int, name: str, n: int, columns: list[str]) -> dict[str, tuple[float, float, float]]:
    model, rng = MODELS[name], np.random.default_rng([seed, n])
    c = model.draw(rng, n)
    y = (rng.random(n) < model.event(c)).astype(int)
    found = {}
    for label in columns or INTERVALS:
        metric, method = INTERVALS[label]
        record = rm.METRICS[metric]
        values = np.log(np.stack([1 - c, c], axis=1)) if record.takes_logs else c
        interval = rm.bootstrap_interval(record.function, y, values, n_resamples=300, method=method, seed=seed)
        found[label] = (interval.value, interval.low, interval.high)
    return found


def paired_trial(seed: int, name: str, n: int, columns: list[str]) -> dict[str, tuple[float, float, float]]:
    draw, first, second = PAIRS[name]
    rng = np.random.default_rng([seed, n])
    c = draw(rng, n)
    y = (rng.random(n) < c).astype(int)
    squared = rm.squared_ece_difference(y, first(c), second(c))
    if columns == ["squared_ece"]:
        return {"squared_ece": (squared.difference, squared.low, squared.high)}
    ece = rm.paired_bootstrap(rm.expected_calibration_error, y, first(c), second(c), n_resamples=300, seed=seed)
    basic = 2 * ece.difference - np.array([ece.high, ece.low])
    return {
        "squared_ece": (squared.difference, squared.low, squared.high),
        "ece, percentile": (ece.difference, ece.low, ece.high),
        "ece, basic": (ece.difference, *basic),
    }


def paired_truths(name: str) -> dict[str, float]:
    draw, first, second = PAIRS[name]
    c = draw(np.random.default_rng(1), POPULATION)
    ece, squared = (np.mean(np.abs(first(c) - c) ** k) - np.mean(np.abs(second(c) - c) ** k) for k in (1, 2))
    return {"squared_ece": squared, "ece, percentile": ece, "ece, basic": ece}


def table(title: str, names: list[str], one: Callable[..., Any], truth_of: Callable[[str], Any], options: Any) -> None:
    labels: list[str] = []
    for name in names:
        truth = truth_of(name)
        with ProcessPoolExecutor(options.jobs) as pool:
            found = list(
                pool.map(
                    partial(one, name=name, n=options.rows, columns=options.columns), range(options.trials), chunksize=8
                )
            )
        if not labels:
            labels = list(found[0])
            print(f"\n| {title} | " + " | ".join(labels) + " |\n|" + "---|" * (len(labels) + 1))
        cells = []
        for label in labels:
            low, high = np.array([each[label][1:] for each in found]).T
            true = truth[label.split(",")[0]] if label not in truth else truth[label]
            # A true error of 0 is the end of an interval that begins there.
            cells.append(f"{100 * np.mean((low <= true + 1e-12) & (true <= high + 1e-12)):.1f} %")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--differences", action="store_true")
    parser.add_argument("--only", nargs="*", default=[], help="Rows of the table; by default all.")
    parser.add_argument("--columns", nargs="*", default=[], help="Columns of the table; by default all.")
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    title = f"{options.trials} trials, N = {options.rows:,}"
    if options.differences:
        table(title, options.only or list(PAIRS), paired_trial, paired_truths, options)
    else:
        table(title, options.only or list(MODELS), trial, lambda name: truths(MODELS[name]), options)
