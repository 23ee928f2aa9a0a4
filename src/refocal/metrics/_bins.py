"""Rows sorted by confidence and cut into bins: the common part of all binned measures.

The functions here take vectors that are already checked: `confidence` float64 in [0, 1], `correct` of zeros and
ones (any dtype), `weight` float64 or None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from refocal._arrays import Array, Flags, Indices, Vector, namespace, on_gpu, to_numpy
from refocal._validation import check_integer, check_option
from refocal.metrics._histogram_cells import ordered_key
from refocal.metrics._inputs import Rows, unit

STRATEGIES = ("quantile", "uniform", "interpolated")
_BLOCK = 1 << 15
# From this number of rows for each number of bins on, finding the edges of bins takes less time than sorting all rows.
_MANY = 1 << 15
# Cells by the first bits of a key: 64 for every factor of two in min(c, 1 - c).
_CELL_SHIFT = 46
SHARE_ROUNDING = 1e-12


@dataclass(frozen=True)
class Ranked:
    """Rows sorted by confidence; an unweighted row weighs 1 (`weight` None)."""

    confidence: Vector
    correct: Vector
    weight: Vector | None

    @property
    def size(self) -> int:
        """Number of rows."""
        return int(self.confidence.shape[0])

    @cached_property
    def shares(self) -> Vector:
        """Share of the weight up to and including each row."""
        cumulative = np.arange(1.0, self.size + 1.0) if self.weight is None else np.cumsum(self.weight)
        return np.asarray(cumulative / cumulative[-1])


@dataclass(frozen=True)
class Bins:
    """Sums over the bins of positive weight: rows, weight, weight × confidence, weight × correct, weight²."""

    count: Indices
    weight: Vector
    confidence: Vector
    correct: Vector
    squared_weight: Vector

    @property
    def share(self) -> Vector:
        """The share of each bin in the weight."""
        return np.asarray(self.weight / self.weight.sum())

    @property
    def p(self) -> Vector:
        """Mean confidence of each bin."""
        return self.confidence / self.weight

    @property
    def rate(self) -> Vector:
        """Mean outcome of each bin."""
        return self.correct / self.weight

    @property
    def gap(self) -> Vector:
        """Weight × (confidence - correct), summed over each bin."""
        return self.confidence - self.correct

    @property
    def size(self) -> Vector:
        """The effective number of rows of each bin, (Σw)² / Σw²."""
        return np.square(self.weight) / self.squared_weight

    def each(self, change: Callable[[Any], Any]) -> Bins:
        """The bins with the same function applied to all columns."""
        columns = (self.count, self.weight, self.confidence, self.correct, self.squared_weight)
        return Bins(*map(change, columns))

    def with_weight(self) -> Bins:
        """Without the bins of weight 0."""
        kept = self.weight > 0
        return self if kept.all() else self.each(lambda column: column[kept])


def terms(confidence: Vector, correct: Any, weight: Vector) -> tuple[Vector, Vector, Vector, Vector]:
    """The values that bins sum, besides the number of rows."""
    return weight, weight * confidence, weight * correct, weight * weight


def rank(confidence: Vector, correct: Vector | Flags, weight: Vector | None = None) -> Ranked:
    """Sort by confidence; rows of equal confidence in an order that does not depend on where they came from."""
    if weight is not None:
        order = np.lexsort((weight, correct, confidence))
        return Ranked(confidence[order], correct[order].astype(np.float64), weight[order])
    # The bit patterns of floats in [0, 1] are ordered like the floats and leave the top bit free, so one sort of
    # plain integers carries the outcome along. It is several times faster than sorting indices.
    keys = np.abs(confidence).view(np.int64)
    keys <<= 1
    keys |= correct.astype(np.int64)
    keys.sort()
    outcome = (keys & 1).astype(np.float64)
    keys >>= 1
    return Ranked(keys.view(np.float64), outcome, None)


def quantile_edges(ranked: Ranked, n_bins: int) -> Indices:
    """First row of each equal-mass bin, and the number of rows.

    A row of confidence x belongs to bin floor(n_bins · P(confidence < x)), P being the share of the weight: equal
    values are never separated, and a group of them belongs to the bin of its lowest rank.
    """
    n = len(ranked.confidence)
    if ranked.weight is None:
        last = -(-np.arange(1, n_bins, dtype=np.int64) * n // n_bins) - 1
    else:
        last = np.searchsorted(ranked.shares, _targets(n_bins))
    return np.concatenate([[0], np.searchsorted(ranked.confidence, ranked.confidence[last], side="right"), [n]])


def quantile_starts(ranked: Ranked, n_bins: int) -> Indices:
    """First row of each equal-mass bin that has rows."""
    edges = quantile_edges(ranked, n_bins)
    return edges[:-1][edges[:-1] < edges[1:]]


def _targets(n_bins: int) -> Vector:
    """The shares of the weight at which bins end: weights of 0.1 must cut where weights of 1 do, though sums round."""
    targets: Vector = np.arange(1, n_bins) / n_bins - SHARE_ROUNDING
    return targets


def interpolated_starts(ranked: Ranked, n_bins: int) -> Indices:
    """As `quantile_starts`, for the widely copied `histedges_equalN`: edges interpolated between sorted values.

    Bins are [edge, next edge), the last one closed, as in `numpy.histogram`; weights do not move the edges.
    """
    n = ranked.size
    edges = np.interp(np.linspace(0, n, n_bins + 1), np.arange(n), ranked.confidence)
    starts = np.searchsorted(ranked.confidence, edges[:-1], side="left")
    return starts[np.diff(starts, append=n) > 0]


def sum_bins(ranked: Ranked, starts: Indices) -> Bins:
    """Sums of consecutive rows; bins without weight are left out."""
    count = np.diff(starts, append=len(ranked.confidence))
    if ranked.weight is None:
        weight = count.astype(np.float64)
        confidence = np.add.reduceat(ranked.confidence, starts)
        return Bins(count, weight, confidence, np.add.reduceat(ranked.correct, starts), weight)
    of_rows = terms(ranked.confidence, ranked.correct, ranked.weight)
    return Bins(count, *(np.add.reduceat(each, starts) for each in of_rows)).with_weight()


def sum_ties(ranked: Ranked) -> Bins:
    """Sums of rows of equal confidence."""
    return sum_bins(ranked, np.append(0, np.flatnonzero(np.diff(ranked.confidence)) + 1))


def isotonic_fit(confidence: Array, correct: Array, weight: Vector | None) -> Bins:
    """The pools of the isotonic regression; the share of correct ones rises strictly from pool to pool."""
    # The import is costly and few callers need it.
    from scipy.optimize import isotonic_regression

    # One point for each distinct value: equal confidences must get equal probabilities.
    points = sum_ties(rank(*_on_host(confidence, correct), weight))
    pools = isotonic_regression(points.correct / points.weight, weights=points.weight).blocks[:-1]
    return join_cells(points, pools)


def quantile_bins(confidence: Array, correct: Array, weight: Vector | None, resolutions: tuple[int, ...]) -> list[Bins]:
    """Equal-mass bins at several numbers of them, from one sort; of tensors on a GPU that sort is done there.

    >>> bins = quantile_bins(np.array([0.25, 0.25, 0.75, 0.75]), np.array([0, 1, 1, 1]), None, (1, 2))
    >>> [each.correct.tolist() for each in bins]
    [[3.0], [1.0, 2.0]]
    """
    if on_gpu(confidence):
        return _quantile_bins_there(confidence, correct, weight, resolutions)
    if len(confidence) >= _MANY * (1 if weight is not None else len(resolutions)):
        ranked, cells = _in_cells(confidence, correct, weight, resolutions)
        return [join_cells(cells, quantile_starts(ranked, n_bins)) for n_bins in resolutions]
    ranked = rank(confidence, correct, weight)
    return [sum_bins(ranked, quantile_starts(ranked, n_bins)) for n_bins in resolutions]


def _in_cells(
    confidence: Vector, correct: Vector | Flags, weight: Vector | None, resolutions: tuple[int, ...]
) -> tuple[Ranked, Bins]:
    """Rows by rising confidence, as if one row were what lies between the edges of bins, cell by cell.

    Only the rows in the cells of edges are sorted: what bins of these resolutions need, at a fifth of the time.
    """
    cell = ordered_key(np.abs(confidence)) >> _CELL_SHIFT
    first = int(cell.min())
    cell -= first  # the table of cells begins with the first one that is used
    count = np.bincount(cell)
    if weight is None:
        hits = np.bincount(cell[np.flatnonzero(correct)], minlength=len(count))
        sums = [count, np.bincount(cell, confidence), hits, count]
    else:
        sums = [np.bincount(cell, each) for each in terms(confidence, correct, weight)]
    shares = np.cumsum(sums[0]) / np.sum(sums[0])
    is_held = np.zeros(len(count), dtype=np.bool_)
    for n_bins in resolutions:
        is_held[np.searchsorted(shares, _targets(n_bins))] = True
    near = np.flatnonzero(is_held[cell])
    ranked = rank(confidence[near], correct[near], None if weight is None else weight[near])
    rows = terms(ranked.confidence, ranked.correct, np.ones(ranked.size) if ranked.weight is None else ranked.weight)
    closed = np.flatnonzero((count > 0) & ~is_held)
    keys = ordered_key(ranked.confidence)
    at = np.searchsorted(closed, (keys >> _CELL_SHIFT) - first)
    columns = (
        np.insert(whole[closed].astype(np.float64), at, single) for whole, single in zip(sums, rows, strict=True)
    )
    cells = Bins(np.insert(count[closed], at, 1), *columns)
    # Keys as floats stand for the confidences: both have the same order.
    lowest = np.insert((first + closed) << _CELL_SHIFT, at, keys).view(np.float64)
    return Ranked(lowest, cells.correct, cells.weight), cells


def join_cells(cells: Bins, starts: Indices) -> Bins:
    """Cells put together into bins; those without weight are left out."""
    return cells.each(lambda column: np.add.reduceat(column, starts)).with_weight()


def _quantile_bins_there(
    confidence: Array, correct: Array, weight: Vector | None, resolutions: tuple[int, ...]
) -> list[Bins]:
    """Bins by cumulative sums on the GPU: only the sums at the edges of the bins come to the host."""
    xp, device = namespace(confidence), confidence.device
    ranked, order = confidence.sort()
    c, y = ranked.double().clip(0.0, 1.0), correct[order].double()
    terms = [c, y]
    if weight is not None:
        w = xp.asarray(weight, dtype=xp.float64, device=device)[order]
        terms = [w * c, w * y, w, w * w]
    up_to = xp.zeros((len(terms), 1 + len(c)), dtype=xp.float64, device=device)
    for term, sums in zip(terms, up_to, strict=True):
        sums[1:] = term.cumsum(0)
    n, edges = len(c), []
    for n_bins in resolutions:
        k = xp.arange(1, n_bins, device=device)
        # As in quantile_starts.
        last = -(-k * n // n_bins) - 1
        if weight is not None:
            last = xp.searchsorted(up_to[2, 1:] / up_to[2, -1], xp.asarray(_targets(n_bins), device=device))
        inner = xp.searchsorted(c, c[last], side="right")
        edges.append(xp.concat([xp.zeros_like(inner[:1]), inner, xp.full_like(inner[:1], n)]))
    at_edges = to_numpy(xp.concat([xp.concat(edges)[None, :].double(), up_to[:, xp.concat(edges)]]))
    parts = np.split(at_edges, np.cumsum([len(each) for each in edges])[:-1], axis=1)
    found = []
    for count, confidence_sum, correct_sum, *weights in (np.diff(part, axis=1) for part in parts):
        weight_sum, squares = weights or (count, count)  # without weights, each row's is 1
        found.append(Bins(count.astype(np.int64), weight_sum, confidence_sum, correct_sum, squares).with_weight())
    return found


def check_binning(n_bins: Any, strategy: Any, function: str) -> None:
    """Check the options of `make_bins`."""
    check_integer(n_bins, "n_bins", function)
    check_option(strategy, STRATEGIES, "strategy", function)


def uniform_index(confidence: Vector, n_bins: int) -> Indices:
    """The bin [k/n_bins, (k+1)/n_bins) of each confidence; the last bin is closed."""
    edges = np.arange(n_bins) / n_bins
    index = (confidence * n_bins).astype(np.int64)
    # c · n_bins is rounded: 0.29 · 100 is below 29, yet 0.29 is the edge 29/100. 1 belongs to the last bin.
    index += confidence >= np.append(edges[1:], [np.inf, np.inf])[index]
    index -= confidence < np.append(edges, np.inf)[index]
    return index


def uniform_bins(confidence: Vector, correct: Vector | Flags, weight: Vector | None, n_bins: int) -> Bins:
    """Bins of equal width."""
    sums = np.zeros((3 if weight is None else 5, n_bins))
    # Blocks that stay in the cache: the temporaries cost more than the counting otherwise.
    for start in range(0, confidence.shape[0], _BLOCK):
        block = slice(start, start + _BLOCK)
        c, y = confidence[block], correct[block]
        index = uniform_index(c, n_bins)
        for row, values in enumerate((None, c, y) if weight is None else (None, *terms(c, y, weight[block]))):
            sums[row] += np.bincount(index, values, n_bins)
    count = sums[0].astype(np.int64)
    return Bins(count, *((sums[0], sums[1], sums[2], sums[0]) if weight is None else sums[1:])).with_weight()


def _on_host(confidence: Array, correct: Array) -> tuple[Vector, Vector | Flags]:
    return (unit(confidence), to_numpy(correct)) if on_gpu(confidence) else (confidence, correct)


def make_bins(confidence: Array, correct: Array, weight: Vector | None, *, n_bins: int, strategy: str) -> Bins:
    """Bins by one of the three strategies; those of tensors on a GPU are made there where they have equal mass."""
    if strategy == "quantile":
        return quantile_bins(confidence, correct, weight, (n_bins,))[0]
    confidence, correct = _on_host(confidence, correct)
    if strategy == "uniform":
        return uniform_bins(confidence, correct, weight, n_bins)
    ranked = rank(confidence, correct, weight)
    return sum_bins(ranked, interpolated_starts(ranked, n_bins))


def bins_of(rows: Rows, *, n_bins: int, strategy: str = "quantile", kind: str = "confidence") -> Bins:
    """The rows' confidence in bins; for "top_label" the bins of every predicted class, one after the other."""
    if kind == "confidence":
        return make_bins(*rows.confidence_there(), rows.weight, n_bins=n_bins, strategy=strategy)
    confidence, correct, predicted = rows.top
    parts = []
    for label in np.unique(predicted):
        of_label = predicted == label
        weight = None if rows.weight is None else rows.weight[of_label]
        if weight is None or weight.sum() > 0:
            parts.append(make_bins(confidence[of_label], correct[of_label], weight, n_bins=n_bins, strategy=strategy))
    return Bins(*(np.concatenate(column) for column in zip(*(astuple(part) for part in parts), strict=True)))


def norm_of_gaps(bins: Bins, norm: str) -> float:
    """l1: Σ w|gap|, l2: √(Σ w gap²), max: the largest |gap|; w is the bin's share of the weight."""
    gap = np.abs(bins.gap)
    if norm == "max":
        return float((gap / bins.weight).max())
    total = bins.weight.sum()
    return float(gap.sum() / total if norm == "l1" else np.sqrt((gap * gap / bins.weight).sum() / total))
