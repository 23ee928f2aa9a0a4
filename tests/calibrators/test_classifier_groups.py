"""CalibratedClassifier with GroupCalibration: groups reach the calibrator with and without metadata routing."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_predict, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from refocal import CalibratedClassifier, GroupCalibration
from refocal.errors import InputWarning, ParameterError, ShapeError, UnsupportedError


@pytest.fixture(scope="module")
def patients():
    """Features, outcomes, and a region of which the model knows nothing."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 2))
    region = rng.choice(["north", "south"], 1200)
    log_odds = X[:, 0] + 1.5 * (region == "south")
    y = (rng.random(1200) < 1.0 / (1.0 + np.exp(-log_odds))).astype(int)
    return X, y, region


def by_group() -> GroupCalibration:
    return GroupCalibration(method="logistic")


def test_a_prefit_classifier_equals_group_calibration_of_its_scores(patients):
    X, y, region = patients
    model = LogisticRegression().fit(X[:600], y[:600])
    calibrated = CalibratedClassifier(model, by_group(), cv="prefit").fit(X[600:], y[600:], groups=region[600:])
    by_hand = GroupCalibration(method="logistic", input="log-odds")
    by_hand.fit(model.decision_function(X[600:]), y[600:], groups=region[600:])
    expected = by_hand.predict_proba(model.decision_function(X), groups=region)
    np.testing.assert_allclose(calibrated.predict_proba(X, groups=region), expected, rtol=1e-12)
    np.testing.assert_allclose(calibrated.predict_log_proba(X, groups=region), np.log(expected), rtol=1e-9)
    np.testing.assert_array_equal(calibrated.predict(X, groups=region), np.argmax(expected, axis=1))
    assert calibrated.score(X, y, groups=region) == np.mean(np.argmax(expected, axis=1) == y)


def test_out_of_fold_rows_keep_their_groups(patients):
    X, y, region = patients
    folds = KFold(3, shuffle=True, random_state=0)  # rows of folds lie in another order than those given
    model = CalibratedClassifier(LogisticRegression(), by_group(), cv=folds, ensemble=False)
    model.fit(X, y, groups=pd.DataFrame({"region": region}))
    scores = cross_val_predict(LogisticRegression(), X, y, cv=folds, method="decision_function")
    by_hand = GroupCalibration(method="logistic", input="log-odds").fit(scores, y, groups={"region": region})
    lines = model.calibrated_classifiers_[0].calibrator.lines_["region"]
    np.testing.assert_allclose(lines.intercept, by_hand.lines_["region"].intercept, rtol=1e-6)
    assert lines.intercept[1] > 0.5 > -0.5 > lines.intercept[0]


def test_each_member_of_an_ensemble_has_the_groups_of_its_fold(patients):
    X, y, region = patients
    model = CalibratedClassifier(LogisticRegression(), by_group(), cv=3, ensemble=True).fit(X, y, groups=region)
    intercepts = [member.calibrator.lines_["group"].intercept for member in model.calibrated_classifiers_]
    assert len({tuple(pair) for pair in intercepts}) == 3
    p = model.predict_proba(X, groups=region)[:, 1]
    for name in ("north", "south"):
        assert abs(np.mean(p[region == name]) - np.mean(y[region == name])) < 0.02


def test_metadata_routing_brings_groups_through_a_pipeline(patients):
    X, y, region = patients
    calibrated = CalibratedClassifier(LogisticRegression(), by_group(), cv=3)
    expected = calibrated.fit(StandardScaler().fit_transform(X), y, groups=region)
    p = expected.predict_proba(StandardScaler().fit_transform(X), groups=region)
    with config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), calibrated).fit(X, y, groups=region)
        np.testing.assert_array_equal(pipeline.predict_proba(X, groups=region), p)
        np.testing.assert_array_equal(pipeline.predict(X, groups=region), np.argmax(p, axis=1))


def test_cross_validation_passes_on_the_groups_of_each_part(patients):
    X, y, region = patients
    with config_context(enable_metadata_routing=True):
        model = make_pipeline(StandardScaler(), CalibratedClassifier(LogisticRegression(), by_group(), cv=3))
        scores = cross_validate(
            model, X, y, cv=3, params={"groups": region}, return_estimator=True, return_indices=True
        )
        for fitted, test, score in zip(
            scores["estimator"], scores["indices"]["test"], scores["test_score"], strict=True
        ):
            assert score == np.mean(fitted.predict(X[test], groups=region[test]) == y[test])
        search = GridSearchCV(model[-1], {"estimator__C": [1.0]}, cv=3).fit(X, y, groups=region)
        assert set(search.best_estimator_.calibrated_classifiers_[0].calibrator.lines_) == {"group"}


def test_splitter_and_calibrator_have_groups_of_their_own(patients):
    X, y, region = patients
    customer = np.arange(len(y)) // 4
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    with config_context(enable_metadata_routing=True):
        calibrator = by_group().set_fit_request(groups="region").set_predict_proba_request(groups="region")
        estimator = LogisticRegression().set_fit_request(sample_weight=False)
        model = CalibratedClassifier(estimator, calibrator, cv=GroupKFold(3), ensemble=False)
        model.fit(X, y, sample_weight=weight, groups=customer, region=region)
        p = model.predict_proba(X, region=region)
    splits = list(GroupKFold(3).split(X, y, customer))
    scores = np.concatenate(
        [LogisticRegression().fit(X[train], y[train]).decision_function(X[test]) for train, test in splits]
    )
    order = np.concatenate([test for _, test in splits])
    by_hand = GroupCalibration(method="logistic", input="log-odds")
    by_hand.fit(scores, y[order], weight[order], groups=region[order])
    expected = by_hand.predict_proba(LogisticRegression().fit(X, y).decision_function(X), groups=region)
    np.testing.assert_allclose(p, expected, rtol=1e-6)
    plain = CalibratedClassifier(LogisticRegression(), by_group(), cv=GroupKFold(3))
    with pytest.raises(UnsupportedError, match="set_fit_request"):
        plain.fit(X, y, groups=region)


def test_groups_that_are_missing_or_not_expected_are_named(patients):
    X, y, region = patients
    model = CalibratedClassifier(LogisticRegression(), by_group(), cv=3)
    with pytest.raises(ParameterError, match=r"'groups'.*must be given"):
        model.fit(X, y)
    with pytest.raises(ShapeError, match=r"'groups' of CalibratedClassifier\.fit"):
        model.fit(X, y, groups=region[1:])
    with pytest.warns(InputWarning, match="no groups of 'group' were given"):
        model.fit(X, y, groups=region).predict_proba(X)
    with pytest.raises(ParameterError, match=r"'site' of CalibratedClassifier\.predict_proba"):
        model.predict_proba(X, site=region)
    without = CalibratedClassifier(LogisticRegression(), "ts", cv=3).fit(X, y)
    with pytest.raises(ParameterError, match=r"'groups'.*TemperatureScaling"):
        without.predict_proba(X, groups=region)
