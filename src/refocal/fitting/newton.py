"""Minimisation of the log-loss: Newton's method with safeguards, for T alone and for (γ, T) together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from refocal._validation import LARGE, SMALL
from refocal.engine.block import Block
from refocal.engine.dataset import Dataset
from refocal.errors import DataError
from refocal.fitting.solution import Solution, Status
from refocal.maps.row import softplus

MAX_STEPS = 100
# How far beyond the distances between logits temperatures are searched; probabilities are long saturated there.
REACH = 1e6
# A mean distance this many times the typical one comes from classes that are masked by logits like -1e9.
OUTLYING = 1e3
# Close to γ = -1 the map loses its inverse and the log-loss has minima that gain nothing on other data.
GAMMA_BOUNDS = (-0.9, 100.0)
# A log-loss this small means separable data, for which T goes to 0.
NO_LOSS = 1e-9
# Where every row is right, the temperature is searched on so many.
LAPLACE_ROWS = 20_000
# The starting values of γ.
STARTS = (0.0, -0.85, 1.0, 5.0, 40.0)
# The number of rows on which the starts are followed first, and the share of all rows used next.
PART = 300
SHARE = 1 / 5
# A point as close as this in log(1+γ) and log T to the end of another start would end there too.
APART = 0.3
# A valley is left if its log-loss is higher than that of the deepest by so many standard errors.
CLEARLY = 4.0
# A curvature below this counts as 0.
FLAT = 1e-12
# The longest trusted step in log(1+γ) or log T.
LONGEST = 1.0
# A bound that leaves less than this part of a step is not stopped at.
LEAST_ROOM = 0.1
# A step that does not decrease the log-loss is shortened to a part of it between these, and given up below the last.
SHORTER, SHORTEST = (0.02, 0.9), 1e-3
# The third derivative of the log-loss in log T is at most so many times the second, with room to spare.
CUBIC = 2.0
# A relative step in 1/T after which the log-loss is close to a parabola.
NEAR = 0.1
# The rounding of a mean over the rows, in machine epsilons; the epsilon of a rough pass.
ROUNDING = 20.0
ROUGH_PRECISION = float(np.finfo(np.float32).eps)

Pair = tuple[float, float]
Triple = tuple[float, float, float]  # a symmetric matrix: both ends of its diagonal, what is off it in between
Free = tuple[bool, bool]


class Scale(NamedTuple):
    """Distances between the logits of a row: the starting temperature and the range that is searched."""

    typical: float
    lowest: float
    highest: float


class Care(NamedTuple):
    """When to stop: after a step as small as `step`; `rough`: whether six digits suffice."""

    step: float
    rough: bool


# Newton converges quadratically: after a relative step of this size the error is about that size squared.
CLOSE = Care(1e-5, rough=False)
ROUGH = Care(3e-3, rough=True)
LOOK = Care(3e-2, rough=True)

MESSAGES: dict[Status, str] = {
    "converged": "the log-loss has a minimum here",
    "at a bound": (
        "the log-loss still falls at the end of the range. For T: every row is right (fit on more data, and on data "
        "the model was not trained on) or the labels have nothing to do with the logits (check their order). For γ: "
        f"the range is {GAMMA_BOUNDS[0]} to {GAMMA_BOUNDS[1]:g}"
    ),
    "not converged": f"no minimum after {MAX_STEPS} steps; try search='grid', and please report the data",
    "flat": "every row of logits is constant, so no temperature matters; it was kept",
}


def newton_temperature(dataset: Dataset) -> Solution:
    """The temperature of least log-loss; found once for each dataset.

    The loss is convex in 1/T, so a bracketed Newton method cannot miss its minimum.
    """
    if "temperature" not in dataset.memo:
        scale = _scale(dataset)
        slope = 1.0
        status: Status = "flat"
        if scale is None:
            value = dataset.temperature_curvature(slope)[0]
        else:
            start = _first_slope(dataset, scale)
            roughly, _, status = _bracketed(dataset, start, scale, ROUGH)
            slope, value, status = _bracketed(dataset, roughly if status == "converged" else start, scale)
        dataset.memo["temperature"] = _solution(dataset, 0.0, 1.0 / slope, value, status)
    found: Solution = dataset.memo["temperature"]
    return found


def laplace_temperature(rows: Block) -> float:
    """The temperature of least log-loss where every one of n rows is right and counts as right by (n+1)/(n+2).

    A temperature that only gave the mean confidence (n+1)/(n+2) would leave no doubt at all where margins are wide.
    """
    from scipy.optimize import minimize_scalar

    target = (rows.total_weight + 1.0) / (rows.total_weight + 2.0)
    some, scale = rows.part(LAPLACE_ROWS), rows.mean_gap
    if scale == 0.0:  # all logits are equal
        return 1.0

    def loss(log_t: float) -> float:
        odds = some.split(0.0, scale * math.exp(log_t))[0, 0]
        return some.average(softplus(np, odds) - target * odds)

    return scale * math.exp(minimize_scalar(loss, bounds=(-20.0, 20.0), method="bounded", options={"xatol": 1e-6}).x)


def _scale(dataset: Dataset) -> Scale | None:
    """The scale of the logits; None if all of each row are equal.

    Below the mean distance to the top there may be much smaller ones that matter, since a class that is far below
    hardly counts, however far: so the runner-ups of some of the rows are examined.
    """
    mean = dataset.mean_gap
    if mean == 0.0:
        return None
    if not SMALL <= mean <= LARGE:
        expected = f"of logits whose distances lie between {SMALL:g} and {LARGE:g} (impossible classes may be -inf)"
        raise DataError("X", "fit", expected=expected, got=f"a mean distance of {mean:g}")
    near = dataset.part(PART).runner_up_gaps()
    if len(near) == 0:
        near = np.array([mean])
    typical = min(mean, OUTLYING * float(np.median(near)))
    return Scale(typical, min(mean, float(near.min())) / REACH, mean * REACH)


def _bracketed(dataset: Dataset, slope: float, scale: Scale, care: Care = CLOSE) -> tuple[float, float, Status]:
    """Newton steps from a first 1/T; returns the last 1/T, its log-loss and the status."""
    ends = (1.0 / scale.highest, 1.0 / scale.lowest)
    low, high = ends
    value = math.inf
    status: Status = "not converged"
    for _ in range(MAX_STEPS):
        value, first, second = dataset.temperature_curvature(slope, rough=care.rough)
        if value < NO_LOSS:
            status = "at a bound"
            break
        target = slope - first / second if second > 0.0 else math.inf
        if abs(target - slope) <= care.step * slope:  # the last step needs no further pass
            slope, value, status = target, value - 0.5 * first * first / second, "converged"
            break
        low, high = (slope, high) if first < 0.0 else (low, slope)
        if low >= ends[1] or high <= ends[0]:
            status = "at a bound"
            break
        # A step that leaves the bracket or changes 1/T by more than a factor of ten is not trusted.
        if not low < target < high or not 0.1 < target / slope < 10.0:
            target = min(10.0 * slope, high) if first < 0.0 else max(0.1 * slope, low)
            if target in (low, high) and target not in ends:
                target = math.sqrt(low * high)
        slope = target
    return slope, value, status


def _first_slope(dataset: Dataset, scale: Scale) -> float:
    """The first 1/T: the optimum of some of the rows, or else the inverse scale of the logits."""
    share = _share(dataset) if dataset.n_rows >= 2 * PART else dataset
    if share.n_rows < dataset.n_rows and share.mean_gap > 0.0:
        slope, _, status = _bracketed(share, _first_slope(share, scale), scale, LOOK)
        if status == "converged":
            return slope
    return 1.0 / scale.typical


def newton(dataset: Dataset, *, fixed_gamma: float | None = None, fixed_temperature: float | None = None) -> Solution:
    """Least log-loss over (γ, T), or over one of them.

    The log-loss is not convex in γ, so several starts are followed on some of the rows, and on all from the deepest
    valley that they lead to. Should that end above temperature scaling's optimum (γ = 0), the search begins again
    from there: the result is never worse.
    """
    if fixed_gamma == 0.0 and fixed_temperature is None:
        return newton_temperature(dataset)
    free, scale = (fixed_gamma is None, fixed_temperature is None), _scale(dataset)
    if scale is None:  # neither γ nor T matters
        centre = fixed_temperature or 1.0
        value = dataset.temperature_curvature(1.0 / centre)[0]
        return _solution(dataset, fixed_gamma or 0.0, centre, value, "flat")
    if fixed_temperature is not None:
        centre = fixed_temperature
    elif dataset.n_rows < 2 * PART:
        centre = newton_temperature(dataset).temperature
    else:
        centre = 1.0 / _first_slope(dataset, scale)
    if fixed_gamma is not None:
        return _descend(dataset, _undone(fixed_gamma, centre, free), free, scale)
    found = _descend(dataset, _valley(dataset, centre, free, scale), free, scale)
    if not _is_below(dataset, found.value, centre, free):
        start = newton_temperature(dataset).temperature if free[1] else centre
        found = _descend(dataset, (0.0, start), free, scale)
    return replace(found, passes=dataset.passes)


def _is_below(dataset: Dataset, value: float, centre: float, free: Free) -> bool:
    """Whether a log-loss is at most that of γ = 0 and the best T; exactly, if a rough pass leaves doubt."""
    slope = 1.0 / centre
    if not free[1]:
        return value <= dataset.temperature_curvature(slope)[0]
    for rough in (True, False):
        there, first, second = dataset.temperature_curvature(slope, rough=rough)
        step = abs(first / second) / slope if second > 0.0 else math.inf
        if step >= NEAR:
            break
        # What Newton's step would gain, to the third order in the step, and the rounding.
        gain = 0.5 * abs(first) * step * slope * (1.0 + CUBIC * step)
        epsilon = max(ROUGH_PRECISION if rough else 0.0, dataset.precision)
        if value <= there - gain - ROUNDING * epsilon * max(1.0, there):
            return True
        slope -= first / second
    return value <= newton_temperature(dataset).value


def _undone(gamma: float, centre: float, free: Free) -> Pair:
    """The γ, and the T with which its map stays close to temperature scaling by `centre`."""
    return gamma, centre * (closest_slope(gamma) if free[1] and gamma else 1.0)


def closest_slope(gamma: float) -> float:
    """The 1/T of the temperature scaling that the focal map with γ is close to."""
    return 0.64 * gamma + 0.9


def optimum_near(dataset: Dataset, start: Pair, free: Free) -> Pair:
    """The (γ, T) of least log-loss in the valley of a point; `free` says which of the two may move."""
    scale = _scale(dataset)
    if scale is None or not any(free):
        return start
    found = _descend(dataset, start, free, scale)
    return found.gamma, found.temperature


def _valley(dataset: Dataset, centre: float, free: Free, scale: Scale) -> Pair:
    """Close to the bottom of the deepest valley that several starts lead to.

    The starts are followed on a few rows, the valleys they end in on a share of the rows, and those that may still be
    the deepest on all rows.
    """
    points = [_undone(gamma, centre, free) for gamma in STARTS]
    for rows in (dataset.part(PART).condensed(centre), _share(dataset).condensed(centre)):
        ends = _ends(rows, points, free, scale, LOOK)
        points = [(end.gamma, end.temperature) for end in ends if not _clearly_worse(rows, end, ends[0])]
    (best, *_) = _ends(dataset.condensed(centre), points, free, scale, ROUGH)
    return best.gamma, best.temperature


def _ends(dataset: Dataset, points: list[Pair], free: Free, scale: Scale, care: Care) -> list[Solution]:
    """The minima that the points lead to, without repetitions, the lowest first."""
    ends: list[Solution] = []
    for point in points:
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


def _share(dataset: Dataset) -> Block:
    return dataset.part(max(PART, int(SHARE * dataset.n_rows)))


class _State(NamedTuple):
    """A point in (log(1+γ), log T), its log-loss, and the step that Newton's method would take from it."""

    point: Pair
    value: float
    gradient: Pair
    step: Pair
    gain: float
    """Twice the decrease that a quadratic model predicts for the step."""
    at_bound: bool


def _descend(
    dataset: Dataset, start: Pair, free: Free, scale: Scale, care: Care = CLOSE, ends: Sequence[Solution] = ()
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
        (x, y), value = state.point, state.value
        if _joins((math.expm1(x), math.exp(y)), ends) or (
            ends and care is ROUGH and value - 2.0 * state.gain > ends[0].value
        ):
            break
        done: Status = "at a bound" if state.at_bound else "converged"
        if max(map(abs, state.step)) <= care.step:  # the last step needs no further pass
            point = _moved(state.point, state.step, bounds)
            state, status = state._replace(point=point, value=value - 0.5 * state.gain), done
            break
        # A gain below the rounding error is invisible in the value; the gradient still points downhill.
        rounding = ROUNDING * max(dataset.precision, ROUGH_PRECISION if care.rough else 0.0)
        highest = value if state.gain > rounding * max(1.0, value) else value + rounding
        share = 1.0
        while share >= SHORTEST:
            step = share * state.step[0], share * state.step[1]
            new = _evaluated(dataset, _moved(state.point, step, bounds), free, bounds, care)
            if new.value < highest:
                state = new
                break
            share *= _lowest_between(state, new)
        else:
            status = done
            break
    return _solution(dataset, math.expm1(state.point[0]), math.exp(state.point[1]), state.value, status)


def _evaluated(dataset: Dataset, point: Pair, free: Free, bounds: list[Pair], care: Care) -> _State:
    """A pass over the rows: the log-loss at a point and the step from there."""
    value, gradient, hessian = _in_logs(dataset, point, care.rough)
    stuck = [
        moves and ((at <= low and slope > 0.0) or (at >= high and slope < 0.0))
        for moves, at, (low, high), slope in zip(free, point, bounds, gradient, strict=True)
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
    if not all(moving):
        g, t, gt = g * moving[0], t * moving[1], 0.0
    middle, radius, angle = 0.5 * (gg + tt), math.hypot(0.5 * (gg - tt), gt), 0.5 * math.atan2(2.0 * gt, gg - tt)
    cos, sin = math.cos(angle), math.sin(angle)
    along = -(cos * g + sin * t) / max(abs(middle + radius), FLAT)
    across = -(cos * t - sin * g) / max(abs(middle - radius), FLAT)
    step = cos * along - sin * across, sin * along + cos * across
    shrink = min(1.0, LONGEST / max(abs(step[0]), abs(step[1]), 1e-300))
    return shrink * step[0], shrink * step[1]


def _in_logs(dataset: Dataset, point: Pair, rough: bool) -> tuple[float, Pair, Triple]:
    """Value, gradient and Hessian in (log(1+γ), log T) by the chain rule from (γ, 1/T)."""
    gamma, slope = math.expm1(point[0]), math.exp(-point[1])
    value, (g, b), ((gg, gb), (_, bb)) = dataset.curvature(gamma, 1.0 / slope, rough=rough)
    first = (1.0 + gamma) * float(g), -slope * float(b)
    second = (1.0 + gamma) ** 2 * float(gg) + first[0], -(1.0 + gamma) * slope * float(gb)
    return value, first, (*second, slope**2 * float(bb) - first[1])


def _solution(dataset: Dataset, gamma: float, temperature: float, value: float, status: Status) -> Solution:
    return Solution(gamma, temperature, value, status, MESSAGES[status], dataset.passes)
