"""Methods on many experiments: win rates, ranks and their tests, and intervals that experiments may share a cause of.

Scores are a matrix (experiments, methods) of which lower is better. An experiment is one network on one data set.

**Win rates** are CalArena's (Berta, Holzmüller, Jordan & Bach 2026): the share of all experiments and other methods in
which a method's score is strictly lower. Their interval is Wilson's of a bounded mean with the variance below, since a
method that wins everywhere has no variance: of 3 to 8 experiments with a rate of 0.9 it covers 93 to 99 %, where
resampled experiments cover 27 to 90 % (tests/evaluate/test_ranks.py).

**A mean over experiments**, such as that of the differences of two methods, has the error of what is independent.
Experiments on one data set resemble each other, and so do those of one network. With V_D and V_N the variances of the
mean where data sets, or networks, are clusters, and V that of independent experiments (`refocal.metrics.influence`),

    Var = max(V_D + V_N - V, V_D, V_N)

(Cameron, Gelbach & Miller 2011; the maximum, since the first may come out too small, even below 0, of few clusters),
with the quantiles of Student's t for one degree of freedom less than the fewer of the two numbers of clusters.

**Ranks.** In each of N blocks the k methods have the ranks 1 … k, equal scores their mean. Friedman's test asks
whether all mean ranks are equal; Nemenyi's critical difference of two mean ranks is q √(k (k + 1) / (6 N)), where q √2
is the quantile of the studentized range (Demšar 2006). Wilcoxon's signed-rank test compares two methods block by block.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from refocal._arrays import Indices, Vector
from refocal.metrics import Interval, PairedDifference
from refocal.metrics.influence import variance_of_mean
from refocal.metrics.intervals import bounded_mean, normal_difference


class SeedSpread(NamedTuple):
    """A mean and the standard deviation, which one number does not have.

    >>> SeedSpread.of([1.0, 3.0]), SeedSpread.of([2.0])
    (SeedSpread(mean=2.0, sd=1.4142135623730951), SeedSpread(mean=2.0, sd=None))
    """

    mean: float
    sd: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> SeedSpread:
        """That of some numbers."""
        return cls(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None)


def win_rates(scores: Mapping[str, Vector]) -> dict[str, Vector]:
    """For each method and experiment the share of the other methods whose score is strictly higher.

    >>> rates = win_rates({"a": np.array([1.0, 2.0]), "b": np.array([2.0, 2.0])})
    >>> rates["a"].tolist(), rates["b"].tolist()
    ([1.0, 0.0], [0.0, 0.0])
    """
    matrix = np.stack(list(scores.values()))
    rates = {}
    for i, name in enumerate(scores):
        others = np.delete(matrix, i, axis=0)
        rates[name] = (others > matrix[i]).mean(axis=0)
    return rates


class ClusteredVariance(NamedTuple):
    """The variance of a mean over experiments, and the number of clusters that it is known from."""

    variance: float
    n_clusters: int

    @classmethod
    def of(cls, values: Vector, clusterings: Sequence[Indices]) -> ClusteredVariance:
        """See the text above.

        `clusterings` has for each way of clustering the number of each experiment's cluster, counted from 0: none where
        experiments are independent, at most two.
        """
        of_experiments = float(variance_of_mean(values))
        if not clusterings:
            return cls(of_experiments, len(values))
        variances = [float(variance_of_mean(values, clusters=clusters)) for clusters in clusterings]
        if len(clusterings) > 1:
            variances.append(sum(variances) - of_experiments)
        return cls(max(variances), min(int(clusters.max()) + 1 for clusters in clusterings))


def clustered_difference(
    first: Vector, second: Vector, clusterings: Sequence[Indices], level: float
) -> PairedDifference:
    """The mean of first less second over experiments, with its interval.

    >>> a, b = np.array([0.3, 0.5, 0.4, 0.8]), np.array([0.2, 0.3, 0.2, 0.7])
    >>> clustered_difference(a, b, [], 0.95).low > 0.0
    True
    """
    variance, n_clusters = ClusteredVariance.of(first - second, clusterings)
    return normal_difference(float(first.mean()), float(second.mean()), math.sqrt(variance), level, n_clusters)


def clustered_rate(rates: Vector, clusterings: Sequence[Indices], level: float) -> Interval:
    """The mean of rates from 0 to 1 over experiments, with its interval; for one experiment it is from 0 to 1.

    >>> interval = clustered_rate(np.ones(8), [], 0.95)
    >>> interval.value, round(interval.low, 2), interval.high
    (1.0, 0.68, 1.0)
    """
    value = float(rates.mean())
    variance, n_clusters = ClusteredVariance.of(rates, clusterings)
    if n_clusters < 2:
        return Interval(value, 0.0, 1.0, level, math.inf, 0.0, 0)
    low, high = bounded_mean(value, variance, n_clusters, 0.0, 1.0, level)
    return Interval(value, min(float(low), value), max(float(high), value), level, math.sqrt(variance), 0.0, 0)


class RankTests(NamedTuple):
    """Friedman's test and the mean ranks of methods, with Nemenyi's critical difference.

    >>> scores = {"a": [0.1, 0.2, 0.1, 0.3], "b": [0.2, 0.3, 0.2, 0.4], "c": [0.3, 0.4, 0.3, 0.5]}
    >>> tests = RankTests.of({name: np.array(values) for name, values in scores.items()}, level=0.95)
    >>> tests.ranks, round(tests.p_value, 4), round(tests.critical_difference, 3)
    ({'a': 1.0, 'b': 2.0, 'c': 3.0}, 0.0183, 1.657)
    >>> tests.cliques()
    [('a', 'b'), ('b', 'c')]
    """

    ranks: dict[str, float]
    n_blocks: int
    p_value: float | None
    """Of Friedman's test; None of fewer than three methods or two blocks."""
    critical_difference: float | None
    level: float

    @classmethod
    def of(cls, scores: Mapping[str, Vector], level: float) -> RankTests:
        """The tests of scores of each method in each block."""
        from scipy.stats import friedmanchisquare, rankdata, studentized_range

        matrix = np.stack(list(scores.values()), axis=1)
        n_blocks, n_methods = matrix.shape
        ranks = dict(zip(scores, rankdata(matrix, axis=1).mean(axis=0).tolist(), strict=True))
        if n_methods < 3 or n_blocks < 2:
            return cls(ranks, n_blocks, None, None, level)
        is_tied = bool((matrix == matrix[:, :1]).all())
        p_value = 1.0 if is_tied else float(friedmanchisquare(*matrix.T).pvalue)
        q = float(studentized_range.ppf(level, n_methods, math.inf)) / math.sqrt(2.0)
        critical = q * math.sqrt(n_methods * (n_methods + 1) / (6.0 * n_blocks))
        return cls(ranks, n_blocks, p_value, critical, level)

    def cliques(self) -> list[tuple[str, ...]]:
        """The largest sets of methods whose mean ranks differ by less than the critical difference, best first."""
        if self.critical_difference is None:
            return []
        names = sorted(self.ranks, key=self.ranks.__getitem__)
        cliques: list[tuple[str, ...]] = []
        last_end = 0
        for start, first in enumerate(names):
            close = [name for name in names[start:] if self.ranks[name] - self.ranks[first] < self.critical_difference]
            end = start + len(close)
            if len(close) > 1 and end > last_end:
                cliques.append(tuple(close))
                last_end = end
        return cliques


def signed_rank(differences: Vector) -> float:
    """The p-value of Wilcoxon's signed-rank test of differences, two-sided; 1 where all are 0.

    >>> signed_rank(np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]))
    0.03125
    """
    from scipy.stats import wilcoxon

    if not np.any(differences):
        return 1.0
    return float(wilcoxon(differences).pvalue)
