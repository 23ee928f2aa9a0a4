"""The reference: every public name stands in it and has an example that runs."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import runpy
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

import refocal
from refocal.cli.commands import app

ROOT = Path(__file__).parents[2]
PACKAGES = [package.name for package in pkgutil.iter_modules(refocal.__path__) if not package.name.startswith("_")]
NAMES = [
    pytest.param(package, name, id=f"{package}.{name}")
    for package in PACKAGES
    for name in import_module(f"refocal.{package}").__all__
]


def examples_of(package: str) -> str:
    """The lines of every doctest of a package."""
    home = ROOT / "src" / "refocal" / package
    files = home.rglob("*.py") if home.is_dir() else [home.with_suffix(".py")]
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text())))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = (ast.get_docstring(node) or "" for node in nodes if isinstance(node, documented))
    return "\n".join(re.findall(r"^\s*(?:>>>|\.\.\.) (.*)", "\n".join(docs), re.M))


@pytest.mark.parametrize(("package", "name"), NAMES)
def test_every_public_name_has_an_example(package, name):
    thing = getattr(import_module(f"refocal.{package}"), name)
    if inspect.isclass(thing) or inspect.isfunction(thing):
        assert ">>> " in (thing.__doc__ or ""), f"refocal.{package}.{name} has no example"
    else:  # a constant has no docstring at run time; somewhere in its package an example uses it
        assert re.search(rf"\b{name}\b", examples_of(package), re.I), f"no example of refocal.{package} uses {name}"


@pytest.mark.parametrize("package", sorted(set(PACKAGES) - {"cli"}))
def test_every_subpackage_has_its_place_in_the_reference(package):
    pages = (ROOT / "docs" / "reference").glob("*.md")
    assert any(re.search(rf"^::: refocal\.{package}$", page.read_text(), re.M) for page in pages)


def test_what_the_package_offers_is_what_its_subpackages_offer():
    offered = set(refocal.__all__) - {"__version__"} - set(PACKAGES)
    assert offered <= set(import_module("refocal.calibrators").__all__)


def test_the_page_of_commands_is_what_the_program_says():
    tool = runpy.run_path(str(ROOT / "tools" / "command_reference.py"))
    shown = tool["PROGRAMS"]["refocal"].page.read_text(encoding="utf-8")
    assert shown == tool["page"]("refocal"), "run python tools/command_reference.py"


@pytest.mark.slow
def test_the_page_of_commands_misses_nothing_that_help_shows():
    page = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    sections = {part.split("\n", 1)[0]: part for part in page.split("\n## ")[1:]}
    for name, section in sections.items():
        asked = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
        shown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", asked.output))
        assert shown - {"--help"} <= set(re.findall(r"--[a-z][a-z-]+", section)), name
