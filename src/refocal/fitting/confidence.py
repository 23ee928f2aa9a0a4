"""The steps after a scaling: the focal map, a temperature and a curve of the confidence, fitted together.

With two classes there are only a line of the log-odds of the second class and a curve after it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Vector
from refocal.engine import Block
from refocal.fitting.curves import (
    PRIOR,
    ShrunkCurve,
    Splines,
    fit_curve,
    line,
    odds_after,
    penalty,
    rising_order,
    spline,
)
from refocal.fitting.lbfgs import Ends, minimise
from refocal.fitting.logistic import fit_line, near, student
from refocal.fitting.newton import closest_slope
from refocal.maps.chain import Chain, Step
from refocal.maps.curves import Confidence, OneVsRest, Pieces
from refocal.maps.row import softplus
from refocal.maps.steps import Focal, Temperature

# The settings were chosen on networks and tabular models; benchmarks/results/auto.md says what was tried.
# The priors of log(1+γ), and of log T less what undoes the sharpening by γ, are Student distributions around 0 of these
# deviations.
DEVIATIONS = np.array([0.4, 0.15])
# About how many rows γ and T are searched on to compare scalings, and at most how many at the end.
DRAFT_ROWS, SEARCH_ROWS = 3_000, 20_000
# In log(1+γ) and log T: how far from a pass over the rows they are taken to be quadratic; the move after which no
# further pass is needed; and the largest number of passes.
REACH, SMALL_MOVE, MOST_LOOKS = 0.4, 0.1, 8
BOUNDS = np.array([[-1.5, -3.0], [3.0, 3.0]])
# The step by which a curvature is measured, in units of REACH; the least curvature, in rows; and when a search ends.
ASIDE, LEAST_BEND, ENDS = 0.05, 0.1, Ends(1e-8, 1e-12, 50)
# The strength of Platt's targets for the line of two classes, 1 in Platt's paper; the curve after it has none.
DOUBT = 0.5
# A probability this close to 0 or 1 counts as this close.
LEAST = 1e-12


class Tail(NamedTuple):
    """The steps after a scaling: a point (log(1+γ), log T) and a curve; `before`: a temperature that comes first."""

    point: Vector
    curve: ShrunkCurve | None
    before: float = 1.0

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
        """The steps of a chain."""
        curve = () if self.curve is None else (Confidence(Pieces.of(spline(self.curve.knots, self.curve.theta))),)
        return (Temperature(self.temperature), Focal(self.gamma), *curve)


IDENTITY = Tail(np.zeros(2), None)


def draft_tail(rows: Block, start: Tail = IDENTITY) -> tuple[Tail, Vector]:
    """The tail that `fit_tail` finds, from some of the rows where there are many: enough to compare scalings.

    From the tail of another scaling on; also returns the log-loss of every row.
    """
    every = max(1, rows.n_rows // DRAFT_ROWS)
    tail = _search(rows.take(slice(None, None, every)), start, anew=every == 1)
    odds, share = _split(rows, tail)
    if every == 1:
        tail = tail._replace(curve=fit_curve(odds, rows.correct, rows.weights))
    curved = odds if tail.curve is None else Splines(tail.curve.knots, odds).at(tail.curve.theta)
    return tail, softplus(np, np.where(rows.correct, -curved, curved)) - share


def fit_tail(rows: Block, draft: Tail) -> Tail:
    """γ, T and the curve of the confidence of least log-loss and prior, for scores that a scaling gave."""
    if rows.n_rows < 2 * DRAFT_ROWS:
        return draft  # of all rows
    tail = _search(rows if rows.n_rows <= SEARCH_ROWS else rows.part(SEARCH_ROWS), draft)
    return tail._replace(curve=fit_curve(_split(rows, tail)[0], rows.correct, rows.weights, tail.curve))


def _search(rows: Block, tail: Tail, *, anew: bool = False) -> Tail:
    """Improve a tail until it moves little; `anew`: the strength of its curve is found again at every look."""
    for _ in range(MOST_LOOKS):
        before, tail = tail.point, _moved(rows, tail._replace(curve=None) if anew else tail)
        if np.abs(tail.point - before).max() < SMALL_MOVE:
            break
    return tail


def _split(rows: Block, tail: Tail) -> NDArray[np.float64]:
    """The log-odds of the top class, and the logarithm of the label's share among the others (0 if it is the top)."""
    (found,) = rows.predictions((tail.gamma,), tail.before * tail.temperature, rough=True)
    confidence = np.clip(found.confidence, LEAST, 1.0 - max(LEAST, rows.precision))
    log_rest = np.log1p(-confidence)
    return np.stack([np.log(confidence) - log_rest, np.where(rows.correct, 0.0, found.label_log_p - log_rest)])


def _moved(rows: Block, tail: Tail) -> Tail:
    """The point and the curve of least log-loss, as far as a look from a point reaches.

    A look is a pass over the logits, after which only two numbers per row and their derivatives are needed: their
    log-odds and shares are quadratic functions of the distance from the point in (log(1+γ), log T). The knots and
    the strength of the curve stay; without a curve they are found at the point.
    """
    point = tail.point
    more, inverse = math.exp(point[0]), math.exp(-point[1]) / tail.before  # 1 + γ and 1/T
    chain = np.diag([1.0, more, -inverse, more**2, -more * inverse, inverse**2])  # from derivatives in γ and 1/T
    chain[3, 1], chain[5, 2] = more, inverse
    split, shares = rows.split(more - 1.0, 1.0 / inverse, rough=True)
    shares = shares @ rows.weights
    order = rising_order(split[0])  # passes over sorted rows take half the time
    split, weight, correct = split[:, order], rows.weights[order], rows.correct[order].astype(np.float64)
    curve = tail.curve or fit_curve(split[0], correct, weight)
    if curve is None:
        return tail
    prior, pull = curve.strength * penalty(PRIOR, len(curve.knots)), np.empty(rows.n_rows)

    def cost(step: Vector) -> tuple[float, Vector, Vector]:
        """The penalised loss, its slope in the move and the curve, and its curvature in the curve."""
        (a, b), theta = move, _ = REACH * np.tanh(step[:2]), step[2:]
        terms = np.array([[1.0, a, b, 0.5 * a * a, a * b, 0.5 * b * b], [0, 1, 0, a, b, 0], [0, 0, 1, 0, a, b]]) @ chain
        splines = Splines(curve.knots, terms[0] @ split)
        value, gradient, hessian = splines.loss(theta, correct, weight, pull)
        off, (drawn, drawn_slope) = theta - splines.identity, _prior(point + move)
        slope = (terms[1:] @ (split @ pull - shares) + drawn_slope) * (REACH - move**2 / REACH)
        value += drawn - float(terms[0] @ shares) + 0.5 * float(off @ prior @ off)
        return value, np.concatenate([slope, gradient + prior @ off]), hessian + prior

    start = np.concatenate([np.zeros(2), curve.theta])
    value, slope, hessian = cost(start)
    curvature = np.zeros((len(start),) * 2)
    curvature[:2] = [(cost(start + aside)[1] - slope) / ASIDE for aside in ASIDE * np.eye(2, len(start))]
    curvature[2:, :2], curvature[2:, 2:] = curvature[:2, 2:].T, hessian
    bends, axes = np.linalg.eigh(curvature)
    bends = np.maximum(np.abs(bends), LEAST_BEND)

    def objective(step: Vector) -> tuple[float, Vector]:
        return (value, slope) if step is start else cost(step)[:2]

    found = minimise(objective, start, lambda gradient: axes @ (axes.T @ gradient / bends), ENDS).point
    moved = np.clip(point + REACH * np.tanh(found[:2]), *BOUNDS)
    return tail._replace(point=moved, curve=curve._replace(theta=found[2:]))


def _prior(point: Vector) -> tuple[float, Vector]:
    """What the prior costs γ and T, and its slope in (log(1+γ), log T)."""
    gamma = math.expm1(point[0])
    undone = math.log(closest_slope(gamma) / closest_slope(0.0))
    turn = (closest_slope(1.0) - closest_slope(0.0)) * (1.0 + gamma) / closest_slope(gamma)
    far = np.array([point[0], point[1] - undone]) / DEVIATIONS
    cost, pull = student(far)
    pull = pull / DEVIATIONS
    return float(cost.sum()), np.array([pull[0] - turn * pull[1], pull[1]])


def two_class_step(rows: Block) -> Step:
    """A slope, an intercept and a curve of the log-odds of class 1."""
    some = np.isfinite(rows.logits).all(axis=1)  # a row with an impossible class says nothing
    if not some.any():
        return Chain()
    odds, is_class, weight = odds_after(Chain(), rows)[some], rows.labels[some] == 1, rows.weights[some]
    slope, intercept = fit_line(odds, is_class, weight, rising=True, drawn=True, doubt=DOUBT)
    curve = fit_curve(slope * near(odds) + intercept, is_class, weight)
    if curve is None:
        return OneVsRest(Pieces.of(line(slope, intercept)))
    knots, powers = spline(curve.knots, curve.theta)  # after the line
    powers = tuple(part * slope**d for d, part in enumerate(powers))
    return OneVsRest(Pieces.of(((knots - intercept) / slope, powers)))
