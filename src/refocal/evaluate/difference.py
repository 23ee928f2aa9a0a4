"""What changed between two evaluations, such as of two dates or of two models."""

from __future__ import annotations

import math
from typing import NamedTuple

from refocal._groups import LABEL
from refocal.errors import DataError
from refocal.evaluate.evaluation import Evaluation
from refocal.evaluate.multilabel import of_labels
from refocal.evaluate.provenance import RunNote
from refocal.evaluate.statements import holm
from refocal.evaluate.summary import columns
from refocal.metrics import METRICS, Interval
from refocal.metrics.influence import critical_value, two_sided_p_value
from refocal.rows.keys import number_keys

__all__ = ["Change", "differences"]

CHOSEN = "shown in detail"
"""The method that each evaluation shows in detail, which need not be the same."""


class Change(NamedTuple):
    """One measure of one method in two evaluations, with an interval of the difference, new less old.

    A signed measure, such as mean p less the rate, is best at 0: `low` and `high` are of its distance from there, new
    less old, as they are of one that is best at another value.
    The interval is of this difference alone; `p_value` is adjusted for all that are looked at together.

    >>> Change("ts", "ece", old=0.05, new=0.02, low=-0.04, high=-0.02, p_value=0.001).verdict
    'better'
    >>> Change("ts", "mean_bias", old=-0.05, new=0.02, low=-0.04, high=-0.02, p_value=0.001).compared
    'distance from 0'
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
    def compared(self) -> str:
        """What `low` and `high` are the difference of: the value, or its distance from the best one."""
        best = METRICS[self.measure].best
        return "value" if best is None else f"distance from {best:g}"

    @property
    def verdict(self) -> str:
        """better, worse, or statistically indistinguishable."""
        if self.p_value > 1.0 - self.level:
            return "statistically indistinguishable"
        return "better" if (self.high < 0.0) == METRICS[self.measure].is_cost else "worse"


def differences(old: Evaluation, new: Evaluation) -> list[Change]:
    """Every measure of the methods that both have, new less old.

    The test rows of the two are assumed to be independent of each other: for the same rows the intervals are wider than
    needed. Within each, rows are independent, or the clusters that it was made with. Intervals are combined by the
    method of variance estimates recovery (Zou & Donner, 2008). All verdicts are right together at the level: the method
    shown in detail and the methods that both have are two families, p-values are adjusted by Holm (1979) in each, and
    the level is shared by the two. Evaluations of other classes, of another positive class of two, or of another
    level are refused; where one has no names for its classes, these are taken for those of the other in their order.

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["ts"], n_resamples=20)
    >>> {change.verdict for change in differences(found, found)}
    {'statistically indistinguishable'}
    """
    check_same_classes(old, new, "differences")
    if old.level != new.level:
        expected = f"an evaluation whose intervals are of {100 * old.level:g} %, as those of the old one"
        raise DataError("new", "differences", expected=expected, got=f"one of {100 * new.level:g} %")
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


def check_same_classes(old: Evaluation, new: Evaluation, function: str) -> None:
    """Refuse two evaluations whose measures are not about the same classes, or not about the same one of two."""
    if old.n_classes != new.n_classes:
        expected = f"an evaluation of {old.n_classes} classes, as the old one"
        raise DataError("new", function, expected=expected, got=f"one of {new.n_classes} classes")
    if of_labels(old) != of_labels(new):
        kinds = {True: "of several labels per row", False: "of one label per row"}
        expected = f"an evaluation {kinds[of_labels(old)]}, as the old one"
        raise DataError("new", function, expected=expected, got=f"one {kinds[of_labels(new)]}")
    if of_labels(old):
        _check_same_labels(old, new, function)
        return
    names_of_old = _names_of_classes(old, new)
    names_of_new = _names_of_classes(new, old)
    if names_of_old is None or names_of_new is None:
        return
    keys_of_old = number_keys(names_of_old)
    keys_of_new = number_keys(names_of_new)
    others = [name for name, key in zip(names_of_new, keys_of_new, strict=True) if key not in keys_of_old]
    if others:
        expected = f"an evaluation of the same classes as the old one, which has {names_of_old[0]!r}, …"
        raise DataError("new", function, expected=expected, got=f"one with {others[0]!r}")
    if old.n_classes == 2 and keys_of_old != keys_of_new:
        expected = f"an evaluation whose positive class is {names_of_old[1]!r}, as that of the old one"
        raise DataError("new", function, expected=expected, got=f"one of {names_of_new[1]!r}")


def _check_same_labels(old: Evaluation, new: Evaluation, function: str) -> None:
    """Refuse two evaluations of several labels per row that are not about the same labels.

    A label that is unknown in all rows of one of them is not among its groups.
    """
    labels_of_old = {group.name for group in old.before.groups if group.column == LABEL}
    labels_of_new = {group.name for group in new.before.groups if group.column == LABEL}
    others = sorted(labels_of_new - labels_of_old)
    is_other_number = old.run.get(RunNote.LABELS_OF_ROWS) != new.run.get(RunNote.LABELS_OF_ROWS)
    if is_other_number or (others and labels_of_old - labels_of_new):
        expected = f"an evaluation of the same {old.run.get(RunNote.LABELS_OF_ROWS)} labels as the old one"
        got = f"one of {new.run.get(RunNote.LABELS_OF_ROWS)}" + (f" with {others[0]!r}" if others else "")
        raise DataError("new", function, expected=expected, got=got)


def unnamed_classes(old: Evaluation, new: Evaluation) -> str:
    """What is assumed where one of two evaluations has no names for its classes, as a sentence; '' where both have.

    >>> from refocal.io import Predictions
    >>> from refocal.evaluate import evaluate
    >>> unnamed = Predictions.from_probabilities([0.2, 0.4] * 50, [0, 0, 0, 1] * 25)
    >>> named = Predictions.from_probabilities([0.2, 0.4] * 50, ["no", "no", "no", "yes"] * 25, positive_label="yes")
    >>> unnamed_classes(evaluate(unnamed, {}, n_resamples=20), evaluate(named, {}, n_resamples=20))
    'The classes of the old evaluation have no names: they are taken for no, yes of the new one, in this order.'
    """
    if _names_of_classes(old, new) is not None and _names_of_classes(new, old) is not None:
        return ""
    if old.class_names is None and new.class_names is None:
        return ""
    names = new.class_names if old.class_names is None else old.class_names
    most_shown = 6
    shown = ", ".join((names or [])[:most_shown]) + (", …" if old.n_classes > most_shown else "")
    unnamed, named = ("old", "new") if old.class_names is None else ("new", "old")
    assumed = f"they are taken for {shown} of the {named} one, in this order"
    return f"The classes of the {unnamed} evaluation have no names: {assumed}."


def _names_of_classes(evaluation: Evaluation, other: Evaluation) -> list[str] | None:
    """The names of the classes; where the other's are numbers, also the numbers of columns without names."""
    if evaluation.class_names is not None:
        return evaluation.class_names
    counted = [str(i) for i in range(evaluation.n_classes)]
    others = {*number_keys(other.class_names or ())}
    return counted if others == {*range(evaluation.n_classes)} else None


def _fewest_clusters(old: Evaluation, new: Evaluation) -> int | None:
    """The number of clusters of the evaluation that has fewer; None if neither has any."""
    numbers = [evaluation.run.get(RunNote.N_CLUSTERS) for evaluation in (old, new)]
    return min((int(number) for number in numbers if number is not None), default=None)


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
    nearest = found.low if metric.best is None else min(max(metric.best, found.low), found.high)
    return metric.judged(nearest), metric.judged(value), max(map(metric.judged, (found.low, found.high)))
