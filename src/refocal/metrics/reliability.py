"""Accuracy against confidence, bin by bin, with the bands around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Indices, Vector
from refocal._validation import check_option
from refocal.metrics.bins import Bins, bins_of, check_binning
from refocal.metrics.influence import critical_value, variance_of_mean
from refocal.metrics.inputs import check_clusters, check_level, read_probabilities
from refocal.metrics.intervals import exact_ends, has_equal_weights, wilson
from refocal.rows import Predictions
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
    >>> band.kind, band.simultaneous, len(band.confidence) == len(band.low)
    ('consistency', False, True)
    """

    confidence: list[float]
    accuracy: list[float]
    low: list[float]
    high: list[float]
    level: float
    kind: str
    simultaneous: bool = False
    """Whether the level is that of all bins together; otherwise that of each bin."""


def reliability_curve(
    y_true: Any,
    probabilities: Any = None,
    *,
    n_bins: int = 15,
    strategy: str = "quantile",
    level: float = 0.95,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
    clusters: Any = None,
) -> ReliabilityCurve:
    """Mean confidence and accuracy of each bin, with Wilson's interval for the accuracy of that bin.

    `clusters` has what each row belongs to, such as its customer or day: rows of one are not independent.

    >>> curve = reliability_curve([0, 1, 1, 1], [0.25, 0.25, 0.75, 0.75], n_bins=2)
    >>> curve.confidence, curve.accuracy, curve.count
    ([0.25, 0.75], [0.5, 1.0], [2, 2])
    """
    function = "reliability_curve"
    check_binning(n_bins, strategy, function)
    check_level(level, function)
    rows = read_probabilities(
        y_true, probabilities, sample_weight, function, ignore_index, clusters=clusters, class_names=classes
    )
    check_clusters(rows.clusters, function)
    bins = bins_of(rows, n_bins=n_bins, strategy=strategy)
    return curve_of(bins, level, unit_variances(rows, bins))


def curve_of(bins: Bins, level: float, units: UnitVariances | None = None) -> ReliabilityCurve:
    """Bins as a curve; with weights or clusters the interval rests on the effective number of rows."""
    low, high = confidence_band(bins, units, level)
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
    simultaneous: bool = False,
    n_bins: int = 15,
    strategy: str = "quantile",
    level: float = 0.95,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
    clusters: Any = None,
) -> ReliabilityBand:
    """Band around the reliability curve, with the bins held fixed.

    "confidence" is where the accuracy of each bin may lie, by Wilson's interval, if `simultaneous` by that of Clopper
    and Pearson. "consistency" is where it would be seen if the model were calibrated, by the quantiles of as many rows
    as the bin has, each right with its mean confidence: a curve outside it is evidence against calibration.

    The level is that of each bin: of 15 bins of a calibrated model one or more lie outside in about half of all
    samples. With `simultaneous` it is that of all bins together: each then has the level to the power of 1 over their
    number (Šidák). `clusters` has what each row belongs to, such as its customer or day: rows of one are not
    independent.

    >>> y, p = [0, 1, 1, 1] * 25, [0.25, 0.25, 0.75, 0.75] * 25
    >>> band = reliability_band(y, p, n_bins=2, kind="consistency")
    >>> [high < accuracy for high, accuracy in zip(band.high, band.accuracy)]
    [True, True]
    """
    function = "reliability_band"
    check_option(kind, ("confidence", "consistency"), "kind", function)
    check_binning(n_bins, strategy, function)
    check_level(level, function)
    rows = read_probabilities(
        y_true, probabilities, sample_weight, function, ignore_index, clusters=clusters, class_names=classes
    )
    check_clusters(rows.clusters, function)
    bins = bins_of(rows, n_bins=n_bins, strategy=strategy)
    band = confidence_band if kind == "confidence" else consistency_band
    low, high = band(bins, unit_variances(rows, bins), level, simultaneous=simultaneous)
    return ReliabilityBand(
        confidence=bins.p.tolist(),
        accuracy=bins.rate.tolist(),
        low=low.tolist(),
        high=high.tolist(),
        level=level,
        kind=kind,
        simultaneous=simultaneous,
    )


class UnitVariances(NamedTuple):
    """The variance of the accuracy of each bin, (bins,), by rows of unequal weights or by clusters."""

    of_rate: Vector
    n_clusters: Indices | None
    """Those of which each bin has rows, (bins,); None for rows of unequal weights, which have no clusters."""


def unit_variances(rows: Predictions, bins: Bins) -> UnitVariances | None:
    """The variances of the accuracies of bins; None for rows that are independent and weigh the same."""
    if rows.clusters is None and has_equal_weights(bins):
        return None
    p, happened = rows.confidence()
    order = np.argsort(p, kind="stable")
    edges = np.cumsum(bins.count)[:-1]
    variances = []
    n_clusters = []
    for members in np.split(order, edges):
        weight = None if rows.weight is None else rows.weight[members]
        clusters = None if rows.clusters is None else rows.clusters[members]
        variances.append(variance_of_mean(happened[members], weight, clusters))
        n_clusters.append(0 if clusters is None else len(np.unique(clusters)))
    return UnitVariances(np.array(variances), None if rows.clusters is None else np.array(n_clusters))


def _size(bins: Bins, rate: Vector, units: UnitVariances | None) -> Vector:
    """The effective number of rows of bins of these rates; one at least, where a bin has one unit alone."""
    size = bins.size_at(rate)
    if units is None:
        return size
    variance = bins.rate * (1.0 - bins.rate)
    is_known = (units.of_rate > 0.0) & (variance > 0.0)
    of_units = np.divide(variance, units.of_rate, out=size.copy(), where=is_known)
    of_units = np.where(np.isinf(units.of_rate), 0.0, of_units)
    return np.maximum(np.minimum(size, of_units), np.minimum(size, 1.0))


def _by_student(size: Vector, units: UnitVariances | None, level: float) -> Vector:
    """The number of rows for which the normal interval is as wide as Student's, if there are few clusters.

    Wilson's interval depends on z² / size alone, so that the size is divided by (t / z)²; `exact_ends` does the same.
    """
    if units is None or units.n_clusters is None:
        return size
    student = np.array([critical_value(level, n_clusters) for n_clusters in units.n_clusters.tolist()])
    return np.asarray(size * np.square(critical_value(level) / student))


def level_of_bin(bins: Bins, level: float) -> float:
    """The level of each bin such that all together have `level`, by Šidák."""
    return float(level ** (1.0 / len(bins.weight)))


def confidence_band(
    bins: Bins, units: UnitVariances | None, level: float, *, simultaneous: bool = False
) -> tuple[Vector, Vector]:
    """Wilson's interval of the accuracy of each bin, by its effective number of rows.

    At the high level of bins that must hold together Wilson's interval is too short next to 0 and 1: `simultaneous`
    takes that of Clopper & Pearson (1934), the rates at which so many right rows, or so few, are not rare.
    """
    own_level = level_of_bin(bins, level) if simultaneous else level
    size = _by_student(_size(bins, bins.rate, units), units, own_level)
    return exact_ends(bins.rate, size, own_level) if simultaneous else wilson(bins.rate, size, own_level)


def consistency_band(
    bins: Bins, units: UnitVariances | None, level: float, *, simultaneous: bool = False
) -> tuple[Vector, Vector]:
    """The accuracies of bins of a calibrated model: quantiles of as many rows as each has, effectively.

    With clusters, whose sums are no binomials, the band is as wide as the normal interval at least.
    """
    # SciPy loads when a band needs it, as everywhere.
    from scipy.special import bdtrik

    p = np.clip(bins.p, 0.0, 1.0)
    own_level = level_of_bin(bins, level) if simultaneous else level
    size = _size(bins, p, units)
    margin = critical_value(own_level) * np.sqrt(p * (1.0 - p) / _by_student(size, units, own_level))
    size = np.maximum(np.round(size), 1.0)
    tails = np.array([[0.5 - 0.5 * own_level], [0.5 + 0.5 * own_level]])
    quantiles = np.ceil(bdtrik(tails, size, p)) / size
    # Where nothing can happen the quantile is 0, and where nothing else can it is 1.
    low, high = np.where(p > 0.0, np.where(p < 1.0, quantiles, 1.0), 0.0)
    if units is None or units.n_clusters is None:
        return low, high
    return np.clip(np.minimum(low, p - margin), 0.0, 1.0), np.clip(np.maximum(high, p + margin), 0.0, 1.0)
