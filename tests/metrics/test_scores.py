from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn import metrics as sk

from refocal.errors import ParameterError
from refocal.metrics import (
    accuracy,
    brier_decomposition,
    brier_score,
    log_loss,
    reliability_curve,
    spiegelhalter_test,
)

pytestmark = [pytest.mark.core, pytest.mark.numerics]


def test_scores_are_scikit_learns(multiclass):
    y, p = multiclass
    weight = np.random.default_rng(0).random(len(y))
    classes = list(range(p.shape[1]))
    for w in (None, weight):
        assert log_loss(y, np.log(p), sample_weight=w) == pytest.approx(
            sk.log_loss(y, p, labels=classes, sample_weight=w), abs=1e-9
        )
        assert accuracy(y, p, sample_weight=w) == pytest.approx(
            sk.accuracy_score(y, p.argmax(axis=1), sample_weight=w), abs=1e-12
        )
        # As ours, theirs of two classes is that of class 1.
        theirs = sk.brier_score_loss(y, p, labels=classes, sample_weight=w)
        assert brier_score(y, p, sample_weight=w) == pytest.approx(theirs, abs=1e-12)


def test_binary_scores(binary):
    y, p = binary
    assert brier_score(y, p) == pytest.approx(sk.brier_score_loss(y, p), abs=1e-12)
    columns = np.stack([1 - p, p], axis=1)
    assert brier_score(y, columns) == brier_score(y, p)
    assert accuracy(y, p) == accuracy(y, columns)


def test_log_loss_keeps_the_tail():
    logits = np.array([[0.0, -800.0], [0.0, -2000.0]])
    assert log_loss([1, 1], logits) == 1400.0
    assert log_loss([0, 0], [-1e-20, -1e-300]) == pytest.approx((20 + 300) * math.log(10) / 2, rel=1e-12)


def test_log_loss_is_infinite_only_where_the_model_says_never():
    log_p = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    assert log_loss([0, 1], log_p) == 0.0
    assert log_loss([1, 1], log_p) == math.inf
    assert log_loss([1, 1], log_p, sample_weight=[0, 1]) == 0.0


@pytest.mark.parametrize("method", ["isotonic", "binned"])
def test_brier_decomposition_adds_up(multiclass, method):
    y, p = multiclass
    parts = brier_decomposition(y, p, method=method)
    assert parts.brier == pytest.approx(brier_score(y, p), abs=1e-12)
    assert parts.calibration + parts.refinement + parts.within_bin == pytest.approx(parts.brier, abs=1e-12)
    assert parts.uncertainty - parts.resolution == pytest.approx(parts.refinement, abs=1e-12)
    base = np.bincount(y, minlength=p.shape[1]) / len(y)
    base = base[1:] if p.shape[1] == 2 else base  # two classes are about class 1
    assert parts.uncertainty == pytest.approx((base * (1 - base)).sum(), abs=1e-12)
    assert parts.calibration >= 0


def test_isotonic_decomposition_is_what_isotonic_regression_removes(binary):
    from sklearn.isotonic import IsotonicRegression

    y, p = binary
    recalibrated = IsotonicRegression().fit(p, y).predict(p) if len(p) > 1 else y.astype(float)
    parts = brier_decomposition(y, p)
    assert parts.calibration == pytest.approx(brier_score(y, p) - brier_score(y, recalibrated), abs=1e-9)


def test_binned_decomposition_on_constant_bins_has_nothing_within():
    p = np.repeat([0.1, 0.5, 0.8], 100)
    y = (np.random.default_rng(0).random(300) < p).astype(int)
    parts = brier_decomposition(y, p, method="binned", n_bins=3)
    assert parts.within_bin == pytest.approx(0.0, abs=1e-12)
    by_value = [((p[p == v].mean() - y[p == v].mean()) ** 2) / 3 for v in (0.1, 0.5, 0.8)]
    assert parts.calibration == pytest.approx(sum(by_value), abs=1e-12)


def test_spiegelhalter_holds_its_level():
    rng = np.random.default_rng(0)
    rejected = {2: 0, 5: 0}
    for _ in range(400):
        for classes in rejected:
            p = rng.dirichlet(np.ones(classes), 300)
            y = (p.cumsum(axis=1) > rng.random((300, 1))).argmax(axis=1)
            rejected[classes] += spiegelhalter_test(y, p).p_value < 0.05
    # 400 trials at 5 %: 20 expected, 8 … 34 is more than three standard deviations either way.
    assert all(8 <= count <= 34 for count in rejected.values())


def test_spiegelhalter_of_two_columns_is_that_of_one(binary):
    y, p = binary
    one, two = spiegelhalter_test(y, p), spiegelhalter_test(y, np.stack([1 - p, p], axis=1))
    assert one.z == pytest.approx(two.z, abs=1e-9)
    assert one.p_value == pytest.approx(two.p_value, abs=1e-9)


def test_spiegelhalter_without_chance():
    assert spiegelhalter_test([0, 1], [0.0, 1.0]).z == 0.0
    assert spiegelhalter_test([1, 1], [0.0, 1.0]) == spiegelhalter_test([1, 0], [0.0, 1.0])
    assert spiegelhalter_test([1, 1], [0.0, 1.0]).p_value == 0.0


def test_log_loss_of_one_probability_is_that_of_two_columns(binary):
    y, p = binary
    p = np.clip(p, 1e-6, 1.0 - 1e-6)
    two = log_loss(y, np.log(np.stack([1.0 - p, p], axis=1)))
    assert log_loss(y, np.log(p)) == pytest.approx(two, rel=1e-9)


def test_spiegelhalter_by_loop(multiclass):
    y, p = multiclass
    excess = variance = 0.0
    for label, row in zip(y, p, strict=True):
        brier = np.sum((row - (np.arange(len(row)) == label)) ** 2)
        each = 1.0 - 2.0 * row + np.sum(row**2)  # the Brier score, were this class the label
        mean = row @ each
        excess, variance = excess + brier - mean, variance + row @ (each - mean) ** 2
    assert spiegelhalter_test(y, p).z == pytest.approx(excess / np.sqrt(variance), rel=1e-6)


def test_a_binned_decomposition_has_fifteen_bins_and_a_known_strategy(binary):
    y, p = binary
    assert brier_decomposition(y, p, method="binned") == brier_decomposition(y, p, method="binned", n_bins=15)
    curve = reliability_curve(y, p)
    share = np.array(curve.count) / len(y)
    gap = np.array(curve.confidence) - np.array(curve.accuracy)
    assert brier_decomposition(y, p, method="binned").calibration == pytest.approx(share @ gap**2, abs=1e-12)
    with pytest.raises(ParameterError, match="'strategy' of brier_decomposition"):
        brier_decomposition(y, p, strategy="kmeans")
