"""The affine front: its levels, its floor, rows on any leading axes, and the class that is kept on top."""

from __future__ import annotations

import numpy as np
import pytest

from refocal._arrays import namespace
from refocal.errors import ConvergenceError
from refocal.maps import inverse_focal, softmax, steps
from refocal.maps.steps import KINDS, Affine, KeepTop, features, keep_top

pytestmark = [pytest.mark.core, pytest.mark.numerics]

rng = np.random.default_rng(0)
LOGITS = 3.0 * rng.normal(size=(2, 3, 4))
XP = namespace(LOGITS)


def log_softmax(x):
    return x - np.log(np.sum(np.exp(x), axis=-1, keepdims=True))


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_levels_of_the_features_are_what_is_said(temperature):
    expected = {
        "logits": LOGITS / temperature - np.mean(LOGITS / temperature, axis=-1, keepdims=True),
        "tempered": log_softmax(LOGITS / temperature),
        "log-probabilities": log_softmax(LOGITS) / temperature,
    }
    assert set(expected) == set(KINDS)
    for kind, z in expected.items():
        np.testing.assert_allclose(features(XP, LOGITS, kind, temperature), z, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stray_logit_counts_as_the_logarithm_of_the_smallest_single_number(kind):
    floor = np.log(np.finfo(np.float32).tiny)
    assert pytest.approx(floor, abs=0.5) == -steps.FLOOR
    at_floor = features(XP, np.array([[0.0, -1.0, -steps.FLOOR]]), kind, 1.0)
    np.testing.assert_array_equal(features(XP, np.array([[0.0, -1.0, -1e4]]), kind, 1.0), at_floor)
    above = features(XP, np.array([[0.0, -1.0, -steps.FLOOR + 1.0]]), kind, 1.0)
    np.testing.assert_allclose(np.diff(above)[0, 1] - np.diff(at_floor)[0, 1], 1.0, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mask", [-65504.0, -1e9, -np.inf])
def test_a_masked_class_takes_no_part_in_the_features_of_others(kind, mask):
    logits = rng.normal(size=(20, 4))
    masked = np.insert(logits, 2, mask, axis=1)
    found = np.delete(features(XP, masked, kind, 0.05), 2, axis=1)
    np.testing.assert_allclose(found, features(XP, logits, kind, 0.05), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mask", [-65504.0, -1e9, -np.inf])
def test_a_matrix_adds_the_mean_feature_of_the_other_classes_for_a_masked_one(kind, mask):
    weights, intercept = rng.normal(size=(4, 4)), rng.normal(size=4)
    logits = rng.normal(size=(20, 4))
    logits[rng.random((20, 4)) < 0.3] = mask
    logits[:, 1] = 0.0
    step = Affine(kind, 1.3, weights, intercept)
    z = np.asarray(features(XP, logits, kind, 1.3))
    expected = np.empty((20, 4))
    for i in range(20):
        possible = logits[i] > -1.5e4
        for j in range(4):
            score = intercept[j] + weights[j, j] * z[i, j]
            for k in range(4):
                if k != j:
                    score += weights[j, k] * (z[i, k] if possible[k] else z[i, possible].mean())
            expected[i, j] = -np.inf if logits[i, j] == -np.inf else score
    # A matrix counts a masked class itself where it is possible, and else for its own score alone.
    np.testing.assert_allclose(step.apply(XP, logits), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", [np.ones(3), np.eye(3)], ids=["vector", "matrix"])
def test_nan_is_no_masked_class_and_makes_the_whole_row_nan(kind, weights):
    step = Affine(kind, 1.5, weights, np.zeros(3))
    scores = step.apply(np, np.array([[1.0, np.nan, 0.0], [1.0, 2.0, 0.0]]))
    assert np.isnan(scores[0]).all()
    assert np.isfinite(scores[1]).all()


@pytest.mark.parametrize("order_preserving", [False, True])
def test_rows_may_lie_on_any_leading_axes(order_preserving):
    step = Affine("logits", 1.3, rng.normal(size=(4, 4)), rng.normal(size=4))
    step = KeepTop((step,)) if order_preserving else step
    found = step.apply(XP, LOGITS)
    for i, j in np.ndindex(2, 3):
        np.testing.assert_allclose(found[i, j], step.apply(XP, LOGITS[i, j][None])[0], rtol=1e-12)
    same_top = np.argmax(found, axis=-1) == np.argmax(LOGITS, axis=-1)
    assert same_top.all() == order_preserving


def test_what_is_on_top_already_is_only_normalised():
    log_p = np.log(np.array([[0.5, 0.3, 0.2], [0.4, 0.4, 0.2], [0.2, 0.4, 0.4]]))
    kept = keep_top(XP, log_p, np.array([[0], [0], [2]]))
    np.testing.assert_array_equal(
        kept, keep_top(XP, log_p, np.array([[0], [1], [1]]))
    )  # a tie is on top whoever is named
    np.testing.assert_allclose(kept, log_p, rtol=0.0, atol=1e-15)


def test_a_newton_method_that_does_not_end_says_so(monkeypatch):
    monkeypatch.setattr(softmax, "MAX_STEPS", 1)
    with pytest.raises(ConvergenceError, match=r"did not converge in 1 Newton steps.*Got γ from 20 to 20"):
        inverse_focal(LOGITS, 20.0)
