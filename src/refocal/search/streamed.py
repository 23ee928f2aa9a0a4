"""The data of a search that is walked through block by block: the same questions as `Problem` answers in memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal._validation import LARGE, SMALL, like_probabilities, sum_of_parts
from refocal.errors import DataError, InputWarning, LabelError, ShapeError
from refocal.metrics.histogram import CalibrationHistogram
from refocal.search.problem import Curvature, Problem
from refocal.search.rows import Block, Job, Rows
from refocal.search.tally import (
    FocalPoints,
    Measures,
    Predict,
    Scores,
    join_tallies,
    measures,
    problem_of,
    scores,
    tally,
)

Vector = NDArray[np.float64]
Keys = NDArray[np.uint64]

# Rows and numbers of a sample: enough to begin a Newton method, and little to send; enough to see where on a grid to
# look, which stays where it was made.
START_ROWS, START_ENTRIES, FEWEST_START_ROWS = 2_000, 1 << 15, 64
LOOK_ROWS, LOOK_ENTRIES, FEWEST_LOOK_ROWS = 100_000, 5_000_000, 600
# Cells of the histograms of a search, of its last look and of a report; the latter are refined until the bound is small
# enough.
SEARCH_BITS, FINE_BITS, REPORT_BITS = 10, 12, 12
ECE_BOUND, MAX_REFINEMENTS = 1e-4, 3
# So many points are measured in one walk.
POINTS = 16
# A row's key is made of so many of its logits.
KEY_COLUMNS = 8


@dataclass
class Sample:
    """The rows with the smallest keys: a key is made of the row alone, so neither order nor partition matters."""

    keys: Keys
    values: NDArray[Any]
    labels: NDArray[np.int64]
    weight: Vector | None

    def smallest(self, n_rows: int) -> Sample:
        """At most so many rows, by rising key."""
        order = np.argsort(self.keys, kind="stable")[:n_rows]
        weight = None if self.weight is None else self.weight[order]
        return Sample(self.keys[order], self.values[order], self.labels[order], weight)

    @property
    def problem(self) -> Problem:
        """These rows as a problem of their own."""
        return Problem(self.values, self.labels, self.weight)


@dataclass
class Inspected:
    """What the first walk finds out."""

    weight: float
    gap: float
    lowest: int
    highest: int
    sum_of_parts: int | None
    """What every row that was looked at sums to, if it may be made of probabilities or percentages."""
    precision: float
    sample: Sample


class StreamedProblem:
    """Rows in blocks, checked by a first walk; `passes` counts the later ones.

    >>> from refocal.scale import blocks
    >>> rows = blocks([([[2.0, 0.0], [0.0, 1.0]], [0, 1]), ([[1.0, 0.0]], [1])])
    >>> problem = StreamedProblem(rows, look=False)
    >>> problem.n_rows, problem.n_skipped, problem.passes
    (3, 0, 0)
    """

    def __init__(self, rows: Rows, *, look: bool) -> None:
        self.rows = rows
        self.n_classes = rows.reading.n_classes
        self.passes = 0
        self.memo: dict[Any, Any] = {}
        n_start = max(FEWEST_START_ROWS, min(START_ROWS, START_ENTRIES // self.n_classes))
        n_look = max(FEWEST_LOOK_ROWS, min(LOOK_ROWS, LOOK_ENTRIES // self.n_classes)) if look else n_start
        job = Job(partial(inspect, n_sample=n_look), partial(_join, n_sample=n_look), partial(_start, n_start), True)
        walked, self._ask = rows.walk_and_keep(job)
        self.n_rows, self.n_skipped = walked.n_rows, walked.n_skipped
        self._inspected = self._checked(walked.answer)
        self.weight, self.precision = self._inspected.weight, self._inspected.precision
        self.mean_gap = self._inspected.gap / self.n_rows / (self.n_classes - 1)
        self.n_look = min(n_look, self.n_rows)

    def look(self, question: Callable[[Problem], Any]) -> Any:
        """What a function says of the `n_look` rows that show where to look, computed where they lie."""
        return self._ask(partial(_of_sample, question))

    def part(self, n_rows: int) -> Problem:
        """At most `n_rows` of the rows to begin with."""
        return self._inspected.sample.smallest(n_rows).problem

    def temperature_curvature(self, slope: float, *, rough: bool = False) -> tuple[float, float, float]:
        """See `Problem.temperature_curvature`."""
        value, first, second = self.mean_of_blocks(partial(_temperature, slope=slope, rough=rough))
        return float(value), float(first), float(second)

    def curvature(self, gamma: float, temperature: float, *, rough: bool = False) -> Curvature:
        """See `Problem.curvature`."""
        sums = partial(_focal, gamma=gamma, temperature=temperature, rough=rough)
        return Curvature.of(self.mean_of_blocks(sums))

    def mean_of_blocks(self, sums: Callable[[Block], Vector]) -> Vector:
        """Weighted sums of blocks, added up and divided by the weight of all rows: one walk."""
        return np.asarray(self._walk(Job(sums, np.add)) / self.weight)

    def scores(
        self, points: list[tuple[float, float]], resolutions: tuple[int, ...], bits: int = SEARCH_BITS
    ) -> Scores:
        """Scores of points (γ, T), with the mean of the ECEs at these numbers of bins by histograms."""
        parts: list[Scores] = []
        for first in range(0, len(points), POINTS):
            some = tuple(points[first : first + POINTS])
            cells = (CalibrationHistogram(bits=bits),) * len(some) if resolutions else ()
            finish = partial(scores, resolutions=resolutions)
            parts.append(self._walk(Job(partial(tally, predict=FocalPoints(some), cells=cells), join_tallies, finish)))
        return Scores(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def measures(self, predict: Predict, n_predictors: int, n_bins: int = 15) -> Measures:
        """See `measure_rows`."""
        found, walks = measure_rows(self.rows, predict, n_bins, report_cells(n_predictors))
        self.passes += walks
        return found

    def _walk(self, job: Job) -> Any:
        self.passes += 1
        return self.rows.walk(job).answer

    def _checked(self, found: Inspected | None) -> Inspected:
        function = self.rows.reading.function
        if found is None:
            skipped = f"none, and {self.n_skipped} bad ones" if self.n_skipped else "none"
            raise ShapeError("X", function, expected="at least one row in all blocks together", got=skipped)
        if not SMALL <= found.weight <= LARGE:
            expected = f"of a sum between {SMALL:g} and {LARGE:g}"
            raise DataError("sample_weight", function, expected=expected, got=f"a sum of {found.weight:g}")
        if found.lowest == found.highest:
            raise LabelError("y", function, expected="of at least two classes", got=f"only one class, {found.lowest}")
        if found.sum_of_parts is not None:
            remedy = "say so with input='probabilities'"
            warnings.warn(like_probabilities(found.sum_of_parts, "X", function, remedy), InputWarning, stacklevel=5)
        return found


def measure_rows(
    rows: Rows, predict: Predict, n_bins: int, cells: tuple[CalibrationHistogram, ...]
) -> tuple[Measures, int]:
    """Means and ECE of predictors, walking again with finer cells until the ECE is known to 1e-4; and the walks."""
    walks = 0
    while True:
        job = Job(partial(tally, predict=predict, cells=cells), join_tallies, partial(measures, n_bins=n_bins))
        found: Measures = rows.walk(job).answer
        walks += 1
        if walks > MAX_REFINEMENTS or is_settled(found):
            return found, walks
        cells = found.finer


def report_cells(n_predictors: int) -> tuple[CalibrationHistogram, ...]:
    """Empty histograms for a first walk."""
    return (CalibrationHistogram(bits=REPORT_BITS),) * n_predictors


def is_settled(found: Measures) -> bool:
    """Whether every ECE is known well enough."""
    return max(each.error_bound for each in found.calibration) <= ECE_BOUND


def inspect(block: Block, n_sample: int) -> Inspected:
    """The first look at a block."""
    problem = problem_of(block)
    keys = _keys(block)
    chosen = np.argpartition(keys, n_sample)[:n_sample] if len(keys) > n_sample else slice(None)
    values = problem.logits[chosen]
    weight = block.weight
    return Inspected(
        weight=float(len(keys) if weight is None else weight.sum()),
        gap=problem.total_gap,
        lowest=int(block.labels.min()),
        highest=int(block.labels.max()),
        sum_of_parts=sum_of_parts(values.astype(np.float64)),
        precision=problem.precision,
        sample=Sample(
            keys[chosen],
            values.astype(np.float32) if values.dtype == np.float16 else np.array(values),
            block.labels[chosen],
            None if weight is None else weight[chosen],
        ),
    )


def _join(first: Inspected, second: Inspected, n_sample: int) -> Inspected:
    mine, other = first.sample, second.sample
    weighted = mine.weight is not None and other.weight is not None
    both = Sample(
        np.concatenate([mine.keys, other.keys]),
        np.concatenate([mine.values, other.values]),
        np.concatenate([mine.labels, other.labels]),
        np.concatenate([mine.weight, other.weight]) if weighted else None,
    )
    return Inspected(
        first.weight + second.weight,
        first.gap + second.gap,
        min(first.lowest, second.lowest),
        max(first.highest, second.highest),
        first.sum_of_parts if first.sum_of_parts == second.sum_of_parts else None,
        max(first.precision, second.precision),
        both.smallest(n_sample),
    )


def _start(n_start: int, found: Inspected) -> Inspected:
    """What the client gets: few rows, by rising key, in single precision, since they only show where to begin."""
    few = found.sample.smallest(n_start)
    return replace(found, sample=replace(few, values=few.values.astype(np.float32)))


def _of_sample(question: Callable[[Problem], Any], found: Inspected) -> Any:
    return question(found.sample.smallest(len(found.sample.keys)).problem)


def _keys(block: Block) -> Keys:
    """Well-mixed whole numbers, one a row."""
    columns = np.unique(np.linspace(0, block.values.shape[1] - 1, KEY_COLUMNS).astype(np.int64))
    keys: Keys = block.labels.astype(np.uint64)
    for column in columns:
        bits = block.values[:, column].astype(np.float64).view(np.uint64)
        keys = (keys ^ (bits >> np.uint64(32)) ^ bits) * np.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> np.uint64(29)
    return keys


def _temperature(block: Block, slope: float, rough: bool) -> Vector:
    return problem_of(block).temperature_sums(slope, rough=rough)


def _focal(block: Block, gamma: float, temperature: float, rough: bool) -> Vector:
    return problem_of(block).focal_sums(gamma, temperature, rough=rough)
