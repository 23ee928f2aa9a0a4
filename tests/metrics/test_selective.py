"""Selective prediction: areas and rates against plain loops; influences against differences of weights; coverage."""

from __future__ import annotations

import numpy as np
import pytest

from refocal.evaluate import evaluate
from refocal.io import Predictions, blocks
from refocal.metrics import (
    METRICS,
    augrc,
    aurc,
    bootstrap_interval,
    coverage_at_risk,
    e_aurc,
    paired_bootstrap,
    risk_at_coverage,
    roc_auc,
)
from refocal.metrics.inputs import read_probabilities
from refocal.metrics.selective import _RiskCurve
from refocal.rows.predictions import probability_rows

pytestmark = pytest.mark.numerics

NAMES = ("aurc", "e_aurc", "augrc")


def draw(n=300, seed=0, digits=None):
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(n, 4))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y = np.array([rng.choice(4, p=row) for row in p])
    if digits is not None:
        p = p.round(digits)
        p /= p.sum(axis=1, keepdims=True)
    return y, p, rng.random(n) + 0.1


@pytest.mark.parametrize("digits", [None, 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_areas_are_those_of_loops_over_thresholds(digits, weighted):
    y, p, weight = draw(digits=digits)
    w = weight if weighted else np.ones(len(y))
    confidence = p.max(axis=1)
    wrong = p.argmax(axis=1) != y
    risks, generalised = 0.0, 0.0
    for i in range(len(y)):
        above = confidence > confidence[i]
        same = confidence == confidence[i]
        risks += w[i] * (w * wrong)[above | same].sum() / w[above | same].sum()
        generalised += w[i] * ((w * wrong)[above].sum() + 0.5 * (w * wrong)[same].sum()) / w.sum()
    given = {"sample_weight": w} if weighted else {}
    assert aurc(y, p, **given) == pytest.approx(risks / w.sum(), rel=1e-10)
    assert augrc(y, p, **given) == pytest.approx(generalised / w.sum(), rel=1e-10)
    rate = np.average(wrong, weights=w)
    assert e_aurc(y, p, **given) == pytest.approx(aurc(y, p, **given) - rate - (1 - rate) * np.log1p(-rate), abs=1e-12)


def test_augrc_is_the_area_under_the_roc_curve_of_failures_in_other_words():
    y, p, _ = draw()
    wrong = p.argmax(axis=1) != y
    rate = wrong.mean()
    area = roc_auc(wrong.astype(int), 1 - p.max(axis=1))
    # Traub et al. 2024, Equation 7
    assert augrc(y, p) == pytest.approx((1 - area) * rate * (1 - rate) + rate**2 / 2, rel=1e-10)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("digits", [None, 1])
def test_the_influence_of_a_row_is_the_derivative_in_its_weight(name, digits):
    y, p, weight = draw(60, digits=digits)
    metric = METRICS[name]
    step = 1e-5

    def at(i, change):
        moved = weight.copy()
        moved[i] += change
        return metric.function(y, p, sample_weight=moved)

    derivatives = np.array([(at(i, step) - at(i, -step)) / (2 * step) for i in range(60)])
    rows = probability_rows(y, p, weight)
    influence = metric.streamed(rows).influence(rows)
    centred = influence - np.average(influence, weights=weight)
    assert centred / weight.sum() == pytest.approx(derivatives, rel=1e-3, abs=1e-7)


def test_the_best_order_has_next_to_no_excess_and_no_error_has_an_upper_end():
    n = 2000
    confidence = np.linspace(0.5, 0.99, n)
    p = np.stack([confidence, 1 - confidence], axis=1)
    y = (np.arange(n) < 400).astype(int)  # the least confident rows are wrong
    assert e_aurc(y, p) < 1e-3
    perfect = bootstrap_interval(aurc, 0 * y, p)
    assert perfect.value == perfect.low == 0.0 < perfect.high < 0.003


def test_intervals_cover_and_differences_are_paired():
    truth = aurc(*draw(60_000, 99)[:2]), augrc(*draw(60_000, 99)[:2])
    held = np.zeros(2)
    for seed in range(150):
        y, p, _ = draw(250, seed)
        for i, metric in enumerate((aurc, augrc)):
            interval = bootstrap_interval(metric, y, p)
            held[i] += interval.low <= truth[i] <= interval.high
    assert (held / 150 > 0.9).all()
    y, p, _ = draw(500)
    worse = 0.5 * p + 0.125
    assert abs(paired_bootstrap(aurc, y, worse, p, n_resamples=20).difference) < 1e-12  # the order is the same


def test_the_risk_at_a_coverage_and_back():
    y, p, _ = draw(1000)
    confidence = p.max(axis=1)
    wrong = p.argmax(axis=1) != y
    order = np.argsort(-confidence)
    found = risk_at_coverage(y, p, coverage=0.3)
    assert found.coverage == 0.3
    assert found.threshold == confidence[order[299]]
    assert found.risk.value == pytest.approx(wrong[order[:300]].mean())
    assert found.risk.low < found.risk.value < found.risk.high
    assert risk_at_coverage(y, p, coverage=1.0).risk.value == pytest.approx(wrong.mean())
    back = coverage_at_risk(y, p, risk=found.risk.value)
    assert back.value >= 0.3
    assert back.low < back.value < back.high
    risks = np.cumsum(wrong[order]) / np.arange(1, 1001)
    assert back.value == np.flatnonzero(risks <= found.risk.value)[-1] / 1000 + 0.001
    assert coverage_at_risk(y, p, risk=1.0).value == 1.0
    assert coverage_at_risk(1 - (p[:, 0] > 0.5), p[:, 0], risk=0.0).value == 0.0


def test_clusters_that_repeat_say_no_more_than_one():
    y, p, _ = draw(150)
    repeated = np.repeat(np.arange(150), 4)
    once = risk_at_coverage(y, p, coverage=0.5).risk
    clustered = risk_at_coverage(y[repeated], p[repeated], coverage=0.5, clusters=repeated).risk
    plain = risk_at_coverage(y[repeated], p[repeated], coverage=0.5).risk
    assert clustered.high - clustered.low == pytest.approx(once.high - once.low, rel=0.05)
    assert plain.high - plain.low < 0.6 * (once.high - once.low)


def test_evaluations_of_many_classes_have_them_in_memory_and_in_blocks():
    y, p, weight = draw(1200)
    memory = evaluate(Predictions.from_probabilities(p, y, weight=weight), {}, n_resamples=10).before.measures
    parts = [(p[i : i + 400], y[i : i + 400], weight[i : i + 400]) for i in range(0, 1200, 400)]
    streamed = evaluate(blocks(parts, input="probabilities"), {}).before.measures
    for name in NAMES:
        assert streamed[name].value == pytest.approx(memory[name].value, rel=1e-3)
        assert (streamed[name].low, streamed[name].high) == pytest.approx(
            (memory[name].low, memory[name].high), rel=0.02
        )
    two = evaluate(Predictions.from_probabilities(p[:, 0], (y == 0).astype(int)), {}, n_resamples=10).before.measures
    assert "aurc" not in two


def two_decimals(seed, dtype):
    """Probabilities k/100, of two columns and of class 1 alone, and labels."""
    rng = np.random.default_rng(seed)
    k = rng.integers(0, 101, 200)
    columns = np.stack([100 - k, k], axis=1) / 100
    return (rng.random(200) < k / 100).astype(int), columns.astype(dtype), np.maximum(k, 100 - k)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NAMES)
def test_equal_confidences_of_two_classes_are_ties(name, dtype):
    metric = METRICS[name]
    for seed in range(10):
        y, p, hundredths = two_decimals(seed, dtype)
        with_third = metric.function(y, np.column_stack([p, np.zeros(200, dtype)]))
        assert metric.function(y, p) == pytest.approx(with_third, rel=1e-12)
        assert metric.function(y, p[:, 1]) == pytest.approx(with_third, rel=1e-12)
        assert metric.function(y, p[:, 1].astype(np.float64)) == pytest.approx(with_third, rel=1e-12)
        if name == "aurc":
            is_wrong = p.argmax(axis=1) != y
            risks = [is_wrong[hundredths >= c].mean() for c in hundredths]
            assert with_third == pytest.approx(np.mean(risks), rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_one_confidence_are_predicted_together_whatever_their_class(dtype):
    for seed in range(10):
        y, p, _ = two_decimals(seed, dtype)
        with_third = np.column_stack([p, np.zeros(200, dtype)])
        for coverage in (0.05, 0.31, 0.7):
            of_three = risk_at_coverage(y, with_third, coverage=coverage)
            of_two = risk_at_coverage(y, p[:, 1], coverage=coverage)
            assert (of_two.coverage, of_two.risk) == (of_three.coverage, of_three.risk)
            assert of_two.threshold == pytest.approx(of_three.threshold, abs=1.2e-7)
            confidence = np.maximum(p[:, 1].astype(np.float64), 1.0 - p[:, 1].astype(np.float64))
            assert np.mean(confidence >= of_two.threshold) == of_two.coverage  # as a user applies it
        for risk in (0.0, 0.1):
            assert coverage_at_risk(y, p, risk=risk) == coverage_at_risk(y, with_third, risk=risk)


@pytest.mark.parametrize("given", ["", "sample_weight", "clusters"])
def test_values_at_a_coverage_and_at_a_risk_are_exact_for_many_rows(given):
    n = 3000
    rng = np.random.default_rng(0)
    p = rng.random(n)
    y = (rng.random(n) < p).astype(int)
    weight = rng.random(n) if given == "sample_weight" else np.ones(n)
    options = {"sample_weight": {"sample_weight": weight}, "clusters": {"clusters": np.arange(n) // 20}}.get(given, {})
    order = np.argsort(-np.maximum(p, 1.0 - p))
    is_wrong = (p > 0.5) != (y == 1)
    coverages = np.cumsum(weight[order]) / weight.sum()
    risks = np.cumsum((weight * is_wrong)[order]) / np.cumsum(weight[order])
    for coverage in (0.0003, 0.1, 0.5005, 1.0):
        place = np.argmax(coverages >= coverage - 1e-12)
        found = risk_at_coverage(y, p, coverage=coverage, **options)
        assert found.coverage == pytest.approx(coverages[place], rel=1e-12)
        assert found.threshold == np.maximum(p, 1.0 - p)[order[place]]
        assert found.risk.value == pytest.approx(risks[place], rel=1e-12)
    for risk in (0.0, 0.001, 0.05):
        interval = coverage_at_risk(y, p, risk=risk, **options)
        assert interval.value == pytest.approx(coverages[np.flatnonzero(risks <= risk)[-1]], rel=1e-12)
        assert interval.low <= interval.value <= interval.high


@pytest.mark.parametrize("given", ["plain", "weighted", "clustered"])
def test_the_variance_of_a_risk_at_a_coverage_is_that_of_resamples(given):
    """Each resample has its own confidence from which the coverage lies; clusters here share most of it."""
    rng = np.random.default_rng(3)
    place = np.repeat(np.arange(120), 20)
    log_odds = 1.5 * rng.normal(size=2400)
    if given == "clustered":
        log_odds = 1.4 * rng.normal(size=120)[place] + 0.5 * rng.normal(size=2400)
    p = 1.0 / (1.0 + np.exp(-log_odds))
    y = (rng.random(2400) < p).astype(int)
    weight = np.exp(0.5 * rng.normal(size=2400)) if given == "weighted" else np.ones(2400)
    clusters = place if given == "clustered" else np.arange(2400)
    rows = read_probabilities(
        y, p, weight if given == "weighted" else None, "test", clusters=clusters if given == "clustered" else None
    )
    confidence = np.maximum(p, 1.0 - p)
    wrong = (p > 0.5) != y
    n_units = clusters.max() + 1

    curve = _RiskCurve.of(rows)
    points = np.searchsorted(curve.coverage, [0.3, 0.6])
    variance = curve.variance_at_coverage(rows, points)

    risks = []
    order = np.argsort(-confidence)
    for _ in range(1000):
        counts = np.bincount(rng.integers(0, n_units, n_units), minlength=n_units)[clusters] * weight
        coverages = np.cumsum(counts[order]) / counts.sum()
        errors = np.cumsum((counts * wrong)[order]) / counts.sum()
        risks.append(np.interp([0.3, 0.6], coverages, errors) / [0.3, 0.6])
    np.testing.assert_allclose(variance, np.var(risks, axis=0), rtol=0.2)


def test_the_interval_of_a_coverage_of_clusters_is_searched_to_the_row():
    """The ends are those of all points of the curve, whatever is asked first."""
    rng = np.random.default_rng(1)
    p = rng.random(1500)
    y = (rng.random(1500) < p).astype(int)
    clusters = np.arange(1500) // 10
    rows = read_probabilities(y, p, None, "test", clusters=clusters)
    curve = _RiskCurve.of(rows)
    low, high = curve.ends_at_coverage(rows, np.arange(1500), 0.95)
    interval = coverage_at_risk(y, p, risk=0.1, clusters=clusters)
    assert interval.low == curve.coverage[np.flatnonzero(high <= 0.1)[-1]]
    assert interval.high == curve.coverage[np.flatnonzero(low <= 0.1)[-1]]


def test_the_most_confident_row_may_have_no_weight():
    p = np.array([0.01, 0.8, 0.4, 0.3])
    y = np.array([0, 1, 1, 0])
    rows = Predictions(np.stack([1.0 - p, p], axis=1), y, "probabilities", np.array([0.0, 1.0, 1.0, 1.0]))
    assert risk_at_coverage(rows, coverage=0.2) == risk_at_coverage(y[1:], p[1:], coverage=0.2)
    assert coverage_at_risk(rows, risk=0.1) == coverage_at_risk(y[1:], p[1:], risk=0.1)


def test_the_ranking_joins_both_classes_and_no_neighbours():
    next_to = np.nextafter(0.9, 1.0)
    p = np.array([0.9, next_to, 0.1, 0.1 - 1e-15, 3 / 7, 4 / 7, 0.5])
    ranking = probability_rows(np.zeros(7, int), p).ranking
    assert ranking[2] == ranking[0] < ranking[1] < ranking[3]
    assert ranking[4] == ranking[5]
    assert ranking[6] == 0.5
    confidence = probability_rows(np.zeros(7, int), p).top[0]
    assert ranking == pytest.approx(confidence, abs=3e-16)


@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_the_ranking_of_close_values_keeps_their_order(scale):
    rng = np.random.default_rng(0)
    p = (1.0 / (1.0 + np.exp(-scale * rng.normal(size=200_000)))).astype(np.float32)
    rows = probability_rows(np.zeros(len(p), int), p)
    order = np.argsort(rows.top[0], kind="stable")
    assert (np.diff(rows.ranking[order]) >= 0.0).all()
    assert rows.ranking == pytest.approx(rows.top[0], abs=1.2e-7)
