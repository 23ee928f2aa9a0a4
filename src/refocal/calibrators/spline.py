"""Spline calibration: a smooth curve that rises."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Indices, Vector
from refocal.calibrators import _settings as setting
from refocal.calibrators._logistic import Found, SmoothLoss, Target, fit_with_prior
from refocal.calibrators.one_vs_rest import ClassRows, OneVsRestCalibrator
from refocal.engine import c_engine
from refocal.maps.curves import Curve
from refocal.maps.row import softplus

# How much stiffer the curve is against bending than against a slope other than 1.
STIFFNESS = 10.0
# The power of the distance that each entry of a piece's Hessian in (a, b, c) is the moment of.
POWERS = np.add.outer(np.arange(3), np.arange(3))


@dataclass(eq=False, repr=False)
class SplineCalibration(OneVsRestCalibrator):
    """A smooth monotone curve for each class against the rest: a quadratic spline from log-odds to log-odds.

    The slope is linear between knots and nowhere negative; beyond the outer knots the curve is straight. Splines as in
    Lucena (2018), fitted by log-loss, with slopes that are shrunk towards each other and towards 1.

    Parameters
    ----------
    n_knots : int
        Number of knots, placed so that each interval between them has the same share of Σq(1-q).
    smoothing : float
        The weight of the prior that the curve is the identity; large values give temperature scaling.
    base : "temperature" or "softmax"
        The starting point of the curves.
    input : "logits" or "probabilities"
        What the columns hold.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(2000, 3))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> report = SplineCalibration().fit(4.0 * logits, labels).fit_report_
    >>> report["after"]["log_loss"] < report["before"]["log_loss"]
    True
    """

    n_knots: int = setting.integer(6, least=2)
    _: KW_ONLY
    smoothing: float = setting.number(10.0, above=0.0)

    def _fit_curve(self, rows: ClassRows) -> Curve:
        prior = Prior(self.smoothing, STIFFNESS * self.smoothing, self.smoothing)
        knots = equal_shares(rows.score, rows.weight * rows.q * (1.0 - rows.q), self.n_knots)
        if len(knots) < 2:
            knots = rows.score[0] + np.array([-1.0, 1.0])
        return spline(knots, Splines(knots, rows.score).fit(rows.target, rows.weight, prior).theta)


class Prior(NamedTuple):
    """How strongly the slopes of a spline are drawn to 1, to each other, and its middle to where it would lie then."""

    slope: float
    bend: float
    offset: float
    least_slope: float = 0.0


class Splines:
    """All splines with given knots, at some scores: coefficients θ are their slopes at the knots and their offset."""

    def __init__(self, knots: Vector, score: Vector) -> None:
        self.knots, self.score, n = knots, np.ascontiguousarray(score, dtype=np.float64), len(knots)
        # From θ to the pieces, (3, pieces) or (pieces, 3); the offset is the value at the middle knot.
        self._pieces = _ramps(knots.tobytes())
        self._by_piece = np.ascontiguousarray(self._pieces.transpose(1, 0, 2))
        self.identity = np.append(np.ones(n), knots[n // 2])

    def fit(
        self, target: Target, weight: Vector, prior: Prior, start: Vector | None = None, strength: float = 1.0
    ) -> Found:
        """The slopes and the offset of least log-loss and prior, times its strength; the prior alone: the identity."""
        lower = np.append(np.full(len(self.knots), prior.least_slope), -np.inf)
        loss = partial(self.loss, target=target.astype(np.float64, copy=False), weight=weight)
        return fit_with_prior(loss, self.identity, strength * penalty(prior, len(self.knots)), lower, start)

    def loss(self, theta: Vector, target: Vector, weight: Vector, pull: Vector | None = None) -> SmoothLoss:
        """The log-loss of a spline, with derivatives in θ; those in the scores are written into `pull`."""
        pieces = self._pieces @ theta
        found = c_engine.spline(self.score, target, weight, self.knots, pieces, pull)
        if found is None:
            found = self._sums(pieces, target, weight, pull)
        sums = found[1:].reshape(-1, 8)
        moments = sums[:, 3 + POWERS] @ self._by_piece  # (pieces, 3, θ)
        flat = self._by_piece.reshape(-1, len(theta))
        return float(found[0]), sums[:, :3].ravel() @ flat, flat.T @ moments.reshape(flat.shape)

    def at(self, theta: Vector) -> Vector:
        """The values of a spline."""
        _, d, (a, b, c) = self._places(self._pieces @ theta)
        return np.asarray(a + d * (b + d * c))

    def _sums(self, pieces: Vector, target: Vector, weight: Vector, pull: Vector | None) -> Vector:
        """What `c_engine.spline` computes, by array functions."""
        piece, d, (a, b, c) = self._places(pieces)
        eta, slope = a + d * (b + d * c), b + 2.0 * d * c
        soft = softplus(np, eta)
        p = np.exp(eta - soft)
        first, second = weight * (p - target), weight * p * np.exp(-soft)
        if pull is not None:
            pull[:] = first * slope
        terms = [first, first * d, first * d**2, *(second * d**k for k in range(5))]
        sums = [np.bincount(piece, each, minlength=len(self.knots) + 1) for each in terms]
        return np.append(weight @ (soft - target * eta), np.stack(sums, axis=1))

    def _places(self, pieces: Vector) -> tuple[Indices, Vector, Vector]:
        """The piece that each score lies on, how far from the knot where that begins, and its coefficients (3, N)."""
        piece = np.searchsorted(self.knots, self.score, side="right")
        return piece, self.score - self.knots[np.maximum(piece - 1, 0)], pieces.take(piece, axis=1)


@lru_cache(maxsize=32)
def penalty(prior: Prior, n_knots: int) -> Vector:
    """The matrix of the prior, whose cost is half the squared distance from the identity under it."""
    bends = np.diff(np.eye(n_knots), axis=0)
    found = np.diag(np.append(np.full(n_knots, float(prior.slope)), prior.offset))
    found[:n_knots, :n_knots] += prior.bend * bends.T @ bends
    return found


@lru_cache(maxsize=8)
def _ramps(knots: bytes) -> NDArray[np.float64]:
    """The pieces (3, pieces, θ) of the splines that have one slope of 1 and the others of 0, and of a constant 1."""
    at = np.frombuffer(knots)
    return np.stack([np.stack(spline(at, unit)[1]) for unit in np.eye(len(at) + 1)], axis=-1)


def equal_shares(score: Vector, mass: Vector, n_knots: int) -> Vector:
    """Distinct values of sorted scores, with equal shares of the mass between them."""
    total = np.cumsum(mass)
    at = np.searchsorted(total, (np.arange(n_knots) + 0.5) / n_knots * total[-1])
    return np.unique(score[np.minimum(at, len(score) - 1)])


def spline(knots: Vector, theta: Vector) -> Curve:
    """The pieces of the spline of these slopes at the knots, and at the end its value at the middle knot."""
    slopes, offset, width = theta[:-1], theta[-1], np.diff(knots)
    height = np.append(0.0, np.cumsum(0.5 * width * (slopes[1:] + slopes[:-1])))
    height += offset - height[len(knots) // 2]
    bend = np.concatenate([[0.0], 0.5 * np.diff(slopes) / width, [0.0]])
    return knots, (np.append(height[0], height), np.append(slopes[0], slopes), bend)
