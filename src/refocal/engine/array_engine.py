"""The engine of array functions, for every array library and device. See `protocol.Engine` for what it computes."""

from __future__ import annotations

from typing import Any

import numpy as np

from refocal._arrays import Array, as_floating, namespace, on_gpu, take_label, to_numpy, without_warnings
from refocal._validation import LARGE
from refocal.engine.protocol import Plan, missing
from refocal.maps.row import gaps, normalise, softmax_row
from refocal.maps.softmax import LabelDerivatives, derivatives, focal_gaps

# Entries of a part: array functions make temporaries of its size, which should stay in the cache of a CPU and keep a
# GPU busy.
CACHE_PART, GPU_PART = 1 << 16, 1 << 24
# What LARGE is to double precision: squares of such distances, a thousand times over, fit into single precision.
LARGE_SINGLE = 1e17
# Log-odds of what is certain, as in kernel.c.
CERTAIN_LOG_ODDS = 1e8

condense = levels = affine = missing


def plan(logits: Array) -> Plan:
    """Parts sized for the CPU or the GPU, processed in turn: array libraries use threads of their own."""
    in_double = logits.dtype == namespace(logits).float64
    precision = float(np.finfo(np.float64 if in_double else np.float32).eps)
    return Plan(GPU_PART if on_gpu(logits) else CACHE_PART, 1, precision)


def within_reach(x: Array) -> Array:
    """Logits extremely far below the top of their row, such as masks, raised until their squares are finite.

    Their class has no probability either way; -inf stays.
    """
    xp = namespace(x)
    lowest = xp.max(x, axis=-1, keepdims=True) - (LARGE if xp.finfo(x.dtype).bits > 32 else LARGE_SINGLE)
    return xp.where((x < lowest) & (x > -xp.inf), lowest, x)


@without_warnings
def temperature(x: Array, y: Array, weight: Array, slope: float, *, rough: bool = False) -> Array:
    """See `Engine.temperature`."""
    xp, x = _prepared(x)
    raw, is_top = gaps(xp, x, 1.0)
    q = xp.exp(raw * slope)
    norm = 1.0 + xp.sum(xp.where(is_top, 0.0, q), axis=-1)
    raw = xp.where(raw == -xp.inf, 0.0, raw)
    mean = xp.sum(q * raw, axis=-1) / norm
    label = take_label(raw, y)
    terms = (
        xp.log1p(norm - 1.0) - label * slope,
        mean - label,
        xp.sum(q * raw**2, axis=-1) / norm - mean**2,
    )
    return _sums(xp, terms, weight)


@without_warnings
def focal(x: Array, y: Array, weight: Array, gamma: float, slope: float, *, rough: bool = False) -> Array:
    """See `Engine.focal`."""
    xp, x = _prepared(x)
    return -_sums(xp, _flat(xp, derivatives(xp, x, y, gamma, 1.0 / slope)), weight)


@without_warnings
def split(x: Array, y: Array, gamma: float, slope: float, *, rough: bool = False) -> Array:
    """See `Engine.split`."""
    xp, x = _prepared(x)
    top = xp.argmax(x, axis=-1)
    label, at_top = (_flat(xp, derivatives(xp, x, each, gamma, 1.0 / slope)) for each in (y, top))
    log_p, g, b, gg, gb, bb = at_top
    # By the chain rule from log p of the top class: what the others have, log(1-p), where they can occur at all.
    rest = -xp.expm1(log_p)
    some, safe = rest > 0.0, xp.where(rest > 0.0, rest, 1.0)
    fall = -xp.exp(log_p) / safe
    second = (fall * (gg + g / safe * g), fall * (gb + g / safe * b), fall * (bb + b / safe * b))
    others = (xp.where(some, xp.log(safe), log_p - CERTAIN_LOG_ODDS), fall * g, fall * b, *second)
    parts = [[of - of_others for of, of_others in zip(each, others, strict=True)] for each in (at_top, label)]
    parts[1] = [xp.where(y == top, 0.0, each) for each in parts[1]]
    return xp.stack([xp.stack(part) for part in parts])


def _flat(xp: Any, found: LabelDerivatives) -> tuple[Array, ...]:
    """The value and its derivatives γ, b, γγ, γb, bb."""
    (g, b), hessian = (found.gradient[..., i] for i in (0, 1)), found.hessian
    return found.log_p, g, b, hessian[..., 0, 0], hessian[..., 0, 1], hessian[..., 1, 1]


@without_warnings
def predict(x: Array, y: Array, gammas: tuple[float, ...], slope: float, *, rough: bool = False) -> Array:
    """See `Engine.predict`."""
    xp, x = _prepared(x)
    row = softmax_row(xp, x, 1.0 / slope)
    parts = []
    for gamma in gammas:
        gap = row.gap if gamma == 0.0 else focal_gaps(xp, row, gamma)
        others = xp.where(row.is_top, 0.0, xp.exp(gap))
        total = xp.sum(others, axis=-1)
        top = 1.0 / (1.0 + total)
        squares = (1.0 + xp.sum(others * others, axis=-1)) * top * top
        parts.append(xp.stack([take_label(gap, y) - xp.log1p(total), top, squares]))
    return xp.stack(parts, axis=1)


@without_warnings
def vector(x: Array, y: Array, weight: Array, parameters: Array, *, rough: bool = False) -> Array:
    """See `Engine.vector`; in double precision."""
    xp, n = namespace(x), x.shape[1]
    x, device = xp.astype(x, xp.float64), getattr(x, "device", None)
    parameters = xp.asarray(parameters, device=device)
    log_p = normalise(xp, *gaps(xp, x * parameters[:n] + parameters[n:], 1.0))
    p = xp.exp(log_p)
    bend, off = p * (1.0 - p), p - xp.astype(xp.arange(n, device=device) == y[:, None], x.dtype)
    share = xp.ones(x.shape[0], dtype=x.dtype, device=device) if weight is None else weight
    sums = [share @ each for each in (off * x, off, bend * x * x, bend * x, bend)]
    return xp.concat([-(share @ take_label(log_p, y))[None], *sums])


@without_warnings
def inspect(x: Array, y: Array) -> tuple[Array, Array]:
    """See `Engine.inspect`."""
    xp, x = _prepared(x)
    row = gaps(xp, x, 1.0)
    return take_label(row.is_top, y), -xp.sum(xp.where(row.gap > -xp.inf, row.gap, 0.0))


def _prepared(x: Array) -> tuple[Any, Array]:
    """The array library of the logits, and the logits in the precision to compute in."""
    x = within_reach(as_floating(x, "logits", "fit")[0])
    return namespace(x), x


def _sums(xp: Any, terms: tuple[Array, ...], weight: Array) -> Array:
    """Weighted sums in float64, whatever the precision of the terms: on the GPU, or else by NumPy."""
    rows = xp.stack(terms)
    rows = rows.double() if on_gpu(rows) else to_numpy(rows).astype("float64")
    return (rows if weight is None else rows * weight).sum(-1)
