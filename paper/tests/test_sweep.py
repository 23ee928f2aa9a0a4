"""Sweeps: cells that are skipped, stopped, killed and continued, by one process or by several."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from torch import nn

from refocal.errors import ParameterError
from refocal_paper import networks, smoke, sweep
from refocal_paper.datasets import split_rows, synthetic
from refocal_paper.recipe import Recipe, short
from refocal_paper.training import Trainer

TINY = short("synthetic", epochs=4, network="tiny")


def test_networks_learn(tmp_path):
    data = synthetic()
    recipe = short("synthetic", epochs=12, network="tiny")
    assert sweep.run_cell(recipe, data, tmp_path)
    (folder,) = tmp_path.iterdir()
    logits = np.load(folder / "logits.npz")
    assert logits["val"].shape == (160, 4)
    assert logits["test"].dtype == np.float16
    assert logits["train"].shape == (480, 4)  # all there are, being fewer than 5,000
    assert logits["train"].dtype == np.float16
    assert (logits["train"].argmax(axis=1) == logits["ytr"]).mean() > 0.9
    assert (logits["test"].argmax(axis=1) == logits["yt"]).mean() > 0.8
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [entry["epoch"] for entry in log] == list(range(1, 13))
    assert log[-1]["loss"] < log[0]["loss"]
    assert sorted(path.name for path in folder.iterdir()) == ["done", "log.jsonl", "logits.npz", "recipe.json"]
    assert not sweep.run_cell(recipe, data, tmp_path)


def test_the_logits_of_training_images_are_those_of_the_same_sample_in_every_cell(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "TRAIN_ROWS", 100)
    data, recipes = synthetic(), [replace(TINY, epochs=1, seed=seed) for seed in (1, 2)]
    sweep.run_sweep(recipes, data, tmp_path)
    one, two = (np.load(tmp_path / recipe.key / "logits.npz") for recipe in recipes)
    learnt = split_rows(len(data.train), TINY.validation_rows, TINY.split_seed).train
    rows = sweep.train_rows(learnt, TINY.split_seed)
    assert len(set(rows)) == 100
    assert set(rows) <= set(learnt)
    assert list(rows) != list(learnt[:100])
    for logits in (one, two):
        assert logits["train"].shape == (100, 4)
        np.testing.assert_array_equal(logits["ytr"], data.train_labels[rows])
    assert not np.array_equal(one["train"], two["train"])


def test_what_is_kept_of_a_run_does_not_change_its_name():
    assert short("cifar100", loss="focal-3").key == "cifar100-resnet50-focal-3-1-3e640fc5"
    assert Recipe("cifar100").key == "cifar100-resnet50-cross-entropy-1-4068d914"


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A folder with a cell that was killed in its second epoch."""
    out = tmp_path_factory.mktemp("killed")
    assert smoke.kill_in_the_middle(out) == -signal.SIGKILL
    return out


@pytest.fixture
def killed_once(killed, monkeypatch):
    """The rehearsal finds the cell killed before, instead of killing another."""

    def kill(out):
        shutil.copytree(killed, out)
        return -signal.SIGKILL

    monkeypatch.setattr(smoke, "kill_in_the_middle", kill)


@pytest.mark.long
@pytest.mark.usefixtures("killed_once")
def test_the_rehearsal_kills_a_cell_and_continues_it_to_the_same_logits(tmp_path):
    checks = smoke.smoke(tmp_path, losses=("cross-entropy", "focal-3"))
    assert [check.what for check in checks if not check.passed] == []
    assert len(checks) == 8


@pytest.mark.usefixtures("killed_once")
def test_the_rehearsal_notices_a_run_that_does_not_continue(tmp_path, monkeypatch):
    """A checkpoint that forgets the random state gives other logits, and the rehearsal says so."""
    resume = Trainer._resume

    def forgetful(trainer, resume_from):
        state = trainer.batches.generator.get_state()
        resume(trainer, resume_from)
        trainer.batches.generator.set_state(state)

    monkeypatch.setattr(Trainer, "_resume", forgetful)
    failed = [check.what for check in smoke.smoke(tmp_path, losses=("focal-3",)) if not check.passed]
    assert failed == ["its logits equal those of the unbroken run, bit by bit"]


def test_a_sweep_skips_and_stops_between_cells(tmp_path, capsys):
    data, recipes = synthetic(), [replace(TINY, epochs=1, seed=seed) for seed in range(3)]
    keys = [recipe.key for recipe in recipes]
    assert sweep.run_sweep(recipes[:1], data, tmp_path) == (keys[:1], [], [])
    assert sweep.run_sweep(recipes, data, tmp_path, seconds=1e-9, watch=sweep.Lines()) == ([], [], keys)
    assert "stopped before" in capsys.readouterr().out
    assert sweep.run_sweep(recipes[:2], data, tmp_path, watch=sweep.Lines()) == (keys[1:2], keys[:1], [])
    printed = capsys.readouterr().out
    assert f"skipped {keys[0]}: done before" in printed
    assert f"{keys[1]}: epoch 1, loss " in printed


def test_durations():
    assert [sweep.parse_duration(text) for text in ("90", "90s", "25m", "2h", "inf")] == [90, 90, 1500, 7200, np.inf]
    for text in ("soon", "", "-5m", "nan", "0"):
        with pytest.raises(ParameterError, match=r"'time-budget' of sweep must be .*Got "):
            sweep.parse_duration(text)


def test_the_share_of_one_machine():
    recipes = [replace(TINY, seed=seed) for seed in range(10)]
    shares = [sweep.part_of(recipes, f"{i}/3") for i in (1, 2, 3)]
    assert sorted(recipe.seed for share in shares for recipe in share) == list(range(10))
    assert [recipe.seed for recipe in shares[1]] == [1, 4, 7]
    for text in ("0/3", "4/3", "1", "a/b", "1/0"):
        with pytest.raises(ParameterError, match="'part' of sweep must be a share such as 1/8"):
            sweep.part_of(recipes, text)


def test_the_module_runs_without_the_command_line(tmp_path, capsys):
    options = ["--out", str(tmp_path), "--network", "tiny", "--losses", "focal-7", "--epochs", "1"]
    assert sweep.main([*options, "--dataset", "synthetic"]) == 0
    (folder,) = tmp_path.iterdir()
    assert (folder / "done").exists()
    assert folder.name == short("synthetic", epochs=1, network="tiny", loss="focal-7").key
    assert sweep.main([*options, "--dataset", "cifar10", "--data", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


# Several processes ----------------------------------------------------------------------------------------------------

# The equality is tested with a network without batch statistics, so that what each process computes of its own rows
# adds up; a network with them is only run (on CPUs each process normalises by its own rows).
TOGETHER = """
import json, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from refocal_paper import networks, sweep
from refocal_paper.datasets import synthetic
from refocal_paper.ranks import joined_ranks
from refocal_paper.recipe import from_dict
networks.NETWORKS["plain"] = lambda n: eval(sys.argv[1], {"nn": torch.nn, "n": n})
out, recipes = Path(sys.argv[2]), [from_dict(json.loads(text), "") for text in sys.argv[3:]]


def stop(watch, log):
    if log["epoch"] == 2:
        raise InterruptedError


with joined_ranks() as ranks:
    if ranks.rank > 0:  # what another process wrote would land elsewhere
        out = out.with_name(f"rank-{ranks.rank}")
    go_on, sweep.Watch.epoch = sweep.Watch.epoch, stop  # in every process
    try:
        sweep.run_sweep(recipes, synthetic(), out, checkpoint_every=1)
    except InterruptedError:
        if ranks.is_first:
            print(*sorted(path.name for path in out.glob("*/*")))
    sweep.Watch.epoch = go_on
    for _ in range(2):
        swept = sweep.run_sweep(recipes, synthetic(), out, checkpoint_every=1)
        if ranks.is_first:
            print(len(swept.trained), "trained,", len(swept.skipped), "skipped")
"""
# 63 rows cannot be halved: one process has 32 of them, the other 31.
# The step is small and never clipped, so that it shows the size of the gradient.
UNCLIPPED = replace(TINY, epochs=3, network="plain", batch_size=63, learning_rate=1e-4, clip_norm=1e6)
SHARED = [replace(UNCLIPPED, loss=loss) for loss in ("focal-3", "adafocal")]
PLAIN = "nn.Sequential(nn.Conv2d(3, 8, 3, 4), nn.ReLU(), nn.Flatten(), nn.Linear(128, n))"


def run_together(processes, out):
    """What torchrun does: the same program several times, with their numbers and a port to meet at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes)}
    recipes = [recipe.to_json() for recipe in (*SHARED, replace(TINY, epochs=1))]
    started = [
        subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", TOGETHER, PLAIN, str(out), *recipes],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    try:
        return [process.communicate(timeout=600)[0].splitlines() for process in started]
    finally:
        for process in started:
            process.kill()


@pytest.mark.long
def test_two_processes_train_as_one_does_even_when_broken_off(tmp_path, monkeypatch):
    monkeypatch.setitem(networks.NETWORKS, "plain", lambda n: eval(PLAIN, {"nn": nn, "n": n}))  # noqa: S307
    sweep.run_sweep(SHARED, synthetic(), tmp_path / "one")
    assert run_together(2, tmp_path / "two") == [
        ["checkpoint.pt log.jsonl recipe.json", "3 trained, 0 skipped", "0 trained, 3 skipped"],
        [],  # only the first process speaks
    ]
    assert not (tmp_path / "rank-1").exists()  # and writes
    for recipe in SHARED:
        one, two = (tmp_path / name / recipe.key for name in ("one", "two"))
        ours, theirs = (np.load(folder / "logits.npz")["test"].astype(np.float32) for folder in (one, two))
        np.testing.assert_allclose(ours, theirs, rtol=5e-3, atol=5e-3)  # of float16
        assert ours.std() > 0.1
        logs = [(folder / "log.jsonl").read_text().splitlines() for folder in (one, two)]
        for mine, other in zip(*([json.loads(line) for line in log] for log in logs), strict=True):
            assert mine["loss"] == pytest.approx(other["loss"], rel=1e-4)
            assert mine["accuracy"] == pytest.approx(other["accuracy"], abs=0.005)
