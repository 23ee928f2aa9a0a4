"""Curves to choose a threshold from: net benefit, and cost and error against the share that is automated."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from refocal._arrays import Vector, as_floating, to_numpy
from refocal._validation import check_integer, check_number
from refocal.decide.costs import best_actions, check_costs
from refocal.decide.outcome import outcome_of, probabilities_of
from refocal.errors import ParameterError, ShapeError
from refocal.metrics._inputs import check_level, read_probabilities
from refocal.metrics.intervals import effective_size, wilson

THRESHOLDS = np.arange(1, 100) / 100.0


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


@dataclass(frozen=True)
class AutomationCurve:
    """Error and cost if the rows of least expected cost are decided and the others are left undecided.

    `error` is the share of wrong decisions among the automated rows; `cost` the mean cost of all rows, undecided rows
    counted with the cost of abstaining. Both have pointwise intervals.

    >>> curve = automation_curve([0, 1, 1, 0], [0.1, 0.8, 0.4, 0.3])
    >>> curve.share, curve.error
    (array([0.25, 0.5 , 0.75, 1.  ]), array([0.  , 0.  , 0.  , 0.25]))
    """

    share: Vector
    highest_expected_cost: Vector
    """The expected cost up to which rows are automated."""
    error: Vector
    error_low: Vector
    error_high: Vector
    cost: Vector
    cost_low: Vector
    cost_high: Vector
    level: float


def net_benefit_curve(
    y_true: Any,
    probabilities: Any,
    *,
    thresholds: Any = None,
    sample_weight: Any = None,
    level: float = 0.95,
) -> NetBenefitCurve:
    """The decision curve (Vickers & Elkin 2006) of two classes: rows with p(class 1) ≥ threshold are acted on.

    Net benefit is the share of true positives less that of false positives, which count t / (1 - t) each: at the
    threshold t a false positive is that much less bad than a missed positive. By default t = 0.01 … 0.99.

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
    rows = read_probabilities(y_true, probabilities, sample_weight, function)
    if rows.n_classes != 2:
        expected = "the probability of class 1, or two columns"
        raise ShapeError("probabilities", function, expected=expected, got=f"{rows.n_classes} classes")
    given = THRESHOLDS
    if thresholds is not None:
        given = np.atleast_1d(to_numpy(as_floating(thresholds, "thresholds", function)[0]).astype(np.float64))
    if given.ndim != 1 or not np.all((given > 0.0) & (given < 1.0)):
        raise ParameterError("thresholds", function, expected="numbers between 0 and 1", got=repr(thresholds))
    p, occurs = rows.event(1)
    weight = np.ones(len(p)) if rows.weight is None else rows.weight
    hits, alarms = at_or_above(given, p, *(weight * chosen / weight.sum() for chosen in (occurs, ~occurs)))
    odds, rate = given / (1.0 - given), float(weight[occurs].sum() / weight.sum())
    value = hits - odds * alarms
    error = np.sqrt((hits + odds**2 * alarms - value**2).clip(0.0) / effective_size(rows.weight, len(p)))
    reach = NormalDist().inv_cdf(0.5 + level / 2.0) * error
    low, high = np.maximum(value - reach, -odds), np.minimum(value + reach, 1.0)
    return NetBenefitCurve(given, value, low, high, rate - odds * (1.0 - rate), level)


def automation_curve(
    y_true: Any,
    probabilities: Any,
    costs: Any = None,
    *,
    abstain: float = 0.0,
    n_points: int = 100,
    sample_weight: Any = None,
    level: float = 0.95,
) -> AutomationCurve:
    """Error and cost against the share of automated rows, the most certain first.

    Without `costs` every mistake costs 1. Rows of the same expected cost are automated together, so that there may be
    fewer than `n_points` points.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(5000)
    >>> y = (rng.random(5000) < p).astype(int)
    >>> curve = automation_curve(y, p, abstain=0.2)
    >>> round(float(curve.share[np.argmin(curve.cost)]), 1)  # the rows below 0.2 and above 0.8
    0.4
    """
    function = "automation_curve"
    check_level(level, function)
    check_integer(n_points, "n_points", function)
    price = check_number(abstain, "abstain", function)
    rows = read_probabilities(y_true, probabilities, sample_weight, function)
    table = 1.0 - np.eye(rows.n_classes) if costs is None else check_costs(costs, rows.n_classes, function)
    action, expected = best_actions(probabilities_of(rows), table)
    paid, wrong, _ = outcome_of(rows.labels, action, table, None)
    weight = np.ones(len(paid)) if rows.weight is None else rows.weight
    order = np.argsort(expected, kind="stable")
    last = _ends(expected[order], n_points)
    automated, squares, mistakes, cost, cost2 = (
        np.cumsum(terms[order])[last] for terms in (weight, weight**2, weight * wrong, weight * paid, weight * paid**2)
    )
    total = float(weight.sum())
    left = (total - automated) / total
    mean_cost = cost / total + price * left
    spread = np.sqrt((cost2 / total + price**2 * left - mean_cost**2).clip(0.0))
    reach = NormalDist().inv_cdf(0.5 + level / 2.0) * spread / effective_size(rows.weight, len(paid)) ** 0.5
    error = mistakes / automated
    error_low, error_high = wilson(error, automated**2 / squares, level)
    return AutomationCurve(
        share=automated / total,
        highest_expected_cost=expected[order][last],
        error=error,
        error_low=error_low,
        error_high=error_high,
        cost=mean_cost,
        cost_low=np.maximum(mean_cost - reach, min(price, float(table.min()))),
        cost_high=np.minimum(mean_cost + reach, max(price, float(table.max()))),
        level=level,
    )


def at_or_above(thresholds: Vector, p: Vector, *terms: Vector) -> list[Vector]:
    """The sums of some terms over the rows with a p at or above each threshold."""
    order = np.argsort(p, kind="stable")
    at = np.searchsorted(p[order], thresholds, side="left")
    before = [np.concatenate([[0.0], np.cumsum(each[order])]) for each in terms]
    return [sums[-1] - sums[at] for sums in before]


def _ends(ordered: Vector, n_points: int) -> Any:
    """About `n_points` places at which a value that is not the next one ends, the last place among them."""
    rounding = 1e-12 * (1.0 + np.abs(ordered[1:]))
    ends = np.append(np.flatnonzero(np.diff(ordered) > rounding), len(ordered) - 1)
    wanted = np.linspace(0, len(ordered) - 1, min(n_points, len(ordered)) + 1)[1:] if n_points < len(ordered) else ends
    return np.unique(ends[np.minimum(np.searchsorted(ends, wanted), len(ends) - 1)])
