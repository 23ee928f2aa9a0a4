"""The likeliest class shares of rows without labels, and how far towards them the rows justify going.

With calibrated p and the shares π⁰ of the fit, the log-likelihood of shares π is Σ log Σ_k p_k π_k/π⁰_k. Its gain
against π⁰ is not zero where nothing has changed, since π is fitted to the rows:

    G = 2 Σ log Σ_k p_k π̂_k/π⁰_k           is then about χ² of ν degrees of freedom, where
    ν = Σ_j h_j (2 - h_j),                 h_j = λ_j / (λ_j + C),

λ_j the eigenvalues of Σ z zᵀ, z = p/√π⁰, orthogonal to √π⁰, and C the weight of the prior. The calibration has an
error of its own, which adds N/n for N new rows and n rows of the fit. Beyond the quantile c of what chance gives, the
shares move towards the likeliest ones, by

    π = π⁰ + max(0, 1 - (c/G)²) (π̂ - π⁰),     c = χ²_0.99(ν) (1 + N/n).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from refocal._arrays import Matrix, Vector

# The weight of the prior on the shares of the fit, in rows for each class. With one row in all, 1,000 rows of 100
# classes were worse off adapted than not; benchmarks/results/adapt.md has the present figures.
PRIOR_ROWS = 1.0
# The change of any share that ends the iterations.
TOLERANCE = 1e-7
# Replicates, which scatter by more, begin at the shares of the rows and end sooner.
TOLERANCE_OF_REPLICATES = 1e-5


def effective_weight(weight: Vector | None, n: int) -> Vector:
    """Weights whose sum is the number of rows that are known as well, (Σ w)² / Σ w² (Kish 1965); ones without any.

    >>> effective_weight(np.array([3.0, 3.0]), 2), effective_weight(np.array([3.0, 1.0]), 2)
    (array([1., 1.]), array([1.2, 0.4]))
    """
    if weight is None:
        return np.ones(n)
    return np.asarray(weight * float(weight.sum()) / float(weight @ weight))


def likely_shares(
    p: Matrix,
    old: Vector,
    weight: Vector | None = None,
    start: Vector | None = None,
    tolerance: float = TOLERANCE,
    prior: Vector | None = None,
) -> Vector:
    """The shares π of largest posterior: the fixed point of π = (Σ p' + C π⁰) / (N + C), p'_k ∝ p_k π_k/π⁰_k.

    Steps of EM are short where classes overlap. From π, and π₁ and π₂ after one step and two, with r = π₁ - π and
    v = π₂ - 2 π₁ + π, the next is π + 2 α r + α² v, α = |r| / |v| (SQUAREM; Varadhan and Roland 2008).

    >>> p = np.array([[0.9, 0.1], [0.8, 0.2], [0.9, 0.1], [0.2, 0.8]])
    >>> likely_shares(p, np.array([0.5, 0.5])).round(2)
    array([0.7, 0.3])
    """
    most_steps = 1_000  # as few as the tolerance allows in all but degenerate cases
    # What remains at least of a share that a long step would take below zero.
    least_of_share = 0.5
    if weight is None:
        weight = np.ones(len(p))
    if prior is None:
        prior = PRIOR_ROWS * len(old) * old
    total = float(weight.sum()) + float(prior.sum())

    def step_of_em(shares: Vector) -> Vector:
        ratio = shares / old
        evidence = p @ ratio
        return np.asarray((ratio * (p.T @ (weight / evidence)) + prior) / total)

    shares = old if start is None else start
    for _ in range(most_steps):
        first = step_of_em(shares)
        change = first - shares
        if float(np.max(np.abs(change))) < tolerance:
            shares = first
            break
        second = step_of_em(first)
        change_of_change = second - first - change
        curvature = float(change_of_change @ change_of_change)
        length = 1.0
        if curvature > 0.0:
            length = math.sqrt(float(change @ change) / curvature)
        if length <= 1.0:
            shares = second
            continue
        shares = shares + 2.0 * length * change + length**2 * change_of_change
        shares = np.maximum(shares, least_of_share * second)
        shares = shares / float(shares.sum())
    return shares / float(shares.sum())


@dataclass(frozen=True)
class ShareEvidence:
    """How much better new class shares explain the rows than those of the fit, and what follows."""

    gain: float
    """Twice the gain in log-likelihood of the likeliest shares."""
    gain_by_chance: float
    """The gain that 99 % of such sets of rows stay below if the shares are still those of the fit."""
    weight: float
    """How far the shares go from those of the fit, 0, to the likeliest ones, 1."""


def share_evidence(
    p: Matrix, old: Vector, likeliest: Vector, n_fit: float, weight: Vector | None = None
) -> ShareEvidence:
    """The evidence of new rows of probabilities p (N, C) for their likeliest shares.

    >>> p = np.repeat([[0.9, 0.1], [0.2, 0.8]], [70, 30], axis=0)
    >>> old = np.array([0.5, 0.5])
    >>> found = share_evidence(p, old, likely_shares(p, old), 1000)
    >>> round(found.gain, 1), round(found.gain_by_chance, 1), round(found.weight, 2)
    (29.8, 7.3, 0.94)
    """
    # Of 100 sets of rows whose shares have not changed, about 99 leave the calibrator as it was. With 0.95 rare events
    # lost 6 % of their log-loss to chance; 10 classes with new shares gain 15.7 instead of 15.9 % by 200 rows.
    quantile_of_chance = 0.99
    count = np.ones(len(p)) if weight is None else weight
    gain = 2.0 * float(count @ np.log(p @ (likeliest / old)))
    degrees_of_freedom = _degrees_of_freedom(p, old, count)
    by_chance = float(chi2.ppf(quantile_of_chance, degrees_of_freedom)) * (1.0 + float(count.sum()) / n_fit)
    weight_of_evidence = 0.0
    if gain > by_chance:
        weight_of_evidence = 1.0 - (by_chance / gain) ** 2
    return ShareEvidence(gain, by_chance, weight_of_evidence)


def _degrees_of_freedom(p: Matrix, old: Vector, count: Vector | None = None) -> float:
    """The expected gain ν of shares fitted to rows whose shares are those of the fit; see the module."""
    n_classes = len(old)
    root = np.sqrt(old)
    z = p / root
    # Shares have the sum 1: the component along √π⁰ is fixed.
    z = z - np.outer(z @ root, root)
    eigenvalues = np.maximum(np.linalg.eigvalsh((z.T if count is None else count * z.T) @ z), 0.0)
    shrinkage = eigenvalues / (eigenvalues + PRIOR_ROWS * n_classes)
    return float(np.sum(shrinkage * (2.0 - shrinkage)))
