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
from refocal.maps.row import gaps, log1p_ratio, log_minus, normalised, shares, softplus
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
    return _reduce(xp, brier_of(xp, x, y), reduction, "brier", dtype)


@without_warnings
def focal(log_q: Array, labels: Array, gamma: float | Array, *, reduction: Reduction = "none") -> Array:
    """Focal loss, -(1-q_y)^γ log q_y, for γ > -1; γ = 0 is cross-entropy. γ may be given for each row.

    >>> import numpy as np
    >>> focal(np.log([[0.5, 0.5], [0.9, 0.1]]), np.array([0, 1]), gamma=2.0).round(4)
    array([0.1733, 1.8651])
    """
    xp, x, y, dtype = _rows(log_q, labels, "log_q", "focal")
    g = check_parameter(gamma, "gamma", "focal", above=-1.0, like=x)
    return _reduce(xp, focal_of(xp, label_log_odds(xp, x, y), g[..., 0]), reduction, "focal", dtype)


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
    loss = sample_dependent_focal_of(xp, label_log_odds(xp, x, y), limit[..., 0], below[..., 0], above[..., 0])
    return _reduce(xp, loss, reduction, name, dtype)


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
    loss = focal_of(xp, label_log_odds(xp, invert(xp, x, g), y), g[..., 0])
    return _reduce(xp, loss, reduction, "proper_focal", dtype)


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
    *,
    gamma_positive: float | Array,
    gamma_negative: float | Array,
    margin: float | Array = 0.0,
    label_smoothing: float | Array = 0.0,
    reduction: Reduction = "none",
) -> Array:
    """Asymmetric loss (Ridnik et al. 2021): -(1-q)^γ₊ log q where a label is 1, -u^γ₋ log(1-u) where it is 0.

    u = max(q - margin, 0) forgives negatives of a probability up to the margin. Labels are those of `sigmoid_focal`;
    γ₊, γ₋ ≥ 0 may be given for each label. `maps.asymmetric_focal` takes the minimiser back to the truth.

    >>> import numpy as np
    >>> log_odds, labels = np.array([0.0, 0.0, -4.0]), np.array([1, 0, 0])
    >>> asymmetric_focal(log_odds, labels, gamma_positive=1.0, gamma_negative=4.0, margin=0.05).round(4)
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


def label_against_others(xp: Any, logits: Array, labels: Array) -> tuple[Array, Array]:
    """Log-odds of the label, which keep their digits however close q_y is to 0 or 1, and the shares of the others."""
    gap, _ = gaps(xp, logits, 1.0)
    is_label = xp.arange(gap.shape[-1], device=getattr(labels, "device", None)) == labels[..., None]
    share, log_others, _ = shares(xp, xp.where(is_label, -xp.inf, gap))
    return take_label(gap, labels) - log_others[..., 0], share


def label_log_odds(xp: Any, logits: Array, labels: Array) -> Array:
    """Log-odds of the label against all other classes: all that losses of q_y alone need."""
    return label_against_others(xp, logits, labels)[0]


def class_log_odds(xp: Any, logits: Array) -> Array:
    """Log-odds of every class against all others, (..., C): log q_k - log(1-q_k), that of the top from the others."""
    gap, is_top = gaps(xp, logits, 1.0)
    _, log_rest, _ = shares(xp, xp.where(is_top, -xp.inf, gap))
    log_q = gap - xp.log1p(xp.exp(log_rest))
    q = xp.where(is_top, 0.0, xp.exp(log_q))
    return xp.where(is_top, -log_rest, log_q - xp.log1p(-q))


def brier_of(xp: Any, logits: Array, labels: Array) -> Array:
    """Brier score of checked rows: (1-q_y)² and the squares of the others, which share 1-q_y."""
    s, share = label_against_others(xp, logits, labels)
    return xp.exp(-2.0 * softplus(xp, s)) * (1.0 + xp.sum(share**2, axis=-1))


def focal_of(xp: Any, s: Array, gamma: Any) -> Array:
    """-(1-q)^γ log q for q = σ(s): without overflow and without 0·inf for any γ > -1, and so its gradient."""
    is_up = s > 0.0
    distance = xp.where(is_up, s, -s)
    r = xp.exp(-distance)
    # For s > 0 the factor r of -log q = log1p(r) is taken into the exponent.
    rest = xp.where(is_up, log1p_ratio(xp, r), distance + xp.log1p(r))
    return xp.exp(-gamma * xp.log1p(r) - xp.where(is_up, (1.0 + gamma) * distance, 0.0)) * rest


def sample_dependent_focal_of(xp: Any, s: Array, threshold: Any, below: Any, above: Any) -> Array:
    """Focal loss with one γ where q = σ(s) lies below the threshold, and another where not."""
    return focal_of(xp, s, xp.where(xp.exp(-softplus(xp, -s)) < threshold, below, above))


def sigmoid_focal_of(xp: Any, s: Array, labels: Array, gamma: Any, alpha: Any) -> Array:
    """Sigmoid focal loss of checked log-odds and labels."""
    up, down = (1.0, 1.0) if alpha is None else (alpha, 1.0 - alpha)
    s_up, s_down = _sides(xp, s, labels)
    return labels * up * focal_of(xp, s_up, gamma) + (1.0 - labels) * down * focal_of(xp, -s_down, gamma)


def asymmetric_focal_of(xp: Any, s: Array, labels: Array, positive: Any, negative: Any, margin: Any) -> Array:
    """Asymmetric loss of checked log-odds and labels."""
    s_up, s_down = _sides(xp, s, labels)
    log_u, is_positive = log_minus(xp, -softplus(xp, -s_down), margin)
    log_not_u = xp.logaddexp(-softplus(xp, s_down), xp.log(margin))
    down = xp.where(is_positive, focal_of(xp, xp.where(is_positive, log_not_u - log_u, 0.0), negative), 0.0)
    return labels * focal_of(xp, s_up, positive) + (1.0 - labels) * down


def _sides(xp: Any, s: Array, labels: Array) -> tuple[Array, Array]:
    """Log-odds for the loss of label 1 and for that of label 0; 0 where the label rules that one out.

    There an infinite loss, as of log-odds of -inf where the label is 0, would leave NaN instead of nothing.
    """
    return xp.where(labels > 0.0, s, 0.0), xp.where(labels < 1.0, s, 0.0)


def _reduce(xp: Any, loss: Array, reduction: str, function: str, dtype: Any) -> Array:
    check_option(reduction, ("none", "mean", "sum"), "reduction", function)
    if reduction == "mean":
        loss = xp.mean(loss)
    elif reduction == "sum":
        loss = xp.sum(loss)
    return xp.astype(loss, dtype, copy=False)
