"""Files of tables, read in batches of rows by pyarrow: Parquet, CSV, TSV and JSON lines."""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from refocal.errors import FormatError
from refocal.io._formats import check_header
from refocal.io.addresses import JSON_LINES, SEPARATORS, Options, filesystem_of
from refocal.io.extras import need

# Bytes of text that are worked on at a time; those that pyarrow reads at a time, 32 times ahead, with room for one row.
TEXT_BLOCK, READ_BLOCK, LONGEST_CELL = 1 << 21, 1 << 19, 64
# Of JSON lines so many tell the columns.
FIRST_TEXT = 1 << 16


class Source(ABC):
    """An open file: the names of its columns, those of them that hold lists, and batches of its rows.

    `n_lost` counts rows that were left out because they cannot be read at all; only a `lenient` source leaves any out.
    """

    n_rows: int | None = None
    n_lost = 0

    def __init__(self, file: str, options: Options, lenient: bool = False) -> None:
        self.file, self.options, self.lenient = file, options, lenient

    @property
    def names(self) -> list[str]:
        """The columns."""
        return list(self.schema.names)

    @cached_property
    def schema(self) -> Any:
        """Names and types of the columns, as pyarrow has them."""
        return next(self.batches(None, 1)).schema

    @property
    def nested(self) -> set[str]:
        """The columns that hold a list in each cell."""
        types = need("pyarrow", "parquet", "Tables in blocks").types
        lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
        return {field.name for field in self.schema if any(test(field.type) for test in lists)}

    @abstractmethod
    def batches(self, columns: Sequence[str] | None, n_rows: int) -> Iterator[Any]:
        """Record batches of some columns, or of all, from the first row on."""

    @contextmanager
    def _reading(self, kind: str) -> Iterator[None]:
        arrow = need("pyarrow", "parquet", f"{kind} in blocks")
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self.file}: no such file.") from error
        except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError, UnicodeDecodeError) as error:
            raise FormatError(f"{self.file}: cannot be read as {kind}: {str(error).splitlines()[0]}") from error

    def _open(self) -> Any:
        if "://" not in self.file:
            return Path(self.file).open("rb")
        filesystem, path = filesystem_of(self.file, self.options)
        return filesystem.open(path, "rb")


class ParquetSource(Source):
    """A Parquet file."""

    def __init__(self, file: str, options: Options, lenient: bool = False) -> None:
        super().__init__(file, options, lenient)
        with self._reading("Parquet"), self._parquet() as parquet:
            self.n_rows, self.schema = int(parquet.metadata.num_rows), parquet.schema_arrow

    def batches(self, columns: Sequence[str] | None, n_rows: int) -> Iterator[Any]:
        """Batches of at most `n_rows` rows."""
        with self._reading("Parquet"), self._parquet() as parquet:
            yield from parquet.iter_batches(batch_size=n_rows, columns=columns)

    def _parquet(self) -> Any:
        parquet = need("pyarrow.parquet", "parquet", "Parquet files")
        return parquet.ParquetFile(self._open() if "://" in self.file else self.file)


class TextSource(Source):
    """A CSV or TSV file; all columns are text."""

    @property
    def _separator(self) -> str:
        return SEPARATORS[Path(self.file).suffix.lower()]

    @cached_property
    def schema(self) -> Any:
        """The names of the first line, all of text."""
        arrow = need("pyarrow", "parquet", "Text in blocks")
        with self._reading("text"), io.TextIOWrapper(self._open(), "utf-8-sig", newline="") as lines:
            names = next(csv.reader(lines, delimiter=self._separator), [])
        check_header(names, self.file, self._separator)
        return arrow.schema([(name, arrow.string()) for name in names])

    def batches(self, columns: Sequence[str] | None, n_rows: int) -> Iterator[Any]:
        """Batches of some megabytes of text, whatever `n_rows` says."""
        arrow, reader = (need(name, "parquet", "Text in blocks") for name in ("pyarrow", "pyarrow.csv"))
        wrong: list[Any] = []

        def note(row: Any) -> str:
            wrong.append(row)
            self.n_lost = len(wrong)
            return "skip" if self.lenient else "error"

        parsing = reader.ParseOptions(delimiter=self._separator, newlines_in_values=True, invalid_row_handler=note)
        types = {name: arrow.string() for name in (self.names if columns is None else columns)}
        converting = reader.ConvertOptions(column_types=types, include_columns=list(types), strings_can_be_null=False)
        size = READ_BLOCK + LONGEST_CELL * len(self.names)
        # One thread: several would not know the numbers of the rows.
        reading = reader.ReadOptions(use_threads=False, block_size=size)
        with self._reading("text"), self._open() as file:
            try:
                yield from _grouped(reader.open_csv(file, reading, parsing, converting), TEXT_BLOCK // size)
            except arrow.ArrowInvalid as error:
                if not wrong:
                    raise
                at, cells = wrong[-1].number - 2, f"{wrong[-1].actual_columns} of {wrong[-1].expected_columns} cells"
                raise FormatError(f"{self.file}: row {at} has {cells}.") from error


def _grouped(batches: Iterator[Any], most: int) -> Iterator[Any]:
    """Batches put together, at most so many at a time."""
    arrow = need("pyarrow", "parquet", "Text in blocks")
    while some := list(islice(batches, max(most, 1))):
        yield from arrow.Table.from_batches(some).combine_chunks().to_batches()


class JsonSource(Source):
    """JSON lines: an object in each."""

    @cached_property
    def schema(self) -> Any:
        """What the first rows have."""
        arrow = need("pyarrow", "parquet", "Text in blocks")
        return next(self._tables(FIRST_TEXT), arrow.table({})).schema

    def batches(self, columns: Sequence[str] | None, n_rows: int) -> Iterator[Any]:
        """Batches of some megabytes of text, whatever `n_rows` says."""
        for table in self._tables(TEXT_BLOCK):
            chosen = table if columns is None else self._chosen(table, columns)
            yield from chosen.combine_chunks().to_batches()

    def _tables(self, n_bytes: int) -> Iterator[Any]:
        arrow, reader = (need(name, "parquet", "Text in blocks") for name in ("pyarrow", "pyarrow.json"))
        first = 0
        with self._reading("JSON lines"), self._open() as file:
            while text := file.read(n_bytes) + file.readline():
                if not text.strip():
                    continue
                try:
                    table = reader.read_json(
                        io.BytesIO(text), reader.ReadOptions(use_threads=False, block_size=len(text))
                    )
                except arrow.ArrowInvalid:
                    table = self._table_by_line(text, first)
                first += table.num_rows
                yield table

    def _chosen(self, table: Any, columns: Sequence[str]) -> Any:
        arrow = need("pyarrow", "parquet", "Text in blocks")
        nothing = arrow.nulls(table.num_rows)
        return arrow.table({name: table[name] if name in table.column_names else nothing for name in columns})

    def _table_by_line(self, text: bytes, first: int) -> Any:
        """What pyarrow cannot read together: NaN, values of several kinds, lines that are no JSON."""
        rows: list[dict[str, Any]] = []
        for line in filter(bytes.strip, text.splitlines()):
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not isinstance(row, dict) and not self.lenient:
                raise FormatError(f"{self.file}: row {first + len(rows)} is not a JSON object.")
            rows.append(row if isinstance(row, dict) else {})
        arrow = need("pyarrow", "parquet", "Text in blocks")
        names = dict.fromkeys(name for row in rows for name in row)
        return arrow.table({name: self._column([row.get(name) for row in rows], name, first) for name in names})

    def _column(self, values: list[Any], name: str, first: int) -> Any:
        """One column; values that are not of the kind of the first one are missing, or an error."""
        arrow = need("pyarrow", "parquet", "Text in blocks")
        kind = next((type(value) for value in values if value is not None), object)
        found = [value if _is_like(value, kind) else None for value in values]
        lost = next((i for i, value in enumerate(values) if value is not None and found[i] is None), None)
        if lost is not None and not self.lenient:
            got = repr(values[lost])[:40]
            raise FormatError(f"{self.file}: row {first + lost} has {got} in {name!r}, unlike the rows before.")
        return arrow.array(found)


def _is_like(value: Any, kind: type) -> bool:
    numbers = (int, float)
    if kind is list:
        return isinstance(value, list) and all(isinstance(each, numbers) for each in value)
    return isinstance(value, numbers) if kind in numbers else isinstance(value, kind)


def open_source(file: str, options: Options = None, lenient: bool = False) -> Source:
    """A file of a table, by its ending; Parquet if that is another one."""
    ending = Path(file).suffix.lower()
    kind = TextSource if ending in SEPARATORS else JsonSource if ending in JSON_LINES else ParquetSource
    return kind(file, options, lenient)
