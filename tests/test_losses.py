"""Losses against references, their gradients, and properness."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy.optimize import minimize
from sklearn.metrics import log_loss
from torch.autograd import gradcheck

import reference
from helpers import to_numpy
from refocal import losses, maps
from refocal.errors import ParameterError
from refocal.maps import focal as focal_map
from refocal.maps import log_softmax
from refocal.theory import conditional_risk, focal_minimizer

pytestmark = [pytest.mark.core, pytest.mark.numerics]

ALL = {
    "cross_entropy": losses.cross_entropy,
    "brier": losses.brier,
    "focal": partial(losses.focal, gamma=2.0),
    "sample_dependent_focal": losses.sample_dependent_focal,
    "proper_focal": partial(losses.proper_focal, gamma=2.0),
}


@pytest.fixture
def sample():
    rng = np.random.default_rng(0)
    return rng.normal(scale=3.0, size=(40, 6)), rng.integers(0, 6, size=40)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("of_labels", ["numpy", "torch", "jax", "pandas", "polars", "list"])
@pytest.mark.parametrize("of_logits", ["numpy", "torch", "jax", "pandas", "polars", "list"])
def test_logits_and_labels_of_different_libraries(sample, name, of_logits, of_labels):
    logits, labels = sample
    vectors = {"numpy": np.asarray, "torch": torch.asarray, "jax": jnp.asarray, "pandas": pd.Series,
               "polars": pl.Series, "list": np.ndarray.tolist}  # fmt: skip
    tables = {**vectors, "pandas": pd.DataFrame, "polars": pl.DataFrame}
    found = ALL[name](tables[of_logits](logits), vectors[of_labels](labels))
    assert isinstance(found, {"torch": torch.Tensor, "jax": jax.Array}.get(of_logits, np.ndarray))
    np.testing.assert_allclose(to_numpy(found), ALL[name](logits, labels), rtol=1e-4 if of_logits == "jax" else 1e-12)


@pytest.mark.parametrize("make", [torch.asarray, jnp.asarray, np.asarray])
def test_one_gamma_for_each_row_from_any_library(sample, make):
    logits, labels = sample
    gamma = np.arange(40) / 8
    expected = losses.focal(logits, labels, gamma)
    for as_logits in (np.asarray, torch.asarray):
        np.testing.assert_allclose(losses.focal(as_logits(logits), labels, make(gamma)), expected, rtol=1e-12)


def test_cross_entropy_and_brier_agree_with_other_libraries(sample):
    logits, labels = sample
    q = np.exp(log_softmax(logits))
    assert losses.cross_entropy(logits, labels, reduction="mean") == pytest.approx(log_loss(labels, q), rel=1e-12)
    torchs = torch.nn.functional.cross_entropy(torch.tensor(logits), torch.tensor(labels), reduction="none")
    np.testing.assert_allclose(losses.cross_entropy(logits, labels), torchs, rtol=1e-12)
    np.testing.assert_allclose(losses.brier(logits, labels), ((q - np.eye(6)[labels]) ** 2).sum(axis=1), rtol=1e-12)


@pytest.mark.parametrize("gamma", [-0.9, -0.5, 0.0, 0.05, 0.5, 1.0, 5.0, 50.0])
def test_focal_agrees_with_arbitrary_precision(gamma):
    rng = np.random.default_rng(1)
    logits = np.concatenate([scale * rng.normal(size=(4, 5)) for scale in (0.0, 1.0, 20.0, 300.0)])
    for label in range(5):
        want = [float(reference.focal_loss(row, label, gamma)) for row in logits]
        got = losses.focal(logits, np.full(len(logits), label), gamma)
        np.testing.assert_allclose(got, want, rtol=2e-12, atol=1e-300)


def test_special_cases_of_focal(sample):
    logits, labels = sample
    np.testing.assert_allclose(losses.focal(logits, labels, 0.0), losses.cross_entropy(logits, labels), rtol=1e-14)
    q = np.exp(-losses.cross_entropy(logits, labels))
    by_hand = np.where(q < 0.2, (1 - q) ** 5, (1 - q) ** 3) * -np.log(q)
    np.testing.assert_allclose(losses.sample_dependent_focal(logits, labels), by_hand, rtol=1e-10)
    assert (q < 0.2).any()
    assert (q > 0.2).any()
    np.testing.assert_allclose(
        losses.focal(logits, labels, np.where(q < 0.2, 5.0, 3.0)), losses.sample_dependent_focal(logits, labels)
    )
    # The proper part behind the map is the loss itself: L*(p̂(q), y) = L(q, y).
    np.testing.assert_allclose(
        losses.proper_focal(focal_map(logits, 3.0), labels, 3.0), losses.focal(logits, labels, 3.0), rtol=1e-10
    )


def test_a_certain_and_correct_row_costs_nothing_and_an_impossible_label_everything():
    logits = np.array([[3.0, -np.inf], [-np.inf, 0.0]])
    for name, loss in ALL.items():
        np.testing.assert_array_equal(loss(logits, np.array([0, 1])), 0.0, err_msg=name)
        np.testing.assert_array_equal(loss(logits, np.array([1, 0])), 2.0 if name == "brier" else np.inf, err_msg=name)
    np.testing.assert_array_equal(losses.focal(logits, np.array([0, 1]), -0.9), 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_every_library_gives_the_same(name, library, sample):
    logits, labels = sample
    expected = ALL[name](logits, labels)
    # One shape for all: JAX compiles anew for every other.
    shaped_logits = library(logits.reshape(4, 10, 6))
    shaped_labels = library(labels.reshape(4, 10))
    got = ALL[name](shaped_logits, shaped_labels)
    np.testing.assert_allclose(to_numpy(got), expected.reshape(4, 10), rtol=1e-11)
    total = ALL[name](shaped_logits, shaped_labels, reduction="sum")
    np.testing.assert_allclose(float(total), expected.sum(), rtol=1e-11)
    mean = ALL[name](shaped_logits, shaped_labels, reduction="mean")
    np.testing.assert_allclose(float(mean), expected.mean(), rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_gradients_match_finite_differences(name, sample):
    rows = np.concatenate([sample[0][:8], np.zeros((1, 6)), [[1.0, 0.0, 1.0, 1.0, -1.0, 0.0]]])  # ties too
    logits = torch.tensor(rows, requires_grad=True)
    labels = torch.tensor([*sample[1][:8], 2, 3])
    assert gradcheck(lambda x: ALL[name](x, labels), (logits,), atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("gamma", [-0.5, 0.05, 0.5, 1.0, 5.0])
@pytest.mark.parametrize("loss", [losses.focal, losses.proper_focal])
def test_gradients_stay_finite_at_large_gaps(loss, gamma, dtype):
    rows = [[200.0, 0.0, 0.0], [0.0, 200.0, 0.0], [1e4, 0.0, -1e4], [0.0, 0.0, 0.0], [5.0, -torch.inf, 0.0]]
    for label in (0, 2):
        logits = torch.tensor(rows, dtype=dtype, requires_grad=True)
        values = loss(logits, torch.full((5,), label), gamma)
        assert values.dtype == dtype
        values.sum().backward()
        assert torch.isfinite(values).all()
        assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("gamma", [-0.5, 0.0, 2.0])
def test_second_derivatives_match_finite_differences(gamma):
    """Those of the inverse map, too, which is found by iteration: as boosting and Laplace's method need them."""
    logits = torch.tensor([[1.2, 0.0, -1.0], [0.3, 2.0, 0.1]], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 2])
    for loss in (losses.focal, losses.proper_focal):
        assert torch.autograd.gradgradcheck(lambda x, loss=loss: loss(x, labels, gamma), logits)


def test_the_gradient_of_focal_is_right_where_it_is_small():
    """d/ds of -(1-q)^γ log q at a gap of 50: (1-q)^(1+γ) q (γ h/q · q + ... ) by arbitrary precision."""
    import mpmath as mp

    for gamma in (0.05, 0.5, 2.0):
        logits = torch.tensor([[50.0, 0.0]], dtype=torch.float64, requires_grad=True)
        losses.focal(logits, torch.tensor([0]), gamma).sum().backward()
        with mp.workdps(60):

            def value(s, gamma=gamma):
                return (1 + mp.exp(s)) ** -mp.mpf(gamma) * mp.log1p(mp.exp(-s))

            want = float(mp.diff(value, mp.mpf(50)))
        assert logits.grad[0, 0].item() == pytest.approx(want, rel=1e-12)


def minimiser(p, loss):
    """The prediction with the smallest conditional risk, by a search that knows only the loss."""

    def risk(z):
        logits = torch.tensor(np.append(z, 0.0), requires_grad=True)
        value = torch.asarray(p) @ loss(logits.expand(len(p), -1), torch.arange(len(p)))
        value.backward()
        return value.item(), logits.grad.numpy()[:-1]

    start = np.zeros(len(p) - 1)
    found = minimize(risk, start, jac=True, method="BFGS", options={"gtol": 1e-9})
    return np.exp(log_softmax(np.append(found.x, 0.0)))


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [0.5, 1.0, 3.0, 7.0])
@pytest.mark.parametrize("n_classes", [2, 3, pytest.param(5, marks=pytest.mark.long)])
def test_the_proper_part_is_proper_and_focal_loss_is_not(n_classes, gamma):
    rng = np.random.default_rng(n_classes)
    for p in rng.dirichlet(np.full(n_classes, 2.0), size=3):
        proper = partial(losses.proper_focal, gamma=gamma)
        np.testing.assert_allclose(minimiser(p, proper), p, atol=1e-6)
        focal = partial(losses.focal, gamma=gamma)
        q = focal_minimizer(p, gamma)
        np.testing.assert_allclose(minimiser(p, focal), q, atol=1e-6)
        assert np.abs(q - p).max() > 1e-3
        assert conditional_risk(p, q, focal) < conditional_risk(p, p, focal)
        assert conditional_risk(p, p, proper) < conditional_risk(p, q, proper)


def test_unknown_reductions_are_refused(sample):
    with pytest.raises(ValueError, match=r"The 'reduction' of brier must be one of 'none', 'mean', 'sum'. Got 'max'"):
        losses.brier(*sample, reduction="max")


@pytest.mark.parametrize("loss", [losses.focal, losses.proper_focal])
def test_a_large_gamma_in_single_precision_spoils_no_gradient(loss):
    """What the branch that is not taken computes must stay finite too: exp(γ) overflows at γ = 100."""
    logits = torch.tensor([[3.0, 0.0, -1.0], [0.0, 2.0, 0.5]], requires_grad=True)
    loss(logits, torch.tensor([0, 2]), 100.0).sum().backward()
    assert torch.isfinite(logits.grad).all()


X, Y = np.array([[0.5, 0.2, -0.3], [2.0, 0.0, 1.0]]), np.array([0, 1])
GAMMAS = {
    "maps.focal": lambda g: maps.focal(X, g),
    "maps.focal_temperature": lambda g: maps.focal_temperature(X, g, 2.0),
    "maps.inverse_focal": lambda g: maps.inverse_focal(X, g),
    "maps.label_derivatives": lambda g: maps.label_derivatives(X, Y, g, 2.0).log_p,
    "losses.focal": lambda g: losses.focal(X, Y, g),
    "losses.proper_focal": lambda g: losses.proper_focal(X, Y, g),
    "gamma_below": lambda g: losses.sample_dependent_focal(X, Y, gamma_below=g),
    "gamma_above": lambda g: losses.sample_dependent_focal(X, Y, gamma_above=g),
}
ABOVE_ZERO = {
    "maps.log_softmax": lambda t: maps.log_softmax(X, t),
    "maps.focal_temperature": lambda t: maps.focal_temperature(X, 1.0, t),
    "maps.label_derivatives": lambda t: maps.label_derivatives(X, Y, 1.0, t).log_p,
    "threshold": lambda t: losses.sample_dependent_focal(X, Y, threshold=t),
}


@pytest.mark.parametrize("name", GAMMAS)
def test_every_gamma_above_minus_one_and_no_other(name):
    assert np.isfinite(GAMMAS[name](np.nextafter(-1.0, 0.0) + 1e-3)).all()
    for bad in (-1.0, -1.5, np.nan, np.inf):
        with pytest.raises(ParameterError, match="finite and greater than -1"):
            GAMMAS[name](bad)


@pytest.mark.parametrize("name", ABOVE_ZERO)
def test_every_temperature_and_threshold_above_zero_and_no_other(name):
    assert np.isfinite(ABOVE_ZERO[name](0.25)).all()
    for bad in (0.0, -0.5, np.nan, np.inf):
        with pytest.raises(ParameterError, match="finite and greater than 0"):
            ABOVE_ZERO[name](bad)
