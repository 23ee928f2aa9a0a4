"""The (γ, T) of least log-loss: Newton's method from several starts.

The search moves in u = (log(1+γ), log T), which keeps γ > -1 and T > 0. The log-loss is not convex in γ and may have
several minima: each start leads to one of them, and the lowest is the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from refocal.engine.block import Block
from refocal.engine.dataset import Dataset
from refocal.fitting.solution import Solution, Status
from refocal.fitting.solver import Derivatives, Newton, Numbers
from refocal.fitting.temperature import (
    DRAFT,
    FIRST_ROWS,
    FULL,
    GAMMA_BOUNDS,
    LONGEST_STEP,
    MESSAGES,
    ROUGH,
    TEMPERATURE,
    LogitScale,
    SearchAccuracy,
    first_temperature,
    newton_temperature,
    samples_of,
    scale_of,
)


class FocalPoint(NamedTuple):
    """γ of the focal map and the temperature T before it."""

    gamma: float
    temperature: float


class Free(NamedTuple):
    """Which of the two parameters may move."""

    gamma: bool
    temperature: bool


def newton(dataset: Dataset, *, fixed_gamma: float | None = None, fixed_temperature: float | None = None) -> Solution:
    """Least log-loss over (γ, T), or over one of them.

    The log-loss is not convex in γ, so several starts are followed on some of the rows, and on all rows from the lowest
    minimum that they lead to. Should that end above temperature scaling's optimum (γ = 0), the search begins again
    from there: the result is never worse.
    """
    if fixed_gamma == 0.0 and fixed_temperature is None:
        return newton_temperature(dataset)
    free = Free(gamma=fixed_gamma is None, temperature=fixed_temperature is None)
    scale = scale_of(dataset)
    if scale is None:  # neither γ nor T matters
        centre = fixed_temperature or 1.0
        value = dataset.means("temperature", 1.0 / centre)[0]
        return Solution(fixed_gamma or 0.0, centre, value, "flat", MESSAGES["flat"], dataset.passes)
    if fixed_temperature is not None:
        centre = fixed_temperature
    elif dataset.n_rows < 2 * FIRST_ROWS:
        centre = newton_temperature(dataset).temperature
    else:
        centre = first_temperature(dataset, scale)
    if fixed_gamma is not None:
        return _descend(dataset, _matched(fixed_gamma, centre, free), free, scale)
    start = _lowest_minimum(dataset, centre, free, scale)
    solution = _descend(dataset, start, free, scale)
    # From γ = 0 and its best T a search would end here too if that point is close; otherwise log-losses are compared.
    if not _joins(FocalPoint(0.0, centre), [solution]) and not _is_below(dataset, solution.value, centre, free):
        temperature = newton_temperature(dataset).temperature if free.temperature else centre
        solution = _descend(dataset, FocalPoint(0.0, temperature), free, scale)
    return replace(solution, passes=dataset.passes)


def optimum_near(dataset: Dataset, start: FocalPoint, free: Free) -> FocalPoint:
    """The (γ, T) of the minimum of the log-loss that a start leads to."""
    scale = scale_of(dataset)
    if scale is None or not any(free):
        return start
    solution = _descend(dataset, start, free, scale)
    return FocalPoint(solution.gamma, solution.temperature)


def matching_beta(gamma: float) -> float:
    """The 1/T of the temperature scaling that the focal map with γ is close to, by a linear fit."""
    return 0.64 * gamma + 0.9


def _matched(gamma: float, centre: float, free: Free) -> FocalPoint:
    """γ, and the T with which its map stays close to temperature scaling by `centre`."""
    if not free.temperature or gamma == 0.0:
        return FocalPoint(gamma, centre)
    return FocalPoint(gamma, centre * matching_beta(gamma))


def _is_below(dataset: Dataset, value: float, centre: float, free: Free) -> bool:
    """Whether a log-loss is at most that of γ = 0 and the best T; exactly, if a rough pass leaves doubt."""
    known = dataset.cache.get(TEMPERATURE)
    if known is not None and free.temperature:
        return value <= known.value
    beta = 1.0 / centre
    if not free.temperature:
        return value <= dataset.means("temperature", beta)[0]
    value_at_centre, first, second = dataset.means("temperature", beta, rough=True)
    relative_step = abs(first / second) / beta if second > 0.0 else math.inf
    nearly_quadratic = 0.1  # a relative step in 1/T up to which the log-loss is close to a parabola
    if relative_step < nearly_quadratic:
        # What Newton's step would gain at most: the third derivative in log T is at most twice the second, with room
        # to spare.
        gain = 0.5 * abs(first) * relative_step * beta * (1.0 + 2.0 * relative_step)
        rounding = ROUGH.tolerance(dataset).rounding * max(1.0, value_at_centre)
        if value <= value_at_centre - gain - rounding:
            return True
    return value <= newton_temperature(dataset).value


def _lowest_minimum(dataset: Dataset, centre: float, free: Free, scale: LogitScale) -> FocalPoint:
    """Close to the lowest of the minima that several starts lead to.

    The starts are followed on a few rows, the minima they end in on more and more, and those that may still be the
    lowest on all rows. There γ = 0 is a start once more: where γ hardly matters, a few rows have other minima.
    """
    first_gammas = (0.0, -0.85, 1.0, 5.0, 40.0)
    starts = [_matched(gamma, centre, free) for gamma in first_gammas]
    for sample in samples_of(dataset):
        rows = sample.condensed(centre)
        minima = _minima(rows, starts, free, scale, DRAFT, give_up_higher=False)
        kept = [minimum for minimum in minima if not _clearly_worse(rows, minimum, minima[0])]
        starts = [FocalPoint(minimum.gamma, minimum.temperature) for minimum in kept]
    starts.append(FocalPoint(0.0, centre))
    lowest = _minima(dataset.condensed(centre), starts, free, scale, ROUGH, give_up_higher=True)[0]
    return FocalPoint(lowest.gamma, lowest.temperature)


def _minima(
    dataset: Dataset,
    starts: list[FocalPoint],
    free: Free,
    scale: LogitScale,
    accuracy: SearchAccuracy,
    *,
    give_up_higher: bool,
) -> list[Solution]:
    """The minima that the starts lead to, without repetitions, the lowest first."""
    minima: list[Solution] = []
    for start in starts:
        if _joins(start, minima):
            continue
        end = _descend(dataset, start, free, scale, accuracy, minima, give_up_higher=give_up_higher)
        if not _joins(FocalPoint(end.gamma, end.temperature), minima):
            minima.append(end)
    return sorted(minima, key=lambda minimum: minimum.value)


def _clearly_worse(rows: Block, minimum: Solution, best: Solution) -> bool:
    """Whether the log-loss of a minimum is higher than that of the best by more than four standard errors."""
    if minimum is best:
        return False
    (predictions,) = rows.predictions((minimum.gamma,), minimum.temperature, rough=True)
    (best_predictions,) = rows.predictions((best.gamma,), best.temperature, rough=True)
    excess = best_predictions.label_log_p - predictions.label_log_p
    standard_error = math.sqrt(rows.average(excess * excess) / rows.n_rows)
    return rows.average(excess) > 4.0 * standard_error


def _joins(point: FocalPoint, minima: Sequence[Solution]) -> bool:
    """Whether a point is close enough to one of the minima, in each of u, to lead there."""
    close = 0.3
    return any(
        abs(math.log((1.0 + point.gamma) / (1.0 + minimum.gamma))) <= close
        and abs(math.log(point.temperature / minimum.temperature)) <= close
        for minimum in minima
    )


def _descend(
    dataset: Dataset,
    start: FocalPoint,
    free: Free,
    scale: LogitScale,
    accuracy: SearchAccuracy = FULL,
    minima: Sequence[Solution] = (),
    *,
    give_up_higher: bool = False,
) -> Solution:
    """The minimum that a start leads to, by Newton's method in u.

    It ends early near one of the `minima` of other starts and, with `give_up_higher`, once it is clear that the first
    of these lies lower.
    """
    # Far from a minimum a quadratic model may predict too small a decrease: four times as much is granted.
    granted = 4.0
    u = (math.log1p(start.gamma), math.log(start.temperature))
    gammas = (math.log1p(GAMMA_BOUNDS[0]), math.log1p(GAMMA_BOUNDS[1])) if free.gamma else (u[0], u[0])
    temperatures = (math.log(scale.lowest), math.log(scale.highest)) if free.temperature else (u[1], u[1])
    solver = Newton(
        partial(_log_loss, dataset, accuracy.rough),
        accuracy.tolerance(dataset),
        lower=(gammas[0], temperatures[0]),
        upper=(gammas[1], temperatures[1]),
        longest_step=LONGEST_STEP,
    )
    state = solver.init(solver.evaluate(u))
    while not solver.terminate(state):
        if give_up_higher and minima and state.at.value - granted * 0.5 * state.decrement > minima[0].value:
            break
        if _joins(_point_at(state.at.point), minima):
            break
        state = solver.step(state)
    status: Status = "not converged"
    if state.has_converged:
        status = "at a bound" if state.at_bound else "converged"
    gamma, temperature = _point_at(state.at.point)
    return Solution(gamma, temperature, state.at.value, status, MESSAGES[status], dataset.passes)


def _point_at(u: Numbers) -> FocalPoint:
    """(γ, T) of u = (log(1+γ), log T)."""
    return FocalPoint(math.expm1(u[0]), math.exp(u[1]))


def _log_loss(dataset: Dataset, rough: bool, u: Numbers) -> Derivatives:
    """One pass over the rows: the log-loss at u with its gradient (2,) and Hessian (2, 2) in u.

    By the chain rule from (γ, β = 1/T): ∂₁ = (1+γ) ∂γ, ∂₂ = -β ∂β, ∂₁₁ = (1+γ)² ∂γγ + ∂₁, ∂₁₂ = -(1+γ) β ∂γβ,
    ∂₂₂ = β² ∂ββ - ∂₂.
    """
    gamma = math.expm1(u[0])
    beta = math.exp(-u[1])
    value, g, b, gg, gb, bb = dataset.means("focal", gamma, beta, rough=rough)
    first = (1.0 + gamma) * g
    second = -beta * b
    mixed = -(1.0 + gamma) * beta * gb
    hessian = (((1.0 + gamma) ** 2 * gg + first, mixed), (mixed, beta**2 * bb - second))
    return value, (first, second), hessian
