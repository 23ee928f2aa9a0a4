"""Parts of a data set: each can be read in blocks, repeatedly, in this process or in another."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import refuse_masked, to_numpy
from refocal._groups import as_groups
from refocal.engine.reading import Chunk
from refocal.errors import DataError, FormatError
from refocal.io.addresses import Options
from refocal.io.columns import choose, listed
from refocal.io.tables import Batch, Table, is_text, number, open_table, plain

# Numbers and rows of a block: large enough that Python's share of the time is small, small beside any memory.
BLOCK_ENTRIES, BLOCK_ROWS = 1 << 24, 1 << 20
# So many rows tell what the columns of a table hold.
FIRST_ROWS = 1000


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
    def of(cls, array: Any) -> Any:
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
            yield Chunk(to_numpy(self.values[rows]), labels, weight, self.where, start, groups=groups)


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


@dataclass(frozen=True)
class Columns:
    """Which columns of the files hold what; one column of lists may hold all classes."""

    classes: tuple[str, ...]
    nested: bool
    labels: str | None
    weight: str | None
    n_classes: int
    """0 where there are no rows."""
    class_names: tuple[str, ...] | None
    text_labels: bool
    """Whether the labels are names of classes."""
    others: tuple[str, ...]
    """All that hold neither classes nor labels."""
    groups: tuple[str, ...]
    """Those of the others that hold groups of rows."""


@dataclass(frozen=True)
class TablePart:
    """One file of columns; with `keeping` the chunks have the other columns and the labels as they are."""

    file: str
    columns: Columns
    n_rows: int | None
    options: Options = None
    lenient: bool = False
    keeping: bool = False

    @property
    def where(self) -> str:
        """The name of the file."""
        return self.file

    def blocks(self) -> Iterator[Chunk]:
        """Batches of rows; labels and weight are None where no column holds them."""
        columns = self.columns
        table = open_table(self.file, self.options, self.lenient)
        self._check(table)
        kept = [name for name in (*columns.others, columns.labels) if name is not None] if self.keeping else []
        wanted = [*columns.classes, *filter(None, (columns.labels, columns.weight)), *columns.groups, *kept]
        n_lost = 0
        for first, batch in table.batches(list(dict.fromkeys(wanted)), rows_of_a_block(columns.n_classes)):
            labels, weight = (
                None if name is None else plain(batch[name]) if is_name else table.numbers(batch[name], name, first)
                for name, is_name in ((columns.labels, columns.text_labels), (columns.weight, False))
            )
            groups = {name: plain(batch[name]) for name in columns.groups}
            further = {name: batch[name] for name in kept}
            values = self._matrix(table, batch, first)
            yield Chunk(values, labels, weight, self.file, first, further, groups, table.n_lost - n_lost)
            n_lost = table.n_lost

    def _check(self, table: Table) -> None:
        columns = self.columns
        wanted = {*columns.classes, columns.labels, columns.weight, *columns.groups} - {None}
        missing = sorted(str(name) for name in wanted if name not in table.names)
        if missing:
            has = f"which the first file has. It has {listed(table.names)}."
            raise FormatError(f"{self.file}: no column {missing[0]!r}, {has}")
        prefixes = {"".join(name.rpartition("_")[:2]) for name in columns.classes}
        prefix = prefixes.pop() if len(prefixes) == 1 < len(columns.classes) else ""
        extra = [n for n in table.names if prefix and n.startswith(prefix) and n not in {*wanted, *columns.others}]
        if extra:
            more = f"has a class {extra[0]!r} more than the first file, which has {columns.n_classes}."
            raise FormatError(f"{self.file}: {more}")

    def _matrix(self, table: Table, batch: Batch, first_row: int) -> NDArray[Any]:
        names = self.columns.classes
        if self.columns.nested:
            return table.lists(batch[names[0]], names[0], self.columns.n_classes, first_row)
        columns = [table.numbers(batch[name], name, first_row) for name in names]
        return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)


def table_parts(
    files: Sequence[str],
    input_name: str,
    values: str | None,
    labels: str | None,
    weight: str | None,
    groups: Sequence[str] = (),
    *,
    options: Options = None,
    lenient: bool = False,
    keeping: bool = False,
    bad: list[str] | None = None,
) -> list[TablePart]:
    """One part a file; the columns are those of the first that has rows.

    With a list `bad`, files that cannot be read, or have other columns, are left out, and the list says why.
    """
    sizes: dict[str, int | None] = {}
    columns = None
    for file in files:
        with _noting(bad):
            table = open_table(file, options, lenient)
            if (columns is None or columns.n_classes == 0) and (table.n_rows != 0 or len(files) == 1):
                columns = _columns_of(table, input_name, values, labels, weight, groups)
            sizes[file] = table.n_rows
    if columns is None:
        why = f"can be read: {bad[0]}" if bad else "has any rows."
        raise FormatError(f"{files[0]}: none of the {len(files)} files {why}")
    parts = [TablePart(file, columns, size, options, lenient, keeping) for file, size in sizes.items()]
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


def _columns_of(
    table: Table, input_name: str, values: str | None, labels: str | None, weight: str | None, groups: Sequence[str]
) -> Columns:
    """What the columns of a file hold."""
    classes, label_name, class_names = choose(table, input_name, values, labels, weight, groups)
    looked_at = [name for name in (classes[0], label_name) if name is not None]
    batches = table.batches(looked_at, FIRST_ROWS)
    first = next((batch for _, batch in batches if len(batch[classes[0]])), None)
    nested, text_labels, n_classes = classes[0] in table.nested, False, 0
    if first is not None:
        n_classes = max(len(classes), 2)  # one column is about class 1 of two
        if nested:
            n_classes = next((len(each) for each in plain(first[classes[0]]) if each is not None), 0)
        if label_name is not None and is_text(first[label_name]):  # most of it text that is no number
            text_labels = bool(np.mean([np.isnan(number(c)) for c in plain(first[label_name])[:FIRST_ROWS]]) > 0.5)
    others = tuple(name for name in table.names if name not in (*classes, label_name))
    return Columns(
        tuple(classes), nested, label_name, weight, n_classes, class_names, text_labels, others, tuple(groups)
    )


@contextmanager
def _noting(bad: list[str] | None) -> Iterator[None]:
    """Note what is wrong with a file rather than raise it, where there is a list to do so."""
    try:
        yield
    except (FormatError, OSError) as error:
        if bad is None:
            raise
        bad.append(str(error))
