"""What the tests of verified_calibration (Kumar, Liang & Ma 2019) assert, asserted of our metrics.

Its "discrete" bins hold one value each; 17 bins of equal width do the same for values with one digit. Its powers 1
and 2 are our norms; power 3 is not offered here. Its marginal error pools the classes, ours is `classwise_ece`, the
mean over them: by l1 the two are the same.
"""

from __future__ import annotations

import numpy as np
import pytest

from refocal.metrics import classwise_ece, debiased_ece, expected_calibration_error, reliability_curve

DISCRETE = {"n_bins": 17, "strategy": "uniform"}
POWERS = {"l1": 1, "l2": 2}


def mean_of_powers(weights, gaps, power):
    return sum(w * g**power for w, g in zip(weights, gaps, strict=True)) ** (1 / power)


@pytest.fixture(scope="module")
def two_classes():
    p = np.array([0.5, 0.5, 0.5, 0.6, 0.5, 0.6, 0.6, 0.6, 0.6])
    return np.array([0, 1, 0, 1, 0, 1, 1, 1, 0]), p


@pytest.fixture(scope="module")
def three_classes():
    rows = [[0.6, 0.3, 0.1]] * 6 + [[0.1, 0.8, 0.1]] * 4 + [[0.1, 0.0, 0.9]] * 4
    labels = [0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2]
    order = np.random.default_rng(0).permutation(14)
    return np.array(labels)[order], np.array(rows)[order]


@pytest.fixture(scope="module")
def six_rows():
    rows = [[0.8, 0.1, 0.1], [0.6, 0.2, 0.2], [0, 0.9, 0.1], [0, 1, 0], [0.3, 0.3, 0.4], [0.2, 0, 0.8]]
    return np.array([0, 0, 1, 1, 0, 2]), np.array(rows)


@pytest.mark.parametrize("norm", POWERS)
def test_error_of_two_classes_as_one_column_and_as_two(two_classes, norm):
    y, p = two_classes
    truth = mean_of_powers([4 / 9, 5 / 9], [0.25, 0.2], POWERS[norm])
    both = np.column_stack([1 - p, p])
    assert expected_calibration_error(y, p, norm=norm, **DISCRETE) == pytest.approx(truth)
    assert classwise_ece(y, both, norm=norm, **DISCRETE) == pytest.approx(truth)
    assert expected_calibration_error(y, both, norm=norm, **DISCRETE) == pytest.approx(truth)
    assert debiased_ece(y, p, norm=norm, **DISCRETE) < truth
    assert debiased_ece(y, both, norm=norm, **DISCRETE) < truth


@pytest.mark.parametrize("norm", POWERS)
def test_top_label_error_of_three_classes(three_classes, norm):
    y, p = three_classes
    truth = mean_of_powers([6 / 14, 4 / 14, 4 / 14], [5 / 6 - 0.6, 0.05, 0.1], POWERS[norm])
    assert expected_calibration_error(y, p, norm=norm, **DISCRETE) == pytest.approx(truth)
    assert debiased_ece(y, p, norm=norm, **DISCRETE) < truth


def test_marginal_error_of_three_classes(three_classes):
    y, p = three_classes
    weights = [4 / 42, 6 / 42, 8 / 42, 4 / 42, 6 / 42]
    truth = mean_of_powers(weights, [0.1, 5 / 6 - 0.6, 0.1, 0.05, 0.3 - 1 / 6], 1)
    assert classwise_ece(y, p, **DISCRETE) == pytest.approx(truth)


@pytest.mark.parametrize("norm", POWERS)
def test_equal_mass_bins_give_a_lower_bound(six_rows, norm):
    y, p = six_rows
    confidence = np.sort(p.max(axis=1))
    gaps = [2 / 3 - confidence[:3].mean(), 1 - confidence[3:].mean()]
    truth = mean_of_powers([0.5, 0.5], np.abs(gaps), POWERS[norm])
    # 0.8 is there twice, and equal values share a bin here, so one of the two is moved by a little
    p = p + np.array([0, 0, 0, 0, 0, 1e-9])[:, None] * np.array([0, 0, 1])
    p = p / p.sum(axis=1, keepdims=True)
    assert expected_calibration_error(y, p, n_bins=2, norm=norm) == pytest.approx(truth, abs=1e-6)
    assert debiased_ece(y, p, n_bins=2, norm=norm) < truth


def test_equal_width_bins(six_rows):
    y, p = six_rows
    truth = 4 / 6 * (1 - (0.8 + 0.8 + 0.9 + 1.0) / 4) + 2 / 6 * abs(1 / 2 - (0.6 + 0.4) / 2)
    assert expected_calibration_error(y, p, n_bins=3, strategy="uniform") == pytest.approx(truth)


def test_a_class_without_rows_changes_nothing():
    p = np.array([[0.9, 0.1], [0.8, 0.2]])
    assert expected_calibration_error([0, 0], p, n_bins=1) == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("p", "n_bins", "counts"),
    [
        ([0.3, 0.5, 0.2, 0.3, 0.5, 0.7], 1, [6]),
        ([0.3, 0.5, 0.2, 0.3, 0.5, 0.7], 2, [3, 3]),
        ([0.3, 0.5, 1.0, 1.0, 1.0, 1.0], 3, [2, 4]),
        ([0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], 3, [3, 2, 2]),
    ],
)
def test_rows_of_equal_mass_bins(p, n_bins, counts):
    assert reliability_curve(np.zeros(len(p), int), np.array(p), n_bins=n_bins).count == counts


@pytest.mark.parametrize(
    ("p", "y", "norm", "truth"),
    [
        ([0.3], [1], "l1", 0.7),
        ([0.3], [0], "l1", 0.3),
        ([0.3], [1], "l2", 0.7),
        ([0.3, 0.6], [1, 0], "l1", 0.65),
        ([0.3, 0.6, 0.6], [1, 0, 1], "l1", 0.3),
        ([0.3, 0.6], [1, 0], "l2", np.sqrt((0.7**2 + 0.6**2) / 2)),
    ],
)
def test_plug_in_error_of_a_few_rows(p, y, norm, truth):
    assert expected_calibration_error(y, p, norm=norm, **DISCRETE) == pytest.approx(truth)
