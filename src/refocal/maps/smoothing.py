"""Label smoothing undone: what a network that was trained on smoothed labels predicts → the true probabilities.

With labels smoothed by ε the truth p is seen as u = (1-ε) p + ε/C, and that is what a network learns to predict.
"""

from __future__ import annotations

from typing import Any

from refocal._arrays import Array, namespace, without_warnings
from refocal._validation import check_broadcast, check_log_odds, check_logits, check_number
from refocal.maps.row import gaps, log_minus, normalise, softplus


@without_warnings
def unsmooth(log_u: Array, label_smoothing: float) -> Array:
    """Inverse of label smoothing: log p with p = (u - ε/C) / (1-ε), from unnormalised log u.

    No p leads to a u below ε/C: such a class gets probability 0, and the others share what is left in proportion.
    Behind focal loss with weights: ``unsmooth(focal(log_q, gamma, class_weight=w), label_smoothing)``.

    >>> import numpy as np
    >>> np.exp(unsmooth(np.log([0.75, 0.21, 0.04]), label_smoothing=0.1)).round(3)
    array([0.796, 0.196, 0.007])
    """
    x, dtype = check_logits(log_u, "log_u", "unsmooth")
    epsilon = check_number(label_smoothing, "label_smoothing", "unsmooth", least=0.0, below=1.0)
    xp = namespace(x)
    found = unsmoothed(xp, normalise(xp, *gaps(xp, x, 1.0)), epsilon)
    return xp.astype(normalise(xp, *gaps(xp, found, 1.0)), dtype, copy=False)


def unsmoothed(xp: Any, log_u: Array, epsilon: Any) -> Array:
    """log(u - ε/C) of log-probabilities, which are scores of p; -inf where u is no larger than ε/C."""
    found, is_larger = log_minus(xp, log_u, epsilon / log_u.shape[-1])
    return xp.where(is_larger, found, -xp.inf)


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
    log_p, log_not_p = (log_minus(xp, -softplus(xp, -side), epsilon / 2.0) for side in (s, -s))
    found = xp.where(log_p[1], log_p[0], -xp.inf) - xp.where(log_not_p[1], log_not_p[0], -xp.inf)
    return xp.astype(found, dtype, copy=False)
