"""Runs from tables, patterns and folders."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from refocal.errors import FormatError, ParameterError
from refocal.evaluate import Run, read_runs
from refocal.evaluate.runs import found_runs
from refocal.io import Predictions


def write_rows(path, n=30, seed=0, **more):
    rng = np.random.default_rng(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, logits=rng.normal(size=(n, 3)), labels=rng.integers(3, size=n), **more)
    return path


def described(runs):
    return [(run.dataset, run.network, run.seed, len(run.validation), len(run.test)) for run in runs]


@pytest.fixture
def parts(tmp_path):
    """Two data sets, two networks, two seeds, each with a file of validation and one of test rows."""
    for dataset in ("a", "b"):
        for network in ("res-net", "vit"):
            for seed in (1, 2):
                write_rows(tmp_path / dataset / f"{network}-{seed}" / "val.npz", 30)
                write_rows(tmp_path / dataset / f"{network}-{seed}" / "test.npz", 20)
    return tmp_path


def test_a_pattern_names_data_set_network_seed_and_part(parts):
    runs = list(read_runs(f"{parts}/{{dataset}}/{{network}}-{{seed}}/{{part}}.npz"))
    expected = [(d, n, s, 30, 20) for d in "ab" for n in ("res-net", "vit") for s in "12"]
    assert described(runs) == expected


def test_without_fields_what_a_star_stands_for_is_the_network(parts):
    runs = list(read_runs(f"{parts}/a/*/{{part}}.npz"))
    assert [run.network for run in runs] == ["res-net-1", "res-net-2", "vit-1", "vit-2"]
    assert {(run.dataset, run.seed) for run in runs} == {("data", "0")}


def test_a_folder_has_a_run_in_each_of_its_folders_and_files(parts):
    write_rows(parts / "a" / "alone.npz", 40)
    (parts / "a" / "notes.txt").write_text("no rows")
    (parts / "a" / "empty").mkdir()
    runs = list(read_runs(parts / "a"))
    assert described(runs) == [
        ("data", "alone", "0", 20, 20),
        *(("data", name, "0", 30, 20) for name in ("res-net-1", "res-net-2", "vit-1", "vit-2")),
    ]


def test_a_table_says_where_the_rows_are(parts):
    with (parts / "runs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["validation", "test", "dataset", "network", "seed"])
        writer.writeheader()
        writer.writerow({
            "validation": "a/vit-1/val.npz", "test": "a/vit-1/test.npz", "dataset": "A", "network": "ViT", "seed": 1
        })  # fmt: skip
        writer.writerow({"validation": "b/vit-2/val.npz"})
    expected = [("A", "ViT", "1", 30, 20), ("data", "val", "0", 15, 15)]
    assert described(read_runs(parts / "runs.csv")) == expected
    assert described(read_runs(parts)) == expected
    table = pd.DataFrame({"validation": [str(parts / "a/vit-1/val.npz")], "network": ["x"], "test": [np.nan]})
    assert described(read_runs(table)) == [("data", "x", "0", 15, 15)]
    records = [{"validation": str(parts / "a/vit-1/val.npz"), "seed": 3}]
    assert described(read_runs(records)) == [("data", "val", "3", 15, 15)]


@pytest.mark.parametrize("made", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_data_frame_of_any_library_is_a_table_of_runs(parts, made):
    file = str(parts / "a/vit-1/val.npz")
    table = made({"validation": [file] * 3, "network": ["x", "y", None], "seed": [1.0, None, 2.0]})
    expected = [("data", "x", "1", 15, 15), ("data", "y", "0", 15, 15), ("data", "val", "2", 15, 15)]
    assert described(read_runs(table)) == expected
    of_paths = pd.DataFrame({"validation": [parts / "a/vit-1/val.npz"], "network": ["x"]})
    assert described(read_runs(of_paths)) == [("data", "x", "0", 15, 15)]


def test_one_file_may_hold_both_parts(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {"val": rng.normal(size=(12, 3)), "yv": rng.integers(3, size=12)}
    arrays |= {"test": rng.normal(size=(8, 3)), "yt": rng.integers(3, size=8)}
    np.savez(tmp_path / "net.npz", **arrays)
    names = {"validation": {"values": "val", "labels": "yv"}, "test": {"values": "test", "labels": "yt"}}
    (run,) = read_runs(tmp_path / "net.npz", **names)
    np.testing.assert_array_equal(run.validation.values, arrays["val"])
    np.testing.assert_array_equal(run.test.labels, arrays["yt"])


def test_columns_of_the_test_rows_are_matched_by_name(tmp_path):
    for name, columns in (("val", ["cat", "dog", "emu"]), ("test", ["emu", "cat", "dog"])):
        frame = pd.DataFrame(3.0 * np.eye(3), columns=columns)
        (tmp_path / "net").mkdir(exist_ok=True)
        frame.assign(label=columns).to_csv(tmp_path / "net" / f"{name}.csv", index=False)
    (run,) = read_runs(tmp_path)
    assert list(run.test.class_names) == list(run.validation.class_names) == ["cat", "dog", "emu"]
    assert run.test.labels.tolist() == [2, 0, 1]
    np.testing.assert_array_equal(run.test.values.argmax(axis=1), run.test.labels)


def test_nothing_is_read_before_its_turn(parts):
    write_rows(parts / "c" / "vit-1" / "val.npz")
    (parts / "c" / "vit-1" / "test.npz").write_bytes(b"damaged")
    runs = read_runs(f"{parts}/{{dataset}}/vit-1/{{part}}.npz")
    assert [next(runs).dataset, next(runs).dataset] == ["a", "b"]
    with pytest.raises(FormatError, match=r"c/vit-1/test\.npz"):
        next(runs)


def test_what_is_wrong_is_said(parts, tmp_path):
    with pytest.raises(FormatError, match=r"no-such/\*: no runs"):
        found_runs("no-such/*")
    with pytest.raises(ParameterError, match=r"\{dataset\}, \{network\}, \{seed\} and \{part\}, once each"):
        found_runs("{model}.npz")
    with pytest.raises(ParameterError, match="tells runs apart by data set, network and seed"):
        found_runs(f"{parts}/*/{{network}}-{{seed}}/val.npz")
    Path(parts / "a" / "vit-1" / "test.npz").unlink()
    with pytest.raises(FormatError, match="there is no file of test rows of a, vit, 1"):
        found_runs(f"{parts}/{{dataset}}/{{network}}-{{seed}}/{{part}}.npz")
    with pytest.raises(FormatError, match="row 1 must have a file in the column 'validation'; columns: files"):
        found_runs([{"files": "x.npz"}])
    with pytest.raises(ParameterError, match="at least one run"):
        found_runs([])
    with pytest.raises(ParameterError, match="Got float instead"):
        found_runs(0.5)


def test_a_run_has_predictions_of_one_number_of_classes():
    rng = np.random.default_rng(0)
    three = Predictions.from_logits(rng.normal(size=(9, 3)), rng.integers(3, size=9))
    two = Predictions.from_logits(rng.normal(size=(9, 2)), rng.integers(2, size=9))
    with pytest.raises(ParameterError, match="'test' of Run must be of 3 classes"):
        Run(three, two)
    with pytest.raises(ParameterError, match="'validation' of Run must be Predictions"):
        Run(three.values, three)


def test_hidden_folders_are_no_runs_and_a_folder_whose_parts_are_unknown_is_refused(parts):
    for name in ("_old", ".ipynb_checkpoints"):
        write_rows(parts / "a" / name / "val.npz", 40)
        write_rows(parts / "a" / name / "test.npz", 40)
    assert [run.network for run in found_runs(parts / "a")] == ["res-net-1", "res-net-2", "vit-1", "vit-2"]
    write_rows(parts / "a" / "vit-2" / "valid.npz", 40)  # which of two is meant is not known
    with pytest.raises(
        FormatError, match=r"vit-2: must hold one file of rows.*It holds test\.npz, val\.npz, valid\.npz"
    ):
        found_runs(parts / "a")
