"""Objectives of one's own."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from helpers import draw_logits
from refocal import FocalTemperatureScaling, TemperatureScaling
from refocal.errors import ParameterError
from refocal.metrics import METRICS
from refocal.metrics.inputs import read_probabilities
from refocal.rows import Predictions


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


@pytest.mark.parametrize("name", [name for name, metric in METRICS.items() if metric.function.__class__ is not partial])
def test_a_function_of_this_package_is_minimised_as_its_record_is(name):
    """Those to raise were lowered: the temperature of brier_skill was that of the least skill."""
    metric = METRICS[name]
    logits, labels = draw_logits(300, 2 if metric.two_classes else 3)
    grid = [0.5, 0.7, 1.0, 1.5, 2.5]
    of_function, of_record = (
        TemperatureScaling(objective=each, search="grid", temperatures=grid).fit(logits, labels)
        for each in (metric.function, metric)
    )
    cost = {}
    for temperature in grid:
        rows = Predictions.from_logits(logits / temperature, labels)
        rows = rows.as_log_probabilities() if metric.takes_logs else rows.as_probabilities()
        cost[temperature] = metric.cost(metric.measure(rows))
    assert cost[of_function.temperature_] == pytest.approx(min(cost.values()), rel=1e-9, abs=1e-12)
    assert of_function.temperature_ == of_record.temperature_


@pytest.mark.parametrize("given", ["log_loss", METRICS["log_loss"], METRICS["log_loss"].function])
def test_the_log_loss_is_minimised_exactly_however_it_is_called(given):
    """The record and the function were minimised on a grid alone, and the name was refused."""
    logits, labels = draw_logits(300, 3)

    def log_loss(log_t):
        return -log_softmax(logits / np.exp(log_t), axis=1)[np.arange(300), labels].mean()

    best = minimize_scalar(log_loss, bounds=(-3.0, 3.0), method="bounded", options={"xatol": 1e-9})
    fitted = TemperatureScaling(objective=given).fit(logits, labels)
    assert np.log(fitted.temperature_) == pytest.approx(best.x, abs=1e-5)
    by_name, as_given = (FocalTemperatureScaling(objective=each).fit(logits, labels) for each in ("nll", given))
    assert (as_given.gamma_, as_given.temperature_) == (by_name.gamma_, by_name.temperature_)
