"""Metrics of resampled rows: a resample is a vector of counts, and many are measured at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Indices, Vector
from refocal.rows import Predictions

Evaluate: TypeAlias = Callable[[Vector], Vector]
"""How often each row is drawn, (resamples, rows) ↦ the metric for each resample."""


# Resamples with at most this number of entries are kept until others are drawn.
_KEPT = 1 << 26


def draw_resamples(n: int, n_resamples: int, seed: int, clusters: Indices | None = None) -> Iterator[Vector]:
    """How often each of n rows is drawn, in matrices of (resamples, rows) of some millions of entries.

    With `clusters`, the number of each row's, whole clusters are drawn.
    """
    if clusters is not None:
        _, place = np.unique(clusters, return_inverse=True)
        generator = np.random.default_rng(seed)
        sizes = chunks(n_resamples, n)
        return (draw_counts(generator, size, int(place.max()) + 1)[:, place] for size in sizes)
    if n * n_resamples <= _KEPT:
        return (counts.astype(np.float64) for counts in _last_drawn(n, n_resamples, seed))
    return _draw(n, n_resamples, seed)


def _draw(n: int, n_resamples: int, seed: int) -> Iterator[Vector]:
    generator = np.random.default_rng(seed)
    return (draw_counts(generator, size, n) for size in chunks(n_resamples, n))


@lru_cache(maxsize=1)
def _last_drawn(n: int, n_resamples: int, seed: int) -> tuple[NDArray[np.uint8], ...]:
    """The last draws, one byte per count: an evaluation uses the same draws for every metric and method."""
    return tuple(counts.astype(np.uint8) for counts in _draw(n, n_resamples, seed))


forget_resamples = _last_drawn.cache_clear


def chunks(n_resamples: int, n: int) -> Iterator[int]:
    """Sizes that keep a (resamples, rows) matrix at some millions of entries."""
    most_entries = 1 << 21  # of the resamples that are drawn at a time
    step = max(1, most_entries // n)
    for start in range(0, n_resamples, step):
        yield min(step, n_resamples - start)


def draw_counts(generator: np.random.Generator, size: int, n: int) -> Vector:
    """How often each row is drawn in each of `size` resamples of n rows, as floats."""
    drawn = generator.integers(0, n, size=(size, n))
    drawn += np.arange(size)[:, None] * n
    return np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)


def resample_mean(terms: Vector, weight: Vector | None) -> Evaluate:
    """For metrics that are means of terms: one matrix product."""
    weighted = terms if weight is None else weight * np.where(weight > 0, terms, 0.0)

    def evaluate(counts: Vector) -> Vector:
        total = counts.sum(axis=1) if weight is None else counts @ weight
        means: Vector = counts @ weighted / total
        return means

    return evaluate


def resample_rows(rows: Predictions, measure: Callable[..., float], **options: Any) -> Evaluate:
    """For metrics that need the resampled rows themselves."""

    def evaluate(counts: Vector) -> Vector:
        drawn = (np.repeat(np.arange(rows.labels.shape[0]), row.astype(np.int64)) for row in counts)
        return np.array([measure(rows.take(indices), **options) for indices in drawn])

    return evaluate
