"""Bands of reliability diagrams of rows in clusters, against a plain formula and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t

from refocal.evaluate import evaluate
from refocal.io import Predictions, blocks
from refocal.metrics import reliability_band, reliability_curve

pytestmark = pytest.mark.numerics


def draw(rng, n_clusters=45, rows_each=20):
    """Rows of a calibrated model, whose clusters share their confidence and part of their outcomes."""
    confidence = np.linspace(0.3, 0.9, n_clusters)
    rate = rng.beta(4 * confidence, 4 * (1 - confidence))
    y = (rng.random((n_clusters, rows_each)) < rate[:, None]).ravel().astype(int)
    return y, np.repeat(confidence, rows_each), np.repeat(np.arange(n_clusters), rows_each)


def test_a_bin_has_students_t_of_the_clusters_that_are_in_it():
    y, p, cluster = draw(np.random.default_rng(0))
    curve = reliability_curve(y, p, clusters=cluster)
    assert curve.count == [60] * 15  # three clusters each
    for i in range(15):
        rates = y[60 * i : 60 * (i + 1)].reshape(3, 20).mean(axis=1)
        share = rates.mean()
        variance = rates.var(ddof=1) / 3  # clusters of one size
        size = min(60, share * (1 - share) / variance)
        z2 = t.ppf(0.975, 2) ** 2
        half = np.sqrt(z2 * share * (1 - share) / size + z2**2 / (4 * size**2)) / (1 + z2 / size)
        centre = (share + z2 / (2 * size)) / (1 + z2 / size)
        assert (curve.low[i], curve.high[i]) == pytest.approx((centre - half, centre + half), rel=1e-9, abs=1e-12)


def test_a_calibrated_model_of_few_clusters_a_bin_lies_in_its_band():
    """By the quantile of all clusters, half of such samples had a point outside."""
    rng = np.random.default_rng(1)
    is_inside = []
    for _ in range(60):
        y, p, cluster = draw(rng)
        band = reliability_band(y, p, clusters=cluster, kind="consistency", simultaneous=True)
        is_inside.append(np.all((np.array(band.low) <= band.accuracy) & (band.accuracy <= np.array(band.high))))
    assert np.mean(is_inside) >= 0.9


def test_bands_of_few_clusters_a_bin_in_blocks_are_those_of_memory():
    y, p, cluster = draw(np.random.default_rng(2))
    logits = np.log(np.column_stack([1 - p, p]))
    in_memory = evaluate(Predictions.from_logits(logits, y, clusters=cluster), {}, n_resamples=10).before.reliability
    parts = [(logits[i], y[i], None, {"day": cluster[i].astype(str)}) for i in (slice(0, 500), slice(500, 900))]
    in_blocks = evaluate(blocks(parts, clusters="day"), {}).before.reliability
    assert in_blocks.low == pytest.approx(in_memory.low, abs=1e-9)
    assert in_blocks.high == pytest.approx(in_memory.high, abs=1e-9)
