"""What a search measures on a block of rows, written with array functions: for every array library and device.

Sums come back as one vector of the block's own library, so that adding blocks up needs no word from the device.
`kernel` has the same functions in C for NumPy arrays.
"""

from __future__ import annotations

from typing import Any

from refocal._arrays import Array, is_torch, namespace, take_label, to_numpy
from refocal._validation import LARGE
from refocal.maps.derivatives import derivatives
from refocal.maps.forward import focal_gaps
from refocal.maps.row import gaps, softmax_row

# What LARGE is to double precision: squares of such distances, a thousand times over, fit into single precision.
LARGE_SINGLE = 1e17


def within_reach(x: Array) -> Array:
    """Logits absurdly far below the top of their row, as a mask leaves them, raised until their squares are finite.

    Their class has no probability either way; -inf stays.
    """
    xp = namespace(x)
    lowest = xp.max(x, axis=-1, keepdims=True) - (LARGE if xp.finfo(x.dtype).bits > 32 else LARGE_SINGLE)
    return xp.where((x < lowest) & (x > -xp.inf), lowest, x)


def temperature(x: Array, y: Array, weight: Array, slope: float) -> Array:
    """Log-loss of temperature scaling at 1/T = `slope`: sums of the value, its first and second derivative."""
    xp = namespace(x)
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


def focal(x: Array, y: Array, weight: Array, gamma: float, slope: float) -> Array:
    """Log-loss of focal temperature scaling: sums of the value and of its derivatives γ, b, γγ, γb, bb; b = 1/T."""
    xp = namespace(x)
    found = derivatives(xp, x, y, gamma, 1.0 / slope)
    second = (found.hessian[..., 0, 0], found.hessian[..., 0, 1], found.hessian[..., 1, 1])
    return -_sums(xp, (found.log_p, found.gradient[..., 0], found.gradient[..., 1], *second), weight)


def predict(x: Array, y: Array, gammas: tuple[float, ...], slope: float) -> Array:
    """For each γ and row: log p of the label, p of the top class, the sum of all p²; shape (3, len(gammas), rows)."""
    xp = namespace(x)
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


def inspect(x: Array, y: Array) -> tuple[Array, Array]:
    """Whether each row's first largest logit is its label's, and the sum of all finite distances to the top."""
    xp = namespace(x)
    row = gaps(xp, x, 1.0)
    return take_label(row.is_top, y), -xp.sum(xp.where(row.gap > -xp.inf, row.gap, 0.0))


def _sums(xp: Any, terms: tuple[Array, ...], weight: Array) -> Array:
    """Weighted sums in float64, whatever the precision of the terms: on the GPU, or else by NumPy."""
    rows = xp.stack(terms)
    rows = rows.double() if on_gpu(rows) else to_numpy(rows).astype("float64")
    return (rows if weight is None else rows * weight).sum(-1)


def on_gpu(x: Array) -> bool:
    """Whether `x` is a torch tensor on a GPU that computes in float64."""
    return is_torch(x) and x.device.type in ("cuda", "xpu")
