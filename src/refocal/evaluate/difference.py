"""What changed between two evaluations, such as of two dates or of two models."""

from __future__ import annotations

import math
from typing import NamedTuple

from refocal.errors import DataError
from refocal.evaluate.evaluation import Evaluation
from refocal.evaluate.summary import columns
from refocal.metrics import METRICS, Interval

__all__ = ["Change", "differences"]

CHOSEN = "shown in detail"
"""The method that each evaluation shows in detail, which need not be the same."""


class Change(NamedTuple):
    """One measure of one method in two evaluations, with an interval of the difference, new less old.

    A signed measure, mean p less the rate, is best at 0: `low` and `high` are of its distance from 0, new less old.

    >>> Change("ts", "ece", old=0.05, new=0.02, low=-0.04, high=-0.02).verdict
    'better'
    """

    method: str
    measure: str
    old: float
    new: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """better, worse, or statistically indistinguishable."""
        if self.low <= 0.0 <= self.high:
            return "statistically indistinguishable"
        return "better" if (self.high < 0.0) == METRICS[self.measure].lower_is_better else "worse"


def differences(old: Evaluation, new: Evaluation) -> list[Change]:
    """Every measure of the methods that both have, new less old.

    The test rows of the two are assumed to be independent: for the same rows the intervals are wider than needed.
    Intervals are combined by the method of variance estimates recovery (Zou & Donner, 2008).

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["ts"], n_resamples=20)
    >>> {change.verdict for change in differences(found, found)}
    {'statistically indistinguishable'}
    """
    if old.n_classes != new.n_classes:
        expected = f"an evaluation of {old.n_classes} classes, as the old one"
        raise DataError("new", "differences", expected=expected, got=f"one of {new.n_classes} classes")
    pairs = {CHOSEN: (old.after, new.after)}
    names = {method.name for method in old.methods}
    pairs |= {method.name: (old[method.name], method) for method in new.methods if method.name in names}
    return [
        _change(method, metric.name, before.measures[metric.name], after.measures[metric.name])
        for method, (before, after) in pairs.items()
        for metric in columns(new)
        if metric.name in before.measures and metric.name in after.measures
    ]


def _change(method: str, measure: str, old: Interval, new: Interval) -> Change:
    # Noise can raise a calibration error above its own interval; then the intervals are compared.
    (old_low, first, old_high), (new_low, second, new_high) = (_judged(measure, each) for each in (old, new))
    difference = second - first
    low = difference - math.hypot(second - new_low, old_high - first)
    high = difference + math.hypot(new_high - second, first - old_low)
    return Change(method, measure, old.value, new.value, low, high)


def _judged(measure: str, found: Interval) -> tuple[float, float, float]:
    """The lower end, the value and the upper end of what is compared; the value is within the interval."""
    metric = METRICS[measure]
    value = min(max(found.value, found.low), found.high)
    best = 0.0 if metric.signed else metric.target
    nearest = found.low if best is None else min(max(best, found.low), found.high)
    return metric.judged(nearest), metric.judged(value), max(map(metric.judged, (found.low, found.high)))
