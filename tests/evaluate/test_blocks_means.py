"""Means over rows in blocks: their intervals are those of memory."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from refocal import TemperatureScaling
from refocal.evaluate import evaluate
from refocal.evaluate._blocks import _streamed_mean
from refocal.io import Predictions, blocks
from refocal.metrics import Metric
from refocal.metrics.intervals import MeanSummary


def test_a_mean_of_ones_own_between_0_and_1_has_the_interval_of_memory():
    """A mean of terms is no share of rows: its interval is on the log scale in blocks too."""
    mean_error = Metric("mean_error", lambda y, p: 0.0, "mean error", terms=lambda rows: rows.labels, range=(0.0, 1.0))
    terms = np.array([0.1, 0.2, 0.05, 0.3])
    variance = terms.var(ddof=1) / len(terms)
    bins = SimpleNamespace(weight=np.full(1, 4.0), squared_weight=np.full(1, 4.0))
    sums = SimpleNamespace(means={"mean_error": terms.mean()}, bins=bins)

    streamed = _streamed_mean(mean_error, sums)
    low, high = streamed.form(terms.mean(), variance, 0.95, None)

    in_memory = MeanSummary(terms.mean(), terms, None, None, (0.0, 1.0)).interval()
    assert (low, high) == pytest.approx((in_memory.low, in_memory.high))


def test_a_mean_of_ones_own_with_a_sign_has_the_interval_of_memory():
    signed = Metric("excess", lambda y, p: 0.0, "excess", terms=lambda rows: rows.labels, range=(-1.0, 1.0))
    terms = np.array([0.1, -0.2, 0.05, 0.3])
    bins = SimpleNamespace(weight=np.full(1, 4.0), squared_weight=np.full(1, 4.0))
    streamed = _streamed_mean(signed, SimpleNamespace(means={"excess": terms.mean()}, bins=bins))
    for values in (terms, np.full(4, 0.1)):  # of equal terms others may be anywhere within the limits
        low, high = streamed.form(values.mean(), values.var(ddof=1) / 4, 0.95, None)
        in_memory = MeanSummary(values.mean(), values, None, None, (-1.0, 1.0)).interval()
        assert (low, high) == pytest.approx((in_memory.low, in_memory.high))


@pytest.fixture(scope="module", params=["rows", "clusters"])
def few_rows(request):
    """Few rows of two classes with rare events, in memory and in blocks."""
    rng = np.random.default_rng(5)
    log_odds = 1.5 * rng.normal(size=300) - 3.0
    y = (rng.random(300) < 1.0 / (1.0 + np.exp(-log_odds))).astype(int)
    logits = np.column_stack([np.zeros(300), 2.0 * log_odds])
    fitted = TemperatureScaling().fit(logits, y)
    day = np.array([f"day {i}" for i in np.arange(300) // 6])
    is_clustered = request.param == "clusters"
    rows = Predictions.from_logits(logits, y)
    in_memory = evaluate(rows, {"ts": fitted}, clusters={"day": day} if is_clustered else None, n_resamples=10)
    parts = [(logits[i::2], y[i::2], None, {"day": day[i::2]} if is_clustered else {}) for i in range(2)]
    in_blocks = evaluate(blocks(parts, clusters="day" if is_clustered else None), {"ts": fitted})
    return in_memory, in_blocks


def test_losses_and_their_differences_in_blocks_have_the_intervals_of_memory(few_rows):
    in_memory, in_blocks = few_rows
    for name in ("log_loss", "brier_score"):
        exact = in_memory["ts"].measures[name]
        found = in_blocks["ts"].measures[name]
        assert (found.low, found.high) == pytest.approx((exact.low, exact.high), rel=1e-6)
        difference = in_memory["ts"].against_none[name]
        in_parts = in_blocks["ts"].against_none[name]
        assert difference.difference != 0.0
        assert (in_parts.low, in_parts.high) == pytest.approx((difference.low, difference.high), rel=1e-6)
        assert in_parts.p_value == pytest.approx(difference.p_value, rel=1e-6)


def test_the_mean_that_a_report_states_has_in_blocks_the_interval_of_memory(few_rows):
    in_memory, in_blocks = few_rows
    for method in ("none", "ts"):
        exact = in_memory[method].measures["mean_bias"]
        found = in_blocks[method].measures["mean_bias"]
        assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=1e-5)
    exact = in_memory.before.stated_bias
    found = in_blocks.before.stated_bias
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=1e-5)


def test_one_row_in_blocks_that_is_classified_wrongly_has_no_interval():
    rows = blocks([(np.array([[2.0, 0.0]]), np.array([1]))])
    measured = evaluate(rows, {}).before.measures

    assert measured["accuracy"].value == 0.0
    assert measured["log_loss"].value == pytest.approx(np.log1p(np.exp(2.0)))
