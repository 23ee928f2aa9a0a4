"""Sensitivity, specificity and predictive values of acting from a threshold on, also at another prevalence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from refocal._arrays import Flags
from refocal._validation import check_number
from refocal.decide.groups import share_of_rows
from refocal.metrics.bins import reached_from
from refocal.metrics.influence import critical_value
from refocal.metrics.inputs import check_clusters, check_level, mean
from refocal.metrics.intervals import Interval
from refocal.metrics.two_classes import read_two_classes

__all__ = ["PredictiveValues", "predictive_values"]


def predictive_values(
    y_true: Any,
    probabilities: Any = None,
    *,
    threshold: float,
    prevalence: float | None = None,
    sample_weight: Any = None,
    level: float = 0.95,
    clusters: Any = None,
) -> PredictiveValues:
    """Sensitivity, specificity and predictive values of acting from a probability of class 1 on.

    With `prevalence`, the share of class 1 where the decisions are to be made, the predictive values are those at that
    share: sensitivity and specificity are taken to be the same there, as where cases were sampled for a study.

    >>> found = predictive_values([0, 0, 0, 1] * 50, [0.1, 0.2, 0.6, 0.7] * 50, threshold=0.5)
    >>> found.ppv.value, found.npv.value, found.prevalence
    (0.5, 1.0, 0.25)
    """
    function = "predictive_values"
    check_level(level, function)
    check_number(threshold, "threshold", function, least=0.0, most=1.0)
    if prevalence is not None:
        check_number(prevalence, "prevalence", function, above=0.0, below=1.0)
    rows = read_two_classes(y_true, probabilities, sample_weight, (), function, clusters=clusters)
    check_clusters(rows.clusters, function)
    p, happened = rows.event_of_column(1)
    acts = p >= reached_from(np.array([threshold]))[0]

    def share_of_class(event: Flags, is_class: Flags) -> Interval:
        found = share_of_rows(rows, np.flatnonzero(is_class), event[is_class], level)
        assert found is not None  # noqa: S101 - rows of one class were refused
        return found

    sensitivity = share_of_class(acts, happened)
    specificity = share_of_class(~acts, ~happened)
    if prevalence is not None:
        misses = share_of_class(~acts, happened)
        alarms = share_of_class(acts, ~happened)
        ppv = values_at_prevalence(sensitivity, alarms, prevalence, level)
        npv = values_at_prevalence(specificity, misses, 1.0 - prevalence, level)
        return PredictiveValues(prevalence, sensitivity, specificity, ppv, npv)
    return PredictiveValues(
        prevalence=mean(happened.astype(np.float64), rows.weight),
        sensitivity=sensitivity,
        specificity=specificity,
        ppv=share_of_rows(rows, np.flatnonzero(acts), happened[acts], level, is_class=True),
        npv=share_of_rows(rows, np.flatnonzero(~acts), ~happened[~acts], level, is_class=True),
    )


@dataclass(frozen=True)
class PredictiveValues:
    """What a positive and a negative decision mean at a prevalence of class 1, with intervals.

    >>> from refocal.decide import predictive_values
    >>> found = predictive_values([0, 0, 0, 1] * 50, [0.1, 0.2, 0.6, 0.7] * 50, threshold=0.5, prevalence=0.01)
    >>> found.sensitivity.value, round(found.specificity.value, 3), round(found.ppv.value, 3)
    (1.0, 0.667, 0.029)
    """

    prevalence: float
    """That of the rows, or the one that was asked for."""
    sensitivity: Interval
    """The share of class 1 at or above the threshold."""
    specificity: Interval
    """The share of class 0 below it."""
    ppv: Interval | None
    """The share of class 1 among the rows at or above it; None where there are none."""
    npv: Interval | None
    """The share of class 0 among the rows below it; None where there are none."""


def values_at_prevalence(positive: Interval, negative: Interval, prevalence: float, level: float) -> Interval | None:
    """The share π a / (π a + (1 - π) b) of a class of prevalence π among the decided rows, with its interval.

    a and b are the shares of the class and of the other one that are decided so. The interval comes from that of the
    ratio a / b of independent shares, by the ends of both (Donner & Zou 2012), and holds where b is 0. It is None where
    both are 0: no row is decided so.
    """
    if positive.value + negative.value == 0.0:
        return None
    low_ratio = ratio_low(positive, negative)
    high_ratio = _inverse(ratio_low(negative, positive))
    of_class = prevalence * positive.value
    value = of_class / (of_class + (1.0 - prevalence) * negative.value)
    low = _of_ratio(low_ratio, prevalence)
    high = _of_ratio(high_ratio, prevalence)
    error = (high - low) / (2.0 * critical_value(level))
    return Interval(value, min(low, value), max(high, value), level, error, 0.0, 0)


def ratio_low(first: Interval, second: Interval) -> float:
    """The lower end of the ratio a / b: (ab - √((ab)² - l (2a - l) u (2b - u))) / (u (2b - u)).

    l is the lower end of a, and u the upper one of b.
    """
    a = first.value
    b = second.value
    of_first = first.low * (2.0 * a - first.low)
    of_second = second.high * (2.0 * b - second.high)
    if of_second == 0.0:  # u is 2b: the limit of the formula
        return of_first / (2.0 * a * b) if a * b > 0.0 else 0.0
    root = math.sqrt(max((a * b) ** 2 - of_first * of_second, 0.0))
    return max((a * b - root) / of_second, 0.0)


def _inverse(ratio: float) -> float:
    return 1.0 / ratio if ratio > 0.0 else math.inf


def _of_ratio(ratio: float, prevalence: float) -> float:
    """The share of a class whose odds are those of its prevalence times a ratio."""
    if math.isinf(ratio):
        return 1.0
    return prevalence * ratio / (prevalence * ratio + 1.0 - prevalence)
