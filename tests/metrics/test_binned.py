from __future__ import annotations

import itertools
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refocal.fitting.curves import equal_mass_knots
from refocal.metrics import (
    CalibrationHistogram,
    bins,
    classwise_ece,
    corp_reliability,
    debiased_ece,
    ece_sweep,
    expected_calibration_error,
    integrated_calibration_index,
    largest_calibration_error,
    reliability_curve,
)
from refocal.metrics.bins import norm_of_gaps, places_of_shares, quantile_bins

pytestmark = [pytest.mark.core, pytest.mark.numerics]


def quantile_bins_by_definition(p, weight, n_bins):
    """floor(n_bins · P(X < x)) in exact arithmetic, one row at a time."""
    total = sum(Fraction(float(w)) for w in weight)
    below = [sum((Fraction(float(w)) for q, w in zip(p, weight, strict=True) if q < x), Fraction(0)) for x in p]
    return [int(b * n_bins / total) for b in below]


def norm_by_loop(p, y, weight, index, norm):
    total, gaps, shares = sum(weight), [], []
    for b in sorted(set(index)):
        rows = [i for i in range(len(p)) if index[i] == b]
        w = sum(weight[i] for i in rows)
        if w == 0:
            continue
        gaps.append(abs(sum(weight[i] * (p[i] - y[i]) for i in rows)) / w)
        shares.append(w / total)
    if norm == "max":
        return max(gaps)
    power = 1 if norm == "l1" else 2
    return sum(s * g**power for s, g in zip(shares, gaps, strict=True)) ** (1 / power)


rows = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.25, 0.29, 0.3, 0.5, 0.7, 1.0]) | st.floats(0, 1), st.booleans()),
    min_size=1,
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    rows, st.integers(1, 20), st.sampled_from(["l1", "l2", "max"]), st.sampled_from([1, bins.ROWS_TO_SORT]), st.data()
)
def test_equal_mass_is_its_definition(rows, n_bins, norm, many, data):
    with mock.patch.object(bins, "ROWS_TO_SORT", many):
        check_equal_mass(rows, n_bins, norm, data)


def check_equal_mass(rows, n_bins, norm, data):
    p, y = np.array([r[0] for r in rows]), np.array([int(r[1]) for r in rows])
    weight = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows))), dtype=float)
    if weight.sum() == 0:
        weight[0] = 1.0
    index = quantile_bins_by_definition(p, weight, n_bins)
    expected = norm_by_loop(p, y, weight, index, norm)
    got = expected_calibration_error(y, p, n_bins=n_bins, norm=norm, sample_weight=weight)
    assert got == pytest.approx(expected, abs=1e-12)
    ones = np.ones(len(rows))
    expected = norm_by_loop(p, y, ones, quantile_bins_by_definition(p, ones, n_bins), norm)
    assert expected_calibration_error(y, p, n_bins=n_bins, norm=norm) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_bins_of_many_rows_are_those_of_a_sort(binary, weighted, monkeypatch):
    y, p = binary
    weight = np.random.default_rng(0).integers(1, 4, len(p)) / 10 if weighted else None
    resolutions = (1, 2, 15, 97)
    sorted_first = bins.quantile_bins(p, y, weight, resolutions)
    monkeypatch.setattr(bins, "ROWS_TO_SORT", 1)
    for mine, theirs in zip(bins.quantile_bins(p, y, weight, resolutions), sorted_first, strict=True):
        assert mine.count.tolist() == theirs.count.tolist()
        for name in ("weight", "confidence", "correct", "squared_weight", "squared_correct"):
            np.testing.assert_allclose(getattr(mine, name), getattr(theirs, name), rtol=1e-13)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(rows, st.integers(1, 120), st.sampled_from(["l1", "l2", "max"]))
def test_equal_width_is_its_definition(rows, n_bins, norm):
    p, y = np.array([r[0] for r in rows]), np.array([int(r[1]) for r in rows])
    edges = [k / n_bins for k in range(n_bins)]
    index = [max(k for k, edge in enumerate(edges) if x >= edge) for x in p]
    expected = norm_by_loop(p, y, np.ones(len(p)), index, norm)
    got = expected_calibration_error(y, p, n_bins=n_bins, norm=norm, strategy="uniform")
    assert got == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n_bins", [3, 10, 49, 100, 1000])
def test_every_edge_opens_its_own_bin(n_bins):
    # 0.29 · 100 is 28.999999999999996: the product alone would put the edge into the bin below.
    p = np.arange(n_bins) / n_bins
    curve = reliability_curve(np.zeros(n_bins, dtype=int), p, n_bins=n_bins, strategy="uniform")
    assert curve.count == [1] * n_bins


@pytest.mark.parametrize("n_bins", [1, 2, 15, 40])
def test_interpolated_edges_are_those_of_the_published_code(binary, n_bins):
    y, p = binary
    n = len(p)
    edges = np.interp(np.linspace(0, n, n_bins + 1), np.arange(n), np.sort(p))
    count = np.histogram(p, edges)[0]
    gap = np.histogram(p, edges, weights=p)[0] - np.histogram(p, edges, weights=y.astype(float))[0]
    expected = np.abs(gap[count > 0]).sum() / n
    got = expected_calibration_error(y, p, n_bins=n_bins, strategy="interpolated")
    assert got == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("strategy", ["quantile", "uniform", "interpolated"])
@pytest.mark.parametrize("weighted", [False, True])
def test_order_of_rows_does_not_matter(binary, strategy, weighted):
    y, p = binary
    rng = np.random.default_rng(0)
    weight = rng.random(len(p)) if weighted else None
    first = expected_calibration_error(y, p, strategy=strategy, sample_weight=weight)
    curve = reliability_curve(y, p, strategy=strategy, sample_weight=weight)
    for _ in range(5):
        order = rng.permutation(len(p))
        w = None if weight is None else weight[order]
        assert expected_calibration_error(y[order], p[order], strategy=strategy, sample_weight=w) == pytest.approx(
            first, abs=1e-13
        )
        assert reliability_curve(y[order], p[order], strategy=strategy, sample_weight=w).count == curve.count


@pytest.mark.parametrize("function", [expected_calibration_error, classwise_ece, ece_sweep])
def test_whole_weights_repeat_rows(binary, function):
    y, p = binary
    weight = np.random.default_rng(1).integers(0, 4, len(p))
    weight[0] = 2
    repeated = function(np.repeat(y, weight), np.repeat(p, weight))
    assert function(y, p, sample_weight=weight) == pytest.approx(repeated, abs=1e-12)
    assert function(y, p, sample_weight=weight * 0.1) == pytest.approx(repeated, abs=1e-12)


def test_equal_weights_change_nothing(binary):
    y, p = binary
    for function in (expected_calibration_error, classwise_ece, debiased_ece, ece_sweep):
        assert function(y, p, sample_weight=np.full(len(p), 0.1)) == pytest.approx(function(y, p), abs=1e-12)


@pytest.mark.parametrize("weight", [0.1, 0.3, 1 / 3])
def test_equal_weights_move_no_knots(weight):
    rng = np.random.default_rng(0)
    p = rng.beta(2, 3, 800)
    y = rng.random(800) < p**1.3
    weights = np.full(800, weight)
    for function in (integrated_calibration_index, largest_calibration_error):
        assert function(y, p, sample_weight=weights) == pytest.approx(function(y, p), abs=1e-9)
    score = np.arange(200.0)
    for n_knots in (2, 4, 5, 10, 20):
        knots = equal_mass_knots(score, np.full(200, weight), n_knots)
        assert knots.tolist() == [(200 * k + 100) // n_knots - 1 for k in range(n_knots)]
    for n_rows in range(50, 1000, 50):
        places = places_of_shares(np.cumsum(np.full(n_rows, weight)), np.array([0.02, 0.98]))
        assert places.tolist() == [n_rows // 50 - 1, n_rows - n_rows // 50 - 1]


def test_bins_hold_equal_mass_without_ties():
    rng = np.random.default_rng(0)
    p = rng.random(1003)
    assert set(reliability_curve(p > 0.5, p, n_bins=15).count) <= {66, 67}


def test_ties_stay_together_and_empty_bins_are_left_out():
    p = np.array([0.2] * 10 + [0.4] * 90)
    curve = reliability_curve(np.ones(100, dtype=int), p, n_bins=10)
    assert curve.count == [10, 90]
    assert curve.confidence == pytest.approx([0.2, 0.4])


def test_lean_function_is_the_public_one(binary):
    y, p = binary
    for happened in (y.astype(float), y == 1):
        (bins,) = quantile_bins(p, happened, None, (15,))
        assert norm_of_gaps(bins, "l1") == expected_calibration_error(y, p)


def test_negative_zero_is_zero():
    p = np.array([-0.0, 0.0, 0.5, 1.0])
    assert expected_calibration_error([0, 1, 0, 1], p, n_bins=2) == expected_calibration_error(
        [0, 1, 0, 1], np.abs(p), n_bins=2
    )


def test_top_label_bins_each_predicted_class(multiclass):
    y, p = multiclass
    predicted, confidence = p.argmax(axis=1), p.max(axis=1)
    expected = 0.0
    for label in set(predicted):
        part = predicted == label
        expected += part.mean() * expected_calibration_error((y[part] == label).astype(int), confidence[part], n_bins=5)
    assert expected_calibration_error(y, p, n_bins=5, kind="top_label") == pytest.approx(expected, abs=1e-12)


def test_classwise_is_the_mean_over_classes(multiclass):
    y, p = multiclass
    each = [expected_calibration_error((y == k).astype(int), p[:, k]) for k in range(p.shape[1])]
    assert classwise_ece(y, p) == pytest.approx(np.mean(each), abs=1e-12)


def test_classwise_of_one_probability_is_that_of_two_columns(binary):
    y, p = binary
    assert classwise_ece(y, p) == pytest.approx(classwise_ece(y, np.stack([1 - p, p], axis=1)), abs=1e-12)


def test_debiased_by_loop(binary):
    y, p = binary
    curve = reliability_curve(y, p)
    squared = 0.0
    for n, c, a in zip(curve.count, curve.confidence, curve.accuracy, strict=True):
        squared += n / len(p) * ((c - a) ** 2 - (a * (1 - a) / (n - 1) if n > 1 else 0.0))
    assert debiased_ece(y, p) == pytest.approx(np.sqrt(max(squared, 0.0)), abs=1e-9)


@pytest.mark.slow
def test_debiased_l1_takes_off_the_expected_rise():
    rng = np.random.default_rng(0)
    p = rng.random(2000)
    y = (rng.random(2000) < p**1.3).astype(int)
    curve = reliability_curve(y, p)
    n, c, a = (np.array(x) for x in (curve.count, curve.confidence, curve.accuracy))
    noisy = np.abs((c - a)[:, None] + np.sqrt(a * (1 - a) / n)[:, None] * rng.normal(size=(len(n), 400_000)))
    expected = (n / n.sum()) @ (2 * np.abs(c - a) - noisy.mean(axis=1))
    assert debiased_ece(y, p, norm="l1") == pytest.approx(expected, abs=5e-5)


def test_debiasing_removes_most_of_the_bias_of_a_calibrated_model():
    rng = np.random.default_rng(0)
    plain, debiased = [], []
    for _ in range(200):
        p = rng.random(500)
        y = (rng.random(500) < p).astype(int)
        plain.append(expected_calibration_error(y, p, norm="l2") ** 2)
        debiased.append(debiased_ece(y, p) ** 2)
    assert np.mean(debiased) < 0.3 * np.mean(plain)


@pytest.mark.parametrize("n_rows", [1000, 10_000])
def test_the_noise_of_a_calibrated_model_is_what_the_guide_says(n_rows):
    rng = np.random.default_rng(0)
    found = []
    for _ in range(100):
        p = rng.uniform(0.8, 1.0, n_rows)
        found.append(expected_calibration_error(rng.random(n_rows) < p, p))
    limit = np.sqrt(2.0 / np.pi) * np.sqrt(15 * 0.9 * 0.1 / n_rows)  # E|normal| in each of 15 bins of n / 15 rows
    assert 0.9 * limit < np.mean(found) < limit


@pytest.mark.slow
def test_the_size_of_a_histogram_is_what_the_guide_says():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1.0, 1_000_000)
    y = rng.random(len(p)) < p
    for bits, megabytes, bound in ((8, 0.85, 1.5e-3), (12, 10.5, 1.5e-4)):
        found = CalibrationHistogram(bits=bits).update(y, p)
        assert len(found.to_json()) < megabytes * 1e6
        assert found.compute().error_bound < bound


def test_sweep_by_its_definition(binary):
    y, p = binary
    y, p = y[:200], p[:200]
    best = 1
    for n_bins in range(2, len(p) + 1):
        if np.any(np.diff(reliability_curve(y, p, n_bins=n_bins).accuracy) < 0):
            break
        best = n_bins
    assert ece_sweep(y, p) == pytest.approx(expected_calibration_error(y, p, n_bins=best), abs=1e-12)


def test_sweep_of_separable_rows_does_not_try_every_number_of_bins():
    p = np.random.default_rng(0).random(200_000)
    y = (p > 0.5).astype(int)
    assert ece_sweep(y, p) == pytest.approx(np.abs(p - y).mean(), abs=1e-12)


def test_reliability_curve_interval_is_wilsons(binary):
    from scipy.stats import binomtest

    y, p = binary
    curve = reliability_curve(y, p, level=0.9)
    for count, accuracy, low, high in zip(curve.count, curve.accuracy, curve.low, curve.high, strict=True):
        expected = binomtest(round(accuracy * count), count).proportion_ci(0.9, method="wilson")
        assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.slow
def test_more_rows_in_one_bin_than_single_precision_counts():
    p = np.full(20_000_000, 0.75, dtype=np.float32)
    y = np.zeros(20_000_000, dtype=np.int8)
    assert expected_calibration_error(y, p, strategy="uniform") == pytest.approx(0.75, abs=1e-12)


def test_sweep_of_few_rows_by_its_definition():
    """Every outcome of up to five rows, with a row of weight 0 among them and without."""
    for n, lowest in itertools.product(range(1, 6), (0.1, 0.8)):
        p = np.linspace(lowest, 0.9, n)
        for y in itertools.product([0, 1], repeat=n):
            best = 1
            for n_bins in range(2, n + 1):
                if np.any(np.diff(reliability_curve(y, p, n_bins=n_bins).accuracy) < 0):
                    break
                best = n_bins
            expected = expected_calibration_error(y, p, n_bins=best)
            assert ece_sweep(y, p) == pytest.approx(expected, abs=1e-12)
            padded = ([1, *y, 0], [0.05, *p, 0.95])
            assert ece_sweep(*padded, sample_weight=[0, *[1] * n, 0]) == pytest.approx(expected, abs=1e-12)


def test_sweep_with_weights_is_that_of_repeated_rows():
    assert ece_sweep([1, 1, 0], [0.6, 0.8, 0.7], sample_weight=[1, 3, 1]) == pytest.approx(0.18, abs=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = int(rng.integers(2, 12))
        y, p, w = rng.integers(0, 2, n), rng.random(n).round(1), rng.integers(0, 5, n)
        if w.sum() == 0:
            continue
        expected = ece_sweep(np.repeat(y, w), np.repeat(p, w))
        assert ece_sweep(y, p, sample_weight=w) == pytest.approx(expected, abs=1e-12)
        assert ece_sweep(y, p, sample_weight=0.1 * w) == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
def test_sweep_ends_with_weights_of_any_size():
    y, p = [1, 0, 1], [0.2, 0.4, 0.9]
    # Only some 1e9 bins would part the first two rows.
    expected = expected_calibration_error(y, p, n_bins=2, sample_weight=[1e-9, 1, 1])
    assert ece_sweep(y, p, sample_weight=[1e-9, 1, 1]) == pytest.approx(expected, abs=1e-12)


def test_rounded_probabilities_of_equal_scores_are_equal():
    """As the documentation says: constants added to logits move the last digits of the softmax, and part equal rows."""
    rng = np.random.default_rng(0)
    z = rng.integers(-3, 4, (2000, 3)).astype(float)
    y = np.argmax(z + rng.gumbel(size=z.shape), axis=1)
    pair = [np.round(np.exp(z + c) / np.exp(z + c).sum(axis=1, keepdims=True), 12) for c in (0.0, 1.0)]
    for metric in (expected_calibration_error, ece_sweep, lambda y, p: corp_reliability(y, p).miscalibration):
        first, second = (metric(y, p) for p in pair)
        assert first == pytest.approx(second, abs=1e-10)


@pytest.mark.parametrize("decimals", [1, 2])
@pytest.mark.parametrize("n_bins", [5, 10, 20, 100])
@pytest.mark.parametrize("is_binary", [True, False])
def test_a_decimal_at_an_edge_is_in_the_same_bin_in_every_precision(decimals, n_bins, is_binary):
    rng = np.random.default_rng(0)
    p = rng.random(3000).round(decimals)
    labels = (rng.random(3000) < p).astype(int)
    p = p if is_binary else np.stack([1.0 - p, p], axis=1)
    options = {"n_bins": n_bins, "strategy": "uniform"}
    double, single = (
        expected_calibration_error(labels, p.astype(dtype), **options) for dtype in (np.float64, np.float32)
    )
    assert single == pytest.approx(double, abs=1e-7)
