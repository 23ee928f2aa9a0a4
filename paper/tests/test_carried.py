"""Checkpoints in parts that go on on another machine, and the logits of epochs on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest

from refocal.errors import FormatError
from refocal_paper import parts, sweep
from refocal_paper.datasets import synthetic
from refocal_paper.recipe import short
from refocal_paper.training import AskedToStopError, Trainer

TINY = short("synthetic", epochs=4, network="tiny")
ADAFOCAL = replace(TINY, loss="adafocal")  # whose loss has a state of its own


class StopsAfter:
    """Says that the run is to be left after some epochs."""

    def __init__(self, epochs):
        self.epochs = epochs

    def __call__(self):
        self.epochs -= 1
        return self.epochs == 0


def without_seconds(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def assert_same_cell(one, two):
    assert without_seconds(one / "log.jsonl") == without_seconds(two / "log.jsonl")
    with np.load(one / "logits.npz") as ours, np.load(two / "logits.npz") as theirs:
        assert set(ours) == set(theirs)
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """A folder with a cell run through (`whole`), and one left after two epochs (`first`, `carried`)."""
    place = tmp_path_factory.mktemp("left")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts.write_parts, "__defaults__", (10_000,))  # bytes, so that there are several
        sweep.run_cell(ADAFOCAL, synthetic(), place / "whole")
        with pytest.raises(AskedToStopError, match=r"stopped after epoch 2, as asked; .* --resume-from .*carried\.$"):
            sweep.run_cell(ADAFOCAL, synthetic(), place / "first", checkpoint_to=place / "carried", leave=StopsAfter(2))
    return place


def carried_copy(left, tmp_path):
    shutil.copytree(left / "carried", tmp_path / "carried")
    return tmp_path / "carried", tmp_path / "carried" / ADAFOCAL.key


def test_a_cell_goes_on_in_another_folder_to_the_same_logits_bit_by_bit(left, tmp_path):
    assert len(list((left / "carried" / ADAFOCAL.key).glob("*.part"))) > 3
    resumed = []

    class Start(sweep.Watch):
        def begin(self, recipe, start_epoch, batches):
            resumed.append(start_epoch)

    sweep.run_cell(ADAFOCAL, synthetic(), tmp_path, resume_from=left / "carried", watch=Start())
    assert resumed == [2]
    assert_same_cell(tmp_path / ADAFOCAL.key, left / "whole" / ADAFOCAL.key)


def test_the_same_command_goes_on_where_it_was_left(left, tmp_path):
    shutil.copytree(left / "first", tmp_path / "first")
    sweep.run_cell(ADAFOCAL, synthetic(), tmp_path / "first")
    assert_same_cell(tmp_path / "first" / ADAFOCAL.key, left / "whole" / ADAFOCAL.key)


@pytest.mark.parametrize("forgotten", ["generator", "optimizer", "loss"])
def test_all_of_the_state_is_needed(left, tmp_path, monkeypatch, forgotten):
    """Where one of the parts of the state is not gone on from, the logits are others: the test above can fail."""
    decoded = Trainer._decoded

    def forgetful(trainer, content, source):
        state = decoded(trainer, content, source)
        own = {"generator": trainer.batches.generator.get_state, "loss": trainer.loss.state_dict}
        if forgotten == "optimizer":
            state["optimizer"]["state"] = {}
        else:
            state[forgotten] = own[forgotten]()
        return state

    monkeypatch.setattr(Trainer, "_decoded", forgetful)
    sweep.run_cell(ADAFOCAL, synthetic(), tmp_path, resume_from=left / "carried")
    ours, theirs = (np.load(out / ADAFOCAL.key / "logits.npz")["test"] for out in (tmp_path, left / "whole"))
    assert not np.array_equal(ours, theirs)


def test_a_missing_part_is_refused(left, tmp_path):
    carried, cell = carried_copy(left, tmp_path)
    (cell / "00002-002.part").unlink()
    with pytest.raises(FormatError, match=r"00002-002\.part: part 2 of \d+ is missing; carry it over again"):
        sweep.run_cell(ADAFOCAL, synthetic(), tmp_path / "runs", resume_from=carried)


def test_a_damaged_part_is_refused(left, tmp_path):
    carried, cell = carried_copy(left, tmp_path)
    piece = bytearray((cell / "00002-001.part").read_bytes())
    piece[100] ^= 1
    (cell / "00002-001.part").write_bytes(piece)
    with pytest.raises(FormatError, match=r"00002-001\.part: part 1 of \d+ is damaged: its SHA-256"):
        sweep.run_cell(ADAFOCAL, synthetic(), tmp_path / "runs", resume_from=carried)
    (cell / "00002-001.part").write_bytes(piece[:-1])
    with pytest.raises(FormatError, match=r"part 1 of \d+ has 9999 bytes instead of 10000"):
        sweep.run_cell(ADAFOCAL, synthetic(), tmp_path / "runs", resume_from=carried)


def test_a_manifest_that_is_missing_or_cannot_be_read_is_refused(left, tmp_path):
    carried, cell = carried_copy(left, tmp_path)
    manifest = json.loads((cell / "manifest.json").read_text())
    for text in ("{", "[]", "{}", json.dumps({**manifest, "epoch": "2"}), json.dumps({**manifest, "parts": [{}]})):
        (cell / "manifest.json").write_text(text)
        with pytest.raises(FormatError, match=r"manifest\.json: not a manifest that can be read"):
            parts.read_parts(cell)
    (cell / "manifest.json").write_text(json.dumps({**manifest, "parts": manifest["parts"][:-1]}))
    with pytest.raises(FormatError, match="the parts together are not the checkpoint"):
        parts.read_parts(cell)
    (cell / "manifest.json").unlink()
    with pytest.raises(FormatError, match=r"holds no manifest\.json, so no checkpoint to go on from"):
        sweep.run_cell(ADAFOCAL, synthetic(), tmp_path / "runs", resume_from=carried)


def test_a_carried_checkpoint_of_another_recipe_is_refused(left, tmp_path):
    carried, cell = carried_copy(left, tmp_path)
    cell.rename(carried / TINY.key)
    with pytest.raises(FormatError, match="belongs to another recipe"):
        sweep.run_cell(TINY, synthetic(), tmp_path / "runs", resume_from=carried)


def test_a_write_that_was_torn_leaves_the_older_checkpoint_whole(tmp_path, monkeypatch):
    parts.write_parts(tmp_path, b"older" * 10, 1, 20)
    whole = parts.write_atomically

    def torn(path, content):
        if path.name == "00002-002.part":
            raise InterruptedError
        whole(path, content)

    monkeypatch.setattr(parts, "write_atomically", torn)
    with pytest.raises(InterruptedError):
        parts.write_parts(tmp_path, b"newer" * 10, 2, 20)
    assert (tmp_path / "00002-001.part").exists()
    assert parts.read_parts(tmp_path) == b"older" * 10
    monkeypatch.undo()
    parts.write_parts(tmp_path, b"newer" * 10, 3, 20)
    assert parts.read_parts(tmp_path) == b"newer" * 10
    names = ["00003-001.part", "00003-002.part", "00003-003.part", "manifest.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_parts_stay_below_16_mib():
    assert parts.PART_BYTES < 16 * 2**20


def test_the_checkpoint_that_is_further_is_gone_on_from(left, tmp_path):
    shutil.copytree(left / "first", tmp_path / "first")
    trainer = Trainer(ADAFOCAL, synthetic(), tmp_path / "first" / ADAFOCAL.key, "cpu")
    trainer._train_epoch()
    trainer._save()
    carried = left / "carried" / ADAFOCAL.key
    assert Trainer(ADAFOCAL, synthetic(), tmp_path / "first" / ADAFOCAL.key, "cpu", resume_from=carried).epoch == 3
    assert Trainer(ADAFOCAL, synthetic(), tmp_path / "new", "cpu", resume_from=carried).epoch == 2


def test_checkpoints_are_carried_by_the_clock_and_removed_at_the_end(tmp_path, monkeypatch):
    written = []
    write = parts.write_parts

    def watched(folder, content, epoch):
        written.append(epoch)
        write(folder, content, epoch)

    monkeypatch.setattr("refocal_paper.training.write_parts", watched)
    options = {"checkpoint_to": tmp_path / "carried"}
    sweep.run_cell(TINY, synthetic(), tmp_path / "one", **options)
    assert written == []  # four epochs are over before the first is due
    sweep.run_cell(TINY, synthetic(), tmp_path / "two", carry_seconds=0.0, **options)
    assert written == [1, 2, 3]
    assert not (tmp_path / "carried" / TINY.key).exists()


def test_a_folder_with_none_of_the_cells_is_refused(left, tmp_path):
    with pytest.raises(FormatError, match=f"holds a checkpoint of none of the cells, such as {TINY.key}"):
        sweep.run_sweep([TINY], synthetic(), tmp_path, resume_from=left / "carried")
    recipes = [replace(TINY, epochs=1, seed=2), ADAFOCAL]
    assert sweep.run_sweep(recipes, synthetic(), tmp_path, resume_from=left / "carried").trained
    assert_same_cell(tmp_path / ADAFOCAL.key, left / "whole" / ADAFOCAL.key)
    assert sweep.run_sweep(recipes, synthetic(), tmp_path, resume_from=tmp_path / "nowhere").trained == []


def test_sigterm_leaves_the_cell_after_its_epoch(tmp_path, capsys):
    options = ["--out", str(tmp_path / "runs"), "--dataset", "synthetic", "--network", "tiny", "--losses", "focal-3"]
    options += ["--epochs", "3", "--checkpoint-to", str(tmp_path / "carried")]
    told = sweep.Lines.epoch

    def terminate(watch, log):
        told(watch, log)
        if log["epoch"] == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep.Lines, "epoch", terminate)
        assert sweep.main(options) == 1
    assert signal.getsignal(signal.SIGTERM) == before
    assert "stopped after epoch 2, as asked" in capsys.readouterr().err
    (cell,) = (tmp_path / "carried").iterdir()
    assert parts.read_manifest(cell)["epoch"] == 2
    elsewhere = ["--out", str(tmp_path / "elsewhere"), *options[2:-2], "--resume-from", str(tmp_path / "carried")]
    assert sweep.main(elsewhere) == 0
    assert "epoch 3" in capsys.readouterr().out
    assert (tmp_path / "elsewhere" / cell.name / "done").exists()


def test_logits_of_every_second_epoch(tmp_path):
    recipe = replace(TINY, epochs=5)
    sweep.run_cell(recipe, synthetic(), tmp_path / "kept", logits_every=2)
    sweep.run_cell(recipe, synthetic(), tmp_path / "plain")
    assert_same_cell(tmp_path / "kept" / recipe.key, tmp_path / "plain" / recipe.key)  # looking changes nothing
    folder = tmp_path / "kept" / recipe.key
    assert sorted(path.name for path in folder.glob("logits-*.npz")) == ["logits-0002.npz", "logits-0004.npz"]
    early, late = (np.load(folder / name) for name in ("logits-0002.npz", "logits-0004.npz"))
    final = np.load(folder / "logits.npz")
    assert set(early) == {"val", "test", "yv", "yt"}
    assert early["val"].shape == (160, 4)
    assert early["test"].dtype == np.float16
    np.testing.assert_array_equal(early["yt"], final["yt"])
    assert not np.array_equal(early["val"], late["val"])
    with pytest.raises(AskedToStopError):
        sweep.run_cell(recipe, synthetic(), tmp_path / "broken", leave=StopsAfter(4))
    trainer = Trainer(recipe, synthetic(), tmp_path / "broken" / recipe.key, "cpu")
    np.testing.assert_array_equal(trainer.held_out_logits()["val"], late["val"])


def test_the_last_epoch_is_not_kept_twice(tmp_path):
    sweep.run_cell(TINY, synthetic(), tmp_path, logits_every=4)
    assert sorted(path.name for path in (tmp_path / TINY.key).glob("logits*")) == ["logits.npz"]


def test_the_options_of_the_command(refocal_paper, tmp_path):
    cell = ["--dataset", "synthetic", "--network", "tiny", "--recipe", "short", "--loss", "cross-entropy"]
    code, _, error = refocal_paper("sweep", *cell, "--epochs", 3, "--logits-every", 2, "--checkpoint-to", "carried")
    assert code == 0, error
    assert [path.name for path in (tmp_path / "runs").glob("*/logits-*.npz")] == ["logits-0002.npz"]
    code, _, error = refocal_paper("sweep", *cell, "--epochs", 2, "--resume-from", "nowhere")
    assert code != 0
    assert "nowhere: holds a checkpoint of none of the cells" in error
