"""O/E, calibration intercept and slope, ICI and the flexible curve, against scikit-learn, statsmodels and loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from refocal.errors import DataError, LabelError, ShapeError
from refocal.metrics import (
    METRICS,
    bootstrap_interval,
    by_label,
    calibration_intercept,
    calibration_slope,
    flexible_curve,
    integrated_calibration_index,
    largest_calibration_error,
    observed_expected,
)
from refocal.metrics.bootstrap import MetricRows, summarise
from refocal.metrics.calibration_curve import Spline
from refocal.metrics.recalibration import ratio_ends
from refocal.rows.predictions import probability_rows

pytestmark = pytest.mark.numerics

INFLUENCES = ("observed_expected", "calibration_intercept", "calibration_slope")


def logit(p):
    return np.log(p) - np.log1p(-p)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def draw(n=400, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(-1.0, 1.5, n)
    y = (rng.random(n) < sigmoid(0.3 + 0.7 * z)).astype(int)
    return y, sigmoid(z), rng.random(n)


def fitted_by_sklearn(design, y, weight=None):
    """Logistic regression without penalty; the first column of the design is 1."""
    model = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    return model.fit(design, y, sample_weight=weight).coef_[0]


@pytest.mark.parametrize("weighted", [False, True])
def test_the_slope_is_that_of_scikit_learns_logistic_regression(weighted):
    y, p, weight = draw()
    w = weight if weighted else None
    coefficients = fitted_by_sklearn(np.stack([np.ones_like(p), logit(p)], axis=1), y, w)
    assert calibration_slope(y, p, sample_weight=w) == pytest.approx(coefficients[1], abs=1e-7)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_intercept_makes_the_mean_the_rate(weighted):
    y, p, weight = draw()
    w = weight if weighted else np.ones_like(weight)
    value = calibration_intercept(y, p, sample_weight=w)
    assert np.average(sigmoid(logit(p) + value), weights=w) == pytest.approx(np.average(y, weights=w), abs=1e-12)


def test_the_ratio_is_that_of_sums():
    y, p, weight = draw()
    assert observed_expected(y, p, sample_weight=weight) == pytest.approx((weight @ y) / (weight @ p), rel=1e-13)


def real_sets():
    """Three small real sets with a model that is far too sure of its probabilities."""
    for load, positive in ((load_breast_cancer, 0), (load_wine, 1), (load_digits, 8)):
        x, label = load(return_X_y=True)
        y = (label == positive).astype(int)
        train = np.arange(len(y)) % 2 == 0
        p = GaussianNB(var_smoothing=1e-1).fit(x[train], y[train]).predict_proba(x[~train])[:, 1]
        yield y[~train], np.clip(p, 1e-6, 1 - 1e-6)


def test_on_real_sets_everything_is_what_statsmodels_and_its_splines_give():
    sm = pytest.importorskip("statsmodels.api", reason="statsmodels, the oracle of this test, is not installed")
    for y, p in real_sets():
        z = logit(p)
        family = sm.families.Binomial()
        intercept = sm.GLM(y, np.ones(len(y)), family=family, offset=z).fit(tol=1e-13)
        line = sm.GLM(y, sm.add_constant(z), family=family).fit(tol=1e-13)
        assert calibration_intercept(y, p) == pytest.approx(intercept.params[0], abs=1e-7)
        assert calibration_slope(y, p) == pytest.approx(line.params[1], abs=1e-7)
        # Ours have the factor n / (n - 1), and that of leaving one row out.
        robust = {"cov_type": "HC0", "tol": 1e-13}
        of_intercept = sm.GLM(y, np.ones(len(y)), family=family, offset=z).fit(**robust).bse[0]
        of_line = sm.GLM(y, sm.add_constant(z), family=family).fit(**robust).bse[1]
        assert bootstrap_interval(calibration_intercept, y, p).standard_error == pytest.approx(of_intercept, rel=0.01)
        assert bootstrap_interval(calibration_slope, y, p).standard_error == pytest.approx(of_line, rel=0.01)
        n_rare = min(y.sum(), len(y) - y.sum())
        design = harrell_basis(z, Spline.for_rows(z, np.ones(len(y)), n_rare).knots)
        curve = sm.GLM(y, design, family=family).fit(tol=1e-13).fittedvalues
        assert integrated_calibration_index(y, p) == pytest.approx(np.mean(np.abs(p - curve)), abs=1e-6)
        assert largest_calibration_error(y, p) == pytest.approx(np.max(np.abs(p - curve)), abs=1e-5)


def harrell_basis(z, knots):
    """The restricted cubic spline of Harrell's rms, written as a loop over rows and knots."""
    k = len(knots)
    rows = []
    for value in z:
        row = [1.0, value]
        for j in range(k - 2):
            term = max(value - knots[j], 0) ** 3
            term -= max(value - knots[k - 2], 0) ** 3 * (knots[k - 1] - knots[j]) / (knots[k - 1] - knots[k - 2])
            term += max(value - knots[k - 1], 0) ** 3 * (knots[k - 2] - knots[j]) / (knots[k - 1] - knots[k - 2])
            row.append(term / (knots[k - 1] - knots[0]) ** 2)
        rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize(("n", "n_knots"), [(60, 0), (90, 3), (250, 4), (600, 5)])
def test_the_flexible_curve_is_a_logistic_regression_on_harrells_spline(n, n_knots):
    y, p, _ = draw(n)
    z = logit(p)
    n_rare = min(y.sum(), n - y.sum())
    spline = Spline.for_rows(z, np.ones(n), n_rare)
    assert len(spline.knots) == n_knots
    design = harrell_basis(z, spline.knots)
    rate = sigmoid(design @ fitted_by_sklearn(design, y))
    curve = flexible_curve(y, p)
    at_rows = np.interp(p, curve.probability, curve.rate)
    assert at_rows == pytest.approx(rate, abs=0.01)  # between the points of the curve it is interpolated
    at_ends = np.isin(p, curve.probability)
    assert at_ends.sum() >= 2
    assert at_rows[at_ends] == pytest.approx(rate[at_ends], abs=1e-6)
    assert integrated_calibration_index(y, p) == pytest.approx(np.mean(np.abs(p - rate)), abs=1e-6)
    assert largest_calibration_error(y, p) == pytest.approx(np.max(np.abs(p - rate)), abs=1e-6)


def test_the_spline_is_straight_beyond_its_knots():
    knots = np.array([-2.0, -0.5, 0.5, 2.0])
    design = Spline(knots).design(np.array([-9.0, -6.0, -3.0, 3.0, 6.0, 9.0]))
    assert np.diff(design[:3], n=2, axis=0) == pytest.approx(np.zeros((1, 4)), abs=1e-10)
    assert np.diff(design[3:], n=2, axis=0) == pytest.approx(np.zeros((1, 4)), abs=1e-10)


@pytest.mark.parametrize("name", INFLUENCES)
def test_the_influence_of_a_row_is_the_derivative_in_its_weight(name):
    y, p, weight = draw(60)
    metric = METRICS[name]
    step = 1e-5 * weight.mean()

    def at(i, change):
        moved = weight.copy()
        moved[i] += change
        return metric.function(y, p, sample_weight=moved)

    derivatives = np.array([(at(i, step) - at(i, -step)) / (2 * step) for i in range(60)])
    rows = probability_rows(y, p, weight)
    streamed = metric.streamed(rows)
    assert streamed.influence(rows) / weight.sum() == pytest.approx(derivatives, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("name", INFLUENCES)
def test_rows_of_a_cluster_that_repeat_say_no_more_than_one(name):
    y, p, _ = draw(200)
    metric = METRICS[name]
    once = bootstrap_interval(metric.function, y, p)
    repeated = np.repeat(np.arange(200), 3)
    clustered = bootstrap_interval(metric.function, y[repeated], p[repeated], clusters=repeated)
    assert clustered.value == pytest.approx(once.value, rel=1e-9)
    assert clustered.standard_error == pytest.approx(once.standard_error, rel=0.01)
    plain = bootstrap_interval(metric.function, y[repeated], p[repeated])
    assert plain.standard_error == pytest.approx(once.standard_error / math.sqrt(3), rel=0.01)


def test_the_ratio_of_a_handful_of_events_has_the_score_interval_of_a_poisson_rate():
    # Rows of p = 1/1000 that weigh the same: 4 events of 10 expected.
    y = np.zeros(10_000, dtype=int)
    y[:4] = 1
    interval = bootstrap_interval(observed_expected, y, np.full(10_000, 0.001))
    z = 1.959964
    centre = (4 + z**2 / 2) / 10
    margin = z * math.sqrt(4 + z**2 / 4) / 10
    assert (interval.low, interval.high) == pytest.approx((centre - margin, centre + margin), rel=2e-3)
    assert ratio_ends(10.0, 0.0, 0.0, 0.95, None) == pytest.approx((0.0, z**2 / 10), rel=1e-5)
    none = bootstrap_interval(observed_expected, 0 * y, np.full(10_000, 0.001))
    assert (none.low, none.high) == pytest.approx((0.0, z**2 / 10), rel=1e-5)


def test_the_ici_of_a_calibrated_model_starts_at_0_and_of_a_wrong_one_does_not():
    rng = np.random.default_rng(3)
    p = rng.random(3000)
    calibrated = bootstrap_interval(integrated_calibration_index, (rng.random(3000) < p).astype(int), p)
    assert calibrated.low == 0.0 < calibrated.high < 0.06
    wrong = bootstrap_interval(integrated_calibration_index, (rng.random(3000) < p**2).astype(int), p)
    assert wrong.low < 1 / 6 < wrong.high  # ∫ p - p²
    assert wrong.low > 0.12


def test_ends_of_the_probabilities_and_ties_are_no_obstacle():
    y = np.array([0, 0, 1, 1] * 30 + [0, 1] * 2)
    p = np.array([0.0, 0.2, 0.8, 1.0] * 30 + [1.0, 0.0] * 2)
    for function in (observed_expected, calibration_intercept, calibration_slope, integrated_calibration_index):
        assert math.isfinite(function(y, p))
    same = flexible_curve([0, 0, 0, 1], [0.5] * 4)
    assert same.rate == pytest.approx(0.25)


def test_what_has_no_value_says_why():
    with pytest.raises(DataError, match="do not separate the classes"):
        calibration_slope([0, 0, 1, 1], [0.1, 0.2, 0.7, 0.8])
    with pytest.raises(DataError, match="several values"):
        calibration_slope([0, 1, 1], [0.5, 0.5, 0.5])
    with pytest.raises(DataError, match="separate the classes"):
        flexible_curve([0, 0, 1, 1], [0.1, 0.2, 0.7, 0.8])
    with pytest.raises(LabelError, match="both classes"):
        calibration_intercept([0, 0], [0.1, 0.2])
    with pytest.raises(ShapeError, match="two classes"):
        observed_expected([0, 1], np.full((2, 3), 1 / 3))


def test_separated_rows_have_no_slope_but_the_rest_of_the_summary():
    rows = probability_rows(np.array([0, 0, 1, 1]), np.array([0.1, 0.2, 0.7, 0.8]))
    measured = [MetricRows.of(METRICS[name], rows) for name in INFLUENCES]
    assert [math.isnan(each.value) for each in measured] == [False, False, True]
    ratio, intercept = (summary.interval() for summary in summarise(measured[:2], 10, 0))
    assert ratio.low < 1 < ratio.high
    assert intercept.low < 0 < intercept.high


@pytest.mark.parametrize("metric", ["calibration_slope", "integrated_calibration_index", "observed_expected"])
def test_a_label_that_does_not_define_a_metric_has_none(metric):
    """Others have theirs, as where a label has one class alone; wrong probabilities are errors nonetheless."""
    rng = np.random.default_rng(0)
    p = rng.random((60, 3))
    y = (rng.random((60, 3)) < p).astype(int)
    y[:, 1] = p[:, 1] > 0.5
    if metric == "observed_expected":
        p[:, 1] = 0.0
    found = by_label(metric, y, p)
    assert np.isnan(found.labels).tolist() == [False, True, False]
    assert found.mean == pytest.approx(np.nanmean(found.labels))
    with pytest.raises(DataError, match="must be at most 1"):
        by_label(metric, y, p + 1.0)
