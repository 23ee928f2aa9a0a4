"""The variance of a mean, or of any metric by the influence of each row on it: the one place that squares residuals.

A metric T of weighted rows moves by w_i ψ_i / Σ w if row i is given a little more weight, ψ_i being its influence
(Hampel 1974); of a weighted mean ψ_i is the term of the row, and centring takes care of the rest. With the units u that
are independent of one another, rows or clusters of them, and m their number,

    Var T = m / (m - 1) · Σ_u (Σ_{i in u} w_i (ψ_i - ψ̄))² / (Σ w)²,    ψ̄ = Σ w ψ / Σ w.

Of rows this is the sandwich variance, of clusters that of Liang & Zeger (1986): residuals of one cluster are added
before they are squared, so that what they have in common does not cancel.
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
    >>> float(variance_of_mean(np.array([0.0, 0.0, 1.0, 1.0]), clusters=np.array([0, 0, 1, 1])))
    0.25
    """
    deviations = weighted_deviations(influence, weight)
    has_weight = np.ones(deviations.shape[-1], dtype=np.bool_) if weight is None else weight > 0.0
    total = float(deviations.shape[-1]) if weight is None else float(np.sum(weight))
    if clusters is None:
        n_units = int(np.count_nonzero(has_weight))
    else:
        deviations = sums_of_clusters(deviations, clusters)
        n_units = len(np.unique(clusters[has_weight]))
    if n_units < 2:
        return np.full(deviations.shape[:-1], math.inf)[()]
    return n_units / (n_units - 1.0) * np.square(deviations).sum(axis=-1) / total**2


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
