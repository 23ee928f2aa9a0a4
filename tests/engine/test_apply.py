"""Probabilities in one compiled pass: held to the array functions, whatever the chain, the precision and the layout."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from helpers import draw_biased_logits, draw_chain, draw_logits, draw_mixture, draw_rows, rising_curve
from refocal import AutoCalibration, FocalTemperatureScaling, IsotonicCalibration, MatrixScaling, TemperatureScaling
from refocal.engine import c_engine
from refocal.engine.apply import apply, probabilities_of
from refocal.engine.program import MATRIX_CLASSES, Opcode, program_for, program_of
from refocal.errors import DataError, InputWarning, ShapeError
from refocal.maps.chain import Chain
from refocal.maps.curves import Confidence, OneVsRest, Pieces
from refocal.maps.steps import KINDS, Affine, Focal, Mixture, Temperature, Uniform

pytestmark = [
    pytest.mark.numerics,
    pytest.mark.skipif(not c_engine.is_compiled(), reason="the kernel was not compiled"),
]


@pytest.mark.parametrize("seed", range(60))
def test_any_chain_is_that_of_the_array_functions(seed):
    rng = np.random.default_rng(seed)
    n_classes = int(rng.choice([2, 3, 5, 8, 10, 17, 64]))
    chain, logits = (draw_mixture if seed % 3 == 0 else draw_chain)(rng, n_classes), draw_rows(rng, n_classes)
    exact = chain.log_probabilities(logits)
    np.testing.assert_allclose(apply(chain, logits).probabilities, np.exp(exact), rtol=0, atol=1e-12)
    if (logs := apply(chain, logits, log=True)) is not None:
        np.testing.assert_allclose(logs.probabilities, exact, rtol=1e-12, atol=1e-12)

    single = logits.astype(np.float32)
    exact, by_arrays = (chain.log_probabilities(x) for x in (single.astype(np.float64), single))
    found = apply(chain, single).probabilities
    assert found.dtype == np.float32
    assert np.abs(found - np.exp(exact)).max() <= max(1e-6, 2 * np.abs(np.exp(by_arrays) - np.exp(exact)).max())
    if (logs := apply(chain, single, log=True)) is not None:
        possible = exact > -np.inf
        np.testing.assert_array_equal(logs.probabilities > -np.inf, possible)
        found, usual, exact = (x[possible] for x in (logs.probabilities, by_arrays, exact))
        off, usual = (np.abs(x - exact) / (1 - exact) for x in (found, usual))
        assert off.max() <= max(1e-6, 2 * usual.max())


@pytest.mark.parametrize("temperature", [1e-8, 3e-9, 1e-12, 1e-30])
@pytest.mark.parametrize("gamma", [-0.5, 0.0, 2.0])
def test_a_class_that_alone_can_occur_is_certain_at_any_temperature(temperature, gamma):
    logits = np.array([[-np.inf, 5.0, -np.inf], [0.5, -3e38, -np.inf], [1.0, 1.0, -np.inf]] * 3, dtype=np.float32)
    chain = Chain((Temperature(temperature), Focal(gamma)))
    expected = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]] * 3)
    with np.errstate(over="ignore"):
        for x in (logits, logits.astype(np.float64)):
            np.testing.assert_allclose(apply(chain, x).probabilities, expected, atol=1e-6)
            np.testing.assert_allclose(np.exp(apply(chain, x, log=True).probabilities), expected, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_classes", [2, 3, 7, 10, 64])
def test_a_matrix_is_that_of_the_array_functions(kind, n_classes):
    rng = np.random.default_rng(n_classes)
    weights = np.eye(n_classes) + 0.3 * rng.normal(size=(n_classes, n_classes))
    matrix = Affine(kind, 1.7, weights, rng.normal(size=n_classes))
    logits = draw_rows(rng, n_classes)
    for chain in (
        Chain((Temperature(0.6), matrix, Temperature(1.3), Focal(0.5), Confidence(rising_curve(rng)))),
        Chain((Mixture((Chain((matrix,)), Chain((matrix, Focal(2.0)))), np.array([0.4, 0.6])),)),
    ):
        program = program_for(chain, logits)
        assert not program.before.steps
        assert Opcode.MATRIX in program.steps[:, 0]
        exact = chain.log_probabilities(logits)
        np.testing.assert_allclose(apply(chain, logits).probabilities, np.exp(exact), rtol=0, atol=1e-12)
        single = logits.astype(np.float32)
        exact = chain.probabilities(single.astype(np.float64))
        usual = np.abs(chain.probabilities(single) - exact).max()
        assert np.abs(apply(chain, single).probabilities - exact).max() <= max(1e-6, 2.0 * usual)
    logs = apply(Chain((matrix,)), logits, log=True).probabilities
    np.testing.assert_allclose(logs, matrix_log_probabilities(matrix, logits), rtol=1e-12, atol=1e-12)


def matrix_log_probabilities(matrix, logits):
    """log softmax(W z + b), row by row and class by class."""
    log_p = np.full(logits.shape, -np.inf)
    for row, out in zip(logits, log_p, strict=True):
        possible = row > -np.inf
        gap = np.maximum((row[possible] - row.max()) / matrix.inner_temperature, -87.0)
        if matrix.kind == "logits":
            z = gap - gap.mean()
        else:
            scale = matrix.inner_temperature if matrix.kind == "log-probabilities" else 1.0
            z = gap - np.log(np.exp(gap * scale).sum()) / scale
        of_all = np.full(len(row), z.mean())  # what a masked class adds to others
        of_all[possible] = z
        out[possible] = log_softmax((matrix.weights @ of_all + matrix.intercept)[possible])
    return log_p


def test_a_gpu_and_very_many_classes_leave_a_matrix_to_the_array_functions():
    small = Chain((Affine("tempered", 1.0, np.eye(3), np.zeros(3)), Temperature(2.0)))
    assert len(program_of(small).before.steps) == 1
    n_classes = MATRIX_CLASSES + 1
    large = Chain((Affine("tempered", 1.0, np.eye(n_classes), np.zeros(n_classes)), Temperature(2.0)))
    assert len(program_for(large, np.zeros((1, n_classes))).before.steps) == 1


@pytest.mark.parametrize("gamma", [0.0, 3.0])
def test_small_probabilities_keep_their_digits(gamma):
    logits = np.array([[0.0, -300.0, -310.0], [0.0, -1e-9, -600.0]])
    chain = Chain((Temperature(0.9), Focal(gamma)))
    np.testing.assert_allclose(apply(chain, logits).probabilities, np.exp(chain.log_probabilities(logits)), rtol=1e-11)
    farther = np.array([[0.0, -3e3, -1e5], [0.0, -1e-9, -1e4], [5.0, -np.inf, -np.inf], [0.0, -1e100, -np.inf]])
    for x, tolerance in ((farther, 1e-12), (farther[:3].astype(np.float32), 1e-6)):
        found = apply(chain, x, log=True).probabilities
        np.testing.assert_allclose(found, chain.log_probabilities(x), rtol=tolerance, atol=tolerance)


def test_logarithms_that_a_mixture_would_lose_are_left_to_the_array_functions():
    logits = np.array([[0.0, -900.0], [0.0, 1.0]])
    mixture = Chain((Mixture((Temperature(1.0), Chain()), np.array([0.5, 0.5])),))
    assert apply(mixture, logits, log=True) is None
    assert apply(mixture, logits[1:], log=True) is not None
    np.testing.assert_allclose(probabilities_of(mixture, logits, log=True), log_softmax(logits, axis=1), rtol=1e-14)
    np.testing.assert_allclose(apply(mixture, logits).probabilities, softmax(logits, axis=1), rtol=1e-14)


def test_the_weights_of_a_mixture_are_not_rounded_away():
    """Sums of rows are off by their own rounding alone, which has no sign, and not by that of the weights."""
    logits = np.random.default_rng(0).normal(size=(20_000, 10)).astype(np.float32)
    mixture = Chain((Mixture((Temperature(1.5), Uniform()), np.array([1 - 4e-8, 4e-8])),))
    for found in (
        apply(mixture, logits).probabilities,
        np.exp(apply(mixture, logits, log=True).probabilities, dtype=float),
    ):
        assert abs(np.mean(found.sum(axis=1, dtype=float) - 1.0)) < 1e-8


def test_sums_over_very_many_classes_keep_their_digits():
    logits = np.random.default_rng(0).normal(size=(3, 300_000)).astype(np.float32)
    mixture = Chain((Mixture((Temperature(1.5), Uniform()), np.array([1e-3, 1 - 1e-3])),))
    found = apply(mixture, logits).probabilities
    np.testing.assert_allclose(found.sum(axis=1, dtype=float), 1.0, rtol=1e-6)


def test_ties_behind_a_jump_are_those_of_the_array_functions():
    jumps = Pieces.of(*[([-2.0, 0.0], ([-3.1, -1.2, 1.3],))] * 10)
    chain = Chain((Mixture((Chain((OneVsRest(jumps),)), Uniform()), np.array([0.9, 0.1])),))
    logits = np.random.default_rng(0).normal(size=(500, 10)).astype(np.float32)
    np.testing.assert_array_equal(probabilities_of(chain, logits, log=True), chain.log_probabilities(logits))


def test_steep_curves_are_computed_in_single_precision_only():
    """In double precision the last digits of a score would be seen; in single precision they are seen either way."""
    knots, step = np.array([-1.0, 1.0, 1.0 + 2.0**-30]), np.array([-1.0, -1.0, 0.0, 1.0])
    curves = {
        "steep": [step, [0.0, 0.5, 2.0**30, 0.0]],
        "jump": [step, [0.0, 0.5, 0.0, 0.0]],
    }
    compiled = {}
    for name, powers in curves.items():
        pieces = Pieces.of(*[(knots, powers)] * 3)
        chain = Chain((Mixture((Chain((OneVsRest(pieces),)), Uniform()), np.array([0.9, 0.1])),))
        rows = np.zeros((2, 3))
        compiled[name] = [not program_for(chain, x).before.steps for x in (rows, rows.astype(np.float32))]
    assert compiled == {"steep": [False, True], "jump": [False, False]}


@pytest.mark.parametrize("row", [[0.0, np.nan], [0.0, np.inf], [-np.inf, -np.inf]], ids=["nan", "inf", "nothing"])
def test_rows_that_are_no_logits_are_refused_as_ever(row):
    logits, labels = draw_logits(100, 2)
    fitted = TemperatureScaling().fit(logits, labels)
    with pytest.raises(DataError, match=r"'X' of TemperatureScaling.predict_proba"):
        fitted.predict_proba(np.vstack([logits, row]))


def test_probabilities_in_place_of_logits_get_their_warning():
    logits, labels = draw_logits(100, 3)
    fitted = TemperatureScaling().fit(logits, labels)
    with pytest.warns(InputWarning, match="sum to 1"):
        fitted.predict_proba(softmax(logits, axis=1))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f8"])
@pytest.mark.parametrize("layout", ["rows", "columns", "every second"])
def test_layouts_and_precisions(dtype, layout):
    logits, labels = draw_logits(300, 6)
    fitted = FocalTemperatureScaling(objective="nll").fit(logits, labels)
    rows = logits.astype(dtype)
    given = {"rows": rows, "columns": np.asfortranarray(rows), "every second": np.repeat(rows, 2, axis=0)[::2]}[layout]
    p = fitted.predict_proba(given)
    assert p.dtype == given.dtype
    tolerance = 1e-3 if rows.itemsize == 2 else 1e-6 if rows.itemsize == 4 else 1e-12
    np.testing.assert_allclose(p, np.exp(fitted.predict_log_proba(rows.astype(np.float64))), rtol=0, atol=tolerance)


def test_out_is_written_to():
    logits, labels = draw_logits(50, 4)
    fitted = AutoCalibration().fit(logits, labels)
    out = np.full((50, 4), np.nan)
    assert fitted.predict_proba(logits, out=out) is out
    np.testing.assert_array_equal(out, fitted.predict_proba(logits))
    single = np.zeros((50, 4), np.float32)
    np.testing.assert_allclose(fitted.predict_proba(logits, out=single), out, atol=1e-7)
    for wrong in (np.zeros((49, 4)), np.zeros((50, 4), int), out.tolist()):
        with pytest.raises(ShapeError, match=r"'out' of AutoCalibration.predict_proba"):
            fitted.predict_proba(logits, out=wrong)


@pytest.mark.parametrize("method", [TemperatureScaling, AutoCalibration, IsotonicCalibration])
@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_fitted_calibrators_say_the_same_by_either_way(method, n_classes, kind):
    logits, labels = draw_biased_logits(600, n_classes)
    X = logits if kind == "logits" else softmax(logits, axis=1)
    fitted = method(input=kind).fit(X, labels)
    p = fitted.predict_proba(X)
    np.testing.assert_allclose(p, np.exp(fitted.predict_log_proba(X)), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(copy.deepcopy(fitted).predict_proba(X), p)


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    monkeypatch.setattr(c_engine, "THREADS_FROM", 1)
    logits, labels = draw_logits(20_000, 20)
    fitted = FocalTemperatureScaling(objective="nll").fit(logits[:500], labels[:500])
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        found.append(fitted.predict_proba(logits))
    np.testing.assert_array_equal(*found)


def test_nothing_but_the_answer_is_allocated():
    logits, labels = draw_logits(20_000, 20)
    fitted = FocalTemperatureScaling(objective="nll").fit(logits[:500], labels[:500])
    fitted.predict_proba(logits)
    tracemalloc.start()
    p = fitted.predict_proba(logits)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.01 * p.nbytes


def test_parameters_in_single_precision_as_a_layer_has_them_are_supported_too():
    logits, labels = draw_biased_logits(2000, 5)
    chain = AutoCalibration().fit(logits, labels).chain_
    assert chain.find(Pieces, "knots") is not None
    rounded = chain.with_parameters(lambda value: np.asarray(np.float32(value), dtype=np.float64)[()])
    # On a GPU a matrix is left to the array functions; the focal map and the curve are not.
    before = program_of(rounded).before.steps
    assert not any(isinstance(step, (Confidence, Focal)) for step in before)


def test_a_curve_with_a_jump_is_left_to_the_array_functions():
    jump = Confidence(Pieces.of(([0.0], ([0.0, 1.0], [1.0, 1.0]))))
    smooth = Confidence(Pieces.of(([0.0], ([0.0, 0.0], [1.0, 0.5]))))
    assert len(program_of(Chain((Temperature(2.0), jump))).steps) == 0
    assert len(program_of(Chain((Temperature(2.0), smooth))).steps) == 2
    for chain in (Chain((jump,)), Chain((smooth,)), Chain()):
        logits = np.random.default_rng(0).normal(size=(9, 3))
        np.testing.assert_allclose(
            np.log(apply(chain, logits).probabilities), chain.log_probabilities(logits), atol=1e-12
        )
    np.testing.assert_allclose(np.log(apply(Chain(), logits).probabilities), log_softmax(logits, axis=1), atol=1e-12)


@pytest.mark.parametrize("kind", [TemperatureScaling(), MatrixScaling(), IsotonicCalibration()])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_results_may_take_the_place_of_the_rows(kind, dtype):
    rng = np.random.default_rng(0)
    logits = 2.0 * rng.normal(size=(2000, 4))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    fitted = kind.fit(logits, labels)
    rows = logits.astype(dtype)
    expected = fitted.predict_proba(rows)
    assert fitted.predict_proba(rows, out=rows) is rows
    np.testing.assert_array_equal(rows, expected)


def test_rows_in_the_place_of_results_are_checked_before_they_are_lost():
    fitted = TemperatureScaling().fit([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]], [0, 1, 1])
    rows = np.array([[0.5, 0.5], [0.9, 0.1]])  # as probabilities are
    with pytest.warns(InputWarning):
        expected = fitted.predict_proba(rows)
    with pytest.warns(InputWarning):
        fitted.predict_proba(rows, out=rows)
    np.testing.assert_array_equal(rows, expected)


def test_results_that_overlap_with_the_rows_are_refused():
    fitted = TemperatureScaling().fit([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]], [0, 1, 1])
    memory = np.random.default_rng(0).normal(size=(9, 4))
    for rows, out in (
        (memory[:8, :2], memory[1:, :2]),
        (memory[:, :2], memory[:, 1:3]),
        (memory[:, :2], memory[:, 1::-1]),
        (memory[:2, :2], memory[:2, :2].T),
    ):
        before = memory.copy()
        with pytest.raises(DataError, match=r"'out' .* apart from 'X' in memory, or 'X' itself. Got an array"):
            fitted.predict_proba(rows, out=out)
        np.testing.assert_array_equal(memory, before)
    expected = fitted.predict_proba(memory[:, :2])
    np.testing.assert_array_equal(fitted.predict_proba(memory[:, :2], out=memory[:, 2:]), expected)


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_without_memory_for_the_kernel_the_array_functions_answer():
    """The kernel computes a few rows at a time, in 32 times the memory of one: here more than there is."""
    program = """
import resource
from pathlib import Path

import numpy as np

from refocal.engine.apply import apply, probabilities_of
from refocal.maps.chain import Chain
from refocal.maps.steps import Temperature

chain = Chain((Temperature(2.0),))
logits = np.zeros((1, 1 << 22), dtype=np.float32)
apply(chain, logits[:, :8])
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20), resource.RLIM_INFINITY))
assert apply(chain, logits) is None
p = probabilities_of(chain, logits)
np.testing.assert_allclose(p, 2.0**-22, rtol=1e-4)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    finished = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
