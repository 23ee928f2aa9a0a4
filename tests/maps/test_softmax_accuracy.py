"""The maps against arbitrary precision, from ties to logit gaps of 1e4."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import reference
from refocal.maps import focal, focal_temperature, inverse_focal, log_softmax

pytestmark = [pytest.mark.core, pytest.mark.numerics]

GAMMAS = [-0.9, -0.5, -0.25, -1e-9, 0.0, 1e-9, 0.05, 0.5, 1.0, 2.0, 5.0, 20.0, 100.0]
GAPS = [0.0, 1e-12, 1e-6, 0.1, 1.0, 5.0, 20.0, 40.0, 100.0, 300.0, 700.0, 800.0, 3000.0, 1e4]


def hard_rows(n_classes, gap, rng):
    """One class apart, ties at the top, random gaps, impossible classes, and one class alone."""
    apart = np.full(n_classes, -gap)
    apart[0] = 0.0
    tied = np.full(n_classes, -gap)
    tied[-2:] = 0.0
    spread = -gap * rng.random(n_classes)
    missing = spread.copy()
    missing[0] = -np.inf
    alone = np.full(n_classes, -np.inf)
    alone[1] = gap
    return np.stack([apart, tied, spread, missing, alone])


def exact(logits, gamma, temperature=1.0):
    """log p in arbitrary precision, rounded to float64 at the end."""
    return np.array([[float(v) for v in reference.focal_temperature(row, gamma, temperature)] for row in logits])


def worst_error(got, want, floor=1.0):
    impossible = np.isinf(want)
    np.testing.assert_array_equal(got[impossible], want[impossible])
    got, want = got[~impossible].astype(np.float64), want[~impossible]
    assert np.all(np.isfinite(got))
    return np.max(np.abs(got - want) / np.maximum(floor, np.abs(want)))


@pytest.mark.slow
@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("n_classes", [2, 3, 10, 1000])
def test_focal_agrees_with_arbitrary_precision(n_classes, gamma):
    rng = np.random.default_rng(n_classes)
    if n_classes < 1000:
        rows = np.concatenate([hard_rows(n_classes, gap, rng) for gap in GAPS])
    else:  # of many classes at most fifty distinct logits, so that the reference stays quick
        rows = np.concatenate([hard_rows(50, gap, rng)[:, rng.integers(0, 50, n_classes)] for gap in (1.0, 40.0, 1e4)])
    single = rows.astype(np.float32)
    double = single.astype(np.float64)  # the same numbers, so that one reference serves both
    want = exact(double, gamma)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        in_double, in_single = focal(double, gamma), focal(single, gamma)
    assert (in_double.dtype, in_single.dtype) == (np.float64, np.float32)
    assert worst_error(in_double, want) < 1e-12
    assert worst_error(in_single, want, floor=max(1.0, gamma)) < 3e-6


@pytest.mark.parametrize("temperature", [0.01, 0.7, 1.0, 55.0])
def test_focal_temperature_divides_first(temperature):
    rng = np.random.default_rng(1)
    logits = np.concatenate([hard_rows(5, gap, rng) for gap in GAPS]) + 1e6
    result = focal_temperature(logits, 1.5, temperature)
    assert worst_error(result, exact(logits, 1.5, temperature)) < 1e-12
    assert worst_error(log_softmax(logits, temperature), exact(logits, 0.0, temperature)) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [-0.99, *GAMMAS])
@pytest.mark.parametrize("n_classes", [2, 3, 10, 1000])
def test_the_inverse_undoes_the_map(n_classes, gamma):
    rng = np.random.default_rng(2)
    hard = [hard_rows(n_classes, gap, rng) for gap in GAPS]
    random = [scale * rng.standard_normal((20, n_classes)) for scale in (1e-3, 1.0, 3.0, 10.0, 100.0, 1e4)]
    log_q = log_softmax(np.concatenate(hard + random))
    back = inverse_focal(focal(log_q, gamma), gamma)
    np.testing.assert_array_equal(np.isinf(back), np.isinf(log_q))
    np.testing.assert_allclose(np.exp(back), np.exp(log_q), rtol=0.0, atol=1e-14)
    forth = focal(inverse_focal(log_q, gamma), gamma)
    np.testing.assert_allclose(np.exp(forth), np.exp(log_q), rtol=0.0, atol=1e-12)


def test_the_inverse_is_unique_for_negative_gamma():
    """With everything relative to the top, Σq = 1 is strictly monotone in log((1-q_top)/q_top): margin min(1/2, 1+γ).

    The derivative is -(q + X(q) Σ_j share_j / x'(q_j)), X the top's slope; the largest 1/x' there is bounds it.
    """
    q = np.concatenate([np.logspace(-300, -3, 3000), np.linspace(1e-3, 0.5, 100_001)])
    rest = np.concatenate([np.logspace(-12, -1, 2000), np.linspace(0.1, 1.0, 50_001)])
    top = 1.0 / (1.0 + rest)
    for gamma in [-1e-3, -0.05, -0.25, -0.5, -0.6, -0.75, -0.9, -0.99, -0.999]:
        odds = q / (1 - q)
        h = -odds * np.log(q)
        slope = 1 + gamma * odds - gamma * (h + odds * (h - 1)) / (1 + gamma * h)
        assert slope.min() > 0.0
        h_top = np.log1p(rest) / rest
        top_slope = rest * top + gamma * top - gamma * (h_top - top) / (1 + gamma * h_top)
        # No other class exceeds 1 - q_top, which caps the 1/x' that can occur at each q_top.
        cap = np.maximum.accumulate(1.0 / slope)[np.searchsorted(q, 1 - top, side="right") - 1]
        assert (top + np.minimum(top_slope, 0.0) * cap).min() >= min(0.5, 1.0 + gamma) - 1e-9
        assert (top + np.minimum(top_slope, 0.0) / slope.min()).min() > 0.0
