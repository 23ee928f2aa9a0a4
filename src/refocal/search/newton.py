"""Minimisation of the log-loss: Newton's method with safeguards, for T alone and for (γ, T) together."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from refocal.search.problem import LogLoss, Problem
from refocal.search.solution import Solution, Status

MAX_STEPS = 100
# How far from the scale of the logits a temperature is looked for; on both sides probabilities have long saturated.
REACH = 1e6
# Close to γ = -1 the map loses its inverse and the log-loss has minima that gain nothing on other data.
GAMMA_BOUNDS = (-0.9, 100.0)
# Newton converges quadratically: after a relative step of this size the error is about that size squared.
SMALL_STEP = 1e-5
# A log-loss this small is that of separable data on its way to T = 0.
NO_LOSS = 1e-9
# Where to start in γ.
STARTS = (0.0, -0.85, -0.5, 1.0, 5.0)
# On how many rows they are followed, and how closely. The best of their ends and γ = 0 are followed on a share of the
# rows, and from the better one on all.
PART = 300
SHARE = 1 / 10
CLOSE_ENOUGH = 3e-2

MESSAGES: dict[Status, str] = {
    "converged": "the log-loss has a minimum here",
    "at a bound": (
        "the log-loss still falls at the end of the range. For T: every row is right (fit on more data, and on data "
        "the model was not trained on) or the labels have nothing to do with the logits (check their order). For γ: "
        f"the range is {GAMMA_BOUNDS[0]} to {GAMMA_BOUNDS[1]:g}"
    ),
    "not converged": f"no minimum after {MAX_STEPS} steps; try search='grid', and please report the data",
    "flat": "every row of logits is constant, so no temperature matters; T = 1 was kept",
}


def newton_temperature(problem: LogLoss) -> Solution:
    """The temperature of least log-loss; found once for each problem."""
    if "temperature" not in problem.memo:
        problem.memo["temperature"] = _newton_temperature(problem)
    found: Solution = problem.memo["temperature"]
    return found


def _newton_temperature(problem: LogLoss) -> Solution:
    """The loss is convex in 1/T, so a bracketed Newton method cannot miss its minimum."""
    scale = problem.typical_gap
    if scale == 0.0:
        return _solution(problem, 0.0, 1.0, problem.temperature_curvature(1.0)[0], "flat")
    ends = (1.0 / scale / REACH, REACH / scale)
    low, high = ends
    slope = _first_slope(problem)
    status: Status = "not converged"
    for _ in range(MAX_STEPS):
        value, first, second = problem.temperature_curvature(slope)
        if value < NO_LOSS:
            status = "at a bound"
            break
        target = slope - first / second if second > 0.0 else math.inf
        if abs(target - slope) <= SMALL_STEP * slope:  # the last step is taken unseen
            slope, value, status = target, value - 0.5 * first * first / second, "converged"
            break
        low, high = (slope, high) if first < 0.0 else (low, slope)
        if low >= ends[1] or high <= ends[0]:
            status = "at a bound"
            break
        # A step out of the bracket, or over more than a factor of ten, is not to be trusted.
        if not low < target < high or not 0.1 < target / slope < 10.0:
            target = min(10.0 * slope, high) if first < 0.0 else max(0.1 * slope, low)
            if target in (low, high) and target not in ends:
                target = math.sqrt(low * high)
        slope = target
    return _solution(problem, 0.0, 1.0 / slope, value, status)


def _first_slope(problem: LogLoss) -> float:
    """Where to begin in 1/T: the optimum of a part of the rows, or where that is no help the scale of the logits."""
    if problem.n_rows >= 2 * PART:
        found = newton_temperature(_share(problem))
        if found.status == "converged":
            return 1.0 / found.temperature
    return 1.0 / float(problem.typical_gap)


def newton(problem: LogLoss, *, fixed_gamma: float | None = None, fixed_temperature: float | None = None) -> Solution:
    """Least log-loss over (γ, T), or over one of them.

    The log-loss is not known to be convex in γ, so several starts are followed on a part of the rows and the best of
    their ends is followed on all. Should that end above temperature scaling's optimum (γ = 0), the search begins again
    from there: the result is never worse.
    """
    if fixed_gamma == 0.0 and fixed_temperature is None:
        return newton_temperature(problem)
    if fixed_temperature is None:
        base = newton_temperature(problem)
        if base.status == "flat":
            return base
        centre, without = base.temperature, base.value
    else:
        centre, without = fixed_temperature, problem.temperature_curvature(1.0 / fixed_temperature)[0]
    free = np.array([fixed_gamma is None, fixed_temperature is None])
    limit = problem.typical_gap * REACH

    def near(gamma: float) -> tuple[float, float]:
        # The focal map with γ is close to temperature scaling with 1/T = 0.64 γ + 0.9: undo it.
        return gamma, centre * (0.64 * gamma + 0.9 if free[1] and gamma else 1.0)

    if fixed_gamma is not None:
        found = _descend(problem, near(fixed_gamma), free, limit)
    else:
        part, share = problem.part(PART), _share(problem)
        ends = [_descend(part, near(gamma), free, limit, enough=CLOSE_ENOUGH) for gamma in STARTS]
        points = {round(end.gamma, 1): (end.gamma, end.temperature) for end in ends} | {0.0: near(0.0)}
        start = min(points.values(), key=lambda point: share.curvature(*point).value)
        # From γ = 0 as well: a few rows can lead all starts into a far minimum that is not the least.
        closer = [_descend(share, point, free, limit, enough=CLOSE_ENOUGH) for point in {start, near(0.0)}]
        best = min(closer, key=lambda end: end.value)
        found = _descend(problem, (best.gamma, best.temperature), free, limit)
        if not found.value <= without:
            found = _descend(problem, near(0.0), free, limit)
    return _solution(problem, found.gamma, found.temperature, found.value, found.status)


def _share(problem: LogLoss) -> Problem:
    return problem.part(max(PART, int(SHARE * problem.n_rows)))


def _descend(
    problem: LogLoss,
    start: tuple[float, float],
    free: NDArray[np.bool_],
    limit: float,
    *,
    enough: float = SMALL_STEP,
) -> Solution:
    """Damped Newton steps in (log(1+γ), log T), which keep γ > -1 and T > 0, until one is as small as `enough`."""
    bounds = np.log([[1.0 + GAMMA_BOUNDS[0], 1.0 + GAMMA_BOUNDS[1]], [limit / REACH**2, limit]])
    point = np.array([math.log1p(start[0]), math.log(start[1])])
    bounds[~free] = point[~free, None]
    point = np.clip(point, bounds[:, 0], bounds[:, 1])
    value, gradient, hessian = _in_logs(problem, point)
    status: Status = "not converged"
    rounding = 20.0 * problem.precision
    for _ in range(MAX_STEPS):
        stuck = ((point <= bounds[:, 0]) & (gradient > 0)) | ((point >= bounds[:, 1]) & (gradient < 0))
        step = _newton_step(gradient, hessian, free & ~stuck)
        gain = -float(gradient @ step)
        if float(np.abs(step).max()) <= enough:  # here too
            point, value = np.clip(point + step, bounds[:, 0], bounds[:, 1]), value - 0.5 * gain
            status = "at a bound" if bool((stuck & free).any()) else "converged"
            break
        # A gain below the rounding of the data cannot be seen in the value; the gradient still shows the way.
        highest = value if gain > rounding * max(1.0, value) else value + rounding
        for shrink in (1.0, 0.25, 0.05, 0.01, 1e-3):
            trial = np.clip(point + shrink * step, bounds[:, 0], bounds[:, 1])
            new = _in_logs(problem, trial)
            if new[0] < highest:
                point, (value, gradient, hessian) = trial, new
                break
        else:
            status = "at a bound" if bool((stuck & free).any()) else "converged"
            break
    return _solution(problem, math.expm1(point[0]), math.exp(point[1]), value, status)


def _newton_step(
    gradient: NDArray[np.float64], hessian: NDArray[np.float64], moving: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """A descent direction: Newton's, with the Hessian's eigenvalues made positive, at most a factor e² a step."""
    step = np.zeros(2)
    if not moving.any():
        return step
    curvature, axes = np.linalg.eigh(hessian[np.ix_(moving, moving)])
    curvature = np.maximum(np.abs(curvature), 1e-12)
    step[moving] = -axes @ ((axes.T @ gradient[moving]) / curvature)
    return step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-300))


def _in_logs(problem: LogLoss, point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Value, gradient and Hessian in (log(1+γ), log T) by the chain rule from (γ, 1/T)."""
    gamma, slope = math.expm1(point[0]), math.exp(-point[1])
    found = problem.curvature(gamma, 1.0 / slope)
    inner = np.array([1.0 + gamma, -slope])  # d(γ, 1/T) / d(log(1+γ), log T)
    bend = np.array([1.0 + gamma, slope])  # and the second derivatives
    hessian = found.hessian * np.outer(inner, inner) + np.diag(found.gradient * bend)
    return found.value, found.gradient * inner, hessian


def _solution(problem: LogLoss, gamma: float, temperature: float, value: float, status: Status) -> Solution:
    return Solution(gamma, temperature, value, status, MESSAGES[status], problem.passes)
