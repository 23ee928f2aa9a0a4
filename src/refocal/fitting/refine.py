"""The best point of a grid on all rows, from what a sample of them shows."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np

from refocal._arrays import Vector
from refocal.engine.dataset import Dataset
from refocal.engine.scoring import FINE_BITS, POINTS, SEARCH_BITS, Scores, score_points
from refocal.fitting.grid import within
from refocal.fitting.objective import Objective
from refocal.fitting.solution import Surface

Index = tuple[int, ...]
Point = tuple[float, float]

# The number of best points that are measured with finer histograms.
CONTENDERS = 4
# The step in log T of the final search around the best point: a quarter of the automatic grid's.
FINE_STEP = 6.2e-3


class _Known:
    """A surface whose points are measured on all rows one after the other."""

    def __init__(self, dataset: Dataset, objective: Objective, surface: Surface) -> None:
        self.dataset, self.objective, self.surface = dataset, objective, surface
        self.log_loss, self.error = surface.log_loss.copy(), np.zeros_like(surface.value)
        self.known, self.fine = np.zeros((2, *surface.value.shape), dtype=bool)

    def measure(self, points: list[Index], bits: int) -> None:
        """Measure points on all rows."""
        at = tuple(np.array(points).T)
        pairs = list(zip(self.surface.gamma[at].tolist(), self.surface.temperature[at].tolist(), strict=True))
        found = score_points(self.dataset, pairs, self.objective.resolutions, bits)
        self.log_loss[at] = found.log_loss
        self.error[at] = found.ece if self.objective.of_rows is None else found.brier
        self.known[at] = True
        # Without a histogram the first measurement is already exact.
        self.fine[at] = bits == FINE_BITS or not self.objective.resolutions

    def score(self) -> Vector:
        """The objective of the known points, inf elsewhere."""
        score = np.full(self.known.shape, np.inf)
        score[self.known] = self.objective.score(self.log_loss[self.known], self.error[self.known])
        return score

    def ranked(self, nll_tolerance: float | None) -> list[Index]:
        """The known points within the tolerance, the best first; equal scores are decided by the log-loss."""
        allowed = np.zeros_like(self.known)
        allowed[self.known] = within(self.log_loss[self.known], nll_tolerance)
        order = np.lexsort((self.log_loss.ravel(), np.where(allowed, self.score(), np.inf).ravel()))
        return _indices(order[: int(allowed.sum())], self.known.shape)

    def least(self) -> Index:
        """The known point of the least log-loss."""
        return _indices([int(np.argmin(np.where(self.known, self.log_loss, np.inf)))], self.known.shape)[0]


def refine(
    dataset: Dataset, objective: Objective, surface: Surface, nll_tolerance: float | None
) -> tuple[Surface, Index]:
    """The surface of a sample with the points that matter measured on all rows, and the best of these.

    The points that the sample finds best come first; then the neighbours of what is best on all rows.

    These are the two best by score and the best by log-loss, until all of their neighbours are known: the chosen point
    is better than everything around it. The few best are measured once more, with finer histograms, before one is
    chosen.
    """
    seen = _Known(dataset, objective, surface)
    seen.measure(_first_points(surface, nll_tolerance), SEARCH_BITS)
    while True:
        ranked = seen.ranked(nll_tolerance)
        near = [point for point in _around(seen.known.shape, *ranked[:2], seen.least()) if not seen.known[point]]
        rough = [point for point in ranked[:CONTENDERS] if not seen.fine[point]]
        if near:
            seen.measure(near, SEARCH_BITS)
        elif rough:
            seen.measure(rough, FINE_BITS)
        else:
            break
    value = np.where(seen.known, seen.score(), surface.value)
    return Surface(surface.gamma, surface.temperature, seen.log_loss, value), ranked[0]


def polish(
    dataset: Dataset, objective: Objective, start: Point, optima: list[Point], steps: bool, nll_tolerance: float | None
) -> tuple[Point, float]:
    """The best of a point, of points that are known to be good and, with `steps`, of finer steps in T; and its score.

    All of them are measured on all rows.
    """
    points = list(dict.fromkeys([start, *optima]))
    scores = score_points(dataset, points, objective.resolutions, FINE_BITS)
    if steps:
        gamma, temperature = points[_best(objective, scores, nll_tolerance)[0]]
        near = [(gamma, temperature * math.exp(k * FINE_STEP)) for k in (-3, -2, -1, 1, 2, 3)]
        found = score_points(dataset, near, objective.resolutions, FINE_BITS)
        points += near
        scores = Scores(*(np.concatenate(pair) for pair in zip(scores, found, strict=True)))
    at, value = _best(objective, scores, nll_tolerance)
    return points[at], value


def _best(objective: Objective, scores: Scores, nll_tolerance: float | None) -> tuple[int, float]:
    """Which point is the best within the tolerance, equal scores being decided by the log-loss; and its score."""
    value = objective.score(scores.log_loss, scores.ece if objective.of_rows is None else scores.brier)
    allowed = np.where(within(scores.log_loss, nll_tolerance), value, np.inf)
    at = int(np.lexsort((scores.log_loss, allowed))[0])
    return at, float(value[at])


def _first_points(surface: Surface, nll_tolerance: float | None) -> list[Index]:
    """The sample's point of least log-loss, its best point for each γ, and further good points: one pass."""
    score = np.where(within(surface.log_loss, nll_tolerance), surface.value, np.inf)
    order = np.argsort(score, axis=None, kind="stable").tolist()
    of_gamma = {float(surface.gamma.flat[at]): at for at in reversed(order)}
    each = sorted(of_gamma.values(), key=order.index)[: POINTS // 2]
    wanted = [int(surface.log_loss.argmin()), *each, *order]
    allowed = dict.fromkeys(at for at in wanted if score.flat[at] < np.inf)
    return _indices(list(allowed)[:POINTS], score.shape)


def _indices(flat: Any, shape: tuple[int, ...]) -> list[Index]:
    return [tuple(int(i) for i in np.unravel_index(at, shape)) for at in flat]


def _around(shape: tuple[int, ...], *points: Index) -> list[Index]:
    """The points and their neighbours on the grid, each once."""
    found: dict[Index, None] = {}
    for point in points:
        for step in product((-1, 0, 1), repeat=len(shape)):
            near = tuple(i + d for i, d in zip(point, step, strict=True))
            if all(0 <= i < n for i, n in zip(near, shape, strict=True)):
                found[near] = None
    return list(found)
