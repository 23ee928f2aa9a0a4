"""Rising curves from log-odds to log-odds: lines, and quadratic splines shrunk towards the identity.

A spline with K knots has coefficients θ (K + 1,): its slopes at the knots, and its value at the middle knot. Between
knots the slope is linear; beyond the outer ones the curve is straight.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Indices, Vector, row_blocks
from refocal.engine import Block, c_engine
from refocal.engine.scoring import ENTRIES
from refocal.fitting.logistic import PenalisedFit, SmoothLoss, Target, clip_masks, fit_with_prior
from refocal.maps.chain import Chain
from refocal.maps.curves import Curve, log_odds
from refocal.maps.row import softplus
from refocal.metrics.bins import places_of_shares


class CurvePrior(NamedTuple):
    """A normal prior of a spline around the identity: the precision, in rows, of each of its parts."""

    slope: float
    """Of the slopes, around 1."""
    roughness: float
    """Of the differences between neighbouring slopes, around 0."""
    offset: float
    """Of the value at the middle knot, around that of the identity."""
    least_slope: float = 0.0


@lru_cache(maxsize=32)
def penalty(prior: CurvePrior, n_knots: int) -> Vector:
    """The precision matrix P (K + 1, K + 1) of a prior, which costs ½ (θ - identity)ᵀ P (θ - identity)."""
    differences = np.diff(np.eye(n_knots), axis=0)
    matrix = np.diag(np.append(np.full(n_knots, float(prior.slope)), prior.offset))
    matrix[:n_knots, :n_knots] += prior.roughness * differences.T @ differences
    return matrix


def spline(knots: Vector, theta: Vector) -> Curve:
    """The pieces of a spline: in powers of the distance to the knot where a piece begins."""
    slopes = theta[:-1]
    value_at_middle = theta[-1]
    width = np.diff(knots)
    height = np.append(0.0, np.cumsum(0.5 * width * (slopes[1:] + slopes[:-1])))
    height += value_at_middle - height[len(knots) // 2]
    quadratic = np.concatenate([[0.0], 0.5 * np.diff(slopes) / width, [0.0]])
    return knots, (np.append(height[0], height), np.append(slopes[0], slopes), quadratic)


def line(slope: float, intercept: float) -> Curve:
    """The pieces of a straight line."""
    return np.zeros(1), (np.repeat(intercept, 2), np.repeat(slope, 2))


@lru_cache(maxsize=8)
def _design(knots: bytes) -> NDArray[np.float64]:
    """The matrix from θ to the pieces, (3, K + 1, K + 1): power, piece, coefficient."""
    positions = np.frombuffer(knots)
    units = np.eye(len(positions) + 1)
    return np.stack([np.stack(spline(positions, unit)[1]) for unit in units], axis=-1)


class Splines:
    """All splines with knots (K,), evaluated at N scores."""

    # The second derivative of a piece a + b d + c d² in its coefficients j and k is a moment of the power j + k of d.
    _MOMENTS = np.add.outer(np.arange(3), np.arange(3))

    def __init__(self, knots: Vector, score: Vector) -> None:
        self.knots = knots
        self.score = np.ascontiguousarray(score, dtype=np.float64)
        self.identity = np.append(np.ones(len(knots)), knots[len(knots) // 2])
        self._design = _design(knots.tobytes())
        self._design_by_piece = np.ascontiguousarray(self._design.transpose(1, 0, 2))

    def fit(
        self, target: Target, weight: Vector, prior: CurvePrior, start: Vector | None = None, strength: float = 1.0
    ) -> PenalisedFit:
        """The θ of least log-loss plus `strength` times the prior; targets and weights (N,)."""
        lower = np.append(np.full(len(self.knots), prior.least_slope), -np.inf)
        log_loss = partial(self.loss, target=target.astype(np.float64, copy=False), weight=weight)
        return fit_with_prior(log_loss, self.identity, strength * penalty(prior, len(self.knots)), lower, start)

    def loss(self, theta: Vector, target: Vector, weight: Vector, score_gradient: Vector | None = None) -> SmoothLoss:
        """The log-loss of a spline with its gradient and Hessian in θ.

        Its derivative in each of the scores is written into `score_gradient` (N,), if given.
        """
        pieces = self._design @ theta
        sums = c_engine.spline(self.score, target, weight, self.knots, pieces, score_gradient)
        if sums is None:
            sums = self._sums(pieces, target, weight, score_gradient)
        value = float(sums[0])
        by_piece = sums[1:].reshape(-1, 8)  # three sums for the gradient, five for the Hessian
        design = self._design_by_piece.reshape(-1, len(theta))
        gradient = by_piece[:, :3].ravel() @ design
        half_hessian = by_piece[:, 3 + self._MOMENTS] @ self._design_by_piece  # (pieces, 3, θ)
        hessian = design.T @ half_hessian.reshape(design.shape)
        return value, gradient, hessian

    def at(self, theta: Vector) -> Vector:
        """The values of a spline at the scores."""
        _, distance, (a, b, c) = self._located(self._design @ theta)
        return np.asarray(a + distance * (b + distance * c))

    def _sums(self, pieces: Vector, target: Vector, weight: Vector, score_gradient: Vector | None) -> Vector:
        """What `c_engine.spline` computes, by array functions: the log-loss, then eight sums for each piece.

        With p the probability and d the distance from the knot, these are Σ w (p - y) dᵏ for k = 0, 1, 2 and
        Σ w p (1 - p) dᵏ for k = 0 … 4.
        """
        piece, d, (a, b, c) = self._located(pieces)
        eta = a + d * (b + d * c)
        slope = b + 2.0 * d * c
        softplus_eta = softplus(np, eta)
        p = np.exp(eta - softplus_eta)
        first = weight * (p - target)
        second = weight * p * np.exp(-softplus_eta)
        if score_gradient is not None:
            score_gradient[:] = first * slope
        terms = [first, first * d, first * d**2, *(second * d**k for k in range(5))]
        sums = [np.bincount(piece, term, minlength=len(self.knots) + 1) for term in terms]
        return np.append(weight @ (softplus_eta - target * eta), np.stack(sums, axis=1))

    def _located(self, pieces: Vector) -> tuple[Indices, Vector, Vector]:
        """For each score its piece, the distance to the knot where that begins, and its coefficients (3, N)."""
        piece = np.searchsorted(self.knots, self.score, side="right")
        distance = self.score - self.knots[np.maximum(piece - 1, 0)]
        return piece, distance, pieces.take(piece, axis=1)


def equal_mass_knots(score: Vector, mass: Vector, n_knots: int) -> Vector:
    """Distinct values of sorted scores, with equal shares of the mass between them."""
    return np.unique(score[places_of_shares(np.cumsum(mass), (np.arange(n_knots) + 0.5) / n_knots)])


class ShrinkageSettings(NamedTuple):
    """How `fit_curve` shrinks a curve; chosen on networks and tabular models (benchmarks/results/auto.md)."""

    n_knots: int = 6
    prior: CurvePrior = CurvePrior(slope=1.0, roughness=1.0, offset=0.3, least_slope=0.05)
    """The prior of strength 1."""
    strengths: tuple[float, ...] = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0)
    """What the prior is multiplied by: curves of all these strengths are averaged by their evidence."""
    first_strength: float = 64.0
    """The strength of the first curve that is fitted."""
    close_strength: float = 2.0
    """The search ends where the mean strength differs from that of the fitted curve by less than this factor."""
    max_rounds: int = 8


SHRINKAGE = ShrinkageSettings()


class ShrunkCurve(NamedTuple):
    """A spline, by its knots and coefficients, and the strength of the prior that it was fitted with."""

    knots: Vector
    theta: Vector
    strength: float

    @property
    def penalty(self) -> Vector:
        """The precision matrix of its prior."""
        return self.strength * penalty(SHRINKAGE.prior, len(self.knots))

    @property
    def pieces(self) -> Curve:
        """The pieces of the spline."""
        return spline(self.knots, self.theta)


def fit_curve(
    log_odds: Vector, target: Target, weight: Vector, similar: ShrunkCurve | None = None
) -> ShrunkCurve | None:
    """A rising curve from log-odds to log-odds; None where all log-odds are the same. All arrays are (N,).

    It is the mean of the curves of several strengths of the prior, each weighted by its evidence: the probability of
    the targets, integrated over the curves by Laplace's approximation (MacKay 1992, Neural Computation 4:415). Where
    the identity is as good as any curve, the strongest prior has the largest weight. Only the curve of the mean
    strength is fitted, and the others follow from it by a quadratic model; the search of that strength begins at the
    strength of a `similar` curve, if given.
    """
    log_odds = clip_masks(log_odds)
    order = rising_order(log_odds)
    log_odds = log_odds[order]
    target = target[order]
    weight = weight[order]
    # √(q(1-q)) lies half-way between equal shares of the rows, most of which are sure, and of their information q(1-q).
    root_information = np.exp(0.5 * log_odds - softplus(np, log_odds))
    knots = equal_mass_knots(log_odds, weight * root_information, SHRINKAGE.n_knots)
    if len(knots) < 2:
        return None
    splines = Splines(knots, log_odds)
    unit_penalty = penalty(SHRINKAGE.prior, len(knots))
    strength = SHRINKAGE.first_strength if similar is None else similar.strength
    theta = splines.identity
    for _ in range(SHRINKAGE.max_rounds):
        fit = splines.fit(target, weight, SHRINKAGE.prior, theta, strength)
        thetas, log_evidence = laplace_evidence(fit, strength, unit_penalty, splines.identity)
        share = np.exp(log_evidence - log_evidence.max())
        share /= share.sum()
        theta = share @ thetas
        previous = strength
        strength = math.exp(share @ np.log(SHRINKAGE.strengths))
        if max(strength / previous, previous / strength) < SHRINKAGE.close_strength:
            break
    theta[:-1] = np.maximum(theta[:-1], SHRINKAGE.prior.least_slope)
    return ShrunkCurve(knots, theta, strength)


def laplace_evidence(
    fit: PenalisedFit, strength: float, unit_penalty: Vector, identity: Vector
) -> tuple[Vector, Vector]:
    """The best curves (S, K + 1) of all strengths s of the prior, and the logarithm of the evidence for each (S,).

    The log-loss is replaced by its quadratic model around the `fit` of one strength, with Hessian H. In the
    generalised eigenbasis V of H and the penalty P of strength 1, VᵀPV = I and VᵀHV = diag(λ), the curve of strength s
    differs from the fit by (strength - s) a / (λ + s), where a = VᵀP(θ - identity); and the integral over all curves
    adds -½ Σ log(1 + λ/s) to the log-evidence.
    """
    inverse_factor = np.linalg.inv(np.linalg.cholesky(unit_penalty))
    loss_hessian = fit.hessian - strength * unit_penalty
    eigenvalues, eigenvectors = np.linalg.eigh(inverse_factor @ loss_hessian @ inverse_factor.T)
    basis = inverse_factor.T @ eigenvectors
    residual = basis.T @ unit_penalty @ (fit.theta - identity)
    strengths = np.array(SHRINKAGE.strengths)[:, None]
    steps = (strength - strengths) * residual / (eigenvalues + strengths)
    changes = (strengths - strength) * residual**2 - (eigenvalues + strengths) * steps**2
    values = fit.value + 0.5 * np.sum(changes, axis=1)
    log_evidence = -values - 0.5 * np.log1p(eigenvalues / strengths).sum(axis=1)
    return fit.theta + steps @ basis.T, log_evidence


def rising_order(log_odds: Vector) -> Indices:
    """An order in which log-odds rise, to a part in 65,535 of their range: in a tenth of the time of a sort."""
    low = log_odds.min()
    high = log_odds.max()
    levels = ((log_odds - low) * (65_535.0 / (high - low or 1.0))).astype(np.uint16)
    return np.argsort(levels, kind="stable")


def log_odds_after(chain: Chain, block: Block) -> Vector:
    """The log-odds after a chain, of class 1 of two or of the top class of more, in float64 (N,)."""
    by_part = []
    for rows in row_blocks(block.n_rows, block.n_classes, ENTRIES):
        odds = log_odds(np, chain.scores(block.logits[rows].astype(np.float64)))
        by_part.append(odds[:, 1] if block.n_classes == 2 else odds.max(axis=1))
    return np.concatenate(by_part)
