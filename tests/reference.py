"""Slow references in mpmath, safe at any logit gap: 1 - q always comes from the other classes, never from 1 - q."""

from __future__ import annotations

from collections import Counter

import mpmath as mp

DIGITS = 50


def focal_temperature(logits, gamma, temperature=1.0):
    """log p of one row by the definition p_j ∝ 1 / |L'(q_j)|, L(q) = -(1-q)^γ log q, in mpmath."""
    with mp.workdps(max(DIGITS, mp.mp.dps)):  # mp.diff asks for more
        gamma, temperature = mp.mpf(gamma), mp.mpf(temperature)
        counts = Counter(float(s) for s in logits)  # equal logits share one computation
        scaled = {s: mp.mpf(s) / temperature for s in counts}
        weights = {s: mp.exp(scaled[s] - max(scaled.values())) for s in counts}
        slopes = {}
        for s, weight in weights.items():
            # The sum of everything but one class, by addition alone.
            others = mp.fsum((n - (r == s)) * weights[r] for r, n in counts.items() if n > (r == s))
            slopes[s] = _inverse_slope(weight, others, gamma)
        if mp.inf in slopes.values():  # nothing else can occur
            return [mp.mpf(0) if slopes[float(s)] == mp.inf else -mp.inf for s in logits]
        top = max(slopes, key=slopes.__getitem__)
        others = mp.fsum((n - (s == top)) * slopes[s] for s, n in counts.items() if n > (s == top))
        log_top = -mp.log1p(others / slopes[top])
        found = {s: mp.log(slope / slopes[top]) + log_top if slope else -mp.inf for s, slope in slopes.items()}
        return [found[float(s)] for s in logits]


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
