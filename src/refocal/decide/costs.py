"""Costs of actions: tables of them, and the thresholds that follow of two classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refocal._arrays import Indices, Vector
from refocal._validation import check_finite, check_number
from refocal.errors import InputWarning, ParameterError, ShapeError, warn
from refocal.rows import Predictions
from refocal.rows.class_names import column_order
from refocal.rows.gate import names_of_columns
from refocal.rows.keys import number_keys, order_of_numbers
from refocal.rows.label_errors import listed
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
    table = check_costs(costs, 2, function)
    threshold = optimal_threshold(table)
    price = check_number(abstain, "abstain", function)
    low = 0.0
    high = 1.0
    for at_0, at_1 in table.T.tolist():  # the cost of a decision as p goes from 0 to 1
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
    """A matrix of finite costs with a row for each class; rows of a data frame are matched with the classes by name."""
    if hasattr(costs, "iloc"):
        order = _order_of_rows(costs.index, n_classes, function, class_names)
        costs = costs if order is None else costs.iloc[order]
    table = check_finite(costs, "costs", function, ParameterError)
    if table.ndim != 2 or table.shape[0] != n_classes or table.shape[1] < 2:
        expected = f"a matrix with a row for each of {n_classes} classes and a column for each action, two or more"
        raise ShapeError("costs", function, expected=expected, got=f"shape {table.shape}")
    return table


def _order_of_rows(
    index: Any, n_classes: int, function: str, class_names: Sequence[Any] | None
) -> Sequence[int] | Indices | None:
    """The positions of the classes among the rows of a data frame of costs; None where these are in their order.

    Rows are called as labels are, however numbers are stored: by the names of the classes, or by their numbers from 0
    on. The numbers 0, 1, … that a data frame has by itself say nothing; other names that are none of the classes, or
    stand beside classes without names, are taken in their order, with a warning.
    """
    if _are_counted(index, n_classes):
        return None
    keys = number_keys(index)
    wanted = list(range(n_classes)) if class_names is None else number_keys(class_names)
    if len(keys) == n_classes and {*keys} == {*wanted}:
        return [keys.index(key) for key in wanted]
    has_names = class_names is not None and not {*keys}.isdisjoint(wanted)
    in_order = None if has_names else order_of_numbers(list(index))
    if in_order is not None and len(in_order) == n_classes:
        return in_order
    is_named = has_names or index.dtype.kind not in "iu"
    if is_named and class_names is not None:
        return column_order([str(name) for name in index], class_names, function)
    classes = "classes without names" if class_names is None else f"the classes {listed(class_names)}"
    warn(f"{function}: rows of costs are called {listed(index)}, and taken in this order for {classes}.", InputWarning)
    return None


def _are_counted(names: Any, n_names: int) -> bool:
    """Whether names of a data frame are the integers 0, 1, … in this order, which it has where none are given."""
    return names.dtype.kind in "iu" and list(names) == list(range(n_names))


def positive_action(costs: Any, class_names: Sequence[Any] | None) -> int:
    """Which of two actions is the positive one: that called as class 1, if both are called as classes, or the second.

    >>> import pandas as pd
    >>> positive_action(pd.DataFrame([[0, 1], [5, 0]], columns=["yes", "no"]), ["no", "yes"])
    0
    """
    names = getattr(costs, "columns", None)
    if names is None or len(names) != 2 or (hasattr(names, "dtype") and _are_counted(names, 2)):
        return 1
    actions = number_keys(names)
    classes = [0, 1] if class_names is None else number_keys(class_names)
    return actions.index(classes[1]) if {*actions} == {*classes} else 1


def check_abstain(abstain: Any, shape: tuple[int, ...], function: str) -> Vector | None:
    """The cost of abstaining, if it is possible: one for all rows, or one for each."""
    if abstain is None:
        return None
    price = check_finite(abstain, "abstain", function, ParameterError)
    if price.ndim > 0 and price.shape != shape:
        raise ShapeError("abstain", function, expected=f"a number or of shape {shape}", got=f"shape {price.shape}")
    return price
