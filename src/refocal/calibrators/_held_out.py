"""Scores of a classifier on rows it was not trained on, and the calibrator fitted on them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.utils._indexing import _safe_indexing
from sklearn.utils.validation import _check_method_params

from refocal._arrays import (
    Array,
    Indices,
    Vector,
    as_floating,
    in_library_of,
    lowest_log_probability,
    namespace,
    to_numpy,
)
from refocal._validation import check_weight
from refocal.calibrators._base import Calibrator
from refocal.errors import LabelError, ParameterError

NAME = "CalibratedClassifier"
# Below the machine epsilon a probability only means "none": a forest's 0 where it saw no example, or the 10^-1000000
# of naive Bayes, of which a few in wrong rows would lead to absurd temperatures.
SMALLEST = float(np.finfo(np.float64).eps)


class CalibratedMember(NamedTuple):
    """A fitted classifier and its calibrator, for all classes; log-probabilities are raised to `floor`."""

    estimator: Any
    calibrator: Calibrator
    classes: NDArray[Any]
    floor: float

    def predict_proba(self, X: Any) -> Array:
        """Calibrated probabilities; a class that the classifier never saw has none."""
        logits = _in_columns(logits_of(self.estimator, X), self.estimator, self.classes)
        return self.calibrator.predict_proba(_raise(logits, self.floor))


class HeldOut(NamedTuple):
    """Scores of a classifier on rows it was not trained on; -inf for classes that it never saw."""

    estimator: Any
    logits: Array
    codes: Indices
    weight: Vector | None


class Rows(NamedTuple):
    """The data of a fit: `y` and `classes` as the estimator sees them, `codes` the positions among its classes."""

    X: Any
    y: Any
    codes: Indices
    classes: NDArray[Any]
    names: NDArray[Any]
    weight: Vector | None


def logits_of(estimator: Any, X: Any) -> Array:
    """Logits of a fitted classifier, one column for each of its classes."""
    if hasattr(estimator, "decision_function"):
        scores = _floating(estimator.decision_function(X))
        return scores if scores.ndim == 2 else namespace(scores).stack([-0.5 * scores, 0.5 * scores], axis=1)
    with np.errstate(divide="ignore"):
        if hasattr(estimator, "predict_log_proba"):
            log_p = _floating(estimator.predict_log_proba(X))
        else:
            p = _floating(estimator.predict_proba(X))
            log_p = namespace(p).log(p)
    return namespace(log_p).clip(log_p, math.log(SMALLEST), None)


def _check_columns(estimator: Any, X: Any, scores: Array) -> None:
    """Refuse scores of pairs of classes. Of three classes there are three pairs: their votes are what it predicts."""
    classes, got = to_numpy(estimator.classes_), None
    if scores.shape[1] != len(classes):
        got = f"{scores.shape[1]} columns for {len(classes)} classes"
    elif len(classes) == 3 and hasattr(estimator, "decision_function") and hasattr(estimator, "predict"):
        s, predicted = to_numpy(scores), to_numpy(estimator.predict(X))
        a, b, c = (s > 0.0).T.astype(int)  # 0 wins over 1, 0 over 2, 1 over 2
        votes = np.stack([a + b, 1 - a + c, 2 - b - c], axis=1)
        by_class, by_pair = (np.mean(classes[np.argmax(by, axis=1)] == predicted) for by in (s, votes))
        if by_pair > by_class:
            got = f"scores whose largest is the predicted class in {by_class:.0%} of the rows"
    if got is not None:
        expected = "a classifier with a score for each class, not for each pair: decision_function_shape='ovr'"
        raise ParameterError("estimator", NAME, expected=expected, got=f"{type(estimator).__name__} with {got}")


def checked_rows(X: Any, y: Any, sample_weight: Any, fitted: Any) -> Rows:
    """Checked data; the classes are those of a fitted classifier, else those of the labels."""
    function, labels = f"{NAME}.fit", to_numpy(y)
    found = np.unique(labels)
    classes = found if fitted is None else np.asarray(to_numpy(_classes_of(fitted)))
    strangers = np.setdiff1d(found, classes)
    if len(strangers):
        raise LabelError("y", function, expected="of the estimator's classes", got=repr(strangers[0]))
    if len(found) < 2:
        got = f"only one class, {found.tolist()[0]!r}" if len(found) else "no labels"
        raise LabelError("y", function, expected="of at least two classes", got=got)
    weight = None if sample_weight is None else check_weight(sample_weight, (len(labels),), function)
    codes, names = np.searchsorted(classes, labels), classes
    if fitted is None and _dispatches(X) and not _dispatches(y):
        # scikit-learn computes in the library of X, which has no text
        y, classes = in_library_of_rows(codes, X), np.arange(len(classes))
    return Rows(X, y, codes, classes, names, weight)


def _classes_of(fitted: Any) -> Any:
    if not hasattr(fitted, "classes_"):
        raise ParameterError("estimator", NAME, expected="a classifier, with classes_ once fitted", got=repr(fitted))
    return fitted.classes_


def fit_fold(estimator: Any, rows: Rows, params: Mapping[str, Any], train: Indices, test: Indices) -> HeldOut:
    """A classifier fitted on some rows, and its scores on others."""
    own = _check_method_params(rows.X, params, indices=train)
    return held_out(estimator.fit(_safe_indexing(rows.X, train), _safe_indexing(rows.y, train), **own), rows, test)


def held_out(fitted: Any, rows: Rows, test: Indices) -> HeldOut:
    """Scores of a fitted classifier on these rows."""
    # A class that was missing in training has no logit, so its rows cannot calibrate.
    test = test[np.isin(rows.classes, to_numpy(_classes_of(fitted)))[rows.codes[test]]]
    logits: Array = np.empty((0, len(rows.classes)))
    if len(test):
        X = _safe_indexing(rows.X, test)
        scores = logits_of(fitted, X)
        _check_columns(fitted, X, scores)
        logits = _in_columns(scores, fitted, rows.classes)
    return HeldOut(fitted, logits, rows.codes[test], None if rows.weight is None else rows.weight[test])


def together(folds: list[HeldOut]) -> HeldOut:
    """The rows of all folds."""
    some = [fold for fold in folds if len(fold.codes)]
    weight = None if some[0].weight is None else np.concatenate([fold.weight for fold in some])
    logits = namespace(some[0].logits).concat([fold.logits for fold in some])
    return HeldOut(None, logits, np.concatenate([fold.codes for fold in some]), weight)


def _in_columns(logits: Array, fitted: Any, classes: NDArray[Any]) -> Array:
    """One column for each class, with -inf for those that the classifier never saw."""
    at = {name: i for i, name in enumerate(to_numpy(fitted.classes_).tolist())}
    if len(at) == len(classes):
        return logits
    xp = namespace(logits)
    none = xp.full_like(logits[:, 0], -np.inf)
    return xp.stack([logits[:, at[name]] if name in at else none for name in classes.tolist()], axis=1)


def _dispatches(values: Any) -> bool:
    """Whether scikit-learn computes with these values in their own array library."""
    return get_config()["array_api_dispatch"] and not isinstance(values, np.ndarray) and hasattr(values, "__dlpack__")


def _floating(values: Any) -> Array:
    if _dispatches(values):
        return as_floating(values, "scores", NAME)[0]
    return np.asarray(to_numpy(values), dtype=np.float64)


def in_library_of_rows(labels: NDArray[Any], X: Any) -> Array:
    """Numbers of classes in the library of `X`, where scikit-learn computes in it."""
    if labels.dtype.kind not in "biuf" or not _dispatches(X):
        return labels
    return in_library_of(X, labels)


def calibrate(fitted: Any, calibrator: Calibrator, source: HeldOut, classes: NDArray[Any]) -> CalibratedMember:
    """A classifier with a calibrator fitted on held-out rows."""
    floor = -np.inf if hasattr(fitted, "decision_function") else lowest_log_probability(source.logits, SMALLEST)
    calibrator.fit(_raise(source.logits, floor), source.codes, source.weight)
    return CalibratedMember(fitted, calibrator, classes, floor)


def _raise(logits: Array, floor: float) -> Array:
    """Logits raised to the floor, except for classes that a classifier never saw."""
    xp = namespace(logits)
    return logits if floor == -np.inf else xp.where(xp.isinf(logits), logits, xp.clip(logits, floor, None))
