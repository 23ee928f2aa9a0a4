"""What all calibrators share: input checks, the scikit-learn interface, saving."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from refocal._arrays import (
    SMALLEST,
    Array,
    as_array,
    as_floating,
    for_fitting,
    is_dask,
    is_plain_tensor,
    is_zarr_array,
    log_probabilities,
    lowest_log_probability,
    namespace,
    to_numpy,
    two_columns,
)
from refocal._groups import Groups
from refocal._label_checks import IgnoreIndex, without_ignored
from refocal._validation import (
    INPUTS,
    check_one_column,
    check_option,
    check_out,
    check_probabilities,
    check_rows,
    check_weight,
    is_same_memory,
    sum_of_parts,
    warn_of_sums,
)
from refocal.calibrators._description import fit_warnings, html_of_fit
from refocal.calibrators._fitted import Fitted, report_of
from refocal.calibrators._labels import column_names, encode
from refocal.engine import Block, Dataset
from refocal.engine.apply import apply, probabilities_of
from refocal.engine.dataset import weight_unit
from refocal.errors import DataError, FitWarning, ParameterError, ShapeError, UnsupportedError, warn
from refocal.maps.chain import Chain
from refocal.maps.steps import Floor

if TYPE_CHECKING:
    import torch

    from refocal.nn import CalibrationLayer


# Memory-mapped logits of at least this many bytes are processed in blocks.
LARGE_MAP = 1 << 30
# The weight, in rows, that some calibrators spread over all classes so that no probability is 0.
FLOOR = 1e-3


class Calibrator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base class: fits on logits (N, C) and labels (N,), predicts probabilities of the same array kind and device.

    With `input="probabilities"` the rows hold probabilities instead of logits; a 0 counts as half the smallest nonzero
    probability of the fit, since it only means that the probability was small, and so does every smaller one of a new
    row: none is more certain than those that the fit has seen, and the order of zeros and others stays. Logits have no
    such bound. For two classes one number per row is enough, (N,): the probability of `classes_[1]`, or its log-odds,
    which is what a single logit is and what `input="log-odds"` requires. Predictions always have two columns.

    Column j belongs to `classes_[j]`. Labels are integers from 0 to C-1, some of which may be absent, or names with as
    many distinct values as there are columns, assigned in sorted order as in scikit-learn.

    >>> import numpy as np
    >>> from refocal import TemperatureScaling
    >>> isinstance(TemperatureScaling(), Calibrator)
    True
    >>> logits, labels = np.array([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0]]), ["cat", "dog", "dog"]
    >>> fitted = TemperatureScaling().fit(logits, labels)
    >>> fitted.classes_.tolist(), fitted.predict([[1.0, 3.0]]).tolist()
    (['cat', 'dog'], ['dog'])
    >>> one_column = TemperatureScaling(input="probabilities").fit([0.9, 0.8, 0.2], [1, 0, 0])
    >>> one_column.predict_proba([0.7]).shape
    (1, 2)
    """

    input: str
    chain_: Chain
    row_axes: ClassVar[int] = 1
    """The axes of a row of scores: 1, the classes; or 2, the labels of a multi-label model and their classes."""

    needs_groups: ClassVar[bool] = False
    """Whether `fit` and the predicting methods also take the groups of the rows."""

    chooses: ClassVar[bool] = False
    """Whether its map is one of several, chosen by the rows of the fit."""

    def fit(
        self,
        X: Array,
        y: Array = None,
        sample_weight: Array = None,
        *,
        class_axis: int = -1,
        ignore_index: IgnoreIndex = None,
        progress: Callable[[float], None] | None = None,
    ) -> Self:
        """Fit on logits `X` and labels `y`. If it fails, the calibrator is left unfitted.

        A weight is a number of equal rows; those of a mean below 1, such as shares, are scaled to a mean of 1.
        `class_axis=1` is for images (N, C, H, W) with labels (N, H, W), here and in predictions. Rows whose label is
        `ignore_index`, or one of several, are left out, such as 255 in segmentation. `progress` is called from time to
        time with the share of the work that is done.

        `X` may be a `refocal.engine.Dataset`, which includes labels and weights. Rows that do not fit into memory are
        opened by `refocal.io`, or given as Dask or Zarr arrays; see docs/scale.md.
        """
        self._forget()
        name = f"{type(self).__name__}.fit"
        if class_axis != -1:
            X = classes_last(X, class_axis, name)
        if ignore_index is not None:
            if isinstance(X, Dataset) or is_dask(X):
                raise ParameterError("ignore_index", name, expected="given where the rows are opened", got="it here")
            names = ("X", "y", "sample_weight")
            X, y, sample_weight = without_ignored((X, y, sample_weight), ignore_index, names, name)
        for setting, each in getattr(self, "__dataclass_fields__", {}).items():
            if "check" in each.metadata:
                each.metadata["check"](getattr(self, setting), setting, type(self).__name__)
        dataset = self.dataset(X, y, sample_weight)
        found = self._fit(dataset, progress)
        report = report_of(found, dataset)
        if dataset.floor is not None:  # zeros of new rows are treated like those of the fit, in every precision
            found = found._replace(chain=Chain((Floor(dataset.floor), *found.chain.steps)))
        if dataset.in_memory and X is not dataset:
            _check_feature_names(self, X, reset=True)
        self._set_fitted(found, np.arange(dataset.n_classes) if dataset.classes is None else dataset.classes, report)
        for message in fit_warnings(report, found.chain):
            warn(f"{name}: {message}.", FitWarning)
        return self

    def _forget(self) -> None:
        """Delete what an earlier fit has found."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _set_fitted(self, found: Fitted, classes: NDArray[Any], report: dict[str, Any]) -> None:
        """Set all fitted attributes together, once nothing can fail or be interrupted any more."""
        search = {} if found.solution is None else {"solution_": found.solution, "path_": found.path}
        self.__dict__.update(
            chain_=found.chain, classes_=classes, n_features_in_=len(classes), fit_report_=report, **search
        )

    @property
    def has_class_axis(self) -> bool:
        """Whether the input has an axis of classes or labels."""
        return self.input != "log-odds" or self.row_axes == 2

    def __sklearn_is_fitted__(self) -> bool:
        """A calibrator is fitted once it has a chain."""
        return hasattr(self, "chain_")

    def dataset(self, X: Array, y: Array = None, sample_weight: Array = None, *, is_checked: bool = False) -> Dataset:
        """Checked data: several calibrators fitted on one Dataset share their passes over the rows.

        Logits that were checked before, such as those of `Predictions`, are taken as they are with `is_checked`.

        >>> import numpy as np
        >>> from refocal import FocalTemperatureScaling, TemperatureScaling
        >>> rows = TemperatureScaling().dataset(np.array([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0]]), [0, 1, 1])
        >>> fitted = [TemperatureScaling().fit(rows), FocalTemperatureScaling(objective="nll").fit(rows)]
        >>> rows.n_rows, fitted[0].temperature_ == rows.memo["temperature"].temperature
        (3, True)
        """
        function = f"{type(self).__name__}.fit"
        if isinstance(X, Dataset):
            if X.input != self.input:
                expected = f"rows of {self.input}, as this calibrator takes"
                raise DataError("X", function, expected=expected, got=f"rows of {X.input}")
            return X
        is_large_map = isinstance(X, np.memmap) and X.ndim == 2 and X.nbytes >= LARGE_MAP
        if is_large_map or is_dask(X) or is_zarr_array(X):
            from refocal.io.datasets import rows_of

            return rows_of(X, y, sample_weight, input=self.input)
        logits = X if is_checked else self._logits(X, function)
        if not isinstance(logits, np.ndarray):
            logits = for_fitting(logits)
        labels, classes = encode(y, logits, function, column_names(X) if hasattr(X, "columns") else None)
        weight = None
        if sample_weight is not None:
            weight = check_weight(sample_weight, tuple(labels.shape), function)
            weight = weight * weight_unit(float(weight.sum()), int(np.count_nonzero(weight)))
        logits = namespace(logits).reshape(logits, (-1, logits.shape[-1]))
        labels = namespace(labels).reshape(labels, (-1,))
        floor = lowest_log_probability(logits) if self.input == "probabilities" else None
        block = Block(logits if floor is None else namespace(logits).clip(logits, floor, None), labels, weight)
        block.input, block.classes, block.floor = self.input, classes, floor
        return block

    def predict_log_proba(self, X: Array, *, class_axis: int = -1) -> Array:
        """Log-probabilities, accurate even where probabilities round to 0 or 1."""
        return self._predict("predict_log_proba", X, class_axis)

    def predict_proba(self, X: Array, *, class_axis: int = -1, out: NDArray[Any] | None = None) -> Array:
        """Probabilities, one column for each of `classes_`; for a Dask array they are computed lazily.

        For a NumPy array the result is written into `out`, if given.
        """
        return self._predict("predict_proba", X, class_axis, out)

    def _predict(self, method: str, X: Array, class_axis: int, out: NDArray[Any] | None = None) -> Array:
        """Probabilities, or their logarithms, by the name of the method."""
        name, log = f"{type(self).__name__}.{method}", method == "predict_log_proba"
        if out is not None:
            check_out(out, X, name)
            if is_same_memory(out, X):  # rows that are read once more would have been overwritten
                return filled(self._predict(method, X, class_axis), out)
        if class_axis != -1:
            last = getattr(self, method)(classes_last(X, class_axis, name))
            return filled(namespace(last).moveaxis(last, -1, class_axis), out)
        if self._is_plain(X) and not (log and isinstance(X, np.ndarray)):  # the checks below are part of the pass
            found = apply(self.chain_, X, out, log=log)
            if found is not None and not found.is_suspect:
                return found.probabilities
        check_is_fitted(self)
        if is_dask(X):
            return _by_chunk(getattr(self, method), X)
        _check_feature_names(self, X, reset=False)
        return filled(probabilities_of(self.chain_, self._logits(X, name), log=log), out)

    def _proba_by_log(self, X: Array, out: NDArray[Any] | None, **options: Any) -> Array:
        """The exponentials of `predict_log_proba` where that is all there is; written into `out`, if given."""
        if out is not None:
            check_out(out, X, f"{type(self).__name__}.predict_proba")
        log_p = self.predict_log_proba(X, **options)
        return filled(namespace(log_p).exp(log_p), out)

    def log_proba_in_groups(self, logits: Array, groups: Groups) -> Array:
        """Log-probabilities (N, C) of checked logits of rows of these groups."""
        return probabilities_of(self.chain_, logits, log=True)

    def predict(self, X: Array, *, class_axis: int = -1) -> Array:
        """The class of the largest probability."""
        X = classes_last(X, class_axis, f"{type(self).__name__}.predict")
        if is_dask(X):
            return _by_chunk(self.predict, X, self.classes_.dtype, drop_axis=X.ndim - 1)
        log_p = scores = self.predict_log_proba(X)
        if self.chain_.keeps_order:  # compare the scores themselves: two of them may round to the same probability
            scores = as_array(X, "X", "predict")
            scores = scores if scores.ndim == log_p.ndim else two_columns(scores, self.input)
        index = namespace(log_p).argmax(scores, axis=-1)
        if isinstance(index, np.ndarray) or not np.array_equal(self.classes_, np.arange(len(self.classes_))):
            return self.classes_[to_numpy(index)]
        return index

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted calibrator as JSON, whole or not at all; `refocal.load` reads it."""
        from refocal.calibrators.serialize import save

        save(self, path)

    def more_to_plain(self) -> dict[str, Any]:
        """What was fitted in addition to the chain, as plain values for JSON."""
        return {}

    def more_from_plain(self, data: dict[str, Any]) -> None:
        """Restore what `more_to_plain` returned."""

    def to_torch(self, *, class_axis: int = -1, dtype: torch.dtype | None = None) -> CalibrationLayer:
        """The fitted calibrator as a torch layer from logits to log-probabilities: `nn.Sequential(model, layer)`.

        `class_axis` has the classes, or the labels of a multi-label model. For two classes the layer also takes one
        number per row, (N,), as `predict_proba` does.
        """
        from refocal.nn import CalibrationLayer, MultiLabelLayer

        check_is_fitted(self)
        layer = CalibrationLayer if self.row_axes == 1 else MultiLabelLayer
        n_classes = int(self.n_features_in_)
        return layer(*self.chain_.steps, class_axis=class_axis, input=self.input, dtype=dtype, n_classes=n_classes)

    @abstractmethod
    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> Fitted:
        """Fit the chain; a calibrator that needs all rows in memory calls `_block_of(dataset)`."""

    def _block_of(self, dataset: Dataset) -> Block:
        """The single block of data in memory; data in blocks only provide sums over blocks."""
        if isinstance(dataset, Block):
            return dataset
        from refocal.calibrators.registry import kinds

        others = ", ".join(kinds(in_blocks=True))
        raise UnsupportedError(f"{type(self).__name__} needs all rows in memory. Those that do not: {others}.")

    def _logits(self, X: Array, function: str) -> Array:
        """`X` as checked logits, one column per class; for two classes one number per row is enough."""
        check_option(self.input, INPUTS, "input", type(self).__name__)
        values, needed = as_array(X, "X", function), getattr(self, "n_features_in_", None)
        if self.input == "log-odds" or (values.ndim == 1 and needed in (None, 2)):
            values = check_one_column(values, self.input, "X", function)
        shape, expected = tuple(values.shape), ""
        if len(shape) < 2:
            expected = "two-dimensional, one row per sample and one column per class. Reshape your data"
            got = f"shape {shape}"
        elif 0 in shape[:-1]:
            expected, got = "at least one row", f"0 sample(s) (shape={shape}) while a minimum of 1 is required."
        elif needed is None and shape[-1] < 2:
            expected = "of two or more columns, one per class, or X[:, 0], one number per row for two classes"
            got = f"{shape[-1]} feature(s) (shape={shape}) while a minimum of 2 is required."
        elif needed not in (None, shape[-1]):
            expected = f"of {needed} columns, one per class"
            got = f"X has {shape[-1]} features, but {type(self).__name__} is expecting {needed} features as input"
        if expected:
            raise ShapeError("X", function, expected=expected, got=got)
        if self.input == "probabilities":
            p = check_probabilities(values, "X", function)
            return log_probabilities(p, SMALLEST)
        check_rows(values, "X", function)
        if (whole := sum_of_parts(values, "X", function)) is not None:
            warn_of_sums(whole, "X", function)
        # Half precision is kept: each block is converted to float32 when it is processed.
        is_floating = namespace(values).isdtype(values.dtype, "real floating")
        return values if is_floating else as_floating(values, "X", function)[0]

    def _is_plain(self, X: Array) -> bool:
        """Whether these are logits in a NumPy array or on a GPU that need no preparation."""
        own = vars(self)
        is_array = is_plain_tensor(X) or (type(X) is np.ndarray and X.dtype.kind == "f" and X.itemsize <= 8)
        known = "chain_" in own and "feature_names_in_" not in own and self.input == "logits"
        return is_array and known and X.ndim == 2 and X.shape[1] == own["n_features_in_"] and X.shape[0] > 0

    def _repr_html_inner(self) -> str:
        """scikit-learn's view of the settings, followed by the fitted values; shown in notebooks."""
        shown: str = super()._repr_html_inner()
        if not hasattr(self, "fit_report_"):
            return shown
        has_chart = self.input in ("logits", "probabilities")
        return f"<div>{shown}{html_of_fit(self.chain_, self.fit_report_, has_chart)}</div>"

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        # If scikit-learn is configured to show text only, no HTML is added.
        return {**bundle, "text/html": self._repr_html_inner()} if "text/html" in bundle else bundle

    def __sklearn_tags__(self) -> Any:
        """scikit-learn's description of the input that this estimator accepts."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = False
        tags.array_api_support = True
        return tags


def classes_last(X: Array, class_axis: int, function: str) -> Array:
    """`X` with the classes moved to the last axis; unchanged if they are there already."""
    if class_axis == -1:
        return X
    values = as_array(X, "X", function)
    if not -values.ndim <= class_axis < values.ndim:
        raise ShapeError("class_axis", function, expected=f"an axis of {values.ndim}", got=str(class_axis))
    return namespace(values).moveaxis(values, class_axis, -1)


def filled(p: Array, out: NDArray[Any] | None) -> Array:
    """`out` filled with the probabilities; the probabilities themselves if `out` is None."""
    if out is None:
        return p
    out[...] = p
    return out


def _by_chunk(method: Callable[[Array], Array], X: Any, dtype: Any = None, **options: Any) -> Any:
    """A method applied lazily to each chunk of rows of a Dask array or DataFrame."""
    values = X.to_dask_array() if hasattr(X, "to_dask_array") else X
    dtype = dtype or (values.dtype if values.dtype.kind == "f" else np.float64)
    meta = np.empty((0,) * (values.ndim - len(options)), dtype)
    return values.rechunk({values.ndim - 1: -1}).map_blocks(method, dtype=dtype, meta=meta, **options)
