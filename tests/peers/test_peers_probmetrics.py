"""What probmetrics' test_calibrators.py asserts of its calibrators, asserted of ours.

Focal calibration is left out: its one parameter cannot spread probabilities that are too sure. probmetrics draws its
probabilities in single precision; ours are doubles, so that the two array libraries can agree to 1e-7.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import softmax

from refocal.calibrators.registry import NAMED, NONE, make
from refocal.metrics import brier_score, expected_calibration_error, smooth_ece

METRICS = [brier_score, smooth_ece, expected_calibration_error]
CORE = {"auto", "ts", "sigmoid", "isotonic"}
FITTED = sorted(NAMED.keys() - {NONE, "focal"})
EVERY = [pytest.param(name, marks=[] if name in CORE else [pytest.mark.long]) for name in FITTED]


@pytest.fixture(scope="module", params=[(500, 2, 0.3, 0), (2000, 4, 2.0, 1)], ids=["two", "four"])
def data(request):
    """Dirichlet probabilities whose labels follow another temperature."""
    n_rows, n_classes, inverse_temperature, seed = request.param
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(rng.exponential(size=n_classes), size=n_rows)
    truth = softmax(inverse_temperature * np.log(p + 1e-30), axis=1)
    labels = (rng.random((n_rows, 1)) < truth.cumsum(axis=1)).argmax(axis=1)
    return p, labels


@pytest.mark.parametrize("name", EVERY)
def test_every_metric_is_lower_afterwards(name, data):
    p, y = data
    calibrated = make(name, input="probabilities").fit(p, y).predict_proba(p)
    for metric in METRICS:
        assert metric(y, calibrated) < metric(y, p)


@pytest.mark.parametrize("name", EVERY)
def test_tensors_and_arrays_give_the_same(name, data):
    p, y = data
    half = len(p) // 2
    predictions = []
    for fit_as in (np.asarray, torch.as_tensor):
        fitted = make(name, input="probabilities").fit(fit_as(p[:half]), fit_as(y[:half]))
        predictions += [np.asarray(fitted.predict_proba(as_(p[half:]))) for as_ in (np.asarray, torch.as_tensor)]
    for other in predictions[1:]:
        np.testing.assert_allclose(other, predictions[0], atol=1e-7)


@pytest.mark.parametrize("name", EVERY)
def test_a_class_without_rows_keeps_its_column(name):
    rng = np.random.default_rng(0)
    p = rng.uniform(size=(1000, 4))
    p /= p.sum(axis=1, keepdims=True)
    y = rng.choice([0, 2, 3], size=1000)
    calibrated = make(name, input="probabilities").fit(p[:500], y[:500]).predict_proba(p[500:])
    assert calibrated.shape == (500, 4)
    np.testing.assert_allclose(calibrated.sum(axis=1), 1, atol=1e-6)
