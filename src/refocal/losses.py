"""Losses on log-probabilities and integer labels, for each sample or reduced: smaller is better.

Rows are normalised first, so logits can be passed directly; that is also the most accurate way, since a float32
log-probability close to 0 has lost the digits that the other classes still hold. Differentiable in torch and JAX,
with finite gradients at any logit gap.
"""

from __future__ import annotations

from typing import Any, Literal

from refocal._arrays import Array, namespace, take_label, without_warnings
from refocal._validation import (
    check_broadcast,
    check_labels,
    check_log_odds,
    check_logits,
    check_option,
    check_parameter,
)
from refocal.maps.row import Row, log1p_ratio, log_minus, normalised, softmax_row, softplus
from refocal.maps.softmax import invert

__all__ = [
    "Reduction",
    "asymmetric_focal",
    "brier",
    "cross_entropy",
    "focal",
    "proper_focal",
    "sample_dependent_focal",
    "sigmoid_focal",
]

Reduction = Literal["none", "mean", "sum"]
"""How the losses of the rows are combined."""


@without_warnings
def cross_entropy(log_q: Array, labels: Array, *, reduction: Reduction = "none") -> Array:
    """Cross-entropy, -log q_y: the log-loss.

    >>> import numpy as np
    >>> cross_entropy(np.log([[0.5, 0.5], [0.9, 0.1]]), np.array([0, 1])).round(4)
    array([0.6931, 2.3026])
    >>> float(cross_entropy(np.log([[0.5, 0.5], [0.9, 0.1]]), np.array([0, 1]), reduction="mean").round(4))
    1.4979
    """
    xp, x, y, dtype = _rows(log_q, labels, "log_q", "cross_entropy")
    loss = -take_label(normalised(xp, x), y)
    return _reduce(xp, loss, reduction, "cross_entropy", dtype)


@without_warnings
def brier(log_q: Array, labels: Array, *, reduction: Reduction = "none") -> Array:
    """Brier score, Σ_j (q_j - [j = y])², between 0 and 2.

    >>> import numpy as np
    >>> brier(np.log([[0.5, 0.5], [0.9, 0.1]]), np.array([0, 1])).round(4)
    array([0.5 , 1.62])
    """
    xp, x, y, dtype = _rows(log_q, labels, "log_q", "brier")
    return _reduce(xp, brier_of_row(xp, softmax_row(xp, x, 1.0), y), reduction, "brier", dtype)


@without_warnings
def focal(log_q: Array, labels: Array, gamma: float | Array, *, reduction: Reduction = "none") -> Array:
    """Focal loss, -(1-q_y)^γ log q_y, for γ > -1; γ = 0 is cross-entropy. γ may be given for each row.

    >>> import numpy as np
    >>> focal(np.log([[0.5, 0.5], [0.9, 0.1]]), np.array([0, 1]), gamma=2.0).round(4)
    array([0.1733, 1.8651])
    """
    xp, x, y, dtype = _rows(log_q, labels, "log_q", "focal")
    g = check_parameter(gamma, "gamma", "focal", above=-1.0, like=x)
    return _reduce(xp, focal_loss_of_row(xp, softmax_row(xp, x, 1.0), y, g[..., 0]), reduction, "focal", dtype)


@without_warnings
def sample_dependent_focal(
    log_q: Array,
    labels: Array,
    *,
    threshold: float = 0.2,
    gamma_below: float = 5.0,
    gamma_above: float = 3.0,
    reduction: Reduction = "none",
) -> Array:
    """Focal loss whose γ depends on the label's probability; by default FLSD-53: γ = 5 where q_y < 0.2, else γ = 3.

    The choice of γ is a constant for the gradient, as in Mukhoti et al. (2020).

    >>> import numpy as np
    >>> sample_dependent_focal(np.log([[0.5, 0.5], [0.9, 0.1]]), np.array([0, 1])).round(4)
    array([0.0866, 1.3597])
    """
    name = "sample_dependent_focal"
    xp, x, y, dtype = _rows(log_q, labels, "log_q", name)
    below = check_parameter(gamma_below, "gamma_below", name, above=-1.0, like=x)
    above = check_parameter(gamma_above, "gamma_above", name, above=-1.0, like=x)
    limit = check_parameter(threshold, "threshold", name, above=0.0, like=x)
    row = softmax_row(xp, x, 1.0)
    chosen = gamma_by_label(xp, row, y, limit[..., 0], below[..., 0], above[..., 0])
    return _reduce(xp, focal_loss_of_row(xp, row, y, chosen), reduction, name, dtype)


@without_warnings
def proper_focal(log_p: Array, labels: Array, gamma: float | Array, *, reduction: Reduction = "none") -> Array:
    """The proper part of focal loss, L*(p, y) = L(p̂⁻¹(p), y): focal loss without its confidence-raising map.

    Its conditional risk is smallest at the true probabilities. The gradient is exact, through the inverse map.

    >>> import numpy as np
    >>> proper_focal(np.log([[0.8, 0.2]]), np.array([0]), gamma=2.0).round(4)
    array([0.0652])
    """
    xp, x, y, dtype = _rows(log_p, labels, "log_p", "proper_focal")
    g = check_parameter(gamma, "gamma", "proper_focal", above=-1.0, like=x)
    row = softmax_row(xp, invert(xp, x, g), 1.0)
    return _reduce(xp, focal_loss_of_row(xp, row, y, g[..., 0]), reduction, "proper_focal", dtype)


@without_warnings
def sigmoid_focal(
    log_odds: Array,
    labels: Array,
    gamma: float | Array,
    alpha: float | Array | None = None,
    *,
    label_smoothing: float | Array = 0.0,
    reduction: Reduction = "none",
) -> Array:
    """Focal loss of sigmoids: -α (1-q)^γ log q where a label is 1, -(1-α) q^γ log(1-q) where it is 0, q = σ(log_odds).

    `labels` have the shape of the log-odds and lie between 0 and 1: between them, as after smoothing by ε, the two
    losses are weighed by the label. γ > -1 and α may be given for each label; without α neither side is weighed.
    `maps.sigmoid_focal` is the map that takes the minimiser back to the truth.

    >>> import numpy as np
    >>> sigmoid_focal(np.array([0.0, 2.0, -2.0]), np.array([1, 1, 1]), gamma=2.0, alpha=0.25).round(4)
    array([0.0433, 0.0005, 0.4125])
    """
    name = "sigmoid_focal"
    xp, s, y, dtype = _log_odds(log_odds, labels, label_smoothing, name)
    g = check_broadcast(gamma, "gamma", name, like=s, above=-1.0)
    a = None if alpha is None else check_broadcast(alpha, "alpha", name, like=s, above=0.0, below=1.0)
    return _reduce(xp, sigmoid_focal_of(xp, s, y, g, a), reduction, name, dtype)


@without_warnings
def asymmetric_focal(
    log_odds: Array,
    labels: Array,
    gamma_positive: float | Array,
    gamma_negative: float | Array,
    margin: float | Array = 0.0,
    *,
    label_smoothing: float | Array = 0.0,
    reduction: Reduction = "none",
) -> Array:
    """Asymmetric loss (Ridnik et al. 2021): -(1-q)^γ₊ log q where a label is 1, -u^γ₋ log(1-u) where it is 0.

    u = max(q - margin, 0) forgives negatives of a probability up to the margin. Labels are those of `sigmoid_focal`;
    γ₊, γ₋ ≥ 0 may be given for each label. `maps.asymmetric_focal` takes the minimiser back to the truth.

    >>> import numpy as np
    >>> asymmetric_focal(np.array([0.0, 0.0, -4.0]), np.array([1, 0, 0]), 1.0, 4.0, margin=0.05).round(4)
    array([0.3466, 0.0245, 0.    ])
    """
    name = "asymmetric_focal"
    xp, s, y, dtype = _log_odds(log_odds, labels, label_smoothing, name)
    positive = check_broadcast(gamma_positive, "gamma_positive", name, like=s, least=0.0)
    negative = check_broadcast(gamma_negative, "gamma_negative", name, like=s, least=0.0)
    margin = check_broadcast(margin, "margin", name, like=s, least=0.0, below=1.0)
    return _reduce(xp, asymmetric_focal_of(xp, s, y, positive, negative, margin), reduction, name, dtype)


def _rows(values: Any, labels: Any, argument: str, function: str) -> tuple[Any, Array, Array, Any]:
    """The functions of an array library, its rows, their labels, and the dtype of the result."""
    x, dtype = check_logits(values, argument, function)
    return namespace(x), x, check_labels(labels, x, function), dtype


def _log_odds(log_odds: Any, labels: Any, smoothing: Any, function: str) -> tuple[Any, Array, Array, Any]:
    """The functions of an array library, its log-odds, smoothed labels of their shape, and the dtype of the result."""
    s, dtype = check_log_odds(log_odds, "log_odds", function)
    y = check_broadcast(labels, "labels", function, like=s, least=0.0, most=1.0)
    epsilon = check_broadcast(smoothing, "label_smoothing", function, like=s, least=0.0, below=1.0)
    return namespace(s), s, smoothed(y, epsilon), dtype


def smoothed(labels: Array, epsilon: Any) -> Array:
    """Labels between 0 and 1 moved towards 1/2 by the share ε."""
    return (1.0 - epsilon) * labels + epsilon / 2.0


def sigmoid_focal_of(xp: Any, s: Array, labels: Array, gamma: Any, alpha: Any) -> Array:
    """Sigmoid focal loss of checked log-odds and labels."""
    up, down = (1.0, 1.0) if alpha is None else (alpha, 1.0 - alpha)
    return labels * up * _focal_half(xp, s, gamma) + (1.0 - labels) * down * _focal_half(xp, -s, gamma)


def asymmetric_focal_of(xp: Any, s: Array, labels: Array, positive: Any, negative: Any, margin: Any) -> Array:
    """Asymmetric loss of checked log-odds and labels."""
    log_u, is_positive = log_minus(xp, -softplus(xp, -s), margin)
    log_not_u = xp.logaddexp(-softplus(xp, s), xp.log(margin))
    down = xp.where(is_positive, _focal_half(xp, xp.where(is_positive, log_not_u - log_u, 0.0), negative), 0.0)
    return labels * _focal_half(xp, s, positive) + (1.0 - labels) * down


def _focal_half(xp: Any, s: Array, gamma: Any) -> Array:
    """-(1-q)^γ log q for q = σ(s): without overflow and without 0·inf for any γ > -1, and so its gradient."""
    is_up = s > 0.0
    r = xp.exp(xp.where(is_up, -s, 0.0))
    # For s > 0 the factor e⁻ˢ of -log q = log1p(e⁻ˢ) is taken into the exponent.
    rest = xp.where(is_up, log1p_ratio(xp, r), softplus(xp, -s))
    return xp.exp(-gamma * softplus(xp, s) - xp.where(is_up, s, 0.0)) * rest


def brier_of_row(xp: Any, row: Row, labels: Array) -> Array:
    """Brier score of a prepared row."""
    is_label = xp.arange(row.gap.shape[-1], device=getattr(labels, "device", None)) == labels[..., None]
    # 1 - q_y comes as such, so that a confident and correct row keeps its digits.
    error = xp.where(is_label, xp.exp(row.log_not_q), xp.exp(row.log_q))
    return xp.sum(error**2, axis=-1)


def gamma_by_label(xp: Any, row: Row, labels: Array, threshold: Any, below: Any, above: Any) -> Array:
    """One γ where the label's probability lies below the threshold, another where not."""
    return xp.where(xp.exp(take_label(row.log_q, labels)) < threshold, below, above)


def focal_loss_of_row(xp: Any, row: Row, labels: Array, gamma: Any) -> Array:
    """Focal loss of a prepared row; `gamma` is a number or has one value for each row."""
    log_q, log_not_q, h = (take_label(part, labels) for part in (row.log_q, row.log_not_q, row.h))
    is_top = take_label(row.is_top, labels)
    # Since -log q = h (1-q)/q, a top class gets (1-q)^(1+γ) h/q: no overflow and no 0·inf as q → 1, for any γ > -1.
    # Each branch sees harmless values where the other one is taken, so that neither spoils a gradient.
    top = xp.exp((1.0 + gamma) * xp.where(is_top, log_not_q, -1.0) - xp.where(is_top, log_q, 0.0)) * h
    other = -xp.exp(gamma * xp.where(is_top, 0.0, log_not_q)) * xp.where(is_top, 0.0, log_q)
    return xp.where(is_top, top, other)


def _reduce(xp: Any, loss: Array, reduction: str, function: str, dtype: Any) -> Array:
    check_option(reduction, ("none", "mean", "sum"), "reduction", function)
    if reduction == "mean":
        loss = xp.mean(loss)
    elif reduction == "sum":
        loss = xp.sum(loss)
    return xp.astype(loss, dtype, copy=False)
