"""Many classes, as a vocabulary has: nothing is held in a higher precision than it came in, and no table grows."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest
import torch

from refocal import AutoCalibration, TemperatureScaling
from refocal._arrays import in_half
from refocal.engine import c_engine
from refocal.evaluate import evaluate
from refocal.io import Predictions, blocks, read
from refocal.maps import Chain, Focal, Temperature, chain
from refocal.metrics import classwise_ece, expected_calibration_error
from refocal.nn import CalibrationLayer
from refocal.report import write_report

pytestmark = pytest.mark.numerics

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(400, 3000))
LABELS = np.where(np.arange(400) % 3 == 0, LOGITS.argmax(axis=1), RNG.integers(1500, size=400))
STEPS = (Temperature(1.5), Focal(1.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_blocks_of_rows_change_nothing(dtype, monkeypatch):
    tensor = torch.from_numpy(LOGITS).to(dtype)
    found = Chain(STEPS).probabilities(tensor), CalibrationLayer(*STEPS)(tensor)
    monkeypatch.setattr(chain, "BLOCK", 1 << 30)
    for each, whole in zip(found, (Chain(STEPS).probabilities(tensor), CalibrationLayer(*STEPS)(tensor)), strict=True):
        assert each.dtype == dtype
        assert torch.equal(each, whole)


def test_images_in_a_layer_go_by_rows_and_gradients_do_not():
    images = torch.from_numpy(LOGITS).double().reshape(20, 60, 40, 25)  # which no kernel takes in place of the steps
    layer = CalibrationLayer(*STEPS, class_axis=1)
    recorded = images.clone().requires_grad_()
    whole = layer(recorded)
    whole.sum().backward()
    assert torch.isfinite(recorded.grad).all()
    assert torch.equal(layer(images), whole.detach())


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_predicting_holds_the_answer_and_little_else(dtype, monkeypatch):
    monkeypatch.setattr(chain, "BLOCK", 1 << 14)
    logits = LOGITS.astype(dtype)
    tracemalloc.start()
    found = Chain(STEPS).probabilities(logits)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * found.nbytes


def test_half_precision_in_a_file_is_read_where_it_lies(tmp_path):
    np.save(tmp_path / "logits.npy", LOGITS.astype(np.float16))
    np.save(tmp_path / "labels.npy", LABELS)
    tracemalloc.start()
    found = read(tmp_path / "logits.npy", labels=tmp_path / "labels.npy")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.values.dtype == np.float16
    assert peak < 0.5 * found.values.nbytes


def test_bfloat16_of_numpy_is_that_of_torch():
    few, labels = LOGITS[:100, :30], LABELS[:100] % 30
    array, tensor = few.astype(ml_dtypes.bfloat16), torch.from_numpy(few).bfloat16()
    expected = TemperatureScaling().fit(tensor, torch.from_numpy(labels))
    assert TemperatureScaling().fit(array, labels).temperature_ == expected.temperature_
    in_blocks = blocks([(array[:40], labels[:40]), (array[40:], labels[40:])])
    assert TemperatureScaling().fit(in_blocks).temperature_ == pytest.approx(expected.temperature_, rel=1e-9)
    np.testing.assert_allclose(expected.predict_proba(array), expected.predict_proba(tensor.float()), rtol=1e-5)
    assert Predictions.from_logits(array, labels).values.dtype == np.float32


@pytest.mark.parametrize("weighted", [False, True])
def test_classwise_ece_of_more_classes_than_rows(weighted):
    p = np.exp(Chain().log_probabilities(3.0 * LOGITS[:60, :200]))
    labels, weight = LABELS[:60] % 200, np.arange(1.0, 61.0) if weighted else None
    each = [
        expected_calibration_error(labels == label, p[:, label], n_bins=7, sample_weight=weight) for label in range(200)
    ]
    found = classwise_ece(labels, p, n_bins=7, sample_weight=weight)
    assert found == pytest.approx(np.mean(each), rel=1e-12)


@pytest.mark.slow
def test_an_evaluation_shows_the_classes_with_the_most_rows(tmp_path):
    rows = Predictions.from_logits(LOGITS.astype(np.float16), LABELS)
    fitted = TemperatureScaling().fit(rows.values, rows.labels)
    found = evaluate(rows, {"ts": fitted}, n_resamples=5)
    shown = [row.label for row in found.after.classes]
    assert len(shown) == 1000
    assert set(shown) >= set(LABELS)
    assert shown == [row.label for row in found.before.classes]
    write_report(found, tmp_path / "report.html")
    apart = evaluate(blocks([(LOGITS[:100], LABELS[:100]), (LOGITS[100:], LABELS[100:])]), {"ts": fitted})
    assert not apart.after.classes
    assert "classwise_ece" not in apart["ts"].values
    assert apart["ts"].measures["log_loss"].value == pytest.approx(found["ts"].measures["log_loss"].value, rel=1e-3)
    write_report(apart, tmp_path / "report.html")


def test_half_precision_is_that_of_astype():
    exact = np.arange(1 << 15, dtype=np.uint16).view(np.float16).astype(np.float32)
    exact = exact[exact <= 1.0]
    between = 0.5 * (exact[1:] + exact[:-1])  # ties, which go to the even one
    p = np.concatenate([exact, between, np.nextafter(between, np.float32(0)), np.nextafter(between, np.float32(1))])
    np.testing.assert_array_equal(in_half(p).view(np.uint16), p.astype(np.float16).view(np.uint16))


def test_half_precision_of_a_vocabulary_needs_no_double_precision():
    logits = np.tile(2.0 * LOGITS[:80], 2).astype(np.float16)
    found, expected = (TemperatureScaling().fit(x, LABELS[:80]) for x in (logits, logits.astype(np.float64)))
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-5)
    apart = TemperatureScaling().fit(blocks([(logits[:30], LABELS[:30]), (logits[30:], LABELS[30:80])]))
    assert apart.temperature_ == pytest.approx(found.temperature_, rel=1e-9)


def test_the_scratch_memory_of_threads_is_bounded(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    threads = [c_engine.plan(np.empty((8, n), dtype=np.float16)).n_threads for n in (100_000, 1_000_000, 10_000_000)]
    assert threads == [20, 2, 1]


@pytest.mark.slow
def test_the_default_holds_no_copy_of_a_vocabulary(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # every thread has a few rows in single precision
    logits = np.tile(LOGITS[:200].astype(np.float16), 12)
    tracemalloc.start()
    AutoCalibration().fit(logits, LABELS[:200])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.2 * logits.nbytes


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_default_is_that_of_single_precision(dtype):
    tensor, labels = torch.from_numpy(LOGITS[:250]).to(dtype), torch.from_numpy(LABELS[:250])
    found, expected = AutoCalibration().fit(tensor, labels), AutoCalibration().fit(tensor.float(), labels)
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-4)
    assert found.fit_report_["after"]["log_loss"] == pytest.approx(expected.fit_report_["after"]["log_loss"], rel=1e-5)


def test_probabilities_of_half_precision_tensors_are_those_of_arrays():
    tensor = torch.from_numpy(LOGITS[:50]).reshape(2, 25, 3000)
    fitted = TemperatureScaling().fit(LOGITS, LABELS)
    for dtype in (torch.float16, torch.bfloat16):
        given = tensor.to(dtype)
        found = fitted.predict_proba(given)
        assert (found.dtype, found.shape) == (dtype, given.shape)
        expected = fitted.predict_proba(given.float().numpy().reshape(50, 3000)).reshape(2, 25, 3000)
        np.testing.assert_allclose(found.float().numpy(), torch.from_numpy(expected).to(dtype).float().numpy())


def test_the_default_tries_no_intercepts_of_a_vocabulary():
    few = AutoCalibration().fit(LOGITS[:200], LABELS[:200])
    assert list(few.choice_["log_loss"]) == ["temperature"]
    assert "A scaling of the 3,000 classes was left out: there are more than 10 for each row." in few.report_
    assert "higher than that of predicting the share" not in few.report_
    more = AutoCalibration().fit(LOGITS[:, :1500], LABELS % 1500)
    assert "vector" in " ".join(more.choice_["log_loss_out_of_fold"])
