"""Rows that lie in blocks, here or on other machines: what a search asks of them, whoever holds them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import log_probabilities, row_blocks, without_warnings
from refocal._validation import check_option
from refocal.errors import DataError, InputError, LabelError, ShapeError
from refocal.search.kernel import widened

# How far from 1 a row of probabilities may sum.
SUM_TOLERANCE = 1e-3


class Block(NamedTuple):
    """Some rows as they were read; `where` and `first_row` say where they come from, for complaints."""

    values: NDArray[Any]
    labels: Any
    weight: NDArray[Any] | None = None
    where: str = "the rows"
    first_row: int = 0


@dataclass(frozen=True)
class Job:
    """What is asked of every block, how two answers become one, and what of the last one is wanted.

    All of it can be pickled, and joining answers in any order gives the same: the blocks may be anywhere.
    """

    measure: Callable[[Block], Any]
    join: Callable[[Any, Any], Any]
    finish: Callable[[Any], Any] | None = None
    check: bool = False
    """Whether the rows are still to be checked."""


class Walked(NamedTuple):
    """The answer of all blocks (None where there is no row), how many rows they have and how many were left out."""

    answer: Any
    n_rows: int
    n_skipped: int


Ask: TypeAlias = Callable[[Callable[[Any], Any]], Any]
"""What a function says of an answer, computed where that answer lies."""


@dataclass(frozen=True)
class Reading:
    """How blocks are to be understood."""

    n_classes: int
    input: str = "logits"
    first_label: int = 0
    skip_bad_rows: bool = False
    function: str = "fit"
    class_names: tuple[str, ...] | None = None
    """What the columns are called; labels may be these names."""
    classes: tuple[str, ...] | None = None
    """What `classes_` of a calibrator will be; None: the numbers of the columns."""

    def __post_init__(self) -> None:
        check_option(self.input, ("logits", "probabilities"), "input", self.function)
        distinct = self.n_classes if self.class_names is None else len(set(self.class_names))
        if self.class_names is not None and not distinct == len(self.class_names) == self.n_classes:
            expected = f"{self.n_classes} different names, one for each column"
            raise ShapeError("class_names", self.function, expected=expected, got=f"{distinct} different ones")

    def prepared(self, block: Block, check: bool) -> Block:
        """Logits and labels from 0 on, without bad rows if those are to be skipped; complains about the first else."""
        self._check_shapes(block)
        given = block.labels
        labels = self._numbers(block) - self.first_label
        weight = None if block.weight is None else np.asarray(block.weight, dtype=np.float64)
        block = block._replace(labels=labels, weight=weight)
        if check or self.skip_bad_rows:
            bad = self._bad_rows(block)
            if bad.any() and not self.skip_bad_rows:
                row = int(np.argmax(bad))
                raise self.complaint(block, row, given[row])
            if bad.any():
                good = ~bad
                kept = None if weight is None else weight[good]
                block = block._replace(values=block.values[good], labels=labels[good], weight=kept)
        if self.input == "probabilities":
            block = block._replace(values=log_probabilities(block.values))
        return block

    def _check_shapes(self, block: Block) -> None:
        shape = tuple(block.values.shape)
        if len(shape) != 2 or shape[1] != self.n_classes:
            expected = f"of {self.n_classes} columns in every block, as in the first"
            raise ShapeError("X", self.function, expected=expected, got=f"shape {shape} in {block.where}")
        for name, values in (("y", block.labels), ("sample_weight", block.weight)):
            if values is not None and tuple(values.shape) != shape[:1]:
                got = f"shape {tuple(values.shape)} in {block.where}"
                raise ShapeError(name, self.function, expected=f"of shape {shape[:1]}, one for each row", got=got)
        if block.values.dtype.kind not in "fiub":
            got = f"dtype {block.values.dtype} in {block.where}"
            raise DataError("X", self.function, expected="an array of numbers", got=got)

    def _numbers(self, block: Block) -> NDArray[np.int64]:
        labels = np.asarray(block.labels)
        if labels.dtype.kind == "f":
            whole = np.isfinite(labels) & (labels == np.round(labels))
            # A label that is no number is a bad row, and -1 - first_label lies outside of every range.
            return np.where(whole, labels, self.first_label - 1).astype(np.int64)
        if labels.dtype.kind in "USTO":
            return self._numbers_of_names(labels, block.where)
        if labels.dtype.kind not in "iub":
            got = f"dtype {labels.dtype} in {block.where}"
            raise LabelError("y", self.function, expected="integers from 0 to C-1 in every block", got=got)
        return labels.astype(np.int64)

    def _numbers_of_names(self, labels: NDArray[Any], where: str) -> NDArray[np.int64]:
        if self.class_names is None:
            got = f"dtype {labels.dtype} in {where}"
            raise LabelError("y", self.function, expected="integers, or names with class_names", got=got)
        known = {name: i + self.first_label for i, name in enumerate(self.class_names)}
        names = (labels.astype(str) if labels.dtype.kind == "S" else labels).tolist()
        # A name that no class has, or none at all, makes a bad row.
        return np.array([known.get(name, self.first_label - 1) for name in names], dtype=np.int64)

    @without_warnings
    def bad_values(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Which rows hold no logits, or no probabilities."""
        if self.input == "logits":
            return np.asarray(~np.isfinite(values.max(axis=1)))
        off = np.abs(values.sum(axis=1, dtype=np.float64) - 1.0)
        return np.asarray(~((values.min(axis=1) >= 0.0) & (off <= SUM_TOLERANCE)))

    def _bad_rows(self, block: Block) -> NDArray[np.bool_]:
        bad = np.zeros(len(block.labels), dtype=np.bool_)
        for rows in row_blocks(len(bad), self.n_classes):  # what is widened stays in the cache
            bad[rows] = self.bad_values(widened(block.values[rows]))
        outside = (block.labels < 0) | (block.labels >= self.n_classes)
        bad |= outside
        if self.input == "logits":
            index = np.where(outside, 0, block.labels)
            bad |= np.take_along_axis(block.values, index[:, None], axis=1)[:, 0] == -np.inf
        if block.weight is not None:
            bad |= ~((block.weight >= 0.0) & (block.weight < np.inf))
        return bad

    def complaint(self, block: Block, row: int, given: Any = None) -> InputError:
        """What is wrong with one row, and where it is; `given` is its label as it was read."""
        place = f"row {block.first_row + row} of {block.where}"
        values, label = widened(block.values[row]), int(block.labels[row])
        if not 0 <= label < self.n_classes:
            if self.class_names is not None and not isinstance(given, (int, float, np.number)):
                return LabelError("y", self.function, expected="among the class names", got=f"{given!r} in {place}")
            expected = f"whole numbers from {self.first_label} to {self.first_label + self.n_classes - 1}"
            return LabelError("y", self.function, expected=expected, got=f"{given} in {place}")
        if block.weight is not None and not 0.0 <= block.weight[row] < np.inf:
            got = f"{block.weight[row]} in {place}"
            return DataError("sample_weight", self.function, expected="finite and not negative", got=got)
        if self.input == "probabilities":
            expected = f"rows of probabilities: at least 0, and 1 in sum within {SUM_TOLERANCE:g}"
            got = f"{place}, which sums to {values.sum(dtype=np.float64):.6g}"
            return DataError("X", self.function, expected=expected, got=got)
        if np.isnan(values).any() or not np.isfinite(values.max()):
            what = "NaN" if np.isnan(values).any() else "+inf" if values.max() > 0 else "only -inf"
            expected = "free of NaN and +inf, with a finite value in every row"
            return DataError("X", self.function, expected=expected, got=f"{what} in {place}")
        expected = "finite where the label points: no temperature gives probability to a logit of -inf"
        return DataError("X", self.function, expected=expected, got=f"-inf at the label of {place}")


class Rows(ABC):
    """Blocks that can be walked through as often as a search needs; made by `refocal.scale`.

    >>> from refocal.scale import blocks
    >>> rows = blocks([([[2.0, 0.0], [0.0, 1.0]], [0, 1]), ([[1.0, 0.0]], [1])])
    >>> isinstance(rows, Rows), rows.reading.n_classes
    (True, 2)
    """

    reading: Reading
    watch: Callable[[int, int | None], None] | None = None
    """Told how many rows of a walk are done, and of how many if that is known."""

    @abstractmethod
    def walk(self, job: Job) -> Walked:
        """Do a job on all blocks."""

    @abstractmethod
    def walk_and_keep(self, job: Job) -> tuple[Walked, Ask]:
        """The same, with a way to ask more of the whole answer, which stays where it is however large."""


def walk_blocks(
    blocks: Iterable[Block], reading: Reading, job: Job, tell: Callable[[int], None] | None = None
) -> Walked:
    """Do a job on some blocks, one after the other; `finish` is left to who has the whole answer."""
    total = Walked(None, 0, 0)
    for block in blocks:
        good = reading.prepared(block, job.check)
        n_rows = len(good.labels)
        answer = job.measure(good) if n_rows else None
        total = join_walked(job, total, Walked(answer, n_rows, len(block.labels) - n_rows))
        if tell is not None:
            tell(len(block.labels))
    return total


def join_walked(job: Job, *parts: Walked) -> Walked:
    """The answers of several walks as one."""
    total = parts[0]
    for part in parts[1:]:
        found = [walked.answer for walked in (total, part) if walked.answer is not None]
        answer = job.join(*found) if len(found) == 2 else found[0] if found else None
        total = Walked(answer, total.n_rows + part.n_rows, total.n_skipped + part.n_skipped)
    return total


def finish_walked(job: Job, total: Walked) -> Walked:
    """What of the answer is wanted."""
    return total if job.finish is None or total.answer is None else total._replace(answer=job.finish(total.answer))
