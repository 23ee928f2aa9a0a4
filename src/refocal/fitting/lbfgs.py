"""L-BFGS for smooth convex functions of many parameters, whose scale is known from a part of their curvature."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from refocal._arrays import Vector

# The number of last steps from which the curvature is estimated.
MEMORY = 10
# The share of the promised decrease that a step must reach, and the factors by which it is shortened until it does.
KEPT, SHORTER = 1e-4, (1.0, 0.3, 0.1, 0.02, 1e-3)

LossAndGradient = Callable[[Vector], tuple[float, Vector]]
Solve = Callable[[Vector], Vector]


class Ends(NamedTuple):
    """When a search ends: at a step that promises too little, relative to the value if that is above 1, or at the last.

    `rounding` is what the value may be off by, in the same units.
    """

    gain: float
    rounding: float
    steps: int


class Minimum(NamedTuple):
    """Where a search ended; `passes` counts how often the objective was computed."""

    point: Vector
    value: float
    converged: bool
    passes: int


def minimise(objective: LossAndGradient, point: Vector, solve: Solve, ends: Ends) -> Minimum:
    """The minimum of a convex function with its gradient; `solve` divides a gradient by an estimate of the curvature.

    The last step is taken unseen: what it promises is less than what matters.

    >>> import numpy as np
    >>> curvature = np.array([[3.0, 1.0], [1.0, 2.0]])
    >>> bowl = lambda x: (0.5 * x @ curvature @ x - x.sum(), curvature @ x - 1.0)
    >>> found = minimise(bowl, np.zeros(2), lambda slope: slope / np.diag(curvature), Ends(1e-12, 1e-15, 100))
    >>> found.point.round(6), found.converged
    (array([0.2, 0.4]), True)
    """
    (value, slope), passes = objective(point), 1
    past: deque[tuple[Vector, Vector]] = deque(maxlen=MEMORY)
    for _ in range(ends.steps):
        step = -_solved(slope, past, solve)
        promise = -float(slope @ step)
        unit = max(1.0, abs(value))
        if promise <= 2.0 * ends.gain * unit:
            return Minimum(point + step, value - 0.5 * promise, True, passes)
        for share in SHORTER:
            new_value, new_slope = objective(point + share * step)
            passes += 1
            if new_value <= value - KEPT * share * promise + ends.rounding * unit:
                break
        else:  # the gain is below the rounding
            return Minimum(point, value, True, passes)
        change = new_slope - slope
        if share * float(step @ change) > 0.0:
            past.append((share * step, change))
        point, value, slope = point + share * step, new_value, new_slope
    return Minimum(point, value, False, passes)


def _solved(slope: Vector, past: deque[tuple[Vector, Vector]], solve: Solve) -> Vector:
    """The slope divided by the curvature: that of the past steps, and that of `solve` in all other directions."""
    found, shares = slope, []
    for step, change in reversed(past):
        shares.append(float(step @ found) / float(step @ change))
        found = found - shares[-1] * change
    found = solve(found)
    if past:  # the curvature along the last step, relative to that of `solve`
        step, change = past[-1]
        found = found * (float(step @ change) / float(change @ solve(change)))
    for (step, change), share in zip(past, reversed(shares), strict=True):
        found = found + (share - float(change @ found) / float(step @ change)) * step
    return found
