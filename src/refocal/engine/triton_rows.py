"""Sums over the rows of probabilities on a GPU for metrics, in double precision; the probabilities are read once.

torch would write all probabilities in double precision before it adds them up.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from refocal.engine.triton_maths import OPTIONS, beside_its_tensors

MAX_CHUNK = 1 << 11
"""Probabilities that a program reads together: of one long row, or of several short ones."""


@triton.jit
def _power_sums_kernel(
    values, sums, stride, n_rows, n_classes, POWER: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr
):
    """Σ_k p_k^POWER of each row."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j = tl.arange(0, CHUNK)[None, :]
    total = tl.zeros([ROWS], tl.float64)
    for start in range(0, n_classes, CHUNK):
        inside = (row < n_rows)[:, None] & (start + j < n_classes)
        p = tl.load(values + row[:, None] * stride + start + j, mask=inside, other=0.0).to(tl.float64)
        term = p
        for _ in tl.static_range(POWER - 1):
            term = term * p
        total += tl.sum(term, axis=1)
    tl.store(sums + row, total, mask=row < n_rows)


@triton.jit
def _brier_kernel(values, labels, out, stride, n_rows, n_classes, ROWS: tl.constexpr, CHUNK: tl.constexpr):
    """Σ_k (p_k - [label = k])², Σ_k p_k and the lowest p_k of each row; a label that is no column counts as none."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_row = row < n_rows
    j = tl.arange(0, CHUNK)[None, :]
    label = tl.load(labels + row, mask=is_row, other=0).to(tl.int64)
    distance = tl.zeros([ROWS], tl.float64)
    total = tl.zeros([ROWS], tl.float64)
    lowest = tl.full([ROWS], float("inf"), tl.float64)
    for start in range(0, n_classes, CHUNK):
        inside = is_row[:, None] & (start + j < n_classes)
        p = tl.load(values + row[:, None] * stride + start + j, mask=inside, other=0.0).to(tl.float64)
        gap = tl.where(start + j == label[:, None], 1.0 - p, p)
        distance += tl.sum(gap * gap, axis=1)
        total += tl.sum(p, axis=1)
        lowest = tl.minimum(lowest, tl.min(tl.where(inside, p, float("inf")), axis=1))
    tl.store(out + row, distance, mask=is_row)
    tl.store(out + n_rows + row, total, mask=is_row)
    tl.store(out + 2 * n_rows + row, lowest, mask=is_row)


@beside_its_tensors
def power_sums(values: Tensor, power: int) -> Tensor:
    """The sum of each row's entries to a power, float64."""
    sums = torch.empty(len(values), dtype=torch.float64, device=values.device)
    rows, chunk = _tile(values)
    grid = (triton.cdiv(len(values), rows),)
    _power_sums_kernel[grid](
        values, sums, values.stride(0), *values.shape, POWER=power, ROWS=rows, CHUNK=chunk, **OPTIONS
    )
    return sums


@beside_its_tensors
def brier(p: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The Brier score, the sum and the lowest probability of each row, float64."""
    out = torch.empty(3, len(p), dtype=torch.float64, device=p.device)
    rows, chunk = _tile(p)
    grid = (triton.cdiv(len(p), rows),)
    _brier_kernel[grid](p, labels.contiguous(), out, p.stride(0), *p.shape, ROWS=rows, CHUNK=chunk, **OPTIONS)
    distance, total, lowest = out
    return distance, total, lowest


def _tile(values: Tensor) -> tuple[int, int]:
    """Rows, and classes of them, that a program reads together."""
    chunk = min(MAX_CHUNK, triton.next_power_of_2(values.shape[1]))
    return MAX_CHUNK // chunk, chunk
