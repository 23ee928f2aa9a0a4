"""Every public name and command that takes rows is in the matrix, or among those that are tested elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matrix_registry import CALLED, ELSEWHERE, ENTRIES

PROMISED = Path(__file__).parents[1] / "docs" / "public_interface.txt"
# What arguments that hold rows, or parts of them, are called.
OF_ROWS = {
    *("X", "y", "y_true", "labels", "rows", "predictions", "detections", "batch", "batches", "runs", "source"),
    *("logits", "log_p", "log_q", "log_odds", "log_probabilities", "probabilities", "scores", "values", "sets"),
    *("test", "validation", "first", "features", "loader", "pairs", "boxes", "annotations", "answers", "token_log_p"),
    "judged",
}


def parameters_of(signature):
    """The names of the parameters of a line such as `f(a, *, b=(1, 2))`."""
    without_defaults = re.sub(r"=(\([^()]*\)|\[[^\[\]]*\]|[^,()]*(\([^()]*\))?)", "", signature)
    return {name.strip().lstrip("*") for name in without_defaults.split(",")}


def names_with_rows():
    """The public functions and methods with an argument of rows, and all commands."""
    names = set()
    for line in PROMISED.read_text(encoding="utf-8").splitlines():
        if line.startswith("$ refocal "):
            names.add(" ".join(line.split()[:3]))
            continue
        called = re.fullmatch(r"(refocal[\w.]*)\((.*)\)", line)
        if called is None:
            continue
        name, signature = called.groups()
        parameters = parameters_of(signature)
        reads_a_file = name.startswith("refocal.io.") and "path" in parameters
        if parameters & OF_ROWS or reads_a_file:
            names.add(name)
    return names


def is_elsewhere(name):
    return any(name == other or name.startswith(f"{other}.") for other in ELSEWHERE)


def test_the_parameters_of_a_signature():
    assert parameters_of("X, y=None, *, column=(None, None), terms=Terms(a='b', c='d'), **options") == {
        *("X", "y", "", "column", "terms", "options")
    }


def test_what_takes_rows_is_in_the_matrix_or_said_to_be_tested_elsewhere():
    covered = {name for entry in ENTRIES for name in entry.covers}
    missing = [name for name in sorted(names_with_rows() - covered) if not is_elsewhere(name)]
    assert missing == [], "these need an entry of the matrix, or a reason in ELSEWHERE"
    twice = [name for name in sorted(covered) if is_elsewhere(name)]
    assert twice == [], "these are entries: their reasons in ELSEWHERE are out of date"


def test_a_new_name_is_missing(monkeypatch, tmp_path):
    promised = tmp_path / "public_interface.txt"
    promised.write_text("refocal.metrics.new_error(y_true, probabilities=None)\nrefocal.metrics.describe(name)\n")
    monkeypatch.setitem(globals(), "PROMISED", promised)
    assert names_with_rows() == {"refocal.metrics.new_error"}
    with pytest.raises(AssertionError, match="new_error"):
        test_what_takes_rows_is_in_the_matrix_or_said_to_be_tested_elsewhere()


def test_every_reason_and_every_entry_names_what_there_is():
    names = names_with_rows()
    for other, reason in ELSEWHERE.items():
        assert reason
        assert any(name == other or name.startswith(f"{other}.") for name in names), other
    public = {line.partition("(")[0] for line in PROMISED.read_text(encoding="utf-8").splitlines()}
    commands = {name for name in names if name.startswith("$")}
    for entry in ENTRIES:
        assert set(entry.covers) <= public | commands, entry.name
    assert CALLED.keys() <= {entry.name for entry in ENTRIES}
