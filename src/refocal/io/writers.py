"""Files of probabilities, written block by block: Parquet, CSV, TSV, JSON lines and the arrays of NumPy."""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from refocal._files import replace_atomically
from refocal.calibrators._answers import Answers
from refocal.errors import FormatError, need
from refocal.io.tables import SEPARATORS, plain

LABEL, PROBABILITIES = "label", "probabilities"

Columns = Mapping[str, Any]
"""Arrays of NumPy or pyarrow by their names."""


class Writer(ABC):
    """A file that blocks of probabilities are added to; a context manager.

    Of two classes there may be one probability a row, which is called `p`.
    """

    def __init__(self, file: Path, names: list[str]) -> None:
        self.file, self.names = file, names

    def write(self, answers: Answers, before: Columns, behind: Columns) -> None:
        """Add rows: columns that stand before the answers of a calibrator, these, and columns behind them."""
        columns = self._columns(answers)
        twice = next((name for name in columns if name in {*before, *behind}), None)
        if twice is not None:
            raise FormatError(f"the rows have a column {twice!r}, as one that is to be written; rename it.")
        self.add({**before, **columns, **behind})

    def _columns(self, answers: Answers) -> dict[str, Any]:
        """A row a cell: probabilities, their bounds, the names of a set's classes."""
        bounds = {name: each for name, each in answers.further.items() if name != "sets"}
        found = _of_one(answers) or {PROBABILITIES: answers.probabilities, **bounds}
        return found | ({"set": self._sets(answers)} if "sets" in answers.further else {})

    def _sets(self, answers: Answers) -> list[list[str]]:
        return [[self.names[i] for i in np.flatnonzero(row).tolist()] for row in answers.further["sets"]]

    @abstractmethod
    def add(self, columns: dict[str, Any]) -> None:
        """Add rows."""

    def finish(self) -> None:  # noqa: B027 - most have nothing to add
        """All rows are there."""

    def close(self) -> None:  # noqa: B027 - one has nothing to close
        """Close the file, whether all rows are there or not."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self.close()


class ParquetWriter(Writer):
    """Columns of lists, in the precision that the probabilities have; `metadata` goes into the file."""

    def __init__(self, file: Path, names: list[str], metadata: Mapping[bytes, str] | None = None) -> None:
        super().__init__(file, names)
        self.metadata = metadata
        self._writer: Any = None

    def add(self, columns: dict[str, Any]) -> None:
        """Add rows; the first ones tell the types of the columns."""
        arrow, parquet = (need(name, "parquet", "Parquet files") for name in ("pyarrow", "pyarrow.parquet"))
        for name, each in columns.items():
            if isinstance(each, np.ndarray) and each.ndim == 2:
                columns[name] = arrow.FixedSizeListArray.from_arrays(arrow.array(each.reshape(-1)), each.shape[1])
        table = arrow.table({**columns, "set": arrow.array(columns["set"], arrow.list_(arrow.string()))}
                            if "set" in columns else columns)  # fmt: skip
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self.file, table.schema.with_metadata(self.metadata))
        self._writer.write_table(table.cast(self._writer.schema))

    def finish(self) -> None:
        """A file without rows has the column of probabilities."""
        if self._writer is None:
            self.add({PROBABILITIES: np.empty((0, len(self.names)), dtype=np.float32)})

    def close(self) -> None:
        """Write the end of the file."""
        if self._writer is not None:
            self._writer.close()


class TextWriter(Writer):
    """A column a class, with the digits that give the same numbers again."""

    def __init__(self, file: Path, names: list[str], separator: str) -> None:
        super().__init__(file, names)
        self.separator, self._is_empty = separator, True
        self._file = file.open("w", encoding="utf-8", newline="")
        self._csv = csv.writer(self._file, delimiter=separator, lineterminator="\n")

    def _columns(self, answers: Answers) -> dict[str, Any]:
        columns = _of_one(answers)
        if not columns:
            ends = {"": answers.probabilities, **{f"_{end}": each for end, each in answers.further.items()}}
            for end, each in ends.items():
                if end != "_sets":
                    columns |= {f"{name}{end}": column for name, column in zip(self.names, each.T, strict=True)}
        if "sets" in answers.further:
            columns["set"] = np.array([";".join(names) for names in self._sets(answers)], dtype=object)
        return columns

    def add(self, columns: dict[str, Any]) -> None:
        """Add lines; before the first of them the names of the columns."""
        if self._is_empty:
            self._csv.writerow(columns)
            self._is_empty = False
        if find_spec("pyarrow") is None:
            rows = zip(*(plain(each) for each in columns.values()), strict=True)
            self._csv.writerows([str(cell) for cell in row] for row in rows)
            return
        arrow, text = (need(name, "parquet", "Text in blocks") for name in ("pyarrow", "pyarrow.csv"))
        for quoting in ("none", "needed"):  # the latter for cells with a separator, a quote or a line break
            lines = io.BytesIO()
            options = text.WriteOptions(include_header=False, delimiter=self.separator, quoting_style=quoting)
            try:
                text.write_csv(arrow.table(columns), lines, options)
                break
            except arrow.ArrowInvalid:
                if quoting == "needed":
                    raise
        self._file.write(lines.getvalue().decode())

    def finish(self) -> None:
        """A file without rows has the names of the classes."""
        if self._is_empty:
            self._csv.writerow(self.names)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class JsonWriter(Writer):
    """An object a row; NaN, which JSON has not, becomes null."""

    def __init__(self, file: Path, names: list[str]) -> None:
        super().__init__(file, names)
        self._file = file.open("w", encoding="utf-8")

    def add(self, columns: dict[str, Any]) -> None:
        """Add lines."""
        cells = [_json_cells(column) for column in columns.values()]
        for row in zip(*cells, strict=True):
            self._file.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False, default=str) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class ArrayWriter(Writer):
    """A .npz file of arrays, or a .npy file of the probabilities alone; written when all rows are there."""

    def __init__(self, file: Path, names: list[str], ending: str) -> None:
        super().__init__(file, names)
        self.ending, self._parts = ending, list[dict[str, Any]]()

    def write(self, answers: Answers, before: Columns, behind: Columns) -> None:
        """Keep a block and its labels; further columns have no place here."""
        name = "p" if answers.probabilities.ndim == 1 else PROBABILITIES
        self.add({name: answers.probabilities, **answers.further})
        for labels in behind.values():
            self._parts[-1]["labels"] = plain(labels)

    def add(self, columns: dict[str, Any]) -> None:
        """Keep a block."""
        self._parts.append(columns)

    def finish(self) -> None:
        """Write the file."""
        parts = self._parts or [{PROBABILITIES: np.empty((0, len(self.names)))}]
        arrays: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        with self.file.open("wb") as file:
            if self.ending == ".npy":
                np.save(file, next(iter(arrays.values())))
            else:
                np.savez(file, **{name: each.astype(str) if each.dtype == object else each
                                  for name, each in arrays.items()})  # fmt: skip


def write_table(file: Path, columns: Columns) -> None:
    """Columns as a CSV or TSV file, whole or not at all."""
    separator = SEPARATORS[file.suffix.lower()]
    with replace_atomically(file) as temporary, TextWriter(temporary, [], separator) as writer:
        writer.add(dict(columns))


def _of_one(answers: Answers) -> dict[str, NDArray[Any]]:
    """The probability of class 1, where there is one number a row, with its bounds."""
    if answers.probabilities.ndim != 1:
        return {}
    bounds = {f"p_{end}": answers.further[end][:, 1] for end in ("lower", "upper") if end in answers.further}
    return {"p": answers.probabilities, **bounds}


def _json_cells(column: Any) -> list[Any]:
    """What JSON has of a column: rows with NaN are missing."""
    cells: list[Any] = column if isinstance(column, list) else column.tolist()
    if not isinstance(column, np.ndarray) or column.dtype.kind != "f":
        return cells
    bad: list[bool] = np.any(np.isnan(column).reshape(len(column), -1), axis=1).tolist()
    return [None if is_bad else cell for cell, is_bad in zip(cells, bad, strict=True)]


def open_writer(
    file: Path,
    ending: str,
    n_classes: int,
    class_names: Sequence[str] | None,
    metadata: Mapping[bytes, str] | None = None,
) -> Writer:
    """A writer of the format that an ending names; `metadata` goes into a Parquet file."""
    names = list(class_names or (f"class_{i}" for i in range(n_classes)))
    if ending == ".parquet":
        return ParquetWriter(file, names, metadata)
    if ending in SEPARATORS:
        return TextWriter(file, names, SEPARATORS[ending])
    return ArrayWriter(file, names, ending) if ending in (".npz", ".npy") else JsonWriter(file, names)
