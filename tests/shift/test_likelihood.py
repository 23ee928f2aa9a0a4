"""The gain of fitted shares where nothing has changed, by simulation, and how far shares move by it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar

from refocal.shift.likelihood import TOLERANCE_OF_REPLICATES, _degrees_of_freedom, likely_shares, share_evidence


def rows_of(rng, n, shares, old, spread=1.0):
    """Right probabilities, under the shares `old`, of rows that have the class shares `shares`."""
    labels = rng.choice(len(old), n, p=shares)
    x = spread * np.eye(len(old))[labels] + rng.normal(size=(n, len(old)))
    p = old * np.exp(spread * x)
    return p / p.sum(axis=1, keepdims=True)


def test_shares_are_those_of_largest_posterior():
    rng = np.random.default_rng(1)
    p = rng.dirichlet([1.0, 2.0, 0.5], 150)
    old = np.array([0.3, 0.5, 0.2])

    def minus_log_posterior(free):
        shares = np.exp(np.append(free, 0.0))
        shares /= shares.sum()
        return -np.sum(np.log(p @ (shares / old))) - 3.0 * old @ np.log(shares)

    best = np.exp(np.append(minimize(minus_log_posterior, [0.0, 0.0], tol=1e-12).x, 0.0))
    np.testing.assert_allclose(likely_shares(p, old), best / best.sum(), atol=2e-5)


def test_classes_that_overlap_arrive_too():
    """EM alone stopped 0.005 before: its steps are short where the classes overlap."""
    rng = np.random.default_rng(3)
    old = np.full(2, 0.5)
    p = rows_of(rng, 1000, np.array([0.9, 0.1]), old, 0.3)
    shares = likely_shares(p, old, tolerance=TOLERANCE_OF_REPLICATES)
    exact = minimize_scalar(
        lambda x: -np.sum(np.log(p @ np.array([1 - x, x]) * 2.0)) - np.log(x) - np.log(1 - x),
        bounds=(1e-6, 1 - 1e-6),
        method="bounded",
        options={"xatol": 1e-10},
    ).x
    assert shares[1] == pytest.approx(exact, abs=1e-3)


def test_weights_count_rows():
    rng = np.random.default_rng(2)
    p = rng.dirichlet(np.ones(3), 60)
    old = np.full(3, 1 / 3)
    count = rng.integers(1, 4, 60)
    np.testing.assert_allclose(
        likely_shares(p, old, count.astype(float)), likely_shares(np.repeat(p, count, axis=0), old)
    )


@pytest.mark.parametrize(("n_classes", "n", "spread"), [(2, 300, 2.0), (5, 300, 2.0), (20, 100, 3.0)])
def test_the_gain_by_chance_has_so_many_degrees_of_freedom(n_classes, n, spread):
    rng = np.random.default_rng(n_classes)
    old = np.full(n_classes, 1.0 / n_classes)
    gains = []
    degrees = []
    beyond = []
    for _ in range(200):
        p = rows_of(rng, n, old, old, spread)
        evidence = share_evidence(p, old, likely_shares(p, old), np.inf)
        gains.append(evidence.gain)
        degrees.append(_degrees_of_freedom(p, old))
        beyond.append(evidence.weight > 0.0)
    assert np.mean(gains) == pytest.approx(np.mean(degrees), rel=0.15)
    # 1 % of 200 are 2, with a standard deviation of 1.4.
    assert np.count_nonzero(beyond) <= 7


def test_shares_move_with_the_evidence():
    rng = np.random.default_rng(3)
    old = np.array([0.5, 0.3, 0.2])
    new = np.array([0.2, 0.3, 0.5])
    weights = []
    for n in (10, 100, 1000):
        p = rows_of(rng, n, new, old, 2.0)
        evidence = share_evidence(p, old, likely_shares(p, old), 5000.0)
        weights.append(evidence.weight)
    assert weights == sorted(weights)
    assert weights[2] > 0.99
    few = share_evidence(p, old, likely_shares(p, old), 100.0)
    # The error of a calibration of 100 rows makes 1,000 rows worth less: 1 + 1000/100 against 1 + 1000/5000.
    assert few.gain_by_chance == pytest.approx(evidence.gain_by_chance * 11.0 / 1.2)
