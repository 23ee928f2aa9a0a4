"""What all calibrators share: input checks, the scikit-learn interface, saving."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from refocal._arrays import (
    Array,
    as_array,
    in_single,
    is_dask,
    is_plain_tensor,
    is_zarr_array,
    namespace,
    to_numpy,
    two_columns,
)
from refocal._groups import Groups
from refocal._limits import large_file
from refocal._validation import INPUTS, check_option, check_out, check_weight, is_same_memory
from refocal.calibrators._arguments import (
    check_several_classes,
    classes_last,
    filled,
    refuse_beside,
    refuse_class_axis,
    without_column_axis,
)
from refocal.calibrators._chunks import by_chunk, classes_by_chunk
from refocal.calibrators.class_order import labels_of, named_classes, order_for
from refocal.calibrators.description import fit_warnings
from refocal.calibrators.fitted import Fitted, report_of
from refocal.engine import Block, Dataset
from refocal.engine.apply import apply, probabilities_of
from refocal.engine.block import block_of_fit
from refocal.errors import DataError, FitWarning, LabelError, ParameterError, ShapeError, UnsupportedError, warn
from refocal.maps.chain import Chain, Step
from refocal.maps.steps import Floor
from refocal.rows import Predictions
from refocal.rows.class_names import without_beginnings
from refocal.rows.fit import read_rows_of_fit
from refocal.rows.gate import Arguments, check_one_label_per_row, rows_that_count
from refocal.rows.keys import number_keys
from refocal.rows.label_errors import with_own_remedy
from refocal.rows.labels import IgnoreIndex, LabelRule, RawLabels, raw_labels, resolve
from refocal.rows.positive import check_series
from refocal.rows.scores import as_logits, column_names, read_scores

if TYPE_CHECKING:
    import torch

    from refocal.nn import CalibrationLayer
    from refocal.shift.shares import Adaptation


# The weight, in rows, that some calibrators spread over all classes so that no probability is 0.
FLOOR = 1e-3


class Calibrator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base class: fits on logits (N, C) and labels (N,), predicts probabilities of the same array kind and device.

    With `input="probabilities"` the rows hold probabilities instead of logits; a 0 counts as half the smallest nonzero
    probability of the fit, since it only means that the probability was small, and so does every smaller one of a new
    row: none is more certain than those that the fit has seen, and the order of zeros and others stays. Logits have no
    such bound. For two classes one number per row is enough, (N,): the probability of `classes_[1]`, or its log-odds,
    which is what a single logit is and what `input="log-odds"` requires. Predictions always have two columns.

    Column j belongs to `classes_[j]`. Where the columns have names, as those of a data frame, labels are matched with
    these, or are column numbers if none of them is a name. Without names, labels are integers from 0 to C-1, some of
    which may be absent; others name the columns in sorted order, as in scikit-learn, and must be as many.

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

    input: str = "logits"
    chain_: Chain
    needs_groups: ClassVar[bool] = False
    """Whether `fit` and the predicting methods also take the groups of the rows."""

    averages: ClassVar[bool] = False
    """Whether it is a mean of methods, as flexible as the rows of the fit allow."""

    _is_drawn: ClassVar[bool] = True  # in notebooks, as a map of classes that exclude each other

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
        self._check_settings()
        dataset = self.dataset(X, y, sample_weight, ignore_index=ignore_index)
        fitted = self._fit(dataset, progress)
        report = report_of(fitted, dataset)
        if dataset.floor is not None:  # zeros of new rows are treated like those of the fit, in every precision
            fitted = fitted._replace(chain=Chain((Floor(dataset.floor), *fitted.chain.steps)))
        if X is not dataset and not isinstance(X, Predictions):
            _check_feature_names(self, _frame_of_names(X, y, sample_weight), reset=True)
        self._set_fitted(fitted, np.arange(dataset.n_classes) if dataset.classes is None else dataset.classes, report)
        for message in fit_warnings(report, fitted.chain):
            warn(f"{name}: {message}.", FitWarning)
        return self

    def _fit_with_groups(
        self,
        X: Array,
        y: Array,
        sample_weight: Array,
        *,
        groups: Any,
        class_axis: int,
        ignore_index: IgnoreIndex,
        progress: Callable[[float], None] | None,
    ) -> Self:
        """Fit on rows with groups, which are held in memory; for the `fit` of methods that take groups."""
        self._forget()
        refuse_class_axis(class_axis, f"{type(self).__name__}.fit")
        rows = self._block_of(self.dataset(X, y, sample_weight, ignore_index=ignore_index, groups=groups))
        Calibrator.fit(self, rows, progress=progress)
        _check_feature_names(self, X, reset=True)
        return self

    def _check_settings(self) -> None:
        """Check the settings of a calibrator that is a dataclass; see `refocal.calibrators.settings`."""
        for name, field in getattr(self, "__dataclass_fields__", {}).items():
            if "check" in field.metadata:
                field.metadata["check"](getattr(self, name), name, type(self).__name__)

    def _forget(self) -> None:
        """Delete the attributes that an earlier fit has set."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _set_fitted(self, fitted: Fitted, classes: NDArray[Any], report: dict[str, Any]) -> None:
        """Set all fitted attributes together, once nothing can fail or be interrupted any more."""
        search = {} if fitted.solution is None else {"solution_": fitted.solution, "path_": fitted.path}
        self.__dict__.update(
            chain_=fitted.chain, classes_=classes, n_features_in_=len(classes), fit_report_=report, **search
        )

    @property
    def has_class_axis(self) -> bool:
        """Whether the input has an axis of classes or labels."""
        return self.input != "log-odds"

    def n_chain_classes(self, n_columns: int) -> int:
        """The number of classes that the chain is about, where rows have so many columns."""
        return n_columns

    def __sklearn_is_fitted__(self) -> bool:
        """A calibrator is fitted once it has a chain."""
        return hasattr(self, "chain_")

    def dataset(
        self,
        X: Array,
        y: Array = None,
        sample_weight: Array = None,
        *,
        ignore_index: IgnoreIndex = None,
        groups: Any = None,
    ) -> Dataset:
        """Checked data: several calibrators fitted on one Dataset share their passes over the rows.

        Rows without a label or of weight 0 are left out, with their `groups`.

        >>> import numpy as np
        >>> from refocal import FocalTemperatureScaling, TemperatureScaling
        >>> from refocal.fitting.temperature import newton_temperature
        >>> rows = TemperatureScaling().dataset(np.array([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0]]), [0, 1, 1])
        >>> fitted = [TemperatureScaling().fit(rows), FocalTemperatureScaling(objective="nll").fit(rows)]
        >>> rows.n_rows, fitted[0].temperature_ == newton_temperature(rows).temperature  # known already
        (3, True)
        """
        function = f"{type(self).__name__}.fit"
        if ignore_index is not None and isinstance(X, (Dataset, Predictions)):
            raise ParameterError("ignore_index", function, expected="given where the rows are opened", got="it here")
        check_option(self.input, INPUTS, "input", type(self).__name__)
        if isinstance(X, Dataset):
            refuse_beside(
                "X is a Dataset, which has its own", function, y=y, sample_weight=sample_weight, groups=groups
            )
            self._check_kind(X.input, function)
            return X
        if isinstance(X, Predictions):
            if groups is not None and not X.groups:
                X = X.with_groups(groups)
                groups = None
            own_rows = self._own_rows(X, y, sample_weight, groups, function)
            check_several_classes(own_rows, function)
            return block_of_fit(own_rows, self.input, function)
        labels = without_column_axis(y, X, self.input)
        is_large_map = isinstance(X, np.memmap) and X.ndim == 2 and X.nbytes >= large_file()
        if is_large_map or is_dask(X) or is_zarr_array(X):
            from refocal.io.datasets import rows_of_fit

            return rows_of_fit(X, labels, sample_weight, input=self.input, ignore_index=ignore_index)
        rows = read_rows_of_fit(
            X,
            labels,
            sample_weight,
            self.input,
            estimator=type(self).__name__,
            function=function,
            ignore_index=ignore_index,
            groups=groups,
        )
        return block_of_fit(rows, self.input, function)

    def _check_kind(self, given: str, function: str) -> None:
        """Refuse rows of another kind of scores than this calibrator takes; log-odds are logits of two classes."""
        if (given == "probabilities") != (self.input == "probabilities"):
            expected = f"rows of {self.input}, as this calibrator takes"
            raise DataError("X", function, expected=expected, got=f"rows of {given}")

    def _own_rows(self, rows: Predictions, y: Any, sample_weight: Any, groups: Any, function: str) -> Predictions:
        """Predictions of the kind that this calibrator takes, which have labels, weights and groups of their own."""
        own = "X are Predictions, which have their own"
        refuse_beside(own, function, y=y, sample_weight=sample_weight, groups=groups)
        self._check_kind(rows.input, function)
        if len(rows) == 0:
            raise ShapeError("X", function, expected="of at least one row", got="none")
        return rows.in_columns()

    def predict_log_proba(self, X: Array, *, class_axis: int = -1) -> Array:
        """Log-probabilities, accurate even where probabilities round to 0 or 1."""
        return self._predict(X, class_axis, None, log=True)

    def predict_proba(self, X: Array, *, class_axis: int = -1, out: NDArray[Any] | None = None) -> Array:
        """Probabilities, one column for each of `classes_`; for a Dask array they are computed lazily.

        For a NumPy array the result is written into `out`, if given.
        """
        return self._predict(X, class_axis, out, log=False)

    def _predict(self, X: Array, class_axis: int, out: NDArray[Any] | None, *, log: bool) -> Array:
        """Probabilities, or their logarithms; written into `out`, if given."""
        predict = self.predict_log_proba if log else self.predict_proba
        name = f"{type(self).__name__}.{predict.__name__}"
        if out is not None:
            check_out(out, X, name)
            if is_same_memory(out, X):  # rows may be read twice, and are overwritten by then
                return filled(self._predict(X, class_axis, None, log=log), out)
        if class_axis != -1:
            last = predict(classes_last(X, class_axis, name))
            return filled(namespace(last).moveaxis(last, -1, class_axis), out)
        if self._is_plain(X) and not (log and isinstance(X, np.ndarray)):  # the checks below are part of the pass
            applied = apply(self.chain_, X, out, log=log)
            if applied is not None and not applied.is_suspect:
                return applied.probabilities
        check_is_fitted(self)
        if is_dask(X):
            return by_chunk(*self._of_dask(predict, X))
        return filled(probabilities_of(self.chain_, self._logits(X, name), log=log), out)

    def _proba_by_log(self, X: Array, out: NDArray[Any] | None, **options: Any) -> Array:
        """The probabilities of a calibrator that computes their logarithms only; written into `out`, if given."""
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
        check_is_fitted(self)
        if is_dask(X):
            return classes_by_chunk(*self._of_dask(self.predict, X), self.classes_.dtype)
        X = self._in_single(X)
        log_p = scores = self.predict_log_proba(X)
        if self.chain_.keeps_order:  # compare the scores themselves: two of them may round to the same probability
            scores = as_array(self._columns(X, "predict"), "X", "predict")
            scores = scores if scores.ndim == log_p.ndim else two_columns(scores, self.input)
        index = namespace(log_p).argmax(scores, axis=-1)
        if isinstance(index, np.ndarray) or not np.array_equal(self.classes_, np.arange(len(self.classes_))):
            return self.classes_[to_numpy(index)]
        return index

    def _in_single(self, X: Any) -> Any:
        """Rows of half precision in single precision, so that what is compared is not rounded.

        Probabilities are read in single precision anyway, which allows for the rounding of their sums.
        """
        if self.input == "probabilities":
            return X
        return replace(X, values=in_single(X.values)) if isinstance(X, Predictions) else in_single(X)

    def adapt(self, X: Any = None, **options: Any) -> tuple[Calibrator, Adaptation]:
        """A calibrator for rows with other class shares, from unlabelled rows or known shares, and what is known.

        Options: `shares`, the new shares where they are known; `fit_rows`, labelled rows of the fit, with which it is
        tested whether new shares explain the rows: if not, the calibrator is returned unchanged; `shares_of_fit`,
        `costs`, `level`, `force`, `seed`. See `refocal.shift.adapt`.

        >>> import numpy as np
        >>> from refocal import TemperatureScaling
        >>> logits = np.random.default_rng(0).normal(size=(300, 2))
        >>> balanced = TemperatureScaling().fit(logits, np.arange(300) % 2)  # the rarer class was oversampled
        >>> adapted, _ = balanced.adapt(shares=[0.99, 0.01])
        >>> bool(adapted.predict_proba(logits)[:, 1].mean() < 0.02)
        True
        """
        from refocal.shift import adapt

        return adapt(self, X, **options)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The share of rows whose class is predicted; labels are read as in a fit, Predictions have their own.

        Rows of Predictions without names are of the classes of the calibrator in its order.
        """
        check_is_fitted(self)
        function = f"{type(self).__name__}.score"
        if isinstance(X, Predictions):
            refuse_beside("X are Predictions, which have their own", function, y=y, sample_weight=sample_weight)
            predicted = to_numpy(self.predict(X))  # refuses rows of other classes before their labels are looked at
            return float(np.average(predicted == self.classes_[labels_of(self, X, function)], weights=X.weight))
        predicted = to_numpy(self.predict(X))
        raw = raw_labels(without_column_axis(y, X, self.input), "y", function)
        given = predicted.shape if self.input == "log-odds" else (*predicted.shape, len(self.classes_))
        check_one_label_per_row(given, tuple(raw.values.shape), self.input, Arguments(), function)
        weight = None if sample_weight is None else check_weight(sample_weight, predicted.shape, function)
        flat = raw._replace(values=to_numpy(raw.values).reshape(-1))
        kept = rows_that_count(flat, weight, None, Arguments(), function)
        some: Any = slice(None) if kept is None else kept
        is_right = predicted.reshape(-1)[some] == self._as_classes(flat._replace(values=flat.values[some]), function)
        return float(np.average(is_right, weights=None if weight is None else weight[some]))

    def _as_classes(self, raw: RawLabels, function: str) -> NDArray[Any]:
        """Labels as those of `classes_`, however they are stored."""
        names = named_classes(self)
        whole_names = () if names is None else tuple(str(name) for name in getattr(self, "feature_names_in_", ()))
        rule = LabelRule(
            len(self.classes_),
            None if names is None else tuple(names),
            whole_names,
            argument="y",
            function=function,
        )
        try:
            return np.asarray(self.classes_[resolve(raw, rule).numbers])
        except LabelError as error:
            raise with_own_remedy(error) from None

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
        check_is_fitted(self)
        n_classes = int(self.n_features_in_)
        layer = self._layer_type()
        return layer(*self.chain_.steps, class_axis=class_axis, input=self.input, dtype=dtype, n_classes=n_classes)

    def _layer_type(self) -> type[CalibrationLayer]:
        """The kind of torch layer that applies the chain."""
        from refocal.nn import CalibrationLayer

        return CalibrationLayer

    def _fit(self, dataset: Dataset, progress: Callable[[float], None] | None) -> Fitted:
        """Fit the chain; a calibrator that needs all rows in memory calls `_block_of(dataset)`."""
        block = self._block_of(dataset)
        logits = to_numpy(block.logits).astype(np.float64)
        labels = to_numpy(block.labels).astype(np.int64)
        fitted = self.fit_chain(logits, labels, block.weights)
        steps: Any = fitted
        if isinstance(fitted, Step):
            steps = list(fitted.steps) if isinstance(fitted, Chain) else [fitted]
        got = type(fitted).__name__
        if isinstance(steps, (list, tuple)) and all(isinstance(step, Step) for step in steps):
            # Numbers of NumPy become those of Python, as in a chain that is read from a file.
            chain = Chain(tuple(steps)).with_parameters(as_plain_number)
            try:
                chain.check(block.n_classes)
                return Fitted(chain)
            except ParameterError as error:
                got = f"steps that cannot be applied: {error}"
        expected = "a Chain of refocal.maps, or a step, that takes the rows of the fit"
        raise ParameterError("return value", f"{type(self).__name__}.fit_chain", expected=expected, got=got)

    def fit_chain(
        self, logits: NDArray[np.float64], labels: NDArray[np.int64], weight: NDArray[np.float64]
    ) -> Step | Sequence[Step]:
        """The map of a calibrator of your own, fitted: the one method that a subclass has to have.

        The rows have been checked: `logits` (N, C) are free of NaN and +inf, and at the label finite; of probabilities
        they are the logarithms. `labels` (N,) are column numbers, `weight` (N,) counts rows. The result is a step of
        `refocal.maps`, or one of your own (a frozen dataclass with the base `refocal.maps.Step`), or a chain or list of
        them. Settings are arguments of `__init__`, as in scikit-learn, or fields of a dataclass; with the setting
        `input` it takes probabilities too.

        >>> import numpy as np
        >>> from refocal import Calibrator
        >>> from refocal.maps import Temperature
        >>> class SameScale(Calibrator):
        ...     def fit_chain(self, logits, labels, weight):
        ...         return Temperature(np.std(logits))
        >>> fitted = SameScale().fit([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]], [0, 1, 0])
        >>> fitted.predict_proba([[2.0, 0.0]]).round(3).tolist()
        [[0.881, 0.119]]
        """
        raise NotImplementedError(f"{type(self).__name__} must have a method fit_chain(logits, labels, weight).")

    def _block_of(self, dataset: Dataset) -> Block:
        """The single block of data in memory; data in blocks only provide sums over blocks."""
        if isinstance(dataset, Block):
            return dataset
        from refocal.calibrators.registry import kinds

        others = ", ".join(kinds(in_blocks=True))
        raise UnsupportedError(f"{type(self).__name__} needs all rows in memory. Those that do not: {others}.")

    def _logits(self, X: Array, function: str) -> Array:
        """`X` as checked logits, one column per class; for two classes one number per row is enough."""
        needed = getattr(self, "n_features_in_", None)
        columns = self._columns(X, function)
        name = type(self).__name__
        return as_logits(read_scores(columns, self.input, "X", function, n_classes=needed, owner=name), self.input)

    def _columns(self, X: Any, function: str) -> Any:
        """The columns of `X` in the order of this calibrator's classes: Predictions know theirs by name.

        A data frame must have the columns of the fit in their order, as in scikit-learn.
        """
        if isinstance(X, Dataset):
            raise UnsupportedError(f"{function} takes rows in memory; refocal.io.apply writes those of files.")
        if not isinstance(X, Predictions):
            self._check_names(X, function)
            return X
        self._check_kind(X.input, function)
        order = order_for(self, X, function)
        rows = X.in_columns() if order is None else X.reordered(order)
        if self.input == "log-odds":
            return rows.values[:, 1] - rows.values[:, 0]
        return rows.values

    def _check_names(self, X: Any, function: str) -> None:
        """Refuse a data frame, of Dask too, without the columns of the fit in their order, as scikit-learn does.

        After a fit on an array, columns that are called by the classes or their numbers must be in the order of the
        classes. A Series of one number per row must not be called by the first of two classes.
        """
        check_series(X, named_classes(self) or self.classes_.tolist(), "X", function)
        frame = _frame_of_names(X)
        if not hasattr(self, "feature_names_in_"):
            self._check_order(frame, function)
        _check_feature_names(self, frame, reset=False)  # warns of names after a fit without

    def _check_order(self, frame: Any, function: str) -> None:
        """Refuse columns that are called by the classes, but in another order; True and False are 1 and 0."""
        columns = column_names(frame)
        if columns is None or len(columns) != len(self.classes_):
            return
        known = named_classes(self) or [str(i) for i in range(len(columns))]
        keys = number_keys(without_beginnings(columns))
        wanted = number_keys(without_beginnings(known))
        if keys != wanted and {*keys} == {*wanted}:
            expected = f"of columns in the order of the classes, {', '.join(known)}"
            raise ShapeError("X", function, expected=expected, got=", ".join(str(name) for name in columns))

    def with_names(self, chunk: NDArray[Any]) -> Any:
        """A chunk of rows whose names were checked, as the data frame that scikit-learn expects after a fit on one."""
        known = getattr(self, "feature_names_in_", None)
        if known is None:
            return chunk
        import pandas as pd  # type: ignore[import-untyped]

        return pd.DataFrame(chunk, columns=list(known))

    def _of_dask(self, method: Callable[[Any], Array], X: Any) -> tuple[Callable[[Any], Array], Any]:
        """A method of this calibrator as a function of one chunk of rows, and the Dask array of all rows.

        The columns of a DataFrame of Dask must be those of the fit, in their order.
        """
        self._check_names(X, f"{type(self).__name__}.{method.__name__}")
        values = X.to_dask_array() if hasattr(X, "to_dask_array") else X
        return partial(_of_chunk, self, method), values

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
        from refocal.report.fitted import html_of_fit

        has_chart = self._is_drawn and self.input != "log-odds"
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


def as_plain_number(value: Any) -> Any:
    """A number of NumPy as one of Python; arrays stay as they are."""
    return value.item() if isinstance(value, np.generic) else value


def _of_chunk(calibrator: Calibrator, method: Callable[[Any], Array], chunk: NDArray[Any]) -> Array:
    """A method of a calibrator on one chunk of rows, whose column names were checked."""
    return method(calibrator.with_names(chunk))


def _frame_of_names(X: Any, *others: Any) -> Any:
    """What scikit-learn reads the names of columns from: `X`, or the empty counterpart of a DataFrame of Dask.

    Those of `others` that are text are the names of columns without scores.
    """
    if not (is_dask(X) and hasattr(X, "_meta") and hasattr(X, "columns")):
        return X
    return X._meta.drop(columns=[name for name in others if isinstance(name, str)])
