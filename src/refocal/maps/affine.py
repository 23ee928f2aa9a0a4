"""Affine maps of scaled logits: the front of vector, matrix and structured scaling.

    scores = W z + b,    log p = log softmax(scores)

z are the logits after temperature scaling, so W = I, b = 0 is temperature scaling.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from refocal._arrays import Array, take, without_warnings
from refocal.maps.row import gaps, normalise

# Lowest z below the top class: the logarithm of float32's smallest number. One stray logit of -10,000 or -inf would
# otherwise outweigh all other rows.
FLOOR = 87.0
# How many roundings a class that is kept on top lies above the others.
MARGIN = 64.0

KINDS = ("logits", "tempered", "log-probabilities")


class Front(NamedTuple):
    """What is applied before focal temperature scaling. W is a matrix (C, C) or, for a diagonal one, a vector (C,)."""

    kind: str
    temperature: Any
    weights: Array
    intercept: Array
    order_preserving: bool = False

    def scores(self, xp: Any, logits: Array) -> Array:
        """W z + b; -inf where the logit is -inf."""
        found = transform(features(xp, logits, self.kind, self.temperature), self.weights, self.intercept)
        if self.order_preserving:
            found = keep_top(xp, found, xp.argmax(logits, axis=-1))
        return xp.where(logits == -xp.inf, -xp.inf, found)


@without_warnings
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
    """Log-probabilities of `scores` with class `top` of each row made the most probable.

    Where another class is more probable, the two, or as many as it takes, share their probability equally: of all
    probabilities with `top` on top these lie closest, in Kullback-Leibler divergence, to softmax(scores). Rows in which
    `top` is on top already are only normalised.

    >>> import numpy as np
    >>> from refocal._arrays import namespace
    >>> p = np.array([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]])
    >>> np.exp(keep_top(namespace(p), np.log(p), np.array([0, 2]))).round(3)
    array([[0.5 , 0.3 , 0.2 ],
           [0.35, 0.3 , 0.35]])
    """
    log_p = normalise(xp, *gaps(xp, scores, 1.0))
    is_top = xp.arange(scores.shape[-1], device=getattr(top, "device", None)) == top[..., None]
    p = xp.exp(log_p)
    others = xp.flip(xp.sort(xp.where(is_top, -1.0, p), axis=-1), axis=-1)[..., :-1]
    count = xp.astype(xp.arange(1, scores.shape[-1], device=getattr(top, "device", None)), p.dtype)
    pool = (take(p, top[..., None]) + xp.cumulative_sum(others, axis=-1)) / (count + 1.0)
    # Sharing with the first m others raises the mean as long as the m-th of them lies above it: the largest is it.
    shared = xp.max(pool, axis=-1, keepdims=True)
    violated = shared > take(p, top[..., None])
    # A few roundings more for the top, so that it alone is the largest.
    level = xp.log(shared)
    kept = xp.where(is_top, level * (1.0 - MARGIN * xp.finfo(p.dtype).eps), xp.minimum(log_p, level))
    return xp.where(violated, kept, log_p)
