"""Curves of log-odds, and the step that gives each class one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.polynomial import Polynomial

from refocal._arrays import Array, look_up
from refocal.maps.chain import DOUBLE, Step
from refocal.maps.row import gaps, shares, softplus

# The knots of one class, and for each power the coefficients of its pieces.
Curve = tuple[Any, tuple[Any, ...]]

LARGEST_LOG_ODDS = 1e8
"""Log-odds are clipped to this distance from 0: towards masked logits a curve has no accuracy."""

ROUNDINGS = 4.0
"""By how many rounding errors the top class stays above the second where a curve would put it below."""


@dataclass(frozen=True)
class OneVsRest(Step):
    """A curve for each class from its log-odds to calibrated ones. Two classes need one, that of the second class.

    >>> doubled = Pieces.of(([0.0], ([0.0, 0.0], [2.0, 2.0])))
    >>> OneVsRest(doubled).apply(np, np.log([[0.25, 0.75]])).round(3)
    array([[-0.   ,  2.197]])
    """

    curve: Step

    def apply(self, xp: Any, scores: Array) -> Array:
        """The logarithm of each class's probability against the rest, which need not sum to 1 over the classes."""
        z = self.curve.apply(xp, log_odds(xp, scores))
        if scores.shape[-1] == 2:  # (0, z): the log-odds of the second class
            is_second = xp.arange(2, device=getattr(scores, "device", None))
            calibrated = z * xp.astype(is_second, scores.dtype)
        else:
            calibrated = -softplus(xp, -z)
        return xp.where(scores == -xp.inf, -xp.inf, calibrated)


@dataclass(frozen=True)
class Confidence(Step, keeps_order=True):
    """A curve from the log-odds of the top class to calibrated ones; the others share the rest as they did.

    The top class stays on top: where the curve would put it below the second, the two are as probable.

    >>> from refocal.maps.chain import Chain
    >>> halved = Pieces.of(([0.0], ([0.0, 0.0], [0.5, 0.5])))
    >>> np.exp(Chain((Confidence(halved),)).log_probabilities(np.log([[0.9, 0.06, 0.04]]))).round(3)
    array([[0.75, 0.15, 0.1 ]])
    """

    curve: Step

    def apply(self, xp: Any, scores: Array) -> Array:
        """The new log-odds at the top, and for the others the logarithms of their shares in what is not the top's."""
        gap, is_top = gaps(xp, scores, 1.0)
        _, log_rest, alone = shares(xp, xp.where(is_top, -xp.inf, gap))
        log_share = gap - xp.where(alone, 0.0, log_rest)
        second = xp.max(xp.where(is_top, -xp.inf, log_share), axis=-1, keepdims=True)
        curved = self.curve.apply(xp, xp.where(log_rest < -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS, -log_rest))
        # A rounding above the second, so that ties do not change which class comes first.
        least = second + ROUNDINGS * xp.finfo(scores.dtype).eps * (1.0 + xp.abs(second))
        top = xp.where((curved < least) & ~alone, least, curved)
        return xp.where(is_top, top, log_share)


@dataclass(frozen=True)
class Pieces(Step):
    """A polynomial between each two knots: Σ coefficients[d, r, i]·(s - start)ᵈ in piece i of the curve of class r.

    Piece 0 lies below the first knot and is counted from there; every other piece starts at the knot below it. Classes
    with fewer knots repeat their last one and its piece.

    >>> Pieces.of(([-1.0, 1.0], ([0.0, 0.0, 5.0], [0.0, 2.0, 1.0]))).apply(np, np.array([-3.0, 0.0, 2.0]))
    array([0., 2., 6.])
    """

    knots: Array = field(metadata=DOUBLE)  # (R, K): a row for each class, or one for all
    coefficients: Array = field(metadata=DOUBLE)  # (D, R, K + 1)

    @classmethod
    def of(cls, *curves: Curve) -> Pieces:
        """From the knots of each curve and, for each power, the coefficients of its pieces."""
        knots, powers = zip(*map(_with_near_knots, curves), strict=True)
        width = max(map(len, knots))
        return cls(_padded(knots, width), np.stack([_padded(each, width + 1) for each in zip(*powers, strict=True)]))

    def apply(self, xp: Any, scores: Array) -> Array:
        """The curves' values, class by class."""
        n_rows, n_knots = self.knots.shape
        rows = xp.arange(n_rows, device=getattr(scores, "device", None))
        piece = _count(xp, self.knots, rows, scores)
        start = look_up(xp.reshape(self.knots, (-1,)), rows * n_knots + xp.where(piece > 0, piece - 1, piece))
        distance = scores - start
        at = rows * (n_knots + 1) + piece
        powers = range(self.coefficients.shape[0])
        *lower, value = (look_up(xp.reshape(self.coefficients[d, :, :], (-1,)), at) for d in powers)
        for coefficient in reversed(lower):
            value = value * distance + coefficient
        # A step function has no power that a score of NaN would enter.
        return xp.where(xp.isnan(scores), scores, value)

    def fits(self, n_classes: int) -> bool:
        """One curve for each class, or one alone, with knots that do not fall."""
        if np.ndim(self.knots) != 2 or np.ndim(self.coefficients) != 3:
            return False
        n_rows, n_knots = self.knots.shape
        right = n_rows in (1, n_classes) and n_knots > 0
        same = self.coefficients.shape[0] > 0 and self.coefficients.shape[1:] == (n_rows, n_knots + 1)
        return right and same and bool(np.all(np.diff(self.knots) >= 0.0))


@dataclass(frozen=True)
class Beta(Step):
    """Log-odds a·log q - b·log(1-q) + c, with a row of `coefficients` (a, b, c) for each curve.

    >>> Beta(np.array([[1.0, 1.0, 0.5]])).apply(np, np.array([2.0]))
    array([2.5])
    """

    coefficients: Array = field(metadata=DOUBLE)

    def apply(self, xp: Any, scores: Array) -> Array:
        """The curves' values, class by class."""
        a = self.coefficients[:, 0]
        b = self.coefficients[:, 1]
        c = self.coefficients[:, 2]
        return b * softplus(xp, scores) - a * softplus(xp, -scores) + c

    def fits(self, n_classes: int) -> bool:
        """Curves that rise, as many as there are classes, or one for two."""
        right = np.shape(self.coefficients) == (1 if n_classes == 2 else n_classes, 3)
        return right and bool(np.all(self.coefficients[:, :2] >= 0.0))


@dataclass(frozen=True)
class VennAbers(Step):
    """Log-odds log p₁ - log(1 - p₀) of two step functions, p₁ and p₀: those of p₁ / (1 - p₀ + p₁).

    >>> even = [Pieces.of(([0.0], (np.log([low, high]),))) for low, high in ((0.5, 0.9), (0.9, 0.5))]
    >>> VennAbers(*even).apply(np, np.array([-1.0, 1.0])).round(3)
    array([-0.588,  0.588])
    """

    log_upper: Step
    log_not_lower: Step

    def apply(self, xp: Any, scores: Array) -> Array:
        """The curves' values, class by class."""
        return self.log_upper.apply(xp, scores) - self.log_not_lower.apply(xp, scores)

    def bounds(self, xp: Any, scores: Array) -> tuple[Array, Array]:
        """p₀ and p₁."""
        return -xp.expm1(self.log_not_lower.apply(xp, scores)), xp.exp(self.log_upper.apply(xp, scores))


@dataclass(frozen=True)
class LabelLines(Step):
    """Log-odds a·x + b with a slope and an intercept for each of K labels; the scores of a row are (K, 2).

    >>> lines = LabelLines(np.array([1.0, 2.0]), np.array([0.5, 0.0]))
    >>> lines.apply(np, np.array([[0.0, 3.0], [0.0, 3.0]]))
    array([[0. , 3.5],
           [0. , 6. ]])
    """

    slope: Array = field(metadata=DOUBLE)
    intercept: Array = field(metadata=DOUBLE)

    def apply(self, xp: Any, scores: Array) -> Array:
        """The log-odds are the difference of two scores, of which the second gets the intercept."""
        is_second = xp.arange(scores.shape[-1], device=getattr(scores, "device", None)) == 1
        return scores * self.slope[:, None] + self.intercept[:, None] * xp.astype(is_second, scores.dtype)

    def fits(self, n_classes: int) -> bool:
        """Lines that rise, as many intercepts as slopes, of two classes."""
        right = n_classes == 2 and np.ndim(self.slope) == 1 and np.shape(self.slope) == np.shape(self.intercept)
        return right and bool(np.all(self.slope > 0.0))


def log_odds(xp: Any, scores: Array) -> Array:
    """log(q / (1-q)) of every class, q = softmax(scores): with all digits where q is close to 1, and always finite."""
    gap, is_top = gaps(xp, scores, 1.0)
    share, log_rest, _ = shares(xp, xp.where(is_top, -xp.inf, gap))
    # Beside another class there are the top, whose weight is 1, and what is left of the rest.
    unbounded = xp.where(is_top, -log_rest, gap - xp.log1p(xp.exp(log_rest) * (1.0 - share)))
    bounded = xp.where(unbounded > LARGEST_LOG_ODDS, LARGEST_LOG_ODDS, unbounded)
    return xp.where(bounded < -LARGEST_LOG_ODDS, -LARGEST_LOG_ODDS, bounded)


def _count(xp: Any, table: Array, rows: Array, scores: Array) -> Array:
    """How many entries of its class's row of the sorted table (R, K) are at most each score, by binary search."""
    flat = xp.reshape(table, (-1,))
    n_left = table.shape[1]
    first = rows * n_left
    place = first
    while n_left > 1:
        half = n_left // 2
        place = xp.where(look_up(flat, place + (half - 1)) <= scores, place + half, place)
        n_left -= half
    return xp.where(look_up(flat, place) <= scores, place + 1, place) - first


def _with_near_knots(curve: Curve) -> Curve:
    """The same curve with a further knot close to the end of each long piece that starts far from 0.

    A value is Σ cᵈ·(s - start)ᵈ: if the piece starts at -10⁸, as masked logits make it, both s - start and the sum are
    differences of large numbers, of which single precision leaves no digit at s = -5.
    """
    distance = 64.0  # to the end of the piece: up to there single precision has an error of 1e-5
    knots = np.asarray(curve[0], dtype=np.float64)
    powers = np.asarray(curve[1], dtype=np.float64)
    is_long = (np.diff(knots) > 2.0 * distance) & (np.abs(knots[:-1]) > 2.0 * np.abs(knots[1:]))
    for i in np.flatnonzero(is_long)[::-1]:
        start = knots[i + 1] - distance
        moved = Polynomial(powers[:, i + 1])(Polynomial([start - knots[i], 1.0])).coef
        piece = np.zeros((len(powers), 1))
        piece[: len(moved), 0] = moved
        knots = np.insert(knots, i + 1, start)
        powers = np.insert(powers, [i + 2], piece, axis=1)
    return knots, tuple(powers)


def _padded(rows: Sequence[Any], width: int) -> Array:
    return np.array([[*row, *[row[-1]] * (width - len(row))] for row in rows], dtype=np.float64)
