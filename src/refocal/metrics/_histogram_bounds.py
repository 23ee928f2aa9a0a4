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
    """The boundaries that are not exact.

    With s the weight of a cell beyond its first boundary, the rows that may be on the wrong side carry a gap of at most
    g = max(min(s, right) · (1 - low), min(s, wrong) · high), and moving them changes two bins: see
    `CalibrationHistogram`. `low` and `high` are the smallest and the largest confidence of each cell.
    """
    cumulative = np.cumsum(cells.weight)
    boundaries = np.arange(1, n_bins) / n_bins * cumulative[-1]
    holder = np.minimum(np.searchsorted(cumulative, boundaries), cumulative.shape[0] - 1)
    # Several boundaries in one cell part it into several bins: the first one leaves the most weight beyond it.
    cell, first, times = np.unique(holder, return_index=True, return_counts=True)
    beyond = cumulative[cell] - boundaries[first]
    # The most that correct and wrong rows of that weight can add to the gap of a bin.
    right = np.minimum(beyond, cells.correct[cell]) * (1.0 - low[cell])
    wrong = np.minimum(beyond, (cells.weight - cells.correct)[cell]) * high[cell]
    one_bin = np.maximum(right, wrong)
    all_bins = one_bin + np.where(times > 1, right + wrong, one_bin)
    is_uncertain = (low[cell] < high[cell]) & (one_bin > 0)
    return SplitCells(
        cell=cell[is_uncertain],
        beyond=beyond[is_uncertain],
        times=times[is_uncertain],
        one_bin=one_bin[is_uncertain],
        all_bins=all_bins[is_uncertain],
    )


def bound_of_largest_gap(bins: Bins, ends: Indices, split: SplitCells) -> float:
    """How far the largest |gap| / weight of the bins can be off; `ends` is the last cell of each bin.

    With m of weight and δ of gap more, G / W becomes (G + δ) / (W + m): a change of (δ - m G/W) / (W + m).
    """
    if np.any(split.times > 1):
        return 1.0  # a bin inside a cell was not seen at all
    mean_gap = np.abs(bins.gap) / bins.weight
    change = np.zeros_like(mean_gap)  # |δ - m G/W| of each bin at most
    lost_weight = np.zeros_like(mean_gap)
    left = np.searchsorted(ends, split.cell)
    right = np.minimum(left + 1, len(ends) - 1)
    for side in (left, right):
        np.add.at(change, side, split.one_bin + split.beyond * mean_gap[side])
    np.add.at(lost_weight, left, split.beyond)
    least_weight = np.maximum(bins.weight - lost_weight, np.finfo(float).tiny)
    return min(1.0, float(np.max(change / least_weight, initial=0.0)))


def cumulative_gap(cells: Bins, low: Vector, high: Vector) -> tuple[float, float]:
    """Largest |Σ gap| up to the end of a cell, and how much farther it can reach inside of one; not divided by weight.

    Inside a cell the sum rises by `wrong` at most above where it began, and by `right` above where it ends: beyond the
    higher of both ends by the smaller of the two, and downwards likewise. A single value is never parted.
    """
    sums = np.append(0.0, np.cumsum(cells.gap))
    higher = np.maximum(np.abs(sums[:-1]), np.abs(sums[1:]))
    largest = float(higher.max())
    wrong = (cells.weight - cells.correct) * high
    right = cells.correct * (1.0 - low)
    highest_inside = np.where(low < high, higher + np.minimum(wrong, right), higher)
    return largest, float(highest_inside.max()) - largest
