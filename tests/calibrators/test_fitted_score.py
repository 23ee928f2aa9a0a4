"""The accuracy of a calibrator: labels are read by the rule of its fit, however they are stored."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from helpers import draw_logits
from refocal import CalibratedClassifier, MultiLabelCalibration, TemperatureScaling
from refocal.errors import DataError, LabelError, ParameterError, RefocalError, ShapeError
from refocal.io import Predictions


@pytest.mark.parametrize(
    ("columns", "labels", "others"),
    [
        (["false", "true"], ["false", "true"], [False, True]),
        (["1", "0"], ["True", "False"], [1, 0]),
        (["1", "2"], [1, 2], ["1", "2"]),
        (["logit_cat", "logit_dog"], ["logit_cat", "logit_dog"], ["cat", "dog"]),
        (["cat", "dog"], [0, 1], ["cat", "dog"]),
    ],
)
def test_labels_are_those_of_the_fit_however_they_are_stored(columns, labels, others):
    logits = np.array([[2.0, 0.0], [0.0, 1.0], [1.5, 0.0], [0.0, 3.0]] * 20)
    column = np.array([0, 1, 1, 1] * 20)  # one of four is wrong
    X = pd.DataFrame(logits, columns=columns)
    fitted = TemperatureScaling().fit(X, np.array(labels)[column])
    assert fitted.score(X, np.array(labels)[column]) == 0.75
    assert fitted.score(X, np.array(others)[column]) == 0.75
    with pytest.raises(LabelError, match=r"The 'y' of TemperatureScaling\.score"):
        fitted.score(X, ["bird"] * 80)


@pytest.mark.parametrize(
    ("classes", "options"),
    [([1, 2], {}), (["cat", "dog"], {}), ([0, 1], {"positive_label": 0}), ([1, 2], {"positive_label": 1})],
)
def test_predictions_without_names_are_of_the_classes_of_the_fit(classes, options):
    logits = np.array([[2.0, 0.0], [0.0, 1.0], [1.5, 0.0], [0.0, 3.0]] * 20)
    column = np.array([0, 1, 1, 1] * 20)
    named = Predictions.from_logits(logits, np.array(classes)[column], class_names=classes, **options)
    fitted = TemperatureScaling().fit(named)
    assert fitted.score(named) == 0.75
    unnamed = Predictions.from_logits(logits, column, weight=1.0 + column)
    assert fitted.score(unnamed) == pytest.approx(5 / 7)
    assert fitted.score(unnamed.take(np.flatnonzero(column == 0))) == 1.0
    with pytest.raises(ParameterError, match="y"):
        fitted.score(unnamed, column)
    with pytest.raises(ShapeError):
        fitted.score(Predictions.from_logits(2.0 * np.eye(3), [0, 1, 2]))


@pytest.mark.parametrize(
    "labels", [[1, 2, 3], [10, 9, 2], [-1, 0, 5], ["a", "b", "c"], ["0", "1", "2"], [2, 0, 1]], ids=str
)
def test_predictions_without_names_are_scored_by_columns(labels):
    column = np.array([0, 1, 2, 2] * 20)  # one of four is wrong
    logits = 2.0 * np.eye(3)[[0, 1, 2, 1] * 20]
    fitted = TemperatureScaling().fit(pd.DataFrame(logits, columns=labels), np.array(labels)[column])
    # Columns called 0, 1, 2 are in this order where they have no names.
    order = np.argsort(labels) if set(labels) == {0, 1, 2} else np.arange(3)
    rows = Predictions.from_logits(logits[:, order], np.argsort(order)[column] + 1, first_label=1)
    assert fitted.score(rows) == 0.75
    assert (fitted.predict(rows) == fitted.predict(pd.DataFrame(logits, columns=labels))).all()


def test_predictions_of_labels_that_were_given_as_other_truths():
    logits = np.array([[2.0, 0.0], [0.0, 1.0], [1.5, 0.0], [0.0, 3.0]] * 20)
    column = np.array([0, 1, 1, 1] * 20)
    text = np.array(["False", "True"])[column]
    fitted = TemperatureScaling().fit(logits, text)
    assert fitted.score(Predictions.from_logits(logits, column)) == 0.75
    assert fitted.score(Predictions.from_logits(logits, column == 1)) == 0.75
    of_signs = TemperatureScaling().fit(logits, 2 * column - 1)  # of the classes -1 and 1
    assert of_signs.score(Predictions.from_logits(logits, column)) == 0.75


def test_numbers_that_may_be_columns_or_classes_are_refused():
    logits, column = 2.0 * np.eye(3)[[0, 1, 2, 1] * 20], np.array([0, 1, 2, 2] * 20)
    fitted = TemperatureScaling().fit(logits, column + 1)
    rows = Predictions.from_logits(logits, np.maximum(column, 1))
    with pytest.raises(LabelError, match="column numbers of rows without names"):
        fitted.score(rows)


def test_rows_of_one_class_have_an_accuracy():
    logits, column = 2.0 * np.eye(3)[[0, 1, 2, 1] * 20], np.array([0, 1, 2, 2] * 20)
    fitted = TemperatureScaling().fit(logits, column)
    rows = Predictions.from_logits(logits, column).take(np.flatnonzero(column == 2))
    assert fitted.score(rows) == fitted.score(logits[column == 2], column[column == 2]) == 0.5
    with pytest.raises(LabelError, match="only one class, 2"):
        fitted.fit(rows)


def fitted_on_rows(method):
    """A fitted estimator, its rows and their labels."""
    logits, labels = draw_logits(90, 3)
    if method == "classifier":
        return CalibratedClassifier(LogisticRegression(), "ts", cv=3).fit(logits, labels), logits, labels
    if method == "several labels":
        several = np.eye(3, dtype=int)[labels]
        return MultiLabelCalibration(method="ts").fit(logits, several), logits, several
    return TemperatureScaling().fit(logits, labels), logits, labels


@pytest.mark.parametrize("method", ["classifier", "several labels", "ts"])
def test_labels_and_weights_of_a_score_are_checked_as_in_a_fit(method):
    fitted, X, y = fitted_on_rows(method)
    weight = np.arange(90.0)
    predicted = np.asarray(fitted.predict(X)) == y
    expected = np.average(predicted.all(axis=1) if predicted.ndim == 2 else predicted, weights=weight)
    assert fitted.score(X, y, weight) == pytest.approx(expected, rel=1e-12)
    for wrong in (-weight, np.where(weight == 3, -1.0, 1.0), np.where(weight == 3, np.nan, 1.0), np.zeros(90)):
        with pytest.raises(DataError, match=r"'sample_weight' of \w+\.score must be free of negative values"):
            fitted.score(X, y, wrong)
    with pytest.raises(ShapeError, match=r"'sample_weight' of \w+\.score must be of shape \(90,\)"):
        fitted.score(X, y, weight[:5])
    for wrong in (y[:5], None, np.zeros((90, 7))):
        with pytest.raises(RefocalError, match=r"'y' of \w+\.score"):
            fitted.score(X, wrong)
    if method != "several labels":
        with pytest.raises(ShapeError, match=r"'y' of \w+\.score .* of one-hot labels take the argmax first"):
            fitted.score(X, np.eye(3)[y])


def test_tokens_and_rows_of_weight_0_have_a_score():
    logits, labels = draw_logits(120, 3)
    fitted = TemperatureScaling().fit(logits.reshape(10, 12, 3), labels.reshape(10, 12))
    weight = np.arange(120) % 5 + 0.0
    expected = np.average(logits.argmax(axis=1) == labels, weights=weight)
    tokens = logits.reshape(10, 12, 3), labels.reshape(10, 12), weight.reshape(10, 12)
    assert fitted.score(*tokens) == pytest.approx(expected, rel=1e-12)
    # Rows of weight 0 have no say, whatever their label is, as in a fit.
    assert fitted.score(logits, np.where(weight == 0, -1, labels), weight) == pytest.approx(expected, rel=1e-12)
    with pytest.warns(UserWarning, match="column-vector y"):
        assert fitted.score(logits, labels[:, None]) == fitted.score(logits, labels)


@pytest.mark.parametrize("wrong", [[1, 2, 3], ["cat", "dog", "emu"], [-1, 0, 1]], ids=str)
def test_the_remedy_of_a_score_is_one_that_it_has(wrong):
    logits, labels = draw_logits(90, 3)
    fitted = TemperatureScaling().fit(logits, labels)
    with pytest.raises(LabelError, match=r"'y' of TemperatureScaling\.score") as caught:
        fitted.score(logits, np.array(wrong)[labels])
    assert "pass Predictions, which take class_names=" in str(caught.value)


def test_log_odds_in_a_column_are_told_from_labels_of_another_shape():
    log_odds = np.array([2.0, -1.0, 1.5, -3.0] * 20)
    labels = np.array([1, 1, 1, 0] * 20)  # one of four is wrong
    fitted = TemperatureScaling(input="log-odds").fit(log_odds, labels)
    for method, function in (("fit", fitted.fit), ("score", fitted.score)):
        fitted.fit(log_odds, labels)
        message = rf"'X' of TemperatureScaling\.{method} must be of shape \(80,\), one number per row: X\[:, 0\]"
        with pytest.raises(ShapeError, match=message):
            function(log_odds[:, None], labels)
    assert fitted.fit(log_odds[:, None], labels[:, None]).score(log_odds[:, None], labels[:, None]) == 0.75
