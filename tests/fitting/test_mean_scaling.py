"""The mean of scalings: one scaling again, without a cliff where rows are few."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from refocal import AutoCalibration, TemperatureScaling
from refocal.engine import Block
from refocal.fitting.confidence import draft_tail
from refocal.fitting.folds import random_folds
from refocal.fitting.mean_scaling import Members, log_shares, without_smallest
from refocal.fitting.temperature import newton_temperature


def sample(n_rows, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    log_p = log_softmax(2.0 * rng.normal(size=(n_rows, n_classes)), axis=1)
    return log_p, np.argmax(log_p + rng.gumbel(size=log_p.shape), axis=1)


def test_the_mean_of_scalings_is_one_scaling():
    log_p, labels = sample(400)
    logits = 1.7 * log_p + np.arange(4)
    rows = Block(logits, labels)
    temperature = newton_temperature(rows).temperature
    members = Members(rows, temperature, random_folds(rows, 5, 0))
    omega = np.full(len(members.names), 1.0 / len(members.names))
    mean = members.mean_scaling(omega, rows)
    z = log_softmax(logits / temperature, axis=1)
    scores = [z, logits, np.broadcast_to(log_shares(labels, np.ones(400), 4), z.shape)]
    scores += [scaling.step().of_features(z) for scaling in members.scalings]
    expected = log_softmax(sum(log_softmax(member, axis=1) for member in scores) / len(scores), axis=1)
    np.testing.assert_allclose(log_softmax(mean.step().of_features(z), axis=1), expected, atol=1e-5)


def test_scores_of_rows_left_out_do_not_know_their_labels():
    log_p, labels = sample(100)
    rows = Block(log_p, labels)
    fold = random_folds(rows, 5, 0)
    other = labels.copy()
    other[fold == 2] = (other[fold == 2] + 1) % 4
    members, changed = (Members(Block(log_p, given), 1.0, fold) for given in (labels, other))
    for name in members.names[2:]:  # those that were fitted to labels
        change = np.abs(softmax(members.scores(name), axis=1) - softmax(changed.scores(name), axis=1))
        # The fits start from those of all rows, and end within a tolerance of their own.
        assert change[fold == 2].max() < 0.005
        assert change[fold == 1].max() > 0.04


@pytest.mark.parametrize("scale", [1e4, 1e6])
def test_log_losses_of_rows_left_out_do_not_depend_on_the_scale_of_logits(scale):
    log_p, labels = sample(600)
    usual, large = (AutoCalibration().fit(logits, labels).choice_ for logits in (log_p, scale * log_p))
    log_losses = usual["log_loss_out_of_fold"]
    for name in ("mean", "temperature", "shares"):
        assert large["log_loss_out_of_fold"][name] == pytest.approx(log_losses[name], abs=5e-3)


def test_impossible_classes_have_no_share_in_rows_left_out():
    """Two of four classes can occur in each row; logits say nothing of them, so that their shares are all there is."""
    rng = np.random.default_rng(0)
    possible = np.argsort(rng.random((4_000, 4)), axis=1) < 2
    share = np.array([0.55, 0.25, 0.15, 0.05]) * possible
    share /= share.sum(axis=1, keepdims=True)
    labels = np.argmax(np.log(np.where(possible, share, 1e-300)) + rng.gumbel(size=share.shape), axis=1)
    logits = np.where(possible, 0.05 * rng.normal(size=share.shape), -np.inf)
    log_losses = AutoCalibration().fit(logits, labels).choice_["log_loss_out_of_fold"]
    observed = np.bincount(labels) / 4_000
    loss_of_shares = [np.log(observed[row].sum() / observed[y]) for row, y in zip(possible, labels, strict=True)]
    assert log_losses["shares"] == pytest.approx(np.mean(loss_of_shares), abs=2e-3)
    assert log_losses["mean"] == pytest.approx(-np.mean(np.log(share[np.arange(4_000), labels])), abs=0.02)


def test_rows_with_a_single_possible_class_leave_the_tail():
    """The top is right in 60 % of the rows where logits are large: the last slope of the curve is next to 0."""
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(600, 3))
    is_random = rng.random(600) < np.where(logits.max(axis=1) > 3.0, 0.6, 0.4)
    labels = np.where(is_random, rng.integers(3, size=600), np.argmax(logits, axis=1))
    certain = np.where(np.eye(3, dtype=bool)[rng.integers(3, size=60)], 1.0, -np.inf)
    both = Block(np.concatenate([logits, certain]), np.append(labels, np.argmax(certain, axis=1)))
    alone, together = draft_tail(Block(logits, labels)), draft_tail(both)
    np.testing.assert_array_equal(together.point, alone.point)
    np.testing.assert_array_equal(together.curve.theta, alone.curve.theta)


def test_members_of_small_weight_are_left_out():
    np.testing.assert_allclose(without_smallest(np.array([0.01, 0.39, 0.6])), [0.0, 39 / 99, 60 / 99])


@pytest.mark.parametrize("n_classes", [3, 5])
def test_there_is_no_cliff_at_100_rows(n_classes):
    """Intercepts that are needed are fitted to 99 rows as to 100."""
    new, _ = sample(3000, n_classes, seed=1)
    shift = np.linspace(-2.0, 2.0, n_classes)

    def excess(calibrator, log_p, labels):
        p = calibrator.fit(log_p + shift, labels).predict_log_proba(new + shift)
        return np.mean(np.sum(np.exp(new) * (new - p), axis=1))

    of_99, of_100, by_temperature = [], [], []
    for seed in range(2, 6):
        log_p, labels = sample(100, n_classes, seed)
        of_99.append(excess(AutoCalibration(), log_p[:99], labels[:99]))
        of_100.append(excess(AutoCalibration(), log_p, labels))
        by_temperature.append(excess(TemperatureScaling(), log_p, labels))
    assert np.mean(of_99) == pytest.approx(np.mean(of_100), rel=0.3)
    assert np.mean(of_99) < 0.35 * np.mean(by_temperature)
