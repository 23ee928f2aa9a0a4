"""Costs of actions: tables of them, and the thresholds that follow of two classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refocal._arrays import Vector
from refocal._validation import check_finite, check_number
from refocal.errors import ParameterError, ShapeError
from refocal.rows import Predictions
from refocal.rows.class_names import column_order
from refocal.rows.gate import names_of_columns
from refocal.rows.labels import order_of_numbers
from refocal.rows.scores import column_names

__all__ = ["abstention_interval", "cost_matrix", "optimal_threshold"]


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
    price = check_number(abstain, "abstain", function)
    low = 0.0
    high = 1.0
    for at_0, at_1 in check_costs(costs, 2, function).T.tolist():  # the cost of a decision as p goes from 0 to 1
        if at_0 == at_1:
            if price >= at_0:  # this decision never costs more: the interval is empty
                high = low
        elif at_0 < at_1:
            low = max(low, (price - at_0) / (at_1 - at_0))
        else:
            high = min(high, (at_0 - price) / (at_0 - at_1))
    return (low, high) if low < high else (threshold, threshold)


def class_names_of(rows: Any, probabilities: Any) -> Sequence[Any] | None:
    """The names of the classes: of Predictions, or of the columns of a data frame; None where they have none.

    Columns called 0 … C-1 are in the order of these numbers, as the gate reads them.
    """
    if isinstance(rows, Predictions):
        return rows.class_names
    names, _ = names_of_columns(column_names(probabilities))
    order = order_of_numbers(names)
    return names if names is None or order is None else [names[i] for i in order]


def check_costs(costs: Any, n_classes: int, function: str, class_names: Sequence[Any] | None = None) -> Vector:
    """A matrix of finite costs with a row for each class; rows of a data frame are matched with the classes by name.

    Numbers of rows are names where they are those of the classes; 0, 1, … as they come say nothing.
    """
    if hasattr(costs, "iloc"):
        names = [str(name) for name in costs.index]
        counted = [str(i) for i in range(n_classes)]
        wanted = counted if class_names is None else [str(name) for name in class_names]
        are_numbers = costs.index.dtype.kind in "iu"
        is_named = names != counted and sorted(names) == sorted(wanted) if are_numbers else class_names is not None
        order = column_order(names, wanted, function) if is_named else None
        costs = costs if order is None else costs.iloc[order]
    table = check_finite(costs, "costs", function, ParameterError)
    if table.ndim != 2 or table.shape[0] != n_classes or table.shape[1] < 2:
        expected = f"a matrix with a row for each of {n_classes} classes and a column for each action, two or more"
        raise ShapeError("costs", function, expected=expected, got=f"shape {table.shape}")
    return table


def positive_action(costs: Any, class_names: Sequence[Any] | None) -> int:
    """Which of two actions is the positive one: that called as class 1, if both are called as classes, or the second.

    >>> import pandas as pd
    >>> positive_action(pd.DataFrame([[0, 1], [5, 0]], columns=["yes", "no"]), ["no", "yes"])
    0
    """
    names = [str(name) for name in getattr(costs, "columns", ())]
    classes = [str(name) for name in class_names or ()]
    return names.index(classes[1]) if len(names) == 2 and sorted(names) == sorted(classes) else 1


def check_abstain(abstain: Any, shape: tuple[int, ...], function: str) -> Vector | None:
    """The cost of abstaining, if it is possible: one for all rows, or one for each."""
    if abstain is None:
        return None
    price = check_finite(abstain, "abstain", function, ParameterError)
    if price.ndim > 0 and price.shape != shape:
        raise ShapeError("abstain", function, expected=f"a number or of shape {shape}", got=f"shape {price.shape}")
    return price
