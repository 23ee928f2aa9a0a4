"""Labels that do not exclude one another: shared and per label, in every form that a calibrator has."""

from __future__ import annotations

import warnings

import dask.array as da
import dask.dataframe as dd
import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from onnx import TensorProto, helper
from onnx import save as save_onnx
from scipy.special import expit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, roc_auc_score
from torch import nn

from array_libraries import MAKE
from helpers import to_numpy
from refocal import AutoCalibration, MultiLabelCalibration, TemperatureScaling, load
from refocal.errors import (
    DataError,
    FitWarning,
    FormatError,
    InputError,
    InputWarning,
    LabelError,
    ParameterError,
    ShapeError,
)
from refocal.export import append_to_onnx, to_onnx, to_torch_export
from refocal.io import MultiLabelPredictions
from refocal.metrics import brier_score, by_label, roc_auc

pytestmark = pytest.mark.numerics


def draw(n, seed, shifts=(0.0, 0.0, -1.0, 1.0), slopes=(1.0, 0.5, 1.0, 0.8)):
    """Scores of labels with slopes and intercepts of their own, labels, and the true probabilities."""
    rng = np.random.default_rng(seed)
    x = 1.5 * rng.normal(size=(n, len(shifts)))
    truth = expit(np.array(slopes) * x + shifts)
    return x, (rng.random(truth.shape) < truth).astype(np.int64), truth


@pytest.mark.parametrize("method", ["predict_proba", "predict_log_proba", "predict"])
def test_predictions_of_dask_are_lazy_and_those_of_memory(method):
    x, y, _ = draw(600, 0)
    fitted = MultiLabelCalibration(method="ts", per_label=True).fit(pd.DataFrame(x, columns=list("abcd")), y)
    want = getattr(fitted, method)(pd.DataFrame(x, columns=list("abcd")))
    lazy = getattr(fitted, method)(dd.from_pandas(pd.DataFrame(x, columns=list("abcd")), npartitions=3))
    assert isinstance(lazy, da.Array)
    assert lazy.dtype == want.dtype
    assert np.array_equal(lazy.compute(), want)
    with pytest.raises(ValueError, match="feature names should match"):
        getattr(fitted, method)(dd.from_pandas(pd.DataFrame(x, columns=list("abdc")), npartitions=3))
    unnamed = MultiLabelCalibration(method="ts", per_label=True).fit(x, y)
    lazy = getattr(unnamed, method)(da.from_array(x, chunks=(250, 2)))
    assert lazy.shape == x.shape
    assert np.array_equal(lazy.compute(), want)
    images = getattr(unnamed, method)(da.from_array(x.reshape(6, 10, 10, 4).transpose(0, 3, 1, 2)), class_axis=1)
    assert np.array_equal(images.compute().transpose(0, 2, 3, 1).reshape(600, 4), want)


def loss(truth, p):
    """The expected log-loss of each label."""
    return -np.mean(truth * np.log(p) + (1 - truth) * np.log1p(-p), axis=0)


def test_one_calibrator_of_all_labels_is_that_of_the_flat_columns():
    x, y, _ = draw(500, 0)
    shared = MultiLabelCalibration().fit(x, y)
    flat = AutoCalibration(input="log-odds").fit(x.reshape(-1), y.reshape(-1))
    assert shared.predict_proba(x).reshape(-1) == pytest.approx(flat.predict_proba(x.reshape(-1))[:, 1], abs=1e-15)
    assert np.array_equal(shared.predict(x), shared.predict_proba(x) > 0.5)
    assert shared.classes_.tolist() == [0, 1, 2, 3]
    assert shared.slope_.tolist() == [1.0] * 4
    # and every calibrator of log-odds takes columns of labels
    wide = TemperatureScaling(input="log-odds").fit(x, y)
    assert wide.predict_proba(x).shape == (500, 4, 2)
    assert wide.temperature_ == TemperatureScaling(input="log-odds").fit(x.reshape(-1), y.reshape(-1)).temperature_


def test_lines_of_labels_come_as_near_the_truth_as_logistic_regressions_do():
    (x, y, _), (test, _, truth) = draw(4000, 0), draw(4000, 1)
    shared, own = (MultiLabelCalibration(per_label=each).fit(x, y) for each in (False, True))
    peers = [LogisticRegression(C=1e4).fit(x[:, [k]], y[:, k]).predict_proba(test[:, [k]])[:, 1] for k in range(4)]
    best = loss(truth, truth)
    excess = [loss(truth, p) - best for p in (shared.predict_proba(test), own.predict_proba(test), np.stack(peers, 1))]
    assert excess[1].max() < 0.002
    assert excess[1].mean() < excess[2].mean() + 0.0005
    assert excess[0].mean() > 10 * excess[1].mean()
    assert own.fit_report_["after"]["log_loss"] < shared.fit_report_["after"]["log_loss"]
    own_loss = -np.mean(y * np.log(own.predict_proba(x)) + (1 - y) * np.log1p(-own.predict_proba(x)))
    assert own.fit_report_["after"]["log_loss"] == pytest.approx(own_loss, rel=1e-9)


def test_a_rare_label_is_drawn_to_the_others():
    """Labels that are alike: the lines of 60 rows each are worse alone than drawn together."""
    total = np.zeros(3)
    for seed in range(5):
        x, y, _ = draw(60, seed, shifts=[-2.0] * 8, slopes=[0.5] * 8)
        test, _, truth = draw(2000, 100, shifts=[-2.0] * 8, slopes=[0.5] * 8)
        shared, own = (MultiLabelCalibration(method="logistic", per_label=each).fit(x, y) for each in (False, True))
        alone = [LogisticRegression().fit(x[:, [k]], y[:, k]).predict_proba(test[:, [k]])[:, 1] for k in range(8)]
        found = (shared.predict_proba(test), own.predict_proba(test), np.stack(alone, axis=1))
        total += [(loss(truth, p) - loss(truth, truth)).mean() / 5 for p in found]
    assert total[1] < 1.5 * total[0]
    assert total[1] < 0.5 * total[2]
    x, y, _ = draw(2000, 3)
    y[:, 0] = 0  # which says little of how probable it is
    assert 0.0 < MultiLabelCalibration(per_label=True).fit(x, y).predict_proba(x)[:, 0].max() < 0.5


def test_unknown_labels_and_weights():
    x, y, _ = draw(1500, 4)
    unknown = np.random.default_rng(0).random(y.shape) < 0.3
    marked = np.where(unknown, -1, y)
    weight = np.where(unknown, 0.0, 1.0)
    for per_label in (False, True):
        model = MultiLabelCalibration(method="logistic", per_label=per_label)
        p = clone(model).fit(x, marked, ignore_index=-1).predict_proba(x)
        assert np.array_equal(p, clone(model).fit(x, y, sample_weight=weight).predict_proba(x))
        fitted = clone(model).fit(x, marked, weight.mean(axis=1), ignore_index=-1)
        assert fitted.fit_report_["n_samples"] == np.count_nonzero(~unknown)
        assert clone(model).fit(x, y).fit_report_["n_samples"] == y.size
        assert not np.allclose(p, clone(model).fit(x, y).predict_proba(x), atol=1e-6)
        twice = clone(model).fit(np.concatenate([x, x[:700]]), np.concatenate([y, y[:700]])).predict_proba(x)
        rows = np.where(np.arange(1500) < 700, 2.0, 1.0)
        assert clone(model).fit(x, y, sample_weight=rows).predict_proba(x) == pytest.approx(twice, abs=1e-6)


@pytest.mark.parametrize("kind", ["log-odds", "probabilities"])
@pytest.mark.parametrize("per_label", [False, True])
def test_every_form_gives_the_same_probabilities(kind, per_label, tmp_path):
    x, y, _ = draw(800, 5)
    values = x if kind == "log-odds" else expit(x)
    fitted = MultiLabelCalibration(method="logistic", per_label=per_label, input=kind).fit(values, y)
    want = fitted.predict_proba(values)
    if kind == "probabilities":
        other = MultiLabelCalibration(method="logistic", per_label=per_label).fit(x, y)
        assert want == pytest.approx(other.predict_proba(x), abs=1e-6)
    fitted.save(tmp_path / "c.json")
    again = load(tmp_path / "c.json")
    assert np.array_equal(again.predict_proba(values), want)
    assert again.get_params() == fitted.get_params()
    single = torch.tensor(values, dtype=torch.float32)
    assert fitted.predict_proba(single).numpy() == pytest.approx(want, abs=1e-6)
    assert fitted.to_torch()(single).exp().numpy() == pytest.approx(want, abs=1e-6)
    to_onnx(fitted, tmp_path / "c.onnx")
    (p,) = onnxruntime.InferenceSession(tmp_path / "c.onnx").run(None, {"logits": single.numpy()})
    assert p == pytest.approx(want, abs=1e-6)
    # of images, with the labels on axis 1
    images = np.ascontiguousarray(np.moveaxis(values.reshape(8, 10, 10, 4), -1, 1))
    want = np.moveaxis(want.reshape(8, 10, 10, 4), -1, 1)
    assert fitted.predict_proba(images, class_axis=1) == pytest.approx(want, abs=1e-15)
    dense = MultiLabelCalibration(method="logistic", per_label=per_label, input=kind)
    dense.fit(images, np.moveaxis(y.reshape(8, 10, 10, 4), -1, 1), class_axis=1)
    assert dense.predict_proba(images, class_axis=1) == pytest.approx(want, abs=1e-9)
    tensor = torch.tensor(images, dtype=torch.float32)
    assert fitted.to_torch(class_axis=1)(tensor).exp().numpy() == pytest.approx(want, abs=1e-6)
    to_onnx(fitted, tmp_path / "c.onnx", class_axis=1, n_axes=4)
    (p,) = onnxruntime.InferenceSession(tmp_path / "c.onnx").run(None, {"logits": tensor.numpy()})
    assert p == pytest.approx(want, abs=1e-6)


def test_a_single_label_comes_back_from_a_file(tmp_path):
    x, y, _ = draw(300, 6)
    fitted = MultiLabelCalibration(method="logistic").fit(x[:, :1], y[:, :1])
    fitted.save(tmp_path / "c.json")
    np.testing.assert_array_equal(load(tmp_path / "c.json").predict_proba(x[:, :1]), fitted.predict_proba(x[:, :1]))


def test_weights_have_their_labels_where_those_of_y_are():
    """Also where all axes are equally long, so that no shape tells them apart."""
    rng = np.random.default_rng(0)
    x = 2.0 * rng.normal(size=(60, 4, 4, 4))
    y = (rng.random(x.shape) < expit(x / 2.0)).astype(np.int64)
    weight = rng.choice([0.2, 5.0], size=x.shape)
    here = MultiLabelCalibration(method="logistic", per_label=True).fit(x, y, weight)
    x1, y1, weight1 = (np.moveaxis(each, -1, 1) for each in (x, y, weight))
    there = MultiLabelCalibration(method="logistic", per_label=True).fit(x1, y1, weight1, class_axis=1)
    np.testing.assert_allclose(there.predict_proba(x), here.predict_proba(x), rtol=1e-9)
    part = MultiLabelCalibration(method="logistic").fit(x1[..., :2], y1[..., :2], weight1[..., :2], class_axis=1)
    want = MultiLabelCalibration(method="logistic").fit(x[:, :, :2], y[:, :, :2], weight[:, :, :2])
    np.testing.assert_allclose(part.predict_proba(x), want.predict_proba(x), rtol=1e-9)
    by_row = MultiLabelCalibration(method="logistic").fit(x1, y1, weight[..., 0], class_axis=1)
    want = MultiLabelCalibration(method="logistic").fit(x, y, np.repeat(weight[..., :1], 4, axis=-1))
    np.testing.assert_allclose(by_row.predict_proba(x), want.predict_proba(x), rtol=1e-9)


def test_columns_of_scores_and_of_labels_are_in_the_same_order():
    x, y, _ = draw(300, 5)
    scores, labels = pd.DataFrame(x, columns=[*"abcd"]), pd.DataFrame(y, columns=[*"abcd"])
    fitted = MultiLabelCalibration(method="ts").fit(scores, labels)
    with pytest.raises(
        ShapeError, match=r"'y' .* of columns in the order of those of the scores, 'd' at 3. Got 'd' at 0"
    ):
        MultiLabelCalibration(method="ts").fit(scores, labels[[*"dabc"]])
    with pytest.raises(ShapeError, match=r"'b' at 1. Got 'b' at 0"):
        MultiLabelCalibration(method="ts").fit(x, labels[[*"bacd"]], class_names=[*"abcd"])
    for other in (labels.add_prefix("is_"), y):  # other names, or none: by their places
        again = MultiLabelCalibration(method="ts").fit(scores, other)
        assert np.array_equal(again.predict_proba(scores), fitted.predict_proba(scores))


@pytest.mark.slow
def test_as_an_exported_program():
    x, y, _ = draw(300, 5)
    fitted = MultiLabelCalibration(method="logistic", per_label=True).fit(x, y)
    p = to_torch_export(fitted).module()(torch.tensor(x, dtype=torch.float32)).exp()
    assert p.numpy() == pytest.approx(fitted.predict_proba(x), abs=1e-6)


def test_behind_a_model_in_onnx_and_torch(tmp_path):
    x, y, _ = draw(400, 6)
    fitted = MultiLabelCalibration(per_label=True).fit(x, y)
    want = fitted.predict_proba(x)
    head = nn.Linear(4, 4, bias=False)
    head.weight.data = torch.eye(4)
    model = nn.Sequential(head, fitted.to_torch())
    assert model(torch.tensor(x, dtype=torch.float32)).exp().detach().numpy() == pytest.approx(want, abs=1e-6)
    for name, operator in (("plain", "Identity"), ("sigmoid", "Sigmoid")):
        given, made = (helper.make_tensor_value_info(each, TensorProto.FLOAT, ["batch", 4]) for each in ("x", "z"))
        graph = helper.make_graph([helper.make_node(operator, ["x"], ["z"])], "model", [given], [made])
        save_onnx(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
            tmp_path / f"{name}.onnx",
        )
    append_to_onnx(tmp_path / "plain.onnx", fitted, tmp_path / "calibrated.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "calibrated.onnx")
    assert session.run(None, {"x": x.astype(np.float32)})[0] == pytest.approx(want, abs=1e-6)
    with pytest.raises(ParameterError, match="which a Sigmoid node makes"):
        append_to_onnx(tmp_path / "sigmoid.onnx", fitted, tmp_path / "calibrated.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(MAKE))
def test_the_kind_of_array_follows_the_input(kind):
    x, y, _ = draw(200, 12)
    library = MAKE[kind]
    fitted = MultiLabelCalibration(method="logistic", per_label=True).fit(library(x), y)
    want = MultiLabelCalibration(method="logistic", per_label=True).fit(x, y).predict_proba(x)
    p = fitted.predict_proba(library(x))
    assert type(p) is type(library(x))
    assert to_numpy(p) == pytest.approx(want, abs=1e-9)


def test_many_rows_are_walked_through_in_blocks():
    x, y, _ = draw(2000, 7)
    fitted = MultiLabelCalibration(per_label=True).fit(x, y)
    many = np.tile(x, (40, 1))
    assert np.array_equal(fitted.predict_proba(many), np.tile(fitted.predict_proba(x), (40, 1)))


def test_names_of_columns_are_the_labels(tmp_path):
    x, y, _ = draw(300, 8)
    names = ["cat", "dog", "tree", "car"]
    fitted = MultiLabelCalibration(per_label=True).fit(pd.DataFrame(x, columns=names), y)
    assert fitted.classes_.tolist() == names
    fitted.save(tmp_path / "c.json")
    again = load(tmp_path / "c.json")
    assert again.classes_.tolist() == names
    with pytest.raises(ValueError, match="same order as they were in fit"):
        again.predict_proba(pd.DataFrame(x, columns=names[::-1]))
    damaged = (tmp_path / "c.json").read_text().replace('"slope": [', '"slope": [1.0,')
    (tmp_path / "c.json").write_text(damaged)
    with pytest.raises(FormatError, match="LabelLines"):
        load(tmp_path / "c.json")


def test_rows_of_single_labels_are_predicted_as_columns_are():
    """Also where a step follows the lines of the labels, as label smoothing undone does."""
    made = MultiLabelCalibration.from_training(2.0, n_labels=4, alpha=[0.25, 0.5, 0.1, 0.7], label_smoothing=0.1)
    x, _, _ = draw(50, 0)
    label = np.arange(200) % 4
    flat = np.stack([np.zeros(200), x.reshape(-1)], axis=1)
    found = made.log_proba_in_groups(flat, {"label": label.astype(str)})[:, 1]
    assert found == pytest.approx(made.predict_log_proba(x).reshape(-1), rel=1e-12)


def test_metrics_of_each_label_are_those_of_scikit_learn():
    x, y, _ = draw(200, 10)
    weight = np.random.default_rng(0).random(200)
    p = expit(x)
    found = by_label(brier_score, y, p, sample_weight=weight)
    assert by_label("brier_score", y, p, sample_weight=weight).pooled == found.pooled
    with pytest.raises(ParameterError, match="'metric' of by_label must be"):
        by_label("brier", y, p)
    # A function of one's own takes labels and probabilities, as everywhere, and weights where there are some.
    own = by_label(lambda labels, q: np.mean((labels - q) ** 2), y, p)
    np.testing.assert_allclose(own.labels, by_label(brier_score, y, p).labels)
    want = [brier_score_loss(y[:, k], p[:, k], sample_weight=weight) for k in range(4)]
    assert found.labels == pytest.approx(want, abs=1e-12)
    assert found.mean == pytest.approx(np.mean(want), abs=1e-12)
    assert found.pooled == pytest.approx(np.average((y - p) ** 2, weights=np.tile(weight[:, None], 4)), abs=1e-12)
    areas = by_label(roc_auc, y, torch.tensor(p))
    assert areas.mean == pytest.approx(roc_auc_score(y, p, average="macro"), abs=1e-12)
    assert areas.pooled == pytest.approx(roc_auc_score(y, p, average="micro"), abs=1e-12)
    marked = y.copy()
    marked[:50, 0], marked[:, 3] = 7, 7
    some = by_label(brier_score, marked, p, ignore_index=7)
    assert some.labels[:3] == pytest.approx(
        [np.mean((y[50:, 0] - p[50:, 0]) ** 2), *((y - p)[:, 1:3] ** 2).mean(axis=0)]
    )
    assert np.isnan(some.labels[3])
    assert some.mean == pytest.approx(some.labels[:3].mean())
    with pytest.raises(ShapeError, match="'probabilities' of by_label must be two-dimensional"):
        by_label(brier_score, y[:, 0], p[:, 0])


X, Y, _ = draw(30, 9)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m.fit(X[:, 0], Y[:, 0]), ShapeError, "'X' of MultiLabelCalibration.fit must be two-dimensional"),
        (lambda m: m.fit(X, Y[:, 0]), ShapeError, r"'y' .* must be of shape \(30, 4\), ones and zeros"),
        (lambda m: m.fit(X), LabelError, "'y' of MultiLabelCalibration.fit must be given"),
        (lambda m: m.fit(X, Y - 1), LabelError, "between 0 and 1"),
        (lambda m: m.fit(X, np.full_like(Y, -1), ignore_index=-1), LabelError, "'ignore_index' does not leave out"),
        (lambda m: m.fit(X, Y, sample_weight=np.ones(7)), ShapeError, "'sample_weight'"),
        (lambda m: m.set_params(input="logits").fit(X, Y), ParameterError, "one of 'log-odds', 'probabilities'"),
        (lambda m: m.set_params(per_label="no").fit(X, Y), ParameterError, "'per_label' .* must be True or False"),
        (lambda m: m.set_params(method="best").fit(X, Y), ParameterError, "'method'"),
        (lambda m: m.fit(X, Y).predict_proba(X[:, :3]), ShapeError, "4 columns, as many as there are labels"),
        (lambda m: m.fit(TemperatureScaling().dataset(X, Y[:, 0])), DataError, "must be an array of numbers"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call(MultiLabelCalibration())


def test_probabilities_in_place_of_log_odds_are_pointed_out():
    with pytest.warns(InputWarning, match="lie between 0 and 1, as probabilities do; log-odds were expected"):
        MultiLabelCalibration().fit(expit(X), Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        MultiLabelCalibration(input="probabilities").fit(expit(X), Y)
    exact = np.where(expit(X) > 0.9, 1.0, expit(X))  # a probability of 1 says that it was high
    assert MultiLabelCalibration(input="probabilities").fit(exact, Y).predict_proba(exact).max() < 1.0


def test_a_label_of_one_class_has_no_auc():
    x, y, _ = draw(200, 10)
    y, p = y.copy(), expit(x)
    y[:, 1] = 0
    found = by_label(roc_auc, y, p)
    assert np.isnan(found.labels).tolist() == [False, True, False, False]
    assert found.mean == pytest.approx(np.mean([roc_auc_score(y[:, k], p[:, k]) for k in (0, 2, 3)]), abs=1e-12)
    assert found.pooled == pytest.approx(roc_auc_score(y, p, average="micro"), abs=1e-12)
    weight = 1.0 - y[:, 0]  # without the positives of the first label
    assert np.isnan(by_label(roc_auc, y, p, sample_weight=weight).labels[:2]).all()
    assert np.isnan(by_label(roc_auc, 0 * y, p).pooled)
    y[:, 1] = 2
    with pytest.raises(LabelError, match="'y_true' of by_label must be between 0 and 1"):
        by_label(brier_score, y, p)


def test_a_label_of_infinite_loss_makes_the_mean_over_labels_infinite():
    """As that over all labels together: only labels that define no metric are left out."""
    y = np.array([[1, 0], [0, 1], [1, 1], [0, 1]])
    p = np.array([[0.9, 1.0], [0.2, 0.7], [0.8, 0.6], [0.3, 0.9]])
    with np.errstate(divide="ignore"):
        found = by_label("log_loss", y, np.log(p))
    assert found.labels[0] == pytest.approx(-np.mean(np.log([0.9, 0.8, 0.8, 0.7])))
    assert found.labels[1] == found.mean == found.pooled == np.inf


@pytest.mark.parametrize("weight", [[2.0], 2.0, np.ones(6), np.ones((5, 2)), [1.0, 1.0, 1.0, 1.0, -1.0]])
def test_weights_of_rows_are_one_for_each(weight):
    with pytest.raises(InputError, match="'sample_weight' of by_label must be "):
        by_label(brier_score, np.eye(5, 2, dtype=int), np.full((5, 2), 0.5), sample_weight=weight)


def test_checked_rows_of_labels_are_refused_with_what_to_pass():
    rng = np.random.default_rng(0)
    rows = MultiLabelPredictions.from_log_odds(rng.normal(size=(60, 3)), rng.integers(0, 2, (60, 3)))
    with pytest.raises(DataError, match=r"must be arrays: fit\(rows.values, rows.labels, .* Got MultiLabelPredictions"):
        MultiLabelCalibration().fit(rows)
    calibrator = MultiLabelCalibration(method="ts").fit(rows.values, rows.labels)
    for predict in (calibrator.predict, calibrator.predict_proba, calibrator.predict_log_proba):
        with pytest.raises(DataError, match=r"must be arrays: rows\.values for .* Got MultiLabelPredictions"):
            predict(rows)


@pytest.mark.parametrize("n_labels", [1, 2, 3])
def test_few_labels_that_apply_are_not_called_by_the_name_of_a_label(n_labels):
    z = np.random.default_rng(0).normal(size=(60, n_labels)) - 4.0
    y = np.zeros((60, n_labels), dtype=int)
    y[:3, 0] = 1
    with pytest.warns(FitWarning) as caught:
        MultiLabelCalibration().fit(z, y, class_names=["cat", "dog", "emu"][:n_labels])
    few = [str(each.message) for each in caught if "Only" in str(each.message)]
    assert [text.split(":")[1] for text in few] == [f" Only 3 of {60 * n_labels} rows are of class 1"]


def test_labels_of_weight_0_are_not_counted_as_unknown_ones_are_not():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    y = (rng.random((200, 2)) < expit(x)).astype(int)
    weight = np.ones((200, 2))
    weight[::4, 1] = 0.0
    weighted = MultiLabelCalibration(method="ts").fit(x, y, weight)
    unknown = MultiLabelCalibration(method="ts").fit(x, np.where(weight > 0.0, y, 9), ignore_index=9)
    assert weighted.fit_report_["n_samples"] == unknown.fit_report_["n_samples"] == 350
    np.testing.assert_array_equal(weighted.predict_proba(x), unknown.predict_proba(x))
