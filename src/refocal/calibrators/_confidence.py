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
from refocal.calibrators._logistic import fit_line, near, platt_targets, softplus
from refocal.calibrators.spline import Prior, Spline, fit_spline
from refocal.engine import Block
from refocal.maps.curves import Confidence, OneVsRest, Pieces, log_odds, top_log_odds
from refocal.maps.steps import Chain, Focal, Step, Temperature

# The settings were chosen on 24 networks and 8 tabular models; benchmarks/results/auto.md says what was tried.
# Knots of the curve, and its prior: weights in rows.
N_KNOTS = 6
PRIOR = Prior(slope=5.0, bend=5.0, offset=0.3, least_slope=0.05)
# The priors of log(1+γ) and log T are Student distributions around 0, of these widths and so many degrees of freedom:
# strong where few rows say little, weak where many say that they lie far out, as after training with a large γ.
DEVIATIONS, FREEDOM = np.array([0.3, 0.2]), 6.0
# γ and T are searched on at most so many rows: more would change the log-loss by less than 1/20,000.
SEARCH_ROWS = 20_000
SEARCH = {"initial_simplex": [[0.0, 0.0], [0.2, 0.0], [0.0, -0.2]], "maxfev": 100, "xatol": 0.01, "fatol": 1e-5}
# Of log(1+γ) and |log T|: beyond it nothing is looked for.
LARGEST = 3.0
# A probability this close to 0 or 1 counts as this close while γ and T are searched.
LEAST = 1e-12


class Tail(NamedTuple):
    """What stands behind a scaling, and the log-loss of every row behind both."""

    gamma: float
    temperature: float
    curve: Pieces | None
    losses: Vector

    @property
    def steps(self) -> tuple[Step, ...]:
        curve = () if self.curve is None else (Confidence(self.curve),)
        return (Temperature(self.temperature), Focal(self.gamma), *curve)


def fit_tail(rows: Block) -> Tail:
    """γ, T and the curve of the confidence of least log-loss and prior, for scores that a scaling gave."""
    sample = rows.part(SEARCH_ROWS)
    weight = np.ones(sample.n_rows) if sample.weight is None else sample.weight

    def cost(point: Vector) -> float:
        if np.abs(point).max() > LARGEST:
            return math.inf
        (found,) = sample.predictions((math.expm1(point[0]),), math.exp(point[1]))
        confidence = np.clip(found.confidence, LEAST, 1.0 - max(LEAST, sample.precision))
        log_rest = np.log1p(-confidence)
        odds = np.log(confidence) - log_rest
        curve = _curve(odds, sample.correct, weight)
        curved, penalty = (odds, 0.0) if curve is None else (curve(odds), curve.penalty)
        # The loss of a row: whether the top is right, and if not, which of the others is.
        loss = softplus(np.where(sample.correct, -curved, curved))
        loss -= np.where(sample.correct, 0.0, found.label_log_p - log_rest)
        prior = FREEDOM * np.log1p((point / DEVIATIONS) ** 2 / FREEDOM).sum()
        return float(weight @ loss + penalty + 0.5 * prior) / sample.total_weight

    found = minimize(cost, [0.0, 0.0], method="Nelder-Mead", options=SEARCH).x
    steps = (Temperature(math.exp(found[1])), Focal(math.expm1(found[0])))
    curve = _curve(top_odds(steps, rows), rows.correct, np.ones(rows.n_rows) if rows.weight is None else rows.weight)
    tail = Tail(steps[1].gamma, steps[0].temperature, curve and Pieces.of(*_joined(curve)), np.empty(0))
    return tail._replace(losses=losses_of(tail.steps, rows))


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


def _curve(odds: Vector, target: NDArray[Any], weight: Vector) -> Spline | None:
    """A rising curve from log-odds to log-odds; None where all log-odds are the same."""
    odds = near(odds)
    knots = _weighted_quantiles(odds, weight, (np.arange(N_KNOTS) + 0.5) / N_KNOTS)
    return None if len(knots) < 2 else fit_spline(odds, target, weight, knots, PRIOR)


def _joined(curve: Spline, slope: float = 1.0, intercept: float = 0.0) -> tuple[list[Vector], list[list[Vector]]]:
    """The one curve of `Pieces`, behind a line."""
    knots, coefficients = curve.curve
    powers = [[part * slope**d] for d, part in enumerate(coefficients)]
    return [(knots - intercept) / slope], powers


def _weighted_quantiles(values: Vector, weight: Vector, shares: Vector) -> Vector:
    """Distinct values up to which these shares of the weight lie: the same for a weight of 2 as for a row twice."""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weight[order])
    at = np.searchsorted(total, shares * total[-1])
    return np.unique(values[order][np.minimum(at, len(values) - 1)])


def two_class_step(rows: Block) -> Step:
    """A slope, an intercept and a curve of the log-odds of class 1."""
    odds = log_odds(np, rows.logits.astype(np.float64))[:, 1]
    some = np.isfinite(rows.logits).all(axis=1)  # a row with an impossible class says nothing
    if not some.any():
        return Chain()
    weight = (np.ones(rows.n_rows) if rows.weight is None else rows.weight)[some]
    odds, is_class = odds[some], rows.labels[some] == 1
    slope, intercept = fit_line(odds, is_class, weight, rising=True)
    curve = _curve(slope * near(odds) + intercept, platt_targets(is_class, weight), weight)
    if curve is None:
        pieces = Pieces.of([[0.0]], [[[intercept] * 2], [[slope] * 2]])
    else:
        pieces = Pieces.of(*_joined(curve, slope, intercept))
    return OneVsRest(pieces)
