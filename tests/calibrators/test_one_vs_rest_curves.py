"""Beta, spline and ensemble temperature scaling against betacal, netcal and general optimisers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from betacal import BetaCalibration as PeerBeta
from netcal.scaling import BetaCalibration as NetcalBeta
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import expit, log_expit, log_softmax, logsumexp
from sklearn.calibration import _SigmoidCalibration

from helpers import draw_logits, spline_at
from refocal import (
    BetaCalibration,
    EnsembleTemperatureScaling,
    LogisticCalibration,
    SplineCalibration,
    TemperatureScaling,
    metrics,
)
from refocal.engine import c_engine
from refocal.fitting.curves import Splines
from refocal.fitting.logistic import fit_logistic

pytestmark = pytest.mark.numerics

NOTHING = 1e-9
# What every probability is mixed with at most, so that none is 0: a thousandth of a row.
FLOOR = 1e-3


def skewed(n=3000, seed=0):
    """Two classes whose network errs differently on both sides."""
    rng = np.random.default_rng(seed)
    s = 3.0 * rng.normal(size=n)
    labels = (rng.random(n) < expit(np.where(s > 0, 0.4 * s, 1.3 * s) + 0.3)).astype(int)
    return np.stack([-s / 2, s / 2], axis=1), labels, s


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e5])
def test_logistic_is_scikit_learns_sigmoid(weighted, scale):
    logits, labels, s = skewed(400)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 400) if weighted else None
    theirs = _SigmoidCalibration().fit(scale * s, labels, weight).predict(scale * s)
    ours = LogisticCalibration().fit(scale * logits, labels, weight).predict_proba(scale * logits)[:, 1]
    np.testing.assert_allclose(ours, theirs, atol=FLOOR / 400 + 2e-6)


def test_logistic_of_rows_told_apart_without_error_is_scikit_learns_sigmoid():
    s = np.array([-3.0, -2.0, -1.0, 1.0, 2.5])
    labels = (s > 0).astype(int)
    ours = LogisticCalibration().fit(np.stack([0 * s, s], axis=1), labels).predict_proba(np.stack([0 * s, s], axis=1))
    np.testing.assert_allclose(ours[:, 1], _SigmoidCalibration().fit(s, labels).predict(s), atol=FLOOR / 5 + 1e-6)


def test_logistic_of_many_classes_is_the_minimum_for_each():
    logits, labels = draw_logits(300, 4)
    q = np.exp(log_softmax(logits, axis=1))
    curve = LogisticCalibration(base="softmax").fit(logits, labels).curve_
    for k in range(4):
        s, n = np.log(q[:, k]) - np.log1p(-q[:, k]), np.count_nonzero(labels == k)
        t = np.where(labels == k, (n + 1) / (n + 2), 1 / (300 - n + 2))

        def loss(ab, s=s, t=t):
            z = ab[0] * s + ab[1]
            return -np.sum(t * log_expit(z) + (1 - t) * log_expit(-z))

        best = minimize(loss, [0.0, 0.0], tol=1e-12)
        np.testing.assert_allclose(curve.coefficients[::-1, k, 0], best.x, atol=1e-5)


def test_beta_is_that_of_betacal():
    logits, labels, s = skewed()
    ours = BetaCalibration(base="softmax", smoothing=NOTHING).fit(logits, labels)
    a, b, c = PeerBeta("abm").fit(expit(s)[:, None], labels).calibrator_.map_[:3]
    peer = PeerBeta("abm").fit(expit(s)[:, None], labels)
    np.testing.assert_allclose(ours.predict_proba(logits)[:, 1], peer.predict(expit(s)[:, None]), atol=2e-4)
    assert ours.curve_.coefficients[0, :2] == pytest.approx([a, b], abs=5e-3)
    assert np.isfinite(c)


def test_beta_is_that_of_netcal():
    logits, labels, s = skewed()
    ours = BetaCalibration(base="softmax", smoothing=NOTHING).fit(logits, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = NetcalBeta().fit(expit(s), labels).transform(expit(s))
    np.testing.assert_allclose(ours.predict_proba(logits)[:, 1], np.ravel(theirs), atol=2e-3)


@pytest.mark.parametrize("smoothing", [0.1, 30.0])
@pytest.mark.parametrize("flip", [False, True])
def test_beta_is_the_minimum(smoothing, flip):
    """Also where a bound holds: labels that fall with the score want a negative slope."""
    logits, labels, s = skewed(500)
    labels = np.where(s > 0, 1 - labels, labels) if flip else labels
    a, b, c = BetaCalibration(base="softmax", smoothing=smoothing).fit(logits, labels).curve_.coefficients[0]
    sign = np.where(labels == 1, 1.0, -1.0)

    def loss(t):
        z = t[0] * log_expit(s) - t[1] * log_expit(-s) + t[2]
        return -np.sum(log_expit(sign * z)) + 0.5 * smoothing * ((t[0] - 1) ** 2 + (t[1] - 1) ** 2 + t[2] ** 2)

    best = minimize(loss, [0.5, 0.5, 0.0], bounds=[(0, None), (0, None), (None, None)], options={"ftol": 1e-14})
    assert loss([a, b, c]) <= best.fun + 1e-7
    assert [a, b, c] == pytest.approx(best.x, abs=2e-3)
    assert (min(a, b) == 0.0) == flip


def test_one_vs_rest_normalises_the_classes():
    logits, labels = draw_logits(800, 3)
    whole = BetaCalibration(base="softmax").fit(logits, labels)
    q = np.exp(log_softmax(logits, axis=1))
    p = np.empty_like(q)
    for k in range(3):
        odds = np.log(q[:, k]) - np.log1p(-q[:, k])
        single = BetaCalibration(base="softmax").fit(np.stack([-odds / 2, odds / 2], axis=1), labels == k)
        p[:, k] = (single.predict_proba(np.stack([-odds / 2, odds / 2], axis=1))[:, 1] - single.floor_ / 2) / (
            1 - single.floor_
        )
    expected = p / p.sum(axis=1, keepdims=True)
    expected = (1 - whole.floor_) * expected + whole.floor_ / 3
    np.testing.assert_allclose(whole.predict_proba(logits), expected, rtol=1e-7)


def test_the_base_is_the_best_temperature():
    logits, labels = draw_logits(2000, 5)
    fitted = BetaCalibration(smoothing=1e9).fit(3.0 * logits, labels)
    plain = TemperatureScaling().fit(3.0 * logits, labels)
    assert fitted.temperature_ == plain.temperature_
    np.testing.assert_allclose(fitted.predict_proba(logits), plain.predict_proba(logits), atol=1e-4)


def test_a_spline_is_the_integral_of_its_slope():
    logits, labels, _ = skewed()
    fitted = SplineCalibration(base="softmax").fit(logits, labels)
    knots, (heights, slopes, _) = fitted.curve_.knots[0], fitted.curve_.coefficients[:, 0, 1:]
    middle, offset = knots[len(knots) // 2], heights[len(knots) // 2]
    for s in (-30.0, -2.0, 0.1, 1.7, 25.0):
        rise = quad(lambda x: np.interp(x, knots, slopes), middle, s, points=knots)[0]
        log_p = fitted.predict_log_proba([[-s / 2, s / 2]])[0]
        floor = fitted.floor_
        p = (1 - floor) * expit(offset + rise) + floor / 2
        assert np.exp(log_p[1]) == pytest.approx(p, rel=1e-7)


def test_a_spline_bends_where_beta_and_temperature_cannot():
    rng = np.random.default_rng(0)
    s = 4.0 * rng.normal(size=20_000)
    truth = expit(2.0 * np.tanh(s) + 0.15 * s)
    labels = (rng.random(20_000) < truth).astype(int)
    logits = np.stack([-s / 2, s / 2], axis=1)
    off = {}
    for calibrator in (TemperatureScaling(), BetaCalibration(), SplineCalibration()):
        p = calibrator.fit(logits, labels).predict_proba(logits)[:, 1]
        off[type(calibrator).__name__] = np.mean(np.abs(p - truth))
    assert off["SplineCalibration"] < 0.5 * min(off["TemperatureScaling"], off["BetaCalibration"])


def test_the_smoothing_of_a_spline_may_be_an_integer():
    logits, labels = draw_logits(300, 3)
    found, expected = (SplineCalibration(smoothing=smoothing).fit(logits, labels).curve_ for smoothing in (3, 3.0))
    np.testing.assert_array_equal(found.coefficients, expected.coefficients)


def test_splines_rise_even_if_the_labels_fall():
    logits, labels, s = skewed(500)
    fitted = SplineCalibration().fit(logits, np.where(s > 0, 1 - labels, labels))
    gap = np.linspace(-50, 50, 1001)
    log_p = fitted.predict_log_proba(np.stack([-gap / 2, gap / 2], axis=1))
    assert np.all(np.diff(log_p[:, 1] - log_p[:, 0]) >= -1e-12)


@pytest.mark.parametrize("n_rows", [1, 7, 200])
def test_the_loss_of_a_spline_has_the_derivatives_that_it_says(n_rows, monkeypatch):
    rng = np.random.default_rng(0)
    score, weight, target = 3.0 * rng.normal(size=n_rows), rng.uniform(size=n_rows), rng.uniform(size=n_rows)
    knots, theta = np.array([-2.0, 0.0, 0.5, 3.0]), rng.uniform(0.3, 2.0, size=5)
    pull, pull_by_arrays = np.empty(n_rows), np.empty(n_rows)

    def loss(theta, score=score):
        eta = spline_at(score, knots, theta)
        return float(weight @ (np.logaddexp(0.0, eta) - target * eta))

    found = Splines(knots, score).loss(theta, target, weight, pull)
    monkeypatch.setattr(c_engine, "_library", lambda: None)
    by_arrays = Splines(knots, score).loss(theta, target, weight, pull_by_arrays)
    for mine, other in zip((*found, pull), (*by_arrays, pull_by_arrays), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-11, atol=1e-12)
    value, gradient, hessian = found
    assert value == pytest.approx(loss(theta), rel=1e-12)
    step = 1e-4 * np.eye(5)
    slope = [(loss(theta + s) - loss(theta - s)) / 2e-4 for s in step]
    np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-7)
    up, down = ([Splines(knots, score).loss(theta + s, target, weight) for s in each] for each in (step, -step))
    bend = [(above - below) / 2e-4 for (_, above, _), (_, below, _) in zip(up, down, strict=True)]
    np.testing.assert_allclose(hessian, bend, rtol=1e-5, atol=1e-6)
    first = 1e-5 * (np.arange(n_rows) == 0)
    assert pull[0] == pytest.approx((loss(theta, score + first) - loss(theta, score - first)) / 2e-5, abs=1e-7)


def test_the_fit_of_coefficients_is_the_minimum():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(300, 4)) * [1.0, 30.0, 0.1, 5.0]
    target = rng.random(300) < expit(features @ [1.0, -0.1, 3.0, 0.0])
    weight = rng.random(300)
    prior, penalty, lower = np.ones(4), np.diag([0.1, 0.2, 0.3, 0.4]), np.array([0.0, 0.0, -np.inf, 0.0])

    def loss(t):
        z = features @ t
        return weight @ np.logaddexp(0.0, np.where(target, -z, z)) + 0.5 * (t - prior) @ penalty @ (t - prior)

    found = fit_logistic(features, target, weight, prior, penalty, lower).theta
    best = minimize(loss, prior, bounds=[(low, None) for low in lower], options={"ftol": 1e-15, "gtol": 1e-10})
    assert loss(found) <= best.fun + 1e-9
    np.testing.assert_allclose(found, best.x, atol=1e-4)
    assert np.all(found >= lower)


@pytest.mark.slow
def test_ensemble_weights_are_the_minimum():
    rng = np.random.default_rng(0)
    logits, labels = draw_logits(3000, 6)
    labels = np.where(rng.random(3000) < 0.1, rng.integers(0, 6, 3000), labels)  # noise that no temperature describes
    fitted = EnsembleTemperatureScaling().fit(3.0 * logits, labels)
    plain = TemperatureScaling().fit(3.0 * logits, labels)
    assert fitted.temperature_ == plain.temperature_
    cold, itself = (log_softmax(3.0 * logits / t, axis=1) for t in (plain.temperature_, 1.0))

    def mixed(w):
        parts = np.stack([cold, itself, np.full_like(cold, -np.log(6))])
        return logsumexp(parts, b=np.reshape(w, (3, 1, 1)), axis=0)

    np.testing.assert_allclose(fitted.predict_log_proba(3.0 * logits), mixed(fitted.weights_), rtol=1e-9, atol=1e-12)
    found = metrics.log_loss(labels, mixed(fitted.weights_))
    assert found < metrics.log_loss(labels, cold) - 1e-4
    for first in np.linspace(0.0, 1.0, 41):  # every mixture on a grid of the simplex
        for second in np.linspace(0.0, 1.0 - first, 11):
            with np.errstate(divide="ignore"):
                assert found <= metrics.log_loss(labels, mixed([first, second, 1.0 - first - second])) + 1e-9


def test_the_ensemble_keeps_the_order_of_the_classes():
    logits, labels = draw_logits(2000, 10)
    logits[1::3, 1] = np.nextafter(logits[1::3, 0], 100.0)
    fitted = EnsembleTemperatureScaling().fit(logits, labels)
    np.testing.assert_array_equal(fitted.predict(logits), np.argmax(logits, axis=1))
    fitted.fit(*draw_logits(2000, 10))
    assert fitted.fit_report_["after"]["accuracy"] == fitted.fit_report_["before"]["accuracy"]


def test_logistic_of_scores_that_mostly_say_nothing_is_scikit_learns_sigmoid():
    """Strong scores are no masks because most others are near 0: clipped in the fit, they would get extreme."""
    rng = np.random.default_rng(0)
    s = np.where(rng.random(2000) < 0.6, 0.03 * rng.normal(size=2000), rng.choice([-3.0, 3.0], 2000))
    labels = (rng.random(2000) < expit(s)).astype(int)
    logits = np.stack([np.zeros(2000), s], axis=1)
    ours = LogisticCalibration().fit(logits, labels).predict_proba(logits)[:, 1]
    np.testing.assert_allclose(ours, _SigmoidCalibration().fit(s, labels).predict(s), atol=FLOOR / 2000 + 2e-6)
