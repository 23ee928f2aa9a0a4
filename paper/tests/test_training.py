"""The training loop on tiny data and the CPU: batches, steps, losses, checkpoints, a full disk."""

from __future__ import annotations

import errno
import math
import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from refocal import losses
from refocal.errors import FormatError
from refocal_paper.batches import Batches
from refocal_paper.datasets import synthetic
from refocal_paper.networks import make_network
from refocal_paper.recipe import ALL_LOSSES, short
from refocal_paper.training import CheckpointError, Trainer, make_loss

TINY = short("synthetic", epochs=4, network="tiny")
CPU = torch.device("cpu")


def test_batches_are_crops_and_flips_of_the_images():
    data = synthetic(n_train=96)
    batches = Batches(data.train, data.train_labels, replace(TINY, batch_size=32), CPU)
    padded = np.pad(data.train, ((0, 0), (4, 4), (4, 4), (0, 0)))
    seen = []
    for x, y in batches:
        pixels = (x.permute(0, 2, 3, 1) * batches.std + batches.mean).round().to(torch.uint8).numpy()
        for image, label in zip(pixels[:4], y[:4], strict=True):
            windows = np.lib.stride_tricks.sliding_window_view(padded, (16, 16), axis=(1, 2))
            windows = windows.transpose(0, 1, 2, 4, 5, 3)
            hits = [
                (k, i, j, flip)
                for flip, candidate in enumerate((image, image[:, ::-1]))
                for k, i, j in np.argwhere((windows[..., :4, :4, :] == candidate[:4, :4]).all(axis=(3, 4, 5)))
                if (windows[k, i, j] == candidate).all()
            ]
            assert len(hits) == 1
            assert data.train_labels[hits[0][0]] == label
            seen.append(hits[0])
    assert {flip for *_, flip in seen} == {0, 1}
    assert len({(i, j) for _, i, j, _ in seen}) > 5


@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_the_training_losses(loss):
    logits, labels = torch.randn(20, 5, dtype=torch.float64) * 3, torch.randint(0, 5, (20,))
    recipe = replace(TINY, loss=loss)
    expected = {
        "cross-entropy": lambda: losses.cross_entropy(logits, labels),
        "flsd-53": lambda: losses.sample_dependent_focal(logits, labels),
        "adafocal": lambda: losses.focal(logits, labels, 1.0),  # where every bin begins
        "brier": lambda: (logits.softmax(dim=1) - torch.eye(5, dtype=torch.float64)[labels]).square().sum(dim=1),
        "label-smoothing": lambda: 0.95 * losses.cross_entropy(logits, labels) - 0.05 * logits.log_softmax(1).mean(1),
        "mmce": lambda: _cross_entropy_and_mmce(logits, labels).expand(20),
        "dual-focal": lambda: _dual_focal(logits, labels),
    }.get(loss, lambda: losses.focal(logits, labels, recipe.gamma))()
    torch.testing.assert_close(make_loss(recipe)(logits, labels), expected)


def _cross_entropy_and_mmce(logits, labels):
    """Kumar et al. (2018), pair by pair, with strength 2 and width 0.4."""
    confidence, top = logits.softmax(dim=1).max(dim=1)
    rows = list(zip((confidence - (top == labels).double()).tolist(), confidence.tolist(), strict=True))
    square = sum(a * b * math.exp(-abs(r - s) / 0.4) for a, r in rows for b, s in rows)
    return losses.cross_entropy(logits, labels).mean() + 2.0 * math.sqrt(square) / len(rows)


def _dual_focal(logits, labels):
    """Tao et al. (2023), row by row, with γ = 5."""
    values = []
    for row, label in zip(logits.softmax(dim=1).tolist(), labels.tolist(), strict=True):
        below = max((p for p in row if p < row[label]), default=0.0)
        values.append(-((1.0 - row[label] + below) ** 5) * math.log(row[label]))
    return torch.tensor(values, dtype=torch.float64)


def test_dual_focal_loss_of_a_class_that_is_last_equal_or_certain():
    loss = make_loss(replace(TINY, loss="dual-focal"))
    last, equal, certain = [0.0, 1.0, 2.0], [1.0, 1.0, 0.0], [60.0, 0.0, 0.0]
    logits = torch.tensor([last, equal, certain], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 0, 0])
    values = loss(logits, labels)
    torch.testing.assert_close(values, _dual_focal(logits, labels))
    p_last = math.exp(0.0) / sum(map(math.exp, last))
    assert values[0].item() == pytest.approx(-((1.0 - p_last) ** 5) * math.log(p_last), rel=1e-12)
    values.sum().backward()
    assert logits.grad.isfinite().all()


def test_dual_focal_loss_trains(tmp_path):
    data = synthetic()
    trainer = Trainer(replace(TINY, loss="dual-focal"), data, tmp_path, CPU)
    labels = torch.from_numpy(data.train_labels)
    before = trainer.loss(torch.from_numpy(trainer.logits(data.train)), labels).mean()
    trainer.run()
    after = trainer.loss(torch.from_numpy(trainer.logits(data.train)), labels).mean()
    assert after < 0.5 * before


def test_adafocal_follows_the_validation_set_and_continues(tmp_path):
    recipe, data = replace(TINY, loss="adafocal"), synthetic()
    whole = Trainer(recipe, data, tmp_path / "whole", CPU)
    whole.run()
    assert whole.loss.gammas.unique().numel() > 1
    first = Trainer(recipe, data, tmp_path / "broken", CPU)
    for _ in range(2):
        first._train_epoch()
    first._save()
    second = Trainer(recipe, data, tmp_path / "broken", CPU)
    second.run()
    assert torch.equal(second.loss.gammas, whole.loss.gammas)
    np.testing.assert_array_equal(second.logits(data.test), whole.logits(data.test))


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_a_step_is_clipped_sgd_on_the_loss_of_a_batch(tmp_path, reduction):
    data = synthetic()
    trainer = Trainer(replace(TINY, reduction=reduction), data, tmp_path, CPU)
    twin = make_network("tiny", 4, TINY.seed)
    plain = torch.optim.SGD(twin.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
    batches = Batches(data.train[trainer.split.train], data.train_labels[trainer.split.train], TINY, CPU)
    for x, y in batches:
        plain.zero_grad()
        torch.nn.functional.cross_entropy(twin(x), y, reduction=reduction).backward()
        torch.nn.utils.clip_grad_norm_(twin.parameters(), 2.0)
        plain.step()
    trainer._train_epoch()
    for ours, theirs in zip(trainer.network.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path):
    trainer = Trainer(TINY, synthetic(), tmp_path, CPU)
    trainer._save()
    with pytest.raises(FormatError, match="belongs to another recipe"):
        Trainer(replace(TINY, seed=2), synthetic(), tmp_path, CPU)


def test_images_are_standardised_by_the_training_images():
    data = synthetic(n_train=1500)
    batches = Batches(data.train, data.train_labels, TINY, CPU)
    np.testing.assert_allclose(batches.mean, data.train.astype(float).mean(axis=(0, 1, 2)), rtol=1e-6)
    np.testing.assert_allclose(batches.std, data.train.astype(float).std(axis=(0, 1, 2)), rtol=1e-6)
    grey = Batches(np.full_like(data.train, 7), data.train_labels, TINY, CPU)
    assert all(torch.isfinite(x).all() for x, _ in grey)


def test_a_checkpoint_that_cannot_be_read(tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes(b"nonsense")
    with pytest.raises(FormatError, match="not a checkpoint that can be read; remove it"):
        Trainer(TINY, synthetic(), tmp_path, CPU)


def test_a_full_disk_stops_the_run_in_one_line_and_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    data = synthetic()
    whole = Trainer(TINY, data, tmp_path / "whole", CPU)
    whole.run(checkpoint_every=1)
    trainer = Trainer(TINY, data, tmp_path / "full", CPU)
    sync, synced = os.fsync, []

    def full(descriptor):
        synced.append(descriptor)
        if len(synced) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(CheckpointError) as caught:
            trainer.run(checkpoint_every=1)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'full'}: No space left on device; the run stopped after epoch 3.")
    assert "same command goes on from the last checkpoint, which is whole" in message
    assert "\n" not in message
    assert sorted(path.name for path in (tmp_path / "full").iterdir()) == ["checkpoint.pt", "log.jsonl"]
    again = Trainer(TINY, data, tmp_path / "full", CPU)
    assert again.epoch == 2
    again.run(checkpoint_every=1)
    np.testing.assert_array_equal(again.logits(data.test), whole.logits(data.test))


def test_a_disk_that_is_full_from_the_start(tmp_path, monkeypatch):
    trainer = Trainer(TINY, synthetic(), tmp_path, CPU)

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(CheckpointError, match="begins anew: there was no checkpoint"):
            trainer.run(checkpoint_every=1)
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]
    assert Trainer(TINY, synthetic(), tmp_path, CPU).epoch == 0
    assert (tmp_path / "log.jsonl").read_text() == ""


def test_every_batch_is_told(tmp_path):
    steps, logs = [], []
    trainer = Trainer(TINY, synthetic(), tmp_path, CPU)
    trainer.run(on_epoch=logs.append, on_batch=lambda epoch, batch: steps.append((epoch, batch)))
    per_epoch = len(trainer.batches)
    assert steps == [(epoch, batch) for epoch in range(4) for batch in range(1, per_epoch + 1)]
    assert [log["epoch"] for log in logs] == [1, 2, 3, 4]
    assert set(logs[0]) == {"epoch", "loss", "accuracy", "learning_rate", "seconds"}
