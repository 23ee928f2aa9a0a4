"""Every Python block of the README and the docs runs, and prints what its comments say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{i}")
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for i, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_block_runs(block, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "<docs>", "exec"), {})  # noqa: S102
    printed = capsys.readouterr().out.split("\n")
    for line in block.splitlines():
        claim = re.match(r"print\(.*\)\s+# (.*)", line)
        if claim:
            numbers = re.findall(r"-?\d+\.\d+(?:e-?\d+)?", claim[1])
            shown = [float(v) for v in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", printed.pop(0))]
            for claimed, value in zip(numbers, shown, strict=False):
                digits = len(claimed.split("e")[0].split(".")[1])
                exponent = int(claimed.split("e")[1]) if "e" in claimed else 0
                assert value == pytest.approx(float(claimed), abs=0.51 * 10.0 ** (exponent - digits))
