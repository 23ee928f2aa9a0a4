"""Files of columns, in batches of rows: Parquet, CSV, TSV and JSON lines.

pyarrow reads Parquet, and text much faster than Python's own modules, which do where it is not installed.
"""

from __future__ import annotations

import csv
import io
import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal.errors import FormatError, Remedy, need
from refocal.io.columns import ANYTHING, Query
from refocal.io.contents import Contents, filesystem_of, refusing

SEPARATORS = {".csv": ",", ".tsv": "\t"}
JSON_LINES = (".jsonl", ".ndjson")
TEXT = (*SEPARATORS, *JSON_LINES)
TABLES = (".parquet", *TEXT)

# Bytes of text that are worked on at a time; those that pyarrow reads at a time, 32 times ahead, with room for one row.
TEXT_BLOCK, READ_BLOCK, LONGEST_CELL = 1 << 21, 1 << 19, 64
# Of JSON lines so many bytes tell the columns.
FIRST_TEXT = 1 << 16
# Rows of a batch where nothing else is said, and of those that Python's own modules read.
BATCH_ROWS, PLAIN_ROWS = 1 << 17, 1 << 13
# Characters of the name of a class.
LONGEST_NAME = 1000

Batch = dict[str, Any]
"""Columns by their names: arrays of pyarrow, or of Python's objects."""


class Table(Contents):
    """The columns of a file, read whole by `get`, or batch by batch; `n_lost` counts lines that a query left out."""

    is_table = True
    n_rows: int | None = None
    n_lost = 0

    def __init__(self, file: str, query: Query = ANYTHING) -> None:
        super().__init__(file, (), self._whole)
        self.query, self._problem = query, f"cannot be read as {Path(file).suffix.lower()}"
        with refusing(file, self._problem):
            self.names, self.nested = self._header()

    def batches(self, columns: Sequence[str], n_rows: int = BATCH_ROWS) -> Iterator[tuple[int, Batch]]:
        """The columns in batches of about so many rows, each with the number of its first row."""
        first = 0
        with refusing(self.file, self._problem):
            for batch in self._batches(columns, n_rows):
                yield first, batch
                first += len(batch[columns[0]])

    @abstractmethod
    def _header(self) -> tuple[list[str], set[str]]:
        """The names of the columns, and of those that hold lists."""

    @abstractmethod
    def _batches(self, columns: Sequence[str], n_rows: int) -> Iterator[Batch]:
        """Batches of some columns, from the first row on."""

    def _open(self) -> Any:
        if "://" not in self.file:
            return Path(self.file).open("rb")
        filesystem, path = filesystem_of(self.file, self.query.options)
        return filesystem.open(path, "rb")

    def matrix(self, columns: list[str]) -> NDArray[Any]:
        """Several columns side by side."""
        parts = [
            np.stack([self.numbers(batch, name, first) for name in columns], axis=1)
            for first, batch in self.batches(columns)
        ]
        return np.concatenate(parts) if parts else np.empty((0, len(columns)))

    def _whole(self, name: str) -> NDArray[Any]:
        """A column: numbers, or text."""
        found = [plain(batch[name]) for _, batch in self.batches([name])]
        values: NDArray[Any] = np.concatenate(found) if found else np.empty(0)
        return without_objects(values, self.file, name)

    def numbers(self, batch: Batch, name: str, first_row: int) -> NDArray[Any]:
        """A column of numbers; text is read as numbers."""
        column = batch[name]
        if not is_text(column):
            values = plain(column)
            return values.astype(np.float64) if values.dtype.kind == "O" else values
        try:
            return np.asarray(column.astype(np.float64) if _is_plain(column) else plain(column.cast("float64")))
        except (ValueError, NotImplementedError):  # Python knows more spellings of a number, and says which is none
            cells = plain(column).tolist()
        values = np.array([number(cell) for cell in cells])
        bad = np.isnan(values) & [str(cell).strip().lower() not in ("nan", "+nan", "-nan") for cell in cells]
        if bad.any() and not self.query.lenient:
            row = int(np.argmax(bad))
            raise FormatError(
                f"{self.file}: row {first_row + row} has {str(cells[row])[:40]!r} in the column {name!r}, where a "
                "number was expected.",
                Remedy.COLUMNS,
            )
        return values

    def lists(self, batch: Batch, name: str, n_classes: int, first_row: int) -> NDArray[Any]:
        """A column of lists of numbers as a matrix; what has another length is an error, or NaN."""
        column = batch[name]
        if _is_plain(column):
            lengths = np.array([len(each) if isinstance(each, list) else 0 for each in column])
        else:
            lengths = plain(need("pyarrow.compute", "parquet", "Lists").list_value_length(column).fill_null(0))
        good = lengths == n_classes
        if not good.all() and not self.query.lenient:
            row = int(np.argmin(good))
            raise FormatError(
                f"{self.file}: the lists of {name!r} must hold {n_classes} numbers in every row, as in the first one. "
                f"Got {lengths[row]} in row {first_row + row} instead."
            )
        kept = column if good.all() else column[good] if _is_plain(column) else column.take(np.flatnonzero(good))
        flat = np.array(kept.tolist(), dtype=np.float64) if _is_plain(kept) else plain(kept.flatten())
        if good.all():
            return flat.reshape(-1, n_classes)
        values = np.full((len(column), n_classes), np.nan)
        values[good] = flat.reshape(-1, n_classes)
        return values


class ParquetTable(Table):
    """A Parquet file."""

    def _header(self) -> tuple[list[str], set[str]]:
        with self._parquet() as parquet:
            schema, self.n_rows = parquet.schema_arrow, int(parquet.metadata.num_rows)
        return list(schema.names), {field.name for field in schema if _is_list(str(field.type))}

    def _batches(self, columns: Sequence[str], n_rows: int) -> Iterator[Batch]:
        with self._parquet() as parquet:
            yield from map(_batch, parquet.iter_batches(batch_size=n_rows, columns=list(columns)))

    def _parquet(self) -> Any:
        parquet = need("pyarrow.parquet", "parquet", "Reading .parquet")
        return parquet.ParquetFile(self._open() if "://" in self.file else self.file)


class TextTable(Table):
    """A CSV or TSV file; all columns are text."""

    @property
    def _separator(self) -> str:
        return SEPARATORS[Path(self.file).suffix.lower()]

    def _header(self) -> tuple[list[str], set[str]]:
        with self._lines() as lines:
            names = next(csv.reader(lines, delimiter=self._separator), [])
        if len(names) < 2 or len(set(names)) != len(names):
            raise FormatError(
                f"{self.file}: the first line must hold the names of two or more columns, "
                f"none twice and {'tabs' if self._separator != ',' else 'commas'} between them."
            )
        # 0, 1, 2 are names of classes; 0.73 is a value.
        if all(not np.isnan(number(name)) and not name.strip().isdigit() for name in names):
            raise FormatError(f"{self.file}: the first line must hold the names of the columns; it holds numbers.")
        return names, set()

    def _lines(self) -> Any:
        return io.TextIOWrapper(self._open(), "utf-8-sig", newline="")

    def _whole(self, name: str) -> NDArray[Any]:
        text = super()._whole(name)
        try:
            return text.astype(np.float64)
        except ValueError:
            return text

    def _batches(self, columns: Sequence[str], n_rows: int) -> Iterator[Batch]:
        """Batches of some megabytes of text, whatever `n_rows` says."""
        return self._by_arrow(columns) if find_spec("pyarrow") is not None else self._by_line(columns)

    def _by_arrow(self, columns: Sequence[str]) -> Iterator[Batch]:
        arrow, reader = (need(name, "parquet", "Text in blocks") for name in ("pyarrow", "pyarrow.csv"))
        wrong: list[Any] = []

        def note(row: Any) -> str:
            wrong.append(row)
            self.n_lost = len(wrong)
            return "skip" if self.query.lenient else "error"

        parsing = reader.ParseOptions(delimiter=self._separator, newlines_in_values=True, invalid_row_handler=note)
        types = {name: arrow.string() for name in columns}
        converting = reader.ConvertOptions(column_types=types, include_columns=list(types), strings_can_be_null=False)
        size = READ_BLOCK + LONGEST_CELL * len(self.names)
        # One thread: several would not know the numbers of the rows. The encoding is checked where it has another name.
        reading = reader.ReadOptions(use_threads=False, block_size=size, encoding="utf-8-sig")
        with self._open() as file:
            try:
                batches = reader.open_csv(file, reading, parsing, converting)
                while some := list(islice(batches, max(TEXT_BLOCK // size, 1))):
                    yield from map(_batch, arrow.Table.from_batches(some).combine_chunks().to_batches())
            except arrow.ArrowInvalid as error:
                if not wrong:
                    raise
                raise self._misfit(wrong[-1].number - 2, wrong[-1].actual_columns) from error

    def _by_line(self, columns: Sequence[str]) -> Iterator[Batch]:
        first, at = 0, [self.names.index(name) for name in columns]
        with self._lines() as lines:
            rows = filter(None, csv.reader(lines, delimiter=self._separator))
            next(rows)
            while some := list(islice(rows, PLAIN_ROWS)):
                whole = [row for row in some if len(row) == len(self.names)]
                if len(whole) < len(some) and not self.query.lenient:
                    misfit = next(i for i, row in enumerate(some) if len(row) != len(self.names))
                    raise self._misfit(first + misfit, len(some[misfit]))
                self.n_lost += len(some) - len(whole)
                first += len(whole)
                yield {name: _objects([row[i] for row in whole]) for name, i in zip(columns, at, strict=True)}

    def _misfit(self, row: int, n_cells: int) -> FormatError:
        return FormatError(f"{self.file}: row {row} has {n_cells} of {len(self.names)} cells.")


class JsonTable(Table):
    """JSON lines: an object in each; a field may hold a list of numbers."""

    def _header(self) -> tuple[list[str], set[str]]:
        first = next(self._all_columns(FIRST_TEXT), {})
        return list(first), {name for name, column in first.items() if _is_list(_kind(column))}

    def _batches(self, columns: Sequence[str], n_rows: int) -> Iterator[Batch]:
        """Batches of some megabytes of text, whatever `n_rows` says."""
        first = 0
        for batch in self._all_columns(TEXT_BLOCK):
            missing = _objects([None] * len(next(iter(batch.values()))))
            yield {name: self._of_one_kind(batch.get(name, missing), name, first) for name in columns}
            first += len(missing)

    def _all_columns(self, n_bytes: int) -> Iterator[Batch]:
        first = 0
        with self._open() as file:
            while text := file.read(n_bytes) + file.readline():
                for batch in self._read(text, first) if text.strip() else ():
                    first += len(next(iter(batch.values())))
                    yield batch

    def _read(self, text: bytes, first: int) -> list[Batch]:
        if find_spec("pyarrow") is not None:
            arrow, reader = (need(name, "parquet", "Text in blocks") for name in ("pyarrow", "pyarrow.json"))
            try:
                whole = reader.ReadOptions(use_threads=False, block_size=len(text))
                table = reader.read_json(io.BytesIO(text), whole).combine_chunks()
                return list(filter(None, map(_batch, table.to_batches())))
            except arrow.ArrowInvalid:  # NaN, values of several kinds, lines that are no JSON
                pass
        rows: list[dict[str, Any]] = []
        for line in filter(bytes.strip, text.splitlines()):
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not isinstance(row, dict) and not self.query.lenient:
                raise FormatError(f"{self.file}: row {first + len(rows)} is not a JSON object.")
            rows.append(row if isinstance(row, dict) else {})
        names = dict.fromkeys(name for row in rows for name in row)
        return [{name: _objects([row.get(name) for row in rows]) for name in names}] if names else []

    def _of_one_kind(self, values: Any, name: str, first: int) -> Any:
        """A column that is asked for; values that are not of the kind of the first one are missing, or an error."""
        if not _is_plain(values):
            return values
        kind = next((type(value) for value in values if value is not None), object)
        found = [value if _is_like(value, kind) else None for value in values]
        lost = next((i for i, value in enumerate(values) if value is not None and found[i] is None), None)
        if lost is not None and not self.query.lenient:
            got = repr(values[lost])[:40]
            raise FormatError(f"{self.file}: row {first + lost} has {got} in {name!r}, unlike the rows before.")
        return _objects(found)


TABLE_OF = {**dict.fromkeys(SEPARATORS, TextTable), **dict.fromkeys(JSON_LINES, JsonTable)}


def open_table(file: str, query: Query = ANYTHING) -> Table:
    """A file of a table, by its ending; Parquet if that is another one."""
    return TABLE_OF.get(Path(file).suffix.lower(), ParquetTable)(file, query)


def plain(column: Any) -> NDArray[Any]:
    """A column as a NumPy array."""
    return np.asarray(column if _is_plain(column) else column.to_numpy(zero_copy_only=False))


def without_objects(values: NDArray[Any], file: str, name: str) -> NDArray[Any]:
    """A column of numbers or, of objects, one of text."""
    if values.dtype.kind != "O":
        return values
    # An array of text takes as much for each row as for the longest.
    longest = max(len(str(cell)) for cell in values)
    if longest > LONGEST_NAME:
        raise FormatError(f"{file}: the column {name!r} holds a text of {longest:,} characters.")
    return values.astype(str)


def is_text(column: Any) -> bool:
    """Whether a column is one of text."""
    return _kind(column).removeprefix("dictionary<values=").removeprefix("large_").startswith("str")


def number(cell: Any) -> float:
    """What a cell says, NaN where that is no number."""
    try:
        return float(cell)
    except (TypeError, ValueError):
        return float("nan")


def _is_plain(column: Any) -> bool:
    return isinstance(column, np.ndarray)


def _batch(batch: Any) -> Batch:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def _objects(values: list[Any]) -> NDArray[Any]:
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def _kind(column: Any) -> str:
    """The type of a column in pyarrow's words, or that of its first object."""
    return str(column.type) if not _is_plain(column) else type(column[0]).__name__ if len(column) else ""


def _is_list(kind: str) -> bool:
    return kind.startswith(("list", "large_list", "fixed_size_list"))


def _is_like(value: Any, kind: type) -> bool:
    numbers = (int, float)
    if kind is list:
        return isinstance(value, list) and all(isinstance(each, numbers) for each in value)
    return isinstance(value, numbers) if kind in numbers else isinstance(value, kind)
