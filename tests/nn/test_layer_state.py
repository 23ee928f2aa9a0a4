"""Checkpoints of models with a calibration layer: whatever the fit chose, another layer loads it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from refocal import AutoCalibration, IsotonicCalibration, TemperatureScaling, VectorScaling
from refocal.errors import FormatError, ShapeError
from refocal.maps import Chain, Focal, Step, Temperature, number_field
from refocal.nn import CalibrationLayer
from refocal.nn.layer import MultiLabelLayer


def rows_of(n_classes, n=600, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, n_classes))
    return 3.0 * logits, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)


@pytest.mark.parametrize(
    "kind", [AutoCalibration(), IsotonicCalibration(), VectorScaling()], ids=lambda c: type(c).__name__
)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_checkpoint_loads_into_a_layer_of_any_steps(kind, n_classes, tmp_path):
    x = 2.0 * torch.randn(9, n_classes)
    layer = kind.fit(*rows_of(n_classes)).to_torch()
    model = nn.Sequential(nn.Linear(3, n_classes), layer)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    state = torch.load(tmp_path / "model.pt", weights_only=True)
    of_other_rows = kind.fit(*rows_of(n_classes, n=150, seed=1)).to_torch()
    for other in (CalibrationLayer(), CalibrationLayer(Focal(1.0)), of_other_rows):
        loaded = nn.Sequential(nn.Linear(3, n_classes), other)
        assert not torch.allclose(other(x), layer(x))
        loaded.load_state_dict(state)
        assert torch.equal(other(x), layer(x))
        assert set(loaded.state_dict()) == set(state)
        assert repr(other).partition(",")[0] == repr(layer).partition(",")[0]
        again = [value for _, value in other.chain.parameters()]
        for value, known in zip(again, layer.chain.parameters(), strict=True):
            np.testing.assert_allclose(value, known[1], rtol=1e-6)


@dataclass(frozen=True)
class Scaled(Step):
    """Fields of a step may have any name."""

    w: float = number_field()
    w1: float = number_field()
    w_2: float = number_field()
    input: float = number_field()

    def apply(self, xp, scores):
        return scores * self.w * self.w1 * self.w_2 * self.input


def test_each_number_of_steps_has_a_buffer_of_its_own():
    steps = (Scaled(2.0, 0.5, 3.0, 0.7), Scaled(0.3, 1.5, 0.2, 5.0))
    layer = CalibrationLayer(*steps, dtype=torch.float64)
    values = [value for _, value in Chain(steps).parameters()]
    assert [buffer.item() for buffer in layer.buffers()] == values
    x = torch.randn(5, 3, dtype=torch.float64)
    np.testing.assert_allclose(layer(x).numpy(), Chain(steps).log_probabilities(x.numpy()), rtol=1e-12)
    other = CalibrationLayer(Scaled(1.0, 1.0, 1.0, 1.0), Scaled(1.0, 1.0, 1.0, 1.0), dtype=torch.float64)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))


PROBABILITIES = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])


@pytest.mark.parametrize(
    ("layer", "rows"),
    [
        (CalibrationLayer(Temperature(2.0), input="probabilities", n_classes=3), PROBABILITIES),
        (CalibrationLayer(Temperature(2.0), input="log-odds", n_classes=2), torch.tensor([-1.0, 0.5, 3.0])),
        (CalibrationLayer(Temperature(2.0), input="probabilities", n_classes=2), torch.tensor([0.1, 0.9])),
    ],
    ids=["probabilities", "log-odds", "one probability"],
)
def test_a_checkpoint_keeps_what_comes_in(layer, rows):
    other = CalibrationLayer()
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(rows), layer(rows))
    assert (other.input, other.n_classes) == (layer.input, layer.n_classes)


def test_a_checkpoint_of_the_steps_alone_still_loads():
    layer = CalibrationLayer(Temperature(2.0), Focal(0.5))
    before = {**layer.state_dict(), "_extra_state": torch.tensor(list(layer._structure.encode()), dtype=torch.uint8)}
    other = CalibrationLayer(input="probabilities", n_classes=3)
    other.load_state_dict(before)
    want = CalibrationLayer(Temperature(2.0), Focal(0.5), input="probabilities", n_classes=3)
    assert torch.equal(other(PROBABILITIES), want(PROBABILITIES))


def test_a_layer_of_several_labels_is_not_loaded_as_one_of_classes():
    several = MultiLabelLayer(Temperature(2.0), input="log-odds")
    with pytest.raises(FormatError, match="of a layer for labels that exclude nothing"):
        CalibrationLayer().load_state_dict(several.state_dict())
    other = MultiLabelLayer(input="probabilities")
    other.load_state_dict(several.state_dict())
    assert torch.equal(other(torch.tensor([[0.0, 4.0]])), several(torch.tensor([[0.0, 4.0]])))


@dataclass(frozen=True)
class Times(Step):
    """Steps of one's own may call their numbers as they like."""

    w1: float = number_field()
    w1_2: float = number_field()
    chain: float = number_field()

    def apply(self, xp, scores):
        return scores * (self.w1 * self.w1_2 * self.chain)


def test_each_number_of_a_step_that_occurs_again_has_its_own_buffer():
    steps = [Times(2.0, 3.0, 0.5), Times(0.1, 1.0, 7.0), Times(0.3, 5.0, 0.9)]
    layer = CalibrationLayer(*steps, dtype=torch.float64)
    numbers = [value for _, value in Chain(tuple(steps)).parameters()]
    assert [value.item() for value in layer.buffers()] == numbers
    x = torch.randn(4, 3, dtype=torch.float64)
    assert torch.allclose(layer(x), torch.log_softmax(x * float(np.prod(numbers)), dim=-1))


def test_a_checkpoint_of_numbers_alone_still_loads():
    layer = CalibrationLayer(Temperature(1.0), Focal(0.0))
    layer.load_state_dict({"temperature": torch.tensor(2.0), "gamma": torch.tensor(0.5)})
    x = torch.randn(4, 5)
    assert torch.equal(layer(x), CalibrationLayer(Temperature(2.0), Focal(0.5))(x))
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "gamma"'):
        layer.load_state_dict({"temperature": torch.tensor(2.0)})


def test_a_loaded_layer_keeps_its_device_and_precision():
    layer = CalibrationLayer(Temperature(2.0), Focal(0.5)).to(torch.float64)
    half = {name: value.half() if value.is_floating_point() else value for name, value in layer.state_dict().items()}
    other = CalibrationLayer(Temperature(1.0))
    other.load_state_dict(half)
    assert other.gamma.dtype == torch.float32
    assert other.gamma.item() == 0.5
    empty = CalibrationLayer(Temperature(1.0)).to("meta")
    empty.load_state_dict(layer.state_dict(), assign=True)
    assert empty.gamma.item() == 0.5


def test_a_damaged_checkpoint_is_refused():
    layer = TemperatureScaling().fit(*rows_of(3)).to_torch()
    for text in (b"[", b'[{"step": "Nothing"}]', b"3", b'[{"step": "Temperature"}]', b'{"steps": []}'):
        state = {**layer.state_dict(), "_extra_state": torch.tensor(list(text), dtype=torch.uint8)}
        with pytest.raises(FormatError):
            layer.load_state_dict(state)


def test_images_are_told_of_the_class_axis():
    fitted = TemperatureScaling().fit(*rows_of(3))
    with pytest.raises(ShapeError, match=r"axis -1.*for images .*to_torch\(class_axis=1\)"):
        fitted.to_torch()(torch.zeros(2, 3, 8, 8))
    with pytest.raises(ShapeError) as error:
        fitted.to_torch()(torch.zeros(2, 8, 8, 5))
    assert "class_axis=1" not in str(error.value)


def test_autocast_does_not_reach_the_layer():
    layer = AutoCalibration().fit(*rows_of(4)).to_torch()
    x = torch.randn(50, 4)
    want = layer(x)
    assert any(value.ndim == 2 for value in layer.state_dict().values())  # a matrix, which autocast would round
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer(x), want)
