"""The data of a search that is walked through block by block: the same questions as `Problem` answers in memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

# Rows and numbers of the sample: enough to begin a Newton method; enough to see where on a grid to look.
START_ROWS, START_ENTRIES = 4_000, 1 << 16
LOOK_ROWS, LOOK_ENTRIES = 100_000, 20_000_000
MIN_ROWS = 600
# Cells of the histograms of a search and of a report; the latter are refined until the bound is small enough.
SEARCH_BITS, REPORT_BITS = 10, 12
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


@dataclass
class Inspected:
    """What the first walk finds out."""

    weight: float
    correct: float
    gap: float
    lowest: int
    highest: int
    like_probabilities: bool
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
        most, entries = (LOOK_ROWS, LOOK_ENTRIES) if look else (START_ROWS, START_ENTRIES)
        n_sample = max(MIN_ROWS, min(most, entries // self.n_classes))
        walked = rows.walk(Job(partial(inspect, n_sample=n_sample), partial(_join, n_sample=n_sample), check=True))
        self.n_rows, self.n_skipped = walked.n_rows, walked.n_skipped
        self._inspected = self._checked(walked.answer)
        self.weight = self._inspected.weight
        self.typical_gap = self._inspected.gap / self.n_rows / (self.n_classes - 1)

    @cached_property
    def sample(self) -> Problem:
        """The rows that show where to look; all of them if they are few."""
        found = self._inspected.sample
        return Problem(found.values, found.labels, found.weight)

    @property
    def precision(self) -> float:
        """The machine epsilon that rows are computed in."""
        return self.sample.precision

    def part(self, n_rows: int) -> Problem:
        """At most `n_rows` of the sample."""
        found = self._inspected.sample.smallest(n_rows)
        return Problem(found.values, found.labels, found.weight)

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

    def scores(self, points: list[tuple[float, float]], resolutions: tuple[int, ...]) -> Scores:
        """Scores of points (γ, T), with the mean of the ECEs at these numbers of bins by histograms."""
        parts: list[Scores] = []
        for first in range(0, len(points), POINTS):
            some = tuple(points[first : first + POINTS])
            cells = (CalibrationHistogram(bits=SEARCH_BITS),) * len(some) if resolutions else ()
            finish = partial(scores, resolutions=resolutions)
            parts.append(self._walk(Job(partial(tally, predict=FocalPoints(some), cells=cells), join_tallies, finish)))
        return Scores(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def measures(self, predict: Predict, n_predictors: int, n_bins: int = 15) -> Measures:
        """See `measure_rows`."""
        found, walks = measure_rows(self.rows, predict, n_predictors, n_bins)
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
        if not found.weight > 0.0:
            raise DataError("sample_weight", function, expected="not all zero", got="a sum of 0")
        if found.lowest == found.highest:
            raise LabelError("y", function, expected="of at least two classes", got=f"only one class, {found.lowest}")
        if found.like_probabilities:
            warnings.warn(
                f"All rows of the 'X' of {function} sum to 1, as probabilities do; logits were expected. "
                "If they are probabilities, say so with input='probabilities'.",
                InputWarning,
                stacklevel=5,
            )
        return replace(found, sample=found.sample.smallest(len(found.sample.keys)))


def measure_rows(rows: Rows, predict: Predict, n_predictors: int, n_bins: int) -> tuple[Measures, int]:
    """Means and ECE of predictors, walking again with finer cells until the ECE is known to 1e-4; and the walks."""
    cells = (CalibrationHistogram(bits=REPORT_BITS),) * n_predictors
    walks = 0
    while True:
        job = Job(partial(tally, predict=predict, cells=cells), join_tallies, partial(measures, n_bins=n_bins))
        found: Measures = rows.walk(job).answer
        walks += 1
        if walks > MAX_REFINEMENTS or max(each.error_bound for each in found.calibration) <= ECE_BOUND:
            return found, walks
        cells = found.finer


def inspect(block: Block, n_sample: int) -> Inspected:
    """The first look at a block."""
    problem = problem_of(block)
    keys = _keys(block)
    chosen = np.argpartition(keys, n_sample)[:n_sample] if len(keys) > n_sample else slice(None)
    values = problem.logits[chosen]
    weight = block.weight
    return Inspected(
        weight=float(len(keys) if weight is None else weight.sum()),
        correct=float(problem.correct.sum() if weight is None else problem.correct @ weight),
        gap=problem.total_gap,
        lowest=int(block.labels.min()),
        highest=int(block.labels.max()),
        like_probabilities=_like_probabilities(values),
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
        first.correct + second.correct,
        first.gap + second.gap,
        min(first.lowest, second.lowest),
        max(first.highest, second.highest),
        first.like_probabilities and second.like_probabilities,
        both.smallest(n_sample),
    )


def _keys(block: Block) -> Keys:
    """Well-mixed whole numbers, one a row."""
    columns = np.unique(np.linspace(0, block.values.shape[1] - 1, KEY_COLUMNS).astype(np.int64))
    keys: Keys = block.labels.astype(np.uint64)
    for column in columns:
        bits = block.values[:, column].astype(np.float64).view(np.uint64)
        keys = (keys ^ (bits >> np.uint64(32)) ^ bits) * np.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> np.uint64(29)
    return keys


def _like_probabilities(values: NDArray[Any]) -> bool:
    """Of the sampled rows of a block: all in [0, 1] with a sum of 1."""
    rows = values.astype(np.float64)
    return bool(rows.min() >= 0.0) and bool(np.abs(rows.sum(axis=1) - 1.0).max() <= 1e-3)


def _temperature(block: Block, slope: float, rough: bool) -> Vector:
    return problem_of(block).temperature_sums(slope, rough=rough)


def _focal(block: Block, gamma: float, temperature: float, rough: bool) -> Vector:
    return problem_of(block).focal_sums(gamma, temperature, rough=rough)
