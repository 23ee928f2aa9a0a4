"""From raw rows to checked blocks: the meaning of columns and labels, and what is wrong with a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import (
    NUMBERS,
    SMALLEST,
    Flags,
    Indices,
    log_probabilities,
    row_blocks,
    to_numpy,
    two_columns,
    without_warnings,
)
from refocal._groups import as_groups
from refocal._label_checks import IGNORED, are_marks
from refocal._validation import (
    FINITE_LABELS,
    FINITE_ROWS,
    INPUTS,
    NEGATIVE_TOLERANCE,
    SUM_TOLERANCE,
    check_option,
    not_finite,
)
from refocal.engine.block import Block
from refocal.engine.c_engine import widened
from refocal.errors import DataError, InputError, LabelError, Remedy, ShapeError


class Chunk(NamedTuple):
    """Some rows as they were read; `where` and `first_row` say where they come from, for error messages."""

    values: NDArray[Any]
    labels: Any
    weight: NDArray[Any] | None = None
    where: str = "the rows"
    first_row: int = 0
    kept: Mapping[str, Any] = {}
    """Further columns by name, which writers pass on."""
    groups: Mapping[str, Any] = {}
    """Columns of groups that the rows belong to."""
    n_lost: int = 0
    """How many rows before these, or between them, could not be read at all."""


@dataclass(frozen=True)
class Reading:
    """How the rows of blocks are interpreted."""

    n_classes: int
    input: str = "logits"
    first_label: int = 0
    skip_bad_rows: bool = False
    function: str = "fit"
    class_names: tuple[str, ...] | None = None
    """The names of the columns; labels may be these names."""
    classes: tuple[str, ...] | None = None
    """The `classes_` of the calibrator; None: the column numbers."""
    ignore_index: tuple[int, ...] = ()
    """Labels of rows that have none, which are left out."""
    order: Indices | None = None
    """The positions of the columns in the rows, where blocks are to have them in another order, that of the names."""

    def __post_init__(self) -> None:
        check_option(self.input, INPUTS, "input", self.function)

    def prepared(self, chunk: Chunk, check: bool) -> Block:
        """A block of logits. Bad rows are left out if `skip_bad_rows` is set; otherwise the first one is an error."""
        values = to_numpy(chunk.values)
        if values.ndim == 1 and self.n_classes == 2:
            values = two_columns(values, self.input)
        if values.ndim != 2 or values.shape[1] != self.n_classes:
            expected = f"of {self.n_classes} columns in every block, as in the first"
            raise ShapeError("X", self.function, expected=expected, got=f"shape {values.shape} in {chunk.where}")
        for name, column in (("y", chunk.labels), ("sample_weight", chunk.weight)):
            if column is not None and tuple(column.shape) != values.shape[:1]:
                got = f"shape {tuple(column.shape)} in {chunk.where}"
                expected = f"of shape {values.shape[:1]}, one for each row"
                raise ShapeError(name, self.function, expected=expected, got=got)
        if values.dtype.kind not in "fiub":
            got = f"dtype {values.dtype} in {chunk.where}"
            raise DataError("X", self.function, expected=NUMBERS, got=got)
        given, weight = chunk.labels, chunk.weight
        weight = None if weight is None else np.asarray(weight, dtype=np.float64)
        chunk = chunk._replace(values=values, labels=self._numbers(chunk), weight=weight)
        groups = as_groups(chunk.groups, len(chunk.labels), self.function) if chunk.groups else {}
        kept = ~are_marks(np.asarray(given), self.ignore_index)
        if check or self.skip_bad_rows:
            bad = self._bad_rows(chunk) & kept
            if bad.any() and not self.skip_bad_rows:
                row = int(np.argmax(bad))
                raise self.error_of(chunk, row, given[row])
            kept &= ~bad
        rows = slice(None) if kept.all() else kept
        values = values[rows]
        if self.input == "probabilities":
            values = log_probabilities(values, SMALLEST)
        elif values.dtype.kind != "f":
            values = values.astype(np.float64)
        groups = {name: column[rows] for name, column in groups.items()}
        labels = chunk.labels[rows]
        if self.order is not None:
            values, labels = values[:, self.order], np.argsort(self.order)[labels]
        return Block(values, labels, None if weight is None else weight[rows], groups)

    def _numbers(self, chunk: Chunk) -> Indices:
        """Labels counted from 0, as the rows have the columns.

        One that is no whole number, or no name of a class, is -1: a bad row.
        """
        labels = np.asarray(chunk.labels)
        kind, got = labels.dtype.kind, f"dtype {labels.dtype} in {chunk.where}"
        if kind == "f":
            whole = np.isfinite(labels) & (labels == np.round(labels))
            return np.where(whole, labels - self.first_label, -1).astype(np.int64)
        if kind in "iub":
            return labels.astype(np.int64) - self.first_label
        if kind not in "USTO":
            raise LabelError("y", self.function, expected="integers from 0 to C-1 in every block", got=got)
        if self.class_names is None:
            raise LabelError("y", self.function, expected="integers", got=got, remedy=Remedy.CLASS_NAMES)
        known = dict(zip(self.class_names, range(self.n_classes) if self.order is None else self.order, strict=True))
        names = (labels.astype(str) if kind == "S" else labels).tolist()
        return np.array([known.get(name, -1) for name in names], dtype=np.int64)

    @without_warnings
    def bad_values(self, values: NDArray[Any]) -> Flags:
        """Which rows hold no logits, or no probabilities."""
        if self.input != "probabilities":
            return np.asarray(~np.isfinite(values.max(axis=1)))
        off = np.abs(values.sum(axis=1, dtype=np.float64) - 1.0)
        return np.asarray(~((values.min(axis=1) >= -NEGATIVE_TOLERANCE) & (off <= SUM_TOLERANCE)))

    def _bad_rows(self, chunk: Chunk) -> Flags:
        bad = np.zeros(len(chunk.labels), dtype=np.bool_)
        for rows in row_blocks(len(bad), self.n_classes):  # what is widened stays in the cache
            bad[rows] = self.bad_values(widened(chunk.values[rows]))
        outside = (chunk.labels < 0) | (chunk.labels >= self.n_classes)
        bad |= outside
        if self.input != "probabilities":
            index = np.where(outside, 0, chunk.labels)
            bad |= np.take_along_axis(chunk.values, index[:, None], axis=1)[:, 0] == -np.inf
        if chunk.weight is not None:
            bad |= ~((chunk.weight >= 0.0) & (chunk.weight < np.inf))
        return bad

    def error_of(self, chunk: Chunk, row: int, given: Any = None) -> InputError:
        """What is wrong with one row, and where; `given` is its label as it was read."""
        place = f"row {chunk.first_row + row} of {chunk.where}"
        values, label = widened(chunk.values[row]), int(chunk.labels[row])
        if not 0 <= label < self.n_classes:
            if self.class_names is not None and not isinstance(given, (int, float, np.number)):
                return LabelError("y", self.function, expected="among the class names", got=f"{given!r} in {place}")
            expected = f"whole numbers from {self.first_label} to {self.first_label + self.n_classes - 1}"
            remedy = Remedy.IGNORE_INDEX if given in IGNORED else None
            return LabelError("y", self.function, expected=expected, got=f"{given} in {place}", remedy=remedy)
        if chunk.weight is not None and not 0.0 <= chunk.weight[row] < np.inf:
            got = f"{chunk.weight[row]} in {place}"
            return DataError("sample_weight", self.function, expected="finite and not negative", got=got)
        if self.input == "probabilities":
            expected = f"rows of probabilities: at least 0, and 1 in sum within {SUM_TOLERANCE:g}"
            got = f"{place}, which sums to {values.sum(dtype=np.float64):.6g}"
            return DataError("X", self.function, expected=expected, got=got)
        if np.isnan(values).any() or not np.isfinite(values.max()):
            return DataError("X", self.function, expected=FINITE_ROWS, got=f"{not_finite(values)} in {place}")
        return DataError("X", self.function, expected=FINITE_LABELS, got=f"-inf at the label of {place}")
