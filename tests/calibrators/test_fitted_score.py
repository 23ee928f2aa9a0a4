"""The accuracy of a calibrator: labels are read by the rule of its fit, however they are stored."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from refocal import TemperatureScaling
from refocal.errors import LabelError, ParameterError, ShapeError
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
