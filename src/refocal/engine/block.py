"""One block of logits, labels and weights in memory, with the engine that computes passes over it."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import (
    Array,
    Flags,
    Indices,
    Vector,
    for_fitting,
    indices_beside,
    is_bfloat16,
    is_torch,
    namespace,
    on_gpu,
    row_blocks,
    take,
    to_numpy,
)
from refocal._groups import Groups
from refocal._validation import FINITE_LABELS
from refocal.engine import array_engine, c_engine
from refocal.engine.array_engine import LARGE_SINGLE
from refocal.engine.cache import Cache
from refocal.engine.dataset import FINE_BINS, Dataset, weight_unit
from refocal.engine.passes import Pass
from refocal.engine.protocol import OCTAVES, Engine, Plan, Summed
from refocal.errors import DataError
from refocal.rows import Predictions
from refocal.rows.scores import as_logits, floor_of_zeros, raise_zeros

T = TypeVar("T")


class RowPredictions(NamedTuple):
    """What calibration is measured on, for each row: log p of the label, p of the top class, the sum of all p².

    In float64, as NumPy arrays; or where the logits are, on a GPU, if asked for `there`.

    >>> (predictions,) = Block(np.log([[0.8, 0.2]]), np.array([1])).predictions((0.0,), 1.0)
    >>> predictions.confidence.round(3), predictions.squares.round(3)
    (array([0.8]), array([0.68]))
    """

    label_log_p: Array
    confidence: Array
    squares: Array


class Tops(NamedTuple):
    """What is known of the largest logit of each row, the first of equal ones."""

    correct: Array
    """Whether it belongs to the label, on the device of the logits."""
    gap: float
    """The sum of the distances from it to all others, over all rows."""


class Block(Dataset):
    """Checked logits (N, C), labels 0 … C-1 and weights in memory, on the CPU or on a GPU: a Dataset of one block.

    `logits` are scores whose softmax is the prediction: those of a network, or what the first steps of a chain made of
    them.

    Only evaluations and `GroupCalibration` look at `groups`, columns of names that rows belong to; only evaluations at
    `clusters`, the numbers of the clusters of rows that are not independent.

    >>> rng = np.random.default_rng(0)
    >>> logits = 2.0 * rng.normal(size=(1000, 3))
    >>> labels = np.argmax(logits / 2.0 + rng.gumbel(size=logits.shape), axis=1)  # true T = 2
    >>> block = Block(logits, labels)
    >>> (at_one,) = block.predictions((0.0,), 1.0)
    >>> block.n_rows, at_one.confidence.shape
    (1000, (1000,))
    """

    in_memory = True

    def __init__(
        self,
        logits: Array,
        labels: Array,
        weight: Vector | None = None,
        groups: Groups | None = None,
        *,
        clusters: Indices | None = None,
        input: str = "logits",  # noqa: A002
        floor: float | None = None,
        classes: NDArray[Any] | None = None,
        counts: NDArray[np.float32] | None = None,
        label_of_row: Indices | None = None,
    ) -> None:
        self.passes = 0
        self.cache = Cache()
        self.on_gpu = on_gpu(logits)
        if is_torch(logits) and not self.on_gpu and logits.device.type == "cpu" and not is_bfloat16(logits):
            logits = to_numpy(logits)  # the same memory, seen by NumPy
            labels = to_numpy(labels)
        self.logits = logits
        self.labels = labels
        self.weight = weight
        self.groups = groups or {}
        self.clusters = clusters
        self.input = input
        self.floor = floor
        self.classes = classes
        self.counts = counts
        """How many classes each entry stands for, in rows that are `condensed`; None: one each."""
        self.label_of_row = label_of_row
        """Of rows of a multi-label model, the label that each is about."""
        n_rows, n_classes = logits.shape
        self.n_rows = int(n_rows)
        self.n_classes = int(n_classes)
        self.total_weight = float(self.n_rows) if weight is None else float(weight.sum())
        self.engine, self.plan = engine_for(logits)
        self.precision = self.plan.precision
        self._device_weight: Array = weight
        if weight is not None and self.on_gpu:
            self._device_weight = namespace(logits).asarray(weight, device=logits.device)
        self._levels: dict[tuple[str, float, bool], Array] = {}
        """The levels of the rows for `affine_sums`, by kind of features, temperature and whether they are exact."""

    @classmethod
    def of(cls, rows: Predictions, floor: float | None = None, *, read_as: str | None = None) -> Block:
        """Checked rows of `refocal.rows` as logits; of probabilities their logarithms, which are at least `floor`.

        `read_as` is what the columns held when they were read, where `rows` no longer say so.
        """
        logits = raise_zeros(as_logits(rows.values, rows.input), floor)
        block = cls(
            logits,
            indices_beside(logits, rows.labels),
            rows.weight,
            rows.groups,
            clusters=rows.clusters,
            input=rows.input if read_as is None else read_as,
            floor=floor,
            classes=rows.classes,
        )
        block.columns = rows.source.named_columns
        return block

    def with_classes(self, classes: NDArray[Any] | None) -> Block:
        """The same rows with these names of the classes, or with none."""
        block = copy(self)
        block.classes = classes
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
        clusters = None if self.clusters is None else self.clusters[rows]
        if self.on_gpu and not isinstance(rows, slice):
            rows = namespace(self.logits).asarray(rows, device=self.logits.device)
        is_index = isinstance(self.logits, np.ndarray) and not isinstance(rows, slice) and rows.dtype.kind == "i"
        # `take` needs a third of the time of indexing.
        logits = self.logits.take(rows, axis=0) if is_index else self.logits[rows, :]
        return Block(logits, self.labels[rows], weight, groups, clusters=clusters)

    def part(self, n_rows: int) -> Block:
        """About `n_rows` of the rows, evenly spread."""
        return self.take(slice(None, None, max(1, self.n_rows // n_rows)))

    def condensed(self, unit: float, fine: int = FINE_BINS) -> Block:
        """Rows of a few hundred entries instead of many classes; the block itself where it has few, or on a GPU."""
        has_many_classes = self.n_classes >= OCTAVES << fine
        if not (self.plan.has_condense and has_many_classes) or self.tops.gap >= LARGE_SINGLE:
            return self
        self.passes += 1
        parts = self._over_parts(lambda rows: self.engine.condense(self.logits[rows], self.labels[rows], unit, fine))
        width = max(part.shape[2] for part in parts)
        gaps = np.full((self.n_rows, width), -np.inf, dtype=np.float32)
        counts = np.zeros((self.n_rows, width), dtype=np.float32)
        first = 0
        for part in parts:
            _, n_rows, part_width = part.shape
            rows = slice(first, first + n_rows)
            gaps[rows, :part_width] = part[0]
            counts[rows, :part_width] = part[1]
            first += n_rows
        labels = np.where(self.correct, 0, 1)  # the top class comes first, then that of the label
        return Block(gaps, labels, self.weight, counts=counts)

    def look(self, question: Callable[[Block], T], n_rows: int) -> T:
        """The result of a function of about `n_rows` of the rows."""
        return question(self if n_rows >= self.n_rows else self.part(n_rows))

    @cached_property
    def tops(self) -> Tops:
        """The engine's results about the largest logits, computed once."""
        parts = self._over_parts(lambda rows: self.engine.inspect(self.logits[rows], self.labels[rows]))
        of_parts = [correct for correct, _ in parts]
        correct = namespace(*of_parts).concat(of_parts)
        distance = sum(float(part_distance) for _, part_distance in parts)
        return Tops(correct if self.on_gpu else to_numpy(correct), distance)

    @cached_property
    def correct(self) -> Flags:
        """Whether each row's largest logit belongs to its label, as a NumPy array."""
        correct: Flags = to_numpy(self.tops.correct)
        return correct

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
        function = passes[name]
        # The features of vector scaling are of bounded size, so that single precision always holds them.
        is_rough = self._is_rough(rough, is_bounded=name == "vector")

        def sums_of(rows: slice) -> Array:
            weight = None if self._device_weight is None else self._device_weight[rows]
            return function(self.logits[rows], self.labels[rows], weight, *settings, **self._options(rows, is_rough))

        parts = self._over_parts(sums_of)
        return np.asarray(to_numpy(sum(parts[1:], start=parts[0])))  # one transfer from the device for all parts

    def affine_sums(self, kind: str, temperature: float, parameters: Vector, *, exact: bool) -> Vector:
        """Log-loss of a diagonal affine map and its gradient in (W - I, b), summed; where `plan.has_affine`."""
        key = (kind, temperature, exact)
        if key not in self._levels:
            self._levels[key] = self.engine.levels(self.logits, kind, temperature, exact=exact)
        levels = self._levels[key]
        sums = self.engine.affine(self.logits, self.labels, self._device_weight, levels, temperature, parameters)
        return np.asarray(to_numpy(sums))

    def split(self, gamma: float, temperature: float, *, rough: bool = False) -> NDArray[np.float64]:
        """Log-odds of the top class and the logarithm of the label's share among the others, with their derivatives.

        Both are rows of six, (2, 6, N): the value and its derivatives γ, b, γγ, γb, bb; b = 1/T.
        """
        self.passes += 1
        slope = 1.0 / temperature
        is_rough = self._is_rough(rough)

        def split_of(rows: slice) -> Array:
            return self.engine.split(
                self.logits[rows], self.labels[rows], gamma, slope, **self._options(rows, is_rough)
            )

        parts = self._over_parts(split_of)
        table = np.concatenate([to_numpy(part) for part in parts], axis=-1)
        return table.astype(np.float64, copy=False)

    def predictions(
        self, gammas: tuple[float, ...], temperature: float, *, rough: bool = False, there: bool = False
    ) -> list[RowPredictions]:
        """The predictions at one temperature for several γ, which share the softmax; `there`: left on a GPU."""
        self.passes += len(gammas)
        slope = 1.0 / temperature
        is_rough = self._is_rough(rough)

        def predict_of(rows: slice) -> Array:
            return self.engine.predict(
                self.logits[rows], self.labels[rows], gammas, slope, **self._options(rows, is_rough)
            )

        parts = self._over_parts(predict_of)
        table = parts[0] if len(parts) == 1 else namespace(*parts).concat(parts, axis=-1)  # one part is not copied
        table = table.double() if self.on_gpu and there else to_numpy(table).astype(np.float64, copy=False)
        return [RowPredictions(*table[:, i]) for i in range(len(gammas))]

    def average(self, values: Array) -> float:
        """The weighted mean of one number per row."""
        if self.weight is None:
            return float(values.mean())
        weight = self.weight if isinstance(values, np.ndarray) else self._device_weight
        return float(values @ weight) / self.total_weight

    def _is_rough(self, rough: bool, *, is_bounded: bool = False) -> bool:
        """Whether a pass that may be `rough` is: where there is such a mode and single precision holds the numbers.

        `is_bounded`: it does whatever the logits are.
        """
        if not (rough or self.plan.is_rough) or not self.plan.has_rough:
            return False
        return is_bounded or self.tops.gap < LARGE_SINGLE

    def _options(self, rows: slice, is_rough: bool) -> dict[str, Any]:
        """The keyword arguments of a pass over some rows: those of condensed rows have counts in the rough mode."""
        if not is_rough:
            return {}
        return {"rough": True} if self.counts is None else {"rough": True, "counts": self.counts[rows]}

    def _over_parts(self, function: Callable[[slice], T]) -> list[T]:
        """The results of a function of each part of the rows.

        The parts and their order are the same whatever the number of threads, and so are sums over them.
        """
        parts = row_blocks(self.n_rows, self.n_classes, self.plan.part_entries)
        n_threads = min(self.plan.n_threads, len(parts))
        if n_threads == 1:
            return [function(rows) for rows in parts]
        with ThreadPoolExecutor(n_threads) as pool:
            return list(pool.map(function, parts))


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


def block_of_fit(rows: Predictions, kind: str, function: str) -> Block:
    """The block that a calibrator fits on, of rows whose scores were given as this `kind`.

    Weights count rows; of probabilities a zero is half the smallest one; every label has a finite logit.
    """
    logits = for_fitting(as_logits(rows.values, rows.input))
    floor = floor_of_zeros(logits) if kind == "probabilities" else None
    weight = rows.weight
    if weight is not None:
        weight = weight * weight_unit(float(weight.sum()), len(weight))
    block = Block.of(replace(rows, values=logits, input="logits", weight=weight), floor, read_as=kind)
    impossible = to_numpy(take(block.logits, block.labels[..., None]) == -math.inf)
    if impossible.any():
        got = f"-inf at the label of row {int(np.argmax(impossible))}"
        raise DataError("X", function, expected=FINITE_LABELS, got=got)
    return block
