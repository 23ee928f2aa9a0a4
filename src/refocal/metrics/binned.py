"""Calibration errors over bins of the confidence, and the reliability curve they summarise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from refocal._validation import check_integer, check_option
from refocal.metrics._inputs import Rows, Vector, check_level, read_probabilities
from refocal.metrics._ranked import STRATEGIES, Bins, make_bins, norm_of_gaps, quantile_starts, rank, sum_bins

NORMS = ("l1", "l2", "max")
KINDS = ("confidence", "top_label")
_MOST_SWEPT = 1 << 12


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


def expected_calibration_error(
    y_true: Any,
    probabilities: Any,
    *,
    n_bins: int = 15,
    strategy: str = "quantile",
    norm: str = "l1",
    kind: str = "confidence",
    sample_weight: Any = None,
) -> float:
    """Mean gap between confidence and accuracy over bins of the confidence.

    ECE = Σ_b w_b |acc_b - conf_b| with w_b the share of the weight in bin b; `norm` "l2" is √(Σ_b w_b gap_b²) and
    "max" the largest gap. The confidence is the largest probability and the outcome whether its class occurred;
    where only the probability of class 1 is given, it is that probability and whether class 1 occurred.

    `strategy` "quantile" makes bins of equal mass: a confidence x falls into bin floor(n_bins · P(confidence < x)).
    So equal values share a bin, whatever the order of the rows, and many ties leave some bins empty. "uniform"
    makes bins of equal width, closed on the left, the last one on both sides. "interpolated" is the equal-mass
    histogram of much published code, with edges interpolated between the sorted values.

    `kind` "top_label" bins the rows of each predicted class on their own (Gupta & Ramdas 2022).

    >>> expected_calibration_error([0, 1, 1, 1], [0.25, 0.25, 0.75, 0.75], n_bins=2)
    0.25
    """
    function = "expected_calibration_error"
    _check_options(n_bins, strategy, norm, function)
    check_option(kind, KINDS, "kind", function)
    rows = read_probabilities(y_true, probabilities, sample_weight, function)
    return norm_of_gaps(bins_of(rows, n_bins=n_bins, strategy=strategy, kind=kind), norm)


def classwise_ece(
    y_true: Any,
    probabilities: Any,
    *,
    n_bins: int = 15,
    strategy: str = "quantile",
    norm: str = "l1",
    sample_weight: Any = None,
) -> float:
    """Mean over the classes of the calibration error of that class's probability (Kull et al. 2019).

    Every class counts the same, also one that never occurs.

    >>> classwise_ece([0, 1], [[1.0, 0.0], [0.5, 0.5]], n_bins=2)
    0.25
    """
    function = "classwise_ece"
    _check_options(n_bins, strategy, norm, function)
    rows = read_probabilities(y_true, probabilities, sample_weight, function)
    return classwise_of(rows, n_bins=n_bins, strategy=strategy, norm=norm)


def classwise_of(rows: Rows, *, n_bins: int, strategy: str, norm: str) -> float:
    """`classwise_ece` of checked rows."""
    errors = [
        norm_of_gaps(make_bins(*rows.event(label), rows.weight, n_bins=n_bins, strategy=strategy), norm)
        for label in range(rows.n_classes)
    ]
    return math.fsum(errors) / rows.n_classes


def debiased_ece(
    y_true: Any,
    probabilities: Any,
    *,
    n_bins: int = 15,
    strategy: str = "quantile",
    norm: str = "l2",
    sample_weight: Any = None,
) -> float:
    """Calibration error less the part that the noise of the labels alone would show (Kumar et al. 2019).

    "l2": √ of Σ_b w_b (gap_b² - acc_b(1 - acc_b)/(n_b - 1)), or 0 where that is negative. "l1": each |gap_b| loses
    its expected rise E|gap_b + s_b Z| - |gap_b| under normal noise of variance s_b² = acc_b(1 - acc_b)/n_b. n_b is
    the number of rows, with weights the effective one; a bin of one row cannot tell its noise and stays as it is.

    >>> y = [0, 1] * 50
    >>> debiased_ece(y, [0.5] * 100, n_bins=1), round(debiased_ece(y, [0.6] * 100, n_bins=1), 4)
    (0.0, 0.0865)
    """
    function = "debiased_ece"
    _check_options(n_bins, strategy, norm, function, norms=("l1", "l2"))
    rows = read_probabilities(y_true, probabilities, sample_weight, function)
    return debiased_norm(bins_of(rows, n_bins=n_bins, strategy=strategy), norm)


def debiased_norm(bins: Bins, norm: str) -> float:
    """The norm of the gaps, freed of the bias that the noise of the labels gives it."""
    share, outcome, gap = bins.weight / bins.weight.sum(), bins.correct / bins.weight, bins.gap / bins.weight
    size = np.square(bins.weight) / bins.squared_weight
    noise = outcome * (1.0 - outcome)
    if norm == "l2":
        variance = np.divide(noise, size - 1.0, out=np.zeros_like(noise), where=size > 1.0)
        return math.sqrt(max(0.0, float(share @ (np.square(gap) - variance))))
    spread = np.sqrt(noise / size)
    expected = np.array([_folded_normal_mean(abs(g), s) for g, s in zip(gap, spread, strict=True)])
    return max(0.0, float(share @ (2.0 * np.abs(gap) - expected)))


def ece_sweep(y_true: Any, probabilities: Any, *, norm: str = "l1", sample_weight: Any = None) -> float:
    """Equal-mass calibration error with as many bins as keep the accuracy rising (Roelofs et al. 2022).

    The number of bins grows from 1 until the accuracy of the bins first fails to be non-decreasing; the last
    number before that is used. A weight of 2 is a row given twice. Weights so unequal that only thousands of bins
    would part two rows leave them together.

    >>> ece_sweep([0, 1, 0, 1], [0.1, 0.2, 0.6, 0.9])
    0.3
    """
    function = "ece_sweep"
    check_option(norm, NORMS, "norm", function)
    rows = read_probabilities(y_true, probabilities, sample_weight, function)
    return sweep_error(*rows.confidence(), rows.weight, norm=norm)


def sweep_error(confidence: Vector, correct: Any, weight: Vector | None, *, norm: str) -> float:
    """`ece_sweep` of checked vectors."""
    ranked = rank(confidence, correct, weight)
    finest = sum_bins(ranked, np.concatenate([np.zeros(1, dtype=np.int64), ranked.ends_of_ties()[:-1]]))
    if _is_rising(finest.correct / finest.weight):
        # So is every coarser cut: no need to try them all.
        return norm_of_gaps(finest, norm)
    hits = ranked.correct if ranked.weight is None else ranked.correct * ranked.weight
    hits, shares = (np.append(0.0, x) for x in (np.cumsum(hits), ranked.shares))
    best = quantile_starts(ranked, 1)
    # As many bins as rows part all values; with weights, as many as the least weight goes into their sum.
    most = ranked.size if ranked.weight is None else max(ranked.size, _MOST_SWEPT)
    for n_bins in range(2, most + 1):
        starts = quantile_starts(ranked, n_bins)
        edges = np.unique(np.append(starts, ranked.size))
        mass = np.diff(shares[edges])
        if not _is_rising(np.diff(hits[edges])[mass > 0] / mass[mass > 0]):
            break
        best = starts
    return norm_of_gaps(sum_bins(ranked, best), norm)


def _is_rising(rates: Vector) -> bool:
    # Rates that are equal but for rounding count as rising.
    return bool(np.all(np.diff(rates) >= -1e-12 * rates.max()))


def reliability_curve(
    y_true: Any,
    probabilities: Any,
    *,
    n_bins: int = 15,
    strategy: str = "quantile",
    level: float = 0.95,
    sample_weight: Any = None,
) -> ReliabilityCurve:
    """Mean confidence and accuracy of each bin, with Wilson's interval for the accuracy.

    >>> curve = reliability_curve([0, 1, 1, 1], [0.25, 0.25, 0.75, 0.75], n_bins=2)
    >>> curve.confidence, curve.accuracy, curve.count
    ([0.25, 0.75], [0.5, 1.0], [2, 2])
    """
    function = "reliability_curve"
    _check_options(n_bins, strategy, "l1", function)
    check_level(level, function)
    rows = read_probabilities(y_true, probabilities, sample_weight, function)
    bins = bins_of(rows, n_bins=n_bins, strategy=strategy)
    return curve_of(bins, level)


def curve_of(bins: Bins, level: float) -> ReliabilityCurve:
    """Bins as a curve; with weights the interval rests on the effective number of rows (Σw)² / Σw²."""
    outcome = bins.correct / bins.weight
    size = np.square(bins.weight) / bins.squared_weight
    z2 = NormalDist().inv_cdf(0.5 + level / 2.0) ** 2
    centre = (outcome + z2 / (2.0 * size)) / (1.0 + z2 / size)
    half = np.sqrt(z2 * (outcome * (1.0 - outcome) / size + z2 / (4.0 * size * size))) / (1.0 + z2 / size)
    return ReliabilityCurve(
        count=bins.count.tolist(),
        weight=bins.weight.tolist(),
        confidence=(bins.confidence / bins.weight).tolist(),
        accuracy=outcome.tolist(),
        low=np.maximum(centre - half, 0.0).tolist(),
        high=np.minimum(centre + half, 1.0).tolist(),
        level=level,
    )


def bins_of(rows: Rows, *, n_bins: int, strategy: str, kind: str = "confidence") -> Bins:
    """The rows' confidence in bins; for "top_label" the bins of every predicted class, one after the other."""
    if kind == "confidence":
        return make_bins(*rows.confidence(), rows.weight, n_bins=n_bins, strategy=strategy)
    confidence, correct, predicted = rows.top()
    parts = []
    for label in np.unique(predicted):
        of_label = predicted == label
        weight = None if rows.weight is None else rows.weight[of_label]
        if weight is None or weight.sum() > 0:
            parts.append(make_bins(confidence[of_label], correct[of_label], weight, n_bins=n_bins, strategy=strategy))
    fields = ("count", "weight", "confidence", "correct", "squared_weight")
    return Bins(*(np.concatenate([getattr(part, field) for part in parts]) for field in fields))


def _folded_normal_mean(centre: float, spread: float) -> float:
    """E|centre + spread · Z| for a standard normal Z."""
    if spread == 0.0:
        return centre
    ratio = centre / spread
    return spread * math.sqrt(2.0 / math.pi) * math.exp(-ratio * ratio / 2.0) + centre * math.erf(
        ratio / math.sqrt(2.0)
    )


def _check_options(n_bins: Any, strategy: Any, norm: Any, function: str, norms: tuple[str, ...] = NORMS) -> None:
    check_integer(n_bins, "n_bins", function)
    check_option(strategy, STRATEGIES, "strategy", function)
    check_option(norm, norms, "norm", function)
