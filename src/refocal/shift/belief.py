"""What calibrated probabilities may be wrong by: replicates of the calibration's own error.

A calibrator of n rows is known to about the error of its intercepts a (C,) and its slope b, p ∝ exp((1 + b) l + a) of
its log-probabilities l. For the log-likelihood of n rows like those of the fit,

    H = n E [ diag(p) - p pᵀ       p (l - Σ p l) ]
            [      …                Var_p(l)      ],

and (a, b) ~ N(0, H⁻¹) is the Laplace approximation of their error. The rows of the fit need not be known: those at hand
stand for them, weighted by the ratio of the densities under label shift, 1 / Σ_k p_k π_k/π⁰_k.
"""

from __future__ import annotations

import numpy as np

from refocal._arrays import Matrix, Vector


def softmax(log_p: Matrix) -> Matrix:
    """Probabilities of scores."""
    p: Matrix = np.exp(log_p - log_p.max(axis=1, keepdims=True))
    # The sums of rows by a product, which is faster for few classes.
    p /= (p @ np.ones(p.shape[1]))[:, None]
    return p


def replicate_parameters(
    log_p: Matrix, weight: Vector, n_fit: float, n_replicates: int, rng: np.random.Generator, excess: float = 0.0
) -> tuple[Matrix, Vector]:
    """Draws of the errors a (replicates, C) and b (replicates,) of a fit on `n_fit` rows like these.

    `excess` is by how much its slope was too large on its own rows, to which it was fitted, where 1 - excess would have
    been right: elsewhere it is so by about as much again or not at all, (1 - excess)^(1 + z) with z ~ N(0, 1).
    """
    # The weight of the prior on each number, in rows: classes that hardly occur are not known to nothing.
    prior_rows = 1.0
    # Probabilities are not turned round, as they could be where the fit's are all 0 or 1 and say nothing of a slope.
    least_slope = 0.05
    # Beyond as many classes the errors of their intercepts count as independent.
    most_joint = 200
    known_error: Vector | float = 0.0
    if excess > 0.0:
        known_error = 1.0 - max(1.0 - excess, least_slope) ** (1.0 + rng.normal(size=n_replicates))
    n_classes = log_p.shape[1]
    p = np.exp(log_p)
    share = weight / weight.sum()
    centred = log_p - np.sum(p * log_p, axis=1, keepdims=True)
    slope = float(share @ np.sum(p * centred**2, axis=1))
    cross = share @ (p * centred)
    mean = share @ p
    if n_classes > most_joint:
        variance = 1.0 / (n_fit * (mean - share @ p**2) + prior_rows)
        a = rng.normal(size=(n_replicates, n_classes)) * np.sqrt(variance)
        b = rng.normal(size=n_replicates) / np.sqrt(n_fit * slope + prior_rows)
        return a, np.maximum(b - known_error, least_slope - 1.0)
    information = np.zeros((n_classes + 1, n_classes + 1))
    information[:n_classes, :n_classes] = np.diag(mean) - (p * share[:, None]).T @ p
    information[:n_classes, n_classes] = cross
    information[n_classes, :n_classes] = cross
    information[n_classes, n_classes] = slope
    information = n_fit * information + prior_rows * np.eye(n_classes + 1)
    # x = L⁻ᵀ z has the covariance (L Lᵀ)⁻¹.
    factor = np.linalg.cholesky(information)
    draws = np.linalg.solve(factor.T, rng.normal(size=(n_classes + 1, n_replicates))).T
    return draws[:, :n_classes], np.maximum(draws[:, n_classes] - known_error, least_slope - 1.0)
