"""The judged rate against its formula written out, a simulation, and what cannot be judged."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from refocal.errors import DataError, ParameterError, ShapeError
from refocal.metrics import judged_rate
from refocal.metrics.intervals import share_interval


def rows(seed, n=100, n_more=2000, rate=0.7):
    rng = np.random.default_rng(seed)
    y = rng.random(n + n_more) < rate
    f = np.where(y, 0.85, 0.45) + 0.15 * rng.normal(size=n + n_more)
    return f[n:], f[:n], y[:n]


def test_the_estimate_and_its_error_are_those_of_the_formula():
    many, few, right = rows(0)
    y = 2.0 * right
    found = judged_rate(many, few, y)
    pooled = np.concatenate([many, few])
    weight = np.cov(y, few, bias=True)[0, 1] / ((1 + len(y) / len(many)) * pooled.var())
    rate = y.mean() + weight * (many.mean() - few.mean())
    error = np.sqrt((y - weight * few).var(ddof=1) / len(y) + weight**2 * many.var(ddof=1) / len(many))
    margin = stats.t.ppf(0.975, len(y) - 1) * error
    assert found.judge_weight == pytest.approx(weight)
    assert found.interval.value == pytest.approx(rate)
    assert found.interval.standard_error == pytest.approx(error)
    assert (found.interval.low, found.interval.high) == pytest.approx((rate - margin, rate + margin))
    alone = stats.t.interval(0.95, len(y) - 1, y.mean(), y.std(ddof=1) / np.sqrt(len(y)))
    assert (found.of_labels.low, found.of_labels.high) == pytest.approx(alone)
    assert found.of_judge == pytest.approx(pooled.mean())
    assert found.label_factor > 1.5
    # The interval of a rate is Wilson's, of as many labels as give this error.
    of_rate = judged_rate(many, few, right)
    assert of_rate.interval.value == pytest.approx(rate / 2)
    assert of_rate.interval.standard_error == pytest.approx(error / 2)
    assert of_rate.label_factor == pytest.approx(found.label_factor)
    reference = share_interval(rate / 2, 100 * found.label_factor, 0.95, 100)
    assert of_rate.interval.low == pytest.approx(reference.low)
    assert of_rate.interval.high == pytest.approx(reference.high)


@pytest.mark.parametrize(("rate", "n"), [(0.5, 20), (0.95, 20), (0.95, 50), (0.99, 20)])
def test_intervals_of_a_handful_of_labels_cover(rate, n):
    covered = 0
    for seed in range(300):
        many, few, y = rows(seed, n, 1000, rate)
        interval = judged_rate(many, few, y).interval
        assert 0.0 <= interval.low < interval.high <= 1.0
        covered += interval.low <= rate <= interval.high
    assert covered >= 0.91 * 300  # 95 % but for three standard errors


@pytest.mark.parametrize("label", [0, 1])
def test_labels_that_agree_leave_the_rate_open(label):
    found = judged_rate(np.random.default_rng(0).random(500), np.linspace(0.0, 1.0, 20), [label] * 20)
    assert found.interval.value == label
    assert 0.1 < found.interval.high - found.interval.low < 0.25
    assert found.interval == found.of_labels
    assert found.label_factor == 1.0


def test_intervals_cover_and_a_biased_judge_does_no_harm():
    covered = 0
    for seed in range(300):
        many, few, y = rows(seed)
        found = judged_rate(many + 5.0, few + 5.0, y)  # too kind by far
        covered += found.interval.low <= 0.7 <= found.interval.high
    assert covered >= 0.91 * 300  # 95 % but for three standard errors


def test_a_judge_that_knows_nothing_counts_for_nothing():
    rng = np.random.default_rng(0)
    y = rng.random(400) < 0.7
    noise = judged_rate(rng.random(5000), rng.random(400), y)
    assert abs(noise.judge_weight) < 0.2
    assert noise.label_factor == pytest.approx(1.0, abs=0.05)
    constant = judged_rate(np.ones(5000), np.ones(400), y)
    assert constant.judge_weight == 0.0
    assert constant.interval.value == constant.of_labels.value
    grades = judged_rate(rng.integers(1, 11, 500), rng.integers(1, 11, 50), rng.integers(1, 11, 50))
    assert 1.0 < grades.interval.value < 10.0


def test_what_cannot_be_judged_is_named():
    many, few, y = rows(0)
    with pytest.raises(ShapeError, match=r"'judged_of_labelled' of judged_rate must be of shape \(100,\)"):
        judged_rate(many, few[:3], y)
    with pytest.raises(ShapeError, match="'labels' of judged_rate must be two or more"):
        judged_rate(many, few[:1], y[:1])
    with pytest.raises(ShapeError, match="'judged' of judged_rate must be two or more"):
        judged_rate(many[:1], few, y)
    with pytest.raises(DataError, match="'judged' of judged_rate must be finite"):
        judged_rate(np.append(many, np.nan), few, y)
    with pytest.raises(ParameterError, match="level"):
        judged_rate(many, few, y, level=95)


@pytest.mark.parametrize("form", [np.asarray, list, lambda verdicts: pytest.importorskip("torch").tensor(verdicts)])
def test_verdicts_that_are_booleans_are_ones_and_zeros(form):
    many, few, right = rows(3)
    found = judged_rate(form(many > 0.6), form(few > 0.6), form(right))
    assert found == judged_rate((many > 0.6).astype(float), (few > 0.6).astype(float), right.astype(float))
