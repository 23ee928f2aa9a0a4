"""What scikit-learn's test_calibration.py asserts of CalibratedClassifierCV, asserted of CalibratedClassifier.

Each test states one of its facts (version 1.9) in our words; `calibrated` is the whole adapter. Where the two differ on
purpose a test states what holds here instead; README.md lists these cases with their reasons.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import _sigmoid_calibration, _SigmoidCalibration, _TemperatureScaling
from sklearn.datasets import load_iris, make_blobs, make_classification
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.feature_extraction import DictVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score
from sklearn.model_selection import KFold, LeaveOneOut, cross_val_predict, cross_val_score, train_test_split
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils._mocking import CheckingClassifier
from sklearn.utils.fixes import CSR_CONTAINERS

from refocal import CalibratedClassifier, LogisticCalibration, TemperatureScaling, metrics
from refocal.errors import InputError, ParameterError

METHODS = ["sigmoid", "isotonic", "temperature"]


def calibrated(estimator=None, *, method="sigmoid", **options):
    return CalibratedClassifier(estimator, method, **options)


def line(fitted):
    """Slope and intercept of a logistic calibrator of two classes."""
    intercept, slope = fitted.curve_.coefficients[:, 0, 0]
    return np.array([slope, intercept])


@pytest.fixture(scope="module")
def data():
    return make_classification(n_samples=200, n_features=6, random_state=42)


@pytest.fixture(params=[True, False], ids=["ensemble", "one"])
def ensemble(request):
    return request.param


def test_an_unknown_method_is_refused(data):
    with pytest.raises(
        ParameterError, match=r"'calibrator' of CalibratedClassifier must be .*'sigmoid'.* Got 'neither'"
    ):
        calibrated(method="neither").fit(*data)


@pytest.mark.parametrize("container", [np.asarray, CSR_CONTAINERS[0]], ids=["dense", "sparse"])
@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_naive_bayes_gains_and_names_of_classes_change_nothing(data, method, container, ensemble):
    X, y = data
    X = X - X.min()
    weight = np.random.RandomState(42).uniform(size=200)[:100]
    bayes = MultinomialNB().fit(X[:100], y[:100], sample_weight=weight)
    raw = brier_score_loss(y[100:], bayes.predict_proba(X[100:])[:, 1])
    with pytest.raises(ValueError, match="n_splits=201"):
        calibrated(bayes, cv=201, ensemble=ensemble).fit(X, y)

    def fitted(labels):
        model = calibrated(bayes, method=method, cv=5, ensemble=ensemble)
        return model.fit(container(X[:100]), labels, sample_weight=weight).predict_proba(container(X[100:]))[:, 1]

    p = fitted(y[:100])
    assert brier_score_loss(y[100:], p) < raw
    np.testing.assert_allclose(fitted(y[:100] + 1), p, atol=1e-6)
    np.testing.assert_allclose(fitted(2 * y[:100] - 1), p, atol=1e-6)
    mirrored = fitted(1 - y[:100])
    if method == "sigmoid":
        np.testing.assert_allclose(1.0 - mirrored, p, atol=1e-6)
    else:
        assert brier_score_loss(1 - y[100:], mirrored) < raw


def test_by_default_a_linear_support_vector_machine(data):
    assert isinstance(calibrated(cv=2).fit(*data).calibrated_classifiers_[0].estimator, LinearSVC)


def test_a_splitter(data, ensemble):
    model = calibrated(cv=KFold(5), ensemble=ensemble).fit(*data)
    assert model.cv.n_splits == 5
    assert len(model.calibrated_classifiers_) == (5 if ensemble else 1)


def test_more_folds_than_rows_of_a_class_are_refused(data):
    for cv in (KFold(101), LeaveOneOut()):
        with pytest.raises(ParameterError, match=r"'cv' of CalibratedClassifier must be of at most 100 folds"):
            calibrated(cv=cv, ensemble=True).fit(*data)


def test_all_rows_left_out_one_at_a_time_calibrate_together(data):
    X, y = data[0][:40], data[1][:40]
    model = calibrated(cv=LeaveOneOut(), ensemble=False).fit(X, y)
    scores = cross_val_predict(LinearSVC(random_state=0), X, y, cv=LeaveOneOut(), method="decision_function")
    expected = _SigmoidCalibration().fit(scores, y).predict(LinearSVC(random_state=0).fit(X, y).decision_function(X))
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], expected, atol=1e-3 / 40 + 1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_weights_count(data, method, ensemble):
    X, y = data
    weight = np.random.RandomState(42).uniform(size=200)[:100]
    model = calibrated(LinearSVC(random_state=42), method=method, ensemble=ensemble)
    weighted = model.fit(X[:100], y[:100], sample_weight=weight).predict_proba(X[100:])
    plain = model.fit(X[:100], y[:100]).predict_proba(X[100:])
    assert np.linalg.norm(weighted - plain) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_two_jobs_find_what_one_finds(data, method, ensemble):
    X, X_test, y, _ = train_test_split(*data, random_state=42)
    estimator = make_pipeline(StandardScaler(), LinearSVC(random_state=42))
    p = [
        calibrated(estimator, method=method, n_jobs=jobs, ensemble=ensemble).fit(X, y).predict_proba(X_test)
        for jobs in (1, 2)
    ]
    np.testing.assert_array_equal(*p)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_many_classes(method, ensemble, seed):
    X, y = make_blobs(n_samples=500, n_features=100, random_state=seed, centers=10, cluster_std=15.0)
    y[y > 2] = 2
    X, X_test, y, y_test = X[::2], X[1::2], y[::2], y[1::2]

    def brier(p):
        return np.mean(np.sum((np.eye(3)[y_test] - p) ** 2, axis=1))

    machine = LinearSVC(random_state=7).fit(X, y)
    scores = machine.decision_function(X_test)
    model = calibrated(machine, method=method, cv=5, ensemble=ensemble).fit(X, y)
    p = model.predict_proba(X_test)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert 0.65 < machine.score(X_test, y_test) < 0.95
    assert model.score(X_test, y_test) > 0.95 * machine.score(X_test, y_test)
    softmax = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    assert brier(p) < 1.1 * brier(softmax)
    forest = RandomForestClassifier(10, random_state=42).fit(X, y)
    p = calibrated(forest, method=method, cv=5, ensemble=ensemble).fit(X, y).predict_proba(X_test)
    assert brier(p) < 1.1 * brier(forest.predict_proba(X_test))


@pytest.mark.parametrize("container", [np.asarray, CSR_CONTAINERS[0]], ids=["dense", "sparse"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("weighted", [True, False])
def test_a_frozen_classifier(method, container, weighted):
    X, y = make_classification(n_samples=150, n_features=6, random_state=42)
    X -= X.min()
    weight = np.random.RandomState(42).uniform(size=150)
    bayes = MultinomialNB().fit(X[:50], y[:50], weight[:50])
    model = calibrated(FrozenEstimator(bayes), method=method)
    model.fit(container(X[50:100]), y[50:100], sample_weight=weight[50:100] if weighted else None)
    p = model.predict_proba(container(X[100:]))
    assert len(model.calibrated_classifiers_) == 1
    np.testing.assert_array_equal(model.predict(container(X[100:])), np.argmax(p, axis=1))
    assert brier_score_loss(y[100:], p[:, 1]) < brier_score_loss(y[100:], bayes.predict_proba(X[100:])[:, 1])


@pytest.mark.parametrize(
    ("method", "peer", "apart"),
    [("sigmoid", _SigmoidCalibration(), 1e-3 / 200 + 1e-5), ("temperature", _TemperatureScaling(), 1e-6)],
    ids=["sigmoid", "temperature"],
)
def test_one_calibrator_of_out_of_fold_scores(data, method, peer, apart):
    X, y = data
    machine = LinearSVC(random_state=7)
    scores = cross_val_predict(machine, X, y, cv=3, method="decision_function")
    expected = peer.fit(scores, y).predict(machine.fit(X, y).decision_function(X))
    expected = expected if expected.ndim == 1 else expected[:, 1]
    p = calibrated(machine, method=method, cv=3, ensemble=False).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(p[:, 1], expected, atol=apart)


def test_platts_example():
    """The coefficients are those of LIBSVM, as scikit-learn's own test has them."""
    scores, y = np.array([5.0, -4.0, 1.0]), np.array([1, -1, -1])
    fitted = LogisticCalibration().fit(np.stack([0 * scores, scores], axis=1), y)
    coefficients = line(fitted) / [fitted.temperature_, 1.0]
    np.testing.assert_allclose(coefficients, [0.20261354391187855, -0.65236314980010512], atol=1e-5)
    with pytest.raises(ValueError, match="y"):
        LogisticCalibration().fit(np.stack([scores, scores]), y)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_temperature_scaling(n_classes, ensemble):
    X, y = make_classification(
        n_samples=1000, n_features=10, n_informative=10, n_redundant=0, n_classes=n_classes,
        n_clusters_per_class=1, class_sep=2.0, random_state=42,
    )  # fmt: skip
    X, X_new, y, y_new = train_test_split(X, y, random_state=42)
    base = LogisticRegression(C=np.inf, tol=1e-8, max_iter=200, random_state=0).fit(X, y)
    model = calibrated(FrozenEstimator(base), cv=3, method="temperature", ensemble=ensemble).fit(X_new, y_new)
    assert [type(member.calibrator) for member in model.calibrated_classifiers_] == [TemperatureScaling] * (
        3 if ensemble else 1
    )
    assert all(member.calibrator.temperature_ > 0.0 for member in model.calibrated_classifiers_)
    if ensemble:
        return
    assert accuracy_score(y_new, model.predict(X_new)) == accuracy_score(y_new, base.predict(X_new))
    before, after = base.predict_proba(X_new), model.predict_proba(X_new)
    assert log_loss(y_new, after) <= log_loss(y_new, before)
    before, after = (p[:, 1] if n_classes == 2 else p for p in (before, after))
    assert roc_auc_score(y_new, after, multi_class="ovr") == pytest.approx(
        roc_auc_score(y_new, before, multi_class="ovr")
    )
    # Logistic regression without a penalty is calibrated on its own training set.
    own = TemperatureScaling(input="probabilities").fit(base.predict_proba(X), y)
    assert own.temperature_ == pytest.approx(1.0, abs=1e-6)


def test_the_reliability_curve_of_a_small_example():
    y, p = np.array([0, 0, 0, 1, 1, 1]), np.array([0.0, 0.1, 0.2, 0.8, 0.9, 1.0])
    curve = metrics.reliability_curve(y, p, n_bins=2, strategy="uniform")
    np.testing.assert_allclose(curve.accuracy, [0.0, 1.0])
    np.testing.assert_allclose(curve.confidence, [0.1, 0.9])
    with pytest.raises(InputError):
        metrics.reliability_curve([1], [-0.1])
    with pytest.raises(InputError):
        metrics.reliability_curve(y, p, strategy="percentile")


@pytest.mark.parametrize("method", METHODS)
def test_missing_values_are_the_estimators_own_business(method, ensemble):
    X, y = make_classification(n_samples=10, n_features=2, n_informative=2, n_redundant=0, random_state=42)
    X[0, 0] = np.nan
    estimator = make_pipeline(SimpleImputer(), RandomForestClassifier(1, random_state=0))
    assert calibrated(estimator, cv=2, method=method, ensemble=ensemble).fit(X, y).predict(X).shape == (10,)


@pytest.mark.parametrize("method", METHODS)
def test_folds_of_one_class(method, ensemble):
    X, _ = make_classification(n_samples=10, n_features=5, n_classes=2, random_state=0)
    y = [1] * 5 + [0] * 5
    model = calibrated(LinearSVC(random_state=7), method=method, cv=KFold(3), ensemble=ensemble).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


def test_classes_missing_in_training_get_no_probability(ensemble):
    """The first fold is trained without class 0, the third without class 3."""
    X = np.random.default_rng(0).normal(size=(12, 5))
    y = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    model = calibrated(DecisionTreeClassifier(random_state=7), cv=KFold(3), ensemble=ensemble).fit(X, y)
    if not ensemble:
        np.testing.assert_allclose(model.calibrated_classifiers_[0].predict_proba(X).sum(axis=1), 1.0)
        return
    for fold, missing in ((0, 0), (2, 3)):
        p = model.calibrated_classifiers_[fold].predict_proba(X)
        np.testing.assert_array_equal(p[:, missing], 0.0)
        assert np.all(np.delete(p, missing, axis=1) > 0.0)


class Tensors(ClassifierMixin, BaseEstimator):
    """A classifier of arrays with any number of axes."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        return X.reshape(X.shape[0], -1).sum(axis=1)


@pytest.mark.parametrize("shape", [(15, 5, 2), (15, 5, 2, 6)])
def test_arrays_of_any_number_of_axes(shape):
    y = [1, 0, 0, 1, 1, 0, 1, 1, 0, 0, 1, 0, 0, 1, 0]
    X = np.random.RandomState(42).randn(*shape)
    assert calibrated(Tensors()).fit(X, y).predict_proba(X).shape == (15, 2)


def test_dictionaries_for_a_frozen_pipeline():
    X = [{"state": state, "age": age} for state, age in ("NA", "TA", "VC", "CA", "BC")]
    y = [1, 0, 1, 1, 0]
    pipeline = make_pipeline(DictVectorizer(), RandomForestClassifier(random_state=0)).fit(X, y)
    model = calibrated(FrozenEstimator(pipeline), cv=2).fit(X, y)
    np.testing.assert_array_equal(model.classes_, pipeline.classes_)
    assert not hasattr(model, "n_features_in_")
    assert model.predict_proba(X).shape == (5, 2)


def test_attributes():
    X, y = make_classification(n_samples=10, n_features=5, n_classes=2, random_state=7)
    model = calibrated(LinearSVC(C=1), cv=2).fit(X, y)
    np.testing.assert_array_equal(model.classes_, [0, 1])
    assert model.n_features_in_ == 5
    with pytest.raises(ValueError, match="X has 3 features, but LinearSVC is expecting 5 features as input"):
        calibrated(FrozenEstimator(LinearSVC(C=1).fit(X, y))).fit(X[:, :3], y)


def test_a_vote():
    X, y = make_classification(n_samples=10, n_features=5, n_classes=2, random_state=7)
    vote = VotingClassifier([(f"lr{i}", LogisticRegression()) for i in range(3)], voting="soft").fit(X, y)
    assert calibrated(FrozenEstimator(vote)).fit(X, y).predict_proba(X).shape == (10, 2)


@pytest.mark.parametrize("method", METHODS)
def test_a_weight_of_two_is_every_row_twice(method, ensemble):
    X, y = load_iris(return_X_y=True)
    X, y = StandardScaler().fit_transform(X)[:100], y[:100]
    weighted = calibrated(LogisticRegression(), method=method, ensemble=ensemble, cv=2)
    repeated = clone(weighted).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    weighted.fit(X, y, sample_weight=2 * np.ones_like(y))
    for a, b in zip(weighted.calibrated_classifiers_, repeated.calibrated_classifiers_, strict=True):
        np.testing.assert_allclose(a.estimator.coef_, b.estimator.coef_, rtol=1e-7)
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-6)


@pytest.mark.parametrize("kind", [list, np.asarray])
def test_parameters_of_fit_reach_the_estimator(data, kind):
    X, y = data
    model = calibrated(CheckingClassifier(expected_fit_params=["a", "b"]))
    assert model.fit(X, y, a=kind(y), b=kind(y)) is model


@pytest.mark.parametrize("kind", [list, np.asarray])
def test_weights_reach_the_estimator(data, kind):
    model = calibrated(CheckingClassifier(expected_sample_weight=True))
    assert model.fit(*data, sample_weight=kind(np.ones(200))) is model


class Unweighted(CheckingClassifier):
    def fit(self, X, y, **fit_params):
        assert "sample_weight" not in fit_params
        return super().fit(X, y, **fit_params)


def test_weights_that_cannot_be_passed_are_warned_of(data):
    with pytest.warns(UserWarning, match="sample_weight"):
        calibrated(Unweighted()).fit(*data, sample_weight=np.ones(200))


class Wanting(LogisticRegression):
    def fit(self, X, y, sample_weight=None, extra=None):
        assert len(extra) == 201
        return super().fit(X, y, sample_weight=sample_weight)


def test_a_parameter_of_another_length_is_passed_whole(data):
    assert calibrated(Wanting()).fit(*data, extra=np.ones(201)).classes_.tolist() == [0, 1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(3))
def test_huge_scores(seed):
    y = np.array([1] * 134 + [0] * 66)
    X = 1e5 * y[:, None] + np.random.default_rng(seed).normal(size=(200, 1))
    descent = SGDClassifier(loss="squared_hinge", tol=1e-2, random_state=seed)
    assert np.max(descent.fit(X, y).decision_function(X)) > 1e4
    areas = [
        cross_val_score(calibrated(clone(descent), method=method), X, y, scoring="roc_auc")
        for method in ("sigmoid", "isotonic")
    ]
    np.testing.assert_allclose(*areas)


@pytest.mark.parametrize("seed", range(3))
def test_the_scale_of_scores_changes_nothing(seed):
    rng = np.random.RandomState(seed)
    y, scores = rng.randint(0, 2, size=100), rng.uniform(-2.0, 2.0, size=100)
    a, b = _sigmoid_calibration(scores, y)
    for scale in (0.1, 1.0, 100.0):
        fitted = LogisticCalibration(base="softmax").fit(np.stack([0 * scores, scale * scores], axis=1), y)
        np.testing.assert_allclose(line(fitted) * [scale, 1.0], [-a, -b], atol=1e-5)


class Single(DummyClassifier):
    def predict_proba(self, X):
        return super().predict_proba(X).astype(np.float32)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_probabilities_in_single_precision(data, weighted, method):
    weight = np.ones(200) if weighted else None
    for estimator in (Single(), FrozenEstimator(Single().fit(*data, sample_weight=weight))):
        p = calibrated(estimator, method=method).fit(*data, sample_weight=weight).predict_proba(data[0])
        np.testing.assert_allclose(p, 0.5, atol=0.02)


def test_names_of_classes():
    X = np.random.default_rng(0).normal(size=(20, 3))
    assert calibrated(cv=3).fit(X, ["a"] * 10 + ["b"] * 10).classes_.tolist() == ["a", "b"]
