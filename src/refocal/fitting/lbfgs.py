"""L-BFGS for smooth convex functions of many parameters, preconditioned by an estimate of their Hessian."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from refocal._arrays import Vector

LossAndGradient = Callable[[Vector], tuple[float, Vector]]
Preconditioner = Callable[[Vector], Vector]
"""From a gradient to the product of it with an estimate of the inverse Hessian."""

# The shares of a step that a line search tries, one after the other.
SHARES = (1.0, 0.3, 0.1, 0.02, 1e-3)


class Tolerance(NamedTuple):
    """When a search ends; gains and rounding are relative to the value where that is above 1."""

    gain: float
    """The least decrease, by the quadratic model, for which a further pass is worth its time."""
    rounding: float
    """What the value may be wrong by."""
    max_steps: int


class Minimum(NamedTuple):
    """Where a search ended; `passes` counts how often the objective was computed."""

    point: Vector
    value: float
    converged: bool
    passes: int


class _Correction(NamedTuple):
    """A past step s and the change y of the gradient along it, of which L-BFGS estimates the curvature."""

    step: Vector
    gradient_change: Vector

    @property
    def curvature(self) -> float:
        """sᵀy."""
        return float(self.step @ self.gradient_change)


def minimise(
    objective: LossAndGradient,
    start: Vector,
    precondition: Preconditioner,
    tolerance: Tolerance,
    *,
    at_start: tuple[float, Vector] | None = None,
) -> Minimum:
    """The minimum of a convex function with its gradient, by L-BFGS (Nocedal & Wright 2006, algorithm 7.5).

    A step is shortened until the function decreases enough (Armijo's rule). The last one is taken without evaluating
    the function: what it gains is less than the tolerance. `at_start`: value and gradient at the start, where they are
    known already.

    >>> import numpy as np
    >>> hessian = np.array([[3.0, 1.0], [1.0, 2.0]])
    >>> quadratic = lambda x: (0.5 * x @ hessian @ x - x.sum(), hessian @ x - 1.0)
    >>> minimum = minimise(quadratic, np.zeros(2), lambda g: g / np.diag(hessian), Tolerance(1e-12, 1e-15, 100))
    >>> minimum.point.round(6), minimum.converged
    (array([0.2, 0.4]), True)
    """
    sufficient_decrease = 1e-4  # the share of the decrease that the gradient promises; Nocedal & Wright's c₁
    memory = 10  # the number of past steps from which the curvature is estimated
    point = start
    value, gradient = objective(start) if at_start is None else at_start
    passes = 1
    corrections: deque[_Correction] = deque(maxlen=memory)
    for _ in range(tolerance.max_steps):
        step = -_inverse_hessian_product(gradient, corrections, precondition)
        promise = -float(gradient @ step)  # twice the decrease of the quadratic model
        unit = max(1.0, abs(value))
        if promise <= 2.0 * tolerance.gain * unit:
            return Minimum(point + step, value - 0.5 * promise, True, passes)
        for share in SHARES:
            new_value, new_gradient = objective(point + share * step)
            passes += 1
            if new_value <= value - sufficient_decrease * share * promise + tolerance.rounding * unit:
                break
        else:  # what the step gains is below the rounding
            return Minimum(point, value, True, passes)
        gradient_change = new_gradient - gradient
        if share * float(step @ gradient_change) > 0.0:
            corrections.append(_Correction(share * step, gradient_change))
        point = point + share * step
        value = new_value
        gradient = new_gradient
    return Minimum(point, value, False, passes)


def _inverse_hessian_product(gradient: Vector, corrections: deque[_Correction], precondition: Preconditioner) -> Vector:
    """The gradient times the inverse Hessian: L-BFGS's two-loop recursion (Nocedal & Wright 2006, algorithm 7.4).

    The initial matrix is the preconditioner, scaled by the curvature along the last step.
    """
    product = gradient
    projections = []
    for correction in reversed(corrections):
        projection = float(correction.step @ product) / correction.curvature
        projections.append(projection)
        product = product - projection * correction.gradient_change
    product = precondition(product)
    if corrections:
        last = corrections[-1]
        product = product * (last.curvature / float(last.gradient_change @ precondition(last.gradient_change)))
    for correction, projection in zip(corrections, reversed(projections), strict=True):
        overlap = float(correction.gradient_change @ product) / correction.curvature
        product = product + (projection - overlap) * correction.step
    return product
