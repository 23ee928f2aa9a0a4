"""`refocal compare-many` in a process of its own, and the names of files and columns that it refuses."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from helpers import draw_logits
from refocal.errors import FormatError
from refocal.evaluate import read_runs


def save(file, seed):
    logits, labels = draw_logits(200, 3, seed=seed)
    np.savez(file, logits=logits, labels=labels)


def test_a_process_of_its_own_prints_and_writes(tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    for seed in range(3):
        save(runs / f"net{seed}.npz", seed)
    made = ["-o", str(tmp_path / "many.json"), "--latex", str(tmp_path / "many.tex")]
    command = [sys.executable, "-m", "refocal", "compare-many", str(runs), "-m", "ts", *made]
    found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert found.returncode == 0, found.stderr
    assert "log-loss" in found.stdout + found.stderr
    assert (tmp_path / "many.json").is_file()
    assert r"\toprule" in (tmp_path / "many.tex").read_text()


@pytest.mark.parametrize("names", [("val", "test"), ("net1_val", "net1_test"), ("a-cal", "a-test")])
def test_files_of_one_part_of_a_run_are_not_split(tmp_path, names):
    for name in names:
        save(tmp_path / f"{name}.npz", 0)
    files = [tmp_path / f"{name}.npz" for name in names]
    for source in (tmp_path, str(tmp_path / "*.npz"), files):
        with pytest.raises(FormatError, match=r"test rows of a run.*\{network\}_\{part\}"):
            list(read_runs(source))


@pytest.mark.parametrize("column", ["Network", "model"])
def test_columns_of_a_table_of_runs_that_mean_nothing_are_refused(tmp_path, column):
    save(tmp_path / "a.npz", 0)
    table = pd.DataFrame({"validation": [str(tmp_path / "a.npz")], column: ["resnet"]})
    with pytest.raises(FormatError, match=f"among validation, test, dataset, network, seed. Got '{column}' too"):
        list(read_runs(table))
