"""CalibratedClassifier around real scikit-learn classifiers."""

from __future__ import annotations

import warnings

import array_api_strict
import numpy as np
import pytest
import torch
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, load_iris, make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, ShuffleSplit, StratifiedKFold, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, NuSVC
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.metaestimators import available_if

from refocal import CalibratedClassifier, FocalTemperatureScaling, TemperatureScaling, load
from refocal.calibrators.classifier import logits_of
from refocal.errors import DataError, InputWarning, LabelError, ParameterError
from refocal.maps import log_softmax
from refocal.metrics import expected_calibration_error

pytestmark = pytest.mark.core


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X, y, random_state=0, stratify=y)


BY_DEFAULT = {
    f"check_sample_weight_equivalence_on_{kind}_data": "AutoCalibration divides repeated rows into other folds"
    for kind in ("dense", "sparse")
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        CalibratedClassifier(LogisticRegression(), cv=2),
        pytest.param(CalibratedClassifier(LogisticRegression(), "fts", cv=3), marks=pytest.mark.long),
        pytest.param(
            CalibratedClassifier(LogisticRegression(), TemperatureScaling(), cv=3, ensemble=False),
            marks=pytest.mark.long,
        ),
        pytest.param(CalibratedClassifier(calibrator=TemperatureScaling(), cv=3), marks=pytest.mark.long),
    ],
    ids=["default", "ensemble", "one", "svm"],
)
def test_scikit_learn_checks_all_pass(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        failing = BY_DEFAULT if model.calibrator is None else {}
        results = check_estimator(model, expected_failed_checks=failing, on_fail="raise", on_skip=None)
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


@pytest.mark.slow
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
    with pytest.raises(LabelError, match=r"of the estimator's classes. Got 11 instead"):
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


class Unsorted(ClassifierMixin, BaseEstimator):
    """A classifier that keeps its classes, and the columns of its scores, in an order of its own."""

    def __init__(self, response="predict_proba"):
        self.response = response

    def fit(self, X, y):
        self.inner_ = LinearDiscriminantAnalysis().fit(X, y)
        self.order_ = np.roll(np.arange(len(self.inner_.classes_)), 1)
        self.classes_ = self.inner_.classes_[self.order_]
        return self

    @available_if(lambda self: self.response == "predict_proba")
    def predict_proba(self, X):
        return self.inner_.predict_proba(X)[:, self.order_]

    @available_if(lambda self: self.response == "decision_function")
    def decision_function(self, X):
        scores = self.inner_.decision_function(X)
        return scores[:, self.order_] if scores.ndim == 2 else -scores

    def predict(self, X):
        return self.inner_.predict(X)


class Sorted(Unsorted):
    """The same, in sorted order."""

    def fit(self, X, y):
        super().fit(X, y)
        self.order_ = np.arange(len(self.classes_))
        self.classes_ = self.inner_.classes_
        return self

    @available_if(lambda self: self.response == "decision_function")
    def decision_function(self, X):
        return self.inner_.decision_function(X)


@pytest.mark.parametrize("cv", [3, "prefit"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("response", ["predict_proba", "decision_function"])
def test_classes_of_an_estimator_need_not_be_sorted(cv, n_classes, response):
    X, y = load_iris(return_X_y=True)
    names = np.array(["ant", "bee", "cat"])[np.minimum(y, n_classes - 1)]
    estimator = Unsorted(response).fit(X, names)
    assert estimator.classes_.tolist() != sorted(set(names))
    model = CalibratedClassifier(estimator, TemperatureScaling(), cv=cv).fit(X, names)
    as_it_is = Sorted(response).fit(X, names)
    want = CalibratedClassifier(as_it_is, TemperatureScaling(), cv=cv).fit(X, names)
    assert model.classes_.tolist() == sorted(set(names))
    assert model.score(X, names) > 0.9
    np.testing.assert_allclose(model.predict_proba(X), want.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("calibrator", ["auto", "ts", "isotonic", "logistic"])
@pytest.mark.parametrize(
    ("names", "dtype"), [(["no", "yes"], None), (["no", "yes"], object), ([3, 7], None), ([False, True], None)]
)
def test_calibrators_within_know_the_names_of_the_classes(calibrator, names, dtype, tmp_path):
    X, y = make_classification(400, random_state=0)
    labels = np.array(names, dtype=dtype)[y]
    model = CalibratedClassifier(LogisticRegression(), calibrator, cv=2).fit(X, labels)
    for member in model.calibrated_classifiers_:
        assert member.calibrator.classes_.tolist() == names
        member.calibrator.save(tmp_path / "calibrator.json")
        loaded = load(tmp_path / "calibrator.json")
        assert loaded.classes_.tolist() == names
        assert set(loaded.predict(logits_of(member.estimator, X)).tolist()) == set(names)


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


@pytest.mark.slow
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


@pytest.mark.parametrize("estimator", [make_pipeline(GaussianNB()), KNeighborsClassifier()], ids=["pipeline", "knn"])
def test_weights_that_do_not_reach_the_classifier_are_warned_of(digits, estimator):
    X, _, y, _ = digits
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    with pytest.warns(InputWarning, match=rf"since {type(estimator).__name__}.fit has no such argument"):
        weighted = CalibratedClassifier(estimator, "ts", cv=2).fit(X, y, sample_weight=weight)
    plain = CalibratedClassifier(estimator, "ts", cv=2).fit(X, y)
    temperatures = [model.calibrated_classifiers_[0].calibrator.temperature_ for model in (weighted, plain)]
    assert temperatures[0] != temperatures[1]


def test_weights_of_a_step_of_a_pipeline(digits):
    X, _, y, _ = digits
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    by_step = CalibratedClassifier(make_pipeline(GaussianNB()), "ts", cv=2).fit(X, y, gaussiannb__sample_weight=weight)
    member = by_step.calibrated_classifiers_[0]
    train, _ = next(StratifiedKFold(2).split(X, y))
    expected = GaussianNB().fit(X[train], y[train], weight[train])
    np.testing.assert_allclose(member.estimator[-1].theta_, expected.theta_)


def test_a_fitted_classifier_is_not_warned_about(digits):
    X, _, y, _ = digits
    frozen = FrozenEstimator(KNeighborsClassifier().fit(X[:500], y[:500]))
    by_hand = CalibratedClassifier(frozen.estimator, "ts", cv="prefit")
    p = [
        model.fit(X[500:], y[500:], sample_weight=np.ones(len(y) - 500)).predict_proba(X)
        for model in (CalibratedClassifier(frozen, "ts"), by_hand)
    ]
    np.testing.assert_array_equal(*p)


@pytest.mark.parametrize("ensemble", [True, False])
def test_metadata_is_routed_where_it_is_requested(digits, ensemble):
    X, _, y, _ = digits
    groups = np.arange(len(y)) % 7
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    pipeline = make_pipeline(StandardScaler(), GaussianNB())
    with config_context(enable_metadata_routing=True):
        pipeline[0].set_fit_request(sample_weight=False)
        pipeline[1].set_fit_request(sample_weight=True)
        model = CalibratedClassifier(pipeline, "ts", cv=GroupKFold(3), ensemble=ensemble)
        model.fit(X, y, sample_weight=weight, groups=groups)
    splits = list(GroupKFold(3).split(X, y, groups))
    rows = splits[0][0] if ensemble else np.arange(len(y))
    expected = make_pipeline(StandardScaler(), GaussianNB()).fit(
        X[rows], y[rows], gaussiannb__sample_weight=weight[rows]
    )
    np.testing.assert_allclose(model.calibrated_classifiers_[0].estimator[-1].theta_, expected[-1].theta_)
    with config_context(enable_metadata_routing=True):
        refusing = GaussianNB().set_fit_request(sample_weight=False)
        plain = CalibratedClassifier(refusing, "ts", cv=3).fit(X, y, sample_weight=weight)
    first = next(StratifiedKFold(3).split(X, y))[0]
    np.testing.assert_allclose(
        plain.calibrated_classifiers_[0].estimator.theta_, GaussianNB().fit(X[first], y[first]).theta_
    )


def test_groups_reach_the_splitter_without_routing_too(digits):
    X, _, y, _ = digits
    groups = np.arange(len(y)) % 7
    splits = list(GroupKFold(3).split(X, y, groups))
    p = [
        CalibratedClassifier(GaussianNB(), "ts", cv=cv).fit(X, y, **given).predict_proba(X)
        for cv, given in ((GroupKFold(3), {"groups": groups}), (splits, {}))
    ]
    np.testing.assert_array_equal(*p)


@pytest.mark.parametrize("ensemble", [True, False])
def test_boolean_masks_are_splits(digits, ensemble):
    X, _, y, _ = digits
    splits = list(KFold(3).split(X))
    masks = [tuple(np.isin(np.arange(len(y)), part) for part in split) for split in splits]
    p = [
        CalibratedClassifier(GaussianNB(), "ts", cv=cv, ensemble=ensemble).fit(X, y).predict_proba(X)
        for cv in (splits, iter(masks))
    ]
    np.testing.assert_array_equal(*p)


@pytest.mark.parametrize("wrap", [lambda svc: svc, make_pipeline, lambda svc: GridSearchCV(svc, {"C": [1.0]}, cv=2)])
@pytest.mark.parametrize("n_classes", [3, 4])
def test_scores_of_pairs_of_classes_are_refused(wrap, n_classes):
    X, y = load_digits(n_class=n_classes, return_X_y=True)
    model = CalibratedClassifier(wrap(SVC(decision_function_shape="ovo")), "ts", cv=2)
    with pytest.raises(ParameterError, match=r"'estimator' of CalibratedClassifier .* decision_function_shape='ovr'"):
        model.fit(X, y)
    model.set_params(estimator=wrap(SVC(decision_function_shape="ovr")))
    assert model.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.97


def test_zeros_of_a_forest_count_as_half_a_vote():
    X, y = make_classification(2000, weights=[0.9], random_state=0)
    forest = RandomForestClassifier(20, min_samples_leaf=1, random_state=0).fit(X[:1000], y[:1000])
    model = CalibratedClassifier(forest, "ts", cv="prefit").fit(X[1000:1500], y[1000:1500])
    (member,) = model.calibrated_classifiers_
    assert member.floor == pytest.approx(np.log(0.5 / 20))
    p = np.maximum(forest.predict_proba(X[1000:1500]), 0.5 / 20)
    expected = TemperatureScaling().fit(np.log(p), y[1000:1500]).temperature_
    assert member.calibrator.temperature_ == pytest.approx(expected)


def test_each_error_names_what_the_user_called():
    X, y = load_iris(return_X_y=True)
    cases = [
        (Ridge(), {}, y, ParameterError, "'estimator' of CalibratedClassifier must be a classifier .* Got Ridge()"),
        (
            GaussianNB(),
            {},
            0 * y,
            LabelError,
            "'y' of CalibratedClassifier.fit must be of at least two classes. Got only",
        ),
        (
            GaussianNB(),
            {"calibrator": "sigmoids"},
            y,
            ParameterError,
            "'calibrator' of CalibratedClassifier must be one of",
        ),
        (
            GaussianNB(),
            {"calibrator": GaussianNB()},
            y,
            ParameterError,
            "'calibrator' of CalibratedClassifier must be a",
        ),
        (GaussianNB(), {"ensemble": "no"}, y, ParameterError, "'ensemble' of CalibratedClassifier must be True, False"),
    ]
    for estimator, options, labels, kind, message in cases:
        with pytest.raises(kind, match=message):
            CalibratedClassifier(estimator, **options).fit(X, labels)


@pytest.mark.slow
@pytest.mark.parametrize("ensemble", [True, False])
@pytest.mark.parametrize("asarray", [torch.asarray, array_api_strict.asarray], ids=["torch", "strict"])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.filterwarnings("ignore::refocal.errors.InputWarning")  # scikit-learn does not weight this estimator
def test_array_api_dispatch(asarray, ensemble, named, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # scikit-learn asks for it
    X, y = make_classification(400, 10, n_informative=10, n_redundant=0, n_classes=4, class_sep=2.0, random_state=0)
    weight = np.where(np.arange(400) % 2, 1.0, 2.0)
    labels = np.array(["a", "b", "c", "d"])[y] if named else y
    options = {"cv": ShuffleSplit(3, random_state=0) if ensemble else 3, "ensemble": ensemble}
    plain = CalibratedClassifier(LinearDiscriminantAnalysis(), "fts", **options).fit(X, labels, sample_weight=weight)
    with config_context(array_api_dispatch=True):
        X_xp, y_xp = asarray(X), labels if named else asarray(y)
        model = CalibratedClassifier(LinearDiscriminantAnalysis(), "fts", **options)
        model.fit(X_xp, y_xp, sample_weight=weight)
        p, top = model.predict_proba(X_xp), model.predict(X_xp)
        assert type(p) is type(X_xp)
        assert type(top) is (np.ndarray if named else type(X_xp))
        assert type(model.predict_log_proba(X_xp)) is type(X_xp)
    np.testing.assert_allclose(np.asarray(p), plain.predict_proba(X), atol=1e-6)
    np.testing.assert_array_equal(np.asarray(top), plain.predict(X))


@pytest.mark.parametrize("estimator", [GaussianNB(), RandomForestClassifier(20, random_state=0)], ids=["nb", "forest"])
def test_rows_of_weight_0_have_no_say(estimator):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 4))
    y = np.argmax(2.0 * X[:, :3] + rng.gumbel(size=(300, 3)), axis=1)
    fitted = FrozenEstimator(estimator.fit(X[:100], y[:100]))
    # The row of the smallest probability has no weight.
    p = fitted.predict_proba(X[100:200])
    smallest = np.where(p > 0.0, p, 1.0).min(axis=1)
    weight = (smallest > np.quantile(smallest, 0.3)).astype(float)
    used = np.flatnonzero(weight) + 100
    with_zeros = CalibratedClassifier(fitted, "ts").fit(X[100:200], y[100:200], weight)
    without = CalibratedClassifier(fitted, "ts").fit(X[used], y[used])
    np.testing.assert_array_equal(with_zeros.predict_proba(X[200:]), without.predict_proba(X[200:]))


def test_a_fold_whose_rows_that_count_are_of_one_class_has_the_calibrator_of_all():
    """Of class 1 two rows of 1,500 have a weight: of the five folds of an ensemble three have none at least."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1_500, 2))
    y = (rng.random(1_500) < 1.0 / (1.0 + np.exp(-X[:, 0]))).astype(int)
    weight = np.where(y == 0, 1.0, 0.0)
    weight[np.flatnonzero(y == 1)[[0, 700]]] = 1.0
    fitted = CalibratedClassifier(LogisticRegression(), "ts", ensemble=True).fit(X, y, sample_weight=weight)
    temperatures = [member.calibrator.temperature_ for member in fitted.calibrated_classifiers_]
    assert len(temperatures) == 5
    assert len(set(temperatures)) <= 3


def test_masked_labels_are_refused():
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    with pytest.raises(DataError, match=r"'y' of CalibratedClassifier\.fit must be an array without masked entries"):
        CalibratedClassifier().fit(X, np.ma.array(y, mask=y == 1))
