"""Slow references in mpmath, safe at any logit gap: 1 - q always comes from the other classes, never from 1 - q."""

from __future__ import annotations

from itertools import accumulate

import mpmath as mp
import numpy as np

DIGITS = 50


def focal_temperature(logits, gamma, temperature=1.0):
    """log p of one row by the definition p_j ∝ 1 / |L'(q_j)|, L(q) = -(1-q)^γ log q, in mpmath."""
    with mp.workdps(max(DIGITS, mp.mp.dps)):  # mp.diff asks for more
        gamma, temperature = mp.mpf(gamma), mp.mpf(temperature)
        logits = [mp.mpf(float(s)) / temperature for s in logits]
        weights = [mp.exp(s - max(logits)) for s in logits]
        # Sums of everything but one class, by addition alone.
        before = [mp.mpf(0), *accumulate(weights)]
        after = list(accumulate(reversed([*weights[1:], mp.mpf(0)])))[::-1]
        slopes = [_inverse_slope(w, b + a, gamma) for w, b, a in zip(weights, before, after, strict=False)]
        if mp.inf in slopes:  # nothing else can occur
            return [mp.mpf(0) if s == mp.inf else -mp.inf for s in slopes]
        top = max(range(len(slopes)), key=slopes.__getitem__)
        others = mp.fsum(s for j, s in enumerate(slopes) if j != top)
        log_top = -mp.log1p(others / slopes[top])
        return [mp.log(s / slopes[top]) + log_top if s else -mp.inf for s in slopes]


def _inverse_slope(weight, others, gamma):
    """1 / |L'(q)| for q = weight / (weight + others)."""
    if weight == 0:
        return mp.mpf(0)
    if others == 0:
        return mp.inf
    q = weight / (weight + others)
    not_q = others / (weight + others)
    log_q = -mp.log1p(others / weight)
    return 1 / (not_q**gamma * (1 / q - gamma * log_q / not_q))


def focal_loss(logits, label, gamma):
    """-(1-q)^γ log q of one row's label."""
    with mp.workdps(DIGITS):
        weights = [mp.exp(mp.mpf(float(s)) - mp.mpf(float(max(logits)))) for s in logits]
        others = mp.fsum(w for j, w in enumerate(weights) if j != label)
        not_q = others / (weights[label] + others)
        return not_q ** mp.mpf(gamma) * mp.log1p(others / weights[label])


def to_numpy(array):
    """An array of any library as a NumPy array."""
    return np.asarray(array.detach() if hasattr(array, "detach") else array)
