"""A test of label shift: whether new class shares explain the scores of new rows.

If it holds, the labelled rows of the fit, weighted by π/π⁰ of their class, have the scores of the new rows. Each score
s (the probability of a class, and the largest one) is replaced by its rank u in the weighted labelled rows, and
compared by the means of Legendre polynomials of u (Neyman's smooth test):

    T = Σ_j (mean of φ_j over new rows - weighted mean of φ_j over labelled rows)² / variance of that difference.

The distribution of T is by a bootstrap: new rows are drawn from the labelled rows with the class shares π, the labelled
rows with replacement, and the shares are estimated again each time. Both samples are drawn from the same rows, as in
any two-sample bootstrap: with halves of them, which differ by chance, the test would miss what it should find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.legendre import legvander

from refocal._arrays import Indices, Matrix, Vector
from refocal.shift.likelihood import TOLERANCE_OF_REPLICATES, effective_weight, likely_shares

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
    """Whether something else than the class shares has changed, at a level of 4 %."""


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
    n_reference = len(reference)
    n_new = len(p)
    weight_known = np.ones(n_reference) if weight_known is None else weight_known / weight_known.mean()
    weight_new = effective_weight(weight_new, n_new)
    if n_reference > MOST_ROWS:
        kept = rng.choice(n_reference, MOST_ROWS, replace=False)
        reference = reference[kept]
        labels = labels[kept]
        weight_known = weight_known[kept]
        n_reference = MOST_ROWS
    if n_new > MOST_ROWS:
        kept = rng.choice(n_new, MOST_ROWS, replace=False)
        p = p[kept]
        weight_new = effective_weight(weight_new[kept], MOST_ROWS)
    n_drawn = max(1, round(float(weight_new.sum())))
    n_classes = reference.shape[1]
    shares_known = _shares_of(labels, weight_known, n_classes)
    means_known = _means_of(reference, weight_known)
    prior = prior_rows * n_classes * means_known
    shares = likely_shares(p, means_known, weight_new, prior=prior)
    features = _features(reference, weight_known * (shares / shares_known)[labels], shares)
    features_known = features(reference)
    features_new = features(p)

    def difference(mean_new: Vector, p_new: Matrix, count_new: Vector, count_known: Vector) -> Vector:
        """Of the means, with the shares that these new rows and these counts of labelled rows have."""
        old = _means_of(reference, count_known)
        own = likely_shares(p_new, old, count_new, shares, TOLERANCE_OF_REPLICATES, prior)
        weight = count_known * (own / _shares_of(labels, count_known, n_classes))[labels]
        return np.asarray(mean_new - weight @ features_known / weight.sum())

    observed = difference(weight_new @ features_new / weight_new.sum(), p, weight_new, weight_known)
    members = [np.flatnonzero(labels == k) for k in range(n_classes)]
    # Within a class rows are drawn by their weights; None where these are equal, which is faster.
    chances = [_chances(weight_known[rows]) for rows in members]
    drawn_shares = np.where([len(rows) > 0 for rows in members], shares, 0.0)
    drawn_shares = drawn_shares / drawn_shares.sum()
    ones = np.ones(n_drawn)
    draws = np.empty((n_draws, len(observed)))
    for i in range(n_draws):
        counts = rng.multinomial(n_drawn, drawn_shares)
        rows = np.concatenate([rng.choice(members[k], counts[k], p=chances[k]) for k in np.flatnonzero(counts)])
        count_known = np.bincount(rng.integers(n_reference, size=n_reference), minlength=n_reference)
        draws[i] = difference(
            features_known[rows].mean(axis=0), reference[rows], ones, count_known.astype(np.float64) * weight_known
        )
    # A score that no row varies in has no variance, and says nothing.
    variance = draws.var(axis=0) + 1e-12
    statistic = float(np.sum(observed**2 / variance))
    statistics = np.sum(draws**2 / variance, axis=1)
    p_value = (1.0 + np.count_nonzero(statistics >= statistic)) / (1.0 + n_draws)
    return LabelShiftTest(float(p_value), statistic, len(observed), bool(p_value < level_of_test))


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
