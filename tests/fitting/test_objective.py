"""Objectives of one's own."""

from __future__ import annotations

import numpy as np
import pytest

from helpers import draw_logits
from refocal import TemperatureScaling
from refocal.errors import ParameterError
from refocal.metrics import METRICS
from refocal.metrics.inputs import read_probabilities


def test_a_function_of_ones_own_needs_sample_weight_where_rows_have_weights():
    logits, labels = draw_logits(200, 3)

    def plain(labels, p):
        return float(np.mean(1.0 - p[np.arange(len(labels)), labels]))

    def weighted(labels, p, sample_weight=None):
        return float(np.average(1.0 - p[np.arange(len(labels)), labels], weights=sample_weight))

    with pytest.raises(ParameterError, match="'objective' of fit must be a function of labels, probabilities"):
        TemperatureScaling(objective=plain).fit(logits, labels, sample_weight=np.full(200, 2.0))
    expected = TemperatureScaling(objective=plain).fit(logits, labels).temperature_
    assert (
        TemperatureScaling(objective=weighted).fit(logits, labels, sample_weight=np.ones(200)).temperature_ == expected
    )


@pytest.mark.parametrize(
    ("name", "shift"),
    [
        ("calibration_slope", 0.0),
        ("spiegelhalter_test", 0.0),
        ("calibration_intercept", 0.4),
        ("observed_expected", 0.4),
    ],
)
def test_of_a_metric_that_is_best_at_a_value_the_distance_from_there_is_minimised(name, shift):
    rng = np.random.default_rng(0)
    log_odds = rng.normal(shift, 1.0, size=3000)
    labels = (rng.random(3000) < 1 / (1 + np.exp(-log_odds))).astype(int)
    logits = np.stack([0 * log_odds, 2 * log_odds], axis=1)
    metric = METRICS[name]
    fitted = TemperatureScaling(objective=metric).fit(logits, labels)
    rows = read_probabilities(labels, fitted.predict_proba(logits), None, "fit")
    as_they_are = read_probabilities(labels, 1 / (1 + np.exp(-2 * log_odds)), None, "fit")
    assert metric.judged(metric.measure(rows)) < 0.1 * metric.judged(metric.measure(as_they_are))
    if not shift:
        assert fitted.temperature_ == pytest.approx(2.0, rel=0.15)
