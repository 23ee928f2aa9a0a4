from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import trapezoid

from refocal.metrics import corp_reliability, ks_calibration_error, smooth_ece

pytestmark = [pytest.mark.core, pytest.mark.numerics]


def smooth_by_kernel(y, p, sigma, weight=None, points=20_001):
    """The definition: every sample's reflected Gaussian on a fine mesh, nothing put on a grid first."""
    weight = np.ones(len(p)) if weight is None else weight
    t = np.linspace(0, 1, points)[:, None]
    density = np.zeros(points)
    for shift in range(-6, 7):
        if 2 * abs(shift) - 2 > 10 * sigma:  # e^-50 of it at most comes back to [0, 1]
            continue
        for mirrored in (p, -p):
            kernel = np.exp(-((t - 2 * shift - mirrored) ** 2) / (2 * sigma**2)) / (sigma * np.sqrt(2 * np.pi))
            density += kernel @ (weight * (p - y))
    return trapezoid(np.abs(density), t[:, 0]) / weight.sum()


def small(binary):
    y, p = binary
    return y[:40], p[:40]


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.01, pytest.param(0.05, marks=pytest.mark.long), 0.3, 2.0])
def test_smooth_at_fixed_bandwidth_is_the_integral(binary, sigma):
    y, p = small(binary)
    weight = np.random.default_rng(0).random(len(p))
    assert smooth_ece(y, p, bandwidth=sigma) == pytest.approx(smooth_by_kernel(y, p, sigma), abs=1e-6)
    assert smooth_ece(y, p, bandwidth=sigma, sample_weight=weight) == pytest.approx(
        smooth_by_kernel(y, p, sigma, weight), abs=1e-6
    )


def test_smooth_solves_for_its_bandwidth(binary):
    y, p = small(binary)
    value = smooth_ece(y, p)
    if value > 0.005:
        assert smooth_by_kernel(y, p, value) == pytest.approx(value, abs=1e-6)
    else:
        assert smooth_ece(y, p, bandwidth=max(value, 1e-6)) == pytest.approx(value, abs=1e-6)


def test_smooth_of_the_perfect_and_of_the_worst():
    assert smooth_ece([0, 1, 1], [0.0, 1.0, 1.0]) == 0.0
    assert smooth_ece([1, 1], [0.0, 0.0]) == pytest.approx(1.0, abs=1e-9)
    assert smooth_ece([1, 0], [0.0, 1.0]) == pytest.approx(smooth_by_kernel(np.array([1, 0]), np.array([0.0, 1.0]),
                                                           smooth_ece([1, 0], [0.0, 1.0])), abs=1e-6)  # fmt: skip


def test_smooth_at_small_bandwidth_needs_the_fine_grid():
    rng = np.random.default_rng(0)
    p = rng.random(1_000_000)
    y = (rng.random(1_000_000) < p).astype(int)
    value = smooth_ece(y, p)
    assert 0 < value < 0.004
    part = slice(0, 60)
    assert smooth_ece(y[part], p[part], bandwidth=0.002) == pytest.approx(
        smooth_by_kernel(y[part], p[part], 0.002), abs=1e-5
    )


def test_ks_by_loop(binary):
    y, p = small(binary)
    weight = np.random.default_rng(0).integers(1, 4, len(p))
    expected = max(abs(sum((weight * (p - y))[p <= x])) for x in p) / weight.sum()
    assert ks_calibration_error(y, p, sample_weight=weight) == pytest.approx(expected, abs=1e-12)
    order = np.random.default_rng(1).permutation(len(p))
    assert ks_calibration_error(y[order], p[order]) == pytest.approx(ks_calibration_error(y, p), abs=1e-12)


def test_whole_weights_repeat_rows(binary):
    y, p = binary
    weight = np.random.default_rng(1).integers(0, 4, len(p))
    weight[0] = 1
    repeated = np.repeat(y, weight), np.repeat(p, weight)
    assert smooth_ece(y, p, sample_weight=weight) == pytest.approx(smooth_ece(*repeated), abs=1e-9)
    assert ks_calibration_error(y, p, sample_weight=weight) == pytest.approx(ks_calibration_error(*repeated), abs=1e-12)
    one, other = corp_reliability(y, p, sample_weight=weight), corp_reliability(*repeated)
    assert one.accuracy == pytest.approx(other.accuracy, abs=1e-12)
    assert one.miscalibration == pytest.approx(other.miscalibration, abs=1e-12)


def test_corp_adds_up_and_rises(binary):
    y, p = binary
    corp = corp_reliability(y, p)
    assert corp.miscalibration - corp.discrimination + corp.uncertainty == pytest.approx(corp.brier, abs=1e-12)
    assert corp.miscalibration >= -1e-15
    assert corp.discrimination >= -1e-15
    assert np.all(np.diff(corp.accuracy) > 0)
    assert sum(corp.count) == len(p)


@pytest.mark.parametrize("p", [0.0, 1 / 65536, 2 / 65536, 0.5, 1 - 1 / 65536, 1.0])
def test_smooth_at_the_ends_of_the_grid_is_the_integral(p):
    y, p = np.array([0, 1, 1]), np.full(3, p)
    assert smooth_ece(y, p, bandwidth=0.1) == pytest.approx(smooth_by_kernel(y, p, 0.1), abs=1e-7)
