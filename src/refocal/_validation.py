"""The general checks of what users pass in, each written once; one for a single module is beside what needs it.

A check returns what is valid, ready to compute with, or raises an error that names the argument, what was expected
and what was received. Values are checked whenever they can be read; inside `jax.jit` or `torch.compile` only shapes
and dtypes exist, so there only those are checked.
"""

from __future__ import annotations

import difflib
import math
import operator
import os
from collections.abc import Iterable, Mapping
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from refocal._arrays import (
    Array,
    Vector,
    as_array,
    as_floating,
    in_library_of,
    indices_beside,
    is_torch,
    is_traced,
    namespace,
    row_blocks,
    stop_gradient,
    to_numpy,
    two_columns,
)
from refocal.errors import DataError, InputError, InputWarning, LabelError, ParameterError, Remedy, ShapeError, warn

# Squares of numbers between the two, and their products with one another, neither vanish nor overflow.
SMALL = 1e-100
LARGE = 1e100
SUM_TOLERANCE = 1e-3
"""How far the sum of a row of probabilities may be from 1; more only where the array's own precision is coarser."""
NEGATIVE_TOLERANCE = 1e-6
INPUTS = ("logits", "probabilities", "log-odds")
"""What the numbers of a row may be; log-odds are those of class 1 of two, one number per row."""

# The bounds that a number may have, in words and as a comparison.
_BOUNDS = {
    "above": ("greater than", operator.gt),
    "least": ("at least", operator.ge),
    "below": ("less than", operator.lt),
    "most": ("at most", operator.le),
}
_TWO_CLASSES = "an array with at least two classes on its last axis"
IGNORED = (-100, -1, 255)
"""Labels that mark rows without one, in language models and in segmentation."""
# What is expected of logits, in memory and in blocks.
FINITE_ROWS = "free of NaN and +inf, with a finite value in every row"
FINITE_LABELS = "finite where the label points: no temperature gives probability to a logit of -inf"


def check_logits(values: Any, argument: str, function: str) -> tuple[Array, Any]:
    """Logits or log-probabilities, classes on the last axis, ready to compute with; and the dtype of the result.

    -inf is an ordinary value (a class that cannot occur); NaN, +inf and a row of -inf alone are errors.
    """
    array = as_array(values, argument, function)
    check_rows(array, argument, function)
    return as_floating(array, argument, function)


def check_rows(logits: Array, argument: str, function: str, row_numbers: NDArray[np.int64] | None = None) -> None:
    """What `check_logits` checks, without a copy: half precision in a file may be more than memory holds.

    `row_numbers` are those of the rows as they were given, where some were left out.
    """
    if logits.ndim < 1 or logits.shape[-1] < 2:
        raise ShapeError(argument, function, expected=_TWO_CLASSES, got=f"shape {tuple(logits.shape)}")
    xp = namespace(logits)
    if is_traced(logits) or not xp.isdtype(logits.dtype, "real floating"):
        return
    # A row's maximum is NaN, +inf or -inf exactly if the row cannot be normalised: one pass finds all three.
    if not bool(xp.all(xp.isfinite(xp.max(logits, axis=-1)))):
        rows = xp.reshape(stop_gradient(logits), (-1, logits.shape[-1]))
        worst = xp.max(rows, axis=-1)
        row = int(xp.argmax(xp.astype(~xp.isfinite(worst), xp.int32)))
        number = row if row_numbers is None else int(row_numbers[row])
        raise DataError(argument, function, expected=FINITE_ROWS, got=f"{not_finite(rows[row, :])} in row {number}")


def not_finite(row: Array) -> str:
    """What keeps a row of logits from being normalised."""
    xp = namespace(row)
    return "NaN" if bool(xp.any(xp.isnan(row))) else "+inf" if float(xp.max(row)) > 0 else "only -inf"


def check_log_odds(values: Any, argument: str, function: str) -> tuple[Array, Any]:
    """Log-odds of any shape, ready to compute with, and the dtype of the result; -inf and +inf are ordinary values."""
    array, dtype = as_floating(values, argument, function)
    if not is_traced(array) and bool(namespace(array).any(namespace(array).isnan(array))):
        raise DataError(argument, function, expected="free of NaN", got="NaN")
    return array, dtype


def check_shape(array: Any, shape: tuple[int, ...], argument: str, function: str, remark: str = "") -> None:
    """An array of this shape, or none at all; a `remark` on the shape for the error."""
    if array is not None and tuple(array.shape) != shape:
        raise ShapeError(argument, function, expected=f"of shape {shape}{remark}", got=f"shape {tuple(array.shape)}")


def check_parameter(value: Any, argument: str, function: str, *, above: float, like: Array) -> Array:
    """A finite setting greater than `above`: a number, or one for each row of `like`; the last axis is added here."""
    value = _finite_setting(value, argument, function, {"above": above}, like)
    rows = tuple(like.shape[:-1])
    if value.ndim > 0 and tuple(value.shape) != rows:
        expected = f"a number or an array of shape {rows}"
        raise ShapeError(argument, function, expected=expected, got=f"shape {tuple(value.shape)}")
    return value[..., None]


def check_broadcast(value: Any, argument: str, function: str, *, like: Array, **bounds: float) -> Array:
    """Finite numbers within `bounds` as for `check_number`: one, or an array that broadcasts to the shape of `like`."""
    value = _finite_setting(value, argument, function, bounds, like)
    pairs = zip(value.shape[::-1], like.shape[::-1], strict=False)
    if value.ndim > like.ndim or any(mine not in (1, theirs) for mine, theirs in pairs):
        expected = f"a number or an array that broadcasts to shape {tuple(like.shape)}"
        raise ShapeError(argument, function, expected=expected, got=f"shape {tuple(value.shape)}")
    return value


def check_class_weight(value: Any, function: str, *, like: Array, also: str = "") -> Array:
    """One factor above 0 for each class on the last axis of `like`; `also` says what else may be given."""
    kind = f"{also}an array of numbers, all of them"
    index: Any = getattr(value, "index", None)
    has_index = getattr(value, "ndim", 0) == 1 and index is not None and not callable(index)
    if has_index and list(index) != list(range(len(index))):
        expected = f"{also}an array of numbers in the order of the columns"
        got = f"a {type(value).__name__} with an index of its own, {', '.join(str(key) for key in list(index)[:6])}"
        raise ParameterError("class_weight", function, expected=expected, got=got)
    value = _finite_setting(value, "class_weight", function, {"above": 0.0}, like, kind)
    if tuple(value.shape) != (like.shape[-1],):
        expected = f"of shape ({like.shape[-1]},), one factor for each class"
        raise ParameterError("class_weight", function, expected=expected, got=f"shape {tuple(value.shape)}")
    return value


def _finite_setting(
    value: Any, argument: str, function: str, bounds: dict[str, float], like: Array, kind: str = "a number,"
) -> Array:
    """A setting as an array of the library and dtype of `like`, with all values finite and within bounds."""
    xp = namespace(like)
    domain = " and ".join(["finite", *(f"{_BOUNDS[name][0]} {bound:g}" for name, bound in bounds.items())])
    if isinstance(value, (bool, str, bytes)) or value is None:
        raise ParameterError(argument, function, expected=f"{kind} {domain}", got=repr(value))
    if not is_torch(value) and (not array_api_compat.is_array_api_obj(value) or isinstance(value, np.ndarray)):
        try:
            value = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ParameterError(argument, function, expected=f"{kind} {domain}", got=repr(value)) from error
    value = in_library_of(like, value)
    if not is_traced(value):
        fine = xp.isfinite(value)
        for name, bound in bounds.items():
            fine = fine & _BOUNDS[name][1](value, bound)
        if not bool(xp.all(fine)):
            bad = float(stop_gradient(value)[~fine][0]) if value.ndim > 0 else float(value)
            raise ParameterError(argument, function, expected=domain, got=repr(bad))
    return xp.astype(value, like.dtype)


def check_finite(values: Any, argument: str, function: str, error: type[InputError] = DataError) -> Vector:
    """Finite numbers of any array library, as NumPy has them in double precision."""
    numbers: Vector = to_numpy(as_floating(values, argument, function)[0]).astype(np.float64)
    if not np.all(np.isfinite(numbers)):
        raise error(argument, function, expected="finite", got="NaN or an infinity")
    return numbers


def check_integer(value: Any, argument: str, function: str, *, least: int = 1, most: int | None = None) -> int:
    """An integer within bounds."""
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_integer or value < least or (most is not None and value > most):
        expected = f"an integer of at least {least}" if most is None else f"an integer from {least} to {most}"
        raise ParameterError(argument, function, expected=expected, got=repr(value))
    return int(value)


def check_seed(seed: Any, function: str) -> int:
    """The seed of random numbers."""
    return check_integer(seed, "seed", function, least=0)


def check_number(value: Any, argument: str, function: str, *, also: str = "", **bounds: float) -> float:
    """A finite number within `bounds`: above, least, below, most; `also` says what else the argument may be."""
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not all(_BOUNDS[name][1](value, bound) for name, bound in bounds.items()):
        domain = " and ".join(f"{_BOUNDS[name][0]} {bound:g}" for name, bound in bounds.items())
        expected = f"{also}a finite number {domain}".rstrip()
        raise ParameterError(argument, function, expected=expected, got=repr(value))
    return float(value)


def check_option(value: Any, options: tuple[str, ...], argument: str, function: str) -> None:
    """One of a few words."""
    if not isinstance(value, str) or value not in options:
        words = ", ".join(repr(option) for option in options)
        close = difflib.get_close_matches(value, options, n=1) if isinstance(value, str) else []
        meant = f" (did you mean {close[0]!r}?)" if close else ""
        raise ParameterError(argument, function, expected=f"one of {words}", got=f"{value!r}{meant}")


def check_iterable(values: Any, argument: str, function: str, expected: str) -> None:
    """What is read item by item: no text, no mapping and no single number."""
    has_items = isinstance(values, Iterable) or hasattr(values, "__getitem__")  # as the data sets of torch have
    if not has_items or isinstance(values, (str, bytes, Mapping)) or getattr(values, "ndim", 1) == 0:
        raise DataError(argument, function, expected=expected, got=f"{values!r:.80}")


def check_path(path: Any, argument: str, function: str) -> str:
    """The path of a file, as text."""
    if not isinstance(path, (str, os.PathLike)):
        raise ParameterError(argument, function, expected="a path", got=f"{path!r:.80}")
    return os.fspath(path)


def check_out(out: Any, values: Any, function: str) -> None:
    """A NumPy array that results of the shape of `values` can be written into."""
    is_fit = isinstance(out, np.ndarray) and out.dtype.kind == "f" and out.flags.writeable
    if not is_fit or not isinstance(values, np.ndarray) or out.shape != values.shape:
        expected = "a writeable NumPy array of floating-point numbers with the shape of 'X', itself a NumPy array"
        raise ShapeError("out", function, expected=expected, got=f"{type(out).__name__} of shape {np.shape(out)}")
    if np.shares_memory(out, values) and not is_same_memory(out, values):
        expected = "apart from 'X' in memory, or 'X' itself"
        raise DataError("out", function, expected=expected, got="an array that overlaps with 'X'")


def is_same_memory(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two arrays have the same entries in the same places of the memory."""
    layouts = [
        (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype) for array in (one, other)
    ]
    return layouts[0] == layouts[1]


def check_probabilities(values: Any, argument: str, function: str) -> Array:
    """Rows of probabilities, classes on the last axis: none negative, and 1 in sum within the tolerance.

    Those of bfloat16 are made to sum to 1, where rounding alone keeps them from it.
    """
    p, given = as_floating(values, argument, function)
    xp = namespace(p)
    if p.ndim < 1 or p.shape[-1] < 2:
        raise ShapeError(argument, function, expected=_TWO_CLASSES, got=f"shape {tuple(p.shape)}")
    if is_traced(p) or math.prod(p.shape) == 0:
        return p
    check_not_negative(float(xp.min(p)), argument, function)
    p = without_rounding_of_sums(p) if float(xp.finfo(given).eps) > SUM_TOLERANCE else p
    check_sums(xp.reshape(xp.sum(p, axis=-1), (-1,)), SUM_TOLERANCE, argument, "rows that sum to 1", function)
    return p


def without_rounding_of_sums(p: Array) -> Array:
    """Rows of probabilities that were given in bfloat16, divided by their sums where these are 1 but for rounding.

    Who sees the same numbers in single precision would refuse them.

    >>> import numpy as np
    >>> without_rounding_of_sums(np.array([[0.5, 0.504], [0.5, 0.6]])).sum(axis=1).round(3).tolist()
    [1.0, 1.1]
    """
    xp = namespace(p)
    rounding = 2.0**-7  # of a number of bfloat16, and so of a sum of such
    sums = xp.sum(p, axis=-1)[..., None]
    return p / xp.where(xp.abs(sums - 1.0) <= rounding, sums, xp.ones_like(sums))


def check_one_column(values: Array, kind: str, argument: str, function: str) -> Array:
    """Two classes as one number per row, p or log-odds of class 1 (a single logit is one): checked, as two columns."""
    values, _ = as_floating(values, argument, function)
    xp = namespace(values)
    if is_traced(values) or math.prod(values.shape) == 0:
        return two_columns(values, kind)
    lowest = float(xp.min(values))
    highest = float(xp.max(values))
    if kind == "probabilities":
        check_not_negative(lowest, argument, function)
        if not highest <= 1.0 + NEGATIVE_TOLERANCE:
            raise DataError(argument, function, expected="at most 1", got=f"a value of {highest:.6g}")
        return two_columns(xp.clip(values, 0.0, 1.0), kind)
    if not (math.isfinite(lowest) and math.isfinite(highest)):
        got = "NaN" if math.isnan(lowest) else f"a value of {lowest if math.isinf(lowest) else highest}"
        raise DataError(argument, function, expected="finite log-odds, one number per row for two classes", got=got)
    fewest_to_doubt = 20  # from this number of log-odds on it is no accident if all lie between 0 and 1
    if 0.0 <= lowest <= highest <= 1.0 and values.shape[0] >= fewest_to_doubt:
        text = f"all values of '{argument}' lie between 0 and 1, as probabilities do; log-odds were expected."
        warn(InputWarning(text, Remedy.PROBABILITIES, function))
    return two_columns(values, kind)


def check_not_negative(lowest: float, argument: str, function: str) -> None:
    """The smallest of some probabilities is none below 0, but for rounding."""
    if not lowest >= -NEGATIVE_TOLERANCE:  # NaN fails this comparison too
        expected = "free of NaN and negative values"
        got = "NaN"
        if lowest < 0.0:
            expected = f"{expected} (logits may be negative: are these some?)"
            got = f"a value of {lowest:.6g}"
        raise DataError(argument, function, expected=expected, got=got)


def check_sums(sums: Array, tolerance: float, argument: str, what: str, function: str) -> None:
    """Sums of rows are 1 within a tolerance."""
    xp = namespace(sums)
    off = xp.abs(sums - 1.0)
    if not float(xp.max(off)) <= tolerance:
        worst = int(xp.argmax(xp.where(xp.isnan(off), xp.inf, off)))
        expected = f"made of {what} within {tolerance:.3g}"
        # Sums a little beside 1 are those of rounded probabilities.
        rounded = 0.1  # rows whose sums are no farther from 1 were probabilities before they were rounded
        remedy = Remedy.RENORMALISE if float(xp.max(off)) <= rounded else None
        raise DataError(argument, function, expected=expected, got=f"a sum of {float(sums[worst]):.6g}", remedy=remedy)


def sum_of_parts(values: Array, argument: str, function: str) -> int | None:
    """1 if every row looks like probabilities, 100 if like percentages, None if like neither; a few rows tell at once.

    >>> import numpy as np
    >>> sum_of_parts(np.array([[20.0, 80.0], [99.5, 0.5]]), "X", "f"), sum_of_parts(np.array([[0.2, 0.7]]), "X", "f")
    (100, None)
    """
    common = {1, 100}
    blocks = row_blocks(values.shape[0], math.prod(values.shape[1:]), entries=1 << 22)
    for rows in (slice(0, min(64, values.shape[0])), *blocks):  # array libraries may refuse an end beyond the rows
        part, _ = as_floating(values[rows, ...], argument, function)
        xp = namespace(part)
        if not bool(xp.min(part) >= 0.0):
            return None
        sums = xp.sum(part, axis=-1)
        common = {whole for whole in common if float(xp.max(xp.abs(sums / whole - 1.0))) <= SUM_TOLERANCE}
        if not common:
            return None
    return common.pop()


def warn_of_sums(whole: int, argument: str, function: str) -> None:
    """Warn that rows with this sum look like probabilities, or percentages, where logits are expected."""
    like, remedy = ("probabilities", Remedy.PROBABILITIES) if whole == 1 else ("percentages", Remedy.PERCENTAGES)
    text = f"all rows of '{argument}' sum to {whole}, as {like} do; logits were expected."
    warn(InputWarning(text, remedy, function))


def check_weight(values: Any, shape: tuple[int, ...], function: str, argument: str = "sample_weight") -> Vector:
    """Sample weights as a vector, one for each label: none negative, of a sum that neither vanishes nor overflows."""
    weight: Vector = to_numpy(as_floating(values, argument, function)[0]).astype(np.float64, copy=False)
    check_shape(weight, shape, argument, function)
    if weight.size == 0:
        return weight.reshape(-1)  # of no rows, which are an error of the scores
    with np.errstate(over="ignore"):
        lowest = float(weight.min())
        total = float(weight.sum())
    if not (lowest >= 0.0 and SMALL <= total <= LARGE):
        expected = f"free of negative values, not all zero, and of a sum between {SMALL:g} and {LARGE:g}"
        got = f"weights with minimum {lowest:g} and sum {total:g}"
        raise DataError(argument, function, expected=expected, got=got)
    return weight.reshape(-1)


def check_labels(
    values: Any, logits: Array, function: str, argument: str = "labels", remedy: Remedy | None = None
) -> Array:
    """Labels 0 … C-1, one for each row of `logits`, as an array of the same library and device."""
    labels = indices_beside(logits, whole_numbers(as_array(values, argument, function), argument, function))
    check_shape(labels, tuple(logits.shape[:-1]), argument, function, ", one label for each row of logits")
    xp = namespace(logits)
    n_classes = int(logits.shape[-1])
    if not is_traced(labels) and math.prod(labels.shape) > 0:
        check_label_range(int(xp.min(labels)), int(xp.max(labels)), n_classes, argument, function, remedy)
    return labels


def whole_numbers(labels: Array, argument: str, function: str) -> Array:
    """Labels as integers: so are booleans, and floats without a fraction."""
    xp = namespace(labels)
    if xp.isdtype(labels.dtype, "integral"):
        return labels
    if xp.isdtype(labels.dtype, "real floating") and not is_traced(labels):
        expected = "integers or other whole numbers"
        if not bool(xp.all(xp.isfinite(labels))):
            raise LabelError(argument, function, expected=expected, got=f"Input {argument} contains NaN or infinity")
        if not bool(xp.all(labels == xp.round(labels))):
            raise LabelError(argument, function, expected=expected, got="Unknown label type: continuous numbers")
    elif not xp.isdtype(labels.dtype, "bool"):
        raise LabelError(argument, function, expected="integers", got=f"dtype {labels.dtype}")
    return xp.astype(labels, xp.asarray(0).dtype)


def check_label_range(
    lowest: int, highest: int, n_classes: int, argument: str, function: str, remedy: Remedy | None = None
) -> None:
    """Labels between 0 and C-1; those that usually mark rows without one have their own remedy."""
    if lowest >= 0 and highest < n_classes:
        return
    ignored = next((label for label in (lowest, highest) if label in IGNORED), None)
    remark = "" if ignored is None else f"; {ignored} names no class{'' if remedy else ': leave such rows out'}"
    expected = f"between 0 and {n_classes - 1}{remark}"
    got = f"labels from {lowest} to {highest}"
    raise LabelError(argument, function, expected=expected, got=got, remedy=None if ignored is None else remedy)


def number_of_text(text: str) -> float:
    """The number that a text is; a ValueError where it is none.

    Python also reads 0_251, as 251, which no table means.

    >>> number_of_text("2.5e3")
    2500.0
    >>> number_of_text("0_251")
    Traceback (most recent call last):
    ValueError: no number: '0_251'
    """
    if "_" in text:
        raise ValueError(f"no number: {text!r}")
    return float(text)
