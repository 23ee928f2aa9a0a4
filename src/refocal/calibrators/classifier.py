"""A whole classifier with calibrated probabilities: any scikit-learn classifier and any calibrator."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone, is_classifier
from sklearn.model_selection import check_cv
from sklearn.svm import LinearSVC
from sklearn.utils import get_tags, indexable
from sklearn.utils._indexing import _safe_indexing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
)

from refocal.calibrators._base import Calibrator
from refocal.calibrators.focal import FocalTemperatureScaling
from refocal.errors import LabelError, ParameterError

Matrix = NDArray[np.float64]


class _Member(NamedTuple):
    """A fitted classifier, its calibrator, and the columns of the full set of classes that both know."""

    estimator: Any
    calibrator: Calibrator
    columns: NDArray[np.int64]

    def predict_proba(self, X: Any, n_classes: int) -> Matrix:
        logits = np.full((_num_samples(X), n_classes), -np.inf)
        logits[:, self.columns] = logits_of(self.estimator, X)
        return np.asarray(self.calibrator.predict_proba(logits))


class _HeldOut(NamedTuple):
    """What a classifier says of rows that it was not trained on; -inf for classes that it never saw."""

    estimator: Any
    columns: NDArray[np.int64]
    logits: Matrix
    codes: NDArray[np.int64]
    weight: NDArray[np.float64] | None


class CalibratedClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Any classifier with probabilities calibrated on data it was not trained on; a drop-in for CalibratedClassifierCV.

    Parameters
    ----------
    estimator : classifier, optional
        Logits come from its `decision_function`, else its `predict_log_proba`, else its `predict_proba`.
        By default a linear support vector machine.
    calibrator : Calibrator or str, optional
        Or a name such as "ts", as the command line has them. By default `FocalTemperatureScaling()`.
    cv : int, splitter, iterable or "prefit"
        How to hold data out. With "prefit" the estimator is fitted already, and all data given to `fit` calibrates it.
    ensemble : bool
        True: a classifier and a calibrator for each fold, whose probabilities are averaged. False: one calibrator on
        the out-of-fold logits, behind one classifier fitted on all data.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_digits(return_X_y=True)
    >>> model = CalibratedClassifier(GaussianNB(), cv=3).fit(X, y)
    >>> model.predict_proba(X).shape
    (1797, 10)
    """

    def __init__(
        self, estimator: Any = None, calibrator: Calibrator | str | None = None, *, cv: Any = 5, ensemble: bool = True
    ) -> None:
        self.estimator = estimator
        self.calibrator = calibrator
        self.cv = cv
        self.ensemble = ensemble

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit classifier and calibrator, or the calibrator alone for `cv="prefit"`."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        check_classification_targets(y)
        X, y = indexable(X, y)
        y = column_or_1d(y, warn=True)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        estimator = LinearSVC(random_state=0) if self.estimator is None else self.estimator
        if isinstance(self.cv, str):
            if self.cv != "prefit":
                expected = "an int, a splitter, an iterable of splits or 'prefit'"
                raise ParameterError("cv", "CalibratedClassifier", expected=expected, got=repr(self.cv))
            check_is_fitted(estimator)
            classes = np.asarray(estimator.classes_)
            strangers = np.setdiff1d(y, classes)
            if len(strangers):
                raise LabelError(
                    "y", "CalibratedClassifier.fit", expected="of the estimator's classes", got=repr(strangers[0])
                )
            everything = _held_out(estimator, X, y, weight, classes, np.arange(_num_samples(X)))
            members = [_Member(estimator, self._calibrate(everything), everything.columns)]
        else:
            classes = np.unique(y)
            splits = list(check_cv(self.cv, y, classifier=is_classifier(estimator)).split(X, y))
            fit = self._fit_ensemble if self.ensemble else self._fit_one
            members = fit(estimator, X, y, weight, classes, splits)
        self.classes_ = classes
        self.calibrated_classifiers_ = members
        first = members[0].estimator
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(first, name):
                setattr(self, name, getattr(first, name))
        return self

    def predict_proba(self, X: Any) -> Matrix:
        """Calibrated probabilities, one column for each of `classes_`."""
        check_is_fitted(self)
        members = self.calibrated_classifiers_
        p: Matrix = np.mean([member.predict_proba(X, len(self.classes_)) for member in members], axis=0)
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def predict_log_proba(self, X: Any) -> Matrix:
        """The logarithms of `predict_proba`."""
        return np.asarray(np.log(self.predict_proba(X)))

    def predict(self, X: Any) -> Any:
        """The class of the largest probability."""
        check_is_fitted(self)
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def _fit_ensemble(
        self, estimator: Any, X: Any, y: Any, weight: Any, classes: Any, splits: list[Any]
    ) -> list[_Member]:
        held_out = [
            _held_out(_fit_estimator(clone(estimator), X, y, weight, train), X, y, weight, classes, rows)
            for train, rows in splits
        ]
        members = []
        for fold in held_out:
            # A fold whose labels are all of one class cannot calibrate; all folds together can.
            own = fold if len(np.unique(fold.codes)) > 1 else _together(held_out)
            members.append(_Member(fold.estimator, self._calibrate(own), fold.columns))
        return members

    def _fit_one(self, estimator: Any, X: Any, y: Any, weight: Any, classes: Any, splits: list[Any]) -> list[_Member]:
        held_out = [
            _held_out(_fit_estimator(clone(estimator), X, y, weight, train), X, y, weight, classes, rows)
            for train, rows in splits
        ]
        final = _fit_estimator(clone(estimator), X, y, weight, np.arange(_num_samples(X)))
        return [_Member(final, self._calibrate(_together(held_out)), np.arange(len(classes)))]

    def _calibrate(self, fold: _HeldOut) -> Calibrator:
        return self._new_calibrator().fit(fold.logits, fold.codes, fold.weight)

    def _new_calibrator(self) -> Calibrator:
        if isinstance(self.calibrator, str):
            from refocal.calibrators.registry import make

            return make(self.calibrator)
        new: Calibrator = FocalTemperatureScaling() if self.calibrator is None else clone(self.calibrator)
        new.set_params(input="logits")
        return new

    def __sklearn_tags__(self) -> Any:
        """scikit-learn's description: what the inner classifier takes."""
        tags = super().__sklearn_tags__()
        inner = get_tags(LinearSVC() if self.estimator is None else self.estimator)
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.pairwise = inner.input_tags.pairwise
        return tags


def logits_of(estimator: Any, X: Any) -> Matrix:
    """Logits of a fitted classifier, one column for each of its classes."""
    n_classes = len(estimator.classes_)
    if hasattr(estimator, "decision_function"):
        scores = np.asarray(estimator.decision_function(X), dtype=np.float64)
        if scores.ndim == 1:
            return np.stack([-0.5 * scores, 0.5 * scores], axis=1)
        if scores.shape[1] == n_classes:
            return scores
    with np.errstate(divide="ignore"):
        if hasattr(estimator, "predict_log_proba"):
            logits = np.asarray(estimator.predict_log_proba(X), dtype=np.float64)
        else:
            logits = np.log(np.asarray(estimator.predict_proba(X), dtype=np.float64))
    # Below the machine epsilon a probability says no more than "none": a forest's 0 where it saw no example, or the
    # 10^-1000000 of naive Bayes, a few of which among the wrong rows would drive the temperature out of all reason.
    return np.maximum(logits, np.log(np.finfo(np.float64).eps))


def _held_out(fitted: Any, X: Any, y: Any, weight: Any, classes: Any, rows: Any) -> _HeldOut:
    columns = np.searchsorted(classes, fitted.classes_)
    # A class that was missing in training has no logit, so its rows cannot calibrate.
    rows = rows[np.isin(y[rows], fitted.classes_)]
    logits = np.full((len(rows), len(classes)), -np.inf)
    if len(rows):
        logits[:, columns] = logits_of(fitted, _safe_indexing(X, rows))
    return _HeldOut(
        fitted, columns, logits, np.searchsorted(classes, y[rows]), None if weight is None else weight[rows]
    )


def _together(folds: list[_HeldOut]) -> _HeldOut:
    weight = None if folds[0].weight is None else np.concatenate([fold.weight for fold in folds])
    logits, codes = (np.concatenate([fold[i] for fold in folds]) for i in (2, 3))
    return _HeldOut(None, folds[0].columns, logits, codes, weight)


def _fit_estimator(estimator: Any, X: Any, y: Any, weight: Any, rows: Any) -> Any:
    options = {}
    if weight is not None and has_fit_parameter(estimator, "sample_weight"):
        options["sample_weight"] = weight[rows]
    return estimator.fit(_safe_indexing(X, rows), y[rows], **options)
