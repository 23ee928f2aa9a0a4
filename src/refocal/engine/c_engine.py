"""The C engine, for NumPy arrays and bfloat16 tensors on the CPU: kernel.c, called through ctypes.

The library is compiled when the package is installed (hatch_build.py). Without it `plan` returns None.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, Flags, Indices, Vector, is_torch, to_numpy
from refocal.engine.program import Program
from refocal.engine.protocol import OCTAVES, Plan, missing

PART = 1 << 18
"""Entries of a part, the unit of work of a thread: 2 MB in double precision."""

THREADS_FROM = 1 << 19
"""The number of entries from which a second thread is worth starting."""


class Scratch(NamedTuple):
    """The memory that a pass of kernel.c works in."""

    vector_bytes: int = 32
    """The size of a vector `V`, which holds a number of each of four or eight rows."""
    alignment: int = 64
    """It starts at a multiple of so many bytes, a line of a processor's cache."""
    vectors_per_class: int = 4
    """Its size; that of the pass `vector` is larger."""

    def allocate(self, n_vectors: int) -> NDArray[np.uint8]:
        """Memory for so many vectors, and space to align them."""
        return np.empty(self.vector_bytes * n_vectors + self.alignment, dtype=np.uint8)

    def aligned_address(self, memory: NDArray[np.uint8]) -> int:
        """The first address within the memory that is aligned."""
        address = _address(memory)
        return address + -address % self.alignment


SCRATCH = Scratch()

READABLE = (np.dtype(np.float32), np.dtype(np.float64))
"""The dtypes that kernel.c reads; other byte orders and widths are converted."""

KERNEL_VERSION = 2
"""What `refocal_version` of kernel.c returns: that of the passes which this module calls."""

levels = missing
affine = missing


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


def _is_of_this_source(library: ctypes.CDLL) -> bool:
    """Whether a library was compiled from the kernel.c beside this module: another may compute something else."""
    version = getattr(library, "refocal_version", None)
    if version is None:
        return False
    version.restype = ctypes.c_int64
    return bool(version() == KERNEL_VERSION)


@functools.cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(Path(__file__).with_name("libkernel.so")))
    except OSError:
        return None
    if not _is_of_this_source(library):
        text = "libkernel.so was compiled from another kernel.c and is not used; `python hatch_build.py` compiles it."
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return None
    data = ctypes.POINTER(_Data)
    double = ctypes.c_double
    pointer = ctypes.c_void_p
    integer = ctypes.c_int64
    in_both_precisions = {  # the arguments of each pass, as at the end of kernel.c
        "temperature": (data, double, pointer, pointer),
        "focal": (data, double, double, pointer, pointer),
        "split": (data, double, double, pointer, pointer, integer),
        "predict": (data, pointer, integer, double, pointer, pointer, pointer, pointer, integer),
        "vector": (data, pointer, pointer, pointer),
        "apply_chain": (data, pointer, integer, pointer, integer, pointer, integer, pointer),
    }
    in_double = {
        "inspect": (data, pointer, pointer, pointer),
        "condense": (data, double, integer, pointer, pointer, pointer, pointer),
        "spline": (pointer, pointer, pointer, integer, pointer, integer, pointer, pointer, pointer),
        "widen": (pointer, pointer, integer),
    }
    in_single = {f"{name}_single": types for name, types in in_both_precisions.items()}
    for name, types in {**in_both_precisions, **in_double, **in_single}.items():
        function = getattr(library, f"refocal_{name}")
        function.argtypes = types
        function.restype = None
    return library


def is_compiled() -> bool:
    """Whether there are compiled passes."""
    return _library() is not None


def plan(logits: Any) -> Plan | None:
    """Parts computed by several threads and summed in double precision; float32 logits also have a rough mode."""
    all_scratch = 1 << 28  # bytes: 256 MB, the scratch memory that all threads may have together
    fewest_rows = 8  # of a part: in single precision a pass computes so many side by side
    vocabulary = 1 << 12  # classes from which half precision is computed in single: it has no more digits to keep

    on_cpu = isinstance(logits, np.ndarray) or (is_torch(logits) and logits.device.type == "cpu")
    if not on_cpu or _library() is None:
        return None
    n_classes = logits.shape[-1]
    itemsize = logits.dtype.itemsize
    is_rough = itemsize <= 2 and n_classes >= vocabulary
    scratch = SCRATCH.vector_bytes * SCRATCH.vectors_per_class * n_classes
    most_threads = n_threads() if math.prod(logits.shape) >= THREADS_FROM else 1
    return Plan(
        part_entries=max(PART, fewest_rows * n_classes),
        n_threads=min(most_threads, max(1, all_scratch // scratch)),
        precision=float(np.finfo(np.float32 if is_rough else np.float64).eps),
        has_rough=itemsize <= 4,
        has_condense=itemsize <= 4,
        is_rough=is_rough,
    )


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


class _PassData:
    """Logits, labels and weights in the dtypes and layout that kernel.c reads, and scratch memory for a pass over them.

    What is converted lives as long as this object, which the pass must not outlive.
    """

    def __init__(
        self,
        x: Array,
        y: Indices,
        weight: Vector | None = None,
        *,
        counts: NDArray[np.float32] | None = None,
        vectors_per_class: int = SCRATCH.vectors_per_class,
    ) -> None:
        self._logits = _readable(x)
        self._labels = np.ascontiguousarray(y, dtype=np.int64)
        self._weight = None if weight is None else np.ascontiguousarray(weight, dtype=np.float64)
        self._counts = counts
        n_rows, n_classes = self._logits.shape
        self.data = _Data(
            logits=_address(self._logits),
            is_double=self._logits.itemsize == 8,
            stride=self._logits.strides[0] // self._logits.itemsize,
            labels=_address(self._labels),
            weights=None if self._weight is None else _address(self._weight),
            n_rows=n_rows,
            n_classes=n_classes,
            counts=None if counts is None else _address(counts),
        )
        self._memory = SCRATCH.allocate(vectors_per_class * n_classes)
        self.scratch = SCRATCH.aligned_address(self._memory)


def is_readable(array: NDArray[Any]) -> bool:
    """Whether kernel.c reads and writes such rows (N, C) without a conversion."""
    size = array.itemsize
    has_layout = array.strides[1] == size and array.strides[0] % size == 0
    return array.dtype in READABLE and has_layout and array.flags.aligned


def _readable(x: Array) -> NDArray[Any]:
    """Logits (N, C), converted where kernel.c cannot read them: in half precision to float32, integers to float64."""
    array: NDArray[Any] = x if x.dtype in READABLE else widened(x)
    if is_readable(array):
        return array
    is_narrow = array.dtype.kind == "f" and array.itemsize <= 4
    return np.ascontiguousarray(array, dtype=np.float32 if is_narrow else np.float64)


def temperature(
    x: NDArray[Any],
    y: Indices,
    weight: Vector | None,
    slope: float,
    *,
    rough: bool = False,
    counts: NDArray[np.float32] | None = None,
) -> Vector:
    """See `Engine.temperature`; `counts` are those of condensed rows."""
    rows = _PassData(x, y, weight, counts=counts)
    out = np.empty(3)
    _pass("temperature", rough)(rows.data, slope, rows.scratch, _address(out))
    return out


def focal(
    x: NDArray[Any],
    y: Indices,
    weight: Vector | None,
    gamma: float,
    slope: float,
    *,
    rough: bool = False,
    counts: NDArray[np.float32] | None = None,
) -> Vector:
    """See `Engine.focal`; `counts` are those of condensed rows."""
    rows = _PassData(x, y, weight, counts=counts)
    out = np.empty(6)
    _pass("focal", rough)(rows.data, gamma, slope, rows.scratch, _address(out))
    return out


def split(x: NDArray[Any], y: Indices, gamma: float, slope: float, *, rough: bool = False) -> Vector:
    """See `Engine.split`."""
    rows = _PassData(x, y)
    out = np.empty((2, 6, len(x)))
    _pass("split", rough)(rows.data, gamma, slope, rows.scratch, _address(out), len(x))
    return out


def predict(
    x: NDArray[Any],
    y: Indices,
    gammas: tuple[float, ...],
    slope: float,
    *,
    rough: bool = False,
    counts: NDArray[np.float32] | None = None,
) -> Vector:
    """See `Engine.predict`; `counts` are those of condensed rows."""
    rows = _PassData(x, y, counts=counts)
    gamma = np.array(gammas, dtype=np.float64)
    out = np.empty((3, len(gammas), len(x)))
    label_log_p, confidence, squares = map(_address, out)
    _pass("predict", rough)(
        rows.data, _address(gamma), len(gamma), slope, rows.scratch, label_log_p, confidence, squares, len(x)
    )
    return out


def condense(x: NDArray[Any], y: Indices, unit: float, fine: int) -> NDArray[np.float32]:
    """See `Engine.condense`."""
    rows = _PassData(x, y)
    out = np.empty((2, len(x), 2 + 2 * (OCTAVES << fine)), dtype=np.float32)
    gaps, counts = map(_address, out)
    used = ctypes.c_int64()
    _pass("condense")(rows.data, unit, fine, rows.scratch, gaps, counts, ctypes.byref(used))
    return out[:, :, : used.value]


def vector(x: NDArray[Any], y: Indices, weight: Vector | None, parameters: Vector, *, rough: bool = False) -> Vector:
    """See `Engine.vector`."""
    rows = _PassData(x, y, weight, vectors_per_class=7)  # five numbers are summed up for each class
    out = np.empty(1 + 5 * x.shape[1])
    _pass("vector", rough)(rows.data, _address(parameters), rows.scratch, _address(out))
    return out


def inspect(x: NDArray[Any], y: Indices) -> tuple[Flags, float]:
    """See `Engine.inspect`."""
    rows = _PassData(x, y)
    correct = np.empty(len(x), dtype=np.bool_)
    distance = ctypes.c_double()
    _pass("inspect")(rows.data, rows.scratch, _address(correct), ctypes.byref(distance))
    return correct, distance.value


def apply(program: Program, x: NDArray[Any], out: NDArray[Any], log: bool = False) -> int:
    """Probabilities of `is_readable` logits, or their logarithms, into `out`: the bits of `Findings`."""
    n_rows, n_classes = x.shape
    data = _Data(
        logits=_address(x),
        is_double=x.itemsize == 8,
        stride=x.strides[0] // x.itemsize,
        n_rows=n_rows,
        n_classes=n_classes,
    )
    findings = ctypes.c_int64()
    _pass("apply_chain", rough=x.itemsize == 4)(
        data,
        _address(program.steps),
        len(program.steps),
        _address(program.numbers),
        log,
        _address(out),
        out.strides[0] // out.itemsize,
        ctypes.byref(findings),
    )
    return findings.value


def spline(
    scores: Vector,
    targets: Vector,
    weights: Vector,
    knots: Vector,
    pieces: Vector,
    score_gradient: Vector | None = None,
) -> Vector | None:
    """Sums of the log-loss of a curve, as in kernel.c, `pieces` (3, knots + 1); None where there is no kernel.

    The derivative in each score is written into `score_gradient`. All arrays are contiguous and of float64.
    """
    if _library() is None:
        return None
    n_pieces = len(knots) + 1
    curve = np.concatenate([knots, pieces.ravel()])
    memory = SCRATCH.allocate(2 * n_pieces)
    out = np.empty(1 + 8 * n_pieces)
    _pass("spline")(
        _address(scores),
        _address(targets),
        _address(weights),
        len(scores),
        _address(curve),
        len(knots),
        SCRATCH.aligned_address(memory),
        None if score_gradient is None else _address(score_gradient),
        _address(out),
    )
    return out


def _address(array: NDArray[Any]) -> int:
    """As `array.ctypes.data`, in a third of the time."""
    address: int = array.__array_interface__["data"][0]
    return address


@functools.cache
def _pass(name: str, rough: bool = False) -> Any:
    """A function of the compiled kernel, which `plan` says is there."""
    return getattr(_library(), f"refocal_{name}_single" if rough else f"refocal_{name}")
