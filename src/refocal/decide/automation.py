"""How much can be automated: error and cost against the share of rows that are decided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Indices, Vector
from refocal._validation import check_integer, check_number
from refocal.decide.actions import DecidedRows, decide_rows
from refocal.decide.cost_intervals import (
    CostIntervals,
    CostRanges,
    cost_moments,
    excess_variance,
    interval_of_costs,
)
from refocal.decide.costs import check_costs, class_names_of
from refocal.decide.groups import share_of_rows
from refocal.metrics.inputs import check_clusters, check_level, read_probabilities
from refocal.metrics.intervals import number_of, wilson
from refocal.rows import Predictions

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
    points = _Points.of(expected_cost, rows.weights, n_points)
    automated_weight = points.sums(rows.weights)
    error = points.sums(rows.weights * decided.is_wrong) / automated_weight
    error_low, error_high = _error_limits(rows, decided, points, error, level)
    cost = _cost_intervals(rows, decided, table, price, points, level)
    return AutomationCurve(
        share=automated_weight / rows.weights.sum(),
        highest_expected_cost=expected_cost[points.order][points.ends],
        error=error,
        error_low=error_low,
        error_high=error_high,
        cost=cost.mean,
        cost_low=cost.low,
        cost_high=cost.high,
        level=level,
    )


class _Points(NamedTuple):
    """The points of a curve: at each, the rows that come first are automated and the others are not."""

    order: Indices
    """The rows that have a weight, by rising expected cost."""
    ends: Indices
    """The place in `order` of the last row that is automated at each point."""

    @classmethod
    def of(cls, expected_cost: Vector, weight: Vector, n_points: int) -> _Points:
        """About `n_points` points, between which the expected cost rises."""
        order = np.argsort(expected_cost, kind="stable")
        order = order[weight[order] > 0.0]
        return cls(order, _ends_of_ties(expected_cost[order], n_points))

    def automated(self) -> Iterator[Indices]:
        """Yield the rows that are automated at each point."""
        for end in self.ends:
            yield self.order[: end + 1]

    def sums(self, terms: Vector) -> Vector:
        """The sums of terms (…, rows) over the rows that are automated at each point, (…, points)."""
        return np.asarray(np.cumsum(terms[..., self.order], axis=-1)[..., self.ends])


def _error_limits(
    rows: Predictions, decided: DecidedRows, points: _Points, error: Vector, level: float
) -> tuple[Vector, Vector]:
    """The ends of the intervals of the share of wrong decisions among the automated rows, (points,) each."""
    if number_of(rows.clusters, rows.weight) is None:
        effective_size = points.sums(rows.weights) ** 2 / points.sums(rows.weights**2)
        return wilson(error, effective_size, level)
    intervals = [share_of_rows(rows, index, decided.is_wrong[index], level) for index in points.automated()]
    low, high = np.array([(each.low, each.high) for each in intervals if each is not None]).T
    return low, high


def _cost_intervals(
    rows: Predictions, decided: DecidedRows, table: Vector, price: float, points: _Points, level: float
) -> CostIntervals:
    """The intervals of the mean cost Σ w x / Σ w of all rows at each point.

    x is the cost of the decision of a row that is automated, and the price of abstaining otherwise. The sums of w x^k
    and w² x^k, k = 0, 1, 2, over all rows are those over the automated rows, of `cost_moments`, plus those over the
    others: price^k Σ w and price^k Σ w².
    """
    sums_of_all, *sums_of_ranges = [points.sums(moments) for moments in cost_moments(rows, decided, table)]
    others = [
        rows.weights.sum() - points.sums(rows.weights),
        np.square(rows.weights).sum() - points.sums(rows.weights**2),
    ]
    sums_of_all += np.stack([price**k * weight for weight in others for k in range(3)])
    excess: Vector | float = 0.0
    if rows.clusters is not None:
        is_automated = np.zeros((len(points.ends), len(rows.weights)), dtype=np.bool_)
        for of_point, index in zip(is_automated, points.automated(), strict=True):
            of_point[index] = True
        excess = excess_variance(np.where(is_automated, decided.cost, price), rows)
    return interval_of_costs(
        [sums_of_all, *sums_of_ranges],
        table,
        level,
        limits=(min(price, float(table.min())), max(price, float(table.max()))),
        weights_at_ends=CostRanges.of(table).weights_at_ends(rows, table),
        n_units=number_of(rows.clusters, rows.weight),
        excess_variance=excess,
    )


def _ends_of_ties(ordered: Vector, n_points: int) -> Any:
    """About `n_points` places at which a value that is not the next one ends, the last place among them."""
    rounding = 1e-12 * (1.0 + np.abs(ordered[1:]))
    ends = np.append(np.flatnonzero(np.diff(ordered) > rounding), len(ordered) - 1)
    if n_points >= len(ordered):
        return ends
    wanted = np.linspace(0, len(ordered) - 1, n_points + 1)[1:]
    return np.unique(ends[np.minimum(np.searchsorted(ends, wanted), len(ends) - 1)])
