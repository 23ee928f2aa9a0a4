"""Intervals of mean costs, which hold where no costly mistake was seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from refocal._arrays import Indices, Vector
from refocal.decide.actions import ABSTAIN, DecidedRows
from refocal.metrics.bins import effective_size
from refocal.metrics.influence import critical_value, variance_of_mean
from refocal.metrics.intervals import bounded_mean, exact_bounded_mean
from refocal.rows import Predictions


class CostRanges(NamedTuple):
    """The distinct pairs (ranges, 2) of the least and the highest cost of an action, and which of them each has."""

    ends: Vector
    of_action: Indices

    @classmethod
    def of(cls, table: Vector) -> CostRanges:
        """The ranges of the columns of a table of costs."""
        ends, of_action = np.unique([table.min(axis=0), table.max(axis=0)], axis=1, return_inverse=True)
        return cls(ends.T, of_action.ravel())

    def weights_at_ends(self, rows: Predictions, table: Vector) -> Vector:
        """The weights Σw² / Σw of rows at the least and at the highest cost of each range, (ranges, 2).

        Costs follow from labels, on which weights may depend: what a mistake weighs is known from the rows of its
        label, also where none was made. A label counts by its share of the way from the least to the highest cost, on
        average over the actions of the range.
        """
        weight = rows.weights
        of_label = np.bincount(rows.labels, weight, len(table))
        squares_of_label = np.bincount(rows.labels, weight**2, len(table))
        of_all = squares_of_label.sum() / of_label.sum()
        at_ends = np.full_like(self.ends, of_all)
        for i, (lowest_cost, highest_cost) in enumerate(self.ends.tolist()):
            if highest_cost == lowest_cost:
                continue
            mean_cost = table[:, self.of_action == i].mean(axis=1)
            dearness = np.clip((mean_cost - lowest_cost) / (highest_cost - lowest_cost), 0.0, 1.0)
            for end, share_of_label in enumerate((1.0 - dearness, dearness)):
                total = of_label @ share_of_label
                if total > 0.0:
                    at_ends[i, end] = squares_of_label @ share_of_label / total
        return at_ends


def cost_moments(rows: Predictions, decided: DecidedRows, table: Vector) -> Iterator[Vector]:
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


def excess_variance(cost: Vector, rows: Predictions) -> Vector:
    """How much larger the variances of mean costs (…, rows) are by units than Σ w² (x - mean)² / (Σ w)².

    Units are clusters, or rows of unequal weights with their leverage.
    """
    of_units = variance_of_mean(cost, rows.weight, rows.clusters)
    share = rows.weights / rows.weights.sum()
    of_rows = np.square(share * (cost - (cost @ share)[..., None])).sum(axis=-1)
    return np.asarray(np.maximum(of_units - of_rows, 0.0))


def interval_of_costs(
    sums: list[Vector],
    table: Vector,
    level: float,
    limits: tuple[float, float],
    weights_at_ends: Vector,
    n_units: int | None = None,
    excess_variance: Vector | float = 0.0,
    *,
    simultaneous: bool = False,
) -> CostIntervals:
    """The intervals of mean costs, from the sums of `cost_moments`, (6, …) each, and `CostRanges.weights_at_ends`.

    What the actions of one range cost has the interval [l, u] of a bounded mean m, which is wider than 0 where all rows
    cost the same. The distances of its ends from the mean are added in squares to the rest of the error (Zou & Donner
    2008): with the shares s of the ranges, the lower end is mean - √(z² rest + Σ s² (m - l)²), where rest is the
    variance of the mean less Σ s² of the variances of the m; the upper end likewise. The effective number of rows of a
    range is at most that of rows at the ends of the range, of the weights that such rows have (`effective_size`).
    """
    total = sums[0]
    mean, variance = _mean_and_variance(total)
    z = critical_value(level, n_units)
    variance = variance + excess_variance
    rest = variance
    squares_below = np.zeros_like(mean)
    squares_above = np.zeros_like(mean)
    ranges = CostRanges.of(table).ends.tolist()
    for (lowest_cost, highest_cost), weights, moments in zip(ranges, weights_at_ends, sums[1:], strict=True):
        range_mean, range_variance = _mean_and_variance(moments)
        weight, squared_weight = np.where(moments[0] > 0.0, moments[[0, 3]], 1.0)
        share = moments[0] / total[0]
        variance_of_rows = moments[2] / weight - range_mean**2
        # The effective number of rows: the variance of a row over that of the mean; (Σw)² / Σw² if all cost the same.
        differs = variance_of_rows > 1e-12 * (highest_cost - lowest_cost) ** 2
        differs = differs & (highest_cost > lowest_cost)  # else their variance is rounding
        size = np.where(differs, variance_of_rows, weight**2) / np.where(differs, range_variance, squared_weight)
        if highest_cost > lowest_cost:
            size = np.minimum(size, _size_at_ends(moments, lowest_cost, highest_cost, weights))
        if simultaneous:
            low, high = exact_bounded_mean(range_mean, size, lowest_cost, highest_cost, level)
        else:
            variance_at_size = np.maximum(range_variance, np.maximum(variance_of_rows, 0.0) / size)
            low, high = bounded_mean(range_mean, variance_at_size, size, lowest_cost, highest_cost, level)
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


def _size_at_ends(moments: Vector, lowest_cost: float, highest_cost: float, weights: Vector) -> Vector:
    """The effective number of rows of sums of `cost_moments` (6, …), if every row were at an end of the range of costs.

    A row that costs x counts as (x - lowest) / (highest - lowest) of one at the upper end. As in `outcome_weights`,
    there is one row more at each end, of the weight that such rows have: few mistakes say little about their weights.
    """
    weight, w_x, _, w2, w2_x, _ = moments
    width = highest_cost - lowest_cost
    at_high = np.clip((w_x - lowest_cost * weight) / width, 0.0, weight)
    squares_at_high = np.clip((w2_x - lowest_cost * w2) / width, 0.0, w2)
    of_low, of_high = weights.tolist()
    weight_of_high = (squares_at_high + of_high**2) / (at_high + of_high)
    weight_of_low = (w2 - squares_at_high + of_low**2) / (weight - at_high + of_low)
    total = np.where(weight > 0.0, weight, 1.0)
    return np.asarray(effective_size(at_high / total, total, weight_of_high, weight_of_low))


def _mean_and_variance(moments: Vector) -> tuple[Vector, Vector]:
    """The means of sums of `cost_moments` (6, …), and the variances of these means: Σw²(x - mean)² / (Σw)²."""
    weight, w_x, _, w2, w2_x, w2_x2 = moments
    total = np.where(weight > 0.0, weight, 1.0)
    mean = w_x / total
    squared_deviations = w2_x2 - 2.0 * mean * w2_x + mean**2 * w2
    return mean, np.maximum(squared_deviations, 0.0) / total**2
