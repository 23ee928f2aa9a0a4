"""Means over rows in blocks: their intervals are those of memory."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from refocal import LogisticCalibration, TemperatureScaling
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

    streamed = _streamed_mean(mean_error, sums, 2)
    low, high = streamed.form(terms.mean(), variance, 0.95, None)

    in_memory = MeanSummary(terms.mean(), terms, None, None, (0.0, 1.0)).interval()
    assert (low, high) == pytest.approx((in_memory.low, in_memory.high))


def test_a_mean_of_ones_own_with_a_sign_has_the_interval_of_memory():
    signed = Metric("excess", lambda y, p: 0.0, "excess", terms=lambda rows: rows.labels, range=(-1.0, 1.0))
    terms = np.array([0.1, -0.2, 0.05, 0.3])
    bins = SimpleNamespace(weight=np.full(1, 4.0), squared_weight=np.full(1, 4.0))
    streamed = _streamed_mean(signed, SimpleNamespace(means={"excess": terms.mean()}, bins=bins), 2)
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


@pytest.mark.parametrize("n_events", [0, 1])
@pytest.mark.parametrize("has_clusters", [False, True])
def test_the_test_of_an_improvement_by_rare_events_in_blocks_is_that_of_memory(n_events, has_clusters):
    """Without an event the terms hardly differ from row to row: the variance is that of a model that is right."""
    rng = np.random.default_rng(0)
    p = 0.02 + 0.01 * rng.random(300)
    y = (np.arange(300) < n_events).astype(np.int64)
    weight = rng.choice([0.0, 1.0, 2.0], 300)
    weight[0] = 1.0
    cluster = (np.arange(300) // 3).astype(str)
    p_fit = 0.04 * rng.random(5000)
    mine = LogisticCalibration(input="probabilities").fit(p_fit, (rng.random(5000) < 0.3 * p_fit).astype(np.int64))
    rows = Predictions.from_probabilities(p, y, weight=weight, clusters=cluster if has_clusters else None)
    parts = [(p[some], y[some], weight[some], {"day": cluster[some]}) for some in (slice(100), slice(100, 300))]

    in_memory = evaluate(rows, {"mine": mine}, n_resamples=10)
    opened = blocks(parts, input="probabilities", clusters="day" if has_clusters else None)
    in_blocks = evaluate(opened, {"mine": mine})

    assert in_memory["mine"].improvement_p_value > 1e-4
    assert in_blocks["mine"].improvement_p_value == pytest.approx(in_memory["mine"].improvement_p_value, rel=1e-6)
