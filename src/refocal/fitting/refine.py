"""The best point of a grid on all rows, from what a sample of them shows."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from refocal._arrays import Vector
from refocal.engine.dataset import Dataset
from refocal.engine.scoring import FINE_BITS, POINTS, SEARCH_BITS, score_points
from refocal.fitting.grid import by_score, within
from refocal.fitting.newton import FocalPoint, Free, optimum_near
from refocal.fitting.objective import Objective
from refocal.fitting.solution import Solution, Surface
from refocal.fitting.temperature import newton_temperature

Index = tuple[int, ...]
"""The position of a point on a grid."""

# The number of best points that are measured with finer histograms.
CONTENDERS = 4


def refine(
    dataset: Dataset, objective: Objective, surface: Surface, nll_tolerance: float | None
) -> tuple[Surface, Index]:
    """The surface of a sample with the points that matter measured on all rows, and the best of these.

    The points that the sample finds best come first; then the neighbours of the two best by score and of the best by
    log-loss on all rows, until all of these are measured: the chosen point is better than everything around it. The
    few best are measured once more, with finer histograms, before one is chosen.
    """
    shape = surface.value.shape
    log_loss = surface.log_loss.copy()
    value = surface.value.copy()
    error = np.zeros(shape)
    is_measured = np.zeros(shape, dtype=bool)
    is_fine = np.zeros(shape, dtype=bool)
    points = _first_points(surface, nll_tolerance)
    bits = SEARCH_BITS
    while points:
        index = tuple(np.array(points).T)
        pairs = list(zip(surface.gamma[index].tolist(), surface.temperature[index].tolist(), strict=True))
        log_loss[index], error[index] = score_points(dataset, pairs, objective.resolutions, bits)
        is_measured[index] = True
        is_fine[index] = bits == FINE_BITS or not objective.resolutions  # without a histogram it is exact
        measured = np.flatnonzero(is_measured)
        losses = log_loss[is_measured]
        value[is_measured] = objective.score(losses, error[is_measured])
        best = _indices(measured[by_score(losses, value[is_measured], nll_tolerance)], shape)
        (least,) = _indices(measured[[losses.argmin()]], shape)
        points = [point for point in _around(shape, *best[:2], least) if not is_measured[point]]
        bits = SEARCH_BITS
        if not points:
            points = [point for point in best[:CONTENDERS] if not is_fine[point]]
            bits = FINE_BITS
    return Surface(surface.gamma, surface.temperature, log_loss, value), best[0]


def polish(
    dataset: Dataset, objective: Objective, surface: Surface, chosen: Solution, nll_tolerance: float | None, free: Free
) -> Solution:
    """The best of the chosen point and of others that need not lie on the grid, all measured on all rows.

    These are the optima by log-loss and, where T is free, finer steps in T.
    """
    fine_step = 6.2e-3  # in log T: a quarter of the automatic grid's step
    points: list[tuple[float, float]] = [(chosen.gamma, chosen.temperature)]
    if free.temperature and 0.0 in surface.gamma:
        points.append((0.0, newton_temperature(dataset).temperature))
    if free.gamma:
        least = np.unravel_index(surface.log_loss.argmin(), surface.log_loss.shape)
        start = FocalPoint(float(surface.gamma[least]), float(surface.temperature[least]))
        points.append(optimum_near(dataset, start, free))
    points = list(dict.fromkeys(points))
    scores = score_points(dataset, points, objective.resolutions, FINE_BITS)
    best, value = _best(objective, scores, nll_tolerance)
    if free.temperature:
        gamma, temperature = points[best]
        beside = [(gamma, temperature * math.exp(k * fine_step)) for k in (-3, -2, -1, 1, 2, 3)]
        scores_beside = score_points(dataset, beside, objective.resolutions, FINE_BITS)
        points = points + beside
        scores = np.concatenate([scores, scores_beside], axis=1)
        best, value = _best(objective, scores, nll_tolerance)
    gamma, temperature = points[best]
    return replace(chosen, gamma=gamma, temperature=temperature, value=value, passes=dataset.passes)


def _best(objective: Objective, scores: Vector, nll_tolerance: float | None) -> tuple[int, float]:
    """Which point is the best within the tolerance, and its score; `scores` (2, points): log-losses and errors."""
    log_loss, error = scores
    value = objective.score(log_loss, error)
    best = int(by_score(log_loss, value, nll_tolerance)[0])
    return best, float(value[best])


def _first_points(surface: Surface, nll_tolerance: float | None) -> list[Index]:
    """The sample's point of least log-loss, its best point for each γ, and further good points: one pass."""
    score = np.where(within(surface.log_loss, nll_tolerance), surface.value, np.inf)
    order = np.argsort(score, axis=None, kind="stable").tolist()
    best_of_gamma = {float(surface.gamma.flat[i]): i for i in reversed(order)}  # the last to be assigned is the best
    best_first = sorted(best_of_gamma.values(), key=order.index)[: POINTS // 2]
    candidates = [int(surface.log_loss.argmin()), *best_first, *order]
    distinct = dict.fromkeys(i for i in candidates if score.flat[i] < np.inf)
    return _indices(list(distinct)[:POINTS], score.shape)


def _indices(flat: Any, shape: tuple[int, ...]) -> list[Index]:
    """The positions of points that are given by their flat indices."""
    return list(zip(*(axis.tolist() for axis in np.unravel_index(flat, shape)), strict=True))


def _around(shape: tuple[int, ...], *points: Index) -> list[Index]:
    """The points and their neighbours on the grid, each once."""
    neighbours: dict[Index, None] = {}
    for point in points:
        for step in product((-1, 0, 1), repeat=len(shape)):
            neighbour = tuple(i + d for i, d in zip(point, step, strict=True))
            if all(0 <= i < n for i, n in zip(neighbour, shape, strict=True)):
                neighbours[neighbour] = None
    return list(neighbours)
