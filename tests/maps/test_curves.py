"""Curves of log-odds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from refocal import IsotonicCalibration
from refocal.maps.curves import LARGEST_LOG_ODDS, Pieces

pytestmark = pytest.mark.numerics

KNOTS = [-LARGEST_LOG_ODDS, -4.0, -1.0, 2.0, LARGEST_LOG_ODDS]
POWERS = (
    [-LARGEST_LOG_ODDS, -LARGEST_LOG_ODDS, -4.0, -1.0, 2.0, 3.0],
    [1.0, 1.0, 1.0, 1.0, 0.5, 1.0],
    [0.0, 1e-9, 0.1, 0.0, 0.0, 0.0],
)


def value_of(x):
    """The polynomial of the piece that x lies in."""
    piece = sum(knot <= x for knot in KNOTS)
    start = KNOTS[max(piece - 1, 0)]
    return sum(coefficients[piece] * (x - start) ** d for d, coefficients in enumerate(POWERS))


def test_a_piece_that_starts_far_from_0_keeps_its_values():
    x = np.array([-1e8, -1e7, -200.0, -68.1, -67.9, -5.0, -4.0, -3.0, 0.0, 1.9, 50.0, 1e8])
    expected = [value_of(each) for each in x]
    np.testing.assert_allclose(Pieces.of((KNOTS, POWERS)).apply(np, x), expected, rtol=1e-14, atol=1e-7)


def test_a_piece_that_starts_far_from_0_has_its_digits_in_single_precision():
    flat = (KNOTS, (*POWERS[:2], [0.0] * 6))
    x = np.array([-30.0, -5.0, -4.5], dtype=np.float32)
    curve = Pieces.of(flat)
    single = Pieces(curve.knots.astype(np.float32), curve.coefficients.astype(np.float32))
    np.testing.assert_allclose(single.apply(np, x), x, atol=2e-5)


def test_isotonic_calibration_beside_masked_logits_is_the_same_in_single_precision():
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(900, 4))
    masked = rng.random(logits.shape) < 0.25
    masked[np.arange(900), rng.integers(4, size=900)] = False
    labels = np.argmax(np.where(masked, -np.inf, logits / 1.7 + rng.gumbel(size=logits.shape)), axis=1)
    rows = np.where(masked, -1e9, logits).astype(np.float32)
    calibrator = IsotonicCalibration().fit(rows, labels)
    with torch.no_grad():
        of_layer = calibrator.to_torch()(torch.tensor(rows)).exp().numpy()
    np.testing.assert_allclose(of_layer, calibrator.predict_proba(rows.astype(np.float64)), atol=2e-4)
