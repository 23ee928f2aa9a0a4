"""What happens to tensors on a GPU, tried with tensors that only pretend to be on one where there is none."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pytest
import torch

from helpers import draw_biased_logits
from refocal import (
    AutoCalibration,
    EnsembleTemperatureScaling,
    FocalTemperatureScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    _arrays,
    metrics,
)
from refocal.engine import array_engine, block
from refocal.engine.scoring import predictions_of
from refocal.fitting import affine, search
from refocal.maps.chain import Chain
from refocal.maps.steps import Focal, Offset, Temperature

pytestmark = pytest.mark.numerics

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def replace_everywhere(monkeypatch, name, function):
    original = getattr(_arrays, name)
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("refocal") and getattr(module, name, None) is original:
            monkeypatch.setattr(module, name, function)


@pytest.fixture(autouse=True)
def pretended(monkeypatch):
    """Where there is no GPU: every tensor counts as one on it, and the array functions compute."""
    if DEVICE == "cpu":
        replace_everywhere(monkeypatch, "on_gpu", _arrays.is_torch)
        monkeypatch.setattr(block, "engine_for", lambda logits: (array_engine, array_engine.plan(logits)))


def on_device(*arrays):
    return [torch.from_numpy(array).to(DEVICE) for array in arrays]


@pytest.mark.parametrize(
    "model",
    [
        AutoCalibration(),
        AutoCalibration(order_preserving=True),
        StructuredVectorScaling(),
        StructuredMatrixScaling(),
        EnsembleTemperatureScaling(),
        FocalTemperatureScaling(),
        FocalTemperatureScaling(objective="ece"),
    ],
    ids=str,
)
def test_a_fit_gives_the_cpus_answer(model):
    x, y = draw_biased_logits(400, 5)
    weight = np.arange(400) % 3.0
    expected = model.fit(x, y, sample_weight=weight)
    p, report = expected.predict_proba(x), expected.fit_report_
    found = model.fit(*on_device(x, y), sample_weight=weight)
    np.testing.assert_allclose(found.predict_proba(x), p, atol=1e-6)
    assert found.fit_report_["after"] == pytest.approx(report["after"], abs=1e-6)


def test_many_rows_are_scored_there(monkeypatch):
    """By a sample and all rows, as a million of them are."""
    monkeypatch.setattr(search, "MANY_ROWS", 500)
    x, y = draw_biased_logits(1000, 4)
    model = FocalTemperatureScaling(objective="ece")
    expected = model.fit(x, y)
    point = expected.gamma_, expected.temperature_
    found = model.fit(*on_device(x, y))
    assert (found.gamma_, found.temperature_) == pytest.approx(point, rel=1e-9)


def test_a_sample_shows_where_to_look(monkeypatch):
    monkeypatch.setattr(search, "GPU_ROWS", 500)
    x, y = draw_biased_logits(2000, 4)
    model = TemperatureScaling(objective="ece")
    expected = model.fit(x, y).fit_report_["after"]["ece"]
    passes = model.solution_.passes
    found = model.fit(*on_device(x, y))
    assert found.solution_.passes != passes  # another way
    assert found.fit_report_["after"]["ece"] == pytest.approx(expected, rel=0.02)


def test_a_label_of_next_to_no_probability_is_measured_exactly():
    """In single precision its probability is 0."""
    x, y = draw_biased_logits(300, 4)
    x = x.astype(np.float32)
    x[:3], y[:3] = [0.0, -500.0, -500.0, -400.0], 1
    chain = Chain((Temperature(1.5), Focal(0.5), Offset(np.array([0.1, -0.2, 0.0, 0.3]))))
    expected, found = (predictions_of([chain], block.Block(*rows))[0][0] for rows in ((x, y), on_device(x, y)))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(_arrays.to_numpy(ours), theirs, rtol=2e-5, atol=1e-6)
    assert float(found.label_log_p.min()) < -200.0


@pytest.mark.parametrize("matrix", [False, True])
def test_affine_sums_walk_through_the_rows(matrix, monkeypatch):
    monkeypatch.setattr(array_engine, "GPU_PART", 100)
    x, y = draw_biased_logits(200, 5)
    z = affine.Features("tempered", 1.5, 200.0)
    parameters = 0.1 * np.random.default_rng(0).normal(size=30 if matrix else 10)
    here, there = block.Block(x, y), block.Block(*on_device(x, y))
    loss = affine._matrix_sums if matrix else partial(affine._vector_sums, with_curvature=True)
    for exact in (False, True):
        expected, found = (loss(z, rows, parameters, exact) for rows in (here, there))
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    if matrix:
        expected, found = (affine._matrix_curvature(z, rows, 50) for rows in (here, there))
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


MEASURES = {
    "ece": metrics.expected_calibration_error,
    "largest gap": lambda y, p, **w: metrics.expected_calibration_error(y, p, norm="max", **w),
    "equal width": lambda y, p, **w: metrics.expected_calibration_error(y, p, strategy="uniform", **w),
    "classwise": metrics.classwise_ece,
    "classwise, equal width": lambda y, p, **w: metrics.classwise_ece(y, p, strategy="uniform", **w),
    "decomposition": lambda y, p, **w: metrics.brier_decomposition(y, p, **w).calibration,
    "Murphy": lambda y, p, **w: metrics.brier_decomposition(y, p, method="binned", strategy="uniform", **w).calibration,
    "CORP": lambda y, p, **w: metrics.corp_reliability(y, p, **w).miscalibration,
    "brier": metrics.brier_score,
    "log-loss": lambda y, p, **w: metrics.log_loss(y, (0.99 * p + 0.01 / p.shape[1]).log(), **w),
    "accuracy": metrics.accuracy,
    "histogram": lambda y, p, **w: metrics.CalibrationHistogram().update(y, p, **w).compute().ece,
    "Spiegelhalter": lambda y, p, **w: metrics.spiegelhalter_test(y, p, **w).z,
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
def test_probabilities_stay_there_when_they_are_measured(measure, n_classes, weighted, monkeypatch):
    rng = np.random.default_rng(n_classes)
    p = rng.multinomial(20, np.full(n_classes, 1.0 / n_classes), size=300) / 20.0  # with ties
    y = rng.integers(n_classes, size=300)
    weights = {"sample_weight": rng.uniform(size=300)} if weighted else {}
    with monkeypatch.context() as patch:
        replace_everywhere(patch, "on_gpu", lambda x: False)
        expected = measure(y, torch.from_numpy(p), **weights)
    sizes, to_numpy = [], _arrays.to_numpy

    def counted(array):
        sizes.append(np.size(to_numpy(array)) if _arrays.is_torch(array) else 0)
        return to_numpy(array)

    replace_everywhere(monkeypatch, "to_numpy", counted)
    found = measure(y, *on_device(p), **weights)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-15)
    assert max(sizes) <= len(y)
