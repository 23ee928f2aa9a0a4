"""Rows sorted by confidence and cut into bins: the common part of all binned measures.

The functions here take vectors that are already checked: `confidence` float64 in [0, 1], `correct` of zeros and
ones (any dtype), `weight` float64 or None, all of shape (rows,).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, Flags, Indices, Vector, namespace, on_gpu, to_numpy
from refocal._validation import check_integer, check_option
from refocal.metrics.histogram_cells import ordered_key
from refocal.rows import Predictions
from refocal.rows.predictions import unit

NORMS = ("l1", "l2", "max")

# Sums of weights that differ by less than this share of the total are equal: cumulative sums of float64 round.
SHARE_ROUNDING = 1e-12


@dataclass(frozen=True)
class Bins:
    """Sums over the rows of each bin, (bins,) each, with w, c and y the weight, confidence and outcome of a row.

    `count` is the number of rows, `weight` Σw, `confidence` Σwc, `correct` Σwy, `squared_weight` Σw² and
    `squared_correct` Σw²y.
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
        """The weight of a row of each outcome, 1 and 0, among rows of similar confidence: see `outcome_weights`.

        The bins are put into groups of about equal weight by their mean confidence, which have more rows each.
        """
        n_groups = 15
        order = np.argsort(self.p, kind="stable")
        weight_below = np.empty_like(self.p)
        weight_below[order] = np.cumsum(self.weight[order]) - self.weight[order] / 2.0
        quantile = weight_below / self.weight.sum()
        group = np.minimum((quantile * n_groups).astype(np.int64), n_groups - 1)

        def group_sums(column: Vector) -> Vector:
            return np.bincount(group, column, n_groups).astype(np.float64, copy=False)

        of_one, of_zero = outcome_weights(
            weight=group_sums(self.weight),
            correct=group_sums(self.correct),
            squared_weight=group_sums(self.squared_weight),
            squared_correct=group_sums(self.squared_correct),
        )
        return of_one[group], of_zero[group]

    def size_at(self, rate: Vector) -> Vector:
        """The effective number of rows of each bin for true rates (…, bins); weights may depend on the outcome."""
        of_one, of_zero = self.outcome_weights
        return np.asarray(effective_size(rate, self.weight, of_one, of_zero))

    def rescale_noise(self, rates: Vector) -> Vector:
        """Simulated rates (replicates, bins) with the variance that weights which depend on the outcome give them.

        `rates` were simulated from the confidences with the weights held fixed, so that their variance is p(1 - p)
        over `size`; it becomes p(1 - p) over `size_at(p)`.
        """
        p = np.clip(self.p, 0.0, 1.0)
        return p + np.sqrt(self.size / self.size_at(p)) * (rates - p)

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """All columns in the order of the constructor."""
        return self.count, self.weight, self.confidence, self.correct, self.squared_weight, self.squared_correct

    def take(self, index: Indices | Flags) -> Bins:
        """Some of the bins."""
        return Bins(*(column[index] for column in self.columns))

    def with_weight(self) -> Bins:
        """Without the bins of weight 0."""
        has_weight = self.weight > 0
        return self if has_weight.all() else self.take(has_weight)


def concatenate(parts: list[Bins]) -> Bins:
    """The bins of all parts, one part after the other."""
    columns = zip(*(part.columns for part in parts), strict=True)
    return Bins(*(np.concatenate(column) for column in columns))


def outcome_weights(
    weight: Vector, correct: Vector, squared_weight: Vector, squared_correct: Vector
) -> tuple[Vector, Vector]:
    """Σw² / Σw over the rows of each outcome, 1 and 0, from the sums of groups of rows, (…, groups) each.

    A group with few rows of an outcome, or none, says little about their weights. So each group has one row more, of
    the mean weight m = Σw² / Σw of the outcome over all groups: (Σw² + m²) / (Σw + m).
    """
    total = weight.sum(axis=-1, keepdims=True)
    mean_of_all = squared_weight.sum(axis=-1, keepdims=True) / total

    def of_outcome(outcome_weight: Vector, outcome_squared: Vector) -> Vector:
        outcome_total = outcome_weight.sum(axis=-1, keepdims=True)
        mean = mean_of_all.copy()  # stays where the outcome does not occur
        np.divide(
            outcome_squared.sum(axis=-1, keepdims=True),
            outcome_total,
            out=mean,
            where=outcome_total > SHARE_ROUNDING * total,
        )
        smoothed: Vector = (outcome_squared + mean**2) / (outcome_weight + mean)
        return smoothed

    of_one = of_outcome(correct, squared_correct)
    of_zero = of_outcome(weight - correct, squared_weight - squared_correct)
    return of_one, of_zero


def effective_size(rate: Any, weight: Any, of_one: Any, of_zero: Any) -> Any:
    """The number of unweighted rows whose share of ones has the same variance as that of the weighted rows.

    `weight` is Σw. The variance of the weighted share is Σw²(y - rate)² / (Σw)², where a row weighs `of_one` if y = 1
    and `of_zero` otherwise: rate (1 - rate)² of_one + (1 - rate) rate² of_zero over Σw.
    """
    return weight / ((1.0 - rate) * of_one + rate * of_zero)


class WeightedTerms(NamedTuple):
    """w, wc, wy, w² and w²y of each row, (rows,): what `Bins` sum besides the number of rows, in their order."""

    weight: Vector
    confidence: Vector
    correct: Vector
    squared_weight: Vector
    squared_correct: Vector


def weighted_terms(confidence: Any, correct: Any, weight: Any) -> WeightedTerms:
    """The terms of rows, NumPy vectors or tensors."""
    weighted_correct = weight * correct
    return WeightedTerms(
        weight=weight,
        confidence=weight * confidence,
        correct=weighted_correct,
        squared_weight=weight * weight,
        squared_correct=weight * weighted_correct,
    )


def row_cells(confidence: Vector, correct: Vector | Flags, weight: Vector | None = None) -> Bins:
    """Every row as a cell of its own; an unweighted row weighs 1."""
    # Views of one number take no memory, and need not be added up (`is_one_number`).
    count = np.broadcast_to(np.int64(1), len(confidence))
    if weight is not None:
        return Bins(count, *weighted_terms(confidence, correct, weight))
    ones = np.broadcast_to(1.0, len(confidence))
    outcome = correct.astype(np.float64, copy=False)
    return Bins(
        count=count,
        weight=ones,
        confidence=confidence,
        correct=outcome,
        squared_weight=ones,
        squared_correct=outcome,
    )


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
        """First cell of each equal-mass bin, and the number of cells, (n_bins + 1,).

        A cell of confidence x belongs to bin floor(n_bins · P(confidence < x)), P being the share of the weight: equal
        values are never separated, and a group of them belongs to the bin of its lowest rank.
        """
        last_of_bin = np.searchsorted(self.shares, bin_ends(n_bins))
        highest_of_bin = self.confidence[last_of_bin]
        inner = np.searchsorted(self.confidence, highest_of_bin, side="right")
        return np.concatenate([[0], inner, [len(self.confidence)]])

    def starts(self, n_bins: int) -> Indices:
        """First cell of each equal-mass bin that has cells."""
        edges = self.edges(n_bins)
        first = edges[:-1]
        after = edges[1:]
        return first[first < after]

    def ties(self) -> Bins:
        """Sums of rows of equal confidence."""
        first_of_later_values = np.flatnonzero(np.diff(self.confidence)) + 1
        return join_cells(self.cells, np.append(0, first_of_later_values))


def bin_ends(n_bins: int) -> Vector:
    """The shares of the weight at which equal-mass bins end, k / n_bins, but for the last one.

    They are lowered by `SHARE_ROUNDING`: weights of 0.1 must cut where weights of 1 do, though their sums round.
    """
    ends: Vector = np.arange(1, n_bins) / n_bins - SHARE_ROUNDING
    return ends


def places_of_shares(cumulative: Vector, shares: Vector) -> Indices:
    """Where shares of the weight are first reached, in the running sums of the weights of sorted rows.

    They are lowered as in `bin_ends`.
    """
    places: Indices = np.searchsorted(cumulative, (shares - SHARE_ROUNDING) * cumulative[-1])
    return places


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
    sorted_correct = (keys & 1).astype(np.float64)
    keys >>= 1
    sorted_confidence = keys.view(np.float64)
    return Ranked(sorted_confidence, row_cells(sorted_confidence, sorted_correct))


def join_cells(cells: Bins, starts: Indices) -> Bins:
    """Consecutive cells put together into bins; those without weight are left out."""
    if is_one_number(cells.weight):  # rows without weights: each bin has some
        count = np.diff(starts, append=len(cells.count))
        weight = count.astype(np.float64)
        correct = np.add.reduceat(cells.correct, starts)
        return Bins(
            count=count,
            weight=weight,
            confidence=np.add.reduceat(cells.confidence, starts),
            correct=correct,
            squared_weight=weight,
            squared_correct=correct,
        )
    sums = (np.add.reduceat(column, starts) for column in cells.columns)
    return Bins(*sums).with_weight()


def is_one_number(column: NDArray[Any]) -> bool:
    """Whether a column of `row_cells` holds the same number for every row, in the memory of one."""
    return column.strides == (0,)


def interpolated_starts(confidence: Vector, n_bins: int) -> Indices:
    """As `Ranked.starts`, for the widely copied `histedges_equalN`: edges interpolated between sorted values.

    Bins are [edge, next edge), the last one closed, as in `numpy.histogram`; weights do not move the edges.
    """
    n_rows = len(confidence)
    edges = np.interp(np.linspace(0, n_rows, n_bins + 1), np.arange(n_rows), confidence)
    starts = np.searchsorted(confidence, edges[:-1], side="left")
    counts = np.diff(starts, append=n_rows)
    return starts[counts > 0]


def isotonic_fit(confidence: Array, correct: Array, weight: Vector | None) -> Bins:
    """The pools of the isotonic regression; the share of correct ones rises strictly from pool to pool."""
    # One point for each distinct value: equal confidences must get equal probabilities.
    points = rank(unit(confidence), to_numpy(correct), weight).ties()
    return join_cells(points, isotonic_pools(points.correct / points.weight, points.weight))


def isotonic_pools(share: Vector, weight: Vector) -> Indices:
    """Where the pools of the isotonic regression of shares begin; the mean rises strictly from pool to pool.

    The regression leaves it to rounding whether neighbouring pools of the same mean are one. Here they are.

    >>> isotonic_pools(np.array([1.0, 0.0, 0.5, 0.9]), np.ones(4))
    array([0, 3])
    """
    # The import is costly and few callers need it.
    from scipy.optimize import isotonic_regression

    rounding = 1e-12  # of a mean: that of sums of float64

    regression = isotonic_regression(share, weights=weight)
    first = regression.blocks[:-1]
    mean = regression.x[first]
    return np.asarray(first[np.append(True, np.diff(mean) > rounding * mean[1:])])


# From this number of rows on, for each number of bins, `_rank_at_edges` takes less time than sorting all rows.
ROWS_TO_SORT = 1 << 15


def quantile_bins(confidence: Array, correct: Array, weight: Vector | None, resolutions: tuple[int, ...]) -> list[Bins]:
    """Equal-mass bins at several numbers of them, from one sort; of tensors on a GPU that sort is done there.

    >>> bins = quantile_bins(np.array([0.25, 0.25, 0.75, 0.75]), np.array([0, 1, 1, 1]), None, (1, 2))
    >>> [at_resolution.correct.tolist() for at_resolution in bins]
    [[3.0], [1.0, 2.0]]
    """
    if on_gpu(confidence):
        return _quantile_bins_on_gpu(confidence, correct, weight, resolutions)
    # A sort by weights too takes longer: the limit then does not rise with the number of resolutions.
    n_edges = len(resolutions) if weight is None else 1
    if len(confidence) >= ROWS_TO_SORT * n_edges:
        ranked = _rank_at_edges(confidence, correct, weight, resolutions)
    else:
        ranked = rank(confidence, correct, weight)
    return [join_cells(ranked.cells, ranked.starts(n_bins)) for n_bins in resolutions]


def _rank_at_edges(
    confidence: Vector, correct: Vector | Flags, weight: Vector | None, resolutions: tuple[int, ...]
) -> Ranked:
    """Rows by rising confidence, where only those near the edges of bins are sorted, at a fifth of the time.

    1. Every row is counted in a fine cell of the confidence.
    2. A cell that holds the edge of a bin at one of the resolutions is opened: its rows are ranked one by one.
    3. Every other cell lies within one bin at each resolution, and stands as one entry among those rows.
    """
    # Of the 52 bits of the mantissa the first 6 are kept: 64 cells for every factor of two in min(c, 1 - c).
    cell_shift = 46
    cell = ordered_key(np.abs(confidence)) >> cell_shift
    first = int(cell.min())
    cell -= first  # the table of cells begins with the first one that is used
    count = np.bincount(cell)
    if weight is None:
        correct_count = np.bincount(cell[np.flatnonzero(correct)], minlength=len(count))
        sums = [count, np.bincount(cell, confidence), correct_count, count, correct_count]
    else:
        sums = [np.bincount(cell, term) for term in weighted_terms(confidence, correct, weight)]
    cell_weight = sums[0]
    shares = np.cumsum(cell_weight) / np.sum(cell_weight)
    is_open = np.zeros(len(count), dtype=np.bool_)
    for n_bins in resolutions:
        is_open[np.searchsorted(shares, bin_ends(n_bins))] = True

    in_open = np.flatnonzero(is_open[cell])
    weight_in_open = None if weight is None else weight[in_open]
    ranked = rank(confidence[in_open], correct[in_open], weight_in_open)
    keys = ordered_key(ranked.confidence)

    closed = np.flatnonzero((count > 0) & ~is_open)
    closed_sums = (column[closed].astype(np.float64) for column in sums)
    closed_cells = Bins(count[closed], *closed_sums)

    position = np.searchsorted(closed, (keys >> cell_shift) - first)
    columns = zip(closed_cells.columns, ranked.cells.columns, strict=True)
    cells = Bins(*(np.insert(of_closed, position, of_rows) for of_closed, of_rows in columns))
    # Keys as floats stand for the confidences: both have the same order.
    lowest_key = np.insert((first + closed) << cell_shift, position, keys)
    return Ranked(lowest_key.view(np.float64), cells)


def _quantile_bins_on_gpu(
    confidence: Array, correct: Array, weight: Vector | None, resolutions: tuple[int, ...]
) -> list[Bins]:
    """Bins by cumulative sums on the GPU: only the sums at the edges of the bins come to the host."""
    xp = namespace(confidence)
    device = confidence.device
    sorted_confidence, order = confidence.sort()
    c = sorted_confidence.double().clip(0.0, 1.0)
    y = correct[order].double()
    ones = xp.ones_like(c)
    w = ones if weight is None else xp.asarray(weight, dtype=xp.float64, device=device)[order]
    terms = (ones, *weighted_terms(c, y, w))
    cumulative = xp.zeros((len(terms), 1 + len(c)), dtype=xp.float64, device=device)  # the first column is 0
    for row, term in enumerate(terms):
        cumulative[row, 1:] = term.cumsum(0)
    shares = cumulative[1, 1:] / cumulative[1, -1]  # row 1 has the weights

    edges = []
    for n_bins in resolutions:
        # As in Ranked.edges.
        last_of_bin = xp.searchsorted(shares, xp.asarray(bin_ends(n_bins), device=device))
        inner = xp.searchsorted(c, c[last_of_bin], side="right")
        start = xp.zeros_like(inner[:1])
        end = xp.full_like(inner[:1], len(c))
        edges.append(xp.concat([start, inner, end]))

    at_edges = to_numpy(cumulative[:, xp.concat(edges)])
    last_edges = np.cumsum([len(of_resolution) for of_resolution in edges])[:-1]
    bins = []
    for of_resolution in np.split(at_edges, last_edges, axis=1):
        count, *sums = np.diff(of_resolution, axis=1)
        bins.append(Bins(count.astype(np.int64), *sums).with_weight())
    return bins


def check_binning(n_bins: Any, strategy: Any, function: str, norm: Any = "l1", norms: tuple[str, ...] = NORMS) -> None:
    """Check the options of `make_bins`, and of `norm_of_gaps`."""
    check_integer(n_bins, "n_bins", function)
    check_option(strategy, ("quantile", "uniform", "interpolated"), "strategy", function)
    check_option(norm, norms, "norm", function)


def reached_from(edges: Vector) -> Vector:
    """The lowest number that counts as at each edge, in the precision of float32 too.

    0.7 in float32 is 0.69999999, and 1 - 0.99 is 0.00999999: a probability given as a decimal is at the edge of the
    same decimal whatever its precision. Float32 is off by at most 3e-8 below 1; an edge next to 0 is lowered by less.
    """
    tolerance = np.minimum(1e-7, 1e-3 * edges)
    lowest: Vector = edges - tolerance
    return lowest


def uniform_index(confidence: Vector, n_bins: int) -> Indices:
    """The bin [k/n_bins, (k+1)/n_bins) of each confidence; the last bin is closed."""
    edges = reached_from(np.arange(n_bins) / n_bins)
    index = (confidence * n_bins).astype(np.int64)
    # c · n_bins is rounded: 0.29 · 100 is below 29, yet 0.29 is the edge 29/100. 1 belongs to the last bin.
    upper_edge = np.append(edges[1:], [np.inf, np.inf])
    index += confidence >= upper_edge[index]
    lower_edge = np.append(edges, np.inf)
    index -= confidence < lower_edge[index]
    return index


def uniform_bins(confidence: Vector, correct: Vector | Flags, weight: Vector | None, n_bins: int) -> Bins:
    """Bins of equal width."""
    # Blocks of rows that stay in the cache: the temporaries cost more than the counting otherwise.
    block_rows = 1 << 15
    sums = np.zeros((6, n_bins))
    for start in range(0, confidence.shape[0], block_rows):
        block = slice(start, start + block_rows)
        block_weight = None if weight is None else weight[block]
        rows = row_cells(confidence[block], correct[block], block_weight)
        index = uniform_index(confidence[block], n_bins)
        n_rows = np.bincount(index, minlength=n_bins)
        for row, column in enumerate(rows.columns):
            if is_one_number(column):
                sums[row] += column[0] * n_rows
            else:
                sums[row] += np.bincount(index, column, n_bins)
    count, *others = sums
    return Bins(count.astype(np.int64), *others).with_weight()


def make_bins(confidence: Array, correct: Array, weight: Vector | None, *, n_bins: int, strategy: str) -> Bins:
    """Bins by one of the three strategies; those of tensors on a GPU are made there where they have equal mass."""
    if strategy == "quantile":
        return quantile_bins(confidence, correct, weight, (n_bins,))[0]
    confidence = unit(confidence)
    correct = to_numpy(correct)
    if strategy == "uniform":
        return uniform_bins(confidence, correct, weight, n_bins)
    ranked = rank(confidence, correct, weight)
    return join_cells(ranked.cells, interpolated_starts(ranked.confidence, n_bins))


def bins_of(rows: Predictions, *, n_bins: int, strategy: str = "quantile", kind: str = "confidence") -> Bins:
    """The rows' confidence in bins; for "top_label" the bins of every predicted class, one after the other."""
    if kind == "confidence":
        confidence, correct = rows.confidence_on_device()
        return make_bins(confidence, correct, rows.weight, n_bins=n_bins, strategy=strategy)
    return concatenate(parts_by_label(rows, n_bins=n_bins, strategy=strategy))


def parts_by_label(rows: Predictions, *, n_bins: int, strategy: str) -> list[Bins]:
    """The confidence of the rows of every predicted class, in bins of their own."""
    confidence, correct, predicted = rows.top
    parts = []
    for label in np.unique(predicted):
        is_label = predicted == label
        weight = None if rows.weight is None else rows.weight[is_label]
        if weight is None or weight.sum() > 0:
            parts.append(make_bins(confidence[is_label], correct[is_label], weight, n_bins=n_bins, strategy=strategy))
    return parts


def norm_of_gaps(bins: Bins, norm: str) -> float:
    """l1: Σ w|gap|, l2: √(Σ w gap²), max: the largest |gap|; w is the bin's share of the weight."""
    return float(norms_of_gaps(bins.gap, bins.weight, norm))


def norms_of_gaps(gap: Vector, weight: Vector, norm: str) -> Vector:
    """`norm_of_gaps` of bins on the last axis, of which some may be empty."""
    gap = np.abs(gap)
    if norm == "l1":
        return np.asarray(gap.sum(axis=-1) / weight.sum(axis=-1))
    mean_gap = np.divide(gap, weight, out=np.zeros_like(gap), where=weight > 0.0)
    if norm == "max":
        return np.asarray(mean_gap.max(axis=-1))
    return np.asarray(np.sqrt((gap * mean_gap).sum(axis=-1) / weight.sum(axis=-1)))
