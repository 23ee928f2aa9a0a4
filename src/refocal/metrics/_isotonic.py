"""Isotonic regression of the outcome on the confidence, as bins: the pools of adjacent violators."""

from __future__ import annotations

from refocal._arrays import Flags, Vector
from refocal.metrics._bins import Bins, join_cells, rank, sum_ties


def isotonic_fit(confidence: Vector, correct: Vector | Flags, weight: Vector | None) -> Bins:
    """The pools of the isotonic regression; the share of correct ones rises strictly from pool to pool."""
    # The import is costly and few callers need it.
    from scipy.optimize import isotonic_regression

    # One point for each distinct value: equal confidences must get equal probabilities.
    points = sum_ties(rank(confidence, correct, weight))
    if points.weight.shape[0] == 1:
        return points
    pools = isotonic_regression(points.correct / points.weight, weights=points.weight).blocks[:-1]
    return join_cells(points, pools)
