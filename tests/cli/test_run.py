"""Whatever a new user does wrong: one line that says what to do, the right exit code, no file half written."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from helpers import PATIENCE, wait_until
from refocal import AutoCalibration, TemperatureScaling
from refocal.cli.run import REMEDIES, run
from refocal.errors import Remedy
from refocal.evaluate import load_evaluation
from refocal.io import read

pytestmark = pytest.mark.core


@pytest.fixture
def files(folder):
    rows = read("val.npz")
    p = np.exp(rows.values - rows.values.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    np.savez("one.npz", logits=rows.values, labels=rows.labels + 1)
    np.savez("p.npz", logits=p, labels=rows.labels)
    np.savez("swapped.npz", logits=rows.labels, labels=rows.values)
    np.savez("names.npz", scores=rows.values, target=rows.labels)
    np.savez("wide.npz", logits=np.hstack([rows.values, rows.values]), labels=rows.labels)
    np.savez("nan.npz", logits=rows.values * np.nan, labels=rows.labels)
    np.savez("short.npz", logits=rows.values, labels=rows.labels[:-1])
    np.save("x.npy", rows.values)
    np.save("y.npy", rows.labels)
    np.savez("said.npz", probabilities=p, labels=rows.labels)
    np.savez("hot.npz", logits=rows.values, labels=np.eye(4)[rows.labels])
    np.savez("score.npz", logits=rows.values[:, 0], labels=rows.labels)
    np.savez("text.npz", logits=rows.values, labels=np.array(list("abcd"))[rows.labels])
    np.savez("same.npz", logits=rows.values, labels=np.zeros_like(rows.labels))
    (folder / "semicolons.csv").write_text("a;b;label\n1;2;0\n")
    (folder / "one.csv").write_text("p,label\n0.3,0\n1.4,1\n")
    (folder / "file").write_text("")
    (folder / "text.csv").write_text("logit_a,logit_b,label\n1,2,0\n3,oops,1\n")
    (folder / "broken.npz").write_bytes((folder / "val.npz").read_bytes()[:500])
    (folder / "cal.json").write_text("{}")
    TemperatureScaling().fit(rows.values, rows.labels).save("fitted.json")
    (folder / "bad.json").write_text("{")
    (folder / "sub").mkdir()
    return folder


WRONG = [
    # wrong names
    ("fit nope.npz", 2, "nope.npz: no such file"),
    ("fit val.xlsx", 2, "no such file"),
    ("fit sub", 2, "no tables there"),
    ("apply nope.json test.npz", 2, "nope.json: no such file"),
    ("evaluate test.npz nope.json", 2, "no such file"),
    ("report nope.json", 2, "nope.json"),
    # swapped arguments
    ("apply val.npz cal.json", 2, "are the arguments swapped"),
    ("apply cal.json val.npz -o -", 2, "-: the output must end in .npz or"),
    ("fit cal.json", 1, "arguments swapped"),
    ("show val.npz", 2, "made by refocal fit"),
    ("fit swapped.npz", 1, "names are swapped"),
    ("fit y.npy --labels x.npy", 1, "names are swapped"),
    ("fit val.npz -o val.npz", 2, "must end in .json"),
    ("report cal.json test.npz", 2, "not both"),
    ("report cal.json --groups region --seed 3 --method vs", 2, "--methods, --seed, --groups: for files of rows"),
    ("report cal.json cal.json --probability-column p", 2, "--probability-column: for files of rows"),
    ("apply fitted.json one.csv --values logit --probability-column p", 2, "name the same thing; give one of them"),
    ("fit one.csv --values logit --probability-column p", 2, "name the same thing; give one of them"),
    ("explore -o page.txt", 2, "must end in .html"),
    ("report cal.json", 1, "not an evaluation"),
    ("apply cal.json test.npz", 1, "not a calibrator"),
    ("show bad.json", 1, "not a JSON file"),
    # what needs all rows in memory
    ("fit val.npz -m isotonic --skip-bad-rows", 2, "--method isotonic is for a file that is read whole"),
    ("fit val.npz -m isotonic --skip-bad-rows", 2, "is read in blocks because of --skip-bad-rows."),
    ("evaluate test.npz --seed 3 --skip-bad-rows", 2, "--seed is for a file that is read whole"),
    ("fit val.npz --multi-label --skip-bad-rows", 2, "in blocks because of --skip-bad-rows."),
    # data that are not what they are said to be
    ("fit one.csv", 1, "'probabilities' must be at most 1. Got a value of 1.4 instead."),
    ("fit p.npz", 1, "add --probabilities"),
    ("compare val.npz p.npz", 1, "p.npz: "),
    ("apply fitted.json p.npz", 1, "p.npz: the rows look like probabilities"),
    ("apply fitted.json wide.npz", 1, "wide.npz: 'X' must be of 4 columns"),
    ("apply fitted.json nan.npz", 1, "nan.npz: "),
    ("apply fitted.json y.npy", 1, "y.npy: "),
    ("evaluate wide.npz fitted.json", 1, "of 4 columns"),
    ("fit val.npz --probabilities --values logits", 1, "free of NaN and negative values"),
    ("fit one.npz", 1, "add --first-label 1"),
    ("fit nan.npz", 1, "NaN in row 0"),
    ("fit short.npz", 1, "one label for each row"),
    ("fit broken.npz", 1, "broken.npz: cannot be read"),
    ("fit text.csv", 1, "row 1 has 'oops' in the column 'logit_b', where a number was expected.\n"),
    ("compare val.npz said.npz", 2, "val.npz holds logits and said.npz probabilities; give two files of one kind"),
    ("evaluate said.npz fitted.json", 1, "said.npz: no 'logits' but 'probabilities'"),
    (
        "fit val.npz --probabilities",
        1,
        "no 'probabilities' but 'logits'. If those are meant, leave out --probabilities",
    ),
    ("apply fitted.json said.npz", 1, "said.npz: holds no logits, which this calibrator takes"),
    ("fit hot.npz", 1, "of one-hot labels take the argmax first"),
    ("fit score.npz", 1, "'labels' must be between 0 and 1. Got labels from 0 to 3"),
    ("fit text.npz", 1, "Names of classes are understood if the columns of a table are called by them"),
    ("fit same.npz -m isotonic", 1, "same.npz: 'labels' must be of at least two classes"),
    ("compare same.npz test.npz", 1, "same.npz: 'labels' must be of at least two classes"),
    ("compare sub", 2, "sub: a data set; compare needs all rows in memory"),
    ("compare val.npz sub", 2, "sub: a data set"),
    ("report sub", 2, "sub: a data set"),
    ("fit semicolons.csv", 1, "commas between them"),
    # missing arrays and columns
    ("fit names.npz", 1, "It has 'scores', 'target'. Say which holds what with --values and --labels"),
    ("fit names.npz --values scores", 1, "no labels"),
    ("fit text.csv --labels target", 1, "no column 'target'"),
    ("fit x.npy", 1, "Name theirs with --labels"),
    ("compare val.npz wide.npz", 2, "same model"),
    # settings
    ("fit val.npz -m magic", 2, "--method must be one of 'auto', 'auto-order', 'ts', 'ts-ece'"),
    ("fit val.npz --objective magic", 2, "'auto', 'nll', 'ece'"),
    ("fit val.npz --tolerance -1", 2, "--tolerance"),
    (
        "fit val.npz --class-weight much",
        2,
        "--class-weight must be numbers with commas between them, one for each class, or",
    ),
    ("fit val.npz --class-weight 1,2", 2, "--class-weight must be of shape (4,), one factor for each class"),
    ("fit val.npz -m beta --class-weight fit", 2, "--class-weight must be left out: the method 'beta'"),
    ("fit val.npz --tolerance much", 2, "--tolerance"),
    ("fit", 2, "Missing argument 'VALIDATION'. See refocal fit --help."),
    ("fit val.npz --frobnicate", 2, "--frobnicate"),
    ("frobnicate", 2, "frobnicate"),
    ("aply cal.json test.npz", 2, "Did you mean 'apply'? See refocal --help."),
    ("compare val.npz test.npz -m magic", 2, "--method must be one of"),
    ("compare val.npz test.npz --require magic<1", 2, "--require must be one of"),
    ("theory --gamma -2", 2, "greater than -1"),
    ("theory --classes 7", 2, "--classes"),
    ("demo --sample mnist", 2, "--sample must be one of 'cifar100-focal7'"),
    ("fit val.npz -m isotonic --tolerance 0.1", 2, "--tolerance must be left out: the method 'isotonic'"),
    ("fit val.npz -m bbq --objective ece", 2, "--objective must be left out"),
    ("compare val.npz test.npz -m ts,magic", 2, "Got 'magic' instead"),
    # places that cannot be written to
    ("fit val.npz -o nowhere/c.json", 2, "nowhere: no such directory"),
    ("fit val.npz -o sub", 2, "must end in .json"),
    ("fit val.npz -o /proc/c.json", 1, "/proc: cannot be written to"),
    ("fit val.npz -o file/c.json", 2, "file: no such directory"),
    ("demo -o nowhere/report.html", 2, "no such directory"),
    ("compare val.npz test.npz --report report.txt", 2, "must end in .html"),
    ("apply cal.json test.npz -o probs.txt", 2, "must end in .npz or .npy or .parquet"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("line", "code", "message"), WRONG, ids=[line for line, _, _ in WRONG])
def test_one_line_that_says_what_to_do(files, refocal, line, code, message):
    before = sorted(os.listdir())
    found, out, err = refocal(*line.split())
    assert found == code
    assert err.startswith("refocal: ")
    assert err.count("\n") == 1
    assert message in err
    assert "Traceback" not in err
    assert "Predictions." not in err
    assert out == ""
    assert sorted(os.listdir()) == before


def test_every_remedy_has_words_of_the_command_line():
    assert set(REMEDIES) == set(Remedy)
    for said in REMEDIES.values():
        assert "=" not in said


def test_no_arguments_show_the_help(refocal):
    code, out, err = refocal()
    assert code == 2
    assert "Usage: refocal" in out + err


@pytest.mark.slow
def test_what_went_wrong_is_corrected_by_what_was_said(files, refocal):
    assert refocal("fit", "one.npz", "--first-label", "1")[0] == 0
    assert refocal("fit", "p.npz", "--probabilities", "--values", "logits")[0] == 0
    assert refocal("fit", "names.npz", "--values", "scores", "--labels", "target")[0] == 0
    assert refocal("fit", "x.npy", "--labels", "y.npy")[0] == 0


def test_two_calibrators_of_one_name(files, refocal):
    refocal("fit", "val.npz", "-m", "ts", "-o", "c.json")
    refocal("fit", "val.npz", "-m", "ts", "-o", "sub/c.json")
    code, _, err = refocal("evaluate", "test.npz", "c.json", "sub/c.json")
    assert code == 2
    assert "different names" in err


def test_a_fault_of_ours_is_one_line_too(folder, refocal, monkeypatch):
    from refocal.calibrators import TemperatureScaling

    def explode(*_):
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(TemperatureScaling, "_fit", explode)
    code, _, err = refocal("fit", "val.npz", "-m", "ts")
    assert code == 1
    assert err == "refocal: ZeroDivisionError: boom. This is a bug in refocal; REFOCAL_TRACEBACK=1 shows where.\n"
    monkeypatch.setenv("REFOCAL_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        refocal("fit", "val.npz", "-m", "ts")


def test_a_full_disk_leaves_the_old_file(folder, refocal, monkeypatch):
    refocal("fit", "val.npz", "-m", "ts")
    old = (folder / "calibrator.json").read_bytes()

    def full(_):
        raise OSError(28, "No space left on device", "calibrator.json")

    monkeypatch.setattr(os, "fsync", full)
    code, _, err = refocal("fit", "val.npz", "-m", "fts-nll")
    assert code == 1
    assert err == "refocal: calibrator.json: No space left on device.\n"
    assert (folder / "calibrator.json").read_bytes() == old
    assert sorted(os.listdir()) == ["calibrator.json", "test.npz", "val.npz"]


# A real process, stopped while it fits: the fit says that it has begun and then takes its time.
SLOW = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from refocal.calibrators import AutoCalibration, FocalTemperatureScaling
def wait(*_):
    open("begun", "w").close()
    time.sleep(600)
AutoCalibration._fit = FocalTemperatureScaling._fit = wait
from refocal.cli import main
main()
"""


@pytest.mark.slow
def test_ctrl_c_during_a_fit(folder):
    command = [sys.executable, "-c", SLOW, "fit", "val.npz", "-o", "c.json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # noqa: S603
    wait_until((folder / "begun").exists)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (130, "", "refocal: stopped; nothing was written.\n")
    assert sorted(os.listdir(folder)) == ["begun", "test.npz", "val.npz"]


def test_ctrl_c_during_a_comparison(refocal, folder, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt  # not by a signal, which a shell's background jobs ignore

    monkeypatch.setattr(AutoCalibration, "_fit", interrupted)
    stopped = refocal("compare", "val.npz", "test.npz", "--report", "r.html")
    assert stopped == (130, "", "refocal: stopped; nothing was written.\n")
    assert sorted(os.listdir(folder)) == ["test.npz", "val.npz"]


@pytest.mark.usefixtures("folder")
def test_json_is_all_that_is_printed(capfd):
    """To the file descriptors too, where compiled libraries print."""
    assert run(["compare", "val.npz", "test.npz", "-m", "ts", "--resamples", "5", "--json", "-o", "e.json"]) == 0
    printed, warned = capfd.readouterr()
    assert warned == ""
    assert json.loads(printed) == load_evaluation("e.json").to_dict()


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_characters_that_the_output_cannot_hold_are_replaced(folder, monkeypatch, options):
    """As on Windows, where files are in cp1252: it has no minus sign and no Chinese."""
    rows = "".join(f"{x},{'猫' if x > 1 else 'ü'}\n" for x in range(-9, 9))
    (folder / "r.csv").write_text("log_odds,label\n" + rows, encoding="utf-8")
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252"))
    assert run(["evaluate", "r.csv", "--positive-label", "猫", "--resamples", "5", *options]) == 0
    sys.stdout.flush()
    printed = written.getvalue().decode("cp1252")
    if options:
        assert json.loads(printed)["class_names"] == ["ü", "猫"]
    else:
        assert "mean probability of \\u732b" in printed
        assert "mean p - rate %" in printed


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_holds_every_name_whatever_the_encoding_of_the_output(folder, monkeypatch, encoding):
    rows = "".join(f"{x},{'γ' if x > 1 else 'ü'}\n" for x in range(-9, 9))
    (folder / "r.csv").write_text("log_odds,label\n" + rows, encoding="utf-8")
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    assert run(["evaluate", "r.csv", "--positive-label", "γ", "--resamples", "5", "--json"]) == 0
    sys.stdout.flush()
    assert json.loads(written.getvalue().decode(encoding))["class_names"] == ["ü", "γ"]


@pytest.mark.slow
def test_help_starts_without_the_heavy_libraries():
    script = "import sys; sys.argv = ['refocal', '--help']\nfrom refocal.cli.run import run\nrun(['--help'])\n"
    script += "print(' '.join(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603
    heavy = {"torch", "sklearn", "scipy", "matplotlib", "pandas", "jinja2"}
    assert not heavy & set(done.stderr.split())


@pytest.fixture
def table(folder):
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(80, 3))
    names = np.array(["cat", "dog", "emu"])
    made = pd.DataFrame(logits, columns=[f"logit_{name}" for name in names])
    made["label"] = names[np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)]
    made.to_csv("rows.csv", index=False)
    return made


@pytest.mark.parametrize("command", ["evaluate", "fit", "compare"])
def test_a_table_of_a_header_alone_has_no_rows(refocal, table, command):
    table[:0].to_csv("empty.csv", index=False)
    code, _, err = refocal(command, "empty.csv")
    assert (code, err) == (1, "refocal: empty.csv: 'logits' must be of at least one row. Got none instead.\n")
    np.savez("one.npz", logits=np.zeros((5, 3, 1)), labels=np.zeros(5))
    assert refocal(command, "one.npz")[2].endswith("for two classes. Got shape (5, 3, 1) instead.\n")


@pytest.mark.parametrize("option", ["--groups", "--weights"])
def test_a_column_called_label_that_is_named_for_something_else_is_not_missing(refocal, table, option):
    err = refocal("evaluate", "rows.csv", option, "label")[2]
    assert "rows.csv: no labels: 'label' is named for something else. It has" in err


def test_a_column_of_labels_that_is_one_of_the_classes_too_is_not_missing(refocal, table):
    table.columns = [name.removeprefix("logit_") for name in table]
    table.to_csv("rows.csv", index=False)
    err = refocal("evaluate", "rows.csv", "--values", "cat,dog,emu", "--labels", "cat")[2]
    assert "the column 'cat' is named as that of a class, and of labels, weights or groups as well." in err


def test_the_row_and_the_file_of_a_probability_of_0_at_the_label_are_named(refocal, table):
    """The error was that the log-loss is not finite, of the file of validation."""
    table.loc[4, f"logit_{table.label[4]}"] = -np.inf
    table.to_csv("bad.csv", index=False)
    said = "bad.csv: 'test' must be such that the log-loss is finite. Got inf: a probability of 0 at the label of row 4"
    assert said in refocal("evaluate", "bad.csv")[2]
    assert said in refocal("compare", "rows.csv", "bad.csv", "-m", "ts")[2]


def test_the_text_that_is_neither_a_number_nor_a_date_is_to_blame(refocal, table):
    table.assign(t=[f"{37 * i:,}" for i in range(len(table))]).to_csv("rows.csv", index=False)
    assert "Got '1,036' instead." in refocal("compare", "rows.csv", "--time", "t")[2]


def test_an_unused_column_without_a_name_is_called_so(refocal, table):
    table.to_csv("rows.csv")
    assert "1 of 5 columns not used: one without a name." in " ".join(refocal("evaluate", "rows.csv")[1].split())


def test_groups_that_the_fit_has_not_seen_are_explained_with_options(refocal, folder):
    """The remedy was one of Python, and the groups of the fit were not named."""
    rng = np.random.default_rng(0)
    p = rng.random(300)
    rows = pd.DataFrame({"p": p, "label": (rng.random(300) < p).astype(int), "g": rng.random(300) < 0.5})
    rows.to_csv("rows.csv", index=False)
    rows.assign(g=rows.g.astype(int)).to_csv("numbers.csv", index=False)
    rows.assign(g=rows.g.astype(str).where(rows.index >= 7, "other")).to_csv("seven.csv", index=False)
    assert refocal("fit", "rows.csv", "--groups", "g", "-o", "g.json")[0] == 0
    assert "Rows of groups that the fit has not seen" not in refocal("apply", "g.json", "rows.csv", "-o", "out.csv")[1]
    out = refocal("apply", "g.json", "seven.csv", "-o", "out.csv")[1]
    assert "2 classes. Rows of groups that the fit has not seen: 7." in out
    err = refocal("apply", "g.json", "numbers.csv", "-o", "out.csv")[2]
    assert "no groups of 'g' were given that the fit has seen (False, True)" in err
    assert "The column that --groups names must have them as they were in the fit." in err
    assert "groups={}" not in err


def test_a_percentage_among_probabilities_is_named_and_not_the_sum_of_its_row(refocal, folder):
    rng = np.random.default_rng(0)
    p = rng.random(300)
    table = pd.DataFrame({"p": p, "label": (rng.random(300) < p).astype(int)})
    table.to_csv("rows.csv", index=False)
    table.assign(p=np.round(100 * p, 1) + 1.0).to_csv("percent.csv", index=False)
    assert refocal("fit", "rows.csv", "-m", "logistic", "-o", "p.json")[0] == 0
    code, _, err = refocal("apply", "p.json", "percent.csv", "-o", "out.csv")
    assert code == 1
    assert f"Got {np.round(100 * p[0], 1) + 1:.6g} in row 0 of percent.csv instead" in err


def test_names_of_classes_of_a_table_are_advised_as_names_of_its_columns(refocal, folder):
    labels = np.array(["class 0", "class 1", "dog"])[np.arange(30) % 3]
    scores = {f"class {i}": np.random.default_rng(i).normal(size=30) for i in range(3)}
    pd.DataFrame({**scores, "label": labels}).to_csv("dog.csv", index=False)
    assert "if the columns of a table are called by them" in refocal("fit", "dog.csv")[2]


def test_a_calibrator_of_several_labels_asks_for_the_option(refocal, folder):
    logits = np.random.default_rng(0).normal(size=(300, 3))
    np.savez("several.npz", log_odds=logits, labels=(logits > 0.3).astype(int))
    assert refocal("fit", "several.npz", "--multi-label", "-o", "several.json")[0] == 0
    code, _, err = refocal("evaluate", "several.npz", "several.json")
    assert (code, "several.json: a calibrator of several labels; add --multi-label." in err) == (2, True)
    assert refocal("fit", "val.npz", "-m", "ts", "-o", "one.json")[0] == 0
    code, _, err = refocal("evaluate", "several.npz", "one.json", "--multi-label")
    assert (code, "one.json: a calibrator of one label for each row; leave out --multi-label." in err) == (2, True)
    for command in (
        ("adapt", "several.json", "several.npz"),
        ("monitor", "several.npz", "--calibrator", "several.json"),
    ):
        code, _, err = refocal(*command)
        assert code == 2
        assert "The calibrator is one of several labels; this takes rows of one label" in err


def test_a_missing_column_of_groups_is_said_as_that_and_not_as_one_of_scores(refocal, folder):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"p": rng.random(300), "label": rng.integers(2, size=300), "g": np.arange(300) % 2})
    table.to_csv("rows.csv", index=False)
    table.drop(columns="g").to_csv("without.csv", index=False)
    assert refocal("fit", "rows.csv", "--groups", "g", "-m", "group", "-o", "g.json")[0] == 0
    for command in (("evaluate", "without.csv", "g.json"), ("apply", "g.json", "without.csv", "-o", "out.csv")):
        err = refocal(*command)[2]
        assert "without.csv: no column 'g' with the groups. It has 'p', 'label'." in err
        assert "--values" not in err
    err = refocal("evaluate", "without.csv", "--clusters", "customer")[2]
    assert "no column 'customer' with the clusters" in err
