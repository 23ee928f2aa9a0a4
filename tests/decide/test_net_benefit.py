"""The net benefit of weighted rows: its variance against a plain jackknife, its coverage by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from refocal.decide import net_benefit_curve
from refocal.decide.net_benefit import _variance_of_units
from refocal.metrics.inputs import read_probabilities

pytestmark = pytest.mark.numerics


def draw(rng, n):
    """Rows of a calibrated model, whose weights are far from equal."""
    p = rng.beta(2, 4, n)
    return (rng.random(n) < p).astype(int), p, np.exp(1.2 * rng.normal(size=n))


def test_the_variance_of_shares_of_weighted_rows_is_the_jackknife():
    y, p, weight = draw(np.random.default_rng(0), 30)
    rows = read_probabilities(y, p, weight, "test")
    happens = (y == 1) & (p >= 0.3)
    share = np.average(happens, weights=weight)
    without = [np.average(np.delete(happens, i), weights=np.delete(weight, i)) for i in range(30)]
    expected = 29 / 30 * np.sum(np.square(np.array(without) - share))
    found = _variance_of_units(np.array([0.3]), rows, y == 1, np.array([share]))
    assert found == pytest.approx(expected, rel=1e-9)


def test_intervals_of_rows_of_unequal_weights_cover():
    """By the normal quantile and Σ w² alone, 90 % did."""
    rng = np.random.default_rng(1)
    p = rng.beta(2, 4, 2_000_000)
    truth = np.mean((p >= 0.3) * (p - 0.3 / 0.7 * (1 - p)))
    inside = 0
    for _ in range(600):
        y, p, weight = draw(rng, 40)
        curve = net_benefit_curve(y, p, thresholds=[0.3], sample_weight=weight)
        inside += curve.low[0] <= truth <= curve.high[0]
    assert inside >= 0.93 * 600
