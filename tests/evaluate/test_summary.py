"""Sentences on an evaluation: their numbers tell apart what they say is different."""

from __future__ import annotations

import re

import numpy as np

from refocal.evaluate import compare
from refocal.evaluate.summary import verdict
from refocal.io import Predictions


def test_a_log_loss_that_falls_is_written_with_the_digits_that_show_it():
    """Of a model that is nearly always right, which is slightly too sure: it fell from 0.077 to 0.077."""
    rng = np.random.default_rng(0)
    scores = 9.0 * rng.dirichlet(np.full(3, 0.1), 60_000)
    labels = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
    validation = Predictions.from_logits(1.08 * scores[:20_000], labels[:20_000])
    test = Predictions.from_logits(1.08 * scores[20_000:], labels[20_000:])
    said = verdict(compare(validation, test, ["ts"], chosen="ts", n_resamples=10))
    numbers = re.search(r"lowers the log-loss from (0\.\d+) to (0\.\d+);", said)
    assert numbers is not None
    assert float(numbers[1]) > float(numbers[2])
