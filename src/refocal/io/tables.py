"""Data sets of tables, with a column a class or a column of lists, read in batches of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal.engine.reading import Chunk
from refocal.errors import FormatError, Remedy
from refocal.io.addresses import Options
from refocal.io.extras import need
from refocal.io.parts import rows_of_a_block
from refocal.io.readers import LABELS, choose_columns, listed
from refocal.io.sources import Source, open_source

# So many rows tell what the columns hold.
FIRST_ROWS = 1000


@dataclass(frozen=True)
class Columns:
    """Which columns of the files hold what; one column of lists may hold all classes."""

    classes: tuple[str, ...]
    nested: bool
    labels: str | None
    weight: str | None
    n_classes: int
    class_names: tuple[str, ...] | None = None
    text_labels: bool = False
    """Whether the labels are names of classes."""
    others: tuple[str, ...] = ()
    """All others."""
    groups: tuple[str, ...] = ()
    """Those of the others that hold groups of rows."""


@dataclass(frozen=True)
class TablePart:
    """One file.

    With `lenient` cells that are no numbers are NaN, and rows that cannot be read are left out. With `keeping` the
    chunks have the other columns and the labels as they are.
    """

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
        source = open_source(self.file, self.options, self.lenient)
        self._check(source)
        wanted = [*columns.classes, *(c for c in (columns.labels, columns.weight, *columns.groups) if c is not None)]
        kept = [name for name in (*columns.others, columns.labels) if name is not None] if self.keeping else []
        first_row = n_lost = 0
        for batch in source.batches(list(dict.fromkeys([*wanted, *kept])), rows_of_a_block(columns.n_classes)):
            weight = None if columns.weight is None else self._numbers(batch, columns.weight, first_row)
            chunk = Chunk(self._matrix(batch, first_row), self._labels(batch, first_row), weight, self.file, first_row)
            groups = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in columns.groups}
            further = {name: batch.column(name) for name in kept}
            yield chunk._replace(kept=further, groups=groups, n_lost=source.n_lost - n_lost)
            first_row, n_lost = first_row + batch.num_rows, source.n_lost

    def _check(self, source: Source) -> None:
        wanted = {*self.columns.classes, self.columns.labels, self.columns.weight, *self.columns.groups} - {None}
        missing = [str(name) for name in wanted if name not in source.names]
        if missing:
            raise FormatError(
                f"{self.file}: no column {sorted(missing)[0]!r}, which the first file has. It has "
                f"{listed(source.names)}."
            )
        if self.columns.nested:
            return
        taken = {self.columns.labels, self.columns.weight, *self.columns.classes, *self.columns.others}
        prefix = _shared_prefix(self.columns.classes) if len(self.columns.classes) > 1 else ""
        extra = [name for name in source.names if prefix and name.startswith(prefix) and name not in taken]
        if extra:
            raise FormatError(
                f"{self.file}: has a class {extra[0]!r} more than the first file, which has {self.columns.n_classes}."
            )

    def _matrix(self, batch: Any, first_row: int) -> NDArray[Any]:
        name, n_classes = self.columns.classes[0], self.columns.n_classes
        if not self.columns.nested:
            columns = [self._numbers(batch, each, first_row) for each in self.columns.classes]
            return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
        column = batch.column(name)
        if (lengths := _lengths(column)) is not None and (wrong := lengths != n_classes).any():
            row = int(np.argmax(wrong))
            if not self.lenient:
                raise FormatError(
                    f"{self.file}: the lists of {name!r} must hold {n_classes} numbers in every row, as in the first "
                    f"file. Got {lengths[row]} in row {first_row + row} instead."
                )
            values = np.full((len(column), n_classes), np.nan)
            whole = column.filter(need("pyarrow", "parquet", "Tables in blocks").array(~wrong))
            values[~wrong] = whole.flatten().to_numpy(zero_copy_only=False).reshape(-1, n_classes)
            return values
        flat: NDArray[Any] = column.flatten().to_numpy(zero_copy_only=False)
        return flat.reshape(len(column), n_classes)

    def _labels(self, batch: Any, first_row: int) -> NDArray[Any] | None:
        name = self.columns.labels
        if name is None:
            return None
        if self.columns.text_labels:
            return np.asarray(batch.column(name).to_numpy(zero_copy_only=False))
        return self._numbers(batch, name, first_row)

    def _numbers(self, batch: Any, name: str, first_row: int) -> NDArray[Any]:
        """A column of numbers; text is read as numbers."""
        column = batch.column(name)
        if _is_text(column.type):
            return self._parsed(column, name, first_row)
        values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return values.astype(np.float64) if values.dtype.kind == "O" and column.null_count else values

    def _parsed(self, column: Any, name: str, first_row: int) -> NDArray[np.float64]:
        arrow, compute = (need(module, "parquet", "Tables in blocks") for module in ("pyarrow", "pyarrow.compute"))
        try:
            return np.asarray(compute.cast(column, arrow.float64()).to_numpy(zero_copy_only=False))
        except arrow.ArrowInvalid:  # Python knows more spellings of a number, and says which is none
            cells = column.to_pylist()
        values = np.array([_number(cell) for cell in cells])
        bad = np.isnan(values) & [str(cell).strip().lower() not in ("nan", "+nan", "-nan") for cell in cells]
        if bad.any() and not self.lenient:
            row = int(np.argmax(bad))
            raise FormatError(
                f"{self.file}: row {first_row + row} has {str(cells[row])[:40]!r} in the column {name!r}, where a "
                "number was expected.",
                Remedy.COLUMNS,
            )
        return values


def table_parts(
    files: list[str],
    input_name: str,
    values: str | None,
    labels: str | None,
    weight: str | None,
    need_labels: bool,
    options: Options = None,
    lenient: bool = False,
    bad: list[str] | None = None,
    groups: Sequence[str] = (),
) -> list[TablePart]:
    """One part a file; the columns are those of the first that has rows.

    With a list `bad`, files that cannot be read, or have other columns, are left out, and the list says why.
    """
    sizes: dict[str, int | None] = {}
    columns = None
    for file in files:
        with _noting(bad):
            source = open_source(file, options, lenient)
            if columns is None and source.n_rows != 0:
                columns = _columns_of(source, input_name, values, labels, weight, groups)
            sizes[file] = source.n_rows
    if columns is None:
        if bad:
            raise FormatError(f"{files[0]}: none of the {len(files)} files can be read: {bad[0]}")
        raise FormatError(f"{files[0]}: none of the {len(files)} files has any rows.")
    if need_labels and columns.labels is None:
        raise FormatError(f"{files[0]}: no labels: no column {' or '.join(map(repr, LABELS))}.", Remedy.LABELS)
    parts = [TablePart(file, columns, size, options, lenient, not need_labels) for file, size in sizes.items()]
    return parts if bad is None else _readable(parts, bad)


def _readable(parts: list[TablePart], bad: list[str]) -> list[TablePart]:
    """The parts that can be read to their end."""
    found = []
    for part in parts:
        with _noting(bad):
            for _ in part.blocks():
                pass
            found.append(part)
    if not found:
        raise FormatError(f"{parts[0].file}: none of the files can be read: {bad[0]}")
    return found


@contextmanager
def _noting(bad: list[str] | None) -> Iterator[None]:
    """Note what is wrong with a file rather than raise it, where there is a list to do so."""
    try:
        yield
    except (FormatError, OSError) as error:
        if bad is None:
            raise
        bad.append(str(error))


def _columns_of(
    source: Source, input_name: str, values: str | None, labels: str | None, weight: str | None, groups: Sequence[str]
) -> Columns | None:
    """What the columns of a file hold; None where it has no rows."""
    names, nested = source.names, source.nested
    chosen = choose_columns(names, nested, source.file, input_name, values, labels, weight, groups)
    looked_at = [name for name in (chosen.classes[0], chosen.labels) if name is not None]
    first = next(source.batches(looked_at, FIRST_ROWS), None)
    if first is None or first.num_rows == 0:
        return None
    n_classes = max(len(chosen.classes), 2)  # one column is about class 1 of two
    if chosen.nested:
        n_classes = next((len(each) for each in first.column(chosen.classes[0]).to_pylist() if each is not None), 0)
    text_labels = chosen.labels is not None and _is_text_of_names(first.column(chosen.labels))
    others = tuple(name for name in names if name not in (*chosen.classes, chosen.labels))
    class_names = None if chosen.nested else chosen.names
    return Columns(
        tuple(chosen.classes),
        chosen.nested,
        chosen.labels,
        weight,
        n_classes,
        class_names,
        text_labels,
        others,
        tuple(groups),
    )


def _is_text_of_names(column: Any) -> bool:
    """Whether most of a column is text that is no number."""
    if not _is_text(column.type):
        return False
    numbers = [_number(cell) for cell in column.slice(0, FIRST_ROWS).to_pylist()]
    return bool(np.mean(np.isnan(numbers)) > 0.5)


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return float("nan")


def _lengths(column: Any) -> NDArray[np.int64] | None:
    """How many numbers each list holds, 0 where there is none; None if all hold as many."""
    arrow = need("pyarrow", "parquet", "Tables in blocks")
    if arrow.types.is_fixed_size_list(column.type) and not column.null_count:
        return None
    compute = need("pyarrow.compute", "parquet", "Tables in blocks")
    counts = compute.list_value_length(column).fill_null(0)
    return np.asarray(counts.to_numpy(zero_copy_only=False), dtype=np.int64)


def _is_text(kind: Any) -> bool:
    types = need("pyarrow", "parquet", "Tables in blocks").types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    known = ("is_string", "is_large_string", "is_string_view")  # the last since pyarrow 16
    return any(getattr(types, name)(kind) for name in known if hasattr(types, name))


def _shared_prefix(names: tuple[str, ...]) -> str:
    """What stands before the last underscore of every name: logit_0, logit_1 → logit_."""
    prefixes = {name.rpartition("_")[0] + "_" for name in names if "_" in name}
    return prefixes.pop() if len(prefixes) == 1 and all("_" in name for name in names) else ""


__all__ = ["Columns", "TablePart", "table_parts"]
