"""95 % intervals cover the truth of simulated models; `python benchmarks/interval_coverage.py` has more of each.

Every bound is one that what was computed before, named beside it, misses clearly.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit, log_softmax, ndtr

import refocal.metrics as rm
from refocal.decide import net_benefit_curve
from refocal.metrics.binned import label_noise
from refocal.metrics.bins import bins_of, join_cells, row_cells
from refocal.metrics.inputs import read_probabilities
from refocal.metrics.squared import SquaredSummary


def draw(rng, n, slope=1.0, centre=0.0, scale=1.5):
    """Log-odds that are true, labels, and the probabilities of a model that is overconfident by the slope."""
    log_odds = rng.normal(centre, scale, n)
    labels = (rng.random(n) < expit(log_odds)).astype(int)
    return log_odds, labels, expit(slope * log_odds)


def share_covered(intervals, truth):
    return np.mean([low <= truth <= high for low, high in intervals])


def ends(interval):
    return interval.low, interval.high


@pytest.mark.parametrize("slope", [1.0, 2.0, 3.0, 5.0])
def test_the_mean_bias_of_overconfident_models(slope):
    """By the variance that the probabilities say, 95, 86, 77 and 64 % were covered."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(200):
        _, labels, p = draw(rng, 300, slope)
        found.append(ends(rm.mean_bias_interval(labels, p)))
    assert 0.92 <= share_covered(found, 0.0) <= 0.99


def test_the_skill_of_few_rows_of_an_overconfident_model():
    """By a normal interval of the skill itself, 89 % of 30 rows were covered, and 9 % of the intervals lay above."""
    log_odds = np.random.default_rng(99).normal(0.0, 1.5, 1_000_000)
    happened, p = expit(log_odds), expit(3.0 * log_odds)
    loss = -np.mean(happened * np.log(p) + (1.0 - happened) * np.log(expit(-3.0 * log_odds)))
    skill = 1.0 - loss / math.log(2.0)  # the rate is a half
    rng = np.random.default_rng(0)
    found = []
    for _ in range(500):
        log_odds, labels, _ = draw(rng, 30)
        columns = log_softmax(np.stack([0.0 * log_odds, 3.0 * log_odds], axis=1), axis=1)
        found.append(ends(rm.bootstrap_interval("log_loss_skill", labels, columns)))
    assert 0.91 <= share_covered(found, skill) <= 0.97
    assert np.mean([low > skill for low, _ in found]) <= 0.06


def test_the_squared_error_of_calibrated_rows_with_two_in_a_bin():
    """With the noise of simulated rates beyond 0 and 1 counted as 0, 28 % of 100 rows in 50 bins excluded 0."""
    rng = np.random.default_rng(0)
    lows = []
    for _ in range(200):
        _, labels, p = draw(rng, 100)
        rows = read_probabilities(labels, p, None, "test")
        lows.append(SquaredSummary.of(rows, 50).interval().low)
    assert np.mean(np.array(lows) > 0.0) <= 0.05


def test_the_noise_of_rates_is_right_on_average_where_few_rows_are_in_a_bin():
    """Gaps with normal noise of the variance r (1 - r) / n: what is taken off their squares is this variance."""
    p, n = np.array([0.02, 0.3, 0.5, 0.9]), np.array([2, 3, 5, 20])
    bins = row_cells(np.repeat(p, n), np.zeros(n.sum()))
    bins = join_cells(bins, np.append(0, np.cumsum(n)[:-1]))
    noise = np.sqrt(p * (1.0 - p) / n) * np.random.default_rng(0).standard_normal((1_000_000, 4))
    np.testing.assert_allclose(label_noise(bins, noise).mean(axis=0), p * (1.0 - p) / n, rtol=5e-3)


def test_groups_of_an_overconfident_model_are_not_off_by_chance():
    """Ten groups of 300 rows at the level of all together: half of all tables had a group that was off."""
    rng = np.random.default_rng(1)
    level = 0.95 ** (1.0 / 10.0)
    any_off = 0
    for _ in range(40):
        is_off = False
        for _ in range(10):
            _, labels, p = draw(rng, 300, 3.0)
            low, high = ends(rm.mean_bias_interval(labels, p, level=level))
            is_off = is_off or not low <= 0.0 <= high
        any_off += is_off
    assert any_off <= 7


@pytest.mark.parametrize("metric", [rm.expected_calibration_error, rm.squared_ece, rm.mean_bias])
def test_weights_that_depend_on_the_label(metric):
    """Rows of class 1 weigh 20: 73, 77 and 85 % were covered."""
    rng = np.random.default_rng(2)
    p = draw(rng, 400_000)[2]
    weight = 1.0 + 19.0 * p
    gap = p - 20.0 * p / weight  # the rate of the weighted population is 20 p / (1 + 19 p)
    bins = np.minimum((np.cumsum(np.sort(weight)) * 15 / weight.sum()).astype(int), 14)  # the weight rises with p
    order = np.argsort(p)
    share = np.bincount(bins, weight[order]) / weight.sum()
    gaps = np.bincount(bins, (weight * gap)[order]) / weight.sum() / share
    truths = {
        rm.expected_calibration_error: share @ np.abs(gaps),
        rm.squared_ece: share @ gaps**2,
        rm.mean_bias: share @ gaps,
    }
    found = []
    for _ in range(120):
        _, labels, p = draw(rng, 1000)
        given = np.where(labels == 1, 20.0, 1.0)
        found.append(ends(rm.bootstrap_interval(metric, labels, p, sample_weight=given, n_resamples=150)))
    assert share_covered(found, truths[metric]) >= 0.9


def test_an_accuracy_near_1():
    """Resampled rows covered 44 % of an accuracy of 0.998 with 300 rows."""
    rng = np.random.default_rng(3)
    p = np.full(300, 0.9)
    found = [ends(rm.bootstrap_interval(rm.accuracy, (rng.random(300) < 0.998).astype(int), p)) for _ in range(200)]
    assert share_covered(found, 0.998) >= 0.93


@pytest.mark.parametrize(("metric", "truth"), [(rm.roc_auc, 0.754), (rm.average_precision, 0.149)])
def test_areas_with_few_rows_of_class_1(metric, truth):
    """About 8 of 200 rows: normal intervals covered 88 and 91 %, with 6 rows and an area of 0.9 73 and 80 %."""
    rng = np.random.default_rng(4)
    found = []
    while len(found) < 250:
        _, labels, p = draw(rng, 200, centre=-3.5, scale=1.0)
        if labels.sum() >= 2:
            found.append(ends(rm.bootstrap_interval(metric, labels, p)))
    assert share_covered(found, truth) >= 0.925


@pytest.mark.parametrize("slope", [1.0, 3.0])
def test_bands_where_all_rows_of_a_bin_are_right(slope):
    """Resampled rows covered 24 to 44 % of all bins at this spread of log-odds, and none of the highest."""
    rng = np.random.default_rng(5)
    covered = []
    all_covered = []
    for _ in range(100):
        log_odds, labels, p = draw(rng, 300, slope, scale=5.0)
        rows = read_probabilities(labels, p, None, "test")
        edges = np.cumsum(bins_of(rows, n_bins=15).count)[:-1]
        truth = [part.mean() for part in np.split(np.sort(expit(log_odds)), edges)]
        band = rm.reliability_band(labels, p)
        covered.append((np.array(band.low) <= truth) & (truth <= np.array(band.high)))
        wide = rm.reliability_band(labels, p, simultaneous=True)
        all_covered.append(np.all((np.array(wide.low) <= truth) & (truth <= np.array(wide.high))))
    assert np.mean(covered) >= 0.94
    assert np.mean(covered, axis=0).min() >= 0.86
    assert np.mean(all_covered) >= 0.92


def test_the_simultaneous_band_of_calibrated_models():
    """The band of each bin is left somewhere by about half of all calibrated models."""
    rng = np.random.default_rng(6)
    outside = {False: 0, True: 0}
    for _ in range(200):
        _, labels, p = draw(rng, 1000)
        for simultaneous in (False, True):
            band = rm.reliability_band(labels, p, kind="consistency", simultaneous=simultaneous)
            accuracy = np.array(band.accuracy)
            outside[simultaneous] += bool(np.any((accuracy < band.low) | (accuracy > band.high)))
    assert outside[False] > 0.25 * 200
    assert outside[True] <= 0.08 * 200


@pytest.mark.parametrize("threshold", [0.5, 0.8])
def test_net_benefit_where_few_rows_are_acted_on(threshold):
    """Normal intervals covered 3.5 to 19 % at the threshold 0.8, where most samples have no false alarm."""
    rng = np.random.default_rng(7)
    p = draw(rng, 1_000_000, centre=-3.0, scale=1.2)[2]
    odds = threshold / (1.0 - threshold)
    truth = np.mean((p >= threshold) * (p - odds * (1.0 - p)))
    found = []
    for _ in range(300):
        _, labels, p = draw(rng, 300, centre=-3.0, scale=1.2)
        curve = net_benefit_curve(labels, p, thresholds=[threshold])
        found.append((curve.low[0], curve.high[0]))
    assert share_covered(found, truth) >= 0.93


@pytest.mark.slow
def test_the_classwise_error_of_a_calibrated_model():
    """Percentiles of resampled rows covered 0 %."""
    rng = np.random.default_rng(8)
    covered = 0
    for _ in range(60):
        log_p = log_softmax(2.0 * rng.normal(size=(500, 5)), axis=1)
        labels = np.argmax(log_p + rng.gumbel(size=log_p.shape), axis=1)
        covered += rm.bootstrap_interval(rm.classwise_ece, labels, np.exp(log_p), n_resamples=100).low == 0.0
    assert covered >= 54


CLUSTERED = {
    "log_loss": rm.log_loss,
    "accuracy": rm.accuracy,
    "mean_bias": rm.mean_bias,
    "ece": rm.expected_calibration_error,
    "roc_auc": rm.roc_auc,
}


@pytest.mark.parametrize("name", CLUSTERED)
def test_clusters(name):
    """30 clusters of 40 rows whose outcomes go together: without them half or less is covered of most."""
    rng = np.random.default_rng(9)
    q = expit(rng.normal(0.0, 1.5, 1_000_000))
    order = np.argsort(-q)
    zeros = 1.0 - q[order]
    truths = {
        "log_loss": -np.mean(q * np.log(q) + (1.0 - q) * np.log1p(-q)),
        "accuracy": np.mean(np.maximum(q, 1.0 - q)),
        "mean_bias": 0.0,
        "ece": 0.0,
        "roc_auc": 1.0 - np.sum(q[order] * (np.cumsum(zeros) - zeros / 2.0)) / q.sum() / zeros.sum(),
    }
    clusters = np.repeat(np.arange(30), 40)
    with_clusters = []
    without = []
    for _ in range(120):
        common = rng.normal(size=(30, 2))[clusters]
        own = rng.normal(size=(1200, 2))
        normal = math.sqrt(0.5) * common + math.sqrt(0.5) * own
        p = expit(1.5 * normal[:, 0])
        labels = (ndtr(normal[:, 1]) < p).astype(int)
        values = np.log(np.stack([1.0 - p, p], axis=1)) if name == "log_loss" else p
        metric = CLUSTERED[name]
        with_clusters.append(ends(rm.bootstrap_interval(metric, labels, values, clusters=clusters, n_resamples=100)))
        without.append(ends(rm.bootstrap_interval(metric, labels, values, n_resamples=100)))
    assert share_covered(with_clusters, truths[name]) >= 0.9
    assert share_covered(without, truths[name]) < 0.9


def test_the_interval_of_a_classwise_error_is_as_wide_as_its_rows_vary():
    """By a plain loop: the error is the mean over rows of Σ_k sign(gap of the bin) (p_k - y_k) / C."""
    n = 9_000
    rng = np.random.default_rng(0)
    log_p = log_softmax(2.0 * rng.normal(size=(n, 10)), axis=1)
    labels = np.argmax(log_p + rng.gumbel(size=log_p.shape), axis=1)
    p = np.exp(log_softmax(3.0 * log_p, axis=1))
    terms = np.zeros(n)
    for k in range(10):
        residual = p[:, k] - (labels == k)
        for rows in np.array_split(np.argsort(p[:, k]), 15):
            terms[rows] += np.sign(residual[rows].sum()) * residual[rows] / 10
    interval = rm.bootstrap_interval(rm.classwise_ece, labels, p, n_resamples=2000)
    assert interval.value == pytest.approx(terms.mean(), rel=1e-9)
    normal_width = 2 * 1.96 * terms.std() / n**0.5
    # Wider by the noise that raised the measured error; 0.99 covered 90 % of weighted rows.
    assert 1.02 * normal_width < interval.high - interval.low < 1.15 * normal_width


@pytest.mark.parametrize("smallest", [0.0, 1e-6, 1e-3])
def test_the_mean_bias_of_probabilities_next_to_0_and_1_is_covered(smallest):
    """A shift of log-odds moves none of them: the interval missed the truth in 40 to 97 % of samples."""
    rng = np.random.default_rng(8)
    n_covered = 0
    for _ in range(200):
        rate = expit(1.5 * rng.normal(size=500) - 2.9)
        p = np.clip(rng.random(500) < rate, smallest, 1.0 - smallest)
        y = (rng.random(500) < rate).astype(int)
        interval = rm.mean_bias_interval(y, p)
        truth = float(np.mean(smallest * (1.0 - rate) + (1.0 - smallest) * rate - rate))
        n_covered += interval.low <= truth <= interval.high
    assert n_covered >= 180
