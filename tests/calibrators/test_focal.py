"""The focal calibrators as a user meets them."""

from __future__ import annotations

import warnings

import array_api_strict
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from helpers import NOT_FOR_LOGITS, draw_logits, to_numpy
from refocal import (
    AutoCalibration,
    FocalCalibration,
    FocalTemperatureScaling,
    GroupCalibration,
    IsotonicCalibration,
    MultiLabelCalibration,
    TemperatureScaling,
    metrics,
)
from refocal.calibrators.registry import NAMED
from refocal.calibrators.registry import make as make_method
from refocal.errors import DataError, FitWarning, InputWarning, LabelError, ParameterError, ShapeError
from refocal.io import blocks
from refocal.maps import focal_temperature, inverse_focal, log_softmax

pytestmark = pytest.mark.core

ALL = [TemperatureScaling(), FocalCalibration(), FocalCalibration(2.0), FocalTemperatureScaling()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "calibrator", [TemperatureScaling(), pytest.param(FocalTemperatureScaling(), marks=pytest.mark.long)], ids=str
)
def test_scikit_learn_checks(calibrator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(calibrator, expected_failed_checks=NOT_FOR_LOGITS, on_fail="raise", on_skip=None)
    assert sum(result["status"] == "passed" for result in results) >= 45
    assert {result["check_name"] for result in results if result["status"] == "xfail"} <= set(NOT_FOR_LOGITS)


@pytest.mark.parametrize("gamma", [-0.99, -0.5, 0.3, 5.0, 100.0])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_accuracy_is_unchanged_to_the_last_sample(gamma, dtype):
    logits, labels = draw_logits(3000, 10)
    logits = logits.astype(dtype)
    logits[::3] = np.round(logits[::3])  # many ties
    logits[1::3, 1] = np.nextafter(logits[1::3, 0], dtype(100))  # and pairs that differ in the last bit
    fitted = FocalTemperatureScaling(search="grid", gammas=gamma, temperatures=[0.01, 1.0, 50.0]).fit(logits, labels)
    np.testing.assert_array_equal(fitted.predict(logits), np.argmax(logits, axis=1))
    p = fitted.predict_proba(logits)
    top = np.take_along_axis(p, np.argmax(logits, axis=1)[:, None], axis=1)[:, 0]
    np.testing.assert_array_equal(top, p.max(axis=1))


def test_calibrated_data_are_left_alone():
    """T ≈ 1 and γ ≈ 0 within three standard errors, over independent data sets."""
    found = []
    for seed in range(12):
        fitted = FocalTemperatureScaling(objective="nll").fit(*draw_logits(4000, 5, seed))
        found.append((fitted.gamma_, np.log(fitted.temperature_)))
    mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    assert np.all(np.abs(mean) < 3.0 * error)
    assert np.all(error < 0.05)


@pytest.mark.slow
def test_what_training_with_focal_loss_does_is_undone():
    logits, labels = draw_logits(20_000, 5)
    trained = inverse_focal(logits, 3.0)
    known = FocalCalibration(gamma=3.0).fit(trained, labels)
    assert (known.gamma_, known.temperature_) == (3.0, 1.0)
    np.testing.assert_allclose(known.predict_log_proba(trained), log_softmax(logits), rtol=1e-9, atol=1e-9)
    searched = FocalCalibration(objective="nll").fit(trained, labels)
    assert searched.gamma_ == pytest.approx(3.0, abs=0.15)
    assert searched.temperature_ == 1.0
    y, raw = labels, np.exp(log_softmax(trained))
    for fitted in (known, searched, FocalTemperatureScaling().fit(trained, labels)):
        p = fitted.predict_proba(trained)
        assert metrics.expected_calibration_error(y, p) < 0.2 * metrics.expected_calibration_error(y, raw)


def test_fitted_attributes_tell_what_happened():
    logits, labels = draw_logits(2000, 4)
    fitted = FocalTemperatureScaling().fit(3.0 * logits, labels)
    assert fitted.gamma_ > -1.0
    assert fitted.temperature_ == fitted.solution_.temperature
    assert fitted.solution_.status == "converged"
    assert fitted.solution_.passes > 1
    assert fitted.path_.value.shape == fitted.path_.log_loss.shape == (9, 121)
    report = fitted.fit_report_
    assert (report["n_samples"], report["n_classes"]) == (2000, 4)
    log_p = fitted.predict_log_proba(3.0 * logits)
    assert report["after"]["log_loss"] == pytest.approx(metrics.log_loss(labels, log_p), rel=1e-12)
    assert report["after"]["ece"] == pytest.approx(metrics.expected_calibration_error(labels, np.exp(log_p)), rel=1e-9)
    assert report["after"]["brier_score"] == pytest.approx(metrics.brier_score(labels, np.exp(log_p)), rel=1e-9)
    assert report["after"]["log_loss"] < report["before"]["log_loss"]
    assert report["after"]["accuracy"] == report["before"]["accuracy"]
    assert TemperatureScaling().fit(logits, labels).path_ is None


def verbalised(seed=0, n_rows=1500):
    """Confidences that a model says, many of them 1, and whether it was right: 75 % there, more than said elsewhere."""
    rng = np.random.default_rng(seed)
    said = rng.choice([0.5, 0.7, 0.8, 0.9, 0.95, 1.0], size=n_rows, p=[0.05, 0.1, 0.2, 0.2, 0.15, 0.3])
    return said, (rng.random(n_rows) < np.where(said == 1.0, 0.75, said + 0.03)).astype(int)


@pytest.mark.parametrize("kind", [TemperatureScaling, IsotonicCalibration])
def test_the_ece_of_equal_scores_of_two_classes_does_not_part_them_by_what_happened(kind):
    said, is_right = verbalised()
    fitted = kind(input="probabilities").fit(said, is_right)
    expected = metrics.expected_calibration_error(is_right, fitted.predict_proba(said)[:, 1])
    assert fitted.fit_report_["after"]["ece"] == pytest.approx(expected, rel=1e-9)


def test_a_map_that_makes_its_own_rows_worse_warns_and_names_what_helps():
    said, is_right = verbalised(n_rows=3_000)
    with pytest.warns(FitWarning, match=r"the ECE rose from 0\.\d+ to 0\.\d+: .* curve, auto or isotonic"):
        TemperatureScaling(input="probabilities").fit(said, is_right)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        IsotonicCalibration(input="probabilities").fit(said, is_right)


@pytest.mark.long
@pytest.mark.parametrize("calibrator", ALL, ids=str)
def test_the_kind_of_array_follows_the_input(calibrator):
    logits, labels = draw_logits(300)
    expected = clone(calibrator).fit(logits, labels).predict_proba(logits)
    for array in (torch.tensor(logits), jnp.asarray(logits), logits.astype(np.float32), torch.tensor(logits).half()):
        y = torch.tensor(labels) if isinstance(array, torch.Tensor) else labels
        fitted = clone(calibrator).fit(array, y)
        p = fitted.predict_proba(array)
        assert type(p) is type(array)
        assert p.dtype == array.dtype
        tolerance = {torch.float16: 0.03}.get(p.dtype, 1e-3)
        np.testing.assert_allclose(to_numpy(p).astype(np.float64), expected, atol=tolerance)
        assert fitted.predict(array).shape == (300,)


def test_images_and_tokens_with_leading_axes():
    logits, labels = draw_logits(600)
    flat = TemperatureScaling().fit(logits, labels)
    shaped = TemperatureScaling().fit(logits.reshape(2, 15, 20, 5), labels.reshape(2, 15, 20))
    assert shaped.temperature_ == flat.temperature_
    assert shaped.predict_proba(logits.reshape(2, 15, 20, 5)).shape == (2, 15, 20, 5)
    assert shaped.predict(logits.reshape(2, 15, 20, 5)).shape == (2, 15, 20)


@pytest.mark.parametrize("make", [np.asarray, torch.tensor])
def test_classes_of_images_may_lie_on_axis_1(make):
    logits, labels = draw_logits(2 * 3 * 4 * 50, 3)
    logits, labels = logits.reshape(50, 6, 4, 3), labels.reshape(50, 6, 4)
    last = TemperatureScaling().fit(make(logits), make(labels))
    images = make(np.ascontiguousarray(np.moveaxis(logits, -1, 1)))
    fitted = TemperatureScaling().fit(images, make(labels), class_axis=1)
    assert fitted.temperature_ == last.temperature_
    for method in ("predict_proba", "predict_log_proba"):
        want = np.moveaxis(to_numpy(getattr(last, method)(make(logits))), -1, 1)
        np.testing.assert_array_equal(to_numpy(getattr(fitted, method)(images, class_axis=1)), want)
    np.testing.assert_array_equal(to_numpy(fitted.predict(images, class_axis=1)), np.argmax(logits, axis=-1))
    with pytest.raises(ShapeError, match=r"'class_axis' of TemperatureScaling.predict must be an axis of 4. Got 4"):
        fitted.predict(images, class_axis=4)


def test_probabilities_when_said_so():
    logits, labels = draw_logits()
    p = np.exp(log_softmax(3.0 * logits))
    said = TemperatureScaling(input="probabilities").fit(p, labels)
    assert said.temperature_ == pytest.approx(TemperatureScaling().fit(3.0 * logits, labels).temperature_, rel=1e-6)
    np.testing.assert_allclose(
        said.predict_proba(p), TemperatureScaling().fit(3.0 * logits, labels).predict_proba(3.0 * logits), atol=1e-6
    )
    with pytest.warns(InputWarning, match=r"sum to 1, as probabilities do.*input='probabilities'") as warned:
        fitted = TemperatureScaling().fit(p, labels)
    assert warned[0].filename == __file__  # where the mistake was made
    with pytest.warns(InputWarning, match="TemperatureScaling.predict_log_proba: all rows of 'X' sum to 1") as warned:
        fitted.predict(p)
    assert warned[0].filename == __file__
    with pytest.warns(InputWarning, match=r"sum to 100, as percentages do.*divide them by 100 and say so: input="):
        TemperatureScaling().fit(100.0 * p, labels)
    with pytest.warns(InputWarning, match="TemperatureScaling.predict_proba: all rows of 'X' sum to 100") as warned:
        fitted.predict_proba(100.0 * p)
    assert warned[0].filename == __file__
    zero = np.array([[1.0, 0.0], [0.3, 0.7], [1.0, 0.0], [0.6, 0.4]])
    assert np.isfinite(TemperatureScaling(input="probabilities").fit(zero, [0, 1, 1, 0]).temperature_)


def test_labels_may_have_names_or_gaps():
    logits, labels = draw_logits(500, 3)
    names = np.array(["cat", "dog", "emu"])
    named = TemperatureScaling().fit(logits, names[labels])
    assert named.temperature_ == TemperatureScaling().fit(logits, labels).temperature_
    np.testing.assert_array_equal(named.classes_, names)
    np.testing.assert_array_equal(named.predict(logits), names[np.argmax(logits, axis=1)])
    seen = labels < 2
    absent = TemperatureScaling().fit(logits[seen], labels[seen])
    np.testing.assert_array_equal(absent.classes_, [0, 1, 2])


@pytest.mark.parametrize(
    ("logits", "labels", "error", "words"),
    [
        (np.zeros((0, 3)), [], ShapeError, "at least one row"),
        (np.zeros((4, 3)), [1, 1, 1, 1], LabelError, "of at least two classes. Got only one class, 1"),
        (np.zeros((4, 3)), [0, 1, 2, 3], LabelError, "integers from 0 to 2. Got 4 distinct labels from 0 to 3"),
        (np.zeros((4, 3)), [0, -1, 0, 0], LabelError, "-1 names no class.*Got labels from -1 to 0"),
        (np.zeros((4, 3)), ["a", "b", "a", "b"], LabelError, "of 3 distinct classes.*Got 2 distinct labels from 'a'"),
        (np.zeros((4, 3)), [0.5, 1.0, 0.0, 1.0], LabelError, "whole numbers. Got Unknown label type"),
        (np.zeros((4, 3)), [0, 1], ShapeError, r"of shape \(4,\), one label for each row"),
        (np.array([[0.0, np.nan], [0.0, 1.0]]), [0, 1], DataError, "NaN in row 0"),
        (np.array([[0.0, -np.inf], [0.0, 1.0]]), [1, 0], DataError, "-inf at the label of row 0"),
        (np.zeros(3), [0, 1, 2], LabelError, "of 2 distinct classes"),
        (np.array(0.5), [0], ShapeError, "Reshape your data"),
        (np.zeros((3, 1)), [0, 1, 0], ShapeError, "of two or more columns"),
    ],
)
def test_bad_input_leaves_the_calibrator_unfitted(logits, labels, error, words):
    good = draw_logits(50, 3)
    calibrator = TemperatureScaling().fit(*good)
    with pytest.raises(error, match=f"TemperatureScaling.fit must be .*{words}"):
        calibrator.fit(logits, labels)
    with pytest.raises(NotFittedError):
        calibrator.predict_proba(good[0])


@pytest.mark.parametrize(
    ("calibrator", "words"),
    [
        (FocalCalibration(gamma=-1.0), "'gamma' of FocalCalibration must be None or .*greater than -1. Got -1.0"),
        (TemperatureScaling(search="line"), "'search' of TemperatureScaling must be 'auto', 'newton' or 'grid'"),
        (FocalTemperatureScaling(objective="beauty"), "'objective' of FocalTemperatureScaling"),
        (FocalTemperatureScaling(input="odds"), "'input' of FocalTemperatureScaling must be one of 'logits'"),
        (FocalTemperatureScaling(temperatures=[0.0]), "'temperatures' of FocalTemperatureScaling"),
    ],
)
def test_bad_settings(calibrator, words):
    with pytest.raises(ParameterError, match=words):
        calibrator.fit(*draw_logits(50, 3))
    with pytest.raises(NotFittedError):
        calibrator.predict_proba(draw_logits(50, 3)[0])


@pytest.mark.parametrize("method", NAMED)
def test_weights_that_sum_to_1_are_shares_of_the_rows(method):
    """A prior that counts in rows would take them for those of a single one."""
    logits, labels = draw_logits(256, 3)
    fitted = [make_method(method).fit(logits, labels, sample_weight=np.full(256, w)) for w in (1.0, 1.0 / 256)]
    np.testing.assert_allclose(fitted[1].predict_proba(logits), fitted[0].predict_proba(logits), atol=1e-9)


def test_weights_that_sum_to_1_are_shares_of_the_rows_in_blocks():
    logits, labels = draw_logits(400, 3)
    weight = np.where(np.arange(400) % 4 == 0, 0.0, np.random.default_rng(0).random(400) / 400)
    there = blocks([(logits[at], labels[at], weight[at]) for at in np.s_[:150, 150:]])
    together, apart = AutoCalibration().fit(logits, labels, sample_weight=weight), AutoCalibration().fit(there)
    assert there.total_weight == pytest.approx(300)
    np.testing.assert_allclose(apart.predict_proba(logits), together.predict_proba(logits), atol=1e-6)


def test_weights():
    logits, labels = draw_logits(300, 3)
    weight = np.random.default_rng(1).integers(0, 3, 300).astype(float)
    weighted = FocalTemperatureScaling(objective="nll").fit(logits, labels, sample_weight=weight)
    repeated = FocalTemperatureScaling(objective="nll").fit(
        np.repeat(logits, weight.astype(int), axis=0), np.repeat(labels, weight.astype(int))
    )
    np.testing.assert_allclose(weighted.predict_proba(logits), repeated.predict_proba(logits), atol=1e-7)
    with pytest.raises(DataError, match=r"'sample_weight' of TemperatureScaling.fit must be free of negative"):
        TemperatureScaling().fit(logits, labels, sample_weight=-weight)


def test_predictions_are_those_of_the_map():
    logits, labels = draw_logits(400)
    fitted = FocalTemperatureScaling(objective="ece").fit(logits, labels)
    np.testing.assert_array_equal(
        fitted.predict_log_proba(logits), focal_temperature(logits, fitted.gamma_, fitted.temperature_)
    )
    with pytest.raises(ShapeError, match="X has 4 features, but FocalTemperatureScaling is expecting 5 features"):
        fitted.predict_proba(logits[:, :4])


@pytest.mark.slow
def test_logits_in_a_mapped_file_are_never_copied_whole(tmp_path):
    """32,000 classes in half precision: in float32 the whole would be more than is allowed here."""
    import tracemalloc

    n, n_classes = 800, 32_000
    rng = np.random.default_rng(0)
    file = np.lib.format.open_memmap(tmp_path / "logits.npy", "w+", np.float16, (n, n_classes))
    labels = np.empty(n, dtype=np.int64)
    noise = rng.standard_normal((50, n_classes), dtype=np.float32)
    for i in range(0, n, 50):
        labels[i : i + 50] = rng.integers(0, n_classes, size=50)
        file[i : i + 50] = noise
        file[np.arange(i, i + 50), labels[i : i + 50]] += 8.0 * rng.random(50)
    file.flush()
    logits = np.load(tmp_path / "logits.npy", mmap_mode="r")
    tracemalloc.start()
    TemperatureScaling().fit(logits, labels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 80e6 < 2 * logits.nbytes


def test_names_as_objects_series_and_categories():
    pd = pytest.importorskip("pandas")
    logits, labels = draw_logits(n_classes=3)
    names = np.array(["cat", "dog", "emu"])[labels]
    expected = TemperatureScaling().fit(logits, names)
    for same in (names.astype(object), pd.Series(names), pd.Series(names, dtype="category")):
        found = TemperatureScaling().fit(logits, same)
        assert found.temperature_ == expected.temperature_
        assert found.classes_.tolist() == ["cat", "dog", "emu"]


def test_names_belong_to_the_columns_that_are_called_so():
    pd = pytest.importorskip("pandas")
    logits, labels = draw_logits(n_classes=3)
    names = np.array(["zebra", "ant", "bee"])  # not in alphabetical order
    frame = pd.DataFrame(logits, columns=names)
    found = TemperatureScaling().fit(frame, names[labels])
    assert found.temperature_ == TemperatureScaling().fit(logits, labels).temperature_
    assert found.classes_.tolist() == names.tolist()
    np.testing.assert_array_equal(found.predict(frame), names[np.argmax(logits, axis=1)])
    two = labels < 2  # a class that does not occur keeps its column
    assert TemperatureScaling().fit(frame[two], names[labels[two]]).classes_.tolist() == names.tolist()


def test_labels_that_have_nothing_to_do_with_the_values_are_said_to():
    logits, labels = draw_logits(n_classes=3)
    with pytest.warns(FitWarning, match="the scores predict the labels no better than guessing"):
        TemperatureScaling().fit(logits, 2 - labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TemperatureScaling().fit(logits, labels)


@pytest.mark.slow
@pytest.mark.parametrize("method", NAMED)
def test_extended_precision_is_computed_in_double(method):
    logits, labels = draw_logits(n_classes=3)
    expected = make_method(method).fit(logits, labels).predict_proba(logits)
    found = make_method(method).fit(logits.astype(np.longdouble), labels).predict_proba(logits.astype(np.longdouble))
    assert found.dtype == np.longdouble
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("method", NAMED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_that_know_the_standard_and_nothing_more(method, dtype):
    logits, labels = draw_logits(n_classes=3)
    strict = array_api_strict.asarray(logits.astype(dtype))
    expected = make_method(method).fit(logits.astype(dtype), labels).predict_proba(logits.astype(dtype))
    fitted = make_method(method).fit(strict, labels if dtype == "float32" else array_api_strict.asarray(labels))
    p = fitted.predict_proba(strict)
    assert type(p) is type(strict)
    assert p.dtype == strict.dtype
    assert type(fitted.predict(strict)) is type(strict)
    np.testing.assert_allclose(np.asarray(p), expected, atol=2e-3 if dtype == "float32" else 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", NAMED)
def test_a_mask_of_finite_logits_is_one_of_infinite_ones(method):
    logits, labels = draw_logits(n_classes=5)
    hidden = np.random.default_rng(1).random(logits.shape) < 0.2
    hidden[np.arange(len(labels)), labels] = False
    found = []
    for value in (-np.inf, -1e9, np.finfo(np.float32).min):
        masked = np.where(hidden, value, logits).astype(np.float32)
        p = make_method(method).fit(masked, labels).predict_proba(masked)
        assert np.isfinite(p).all()
        found.append((-np.log(p[np.arange(len(labels)), labels]).mean(), p))
    # Curves and bins take a far class for one that may occur.
    curves = ("ets", "logistic", "beta", "spline", "isotonic", "histogram", "bbq", "venn-abers", "venn-abers-cross")
    apart = 2e-2 if method in curves else 1e-6
    if method.startswith("venn-abers"):  # no finite score makes it sure, not even of the only class that is left
        hidden &= hidden.sum(axis=1, keepdims=True) < 4
    for loss, p in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=apart)
        np.testing.assert_allclose(p[hidden], 0.0, atol=5e-3)


def test_one_hot_labels_and_a_single_column_have_a_hint():
    logits, labels = draw_logits(n_classes=3)
    with pytest.raises(ShapeError, match="of one-hot labels take the argmax first"):
        TemperatureScaling().fit(logits, np.eye(3)[labels])
    with pytest.raises(ShapeError, match=r"or X\[:, 0\], one number per row for two classes"):
        TemperatureScaling().fit(logits[:, :1], labels)


def test_progress_is_called_with_rising_shares():
    logits, labels = draw_logits(200, 3)
    shares, of_groups, of_labels = [], [], []
    calibrator = FocalTemperatureScaling(objective="ece")
    plain = calibrator.fit(logits, labels).solution_
    assert calibrator.fit(logits, labels, progress=shares.append).solution_ == plain
    assert shares == sorted(shares)
    assert 0.0 < shares[0] < shares[-1] == 1.0
    GroupCalibration(method="fts").fit(logits, labels, groups=labels % 2, progress=of_groups.append)
    MultiLabelCalibration(method="fts").fit(logits, np.eye(3, dtype=int)[labels], progress=of_labels.append)
    assert of_groups[-1] == of_labels[-1] == 1.0


@pytest.mark.parametrize("argument", ["y", "sample_weight"])
def test_labels_and_weights_beside_a_dataset_are_refused(argument):
    logits, labels = np.array([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0]]), np.array([0, 1, 1])
    rows = TemperatureScaling().dataset(logits, labels)
    with pytest.raises(ParameterError, match=rf"'{argument}' of .*fit must be left out where X is a Dataset"):
        TemperatureScaling().fit(rows, **{argument: labels})
    with pytest.raises(ParameterError, match=r"'groups' of .*fit must be left out where X is a Dataset"):
        TemperatureScaling().dataset(rows, groups=labels)
