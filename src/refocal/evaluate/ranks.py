"""Methods on many experiments: win rates, ranks and their tests, and intervals that experiments may share a cause of.

Scores are a matrix (experiments, methods) of which lower is better. An experiment is one network on one data set.

**Win rates** are CalArena's (Berta, Holzmüller, Jordan & Bach 2026): the share of all experiments and other methods in
which a method's score is strictly lower; the interval resamples whole data sets, or what else is independent.

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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Indices, Vector
from refocal.metrics import PairedDifference
from refocal.metrics.influence import variance_of_mean
from refocal.metrics.intervals import normal_difference


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


def resampled_interval(
    values: Vector, clusters: NDArray[Any], level: float = 0.95, n_resamples: int = 1000
) -> tuple[float, float]:
    """The interval of a mean over experiments, by drawing whole clusters with replacement.

    >>> resampled_interval(np.array([1.0, 0.0, 0.0]), np.array(["a", "a", "b"]))
    (0.0, 0.5)
    """
    _, codes = np.unique(clusters, return_inverse=True)
    sums = np.bincount(codes, values)
    counts = np.bincount(codes)
    drawn = np.random.default_rng(0).integers(len(sums), size=(n_resamples, len(sums)))
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1), [tail, 1.0 - tail])
    return float(low), float(high)


def clustered_difference(
    first: Vector, second: Vector, clusterings: Sequence[Indices], level: float
) -> PairedDifference:
    """The mean of first less second over experiments, with its interval; see the text above.

    `clusterings` has for each way of clustering the number of each experiment's cluster, counted from 0: none where
    experiments are independent, at most two.

    >>> a, b = np.array([0.3, 0.5, 0.4, 0.8]), np.array([0.2, 0.3, 0.2, 0.7])
    >>> clustered_difference(a, b, [], 0.95).low > 0.0
    True
    """
    differences = first - second
    variances = [float(variance_of_mean(differences, clusters=clusters)) for clusters in clusterings]
    numbers = [int(clusters.max()) + 1 for clusters in clusterings]
    of_experiments = float(variance_of_mean(differences))
    if not clusterings:
        variances = [of_experiments]
        numbers = [len(differences)]
    elif len(clusterings) > 1:
        variances.append(sum(variances) - of_experiments)
    error = math.sqrt(max(variances))
    return normal_difference(float(first.mean()), float(second.mean()), error, level, min(numbers))


class RankTests(NamedTuple):
    """Friedman's test and the mean ranks of methods, with Nemenyi's critical difference.

    >>> scores = {"a": [0.1, 0.2, 0.1, 0.3], "b": [0.2, 0.3, 0.2, 0.4], "c": [0.3, 0.4, 0.3, 0.5]}
    >>> found = RankTests.of({name: np.array(values) for name, values in scores.items()}, level=0.95)
    >>> found.ranks, round(found.p_value, 4), round(found.critical_difference, 3)
    ({'a': 1.0, 'b': 2.0, 'c': 3.0}, 0.0183, 1.657)
    >>> found.cliques()
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
