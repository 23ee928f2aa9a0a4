"""docs/focal-map.md shows the lines of the sources: each excerpt is in the file that is named before it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "focal-map.md").read_text(encoding="utf-8")


def excerpts():
    """Each block of code, and the file that the last `path` at the beginning of a line before it names."""
    path = ""
    for name, block in re.findall(r"^`(\w+/[\w.]+)`|^```(?:py|c|js)\n(.*?)^```", PAGE, re.S | re.M):
        path = name or path
        if block:
            yield path, block


def without_space(code):
    """Code without white space: the lines of a page are shorter than those of the sources."""
    return re.sub(r"\s", "", code)


@pytest.mark.parametrize(("path", "block"), list(excerpts()))
def test_the_excerpt_is_in_the_source(path, block):
    source = (ROOT / "src" / "refocal" / path).read_text(encoding="utf-8")
    assert without_space(block) in without_space(source)


def test_all_five_places_are_shown():
    shown = {path for path, _ in excerpts()}
    places = {"maps/softmax.py", "engine/kernel.c", "engine/apply.h", "engine/triton_maths.py", "explore/maps.js"}
    assert places <= shown
