"""Logistic regression with a prior and lower bounds, for the curves that have a few coefficients."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from refocal._arrays import Flags, Vector
from refocal.errors import ConvergenceError
from refocal.maps.row import softplus

Target = Flags | Vector

MAX_STEPS, MAX_HALVINGS = 200, 34
# A ridge that matters only where the rows are uninformative, as when all scores are equal.
TINY = 1e-9
# Scores beyond this many times the median are masks such as -1e9, which would dominate a curve: they are clipped.
MASK_RATIO = 30.0
# The smallest slope of an increasing line, over the range of its scores.
LEAST_RISE = 1e-3
# A step that promises less than this share of the loss is the last one, since Newton's method converges quadratically;
# one that promises less than the second is not worth taking.
SMALL_GAIN, NO_GAIN = 1e-8, 1e-13
# The deviation of the prior of log slope, the degrees of freedom of Student priors, and the relative change of
# a slope that ends its search.
SLOPE_DEVIATION, FREEDOM, SMALL_MOVE = 1.0, 6.0, 1e-6


SmoothLoss = tuple[float, Vector, Vector]
"""A loss with its gradient and Hessian in a few coefficients."""


class Found(NamedTuple):
    """The coefficients of least loss, the loss, and its Hessian close to them."""

    theta: Vector
    value: float
    hessian: Vector


def fit_logistic(
    features: Vector,
    target: Target,
    weight: Vector,
    prior: Vector,
    penalty: Vector,
    lower: Vector,
    start: Vector | None = None,
) -> Found:
    """The θ ≥ lower that minimises Σ w·(log(1+exp(η)) - y·η) + ½(θ-prior)ᵀ·penalty·(θ-prior), η = features·θ.

    Targets y are 0 or 1, or shares between the two. The search begins at `start`, or else at the prior.
    """

    def loss(theta: Vector) -> SmoothLoss:
        eta = features @ theta
        soft = softplus(np, eta)
        p = np.exp(eta - soft)
        curvature = weight * p * np.exp(-soft)
        hessian = (features * curvature[:, None]).T @ features
        return float(weight @ (soft - target * eta)), features.T @ (weight * (p - target)), hessian

    return fit_with_prior(loss, prior, penalty, lower, start)


def fit_with_prior(
    loss: Callable[[Vector], SmoothLoss], prior: Vector, penalty: Vector, lower: Vector, start: Vector | None = None
) -> Found:
    """The θ ≥ lower that minimises a convex loss plus ½(θ-prior)ᵀ·penalty·(θ-prior).

    By Newton's method on the coefficients that are not held by their bound (projected Newton, Bertsekas 1982), with
    steps halved until the loss falls; the last one, which promises next to nothing, is taken unseen.
    """

    def penalised(theta: Vector) -> SmoothLoss:
        (value, gradient, hessian), off = loss(theta), theta - prior
        drawn = penalty @ off
        return value + 0.5 * float(off @ drawn), gradient + drawn, hessian + penalty

    theta = np.maximum(prior if start is None else start, lower)
    value, gradient, hessian = penalised(theta)
    for _ in range(MAX_STEPS):
        free, step = (theta > lower) | (gradient <= 0.0), np.zeros(len(theta))
        step[free] = -np.linalg.solve(hessian[np.ix_(free, free)], gradient[free])
        gain, tried = -float(gradient @ step), theta + step
        if gain <= SMALL_GAIN * (abs(value) + 1.0) and not np.any(tried < lower):
            return Found(tried, value - 0.5 * gain, hessian)
        if gain <= NO_GAIN * (abs(value) + 1.0):
            break
        for halvings in range(MAX_HALVINGS):
            tried = np.maximum(theta + 0.5**halvings * step, lower)
            new = penalised(tried)
            if new[0] < value:
                break
        else:  # the gain is smaller than the rounding of the loss
            break
        theta, (value, gradient, hessian) = tried, new
    else:
        raise ConvergenceError(f"The coefficients of a calibration curve did not settle in {MAX_STEPS} steps.")
    return Found(theta, value, hessian)


def doubtful(is_class: Flags, weight: Vector, doubt: float = 1.0) -> Vector:
    """Platt's targets: (n₊ + 1)/(n₊ + 2) for the n₊ rows of a class and 1/(n₋ + 2) for the others.

    They count both classes once more at the scores of each; a `doubt` of ½ counts that by half.

    >>> doubtful(np.array([True, False, False]), np.ones(3))
    array([0.66666667, 0.25      , 0.25      ])
    """
    others = doubt / (np.where(is_class, weight @ is_class, weight @ ~is_class) + 2.0 * doubt)
    return np.where(is_class, 1.0 - others, others)


def near(score: Vector) -> Vector:
    """Scores clipped where they are so large that they must be masks."""
    far = MASK_RATIO * float(np.median(np.abs(score))) or np.inf
    return np.clip(score, -far, far)


def student(far: Vector) -> tuple[Vector, Vector]:
    """What a Student prior costs at `far` deviations from its centre, and the slope of that.

    The prior is strong where few rows carry little information, and weak where many show that the centre is far off.
    """
    return 0.5 * FREEDOM * np.log1p(far**2 / FREEDOM), far / (1.0 + far**2 / FREEDOM)


def fit_line(
    score: Vector, is_class: Flags, weight: Vector, *, rising: bool = False, drawn: bool = False, doubt: float = 1.0
) -> tuple[float, float]:
    """Slope and intercept in log-odds of least log-loss, to `doubtful` targets; `rising`: a slope above 0.

    `drawn`: the logarithm of the slope has a Student prior around 0. It is taken for the parabola around a slope of 1
    that is as steep where the search stands, until that stays. Scores of an arbitrary scale, as margins are, have a
    second minimum far from a slope of 1, where the prior is no longer convex: the search also begins at the best slope
    without a prior, if that lies there.

    >>> score = np.array([-2.0, -1.0, 1.0, 2.0])
    >>> [round(fit_line(score, score > 0.0, np.ones(4), rising=True, drawn=drawn)[0], 2) for drawn in (False, True)]
    [0.67, 0.82]
    """
    cut = near(score)
    scale = float(np.abs(cut).max()) or 1.0
    features = np.stack([cut / scale, np.ones_like(cut)], axis=1)
    hits = float(weight @ is_class)
    start = np.array([scale if drawn else 0.0, np.log((hits + 1.0) / (float(weight.sum()) - hits + 1.0))])
    lower = np.array([LEAST_RISE if rising else -np.inf, -np.inf])
    target = doubtful(is_class, weight, doubt)

    def fit(steepness: float, theta: Vector) -> Vector:
        return fit_logistic(features, target, weight, start, np.diag([steepness + TINY, TINY]), lower, theta).theta

    def fit_drawn(theta: Vector) -> tuple[float, Vector]:
        for _ in range(MAX_STEPS):
            before = theta[0]
            theta = fit(_steepness(before / scale) / scale**2, theta)
            if abs(theta[0] - before) <= SMALL_MOVE * theta[0]:
                break
        eta = features @ theta
        cost, _ = student(np.log(theta[0] / scale) / SLOPE_DEVIATION)
        return float(weight @ (softplus(np, eta) - target * eta) + cost), theta

    theta = fit(0.0, start)
    if drawn:
        starts = [start, theta] if abs(np.log(theta[0] / scale)) > FREEDOM**0.5 * SLOPE_DEVIATION else [start]
        _, theta = min(map(fit_drawn, starts), key=itemgetter(0))
    return float(theta[0] / scale), float(theta[1])


def _steepness(slope: float) -> float:
    """The curvature of the parabola around 1 that rises at a slope as fast as the prior of its logarithm."""
    _, pull = student(np.log(slope) / SLOPE_DEVIATION)
    return float(pull / (SLOPE_DEVIATION * slope * (slope - 1.0))) if slope != 1.0 else SLOPE_DEVIATION**-2
