"""Every metric's record, by its short name and by its function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from refocal.errors import ParameterError
from refocal.metrics import binned, recalibration, scores, selective, smooth, squared, two_classes
from refocal.metrics.record import Metric

__all__ = ["METRICS"]

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *binned.METRICS,
        *scores.METRICS,
        *smooth.METRICS,
        *squared.METRICS,
        *two_classes.METRICS,
        *recalibration.METRICS,
        *selective.METRICS,
    )
}
"""The metrics by their short names, in the order in which reports have them."""


def record_of_function(function: Any) -> Metric | None:
    """The record of a public function; None of any other."""
    for metric in METRICS.values():
        if metric.function is function:
            return metric
    return None


def metric_of(function: Callable[..., Any], caller: str) -> Metric:
    """The record of a public function, or an error."""
    metric = record_of_function(function)
    if metric is not None:
        return metric
    known = ", ".join(sorted(metric.function.__name__ for metric in _named()))
    raise ParameterError("metric", caller, expected=f"one of the functions {known}", got=repr(function))


def objectives() -> dict[str, Callable[..., float]]:
    """What a search may minimise, by the name of the function: a number that is lower for better probabilities."""
    return {
        each.function.__name__: each.function
        for each in _named()
        if each.lower_is_better and not (each.signed or each.of_rows or each.takes_logs or each.two_classes)
    }


def _named() -> list[Metric]:
    """The metrics whose function has a name of its own."""
    return [metric for metric in METRICS.values() if not isinstance(metric.function, partial)]
