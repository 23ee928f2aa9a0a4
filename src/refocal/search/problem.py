"""The data of a search, and everything that is measured on it, as sums over blocks of rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, as_floating, is_torch, namespace, row_blocks, to_numpy, without_warnings
from refocal.maps.forward import focal_temperature
from refocal.search import kernel, passes

Vector = NDArray[np.float64]
T = TypeVar("T")

# Entries of a block. The compiled passes keep four rows at a time, so for them it is the share of a thread; array
# functions make temporaries of a block's size, which should stay in the cache of a CPU and keep a GPU busy.
KERNEL_BLOCK = 1 << 18
CACHE_BLOCK = 1 << 16
GPU_BLOCK = 1 << 24
# From how many entries on a second thread is worth its start.
THREADS_FROM = 1 << 19


class Curvature(NamedTuple):
    """Mean log-loss with its gradient and Hessian in (γ, 1/T)."""

    value: float
    gradient: Vector
    hessian: Vector


class Predictions(NamedTuple):
    """What calibration is measured on, for each row: log p of the label, p of the top class, the sum of all p²."""

    label_log_p: Vector
    confidence: Vector
    squares: Vector


class Problem:
    """Checked logits (N, C), labels and weights; `passes` counts how often all of them were walked through."""

    def __init__(self, logits: Array, labels: Array, weight: Vector | None = None) -> None:
        if is_torch(logits) and logits.device.type == "cpu" and namespace(logits).finfo(logits.dtype).bits >= 32:
            logits, labels = to_numpy(logits), to_numpy(labels)  # the same memory, seen by NumPy
        self.logits = logits
        self.labels = labels
        self.weight = weight
        self.passes = 0
        self._compiled = kernel.usable(logits)
        self._on_gpu = passes.on_gpu(logits)
        self._weight: Array = weight
        if self._on_gpu and weight is not None:
            self._weight = namespace(logits).asarray(weight, device=logits.device)
        self._total = float(len(labels)) if weight is None else float(weight.sum())
        found = self._map(lambda rows: self._engine.inspect(*self._block(rows)))
        self.correct: NDArray[np.bool_] = np.concatenate([to_numpy(correct) for correct, _ in found])
        # Mean distance from the top logit to the mean of the others: the scale of the logits, 0 if all are equal.
        self.typical_gap: float = sum(float(distance) for _, distance in found) / self.n_rows / (logits.shape[-1] - 1)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.logits.shape[0])

    @property
    def precision(self) -> float:
        """The machine epsilon that rows are computed in."""
        xp = namespace(self.logits)
        in_double = self._compiled or self.logits.dtype == xp.float64
        return float(np.finfo(np.float64 if in_double else np.float32).eps)

    def part(self, n_rows: int) -> Problem:
        """About `n_rows` of the rows, evenly spread."""
        step = max(1, self.n_rows // n_rows)
        weight = None if self.weight is None else self.weight[::step]
        return Problem(self.logits[::step, :], self.labels[::step], weight)

    def temperature_curvature(self, slope: float) -> tuple[float, float, float]:
        """Mean log-loss of temperature scaling with first and second derivative in 1/T = `slope`; convex in it."""
        self.passes += 1
        sums = self._sum(lambda rows: self._engine.temperature(*self._block(rows), self._rows_weight(rows), slope))
        value, first, second = sums
        return float(value), float(first), float(second)

    def curvature(self, gamma: float, temperature: float) -> Curvature:
        """Mean log-loss of focal temperature scaling with gradient and Hessian."""
        self.passes += 1
        slope = 1.0 / temperature
        sums = self._sum(lambda rows: self._engine.focal(*self._block(rows), self._rows_weight(rows), gamma, slope))
        value, g, b, gg, gb, bb = sums
        return Curvature(float(value), np.array([g, b]), np.array([[gg, gb], [gb, bb]]))

    def predictions(self, gammas: tuple[float, ...], temperature: float) -> list[Predictions]:
        """The predictions at one temperature for several γ, which share the softmax."""
        self.passes += len(gammas)
        parts = self._map(lambda rows: self._engine.predict(*self._block(rows), gammas, 1.0 / temperature))
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

    @property
    def _engine(self) -> Any:
        return kernel if self._compiled else passes

    def _block(self, rows: slice) -> tuple[Array, Array]:
        x, _ = as_floating(self.logits[rows, :], "logits", "fit")
        return x, self.labels[rows]

    def _rows_weight(self, rows: slice) -> Array:
        return None if self._weight is None else self._weight[rows]

    def _sum(self, measured: Callable[[slice], Array]) -> Vector:
        """The mean over all rows of what is summed up for each block; one word from the device for all of them."""
        parts = self._map(measured)
        return np.asarray(to_numpy(sum(parts[1:], start=parts[0])) / self._total)

    def _map(self, measured: Callable[[slice], T]) -> list[T]:
        """A measure of each block of rows: the same blocks, in the same order, whatever the number of threads."""
        entries = KERNEL_BLOCK if self._compiled else GPU_BLOCK if self._on_gpu else CACHE_BLOCK
        blocks = row_blocks(self.n_rows, self.logits.shape[1], entries)
        quietly = without_warnings(measured)
        threads = min(n_threads(), len(blocks)) if self._compiled else 1
        if threads == 1 or self.n_rows * self.logits.shape[1] < THREADS_FROM:
            return [quietly(rows) for rows in blocks]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(quietly, blocks))


def n_threads() -> int:
    """Threads of a compiled pass: OMP_NUM_THREADS, as everywhere, or else the processors that this process may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdecimal() and int(asked) > 0 else len(os.sched_getaffinity(0))
