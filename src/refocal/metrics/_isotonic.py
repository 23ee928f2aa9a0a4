"""Isotonic regression of the outcome on the confidence, as bins: the pools of adjacent violators."""

from __future__ import annotations

import numpy as np

from refocal._arrays import Flags, Vector
from refocal.metrics._bins import Bins, Ranked, join_cells, rank, sum_bins


def isotonic_fit(confidence: Vector, correct: Vector | Flags, weight: Vector | None) -> Bins:
    """The pools of the isotonic regression; the share of correct ones rises strictly from pool to pool."""
    return isotonic_pools(rank(confidence, correct, weight))


def isotonic_pools(ranked: Ranked) -> Bins:
    """As `isotonic_fit`, for rows that are already sorted."""
    # The import is costly and few callers need it.
    from scipy.optimize import isotonic_regression

    # One point for each distinct value: equal confidences must get equal probabilities.
    ties = np.concatenate([np.zeros(1, dtype=np.int64), ranked.ends_of_ties()[:-1]])
    points = sum_bins(ranked, ties)
    if points.weight.shape[0] == 1:
        return points
    pools = isotonic_regression(points.correct / points.weight, weights=points.weight).blocks[:-1]
    return join_cells(points, pools)
