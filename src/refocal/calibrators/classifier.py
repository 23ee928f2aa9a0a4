"""A whole classifier with calibrated probabilities: any scikit-learn classifier and any calibrator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.svm import LinearSVC
from sklearn.utils import get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, column_or_1d, has_fit_parameter

from refocal._arrays import Array, Indices, namespace, to_numpy
from refocal._validation import check_option
from refocal.calibrators._base import Calibrator
from refocal.calibrators._held_out import (
    NAME,
    Rows,
    calibrate,
    checked_rows,
    fit_fold,
    held_out,
    in_library_of_rows,
    together,
)
from refocal.errors import InputWarning, ParameterError, warn

RESPONSES = ("decision_function", "predict_log_proba", "predict_proba")


@dataclass(eq=False, repr=False)
class CalibratedClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Any classifier with probabilities calibrated on data it was not trained on; a drop-in for CalibratedClassifierCV.

    Parameters
    ----------
    estimator : classifier, optional
        Logits come from its `decision_function`, else its `predict_log_proba`, else its `predict_proba`.
        By default a linear support vector machine.
    calibrator : Calibrator or str, optional
        A calibrator or its short name, such as "ts"; scikit-learn's "sigmoid", "isotonic" and "temperature" are
        accepted too. By default `AutoCalibration()`.
    cv : int, splitter, iterable or "prefit", optional
        How to hold data out: by default five folds. Splits may be indices or boolean masks. With "prefit", or a
        `FrozenEstimator`, the estimator is fitted already, and all data given to `fit` calibrates it.
    n_jobs : int, optional
        How many folds are fitted at once.
    ensemble : bool or "auto"
        True: a classifier and a calibrator for each fold, whose probabilities are averaged. False: one calibrator on
        the out-of-fold logits, behind one classifier fitted on all data. "auto": True unless the estimator is fitted.

    Attributes
    ----------
    classes_ : array
        The classes, one for each column of probabilities.
    calibrated_classifiers_ : list of CalibratedMember
        One for each fold of an ensemble, else one: its fitted `estimator`, its fitted `calibrator` and its own
        `predict_proba`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_digits(return_X_y=True)
    >>> model = CalibratedClassifier(GaussianNB(), cv=3).fit(X, y)
    >>> model.predict_proba(X).shape
    (1797, 10)
    >>> [member.calibrator for member in model.calibrated_classifiers_]
    [AutoCalibration(), AutoCalibration(), AutoCalibration()]
    """

    estimator: Any = None
    calibrator: Calibrator | str | None = None
    _: KW_ONLY
    cv: Any = None
    n_jobs: int | None = None
    ensemble: bool | str = "auto"

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> Self:
        """Fit classifier and calibrator, or the calibrator alone where the classifier is fitted.

        `fit_params` go to the estimator's `fit`, and `groups` to the splitter; with scikit-learn's metadata routing
        each goes where it was requested. The calibrator is always weighted.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        estimator, calibrator = self._estimator(), self._new_calibrator()
        is_fitted = self._is_fitted(estimator)
        check_classification_targets(y)
        X, y = indexable(X, y)
        rows = checked_rows(X, column_or_1d(y, warn=True), sample_weight, estimator if is_fitted else None)
        for_estimator, for_splitter = self._route(estimator, is_fitted, sample_weight, fit_params)
        is_ensemble = not is_fitted if self.ensemble == "auto" else bool(self.ensemble) and self.cv != "prefit"
        parallel = Parallel(n_jobs=self.n_jobs)
        if is_fitted and not is_ensemble:
            folds = [held_out(estimator, rows, np.arange(len(rows.codes)))]
        else:
            splits = self._splits(rows, for_splitter, is_ensemble)
            folds = parallel(delayed(fit_fold)(clone(estimator), rows, for_estimator, *split) for split in splits)
        if is_ensemble:
            estimators = [fold.estimator for fold in folds]
            # A fold with labels of a single class cannot fit a calibrator; all folds together can.
            sources = [fold if len(np.unique(fold.codes)) > 1 else together(folds) for fold in folds]
        else:
            estimators = [estimator if is_fitted else clone(estimator).fit(rows.X, rows.y, **for_estimator)]
            sources = [together(folds)]
        self.calibrated_classifiers_ = parallel(
            delayed(calibrate)(fitted, clone(calibrator), source, rows.classes)
            for fitted, source in zip(estimators, sources, strict=True)
        )
        self.classes_ = in_library_of_rows(rows.names, X)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(estimators[0], name):
                setattr(self, name, getattr(estimators[0], name))
        return self

    def predict_proba(self, X: Any) -> Array:
        """Calibrated probabilities, one column for each of `classes_`: the mean over the members."""
        check_is_fitted(self)
        total = sum(member.predict_proba(X) for member in self.calibrated_classifiers_)
        return total / namespace(total).sum(total, axis=1, keepdims=True)

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithms of `predict_proba`."""
        p = self.predict_proba(X)
        return namespace(p).log(p)

    def predict(self, X: Any) -> Array:
        """The class of the largest probability."""
        p = self.predict_proba(X)
        top = namespace(p).argmax(p, axis=1)
        return self.classes_[to_numpy(top) if isinstance(self.classes_, np.ndarray) else top]

    def get_metadata_routing(self) -> MetadataRouter:
        """How scikit-learn's metadata routing distributes the arguments of `fit`."""
        mapping = MethodMapping
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(estimator=self._estimator(), method_mapping=mapping().add(caller="fit", callee="fit"))
            .add(splitter=self.cv, method_mapping=mapping().add(caller="fit", callee="split"))
        )

    def __sklearn_tags__(self) -> Any:
        """scikit-learn's tags: the input that the inner classifier accepts."""
        tags = super().__sklearn_tags__()
        inner = get_tags(self._estimator())
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.pairwise = inner.input_tags.pairwise
        return tags

    def _estimator(self) -> Any:
        if self.estimator is not None:
            return self.estimator
        default = LinearSVC(random_state=0)
        return default.set_fit_request(sample_weight=True) if get_config()["enable_metadata_routing"] else default

    def _is_fitted(self, estimator: Any) -> bool:
        if not any(hasattr(estimator, name) for name in RESPONSES):
            expected = f"a classifier with {', '.join(RESPONSES[:2])} or {RESPONSES[2]}"
            raise ParameterError("estimator", NAME, expected=expected, got=repr(estimator))
        if isinstance(self.cv, str) and self.cv != "prefit":
            expected = "an int, a splitter, an iterable of splits or 'prefit'"
            raise ParameterError("cv", NAME, expected=expected, got=repr(self.cv))
        if self.ensemble not in (True, False, "auto"):
            raise ParameterError("ensemble", NAME, expected="True, False or 'auto'", got=repr(self.ensemble))
        is_fitted = self.cv == "prefit" or isinstance(estimator, FrozenEstimator)
        if is_fitted:
            check_is_fitted(estimator)
        return is_fitted

    def _new_calibrator(self) -> Calibrator:
        from refocal.calibrators.registry import NAMED, OTHER_NAMES, make

        wanted = "auto" if self.calibrator is None else self.calibrator
        if isinstance(wanted, str):
            check_option(wanted, (*NAMED, *OTHER_NAMES), "calibrator", NAME)
            return make(wanted)
        if not isinstance(wanted, Calibrator):
            expected = "a calibrator of refocal, or the name of one"
            raise ParameterError("calibrator", NAME, expected=expected, got=repr(wanted))
        new: Calibrator = clone(wanted).set_params(input="logits")
        return new

    def _route(
        self, estimator: Any, is_fitted: bool, sample_weight: Any, fit_params: dict[str, Any]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The arguments of the estimator's `fit`, and those of the splitter."""
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", sample_weight=sample_weight, **fit_params)
            return routed.estimator.fit, routed.splitter.split
        groups = fit_params.pop("groups", None)
        if sample_weight is not None and has_fit_parameter(estimator, "sample_weight"):
            fit_params["sample_weight"] = sample_weight
        elif sample_weight is not None and not is_fitted:
            name = type(estimator).__name__
            warn(
                f"{NAME}.fit passes the sample_weight to the calibrator alone, since {name}.fit has no such argument: "
                f"{name} is fitted without weights. To a step of a pipeline they go by its name, as in "
                "fit(X, y, sample_weight=w, step__sample_weight=w), or by scikit-learn's metadata routing.",
                InputWarning,
            )
        return fit_params, {} if groups is None else {"groups": groups}

    def _splits(self, rows: Rows, for_splitter: Mapping[str, Any], is_ensemble: bool) -> list[tuple[Indices, Indices]]:
        """Training and held-out rows of each fold, as indices."""
        labels, every = to_numpy(rows.y), np.arange(len(rows.codes))
        cv = check_cv(self.cv, labels, classifier=True)
        # A fold may be given by indices or by a mask.
        splits = [
            (every[np.asarray(train)], every[np.asarray(test)])
            for train, test in cv.split(rows.X, labels, **for_splitter)
        ]
        is_chosen = self.cv is None or isinstance(self.cv, int) or hasattr(self.cv, "split")
        held_out = np.bincount(np.concatenate([rows.codes[test] for _, test in splits]))
        rarest = int(held_out[np.unique(rows.codes)].min())
        if is_ensemble and is_chosen and rarest < len(splits):
            expected = f"of at most {rarest} folds, the number of rows of the rarest class; or ensemble=False"
            raise ParameterError("cv", NAME, expected=expected, got=f"{len(splits)}")
        return splits
