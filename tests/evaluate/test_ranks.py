"""Win rates, ranks and intervals over many experiments, beside plain loops, statsmodels and simulations."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.stats import friedmanchisquare, rankdata
from scipy.stats import t as student

from refocal.evaluate.ranks import (
    RankTests,
    SeedSpread,
    clustered_difference,
    clustered_rate,
    signed_rank,
    win_rates,
)


def test_win_rates_are_those_of_a_plain_loop():
    rng = np.random.default_rng(0)
    scores = {name: rng.integers(4, size=12).astype(float) for name in "abcd"}  # with ties
    for name, rates in win_rates(scores).items():
        for i in range(12):
            wins = [scores[name][i] < scores[other][i] for other in scores if other != name]
            assert rates[i] == pytest.approx(np.mean(wins))


def test_clustered_errors_are_those_of_statsmodels():
    """The sandwich of a mean with one-way clusters is statsmodels' but for its factor and the jackknife's weights."""
    rng = np.random.default_rng(1)
    clusters = np.repeat(np.arange(6), 4)
    values = rng.normal(size=24) + rng.normal(size=6)[clusters]
    found = clustered_difference(values, np.zeros(24), [clusters], 0.95)
    options = {"groups": clusters, "use_correction": False, "df_correction": True}
    fitted = sm.OLS(values, np.ones(24)).fit(cov_type="cluster", cov_kwds=options, use_t=True)
    # m / (m - 1) of m clusters of one size, in place of no correction.
    error = fitted.bse[0] * np.sqrt(6 / 5)
    margin = student.ppf(0.975, 5) * error
    np.testing.assert_allclose([found.low, found.high], values.mean() + np.array([-margin, margin]), rtol=1e-9)
    assert found.p_value == pytest.approx(2 * student.sf(abs(values.mean() / error), 5))


def test_two_ways_of_clustering_add_up_as_they_say():
    rng = np.random.default_rng(2)
    rows, columns = (codes.ravel() for codes in np.indices((5, 6)))
    values = rng.normal(size=30) + 2.0 * rng.normal(size=5)[rows] + 2.0 * rng.normal(size=6)[columns]

    def variance(codes):
        m = codes.max() + 1
        sums = [np.sum(values[codes == c] - values.mean()) for c in range(m)]
        return m / (m - 1) * np.sum(np.square(sums)) / 30**2

    both = variance(rows) + variance(columns) - variance(np.arange(30))
    error = np.sqrt(max(both, variance(rows), variance(columns)))
    found = clustered_difference(values, np.zeros(30), [rows, columns], 0.95)
    margin = student.ppf(0.975, 4) * error  # of the fewer clusters, 5
    assert found.high - found.difference == pytest.approx(margin, rel=1e-9)


def coverage(n_datasets, n_networks, sds, clusterings_of, n_trials=400):
    """How often the interval of a mean of 0 holds it, with effects of data sets, networks and each experiment."""
    rng = np.random.default_rng(3)
    rows, columns = (codes.ravel() for codes in np.indices((n_datasets, n_networks)))
    held = 0
    for _ in range(n_trials):
        effects = sds[0] * rng.normal(size=n_datasets)[rows] + sds[1] * rng.normal(size=n_networks)[columns]
        values = effects + sds[2] * rng.normal(size=len(rows))
        found = clustered_difference(values, np.zeros(len(rows)), clusterings_of(rows, columns), 0.95)
        held += found.low <= 0.0 <= found.high
    return held / n_trials


def test_intervals_of_both_cover_what_experiments_share():
    """Where data sets and networks have effects of their own, intervals of independent experiments do not hold."""
    shared = (1.0, 1.0, 1.0)
    assert coverage(8, 8, shared, lambda rows, columns: [rows, columns]) >= 0.93
    assert coverage(8, 8, shared, lambda rows, columns: []) < 0.75
    assert coverage(8, 8, shared, lambda rows, columns: [rows]) < 0.9
    # And nothing is lost but width where they have none.
    assert coverage(8, 8, (0.0, 0.0, 1.0), lambda rows, columns: [rows, columns]) >= 0.93


def test_ranks_are_scipys_and_the_critical_difference_is_demsars():
    rng = np.random.default_rng(4)
    matrix = rng.normal(size=(14, 5)) + np.arange(5)
    tests = RankTests.of(dict(zip("abcde", matrix.T, strict=True)), 0.95)
    np.testing.assert_allclose(list(tests.ranks.values()), rankdata(matrix, axis=1).mean(axis=0))
    assert tests.p_value == pytest.approx(friedmanchisquare(*matrix.T).pvalue)
    # Demšar (2006), table 5: q of five classifiers at 0.05 is 2.728.
    assert tests.critical_difference == pytest.approx(2.728 * np.sqrt(5 * 6 / (6 * 14)), rel=1e-3)


def test_cliques_are_the_largest_sets_without_a_difference():
    ranks = {"a": 1.0, "b": 1.9, "c": 2.8, "d": 3.1, "e": 6.0}
    tests = RankTests(ranks, 10, 0.01, 1.0, 0.95)
    expected = [
        names
        for size in range(5, 1, -1)
        for names in itertools.combinations(ranks, size)
        if ranks[names[-1]] - ranks[names[0]] < 1.0
    ]
    largest = [names for names in expected if not any(set(names) < set(other) for other in expected)]
    assert sorted(tests.cliques()) == sorted(largest) == [("a", "b"), ("b", "c"), ("c", "d")]


def test_few_methods_and_ties_have_no_test():
    two = RankTests.of({"a": np.array([1.0, 2.0]), "b": np.array([2.0, 1.0])}, 0.95)
    assert (two.p_value, two.critical_difference, two.cliques()) == (None, None, [])
    same = RankTests.of(dict.fromkeys("abc", np.ones(4)), 0.95)
    assert same.p_value == 1.0
    assert signed_rank(np.zeros(5)) == 1.0


@pytest.mark.parametrize("n", [3, 8, 30])
@pytest.mark.parametrize("n_others", [1, 3])
def test_intervals_of_win_rates_cover_also_of_few_experiments(n, n_others):
    """A method that is better in 0.9 of all cases, more often in some experiments than in others."""
    rng = np.random.default_rng(5)
    held = 0
    resampled = 0
    for _ in range(300):
        rates = rng.binomial(n_others, rng.beta(9.0, 1.0, size=n)) / n_others
        found = clustered_rate(rates, [], 0.95)
        held += found.low <= 0.9 <= found.high
        draws = rates[rng.integers(n, size=(200, n))].mean(axis=1)
        resampled += np.quantile(draws, 0.025) <= 0.9 <= np.quantile(draws, 0.975)
    assert held / 300 >= 0.91
    assert n == 30 or resampled / 300 < 0.92


def test_the_interval_of_a_rate_knows_what_experiments_share():
    rates = np.repeat([1.0, 0.5, 0.75, 0.25], 5)
    clusters = np.repeat(np.arange(4), 5)
    alone, together = clustered_rate(rates, [], 0.95), clustered_rate(rates, [clusters], 0.95)
    assert together.low < alone.low < 0.625 < alone.high < together.high
    one = clustered_rate(np.array([1.0]), [], 0.95)
    assert (one.low, one.high) == (0.0, 1.0)


def test_a_spread_of_one_number_has_no_deviation():
    assert SeedSpread.of([0.5]) == (0.5, None)
    assert SeedSpread.of([1.0, 2.0, 6.0]).sd == pytest.approx(np.std([1.0, 2.0, 6.0], ddof=1))
