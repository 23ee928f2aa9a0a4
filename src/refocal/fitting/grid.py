"""Searches over given points: the full grid of (γ, T), and the points of a line."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from refocal._arrays import Flags, Indices, Vector, to_numpy
from refocal.engine.block import Block
from refocal.engine.dataset import COARSE_BINS
from refocal.engine.scoring import mean_error, measured_on
from refocal.fitting.objective import Objective
from refocal.fitting.solution import Surface
from refocal.maps.softmax import focal_temperature

# Points evaluated together: by interpolation, and exactly.
INTERPOLATED_TOGETHER, EXACT_TOGETHER = 64, 3
# Every STEP-th of the points that were ruled out is still evaluated, for the shape of the surface.
STEP = 6


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
    every = np.ones(scan.level.shape, dtype=bool)
    for among in every * np.eye(len(gammas), dtype=bool)[:, :, None] if each_gamma else [every]:
        scan.settle(nll_tolerance, among)
    # Errors of the points that were ruled out: the bound plus its typical shortfall at other temperatures.
    for i, level in enumerate(scan.level):
        (ruled_out,) = np.nonzero(level == scan.BOUND)
        if len(ruled_out) > 0:
            scan.interpolate(i * len(level) + np.union1d(ruled_out[::STEP], ruled_out[-1:]))
    at = np.log(temperatures)
    for error, low, seen in zip(scan.error, scan.bound, scan.level > scan.BOUND, strict=True):
        error[~seen] = low[~seen] + np.interp(at[~seen], at[seen], (error - low)[seen])
    return Surface(gamma, temperature, scan.log_loss, objective.score(scan.log_loss, scan.error))


class _Scan:
    """A partly evaluated grid: log-loss and error of each point, and how well they are known."""

    BOUND, INTERPOLATED, EXACT = range(3)

    def __init__(
        self,
        block: Block,
        objective: Objective,
        gammas: Vector,
        temperatures: Vector,
        progress: Callable[[float], None] | None,
    ) -> None:
        self.block, self.objective = block, objective
        self.gammas, self.temperatures = gammas, temperatures
        nodes, self.weights = interpolation(np.log(temperatures))
        self._on_nodes = len(nodes) == len(temperatures)
        known = (gammas.tobytes(), temperatures.tobytes(), objective.of_rows)
        if known not in block.memo:
            # At the nodes for each γ: log-loss, mean probability and mean error; and the probabilities of all rows.
            shape, some, correct = (len(gammas), len(nodes)), tuple(gammas.tolist()), to_numpy(block.tops.correct)
            (losses, means, errors), tables = np.zeros((3, *shape)), np.empty((*shape, block.n_rows))
            rows = block if self._on_nodes else block.condensed(float(temperatures.max()) / 6.0, COARSE_BINS)
            for k, node in enumerate(nodes):
                for i, found in enumerate(rows.predictions(some, math.exp(node), rough=not self._on_nodes)):
                    tables[i, k], happened = measured_on(found, correct, block)
                    losses[i, k], means[i, k] = -block.average(found.label_log_p), block.average(tables[i, k])
                    if objective.of_rows is not None:
                        errors[i, k] = block.average(objective.of_rows(found, block))
                if progress is not None:  # the evaluations that follow are few
                    progress((k + 1) / len(nodes))
            block.memo[known] = losses, means, errors, tables, happened
        losses, means, errors, self._tables, self.happened = block.memo[known]
        # The log-loss grows like 1/T towards T = 0: its logarithm is the smoother curve.
        self.log_loss: Vector = np.exp(np.log(np.maximum(losses, 1e-300)) @ self.weights.T)
        self.error: Vector = np.abs(means @ self.weights.T - block.average(self.happened.astype(np.float64)))
        self.bound = self.error.copy()
        self.level = np.full(self.log_loss.shape, self.BOUND)
        if not objective.resolutions:
            self.error = errors @ self.weights.T
            self.level[:] = self.EXACT if self._on_nodes else self.INTERPOLATED
        elif self._on_nodes:
            self.interpolate(np.arange(self.level.size))

    def settle(self, nll_tolerance: float | None, among: Flags) -> None:
        """Evaluate points more exactly until no other can be the best within the tolerance."""
        slack = 0.0
        while True:
            known = self.objective.score(self.log_loss, self.error)
            score = np.where(among & within(self.log_loss, nll_tolerance), known, np.inf).ravel()
            level = self.level.ravel()
            best = np.min(score[level == self.EXACT], initial=np.inf)
            unsure = np.flatnonzero((level < self.EXACT) & (score <= best + 2.0 * slack) & (score < np.inf))
            if len(unsure) == 0:
                break
            order = unsure[np.argsort(score[unsure], kind="stable")]
            if level[order[0]] == self.BOUND:
                self.interpolate(order[:INTERPOLATED_TOGETHER][level[order[:INTERPOLATED_TOGETHER]] == self.BOUND])
                continue
            for at in order[:EXACT_TOGETHER][level[order[:EXACT_TOGETHER]] == self.INTERPOLATED]:
                i, j = np.unravel_index(at, self.level.shape)
                before = self.objective.score(self.log_loss, self.error)[i, j]
                point = float(self.gammas[i]), float(self.temperatures[j])
                self.log_loss[i, j], self.error[i, j] = measure_point(self.block, self.objective, *point)
                self.level[i, j] = self.EXACT
                slack = max(slack, abs(float(self.objective.score(self.log_loss, self.error)[i, j] - before)))

    def interpolate(self, points: Indices) -> None:
        """Errors of points, given by their flat indices, from what is known at the nodes."""
        resolutions = self.objective.resolutions
        if not resolutions:  # errors are known at all points
            return
        lowest = 1.0 / self.block.n_classes if self.block.n_classes > 2 else 0.0
        rows, columns = np.unravel_index(points, self.level.shape)
        for i in np.unique(rows):
            at = columns[rows == i]
            for first in range(0, len(at), INTERPOLATED_TOGETHER):
                some = at[first : first + INTERPOLATED_TOGETHER]
                # A matrix product may leave equal rows apart in the last digit, and an error jumps where ties part.
                p = np.clip(np.round(self.weights[some] @ self._tables[i], 12), lowest, 1.0)
                self.error[i, some] = [mean_error(row, self.happened, self.block.weight, resolutions) for row in p]
            self.level[i, at] = self.EXACT if self._on_nodes else self.INTERPOLATED


def scan_points(block: Block, objective: Objective, gammas: Vector, temperatures: Vector) -> Surface:
    """Log-loss and score at each of the given points."""
    found = [measure_point(block, objective, float(g), float(t)) for g, t in zip(gammas, temperatures, strict=True)]
    log_loss, error = np.array(found).T
    return Surface(gammas, temperatures, log_loss, objective.score(log_loss, error))


def measure_point(block: Block, objective: Objective, gamma: float, temperature: float) -> tuple[float, float]:
    """Log-loss and error of one point."""
    (found,) = block.predictions((gamma,), temperature, there=True)
    error = 0.0
    if objective.metric is not None:
        p = np.exp(to_numpy(focal_temperature(block.logits, gamma, temperature)))
        weights = {} if block.weight is None else {"sample_weight": block.weight}
        error = float(objective.metric(to_numpy(block.labels), p, **weights))
    elif objective.of_rows is not None:
        error = block.average(objective.of_rows(found, block))
    elif objective.resolutions:
        error = mean_error(*measured_on(found, block.tops.correct, block), block.weight, objective.resolutions)
    return -block.average(found.label_log_p), error


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
