"""Searches over given points: the full grid of (γ, T), and the points of a line."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from refocal._arrays import Array, Flags, Indices, Vector, to_numpy
from refocal.engine.block import Block
from refocal.engine.cache import CacheKey
from refocal.engine.scoring import mean_error, measured_on
from refocal.fitting.objective import Objective, measure
from refocal.fitting.solution import Surface
from refocal.maps.softmax import focal_temperature


def scan_grid(
    block: Block,
    objective: Objective,
    gammas: Vector,
    temperatures: Vector,
    nll_tolerance: float | None = None,
    progress: Callable[[float], None] | None = None,
    *,
    each_gamma: bool = False,
) -> Surface:
    """Log-loss and score on the whole grid; exact at the best point within the tolerance, or at that of each γ.

    The probability of each row that the error is measured on (`measured_on`) is smooth in log T, so it is computed at a
    few Chebyshev nodes and interpolated to the grid. No calibration error is smaller than |mean probability - how often
    it happened|, which is cheap to compute everywhere; only where that does not rule a point out is its error
    interpolated, and only where that does not either, computed exactly.
    """
    gamma, temperature = np.meshgrid(gammas, temperatures, indexing="ij")
    if objective.metric is not None:
        flat = scan_points(block, objective, gamma.ravel(), temperature.ravel())
        return Surface(gamma, temperature, flat.log_loss.reshape(gamma.shape), flat.value.reshape(gamma.shape))
    scan = _Scan(block, objective, gammas, temperatures, progress)
    if each_gamma:
        for i in range(len(gammas)):
            is_candidate = np.zeros(scan.level.shape, dtype=bool)
            is_candidate[i] = True
            scan.settle(nll_tolerance, is_candidate)
    else:
        scan.settle(nll_tolerance, np.ones(scan.level.shape, dtype=bool))
    scan.fill()
    return Surface(gamma, temperature, scan.log_loss, objective.score(scan.log_loss, scan.error))


class _NodeTables(NamedTuple):
    """What is computed at the nodes (γ, node), and kept with the block for other searches over the same grid."""

    log_loss: Vector
    mean_probability: Vector
    mean_error: Vector
    """Of objectives that are means over the rows."""
    probabilities: Vector
    """Of all rows, (γ, node, N): what the ECE is measured on."""
    happened: Flags
    """Of all rows, (N,)."""


@dataclass(frozen=True)
class _TableKey(CacheKey[_NodeTables]):
    """Under what the tables of a block are cached."""

    gammas: bytes
    temperatures: bytes
    of_rows: Callable[..., Vector] | None


class Known(IntEnum):
    """How well the error of a point is known."""

    BOUND = 0
    """That it is no smaller than a bound."""
    INTERPOLATED = 1
    EXACT = 2


class _Scan:
    """A partly evaluated grid: log-loss and error of each point (γ, T), and how well they are known."""

    INTERPOLATED_TOGETHER = 64
    """The number of points whose errors are interpolated by one matrix product."""

    def __init__(
        self,
        block: Block,
        objective: Objective,
        gammas: Vector,
        temperatures: Vector,
        progress: Callable[[float], None] | None,
    ) -> None:
        self.block = block
        self.objective = objective
        self.gammas = gammas
        self.temperatures = temperatures
        nodes, self.weights = interpolation(np.log(temperatures))
        self._on_nodes = len(nodes) == len(temperatures)
        key = _TableKey(gammas.tobytes(), temperatures.tobytes(), objective.of_rows)
        tables = block.cache.get(key)
        if tables is None:
            tables = block.cache.keep(key, self._at_nodes(nodes, progress))
        self.happened = tables.happened
        self._probabilities = tables.probabilities
        # The log-loss grows like 1/T towards T = 0: its logarithm is the smoother curve.
        self.log_loss: Vector = np.exp(np.log(np.maximum(tables.log_loss, 1e-300)) @ self.weights.T)
        mean_happened = block.average(self.happened.astype(np.float64))
        self.error: Vector = np.abs(tables.mean_probability @ self.weights.T - mean_happened)
        self.bound = self.error.copy()
        self.level = np.full(self.log_loss.shape, Known.BOUND)
        if not objective.resolutions:
            self.error = tables.mean_error @ self.weights.T
            self.level[:] = Known.EXACT if self._on_nodes else Known.INTERPOLATED
        elif self._on_nodes:
            self.interpolate(np.arange(self.level.size))

    def _at_nodes(self, nodes: Vector, progress: Callable[[float], None] | None) -> _NodeTables:
        """A pass over the rows for each node of log T."""
        block = self.block
        of_rows = self.objective.of_rows
        shape = (len(self.gammas), len(nodes))
        log_loss = np.zeros(shape)
        mean_probability = np.zeros(shape)
        mean_error = np.zeros(shape)
        probabilities = np.empty((*shape, block.n_rows))
        gammas = tuple(self.gammas.tolist())
        correct = to_numpy(block.tops.correct)
        # Condensed rows serve temperatures of up to six units; 2³ bins an octave give four or five digits.
        rows = block if self._on_nodes else block.condensed(float(self.temperatures.max()) / 6.0, fine=3)
        for k, node in enumerate(nodes):
            by_gamma = rows.predictions(gammas, math.exp(node), rough=not self._on_nodes)
            for i, predictions in enumerate(by_gamma):
                probabilities[i, k], happened = measured_on(predictions, correct, block)
                log_loss[i, k] = -block.average(predictions.label_log_p)
                mean_probability[i, k] = block.average(probabilities[i, k])
                if of_rows is not None:
                    mean_error[i, k] = block.average(of_rows(predictions, block))
            if progress is not None:  # the evaluations that follow are few
                progress((k + 1) / len(nodes))
        return _NodeTables(log_loss, mean_probability, mean_error, probabilities, happened)

    def settle(self, nll_tolerance: float | None, is_candidate: Flags) -> None:
        """Evaluate candidates more exactly until no other can be the best within the tolerance.

        The points that may be the best come in the order of their scores. While the first of them has only a bound,
        errors are interpolated; then a few are measured exactly, which also shows how wrong an interpolation may be.
        """
        exact_together = 3
        interpolation_error = 0.0  # the largest so far, of a score
        points = self._undecided(nll_tolerance, is_candidate, margin=0.0)
        while len(points) > 0:
            if self.level.flat[points[0]] == Known.BOUND:
                first = points[: self.INTERPOLATED_TOGETHER]
                self.interpolate(first[self.level.flat[first] == Known.BOUND])
            else:
                first = points[:exact_together]
                for point in first[self.level.flat[first] == Known.INTERPOLATED]:
                    change = self._measure(point)
                    interpolation_error = max(interpolation_error, abs(change))
            # The score of another point may be too high by one error, and that of the best too low by another.
            points = self._undecided(nll_tolerance, is_candidate, margin=2.0 * interpolation_error)

    def _undecided(self, nll_tolerance: float | None, is_candidate: Flags, margin: float) -> Indices:
        """The flat indices of candidates that may be the best and are not known exactly, by rising score.

        A candidate may be the best if its score exceeds the lowest exact one by no more than the margin.
        """
        is_allowed = is_candidate & within(self.log_loss, nll_tolerance)
        score = np.where(is_allowed, self._score(), np.inf).ravel()
        is_exact = self.level.ravel() == Known.EXACT
        lowest = np.min(score[is_exact], initial=np.inf)
        may_be_best = (score <= lowest + margin) & (score < np.inf)
        undecided = np.flatnonzero(~is_exact & may_be_best)
        return undecided[np.argsort(score[undecided], kind="stable")]

    def _measure(self, point: int) -> float:
        """Measure one point exactly, by its flat index; the change of its score is returned."""
        i, j = np.unravel_index(point, self.level.shape)
        interpolated = self._score()[i, j]
        gamma = float(self.gammas[i])
        temperature = float(self.temperatures[j])
        self.log_loss[i, j], self.error[i, j] = measure_point(self.block, self.objective, gamma, temperature)
        self.level[i, j] = Known.EXACT
        return float(self._score()[i, j] - interpolated)

    def _score(self) -> Vector:
        """The scores of all points, as far as their log-losses and errors are known."""
        return self.objective.score(self.log_loss, self.error)

    def interpolate(self, points: Indices) -> None:
        """Errors of points, given by their flat indices, from what is known at the nodes."""
        resolutions = self.objective.resolutions
        if not resolutions:  # errors are known at all points
            return
        lowest = 1.0 / self.block.n_classes if self.block.n_classes > 2 else 0.0
        rows, columns = np.unravel_index(points, self.level.shape)
        for i in np.unique(rows):
            of_gamma = columns[rows == i]
            for first in range(0, len(of_gamma), self.INTERPOLATED_TOGETHER):
                together = of_gamma[first : first + self.INTERPOLATED_TOGETHER]
                p = np.clip(_rounded(self.weights[together] @ self._probabilities[i]), lowest, 1.0)
                errors = [mean_error(row, self.happened, self.block.weight, resolutions) for row in p]
                self.error[i, together] = errors
            self.level[i, of_gamma] = Known.EXACT if self._on_nodes else Known.INTERPOLATED

    def fill(self) -> None:
        """Errors of the points that were ruled out: the bound plus its shortfall, interpolated in log T.

        Every sixth of them is evaluated, for the shape of the surface.
        """
        for i, level in enumerate(self.level):
            (ruled_out,) = np.nonzero(level == Known.BOUND)
            if len(ruled_out) > 0:
                self.interpolate(i * len(level) + np.union1d(ruled_out[::6], ruled_out[-1:]))
        log_t = np.log(self.temperatures)
        for error, bound, known in zip(self.error, self.bound, self.level > Known.BOUND, strict=True):
            error[~known] = bound[~known] + np.interp(log_t[~known], log_t[known], (error - bound)[known])


def scan_points(block: Block, objective: Objective, gammas: Vector, temperatures: Vector) -> Surface:
    """Log-loss and score at each of the given points."""
    pairs = zip(gammas.tolist(), temperatures.tolist(), strict=True)
    log_loss, error = np.array([measure_point(block, objective, gamma, temperature) for gamma, temperature in pairs]).T
    return Surface(gammas, temperatures, log_loss, objective.score(log_loss, error))


def measure_point(block: Block, objective: Objective, gamma: float, temperature: float) -> tuple[float, float]:
    """Log-loss and error of one point."""
    (predictions,) = block.predictions((gamma,), temperature, there=True)
    error = 0.0
    if objective.metric is not None:
        p = np.exp(to_numpy(focal_temperature(block.logits, gamma, temperature)))
        error = measure(objective.metric, objective.name, to_numpy(block.labels), p, block.weight)
    elif objective.of_rows is not None:
        error = block.average(objective.of_rows(predictions, block))
    elif objective.resolutions:
        p, happened = measured_on(predictions, block.tops.correct, block)
        error = mean_error(_rounded(p), happened, block.weight, objective.resolutions)
    return -block.average(predictions.label_log_p), error


def _rounded(p: Array) -> Array:
    """Probabilities without last digits, in which equal rows may differ: an error jumps where ties part."""
    return np.round(p, 12) if isinstance(p, np.ndarray) else p


def by_score(log_loss: Vector, score: Vector, nll_tolerance: float | None) -> Indices:
    """The points whose log-loss is within the tolerance of the best one, by rising score; equal ones by log-loss.

    >>> by_score(np.array([0.5, 0.3, 0.4]), np.array([0.1, 0.1, 0.2]), nll_tolerance=None)
    array([1, 0, 2])
    """
    allowed = within(log_loss, nll_tolerance)
    order = np.lexsort((log_loss.ravel(), np.where(allowed, score, np.inf).ravel()))
    return order[: np.count_nonzero(allowed)]


def within(log_loss: Vector, nll_tolerance: float | None) -> Flags:
    """Which points' log-loss is within the tolerance of the best one."""
    limit = np.inf if nll_tolerance is None else (1.0 + nll_tolerance) * np.min(log_loss)
    return np.asarray(log_loss <= limit)


def interpolation(log_temperatures: Vector) -> tuple[Vector, Vector]:
    """Chebyshev nodes for a range of log T, and the matrix (temperatures, nodes) from values there to all temperatures.

    By the barycentric formula (Berrut & Trefethen 2004, SIAM Review 46:501), of nodes of the first kind. With no more
    temperatures than nodes, the temperatures are the nodes.
    """
    low = float(log_temperatures.min())
    high = float(log_temperatures.max())
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
