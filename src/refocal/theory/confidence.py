"""When focal calibration raises the top probability (Proposition 5, corrected).

With r(q) = 1 / ((1-q)^γ (1 + γh(q))), the map is p_j = q_j r(q_j) / Σ_i q_i r(q_i), so p_j ≥ q_j exactly if
r(q_j) ≥ Σ_i q_i r(q_i). The paper states that this always holds for the top class; from four classes on it does not.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq

from refocal._arrays import Array, namespace, without_warnings
from refocal._validation import check_number, check_parameter, check_probabilities
from refocal.maps.row import softmax_row


def confidence_threshold(gamma: float) -> float:
    """The top probability τ(γ) from which on focal calibration never lowers it, for any number of classes; γ > 0.

    τ is the root in (0, 1) of (1-τ)^γ (1 + γh(τ)) = 1. It falls with γ, from 1/2 at γ → 0: a top probability of 1/2 or
    more is never lowered.

    >>> round(confidence_threshold(1.0) * math.e, 12)
    1.0
    """
    check_number(gamma, "gamma", "confidence_threshold", above=0.0)

    def excess(log_q: float) -> float:
        q = math.exp(log_q)
        return gamma * math.log1p(-q) + math.log1p(-gamma * log_q * q / (1.0 - q))

    # h(q) > q while log q < -1, so the excess is positive for small q; at 1/2 it is negative.
    return math.exp(brentq(excess, -700.0, -math.log(2.0), xtol=1e-15, rtol=1e-15))


@without_warnings
def raises_confidence(q: Array, gamma: float | Array) -> Array:
    """Whether focal calibration leaves the top probability of each row of q as high as it was, or raises it.

    >>> raises_confidence([[0.3277, 0.3277, 0.3277, 0.0169], [0.6, 0.2, 0.1, 0.1]], gamma=0.5)
    array([False,  True])
    """
    q = check_probabilities(q, "q", "raises_confidence")
    xp = namespace(q)
    g = check_parameter(gamma, "gamma", "raises_confidence", above=-1.0, like=q)
    row = softmax_row(xp, xp.log(q), 1.0)
    log_r = -g * xp.where(row.is_top, row.top_log_not_q, row.log_not_q) - xp.log1p(g * row.h)
    log_r_top = -g * row.top_log_not_q - xp.log1p(g * row.top_h)
    # Σ_i q_i (r_i - r_top) ≤ 0, with the classes that tie with the top left out: theirs is exactly 0.
    change = xp.where(row.gap == 0.0, 0.0, row.share * xp.expm1(log_r - log_r_top))
    return xp.sum(change, axis=-1) <= 0.0
