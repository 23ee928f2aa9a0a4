"""Rows in blocks, here or on other machines: checked by a first pass, which also takes a sample of them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import SMALLEST, Indices, Vector, to_numpy
from refocal._validation import LARGE, SMALL, sum_of_parts, warn_of_sums
from refocal.engine.block import Block
from refocal.engine.cache import Cache
from refocal.engine.dataset import AnswerT, Dataset, sample_rows, weight_unit
from refocal.engine.passes import Partial, Pass
from refocal.engine.protocol import Summed
from refocal.engine.sampling import (
    LARGEST_KEY,
    CountedRows,
    CountedSample,
    Counters,
    Keys,
    block_of,
    counted,
    frequent_from,
    joined,
    joined_samples,
    most_repeat,
    row_keys,
    sample_of,
)
from refocal.errors import DataError, LabelError, ShapeError
from refocal.rows import RawRows, RowReader
from refocal.rows.class_names import column_order
from refocal.rows.keys import label_key
from refocal.rows.labels import distinct_labels, raw_labels
from refocal.rows.scores import floor_of_zeros, raise_zeros

START_ROWS = 2_000
"""The most rows of the sample that Newton's method starts with, which are sent from other machines."""

FEWEST_START_ROWS = 64
"""Its fewest rows, however many classes they have."""

LOG_OF_ZERO = math.log(SMALLEST)
"""What the logarithm of a zero is read as, before all rows are known."""


@dataclass(frozen=True)
class Inspected:
    """The result of the first pass."""

    weight: float
    """The sum of the weights, or the number of rows where there are none."""
    n_used: int
    """The number of rows with a weight above 0."""
    gap: float
    """The sum of the distances from the top logit of each row to the others."""
    lowest: int
    """The lowest label."""
    highest: int
    """The highest label."""
    sum_of_parts: int | None
    """The common sum of the inspected rows, if they could be probabilities or percentages."""
    precision: float
    """The machine epsilon that the rows are computed in."""
    floor: float | None
    """The logarithm of half the smallest probability that is not 0, where the rows are probabilities."""
    sample: CountedSample
    """Rows of a weight above 0, of which samples are taken."""
    n_sampled: int = 0
    """The number of different rows in the sample before the client received a part of it."""
    frequent: CountedRows | None = None
    """Rows beyond those of the sample that occur so often that they belong to it, as far as they are counted."""
    candidates: Keys | None = None
    """Keys of the rows that may be frequent and are not counted."""


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

    _frequent: CountedRows | None
    """Rows that are frequent beyond those of the sample."""

    def __init__(self, reader: RowReader, n_given: int | None = None) -> None:
        self.passes = 0
        self.cache = Cache()
        self.n_given = n_given
        """The number of rows, good and bad, where it is known."""
        self._reader = reader
        self.n_classes = reader.n_classes
        self.input = reader.input
        self.columns = reader.source.named_columns
        self._n_sample = 0
        """The number of rows of the sample that the first pass took; 0 before it."""
        self._unit = 1.0
        """The factor of all weights."""
        self._n_left_out = 0
        """Rows without a label, or of weight 0, in the first pass."""
        self._counted: tuple[int, int] | None = None
        """The rows used and skipped by the first pass."""

    @property
    def reader(self) -> RowReader:
        """How raw rows are read; where labels could be names or column numbers, one pass over all of them tells."""
        if self._reader.needs_labels:
            labels = self._raw_labels()
            self._reader = self._reader.with_labels(labels.distinct, has_one_column=labels.n_axes == {1})
        return self._reader

    def distinct_labels(self) -> set[Any]:
        """The distinct labels as they came, by a pass over all rows."""
        return self._raw_labels().distinct

    def _raw_labels(self) -> _RawLabels:
        collect = Pass(_labels_of, _RawLabels.merge, of_raw_rows=True)  # type: ignore[arg-type]
        result, _ = self.go_through(collect)
        return _RawLabels(set(), set()) if result.answer is None else result.answer

    def described(self) -> str:
        """What is read and how it is understood, in one line."""
        reader = self.reader
        labels_by = "" if reader.label_map is None else reader.label_map.by
        classes = tuple(range(self.n_classes)) if self.classes is None else tuple(self.classes.tolist())
        positive = 1 if self.n_classes == 2 else None
        return replace(reader.source, labels_by=labels_by).sentence(classes, positive)

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
        return self.reader.called

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
        reordered.cache = Cache()
        reordered._n_sample = 0
        return reordered

    @abstractmethod
    def go_through(self, task: Pass[Any]) -> tuple[Partial, Ask]:
        """The answer of all blocks, and a function that queries the unfinished answer where it is stored."""

    def start(self, *, look: bool = False, n_rows: int = 0, needs_classes: bool = True) -> None:
        """The first pass: rows are checked, counted and sampled, at least `n_rows` of them.

        A fit `needs_classes`, two or more, among the labels; an evaluation does not.
        """
        most_start_entries = 1 << 15  # 128 KB in single precision, as they are sent

        n_start = max(FEWEST_START_ROWS, min(START_ROWS, most_start_entries // self.n_classes))
        n_sample = max(n_rows, sample_rows(self.n_classes)) if look else n_start
        if self._n_sample >= n_sample:
            return
        inspected = self._inspect_with_sample(n_sample, n_start)
        if inspected is None:
            raise self._error_without_rows()
        self._check_inspected(inspected, needs_classes)
        inspected = self._with_frequent_rows(inspected)
        self._unit = weight_unit(inspected.weight, inspected.n_used)
        self.total_weight = self._unit * inspected.weight
        self.precision = inspected.precision
        self.mean_gap = inspected.gap / self.n_rows / (self.n_classes - 1)
        self.floor = inspected.floor
        self._start = inspected
        self._n_sample = n_sample

    def _inspect_with_sample(self, n_sample: int, n_start: int) -> Inspected | None:
        """The result of the first pass with a sample of `n_sample` different rows, where there are so many.

        Keys are uniform: of n rows with the smallest keys among N, nearly all have keys below the share (n + 8 √n) / N,
        eight standard deviations above the mean. Blocks need not send rows of larger keys.
        """
        if self.n_given is None:
            return self._inspect(n_sample, n_start, share=1.0)
        share = (n_sample + 8.0 * n_sample**0.5) / max(self.n_given, 1)
        inspected = self._inspect(n_sample, n_start, share)
        if inspected is not None and share < 1.0 and inspected.n_sampled < n_sample:
            # Rows repeat, or many were skipped, so that fewer different rows than expected were sent.
            return self._inspect(n_sample, n_start, share=1.0)
        return inspected

    def _inspect(self, n_sample: int, n_start: int, share: float) -> Inspected | None:
        """The result of the first pass, None without rows."""
        task = Pass(
            map=partial(inspect, n_sample=n_sample, zeros=self.input == "probabilities", share=share),
            merge=partial(_merge, n_sample=n_sample),
            finish=partial(_for_client, n_sample, n_start),
            check=True,
        )
        result, self._ask = self._counted_pass(task)
        self._n_left_out = result.n_left_out
        self.n_rows = result.n_rows
        self.n_skipped = result.n_skipped
        self._frequent = None
        inspected: Inspected | None = result.answer
        return inspected

    def _error_without_rows(self) -> DataError | ShapeError:
        """The error of a first pass that has met no rows to use."""
        function = self.reader.function
        if self._n_left_out:
            expected = "above 0 for at least one row that has a label"
            return DataError("sample_weight", function, expected=expected, got="a sum of 0")
        skipped = f"none, and {self.n_skipped} bad ones" if self.n_skipped else "none"
        return ShapeError("X", function, expected="at least one row in all blocks together", got=skipped)

    def _check_inspected(self, inspected: Inspected, needs_classes: bool) -> None:
        """Refuse weights of an absurd sum and, in a fit, labels of one class; warn of logits like probabilities."""
        function = self.reader.function
        # Only labels of the rows left out can tell whether labels count from 1: that takes a pass of its own.
        if self.n_skipped and (inspected.lowest > 0 or self.reader.order is not None):
            self.reader.check_start(self.distinct_labels())
        if not SMALL <= inspected.weight <= LARGE:
            expected = f"of a sum between {SMALL:g} and {LARGE:g}"
            raise DataError("sample_weight", function, expected=expected, got=f"a sum of {inspected.weight:g}")
        if inspected.lowest == inspected.highest and needs_classes:
            got = f"only one class, {inspected.lowest}"
            raise LabelError("y", function, expected="of at least two classes", got=got)
        if inspected.sum_of_parts is not None:
            warn_of_sums(inspected.sum_of_parts, "X", function)

    def _with_frequent_rows(self, inspected: Inspected) -> Inspected:
        """The same with the rows that may be frequent counted, by another pass where there are such rows."""
        if inspected.candidates is None or not len(inspected.candidates):
            return inspected
        log_of_zero = LOG_OF_ZERO if self.input == "probabilities" else None
        count = partial(_counted_candidates, inspected.candidates, log_of_zero)
        result, _ = self._counted_pass(Pass(count, joined))
        counted_rows: CountedRows = result.answer
        self._frequent = counted_rows
        if inspected.frequent is None:
            return replace(inspected, frequent=counted_rows)
        return replace(inspected, frequent=joined(inspected.frequent, counted_rows))

    def reduce(self, task: Pass[Any], *, for_fit: bool = True) -> Any:
        """The answer of all blocks, one pass; without `for_fit`, zeros and weights are as they were read."""
        self.passes += 1
        floor = self.floor if for_fit else None
        unit = self._unit if for_fit else 1.0
        if floor is not None or unit != 1.0:
            task = replace(task, map=partial(_with_limits, task.map, floor, unit))
        result, _ = self._counted_pass(task)
        return result.answer

    def _counted_pass(self, task: Pass[Any]) -> tuple[Partial, Ask]:
        """One pass, which must see as many rows as the first.

        A source that yields other rows later, or a `map` that loses answers, would give a result of no data at all.
        """
        n_given = self.n_given
        result, ask = self.go_through(task)
        counts = (result.n_rows, result.n_skipped)
        function = self.reader.function
        if self._counted is None:
            if n_given is not None and result.n_seen != n_given:
                expected = f"{n_given:,} rows, as its parts say"
                raise DataError("X", function, expected=expected, got=f"{result.n_seen:,} rows in the first pass")
            self._counted = counts
            if self.reader.class_names is not None and result.n_by_name and result.n_by_number:
                expected = "names of columns in all blocks, or column numbers in all of them"
                got = f"names in {result.n_by_name:,} of them and numbers in {result.n_by_number:,}"
                raise LabelError("y", function, expected=expected, got=got)
        if counts != self._counted:
            expected = f"the same in every pass: {_rows_text(*self._counted)}"
            raise DataError("X", function, expected=expected, got=f"{_rows_text(*counts)} in a later pass")
        return result, ask

    def sums(self, name: Summed, *settings: Any, rough: bool = False) -> Vector:
        """Sums over all rows that a pass of the engine computes."""
        task = Pass(map=partial(_sums_of_block, name, settings, rough), merge=np.add)
        return np.asarray(self.reduce(task))

    def part(self, n_rows: int) -> Block:
        """At most `n_rows` of the rows to begin with."""
        sample = block_of(self._start.sample, self._start.frequent, n_rows, self._start.n_used)
        return _limited(sample, self.floor, self._unit)

    def look(self, question: Callable[[Block], AnswerT], n_rows: int) -> AnswerT:
        """The result of a function of `n_rows` rows of the sample, computed where the sample is stored."""
        self.start(look=True, n_rows=n_rows)
        answer: AnswerT = self._ask(partial(_of_sample, question, n_rows, self.floor, self._unit, self._frequent))
        return answer


@dataclass(frozen=True)
class _RawLabels:
    """What is known of the labels of raw rows before any is read."""

    distinct: set[Any]
    n_axes: set[int]
    """The numbers of axes of the scores beside them."""

    def merge(self, other: _RawLabels) -> _RawLabels:
        """Those of both."""
        return _RawLabels(self.distinct | other.distinct, self.n_axes | other.n_axes)


def _labels_of(raw: RawRows) -> _RawLabels:
    """The distinct labels of raw rows that have a weight, and the number of axes of their scores."""
    labels = to_numpy(raw_labels(raw.labels, "y", "fit").values).ravel()
    weight = None if raw.weight is None else to_numpy(raw.weight)
    if weight is not None and weight.shape == labels.shape:  # another shape is an error where the rows are read
        labels = labels[weight != 0.0]
    # What is missing says nothing of the others, and is an error of its row.
    if labels.dtype.kind == "f":
        labels = labels[np.isfinite(labels)]
    elif labels.dtype.kind == "O":
        labels = labels[[label_key(label) is not None for label in labels.tolist()]]
    return _RawLabels(set(distinct_labels(labels, "y", "fit")), {int(np.ndim(raw.values))})


def _sums_of_block(name: Summed, settings: tuple[Any, ...], rough: bool, block: Block) -> Vector:
    """The sums over the rows of a block that a pass of its engine computes."""
    return block.sums(name, *settings, rough=rough)


def _rows_text(n_used: int, n_skipped: int) -> str:
    return f"{n_used:,} rows and {n_skipped:,} left out" if n_skipped else f"{n_used:,} rows"


def inspect(block: Block, n_sample: int, zeros: bool = False, share: float = 1.0) -> Inspected:
    """The first pass over a block; `zeros`: it holds probabilities, some of which may be 0.

    Of the rows that could be in the sample those with the lowest `share` of all keys are sent, unless most rows repeat:
    then there are few different ones.
    """
    keys = row_keys(block, LOG_OF_ZERO if zeros else None)
    weight = block.weight
    used = block
    used_keys = keys
    if weight is not None and not weight.all():
        is_used = weight > 0.0
        used = block.take(is_used)
        used_keys = keys[is_used]
    n_checked = n_sample
    if share < 1.0:
        n_below_bound = int(np.count_nonzero(keys <= _bound(share)))
        n_checked = min(n_sample, max(FEWEST_START_ROWS, n_below_bound))
    checked = np.argpartition(keys, n_checked)[:n_checked] if len(keys) > n_checked else slice(None)
    bound = _bound(1.0 if most_repeat(used_keys) else share)
    return Inspected(
        weight=float(len(keys) if weight is None else weight.sum()),
        n_used=used.n_rows,
        gap=block.tops.gap,
        lowest=int(block.labels.min()),
        highest=int(block.labels.max()),
        sum_of_parts=sum_of_parts(block.logits[checked].astype(np.float64), "X", "fit"),
        precision=block.precision,
        floor=floor_of_zeros(block.logits) if zeros else None,
        sample=sample_of(used_keys, used, n_sample, bound),
    )


def _bound(share: float) -> np.uint64:
    """The largest of this share of all keys."""
    return LARGEST_KEY if share >= 1.0 else np.uint64(share * 2.0**64)


def _merge(first: Inspected, second: Inspected, n_sample: int) -> Inspected:
    """The results of the first pass over two blocks as one."""
    floors = [part.floor for part in (first, second) if part.floor is not None]
    return Inspected(
        weight=first.weight + second.weight,
        n_used=first.n_used + second.n_used,
        gap=first.gap + second.gap,
        lowest=min(first.lowest, second.lowest),
        highest=max(first.highest, second.highest),
        sum_of_parts=first.sum_of_parts if first.sum_of_parts == second.sum_of_parts else None,
        precision=max(first.precision, second.precision),
        floor=min(floors) if len(floors) == 2 else None,
        sample=joined_samples(first.sample, second.sample, n_sample),
    )


def _for_client(n_sample: int, n_start: int, whole: Inspected) -> Inspected:
    """What the client receives: a few rows in single precision, since they only provide a starting point."""
    start = whole.sample.smallest(n_start)
    beyond = whole.sample.rows.take(slice(n_start, None))
    no_counters = Counters(start.others.keys[:0], start.others.counts[:0])
    return replace(
        whole,
        sample=replace(start, rows=_in_single(start.rows), others=no_counters),
        n_sampled=len(whole.sample.rows.keys),
        frequent=_in_single(beyond.take(beyond.counts > frequent_from(n_start, whole.n_used))),
        candidates=whole.sample.candidates(n_sample, whole.n_used),
    )


def _in_single(rows: CountedRows) -> CountedRows:
    return replace(rows, logits=rows.logits.astype(np.float32))


def _counted_candidates(candidates: Keys, lowest: float | None, block: Block) -> CountedRows:
    """The rows of a block whose keys are among the candidates, which are in ascending order."""
    used = block if block.weight is None or block.weight.all() else block.take(block.weight > 0.0)
    keys = row_keys(used, lowest)
    place = np.minimum(np.searchsorted(candidates, keys), len(candidates) - 1)
    is_candidate = candidates[place] == keys
    return counted(keys[is_candidate], used.take(is_candidate))


def _of_sample(
    question: Callable[[Block], Any],
    n_rows: int,
    floor: float | None,
    unit: float,
    frequent: CountedRows | None,
    inspected: Inspected,
) -> Any:
    """A function of `n_rows` rows of the sample of the first pass."""
    sample = block_of(inspected.sample, frequent, n_rows, inspected.n_used)
    return question(_limited(sample, floor, unit))


def _with_limits(question: Callable[[Block], Any], floor: float | None, unit: float, block: Block) -> Any:
    """A function of a block with limits."""
    return question(_limited(block, floor, unit))


def _limited(block: Block, floor: float | None, unit: float) -> Block:
    """A block whose logits are at least `floor` and whose weights are multiplied by a unit."""
    if floor is None and unit == 1.0:
        return block
    # Rows without weights may stand beside blocks with weights: theirs are 1.
    weight = block.weight if unit == 1.0 else unit * block.weights
    return Block(raise_zeros(block.logits, floor), block.labels, weight, block.groups, clusters=block.clusters)
