"""Metrics as scikit-learn's `scoring=`."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from refocal import CalibratedClassifier, TemperatureScaling, metrics
from refocal.errors import DataError, ParameterError
from refocal.io import Predictions
from refocal.metrics import METRICS, Metric, scorer

FOLDS = StratifiedKFold(3)


def make_data(names):
    X, y = make_classification(300, 8, n_informative=5, n_classes=len(names), flip_y=0.2, random_state=0)
    return X, np.array(names)[y]


MODEL = make_pipeline(StandardScaler(), LogisticRegression())
NAMES = [["cat", "dog", "ant"], [3, 1, 2], [0, 1], ["no", "yes"], [-1, 1], [False, True]]


@pytest.mark.parametrize("names", NAMES, ids=str)
def test_cross_validation_scores_are_those_of_the_metric(names):
    X, y = make_data(names)
    scoring = {"smooth": scorer("smooth_ece"), "ece": scorer("expected_calibration_error", n_bins=5)}
    found = cross_validate(MODEL, X, y, scoring=scoring, cv=FOLDS, return_estimator=True)
    for i, (_, test) in enumerate(FOLDS.split(X, y)):
        model = found["estimator"][i]
        p = model.predict_proba(X[test])
        numbers = np.searchsorted(model.classes_, y[test])
        assert found["test_smooth"][i] == pytest.approx(-metrics.smooth_ece(numbers, p))
        assert found["test_ece"][i] == pytest.approx(-metrics.expected_calibration_error(numbers, p, n_bins=5))


@pytest.mark.parametrize("names", NAMES, ids=str)
def test_scores_are_those_of_scikit_learn(names):
    X, y = make_data(names)
    model = LogisticRegression().fit(X, y)
    weight = np.linspace(0.0, 2.0, len(y))  # also a weight of 0
    p = model.predict_proba(X)
    assert scorer("log_loss")(model, X, y, weight) == pytest.approx(-log_loss(y, p, sample_weight=weight))
    assert scorer("accuracy")(model, X, y) == pytest.approx(model.score(X, y))
    if len(names) == 2:
        expected = -brier_score_loss(y == model.classes_[1], p[:, 1], sample_weight=weight)
        assert scorer("brier_score")(model, X, y, weight) == pytest.approx(expected)


def test_a_grid_search_takes_the_settings_of_least_error():
    X, y = make_data(["a", "b", "c"])
    search = GridSearchCV(MODEL, {"logisticregression__C": [1e-4, 1.0]}, scoring=scorer("smooth_ece"), cv=FOLDS)
    search.fit(X, y)
    mean = search.cv_results_["mean_test_score"]
    assert search.best_score_ == mean.max() < 0.0
    assert search.score(X, y) == pytest.approx(-metrics.smooth_ece(
        np.searchsorted(search.classes_, y), search.predict_proba(X)
    ))  # fmt: skip
    several = GridSearchCV(
        CalibratedClassifier(LogisticRegression(), "ts"),
        {"estimator__C": [1e-3, 1.0]},
        scoring={"brier": scorer("brier_score"), "loss": "neg_log_loss"},
        refit="brier",
        cv=FOLDS,
    ).fit(X, y)
    assert several.best_params_ == {"estimator__C": 1.0}


def test_settings_of_a_calibrator_are_searched_by_its_own_metric():
    rng = np.random.default_rng(0)
    logits = 3.0 * rng.normal(size=(300, 3))
    labels = np.argmax(logits / 2.0 + rng.gumbel(size=logits.shape), axis=1)
    grid = {"temperatures": [[1.0], [2.0], [8.0]]}
    search = GridSearchCV(TemperatureScaling(), grid, scoring=scorer("smooth_ece"), cv=FOLDS).fit(logits, labels)
    assert search.best_params_ == {"temperatures": [2.0]}


def test_a_signed_metric_is_best_at_0_and_one_with_a_target_there():
    X, y = make_data([0, 1])
    model = LogisticRegression().fit(X, y)
    p = model.predict_proba(X)[:, 1]
    assert scorer("mean_bias")(model, X, y) == pytest.approx(-abs(np.mean(p) - np.mean(y)), abs=1e-12)
    ratio = np.mean(y) / np.mean(p)
    assert scorer("observed_expected")(model, X, y) == pytest.approx(-abs(ratio - 1.0), abs=1e-9)
    assert scorer("roc_auc")(model, X, y) > 0.5
    z = metrics.spiegelhalter_test(y, p).z
    assert scorer("spiegelhalter_test")(model, X, y) == pytest.approx(-abs(z))


@pytest.mark.parametrize("name", [name for name, metric in METRICS.items() if not isinstance(metric.function, partial)])
def test_a_function_of_this_package_scores_as_its_name_does(name):
    """Those of two classes were taken for functions of one's own: a grid search took the model of least AUC."""
    X, y = make_data([0, 1] if METRICS[name].two_classes else [0, 1, 2])
    model = LogisticRegression().fit(X, y)
    assert scorer(METRICS[name].function)(model, X, y) == scorer(name)(model, X, y)


def confident(y, p):
    return float(np.mean(p.max(axis=1)))


def test_functions_and_records_of_your_own():
    X, y = make_data(["a", "b", "c"])
    model = LogisticRegression().fit(X, y)
    expected = model.predict_proba(X).max(axis=1).mean()
    assert scorer(confident)(model, X, y) == pytest.approx(-expected)
    assert scorer(confident, lower_is_better=False)(model, X, y) == pytest.approx(expected)
    with pytest.raises(ParameterError, match="'lower_is_better' of scorer must be left out"):
        scorer(metrics.roc_auc, lower_is_better=False)
    record = Metric.of_function(confident, lower_is_better=False)
    assert scorer(record)(model, X, y) == pytest.approx(expected)
    assert scorer(METRICS["ece"]) == scorer("ece") == scorer(metrics.expected_calibration_error)
    assert pickle.loads(pickle.dumps(scorer(confident)))(model, X, y) == pytest.approx(-expected)  # noqa: S301


def test_what_is_no_metric_is_refused():
    with pytest.raises(ParameterError, match=r"did you mean 'smooth_ece'\?"):
        scorer("smooth_ec")
    with pytest.raises(ParameterError, match="'lower_is_better' of scorer must be left out"):
        scorer("ece", lower_is_better=True)
    with pytest.raises(ParameterError, match=r"'metric' of scorer .* Got 3 instead"):
        scorer(3)


def test_predictions_keep_their_own_labels_and_weights():
    """A scorer took the labels and weights beside them, and said nothing of those of the rows."""
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(60, 3)), rng.integers(3, size=60)
    rows = Predictions.from_logits(logits, labels, weight=rng.random(60))
    calibrator = TemperatureScaling().fit(rows)
    for weight in (None, rng.random(60)):
        with pytest.raises(DataError, match=r"The 'X' of scorer must be an array or a data frame .*Got Predictions"):
            scorer("brier_score")(calibrator, rows, labels, sample_weight=weight)
