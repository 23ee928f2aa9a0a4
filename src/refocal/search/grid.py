"""Searches over given points: the full grid of (γ, T), and the points of a line."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from refocal.search.objective import Objective
from refocal.search.problem import Predictions, Problem
from refocal.search.solution import Surface

Vector = NDArray[np.float64]

# At most so many confidences are held at once, in numbers of float64.
TABLE = 40_000_000
# So many interpolated ones at a time: a product of matrices that stays in the cache.
GROUP = 200_000
# Exact evaluations between two looks at what the interpolation may have hidden.
BATCH = 24


def scan_grid(
    problem: Problem,
    objective: Objective,
    gammas: Vector,
    temperatures: Vector,
    progress: Callable[[float], None] | None = None,
) -> Surface:
    """Log-loss and score on the whole grid.

    Each row's confidence is smooth in log T, so it is computed at a few Chebyshev nodes and interpolated to the
    grid. Every point that could be the best, given the largest interpolation error seen, is then computed exactly;
    the score of the winner is exact, the others' are good to that error.
    """
    if objective.metric is not None:
        return _scan_exactly(problem, objective, gammas, temperatures)
    nodes, weights = _interpolation(np.log(temperatures))
    log_loss = np.empty((len(gammas), len(temperatures)))
    error = np.zeros_like(log_loss)
    group = max(1, TABLE // (len(nodes) * problem.n_rows))
    for first in range(0, len(gammas), group):
        some = tuple(float(g) for g in gammas[first : first + group])
        tables = []
        for node in nodes:
            tables.append(problem.predictions(some, math.exp(node)))
            if progress is not None:  # the exact evaluations that follow are few
                progress((first + len(some) * len(tables) / len(nodes)) / len(gammas))
        for i in range(len(some)):
            at_nodes = [table[i] for table in tables]
            log_loss[first + i], error[first + i] = _along_temperature(problem, objective, at_nodes, weights)
    if len(nodes) < len(temperatures):
        _refine(problem, objective, gammas, temperatures, log_loss, error)
    gamma, temperature = np.meshgrid(gammas, temperatures, indexing="ij")
    return Surface(gamma, temperature, log_loss, objective.score(log_loss, error))


def scan_points(problem: Problem, objective: Objective, gammas: Vector, temperatures: Vector) -> Surface:
    """Log-loss and score at each of the given points."""
    found = [evaluate(problem, objective, float(g), float(t)) for g, t in zip(gammas, temperatures, strict=True)]
    log_loss, error = np.array(found).T
    return Surface(gammas, temperatures, log_loss, objective.score(log_loss, error))


def evaluate(problem: Problem, objective: Objective, gamma: float, temperature: float) -> tuple[float, float]:
    """Log-loss and error of one point."""
    (found,) = problem.predictions((gamma,), temperature)
    if objective.metric is not None:
        return _log_loss(problem, found), problem.measure(objective.metric, gamma, temperature)
    return _log_loss(problem, found), _error(problem, objective, found.confidence)


def best_index(surface: Surface, nll_tolerance: float | None) -> tuple[int, ...]:
    """Where the score is smallest, among the points whose log-loss is within the tolerance of the best one."""
    score = surface.value
    if nll_tolerance is not None:
        limit = (1.0 + nll_tolerance) * np.min(surface.log_loss)
        score = np.where(surface.log_loss <= limit, score, np.inf)
    # Equal scores are decided by the log-loss.
    order = np.lexsort((surface.log_loss.ravel(), score.ravel()))
    return tuple(int(i) for i in np.unravel_index(order[0], score.shape))


def _scan_exactly(problem: Problem, objective: Objective, gammas: Vector, temperatures: Vector) -> Surface:
    gamma, temperature = np.meshgrid(gammas, temperatures, indexing="ij")
    flat = scan_points(problem, objective, gamma.ravel(), temperature.ravel())
    return Surface(gamma, temperature, flat.log_loss.reshape(gamma.shape), flat.value.reshape(gamma.shape))


def _along_temperature(
    problem: Problem, objective: Objective, at_nodes: list[Predictions], weights: Vector
) -> tuple[Vector, Vector]:
    losses = np.array([_log_loss(problem, found) for found in at_nodes])
    # The log-loss grows like 1/T towards T = 0: its logarithm is the smoother curve.
    log_loss = np.exp(weights @ np.log(np.maximum(losses, 1e-300)))
    if objective.error is None:
        return log_loss, np.zeros_like(log_loss)
    confidence = np.stack([found.confidence for found in at_nodes])
    lowest = 1.0 / problem.logits.shape[-1]
    group = max(1, GROUP // problem.n_rows)
    error = [
        _error(problem, objective, row)
        for first in range(0, len(weights), group)
        for row in np.clip(weights[first : first + group] @ confidence, lowest, 1.0)
    ]
    return log_loss, np.array(error)


def _refine(
    problem: Problem, objective: Objective, gammas: Vector, temperatures: Vector, log_loss: Vector, error: Vector
) -> None:
    """Replace interpolated values by exact ones until no other point can be the best."""
    exact = np.zeros(log_loss.shape, dtype=bool)
    slack = 0.0
    while True:
        score = objective.score(log_loss, error)
        best = np.min(score[exact]) if exact.any() else np.inf
        open_points = np.flatnonzero(~exact & (score <= best + 2.0 * slack))
        if len(open_points) == 0:
            return
        for flat in open_points[np.argsort(score.ravel()[open_points])][:BATCH]:
            i, j = np.unravel_index(flat, log_loss.shape)
            before = score[i, j]
            log_loss[i, j], error[i, j] = evaluate(problem, objective, float(gammas[i]), float(temperatures[j]))
            exact[i, j] = True
            slack = max(slack, abs(float(objective.score(log_loss, error)[i, j] - before)))


def _interpolation(log_temperatures: Vector) -> tuple[Vector, Vector]:
    """Chebyshev nodes for a range of log T, and the matrix from values there to values at the temperatures."""
    low, high = float(log_temperatures.min()), float(log_temperatures.max())
    n_nodes = 12 + math.ceil(6.0 * (high - low))
    if len(log_temperatures) <= n_nodes:
        return log_temperatures, np.eye(len(log_temperatures))
    angles = (2.0 * np.arange(n_nodes) + 1.0) * np.pi / (2.0 * n_nodes)
    nodes = 0.5 * (low + high) + 0.5 * (high - low) * np.cos(angles)
    barycentric = (-1.0) ** np.arange(n_nodes) * np.sin(angles)
    distance = log_temperatures[:, None] - nodes
    hit = distance == 0.0
    terms = barycentric / np.where(hit, 1.0, distance)
    weights = np.where(hit.any(axis=1, keepdims=True), hit, terms / terms.sum(axis=1, keepdims=True))
    return nodes, weights.astype(np.float64)


def _log_loss(problem: Problem, found: Predictions) -> float:
    return -problem.mean(found.label_log_p)


def _error(problem: Problem, objective: Objective, confidence: Vector) -> float:
    return 0.0 if objective.error is None else objective.error(confidence, problem.correct, problem.weight)
