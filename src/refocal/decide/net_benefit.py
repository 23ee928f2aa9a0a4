"""The decision curve of two classes: net benefit against the threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Flags, Vector
from refocal._validation import check_finite
from refocal.errors import ParameterError, ShapeError
from refocal.metrics.bins import effective_size, reached_from
from refocal.metrics.influence import variance_of_mean
from refocal.metrics.inputs import check_clusters, check_level, read_probabilities
from refocal.metrics.intervals import number_of, wilson
from refocal.rows import Predictions

__all__ = ["NetBenefitCurve", "net_benefit_curve"]


@dataclass(frozen=True)
class NetBenefitCurve:
    """Net benefit at each threshold, with its pointwise interval, beside that of acting on every row.

    Acting on no row has net benefit 0. A model is worth using at a threshold where it is above both.

    >>> curve = net_benefit_curve([0, 1, 1, 0], [0.1, 0.8, 0.4, 0.3], thresholds=[0.2, 0.5])
    >>> curve.net_benefit, curve.act_on_all
    (array([0.4375, 0.25  ]), array([0.375, 0.   ]))
    """

    threshold: Vector
    net_benefit: Vector
    low: Vector
    high: Vector
    act_on_all: Vector
    level: float


def net_benefit_curve(
    y_true: Any,
    probabilities: Any = None,
    *,
    thresholds: Any = None,
    sample_weight: Any = None,
    level: float = 0.95,
    clusters: Any = None,
) -> NetBenefitCurve:
    """The decision curve (Vickers & Elkin 2006) of two classes: rows with p(class 1) ≥ threshold are acted on.

    Net benefit is the share of true positives less that of false positives, which count t / (1 - t) each: at the
    threshold t a false positive is that much less bad than a missed positive. By default t = 0.01 … 0.99. The interval
    is that of each threshold, and wider than 0 where no row is acted on. `clusters` has what each row belongs to, such
    as its patient: rows of one are not independent.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(5000)
    >>> y = (rng.random(5000) < p).astype(int)
    >>> curve = net_benefit_curve(y, p)
    >>> bool(np.all(curve.net_benefit > curve.act_on_all - 0.01))
    True
    """
    function = "net_benefit_curve"
    check_level(level, function)
    rows = read_probabilities(y_true, probabilities, sample_weight, function, clusters=clusters)
    check_clusters(rows.clusters, function)
    if rows.n_classes != 2:
        expected = "the probability of class 1, or two columns"
        raise ShapeError("probabilities", function, expected=expected, got=f"{rows.n_classes} classes")
    if thresholds is None:
        given = np.arange(1, 100) / 100.0
    else:
        given = np.atleast_1d(check_finite(thresholds, "thresholds", function))
    if given.ndim != 1 or not np.all((given > 0.0) & (given < 1.0)):
        raise ParameterError("thresholds", function, expected="numbers between 0 and 1", got=repr(thresholds))
    p, occurs = rows.event_of_column(1)
    share = rows.weights / rows.weights.sum()
    odds = given / (1.0 - given)
    hits, alarms = at_or_above(given, p, share * occurs, share * ~occurs)
    hit_ends = _ends_of_share(given, rows, occurs, hits, level)
    alarm_ends = _ends_of_share(given, rows, ~occurs, alarms, level)
    low, high = _ends_of_benefit(hits, hit_ends, alarms, alarm_ends, odds)
    rate = float(share[occurs].sum())
    return NetBenefitCurve(
        threshold=given,
        net_benefit=hits - odds * alarms,
        low=low,
        high=high,
        act_on_all=rate - odds * (1.0 - rate),
        level=level,
    )


class ShareEnds(NamedTuple):
    """The ends of the intervals of shares, (thresholds,) each."""

    low: Vector
    high: Vector


def _ends_of_share(thresholds: Vector, rows: Predictions, is_class: Flags, share: Vector, level: float) -> ShareEnds:
    """Wilson's intervals of the share of rows that are of a class and have a p at or above each threshold.

    The variance of the share is Σ w² (x - share)² / (Σ w)² with x = 1 for such a row and 0 for others. So that it is
    known where one of the two kinds has no rows, each gets one more row of the mean weight of the class, or of all rows
    where none is of the class.
    """
    p, _ = rows.event_of_column(1)
    weight = rows.weights
    total = float(weight.sum())
    reached_weight, squared_weight = at_or_above(thresholds, p, weight * is_class, weight**2 * is_class)
    of_class = weight[is_class] if is_class.any() else weight
    mean_weight = float(of_class @ of_class / of_class.sum())
    # One row more of the mean weight of the class, as in `outcome_weights`.
    weight_of_reached = (squared_weight + mean_weight**2) / (reached_weight + mean_weight)
    all_squares = float(weight @ weight)
    rest_weight = np.maximum(total - reached_weight, 0.0)
    weight_of_others = (np.maximum(all_squares - squared_weight, 0.0) + mean_weight**2) / (rest_weight + mean_weight)
    size = effective_size(share, total, weight_of_reached, weight_of_others)
    n_units = number_of(rows.clusters, rows.weight)
    if n_units is not None:
        own_variance = share * (1.0 - share)
        variance = _variance_of_units(thresholds, rows, is_class, share)
        size = np.minimum(size, np.divide(own_variance, variance, out=size.copy(), where=own_variance * variance > 0.0))
    return ShareEnds(*wilson(share, size, level, n_units))


def _variance_of_units(thresholds: Vector, rows: Predictions, is_class: Flags, share: Vector) -> Vector:
    """The jackknife's variance of such shares (`refocal.metrics.influence`), by clusters or by rows of unequal weights.

    For rows it is (n - 1) / n Σ (w / (W - w))² (x - share)², summed over the rows with x = 1 and those with x = 0.
    """
    p, _ = rows.event_of_column(1)
    if rows.clusters is not None:
        happens = is_class & (p >= reached_from(thresholds)[:, None])
        return np.asarray(variance_of_mean(happens.astype(np.float64), rows.weight, rows.clusters))
    weight = rows.weights
    squares = np.square(weight / (weight.sum() - weight))
    (reached,) = at_or_above(thresholds, p, squares * is_class)
    of_rows = reached * np.square(1.0 - share) + (squares.sum() - reached) * np.square(share)
    return np.asarray((1.0 - 1.0 / len(weight)) * of_rows)


def _ends_of_benefit(
    hits: Vector, hit_ends: ShareEnds, alarms: Vector, alarm_ends: ShareEnds, odds: Vector
) -> tuple[Vector, Vector]:
    """The interval of hits - odds · alarms from those of both shares (Zou & Donner 2008).

    With the distances a and b of an end of each from its share, the end is off by √(a² + odds² b² - 2 r a odds b),
    r = -√(h f / ((1 - h)(1 - f))) being the correlation of the shares h and f of events that exclude one another.
    """
    product = hits * alarms
    correlation = -np.sqrt(product / np.maximum((1.0 - hits) * (1.0 - alarms), product + 1e-300))

    def distance(of_hits: Vector, of_alarms: Vector) -> Vector:
        weighted = odds * of_alarms
        squares = of_hits**2 + weighted**2 - 2.0 * correlation * of_hits * weighted
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)))

    benefit = hits - odds * alarms
    below = distance(hits - hit_ends.low, alarm_ends.high - alarms)
    above = distance(hit_ends.high - hits, alarms - alarm_ends.low)
    return np.maximum(benefit - below, -odds), np.minimum(benefit + above, 1.0)


def at_or_above(thresholds: Vector, p: Vector, *terms: Vector) -> list[Vector]:
    """The sums of some terms over the rows with a p at or above each threshold, as a decimal is in any precision."""
    order = np.argsort(p, kind="stable")
    first = np.searchsorted(p[order], reached_from(thresholds), side="left")
    sums = []
    for term in terms:
        sum_below = np.concatenate([[0.0], np.cumsum(term[order])])
        sums.append(sum_below[-1] - sum_below[first])
    return sums
