"""How much can be automated: error and cost against the share of rows that are decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from refocal._arrays import Vector
from refocal._validation import check_integer, check_number
from refocal.decide.actions import decide_rows
from refocal.decide.cost_intervals import CostRanges, cost_moments, excess_variance, interval_of_costs
from refocal.decide.costs import check_costs, class_names_of
from refocal.decide.groups import share_of_rows
from refocal.metrics.inputs import check_clusters, check_level, read_probabilities
from refocal.metrics.intervals import number_of, wilson

__all__ = ["AutomationCurve", "automation_curve"]


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


def automation_curve(
    y_true: Any,
    probabilities: Any = None,
    costs: Any = None,
    *,
    abstain: float = 0.0,
    n_points: int = 100,
    sample_weight: Any = None,
    level: float = 0.95,
    clusters: Any = None,
) -> AutomationCurve:
    """Error and cost against the share of automated rows, the most certain first.

    Without `costs` every mistake costs 1. Rows of the same expected cost are automated together, so that there may be
    fewer than `n_points` points. `clusters` as for `evaluate_decisions`.

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
    rows = read_probabilities(y_true, probabilities, sample_weight, function, clusters=clusters)
    check_clusters(rows.clusters, function)
    table: Vector = 1.0 - np.eye(rows.n_classes)
    if costs is not None:
        table = check_costs(costs, rows.n_classes, function, class_names_of(y_true, probabilities))
    decided = decide_rows(rows, table, None)
    expected_cost = decided.expected_cost
    if costs is None and rows.binary:
        # The probability of a mistake, which is equal for equal decimals of either class.
        expected_cost = 1.0 - rows.ranking
    weight = rows.weights
    order = np.argsort(expected_cost, kind="stable")
    order = order[weight[order] > 0.0]
    last = _ends_of_ties(expected_cost[order], n_points)

    def up_to_points(terms: Vector) -> Vector:
        """The sums of terms (…, rows) over the rows that are automated at each point."""
        return np.asarray(np.cumsum(terms[..., order], axis=-1)[..., last])

    automated = up_to_points(weight)
    squared_weight = up_to_points(weight**2)
    errors = up_to_points(weight * decided.is_wrong) / automated
    n_units = number_of(rows.clusters, rows.weight)
    if n_units is None:
        error_low, error_high = wilson(errors, automated**2 / squared_weight, level)
    else:
        of_points = [share_of_rows(rows, order[: end + 1], decided.is_wrong[order[: end + 1]], level) for end in last]
        error_low, error_high = np.array([(each.low, each.high) for each in of_points if each is not None]).T
    excess: Vector | float = 0.0
    if rows.clusters is not None:
        is_automated = np.zeros((len(last), len(weight)), dtype=np.bool_)
        for point, end in enumerate(last):
            is_automated[point, order[: end + 1]] = True
        excess = excess_variance(np.where(is_automated, decided.cost, price), rows)
    sums = [up_to_points(moments) for moments in cost_moments(rows, decided, table)]
    # The rows that are left undecided cost the same.
    undecided = np.stack([weight.sum() - automated, np.square(weight).sum() - squared_weight])
    sums[0] += (undecided[:, None] * np.array([1.0, price, price**2])[:, None]).reshape(6, -1)
    limits = (min(price, float(table.min())), max(price, float(table.max())))
    weights_at_ends = CostRanges.of(table).weights_at_ends(rows, table)
    costs_of_points = interval_of_costs(sums, table, level, limits, weights_at_ends, n_units, excess)
    return AutomationCurve(
        share=automated / weight.sum(),
        highest_expected_cost=expected_cost[order][last],
        error=errors,
        error_low=error_low,
        error_high=error_high,
        cost=costs_of_points.mean,
        cost_low=costs_of_points.low,
        cost_high=costs_of_points.high,
        level=level,
    )


def _ends_of_ties(ordered: Vector, n_points: int) -> Any:
    """About `n_points` places at which a value that is not the next one ends, the last place among them."""
    rounding = 1e-12 * (1.0 + np.abs(ordered[1:]))
    ends = np.append(np.flatnonzero(np.diff(ordered) > rounding), len(ordered) - 1)
    if n_points >= len(ordered):
        return ends
    wanted = np.linspace(0, len(ordered) - 1, n_points + 1)[1:]
    return np.unique(ends[np.minimum(np.searchsorted(ends, wanted), len(ends) - 1)])
