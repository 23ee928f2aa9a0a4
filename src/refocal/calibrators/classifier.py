"""A whole classifier with calibrated probabilities: any scikit-learn classifier and any calibrator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score
from sklearn.model_selection import check_cv
from sklearn.svm import LinearSVC
from sklearn.utils import get_tags, indexable
from sklearn.utils._indexing import _safe_indexing
from sklearn.utils.metadata_routing import (
    MetadataRequest,
    MetadataRouter,
    MethodMapping,
    get_routing_for_object,
    process_routing,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params, check_is_fitted, column_or_1d, has_fit_parameter

from refocal._arrays import (
    Array,
    Indices,
    Vector,
    as_floating,
    in_library_of,
    masked_error,
    namespace,
    to_numpy,
)
from refocal._groups import Groups, as_groups
from refocal._validation import check_weight
from refocal.calibrators._base import Calibrator
from refocal.errors import InputWarning, LabelError, ParameterError, ShapeError, UnsupportedError, warn
from refocal.rows.scores import floor_of_zeros

NAME = "CalibratedClassifier"
# Below the machine epsilon a probability only means "none": a forest's 0 where it saw no example, or the 10^-1000000
# of naive Bayes, of which a few in wrong rows would lead to absurd temperatures.
SMALLEST = float(np.finfo(np.float64).eps)


@dataclass(eq=False, repr=False)
class CalibratedClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Any classifier with probabilities calibrated on data it was not trained on; a drop-in for CalibratedClassifierCV.

    Parameters
    ----------
    estimator : classifier, optional
        Logits come from its `decision_function`, else its `predict_log_proba`, else its `predict_proba`.
        Probabilities and their logarithms are at least half the smallest nonzero one of the held-out rows, as with
        `input="probabilities"`. By default a linear support vector machine.
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
        the out-of-fold logits, after one classifier fitted on all data. "auto": False where the estimator is fitted or
        there are fewer than 1,000 rows, of which a fold alone has too few to calibrate on; else True.

    Attributes
    ----------
    classes_ : array
        The classes in sorted order, one for each column of probabilities.
    calibrated_classifiers_ : list of CalibratedMember
        One for each fold of an ensemble, else one: its fitted `estimator`, its fitted `calibrator`, which has the same
        `classes_`, and its own `predict_proba`.

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

    A correction for each group of rows:

    >>> from refocal import GroupCalibration
    >>> site = np.where(X[:, 20] > 8.0, "north", "south")
    >>> by_site = CalibratedClassifier(GaussianNB(), GroupCalibration(method="ts"), cv=3).fit(X, y == 3, groups=site)
    >>> by_site.predict_proba(X, groups=site).shape
    (1797, 2)
    """

    estimator: Any = None
    calibrator: Calibrator | str | None = None
    _: KW_ONLY
    cv: Any = None
    n_jobs: int | None = None
    ensemble: bool | str = "auto"

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> Self:
        """Fit classifier and calibrator, or the calibrator alone where the classifier is fitted.

        `fit_params` go to the estimator's `fit`, and `groups` (an array or a data frame) to a `GroupCalibration`, else
        to the splitter. With scikit-learn's metadata routing each goes where it was requested; `GroupCalibration` asks
        for `groups`, unless `set_fit_request` and `set_predict_proba_request` give them another name. The calibrator is
        always weighted.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        estimator = self._estimator()
        calibrator = self._new_calibrator()
        is_fitted = self._is_fitted(estimator)
        if np.ma.is_masked(y):
            raise masked_error(y, "y", f"{NAME}.fit")
        check_classification_targets(y)
        X, y = indexable(X, y)
        rows = checked_rows(X, column_or_1d(y, warn=True), sample_weight, estimator if is_fitted else None)
        given = self._route(estimator, calibrator, is_fitted, sample_weight, fit_params)
        if calibrator.needs_groups:
            rows = rows._replace(groups=as_groups(given.calibrator.get("groups"), len(rows.codes), f"{NAME}.fit"))
        # From how many rows on each of five folds has enough to fit a calibrator of its own
        # (benchmarks/results/arena.md).
        ensemble_rows = 1_000
        if self.ensemble == "auto":
            is_ensemble = not is_fitted and len(rows.codes) >= ensemble_rows
        else:
            is_ensemble = bool(self.ensemble) and self.cv != "prefit"
        parallel = Parallel(n_jobs=self.n_jobs)
        splits = [(None, np.arange(len(rows.codes)))]
        if is_ensemble or not is_fitted:
            splits = self._splits(rows, given.splitter, is_ensemble)
        folds = parallel(delayed(held_out)(estimator, rows, test, train, given.estimator) for train, test in splits)
        if is_ensemble:
            estimators = [fold.estimator for fold in folds]
            # A fold with labels of a single class cannot fit a calibrator; all folds together can.
            sources = [fold if fold.has_several_classes else together(folds) for fold in folds]
        else:
            estimators = [estimator if is_fitted else clone(estimator).fit(rows.X, rows.y, **given.estimator)]
            sources = [together(folds)]
        self.calibrated_classifiers_ = parallel(
            delayed(calibrate)(fitted, clone(calibrator), source, rows)
            for fitted, source in zip(estimators, sources, strict=True)
        )
        self.classes_ = in_library_of_rows(rows.names, X)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(estimators[0], name):
                setattr(self, name, getattr(estimators[0], name))
        return self

    def predict_proba(self, X: Any, **params: Any) -> Array:
        """Calibrated probabilities, one column for each of `classes_`: the mean over the members.

        `params` are the `groups` of the rows for a `GroupCalibration`, as in `fit`.
        """
        check_is_fitted(self)
        for_calibrator = self._route_prediction("predict_proba", params)
        total = sum(member.predict_proba(X, **for_calibrator) for member in self.calibrated_classifiers_)
        return total / namespace(total).sum(total, axis=1, keepdims=True)

    def predict_interval(self, X: Any) -> tuple[Array, Array]:
        """The least and the largest probabilities of Venn-Abers calibration, of the shape of `predict_proba`.

        They are means over the members: of several, as of an ensemble, they have no guarantee.
        """
        check_is_fitted(self)
        if not hasattr(self.calibrated_classifiers_[0].calibrator, "predict_interval"):
            name = type(self.calibrated_classifiers_[0].calibrator).__name__
            raise UnsupportedError(
                f"{NAME}.predict_interval takes a calibrator with one, VennAbersCalibration; not {name}."
            )
        bounds = [member.predict_interval(X) for member in self.calibrated_classifiers_]
        lower = sum(low for low, _ in bounds) / len(bounds)
        upper = sum(high for _, high in bounds) / len(bounds)
        return lower, upper

    def predict_log_proba(self, X: Any, **params: Any) -> Array:
        """The logarithms of `predict_proba`."""
        p = self.predict_proba(X, **params)
        return namespace(p).log(p)

    def predict(self, X: Any, **params: Any) -> Array:
        """The class of the largest probability."""
        p = self.predict_proba(X, **params)
        top = namespace(p).argmax(p, axis=1)
        return self.classes_[to_numpy(top) if isinstance(self.classes_, np.ndarray) else top]

    def score(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> float:
        """The accuracy of `predict`, whose `params` are those of `predict_proba`."""
        function = f"{NAME}.score"
        predicted = self.predict(X, **params)
        n_rows = len(predicted)
        if np.shape(y) not in ((n_rows,), (n_rows, 1)):
            hint = "; of one-hot labels take the argmax first" if np.ndim(y) > 1 else ""
            expected = f"of shape ({n_rows},), one label for each row of X{hint}"
            raise ShapeError("y", function, expected=expected, got=f"shape {np.shape(y)}")
        if sample_weight is not None:
            check_weight(sample_weight, (n_rows,), function)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    def get_metadata_routing(self) -> MetadataRouter:
        """How scikit-learn's metadata routing distributes the arguments of `fit` and of predictions."""
        router = MetadataRouter(owner=self).add_self_request(self)
        for callee, to in (("fit", {"estimator": self._estimator()}), ("split", {"splitter": self.cv})):
            router.add(**to, method_mapping=MethodMapping().add(caller="fit", callee=callee))
        calibrator = self._new_calibrator()
        if calibrator.needs_groups:
            mapping = MethodMapping().add(caller="fit", callee="fit")
            for caller in ("predict_proba", "predict_log_proba", "predict", "score"):
                mapping.add(caller=caller, callee="predict_proba")
            router.add(calibrator=_request_of(calibrator), method_mapping=mapping)
        return router

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
        responses = ("decision_function", "predict_log_proba", "predict_proba")
        if not any(hasattr(estimator, name) for name in responses):
            expected = f"a classifier with {', '.join(responses[:2])} or {responses[2]}"
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
        from refocal.calibrators.registry import named

        wanted = "auto" if self.calibrator is None else self.calibrator
        if isinstance(wanted, str):
            return named(wanted, "calibrator", NAME)
        if not isinstance(wanted, Calibrator):
            expected = "a calibrator of refocal, or the name of one"
            raise ParameterError("calibrator", NAME, expected=expected, got=repr(wanted))
        new: Calibrator = clone(wanted).set_params(input="logits")
        return new

    def _route(
        self, estimator: Any, calibrator: Calibrator, is_fitted: bool, sample_weight: Any, fit_params: dict[str, Any]
    ) -> Routed:
        """Which arguments of `fit` go where."""
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", sample_weight=sample_weight, **fit_params)
            for_calibrator = routed.calibrator.fit if calibrator.needs_groups else {}
            return Routed(routed.estimator.fit, routed.splitter.split, for_calibrator)
        groups = fit_params.pop("groups", None)
        of_groups = {} if groups is None else {"groups": groups}
        if calibrator.needs_groups and not is_fitted and self._splits_by_groups():
            raise UnsupportedError(
                f"{NAME}.fit has one argument 'groups', which {type(calibrator).__name__} takes, and so would the cv "
                f"{type(self.cv).__name__}. With scikit-learn's metadata routing (sklearn.set_config("
                "enable_metadata_routing=True)) each has its own: GroupCalibration().set_fit_request(groups='region')"
                ".set_predict_proba_request(groups='region'), then fit(X, y, groups=..., region=...)."
            )
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
        if calibrator.needs_groups:
            return Routed(fit_params, {}, of_groups)
        return Routed(fit_params, of_groups, {})

    def _splits_by_groups(self) -> bool:
        """Whether the splitter asks for groups, as GroupKFold does."""
        return bool(get_routing_for_object(self.cv).consumes("split", ["groups"]))

    def _route_prediction(self, function: str, params: dict[str, Any]) -> Mapping[str, Any]:
        """The arguments of a prediction that go to the calibrator."""
        calibrator = self.calibrated_classifiers_[0].calibrator
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, function, **params)
            return routed.calibrator.predict_proba if calibrator.needs_groups else {}
        known = {"groups"} if calibrator.needs_groups else set()
        if unknown := sorted(params.keys() - known):
            expected = f"left out, unless the calibrator is a GroupCalibration; this one is {type(calibrator).__name__}"
            if calibrator.needs_groups:
                expected = "left out: a prediction takes X and groups"
            raise ParameterError(unknown[0], f"{NAME}.{function}", expected=expected, got="an argument of that name")
        return params

    def _splits(self, rows: Data, for_splitter: Mapping[str, Any], is_ensemble: bool) -> list[tuple[Any, Indices]]:
        """Training and held-out rows of each fold, as indices."""
        labels = to_numpy(rows.y)
        every = np.arange(len(rows.codes))
        cv = check_cv(self.cv, labels, classifier=True)
        # A fold may be given by indices or by a mask.
        pairs = cv.split(rows.X, labels, **for_splitter)
        splits = [(every[np.asarray(train)], every[np.asarray(test)]) for train, test in pairs]
        is_chosen = self.cv is None or isinstance(self.cv, int) or hasattr(self.cv, "split")
        held_out = np.bincount(np.concatenate([rows.codes[test] for _, test in splits]))
        rarest = int(held_out[np.unique(rows.codes)].min())
        if is_ensemble and is_chosen and rarest < len(splits):
            expected = f"of at most {rarest} folds, the number of rows of the rarest class; or ensemble=False"
            raise ParameterError("cv", NAME, expected=expected, got=f"{len(splits)}")
        return splits


class CalibratedMember(NamedTuple):
    """A fitted classifier and its calibrator, for all classes; log-probabilities are raised to `floor`."""

    estimator: Any
    calibrator: Calibrator
    classes: NDArray[Any]
    floor: float

    def predict_proba(self, X: Any, **groups: Any) -> Array:
        """Calibrated probabilities; a class that the classifier never saw has none."""
        logits = _in_columns(logits_of(self.estimator, X), self.estimator, self.classes)
        return self.calibrator.predict_proba(_raise(logits, self.floor), **groups)

    def predict_interval(self, X: Any) -> tuple[Array, Array]:
        """The bounds of a calibrator that has them."""
        logits = _in_columns(logits_of(self.estimator, X), self.estimator, self.classes)
        bounds: tuple[Array, Array] = self.calibrator.predict_interval(_raise(logits, self.floor))
        return bounds


class Routed(NamedTuple):
    """The arguments of the estimator's `fit`, of the splitter, and of the calibrator's `fit`."""

    estimator: Mapping[str, Any]
    splitter: Mapping[str, Any]
    calibrator: Mapping[str, Any]


class HeldOut(NamedTuple):
    """Scores of a classifier on rows it was not trained on; -inf for classes that it never saw."""

    estimator: Any
    logits: Array
    codes: Indices
    weight: Vector | None
    groups: Groups

    @property
    def has_several_classes(self) -> bool:
        """Whether two classes or more have rows of a weight above 0."""
        counted = self.codes if self.weight is None else self.codes[self.weight > 0.0]
        return len(np.unique(counted)) > 1


class Data(NamedTuple):
    """The data of a fit: `y` and sorted `classes` as the estimator sees them, `codes` the positions among them."""

    X: Any
    y: Any
    codes: Indices
    classes: NDArray[Any]
    names: NDArray[Any]
    weight: Vector | None
    groups: Groups
    """Those of the calibrator, none where it takes none."""


def _request_of(calibrator: Calibrator) -> MetadataRequest:
    """What a calibrator of groups asks for; its weights are those of the whole, whatever it says itself."""
    request = get_routing_for_object(calibrator)
    request.fit.add_request(param="sample_weight", alias=False)
    return request


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
    classes = to_numpy(estimator.classes_)
    got = None
    if scores.shape[1] != len(classes):
        got = f"{scores.shape[1]} columns for {len(classes)} classes"
    elif len(classes) == 3 and hasattr(estimator, "decision_function") and hasattr(estimator, "predict"):
        s = to_numpy(scores)
        predicted = to_numpy(estimator.predict(X))
        a, b, c = (s > 0.0).T.astype(int)  # 0 wins over 1, 0 over 2, 1 over 2
        votes = np.stack([a + b, 1 - a + c, 2 - b - c], axis=1)
        by_class, by_pair = (np.mean(classes[np.argmax(by, axis=1)] == predicted) for by in (s, votes))
        if by_pair > by_class:
            got = f"scores whose largest is the predicted class in {by_class:.0%} of the rows"
    if got is not None:
        expected = "a classifier with a score for each class, not for each pair: decision_function_shape='ovr'"
        raise ParameterError("estimator", NAME, expected=expected, got=f"{type(estimator).__name__} with {got}")


def checked_rows(X: Any, y: Any, sample_weight: Any, fitted: Any) -> Data:
    """Checked data; the classes are those of a fitted classifier, else those of the labels, in sorted order."""
    function = f"{NAME}.fit"
    labels = to_numpy(y)
    present = np.unique(labels)
    classes = present if fitted is None else np.unique(to_numpy(_classes_of(fitted)))
    strangers = np.setdiff1d(present, classes)
    if len(strangers):
        raise LabelError("y", function, expected="of the estimator's classes", got=repr(strangers.tolist()[0]))
    if len(present) < 2:
        got = f"only one class, {present.tolist()[0]!r}" if len(present) else "no labels"
        raise LabelError("y", function, expected="of at least two classes", got=got)
    weight = None if sample_weight is None else check_weight(sample_weight, (len(labels),), function)
    codes = np.searchsorted(classes, labels)
    names = classes
    if fitted is None and _dispatches(X) and not _dispatches(y):
        # scikit-learn computes in the library of X, which has no text
        y = in_library_of_rows(codes, X)
        classes = np.arange(len(classes))
    return Data(X, y, codes, classes, names, weight, groups={})


def _classes_of(fitted: Any) -> Any:
    if not hasattr(fitted, "classes_"):
        raise ParameterError("estimator", NAME, expected="a classifier, with classes_ once fitted", got=repr(fitted))
    return fitted.classes_


def held_out(estimator: Any, rows: Data, test: Indices, train: Indices | None, params: Mapping[str, Any]) -> HeldOut:
    """The scores of a classifier on some rows; if other rows are given, it is fitted on them first."""
    if train is not None:
        own = _check_method_params(rows.X, params, indices=train)
        estimator = clone(estimator).fit(_safe_indexing(rows.X, train), _safe_indexing(rows.y, train), **own)
    # A class that was missing in training has no logit, so its rows cannot calibrate.
    test = test[np.isin(rows.classes, to_numpy(_classes_of(estimator)))[rows.codes[test]]]
    logits: Array = np.empty((0, len(rows.classes)))
    if len(test):
        X = _safe_indexing(rows.X, test)
        scores = logits_of(estimator, X)
        _check_columns(estimator, X, scores)
        logits = _in_columns(scores, estimator, rows.classes)
    weight = None if rows.weight is None else rows.weight[test]
    groups = {name: column[test] for name, column in rows.groups.items()}
    return HeldOut(estimator, logits, rows.codes[test], weight, groups)


def together(folds: list[HeldOut]) -> HeldOut:
    """The rows of all folds."""
    some = [fold for fold in folds if len(fold.codes)]
    weight = None if some[0].weight is None else np.concatenate([fold.weight for fold in some])
    logits = namespace(some[0].logits).concat([fold.logits for fold in some])
    groups = {name: np.concatenate([fold.groups[name] for fold in some]) for name in some[0].groups}
    return HeldOut(None, logits, np.concatenate([fold.codes for fold in some]), weight, groups)


def _in_columns(logits: Array, fitted: Any, classes: NDArray[Any]) -> Array:
    """One column for each class, in their order, with -inf for those that the classifier never saw."""
    own = to_numpy(fitted.classes_).tolist()
    if own == classes.tolist():
        return logits
    column_of = {name: column for column, name in enumerate(own)}
    xp = namespace(logits)
    none = xp.full_like(logits[:, 0], -np.inf)
    columns = [logits[:, column_of[name]] if name in column_of else none for name in classes.tolist()]
    return xp.stack(columns, axis=1)


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


def calibrate(fitted: Any, calibrator: Calibrator, source: HeldOut, rows: Data) -> CalibratedMember:
    """A classifier with a calibrator fitted on held-out rows, which knows the names of the classes."""
    floor = -np.inf
    if not hasattr(fitted, "decision_function"):
        counted = source.logits
        if source.weight is not None:  # rows of weight 0 do not count
            counted = counted[in_library_of(counted, source.weight > 0.0)]
        floor = floor_of_zeros(counted, SMALLEST)
    scores = _raise(source.logits, floor)
    held_out_rows = calibrator.dataset(scores, source.codes, source.weight, groups=source.groups or None)
    named_rows = calibrator._block_of(held_out_rows).with_classes(_plain_names(rows.names))
    return CalibratedMember(fitted, calibrator.fit(named_rows), rows.classes, floor)


def _plain_names(names: NDArray[Any]) -> NDArray[Any]:
    """Names of classes in a form that can be written: text in place of objects and bytes."""
    if names.dtype.kind == "S":
        return np.char.decode(names, "utf-8")
    return np.array(names.tolist()) if names.dtype.kind == "O" else names


def _raise(logits: Array, floor: float) -> Array:
    """Logits raised to the floor, except for classes that a classifier never saw."""
    xp = namespace(logits)
    return logits if floor == -np.inf else xp.where(xp.isinf(logits), logits, xp.clip(logits, floor, None))
