"""Two classes in blocks: every measure of memory, with its interval, from sums alone."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from refocal import LogisticCalibration
from refocal.data import Predictions
from refocal.evaluate import evaluate
from refocal.metrics import METRICS, CalibrationHistogram
from refocal.metrics.record import BlockSums
from refocal.scale import blocks


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    log_odds = 2.0 * rng.normal(size=n) - 2.0
    y = (rng.random(n) < 1 / (1 + np.exp(-log_odds))).astype(np.int64)
    return 1 / (1 + np.exp(-(1.5 * log_odds + 1.0))), y, rng.random(n)


@pytest.fixture(scope="module", params=[False, True], ids=["unweighted", "weighted"])
def both(request):
    """The same rows and calibrator evaluated in memory and in blocks."""
    p, y, w = rows(3000)
    w = w if request.param else None
    mine = LogisticCalibration(input="probabilities").fit(p, y)
    in_memory = evaluate(Predictions.from_probabilities(p, y, weight=w), {"mine": mine}, n_resamples=20)
    parts = [(p[i::3], y[i::3], None if w is None else w[i::3]) for i in range(3)]
    return in_memory, evaluate(blocks(parts, input="probabilities"), {"mine": mine})


@pytest.mark.parametrize("name", ["log_loss_skill", "brier_skill", "roc_auc", "average_precision"])
def test_measures_of_two_classes_in_blocks_are_those_of_memory(both, name):
    in_memory, in_blocks = both
    for method in ("none", "mine"):
        exact, found = in_memory[method].measures[name], in_blocks[method].measures[name]
        bound = in_blocks[method].values.get(f"{name}_bound", 0.0)
        assert abs(found.value - exact.value) <= bound + 1e-12
        assert found.standard_error == pytest.approx(exact.standard_error, rel=1e-4)
    exact, found = (each["mine"].against_none[name] for each in both)
    assert found.difference == pytest.approx(exact.difference, abs=1e-5)
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=1e-5)


def test_decisions_in_blocks_are_those_of_memory(both):
    in_memory, in_blocks = both
    for method in ("none", "mine"):
        exact, found = in_memory[method].decisions, in_blocks[method].decisions
        for name in ("threshold", "decided", "right", "promised"):
            assert getattr(found, name) == pytest.approx(getattr(exact, name), abs=1.1e-6)


@pytest.mark.parametrize("width", [1e-12, 1e-4, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_bounds_of_areas_hold_where_scores_crowd_into_few_cells(width, weighted):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        p = 0.7 + width * rng.random(60)
        y, w = (rng.random(60) < rng.choice([0.05, 0.5])).astype(np.int64), rng.random(60) if weighted else np.ones(60)
        y[:2] = 0, 1
        histogram = CalibrationHistogram(bits=1).update(y, p, sample_weight=w)
        sums = BlockSums(histogram.compute(), [], np.zeros(1), histogram, {})
        area = METRICS["roc_auc"].streamed(sums)
        assert abs(area.value - roc_auc_score(y, p, sample_weight=w)) <= area.bound + 1e-12
        precision = METRICS["average_precision"].streamed(sums)
        exact = average_precision_score(y, p, sample_weight=w)
        assert abs(precision.value - exact) <= precision.bound + 1e-12


def test_distinct_scores_leave_no_doubt():
    _, y, w = rows(500)
    p = np.round(rows(500)[0], 2)
    histogram = CalibrationHistogram().update(y, p, sample_weight=w)
    sums = BlockSums(histogram.compute(), [], np.zeros(1), histogram, {})
    for name, peer in (("roc_auc", roc_auc_score), ("average_precision", average_precision_score)):
        found = METRICS[name].streamed(sums)
        assert found.bound == 0.0
        assert found.value == pytest.approx(peer(y, p, sample_weight=w), abs=1e-12)
