"""Settings of a served model against the calibrator's own probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.exceptions import NotFittedError

from refocal import AutoCalibration, IsotonicCalibration, LogisticCalibration, TemperatureScaling
from refocal.errors import ParameterError, UnsupportedError
from refocal.export import to_vllm


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    z = 3.0 * rng.normal(size=800) + 1.0
    return z, (rng.random(800) < expit((z - 2.0) / 2.0)).astype(int)


@pytest.mark.parametrize("kind", [TemperatureScaling, LogisticCalibration])
def test_the_settings_give_the_calibrators_probabilities(kind, rows):
    z, y = rows
    fitted = kind(input="log-odds").fit(z, y)
    settings = to_vllm(fitted)
    served = expit((z - settings["logit_mean"]) / settings["logit_sigma"])
    np.testing.assert_allclose(served, fitted.predict_proba(z)[:, 1], atol=1e-5)  # logistic mixes in 1e-6
    assert (settings["logit_mean"] != 0.0) == (kind is LogisticCalibration)


def test_a_temperature_of_several_classes_is_sigma():
    rng = np.random.default_rng(0)
    z = 2.0 * rng.normal(size=(500, 4))
    fitted = TemperatureScaling().fit(z, np.argmax(z / 2.0 + rng.gumbel(size=z.shape), axis=1))
    settings = to_vllm(fitted)
    np.testing.assert_allclose(softmax(z / settings["logit_sigma"], axis=1), fitted.predict_proba(z), atol=1e-12)


def test_what_is_no_line_is_refused(rows):
    z, y = rows
    for kind in (IsotonicCalibration, AutoCalibration):
        with pytest.raises(UnsupportedError, match=f"{kind.__name__} with input='log-odds' is no line of logits"):
            to_vllm(kind(input="log-odds").fit(z, y))
    with pytest.raises(UnsupportedError, match="input='probabilities'"):
        to_vllm(TemperatureScaling(input="probabilities").fit(expit(z), y))
    with pytest.raises(NotFittedError):
        to_vllm(TemperatureScaling())
    with pytest.raises(ParameterError, match="'calibrator' of to_vllm"):
        to_vllm(1.5)
