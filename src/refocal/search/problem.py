"""The data of a search, and everything that is measured on it, as sums over blocks of rows."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, as_floating, is_torch, namespace, row_blocks, to_numpy, without_warnings
from refocal.maps.forward import focal_temperature
from refocal.maps.row import gaps
from refocal.search import kernel, passes

Vector = NDArray[np.float64]
T = TypeVar("T")

# Entries of a block. The compiled passes keep four rows at a time, so for them it is the share of a thread; the fused
# ones take all at once. Array functions make temporaries of a block's size, which should stay in the cache of a CPU
# and keep a GPU busy.
KERNEL_BLOCK = 1 << 18
CACHE_BLOCK = 1 << 16
GPU_BLOCK = 1 << 24
# Runner-ups are looked for among so many entries.
GAP_ENTRIES = 1 << 20
# From how many entries on a second thread is worth its start.
THREADS_FROM = 1 << 19


class Curvature(NamedTuple):
    """Mean log-loss with its gradient and Hessian in (γ, 1/T)."""

    value: float
    gradient: Vector
    hessian: Vector

    @classmethod
    def of(cls, means: Vector) -> Curvature:
        """From the value and its derivatives in the order of a pass."""
        value, g, b, gg, gb, bb = means
        return cls(float(value), np.array([g, b]), np.array([[gg, gb], [gb, bb]]))


class Predictions(NamedTuple):
    """What calibration is measured on, for each row: log p of the label, p of the top class, the sum of all p²."""

    label_log_p: Vector
    confidence: Vector
    squares: Vector


class LogLoss(Protocol):
    """What Newton's method asks of the data; whether they are in memory makes no difference to it."""

    passes: int
    memo: dict[Any, Any]

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    @property
    def mean_gap(self) -> float:
        """Mean distance from the top logit to the others."""

    @property
    def precision(self) -> float:
        """The machine epsilon that rows are computed in."""

    def part(self, n_rows: int) -> Problem:
        """About so many of the rows, or fewer, in memory."""

    def temperature_curvature(self, slope: float, *, rough: bool = False) -> tuple[float, float, float]:
        """Mean log-loss and its derivatives in 1/T; `rough`: six digits are enough, if that is faster."""

    def curvature(self, gamma: float, temperature: float, *, rough: bool = False) -> Curvature:
        """Mean log-loss, gradient and Hessian in (γ, 1/T)."""


class Problem:
    """Checked logits (N, C), labels and weights; `passes` counts how often all of them were walked through.

    `memo` keeps what several searches on the same data have in common. `Problem.of` gives the last problem again if it
    is still held by somebody and has the same arrays: whoever fits several methods on the same data holds one.

    >>> rng = np.random.default_rng(0)
    >>> logits = 2.0 * rng.normal(size=(1000, 3))
    >>> labels = np.argmax(logits / 2.0 + rng.gumbel(size=logits.shape), axis=1)  # true T = 2
    >>> problem = Problem(logits, labels)
    >>> (at_one,) = problem.predictions((0.0,), 1.0)
    >>> problem.n_rows, at_one.confidence.shape
    (1000, (1000,))
    """

    _last: ClassVar[Callable[[], Problem | None]] = lambda: None

    @classmethod
    def of(cls, logits: Array, labels: Array, weight: Vector | None = None) -> Problem:
        """The problem of these arrays: one that is already there, or a new one."""
        last = cls._last()
        if last is not None and last._is_of(logits, labels, weight):
            return last
        new = cls(logits, labels, weight)
        cls._last = weakref.ref(new)
        return new

    def _is_of(self, *arrays: Array) -> bool:
        return all(_same_memory(mine, other) for mine, other in zip(self._given, arrays, strict=True))

    def __init__(self, logits: Array, labels: Array, weight: Vector | None = None) -> None:
        self._given = (logits, labels, weight)
        self.memo: dict[Any, Any] = {}
        if is_torch(logits) and logits.device.type == "cpu" and namespace(logits).finfo(logits.dtype).bits >= 32:
            logits, labels = to_numpy(logits), to_numpy(labels)  # the same memory, seen by NumPy
        self.logits = logits
        self.labels = labels
        self.weight = weight
        self.passes = 0
        self._engine = _engine_for(logits)
        on_gpu = passes.on_gpu(logits)
        self._weight: Array = weight
        if on_gpu and weight is not None:
            self._weight = namespace(logits).asarray(weight, device=logits.device)
        by_engine = {kernel: KERNEL_BLOCK, passes: GPU_BLOCK if on_gpu else CACHE_BLOCK}
        self._block_entries = by_engine.get(self._engine, int(logits.shape[0]) * int(logits.shape[1]))
        self._total = float(len(labels)) if weight is None else float(weight.sum())
        self._has_rough = self._engine is kernel and logits.dtype.itemsize <= 4

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.logits.shape[0])

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.logits.shape[1])

    @cached_property
    def _inspected(self) -> tuple[NDArray[np.bool_], float]:
        found = self._map(lambda rows: self._engine.inspect(*self._block(rows)))
        return np.concatenate([to_numpy(correct) for correct, _ in found]), sum(float(far) for _, far in found)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether the first largest logit of a row is its label's."""
        return self._inspected[0]

    @property
    def total_gap(self) -> float:
        """The sum of all distances from a row's top logit to its others."""
        return self._inspected[1]

    @property
    def mean_gap(self) -> float:
        """Mean distance from the top logit to the others; 0 if all are equal."""
        return self.total_gap / self.n_rows / (self.n_classes - 1)

    def runner_up_gaps(self) -> Vector:
        """How far the second largest logit of a row lies below the largest, where that is more than rounding."""
        x, given = as_floating(self.logits[: max(1, GAP_ENTRIES // self.n_classes), :], "logits", "fit")
        xp = namespace(x)
        gap, is_top = gaps(xp, x, 1.0)
        second = -xp.max(xp.where(is_top, -xp.inf, gap), axis=-1)
        rounding = 64.0 * float(xp.finfo(given).eps) * xp.abs(xp.max(x, axis=-1))
        return np.asarray(to_numpy(second[(second < xp.inf) & (second > rounding)]), dtype=np.float64)

    @property
    def precision(self) -> float:
        """The machine epsilon that rows are computed in."""
        xp = namespace(self.logits)
        in_double = self._engine is kernel or self.logits.dtype == xp.float64
        return float(np.finfo(np.float64 if in_double else np.float32).eps)

    def part(self, n_rows: int) -> Problem:
        """About `n_rows` of the rows, evenly spread."""
        step = max(1, self.n_rows // n_rows)
        weight = None if self.weight is None else self.weight[::step]
        return Problem(self.logits[::step, :], self.labels[::step], weight)

    def temperature_curvature(self, slope: float, *, rough: bool = False) -> tuple[float, float, float]:
        """Mean log-loss of temperature scaling with first and second derivative in 1/T = `slope`; convex in it."""
        self.passes += 1
        value, first, second = self.temperature_sums(slope, rough=rough) / self._total
        return float(value), float(first), float(second)

    def curvature(self, gamma: float, temperature: float, *, rough: bool = False) -> Curvature:
        """Mean log-loss of focal temperature scaling with gradient and Hessian."""
        self.passes += 1
        return Curvature.of(self.focal_sums(gamma, temperature, rough=rough) / self._total)

    def temperature_sums(self, slope: float, *, rough: bool = False) -> Vector:
        """What `temperature_curvature` gives, summed over the rows."""
        walk = self._pass(self._engine.temperature, rough)
        return self._sum(lambda rows: walk(*self._block(rows), self._rows_weight(rows), slope))

    def focal_sums(self, gamma: float, temperature: float, *, rough: bool = False) -> Vector:
        """What `curvature` gives, summed over the rows: the value and its derivatives γ, b, γγ, γb, bb; b = 1/T."""
        slope, walk = 1.0 / temperature, self._pass(self._engine.focal, rough)
        return self._sum(lambda rows: walk(*self._block(rows), self._rows_weight(rows), gamma, slope))

    def predictions(self, gammas: tuple[float, ...], temperature: float, *, rough: bool = False) -> list[Predictions]:
        """The predictions at one temperature for several γ, which share the softmax."""
        self.passes += len(gammas)
        walk = self._pass(self._engine.predict, rough)
        parts = self._map(lambda rows: walk(*self._block(rows), gammas, 1.0 / temperature))
        table = np.concatenate([to_numpy(part) for part in parts], axis=-1).astype(np.float64, copy=False)
        return [Predictions(*table[:, i]) for i in range(len(gammas))]

    def measure(self, metric: Any, gamma: float, temperature: float) -> float:
        """A metric (labels, probabilities) → float of the whole data."""
        probabilities = np.exp(to_numpy(focal_temperature(self.logits, gamma, temperature)))
        weights = {} if self.weight is None else {"sample_weight": self.weight}
        return float(metric(to_numpy(self.labels), probabilities, **weights))

    def mean(self, values: Vector) -> float:
        """The weighted mean of one number a row."""
        return float(values.mean()) if self.weight is None else float(values @ self.weight) / self._total

    def _pass(self, function: Callable[..., Array], rough: bool) -> Callable[..., Array]:
        """A function of the engine, in single precision where that was asked for and can be had."""
        fits = rough and self._has_rough and self.total_gap < passes.LARGE_SINGLE
        return partial(function, rough=True) if fits else function

    def _block(self, rows: slice) -> tuple[Array, Array]:
        x = self.logits[rows, :]
        if self._engine is passes:
            x = passes.within_reach(as_floating(x, "logits", "fit")[0])
        return x, self.labels[rows]

    def _rows_weight(self, rows: slice) -> Array:
        return None if self._weight is None else self._weight[rows]

    def _sum(self, measured: Callable[[slice], Array]) -> Vector:
        """The sum over all rows of what is summed up for each block; one word from the device for all of them."""
        parts = self._map(measured)
        return np.asarray(to_numpy(sum(parts[1:], start=parts[0])))

    def _map(self, measured: Callable[[slice], T]) -> list[T]:
        """A measure of each block of rows: the same blocks, in the same order, whatever the number of threads."""
        blocks = row_blocks(self.n_rows, self.n_classes, self._block_entries)
        if self._engine is not kernel:
            return [without_warnings(measured)(rows) for rows in blocks]
        threads = min(n_threads(), len(blocks)) if self.n_rows * self.n_classes >= THREADS_FROM else 1
        if threads == 1:
            return [measured(rows) for rows in blocks]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(measured, blocks))


def _same_memory(a: Array, b: Array) -> bool:
    """Whether two arrays are one, or views of the same numbers in the same order."""
    if is_torch(a) and is_torch(b):
        return (a.data_ptr(), a.shape, a.stride(), a.dtype) == (b.data_ptr(), b.shape, b.stride(), b.dtype)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.__array_interface__ == b.__array_interface__
    return a is b


def _engine_for(logits: Array) -> Any:
    """The module whose passes are the fastest for these logits; all of them have the same functions."""
    if kernel.usable(logits):
        return kernel
    if is_torch(logits) and logits.is_cuda and find_spec("triton") is not None:
        from refocal.search import fused

        if fused.usable(logits):
            return fused
    return passes


def n_threads() -> int:
    """Threads of a compiled pass: OMP_NUM_THREADS, as everywhere, or else the processors that this process may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
