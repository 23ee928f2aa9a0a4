"""`import refocal` brings nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.core

HEAVY = {"torch", "jax", "sklearn", "scipy.optimize", "matplotlib", "dask", "pandas", "typer", "rich", "jinja2"}

SCRIPT = """
import sys
import numpy
before = set(sys.modules)
import refocal
refocal.maps, refocal.losses
print(" ".join(set(sys.modules) - before))
"""


def test_import_is_light():
    made = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)  # noqa: S603
    brought = set(made.stdout.split())
    assert "refocal.losses" in brought
    assert not HEAVY & brought
    assert len(brought) < 200  # a third of them array_api_compat's and the standard library's


def test_every_subpackage_is_reachable_by_name():
    import refocal

    for name in refocal.__all__:
        assert getattr(refocal, name) is not None
    assert set(dir(refocal)) == set(refocal.__all__)


def test_type_checkers_see_the_same_names():
    import refocal

    tree = ast.parse(Path(refocal.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = [alias.name for node in block.body for alias in node.names]
    assert set(seen) == (refocal._MODULES - {"cli"}) | {"*"}
