"""Logistic regression with a normal prior and lower bounds, for curves that have a few coefficients.

Everything here minimises, over coefficients θ ≥ lower (K numbers),

    F(θ) = L(θ) + ½ (θ - θ₀)ᵀ P (θ - θ₀)

of a convex loss L, the mean θ₀ of a normal prior and its precision matrix P. The loss is a log-loss over N rows with
weights w and targets y between 0 and 1: L(θ) = Σ wᵢ (log(1 + exp ηᵢ) - yᵢ ηᵢ), where η are the fitted log-odds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from refocal._arrays import Flags, Vector
from refocal.errors import ConvergenceError
from refocal.fitting.solver import Derivatives, Newton, Numbers, Tolerance, minimise
from refocal.maps.row import softplus

Target = Flags | Vector
"""For each row whether the class occurred, or a share between 0 and 1."""

SmoothLoss = tuple[float, Vector, Vector]
"""A loss with its gradient (K,) and Hessian (K, K)."""

# The least increase of an increasing line over the range of its scores, in log-odds.
LEAST_RISE = 1e-3
# The standard deviation of the logarithm of a slope around 0, where a line is shrunk towards a slope of 1.
SLOPE_DEVIATION = 1.0
# ν of all Student priors: their degrees of freedom and one more, see `student_penalty`.
STUDENT_FREEDOM = 6.0


class PenalisedFit(NamedTuple):
    """Where the search ended: the coefficients θ (K,), F(θ), and the Hessian (K, K) of F there or one step before."""

    theta: Vector
    value: float
    hessian: Vector


# F is a sum over rows, so that its rounding is a few digits below 1e-13. Newton's method converges quadratically: after
# a last step that gains 5e-9 of F, the error is about 1e-16.
TOLERANCE = Tolerance(gain=5e-9, rounding=1e-13, max_steps=200)


def fit_logistic(
    features: Vector,
    target: Target,
    weight: Vector,
    prior: Vector,
    penalty: Vector,
    lower: Vector,
    start: Vector | None = None,
) -> PenalisedFit:
    """Logistic regression with a normal prior: η = Xθ, features X (N, K), targets and weights (N,).

    The prior has mean `prior` (K,) and precision matrix `penalty` (K, K). The search begins at `start`, or else at the
    mean of the prior.
    """

    def log_loss(theta: Vector) -> SmoothLoss:
        eta = features @ theta
        softplus_eta = softplus(np, eta)
        p = np.exp(eta - softplus_eta)
        curvature = weight * p * np.exp(-softplus_eta)  # w p (1 - p)
        value = float(weight @ (softplus_eta - target * eta))
        gradient = features.T @ (weight * (p - target))
        hessian = (features * curvature[:, None]).T @ features
        return value, gradient, hessian

    return fit_with_prior(log_loss, prior, penalty, lower, start)


def fit_with_prior(
    loss: Callable[[Vector], SmoothLoss], prior: Vector, penalty: Vector, lower: Vector, start: Vector | None = None
) -> PenalisedFit:
    """The θ ≥ lower of least F(θ), by Newton's method."""

    def penalised(point: Numbers) -> Derivatives:
        theta = np.array(point)
        value, gradient, hessian = loss(theta)
        residual = theta - prior
        penalty_gradient = penalty @ residual
        penalised_value = value + 0.5 * float(residual @ penalty_gradient)
        return penalised_value, (gradient + penalty_gradient).tolist(), (hessian + penalty).tolist()

    solver = Newton(penalised, TOLERANCE, lower.tolist(), [math.inf] * len(lower))
    state = minimise(solver, solver.evaluate((prior if start is None else start).tolist()))
    if not state.has_converged:
        raise ConvergenceError(
            f"The coefficients of a calibration curve did not settle in {TOLERANCE.max_steps} steps."
        )
    return PenalisedFit(np.array(state.at.point), state.at.value, np.array(state.at.hessian))


def platt_targets(is_class: Flags, weight: Vector, pseudo_count: float = 1.0) -> Vector:
    """Platt's (1999) targets: (n₊ + 1)/(n₊ + 2) for the n₊ rows of a class and 1/(n₋ + 2) for the n₋ others.

    They add one row of either class to the scores of each; a `pseudo_count` of ½ adds half a row, 0 none.

    >>> platt_targets(np.array([True, False, False]), np.ones(3))
    array([0.66666667, 0.25      , 0.25      ])
    """
    n_alike = np.where(is_class, weight @ is_class, weight @ ~is_class)
    opposite = pseudo_count / (n_alike + 2.0 * pseudo_count)
    return np.where(is_class, 1.0 - opposite, opposite)


def clip_masks(score: Vector) -> Vector:
    """Scores clipped to 30 times their median size: larger ones are masks such as -1e9, which would dominate a fit.

    Where most rows have scores near 0 the median says nothing about the others: no log-odds up to 30 are a mask.
    """
    largest = 30.0 * max(1.0, float(np.median(np.abs(score))))
    return np.clip(score, -largest, largest)


def student_penalty(deviations: Vector) -> tuple[Vector, Vector]:
    """½ν log(1 + d²/ν) and its derivative d / (1 + d²/ν), with ν = STUDENT_FREEDOM.

    Up to a constant it is the negative logarithm of a Student density with ν - 1 degrees of freedom and the scale
    √(ν / (ν - 1)), which makes the second derivative at the centre 1. d is the distance from the centre in standard
    deviations of the normal prior ½d² that it is close to there; far from it, where many rows show that the centre is
    wrong, it hardly resists them.
    """
    ratio = deviations**2 / STUDENT_FREEDOM
    return 0.5 * STUDENT_FREEDOM * np.log1p(ratio), deviations / (1.0 + ratio)


class _LineProblem:
    """The regression of a class on one score, η = slope · score + intercept, with the score scaled to [-1, 1].

    θ = (slope · scale, intercept). A tiny ridge decides where the rows do not, as when all scores are equal; the slope
    has none where it has a penalty, which scores of 10⁸ make smaller than any ridge.
    """

    RIDGE = 1e-9

    def __init__(self, score: Vector, is_class: Flags, weight: Vector, least_slope: float, pseudo_count: float) -> None:
        clipped = clip_masks(score)
        self.scale = float(np.abs(clipped).max()) or 1.0
        self.features = np.stack([clipped / self.scale, np.ones_like(clipped)], axis=1)
        self.target = platt_targets(is_class, weight, pseudo_count)
        self.weight = weight
        self.lower = np.array([least_slope, -np.inf])
        n_class = float(weight @ is_class)
        self.log_odds_of_class = np.log((n_class + 1.0) / (float(weight.sum()) - n_class + 1.0))

    def fit(self, centre: Vector, slope_penalty: float, start: Vector) -> Vector:
        """θ of least log-loss plus ½ slope_penalty (θ₁ - centre₁)²."""
        penalty = np.diag([slope_penalty or self.RIDGE, self.RIDGE])
        return fit_logistic(self.features, self.target, self.weight, centre, penalty, self.lower, start).theta

    def log_loss(self, theta: Vector) -> float:
        """Σ w (log(1 + exp η) - y η)."""
        eta = self.features @ theta
        return float(self.weight @ (softplus(np, eta) - self.target * eta))

    def slope_and_intercept(self, theta: Vector) -> tuple[float, float]:
        """Of the scores as they were given."""
        return float(theta[0] / self.scale), float(theta[1])


def fit_line(
    score: Vector, is_class: Flags, weight: Vector, *, increasing: bool = False, pseudo_count: float = 1.0
) -> tuple[float, float]:
    """Slope and intercept in log-odds of least log-loss to `platt_targets`; `increasing`: with a slope above 0.

    >>> score = np.array([-2.0, -1.0, 1.0, 2.0])
    >>> round(fit_line(score, score > 0.0, np.ones(4))[0], 2)
    0.67
    """
    least_slope = LEAST_RISE if increasing else -np.inf
    problem = _LineProblem(score, is_class, weight, least_slope, pseudo_count)
    constant = np.array([0.0, problem.log_odds_of_class])
    theta = problem.fit(constant, 0.0, constant)
    return problem.slope_and_intercept(theta)


def fit_shrunk_line(
    score: Vector, is_class: Flags, weight: Vector, *, pseudo_count: float = 1.0
) -> tuple[float, float]:
    """Slope above 0 and intercept as in `fit_line`, with a Student prior of the log-slope around 0.

    The prior is replaced by the parabola around a slope of 1 that is as steep at the current slope, and the parabola
    renewed until the slope stays. The first slope is the best one without a prior. Far from 1 the prior is not convex,
    and scores of an arbitrary scale, as margins are, have a second minimum there: where that slope lies that far, 1 is
    tried as the first slope too, and the lower of the two minima is returned.

    >>> score = np.array([-2.0, -1.0, 1.0, 2.0])
    >>> round(fit_shrunk_line(score, score > 0.0, np.ones(4))[0], 2)
    0.82
    """
    problem = _LineProblem(score, is_class, weight, LEAST_RISE, pseudo_count)
    slope_of_one = np.array([problem.scale, problem.log_odds_of_class])

    # From a slope of 0: one of 1 may be so far too steep that the log-loss of most rows is straight there.
    constant = np.array([LEAST_RISE, problem.log_odds_of_class])
    unshrunk = problem.fit(constant, 0.0, constant)
    unshrunk_slope = float(unshrunk[0] / problem.scale)

    def fit_from(slope: float) -> tuple[float, Vector]:
        """The penalised log-loss and θ of the minimum that a first slope leads to."""
        relative_tolerance = 1e-6  # of the slope
        theta = unshrunk
        for _ in range(TOLERANCE.max_steps):
            previous = slope
            theta = problem.fit(slope_of_one, _matching_curvature(previous) / problem.scale**2, theta)
            slope = float(theta[0] / problem.scale)
            if abs(slope - previous) <= relative_tolerance * slope:
                break
        penalty, _ = student_penalty(np.log(slope) / SLOPE_DEVIATION)
        return float(problem.log_loss(theta) + penalty), theta

    value, theta = fit_from(unshrunk_slope)
    # A Student prior is convex up to √ν deviations.
    if abs(np.log(unshrunk_slope)) > STUDENT_FREEDOM**0.5 * SLOPE_DEVIATION:
        other_value, other_theta = fit_from(1.0)
        if other_value <= value:
            theta = other_theta
    return problem.slope_and_intercept(theta)


def _matching_curvature(slope: float) -> float:
    """The second derivative c of ½c (slope - 1)² whose first derivative at `slope` is that of the log-slope's prior."""
    if slope == 1.0:
        return SLOPE_DEVIATION**-2
    _, gradient = student_penalty(np.log(slope) / SLOPE_DEVIATION)
    return float(gradient / (SLOPE_DEVIATION * slope * (slope - 1.0)))
