"""The record of a metric, which reports, tables, intervals, searches and evaluations read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

from refocal._arrays import Vector, to_numpy
from refocal._digits import digits_apart
from refocal.errors import ParameterError, ShapeError
from refocal.metrics.bins import Bins
from refocal.metrics.histogram import CalibrationHistogram, StreamedCalibration
from refocal.metrics.intervals import Interval, IntervalForm, Summary
from refocal.metrics.inverted_error import ErrorModel
from refocal.rows import Predictions


@dataclass(frozen=True, kw_only=True)
class BlockSums:
    """Sums over all blocks of rows for one predictor, the input of the `streamed` form of a metric."""

    histogram: CalibrationHistogram
    """The confidence."""
    classes: list[StreamedCalibration]
    """The measures of the probability of each class; none where there are too many classes."""
    residuals: Vector
    """Confidence less outcome on the grid of `smooth_ece`, divided by the weight of all rows."""
    means: dict[str, float]
    """The metrics that are means, by their short names."""

    @cached_property
    def calibration(self) -> StreamedCalibration:
        """The measures of the confidence."""
        return self.histogram.compute()

    @cached_property
    def bins(self) -> Bins:
        """The confidence in equal-mass bins."""
        return self.histogram.equal_mass().bins


class StreamedMetric(NamedTuple):
    """A metric from sums over blocks, what its interval needs, and how far it may be off where that is not rounding.

    `influence` returns how much each of some rows moves the metric, times the weight of all rows: the interval then
    comes from another pass over the blocks.
    """

    value: float
    bound: float | None = None
    summary: Summary | None = None
    influence: Callable[[Predictions], Vector] | None = None
    form: IntervalForm | None = None
    """How the variance that influences give becomes an interval, where that is not the normal one."""


OF_CONFIDENCE: dict[str, Any] = {"of_confidence": True, "unit": "%", "raised_by_noise": True}
"""Fields of the errors of the confidence, which noise raises."""


@dataclass(frozen=True)
class Metric:
    """One metric: the public function, its other forms, and how it is shown.

    `streamed` takes sums over blocks, and returns None where these lack what it needs. A metric that is a weighted mean
    has `terms`, one number for each row, and needs no other form. The interval of others comes from resampling rows,
    unless the metric has a `summary` of its own, or is `raised_by_noise` and the test of its `error_model` is inverted.

    >>> from refocal.metrics import METRICS
    >>> METRICS["ece"].heading, METRICS["ece"].text(0.0123), METRICS["accuracy"].lower_is_better
    ('ECE %', '1.23', False)
    """

    name: str
    function: Callable[..., Any]
    label: str
    streamed: Callable[[Any], StreamedMetric | None] | None = None
    error_model: Callable[..., ErrorModel | None] | None = None
    summary: Callable[..., Summary] | None = None
    terms: Callable[[Predictions], Vector] | None = None
    of_rows: Callable[..., float] | None = None
    """Replaces `function` for checked rows, where that returns more than a number or may refuse them."""
    of_confidence: bool = False
    """Whether only the confidence and the outcome are measured."""
    unit: Literal["", "%"] = ""
    lower_is_better: bool = True
    range: tuple[float, float] = (0.0, 1.0)
    range_of_two: tuple[float, float] | None = None
    """The range for two classes, where it is another one."""
    takes_logs: bool = False
    """Whether the function takes log-probabilities."""
    shown: Literal["with interval", "value", "no"] = "no"
    """How evaluations and reports show it."""
    column: tuple[int | None, int | None] = (None, None)
    """Its place in the tables of comparisons, for many classes and for two, if it is a column. The first ranks."""
    column_with_interval: bool = False
    raised_by_noise: bool = False
    """Whether it is too high on average, the more so the fewer rows there are: its interval must come from a test."""
    two_classes: bool = False
    """Whether it is defined for two classes only."""
    many_classes: bool = False
    """Whether it is reported for more than two classes only: it is about the top class."""
    signed: bool = False
    """Whether the sign is meaningful: the best value is then 0, and no search may minimise it."""
    target: float | None = None
    """The best value, where that is neither an end of the range nor 0."""

    @classmethod
    def of_function(cls, function: Callable[..., Any], name: str | None = None, **fields: Any) -> Metric:
        """The record of a function of your own, `(y, p) → number`, with other fields of this class.

        It is called with NumPy arrays, the column numbers of the labels (N,) and the probabilities (N, C), of two
        classes those of class 1 (N,); and with `sample_weight=` if there are weights. Its interval comes from resampled
        rows, which holds if the function is about a mean: not if noise moves it to one side, as calibration errors.

        >>> from refocal.metrics import bootstrap_interval
        >>> def confident_errors(y, p):
        ...     return float(((p.argmax(axis=1) != y) & (p.max(axis=1) > 0.9)).mean())
        >>> record = Metric.of_function(confident_errors, label="confident errors", unit="%")
        >>> p = [[0.95, 0.03, 0.02], [0.1, 0.2, 0.7]] * 50
        >>> record.text(bootstrap_interval(record, [0, 1, 2, 2] * 25, p).value)
        '25.00'
        """
        called = name or str(getattr(function, "__name__", type(function).__name__))
        measure = partial(_of_own_function, function, called)
        own: dict[str, Any] = {"label": called, "range": (-math.inf, math.inf), "of_rows": measure}
        return cls(called, function, **own | fields)

    @property
    def scale(self) -> float:
        """The factor by which a value is multiplied for display."""
        return 100.0 if self.unit == "%" else 1.0

    @property
    def heading(self) -> str:
        """Label and unit."""
        return f"{self.label} {self.unit}".rstrip()

    @property
    def best(self) -> float | None:
        """The best value where that is no end of the range: the target, or 0 of a signed metric; None of others."""
        return 0.0 if self.signed and self.target is None else self.target

    @property
    def is_cost(self) -> bool:
        """Whether lower is better of what `judged` returns: also of a distance from the best value."""
        return self.lower_is_better or self.best is not None

    def judged(self, value: Any) -> Any:
        """What is compared to say which of two values is better: the distance from the best value, if there is one."""
        return value if self.best is None else abs(value - self.best)

    def cost(self, value: Any) -> Any:
        """What is lower for better values, of a number or of an array: what is judged, or its negative."""
        return self.judged(value) if self.is_cost else -value

    def limits(self, n_classes: int) -> tuple[float, float]:
        """The range of the values of rows of so many classes.

        >>> from refocal.metrics import METRICS
        >>> METRICS["brier_score"].limits(2), METRICS["brier_score"].limits(3)
        ((0.0, 1.0), (0.0, 2.0))
        """
        return self.range if n_classes > 2 or self.range_of_two is None else self.range_of_two

    def measure(self, rows: Predictions, **options: Any) -> float:
        """The metric of rows, whichever scores they have, with the options of `function`."""
        self.check_classes(rows)
        rows = rows.as_log_probabilities() if self.takes_logs else rows.as_probabilities()
        value: float = self.of_rows(rows, **options) if self.of_rows else self.function(rows, None, **options)
        return value

    def check_classes(self, rows: Predictions) -> None:
        """Refuse rows of more classes where the metric is one of two."""
        if self.two_classes and rows.n_classes != 2:
            got = f"{rows.n_classes} classes"
            raise ShapeError("probabilities", self.name, expected="of two classes", got=got)

    @property
    def digits(self) -> int:
        """The digits after the point of a value that is shown."""
        return 2 if self.unit == "%" else 4

    def digits_apart(self, value: float, other: float) -> int:
        """The digits with which two values that differ are shown differently: more than usual where these do not."""
        return digits_apart(self.scale * value, self.scale * other, self.digits)

    def text(self, value: float, digits: int | None = None) -> str:
        """A value in its unit, without the unit's sign."""
        sign = "+" if self.signed else ""
        shown = self.digits if digits is None else digits
        return f"{self.scale * value:{sign}.{shown}f}".replace("-", "−")

    def interval_text(self, interval: Interval, digits: int | None = None) -> str:
        """The ends of an interval."""
        return f"{self.text(interval.low, digits)} – {self.text(interval.high, digits)}"

    def with_unit(self, value: float, digits: int | None = None) -> str:
        """A value with the sign of its unit."""
        return f"{self.text(value, digits)} {self.unit}".rstrip()


OWN_FUNCTION = "a metric of refocal.metrics, or a function of labels and probabilities that returns a number"


def has_interval(record: Metric) -> bool:
    """Whether there is an interval of a metric that holds: of what noise raises, only one from a test."""
    return not record.raised_by_noise or record.error_model is not None or record.summary is not None


def _of_own_function(function: Callable[..., Any], name: str, rows: Predictions, **options: Any) -> float:
    """A function of a caller's own on checked rows."""
    if rows.weight is not None:
        options = {"sample_weight": rows.weight, **options}
    try:
        return float(function(rows.labels, to_numpy(rows.values), **options))
    except TypeError as error:
        got = f"{name}, which failed: {error}"
        raise ParameterError("metric", "Metric.measure", expected=OWN_FUNCTION, got=got) from error
