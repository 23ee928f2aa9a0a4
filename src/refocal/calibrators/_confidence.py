"""What stands behind a scaling: the focal map, a temperature and a curve of the confidence, fitted together.

With two classes the curve is one of the log-odds of the second class, behind a line, and there is nothing else.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from refocal._arrays import Vector, row_blocks
from refocal.calibrators._logistic import Found, Target, fit_line, near, platt_targets, softplus, student
from refocal.calibrators.spline import Prior, Splines, equal_shares, penalty, spline
from refocal.engine import Block
from refocal.engine.block import Predictions
from refocal.fitting.newton import closest_slope
from refocal.maps.chain import Chain, Step
from refocal.maps.curves import Confidence, OneVsRest, Pieces, log_odds, top_log_odds
from refocal.maps.steps import Focal, Temperature

# The settings were chosen on networks and tabular models; benchmarks/results/auto.md says what was tried.
N_KNOTS = 6
# The prior of a curve, in rows, and by how much it is multiplied: the evidence of the rows weighs what is tried.
PRIOR = Prior(slope=1.0, bend=1.0, offset=0.3, least_slope=0.05)
STRENGTHS = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0)
# The priors of log(1+γ), and of log T less what undoes the sharpening by γ, are Student distributions around 0 of these
# deviations.
DEVIATIONS = np.array([0.4, 0.15])
# γ and T are searched on about so many rows to compare scalings, and on at most so many at the end.
DRAFT_ROWS, SEARCH_ROWS = 3_000, 20_000
# In log(1+γ) and log T: how far from where rows are looked at they are taken to be quadratic; the moves after which
# they need not be looked at again, at the end and where scalings are compared; and how often they are at most.
REACH, SMALL_MOVE, DRAFT_MOVE, MOST_LOOKS = 0.4, 0.05, 0.2, 8
BOUNDS = np.array([[-1.5, 3.0], [-3.0, 3.0]])
# A probability this close to 0 or 1 counts as this close.
LEAST = 1e-12


class Tempered(Block):
    """The rows of a block divided by a temperature, without a copy of them."""

    def __init__(self, rows: Block, temperature: float) -> None:
        super().__init__(rows.logits, rows.labels, rows.weight)
        self.temperature, self.tops = temperature, rows.tops

    def take(self, rows: Any) -> Block:
        """Some of the rows."""
        return Tempered(super().take(rows), self.temperature)

    def predictions(
        self, gammas: tuple[float, ...], temperature: float, *, rough: bool = False, there: bool = False
    ) -> list[Predictions]:
        """As for the block at both temperatures."""
        return super().predictions(gammas, self.temperature * temperature, rough=rough, there=there)

    def split(self, gamma: float, temperature: float, *, rough: bool = False) -> NDArray[np.float64]:
        """As for the block at both temperatures; the derivatives are those in 1/T of the one that is given."""
        found = super().split(gamma, self.temperature * temperature, rough=rough)
        return found * (self.temperature ** -np.array([0.0, 0.0, 1.0, 0.0, 1.0, 2.0]))[:, None]


class Tail(NamedTuple):
    """What stands behind a scaling, and the log-loss of every row behind both."""

    gamma: float
    temperature: float
    curve: Curve | None
    losses: Vector

    @property
    def steps(self) -> tuple[Step, ...]:
        curve = () if self.curve is None else (Confidence(Pieces.of(*_joined(self.curve))),)
        return (Temperature(self.temperature), Focal(self.gamma), *curve)


def draft_tail(rows: Block) -> Tail:
    """What `fit_tail` finds for some of the rows, which is enough to compare scalings; the losses are those of all."""
    every = max(1, rows.n_rows // DRAFT_ROWS)
    if every == 1:
        return _tail(rows, _search(rows, np.zeros(2)))
    point, some, strength = np.zeros(2), rows.take(slice(None, None, every)), None
    for _ in range(MOST_LOOKS):
        move, strength = _move(some, point, strength)
        point = point + move
        if np.abs(move).max() < DRAFT_MOVE:
            break
    return _tail(rows, point, every, strength)


def fit_tail(rows: Block, draft: Tail) -> Tail:
    """γ, T and the curve of the confidence of least log-loss and prior, for scores that a scaling gave."""
    if rows.n_rows < 2 * DRAFT_ROWS:
        return draft  # of all rows
    some = rows if rows.n_rows <= SEARCH_ROWS else rows.part(SEARCH_ROWS)
    return _tail(rows, _search(some, np.log([1.0 + draft.gamma, draft.temperature])))


def _search(rows: Block, point: Vector) -> Vector:
    """The best point in (log(1+γ), log T), from one on."""
    for _ in range(MOST_LOOKS):
        move, _ = _move(rows, point)
        point = point + move
        if np.abs(move).max() < SMALL_MOVE:
            break
    return point


def _tail(rows: Block, point: Vector, every: int = 1, strength: float | None = None) -> Tail:
    """The tail at a point, its curve fitted to every so-manieth row."""
    gamma, temperature = math.expm1(point[0]), math.exp(point[1])
    odds, share = _split(rows, rows.predictions((gamma,), temperature, rough=True)[0])
    curve = fit_curve(odds[::every], rows.correct[::every], rows.weights[::every], strength)
    curved = odds if curve is None else Pieces.of(*_joined(curve)).apply(np, odds)
    losses = softplus(np.where(rows.correct, -curved, curved)) - share
    return Tail(gamma, temperature, curve, losses)


def _split(rows: Block, found: Predictions) -> NDArray[np.float64]:
    """The log-odds of the top class, and the logarithm of the label's share among the others (0 if it is the top)."""
    confidence = np.clip(found.confidence, LEAST, 1.0 - max(LEAST, rows.precision))
    log_rest = np.log1p(-confidence)
    return np.stack([np.log(confidence) - log_rest, np.where(rows.correct, 0.0, found.label_log_p - log_rest)])


class _Looks(NamedTuple):
    """Log-odds and shares of rows near a point, as quadratic functions of the distance from it in (log(1+γ), log T)."""

    split: NDArray[np.float64]  # (2, 6, N), the value and its derivatives in γ and 1/T
    chain: NDArray[np.float64]  # (6, 6), what turns these into derivatives in (log(1+γ), log T)

    def at(self, move: Vector) -> NDArray[np.float64]:
        """Values and slopes in both coordinates, (2, 3, N)."""
        a, b = move
        terms = np.array([[1.0, a, b, 0.5 * a * a, a * b, 0.5 * b * b], [0, 1, 0, a, b, 0], [0, 0, 1, 0, a, b]])
        return np.asarray((terms @ self.chain) @ self.split)


def _look(rows: Block, point: Vector) -> _Looks:
    """Rows at a point: a pass over the logits, after which only two numbers a row and their derivatives are needed."""
    more, slope = math.exp(point[0]), math.exp(-point[1])  # 1 + γ and 1/T
    chain = np.diag([1.0, more, -slope, more**2, -more * slope, slope**2])
    chain[3, 1], chain[5, 2] = more, slope
    return _Looks(rows.split(more - 1.0, 1.0 / slope, rough=True), chain)


def _move(rows: Block, point: Vector, strength: float | None = None) -> tuple[Vector, float | None]:
    """Where from a point the log-loss behind the best curve is least, as far as the look from the point reaches.

    Without a strength of the curve it is found at the point.
    """
    looks = _look(rows, point)
    order = np.argsort(looks.split[0, 0])  # passes over sorted rows take half the time
    looks = looks._replace(split=looks.split[..., order])
    weight, correct = rows.weights[order], rows.correct[order].astype(np.float64)
    curve = fit_curve(looks.split[0, 0], correct, weight, strength)
    if curve is None:
        return np.zeros(2), strength
    theta, prior = curve.theta, _times(curve.strength)

    def cost(move: Vector) -> tuple[float, Vector]:
        nonlocal theta
        (odds, *turns), (share, *share_turns) = looks.at(move)
        splines, pull = Splines(curve.knots, odds), np.empty(rows.n_rows)
        # The curve is at its best, so that the slope of the loss is that behind a curve which stays.
        found = splines.fit(correct, weight, prior, theta, pull)
        theta = found.theta
        drawn, drawn_slope = _prior(point + move)
        gradient = np.stack(turns) @ pull - np.stack(share_turns) @ weight + drawn_slope
        return (found.value - float(weight @ share) + drawn) / rows.total_weight, gradient / rows.total_weight

    bounds = np.clip(BOUNDS - point[:, None], -REACH, REACH)
    found = minimize(cost, np.zeros(2), jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-8}).x
    return found, curve.strength


def _prior(point: Vector) -> tuple[float, Vector]:
    """What the prior costs γ and T, and its slope in (log(1+γ), log T)."""
    gamma = math.expm1(point[0])
    undone = math.log(closest_slope(gamma) / closest_slope(0.0))
    turn = (closest_slope(1.0) - closest_slope(0.0)) * (1.0 + gamma) / closest_slope(gamma)
    far = np.array([point[0], point[1] - undone]) / DEVIATIONS
    cost, pull = student(far)
    pull = pull / DEVIATIONS
    return float(cost.sum()), np.array([pull[0] - turn * pull[1], pull[1]])


class Curve(NamedTuple):
    """A rising curve, and how strongly it was drawn to the identity."""

    knots: Vector
    theta: Vector
    strength: float


def fit_curve(odds: Vector, target: Target, weight: Vector, strength: float | None = None) -> Curve | None:
    """A rising curve from log-odds to log-odds; None where all log-odds are the same.

    It is the mean of the curves of several strengths of the prior, each weighted by its evidence: the probability of
    the targets, integrated over the curves by Laplace's approximation. Where the identity is as good as any curve, the
    strongest weigh most. With a `strength` it is the curve of that alone.
    """
    if np.any(odds[1:] < odds[:-1]):
        order = np.argsort(odds)
        odds, target, weight = odds[order], target[order], weight[order]
    odds = near(odds)
    # Halfway between equal shares of the rows, most of which are sure, and of what they say about a curve, q(1-q).
    knots = equal_shares(odds, weight * np.exp(0.5 * odds - softplus(odds)), N_KNOTS)
    if len(knots) < 2:
        return None
    splines, theta = Splines(knots, odds), None
    thetas, found = [], []
    strengths = STRENGTHS[::-1] if strength is None else (strength,)
    for each in strengths:
        prior = _times(each)
        best = splines.fit(target, weight, prior, theta)
        theta = best.theta
        thetas.append(theta)
        found.append(evidence(best, penalty(prior, len(knots))))
    share = np.exp(np.array(found) - max(found))
    share /= share.sum()
    return Curve(knots, share @ np.stack(thetas), math.exp(share @ np.log(strengths)))


def evidence(found: Found, of_prior: Vector) -> float:
    """The logarithm of the evidence for a prior, from the curve that is best with it."""
    return -found.value - 0.5 * float(np.linalg.slogdet(found.hessian)[1] - np.linalg.slogdet(of_prior)[1])


def _times(strength: float) -> Prior:
    return PRIOR._replace(slope=strength * PRIOR.slope, bend=strength * PRIOR.bend, offset=strength * PRIOR.offset)


def _joined(curve: Curve, slope: float = 1.0, intercept: float = 0.0) -> tuple[list[Vector], list[list[Vector]]]:
    """The one curve of `Pieces`, behind a line."""
    knots, coefficients = spline(curve.knots, curve.theta)
    powers = [[part * slope**d] for d, part in enumerate(coefficients)]
    return [(knots - intercept) / slope], powers


def top_odds(steps: tuple[Step, ...], rows: Block) -> Vector:
    """The log-odds of the top class of every row behind the steps, with all their digits."""
    parts = []
    for some in row_blocks(rows.n_rows, rows.n_classes, entries=1 << 18):
        scores = Chain(steps).scores(rows.logits[some].astype(np.float64))
        others = np.sort(scores, axis=1)[:, :-1]  # the top's own score is 0
        parts.append(top_log_odds(np, np.logaddexp.reduce(others, axis=1)))
    return np.concatenate(parts)


def losses_of(steps: tuple[Step, ...], rows: Block) -> Vector:
    """The log-loss of every row behind the steps."""
    log_p = Chain(steps).log_probabilities(rows.logits)
    return -np.take_along_axis(log_p, rows.labels[:, None], axis=1)[:, 0].astype(np.float64)


def two_class_step(rows: Block) -> Step:
    """A slope, an intercept and a curve of the log-odds of class 1."""
    odds = log_odds(np, rows.logits.astype(np.float64))[:, 1]
    some = np.isfinite(rows.logits).all(axis=1)  # a row with an impossible class says nothing
    if not some.any():
        return Chain()
    weight = rows.weights[some]
    odds, is_class = odds[some], rows.labels[some] == 1
    slope, intercept = fit_line(odds, is_class, weight, rising=True, drawn=True)
    curve = fit_curve(slope * near(odds) + intercept, platt_targets(is_class, weight), weight)
    if curve is None:
        pieces = Pieces.of([[0.0]], [[[intercept] * 2], [[slope] * 2]])
    else:
        pieces = Pieces.of(*_joined(curve, slope, intercept))
    return OneVsRest(pieces)
