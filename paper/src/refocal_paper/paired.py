"""Which of two calibrators is better calibrated on the same rows: an interval that covers what it says.

A bootstrap interval of a difference of ECEs does not: |x| is biased upwards by noise, and more so the better calibrated
the predictions are. Squares can be freed of that bias. With the gaps z_b = √w_b (confidence - accuracy) of the bins of
both predictions in one vector z, and A = diag(1, …, 1, -1, …, -1), the difference of the squared calibration errors is
the quadratic form zᵀAz. z is close to normal, with a covariance S that the rows show, also between the two. So

    zᵀAz - tr(AS) is unbiased, with the variance 4 μᵀASAμ + 2 tr(ASAS), estimated by 4 zᵀASAz - 2 tr(ASAS),

which is kept at 2 tr(ASAS) at least, what it is where both are calibrated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from refocal.data import load_sample
from refocal.maps import focal_temperature

Vector = NDArray[np.float64]

N_BINS = 15


class Difference(NamedTuple):
    """The squared calibration error of the first predictions minus that of the second, with an interval."""

    difference: float
    low: float
    high: float


def squared_error_difference(y: Any, first: Any, second: Any, *, level: float = 0.95) -> Difference:
    """Compare the top-label calibration of two sets of probabilities (N, C) on the same rows; 15 equal-mass bins.

    >>> rng = np.random.default_rng(0)
    >>> p = rng.dirichlet([1.0, 1.0], size=2000)
    >>> y = (rng.random(2000) < p[:, 1]).astype(int)
    >>> worse = p**2 / (p**2).sum(axis=1, keepdims=True)
    >>> found = squared_error_difference(y, worse, p)
    >>> found.low > 0
    True
    """
    one, two = (_parts(p.max(axis=1), p.argmax(axis=1) == y) for p in map(np.asarray, (first, second)))
    return _interval(one, two, level)


class _Parts(NamedTuple):
    """The bin of each row, the gap z of each bin, and what each row adds to the noise of its bin's gap."""

    bins: NDArray[np.int64]
    gaps: Vector
    noise: Vector


def _parts(confidence: Vector, correct: NDArray[np.bool_]) -> _Parts:
    n = len(confidence)
    bins = np.empty(n, dtype=np.int64)
    bins[np.argsort(confidence, kind="stable")] = np.arange(n) * N_BINS // n
    apart, count = confidence - correct, np.bincount(bins, minlength=N_BINS)
    mean = np.bincount(bins, apart, N_BINS) / count
    share = count / n
    noise = (apart - mean[bins]) * np.sqrt(count / (count - 1.0) / share)[bins] / n
    return _Parts(bins, mean * np.sqrt(share), noise)


def _interval(first: _Parts, second: _Parts, level: float) -> Difference:
    pair = first.bins * N_BINS + second.bins
    between = np.bincount(pair, first.noise * second.noise, N_BINS**2).reshape(N_BINS, N_BINS)
    own = [np.diag(np.bincount(part.bins, part.noise**2, N_BINS)) for part in (first, second)]
    sign, z = np.repeat([1.0, -1.0], N_BINS), np.concatenate([first.gaps, second.gaps])
    signed = sign[:, None] * np.block([[own[0], between], [between.T, own[1]]])  # A S
    both = float(np.trace(signed @ signed))
    estimate = float(z @ (sign * z) - np.trace(signed))
    variance = max(4.0 * float(z @ signed @ (sign * z)) - 2.0 * both, 2.0 * both)
    reach = float(norm.ppf(0.5 + level / 2.0)) * math.sqrt(variance)
    return Difference(estimate, estimate - reach, estimate + reach)


# Whether it covers


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
        found = _interval(_parts(one, correct), _parts(two, correct), 0.95)
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
        "| population | rows | ECE, difference, points | ECE, percentile | ECE, basic | squared error |",
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
