"""The engine of array functions, for every array library and device. See `protocol.Engine` for what it computes.

Logits x are (N, C), labels y and weights (N,), and b = 1/T is called `slope`. Of each row the gaps to its top class,
x_j - x_top, are used and not the logits: the top's is 0, and no exponential overflows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refocal._arrays import Array, as_floating, namespace, on_gpu, take_label, to_numpy, without_warnings
from refocal._validation import LARGE
from refocal.engine.protocol import Plan, missing
from refocal.maps.row import gaps, normalise, shares, softmax_row
from refocal.maps.softmax import LabelDerivatives, derivatives, focal_gaps, relative_derivatives

CACHE_PART = 1 << 16
"""Entries of a part on a CPU: a temporary of that size takes 512 KB in double precision, which stay in the cache."""

GPU_PART = 1 << 24
"""Entries of a part on a GPU, which keep it busy."""

LARGE_SINGLE = 1e17
"""What `LARGE` is to double precision: squares of such distances, a thousand times over, fit into single precision."""

condense = missing
levels = missing
affine = missing


def plan(logits: Array) -> Plan:
    """Parts sized for the CPU or the GPU, processed in turn: array libraries use threads of their own."""
    in_double = logits.dtype == namespace(logits).float64
    precision = float(np.finfo(np.float64 if in_double else np.float32).eps)
    return Plan(part_entries=GPU_PART if on_gpu(logits) else CACHE_PART, n_threads=1, precision=precision)


def within_reach(x: Array) -> Array:
    """Logits extremely far below the top of their row, such as masks, raised until their squares are finite.

    Their class has no probability either way; -inf stays.
    """
    xp = namespace(x)
    is_double = xp.finfo(x.dtype).bits > 32
    lowest = xp.max(x, axis=-1, keepdims=True) - (LARGE if is_double else LARGE_SINGLE)
    return xp.where((x < lowest) & (x > -xp.inf), lowest, x)


@without_warnings
def temperature(x: Array, y: Array, weight: Array, slope: float, *, rough: bool = False) -> Array:
    """See `Engine.temperature`.

    With gaps d_j and q = softmax(b d), the log-loss is log Σ_j exp(b d_j) - b d_y. Its derivatives in b are
    E_q[d] - d_y and Var_q[d].
    """
    xp, x = _prepared(x)
    gap, is_top = gaps(xp, x, 1.0)
    exp_gap = xp.exp(gap * slope)
    norm = 1.0 + xp.sum(xp.where(is_top, 0.0, exp_gap), axis=-1)
    gap = xp.where(gap == -xp.inf, 0.0, gap)  # an impossible class has no weight: 0 · inf would be NaN
    mean_gap = xp.sum(exp_gap * gap, axis=-1) / norm
    label_gap = take_label(gap, y)
    log_loss = xp.log1p(norm - 1.0) - label_gap * slope
    first_derivative = mean_gap - label_gap
    second_derivative = xp.sum(exp_gap * gap**2, axis=-1) / norm - mean_gap**2
    return _sums(xp, (log_loss, first_derivative, second_derivative), weight)


@without_warnings
def focal(x: Array, y: Array, weight: Array, gamma: float, slope: float, *, rough: bool = False) -> Array:
    """See `Engine.focal`."""
    xp, x = _prepared(x)
    log_p = derivatives(xp, x, y, gamma, 1.0 / slope)
    return -_sums(xp, _value_and_derivatives(log_p), weight)


@without_warnings
def split(x: Array, y: Array, gamma: float, slope: float, *, rough: bool = False) -> Array:
    """See `Engine.split`.

    With the log-weights x_j of the focal map less the top's, the log-odds of the top are -ℓ, ℓ = log Σ_j exp(x_j) over
    the other classes, and the log-share of a label among these is x_y - ℓ. With E the mean over the others by their
    shares, the derivatives of ℓ are E[x_u] and E[x_uv] + Cov[x_u, x_v].
    """
    certain_log_odds = 1e8  # where no other class can occur, as in kernel.c

    xp, x = _prepared(x)
    row = softmax_row(xp, x, 1.0 / slope)
    gap = focal_gaps(xp, row, gamma)
    share, log_sum, alone = shares(xp, xp.where(row.is_top, -xp.inf, gap))
    g, b, gg, gb, bb = relative_derivatives(xp, row, gamma, 1.0 / slope)
    mean_g = xp.vecdot(share, g)
    mean_b = xp.vecdot(share, b)
    g_ = g - mean_g[..., None]
    b_ = b - mean_b[..., None]
    of_others = (
        xp.where(alone, -certain_log_odds, log_sum)[..., 0],
        mean_g,
        mean_b,
        xp.vecdot(share, gg + g_ * g_),
        xp.vecdot(share, gb + g_ * b_),
        xp.vecdot(share, bb + b_ * b_),
    )
    is_top = take_label(row.is_top, y)
    of_label = [take_label(each, y) for each in (gap, g, b, gg, gb, bb)]
    log_odds = [-rest for rest in of_others]
    log_share = [xp.where(is_top, 0.0, own - rest) for own, rest in zip(of_label, of_others, strict=True)]
    return xp.stack([xp.stack(log_odds), xp.stack(log_share)])


def _value_and_derivatives(log_p: LabelDerivatives) -> tuple[Array, ...]:
    """The value and its derivatives γ, b, γγ, γb, bb."""
    gradient = log_p.gradient
    hessian = log_p.hessian
    return log_p.log_p, gradient[..., 0], gradient[..., 1], hessian[..., 0, 0], hessian[..., 0, 1], hessian[..., 1, 1]


@without_warnings
def predict(x: Array, y: Array, gammas: tuple[float, ...], slope: float, *, rough: bool = False) -> Array:
    """See `Engine.predict`."""
    xp, x = _prepared(x)
    row = softmax_row(xp, x, 1.0 / slope)
    of_gammas = []
    for gamma in gammas:
        gap = row.gap if gamma == 0.0 else focal_gaps(xp, row, gamma)
        others = xp.where(row.is_top, 0.0, xp.exp(gap))  # p_j / p_top
        sum_of_others = xp.sum(others, axis=-1)
        confidence = 1.0 / (1.0 + sum_of_others)
        squares = (1.0 + xp.sum(others * others, axis=-1)) * confidence * confidence
        label_log_p = take_label(gap, y) - xp.log1p(sum_of_others)
        of_gammas.append(xp.stack([label_log_p, confidence, squares]))
    return xp.stack(of_gammas, axis=1)


@without_warnings
def vector(x: Array, y: Array, weight: Array, parameters: Array, *, rough: bool = False) -> Array:
    """See `Engine.vector`; in double precision.

    With η = w x + b and p = softmax(η), the log-loss -log p_y has the gradient p - e_y in η, where e_y is 1 at the
    label, and the diagonal p (1-p) of its Hessian. Those in w have factors x, and x² on the diagonal.
    """
    xp = namespace(x)
    n_rows, n_classes = x.shape
    x = xp.astype(x, xp.float64)
    device = getattr(x, "device", None)
    parameters = xp.asarray(parameters, device=device)
    log_p = normalise(xp, *gaps(xp, x * parameters[:n_classes] + parameters[n_classes:], 1.0))
    p = xp.exp(log_p)
    is_label = xp.arange(n_classes, device=device) == y[:, None]
    gradient = p - xp.astype(is_label, x.dtype)
    curvature = p * (1.0 - p)
    if weight is None:
        weight = xp.ones(n_rows, dtype=x.dtype, device=device)
    sums = (
        -(weight @ take_label(log_p, y))[None],
        weight @ (gradient * x),
        weight @ gradient,
        weight @ (curvature * x * x),
        weight @ (curvature * x),
        weight @ curvature,
    )
    return xp.concat(sums)


@without_warnings
def inspect(x: Array, y: Array) -> tuple[Array, Array]:
    """See `Engine.inspect`."""
    xp, x = _prepared(x)
    gap, is_top = gaps(xp, x, 1.0)
    correct = take_label(is_top, y)
    distance = -xp.sum(xp.where(gap > -xp.inf, gap, 0.0))
    return correct, distance


def _prepared(x: Array) -> tuple[Any, Array]:
    """The array library of the logits, and the logits in the precision to compute in."""
    x = within_reach(as_floating(x, "logits", "fit")[0])
    return namespace(x), x


def _sums(xp: Any, terms: tuple[Array, ...], weight: Array) -> Array:
    """Weighted sums in float64, whatever the precision of the terms: on the GPU, or else by NumPy."""
    rows = xp.stack(terms)
    rows = rows.double() if on_gpu(rows) else to_numpy(rows).astype("float64")
    return (rows if weight is None else rows * weight).sum(-1)
