"""A row of logits with its top class separated from the others, the basis of every map and loss.

Only from there can log q and log(1-q) of a class close to 1 be had without cancellation: from the weight of the
others, r = (1-q)/q, and never from 1 - q. Every other class has q ≤ 1/2, where the plain formulas are exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from refocal._arrays import Array, stop_gradient, take


class Gaps(NamedTuple):
    """How far each class lies below the top: all that a softmax needs."""

    gap: Array  # (..., C): (s_j - s_top) / T, exactly 0 at the top and at ties with it
    is_top: Array  # (..., C): one True per row, the first of the largest


class Row(NamedTuple):
    """q = softmax(s / T), ready for the focal map. The fields that begin with `top_` have shape (..., 1)."""

    gap: Array
    is_top: Array
    share: Array  # q_j / (1 - q_top) of the others, 0 at the top: sums to 1
    log_not_q: Array  # log(1 - q_j), but 0 in place of -inf where no other class can occur
    odds: Array  # q_j / (1 - q_j) of the others, 0 at the top
    h: Array  # h(q_j) = -q_j log q_j / (1 - q_j)
    top_rest: Array  # r = (1 - q_top) / q_top
    top_log_not_q: Array
    top_h: Array


def gaps(xp: Any, logits: Array, temperature: Any) -> Gaps:
    """Gaps to the top class. Subtracting before dividing keeps their digits under a large common offset."""
    top = xp.argmax(stop_gradient(logits), axis=-1, keepdims=True)
    is_top = xp.arange(logits.shape[-1], device=getattr(top, "device", None)) == top
    # Taken by index, not by max: where classes tie, a maximum's gradient would be shared among them.
    largest = take(logits, top)
    return Gaps((logits - largest) / temperature, is_top)


def normalise(xp: Any, gap: Array, is_top: Array) -> Array:
    """Log-probabilities from gaps: log p_top = -log1p(Σ others) keeps its digits however close to 0."""
    others = xp.where(is_top, 0.0, xp.exp(gap))
    return gap - xp.log1p(xp.sum(others, axis=-1, keepdims=True))


def normalised(xp: Any, scores: Array) -> Array:
    """Log-probabilities from scores."""
    return normalise(xp, *gaps(xp, scores, 1.0))


def spoiled(xp: Any, logits: Array, scores: Array) -> Array:
    """Scores, all NaN in rows whose logits hold NaN or +inf or nothing but -inf, whatever the steps made of them."""
    top = xp.max(stop_gradient(logits), axis=-1, keepdims=True)
    return scores + (top - top)


def softmax_row(xp: Any, logits: Array, temperature: Any) -> Row:
    """The row of q = softmax(logits / temperature)."""
    gap, is_top = gaps(xp, logits, temperature)
    share, log_rest, alone = shares(xp, xp.where(is_top, -xp.inf, gap))
    rest = xp.exp(log_rest)
    log_norm = xp.log1p(rest)

    log_q = gap - log_norm
    q = xp.where(is_top, 0.0, xp.exp(log_q))
    finite_log_q = xp.where(gap == -xp.inf, 0.0, log_q)  # 0 · -inf would be NaN where q = 0
    odds = q / (1.0 - q)
    top_h = log1p_ratio(xp, rest)
    top_log_not_q = xp.where(alone, 0.0, log_rest) - log_norm
    log_not_q = xp.where(is_top, top_log_not_q, xp.log1p(-q))
    h = xp.where(is_top, top_h, -finite_log_q * odds)
    return Row(
        gap=gap,
        is_top=is_top,
        share=share,
        log_not_q=log_not_q,
        odds=odds,
        h=h,
        top_rest=rest,
        top_log_not_q=top_log_not_q,
        top_h=top_h,
    )


def shares(xp: Any, log_weight: Array) -> tuple[Array, Array, Array]:
    """Softmax and log-sum-exp of rows that may be -inf throughout, and where they are."""
    largest = stop_gradient(xp.max(log_weight, axis=-1, keepdims=True))
    largest = xp.where(largest == -xp.inf, 0.0, largest)
    weight = xp.exp(log_weight - largest)
    total = xp.sum(weight, axis=-1, keepdims=True)
    nothing = total == 0.0
    total = xp.where(nothing, 1.0, total)
    return weight / total, xp.where(nothing, -xp.inf, largest + xp.log(total)), nothing


def log1p_ratio(xp: Any, r: Array) -> Array:
    """log(1+r)/r, which is h(q) of the top class at r = (1-q)/q; value and slope hold down to r = 0."""
    small = r < xp.finfo(r.dtype).eps ** (1 / 3)
    safe = xp.where(small, 1.0, r)
    return xp.where(small, 1.0 - r * (0.5 - r / 3.0), xp.log1p(safe) / safe)


def softplus(xp: Any, x: Array) -> Array:
    """log(1 + exp(x)); minus it is the logarithm of a probability whose log-odds are -x."""
    # Not by abs, whose gradient at 0 is 0 in torch and JAX.
    is_up = x > 0.0
    return xp.where(is_up, x, 0.0) + xp.log1p(xp.exp(xp.where(is_up, -x, x)))


def log_minus(xp: Any, log_q: Array, amount: Any) -> tuple[Array, Array]:
    """log(q - amount) from log q, and whether q is the larger; log q where it is not. An amount of 0 changes no bit.

    A q of NaN counts as the larger, so that it stays NaN.
    """
    # The bound keeps infinities out of gradients; a q below e⁻⁸⁰ is less than any amount of interest.
    ratio = amount * xp.exp(xp.where(log_q < -80.0, 80.0, -log_q))
    is_smaller = ratio >= 1.0
    return log_q + xp.log1p(-xp.where(is_smaller, 0.0, ratio)), ~is_smaller
