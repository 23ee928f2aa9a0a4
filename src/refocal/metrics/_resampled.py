"""Every measure for many resamples at once.

A score that is a mean is one matrix product. The binned errors sort their rows once and move only the boundaries of
the bins. What needs the resampled rows themselves takes them one resample at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from refocal.metrics import binned, scores, smooth
from refocal.metrics._inputs import Flags, Indices, Rows, Vector
from refocal.metrics._ranked import SHARE_ROUNDING, norm_of_gaps, rank, uniform_index

Evaluate: TypeAlias = Callable[[Vector], Vector]
"""How often each row is drawn, (resamples, rows) ↦ the measure for each resample."""
BinSums: TypeAlias = Callable[[Vector], tuple[Vector, Vector]]
"""Weights of (resamples, rows) ↦ gap and weight of each bin, both (resamples, bins)."""


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


def _base_weight(rows: Rows) -> Vector:
    return np.ones(rows.labels.shape[0]) if rows.weight is None else rows.weight


def _ece(
    rows: Rows, *, n_bins: int = 15, strategy: str = "quantile", norm: str = "l1", kind: str = "confidence"
) -> Evaluate:
    if strategy == "interpolated":
        return _row_by_row(
            rows, lambda drawn: norm_of_gaps(binned.bins_of(drawn, n_bins=n_bins, strategy=strategy, kind=kind), norm)
        )
    if kind == "confidence":
        return _binned(rows, [(slice(None), *rows.confidence())], n_bins=n_bins, strategy=strategy, norm=norm)
    confidence, correct, predicted = rows.top()
    groups = [np.flatnonzero(predicted == label) for label in np.unique(predicted)]
    parts = [(group, confidence[group], correct[group]) for group in groups]
    return _binned(rows, parts, n_bins=n_bins, strategy=strategy, norm=norm)


def _binned(
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


def _classwise(rows: Rows, *, n_bins: int = 15, strategy: str = "quantile", norm: str = "l1") -> Evaluate:
    if strategy == "interpolated":
        return _row_by_row(rows, lambda drawn: binned.classwise_of(drawn, n_bins=n_bins, strategy=strategy, norm=norm))
    classes = [
        _binned(rows, [(slice(None), *rows.event(label))], n_bins=n_bins, strategy=strategy, norm=norm)
        for label in range(rows.n_classes)
    ]
    return lambda counts: np.mean([evaluate(counts) for evaluate in classes], axis=0)


def _debiased(rows: Rows, *, n_bins: int = 15, strategy: str = "quantile", norm: str = "l2") -> Evaluate:
    return _row_by_row(
        rows.reduced(),
        lambda drawn: binned.debiased_norm(binned.bins_of(drawn, n_bins=n_bins, strategy=strategy), norm),
    )


def _sweep(rows: Rows, *, norm: str = "l1") -> Evaluate:
    return _row_by_row(rows.reduced(), lambda drawn: binned.sweep_error(*drawn.confidence(), drawn.weight, norm=norm))


def _smooth(rows: Rows, *, bandwidth: float | None = None) -> Evaluate:
    return _row_by_row(
        rows.reduced(), lambda drawn: smooth.smooth_error(*drawn.confidence(), drawn.weight, bandwidth=bandwidth)
    )


def _ks(rows: Rows) -> Evaluate:
    return _row_by_row(rows.reduced(), lambda drawn: smooth.ks_error(rank(*drawn.confidence(), drawn.weight)))


def _corp(rows: Rows) -> Evaluate:
    return _row_by_row(rows.reduced(), lambda drawn: smooth.corp_of(*drawn.confidence(), drawn.weight).miscalibration)


def _decomposition(rows: Rows, *, method: str = "isotonic", n_bins: int = 15, strategy: str = "quantile") -> Evaluate:
    return _row_by_row(
        rows, lambda drawn: scores.decompose(drawn, method=method, n_bins=n_bins, strategy=strategy).calibration
    )


def _spiegelhalter(rows: Rows) -> Evaluate:
    excess, variance = scores.spiegelhalter_terms(rows)
    base = _base_weight(rows)

    def evaluate(counts: Vector) -> Vector:
        sums = zip(counts @ (base * excess), counts @ (np.square(base) * variance), strict=True)
        return np.array([scores.spiegelhalter_result(float(e), float(v)).z for e, v in sums])

    return evaluate


def _row_by_row(rows: Rows, measure: Callable[[Rows], float]) -> Evaluate:
    """For measures that need the resampled rows themselves."""

    def evaluate(counts: Vector) -> Vector:
        drawn = (np.repeat(np.arange(rows.labels.shape[0]), row.astype(np.int64)) for row in counts)
        return np.array([measure(rows.take(indices)) for indices in drawn])

    return evaluate


def _mean(terms_of: Callable[[Rows], Vector]) -> Callable[[Rows], Evaluate]:
    """The evaluator of a score that is a mean of terms."""

    def prepare(rows: Rows) -> Evaluate:
        base = _base_weight(rows)
        weighted = base * np.where(base > 0, terms_of(rows), 0.0)

        def evaluate(counts: Vector) -> Vector:
            means: Vector = counts @ weighted / (counts @ base)
            return means

        return evaluate

    return prepare


EVALUATORS: dict[Callable[..., Any], Callable[..., Evaluate]] = {
    scores.log_loss: _mean(scores.log_loss_terms),
    scores.brier_score: _mean(scores.brier_terms),
    scores.accuracy: _mean(scores.accuracy_terms),
    scores.error_rate: _mean(scores.error_terms),
    scores.brier_decomposition: _decomposition,
    scores.spiegelhalter_test: _spiegelhalter,
    binned.expected_calibration_error: _ece,
    binned.classwise_ece: _classwise,
    binned.debiased_ece: _debiased,
    binned.ece_sweep: _sweep,
    smooth.smooth_ece: _smooth,
    smooth.ks_calibration_error: _ks,
    smooth.corp_reliability: _corp,
}
"""For each public measure: rows and the measure's options ↦ its evaluator."""
