"""Class weights of the training loss in the focal family: known, fitted, and without any rows."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, logit

import refocal
from refocal import FocalCalibration, FocalTemperatureScaling, MultiLabelCalibration, TemperatureScaling
from refocal.cli.run import run
from refocal.errors import FormatError, ParameterError
from refocal.export import to_onnx
from refocal.io import blocks
from refocal.maps import focal, inverse_focal, sigmoid_focal, sigmoid_unsmooth, unsmooth

pytestmark = pytest.mark.numerics

WEIGHT = np.array([0.3, 1.0, 2.0, 5.0])


@pytest.fixture(scope="module")
def trained():
    """Logits of a network at the minimum of focal loss with γ = 2 and class weights, labels, the true log p."""
    rng = np.random.default_rng(0)
    truth = log_softmax(2.0 * rng.normal(size=(4000, 4)) - [0.0, 0.0, 1.0, 2.0], axis=1)
    labels = np.argmax(truth + rng.gumbel(size=truth.shape), axis=1)
    return inverse_focal(truth, 2.0, class_weight=WEIGHT), labels, truth


def log_loss(log_p, labels):
    return -np.mean(log_p[np.arange(len(labels)), labels])


def plain_minimum(logits, labels, offset=None, gamma=None):
    """The least log-loss over (γ, T) and the offset, or what of them is not given, by a search without derivatives."""
    n_classes = logits.shape[1]

    def loss(x):
        g = np.expm1(x[0]) if gamma is None else gamma
        b = offset if offset is not None else np.concatenate([[0.0], x[2:]])
        return log_loss(log_softmax(focal(logits / np.exp(x[1]), g) + b, axis=1), labels)

    start = np.zeros(2 if offset is not None else 1 + n_classes)
    return minimize(loss, start, method="Powell", options={"xtol": 1e-4, "ftol": 1e-9, "maxiter": 100}).fun


def test_known_weights_are_taken_out_behind_the_map(trained):
    logits, labels, truth = trained
    fitted = FocalTemperatureScaling(class_weight=WEIGHT).fit(1.5 * logits, labels)
    assert fitted.gamma_ == pytest.approx(2.0, abs=0.4)
    assert fitted.solution_.value <= plain_minimum(1.5 * logits, labels, -np.log(WEIGHT)) + 1e-7
    assert log_loss(fitted.predict_log_proba(1.5 * logits), labels) == pytest.approx(fitted.solution_.value, rel=1e-12)
    assert fitted.solution_.value < log_loss(truth, labels) + 1e-6
    assert fitted.solution_.value < FocalTemperatureScaling(objective="nll").fit(logits, labels).solution_.value - 0.05
    np.testing.assert_allclose(fitted.class_weight_, WEIGHT / np.exp(np.mean(np.log(WEIGHT))))


@pytest.mark.slow
def test_weights_can_be_found(trained):
    logits, labels, _ = trained
    fitted = FocalTemperatureScaling(class_weight="fit").fit(logits, labels)
    np.testing.assert_allclose(np.log(fitted.class_weight_ / WEIGHT) - np.mean(np.log(1 / WEIGHT)), 0.0, atol=0.25)
    ridge = 0.5 / len(labels) * np.sum(np.log(fitted.class_weight_) ** 2)
    assert fitted.solution_.value <= plain_minimum(logits, labels) + ridge + 1e-6
    only = TemperatureScaling(class_weight="fit").fit(logits, labels)
    assert only.gamma_ == 0.0
    assert only.solution_.value <= plain_minimum(logits, labels, gamma=0.0) + ridge + 1e-6


@pytest.mark.parametrize("class_weight", [WEIGHT, "fit"], ids=["known", "fit"])
def test_single_precision_ends_where_double_precision_does(trained, class_weight):
    """A line search on sums of float32 numbers ends before its minimum; bfloat16 tensors are computed in float32."""
    coarse, labels = torch.asarray(trained[0][:1000]).bfloat16(), trained[1][:1000]
    double = FocalTemperatureScaling(class_weight=class_weight).fit(coarse.double().numpy(), labels)
    for logits in (coarse, coarse.float().numpy()):
        fitted = FocalTemperatureScaling(class_weight=class_weight).fit(logits, labels)
        assert fitted.solution_.status == "converged"
        assert fitted.temperature_ == pytest.approx(double.temperature_, rel=1e-3)


def test_a_known_gamma_and_known_weights_leave_nothing_to_fit(trained):
    logits, labels, truth = trained
    fitted = FocalCalibration(2.0, class_weight=WEIGHT).fit(logits, labels)
    np.testing.assert_allclose(fitted.predict_log_proba(logits), truth, rtol=1e-9, atol=1e-12)
    assert fitted.solution_.value == pytest.approx(log_loss(truth, labels), rel=1e-12)
    assert fitted.fit_report_["accuracy_change"] == pytest.approx(
        np.mean(truth.argmax(1) == labels) - np.mean(logits.argmax(1) == labels)
    )
    np.testing.assert_array_equal(fitted.predict(logits), truth.argmax(1))


def test_weights_of_rows_count_and_blocks_give_the_same(trained):
    logits, labels = trained[0][:600], trained[1][:600]
    settings = {"class_weight": WEIGHT, "gammas": 2.0}
    weight = np.random.default_rng(1).integers(0, 3, len(labels))
    weighted = FocalTemperatureScaling(**settings).fit(logits, labels, weight)
    repeated = FocalTemperatureScaling(**settings).fit(np.repeat(logits, weight, 0), np.repeat(labels, weight))
    assert weighted.temperature_ == pytest.approx(repeated.temperature_, rel=1e-5)
    together = FocalTemperatureScaling(**settings).fit(logits, labels)
    apart = FocalTemperatureScaling(**settings).fit(
        blocks([(logits[:200], labels[:200]), (logits[200:], labels[200:])])
    )
    assert apart.temperature_ == pytest.approx(together.temperature_, rel=1e-6)
    assert apart.solution_.value == pytest.approx(together.solution_.value, rel=1e-12)


@pytest.mark.parametrize("class_weight", [[1.0, 2.0, 3.0], "fit"])
def test_rows_that_are_all_right_have_no_minimum_with_class_weights_either(class_weight):
    logits = np.tile(np.diag([2.0, 1.0, 3.0]), (20, 1))
    labels = np.tile(np.arange(3), 20)
    without = TemperatureScaling().fit(logits, labels).solution_
    fitted = TemperatureScaling(class_weight=class_weight).fit(logits, labels).solution_
    assert without.status == fitted.status == "at a bound"
    assert fitted.message == without.message


def test_a_calibrator_of_the_training_settings_needs_no_rows(trained):
    logits, _, truth = trained
    made = FocalCalibration.from_training(2.0, class_weight=WEIGHT)
    np.testing.assert_allclose(made.predict_log_proba(logits), truth, rtol=1e-9, atol=1e-12)
    scores = np.linspace(0.01, 0.99, 50)
    detector = FocalCalibration.from_training(2.0, alpha=0.25)
    np.testing.assert_allclose(
        detector.predict_proba(logit(scores))[:, 1], expit(sigmoid_focal(logit(scores), 2.0, 0.25))
    )
    smoothed = FocalCalibration.from_training(0.0, label_smoothing=0.1, n_classes=4)
    rows = np.log([[0.7, 0.2, 0.06, 0.04], [0.9, 0.05, 0.03, 0.02]])
    p = smoothed.predict_proba(rows)
    np.testing.assert_allclose(p[0], np.exp(unsmooth(rows[0], 0.1)), rtol=1e-12)
    assert p[1, 3] == pytest.approx(0.02 / 100 / (0.875 + 0.025 + 0.005 + 0.0002), rel=1e-9)


@pytest.fixture(scope="module")
def made():
    return FocalCalibration.from_training(1.5, class_weight=WEIGHT, label_smoothing=0.1)


def test_it_goes_everywhere_a_fitted_one_goes(made, trained, tmp_path, capsys):
    x = trained[0][:50].astype(np.float32)
    p = made.predict_proba(x.astype(np.float64))
    made.save(tmp_path / "c.json")
    loaded = refocal.load(tmp_path / "c.json")
    np.testing.assert_array_equal(loaded.predict_proba(x.astype(np.float64)), p)
    np.testing.assert_allclose(made.to_torch()(torch.tensor(x)).exp().numpy(), p, atol=2e-6)
    to_onnx(made, tmp_path / "c.onnx")
    (by_onnx,) = onnxruntime.InferenceSession(str(tmp_path / "c.onnx")).run(None, {"logits": x})
    np.testing.assert_allclose(by_onnx, p, atol=2e-6)
    assert "made of the settings of the training, without rows; 4 classes" in made._repr_html_()
    assert run(["show", str(tmp_path / "c.json")]) == 0
    assert "made of the settings of the training, without rows; 4 classes" in capsys.readouterr().out


@pytest.mark.parametrize("class_weight", ["fit", [1.0, 2.0, 0.5, 1.0]])
def test_settings_survive_a_file(trained, class_weight, tmp_path):
    logits, labels = trained[0][:200], trained[1][:200]
    fitted = TemperatureScaling(class_weight=class_weight).fit(logits, labels)
    fitted.save(tmp_path / "c.json")
    loaded = refocal.load(tmp_path / "c.json")
    assert loaded.class_weight == class_weight
    np.testing.assert_array_equal(loaded.predict_log_proba(logits), fitted.predict_log_proba(logits))
    text = (tmp_path / "c.json").read_text().replace('"offset": [', '"offset": [1.0,')
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(FormatError, match="parameters that fit each other and 4 classes"):
        refocal.load(tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("message", "settings"),
    [
        (r"'class_weight' of TemperatureScaling.fit must be of shape \(4,\)", {"class_weight": [1.0, 2.0]}),
        ("'class_weight' of TemperatureScaling.fit must be 'fit' or an array of num", {"class_weight": "yes"}),
        ("'class_weight' of TemperatureScaling.fit must be finite and greater than 0. Got -1.0",
         {"class_weight": [1.0, 2.0, 3.0, -1.0]}),
        ("'objective' of TemperatureScaling must be 'auto' or 'nll' together with class_weight",
         {"class_weight": WEIGHT, "objective": "ece"}),
        ("'search' of TemperatureScaling must be 'auto' or 'newton' together with class_weight",
         {"class_weight": WEIGHT, "search": "grid"}),
        ("'temperatures' of TemperatureScaling must be with class_weight, a finite number greater than 0",
         {"class_weight": WEIGHT, "temperatures": [1, 2]}),
    ],
)  # fmt: skip
def test_bad_settings_are_refused(trained, message, settings):
    with pytest.raises(ParameterError, match=message):
        TemperatureScaling(**settings).fit(trained[0][:50], trained[1][:50])


@pytest.mark.parametrize(
    ("message", "settings"),
    [
        ("'n_classes' of FocalCalibration.from_training must be given, or else class_weight or alpha", {}),
        ("'class_weight' of FocalCalibration.from_training must be left out where alpha is given",
         {"alpha": 0.25, "class_weight": [1, 2]}),
        ("'alpha' of FocalCalibration.from_training must be a finite number greater than 0 and less than 1",
         {"alpha": 25}),
        ("'n_classes' of FocalCalibration.from_training must be 2, as there are weights",
         {"alpha": 0.25, "n_classes": 3}),
        ("'n_classes' of FocalCalibration.from_training must be an integer of at least 2", {"n_classes": 1}),
        ("'input' of FocalCalibration.from_training must be one of 'logits'", {"n_classes": 3, "input": "odds"}),
        ("'n_classes' of FocalCalibration.from_training must be an integer of at least 2", {"class_weight": 5}),
        ("'class_weight' of FocalCalibration.from_training must be of shape", {"class_weight": [[1, 2], [3, 4]]}),
        ("'label_smoothing' of FocalCalibration.from_training must be a finite number at least 0 and less than 1",
         {"n_classes": 3, "label_smoothing": 1.0}),
    ],
)  # fmt: skip
def test_bad_training_settings_are_refused(message, settings):
    with pytest.raises(ParameterError, match=message):
        FocalCalibration.from_training(2.0, **settings)


def test_labels_that_do_not_exclude_each_other_need_no_rows_either(tmp_path):
    rng = np.random.default_rng(3)
    scores, alpha = 3.0 * rng.normal(size=(20, 3)), [0.25, 0.5, 0.9]
    made = MultiLabelCalibration.from_training(2.0, alpha=alpha, n_labels=3)
    expected = expit(sigmoid_focal(scores, 2.0, alpha))
    np.testing.assert_allclose(made.predict_proba(scores), expected, rtol=1e-10)
    made.save(tmp_path / "c.json")
    np.testing.assert_array_equal(refocal.load(tmp_path / "c.json").predict_proba(scores), made.predict_proba(scores))
    x = torch.tensor(scores, dtype=torch.float32)
    np.testing.assert_allclose(made.to_torch()(x).exp().numpy(), expected, atol=2e-6)
    to_onnx(made, tmp_path / "c.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "c.onnx"))
    (by_onnx,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(by_onnx, expected, atol=2e-6)
    smoothed = MultiLabelCalibration.from_training(2.0, alpha=0.25, n_labels=3, label_smoothing=0.1)
    inside = np.array([[-0.5, 0.0, 0.3]])
    found = expit(sigmoid_unsmooth(sigmoid_focal(inside, 2.0, 0.25), 0.1))
    np.testing.assert_allclose(smoothed.predict_proba(inside), found, rtol=1e-10)
    with pytest.raises(ParameterError, match=r"'alpha' of MultiLabelCalibration.from_training must be"):
        MultiLabelCalibration.from_training(2.0, alpha=1.0, n_labels=3)


def test_class_weights_by_class(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.choice(3, 600, p=[0.1, 0.2, 0.7])
    logits = 3.0 * np.eye(3)[labels] + 1.5 * rng.normal(size=(600, 3))
    names = np.array(["a", "b", "c"])[labels]
    by_frequency = pd.Series({"b": 0.5, "c": 0.3, "a": 0.2})
    expected = FocalTemperatureScaling(objective="nll", class_weight=[0.2, 0.5, 0.3]).fit(logits, names)
    for weight in (by_frequency, by_frequency.to_dict(), by_frequency.sort_index()):
        fitted = FocalTemperatureScaling(objective="nll", class_weight=weight).fit(logits, names)
        np.testing.assert_array_equal(fitted.class_weight_, expected.class_weight_)
        fitted.save(tmp_path / "calibrator.json")
        loaded = refocal.load(tmp_path / "calibrator.json")
        np.testing.assert_array_equal(loaded.predict_proba(logits), expected.predict_proba(logits))
    with pytest.raises(ParameterError, match=r"'class_weight' of FocalTemperatureScaling.fit must be of the classes"):
        FocalTemperatureScaling(objective="nll", class_weight=by_frequency[:2]).fit(logits, names)


def test_class_weights_of_a_series_without_known_classes():
    by_frequency = pd.Series([0.5, 0.3, 0.2], index=[1, 2, 0])
    made = FocalCalibration.from_training(2.0, class_weight=by_frequency)
    expected = FocalCalibration.from_training(2.0, class_weight=[0.2, 0.5, 0.3])
    np.testing.assert_array_equal(made.class_weight_, expected.class_weight_)
    with pytest.raises(ParameterError, match="'class_weight'"):
        FocalCalibration.from_training(2.0, class_weight=pd.Series({"b": 0.5, "a": 0.5}))
    with pytest.raises(ParameterError, match=r"'class_weight' of focal must be .* in the order of the columns"):
        focal(np.log([[0.2, 0.3, 0.5]]), 2.0, class_weight=by_frequency)
    in_order = focal(np.log([[0.2, 0.3, 0.5]]), 2.0, class_weight=pd.Series([0.2, 0.5, 0.3]))
    np.testing.assert_array_equal(in_order, focal(np.log([[0.2, 0.3, 0.5]]), 2.0, class_weight=[0.2, 0.5, 0.3]))


def test_weights_that_torch_records_are_saved(tmp_path):
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(400, 3))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    weights = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    fitted = FocalTemperatureScaling(class_weight=weights).fit(logits, labels)
    fitted.save(tmp_path / "c.json")
    loaded = refocal.load(tmp_path / "c.json")
    assert loaded.class_weight == [1.0, 2.0, 3.0]
    np.testing.assert_array_equal(loaded.predict_proba(logits), fitted.predict_proba(logits))
