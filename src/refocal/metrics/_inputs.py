"""The arguments of a metric, checked once and converted to flat NumPy vectors.

Probabilities with one axis more than the labels hold the classes on their last axis, or on axis 1 where only that
fits the labels, as in images (N, C, H, W); probabilities of the labels' own shape are the probability of class 1.
Metrics of two classes are about class 1, whichever way they come. Every other axis (pixels, tokens) is flattened into
rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from refocal._arrays import (
    Array,
    Flags,
    Indices,
    Matrix,
    Vector,
    as_array,
    as_floating,
    class_axes,
    in_library_of,
    namespace,
    on_gpu,
    row_blocks,
    take_label,
    to_numpy,
)
from refocal._label_checks import IgnoreIndex, check_label_range, check_labels, whole_numbers, without_ignored
from refocal._validation import SUM_TOLERANCE, check_not_negative, check_number, check_shape, check_sums, check_weight
from refocal.errors import DataError, Remedy, ShapeError

# The number of probabilities on a GPU that are processed together, in double precision.
GPU_BLOCK = 1 << 24
# The number of classes read together: as many as share the bytes that memory delivers at once.
COLUMNS = 16


@dataclass(frozen=True)
class Rows:
    """Labels, probabilities (n,) of class 1 or (n, classes), and weights or None, all with one row per sample.

    All are NumPy arrays, except that probabilities on a GPU stay there: what comes to the host is one number per row.
    """

    labels: Indices
    probabilities: Matrix
    weight: Vector | None

    @property
    def binary(self) -> bool:
        """Whether only the probability of class 1 was given."""
        return self.probabilities.ndim == 1

    @property
    def n_classes(self) -> int:
        """Number of classes; 2 where only the probability of class 1 was given."""
        return 2 if self.binary else int(self.probabilities.shape[1])

    @property
    def weights(self) -> Vector:
        """The weight of each row; 1 where none was given."""
        return np.ones(len(self.labels)) if self.weight is None else self.weight

    def take(self, indices: Indices) -> Rows:
        """Some of the rows, possibly repeated."""
        weight = None if self.weight is None else self.weight[indices]
        return Rows(self.labels[indices], self.probabilities[indices], weight)

    def of_positive(self) -> Rows:
        """Two classes as the probability of class 1, which their metrics use; more classes unchanged."""
        return self if self.binary or self.n_classes > 2 else Rows(self.labels, self.probabilities[:, 1], self.weight)

    def reduced(self) -> Rows:
        """The same rows reduced to the confidence and whether the prediction was correct."""
        confidence, correct = self.confidence()
        return Rows(correct.astype(np.int64), confidence, self.weight)

    def event(self, label: int) -> tuple[Vector, Flags]:
        """The probability of class `label` in each row, and whether it occurred."""
        p = unit(self.probabilities if self.binary else self.probabilities[:, label])
        return (1.0 - p if self.binary and label == 0 else p), self.labels == label

    @cached_property
    def labels_there(self) -> Array:
        """The labels, on the device of the probabilities."""
        return in_library_of(self.probabilities, self.labels)

    def events(self, labels: Sequence[int]) -> Iterator[tuple[Array, Array]]:
        """`event` of rising classes, on a GPU where these are; columns are read together as fast as one alone."""
        if self.binary or on_gpu(self.probabilities):
            there = ((self.probabilities[:, label], self.labels_there == label) for label in labels)
            yield from map(self.event, labels) if self.binary else there
            return
        for first, some in groupby(labels, key=lambda label: label - label % COLUMNS):
            table = unit(self.probabilities[:, first : first + COLUMNS].T)
            for label in some:
                yield table[label - first], self.labels == label

    def confidence_there(self) -> tuple[Array, Array]:
        """As `confidence`, on the device of the probabilities."""
        if not on_gpu(self.probabilities) or self.binary:
            return self.confidence()
        confidence, predicted = self.probabilities.max(-1)
        return confidence, predicted == self.labels_there

    @cached_property
    def top(self) -> tuple[Vector, Flags, Indices]:
        """The largest probability, whether its class occurred, and that class (the lowest of equal ones)."""
        if self.binary:
            p = unit(self.probabilities)
            predicted = (p > 0.5).astype(np.int64)
            return np.maximum(p, 1.0 - p), predicted == self.labels, predicted
        xp = namespace(self.probabilities)
        index = xp.argmax(self.probabilities, axis=1)
        confidence, predicted = unit(take_label(self.probabilities, index)), to_numpy(index)
        return confidence, predicted == self.labels, predicted.astype(np.int64, copy=False)

    def confidence(self) -> tuple[Vector, Flags]:
        """What calibration is measured on: class 1 of two, else the top class."""
        if self.binary:
            return self.event(1)
        return self.top[:2]


def read_probabilities(
    y_true: Any,
    probabilities: Any,
    sample_weight: Any,
    function: str,
    ignore_index: IgnoreIndex = (),
    labels_name: str = "y_true",
) -> Rows:
    """Checked rows of probabilities: no NaN, nothing negative, rows that sum to 1 within 1e-3.

    `ignore_index` is what the caller of `function` has passed, None too, which errors then name as the remedy for
    labels such as 255; functions without such an argument leave it out here. Rows that were checked before, in the
    place of `y_true`, are taken as they are: so every metric has one function, for users and for `Metric.measure`.
    Errors call the labels `labels_name`.
    """
    if isinstance(y_true, Rows):
        return y_true
    given = (y_true, probabilities, sample_weight)
    rows, tolerance = read(*given, "probabilities", function, ignore_index, labels_name)
    p = rows.probabilities
    check_not_negative(float(p.min()), "probabilities", function)
    if rows.binary:
        highest = float(p.max())
        if highest > 1.0 + tolerance:
            raise DataError("probabilities", function, expected="at most 1", got=f"a value of {highest:.6g}")
        return rows
    check_sums(row_sums(p), tolerance, "probabilities", "rows that sum to 1", function)
    return rows.of_positive()


def read_log_probabilities(
    y_true: Any, log_probabilities: Any, sample_weight: Any, function: str, ignore_index: IgnoreIndex = ()
) -> Rows:
    """Checked rows of log-probabilities: no NaN, rows whose exponentials sum to 1 within 1e-3; -inf may occur."""
    if isinstance(y_true, Rows):
        return y_true
    rows, tolerance = read(y_true, log_probabilities, sample_weight, "log_probabilities", function, ignore_index)
    values = rows.probabilities
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
    return rows


def check_level(value: Any, function: str) -> float:
    """A confidence level strictly between 0 and 1."""
    return check_number(value, "level", function, above=0.0, below=1.0)


def mean(terms: Vector, weight: Vector | None) -> float:
    """The weighted mean of one number per row."""
    if weight is None:
        return float(np.mean(terms))
    # A row of weight 0 is ignored, even if its term is infinite.
    used = weight > 0
    return float(np.sum(terms[used] * weight[used]) / np.sum(weight))


def read(
    y_true: Any, values: Any, weight: Any, argument: str, function: str, ignored: IgnoreIndex, of_labels: str = "y_true"
) -> tuple[Rows, float]:
    """Rows, and how far their sums may be from 1; errors call the values `argument` and the labels `of_labels`."""
    given, dtype = as_floating(values, argument, function)
    # Rounding moves a sum of probabilities by eps/2 at most, of exponentials by eps/2 times the entropy.
    rounding = float(namespace(given).finfo(dtype).eps)
    array, labels = given if on_gpu(given) else to_numpy(given), to_numpy(as_array(y_true, of_labels, function))
    if array.ndim == 0 or 0 in array.shape:
        expected, got = "an array with at least one row", f"shape {tuple(array.shape)}"
        raise ShapeError(argument, function, expected=expected, got=got)
    if class_axes(array.shape, labels.shape) == [1]:
        array = namespace(array).moveaxis(array, 1, -1)
    names = (argument, of_labels, "sample_weight")
    array, labels, weight = without_ignored((array, labels, weight), ignored, names, function)
    remedy = Remedy.IGNORE_INDEX if ignored is None else None
    if labels.ndim == array.ndim:
        check_shape(labels, tuple(array.shape), of_labels, function)
        labels = whole_numbers(labels, of_labels, function).astype(np.int64, copy=False)
        check_label_range(int(labels.min()), int(labels.max()), 2, of_labels, function, remedy)
        rows: Matrix = array.reshape(-1)
    elif array.ndim < 2 or array.shape[-1] < 2:
        expected = f"of the shape of {of_labels}, or with two or more classes on one more axis"
        raise ShapeError(argument, function, expected=expected, got=f"shape {tuple(array.shape)}")
    else:
        labels = to_numpy(check_labels(labels, array, function, of_labels, remedy))
        rows = array.reshape(-1, array.shape[-1])
        rounding *= max(1.0, math.log(rows.shape[1]))
    weight = None if weight is None else check_weight(weight, labels.shape, function)
    return Rows(labels.reshape(-1), rows, weight), max(SUM_TOLERANCE, rounding)


def row_sums(values: Array, power: int = 1) -> Array:
    """The sum of each row, or of its powers, in float64 without a copy of all; on a GPU of some rows at a time."""
    if on_gpu(values):
        blocks = row_blocks(len(values), values.shape[1], GPU_BLOCK)
        return namespace(values).concat([(values[rows].double() ** power).sum(1) for rows in blocks])
    if power == 1:
        return np.sum(values, axis=1, dtype=np.float64)
    axes = ",".join(["ij"] * power)
    return np.einsum(f"{axes}->i", *[values] * power, dtype=np.float64)


def unit(values: Array) -> Vector:
    """float64 within [0, 1]; a copy only where one is needed."""
    vector = np.ascontiguousarray(to_numpy(values), dtype=np.float64)
    if vector.min() < 0.0 or vector.max() > 1.0:
        return np.clip(vector, 0.0, 1.0)
    return vector
