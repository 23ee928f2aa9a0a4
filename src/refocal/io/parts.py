"""Parts of a data set: each can be read in blocks, repeatedly, in this process or in another."""

from __future__ import annotations

import io
import mmap
import re
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import is_bfloat16, masked_error, to_numpy
from refocal._groups import exact
from refocal._limits import block_entries
from refocal._validation import check_shape, number_of_text
from refocal.errors import DataError, FormatError, Remedy, need
from refocal.io.class_columns import could_be_scores
from refocal.io.columns import Columns, choose
from refocal.io.files import Unpacked, ending_of, filesystem_of, refusing
from refocal.io.query import ANYTHING, Contents, Query, listed
from refocal.rows import RawRows
from refocal.rows.class_names import shared_beginning
from refocal.rows.scores import as_scores, column_names

# The number of rows read to infer what the columns of a table hold.
FIRST_ROWS = 1000
# Types of pyarrow that hold several numbers, and those that hold several values of any kind.
LISTS = ("list<", "large_list<", "fixed_size_list<")
NESTED = (*LISTS, "struct<", "map<")


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
        """A memory-mapped array by its place in the file; others, and views that skip some of it, stay as they are.

        So do arrays of mode "c", which may have been changed in memory alone.
        """
        held = getattr(array, "_mmap", None)
        if not isinstance(held, mmap.mmap) or array.filename is None or not array.flags.c_contiguous:
            return array
        if array.mode == "c":
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
    is_moved: bool = False
    """Whether some were read of files that have the columns in another order than the first: see `RawRows`."""

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.last - self.first

    def blocks(self) -> Iterator[RawRows]:
        """All rows, as one block."""
        rows = slice(self.first, self.last)
        labels, weight = (None if each is None else each[rows] for each in (self.labels, self.weight))
        groups = {name: exact(column[rows]) for name, column in self.groups.items()}
        for chunk in one_chunk(self.values[rows], labels, weight, groups, self.where, self.first):
            yield chunk._replace(is_moved=self.is_moved)


@dataclass(frozen=True)
class PairsPart:
    """What a caller gives: (logits, labels), with weights or None and with groups if there are any, block by block."""

    pairs: Iterable[Any]
    where: str = "block"
    n_rows: int | None = None

    def blocks(self) -> Iterator[RawRows]:
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
) -> list[RawRows]:
    """Arrays of any library as one chunk; masked entries are refused."""
    for argument, array in (("X", values), ("y", labels), ("sample_weight", weight)):
        if np.ma.is_masked(array):
            raise masked_error(array, argument, function)
    y, w = (None if each is None else to_numpy(each) for each in (labels, weight))
    columns = column_names(values)
    scores = as_scores(values)
    is_half = hasattr(scores, "dtype") and is_bfloat16(scores)
    raw = RawRows(to_numpy(scores), y, w, where, first_row, groups=groups, columns=columns, is_bfloat16=is_half)
    return [raw]


def n_columns(shape: tuple[int, ...]) -> int | None:
    """The number of classes of an array of this shape: one number per row is about class 1 of two; None for others."""
    return {1: 2, 2: int(shape[-1])}.get(len(shape)) if shape else None


def rows_of_a_block(n_classes: int) -> int:
    """How many rows are read at a time."""
    most_rows = 1 << 20
    return max(1, min(most_rows, block_entries() // n_classes))


def array_parts(
    values: Any,
    labels: Any,
    weight: Any,
    groups: Mapping[str, Any],
    where: str,
    *,
    several_labels: bool = False,
    is_moved: bool = False,
) -> list[ArrayPart]:
    """Parts of a block each of arrays that can be sliced, so that machines can share them; chunks of Zarr are whole.

    With `several_labels` each entry of the values has a label, otherwise each row. `is_moved` as for `RawRows`.
    """
    n_rows = int(values.shape[0])

    def checked(vector: Any, what: str, shape: tuple[int, ...] = (n_rows,)) -> Any:
        array = vector if vector is None or hasattr(vector, "shape") else np.asarray(vector)
        check_shape(array, shape, what, "fit", ", one for each row" if len(shape) == 1 else "")
        return Mapped.of(array)

    of_labels = tuple(map(int, values.shape[: 2 if several_labels else 1]))
    of_groups = {name: column if hasattr(column, "shape") else exact(column) for name, column in groups.items()}
    arrays = (Mapped.of(values), checked(labels, "y", of_labels), checked(weight, "sample_weight"),
              {name: checked(column, "groups") for name, column in of_groups.items()})  # fmt: skip
    chunk = int(values.chunks[0]) if getattr(values, "chunks", None) else 1
    step = max(1, rows_of_a_block(n_columns(values.shape) or 1) // chunk) * chunk
    return [ArrayPart(*arrays, where, i, min(i + step, n_rows), is_moved) for i in range(0, n_rows, step)]


ColumnBatch = dict[str, Any]
"""Columns by their names: arrays of pyarrow, or of Python's objects."""


class Table(Contents):
    """One file of columns, a part of a data set."""

    is_table = True
    n_rows: int | None = None
    columns: Columns
    """The columns of the first file of the data set that has rows."""
    kept: Collection[str] = ()
    """Columns that are passed on, whatever they hold."""

    def __init__(
        self, where: str, query: Query = ANYTHING, partitions: Mapping[str, str | None] = MappingProxyType({})
    ) -> None:
        self.where = where
        self.query = query
        self._problem = f"cannot be read as {ending_of(where)}"
        with refusing(where, self._problem):
            stored, self.nested = self._header()
        self.partitions = {name: value for name, value in partitions.items() if name not in stored}
        self.names = [*stored, *self.partitions]

    def blocks(self) -> Iterator[RawRows]:
        """Batches of rows; labels and weight are None where no column holds them."""
        columns = self.columns
        query = self.query
        lost: list[int] = []
        n_counted = 0
        wanted = [*columns.classes, *columns.labels, *filter(None, [query.weight]), *query.groups]
        classes = {*columns.classes}
        kept = [name for name in columns.names if name not in classes] if query.keeping else []
        self.kept = {*kept} - {*wanted}
        self._check([*wanted, *kept])
        n_rows = rows_of_a_block(columns.n_classes)
        for first, batch in self.batches(list(dict.fromkeys([*wanted, *kept])), n_rows, lost):
            if columns.nested:
                values = self.lists(batch, wanted[0], columns.n_classes, first)
            else:
                values = self.matrix(batch, columns.classes, first)
            if query.several:
                labels = self.matrix(
                    {name: without_truths(batch[name]) for name in columns.labels}, columns.labels, first
                )
            else:  # several that are passed on are among the columns that are kept
                labels = plain(batch[columns.labels[0]]) if len(columns.labels) == 1 else None
            weight = None if query.weight is None else self.numbers(batch, query.weight, first)
            groups = {name: self._group(name, exact(batch[name])) for name in query.groups}
            further = {name: batch[name] for name in kept}
            n_lost = len(lost) - n_counted
            yield RawRows(values, labels, weight, self.where, first, further, groups, n_lost, is_moved=self._is_moved())
            n_counted += n_lost

    def _is_moved(self) -> bool:
        """Whether this file has the classes in another order than the first one, which numbers may count."""
        classes = self.columns.classes
        own = [name for name in self.names if name in {*classes}]
        first = [name for name in self.columns.names if name in {*classes}]
        return own != first

    def _group(self, name: str, cells: NDArray[Any]) -> NDArray[Any]:
        """A column of groups; of one without types, numbers and truths are as a table with types has them.

        So 30.0 and 30 are one group, and true and True.
        """
        if self._has_types(name):
            return cells
        distinct = {cell: _as_typed(cell) for cell in set(cells.tolist())}
        return objects([distinct[cell] for cell in cells.tolist()])

    def _has_types(self, name: str) -> bool:
        """Whether the cells of a column have types, and are not all text, as those of CSV and of folders are."""
        return name not in self.partitions

    def _check(self, wanted: Sequence[str]) -> None:
        """Refuse a file that lacks a column of the first one, or has a class more, or one more that is passed on."""
        columns = self.columns
        expected = {*self.columns.names}
        if missing := sorted({*wanted} - {*self.names}):
            has = f"which the first file has. It has {listed(self.names)}."
            raise FormatError(f"{self.where}: no column {missing[0]!r}, {has}")
        prefix = columns.classes[0][: shared_beginning(columns.classes)] if columns.classes else ""
        others = [name for name in self.names if name not in expected]
        if prefix:
            extra = [name for name in others if name.startswith(prefix)]
        else:
            extra = [] if self._says_classes() else self._like_scores(others)
        if extra:
            more = f"has a class {extra[0]!r} more than the first file, which has {columns.n_classes}."
            raise FormatError(f"{self.where}: {more}", Remedy.COLUMNS)
        if others and self.query.keeping:
            more = f"has a column {others[0]!r}, which the first file lacks; add it there, or leave it out here."
            raise FormatError(f"{self.where}: {more}")

    def _says_classes(self) -> bool:
        """Whether a caller, a calibrator or a column of lists says which columns are classes."""
        return self.query.values is not None or self.query.classes is not None or self.columns.nested

    def _like_scores(self, names: Sequence[str]) -> list[str]:
        """Those of some columns that may hold scores of a class."""
        cells = self.first_cells([name for name in names if name not in self.partitions])
        return [name for name in cells if could_be_scores(name, cells[name])]

    def look(self) -> Columns:
        """What the columns hold, inferred from the first rows."""
        columns = choose(self, self.query)
        values = next(iter((*columns.classes[:1], *columns.labels[:1])))
        cells = self.first_cells([values]).get(values)
        if cells is None or not len(cells):
            return columns
        n_classes = max(len(columns.classes), 2)  # one column is for class 1 of two
        if columns.nested:
            lengths = [len(cell) for cell in cells if cell is not None] or [0]
            n_classes = most_frequent(lengths) if self.query.lenient else lengths[0]
        if self.query.only_labels:
            n_classes = 1
        return replace(columns, n_classes=n_classes)

    def first_cells(self, columns: Sequence[str]) -> Mapping[str, NDArray[Any]]:
        """The first rows of some columns; of text that holds numbers these numbers."""
        batches = (batch for _, batch in self.batches(columns, FIRST_ROWS) if len(batch[columns[0]]))
        batch = next(batches, None) if columns else None
        return {} if batch is None else {name: plain(batch[name])[:FIRST_ROWS] for name in columns}

    def repeated_id(self, columns: Sequence[str]) -> str:
        """The first of some columns that is called as ids are and has a value in several of the first rows, or ''."""
        # Such as customer_id, patient, userId.
        called_as_ids = re.compile(
            r"(?i:(.*[_ .-])?(id|uid|uuid|guid|customer|client|user|patient|subject|person|account|household|document"
            r"|image|session|device))|.*[a-z]I[dD]"
        )
        names = [name for name in columns if called_as_ids.fullmatch(name)]
        n_rows = 100_000  # ids that repeat do so among as many rows
        values: dict[str, set[Any]] = {name: set() for name in names}
        n_known = dict.fromkeys(names, 0)
        self.kept = {*names}  # nobody asks for them: they may hold anything
        for first, batch in self.batches(names, FIRST_ROWS) if names else ():
            for name in names:
                cells = plain(batch[name]).tolist()
                known = [cell for cell in cells if isinstance(cell, (str, int, float)) and cell == cell and cell != ""]
                values[name].update(known)
                n_known[name] += len(known)
                # A column of one value alone names nothing.
                if 1 < len(values[name]) < n_known[name]:
                    return name
            if first >= n_rows:
                break
        return ""

    def batches(
        self, columns: Sequence[str], n_rows: int, lost: list[int] | None = None
    ) -> Iterator[tuple[int, ColumnBatch]]:
        """The columns in batches of about `n_rows` rows, each with the number of its first row.

        `lost` gets the number of cells of each line that is left out. It belongs to one pass: another may go on in a
        thread that reads ahead.
        """
        lost = [] if lost is None else lost
        first = 0
        # Where only folders are asked for, any column tells how many rows there are.
        stored = [name for name in columns if name not in self.partitions] or self.names[:1]
        of_folders = {name: value for name, value in self.partitions.items() if name in columns}
        with refusing(self.where, self._problem):
            for batch in self._batches(stored, n_rows, lost):
                n_read = len(batch[stored[0]])
                yield first, batch | {name: repeated(value, n_read) for name, value in of_folders.items()}
                first += n_read

    @abstractmethod
    def _header(self) -> tuple[list[str], set[str]]:
        """The names of the columns, and of those that hold lists."""

    @abstractmethod
    def _batches(self, columns: Sequence[str], n_rows: int, lost: list[int]) -> Iterator[ColumnBatch]:
        """Batches of some columns, from the first row on; of text some megabytes, whatever `n_rows` says."""

    def _open(self) -> Any:
        if "://" in self.where:
            filesystem, path = filesystem_of(self.where, self.query.options)
            file = filesystem.open(path, "rb")
        else:
            file = Path(self.where).open("rb")  # noqa: SIM115 - the caller closes it
        return io.BufferedReader(Unpacked(file)) if self.where.lower().endswith(".gz") else file

    def matrix(self, batch: ColumnBatch, columns: Sequence[str], first_row: int) -> Any:
        """Columns of numbers side by side; one alone is a vector, unless it is one of several labels, and none None."""
        vectors = [self.numbers(batch, name, first_row) for name in columns]
        if len(vectors) > 1 or (vectors and self.query.several):
            return np.stack(vectors, axis=1)
        return next(iter(vectors), None)

    def _check_flat(self, name: str, column: Any) -> None:
        """Refuse a column of lists or objects where each row has one value."""
        if _is_plain(column):
            is_nested = any(isinstance(cell, (list, dict)) for cell in column[:FIRST_ROWS])
        else:
            is_nested = str(column.type).startswith(NESTED)
        if is_nested:
            problem = f"the column {name!r} holds lists or objects, where one value per row was expected"
            raise FormatError(f"{self.where}: {problem}.")

    def numbers(self, batch: ColumnBatch, name: str, first_row: int) -> NDArray[Any]:
        """A column of numbers; text is read as numbers."""
        column = batch[name]
        self._check_flat(name, column)
        try:
            if holds_text(column):
                column = _as_numbers(column) if _is_plain(column) else column.cast("float64")
            values = plain(column)
            return values.astype(np.float64) if values.dtype.kind == "O" else values
        except (ValueError, TypeError, NotImplementedError):
            # Python knows more spellings of a number, and says which is none.
            cells = plain(column).tolist()
            column = np.array([number(cell) for cell in cells])
            bad = np.isnan(column) & [str(cell).strip().lower() not in ("nan", "+nan", "-nan") for cell in cells]
            if bad.any() and not self.query.lenient:
                row = int(np.argmax(bad))
                got = f"row {first_row + row} has {str(cells[row])[:40]!r} in the column {name!r}"
                has_decimal_comma = re.fullmatch(r"\s*[+-]?\d*,\d+\s*", str(cells[row])) is not None
                if has_decimal_comma:
                    raise FormatError(f"{self.where}: {got}; write decimals with a point, 0.25.") from None
                remedy = Remedy.COLUMNS if bad.all() else None  # of numbers, it is the right column
                raise FormatError(f"{self.where}: {got}, where a number was expected.", remedy) from None
            return np.asarray(column)

    def lists(self, batch: ColumnBatch, name: str, n_classes: int, first_row: int) -> NDArray[Any]:
        """A column of lists of numbers as a matrix; what has another length is an error, or NaN."""
        cells = batch[name]
        if _is_plain(cells):
            lengths = np.array([0 if each is None else len(each) for each in cells])
        else:
            lengths = plain(need("pyarrow.compute", "parquet", "Lists").list_value_length(cells).fill_null(0))
        good = lengths == n_classes
        if good.all() and not _is_plain(cells):
            return plain(cells.flatten()).reshape(-1, n_classes)
        if not good.all() and not self.query.lenient:
            row = int(np.argmin(good))
            expected = f"the lists of {name!r} must hold {n_classes} numbers in every row, as in the first one"
            raise FormatError(f"{self.where}: {expected}. Got {lengths[row]} in row {first_row + row} instead.")
        values = np.full((len(cells), n_classes), np.nan)
        given = chain.from_iterable(plain(cells)[good])
        values[good] = np.fromiter(map(number, given), np.float64).reshape(-1, n_classes)
        return values


Part: TypeAlias = ArrayPart | PairsPart | Table
"""Some of the rows; small enough to be sent to another machine, where its `blocks` reads them."""


def plain(column: Any) -> NDArray[Any]:
    """A column as a NumPy array."""
    return np.asarray(column if _is_plain(column) else column.to_numpy(zero_copy_only=False))


def repeated(text: str | None, n_rows: int) -> Any:
    """A column of text that is the same in all rows."""
    if find_spec("pyarrow") is None:
        return np.full(n_rows, text, dtype=object)
    arrow = need("pyarrow", "parquet", "Text in blocks")
    return arrow.repeat(arrow.scalar(text, arrow.string()), n_rows)


def objects(values: list[Any]) -> NDArray[Any]:
    """A NumPy array of Python's objects, of which some may be lists."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def most_frequent(values: list[Any]) -> Any:
    """The value that is there most often; of several the first.

    >>> most_frequent([3, 4, 4, 5])
    4
    """
    return max(dict.fromkeys(values), key=values.count)


def holds_text(column: Any) -> bool:
    """Whether a column is one of text."""
    if _is_plain(column):
        return isinstance(next((cell for cell in column if cell is not None), None), str)
    return str(column.type).removeprefix("dictionary<values=").removeprefix("large_").startswith("str")


def number(cell: Any) -> float:
    """The number in a cell, NaN where it is no number.

    >>> number("2.5"), number("2_5")
    (2.5, nan)
    """
    try:
        return number_of_text(cell) if isinstance(cell, str) else float(cell)
    except (TypeError, ValueError):
        return float("nan")


def _as_typed(cell: Any) -> Any:
    """A cell of text as a table with types has it: truths, and decimals as numbers; whole numbers, as ids, as text.

    Decimals that are not written as numbers are keep their text too, such as version 2.10, which is not 2.1.

    >>> _as_typed("30.0"), _as_typed("30"), _as_typed("2.10"), _as_typed("true"), _as_typed("west")
    (30.0, '30', '2.10', True, 'west')
    """
    if not isinstance(cell, str):
        return cell
    if cell.lower() in ("true", "false"):
        return cell.lower() == "true"
    is_decimal = "." in cell and str(number(cell)) == cell
    return number(cell) if is_decimal else cell


def without_truths(column: Any) -> Any:
    """A column of several labels in which text such as True is 1, as it is in a column of truths.

    >>> without_truths(np.array(["True", "0", "false", ""], dtype=object))
    array(['1', '0', '0', ''], dtype=object)
    """
    numbers = {"true": "1", "false": "0"}
    if not holds_text(column):
        return column
    cells = plain(column).tolist()
    known = {cell: numbers.get(str(cell).strip().lower(), cell) for cell in set(cells)}
    return objects([known[cell] for cell in cells])


def _as_numbers(column: NDArray[Any]) -> NDArray[np.float64]:
    """A column of Python's objects as numbers; a ValueError where one is none."""
    return np.array(
        [number_of_text(cell) if isinstance(cell, str) else np.float64(cell) for cell in column], dtype=np.float64
    )


def _is_plain(column: Any) -> bool:
    return isinstance(column, np.ndarray)
