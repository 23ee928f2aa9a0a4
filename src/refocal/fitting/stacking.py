"""Weights of a mean of several predictions, by their log-loss on rows that none of them was fitted on (stacking).

Of K predictions with weights ω on the simplex, ω ≥ 0 and Σ ωₖ = 1, and rows i of weight wᵢ, the weights minimise

    F(ω) = Σᵢ wᵢ ℓᵢ(ω) - Σₖ cₖ log ωₖ

where ℓ is the log-loss of the mean and cₖ > 0 are pseudo-counts: with few rows the weights are close to c / Σc, and
none of them is ever 0 (Yao, Vehtari, Simpson & Gelman 2018, Bayesian Analysis 13:917). There are two kinds of mean:

    of probabilities          ℓᵢ = -log Σₖ ωₖ pₖᵢ                  pₖᵢ the probability of the label
    of scores (N, C)          ℓᵢ = log Σ_c exp(sᵢ)_c - (sᵢ)_{yᵢ}   sᵢ = Σₖ ωₖ sₖᵢ

Both are convex in ω, and -c log ω is the barrier that keeps Newton's method within the simplex.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Indices, Vector

LossOnSimplex = tuple[float, Vector, Vector]
"""The summed log-loss of a mean, with its gradient (K,) and Hessian (K, K) in the weights."""


class NewtonSettings(NamedTuple):
    """When Newton's method ends."""

    max_steps: int = 100
    last_decrement: float = 1e-7
    """In nats of all rows together: a step that promises less is the last one."""
    to_the_boundary: float = 0.95
    """The share of the way to the boundary of the simplex that a step may go."""
    max_halvings: int = 30
    steps_from_similar: int = 1
    """From the weights of similar rows, such as all folds where one is left out, one step leaves an error of the
    second order."""


NEWTON = NewtonSettings()


def weights_of_probabilities(
    log_p: Vector, weight: Vector, pseudo_counts: Vector, similar: Vector | None = None
) -> Vector:
    """The weights (K,) of a mean of probabilities, from the log-probabilities (K, N) of the labels.

    >>> log_p = np.log([[0.9] * 8 + [0.2] * 2, [0.5] * 10])
    >>> weights_of_probabilities(log_p, np.ones(10), np.array([0.5, 0.5])).round(2)
    array([0.78, 0.22])
    """
    # Relative to the best of each row, which the weights do not change.
    p = np.exp(log_p - log_p.max(axis=0))

    def loss(omega: Vector) -> LossOnSimplex:
        mean = omega @ p
        ratio = p / mean
        return -float(weight @ np.log(mean)), -(ratio @ weight), (ratio * weight) @ ratio.T

    return _minimum_on_simplex(loss, pseudo_counts, similar)


def weights_of_scores(
    scores: NDArray[np.float64], labels: Indices, weight: Vector, pseudo_counts: Vector, similar: Vector | None = None
) -> Vector:
    """The weights (K,) of a mean of scores (K, N, C).

    With p the probabilities of a row behind the mean and S (K, C) its scores less those of the label, the gradient in ω
    is S p and the Hessian S (diag(p) - p pᵀ) Sᵀ.
    """
    n_members, _, n_classes = scores.shape
    of_label = np.take_along_axis(scores, labels[None, :, None], axis=2)
    # Contiguous in (row, class), so that the sums over all rows are products of matrices.
    relative = (scores - of_label).reshape(n_members, -1)

    def loss(omega: Vector) -> LossOnSimplex:
        mean = (omega @ relative).reshape(-1, n_classes)
        largest = mean.max(axis=1, keepdims=True)
        p = np.exp(mean - largest)
        total = p.sum(axis=1, keepdims=True)
        p /= total
        value = float(weight @ (np.log(total) + largest)[:, 0])
        weighted = (p * weight[:, None]).ravel()
        expected = np.stack([(member.reshape(p.shape) * p).sum(axis=1) for member in relative])  # (K, N)
        gradient = expected @ weight
        hessian = (relative * weighted) @ relative.T - (expected * weight) @ expected.T
        return value, gradient, hessian

    return _minimum_on_simplex(loss, pseudo_counts, similar)


def _minimum_on_simplex(
    loss: Callable[[Vector], LossOnSimplex], pseudo_counts: Vector, similar: Vector | None
) -> Vector:
    """The ω of least F, by Newton's method under the constraint Σ ω = 1.

    A step δ solves H δ + μ 1 = -∇F, Σ δ = 0 (Boyd & Vandenberghe 2004, section 10.2). It is shortened so that ω stays
    inside the simplex, and halved until F decreases. From the weights of `similar` rows it is one step.
    """
    n = len(pseudo_counts)

    def penalised(omega: Vector) -> LossOnSimplex:
        value, gradient, hessian = loss(omega)
        value -= float(pseudo_counts @ np.log(omega))
        return value, gradient - pseudo_counts / omega, hessian + np.diag(pseudo_counts / omega**2)

    omega = pseudo_counts / pseudo_counts.sum() if similar is None else similar
    max_steps = NEWTON.max_steps if similar is None else NEWTON.steps_from_similar
    if n == 1:
        return np.ones(1)
    value, gradient, hessian = penalised(omega)
    system = np.zeros((n + 1, n + 1))
    system[n, :n] = 1.0
    system[:n, n] = 1.0
    for _ in range(max_steps):
        system[:n, :n] = hessian
        step = np.linalg.solve(system, np.append(-gradient, 0.0))[:n]
        decrement = -float(gradient @ step)
        falling = step < 0.0
        to_boundary = float(np.min(-omega[falling] / step[falling], initial=np.inf))
        length = min(1.0, NEWTON.to_the_boundary * to_boundary)
        if decrement <= NEWTON.last_decrement:
            omega = omega + length * step
            break
        for _ in range(NEWTON.max_halvings):
            candidate = omega + length * step
            new_value, new_gradient, new_hessian = penalised(candidate)
            if new_value < value:
                break
            length *= 0.5
        else:  # what the step gains is below the rounding
            break
        omega = candidate
        value = new_value
        gradient = new_gradient
        hessian = new_hessian
    return np.asarray(omega / omega.sum())
