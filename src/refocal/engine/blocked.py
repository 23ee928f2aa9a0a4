"""Rows in blocks, here or on other machines: checked by a first pass, which also takes a sample of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from operator import methodcaller
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Indices, Vector, to_numpy
from refocal._validation import LARGE, SMALL, sum_of_parts, warn_of_sums
from refocal.engine.block import Block
from refocal.engine.dataset import Dataset, sample_rows, weight_unit
from refocal.engine.passes import Partial, Pass
from refocal.engine.protocol import Summed
from refocal.errors import DataError, LabelError, ShapeError
from refocal.rows import RawRows, RowReader
from refocal.rows.labels import column_order, distinct_labels, raw_labels
from refocal.rows.scores import floor_of_zeros, raise_zeros

T = TypeVar("T")

# Rows and entries of the sample that Newton's method starts with: cheap to transfer.
START_ROWS, START_ENTRIES, FEWEST_START_ROWS = 2_000, 1 << 15, 64
# The number of logits that a row's key is computed from.
KEY_COLUMNS = 8


RowSample: TypeAlias = tuple[Any, ...]
"""Keys, logits, labels and weights of some rows; None instead of weights where there are none."""


@dataclass
class Inspected:
    """The result of the first pass."""

    weight: float
    n_used: int
    """The number of rows with a weight above 0."""
    gap: float
    lowest: int
    highest: int
    sum_of_parts: int | None
    """The common sum of the inspected rows, if they could be probabilities or percentages."""
    precision: float
    floor: float | None
    """The logarithm of half the smallest probability that is not 0, where the rows are probabilities."""
    sample: RowSample
    """The rows of the smallest keys. A key depends on its row alone, so neither order nor partitioning matters."""


Ask: TypeAlias = Callable[[Callable[[Any], Any]], Any]
"""A function applied to an answer, computed where the answer is stored."""


class BlockedDataset(Dataset):
    """Rows in blocks that can be read as often as a fit needs, in this process or on other machines.

    Made by `refocal.io`. The first pass checks and counts the rows; `passes` counts the later ones.

    >>> from refocal.io import blocks
    >>> rows = blocks([([[2.0, 0.0], [0.0, 1.0]], [0, 1]), ([[1.0, 0.0]], [1])])
    >>> isinstance(rows, BlockedDataset), rows.n_classes
    (True, 2)
    >>> rows.start()
    >>> rows.n_rows, rows.n_skipped, rows.passes
    (3, 0, 0)
    """

    watch: Callable[[int, int | None], None] | None = None
    """Called with the number of rows done in a pass and the total number, if that is known."""

    def __init__(self, reader: RowReader, n_given: int | None = None) -> None:
        self.passes = 0
        self.memo = {}
        self.n_given = n_given
        """The number of rows, good and bad, where it is known."""
        self._reader = reader
        self.n_classes = reader.n_classes
        self.input = reader.input
        self._n_sample = 0
        self._unit = 1.0
        self._counted: tuple[int, int] | None = None
        """The rows used and skipped by the first pass."""

    @property
    def reader(self) -> RowReader:
        """How raw rows are read; where labels could be names or column numbers, one pass over all of them tells."""
        if self._reader.needs_labels:
            of_all, _ = self.go_through(Pass(_labels_of, _either_labels, of_raw_rows=True))  # type: ignore[arg-type]
            distinct, shapes = of_all.answer or (set(), set())
            self._reader = self._reader.with_labels(distinct, has_one_column=shapes == {1})
        return self._reader

    def described(self) -> str:
        """What is read and how it is understood, in one line."""
        reader = self.reader
        by = "" if reader.label_map is None else reader.label_map.by
        classes = tuple(range(self.n_classes)) if self.classes is None else tuple(self.classes.tolist())
        return replace(reader.source, labels_by=by).sentence(classes, 1 if self.n_classes == 2 else None)

    def reader_for(self, task: Pass[Any]) -> RowReader:
        """The reader of a pass: one over raw rows is the pass that tells how labels are read."""
        return self._reader if task.of_raw_rows else self.reader

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the columns; None where they have none."""
        return self.reader.class_names

    @property
    def classes(self) -> NDArray[Any] | None:  # type: ignore[override]
        """The class of each column; None: the column numbers."""
        reader = self.reader
        classes = reader.class_names if reader.classes is None else reader.classes
        return None if classes is None else np.array(classes)

    def in_order_of(self, class_names: Sequence[str] | None) -> Self:
        """The same rows with the columns in the order of these names; unchanged if either has none.

        >>> from refocal.io import blocks
        >>> rows = blocks([([[2.0, 0.0], [0.0, 1.0]], ["dog", "cat"])], class_names=["dog", "cat"])
        >>> other = rows.in_order_of(["cat", "dog"])
        >>> other.reduce(Pass(map=lambda block: block.logits.tolist(), merge=lambda one, two: one + two))
        [[0.0, 2.0], [1.0, 0.0]]
        """
        order = column_order(self.reader.class_names, class_names, "in_order_of")
        return self if order is None else self.reordered(order)

    def reordered(self, order: Indices) -> Self:
        """The same rows with the columns in another order; `order` has their present positions."""
        reordered = copy(self)
        reordered._reader = self.reader.in_order(order)
        reordered.passes = 0
        reordered.memo = {}
        reordered._n_sample = 0
        return reordered

    @abstractmethod
    def go_through(self, task: Pass[Any]) -> tuple[Partial, Ask]:
        """The answer of all blocks, and a function that queries the unfinished answer where it is stored."""

    def start(self, *, look: bool = False, n_rows: int = 0) -> None:
        """The first pass: rows are checked, counted and sampled, at least `n_rows` of them."""
        n_start = max(FEWEST_START_ROWS, min(START_ROWS, START_ENTRIES // self.n_classes))
        n_sample = max(n_rows, sample_rows(self.n_classes)) if look else n_start
        if self._n_sample >= n_sample:
            return
        # Keys are uniform: blocks need not send rows whose keys are beyond those of the sample of all of them.
        share = 1.0 if self.n_given is None else (n_sample + 8.0 * n_sample**0.5) / max(self.n_given, 1)
        look_at = partial(inspect, n_sample=n_sample, zeros=self.input == "probabilities", share=share)
        task = Pass(look_at, partial(_merge, n_sample=n_sample), partial(_start, n_start), True)
        found, self._ask = self._counted_pass(task)
        self.n_rows, self.n_skipped = found.n_rows, found.n_skipped
        inspected: Inspected | None = found.answer
        function = self.reader.function
        if inspected is None:
            if found.n_left_out:
                expected = "above 0 for at least one row that has a label"
                raise DataError("sample_weight", function, expected=expected, got="a sum of 0")
            skipped = f"none, and {self.n_skipped} bad ones" if self.n_skipped else "none"
            raise ShapeError("X", function, expected="at least one row in all blocks together", got=skipped)
        if not SMALL <= inspected.weight <= LARGE:
            expected = f"of a sum between {SMALL:g} and {LARGE:g}"
            raise DataError("sample_weight", function, expected=expected, got=f"a sum of {inspected.weight:g}")
        if inspected.lowest == inspected.highest:
            got = f"only one class, {inspected.lowest}"
            raise LabelError("y", function, expected="of at least two classes", got=got)
        if inspected.sum_of_parts is not None:
            warn_of_sums(inspected.sum_of_parts, "X", function)
        self._unit = weight_unit(inspected.weight, inspected.n_used)
        self.total_weight, self.precision = self._unit * inspected.weight, inspected.precision
        self.mean_gap = inspected.gap / self.n_rows / (self.n_classes - 1)
        self.floor = inspected.floor
        self._start, self._n_sample = inspected, n_sample

    def reduce(self, task: Pass[Any], *, raised: bool = True) -> Any:
        """The answer of all blocks, one pass; without `raised`, zeros are left as they were read."""
        self.passes += 1
        floor = self.floor if raised else None
        if floor is not None or self._unit != 1.0:
            task = replace(task, map=partial(_with_limits, task.map, floor, self._unit))
        return self._counted_pass(task)[0].answer

    def _counted_pass(self, task: Pass[Any]) -> tuple[Partial, Ask]:
        """One pass, which must see as many rows as the first.

        A source that yields other rows later, or a `map` that loses answers, would give a result of no data at all.
        """
        n_known = self.n_given
        found, ask = self.go_through(task)
        counts = (found.n_rows, found.n_skipped)
        function = self.reader.function
        if self._counted is None:
            if n_known is not None and found.n_seen != n_known:
                expected = f"{n_known:,} rows, as its parts say"
                raise DataError("X", function, expected=expected, got=f"{found.n_seen:,} rows in the first pass")
            self._counted = counts
        if counts != self._counted:
            expected = f"the same in every pass: {_rows_text(*self._counted)}"
            raise DataError("X", function, expected=expected, got=f"{_rows_text(*counts)} in a later pass")
        return found, ask

    def sums(self, name: Summed, *settings: Any, rough: bool = False) -> Vector:
        """Sums over all rows that a pass of the engine computes."""
        return np.asarray(self.reduce(Pass(methodcaller("sums", name, *settings, rough=rough), np.add)))

    def part(self, n_rows: int) -> Block:
        """At most `n_rows` of the rows to begin with."""
        few: Block = _of_sample(lambda block: block, n_rows, self.floor, self._unit, self._start)
        return few

    def look(self, question: Callable[[Block], T], n_rows: int) -> T:
        """The result of a function of `n_rows` rows of the sample, computed where the sample is stored."""
        self.start(look=True, n_rows=n_rows)
        answer: T = self._ask(partial(_of_sample, question, n_rows, self.floor, self._unit))
        return answer


def _labels_of(raw: RawRows) -> tuple[set[Any], set[int]]:
    """The distinct labels of raw rows, and the number of axes of their scores."""
    labels = to_numpy(raw_labels(raw.labels, "y", "fit").values)
    if labels.dtype.kind == "f":
        labels = labels[np.isfinite(labels)]  # what is missing says nothing of the others
    return set(distinct_labels(labels, "y", "fit")), {int(np.ndim(raw.values))}


def _either_labels(first: tuple[set[Any], set[int]], second: tuple[set[Any], set[int]]) -> tuple[set[Any], set[int]]:
    return first[0] | second[0], first[1] | second[1]


def _rows_text(n_used: int, n_skipped: int) -> str:
    return f"{n_used:,} rows and {n_skipped:,} left out" if n_skipped else f"{n_used:,} rows"


def inspect(block: Block, n_sample: int, zeros: bool = False, share: float = 1.0) -> Inspected:
    """The first pass over a block; `zeros`: it holds probabilities, some of which may be 0.

    Of the rows that could be in the sample those with the lowest `share` of all keys are sent, or a few where these are
    fewer.
    """
    keys = row_keys(block)
    if share < 1.0:
        n_sample = min(n_sample, max(FEWEST_START_ROWS, int(np.count_nonzero(keys < np.uint64(share * 2.0**64)))))
    chosen = np.argpartition(keys, n_sample)[:n_sample] if len(keys) > n_sample else slice(None)
    values = block.logits[chosen]
    weight = block.weight
    return Inspected(
        weight=float(len(keys) if weight is None else weight.sum()),
        n_used=len(keys) if weight is None else int(np.count_nonzero(weight)),
        gap=block.tops.gap,
        lowest=int(block.labels.min()),
        highest=int(block.labels.max()),
        sum_of_parts=sum_of_parts(values.astype(np.float64), "X", "fit"),
        precision=block.precision,
        floor=floor_of_zeros(block.logits) if zeros else None,
        sample=(
            keys[chosen],
            values.astype(np.float32) if values.dtype == np.float16 else np.array(values),
            block.labels[chosen],
            None if weight is None else weight[chosen],
        ),
    )


def _smallest(sample: RowSample, n_rows: int) -> RowSample:
    """A limited number of rows, in ascending order of their keys."""
    order = np.argsort(sample[0], kind="stable")[:n_rows]
    return tuple(None if each is None else each[order] for each in sample)


def _merge(first: Inspected, second: Inspected, n_sample: int) -> Inspected:
    pairs = zip(first.sample, second.sample, strict=True)
    both = tuple(None if a is None or b is None else np.concatenate([a, b]) for a, b in pairs)
    return Inspected(
        first.weight + second.weight,
        first.n_used + second.n_used,
        first.gap + second.gap,
        min(first.lowest, second.lowest),
        max(first.highest, second.highest),
        first.sum_of_parts if first.sum_of_parts == second.sum_of_parts else None,
        max(first.precision, second.precision),
        None if first.floor is None or second.floor is None else min(first.floor, second.floor),
        _smallest(both, n_sample),
    )


def _start(n_start: int, found: Inspected) -> Inspected:
    """What the client receives: a few rows in single precision, since they only provide a starting point."""
    keys, values, *others = _smallest(found.sample, n_start)
    return replace(found, sample=(keys, values.astype(np.float32), *others))


def _of_sample(
    question: Callable[[Block], Any], n_rows: int, floor: float | None, unit: float, found: Inspected
) -> Any:
    _, *columns = _smallest(found.sample, n_rows)
    return _with_limits(question, floor, unit, Block(*columns))


def _with_limits(question: Callable[[Block], Any], floor: float | None, unit: float, block: Block) -> Any:
    """A function of a block whose logits are at least `floor` and whose weights are multiplied by a unit."""
    if floor is not None or unit != 1.0:
        logits = raise_zeros(block.logits, floor)
        block = Block(logits, block.labels, None if block.weight is None else unit * block.weight, block.groups)
    return question(block)


def row_keys(block: Block) -> NDArray[np.uint64]:
    """Well-mixed integers, one per row, each computed from its row alone."""
    columns = np.unique(np.linspace(0, block.logits.shape[1] - 1, KEY_COLUMNS).astype(np.int64))
    keys: NDArray[np.uint64] = to_numpy(block.labels).astype(np.uint64)
    for column in columns:
        bits = to_numpy(block.logits[:, column]).astype(np.float64).view(np.uint64)
        keys = (keys ^ (bits >> np.uint64(32)) ^ bits) * np.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> np.uint64(29)
    return keys
