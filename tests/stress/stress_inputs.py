"""How the inputs of the cases are made.

The labels of most cases are drawn from softmax(logits / 1.8), so the best temperature is near 1.8 × the scale.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import torch
from stress_tasks import Inputs, log_softmax

TRUE = 1.8


def draw(n=2000, c=10, seed=0, spread=2.0):
    """Logits that are 1.8 times too large, and labels."""
    rng = np.random.default_rng(seed)
    logits = spread * rng.normal(size=(n, c))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return TRUE * logits, labels


def given(X, y, logits=None, labels=None, **options):
    """Inputs whose reference is what X and y hold, unless it is told."""
    logits = np.asarray(X, dtype=np.float64) if logits is None else logits
    labels = np.asarray(y) if labels is None else labels
    return Inputs(X, y, logits, labels, **options)


def changed(change, **of):
    """The usual rows with their logits changed."""

    def make():
        logits, labels = draw(**of)
        return given(change(logits), labels)

    return make


def scaled(factor, dtype=np.float64):
    return changed(lambda x: (factor * x).astype(dtype))


def half(kind):
    def make():
        logits, labels = draw()
        X = torch.from_numpy(logits).to(kind)
        epsilon = float(torch.finfo(kind).eps)
        return given(X, torch.from_numpy(labels), X.double().numpy(), labels, extra={"epsilon": epsilon})

    return make


def float16():
    logits, labels = draw()
    return given(logits.astype(np.float16), labels, extra={"epsilon": 1e-3})


def read_only():
    logits, labels = draw()
    logits.flags.writeable = labels.flags.writeable = False
    return given(logits, labels)


def needs_gradient():
    logits, labels = draw()
    return given(torch.from_numpy(logits).requires_grad_(), torch.from_numpy(labels), logits, labels)


def frame(kind):
    def make():
        logits, labels = draw()
        columns = {f"class {k}": logits[:, k] for k in range(logits.shape[1])}
        series = pl.Series(labels) if kind is pl.DataFrame else pd.Series(labels)
        return given(kind(columns), series, logits, labels)

    return make


def relabelled(change, c=10):
    """The usual rows with the labels in another form."""

    def make():
        logits, labels = draw(c=c)
        return given(logits, change(labels), logits, labels)

    return make


def names(labels):
    return np.array([f"kind {k:02d}" for k in range(100)])[labels]


def absent_class():
    logits, labels = draw()
    keep = labels != 3
    return given(logits[keep], labels[keep])


def imbalanced():
    logits, labels = draw(n=20_000, c=3, seed=1)
    labels[:] = 0
    labels[:2] = [1, 2]
    logits[:, 0] += 12.0
    return given(logits, labels)


def duplicated():
    logits, labels = draw(n=5, c=4, seed=3)
    labels = np.array([0, 1, 2, 3, 0])
    return given(np.repeat(logits, 1000, axis=0), np.repeat(labels, 1000))


def all_wrong():
    logits, _ = draw()
    return given(logits, logits.argmin(axis=1))


def all_right():
    logits, _ = draw()
    return given(logits, logits.argmax(axis=1), extra={"slack": 0.01})


def nearly_separable():
    logits, _ = draw(n=10_000)
    labels = logits.argmax(axis=1)
    labels[0] = logits[0].argmin()
    return given(logits, labels)


def random_labels():
    logits, _ = draw()
    return given(logits, np.random.default_rng(9).integers(10, size=len(logits)))


def masked(value, dtype=np.float64):
    """Three of ten classes of a row cannot be, and their logits say so by this value."""

    def make():
        logits, labels = draw()
        hidden = np.random.default_rng(5).random(logits.shape) < 0.3
        hidden[np.arange(len(labels)), labels] = False
        return given(np.where(hidden, value, logits).astype(dtype), labels)

    return make


def weighted():
    """Half of the rows carry wrong labels and weight 0."""
    logits, labels = draw(n=4000)
    weight = np.repeat([1.0, 0.0], 2000)
    labels[2000:] = (labels[2000:] + 1) % 10
    return given(logits, labels, weight=weight)


def isotonic(c):
    def make():
        logits, labels = draw(n=1000, c=c, spread=3.0)
        test, test_labels = draw(n=20_000, c=c, seed=1, spread=3.0)
        return given(logits, labels, extra={"test": test, "test_labels": test_labels})

    return make


def probabilities(n=2000, c=10, dtype=np.float64, seed=0):
    logits, labels = draw(n, c, seed)
    return np.exp(log_softmax(logits)).astype(dtype), labels


def measured(change=lambda p: p, n=2000, c=10, dtype=np.float64, **extra):
    def make():
        p, labels = probabilities(n, c, dtype)
        return given(change(p), labels, change(p), labels, extra=extra)

    return make


def vector(confidence, right, dtype=np.float64):
    """Binary probabilities of one value each and labels that are right as often as said."""

    def make():
        p = np.asarray(confidence, dtype=dtype)
        y = np.asarray(right, dtype=np.int64)
        return given(p, y, p, y)

    return make


def one_bin(n, share=0.75):
    """n float32 rows of confidence 0.95 of which three quarters are right: the ECE is 0.2, up to float32's 0.95."""

    def make():
        p = np.full(n, 0.95, dtype=np.float32)
        y = np.zeros(n, dtype=np.int64)
        y[: int(share * n)] = 1
        return Inputs(p, y, extra={"ece": abs(float(np.float32(0.95)) - int(share * n) / n)})

    return make


def many_classes_measured():
    p, labels = probabilities(n=100, c=100_000, dtype=np.float32)
    return given(p, labels, p, labels)


def mask(values):
    """The same with a mask over every seventh row."""
    hidden = np.zeros(np.shape(values), dtype=bool)
    hidden[::7] = True
    return np.ma.masked_array(values, mask=hidden)


def broken(task, change_X=None, change_y=None, c=10):
    """Rows with a fault in them."""

    def make():
        X, y = draw(n=500, c=c) if task == "fit" else probabilities(n=500, c=c)
        return Inputs(X if change_X is None else change_X(X), y if change_y is None else change_y(y))

    return make


def broken_vector(change_p=None, change_y=None):
    def make():
        inputs = broken("ece", lambda p: p[:, 1], lambda y: (y == 1).astype(np.int64))()
        p, y = inputs.X, inputs.y
        return Inputs(p if change_p is None else change_p(p), y if change_y is None else change_y(y))

    return make


def put(value, row=7, column=2):
    def change(x):
        x = np.array(x)
        x[(row, column) if x.ndim == 2 else row] = value
        return x

    return change


def gradient(gap, gamma):
    """d/dx of -(1-q)^γ log q at x = (gap, 0) for the right label: at gaps from 40 on it is 0 to 1e-17 · γ."""

    def make():
        return Inputs(np.array([[gap, 0.0]]), np.array([0]), extra={"gamma": gamma, "gradient": np.zeros((1, 2))})

    return make


def two_seen():
    p, labels = probabilities(c=10)
    keep = labels < 2
    return given(p[keep], labels[keep], p[keep], labels[keep])
