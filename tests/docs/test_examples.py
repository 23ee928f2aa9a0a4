"""Every example runs as it is and makes the loss that it prints smaller; the start page shows what they do."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import python_blocks
from refocal.cli.run import run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_the_examples_are_found():
    assert len(EXAMPLES) >= 16


def losses_of(printed):
    """The loss before and after that an example prints."""
    found = re.search(r"(?:log-loss|Brier score).*?: ([\d.]+) before, ([\d.]+) after", printed)
    return tuple(map(float, found.groups()))


def refocal_in_this_process(command, check):
    """What `python -m refocal ...` does, without another start; tests/cli has that."""
    assert command[:3] == [sys.executable, "-m", "refocal"]
    assert check
    assert run(command[3:]) == 0


def check_paper(folder, found):
    """The table and the figure of the methods paper, and what it says of its method."""
    assert len(found.networks) == 16
    table = (folder / "table.tex").read_text()
    assert table == found.to_latex()
    assert table.startswith(r"\begin{tabular}{lrrrrr}")
    assert (folder / "figure.pdf").read_bytes().startswith(b"%PDF")
    (mine,) = [row for row in found.table("log_loss") if row.name == "entropy-scaling"]
    assert mine.difference.difference < 0.0 < mine.p_value < 0.05


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, capsys, tmp_path, monkeypatch):
    if path.stem in ("published_table", "methods_paper") and not (ROOT / "paper").exists():
        pytest.skip("the source archive has no paper/results")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", refocal_in_this_process)
    space = runpy.run_path(str(path), run_name="__main__")
    if path.stem == "methods_paper":
        check_paper(tmp_path, space["found"])
    before, after = losses_of(capsys.readouterr().out)
    assert after < before
    shown = losses_of((ROOT / "docs" / "gallery" / f"{path.stem}.txt").read_text())
    assert (before, after) == pytest.approx(shown, rel=0.05), "run tools/gallery_pictures.py"


def test_a_methods_paper_takes_fewer_than_80_lines():
    """A calibrator and a metric of one's own over many networks, to a table and a figure, is one short script."""
    script = (ROOT / "examples" / "methods_paper.py").read_text()
    code = [line for line in script.split('"""', 2)[2].splitlines() if line.strip()]
    assert len(code) < 80
    assert not re.search(r"^(?:from|import) .*[. ]_\w", script, re.M)


def test_every_example_has_a_card_and_a_picture_in_the_gallery():
    page = (ROOT / "docs" / "gallery.md").read_text()
    cards = re.findall(r"\[!\[[^\]]+\]\(gallery/(\w+)\.svg\)\]\(\.\./examples/(\w+)\.py\)", page)
    assert sorted(cards) == [(path.stem, path.stem) for path in EXAMPLES]
    for path in EXAMPLES:
        assert (ROOT / "docs" / "gallery" / f"{path.stem}.svg").stat().st_size < 20_000


def test_the_start_page_shows_the_examples_word_for_word():
    """Every Python block of the page is a stretch of one of the scripts, and so are the commands."""
    page = (ROOT / "docs" / "start.md").read_text()
    scripts = [path.read_text() for path in EXAMPLES if path.stem.startswith("start_")]
    blocks = python_blocks(ROOT / "docs" / "start.md")
    assert len(blocks) >= 3
    for block in blocks:
        assert any(block in script for script in scripts), block
    shown = re.findall(r"^ *refocal (compare|fit|apply) (.*npz.*?)\s*(?:#.*)?$", page, re.M)
    assert len(shown) >= 3
    for command, rest in shown:
        assert any(f'"{command} {rest}"' in script for script in scripts), (command, rest)
