"""Collecting logits from models of every habit, and fitting on tensors where they are."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from refocal import FocalTemperatureScaling, TemperatureScaling
from refocal.calibrators._fitted import focal_point
from refocal.data import Predictions
from refocal.errors import DataError, ParameterError, ShapeError
from refocal.nn import collect_logits


class Wrapped(nn.Module):
    """A model that returns its logits in the given way."""

    def __init__(self, wrap):
        super().__init__()
        self.inner, self.wrap = nn.Linear(4, 3), wrap

    def forward(self, features):
        return self.wrap(self.inner(features))


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrap",
    [lambda x: x, lambda x: {"loss": None, "logits": x}, lambda x: SimpleNamespace(logits=x), lambda x: (x, "more")],
)
def test_logits_are_found_in_every_kind_of_output(wrap):
    torch.manual_seed(0)
    x, y = torch.randn(10, 4), torch.randint(3, (10,))
    model = Wrapped(wrap)
    want = model.inner(x).detach()
    pairs = collect_logits(model, DataLoader(TensorDataset(x, y), batch_size=4))
    named = collect_logits(model, [{"features": x[:5], "labels": y[:5]}, {"features": x[5:], "labels": y[5:]}])
    for found in (pairs, named):
        torch.testing.assert_close(found.logits, want)
        assert isinstance(found, Predictions)
        assert np.array_equal(found.labels, y)
        assert not found.logits.requires_grad


def test_pixels_and_tokens_become_rows_and_ignored_ones_are_left_out():
    torch.manual_seed(0)
    image, mask = torch.randn(2, 4, 3, 5), torch.randint(3, (2, 3, 5))
    mask[0, 0] = 255
    found = collect_logits(nn.Conv2d(4, 3, 1), [(image, mask)], ignore_index=255)
    assert found.logits.shape == (25, 3)
    tokens, words = torch.randn(2, 7, 4), torch.randint(3, (2, 7))
    words[:, 5:] = -100
    model = nn.Linear(4, 3)
    found = collect_logits(model, [(tokens, words)])
    torch.testing.assert_close(found.logits, model(tokens)[:, :5].reshape(-1, 3).detach())
    assert np.array_equal(found.labels, words[:, :5].reshape(-1))


def test_an_axis_that_could_be_either_must_be_said():
    batch = (torch.randn(2, 3, 4), torch.randint(3, (2, 3)))
    with pytest.raises(ParameterError, match="'class_axis' of collect_logits must be given"):
        collect_logits(nn.Linear(4, 3), [batch])
    assert collect_logits(nn.Linear(4, 3), [batch], class_axis=-1).logits.shape == (6, 3)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_becomes_float32(kind):
    model = nn.Linear(4, 3).to(kind)
    x, y = torch.randn(10, 4, dtype=kind), torch.randint(3, (10,))
    found = collect_logits(model, [(x, y)])
    assert found.logits.dtype == torch.float32
    torch.testing.assert_close(found.logits, model(x).detach().float())
    found = collect_logits(model, [(x, torch.arange(10) % 3)])
    assert TemperatureScaling().fit(found.logits, found.labels).temperature_ > 0


def test_the_modes_of_the_model_are_put_back_even_after_an_error():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 3))
    model.train()
    model[0].eval()
    collect_logits(model, [(torch.randn(2, 4), torch.zeros(2, dtype=torch.int64))])
    assert [part.training for part in model.modules()] == [True, False, True, True]
    with pytest.raises(ShapeError, match="one for each row of logits"):
        collect_logits(model, [(torch.randn(2, 4), torch.zeros(3, dtype=torch.int64))])
    assert model.training


def test_batches_are_counted_on_a_terminal_only(capsys, monkeypatch):
    loader = [(torch.randn(2, 4), torch.zeros(2, dtype=torch.int64))] * 3
    collect_logits(nn.Linear(4, 3), loader)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    collect_logits(nn.Linear(4, 3), loader)
    assert "batch 3 of 3" in capsys.readouterr().err
    collect_logits(nn.Linear(4, 3), loader, progress=False)
    assert capsys.readouterr().err == ""


def test_bad_batches_are_named():
    model = nn.Linear(4, 3)
    with pytest.raises(DataError, match=r"'loader' of collect_logits must be batches. Got none"):
        collect_logits(model, [])
    with pytest.raises(DataError, match="Got Tensor instead"):
        collect_logits(model, [torch.randn(2, 4)])
    with pytest.raises(ParameterError, match="'label_key'"):
        collect_logits(model, [{"input": torch.randn(2, 4), "target": torch.zeros(2)}])
    with pytest.raises(DataError, match="'model' of collect_logits"):
        collect_logits(Wrapped(lambda x: x.argmax(1)), [(torch.randn(2, 4), torch.zeros(2, dtype=torch.int64))])


@pytest.mark.slow
@pytest.mark.parametrize("calibrator", [TemperatureScaling(), FocalTemperatureScaling(objective="nll")])
def test_a_fit_on_half_precision_tensors_makes_no_copy_of_them(calibrator, monkeypatch):
    """They are widened block by block."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20_000, 50))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    tensor = torch.tensor(3.0 * logits, dtype=torch.bfloat16)  # of which NumPy has no view
    want = focal_point(calibrator.fit(tensor.double(), labels).chain_)
    sizes = []
    for name in ("cpu", "__array__", "numpy"):
        original = getattr(torch.Tensor, name)

        def watched(self, *args, original=original, **kwargs):
            sizes.append(self.numel())
            return original(self, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, name, watched)
    got = calibrator.fit(tensor, torch.tensor(labels))
    assert max(sizes) <= logits.size / 3
    assert focal_point(got.chain_) == pytest.approx(want, rel=1e-5, abs=1e-5)
