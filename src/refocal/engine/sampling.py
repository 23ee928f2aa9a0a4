"""A sample of rows that depends on the rows alone: not on their order, nor on the blocks that they come in.

Each different row has a key, a well-mixed number κ in [0, 1) that is computed from its values and its label. Of c equal
rows the j-th, j = 1 … c, stands at

    (κ + (j - 1)·π) / c,

and the sample consists of the n rows that stand lowest. With n of N rows in the sample, a share t = n/N, about c·t of
the c equal rows are in it, rounded down or up by chance: values that repeat are neither kept nor left out as a whole.
Where no row repeats, the sample consists of the n smallest keys.

All counts c must be known, and there may be too many different rows to count: of more than n, those with the n smallest
keys are counted, which are a share π of the different rows (π = 1 where all are counted), and those that occur so often
that none of them may be missed, which stand at (κ + j - 1) / c. A row with one of the n smallest keys of all blocks has
one of the n smallest keys in each block, so that its count is exact. Frequent rows are found by counters that can be
merged (Agarwal, Cormode, Huang, Phillips, Wei and Yi, "Mergeable summaries", 2013): with k counters each count is too
low by at most N/(k+1), so that no row of more than N/(k+1) is missed. A second pass counts these exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, Flags, Indices, Vector, row_blocks, to_numpy, without_last_digits
from refocal.engine.block import Block

Keys = NDArray[np.uint64]

LARGEST_KEY = np.uint64(0xFFFFFFFFFFFFFFFF)
"""2⁶⁴ - 1: a key k stands for the number κ = k / 2⁶⁴."""


def row_keys(block: Block, lowest: float | None = None) -> Keys:
    """Well-mixed integers, one per row, each computed from its row alone.

    Eight columns suffice to tell rows apart unless values repeat within the row, as zeros do: then all columns count.
    `lowest` is what logarithms of zeros are raised to: a key is the same whether or not that has been done. A key is
    computed from the columns less the largest of them, rounded: like the probabilities, it does not change if a number
    is added to all logits of a row, nor does it depend on their last digits.
    """
    n_key_columns = 8
    zero_margin = 1e-3  # zeros are raised to `lowest` up to rounding; the next log-probability is log 2 above it
    label_bits = np.uint64(0xFFFF)  # the last bits of a key, which are those of the label

    least = -np.inf if lowest is None else lowest + zero_margin
    columns = np.unique(np.linspace(0, block.n_classes - 1, n_key_columns).astype(np.int64))
    labels = to_numpy(block.labels).astype(np.uint64)
    keys: Keys = labels
    is_repetitive = np.zeros(block.n_rows, dtype=np.bool_)
    values = [_without_zeros(block.logits[:, column], least) for column in columns]
    top = np.maximum.reduce(values)
    for i, of_column in enumerate(values):
        keys = _mixed(keys ^ _bits(_differences(of_column, top)))
        if block.n_classes > n_key_columns:
            for other in values[:i]:
                is_repetitive |= of_column == other
    repetitive = np.flatnonzero(is_repetitive)
    for part in row_blocks(len(repetitive), block.n_classes):
        rows = repetitive[part]
        all_columns = _without_zeros(block.take(rows).logits, least)
        differences = _differences(all_columns, all_columns.max(axis=1, keepdims=True))
        keys[rows] = _mixed(keys[rows] ^ _hash_of_all_columns(differences))
    # A label enters the first hash next to the last bits of a number: rows of two labels whose numbers differ by
    # rounding could have the same key. The last bits, which hardly change the order of keys, keep labels apart.
    with_labels: Keys = (keys & ~label_bits) | (labels & label_bits)
    return with_labels


def _without_zeros(logits: Array, least: float) -> NDArray[np.float64]:
    """Logits in double precision, -inf where they are at most `least`."""
    values: NDArray[np.float64] = to_numpy(logits).astype(np.float64)
    values[values <= least] = -np.inf
    return values


def _differences(values: NDArray[np.float64], top: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logits less the largest of their row (0 where that is infinite), without their last digits."""
    share_of_rounding = 1e-9
    subtracted = np.where(np.isfinite(top), top, 0.0)
    differences = values - subtracted
    rounding = share_of_rounding * np.maximum(np.abs(values), np.abs(subtracted))
    is_rounding = np.isfinite(values) & (np.abs(differences) <= rounding)
    return without_last_digits(np.where(is_rounding, 0.0, differences))


def _bits(values: NDArray[np.float64]) -> Keys:
    """The bits of numbers."""
    bits: Keys = values.view(np.uint64)
    return bits


def _mixed(keys: Keys) -> Keys:
    """Integers of which every bit depends on all bits of the given ones.

    The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014):
    products modulo 2⁶⁴, which carry bits upwards, between shifts, which carry them downwards.
    """
    mixed = keys + np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ divided by the golden ratio: 0 is not mixed to 0
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: Keys = mixed ^ (mixed >> np.uint64(31))
    return result


def _hash_of_all_columns(logits: NDArray[np.float64]) -> Keys:
    """Σⱼ factorⱼ·mixed bitsⱼ modulo 2⁶⁴ with odd factors, which is the same in any order of summation."""
    factors = _mixed(np.arange(1, logits.shape[1] + 1, dtype=np.uint64)) | np.uint64(1)
    total: Keys = _mixed(_bits(logits)) @ factors
    return total


@dataclass(frozen=True)
class CountedRows:
    """Different rows in ascending order of their keys, and how often each occurs."""

    keys: Keys
    counts: Indices
    logits: NDArray[Any]
    labels: NDArray[Any]
    weight: Vector | None
    """The sum of the weights of the equal rows."""

    @property
    def weights(self) -> Vector:
        """The sum of the weights of the equal rows: their number where rows have no weights."""
        return self.counts.astype(np.float64) if self.weight is None else self.weight

    def take(self, rows: Any) -> CountedRows:
        """Some of the rows: a slice or a mask."""
        return CountedRows(
            self.keys[rows],
            self.counts[rows],
            self.logits[rows],
            self.labels[rows],
            None if self.weight is None else self.weight[rows],
        )


def counted(keys: Keys, block: Block) -> CountedRows:
    """The different rows of a block, given the keys of all of them."""
    order = np.argsort(keys, kind="stable")
    first, group = _groups(keys[order])
    rows = order[first]
    logits = np.asarray(to_numpy(block.logits[rows]))
    weight: Vector | None = None
    if block.weight is not None:
        weight = np.bincount(group, block.weight[order], minlength=len(first)).astype(np.float64, copy=False)
    return CountedRows(
        keys=keys[rows],
        counts=np.bincount(group, minlength=len(first)),
        logits=logits.astype(np.float32) if logits.dtype == np.float16 else logits,
        labels=to_numpy(block.labels[rows]),
        weight=weight,
    )


def joined(one: CountedRows, other: CountedRows) -> CountedRows:
    """The rows of two blocks; the counts of rows that are in both are added."""
    keys = np.concatenate([one.keys, other.keys])
    order = np.argsort(keys, kind="stable")
    first, group = _groups(keys[order])
    rows = order[first]
    weight: Vector | None = None
    if one.weight is not None or other.weight is not None:
        weights = np.concatenate([one.weights, other.weights])[order]
        weight = np.bincount(group, weights, minlength=len(first)).astype(np.float64, copy=False)
    counts = np.zeros(len(first), dtype=np.int64)
    np.add.at(counts, group, np.concatenate([one.counts, other.counts])[order])
    return CountedRows(
        keys=keys[rows],
        counts=counts,
        logits=np.concatenate([one.logits, other.logits])[rows],
        labels=np.concatenate([one.labels, other.labels])[rows],
        weight=weight,
    )


def _groups(sorted_keys: Keys) -> tuple[Indices, Indices]:
    """Where each group of equal keys begins, and the number of the group of each key."""
    begins = np.ones(len(sorted_keys), dtype=np.bool_)
    begins[1:] = sorted_keys[1:] != sorted_keys[:-1]
    return np.flatnonzero(begins), np.cumsum(begins) - 1


@dataclass(frozen=True)
class Counters:
    """Keys of rows that may occur often, in ascending order, with lower bounds of how often."""

    keys: Keys
    counts: Indices

    def of_more_than(self, count: float) -> Keys:
        """The keys that were counted more often than this."""
        return self.keys[self.counts > count]


def joined_counters(parts: list[Counters], n_counters: int) -> Counters:
    """The sums of counters; only the `n_counters` largest are kept.

    The largest of those that are dropped is subtracted from all others.
    """
    keys, group = np.unique(np.concatenate([part.keys for part in parts]), return_inverse=True)
    counts = np.zeros(len(keys), dtype=np.int64)
    np.add.at(counts, group.reshape(-1), np.concatenate([part.counts for part in parts]))
    if len(keys) > n_counters:
        largest_dropped = len(keys) - n_counters - 1  # its place in ascending order
        counts = counts - np.partition(counts, largest_dropped)[largest_dropped]
    is_kept = counts > 0
    return Counters(keys[is_kept], counts[is_kept])


@dataclass(frozen=True)
class CountedSample:
    """The different rows of the smallest keys, all counted, and counters of the others."""

    rows: CountedRows
    bound: np.uint64
    """Every row whose key is at most this is among `rows`."""
    others: Counters

    def smallest(self, n_rows: int) -> CountedSample:
        """The same with at most `n_rows` different rows; the others are then counted by counters, if at all."""
        if len(self.rows.keys) <= n_rows:
            return self
        left_out = Counters(self.rows.keys[n_rows:], self.rows.counts[n_rows:])
        others = joined_counters([self.others, left_out], number_of_counters(n_rows))
        return replace(self, rows=self.rows.take(slice(n_rows)), bound=self.rows.keys[n_rows - 1], others=others)

    def candidates(self, n_rows: int, n_all: int) -> Keys:
        """Keys of all rows that may be frequent among `n_all` rows and are not among those of this sample."""
        return self.others.of_more_than(n_all / (number_of_counters(n_rows) + 1))


def number_of_counters(n_rows: int) -> int:
    """How many counters there are of frequent rows, for a sample of `n_rows`: one for four of them.

    Rows that are too rare to be counted are then at most eight in a sample on average, so that it has many different
    ones.
    """
    return max(1, n_rows // 4)


def frequent_from(n_rows: int, n_all: int) -> float:
    """How often a row occurs at least among `n_all` rows, to be in a sample of `n_rows` whatever its key is."""
    return 2.0 * n_all / (number_of_counters(n_rows) + 1)


def most_repeat(keys: Keys) -> bool:
    """Whether there are fewer different keys than half of all."""
    ascending = np.sort(keys)
    return 2 * int(np.count_nonzero(ascending[1:] == ascending[:-1])) > len(keys)


def sample_of(keys: Keys, block: Block, n_rows: int, bound: np.uint64 = LARGEST_KEY) -> CountedSample:
    """The sample of a block from which one of `n_rows` rows can be taken; `bound`: larger keys are left to counters."""
    small = np.flatnonzero(keys <= bound)
    rows = counted(keys[small], block.take(small))
    large, counts = np.unique(keys[keys > bound], return_counts=True)
    others = joined_counters([Counters(large, counts)], number_of_counters(n_rows))
    return CountedSample(rows, bound, others).smallest(n_rows)


def joined_samples(one: CountedSample, other: CountedSample, n_rows: int) -> CountedSample:
    """The sample of the rows of two blocks."""
    rows = joined(one.rows, other.rows)
    bound = min(one.bound, other.bound)
    is_small = rows.keys <= bound
    large = Counters(rows.keys[~is_small], rows.counts[~is_small])
    others = joined_counters([one.others, other.others, large], number_of_counters(n_rows))
    return CountedSample(rows.take(is_small), bound, others).smallest(n_rows)


def places(keys: Keys, counts: Indices, is_frequent: Flags, bound: np.uint64, n_rows: int) -> Indices:
    """For each of the `n_rows` lowest places, in ascending order, the number of its different row.

    Rows that are not frequent have keys of at most `bound`, and those of larger keys are not among them.
    """
    # No more than n_rows of equal rows can be in the sample.
    repeats = np.minimum(counts, n_rows)
    rows = np.repeat(np.arange(len(keys)), repeats)
    first = np.cumsum(repeats) - repeats
    occurrence = np.arange(len(rows)) - np.repeat(first, repeats)  # j - 1 of the formula above
    unit = 2.0**-64
    kappa = keys.astype(np.float64)[rows] * unit
    share = np.where(is_frequent, 1.0, (float(bound) + 1.0) * unit)  # π of the formula above
    place = (kappa + occurrence * share[rows]) / counts[rows]
    order = np.argsort(place, kind="stable")[:n_rows]
    chosen: Indices = rows[order]
    return chosen


def block_of(sample: CountedSample, frequent: CountedRows | None, n_rows: int, n_all: int) -> Block:
    """At most `n_rows` rows of a sample of `n_all` rows; `frequent`: the rows that were counted in a second pass."""
    smallest = sample.smallest(n_rows)
    rows = smallest.rows
    least_count = frequent_from(n_rows, n_all)
    if smallest.bound < LARGEST_KEY:
        others = [sample.rows.take(slice(n_rows, None))]
        if frequent is not None:
            others.append(frequent)
        for other in others:
            is_missing = (other.keys > smallest.bound) & (other.counts > least_count)
            rows = joined(rows, other.take(is_missing))
    chosen = places(rows.keys, rows.counts, rows.counts > least_count, smallest.bound, n_rows)
    weight = None if rows.weight is None else rows.weight[chosen] / rows.counts[chosen]
    return Block(rows.logits[chosen], rows.labels[chosen], weight)


def sampled(block: Block, n_rows: int, lowest: float | None = None) -> Block:
    """At most `n_rows` rows of a block, in the order of their places: the same as of any blocks with the same rows."""
    keys = row_keys(block, lowest)
    ascending = np.sort(keys)
    if not np.any(ascending[1:] == ascending[:-1]):
        last = ascending[min(n_rows, len(keys)) - 1]
        small = np.flatnonzero(keys <= last)
        return block.take(small[np.argsort(keys[small])])
    order = np.argsort(keys, kind="stable")
    first, group = _groups(ascending)
    different = ascending[first]
    counts = np.bincount(group)
    bound = LARGEST_KEY
    is_frequent = counts > frequent_from(n_rows, len(keys))
    is_counted = np.ones(len(different), dtype=np.bool_)
    if len(different) > n_rows:
        bound = different[n_rows - 1]
        is_counted = is_frequent | (different <= bound)
    first = first[is_counted]
    chosen = places(different[is_counted], counts[is_counted], is_frequent[is_counted], bound, n_rows)
    rows = block.take(order[first[chosen]])
    if block.weight is None:
        return rows
    mean_weight = (np.bincount(group, block.weight[order]) / counts)[is_counted]
    return Block(rows.logits, rows.labels, mean_weight[chosen], rows.groups)
