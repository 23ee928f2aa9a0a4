"""The arguments of a metric, checked once and converted to flat NumPy vectors.

The shapes of probabilities and labels are read by the gate: probabilities with one axis more than the labels hold the
classes on their last axis, or on axis 1, as images (N, C, H, W) do; those of the labels' own shape are the probability
of class 1.
Metrics of two classes are about class 1, whichever way they come. Every other axis (pixels, tokens) is flattened into
rows.
"""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from refocal._arrays import (
    Array,
    Indices,
    Vector,
    as_floating,
    in_single,
    namespace,
    on_gpu,
    row_blocks,
    to_numpy,
)
from refocal._groups import Groups, as_groups
from refocal._validation import SUM_TOLERANCE, check_not_negative, check_number, check_sums
from refocal.errors import DataError, LabelError, ParameterError, Remedy, ShapeError
from refocal.rows import Predictions
from refocal.rows.class_names import check_class_names, check_label_order, column_order
from refocal.rows.gate import (
    Arguments,
    aligned,
    check_same_order,
    has_class_axis,
    in_order_of_numbers,
    names_of_columns,
)
from refocal.rows.keys import number_keys
from refocal.rows.labels import IgnoreIndex, LabelRule, resolve
from refocal.rows.positive import check_series
from refocal.rows.predictions import probability_rows
from refocal.rows.scores import column_names

# The number of probabilities on a GPU that are processed together, in double precision.
GPU_BLOCK = 1 << 24


def read_probabilities(
    y_true: Any,
    probabilities: Any,
    sample_weight: Any,
    function: str,
    ignore_index: IgnoreIndex = (),
    labels_name: str = "y_true",
    class_names: Any = None,
    clusters: Any = None,
) -> Predictions:
    """Checked rows of probabilities: no NaN, nothing negative, rows that sum to 1 within 1e-3.

    `ignore_index` is what the caller of `function` was given. If it is None, errors about labels such as 255 name it as
    the remedy; functions without this argument leave it out here. Instead of `y_true`, `Predictions` may be given,
    which were checked before: so one function of each metric serves users and `Metric.measure`. Errors call the labels
    `labels_name`. `class_names`, the argument `classes` of metrics, are for columns without names.
    """
    if isinstance(y_true, Predictions):
        beside = {"sample_weight": sample_weight, "ignore_index": ignore_index, "classes": class_names}
        check_alone(y_true, function, probabilities=probabilities, **beside)
        rows = in_numpy(y_true.as_probabilities())
        return rows if clusters is None else rows.with_clusters(clusters)
    rows, tolerance = read(
        y_true,
        probabilities,
        sample_weight,
        Arguments("probabilities", labels_name),
        function,
        ignore_index,
        class_names=class_names,
        clusters=clusters,
    )
    p = rows.values
    check_not_negative(float(p.min()), "probabilities", function)
    if rows.binary:
        highest = float(p.max())
        if highest > 1.0 + tolerance:
            raise DataError("probabilities", function, expected="at most 1", got=f"a value of {highest:.6g}")
        return rows
    check_sums(row_sums(p), tolerance, "probabilities", "rows that sum to 1", function)
    return rows.of_positive()


def read_log_probabilities(
    y_true: Any,
    log_probabilities: Any,
    sample_weight: Any,
    function: str,
    ignore_index: IgnoreIndex = (),
    *,
    clusters: Any = None,
    class_names: Any = None,
) -> Predictions:
    """Checked rows of log-probabilities: no NaN, rows whose exponentials sum to 1 within 1e-3; -inf may occur."""
    if isinstance(y_true, Predictions):
        beside = {"sample_weight": sample_weight, "ignore_index": ignore_index, "classes": class_names}
        check_alone(y_true, function, log_probabilities=log_probabilities, **beside)
        rows = in_numpy(y_true.as_log_probabilities())
        return rows if clusters is None else rows.with_clusters(clusters)
    rows, tolerance = read(
        y_true,
        log_probabilities,
        sample_weight,
        Arguments("log_probabilities", "y_true"),
        function,
        ignore_index,
        class_names=class_names,
        clusters=clusters,
    )
    values = rows.values
    highest = float(values.max())
    if not highest <= tolerance:
        got = "NaN" if np.isnan(highest) else f"a value of {highest:.6g}"
        if highest <= 1.0 + tolerance and values.min() >= 0.0:
            remedy = "pass those of predict_log_proba, or np.log(probabilities)"
            got = f"values from {values.min():.3g} to {highest:.3g}, as probabilities are: {remedy}"
        raise DataError("log_probabilities", function, expected="free of NaN and at most 0", got=got)
    if not rows.binary:
        for rows_of_block in row_blocks(values.shape[0], values.shape[1], GPU_BLOCK if on_gpu(values) else 1 << 20):
            sums = row_sums(namespace(values).exp(values[rows_of_block]))
            check_sums(sums, tolerance, "log_probabilities", "rows whose exponentials sum to 1", function)
    return replace(rows, input="log-probabilities")


def in_numpy(rows: Predictions) -> Predictions:
    """Rows with NumPy's values, in which metrics are computed unless they are on a GPU; half precision is widened."""
    return rows if on_gpu(rows.values) else replace(rows, values=to_numpy(in_single(rows.values)))


def read_pair(
    y_true: Any,
    first: Any,
    second: Any,
    sample_weight: Any,
    function: str,
    ignore_index: IgnoreIndex,
    *,
    takes_logs: bool = False,
    clusters: Any = None,
    class_names: Any = None,
) -> tuple[Predictions, Predictions]:
    """Two sets of predictions of the same rows, checked, with the columns of both in the order of the first.

    Both may be Predictions, which have their labels and weights: `y_true` is then None.
    """
    are_rows = isinstance(first, Predictions) and isinstance(second, Predictions)
    if are_rows and y_true is not None:
        expected = "None where first and second are Predictions, which have their own labels"
        raise ParameterError("y_true", function, expected=expected, got=type(y_true).__name__)
    if isinstance(first, Predictions) != isinstance(second, Predictions):
        expected = "both Predictions, or both scores beside y_true"
        got = f"{type(first).__name__} and {type(second).__name__}"
        raise ParameterError("first and second", function, expected=expected, got=got)
    read_one = read_log_probabilities if takes_logs else read_probabilities

    def read_side(scores: Any) -> Predictions:
        of_labels, of_scores = (scores, None) if are_rows else (y_true, scores)
        return read_one(
            of_labels, of_scores, sample_weight, function, ignore_index, clusters=clusters, class_names=class_names
        )

    rows_of_first = read_side(first)
    rows_of_second = read_side(second)
    if y_true is not None and not has_class_axis(first, y_true):  # columns are then several labels
        check_label_order(column_names(first), column_names(second), "second", function)
    check_clusters(rows_of_first.clusters, function)
    order = column_order(rows_of_second.class_names, rows_of_first.class_names, function)
    if order is not None:
        moved = rows_of_second.reordered(order)
        rows_of_second = moved.of_positive() if rows_of_second.binary else moved
    _check_same_rows(rows_of_first, rows_of_second, are_rows, function)
    return rows_of_first, rows_of_second


def _check_same_rows(first: Predictions, second: Predictions, are_rows: bool, function: str) -> None:
    """Labels, weights and clusters of two sets of predictions agree, row by row."""
    is_same = np.array_equal(first.labels, second.labels)
    if not is_same and not are_rows:
        expected = "names of classes where first and second have their columns in different orders"
        raise LabelError("y_true", function, expected=expected, got="column numbers")
    is_same &= np.array_equal(first.weights, second.weights)
    has_clusters = first.clusters is not None or second.clusters is not None
    if has_clusters and is_same:
        is_same = np.array_equal(np.asarray(first.clusters), np.asarray(second.clusters))
    if not is_same:
        expected = "Predictions of the same rows as first, with the same labels, weights and clusters"
        raise DataError("second", function, expected=expected, got="others")


def check_alone(rows: Predictions, function: str, **given: Any) -> None:
    """Refuse arguments beside Predictions that have the same of their own, and Predictions without rows."""
    for argument, value in given.items():
        is_empty = isinstance(value, tuple) and not value
        if value is not None and not is_empty:
            expected = "left out where y_true are Predictions, which have their own"
            raise ParameterError(argument, function, expected=expected, got=type(value).__name__)
    if len(rows) == 0:
        raise ShapeError("y_true", function, expected="of at least one row", got="none")


def check_level(value: Any, function: str) -> float:
    """A confidence level strictly between 0 and 1."""
    return check_number(value, "level", function, above=0.0, below=1.0)


def check_clusters(clusters: Indices | None, function: str) -> None:
    """Refuse a single cluster, from which no variance can be estimated; None, no clusters, is allowed."""
    if clusters is not None and len(np.unique(clusters)) < 2:
        expected = "of at least two different ones: a single cluster says nothing about others"
        raise DataError("clusters", function, expected=expected, got="1")


def mean(terms: Vector, weight: Vector | None) -> float:
    """The weighted mean of one number per row."""
    if weight is None:
        return float(np.mean(terms))
    # A row of weight 0, such as one that was not resampled, does not count even if its term is infinite.
    used = weight > 0
    return float(np.sum(terms[used] * weight[used]) / np.sum(weight))


def read(
    y_true: Any,
    values: Any,
    weight: Any,
    arguments: Arguments,
    function: str,
    ignore_index: IgnoreIndex,
    *,
    class_names: Any = None,
    clusters: Any = None,
) -> tuple[Predictions, float]:
    """Rows whose values are not checked yet, and how far the sums of probabilities may be from 1.

    `arguments` are what errors call the values and the labels. Rows without a label, and those of weight 0, are left
    out before anything is checked.
    """
    if values is None:
        expected = "given, unless y_true are Predictions"
        raise ParameterError(arguments.values, function, expected=expected, got="None")
    rows = aligned(
        values,
        y_true,
        weight,
        arguments,
        function,
        ignore_index=ignore_index,
        kind="probabilities",
        label_each=True,
    )
    scores, dtype = as_floating(rows.scores, arguments.values, function)
    precision = float(namespace(scores).finfo(dtype).eps)
    scores = scores if on_gpu(scores) else to_numpy(scores)
    is_binary = scores.ndim == 1
    n_classes = 2 if is_binary else int(scores.shape[1])
    cluster_numbers = None
    if clusters is not None:
        cluster_numbers = rows.clusters_of(_flat(clusters, np.shape(y_true)), function).numbers
    rule = label_rule(rows.column_names, class_names, n_classes, arguments, function)
    if is_binary:
        _check_second_class(rule, function)
    try:
        resolved = resolve(rows.labels._replace(values=to_numpy(rows.labels.values)), rule)
    except LabelError as error:
        raise _with_own_remedy(error, ignore_index is None) from None
    if is_binary:
        check_series(values, resolved.classes.tolist(), arguments.values, function)
    predictions = probability_rows(resolved.numbers, scores, rows.weight, clusters=cluster_numbers)
    predictions = replace(predictions, row_numbers=rows.row_numbers)
    if rule.names is not None:
        names = tuple(str(name) for name in rule.names)
        predictions = in_order_of_numbers(replace(predictions, class_names=names, label_map=resolved.label_map))
    return predictions, sum_tolerance(precision, 1 if is_binary else n_classes)


def _check_second_class(rule: LabelRule, function: str) -> None:
    """Refuse names 1 and 0, or True and False, in this order where there is one number per row."""
    if number_keys(rule.names or ()) != [1, 0]:
        return
    first, second = rule.whole_names
    about = "where there is one number per row, which is about the second class"
    expected = f"{second} and {first} in this order {about}"
    raise ParameterError("classes", function, expected=expected, got=f"{first} and {second}")


def label_rule(
    columns: tuple[Any, ...] | None, class_names: Any, n_classes: int, arguments: Arguments, function: str
) -> LabelRule:
    """What decides how labels are read; `class_names` are the argument `classes`, for columns without names."""
    names, whole_names = names_of_columns(columns)
    if class_names is not None:
        if names is not None:
            expected = f"left out where the columns of {arguments.values} have names"
            raise ParameterError("classes", function, expected=expected, got="classes")
        check_same_order(class_names, columns, function, "classes")
        names = check_class_names(class_names, n_classes, function, "classes")
        whole_names = tuple(str(name) for name in class_names)
    return LabelRule(n_classes, names, whole_names, argument=arguments.labels, function=function)


def _flat(clusters: Any, shape: tuple[int, ...]) -> Any:
    """Clusters as one axis: those of the shape of labels with several axes, such as pixels, are flattened."""
    is_array = len(shape) > 1 and np.shape(clusters) == shape
    return np.reshape(np.asarray(clusters), -1) if is_array else clusters


def groups_of_rows(groups: Any, y_true: Any, rows: Predictions, function: str) -> Groups:
    """The groups of read rows; those given also have the groups of rows that were left out.

    >>> rows = read_probabilities([0, 1, 1], [0.1, 0.8, 0.9], [1.0, 0.0, 1.0], "f")
    >>> groups_of_rows(["a", "b", "c"], [0, 1, 1], rows, "f")
    {'group': array(['a', 'c'], dtype='<U1')}
    """
    if isinstance(y_true, Predictions):
        return as_groups(groups, len(rows), function)
    columns = as_groups(groups, np.shape(y_true), function)
    return {name: column[rows.numbers] for name, column in columns.items()}


def _with_own_remedy(error: LabelError, takes_ignore_index: bool) -> LabelError:
    """The same error with what a caller of a metric can do about it."""
    if error.remedy is Remedy.IGNORE_INDEX and takes_ignore_index:
        return error
    is_named = error.remedy in (Remedy.POSITIVE_LABEL, Remedy.CLASS_NAMES) and "text" in error.got
    remedy = Remedy.NAMED_ROWS if is_named else None
    return LabelError(error.argument, error.function, error.expected, error.got, remedy)


def row_sums(values: Array, power: int = 1) -> Array:
    """The sum of each row, or of its powers, in float64 without a copy of all."""
    if can_use_kernels(values):
        from refocal.engine import triton_rows

        return triton_rows.power_sums(values.detach(), power)
    if on_gpu(values):
        blocks = row_blocks(len(values), values.shape[1], GPU_BLOCK)
        return namespace(values).concat([(values[rows].double() ** power).sum(1) for rows in blocks])
    if power == 1:
        return np.sum(values, axis=1, dtype=np.float64)
    axes = ",".join(["ij"] * power)
    return np.einsum(f"{axes}->i", *[values] * power, dtype=np.float64)


def can_use_kernels(values: Array) -> bool:
    """Whether the kernels of `triton_rows` can read these rows."""
    return on_gpu(values) and values.is_cuda and values.stride(-1) == 1 and find_spec("triton") is not None


def sum_tolerance(precision: float, n_classes: int) -> float:
    """How far the sum of a row may be from 1, for numbers of a precision: rounding moves it.

    It moves a sum of probabilities by eps/2 at most, of exponentials by eps/2 times the entropy, log C at most.
    """
    return max(SUM_TOLERANCE, precision * max(1.0, math.log(n_classes)))
