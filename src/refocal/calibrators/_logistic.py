"""Logistic regression with a prior and lower bounds, for the curves that have a few coefficients."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from refocal.errors import ConvergenceError

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Target = NDArray[np.bool_] | NDArray[np.float64]

MAX_STEPS = 200
# A step that promises less than this share of the loss is the last one.
SMALL_GAIN = 1e-13


def softplus(x: Vector) -> Vector:
    """log(1 + exp(x)); minus it is the logarithm of a probability whose log-odds are -x."""
    return np.logaddexp(0.0, x)


def fit_logistic(
    features: Matrix, target: Target, weight: Vector, prior: Vector, penalty: Matrix, lower: Vector
) -> Vector:
    """The θ ≥ lower that minimises Σ w·(log(1+exp(η)) - y·η) + ½(θ-prior)ᵀ·penalty·(θ-prior), η = features·θ.

    Targets y are 0 or 1, or shares between the two.

    By Newton's method on the coefficients that are not held by their bound (projected Newton, Bertsekas 1982), with
    steps halved until the loss falls. The loss is convex, and strictly so where the penalty is positive definite.
    """
    theta = np.maximum(prior, lower)
    value = _loss(theta, features, target, weight, prior, penalty)
    for _ in range(MAX_STEPS):
        eta = features @ theta
        p = np.exp(-softplus(-eta))
        gradient = features.T @ (weight * (p - target)) + penalty @ (theta - prior)
        curvature = weight * p * np.exp(-softplus(eta))
        hessian = (features * curvature[:, None]).T @ features + penalty
        held = (theta <= lower) & (gradient > 0.0)
        step = np.zeros_like(theta)
        step[~held] = -np.linalg.solve(hessian[np.ix_(~held, ~held)], gradient[~held])
        gain = -float(gradient @ step)
        if gain <= SMALL_GAIN * (abs(value) + 1.0):
            return theta
        size = 1.0
        while size > 1e-10:
            tried = np.maximum(theta + size * step, lower)
            found = _loss(tried, features, target, weight, prior, penalty)
            if found < value:
                break
            size *= 0.5
        else:  # the gain is smaller than the rounding of the loss
            return theta
        theta, value = tried, found
    raise ConvergenceError(f"The coefficients of a calibration curve did not settle in {MAX_STEPS} steps.")


def _loss(theta: Vector, features: Matrix, target: Target, weight: Vector, prior: Vector, penalty: Matrix) -> float:
    eta = features @ theta
    off = theta - prior
    return float(weight @ (target * softplus(-eta) + (1 - target) * softplus(eta)) + 0.5 * off @ penalty @ off)
