"""Gradients of the maps, and the derivatives that the searches use."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

import reference
from helpers import to_numpy
from refocal._arrays import namespace
from refocal.maps import focal, focal_temperature, inverse_focal, label_derivatives, log_softmax
from refocal.maps.row import log1p_ratio

pytestmark = [pytest.mark.core, pytest.mark.numerics]


def tensor(a):
    return torch.tensor(a, dtype=torch.float64, requires_grad=True)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [-0.5, 0.05, 0.5, 1.0, 5.0])
@pytest.mark.parametrize("function", [focal, inverse_focal, lambda x, g: focal_temperature(x, g, 0.7 + g**2)])
def test_gradients_match_finite_differences(function, gamma):
    rng = np.random.default_rng(0)
    ties = [[0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 2.0, -1.0]]
    logits = tensor(np.concatenate([rng.normal(scale=2.0, size=(5, 4)), ties]))
    assert gradcheck(function, (logits, tensor(gamma)), atol=1e-7, rtol=1e-5)


def test_log_softmax_gradient_matches_finite_differences():
    logits = tensor(np.random.default_rng(1).normal(scale=3.0, size=(3, 4)))
    assert gradcheck(lambda x, t: log_softmax(x, t), (logits, tensor(1.7)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("gamma", [-0.9, 0.05, 0.5, 1.0, 5.0])
@pytest.mark.parametrize("function", [focal, inverse_focal])
def test_gradients_stay_finite_where_probabilities_saturate(function, gamma, dtype):
    rows = [[200.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, -200.0], [1e4, 0.0, -1e4], [0.0, -torch.inf, 1.0]]
    logits = torch.tensor(rows, dtype=dtype, requires_grad=True)
    g = torch.tensor(gamma, dtype=dtype, requires_grad=True)
    result = function(logits, g)
    result[torch.isfinite(result)].sum().backward()
    assert torch.isfinite(logits.grad).all()
    assert torch.isfinite(g.grad)


def reference_derivatives(row, label, gamma, slope):
    def log_p(g, b):
        return reference.focal_temperature(row, g, 1 / b)[label]

    with mp.workdps(reference.DIGITS):
        orders = [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)]
        return [float(mp.diff(log_p, (mp.mpf(gamma), mp.mpf(slope)), n)) for n in orders]


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [-0.9, -0.25, 0.0, 0.5, 5.0, 50.0])
@pytest.mark.parametrize(
    "gap",
    [0.0, pytest.param(0.5, marks=pytest.mark.long), 3.0, pytest.param(30.0, marks=pytest.mark.long), 300.0, 2000.0],
)
def test_label_derivatives_agree_with_arbitrary_precision(gap, gamma):
    rows = np.array([[gap, 0.0, -0.3 * gap], [gap, gap, -1.0 - gap], [0.1, -gap, 0.0]])
    for slope in (0.3, 1.0):
        for row in rows:
            for label in range(3):
                got = label_derivatives(row[None], np.array([label]), gamma, 1 / slope)
                value, g, b, gg, gb, bb = reference_derivatives(row, label, gamma, slope)
                scale = 1.0 + gap
                np.testing.assert_allclose(got.log_p[0], value, rtol=1e-12, atol=1e-12)
                np.testing.assert_allclose(got.gradient[0], [g, b], rtol=1e-10, atol=1e-12 * scale)
                np.testing.assert_allclose(got.hessian[0], [[gg, gb], [gb, bb]], rtol=1e-9, atol=1e-11 * scale**2)


@pytest.mark.slow
def test_label_derivatives_agree_with_automatic_differentiation(library):
    rng = np.random.default_rng(3)
    logits, labels = rng.normal(scale=4.0, size=(2, 6, 20)), rng.integers(0, 20, size=(2, 6))
    gamma, slope = 0.8, 0.6
    got = label_derivatives(library(logits), library(labels), gamma, 1 / slope)

    def total(parameters):
        log_p = focal_temperature(torch.tensor(logits), parameters[0], 1 / parameters[1])
        return torch.take_along_dim(log_p, torch.tensor(labels)[..., None], dim=-1).sum()

    parameters = torch.tensor([gamma, slope], dtype=torch.float64)
    np.testing.assert_allclose(to_numpy(got.log_p).sum(), total(parameters), rtol=1e-12)
    gradient = torch.autograd.functional.jacobian(total, parameters)
    np.testing.assert_allclose(to_numpy(got.gradient).sum((0, 1)), gradient, rtol=1e-10)
    hessian = torch.autograd.functional.hessian(total, parameters)
    np.testing.assert_allclose(to_numpy(got.hessian).sum((0, 1)), hessian, rtol=1e-10)


def test_label_derivatives_of_impossible_classes():
    logits = np.array([[0.0, -np.inf, 1.0], [-np.inf, 2.0, -np.inf]])
    got = label_derivatives(logits, np.array([1, 1]), 0.5, 2.0)
    np.testing.assert_array_equal(got.log_p, [-np.inf, 0.0])
    np.testing.assert_array_equal(got.gradient, 0.0)
    np.testing.assert_array_equal(got.hessian, 0.0)
    seen = label_derivatives(logits[:1], np.array([0]), 0.5, 2.0)
    without = label_derivatives(logits[:1, [0, 2]], np.array([0]), 0.5, 2.0)
    for a, b in zip(seen, without, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_value_and_slope_of_log1p_ratio_hold_down_to_zero(dtype):
    """(r/(1+r) - log(1+r)) / r² loses every digit where r is small; the series takes over before."""
    r = torch.cat([torch.zeros(1), torch.logspace(-40, 2, 300)]).to(dtype).requires_grad_()
    value = log1p_ratio(namespace(r), r)
    (slope,) = torch.autograd.grad(value.sum(), r)
    exact = [mp.mpf(x) for x in r.tolist()]
    with mp.workdps(100):
        expected = [mp.log1p(x) / x if x else mp.mpf(1) for x in exact]
        slopes = [(x / (1 + x) - mp.log1p(x)) / x**2 if x else mp.mpf(-0.5) for x in exact]
    eps = torch.finfo(dtype).eps
    np.testing.assert_allclose(value.detach().numpy(), np.array(expected, dtype=float), rtol=4 * eps)
    np.testing.assert_allclose(slope.numpy(), np.array(slopes, dtype=float), rtol=20 * eps ** (2 / 3))
