"""Sums over the rows of each cluster that merge from block to block, in a memory that does not grow with the rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refocal._arrays import Indices, Vector
from refocal._clusters import KEY_BITS

MOST_CLUSTERS = 1 << 16
"""Beyond this number, clusters are put together."""


@dataclass(frozen=True)
class ClusterSums:
    """The sums of some columns over each cluster, (columns, clusters); `keys` are the clusters, in ascending order.

    Where there are more than 65,536 clusters, those whose keys, which are hashes, begin with the same 16 bits are one.
    Sums over whole clusters stay independent of one another, so that the variance is estimated without bias; from so
    many sums it is known to half a percent.
    """

    keys: Indices
    sums: Vector
    bits: int = KEY_BITS
    """How many bits the keys have."""

    @classmethod
    def of(cls, clusters: Indices, values: Vector) -> ClusterSums:
        """The sums of values (columns, rows)."""
        return cls(*sums_by_key(clusters, values)).limited()

    def merge(self, other: ClusterSums) -> ClusterSums:
        """The sums over the rows of both."""
        bits = min(self.bits, other.bits)
        first = self._with_bits(bits)
        second = other._with_bits(bits)
        keys = np.concatenate([first.keys, second.keys])
        sums = np.concatenate([first.sums, second.sums], axis=1)
        return ClusterSums(*sums_by_key(keys, sums), bits).limited()

    @property
    def n_clusters(self) -> int:
        """The number of clusters."""
        return len(self.keys)

    def limited(self) -> ClusterSums:
        """The same, with clusters put together where there are too many."""
        bucket_bits = 16
        return self._with_bits(bucket_bits) if len(self.keys) > MOST_CLUSTERS else self

    def _with_bits(self, bits: int) -> ClusterSums:
        if self.bits == bits:
            return self
        return ClusterSums(*sums_by_key(self.keys >> (self.bits - bits), self.sums), bits)


def merged(first: ClusterSums | None, second: ClusterSums | None) -> ClusterSums | None:
    """The sums over the rows of both, of which either may have none."""
    if first is None or second is None:
        return second if first is None else first
    return first.merge(second)


def sums_by_key(keys: Indices, values: Vector) -> tuple[Indices, Vector]:
    """The distinct keys, in ascending order, and the sums of the values (columns, keys) of each."""
    distinct, place = np.unique(keys, return_inverse=True)
    return distinct, np.stack([np.bincount(place, column, len(distinct)) for column in values])
