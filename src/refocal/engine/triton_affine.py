"""The pass of diagonal affine maps on a GPU: log-loss and gradient of vector scaling from one reading of the logits."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from refocal._arrays import Vector
from refocal.engine.triton_maths import OPTIONS, beside_its_tensors
from refocal.maps.steps import FLOOR, KINDS, MASKED

MAX_CLASSES = 1 << 12
"""Longer rows, and the sums for each of their classes, no longer fit the registers of a program."""

LOWEST_FEATURE = tl.constexpr(-FLOOR)
MASKED_GAP = tl.constexpr(-MASKED)
IS_LOGITS = tl.constexpr(KINDS.index("logits"))
IS_LOG_PROBABILITIES = tl.constexpr(KINDS.index("log-probabilities"))


@triton.jit
def _features(x, top, level, temperature):
    """`features` of maps/steps.py, from the top of a row and what it is brought to."""
    gap = (x - top) / temperature
    is_masked = gap <= MASKED_GAP
    return tl.where(is_masked, 2 * LOWEST_FEATURE, tl.where(gap < LOWEST_FEATURE, LOWEST_FEATURE, gap)) - level


@triton.jit
def _level_kernel(
    logits, parameters, tops, stride, n_rows, n_classes,
    KIND: tl.constexpr, DOUBLE: tl.constexpr, ROWS: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """The top of each row, and the level that `_features` takes off, in which masked classes take no part.

    No parameter changes them.
    """
    dtype = tl.float64 if DOUBLE else tl.float32
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j = tl.arange(0, CLASSES)[None, :]
    known = j < n_classes
    is_row = row < n_rows
    x = tl.load(logits + row[:, None] * stride + j, mask=is_row[:, None] & known, other=float("-inf")).to(dtype)
    x = tl.where(is_row[:, None], x, 0.0)  # rows beyond the last: harmless
    temperature = tl.load(parameters + 2 * n_classes).to(dtype)
    top = tl.max(x, axis=1)
    gap = _features(x, top[:, None], 0.0, temperature)
    is_masked = ~known | (gap < 1.5 * LOWEST_FEATURE)
    if KIND == IS_LOGITS:
        level = tl.sum(tl.where(is_masked, 0.0, gap), axis=1) / tl.sum(tl.where(is_masked, 0.0, 1.0), axis=1).to(dtype)
    else:
        scale = temperature if KIND == IS_LOG_PROBABILITIES else temperature / temperature
        level = tl.log(tl.sum(tl.where(is_masked, 0.0, tl.exp(gap * scale)), axis=1)) / scale
    tl.store(tops + row, top, mask=is_row)
    tl.store(tops + n_rows + row, level, mask=is_row)


@triton.jit
def _affine_kernel(
    logits, labels, weights, parameters, tops, out, stride, n_rows, n_classes,
    HAS_WEIGHTS: tl.constexpr, DOUBLE: tl.constexpr, ROWS: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """The log-loss of `maps.steps.Affine` and its gradient; a program adds up every n-th tile of rows."""
    dtype = tl.float64 if DOUBLE else tl.float32
    j = tl.arange(0, CLASSES)[None, :]
    known = j < n_classes
    slope = tl.load(parameters + j, mask=known, other=0.0).to(dtype)
    offset = tl.load(parameters + n_classes + j, mask=known, other=float("-inf")).to(dtype)
    temperature = tl.load(parameters + 2 * n_classes).to(dtype)
    loss = tl.zeros([ROWS], tl.float64)
    to_slope = tl.zeros([ROWS, CLASSES], dtype)
    to_offset = tl.zeros([ROWS, CLASSES], dtype)
    for first in range(tl.program_id(0) * ROWS, n_rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS).to(tl.int64)
        is_row = row < n_rows
        x = tl.load(logits + row[:, None] * stride + j, mask=is_row[:, None] & known, other=0.0).to(dtype)
        top = tl.load(tops + row, mask=is_row, other=0.0).to(dtype)
        level = tl.load(tops + n_rows + row, mask=is_row, other=0.0).to(dtype)
        z = _features(x, top[:, None], level[:, None], temperature)
        s = z + (z * slope + offset)
        highest = tl.max(s, axis=1)
        p = tl.exp(s - highest[:, None])
        total = tl.sum(p, axis=1)
        y = tl.load(labels + row, mask=is_row, other=0)
        own = tl.load(logits + row * stride + y, mask=is_row, other=0.0).to(dtype)
        z_y = _features(own, top, level, temperature)
        s_y = z_y + (z_y * tl.load(parameters + y).to(dtype) + tl.load(parameters + n_classes + y).to(dtype))
        weight = tl.where(is_row, 1.0, 0.0).to(tl.float64)
        if HAS_WEIGHTS:
            weight = tl.load(weights + row, mask=is_row, other=0.0)
        loss += weight * (tl.log(total) - (s_y - highest)).to(tl.float64)
        at_label = tl.where(j == y[:, None], weight.to(dtype)[:, None], 0.0)
        gradient = p * (weight.to(dtype) / total)[:, None] - at_label
        to_slope += gradient * z
        to_offset += gradient
    out += tl.program_id(0).to(tl.int64) * (1 + 2 * n_classes)
    tl.store(out, tl.sum(loss, axis=0))
    j = tl.arange(0, CLASSES)
    tl.store(out + 1 + j, tl.sum(to_slope.to(tl.float64), axis=0), mask=j < n_classes)
    tl.store(out + 1 + n_classes + j, tl.sum(to_offset.to(tl.float64), axis=0), mask=j < n_classes)


@beside_its_tensors
def levels(x: Tensor, kind: str, temperature: float, *, exact: bool) -> Tensor:
    """See `Engine.levels`."""
    double = exact or x.dtype == torch.float64
    tops = torch.empty(2, len(x), dtype=torch.float64 if double else torch.float32, device=x.device)
    settings = _settings(x, np.zeros(2 * x.shape[1]), temperature)
    rows, classes = _tile(x)
    _level_kernel[(triton.cdiv(len(x), rows),)](
        x, settings, tops, x.stride(0), *x.shape, KIND=KINDS.index(kind), DOUBLE=double, ROWS=rows, CLASSES=classes,
        **OPTIONS,
    )  # fmt: skip
    return tops


@beside_its_tensors
def affine(x: Tensor, y: Tensor, weight: Tensor | None, tops: Tensor, temperature: float, parameters: Vector) -> Tensor:
    """See `Engine.affine`."""
    most_programs = 1 << 12  # that share the rows: the same on every GPU, so that sums do not depend on it

    rows, classes = _tile(x)
    n_programs = min(most_programs, triton.cdiv(len(x), rows))
    out = torch.empty(n_programs, 1 + 2 * x.shape[1], dtype=torch.float64, device=x.device)
    _affine_kernel[(n_programs,)](
        x, y.contiguous(), out if weight is None else weight.contiguous(), _settings(x, parameters, temperature), tops,
        out, x.stride(0), *x.shape, HAS_WEIGHTS=weight is not None, DOUBLE=tops.dtype == torch.float64,
        ROWS=rows, CLASSES=classes, num_warps=4, **OPTIONS,
    )  # fmt: skip
    return out.sum(0)


def _settings(x: Tensor, parameters: Vector, temperature: float) -> Tensor:
    """The parameters and the temperature behind them, on the device of the logits."""
    return torch.from_numpy(np.append(parameters, temperature)).to(x.device)


def _tile(x: Tensor) -> tuple[int, int]:
    """The numbers of rows and of classes that a program computes together, a power of 2 each."""
    entries = 1 << 10
    classes = triton.next_power_of_2(x.shape[1])
    return max(1, entries // classes), classes
