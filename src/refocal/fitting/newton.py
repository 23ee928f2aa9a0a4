"""Minimisation of the log-loss: Newton's method with safeguards, for T alone and for (γ, T) together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from refocal._validation import LARGE, SMALL
from refocal.engine.block import Block
from refocal.engine.dataset import Dataset
from refocal.errors import DataError
from refocal.fitting.solution import Solution, Status

MAX_STEPS = 100
# How far beyond the distances between logits temperatures are searched; probabilities are long saturated there.
REACH = 1e6
# A mean distance this many times the typical one comes from classes that are masked by logits like -1e9.
OUTLYING = 1e3
# Close to γ = -1 the map loses its inverse and the log-loss has minima that gain nothing on other data.
GAMMA_BOUNDS = (-0.9, 100.0)
# A log-loss this small means separable data, for which T goes to 0.
NO_LOSS = 1e-9
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
# The rounding of a rough pass.
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
    if fixed_temperature is None:
        base = newton_temperature(dataset)
        centre, without = base.temperature, base.value
    else:
        centre, without = fixed_temperature, dataset.temperature_curvature(1.0 / fixed_temperature)[0]
    free = (fixed_gamma is None, fixed_temperature is None)
    scale = _scale(dataset)
    if scale is None:  # no γ matters either
        return _solution(dataset, fixed_gamma or 0.0, centre, without, "flat")

    def near(gamma: float) -> tuple[float, float]:
        return gamma, centre * (closest_slope(gamma) if free[1] and gamma else 1.0)  # undo the map

    if fixed_gamma is not None:
        found = _descend(dataset, near(fixed_gamma), free, scale)
    else:
        found = _descend(dataset, _valley(dataset, near, free, scale), free, scale)
        if not found.value <= without:
            found = _descend(dataset, near(0.0), free, scale)
    return _solution(dataset, found.gamma, found.temperature, found.value, found.status)


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


def _valley(dataset: Dataset, near: Callable[[float], Pair], free: Free, scale: Scale) -> Pair:
    """Close to the bottom of the deepest valley that several starts lead to.

    The starts are followed on a few rows, the valleys they end in on a share of the rows, and those that may still be
    the deepest on all rows.
    """
    points = [near(gamma) for gamma in STARTS]
    for rows in (dataset.part(PART), _share(dataset)):
        ends = _ends(rows, points, free, scale, LOOK)
        points = [(end.gamma, end.temperature) for end in ends if not _clearly_worse(rows, end, ends[0])]
    (best, *_) = _ends(dataset, points, free, scale, ROUGH)
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
    descent = _Descent(dataset, free, bounds, care, ends)
    state = descent.init(_inside(first, bounds))
    status: Status = "not converged"
    for _ in range(MAX_STEPS):
        if descent.leads_elsewhere(state):
            break
        new = descent.step(state)
        if new is None or new.is_last:
            status = "at a bound" if state.at_bound else "converged"
            state = new or state
            break
        state = new
    return _solution(dataset, math.expm1(state.point[0]), math.exp(state.point[1]), state.value, status)


class _State(NamedTuple):
    """A point in (log(1+γ), log T), its log-loss, and the step that Newton's method would take from it."""

    point: Pair
    value: float
    step: Pair = (0.0, 0.0)
    gain: float = 0.0
    """Twice the decrease that a quadratic model predicts for the step."""
    at_bound: bool = False
    is_last: bool = False


class _Descent(NamedTuple):
    """Newton's method with damping: `init` evaluates a point, `step` moves on, or returns None if nothing decreases."""

    dataset: Dataset
    free: Free
    bounds: list[Pair]
    care: Care
    ends: Sequence[Solution]

    def init(self, point: Pair) -> _State:
        """A pass over the rows: the log-loss at a point and the step from there."""
        value, gradient, hessian = _in_logs(self.dataset, point, self.care.rough)
        stuck = [
            moves and ((at <= low and slope > 0.0) or (at >= high and slope < 0.0))
            for moves, at, (low, high), slope in zip(self.free, point, self.bounds, gradient, strict=True)
        ]
        step = _newton_step(gradient, hessian, (self.free[0] and not stuck[0], self.free[1] and not stuck[1]))
        return _State(point, value, step, -gradient[0] * step[0] - gradient[1] * step[1], any(stuck))

    def step(self, state: _State) -> _State | None:
        """The next state: after a small enough step the last one; otherwise the longest damped step that decreases."""
        if max(map(abs, state.step)) <= self.care.step:
            return _State(self._part(state, 1.0), state.value - 0.5 * state.gain, is_last=True)
        # A gain below the rounding error is invisible in the value; the gradient still points downhill.
        rounding = 20.0 * max(self.dataset.precision, ROUGH_PRECISION if self.care.rough else 0.0)
        seen = state.gain > rounding * max(1.0, state.value)
        highest = state.value if seen else state.value + rounding
        for share in (1.0, 0.25, 0.05, 0.01, 1e-3):
            new = self.init(self._part(state, share))
            if new.value < highest:
                return new
        return None

    def leads_elsewhere(self, state: _State) -> bool:
        """Whether the state is close to another start's end, or cannot become as low as the best of them."""
        if not self.ends:
            return False
        joins = _joins((math.expm1(state.point[0]), math.exp(state.point[1])), self.ends)
        return joins or (self.care is ROUGH and state.value - 2.0 * state.gain > self.ends[0].value)

    def _part(self, state: _State, share: float) -> Pair:
        (x, y), (dx, dy) = state.point, state.step
        return _inside((x + share * dx, y + share * dy), self.bounds)


def _inside(point: Pair, bounds: list[Pair]) -> Pair:
    (x, y), ((x0, x1), (y0, y1)) = point, bounds
    return min(max(x, x0), x1), min(max(y, y0), y1)


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
