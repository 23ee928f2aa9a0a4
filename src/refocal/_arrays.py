"""The one door to array libraries, and the one place that checks what users pass in.

Everything above this module is written once against the array API standard and so serves NumPy, torch, JAX and
any other library of the standard. Values are checked whenever they can be read; inside `jax.jit` or
`torch.compile` only shapes and dtypes exist, so there only those are checked.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import array_api_compat
import numpy as np

from refocal.errors import DataError, InputWarning, LabelError, ParameterError, ShapeError

Array = Any
"""An array of any library that follows the array API standard."""

F = TypeVar("F", bound=Callable[..., Any])

# Squares of numbers between the two, and their products with one another, neither vanish nor overflow.
SMALL, LARGE = 1e-100, 1e100


def namespace(*arrays: Array) -> Any:
    """The functions of the library that these arrays come from."""
    if all(is_torch(array) for array in arrays):
        import array_api_compat.torch as functions  # at once: torch.compile can follow this, and not a cached look-up

        return functions
    return array_api_compat.array_namespace(*arrays)


def is_torch(x: Any) -> bool:
    """Whether `x` is a torch tensor; says so without importing torch, and in a form that torch.compile can follow."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def without_warnings(function: F) -> F:
    """Silence NumPy's floating-point warnings where log(0) = -inf and exp(-inf) = 0 are meant."""
    return np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore")(function)


def stop_gradient(x: Array) -> Array:
    """`x` as a constant, for the libraries that differentiate."""
    if is_torch(x):
        return x.detach()
    if array_api_compat.is_jax_array(x):
        return sys.modules["jax"].lax.stop_gradient(x)
    return x


def is_traced(x: Array) -> bool:
    """Whether `x` stands for values that are not there yet (`jax.jit`, `jax.grad`, `torch.compile`, tracing)."""
    if is_torch(x):
        torch = sys.modules["torch"]
        return bool(torch.compiler.is_compiling() or torch.jit.is_tracing())
    if array_api_compat.is_jax_array(x):
        return isinstance(x, sys.modules["jax"].core.Tracer)
    return False


def as_array(values: Any, argument: str, function: str) -> Array:
    """`values` itself if it is an array of a known library, else as a NumPy array."""
    if is_torch(values):
        return _plain_tensor(values, argument, function)
    if array_api_compat.is_array_api_obj(values) and not isinstance(values, np.ndarray):
        return values
    if hasattr(values, "tocsr"):
        raise DataError(argument, function, expected="a dense array", got="a sparse one; call .toarray()")
    refuse_masked(values, argument, function)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ShapeError(argument, function, expected="an array with rows of equal length", got=str(error)) from error
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind == "O" and array.ndim > 0:
        array = _from_objects(array, argument, function)
    if array.dtype.kind == "c":
        raise DataError(argument, function, expected="real", got=f"dtype {array.dtype}. Complex data not supported")
    if array.dtype.kind not in "biuf":
        raise DataError(argument, function, expected=_numbers(argument), got=f"dtype {array.dtype}")
    return array


def _plain_tensor(tensor: Array, argument: str, function: str) -> Array:
    """A torch tensor that can be computed with: dense, with values, and of eight bits only after widening."""
    if tensor.layout is not sys.modules["torch"].strided:
        raise DataError(argument, function, expected="a dense array", got="a sparse one; call .to_dense()")
    if tensor.device.type == "meta":
        raise DataError(argument, function, expected="an array of numbers", got="a tensor on 'meta', which has none")
    return tensor.float() if tensor.is_floating_point() and tensor.itemsize < 2 else tensor


def refuse_masked(values: Any, argument: str, function: str) -> None:
    """NumPy would forget the mask and take what lies below it for numbers."""
    if np.ma.is_masked(values):
        got = f"{np.count_nonzero(np.ma.getmaskarray(values))} of them; leave those rows out"
        raise DataError(argument, function, expected="an array without masked entries", got=got)


def _numbers(argument: str) -> str:
    hint = " (of names of classes: np.searchsorted(classes, names), where classes are sorted)"
    return "an array of numbers" + (hint if argument in ("y_true", "labels") else "")


def _from_objects(array: Any, argument: str, function: str) -> Any:
    """Numbers in an array of Python objects, as data frames of mixed columns give them."""
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(argument, function, expected=_numbers(argument), got=f"dtype object: {error}") from error


def as_floating(values: Any, argument: str, function: str) -> tuple[Array, Any]:
    """`values` in the precision to compute in, and the dtype that the result should have.

    float32 and float64 stay, float16 and bfloat16 are computed in float32, what is longer than float64 in float64;
    integers become the library's default floating dtype.
    """
    array = as_array(values, argument, function)
    xp = namespace(array)
    if not xp.isdtype(array.dtype, "real floating"):
        if not xp.isdtype(array.dtype, "integral"):
            raise DataError(argument, function, expected="an array of real numbers", got=f"dtype {array.dtype}")
        default = xp.asarray(0.0).dtype
        return xp.astype(array, default), default
    bits = xp.finfo(array.dtype).bits
    if bits not in (32, 64):
        return xp.astype(array, xp.float32 if bits < 32 else xp.float64), array.dtype
    return array, array.dtype


def check_logits(values: Any, argument: str, function: str) -> tuple[Array, Any]:
    """Logits or log-probabilities, classes on the last axis, ready to compute with; and the dtype of the result.

    -inf is an ordinary value (a class that cannot occur); NaN, +inf and a row of -inf alone are errors.
    """
    array = as_array(values, argument, function)
    check_rows(array, argument, function)
    return as_floating(array, argument, function)


def check_rows(logits: Array, argument: str, function: str) -> None:
    """What `check_logits` checks, without a copy: half precision in a file may be more than memory holds."""
    if logits.ndim < 1 or logits.shape[-1] < 2:
        raise ShapeError(
            argument,
            function,
            expected="an array with at least two classes on its last axis",
            got=f"shape {tuple(logits.shape)}",
        )
    xp = namespace(logits)
    if is_traced(logits) or not xp.isdtype(logits.dtype, "real floating"):
        return
    # A row's maximum is NaN, +inf or -inf exactly if the row cannot be normalised: one pass finds all three.
    if not bool(xp.all(xp.isfinite(xp.max(stop_gradient(logits), axis=-1)))):
        raise DataError(argument, function, expected="free of NaN and +inf, with a finite value in every row",
                        got=_describe_bad_row(xp, logits))  # fmt: skip


def _describe_bad_row(xp: Any, logits: Array) -> str:
    rows = xp.reshape(stop_gradient(logits), (-1, logits.shape[-1]))
    worst = xp.max(rows, axis=-1)
    row = int(xp.argmax(xp.astype(~xp.isfinite(worst), xp.int32)))
    if bool(xp.any(xp.isnan(rows[row, :]))):
        what = "NaN"
    elif float(worst[row]) > 0:
        what = "+inf"
    else:
        what = "only -inf"
    return f"{what} in row {row}"


def check_labels(values: Any, logits: Array, function: str, argument: str = "labels") -> Array:
    """Integer class labels, one for each row of `logits`, as an array of the same library and device."""
    labels = in_library_of(logits, as_array(values, argument, function))
    xp = namespace(logits)
    if not xp.isdtype(labels.dtype, "integral"):
        raise LabelError(argument, function, expected="integers", got=f"dtype {labels.dtype}")
    if tuple(labels.shape) != tuple(logits.shape[:-1]):
        raise ShapeError(
            argument,
            function,
            expected=f"of shape {tuple(logits.shape[:-1])}, one label for each row of logits",
            got=f"shape {tuple(labels.shape)}",
        )
    n_classes = logits.shape[-1]
    if not is_traced(labels) and math.prod(labels.shape) > 0:
        lowest, highest = int(xp.min(labels)), int(xp.max(labels))
        if lowest < 0 or highest >= n_classes:
            raise LabelError(
                argument,
                function,
                expected=f"between 0 and {n_classes - 1}",
                got=f"labels from {lowest} to {highest}",
            )
    return xp.astype(labels, xp.int64) if not array_api_compat.is_jax_array(labels) else labels


def check_parameter(value: Any, argument: str, function: str, *, above: float, like: Array) -> Array:
    """A finite setting greater than `above`, as an array that broadcasts with `like`.

    It may be a number, or an array with one value for each row of `like`; the last axis is added here.
    """
    xp = namespace(like)
    if isinstance(value, (bool, str, bytes)) or value is None:
        raise ParameterError(argument, function, expected=f"a number {_domain(above)}", got=repr(value))
    if not is_torch(value) and (not array_api_compat.is_array_api_obj(value) or isinstance(value, np.ndarray)):
        try:
            value = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ParameterError(argument, function, expected=f"a number {_domain(above)}", got=repr(value)) from error
    value = in_library_of(like, value)
    rows = tuple(like.shape[:-1])
    if value.ndim > 0 and tuple(value.shape) != rows:
        raise ShapeError(
            argument, function, expected=f"a number or an array of shape {rows}", got=f"shape {tuple(value.shape)}"
        )
    if not is_traced(value):
        fine = xp.isfinite(value) & (value > above)
        if not bool(xp.all(fine)):
            bad = float(stop_gradient(value)[~fine][0]) if value.ndim > 0 else float(value)
            raise ParameterError(argument, function, expected=_domain(above), got=repr(bad))
    return xp.astype(value, like.dtype)[..., None]


def _domain(above: float) -> str:
    return f"finite and greater than {above:g}"


def to_numpy(array: Array) -> Any:
    """A NumPy array of the same values, wherever they lie."""
    if is_torch(array):
        array = stop_gradient(array).cpu()
    elif type(array).__module__.startswith("array_api_strict"):  # which pretends to have several devices
        array = array.to_device(sys.modules["array_api_strict"].Device("CPU_DEVICE"))
    return np.asarray(array)


def in_library_of(other: Array, values: Array) -> Array:
    """`values` as an array of the library of `other`; where that is another one, on the device of `other`."""
    xp = namespace(other)
    if namespace(values) is xp:
        return values
    # torch warns of arrays that cannot be written to, as those of JAX are.
    return xp.asarray(np.require(to_numpy(values), requirements="W"), device=array_api_compat.device(other))


def for_fitting(array: Array) -> Array:
    """The array itself if its library has passes of its own here; as NumPy has it for others of the standard."""
    libraries = (array_api_compat.is_numpy_array, array_api_compat.is_jax_array, array_api_compat.is_cupy_array)
    return array if is_torch(array) or any(known(array) for known in libraries) else to_numpy(array)


def row_blocks(n_rows: int, n_columns: int, entries: int = 1 << 16) -> list[slice]:
    """Slices of rows with about `entries` numbers each: small enough that temporaries stay in the cache."""
    step = max(1, entries // max(1, n_columns))
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


def take_label(values: Array, labels: Array) -> Array:
    """The entry of each row of `values` that its label names."""
    return take(values, labels[..., None])[..., 0]


def take(values: Array, index: Array) -> Array:
    """The entries of each row of `values` that `index` names; both have the same leading axes."""
    if is_torch(values):
        return values.gather(-1, index)  # take_along_dim would tie a compiled graph to one number of rows
    return namespace(values).take_along_axis(values, index, axis=-1)


def check_option(value: Any, options: tuple[str, ...], argument: str, function: str) -> None:
    """One of a few words."""
    if value not in options:
        words = ", ".join(repr(option) for option in options)
        raise ParameterError(argument, function, expected=f"one of {words}", got=repr(value))


def check_probabilities(values: Any, argument: str, function: str, tolerance: float = 1e-3) -> Array:
    """Rows of probabilities, classes on the last axis: at least 0, sums within `tolerance` of 1."""
    p, _ = as_floating(values, argument, function)
    xp = namespace(p)
    if p.ndim < 1 or p.shape[-1] < 2:
        raise ShapeError(
            argument,
            function,
            expected="an array with at least two classes on its last axis",
            got=f"shape {tuple(p.shape)}",
        )
    if is_traced(p):
        return p
    if not bool(xp.all(p >= 0.0)):  # NaN fails this comparison too
        got = "NaN" if bool(xp.any(xp.isnan(p))) else f"{float(xp.min(p)):g} among them; are these logits?"
        raise DataError(argument, function, expected="free of NaN and at least 0", got=got)
    off = xp.max(xp.abs(xp.sum(p, axis=-1) - 1.0)) if math.prod(p.shape) else xp.asarray(0.0)
    if float(off) > tolerance:
        raise DataError(
            argument,
            function,
            expected=f"probabilities whose rows sum to 1 within {tolerance:g}",
            got=f"a row that is off by {float(off):.3g}",
        )
    return p


def log_probabilities(probabilities: Array) -> Array:
    """Logarithms of probabilities; one below the dtype's machine epsilon counts as that epsilon."""
    p, _ = as_floating(probabilities, "probabilities", "log_probabilities")
    xp = namespace(p)
    return xp.log(xp.clip(p, float(xp.finfo(p.dtype).eps), None))


def sum_of_parts(rows: Array) -> int | None:
    """1 if every row looks like probabilities, 100 if like percentages, None if like neither.

    >>> import numpy as np
    >>> sum_of_parts(np.array([[20.0, 80.0], [99.5, 0.5]])), sum_of_parts(np.array([[0.2, 0.7]]))
    (100, None)
    """
    xp = namespace(rows)
    if not bool(xp.min(rows) >= 0.0):
        return None
    sums = xp.sum(rows, axis=-1)
    return next((whole for whole in (1, 100) if float(xp.max(xp.abs(sums / whole - 1.0))) <= 1e-3), None)


def like_probabilities(whole: int, argument: str, function: str, remedy: str) -> str:
    """What to say of rows that are hardly logits."""
    like, so = ("probabilities", remedy) if whole == 1 else ("percentages", f"divide them by 100 and {remedy}")
    return (
        f"All rows of the '{argument}' of {function} sum to {whole}, as {like} do; logits were expected. "
        f"If they are {like}, {so}."
    )


def warn_of_probabilities(values: Array, argument: str, function: str, *, remedy: str) -> None:
    """Rows that all sum to 1, or to 100, and are never negative are hardly logits; the first rows tell at once."""
    whole = sum_of_parts(as_floating(values[: min(64, values.shape[0]), ...], argument, function)[0])
    if whole is None:
        return
    blocks = row_blocks(values.shape[0], math.prod(values.shape[1:]), entries=1 << 22)
    if all(sum_of_parts(as_floating(values[rows, ...], argument, function)[0]) == whole for rows in blocks):
        warnings.warn(like_probabilities(whole, argument, function, remedy), InputWarning, stacklevel=4)


def check_weight(values: Any, shape: tuple[int, ...], function: str) -> Any:
    """Sample weights as a float64 NumPy vector: one for each label, none negative, of a sum that leaves room."""
    array, _ = as_floating(values, "sample_weight", function)
    weight = to_numpy(array).astype(np.float64, copy=False)
    if weight.shape != shape:
        raise ShapeError("sample_weight", function, expected=f"of shape {shape}", got=f"shape {weight.shape}")
    with np.errstate(over="ignore"):
        lowest, total = float(weight.min()), float(weight.sum())
    if not (lowest >= 0.0 and SMALL <= total <= LARGE):
        raise DataError(
            "sample_weight",
            function,
            expected=f"free of negative values, not all zero, and of a sum between {SMALL:g} and {LARGE:g}",
            got=f"weights with minimum {lowest:g} and sum {total:g}",
        )
    return weight.reshape(-1)
