"""Error bounds of a `CalibrationHistogram`: how far its measures can be from the exact ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from refocal._arrays import Indices, Vector
from refocal.metrics.bins import Bins


class SplitCells(NamedTuple):
    """Cells of several values that hold an equal-mass boundary, and for each what may be on its wrong side.

    `beyond` is the weight of the cell beyond its first boundary, `times` how many boundaries the cell holds.
    """

    cell: Indices
    beyond: Vector
    times: Indices
    one_bin: Vector
    """How far the gap of a bin beside the cell can be off."""
    all_bins: Vector
    """How far the sum of all absolute gaps can be off: two bins, or several that the cell holds whole."""


def split_cells(cells: Bins, low: Vector, high: Vector, n_bins: int) -> SplitCells:
    """The boundaries that are not exact; see `CalibrationHistogram`."""
    below = np.cumsum(cells.weight)
    targets = np.arange(1, n_bins) / n_bins * below[-1]
    held = np.minimum(np.searchsorted(below, targets), below.shape[0] - 1)
    # Several boundaries in one cell part it into several bins: the first one leaves the most weight beyond it.
    held, first, times = np.unique(held, return_index=True, return_counts=True)
    beyond = below[held] - targets[first]
    # The most that correct and wrong rows of that weight can add to the gap of a bin.
    right = np.minimum(beyond, cells.correct[held]) * (1.0 - low[held])
    wrong = np.minimum(beyond, (cells.weight - cells.correct)[held]) * high[held]
    one_bin = np.maximum(right, wrong)
    all_bins = one_bin + np.where(times > 1, right + wrong, one_bin)
    kept = (low[held] < high[held]) & (one_bin > 0)
    return SplitCells(held[kept], beyond[kept], times[kept], one_bin[kept], all_bins[kept])


def bound_of_largest_gap(bins: Bins, ends: Indices, split: SplitCells) -> float:
    """How far the largest |gap| / weight of the bins can be off; `ends` is the last cell of each bin.

    With m of weight and δ of gap more, G / W becomes (G + δ) / (W + m): a change of (δ - m G/W) / (W + m).
    """
    if np.any(split.times > 1):
        return 1.0  # a bin inside a cell was not seen at all
    mean_gap = np.abs(bins.gap) / bins.weight
    off, lost = np.zeros_like(mean_gap), np.zeros_like(mean_gap)
    left = np.searchsorted(ends, split.cell)
    for side in (left, np.minimum(left + 1, len(ends) - 1)):
        np.add.at(off, side, split.one_bin + split.beyond * mean_gap[side])
    np.add.at(lost, left, split.beyond)
    return min(1.0, float(np.max(off / np.maximum(bins.weight - lost, np.finfo(float).tiny), initial=0.0)))


def cumulative_gap(cells: Bins, low: Vector, high: Vector) -> tuple[float, float]:
    """Largest |Σ gap| up to the end of a cell, and how much farther it can reach inside of one; not divided by weight.

    Inside a cell the sum rises by `wrong` at most above where it began, and by `right` above where it ends: beyond the
    higher of both ends by the smaller of the two, and downwards likewise. A single value is never parted.
    """
    sums = np.append(0.0, np.cumsum(cells.gap))
    higher = np.maximum(np.abs(sums[:-1]), np.abs(sums[1:]))
    largest = float(higher.max())
    wrong, right = (cells.weight - cells.correct) * high, cells.correct * (1.0 - low)
    reach = np.where(low < high, higher + np.minimum(wrong, right), higher)
    return largest, float(reach.max()) - largest
