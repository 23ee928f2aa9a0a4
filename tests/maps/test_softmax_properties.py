"""What must hold of the maps for any logits; and every array library gives what NumPy gives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from array_libraries import MAKE
from helpers import to_numpy
from refocal.errors import ConvergenceError
from refocal.maps import focal, focal_temperature, inverse_focal, log_softmax, softmax

pytestmark = [pytest.mark.core, pytest.mark.numerics]

quiet = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
any_logits = arrays(
    np.float64,
    st.sampled_from([(3, 5), (2, 2, 4)]),  # few shapes: JAX compiles every operation anew for each
    elements=st.floats(-1e4, 1e4) | st.sampled_from([0.0, 1.0, -700.0]),
)
any_gamma = st.floats(-0.95, 100.0)
any_temperature = st.floats(1e-2, 100.0)


@pytest.fixture(params=["numpy", "torch"])
def quick_library(request):
    """Those that do not compile every operation for every shape; the others are compared with NumPy below."""
    return MAKE[request.param]


@quiet
@given(logits=any_logits, gamma=any_gamma, temperature=any_temperature)
def test_rows_sum_to_one_and_the_top_stays_the_top(quick_library, logits, gamma, temperature):
    log_p = to_numpy(focal_temperature(quick_library(logits), gamma, temperature))
    np.testing.assert_allclose(np.exp(log_p).sum(axis=-1), 1.0, rtol=0.0, atol=1e-14)
    top = np.argmax(logits, axis=-1)[..., None]
    np.testing.assert_array_equal(np.take_along_axis(log_p, top, axis=-1)[..., 0], log_p.max(axis=-1))
    tied = logits == logits.max(axis=-1, keepdims=True)
    assert np.all(log_p[tied] == np.broadcast_to(log_p.max(axis=-1, keepdims=True), log_p.shape)[tied])


@quiet
@given(logits=any_logits, temperature=any_temperature)
def test_gamma_zero_is_the_identity(quick_library, logits, temperature):
    x = quick_library(logits)
    np.testing.assert_array_equal(
        to_numpy(focal_temperature(x, 0.0, temperature)), to_numpy(log_softmax(x, temperature))
    )


@quiet
@given(logits=any_logits, gamma=any_gamma, shift=st.integers(-1000, 1000))
def test_a_common_shift_changes_nothing(quick_library, logits, gamma, shift):
    logits = np.round(logits * 1024) / 1024  # so that the shifted logits are exact
    a = to_numpy(focal(quick_library(logits), gamma))
    b = to_numpy(focal(quick_library(logits + shift), gamma))
    np.testing.assert_array_equal(a, b)


@quiet
@given(s=st.floats(-30, 30), gamma=st.floats(0.0, 20.0))
def test_two_classes_follow_the_papers_binary_formula(quick_library, s, gamma):
    q, not_q = 1 / (1 + np.exp(-s)), 1 / (1 + np.exp(s))
    log_q, log_not_q = -np.log1p(np.exp(-s)), -np.log1p(np.exp(s))
    ratio = (not_q / q) ** gamma * (not_q - gamma * q * log_q) / (q - gamma * not_q * log_not_q)
    log_p = to_numpy(focal(quick_library(np.array([s, 0.0])), gamma))
    np.testing.assert_allclose(np.exp(log_p), [1 / (1 + ratio), ratio / (1 + ratio)], rtol=1e-12, atol=1e-300)


@pytest.mark.slow
@quiet
@given(logits=any_logits, gamma=st.floats(-0.95, 20.0))
def test_the_inverse_is_the_inverse(quick_library, logits, gamma):
    x = quick_library(logits)
    back = to_numpy(inverse_focal(focal(x, gamma), gamma))
    np.testing.assert_allclose(np.exp(back), np.exp(to_numpy(log_softmax(x))), rtol=0.0, atol=1e-10)


@given(logits=any_logits, gamma=any_gamma)
def test_the_order_of_all_classes_is_kept(logits, gamma):
    log_p = focal(logits, gamma)
    order = np.argsort(logits, axis=-1)
    assert np.all(np.diff(np.take_along_axis(log_p, order, axis=-1), axis=-1) >= -1e-9 * (1 + abs(log_p.min())))


@pytest.mark.slow
def test_libraries_agree_with_numpy(library):
    rng = np.random.default_rng(0)
    scales = np.array([0.0, 1e-6, 1.0, 10.0, 100.0, 1e3, 1e4])[:, None, None]
    logits = scales * rng.normal(size=(7, 5, 4))
    logits[:, 1] = np.round(logits[:, 1])  # ties
    logits[:, 2, 0] = -np.inf
    x = library(logits)
    for gamma in (-0.9, 0.0, 0.5, 3.0, 50.0):
        result = focal_temperature(x, gamma, 2.0)
        assert type(result) is type(x)
        np.testing.assert_allclose(to_numpy(result), focal_temperature(logits, gamma, 2.0), rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(
            to_numpy(inverse_focal(x, gamma)), inverse_focal(logits, gamma), rtol=1e-11, atol=1e-12
        )
    np.testing.assert_array_equal(to_numpy(focal_temperature(x, 0.0, 2.0)), to_numpy(log_softmax(x, 2.0)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "half", [np.zeros(3, np.float16), torch.zeros(3, dtype=torch.bfloat16), jnp.zeros(3, jnp.bfloat16)], ids=str
)
@pytest.mark.parametrize(
    "function",
    [log_softmax, lambda x: focal(x, 1.0), lambda x: focal_temperature(x, 1.0, 2.0), lambda x: inverse_focal(x, 1.0)],
)
def test_half_precision_is_computed_in_single_and_comes_back_as_it_was(half, function):
    result = function(half)
    assert result.dtype == half.dtype
    assert type(result) is type(half)
    np.testing.assert_allclose(np.asarray(result.tolist(), np.float64), -np.log(3.0), atol=2**-8)


def test_half_precision_keeps_what_single_precision_gives():
    logits = np.random.default_rng(1).normal(scale=8.0, size=(50, 10)).astype(np.float16)
    expected = focal(logits.astype(np.float32), 3.0).astype(np.float16)
    np.testing.assert_array_equal(focal(logits, 3.0), expected)


def test_layout_does_not_matter_and_inputs_stay_as_they_were():
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(6, 8))
    expected = focal_temperature(logits, 2.0, 1.5)
    for same in (
        np.asfortranarray(logits),
        logits.astype(">f8"),
        np.repeat(logits, 2, axis=1)[:, ::2],
        logits.tolist(),
    ):
        np.testing.assert_array_equal(focal_temperature(same, 2.0, 1.5), expected)
    before = logits.copy()
    logits.setflags(write=False)
    inverse_focal(focal(log_softmax(logits), 2.0), 2.0)
    np.testing.assert_array_equal(logits, before)
    np.testing.assert_array_equal(log_softmax(np.array([[3, 1]])), log_softmax(np.array([[3.0, 1.0]])))


@pytest.mark.slow
def test_gamma_and_temperature_may_differ_from_row_to_row(library):
    logits = np.random.default_rng(3).normal(scale=3.0, size=(4, 5))
    gammas, temperatures = np.array([-0.5, 0.0, 1.0, 5.0]), np.array([0.5, 1.0, 2.0, 4.0])
    together = to_numpy(focal_temperature(library(logits), library(gammas), library(temperatures)))
    back = to_numpy(inverse_focal(library(logits), library(gammas)))
    for i in range(4):
        np.testing.assert_allclose(together[i], focal_temperature(logits[i], gammas[i], temperatures[i]), rtol=1e-14)
        np.testing.assert_allclose(back[i], inverse_focal(logits[i], gammas[i]), rtol=1e-12)


def test_no_rows_are_no_error():
    assert focal(np.zeros((0, 3)), 1.0).shape == (0, 3)
    assert inverse_focal(np.zeros((2, 0, 3)), 1.0).shape == (2, 0, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [lambda x, g: log_softmax(x, 1.0 + g), focal, lambda x, g: focal_temperature(x, g, 1.7), inverse_focal],
    ids=["log_softmax", "focal", "focal_temperature", "inverse_focal"],
)
def test_jax_compiles_and_differentiates(function):
    logits = np.random.default_rng(4).normal(scale=5.0, size=(6, 4))
    weights = np.arange(24.0).reshape(6, 4) / 24.0

    def total(x, g):
        values = function(x, g)
        return jnp.sum(weights * values), values

    gradients, values = jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))(jnp.asarray(logits), 1.3)
    np.testing.assert_allclose(values, function(logits, 1.3), atol=1e-12)
    x = torch.tensor(logits, requires_grad=True)
    g = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    (torch.as_tensor(weights) * function(x, g)).sum().backward()
    for ours, other in zip(gradients, (x.grad, g.grad), strict=True):
        np.testing.assert_allclose(ours, other.numpy(), atol=1e-10)


@pytest.mark.long
def test_jax_differentiates_without_compilation():
    logits = jnp.asarray([[1.0, 0.5, -2.0]])
    direct, compiled = (
        jax.grad(lambda x: focal(x, 1.3)[0, 1])(logits),
        jax.jit(jax.grad(lambda x: focal(x, 1.3)[0, 1]))(logits),
    )
    np.testing.assert_allclose(direct, compiled, atol=1e-12)


@pytest.mark.parametrize("gamma", [-0.5, 0.5, 2.0, 20.0])
def test_ties_and_neighbours_on_top_keep_their_order_to_the_last_bit(gamma):
    rng = np.random.default_rng(5)
    for n_classes in (2, 4):
        logits = rng.normal(size=(2000, n_classes)) * rng.choice([0.1, 1.0, 5.0], size=(2000, 1))
        logits[:, 2:] = logits[:, :1] - np.abs(logits[:, 2:])  # the two lie on top
        for at, same in ((logits.copy(), True), (logits.copy(), False)):
            at[:, 1] = at[:, 0] if same else np.nextafter(at[:, 0], np.inf)
            log_p = focal(at, gamma)
            assert np.all((log_p[:, 1] == log_p[:, 0]) if same else (log_p[:, 1] >= log_p[:, 0]))
            np.testing.assert_allclose(log_p[:, 1], log_p[:, 0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("gamma", [softmax.MADE_FOR[0], -0.9, 0.5, 3.0, 30.0, softmax.MADE_FOR[1]])
def test_the_inverse_takes_few_steps(gamma, monkeypatch):
    """From its starting point Newton's method converges quickly, whatever the scale and the precision."""
    steps, newton = [], softmax._newton
    monkeypatch.setattr(softmax, "_newton", lambda *arguments: steps.append(1) or newton(*arguments))
    rng = np.random.default_rng(0)
    taken = {}
    for n_classes in (2, 10, 1000):
        for scale in (0.03, 1.0, 3.0, 10.0, 100.0, 1e4):
            for dtype in (np.float64, np.float32):
                steps.clear()
                inverse_focal((scale * rng.normal(size=(20, n_classes))).astype(dtype), gamma)
                taken[n_classes, scale, dtype] = len(steps)
    assert max(taken.values()) <= (9 if gamma <= 3.0 else 18)
    assert np.mean(list(taken.values())) <= (6.0 if gamma <= 3.0 else 9.0)


@pytest.mark.slow
def test_the_inverse_of_an_absurd_gamma_is_an_error_or_in_traced_code_nan():
    many = 100.0 * np.random.default_rng(0).normal(size=(20, 1000))
    with pytest.raises(ConvergenceError, match=r"known to do for γ from -0.99 to 200\. Got γ from 10000 to 10000"):
        inverse_focal(many, 1e4)
    found = np.asarray(jax.jit(inverse_focal, static_argnums=1)(many, 1e4))
    broken = np.isnan(found).any(axis=1)
    assert broken.any()
    back = np.asarray(focal(found[~broken], 1e4))  # what is not NaN is right
    np.testing.assert_allclose(np.exp(back), np.exp(log_softmax(many[~broken])), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("far", [1e4, 1e9, 1e20, 3e38])
@pytest.mark.parametrize("gamma", [-0.9, 0.5, 2.0, 100.0])
def test_far_below_the_top_nothing_is_lost(far, gamma, dtype):
    """A mask of finite logits is one of infinite ones, also where it leaves a single class."""
    rows = np.array([[0.0, -far, -far], [2.0, 1.0, -far], [-far, 0.5, 1.0], [0.0, -far, -0.5 * far]], dtype=dtype)
    without = np.where(rows < -1e3, -np.inf, rows).astype(dtype)
    for function in (focal, inverse_focal):
        found = function(rows, gamma)
        assert not np.isnan(found).any()  # a logarithm that no float32 can hold is -inf
        np.testing.assert_allclose(np.exp(found), np.exp(function(without, gamma)), atol=1e-6)
