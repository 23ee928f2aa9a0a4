"""Bootstrap intervals for every measure, for the difference of two sets of predictions, and for reliability curves.

A resample is a vector of counts, one a row, drawn once for all measures that are compared. A score that is a mean is
then one matrix product; the binned errors sort their rows once and move only the boundaries of the bins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from refocal._validation import check_integer, check_option
from refocal.errors import DataError, ParameterError
from refocal.metrics._inputs import (
    Rows,
    Vector,
    check_level,
    read_log_probabilities,
    read_probabilities,
)
from refocal.metrics._ranked import STRATEGIES, make_bins, rank
from refocal.metrics._resampled import EVALUATORS, Evaluate
from refocal.metrics.binned import curve_of
from refocal.metrics.scores import log_loss

_CHUNK = 1 << 21


@dataclass(frozen=True)
class Interval:
    """A measure with its bootstrap interval; `bias` is how far the resamples lie above the value on average.

    >>> from refocal.metrics import brier_score
    >>> y, p = [0, 1, 1, 1] * 25, [0.25, 0.75, 0.75, 1.0] * 25
    >>> found = bootstrap_interval(brier_score, y, p, n_resamples=100)
    >>> found.low < found.value < found.high, found.value
    (True, 0.046875)
    """

    value: float
    low: float
    high: float
    level: float
    standard_error: float
    bias: float
    n_resamples: int


@dataclass(frozen=True)
class PairedDifference:
    """First minus second, with its bootstrap interval and a two-sided p-value for no difference.

    >>> from refocal.metrics import brier_score
    >>> y, p = [0, 1, 1, 1] * 25, [0.25, 0.75, 0.75, 1.0] * 25
    >>> found = paired_bootstrap(brier_score, y, [0.5] * 100, p, n_resamples=100)
    >>> found.first, found.second, found.difference, found.low > 0
    (0.25, 0.046875, 0.203125, True)
    """

    difference: float
    low: float
    high: float
    level: float
    p_value: float
    first: float
    second: float
    n_resamples: int


@dataclass(frozen=True, eq=False)
class Resamples:
    """A measure of the data and of every resample; those of the same rows, seed and number belong together in pairs.

    >>> from refocal.metrics import brier_score
    >>> y, p = [0, 1, 1, 1] * 25, [0.25, 0.75, 0.75, 1.0] * 25
    >>> mine = resample(brier_score, y, p, n_resamples=100)
    >>> len(mine.draws), mine.interval().value == mine.value, mine.minus(mine).difference
    (100, True, 0.0)
    """

    value: float
    draws: Vector

    def interval(self, *, level: float = 0.95, method: str = "percentile") -> Interval:
        """See `bootstrap_interval`."""
        low, high = _quantiles(self.draws, level)
        if method == "basic":
            low, high = 2.0 * self.value - high, 2.0 * self.value - low
        n = len(self.draws)
        spread = float(np.std(self.draws, ddof=1)) if n > 1 else 0.0
        bias = float(np.mean(self.draws)) - self.value
        return Interval(self.value, float(low), float(high), level, spread, bias, n)

    def minus(self, other: Resamples, *, level: float = 0.95) -> PairedDifference:
        """See `paired_bootstrap`."""
        draws, n = self.draws - other.draws, len(self.draws)
        low, high = _quantiles(draws, level)
        # Counting the data themselves as one resample keeps the p-value above 0.
        tail = min(int(np.count_nonzero(draws <= 0)), int(np.count_nonzero(draws >= 0)))
        p_value = min(1.0, 2.0 * (tail + 1.0) / (n + 1.0))
        return PairedDifference(
            self.value - other.value, float(low), float(high), level, p_value, self.value, other.value, n
        )


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


def bootstrap_interval(
    metric: Callable[..., Any],
    y_true: Any,
    probabilities: Any,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    method: str = "percentile",
    seed: int = 0,
    sample_weight: Any = None,
    **options: Any,
) -> Interval:
    """Interval for a measure of this package by resampling the rows.

    `metric` is the function itself; `options` are passed on to it. "percentile" reads the interval off the
    resamples, "basic" mirrors them at the value, which undoes the upward bias that resampling adds to calibration
    errors. Spiegelhalter's test is represented by
    z, CORP by its miscalibration, the decomposition of the Brier score by its calibration part.

    >>> y, p = [0, 1, 1, 1] * 25, [0.25, 0.25, 0.75, 0.75] * 25
    >>> from refocal.metrics import expected_calibration_error
    >>> interval = bootstrap_interval(expected_calibration_error, y, p, n_bins=2)
    >>> interval.low < interval.value == 0.25 < interval.high
    True
    """
    function = "bootstrap_interval"
    check_option(method, ("percentile", "basic"), "method", function)
    check_level(level, function)
    found = resample(
        metric, y_true, probabilities, n_resamples=n_resamples, seed=seed, sample_weight=sample_weight, **options
    )
    return found.interval(level=level, method=method)


def resample(
    metric: Callable[..., Any],
    y_true: Any,
    probabilities: Any,
    *,
    n_resamples: int = 1000,
    seed: int = 0,
    sample_weight: Any = None,
    **options: Any,
) -> Resamples:
    """A measure on resampled rows, once, for an interval and for any number of paired differences.

    >>> from refocal.metrics import brier_score
    >>> y, p = [0, 1, 1, 1] * 25, [0.25, 0.25, 0.75, 0.75] * 25
    >>> half = resample(brier_score, y, [0.5] * 100)
    >>> half.minus(resample(brier_score, y, p)) == paired_bootstrap(brier_score, y, [0.5] * 100, p)
    True
    """
    function = "bootstrap_interval"
    check_integer(n_resamples, "n_resamples", function)
    evaluate, rows, value = _prepare(metric, y_true, probabilities, sample_weight, options, function)
    return Resamples(value, np.concatenate([evaluate(counts) for counts in _resamples(rows, n_resamples, seed)]))


def paired_bootstrap(
    metric: Callable[..., Any],
    y_true: Any,
    first: Any,
    second: Any,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    sample_weight: Any = None,
    **options: Any,
) -> PairedDifference:
    """Interval for metric(first) - metric(second) on the same rows, resampled together.

    The noise that both share cancels, so the interval is much narrower than those of the two values.

    >>> y, p = [0, 1, 1, 1] * 25, [0.25, 0.25, 0.75, 0.75] * 25
    >>> from refocal.metrics import brier_score
    >>> result = paired_bootstrap(brier_score, y, [0.5] * 100, p)
    >>> result.difference, result.low > 0
    (0.0625, True)
    """
    function = "paired_bootstrap"
    _check_settings(n_resamples, level, function)
    evaluate_first, rows, of_first = _prepare(metric, y_true, first, sample_weight, options, function)
    evaluate_second, _, of_second = _prepare(metric, y_true, second, sample_weight, options, function)
    draws = [(evaluate_first(counts), evaluate_second(counts)) for counts in _resamples(rows, n_resamples, seed)]
    first_draws, second_draws = (np.concatenate(part) for part in zip(*draws, strict=True))
    return Resamples(of_first, first_draws).minus(Resamples(of_second, second_draws), level=level)


def reliability_band(
    y_true: Any,
    probabilities: Any,
    *,
    kind: str = "confidence",
    n_bins: int = 15,
    strategy: str = "quantile",
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    sample_weight: Any = None,
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
    check_option(strategy, STRATEGIES, "strategy", function)
    check_integer(n_bins, "n_bins", function)
    _check_settings(n_resamples, level, function)
    rows = read_probabilities(y_true, probabilities, sample_weight, function)
    ranked = rank(*rows.confidence(), rows.weight)
    bins = make_bins(ranked.confidence, ranked.correct, ranked.weight, n_bins=n_bins, strategy=strategy)
    weight = np.ones(ranked.size) if ranked.weight is None else ranked.weight
    starts = np.cumsum(bins.count) - bins.count
    generator = np.random.default_rng(seed)
    accuracies = []
    for size in _chunks(n_resamples, ranked.size):
        if kind == "confidence":
            weights = _counts(generator, size, ranked.size) * weight
            outcome = weights * ranked.correct
        else:
            weights = np.broadcast_to(weight, (size, ranked.size))
            outcome = weights * (generator.random((size, ranked.size)) < ranked.confidence)
        total = np.add.reduceat(weights, starts, axis=1)
        hits = np.add.reduceat(outcome, starts, axis=1)
        # A bin may be left without rows in a resample: that resample says nothing about it.
        accuracies.append(np.divide(hits, total, out=np.full_like(hits, np.nan), where=total > 0))
    tail = (1.0 - level) / 2.0
    low, high = np.nanquantile(np.concatenate(accuracies), [tail, 1.0 - tail], axis=0)
    curve = curve_of(bins, level)
    return ReliabilityBand(curve.confidence, curve.accuracy, low.tolist(), high.tolist(), level, kind)


def _prepare(
    metric: Callable[..., Any], y_true: Any, values: Any, sample_weight: Any, options: dict[str, Any], function: str
) -> tuple[Evaluate, Rows, float]:
    if metric not in EVALUATORS:
        known = ", ".join(sorted(f.__name__ for f in EVALUATORS))
        raise ParameterError("metric", function, expected=f"one of the functions {known}", got=repr(metric))
    # The function itself checks its options, once, on the data themselves.
    metric(y_true, values, sample_weight=sample_weight, **options)
    read = read_log_probabilities if metric is log_loss else read_probabilities
    rows = read(y_true, values, sample_weight, function)
    evaluate = EVALUATORS[metric](rows, **options)
    value = float(evaluate(np.ones((1, rows.labels.shape[0])))[0])
    if not math.isfinite(value):
        raise DataError("probabilities", function, expected=f"such that {metric.__name__} is finite", got=repr(value))
    return evaluate, rows, value


def _resamples(rows: Rows, n_resamples: int, seed: int) -> Iterator[Vector]:
    generator, n = np.random.default_rng(seed), rows.labels.shape[0]
    for size in _chunks(n_resamples, n):
        yield _counts(generator, size, n)


def _chunks(n_resamples: int, n: int) -> Iterator[int]:
    """Sizes that keep a (resamples, rows) matrix at some millions of entries."""
    step = max(1, _CHUNK // n)
    for start in range(0, n_resamples, step):
        yield min(step, n_resamples - start)


def _counts(generator: np.random.Generator, size: int, n: int) -> Vector:
    """How often each row is drawn in each of `size` resamples of n rows, as floats."""
    drawn = generator.integers(0, n, size=(size, n))
    drawn += np.arange(size)[:, None] * n
    return np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)


def _quantiles(draws: Vector, level: float) -> Vector:
    tail = (1.0 - level) / 2.0
    return np.quantile(draws, [tail, 1.0 - tail])


def _check_settings(n_resamples: Any, level: Any, function: str) -> None:
    check_integer(n_resamples, "n_resamples", function)
    check_level(level, function)
