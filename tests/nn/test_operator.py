"""The operator that compiled models call: the layer's own result, without compiling its steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from refocal import AutoCalibration, FocalTemperatureScaling, IsotonicCalibration, TemperatureScaling
from refocal.maps import Chain, Focal, Temperature
from refocal.nn import CalibrationLayer, operator
from refocal.nn.operator import HostChain, calibrate, chain_of, structure_of


def fitted(calibrator, n_classes=4):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(600, n_classes))
    return calibrator.fit(3.0 * logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1))


KINDS = {
    "fts": FocalTemperatureScaling(objective="nll"),
    "auto": AutoCalibration(),
    "isotonic": IsotonicCalibration(),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_operator_gives_what_the_layer_gives(name, dtype):
    layer = fitted(KINDS[name]).to_torch()
    rows = torch.cat([torch.randn(30, 4), 300.0 * torch.randn(30, 4), torch.zeros(1, 4)])
    rows = torch.cat([rows, torch.tensor([[0.0, -torch.inf, 1.0, 2.0]])]).to(dtype)
    got = calibrate(rows, layer._values(), layer._structure)
    assert got.dtype == dtype
    tolerance = {torch.float32: 2e-6, torch.float64: 1e-6, torch.bfloat16: 1e-2}[dtype]  # buffers are float32
    torch.testing.assert_close(got, layer(rows), rtol=tolerance, atol=tolerance)
    assert calibrate(rows[:0], layer._values(), layer._structure).shape == (0, 4)


def test_bad_rows_are_spoiled_as_in_the_layer():
    layer = fitted(KINDS["fts"]).to_torch()
    bad = torch.tensor([[0.0, torch.nan, 1.0, 2.0], [torch.inf, 0.0, 0.0, 0.0], [-torch.inf] * 4, [1.0, 0.0, 2.0, 3.0]])
    got = calibrate(bad, layer._values(), layer._structure)
    torch.testing.assert_close(got, layer(bad), rtol=1e-6, atol=1e-6, equal_nan=True)
    assert got[:3].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_without_a_kernel_the_operator_gives_the_layers_own_bits(monkeypatch, dtype):
    monkeypatch.setattr(operator, "apply", lambda *_, **__: None)
    layer = fitted(KINDS["auto"]).to_torch()
    rows = 3.0 * torch.randn(50, 4, dtype=dtype)
    assert torch.equal(calibrate(rows, layer._values(), layer._structure), layer(rows))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(calibrate(rows, layer._values(), layer._structure), layer(rows))


def test_changed_buffers_are_used():
    layer = CalibrationLayer(Temperature(2.0))
    x = torch.randn(5, 3)
    before = calibrate(x, layer._values(), layer._structure)
    layer.temperature.fill_(4.0)
    torch.testing.assert_close(calibrate(x, layer._values(), layer._structure), layer(x))
    assert not torch.allclose(before, layer(x))
    other = CalibrationLayer(Temperature(1.0))  # of the same structure, with a value of its own
    torch.testing.assert_close(calibrate(x, other._values(), other._structure), x.log_softmax(1))


def through_fused_optimiser(value):
    value.requires_grad_(True)
    value.grad = torch.full_like(value, -3.0)
    torch.optim.SGD([value], lr=1.0, fused=True).step()
    value.requires_grad_(False)


CHANGES = {
    "in place": lambda value: value.fill_(4.0),
    "data": lambda value: value.data.fill_(4.0),
    "other data": lambda value: setattr(value, "data", torch.tensor(4.0)),
    "array": lambda value: np.copyto(value.numpy(), np.float32(4.0)),
    "fused optimiser": through_fused_optimiser,
}


@pytest.mark.parametrize("change", CHANGES)
def test_buffers_are_used_however_they_were_changed(change):
    layer = CalibrationLayer(Temperature(1.0))
    x = torch.randn(5, 3)
    torch.testing.assert_close(layer(x), x.log_softmax(1))
    CHANGES[change](layer.temperature)
    torch.testing.assert_close(layer(x), (x / 4.0).log_softmax(1))
    torch.testing.assert_close(calibrate(x, layer._values(), layer._structure), (x / 4.0).log_softmax(1))


def test_a_checkpoint_that_is_loaded_in_inference_mode_is_used():
    x = torch.randn(5, 3)
    with torch.inference_mode():
        layer = CalibrationLayer(Temperature(1.0))
        layer(x)
        layer.load_state_dict(CalibrationLayer(Temperature(4.0)).state_dict())
        torch.testing.assert_close(layer(x), (x / 4.0).log_softmax(1))


def test_a_thread_never_sees_the_values_of_before(monkeypatch):
    host = HostChain(Chain((Temperature(1.0),)))
    values = [torch.tensor(4.0)]
    with_parameters = Chain.with_parameters
    seen = []

    def interrupted(chain, replace):
        if not seen:
            seen.append(None)
            seen.append(host.of(values).steps[0].temperature)  # another thread, in the middle of this one
        return with_parameters(chain, replace)

    monkeypatch.setattr(Chain, "with_parameters", interrupted)
    assert host.of(values).steps[0].temperature == 4.0
    assert seen[1] == 4.0


def test_the_structure_has_no_values():
    chain = fitted(KINDS["auto"]).chain_
    text = structure_of(chain)
    assert len(text) < 1000
    values = [torch.tensor(value, dtype=torch.float64) for _, value in chain.parameters()]
    again = HostChain(chain_of(text)).of(values)
    x = np.random.default_rng(0).normal(size=(5, 4))
    np.testing.assert_allclose(again.log_probabilities(x), chain.log_probabilities(x), rtol=1e-12)
    assert structure_of(Chain((Temperature(3.0), Focal(2.0)))) == structure_of(Chain((Temperature(1.0), Focal(1.0))))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_without_gradients_the_layer_is_one_operator():
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    layer = fitted(KINDS["auto"]).to_torch()
    model = nn.Sequential(nn.Linear(3, 4), layer)
    compiled = torch.compile(model, backend=counter, fullgraph=True, dynamic=True)
    x = torch.randn(7, 3)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=2e-6, atol=2e-6)
    (graph,) = counter.graphs
    called = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert sum("calibrate" in target for target in called) == 1
    assert len(called) < 6
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        torch.testing.assert_close(compiled(x).float(), model(x).float(), rtol=1e-2, atol=1e-2)
    # With gradients the steps are compiled, and differentiated.
    x.requires_grad_()
    torch.testing.assert_close(
        torch.autograd.grad(compiled(x)[:, 0].sum(), x), torch.autograd.grad(model(x)[:, 0].sum(), x)
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_images_and_probabilities_compile_too():
    torch._dynamo.reset()
    p = torch.rand(2, 3, 4, 5).softmax(1)
    rows = p.movedim(1, -1).reshape(-1, 3).numpy()
    calibrator = TemperatureScaling(input="probabilities").fit(rows, np.arange(40) % 3)
    layer = calibrator.to_torch(class_axis=1)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(p), layer(p), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("layout", [(0, 1, 2), (1, 0, 2), (2, 0, 1)])
def test_what_the_compiler_is_told_holds_for_every_layout_of_the_scores(layout):
    layer = CalibrationLayer(Temperature(1.7), Focal(1.0))
    scores = torch.randn(4, 4, 4, generator=torch.Generator().manual_seed(0)).permute(layout)
    torch.library.opcheck(calibrate, (scores, layer._values(), layer._structure))


def test_what_is_exported_is_told_from_what_is_compiled(monkeypatch):
    layer = CalibrationLayer(Temperature(1.7))
    monkeypatch.setattr(torch.compiler, "is_dynamo_compiling", lambda: True)
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)  # as before torch 2.13 in everything compiled
    assert layer._is_one_operator(torch.zeros(1, 3))
    monkeypatch.setattr(torch.compiler, "_is_exporting_flag", True)
    assert not layer._is_one_operator(torch.zeros(1, 3))


def test_outside_of_compiled_code_the_same_kernel_computes(monkeypatch):
    calls = []
    kernel = operator.apply

    def counted(*arguments, **options):
        calls.append(arguments)
        return kernel(*arguments, **options)

    monkeypatch.setattr(operator, "apply", counted)
    layer = fitted(KINDS["auto"]).to_torch()
    x = 3.0 * torch.randn(20, 4)
    by_steps = layer.log_probabilities(x)
    torch.testing.assert_close(layer(x), by_steps, rtol=2e-6, atol=2e-6)
    assert len(calls) == 1
    torch.testing.assert_close(layer(x.double()).float(), by_steps, rtol=2e-6, atol=2e-6)  # which keeps its digits
    assert len(calls) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, about torch.jit
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_what_differentiates_batches_or_traces_sees_the_steps():
    layer = fitted(KINDS["fts"]).to_torch()
    x = torch.randn(6, 4)
    expected = layer.log_probabilities(x)
    batched = torch.func.vmap(layer)(x[:, None])[:, 0]
    torch.testing.assert_close(batched, expected)
    plain = torch.autograd.functional.jacobian(lambda rows: layer.log_probabilities(rows), x[:1])
    torch.testing.assert_close(torch.func.jacrev(layer)(x[:1]), plain)
    torch.testing.assert_close(torch.func.jacfwd(layer)(x[:1]), plain)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x[:1], torch.ones(1, 4))
        tangent = torch.autograd.forward_ad.unpack_dual(layer(dual)).tangent
    torch.testing.assert_close(tangent, plain.sum(dim=(2, 3)), rtol=1e-5, atol=1e-6)
    traced = torch.jit.trace(layer, x[:2])
    torch.testing.assert_close(traced(x), expected)


def test_a_temperature_that_learns_has_its_gradient():
    layer = CalibrationLayer(Temperature(2.0))
    layer.temperature.requires_grad_()
    x = torch.tensor([[1.0, 0.0, -1.0]])
    for model in (layer, torch.compile(layer, backend="eager")):
        layer.temperature.grad = None
        model(x)[0, 0].backward()
        p = torch.softmax(x / 2.0, 1)
        expected = -(x[0, 0] - (p * x).sum()) / 4.0  # d/dT of x_0 / T - log Σ exp(x / T)
        torch.testing.assert_close(layer.temperature.grad, expected.detach())
