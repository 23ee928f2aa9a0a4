"""The losses as other libraries' trainers call them; the recipes of docs/torch.md run against stand-ins for these."""

from __future__ import annotations

import re
import sys
from collections import OrderedDict
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from refocal.errors import ShapeError
from refocal.nn import FocalLoss, ProperFocalLoss, SigmoidFocalLoss

PAGE = (Path(__file__).parents[2] / "docs" / "torch.md").read_text(encoding="utf-8")
RECIPES = {re.search(r"import (?:\w+ from )?(\w+)|from (\w+)", text)[0].split()[1]: text
           for text in re.findall(r"```py\n(.*?)```", PAGE, re.S)}  # fmt: skip


@pytest.fixture
def rows():
    torch.manual_seed(0)
    return torch.randn(64, 5), torch.randint(3, (64,))


@pytest.mark.parametrize(
    "loss", [FocalLoss(2.0), ProperFocalLoss(2.0), FocalLoss(2.0, weight=torch.tensor([1.0, 2, 3]))]
)
@pytest.mark.parametrize("kind", [dict, OrderedDict, SimpleNamespace])
def test_outputs_with_logits_are_taken_for_them(rows, loss, kind):
    logits, labels = torch.randn(8, 7, 3), torch.randint(3, (8, 7))  # tokens
    labels[:, 5:] = -100
    flat, flat_labels = logits.reshape(-1, 3), labels.reshape(-1)
    torch.testing.assert_close(loss(kind(logits=logits), labels), loss(flat, flat_labels))
    summed = type(loss)(2.0, weight=loss.weight, reduction="sum")(flat, flat_labels)
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


def test_outputs_without_logits_are_refused():
    with pytest.raises(ShapeError, match="'logits' of FocalLoss must be a tensor, or the output of a model"):
        FocalLoss()({"loss": torch.tensor(0.0)}, torch.tensor([0]))


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


def stand_in(monkeypatch, name, **contents):
    module = ModuleType(name)
    module.__dict__.update(contents)
    monkeypatch.setitem(sys.modules, name, module)


def run(recipe, names):
    exec(compile(recipe, "<docs/torch.md>", "exec"), names)  # noqa: S102
    return names


class WithLogits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs):
        return {"logits": self.model(inputs)}


def test_the_recipe_for_hugging_face(rows, monkeypatch):
    stand_in(monkeypatch, "transformers", Trainer=HuggingFaceTrainer, TrainingArguments=lambda folder: folder)
    data = [{"inputs": x, "labels": int(y)} for x, y in zip(*rows, strict=True)]
    model = WithLogits(nn.Linear(5, 3))
    expected = FocalLoss(2.0)(model(rows[0])["logits"], rows[1]).item()
    found = run(RECIPES["transformers"], {"model": model, "training_rows": data, "validation_rows": data})
    assert sum(found["trainer"].losses) == pytest.approx(expected, rel=1e-6)
    assert found["calibrator"].n_features_in_ == 3


def test_the_recipe_for_lightning(rows, monkeypatch):
    stand_in(monkeypatch, "lightning", LightningModule=nn.Module, Trainer=LightningTrainer)
    model = nn.Linear(5, 3)
    before = FocalLoss(2.0)(model(rows[0]), rows[1]).item()
    loader = DataLoader(TensorDataset(*rows), batch_size=16)
    found = run(RECIPES["lightning"], {"model": model, "training": loader, "validation": loader})
    assert FocalLoss(2.0)(model(rows[0]), rows[1]).item() < before
    assert found["calibrator"].n_features_in_ == 3


def test_the_recipe_for_timm(rows, monkeypatch):
    stand_in(monkeypatch, "timm", create_model=lambda name, num_classes: nn.Linear(5, num_classes))
    labels = torch.nn.functional.one_hot(rows[1], 10).float()
    found = run(RECIPES["timm"], {"images": rows[0], "labels": labels})
    assert found["p"].shape == (64, 10)
    assert bool((found["p"] >= 0.0).all() and (found["p"] <= 1.0).all())
