"""The pass of diagonal affine maps on a GPU: log-loss and gradient of vector scaling from one reading of the logits."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from refocal._arrays import Vector
from refocal.maps.affine import FLOOR, KINDS

# Longer rows, and the sums for each of their classes, no longer fit the registers of a program.
MAX_CLASSES = 1 << 12
# So many programs share the rows, whatever the GPU: sums do not depend on it.
PROGRAMS = 1 << 10
TILE = 1 << 10

LOWEST = tl.constexpr(-FLOOR)
IS_LOGITS, IS_LOG_PROBABILITIES = tl.constexpr(KINDS.index("logits")), tl.constexpr(KINDS.index("log-probabilities"))


@triton.jit
def _affine_kernel(
    logits, labels, weights, parameters, out, stride, n_rows, n_classes,
    KIND: tl.constexpr, HAS_WEIGHTS: tl.constexpr, DOUBLE: tl.constexpr, ROWS: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """maps/affine.py and calibrators/_affine.py; a program adds up every so-manieth tile of rows."""
    dtype = tl.float64 if DOUBLE else tl.float32
    j = tl.arange(0, CLASSES)[None, :]
    known = j < n_classes
    slope = tl.load(parameters + j, mask=known, other=0.0).to(dtype)
    offset = tl.load(parameters + n_classes + j, mask=known, other=0.0).to(dtype)
    temperature = tl.load(parameters + 2 * n_classes).to(dtype)
    scale = temperature if KIND == IS_LOG_PROBABILITIES else temperature / temperature
    loss = tl.zeros([ROWS], tl.float64)
    to_slope = tl.zeros([ROWS, CLASSES], dtype)
    to_offset = tl.zeros([ROWS, CLASSES], dtype)
    for first in range(tl.program_id(0) * ROWS, n_rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS).to(tl.int64)
        is_row = row < n_rows
        x = tl.load(logits + row[:, None] * stride + j, mask=is_row[:, None] & known, other=float("-inf")).to(dtype)
        x = tl.where(is_row[:, None], x, 0.0)  # rows behind the last: harmless
        gap = (x - tl.max(x, axis=1)[:, None]) / temperature
        gap = tl.where(gap > LOWEST, gap, LOWEST)
        if KIND == IS_LOGITS:
            level = tl.sum(tl.where(known, gap, 0.0), axis=1) / n_classes
        else:
            level = tl.log(tl.sum(tl.where(known, tl.exp(gap * scale), 0.0), axis=1)) / scale
        z = gap - level[:, None]
        s = tl.where(known, z + (z * slope + offset), float("-inf"))
        s = s - tl.max(s, axis=1)[:, None]
        y = tl.load(labels + row, mask=is_row, other=0)
        is_label = j == y[:, None]
        p = tl.exp(s)
        total = tl.sum(p, axis=1)
        weight = tl.where(is_row, 1.0, 0.0).to(tl.float64)
        if HAS_WEIGHTS:
            weight = tl.load(weights + row, mask=is_row, other=0.0)
        at_label = tl.sum(tl.where(is_label, s, 0.0), axis=1)
        loss += weight * (tl.log(total) - at_label).to(tl.float64)
        pull = (p / total[:, None] - tl.where(is_label, 1.0, 0.0)) * weight.to(dtype)[:, None]
        to_slope += pull * z
        to_offset += pull
    out += tl.program_id(0).to(tl.int64) * (1 + 2 * n_classes)
    tl.store(out, tl.sum(loss, axis=0))
    j = tl.arange(0, CLASSES)
    tl.store(out + 1 + j, tl.sum(to_slope.to(tl.float64), axis=0), mask=j < n_classes)
    tl.store(out + 1 + n_classes + j, tl.sum(to_offset.to(tl.float64), axis=0), mask=j < n_classes)


def affine(
    x: Tensor, y: Tensor, weight: Tensor | None, kind: str, temperature: float, parameters: Vector, *, exact: bool
) -> Tensor:
    """Sums over the rows of log-loss and of its gradient in (W - I, b), W a diagonal; `exact`: in double precision."""
    classes = triton.next_power_of_2(x.shape[1])
    rows = max(1, TILE // classes)
    n_programs = min(PROGRAMS, triton.cdiv(len(x), rows))
    out = torch.empty(n_programs, 1 + 2 * x.shape[1], dtype=torch.float64, device=x.device)
    settings = torch.tensor([*parameters, temperature], dtype=torch.float64).to(x.device)
    _affine_kernel[(n_programs,)](
        x, y.contiguous(), out if weight is None else weight.contiguous(), settings, out, x.stride(0), *x.shape,
        KIND=KINDS.index(kind), HAS_WEIGHTS=weight is not None, DOUBLE=exact or x.dtype == torch.float64,
        ROWS=rows, CLASSES=classes,
    )  # fmt: skip
    return out.sum(0)
