"""The C engine, for NumPy arrays and bfloat16 tensors on the CPU: kernel.c, called through ctypes.

The library is compiled when the package is installed (hatch_build.py). Without it `plan` returns None.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, Flags, Indices, Vector, is_torch, to_numpy
from refocal.engine.protocol import OCTAVES, Plan, missing
from refocal.maps.chain import Program

# Entries of a part, the unit of work of a thread, and its fewest rows: the compiled passes take eight side by side.
PART, PART_ROWS = 1 << 18, 8
# The number of entries from which a second thread is worth starting.
THREADS_FROM = 1 << 19
# Rows of half precision with at least this number of classes, as in a vocabulary, are computed in single precision.
WIDE = 1 << 12

# The scratch memory of a pass, in bytes: for each class four vectors of kernel.c, or seven for vector scaling, and
# space to align them; and how much of it all threads may have together.
VECTOR, ALIGNMENT, SCRATCH = 32, 64, 1 << 28
VECTORS = 4 * VECTOR

levels = affine = missing


class _Data(ctypes.Structure):
    """`Data` of kernel.c."""

    _fields_ = (
        ("logits", ctypes.c_void_p),
        ("is_double", ctypes.c_int64),
        ("stride", ctypes.c_int64),
        ("labels", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("n_rows", ctypes.c_int64),
        ("n_classes", ctypes.c_int64),
        ("counts", ctypes.c_void_p),
    )


@functools.cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(Path(__file__).with_name("libkernel.so")))
    except OSError:
        return None
    data, number, pointer = ctypes.POINTER(_Data), ctypes.c_double, ctypes.c_void_p
    taken = {
        "temperature": (data, number, pointer, pointer),
        "focal": (data, number, number, pointer, pointer),
        "split": (data, number, number, pointer, pointer, ctypes.c_int64),
        "predict": (data, pointer, ctypes.c_int64, number, *(pointer,) * 4, ctypes.c_int64),
        "vector": (data, pointer, pointer, pointer),
        "apply_chain": (data, pointer, ctypes.c_int64, pointer, ctypes.c_int64, pointer, ctypes.c_int64, pointer),
        "inspect": (data, pointer, pointer, pointer),
        "condense": (data, number, ctypes.c_int64, *(pointer,) * 4),
        "spline": (*(pointer,) * 3, ctypes.c_int64, pointer, ctypes.c_int64, *(pointer,) * 3),
        "widen": (pointer, pointer, ctypes.c_int64),
    }
    for single in ("temperature", "focal", "split", "predict", "vector", "apply_chain"):
        taken[f"{single}_single"] = taken[single]
    for name, types in taken.items():
        function = getattr(library, f"refocal_{name}", None)
        if function is None:  # compiled from an older kernel.c
            return None
        function.argtypes, function.restype = types, None
    return library


def is_compiled() -> bool:
    """Whether there are compiled passes."""
    return _library() is not None


def plan(logits: Any) -> Plan | None:
    """Parts computed by several threads and summed in double precision; float32 logits also have a rough mode."""
    on_cpu = isinstance(logits, np.ndarray) or (is_torch(logits) and logits.device.type == "cpu")
    if not on_cpu or _library() is None:
        return None
    threads, size = n_threads() if math.prod(logits.shape) >= THREADS_FROM else 1, logits.dtype.itemsize
    threads = min(threads, max(1, SCRATCH // (VECTORS * logits.shape[-1])))
    is_rough = size <= 2 and logits.shape[-1] >= WIDE
    precision = np.finfo(np.float32 if is_rough else np.float64).eps
    entries = max(PART, PART_ROWS * logits.shape[-1])
    return Plan(entries, threads, float(precision), has_rough=size <= 4, has_condense=size <= 4, is_rough=is_rough)


def n_threads() -> int:
    """OMP_NUM_THREADS, as everywhere, or else the processors that this process may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def widened(x: Any) -> NDArray[Any]:
    """Half precision as float32, several times faster than NumPy's conversion; other dtypes unchanged."""
    array: NDArray[Any] = to_numpy(x) if is_torch(x) else x
    if array.dtype != np.float16:
        return array
    if _library() is None:
        return array.astype(np.float32)
    half = np.ascontiguousarray(array)
    out = np.empty(half.shape, dtype=np.float32)
    _pass("widen")(half.ctypes.data, out.ctypes.data, half.size)
    return out


# The dtypes that kernel.c accepts; other byte orders and widths are converted.
TAKEN = (np.dtype(np.float32), np.dtype(np.float64))


def _run(
    name: str, rows: tuple[Array, Indices, Vector | None], settings: tuple[Any, ...], *outputs: Any, **options: Any
) -> NDArray[Any]:
    """One compiled pass over logits, labels and weights, converted to what kernel.c takes where needed.

    Returns the first of the outputs. The options are `rough`, in single precision, and the `counts` of condensed rows.
    """
    x, y, weight = rows
    if x.dtype not in TAKEN:
        x = widened(x)
    size = x.dtype.itemsize
    if x.dtype not in TAKEN or x.strides[1] != size or x.strides[0] % size or not x.flags.aligned:
        x = np.ascontiguousarray(x, dtype=np.float32 if x.dtype.kind == "f" and size <= 4 else np.float64)
    y = np.ascontiguousarray(y, dtype=np.int64)
    weight = None if weight is None else np.ascontiguousarray(weight, dtype=np.float64)
    places = x.ctypes.data, y.ctypes.data, None if weight is None else weight.ctypes.data
    data = _Data(places[0], x.itemsize == 8, x.strides[0] // x.itemsize, *places[1:], *x.shape)
    if (counts := options.get("counts")) is not None:
        data.counts = counts.ctypes.data
    memory = np.empty((7 * VECTOR if name == "vector" else VECTORS) * x.shape[1] + ALIGNMENT, dtype=np.uint8)
    place = memory.ctypes.data
    taken = [each.ctypes.data if isinstance(each, np.ndarray) else each for each in (*settings, *outputs)]
    taken.insert(len(settings), place + -place % ALIGNMENT)
    _pass(name, options.get("rough", False))(data, *taken)
    found: NDArray[Any] = outputs[0]
    return found


def temperature(x: NDArray[Any], y: Indices, weight: Vector | None, slope: float, **options: Any) -> Vector:
    """See `Engine.temperature`; the options are those of `_run`."""
    return _run("temperature", (x, y, weight), (slope,), np.empty(3), **options)


def focal(x: NDArray[Any], y: Indices, weight: Vector | None, gamma: float, slope: float, **options: Any) -> Vector:
    """See `Engine.focal`."""
    return _run("focal", (x, y, weight), (gamma, slope), np.empty(6), **options)


def split(x: NDArray[Any], y: Indices, gamma: float, slope: float, *, rough: bool = False) -> Vector:
    """See `Engine.split`."""
    return _run("split", (x, y, None), (gamma, slope), np.empty((2, 6, len(x))), len(x), rough=rough)


def predict(x: NDArray[Any], y: Indices, gammas: tuple[float, ...], slope: float, **options: Any) -> Vector:
    """See `Engine.predict`."""
    some, out = np.array(gammas, dtype=np.float64), np.empty((3, len(gammas), len(x)))
    _run("predict", (x, y, None), (some, len(some), slope), *out, len(x), **options)
    return out


def condense(x: NDArray[Any], y: Indices, unit: float, fine: int) -> NDArray[np.float32]:
    """See `Engine.condense`."""
    out, used = np.empty((2, len(x), 2 + 2 * (OCTAVES << fine)), dtype=np.float32), ctypes.c_int64()
    _run("condense", (x, y, None), (unit, fine), *out, ctypes.byref(used))
    return out[:, :, : used.value]


def vector(x: NDArray[Any], y: Indices, weight: Vector | None, parameters: Vector, *, rough: bool = False) -> Vector:
    """See `Engine.vector`."""
    return _run("vector", (x, y, weight), (parameters,), np.empty(1 + 5 * x.shape[1]), rough=rough)


def inspect(x: NDArray[Any], y: Indices) -> tuple[Flags, float]:
    """See `Engine.inspect`."""
    distance = np.empty(1)
    return _run("inspect", (x, y, None), (), np.empty(len(x), dtype=np.bool_), distance), float(distance[0])


def apply(program: Program, x: NDArray[Any], out: NDArray[Any], log: bool = False) -> int:
    """Probabilities of rows of float32 or float64 logits, or their logarithms, into `out`: the flags of apply.h."""
    size, seen = x.itemsize, ctypes.c_int64()
    data = _Data(_address(x), size == 8, x.strides[0] // size, None, None, *x.shape)
    run = _pass("apply_chain", rough=size == 4)
    steps, numbers = _address(program.steps), _address(program.numbers)
    run(data, steps, len(program.steps), numbers, log, _address(out), out.strides[0] // size, ctypes.byref(seen))
    return seen.value


def spline(
    scores: Vector, targets: Vector, weights: Vector, knots: Vector, pieces: Vector, pull: Vector | None = None
) -> Vector | None:
    """Sums of the log-loss of a curve, as in kernel.c, `pieces` (3, knots + 1); None where there is no kernel.

    The derivative in each score is written into `pull`. All arrays are contiguous and of float64.
    """
    if _library() is None:
        return None
    curve, out = np.concatenate([knots, pieces.ravel()]), np.empty(1 + 8 * (len(knots) + 1))
    memory = np.empty(2 * VECTOR * (len(knots) + 1) + ALIGNMENT, dtype=np.uint8)
    rows = _address(scores), _address(targets), _address(weights), len(scores)
    place = _address(memory)
    ends = place + -place % ALIGNMENT, None if pull is None else _address(pull), _address(out)
    _pass("spline")(*rows, _address(curve), len(knots), *ends)
    return out


def _address(array: NDArray[Any]) -> int:
    """As `array.ctypes.data`, in a third of the time."""
    place: int = array.__array_interface__["data"][0]
    return place


@functools.cache
def _pass(name: str, rough: bool = False) -> Any:
    """A function of the compiled kernel, which `plan` says is there."""
    return getattr(_library(), f"refocal_{name}_single" if rough else f"refocal_{name}")
