"""The default interval of every metric, by its own summary or by the bootstrap, and of the difference of two models.

A resample is a vector of counts, one per row, drawn once for all measures that are compared. With clusters, whole
clusters are drawn, so that all rows of one have the same count. A score that is a mean is then one matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Vector
from refocal._validation import check_integer, check_option, check_seed
from refocal.errors import DataError, InputWarning, ParameterError, ShapeError, warn
from refocal.metrics.bins import bins_of
from refocal.metrics.inputs import (
    check_clusters,
    check_level,
    mean,
    read_log_probabilities,
    read_pair,
    read_probabilities,
)
from refocal.metrics.intervals import Interval, MeanSummary, PairedDifference, Summary
from refocal.metrics.inverted_error import InvertedError, noise_of_clusters
from refocal.metrics.record import Metric
from refocal.metrics.records import METRICS, as_metric
from refocal.metrics.resampling import Evaluate, draw_resamples, resample_mean, resample_rows
from refocal.rows import Predictions
from refocal.rows.labels import IgnoreIndex

__all__ = ["Resamples", "bootstrap_interval", "paired_bootstrap", "resample"]

METHODS_OF_INTERVALS = ("percentile", "basic")
"""How an interval follows from resamples."""


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
        check_level(level, "Resamples.interval")
        check_option(method, METHODS_OF_INTERVALS, "method", "Resamples.interval")
        low, high = _quantiles(self.draws, level)
        if method == "basic":
            mirrored = (2.0 * self.value - high, 2.0 * self.value - low)
            low, high = mirrored
        low, high = np.clip([low, high], *self.limits).tolist()
        n_resamples = len(self.draws)
        return Interval(
            value=self.value,
            low=low,
            high=high,
            level=level,
            standard_error=float(np.std(self.draws, ddof=1)) if n_resamples > 1 else 0.0,
            bias=float(np.mean(self.draws)) - self.value,
            n_resamples=n_resamples,
        )

    def minus(self, other: Resamples, *, level: float = 0.95) -> PairedDifference:
        """The difference with the quantiles of that of the resamples as its interval."""
        check_level(level, "Resamples.minus")
        if len(other.draws) != len(self.draws):
            expected = f"of {len(self.draws)} resamples, the same as these"
            raise ShapeError("other", "Resamples.minus", expected=expected, got=f"{len(other.draws)} resamples")
        differences = self.draws - other.draws
        n_resamples = len(differences)
        low, high = _quantiles(differences, level)
        # Counting the data themselves as one resample keeps the p-value above 0.
        tail = min(int(np.count_nonzero(differences <= 0)), int(np.count_nonzero(differences >= 0)))
        return PairedDifference(
            difference=self.value - other.value,
            low=float(low),
            high=float(high),
            level=level,
            p_value=min(1.0, 2.0 * (tail + 1.0) / (n_resamples + 1.0)),
            first=self.value,
            second=other.value,
            n_resamples=n_resamples,
        )


def bootstrap_interval(
    metric: Callable[..., Any] | Metric | str,
    y_true: Any,
    probabilities: Any = None,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    method: str | None = None,
    seed: int = 0,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
    clusters: Any = None,
    **options: Any,
) -> Interval:
    """Interval for a metric of this package, or for a function of your own.

    `metric` is the function itself, a `Metric`, or the name of one; `options` are passed on to it. By default the
    intervals of log-loss and Brier score are Student's on the scale of the logarithm, and that of the accuracy is
    Wilson's. The binned, debiased, smooth, class-wise and KS errors, which noise increases, use the true errors that a
    test does not reject
    ("inverted"; benchmarks/results/interval_coverage.md has the coverage of each); the interval of `squared_ece` is the
    square of the debiased one's. Where neither holds, as for `ece_sweep`, `corp_reliability` and the calibration part
    of the Brier score, an error says so. `method` "percentile" and "basic", which mirrors the resamples at the value,
    work for every metric, with a warning where they do not cover. Intervals stay within the range of their metric.

    Only Spiegelhalter's z and functions of your own are resampled by default. The latter take labels and probabilities,
    and `sample_weight` if there are weights, and return a number. The interval holds if that is about a mean: not if
    noise moves it to one side, as calibration errors.

    `clusters` has what each row belongs to, such as its customer or day: rows of one cluster are not independent, and
    clusters are resampled.

    >>> y, p = [0, 1, 1, 1] * 25, [0.25, 0.25, 0.75, 0.75] * 25
    >>> from refocal.metrics import expected_calibration_error
    >>> interval = bootstrap_interval(expected_calibration_error, y, p, n_bins=2)
    >>> interval.low < interval.value == 0.25 < interval.high
    True
    """
    function = "bootstrap_interval"
    if method is not None:
        check_option(method, METHODS_OF_INTERVALS, "method", function)
    check_level(level, function)
    check_integer(n_resamples, "n_resamples", function)
    check_seed(seed, function)
    given = _Given(y_true, sample_weight, ignore_index, clusters, classes, function)
    measured = given.measure(metric, probabilities, options)
    if method is None:
        return summarise([measured], n_resamples, seed, **options)[0].interval(level=level)
    _warn_of_noise(measured.record, function)
    return _resample([measured], n_resamples, seed, options)[0].interval(level=level, method=method)


def _warn_of_noise(record: Metric, function: str) -> None:
    """Warn that resampled rows give no interval of a metric that noise raises."""
    if record.raised_by_noise:
        text = f"{function}: noise raises the {record.label}, and resampling adds that noise once more: intervals of"
        warn(f"{text} resampled rows often do not cover it.", InputWarning)


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
        record.check_classes(rows)
        summary = None if record.summary is None else record.summary(rows, **options)
        if record.terms is not None:
            terms = record.terms(rows)
            return cls(record, rows, mean(terms, rows.weight), terms, summary)
        value = record.measure(rows, **options) if summary is None else summary.value
        return cls(record, rows, value, None, summary)

    def mean(self) -> MeanSummary:
        """The summary of a metric that is a mean of terms."""
        terms = np.zeros(0) if self.terms is None else self.terms
        limits = self.record.limits(self.rows.n_classes)
        return MeanSummary(self.value, terms, self.rows.weight, self.rows.clusters, limits)

    def resampled(self, **options: Any) -> Evaluate:
        """The metric for many resamples of the rows."""
        if self.terms is not None:
            return resample_mean(self.terms, self.rows.weight)
        needs_confidence_alone = self.record.of_confidence and options.get("kind", "confidence") == "confidence"
        rows = self.rows.reduced() if needs_confidence_alone else self.rows
        return resample_rows(rows, self.record.measure, **options)


def summarise(measured: Sequence[MetricRows], n_resamples: int, seed: int, **options: Any) -> list[Summary]:
    """The data for the default intervals of metrics of the same rows, which are resampled once for all of them."""
    summaries: dict[int, Summary] = {}
    to_resample = []
    for i, metric in enumerate(measured):
        record = metric.record
        if metric.summary is not None:
            summaries[i] = metric.summary
        elif record.raised_by_noise:
            summaries[i] = _inverted(metric, n_resamples, seed, options)
        elif metric.terms is not None:
            summaries[i] = metric.mean()
        else:
            to_resample.append(i)
    if to_resample:
        resampled = _resample([measured[i] for i in to_resample], n_resamples, seed, options)
        summaries |= dict(zip(to_resample, resampled, strict=True))
    return [summaries[i] for i in range(len(measured))]


def _inverted(metric: MetricRows, n_draws: int, seed: int, options: dict[str, Any]) -> InvertedError:
    """The inverted test of an error that noise raises."""
    function = "bootstrap_interval"
    error_model = metric.record.error_model
    model = None if error_model is None else error_model(metric.rows, **options)
    if model is None:
        label = metric.record.label
        chosen = "".join(f", {name}={value!r}" for name, value in options.items())
        expected = "one with an interval that holds, such as expected_calibration_error or squared_ece"
        got = f"{metric.record.name}{chosen}: noise raises the {label}, so that resampled rows do not cover it"
        raise ParameterError("metric", function, expected=expected, got=got)
    if metric.rows.clusters is not None and not model.by_confidence:
        expected = f"left out for the {metric.record.label}, whose interval is for independent rows"
        raise ParameterError("clusters", function, expected=expected, got="clusters")
    shape = bins_of(metric.rows, n_bins=8)  # whose gaps show where the model is off
    return InvertedError(metric.value, model, shape, n_draws, seed, noise_of_clusters(model, metric.rows, shape))


def resample(
    metric: Callable[..., Any] | Metric | str,
    y_true: Any,
    probabilities: Any = None,
    *,
    n_resamples: int = 1000,
    seed: int = 0,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
    clusters: Any = None,
    **options: Any,
) -> Resamples:
    """A measure on resampled rows, once, for an interval and for any number of paired differences.

    >>> from refocal.metrics import brier_score
    >>> y, p = [0, 1, 1, 1] * 25, [0.25, 0.25, 0.75, 0.75] * 25
    >>> half = resample(brier_score, y, [0.5] * 100)
    >>> half.minus(resample(brier_score, y, p)).difference
    0.0625
    """
    function = "resample"
    check_integer(n_resamples, "n_resamples", function)
    check_seed(seed, function)
    given = _Given(y_true, sample_weight, ignore_index, clusters, classes, function)
    return _resample([given.measure(metric, probabilities, options)], n_resamples, seed, options)[0]


def paired_bootstrap(
    metric: Callable[..., Any] | Metric | str,
    y_true: Any,
    first: Any,
    second: Any,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
    clusters: Any = None,
    **options: Any,
) -> PairedDifference:
    """Interval for metric(first) - metric(second) on the same rows.

    The noise that both share cancels, so the interval is much narrower than those of the two values. It is that of
    `refocal.evaluate`: of a mean Student's, with the skewness of its terms or without, and of the AUC and others by
    how much each row moves both. Where a metric has neither, as functions of your own, rows are resampled together, as
    `resample` does for every metric. For calibration errors, whose biases differ, see `squared_ece_difference`.
    `clusters` as for `bootstrap_interval`. Columns of data frames are matched by name. `first` and `second` may be
    Predictions of the same rows, with None for `y_true`.

    >>> y, p = [0, 1, 1, 1] * 25, [0.25, 0.25, 0.75, 0.75] * 25
    >>> from refocal.metrics import brier_score
    >>> result = paired_bootstrap(brier_score, y, [0.5] * 100, p)
    >>> result.difference, result.low > 0
    (0.0625, True)
    """
    function = "paired_bootstrap"
    check_integer(n_resamples, "n_resamples", function)
    check_seed(seed, function)
    check_level(level, function)
    record = _record_of(metric, function)
    more: dict[str, Any] = {"takes_logs": record.takes_logs, "clusters": clusters, "class_names": classes}
    rows = read_pair(y_true, first, second, sample_weight, function, ignore_index, **more)
    measured = [_finite(record, rows_of_one, function, options) for rows_of_one in rows]
    if record.summary is not None or (record.terms is not None and not record.raised_by_noise):
        of_first, of_second = summarise(measured, n_resamples, seed, **options)
        difference = of_first.minus(of_second, level=level)
        if difference is not None:
            return difference
    _warn_of_noise(record, function)
    first_resamples, second_resamples = _resample(measured, n_resamples, seed, options)
    return first_resamples.minus(second_resamples, level=level)


class _Given(NamedTuple):
    """The arguments that metrics of the same rows share."""

    y_true: Any
    weight: Any
    ignored: IgnoreIndex
    clusters: Any
    classes: Any
    function: str

    def measure(self, metric: Any, values: Any, options: dict[str, Any]) -> MetricRows:
        """A metric, given by its function, of the checked rows."""
        record = _record_of(metric, self.function)
        read = read_log_probabilities if record.takes_logs else read_probabilities
        more = {"clusters": self.clusters, "class_names": self.classes}
        rows = read(self.y_true, values, self.weight, self.function, self.ignored, **more)
        check_clusters(rows.clusters, self.function)
        return _finite(record, rows, self.function, options)


def _finite(record: Metric, rows: Predictions, function: str, options: dict[str, Any]) -> MetricRows:
    """A metric measured on checked rows, which must be finite: infinite ones have no interval."""
    measured = MetricRows.of(record, rows, **options)
    if not math.isfinite(measured.value):
        expected = f"such that {record.name} is finite"
        raise DataError("probabilities", function, expected=expected, got=repr(measured.value))
    return measured


def _record_of(metric: Any, function: str) -> Metric:
    """The record of a metric, or of a function of the caller's own, with a caveat."""
    record = as_metric(metric, function)
    if record is not metric and record.name not in METRICS:
        text = "it holds for a function that is about a mean, not if noise moves it to one side as calibration errors"
        warn(f"{function}: the interval of {record.name} comes from resampled rows; {text}.", InputWarning)
    return record


def _resample(measured: Sequence[MetricRows], n_resamples: int, seed: int, options: dict[str, Any]) -> list[Resamples]:
    """Metrics of the same rows on the same resamples."""
    evaluates = [metric.resampled(**options) for metric in measured]
    draws: list[list[Vector]] = [[] for _ in measured]
    rows = measured[0].rows
    for counts in draw_resamples(len(rows.labels), n_resamples, seed, rows.clusters):
        for evaluate, of_metric in zip(evaluates, draws, strict=True):
            of_metric.append(evaluate(counts))
    return [
        Resamples(metric.value, np.concatenate(of_metric), metric.record.limits(metric.rows.n_classes))
        for metric, of_metric in zip(measured, draws, strict=True)
    ]


def _quantiles(draws: Vector, level: float) -> Vector:
    tail = (1.0 - level) / 2.0
    return np.quantile(draws, [tail, 1.0 - tail])
