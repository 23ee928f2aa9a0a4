"""The compiled passes against the same passes by array functions, and the build that makes them."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from refocal import FocalTemperatureScaling, TemperatureScaling
from refocal.calibrators.fitted import focal_point
from refocal.engine import Block, array_engine, c_engine

pytestmark = [pytest.mark.core, pytest.mark.numerics]

GAMMAS = (-0.9, -0.5, 0.0, 0.05, 1.0, 5.0, 30.0)
SLOPES = (1e-3, 0.3, 1.0, 4.0)
ROOT = Path(__file__).parents[2]


def random_rows(n_rows, n_classes, scale=3.0, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    logits = (scale * rng.normal(size=(n_rows, n_classes))).astype(dtype)
    return logits, rng.integers(n_classes, size=n_rows)


def by_arrays(function, x, *arguments):
    """The array functions, in float64 and without NumPy's warnings about log(0)."""
    with np.errstate(all="ignore"):
        return getattr(array_engine, function)(x.astype(np.float64), *arguments)


def assert_same_passes(x, y, weight, gamma, slope, rtol=1e-11):
    # A sum over rows is as exact as its largest terms: the tolerance is relative to what one row may contribute.
    scale = len(x) * max(1.0, float(np.ptp(x[np.isfinite(x)])))
    np.testing.assert_allclose(
        c_engine.temperature(x, y, weight, slope),
        by_arrays("temperature", x, y, weight, slope),
        rtol=rtol,
        atol=rtol * scale**2,
    )
    np.testing.assert_allclose(
        c_engine.focal(x, y, weight, gamma, slope),
        by_arrays("focal", x, y, weight, gamma, slope),
        rtol=rtol,
        atol=rtol * scale**2 * max(1.0, gamma) ** 2,
    )
    found, expected = c_engine.predict(x, y, (gamma, 0.0), slope), by_arrays("predict", x, y, (gamma, 0.0), slope)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-13)
    found, expected = c_engine.split(x, y, gamma, slope), by_arrays("split", x, y, gamma, slope)
    np.testing.assert_allclose(found, expected, rtol=100 * rtol, atol=100 * rtol * scale**2 * max(1.0, gamma) ** 2)
    correct, distance = c_engine.inspect(x, y)
    other_correct, other_distance = by_arrays("inspect", x, y)
    assert np.array_equal(correct, other_correct)
    assert distance == pytest.approx(float(other_distance), rel=1e-12)


def test_the_kernel_is_there():
    # Whoever runs these tests has a compiler: the Makefile's install would have said so.
    assert c_engine.is_compiled()


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("slope", SLOPES)
@pytest.mark.parametrize(("n_rows", "n_classes"), [(1, 2), (3, 2), (4, 3), (9, 10), (50, 101)])
def test_passes_agree(n_rows, n_classes, gamma, slope):
    x, y = random_rows(n_rows, n_classes)
    weight = np.random.default_rng(1).uniform(size=n_rows)
    assert_same_passes(x, y, None, gamma, slope)
    assert_same_passes(x, y, weight, gamma, slope)


@pytest.mark.parametrize("gamma", [-0.5, 0.0, 5.0])
def test_log_odds_beyond_single_precision_have_their_digits(gamma):
    """As on a GPU: next to 1 the rest of a probability is no number of single precision any more, its logarithm is."""
    gaps = np.array([60.0, 88.0, 95.0, 150.0, 2_000.0])
    x = np.stack([np.zeros(5), -gaps, -1.2 * gaps], axis=1).astype(np.float32)
    for label in range(3):
        y = np.full(5, label)
        expected = c_engine.split(x, y, gamma, 1.0)
        np.testing.assert_allclose(array_engine.split(x, y, gamma, 1.0), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("n_rows", "n_classes"), [(1, 2), (7, 3), (9, 10), (50, 101)])
def test_vector_scaling_agrees(n_rows, n_classes):
    x, y = random_rows(n_rows, n_classes, dtype=np.float32)
    rng = np.random.default_rng(1)
    parameters = np.concatenate([rng.uniform(0.5, 1.5, n_classes), rng.normal(size=n_classes)])
    for weight in (None, rng.uniform(size=n_rows)):
        expected = by_arrays("vector", x, y, weight, parameters)
        np.testing.assert_allclose(c_engine.vector(x, y, weight, parameters), expected, rtol=1e-11, atol=1e-12)
        scale = n_rows * np.abs(x).max() ** 2
        rough = c_engine.vector(x, y, weight, parameters, rough=True)
        np.testing.assert_allclose(rough, expected, rtol=1e-5, atol=1e-7 * scale)

    def loss(at):
        z = x.astype(np.float64) * at[:n_classes] + at[n_classes:]
        return float(np.sum(np.logaddexp.reduce(z, axis=1) - z[np.arange(n_rows), y]))

    found, step = c_engine.vector(x, y, None, parameters), 1e-3
    assert found[0] == pytest.approx(loss(parameters), rel=1e-12)
    for i in range(0, 2 * n_classes, max(1, n_classes // 3)):
        unit = step * (np.arange(2 * n_classes) == i)
        up, down = loss(parameters + unit), loss(parameters - unit)
        assert found[1 + i] == pytest.approx((up - down) / (2.0 * step), rel=1e-4, abs=1e-4)
        bend = found[1 + 2 * n_classes + i if i < n_classes else 1 + 3 * n_classes + i]
        assert bend == pytest.approx((up - 2.0 * loss(parameters) + down) / step**2, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, np.int8, np.int32, np.int64])
def test_every_dtype_is_computed_in_double(dtype):
    x, y = random_rows(37, 11, dtype=dtype)
    assert_same_passes(x, y, None, 1.5, 0.7)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("slope", SLOPES)
@pytest.mark.parametrize(("n_rows", "n_classes"), [(1, 2), (7, 3), (8, 8), (9, 10), (50, 101)])
def test_single_precision_gives_six_digits(n_rows, n_classes, gamma, slope):
    x, y = random_rows(n_rows, n_classes, dtype=np.float32)
    weight = np.random.default_rng(1).uniform(size=n_rows)
    scale = n_rows * float(np.ptp(x))
    for w in (None, weight):
        np.testing.assert_allclose(
            c_engine.temperature(x, y, w, slope, rough=True),
            c_engine.temperature(x, y, w, slope),
            rtol=1e-6,
            atol=1e-7 * scale,
        )
        np.testing.assert_allclose(
            c_engine.focal(x, y, w, gamma, slope, rough=True),
            c_engine.focal(x, y, w, gamma, slope),
            rtol=2e-6,
            atol=1e-6 * scale * max(1.0, gamma) / (1.0 + min(gamma, 0.0)) ** 2,
        )
    found, exact = (c_engine.predict(x, y, (gamma, 0.0), slope, rough=rough) for rough in (True, False))
    np.testing.assert_allclose(found[1:], exact[1:], rtol=0, atol=2e-6)
    np.testing.assert_allclose(found[0], exact[0], rtol=2e-6, atol=2e-6 * max(1.0, gamma))


def test_single_precision_keeps_what_rows_mean():
    inf = np.inf
    x = np.array(
        [[0.0, 0.0, 0.0], [5.0, 5.0, -inf], [700.0, -700.0, 0.0], [-inf, 2.0, -inf], [1e30, -1e30, 0.0]],
        dtype=np.float32,
    )
    y = np.array([1, 0, 0, 1, 0])
    for gamma in GAMMAS:
        for slope in SLOPES:
            found, exact = (c_engine.predict(x, y, (gamma, 0.0), slope, rough=rough) for rough in (True, False))
            np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-6)
    assert c_engine.temperature(x, np.array([0, 2, 0, 1, 0]), None, 1.0, rough=True)[0] == np.inf


@pytest.mark.slow
def test_a_rough_way_leads_to_the_same_end():
    x, y = random_rows(4000, 20, dtype=np.float32)
    y = np.argmax(x / 1.7 + np.random.default_rng(2).gumbel(size=x.shape), axis=1)
    for model in (TemperatureScaling(), FocalTemperatureScaling(objective="nll"), FocalTemperatureScaling()):
        in_double = focal_point(model.fit(x.astype(np.float64), y).chain_)
        assert focal_point(model.fit(x, y).chain_) == pytest.approx(in_double, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: np.asfortranarray(x),
        lambda x: x[::2],
        lambda x: x[:, ::2],
        lambda x: x[::-1, ::-1],
        lambda x: x.astype(x.dtype.newbyteorder()),
        lambda x: np.frombuffer(b"\0" + x.tobytes(), dtype=np.uint8)[1:].view(x.dtype).reshape(x.shape),
    ],
    ids=["Fortran", "every other row", "every other column", "backwards", "byte order", "unaligned"],
)
def test_any_layout_in_memory(view):
    x = view(random_rows(16, 8)[0])
    y = np.arange(len(x)) % x.shape[1]
    assert_same_passes(x, y, None, 1.0, 1.0)


def long_rows():
    """Rows of 3,000 classes that a condensed form must get right, with labels and weights, at T around 1."""
    rng = np.random.default_rng(3)
    x = (2.5 * rng.normal(size=(60, 3000))).astype(np.float32)
    x[10:20, :40] += 12.0  # many good classes
    x[20:30] *= 0.01  # all classes alike
    x[30:35, 5:] = -np.inf  # few that can occur
    x[35:40, 100] = x[35:40].max(axis=1) + 60.0  # one that is certain
    x[40:45, :2000] = 7.5  # ties, also at the top
    x[45:50, 10:] -= 1e6  # masked by numbers
    y = rng.integers(3000, size=60)
    y[30:35], y[45:50] = 3, 3
    y[50:] = x[50:].argmax(axis=1)
    return x, y, rng.uniform(0.5, 2.0, size=60)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("temperature", [0.3, 1.0, 6.0])
def test_condensed_rows_predict_what_all_classes_do(gamma, temperature):
    x, y, weight = long_rows()
    block, exact = Block(x, y, weight), Block(x.astype(np.float64), y, weight)
    short = block.condensed(1.0)
    assert short.n_rows == block.n_rows
    assert short.n_classes < 300
    possible = (np.sort(x, axis=1)[:, -2:-1] - x < 510.0).sum(axis=1)
    np.testing.assert_allclose(short.counts.sum(axis=1), possible, rtol=1e-6)
    assert np.array_equal(short.correct, block.correct)
    found, expected = (each.predictions((gamma,), temperature, rough=True)[0] for each in (short, exact))
    np.testing.assert_allclose(found.confidence, expected.confidence, atol=2e-5)
    np.testing.assert_allclose(found.squares, expected.squares, atol=2e-5)
    np.testing.assert_allclose(found.label_log_p, expected.label_log_p, rtol=1e-4, atol=1e-4)
    for name, at in (("temperature", (1.0 / temperature,)), ("focal", (gamma, 1.0 / temperature))):
        (value, *slopes), (other_value, *others) = (each.sums(name, *at, rough=True) for each in (short, exact))
        assert value == pytest.approx(other_value, rel=1e-4)
        np.testing.assert_allclose(slopes, others, atol=1e-3 * np.max(np.abs(others)))


def test_rows_of_few_classes_stay_as_they_are():
    block = Block(*random_rows(10, 50, dtype=np.float32))
    assert block.condensed(1.0) is block


def test_special_rows():
    inf = np.inf
    x = np.array(
        [
            [0.0, 0.0, 0.0, 0.0],  # constant
            [5.0, 5.0, -inf, -3.0],  # a tie at the top, and a class that cannot occur
            [700.0, -700.0, -700.0, 0.0],  # saturated
            [-inf, -inf, 2.0, -inf],  # no other class can occur
            [1e6, 1e6 - 1.0, 1e6 - 2.0, -1e6],  # a large offset
            [-1e4, -1e4, -1e4, -1e4 + 1e-9],
        ]
    )
    for gamma in GAMMAS:
        for label in range(4):
            y = np.where(np.isfinite(x[:, label]), label, np.argmax(x, axis=1))
            for slope in SLOPES:
                assert_same_passes(x, y, None, gamma, slope, rtol=1e-9)


def test_an_impossible_label_costs_infinity():
    x = np.array([[0.0, -np.inf, 1.0], [0.0, 1.0, 2.0]])
    y = np.array([1, 1])
    assert c_engine.temperature(x, y, None, 1.0)[0] == np.inf
    assert c_engine.focal(x, y, None, 1.0, 1.0)[0] == np.inf
    assert c_engine.predict(x, y, (1.0, 0.0), 1.0)[0, :, 0].tolist() == [-np.inf, -np.inf]
    # Rows of weight 0 do not count, whatever they hold.
    assert np.isfinite(c_engine.focal(x, y, np.array([0.0, 1.0]), 1.0, 1.0)).all()


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(
    arrays(np.float64, st.tuples(st.integers(1, 9), st.integers(2, 9)), elements=st.floats(-60, 60, width=32)),
    st.floats(-0.95, 20.0),
    st.floats(0.01, 10.0),
    st.randoms(use_true_random=False),
)
def test_any_logits(x, gamma, slope, random):
    y = np.array([random.randrange(x.shape[1]) for _ in x])
    assert_same_passes(x, y, None, gamma, slope, rtol=1e-9)


@pytest.mark.slow
def test_threads_change_nothing(monkeypatch):
    monkeypatch.setattr(c_engine, "THREADS_FROM", 0)
    monkeypatch.setattr(c_engine, "PART", 1000)
    x, y = random_rows(2000, 20)
    y = np.argmax(x + np.random.default_rng(2).gumbel(size=x.shape), axis=1)
    fits = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        model = FocalTemperatureScaling(objective="nll").fit(x, y)
        fits.append((model.gamma_, model.temperature_, model.solution_.value))
    assert fits[0] == fits[1] == fits[2]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_same_fit_without_a_kernel(dtype, monkeypatch):
    x, y = random_rows(3000, 15, dtype=dtype)
    y = np.argmax(x / 1.7 + np.random.default_rng(2).gumbel(size=x.shape), axis=1)
    models = [TemperatureScaling(), FocalTemperatureScaling(objective="nll"), FocalTemperatureScaling()]
    compiled = [focal_point(model.fit(x, y).chain_) for model in models]
    monkeypatch.setattr(c_engine, "_library", lambda: None)
    assert c_engine.plan(x) is None
    assert Block(x, y).precision == np.finfo(dtype).eps
    tolerance = 1e-6 if dtype == np.float32 else 1e-8
    for model, expected in zip(models, compiled, strict=True):
        assert focal_point(model.fit(x, y).chain_) == pytest.approx(expected, rel=tolerance, abs=tolerance)


def test_torch_on_the_cpu_is_not_copied():
    x, y = random_rows(8, 4, dtype=np.float32)
    held = Block(torch.from_numpy(x), torch.from_numpy(y))
    assert np.shares_memory(held.logits, x)


def build_script():
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_build_says_why_there_is_no_kernel(monkeypatch, tmp_path):
    build = build_script()
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    monkeypatch.setattr(build, "LIBRARY", tmp_path / "libkernel.so")
    monkeypatch.setenv("CC", "no-such-compiler")
    assert build.compile_kernel() == "there is no C compiler 'no-such-compiler'"
    monkeypatch.setenv("CC", f"{shlex.quote(sys.executable)} -c 'import sys; sys.exit(\"out of order\")'")
    assert "out of order" in build.compile_kernel()
    monkeypatch.setenv("REFOCAL_NO_KERNEL", "1")
    assert build.compile_kernel() == "REFOCAL_NO_KERNEL is set"
    assert list(tmp_path.iterdir()) == []


def test_every_half_precision_number_is_widened_exactly():
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    found, expected = c_engine.widened(every), every.astype(np.float32)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
    np.testing.assert_array_equal(
        c_engine.widened(every.reshape(256, 256)[::2, ::3]), every.reshape(256, 256)[::2, ::3]
    )


def test_a_library_of_another_source_is_not_used(monkeypatch):
    monkeypatch.setattr(c_engine, "KERNEL_VERSION", -1)
    with pytest.warns(RuntimeWarning, match="compiled from another kernel.c"):
        assert c_engine._library.__wrapped__() is None
