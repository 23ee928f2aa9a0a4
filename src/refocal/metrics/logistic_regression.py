"""Logistic regression of outcomes on log-odds, by Newton's method."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from refocal._arrays import Matrix, Vector
from refocal.errors import DataError
from refocal.metrics.record import BlockSums
from refocal.rows import Predictions


class NoValueError(DataError):
    """Valid rows do not define a measure, such as the slope of probabilities that are all equal."""


def check_exists(value: float, function: str, expected: str) -> float:
    """A value that exists, or an error about the probabilities that have none."""
    if math.isnan(value):
        raise NoValueError("probabilities", function, expected=expected, got="others")
    return value


class LogisticFit(NamedTuple):
    """The coefficients (k,) of least log-loss, and the inverse of its Hessian (k, k), of rows of total weight 1."""

    coefficients: Vector
    inverse_hessian: Matrix


def fit_logistic(
    design: Matrix, ones: Vector, weight: Vector, offset: Vector | float = 0.0, prior_rows: float = 0.0
) -> LogisticFit | None:
    """Minimise Σ w log(1 + e^η) - Σ k η over η = offset + X β, (rows, k), k being the weight of class 1 in each row.

    None where no minimum exists, as where a column separates the classes or is a sum of others. With a prior there
    always is one: prior_rows β²/2 is added.
    """
    most_steps = 60
    tolerance = 1e-20  # of the squared Newton decrement, twice what the log-loss is above its minimum
    flattest = 1e-9  # a Hessian that is this much flatter than at the start has no minimum in that direction
    total = float(weight.sum())
    share = weight / total
    share_of_ones = ones / total
    precision = prior_rows / total

    def loss_at(coefficients: Vector) -> float:
        eta = offset + design @ coefficients
        penalty = 0.5 * precision * float(coefficients @ coefficients)
        # log(1 + e^η), several times faster than by np.logaddexp.
        softplus = np.maximum(eta, 0.0) + np.log1p(np.exp(-np.abs(eta)))
        return float(share @ softplus - share_of_ones @ eta) + penalty

    def derivatives_at(coefficients: Vector) -> tuple[Vector, Matrix]:
        mean = sigmoid(offset + design @ coefficients)
        gradient = design.T @ (share * mean - share_of_ones) + precision * coefficients
        hessian = (design.T * (share * mean * (1.0 - mean))) @ design + precision * np.eye(design.shape[1])
        return gradient, hessian

    coefficients = np.zeros(design.shape[1])
    gradient, hessian = derivatives_at(coefficients)
    scale = np.sqrt(np.diag(hessian))
    if not (scale > 0.0).all():
        return None
    loss = loss_at(coefficients)
    for _ in range(most_steps):
        if np.linalg.eigvalsh(hessian / np.outer(scale, scale))[0] < flattest:
            return None
        step = np.linalg.solve(hessian, gradient)
        if gradient @ step < tolerance:
            return LogisticFit(coefficients, np.linalg.inv(hessian))
        length = 1.0
        proposed = loss_at(coefficients - step)
        while proposed > loss + 1e-15 and length > 1e-6:
            length /= 2.0
            proposed = loss_at(coefficients - length * step)
        coefficients = coefficients - length * step
        loss = proposed
        gradient, hessian = derivatives_at(coefficients)
    # Rounding of the sums may be all that keeps the decrement from the tolerance.
    is_minimum = float(gradient @ np.linalg.solve(hessian, gradient)) < 1e-12
    return LogisticFit(coefficients, np.linalg.inv(hessian)) if is_minimum else None


def sigmoid(eta: Vector) -> Vector:
    """1 / (1 + e^-η), without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * eta)))


def log_odds_of(p: Vector) -> Vector:
    """Log-odds, bounded to those of 2⁻⁵² and 1 - 2⁻⁵²."""
    smallest = 2.0**-52
    inside = np.clip(p, smallest, 1.0 - smallest)
    return np.asarray(np.log(inside) - np.log1p(-inside))


class Outcomes(NamedTuple):
    """Probabilities by rows or cells of rows, with the weight of class 1 and of all in each."""

    p: Vector
    ones: Vector
    weight: Vector

    @classmethod
    def of(cls, source: Predictions | BlockSums) -> Outcomes:
        """Those of rows, or of the fine cells of a histogram, whose rows count as of their mean."""
        if isinstance(source, BlockSums):
            cells = source.histogram.equal_mass().cells
            return cls(np.clip(cells.p, 0.0, 1.0), cells.correct, cells.weight)
        p, happened = source.event_of_column(1)
        return cls(p, source.weights * happened, source.weights)

    @property
    def rate(self) -> float:
        """The share of class 1."""
        return float(self.ones.sum() / self.weight.sum())
