"""A calibration error computed block by block, on one machine or several, in constant memory."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Flags, Indices, Vector
from refocal._json import parse_json
from refocal._validation import check_integer
from refocal.errors import DataError, LabelError, ParameterError, ShapeError
from refocal.metrics._histogram_bounds import SplitCells, bound_of_largest_gap, cumulative_gap, split_cells
from refocal.metrics.bins import Bins, Ranked, join_cells, norm_of_gaps, uniform_index, weighted_terms
from refocal.metrics.histogram_cells import MOST_BITS, Cells, are_cells
from refocal.metrics.inputs import check_level, read_probabilities
from refocal.metrics.reliability import ReliabilityCurve, curve_of
from refocal.rows import Predictions
from refocal.rows.class_names import check_class_names, column_order
from refocal.rows.labels import IgnoreIndex

__all__ = ["CalibrationHistogram", "StreamedCalibration"]

_FORMAT = "refocal.CalibrationHistogram"


@dataclass(frozen=True)
class StreamedCalibration:
    """The measures of a `CalibrationHistogram`; the exact equal-mass ECE lies within `error_bound` of `ece`.

    So do the largest gap of a bin (`norm="max"`) within `largest_gap_bound` of `largest_gap`, and the
    Kolmogorov-Smirnov error, which is never less than `ks`, within `ks_bound` of it.

    >>> found = CalibrationHistogram().update([0, 1, 1, 1], [0.25, 0.75, 0.75, 1.0]).compute(n_bins=2)
    >>> found.count, found.accuracy, found.confidence, found.error_bound
    (4, 0.75, 0.6875, 0.0)
    """

    ece: float
    error_bound: float
    largest_gap: float
    largest_gap_bound: float
    ks: float
    ks_bound: float
    accuracy: float
    confidence: float
    count: int
    weight: float
    curve: ReliabilityCurve
    right: list[float]
    wrong: list[float]
    """Weight between each two of 0, 0.05, …, 1 of confidence, of right and wrong rows; cells go where their mean is."""


class ScoreCells(NamedTuple):
    """Weights of right and wrong rows by rising confidence, cell by cell, and which cells hold several confidences.

    `place` finds the cells of confidences.
    """

    right: Vector
    wrong: Vector
    several: Flags
    place: Callable[[Vector], Indices]


class EqualMass(NamedTuple):
    """Cells with weight, by rising confidence, joined into equal-mass bins, and the cells that a boundary splits."""

    ece: float
    error_bound: float
    used: Indices
    """The numbers of the cells."""
    cells: Bins
    bins: Bins
    ends: Indices
    """The last cell of each bin."""
    lowest: Vector
    """The lowest confidence of each bin."""
    split: SplitCells


class CalibrationHistogram:
    """Equal-mass calibration error of a stream: `update` with blocks, `merge` with others, `compute`.

    The confidence is counted in fine cells of its log-odds: 2^`bits` for every factor of two in min(c, 1 - c) and
    more around 1/2, 363,011 by default. A cell keeps the number of rows (int64), compensated float64 sums of weight,
    weight × confidence, weight × correct, weight² and weight² × correct, and the smallest and largest confidence seen.
    All of them merge by addition or minimum, so the order in which machines merge does not matter (sums agree to the
    last place or so).

    How exact: cells are ordered, so the weight below a cell is known exactly. An equal-mass boundary that falls
    between two cells, or into a cell that has seen one single value, is therefore exact. Only a boundary inside a
    cell of several values is uncertain: the whole cell goes to the left bin, where up to `s` of its weight may belong
    to the right, s being the weight of the cell beyond the boundary. Those rows carry a gap of at most
    g = max(min(s, wrong) · highest, min(s, right) · (1 - lowest)), and moving them changes two bins, so the ECE by at
    most 2g / total. `compute` adds this up as `error_bound`, which holds for any data, whatever their order.

    One pass leaves the bound below 1e-4 whenever no such cell holds more than 1/280,000 of the weight (15 bins), and
    at 0 for confidences in half precision, which have a cell each. Where the data are crowded into a few cells the
    bound says so; then `refined` gives an empty histogram in which the cells in question are cut into 16,384 parts
    each, for another pass over the same data. A cell spans fewer than 2^62 floating-point numbers and a part that is
    one number wide has a single value, so at most five further passes make the bound 0 for any data. No state of
    fixed size can do so in one: where equal values may not be parted, the exact value depends on the exact rank of a
    value that may be seen only later.

    >>> histogram = CalibrationHistogram().update([0, 1], [0.25, 0.25]).update([1, 1], [0.75, 0.75])
    >>> result = histogram.compute(n_bins=2)
    >>> result.ece, result.error_bound, result.count
    (0.25, 0.0, 4)
    """

    def __init__(self, *, bits: int = 12) -> None:
        self._start(Cells(check_integer(bits, "bits", "CalibrationHistogram", most=MOST_BITS)))

    def _start(self, cells: Cells) -> None:
        """No rows in these cells. `_sums` has the rows of `Bins` after the count, `_carry` what their rounding lost."""
        self._cells = cells
        # The names of two classes, of which the probabilities are about the second; None where rows had no names.
        self._class_names: tuple[str, ...] | None = None
        # Whether the rows are of two classes, with the probability of the second, or of more, with that of the largest.
        # None where this is not known.
        self._is_two: bool | None = None
        self._count = np.zeros(cells.size, dtype=np.int64)
        self._sums = np.zeros((5, cells.size))
        self._carry = np.zeros((5, cells.size))
        self._low = np.full(cells.size, np.inf)
        self._high = np.full(cells.size, -np.inf)

    @property
    def _columns(self) -> dict[str, NDArray[Any]]:
        """The values of each cell, by their names in JSON."""
        names = ("count", "sums", "carry", "low", "high")
        return {name: getattr(self, f"_{name}") for name in names}

    @property
    def count(self) -> int:
        """Number of rows seen."""
        return int(self._count.sum())

    def update(
        self,
        y_true: Any,
        probabilities: Any = None,
        *,
        sample_weight: Any = None,
        ignore_index: IgnoreIndex = None,
        classes: Any = None,
    ) -> CalibrationHistogram:
        """Count a block of rows and return self."""
        rows = read_probabilities(
            y_true, probabilities, sample_weight, "CalibrationHistogram.update", ignore_index, class_names=classes
        )
        is_two = rows.n_classes == 2
        if self._is_two is not None and is_two != self._is_two:
            expected = f"of {_kind_of_rows(self._is_two)}, as in the rows before"
            got = _kind_of_rows(is_two)
            raise ShapeError("probabilities", "CalibrationHistogram.update", expected=expected, got=got)
        same = self._of_same_class(rows)
        self._is_two = is_two
        return self.count_rows(*same.confidence(), rows.weight)

    def _of_same_class(self, rows: Predictions) -> Predictions:
        """Rows of two classes in the order of those before, so that all probabilities are about the same class."""
        if rows.n_classes != 2 or rows.class_names is None:
            return rows
        function = "CalibrationHistogram.update"
        order = column_order(rows.class_names, self._class_names, function)
        if order is not None and rows.label_map is not None and rows.label_map.columns is None:
            expected = "names of classes where data frames have their columns in several orders"
            raise LabelError("y_true", function, expected=expected, got="column numbers")
        if order is not None:
            return rows.reordered(order)
        self._class_names = rows.class_names
        return rows

    def count_rows(self, confidence: Vector, correct: Flags, weight: Vector | None = None) -> CalibrationHistogram:
        """`update` from confidences (float64, at most 1) and whether they were correct, without checks."""
        block_rows = 1 << 19  # temporaries of some megabytes
        for start in range(0, confidence.shape[0], block_rows):
            block = slice(start, start + block_rows)
            self._count_block(confidence[block], correct[block], None if weight is None else weight[block])
        return self

    def _count_block(self, confidence: Vector, correct: Flags, weight: Vector | None) -> None:
        """Add the rows of one block to the sums of their cells."""
        cell = self._cells.index(confidence)
        np.minimum.at(self._low, cell, confidence)
        np.maximum.at(self._high, cell, confidence)
        touched: Indices | slice
        if confidence.shape[0] < self._cells.size:
            # A small block touches few cells: work on those alone.
            touched, position = np.unique(cell, return_inverse=True)
            size = touched.shape[0]
        else:
            touched = slice(None)
            position = cell
            size = self._cells.size
        count = np.bincount(position, minlength=size)
        self._count[touched] += count
        # Distances from the lowest confidence of the cell are tiny, so that summing them loses nothing.
        origin = np.where(count > 0, self._low[touched], 0.0)
        distance = confidence - origin[position]
        if weight is None:
            total = count.astype(np.float64)
            right = np.bincount(position[correct], minlength=size).astype(np.float64)
            sums = np.stack([total, np.bincount(position, distance, size), right, total, right])
        else:
            terms = weighted_terms(distance, correct, weight)
            sums = np.stack([np.bincount(position, term, size) for term in terms])
        sums[1] += sums[0] * origin  # Σ w distance becomes Σ w confidence
        _compensated_add(self._sums, self._carry, touched, sums)

    def fresh(self, cells: Cells | None = None) -> CalibrationHistogram:
        """An empty histogram with the same cells, or with others."""
        empty = type(self).__new__(type(self))
        empty._start(self._cells if cells is None else cells)
        empty._class_names = self._class_names
        empty._is_two = self._is_two
        return empty

    def merge(self, other: CalibrationHistogram) -> CalibrationHistogram:
        """Add the rows that `other` has seen and return self."""
        theirs = other._cells if isinstance(other, CalibrationHistogram) else None
        if theirs is not self._cells and (theirs is None or theirs.to_dict() != self._cells.to_dict()):
            expected = "a histogram with the same cells"
            raise ParameterError("other", "CalibrationHistogram.merge", expected=expected, got=repr(other))
        if None not in (self._class_names, other._class_names) and self._class_names != other._class_names:
            expected = f"a histogram of the classes {', '.join(self._class_names or ())}"
            got = f"one of {', '.join(other._class_names or ())}"
            raise ParameterError("other", "CalibrationHistogram.merge", expected=expected, got=got)
        if None not in (self._is_two, other._is_two) and self._is_two != other._is_two:
            expected = f"a histogram of {_kind_of_rows(bool(self._is_two))}"
            got = f"one of {_kind_of_rows(bool(other._is_two))}"
            raise ParameterError("other", "CalibrationHistogram.merge", expected=expected, got=got)
        self._class_names = self._class_names or other._class_names
        self._is_two = other._is_two if self._is_two is None else self._is_two
        filled = np.flatnonzero(other._count)
        used: Indices | slice = filled if 4 * filled.shape[0] < other._count.shape[0] else slice(None)
        self._count[used] += other._count[used]
        self._carry[:, used] += other._carry[:, used]
        _compensated_add(self._sums, self._carry, used, other._sums[:, used])
        self._low[used] = np.minimum(self._low[used], other._low[used])
        self._high[used] = np.maximum(self._high[used], other._high[used])
        return self

    def compute(self, *, n_bins: int = 15, level: float = 0.95) -> StreamedCalibration:
        """The equal-mass ECE of all rows so far, with a bound on its distance from the exact value."""
        function = "CalibrationHistogram.compute"
        check_level(level, function)
        equal_mass = self.equal_mass(n_bins, function)
        cells = equal_mass.cells
        bins = equal_mass.bins
        low = self._low[equal_mass.used]
        high = self._high[equal_mass.used]
        largest_sum, largest_excess = cumulative_gap(cells, low, high)
        total = float(cells.weight.sum())
        return StreamedCalibration(
            ece=equal_mass.ece,
            error_bound=equal_mass.error_bound,
            largest_gap=norm_of_gaps(bins, "max"),
            largest_gap_bound=bound_of_largest_gap(bins, equal_mass.ends, equal_mass.split),
            ks=largest_sum / total,
            ks_bound=largest_excess / total,
            accuracy=float(cells.correct.sum() / total),
            confidence=float(cells.confidence.sum() / total),
            count=self.count,
            weight=total,
            curve=curve_of(bins, level),
            right=_by_width(cells, cells.correct),
            wrong=_by_width(cells, cells.weight - cells.correct),
        )

    def refined(self, *, n_bins: int = 15) -> CalibrationHistogram:
        """An empty histogram with finer cells where this one is uncertain, for another pass over the data.

        >>> from refocal.metrics import expected_calibration_error
        >>> p = 0.7 + 1e-9 * np.linspace(0, 1, 10_000)
        >>> y = (np.arange(10_000) > 5_000).astype(int)
        >>> histogram = CalibrationHistogram().update(y, p)
        >>> while histogram.compute().error_bound > 1e-4:
        ...     histogram = histogram.refined().update(y, p)
        >>> abs(histogram.compute().ece - expected_calibration_error(y, p)) < 1e-4
        True
        """
        equal_mass = self.equal_mass(n_bins, "CalibrationHistogram.refined")
        uncertain = equal_mass.used[equal_mass.split.cell]
        if uncertain.size == 0:
            return self.fresh()
        return self.fresh(self._cells.zoomed(uncertain, self._low[uncertain], self._high[uncertain]))

    def equal_mass(self, n_bins: int = 15, function: str = "CalibrationHistogram.equal_mass") -> EqualMass:
        """The cells in equal-mass bins: the part of `compute` that the ECE needs."""
        check_integer(n_bins, "n_bins", function)
        used, cells = self._filled(function)
        low = self._low[used]
        starts = Ranked(low, cells).starts(n_bins)
        bins = join_cells(cells, starts)
        split = split_cells(cells, low, self._high[used], n_bins)
        return EqualMass(
            ece=norm_of_gaps(bins, "l1"),
            error_bound=float(split.all_bins.sum()) / float(cells.weight.sum()),
            used=used,
            cells=cells,
            bins=bins,
            ends=np.append(starts[1:], len(used)) - 1,
            lowest=low[starts],
            split=split,
        )

    def scores(self) -> ScoreCells:
        """The weights by rising confidence, from which the AUC and other measures of the order are computed."""
        used, cells = self._filled("CalibrationHistogram.scores")
        several = self._low[used] < self._high[used]
        return ScoreCells(cells.correct, cells.weight - cells.correct, several, partial(_place, self._cells, used))

    def to_json(self) -> str:
        """The state as JSON; cells that were never touched are left out."""
        used = np.flatnonzero(self._count)
        state = {"format": _FORMAT, "version": 1, **self._cells.to_dict(), "cell": used.tolist()}
        if self._class_names is not None:
            state["class_names"] = list(self._class_names)
        if self._is_two is not None:
            state["two_classes"] = self._is_two
        return json.dumps(state | {name: column[..., used].tolist() for name, column in self._columns.items()})

    @classmethod
    def from_json(cls, text: str) -> CalibrationHistogram:
        """The histogram that `to_json` wrote."""
        function = "CalibrationHistogram.from_json"
        expected = f"the JSON of a {_FORMAT}, version 1"
        try:
            state = parse_json(text)
            if (state["format"], state["version"]) != (_FORMAT, 1):
                raise ValueError(f"{state['format']} {state['version']}")
            histogram = cls(bits=1).fresh(Cells.from_dict(state))
            histogram._restore(state)
            if "class_names" in state:
                histogram._class_names = check_class_names(state["class_names"], 2, function)
            is_two = state.get("two_classes")
            if is_two is not None and not isinstance(is_two, bool):
                raise ValueError(f"two_classes: {is_two!r}")
            histogram._is_two = is_two
        except (TypeError, KeyError, ValueError, OverflowError, MemoryError) as error:
            reason = str(error).splitlines()[0] if str(error) else ""
            raise DataError("text", function, expected=expected, got=f"{type(error).__name__}: {reason}") from error
        return histogram

    def __getstate__(self) -> dict[str, Any]:
        # Only cells with rows are sent, and of these only what does not follow from the rest: without weights two of
        # the sums equal the count and two are the same, and a single value is both the lowest and the highest.
        used = np.flatnonzero(self._count)
        count = self._count[used]
        weight, confidence, correct, squared_weight, squared_correct = (self._sums + self._carry)[:, used]
        has_several = self._low[used] < self._high[used]
        state = {
            "cells": self._cells.to_dict(),
            "used": used.astype(np.int32),
            "low": self._low[used],
            "has_several": np.packbits(has_several),
            "high": self._high[used][has_several],
            "confidence": confidence,
            "class_names": self._class_names,
            "two_classes": self._is_two,
        }
        has_unit_weights = (weight == count).all() and (squared_weight == count).all()
        if has_unit_weights and count.max(initial=0) < 1 << 31:
            return state | {"count": count.astype(np.int32), "correct": correct.astype(np.int32)}
        weighted = {"weight": weight, "squared_weight": squared_weight, "squared_correct": squared_correct}
        return state | {"count": count, "correct": correct} | weighted

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._start(Cells.from_dict(state["cells"]))
        self._class_names = state.get("class_names")
        self._is_two = state.get("two_classes")
        used = state["used"]
        count = state["count"]
        correct = state["correct"]
        has_several = np.unpackbits(state["has_several"], count=len(used)).astype(np.bool_)
        self._count[used] = count
        self._low[used] = state["low"]
        self._high[used] = state["low"]
        self._high[used[has_several]] = state["high"]
        self._sums[0, used] = state.get("weight", count)
        self._sums[1, used] = state["confidence"]
        self._sums[2, used] = correct
        self._sums[3, used] = state.get("squared_weight", count)
        self._sums[4, used] = state.get("squared_correct", correct)

    def _restore(self, state: dict[str, Any]) -> None:
        """Fill the cells with what `to_json` wrote; a ValueError for what it cannot have written."""
        used = np.array(state["cell"], dtype=np.int64)
        given = {name: np.array(state[name], dtype=column.dtype) for name, column in self._columns.items()}
        if any(given[name].shape != (*column.shape[:-1], *used.shape) for name, column in self._columns.items()):
            raise ValueError("columns of different lengths")
        if used.size == 0:
            return
        low = given["low"]
        high = given["high"]
        sums = given["sums"]
        carry = given["carry"]
        is_ordered = are_cells(used, self._cells.size) and bool(np.all((low >= 0.0) & (low <= high) & (high <= 1.0)))
        is_weighted = (sums + carry).min() >= 0.0 and math.isfinite(sums.sum() + np.abs(carry).sum())
        if not (is_ordered and is_weighted and given["count"].min() > 0):
            raise ValueError("numbers that no histogram has")
        for name, column in self._columns.items():
            column[..., used] = given[name]

    def _filled(self, function: str) -> tuple[Indices, Bins]:
        """The cells that hold weight, by rising confidence, and their sums."""
        used = np.flatnonzero(self._sums[0] + self._carry[0] > 0)
        if used.size == 0:
            raise DataError("self", function, expected="a histogram that has seen rows", got="an empty one")
        used = used[np.argsort(self._low[used], kind="stable")]
        return used, Bins(self._count[used], *(self._sums[:, used] + self._carry[:, used]))


def _kind_of_rows(is_two: bool) -> str:
    """What the confidence of rows is about, for messages."""
    return (
        "two classes, with the probability of one" if is_two else "more than two classes, with the largest of each row"
    )


def _compensated_add(total: Vector, carry: Vector, columns: Indices | slice, values: Vector) -> None:
    """Add to some columns of `total` and keep in `carry` what rounding lost (Knuth's two-sum)."""
    # Row by row, so that the temporaries stay small.
    for row, value in enumerate(values):
        before = total[row, columns]
        after = before + value
        shift = after - before
        carry[row, columns] += (before - (after - shift)) + (value - shift)
        total[row, columns] = after


def _place(cells: Cells, used: Indices, confidence: Vector) -> Indices:
    """Where the cells of confidences stand among those in use; those of weight 0 may be in none of them."""
    place_of_cell = np.zeros(cells.size, dtype=np.int64)
    place_of_cell[used] = np.arange(len(used))
    places: Indices = place_of_cell[cells.index(confidence)]
    return places


def _by_width(cells: Bins, weight: Vector) -> list[float]:
    """The weight of cells in the twenty intervals of `StreamedCalibration.right`."""
    n_intervals = 20
    interval = uniform_index(np.clip(cells.confidence / cells.weight, 0.0, 1.0), n_intervals)
    weights = np.bincount(interval, weight, n_intervals)
    return [float(max(of_interval, 0.0)) for of_interval in weights]
