"""The test of label shift: new shares are accepted, 200 rows of another kind are not."""

from __future__ import annotations

import numpy as np
import pytest

from refocal.shift.label_shift import MOST_ROWS, _features, label_shift_test


def drawn(rng, n, shares, noise=0.0):
    """Probabilities of a model that looks at three noisy columns, and labels."""
    labels = rng.choice(3, n, p=shares)
    x = 2.0 * np.eye(3)[labels] + rng.normal(size=(n, 3))
    scores = 2.0 * (x + noise * rng.normal(size=(n, 3)))
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True), labels


@pytest.fixture(scope="module")
def known():
    return drawn(np.random.default_rng(0), 1000, [0.4, 0.3, 0.3])


def test_new_shares_are_not_rejected(known):
    rejected = []
    for seed in range(15):
        rng = np.random.default_rng(seed)
        p, _ = drawn(rng, 200, rng.dirichlet([1.0, 1.0, 1.0]))
        rejected.append(label_shift_test(*known, p, rng).rejects)
    # 4 % of 15 is 0.6; four or more have a probability of 0.3 %.
    assert np.count_nonzero(rejected) <= 3


def test_a_disturbance_is_found_in_200_rows(known):
    rejected = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        p, _ = drawn(rng, 200, [0.2, 0.3, 0.5], noise=1.0)
        rejected.append(label_shift_test(*known, p, rng).rejects)
    assert np.count_nonzero(rejected) >= 8


def test_two_classes_whose_extremes_are_missing_are_found():
    rng = np.random.default_rng(1)
    event = rng.beta(1.5, 3.0, 3000)
    p = np.stack([1.0 - event, event], axis=1)
    labels = (rng.random(3000) < event).astype(int)
    middle = p[(event > 0.1) & (event < 0.6)][:200]
    found = label_shift_test(p, labels, middle, rng)
    assert found.rejects
    assert found.n_features == 4
    assert found.p_value == pytest.approx(1 / 200)


def test_features_are_polynomials_of_weighted_ranks():
    """Against a plain loop."""
    rng = np.random.default_rng(2)
    reference = np.round(rng.dirichlet(np.ones(3), 40), 1)
    weight = rng.random(40)
    p = np.round(rng.dirichlet(np.ones(3), 7), 1)
    features = _features(reference, weight, np.full(3, 1 / 3))(p)
    assert features.shape == (7, 8)
    for row in range(7):
        for j in range(4):
            score = p[row, j] if j < 3 else p[row].max()
            values = reference[:, j] if j < 3 else reference.max(axis=1)
            below = weight[values < score].sum() / weight.sum()
            equal = weight[values == score].sum() / weight.sum()
            x = 2.0 * (below + 0.5 * equal) - 1.0
            np.testing.assert_allclose(features[row, 2 * j : 2 * j + 2], [x, 0.5 * (3.0 * x**2 - 1.0)], atol=1e-12)


def test_classes_without_labelled_rows_and_many_rows_are_possible(known):
    p, labels = known
    rng = np.random.default_rng(3)
    two = labels < 2
    assert 0.0 < label_shift_test(p[two], labels[two], p[labels == 0], rng, n_draws=9).p_value <= 1.0
    many, _ = drawn(rng, MOST_ROWS + 500, [0.1, 0.3, 0.6])
    assert 0.0 < label_shift_test(p, labels, many, rng, n_draws=9).p_value <= 1.0
