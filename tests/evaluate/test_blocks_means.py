"""Means over rows in blocks: their intervals are those of memory."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from refocal.evaluate import evaluate
from refocal.evaluate._blocks import _streamed_mean
from refocal.io import blocks
from refocal.metrics import Metric
from refocal.metrics.intervals import MeanSummary


def test_a_mean_of_ones_own_between_0_and_1_has_the_interval_of_memory():
    """A mean of terms is no share of rows: its interval is on the log scale in blocks too."""
    mean_error = Metric("mean_error", lambda y, p: 0.0, "mean error", terms=lambda rows: rows.labels, range=(0.0, 1.0))
    terms = np.array([0.1, 0.2, 0.05, 0.3])
    variance = terms.var(ddof=1) / len(terms)
    sums = SimpleNamespace(means={"mean_error": terms.mean()}, bins=None)

    streamed = _streamed_mean(mean_error, sums)
    low, high = streamed.form(terms.mean(), variance, 0.95, len(terms))

    in_memory = MeanSummary(terms.mean(), terms, None, None, (0.0, 1.0)).interval()
    assert (low, high) == pytest.approx((in_memory.low, in_memory.high))


def test_one_row_in_blocks_that_is_classified_wrongly_has_no_interval():
    rows = blocks([(np.array([[2.0, 0.0]]), np.array([1]))])
    measured = evaluate(rows, {}).before.measures

    assert measured["accuracy"].value == 0.0
    assert measured["log_loss"].value == pytest.approx(np.log1p(np.exp(2.0)))
