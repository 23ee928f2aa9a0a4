"""A line in log-odds for each group of rows, shrunk towards the identity, more so for small groups."""

from __future__ import annotations

from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.polynomial.chebyshev import chebder, chebfit, chebval
from numpy.typing import NDArray

from refocal._arrays import Flags, Vector
from refocal.calibrators._logistic import LEAST_RISE, fit_logistic, softplus

# Candidate standard deviations, in log-odds, of the groups' lines from the identity.
DEVIATIONS = (0.01, 0.03, 0.1, 0.3, 1.0)
# The losses of groups are computed at Chebyshev nodes of the log-slope; a polynomial gives them at more places.
FARTHEST, N_NODES, N_PLACES = 2.0, 17, 4001
NODES: Vector = FARTHEST * np.cos(np.pi * (np.arange(N_NODES) + 0.5) / N_NODES)


class Lines(NamedTuple):
    """Slope and intercept for each group, and the standard deviation between groups that was chosen."""

    slope: Vector
    intercept: Vector
    deviation: float


def fit_lines(log_odds: Vector, target: Flags, weight: Vector, group: NDArray[np.int64], n_groups: int) -> Lines:
    """Log-odds a·x + b of each group 0 … G-1, a above 0, with a normal prior around a = 1, b = 0.

    The prior concerns the value of the line one standard deviation of x from its mean. Its width is the one of
    `DEVIATIONS` with the largest evidence: the probability of all outcomes, by Laplace's approximation.

    >>> x, group = np.zeros(400), np.repeat([0, 1], 200)
    >>> y = np.concatenate([np.arange(200) < 50, np.arange(200) < 150])  # 25 % and 75 %: log-odds of ∓1.1
    >>> fit_lines(x, y, np.ones(400), group, 3).intercept.round(2)
    array([-1.07,  1.07,  0.  ])
    """
    # A row in which a class cannot occur says nothing of the lines.
    known = np.isfinite(log_odds)
    log_odds, target, weight, group = log_odds[known], target[known], weight[known], group[known]
    centre = float(np.average(log_odds, weights=weight))
    spread = float(np.sqrt(np.average((log_odds - centre) ** 2, weights=weight))) or 1.0
    features = np.stack([np.ones_like(log_odds), (log_odds - centre) / spread], axis=1)
    common = np.array([centre, spread])
    rows = [np.flatnonzero(group == g) for g in range(n_groups)]

    def fit(deviation: float) -> tuple[float, Vector, float]:
        fits = [_fit(features[some], target[some], weight[some], common, deviation) for some in rows]
        return sum(each[1] for each in fits), np.stack([each[0] for each in fits]), deviation

    _, theta, deviation = max(map(fit, DEVIATIONS), key=itemgetter(0))
    slope = theta[:, 1] / spread
    return Lines(slope, theta[:, 0] - slope * centre, deviation)


def fit_slopes(losses: Vector) -> Lines:
    """A slope of the scores for each group, from the losses (nodes, groups) at the slopes exp(NODES).

    The log-slopes have a normal prior around 0, with the deviation of most evidence as in `fit_lines`.

    >>> parabolas = 2000.0 * (NODES[:, None] - [0.5, 0.5, -1.0, -0.4]) ** 2
    >>> np.log(fit_slopes(parabolas).slope).round(2)
    array([ 0.5,  0.5, -1. , -0.4])
    """
    places = np.linspace(-1.0, 1.0, N_PLACES)
    curves = chebfit(NODES / FARTHEST, losses, N_NODES - 1)
    loss, bend = chebval(places, curves), chebval(places, chebder(curves, 2)) / FARTHEST**2
    groups, at = np.arange(losses.shape[1]), FARTHEST * places

    def fit(deviation: float) -> tuple[float, Vector, float]:
        cost = loss + 0.5 * (at / deviation) ** 2
        least = np.argmin(cost, axis=1)
        volume = np.log1p(deviation**2 * np.maximum(bend[groups, least], 0.0))
        return -float(np.sum(cost[groups, least] + 0.5 * volume)), at[least], deviation

    _, log_slope, deviation = max(map(fit, DEVIATIONS), key=itemgetter(0))
    return Lines(np.exp(log_slope), np.zeros(len(log_slope)), deviation)


def _fit(features: Vector, target: Flags, weight: Vector, common: Vector, deviation: float) -> tuple[Vector, float]:
    """The coefficients of one group, and the logarithm of the evidence for the prior."""
    penalty = np.eye(len(common)) / deviation**2
    lower = np.array([-np.inf, LEAST_RISE * common[1]])
    theta = fit_logistic(features, target, weight, common, penalty, lower)
    eta, off = features @ theta, theta - common
    curvature = weight * np.exp(-softplus(eta) - softplus(-eta))
    excess = (features * curvature[:, None]).T @ features * deviation**2 + np.eye(len(common))
    loss = float(weight @ softplus(np.where(target, -eta, eta)) + 0.5 * off @ penalty @ off)
    return theta, -loss - 0.5 * float(np.linalg.slogdet(excess)[1])
