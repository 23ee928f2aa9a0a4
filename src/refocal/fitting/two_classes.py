"""Curves of the log-odds of the second of two classes, their mean, and the curve behind it.

Six simple curves of a score x, the log-odds or a margin of any scale. A line brings it to log-odds s = a x + b, of
which q = 1 / (1 + e⁻ˢ) is the probability:

    line            η = s                                Platt 1999, with the slope shrunk towards 1
    beta            η = a log q - b log(1 - q) + c       Kull, Silva Filho & Flach 2017
    probability     η = a / (1 + e⁻ˣ) + b                Platt scaling of probabilities, constant beyond the scores seen
    quadratic       η = c + ∫ slope ds                   a slope that is linear between two scores, constant beyond them
    isotonic        η = logit of (k + 1) / (m + 2)       in each block of isotonic regression with k of m rows of the
                                                         class (Laplace's rule), linear between the blocks' centres
    none            η = x                                no calibration

With p₁ … p₆ their probabilities, σ the logistic function and f a monotone curve, the whole map is

    η = logit((1 - ρ) σ(f(logit Σₖ ωₖ pₖ)) + ρ σ(x)),    ρ = 1 / (1 + e^{βD}).

The weights ω are by stacking. They and f are fitted on predictions for rows that the curves were not fitted on. D is by
how much the log-loss of these rows, summed, is higher without calibration than behind f; β is LIKELIHOOD_POWER.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from refocal._arrays import Flags, Indices, Vector
from refocal.fitting.curves import CurvePrior, ShrunkCurve, Splines, fit_curve
from refocal.fitting.folds import joined_folds
from refocal.fitting.logistic import clip_masks, fit_line, fit_logistic, fit_shrunk_line, platt_targets
from refocal.fitting.stacking import weights_of_probabilities
from refocal.maps.curves import Curve
from refocal.maps.row import softplus
from refocal.metrics.bins import isotonic_pools, places_of_shares

LogOddsCurve = Callable[[Vector], Vector]
"""From log-odds (N,) to log-odds (N,)."""

# Half of Platt's pseudo-count, which is 1: the curve behind the mean has no such targets.
PSEUDO_COUNT = 0.5


def fit_members(x: Vector, is_class: Flags, weight: Vector) -> list[LogOddsCurve]:
    """All curves, in the order of MEMBERS."""
    slope, intercept = fit_shrunk_line(x, is_class, weight, pseudo_count=PSEUDO_COUNT)
    s = clip_masks(slope * x + intercept)
    target = platt_targets(is_class, weight, PSEUDO_COUNT)
    beta = fit_beta_line(s, target, weight)
    probability = fit_line_of_probability(clip_masks(x), is_class, weight)
    quadratic = fit_quadratic(s, target, weight)
    return [
        lambda scores: slope * scores + intercept,
        lambda scores: beta(slope * scores + intercept),
        probability,
        lambda scores: quadratic(slope * scores + intercept),
        fit_isotonic(x, is_class, weight),
        lambda scores: scores,
    ]


MEMBERS = ("line", "beta", "probability", "quadratic", "isotonic", "none")


def fit_beta_line(s: Vector, target: Vector, weight: Vector) -> LogOddsCurve:
    """A line of log q and -log(1 - q): the slope goes from a, far below 0, to b, far above."""
    features = np.stack([-softplus(np, -s), softplus(np, s), np.ones_like(s)], axis=1)
    identity = np.array([1.0, 1.0, 0.0])
    precision = np.diag([1.0, 1.0, 1e-9])  # in rows; the intercept is free
    lower = np.array([1e-3, 1e-3, -np.inf])
    a, b, c = fit_logistic(features, target, weight, identity, precision, lower).theta
    return lambda scores: b * softplus(np, scores) - a * softplus(np, -scores) + c


def fit_line_of_probability(x: Vector, is_class: Flags, weight: Vector) -> LogOddsCurve:
    """A line of q, as in scikit-learn's sigmoid; forests of few trees are calibrated by it."""
    lowest = x.min()
    highest = x.max()
    slope, intercept = fit_line(_probability(x), is_class, weight, increasing=True, pseudo_count=PSEUDO_COUNT)
    return lambda scores: slope * _probability(np.clip(scores, lowest, highest)) + intercept


def fit_quadratic(s: Vector, target: Vector, weight: Vector) -> LogOddsCurve:
    """A quadratic between two scores, with at most one row in fifty beyond each, and straight there."""
    order = np.argsort(s, kind="stable")
    knots = s[order][places_of_shares(np.cumsum(weight[order]), np.array([0.02, 0.98]))]
    if knots[1] - knots[0] < 1e-9:  # nearly all scores are the same
        return lambda scores: scores
    prior = CurvePrior(slope=0.3, roughness=0.3, offset=1e-6)
    theta = Splines(knots, s).fit(target, weight, prior).theta
    return lambda scores: Splines(knots, scores).at(theta)


def fit_isotonic(x: Vector, is_class: Flags, weight: Vector) -> LogOddsCurve:
    """Isotonic regression with Laplace's rule in each block, made monotone again, and linear between the blocks.

    Where a new row leaves the blocks as they are, the steps are the probabilities of Venn-Abers calibration.
    """
    x = clip_masks(x)
    order = np.argsort(x, kind="stable")
    score = x[order]
    same_score = 1e-9 * float(np.abs(x).mean())  # scores as close as this are tied
    starts = np.flatnonzero(np.diff(score, prepend=-np.inf) > same_score)
    total = np.add.reduceat(weight[order], starts)
    hits = np.add.reduceat((weight * is_class)[order], starts)
    blocks = isotonic_pools(hits / total, total)
    total_of_block = np.add.reduceat(total, blocks)
    hits_of_block = np.add.reduceat(hits, blocks)
    centre = np.add.reduceat(np.add.reduceat((weight * x)[order], starts), blocks) / total_of_block
    misses_of_block = np.add.reduceat(np.add.reduceat((weight * ~is_class)[order], starts), blocks)
    counted = hits_of_block + misses_of_block + 2.0
    p = isotonic_regression((hits_of_block + 1.0) / counted, weights=counted).x
    # Not 1 - p, which has no digits left where rows of large weights are all of the class.
    not_p = isotonic_regression((misses_of_block + 1.0) / counted, weights=counted, increasing=False).x
    eta = np.log(p) - np.log(not_p)
    return lambda scores: np.interp(scores, centre, eta)


class MemberProbabilities(NamedTuple):
    """The probabilities p of the class by each member (K, N), and 1 - p with all its digits."""

    p: Vector
    not_p: Vector

    @classmethod
    def of(cls, log_odds: Vector) -> MemberProbabilities:
        """From log-odds (K, N)."""
        log_not_p = -softplus(np, log_odds)
        return cls(np.exp(log_odds + log_not_p), np.exp(log_not_p))

    def take(self, rows: Any) -> MemberProbabilities:
        """Those of some rows."""
        return MemberProbabilities(self.p[:, rows], self.not_p[:, rows])

    def mean_log_odds(self, weights: Vector) -> Vector:
        """The log-odds (N,) of a mean of the members."""
        smallest = 1e-300  # a logarithm of 0 would be infinite
        return np.asarray(
            np.log(np.maximum(weights @ self.p, smallest)) - np.log(np.maximum(weights @ self.not_p, smallest))
        )

    def of_label(self, is_class: Flags) -> Vector:
        """The probabilities of the labels (K, N)."""
        return np.where(is_class, self.p, self.not_p)


class MeanCurve(NamedTuple):
    """A mean of the probabilities of several curves, a curve behind it, and the share of no calibration at the end."""

    weights: Vector
    curve: ShrunkCurve | None
    share_uncalibrated: float

    def of(self, members: MemberProbabilities) -> Vector:
        """The log-odds behind it (N,), where no calibration is the last member."""
        none_alone = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
        eta = members.mean_log_odds(self.weights)
        if self.curve is not None:
            eta = Splines(self.curve.knots, eta).at(self.curve.theta)
        if self.share_uncalibrated == 0.0:
            return eta
        both = MemberProbabilities.of(np.stack([eta, members.mean_log_odds(none_alone)]))
        return both.mean_log_odds(np.array([1.0 - self.share_uncalibrated, self.share_uncalibrated]))


class LeftOut(NamedTuple):
    """The mean log-losses of rows that were left out."""

    of_mean: float
    """By curves, weights and a curve behind them that were not fitted on the row that is measured.

    The predictions that its weights were fitted on are of curves of other folds, which have seen the row."""
    of_members: Vector
    """(K,)"""


class TwoClassFit(NamedTuple):
    """A curve of log-odds as pieces, what it is the mean of, and the log-losses of rows left out, if there are any."""

    pieces: Curve
    mean: MeanCurve
    left_out: LeftOut | None


def fit_two_classes(x: Vector, is_class: Flags, weight: Vector, fold: Indices | None) -> TwoClassFit:
    """The curve of log-odds x (N,) of rows with weights, from the folds that they are divided into.

    Without folds, of a handful of rows, all curves have the same weight and nothing follows.
    """
    order = np.argsort(x, kind="stable")  # sorted scores are sorted again, and their splines computed, in half the time
    x = x[order]
    is_class = is_class[order]
    weight = weight[order]
    curves = fit_members(x, is_class, weight)
    if fold is None:
        equal = np.full(len(MEMBERS), 1.0 / len(MEMBERS))
        mean = MeanCurve(equal, None, 0.0)
        return TwoClassFit(_tabulated(curves, mean, x), mean, None)
    fold = fold[order]
    left_out = np.empty((len(MEMBERS), len(x)))
    for i in range(int(fold.max()) + 1):
        held_out = fold == i
        others = ~held_out
        for scores, curve in zip(left_out, fit_members(x[others], is_class[others], weight[others]), strict=True):
            scores[held_out] = curve(x[held_out])
    members = MemberProbabilities.of(left_out)
    mean = fit_mean(members, is_class, weight)
    # Weights and curve of each part, a fold or several, by the others. The curves that predict the others have seen its
    # rows: to fit these again without two folds at a time would take as many fits as there are pairs.
    nested_rows = 5_000  # about how many suffice to measure the log-loss
    some = slice(None, None, -(-len(x) // nested_rows))
    measured = _measured(members.take(some), is_class[some], weight[some], joined_folds(fold[some]), mean)
    return TwoClassFit(_tabulated(curves, mean, x), mean, measured)


# β of the share of no calibration. It is below 1 since D is uncertain, and the weights and the curve were fitted on the
# rows that D is summed over. With 1/4 no model of benchmarks/results/arena.md loses more than 4 % by calibration, with
# 1/2 one loses 5 %.
LIKELIHOOD_POWER = 0.25


def fit_mean(
    members: MemberProbabilities, is_class: Flags, weight: Vector, similar: MeanCurve | None = None
) -> MeanCurve:
    """The weights of predictions for rows left out, and the curve behind their mean, from those of a `similar` mean on.

    Without calibration the log-loss of all rows is higher by D. The share of no calibration is 1 / (1 + exp(β D)): the
    ratio of two likelihoods to the power of β. Where the rows leave open whether calibration helps, the probabilities
    are halfway between.
    """
    # The pseudo-counts of all weights together, in rows: settled on real data sets (benchmarks/results/arena.md).
    weight_rows = 0.5
    smallest = 1e-300
    log_p = np.log(np.maximum(members.of_label(is_class), smallest))
    pseudo_counts = np.full(len(log_p), weight_rows / len(log_p))
    weights = weights_of_probabilities(log_p, weight, pseudo_counts, None if similar is None else similar.weights)
    eta = members.mean_log_odds(weights)
    curve = fit_curve(eta, is_class, weight, None if similar is None else similar.curve)
    mean = MeanCurve(weights, curve, 0.0)
    gain = -float(weight @ (log_p[-1] + log_losses(mean.of(members), is_class)))
    share = float(np.exp(-np.logaddexp(0.0, LIKELIHOOD_POWER * gain)))
    negligible = 1e-9
    return mean._replace(share_uncalibrated=share if share > negligible else 0.0)


def _measured(members: MemberProbabilities, is_class: Flags, weight: Vector, part: Indices, mean: MeanCurve) -> LeftOut:
    """The log-losses of rows left out, one part (N,) after the other."""
    losses = np.empty(len(part))
    for i in np.unique(part):
        held_out = part == i
        others = ~held_out
        nested = fit_mean(members.take(others), is_class[others], weight[others], mean)
        losses[held_out] = log_losses(nested.of(members.take(held_out)), is_class[held_out])
    of_members = -np.log(np.maximum(members.of_label(is_class), 1e-300))
    return LeftOut(float(np.average(losses, weights=weight)), np.average(of_members, axis=1, weights=weight))


def log_losses(log_odds: Vector, is_class: Flags) -> Vector:
    """The log-loss of every row (N,)."""
    return np.asarray(softplus(np, np.where(is_class, -log_odds, log_odds)))


def _probability(x: Vector) -> Vector:
    return np.asarray(np.exp(-softplus(np, -x)))


def _tabulated(curves: Sequence[LogOddsCurve], mean: MeanCurve, x: Vector) -> Curve:
    """A mean of curves as one piecewise linear curve, which is applied as fast as any of them.

    Knots are added halfway between two others, where the mean is farthest from the line between them, until it is
    within a tolerance everywhere. Beyond the scores some curves are straight and others constant, so that knots go on
    for the range of the scores on either side.
    """
    tolerance = 0.005  # of log-odds
    max_knots = 128

    def at(scores: Vector) -> Vector:
        return mean.of(MemberProbabilities.of(np.stack([curve(scores) for curve in curves])))

    clipped = clip_masks(x)
    width = max(float(np.ptp(clipped)), 1.0)
    resolution = 1e-6 * width  # scores no farther apart are equal but for rounding
    distinct = np.unique(clipped)
    distinct = distinct[np.append(True, np.diff(distinct) > resolution)]
    first = np.quantile(distinct, np.linspace(0.0, 1.0, 24))
    knots = np.unique(np.concatenate([[clipped.min() - width], first, [clipped.max() + width]]))
    knots = knots[np.append(True, np.diff(knots) > resolution)]
    eta = at(knots)
    while len(knots) < max_knots:
        middle = 0.5 * (knots[1:] + knots[:-1])
        at_middle = at(middle)
        error = np.abs(at_middle - 0.5 * (eta[1:] + eta[:-1]))
        worst = np.argsort(-error, kind="stable")[: max_knots - len(knots)]
        worst = worst[error[worst] > tolerance]
        if len(worst) == 0:
            break
        order = np.argsort(np.append(knots, middle[worst]))
        knots = np.append(knots, middle[worst])[order]
        eta = np.append(eta, at_middle[worst])[order]
    least_slope = 1e-6 / width  # so that it rises everywhere
    slopes = np.maximum(np.diff(eta) / np.diff(knots), least_slope)
    middle_knot = len(knots) // 2
    height = np.append(0.0, np.cumsum(slopes * np.diff(knots)))
    eta = height + (eta[middle_knot] - height[middle_knot])
    # Piece 0 lies below the first knot and is counted from there, the others begin at their knots.
    return knots, (np.append(eta[0], eta), np.concatenate([slopes[:1], slopes, slopes[-1:]]))
