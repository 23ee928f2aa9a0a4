"""The (γ, T) of least log-loss: Newton's method with safeguards, from several starts."""

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
    CLOSE,
    GAMMA_BOUNDS,
    LOOK,
    MAX_STEPS,
    MESSAGES,
    PART,
    ROUGH,
    Care,
    LogitScale,
    first_slope,
    newton_temperature,
    samples_of,
    scale_of,
)

# The starting values of γ.
STARTS = (0.0, -0.85, 1.0, 5.0, 40.0)
# A point as close as this in log(1+γ) and log T to the end of another start would end there too.
APART = 0.3
# A valley is left if its log-loss is higher than that of the deepest by this number of standard errors.
CLEARLY = 4.0
# A start is given up if its log-loss would be higher than the lowest even after this multiple of the decrease that a
# quadratic model predicts: far from a minimum the model may predict too little.
FAR = 4.0
# A curvature below this counts as 0.
FLAT = 1e-12
# The longest trusted step in log(1+γ) or log T.
LONGEST = 1.0
# A bound that leaves less than this part of a step is not stopped at.
LEAST_ROOM = 0.1
# A step that does not decrease the log-loss is shortened to a part of it between these, and given up below the last.
SHORTER, SHORTEST = (0.02, 0.9), 1e-3
# The third derivative of the log-loss in log T is at most this multiple of the second, with room to spare.
CUBIC = 2.0
# A relative step in 1/T after which the log-loss is close to a parabola.
NEAR = 0.1
# The rounding of a mean over the rows, in machine epsilons; the epsilon of a rough pass.
ROUNDING = 20.0
ROUGH_PRECISION = float(np.finfo(np.float32).eps)

Pair = tuple[float, float]
Triple = tuple[float, float, float]  # a symmetric matrix: both ends of its diagonal, what is off it in between
Free = tuple[bool, bool]


def newton(dataset: Dataset, *, fixed_gamma: float | None = None, fixed_temperature: float | None = None) -> Solution:
    """Least log-loss over (γ, T), or over one of them.

    The log-loss is not convex in γ, so several starts are followed on some of the rows, and on all from the deepest
    valley that they lead to. Should that end above temperature scaling's optimum (γ = 0), the search begins again
    from there: the result is never worse.
    """
    if fixed_gamma == 0.0 and fixed_temperature is None:
        return newton_temperature(dataset)
    free, scale = (fixed_gamma is None, fixed_temperature is None), scale_of(dataset)
    if scale is None:  # neither γ nor T matters
        centre = fixed_temperature or 1.0
        value = dataset.means("temperature", 1.0 / centre)[0]
        return Solution(fixed_gamma or 0.0, centre, value, "flat", MESSAGES["flat"], dataset.passes)
    if fixed_temperature is not None:
        centre = fixed_temperature
    elif dataset.n_rows < 2 * PART:
        centre = newton_temperature(dataset).temperature
    else:
        centre = 1.0 / first_slope(dataset, scale)
    if fixed_gamma is not None:
        return _descend(dataset, _undone(fixed_gamma, centre, free), free, scale)
    found = _descend(dataset, _valley(dataset, centre, free, scale), free, scale)
    # From γ = 0 and its best T a search would end here too if that point is close; otherwise log-losses are compared.
    if not (_joins((0.0, centre), [found]) or _is_below(dataset, found.value, centre, free)):
        start = newton_temperature(dataset).temperature if free[1] else centre
        found = _descend(dataset, (0.0, start), free, scale)
    return replace(found, passes=dataset.passes)


def _is_below(dataset: Dataset, value: float, centre: float, free: Free) -> bool:
    """Whether a log-loss is at most that of γ = 0 and the best T; exactly, if a rough pass leaves doubt."""
    slope = 1.0 / centre
    if not free[1]:
        return value <= dataset.means("temperature", slope)[0]
    there, first, second = dataset.means("temperature", slope, rough=True)
    step = abs(first / second) / slope if second > 0.0 else math.inf
    # What Newton's step would gain, to the third order in the step, and the rounding.
    gain = 0.5 * abs(first) * step * slope * (1.0 + CUBIC * step)
    rounding = ROUNDING * max(ROUGH_PRECISION, dataset.precision) * max(1.0, there)
    return (step < NEAR and value <= there - gain - rounding) or value <= newton_temperature(dataset).value


def _undone(gamma: float, centre: float, free: Free) -> Pair:
    """The γ, and the T with which its map stays close to temperature scaling by `centre`."""
    return gamma, centre * (closest_slope(gamma) if free[1] and gamma else 1.0)


def closest_slope(gamma: float) -> float:
    """The 1/T of the temperature scaling that the focal map with γ is close to."""
    return 0.64 * gamma + 0.9


def optimum_near(dataset: Dataset, start: Pair, free: Free) -> Pair:
    """The (γ, T) of least log-loss in the valley of a point; `free` says which of the two may move."""
    scale = scale_of(dataset)
    if scale is None or not any(free):
        return start
    found = _descend(dataset, start, free, scale)
    return found.gamma, found.temperature


def _valley(dataset: Dataset, centre: float, free: Free, scale: LogitScale) -> Pair:
    """Close to the bottom of the deepest valley that several starts lead to.

    The starts are followed on a few rows, the valleys they end in on more and more, and those that may still be the
    deepest on all rows. There γ = 0 is a start once more: where γ hardly matters, a few rows have other valleys.
    """
    points = [_undone(gamma, centre, free) for gamma in STARTS]
    for sample in samples_of(dataset):
        rows = sample.condensed(centre)
        ends = _ends(rows, points, free, scale, LOOK)
        points = [(end.gamma, end.temperature) for end in ends if not _clearly_worse(rows, end, ends[0])]
    (best, *_) = _ends(dataset.condensed(centre), [*points, (0.0, centre)], free, scale, ROUGH)
    return best.gamma, best.temperature


def _ends(dataset: Dataset, points: list[Pair], free: Free, scale: LogitScale, care: Care) -> list[Solution]:
    """The minima that the points lead to, without repetitions, the lowest first."""
    ends: list[Solution] = []
    for point in points:
        if _joins(point, ends):
            continue
        end = _descend(dataset, point, free, scale, care, ends)
        if not _joins((end.gamma, end.temperature), ends):
            ends.append(end)
    return sorted(ends, key=lambda end: end.value)


def _clearly_worse(rows: Block, end: Solution, best: Solution) -> bool:
    """Whether `end` is worse than `best` by far more than chance."""
    if end is best:
        return False
    here, there = (rows.predictions((at.gamma,), at.temperature, rough=True)[0].label_log_p for at in (end, best))
    lost = there - here
    return rows.average(lost) > CLEARLY * math.sqrt(rows.average(lost * lost) / rows.n_rows)


def _joins(point: Pair, ends: Sequence[Solution]) -> bool:
    """Whether a point is close enough to one of the ends to lead there."""
    return any(
        abs(math.log((1.0 + point[0]) / (1.0 + end.gamma))) <= APART
        and abs(math.log(point[1] / end.temperature)) <= APART
        for end in ends
    )


class _State(NamedTuple):
    """A point in (log(1+γ), log T), its log-loss, and the step that Newton's method would take from it."""

    point: Pair
    value: float
    gradient: Pair
    step: Pair
    gain: float
    """-gᵀs of the gradient g and the step s = -H⁻¹g, which is gᵀH⁻¹g: twice the decrease that a quadratic model
    predicts, -gᵀs - ½ sᵀHs = ½ gᵀH⁻¹g."""
    at_bound: bool


def _descend(
    dataset: Dataset, start: Pair, free: Free, scale: LogitScale, care: Care = CLOSE, ends: Sequence[Solution] = ()
) -> Solution:
    """Damped Newton steps in (log(1+γ), log T), which keep γ > -1 and T > 0.

    Stops early near one of the `ends` of other starts and, on all rows, once it is clear that the first of these lies
    deeper.
    """
    first = (math.log1p(start[0]), math.log(start[1]))
    ranges = (
        (math.log1p(GAMMA_BOUNDS[0]), math.log1p(GAMMA_BOUNDS[1])),
        (math.log(scale.lowest), math.log(scale.highest)),
    )
    bounds = [within if moves else (at, at) for within, moves, at in zip(ranges, free, first, strict=True)]
    state = _evaluated(dataset, _moved(first, (0.0, 0.0), bounds), free, bounds, care)
    status: Status = "not converged"
    for _ in range(MAX_STEPS):
        x, y = state.point
        is_higher = bool(ends) and care is ROUGH and state.value - FAR * 0.5 * state.gain > ends[0].value
        if is_higher or _joins((math.expm1(x), math.exp(y)), ends):
            break
        state, is_end = _stepped(dataset, state, free, bounds, care)
        if is_end:
            status = "at a bound" if state.at_bound else "converged"
            break
    gamma, temperature = math.expm1(state.point[0]), math.exp(state.point[1])
    return Solution(gamma, temperature, state.value, status, MESSAGES[status], dataset.passes)


def _stepped(dataset: Dataset, state: _State, free: Free, bounds: list[Pair], care: Care) -> tuple[_State, bool]:
    """The point after a step, shortened until the log-loss decreases; and whether it is an end: no step leads on."""
    if max(map(abs, state.step)) <= care.step:  # the last step needs no further pass
        point = _moved(state.point, state.step, bounds)
        return state._replace(point=point, value=state.value - 0.5 * state.gain), True
    # A gain below the rounding error is invisible in the value; the gradient still points downhill.
    rounding = ROUNDING * max(dataset.precision, ROUGH_PRECISION if care.rough else 0.0)
    highest = state.value if state.gain > rounding * max(1.0, state.value) else state.value + rounding
    share = 1.0
    while share >= SHORTEST:
        step = share * state.step[0], share * state.step[1]
        new = _evaluated(dataset, _moved(state.point, step, bounds), free, bounds, care)
        if new.value < highest:
            return new, False
        share *= _lowest_between(state, new)
    return state, True


def _evaluated(dataset: Dataset, point: Pair, free: Free, bounds: list[Pair], care: Care) -> _State:
    """A pass over the rows: the log-loss at a point and the step from there."""
    gamma, slope = math.expm1(point[0]), math.exp(-point[1])
    value, g, b, gg, gb, bb = dataset.means("focal", gamma, slope, rough=care.rough)
    # By the chain rule from (γ, 1/T) to (log(1+γ), log T).
    gradient = (1.0 + gamma) * g, -slope * b
    turns = (1.0 + gamma) ** 2 * gg + gradient[0], -(1.0 + gamma) * slope * gb
    hessian = (*turns, slope**2 * bb - gradient[1])
    stuck = [
        moves and ((at <= low and rise > 0.0) or (at >= high and rise < 0.0))
        for moves, at, (low, high), rise in zip(free, point, bounds, gradient, strict=True)
    ]
    step = _newton_step(gradient, hessian, (free[0] and not stuck[0], free[1] and not stuck[1]))
    # A step ends where it meets a bound, rather than leave its direction; one that has hardly begun moves along it.
    room = [
        (high - at if way > 0.0 else at - low) / (abs(way) or 1.0)
        for way, at, (low, high) in zip(step, point, bounds, strict=True)
    ]
    share = min([1.0, *(part for part in room if part > LEAST_ROOM)])
    step = share * step[0], share * step[1]
    return _State(point, value, gradient, step, -gradient[0] * step[0] - gradient[1] * step[1], any(stuck))


def _lowest_between(start: _State, end: _State) -> float:
    """Where the cubic with the values and slopes of two points is lowest between them, as a part of the way."""
    way = end.point[0] - start.point[0], end.point[1] - start.point[1]
    down, up = (at.gradient[0] * way[0] + at.gradient[1] * way[1] for at in (start, end))
    bend = down + up - 3.0 * (end.value - start.value)
    root = math.sqrt(max(bend * bend - down * up, 0.0))
    rise = up - down + 2.0 * root
    part = 1.0 - (up + root - bend) / rise if rise > 0.0 else 0.0
    return min(max(part, SHORTER[0]), SHORTER[1])


def _moved(point: Pair, step: Pair, bounds: list[Pair]) -> Pair:
    """A point after a step, or where that leaves the bounds."""
    (x, y), (dx, dy), ((x0, x1), (y0, y1)) = point, step, bounds
    return min(max(x + dx, x0), x1), min(max(y + dy, y0), y1)


def _newton_step(gradient: Pair, hessian: Triple, moving: Free) -> Pair:
    """A descent direction: Newton's, with the Hessian's eigenvalues made positive, no longer than LONGEST.

    Written out for two numbers: array functions would take longer than a pass over a thousand rows.
    """
    (g, t), (gg, gt, tt) = gradient, hessian
    if all(moving):
        middle, radius, angle = 0.5 * (gg + tt), math.hypot(0.5 * (gg - tt), gt), 0.5 * math.atan2(2.0 * gt, gg - tt)
        cos, sin = math.cos(angle), math.sin(angle)
        along = -(cos * g + sin * t) / max(abs(middle + radius), FLAT)
        across = -(cos * t - sin * g) / max(abs(middle - radius), FLAT)
        step = cos * along - sin * across, sin * along + cos * across
    else:  # exactly 0: a parameter that rounding moves off its bound would be sent back there again and again
        step = -moving[0] * g / max(abs(gg), FLAT), -moving[1] * t / max(abs(tt), FLAT)
    shrink = min(1.0, LONGEST / max(abs(step[0]), abs(step[1]), 1e-300))
    return shrink * step[0], shrink * step[1]
