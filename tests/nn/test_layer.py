"""The layer gives what the calibrator gives, however it is compiled, exported, moved and stored."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import nn
from torch.autograd import gradcheck

from array_libraries import BACKENDS
from refocal import FocalCalibration, FocalTemperatureScaling, MultiLabelCalibration, TemperatureScaling
from refocal.calibrators import BetaCalibration, EnsembleTemperatureScaling
from refocal.errors import DataError, ParameterError, ShapeError
from refocal.export import to_onnx, to_torch_export
from refocal.maps import Focal, Temperature
from refocal.nn import CalibrationLayer


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(400, 5))
    return 3.0 * logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)


@pytest.fixture(scope="module")
def calibrator(data):
    return FocalTemperatureScaling(objective="nll").fit(*data)


@pytest.mark.parametrize(
    "kind",
    [TemperatureScaling(), FocalCalibration(gamma=2.0), FocalTemperatureScaling(objective="nll")],
    ids=lambda c: type(c).__name__,
)
def test_every_calibrator_of_the_family_becomes_a_layer(kind, data):
    fitted = kind.fit(*data)
    x = torch.tensor(np.concatenate([data[0], 1e4 * data[0], np.zeros((1, 5))]))
    torch.testing.assert_close(fitted.to_torch(dtype=torch.float64)(x), fitted.predict_log_proba(x), rtol=0, atol=0)
    single = fitted.to_torch()(x.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.exp(), fitted.predict_proba(x).float(), rtol=0, atol=1e-6)
    assert torch.equal(single.argmax(1), x.argmax(1))


def test_probabilities_come_in_where_the_calibrator_was_fitted_on_them(data):
    p = np.exp(data[0] / 2)
    p /= p.sum(axis=1, keepdims=True)
    fitted = TemperatureScaling(input="probabilities").fit(p, data[1])
    torch.testing.assert_close(
        fitted.to_torch(dtype=torch.float64)(torch.tensor(p)).numpy(), fitted.predict_log_proba(p), rtol=0, atol=1e-14
    )


def test_the_class_axis_may_lie_anywhere(calibrator):
    x = torch.randn(2, 5, 3, 4)
    last = calibrator.to_torch()(x.movedim(1, -1)).movedim(-1, 1)
    torch.testing.assert_close(calibrator.to_torch(class_axis=1)(x), last, rtol=0, atol=0)


def test_behind_a_model_it_gives_log_probabilities_and_gradients(calibrator):
    model = nn.Linear(3, 5)
    calibrated = nn.Sequential(model, calibrator.to_torch())
    log_p = calibrated(torch.randn(7, 3))
    torch.testing.assert_close(log_p.exp().sum(1), torch.ones(7))
    log_p[:, 0].sum().backward()
    assert torch.isfinite(model.weight.grad).all()
    assert model.weight.grad.abs().sum() > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_it_gives_the_eager_result(calibrator, backend):
    torch._dynamo.reset()
    layer = calibrator.to_torch()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=backend)
    for scale in (1e-3, 1.0, 200.0):
        x = scale * torch.randn(9, 5)
        torch.testing.assert_close(compiled(x), layer(x), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True])
def test_exported_it_gives_the_eager_result_for_any_number_of_rows(calibrator, strict):
    layer = calibrator.to_torch()
    program = torch.export.export(
        layer, (torch.randn(8, 5),), dynamic_shapes=({0: torch.export.Dim("rows")},), strict=strict
    )
    for rows in (1, 3, 20):
        x = 5.0 * torch.randn(rows, 5)
        assert torch.equal(program.module()(x), layer.log_probabilities(x))  # the steps; a kernel rounds otherwise
        torch.testing.assert_close(program.module()(x), layer(x), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_an_exported_program_is_written_and_read(calibrator, tmp_path):
    to_torch_export(calibrator, tmp_path / "calibrator.pt2", 5, class_axis=1, n_axes=4)
    program = torch.export.load(tmp_path / "calibrator.pt2")
    x = torch.randn(2, 5, 7, 6)
    torch.testing.assert_close(program.module()(x), calibrator.to_torch(class_axis=1)(x), rtol=1e-6, atol=1e-6)
    steps = calibrator.to_torch().log_probabilities(x.movedim(1, -1))
    assert torch.equal(program.module()(x), steps.movedim(-1, 1))
    assert [p.name for p in tmp_path.iterdir()] == ["calibrator.pt2"]
    with pytest.raises(ValueError, match="The 'n_classes' of to_torch_export must be 5"):
        to_torch_export(calibrator, tmp_path / "other.pt2", 6)


def test_torchscript_gives_the_eager_result(calibrator, tmp_path):
    layer = calibrator.to_torch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated, and warns of constants that are meant
        traced = torch.jit.trace(layer, torch.randn(8, 5))
        traced.save(tmp_path / "layer.pt")
        again = torch.jit.load(tmp_path / "layer.pt")
    for rows in (1, 30):
        x = 5.0 * torch.randn(rows, 5)
        assert torch.equal(again(x), layer.log_probabilities(x))
        torch.testing.assert_close(again(x), layer(x), rtol=1e-6, atol=1e-6)


def test_the_state_dict_holds_the_calibrator(calibrator):
    layer, other = calibrator.to_torch(), CalibrationLayer(Temperature(1.0), Focal(0.0))
    x = torch.randn(4, 5)
    assert set(layer.state_dict()) == {"gamma", "temperature", "_extra_state"}
    assert not torch.equal(other(x), layer(x))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))


def test_it_moves_with_device_and_dtype_but_never_gets_coarse(calibrator):
    layer = calibrator.to_torch()
    assert layer.to("meta").gamma.device.type == "meta"
    layer = calibrator.to_torch()
    assert layer.to(torch.float64).temperature.dtype == torch.float64
    for half in (torch.bfloat16, torch.float16):
        layer = nn.Sequential(calibrator.to_torch()).to(half)[0]
        assert layer.temperature.dtype == torch.float32
        assert layer.temperature.item() == np.float32(calibrator.temperature_)
        x = torch.randn(6, 5, dtype=half)
        assert layer(x).dtype == half
        torch.testing.assert_close(layer(x), calibrator.to_torch()(x.float()).to(half), rtol=0, atol=0)


def test_impossible_classes_stay_impossible(calibrator):
    got = calibrator.to_torch()(torch.tensor([[1.0, -torch.inf, 0.0, 0.0, 0.0], [2.0, *[-torch.inf] * 4]]))
    assert got[0, 1] == -torch.inf
    assert got[1].tolist() == [0.0, *[-torch.inf] * 4]


def test_an_impossible_class_leaves_the_gradients_of_the_others(data):
    """Also behind a mixture, the logarithm of a sum of probabilities."""
    impossible = torch.tensor([[-torch.inf]], dtype=torch.float64)
    others = torch.tensor([[0.5, 1.2, 0.0, 2.0]], dtype=torch.float64, requires_grad=True)
    for kind in (FocalTemperatureScaling(objective="nll"), BetaCalibration(), EnsembleTemperatureScaling()):
        layer = kind.fit(*data).to_torch(dtype=torch.float64)
        assert gradcheck(lambda x, layer=layer: layer(torch.cat([impossible, x], dim=1))[:, 1:], others)


def test_what_cannot_be_a_layer_is_refused():
    with pytest.raises(NotFittedError):
        TemperatureScaling().to_torch()
    for wrong in (Focal(-1.0), Temperature(0.0), Temperature(float("nan"))):
        with pytest.raises(ParameterError, match=f"of {type(wrong).__name__} must be a finite number greater than"):
            CalibrationLayer(wrong)
    with pytest.raises(ParameterError, match=r"'steps' of CalibrationLayer .*Temperature\(1.5\). Got 1.5"):
        CalibrationLayer(1.5)
    with pytest.raises(DataError, match=r"'logits' of CalibrationLayer must be floating-point numbers"):
        CalibrationLayer(Temperature(2.0))(torch.tensor([[3, 1]]))
    with pytest.raises(ParameterError, match="'input' of CalibrationLayer"):
        CalibrationLayer(Focal(1.0), input="odds")


@pytest.mark.parametrize("kind", ["logits", "probabilities", "log-odds"])
def test_one_number_per_row_is_a_row(kind, tmp_path):
    """As in predict_proba: nothing is normalised over the batch."""
    rng = np.random.default_rng(0)
    log_odds = 2.0 * rng.normal(size=300)
    labels = (rng.random(300) < 1.0 / (1.0 + np.exp(-log_odds / 2.0))).astype(int)
    scores = 1.0 / (1.0 + np.exp(-log_odds)) if kind == "probabilities" else log_odds
    fitted = TemperatureScaling(input=kind).fit(scores, labels)
    expected = fitted.predict_proba(scores)
    assert expected.shape == (300, 2)
    log_p = fitted.to_torch(dtype=torch.float64)(torch.from_numpy(scores))
    np.testing.assert_allclose(log_p.exp().numpy(), expected, rtol=0.0, atol=1e-12)
    alone = fitted.to_torch(dtype=torch.float64)(torch.from_numpy(scores[:1]))
    np.testing.assert_allclose(alone.exp().numpy(), expected[:1], rtol=0.0, atol=1e-12)

    single = scores.astype(np.float32)
    program = to_torch_export(fitted, n_axes=1)
    np.testing.assert_allclose(program.module()(torch.from_numpy(single)).exp(), expected, rtol=0.0, atol=1e-6)
    onnxruntime = pytest.importorskip("onnxruntime")
    to_onnx(fitted, tmp_path / "a.onnx", n_axes=1)
    (p,) = onnxruntime.InferenceSession(tmp_path / "a.onnx").run(None, {"logits": single})
    np.testing.assert_allclose(p, expected, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("shape", [(7, 4), (7, 6), (5, 7), (5,), (2, 5, 3)])
def test_a_layer_refuses_another_number_of_classes(calibrator, shape):
    layer = calibrator.to_torch()
    if shape[-1] == 5:
        assert layer(torch.zeros(shape)).shape == shape
        return
    with pytest.raises(ShapeError, match=r"'logits' of CalibrationLayer must be of 5 entries on axis -1.*Got shape"):
        layer(torch.zeros(shape))
    with pytest.raises(ShapeError, match="of 5 entries on axis 3"):
        calibrator.to_torch(class_axis=3)(torch.zeros(shape))


def test_a_layer_of_labels_refuses_another_number_of_them():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(200, 3))
    fitted = MultiLabelCalibration(input="log-odds").fit(scores, (rng.random((200, 3)) < 0.5).astype(int))
    assert fitted.to_torch()(torch.zeros(4, 3)).shape == (4, 3)
    with pytest.raises(ShapeError, match="of 3 entries on axis -1"):
        fitted.to_torch()(torch.zeros(4, 2))
