"""AutoCalibration: what it recovers, what it never breaks, and what it says."""

from __future__ import annotations

import warnings

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, logit, logsumexp, softmax
from scipy.stats import t as student_t
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator

from helpers import NOT_FOR_LOGITS, spline_at
from refocal import AutoCalibration, TemperatureScaling, load, metrics
from refocal.engine import Block
from refocal.errors import FitWarning, ParameterError
from refocal.export import to_onnx
from refocal.fitting.confidence import IDENTITY, draft_tail, fit_tail, tail_losses
from refocal.fitting.curves import CurvePrior, Splines, fit_curve, laplace_evidence, penalty
from refocal.fitting.logistic import fit_line, fit_shrunk_line, platt_targets
from refocal.maps import inverse_focal
from refocal.maps.chain import Chain
from refocal.maps.curves import Confidence, Pieces

pytestmark = pytest.mark.numerics

EXPECTED = NOT_FOR_LOGITS | {
    "check_sample_weight_equivalence_on_dense_data": "asks for the same folds of repeated rows; "
    "test_weights_count_as_repeated_rows says what holds",
}


def true_log_p(n_rows, n_classes, seed=0, spread=2.0):
    rng = np.random.default_rng(seed)
    log_p = log_softmax(spread * rng.normal(size=(n_rows, n_classes)), axis=1)
    return log_p, np.argmax(log_p + rng.gumbel(size=log_p.shape), axis=1)


def excess(calibrator, logits, log_p):
    """The mean Kullback-Leibler divergence of the predictions from the truth."""
    return float(np.mean(np.sum(np.exp(log_p) * (log_p - calibrator.predict_log_proba(logits)), axis=1)))


def bent(log_p):
    """Scores whose top class has log-odds x + 0.15·x² where the truth has x; the others share the rest."""
    p = np.exp(log_p)
    i, top = np.arange(len(p)), p.argmax(axis=1)
    x = logit(p[i, top])
    new = expit(x + 0.15 * np.sign(x) * x**2)
    found = p * ((1.0 - new) / (1.0 - p[i, top]))[:, None]
    found[i, top] = new
    return np.log(found)


DISTORTIONS = {
    "temperature": lambda log_p: 2.5 * log_p,
    "focal": lambda log_p: inverse_focal(log_p, gamma=3.0),
    "bias": lambda log_p: log_p + np.linspace(-1.0, 1.0, log_p.shape[1]),
    "confidence": bent,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DISTORTIONS)
def test_a_known_truth_is_recovered(name):
    log_p, labels = true_log_p(6000, 5)
    new, _ = true_log_p(4000, 5, seed=1)
    distort = DISTORTIONS[name]
    found = AutoCalibration().fit(distort(log_p), labels)
    # Eight parameters and a vector of ten cost their number / 2n where they are not needed.
    assert excess(found, distort(new), new) < 3.0 * 10 / (2 * 6000)
    plain = excess(TemperatureScaling().fit(distort(log_p), labels), distort(new), new)
    assert name == "temperature" or excess(found, distort(new), new) < 0.5 * plain
    weights = found.choice_["weights"]
    assert (weights["vector 1"] + weights["matrix 0.03"] > 0.5) == (name == "bias")


def test_what_a_softmax_does_not_see_changes_nothing():
    """Constants added to rows, the order of rows and classes, and the last digits of logits."""
    log_p, labels = true_log_p(400, 4)
    new, _ = true_log_p(200, 4, seed=1)
    plain = AutoCalibration().fit(2.0 * log_p, labels).predict_proba(2.0 * new)
    rng = np.random.default_rng(0)
    rows, classes = rng.permutation(400), np.array([2, 0, 3, 1])
    for shift, noise in ((40.0, 0.0), (rng.normal(size=(400, 1)), 1e-7)):
        changed = 2.0 * log_p * (1.0 + noise * rng.normal(size=log_p.shape)) + shift
        moved = AutoCalibration().fit(changed[rows][:, classes], np.argsort(classes)[labels[rows]])
        np.testing.assert_allclose(moved.predict_proba(2.0 * new[:, classes]), plain[:, classes], atol=1e-5)


def test_gamma_temperature_and_curve_are_a_minimum():
    """No step in γ or T, with a curve fitted anew, has a lower penalised loss than what the search found."""

    log_p, labels = true_log_p(2000, 4)
    rows = Block(bent(log_p) / 1.3, labels)
    tail = fit_tail(rows, draft_tail(rows))

    def confidence(gamma, temperature):
        scores = log_softmax(rows.logits / temperature, axis=1)
        q = np.exp(scores)
        h = -q * scores / (1.0 - q)
        p = softmax(scores - gamma * np.log1p(-q) - np.log1p(gamma * h), axis=1)
        i, top = np.arange(len(p)), p.argmax(axis=1)
        right, x = top == labels, logit(p[i, top])
        return right, x, np.where(right, 0.0, np.log(p[i, labels]) - np.log1p(-p[i, top]))

    right, x, _ = confidence(tail.gamma, tail.temperature)
    strength = fit_curve(x, right, np.ones(len(x))).strength
    prior = CurvePrior(strength, strength, 0.3 * strength, least_slope=0.05)

    def cost(gamma, temperature):
        right, x, share = confidence(gamma, temperature)
        spread = np.cumsum(np.sqrt(expit(np.sort(x)) * expit(-np.sort(x))))
        knots = np.sort(x)[np.searchsorted(spread, (np.arange(6) + 0.5) / 6 * spread[-1])]
        splines = Splines(knots, x)
        theta = splines.fit(right, np.ones(len(x)), prior).theta
        off, curved = theta - splines.identity, spline_at(x, knots, theta)
        costs = (
            prior.slope * off[:6] @ off[:6]
            + prior.roughness * np.sum(np.diff(off[:6]) ** 2)
            + prior.offset * off[6] ** 2
        )
        far = np.array([np.log1p(gamma) / 0.4, np.log(temperature / (0.64 * gamma + 0.9) * 0.9) / 0.15])
        drawn = 6.0 * np.log1p(far**2 / 6.0).sum()
        return np.sum(np.logaddexp(0.0, np.where(right, -curved, curved)) - share) + 0.5 * (costs + drawn)

    here = cost(tail.gamma, tail.temperature)
    for gamma, temperature in ((1.1, 1.0), (0.9, 1.0), (1.0, 1.05), (1.0, 0.95)):
        assert here <= cost((1.0 + tail.gamma) * gamma - 1.0, tail.temperature * temperature) + 2e-2


def test_a_temperature_before_the_tail_divides_the_rows():
    rng = np.random.default_rng(0)
    logits = 3.0 * rng.normal(size=(400, 4))
    labels = np.argmax(logits / 3.0 + rng.gumbel(size=logits.shape), axis=1)
    divided, rows = Block(logits / 2.5, labels), Block(logits, labels)
    expected = draft_tail(divided)
    tail = draft_tail(rows, IDENTITY._replace(inner_temperature=2.5))
    np.testing.assert_allclose(tail.point, expected.point, rtol=1e-9)
    np.testing.assert_allclose(tail_losses(rows, tail), tail_losses(divided, expected), rtol=1e-9, atol=1e-12)


def test_a_curve_is_weighed_by_the_evidence_of_its_rows():
    """Of log-odds that are right the curve stays the identity; of log-odds that are not it bends."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=3000) + 1.0
    right = fit_curve(x, rng.random(3000) < expit(x), np.ones(3000))
    wrong = fit_curve(x, rng.random(3000) < expit(0.5 * x + np.abs(x - 1.0)), np.ones(3000))
    assert right.strength > 50.0 > 10.0 > wrong.strength
    np.testing.assert_allclose(right.theta[:-1], 1.0, atol=0.15)


def test_the_evidence_is_the_integral_over_all_curves():
    rng = np.random.default_rng(0)
    x, prior = rng.normal(size=60), CurvePrior(8.0, 4.0, 6.0)
    target, knots = rng.random(60) < expit(1.3 * x), np.array([-0.7, 0.7])
    splines, of_prior = Splines(knots, x), penalty(prior, 2)
    found = splines.fit(target, np.ones(60), prior)
    best, step = found.theta, 0.12
    grid = np.stack(np.meshgrid(*[np.arange(-2.4, 2.4, step)] * 3, indexing="ij"), axis=-1).reshape(-1, 3) + best
    off, eta = grid - splines.identity, grid @ np.stack([spline_at(x, knots, unit) for unit in np.eye(3)])
    log_p = eta @ target - np.logaddexp(0.0, eta).sum(axis=1) - 0.5 * np.einsum("ij,jk,ik->i", off, of_prior, off)
    norm = 0.5 * np.linalg.slogdet(of_prior / (2.0 * np.pi))[1]
    integral = norm + logsumexp(log_p) + 3.0 * np.log(step)
    _, evidence = laplace_evidence(found, 1.0, of_prior, splines.identity)
    assert abs(evidence[0] - integral) < 0.02


def test_the_curve_is_that_of_a_general_minimiser():
    from scipy.optimize import minimize

    rng = np.random.default_rng(0)
    x = np.sort(rng.normal(size=400))
    target, weight, knots = rng.random(400) < expit(2.0 * x), rng.integers(1, 4, 400).astype(float), x[[50, 200, 350]]
    prior = CurvePrior(1.0, 2.0, 0.5, least_slope=0.1)

    def cost(theta):
        slope = np.interp(x, knots, theta[:3])
        height = np.concatenate([[0.0], np.cumsum(0.5 * np.diff(x) * (slope[1:] + slope[:-1]))])
        eta = theta[3] + height - np.interp(knots[1], x, height)
        off = np.append(theta[:3] - 1.0, theta[3] - knots[1])
        costs = prior.slope * off[:3] @ off[:3] + prior.roughness * np.sum(np.diff(theta[:3]) ** 2) + 0.5 * off[3] ** 2
        return weight @ (np.logaddexp(0.0, eta) - target * eta) + 0.5 * costs

    found = Splines(knots, x).fit(target, weight, prior)
    other = minimize(cost, [1.0, 1.0, 1.0, knots[1]], bounds=[(0.1, None)] * 3 + [(None, None)])
    np.testing.assert_allclose(found.theta, other.x, atol=0.02)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(2, 5), st.integers(5, 250), st.integers(0, 10**6), st.floats(-3.0, 3.0))
def test_curves_always_rise(n_classes, n_rows, seed, slope):
    """On any labels, even those that contradict the logits."""
    rng = np.random.default_rng(seed)
    logits = np.exp(rng.normal()) * rng.normal(size=(n_rows, n_classes))
    labels = np.argmax(slope * logits + rng.gumbel(size=logits.shape), axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        fitted = AutoCalibration(n_folds=2).fit(logits, labels)
    curve = fitted.chain_.find(Pieces, "coefficients")
    if curve is None:
        return
    knots = fitted.chain_.find(Pieces, "knots")[0]
    x = np.linspace(knots[0] - 20.0, knots[-1] + 20.0, 2000)
    values = Pieces(np.array([knots]), curve).apply(np, x[:, None])[:, 0]
    assert np.all(np.diff(values) > 0.0)
    assert np.isfinite(fitted.predict_log_proba(logits)).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(3, 6), st.integers(0, 10**6), st.booleans())
def test_confidence_keeps_the_top_class(n_classes, seed, ties):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(200, n_classes)) * 3.0
    scores = np.round(scores) if ties else scores
    low = Confidence(Pieces.of(([0.0], ([-3.0, -3.0], [0.1, 0.1]))))
    for dtype in (np.float32, np.float64):
        found = Chain((low,)).log_probabilities(scores.astype(dtype))
        np.testing.assert_array_equal(found.argmax(axis=1), scores.argmax(axis=1))
        np.testing.assert_allclose(np.exp(found).sum(axis=1), 1.0, atol=1e-6)
        others = np.delete(np.exp(found.astype(np.float64)), 0, axis=1)  # proportions of any two others stay
        before = np.delete(softmax(scores, axis=1), 0, axis=1)
        rows = scores.argmax(axis=1) == 0
        ratio = (others[rows, 0] / others[rows, 1], before[rows, 0] / before[rows, 1])
        np.testing.assert_allclose(*ratio, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("n_rows", [40, 600])
def test_the_order_is_kept_when_asked(n_classes, n_rows):
    log_p, labels = true_log_p(n_rows, n_classes)
    logits = log_p + np.linspace(-1.5, 1.5, n_classes)
    kept = AutoCalibration(order_preserving=True).fit(logits, labels)
    new = true_log_p(3000, n_classes, seed=1)[0] + np.linspace(-1.5, 1.5, n_classes)
    np.testing.assert_array_equal(kept.predict(new), new.argmax(axis=1))
    np.testing.assert_array_equal(kept.predict_proba(new).argmax(axis=1), new.argmax(axis=1))
    if n_rows == 600:  # enough for intercepts, which move classes
        assert (AutoCalibration().fit(logits, labels).predict(new) != new.argmax(axis=1)).mean() > 0.01


@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_count_as_repeated_rows(n_classes):
    # Repeated rows fall into other folds; fewer than ten rows are not divided.
    log_p, labels = true_log_p(6, n_classes)
    weight = np.array([2, 1, 0, 3, 1, 2])
    logits = 2.0 * log_p + np.arange(n_classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        weighted = AutoCalibration().fit(logits, labels, sample_weight=weight.astype(float))
        repeated = AutoCalibration().fit(np.repeat(logits, weight, axis=0), np.repeat(labels, weight))
        plain = AutoCalibration().fit(logits, labels)
    np.testing.assert_allclose(weighted.predict_proba(logits), repeated.predict_proba(logits), atol=1e-8)
    assert abs(weighted.predict_proba(logits) - plain.predict_proba(logits)).max() > 1e-3


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n_rows", [9, 10, 19, 20, 21])
def test_few_rows_are_divided_into_folds_of_two_or_more(n_rows, n_classes):
    log_p, labels = true_log_p(n_rows, n_classes, seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        fitted = AutoCalibration().fit(2.0 * log_p, labels)
    assert ("too few to divide" in fitted.report_) == (n_rows < 10)
    assert ("log_loss_out_of_fold" in fitted.choice_) == (n_rows >= 10)


@pytest.mark.slow
def test_rows_of_weight_0_are_left_out():
    log_p, labels = true_log_p(800, 4)
    weight = (np.arange(800) % 3 > 0).astype(float)
    some = weight > 0.0
    left_out, weighted = AutoCalibration().fit(log_p[some], labels[some]), AutoCalibration().fit(log_p, labels, weight)
    np.testing.assert_allclose(left_out.predict_proba(log_p), weighted.predict_proba(log_p), atol=1e-12)


def test_a_shifted_share_of_classes_is_corrected():
    """Two classes: mean p meets the rate within two standard errors, which no temperature can do."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(40_000, 3))
    labels = (rng.random(40_000) < expit(features @ [1.0, 0.5, 0.0] - 4.5)).astype(int)
    model = LogisticRegression(class_weight="balanced").fit(features[:20_000], labels[:20_000])
    p = model.predict_proba(features[20_000:])
    fit, y, test, y_test = p[:5000], labels[20_000:25_000], p[5000:], labels[25_000:]
    calibrator = AutoCalibration(input="probabilities").fit(fit, y)
    error = np.sqrt(y_test.mean() * (1.0 - y_test.mean()) * (1.0 / len(y) + 1.0 / len(y_test)))
    assert abs(calibrator.predict_proba(test)[:, 1].mean() - y_test.mean()) < 2.0 * error
    by_temperature = TemperatureScaling(input="probabilities").fit(fit, y).predict_proba(test)[:, 1].mean()
    assert by_temperature > 5.0 * y_test.mean()


def test_the_line_of_two_classes_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    score = 3.0 * rng.normal(size=500)
    is_class = rng.random(500) < expit(0.5 * score - 1.0)
    from sklearn.calibration import _sigmoid_calibration

    a, b = _sigmoid_calibration(score, is_class)
    weight = np.ones(500)
    slope, intercept = fit_line(score, is_class, weight)
    np.testing.assert_allclose([slope, intercept], [-a, -b], rtol=1e-4)


@pytest.mark.parametrize("doubt", [0.0, 0.5, 1.0])
def test_a_doubt_is_rows_of_both_classes_at_the_scores_of_each(doubt):
    rng = np.random.default_rng(0)
    score = 2.0 * rng.normal(size=80)
    is_class = rng.random(80) < expit(score - 1.0)
    share = doubt / (np.where(is_class, is_class.sum(), (~is_class).sum()) + 2.0 * doubt)
    twice, either = np.append(score, score)[:, None], np.append(is_class, ~is_class)
    expected = LogisticRegression(C=1e8, tol=1e-8).fit(twice, either, np.append(1.0 - share, share))
    found = fit_line(score, is_class, np.ones(80), pseudo_count=doubt)
    np.testing.assert_allclose(found, [expected.coef_[0, 0], expected.intercept_[0]], rtol=1e-4)


@pytest.mark.parametrize("scale", [1.0, 0.02, 40.0])
def test_a_slope_is_drawn_to_1_by_a_student_prior(scale):
    """Against a general minimiser; margins of any scale, few hits."""
    rng = np.random.default_rng(1)
    score, weight = scale * rng.normal(size=60), 0.5 + rng.random(60)
    is_class = rng.random(60) < expit(2.0 * score / scale - 2.0)
    target = platt_targets(is_class, weight)

    def cost(point):
        eta = np.exp(point[0]) * score + point[1]
        return weight @ (np.logaddexp(0.0, eta) - target * eta) - student_t.logpdf(point[0], 5.0, scale=np.sqrt(6 / 5))

    # The density of 5 degrees of freedom has the exponent (5 + 1) / 2 of the prior with 6.
    starts, options = ([0.0, -1.0], [1.0 - np.log(scale), -2.0]), {"xatol": 1e-7, "fatol": 1e-12}
    best = min(
        (minimize(cost, start, method="Nelder-Mead", options=options) for start in starts), key=lambda at: at.fun
    )
    slope, intercept = fit_shrunk_line(score, is_class, weight)
    np.testing.assert_allclose([np.log(slope), intercept], best.x, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-4, 1e-2, 300.0, 3e3, 1e4])
def test_margins_of_any_scale_give_the_probabilities_of_log_odds(scale):
    """A margin has no unit: that of a linear model may be a hundred or a millionth."""
    rng = np.random.default_rng(2)
    odds = 2.0 * rng.normal(size=5100) - 1.0
    labels = (rng.random(5100) < expit(odds)).astype(int)
    # Log-odds that need no calibration are mixed into the mean, which margins are not. Margins that are equal but for
    # rounding fall into other folds, which matters less than the tolerance on this many rows.
    of_margins, of_others = (
        AutoCalibration(input="log-odds").fit(unit * odds[:5000], labels[:5000]).predict_proba(unit * odds[5000:])
        for unit in (0.1 * scale, scale)
    )
    np.testing.assert_allclose(of_margins, of_others, atol=0.01)
    np.testing.assert_allclose(of_margins[:, 1], expit(odds[5000:]), atol=0.02)


@pytest.mark.parametrize("scale", [1.0, 300.0, 1e3, 3e3, 1e5, 1e10])
def test_a_line_of_large_margins_is_that_of_a_regression(scale):
    """At a slope of 1, where a search might begin, nearly all rows are certain and half are wrong."""
    rng = np.random.default_rng(2)
    odds = 2.0 * rng.normal(size=5000) - 1.0
    is_class = rng.random(5000) < expit(odds)
    reference = LogisticRegression(C=np.inf, tol=1e-8).fit(odds[:, None], is_class)
    slope, intercept = fit_shrunk_line(scale * odds, is_class, np.ones(5000), pseudo_count=0.0)
    standard_error = 2.0 / 5000**0.5  # of the intercept at least; the prior of the slope moves it a little
    assert slope * scale == pytest.approx(reference.coef_[0, 0], rel=0.01)
    assert intercept == pytest.approx(reference.intercept_[0], abs=0.05 * standard_error)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("n_rows", [20, *(pytest.param(n, marks=pytest.mark.long) for n in (99, 100)), 300])
def test_few_rows_are_close_to_temperature_scaling(n_classes, n_rows):
    """Where temperature scaling is right, the price of everything else is small, on average."""
    new, _ = true_log_p(2000, n_classes, seed=1)
    lost = []
    for seed in range(2, 10):
        log_p, labels = true_log_p(n_rows, n_classes, seed=seed)
        ours, plain = (kind().fit(2.0 * log_p, labels) for kind in (AutoCalibration, TemperatureScaling))
        lost.append(excess(ours, 2.0 * new, new) - excess(plain, 2.0 * new, new))
    assert np.mean(lost) < 3.0 / n_rows  # a line, a curve and γ, in shares of 1/2n


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n_rows", [20, 300])
def test_separable_rows_give_sensible_probabilities(n_classes, n_rows):
    labels = np.arange(n_rows) % n_classes
    p = np.full((n_rows, n_classes), 0.2 / (n_classes - 1))
    p[np.arange(n_rows), labels] = 0.8
    fitted = AutoCalibration(input="probabilities").fit(p, labels)
    rows = np.full((1, n_classes), 0.4 / (n_classes - 1))
    rows[0, 0] = 0.6
    found = fitted.predict_proba(rows)[0]
    assert 0.6 <= found[0] < 1.0 - 0.05 / n_rows
    right = fitted.predict_proba(p).max(axis=1).mean()
    # What Laplace or Platt expects of the next row after n right ones, of all classes or of each.
    assert 1.0 - 3.0 * n_classes / n_rows < right < 1.0 - 0.3 / n_rows


def test_rows_that_are_all_right_leave_doubt_where_margins_are_wide():
    """The least log-loss to Laplace's (n+1)/(n+2), by a general minimiser: no row is left without a doubt."""
    logits = np.random.default_rng(0).normal(size=(100, 3))
    fitted = AutoCalibration().fit(logits, logits.argmax(axis=1))

    def loss(temperature):
        log_p = np.sort(log_softmax(logits / temperature, axis=1), axis=1)
        return -np.mean(101 / 102 * log_p[:, -1] + 1 / 102 * logsumexp(log_p[:, :-1], axis=1))

    best = minimize(lambda log_t: loss(np.exp(log_t[0])), [-1.0], method="Nelder-Mead", options={"xatol": 1e-8})
    assert fitted.temperature_ == pytest.approx(np.exp(best.x[0]), rel=1e-4)
    assert fitted.predict_proba(logits).max() < 1.0 - 1e-13
    assert "Every row is right" in fitted.report_


@pytest.mark.slow
def test_zeros_of_a_forest_count_as_half_the_smallest_vote():
    rng = np.random.default_rng(0)
    log_p, labels = true_log_p(2000, 3)
    votes = np.stack([rng.multinomial(20, row) for row in np.exp(log_p)]) / 20.0
    fitted = AutoCalibration(input="probabilities").fit(votes, labels)
    assert (votes == 0.0).any()
    raised = AutoCalibration().fit(np.log(np.where(votes == 0.0, 0.025, votes)), labels)
    np.testing.assert_allclose(
        fitted.predict_proba(votes), raised.predict_proba(np.log(np.where(votes == 0.0, 0.025, votes))), atol=1e-9
    )
    half = fitted.predict_proba(votes.astype(np.float32))
    np.testing.assert_allclose(half, fitted.predict_proba(votes), atol=1e-5)


@pytest.mark.slow
def test_absent_classes_ties_masks_and_one_hot_logits():
    log_p, labels = true_log_p(400, 5)
    absent = AutoCalibration().fit(log_p, np.where(labels == 4, 0, labels))
    assert np.isfinite(absent.predict_log_proba(log_p)).all()
    tied = AutoCalibration().fit(np.round(log_p), labels)
    assert np.isfinite(tied.predict_log_proba(log_p)).all()
    masked = np.where(np.arange(5) == 4, -1e9, log_p)
    inner = np.where(labels == 4, 0, labels)
    assert np.isfinite(AutoCalibration().fit(masked, inner).predict_log_proba(log_p)).all()
    impossible = np.where(np.arange(5) == 4, -np.inf, log_p)
    found = AutoCalibration().fit(impossible, inner).predict_proba(impossible)
    assert (found[:, 4] == 0.0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    one_hot = np.eye(5)[np.where(np.arange(400) % 4 == 0, (labels + 1) % 5, labels)]
    found = AutoCalibration().fit(10.0 * one_hot, labels).predict_proba(10.0 * one_hot)
    right = np.array([np.mean(labels[one_hot[:, k] == 1.0] == k) for k in range(5)])
    np.testing.assert_allclose(found.max(axis=1), right[one_hot.argmax(axis=1)], atol=0.06)
    with pytest.warns(FitWarning):
        flat = AutoCalibration().fit(np.zeros((400, 5)), np.arange(400) % 5)
    np.testing.assert_allclose(flat.predict_proba(np.zeros((1, 5))), 0.2, atol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 4])
def test_json_torch_and_onnx_say_the_same(n_classes, tmp_path):
    log_p, labels = true_log_p(1500, n_classes)
    fitted = AutoCalibration().fit(bent(log_p) + np.arange(n_classes), labels)
    x = true_log_p(300, n_classes, seed=1)[0]
    expected = fitted.predict_proba(x)
    fitted.save(tmp_path / "c.json")
    again = load(tmp_path / "c.json")
    np.testing.assert_array_equal(again.predict_proba(x), expected)
    assert again.report_ == fitted.report_
    np.testing.assert_allclose(fitted.to_torch(dtype=torch.float64)(torch.tensor(x)).exp().numpy(), expected, atol=1e-9)
    to_onnx(fitted, tmp_path / "c.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "c.onnx")
    (name,) = (each.name for each in session.get_inputs())
    found = session.run(None, {name: x.astype(np.float32)})[-1]
    np.testing.assert_allclose(np.exp(found) if found.max() <= 0.0 else found, expected, atol=1e-5)


@pytest.mark.slow
def test_the_report_says_what_was_averaged_and_left_out():
    log_p, labels = true_log_p(1000, 4)
    fitted = AutoCalibration().fit(log_p + 2.0 * np.eye(4)[0], labels)
    report = fitted.report_
    assert "A mean of scalings was fitted: temperature " in report
    assert "γ = " in report
    log_loss = fitted.choice_["log_loss_out_of_fold"]["mean"]
    assert f"rows left out: mean {log_loss:.4f}; of all rows: " in report
    assert sum(fitted.choice_["weights"].values()) == pytest.approx(1.0)
    raw = metrics.log_loss(labels, log_softmax(log_p + 2.0 * np.eye(4)[0], axis=1))
    # The entropy of the shares is of all rows, not of rows left out, on which they do worse.
    assert f"; of all rows: no calibration {raw:.4f}, predicting the share of each class 1." in report
    wide, names = true_log_p(300, 20)
    assert "needs 400 rows for 20 classes" in AutoCalibration().fit(wide, names).report_
    assert "9 rows are too few" in AutoCalibration().fit(log_p[:9], labels[:9]).report_


def test_a_result_worse_than_the_base_rate_is_warned_of():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(150, 2)), (rng.random(150) < 0.03).astype(int)
    with pytest.warns(FitWarning, match="higher than that of predicting the share of each class"):
        fitted = AutoCalibration().fit(4.0 * logits, labels)
    assert "higher than" in fitted.report_
    few, rare = rng.normal(size=(9, 3)), (np.arange(9) < 1).astype(int)  # too few rows to leave some out
    with pytest.warns(FitWarning, match="On the rows of the fit the log-loss"):
        AutoCalibration().fit(few, rare)


def test_settings_are_checked():
    log_p, labels = true_log_p(200, 3)
    for settings_ in ({"n_folds": 1}, {"random_state": -1}, {"input": "scores"}):
        with pytest.raises(ParameterError, match=next(iter(settings_))):
            AutoCalibration(**settings_).fit(log_p, labels)


@pytest.mark.slow
def test_scikit_learn_checks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(
            AutoCalibration(n_folds=2), expected_failed_checks=EXPECTED, on_fail="raise", on_skip=None
        )
    assert sum(result["status"] == "passed" for result in results) >= 45


@pytest.mark.slow
def test_it_beats_temperature_scaling_on_the_embedded_networks():
    from refocal.io import load_sample

    validation, test = load_sample("cifar10-focal3")
    x, y = np.asarray(test.values, np.float32), np.asarray(test.labels)
    ours, plain = (
        kind().fit(np.asarray(validation.values, np.float32), validation.labels)
        for kind in (AutoCalibration, TemperatureScaling)
    )
    assert metrics.log_loss(y, ours.predict_log_proba(x)) < 0.98 * metrics.log_loss(y, plain.predict_log_proba(x))


def test_two_classes_leave_rows_with_an_impossible_class():
    logits = np.array([[0.0, -np.inf], [0.0, 1.0], [0.0, -1.0], [0.0, 2.0]])
    fitted = AutoCalibration().fit(logits, np.array([0, 1, 0, 1]))
    np.testing.assert_array_equal(fitted.predict_proba(logits)[0], [1.0, 0.0])


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 4])
def test_rows_in_blocks_and_in_any_order_give_the_same(n_classes, monkeypatch):
    from refocal.calibrators import auto
    from refocal.io import blocks as in_blocks

    log_p, labels = true_log_p(3000, n_classes)
    logits = (bent(log_p) + np.arange(n_classes)).astype(np.float32)
    order = np.random.default_rng(1).permutation(3000)
    parts = np.array_split(order, 5)
    # All rows, and more than a sample has: then the last fit of the scaling sums up rows in their own order.
    for most, close in ((100_000, 1e-9), (1000, 1e-6)):
        monkeypatch.setattr(auto, "max_rows", lambda n_classes, most=most: most)
        expected = AutoCalibration().fit(logits, labels).predict_proba(log_p)
        shuffled = AutoCalibration().fit(logits[order], labels[order]).predict_proba(log_p)
        np.testing.assert_allclose(shuffled, expected, rtol=0.0, atol=close)
        blocks = AutoCalibration().fit(in_blocks([(logits[some], labels[some]) for some in parts]))
        np.testing.assert_allclose(blocks.predict_proba(log_p), expected, rtol=0.0, atol=close)
        assert blocks.fit_report_["n_samples"] == 3000


@pytest.mark.parametrize(("n_rows", "n_classes"), [(300, 2), (300, 4), (8, 4)])
def test_the_progress_of_a_fit_rises_to_the_end(n_rows, n_classes):
    log_p, labels = true_log_p(n_rows, n_classes)
    shares = []
    fitted = AutoCalibration().fit(2.0 * log_p, labels, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) == (3 if "matrix" in fitted.choice_["chosen"] else 1)


def test_the_numbers_of_a_fit_are_those_that_it_was_made_of():
    """One record has them all: the dictionary, the chain and the sentences agree."""
    log_p, labels = true_log_p(1000, 4)
    fitted = AutoCalibration().fit(2.0 * log_p, labels)
    choice = fitted.choice_
    assert list(choice) == [
        "chosen", "passes", "converged", "weights", "log_loss_out_of_fold", "gamma", "temperature",
    ]  # fmt: skip
    assert list(choice["log_loss_out_of_fold"]) == ["mean", *choice["weights"]]
    assert (choice["gamma"], choice["temperature"]) == (fitted.gamma_, fitted.temperature_)
    assert f"γ = {choice['gamma']:.2f}, T = {choice['temperature']:.2f}" in fitted.report_
    assert list(AutoCalibration().fit(log_p[:8], labels[:8]).choice_) == ["chosen", "log_loss", "gamma", "temperature"]
