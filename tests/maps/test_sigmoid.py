"""The maps of focal loss in practice: class weights, α, sigmoids, asymmetric loss, label smoothing."""

from __future__ import annotations

import jax
import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, logit, softmax
from torch.autograd import gradcheck

from array_libraries import MAKE
from helpers import to_numpy
from refocal.errors import DataError, ParameterError, ShapeError
from refocal.maps import (
    asymmetric_focal,
    focal,
    focal_temperature,
    inverse_focal,
    inverse_sigmoid_focal,
    log_softmax,
    sigmoid_focal,
    sigmoid_unsmooth,
    unsmooth,
)

pytestmark = pytest.mark.numerics

GAMMAS = np.array([-0.9, -0.5, -1e-9, 0.0, 0.05, 1.0, 2.0, 5.0, 50.0])
SCORES = np.array([0.0, 1e-12, 1e-5, 0.1, 0.7, 1.0, 5.0, 11.0, 13.0, 37.0, 100.0, 700.0, 746.0, 3000.0, 5000.0])
SCORES = np.concatenate([-SCORES[:0:-1], SCORES])


def softmax_minimiser(p, gamma, weight, smoothing):
    """The log q at which Σ t_k w_k FL_k(q) is smallest, t the smoothed p; by BFGS on the gradient of the plain loss."""
    target = torch.tensor(((1 - smoothing) * p + smoothing / len(p)) * weight)

    def loss_and_gradient(x):
        logits = torch.tensor(x, requires_grad=True)
        q = torch.softmax(logits, dim=0)
        loss = (target * -((1 - q) ** gamma) * q.log()).sum()
        return loss.item(), torch.autograd.grad(loss, logits)[0].numpy()

    return minimize(loss_and_gradient, np.zeros(len(p)), jac=True, method="BFGS", options={"gtol": 1e-13}).x


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    n_classes=st.integers(2, 6),
    gamma=st.floats(-0.5, 6.0),
    smoothing=st.sampled_from([0.0, 0.05, 0.1, 0.3]),
)
def test_the_softmax_map_inverts_the_minimiser(seed, n_classes, gamma, smoothing):
    rng = np.random.default_rng(seed)
    p, weight = rng.dirichlet(np.full(n_classes, 2.0)), np.exp(rng.normal(size=n_classes))
    log_q = softmax_minimiser(p, gamma, weight, smoothing)
    found = np.exp(unsmooth(focal(log_q, gamma, class_weight=weight), smoothing))
    np.testing.assert_allclose(found, p, rtol=0.0, atol=1e-6)
    smoothed = np.log((1 - smoothing) * p + smoothing / n_classes)
    back = np.exp(inverse_focal(smoothed, gamma, class_weight=weight))
    np.testing.assert_allclose(back, softmax(log_q), rtol=0.0, atol=1e-6)


def sigmoid_minimiser(expected_loss, n):
    """The s at which each of n expected losses is smallest, by bisection on the sign of its slope."""
    low, high = torch.full((n,), -60.0, dtype=torch.float64), torch.full((n,), 60.0, dtype=torch.float64)
    for _ in range(60):
        middle = ((low + high) / 2).requires_grad_()
        (slope,) = torch.autograd.grad(expected_loss(middle).sum(), middle)
        middle = middle.detach()
        low, high = torch.where(slope < 0, middle, low), torch.where(slope < 0, high, middle)
    return low.numpy()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_sigmoid_map_inverts_the_minimiser(smoothing):
    rng = np.random.default_rng(0)
    n = 500
    p, gamma, alpha = rng.beta(0.7, 0.7, n).clip(1e-4, 1 - 1e-4), rng.uniform(-0.5, 8.0, n), rng.uniform(0.02, 0.98, n)
    target, g, a = (torch.tensor(each) for each in ((1 - smoothing) * p + smoothing / 2, gamma, alpha))

    def expected_loss(s):
        q = torch.sigmoid(s)
        positive = -a * (1 - q) ** g * torch.nn.functional.logsigmoid(s)
        negative = -(1 - a) * q**g * torch.nn.functional.logsigmoid(-s)
        return target * positive + (1 - target) * negative

    s = sigmoid_minimiser(expected_loss, n)
    found = expit(sigmoid_unsmooth(sigmoid_focal(s, gamma, alpha), smoothing))
    np.testing.assert_allclose(found, p, rtol=0.0, atol=1e-6)
    back = inverse_sigmoid_focal(logit(target.numpy()), gamma, alpha)
    np.testing.assert_allclose(expit(back), expit(s), rtol=0.0, atol=1e-6)


def test_the_asymmetric_map_inverts_the_minimiser():
    rng = np.random.default_rng(1)
    n = 500
    p = rng.uniform(0.01, 0.9, n)
    positive, negative = rng.uniform(0.0, 3.0, n), rng.uniform(0.5, 6.0, n)
    margin = np.where(rng.random(n) < 0.5, 0.0, rng.uniform(0.0, 0.2, n))
    t, up, down, m = (torch.tensor(each) for each in (p, positive, negative, margin))

    def expected_loss(s):
        q = torch.sigmoid(s)
        u = (q - m).clamp(min=0.0)
        return t * -((1 - q) ** up) * q.log() + (1 - t) * -(u**down) * (1 - u).log()

    s = sigmoid_minimiser(expected_loss, n)
    found = expit(asymmetric_focal(s, gamma_positive=positive, gamma_negative=negative, margin=margin))
    np.testing.assert_allclose(found, p, rtol=0.0, atol=1e-6)


def test_asymmetric_loss_with_one_gamma_is_focal_loss():
    for gamma in (0.0, 0.5, 2.0):
        asymmetric = asymmetric_focal(SCORES, gamma_positive=gamma, gamma_negative=gamma)
        np.testing.assert_allclose(asymmetric, sigmoid_focal(SCORES, gamma), rtol=1e-13, atol=1e-13)
    assert np.isneginf(asymmetric_focal(logit([0.04]), gamma_positive=0.0, gamma_negative=4.0, margin=0.05))
    np.testing.assert_array_equal(
        asymmetric_focal([-np.inf, np.inf], gamma_positive=0.0, gamma_negative=4.0), [-np.inf, np.inf]
    )


def test_figures_of_a_detector_and_of_the_place_of_the_weights():
    """γ = 2, α = 0.25: the shift stands behind the map; before it, another and wrong result comes."""
    np.testing.assert_allclose(expit(sigmoid_focal(logit([0.3, 0.4, 0.5, 0.6]), 2.0, 0.25)), [0.24, 0.5, 0.75, 0.9],
                               atol=0.005)  # fmt: skip
    log_q, weight = np.log([0.6, 0.4]), np.array([0.75, 0.25])
    assert np.exp(focal(log_q, 2.0, class_weight=weight))[1] == pytest.approx(0.503, abs=5e-4)
    assert np.exp(focal(log_q - np.log(weight), 2.0))[1] == pytest.approx(0.865, abs=5e-4)


def exact_sigmoid_focal(s, gamma, alpha):
    """η = log(|L₋'| / |L₊'|) of the two halves of the loss, in arbitrary precision."""
    with mp.workdps(60):
        s, gamma, alpha = mp.mpf(s), mp.mpf(gamma), mp.mpf(alpha)
        log_q, log_not_q = -mp.log1p(mp.exp(-s)), -mp.log1p(mp.exp(s))
        h, h_not = -log_q * mp.exp(s), -log_not_q * mp.exp(-s)
        slope = mp.log(alpha) + gamma * log_not_q - log_q + mp.log1p(gamma * h)
        slope_not = mp.log1p(-alpha) + gamma * log_q - log_not_q + mp.log1p(gamma * h_not)
        return float(slope_not - slope)


@pytest.mark.parametrize("alpha", [0.5, 0.25, 0.999])
def test_the_sigmoid_pair_agrees_with_arbitrary_precision(alpha):
    want = np.array([[exact_sigmoid_focal(s, gamma, alpha) for s in SCORES] for gamma in GAMMAS])
    s, gamma = np.broadcast_to(SCORES, want.shape), GAMMAS[:, None]
    np.testing.assert_allclose(sigmoid_focal(s, gamma, alpha), want, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(inverse_sigmoid_focal(want, gamma, alpha), s, rtol=1e-12, atol=1e-12)
    single = sigmoid_focal(s.astype(np.float32), gamma, alpha)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, want, rtol=1e-5, atol=1e-4)


def test_two_columns_and_a_sigmoid_are_the_same_map():
    columns = np.stack([np.zeros_like(SCORES), SCORES], axis=-1)
    for gamma, alpha in ((-0.5, 0.3), (2.0, 0.25), (20.0, 0.9)):
        log_p = focal(columns, gamma, class_weight=[1 - alpha, alpha])
        np.testing.assert_allclose(sigmoid_focal(SCORES, gamma, alpha), log_p[:, 1] - log_p[:, 0], rtol=1e-12,
                                   atol=1e-12)  # fmt: skip


def test_weights_are_taken_out_behind_temperature_and_map():
    rng = np.random.default_rng(2)
    logits, weight = 3.0 * rng.normal(size=(4, 5)), np.exp(rng.normal(size=5))
    behind = log_softmax(focal_temperature(logits, 1.5, 0.7) - np.log(weight))
    np.testing.assert_allclose(focal_temperature(logits, 1.5, 0.7, class_weight=weight), behind, rtol=1e-13)
    back = inverse_focal(focal(logits, 1.5, class_weight=weight), 1.5, class_weight=weight)
    np.testing.assert_allclose(back, log_softmax(logits), rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(focal(logits, 1.5, class_weight=np.ones(5)), focal(logits, 1.5))


def test_gamma_and_alpha_for_each_label_and_any_shape():
    rng = np.random.default_rng(3)
    s, gamma, alpha = rng.normal(size=(2, 3, 4)), rng.uniform(0, 5, 4), rng.uniform(0.1, 0.9, 4)
    together = sigmoid_focal(s, gamma, alpha)
    for k in range(4):
        np.testing.assert_array_equal(together[..., k], sigmoid_focal(s[..., k], gamma[k], alpha[k]))
    np.testing.assert_allclose(inverse_sigmoid_focal(together, gamma, alpha), s, rtol=1e-12, atol=1e-12)
    assert sigmoid_focal(0.3, 2.0).shape == ()
    np.testing.assert_array_equal(sigmoid_focal([-np.inf, np.inf], 2.0, 0.25), [-np.inf, np.inf])
    np.testing.assert_array_equal(inverse_sigmoid_focal([-np.inf, np.inf], 2.0, 0.25), [-np.inf, np.inf])


def test_smoothing_is_undone_where_it_can_be():
    log_u = np.log([[0.02, 0.08, 0.9], [1 / 3, 1 / 3, 1 / 3]])
    p = np.exp(unsmooth(log_u, 0.09))
    np.testing.assert_allclose(p, [[0.0, 0.05 / 0.92, 0.87 / 0.92], [1 / 3, 1 / 3, 1 / 3]], rtol=1e-12)
    np.testing.assert_array_equal(unsmooth(log_u, 0.0), log_softmax(log_u))
    np.testing.assert_array_equal(sigmoid_unsmooth(logit([0.04, 0.97]), 0.1), [-np.inf, np.inf])
    np.testing.assert_allclose(sigmoid_unsmooth(SCORES, 0.0), SCORES, rtol=1e-13, atol=1e-13)


FUNCTIONS = {
    "sigmoid_focal": lambda s: sigmoid_focal(s, 2.0, 0.25),
    "inverse_sigmoid_focal": lambda s: inverse_sigmoid_focal(s, 2.0, 0.25),
    "asymmetric_focal": lambda s: asymmetric_focal(s, gamma_positive=1.0, gamma_negative=4.0, margin=0.05),
    "sigmoid_unsmooth": lambda s: sigmoid_unsmooth(s, 0.1),
    "focal": lambda s: focal(s, 2.0, class_weight=[1.0, 3.0, 0.5]),
    "inverse_focal": lambda s: inverse_focal(s, 2.0, class_weight=[1.0, 3.0, 0.5]),
    "unsmooth": lambda s: unsmooth(s, 0.1),
}
ROWS = np.concatenate([[[0.0, 0.0, 0.0], [700.0, -700.0, 20.0], [5000.0, -5000.0, 1e-9]],
                       2.0 * np.random.default_rng(4).normal(size=(4, 3))])  # fmt: skip


IN_JAX = [  # which compiles every operation: those with a search or rows of classes take seconds
    pytest.param(name, marks=() if name in ("sigmoid_focal", "asymmetric_focal") else pytest.mark.long)
    for name in FUNCTIONS
]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("library", ["torch", "array_api_strict"])
def test_every_library_gives_what_numpy_gives(name, library):
    found = to_numpy(FUNCTIONS[name](MAKE[library](ROWS)))
    np.testing.assert_allclose(found, FUNCTIONS[name](ROWS), rtol=1e-12, atol=1e-12)


def torch_gradient(name):
    """The gradient of the sum of a function's finite values, and where they are finite."""
    x = torch.tensor(ROWS, requires_grad=True)
    result = FUNCTIONS[name](x)
    finite = torch.isfinite(result)
    result[finite].sum().backward()
    return x.grad.numpy(), finite.numpy()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_finite_everywhere(name):
    assert np.isfinite(torch_gradient(name)[0]).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_JAX)
def test_jax_agrees_in_values_and_gradients(name):
    gradient, finite = torch_gradient(name)

    def total(values):
        found = FUNCTIONS[name](values)
        return jax.numpy.where(finite, found, 0.0).sum(), found

    found_gradient, found = jax.grad(total, has_aux=True)(jax.numpy.asarray(ROWS))
    np.testing.assert_allclose(found, FUNCTIONS[name](ROWS), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found_gradient, gradient, rtol=1e-9, atol=1e-12)


def test_gradients_match_finite_differences():
    def tensor(values):
        return torch.tensor(values, dtype=torch.float64, requires_grad=True)

    s = tensor([-30.0, -3.0, -0.5, 0.0, 0.2, 2.0, 9.0])
    for function in (sigmoid_focal, inverse_sigmoid_focal):
        assert gradcheck(function, (s, tensor(1.7), tensor(0.3)), atol=1e-7, rtol=1e-5)
        assert gradcheck(function, (s, tensor(-0.6), tensor(0.8)), atol=1e-7, rtol=1e-5)

    def asymmetric(scores, positive, negative, margin):
        return asymmetric_focal(scores, gamma_positive=positive, gamma_negative=negative, margin=margin)

    assert gradcheck(asymmetric, (s[2:], tensor(1.2), tensor(3.3), tensor(0.05)), atol=1e-7, rtol=1e-5)
    rows, weight = tensor([[0.0, 1.0, -2.0], [0.5, 0.5, 3.0]]), tensor([1.0, 2.0, 0.3])
    assert gradcheck(lambda x, w: focal(x, 2.0, class_weight=w), (rows, weight))
    assert gradcheck(lambda x, w: inverse_focal(x, 2.0, class_weight=w), (rows, weight), atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ParameterError, "'alpha' of sigmoid_focal must be finite and greater than 0 and less than 1. Got 1.0",
         lambda: sigmoid_focal([0.0], 2.0, 1.0)),
        (ParameterError, "'gamma' of inverse_sigmoid_focal must be finite and greater than -1",
         lambda: inverse_sigmoid_focal([0.0], -1.0)),
        (ParameterError, "'gamma_negative' of asymmetric_focal must be finite and at least 0",
         lambda: asymmetric_focal([0.0], gamma_positive=0.0, gamma_negative=-0.5)),
        (ShapeError, r"'gamma' of sigmoid_focal must be a number or an array that broadcasts to shape \(2,\)",
         lambda: sigmoid_focal([0.0, 1.0], [1.0, 2.0, 3.0])),
        (ParameterError, r"'class_weight' of focal must be of shape \(2,\), one factor for each class. Got shape",
         lambda: focal([0.0, 1.0], 2.0, class_weight=[1.0, 2.0, 3.0])),
        (ParameterError, "'class_weight' of focal must be finite and greater than 0. Got 0.0",
         lambda: focal([0.0, 1.0], 2.0, class_weight=[1.0, 0.0])),
        (ParameterError, "'class_weight' of inverse_focal must be an array of numbers, all of them finite",
         lambda: inverse_focal([0.0, 1.0], 2.0, class_weight="balanced")),
        (DataError, "'log_odds' of sigmoid_focal must be free of NaN", lambda: sigmoid_focal([np.nan], 2.0)),
        (ParameterError, "'label_smoothing' of unsmooth must be a finite number at least 0 and less than 1",
         lambda: unsmooth([0.0, 1.0], 1.0)),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_its_reason(error, message, call):
    with pytest.raises(error, match=message):
        call()
