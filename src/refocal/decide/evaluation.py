"""What decisions of least expected cost have cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refocal._arrays import Indices, Vector
from refocal.decide.actions import ABSTAIN, DecidedRows, decide_rows
from refocal.decide.cost_intervals import CostRanges, cost_moments, excess_variance, interval_of_costs
from refocal.decide.costs import check_abstain, check_costs, class_names_of, positive_action
from refocal.decide.groups import GroupDecisions, decisions_by_group, share_of_rows
from refocal.metrics.inputs import check_clusters, check_level, groups_of_rows, mean, read_probabilities
from refocal.metrics.intervals import Interval, interval_of_share, number_of
from refocal.rows import Predictions

__all__ = ["DecisionReport", "evaluate_decisions"]


@dataclass(frozen=True)
class DecisionReport:
    """The actual cost of the decisions of least expected cost; means over all rows unless stated otherwise.

    >>> from refocal.decide import evaluate_decisions
    >>> found = evaluate_decisions([0, 1, 1, 0], [0.1, 0.8, 0.4, 0.3], [[0, 1], [1, 0]], abstain=0.35)
    >>> found.automated.value, found.error.value, found.cost.value
    (0.75, 0.0, 0.0875)
    """

    cost: Interval
    """The mean cost of a row."""
    expected_cost: float
    """The mean expected cost; if it is far from `cost`, the probabilities are not calibrated."""
    automated: Interval
    """The share of rows that were decided."""
    error: Interval | None
    """Among those, the share whose action was not the cheapest for their class; None if there are none."""
    fixed_action: int
    """The best single action for all rows, ABSTAIN among them if it has a cost."""
    fixed_cost: float
    """The mean cost of that action; the value of the model is the difference."""
    groups: list[GroupDecisions] = field(default_factory=list)
    """The decisions in each group, where rows have any."""


def evaluate_decisions(
    y_true: Any,
    probabilities: Any,
    costs: Any,
    *,
    abstain: Any = None,
    sample_weight: Any = None,
    level: float = 0.95,
    clusters: Any = None,
    groups: Any = None,
) -> DecisionReport:
    """The cost of deciding by these probabilities, next to the expected cost; arguments as for `best_actions`.

    The intervals hold for weights that depend on the label, and where no mistake was seen: decisions of each kind may
    cost what their column of `costs` says. Of mistakes so rare that most samples have none, a sample with one has an
    interval that is too high: of 40 rows of very unequal weights up to 14 % were. `clusters` has what each row belongs
    to, such as its customer: rows of one are not independent. `groups`, in one or several columns, has the decisions
    measured in each group; of two classes with the rates that fairness reviews ask for. By default these are those of
    Predictions.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(20_000)
    >>> y = (rng.random(20_000) < p).astype(int)
    >>> found = evaluate_decisions(y, p, [[0, 1], [5, 0]])
    >>> found.cost.low < found.expected_cost < found.cost.high < found.fixed_cost
    True
    """
    function = "evaluate_decisions"
    check_level(level, function)
    rows = read_probabilities(y_true, probabilities, sample_weight, function, clusters=clusters)
    check_clusters(rows.clusters, function)
    class_names = class_names_of(y_true, probabilities)
    table = check_costs(costs, rows.n_classes, function, class_names)
    is_read = isinstance(y_true, Predictions)
    price = check_abstain(abstain, rows.labels.shape if is_read else tuple(np.shape(y_true)), function)
    if price is not None:
        of_each_row = price.ndim > 0 and not is_read
        price = np.ravel(price)[rows.numbers] if of_each_row else price  # rows of weight 0 have been left out
        price = np.broadcast_to(price, rows.labels.shape)
    decided = decide_rows(rows, table, price)
    if groups is None and isinstance(y_true, Predictions):
        groups = y_true.groups or None
    columns = groups_of_rows(groups, y_true, rows, function)
    weights_at_ends = CostRanges.of(table).weights_at_ends(rows, table)

    def cost_of(members: Indices, level_of_one: float) -> tuple[Interval, float]:
        """The cost of some rows."""
        of_members = rows.take(members)
        decided_members = decided.take(members)
        cost = _cost_of_rows(of_members, decided_members, table, weights_at_ends, level_of_one, simultaneous=True)
        return cost, mean(decided_members.expected_cost, of_members.weight)

    fixed_costs = {action: mean(table[rows.labels, action], rows.weight) for action in range(table.shape[1])}
    if price is not None:
        fixed_costs[ABSTAIN] = mean(price, rows.weight)
    best = min(fixed_costs, key=fixed_costs.__getitem__)
    automated = decided.action != ABSTAIN
    return DecisionReport(
        cost=_cost_of_rows(rows, decided, table, weights_at_ends, level),
        expected_cost=mean(decided.expected_cost, rows.weight),
        automated=interval_of_share(automated, rows.weight, level, rows.clusters),
        error=share_of_rows(rows, np.flatnonzero(automated), decided.is_wrong[automated], level),
        fixed_action=best,
        fixed_cost=fixed_costs[best],
        groups=decisions_by_group(
            rows, decided.action, table.shape[1], positive_action(costs, class_names), cost_of, columns, level
        ),
    )


def _cost_of_rows(
    rows: Predictions,
    decided: DecidedRows,
    table: Vector,
    weights_at_ends: Vector,
    level: float,
    *,
    simultaneous: bool = False,
) -> Interval:
    """The mean cost of rows that are decided, with its interval; `simultaneous` for a level close to 1."""
    sums = [moments.sum(axis=1) for moments in cost_moments(rows, decided, table)]
    limits = (float(min(table.min(), decided.cost.min())), float(max(table.max(), decided.cost.max())))
    n_units = number_of(rows.clusters, rows.weight)
    # One cluster says nothing about others: the cost may be any.
    if rows.clusters is not None and n_units == 1:
        value = mean(decided.cost, rows.weight)
        return Interval(value, *limits, level, limits[1] - limits[0], 0.0, 0)
    excess = 0.0 if n_units is None else float(excess_variance(decided.cost, rows))
    costs_of_rows = interval_of_costs(
        sums, table, level, limits, weights_at_ends, n_units, excess, simultaneous=simultaneous
    )
    return Interval(
        value=float(costs_of_rows.mean),
        low=float(costs_of_rows.low),
        high=float(costs_of_rows.high),
        level=level,
        standard_error=float(costs_of_rows.standard_error),
        bias=0.0,
        n_resamples=0,
    )
