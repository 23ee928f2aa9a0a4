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
from refocal.fitting.newton import optimum_near
from refocal.fitting.objective import Objective
from refocal.fitting.solution import Solution, Surface
from refocal.fitting.temperature import newton_temperature

Index = tuple[int, ...]

# The number of best points that are measured with finer histograms.
CONTENDERS = 4
# The step in log T of the final search around the best point: a quarter of the automatic grid's.
FINE_STEP = 6.2e-3


def refine(
    dataset: Dataset, objective: Objective, surface: Surface, nll_tolerance: float | None
) -> tuple[Surface, Index]:
    """The surface of a sample with the points that matter measured on all rows, and the best of these.

    The points that the sample finds best come first; then the neighbours of what is best on all rows.

    These are the two best by score and the best by log-loss, until all of their neighbours are known: the chosen point
    is better than everything around it. The few best are measured once more, with finer histograms, before one is
    chosen.
    """
    shape = surface.value.shape
    log_loss, value, error = surface.log_loss.copy(), surface.value.copy(), np.zeros(shape)
    known, fine = np.zeros((2, *shape), dtype=bool)
    points, bits = _first_points(surface, nll_tolerance), SEARCH_BITS
    while points:
        at = tuple(np.array(points).T)
        pairs = list(zip(surface.gamma[at].tolist(), surface.temperature[at].tolist(), strict=True))
        log_loss[at], error[at] = score_points(dataset, pairs, objective.resolutions, bits)
        known[at] = True
        fine[at] = bits == FINE_BITS or not objective.resolutions  # without a histogram a measurement is exact
        measured, losses = np.flatnonzero(known), log_loss[known]
        value[known] = objective.score(losses, error[known])
        best = _indices(measured[by_score(losses, value[known], nll_tolerance)], shape)
        (least,) = _indices(measured[[losses.argmin()]], shape)
        points, bits = [point for point in _around(shape, *best[:2], least) if not known[point]], SEARCH_BITS
        if not points:
            points, bits = [point for point in best[:CONTENDERS] if not fine[point]], FINE_BITS
    return Surface(surface.gamma, surface.temperature, log_loss, value), best[0]


def polish(
    dataset: Dataset,
    objective: Objective,
    surface: Surface,
    chosen: Solution,
    nll_tolerance: float | None,
    moves: tuple[bool, bool],
) -> Solution:
    """The chosen point, or a better one between the points of the grid; `moves`: whether γ and T are free.

    These are the optima by log-loss and, where T is free, finer steps in T. All of them are measured on all rows.
    """
    points = [(chosen.gamma, chosen.temperature)]
    if moves[1] and 0.0 in surface.gamma:
        points.append((0.0, newton_temperature(dataset).temperature))
    if moves[0]:
        least = np.unravel_index(surface.log_loss.argmin(), surface.log_loss.shape)
        points.append(optimum_near(dataset, (float(surface.gamma[least]), float(surface.temperature[least])), moves))
    points = list(dict.fromkeys(points))
    scores = score_points(dataset, points, objective.resolutions, FINE_BITS)
    at, value = _best(objective, scores, nll_tolerance)
    if moves[1]:
        gamma, temperature = points[at]
        near = [(gamma, temperature * math.exp(k * FINE_STEP)) for k in (-3, -2, -1, 1, 2, 3)]
        found = score_points(dataset, near, objective.resolutions, FINE_BITS)
        points, scores = points + near, np.concatenate([scores, found], axis=1)
        at, value = _best(objective, scores, nll_tolerance)
    gamma, temperature = points[at]
    return replace(chosen, gamma=gamma, temperature=temperature, value=value, passes=dataset.passes)


def _best(objective: Objective, scores: Vector, nll_tolerance: float | None) -> tuple[int, float]:
    """Which point is the best within the tolerance, and its score."""
    value = objective.score(*scores)
    at = int(by_score(scores[0], value, nll_tolerance)[0])
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
    return list(zip(*(axis.tolist() for axis in np.unravel_index(flat, shape)), strict=True))


def _around(shape: tuple[int, ...], *points: Index) -> list[Index]:
    """The points and their neighbours on the grid, each once."""
    found: dict[Index, None] = {}
    for point in points:
        for step in product((-1, 0, 1), repeat=len(shape)):
            near = tuple(i + d for i, d in zip(point, step, strict=True))
            if all(0 <= i < n for i, n in zip(near, shape, strict=True)):
                found[near] = None
    return list(found)
