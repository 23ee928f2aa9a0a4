"""What netcal's tests assert of its scaling methods, asserted of ours, with netcal beside it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from refocal import LogisticCalibration, TemperatureScaling
from refocal.metrics import log_loss


@pytest.fixture(scope="module")
def overconfident():
    rng = np.random.default_rng(42)
    latent = rng.normal(size=(2000, 5))
    return softmax(3 * latent, axis=1), np.argmax(latent + rng.gumbel(size=latent.shape), axis=1)


@pytest.mark.parametrize("method", [TemperatureScaling, LogisticCalibration])
def test_single_and_double_precision_reach_the_same_optimum(overconfident, method):
    p, y = overconfident
    losses = []
    for dtype in (np.float32, np.float64):
        rows = p.astype(dtype)
        calibrated = method(input="probabilities").fit(rows, y).predict_proba(rows)
        losses.append(log_loss(y, np.log(np.float64(calibrated))))
        assert losses[-1] < log_loss(y, np.log(p)) - 0.2
        assert np.abs(calibrated - rows).max() > 1e-3
    assert losses[0] == pytest.approx(losses[1], abs=5e-5)
