"""The steps after a scaling: the focal map, a temperature and a curve of the confidence, fitted together."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from refocal._arrays import Vector, namespace, to_numpy
from refocal.engine import Block
from refocal.fitting.curves import ShrunkCurve, Splines, fit_curve, rising_order
from refocal.fitting.logistic import student_penalty
from refocal.fitting.newton import matching_beta
from refocal.fitting.solver import LBFGS, FirstOrder, Tolerance, minimise
from refocal.maps.chain import Step
from refocal.maps.curves import Confidence, Pieces
from refocal.maps.row import softplus
from refocal.maps.steps import Focal, Temperature

# The standard deviations of log(1+γ), and of log T less the value that undoes the sharpening by γ, around 0.
DEVIATIONS = np.array([0.4, 0.15])


class SearchSettings(NamedTuple):
    """How γ, T and the curve are searched; u = (log(1+γ), log T)."""

    draft_rows: int = 3_000
    """About how many rows suffice for a draft."""
    max_rows: int = 20_000
    """The most rows that γ and T are searched on at the end."""
    trust_radius: float = 0.4
    """How far from the point of a pass, in each of u, the log-odds of the rows are taken to be quadratic in u."""
    small_move: float = 0.1
    """A move in u after which no further pass is needed."""
    max_passes: int = 8


SEARCH = SearchSettings()


class Tail(NamedTuple):
    """The steps after a scaling: u = (log(1+γ), log T) and a curve; the rows are first divided by a temperature."""

    point: Vector
    curve: ShrunkCurve | None
    inner_temperature: float = 1.0

    @property
    def gamma(self) -> float:
        """γ of the focal map."""
        return math.expm1(self.point[0])

    @property
    def temperature(self) -> float:
        """T, which comes before the focal map."""
        return math.exp(self.point[1])

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of a chain, without the inner temperature."""
        scaled = (Temperature(self.temperature), Focal(self.gamma))
        return scaled if self.curve is None else (*scaled, Confidence(Pieces.of(self.curve.pieces)))


IDENTITY = Tail(np.zeros(2), None)


def draft_tail(rows: Block, start: Tail = IDENTITY) -> Tail:
    """The tail that `fit_tail` returns, from some of the rows where there are many: enough to start from or to measure.

    The search begins at the tail of other rows.
    """
    rows = _with_alternatives(rows)
    if rows.n_rows == 0:
        return start
    stride = max(1, rows.n_rows // SEARCH.draft_rows)
    all_rows = stride == 1
    tail = _search(rows.take(slice(None, None, stride)), start, keep_strength=not all_rows)
    if all_rows:
        log_odds, _ = _split(rows, tail)
        tail = tail._replace(curve=fit_curve(log_odds, rows.correct, rows.weights))
    return tail


def tail_losses(rows: Block, tail: Tail) -> Vector:
    """The log-loss of every row after a tail (N,)."""
    log_odds, log_share = _split(rows, tail)
    curved = log_odds if tail.curve is None else Splines(tail.curve.knots, log_odds).at(tail.curve.theta)
    return np.asarray(softplus(np, np.where(rows.correct, -curved, curved)) - log_share)


def fit_tail(rows: Block, draft: Tail) -> Tail:
    """γ, T and the curve of the confidence of least log-loss and prior, for scores that a scaling gave."""
    rows = _with_alternatives(rows)
    if rows.n_rows < 2 * SEARCH.draft_rows:
        return draft  # which was fitted on all rows
    some = rows if rows.n_rows <= SEARCH.max_rows else rows.part(SEARCH.max_rows)
    tail = _search(some, draft, keep_strength=True)
    log_odds, _ = _split(rows, tail)
    return tail._replace(curve=fit_curve(log_odds, rows.correct, rows.weights, tail.curve))


def _with_alternatives(rows: Block) -> Block:
    """The rows in which more than one class can occur.

    The others say nothing about confidence. At log-odds of 10^8 they would only keep the last slope of a curve above 0.
    """
    xp = namespace(rows.logits)
    possible = rows.logits > -xp.inf
    if bool(xp.all(possible)):
        return rows
    has_alternatives = to_numpy(xp.sum(xp.astype(possible, xp.int32), axis=-1) > 1)
    return rows if has_alternatives.all() else rows.take(has_alternatives)


def _search(rows: Block, tail: Tail, *, keep_strength: bool) -> Tail:
    """Improve a tail until it moves little; knots and strength of its curve are kept, or chosen again by each pass."""
    for _ in range(SEARCH.max_passes):
        start = tail if keep_strength else tail._replace(curve=None)
        improved = _improved(rows, start)
        move = np.abs(improved.point - tail.point).max()
        tail = improved
        if move < SEARCH.small_move:
            break
    return tail


def _split(rows: Block, tail: Tail) -> tuple[Vector, Vector]:
    """The log-odds of the top class, and the logarithm of the label's share among the others (0 if it is the top)."""
    least = 1e-12  # a probability as close to 0 or 1 counts as this close
    (predictions,) = rows.predictions((tail.gamma,), tail.inner_temperature * tail.temperature, rough=True)
    confidence = np.clip(predictions.confidence, least, 1.0 - max(least, rows.precision))
    log_rest = np.log1p(-confidence)
    log_share = np.where(rows.correct, 0.0, predictions.label_log_p - log_rest)
    return np.log(confidence) - log_rest, log_share


def _improved(rows: Block, tail: Tail) -> Tail:
    """The tail of least penalised log-loss within the trust region around a tail.

    One pass over the logits gives the local model of `_LocalObjective`; L-BFGS then minimises it, preconditioned by its
    Hessian at the start. Without a curve, one is fitted at the point first.
    """
    log_odds, log_share = rows.split(*_pass_at(tail), rough=True)
    order = rising_order(log_odds[0])  # a spline of sorted scores takes half the time
    log_odds = log_odds[:, order]
    weight = rows.weights[order]
    correct = rows.correct[order].astype(np.float64)
    curve = tail.curve or fit_curve(log_odds[0], correct, weight)
    if curve is None:
        return tail
    objective = _LocalObjective(tail, curve, log_odds, log_share @ rows.weights, correct, weight)
    start = np.concatenate([np.zeros(2), curve.theta])
    value, gradient, theta_hessian = objective.evaluate(start)
    eigenvalues, eigenvectors = np.linalg.eigh(objective.hessian(start, gradient, theta_hessian))
    least_eigenvalue = 0.1  # in rows; the sign is dropped, so that the preconditioner is positive definite
    eigenvalues = np.maximum(np.abs(eigenvalues), least_eigenvalue)

    def precondition(gradient: Vector) -> Vector:
        return np.asarray(eigenvectors @ (eigenvectors.T @ gradient / eigenvalues))

    solver = LBFGS(objective.value_and_gradient, precondition, Tolerance(gain=1e-8, rounding=1e-12, max_steps=50))
    minimum = minimise(solver, FirstOrder(start, value, gradient)).at
    lowest = np.array([-1.5, -3.0])
    highest = np.array([3.0, 3.0])
    point = np.clip(tail.point + objective.shift(minimum.point), lowest, highest)
    return tail._replace(point=point, curve=curve._replace(theta=minimum.point[2:]))


def _pass_at(tail: Tail) -> tuple[float, float]:
    """γ and the temperature, with the inner one, at which the rows of a tail are evaluated."""
    one_plus_gamma = math.exp(tail.point[0])
    inverse_temperature = math.exp(-tail.point[1]) / tail.inner_temperature
    return one_plus_gamma - 1.0, 1.0 / inverse_temperature


class _LocalObjective:
    """The penalised log-loss around a tail, a function of x = (v, θ): two numbers and the coefficients of the curve.

    v moves u = (log(1+γ), log T) from u₀ by the shift δ = R tanh(v), which stays within the trust radius R. Up to the
    second order in δ, with the derivatives of a pass at u₀, the log-odds of the top class of each row are

        s(δ) = s + δᵀ∇s + ½ δᵀ∇²s δ

    and so is r(δ), the logarithm of the label's share among the other classes. With the curve f_θ, y = 1 where the top
    class is right, weights w, the identity θ₀ and the penalty P of the curve,

        F(x) = Σ w (log(1 + exp f_θ(s(δ))) - y f_θ(s(δ))) - Σ w r(δ) + prior(u₀ + δ) + ½ (θ - θ₀)ᵀ P (θ - θ₀).

    `log_odds` (6, N) has a row for s and each of its derivatives in γ, b, γγ, γb and bb, where b = 1/T;
    `log_share_sums` (6,) has Σ w r and its derivatives.
    """

    def __init__(
        self,
        tail: Tail,
        curve: ShrunkCurve,
        log_odds: Vector,
        log_share_sums: Vector,
        correct: Vector,
        weight: Vector,
    ) -> None:
        self.point = tail.point
        self.curve = curve
        self.log_odds = log_odds
        self.log_share_sums = log_share_sums
        self.correct = correct
        self.weight = weight
        self.chain_rule = _chain_rule(tail)
        self.penalty = curve.penalty
        self._score_gradient = np.empty(len(weight))

    def shift(self, x: Vector) -> Vector:
        """δ, the change of u."""
        return SEARCH.trust_radius * np.tanh(x[:2])

    def value_and_gradient(self, x: Vector) -> tuple[float, Vector]:
        """F and its gradient in x."""
        value, gradient, _ = self.evaluate(x)
        return value, gradient

    def evaluate(self, x: Vector) -> tuple[float, Vector, Vector]:
        """F, its gradient in x, and its Hessian in θ alone."""
        shift = self.shift(x)
        theta = x[2:]
        a, b = shift
        # Taylor's coefficients of the value, of its derivative in the first number of u, and of that in the second.
        taylor = np.array([[1.0, a, b, 0.5 * a * a, a * b, 0.5 * b * b], [0, 1, 0, a, b, 0], [0, 0, 1, 0, a, b]])
        taylor = taylor @ self.chain_rule
        splines = Splines(self.curve.knots, taylor[0] @ self.log_odds)
        log_loss, theta_gradient, theta_hessian = splines.loss(theta, self.correct, self.weight, self._score_gradient)
        prior_cost, prior_gradient = _log_prior(self.point + shift)
        residual = theta - splines.identity
        value = log_loss + (
            prior_cost - float(taylor[0] @ self.log_share_sums) + 0.5 * float(residual @ self.penalty @ residual)
        )
        shift_gradient = taylor[1:] @ (self.log_odds @ self._score_gradient - self.log_share_sums) + prior_gradient
        shift_jacobian = SEARCH.trust_radius - shift**2 / SEARCH.trust_radius  # dδ/dv
        gradient = np.concatenate([shift_gradient * shift_jacobian, theta_gradient + self.penalty @ residual])
        return value, gradient, theta_hessian + self.penalty

    def hessian(self, x: Vector, gradient: Vector, theta_hessian: Vector) -> Vector:
        """The Hessian of F, given what `evaluate` returns at x: in v by forward differences of the gradient."""
        difference = 0.05  # in v, whose unit is the trust radius
        hessian = np.zeros((len(x), len(x)))
        for i, direction in enumerate(difference * np.eye(2, len(x))):
            _, gradient_aside, _ = self.evaluate(x + direction)
            hessian[i] = (gradient_aside - gradient) / difference
        hessian[2:, :2] = hessian[:2, 2:].T
        hessian[2:, 2:] = theta_hessian
        return hessian


def _chain_rule(tail: Tail) -> Vector:
    """The matrix (6, 6) from a value and its derivatives in (γ, 1/T) to those in u = (log(1+γ), log T).

    With g = 1 + γ and b = 1/T: ∂₁ = g ∂γ, ∂₂ = -b ∂b, ∂₁₁ = g² ∂γγ + g ∂γ, ∂₁₂ = -g b ∂γb, ∂₂₂ = b² ∂bb + b ∂b.
    """
    g = math.exp(tail.point[0])
    b = math.exp(-tail.point[1]) / tail.inner_temperature
    matrix = np.diag([1.0, g, -b, g**2, -g * b, b**2])
    matrix[3, 1] = g
    matrix[5, 2] = b
    return matrix


def _log_prior(point: Vector) -> tuple[float, Vector]:
    """The negative logarithm of the prior of u = (log(1+γ), log T), and its gradient in u.

    log(1+γ) and log T - log(c(γ)/c(0)) have Student priors around 0, where c(γ) is the 1/T of the temperature scaling
    that the focal map with γ is close to.
    """
    gamma = math.expm1(point[0])
    log_undone = math.log(matching_beta(gamma) / matching_beta(0.0))
    # d log c(γ) / d log(1+γ); c is linear in γ.
    derivative = (matching_beta(1.0) - matching_beta(0.0)) * (1.0 + gamma) / matching_beta(gamma)
    deviations = np.array([point[0], point[1] - log_undone]) / DEVIATIONS
    cost, gradient = student_penalty(deviations)
    gradient = gradient / DEVIATIONS
    return float(cost.sum()), np.array([gradient[0] - derivative * gradient[1], gradient[1]])
