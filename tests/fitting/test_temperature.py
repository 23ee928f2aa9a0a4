"""The search for a temperature against brute force and other libraries."""

from __future__ import annotations

import warnings
from importlib import import_module

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

from helpers import draw_logits
from refocal.engine import Block
from refocal.fitting.temperature import newton_temperature
from refocal.maps import log_softmax

pytestmark = [pytest.mark.core, pytest.mark.numerics]


def brute_force_temperature(logits, labels):
    below = logits - logits.max(axis=1, keepdims=True)
    of_labels = below[np.arange(len(labels)), labels].mean()

    def loss(u):
        return np.log(np.exp(below / np.exp(u)).sum(axis=1)).mean() - of_labels / np.exp(u)

    return np.exp(minimize_scalar(loss, bracket=(-1.0, 1.0), method="brent", tol=1e-12).x)


class Logits(ClassifierMixin, BaseEstimator):
    """A classifier whose features are its logits."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        return X

    def predict(self, X):
        return self.classes_[np.argmax(X, axis=1)]


def probmetrics_calibrators():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a dependency of it uses what torch has deprecated
        return import_module("probmetrics.calibrators")


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [10, 100, 1000])
def test_temperature_equals_other_libraries_and_brute_force(n_classes):
    logits, labels = draw_logits(max(1000, 2 * n_classes), n_classes)
    logits *= 1.8
    labels[:n_classes] = np.arange(n_classes)  # every class occurs, as scikit-learn needs
    ours = newton_temperature(Block(logits, labels))
    assert ours.status == "converged"
    assert ours.passes <= 8  # quadratic convergence: a wrong derivative would take more steps to the same minimum
    assert ours.temperature == pytest.approx(brute_force_temperature(logits, labels), rel=1e-6)
    frozen = FrozenEstimator(Logits().fit(logits, labels))
    theirs = CalibratedClassifierCV(frozen, method="temperature", ensemble=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes too rare for its folds
        theirs.fit(logits, labels)
    beta = theirs.calibrated_classifiers_[0].calibrators[0].beta_
    assert ours.temperature == pytest.approx(1 / beta, rel=1e-5)
    peer = probmetrics_calibrators().get_calibrator("temp-scaling")
    peer.fit(np.exp(log_softmax(logits)), labels)
    before = log_softmax(logits[:200])
    after = np.log(peer.predict_proba(np.exp(before)))
    # Its temperature is the slope between log-probabilities before and after, each row centred.
    before, after = (x - x.mean(axis=1, keepdims=True) for x in (before, after))
    assert ours.temperature == pytest.approx(np.sum(before**2) / np.sum(before * after), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize(("factor", "offset"), [(1.0, 0.0), (30.0, 0.0), (0.005, 0.0), (1.0, 1000.0), (1e4, 0.0)])
def test_any_scale_and_precision(dtype, factor, offset):
    logits, labels = draw_logits(4000, 10)
    if dtype == np.float16:
        factor = min(factor, 1e3)  # the largest float16 is 65504
    logits = (factor * logits + offset).astype(dtype)
    best = brute_force_temperature(logits.astype(np.float64) / factor, labels) * factor
    assert newton_temperature(Block(logits, labels)).temperature == pytest.approx(best, rel=1e-5)


def test_a_temperature_is_found_once():
    """Methods that begin at the best temperature of the same rows share it: the second asks for no pass."""
    problem = Block(*draw_logits(500, 4))
    newton_temperature(problem)
    passes = problem.passes
    assert newton_temperature(problem).passes == problem.passes == passes
