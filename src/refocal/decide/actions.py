"""The action of least expected cost of each row, and what came of it where the class is known."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Array, Flags, Indices, Vector, as_array, in_library_of, namespace, to_numpy, two_columns
from refocal._validation import check_one_column, check_probabilities
from refocal.decide.costs import check_abstain, check_costs, class_names_of
from refocal.rows import Predictions
from refocal.rows.gate import in_column_order
from refocal.rows.positive import check_series

__all__ = ["ABSTAIN", "Decisions", "best_actions"]

ABSTAIN = -1
"""The action of leaving a row undecided."""


class Decisions(NamedTuple):
    """The cheapest action of each row, a column of the costs or ABSTAIN, and what it costs on average.

    >>> made = Decisions(np.array([0, ABSTAIN]), np.array([0.1, 0.2]))
    >>> bool(made.action[1] == ABSTAIN)
    True
    """

    action: Array
    expected_cost: Array


def best_actions(probabilities: Any, costs: Any, *, abstain: Any = None) -> Decisions:
    """The action of least expected cost in each row.

    Parameters
    ----------
    probabilities : array or Predictions
        (N, C), or (N,) for the probability of class 1 of two. They should be calibrated: expected costs rely on it.
    costs : array (C, A)
        What action j costs when the class is i. Actions need not be classes. The rows of a data frame are matched with
        named classes; actions are the numbers of its columns.
    abstain : number or array (N,), optional
        The cost of leaving a row undecided; such rows get the action ABSTAIN, -1.

    Examples
    --------
    >>> costs = [[0, 1, 9], [1, 0, 9], [60, 60, 0]]  # missing the third class is expensive
    >>> best_actions([[0.5, 0.3, 0.2], [0.5, 0.49, 0.01]], costs).action
    array([2, 0])
    >>> from refocal.decide import cost_matrix
    >>> best_actions([0.05, 0.3, 0.9], cost_matrix(false_positive=1, false_negative=4), abstain=0.35).action
    array([ 0, -1,  1])
    """
    function = "best_actions"
    names = class_names_of(probabilities, probabilities)
    scores = probabilities.as_probabilities() if isinstance(probabilities, Predictions) else probabilities
    given = as_array(in_column_order(scores), "probabilities", function)
    if given.ndim == 1:
        check_series(scores, names, "probabilities", function)
        p = check_one_column(given, "probabilities", "probabilities", function)
    else:
        p = check_probabilities(given, "probabilities", function)
    table = check_costs(costs, int(p.shape[-1]), function, names)
    return cheapest(p, table, check_abstain(abstain, tuple(p.shape[:-1]), function))


def cheapest(p: Array, table: Vector, price: Vector | None) -> Decisions:
    """As `best_actions`, for checked arguments.

    Actions are compared by their expected regrets Σ_i p_i (c_ij - min_k c_ik), in which what every action costs of a
    class has no part. Of those that are equal but for rounding the first is taken, and abstaining is taken if it costs
    less than all: so the precision of the probabilities does not decide.
    """
    # Regrets that differ by less than this share of their terms are equal: float32 rounds each by a few times 6e-8.
    tolerance = 5e-7
    xp = namespace(p)

    def as_p(values: Vector) -> Array:
        return xp.astype(in_library_of(p, values), p.dtype)

    least_cost = table.min(axis=1)
    regret = table - least_cost[:, None]
    expected_regret = xp.matmul(p, as_p(regret))
    least_regret = xp.min(expected_regret, axis=-1)
    rounding = xp.matmul(p, as_p(tolerance * regret))
    is_cheapest = expected_regret <= least_regret[..., None] + rounding
    action = xp.argmax(xp.astype(is_cheapest, xp.int32), axis=-1)
    cost = xp.min(xp.matmul(p, as_p(table)), axis=-1)
    if price is None:
        return Decisions(action, cost)
    regret_of_price = price[..., None] - least_cost
    regret_of_abstaining = xp.sum(p * as_p(regret_of_price), axis=-1)
    rounding_of_price = xp.sum(p * as_p(tolerance * np.abs(regret_of_price)), axis=-1)
    abstains = regret_of_abstaining < least_regret - rounding_of_price
    return Decisions(xp.where(abstains, ABSTAIN, action), xp.where(abstains, as_p(price), cost))


class DecidedRows(NamedTuple):
    """The cheapest action of each row by its probabilities, and what came of it; (rows,) each."""

    action: Indices
    expected_cost: Vector
    cost: Vector
    """What the action cost, the class being known."""
    is_wrong: Flags
    """Whether the row was decided and another action would have been cheaper."""

    def take(self, rows: Indices) -> DecidedRows:
        """Some of the rows."""
        return DecidedRows(self.action[rows], self.expected_cost[rows], self.cost[rows], self.is_wrong[rows])


def decide_rows(rows: Predictions, table: Vector, price: Vector | None) -> DecidedRows:
    """Decide rows whose labels are known; `price` is the cost of abstaining, if that is possible."""
    p = two_columns(np.clip(rows.values, 0.0, 1.0), "probabilities") if rows.binary else rows.values
    decisions = cheapest(p, table, price)
    action = to_numpy(decisions.action)
    automated = action != ABSTAIN
    cost_of_action = table[rows.labels, np.where(automated, action, 0)]
    least_cost = table.min(axis=1)[rows.labels]
    return DecidedRows(
        action=action,
        expected_cost=to_numpy(decisions.expected_cost),
        cost=cost_of_action if price is None else np.where(automated, cost_of_action, price),
        is_wrong=automated & (cost_of_action > least_cost),
    )
