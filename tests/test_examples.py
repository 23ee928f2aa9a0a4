"""Every example runs as it is and makes the log-loss smaller."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def test_the_examples_are_found():
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, capsys):
    runpy.run_path(str(path), run_name="__main__")
    before, after = re.search(r"log-loss.*?: ([\d.]+) before, ([\d.]+) after", capsys.readouterr().out).groups()
    assert float(after) < float(before)
