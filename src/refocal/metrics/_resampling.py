"""Metrics for many resamples at once: the three ways to get there.

A score that is a mean is one matrix product. The binned errors sort their rows once and move only the boundaries of
the bins. What needs the resampled rows themselves takes them one resample at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from refocal.metrics._bins import SHARE_ROUNDING, uniform_index
from refocal.metrics._inputs import Flags, Indices, Rows, Vector

Evaluate: TypeAlias = Callable[[Vector], Vector]
"""How often each row is drawn, (resamples, rows) ↦ the metric for each resample."""
BinSums: TypeAlias = Callable[[Vector], tuple[Vector, Vector]]
"""Weights of (resamples, rows) ↦ gap and weight of each bin, both (resamples, bins)."""


_ENTRIES = 1 << 21


def draw_resamples(n: int, n_resamples: int, seed: int) -> Iterator[Vector]:
    """How often each of n rows is drawn, in matrices of (resamples, rows) of some millions of entries."""
    generator = np.random.default_rng(seed)
    for size in chunks(n_resamples, n):
        yield draw_counts(generator, size, n)


def chunks(n_resamples: int, n: int) -> Iterator[int]:
    """Sizes that keep a (resamples, rows) matrix at some millions of entries."""
    step = max(1, _ENTRIES // n)
    for start in range(0, n_resamples, step):
        yield min(step, n_resamples - start)


def draw_counts(generator: np.random.Generator, size: int, n: int) -> Vector:
    """How often each row is drawn in each of `size` resamples of n rows, as floats."""
    drawn = generator.integers(0, n, size=(size, n))
    drawn += np.arange(size)[:, None] * n
    return np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)


def resample_mean(terms_of: Callable[[Rows], Vector]) -> Callable[[Rows], Evaluate]:
    """The evaluator of a score that is a mean of terms."""

    def prepare(rows: Rows) -> Evaluate:
        base = base_weight(rows)
        weighted = base * np.where(base > 0, terms_of(rows), 0.0)

        def evaluate(counts: Vector) -> Vector:
            means: Vector = counts @ weighted / (counts @ base)
            return means

        return evaluate

    return prepare


def resample_bins(
    rows: Rows, parts: Sequence[tuple[Any, Vector, Flags]], *, n_bins: int, strategy: str, norm: str
) -> Evaluate:
    """The norm over the bins of all parts; a part names the rows it is made of."""
    make_sums = _quantile_sums if strategy == "quantile" else _uniform_sums
    prepared = [(part, make_sums(confidence, correct, n_bins)) for part, confidence, correct in parts]

    def evaluate(counts: Vector) -> Vector:
        weights = counts if rows.weight is None else counts * rows.weight
        sums = [bin_sums(weights[:, part]) for part, bin_sums in prepared]
        gap, weight = (np.concatenate(side, axis=1) for side in zip(*sums, strict=True))
        return _norms_of_gaps(gap, weight, norm)

    return evaluate


def resample_rows(rows: Rows, measure: Callable[..., float], **options: Any) -> Evaluate:
    """For metrics that need the resampled rows themselves."""

    def evaluate(counts: Vector) -> Vector:
        drawn = (np.repeat(np.arange(rows.labels.shape[0]), row.astype(np.int64)) for row in counts)
        return np.array([measure(rows.take(indices), **options) for indices in drawn])

    return evaluate


def base_weight(rows: Rows) -> Vector:
    """The weight of each row; 1 where none was given."""
    return np.ones(rows.labels.shape[0]) if rows.weight is None else rows.weight


def _quantile_sums(confidence: Vector, correct: Flags, n_bins: int) -> BinSums:
    """Equal-mass bins, cut anew for each resample by the rule of `quantile_starts`."""
    order = np.lexsort((correct, confidence))
    ranked, gap = confidence[order], (confidence - correct)[order]
    tie_ends = np.searchsorted(ranked, ranked, side="right")
    targets = np.arange(1, n_bins) / n_bins - SHARE_ROUNDING

    def sums(weights: Vector) -> tuple[Vector, Vector]:
        drawn = weights[:, order]
        cumulative = np.cumsum(drawn, axis=1)
        inner = np.stack([tie_ends[np.searchsorted(row, targets * row[-1])] for row in cumulative])
        return _between(np.cumsum(drawn * gap, axis=1), inner), _between(cumulative, inner)

    return sums


def _uniform_sums(confidence: Vector, correct: Flags, n_bins: int) -> BinSums:
    """Equal-width bins, the same for each resample."""
    index = uniform_index(confidence, n_bins)
    order = np.argsort(index, kind="stable")
    gap = (confidence - correct)[order]
    inner = np.searchsorted(index[order], np.arange(1, n_bins))

    def sums(weights: Vector) -> tuple[Vector, Vector]:
        drawn = weights[:, order]
        starts = np.broadcast_to(inner, (weights.shape[0], n_bins - 1))
        return _between(np.cumsum(drawn * gap, axis=1), starts), _between(np.cumsum(drawn, axis=1), starts)

    return sums


def _norms_of_gaps(gap: Vector, weight: Vector, norm: str) -> Vector:
    """`norm_of_gaps` for every resample."""
    gap, total = np.abs(gap), weight.sum(axis=1)
    if norm == "l1":
        return np.asarray(gap.sum(axis=1) / total)
    ratio = np.divide(gap, weight, out=np.zeros_like(gap), where=weight > 0)
    if norm == "max":
        return np.asarray(np.max(ratio, axis=1))
    return np.asarray(np.sqrt((ratio * gap).sum(axis=1) / total))


def _between(cumulative: Vector, inner: Indices) -> Vector:
    """Sums of each row between its boundaries."""
    padded = np.concatenate([np.zeros((cumulative.shape[0], 1)), cumulative], axis=1)
    edge = np.zeros((inner.shape[0], 1), dtype=np.int64)
    edges = np.concatenate([edge, inner, edge + cumulative.shape[1]], axis=1)
    return np.diff(np.take_along_axis(padded, edges, axis=1), axis=1)
