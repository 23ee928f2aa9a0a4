"""The number of a metric of Predictions, whichever scores these have, against plain sums over probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, softmax

from helpers import draw_logits
from refocal.io import Predictions
from refocal.metrics import METRICS, Metric


def every_kind(logits, labels, weight):
    """The same rows as logits and as probabilities; of two classes as log-odds and the probability of class 1 too."""
    p = softmax(logits, axis=1)
    yield Predictions.from_logits(logits, labels, weight=weight)
    yield Predictions.from_probabilities(p, labels, weight=weight)
    if logits.shape[1] == 2:
        log_odds = logits[:, 1] - logits[:, 0]
        yield Predictions.from_log_odds(log_odds, labels, weight=weight)
        yield Predictions.from_probabilities(expit(log_odds), labels, weight=weight)


@pytest.mark.parametrize("weighted", [False, True])
def test_skill_of_predictions_is_that_of_their_probabilities(weighted):
    logits, labels = draw_logits(300, 2)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 300) if weighted else None
    share = np.ones(300) / 300 if weight is None else weight / weight.sum()
    p = softmax(logits, axis=1)[:, 1]
    rate = share @ labels
    squares = share @ (p - labels) ** 2
    entropy = -rate * np.log(rate) - (1 - rate) * np.log(1 - rate)
    log_loss = -share @ np.log(np.where(labels == 1, p, 1 - p))
    for rows in every_kind(logits, labels, weight):
        assert METRICS["brier_skill"].measure(rows) == pytest.approx(1 - squares / (rate * (1 - rate)))
        assert METRICS["log_loss_skill"].measure(rows) == pytest.approx(1 - log_loss / entropy)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_function_of_ones_own_is_given_the_probabilities_of_predictions(n_classes):
    def share_of_last(_, p):
        return float(np.mean(p if p.ndim == 1 else p[:, -1]))

    logits, labels = draw_logits(200, n_classes)
    expected = softmax(logits, axis=1)[:, -1].mean()
    for rows in every_kind(logits, labels, None):
        assert Metric.of_function(share_of_last).measure(rows) == pytest.approx(expected)
