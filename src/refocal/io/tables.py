"""Files of columns, in batches of rows: Parquet, CSV, TSV and JSON lines.

pyarrow reads Parquet, and text much faster than Python's own modules, which do where it is not installed.
"""

from __future__ import annotations

import atexit
import csv
import io
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal._limits import block_entries
from refocal.errors import FormatError, need
from refocal.io.class_columns import ONE_COLUMN, could_be_scores
from refocal.io.files import (
    JSON_LINES,
    SEPARATORS,
    WithLastLine,
    WithWholeLineEnds,
    ending_of,
    files_of,
    is_large,
    not_utf8,
    partitions_of,
)
from refocal.io.parts import LISTS, ColumnBatch, Table, most_frequent, number, objects, plain
from refocal.io.query import ANYTHING, Query
from refocal.rows import RawRows
from refocal.rows.class_names import shared_beginning


class ParquetTable(Table):
    """A Parquet file."""

    def _header(self) -> tuple[list[str], set[str]]:
        with self._parquet() as parquet:
            schema = parquet.schema_arrow
            self.n_rows = int(parquet.metadata.num_rows)
        twice = next((name for name in schema.names if schema.names.count(name) > 1), None)
        if twice is not None:
            raise FormatError(f"{self.where}: has two columns {twice!r}; rename one of them.")
        return list(schema.names), {field.name for field in schema if str(field.type).startswith(LISTS)}

    def _batches(self, columns: Sequence[str], n_rows: int, lost: list[int]) -> Iterator[ColumnBatch]:
        with self._parquet() as parquet:
            yield from map(_batch, parquet.iter_batches(batch_size=n_rows, columns=list(columns)))

    def _parquet(self) -> Any:
        parquet = need("pyarrow.parquet", "parquet", "Reading .parquet")
        return parquet.ParquetFile(self._open() if "://" in self.where else self.where)


@cache
def _wait_for_pyarrow_at_exit() -> None:
    """Let the threads that read ahead end before the interpreter does.

    They call Python, and an interpreter that is ending aborts the program then: as after an error within a file.
    """
    seconds = 0.1
    atexit.register(time.sleep, seconds)


_LAST_CELL = "refocal: the file ends here"
"""Of the line that is read behind the last one of text."""


class TextTable(Table):
    """A CSV or TSV file; all columns are text."""

    @property
    def _separator(self) -> str:
        return SEPARATORS[ending_of(self.where)]

    @property
    def _n_cells(self) -> int:
        return len(self.names) - len(self.partitions)

    @property
    def _end(self) -> str:
        """A line that is read behind the last one: if it is no row of its own, a quote is open there.

        Neither pyarrow nor Python's module says so: all lines behind the quote would be one cell. The line has a cell
        too many, so that it is never a row that counts.
        """
        return self._separator * self._n_cells + _LAST_CELL

    def _header(self) -> tuple[list[str], set[str]]:
        with self._lines() as lines:
            names = next(csv.reader(lines, delimiter=self._separator), None)
        if names is None:  # not a single byte: a part without rows, as Hadoop writes them
            self.n_rows = 0
            return [], set()
        if any("\0" in name for name in names):  # UTF-16, of which every other byte is zero
            raise not_utf8(self.where)
        if names and names[0].lower().startswith("sep="):
            raise FormatError(f"{self.where}: begins with the line 'sep=' of Excel, not with names; leave it out.")
        is_one = len(names) == 1 and names[0] in (self.query.values, *ONE_COLUMN)
        if (len(names) < 2 and not is_one) or len(set(names)) != len(names):
            expected = f"none twice and {'tabs' if self._separator != ',' else 'commas'} between them"
            got = " It has semicolons; write the table with commas." if len(names) == 1 and ";" in names[0] else ""
            must_hold = f"the first line must hold the names of two or more columns, {expected}"
            raise FormatError(f"{self.where}: {must_hold}.{got}")
        # 0, 1, 2 are names of classes; 0.73 is a value.
        if all(not np.isnan(number(name)) and not name.strip().isdigit() for name in names):
            raise FormatError(f"{self.where}: the first line must hold the names of the columns; it holds numbers.")
        return names, set()

    def _has_types(self, name: str) -> bool:
        return False

    def _lines(self) -> Any:
        return io.TextIOWrapper(self._open(), "utf-8-sig", newline="")

    def _batches(self, columns: Sequence[str], n_rows: int, lost: list[int]) -> Iterator[ColumnBatch]:
        return self._by_arrow(columns, lost) if find_spec("pyarrow") is not None else self._by_line(columns, lost)

    def _by_arrow(self, columns: Sequence[str], lost: list[int]) -> Iterator[ColumnBatch]:
        arrow, reader = (need(name, "parquet", "Text in blocks") for name in ("pyarrow", "pyarrow.csv"))
        wrong: list[Any] = []
        ends: list[Any] = []

        def note(row: Any) -> str:  # in a thread that reads ahead
            if row.text == self._end:
                ends.append(row)
                return "skip"
            wrong.append(row)
            lost.append(row.actual_columns)
            return "skip" if self.query.lenient else "error"

        parsing = reader.ParseOptions(
            delimiter=self._separator,
            newlines_in_values=True,
            invalid_row_handler=note,
            ignore_empty_lines=self._n_cells > 1,  # of one column an empty line is a missing value
        )
        types = {name: arrow.string() for name in columns}
        converting = reader.ConvertOptions(column_types=types, include_columns=list(types), strings_can_be_null=False)
        longest_cell = 64  # bytes, so that one row always has room
        size = _bytes_of_a_block() // 4 + longest_cell * len(self.names)  # pyarrow reads 32 of this size ahead
        # One thread: several would not know the numbers of the rows.
        reading = reader.ReadOptions(use_threads=False, block_size=size)
        _wait_for_pyarrow_at_exit()
        n_batches = max(_bytes_of_a_block() // size, 1)
        n_rows = 0
        with self._open() as file:
            text = WithWholeLineEnds(WithLastLine(file, self._end.encode()))
            try:
                batches = reader.open_csv(text, reading, parsing, converting)
                is_all = False
                while not is_all:
                    some = list(islice(batches, n_batches))
                    n_rows += sum(map(len, some))
                    is_all = len(some) < n_batches
                    if is_all and not ends:
                        raise self._open_quote(n_rows + len(wrong) - 1)
                    if some:
                        yield from map(_batch, arrow.Table.from_batches(some).combine_chunks().to_batches())
            except arrow.ArrowInvalid as error:
                if not wrong:
                    for _ in self._parsed():  # which says of what row a quote is open for longer than pyarrow reads
                        pass
                    raise
                row = wrong[-1].number - 2
                if wrong[-1].text.endswith(self._end):
                    raise self._open_quote(row) from error
                raise self._misfit(row, wrong[-1].actual_columns) from error
        if wrong:  # perhaps behind the last whole line: without a batch they would not be counted
            yield {name: objects([]) for name in columns}

    def _by_line(self, columns: Sequence[str], lost: list[int]) -> Iterator[ColumnBatch]:
        at = {name: self.names.index(name) for name in columns}
        rows = self._parsed()
        n_rows = max(1, block_entries() >> 11)  # each cell is an object of Python's, and the row a list of them
        while some := list(islice(rows, n_rows)):
            misfits = [(i, len(row)) for i, row in some if len(row) != self._n_cells]
            if misfits and not self.query.lenient:
                raise self._misfit(*misfits[0])
            lost += [n_cells for _, n_cells in misfits]
            whole = [row for _, row in some if len(row) == self._n_cells]
            yield {name: objects([row[i] for row in whole]) for name, i in at.items()}

    def _parsed(self) -> Iterator[tuple[int, list[str]]]:
        """The number and the cells of each row, by Python's module."""
        with self._lines() as lines:
            parsed = csv.reader(chain(lines, [self._end]), delimiter=self._separator)
            # Of one column an empty line is a missing value; of several it is no row.
            full = (row or [""] for row in parsed) if self._n_cells == 1 else filter(None, parsed)
            next(full)
            i = -1
            try:
                for i, row in enumerate(full):
                    if row[-1] == _LAST_CELL:
                        return
                    if row[-1].endswith(_LAST_CELL):
                        raise self._open_quote(i)
                    yield i, row
            except csv.Error as error:
                problem = f"row {i + 1} cannot be read: {error}. Is a quote not closed?"
                raise FormatError(f"{self.where}: {problem}") from error

    def _open_quote(self, row: int) -> FormatError:
        problem = "has a quote that is not closed: all lines behind it would be one cell"
        return FormatError(f"{self.where}: row {row} {problem}.")

    def _misfit(self, row: int, n_cells: int) -> FormatError:
        return FormatError(f"{self.where}: row {row} has {n_cells} of {self._n_cells} cells.")


def _bytes_of_a_block() -> int:
    """How much text is worked on at a time: parsed, it takes several times its size."""
    return max(1, block_entries() // 8)


class JsonTable(Table):
    """JSON lines: an object in each; a field may hold a list of numbers."""

    def _header(self) -> tuple[list[str], set[str]]:
        most_bytes = 1 << 16  # that the columns are inferred from
        start = next(self._texts(min(most_bytes, _bytes_of_a_block())), b"")
        if b"\0" in start:  # UTF-16, of which every other byte is zero
            raise not_utf8(self.where)
        rows = self._parsed(start, 0)
        self.n_rows = None if rows else 0
        self._kinds: dict[str, set[type]] = {}
        self._first_kinds: dict[str, type] = {}
        self._note(rows)
        self._late: dict[str, NDArray[Any]] = {}
        self._knows_all = not is_large(self.where)
        if self._knows_all:  # a file that is read whole may have a field in a few rows only
            first = 0
            for text in self._texts(_bytes_of_a_block()):
                batch = self._by_arrow(text, [], every=True)
                names = {name for row in self._parsed(text, first) for name in row} if batch is None else {*batch}
                if not names <= self._kinds.keys():
                    self._note(self._parsed(text, first))
                first += text.count(b"\n")
        return list(self._kinds), {name for name, kinds in self._kinds.items() if list in kinds}

    def _note(self, rows: list[dict[str, Any]]) -> None:
        """Note the fields of some rows that are not known yet, and what they hold."""
        for name in dict.fromkeys(name for row in rows for name in row):
            if name not in self._kinds:
                values = [row.get(name) for row in rows]
                self._kinds[name] = set(map(type, values)) - {type(None)}
                self._note_kind(self._first_kinds, name, values)

    def blocks(self) -> Iterator[RawRows]:
        """Batches of rows; a field that the first rows lack is an error where it is passed on or may be a class."""
        for raw in super().blocks():
            for name, cells in self._late.items():
                if self.query.keeping or self._may_be_class(name, cells):
                    rule = "write it in every row, as null where it has no value"
                    raise FormatError(f"{self.where}: has a field {name!r} that the first rows lack; {rule}.")
            yield raw

    def _may_be_class(self, name: str, cells: NDArray[Any]) -> bool:
        """Whether a field that the first rows lack may hold scores of a class."""
        classes = self.columns.classes
        if shared := shared_beginning(classes):
            return name.startswith(classes[0][:shared])
        return not self._says_classes() and could_be_scores(name, cells)

    def _check(self, wanted: Sequence[str]) -> None:
        """A field that is passed on may be missing."""
        super()._check([name for name in wanted if name not in self.kept])

    def _batches(self, columns: Sequence[str], n_rows: int, lost: list[int]) -> Iterator[ColumnBatch]:
        first = 0
        kinds = dict(self._first_kinds)  # one kind for all blocks, so that their size does not decide
        for text in self._texts(_bytes_of_a_block()):
            batch = self._by_arrow(text, columns, every=not self._knows_all)
            if batch is None:
                batch = self._by_line(text, columns, first, kinds)
            else:
                late = batch.keys() - self._kinds.keys() - {*columns}
                self._late |= {name: plain(batch[name]) for name in sorted(late)}
                for name in columns:
                    if name not in kinds:
                        self._note_kind(kinds, name, batch[name].to_pylist())
            yield batch
            first += len(batch[columns[0]])

    def _by_arrow(self, text: bytes, columns: Sequence[str], *, every: bool = False) -> ColumnBatch | None:
        """Columns of the types of the first rows, which pyarrow would guess anew for each block, and dates of text.

        With `every` the other fields are there too, in types that pyarrow guesses. None where it cannot read the text,
        and for lists that are passed on, in which whole numbers would not stay what they are.
        """
        if find_spec("pyarrow") is None:
            return None
        arrow, reader = (need(name, "parquet", "Text in blocks") for name in ("pyarrow", "pyarrow.json"))
        kinds = ({int}, {int, float}, {str}, {list})
        types = (arrow.int64(), arrow.float64(), arrow.string(), arrow.list_(arrow.float64()))
        try:
            kinds_of = {name: self._kinds.get(name, set()) for name in columns}
            if any(list in kinds_of[name] for name in columns if name in self.kept):
                return None
            schema = [(name, types[[kinds_of[name] <= kind for kind in kinds].index(True)]) for name in columns]
            unexpected = "infer" if every else "ignore"
            parsing = reader.ParseOptions(explicit_schema=arrow.schema(schema), unexpected_field_behavior=unexpected)
            whole = reader.ReadOptions(use_threads=False, block_size=len(text))
            table = reader.read_json(io.BytesIO(text), whole, parsing).combine_chunks()
        except ValueError:  # NaN, values of several kinds, lines that are no JSON: of arrow, or of `index`
            return None
        return {name: table[name].chunk(0) for name in table.column_names}

    def _by_line(self, text: bytes, columns: Sequence[str], first: int, kinds: dict[str, type]) -> ColumnBatch:
        rows = self._parsed(text, first)
        late = {name for row in rows for name in row} - self._kinds.keys() - {*columns}
        self._late |= {name: objects([row.get(name) for row in rows]) for name in sorted(late)}
        return {name: self._column([row.get(name) for row in rows], name, first, kinds) for name in columns}

    def _texts(self, n_bytes: int) -> Iterator[bytes]:
        """Whole lines of about `n_bytes` bytes."""
        with self._open() as file:
            yield from filter(bytes.strip, iter(lambda: file.read(n_bytes) + file.readline(), b""))

    def rows(self) -> Iterator[dict[str, Any]]:
        """The objects of all lines."""
        first = 0
        for text in self._texts(_bytes_of_a_block()):
            yield from (rows := self._parsed(text, first))
            first += len(rows)

    def _parsed(self, text: bytes, first: int) -> list[dict[str, Any]]:
        rows = []
        for i, line in enumerate(filter(bytes.strip, text.splitlines()), first):
            try:
                row = json.loads(line, object_pairs_hook=_fields)
                problem = None if isinstance(row, dict) else "is not a JSON object"
            except _RepeatedFieldError as error:
                problem = f"has the field {error.field!r} twice"
            except ValueError:
                problem = "is not a JSON object"
            if problem is None:
                rows.append(row)
                continue
            if not self.query.lenient:
                raise FormatError(f"{self.where}: row {i} {problem}.")
            rows.append({})
        return rows

    def _column(self, values: list[Any], name: str, first: int, kinds: dict[str, type]) -> NDArray[Any]:
        """A column; of one that is asked for, values of another kind than that of the file are missing, or an error.

        `kinds` has the kinds that are known so far.
        """
        if name in self.kept:
            return objects(values)
        self._note_kind(kinds, name, values)
        kind = kinds.get(name, object)
        allowed = (int, float) if kind in (int, float) else kind
        lost = [i for i, value in enumerate(values) if not (value is None or isinstance(value, allowed))]
        if lost and not self.query.lenient:
            got = repr(values[lost[0]])[:40]
            raise FormatError(f"{self.where}: row {first + lost[0]} has {got} in {name!r}, unlike the rows before.")
        column = objects(values)
        column[lost] = None
        return column

    def _note_kind(self, kinds: dict[str, type], name: str, values: list[Any]) -> None:
        """Note the kind of a column, unless it is known: that of its first value.

        Where bad rows are left out it is that of most values: the first row may be a bad one.
        """
        found = [float if type(value) is int else type(value) for value in values if value is not None]
        if found:
            kinds.setdefault(name, most_frequent(found) if self.query.lenient else found[0])


class _RepeatedFieldError(Exception):
    """A JSON object has a field twice: which of the two is meant is not known."""

    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.field = field


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of a JSON object, also of one inside another, of which none is in it twice."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise _RepeatedFieldError(max(names, key=names.count))
    return fields


def open_table(file: str, query: Query = ANYTHING, place: str | None = None) -> Table:
    """A file of a table, by its ending; Parquet if that is another one. `place` is the data set that it is of."""
    partitions = {} if place is None else partitions_of(file, place)
    ending = ending_of(file)
    if ending in SEPARATORS:
        return TextTable(file, query, partitions)
    if ending in JSON_LINES:
        return JsonTable(file, query, partitions)
    return ParquetTable(file, query, partitions)


def table_parts(place: str, query: Query) -> list[Table]:
    """One part per file of a place; the columns are those of the first that has rows."""
    files = files_of(place, query.options)
    tables: list[Table] = []
    bad = query.bad
    columns = None
    for file in files:
        with _noting(bad):
            table = open_table(file, query, place)
            if (columns is None or columns.n_classes == 0) and (table.n_rows != 0 or (len(files) == 1 and table.names)):
                columns = table.look()
            tables.append(table)
    if columns is None:
        why = f"can be read: {bad[0]}" if bad else "has any rows."
        raise FormatError(f"{files[0]}: none of the {len(files)} files {why}")
    names = list(columns.names)
    for table in tables:
        table.columns = columns
        table.names = names if table.names == names else table.names  # one list, which is kept and sent once
    if bad is None or columns.n_classes == 0:
        return tables
    readable = []
    for table in tables:
        with _noting(bad):
            for _ in table.blocks():
                pass
            readable.append(table)
    if not readable:
        raise FormatError(f"{files[0]}: none of the files can be read: {bad[0]}")
    return readable


@contextmanager
def _noting(bad: list[str] | None) -> Iterator[None]:
    """Add the error of a file to a list, if there is one, instead of raising it."""
    try:
        yield
    except (FormatError, OSError) as error:
        if bad is None:
            raise
        bad.append(str(error))


def _batch(batch: Any) -> ColumnBatch:
    return dict(zip(batch.schema.names, batch.columns, strict=True))
