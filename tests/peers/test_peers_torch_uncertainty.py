"""What torch-uncertainty's tests assert of its scalers, losses and metrics, asserted of ours.

Its scalers are modules around a model and take a start value, a learning rate and a number of steps: ours are fitted to
the optimum and have none of these.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from refocal import TemperatureScaling
from refocal.errors import RefocalError
from refocal.maps.steps import Temperature
from refocal.metrics import brier_score, expected_calibration_error
from refocal.nn import CalibrationLayer, FocalLoss


def test_a_temperature_of_1_leaves_the_distribution():
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    torch.testing.assert_close(CalibrationLayer(Temperature(1.0))(logits), torch.log_softmax(logits, dim=1))


def test_logits_without_information_are_flattened():
    logits, labels = np.tile([1.2, 1.0], (10, 1)), np.arange(10) % 2
    scaler = TemperatureScaling().fit(logits, labels)
    assert scaler.temperature_ > 10
    np.testing.assert_allclose(scaler.predict_proba(logits[:1]), [[0.5, 0.5]], atol=0.015)


def test_equal_mass_bins_of_confidences_by_hand():
    # torch-uncertainty turns a probability p of class 1 below one half into a confidence 1 - p of class 0
    p, y = np.array([0.3, 0.24, 0.25, 0.2, 0.8]), np.array([0, 0, 0, 1, 1])
    confidence, correct = np.maximum(p, 1 - p), (p > 0.5) == y
    gaps = 1 - np.mean([0.7, 0.76, 0.75]), 0.8 - 0.5
    truth = {"l1": 3 / 5 * gaps[0] + 2 / 5 * gaps[1], "l2": np.sqrt(3 / 5 * gaps[0] ** 2 + 2 / 5 * gaps[1] ** 2)}
    for norm, value in {**truth, "max": gaps[1]}.items():
        assert expected_calibration_error(correct, confidence, n_bins=2, norm=norm) == pytest.approx(value)


def test_bins_of_equal_mass_and_of_equal_width_agree_where_both_split_at_one_half():
    p, y = [0.35, 0.35, 0.75, 0.75], [0, 0, 1, 1]
    quantile, uniform = (expected_calibration_error(y, p, n_bins=2, strategy=s) for s in ("quantile", "uniform"))
    assert quantile == uniform


def test_brier_scores_by_hand():
    assert brier_score([1], [[0.0, 1.0]]) == 0
    # Theirs adds up both classes and is twice as large; ours of two classes is that of class 1.
    assert 2 * brier_score([1], [[0.5, 0.5]]) == 0.5
    assert 2 * brier_score([1, 1], [[0.0, 1.0], [0.5, 0.5]]) == 0.25
    rows = [[0.2, 0.6, 0.1, 0.05, 0.05], [0.05, 0.25, 0.1, 0.3, 0.3]]
    squares = 0.2**2 + 0.6**2 + 0.1**2 * 2 + 0.95**2 + 0.05**2 * 2 + 0.25**2 + 0.3**2 + 0.7**2
    assert brier_score([3, 4], rows) == pytest.approx(squares / 2)


@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
@pytest.mark.parametrize("gamma", [0.5, 1.0])
def test_focal_loss_of_a_coin(gamma, reduction):
    loss = FocalLoss(gamma, reduction=reduction)(torch.zeros(1, 2), torch.tensor([0]))
    torch.testing.assert_close(loss.reshape(()), torch.tensor(0.5**gamma * np.log(2), dtype=torch.float32))


@pytest.mark.parametrize("options", [{"gamma": -1}, {"gamma": 1, "reduction": "median"}], ids=["gamma", "reduction"])
def test_focal_loss_refuses_what_it_cannot_do(options):
    with pytest.raises(RefocalError, match=f"'{list(options)[-1]}'"):
        FocalLoss(**options)


def test_errors_come_before_any_row_is_read():
    with pytest.raises(RefocalError, match="'temperatures'"):
        TemperatureScaling(temperatures=[-1.0, 1.0], search="grid").fit(3 * np.eye(3), [0, 1, 2])
