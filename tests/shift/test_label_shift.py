"""The test of label shift: new shares are accepted, 200 rows of another kind are not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from refocal.shift.label_shift import MOST_ROWS, _features, _gain_of_tilt, label_shift_test


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


def two_classes(rng, n, lift=0.0):
    """Calibrated probabilities of a weak model, whose log-odds are moved by `lift` with their rows; and labels."""
    log_odds = rng.normal(lift, 0.5, n)
    event = 1.0 / (1.0 + np.exp(-log_odds))
    return np.stack([1.0 - event, event], axis=1), (rng.random(n) < event).astype(int)


def test_rows_of_two_classes_from_elsewhere_are_found_and_new_shares_are_not():
    known = two_classes(np.random.default_rng(0), 2000)
    p, labels = two_classes(np.random.default_rng(9), 20_000)
    of_class = [np.flatnonzero(labels == k) for k in (0, 1)]
    moved = []
    of_new_shares = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        moved.append(label_shift_test(*known, two_classes(rng, 200, lift=0.2)[0], rng, n_draws=99).rejects)
        n_events = rng.binomial(200, rng.uniform(0.1, 0.9))
        rows = np.concatenate([rng.choice(of_class[0], 200 - n_events), rng.choice(of_class[1], n_events)])
        of_new_shares.append(label_shift_test(*known, p[rows], rng, n_draws=99).rejects)
    # The differences of the means alone find 7 of the 12.
    assert np.count_nonzero(moved) >= 10
    # 4 % of 12 is 0.5; four or more have a probability of 0.1 %.
    assert np.count_nonzero(of_new_shares) <= 3


def test_shares_without_a_class_that_its_probabilities_give_are_no_explanation():
    known = two_classes(np.random.default_rng(0), 2000)
    moved, _ = two_classes(np.random.default_rng(7), 200, lift=0.2)
    found = label_shift_test(*known, moved, np.random.default_rng(7))
    # The scores are those of events alone, as far as 200 rows tell.
    assert (found.gone, found.rejects) == (0, True)
    assert found.p_value > 0.1
    assert label_shift_test(*known, known[0][:200], np.random.default_rng(0)).gone is None


def test_a_class_that_has_gone_is_accepted_where_a_model_tells_it():
    rng = np.random.default_rng(1)
    labels = rng.integers(2, size=2000)

    def probabilities(of_rows):
        event = 1.0 / (1.0 + np.exp(-4.0 * rng.normal(4.0 * of_rows - 2.0, 1.0)))
        return np.stack([1.0 - event, event], axis=1)

    p = probabilities(labels)
    rejected = []
    for _ in range(6):
        found = label_shift_test(p, labels, probabilities(np.zeros(200)), rng, n_draws=99)
        assert found.gone is None
        rejected.append(found.rejects)
    assert np.count_nonzero(rejected) <= 2


def test_the_gain_of_a_tilt_is_the_largest_log_likelihood():
    """Against a bounded search, of weighted scores."""
    rng = np.random.default_rng(4)
    known = rng.normal(size=300)
    new = rng.normal(0.7, 1.2, 50)
    count_known = rng.integers(1, 4, 300).astype(float)
    count_new = rng.random(50)
    share = count_known / count_known.sum()
    mean = share @ known
    spread = np.sqrt(share @ (known - mean) ** 2)
    z = (known - mean) / spread
    of_new = np.clip((new - mean) / spread, -4.0, 4.0)

    def cost(theta):
        return -(count_new @ (theta * of_new - np.log(share @ np.exp(theta * z))))

    best = -minimize_scalar(cost, bounds=(-5.0, 5.0), method="bounded").fun
    assert best > 1.0
    assert _gain_of_tilt(new, count_new, known, count_known) == pytest.approx(best, abs=1e-3)
    same = np.full(300, 0.4)
    assert _gain_of_tilt(same[:50], count_new, same, count_known) == 0.0


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


def test_the_gain_of_a_tilt_is_finite_where_new_scores_are_beyond_all_known_ones():
    """As single rows among the draws of the test may be."""
    rng = np.random.default_rng(0)
    known = rng.normal(size=300)
    for new in (known.max() + 1.0, known.min() - 1.0, known.max()):
        found = _gain_of_tilt(np.array([new]), np.ones(1), known, np.ones(300))
        tilts = np.linspace(-20.0, 20.0, 40_001)
        z = np.clip((np.append(known, new) - known.mean()) / known.std(), -4.0, 4.0)
        values = tilts * z[-1] - logsumexp(tilts[:, None] * z[None, :-1], axis=1) + np.log(300)
        assert found == pytest.approx(values.max(), abs=1e-3)


def test_one_row_is_compared_without_a_number_that_is_none():
    rng = np.random.default_rng(0)
    log_odds = 1.5 * rng.normal(size=1000)
    probability = 1 / (1 + np.exp(-log_odds))
    labels = (rng.random(1000) < probability).astype(int)
    reference = np.stack([1 - probability, probability], axis=1)
    for seed in range(30):
        row = reference[rng.integers(1000, size=1)]
        assert np.isfinite(label_shift_test(reference, labels, row, np.random.default_rng(seed)).statistic)
