"""Files of probabilities, written block by block: Parquet, CSV, TSV and JSON lines."""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from refocal.calibrators._answers import Answers
from refocal.errors import FormatError
from refocal.io.addresses import SEPARATORS
from refocal.io.extras import need

LABEL, PROBABILITIES = "label", "probabilities"


class Writer(ABC):
    """A file that blocks of probabilities are added to; a context manager.

    Of two classes there may be one probability a row, which is called `p`.
    """

    is_text = False
    """Whether all that is written becomes text."""

    def __init__(self, file: Path, n_classes: int, class_names: Sequence[str] | None) -> None:
        self.file = file
        self.names = list(class_names or (f"class_{i}" for i in range(n_classes)))

    def write(self, answers: Answers, before: Mapping[str, Any], behind: Mapping[str, Any]) -> None:
        """Add rows: columns that stand before the answers of a calibrator, these, and columns behind them."""
        arrow = need("pyarrow", "parquet", "Tables in blocks")
        columns = self._columns(arrow, answers)
        twice = next((name for name in columns if name in {*before, *behind}), None)
        if twice is not None:
            raise FormatError(f"the rows have a column {twice!r}, as one that is to be written; rename it.")
        self._add(arrow.table({**before, **columns, **behind}))

    def _columns(self, arrow: Any, answers: Answers) -> dict[str, Any]:
        """Columns of lists: of probabilities, of their bounds, of the names of a set's classes."""
        columns = bounds_of_one(answers)
        found = {name: arrow.array(each) for name, each in columns.items()}
        if not columns:
            lists = {PROBABILITIES: answers.probabilities, **answers.further}
            found = {
                name: arrow.FixedSizeListArray.from_arrays(arrow.array(each.reshape(-1)), len(self.names))
                for name, each in lists.items()
                if name != "sets"
            }
        if "sets" in answers.further:
            kind = arrow.list_(arrow.string())
            found["set"] = arrow.array([names_in(self.names, row) for row in answers.further["sets"]], kind)
        return found

    @abstractmethod
    def _add(self, table: Any) -> None:
        """Add the rows of a table of pyarrow."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:  # noqa: B027 - most have nothing to close
        pass


class ParquetWriter(Writer):
    """A column of lists, in the precision that the probabilities have."""

    def __init__(self, file: Path, n_classes: int, class_names: Any, metadata: Mapping[bytes, str] | None) -> None:
        super().__init__(file, n_classes, class_names)
        self.metadata = metadata
        self._writer: Any = None

    def _add(self, table: Any) -> None:
        parquet = need("pyarrow.parquet", "parquet", "Parquet files")
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self.file, table.schema.with_metadata(self.metadata))
        self._writer.write_table(table.cast(self._writer.schema))

    def __exit__(self, *error: Any) -> None:
        arrow = need("pyarrow", "parquet", "Parquet files")
        if self._writer is None and error[0] is None:
            self._add(arrow.schema([(PROBABILITIES, arrow.list_(arrow.float32(), len(self.names)))]).empty_table())
        if self._writer is not None:
            self._writer.close()


class TextWriter(Writer):
    """A column a class, with the digits that give the same numbers again."""

    is_text = True

    def __init__(self, file: Path, n_classes: int, class_names: Any, separator: str) -> None:
        super().__init__(file, n_classes, class_names)
        self.separator, self._is_empty = separator, True
        self._file = file.open("wb")

    def _columns(self, arrow: Any, answers: Answers) -> dict[str, Any]:
        return {name: arrow.array(column) for name, column in text_columns(answers, self.names).items()}

    def _add(self, table: Any) -> None:
        """Add lines; before the first of them the names of the columns."""
        arrow, text = (need(name, "parquet", "Text in blocks") for name in ("pyarrow", "pyarrow.csv"))
        if self._is_empty:
            header = io.StringIO()
            csv.writer(header, delimiter=self.separator, lineterminator="\n").writerow(table.column_names)
            self._file.write(header.getvalue().encode())
            self._is_empty = False
        lines = io.BytesIO()
        try:
            text.write_csv(table, lines, self._options(text, "none"))
        except arrow.ArrowInvalid:  # a cell with a separator, a quote or a line break
            lines = io.BytesIO()
            text.write_csv(table, lines, self._options(text, "needed"))
        self._file.write(lines.getbuffer())

    def _options(self, text: Any, quoting: str) -> Any:
        return text.WriteOptions(include_header=False, delimiter=self.separator, quoting_style=quoting)

    def __exit__(self, *error: Any) -> None:
        if self._is_empty:
            self._file.write((self.separator.join(self.names) + "\n").encode())
        self._file.close()


class JsonWriter(Writer):
    """An object a row; NaN, which JSON has not, becomes null."""

    def __init__(self, file: Path, n_classes: int, class_names: Any) -> None:
        super().__init__(file, n_classes, class_names)
        self._file = file.open("w", encoding="utf-8")

    def _add(self, table: Any) -> None:
        columns = {name: column.to_pylist() for name, column in zip(table.column_names, table.columns, strict=True)}
        for name in {PROBABILITIES, "lower", "upper", "p", "p_lower", "p_upper"} & set(columns):
            columns[name] = [None if np.isnan(p).any() else p for p in columns[name]]
        for row in zip(*columns.values(), strict=True):
            self._file.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False, default=str) + "\n")

    def __exit__(self, *error: Any) -> None:
        self._file.close()


def bounds_of_one(answers: Answers) -> dict[str, NDArray[Any]]:
    """The probability of class 1, where there is one number a row, with its bounds."""
    if answers.probabilities.ndim != 1:
        return {}
    bounds = {f"p_{end}": answers.further[end][:, 1] for end in ("lower", "upper") if end in answers.further}
    return {"p": answers.probabilities, **bounds}


def text_columns(answers: Answers, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The answers of a calibrator as columns of text: one a class, of bounds too, and the classes of a set in one."""
    columns = bounds_of_one(answers) or dict(zip(names, answers.probabilities.T, strict=True))
    if answers.probabilities.ndim == 2:
        for end in ("lower", "upper"):
            if end in answers.further:
                columns |= {f"{name}_{end}": each for name, each in zip(names, answers.further[end].T, strict=True)}
    if "sets" in answers.further:
        columns["set"] = np.array([";".join(names_in(names, row)) for row in answers.further["sets"]], dtype=object)
    return columns


def names_in(names: Sequence[str], members: NDArray[np.bool_]) -> list[str]:
    """The names of the classes of a set."""
    return [names[i] for i in np.flatnonzero(members).tolist()]


def open_writer(
    file: Path,
    ending: str,
    n_classes: int,
    class_names: Sequence[str] | None,
    metadata: Mapping[bytes, str] | None = None,
) -> Writer:
    """A writer of the format that an ending names; `metadata` goes into a Parquet file."""
    if ending == ".parquet":
        return ParquetWriter(file, n_classes, class_names, metadata)
    if ending in SEPARATORS:
        return TextWriter(file, n_classes, class_names, SEPARATORS[ending])
    return JsonWriter(file, n_classes, class_names)
