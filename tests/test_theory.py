"""The paper's propositions: what holds, and where its text errs."""

from __future__ import annotations

import math
from functools import partial

import mpmath as mp
import numpy as np
import pytest
from scipy.special import expit

from refocal import losses, theory
from refocal.errors import DataError, ParameterError
from refocal.maps import focal, log_softmax


def log_odds(s, gamma):
    """Log-odds of binary focal calibration at log-odds s."""
    log_p = focal(np.stack([s, np.zeros_like(s)], axis=-1), gamma)
    return log_p[..., 0] - log_p[..., 1]


# Proposition 1 -------------------------------------------------------------------------------------------------------


def test_focal_loss_is_convex_from_gamma_zero_on_and_only_from_there():
    q = np.concatenate([np.logspace(-12, -2, 200), np.linspace(0.01, 0.99, 999), 1 - np.logspace(-8, -2, 200)])
    for gamma in np.concatenate([np.linspace(0.0, 5.0, 51), [10.0, 30.0]]):  # (1e-8)^30 can still be represented
        assert np.all(theory.focal_curvature(q, gamma) > 0.0)
    for gamma in (-0.01, -0.5, -0.99):
        assert theory.focal_curvature(1 - 1e-6, gamma) < 0.0


@pytest.mark.parametrize("gamma", [-0.5, 0.0, 0.7, 1.0, 4.0])
def test_the_curvature_is_that_of_the_loss(gamma):
    q, step = np.linspace(0.05, 0.95, 19), 1e-4

    def loss(q):
        return -((1 - q) ** gamma) * np.log(q)

    by_differences = (loss(q + step) - 2 * loss(q) + loss(q - step)) / step**2
    np.testing.assert_allclose(theory.focal_curvature(q, gamma), by_differences, rtol=1e-3)


# Propositions 2 and 4 ------------------------------------------------------------------------------------------------


def test_the_minimisers_of_the_motivating_example():
    for gamma, q in {1: 0.6858, 2: 0.6266, 3: 0.5945, 5: 0.5619}.items():
        assert theory.focal_minimizer([0.8, 0.2], gamma)[0] == pytest.approx(q, abs=5e-5)
    assert theory.focal_minimizer([0.8, 0.2], 0.0)[0] == pytest.approx(0.8, abs=1e-15)


def test_conditional_risk_is_the_expected_loss():
    p, q = np.array([0.5, 0.3, 0.2]), np.array([[0.2, 0.3, 0.5], [0.5, 0.3, 0.2]])
    np.testing.assert_allclose(theory.conditional_risk(p, q, losses.cross_entropy), -(p * np.log(q)).sum(axis=-1))
    assert theory.conditional_risk([1.0, 0.0], [1.0, 0.0], losses.cross_entropy) == 0.0
    assert theory.conditional_risk([0.5, 0.5], [1.0, 0.0], losses.cross_entropy) == np.inf
    focal_2 = partial(losses.focal, gamma=2.0)
    np.testing.assert_allclose(
        theory.conditional_risk(p, q, focal_2), -(p * (1 - q) ** 2 * np.log(q)).sum(axis=-1), rtol=1e-12
    )


# Proposition 3 -------------------------------------------------------------------------------------------------------

GAMMAS = np.concatenate([np.logspace(-3, 2, 41), [4.0, 9.0]])
LOG_ODDS = np.concatenate([np.logspace(-3, 3, 601)])


def test_the_corrected_bounds_hold():
    for gamma in GAMMAS:
        low, high = theory.temperature_bounds(gamma)
        fc = log_odds(LOG_ODDS, gamma)
        assert np.all(LOG_ODDS / high < fc), gamma
        # At s = 1000 the upper bound is reached up to log(1+γ); rounding of s (γ+1) may hide less than its last digit.
        assert np.all(fc < LOG_ODDS / low), gamma
        np.testing.assert_allclose(log_odds(-LOG_ODDS, gamma), -fc, rtol=1e-12)


def test_the_bounds_hold_for_negative_gamma_with_their_sides_exchanged():
    for gamma in (-0.99, -0.9, -0.5, -0.25, -0.01):
        low, high = theory.temperature_bounds(gamma)
        assert high == pytest.approx(1 / (gamma + 1), rel=1e-15)
        fc = log_odds(LOG_ODDS, gamma)
        assert np.all(LOG_ODDS / high < fc)
        assert np.all(fc < LOG_ODDS / low)


def test_the_bounds_as_the_paper_prints_them_fail():
    """Printed: σ(s/(γ+1)) < FC(s) < σ(s/(γ+1-log(γ+1)/2)) for s ≥ 0. The right-hand side fails for every s > 0."""
    for gamma in (0.5, 1.0, 4.0):
        s = np.array([0.5, 2.0, 10.0])
        printed_upper = s / (gamma + 1 - math.log(gamma + 1) / 2)
        assert np.all(log_odds(s, gamma) > printed_upper)


def test_the_tight_bounds_are_tight():
    low, high = theory.tight_temperature_bounds(4.0, max_logit=20.0)
    assert (round(low, 4), round(high, 4)) == (0.2033, 0.2178)
    for gamma in (-0.5, 0.5, 1.0, 2.0, 4.0, 9.0, 50.0):
        for max_logit in (0.5, 5.0, 20.0, 300.0):
            low, high = theory.tight_temperature_bounds(gamma, max_logit)
            outer = theory.temperature_bounds(gamma)
            assert outer.lower < low < high < outer.upper
            s = np.concatenate([np.linspace(0, max_logit, 5001)[1:], np.logspace(-3, math.log10(max_logit), 200)])
            temperature = s / log_odds(s, gamma)
            assert low * (1 - 1e-10) <= temperature.min() <= low * (1 + 1e-6)
            assert high * (1 - 1e-6) <= temperature.max() <= high * (1 + 1e-10)
    unbounded = theory.tight_temperature_bounds(4.0)
    assert unbounded.lower == pytest.approx(0.2, rel=1e-12)
    for gamma in (-0.5, 4.0, 9.0):
        at_zero = 1.0 / (gamma + 1.0 - gamma * (2.0 * math.log(2.0) - 1.0) / (1.0 + gamma * math.log(2.0)))
        for max_logit in (1e-6, 1e-10, 1e-14):
            assert theory.tight_temperature_bounds(gamma, max_logit) == pytest.approx((at_zero, at_zero), rel=1e-12)


def test_the_largest_offset_lies_off_zero_for_large_gamma():
    c_at_zero = 9 * (2 * math.log(2) - 1) / (1 + 9 * math.log(2))
    c_max = 10 - 1 / theory.tight_temperature_bounds(9.0, 20.0).upper

    def c(s):
        f = (1 + 9 * mp.exp(s) * mp.log1p(mp.exp(-s))) / (1 + 9 * mp.exp(-s) * mp.log1p(mp.exp(s)))
        return float(mp.log(f) / s)

    assert c_at_zero == pytest.approx(c(1e-6), abs=1e-6)
    assert c_max == pytest.approx(max(c(s) for s in np.linspace(1.0, 2.5, 301)), abs=1e-6)
    assert c_max > c_at_zero + 0.003


# The closest temperature ---------------------------------------------------------------------------------------------


def linear_fit(n_classes, gammas):
    slopes = [1 / theory.closest_temperature(gamma, n_classes).temperature for gamma in gammas]
    return np.polyfit(gammas, slopes, 1)


def test_closest_temperature_for_three_classes():
    slope, intercept = linear_fit(3, np.arange(0.25, 10.1, 0.75))
    assert slope == pytest.approx(0.64, abs=0.02)
    assert intercept == pytest.approx(0.9, abs=0.05)
    assert 0.07 < theory.closest_temperature(9.0, 3).error < 0.09


@pytest.mark.slow
def test_closest_temperature_for_two_classes():
    gammas = np.arange(0.0, 10.05, 0.1)
    slope, intercept = linear_fit(2, gammas)
    assert slope == pytest.approx(0.967, abs=0.003)
    assert intercept == pytest.approx(0.780, abs=0.01)
    largest = max(theory.closest_temperature(gamma, 2).error for gamma in np.arange(0.1, 1.0, 0.05))
    assert largest == pytest.approx(1.21e-3, abs=1e-5)


@pytest.mark.slow
def test_closest_temperature_for_four_classes():
    slope, intercept = linear_fit(4, np.arange(0.25, 10.1, 1.5))
    assert slope == pytest.approx(0.50, abs=0.01)
    assert intercept == pytest.approx(0.92, abs=0.03)
    assert theory.closest_temperature(9.0, 4).error == pytest.approx(0.120, abs=0.001)


@pytest.mark.parametrize("gamma", [-0.97, -0.99, -0.999999])
def test_gamma_next_to_its_end_has_a_closest_temperature(gamma):
    """A plain loop over temperatures never does better."""
    best = theory.closest_temperature(gamma, 2)
    s = np.arange(0.0, 20.0025, 0.005)
    p = np.exp(focal(np.stack([np.zeros_like(s), -s], axis=1), gamma))[:, 0]
    errors = [np.abs(p - expit(s / temperature)).max() for temperature in np.geomspace(0.2, 5.0, 2001)]
    assert best.error == pytest.approx(min(errors), rel=1e-2)
    assert best.error <= min(errors)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 3, 4])
@pytest.mark.parametrize("gamma", [-0.98, -0.5, 0.5, 3.0])
def test_no_other_temperature_is_closer(gamma, n_classes):
    """A plain loop over temperatures and over the whole cube of gaps, symmetric copies and all, never does better."""
    best = theory.closest_temperature(gamma, n_classes)
    reach, step = {2: (20.0, 0.005), 3: (10.0, 0.125), 4: (10.0, 0.25)}[n_classes]
    levels = np.arange(0.0, -reach - step / 2, -step)
    rows = np.stack(np.meshgrid(*[levels] * (n_classes - 1)), axis=-1).reshape(-1, n_classes - 1)
    logits = np.concatenate([np.zeros((len(rows), 1)), rows], axis=1)
    p = np.exp(focal(logits, gamma))

    def error(temperature):
        return np.abs(p - np.exp(log_softmax(logits, temperature))).max()

    assert error(best.temperature) == pytest.approx(best.error, rel=1e-9)
    assert min(error(t) for t in np.geomspace(0.3, 3.0, 51) * best.temperature) > best.error * (1 - 1e-9)


# Proposition 5 -------------------------------------------------------------------------------------------------------


def top_change(q, gamma):
    q = np.asarray(q, dtype=np.float64)
    q = q / q.sum(axis=-1, keepdims=True)
    return np.exp(focal(np.log(q), gamma)).max(axis=-1) - q.max(axis=-1)


def test_the_threshold():
    assert theory.confidence_threshold(1.0) == pytest.approx(1 / math.e, rel=1e-14)
    known = {0.5: 0.4215, 2.0: 0.2976, 3.0: 0.2526, 5.0: 0.1968, 100.0: 0.0225}
    for gamma, tau in known.items():
        assert theory.confidence_threshold(gamma) == pytest.approx(tau, abs=5e-5)
    assert theory.confidence_threshold(1e-6) == pytest.approx(0.5, abs=1e-6)
    taus = [theory.confidence_threshold(g) for g in np.logspace(-3, 4, 50)]
    assert np.all(np.diff(taus) < 0.0)


def test_the_papers_fifth_proposition_fails_from_four_classes_on():
    four = [0.3277, 0.3277, 0.3277, 0.0169]
    five = [0.241, 0.241, 0.241, 0.241, 0.036]
    assert top_change(four, 0.5) == pytest.approx(-9e-5, abs=5e-6)
    assert top_change(five, 0.5) == pytest.approx(-2.1e-4, abs=5e-6)
    assert not theory.raises_confidence(four, 0.5)
    assert not theory.raises_confidence(five, 0.5)
    hundred = np.full(100, 0.886 / 99)
    hundred[0] = 0.114
    assert theory.raises_confidence(hundred, 3.0) == (top_change(hundred, 3.0) >= 0)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 3, 4, 5, 10, 100, 1000])
def test_above_the_threshold_confidence_is_never_lowered(n_classes):
    rng = np.random.default_rng(n_classes)
    size = 20_000 if n_classes <= 100 else 2_000
    seen = lowered = 0
    for gamma in (0.1, 0.5, 1.0, 3.0, 10.0):
        q = rng.dirichlet(np.full(n_classes, 10.0 ** rng.uniform(-1, 1.3)), size=size // 5)
        change = top_change(q, gamma)
        raised = theory.raises_confidence(q, gamma)
        clear = np.abs(change) > 1e-12
        np.testing.assert_array_equal(raised[clear], change[clear] > 0)
        above = q.max(axis=-1) >= theory.confidence_threshold(gamma)
        assert np.all(raised[above])
        seen += int(above.sum())
        lowered += int((~raised).sum())
    assert seen > 0 or n_classes >= 100
    assert lowered > 0 or n_classes <= 4


@pytest.mark.slow
def test_three_classes_keep_the_papers_fifth_proposition():
    """No top probability falls anywhere on a fine grid of the simplex, for γ from 1e-3 to 1e3."""
    first, share = np.meshgrid(np.linspace(1 / 3, 1.0, 401)[:-1], np.linspace(0.5, 1.0, 201))
    q = np.stack([first, (1 - first) * share, (1 - first) * (1 - share)], axis=-1).reshape(-1, 3)
    q = q[q[:, 0] >= q[:, 1]]
    for gamma in np.logspace(-3, 3, 49):
        assert np.all(theory.raises_confidence(q, gamma)), gamma


def other_classes(rng, top, n_classes, size):
    """Random rows with a given top: ties with it, one in between, many or few others, evenly or unevenly spread."""
    rows = []
    while len(rows) < size:
        ties = rng.integers(0, min(n_classes - 1, int((1 - top) / top)) + 1)
        rest = 1 - top * (1 + ties)
        n_rest = n_classes - 1 - ties
        if n_rest == 0:
            continue
        if rng.random() < 0.5 and n_rest > 1:
            between = rng.uniform(0.0, min(top, rest))
            spread = np.full(n_rest, (rest - between) / (n_rest - 1))
            spread[0] = between
        else:
            spread = rest * rng.dirichlet(np.full(n_rest, 10.0 ** rng.uniform(-1, 3)))
        if spread.max() <= top:
            rows.append(np.concatenate([np.full(ties + 1, top), spread]))
    return np.array(rows)


@pytest.mark.parametrize(("gamma", "n_classes"), [(0.5, 4), (0.5, 5), (1.0, 8), (3.0, 30), (7.0, 100)])
def test_no_prediction_falls_further_than_the_worst(gamma, n_classes):
    rng = np.random.default_rng(n_classes)
    lowest = max(1.0 / n_classes, 0.02)
    for top in np.linspace(lowest * 1.02, theory.confidence_threshold(gamma), 12):
        worst = theory.worst_top_change(float(top), gamma, n_classes)
        found = top_change(other_classes(rng, top, n_classes, 300), gamma)
        assert found.min() >= worst - 1e-12
        # And it is reached, or nearly so, by one of the many.
        assert found.min() <= worst + 0.05 * abs(worst) + 3e-4


@pytest.mark.slow
def test_the_highest_top_that_falls():
    for gamma in (0.1, 0.5, 1.0, 3.0, 7.0):
        tau = theory.confidence_threshold(gamma)
        assert theory.highest_lowered_top(gamma, 3) is None
        found = [theory.highest_lowered_top(gamma, n) for n in (4, 5, 8, 20, 100, 1000)]
        known = [top for top in found if top is not None]
        assert known == sorted(known)
        assert found.index(known[0]) + len(known) == len(found)  # once some top falls, it does with more classes too
        assert 0.98 * tau < known[-1] < tau
        # k classes at a little less than 1/k fall as soon as 1/k < τ, and there is one class more.
        k = math.floor(1 / tau) + 1
        row = np.full(k + 1, 1 / k - 1e-6)
        row[-1] = k * 1e-6
        assert top_change(row, gamma) < 0.0
        assert theory.highest_lowered_top(gamma, k + 1) >= 1 / k
        assert theory.highest_lowered_top(gamma, k) is None
        for n_classes, top in zip((4, 5, 8, 20, 100, 1000), found, strict=True):
            if top is not None:
                assert theory.worst_top_change(top * (1 - 1e-5), gamma, n_classes) < 0.0
                assert theory.worst_top_change(top * (1 + 1e-5), gamma, n_classes) > -1e-14


def test_uniform_predictions_do_not_move():
    for n_classes in (2, 3, 7, 100):
        assert theory.raises_confidence(np.full(n_classes, 1 / n_classes), 2.0)


# Bad input -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: theory.temperature_bounds(-1.0), ParameterError, "'gamma' of temperature_bounds .* Got -1.0"),
        (lambda: theory.tight_temperature_bounds(1.0, 0.0), ParameterError, "'max_logit' .* greater than 0. Got 0.0"),
        (lambda: theory.tight_temperature_bounds(1.0, "20"), ParameterError, "'max_logit' .* number .* Got '20'"),
        (lambda: theory.closest_temperature(1.0, 5), ParameterError, "'n_classes' .* from 2 to 4. Got 5"),
        (lambda: theory.closest_temperature(math.nan, 3), ParameterError, "'gamma' .* Got nan"),
        (lambda: theory.worst_top_change(0.2, 1.0, 4), ParameterError, "'top' of worst_top_change .* 0.25 .* Got 0.2"),
        (lambda: theory.highest_lowered_top(-0.5, 4), ParameterError, "'gamma' of highest_lowered_top .* Got -0.5"),
        (lambda: theory.highest_lowered_top(1.0, 1), ParameterError, "'n_classes' .* at least 2. Got 1"),
        (lambda: theory.focal_minimizer([0.5, 0.5], -2), ParameterError, "'gamma' of focal_minimizer .* Got -2"),
        (lambda: theory.confidence_threshold(0.0), ParameterError, "'gamma' .* greater than 0. Got 0.0"),
        (
            lambda: theory.focal_minimizer([0.5, 0.6], 1.0),
            DataError,
            "'p' of focal_minimizer .* sum to 1 .* sum of 1.1",
        ),
        (
            lambda: theory.raises_confidence([-0.1, 1.1], 1.0),
            DataError,
            "'q' of raises_confidence .* Got a value of -0.1",
        ),
        (lambda: theory.focal_curvature([0.0, 0.5], 1.0), DataError, "'q' of focal_curvature .* between 0 and 1"),
    ],
)
def test_bad_input_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()
