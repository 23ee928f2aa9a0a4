"""Bounds of areas from cells of the confidence: the exact value of rows in memory is never farther away."""

from __future__ import annotations

import numpy as np
import pytest

from refocal.evaluate import evaluate
from refocal.io import Predictions, blocks
from refocal.metrics import METRICS, CalibrationHistogram
from refocal.metrics.record import BlockSums
from refocal.rows.predictions import probability_rows

pytestmark = pytest.mark.numerics

ROUNDING = 1e-12


def in_cells(rows, bits):
    """The sums over blocks that areas are computed from."""
    histogram = CalibrationHistogram(bits=bits).count_rows(*rows.confidence(), rows.weight)
    return BlockSums(histogram=histogram, classes=[], residuals=np.zeros(1), means={})


def draws(n_draws, n_classes, *, weighted):
    """Few and many rows; a wide and a narrow range of logits; hardly any errors, and hardly any rows that are right."""
    rng = np.random.default_rng(0)
    for _ in range(n_draws):
        n = int(rng.integers(3, 60))
        logits = rng.choice([0.01, 0.1, 1.0, 4.0]) * rng.normal(size=(n, n_classes))
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        if rng.random() < 0.3:
            p = np.repeat(p, 2, axis=0)  # ties within a cell
        labels = p.argmax(axis=1)
        is_changed = rng.random(len(p)) < rng.choice([0.05, 0.5, 0.95])
        labels = np.where(is_changed, rng.integers(0, n_classes, len(p)), labels)
        weight = rng.choice([0.01, 1.0, 30.0], len(p)) * rng.random(len(p)) if weighted else None
        yield probability_rows(labels, p, weight).of_positive()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["aurc", "e_aurc", "augrc", "average_precision", "roc_auc"])
def test_the_exact_area_lies_within_the_bound(name, weighted):
    metric = METRICS[name]
    n_uncertain = 0
    largest_share = 0.0
    for rows in draws(150, 2 if metric.two_classes else 3, weighted=weighted):
        if metric.two_classes and len(np.unique(rows.labels)) < 2:
            continue
        for bits in (1, 4):
            streamed = metric.streamed(in_cells(rows, bits))
            distance = abs(streamed.value - metric.measure(rows))
            assert distance <= streamed.bound + ROUNDING
            n_uncertain += streamed.bound > 0.0
            if distance > ROUNDING:
                largest_share = max(largest_share, distance / streamed.bound)
    assert n_uncertain > 100
    assert largest_share > 0.5  # the bound is of use


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("scale", [0.003, 2.0])
def test_evaluations_of_blocks_report_bounds_that_hold(n_classes, scale):
    names = ["average_precision", "roc_auc"] if n_classes == 2 else ["aurc", "e_aurc", "augrc"]
    for seed in range(2):
        rng = np.random.default_rng(seed)
        logits = scale * rng.normal(size=(400, n_classes))
        labels = np.argmax(logits / 2.0 + rng.gumbel(size=logits.shape), axis=1)
        parts = [(logits[i : i + 100], labels[i : i + 100]) for i in range(0, 400, 100)]
        streamed = evaluate(blocks(parts), {})["none"]
        rows = Predictions.from_logits(logits, labels).as_probabilities()
        for name in names:
            distance = abs(streamed.measures[name].value - METRICS[name].measure(rows))
            assert distance <= streamed.values[f"{name}_bound"] + ROUNDING, name
