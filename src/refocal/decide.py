"""Decisions from probabilities: actions of least cost, what they cost, and how much can be automated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Array, Flags, Indices, Vector, as_array, in_library_of, namespace, to_numpy, two_columns
from refocal._validation import check_finite, check_integer, check_number, check_one_column, check_probabilities
from refocal.errors import ParameterError, ShapeError
from refocal.metrics.bins import effective_size, outcome_weights, reached_from
from refocal.metrics.inputs import check_level, mean, read_probabilities
from refocal.metrics.intervals import Interval, bounded_mean, interval_of_share, wilson
from refocal.rows import Predictions

__all__ = [
    "ABSTAIN",
    "AutomationCurve",
    "DecisionReport",
    "Decisions",
    "NetBenefitCurve",
    "abstention_interval",
    "automation_curve",
    "best_actions",
    "cost_matrix",
    "evaluate_decisions",
    "net_benefit_curve",
    "optimal_threshold",
]

ABSTAIN = -1
"""The action of leaving a row undecided."""
# Expected costs that differ by less than this share of their terms are equal: float32 rounds each by a few times 6e-8.
SAME_COST = 5e-7
THRESHOLDS = np.arange(1, 100) / 100.0


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
    """As `best_actions`, for checked arguments.

    Of actions whose expected costs are equal but for rounding the first is taken, and abstaining is taken if it costs
    less than all: so the precision of the probabilities does not decide.
    """
    xp = namespace(p)
    expected, rounding = (
        xp.matmul(p, xp.astype(in_library_of(p, each), p.dtype)) for each in (table, SAME_COST * np.abs(table))
    )
    cost = xp.min(expected, axis=-1)
    is_cheapest = expected <= cost[..., None] + rounding
    action = xp.argmax(xp.astype(is_cheapest, xp.int32), axis=-1)
    if price is None:
        return Decisions(action, cost)
    paid = xp.astype(in_library_of(p, price), p.dtype)
    abstains = paid < cost - SAME_COST * xp.abs(cost)
    return Decisions(xp.where(abstains, ABSTAIN, action), xp.where(abstains, paid, cost))


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
    y_true: Any, probabilities: Any, costs: Any, *, abstain: Any = None, sample_weight: Any = None, level: float = 0.95
) -> DecisionReport:
    """The cost of deciding by these probabilities, next to the expected cost; arguments as for `best_actions`.

    The intervals hold for weights that depend on the label, and where no mistake was seen: decisions of each kind may
    cost what their column of `costs` says.

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
    shape = rows.labels.shape if isinstance(y_true, Predictions) else tuple(np.shape(y_true))
    price = check_abstain(abstain, shape, function)
    if price is not None and price.ndim and sample_weight is not None:
        price = price[np.asarray(to_numpy(sample_weight)) > 0.0]  # rows of weight 0 have no say
    if price is not None:
        price = np.broadcast_to(np.ravel(price), rows.labels.shape)
    expected, paid, wrong, action = _decide(rows, table, price)
    automated = action != ABSTAIN
    sums = [moments.sum(axis=1) for moments in _moments(rows, paid, action, table)]
    limits = (float(min(table.min(), paid.min())), float(max(table.max(), paid.max())))
    fixed = {j: mean(table[rows.labels, j], rows.weight) for j in range(table.shape[1])}
    if price is not None:
        fixed[ABSTAIN] = mean(price, rows.weight)
    best = min(fixed, key=fixed.__getitem__)
    among = None if rows.weight is None else rows.weight[automated]
    decided = rows.weights[automated].any()
    cost, error, low, high = _ends_of_costs(sums, table, level, limits)
    return DecisionReport(
        cost=Interval(float(cost), float(low), float(high), level, float(error), 0.0, 0),
        expected_cost=mean(expected, rows.weight),
        automated=interval_of_share(automated, rows.weight, level),
        error=interval_of_share(wrong[automated], among, level) if decided else None,
        fixed_action=best,
        fixed_cost=fixed[best],
    )


def _decide(rows: Predictions, table: Vector, price: Vector | None) -> tuple[Vector, Vector, Flags, Indices]:
    """For each row the expected cost, what was paid, whether another action was cheaper, and the action."""
    p = two_columns(np.clip(rows.values, 0.0, 1.0), "probabilities") if rows.binary else rows.values
    action, expected = map(to_numpy, cheapest(p, table, price))
    automated = action != ABSTAIN
    taken = table[rows.labels, np.where(automated, action, 0)]
    paid = taken if price is None else np.where(automated, taken, price)
    return expected, paid, automated & (taken > table.min(axis=1)[rows.labels]), action


def _ranges(table: Vector) -> tuple[Vector, Indices]:
    """The distinct pairs of the least and the highest cost of an action, and which of them each action has."""
    found, of_action = np.unique([table.min(axis=0), table.max(axis=0)], axis=1, return_inverse=True)
    return found.T, of_action.ravel()


def _moments(rows: Predictions, paid: Vector, action: Indices, table: Vector) -> Iterator[Vector]:
    """Yield w, wx, wx², w², w²x, w²x² of the cost x of each row: of all rows, then of the actions of each range."""
    weight, (ranges, of_action) = rows.weights, _ranges(table)
    moments = np.stack([w * x for w in (weight, weight**2) for x in (np.ones_like(paid), paid, paid**2)])
    yield moments
    kind = np.where(action == ABSTAIN, -1, of_action[action])
    for i in range(len(ranges)):
        yield moments * (kind == i)


def _ends_of_costs(
    sums: list[Vector], table: Vector, level: float, limits: tuple[float, float]
) -> tuple[Vector, Vector, Vector, Vector]:
    """Mean costs, their standard errors and the ends of their intervals, from the sums of `_moments` (6, …).

    What the actions of one range cost has the interval of a bounded mean, which is wider than 0 where all rows cost the
    same. The distances of its ends from the mean are added to the rest of the error in squares (Zou & Donner 2008).
    """
    mean, variance = _mean_and_variance(sums[0])
    z2 = NormalDist().inv_cdf(0.5 + level / 2.0) ** 2
    rest, below, above = variance, np.zeros_like(mean), np.zeros_like(mean)
    for (low, high), moments in zip(_ranges(table)[0].tolist(), sums[1:], strict=True):
        of_range, its_variance = _mean_and_variance(moments)
        weight, squares = np.where(moments[0] > 0.0, moments[[0, 3]], 1.0)
        share, spread = moments[0] / sums[0][0], moments[2] / weight - of_range**2
        differs = spread > 1e-12 * (high - low) ** 2
        size = np.where(differs, spread, weight**2) / np.where(differs, its_variance, squares)
        ends = bounded_mean(of_range, its_variance, size, low, high, level)
        rest = rest - share**2 * its_variance
        below, above = (
            sums_of + (share * (end - of_range)) ** 2 for sums_of, end in zip((below, above), ends, strict=True)
        )
    below, above = (np.sqrt(z2 * np.maximum(rest, 0.0) + each) for each in (below, above))
    return mean, np.sqrt(variance), np.maximum(mean - below, limits[0]), np.minimum(mean + above, limits[1])


def _mean_and_variance(moments: Vector) -> tuple[Vector, Vector]:
    """The means of sums of `_moments` (6, …), and the variances of these means: Σw²(x - mean)² / (Σw)²."""
    weight, w_x, _, squares, squares_x, squares_x2 = moments
    total = np.where(weight > 0.0, weight, 1.0)
    mean = w_x / total
    return mean, np.maximum(squares_x2 - 2.0 * mean * squares_x + mean**2 * squares, 0.0) / total**2


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
    y_true: Any, probabilities: Any = None, *, thresholds: Any = None, sample_weight: Any = None, level: float = 0.95
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
    given = THRESHOLDS if thresholds is None else np.atleast_1d(check_finite(thresholds, "thresholds", function))
    if given.ndim != 1 or not np.all((given > 0.0) & (given < 1.0)):
        raise ParameterError("thresholds", function, expected="numbers between 0 and 1", got=repr(thresholds))
    p, occurs = rows.event(1)
    share = rows.weights / rows.weights.sum()
    shares = [each * of_class for each in (share, share**2) for of_class in (occurs, ~occurs)]
    hits, alarms, hits2, alarms2 = at_or_above(given, p, *shares)
    odds, rate = given / (1.0 - given), float(share[occurs].sum())
    value = hits - odds * alarms
    # The squares of share × (benefit of the row - value), summed.
    squares = hits2 + odds**2 * alarms2 - 2.0 * value * (hits2 - odds * alarms2) + value**2 * np.square(share).sum()
    reach = NormalDist().inv_cdf(0.5 + level / 2.0) * np.sqrt(squares.clip(0.0))
    low, high = np.maximum(value - reach, -odds), np.minimum(value + reach, 1.0)
    return NetBenefitCurve(given, value, low, high, rate - odds * (1.0 - rate), level)


def automation_curve(
    y_true: Any,
    probabilities: Any = None,
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
    expected, paid, wrong, action = _decide(rows, table, None)
    weight = rows.weights
    order = np.argsort(expected, kind="stable")
    order = order[weight[order] > 0.0]
    last = _ends(expected[order], n_points)
    automated, mistakes, squares, squared_mistakes = (
        np.cumsum(terms[order])[last] for terms in (weight, weight * wrong, weight**2, weight**2 * wrong)
    )
    errors = mistakes / automated
    of_outcomes = outcome_weights(*(x[:, None] for x in (automated, mistakes, squares, squared_mistakes)))
    sizes = effective_size(errors, automated, *(x[:, 0] for x in of_outcomes))
    sums = [np.cumsum(each[:, order], axis=1)[:, last] for each in _moments(rows, paid, action, table)]
    # The rows that are left undecided cost the same.
    left = np.stack([weight.sum() - automated, np.square(weight).sum() - squares])
    sums[0] += (left[:, None] * np.array([1.0, price, price**2])[:, None]).reshape(6, -1)
    limits = (min(price, float(table.min())), max(price, float(table.max())))
    cost, _, low, high = _ends_of_costs(sums, table, level, limits)
    intervals = (errors, *wilson(errors, sizes, level), cost, low, high)
    return AutomationCurve(automated / weight.sum(), expected[order][last], *intervals, level)


def at_or_above(thresholds: Vector, p: Vector, *terms: Vector) -> list[Vector]:
    """The sums of some terms over the rows with a p at or above each threshold, as a decimal is in any precision."""
    order = np.argsort(p, kind="stable")
    at = np.searchsorted(p[order], reached_from(thresholds), side="left")
    before = [np.concatenate([[0.0], np.cumsum(each[order])]) for each in terms]
    return [sums[-1] - sums[at] for sums in before]


def _ends(ordered: Vector, n_points: int) -> Any:
    """About `n_points` places at which a value that is not the next one ends, the last place among them."""
    rounding = 1e-12 * (1.0 + np.abs(ordered[1:]))
    ends = np.append(np.flatnonzero(np.diff(ordered) > rounding), len(ordered) - 1)
    wanted = np.linspace(0, len(ordered) - 1, min(n_points, len(ordered)) + 1)[1:] if n_points < len(ordered) else ends
    return np.unique(ends[np.minimum(np.searchsorted(ends, wanted), len(ends) - 1)])
