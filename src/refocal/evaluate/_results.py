"""The results of methods on test rows, whether these are in memory or in blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from refocal.errors import ParameterError
from refocal.evaluate._details import N_BINS
from refocal.evaluate.evaluation import ClassRow, DecisionTable, GroupRow, Histogram, SmoothCurve
from refocal.evaluate.statements import ScoreTest
from refocal.metrics import METRICS
from refocal.metrics.bins import Bins
from refocal.metrics.intervals import Summary
from refocal.metrics.record import Metric
from refocal.metrics.records import as_metric
from refocal.metrics.reliability import UnitVariances

SEED = 0
"""The seed of resamples, and of simulated outcomes that show how far chance alone moves the ECE of a group."""
BINS_NOTE = {"bins": f"{N_BINS} of equal mass"}

Progress = Callable[[float, int, str], None]
"""Called with the number of steps done, the number of all steps, and what comes next."""


class Details(NamedTuple):
    """What is shown of a method in detail."""

    classes: list[ClassRow]
    groups: list[GroupRow]
    decisions: DecisionTable
    curve: SmoothCurve | None
    """Of two classes; None of rows in blocks."""


class Result(NamedTuple):
    """One method on the test rows; its probabilities are not kept: those of many methods would fill the memory."""

    summaries: dict[str, Summary]
    """The metrics with intervals, by their short names."""
    values: dict[str, float]
    bins: Bins
    """The confidence in bins of equal mass."""
    units: UnitVariances | None
    """The variances of the accuracies of the bins, where rows have clusters or weights."""
    histogram: Histogram
    seconds: float
    score: ScoreTest | None
    """Whether the model is improved by the method; None for the model itself."""
    details: Callable[[float, float], Details]
    """The details, of methods that are shown in detail; the levels are that of each statement and of the curve."""


class Results(NamedTuple):
    """The results of all methods, what they were measured on, and how."""

    of: dict[str, Result]
    n_rows: int
    groups: list[str]
    """The columns of groups."""
    n_groups: int
    """How many groups all columns have together."""
    notes: dict[str, str]


def own_records(metrics: Sequence[Any], function: str) -> list[Metric]:
    """The metrics that a caller asks for beside the usual ones, with intervals."""
    if isinstance(metrics, (str, Metric)) or not isinstance(metrics, Sequence):
        expected = "a list of names, records or functions of labels and probabilities"
        raise ParameterError("metrics", function, expected=expected, got=repr(metrics))
    records = [as_metric(metric, function, "metrics") for metric in metrics]
    for record in records:
        if record.name in METRICS and METRICS[record.name] is not record:
            expected = "metrics whose names are not those of others"
            raise ParameterError("metrics", function, expected=expected, got=f"another {record.name!r}")
    return records


def reported(how: Literal["with interval", "value"], n_classes: int, more: Sequence[Metric] = ()) -> list[Metric]:
    """The metrics that are reported this way: a value alone where the interval would take longer than all else.

    Those that a caller asks for are `more`, and have intervals.
    """
    is_two = n_classes == 2
    asked = [metric.name for metric in more]
    shown = [metric for metric in METRICS.values() if metric.shown == how and metric.name not in asked]
    if how == "with interval":
        shown += more
    return [metric for metric in shown if not (metric.many_classes if is_two else metric.two_classes)]
