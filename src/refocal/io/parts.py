"""Parts of a data set: each can be read in blocks, repeatedly, in this process or in another."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import masked_error, to_numpy
from refocal.engine.reading import Chunk
from refocal.errors import DataError, FormatError, ShapeError
from refocal.io.columns import Columns, Query, choose, listed
from refocal.io.tables import Table, is_text, number, open_table, plain

# Numbers and rows of a block: large enough that Python's share of the time is small, small beside any memory.
BLOCK_ENTRIES, BLOCK_ROWS = 1 << 24, 1 << 20
# So many rows tell what the columns of a table hold.
FIRST_ROWS = 1000


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
    def of(cls, array: Any) -> Any:
        """A memory-mapped array by its place in the file; others, and views that skip some of it, stay as they are."""
        held = getattr(array, "_mmap", None)
        if not isinstance(held, mmap.mmap) or array.filename is None or not array.flags.c_contiguous:
            return array
        start = np.frombuffer(held, dtype=np.uint8).ctypes.data
        # A view keeps the offset of the array that it was cut from: only addresses tell where it begins.
        mapped_from = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
        offset = mapped_from + array.ctypes.data - start
        return cls(str(array.filename), array.dtype, offset, array.shape)

    def __len__(self) -> int:
        return self.shape[0]

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
    groups: Mapping[str, Any]
    where: str
    first: int
    last: int

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return self.last - self.first

    def blocks(self) -> Iterator[Chunk]:
        """All of them, as one block."""
        rows = slice(self.first, self.last)
        labels, weight = (None if each is None else each[rows] for each in (self.labels, self.weight))
        groups = {name: np.asarray(column[rows]) for name, column in self.groups.items()}
        yield from one_chunk(self.values[rows], labels, weight, groups, self.where, self.first)


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
            yield from one_chunk(values, labels, weight, groups, f"{self.where} {i}", function="blocks")


def one_chunk(
    values: Any, labels: Any, weight: Any, groups: Any, where: str, first_row: int = 0, function: str = "fit"
) -> list[Chunk]:
    """Arrays of any library as one chunk; what a mask hides is no number."""
    for argument, array in (("X", values), ("y", labels), ("sample_weight", weight)):
        if np.ma.is_masked(array):
            raise masked_error(array, argument, function)
    y, w = (None if each is None else to_numpy(each) for each in (labels, weight))
    return [Chunk(to_numpy(values), y, w, where, first_row, groups=groups)]


def n_columns(shape: tuple[int, ...]) -> int | None:
    """The number of classes of an array of this shape: one number a row is about class 1 of two; None for others."""
    return {1: 2, 2: int(shape[-1])}.get(len(shape)) if shape else None


def rows_of_a_block(n_classes: int) -> int:
    """How many rows are read at a time."""
    return max(1, min(BLOCK_ROWS, BLOCK_ENTRIES // n_classes))


def array_parts(values: Any, labels: Any, weight: Any, groups: Mapping[str, Any], where: str) -> list[Part]:
    """Parts of a block each of arrays that can be sliced, so that machines can share them; chunks of Zarr are whole."""
    n_rows = int(values.shape[0])

    def checked(vector: Any, what: str) -> Any:
        array = vector if vector is None or hasattr(vector, "shape") else np.asarray(vector)
        if array is not None and tuple(array.shape) != (n_rows,):
            expected = f"of shape {(n_rows,)}, one for each row"
            raise ShapeError(what, "fit", expected=expected, got=f"shape {tuple(array.shape)}")
        return Mapped.of(array)

    arrays = (Mapped.of(values), checked(labels, "y"), checked(weight, "sample_weight"),
              {name: checked(column, "groups") for name, column in groups.items()})  # fmt: skip
    chunk = int(values.chunks[0]) if getattr(values, "chunks", None) else 1
    step = max(1, rows_of_a_block(n_columns(values.shape) or 1) // chunk) * chunk
    return [ArrayPart(*arrays, where, i, min(i + step, n_rows)) for i in range(0, n_rows, step)]


@dataclass(frozen=True)
class TablePart:
    """One file of columns."""

    where: str
    columns: Columns
    n_rows: int | None
    query: Query

    def blocks(self) -> Iterator[Chunk]:
        """Batches of rows; labels and weight are None where no column holds them."""
        columns, query = self.columns, self.query
        table, n_lost = open_table(self.where, query), 0
        wanted = [*columns.classes, *columns.labels, *filter(None, [query.weight]), *query.groups]
        self._check(table, wanted)
        kept = [name for name in columns.names if name not in columns.classes] if query.keeping else []
        for first, batch in table.batches(list(dict.fromkeys([*wanted, *kept])), rows_of_a_block(columns.n_classes)):
            if columns.nested:
                values = table.lists(batch, wanted[0], columns.n_classes, first)
            else:
                values = table.matrix(batch, columns.classes, first)
            if columns.text_labels:
                labels = plain(batch[columns.labels[0]])
            else:
                labels = table.matrix(batch, columns.labels, first)
            weight = None if query.weight is None else table.numbers(batch, query.weight, first)
            groups = {name: plain(batch[name]) for name in query.groups}
            further = {name: batch[name] for name in kept}
            yield Chunk(values, labels, weight, self.where, first, further, groups, table.n_lost - n_lost)
            n_lost = table.n_lost

    def _check(self, table: Table, wanted: Sequence[str]) -> None:
        missing = sorted(name for name in wanted if name not in table.names)
        if missing:
            has = f"which the first file has. It has {listed(table.names)}."
            raise FormatError(f"{self.where}: no column {missing[0]!r}, {has}")
        columns = self.columns
        prefixes = {"".join(name.rpartition("_")[:2]) for name in columns.classes}
        prefix = prefixes.pop() if len(prefixes) == 1 < len(columns.classes) else ""
        extra = [name for name in table.names if prefix and name.startswith(prefix) and name not in columns.names]
        if extra:
            more = f"has a class {extra[0]!r} more than the first file, which has {columns.n_classes}."
            raise FormatError(f"{self.where}: {more}")


Part: TypeAlias = ArrayPart | PairsPart | TablePart
"""Some of the rows; small enough to be sent to another machine, where its `blocks` reads them."""


def table_parts(files: Sequence[str], query: Query, bad: list[str] | None = None) -> list[TablePart]:
    """One part a file; the columns are those of the first that has rows.

    With a list `bad`, files that cannot be read, or have other columns, are left out, and the list says why.
    """
    sizes: dict[str, int | None] = {}
    columns = None
    for file in files:
        with _noting(bad):
            table = open_table(file, query)
            if (columns is None or columns.n_classes == 0) and (table.n_rows != 0 or len(files) == 1):
                columns = _columns_of(table, query)
            sizes[file] = table.n_rows
    if columns is None:
        why = f"can be read: {bad[0]}" if bad else "has any rows."
        raise FormatError(f"{files[0]}: none of the {len(files)} files {why}")
    parts = [TablePart(file, columns, size, query) for file, size in sizes.items()]
    if bad is None or columns.n_classes == 0:
        return parts
    found = []
    for part in parts:
        with _noting(bad):
            for _ in part.blocks():
                pass
            found.append(part)
    if not found:
        raise FormatError(f"{files[0]}: none of the files can be read: {bad[0]}")
    return found


def _columns_of(table: Table, query: Query) -> Columns:
    """What the columns of a file hold, as its first rows tell."""
    columns = choose(table, query)
    values, labels = columns.classes[0], columns.labels[:1]
    first = next((batch for _, batch in table.batches([values, *labels], FIRST_ROWS) if len(batch[values])), None)
    if first is None:
        return columns
    n_classes = max(len(columns.classes), 2)  # one column is about class 1 of two
    if columns.nested:
        n_classes = next((len(each) for each in plain(first[values]) if each is not None), 0)
    text_labels = False
    if labels and not query.several and is_text(first[labels[0]]):  # unless most of it is numbers
        text_labels = bool(np.mean([np.isnan(number(cell)) for cell in plain(first[labels[0]])[:FIRST_ROWS]]) > 0.5)
    return replace(columns, n_classes=n_classes, text_labels=text_labels)


@contextmanager
def _noting(bad: list[str] | None) -> Iterator[None]:
    """Note what is wrong with a file rather than raise it, where there is a list to do so."""
    try:
        yield
    except (FormatError, OSError) as error:
        if bad is None:
            raise
        bad.append(str(error))
