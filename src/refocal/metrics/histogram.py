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
from refocal.errors import DataError, ParameterError
from refocal.metrics._histogram_bounds import SplitCells, bound_of_largest_gap, cumulative_gap, split_cells
from refocal.metrics.bins import Bins, Ranked, join_cells, norm_of_gaps, uniform_index, weighted_terms
from refocal.metrics.histogram_cells import MOST_BITS, Cells, are_cells
from refocal.metrics.inputs import check_level, read_probabilities
from refocal.metrics.reliability import ReliabilityCurve, curve_of
from refocal.rows.labels import IgnoreIndex

__all__ = ["CalibrationHistogram", "StreamedCalibration"]

_BLOCK = 1 << 19
_WIDTHS = 20
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
        self._cells = cells
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
        self, y_true: Any, probabilities: Any = None, *, sample_weight: Any = None, ignore_index: IgnoreIndex = None
    ) -> CalibrationHistogram:
        """Count a block of rows and return self."""
        rows = read_probabilities(y_true, probabilities, sample_weight, "CalibrationHistogram.update", ignore_index)
        return self.count_rows(*rows.confidence(), rows.weight)

    def count_rows(self, confidence: Vector, correct: Flags, weight: Vector | None = None) -> CalibrationHistogram:
        """`update` from confidences (float64, at most 1) and whether they were correct, without checks."""
        for start in range(0, confidence.shape[0], _BLOCK):
            block = slice(start, start + _BLOCK)
            c, y, w = confidence[block], correct[block], None if weight is None else weight[block]
            cell = self._cells.index(c)
            np.minimum.at(self._low, cell, c)
            np.maximum.at(self._high, cell, c)
            touched: Indices | slice = slice(None)
            position, size = cell, self._cells.size
            if c.shape[0] < size:
                # A small block touches few cells: work on those alone.
                touched, position = np.unique(cell, return_inverse=True)
                size = touched.shape[0]
            count = np.bincount(position, minlength=size)
            self._count[touched] += count
            # Distances from the lowest confidence of the cell are tiny, so that summing them loses nothing.
            origin = np.where(count > 0, self._low[touched], 0.0)
            distance = c - origin[position]
            if w is None:
                ones, right = (x.astype(np.float64) for x in (count, np.bincount(position[y], minlength=size)))
                sums = np.stack([ones, np.bincount(position, distance, size), right, ones, right])
            else:
                sums = np.stack([np.bincount(position, each, size) for each in weighted_terms(distance, y, w)])
            sums[1] += sums[0] * origin
            _compensated_add(self._sums, self._carry, touched, sums)
        return self

    def fresh(self, cells: Cells | None = None) -> CalibrationHistogram:
        """An empty histogram with the same cells, or with others."""
        made = type(self).__new__(type(self))
        made._start(self._cells if cells is None else cells)
        return made

    def merge(self, other: CalibrationHistogram) -> CalibrationHistogram:
        """Add the rows that `other` has seen and return self."""
        theirs = other._cells if isinstance(other, CalibrationHistogram) else None
        if theirs is not self._cells and (theirs is None or theirs.to_dict() != self._cells.to_dict()):
            expected = "a histogram with the same cells"
            raise ParameterError("other", "CalibrationHistogram.merge", expected=expected, got=repr(other))
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
        ece, bound, used, cells, bins, ends, split = self.equal_mass(n_bins, function)
        ks, ks_reach = cumulative_gap(cells, self._low[used], self._high[used])
        total = float(cells.weight.sum())
        return StreamedCalibration(
            ece=ece,
            error_bound=bound,
            largest_gap=norm_of_gaps(bins, "max"),
            largest_gap_bound=bound_of_largest_gap(bins, ends, split),
            ks=ks / total,
            ks_bound=ks_reach / total,
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
        found = self.equal_mass(n_bins, "CalibrationHistogram.refined")
        divided = found.used[found.split.cell]
        if divided.size == 0:
            return self.fresh()
        return self.fresh(self._cells.zoomed(divided, self._low[divided], self._high[divided]))

    def equal_mass(self, n_bins: int = 15, function: str = "CalibrationHistogram.equal_mass") -> EqualMass:
        """The cells in equal-mass bins: the part of `compute` that the ECE needs."""
        check_integer(n_bins, "n_bins", function)
        used, cells = self._filled(function)
        low, high, n_cells = self._low[used], self._high[used], len(used)
        starts = Ranked(low, cells).starts(n_bins)
        bins, split = join_cells(cells, starts), split_cells(cells, low, high, n_bins)
        bound = float(split.all_bins.sum()) / float(cells.weight.sum())
        ends = np.append(starts[1:], n_cells) - 1
        return EqualMass(norm_of_gaps(bins, "l1"), bound, used, cells, bins, ends, split)

    def scores(self) -> ScoreCells:
        """The weights by rising confidence, from which the AUC and other measures of the order are computed."""
        used, cells = self._filled("CalibrationHistogram.scores")
        several = self._low[used] < self._high[used]
        return ScoreCells(cells.correct, cells.weight - cells.correct, several, partial(_place, self._cells, used))

    def to_json(self) -> str:
        """The state as JSON; cells that were never touched are left out."""
        used = np.flatnonzero(self._count)
        state = {"format": _FORMAT, "version": 1, **self._cells.to_dict(), "cell": used.tolist()}
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
        except (TypeError, KeyError, ValueError, OverflowError, MemoryError) as error:
            reason = str(error).splitlines()[0] if str(error) else ""
            raise DataError("text", function, expected=expected, got=f"{type(error).__name__}: {reason}") from error
        return histogram

    def __getstate__(self) -> dict[str, Any]:
        # Only cells with rows are sent, and of these only what does not follow from the rest: without weights two of
        # the sums equal the count and two are the same, and a single value is both the lowest and the highest.
        used = np.flatnonzero(self._count)
        count, sums = self._count[used], (self._sums + self._carry)[:, used]
        several = self._low[used] < self._high[used]
        is_plain = bool((sums[0] == count).all() and (sums[3] == count).all() and count.max(initial=0) < 1 << 31)
        sent = (count.astype(np.int32), sums[1], sums[2].astype(np.int32)) if is_plain else (count, *sums)
        ends = self._low[used], self._high[used][several], np.packbits(several)
        return {"cells": self._cells.to_dict(), "used": used.astype(np.int32), "sums": sent, "ends": ends}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._start(Cells.from_dict(state["cells"]))
        used, (count, *sums), (low, high, several) = state["used"], state["sums"], state["ends"]
        self._count[used], self._low[used], self._high[used] = count, low, low
        self._high[used[np.unpackbits(several, count=len(used)).astype(np.bool_)]] = high
        self._sums[:, used] = sums if len(sums) == 5 else np.stack([count, *sums, count, sums[1]])

    def _restore(self, state: dict[str, Any]) -> None:
        """Fill the cells with what `to_json` wrote; a ValueError for what it cannot have written."""
        used = np.array(state["cell"], dtype=np.int64)
        found = {name: np.array(state[name], dtype=column.dtype) for name, column in self._columns.items()}
        if len(found["sums"]) == len(found["carry"]) == 4:  # of 0.1.0, whose weights must not depend on the outcome
            weight, _, hits, squares = found["sums"]
            hit_squares = np.divide(squares * hits, weight, out=np.zeros_like(weight), where=weight > 0)
            found["sums"] = np.vstack([found["sums"], hit_squares])
            found["carry"] = np.vstack([found["carry"], np.zeros_like(weight)])
        if any(found[name].shape != (*column.shape[:-1], *used.shape) for name, column in self._columns.items()):
            raise ValueError("columns of different lengths")
        if used.size == 0:
            return
        count, sums, carry, low, high = found.values()
        ordered = are_cells(used, self._cells.size) and bool(np.all((low >= 0.0) & (low <= high) & (high <= 1.0)))
        weights = (sums + carry).min() >= 0.0 and math.isfinite(sums.sum() + np.abs(carry).sum())
        if not (ordered and weights and count.min() > 0):
            raise ValueError("numbers that no histogram has")
        for name, column in self._columns.items():
            column[..., used] = found[name]

    def _filled(self, function: str) -> tuple[Indices, Bins]:
        """The cells that hold weight, by rising confidence, and their sums."""
        used = np.flatnonzero(self._sums[0] + self._carry[0] > 0)
        if used.size == 0:
            raise DataError("self", function, expected="a histogram that has seen rows", got="an empty one")
        used = used[np.argsort(self._low[used], kind="stable")]
        return used, Bins(self._count[used], *(self._sums[:, used] + self._carry[:, used]))


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
    place = np.zeros(cells.size, dtype=np.int64)
    place[used] = np.arange(len(used))
    found: Indices = place[cells.index(confidence)]
    return found


def _by_width(cells: Bins, weight: Vector) -> list[float]:
    """The weight of cells in intervals of equal width."""
    place = uniform_index(np.clip(cells.confidence / cells.weight, 0.0, 1.0), _WIDTHS)
    found = np.bincount(place, weight, _WIDTHS)
    return [float(max(each, 0.0)) for each in found]
