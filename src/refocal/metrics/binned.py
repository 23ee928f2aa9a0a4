"""Calibration errors over bins of the confidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from refocal._arrays import Vector, to_numpy
from refocal._validation import check_option
from refocal.metrics.bins import (
    NORMS,
    Bins,
    bins_of,
    check_binning,
    concatenate,
    join_cells,
    make_bins,
    norm_of_gaps,
    norms_of_gaps,
    parts_by_label,
    rank,
)
from refocal.metrics.column_bins import can_count, column_bins
from refocal.metrics.influence import variance_of_mean
from refocal.metrics.inputs import read_probabilities, row_sums
from refocal.metrics.inverted_error import ErrorModel, InvertedError, smoothed
from refocal.metrics.record import OF_CONFIDENCE, BlockSums, Metric, StreamedMetric
from refocal.rows import Predictions
from refocal.rows.labels import IgnoreIndex
from refocal.rows.predictions import unit

__all__ = ["classwise_ece", "debiased_ece", "ece_sweep", "expected_calibration_error"]


def expected_calibration_error(
    y_true: Any,
    probabilities: Any = None,
    *,
    n_bins: int = 15,
    strategy: str = "quantile",
    norm: str = "l1",
    kind: str = "confidence",
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """Mean gap between confidence and accuracy over bins of the confidence.

    ECE = Σ_b w_b |acc_b - conf_b| with w_b the share of the weight in bin b; `norm` "l2" is √(Σ_b w_b gap_b²) and
    "max" the largest gap. The confidence is the largest probability and the outcome whether its class occurred; of
    two classes it is the probability of class 1 and whether that occurred.

    `strategy` "quantile" makes bins of equal mass: a confidence x falls into bin floor(n_bins · P(confidence < x)).
    So equal values share a bin, whatever the order of the rows, and many ties leave some bins empty. Values are equal
    if all their digits are, here and in all other metrics: where a model has few distinct scores, the softmax of equal
    ones may differ in the last place, and `np.round(probabilities, 12)` makes them equal again. "uniform"
    makes bins of equal width, closed on the left, the last one on both sides. "interpolated" is the equal-mass
    histogram of much published code, with edges interpolated between the sorted values.

    `kind` "top_label" bins the rows of each predicted class on their own (Gupta & Ramdas 2022).

    >>> expected_calibration_error([0, 1, 1, 1], [0.25, 0.25, 0.75, 0.75], n_bins=2)
    0.25
    """
    kinds = ("confidence", "top_label")
    function = "expected_calibration_error"
    rows = read_probabilities(y_true, probabilities, sample_weight, function, ignore_index, class_names=classes)
    check_binning(n_bins, strategy, function, norm)
    check_option(kind, kinds, "kind", function)
    return norm_of_gaps(bins_of(rows, n_bins=n_bins, strategy=strategy, kind=kind), norm)


def _ece_model(
    rows: Predictions, *, n_bins: int = 15, strategy: str = "quantile", norm: str = "l1", kind: str = "confidence"
) -> ErrorModel | None:
    if kind == "confidence":
        return _norm_model(bins_of(rows, n_bins=n_bins, strategy=strategy), norm)
    return _model_of_parts(parts_by_label(rows, n_bins=n_bins, strategy=strategy), norm)


def _model_of_parts(parts: list[Bins], norm: str) -> ErrorModel | None:
    """The error over the bins of several classes, one class after the other; the gaps are smoothed within a class."""
    most_cells = 5000  # of some hundred classes: more would take minutes
    fewest_rows = 5.0  # of a bin on average: the outcome of fewer is not nearly normal, and 1 of 200 rows covers 50 %
    n_cells = sum(len(part.weight) for part in parts)
    n_rows = sum(int(part.count.sum()) for part in parts)
    if n_cells > most_cells or n_rows < fewest_rows * n_cells:
        return None
    seen = np.concatenate([smoothed(part.gap / part.weight) for part in parts])
    return _norm_model(concatenate(parts), norm)._replace(seen=seen, by_confidence=False)


def _ece_streamed(sums: BlockSums) -> StreamedMetric:
    calibration = sums.calibration
    summary = InvertedError(calibration.ece, _norm_model(sums.bins, "l1"), sums.bins)
    return StreamedMetric(calibration.ece, calibration.error_bound, summary)


def _norm_model(bins: Bins, norm: str) -> ErrorModel:
    """`norm_of_gaps` as a function of gaps (replicates, bins)."""
    share = bins.share

    def statistic(gap: Vector) -> Any:
        if norm == "l1":
            return np.abs(gap) @ share
        if norm == "l2":
            return np.sqrt(np.square(gap) @ share)
        return np.abs(gap).max(axis=-1)

    power = 0.5 if norm == "l2" else 1.0
    return ErrorModel(
        bins, statistic, true_error=statistic, error_scale=statistic, power=power, is_maximum=norm == "max"
    )


def classwise_ece(
    y_true: Any,
    probabilities: Any = None,
    *,
    n_bins: int = 15,
    strategy: str = "quantile",
    norm: str = "l1",
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """Mean over the classes of the calibration error of that class's probability (Kull et al. 2019).

    All classes have equal weight, including those that never occur.

    >>> classwise_ece([0, 1], [[1.0, 0.0], [0.5, 0.5]], n_bins=2)
    0.25
    """
    rows = read_probabilities(y_true, probabilities, sample_weight, "classwise_ece", ignore_index, class_names=classes)
    check_binning(n_bins, strategy, "classwise_ece", norm)
    labels: Sequence[int] = range(rows.n_classes)
    absent_error = 0.0  # summed over the classes that never occur, where these are not measured one by one
    if norm == "l1" and not rows.binary and rows.n_classes > len(rows.labels):
        # A loop over all classes of a vocabulary would take minutes. The l1 error of a class that never occurs is its
        # mean probability.
        present = np.unique(rows.labels)
        sums_of_all = to_numpy(row_sums(rows.values))
        sums_of_present = to_numpy(row_sums(rows.values[:, present]))
        labels = present.tolist()
        absent_error = float(np.average(sums_of_all - sums_of_present, weights=rows.weight))
    if len(labels) == rows.n_classes and can_count(rows, n_bins, strategy):
        columns = column_bins(rows, n_bins)
        errors = norms_of_gaps(columns.confidence - columns.correct, columns.count, norm).tolist()
        return math.fsum(errors) / rows.n_classes
    errors = []
    for p, occurs in rows.events(labels):
        bins = make_bins(p, occurs, rows.weight, n_bins=n_bins, strategy=strategy)
        errors.append(norm_of_gaps(bins, norm))
    return math.fsum([*errors, absent_error]) / rows.n_classes


def _classwise_model(
    rows: Predictions, *, n_bins: int = 15, strategy: str = "quantile", norm: str = "l1"
) -> ErrorModel | None:
    """The bins of all classes as one set: since each class has the same weight, the mean of l1 errors is that of all.

    The errors of classes are correlated, because a mistake changes two of them, the true and the predicted class: the
    variance is that of their sum. Two classes have the same error, so that one of them is enough.
    """
    if norm != "l1":
        return None
    if rows.binary or rows.n_classes == 2:
        p, happened = rows.event_of_column(1)
        return _norm_model(make_bins(p, happened, rows.weight, n_bins=n_bins, strategy=strategy), norm)
    parts = []
    influence = np.zeros(len(rows.labels))
    for p, occurs in rows.events(range(rows.n_classes)):
        bins = make_bins(p, occurs, rows.weight, n_bins=n_bins, strategy=strategy)
        parts.append(bins)
        cell = np.empty(len(influence), dtype=np.int64)
        cell[np.argsort(unit(p), kind="stable")] = np.repeat(np.arange(len(bins.weight)), bins.count)
        # The error Σ share |gap| of a class is the mean of sign(gap) · (p - y) over rows.
        influence += np.sign(bins.gap)[cell] * (unit(p) - to_numpy(occurs)) / rows.n_classes
    model = _model_of_parts(parts, norm)
    return None if model is None else model._replace(total_variance=float(variance_of_mean(influence, rows.weight)))


def _classwise_streamed(sums: BlockSums) -> StreamedMetric | None:
    if not sums.classes:
        return None
    errors = [of_class.ece for of_class in sums.classes]
    bounds = [of_class.error_bound for of_class in sums.classes]
    return StreamedMetric(float(np.mean(errors)), float(np.mean(bounds)))


def debiased_ece(
    y_true: Any,
    probabilities: Any = None,
    *,
    n_bins: int = 15,
    strategy: str = "quantile",
    norm: str = "l2",
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """Calibration error without the bias that label noise adds (Kumar et al. 2019).

    "l2": √ of Σ_b w_b (gap_b² - acc_b(1 - acc_b)/(n_b - 1)), or 0 where that is negative. "l1": each |gap_b| loses
    its expected rise E|gap_b + s_b Z| - |gap_b| under normal noise of variance s_b² = acc_b(1 - acc_b)/n_b. n_b is
    the number of rows, with weights the effective one; bins of a single row are not corrected.

    >>> y = [0, 1] * 50
    >>> debiased_ece(y, [0.5] * 100, n_bins=1), round(debiased_ece(y, [0.6] * 100, n_bins=1), 4)
    (0.0, 0.0865)
    """
    rows = read_probabilities(y_true, probabilities, sample_weight, "debiased_ece", ignore_index, class_names=classes)
    check_binning(n_bins, strategy, "debiased_ece", norm, norms=("l1", "l2"))
    bins = bins_of(rows, n_bins=n_bins, strategy=strategy)
    gap = bins.gap / bins.weight
    if norm == "l2":
        return float(debiased_model(bins).statistic(gap))
    return float(_debiased_l1(bins, gap))


def _debiased_l1(bins: Bins, gap: Vector) -> Any:
    """The l1 `debiased_ece` of gaps (…, bins).

    E|gap + s Z| = s √(2/π) exp(-r²/2) + |gap| erf(r/√2) with r = |gap| / s, for standard normal Z.
    """
    # SciPy loads when it is needed, as everywhere.
    from scipy.special import erf

    rate = np.clip(bins.p - gap, 0.0, 1.0)
    noise = np.sqrt(rate * (1.0 - rate) / bins.size_at(rate))
    gap = np.abs(gap)
    ratio = np.divide(gap, noise, out=np.full_like(gap, np.inf), where=noise > 0.0)
    expected = noise * math.sqrt(2.0 / math.pi) * np.exp(-ratio * ratio / 2.0) + gap * erf(ratio / math.sqrt(2.0))
    return np.maximum((2.0 * gap - expected) @ bins.share, 0.0)


def _debiased_model(
    rows: Predictions, *, n_bins: int = 15, strategy: str = "quantile", norm: str = "l2"
) -> ErrorModel | None:
    bins = bins_of(rows, n_bins=n_bins, strategy=strategy)
    if norm == "l2":
        return debiased_model(bins)
    true_error = _norm_model(bins, "l1").true_error
    return ErrorModel(bins, partial(_debiased_l1, bins), true_error=true_error, error_scale=true_error)


def debiased_model(bins: Bins) -> ErrorModel:
    """The l2 `debiased_ece` as a function of the gaps of bins."""

    def statistic(gap: Vector) -> Vector:
        return np.asarray(np.sqrt(np.maximum((np.square(gap) - label_noise(bins, gap)) @ bins.share, 0.0)))

    true_error = _norm_model(bins, "l2").true_error
    return ErrorModel(bins, statistic, true_error=true_error, error_scale=true_error, power=0.5)


def label_noise(bins: Bins, gap: Vector) -> Vector:
    """What the noise of the outcomes adds to the squares of such gaps (…, bins); 0 for bins of one row.

    With the rate r of a bin of effectively n rows that is r (1 - r) n / (n - 1), which estimates the variance of an
    outcome without bias, over the size of the bin for weights that depend on the outcome: r (1 - r) / (n - 1) without
    weights. The weight of a row of each outcome is that of many bins, which says nothing about the n of one.
    """
    largest_factor = 2.0  # that of two rows; one that weighs next to nothing beside another says nothing
    # Simulated rates may lie beyond 0 and 1, where the estimate is negative: bounded, it would be too large on average.
    outcome = bins.p - gap
    has_rest = bins.size > 1.0 + 1e-9
    factor = np.divide(bins.size, bins.size - 1.0, out=np.zeros_like(bins.size), where=has_rest)
    return np.asarray(
        outcome * (1.0 - outcome) / bins.size_at(np.clip(outcome, 0.0, 1.0)) * np.minimum(factor, largest_factor)
    )


def ece_sweep(
    y_true: Any,
    probabilities: Any = None,
    *,
    norm: str = "l1",
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """Equal-mass calibration error with as many bins as keep the accuracy rising (Roelofs et al. 2022).

    The number of bins grows from 1 until the accuracy of the bins first fails to be non-decreasing; the last
    number before that is used. A weight of 2 is a row given twice. Weights so unequal that only thousands of bins
    would part two rows leave them together.

    >>> ece_sweep([0, 1, 0, 1], [0.1, 0.2, 0.6, 0.9])
    0.3
    """
    rows = read_probabilities(y_true, probabilities, sample_weight, "ece_sweep", ignore_index, class_names=classes)
    check_option(norm, NORMS, "norm", "ece_sweep")
    ranked = rank(*rows.confidence(), rows.weight)
    finest = ranked.ties()
    if _is_rising(finest.rate):
        # Then every coarser cut rises too: no need to try them all.
        return norm_of_gaps(finest, norm)
    n_rows = len(ranked.confidence)
    correct_below = np.append(0.0, np.cumsum(ranked.cells.correct))
    share_below = np.append(0.0, ranked.shares)
    # As many bins as rows part all values; with weights, as many as the least weight goes into their sum, or 4,096.
    most_bins = n_rows if rows.weight is None else max(n_rows, 1 << 12)
    best = ranked.starts(1)
    for n_bins in range(2, most_bins + 1):
        starts = ranked.starts(n_bins)
        edges = np.append(starts, n_rows)
        correct = np.diff(correct_below[edges])
        share = np.diff(share_below[edges])
        if not _is_rising(correct[share > 0] / share[share > 0]):
            break
        best = starts
    return norm_of_gaps(join_cells(ranked.cells, best), norm)


def _is_rising(rates: Vector) -> bool:
    # Rates that are equal but for rounding count as rising.
    return bool(np.all(np.diff(rates) >= -1e-12 * rates.max()))


METRICS = (
    Metric(
        "ece",
        expected_calibration_error,
        "ECE",
        _ece_streamed,
        _ece_model,
        shown="with interval",
        column=(1, 4),
        column_with_interval=True,
        **OF_CONFIDENCE,
    ),
    Metric(
        "classwise_ece",
        classwise_ece,
        "class-wise ECE",
        _classwise_streamed,
        _classwise_model,
        unit="%",
        shown="value",
        raised_by_noise=True,
    ),
    Metric(
        "max_calibration_error",
        partial(expected_calibration_error, norm="max"),
        "largest gap",
        lambda sums: StreamedMetric(sums.calibration.largest_gap, sums.calibration.largest_gap_bound),
        partial(_ece_model, norm="max"),
        shown="value",
        **OF_CONFIDENCE,
    ),
    Metric("debiased_ece", debiased_ece, "debiased ECE", error_model=_debiased_model, **OF_CONFIDENCE),
    Metric("ece_sweep", ece_sweep, "ECE, swept bins", **OF_CONFIDENCE),
)
