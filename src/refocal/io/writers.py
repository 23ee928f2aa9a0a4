"""Files of probabilities, written block by block: Parquet, CSV, TSV, JSON lines and the arrays of NumPy."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal._files import replace_atomically
from refocal._groups import text_of_cell
from refocal.calibrators.answers import Answers
from refocal.errors import FormatError, need
from refocal.io.files import JSON_LINES, SEPARATORS
from refocal.io.parts import NESTED, number, objects, plain, without_truths
from refocal.rows.keys import label_key

LABEL = "label"
PROBABILITIES = "probabilities"
ARRAYS = (".npz", ".npy")
# The metadata keys under which a Parquet file records its source, and how many rows could not be used.
MADE_FROM = b"refocal"
# The note that has the names of the classes as JSON, for files that have no place for them otherwise.
CLASS_NAMES = b"class_names"
N_SKIPPED = b"refocal_rows_skipped"
N_UNSEEN = b"refocal_rows_unseen_groups"

Notes = Mapping[bytes, str]
"""What a file records about itself, where its format can; complete when the last rows have been added."""

ColumnValues = Mapping[str, Any]
"""Arrays of NumPy or pyarrow by their names."""
NO_NOTES: Notes = {}
Add = Callable[[dict[str, Any]], None]
"""Adds rows to a file."""


class Form(Enum):
    """How the probabilities of several classes stand in a file."""

    ARRAYS = "a matrix"
    LISTS = "a column of lists"
    COLUMNS = "a column for each class"
    TEXT = "a column for each class, and a set of classes in one cell"


def columns_of(
    answers: Answers, names: list[str], form: Form, before: ColumnValues, after: ColumnValues
) -> dict[str, Any]:
    """The columns of a file of some form: those before the answers of a calibrator, these, and those after them.

    `names` are those of the classes. For two classes there may be one probability per row, which is called `p`.
    """
    if form is not Form.ARRAYS:
        return beside(_columns(answers, names, form), before, after)
    name = "p" if answers.probabilities.ndim == 1 else PROBABILITIES
    labels: dict[str, Any] = {}
    if len(after) == 1:
        labels["labels"] = plain(*after.values())
    elif after:
        labels["labels"] = _side_by_side(after)
    return {name: answers.probabilities, **answers.further, **labels}  # arrays have no place for further columns


def _side_by_side(columns: ColumnValues) -> NDArray[Any]:
    """Columns of labels as a matrix: of numbers where all are, or truths, NaN where one is missing, else of text."""
    cells = [plain(without_truths(column)) for column in columns.values()]
    if all(column.dtype.kind in "iufb" for column in cells):
        return np.stack(cells, axis=1)
    texts = [[cell for cell in column.tolist() if cell not in (None, "")] for column in cells]
    if any(np.isnan(number(cell)) for column in texts for cell in column):
        return np.stack([column.astype(np.str_) for column in cells], axis=1)
    return np.stack([[number(cell) for cell in column.tolist()] for column in cells], axis=1)


def beside(columns: ColumnValues, before: ColumnValues, after: ColumnValues) -> dict[str, Any]:
    """New columns between those of a file."""
    twice = next((name for name in columns if name in {*before, *after}), None)
    if twice is not None:
        raise FormatError(f"the rows have a column {twice!r}, as one that is to be written; rename it.")
    return {**before, **columns, **after}


def _columns(answers: Answers, names: list[str], form: Form) -> dict[str, Any]:
    p = answers.probabilities
    bounds = {name: each for name, each in answers.further.items() if name != "sets"}
    if p.ndim > 1 and form is not Form.LISTS:
        _check_names(answers, names)
    columns: dict[str, Any]
    if p.ndim == 1:  # of class 1
        columns = {"p": p, **{f"p_{end}": each[:, 1] for end, each in bounds.items()}}
    elif form is Form.LISTS:
        columns = {PROBABILITIES: p, **bounds}
    else:
        ends = {"": p, **{f"_{end}": each for end, each in bounds.items()}}
        columns = {f"{name}{end}": each[:, i] for end, each in ends.items() for i, name in enumerate(names)}
    if "sets" in answers.further:
        sets = [[names[i] for i in np.flatnonzero(row).tolist()] for row in answers.further["sets"]]
        columns["set"] = objects([_in_one_cell(each) for each in sets]) if form is Form.TEXT else sets
    return columns


def _check_names(answers: Answers, names: list[str]) -> None:
    """Refuse classes that are called as the column of sets, or as that of the bounds of another class."""
    others = ["set" if name == "sets" else f"{class_name}_{name}" for name in answers.further for class_name in names]
    twice = next((name for name in names if name in others), None)
    if twice is not None:
        raise FormatError(f"a class is called {twice!r}, as another column that is to be written; write .npz.")


def _in_one_cell(names: list[str]) -> str:
    """The classes of a set with semicolons between them; a name with a semicolon or a quote is quoted, as in CSV.

    >>> _in_one_cell(["cat", "dog"]), _in_one_cell(["cat;dog"])
    ('cat;dog', '"cat;dog"')
    """
    quoted = ['"' + name.replace('"', '""') + '"' if ";" in name or '"' in name else name for name in names]
    return ";".join(quoted)


@contextmanager
def parquet_file(file: Path, ending: str, notes: Notes = NO_NOTES) -> Iterator[Add]:
    """Columns of lists, in the precision that the probabilities have; the first rows tell the types of the columns."""
    arrow, parquet = (need(name, "parquet", "Parquet files") for name in ("pyarrow", "pyarrow.parquet"))
    with ExitStack() as stack:
        writer: Any = None

        def add(columns: dict[str, Any]) -> None:
            nonlocal writer
            for name, each in columns.items():
                if isinstance(each, np.ndarray) and each.ndim == 2:
                    columns[name] = arrow.FixedSizeListArray.from_arrays(arrow.array(each.reshape(-1)), each.shape[1])
                elif isinstance(each, list):  # sets, which may all be empty
                    columns[name] = arrow.array(each, arrow.list_(arrow.string()))
                elif isinstance(each, np.ndarray) and each.dtype == object:
                    columns[name] = in_arrow(each)
            table = arrow.table(columns)
            if writer is None:
                opened = parquet.ParquetWriter(file, table.schema.remove_metadata())
                writer = stack.enter_context(opened)
            pairs = zip(table.schema, writer.schema, table.columns, strict=True)
            writer.write_table(arrow.table([fitting(*pair) for pair in pairs], schema=writer.schema))

        def fitting(mine: Any, first: Any, column: Any) -> Any:
            """A column in the type that it had in the first rows, which is a guess where all of these were null."""
            kinds = [str(field.type).removeprefix("large_") for field in (mine, first)]
            # Arrow would write numbers as text, and truths as numbers.
            is_other = any((kinds[0] == kind) != (kinds[1] == kind) for kind in ("string", "bool"))
            try:
                if is_other and kinds[0] != "null":
                    raise arrow.ArrowInvalid(f"{mine.type}, which is not {first.type}")
                return column.cast(first.type)
            except arrow.ArrowException as error:
                problem = f"the column {mine.name!r} holds other kinds of values than in the rows before: {error}"
                raise FormatError(f"{problem}; write .csv or .jsonl, which take any.") from error

        def in_arrow(cells: NDArray[Any]) -> Any:
            """A column of Python's objects, as text where a column of Parquet cannot hold all of them."""
            try:
                return arrow.array(cells)
            except (arrow.ArrowException, OverflowError):
                return arrow.array(_flat(cells))

        yield add
        if writer is not None and notes:
            writer.add_key_value_metadata({key.decode(): value for key, value in notes.items()})


@contextmanager
def text_file(file: Path, ending: str, notes: Notes = NO_NOTES) -> Iterator[Add]:
    """Lines below the names of the columns, with all digits of the numbers."""
    with file.open("w", encoding="utf-8", newline="") as out:
        lines = csv.writer(out, delimiter=SEPARATORS[ending], lineterminator="\n")

        def add(columns: dict[str, Any]) -> None:
            if out.tell() == 0:
                lines.writerow(columns)
            columns = {name: _flat(each) for name, each in columns.items()}
            if find_spec("pyarrow") is not None:
                out.write(_lines_of(columns, SEPARATORS[ending]))
            else:
                rows = zip(*(plain(each) for each in columns.values()), strict=True)
                lines.writerows(["" if cell is None else str(cell) for cell in row] for row in rows)

        yield add


def _flat(column: Any) -> Any:
    """A column that pyarrow can write as text: lists and objects as JSON, other cells that it does not know as text."""
    if isinstance(column, list):
        column = objects(column)
    # Types of pyarrow that a cell of text cannot hold, or that it writes as a number of some unit.
    as_text = ("binary", "large_binary", "fixed_size_binary", "duration")
    if not isinstance(column, np.ndarray):
        kind = str(getattr(column, "type", ""))
        if kind.startswith(as_text):
            return _as_text(column, text_of_cell)
        return _as_text(column, _as_json) if kind.startswith(NESTED) else column
    if column.dtype != object:
        return column
    kinds = set(map(type, column)) - {type(None)}
    if any(issubclass(kind, (list, dict)) for kind in kinds):
        return _as_text(column, _as_json)
    if any(issubclass(kind, (bytes, timedelta)) for kind in kinds):
        return _as_text(column, text_of_cell)
    int64 = np.iinfo(np.int64)  # whole numbers that pyarrow takes from Python
    is_large = int in kinds and any(type(cell) is int and not int64.min <= cell <= int64.max for cell in column)
    return _as_text(column, str) if is_large or not (len(kinds) < 2 or kinds == {int, float}) else column


def _as_text(column: Any, text_of: Callable[[Any], str]) -> NDArray[Any]:
    return objects([None if cell is None else text_of(cell) for cell in column.tolist()])


def _as_json(cell: Any) -> str:
    return json.dumps(cell, default=text_of_cell)


def _lines_of(columns: dict[str, Any], separator: str, quoting: str = "none") -> str:
    arrow, text = (need(name, "parquet", "Text in blocks") for name in ("pyarrow", "pyarrow.csv"))
    options = text.WriteOptions(include_header=False, delimiter=separator, quoting_style=quoting)
    lines = io.BytesIO()
    try:
        text.write_csv(arrow.table(columns), lines, options)
    except arrow.ArrowInvalid:
        if quoting == "needed":
            raise
        return _lines_of(columns, separator, "needed")  # of cells with a separator, a quote or a line break
    return lines.getvalue().decode()


@contextmanager
def json_file(file: Path, ending: str, notes: Notes = NO_NOTES) -> Iterator[Add]:
    """One object per row; rows with NaN, which JSON lacks, are null, and infinities are text."""
    with file.open("w", encoding="utf-8") as out:

        def add(columns: dict[str, Any]) -> None:
            for cells in zip(*map(_json_cells, columns.values()), strict=True):
                row = dict(zip(columns, cells, strict=True))
                try:
                    line = _json_line(row)
                except ValueError:  # a number that JSON lacks, in a column that is passed on
                    line = _json_line(_in_json(row))
                out.write(line + "\n")

        yield add


def _json_line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, default=text_of_cell, allow_nan=False)


def _in_json(cell: Any) -> Any:
    """A cell without numbers that JSON lacks: NaN is null, and infinities are the words that other languages read.

    >>> _in_json({"x": float("nan"), "y": [1.0, float("-inf")]})
    {'x': None, 'y': [1.0, '-Infinity']}
    """
    if isinstance(cell, dict):
        return {name: _in_json(each) for name, each in cell.items()}
    if isinstance(cell, list):
        return [_in_json(each) for each in cell]
    if not isinstance(cell, float) or math.isfinite(cell):
        return cell
    if math.isnan(cell):
        return None
    return "Infinity" if cell > 0.0 else "-Infinity"


def _json_cells(column: Any) -> list[Any]:
    cells: list[Any] = column if isinstance(column, list) else column.tolist()
    if not isinstance(column, np.ndarray) or column.dtype.kind != "f":
        return cells
    bad: list[bool] = np.any(np.isnan(column).reshape(len(column), -1), axis=1).tolist()
    return [None if is_bad else cell for cell, is_bad in zip(cells, bad, strict=True)]


@contextmanager
def array_file(file: Path, ending: str, notes: Notes = NO_NOTES) -> Iterator[Add]:
    """A .npz file of arrays, or a .npy file of the probabilities alone; written when all rows are there."""
    parts: list[dict[str, NDArray[Any]]] = []
    yield parts.append
    arrays: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if CLASS_NAMES in notes:
        arrays["class_names"] = np.array(json.loads(notes[CLASS_NAMES]))
    with file.open("wb") as out:
        if ending == ".npy":
            np.save(out, next(iter(arrays.values())))
        else:
            plain: dict[str, Any] = {name: _texts(x) if x.dtype == object else x for name, x in arrays.items()}
            np.savez(out, **plain)


def _texts(cells: NDArray[Any]) -> NDArray[np.str_]:
    """Python's objects as text, which is empty where one is missing, as it is read; lists as JSON.

    >>> _texts(np.array([1, None, "cat", float("nan")], dtype=object))
    array(['1', '', 'cat', ''], dtype='<U3')
    """
    if cells.ndim == 1 and any(isinstance(cell, (list, np.ndarray)) for cell in cells):
        lists = [cell.tolist() if isinstance(cell, np.ndarray) else cell for cell in cells]
        return np.array(["" if cell is None else _as_json(cell) for cell in lists])
    is_missing = np.array([label_key(cell) is None for cell in cells.ravel()], dtype=bool)
    return np.where(is_missing.reshape(cells.shape), "", cells).astype(np.str_)


FILES: dict[str, Callable[..., AbstractContextManager[Add]]] = {
    ".parquet": parquet_file,
    **dict.fromkeys(SEPARATORS, text_file),
    **dict.fromkeys(JSON_LINES, json_file),
    **dict.fromkeys(ARRAYS, array_file),
}


def write_table(file: Path, columns: ColumnValues) -> None:
    """Columns as a CSV or TSV file, whole or not at all."""
    with replace_atomically(file) as temporary, text_file(temporary, file.suffix.lower()) as add:
        add(dict(columns))
