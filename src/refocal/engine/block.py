"""One block of logits, labels and weights in memory, with the engine that computes passes over it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import (
    Array,
    Flags,
    Indices,
    Vector,
    indices_beside,
    is_bfloat16,
    is_torch,
    namespace,
    on_gpu,
    row_blocks,
    to_numpy,
)
from refocal._groups import Groups
from refocal.engine import array_engine, c_engine
from refocal.engine.array_engine import LARGE_SINGLE
from refocal.engine.dataset import FINE_BINS, Dataset
from refocal.engine.passes import Pass
from refocal.engine.protocol import OCTAVES, Engine, Plan, Summed
from refocal.rows import Predictions
from refocal.rows.scores import as_logits, raise_zeros

T = TypeVar("T")


class RowPredictions(NamedTuple):
    """What calibration is measured on, for each row: log p of the label, p of the top class, the sum of all p².

    In float64, as NumPy arrays; or where the logits are, on a GPU, if asked for `there`.

    >>> (found,) = Block(np.log([[0.8, 0.2]]), np.array([1])).predictions((0.0,), 1.0)
    >>> found.confidence.round(3), found.squares.round(3)
    (array([0.8]), array([0.68]))
    """

    label_log_p: Array
    confidence: Array
    squares: Array


class Tops(NamedTuple):
    """Whether each row's largest logit (the first of equal ones) belongs to its label, on the device of the logits;
    and the sum of the distances from the largest to all others.
    """

    correct: Array
    gap: float


class Block(Dataset):
    """Checked logits (N, C), labels 0 … C-1 and weights in memory, on the CPU or on a GPU: a Dataset of one block.

    Only evaluations and `GroupCalibration` look at `groups`, columns of names that rows belong to.

    >>> rng = np.random.default_rng(0)
    >>> logits = 2.0 * rng.normal(size=(1000, 3))
    >>> labels = np.argmax(logits / 2.0 + rng.gumbel(size=logits.shape), axis=1)  # true T = 2
    >>> block = Block(logits, labels)
    >>> (at_one,) = block.predictions((0.0,), 1.0)
    >>> block.n_rows, at_one.confidence.shape
    (1000, (1000,))
    """

    in_memory = True
    counts: NDArray[np.float32] | None = None
    """How many classes each entry stands for, in rows that are `condensed`."""
    label_of_row: Indices | None = None
    """Of rows of a multi-label model, the label that each is about."""

    def __init__(
        self, logits: Array, labels: Array, weight: Vector | None = None, groups: Groups | None = None
    ) -> None:
        self.passes, self.memo = 0, {}
        self.on_gpu = on_gpu(logits)
        if is_torch(logits) and not self.on_gpu and logits.device.type == "cpu" and not is_bfloat16(logits):
            logits, labels = to_numpy(logits), to_numpy(labels)  # the same memory, seen by NumPy
        self.logits, self.labels, self.weight, self.groups = logits, labels, weight, groups or {}
        self.n_rows, self.n_classes = map(int, logits.shape)
        self.total_weight = float(self.n_rows) if weight is None else float(weight.sum())
        self.engine, self.plan = engine_for(logits)
        self.precision = self.plan.precision
        self._weight: Array = weight
        if weight is not None and self.on_gpu:
            self._weight = namespace(logits).asarray(weight, device=logits.device)

    @classmethod
    def of(cls, rows: Predictions, floor: float | None = None) -> Block:
        """Checked rows of `refocal.rows` as logits; of probabilities their logarithms, which are at least `floor`."""
        logits = raise_zeros(as_logits(rows.values, rows.input), floor)
        block = cls(logits, indices_beside(logits, rows.labels), rows.weight, rows.groups)
        block.input = rows.input
        block.floor = floor
        block.classes = rows.classes
        return block

    def reduce(self, task: Pass[Any]) -> Any:
        """The result of a pass; with a single block there is nothing to merge."""
        self.passes += 1
        answer = task.map(self)
        return answer if task.finish is None else task.finish(answer)

    def take(self, rows: Any) -> Block:
        """Some of the rows: a slice, or an index or mask of NumPy arrays."""
        weight = None if self.weight is None else self.weight[rows]
        groups = {name: column[rows] for name, column in self.groups.items()}
        if self.on_gpu and not isinstance(rows, slice):
            rows = namespace(self.logits).asarray(rows, device=self.logits.device)
        is_index = isinstance(self.logits, np.ndarray) and not isinstance(rows, slice) and rows.dtype.kind == "i"
        logits = self.logits.take(rows, axis=0) if is_index else self.logits[rows, :]  # a third of the time
        return Block(logits, self.labels[rows], weight, groups)

    def part(self, n_rows: int) -> Block:
        """About `n_rows` of the rows, evenly spread."""
        return self.take(slice(None, None, max(1, self.n_rows // n_rows)))

    def condensed(self, unit: float, fine: int = FINE_BINS) -> Block:
        """Rows of a few hundred entries instead of many classes; the block itself where it has few, or on a GPU."""
        can_be = self.plan.has_condense and self.n_classes >= OCTAVES << fine
        if not can_be or self.tops.gap >= LARGE_SINGLE:
            return self
        self.passes += 1
        parts = self._over_parts(self.engine.condense, unit, fine)
        width = max(part.shape[2] for part in parts)
        gaps, counts = (
            np.full((self.n_rows, width), -np.inf, dtype=np.float32),
            np.zeros((self.n_rows, width), np.float32),
        )
        first = 0
        for part in parts:
            rows = slice(first, first := first + part.shape[1])
            gaps[rows, : part.shape[2]], counts[rows, : part.shape[2]] = part
        block = Block(gaps, np.where(self.correct, 0, 1), self.weight)
        block.counts = counts
        return block

    def look(self, question: Callable[[Block], T], n_rows: int) -> T:
        """The result of a function of about `n_rows` of the rows."""
        return question(self if n_rows >= self.n_rows else self.part(n_rows))

    @cached_property
    def tops(self) -> Tops:
        """The engine's results about the largest logits, computed once."""
        correct, distances = zip(*self._over_parts(self.engine.inspect), strict=True)
        found = namespace(*correct).concat(correct)
        return Tops(found if self.on_gpu else to_numpy(found), sum(map(float, distances)))

    @cached_property
    def correct(self) -> Flags:
        """Whether each row's largest logit belongs to its label, as a NumPy array."""
        found: Flags = to_numpy(self.tops.correct)
        return found

    @property
    def mean_gap(self) -> float:  # type: ignore[override]
        """Mean distance from the top logit to the others; 0 if all are equal."""
        return self.tops.gap / self.n_rows / (self.n_classes - 1)

    @property
    def weights(self) -> Vector:
        """The weight of each row, 1 where none was given."""
        return np.ones(self.n_rows) if self.weight is None else self.weight

    def sums(self, name: Summed, *settings: Any, rough: bool = False) -> Vector:
        """The sums over all rows that the engine's pass of this name computes."""
        self.passes += 1
        passes: dict[Summed, Callable[..., Array]] = {
            "temperature": self.engine.temperature,
            "focal": self.engine.focal,
            "vector": self.engine.vector,
        }
        parts = self._over_parts(passes[name], *settings, rough=rough, weighted=True)
        return np.asarray(to_numpy(sum(parts[1:], start=parts[0])))  # one transfer from the device for all parts

    def affine_sums(self, kind: str, temperature: float, parameters: Vector, *, exact: bool) -> Vector:
        """Log-loss of a diagonal affine map and its gradient in (W - I, b), summed; where `plan.has_affine`."""
        known = ("levels", kind, temperature, exact)
        if known not in self.memo:
            self.memo[known] = self.engine.levels(self.logits, kind, temperature, exact=exact)
        found = self.engine.affine(self.logits, self.labels, self._weight, self.memo[known], temperature, parameters)
        return np.asarray(to_numpy(found))

    def split(self, gamma: float, temperature: float, *, rough: bool = False) -> NDArray[np.float64]:
        """Log-odds of the top class and the logarithm of the label's share among the others, with their derivatives.

        Both are rows of six, (2, 6, N): the value and its derivatives γ, b, γγ, γb, bb; b = 1/T.
        """
        self.passes += 1
        parts = self._over_parts(self.engine.split, gamma, 1.0 / temperature, rough=rough)
        table = np.concatenate([to_numpy(part) for part in parts], axis=-1)
        return table.astype(np.float64, copy=False)

    def predictions(
        self, gammas: tuple[float, ...], temperature: float, *, rough: bool = False, there: bool = False
    ) -> list[RowPredictions]:
        """The predictions at one temperature for several γ, which share the softmax; `there`: left on a GPU."""
        self.passes += len(gammas)
        parts = self._over_parts(self.engine.predict, gammas, 1.0 / temperature, rough=rough)
        table = parts[0] if len(parts) == 1 else namespace(*parts).concat(parts, axis=-1)  # one part is not copied
        table = table.double() if self.on_gpu and there else to_numpy(table).astype(np.float64, copy=False)
        return [RowPredictions(*table[:, i]) for i in range(len(gammas))]

    def average(self, values: Array) -> float:
        """The weighted mean of one number per row."""
        if self.weight is None:
            return float(values.mean())
        return float(values @ (self.weight if isinstance(values, np.ndarray) else self._weight)) / self.total_weight

    def _over_parts(
        self, function: Callable[..., T], *settings: Any, rough: bool | None = None, weighted: bool = False
    ) -> list[T]:
        """The results of a pass of the engine for each part of the rows.

        The parts and their order are the same whatever the number of threads, and so are sums over them. A pass that
        may be `rough` is where there is such a mode and it can hold the logits; None: the pass has no such mode.
        """
        plan, options = self.plan, {}
        if rough is not None and (rough or plan.is_rough) and plan.has_rough:
            # The features of vector scaling are of bounded size.
            options = {"rough": True} if function is self.engine.vector or self.tops.gap < LARGE_SINGLE else {}
        columns = (self.logits, self.labels, self._weight) if weighted else (self.logits, self.labels)
        counts = self.counts if options else None
        parts = row_blocks(self.n_rows, self.n_classes, plan.part_entries)
        calls = (
            partial(
                function,
                *(None if column is None else column[rows] for column in columns),
                *settings,
                **(options if counts is None else options | {"counts": counts[rows]}),
            )
            for rows in parts
        )
        n_threads = min(plan.n_threads, len(parts))
        if n_threads == 1:
            return list(map(operator.call, calls))
        with ThreadPoolExecutor(n_threads) as pool:
            return list(pool.map(operator.call, calls))


def engine_for(logits: Array) -> tuple[Engine, Plan]:
    """The fastest engine for these logits, and how it will process them."""
    plan = c_engine.plan(logits)
    if plan is not None:
        return c_engine, plan
    if is_torch(logits) and logits.is_cuda and find_spec("triton") is not None:
        from refocal.engine import triton_engine

        if triton_engine.usable(logits):
            return triton_engine, triton_engine.plan(logits)
    return array_engine, array_engine.plan(logits)
