"""The losses as other libraries' trainers call them.

The recipes of docs/torch.md run with Lightning, transformers and timm where installed, else with stand-ins.
"""

from __future__ import annotations

import re
import sys
from collections import OrderedDict
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from refocal.errors import LabelError, ShapeError
from refocal.nn import (
    MMCE,
    AdaFocalLoss,
    BrierLoss,
    FocalLoss,
    ProperFocalLoss,
    SampleDependentFocalLoss,
    SigmoidFocalLoss,
)

PAGE = (Path(__file__).parents[2] / "docs" / "torch.md").read_text(encoding="utf-8")
RECIPES = {re.search(r"import (?:\w+ from )?(\w+)|from (\w+)", text)[0].split()[1]: text
           for text in re.findall(r"```py\n(.*?)```", PAGE, re.S)}  # fmt: skip


@pytest.fixture
def rows():
    torch.manual_seed(0)
    return torch.randn(64, 5), torch.randint(3, (64,))


@pytest.mark.parametrize(
    "loss",
    [FocalLoss(), ProperFocalLoss(), FocalLoss(weight=torch.tensor([1.0, 2, 3])), SampleDependentFocalLoss(),
     BrierLoss(), AdaFocalLoss()],
)  # fmt: skip
@pytest.mark.parametrize("kind", [dict, OrderedDict, SimpleNamespace])
def test_outputs_with_logits_are_taken_for_them(rows, loss, kind):
    logits, labels = torch.randn(8, 7, 3), torch.randint(3, (8, 7))  # tokens
    labels[:, 5:] = -100
    flat, flat_labels = logits.reshape(-1, 3), labels.reshape(-1)
    torch.testing.assert_close(loss(kind(logits=logits), labels), loss(flat, flat_labels))
    summed = type(loss)(weight=loss.weight, reduction="sum")(flat, flat_labels)
    found = loss(kind(logits=logits), labels, num_items_in_batch=torch.tensor(11))
    torch.testing.assert_close(found, summed / 11)


def test_parts_of_a_batch_add_up_to_the_mean_of_the_whole(rows):
    """What gradient accumulation needs: parts of different size, each divided by the number of all labels."""
    logits, labels = torch.randn(30, 3), torch.randint(3, (30,))
    labels[::7] = -100
    n_items = int((labels != -100).sum())
    for loss in (FocalLoss(2.0), FocalLoss(0.0)):
        parts = [loss({"logits": logits[part]}, labels[part], num_items_in_batch=n_items)
                 for part in (slice(0, 4), slice(4, 30))]  # fmt: skip
        torch.testing.assert_close(sum(parts), loss(logits, labels))
    torch.testing.assert_close(sum(parts), cross_entropy(logits, labels))
    many, targets = torch.randn(6, 4), torch.randint(2, (6, 4)).float()
    parts = [SigmoidFocalLoss()({"logits": many[part]}, targets[part], num_items_in_batch=24)
             for part in (slice(0, 1), slice(1, 6))]  # fmt: skip
    torch.testing.assert_close(sum(parts), SigmoidFocalLoss()(many, targets))


@pytest.mark.parametrize("loss", [MMCE(), FocalLoss(), BrierLoss(), AdaFocalLoss()])
def test_a_part_without_labels_adds_nothing(loss):
    logits = torch.randn(3, 4, requires_grad=True)
    value = loss(logits, torch.full((3,), -100), num_items_in_batch=torch.tensor(7))
    value.backward()
    assert value == 0.0
    assert (logits.grad == 0.0).all()


@pytest.mark.parametrize("loss", [FocalLoss(), SigmoidFocalLoss()])
def test_outputs_without_logits_or_labels_are_refused(loss):
    name = type(loss).__name__
    with pytest.raises(ShapeError, match=f"'logits' of {name} must be a floating-point tensor, or the output"):
        loss({"loss": torch.tensor(0.0)}, torch.tensor([0]))
    with pytest.raises(LabelError, match=rf"'labels' of {name} must be a tensor; .*forward\(\).* Got a NoneType"):
        loss({"logits": torch.zeros(2, 3)}, None)


class HuggingFaceTrainer:
    """Calls model and loss as `transformers.Trainer` does, with two steps of gradient accumulation."""

    def __init__(self, model, arguments, train_dataset, compute_loss_func):
        self.model, self.rows, self.compute_loss_func = model, train_dataset, compute_loss_func

    def train(self):
        solver = torch.optim.SGD(self.model.parameters(), lr=0.1)
        halves = self.rows[::2], self.rows[1::2]
        n_items = torch.tensor(len(self.rows))
        self.losses = []
        for half in halves:
            labels = torch.tensor([row["labels"] for row in half])
            outputs = self.model(inputs=torch.stack([row["inputs"] for row in half]))
            loss = self.compute_loss_func(outputs, labels, num_items_in_batch=n_items)
            loss.backward()
            self.losses.append(loss.item())
        solver.step()

    def predict(self, rows):
        with torch.no_grad():
            logits = self.model(inputs=torch.stack([row["inputs"] for row in rows]))["logits"]
        return SimpleNamespace(
            predictions=logits.numpy(), label_ids=torch.tensor([row["labels"] for row in rows]).numpy()
        )


class LightningTrainer:
    """Calls a module as `lightning.Trainer` does."""

    def __init__(self, max_epochs):
        self.max_epochs = max_epochs

    def fit(self, module, loader):
        solver = module.configure_optimizers()
        for _ in range(self.max_epochs):
            for index, batch in enumerate(loader):
                solver.zero_grad()
                module.training_step(batch, index).backward()
                solver.step()


def installed_or(monkeypatch, name, **contents):
    """Put a stand-in in the place of a library that is not installed; whether it is."""
    if find_spec(name) is not None:
        return True
    module = ModuleType(name)
    module.__dict__.update(contents)
    monkeypatch.setitem(sys.modules, name, module)
    return False


@pytest.fixture
def in_empty_folder(tmp_path, monkeypatch):
    """Trainers write logs and checkpoints where they run."""
    monkeypatch.chdir(tmp_path)


def run(recipe, names):
    exec(compile(recipe, "<docs/torch.md>", "exec"), names)  # noqa: S102
    return names


class WithLogits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs, labels=None):
        return {"logits": self.model(inputs)}


warnings_of_others = pytest.mark.filterwarnings("default")  # what other libraries warn of is no error here


@warnings_of_others
@pytest.mark.usefixtures("in_empty_folder")
def test_the_recipe_for_hugging_face(rows, monkeypatch):
    real = installed_or(
        monkeypatch, "transformers", Trainer=HuggingFaceTrainer, TrainingArguments=lambda folder: folder
    )
    data = [{"inputs": x, "labels": int(y)} for x, y in zip(*rows, strict=True)]
    model = WithLogits(nn.Linear(5, 3))
    before = FocalLoss(2.0)(model(rows[0])["logits"], rows[1]).item()
    found = run(RECIPES["transformers"], {"model": model, "training_rows": data, "validation_rows": data})
    assert FocalLoss(2.0)(model(rows[0])["logits"], rows[1]).item() < before
    if not real:
        assert sum(found["trainer"].losses) == pytest.approx(before, rel=1e-6)
    assert found["calibrator"].n_features_in_ == 3


@warnings_of_others
@pytest.mark.usefixtures("in_empty_folder")
def test_the_recipe_for_lightning(rows, monkeypatch):
    installed_or(monkeypatch, "lightning", LightningModule=nn.Module, Trainer=LightningTrainer)
    model = nn.Linear(5, 3)
    before = FocalLoss(2.0)(model(rows[0]), rows[1]).item()
    loader = DataLoader(TensorDataset(*rows), batch_size=16)
    found = run(RECIPES["lightning"], {"model": model, "training": loader, "validation": loader})
    assert FocalLoss(2.0)(model(rows[0]), rows[1]).item() < before
    assert found["calibrator"].n_features_in_ == 3


@warnings_of_others
def test_the_recipe_for_timm(rows, monkeypatch):
    def create_model(name, num_classes):
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, num_classes))

    real = installed_or(monkeypatch, "timm", create_model=create_model)
    images, labels = torch.randn(4, 3, 32, 32), torch.randint(2, (4, 10)).float()
    found = run(RECIPES["timm"], {"images": images, "labels": labels})
    assert found["p"].shape == (4, 10)
    assert bool((found["p"] >= 0.0).all() and (found["p"] <= 1.0).all())
    if real:
        from timm.loss import AsymmetricLossMultiLabel

        logits, theirs = torch.randn(4, 10), AsymmetricLossMultiLabel(gamma_neg=4, gamma_pos=1, clip=0.05)
        torch.testing.assert_close(found["loss"](logits, labels), theirs(logits, labels) / labels.numel())
