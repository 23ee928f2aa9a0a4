"""Metrics of multi-label data against those of each of its columns."""

from __future__ import annotations

import numpy as np
import pytest

from refocal.metrics import METRICS, brier_decomposition, by_label, corp_reliability, spiegelhalter_test


@pytest.mark.parametrize(
    ("function", "number"),
    [(brier_decomposition, "calibration"), (spiegelhalter_test, "z"), (corp_reliability, "miscalibration")],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_of_a_metric_with_several_parts_the_number_of_its_record_counts(function, number, weighted):
    rng = np.random.default_rng(0)
    p = rng.random((200, 3))
    y = (rng.random((200, 3)) < p**2).astype(int)
    weight = rng.uniform(0.5, 2.0, 200) if weighted else None
    expected = [getattr(function(y[:, k], p[:, k], sample_weight=weight), number) for k in range(3)]
    pooled = getattr(
        function(y.ravel(), p.ravel(), sample_weight=None if weight is None else np.repeat(weight, 3)), number
    )
    for metric in function, function.__name__, METRICS[function.__name__]:
        found = by_label(metric, y, p, sample_weight=weight)
        assert found.labels.tolist() == pytest.approx(expected)
        assert found.mean == pytest.approx(np.mean(expected))
        assert found.pooled == pytest.approx(pooled)
