"""The scripts of benchmarks/: what they import of refocal is there, and what the results say was run is there too."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_names_that_a_script_imports_exist(script):
    missing = []
    for node in ast.walk(ast.parse(script.read_text())):
        if not isinstance(node, ast.ImportFrom) or node.module is None or node.module.split(".")[0] != "refocal":
            continue
        module = importlib.import_module(node.module)
        for alias in node.names:
            is_module = importlib.util.find_spec(f"{node.module}.{alias.name}") if hasattr(module, "__path__") else None
            if not hasattr(module, alias.name) and is_module is None:
                missing.append(f"{node.module}.{alias.name}")
    assert missing == []


def test_commands_that_the_results_name_exist():
    pages = [*(ROOT / "benchmarks" / "results").glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    named = {
        (page.relative_to(ROOT), script)
        for page in pages
        for script in re.findall(r"(?:benchmarks|tools|examples)/\w+\.py", page.read_text())
    }
    assert len(named) > 30
    assert not [(page, script) for page, script in named if not (ROOT / script).exists()]
