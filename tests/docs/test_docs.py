"""Every Python block of the README, the docs and the paper's pages runs, and prints what its comments say."""

from __future__ import annotations

import ast
import itertools
import re
import sys
import warnings
from collections import defaultdict
from pathlib import Path

import pytest

from helpers import python_blocks

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "paper" / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{i}")
    for page in PAGES
    for i, block in enumerate(python_blocks(page))
]

# Packages whose code stands beside ours; the development environment has some of them.
PEERS = {"betacal", "calibration", "datasets", "mapie", "netcal", "probmetrics", "torchmetrics"}
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS)
def test_block_runs(block, tmp_path, monkeypatch):
    for peer in PEERS & {name.split(".")[0] for name in re.findall(r"^(?:from|import) ([\w.]+)", block, re.M)}:
        pytest.importorskip(peer, reason=f"{peer} is not installed")
        warnings.simplefilter("ignore", DeprecationWarning)  # theirs; pytest restores the filters
    monkeypatch.chdir(tmp_path)
    printed = defaultdict(str)  # line of the block → all that it printed

    def note(*values):
        printed[sys._getframe(1).f_lineno] += " ".join(map(str, values)) + "\n"

    exec(compile(block, "<docs>", "exec"), {"print": note})  # noqa: S102
    for line, first, last, claim in claims_of(block):
        claims = NUMBER.findall(claim)
        shown = [float(v) for n in range(first, last + 1) for v in NUMBER.findall(printed[n])]
        assert len(claims) <= len(shown), f"{line} printed {shown}"
        for claimed, value in zip(claims, shown, strict=False):
            digits = len(claimed.split("e")[0].split(".")[1])
            exponent = int(claimed.split("e")[1]) if "e" in claimed else 0
            assert value == pytest.approx(float(claimed), abs=0.51 * 10.0 ** (exponent - digits)), line


def claims_of(block):
    """Each call of print with a comment behind it or on the lines below: its text, its lines and the comment."""
    lines = block.splitlines()
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "print":
            behind = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
            below = itertools.takewhile(lambda line: line.strip().startswith("# "), lines[node.end_lineno :])
            comments = [behind] if behind.strip() else list(below)
            yield lines[node.lineno - 1].strip(), node.lineno, node.end_lineno, " ".join(comments)


def test_code_blocks_are_at_most_88_columns_wide():
    for page in PAGES:
        if page.name == "commands.md":  # made from the commands' own help
            continue
        for indent, code in re.findall(r"^( *)```[^\n]*\n(.*?)^\1```", page.read_text(), re.S | re.M):
            for line in code.splitlines():
                assert len(line) - len(indent) <= 88, f"{page.relative_to(ROOT)}: {line}"
    for script in sorted((ROOT / "examples").glob("*.py")):
        for line in script.read_text().split('"""', 2)[2].splitlines():
            assert len(line) <= 88, f"{script.name}: {line}"


def test_user_pages_hold_at_most_25_000_words():
    """All pages but the reference and the cards of metrics, which are made from the code, and those for maintainers."""
    others = ("architecture.md", "focal-map.md", "metric-cards.md")
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "reference"]
    assert sum(len(page.read_text().split()) for page in pages if page.name not in others) <= 25_000


def test_the_front_page_counts_the_examples():
    n_scripts = len([*(ROOT / "examples").glob("*.py")])
    assert f"[Gallery](gallery.md): {n_scripts} scripts" in (ROOT / "docs" / "index.md").read_text()


def test_every_picture_has_an_alternative_text():
    for page in PAGES:
        for text, target in re.findall(r"!\[(.*?)\]\(([^)]*)\)", page.read_text(), re.S):
            assert len(text) >= 10, f"{page.relative_to(ROOT)}: {target}"


def test_what_the_readme_names_as_its_proof_is_there():
    """Every row of the comparison names a test, a benchmark or a page, and all of them exist."""
    table = (ROOT / "README.md").read_text().split("## Compared with other packages")[1].split("\n\n")[1]
    rows = table.strip().split("\n")[2:]
    assert len(rows) >= 10
    for row in rows:
        proof = row.rsplit("|", 2)[1]
        named = re.findall(r"`([\w/.]+)`|\]\(([\w/.-]+)", proof)
        assert named or "the same" in proof, row
        for path in ("".join(pair) for pair in named):
            assert (ROOT / path).exists(), path
