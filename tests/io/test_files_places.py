"""Which files a place stands for: those below a folder or that match a pattern, each of them once."""

from __future__ import annotations

import os

import numpy as np
import pytest

from refocal.errors import FormatError
from refocal.io import read
from refocal.io.files import files_of

HEADER = "logit_a,logit_b,label\n"
ROWS = ("2.0,0.0,a\n", "0.5,1.0,b\n", "1.0,0.0,a\n")


def write(folder, name, rows=ROWS):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(HEADER + "".join(rows))
    return folder / name


@pytest.mark.parametrize("hidden", [".ipynb_checkpoints", "_temporary/0", "_delta_log"])
@pytest.mark.parametrize("place", ["{}", "{}/**/*.csv", "file://{}"])
def test_what_lies_in_a_hidden_folder_is_no_part_of_a_data_set(tmp_path, hidden, place):
    write(tmp_path / "rows", "a.csv")
    write(tmp_path / "rows" / hidden, "a-checkpoint.csv")
    assert len(read(place.format(tmp_path / "rows"))) == len(ROWS)


def test_hidden_names_that_are_said_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "_rows", "_part.csv")
    write(tmp_path / "_rows" / "_day=3", "a.csv")
    assert len(read("_rows/_part.csv")) == len(ROWS)
    assert files_of("_rows") == ["_rows/_day=3/a.csv"]
    assert files_of("_rows/_p*.csv") == ["_rows/_part.csv"]


@pytest.mark.parametrize("place", ["rows", "rows/**/*.csv", "rows/**/*"])
def test_folders_that_are_links_are_read_and_end(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "rows", "a.csv", ROWS[:1])
    write(tmp_path / "elsewhere", "b.csv", ROWS[1:])
    (tmp_path / "rows" / "day2").symlink_to("../elsewhere", target_is_directory=True)
    np.testing.assert_array_equal(read(place).labels, [0, 1, 0])
    (tmp_path / "rows" / "again").symlink_to(".", target_is_directory=True)
    assert files_of("rows") == ["rows/a.csv", "rows/day2/b.csv"]


@pytest.mark.parametrize("place", ["rows", "rows/*.csv*"])
def test_a_file_that_is_there_twice_is_refused(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path / "rows", "day1.csv")
    (tmp_path / "rows" / "latest.csv").symlink_to("day1.csv")
    with pytest.raises(FormatError, match=r"latest\.csv: also there as rows.day1\.csv; the rows would count twice"):
        read(place)
    os.replace(file, tmp_path / "rows" / "latest.csv")
    write(tmp_path / "rows", "latest.csv.gz")
    with pytest.raises(FormatError, match=r"latest\.csv: also there as \.gz; the rows would count twice"):
        read(place)


@pytest.mark.parametrize("place", ["rows", "rows/**/*", "rows/**/*.csv"])
def test_folders_that_are_called_as_files_hold_them(tmp_path, monkeypatch, place):
    """As Spark writes a table."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "rows" / "day1.csv", "part-0.csv")
    write(tmp_path / "rows" / "day1.csv", "_SUCCESS", [])
    assert files_of(place) == ["rows/day1.csv/part-0.csv"]
