"""Every metric's record, by its short name and by its function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from refocal._plugins import load_plugins
from refocal._validation import check_option
from refocal.errors import ParameterError
from refocal.metrics import binned, calibration_curve, recalibration, scores, selective, smooth, squared, two_classes
from refocal.metrics.record import OWN_FUNCTION, Metric

__all__ = ["METRICS", "Metric"]

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *binned.METRICS,
        *scores.METRICS,
        *smooth.METRICS,
        *squared.METRICS,
        *two_classes.METRICS,
        *recalibration.METRICS,
        *calibration_curve.METRICS,
        *selective.METRICS,
    )
}
"""The metrics by their short names, in the order in which reports have them; those of `refocal.register` last."""

# The names of the metrics of this package, which no other metric may take.
OURS = frozenset(METRICS)


def register_metric(metric: Metric) -> None:
    """Make a record known by its name; one of that name that was registered before is replaced."""
    if metric.name in OURS:
        raise ParameterError("name", "register", expected="one that is not taken", got=f"the metric {metric.name!r}")
    if not metric.name.isidentifier():
        expected = "a metric whose name has letters, digits and '_' alone"
        raise ParameterError("name", "register", expected=expected, got=repr(metric.name))
    METRICS[metric.name] = metric


def as_metric(metric: Any, function: str, argument: str = "metric") -> Metric:
    """The record of a metric that is given by itself, by its short name or that of its function, or by a function.

    >>> as_metric("expected_calibration_error", "evaluate").name, as_metric("ece", "evaluate").name
    ('ece', 'ece')
    """
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str):
        by_function = {each.function.__name__: each.name for each in _named()}
        if metric not in METRICS and metric not in by_function:
            load_plugins()
        name = by_function.get(metric, metric)
        check_option(name, tuple(METRICS), argument, function)
        return METRICS[name]
    known = record_of_function(metric)
    if known is not None:
        return known
    if not callable(metric):
        raise ParameterError(argument, function, expected=OWN_FUNCTION, got=repr(metric))
    return Metric.of_function(metric)


def shown_as(name: str) -> Metric:
    """The record of a measure of an evaluation; of one that is not known here, such as a function, its name alone."""
    known = METRICS.get(name)
    return Metric.of_function(unknown_function, name) if known is None else known


def unknown_function(*_: Any) -> float:
    """What a record that was read from a file has in the place of its function."""
    raise NotImplementedError("The function of this metric is not known here.")


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
