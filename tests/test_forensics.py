"""The loss that training rows are stationary under, against models that are trained to the end with a known loss."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from refocal.errors import DataError, ParameterError, ShapeError
from refocal.forensics import training_loss
from refocal.io import Predictions
from refocal.maps import inverse_focal
from refocal.nn import FocalLoss


def trained(gamma, weight=None, n=1500, seed=0):
    """Logits of a linear model at the minimum of its focal loss, which no weight decay moves, and the labels."""
    rng = np.random.default_rng(seed)
    x = torch.tensor(rng.normal(size=(n, 4)))
    truth = x.numpy() @ (1.5 * rng.normal(size=(4, 3))) + np.array([0.5, 0.0, -0.5])
    labels = np.argmax(truth + rng.gumbel(size=truth.shape), axis=1)
    model = nn.Linear(4, 3).double()
    loss = FocalLoss(gamma, weight=None if weight is None else torch.tensor(weight))
    optimizer = torch.optim.LBFGS(
        model.parameters(), max_iter=500, tolerance_grad=1e-11, tolerance_change=1e-15, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        value = loss(model(x), torch.tensor(labels))
        value.backward()
        return value

    optimizer.step(closure)
    return labels, model(x).detach().numpy()


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, 5.0])
def test_gamma_of_a_model_at_its_minimum_is_found(gamma):
    labels, logits = trained(gamma)
    loss = training_loss(labels, logits)
    assert loss.gamma.value == pytest.approx(gamma, abs=0.01)
    assert loss.gamma.low < gamma < loss.gamma.high
    assert loss.reason == ""
    assert loss.class_weight is None
    again = training_loss(Predictions.from_logits(logits + 100.0, labels))
    assert again.gamma.value == pytest.approx(loss.gamma.value, abs=1e-6)


def test_class_weights_of_a_model_at_its_minimum_are_found():
    weight = np.array([0.5, 1.0, 4.0])
    labels, logits = trained(1.0, weight)
    loss = training_loss(labels, logits, class_weight="fit")
    assert loss.gamma.value == pytest.approx(1.0, abs=0.02)
    np.testing.assert_allclose(loss.class_weight, weight * 3 / weight.sum(), rtol=0.01)
    low, high = loss.class_weight_interval
    assert (low < weight * 3 / weight.sum()).all()
    assert (high > weight * 3 / weight.sum()).all()
    assert training_loss(labels, logits).gamma.high < 1.0  # without weights another γ makes these rows stationary


def scale_gradients(labels, logits, gammas):
    """Differences of the focal loss between logits a little larger and a little smaller, for each γ."""
    of_label = []
    for scale in (1.0 - 1e-4, 1.0 + 1e-4):
        scaled = scale * logits
        log_q = scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))
        of_label.append(log_q[np.arange(len(labels)), labels])
    smaller, larger = ([-((1.0 - np.exp(q)) ** gamma * q).sum() for gamma in gammas] for q in of_label)
    return np.subtract(larger, smaller)


@pytest.mark.parametrize("seed", [0, 2, 8])
def test_cross_entropy_is_told_where_the_gradient_falls_before_it_rises(seed):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(3000, 3))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    gammas = np.linspace(-0.9, 3.0, 391)
    gradients = scale_gradients(labels, logits, gammas)
    assert gradients[0] > 0.0 > gradients.min()
    (rise,) = np.flatnonzero((gradients[:-1] <= 0.0) & (gradients[1:] > 0.0))
    loss = training_loss(labels, logits)
    assert loss.reason == ""
    assert loss.gamma.value == pytest.approx(gammas[rise], abs=0.02)
    assert -0.9 <= loss.gamma.low < 0.0 < loss.gamma.high < 0.5


def test_an_interval_without_a_bound_below_ends_at_the_least_gamma_tried():
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(200, 3))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    loss = training_loss(labels, logits)
    assert loss.gamma.low == -0.9
    assert np.isfinite(loss.gamma.standard_error)


def test_intervals_cover():
    covered = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        truth = 1.5 * rng.normal(size=(1000, 3))
        labels = np.argmax(truth + rng.gumbel(size=truth.shape), axis=1)
        loss = training_loss(labels, inverse_focal(truth, 2.0), n_resamples=100)
        covered += loss.gamma.low <= 2.0 <= loss.gamma.high
    assert covered >= 33  # 38 expected


def test_rows_of_one_cluster_are_resampled_together():
    """Every row four times is as much as every row once."""
    labels, logits = trained(2.0)
    number = np.arange(len(labels))
    each_once, each_four_times = (
        Predictions.from_logits(logits[rows], labels[rows], clusters=rows) for rows in (number, np.repeat(number, 4))
    )
    for class_weight in (None, "fit"):
        once = training_loss(each_once, class_weight=class_weight)
        found = training_loss(each_four_times, class_weight=class_weight)
        assert (found.gamma.low, found.gamma.high) == pytest.approx((once.gamma.low, once.gamma.high))
        if class_weight is not None:
            for end, expected in zip(found.class_weight_interval, once.class_weight_interval, strict=True):
                assert end == pytest.approx(expected)
    with pytest.raises(DataError, match="at least two different ones"):
        training_loss(each_once.with_clusters(["all"] * len(number)))


def test_memorised_rows_tell_nothing():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=600)
    logits = 12.0 * np.eye(3)[labels] + rng.normal(size=(600, 3))
    loss = training_loss(labels, logits)
    assert loss.gamma is None
    assert loss.n_wrong == 0
    assert loss.reason == "only 0 of 600 rows hold the logits back: memorised"
    with pytest.raises(DataError, match="none: only 0 of 600"):
        loss.explain(labels, logits)
    noise = training_loss(labels, 0.01 * -logits)  # worse than guessing: every scale is too large
    assert noise.gamma is None
    assert "no γ" in noise.reason


def test_the_gap_is_that_of_the_loss_and_of_fitting():
    rng = np.random.default_rng(0)
    truth = 2.0 * rng.normal(size=(10000, 3))
    labels = np.argmax(truth + rng.gumbel(size=truth.shape), axis=1)
    logits = inverse_focal(truth, 3.0)
    loss = training_loss(labels, logits)
    gap = loss.explain(labels, logits)
    q = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    correct = q.argmax(axis=1) == labels
    assert gap.total.value == pytest.approx(q.max(axis=1).mean() - correct.mean())
    assert gap.by_loss.value + gap.by_fitting.value == pytest.approx(gap.total.value)
    assert gap.by_loss.high < -0.1
    assert abs(gap.by_fitting.value) < 0.02
    sharpened = loss.explain(labels, 2.0 * logits)
    assert sharpened.by_fitting.low > 0.02


def test_class_weights_are_those_of_the_columns_that_are_called_alike():
    labels, logits = trained(2.0, weight=[0.3, 1.0, 1.7])
    names = np.array(["cat", "dog", "emu"])
    frame = pd.DataFrame(logits, columns=names)
    loss = training_loss(names[labels], frame, class_weight="fit", n_resamples=20)
    gap = loss.explain(names[labels], frame)
    turned = frame[names[::-1]]
    assert loss.explain(names[labels], turned).by_fitting.value == pytest.approx(gap.by_fitting.value)
    assert loss.explain(Predictions.from_logits(turned, names[labels])).by_loss.value == pytest.approx(
        gap.by_loss.value
    )
    assert loss.explain(labels, logits).by_fitting.value == pytest.approx(gap.by_fitting.value)
    with pytest.raises(ShapeError, match="the same in both: cat, dog, emu"):
        loss.explain(labels, frame.rename(columns={"cat": "cow"}))


def test_what_is_wrong_is_named():
    labels, logits = trained(0.0, n=300)
    with pytest.raises(ParameterError, match="'class_weight' of training_loss"):
        training_loss(labels, logits, class_weight="balanced")
    with pytest.raises(DataError, match="'y_true' of training_loss must be of every class"):
        training_loss(np.minimum(labels, 1), logits, class_weight="fit")
    with pytest.raises(ParameterError, match="'n_resamples' of training_loss"):
        training_loss(labels, logits, n_resamples=1)


def test_a_logit_of_minus_infinity_at_a_label_is_refused():
    """No loss of training is infinite: the row would have counted as one that pulls nowhere."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(300, 3))
    labels = np.argmax(2.0 * logits + rng.gumbel(size=logits.shape), axis=1)
    logits[7, labels[7]] = -np.inf
    with pytest.raises(DataError, match="-inf at the label of row 7"):
        training_loss(labels, logits)
