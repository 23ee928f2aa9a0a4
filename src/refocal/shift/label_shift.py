"""A test of label shift: whether new class shares explain the scores of new rows.

If it holds, the labelled rows of the fit, weighted by π/π⁰ of their class, have the scores of the new rows. Each score
s (the probability of a class, and the largest one) is replaced by its rank u in the weighted labelled rows, and
compared by the means of Legendre polynomials of u (Neyman's smooth test):

    T = Σ_j (mean of φ_j over new rows - weighted mean of φ_j over labelled rows)² / variance of that difference.

Two classes have only one score, and rows from elsewhere change its distribution much as new shares do. T then has a
further term: for rows from elsewhere, the density of the log-odds z is about that of the labelled rows times exp(θ z),
up to a factor, and the log-likelihood of this less that of new shares,

    Λ = max_θ N (θ mean z - log mean_labelled exp(θ z)) - Σ log Σ_k p_k π_k/π⁰_k,

is large; 2 max(0, Λ - mean)² / variance is added. Shares are also refused that leave no rows to a class to which the
calibrator gives a tenth of the rows or more, if the rows are evidence for other shares than those of the fit.

The distribution of T is by a bootstrap: new rows are drawn from the labelled rows with the class shares π, the labelled
rows with replacement, and the shares are estimated again each time. Both samples are drawn from the same rows, as in
any two-sample bootstrap: with halves of them, which differ by chance, the test would miss what it should find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.polynomial.legendre import legvander

from refocal._arrays import Indices, Matrix, Vector
from refocal.shift.likelihood import TOLERANCE_OF_REPLICATES, effective_weight, likely_shares, share_evidence

N_DRAWS = 199
# Rows beyond this, of either sample, are left out at random: more of them find differences that do not matter.
MOST_ROWS = 20_000


@dataclass(frozen=True)
class LabelShiftTest:
    """Whether new class shares explain the new scores."""

    p_value: float
    """The probability of a statistic at least as large if only the class shares have changed."""
    statistic: float
    """The sum of the squared differences, each in standard deviations."""
    n_features: int
    """How many differences there are."""
    rejects: bool
    """Whether something else than the class shares has changed, at a level of 4 %, or a class would be gone."""
    gone: int | None = None
    """The column of a class of two that would have no rows at all, where its probabilities say otherwise."""


def label_shift_test(
    reference: Matrix,
    labels: Indices,
    p: Matrix,
    rng: np.random.Generator,
    n_draws: int = N_DRAWS,
    *,
    weight_known: Vector | None = None,
    weight_new: Vector | None = None,
) -> LabelShiftTest:
    """The test of the module: probabilities (n, C) of labelled rows and their labels, and p (N, C) of new rows.

    Rows are resampled with their weights. Draws stand for as many new rows as the weights are worth, (Σ w)² / Σ w².

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=1000)
    >>> probability = 1 / (1 + np.exp(-2 * x))
    >>> labels = (rng.random(1000) < probability).astype(int)
    >>> reference = np.stack([1 - probability, probability], axis=1)
    >>> rare = np.flatnonzero((labels == 0) | (rng.random(1000) < 0.2))
    >>> label_shift_test(reference, labels, reference[rare], rng).rejects
    False
    >>> label_shift_test(reference, labels, reference[np.abs(x) < 1], rng).rejects
    True
    """
    # The weight of the prior in rows for each class. It is next to nothing, since a prior moves the shares of the new
    # rows by more than those of draws, which are near those of the fit already.
    prior_rows = 0.02
    # Label shift is rejected where the p-value is below this: of 100 adaptations that fit, about 4 are refused.
    level_of_test = 0.04
    # The weight of Λ in the statistic of two classes, beside four differences of weight 1.
    weight_of_tilt = 2.0
    weight_known = np.ones(len(reference)) if weight_known is None else weight_known / weight_known.mean()
    weight_new = effective_weight(weight_new, len(p))
    if len(reference) > MOST_ROWS:
        kept = rng.choice(len(reference), MOST_ROWS, replace=False)
        reference = reference[kept]
        labels = labels[kept]
        weight_known = weight_known[kept]
    if len(p) > MOST_ROWS:
        kept = rng.choice(len(p), MOST_ROWS, replace=False)
        p = p[kept]
        weight_new = effective_weight(weight_new[kept], MOST_ROWS)
    n_classes = reference.shape[1]
    means_known = _means_of(reference, weight_known)
    prior = prior_rows * n_classes * means_known
    shares = likely_shares(p, means_known, weight_new, prior=prior)
    weight_shifted = weight_known * (shares / _shares_of(labels, weight_known, n_classes))[labels]
    features = _features(reference, weight_shifted, shares)
    known = _LabelledRows(reference, labels, weight_known, features(reference), shares, prior)
    mean_new = weight_new @ features(p) / weight_new.sum()
    observed, observed_tilt = known.compare(mean_new, p, weight_new, weight_known)
    n_drawn = max(1, round(float(weight_new.sum())))
    draws, tilts = known.bootstrap(n_drawn, n_draws, rng)
    # A score that no row varies in has no variance, and says nothing.
    variance = draws.var(axis=0) + 1e-12
    statistic = float(np.sum(observed**2 / variance))
    statistics = np.sum(draws**2 / variance, axis=1)
    gone = None
    if n_classes == 2:
        spread = float(tilts.std()) + 1e-9
        statistic += weight_of_tilt * max(0.0, (observed_tilt - float(tilts.mean())) / spread) ** 2
        statistics += weight_of_tilt * np.maximum(0.0, (tilts - tilts.mean()) / spread) ** 2
        if share_evidence(p, means_known, shares, len(reference), weight_new).weight > 0.0:
            gone = _class_that_is_gone(shares, weight_new @ p / weight_new.sum())
    p_value = float((1.0 + np.count_nonzero(statistics >= statistic)) / (1.0 + n_draws))
    rejects = p_value < level_of_test or gone is not None
    return LabelShiftTest(p_value, statistic, len(observed), rejects, gone)


@dataclass(frozen=True)
class _LabelledRows:
    """The labelled rows of the fit, which new rows are compared with and drawn from."""

    p: Matrix
    labels: Indices
    weight: Vector
    features: Matrix
    shares: Vector
    """The class shares of the new rows, π."""
    prior: Vector
    """The weight of the prior for the share of each class, in rows."""

    @cached_property
    def log_odds(self) -> Vector:
        """The log-odds of the last class of two."""
        return _log_odds(self.p)

    def compare(self, mean_new: Vector, p_new: Matrix, count_new: Vector, count: Vector) -> tuple[Vector, float]:
        """The differences of the means of features, and Λ, for some new rows and counts of the labelled rows.

        The shares are estimated from both.
        """
        n_classes = self.p.shape[1]
        old = _means_of(self.p, count)
        own = likely_shares(p_new, old, count_new, self.shares, TOLERANCE_OF_REPLICATES, self.prior)
        weight = count * (own / _shares_of(self.labels, count, n_classes))[self.labels]
        difference = np.asarray(mean_new - weight @ self.features / weight.sum())
        if n_classes > 2:
            return difference, 0.0
        gain_of_tilt = _gain_of_tilt(_log_odds(p_new), count_new, self.log_odds, count)
        return difference, gain_of_tilt - float(count_new @ np.log(p_new @ (own / old)))

    def bootstrap(self, n_new: int, n_draws: int, rng: np.random.Generator) -> tuple[Matrix, Vector]:
        """The differences (draws, features) and Λ (draws,) of `n_new` rows of the class shares π, drawn from these."""
        n_rows, n_classes = self.p.shape
        members = [np.flatnonzero(self.labels == k) for k in range(n_classes)]
        # Within a class rows are drawn by their weights; None where these are equal, which is faster.
        chances = [_chances(self.weight[rows]) for rows in members]
        drawn_shares = np.where([len(rows) > 0 for rows in members], self.shares, 0.0)
        drawn_shares = drawn_shares / drawn_shares.sum()
        ones = np.ones(n_new)
        differences = np.empty((n_draws, self.features.shape[1]))
        tilts = np.empty(n_draws)
        for i in range(n_draws):
            counts = rng.multinomial(n_new, drawn_shares)
            rows = np.concatenate([rng.choice(members[k], counts[k], p=chances[k]) for k in np.flatnonzero(counts)])
            count = np.bincount(rng.integers(n_rows, size=n_rows), minlength=n_rows).astype(np.float64) * self.weight
            differences[i], tilts[i] = self.compare(self.features[rows].mean(axis=0), self.p[rows], ones, count)
        return differences, tilts


def _log_odds(p: Matrix) -> Vector:
    """Of the last class of two, bounded."""
    largest = 8.0
    log_p = np.log(np.maximum(p, 1e-9))
    return np.asarray(np.clip(log_p[:, -1] - log_p[:, 0], -largest, largest))


def _gain_of_tilt(new: Vector, count_new: Vector, known: Vector, count_known: Vector) -> float:
    """The largest log-likelihood of new scores under the density exp(θ z) of known ones: N max (θ m - K(θ)).

    K(θ) = log mean exp(θ z) of the known scores, whose derivatives are the mean and the variance of z under the tilt,
    and m is the mean of the new scores. Newton's steps, which are halved until the value rises; it is concave.
    """
    most_steps = 30
    most_halvings = 20
    # The rise of the log-likelihood that is not worth another step.
    tolerance = 1e-4
    # Standardised, a score counts as at most this: a tilt is not about a few rows.
    largest = 4.0
    # New scores beyond all known ones have no steepest tilt. By this one the density of a standard deviation more is
    # e²⁰ as large.
    steepest = 20.0
    share = count_known / count_known.sum()
    centre = float(share @ known)
    spread = float(np.sqrt(share @ (known - centre) ** 2)) + 1e-9
    z = np.clip((known - centre) / spread, -largest, largest)
    n_new = float(count_new.sum())
    mean_new = float(count_new @ np.clip((new - centre) / spread, -largest, largest)) / n_new

    def value_of(theta: float) -> tuple[float, Vector]:
        tilted = share * np.exp(theta * z - abs(theta) * largest)
        total = float(tilted.sum())
        return n_new * (theta * mean_new - np.log(total) - abs(theta) * largest), tilted / total

    theta = 0.0
    value, tilted = value_of(theta)
    for _ in range(most_steps):
        mean = float(tilted @ z)
        # A floor for scores of one value.
        variance = float(tilted @ (z - mean) ** 2) + 1e-3
        step = (mean_new - mean) / variance
        step = min(max(theta + step, -steepest), steepest) - theta
        if 0.5 * n_new * step * (mean_new - mean) < tolerance:
            break
        for _ in range(most_halvings):
            proposed, tilted = value_of(theta + step)
            if proposed >= value:
                break
            step = 0.5 * step
        else:
            break
        theta += step
        value = proposed
    return value


def _class_that_is_gone(shares: Vector, mean_probabilities: Vector) -> int | None:
    """The class that the likeliest shares leave next to nothing of what its probabilities say; None if none is gone.

    Where classes overlap, rows from elsewhere move the scores beyond those of any shares. A class that has really gone
    is hardly given by a model that tells it from the other.
    """
    least_of_expected = 0.01
    least_mean = 0.1
    is_gone = (shares < least_of_expected * mean_probabilities) & (mean_probabilities > least_mean)
    return int(np.argmax(is_gone)) if is_gone.any() else None


def _chances(weight: Vector) -> Vector | None:
    if len(weight) == 0 or np.all(weight == weight[0]):
        return None
    return np.asarray(weight / weight.sum())


def _shares_of(labels: Indices, count: Vector, n_classes: int) -> Vector:
    # A class without labelled rows had half a row.
    least_rows = 0.5
    counts = np.maximum(np.bincount(labels, count, n_classes), least_rows)
    return np.asarray(counts / counts.sum())


def _means_of(p: Matrix, count: Vector) -> Vector:
    """The shares that the probabilities of labelled rows stand for: those of the labels if intercepts are fitted."""
    # No class has a share of zero.
    means = np.maximum(count @ p, 1e-9)
    return np.asarray(means / means.sum())


def _features(reference: Matrix, weight: Vector, shares: Vector) -> Callable[[Matrix], Matrix]:
    """The polynomials of the ranks of scores in weighted reference rows, as a function of probabilities."""
    # The degree of the polynomials; the one score of two classes is looked at more closely.
    degree_of_many = 2
    degree_of_two_classes = 4
    # The scores of the most frequent classes alone are compared.
    most_classes = 100
    n_classes = reference.shape[1]
    degree = degree_of_two_classes if n_classes == 2 else degree_of_many
    classes = np.array([1]) if n_classes == 2 else np.sort(np.argsort(-shares, kind="stable")[:most_classes])

    def scores(p: Matrix) -> Matrix:
        if n_classes == 2:
            return p[:, classes]
        return np.concatenate([p[:, classes], p.max(axis=1, keepdims=True)], axis=1)

    known = scores(reference)
    order = np.argsort(known, axis=0, kind="stable")
    ordered = np.take_along_axis(known, order, axis=0)
    below = np.zeros((len(known) + 1, known.shape[1]))
    below[1:] = np.cumsum(weight[order], axis=0)
    below /= below[-1]

    def features(p: Matrix) -> Matrix:
        columns = []
        for j, score in enumerate(scores(p).T):
            first = np.searchsorted(ordered[:, j], score, side="left")
            last = np.searchsorted(ordered[:, j], score, side="right")
            # Equal scores have the mean of their ranks.
            rank = 0.5 * (below[first, j] + below[last, j])
            columns.append(legvander(2.0 * rank - 1.0, degree)[:, 1:])
        return np.concatenate(columns, axis=1)

    return features
