"""Accuracy against confidence, bin by bin, with the bands around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from refocal._validation import check_integer, check_option
from refocal.metrics.bins import Bins, bins_of, check_binning, make_bins, rank
from refocal.metrics.inputs import check_level, read_probabilities
from refocal.metrics.intervals import wilson
from refocal.metrics.resampling import chunks, draw_counts
from refocal.rows.labels import IgnoreIndex

__all__ = ["ReliabilityBand", "ReliabilityCurve", "reliability_band", "reliability_curve"]


@dataclass(frozen=True)
class ReliabilityCurve:
    """One entry for each bin that is not empty; `low` and `high` bound the accuracy at `level`, bin by bin.

    >>> curve = reliability_curve([0, 1, 1, 1], [0.25, 0.75, 0.8, 1.0], n_bins=2)
    >>> curve.count, curve.confidence, curve.accuracy
    ([2, 2], [0.5, 0.9], [0.5, 1.0])
    """

    count: list[int]
    weight: list[float]
    confidence: list[float]
    accuracy: list[float]
    low: list[float]
    high: list[float]
    level: float


@dataclass(frozen=True)
class ReliabilityBand:
    """Where the accuracy of each bin of the curve may lie; see `reliability_band` for the two kinds.

    >>> band = reliability_band([0, 1, 1, 1] * 25, [0.25, 0.75, 0.75, 1.0] * 25, n_bins=2, kind="consistency")
    >>> band.kind, len(band.confidence) == len(band.low)
    ('consistency', True)
    """

    confidence: list[float]
    accuracy: list[float]
    low: list[float]
    high: list[float]
    level: float
    kind: str


def reliability_curve(
    y_true: Any,
    probabilities: Any = None,
    *,
    n_bins: int = 15,
    strategy: str = "quantile",
    level: float = 0.95,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
) -> ReliabilityCurve:
    """Mean confidence and accuracy of each bin, with Wilson's interval for the accuracy.

    >>> curve = reliability_curve([0, 1, 1, 1], [0.25, 0.25, 0.75, 0.75], n_bins=2)
    >>> curve.confidence, curve.accuracy, curve.count
    ([0.25, 0.75], [0.5, 1.0], [2, 2])
    """
    function = "reliability_curve"
    check_binning(n_bins, strategy, function)
    check_level(level, function)
    rows = read_probabilities(y_true, probabilities, sample_weight, function, ignore_index)
    return curve_of(bins_of(rows, n_bins=n_bins, strategy=strategy), level)


def curve_of(bins: Bins, level: float) -> ReliabilityCurve:
    """Bins as a curve; with weights the interval rests on the effective number of rows."""
    low, high = wilson(bins.rate, bins.size_at(bins.rate), level)
    return ReliabilityCurve(
        count=bins.count.tolist(),
        weight=bins.weight.tolist(),
        confidence=bins.p.tolist(),
        accuracy=bins.rate.tolist(),
        low=low.tolist(),
        high=high.tolist(),
        level=level,
    )


def reliability_band(
    y_true: Any,
    probabilities: Any = None,
    *,
    kind: str = "confidence",
    n_bins: int = 15,
    strategy: str = "quantile",
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
) -> ReliabilityBand:
    """Band around the reliability curve, bin by bin, with the bins held fixed.

    "confidence" resamples the rows: where the accuracy of each bin may lie. "consistency" draws new labels from the
    confidences: where it would lie if the model were calibrated, so that a curve outside it is evidence against
    calibration.

    >>> y, p = [0, 1, 1, 1] * 25, [0.25, 0.25, 0.75, 0.75] * 25
    >>> band = reliability_band(y, p, n_bins=2, kind="consistency")
    >>> [high < accuracy for high, accuracy in zip(band.high, band.accuracy)]
    [True, True]
    """
    function = "reliability_band"
    check_option(kind, ("confidence", "consistency"), "kind", function)
    check_binning(n_bins, strategy, function)
    check_integer(n_resamples, "n_resamples", function)
    check_level(level, function)
    rows = read_probabilities(y_true, probabilities, sample_weight, function, ignore_index)
    confidence, happened = rows.confidence()
    has_weight = rows.weights > 0  # a bin of the others has no accuracy
    ranked = rank(confidence[has_weight], happened[has_weight], rows.weights[has_weight])
    p = ranked.confidence
    correct = ranked.cells.rate
    weight = ranked.cells.weight
    n_rows = len(p)
    bins = make_bins(p, correct, weight, n_bins=n_bins, strategy=strategy)
    starts = np.cumsum(bins.count) - bins.count
    generator = np.random.default_rng(seed)
    parts = []
    for n_replicates in chunks(n_resamples, n_rows):
        shape = (n_replicates, n_rows)
        if kind == "confidence":
            weights = draw_counts(generator, n_replicates, n_rows) * weight
            weighted_outcome = weights * correct
        else:
            weights = np.broadcast_to(weight, shape)
            weighted_outcome = weights * (generator.random(shape) < p)
        bin_weight = np.add.reduceat(weights, starts, axis=1)
        bin_correct = np.add.reduceat(weighted_outcome, starts, axis=1)
        # A bin may be left without rows in a resample: that resample says nothing about it.
        nothing = np.full_like(bin_correct, np.nan)
        parts.append(np.divide(bin_correct, bin_weight, out=nothing, where=bin_weight > 0))
    accuracies = np.concatenate(parts)  # (replicates, bins)
    if kind == "consistency":
        accuracies = bins.rescale_noise(accuracies)
    tail = (1.0 - level) / 2.0
    low, high = np.nanquantile(accuracies, [tail, 1.0 - tail], axis=0)
    return ReliabilityBand(
        confidence=bins.p.tolist(),
        accuracy=bins.rate.tolist(),
        low=low.tolist(),
        high=high.tolist(),
        level=level,
        kind=kind,
    )
