"""The one reading of scores: their kind, their shape, what is not a number, what a zero counts as."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import (
    SMALLEST,
    Array,
    Flags,
    as_array,
    as_floating,
    log_probabilities,
    namespace,
    without_warnings,
)
from refocal._validation import (
    INPUTS,
    NEGATIVE_TOLERANCE,
    SUM_TOLERANCE,
    check_not_negative,
    check_one_column,
    check_option,
    check_probabilities,
    check_rows,
    sum_of_parts,
    warn_of_sums,
)
from refocal.errors import DataError, ShapeError

Input = Literal["logits", "probabilities", "log-odds"]
"""What scores are; log-odds are those of class 1 of two, one number per row."""


def column_names(scores: Any) -> tuple[Any, ...] | None:
    """The names of the columns of a data frame or a table of any library; None where columns have none."""
    names = getattr(scores, "columns", None)
    if names is None or callable(names):
        return None
    if hasattr(scores, "column_names"):  # a table of Arrow, whose `columns` are the data
        names = scores.column_names
    return tuple(names)


def as_scores(scores: Any) -> Any:
    """A table of Arrow as one array (N, C), which no function of arrays reads by itself; all else as it is."""
    if hasattr(scores, "column_names") and hasattr(scores, "to_pydict"):
        return np.column_stack([column.to_numpy(zero_copy_only=False) for column in scores.itercolumns()])
    return scores


def read_scores(
    values: Any,
    kind: str,
    argument: str,
    function: str,
    *,
    n_classes: int | None = None,
    renormalise: bool = False,
    owner: str = "",
    row_numbers: NDArray[np.int64] | None = None,
) -> Array:
    """Checked scores (..., C): logits, or probabilities. One number per row of two classes becomes two columns.

    Logits keep their precision, and -inf is an ordinary one; NaN, +inf and a row of -inf alone are errors. Rows of
    probabilities have no NaN, nothing negative, and sum to 1. `n_classes` are those of a fitted calibrator, `owner`.
    `row_numbers` are those of the rows as they were given, where some were left out: errors name them.
    """
    check_option(kind, INPUTS, "input", owner or function)
    array = as_array(as_scores(values), argument, function)
    if kind == "log-odds" and array.ndim == 0:
        raise ShapeError(argument, function, expected="one number per row", got=f"shape {tuple(array.shape)}")
    if kind == "log-odds" or (array.ndim == 1 and n_classes in (None, 2)):
        array = check_one_column(array, kind, argument, function)
    check_score_shape(tuple(array.shape), argument, function, n_classes, owner)
    if kind == "probabilities":
        return check_probabilities(
            _renormalised(array, argument, function) if renormalise else array, argument, function
        )
    check_rows(array, argument, function, row_numbers)
    if kind == "logits":
        whole = sum_of_parts(array, argument, function)
        if whole is not None:
            warn_of_sums(whole, argument, function)
    is_floating = namespace(array).isdtype(array.dtype, "real floating")
    return array if is_floating else as_floating(array, argument, function)[0]


def check_score_shape(
    shape: tuple[int, ...], argument: str, function: str, n_classes: int | None = None, owner: str = ""
) -> None:
    """At least one row, and one column for each class; the words are those that scikit-learn looks for."""
    if len(shape) < 2:
        expected = "two-dimensional, one row per sample and one column per class. Reshape your data"
        raise ShapeError(argument, function, expected=expected, got=f"shape {shape}")
    if 0 in shape[:-1]:
        raise ShapeError(argument, function, expected="of at least one row", got="none")
    if n_classes is None and shape[-1] < 2:
        expected = "of two or more columns, one per class, or X[:, 0], one number per row for two classes"
        got = f"shape {shape}"
        if len(shape) == 2:
            got = f"{shape[-1]} feature(s) (shape={shape}) while a minimum of 2 is required"
        raise ShapeError(argument, function, expected=expected, got=got)
    if n_classes not in (None, shape[-1]):
        got = f"X has {shape[-1]} features, but {owner} is expecting {n_classes} features as input"
        raise ShapeError(argument, function, expected=f"of {n_classes} columns, one per class", got=got)


def _renormalised(values: Array, argument: str, function: str) -> Array:
    """Rows of probabilities that were rounded, divided by their sums."""
    p, _ = as_floating(values, argument, function)
    xp = namespace(p)
    check_not_negative(float(xp.min(p)), argument, function)
    sums = xp.sum(p, axis=-1)[..., None]
    if not float(xp.min(sums)) > 0.0:
        raise DataError(argument, function, expected="rows of probabilities with a sum above 0", got="a sum of 0")
    return p / sums


@without_warnings
def bad_rows(values: NDArray[Any], kind: str) -> Flags:
    """Which rows (N, C) `read_scores` would refuse: a row's maximum tells NaN, +inf and a row of -inf alone."""
    if values.dtype == np.float16:  # in which NumPy computes slowly
        values = values.astype(np.float32)
    if kind != "probabilities":
        return np.asarray(~np.isfinite(values.max(axis=1)))
    rounding = float(np.finfo(values.dtype).eps) if values.dtype.kind == "f" else 0.0
    deviation = np.abs(values.sum(axis=1, dtype=np.float64) - 1.0)
    is_good = (values.min(axis=1) >= -NEGATIVE_TOLERANCE) & (deviation <= max(SUM_TOLERANCE, rounding))
    return np.asarray(~is_good)


def bad_rows_of_labels(values: NDArray[Any], kind: str) -> Flags:
    """Which rows (N, K) of several labels have a score that is no finite log-odds, or no probability.

    >>> bad_rows_of_labels(np.array([[0.2, 1.0], [0.5, 1.5]]), "probabilities")
    array([False,  True])
    """
    is_good = np.isfinite(values)
    if kind == "probabilities":
        is_good = (values >= -NEGATIVE_TOLERANCE) & (values <= 1.0 + NEGATIVE_TOLERANCE)
    return np.asarray(~is_good.all(axis=1))


def as_logits(scores: Array, kind: str) -> Array:
    """Checked scores as logits: probabilities by their logarithms, of which that of a zero is the least possible.

    What a zero counts as is decided by `raise_zeros`.
    """
    return log_probabilities(scores, SMALLEST) if kind == "probabilities" else scores


def floor_of_zeros(log_p: Array, smallest: float = SMALLEST) -> float:
    """What a probability of 0 counts as: half the smallest nonzero one of the rows of a fit, as a logarithm.

    A zero says only that the probability was small, as half a vote of a forest would be. What is no larger than
    `smallest` was 0 before its logarithm was taken.

    >>> p = np.array([[1.0, 0.0], [0.98, 0.02]])
    >>> round(math.exp(floor_of_zeros(as_logits(p, "probabilities"))), 3)
    0.01
    """
    xp = namespace(log_p)
    least = math.log(smallest)
    seen = float(xp.min(xp.where(log_p > least + 1e-3, log_p, 0.0)))
    return max(seen - math.log(2.0), least)


def raise_zeros(log_p: Array, floor: float | None) -> Array:
    """Log-probabilities of at least `floor`; what is not a number stays so."""
    if floor is None:
        return log_p
    xp = namespace(log_p)
    return xp.where(log_p < floor, xp.asarray(floor, dtype=log_p.dtype), log_p)


def model_log_probabilities(p: Array) -> Array:
    """Logarithms of the probabilities of a model as it is, without a fit that says what its zeros count as.

    They count as the machine epsilon of their precision, so that the log-loss is finite.
    """
    return log_probabilities(p)


__all__ = [
    "Input",
    "as_logits",
    "as_scores",
    "bad_rows",
    "bad_rows_of_labels",
    "check_score_shape",
    "column_names",
    "floor_of_zeros",
    "model_log_probabilities",
    "raise_zeros",
    "read_scores",
]
