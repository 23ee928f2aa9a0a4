"""The interface is what tests/docs/public_interface.txt promises of it."""

from __future__ import annotations

import difflib
import runpy
from pathlib import Path

import pytest

import refocal

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "tools" / "public_interface.py"))


def changes() -> list[str]:
    """The lines that are promised and gone, and those that are new."""
    promised = TOOL["LIST"].read_text(encoding="utf-8").splitlines()
    lines = difflib.ndiff(promised, TOOL["text"]().splitlines())
    return [line for line in lines if line.startswith(("- ", "+ "))]


def test_the_interface_is_the_one_that_is_promised():
    assert changes() == [], "if this is meant, run: python tools/public_interface.py"


def test_the_table_of_names_is_that_of_the_package():
    assert TOOL["TABLE"].read_text(encoding="utf-8") == TOOL["table"]()


def renamed_argument(logits, steepness=1.0):
    """log_softmax with another name for its temperature."""


def test_a_renamed_argument_and_a_removed_name_are_noticed(monkeypatch):
    monkeypatch.setattr(refocal.maps, "log_softmax", renamed_argument)
    assert changes() == [
        "- refocal.maps.log_softmax(logits, temperature=1.0)",
        "+ refocal.maps.log_softmax(logits, steepness=1.0)",
    ]
    monkeypatch.setattr(refocal.maps, "__all__", [name for name in refocal.maps.__all__ if name != "log_softmax"])
    assert changes() == ["- refocal.maps.log_softmax(logits, temperature=1.0)"]


@pytest.mark.parametrize("name", sorted(set(refocal.__all__) - {"__version__"}))
def test_the_promise_names_every_subpackage_and_says_which_are_not_promised(name):
    if not hasattr(refocal.calibrators, name):
        page = (ROOT / "docs" / "versioning.md").read_text(encoding="utf-8")
        assert f"`refocal.{name}`" in page
