"""What commands write over: never an input, and files of another kind only with --overwrite."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import zarr

from refocal import load
from refocal.evaluate import load_evaluation
from refocal.io import read
from refocal.monitor import CalibrationMonitor


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    """Where the first test keeps a copy of the files that it made for the others."""
    return tmp_path_factory.mktemp("made") / "files"


@pytest.fixture
def made(refocal, folder, made_once):
    """A calibrator, an evaluation, the state of a monitor, a table and a folder of tables."""
    if made_once.exists():
        shutil.copytree(made_once, folder, dirs_exist_ok=True)
        return folder
    rows = read("val.npz")
    frame = pd.DataFrame(rows.values, columns=["a", "b", "c", "d"])
    frame["label"] = np.array([*"abcd"])[rows.labels]
    frame.to_csv("rows.csv", index=False)
    Path("rows").mkdir()
    for i in range(2):
        frame[400 * i : 400 * (i + 1)].to_parquet(f"rows/{i}.parquet")
    assert refocal("fit", "val.npz", "-m", "ts", "-o", "c.json")[0] == 0
    assert refocal("evaluate", "test.npz", "c.json", "-o", "e.json", "--resamples", "20")[0] == 0
    monitor = CalibrationMonitor()
    monitor.update([0.2, 0.7], [0, 1])
    monitor.save("m.json")
    Path("notes.md").write_text("text")
    Path("notes.html").write_text("text")
    np.save("labels.npy", rows.labels)
    np.save("logits.npy", rows.values)
    shutil.copytree(folder, made_once)
    return folder


def contents(folder):
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


INPUTS = [
    ("evaluate test.npz c.json -o c.json", "--output must be another file than those that are read"),
    ("evaluate test.npz c.json -o ./sub/../c.json", "--output must be another file than those that are read"),
    ("evaluate test.npz c.json --notes notes.html --report notes.html", "--report must be another file"),
    ("compare val.npz test.npz --notes notes.html --report notes.html", "--report must be another file"),
    ("report e.json --notes notes.html -o notes.html", "--output must be another file"),
    ("apply c.json rows -o rows", "--output must be a place apart from what is read. Got 'rows', which is 'rows'"),
    ("apply c.json rows -o rows/out", "which lies inside 'rows'"),
    ("apply c.json rows.csv -o rows.csv", "which is 'rows.csv'"),
    ("apply c.json logits.npy --labels labels.npy -o labels.npy", "--output must be another file"),
    ("fit rows -o rows/c.json", "which lies inside 'rows'"),
    ("decide rows.csv --costs 0,1,1,1;1,0,1,1;1,1,0,1;1,1,1,0 -o rows.csv", "which is 'rows.csv'"),
    ("monitor m.json.waiting.npz --state m.json", "--state must be a place apart from what is read"),
]
KINDS = [
    ("fit val.npz -m ts -o e.json", "Got 'e.json', which is an evaluation instead. To have it replaced"),
    ("fit val.npz -m ts -o m.json", "Got 'm.json', which is the state of a monitor instead."),
    ("fit val.npz -m ts -o package.json", "Got 'package.json', which is a file of another kind instead."),
    ("evaluate test.npz -o c.json --resamples 20", "Got 'c.json', which is a calibrator instead. To have it replaced"),
    ("evaluate test.npz -o broken.json --resamples 20", "Got 'broken.json', which is a file of another kind instead."),
    ("compare val.npz test.npz -m ts -o c.json --resamples 20", "Got 'c.json', which is a calibrator instead."),
]


@pytest.mark.parametrize(("line", "message"), INPUTS + KINDS, ids=[line for line, _ in INPUTS + KINDS])
def test_what_must_stay_is_not_written_over(made, refocal, line, message):
    (made / "sub").mkdir()
    (made / "package.json").write_text('{"name": "of someone else"}')
    (made / "broken.json").write_text("{")
    before = contents(made)
    code, out, err = refocal(*line.split())
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert contents(made) == before


@pytest.mark.parametrize("line", [line for line, _ in KINDS])
def test_files_of_another_kind_are_replaced_if_asked(made, refocal, line):
    (made / "package.json").write_text('{"name": "of someone else"}')
    (made / "broken.json").write_text("{")
    output = line.split("-o ")[1].split()[0]
    for more in (["--overwrite"], []):  # and then it is of the right kind
        code, _, err = refocal(*line.split(), *more)
        assert (code, err) == (0, "")
        (load if line.startswith("fit") else load_evaluation)(output)


def test_stale_tables_of_a_folder_are_removed_if_asked(made, refocal):
    assert refocal("apply", "c.json", "rows", "-o", "probs")[0] == 0
    Path("rows/1.parquet").unlink()
    code, _, err = refocal("apply", "c.json", "rows", "-o", "probs")
    assert code == 2
    assert "Got 'probs' with '1.parquet' instead. To have it replaced or removed, add --overwrite." in err
    assert refocal("apply", "c.json", "rows", "-o", "probs", "--overwrite")[0] == 0
    assert [file.name for file in Path("probs").iterdir()] == ["0.parquet"]
    assert pq.read_metadata("probs/0.parquet").num_rows == 400


def test_a_run_that_goes_on_counts_bad_rows_and_reads_what_was_cut(made, refocal):
    frame = pd.read_parquet("rows/0.parquet")
    frame.loc[7, "a"] = np.nan
    frame.to_parquet("rows/0.parquet")
    line = ("apply", "c.json", "rows", "-o", "probs", "--skip-bad-rows", "--json")
    assert json.loads(refocal(*line)[1])["rows_skipped"] == 1
    found = json.loads(refocal(*line)[1])
    assert (found["rows_skipped"], found["files_there_before"]) == (1, 2)
    whole = Path("probs/1.parquet").read_bytes()
    Path("probs/1.parquet").write_bytes(whole[: len(whole) // 2])
    code, out, err = refocal(*line)
    assert (code, err) == (0, "")
    assert json.loads(out)["files_there_before"] == 1
    assert Path("probs/1.parquet").read_bytes() == whole


def test_large_numbers_and_bytes_of_other_columns_are_written_as_text(made, refocal):
    frame = pd.read_csv("rows.csv")[:4]
    large = [2**64 - 1, 2**63, 1, 0]
    frame["serial"] = np.array(large, dtype=np.uint64)
    frame["name"] = ["é".encode(), b"plain", b"a,b", None]
    frame["key"] = [b"\xff\x00", b"\x01", b"ab", None]
    frame.to_parquet("more.parquet")
    costs = "0,1,1,1;1,0,1,1;1,1,0,1;1,1,1,0"
    for command in (
        ("decide", "more.parquet", "--values", "a,b,c,d", "--costs", costs, "-o", "out.csv"),
        ("apply", "c.json", "more.parquet", "--values", "a,b,c,d", "-o", "out.csv"),
        ("apply", "c.json", "more.parquet", "--values", "a,b,c,d", "-o", "out.tsv"),
    ):
        code, _, err = refocal(*command)
        assert (code, err) == (0, "")
        found = pd.read_csv(command[-1], dtype=str, sep="\t" if command[-1].endswith("tsv") else ",").fillna("")
        assert found["serial"].tolist() == [str(each) for each in large]
        assert found["name"].tolist() == ["é", "plain", "a,b", ""]
        assert found["key"].tolist() == ["ff00", "\x01", "ab", ""]
    assert refocal("apply", "c.json", "more.parquet", "--values", "a,b,c,d", "-o", "out.jsonl")[0] == 0
    lines = [json.loads(line) for line in Path("out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["key"] for line in lines] == ["ff00", "\x01", "ab", None]
    assert [line["serial"] for line in lines] == large
    Path("large.jsonl").write_text("".join(json.dumps({"logits": [1, 2, 0, 0], "n": n}) + "\n" for n in large))
    assert refocal("apply", "c.json", "large.jsonl", "-o", "large.parquet")[0] == 0
    assert pd.read_parquet("large.parquet")["n"].tolist() == [str(each) for each in large]


def test_notes_that_are_no_text_are_said_before_anything_is_computed(made, refocal):
    Path("notes.md").write_bytes("café".encode("latin-1"))
    before = contents(made)
    for line in ("compare val.npz test.npz --report r.html", "evaluate test.npz c.json --report r.html -o new.json"):
        code, out, err = refocal(*line.split(), "--notes", "notes.md")
        assert (code, out) == (1, "")
        assert "notes.md: --notes must be text in UTF-8" in err
    assert contents(made) == before


def test_every_calibrator_is_measured_or_the_command_fails(made, refocal):
    rows = read("val.npz")
    np.savez("three.npz", logits=rows.values[rows.labels < 3, :3], labels=rows.labels[rows.labels < 3])
    assert refocal("fit", "three.npz", "-m", "ts", "-o", "three.json")[0] == 0
    code, out, err = refocal("evaluate", "test.npz", "c.json", "three.json", "-o", "new.json", "--resamples", "20")
    assert (code, out) == (1, "")
    assert "three.json: cannot be measured on test.npz: " in err
    assert not Path("new.json").exists()
    refocal("fit", "val.npz", "-m", "vs", "-o", "second.json")
    refocal("evaluate", "test.npz", "c.json", "second.json", "-o", "new.json", "--resamples", "20")
    assert {method.name for method in load_evaluation("new.json").methods} == {"none", "c", "second"}


@pytest.mark.parametrize(
    ("required", "message"),
    [
        ("mean_bias<1%", "--require must be about a measure of this evaluation, which is of 4 classes: ece, "),
        ("ece<2", "--require must be a share from 0 to 1 or a percentage, such as 'ece<2%'. Got 'ece<2' instead."),
        ("accuracy>=95.5", "such as 'accuracy>=95.5%'"),
    ],
)
def test_requirements_that_cannot_be_checked_are_refused(made, refocal, required, message):
    line = ("evaluate", "test.npz", "c.json", "--resamples", "20", "-o", "new.json", "--require", required)
    code, out, err = refocal(*line)
    assert (code, out) == (2, "")
    assert message in err
    assert not Path("new.json").exists()


@pytest.mark.parametrize("required", ["ece<1", "ece<0.5", "log_loss<2", "ece<=100%", "log_loss<=none"])
def test_requirements_that_hold_are_no_failure(made, refocal, required):
    line = ("evaluate", "test.npz", "c.json", "--resamples", "20", "-o", "new.json", "--require", required)
    assert refocal(*line)[0] == 0
    assert Path("new.json").exists()


def test_evaluations_of_other_classes_are_not_compared(made, refocal):
    rows = read("val.npz")
    np.savez("three.npz", logits=rows.values[rows.labels < 3, :3], labels=rows.labels[rows.labels < 3])
    assert refocal("evaluate", "three.npz", "-o", "three.json", "--resamples", "20")[0] == 0
    code, out, err = refocal("diff", "e.json", "three.json")
    assert (code, out) == (1, "")
    assert "three.json: 'new' must be an evaluation of 4 classes, as the old one. Got one of 3 classes instead." in err


def test_several_labels_are_counted_as_rows_and_labels(refocal, folder):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(300, 3))
    labels = (rng.random(scores.shape) < 1.0 / (1.0 + np.exp(-scores))).astype(int)
    columns = {f"score_{name}": 2.0 * scores[:, i] for i, name in enumerate("xyz")}
    pd.DataFrame(columns | {f"label_{name}": labels[:, i] for i, name in enumerate("xyz")}).to_csv("rows.csv")
    code, out, _ = refocal("fit", "rows.csv", "--multi-label", "-m", "ts", "-o", "c.json")
    assert code == 0
    assert "on 900 known labels of its 300 rows, 3 a row" in out
    assert load("c.json").fit_report_["n_rows"] == 300
    assert "of 300 rows and 3 labels." in refocal("apply", "c.json", "rows.csv", "-o", "out.csv")[1]
    said = json.loads(refocal("apply", "c.json", "rows.csv", "-o", "out.csv", "--json")[1])
    assert (said["rows"], said["labels"], "classes" in said) == (300, 3, False)
    found = json.loads(refocal("evaluate", "rows.csv", "c.json", "--multi-label", "--resamples", "20", "--json")[1])
    assert (found["run"]["rows of several labels"], found["run"]["labels of a row"]) == ("300", "3")
    np.savez("rows.npz", log_odds=2.0 * scores, labels=labels)  # without names: of the calibrator's labels
    unnamed = json.loads(refocal("evaluate", "rows.npz", "c.json", "--multi-label", "--resamples", "20", "--json")[1])
    for of_arrays, of_table in zip(unnamed["methods"], found["methods"], strict=True):
        assert of_arrays["measures"]["log_loss"]["value"] == pytest.approx(of_table["measures"]["log_loss"]["value"])
        assert {group["name"] for group in of_arrays["groups"]} == {"x", "y", "z"}
    group = zarr.open_group("rows.zarr", mode="w")
    group["log_odds"] = 2.0 * scores
    assert refocal("apply", "c.json", "rows.zarr", "-o", "zarr.parquet")[0] == 0
    of_arrays, of_table = pd.read_parquet("zarr.parquet"), pd.read_csv("out.csv")
    np.testing.assert_allclose(of_arrays[["x", "y", "z"]], of_table[["x", "y", "z"]])
    assert "on these 450 known labels" in refocal("compare", "rows.csv", "--multi-label", "--resamples", "20")[1]
    code, out, err = refocal("decide", "rows.csv", "--calibrator", "c.json", "--costs", "0,1;5,0")
    assert (code, out) == (2, "")
    assert "c.json: a calibrator of several labels; a row has several labels, and decide takes one action" in err


def test_groups_that_the_fit_has_not_seen_are_an_error_that_leaves_no_file(refocal, folder):
    rng = np.random.default_rng(0)
    log_odds = rng.normal(size=400)
    y = (rng.random(400) < 1 / (1 + np.exp(-log_odds))).astype(int)
    table = pd.DataFrame({"logit": log_odds, "label": y, "region": rng.choice(["1", "2"], 400)})
    table.to_csv("rows.csv", index=False)
    table.assign(region="0" + table["region"]).to_csv("other.csv", index=False)
    assert refocal("fit", "rows.csv", "--groups", "region", "-o", "c.json")[0] == 0
    for output in ("p.csv", "p.npz", "p.parquet"):
        code, _, err = refocal("apply", "c.json", "other.csv", "-o", output)
        assert code == 1
        assert "no groups of 'region' were given that the fit has seen" in err
        assert not (folder / output).exists()
    code, _, err = refocal("apply", "c.json", "other.csv", "-o", "probs")
    assert code == 1
    assert "They were written to probs." in err
    code, _, _ = refocal("apply", "c.json", "rows.csv", "-o", "p.csv")
    assert (code, (folder / "p.csv").exists()) == (0, True)
