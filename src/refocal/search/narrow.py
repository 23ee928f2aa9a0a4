"""From a surface that a sample has shown to the best of its points on all rows."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from refocal import metrics
from refocal.errors import UnsupportedError
from refocal.search.grid import best_index, within
from refocal.search.objective import Objective
from refocal.search.solution import Surface
from refocal.search.streamed import POINTS, StreamedProblem

Vector = NDArray[np.float64]
Index = tuple[int, ...]


def look_at_all_rows(
    problem: StreamedProblem, objective: Objective, surface: Surface, nll_tolerance: float | None
) -> tuple[Surface, Index]:
    """The surface with the points that matter measured on all rows, and the best of these.

    The points that the sample finds best come first; then the neighbours of what is best on all rows, by score and by
    log-loss, until all of them are known: the chosen point is better than everything around it.
    """
    log_loss, error = surface.log_loss.copy(), np.zeros_like(surface.value)
    known = np.zeros(surface.value.shape, dtype=bool)
    wanted = _first_points(surface, nll_tolerance)
    while wanted:
        at = tuple(np.array(wanted).T)
        points = list(zip(surface.gamma[at].tolist(), surface.temperature[at].tolist(), strict=True))
        found = problem.scores(points, objective.resolutions)
        log_loss[at], error[at] = found.log_loss, found.brier if objective.metric is not None else found.ece
        known[at] = True
        seen = Surface(
            surface.gamma[known],
            surface.temperature[known],
            log_loss[known],
            objective.score(log_loss[known], error[known]),
        )
        where = np.argwhere(known)
        best = tuple(int(i) for i in where[best_index(seen, nll_tolerance)[0]])
        least = tuple(int(i) for i in where[int(np.argmin(seen.log_loss))])
        wanted = [point for point in _around(known.shape, best, least) if not known[point]]
    value = surface.value.copy()
    value[known] = seen.value
    return Surface(surface.gamma, surface.temperature, np.where(known, log_loss, surface.log_loss), value), best


def check_mergeable(objective: Objective) -> None:
    """Complain about an objective that is no sum over blocks."""
    if objective.metric is not None and objective.metric is not metrics.brier_score:
        raise UnsupportedError(
            f"The objective {objective.name!r} needs all rows in memory. 'nll', 'ece', 'auto' and 'brier_score' do not."
        )


def _first_points(surface: Surface, nll_tolerance: float | None) -> list[Index]:
    """What the sample finds best, and its least log-loss: one walk."""
    score = np.where(within(surface.log_loss, nll_tolerance), surface.value, np.inf).ravel()
    order = np.argsort(score, kind="stable")[: POINTS - 1]
    chosen = dict.fromkeys([int(surface.log_loss.argmin()), *(int(i) for i in order if score[i] < np.inf)])
    return [tuple(int(i) for i in np.unravel_index(at, surface.value.shape)) for at in chosen]


def _around(shape: tuple[int, ...], *points: Index) -> list[Index]:
    """The points and their neighbours on the grid, each once."""
    found: dict[Index, None] = {}
    for point in points:
        for step in product((-1, 0, 1), repeat=len(shape)):
            near = tuple(i + d for i, d in zip(point, step, strict=True))
            if all(0 <= i < n for i, n in zip(near, shape, strict=True)):
                found[near] = None
    return list(found)
