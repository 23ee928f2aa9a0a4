"""The (γ, T) of least log-loss: Newton's method with safeguards, from several starts.

The search moves in u = (log(1+γ), log T), which keeps γ > -1 and T > 0. The log-loss is not convex in γ and may have
several minima: each start leads to one of them, and the lowest is the result.

Everything is written out for two numbers: array functions would take longer than a pass over a thousand rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from refocal.engine.block import Block
from refocal.engine.dataset import Dataset
from refocal.fitting.solution import Solution, Status
from refocal.fitting.temperature import (
    DRAFT,
    FIRST_ROWS,
    FULL,
    GAMMA_BOUNDS,
    MAX_STEPS,
    MESSAGES,
    ROUGH,
    LogitScale,
    SearchAccuracy,
    first_beta,
    newton_temperature,
    samples_of,
    scale_of,
)

Pair = tuple[float, float]
"""A point u = (log(1+γ), log T), or a step or gradient in u."""


class FocalPoint(NamedTuple):
    """γ of the focal map and the temperature T before it."""

    gamma: float
    temperature: float


class Free(NamedTuple):
    """Which of the two parameters may move."""

    gamma: bool
    temperature: bool


class Bounds(NamedTuple):
    """The lowest and the highest value of each of u; equal for a parameter that is fixed."""

    lower: Pair
    upper: Pair

    def clip(self, u: Pair) -> Pair:
        """The point of the box that is closest to u."""
        return (
            min(max(u[0], self.lower[0]), self.upper[0]),
            min(max(u[1], self.lower[1]), self.upper[1]),
        )


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
        centre = 1.0 / first_beta(dataset, scale)
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


# The rounding of a mean over the rows, in machine epsilons.
MEAN_ROUNDING = 20.0
# The machine epsilon of a rough pass.
ROUGH_PRECISION = float(np.finfo(np.float32).eps)


def _is_below(dataset: Dataset, value: float, centre: float, free: Free) -> bool:
    """Whether a log-loss is at most that of γ = 0 and the best T; exactly, if a rough pass leaves doubt."""
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
        rounding = MEAN_ROUNDING * max(ROUGH_PRECISION, dataset.precision) * max(1.0, value_at_centre)
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
    """The minimum that a start leads to, by damped Newton steps in u.

    It ends early near one of the `minima` of other starts and, with `give_up_higher`, once it is clear that the first
    of these lies lower.
    """
    u = (math.log1p(start.gamma), math.log(start.temperature))
    gammas = (math.log1p(GAMMA_BOUNDS[0]), math.log1p(GAMMA_BOUNDS[1])) if free.gamma else (u[0], u[0])
    temperatures = (math.log(scale.lowest), math.log(scale.highest)) if free.temperature else (u[1], u[1])
    bounds = Bounds(lower=(gammas[0], temperatures[0]), upper=(gammas[1], temperatures[1]))
    descent = _Descent(dataset, free, bounds, accuracy)
    state = descent.evaluate(bounds.clip(u))
    status: Status = "not converged"
    # Far from a minimum a quadratic model may predict too small a decrease: four times as much is granted.
    granted = 4.0
    for _ in range(MAX_STEPS):
        if give_up_higher and minima and state.value - granted * 0.5 * state.decrement > minima[0].value:
            break
        if _joins(FocalPoint(math.expm1(state.u[0]), math.exp(state.u[1])), minima):
            break
        state, is_end = descent.advance(state)
        if is_end:
            status = "at a bound" if state.at_bound else "converged"
            break
    gamma = math.expm1(state.u[0])
    temperature = math.exp(state.u[1])
    return Solution(gamma, temperature, state.value, status, MESSAGES[status], dataset.passes)


class _State(NamedTuple):
    """A point u, its log-loss and gradient in u, and the step that Newton's method would take from it."""

    u: Pair
    value: float
    gradient: Pair
    step: Pair
    decrement: float
    """-gᵀs of the gradient g and the step s = -H⁻¹g, which is gᵀH⁻¹g: twice the decrease that a quadratic model
    predicts, -gᵀs - ½ sᵀHs = ½ gᵀH⁻¹g."""
    at_bound: bool


class _Hessian(NamedTuple):
    """A symmetric matrix (2, 2) in (γ, T) or functions of them."""

    gg: float
    gt: float
    tt: float


class _Descent:
    """Damped Newton steps in u within bounds, on one dataset."""

    def __init__(self, dataset: Dataset, free: Free, bounds: Bounds, accuracy: SearchAccuracy) -> None:
        self.dataset = dataset
        self.free = free
        self.bounds = bounds
        self.accuracy = accuracy
        self.rounding = MEAN_ROUNDING * max(dataset.precision, ROUGH_PRECISION if accuracy.rough else 0.0)

    def evaluate(self, u: Pair) -> _State:
        """One pass over the rows: the log-loss at u with its derivatives, and the Newton step from there.

        By the chain rule from (γ, β = 1/T): ∂₁ = (1+γ) ∂γ, ∂₂ = -β ∂β, ∂₁₁ = (1+γ)² ∂γγ + ∂₁, ∂₁₂ = -(1+γ) β ∂γβ,
        ∂₂₂ = β² ∂ββ - ∂₂.
        """
        gamma = math.expm1(u[0])
        beta = math.exp(-u[1])
        value, g, b, gg, gb, bb = self.dataset.means("focal", gamma, beta, rough=self.accuracy.rough)
        gradient = ((1.0 + gamma) * g, -beta * b)
        hessian = _Hessian(
            gg=(1.0 + gamma) ** 2 * gg + gradient[0],
            gt=-(1.0 + gamma) * beta * gb,
            tt=beta**2 * bb - gradient[1],
        )
        held_gamma = self.free.gamma and self._is_held(u, gradient, 0)
        held_temperature = self.free.temperature and self._is_held(u, gradient, 1)
        moving = Free(self.free.gamma and not held_gamma, self.free.temperature and not held_temperature)
        step = _newton_step(gradient, hessian, moving)
        share = self._share_within_bounds(u, step)
        step = (share * step[0], share * step[1])
        decrement = -gradient[0] * step[0] - gradient[1] * step[1]
        return _State(u, value, gradient, step, decrement, held_gamma or held_temperature)

    def advance(self, state: _State) -> tuple[_State, bool]:
        """The state after a step, shortened until the log-loss decreases; and whether the search ends there."""
        if max(abs(state.step[0]), abs(state.step[1])) <= self.accuracy.step_tolerance:
            u = self._moved(state.u, state.step)  # the last step needs no further pass
            return state._replace(u=u, value=state.value - 0.5 * state.decrement), True
        # A decrease below the rounding error is invisible in the value; the gradient still points downhill.
        is_visible = state.decrement > self.rounding * max(1.0, state.value)
        highest = state.value if is_visible else state.value + self.rounding
        least_share = 1e-3
        share = 1.0
        while share >= least_share:
            candidate = self.evaluate(self._moved(state.u, (share * state.step[0], share * state.step[1])))
            if candidate.value < highest:
                return candidate, False
            share *= _cubic_minimum(state, candidate)
        return state, True

    def _moved(self, u: Pair, step: Pair) -> Pair:
        return self.bounds.clip((u[0] + step[0], u[1] + step[1]))

    def _is_held(self, u: Pair, gradient: Pair, i: int) -> bool:
        """Whether parameter i is at a bound beyond which the log-loss would decrease."""
        at_lower = u[i] <= self.bounds.lower[i] and gradient[i] > 0.0
        at_upper = u[i] >= self.bounds.upper[i] and gradient[i] < 0.0
        return at_lower or at_upper

    def _share_within_bounds(self, u: Pair, step: Pair) -> float:
        """The share of a step that ends where it meets a bound, rather than leave its direction.

        A bound that leaves less than a tenth of the step is not stopped at: the step goes on along it.
        """
        least_share = 0.1
        share = 1.0
        for i in range(2):
            room = self.bounds.upper[i] - u[i] if step[i] > 0.0 else u[i] - self.bounds.lower[i]
            share_to_bound = room / (abs(step[i]) or 1.0)
            if share_to_bound > least_share:
                share = min(share, share_to_bound)
        return share


def _cubic_minimum(start: _State, end: _State) -> float:
    """Where the cubic with the values and slopes of two points is lowest between them, as a share of the way.

    Nocedal & Wright (2006), equation 3.59; kept between 0.02 and 0.9, so that a step is neither given up at once nor
    hardly shortened.
    """
    way = (end.u[0] - start.u[0], end.u[1] - start.u[1])
    slope_at_start = start.gradient[0] * way[0] + start.gradient[1] * way[1]
    slope_at_end = end.gradient[0] * way[0] + end.gradient[1] * way[1]
    d1 = slope_at_start + slope_at_end - 3.0 * (end.value - start.value)
    d2 = math.sqrt(max(d1 * d1 - slope_at_start * slope_at_end, 0.0))
    denominator = slope_at_end - slope_at_start + 2.0 * d2
    share = 1.0 - (slope_at_end + d2 - d1) / denominator if denominator > 0.0 else 0.0
    return min(max(share, 0.02), 0.9)


def _newton_step(gradient: Pair, hessian: _Hessian, moving: Free) -> Pair:
    """A descent direction: -|H|⁻¹g, where |H| has the absolute eigenvalues of H; in each of u at most 1 long.

    The eigenvalues of a symmetric matrix (2, 2) are mean ± radius; the eigenvector of the larger one has the angle
    ½ atan2(2 h_gt, h_gg - h_tt).
    """
    least_eigenvalue = 1e-12  # smaller ones count as this
    longest = 1.0
    g, t = gradient
    gg, gt, tt = hessian
    if moving.gamma and moving.temperature:
        mean = 0.5 * (gg + tt)
        radius = math.hypot(0.5 * (gg - tt), gt)
        angle = 0.5 * math.atan2(2.0 * gt, gg - tt)
        cos = math.cos(angle)
        sin = math.sin(angle)
        along_first = -(cos * g + sin * t) / max(abs(mean + radius), least_eigenvalue)
        along_second = -(cos * t - sin * g) / max(abs(mean - radius), least_eigenvalue)
        step = (cos * along_first - sin * along_second, sin * along_first + cos * along_second)
    else:  # exactly 0: a parameter that rounding moves off its bound would be sent back there again and again
        step_gamma = -g / max(abs(gg), least_eigenvalue) if moving.gamma else 0.0
        step_temperature = -t / max(abs(tt), least_eigenvalue) if moving.temperature else 0.0
        step = (step_gamma, step_temperature)
    length = max(abs(step[0]), abs(step[1]), 1e-300)
    shrink = min(1.0, longest / length)
    return shrink * step[0], shrink * step[1]
