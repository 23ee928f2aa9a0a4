"""The affine family: vector, matrix and structured scaling, Dirichlet calibration, focal structured scaling."""

from __future__ import annotations

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from helpers import NOT_FOR_LOGITS, draw_biased_logits, to_numpy
from refocal import (
    AutoCalibration,
    DirichletCalibration,
    MatrixScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    TemperatureScaling,
    VectorScaling,
    metrics,
)
from refocal._arrays import namespace
from refocal.engine import Block
from refocal.errors import DataError, FitWarning, LabelError, ParameterError, ShapeError
from refocal.fitting.affine import Recipe, fit_affine, out_of_fold
from refocal.fitting.folds import folds
from refocal.io import load_sample
from refocal.maps import inverse_focal, log_softmax
from refocal.maps.steps import KINDS, Affine, features, keep_top

pytestmark = pytest.mark.numerics

FAMILY = [VectorScaling, MatrixScaling, DirichletCalibration, StructuredVectorScaling, StructuredMatrixScaling]
ALL = [kind(strength=1.0) for kind in FAMILY]


EXPECTED = NOT_FOR_LOGITS | {
    "check_sample_weight_equivalence_on_dense_data": "asks for seven digits of what is found to five, and for the same "
    "folds of repeated rows; test_weights_count_as_repeated_rows says what holds",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "calibrator",
    [
        StructuredVectorScaling(),
        *(pytest.param(each, marks=pytest.mark.long) for each in (MatrixScaling(), AutoCalibration(n_folds=2))),
    ],
    ids=str,
)
def test_scikit_learn_checks(calibrator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(calibrator, expected_failed_checks=EXPECTED, on_fail="raise", on_skip=None)
    assert sum(result["status"] == "passed" for result in results) >= 45
    assert {result["check_name"] for result in results if result["status"] == "xfail"} <= set(EXPECTED)


def torch_optimum(z, labels, of_weights, of_intercept):
    """The same penalised log-loss, written and minimised by torch."""
    x, y, k, matrix = torch.tensor(z), torch.tensor(labels), z.shape[1], of_weights.ndim == 2
    weights = (torch.eye(k, dtype=x.dtype) if matrix else torch.ones(k, dtype=x.dtype)).requires_grad_()
    intercept = torch.zeros(k, dtype=x.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weights, intercept], max_iter=500, tolerance_grad=1e-9, line_search_fn="strong_wolfe"
    )

    def loss():
        optimiser.zero_grad()
        away = weights - (torch.eye(k, dtype=x.dtype) if matrix else 1.0)
        ridge = (torch.tensor(of_weights) * away**2).sum() + of_intercept * (intercept**2).sum()
        scores = (x @ weights.T if matrix else x * weights) + intercept
        value = torch.nn.functional.cross_entropy(scores, y) + ridge
        value.backward()
        return value

    for _ in range(3):
        optimiser.step(loss)
    return weights.detach().numpy(), intercept.detach().numpy()


@pytest.mark.parametrize("matrix", [False, True])
def test_the_fit_finds_the_minimum_that_torch_finds(matrix):
    logits, labels = draw_biased_logits(800, 4)
    of_weights = np.where(np.eye(4) > 0, 0.002, 0.015) if matrix else np.full(4, 0.002)
    found = fit_affine(
        Block(logits, labels), Recipe("tempered", "matrix" if matrix else "vector", diagonal_strength=0.4), 1.0
    )
    weights, intercept = torch_optimum(log_softmax(logits), labels, of_weights, 0.005)
    assert found.converged
    np.testing.assert_allclose(found.weights, weights, atol=2e-3)
    np.testing.assert_allclose(found.intercept, intercept, atol=2e-3)


@pytest.mark.parametrize("kind", [StructuredVectorScaling, StructuredMatrixScaling])
def test_weights_count_as_repeated_rows(kind):
    logits, labels = draw_biased_logits(300, 3)
    weight = np.random.default_rng(1).integers(0, 3, 300)
    weighted = kind().fit(logits, labels, sample_weight=weight.astype(float))
    repeated = kind().fit(np.repeat(logits, weight, axis=0), np.repeat(labels, weight))
    np.testing.assert_allclose(weighted.predict_proba(logits), repeated.predict_proba(logits), atol=1e-4)
    assert abs(weighted.predict_proba(logits) - kind().fit(logits, labels).predict_proba(logits)).max() > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cifar10-focal3", "cifar100-focal7"])
def test_structured_scaling_is_as_good_as_that_of_probmetrics(name):
    """Test log-loss within 0.2 % on embedded logits of a real network."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from probmetrics.calibrators.logistic import SMSCalibrator, SVSCalibrator

        validation, test = load_sample(name)
        (val, y), (held_out, y_test) = (
            (np.asarray(d.values, np.float32), np.asarray(d.labels)) for d in (validation, test)
        )
        p, p_test = np.exp(log_softmax(val)), np.exp(log_softmax(held_out))
        theirs = [kind().fit(p, y).predict_proba(p_test) for kind in (SVSCalibrator, SMSCalibrator)]
    for kind, other in zip((StructuredVectorScaling, StructuredMatrixScaling), theirs, strict=True):
        ours = metrics.log_loss(y_test, kind().fit(val, y).predict_log_proba(held_out))
        assert ours <= 1.002 * metrics.log_loss(y_test, np.log(other))


@pytest.mark.slow
@pytest.mark.parametrize("calibrator", [*(kind() for kind in FAMILY), AutoCalibration()], ids=str)
def test_what_a_temperature_cannot_mend_is_mended(calibrator):
    val, y = draw_biased_logits(1500, 5)
    test, y_test = draw_biased_logits(5000, 5, seed=1)
    plain = TemperatureScaling().fit(val, y)
    before = metrics.log_loss(y_test, plain.predict_log_proba(test))
    fitted = clone(calibrator).fit(val, y)
    assert metrics.log_loss(y_test, fitted.predict_log_proba(test)) < 0.97 * before
    report = fitted.fit_report_
    assert report["accuracy_change"] == report["after"]["accuracy"] - report["before"]["accuracy"] > 0.005
    assert report["scaling"]["chosen"] in ("vector", "matrix")
    predicted = np.mean(fitted.predict(val) == y) - np.mean(val.argmax(axis=1) == y)
    assert report["accuracy_change"] == pytest.approx(predicted, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("calibrator", [*(kind() for kind in FAMILY), AutoCalibration()], ids=str)
def test_many_classes_and_few_rows_stay_close_to_temperature_scaling(calibrator):
    """40 classes, 25 rows a class, nothing to find but T: at most 1 % of log-loss is lost (0.5 % by the default)."""
    rng = np.random.default_rng(3)
    truth = 2.0 * rng.normal(size=(5000, 40)).astype(np.float32)
    labels = np.argmax(truth + rng.gumbel(size=truth.shape), axis=1)
    val, y, test, y_test = 1.8 * truth[:1000], labels[:1000], 1.8 * truth[1000:], labels[1000:]
    plain = metrics.log_loss(y_test, TemperatureScaling().fit(val, y).predict_log_proba(test))
    mine = metrics.log_loss(y_test, clone(calibrator).fit(val, y).predict_log_proba(test))
    assert mine <= plain * (1.005 if isinstance(calibrator, AutoCalibration) else 1.01)


@pytest.mark.slow
def test_the_focal_map_is_found_behind_a_scaling():
    truth, labels = draw_biased_logits(3000, 4)
    trained = inverse_focal(truth / 1.5, 3.0)
    found = AutoCalibration().fit(trained, labels)
    plain = StructuredVectorScaling().fit(trained, labels)
    assert found.gamma_ > 0.5
    assert found.fit_report_["after"]["log_loss"] < plain.fit_report_["after"]["log_loss"]
    behind = StructuredVectorScaling(focal=True).fit(trained, labels)
    assert behind.gamma_ > 0.0
    assert behind.path_.value.shape == (9, 121)
    np.testing.assert_array_equal(behind.weights_, plain.weights_)
    assert (plain.gamma_, plain.temperature_) == (0.0, 1.0)


def test_too_few_rows_for_the_focal_map_are_said():
    trained, labels = draw_biased_logits(101, 3)
    for n_rows, options in ((99, {}), (101, {"n_folds": 102})):
        calibrator = VectorScaling(focal=True, **options)
        with pytest.warns(FitWarning, match=rf"VectorScaling\.fit: focal=True has no effect: .* Got {n_rows}\."):
            calibrator.fit(trained[:n_rows], labels[:n_rows])
        plain = VectorScaling(**options).fit(trained[:n_rows], labels[:n_rows])
        np.testing.assert_array_equal(calibrator.predict_proba(trained), plain.predict_proba(trained))


def test_out_of_fold_predictions_never_saw_their_row():
    """When the logits of one row change, the predictions of its own fold do not, and all others do."""
    logits, labels = draw_biased_logits(200, 4)
    recipes = [Recipe("tempered", "temperature"), Recipe("tempered", "vector"), Recipe("logits", "matrix")]
    changed = logits.copy()
    changed[7] = -changed[7]
    fold = folds(Block(logits, labels), 5, 0)
    before, after = (out_of_fold(Block(x, labels), recipes, fold) for x in (logits, changed))
    for old, new in zip(before, after, strict=True):
        moved = np.any(old != new, axis=1)
        assert moved[7]  # it is another row now
        assert np.count_nonzero(moved) == 161  # and the 160 of the other folds


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_order_preserving_form_keeps_the_accuracy_to_the_last_sample(dtype):
    logits, labels = draw_biased_logits(1000, 6, bias=2.0)
    logits = logits.astype(dtype)
    logits[::3] = np.round(logits[::3])  # many ties
    free = AutoCalibration(n_folds=2).fit(logits, labels)
    kept = AutoCalibration(n_folds=2, order_preserving=True).fit(logits, labels)
    assert (free.predict(logits) != logits.argmax(axis=1)).mean() > 0.05
    np.testing.assert_array_equal(kept.predict(logits), logits.argmax(axis=1))
    p = kept.predict_proba(logits)
    np.testing.assert_array_equal(p.argmax(axis=1), logits.argmax(axis=1))
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-5)
    assert kept.fit_report_["accuracy_change"] == 0.0
    plain = TemperatureScaling().fit(logits, labels).fit_report_["after"]["log_loss"]
    assert free.fit_report_["after"]["log_loss"] < kept.fit_report_["after"]["log_loss"] < plain


def pooled(p, top):
    """A plain loop: the kept class shares with the largest others until none of them is larger."""
    order = [j for j in np.argsort(-p) if j != top]
    group = [top]
    while order and p[order[0]] > np.mean(p[group]):
        group.append(order.pop(0))
    result = p.copy()
    result[group] = np.mean(p[group])
    return result


@pytest.mark.slow
def test_keeping_the_top_is_the_projection(library):
    p = np.random.default_rng(0).dirichlet(np.full(6, 0.5), size=200)
    top = np.random.default_rng(1).integers(0, 6, 200)
    scores, index = library(np.log(p)), library(top)
    found = np.exp(to_numpy(keep_top(namespace(scores), scores, index[:, None])))
    expected = np.array([pooled(row, t) for row, t in zip(p, top, strict=True)])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    # No mixture with other probabilities that have the class on top lies closer.
    rng = np.random.default_rng(2)
    other = np.array([pooled(row, t) for row, t in zip(rng.dirichlet(np.ones(6), size=200), top, strict=True)])
    for share in (1e-3, 0.1, 1.0):
        mixed = (1 - share) * expected + share * other
        assert np.all(np.sum(p * np.log(expected / mixed), axis=1) > -1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_features_follow_their_definition(kind, library):
    logits = np.random.default_rng(0).normal(size=(50, 4)) * 5.0
    x = library(logits)
    found = to_numpy(features(namespace(x), x, kind, 2.0))
    centred = (logits - logits.mean(axis=1, keepdims=True)) / 2.0
    expected = {
        "logits": centred,
        "tempered": log_softmax(logits, 2.0),
        "log-probabilities": log_softmax(logits) / 2.0,
    }[kind]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("calibrator", ALL, ids=str)
def test_the_kind_of_array_follows_the_input(calibrator):
    logits, labels = draw_biased_logits(200)
    reference = clone(calibrator).fit(logits, labels)
    expected = reference.predict_proba(logits)
    for array in (torch.tensor(logits), jnp.asarray(logits), logits.astype(np.float32), torch.tensor(logits).half()):
        y = torch.tensor(labels) if isinstance(array, torch.Tensor) else labels
        p = reference.predict_proba(array)
        assert type(p) is type(array)
        assert p.dtype == array.dtype
        tolerance = {torch.float16: 5e-3, np.dtype(np.float32): 1e-5}.get(p.dtype, 1e-12)
        np.testing.assert_allclose(to_numpy(p).astype(np.float64), expected, atol=tolerance)
        own = clone(calibrator).fit(array, y)
        assert own.predict(array).shape == (200,)
        np.testing.assert_allclose(to_numpy(own.predict_proba(array)).astype(np.float64), expected, atol=0.1)
    shaped = reference.predict_proba(logits.reshape(4, 50, 5))
    np.testing.assert_allclose(shaped.reshape(200, 5), expected, atol=1e-12)


@pytest.mark.parametrize("calibrator", ALL, ids=str)
def test_the_scale_and_the_offset_of_logits_do_not_matter(calibrator):
    logits, labels = draw_biased_logits(400)
    offset = 100.0 * np.random.default_rng(0).normal(size=(400, 1))
    plain = clone(calibrator).fit(logits, labels)
    moved = clone(calibrator).fit(logits + offset, labels)
    np.testing.assert_allclose(moved.predict_proba(logits + offset), plain.predict_proba(logits), atol=1e-4)
    if not isinstance(calibrator, DirichletCalibration):  # whose probabilities saturate
        large = clone(calibrator).fit(30.0 * logits, labels)
        np.testing.assert_allclose(large.predict_proba(30.0 * logits), plain.predict_proba(logits), atol=1e-4)


@pytest.mark.parametrize("calibrator", ALL, ids=str)
def test_impossible_classes_stay_impossible(calibrator):
    logits, labels = draw_biased_logits(300)
    never = np.arange(300) % 7 == 0
    column = (labels + 1) % 5
    logits[never, column[never]] = -np.inf
    fitted = clone(calibrator).fit(logits, labels)
    p = fitted.predict_proba(logits)
    assert np.all(p[never, column[never]] == 0.0)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-9)
    assert np.all(p[np.arange(300), labels] > 0.0)


@pytest.mark.slow
def test_a_class_that_never_occurs_and_separable_data():
    logits, labels = draw_biased_logits(400, 4)
    rare = np.where(labels == 3, 0, labels)
    for calibrator in ALL:
        p = clone(calibrator).fit(logits, rare).predict_proba(logits)
        assert np.all(p > 0.0)
        easy = clone(calibrator).fit(10.0 * np.eye(4)[labels] + 0.1 * logits, labels)
        np.testing.assert_allclose(easy.predict_proba(10.0 * np.eye(4)).sum(axis=1), 1.0)


BAD = [
    (lambda x, y: (x[0], y), ShapeError, "one label for each row"),
    (lambda x, y: (np.where(x > 3, np.nan, x), y), DataError, "NaN"),
    (lambda x, y: (x, y[:-1]), ShapeError, "one label for each row"),
    (lambda x, y: (x, np.zeros_like(y)), LabelError, "at least two classes"),
]


@pytest.mark.parametrize(("change", "error", "words"), BAD)
@pytest.mark.parametrize("calibrator", [MatrixScaling(), AutoCalibration()], ids=str)
def test_bad_data_leave_the_calibrator_unfitted(calibrator, change, error, words):
    good = draw_biased_logits(120, 4)
    calibrator = clone(calibrator).fit(*good)
    with pytest.raises(error, match=words):
        calibrator.fit(*change(*good))
    with pytest.raises(NotFittedError):
        calibrator.predict_proba(good[0])


@pytest.mark.parametrize(
    ("calibrator", "words"),
    [
        (VectorScaling(strength=0.0), "'strength' of VectorScaling must be 'auto' or a finite number greater than 0"),
        (MatrixScaling(strength="much"), "'strength' of MatrixScaling"),
        (StructuredMatrixScaling(n_folds=1), "'n_folds' of StructuredMatrixScaling must be an integer of at least 2"),
        (DirichletCalibration(random_state=-1), "'random_state' of DirichletCalibration"),
        (AutoCalibration(n_folds=1), "'n_folds' of AutoCalibration must be an integer of at least 2"),
        (AutoCalibration(input="odds"), "'input' of AutoCalibration must be one of 'logits'"),
    ],
)
@pytest.mark.parametrize("n_rows", [60, 120])
def test_bad_settings(calibrator, words, n_rows):
    data = draw_biased_logits(n_rows, 3)
    with pytest.raises(ParameterError, match=words):
        calibrator.fit(*data)
    with pytest.raises(NotFittedError):
        calibrator.predict_proba(data[0])


def test_a_failing_search_leaves_the_calibrator_unfitted(monkeypatch):
    data = draw_biased_logits(150, 3)
    calibrator = VectorScaling(focal=True).fit(*data)

    def broken(*_, **__):
        raise MemoryError

    monkeypatch.setattr("refocal.calibrators.scaling.find", broken)
    with pytest.raises(MemoryError):
        calibrator.fit(*data)
    assert not [name for name in vars(calibrator) if name.endswith("_")]


@pytest.mark.slow
def test_the_strength_is_chosen_by_the_data():
    few, many = (
        VectorScaling().fit(*draw_biased_logits(200, 5, bias=0.05)),
        VectorScaling().fit(*draw_biased_logits(6000, 5, bias=2.0)),
    )
    assert few.choice_["chosen"] == "temperature" or few.choice_["strength"] > many.choice_["strength"]
    assert many.choice_["strength"] < 10.0
    fixed = MatrixScaling(strength=2.0).fit(*draw_biased_logits(300, 5))
    assert fixed.choice_["strength"] == 2.0
    strong = MatrixScaling(strength=1e9).fit(*draw_biased_logits(300, 5))
    np.testing.assert_allclose(strong.weights_, np.eye(5), atol=1e-6)


def test_the_affine_step_is_the_formula():
    logits, labels = draw_biased_logits(300)
    fitted = MatrixScaling(strength=1.0).fit(logits, labels)
    assert [type(step) for step in fitted.chain_.steps] == [Affine]
    z = (logits - logits.mean(axis=1, keepdims=True)) / fitted.inner_temperature_
    expected = log_softmax(z @ fitted.weights_.astype(np.float64).T + fitted.intercept_)
    np.testing.assert_allclose(fitted.predict_log_proba(logits), expected, rtol=1e-10, atol=1e-10)
