"""Affine maps of scaled logits: what vector, matrix and structured scaling are made of.

    scores = W z + b,    log p = log softmax(scores)

z are the logits after temperature scaling, so W = I, b = 0 is temperature scaling.
"""

from __future__ import annotations

from typing import Any

from refocal._arrays import Array, cumulative_sum, take
from refocal.maps.row import normalised

# Lowest z below the top class: the logarithm of float32's smallest number. One stray logit of -10,000 or -inf would
# otherwise outweigh all other rows.
FLOOR = 87.0
# By how many rounding errors a class that is kept on top exceeds the others.
MARGIN = 64.0

KINDS = ("logits", "tempered", "log-probabilities")


def features(xp: Any, logits: Array, kind: str, temperature: Any) -> Array:
    """z: the gaps to the top class divided by T, brought to a common level.

    "logits": their mean is 0. "tempered": log softmax(logits / T). "log-probabilities": log softmax(logits) / T.
    """
    gap = (logits - xp.max(logits, axis=-1, keepdims=True)) / temperature
    gap = xp.where(gap > -FLOOR, gap, -FLOOR)
    if kind == "logits":
        return gap - xp.sum(gap, axis=-1, keepdims=True) / logits.shape[-1]
    scale = temperature if kind == "log-probabilities" else 1.0
    return gap - xp.log(xp.sum(xp.exp(gap * scale), axis=-1, keepdims=True)) / scale


def transform(z: Array, weights: Array, intercept: Array) -> Array:
    """W z + b."""
    scaled = z * weights if weights.ndim == 1 else z @ weights.T
    return scaled + intercept


def keep_top(xp: Any, scores: Array, top: Array) -> Array:
    """Log-probabilities of `scores` with class `top` of each row, (..., 1), made the most probable.

    Where another class is more probable, the two, or as many as it takes, share their probability equally: of all
    probabilities with `top` on top these lie closest, in Kullback-Leibler divergence, to softmax(scores). Rows in which
    `top` is on top already are only normalised.

    >>> import numpy as np
    >>> from refocal._arrays import namespace
    >>> p = np.array([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]])
    >>> np.exp(keep_top(namespace(p), np.log(p), np.array([[0], [2]]))).round(3)
    array([[0.5 , 0.3 , 0.2 ],
           [0.35, 0.3 , 0.35]])
    """
    log_p = normalised(xp, scores)
    device = getattr(scores, "device", None)
    is_top = xp.arange(scores.shape[-1], device=device) == top
    p = xp.exp(log_p)
    # The others from the largest on; the place of the top class, a -1 at the end, lowers every mean it enters.
    others = -xp.sort(xp.where(is_top, 1.0, -p), axis=-1)
    count = xp.astype(xp.arange(2, scores.shape[-1] + 2, device=device), p.dtype)
    pool = (take(p, top) + cumulative_sum(others)) / count
    # Sharing with the first m others raises the mean as long as the m-th of them lies above it: the largest is it.
    shared = xp.max(pool, axis=-1, keepdims=True)
    violated = shared > take(p, top)
    # A few roundings more for the top, so that it alone is the largest.
    level = xp.log(shared)
    kept = xp.where(is_top, level * (1.0 - MARGIN * xp.finfo(p.dtype).eps), xp.where(log_p < level, log_p, level))
    return xp.where(violated, kept, log_p)
