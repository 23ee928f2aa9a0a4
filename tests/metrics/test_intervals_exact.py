"""Intervals of a level close to 1, as of statements that hold together, and intervals of few events."""

from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api
from scipy.stats import binomtest

from refocal.decide import evaluate_decisions
from refocal.evaluate import evaluate
from refocal.io import Predictions
from refocal.metrics import (
    bootstrap_interval,
    calibration_intercept,
    calibration_slope,
    e_aurc,
    flexible_curve,
    integrated_calibration_index,
    reliability_band,
    set_coverage,
)
from refocal.metrics.bias_interval import exact_interval_of_shift, interval_of_shift
from refocal.metrics.bins import row_cells
from refocal.metrics.intervals import ShareSummary, exact_ends

pytestmark = pytest.mark.numerics
LEVEL = 0.998


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


@pytest.mark.parametrize("n_events", [0, 1, 7, 20])
def test_the_exact_interval_of_a_share_is_that_of_clopper_and_pearson(n_events):
    reference = binomtest(n_events, 20).proportion_ci(LEVEL, method="exact")
    low, high = exact_ends(n_events / 20, 20, LEVEL)
    assert (low, high) == pytest.approx((reference.low, reference.high), abs=1e-9)
    of_clusters = exact_ends(0.35, 20, LEVEL, n_clusters=8)
    of_rows = exact_ends(0.35, 20, LEVEL)
    assert of_clusters[0] < of_rows[0] < of_rows[1] < of_clusters[1]


@pytest.mark.parametrize("n_events", [0, 1, 7, 20])
def test_of_equal_probabilities_the_exact_interval_of_a_shift_is_that_of_the_rate(n_events):
    happened = np.arange(20) < n_events
    interval = exact_interval_of_shift(row_cells(np.full(20, 0.3), happened, None), LEVEL)
    reference = binomtest(n_events, 20).proportion_ci(LEVEL, method="exact")
    assert 0.3 - interval.high == pytest.approx(reference.low, abs=1e-7)
    assert 0.3 - interval.low == pytest.approx(reference.high, abs=1e-7)


def test_one_event_where_few_are_expected_states_no_difference():
    # 0.06 events are expected: one occurs in 6 % of samples, which the score test takes for one in a thousand.
    p = np.full(60, 0.001)
    happened = np.arange(60) == 7
    by_score = interval_of_shift(row_cells(p, happened, None), LEVEL)
    assert not by_score.low <= 0.0 <= by_score.high
    exact = exact_interval_of_shift(row_cells(p, happened, None), LEVEL)
    assert exact.low <= 0.0 <= exact.high
    rows = Predictions(np.stack([1.0 - p, p], axis=1), happened.astype(int), "probabilities")
    groups = {"region": np.array(["north", "south"])[np.arange(60) % 2]}
    of_groups = evaluate(rows.with_groups(groups), {}, n_resamples=20).before.groups
    assert all(row.difference.low <= 0.0 <= row.difference.high for row in of_groups)


def test_groups_of_rare_events_are_rarely_called_wrong():
    level = 0.95 ** (1 / 13)
    n_false = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        p = np.sort(sigmoid(rng.normal(-5.0, 1.5, 300)))
        happened = rng.random(300) < p
        group = rng.integers(13, size=300)
        parts = [np.flatnonzero(group == k) for k in range(13)]
        intervals = [exact_interval_of_shift(row_cells(p[part], happened[part], None), level) for part in parts]
        n_false += any(not interval.low <= 0.0 <= interval.high for interval in intervals)
    assert n_false <= 7  # of 5 % of 60: more in 1 of 90 runs; by the score test 14


def test_shares_of_groups_and_of_classes_have_exact_intervals():
    y = np.array([0] * 30 + [1] * 10)
    p = np.where(np.arange(40) % 10 == 0, 0.9, 0.2)
    groups = {"region": np.arange(40) % 2}
    level = 0.95 ** (1 / 12)  # six measures of two groups
    group = evaluate_decisions(y, p, [[0, 1], [1, 0]], groups=groups).groups[0]
    n_selected = int((p[::2] > 0.5).sum())
    reference = binomtest(n_selected, 20).proportion_ci(level, method="exact")
    assert (group.selection_rate.low, group.selection_rate.high) == pytest.approx((reference.low, reference.high))
    rows = Predictions.from_probabilities(p, y).with_groups(groups)
    errors = evaluate(rows, {}, n_resamples=5).before.group_errors[0]
    n_selected = int((p[::2] >= errors.threshold).sum())
    reference = binomtest(n_selected, 20).proportion_ci(errors.selected.level, method="exact")
    assert (errors.selected.low, errors.selected.high) == pytest.approx((reference.low, reference.high))
    sets = np.stack([p < 0.5, p > 0.3], axis=1)
    part = set_coverage(y, sets).parts[0]
    reference = binomtest(int((p[:30] < 0.5).sum()), 30).proportion_ci(0.95**0.5, method="exact")
    assert (part.coverage.low, part.coverage.high) == pytest.approx((reference.low, reference.high))


def test_clusters_of_one_share_have_an_interval():
    happened = np.array([0.0, 1.0, 0.0, 1.0])
    summary = ShareSummary.of(happened, None, np.array([0, 0, 1, 1]))
    assert summary.size == pytest.approx(4.0)
    interval = summary.exact_interval(level=0.99)
    assert 0.0 <= interval.low < 0.5 < interval.high <= 1.0


def test_a_band_of_clusters_is_as_wide_as_that_of_rows_where_events_are_rare():
    y = (np.arange(300) == 17).astype(int)
    p = np.full(300, 0.001)
    band = reliability_band(
        y, p, n_bins=1, kind="consistency", simultaneous=True, level=LEVEL, clusters=np.arange(300) // 2
    )
    assert band.high[0] >= 3 / 300  # three of 300 rows are no rarer than that


def test_coefficients_have_the_error_of_the_regression_at_least():
    rng = np.random.default_rng(4)
    z = rng.normal(-5.0, 1.5, 600)
    y = (rng.random(600) < sigmoid(z)).astype(int)
    assert 5 <= y.sum() <= 15
    p = sigmoid(z)
    reference = statsmodels.api.Logit(y, np.stack([np.ones(600), z], axis=1)).fit(disp=0, tol=1e-10)
    slope = bootstrap_interval(calibration_slope, y, p)
    least = 1.959964 * reference.bse[1]
    assert slope.high - slope.value >= least * (1.0 - 1e-6)
    offset = statsmodels.api.GLM(y, np.ones(600), statsmodels.api.families.Binomial(), offset=z).fit(tol=1e-12)
    intercept = bootstrap_interval(calibration_intercept, y, p)
    assert intercept.high - intercept.value >= 1.959964 * offset.bse[0] * (1.0 - 1e-6)
    curve = flexible_curve(y, p)  # Cox's line, of so few events
    design = np.stack([np.ones(len(curve.probability)), np.log(curve.probability / (1 - curve.probability))], axis=1)
    error = np.sqrt((design @ reference.cov_params() * design).sum(axis=1))
    half = (np.log(curve.high / (1 - curve.high)) - np.log(curve.low / (1 - curve.low))) / 2.0
    assert np.all(half >= 1.959964 * error * (1.0 - 1e-6))


@pytest.mark.parametrize("in_clusters", [False, True])
def test_the_ici_of_an_overconfident_model_is_covered_and_not_by_width_alone(in_clusters):
    n_rows = 4000
    rng = np.random.default_rng(11)
    eta = 1.5 * rng.standard_normal(n_rows)
    y = (rng.random(n_rows) < sigmoid(eta)).astype(int)
    p = sigmoid(3.0 * eta)
    true = float(np.abs(p - sigmoid(eta)).mean())
    clusters = np.arange(n_rows) // 2 if in_clusters else None
    interval = bootstrap_interval(integrated_calibration_index, y, p, n_resamples=200, clusters=clusters)
    assert interval.low < true < interval.high
    assert interval.low > 0.1
    assert interval.high - interval.low < 0.06  # ten standard deviations


def test_the_excess_area_has_an_interval_above_0_and_below_1():
    rng = np.random.default_rng(0)
    z = 2.0 * rng.standard_normal((300, 4))
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    y = np.argmax(z + rng.gumbel(size=z.shape), axis=1)
    interval = bootstrap_interval(e_aurc, y, p)
    # On the scale of the logarithm the ends are as far from the value.
    assert interval.low * interval.high == pytest.approx(interval.value**2)
    # The best order but for one pair: the value is much smaller than its error.
    confidence = np.linspace(0.99, 0.6, 200)
    labels = (np.arange(200) >= 195).astype(int)
    nearly = bootstrap_interval(e_aurc, labels, np.stack([confidence, 1.0 - confidence], axis=1))
    assert 0.0 <= nearly.low <= nearly.value <= nearly.high < 0.05
    assert math.isfinite(nearly.standard_error)
