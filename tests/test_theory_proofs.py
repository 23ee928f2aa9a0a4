"""Each step of the proofs in paper/docs/theory.md: by arbitrary precision, quadrature or bounds between grid points."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
import sympy as sp

from refocal import losses, theory

# Proposition 2: the weight -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0, 5.0])
def test_the_weight_makes_the_partial_losses(gamma):
    p, step = np.array([0.01, 0.2, 0.5, 0.8, 0.97]), 1e-6

    def partial_loss(p, label):
        return losses.proper_focal(np.log(np.stack([1 - p, p], axis=-1)), np.full(len(p), label), gamma)

    slopes = [(partial_loss(p + step, label) - partial_loss(p - step, label)) / (2 * step) for label in (0, 1)]
    weight = theory.proper_weight(p, gamma)
    np.testing.assert_allclose(slopes[0], p * weight, rtol=1e-6)
    np.testing.assert_allclose(slopes[1], -(1 - p) * weight, rtol=1e-6)
    assert np.all(weight > 0.0)


def test_the_weight_integrates_to_the_loss():
    """L*(p, 0) = ∫₀ᵖ c w(c) dc, by a quadrature that knows nothing of derivatives."""
    for gamma in (0.5, 3.0):
        weighted = lambda c, g=gamma: c * float(theory.proper_weight([float(c)], g)[0])  # noqa: E731
        by_weight = mp.quad(weighted, [0.0, 0.3, 0.7])
        expected = losses.proper_focal(np.log([[0.3, 0.7]]), np.array([0]), gamma)[0]
        assert float(by_weight) == pytest.approx(expected, rel=1e-7)


# Proposition 3 -------------------------------------------------------------------------------------------------------

S = np.concatenate([-np.geomspace(1e-3, 40.0, 300)[::-1], [0.0], np.geomspace(1e-3, 40.0, 300)])
GAMMAS = np.concatenate([-np.geomspace(1e-3, 0.999, 25), np.geomspace(1e-3, 1e4, 60)])


def a_of(s):
    """a(s) = e^s log(1 + e^-s), without overflow."""
    u = np.exp(-np.abs(s))
    return np.where(s < 0, u * (np.log1p(u) + np.abs(s)), np.log1p(u) / u)


def sigmoid(s):
    return 1 / (1 + np.exp(-s))


def test_step_1_a_is_a_mean_of_sigmoids():
    for s in (-30, -3, -0.5, 0, 0.5, 3, 30):
        mean = mp.quad(lambda k, s=s: mp.exp(-k) / (1 + mp.exp(-s - k)), [0, 1, 5, 20, mp.inf])
        square = mp.quad(lambda k, s=s: mp.exp(-k) / (1 + mp.exp(-s - k)) ** 2, [0, 1, 5, 20, mp.inf])
        a = mp.exp(s) * mp.log1p(mp.exp(-s))
        slope = mp.diff(lambda x: mp.exp(x) * mp.log1p(mp.exp(-x)), s)
        assert abs(mean - a) < 1e-12
        assert abs(slope - (mean - square)) < 1e-12  # a' is the mean of σ(1-σ)
        assert abs(slope - (a - 1 / (1 + mp.exp(-s)))) < 1e-12  # and a - σ(s)
        assert float(a_of(np.array(float(s)))) == pytest.approx(float(a), rel=1e-14)


def test_step_2_the_slope_of_a_is_at_most_that_of_a_logistic_curve():
    s = S[np.abs(S) < 20.0]  # beyond, the difference of a and σ is lost in rounding
    a = a_of(s)
    slope = a - sigmoid(s)
    assert np.all(slope > 0.0)
    assert np.all(slope <= a * (1 - a) + 1e-16)


@pytest.mark.parametrize("gamma", GAMMAS[::6])
def test_step_3_the_largest_slope_of_log_one_plus_gamma_a(gamma):
    """|γ| x (1-x) / (1 + γx) is largest at x = 1/(1+m), m = √(1+γ), where it is |m-1|/(m+1) = |tanh(log(1+γ)/4)|."""
    x = np.linspace(0.0, 1.0, 100_001)
    value = abs(gamma) * x * (1 - x) / (1 + gamma * x)
    m = math.sqrt(1 + gamma)
    largest = abs(m - 1) / (m + 1)
    assert np.all(value <= largest * (1 + 1e-14))
    assert value.max() == pytest.approx(largest, rel=1e-5)
    assert abs(gamma) * m / (1 + m) ** 2 / m == pytest.approx(largest, rel=1e-11)
    assert largest == pytest.approx(abs(math.tanh(math.log1p(gamma) / 4)), rel=1e-11)


def test_step_4_the_offset_lies_within_twice_that_slope():
    s = S[S > 0]
    for gamma in GAMMAS:
        offset = (np.log1p(gamma * a_of(s)) - np.log1p(gamma * a_of(-s))) / s
        bound = 2 * math.tanh(math.log1p(gamma) / 4)
        sign = math.copysign(1.0, gamma)
        assert np.all(sign * offset > 0.0)
        assert np.all(sign * offset < sign * bound)
        assert sign * bound < sign * math.log1p(gamma) / 2
        assert 1 / (gamma + 1 - bound) <= theory.temperature_bounds(gamma).upper


# The slope D(t) = g'(t) + g'(-t) of log f, g = log(1 + γa), as a polynomial in γ with coefficients in
# a = a(t), b = a(-t) and σ(t), whose derivatives are a - σ, (1-σ) - b and σ (1-σ).
A, B, SIGMA = sp.symbols("a b sigma")


def derivative(expression):
    return sp.expand(
        sp.diff(expression, A) * (A - SIGMA)
        + sp.diff(expression, B) * (1 - SIGMA - B)
        + sp.diff(expression, SIGMA) * SIGMA * (1 - SIGMA)
    )


def slope_parts():
    """Numerator over γ and denominator of D, by powers of γ."""
    mixed = SIGMA * B + (1 - SIGMA) * A
    return [A + B - 1, 2 * A * B - mixed], [sp.Integer(1), A + B, A * B]


def bernstein_of_falling_slope(largest):
    """The sign of D'(t) for all 0 ≤ γ ≤ `largest`: coefficients in a basis that is nowhere negative there."""
    top, bottom = slope_parts()
    powers = [sp.Integer(0)] * 4
    for i, n in enumerate(top):
        for j, d in enumerate(bottom):
            powers[i + j] += derivative(n) * d - n * derivative(d)
    k0, k1, k2, k3 = powers
    g = sp.Rational(largest)
    bernstein = (k0, k0 + g * k1 / 3, k0 + 2 * g * k1 / 3 + g**2 * k2 / 3, k0 + g * k1 + g**2 * k2 + g**3 * k3)
    return [sp.expand(coefficient) for coefficient in bernstein]


def at(expression, t):
    return sp.lambdify((A, B, SIGMA), expression, "numpy")(a_of(t), a_of(-t), sigmoid(t)) + 0.0 * t


def highest(expression, t, width):
    """An upper bound on [t - width/2, t + width/2]: Taylor, with the coefficients' sizes for the second derivative.

    a, b and σ lie between 0 and 1, so no value of a polynomial in them is larger than the sum of its coefficients.
    """
    first = derivative(expression)
    second = float(sum(abs(c) for c in sp.Poly(derivative(first), A, B, SIGMA).coeffs()))
    return at(expression, t) + width / 2 * np.abs(at(first, t)) + width**2 / 8 * second


def test_the_slope_is_the_one_of_its_parts():
    t = np.linspace(0.1, 8.0, 5)
    for gamma in (0.3, 5.0):
        top, bottom = (sum(float(gamma) ** i * at(part, t) for i, part in enumerate(parts)) for parts in slope_parts())
        by_differences = [float(mp.diff(lambda s, g=gamma: mp.log(_f(s, g)), x)) for x in t]
        np.testing.assert_allclose(gamma * top / bottom, by_differences, rtol=1e-10)


def _f(s, gamma):
    return (1 + gamma * mp.exp(s) * mp.log1p(mp.exp(-s))) / (1 + gamma * mp.exp(-s) * mp.log1p(mp.exp(s)))


@pytest.mark.slow
def test_step_5_up_to_gamma_5_6_the_slope_of_log_f_falls():
    """On all of 0 < t ≤ 10 and for all 0 ≤ γ ≤ 5.6, between the points too."""
    coefficients = bernstein_of_falling_slope("5.6")
    near, far = np.arange(1e-4, 0.25, 2e-4), np.arange(0.2505, 10.0, 1e-3)
    for coefficient in coefficients:
        assert sp.simplify(coefficient.subs({B: A, SIGMA: sp.Rational(1, 2)})) == 0  # at t = 0, where a = b
        assert np.all(highest(derivative(coefficient), near, 2.01e-4) < 0.0)  # so it falls from 0
        assert np.all(highest(coefficient, far, 1.1e-3) < 0.0)


def test_step_6_beyond_10_the_offset_falls_as_log_f_hardly_grows():
    s = np.linspace(10.0, 200.0, 2000)
    bound = s * (s + 1) * np.exp(-s)
    assert np.all(np.diff(bound) < 0.0)
    for gamma in (1e-6, 0.1, 1.0, 3.0, 5.6):
        slope = sum(gamma * (a_of(x) - sigmoid(x)) / (1 + gamma * a_of(x)) for x in (s, -s))
        assert np.all(s * slope <= gamma * bound)
        assert gamma * bound[0] < 0.005 * gamma < 0.3 * gamma < math.log(float(_f(10.0, gamma)))


def test_step_7_the_offset_at_zero_and_where_it_begins_to_rise():
    log_2 = math.log(2)
    # g''' at 0 over y = γ/(1 + γ log 2) is a quadratic in y, with a' = log 2 - 1/2 and a'' = a''' = log 2 - 3/4.
    quadratic = [2 * (log_2 - 0.5) ** 3, -3 * (log_2 - 0.5) * (log_2 - 0.75), log_2 - 0.75]
    y = max(np.roots(quadratic))
    turning = y / (1 - y * log_2)
    assert turning == pytest.approx(5.6354, abs=5e-5)

    def offset(s, gamma):
        return mp.log(_f(mp.mpf(s), gamma)) / mp.mpf(s)

    for gamma, sign in ((turning - 0.01, -1), (turning + 0.01, 1)):
        with mp.workdps(40):
            assert mp.sign(offset("0.02", gamma) - offset("0.01", gamma)) == sign
    for gamma in (0.5, 2.0, 5.6):
        at_zero = gamma * (2 * math.log(2) - 1) / (1 + gamma * math.log(2))
        low, high = theory.tight_temperature_bounds(gamma, 20.0)
        assert high == pytest.approx(1 / (gamma + 1 - at_zero), rel=1e-12)
        assert low == pytest.approx(1 / (gamma + 1 - float(mp.log(_f(20, gamma))) / 20), rel=1e-12)


# Proposition 5, three classes ----------------------------------------------------------------------------------------


def h(q):
    return -q * np.log(q) / (1 - q)


def log_r(q, gamma):
    return -gamma * np.log1p(-q) - np.log1p(gamma * h(q))


def test_h_rises_is_concave_and_its_bend_weakens():
    for q in (0.01, 0.2, 0.5, 0.9):
        first = mp.quad(lambda x, q=q: x / (x + (1 - x) * q) ** 2, [0, q, 1])
        second = -2 * mp.quad(lambda x, q=q: x * (1 - x) / (x + (1 - x) * q) ** 3, [0, q, 1])
        by_differences = [mp.diff(lambda z: -z * mp.log(z) / (1 - z), q, n) for n in (1, 2)]
        assert abs(first - by_differences[0]) < 1e-9 * abs(first)
        assert abs(second - by_differences[1]) < 1e-7 * abs(second)


@pytest.mark.parametrize("gamma", [1e-3, 0.3, 1.0, 4.0, 30.0, 1e3])
def test_r_falls_and_then_rises_and_rises_from_one_quarter_on(gamma):
    q = np.linspace(1e-6, 1 - 1e-6, 200_001)
    signs = np.sign(gamma * h(q) + 2 - h(q) / q)  # of (log r)'
    assert np.count_nonzero(np.diff(signs)) == 1
    assert signs[0] < 0 < signs[-1]
    assert np.all(signs[q >= 0.25] > 0)
    r = log_r(q, gamma)
    inner = (q > 1e-3) & (q < 1 - 1e-3)
    np.testing.assert_array_equal(np.sign(np.gradient(r, q))[inner][1000::5000], signs[inner][1000::5000])
    assert math.log(4) / 0.75 < 2  # h(q)/q at 1/4: so the sign there does not depend on γ


def test_the_last_inequality_is_concave_and_vanishes_at_both_ends():
    y = np.linspace(1e-6, 1 / 3, 20_001)
    t = (1 - y) / 2
    j = np.log(2 * (1 - y) / (1 + y)) - h(t) + h(y)
    assert abs(j[0]) < 2e-5
    assert abs(j[-1]) < 1e-14
    assert np.all(np.diff(j, 2) < 0.0)
    assert np.all(j[1:-1] > 0.0)


@pytest.mark.parametrize("gamma", [1e-3, 0.3, 1.0, 4.0, 30.0, 1e3])
def test_the_three_comparisons_of_the_proof(gamma):
    """r(1/2) ≥ 1; r(1-2t) and r((1-t)/2) ≤ r(t) for 1/3 ≤ t ≤ 1/2: no class of three has a larger r than the top."""
    assert log_r(0.5, gamma) >= 0.0
    t = np.linspace(1 / 3, 0.5, 10_001)[1:-1]
    slack = 1e-13 * (1 + gamma)
    assert np.all(log_r(1 - 2 * t, gamma) <= log_r(t, gamma) + slack)
    assert np.all(log_r((1 - t) / 2, gamma) <= log_r(t, gamma) + slack)
    rng = np.random.default_rng(0)
    q = np.sort(rng.dirichlet([1.0, 1.0, 1.0], size=50_000), axis=1)
    assert np.all(log_r(q[:, :2], gamma).max(axis=1) <= log_r(q[:, 2], gamma) + slack)
