"""Sums over the rows of probabilities on a GPU for metrics, in double precision, and counts over their columns.

The probabilities are read once; torch would write all of them in double precision before it adds them up, or the
numbers of their counters before it counts.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from refocal.engine.triton_maths import OPTIONS, beside_its_tensors, part_of

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
    squares = tl.zeros([ROWS], tl.float64)
    total = tl.zeros([ROWS], tl.float64)
    lowest = tl.full([ROWS], float("inf"), tl.float64)
    for start in range(0, n_classes, CHUNK):
        inside = is_row[:, None] & (start + j < n_classes)
        given = tl.load(values + row[:, None] * stride + start + j, mask=inside, other=0.0)
        p = given.to(tl.float64)
        squares += tl.sum(p * p, axis=1)
        total += tl.sum(p, axis=1)
        # The lowest in the precision that came in: comparisons in double precision take as long as all the rest.
        short = given if given.dtype == tl.float64 else given.to(tl.float32)
        lowest = tl.minimum(lowest, tl.min(tl.where(inside, short, float("inf")), axis=1).to(tl.float64))
    label = tl.load(labels + row, mask=is_row, other=0).to(tl.int64)
    is_label = is_row & (label >= 0) & (label < n_classes)
    p_label = tl.load(values + row * stride + label, mask=is_label, other=0.0).to(tl.float64)
    others = tl.maximum(squares - p_label * p_label, 0.0)
    distance = others + tl.where(is_label, (1.0 - p_label) * (1.0 - p_label), 0.0)
    tl.store(out + row, distance, mask=is_row)
    tl.store(part_of(out, 1, n_rows) + row, total, mask=is_row)
    tl.store(part_of(out, 2, n_rows) + row, lowest, mask=is_row)


@triton.jit
def _bits_of(values, row, j, stride, inside):
    """Probabilities, clipped to [0, 1], as the integers of their float32 numbers."""
    p = tl.load(values + row[:, None] * stride + j[None, :], mask=inside, other=0.0).to(tl.float32)
    return tl.minimum(tl.abs(p), 1.0).to(tl.int32, bitcast=True)


@triton.jit
def _cells_kernel(
    values, cells, stride, n_rows, n_columns, n_cells,
    LOW_BITS: tl.constexpr, ONE_ROW: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Adds one row and the last bits of its probability to the cell of its first bits."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j = tl.arange(0, COLUMNS)
    inside = (row < n_rows)[:, None] & (j < n_columns)[None, :]
    bits = _bits_of(values, row, j, stride, inside)
    low = (bits & ((1 << LOW_BITS) - 1)).to(tl.int64)
    tl.atomic_add(cells + j[None, :] * n_cells + (bits >> LOW_BITS), low + ONE_ROW, mask=inside, sem="relaxed")


@triton.jit
def _opened_kernel(
    values, opened, counts, stride, n_rows, n_columns, n_cells,
    LOW_BITS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Counts the probabilities of opened cells by their last bits."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j = tl.arange(0, COLUMNS)
    inside = (row < n_rows)[:, None] & (j < n_columns)[None, :]
    bits = _bits_of(values, row, j, stride, inside)
    number = tl.load(opened + j[None, :] * n_cells + (bits >> LOW_BITS), mask=inside, other=-1)
    low = bits & ((1 << LOW_BITS) - 1)
    one = tl.full([ROWS, COLUMNS], 1, tl.int32)
    counter = counts + (number.to(tl.int64) << LOW_BITS) + low
    tl.atomic_add(counter, one, mask=inside & (number >= 0), sem="relaxed")


@beside_its_tensors
def power_sums(values: Tensor, power: int) -> Tensor:
    """The sum of each row's entries to a power, float64."""
    sums = torch.empty(len(values), dtype=torch.float64, device=values.device)
    rows, chunk, warps = _tile(values)
    grid = (triton.cdiv(len(values), rows),)
    _power_sums_kernel[grid](
        values, sums, values.stride(0), *values.shape, POWER=power, ROWS=rows, CHUNK=chunk, num_warps=warps, **OPTIONS
    )
    return sums


@beside_its_tensors
def brier(p: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The Brier score, the sum and the lowest probability of each row, float64."""
    out = torch.empty(3, len(p), dtype=torch.float64, device=p.device)
    rows, chunk, warps = _tile(p)
    grid = (triton.cdiv(len(p), rows),)
    _brier_kernel[grid](
        p, labels.contiguous(), out, p.stride(0), *p.shape, ROWS=rows, CHUNK=chunk, num_warps=warps, **OPTIONS
    )
    distance, total, lowest = out
    return distance, total, lowest


@beside_its_tensors
def count_cells(p: Tensor, cells: Tensor, low_bits: int, one_row: int) -> None:
    """See `column_bins._count_cells`."""
    rows, columns = _column_tile(p)
    _cells_kernel[(triton.cdiv(len(p), rows),)](
        p, cells, p.stride(0), *p.shape, cells.shape[1],
        LOW_BITS=low_bits, ONE_ROW=one_row, ROWS=rows, COLUMNS=columns, **OPTIONS,
    )  # fmt: skip


@beside_its_tensors
def count_opened(p: Tensor, opened: Tensor, counts: Tensor, low_bits: int) -> None:
    """See `column_bins._count_opened`."""
    rows, columns = _column_tile(p)
    _opened_kernel[(triton.cdiv(len(p), rows),)](
        p, opened, counts, p.stride(0), *p.shape, opened.shape[1],
        LOW_BITS=low_bits, ROWS=rows, COLUMNS=columns, **OPTIONS,
    )  # fmt: skip


def _tile(values: Tensor) -> tuple[int, int, int]:
    """Rows, and classes of them, that a program reads together, and its warps: a row of 1,024 classes has one."""
    warp = 1 << 10
    chunk = min(MAX_CHUNK, triton.next_power_of_2(values.shape[1]))
    return max(1, warp // chunk), chunk, max(1, chunk // warp)


def _column_tile(p: Tensor) -> tuple[int, int]:
    """Rows and columns that a program counts."""
    columns = triton.next_power_of_2(p.shape[1])
    return max(1, MAX_CHUNK // columns), columns
