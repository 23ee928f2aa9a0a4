"""Metrics of two classes, against scikit-learn and plain loops; influences against differences of weights."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student
from sklearn import metrics as sk

from refocal import IsotonicCalibration
from refocal.errors import LabelError, ShapeError
from refocal.evaluate import evaluate
from refocal.io import blocks
from refocal.metrics import (
    METRICS,
    accuracy,
    average_precision,
    bootstrap_interval,
    brier_score,
    brier_skill,
    expected_calibration_error,
    log_loss,
    log_loss_skill,
    mean_bias,
    paired_bootstrap,
    resample,
    roc_auc,
    smooth_ece,
)
from refocal.metrics.bootstrap import MetricRows, summarise
from refocal.rows.predictions import probability_rows

pytestmark = pytest.mark.numerics

PLAIN = (mean_bias, brier_skill, roc_auc, average_precision)


def draw(n=400, seed=0, digits=None):
    rng = np.random.default_rng(seed)
    p = rng.beta(0.6, 2.0, n)
    y = (rng.random(n) < p**1.3).astype(int)
    return y, p if digits is None else p.round(digits), rng.random(n)


@pytest.mark.parametrize("digits", [None, 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_values_are_scikit_learns(digits, weighted):
    y, p, weight = draw(digits=digits)
    w = weight if weighted else None
    assert roc_auc(y, p, sample_weight=w) == pytest.approx(sk.roc_auc_score(y, p, sample_weight=w), abs=1e-12)
    theirs = sk.average_precision_score(y, p, sample_weight=w)
    assert average_precision(y, p, sample_weight=w) == pytest.approx(theirs, abs=1e-12)
    rate = np.average(y, weights=w)
    assert mean_bias(y, p, sample_weight=w) == pytest.approx(np.average(p, weights=w) - rate, abs=1e-12)
    skill = 1 - sk.brier_score_loss(y, p, sample_weight=w) / (rate * (1 - rate))
    assert brier_skill(y, p, sample_weight=w) == pytest.approx(skill, abs=1e-12)
    inside = np.clip(p, 0.01, 0.99)
    theirs = 1 - sk.log_loss(y, inside, sample_weight=w) / sk.log_loss(y, np.full(len(y), rate), sample_weight=w)
    columns = np.log(np.stack([1 - inside, inside], axis=1))
    assert log_loss_skill(y, columns, sample_weight=w) == pytest.approx(theirs, abs=1e-9)
    assert log_loss_skill(y, columns[:, 1], sample_weight=w) == pytest.approx(theirs, abs=1e-9)


def summary(metric, y, values, weight=None):
    """What the interval of a metric comes from."""
    rows = probability_rows(y, values, weight)
    (found,) = summarise([MetricRows.of(metric, rows)], 1, 0)
    return found


@pytest.mark.parametrize("name", ["log_loss_skill", "brier_skill", "roc_auc", "average_precision"])
@pytest.mark.parametrize("digits", [None, 1])
def test_the_influence_of_a_row_is_the_derivative_in_its_weight(name, digits):
    y, p, weight = draw(60, digits=digits)
    p = np.clip(p, 0.02, 0.98)
    metric = METRICS[name]
    values = np.log(np.stack([1 - p, p], axis=1)) if metric.takes_logs else p
    step = 1e-6 * weight.mean()

    def at(i, change):
        moved = weight.copy()
        moved[i] += change
        return metric.function(y, values, sample_weight=moved)

    derivatives = np.array([(at(i, step) - at(i, -step)) / (2 * step) for i in range(60)])
    # The squares of influences add up to the variance of the jackknife.
    expected = derivatives * weight * np.sqrt(59 / 60) * weight.sum() / (weight.sum() - weight)
    assert summary(metric, y, values, weight).influence == pytest.approx(expected, abs=1e-6)


def test_intervals_are_those_of_the_bootstrap():
    y, p, _ = draw(3000)
    for metric in (roc_auc, average_precision, brier_skill):
        mine = bootstrap_interval(metric, y, p)
        other = bootstrap_interval(metric, y, p, method="percentile", n_resamples=200)
        assert mine.standard_error == pytest.approx(other.standard_error, rel=0.15)
        assert mine.low < mine.value < mine.high


def test_the_error_of_the_area_is_delongs():
    y, p, _ = draw(500)
    ones, zeros = p[y == 1], p[y == 0]
    wins = (ones[:, None] > zeros) + 0.5 * (ones[:, None] == zeros)
    variance = wins.mean(axis=1).var() / len(ones) + wins.mean(axis=0).var() / len(zeros)
    expected = np.sqrt(variance * 500 / 499)
    assert bootstrap_interval(roc_auc, y, p).standard_error == pytest.approx(expected, rel=1e-9)


def test_a_difference_of_areas_knows_that_the_rows_are_the_same():
    y, p, _ = draw(500)
    other = np.clip(p + np.random.default_rng(1).normal(0, 0.02, 500), 0, 1)
    mine, its = (summary(METRICS["roc_auc"], y, each) for each in (p, other))
    gap = mine.minus(its)
    assert gap.difference == roc_auc(y, p) - roc_auc(y, other)
    assert gap.high - gap.low < 0.3 * (bootstrap_interval(roc_auc, y, p).high - bootstrap_interval(roc_auc, y, p).low)
    assert paired_bootstrap(roc_auc, y, p, other) == gap
    theirs = resample(roc_auc, y, p, n_resamples=200).minus(resample(roc_auc, y, other, n_resamples=200))
    assert gap.high - gap.low == pytest.approx(theirs.high - theirs.low, rel=0.25)


def test_two_clusters_do_not_tell_two_areas_apart():
    """The scores of a cluster all move: areas differ by the pairs of both, of which influences say nothing."""
    cluster = np.repeat([0, 1], 40)
    rejected = {2: 0, 4: 0}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        scores = 1.5 * rng.normal(size=80)
        y = (rng.random(80) < 1 / (1 + np.exp(-scores))).astype(int)
        first, second = (1 / (1 + np.exp(-scores - 0.7 * rng.normal(size=2)[cluster])) for _ in range(2))
        of_two = paired_bootstrap(roc_auc, y, first, second, clusters=cluster)
        of_four = paired_bootstrap(roc_auc, y, first, second, clusters=np.arange(80) // 20)
        rejected[2] += of_two.p_value < 0.05
        rejected[4] += of_four.p_value < 0.05
    assert rejected[2] == 0
    assert rejected[4] > 0
    parts = [(np.stack([0 * scores, scores], axis=1), y, None, {"day": cluster.astype(str)})]
    calibrator = IsotonicCalibration().fit(parts[0][0], y)
    found = evaluate(blocks(parts, clusters="day"), {"isotonic": calibrator})["isotonic"].against_none
    assert found["roc_auc"].difference != 0.0
    assert found["roc_auc"].p_value == found["average_precision"].p_value == 1.0


def test_intervals_stay_within_the_range():
    y = np.array([0, 1] * 10)
    found = bootstrap_interval(roc_auc, y, np.where(y == 1, 0.8, 0.2) - 0.7 * (np.arange(20) == 1))
    assert 0.5 < found.low < found.value < found.high < 1.0


@pytest.mark.parametrize("metric", [roc_auc, average_precision])
def test_a_perfect_order_of_few_rows_proves_little(metric):
    y = np.array([0] * 12 + [1] * 4)
    found = bootstrap_interval(metric, y, np.linspace(0.1, 0.9, 16))
    assert found.value == found.high == 1.0
    assert 0.0 < found.low < 0.8
    one = bootstrap_interval(metric, [0] * 15 + [1], np.linspace(0.1, 0.9, 16))
    assert (one.low, one.high) == (0.0, 1.0)  # one row of a class says nothing


def test_two_columns_are_about_class_1():
    y, p, weight = draw(digits=2)
    columns = np.stack([1 - p, p], axis=1)
    for metric in (*PLAIN, expected_calibration_error, smooth_ece, brier_score, accuracy):
        assert metric(y, columns, sample_weight=weight) == metric(y, p, sample_weight=weight)
    assert log_loss(y, np.log(np.clip(columns, 1e-9, 1))) == pytest.approx(log_loss(y, np.log(np.clip(p, 1e-9, 1))))


def test_what_is_not_of_two_classes_is_refused():
    for metric in PLAIN:
        with pytest.raises(ShapeError, match=r"of two classes. Got 3 classes"):
            metric([0, 1, 2], np.full((3, 3), 1 / 3))
    for metric in (brier_skill, roc_auc, average_precision):
        with pytest.raises(LabelError, match=r"of both classes, with weight. Got a rate of class 1 of 1"):
            metric([1, 1, 0], [0.2, 0.3, 0.4], sample_weight=[1, 1, 0])
    assert mean_bias([1, 1], [0.5, 1.0]) == -0.25


def test_rows_of_unequal_weights_have_students_t_of_as_many_rows_as_they_are_effectively():
    rng = np.random.default_rng(0)
    p = rng.random(60)
    y = (rng.random(60) < p).astype(int)
    weight = np.exp(rng.normal(size=60))
    interval = bootstrap_interval("brier_skill", y, p, sample_weight=weight)
    n_effective = int(weight.sum() ** 2 / (weight @ weight))
    assert n_effective < 40
    ratio = 1.0 - interval.value  # of the losses, whose interval is on the scale of its logarithm
    factor = np.exp(student.ppf(0.975, n_effective - 1) * interval.standard_error / ratio)
    assert (interval.low, interval.high) == pytest.approx((1.0 - ratio * factor, 1.0 - ratio / factor))
    equal = bootstrap_interval("brier_skill", y, p, sample_weight=np.full(60, 2.0))
    factor = np.exp(student.ppf(0.975, 59) * equal.standard_error / (1.0 - equal.value))
    assert equal.low == pytest.approx(1.0 - (1.0 - equal.value) * factor)
