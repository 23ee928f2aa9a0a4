"""The cost of decisions on rows whose classes are known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from refocal._arrays import Flags, Indices, Matrix, Vector
from refocal.decide.costs import ABSTAIN, best_actions, check_abstain, check_costs
from refocal.metrics._inputs import Rows, check_level, mean, read_probabilities
from refocal.metrics.intervals import Interval, effective_size, normal_interval, share_interval


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


def evaluate_decisions(
    y_true: Any,
    probabilities: Any,
    costs: Any,
    *,
    abstain: Any = None,
    sample_weight: Any = None,
    level: float = 0.95,
) -> DecisionReport:
    """The cost of deciding by these probabilities, next to the expected cost; arguments as for `best_actions`.

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
    rows = read_probabilities(y_true, probabilities, sample_weight, function)
    table = check_costs(costs, rows.n_classes, function)
    price = None if abstain is None else np.ravel(check_abstain(abstain, tuple(np.shape(y_true)), function))
    if price is not None:
        price = np.broadcast_to(price, rows.labels.shape)
    action, expected = best_actions(probabilities_of(rows), table, abstain=price)
    paid, wrong, automated = outcome_of(rows.labels, action, table, price)
    size = effective_size(rows.weight, len(paid))
    cost = mean(paid, rows.weight)
    spread = math.sqrt(mean(np.square(paid - cost), rows.weight))
    limits = (float(min(table.min(), paid.min())), float(max(table.max(), paid.max())))
    fixed = {j: mean(table[rows.labels, j], rows.weight) for j in range(table.shape[1])}
    if price is not None:
        fixed[ABSTAIN] = mean(price, rows.weight)
    best = min(fixed, key=fixed.__getitem__)
    return DecisionReport(
        cost=normal_interval(cost, spread / size**0.5, level, limits),
        expected_cost=mean(expected, rows.weight),
        automated=share_interval(mean(automated.astype(np.float64), rows.weight), size, level),
        error=_share_among(automated, wrong, rows.weight, level),
        fixed_action=best,
        fixed_cost=fixed[best],
    )


def outcome_of(labels: Indices, action: Indices, table: Vector, price: Vector | None) -> tuple[Vector, Flags, Flags]:
    """Of each row what was paid, whether another action had been cheaper for its class, and whether one was taken."""
    automated = action != ABSTAIN
    taken = table[labels, np.where(automated, action, 0)]
    paid: Vector = taken if price is None else np.where(automated, taken, price)
    return paid, automated & (taken > table.min(axis=1)[labels]), automated


def _share_among(chosen: Flags, true: Flags, weight: Vector | None, level: float) -> Interval | None:
    some = None if weight is None else weight[chosen]
    if not chosen.any() or (some is not None and some.sum() == 0):
        return None
    size = effective_size(some, int(chosen.sum()))
    return share_interval(mean(true[chosen].astype(np.float64), some), size, level)


def probabilities_of(rows: Rows) -> Matrix:
    """The probabilities of all classes, or of class 1 alone, without what rounding puts outside [0, 1]."""
    return np.clip(rows.probabilities, 0.0, 1.0) if rows.binary else rows.probabilities
