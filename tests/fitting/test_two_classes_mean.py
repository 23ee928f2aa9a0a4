"""The mean of curves of two classes: its members, what few rows support, and what it reports."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression

from refocal import AutoCalibration
from refocal.errors import FitWarning
from refocal.fitting import two_classes
from refocal.fitting.two_classes import MemberProbabilities, fit_isotonic, fit_members, fit_two_classes, log_losses
from refocal.maps.curves import Pieces


def sample(n_rows, seed=0, slope=1.0, intercept=0.0):
    rng = np.random.default_rng(seed)
    x = 2.0 * rng.normal(size=n_rows)
    return x, rng.random(n_rows) < expit(slope * x + intercept)


def test_isotonic_blocks_follow_laplaces_rule():
    x, is_class = sample(200)
    curve = fit_isotonic(x, is_class, np.ones(200))
    blocks = IsotonicRegression().fit_transform(x, is_class)
    for value in np.unique(blocks):
        inside = blocks == value
        if inside.sum() > 20:  # small blocks at the ends may be put together
            p = (is_class[inside].sum() + 1.0) / (inside.sum() + 2.0)
            assert curve(np.array([x[inside].mean()]))[0] == pytest.approx(logit(p), abs=1e-9)


def test_blocks_of_large_weights_follow_laplaces_rule_too():
    x = np.array([-2.0, -1.0, 1.0, 2.0])
    weight = np.full(4, 1e20)
    curve = fit_isotonic(x, np.array([False, False, True, True]), weight)
    assert curve(np.array([-1.5, 1.5])) == pytest.approx([-np.log(2e20), np.log(2e20)], rel=1e-12)


@pytest.mark.parametrize("weight", [0.1, 1.0 / 3.0, 7.0])
def test_blocks_of_one_share_are_one_whatever_rounding_makes_of_it(weight):
    # Shares of 1/3, in blocks that no regression has to pool: three rows, six, and six of which four are ties.
    x = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 10.0, 10.0, 10.0, 11.0])
    is_class = np.zeros(15, dtype=bool)
    is_class[[0, 3, 6, 9, 12]] = True
    curve = fit_isotonic(x, is_class, np.full(15, weight))
    assert curve(x) == pytest.approx(np.full(15, logit((5.0 * weight + 1.0) / (15.0 * weight + 2.0))), abs=1e-12)


def test_equal_weights_are_none():
    for seed in range(20):
        x, is_class = sample(200, seed=seed)
        alone = AutoCalibration(input="log-odds").fit(x, is_class)
        weighted = AutoCalibration(input="log-odds").fit(x, is_class, sample_weight=np.full(200, 0.3))
        np.testing.assert_allclose(weighted.predict_proba(x), alone.predict_proba(x), atol=1e-7, err_msg=str(seed))


def test_masks_do_not_make_other_scores_of_isotonic_regression_equal():
    x, is_class = sample(20_000)
    masked = np.append(x, np.full(6000, -1e8))
    with_masks = fit_isotonic(masked, np.append(is_class, np.zeros(6000, dtype=bool)), np.ones(26_000))
    at = np.linspace(-3.0, 5.0, 33)
    np.testing.assert_allclose(with_masks(at), fit_isotonic(x, is_class, np.ones(20_000))(at), rtol=1e-12)


def test_every_member_recovers_what_it_is_made_for():
    x, _ = sample(20_000)
    rng = np.random.default_rng(1)
    truths = {
        "line": 0.5 * x - 1.0,
        "beta": 0.5 * np.logaddexp(0.0, x) - 1.5 * np.logaddexp(0.0, -x) + 0.2,
        "probability": 4.0 * expit(x) - 2.5,
    }
    for name, truth in truths.items():
        curve = fit_members(x, rng.random(20_000) < expit(truth), np.ones(20_000))[two_classes.MEMBERS.index(name)]
        inside = np.abs(x) < 4.0
        assert np.sqrt(np.mean((curve(x) - truth)[inside] ** 2)) < 0.12, name


def test_the_table_is_the_mean():
    x, is_class = sample(600, slope=0.5, intercept=1.0)
    fold = np.arange(600) % 5
    fit = fit_two_classes(x, is_class, np.ones(600), fold)
    at = np.linspace(-8.0, 8.0, 301)
    curves = fit_members(x, is_class, np.ones(600))
    exact = fit.mean.of(MemberProbabilities.of(np.stack([curve(at) for curve in curves])))
    np.testing.assert_allclose(Pieces.of(fit.pieces).apply(np, at[:, None])[:, 0], exact, atol=0.03)


def test_scores_that_are_right_are_hardly_changed():
    """The mean stays between the truth and a line fitted to few rows."""
    lost = []
    for seed in range(10):
        x, is_class = sample(200, seed)
        p = AutoCalibration(input="log-odds").fit(x, is_class).predict_proba(x)[:, 1]
        truth = expit(x)
        lost.append(np.mean(truth * np.log(truth / p) + (1.0 - truth) * np.log((1.0 - truth) / (1.0 - p))))
    assert np.mean(lost) < 0.7 / 200  # a line alone loses 1/n, two parameters


def test_extreme_scores_say_no_more_than_the_rows_support():
    """Naive Bayes: log-odds to ±900 that are right in four of five rows."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=500)
    right = rng.random(500) < 0.8
    scores = np.where(right == (labels == 1), 1.0, -1.0) * rng.uniform(1.0, 900.0, size=500)
    fitted = AutoCalibration(input="log-odds").fit(scores[:400], labels[:400])
    p = fitted.predict_proba(np.array([-900.0, 900.0]))[:, 1]
    np.testing.assert_allclose(p, [0.2, 0.8], atol=0.12)
    loss = log_losses(logit(fitted.predict_proba(scores[400:])[:, 1]), labels[400:] == 1).mean()
    assert loss < 0.6


@pytest.mark.parametrize("n_events", [1, 3, 5])
def test_few_events_are_warned_of_whatever_the_rows(n_events):
    x, _ = sample(200)
    labels = (np.argsort(np.argsort(-x)) < n_events).astype(int)
    with pytest.warns(FitWarning, match=f"Only {n_events} of 200 rows are of class 1"):
        AutoCalibration(input="log-odds").fit(x, labels)


def test_the_class_that_hardly_occurs_is_named():
    x, is_class = sample(200)
    labels = np.where(np.argsort(np.argsort(-x)) < 4, "fraud", "none")
    with pytest.warns(FitWarning, match="Only 4 of 200 rows are of class 'fraud'"):
        AutoCalibration().fit(np.stack([x, np.zeros(200)], axis=1), labels)
    with pytest.warns(FitWarning, match="Only 4 of 200 rows are of class True"):
        AutoCalibration(input="log-odds").fit(x, labels == "fraud")
    fitted = AutoCalibration(input="log-odds").fit(x, is_class)
    assert "rows are of class" not in fitted.report_


def test_of_more_classes_those_that_hardly_occur_are_named():
    rng = np.random.default_rng(0)
    names = np.array(["a", "b", "c", "d", "e", "f"])
    labels = np.repeat(np.arange(6), [2, 160, 3, 160, 4, 5])
    logits = rng.normal(size=(len(labels), 6)) + np.eye(6)[labels]
    expected = "Only 2 of 334 rows are of class 'a', 3 of 334 rows are of class 'c', 4 of 334 rows are of class 'e'"
    with pytest.warns(FitWarning, match=expected + ", and as few of 1 more: "):
        AutoCalibration().fit(logits, names[labels])
    few_of_all = rng.permutation(len(labels))[:200]  # of six classes: 3 rows of one are few, and 33 on average too
    assert "rows are of class" not in AutoCalibration().fit(logits[few_of_all], labels[few_of_all]).report_


def test_the_share_of_no_calibration_follows_from_what_calibration_gains():
    """1 / (1 + exp(D/4)), where D is what all rows left out gain, by a loop over them."""
    for slope in (1.0, 0.7):
        x, is_class = sample(300, slope=slope)
        fold = np.arange(300) % 5
        left_out = np.empty((6, 300))
        for i in range(5):
            curves = fit_members(x[fold != i], is_class[fold != i], np.ones((fold != i).sum()))
            for scores, curve in zip(left_out, curves, strict=True):
                scores[fold == i] = curve(x[fold == i])
        mean = fit_two_classes(x, is_class, np.ones(300), fold).mean
        calibrated = mean._replace(share_uncalibrated=0.0).of(MemberProbabilities.of(left_out))
        gain = 0.0
        for before, after, of_class in zip(x, calibrated, is_class, strict=True):
            sign = 1.0 if of_class else -1.0
            gain += np.log(expit(sign * after)) - np.log(expit(sign * before))
        assert mean.share_uncalibrated == pytest.approx(1.0 / (1.0 + np.exp(0.25 * gain)), rel=1e-9)


def test_the_log_loss_of_rows_left_out_is_unbiased():
    """On average over fits, to half a standard error of one; the sample's own luck is taken out by the truth."""
    n_rows = 300
    new = sample(20_000, seed=99)[0]
    truth = expit(new)
    entropy = -np.mean(truth * np.log(truth) + (1.0 - truth) * np.log1p(-truth))
    excess = []
    for seed in range(12):
        x, is_class = sample(n_rows, seed)
        fitted = AutoCalibration(input="log-odds").fit(1.5 * x + 0.5, is_class)
        p = fitted.predict_proba(1.5 * new + 0.5)[:, 1]
        expected = -np.mean(truth * np.log(p) + (1.0 - truth) * np.log1p(-p))
        luck = log_losses(x, is_class).mean() - entropy
        excess.append(fitted.choice_["log_loss_out_of_fold"]["mean"] - luck - expected)
    half_a_standard_error = 0.5 * log_losses(*sample(n_rows)).std() / np.sqrt(n_rows)
    assert abs(np.mean(excess)) < half_a_standard_error


def test_a_row_less_changes_little():
    x, is_class = sample(500, slope=0.7)
    whole = AutoCalibration(input="log-odds").fit(x, is_class).predict_proba(x)
    moved = [
        np.abs(AutoCalibration(input="log-odds").fit(np.delete(x, i), np.delete(is_class, i)).predict_proba(x) - whole)
        for i in range(0, 500, 50)
    ]
    assert np.median([change.max() for change in moved]) < 0.05


def test_scores_that_are_equal_but_for_rounding_give_the_same_fit():
    """Whole log-odds repeat; logarithms of their probabilities differ in last digits."""
    rng = np.random.default_rng(1)
    logits = np.round(3.0 * rng.normal(size=(96, 2)))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    by_logits = AutoCalibration().fit(logits, labels).predict_proba(logits)
    by_probabilities = AutoCalibration(input="probabilities").fit(p, labels).predict_proba(p)
    np.testing.assert_allclose(by_probabilities, by_logits, rtol=0.0, atol=1e-9)
