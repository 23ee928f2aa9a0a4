"""refocal-paper download, train, sweep, table and reproduce, right and wrong."""

from __future__ import annotations

import errno
import functools
import hashlib
import io
import json
import os
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import rich.console

from refocal import theory
from refocal_paper import claims_layout, coverage, layout, smoke
from refocal_paper.cli import bar
from refocal_paper.cli.figures import complete_figure
from refocal_paper.datasets import SOURCES, Source
from refocal_paper.figures import CELL_FIGURES, NAMES
from refocal_paper.measure import find_cells, measure_cell
from refocal_paper.quoted import quoted_numbers
from refocal_paper.recipe import Recipe, short
from refocal_paper.training import Trainer

PAPER = Path(__file__).parents[1]
TINY = ["--dataset", "synthetic", "--network", "tiny"]


def test_train_goes_by_options_or_by_a_file(refocal_paper, folder):
    code, out, err = refocal_paper("train", *TINY, "--recipe", "short", "--loss", "focal-3", "--epochs", "1", "--json")
    cell = short("synthetic", epochs=1, network="tiny", loss="focal-3")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"cell": cell.key, "folder": f"runs/{cell.key}", "trained": True}
    assert sorted(os.listdir(folder / "runs" / cell.key)) == ["done", "log.jsonl", "logits.npz", "recipe.json"]
    (folder / "mine.toml").write_text(
        'dataset = "synthetic"\nnetwork = "tiny"\nepochs = 1\ndrops = []\nvalidation_rows = 100\nbatch_size = 64\n'
    )
    code, out, err = refocal_paper("train", "--recipe", "mine.toml", "--seed", "3", "--out", "others")
    mine = Recipe("synthetic", "tiny", epochs=1, drops=(), validation_rows=100, batch_size=64, seed=3)
    assert code == 0
    assert f"The logits are in others/{mine.key}/logits.npz" in out
    # No terminal: a line for each epoch, with loss, accuracy and the time left.
    assert f"{mine.key}: epoch 1/1, loss " in err
    assert " s left" in err
    assert np.load(folder / "others" / mine.key / "logits.npz")["val"].shape == (100, 4)
    _, out, _ = refocal_paper("train", "--recipe", "mine.toml", "--seed", "3", "--out", "others", "--json")
    assert json.loads(out) == {"cell": mine.key, "folder": f"others/{mine.key}", "trained": False}


def test_sweep_and_table(refocal_paper, folder):
    options = ["sweep", *TINY, "--epochs", "1", "--loss", "focal-3", "--loss", "cross-entropy", "--seed", "1", "--json"]
    code, out, _ = refocal_paper(*options, "--part", "2/2")
    keys = [short("synthetic", epochs=1, network="tiny", loss=loss).key for loss in ("focal-3", "cross-entropy")]
    assert code == 0
    assert json.loads(out) == {"trained": keys[1:], "skipped": [], "left": []}
    assert json.loads(refocal_paper(*options)[1]) == {"trained": keys[:1], "skipped": keys[1:], "left": []}
    unfinished = folder / "runs" / "another"
    unfinished.mkdir()
    (unfinished / "recipe.json").write_text("{}")

    (folder / "page.md").write_text(f"{layout.BEGIN}\n{layout.END}\n")
    code, out, err = refocal_paper("table", "runs", "-o", "paper", "--page", "page.md")
    cells = [measure_cell(path) for path in find_cells(folder / "runs")[0]]
    assert (code, out) == (0, layout.markdown(cells))
    assert err == "refocal-paper: left out, as not finished: another\n"
    whole = refocal_paper("table", "runs", "--claims")[1]
    assert whole == f"{layout.markdown(cells)}\n{claims_layout.claims_markdown(cells)}"
    assert (folder / "paper" / "table.md").read_text() == whole
    in_short = layout.page_markdown(cells).strip()
    assert (folder / "page.md").read_text() == f"{layout.BEGIN}\n\n{in_short}\n\n{layout.END}\n"
    assert refocal_paper("table", "runs", "--latex")[1] == (folder / "paper" / "table.tex").read_text()
    numbers = quoted_numbers(cells)
    assert json.loads(refocal_paper("claims", "runs", "--json")[1]) == numbers
    assert "all/cells: 2\n" in refocal_paper("claims", "runs")[1]
    (folder / "page.md").write_text("Of <!--all/cells-->20<!----> cells, as in <!--theory/tau-1-->0.3679<!---->.")
    code, out, err = refocal_paper("claims", "runs", "--page", "page.md")
    assert (code, out, err) == (0, "", "refocal-paper: page.md: 1 numbers changed\n")
    assert (
        "Of <!--all/cells-->2<!----> cells, as in <!--theory/tau-1-->0.3679<!---->." in (folder / "page.md").read_text()
    )
    (folder / "page.md").write_text("<!--all/horses-->3<!---->")
    assert "page.md: marks 'all/horses', which is no number" in refocal_paper("claims", "runs", "--page", "page.md")[2]
    data = json.loads(refocal_paper("table", "runs", "--json")[1])
    assert data.pop("unfinished") == ["another"]
    assert data == json.loads((folder / "paper" / "table.json").read_text())


def test_download_of_what_is_there(refocal_paper, folder, monkeypatch):
    (folder / "data").mkdir()
    archive = folder / "data" / "cifar-10-python.tar.gz"
    archive.write_bytes(b"some archive")
    code, _, err = refocal_paper("download", "cifar10")
    assert code == 1
    assert "its MD5 is not c58f30108f718f92721af3b95e74349a; remove it and download it again" in err
    md5 = hashlib.md5(b"some archive").hexdigest()  # noqa: S324
    monkeypatch.setitem(SOURCES, "cifar10", Source(SOURCES["cifar10"].url, md5))
    assert json.loads(refocal_paper("download", "cifar10", "--json")[1])["path"] == "data/cifar-10-python.tar.gz"
    assert "is there and whole" in refocal_paper("download", "cifar10")[1]


WRONG = [
    ("train --dataset cifar10", 2, "Get it with: refocal-paper download cifar10 --data data"),
    ("train --dataset pets --data pictures", 2, "looked for pictures/pets/labels.npz"),
    ("train --recipe nope.toml", 2, "nope.toml: No such file"),
    ("train --recipe long", 2, "'recipe' must be 'paper', 'short' or a .toml file"),
    ("train --recipe bad.toml", 1, "bad.toml: unknown key 'learning_rat'"),
    ("train --recipe text.toml", 1, "text.toml: not a TOML file"),
    ("train --loss hinge", 2, "'loss' must be one of 'cross-entropy'"),
    ("train --dataset synthetic --network alexnet", 2, "'network' must be one of 'resnet18'"),
    ("train --dataset synthetic --validation-rows 640", 1, "'validation_rows' must be fewer than 640"),
    ("train --dataset synthetic --epochs 0", 2, "--epochs"),
    ("train --dataset ../x", 2, "'dataset' must be the name of a data set"),
    ("sweep --loss hinge", 2, "'loss' must be one of"),
    ("sweep --time-budget soon", 2, "'time-budget' must be a positive number of seconds"),
    ("sweep --part 9/8", 2, "'part' must be a share such as 1/8"),
    ("sweep --dataset tinyimagenet", 2, "refocal-paper download tinyimagenet"),
    ("table nowhere", 2, "nowhere: no such folder"),
    ("claims empty", 1, "empty: holds no finished cell"),
    ("table empty", 1, "empty: holds no finished cell; train some with refocal-paper sweep --out empty"),
    ("reproduce mona-lisa", 2, "mona-lisa: no such figure; known are all, loss-and-link"),
    ("reproduce refinement", 2, "refinement: is drawn of the cells of a sweep; name their folder with --runs."),
    ("reproduce bounds --runs nope", 2, "nope: no such directory"),
    ("reproduce bounds --runs empty", 1, "empty: no finished cell"),
    ("reproduce bounds -o val.npz", 2, "val.npz: is a file"),
    ("table cells --page val.npz", 1, "val.npz: not a page of text"),
    ("table cells --page nope.md", 2, "nope.md"),
    ("download mnist", 2, "'name' must be one of 'cifar10', 'cifar100', 'tinyimagenet'"),
]


@pytest.fixture
def files(folder):
    (folder / "bad.toml").write_text('dataset = "cifar100"\nlearning_rat = 0.2\n')
    (folder / "text.toml").write_text("just words")
    (folder / "empty").mkdir()
    (folder / "cells").mkdir()
    return folder


@pytest.mark.parametrize(("line", "code", "message"), WRONG, ids=[line for line, _, _ in WRONG])
def test_one_line_that_says_what_to_do(files, refocal_paper, monkeypatch, line, code, message):
    if "cells" in line:  # finished cells, so that what is wrong is the page
        (files / "cells" / "a").mkdir()
        monkeypatch.setattr("refocal_paper.measure.find_cells", lambda runs: ([runs / "a"], []))
        monkeypatch.setattr("refocal_paper.measure.measure_cell", lambda _: {})
        monkeypatch.setattr(layout, "markdown", lambda _: "")
        monkeypatch.setattr(layout, "page_markdown", lambda _: "")
        monkeypatch.setattr(claims_layout, "claims_markdown", lambda _: "")
    before = sorted(os.listdir())
    found, out, err = refocal_paper(*line.split())
    assert (found, out) == (code, "")
    assert err.startswith("refocal-paper: ")
    assert err.count("\n") == 1
    assert message in err
    assert "Traceback" not in err
    assert sorted(os.listdir()) == before


def test_a_full_disk_is_one_line_and_the_run_goes_on_later(refocal_paper, folder, monkeypatch):
    options = ["train", *TINY, "--epochs", "2", "--checkpoint-every", "1"]
    sync, synced = os.fsync, []

    def full(descriptor):
        synced.append(descriptor)
        if len(synced) > 2:  # after the recipe and the first checkpoint
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        code, _, err = refocal_paper(*options)
    assert code == 1
    key = short("synthetic", epochs=2, network="tiny").key
    last = err.splitlines()[-1]
    assert last.startswith(f"refocal-paper: runs/{key}: No space left on device; the run stopped after epoch 2.")
    code, _, err = refocal_paper(*options)
    assert code == 0
    assert f"{key}: goes on after epoch 1" in err


def test_ctrl_c_says_how_to_go_on(refocal_paper, monkeypatch):
    def save_and_interrupt(trainer):
        save(trainer)
        raise KeyboardInterrupt  # not by a signal, which a shell's background jobs ignore

    save, options = Trainer._save, ["train", *TINY, "--epochs", "2", "--checkpoint-every", "1"]
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_save", save_and_interrupt)
        code, out, err = refocal_paper(*options)
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == "refocal-paper: stopped; the same command goes on from the last checkpoint in runs."
    assert "Traceback" not in err
    code, _, err = refocal_paper(*options)
    assert code == 0
    assert f"{short('synthetic', epochs=2, network='tiny').key}: goes on after epoch 1" in err


def test_the_bar_shows_loss_accuracy_and_the_time_left(monkeypatch):
    written = io.StringIO()
    terminal = functools.partial(
        rich.console.Console, file=written, force_terminal=True, width=160, legacy_windows=False
    )
    monkeypatch.setattr(bar, "Console", lambda stderr, **options: terminal(**options))
    with bar.Bar(cells=2) as shown:
        shown.begin(short("synthetic", network="tiny"), start_epoch=10, batches=7)
        for i in range(1, 8):
            shown.batch(10, i)
        shown.epoch({"epoch": 11, "loss": 1.23456, "accuracy": 0.5, "learning_rate": 0.1, "seconds": 2.0})
        assert shown.progress.tasks[0].completed == 77
        assert shown.progress.tasks[0].total == 60 * 7
        shown.progress.refresh()
        shown.say("finished one")
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.getvalue())
    for words in (
        "1 of 2: synthetic-tiny-",
        "goes on after epoch 10",
        "epoch 11/60 loss 1.2346, accuracy 0.5000",
        "left",
    ):
        assert words in text
    assert "finished one" in text


@pytest.mark.parametrize("passed", [True, False])
def test_the_rehearsals_exit_code_says_whether_it_passed(refocal_paper, monkeypatch, passed):
    def rehearse(_, on_check):
        found = [smoke.Check("one", True), smoke.Check("two", passed)]
        for check in found:
            on_check(check)
        return found

    monkeypatch.setattr(smoke, "smoke", rehearse)
    code, out, _ = refocal_paper("sweep", "--smoke")
    assert code == (0 if passed else 1)
    assert ("FAILED two" in out) is not passed
    code, out, _ = refocal_paper("sweep", "--smoke", "--json")
    assert code == (0 if passed else 1)
    assert json.loads(out)["passed"] is passed


def test_reproduce(refocal_paper, folder):
    code, out, err = refocal_paper("reproduce", "arrows", "arrows", "-o", "deep/figures")
    assert (code, err) == (0, "")
    assert {path.name for path in (folder / "deep" / "figures").iterdir()} == {
        "arrows.svg",
        "arrows.pdf",
        "arrows.csv",
        "readings.json",
    }
    assert "0.81 (caption)" in out
    assert out.count("Wrote") == 1
    (made,) = json.loads(refocal_paper("reproduce", "arrows", "--json")[1])
    assert made["files"] == ["figures/arrows.svg", "figures/arrows.pdf", "figures/arrows.csv"]
    assert {"what": "closest T for γ = 1", "ours": f"{theory.closest_temperature(1.0, 3).temperature:.3f}",
            "paper": "0.81 (caption)"} in made["readings"]  # fmt: skip


def test_coverage_is_written_and_printed(refocal_paper, folder, monkeypatch):
    monkeypatch.setattr(coverage, "SCENARIOS", coverage.SCENARIOS[:1])
    code, out, err = refocal_paper("coverage", "--trials", "3", "--resamples", "2", "-o", "coverage.md")
    assert (code, err) == (0, "")
    assert out == (folder / "coverage.md").read_text()
    assert out.count(coverage.SCENARIOS[0].title) == 2  # of 2,000 and of 10,000 rows


def test_the_shell_completes_figures():
    assert complete_figure("b") == ["binary-fit", "bounds"]
    assert set(complete_figure("")) == {"all", *NAMES, *CELL_FIGURES}


COMMANDS = ["", "download", "train", "sweep", "table", "claims", "coverage", "reproduce"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_the_page_misses_no_option(refocal_paper, command):
    code, out, _ = refocal_paper(*command.split(), "--help")
    assert code == 0
    assert re.search(rf"refocal-paper {command or 'sweep'}", out.split("Example")[1])
    if command:
        page = (PAPER / "docs" / "commands.md").read_text(encoding="utf-8")
        (section,) = (part for part in page.split("\n## ") if part.startswith(f"{command}\n"))
        shown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", out))
        assert shown - {"--help"} <= set(re.findall(r"--[a-z][a-z-]+", section))


def test_the_page_of_commands_is_what_the_program_says():
    tool = runpy.run_path(str(PAPER.parent / "tools" / "command_reference.py"))
    shown = (PAPER / "docs" / "commands.md").read_text(encoding="utf-8")
    assert shown == tool["page"]("refocal-paper"), "run python tools/command_reference.py"
