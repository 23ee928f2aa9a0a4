"""The variance of a mean, or of any metric by the influence of each row on it: the one place that squares residuals.

A metric T of weighted rows moves by w_i ψ_i / Σ w if row i is given a little more weight, ψ_i being its influence
(Hampel 1974); of a weighted mean ψ_i is the term of the row, and centring takes care of the rest. With the units u that
are independent of one another, rows or clusters of them, m their number, W_u the weight of one and W that of all,

    Var T = (m - 1) / m · Σ_u (d_u / (W - W_u))²,    d_u = Σ_{i in u} w_i (ψ_i - ψ̄),    ψ̄ = Σ w ψ / Σ w.

This is the jackknife: without the unit, a mean is off by d_u / (W - W_u). Of units of one weight it is
m / (m - 1) Σ d_u² / W²; a unit that weighs as much as all others shows how little is known. Residuals of one cluster
are added before they are squared (Liang & Zeger 1986), so that what they have in common does not cancel.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np

from refocal._arrays import Indices, Vector


def variance_of_mean(influence: Any, weight: Vector | None = None, clusters: Indices | None = None) -> Any:
    """The variance of means of influences (…, rows), for weights (rows,) and the number of each row's cluster (rows,).

    Clusters are numbered from 0; without them every row is a unit of its own. Rows of weight 0 are no units. One unit
    alone says nothing about the variance, which is then infinite.

    >>> float(variance_of_mean(np.array([0.0, 1.0, 1.0, 0.0])))  # 0.25 / 3
    0.08333333333333333
    >>> round(float(variance_of_mean(np.array([0.0, 0.0, 1.0, 1.0]), clusters=np.array([0, 0, 1, 1]))), 12)
    0.25
    """
    units = influences_of_units(influence, weight, clusters)
    return np.square(units).sum(axis=-1)


def influences_of_units(influence: Any, weight: Vector | None = None, clusters: Indices | None = None) -> Vector:
    """√((m - 1) / m) d_u / (W - W_u) of each unit, (…, units): their squares add up to the variance.

    Differences of two metrics of the same rows are differences of these.
    """
    deviations = weighted_deviations(influence, weight)
    n_rows = deviations.shape[-1]
    unit_weight = np.ones(n_rows) if weight is None else np.asarray(weight, dtype=np.float64)
    if clusters is not None:
        deviations = sums_of_clusters(deviations, clusters)
        unit_weight = sums_of_clusters(unit_weight, clusters)
    has_weight = unit_weight > 0.0
    n_units = int(np.count_nonzero(has_weight))
    if n_units < 2:
        return np.full_like(deviations, math.inf)
    weight_of_others = np.where(has_weight, unit_weight.sum() - unit_weight, math.inf)
    return np.asarray(math.sqrt(1.0 - 1.0 / n_units) * deviations / weight_of_others)


def weighted_deviations(influence: Any, weight: Vector | None = None) -> Vector:
    """Return w (ψ - ψ̄) of each row, (…, rows); 0 for a row of weight 0, whatever its influence."""
    values = np.asarray(influence, dtype=np.float64)
    if weight is None:
        return np.asarray(values - values.mean(axis=-1, keepdims=True))
    values = np.where(weight > 0.0, values, 0.0)
    mean = (values @ weight / np.sum(weight))[..., None]
    return np.asarray(weight * (values - mean))


def sums_of_clusters(values: Vector, clusters: Indices) -> Vector:
    """The sums of values (…, rows) over the rows of each cluster, (…, clusters)."""
    n_clusters = int(clusters.max()) + 1
    flat = values.reshape(-1, values.shape[-1])
    sums: Vector = np.stack([np.bincount(clusters, row, n_clusters).astype(np.float64) for row in flat])
    return sums.reshape(*values.shape[:-1], n_clusters)


def critical_value(level: float, n_clusters: int | None = None) -> float:
    """How many standard errors an interval reaches to either side.

    The normal quantile, or with clusters that of Student's t with one degree of freedom less than there are clusters:
    of ten days the variance itself is known to a third only.

    >>> round(critical_value(0.95), 3), round(critical_value(0.95, n_clusters=10), 3)
    (1.96, 2.262)
    """
    upper = 0.5 + level / 2.0
    if n_clusters is None:
        return NormalDist().inv_cdf(upper)
    # SciPy loads when it is needed.
    from scipy.special import stdtrit

    return float(stdtrit(max(n_clusters - 1, 1), upper))


def two_sided_p_value(ratio: float, n_clusters: int | None = None) -> float:
    """The probability of a ratio of an estimate to its standard error that is as far from 0, if the truth is 0.

    >>> round(two_sided_p_value(-1.96), 3), round(two_sided_p_value(2.262, n_clusters=10), 3)
    (0.05, 0.05)
    """
    if n_clusters is None:
        return 2.0 * NormalDist().cdf(-abs(ratio))
    from scipy.special import stdtr

    return float(2.0 * stdtr(max(n_clusters - 1, 1), -abs(ratio)))
