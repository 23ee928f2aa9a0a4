"""What changed between two evaluations, such as of two dates or of two models."""

from __future__ import annotations

import math
from typing import NamedTuple

from refocal.errors import DataError
from refocal.evaluate.evaluation import Evaluation
from refocal.evaluate.provenance import N_CLUSTERS
from refocal.evaluate.statements import holm
from refocal.evaluate.summary import columns
from refocal.metrics import METRICS, Interval
from refocal.metrics.influence import critical_value, two_sided_p_value

__all__ = ["Change", "differences"]

CHOSEN = "shown in detail"
"""The method that each evaluation shows in detail, which need not be the same."""


class Change(NamedTuple):
    """One measure of one method in two evaluations, with an interval of the difference, new less old.

    A signed measure, mean p less the rate, is best at 0: `low` and `high` are of its distance from 0, new less old.
    The interval is of this difference alone; `p_value` is adjusted for all that are looked at together.

    >>> Change("ts", "ece", old=0.05, new=0.02, low=-0.04, high=-0.02, p_value=0.001).verdict
    'better'
    >>> Change("ts", "ece", old=0.05, new=0.02, low=-0.05, high=-0.01, p_value=0.08).verdict
    'statistically indistinguishable'
    """

    method: str
    measure: str
    old: float
    new: float
    low: float
    high: float
    p_value: float
    level: float = 0.95

    @property
    def verdict(self) -> str:
        """better, worse, or statistically indistinguishable."""
        if self.p_value > 1.0 - self.level:
            return "statistically indistinguishable"
        return "better" if (self.high < 0.0) == METRICS[self.measure].lower_is_better else "worse"


def differences(old: Evaluation, new: Evaluation) -> list[Change]:
    """Every measure of the methods that both have, new less old.

    The test rows of the two are assumed to be independent of each other: for the same rows the intervals are wider than
    needed. Within each, rows are independent, or the clusters that it was made with. Intervals are combined by the
    method of variance estimates recovery (Zou & Donner, 2008). All verdicts are right together at the level: the method
    shown in detail and the methods that both have are two families, p-values are adjusted by Holm (1979) in each, and
    the level is shared by the two.

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
    n_clusters = _fewest_clusters(old, new)
    changes = [
        _change(method, metric.name, before.measures[metric.name], after.measures[metric.name], n_clusters)
        for method, (before, after) in pairs.items()
        for metric in columns(new)
        # Of a function that is not known by its name, neither is which of two values is better.
        if metric.name in METRICS and metric.name in before.measures and metric.name in after.measures
    ]
    of_chosen = [change for change in changes if change.method == CHOSEN]
    of_methods = [change for change in changes if change.method != CHOSEN]
    return [*_adjusted(of_chosen), *_adjusted(of_methods)]


def _fewest_clusters(old: Evaluation, new: Evaluation) -> int | None:
    """The number of clusters of the evaluation that has fewer; None if neither has any."""
    numbers = [int(evaluation.run[N_CLUSTERS]) for evaluation in (old, new) if N_CLUSTERS in evaluation.run]
    return min(numbers, default=None)


def _change(method: str, measure: str, old: Interval, new: Interval, n_clusters: int | None) -> Change:
    """One change, with a p-value that is not adjusted: it is 1 - level where the interval ends at 0."""
    # Noise can raise a calibration error above its own interval; then the intervals are compared.
    old_low, first, old_high = _judged(measure, old)
    new_low, second, new_high = _judged(measure, new)
    difference = second - first
    below = math.hypot(second - new_low, old_high - first)
    above = math.hypot(new_high - second, first - old_low)
    towards_0 = below if difference > 0.0 else above
    p_value = 1.0
    if difference != 0.0:
        n_margins = abs(difference) / towards_0 if towards_0 > 0.0 else math.inf
        p_value = two_sided_p_value(critical_value(new.level, n_clusters) * n_margins, n_clusters)
    return Change(
        method=method,
        measure=measure,
        old=old.value,
        new=new.value,
        low=difference - below,
        high=difference + above,
        p_value=p_value,
        level=new.level,
    )


def _adjusted(family: list[Change]) -> list[Change]:
    """The changes with p-values that may be compared with the level, which two families share (Šidák 1967)."""
    n_families = 2
    p_values = holm({(change.method, change.measure): change.p_value for change in family})
    return [
        change._replace(p_value=1.0 - (1.0 - p_values[change.method, change.measure]) ** n_families)
        for change in family
    ]


def _judged(measure: str, found: Interval) -> tuple[float, float, float]:
    """The lower end, the value and the upper end of what is compared; the value is within the interval."""
    metric = METRICS[measure]
    value = min(max(found.value, found.low), found.high)
    best = 0.0 if metric.signed else metric.target
    nearest = found.low if best is None else min(max(best, found.low), found.high)
    return metric.judged(nearest), metric.judged(value), max(map(metric.judged, (found.low, found.high)))
