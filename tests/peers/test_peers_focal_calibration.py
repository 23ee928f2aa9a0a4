"""The metrics and the grid search of the code of Mukhoti et al. (2020), written as loops, beside ours.

Its bins are closed on the right, so no confidence of these rows lies on an edge. Its AdaptiveECE drops the row with the
lowest confidence (benchmarks/results/metrics.md); the loop below does so, and ours is asked for without that row.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import softmax

from helpers import draw_logits
from refocal import TemperatureScaling
from refocal.metrics import classwise_ece, expected_calibration_error, log_loss


@pytest.fixture(scope="module")
def network():
    logits, labels = draw_logits(2000, 7, seed=5, temperature=1.7)
    return logits, labels, softmax(logits, axis=1)


def bins(confidences, outcomes, n_bins):
    """(rows, mean confidence, accuracy) of each bin that has any."""
    members = [[] for _ in range(n_bins)]
    for confidence, outcome in zip(confidences, outcomes, strict=True):
        members[math.ceil(n_bins * confidence - 1)].append((confidence, outcome))
    return [(len(rows), *np.mean(rows, axis=0)) for rows in members if rows]


@pytest.mark.parametrize("n_bins", [10, 15])
def test_errors_of_equal_width_bins(network, n_bins):
    _, y, p = network
    table = bins(p.max(axis=1), p.argmax(axis=1) == y, n_bins)
    gaps = np.array([abs(accuracy - confidence) for _, confidence, accuracy in table])
    share = np.array([n for n, _, _ in table]) / len(y)
    expected = {"l1": share @ gaps, "l2": np.sqrt(share @ gaps**2), "max": gaps.max()}
    for norm, value in expected.items():
        ours = expected_calibration_error(y, p, n_bins=n_bins, strategy="uniform", norm=norm)
        assert ours == pytest.approx(value, abs=1e-12)


def test_classwise_error(network):
    _, y, p = network
    errors = []
    for k in range(p.shape[1]):
        table = bins(p[:, k], y == k, 15)
        errors.append(sum(n * abs(accuracy - confidence) for n, confidence, accuracy in table) / len(y))
    assert classwise_ece(y, p, n_bins=15, strategy="uniform") == pytest.approx(np.mean(errors), abs=1e-12)


def test_adaptive_error_but_for_its_dropped_row(network):
    _, y, p = network
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    edges = np.interp(np.linspace(0, len(y), 16), np.arange(len(y)), np.sort(confidence))
    total = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (confidence > low) & (confidence <= high)
        total += abs(right[inside].mean() - confidence[inside].mean()) * inside.mean()
    ours = expected_calibration_error(y, p, n_bins=15, strategy="interpolated")
    assert abs(ours - total) <= 1 / len(y)


@pytest.mark.parametrize("objective", ["nll", "ece"])
def test_grid_search_of_the_temperature(network, objective):
    logits, y, _ = network
    grid = np.arange(1, 101) / 10

    def value(temperature):
        p = softmax(logits / temperature, axis=1)
        if objective == "nll":
            return log_loss(y, np.log(p))
        return expected_calibration_error(y, p, n_bins=15)

    best = grid[np.argmin([value(t) for t in grid])]
    scaler = TemperatureScaling(objective=objective, search="grid", temperatures=grid).fit(logits, y)
    assert scaler.temperature_ == pytest.approx(best)
