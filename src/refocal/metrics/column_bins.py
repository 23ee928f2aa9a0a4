"""Equal-mass bins of every class at once, for probabilities on a GPU: counted, not sorted.

A sort of each class takes a thousand sorts of a million rows for a thousand classes. The edges of equal-mass bins are
order statistics, and these can be found by counting. A float32 number from 0 to 1 is ordered like its 30 bits:

1. Every probability is counted in the cell of its first 16 bits, together with the sum of its last 14 bits.
2. A cell that holds the edge of a bin is opened: its probabilities are counted by their last 14 bits.

Within a cell p = first + unit · (last 14 bits), so that integer sums give sums of probabilities without rounding, and
the result does not depend on the order in which threads add.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refocal._arrays import Array, Vector, namespace, on_gpu, row_blocks, to_numpy
from refocal.metrics.bins import bin_ends
from refocal.metrics.inputs import can_use_kernels
from refocal.rows import Predictions

LOW_BITS = 14
"""Bits of a probability within its cell. With 14, the cells and the opened cells take about the same memory."""

LOW_VALUES = 1 << LOW_BITS

BITS_OF_ONE = 0x3F800000
"""The float32 number 1 as an integer."""

N_CELLS = (BITS_OF_ONE >> LOW_BITS) + 1

ONE_ROW = 1 << 39
"""What a row adds to its cell beside its last 14 bits; these add up to less than 2³⁹ for 2²⁴ rows."""

MOST_ROWS = (1 << 24) - 1
"""Rows that an int64 number can count so, all in one cell."""

COUNTERS = 1 << 24
"""Counters of opened cells, and the most classes at a time follow from it: 64 for 15 bins."""

ENTRIES = 1 << 23
"""Probabilities that are counted together by torch."""


@dataclass(frozen=True)
class ColumnBins:
    """Sums over the rows of each bin of each class, (classes, bins); bins may be empty."""

    count: Vector
    confidence: Vector
    correct: Vector


@dataclass(frozen=True)
class _Edges:
    """The edges between the bins of some classes, (classes, bins - 1): the highest probability below each.

    `bits` are those of that probability, `count` and `sums` the number and the sum of the probabilities up to it.
    `total` is the sum of all probabilities of each class, (classes,).
    """

    bits: Array
    count: Array
    sums: Array
    total: Array


@dataclass(frozen=True)
class _CellScale:
    """The lowest probability of each cell, and the distance of two float32 numbers within it, float64 (cells,)."""

    lowest: Array
    unit: Array

    @classmethod
    def on_device_of(cls, p: Array) -> _CellScale:
        xp = namespace(p)
        lowest = (np.arange(N_CELLS, dtype=np.int32) << LOW_BITS).view(np.float32)
        return cls(
            lowest=xp.asarray(lowest, dtype=xp.float64, device=p.device),
            unit=xp.asarray(np.spacing(lowest), dtype=xp.float64, device=p.device),
        )


def can_count(rows: Predictions, n_bins: int, strategy: str) -> bool:
    """Whether `column_bins` applies: rows without weights on a GPU, in float32 or a shorter type."""
    if rows.binary or rows.weight is not None or not on_gpu(rows.values):
        return False
    most_bins = 1_024  # one class at a time then fills the counters of opened cells
    is_short = rows.values.element_size() <= 4
    return is_short and strategy == "quantile" and len(rows.labels) <= MOST_ROWS and n_bins <= most_bins


def column_bins(rows: Predictions, n_bins: int) -> ColumnBins:
    """Equal-mass bins of the probability of each class, as `quantile_bins` makes them of one."""
    xp = namespace(rows.values)
    n_rows, n_classes = rows.values.shape
    # Without weights the edges have the same ranks in all classes: see Ranked.edges.
    ranks = np.searchsorted(np.arange(1.0, 1.0 + n_rows) / n_rows, bin_ends(n_bins))
    ranks_on_device = xp.asarray(ranks, device=rows.values.device)
    n_columns = max(1, min(64, COUNTERS // (LOW_VALUES * max(1, n_bins - 1))))
    values = rows.values.detach()
    scale = _CellScale.on_device_of(values)
    edges = []
    for first in range(0, n_classes, n_columns):
        edges.append(_edges(values[:, first : first + n_columns], ranks_on_device, scale))
    bits = xp.concat([of_columns.bits for of_columns in edges])
    count = to_numpy(xp.concat([of_columns.count for of_columns in edges]))
    sums = to_numpy(xp.concat([of_columns.sums for of_columns in edges]))
    total = to_numpy(xp.concat([of_columns.total for of_columns in edges]))

    labels = rows.labels_on_device
    label_bits = _bits(values.gather(1, labels[:, None])[:, 0])
    label_bin = xp.zeros_like(labels)
    for edge in range(n_bins - 1):
        label_bin += label_bits > bits[:, edge][labels]
    correct = xp.bincount(labels * n_bins + label_bin, minlength=n_classes * n_bins)
    return ColumnBins(
        count=np.diff(count, prepend=0, append=n_rows).astype(np.float64),
        confidence=np.diff(sums, prepend=0.0, append=total[:, None]),
        correct=to_numpy(correct).reshape(n_classes, n_bins).astype(np.float64),
    )


def _bits(p: Array) -> Array:
    """Probabilities, clipped to [0, 1], as the integers of their float32 numbers, which have the same order."""
    # The sign of -0 is taken away: its bits would be negative.
    return p.float().abs().clamp_(max=1.0).view(namespace(p).int32)


def _edges(p: Array, ranks: Array, scale: _CellScale) -> _Edges:
    """The edges of bins at these ranks, the same in all columns."""
    xp = namespace(p)
    device = p.device
    n_columns = p.shape[1]
    n_edges = len(ranks)

    # 1. All probabilities in cells.
    cells = xp.zeros((n_columns, N_CELLS), dtype=xp.int64, device=device)
    _count_cells(p, cells)
    count = cells // ONE_ROW
    low_sum = cells % ONE_ROW
    count_up_to = count.cumsum(1)
    sum_up_to = (count * scale.lowest + low_sum * scale.unit).cumsum(1)

    # 2. The probabilities in the cells of edges, by their last bits.
    wanted = (ranks + 1).expand(n_columns, n_edges).contiguous()
    edge_cell = xp.searchsorted(count_up_to, wanted)
    numbers = xp.arange(n_columns * n_edges, dtype=xp.int32, device=device).reshape(n_columns, n_edges)
    opened = xp.full((n_columns, N_CELLS), -1, dtype=xp.int32, device=device)
    opened.scatter_(1, edge_cell, numbers)  # edges in one cell share the counters of one of them
    low_count = xp.zeros((n_columns * n_edges, LOW_VALUES), dtype=xp.int32, device=device)
    _count_opened(p, opened, low_count)
    low_up_to = low_count.cumsum(1, dtype=xp.int32)
    low_sum_up_to = (low_count * xp.arange(LOW_VALUES, device=device)).cumsum(1)

    number = opened.gather(1, edge_cell).reshape(-1)
    count_below = (count_up_to - count).gather(1, edge_cell)
    wanted_within = (wanted - count_below).int().reshape(-1, 1)
    edge_low = xp.searchsorted(low_up_to[number], wanted_within)[:, 0]
    count_within = low_up_to[number, edge_low].reshape(n_columns, n_edges)
    low_within = low_sum_up_to[number, edge_low].reshape(n_columns, n_edges)
    # The sum up to the cell before that of an edge; 0 before the first one.
    sum_below = xp.where(edge_cell > 0, sum_up_to.gather(1, (edge_cell - 1).clamp_(min=0)), 0.0)
    return _Edges(
        bits=((edge_cell << LOW_BITS) + edge_low.reshape(n_columns, n_edges)).int(),
        count=count_below + count_within,
        sums=sum_below + count_within * scale.lowest[edge_cell] + low_within * scale.unit[edge_cell],
        total=sum_up_to[:, -1],
    )


def _count_cells(p: Array, cells: Array) -> None:
    """Add `ONE_ROW` and its last bits to the cell (columns, cells) of each probability (rows, columns)."""
    if can_use_kernels(p):
        from refocal.engine import triton_rows

        triton_rows.count_cells(p, cells, LOW_BITS, ONE_ROW)
        return
    xp = namespace(p)
    first_cell = N_CELLS * xp.arange(p.shape[1], device=p.device)
    # A tensor of one entry, unlike a number, makes the sum int64 at once.
    one_row = xp.asarray([ONE_ROW], device=p.device)
    for rows in row_blocks(len(p), p.shape[1], ENTRIES):
        bits = _bits(p[rows])
        cell = (bits >> LOW_BITS) + first_cell
        row_and_low = (bits & (LOW_VALUES - 1)) + one_row
        cells.view(-1).scatter_add_(0, cell.reshape(-1), row_and_low.reshape(-1))


def _count_opened(p: Array, opened: Array, low_count: Array) -> None:
    """Count the last bits of the probabilities whose cell has a number in `opened`, in that row of `low_count`."""
    if can_use_kernels(p):
        from refocal.engine import triton_rows

        triton_rows.count_opened(p, opened, low_count, LOW_BITS)
        return
    xp = namespace(p)
    first_cell = N_CELLS * xp.arange(p.shape[1], device=p.device)
    for rows in row_blocks(len(p), p.shape[1], ENTRIES):
        bits = _bits(p[rows])
        number = opened.view(-1)[(bits >> LOW_BITS) + first_cell].reshape(-1)
        in_open = (number >= 0).nonzero()[:, 0]
        low = bits.reshape(-1)[in_open] & (LOW_VALUES - 1)
        counter = number[in_open].long() * LOW_VALUES + low
        low_count.view(-1).scatter_add_(0, counter, xp.ones_like(low))
