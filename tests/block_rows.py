"""Rows in blocks, which the tests of readers and data sets share."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from refocal.maps import inverse_focal


def make_rows(n_rows, n_classes, seed=0, dtype=np.float32):
    """Logits that need a temperature of 1.7 and the focal map with γ = 1."""
    rng = np.random.default_rng(seed)
    log_p = 2.0 * rng.normal(size=(n_rows, n_classes))
    labels = np.argmax(log_p + rng.gumbel(size=log_p.shape), axis=1)
    return (1.7 * inverse_focal(log_p, 1.0)).astype(dtype), labels


class Pairs:
    """Blocks that can be walked again, cut at given rows."""

    def __init__(self, *arrays, cuts=()):
        self.arrays = arrays
        self.cuts = [0, *cuts, len(arrays[1])]

    def __iter__(self):
        for first, last in pairwise(self.cuts):
            yield tuple(array[first:last] for array in self.arrays)
