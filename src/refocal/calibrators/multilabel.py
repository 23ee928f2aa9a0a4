"""Labels that do not exclude one another: as many two-class problems as there are labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from refocal._arrays import SMALLEST, Array, Indices, Vector, as_array, is_dask, log_probabilities, namespace, to_numpy
from refocal._groups import LABEL, Groups
from refocal._validation import check_broadcast, check_integer, check_one_column, check_weight
from refocal.calibrators import settings as setting
from refocal.calibrators._arguments import classes_last
from refocal.calibrators._base import Calibrator
from refocal.calibrators._chunks import floating_dtype, in_chunks_of_rows
from refocal.calibrators.fitted import Fitted
from refocal.calibrators.focal import FocalCalibration, TemperatureScaling
from refocal.calibrators.group import fit_groups
from refocal.engine import Block, Dataset
from refocal.errors import DataError, LabelError, ShapeError, UnsupportedError
from refocal.maps.chain import Chain
from refocal.maps.curves import LabelLines
from refocal.rows.class_names import check_class_names, check_label_order
from refocal.rows.gate import check_same_order
from refocal.rows.labels import IgnoreIndex
from refocal.rows.marks import check_targets
from refocal.rows.predictions import CheckedRows
from refocal.rows.scores import column_names, stored_kind

if TYPE_CHECKING:
    from refocal.nn import CalibrationLayer


@dataclass(kw_only=True, eq=False, repr=False)
class MultiLabelCalibration(Calibrator):
    """Calibrated probabilities of several labels per row, each with its own score (log-odds).

    X and y are (N, K): one column per label, with ones where it applies. One calibrator of two classes is fitted on all
    columns together. `per_label=True` adds a slope and an intercept in log-odds for each label, shrunk towards the
    identity according to how similar the labels are, so that rare labels do not overfit.

    Parameters
    ----------
    method : str
        The calibrator of all labels, by its short name: "auto", "logistic", "beta", "ts", …
    per_label : bool
        Whether each label has its own slope and intercept.
    input : "log-odds" or "probabilities"
        What the columns hold: the inputs of the sigmoids, or their outputs.

    Attributes
    ----------
    classes_ : array
        The labels: the names of the columns of a DataFrame, or else numbers.
    slope_, intercept_ : array
        The correction of each label; 1 and 0 without `per_label`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(3000, 3))
    >>> y = rng.random((3000, 3)) < 1 / (1 + np.exp([0.0, 0.0, 1.0] - x))  # the third is rarer than its score says
    >>> shared, own = MultiLabelCalibration().fit(x, y), MultiLabelCalibration(per_label=True).fit(x, y)
    >>> (y.mean(axis=0) - shared.predict_proba(x).mean(axis=0)).round(2)
    array([ 0.08,  0.06, -0.14])
    >>> np.abs(y.mean(axis=0) - own.predict_proba(x).mean(axis=0)).round(2)
    array([0., 0., 0.])
    """

    _is_drawn = False

    method: str = "auto"
    per_label: bool = setting.flag(default=False)
    input: str = setting.option("log-odds", "probabilities")

    @property
    def has_class_axis(self) -> bool:
        """Labels always have an axis."""
        return True

    def n_chain_classes(self, n_columns: int) -> int:
        """Two: each of the columns is a label that applies or does not."""
        return 2

    def _layer_type(self) -> type[CalibrationLayer]:
        from refocal.nn import MultiLabelLayer

        return MultiLabelLayer

    @property
    def slope_(self) -> Vector:
        """The slope of each label in log-odds; 1 without `per_label`."""
        return np.asarray(self.chain_.find(LabelLines, "slope", np.ones(len(self.classes_))))

    @property
    def intercept_(self) -> Vector:
        """The intercept of each label in log-odds; 0 without `per_label`."""
        return np.asarray(self.chain_.find(LabelLines, "intercept", np.zeros(len(self.classes_))))

    def fit(
        self,
        X: Array,
        y: Array = None,
        sample_weight: Array = None,
        *,
        class_axis: int = -1,
        ignore_index: IgnoreIndex = None,
        progress: Callable[[float], None] | None = None,
        class_names: Sequence[str] | None = None,
    ) -> Self:
        """Fit on scores and ones and zeros, (N, K), or (N, K, H, W) with `class_axis=1`.

        Where `y` is `ignore_index` a label is unknown; the others of its row still count. Weights are (N,), or
        of the shape of `y`. The labels are called as the columns of a DataFrame are, unless `class_names` are given;
        where those of `y` have the same names, they must have the same order.
        """
        self._forget()
        name = f"{type(self).__name__}.fit"
        if isinstance(X, CheckedRows):
            expected = "arrays: fit(rows.values, rows.labels, rows.weight, ignore_index=-1) for MultiLabelPredictions"
            raise DataError("X", name, expected=expected, got=type(X).__name__)
        columns = self._two_columns(X, class_axis, name)
        shape = tuple(columns.shape[:-1])
        if class_names is not None:
            check_same_order(class_names, column_names(X), name)
        names = check_class_names(column_names(X) if class_names is None else class_names, shape[-1], name)
        check_label_order(column_names(X) if class_names is None else class_names, column_names(y), "y", name)
        target, weight, n_known = _targets(y, sample_weight, shape, class_axis, ignore_index, name)
        shared = TemperatureScaling(input=stored_kind(self.input))
        two_classes = self._block_of(shared.dataset(namespace(columns).reshape(columns, (-1, 2)), target, weight))
        # The rows of the fit are the labels of each given row, without those of weight 0.
        used = slice(None) if weight is None else np.flatnonzero(weight)
        rows = Block(
            two_classes.logits,
            two_classes.labels,
            two_classes.weight,
            two_classes.groups,
            input=self.input,
            floor=two_classes.floor,
            classes=np.arange(shape[-1]) if names is None else np.array(names),
            label_of_row=np.tile(np.arange(shape[-1]), len(target) // shape[-1])[used],
        )
        super().fit(rows, progress=progress)
        self.fit_report_["n_samples"] = n_known
        self.fit_report_["n_rows"] = math.prod(shape[:-1])
        _check_feature_names(self, X, reset=True)
        return self

    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> Fitted:
        """Fit on rows of two classes, one for each label of each row of `X`; `classes` are the labels."""
        from refocal.calibrators.registry import named

        rows = self._block_of(dataset)
        labels = dataset.classes
        if labels is None:
            raise UnsupportedError(f"{type(self).__name__} is fitted on arrays (N, K), not on rows.")
        # A label applies or does not: to the calibrator of all, rows are of two classes, which have no names.
        of_all = rows.with_classes(None)
        shared = named(self.method, "method", type(self).__name__)._fit(of_all, progress)
        notes = {**shared.notes, "n_labels": len(labels)}
        if not self.per_label:
            return Fitted(shared.chain, notes=notes)
        # The labels are groups of rows.
        groups = fit_groups(rows, shared.chain, {"label": to_numpy(rows.label_of_row)})
        # A label that is unknown in all rows has no line of its own: the identity.
        slope, intercept = groups.lines["label"].of(np.arange(len(labels)))
        chain = Chain((*shared.chain.steps, LabelLines(slope, intercept)))
        return Fitted(chain, notes=notes | {"after": groups.after, "deviation": groups.deviations["label"]})

    @classmethod
    def from_training(
        cls, gamma: float, *, n_labels: int, alpha: float | Sequence[float] = 0.5, label_smoothing: float = 0.0
    ) -> Self:
        """A calibrator made of the settings of the training loss alone, sigmoid focal loss, without any rows.

        `alpha` is one number, or one for each label; 0.5 is none. See `FocalCalibration.from_training` for when that is
        enough, and docs/guide/focal-loss.md for which loss other libraries mean.

        >>> detector = MultiLabelCalibration.from_training(gamma=2.0, alpha=0.25, n_labels=3)
        >>> detector.predict_proba([[-0.4, 0.0, 0.4]]).round(2)
        array([[0.51, 0.75, 0.9 ]])
        """
        name = f"{cls.__name__}.from_training"
        size = check_integer(n_labels, "n_labels", name)
        shares = check_broadcast(alpha, "alpha", name, like=np.zeros(size), above=0.0, below=1.0)
        shared = FocalCalibration.from_training(gamma, label_smoothing=label_smoothing, n_classes=2)
        lines = LabelLines(np.ones(size), np.broadcast_to(np.log1p(-shares) - np.log(shares), (size,)).copy())
        steps = (*shared.chain_.steps[:1], lines, *shared.chain_.steps[1:])  # smoothing is the last to be undone
        made = cls()
        made._set_fitted(Fitted(Chain(steps)), np.arange(size), {**shared.fit_report_, "n_labels": size})
        return made

    def predict_log_proba(self, X: Array, *, class_axis: int = -1) -> Array:
        """The logarithm of the probability of each label, of the shape of `X`; for a Dask array computed lazily."""
        check_is_fitted(self)
        name = f"{type(self).__name__}.predict_log_proba"
        self._check_names(X, name)
        if is_dask(X):
            values = in_chunks_of_rows(X)
            dtype = floating_dtype(values)
            meta = np.empty((0,) * values.ndim, dtype)
            predict = partial(self._log_proba, class_axis=class_axis, function=name)
            return values.map_blocks(predict, dtype=dtype, meta=meta)
        return self._log_proba(X, class_axis, name)

    def _log_proba(self, X: Array, class_axis: int, function: str) -> Array:
        """The logarithms of the probabilities of rows in memory, whose names were checked."""
        columns = self._two_columns(X, class_axis, function)
        logits = log_probabilities(columns, SMALLEST) if self.input == "probabilities" else columns
        log_p = self.chain_.log_probabilities(logits, row_axes=2)[..., 1]
        return namespace(log_p).moveaxis(log_p, -1, class_axis)

    def predict_proba(self, X: Array, *, class_axis: int = -1, out: NDArray[Any] | None = None) -> Array:
        """The probability of each label, of the shape of `X`; written into `out`, if it is given."""
        return self._proba_by_log(X, out, class_axis=class_axis)

    def predict(self, X: Array, *, class_axis: int = -1) -> Array:
        """1 for each label whose probability is above a half, else 0."""
        log_p = self.predict_log_proba(X, class_axis=class_axis)
        xp = namespace(log_p)
        return xp.astype(log_p > math.log(0.5), xp.int64)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The share of rows of which every label is predicted, as in scikit-learn; `y` are ones and zeros, as in a fit.

        Weights are (N,).
        """
        check_is_fitted(self)
        function = f"{type(self).__name__}.score"
        predicted = to_numpy(self.predict(X))
        check_label_order(column_names(X), column_names(y), "y", function)
        target, _, _ = _targets(y, None, predicted.shape, -1, None, function)
        is_right = (predicted == target.reshape(predicted.shape)).all(axis=-1)
        weight = None if sample_weight is None else check_weight(sample_weight, is_right.shape, function)
        return float(np.average(is_right.reshape(-1), weights=weight))

    def log_proba_in_groups(self, logits: Array, groups: Groups) -> Array:
        """Log-probabilities (N, 2) of checked logits of two classes, each row for the label given with it."""
        labels = groups[LABEL]
        place = {str(name): i for i, name in enumerate(self.classes_)}
        strangers = sorted(set(labels.tolist()) - place.keys())
        if strangers:
            name = f"{type(self).__name__}.predict_proba"
            expected = "of those that the calibrator was fitted on"
            raise ShapeError("labels", name, expected=expected, got=repr(strangers[0]))
        label_of_row = np.array([place[name] for name in labels.tolist()])
        steps = tuple(
            LabelLines(step.slope[label_of_row], step.intercept[label_of_row]) if isinstance(step, LabelLines) else step
            for step in self.chain_.steps
        )
        return Chain(steps).log_probabilities(to_numpy(logits)[None], row_axes=2)[0]

    @property
    def title(self) -> str:
        """The method in words."""
        from refocal.calibrators.registry import NAMED

        return f"{NAMED[self.method].title}{' with a line for each label' if self.per_label else ''}"

    def _two_columns(self, X: Array, class_axis: int, function: str) -> Array:
        """Scores (..., K, 2): 0 and the log-odds of each label, or the probabilities of its absence and presence."""
        if isinstance(X, CheckedRows):
            expected = "arrays: rows.values for MultiLabelPredictions"
            raise DataError("X", function, expected=expected, got=type(X).__name__)
        values = as_array(classes_last(X, class_axis, function), "X", function)
        known = getattr(self, "n_features_in_", None)
        if values.ndim < 2 or 0 in values.shape or (known is not None and values.shape[-1] != known):
            columns = "one column per label" if known is None else f"{known} columns, as many as there are labels"
            expected = f"two-dimensional, one row per sample and {columns}"
            raise ShapeError("X", function, expected=expected, got=f"shape {tuple(values.shape)}")
        return check_one_column(values, self.input, "X", function)


def _targets(
    y: Any, sample_weight: Any, shape: tuple[int, ...], class_axis: int, ignore_index: IgnoreIndex, function: str
) -> tuple[Indices, Vector | None, int]:
    """Zeros and ones and weights, flat, and how many count; what is not known counts as 0 with a weight of 0."""
    if y is None:
        raise LabelError("y", function, expected="given: ones and zeros, one column per label", got="None")
    labels = classes_last(as_array(y, "y", function), class_axis, function)
    target, known = check_targets(labels, shape, ignore_index, "y", function)
    target = np.where(known, target, 0).reshape(-1)
    n_known = int(np.count_nonzero(known))
    if sample_weight is None:
        return target, None if n_known == known.size else known.astype(np.float64).reshape(-1), n_known
    given = as_array(sample_weight, "sample_weight", function)
    if given.ndim == len(shape):
        weight = check_weight(classes_last(given, class_axis, function), shape, function).reshape(shape)
    else:
        weight = check_weight(given, shape[:-1], function).reshape((*shape[:-1], 1))
    counted = known * weight
    return target, counted.reshape(-1), int(np.count_nonzero(counted))
