"""Saving and loading: the same numbers back, and nothing else accepted."""

from __future__ import annotations

import datetime
import json
import os
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import refocal
from refocal import (
    AutoCalibration,
    DirichletCalibration,
    FocalCalibration,
    FocalTemperatureScaling,
    MatrixScaling,
    PredictionSets,
    SplineCalibration,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    VectorScaling,
)
from refocal.errors import FormatError

pytestmark = pytest.mark.core

rng = np.random.default_rng(0)
LOGITS = 2.0 * rng.normal(size=(400, 3))
LABELS = np.argmax(LOGITS + rng.gumbel(size=LOGITS.shape), axis=1)


def squared(y, p):
    return float(np.mean((p - np.eye(3)[y]) ** 2))


@pytest.mark.parametrize(
    "calibrator",
    [
        TemperatureScaling(),
        FocalCalibration(1.5),
        FocalTemperatureScaling(),
        FocalTemperatureScaling(objective=squared, search="grid", gammas=[0.0, 1.0], temperatures=(0.5, 1.0)),
        FocalTemperatureScaling(nll_tolerance=0.02, objective="ece", input="probabilities"),
        VectorScaling(),
        MatrixScaling(strength=2),
        DirichletCalibration(strength=0.5, input="probabilities"),
        StructuredVectorScaling(focal=True, n_folds=2),
        StructuredMatrixScaling(),
        AutoCalibration(n_folds=2),
        AutoCalibration(order_preserving=True),
    ],
    ids=lambda calibrator: str(calibrator)[:40],
)
@pytest.mark.parametrize("names", [None, ["cat", "dog", "émeu"]])
def test_what_is_saved_comes_back(calibrator, names, tmp_path):
    X = LOGITS if calibrator.input == "logits" else np.exp(refocal.maps.log_softmax(LOGITS))
    calibrator.fit(X, LABELS if names is None else np.array(names)[LABELS])
    path = tmp_path / "c.json"
    calibrator.save(path)
    loaded = refocal.load(path)
    assert type(loaded) is type(calibrator)
    np.testing.assert_array_equal(loaded.predict_proba(X), calibrator.predict_proba(X))
    np.testing.assert_array_equal(loaded.predict(X), calibrator.predict(X))
    assert getattr(loaded, "solution_", None) == getattr(calibrator, "solution_", None)
    assert loaded.fit_report_ == calibrator.fit_report_
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == path.read_text()
    assert sorted(os.listdir(tmp_path)) == ["again.json", "c.json"]


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "c.json"
    FocalTemperatureScaling(objective="nll").fit(LOGITS, LABELS).save(path)
    return path


def change(path, *keys, value):
    data = json.loads(path.read_text())
    inner = data
    for key in keys[:-1]:
        inner = inner[key]
    if value is KeyError:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = value
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("keys", "value", "words"),
    [
        (("format",), "something", "not a calibrator"),
        (("version",), 3, "version 3 is not known; this refocal reads version 2"),
        (("version",), KeyError, "version None"),
        (("method",), "os.system", "unknown method 'os.system'; known are AutoCalibration"),
        (("method",), ["x"], "'method' must be of type str. Got list"),
        (("chain", 1, "gamma"), -1.0, "'gamma' of Focal must be a finite number greater than -1. Got -1.0"),
        (("chain", 0, "temperature"), 0, "'temperature' of Temperature must be a finite number greater than 0. Got 0"),
        (("chain", 0, "temperature"), "1.0", "'temperature' of Temperature must be a finite number"),
        (("chain", 0, "temperature"), True, "'temperature' of Temperature must be a finite number"),
        (("chain", 0, "temperature"), 1e999, "Infinity is not a number"),
        (("chain", 0, "temperature"), float("nan"), "NaN is not a number"),
        (("chain", 1, "gamma"), KeyError, "'gamma' is missing"),
        (("chain",), KeyError, "'chain' is missing"),
        (("classes",), [1], "'classes' must be two or more distinct"),
        (("classes",), [1, 1, 2], "'classes' must be two or more distinct"),
        (("classes",), [1, "a", None], "'classes' must be two or more distinct"),
        (("parameters", "n_jobs"), 3, "unknown parameter 'n_jobs' of FocalTemperatureScaling"),
        (("search",), [], "'search' must be of type dict. Got list"),
        (("search", "passes"), 1.5, "'passes' must be of type int"),
        (("fit",), KeyError, "'fit' is missing"),
    ],
)
def test_what_does_not_fit_is_refused(saved, keys, value, words):
    change(saved, *keys, value=value)
    with pytest.raises(FormatError, match=words) as caught:
        refocal.load(saved)
    assert str(saved) in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "value", "words"),
    [
        (("weights",), KeyError, "'weights' is missing"),
        (("weights",), 1.0, "'weights' must be of type list. Got float"),
        (("weights",), [1.0, 1.0], "Affine must be made of parameters that fit each other and 3 classes"),
        (("weights",), [[1.0, 0.0, 0.0]] * 2, "Affine must be made of parameters that fit each other"),
        (("weights",), [[1.0, 0.0, 0.0], [1.0, 0.0], [1.0]], "'weights' must hold numbers alone, in rows of equal"),
        (("weights",), [[1.0, 0.0, "x"]] * 3, "'weights' must hold numbers alone"),
        (("weights",), [[1.0, 0.0, 1e300]] * 3, "'weights' of Affine must be an array of finite numbers"),
        (("intercept",), [[0.0] * 3] * 3, "Affine must be made of parameters that fit each other"),
        (("inner_temperature",), 0.0, "'inner_temperature' of Affine must be a finite number greater than 0"),
        (("kind",), "magic", "Affine must be made of parameters that fit each other"),
        (("kind",), 1, "'kind' must be of type str"),
    ],
)
def test_a_damaged_affine_map_is_refused(tmp_path, keys, value, words):
    path = tmp_path / "c.json"
    StructuredMatrixScaling().fit(LOGITS, LABELS).save(path)
    change(path, "chain", 0, *keys, value=value)
    with pytest.raises(FormatError, match=words):
        refocal.load(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"format": "refocal-calibrator"}', pickle.dumps([1])],
    ids=["empty", "cut", "null", "list", "bytes", "deep", "bare", "pickle"],
)
def test_other_files_are_refused(content, tmp_path):
    path = tmp_path / "c.json"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"c\.json"):
        refocal.load(path)


def test_a_huge_file_is_not_read(tmp_path):
    path = tmp_path / "c.json"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(FormatError, match="a small JSON file"):
        refocal.load(path)


def test_a_failed_save_leaves_the_old_file(saved, monkeypatch):
    before = saved.read_text()

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        TemperatureScaling().fit(LOGITS, LABELS).save(saved)
    assert saved.read_text() == before
    assert os.listdir(saved.parent) == ["c.json"]


def test_only_fitted_calibrators_are_saved(tmp_path):
    with pytest.raises(NotFittedError):
        TemperatureScaling().save(tmp_path / "c.json")
    with pytest.raises(FileNotFoundError):
        refocal.load(tmp_path / "c.json")


def test_a_fit_that_is_interrupted_during_its_report_is_unfitted(monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    calibrator = TemperatureScaling().fit(LOGITS, LABELS)
    monkeypatch.setattr("refocal.calibrators._base.report_of", stop)
    with pytest.raises(KeyboardInterrupt):
        calibrator.fit(LOGITS, LABELS)
    with pytest.raises(NotFittedError):
        calibrator.predict_proba(LOGITS)
    assert not [name for name in vars(calibrator) if name.endswith("_")]


def test_names_of_columns_are_kept(tmp_path):
    frame = pd.DataFrame(LOGITS, columns=["a", "b", "c"])
    fitted = TemperatureScaling().fit(frame, LABELS)
    fitted.save(tmp_path / "c.json")
    loaded = refocal.load(tmp_path / "c.json")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(loaded.predict_proba(frame), fitted.predict_proba(frame))
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict_proba(frame[["b", "a", "c"]])
    change(tmp_path / "c.json", "feature_names", value=["a", "b"])
    with pytest.raises(FormatError, match="'feature_names' must be 3 names, one for each class"):
        refocal.load(tmp_path / "c.json")


@pytest.mark.parametrize(
    "classes",
    [
        np.array([b"a", b"b", b"c"]),
        np.array(["2020-01-01", "2021-01-01", "2022-06-01"], dtype="datetime64[D]"),
        np.array([60, 90, 3600], dtype="timedelta64[s]"),
        np.array([-1, 3, 12], dtype="timedelta64[M]"),
        np.array([1, 2, 2**64 - 1], dtype=np.uint64),
        np.array([3, 5, 9], dtype=np.uint8),
        np.array([10, 20, 30], dtype=np.int32),
        np.array(["x", "y", "zz"]),
    ],
    ids=lambda classes: str(classes.dtype),
)
def test_labels_of_every_kind_are_saved_faithfully(classes, tmp_path):
    fitted = TemperatureScaling().fit(LOGITS, classes[LABELS])
    fitted.save(tmp_path / "c.json")
    loaded = refocal.load(tmp_path / "c.json")
    assert loaded.classes_.dtype == fitted.classes_.dtype
    np.testing.assert_array_equal(loaded.classes_, fitted.classes_)
    np.testing.assert_array_equal(loaded.predict(LOGITS), fitted.predict(LOGITS))
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "c.json").read_bytes()


@pytest.mark.parametrize("dtype", ["object", "complex128", "V8", "nonsense", 3])
def test_labels_of_an_unknown_kind_are_refused(saved, dtype):
    change(saved, "class_dtype", value=dtype)
    with pytest.raises(FormatError, match="class_dtype"):
        refocal.load(saved)


def test_labels_that_json_cannot_hold_are_refused_by_name(tmp_path):
    days = np.array([datetime.date(2020, 1, day) for day in (1, 2, 3)], dtype=object)
    fitted = TemperatureScaling().fit(LOGITS, days[LABELS])
    with pytest.raises(FormatError, match=r"c\.json: labels of the type date cannot be written"):
        fitted.save(tmp_path / "c.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("input", "odds"),
        ("input", 3),
        ("objective", {"a": 1}),
        ("objective", True),
        ("nll_tolerance", "x"),
        ("gammas", [1.0, "a"]),
        ("gammas", {}),
        ("temperatures", [[1.0]]),
        ("search", None),
    ],
)
def test_damaged_settings_are_refused(saved, name, value):
    change(saved, "parameters", name, value=value)
    with pytest.raises(FormatError, match=f"the parameter '{name}' of FocalTemperatureScaling"):
        refocal.load(saved)


@pytest.mark.parametrize(
    ("calibrator", "name"),
    [
        (StructuredVectorScaling(strength="auto"), "strength"),
        (SplineCalibration(np.int64(4)), "n_knots"),
        (PredictionSets(coverage=np.float32(0.8)), "coverage"),
        (PredictionSets(randomised=0), "randomised"),
        (TemperatureScaling(objective="ece", nll_tolerance=np.inf), "nll_tolerance"),
    ],
    ids=["a word in place of a number", "a number of NumPy", "a single one", "a number as a truth", "infinity"],
)
def test_settings_are_what_they_were(calibrator, name, tmp_path):
    fitted = calibrator.fit(LOGITS, LABELS)
    fitted.save(tmp_path / "c.json")
    loaded = refocal.load(tmp_path / "c.json")
    assert getattr(loaded, name) == getattr(fitted, name)
    np.testing.assert_array_equal(loaded.predict_proba(LOGITS), fitted.predict_proba(LOGITS))
