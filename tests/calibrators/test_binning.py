"""Isotonic calibration and binning against scikit-learn, netcal and plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from netcal import binning as peers
from scipy.special import expit, log_softmax, logit
from sklearn.isotonic import IsotonicRegression

from helpers import draw_logits
from refocal import BayesianBinning, HistogramBinning, IsotonicCalibration, metrics

NOTHING = 1e-9


def binary(n=1000, seed=0):
    logits, labels = draw_logits(n, 2, seed)
    logits = 2.0 * logits
    return logits, labels, np.exp(log_softmax(logits, axis=1))


def normalised(p, floor):
    """What the calibrators do with the probabilities of the classes, each against the rest."""
    p = p / p.sum(axis=1, keepdims=True)
    return (1.0 - floor) * p + floor / p.shape[1]


def test_isotonic_is_that_of_scikit_learn():
    for n_classes in (2, 4):
        logits, labels = draw_logits(1000, n_classes)
        q = np.exp(log_softmax(logits, axis=1))
        ours = IsotonicCalibration(within="constant", base="softmax", smoothing=NOTHING).fit(logits, labels)
        p = np.stack([IsotonicRegression().fit_transform(q[:, k], labels == k) for k in range(n_classes)], axis=1)
        np.testing.assert_allclose(ours.predict_proba(logits), normalised(p, ours.floor_), atol=1e-8)


def test_smoothing_is_a_hit_below_and_a_miss_above_all_rows():
    logits, labels, q = binary(300)
    ours = IsotonicCalibration(within="constant", base="softmax", smoothing=0.7).fit(logits, labels)
    x = q[:, 1]
    share = labels.mean()  # of the class among the rows that are added, as among all
    fitted = IsotonicRegression(out_of_bounds="clip").fit(
        np.concatenate([x, [x.min(), x.max()]]),
        np.append(labels, [1, 0]),
        np.append(np.ones(300), [0.7 * share, 0.7 * (1.0 - share)]),
    )
    p = fitted.predict(x)
    assert 0.0 < p.min() < p.max() < 1.0
    np.testing.assert_allclose(
        ours.predict_proba(logits), normalised(np.stack([1 - p, p], axis=1), ours.floor_), atol=1e-10
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_isotonic_is_that_of_netcal(n_classes):
    logits, labels = draw_logits(500, n_classes)
    q = np.exp(log_softmax(logits, axis=1))
    ours = IsotonicCalibration(within="constant", base="softmax", smoothing=NOTHING).fit(logits, labels)
    scores = q[:, 1] if n_classes == 2 else q
    p = peers.IsotonicRegression().fit(scores, labels).transform(scores)
    p = np.stack([1 - p, p], axis=1) if n_classes == 2 else p
    np.testing.assert_allclose(ours.predict_proba(logits), normalised(p, ours.floor_), atol=1e-6)


def test_an_isotonic_curve_rises_and_follows_its_pools():
    logits, labels, _ = binary(2000)
    fitted = IsotonicCalibration(smoothing=2.0, base="softmax").fit(logits, labels)
    gap = np.linspace(-40.0, 40.0, 4001)
    p = fitted.predict_log_proba(np.stack([-gap / 2, gap / 2], axis=1))
    odds = p[:, 1] - p[:, 0]
    assert np.all(np.diff(odds) >= -1e-9)
    # The pools by hand: shares of hits that rise, each pool's log-odds moved by what it saw.
    score = logits[:, 1] - logits[:, 0]
    order = np.argsort(score)
    s, y, q = score[order], labels[order], expit(score[order])
    pools = []
    for i in range(len(s)):
        pools.append([i, i + 1])
        while len(pools) > 1 and y[slice(*pools[-2])].mean() >= y[slice(*pools[-1])].mean():
            last = pools.pop()
            pools[-1][1] = last[1]
    knots, log_odds = fitted.curve_.knots[0], fitted.curve_.coefficients[0, 0, 1:]
    moved = 0
    for first, last in pools:
        hits, expected, n = y[first:last].sum(), q[first:last].sum(), last - first
        shift = math.log((hits + 2) / (expected + 2)) - math.log((n - hits + 2) / (n - expected + 2))
        at = np.isclose(knots, s[first], rtol=1e-12)
        moved += int(np.isclose(log_odds[at], s[first] + shift, rtol=1e-9).sum())
    assert moved >= 0.3 * len(pools)  # the others were levelled
    ends = [i for first, last in pools for i in (first, last - 1)]
    np.testing.assert_allclose(knots, np.unique(s[ends]), rtol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_histograms_are_those_of_netcal(n_classes):
    """Of equal width: netcal has no others."""
    logits, labels = draw_logits(1000, n_classes)
    q = np.exp(log_softmax(logits, axis=1))
    ours = HistogramBinning(10, strategy="uniform", within="constant", base="softmax", smoothing=NOTHING)
    p = ours.fit(logits, labels).predict_proba(logits)
    scores = q[:, 1] if n_classes == 2 else q
    theirs = peers.HistogramBinning(10).fit(scores, labels).transform(scores)
    theirs = np.stack([1 - theirs, theirs], axis=1) if n_classes == 2 else theirs
    np.testing.assert_allclose(p, normalised(theirs, ours.floor_), atol=1e-6)


@pytest.mark.parametrize("strategy", ["quantile", "information"])
@pytest.mark.parametrize("within", ["shift", "constant"])
def test_a_histogram_by_hand(strategy, within):
    logits, labels, q = binary(990)
    fitted = HistogramBinning(9, strategy=strategy, within=within, base="softmax", smoothing=2.0).fit(logits, labels)
    order = np.argsort(q[:, 1])
    y, q1 = labels[order], q[order, 1]
    mass = np.ones(990) if strategy == "quantile" else q1 * (1 - q1)
    before = np.cumsum(mass) - mass
    starts = [0, *(int(np.argmin(np.abs(before - mass.sum() * i / 9))) for i in range(1, 9))]
    expected = np.empty(990)
    for first, last in zip(starts, [*starts[1:], 990], strict=True):
        k, e, n = y[first:last].sum(), q1[first:last].sum(), last - first
        if within == "shift":
            odds = (k + 2) / (e + 2) / ((n - k + 2) / (n - e + 2)) * q1[first:last] / (1 - q1[first:last])
            expected[first:last] = odds / (1 + odds)
        else:
            expected[first:last] = (k + 2 * e / n) / (n + 2)
    floor = 1e-3 / 991
    np.testing.assert_allclose(fitted.predict_proba(logits)[order, 1], (1 - floor) * expected + floor / 2, rtol=1e-9)


def test_rows_with_the_same_score_share_a_bin():
    logits = np.round(draw_logits(500, 3)[0])
    labels = draw_logits(500, 3)[1]
    for calibrator in (HistogramBinning(20), BayesianBinning(), IsotonicCalibration()):
        p = calibrator.fit(logits, labels).predict_proba(logits)
        _, group = np.unique(logits, axis=0, return_inverse=True)
        for rows in range(group.max() + 1):
            assert np.all(p[group == rows] == p[group == rows][0])


def test_an_empty_bin_says_what_the_network_says():
    labels = np.array([0, 1] * 50)
    q = np.where(np.arange(100) < 50, 0.05, 0.95)
    logits = np.stack([np.zeros(100), logit(q)], axis=1)
    for within, expected in (("constant", 0.45), ("shift", 0.42)):
        fitted = HistogramBinning(10, strategy="uniform", within=within, base="softmax").fit(logits, labels)
        assert fitted.predict_proba([[0.0, logit(0.42)]])[0, 1] == pytest.approx(expected, abs=1e-5)


def test_bbq_by_hand():
    logits, labels, q = binary(400)
    weight = 2.0
    fitted = BayesianBinning(smoothing=weight, within="constant", base="softmax").fit(logits, labels)
    order = np.argsort(q[:, 1])
    y, q1 = labels[order], q[order, 1]
    scores, curves = [], []
    for n_bins in range(max(1, int(400 ** (1 / 3) / 10)), math.ceil(10 * 400 ** (1 / 3)) + 1):
        starts = sorted({int(np.argmin(np.abs(np.arange(400) - 400 * i / n_bins))) for i in range(n_bins)})
        score, curve = 0.0, np.empty(400)
        for first, last in zip(starts, [*starts[1:], 400], strict=True):
            k, n, each = int(y[first:last].sum()), last - first, weight / len(starts)
            mean = q1[first:last].mean()
            a, b = each * mean, each * (1 - mean)
            score += math.lgamma(each) - math.lgamma(n + each) + math.lgamma(k + a) - math.lgamma(a)
            score += math.lgamma(n - k + b) - math.lgamma(b)
            curve[first:last] = (k + a) / (n + each)
        scores.append(score)
        curves.append(curve)
    share = np.exp(np.array(scores) - max(scores))
    share[share < 0.01] = 0.0
    assert 2 < np.count_nonzero(share) < len(share)
    expected = share @ np.array(curves) / share.sum()
    p = fitted.predict_proba(logits)[order, 1]
    np.testing.assert_allclose(p, (1 - fitted.floor_) * expected + fitted.floor_ / 2, rtol=1e-8)


def test_bbq_is_as_good_as_that_of_netcal():
    """Theirs has bins of equal width, weighed by BIC, so the two agree only in what they do."""
    logits, labels, q = binary(1500)
    test, truth, q_test = binary(4000, seed=1)
    peer = peers.BBQ().fit(q[:, 1], labels)
    theirs = np.clip(peer.transform(q_test[:, 1]), 1e-6, 1 - 1e-6)
    for within in ("constant", "shift"):
        p = BayesianBinning(within=within, smoothing=2.0, base="softmax").fit(logits, labels).predict_proba(test)
        bound = metrics.log_loss(truth, np.log(np.stack([1 - theirs, theirs], axis=1)))
        assert metrics.log_loss(truth, np.log(p)) < min(bound, metrics.log_loss(truth, np.log(q_test)))


@pytest.mark.parametrize("n_rows", [100, 1000])
def test_constant_pools_of_rare_events_are_no_worse_than_their_share(n_rows):
    """Votes of a forest, most of them 0: the rows that keep pools off 0 and 1 do not raise the share of a class."""
    rng = np.random.default_rng(0)
    votes = rng.binomial(20, 0.01 + 0.1 * rng.random(n_rows) ** 6) / 20.0
    labels = (rng.random(n_rows) < 0.02 + 0.5 * votes).astype(int)
    p = np.stack([1.0 - votes, votes], axis=1)
    fitted = IsotonicCalibration(within="constant", input="probabilities").fit(p, labels)
    share = labels.mean()
    loss = -np.mean(np.log(fitted.predict_proba(p)[np.arange(n_rows), labels]))
    assert loss <= -(share * np.log(share) + (1.0 - share) * np.log(1.0 - share)) + 1e-6


def test_bbq_tries_no_more_bins_than_there_are_scores():
    logits, labels = draw_logits(60, 2)
    heavy, heavier = (BayesianBinning().fit(logits, labels, sample_weight=np.full(60, w)) for w in (1e7, 1e9))
    assert len(heavy.curve_.knots[0]) < 60  # one bin for each score at most
    np.testing.assert_allclose(heavy.predict_proba(logits), heavier.predict_proba(logits), atol=1e-5)


@pytest.mark.parametrize("calibrator", [IsotonicCalibration, BayesianBinning, HistogramBinning])
def test_rounding_of_weights_changes_no_bins(calibrator):
    """Equal weights that sum to 1 are none; a tenth of a billionth more weight is no other curve."""
    x = 4.0 * np.random.default_rng(1).normal(size=(500, 2))
    for seed in range(25):
        rng = np.random.default_rng(seed)
        logits = 2.0 * rng.normal(size=(200, 2))
        labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
        weights = (None, 1.0 / 200, 1.1, 1.1000000001)
        none, share, more, still_more = (
            calibrator().fit(logits, labels, None if w is None else np.full(200, w)).predict_proba(x) for w in weights
        )
        np.testing.assert_allclose(share, none, atol=1e-9)
        np.testing.assert_allclose(still_more, more, atol=1e-9)
