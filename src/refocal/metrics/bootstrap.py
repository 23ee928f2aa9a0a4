"""Bootstrap intervals for every metric and for the difference of two sets of predictions.

A resample is a vector of counts, one per row, drawn once for all measures that are compared. A score that is a mean is
then one matrix product; the binned errors sort their rows once and move only the boundaries of the bins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Vector
from refocal._validation import check_integer, check_option
from refocal.errors import DataError
from refocal.metrics.bins import bins_of
from refocal.metrics.inputs import check_level, mean, read_log_probabilities, read_probabilities
from refocal.metrics.intervals import SHAPE_BINS, Interval, InvertedError, PairedDifference, Summary
from refocal.metrics.record import Metric
from refocal.metrics.records import metric_of
from refocal.metrics.resampling import Evaluate, draw_resamples, resample_mean, resample_rows
from refocal.rows import Predictions
from refocal.rows.labels import IgnoreIndex

__all__ = ["Resamples", "bootstrap_interval", "paired_bootstrap", "resample"]


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
    limits: tuple[float, float] = (-math.inf, math.inf)
    """The range of the measure; intervals are clipped to it."""

    def interval(self, *, level: float = 0.95, method: str = "percentile") -> Interval:
        """See `bootstrap_interval`."""
        low, high = _quantiles(self.draws, level)
        if method == "basic":
            low, high = 2.0 * self.value - high, 2.0 * self.value - low
        n = len(self.draws)
        spread = float(np.std(self.draws, ddof=1)) if n > 1 else 0.0
        bias = float(np.mean(self.draws)) - self.value
        low, high = np.clip([low, high], *self.limits).tolist()
        return Interval(self.value, low, high, level, spread, bias, n)

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


def bootstrap_interval(
    metric: Callable[..., Any],
    y_true: Any,
    probabilities: Any = None,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    method: str | None = None,
    seed: int = 0,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    **options: Any,
) -> Interval:
    """Interval for a metric of this package.

    `metric` is the function itself; `options` are passed on to it. By default the intervals of scores
    that are means come from resampled rows ("percentile"). The binned, debiased, smooth and KS errors, which noise
    increases, use the true errors that a test does not reject ("inverted"; benchmarks/results/metrics.md has the
    coverage of each); the interval of `squared_ece` is the square of the debiased one's. `method` "percentile" and
    "basic", which mirrors the resamples at the value, work for every metric. Intervals stay within the range of their
    metric. Spiegelhalter's test is represented by z, CORP by its miscalibration, the decomposition of the Brier score
    by its calibration part.

    >>> y, p = [0, 1, 1, 1] * 25, [0.25, 0.25, 0.75, 0.75] * 25
    >>> from refocal.metrics import expected_calibration_error
    >>> interval = bootstrap_interval(expected_calibration_error, y, p, n_bins=2)
    >>> interval.low < interval.value == 0.25 < interval.high
    True
    """
    function = "bootstrap_interval"
    if method is not None:
        check_option(method, ("percentile", "basic"), "method", function)
    check_level(level, function)
    check_integer(n_resamples, "n_resamples", function)
    read = _read(metric, options, y_true, probabilities, sample_weight, function, ignore_index)
    if method is None:
        return summarise([read], n_resamples, seed, **options)[0].interval(level=level)
    return _resample([read], n_resamples, seed, options)[0].interval(level=level, method=method)


class MetricRows(NamedTuple):
    """The record of a metric, checked rows of it, its value, the terms that it is the mean of, and its own summary."""

    record: Metric
    rows: Predictions
    value: float
    terms: Vector | None = None
    summary: Summary | None = None

    @classmethod
    def of(cls, record: Metric, rows: Predictions, **options: Any) -> MetricRows:
        """A metric measured on checked rows."""
        summary = None if record.summary is None else record.summary(rows, **options)
        if record.terms is not None:
            terms = record.terms(rows)
            return cls(record, rows, mean(terms, rows.weight), terms, summary)
        return cls(record, rows, record.measure(rows, **options) if summary is None else summary.value, None, summary)

    def resampled(self, **options: Any) -> Evaluate:
        """The metric for many resamples of the rows."""
        if self.terms is not None:
            return resample_mean(self.terms, self.rows.weight)
        reduced = self.record.of_confidence and options.get("kind", "confidence") == "confidence"
        return resample_rows(self.rows.reduced() if reduced else self.rows, self.record.measure, **options)


def summarise(measured: Sequence[MetricRows], n_resamples: int, seed: int, **options: Any) -> list[Summary]:
    """The data for the default intervals of metrics of the same rows, which are resampled once for all of them."""
    found: list[Summary | None] = []
    for record, rows, value, _, summary in measured:
        if summary is None and record.error_model is not None:
            model = record.error_model(rows, **options)
            if model is not None:
                summary = InvertedError(value, model, bins_of(rows, n_bins=SHAPE_BINS), n_resamples, seed)
        found.append(summary)
    others = [each for each, known in zip(measured, found, strict=True) if known is None]
    resampled = iter(_resample(others, n_resamples, seed, options) if others else ())
    return [next(resampled) if known is None else known for known in found]


def resample(
    metric: Callable[..., Any],
    y_true: Any,
    probabilities: Any,
    *,
    n_resamples: int = 1000,
    seed: int = 0,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    **options: Any,
) -> Resamples:
    """A measure on resampled rows, once, for an interval and for any number of paired differences.

    >>> from refocal.metrics import brier_score
    >>> y, p = [0, 1, 1, 1] * 25, [0.25, 0.25, 0.75, 0.75] * 25
    >>> half = resample(brier_score, y, [0.5] * 100)
    >>> half.minus(resample(brier_score, y, p)) == paired_bootstrap(brier_score, y, [0.5] * 100, p)
    True
    """
    function = "resample"
    check_integer(n_resamples, "n_resamples", function)
    read = _read(metric, options, y_true, probabilities, sample_weight, function, ignore_index)
    return _resample([read], n_resamples, seed, options)[0]


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
    ignore_index: IgnoreIndex = None,
    **options: Any,
) -> PairedDifference:
    """Interval for metric(first) - metric(second) on the same rows, resampled together.

    The noise that both share cancels, so the interval is much narrower than those of the two values. It holds for
    scores that are means; for calibration errors, whose biases differ, see `squared_ece_difference`.

    >>> y, p = [0, 1, 1, 1] * 25, [0.25, 0.25, 0.75, 0.75] * 25
    >>> from refocal.metrics import brier_score
    >>> result = paired_bootstrap(brier_score, y, [0.5] * 100, p)
    >>> result.difference, result.low > 0
    (0.0625, True)
    """
    function = "paired_bootstrap"
    check_integer(n_resamples, "n_resamples", function)
    check_level(level, function)
    pair = [_read(metric, options, y_true, each, sample_weight, function, ignore_index) for each in (first, second)]
    of_first, of_second = _resample(pair, n_resamples, seed, options)
    return of_first.minus(of_second, level=level)


def _read(
    metric: Any, options: dict[str, Any], y_true: Any, values: Any, weight: Any, function: str, ignored: IgnoreIndex
) -> MetricRows:
    """A metric, given by its function, measured on the checked arguments."""
    record = metric_of(metric, function)
    read = read_log_probabilities if record.takes_logs else read_probabilities
    found = MetricRows.of(record, read(y_true, values, weight, function, ignored), **options)
    if not math.isfinite(found.value):
        raise DataError("probabilities", function, expected=f"such that {record.name} is finite", got=repr(found.value))
    return found


def _resample(measured: Sequence[MetricRows], n_resamples: int, seed: int, options: dict[str, Any]) -> list[Resamples]:
    evaluates = [each.resampled(**options) for each in measured]
    matrices = draw_resamples(len(measured[0].rows.labels), n_resamples, seed)
    draws = [[evaluate(counts) for evaluate in evaluates] for counts in matrices]
    return [
        Resamples(each.value, np.concatenate(mine), each.record.range)
        for each, mine in zip(measured, zip(*draws, strict=True), strict=True)
    ]


def _quantiles(draws: Vector, level: float) -> Vector:
    tail = (1.0 - level) / 2.0
    return np.quantile(draws, [tail, 1.0 - tail])
