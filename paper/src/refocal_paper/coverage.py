"""Which 95 % intervals of a difference in calibration hold the truth, by simulation.

A bootstrap interval of a difference of two ECEs does not: |x| is biased upwards by noise, and more so the better
calibrated the predictions are. Squares can be freed of that bias: `refocal.metrics.squared_ece_difference` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal import metrics
from refocal.io import load_sample
from refocal.maps import focal_temperature

Vector = NDArray[np.float64]

N_BINS = 15


class Scenario(NamedTuple):
    """Two calibrators (γ, T) of an embedded network, and the one whose confidence is taken for the truth."""

    title: str
    network: str
    first: tuple[float, float]
    second: tuple[float, float]
    truth: tuple[float, float]


class Coverage(NamedTuple):
    """In which share of the trials an interval held the population's difference."""

    title: str
    rows: int
    ece_difference: float
    percentile: float
    basic: float
    squared: float


SCENARIOS = (
    Scenario("TS against FTS, both a little off", "cifar100-focal7", (0.0, 0.84), (0.5, 0.95), (0.75, 1.02)),
    Scenario("TS against FTS, FTS calibrated", "cifar100-focal7", (0.0, 0.84), (0.5, 0.95), (0.5, 0.95)),
    Scenario("TS against FTS, TS calibrated", "cifar100-focal7", (0.0, 0.84), (0.5, 0.95), (0.0, 0.84)),
    Scenario("both off alike", "cifar100-focal7", (0.0, 0.75), (0.25, 0.78), (0.0, 0.9)),
    Scenario("both nearly calibrated", "cifar10-focal3", (0.0, 0.88), (0.5, 1.11), (0.25, 1.0)),
    Scenario("overconfident against calibrated", "cifar10-cross-entropy", (0.0, 1.0), (0.0, 2.2), (0.0, 2.2)),
)


def simulate(
    scenario: Scenario, n_rows: int, *, n_trials: int, n_bootstrapped: int, n_resamples: int, seed: int = 0
) -> Coverage:
    """Draw test sets of a population whose truth is known, and count how often each 95 % interval holds it.

    The bootstrap intervals of the ECE difference, which take long, are made in the first `n_bootstrapped` trials.
    """
    logits = load_sample(scenario.network).test.values.astype(np.float64)
    first, second, truth = (
        np.exp(focal_temperature(logits, *parameters)).max(axis=1)
        for parameters in (scenario.first, scenario.second, scenario.truth)
    )
    ece = _ece(first, truth) - _ece(second, truth)
    squared = _squared(first, truth) - _squared(second, truth)
    held, percentile, basic = 0, 0, 0
    for trial, rng in enumerate(_generators(seed, n_trials)):
        rows = rng.integers(len(truth), size=n_rows)
        correct, one, two = rng.random(n_rows) < truth[rows], first[rows], second[rows]
        found = metrics.squared_ece_difference(correct.astype(np.int64), one, two, n_bins=N_BINS)
        held += found.low <= squared <= found.high
        if trial < n_bootstrapped:
            drawn = (rng.integers(n_rows, size=n_rows) for _ in range(n_resamples))
            draws = [_ece(one[j], correct[j]) - _ece(two[j], correct[j]) for j in drawn]
            low, high = np.quantile(draws, [0.025, 0.975])
            twice = 2.0 * (_ece(one, correct) - _ece(two, correct))
            percentile += bool(low <= ece <= high)
            basic += bool(twice - high <= ece <= twice - low)
    shares = (percentile / n_bootstrapped, basic / n_bootstrapped, held / n_trials)
    return Coverage(scenario.title, n_rows, ece, *shares)


def coverage_markdown(found: list[Coverage]) -> str:
    """The simulation as a table."""
    lines = [
        "| population | rows | ECE, difference, points | ECE, percentile | ECE, basic | squared ECE |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {c.title} | {c.rows} | {100 * c.ece_difference:+.2f} | {100 * c.percentile:.0f} % | "
        f"{100 * c.basic:.0f} % | {100 * c.squared:.1f} % |"
        for c in found
    ]
    return "\n".join(lines) + "\n"


def _generators(seed: int, n: int) -> Iterator[np.random.Generator]:
    return (np.random.default_rng([seed, i]) for i in range(n))


def _gaps(confidence: Vector, accuracy: Any) -> Vector:
    order = np.argsort(confidence, kind="stable")
    bins = np.arange(len(order)) * N_BINS // len(order)
    gaps: Vector = np.bincount(bins, (confidence - accuracy)[order], N_BINS) / len(order)
    return gaps


def _ece(confidence: Vector, accuracy: Any) -> float:
    return float(np.abs(_gaps(confidence, accuracy)).sum())


def _squared(confidence: Vector, accuracy: Any) -> float:
    return float((_gaps(confidence, accuracy) ** 2).sum() * N_BINS)
