"""The variance of a mean of rows and of clusters of them."""

import numpy as np
import pytest

from refocal.metrics.influence import critical_value, sums_of_clusters, two_sided_p_value, variance_of_mean

pytestmark = pytest.mark.numerics


def loop_variance(values, weight, clusters):
    """The jackknife: the mean without each unit, one at a time."""
    values, weight, clusters = (np.asarray(each) for each in (values, weight, clusters))
    mean = np.average(values, weights=weight)
    names = np.unique(clusters[weight > 0])
    squares = 0.0
    for name in names:
        others = clusters != name
        squares += (np.average(values[others], weights=weight[others]) - mean) ** 2
    return (len(names) - 1) / len(names) * squares


def test_equals_the_means_without_each_unit():
    rng = np.random.default_rng(0)
    values = rng.normal(size=60)
    weight = rng.exponential(size=60)
    weight[:7] = 0.0
    clusters = rng.integers(0, 9, 60)
    assert variance_of_mean(values) == pytest.approx(values.var(ddof=1) / 60)
    assert variance_of_mean(values, weight) == pytest.approx(loop_variance(values, weight, range(60)))
    assert variance_of_mean(values, weight, clusters) == pytest.approx(loop_variance(values, weight, clusters))


def test_several_influences_at_once():
    rng = np.random.default_rng(1)
    values = rng.normal(size=(2, 3, 40))
    clusters = rng.integers(0, 5, 40)
    together = variance_of_mean(values, clusters=clusters)
    assert together.shape == (2, 3)
    assert together[1, 2] == pytest.approx(variance_of_mean(values[1, 2], clusters=clusters))
    assert sums_of_clusters(values, clusters)[0, 1] == pytest.approx(np.bincount(clusters, values[0, 1]))


def test_rows_of_weight_0_have_no_say():
    values = np.array([1.0, 2.0, 4.0, np.inf])
    weight = np.array([1.0, 2.0, 1.0, 0.0])
    assert variance_of_mean(values, weight) == pytest.approx(variance_of_mean(values[:3], weight[:3]))
    clusters = np.array([0, 0, 1, 2])
    assert variance_of_mean(values, weight, clusters) == pytest.approx(
        variance_of_mean(values[:3], weight[:3], clusters[:3])
    )


def test_one_unit_has_no_variance():
    assert variance_of_mean(np.array([0.3])) == np.inf
    assert variance_of_mean(np.array([0.3, 0.9]), clusters=np.array([1, 1])) == np.inf


def test_clusters_cover_where_rows_do_not():
    """Twenty clusters with an effect of their own: rows alone say a third of the error."""
    rng = np.random.default_rng(2)
    clusters = np.repeat(np.arange(20), 50)
    effects = rng.normal(size=(400, 20))
    values = effects[:, clusters] + rng.normal(size=(400, 1000))
    means = values.mean(axis=1)
    by_rows = np.sqrt(variance_of_mean(values)) * critical_value(0.95)
    by_clusters = np.sqrt(variance_of_mean(values, clusters=clusters)) * critical_value(0.95, 20)
    assert np.mean(np.abs(means) < by_rows) < 0.5
    assert 0.92 <= np.mean(np.abs(means) < by_clusters) <= 0.98


def test_p_values_are_those_of_the_critical_values():
    for n_clusters in (None, 5, 40):
        assert two_sided_p_value(-critical_value(0.9, n_clusters), n_clusters) == pytest.approx(0.1)
