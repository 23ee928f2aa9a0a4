"""Rows sorted by confidence and cut into bins: the common part of all binned measures.

The functions here take vectors that are already checked: `confidence` float64 in [0, 1], `correct` of zeros and
ones (any dtype), `weight` float64 or None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, Flags, Indices, Vector, namespace, on_gpu, to_numpy
from refocal._validation import check_integer, check_option
from refocal.metrics._histogram_cells import ordered_key
from refocal.rows import Predictions
from refocal.rows.predictions import unit

STRATEGIES = ("quantile", "uniform", "interpolated")
NORMS = ("l1", "l2", "max")
_BLOCK = 1 << 15
# From this number of rows for each number of bins on, finding the edges of bins takes less time than sorting all rows.
_MANY = 1 << 15
# Cells by the first bits of a key: 64 for every factor of two in min(c, 1 - c).
_CELL_SHIFT = 46
SHARE_ROUNDING = 1e-12
# By how much a probability may lie below an edge or a threshold that it counts as at: see `reached_from`.
EDGE_TOLERANCE = 1e-7
# The groups of similar confidence over which the weights of each outcome are averaged.
_OUTCOME_GROUPS = 15


@dataclass(frozen=True)
class Bins:
    """Sums over the bins of positive weight.

    Rows, weight, weight × confidence, weight × correct, weight², weight² × correct.
    """

    count: Indices
    weight: Vector
    confidence: Vector
    correct: Vector
    squared_weight: Vector
    squared_correct: Vector

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
        """The effective number of rows of each bin, (Σw)² / Σw², for weights that do not depend on the outcome."""
        return np.square(self.weight) / self.squared_weight

    @cached_property
    def outcome_weights(self) -> tuple[Vector, Vector]:
        """The weight of a row of each outcome, 1 and 0, among rows of similar confidence."""
        order, total = np.argsort(self.p, kind="stable"), self.weight.sum()
        below = np.empty_like(self.p)
        below[order] = np.cumsum(self.weight[order]) - self.weight[order] / 2.0
        group = np.minimum((below / total * _OUTCOME_GROUPS).astype(np.int64), _OUTCOME_GROUPS - 1)
        columns = self.weight, self.correct, self.squared_weight, self.squared_correct
        sums: list[Any] = [np.bincount(group, column, _OUTCOME_GROUPS) for column in columns]
        of_one, of_zero = outcome_weights(*sums)
        return of_one[group], of_zero[group]

    def size_at(self, rate: Vector) -> Vector:
        """The effective number of rows of each bin for true rates (…, bins); weights may depend on the outcome."""
        return np.asarray(effective_size(rate, self.weight, *self.outcome_weights))

    def by_chance(self, drawn: Vector) -> Vector:
        """Rates (draws, bins) drawn from the confidences with fixed weights, spread as far as weights by outcome do."""
        p = np.clip(self.p, 0.0, 1.0)
        return p + np.sqrt(self.size / self.size_at(p)) * (drawn - p)

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """All columns in their order."""
        return self.count, self.weight, self.confidence, self.correct, self.squared_weight, self.squared_correct

    def each(self, change: Callable[[Any], Any]) -> Bins:
        """The bins with the same function applied to all columns."""
        return Bins(*map(change, self.columns))

    def with_weight(self) -> Bins:
        """Without the bins of weight 0."""
        kept = self.weight > 0
        return self if kept.all() else self.each(lambda column: column[kept])


def outcome_weights(weight: Vector, correct: Vector, squared: Vector, squared_correct: Vector) -> tuple[Vector, Vector]:
    """Σw² / Σw over the rows of each outcome, 1 and 0, from the sums of groups of rows (…, groups).

    Each group has one row more, of the mean over all groups: what a group with few rows of an outcome, or none, says
    about their weights is little.
    """
    found = []
    for squares, weights in ((squared_correct, correct), (squared - squared_correct, weight - correct)):
        among, total = (x.sum(axis=-1, keepdims=True) for x in (weights, weight))
        of_all = squared.sum(axis=-1, keepdims=True) / total  # unless the outcome occurs
        np.divide(squares.sum(axis=-1, keepdims=True), among, out=of_all, where=among > SHARE_ROUNDING * total)
        found.append((squares + of_all**2) / (weights + of_all))
    return found[0], found[1]


def effective_size(rate: Any, weight: Any, of_one: Any, of_zero: Any) -> Any:
    """The number of rows without weights whose share of ones varies as much as that of rows of these sums of weights.

    The variance of the share is Σw²(y - rate)² / (Σw)², where a row weighs `of_one` if y = 1 and `of_zero` otherwise:
    rate (1 - rate)² of_one + (1 - rate) rate² of_zero over Σw.
    """
    return weight / ((1.0 - rate) * of_one + rate * of_zero)


def terms(confidence: Vector, correct: Any, weight: Vector) -> tuple[Vector, ...]:
    """The values that bins sum, besides the number of rows."""
    hits, squares = weight * correct, weight * weight
    return weight, weight * confidence, hits, squares, weight * hits


def row_cells(confidence: Vector, correct: Vector | Flags, weight: Vector | None = None) -> Bins:
    """Every row as a cell of its own; an unweighted row weighs 1."""
    # Views of one number take no memory, and need not be added up (`is_one_number`).
    count, ones = np.broadcast_to(np.int64(1), len(confidence)), np.broadcast_to(1.0, len(confidence))
    if weight is None:
        hits = correct.astype(np.float64, copy=False)
        return Bins(count, ones, confidence, hits, ones, hits)
    return Bins(count, *terms(confidence, correct, weight))


@dataclass(frozen=True)
class Ranked:
    """Rows or cells of them by rising confidence; `confidence` is the lowest of each cell."""

    confidence: Vector
    cells: Bins

    @cached_property
    def shares(self) -> Vector:
        """Share of the weight up to and including each cell."""
        weight = self.cells.weight
        cumulative = np.arange(1.0, 1.0 + len(weight)) if is_one_number(weight) else np.cumsum(weight)
        return np.asarray(cumulative / cumulative[-1])

    def edges(self, n_bins: int) -> Indices:
        """First cell of each equal-mass bin, and the number of cells.

        A cell of confidence x belongs to bin floor(n_bins · P(confidence < x)), P being the share of the weight: equal
        values are never separated, and a group of them belongs to the bin of its lowest rank.
        """
        last = self.confidence[np.searchsorted(self.shares, _targets(n_bins))]
        return np.concatenate([[0], np.searchsorted(self.confidence, last, side="right"), [len(self.confidence)]])

    def starts(self, n_bins: int) -> Indices:
        """First cell of each equal-mass bin that has cells."""
        edges = self.edges(n_bins)
        return edges[:-1][edges[:-1] < edges[1:]]

    def ties(self) -> Bins:
        """Sums of rows of equal confidence."""
        return join_cells(self.cells, np.append(0, np.flatnonzero(np.diff(self.confidence)) + 1))


def rank(confidence: Vector, correct: Vector | Flags, weight: Vector | None = None) -> Ranked:
    """Rows by rising confidence; those of equal confidence in an order that does not depend on where they came from."""
    if weight is not None:
        order = np.lexsort((weight, correct, confidence))
        return Ranked(confidence[order], row_cells(confidence[order], correct[order], weight[order]))
    # The bit patterns of floats in [0, 1] are ordered like the floats and leave the top bit free, so one sort of
    # plain integers carries the outcome along. It is several times faster than sorting indices.
    keys = np.abs(confidence).view(np.int64)
    keys <<= 1
    keys |= correct.astype(np.int64)
    keys.sort()
    correct = (keys & 1).astype(np.float64)
    keys >>= 1
    return Ranked(keys.view(np.float64), row_cells(keys.view(np.float64), correct))


def join_cells(cells: Bins, starts: Indices) -> Bins:
    """Consecutive cells put together into bins; those without weight are left out."""
    if is_one_number(cells.weight):  # rows without weights: each bin has some
        count = np.diff(starts, append=len(cells.count))
        weight = count.astype(np.float64)
        confidence, correct = (np.add.reduceat(column, starts) for column in (cells.confidence, cells.correct))
        return Bins(count, weight, confidence, correct, weight, correct)
    return cells.each(lambda column: np.add.reduceat(column, starts)).with_weight()


def is_one_number(column: NDArray[Any]) -> bool:
    """Whether a column of `row_cells` holds the same number for every row, in the memory of one."""
    return column.strides == (0,)


def _targets(n_bins: int) -> Vector:
    """The shares of the weight at which bins end: weights of 0.1 must cut where weights of 1 do, though sums round."""
    targets: Vector = np.arange(1, n_bins) / n_bins - SHARE_ROUNDING
    return targets


def interpolated_starts(confidence: Vector, n_bins: int) -> Indices:
    """As `Ranked.starts`, for the widely copied `histedges_equalN`: edges interpolated between sorted values.

    Bins are [edge, next edge), the last one closed, as in `numpy.histogram`; weights do not move the edges.
    """
    n = len(confidence)
    edges = np.interp(np.linspace(0, n, n_bins + 1), np.arange(n), confidence)
    starts = np.searchsorted(confidence, edges[:-1], side="left")
    return starts[np.diff(starts, append=n) > 0]


def isotonic_fit(confidence: Array, correct: Array, weight: Vector | None) -> Bins:
    """The pools of the isotonic regression; the share of correct ones rises strictly from pool to pool."""
    # The import is costly and few callers need it.
    from scipy.optimize import isotonic_regression

    # One point for each distinct value: equal confidences must get equal probabilities.
    points = rank(unit(confidence), to_numpy(correct), weight).ties()
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
    is_many = len(confidence) >= _MANY * (1 if weight is not None else len(resolutions))
    ranked = _in_cells(confidence, correct, weight, resolutions) if is_many else rank(confidence, correct, weight)
    return [join_cells(ranked.cells, ranked.starts(n_bins)) for n_bins in resolutions]


def _in_cells(
    confidence: Vector, correct: Vector | Flags, weight: Vector | None, resolutions: tuple[int, ...]
) -> Ranked:
    """Rows by rising confidence, as if one row were what lies between the edges of bins, cell by cell.

    Only the rows in the cells of edges are sorted: what bins of these resolutions need, at a fifth of the time.
    """
    cell = ordered_key(np.abs(confidence)) >> _CELL_SHIFT
    first = int(cell.min())
    cell -= first  # the table of cells begins with the first one that is used
    count = np.bincount(cell)
    if weight is None:
        hits = np.bincount(cell[np.flatnonzero(correct)], minlength=len(count))
        sums = [count, np.bincount(cell, confidence), hits, count, hits]
    else:
        sums = [np.bincount(cell, each) for each in terms(confidence, correct, weight)]
    shares = np.cumsum(sums[0]) / np.sum(sums[0])
    is_held = np.zeros(len(count), dtype=np.bool_)
    for n_bins in resolutions:
        is_held[np.searchsorted(shares, _targets(n_bins))] = True
    near = np.flatnonzero(is_held[cell])
    ranked = rank(confidence[near], correct[near], None if weight is None else weight[near])
    closed = np.flatnonzero((count > 0) & ~is_held)
    keys = ordered_key(ranked.confidence)
    at = np.searchsorted(closed, (keys >> _CELL_SHIFT) - first)
    whole = Bins(count[closed], *(each[closed].astype(np.float64) for each in sums))
    columns = zip(whole.columns, ranked.cells.columns, strict=True)
    # Keys as floats stand for the confidences: both have the same order.
    lowest = np.insert((first + closed) << _CELL_SHIFT, at, keys).view(np.float64)
    return Ranked(lowest, Bins(*(np.insert(joined, at, single) for joined, single in columns)))


def _quantile_bins_there(
    confidence: Array, correct: Array, weight: Vector | None, resolutions: tuple[int, ...]
) -> list[Bins]:
    """Bins by cumulative sums on the GPU: only the sums at the edges of the bins come to the host."""
    xp, device = namespace(confidence), confidence.device
    ranked, order = confidence.sort()
    c, y = ranked.double().clip(0.0, 1.0), correct[order].double()
    w = xp.ones_like(c) if weight is None else xp.asarray(weight, dtype=xp.float64, device=device)[order]
    of_rows = (xp.ones_like(c), *terms(c, y, w))
    up_to = xp.zeros((len(of_rows), 1 + len(c)), dtype=xp.float64, device=device)
    for term, sums in zip(of_rows, up_to, strict=True):
        sums[1:] = term.cumsum(0)
    edges = []
    for n_bins in resolutions:
        # As in Ranked.edges.
        last = xp.searchsorted(up_to[1, 1:] / up_to[1, -1], xp.asarray(_targets(n_bins), device=device))
        inner = xp.searchsorted(c, c[last], side="right")
        edges.append(xp.concat([xp.zeros_like(inner[:1]), inner, xp.full_like(inner[:1], len(c))]))
    parts = np.split(to_numpy(up_to[:, xp.concat(edges)]), np.cumsum([len(each) for each in edges])[:-1], axis=1)
    sums_of_bins = (np.diff(part, axis=1) for part in parts)
    return [Bins(count.astype(np.int64), *sums).with_weight() for count, *sums in sums_of_bins]


def check_binning(n_bins: Any, strategy: Any, function: str, norm: Any = "l1", norms: tuple[str, ...] = NORMS) -> None:
    """Check the options of `make_bins`, and of `norm_of_gaps`."""
    check_integer(n_bins, "n_bins", function)
    check_option(strategy, STRATEGIES, "strategy", function)
    check_option(norm, norms, "norm", function)


def reached_from(edges: Vector) -> Vector:
    """The lowest number that counts as at each edge, in the precision of float32 too.

    0.7 in float32 is 0.69999999, and 1 - 0.99 is 0.00999999: a probability given as a decimal is at the edge of the
    same decimal whatever its precision. Float32 is off by at most 3e-8 below 1; an edge next to 0 is lowered by less.
    """
    lowest: Vector = edges - np.minimum(EDGE_TOLERANCE, 1e-3 * edges)
    return lowest


def uniform_index(confidence: Vector, n_bins: int) -> Indices:
    """The bin [k/n_bins, (k+1)/n_bins) of each confidence; the last bin is closed."""
    edges = reached_from(np.arange(n_bins) / n_bins)
    index = (confidence * n_bins).astype(np.int64)
    # c · n_bins is rounded: 0.29 · 100 is below 29, yet 0.29 is the edge 29/100. 1 belongs to the last bin.
    index += confidence >= np.append(edges[1:], [np.inf, np.inf])[index]
    index -= confidence < np.append(edges, np.inf)[index]
    return index


def uniform_bins(confidence: Vector, correct: Vector | Flags, weight: Vector | None, n_bins: int) -> Bins:
    """Bins of equal width."""
    sums = np.zeros((6, n_bins))
    # Blocks that stay in the cache: the temporaries cost more than the counting otherwise.
    for start in range(0, confidence.shape[0], _BLOCK):
        block = slice(start, start + _BLOCK)
        rows = row_cells(confidence[block], correct[block], None if weight is None else weight[block])
        index = uniform_index(confidence[block], n_bins)
        n_rows = np.bincount(index, minlength=n_bins)
        sums += [
            column[0] * n_rows if is_one_number(column) else np.bincount(index, column, n_bins)
            for column in rows.columns
        ]
    return Bins(sums[0].astype(np.int64), *sums[1:]).with_weight()


def make_bins(confidence: Array, correct: Array, weight: Vector | None, *, n_bins: int, strategy: str) -> Bins:
    """Bins by one of the three strategies; those of tensors on a GPU are made there where they have equal mass."""
    if strategy == "quantile":
        return quantile_bins(confidence, correct, weight, (n_bins,))[0]
    confidence, correct = unit(confidence), to_numpy(correct)
    if strategy == "uniform":
        return uniform_bins(confidence, correct, weight, n_bins)
    ranked = rank(confidence, correct, weight)
    return join_cells(ranked.cells, interpolated_starts(ranked.confidence, n_bins))


def bins_of(rows: Predictions, *, n_bins: int, strategy: str = "quantile", kind: str = "confidence") -> Bins:
    """The rows' confidence in bins; for "top_label" the bins of every predicted class, one after the other."""
    if kind == "confidence":
        return make_bins(*rows.confidence_on_device(), rows.weight, n_bins=n_bins, strategy=strategy)
    confidence, correct, predicted = rows.top
    parts = []
    for label in np.unique(predicted):
        of_label = predicted == label
        weight = None if rows.weight is None else rows.weight[of_label]
        if weight is None or weight.sum() > 0:
            parts.append(make_bins(confidence[of_label], correct[of_label], weight, n_bins=n_bins, strategy=strategy))
    return Bins(*map(np.concatenate, zip(*(part.columns for part in parts), strict=True)))


def norm_of_gaps(bins: Bins, norm: str) -> float:
    """l1: Σ w|gap|, l2: √(Σ w gap²), max: the largest |gap|; w is the bin's share of the weight."""
    gap = np.abs(bins.gap)
    if norm == "max":
        return float((gap / bins.weight).max())
    total = bins.weight.sum()
    return float(gap.sum() / total if norm == "l1" else np.sqrt((gap * gap / bins.weight).sum() / total))
