"""Data that calibration measures stumble over, shared by the tests of the metrics."""

from __future__ import annotations

import numpy as np
import pytest


def softmax(logits):
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def draw_labels(rng, p):
    return (p.cumsum(axis=1) > rng.random((p.shape[0], 1)) * p.sum(axis=1, keepdims=True)).argmax(axis=1)


def binary_cases():
    rng = np.random.default_rng(3)
    n = 3000
    p = rng.random(n)
    over = 1 / (1 + np.exp(-rng.normal(3, 4, n)))
    return {
        "random": (p, rng.random(n) < p),
        "over-confident": (over, rng.random(n) < np.sqrt(over)),
        "all equal": (np.full(n, 0.7), rng.random(n) < 0.4),
        "zeros and ones": ((rng.random(n) < 0.6).astype(float), rng.random(n) < 0.5),
        "lattice": (rng.integers(0, 11, n) / 10, rng.random(n) < 0.5),
        "hundredths": (rng.integers(0, 101, n) / 100, rng.random(n) < 0.3),
        "half atom": (np.where(rng.random(n) < 0.5, 0.9, p), rng.random(n) < 0.8),
        "crowded": (0.7 + 1e-9 * p, rng.random(n) < p),
        "fewer than bins": (p[:7], rng.random(7) < 0.5),
        "one row": (np.array([0.3]), np.array([True])),
    }


BINARY = binary_cases()


@pytest.fixture(params=list(BINARY))
def binary(request):
    p, y = BINARY[request.param]
    return y.astype(int), p


@pytest.fixture(params=[2, 3, 10, 200])
def multiclass(request):
    rng = np.random.default_rng(request.param)
    p = softmax(2.0 * rng.normal(size=(600, request.param)))
    labels = draw_labels(rng, softmax(np.log(p) / 1.5))
    # The last class never occurs.
    return np.minimum(labels, request.param - 2) if request.param > 2 else labels, p
