"""Decisions of least expected cost, from probabilities and a matrix of costs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Array, Vector, as_array, in_library_of, namespace
from refocal._validation import check_finite, check_number, check_one_column, check_probabilities
from refocal.errors import ParameterError, ShapeError

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


def cost_matrix(
    *, false_positive: float, false_negative: float, true_positive: float = 0.0, true_negative: float = 0.0
) -> Vector:
    """The costs of two classes: a row for each true class, a column for each decision.

    >>> cost_matrix(false_positive=1.0, false_negative=5.0)
    array([[0., 1.],
           [5., 0.]])
    """
    given = {"true_negative": true_negative, "false_positive": false_positive,
             "false_negative": false_negative, "true_positive": true_positive}  # fmt: skip
    return np.array([check_number(cost, name, "cost_matrix") for name, cost in given.items()]).reshape(2, 2)


def optimal_threshold(costs: Any) -> float:
    """The probability of class 1 above which deciding for class 1 is cheaper, of two classes and two actions.

    (c₀₁ - c₀₀) / (c₀₁ - c₀₀ + c₁₀ - c₁₁), where c_ij is the cost of action j when the class is i.

    >>> optimal_threshold(cost_matrix(false_positive=1.0, false_negative=4.0))
    0.2
    """
    function = "optimal_threshold"
    table = check_costs(costs, 2, function)
    if table.shape[1] != 2:
        raise ShapeError("costs", function, expected="of two classes and two actions", got=f"shape {table.shape}")
    (c00, c01), (c10, c11) = table.tolist()
    if not (c01 > c00 and c10 > c11):
        expected = "such that a wrong decision costs more than the right one, for both classes"
        raise ParameterError("costs", function, expected=expected, got=str(table.tolist()))
    return float((c01 - c00) / (c01 - c00 + c10 - c11))


def abstention_interval(costs: Any, abstain: float) -> tuple[float, float]:
    """The probabilities of class 1 between which abstaining, at the cost `abstain`, is cheaper than either decision.

    Outside of it the threshold decides. Where abstaining never pays, both ends are the threshold.

    >>> abstention_interval(cost_matrix(false_positive=1.0, false_negative=4.0), abstain=0.4)
    (0.1, 0.6)
    >>> abstention_interval(cost_matrix(false_positive=1.0, false_negative=4.0), abstain=2.0)
    (0.2, 0.2)
    """
    function = "abstention_interval"
    threshold = optimal_threshold(costs)
    price, low, high = check_number(abstain, "abstain", function), 0.0, 1.0
    for at_0, at_1 in check_costs(costs, 2, function).T.tolist():  # the cost of a decision as p goes from 0 to 1
        if at_0 == at_1:
            high = high if price < at_0 else low
        elif at_0 < at_1:
            low = max(low, (price - at_0) / (at_1 - at_0))
        else:
            high = min(high, (at_0 - price) / (at_0 - at_1))
    return (low, high) if low < high else (threshold, threshold)


def best_actions(probabilities: Any, costs: Any, *, abstain: Any = None) -> Decisions:
    """The action of least expected cost in each row.

    Parameters
    ----------
    probabilities : array
        (N, C), or (N,) for the probability of class 1 of two. They should be calibrated: expected costs rely on it.
    costs : array (C, A)
        What action j costs when the class is i. Actions need not be classes.
    abstain : number or array (N,), optional
        The cost of leaving a row undecided; such rows get the action ABSTAIN, -1.

    Examples
    --------
    >>> costs = [[0, 1, 9], [1, 0, 9], [60, 60, 0]]  # missing the third class is expensive
    >>> best_actions([[0.5, 0.3, 0.2], [0.5, 0.49, 0.01]], costs).action
    array([2, 0])
    >>> best_actions([0.05, 0.3, 0.9], cost_matrix(false_positive=1, false_negative=4), abstain=0.35).action
    array([ 0, -1,  1])
    """
    function = "best_actions"
    given = as_array(probabilities, "probabilities", function)
    if given.ndim == 1:
        p = check_one_column(given, "probabilities", "probabilities", function)
    else:
        p = check_probabilities(given, "probabilities", function)
    table = check_costs(costs, int(p.shape[-1]), function)
    return cheapest(p, table, check_abstain(abstain, tuple(p.shape[:-1]), function))


def cheapest(p: Array, table: Vector, price: Vector | None) -> Decisions:
    """As `best_actions`, for checked arguments."""
    xp = namespace(p)
    expected = xp.matmul(p, xp.astype(in_library_of(p, table), p.dtype))
    action, cost = xp.argmin(expected, axis=-1), xp.min(expected, axis=-1)
    if price is None:
        return Decisions(action, cost)
    paid = xp.astype(in_library_of(p, price), p.dtype)
    return Decisions(xp.where(paid < cost, ABSTAIN, action), xp.where(paid < cost, paid, cost))


def check_costs(costs: Any, n_classes: int, function: str) -> Vector:
    """A matrix of finite costs with a row for each class."""
    table = check_finite(costs, "costs", function, ParameterError)
    if table.ndim != 2 or table.shape[0] != n_classes or table.shape[1] < 2:
        expected = f"a matrix with a row for each of {n_classes} classes and a column for each action, two or more"
        raise ShapeError("costs", function, expected=expected, got=f"shape {table.shape}")
    return table


def check_abstain(abstain: Any, shape: tuple[int, ...], function: str) -> Vector | None:
    """The cost of abstaining, if it is possible: one for all rows, or one for each."""
    if abstain is None:
        return None
    price = check_finite(abstain, "abstain", function, ParameterError)
    if price.ndim > 0 and price.shape != shape:
        raise ShapeError("abstain", function, expected=f"a number or of shape {shape}", got=f"shape {price.shape}")
    return price
