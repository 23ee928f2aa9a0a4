"""What the package knows of a metric, in one record: reports, tables, intervals, searches and evaluations read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from refocal.metrics._inputs import Rows, Vector, mean
from refocal.metrics._resampling import Evaluate, resample_mean
from refocal.metrics.histogram import StreamedCalibration
from refocal.metrics.intervals import Summary


class BlockSums(NamedTuple):
    """What sums over blocks of rows know of one predictor, for the `streamed` form of a metric."""

    calibration: StreamedCalibration
    """Of the confidence."""
    classes: list[StreamedCalibration]
    """Of the probability of each class."""
    residuals: Vector
    """Confidence less outcome on the grid of `smooth_ece`, divided by the weight of all rows."""


class StreamedMetric(NamedTuple):
    """A metric from sums over blocks, what its interval needs, and how far it may be off where that is not rounding."""

    value: float
    bound: float | None = None
    summary: Summary | None = None


@dataclass(frozen=True)
class Metric:
    """One metric: the public function, its other forms, and how it is shown.

    `measure` takes checked rows and the options of `function`; `resampled` the same, for many resamples at once;
    `streamed` takes sums over blocks and gives the value with a bound on its distance from the exact one. `summary`
    is for a metric whose interval is not to come from resampling rows. A metric that is a mean has `terms`, one number
    for each row, and needs no other form: see `mean_metric`.

    >>> from refocal.metrics import METRICS
    >>> METRICS["ece"].heading, METRICS["ece"].text(0.0123), METRICS["accuracy"].lower_is_better
    ('ECE %', '1.23', False)
    """

    name: str
    function: Callable[..., Any]
    label: str
    measure: Callable[..., float]
    resampled: Callable[..., Evaluate]
    streamed: Callable[[BlockSums], StreamedMetric] | None = None
    summary: Callable[..., Summary | None] | None = None
    """Rows, n_resamples, seed and the options of `function` ↦ what the interval needs; None: resample rows."""
    terms: Callable[[Rows], Vector] | None = None
    unit: Literal["", "%"] = ""
    lower_is_better: bool = True
    range: tuple[float, float] = (0.0, 1.0)
    takes_logs: bool = False
    """Whether the function takes log-probabilities."""
    shown: Literal["with interval", "value", "no"] = "no"
    """What evaluations and reports have of it."""
    objective: bool = True
    """Whether a search may minimise it by the name of its function."""

    @property
    def scale(self) -> float:
        """What a value is multiplied with to be shown."""
        return 100.0 if self.unit == "%" else 1.0

    @property
    def heading(self) -> str:
        """Label and unit."""
        return f"{self.label} {self.unit}".rstrip()

    def text(self, value: float) -> str:
        """A value in its unit, without the unit's sign."""
        return f"{100 * value:.2f}" if self.unit == "%" else f"{value:.4f}"


def mean_metric(
    name: str, function: Callable[..., Any], label: str, terms: Callable[[Rows], Vector], **how: Any
) -> Metric:
    """The record of a metric that is the weighted mean of one number for each row."""

    def measure(rows: Rows) -> float:
        return mean(terms(rows), rows.weight)

    return Metric(name, function, label, measure, resample_mean(terms), terms=terms, **how)
