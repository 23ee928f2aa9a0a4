"""Predictions: what is checked, what is said when it does not fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from refocal import LogisticCalibration, metrics
from refocal.decomposition import log_loss_decomposition
from refocal.errors import DataError, InputWarning, LabelError, ParameterError, ShapeError
from refocal.evaluate import Run, compare, compare_many
from refocal.io import SAMPLES, Predictions, load_sample
from refocal.metrics import brier_score
from refocal.rows import RowReader

pytestmark = pytest.mark.core

LOGITS = np.array([[2.0, 0.5, -1.0], [0.1, 0.3, 0.2], [1.0, 1.5, 3.0]])


def test_only_probabilities_are_renormalised():
    with pytest.raises(ParameterError, match=r"'renormalise' of Predictions\.from_logits must be left out"):
        Predictions.from_logits(LOGITS, [0, 1, 2], renormalise=True)
    with pytest.raises(ParameterError, match="'renormalise' of fit must be left out: it is for probabilities"):
        RowReader(3, renormalise=True)


def test_values_are_kept_as_they_came():
    for values in (LOGITS.astype(np.float16), torch.from_numpy(LOGITS)):
        predictions = Predictions.from_logits(values, [0, 1, 2])
        assert predictions.values is values
        assert predictions.logits is values


def test_probabilities_become_logits_by_their_logarithm():
    p = np.array([[0.7, 0.3, 0.0], [0.2, 0.3, 0.5]])
    predictions = Predictions.from_probabilities(p, [0, 2])
    np.testing.assert_array_equal(predictions.logits[1], np.log(p[1]))
    assert predictions.logits[0, 2] == np.log(np.finfo(np.float64).eps)


def test_probabilities_as_logits_are_suspected():
    with pytest.warns(InputWarning, match="from_probabilities"):
        Predictions.from_logits([[0.7, 0.3], [0.2, 0.8]], [0, 1])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"labels": [1, 2, 3]}, LabelError, "first_label=1"),
        ({"labels": [0, 1, 3]}, LabelError, "between 0 and 2. Got labels from 0 to 3"),
        ({"labels": [0.5, 1, 2]}, LabelError, "whole numbers"),
        ({"labels": ["a", "b", "c"]}, LabelError, "class_names"),
        ({"labels": ["a", "b", "x"], "class_names": ["a", "b", "c"]}, LabelError, "'x'"),
        ({"labels": [0, 1]}, ShapeError, r"shape \(3,\)"),
        ({"logits": [0, 1, 2], "labels": LOGITS}, ShapeError, "swapped"),
        ({"logits": np.zeros((0, 3)), "labels": []}, ShapeError, "at least one row"),
        ({"logits": LOGITS * np.nan}, DataError, "NaN in row 0"),
        ({"class_names": ["a", "b"]}, ShapeError, "3 different names"),
        ({"class_names": ["a", "b", "a"]}, ShapeError, "3 different names"),
        ({"weight": [1.0, -1.0, 1.0]}, DataError, "'weight' of .* must be free of negative"),
    ],
)
def test_what_does_not_fit_is_refused(change, error, message):
    with pytest.raises(error, match=message):
        Predictions.from_logits(**{"logits": LOGITS, "labels": [0, 1, 2], **change})


def test_labels_may_count_from_one_or_be_names():
    expected = [2, 0, 1]
    for labels, options in [
        ([3, 1, 2], {"first_label": 1}),
        (["c", "a", "b"], {"class_names": ["a", "b", "c"]}),
        ([2.0, 0.0, 1.0], {}),
    ]:
        assert Predictions.from_logits(LOGITS, labels, **options).labels.tolist() == expected


def test_logits_are_not_probabilities():
    with pytest.raises(DataError, match="logits may be negative"):
        Predictions.from_probabilities(LOGITS, [0, 1, 2])


@pytest.mark.parametrize(
    ("name", "accuracy"), [("cifar10-focal3", 0.9229), ("cifar100-focal7", 0.7097), ("cifar10-cross-entropy", 0.9289)]
)
def test_samples_are_the_networks_they_are_said_to_be(name, accuracy):
    validation, test = load_sample(name)
    assert (len(validation), len(test)) == (5000, 10_000)
    assert np.mean(test.values.argmax(axis=1) == test.labels) == pytest.approx(accuracy, abs=5e-5)
    assert len(test.class_names) == test.n_classes == len(np.unique(test.labels))
    assert test.name_of(1) in ("automobile", "aquarium_fish")


def test_samples_are_small_and_known():
    from importlib.resources import files

    folder = files("refocal.io.samples")
    assert sum(len((folder / f"{name}.npz").read_bytes()) for name in SAMPLES) < 4_000_000
    with pytest.raises(ParameterError, match="'cifar100-focal7', 'cifar10-focal3'"):
        load_sample("mnist")


@pytest.mark.parametrize("asarray", [np.asarray, torch.asarray], ids=["numpy", "torch"])
@pytest.mark.parametrize("make", [Predictions.from_logits, Predictions.from_probabilities])
@pytest.mark.filterwarnings("ignore:.*sum to 1")
def test_every_pixel_of_images_is_a_row(make, asarray):
    rng = np.random.default_rng(0)
    p, masks, weight = rng.dirichlet(np.ones(3), (2, 4, 5)), rng.integers(3, size=(2, 4, 5)), rng.random((2, 4, 5))
    masks[:, 0] = 255
    for images in (p, np.moveaxis(p, -1, 1)):
        rows = make(asarray(images), asarray(masks), weight=weight, ignore_index=255)
        np.testing.assert_array_equal(np.asarray(rows.values), p[masks != 255])
        np.testing.assert_array_equal(rows.labels, masks[masks != 255])
        np.testing.assert_array_equal(rows.weight, weight[masks != 255])
    with pytest.raises(ShapeError, match=r"fit classes on axis 1 and on the last. Got shape \(2, 3, 3\)"):
        make(asarray(p[:, :3, 0]), asarray(masks[:, :3, 0]))


@pytest.mark.parametrize("kind", ["logits", "log-odds", "two columns", "probabilities"])
def test_confidence_and_events_are_probabilities_whatever_the_rows_hold(kind):
    # Logits were clipped to [0, 1] and returned as probabilities, and class 1 of two columns was the top class.
    scores = np.random.default_rng(0).normal(size=(50, 3))
    labels = np.arange(50) % 2
    if kind in ("logits", "probabilities"):
        expected = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        make = Predictions.from_logits if kind == "logits" else Predictions.from_probabilities
        rows = make(scores if kind == "logits" else expected, labels)
        confidence = expected.max(axis=1)
    else:
        p = 1.0 / (1.0 + np.exp(-scores[:, 0]))
        expected = np.stack([1.0 - p, p], axis=1)
        make = Predictions.from_log_odds if kind == "log-odds" else Predictions.from_probabilities
        rows = make(scores[:, 0] if kind == "log-odds" else expected, labels)
        confidence = p
    np.testing.assert_allclose(rows.confidence()[0], confidence, rtol=1e-12)
    np.testing.assert_allclose(rows.ranking, expected.max(axis=1), rtol=1e-12)
    np.testing.assert_array_equal(rows.top[2], expected.argmax(axis=1))
    np.testing.assert_array_equal(rows.top[1], expected.argmax(axis=1) == labels)
    for label, (p, happened) in enumerate(rows.events(range(rows.n_classes))):
        np.testing.assert_allclose(p, expected[:, label], rtol=1e-12)
        np.testing.assert_allclose(rows.event(label)[0], expected[:, label], rtol=1e-12)
        np.testing.assert_array_equal(happened, labels == label)


@pytest.mark.parametrize("form", ["as_probabilities", "of_positive"])
def test_rows_of_class_1_alone_are_read_as_the_rows_that_they_were_made_from(form):
    # A logit of class 1 alone was normalised over the rows, and fits had no second column.
    logits = 2.0 * np.random.default_rng(0).normal(size=(200, 2))
    p = 1.0 / (1.0 + np.exp(logits[:, 0] - logits[:, 1]))
    table = np.stack([1.0 - p, p], axis=1)
    labels = (np.random.default_rng(1).random(200) < p).astype(int)
    whole = Predictions.from_probabilities(table, labels, class_names=["no", "yes"])
    rows = getattr(Predictions.from_logits(logits, labels, class_names=["no", "yes"]), form)()
    for label in (0, 1):
        np.testing.assert_allclose(rows.event(label)[0], table[:, label], rtol=1e-12)
    assert brier_score(rows) == pytest.approx(brier_score(whole), rel=1e-12)
    np.testing.assert_allclose(rows.logits, np.log(table), rtol=1e-12)
    np.testing.assert_allclose(rows.as_log_probabilities().values, np.log(table), rtol=1e-12)
    np.testing.assert_allclose(rows.in_order_of(["yes", "no"]).values, table[:, ::-1], rtol=1e-12)
    calibrator = LogisticCalibration(input="probabilities").fit(whole)
    fitted = LogisticCalibration(input="probabilities").fit(rows)
    np.testing.assert_allclose(fitted.predict_proba(rows), calibrator.predict_proba(whole), rtol=1e-6)
    assert fitted.score(rows) == calibrator.score(whole)
    made = [compare(some, some, ["ts"], n_resamples=10)["ts"].measures["log_loss"].value for some in (rows, whole)]
    assert made[0] == pytest.approx(made[1], rel=1e-9)
    kept = [compare_many([Run(some, some)], ["ts"], n_draws=2).runs[0].values for some in (rows, whole)]
    assert kept[0]["log_loss"] == pytest.approx(kept[1]["log_loss"], rel=1e-9)
    parts = [log_loss_decomposition(some, by="temperature") for some in (rows, whole)]
    assert parts[0].refinement == pytest.approx(parts[1].refinement, rel=1e-9)


@pytest.mark.parametrize("label", [-1, 3, "eel", True, 1.0, None])
def test_a_class_that_there_is_not_has_no_event_and_no_name(label):
    rows = Predictions.from_logits(
        [[2.0, 0.5, 0.0], [0.1, 0.3, 1.0]], ["dog", "emu"], class_names=["cat", "dog", "emu"]
    )
    for method in (rows.event, rows.name_of, lambda one: list(rows.events([one]))):
        with pytest.raises(ParameterError, match="a column number from 0 to 2, or one of the names cat, dog, emu"):
            method(label)


@pytest.mark.parametrize("label", [-1, 2])
def test_two_classes_have_no_third(label):
    with pytest.raises(ParameterError, match="a column number from 0 to 1"):
        Predictions.from_probabilities([0.2, 0.9], [0, 1]).event(label)


def test_an_event_is_a_class_by_its_number_or_its_name():
    rows = Predictions.from_probabilities([[0.2, 0.8], [0.7, 0.3]], ["dog", "dog"], class_names=["cat", "dog"])
    for label in ("dog", 1, np.int64(1)):
        p, happened = rows.event(label)
        assert p.tolist() == [0.8, 0.3]
        assert happened.tolist() == [True, True]


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        ([1, 2, 3], {1: 0, 3: 2, "1": 0, "3.0": 2, np.float32(2.0): 1, 0: 0}),
        ([2, 3, 1], {1: 2, 2: 0, 0: 0}),
        ([-1, 0, 1], {-1: 0, 0: 1, 1: 2, 2: 2}),
        ([0.5, 1.0, 2.5], {0.5: 0, "2.5": 2, 1: 1, 2: 2}),
        (["cat", "dog", "emu"], {"cat": 0, 0: 0, 2: 2}),
    ],
)
def test_an_event_is_of_the_class_called_so_and_of_a_column_number_only_where_none_is(names, columns):
    p = np.random.default_rng(0).dirichlet([1.0, 1.0, 1.0], 30)
    labels = np.arange(30) % 3
    rows = Predictions.from_probabilities(p, [names[i] for i in labels], class_names=names)
    for label, column in columns.items():
        found, happened = rows.event(label)
        np.testing.assert_array_equal(found, p[:, column])
        np.testing.assert_array_equal(happened, labels == column)
    for column, (found, _) in enumerate(rows.events(range(3))):
        np.testing.assert_array_equal(found, p[:, column])


def test_what_is_measured_of_two_classes_called_1_and_2_is_about_the_second():
    p = np.random.default_rng(0).random(300)
    labels = (np.random.default_rng(1).random(300) < p).astype(int)
    plain = Predictions.from_probabilities(p, labels)
    named = Predictions.from_probabilities(p, labels + 1, class_names=[1, 2])
    np.testing.assert_array_equal(named.event(2)[0], p)
    np.testing.assert_array_equal(named.confidence()[0], plain.confidence()[0])
    for metric in (brier_score, metrics.mean_bias, metrics.roc_auc, metrics.smooth_ece, metrics.calibration_slope):
        assert metric(named) == metric(plain)
    assert metrics.classwise_ece(named) == metrics.classwise_ece(plain)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([2], "indices below 2"),
        ([-3], "indices below 2"),
        ([True], "of 2 flags"),
        ([[0, 1]], "one-dimensional"),
        ([0.5], "one-dimensional"),
    ],
)
def test_rows_that_there_are_not_are_not_taken(rows, text):
    with pytest.raises(ShapeError, match=text):
        Predictions.from_probabilities([0.2, 0.9], [0, 1]).take(rows)


def test_no_rows_and_rows_from_the_end_are_taken():
    rows = Predictions.from_probabilities([0.2, 0.9], [0, 1])
    assert len(rows.take([])) == 0
    assert rows.take([-1]).labels.tolist() == [1]


def test_rows_of_tensors_are_taken_from_the_last_to_the_first():
    """An index that NumPy reversed in place, which torch does not take as it is."""
    logits = torch.arange(6.0).reshape(3, 2)
    rows = Predictions.from_logits(logits, [0, 1, 1]).take(np.arange(3)[::-1])
    assert rows.values.tolist() == [[4.0, 5.0], [2.0, 3.0], [0.0, 1.0]]
    assert rows.labels.tolist() == [1, 1, 0]
    assert rows.take(np.arange(1)[::-1]).labels.tolist() == [1]


@pytest.mark.parametrize("make", [Predictions.from_probabilities, Predictions.from_log_odds])
def test_no_rows_are_said_to_be_none_also_beside_weights(make):
    with pytest.raises(ShapeError, match="at least one row"):
        make([], [], weight=[])
