"""Limits on memory that environment variables set: what is understood, what is refused, and where they count."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from refocal._limits import large_file, limit
from refocal.cli.run import run
from refocal.errors import ParameterError
from refocal.io.files import is_large
from refocal.io.parts import rows_of_a_block

pytestmark = pytest.mark.core


@pytest.mark.parametrize("text", ["0", "-5", "1e6", "a lot", " "])
def test_what_is_no_whole_number_is_refused(text, monkeypatch):
    monkeypatch.setenv("REFOCAL_LARGE_FILE", text)
    message = "The 'REFOCAL_LARGE_FILE' of the environment must be a whole number of at least 1. Got "
    with pytest.raises(ParameterError) as caught:
        large_file()
    assert str(caught.value) == f"{message}{text!r} instead."


def test_an_empty_variable_is_none(monkeypatch):
    monkeypatch.setenv("REFOCAL_LARGE_FILE", "")
    assert large_file() == limit("REFOCAL_LARGE_FILE", 1 << 30) == 2**30


def test_a_command_says_which_variable_is_wrong(tmp_path, monkeypatch, capsys):
    np.savez(tmp_path / "rows.npz", logits=np.eye(3), labels=np.arange(3))
    monkeypatch.setenv("REFOCAL_LARGE_FILE", "1 GB")
    assert run(["fit", str(tmp_path / "rows.npz"), "-o", str(tmp_path / "c.json")]) != 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "'REFOCAL_LARGE_FILE' must be a whole number of at least 1. Got '1 GB' instead." in line
    assert not (tmp_path / "c.json").exists()


@pytest.mark.parametrize(("name", "smallest"), [("rows.npz", 6400), ("rows.csv", 400), ("rows.csv.gz", 100)])
def test_from_which_size_on_a_file_is_large(name, smallest, tmp_path, monkeypatch):
    """A sixteenth of the limit for text, a sixty-fourth for compressed text."""
    monkeypatch.setenv("REFOCAL_LARGE_FILE", "6400")
    path = tmp_path / name
    for n_bytes, expected in ((smallest - 1, False), (smallest, True)):
        path.write_bytes(gzip.compress(b"")[:10].ljust(n_bytes, b"\0"))
        assert is_large(str(path)) is expected


@pytest.mark.parametrize(
    ("entries", "n_classes", "expected"), [("600", 3, 200), ("2", 3, 1), (str(1 << 40), 3, 1 << 20)]
)
def test_rows_of_a_block(entries, n_classes, expected, monkeypatch):
    monkeypatch.setenv("REFOCAL_BLOCK_ENTRIES", entries)
    assert rows_of_a_block(n_classes) == expected
