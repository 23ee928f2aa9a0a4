"""Calibration histograms over rows in blocks, whose cells become finer, pass by pass, until the ECE is known.

The cells of a `CalibrationHistogram` leave a bound on the error of its ECE. Where the bound is too large, another pass
over the same rows counts them in finer cells there: for fits (`engine.scoring`) and for evaluations alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from refocal.metrics.histogram import CalibrationHistogram

ECE_TOLERANCE = 1e-4
"""How far an ECE of rows in blocks may be from the exact one: the last digit of the percentages in tables."""
MAX_REFINEMENTS = 3
"""The most passes after the first one; each cuts a cell into 16,384 parts."""
REPORT_BITS = 12
"""Bits of the cells of the first pass: 2^12 for every factor of two in min(c, 1 - c)."""


class Refinable(Protocol):
    """The answer of a pass that has counted rows in histograms."""

    @property
    def finer(self) -> Sequence[CalibrationHistogram]:
        """Empty histograms for another pass; none if this one suffices."""


Answer = TypeVar("Answer", bound=Refinable)


def finer_cells(
    histograms: Sequence[CalibrationHistogram], error_bound: float, n_bins: int
) -> tuple[CalibrationHistogram, ...]:
    """Empty histograms with finer cells, unless `error_bound`, that of their ECEs, is small enough; then none."""
    if error_bound <= ECE_TOLERANCE:
        return ()
    return tuple(histogram.refined(n_bins=n_bins) for histogram in histograms)


def repeat_with_finer_cells(
    one_pass: Callable[[Sequence[CalibrationHistogram]], Answer],
    empty_histograms: Sequence[CalibrationHistogram],
    max_passes: int,
) -> Answer:
    """The answer of the first pass whose histograms are fine enough, or of the last one allowed."""
    answer = one_pass(empty_histograms)
    for _ in range(max_passes - 1):
        if not answer.finer:
            break
        answer = one_pass(answer.finer)
    return answer
