"""The passes of the GPU against the compiled ones: on a GPU where there is one, else by Triton's interpreter."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers import draw_chain, draw_rows
from refocal import FocalTemperatureScaling, TemperatureScaling
from refocal.calibrators.fitted import focal_point
from refocal.engine import Block, block, c_engine
from refocal.engine.program import Opcode, program_of
from refocal.errors import DataError, LabelError
from refocal.fitting.affine import Features, _vector_sums
from refocal.maps import Focal, Temperature
from refocal.maps.chain import Chain
from refocal.maps.steps import KINDS
from refocal.metrics import brier_score
from refocal.nn import layer, operator

pytest.importorskip("triton", reason="Triton exists for Linux alone; its passes are not tested here")
import triton
import triton.language as tl

from refocal.engine import triton_affine, triton_apply, triton_engine, triton_rows
from refocal.engine.triton_maths import part_of

# The warnings are NumPy's, from Triton's interpreter.
pytestmark = [pytest.mark.numerics, pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def hard_rows(n_rows, n_classes, dtype):
    """Rows with a tie, a saturated one, one with an impossible class and one with a single possible class."""
    rng = np.random.default_rng(n_rows)
    x = (3.0 * rng.normal(size=(n_rows, n_classes))).astype(dtype)
    y = rng.integers(n_classes, size=n_rows)
    x[0] = 0.0
    x[1, 0], x[1, 1:] = 40.0, -40.0
    x[2, 1], y[2] = -np.inf, 0
    x[3, 1:], y[3] = -np.inf, 0
    return x, y, rng.uniform(size=n_rows)


def on_device(*arrays):
    return [torch.from_numpy(array).to(DEVICE) for array in arrays]


def assert_close(ours, expected, tolerance):
    np.testing.assert_allclose(ours.cpu().numpy(), expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


PRECISIONS = pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-10), (np.float32, 2e-6)])
SIZES = [(5, 2), (7, 3), (9, 100), (4, 600)]


@pytest.mark.slow
@pytest.mark.parametrize(("n_rows", "n_classes"), SIZES)
@PRECISIONS
def test_sums_at_a_temperature_agree(dtype, tolerance, n_rows, n_classes):
    x, y, weight = hard_rows(n_rows, n_classes, dtype)
    logits, labels, weights = on_device(x, y, weight)
    for here, there in ((None, None), (weight, weights)):
        ours = triton_engine.temperature(logits, labels, there, 0.7)
        assert_close(ours, c_engine.temperature(x, y, here, 0.7), tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_rows", "n_classes", "gamma"),
    [
        *(pytest.param(*size, 0.8, marks=[] if max(size) < 600 else pytest.mark.long) for size in SIZES),
        *((*size, gamma) for size in ((5, 2), (9, 100)) for gamma in (-0.5, 0.0, 5.0)),
    ],
)
@PRECISIONS
def test_sums_and_predictions_at_a_gamma_agree(dtype, tolerance, n_rows, n_classes, gamma):
    x, y, weight = hard_rows(n_rows, n_classes, dtype)
    logits, labels, weights = on_device(x, y, weight)
    for here, there in ((None, None), (weight, weights)):
        ours = triton_engine.focal(logits, labels, there, gamma, 0.7)
        assert_close(ours, c_engine.focal(x, y, here, gamma, 0.7), tolerance)
    ours = triton_engine.predict(logits, labels, (gamma, 0.0), 0.7).cpu().numpy()
    np.testing.assert_allclose(ours, c_engine.predict(x, y, (gamma, 0.0), 0.7), rtol=10 * tolerance, atol=tolerance)


@PRECISIONS
def test_long_rows_are_read_some_classes_at_a_time(dtype, tolerance, monkeypatch):
    monkeypatch.setattr(triton_engine, "MAX_WHOLE", 1)
    monkeypatch.setattr(triton_engine, "MAX_CHUNK", 16)
    x, y, weight = hard_rows(6, 40, dtype)
    tensors = on_device(x, y, weight)
    for function, settings in (("temperature", (0.7,)), ("focal", (0.8, 0.7))):
        ours = getattr(triton_engine, function)(*tensors, *settings)
        assert_close(ours, getattr(c_engine, function)(x, y, weight, *settings), tolerance)
    ours = triton_engine.predict(*tensors[:2], (0.8, 0.0), 0.7).cpu().numpy()
    np.testing.assert_allclose(ours, c_engine.predict(x, y, (0.8, 0.0), 0.7), rtol=10 * tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("mask", [-1e9, -1e25, float(np.finfo(np.float32).min)])
def test_a_mask_of_finite_logits_is_one_of_infinite_ones(mask):
    x, y, _ = hard_rows(9, 6, np.float32)
    hidden = np.isinf(x) | (np.random.default_rng(0).random(x.shape) < 0.3)
    hidden[np.arange(len(y)), y] = False
    hidden[5] = np.arange(6) != y[5]  # all but the label
    expected = on_device(np.where(hidden, -np.inf, x).astype(np.float32), y)
    found = on_device(np.where(hidden, mask, x).astype(np.float32), y)
    for function, settings in (
        ("temperature", (None, 0.7)),
        ("focal", (None, 0.8, 0.7)),
        ("predict", ((0.8, 0.0), 0.7)),
    ):
        ours, theirs = (getattr(triton_engine, function)(*rows, *settings).cpu().numpy() for rows in (found, expected))
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7)
    assert np.isfinite(float(triton_engine.inspect(*found)[1]))


def test_rows_are_looked_at():
    x, y, _ = hard_rows(11, 6, np.float32)
    correct, distance = triton_engine.inspect(*on_device(x, y))
    expected, other = c_engine.inspect(x, y)
    assert np.array_equal(correct.cpu().numpy(), expected)
    assert float(distance) == pytest.approx(other, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    x = torch.randn(6, 10, generator=torch.Generator().manual_seed(0)).to(dtype)
    y = torch.arange(6)
    expected = c_engine.focal(x.float().numpy(), y.numpy(), None, 1.0, 1.0)
    ours = triton_engine.focal(x.to(DEVICE), y.to(DEVICE), None, 1.0, 1.0).cpu().numpy()
    np.testing.assert_allclose(ours, expected, rtol=1e-5)


def test_strided_rows_are_read_in_place():
    x, y, _ = hard_rows(12, 5, np.float64)
    tensors = on_device(x, y)
    ours = triton_engine.temperature(tensors[0][::3], tensors[1][::3], None, 1.0).cpu().numpy()
    np.testing.assert_allclose(ours, c_engine.temperature(x[::3], y[::3], None, 1.0), rtol=1e-12)


def test_a_problem_on_the_cpu_does_not_take_them():
    x, y = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    assert not triton_engine.usable(x)
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        assert Block(x.to(dtype), y).engine is c_engine


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [TemperatureScaling(), pytest.param(FocalTemperatureScaling(objective="nll"), marks=pytest.mark.long)]
)
def test_a_whole_fit_gives_the_cpus_answer(model, monkeypatch):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(3.0 * rng.normal(size=(60, 8))).bfloat16()
    y = torch.from_numpy(np.argmax(x.float().numpy() / 1.5 + rng.gumbel(size=x.shape), axis=1))
    expected = focal_point(model.fit(x.float(), y).chain_)
    monkeypatch.setattr(block, "engine_for", lambda logits: (triton_engine, triton_engine.plan(logits)))
    found = model.fit(x.to(DEVICE), y.to(DEVICE))
    assert focal_point(found.chain_) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    noted = {"n_samples", "n_classes", "class_shares", "mean_probabilities"}
    assert set(found.fit_report_) == noted | {"before", "after", "accuracy_change"}


@pytest.mark.parametrize(("seed", "is_long"), [*((seed, False) for seed in range(12)), (0, True), (6, True), (8, True)])
def test_any_chain_is_that_of_the_array_functions(seed, is_long, monkeypatch):
    if is_long:  # some classes at a time
        monkeypatch.setattr(triton_apply, "MAX_WHOLE", 1)
        monkeypatch.setattr(triton_apply, "MAX_CHUNK", 8)
    rng = np.random.default_rng(seed)
    n_classes = int(rng.choice([2, 3, 8, 17, 64]))
    chain, logits = draw_chain(rng, n_classes), draw_rows(rng, n_classes)
    program = program_of(chain)
    for dtype, least in ((np.float64, 1e-12), (np.float32, 1e-6)):
        x = logits.astype(dtype)
        exact, by_arrays = (chain.log_probabilities(each) for each in (x.astype(np.float64), x))
        (scores,) = on_device(np.ascontiguousarray(program.before.scores(x)))
        found = triton_apply.apply(program, scores)
        if is_long and Opcode.AFFINE in program.steps[:, 0]:
            assert found is None
            return
        error = np.abs(np.exp(by_arrays) - np.exp(exact)).max()
        assert np.abs(found[0].cpu().numpy() - np.exp(exact)).max() <= max(least, 2 * error)
        if is_long or seed < 4:
            log_p, is_possible = triton_apply.apply(program, scores, log=True)[0].cpu().numpy(), np.isfinite(exact)
            assert np.array_equal(np.isfinite(log_p), is_possible)
            error = np.abs(by_arrays - exact)[is_possible].max()
            assert np.abs(log_p - exact)[is_possible].max() <= max(10 * least, 3 * error)


@pytest.mark.parametrize(("value", "is_suspect"), [(1.0, False), (np.nan, True), (np.inf, True), (-np.inf, True)])
def test_what_a_check_would_find_is_seen_on_the_way(value, is_suspect):
    x = np.random.default_rng(0).normal(size=(5, 3))
    x[3] = value
    program = program_of(TemperatureScaling().fit([[2.0, 0, 0], [0, 2.0, 0], [2.0, 0, 0]], [0, 1, 1]).chain_)
    for rows, expected in ((x, is_suspect), (np.full((4, 2), 0.5), True)):  # those as probabilities are
        p, seen = triton_apply.apply(program, *on_device(rows))
        assert triton_apply.is_suspect(seen) is expected
        is_bad = ~np.isfinite(rows).any(axis=1)
        np.testing.assert_array_equal(np.isnan(p.cpu().numpy()).all(axis=1), is_bad)
        np.testing.assert_array_equal(np.isnan(p.cpu().numpy()).any(axis=1), is_bad)


def test_a_layer_applies_the_values_that_its_buffers_have(monkeypatch):
    monkeypatch.setattr(operator, "on_gpu", lambda x: True)
    monkeypatch.setattr(triton_engine, "usable", lambda x: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    kernel, runs = triton_apply.apply, []
    monkeypatch.setattr(triton_apply, "apply", lambda *given, **options: runs.append(1) or kernel(*given, **options))
    found = layer.CalibrationLayer(Temperature(2.0), Focal(1.0), class_axis=1).to(DEVICE)
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    for temperature in (2.0, 0.5):
        found.temperature.fill_(temperature)
        expected = Chain((Temperature(temperature), Focal(1.0))).log_probabilities(x.movedim(1, -1).cpu().numpy())
        np.testing.assert_allclose(found(x).movedim(1, -1).cpu().numpy(), expected, rtol=1e-5, atol=1e-6)
    assert len(runs) == 2
    with monkeypatch.context() as captured:
        captured.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        np.testing.assert_allclose(found(x).movedim(1, -1).cpu().numpy(), expected, rtol=1e-5, atol=1e-6)
    assert found(x.requires_grad_()).requires_grad
    assert len(runs) == 2


def test_a_compiled_model_calls_the_kernel_of_the_gpu(monkeypatch):
    """The operator that stands for a layer in compiled code."""
    monkeypatch.setattr(operator, "on_gpu", lambda x: True)
    monkeypatch.setattr(triton_engine, "usable", lambda x: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    kernel, runs = triton_apply.apply, []
    monkeypatch.setattr(triton_apply, "apply", lambda *given, **options: runs.append(1) or kernel(*given, **options))
    found = layer.CalibrationLayer(Temperature(2.0), Focal(1.0)).to(DEVICE)
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    for temperature in (2.0, 0.5):
        found.temperature.fill_(temperature)
        expected = Chain((Temperature(temperature), Focal(1.0))).log_probabilities(x.cpu().numpy())
        ours = operator.calibrate(x, found._values(), found._structure)
        np.testing.assert_allclose(ours.cpu().numpy(), expected, rtol=1e-5, atol=1e-6)
    assert len(runs) == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 1e-6)])
def test_affine_sums_agree(kind, dtype, tolerance):
    x, y, weight = hard_rows(9, 6, dtype)
    parameters = 0.3 * np.random.default_rng(0).normal(size=12)
    for weights in (None, weight):
        tensors = [None if each is None else on_device(each)[0] for each in (x, y, weights)]
        levels = triton_affine.levels(tensors[0], kind, 1.7, exact=False)
        ours = triton_affine.affine(*tensors, levels, 1.7, parameters).cpu().numpy()
        expected = _vector_sums(Features(kind, 1.7), Block(x, y, weights), parameters, True, False)[:13]
        np.testing.assert_allclose(ours, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("n_rows", "n_classes"), [(5, 3), (700, 9), (3, 5000)])
def test_sums_of_rows_of_probabilities_agree(n_rows, n_classes, dtype):
    rng = np.random.default_rng(n_rows)
    given = torch.from_numpy(rng.dirichlet(np.ones(n_classes), size=n_rows)).to(DEVICE, dtype)
    p = given.cpu().double().numpy()
    y = rng.integers(n_classes, size=n_rows)
    for power in (1, 2, 3):
        assert_close(triton_rows.power_sums(given, power), (p**power).sum(1), 1e-13)
    terms, sums, lowest = triton_rows.brier(given, *on_device(y))
    assert_close(terms, np.square(p - np.eye(n_classes)[y]).sum(1), 1e-13)
    assert_close(sums, p.sum(1), 1e-13)
    assert_close(lowest, p.min(1), 0.0)


def test_tensors_on_the_device_have_the_brier_score_of_arrays_or_their_errors():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(7), size=500).astype(np.float32)
    y = rng.integers(7, size=500)
    there = on_device(y, p)
    assert brier_score(*there) == pytest.approx(brier_score(y, p), rel=1e-12)
    bad = there[1].clone()
    bad[3, 2] += 0.5
    with pytest.raises(DataError, match="rows that sum to 1"):
        brier_score(there[0], bad)
    with pytest.raises(LabelError):
        brier_score(there[0] + 1, there[1])


def test_kernels_run_on_the_gpu_of_their_tensors_which_may_not_be_the_current_one(monkeypatch):
    guarded = []

    class Guard:
        def __init__(self, tensor):
            guarded.append(tensor.device)

        __enter__ = __exit__ = lambda *_: None

    monkeypatch.setattr(torch.cuda, "device_of", Guard)
    x, y = on_device(np.zeros((2, 3)), np.zeros(2, np.int64))
    triton_engine.temperature(x, y, None, 1.0)
    triton_engine.focal(x, y, None, 0.5, 1.0)
    triton_engine.predict(x, y, (0.5,), 1.0)
    triton_engine.inspect(x, y)
    levels = triton_affine.levels(x, "tempered", 1.0, exact=True)
    triton_affine.affine(x, y, None, levels, 1.0, np.zeros(6))
    triton_apply.apply(program_of(Chain((Temperature(2.0),))), x)
    triton_rows.power_sums(x, 2)
    triton_rows.brier(x, y)
    cells = torch.zeros(3, 8, dtype=torch.int64, device=x.device)
    triton_rows.count_cells(x, cells, 14, 1)
    triton_rows.count_opened(x, cells.int(), torch.zeros(1, 1 << 14, dtype=torch.int32, device=x.device), 14)
    assert guarded == 11 * [x.device]


@triton.jit
def _distance_kernel(numbers, out, n_rows):
    tl.store(out, part_of(numbers, 5, n_rows).to(tl.int64) - numbers.to(tl.int64))


@pytest.mark.parametrize("n_rows", [1, 7, 2**29, 2**31 - 1, 2**31 + 1])
def test_parts_of_many_rows_lie_where_they_were_put(n_rows):
    """Five times 2^29 is more than 32 bits can count, though the number of rows is not."""
    numbers = torch.zeros(1, device=DEVICE)
    out = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    _distance_kernel[(1,)](numbers, out, n_rows)
    assert int(out) == 5 * n_rows * numbers.element_size()
