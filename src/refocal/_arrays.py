"""Access to array libraries, the only place that knows them.

Everything above this module is written once against the array API standard and so serves NumPy, torch, JAX and any
other library of the standard.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from refocal.errors import DataError, ShapeError

Array = Any
"""An array of any library that follows the array API standard."""
Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.floating[Any]]
Flags: TypeAlias = NDArray[np.bool_]
Indices: TypeAlias = NDArray[np.int64]

SMALLEST = float(np.finfo(np.float32).tiny)
"""The smallest probability that every precision to compute in can hold."""

NUMBERS = "an array of numbers"
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def namespace(*arrays: Array) -> Any:
    """The functions of the library that these arrays come from."""
    if all(is_torch(array) for array in arrays):
        import array_api_compat.torch as functions  # at once: torch.compile can follow this, and not a cached look-up

        return functions
    return array_api_compat.array_namespace(*arrays)


def is_torch(x: Any) -> bool:
    """Whether `x` is a torch tensor; does not import torch, and torch.compile can follow it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def on_gpu(x: Any) -> bool:
    """Whether `x` is a torch tensor on a GPU that computes in float64."""
    return is_torch(x) and x.device.type in ("cuda", "xpu")


def is_dask(x: Any) -> bool:
    """Whether `x` is an array, a DataFrame or a Series of Dask."""
    return type(x).__module__.partition(".")[0] in ("dask", "dask_expr")


def is_zarr_array(x: Any) -> bool:
    """Whether `x` is an array of Zarr."""
    return type(x).__module__.startswith("zarr.")


def is_bfloat16(x: Array) -> bool:
    """Whether `x` is in bfloat16, of torch or of ml_dtypes for NumPy, which has no such numbers of its own."""
    if isinstance(x, np.ndarray) and x.dtype.isbuiltin == 1:  # a name takes as long as a pass over a hundred rows
        return False
    return str(x.dtype).removeprefix("torch.") == "bfloat16"


def without_last_digits(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers rounded to 24 significant bits, by which they are compared where last digits are not to decide.

    >>> without_last_digits(np.array([0.1 + 0.2, 0.3, -0.0])).tolist()
    [0.30000001192092896, 0.30000001192092896, 0.0]
    """
    n_dropped = np.uint64(29)  # of the 53 bits of a double
    half = np.uint64(1) << (n_dropped - np.uint64(1))
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
    rounded: NDArray[np.float64] = (((bits + half) >> n_dropped) << n_dropped).view(np.float64)
    return np.where(np.isfinite(values), rounded, values)


def without_warnings(function: FunctionT) -> FunctionT:
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
    """Whether `x` is a symbol without values (`jax.jit`, `jax.grad`, `torch.compile`, tracing)."""
    if is_torch(x):
        torch = sys.modules["torch"]
        return bool(torch.compiler.is_compiling() or torch.jit.is_tracing())
    if array_api_compat.is_jax_array(x):
        return isinstance(x, sys.modules["jax"].core.Tracer)
    return False


def is_recorded(x: Array) -> bool:
    """Whether operations on a tensor are recorded, to compile them or to differentiate."""
    return is_traced(x) or bool(x.requires_grad and sys.modules["torch"].is_grad_enabled())


def is_plain_tensor(x: Array) -> bool:
    """Whether `x` holds floating-point numbers on a GPU, and operations on it are not recorded."""
    return on_gpu(x) and x.is_floating_point() and x.itemsize >= 2 and not is_recorded(x)


def as_array(values: Any, argument: str, function: str) -> Array:
    """`values` itself if it is an array of a known library, otherwise a NumPy array."""
    if is_torch(values):
        if values.layout is not sys.modules["torch"].strided:
            raise DataError(argument, function, expected="a dense array", got="a sparse one; call .to_dense()")
        if values.device.type == "meta":
            raise DataError(argument, function, expected=NUMBERS, got="a tensor on 'meta', which has none")
        return values.float() if values.is_floating_point() and values.itemsize < 2 else values  # eight bits: widened
    if array_api_compat.is_array_api_obj(values) and not isinstance(values, np.ndarray):
        return values
    if hasattr(values, "tocsr"):
        raise DataError(argument, function, expected="a dense array", got="a sparse one; call .toarray()")
    if np.ma.is_masked(values):
        raise masked_error(values, argument, function)
    try:
        array = np.asarray(values)
    except ValueError as error:
        got = "rows of different lengths" if "inhomogeneous" in str(error) else str(error)
        raise ShapeError(argument, function, expected="an array with rows of equal length", got=got) from error
    if is_bfloat16(array):
        array = from_bfloat16(array)
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    hint = " (of names of classes: np.searchsorted(classes, names), where classes are sorted)"
    expected = NUMBERS + (hint if argument in ("y_true", "labels") else "")
    if array.dtype.kind == "O" and array.ndim == 0:
        advice = "; call .collect()" if hasattr(values, "collect") else ""  # as lazy data frames have it
        got = f"dtype object, of the type {type(values).__name__}{advice}"
        raise DataError(argument, function, expected=expected, got=got)
    if array.dtype.kind == "O":  # as data frames of mixed columns give them
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(argument, function, expected=expected, got=f"dtype object: {error}") from error
    if array.dtype.kind == "c":
        raise DataError(argument, function, expected="real", got=f"dtype {array.dtype}. Complex data not supported")
    if array.dtype.kind not in "biuf":
        raise DataError(argument, function, expected=expected, got=f"dtype {array.dtype}")
    return array


def masked_error(values: Any, argument: str, function: str) -> DataError:
    """The error for a masked array, whose mask NumPy would drop and whose masked entries it would use."""
    got = f"{np.count_nonzero(np.ma.getmaskarray(values))} of them; leave those rows out"
    return DataError(argument, function, expected="an array without masked entries", got=got)


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


def in_single(values: Any) -> Any:
    """Numbers of half precision, float16 and bfloat16, in float32; anything else as it is.

    >>> in_single(np.array([0.5], np.float16)).dtype
    dtype('float32')
    """
    if str(getattr(values, "dtype", "")).removeprefix("torch.") not in ("float16", "bfloat16"):
        return values
    return values.astype(np.float32) if is_dask(values) else as_floating(values, "X", "predict")[0]


def to_numpy(array: Array) -> Any:
    """A NumPy array of the same values, wherever they lie; bfloat16, which NumPy lacks, as float32."""
    if is_torch(array):
        array = stop_gradient(array).cpu()
        array = array.float() if is_bfloat16(array) else array
    elif type(array).__module__.startswith("array_api_strict"):  # which pretends to have several devices
        array = array.to_device(sys.modules["array_api_strict"].Device("CPU_DEVICE"))
    array = np.asarray(array)
    return from_bfloat16(array) if is_bfloat16(array) else array


def from_bfloat16(array: NDArray[Any]) -> NDArray[np.float32]:
    """An array of ml_dtypes' bfloat16, the upper halves of float32, as float32."""
    return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def in_half(p: NDArray[np.float32]) -> NDArray[np.float16]:
    """Numbers from 0 to 1 in half precision, as `astype` has them: that takes 60 ns for each below 2⁻¹⁴.

    Below 2⁻¹⁴ half precision counts in steps of 2⁻²⁴, and its bits are that count.

    >>> in_half(np.array([0.5, 1e-6], np.float32)) == np.array([0.5, 1e-6], np.float16)
    array([ True,  True])
    """
    small = p < 2.0**-14
    half = np.where(small, np.float32(0.0), p).astype(np.float16)
    steps = np.rint(np.where(small, p, np.float32(0.0)) * np.float32(2.0**24)).astype(np.uint16)
    np.copyto(half.view(np.uint16), steps, where=small)
    return half


def in_library_of(other: Array, values: Array) -> Array:
    """`values` as an array of the library of `other`, on its device."""
    xp = namespace(other)
    if namespace(values) is xp:
        return values.to(other.device) if is_torch(values) else values
    # torch warns of arrays that cannot be written to, as those of JAX are.
    return xp.asarray(np.require(to_numpy(values), requirements="W"), device=array_api_compat.device(other))


def indices_beside(other: Array, values: Array) -> Array:
    """Integers as int64, or what JAX has for it, in the library of `other` and on its device."""
    if isinstance(other, np.ndarray):
        return to_numpy(values).astype(np.int64, copy=False)
    indices = in_library_of(other, values)
    xp = namespace(indices)
    return indices if array_api_compat.is_jax_array(indices) else xp.astype(indices, xp.int64, copy=False)


def for_fitting(array: Array) -> Array:
    """The array itself if an engine supports its library; otherwise as a NumPy array."""
    libraries = (array_api_compat.is_numpy_array, array_api_compat.is_jax_array, array_api_compat.is_cupy_array)
    return array if is_torch(array) or any(known(array) for known in libraries) else to_numpy(array)


def row_blocks(n_rows: int, n_columns: int, entries: int = 1 << 16) -> list[slice]:
    """Slices of rows with about `entries` numbers each: small enough that temporaries stay in the cache."""
    step = max(1, entries // max(1, n_columns))
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


def class_axes(values: tuple[int, ...], labels: tuple[int, ...]) -> list[int]:
    """Which axes may hold the classes: 1, as in images (N, C, H, W), and the last, where the labels have the others."""
    axes = sorted({1, len(labels)}) if len(values) == len(labels) + 1 else []
    return [axis for axis in axes if values[:axis] + values[axis + 1 :] == labels]


def take_label(values: Array, labels: Array) -> Array:
    """The entry of each row of `values` that its label names."""
    return take(values, labels[..., None])[..., 0]


def take(values: Array, index: Array) -> Array:
    """The entries of each row of `values` that `index` names; both have the same leading axes."""
    if is_torch(values):
        return values.gather(-1, index)  # take_along_dim would tie a compiled graph to one number of rows
    return namespace(values).take_along_axis(values, index, axis=-1)


def cumulative_sum(values: Array) -> Array:
    """Sums along the last axis."""
    if is_torch(values):
        return values.cumsum(-1)  # array-api-compat looks up the library in a cache, which torch.compile cannot follow
    return namespace(values).cumulative_sum(values, axis=-1)


def look_up(table: Array, index: Array) -> Array:
    """The entries of a vector that an array of indices, of any shape, names."""
    if isinstance(table, np.ndarray) and not isinstance(index, np.ndarray):  # a constant of an ONNX graph
        return namespace(index).take(table, index, axis=0)
    return table[index]


def two_columns(values: Array, kind: str) -> Array:
    """One number per row for two classes as two columns: 1 - p and p, or 0 and the log-odds of class 1."""
    xp = namespace(values)
    return xp.stack([1.0 - values if kind == "probabilities" else xp.zeros_like(values), values], axis=-1)


def log_probabilities(probabilities: Array, lowest: float | None = None) -> Array:
    """Logarithms of probabilities; one below `lowest`, or else the dtype's machine epsilon, counts as that."""
    p, _ = as_floating(probabilities, "probabilities", "log_probabilities")
    xp = namespace(p)
    return xp.log(xp.clip(p, float(xp.finfo(p.dtype).eps) if lowest is None else lowest, None))
