"""Minimisers of a smooth function F of x (K,), each evaluation of which is a pass over the rows.

Both methods move from a point x by a share α of a step s that makes F decrease enough,

    x ← x + α s,    F(x + α s) ≤ F(x) + c₁ α gᵀs        (Armijo's rule; Nocedal & Wright 2006, section 3.1)

where g is the gradient. They differ in the step:

    `Newton`   s = -|H|⁻¹ g      a few parameters, within bounds; a pass gives F, g and the Hessian H (section 3.4)
    `LBFGS`    s = -B g          many parameters; a pass gives F and g, past steps an estimate B of H⁻¹ (section 7.2)

The decrement -gᵀs is twice the decrease that a quadratic model of F predicts. Where it is small, the last step is taken
without a pass: close to the minimum the model is right.

A solver is used as by `minimise`, or by a caller that has further reasons to end:

    state = solver.init(solver.evaluate(start))
    while not solver.terminate(state):
        state = solver.step(state)

docs/architecture.md has the passes that both take, beside those of scipy's methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, overload

import numpy as np

from refocal._arrays import Vector

Preconditioner = Callable[[Vector], Vector]
"""From a gradient to the product of it with an estimate of the inverse Hessian."""


class Tolerance(NamedTuple):
    """When a search ends; gains and rounding are relative to the value where that is above 1."""

    gain: float
    """The least decrease, by the quadratic model, for which a further pass is worth its time."""
    rounding: float
    """What the value may be wrong by."""
    max_steps: int
    step: float = 0.0
    """A step that changes no parameter by more than this is the last one."""


class FirstOrder(NamedTuple):
    """F and its gradient (K,) at a point (K,)."""

    point: Vector
    value: float
    gradient: Vector


Numbers = tuple[float, ...]
"""A point or a vector of a few numbers: array functions would take longer than a pass over a thousand rows."""


class SecondOrder(NamedTuple):
    """F, its gradient (K,) and its Hessian (K, K) at a point (K,)."""

    point: Numbers
    value: float
    gradient: Numbers
    hessian: Sequence[Sequence[float]]


Derivatives = tuple[float, Numbers, Sequence[Sequence[float]]]
"""F with its gradient (K,) and Hessian (K, K)."""


class NewtonState(NamedTuple):
    """An evaluated point and the step from it."""

    at: SecondOrder
    step: Numbers
    decrement: float
    at_bound: bool
    """Whether a parameter is held at a bound beyond which F would decrease."""
    n_steps: int
    has_converged: bool = False


class LBFGSState(NamedTuple):
    """An evaluated point, the step from it, and the past steps that give the curvature."""

    at: FirstOrder
    step: Vector
    decrement: float
    corrections: tuple[SecantPair, ...]
    passes: int
    """How often F was evaluated."""
    n_steps: int
    has_converged: bool = False


class SecantPair(NamedTuple):
    """A past step s and the change y of the gradient along it, of which L-BFGS estimates the curvature."""

    step: Vector
    gradient_change: Vector

    @property
    def curvature(self) -> float:
        """sᵀy."""
        return float(self.step @ self.gradient_change)


class Newton:
    """Newton's method for a few parameters x within bounds: lower ≤ x ≤ upper.

    The step -|H|⁻¹g, where |H| has the absolute eigenvalues of H, leads downhill where F is not convex, too (Nocedal &
    Wright 2006, section 3.4). A parameter at its bound whose gradient points out of the feasible region is held there
    (Bertsekas 1982, SIAM J. Control Optim. 20:221); one whose bounds are equal is fixed.

    >>> def cost(x):
    ...     value = 1.5 * x[0] ** 2 + x[0] * x[1] + x[1] ** 2 - x[0] - x[1]
    ...     return value, (3.0 * x[0] + x[1] - 1.0, x[0] + 2.0 * x[1] - 1.0), ((3.0, 1.0), (1.0, 2.0))
    >>> solver = Newton(cost, Tolerance(1e-12, 1e-15, 100), lower=(0.0, 0.0), upper=(9.0, 0.25))
    >>> minimise(solver, solver.evaluate((1.0, 0.0))).at.point
    (0.25, 0.25)
    """

    def __init__(
        self,
        objective: Callable[[Numbers], Derivatives],
        tolerance: Tolerance,
        lower: Sequence[float],
        upper: Sequence[float],
        longest_step: float = math.inf,
    ) -> None:
        self.objective = objective
        self.tolerance = tolerance
        self.lower = tuple(lower)
        self.upper = tuple(upper)
        self.longest_step = longest_step
        """The most that a step may change a parameter by."""

    def evaluate(self, point: Iterable[float]) -> SecondOrder:
        """A pass at the point within the bounds that is closest to the given one."""
        feasible = self._feasible(point)
        return SecondOrder(feasible, *self.objective(feasible))

    def init(self, at: SecondOrder) -> NewtonState:
        """The state at the start."""
        return self._state(at, n_steps=0)

    def step(self, state: NewtonState) -> NewtonState:
        """The state after a step, which is shortened until F decreases; at the end the last step, without a pass."""
        at = state.at
        if self._is_last(state):
            target = self._feasible(_moved(at.point, 1.0, state.step))
            end = at._replace(point=target, value=at.value - 0.5 * state.decrement)
            return state._replace(at=end, has_converged=True)
        least_share = 1e-10  # where F is nearly linear, a Newton step may be as many times too long
        share = 1.0
        while share >= least_share:
            candidate = self.evaluate(_moved(at.point, share, state.step))
            if decreases_enough(at.value, candidate.value, share, state.decrement, self.tolerance.rounding):
                return self._state(candidate, state.n_steps + 1)
            share *= _cubic_minimum(at, candidate)
        return state._replace(has_converged=True)  # what a step gains is below the rounding

    def terminate(self, state: NewtonState) -> bool:
        """Whether the last step was taken, or as many as are allowed."""
        return state.has_converged or state.n_steps >= self.tolerance.max_steps

    def _feasible(self, point: Iterable[float]) -> Numbers:
        """The point within the bounds that is closest to the given one."""
        return tuple(min(max(x, low), high) for x, low, high in zip(point, self.lower, self.upper, strict=True))

    def _is_last(self, state: NewtonState) -> bool:
        """Whether the step is short, or gains little.

        One that gains little may be long: if it leads to a bound, it is not the last, since what is held there changes
        the steps of the others.
        """
        if max(map(abs, state.step)) <= self.tolerance.step:
            return True
        if state.decrement > 2.0 * self.tolerance.gain * max(1.0, abs(state.at.value)):
            return False
        target = _moved(state.at.point, 1.0, state.step)
        return all(
            move == 0.0 or low < x < high
            for x, move, low, high in zip(target, state.step, self.lower, self.upper, strict=True)
        )

    def _state(self, at: SecondOrder, n_steps: int) -> NewtonState:
        """The state at an evaluated point: its step is the Newton step of the parameters that are not held."""
        free = []
        at_bound = False
        for i, (x, slope, low, high) in enumerate(zip(at.point, at.gradient, self.lower, self.upper, strict=True)):
            if low == high:
                continue
            if (x <= low and slope > 0.0) or (x >= high and slope < 0.0):
                at_bound = True
            else:
                free.append(i)
        # Others do not move at all: what rounding moves off its bound would be sent back there again and again.
        step = [0.0] * len(at.point)
        gradient = [at.gradient[i] for i in free]
        hessian = [[at.hessian[i][j] for j in free] for i in free]
        for i, move in zip(free, _newton_step(gradient, hessian), strict=True):
            step[i] = move
        share = min(1.0, self.longest_step / max(*map(abs, step), 1e-300))
        share *= self._share_within_bounds(at.point, [share * move for move in step])
        step_within = tuple(share * move for move in step)
        decrement = -sum(slope * move for slope, move in zip(at.gradient, step_within, strict=True))
        return NewtonState(at, step_within, decrement, at_bound, n_steps)

    def _share_within_bounds(self, point: Numbers, step: list[float]) -> float:
        """The share of a step that ends where it meets a bound, rather than leave its direction.

        A bound that leaves less than a tenth of the step is not stopped at: the step goes on along it.
        """
        least_share = 0.1
        share = 1.0
        for x, move, low, high in zip(point, step, self.lower, self.upper, strict=True):
            room = high - x if move > 0.0 else x - low
            if least_share * abs(move) < room < share * abs(move):
                share = room / abs(move)
        return share


def _moved(point: Numbers, share: float, step: Numbers) -> Numbers:
    """X + α s."""
    return tuple(x + share * move for x, move in zip(point, step, strict=True))


def _newton_step(gradient: list[float], hessian: list[list[float]]) -> list[float]:
    """-|H|⁻¹g, where |H| has the absolute eigenvalues of H, at least 1e-12.

    Of two parameters, the eigenvalues are mean ± radius, and the eigenvector of the larger one has the angle
    ½ atan2(2 h₁₂, h₁₁ - h₂₂).
    """
    least_eigenvalue = 1e-12
    if len(gradient) == 0:
        return []
    if len(gradient) == 1:
        return [-gradient[0] / max(abs(hessian[0][0]), least_eigenvalue)]
    if len(gradient) == 2:
        (h11, h12), (_, h22) = hessian
        mean = 0.5 * (h11 + h22)
        radius = math.hypot(0.5 * (h11 - h22), h12)
        angle = 0.5 * math.atan2(2.0 * h12, h11 - h22)
        cos = math.cos(angle)
        sin = math.sin(angle)
        along_first = -(cos * gradient[0] + sin * gradient[1]) / max(abs(mean + radius), least_eigenvalue)
        along_second = -(cos * gradient[1] - sin * gradient[0]) / max(abs(mean - radius), least_eigenvalue)
        return [cos * along_first - sin * along_second, sin * along_first + cos * along_second]
    eigenvalues, eigenvectors = np.linalg.eigh(np.array(hessian))
    along = -(eigenvectors.T @ gradient) / np.maximum(np.abs(eigenvalues), least_eigenvalue)
    step: list[float] = (eigenvectors @ along).tolist()
    return step


class LBFGS:
    """L-BFGS for many parameters, preconditioned by an estimate of the Hessian (Nocedal & Wright 2006, algorithm 7.5).

    >>> hessian = np.array([[3.0, 1.0], [1.0, 2.0]])
    >>> quadratic = lambda x: (0.5 * x @ hessian @ x - x.sum(), hessian @ x - 1.0)
    >>> solver = LBFGS(quadratic, lambda g: g / np.diag(hessian), Tolerance(1e-12, 1e-15, 100))
    >>> minimum = minimise(solver, solver.evaluate(np.zeros(2)))
    >>> minimum.at.point.round(6), minimum.has_converged
    (array([0.2, 0.4]), True)
    """

    SHARES = (1.0, 0.3, 0.1, 0.02, 1e-3)
    """The shares of a step that are tried, one after the other."""

    def __init__(
        self, objective: Callable[[Vector], tuple[float, Vector]], precondition: Preconditioner, tolerance: Tolerance
    ) -> None:
        self.objective = objective
        self.precondition = precondition
        self.tolerance = tolerance

    def evaluate(self, point: Vector) -> FirstOrder:
        """A pass at a point."""
        value, gradient = self.objective(point)
        return FirstOrder(point, value, gradient)

    def init(self, at: FirstOrder) -> LBFGSState:
        """The state at the start."""
        return self._state(at, (), passes=1, n_steps=0)

    def step(self, state: LBFGSState) -> LBFGSState:
        """The state after a step, which is shortened until F decreases; at the end the last step, without a pass."""
        at = state.at
        if state.decrement <= 2.0 * self.tolerance.gain * max(1.0, abs(at.value)):
            end = at._replace(point=at.point + state.step, value=at.value - 0.5 * state.decrement)
            return state._replace(at=end, has_converged=True)
        for n_passes, share in enumerate(self.SHARES, start=1):
            candidate = self.evaluate(at.point + share * state.step)
            if decreases_enough(at.value, candidate.value, share, state.decrement, self.tolerance.rounding):
                corrections = self._with_correction(state.corrections, at, candidate)
                return self._state(candidate, corrections, state.passes + n_passes, state.n_steps + 1)
        # What a step gains is below the rounding.
        return state._replace(has_converged=True, passes=state.passes + len(self.SHARES))

    def terminate(self, state: LBFGSState) -> bool:
        """Whether the last step was taken, or as many as are allowed."""
        return state.has_converged or state.n_steps >= self.tolerance.max_steps

    def _with_correction(
        self, corrections: tuple[SecantPair, ...], start: FirstOrder, end: FirstOrder
    ) -> tuple[SecantPair, ...]:
        """The past steps of a state, with the last one if F is convex along it."""
        memory = 10  # the number of past steps from which the curvature is estimated
        correction = SecantPair(end.point - start.point, end.gradient - start.gradient)
        return (*corrections, correction)[-memory:] if correction.curvature > 0.0 else corrections

    def _state(self, at: FirstOrder, corrections: tuple[SecantPair, ...], passes: int, n_steps: int) -> LBFGSState:
        step = -_inverse_hessian_product(at.gradient, corrections, self.precondition)
        return LBFGSState(at, step, -float(at.gradient @ step), corrections, passes, n_steps)


def _inverse_hessian_product(
    gradient: Vector, corrections: tuple[SecantPair, ...], precondition: Preconditioner
) -> Vector:
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


def decreases_enough(value: float, new_value: float, share: float, decrement: float, rounding: float) -> bool:
    """Armijo's rule, up to rounding: whether F decreases by a small part of what the gradient promises."""
    sufficient_decrease = 1e-4  # Nocedal & Wright's c₁
    slack = rounding * max(1.0, abs(value))
    return new_value <= value - sufficient_decrease * share * decrement + slack


def _cubic_minimum(start: SecondOrder, end: SecondOrder) -> float:
    """Where the cubic with the values and slopes of two points is lowest between them, as a share of the way.

    Nocedal & Wright (2006), equation 3.59; kept between 0.02 and 0.9, so that a step is neither given up at once nor
    hardly shortened.
    """
    least = 0.02
    way = np.subtract(end.point, start.point)
    slope_at_start = float(way @ start.gradient)
    slope_at_end = float(way @ end.gradient)
    d1 = slope_at_start + slope_at_end - 3.0 * (end.value - start.value)
    d2 = math.sqrt(max(d1 * d1 - slope_at_start * slope_at_end, 0.0))
    denominator = slope_at_end - slope_at_start + 2.0 * d2
    if not 0.0 < denominator < math.inf:  # F may have overflowed
        return least
    return min(max(1.0 - (slope_at_end + d2 - d1) / denominator, least), 0.9)


@overload
def minimise(solver: Newton, at: SecondOrder) -> NewtonState: ...


@overload
def minimise(solver: LBFGS, at: FirstOrder) -> LBFGSState: ...


def minimise(solver: Any, at: Any) -> Any:
    """The state in which a search ends that starts at an evaluated point."""
    state = solver.init(at)
    while not solver.terminate(state):
        state = solver.step(state)
    return state
