"""The focal calibration map of sigmoid outputs, on log-odds of any shape: detection heads, multi-label outputs.

The loss of a label with log-odds s, q = σ(s), is -α (1-q)^γ log q where it holds, else -(1-α) q^γ log(1-q). Its
expectation is smallest where the slopes of the two halves balance, which gives the log-odds η of the truth in closed
form. For the softmax of (0, s) the map and the one of `softmax` are the same.
"""

from __future__ import annotations

from typing import Any

from refocal._arrays import Array, namespace, without_warnings
from refocal._validation import check_broadcast, check_log_odds
from refocal.maps.row import log1p_ratio, log_minus, softplus
from refocal.maps.softmax import invert


@without_warnings
def sigmoid_focal(log_odds: Array, gamma: float | Array, alpha: float | Array = 0.5) -> Array:
    """Focal calibration map of a sigmoid: log-odds that a focal-loss minimiser predicts → the true ones.

    η = (1+γ) s - log1p(γ h(s)) + log1p(γ h(-s)) - log(α / (1-α)),  h(s) = eˢ log1p(e⁻ˢ),  γ > -1

    Any shape; γ and α may be numbers or arrays that broadcast, such as one value for each label on the last axis.
    α = 0.5 weighs both sides alike, as a loss without α does. -inf and +inf stay what they are.

    >>> import numpy as np
    >>> score = np.array([0.3, 0.4, 0.5, 0.6])  # of a detector trained with γ = 2, α = 0.25
    >>> eta = sigmoid_focal(np.log(score / (1 - score)), gamma=2.0, alpha=0.25)
    >>> (1 / (1 + np.exp(-eta))).round(2)
    array([0.24, 0.5 , 0.75, 0.9 ])
    """
    s, gamma, shift, dtype = _checked(log_odds, gamma, alpha, "sigmoid_focal")
    xp = namespace(s)
    eta = (1.0 + gamma) * s - (log1p_gamma_h(xp, s, gamma) - log1p_gamma_h(xp, -s, gamma)) - shift
    return xp.astype(eta, dtype, copy=False)


@without_warnings
def inverse_sigmoid_focal(log_odds: Array, gamma: float | Array, alpha: float | Array = 0.5) -> Array:
    """Inverse of `sigmoid_focal`: the log-odds that minimise α-balanced focal loss where the true ones are given.

    >>> import numpy as np
    >>> inverse_sigmoid_focal(sigmoid_focal(np.array([-3.0, 1.0, 8.0]), 2.0, 0.25), 2.0, 0.25).round(12)
    array([-3.,  1.,  8.])
    """
    eta, gamma, shift, dtype = _checked(log_odds, gamma, alpha, "inverse_sigmoid_focal")
    xp = namespace(eta)
    eta = eta + shift
    # Two classes, the more probable one at 0: no infinite score is ever subtracted from another.
    gaps = xp.stack([xp.where(eta > 0.0, -eta, 0.0), xp.where(eta > 0.0, 0.0, eta)], axis=-1)
    log_q = invert(xp, gaps, xp.broadcast_to(gamma, eta.shape)[..., None])
    return xp.astype(log_q[..., 1] - log_q[..., 0], dtype, copy=False)


@without_warnings
def asymmetric_focal(
    log_odds: Array, *, gamma_positive: float | Array, gamma_negative: float | Array, margin: float | Array = 0.0
) -> Array:
    """Calibration map of asymmetric loss (Ridnik et al. 2021): one γ where a label holds, another where it does not.

    The loss is -(1-q)^γ₊ log q, or -u^γ₋ log(1-u) with u = max(q - margin, 0). Where q ≤ margin, which the loss asks
    of labels that never hold, the result is -inf. γ₊, γ₋ ≥ 0 and the margin may be given for each label.

    >>> import numpy as np
    >>> score = np.array([0.3, 0.5, 0.7])
    >>> eta = asymmetric_focal(np.log(score / (1 - score)), gamma_positive=0.0, gamma_negative=4.0, margin=0.05)
    >>> (1 / (1 + np.exp(-eta))).round(3)
    array([0.007, 0.128, 0.538])
    """
    name = "asymmetric_focal"
    s, dtype = check_log_odds(log_odds, "log_odds", name)
    positive = check_broadcast(gamma_positive, "gamma_positive", name, like=s, least=0.0)
    negative = check_broadcast(gamma_negative, "gamma_negative", name, like=s, least=0.0)
    margin = check_broadcast(margin, "margin", name, like=s, least=0.0, below=1.0)
    xp = namespace(s)
    log_q = -softplus(xp, -s)
    log_not_q = -softplus(xp, s)
    log_u, is_positive = log_minus(xp, log_q, margin)
    log_not_u = xp.logaddexp(log_not_q, xp.log(margin))
    of_positive = log_q - _times(xp, positive, log_not_q) - log1p_gamma_h(xp, s, positive)
    of_negative = _times(xp, negative, log_u) - log_not_u + log1p_gamma_h(xp, log_not_u - log_u, negative)
    return xp.astype(xp.where(is_positive, of_positive + of_negative, -xp.inf), dtype, copy=False)


@without_warnings
def sigmoid_unsmooth(log_odds: Array, label_smoothing: float | Array) -> Array:
    """Inverse of label smoothing on log-odds of any shape: p = (u - ε/2) / (1-ε); -inf or +inf where no p leads to u.

    >>> import numpy as np
    >>> (1 / (1 + np.exp(-sigmoid_unsmooth(np.log([0.23 / 0.77]), label_smoothing=0.1)))).round(3)
    array([0.2])
    """
    s, dtype = check_log_odds(log_odds, "log_odds", "sigmoid_unsmooth")
    epsilon = check_broadcast(label_smoothing, "label_smoothing", "sigmoid_unsmooth", like=s, least=0.0, below=1.0)
    xp = namespace(s)
    log_p, is_possible = log_minus(xp, -softplus(xp, -s), epsilon / 2.0)
    log_not_p, is_not_certain = log_minus(xp, -softplus(xp, s), epsilon / 2.0)
    eta = xp.where(is_possible, log_p, -xp.inf) - xp.where(is_not_certain, log_not_p, -xp.inf)
    return xp.astype(eta, dtype, copy=False)


def _checked(log_odds: Array, gamma: Any, alpha: Any, function: str) -> tuple[Array, Array, Array, Any]:
    """Log-odds, γ, logit α, and the dtype of the result."""
    s, dtype = check_log_odds(log_odds, "log_odds", function)
    gamma = check_broadcast(gamma, "gamma", function, like=s, above=-1.0)
    alpha = check_broadcast(alpha, "alpha", function, like=s, above=0.0, below=1.0)
    xp = namespace(s)
    return s, gamma, xp.log(alpha) - xp.log1p(-alpha), dtype


def log1p_gamma_h(xp: Any, s: Array, gamma: Array) -> Array:
    """log1p(γ h(s)), h(s) = eˢ log1p(e⁻ˢ), from r = e^-|s|, which neither overflows nor cancels.

    h = log1p(r)/r where s ≥ 0, and r (log1p(r) - s) where s < 0.
    """
    is_up = s >= 0.0
    distance = xp.where(is_up, s, -s)
    r = xp.exp(-distance)
    finite = xp.where(distance < xp.inf, distance, 0.0)
    h = xp.where(is_up, log1p_ratio(xp, r), r * (xp.log1p(r) + finite))
    return xp.log1p(gamma * h)


def _times(xp: Any, gamma: Array, log_q: Array) -> Array:
    """γ log q, and 0 where γ is, also for q = 0."""
    return xp.where(gamma > 0.0, gamma * log_q, 0.0)
