"""Decisions from probabilities: actions of least cost, what they cost, and how much can be automated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Array, Flags, Indices, Vector, as_array, in_library_of, namespace, to_numpy, two_columns
from refocal._group_decisions import (
    GroupDecisions,
    PredictiveValues,
    decisions_by_group,
    share_of_rows,
    values_at_prevalence,
)
from refocal._groups import as_groups
from refocal._validation import check_finite, check_integer, check_number, check_one_column, check_probabilities
from refocal.errors import ParameterError, ShapeError
from refocal.metrics.bins import effective_size, outcome_weights, reached_from
from refocal.metrics.influence import critical_value, variance_of_mean
from refocal.metrics.inputs import check_level, mean, read_probabilities
from refocal.metrics.intervals import (
    Interval,
    bounded_mean,
    exact_bounded_mean,
    interval_of_share,
    number_of,
    wilson,
)
from refocal.metrics.two_classes import read_two_classes
from refocal.rows import Predictions
from refocal.rows.class_names import column_order
from refocal.rows.gate import in_column_order, names_of_columns
from refocal.rows.scores import column_names

__all__ = [
    "ABSTAIN",
    "AutomationCurve",
    "DecisionReport",
    "Decisions",
    "GroupDecisions",
    "NetBenefitCurve",
    "PredictiveValues",
    "abstention_interval",
    "automation_curve",
    "best_actions",
    "cost_matrix",
    "evaluate_decisions",
    "net_benefit_curve",
    "optimal_threshold",
    "predictive_values",
]

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


def best_actions(probabilities: Any, costs: Any, *, abstain: Any = None) -> Decisions:
    """The action of least expected cost in each row.

    Parameters
    ----------
    probabilities : array or Predictions
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
    names = _class_names(probabilities, probabilities)
    given = as_array(in_column_order(probabilities), "probabilities", function)
    if given.ndim == 1:
        p = check_one_column(given, "probabilities", "probabilities", function)
    else:
        p = check_probabilities(given, "probabilities", function)
    table = check_costs(costs, int(p.shape[-1]), function, names)
    return cheapest(p, table, check_abstain(abstain, tuple(p.shape[:-1]), function))


def cheapest(p: Array, table: Vector, price: Vector | None) -> Decisions:
    """As `best_actions`, for checked arguments.

    Of actions whose expected costs are equal but for rounding the first is taken, and abstaining is taken if it costs
    less than all: so the precision of the probabilities does not decide.
    """
    # Costs that differ by less than this share of their terms are equal: float32 rounds each by a few times 6e-8.
    tolerance = 5e-7
    xp = namespace(p)

    def expected_of(costs: Vector) -> Array:
        return xp.matmul(p, xp.astype(in_library_of(p, costs), p.dtype))

    expected = expected_of(table)
    rounding = expected_of(tolerance * np.abs(table))
    cost = xp.min(expected, axis=-1)
    is_cheapest = expected <= cost[..., None] + rounding
    action = xp.argmax(xp.astype(is_cheapest, xp.int32), axis=-1)
    if price is None:
        return Decisions(action, cost)
    abstention_cost = xp.astype(in_library_of(p, price), p.dtype)
    abstains = abstention_cost < cost - tolerance * xp.abs(cost)
    return Decisions(xp.where(abstains, ABSTAIN, action), xp.where(abstains, abstention_cost, cost))


def _class_names(rows: Any, probabilities: Any) -> Sequence[Any] | None:
    """The names of the classes: of Predictions, or of the columns of a data frame; None where they have none."""
    return rows.class_names if isinstance(rows, Predictions) else names_of_columns(column_names(probabilities))[0]


def check_costs(costs: Any, n_classes: int, function: str, class_names: Sequence[Any] | None = None) -> Vector:
    """A matrix of finite costs with a row for each class; rows of a data frame are matched with named classes."""
    is_named = hasattr(costs, "iloc") and costs.index.dtype.kind not in "iu"
    if class_names is not None and is_named:
        order = column_order([str(name) for name in costs.index], [str(name) for name in class_names], function)
        costs = costs if order is None else costs.iloc[order]
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
    cost what their column of `costs` says. `clusters` has what each row belongs to, such as its customer: rows of one
    are not independent. `groups`, in one or several columns, has the decisions measured in each group; of two classes
    with the rates that fairness reviews ask for. By default these are those of Predictions.

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
    table = check_costs(costs, rows.n_classes, function, _class_names(y_true, probabilities))
    shape = rows.labels.shape if isinstance(y_true, Predictions) else tuple(np.shape(y_true))
    price = check_abstain(abstain, shape, function)
    if price is not None and price.ndim and sample_weight is not None:
        price = price[np.asarray(to_numpy(sample_weight)) > 0.0]  # rows of weight 0 have no say
    if price is not None:
        price = np.broadcast_to(np.ravel(price), rows.labels.shape)
    decided = _decide(rows, table, price)
    if groups is None and isinstance(y_true, Predictions):
        groups = y_true.groups or None
    columns = as_groups(groups, int(np.prod(shape)), function)
    if columns and sample_weight is not None:
        has_weight = np.ravel(np.asarray(to_numpy(sample_weight))) > 0.0
        columns = {name: column[has_weight] for name, column in columns.items()}

    def cost_of(members: Indices, level_of_one: float) -> tuple[Interval, float]:
        """The cost of some rows."""
        of_members = rows.take(members)
        decided_members = decided.take(members)
        cost = _cost_of_rows(of_members, decided_members, table, level_of_one, simultaneous=True)
        return cost, mean(decided_members.expected_cost, of_members.weight)

    fixed_costs = {action: mean(table[rows.labels, action], rows.weight) for action in range(table.shape[1])}
    if price is not None:
        fixed_costs[ABSTAIN] = mean(price, rows.weight)
    best = min(fixed_costs, key=fixed_costs.__getitem__)
    automated = decided.action != ABSTAIN
    error = None
    if rows.weights[automated].any():
        automated_weight = None if rows.weight is None else rows.weight[automated]
        automated_clusters = None if rows.clusters is None else rows.clusters[automated]
        error = interval_of_share(decided.is_wrong[automated], automated_weight, level, automated_clusters)
    return DecisionReport(
        cost=_cost_of_rows(rows, decided, table, level),
        expected_cost=mean(decided.expected_cost, rows.weight),
        automated=interval_of_share(automated, rows.weight, level, rows.clusters),
        error=error,
        fixed_action=best,
        fixed_cost=fixed_costs[best],
        groups=decisions_by_group(rows, decided.action, table.shape[1], cost_of, columns, level),
    )


def _cost_of_rows(
    rows: Predictions, decided: DecidedRows, table: Vector, level: float, *, simultaneous: bool = False
) -> Interval:
    """The mean cost of rows that are decided, with its interval; `simultaneous` for a level close to 1."""
    sums = [moments.sum(axis=1) for moments in _moments(rows, decided, table)]
    limits = (float(min(table.min(), decided.cost.min())), float(max(table.max(), decided.cost.max())))
    n_units = number_of(rows.clusters, rows.weight)
    # One cluster says nothing about others: the cost may be any.
    if rows.clusters is not None and n_units == 1:
        value = mean(decided.cost, rows.weight)
        return Interval(value, *limits, level, limits[1] - limits[0], 0.0, 0)
    excess = 0.0 if n_units is None else float(_excess_variance(decided.cost, rows))
    costs_of_rows = _interval_of_costs(sums, table, level, limits, n_units, excess, simultaneous=simultaneous)
    return Interval(
        value=float(costs_of_rows.mean),
        low=float(costs_of_rows.low),
        high=float(costs_of_rows.high),
        level=level,
        standard_error=float(costs_of_rows.standard_error),
        bias=0.0,
        n_resamples=0,
    )


def predictive_values(
    y_true: Any,
    probabilities: Any = None,
    *,
    threshold: float,
    prevalence: float | None = None,
    sample_weight: Any = None,
    level: float = 0.95,
    clusters: Any = None,
) -> PredictiveValues:
    """Sensitivity, specificity and predictive values of acting from a probability of class 1 on.

    With `prevalence`, the share of class 1 where the decisions are to be made, the predictive values are those at that
    share: sensitivity and specificity are taken to be the same there, as where cases were sampled for a study.

    >>> found = predictive_values([0, 0, 0, 1] * 50, [0.1, 0.2, 0.6, 0.7] * 50, threshold=0.5)
    >>> found.ppv.value, found.npv.value, found.prevalence
    (0.5, 1.0, 0.25)
    """
    function = "predictive_values"
    check_level(level, function)
    check_number(threshold, "threshold", function, least=0.0, most=1.0)
    if prevalence is not None:
        check_number(prevalence, "prevalence", function, above=0.0, below=1.0)
    rows = read_two_classes(y_true, probabilities, sample_weight, (), function, clusters=clusters)
    p, happened = rows.event(1)
    acts = p >= reached_from(np.array([threshold]))[0]

    # Where no row is decided so, nothing is known.
    nothing = Interval(prevalence or 0.5, 0.0, 1.0, level, 0.5, 0.0, 0)

    def share(event: Flags, among: Flags) -> Interval:
        return share_of_rows(rows, np.flatnonzero(among), event[among], level) or nothing

    sensitivity = share(acts, happened)
    specificity = share(~acts, ~happened)
    if prevalence is not None:
        misses = share(~acts, happened)
        alarms = share(acts, ~happened)
        ppv = values_at_prevalence(sensitivity, alarms, prevalence, level)
        npv = values_at_prevalence(specificity, misses, 1.0 - prevalence, level)
        return PredictiveValues(prevalence, sensitivity, specificity, ppv, npv)
    return PredictiveValues(
        prevalence=mean(happened.astype(np.float64), rows.weight),
        sensitivity=sensitivity,
        specificity=specificity,
        ppv=share(happened, acts),
        npv=share(~happened, ~acts),
    )


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


def _decide(rows: Predictions, table: Vector, price: Vector | None) -> DecidedRows:
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


class CostRanges(NamedTuple):
    """The distinct pairs (ranges, 2) of the least and the highest cost of an action, and which of them each has."""

    ends: Vector
    of_action: Indices

    @classmethod
    def of(cls, table: Vector) -> CostRanges:
        """The ranges of the columns of a table of costs."""
        ends, of_action = np.unique([table.min(axis=0), table.max(axis=0)], axis=1, return_inverse=True)
        return cls(ends.T, of_action.ravel())


def _moments(rows: Predictions, decided: DecidedRows, table: Vector) -> Iterator[Vector]:
    """Yield w, wx, wx², w², w²x, w²x² of the cost x of each row, (6, rows).

    First of all rows; then, for each range of costs, of the rows whose action has it, and 0 of the others.
    """
    weight = rows.weights
    cost = decided.cost
    powers = (np.ones_like(cost), cost, cost**2)
    moments = np.stack([w * power for w in (weight, weight**2) for power in powers])
    yield moments
    ranges = CostRanges.of(table)
    range_of_row = np.where(decided.action == ABSTAIN, -1, ranges.of_action[decided.action])
    for i in range(len(ranges.ends)):
        yield moments * (range_of_row == i)


class CostIntervals(NamedTuple):
    """Mean costs with their standard errors and the ends of their intervals, (…) each."""

    mean: Vector
    standard_error: Vector
    low: Vector
    high: Vector


def _excess_variance(cost: Vector, rows: Predictions) -> Vector:
    """How much larger the variances of mean costs (…, rows) are by units than Σ w² (x - mean)² / (Σ w)².

    Units are clusters, or rows of unequal weights with their leverage.
    """
    of_units = variance_of_mean(cost, rows.weight, rows.clusters)
    share = rows.weights / rows.weights.sum()
    of_rows = np.square(share * (cost - (cost @ share)[..., None])).sum(axis=-1)
    return np.asarray(np.maximum(of_units - of_rows, 0.0))


def _interval_of_costs(
    sums: list[Vector],
    table: Vector,
    level: float,
    limits: tuple[float, float],
    n_units: int | None = None,
    excess_variance: Vector | float = 0.0,
    *,
    simultaneous: bool = False,
) -> CostIntervals:
    """The intervals of mean costs, from the sums of `_moments`, (6, …) each.

    What the actions of one range cost has the interval [l, u] of a bounded mean m, which is wider than 0 where all rows
    cost the same. The distances of its ends from the mean are added in squares to the rest of the error (Zou & Donner
    2008): with the shares s of the ranges, the lower end is mean - √(z² rest + Σ s² (m - l)²), where rest is the
    variance of the mean less Σ s² of the variances of the m; the upper end likewise.
    """
    total = sums[0]
    mean, variance = _mean_and_variance(total)
    z = critical_value(level, n_units)
    variance = variance + excess_variance
    rest = variance
    squares_below = np.zeros_like(mean)
    squares_above = np.zeros_like(mean)
    for (lowest_cost, highest_cost), moments in zip(CostRanges.of(table).ends.tolist(), sums[1:], strict=True):
        range_mean, range_variance = _mean_and_variance(moments)
        weight, squared_weight = np.where(moments[0] > 0.0, moments[[0, 3]], 1.0)
        share = moments[0] / total[0]
        variance_of_rows = moments[2] / weight - range_mean**2
        # The effective number of rows: the variance of a row over that of the mean; (Σw)² / Σw² if all cost the same.
        differs = variance_of_rows > 1e-12 * (highest_cost - lowest_cost) ** 2
        size = np.where(differs, variance_of_rows, weight**2) / np.where(differs, range_variance, squared_weight)
        if simultaneous:
            low, high = exact_bounded_mean(range_mean, size, lowest_cost, highest_cost, level)
        else:
            low, high = bounded_mean(range_mean, range_variance, size, lowest_cost, highest_cost, level)
        rest = rest - share**2 * range_variance
        squares_below = squares_below + (share * (low - range_mean)) ** 2
        squares_above = squares_above + (share * (high - range_mean)) ** 2
    margin_below = np.sqrt(z**2 * np.maximum(rest, 0.0) + squares_below)
    margin_above = np.sqrt(z**2 * np.maximum(rest, 0.0) + squares_above)
    if n_units is not None and limits[0] >= 0.0:
        # A few costly rows of large weights, or of one cluster, skew the mean: its upper end is at least that on the
        # scale of the logarithm, mean · exp(z error / mean).
        relative_error = np.sqrt(variance) / np.where(mean > 0.0, mean, 1.0)
        margin_above = np.maximum(margin_above, mean * np.expm1(np.minimum(z * relative_error, 50.0)))
    return CostIntervals(
        mean=mean,
        standard_error=np.sqrt(variance),
        low=np.maximum(mean - margin_below, limits[0]),
        high=np.minimum(mean + margin_above, limits[1]),
    )


def _mean_and_variance(moments: Vector) -> tuple[Vector, Vector]:
    """The means of sums of `_moments` (6, …), and the variances of these means: Σw²(x - mean)² / (Σw)²."""
    weight, w_x, _, w2, w2_x, w2_x2 = moments
    total = np.where(weight > 0.0, weight, 1.0)
    mean = w_x / total
    squared_deviations = w2_x2 - 2.0 * mean * w2_x + mean**2 * w2
    return mean, np.maximum(squared_deviations, 0.0) / total**2


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
    if rows.n_classes != 2:
        expected = "the probability of class 1, or two columns"
        raise ShapeError("probabilities", function, expected=expected, got=f"{rows.n_classes} classes")
    if thresholds is None:
        given = np.arange(1, 100) / 100.0
    else:
        given = np.atleast_1d(check_finite(thresholds, "thresholds", function))
    if given.ndim != 1 or not np.all((given > 0.0) & (given < 1.0)):
        raise ParameterError("thresholds", function, expected="numbers between 0 and 1", got=repr(thresholds))
    p, occurs = rows.event(1)
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

    The variance of the share is Σ w² (x - share)² / (Σ w)² with x = 1 for such a row. Where there are none, it is that
    of a share of rows that weigh as those of the class do.
    """
    p, _ = rows.event(1)
    weight = rows.weights
    total = float(weight.sum())
    reached_weight, squared_weight = at_or_above(thresholds, p, weight * is_class, weight**2 * is_class)
    of_class = weight[is_class]
    mean_weight = float(of_class @ of_class / of_class.sum()) if len(of_class) else 1.0
    # One row more of the mean weight of the class, as in `outcome_weights`.
    weight_of_reached = (squared_weight + mean_weight**2) / (reached_weight + mean_weight)
    all_squares = float(weight @ weight)
    rest_weight = np.maximum(total - reached_weight, 0.0)
    weight_of_others = (np.maximum(all_squares - squared_weight, 0.0) + mean_weight**2) / (rest_weight + mean_weight)
    size = effective_size(share, total, weight_of_reached, weight_of_others)
    n_clusters = None
    if rows.clusters is not None:
        happens = is_class & (p >= reached_from(thresholds)[:, None])
        variance = variance_of_mean(happens.astype(np.float64), rows.weight, rows.clusters)
        own_variance = share * (1.0 - share)
        size = np.minimum(size, np.divide(own_variance, variance, out=size.copy(), where=own_variance * variance > 0.0))
        n_clusters = number_of(rows.clusters)
    return ShareEnds(*wilson(share, size, level, n_clusters))


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
    table: Vector = 1.0 - np.eye(rows.n_classes)
    if costs is not None:
        table = check_costs(costs, rows.n_classes, function, _class_names(y_true, probabilities))
    decided = _decide(rows, table, None)
    expected_cost = decided.expected_cost
    if costs is None and rows.binary:
        # The probability of a mistake, which is equal for equal decimals of either class.
        expected_cost = 1.0 - rows.ranking
    weight = rows.weights
    order = np.argsort(expected_cost, kind="stable")
    order = order[weight[order] > 0.0]
    last = _ends(expected_cost[order], n_points)

    def up_to_points(terms: Vector) -> Vector:
        """The sums of terms (…, rows) over the rows that are automated at each point."""
        return np.asarray(np.cumsum(terms[..., order], axis=-1)[..., last])

    automated = up_to_points(weight)
    mistakes = up_to_points(weight * decided.is_wrong)
    squared_weight = up_to_points(weight**2)
    squared_mistakes = up_to_points(weight**2 * decided.is_wrong)
    errors = mistakes / automated
    # Every point is a group of its own: the last axis has one entry.
    of_mistakes, of_others = outcome_weights(
        weight=automated[:, None],
        correct=mistakes[:, None],
        squared_weight=squared_weight[:, None],
        squared_correct=squared_mistakes[:, None],
    )
    sizes = effective_size(errors, automated, of_mistakes[:, 0], of_others[:, 0])
    n_units = number_of(rows.clusters, rows.weight)
    excess: Vector | float = 0.0
    if rows.clusters is not None:
        is_automated = np.zeros((len(last), len(weight)), dtype=np.bool_)
        for point, end in enumerate(last):
            is_automated[point, order[: end + 1]] = True
        excess = _excess_variance(np.where(is_automated, decided.cost, price), rows)
        # The influence of a row on the error among automated rows.
        influence = is_automated * (decided.is_wrong - errors[:, None]) * (weight.sum() / automated)[:, None]
        variance = variance_of_mean(influence, rows.weight, rows.clusters)
        own_variance = errors * (1.0 - errors)
        of_clusters = np.divide(own_variance, variance, out=sizes.copy(), where=own_variance * variance > 0.0)
        sizes = np.minimum(sizes, of_clusters)
    error_low, error_high = wilson(errors, sizes, level, n_units)
    sums = [up_to_points(moments) for moments in _moments(rows, decided, table)]
    # The rows that are left undecided cost the same.
    undecided = np.stack([weight.sum() - automated, np.square(weight).sum() - squared_weight])
    sums[0] += (undecided[:, None] * np.array([1.0, price, price**2])[:, None]).reshape(6, -1)
    limits = (min(price, float(table.min())), max(price, float(table.max())))
    costs_of_points = _interval_of_costs(sums, table, level, limits, n_units, excess)
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


def at_or_above(thresholds: Vector, p: Vector, *terms: Vector) -> list[Vector]:
    """The sums of some terms over the rows with a p at or above each threshold, as a decimal is in any precision."""
    order = np.argsort(p, kind="stable")
    first = np.searchsorted(p[order], reached_from(thresholds), side="left")
    sums = []
    for term in terms:
        sum_below = np.concatenate([[0.0], np.cumsum(term[order])])
        sums.append(sum_below[-1] - sum_below[first])
    return sums


def _ends(ordered: Vector, n_points: int) -> Any:
    """About `n_points` places at which a value that is not the next one ends, the last place among them."""
    rounding = 1e-12 * (1.0 + np.abs(ordered[1:]))
    ends = np.append(np.flatnonzero(np.diff(ordered) > rounding), len(ordered) - 1)
    if n_points >= len(ordered):
        return ends
    wanted = np.linspace(0, len(ordered) - 1, n_points + 1)[1:]
    return np.unique(ends[np.minimum(np.searchsorted(ends, wanted), len(ends) - 1)])
