"""Errors of the automated rows rest on the clusters that these are of, however many others there are."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t

from refocal.decide import automation_curve, evaluate_decisions
from refocal.metrics import risk_at_coverage

pytestmark = pytest.mark.numerics


def draw(n_sure, n_clusters=40, rows_each=10):
    """The clusters of which all rows are sure, as many as are said, make mistakes in different shares of them."""
    cluster = np.repeat(np.arange(n_clusters), rows_each)
    p = np.where(cluster < n_sure, 0.9, 0.55)
    number = np.tile(np.arange(rows_each), n_clusters)
    labels = (number >= 1 + cluster % 4).astype(int)
    return labels, p, cluster


def wilson_of_clusters(wrong, cluster, level=0.95):
    """Wilson's interval of as many rows as give the jackknife's variance, with Student's t of the clusters."""
    names = np.unique(cluster)
    share = wrong.mean()
    left_out = np.array([wrong[cluster != name].mean() for name in names])
    variance = (len(names) - 1) / len(names) * np.sum((left_out - share) ** 2)
    size = min(len(wrong), share * (1 - share) / variance)
    z = t.ppf(0.5 + level / 2, len(names) - 1)
    centre = (share + z**2 / (2 * size)) / (1 + z**2 / size)
    half = z * np.sqrt(share * (1 - share) / size + z**2 / (4 * size**2)) / (1 + z**2 / size)
    return centre - half, centre + half


def ends(labels, p, cluster, n_sure):
    """The interval of the error of the sure rows, by three ways to ask for it."""
    curve = automation_curve(labels, p, clusters=cluster)
    assert curve.share[0] == pytest.approx(n_sure / 40)
    at_coverage = risk_at_coverage(labels, p, coverage=n_sure / 40, clusters=cluster).risk
    decided = evaluate_decisions(labels, p, [[0, 1], [1, 0]], abstain=0.3, clusters=cluster).error
    return [(curve.error_low[0], curve.error_high[0]), *((each.low, each.high) for each in (at_coverage, decided))]


def test_the_error_of_few_clusters_is_known_from_these():
    labels, p, cluster = draw(3)
    expected = wilson_of_clusters(1.0 - labels[cluster < 3], cluster[cluster < 3])
    for found in ends(labels, p, cluster, 3):
        assert found == pytest.approx(expected, rel=1e-9)


def test_the_error_of_a_single_cluster_may_be_any():
    for found in ends(*draw(1), 1):
        assert found == (0.0, 1.0)
