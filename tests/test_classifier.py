"""CalibratedClassifier around real scikit-learn classifiers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, NuSVC
from sklearn.utils.estimator_checks import check_estimator

from refocal import CalibratedClassifier, FocalTemperatureScaling, TemperatureScaling
from refocal.calibrators.classifier import logits_of
from refocal.errors import LabelError, ParameterError
from refocal.maps import log_softmax
from refocal.metrics import expected_calibration_error


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X, y, random_state=0, stratify=y)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        CalibratedClassifier(LogisticRegression(), cv=3),
        CalibratedClassifier(LogisticRegression(), TemperatureScaling(), cv=3, ensemble=False),
        CalibratedClassifier(calibrator=TemperatureScaling(), cv=3),
    ],
    ids=["ensemble", "one", "svm"],
)
def test_scikit_learn_checks_all_pass(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(model, on_fail="raise", on_skip=None)
    assert sum(result["status"] == "passed" for result in results) >= 55


@pytest.mark.slow
@pytest.mark.parametrize("ensemble", [True, False])
@pytest.mark.parametrize(
    "estimator", [GaussianNB(), RandomForestClassifier(50, random_state=0)], ids=["bayes", "forest"]
)
def test_probabilities_improve(digits, estimator, ensemble):
    X, X_test, y, y_test = digits
    raw = estimator.fit(X, y).predict_proba(X_test)
    model = CalibratedClassifier(estimator, cv=5, ensemble=ensemble).fit(X, y)
    p = model.predict_proba(X_test)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    assert log_loss(y_test, p) < 0.8 * log_loss(y_test, raw)
    # Naive Bayes has log-probabilities of -10^8 here; they must not carry the temperature off.
    assert expected_calibration_error(y_test, p) < 0.5 * expected_calibration_error(y_test, raw)
    assert model.score(X_test, y_test) > 0.8
    assert len(model.calibrated_classifiers_) == (5 if ensemble else 1)


def test_temperature_scaling_of_out_of_fold_logits_equals_scikit_learns(digits):
    X, X_test, y, _ = digits
    estimator = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    ours = CalibratedClassifier(estimator, TemperatureScaling(), cv=3, ensemble=False).fit(X, y)
    theirs = CalibratedClassifierCV(estimator, method="temperature", cv=3, ensemble=False).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X_test), theirs.predict_proba(X_test), atol=1e-5)
    each = CalibratedClassifier(estimator, TemperatureScaling(), cv=3).fit(X, y)
    theirs = CalibratedClassifierCV(estimator, method="temperature", cv=3, ensemble=True).fit(X, y)
    np.testing.assert_allclose(each.predict_proba(X_test), theirs.predict_proba(X_test), atol=1e-5)


def test_prefit(digits):
    X, X_test, y, _ = digits
    fitted = GaussianNB().fit(X[:600], y[:600])
    model = CalibratedClassifier(fitted, TemperatureScaling(), cv="prefit").fit(X[600:], y[600:])
    assert model.calibrated_classifiers_[0].estimator is fitted
    np.testing.assert_array_equal(model.predict(X_test), fitted.predict(X_test))
    with pytest.raises(NotFittedError):
        CalibratedClassifier(GaussianNB(), cv="prefit").fit(X, y)
    with pytest.raises(LabelError, match=r"of the estimator's classes. Got .*11"):
        CalibratedClassifier(fitted, cv="prefit").fit(X[:20], np.full(20, 11))
    with pytest.raises(ParameterError, match=r"'cv' of CalibratedClassifier must be .*'prefit'. Got 'loo'"):
        CalibratedClassifier(fitted, cv="loo").fit(X, y)


def test_binary_and_named_classes():
    X, y = load_iris(return_X_y=True)
    two = y > 0
    names = np.array(["no", "yes"])[two.astype(int)]
    model = CalibratedClassifier(LogisticRegression(), cv=3).fit(X, names)
    assert model.classes_.tolist() == ["no", "yes"]
    assert set(model.predict(X)) == {"no", "yes"}
    estimator = LogisticRegression().fit(X, names)
    np.testing.assert_allclose(np.exp(log_softmax(logits_of(estimator, X))), estimator.predict_proba(X), rtol=1e-10)


def test_a_fold_may_miss_a_class():
    X, y = load_iris(return_X_y=True)
    # Class 2 lies in the first fold only: held out once, never seen in training there.
    order = np.concatenate([np.flatnonzero(y == 2), np.flatnonzero(y != 2)])
    X, y = X[order], y[order]
    splits = [(np.arange(50, 150), np.arange(50)), (np.arange(0, 150, 2), np.arange(1, 150, 2))]
    for ensemble in (True, False):
        model = CalibratedClassifier(GaussianNB(), TemperatureScaling(), cv=splits, ensemble=ensemble).fit(X, y)
        p = model.predict_proba(X)
        assert p.shape == (150, 3)
        np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
        # The member that never saw class 2 gives it no probability; one classifier trained on all rows has seen it.
        assert (p[:, 2] > 0.0).any()
        assert model.score(X, y) > (0.6 if ensemble else 0.9)


def test_estimators_of_every_kind_give_logits():
    X, y = load_iris(return_X_y=True)
    for estimator in (KNeighborsClassifier(), GaussianNB()):
        logits = logits_of(estimator.fit(X, y), X)
        assert logits.shape == (150, 3)
        assert np.isfinite(logits).all()
    for estimator in (SVC(), NuSVC(decision_function_shape="ovr")):
        np.testing.assert_array_equal(logits_of(estimator.fit(X, y), X), estimator.decision_function(X))
    forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    assert np.isfinite(logits_of(forest, X)).all()


def test_inside_pipelines_and_grid_searches(digits):
    X, X_test, y, y_test = digits
    pipeline = make_pipeline(StandardScaler(), CalibratedClassifier(GaussianNB(), cv=2))
    search = GridSearchCV(
        pipeline,
        {
            "calibratedclassifier__calibrator": [TemperatureScaling(), FocalTemperatureScaling(objective="nll")],
            "calibratedclassifier__estimator__var_smoothing": [1e-9, 1e-2],
        },
        scoring="neg_log_loss",
        cv=2,
    ).fit(X, y)
    assert search.score(X_test, y_test) > -1.0


def test_weights_reach_the_classifier_and_the_calibrator(digits):
    X, _, y, _ = digits
    weight = np.random.default_rng(0).uniform(0.0, 2.0, len(y))
    plain = CalibratedClassifier(GaussianNB(), TemperatureScaling(), cv=3).fit(X, y)
    weighted = CalibratedClassifier(GaussianNB(), TemperatureScaling(), cv=3).fit(X, y, sample_weight=weight)
    a, b = plain.calibrated_classifiers_[0], weighted.calibrated_classifiers_[0]
    assert a.calibrator.temperature_ != b.calibrator.temperature_
    assert not np.allclose(a.estimator.theta_, b.estimator.theta_)


def test_a_calibrator_by_its_name_and_logarithms(digits):
    X, X_test, y, _ = digits
    named = CalibratedClassifier(GaussianNB(), "ts", cv=2).fit(X, y)
    expected = CalibratedClassifier(GaussianNB(), TemperatureScaling(), cv=2).fit(X, y).predict_proba(X_test)
    np.testing.assert_array_equal(named.predict_proba(X_test), expected)
    np.testing.assert_array_equal(named.predict_log_proba(X_test), np.log(expected))
