"""Data sets of Parquet files: a folder, a pattern or an address, read in batches of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal.data.readers import LABELS, choose_columns, listed
from refocal.engine.reading import Chunk
from refocal.errors import FormatError, Remedy
from refocal.scale.addresses import Options, filesystem_of
from refocal.scale.extras import need
from refocal.scale.parts import rows_of_a_block


@dataclass(frozen=True)
class Columns:
    """Which columns of the files hold what; one column of lists may hold all classes."""

    classes: tuple[str, ...]
    nested: bool
    labels: str | None
    weight: str | None
    n_classes: int
    class_names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ParquetPart:
    """One file."""

    file: str
    columns: Columns
    n_rows: int | None
    options: Options = None

    @property
    def where(self) -> str:
        """The name of the file."""
        return self.file

    def blocks(self) -> Iterator[Chunk]:
        """Batches of rows; labels and weight are None where no column holds them."""
        columns = self.columns
        wanted = [*columns.classes, *(c for c in (columns.labels, columns.weight) if c is not None)]
        with open_file(self.file, self.options) as source:
            self._check(source.schema_arrow)
            first_row, size = 0, rows_of_a_block(columns.n_classes)
            for batch in source.iter_batches(batch_size=size, columns=wanted):
                labels = None if columns.labels is None else self._vector(batch, columns.labels)
                weight = None if columns.weight is None else self._vector(batch, columns.weight)
                yield Chunk(self._matrix(batch), labels, weight, self.file, first_row)
                first_row += batch.num_rows

    def _check(self, schema: Any) -> None:
        wanted = {*self.columns.classes, self.columns.labels, self.columns.weight} - {None}
        missing = [str(name) for name in wanted if name not in schema.names]
        if missing:
            raise FormatError(
                f"{self.file}: no column {sorted(missing)[0]!r}, which the first file has. It has "
                f"{listed(schema.names)}."
            )
        if self.columns.nested:
            return
        taken = {self.columns.labels, self.columns.weight, *self.columns.classes}
        prefix = _shared_prefix(self.columns.classes) if len(self.columns.classes) > 1 else ""
        extra = [name for name in schema.names if prefix and name.startswith(prefix) and name not in taken]
        if extra:
            raise FormatError(
                f"{self.file}: has a class {extra[0]!r} more than the first file, which has {self.columns.n_classes}."
            )

    def _matrix(self, batch: Any) -> NDArray[Any]:
        if not self.columns.nested:
            columns = [self._vector(batch, name) for name in self.columns.classes]
            return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
        column = batch.column(self.columns.classes[0])
        flat: NDArray[Any] = column.flatten().to_numpy(zero_copy_only=False)
        if len(flat) != len(column) * self.columns.n_classes:
            raise FormatError(
                f"{self.file}: the lists of {self.columns.classes[0]!r} must hold {self.columns.n_classes} numbers in "
                f"every row, as in the first file. Got {len(flat)} in {len(column)} rows instead."
            )
        return flat.reshape(len(column), self.columns.n_classes)

    def _vector(self, batch: Any, name: str) -> NDArray[Any]:
        column = batch.column(name)
        values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        if values.dtype.kind != "O" or not column.null_count or _is_text(column.type):
            return values
        return values.astype(np.float64)


def parquet_parts(
    files: list[str],
    input_name: str,
    values: str | None,
    labels: str | None,
    weight: str | None,
    need_labels: bool,
    options: Options = None,
) -> list[ParquetPart]:
    """One part a file; the columns are those of the first that has rows."""
    sizes, columns = [], None
    for file in files:
        with open_file(file, options) as source:
            sizes.append(int(source.metadata.num_rows))
            if columns is None and sizes[-1] > 0:
                columns = _columns_of(source, file, input_name, values, labels, weight)
    if columns is None:
        raise FormatError(f"{files[0]}: none of the {len(files)} files has any rows.")
    if need_labels and columns.labels is None:
        raise FormatError(f"{files[0]}: no labels: no column {' or '.join(map(repr, LABELS))}.", Remedy.LABELS)
    return [ParquetPart(file, columns, size, options) for file, size in zip(files, sizes, strict=True)]


def open_file(file: str, options: Options = None) -> Any:
    """A Parquet file here or at an address; a context manager."""
    parquet = need("pyarrow.parquet", "parquet", "Parquet files")
    arrow = need("pyarrow", "parquet", "Parquet files")
    try:
        if "://" in file:
            filesystem, path = filesystem_of(file, options)
            return parquet.ParquetFile(filesystem.open(path, "rb"))
        return parquet.ParquetFile(file)
    except (arrow.ArrowInvalid, ValueError) as error:
        raise FormatError(f"{file}: cannot be read as Parquet: {str(error).splitlines()[0]}") from error


def _columns_of(
    source: Any, file: str, input_name: str, values: str | None, labels: str | None, weight: str | None
) -> Columns:
    schema = source.schema_arrow
    types = need("pyarrow", "parquet", "Parquet files").types
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    nested = {name for name in schema.names if any(test(schema.field(name).type) for test in lists)}
    chosen = choose_columns(list(schema.names), nested, file, input_name, values, labels, weight)
    n_classes = max(len(chosen.classes), 2)  # one column is about class 1 of two
    if chosen.nested:
        first = next(source.iter_batches(batch_size=1, columns=list(chosen.classes)))
        n_classes = len(first.column(0)[0])
    names = None if chosen.nested else chosen.names
    return Columns(tuple(chosen.classes), chosen.nested, chosen.labels, weight, n_classes, names)


def _is_text(kind: Any) -> bool:
    types = need("pyarrow", "parquet", "Parquet files").types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    known = ("is_string", "is_large_string", "is_string_view")  # the last since pyarrow 16
    return any(getattr(types, name)(kind) for name in known if hasattr(types, name))


def _shared_prefix(names: tuple[str, ...]) -> str:
    """What stands before the last underscore of every name: logit_0, logit_1 → logit_."""
    prefixes = {name.rpartition("_")[0] + "_" for name in names if "_" in name}
    return prefixes.pop() if len(prefixes) == 1 and all("_" in name for name in names) else ""


__all__ = ["Columns", "ParquetPart", "open_file", "parquet_parts"]
