"""Recipes, data sets, networks and the training loop, on tiny data and the CPU."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from refocal import losses
from refocal.errors import DataError, FormatError, ParameterError
from refocal.experiments import sweep, table
from refocal.experiments.datasets import DatasetNotFoundError, load_dataset, read_atlas, split_rows, synthetic
from refocal.experiments.networks import NETWORKS, make_network
from refocal.experiments.recipe import LOSSES, Recipe, paper, read_recipe, short
from refocal.experiments.training import Batches, Trainer, make_loss

TINY = short("synthetic", epochs=4, network="tiny")


# Recipes -------------------------------------------------------------------------------------------------------------


def test_the_papers_recipes():
    cifar = paper("cifar100")
    rates = [cifar.rate(epoch) for epoch in (0, 149, 150, 249, 250, 349)]
    np.testing.assert_allclose(rates, [0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    assert (cifar.epochs, cifar.batch_size, cifar.clip_norm, cifar.validation_rows) == (350, 128, 2.0, 5000)
    tiny = paper("tinyimagenet")
    assert (tiny.epochs, tiny.drops, tiny.batch_size, tiny.validation_rows) == (100, (40, 60), 64, 10_000)
    brief = short("cifar100")
    assert (brief.epochs, brief.drops) == (60, (26, 43))


def test_the_name_of_a_run_tells_recipes_apart():
    names = {replace(TINY, loss=loss, seed=seed).key for loss in LOSSES for seed in (1, 2)}
    assert len(names) == 2 * len(LOSSES)
    assert replace(TINY, weight_decay=1e-4).key != TINY.key
    assert TINY.key == replace(TINY).key


def test_recipes_from_files(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text('dataset = "cifar100"\nloss = "focal-3"\nepochs = 10\ndrops = [4, 7]\n')
    assert read_recipe(path) == Recipe("cifar100", loss="focal-3", epochs=10, drops=(4, 7))
    path.write_text('dataset = "cifar100"\nlearning_rat = 0.2\n')
    with pytest.raises(FormatError, match=r"unknown key 'learning_rat'; known are batch_size, "):
        read_recipe(path)
    path.write_text("epochs = 3\n")
    with pytest.raises(FormatError, match="'dataset' is missing"):
        read_recipe(path)
    path.write_text("dataset = ")
    with pytest.raises(FormatError, match="not a TOML file"):
        read_recipe(path)
    with pytest.raises(ParameterError, match="'loss' of Recipe must be one of 'cross-entropy'"):
        Recipe("cifar100", loss="hinge")


# Data sets -----------------------------------------------------------------------------------------------------------


def test_atlases(tmp_path):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, size=(10_000, 2, 2, 3), dtype=np.uint8)
    atlas = np.zeros((200, 200, 3), np.uint8)
    for k, image in enumerate(images):
        row, column = divmod(k, 100)
        atlas[2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = image
    folder = tmp_path / "some"
    folder.mkdir()
    for name in ("train_0", "train_1", "test"):
        Image.fromarray(atlas).save(folder / f"{name}.webp", lossless=True)
    np.testing.assert_array_equal(read_atlas(folder / "test.webp"), images)
    labels = rng.integers(0, 7, 20_000).astype(np.uint8)
    np.savez(folder / "labels.npz", train=labels, test=labels[:10_000])
    data = load_dataset("some", tmp_path)
    assert data.train.shape == (20_000, 2, 2, 3)
    assert data.n_classes == 7
    np.testing.assert_array_equal(data.train[10_000:], images)
    np.savez(folder / "labels.npz", train=labels[:100], test=labels[:10_000])
    with pytest.raises(DataError, match=r"of 100 images, as labels.npz says. Got 20000"):
        load_dataset("some", tmp_path)


def test_a_missing_data_set_says_where_it_was_looked_for(tmp_path, capsys):
    with pytest.raises(DatasetNotFoundError, match=r"No data set 'cifar10': looked for .*labels.npz"):
        load_dataset("cifar10", tmp_path)
    arguments = ["--data", str(tmp_path), "--out", str(tmp_path / "runs"), "--dataset", "cifar10"]
    assert sweep.main(arguments) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_splits_are_seeded_and_disjoint():
    a, b = split_rows(100, 20, 1), split_rows(100, 20, 1)
    np.testing.assert_array_equal(a.validation, b.validation)
    assert len(a.train) == 80
    assert sorted([*a.train, *a.validation]) == list(range(100))
    assert not np.array_equal(a.validation, split_rows(100, 20, 2).validation)
    with pytest.raises(DataError, match=r"fewer than 10\. Got 10"):
        split_rows(10, 10, 1)


# Networks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "millions"),
    # ResNet-18 and -50 for CIFAR-10 in the widely used layout, ResNet-110 and WRN-28-10 as their papers give them
    [("resnet18", 11.174), ("resnet50", 23.521), ("resnet110", 1.73), ("wideresnet-28-10", 36.48)],
)
def test_the_number_of_weights(name, millions):
    network = make_network(name, 10, seed=0)
    count = sum(p.numel() for p in network.parameters()) / 1e6
    assert count == pytest.approx(millions, rel=2e-3)


@pytest.mark.parametrize("side", [32, 64])
def test_networks_take_images_of_either_size(side):
    for name in NETWORKS:
        if name == "wideresnet-28-10" and side == 64:
            continue  # too slow for a test
        assert make_network(name, 7, seed=0).eval()(torch.zeros(1, 3, side, side)).shape == (1, 7)
    a, b, c = (make_network("tiny", 4, seed).head.weight for seed in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    with pytest.raises(ParameterError, match="'network' of make_network must be one of 'resnet18'"):
        make_network("alexnet", 4, 0)


# Training ------------------------------------------------------------------------------------------------------------


def test_batches_are_crops_and_flips_of_the_images():
    data = synthetic(n_train=96)
    batches = Batches(data.train, data.train_labels, replace(TINY, batch_size=32), torch.device("cpu"))
    padded = np.pad(data.train, ((0, 0), (4, 4), (4, 4), (0, 0)))
    seen = []
    for x, y in batches:
        pixels = (x.permute(0, 2, 3, 1) * batches.std + batches.mean).round().to(torch.uint8).numpy()
        for image, label in zip(pixels[:4], y[:4], strict=True):
            windows = np.lib.stride_tricks.sliding_window_view(padded, (32, 32), axis=(1, 2))
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


@pytest.mark.parametrize("loss", LOSSES)
def test_the_training_losses(loss):
    logits, labels = torch.randn(20, 5, dtype=torch.float64) * 3, torch.randint(0, 5, (20,))
    recipe = replace(TINY, loss=loss)
    expected = {
        "cross-entropy": lambda: losses.cross_entropy(logits, labels),
        "flsd-53": lambda: losses.sample_dependent_focal(logits, labels),
        "adafocal": lambda: losses.focal(logits, labels, 1.0),  # where every bin begins
    }.get(loss, lambda: losses.focal(logits, labels, recipe.gamma))()
    torch.testing.assert_close(make_loss(recipe)(logits, labels), expected)


def test_adafocal_follows_the_validation_set_and_continues(tmp_path):
    recipe, data = replace(TINY, loss="adafocal"), synthetic()
    whole = Trainer(recipe, data, tmp_path / "whole", torch.device("cpu"))
    whole.run()
    assert whole.loss.gammas.unique().numel() > 1
    first = Trainer(recipe, data, tmp_path / "broken", torch.device("cpu"))
    for _ in range(2):
        first._train_epoch()
    first._save()
    second = Trainer(recipe, data, tmp_path / "broken", torch.device("cpu"))
    second.run()
    assert torch.equal(second.loss.gammas, whole.loss.gammas)
    np.testing.assert_array_equal(second.logits(data.test), whole.logits(data.test))


def test_a_step_is_clipped_sgd_on_the_summed_loss(tmp_path):
    data = synthetic()
    trainer = Trainer(TINY, data, tmp_path, torch.device("cpu"))
    twin = make_network("tiny", 4, TINY.seed)
    plain = torch.optim.SGD(twin.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
    batches = Batches(
        data.train[trainer.split.train], data.train_labels[trainer.split.train], TINY, torch.device("cpu")
    )
    for x, y in batches:
        plain.zero_grad()
        torch.nn.functional.cross_entropy(twin(x), y, reduction="sum").backward()
        torch.nn.utils.clip_grad_norm_(twin.parameters(), 2.0)
        plain.step()
    trainer._train_epoch()
    for ours, theirs in zip(trainer.network.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_networks_learn(tmp_path):
    data = synthetic()
    recipe = short("synthetic", epochs=12, network="tiny")
    assert sweep.run_cell(recipe, data, tmp_path)
    (folder,) = tmp_path.iterdir()
    logits = np.load(folder / "logits.npz")
    assert logits["val"].shape == (160, 4)
    assert logits["test"].dtype == np.float16
    assert (logits["test"].argmax(axis=1) == logits["yt"]).mean() > 0.8
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [entry["epoch"] for entry in log] == list(range(1, 13))
    assert log[-1]["loss"] < log[0]["loss"]
    assert sorted(path.name for path in folder.iterdir()) == ["done", "log.jsonl", "logits.npz", "recipe.json"]
    assert not sweep.run_cell(recipe, data, tmp_path)


SCRIPT = """
import sys, time
from dataclasses import replace
from pathlib import Path
import torch
from refocal.experiments import sweep, table
from refocal.experiments.datasets import synthetic
from refocal.experiments.recipe import short
torch.set_num_threads(1)
recipe = short("synthetic", epochs=6, network="tiny", loss="focal-3")
slow = lambda log: time.sleep(float(sys.argv[2]))
sweep.run_cell(recipe, synthetic(), Path(sys.argv[1]), checkpoint_every=2, on_epoch=slow)
"""


def test_a_killed_run_continues_to_the_same_logits(tmp_path):
    def start(folder, pause):
        return subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path / folder), str(pause)])  # noqa: S603

    assert start("whole", 0).wait(timeout=120) == 0
    run = start("broken", 0.5)
    recipe = short("synthetic", epochs=6, network="tiny", loss="focal-3")
    log = tmp_path / "broken" / recipe.key / "log.jsonl"
    deadline = time.monotonic() + 100
    while not (log.is_file() and log.read_text().count("\n") >= 3):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert not (log.parent / "done").exists()
    assert start("broken", 0).wait(timeout=120) == 0
    whole, broken = (np.load(tmp_path / name / recipe.key / "logits.npz") for name in ("whole", "broken"))
    for part in ("val", "test"):
        np.testing.assert_array_equal(whole[part], broken[part])
    assert log.read_text().count("\n") == 6


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path):
    trainer = Trainer(TINY, synthetic(), tmp_path, torch.device("cpu"))
    trainer._save()
    with pytest.raises(FormatError, match="belongs to another recipe"):
        Trainer(replace(TINY, seed=2), synthetic(), tmp_path, torch.device("cpu"))


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    trainer = Trainer(TINY, synthetic(), tmp_path, torch.device("cpu"))
    trainer._save()
    before = (tmp_path / "checkpoint.pt").read_bytes()

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space left"):
        trainer._save()
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_sweep_stops_between_cells(tmp_path, capsys):
    recipes = [replace(TINY, epochs=1, seed=seed) for seed in range(3)]
    assert sweep.run_sweep(recipes[:1], synthetic(), tmp_path) == 1
    assert sweep.run_sweep(recipes, synthetic(), tmp_path, seconds=1e-9) == 0
    assert "stopped before" in capsys.readouterr().out
    assert sweep.run_sweep(recipes[:2], synthetic(), tmp_path) == 1
    assert "skipped synthetic-tiny-cross-entropy-0" in capsys.readouterr().out
    assert [sweep.parse_duration(text) for text in ("90", "90s", "25m", "2h", "inf")] == [90, 90, 1500, 7200, np.inf]
    with pytest.raises(ParameterError, match=r"'time-budget' of sweep must be .*Got 'soon'"):
        sweep.parse_duration("soon")


# The table -----------------------------------------------------------------------------------------------------------


def test_the_table_of_finished_cells(tmp_path, capsys):
    runs = tmp_path / "runs"
    data = synthetic(n_train=800)
    for seed in (1, 2):
        sweep.run_cell(replace(TINY, epochs=3, seed=seed), data, runs)
    sweep.run_cell(replace(TINY, epochs=3, loss="focal-3"), data, runs)
    assert table.main([str(runs), "-o", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "table.md").read_text()
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if line.startswith("|")]
    assert {len(line) for line in lines} == {11}
    assert [line[:4] for line in lines[2:]] == [
        ["synthetic, tiny, cross-entropy", "TS", "3 epochs", "2"],
        ["synthetic, tiny, cross-entropy", "FTS", "3 epochs", "2"],
        ["synthetic, tiny, focal-3", "TS", "3 epochs", "1"],
        ["synthetic, tiny, focal-3", "FTS", "3 epochs", "1"],
    ]
    assert "±" in lines[2][4]
    assert printed.count(" of 3 smaller)") == 8
    cells = [json.loads(path.read_text()) for path in sorted(runs.glob("*cross-entropy*/metrics.json"))]
    logits = np.load(next(runs.glob("*focal-3*")) / "logits.npz")
    one = json.loads((next(runs.glob("*focal-3*")) / "metrics.json").read_text())
    assert one["accuracy"] == pytest.approx((logits["test"].argmax(axis=1) == logits["yt"]).mean())
    mean = np.mean([cell["ts"]["nll"]["log_loss"] for cell in cells])
    assert lines[2][5].startswith(f"{mean:.3f} ±")
    for cell in (*cells, one):
        assert cell["fts"]["nll"]["temperature"] > 0.0
        apart = cell["differences"]["fts - ts, ece"]
        assert apart["difference"] == pytest.approx(cell["fts"]["ece"]["ece"] - cell["ts"]["ece"]["ece"], abs=1e-12)
    assert r"\begin{tabular}" in (tmp_path / "table.tex").read_text()
    assert len(json.loads((tmp_path / "table.json").read_text())) == 4
