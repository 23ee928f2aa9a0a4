"""Parts of a data set: each can be read in blocks, repeatedly, in this process or in another."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import refuse_masked, to_numpy
from refocal._groups import as_groups
from refocal.engine.reading import Chunk
from refocal.errors import DataError

# Numbers and rows of a block: large enough that Python's share of the time is small, small beside any memory.
BLOCK_ENTRIES, BLOCK_ROWS = 1 << 24, 1 << 20


class Part(Protocol):
    """Some of the rows; small enough to be sent to another machine, where it reads them itself."""

    @property
    def where(self) -> str:
        """Its name in error messages."""

    @property
    def n_rows(self) -> int | None:
        """How many rows, if that is known before they are read."""

    def blocks(self) -> Iterator[Chunk]:
        """The rows, from the first on."""


@dataclass(frozen=True)
class Mapped:
    """An array in a file, of which only the rows asked for are mapped, and only for as long as they are needed.

    A map of the whole file would keep every page that was ever looked at, until memory runs short.
    """

    file: str
    dtype: np.dtype[Any]
    offset: int
    shape: tuple[int, ...]

    @classmethod
    def of(cls, array: NDArray[Any]) -> Mapped | NDArray[Any]:
        """A memory-mapped array by its place in the file; others, and views that skip some of it, stay as they are."""
        if not isinstance(array, np.memmap) or array.filename is None or not array.flags.c_contiguous:
            return array
        held = getattr(array, "_mmap", None)
        if not isinstance(held, mmap.mmap):
            return array
        start = np.frombuffer(held, dtype=np.uint8).ctypes.data
        # A view keeps the offset of the array that it was cut from: only addresses tell where it begins.
        mapped_from = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
        offset = mapped_from + array.ctypes.data - start
        return cls(str(array.filename), array.dtype, offset, array.shape)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        first, last, _ = rows.indices(len(self))
        row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        if last <= first:
            return np.empty((0, *self.shape[1:]), dtype=self.dtype)
        shape = (last - first, *self.shape[1:])
        window = np.memmap(self.file, self.dtype, "r", self.offset + first * row_bytes, shape)
        return np.asarray(window)


@dataclass(frozen=True)
class ArrayPart:
    """Rows `first` to `last` of arrays that can be sliced: NumPy's, mapped files, Zarr."""

    values: Any
    labels: Any
    weight: Any
    where: str
    first: int
    last: int
    step: int
    groups: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return self.last - self.first

    def blocks(self) -> Iterator[Chunk]:
        """Slices of `step` rows."""
        for start in range(self.first, self.last, self.step):
            rows = slice(start, min(start + self.step, self.last))
            weight = None if self.weight is None else np.asarray(self.weight[rows])
            labels = None if self.labels is None else np.asarray(self.labels[rows])
            groups = {name: np.asarray(column[rows]) for name, column in self.groups.items()}
            yield Chunk(np.asarray(self.values[rows]), labels, weight, self.where, start, groups=groups)


@dataclass(frozen=True)
class PairsPart:
    """What a caller gives: (logits, labels), with weights or None and with groups if there are any, block by block."""

    pairs: Iterable[Any]
    where: str = "block"
    n_rows: int | None = None

    def blocks(self) -> Iterator[Chunk]:
        """One block for each pair; its rows are counted from 0."""
        for i, pair in enumerate(self.pairs):
            if not isinstance(pair, (tuple, list)) or len(pair) not in (2, 3, 4):
                expected = "(logits, labels), (logits, labels, weights) or (logits, labels, weights, groups)"
                got = f"{type(pair).__name__} as block {i}"
                raise DataError("blocks", "blocks", expected=expected, got=got)
            values, labels, weight, groups = (*pair, None, None)[:4]
            chunk = plain_chunk(values, labels, weight, f"{self.where} {i}", function="blocks")
            yield chunk._replace(groups=as_groups(groups, len(chunk.labels), "blocks"))


def plain_chunk(values: Any, labels: Any, weight: Any, where: str, first_row: int = 0, *, function: str) -> Chunk:
    """A block of NumPy arrays; what a mask hides is no number."""
    for argument, array in (("X", values), ("y", labels), ("sample_weight", weight)):
        refuse_masked(array, argument, function)
    weights = None if weight is None else to_numpy(weight)
    return Chunk(to_numpy(values), to_numpy(labels), weights, where, first_row)


def n_columns(shape: tuple[int, ...]) -> int | None:
    """The number of classes of an array of this shape: one number a row is about class 1 of two; None for others."""
    return {1: 2, 2: int(shape[-1])}.get(len(shape)) if shape else None


def rows_of_a_block(n_classes: int) -> int:
    """How many rows are read at a time."""
    return max(1, min(BLOCK_ROWS, BLOCK_ENTRIES // n_classes))


def array_parts(
    values: Any,
    labels: Any,
    weight: Any,
    where: str,
    multiple_of: int = 1,
    groups: Mapping[str, Any] | None = None,
) -> list[ArrayPart]:
    """Parts of about a block each, so that machines can share them; rows are cut where `multiple_of` allows it."""
    n_rows = values.shape[0]
    step = max(1, rows_of_a_block(n_columns(values.shape) or 1) // multiple_of) * multiple_of
    cut = range(0, n_rows, step)
    return [ArrayPart(values, labels, weight, where, i, min(i + step, n_rows), step, groups or {}) for i in cut]
