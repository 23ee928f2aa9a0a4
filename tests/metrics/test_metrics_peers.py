"""Parity with other packages, to 1e-9 where definitions agree; benchmarks/results/metrics.md lists the differences."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from sklearn.calibration import calibration_curve
from sklearn.isotonic import IsotonicRegression

from refocal.metrics import (
    accuracy,
    brier_score,
    classwise_ece,
    corp_reliability,
    debiased_ece,
    expected_calibration_error,
    ks_calibration_error,
    log_loss,
    reliability_curve,
    smooth_ece,
    spiegelhalter_test,
)

with warnings.catch_warnings():
    # What peers warn of while they are imported is theirs to mend.
    warnings.simplefilter("ignore")
    import netcal.metrics
    import probcal.metrics
    import relplot
    import relplot.metrics
    from probmetrics.metrics import Metrics
    from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

TOLERANCE = 1e-9
NORMS = ["l1", "l2", "max"]


def off_the_edges(y, p, n_bins):
    """Peers put their edges at linspace(0, 1), which is not always the number nearest to k/n: 0.30000000000000004."""
    edges = np.arange(1, n_bins) / n_bins
    on_edge = np.abs(p[:, None] - edges).min(axis=1, initial=1.0) <= 1e-12
    return y, np.where(on_edge, p + 1e-9, p)


@pytest.mark.parametrize("n_bins", [1, 10, 15])
def test_quantile_curve_is_scikit_learns_when_the_bins_divide_the_rows(binary, n_bins):
    y, p = binary
    keep = len(p) // n_bins * n_bins
    if keep == 0:
        keep, n_bins = len(p), 1
    y, p = y[:keep], p[:keep]
    accuracy_of_bins, confidence = calibration_curve(y, p, n_bins=n_bins, strategy="quantile")
    curve = reliability_curve(y, p, n_bins=n_bins)
    np.testing.assert_allclose(curve.accuracy, accuracy_of_bins, atol=TOLERANCE, rtol=0)
    np.testing.assert_allclose(curve.confidence, confidence, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("n_bins", [1, 10, 15, 100])
def test_uniform_is_netcals(binary, n_bins):
    y, p = off_the_edges(*binary, n_bins)
    ours = {
        norm: expected_calibration_error(y, p, n_bins=n_bins, strategy="uniform", norm=norm) for norm in ("l1", "max")
    }
    assert ours["l1"] == pytest.approx(netcal.metrics.ECE(n_bins).measure(p, y), abs=TOLERANCE)
    assert ours["max"] == pytest.approx(netcal.metrics.MCE(n_bins).measure(p, y), abs=TOLERANCE)


def test_quantile_is_netcals_without_ties():
    rng = np.random.default_rng(0)
    p = rng.random(3000)
    y = (rng.random(3000) < p**2).astype(int)
    theirs = netcal.metrics.ECE(15, equal_intervals=False).measure(p, y)
    assert expected_calibration_error(y, p, n_bins=15) == pytest.approx(theirs, abs=TOLERANCE)


def test_uniform_multiclass_is_netcals(multiclass):
    y, p = multiclass
    if p.shape[1] <= 3:
        # netcal takes labels of two kinds for a binary problem, whatever the number of columns.
        y = (y == 1).astype(int)
        assert expected_calibration_error(y, p[:, 1], strategy="uniform") == pytest.approx(
            netcal.metrics.ECE(15).measure(p[:, 1], y), abs=TOLERANCE
        )
    else:
        theirs = netcal.metrics.ECE(15).measure(p, y)
        assert expected_calibration_error(y, p, strategy="uniform") == pytest.approx(theirs, abs=TOLERANCE)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n_bins", [1, 15])
def test_uniform_is_torchmetrics_below_confidence_1(binary, norm, n_bins):
    y, p = binary
    y, p = off_the_edges(y[p < 1], p[p < 1], n_bins)
    if len(p) == 0:
        return
    theirs = binary_calibration_error(torch.asarray(p), torch.asarray(y), n_bins=n_bins, norm=norm)
    ours = expected_calibration_error(y, p, n_bins=n_bins, strategy="uniform", norm=norm)
    assert ours == pytest.approx(float(theirs), abs=TOLERANCE)


@pytest.mark.parametrize("norm", NORMS)
def test_uniform_multiclass_is_torchmetrics(multiclass, norm):
    y, p = multiclass
    ours = expected_calibration_error(y, p, strategy="uniform", norm=norm)
    if p.shape[1] == 2:  # which are about class 1
        theirs = binary_calibration_error(torch.asarray(p[:, 1].copy()), torch.asarray(y), n_bins=15, norm=norm)
        assert ours == pytest.approx(float(theirs), abs=TOLERANCE)
        return
    confidence, correct = torch.asarray(p.max(axis=1)), torch.asarray((p.argmax(axis=1) == y).astype(int))
    theirs = binary_calibration_error(confidence, correct, n_bins=15, norm=norm)
    assert ours == pytest.approx(float(theirs), abs=TOLERANCE)
    # Their multiclass function goes through float32.
    theirs = multiclass_calibration_error(
        torch.asarray(p), torch.asarray(y), num_classes=p.shape[1], n_bins=15, norm=norm
    )
    assert ours == pytest.approx(float(theirs), abs=1e-6)


def test_torchmetrics_has_a_bin_of_its_own_for_confidence_1():
    p, y = np.array([0.95, 1.0]), np.array([0, 1])
    theirs = float(binary_calibration_error(torch.asarray(p), torch.asarray(y), n_bins=10))
    assert theirs == pytest.approx(0.475, abs=TOLERANCE)
    assert expected_calibration_error(y, p, n_bins=10, strategy="uniform") == pytest.approx(0.475, abs=TOLERANCE)
    p, y = np.array([0.95, 1.0]), np.array([1, 0])
    theirs = float(binary_calibration_error(torch.asarray(p), torch.asarray(y), n_bins=10))
    assert theirs == pytest.approx(0.525, abs=TOLERANCE)
    assert expected_calibration_error(y, p, n_bins=10, strategy="uniform") == pytest.approx(0.475, abs=TOLERANCE)


def test_uniform_is_relplots():
    rng = np.random.default_rng(0)
    p = rng.random(5000)
    y = (rng.random(5000) < p**2).astype(int)
    assert expected_calibration_error(y, p, n_bins=10, strategy="uniform") == pytest.approx(
        relplot.metrics.binnedECE(p, y, 10), abs=TOLERANCE
    )


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("weighted", [False, True])
def test_uniform_is_probcals(norm, weighted):
    rng = np.random.default_rng(0)
    p = rng.random(3000)
    y = (rng.random(3000) < p**2).astype(int)
    w = rng.random(3000) + 0.1 if weighted else None
    theirs = probcal.metrics.ece(y, p, n_bins=15, strategy="width", norm=norm, sample_weight=w)
    ours = expected_calibration_error(y, p, strategy="uniform", norm=norm, sample_weight=w)
    assert ours == pytest.approx(theirs, abs=TOLERANCE)


@pytest.mark.parametrize("norm", NORMS)
def test_quantile_is_probcals_when_the_bins_divide_the_rows(norm):
    rng = np.random.default_rng(0)
    p = rng.random(3000)
    y = (rng.random(3000) < p**2).astype(int)
    theirs = probcal.metrics.ece(y, p, n_bins=15, strategy="mass", norm=norm)
    assert expected_calibration_error(y, p, norm=norm) == pytest.approx(theirs, abs=TOLERANCE)


def test_debiased_is_torchmetrics():
    from torchmetrics.functional.classification.calibration_error import _ce_compute

    rng = np.random.default_rng(0)
    p = rng.random(2000)
    y = (rng.random(2000) < p**2).astype(int)
    theirs = _ce_compute(torch.asarray(p), torch.asarray(y), 15, norm="l2", debias=True)
    assert debiased_ece(y, p, strategy="uniform") == pytest.approx(float(theirs), abs=TOLERANCE)


def test_ks_and_spiegelhalter_are_probcals(binary):
    y, p = binary
    if len(p) == 1:
        # probcal wants both classes.
        return
    assert ks_calibration_error(y, p) == pytest.approx(probcal.metrics.ecce(y, p).stat_max, abs=TOLERANCE)
    theirs, ours = probcal.metrics.spiegelhalter_z(y, p), spiegelhalter_test(y, p)
    if np.isfinite(ours.z) and p.min() > 0 and p.max() < 1:
        assert ours.z == pytest.approx(theirs.z, abs=TOLERANCE)
        assert ours.p_value == pytest.approx(theirs.p_value, abs=TOLERANCE)


def test_scores_are_probmetrics(multiclass):
    y, p = multiclass
    theirs = Metrics.from_names(["logloss", "brier", "accuracy", "class-error"]).compute_all_from_labels_logits(
        torch.asarray(y), torch.log(torch.asarray(p))
    )
    assert log_loss(y, np.log(p)) == pytest.approx(float(theirs["logloss"]), abs=TOLERANCE)
    of_both = 2 if p.shape[1] == 2 else 1  # ours of two classes is that of class 1
    assert of_both * brier_score(y, p) == pytest.approx(float(theirs["brier"]), abs=TOLERANCE)
    # These two they keep in float32.
    assert accuracy(y, p) == pytest.approx(float(theirs["accuracy"]), abs=1e-7)
    assert 1 - accuracy(y, p) == pytest.approx(float(theirs["class-error"]), abs=1e-7)


@pytest.mark.parametrize("seed", range(30))
def test_pools_of_corp_are_the_same_with_equal_weights(seed):
    rng = np.random.default_rng(seed)
    p = rng.random(200).round(2)
    y = rng.random(200) < p
    alone = corp_reliability(y, p)
    weighted = corp_reliability(y, p, sample_weight=np.full(200, 0.3))
    assert weighted.count == alone.count
    # Strictly rising: a difference of shares of at most 200 rows is above 1 / 200².
    assert min(np.diff(alone.accuracy)) > 1.0 / 200.0**2 - 1e-9


def test_corp_is_scikit_learns_isotonic_regression(binary):
    y, p = binary
    if len(p) == 1:
        return
    corp = corp_reliability(y, p)
    fitted = IsotonicRegression().fit(p, y).predict(p)
    np.testing.assert_allclose(corp.accuracy, np.unique(fitted.round(12)), atol=TOLERANCE, rtol=0)
    assert corp.miscalibration == pytest.approx(np.mean((p - y) ** 2) - np.mean((fitted - y) ** 2), abs=TOLERANCE)


def test_classwise_is_the_mean_of_netcals(multiclass):
    y, p = multiclass
    each = [netcal.metrics.ECE(15).measure(p[:, k], (y == k).astype(int)) for k in range(min(p.shape[1], 10))]
    if p.shape[1] <= 10:
        assert classwise_ece(y, p, strategy="uniform") == pytest.approx(np.mean(each), abs=TOLERANCE)
    else:
        ours = [expected_calibration_error((y == k).astype(int), p[:, k], strategy="uniform") for k in range(10)]
        assert ours == pytest.approx(each, abs=TOLERANCE)


@pytest.mark.parametrize("sigma", [0.02, 0.05, 0.2])
def test_smooth_is_relplots_on_its_own_grid(monkeypatch, sigma):
    """relplot sums over a mesh; on the mesh it convolves on, and away from 0 and 1, it is the integral we compute."""
    rng = np.random.default_rng(0)
    p = 0.3 + 0.4 * rng.random(2000)
    y = (rng.random(2000) < p**2).astype(int)
    monkeypatch.setattr(relplot.config, "smECE_mesh_pts", 2001)
    theirs = relplot.smECE_sigma(p, y, sigma)
    assert smooth_ece(y, p, bandwidth=sigma) == pytest.approx(theirs, rel=2e-3)
