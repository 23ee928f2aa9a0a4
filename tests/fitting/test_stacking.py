"""Weights of means of predictions, against a general minimiser."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, softmax

from refocal.fitting.stacking import weights_of_probabilities, weights_of_scores


def by_general_minimiser(loss, counts):
    """The ω of least loss and barrier, with ω = softmax(v)."""

    def cost(v):
        omega = softmax(v)
        return loss(omega) - counts @ np.log(omega)

    return softmax(minimize(cost, np.zeros(len(counts)), options={"gtol": 1e-7}).x)


@pytest.mark.parametrize("n_rows", [5, 400])
def test_weights_of_probabilities_are_those_of_a_general_minimiser(n_rows):
    rng = np.random.default_rng(0)
    log_p = np.log(rng.uniform(0.05, 1.0, size=(4, n_rows)))
    log_p[0] += 0.3
    weight = rng.uniform(0.5, 2.0, n_rows)
    counts = np.array([0.2, 0.1, 0.5, 1.0])

    def loss(omega):
        return -weight @ logsumexp(log_p + np.log(omega)[:, None], axis=0)

    omega = weights_of_probabilities(log_p, weight, counts)
    np.testing.assert_allclose(omega, by_general_minimiser(loss, counts), atol=1e-4)
    assert omega.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_weights_of_scores_are_those_of_a_general_minimiser(n_classes):
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(4, 300, n_classes))
    labels = rng.integers(n_classes, size=300)
    scores[0, np.arange(300), labels] += 1.0
    scores[2, np.arange(300), labels] += 0.3
    weight = rng.uniform(0.5, 2.0, 300)
    counts = np.array([0.5, 2.0, 1.0, 0.01])

    def loss(omega):
        log_p = log_softmax(np.tensordot(omega, scores, axes=1), axis=1)
        return -weight @ log_p[np.arange(300), labels]

    omega = weights_of_scores(scores, labels, weight, counts)
    np.testing.assert_allclose(omega, by_general_minimiser(loss, counts), atol=1e-4)


def test_without_rows_that_tell_the_weights_are_the_pseudo_counts():
    counts = np.array([4.0, 1.0, 3.0])
    same = np.broadcast_to(np.log([0.5, 0.2]), (3, 2))
    np.testing.assert_allclose(weights_of_probabilities(same, np.ones(2), counts), counts / 8.0, atol=1e-6)


def test_from_similar_rows_one_step_is_close():
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(3, 1000, 4))
    labels = rng.integers(4, size=1000)
    scores[1, np.arange(1000), labels] += 0.7
    counts = np.ones(3)
    fit = weights_of_scores(scores, labels, np.ones(1000), counts)
    exact = weights_of_scores(scores[:, 200:], labels[200:], np.ones(800), counts)
    step = weights_of_scores(scores[:, 200:], labels[200:], np.ones(800), counts, fit)
    assert np.abs(step - exact).max() < 0.2 * np.abs(fit - exact).max()
