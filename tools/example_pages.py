"""A script of examples/ as a page of the site and as a notebook: its docstring, then a heading and code for each cell.

A cell begins with a line `# %% heading`. What a script prints is kept in docs/gallery/ by tools/gallery_pictures.py.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ABBREVIATION = re.compile(r"\b(LLM|ONNX)\b", re.IGNORECASE)
CELL = re.compile(r"^# %% (.*)\n", re.M)


def parts(script: Path) -> tuple[str, list[str]]:
    """The docstring without how to run it; the code before the first cell, then headings and codes in turn."""
    text = script.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(text)) or ""
    code = text.split('"""', 2)[2]
    return docstring.rsplit("\n", 1)[0].strip(), [part.strip("\n") for part in CELL.split(code)]


def page(script: Path) -> str:
    """The script in Markdown, with its picture and what it prints."""
    docstring, (setup, *cells) = parts(script)
    name = script.stem
    title = name.removeprefix("start_").replace("_", " ").capitalize()
    title = ABBREVIATION.sub(lambda word: word[0].upper(), title)
    lines = [f"# {title}", docstring, f"![{title}](../docs/gallery/{name}.svg)", _code(setup)]
    for heading, code in zip(cells[::2], cells[1::2], strict=True):
        lines += [f"## {heading}", _code(code)]
    printed = (ROOT / "docs" / "gallery" / f"{name}.txt").read_text(encoding="utf-8")
    lines += ["## What it prints", f"```text\n{printed.rstrip()}\n```"]
    lines += [f'Download: <a href="{name}.py" download>script</a>, <a href="{name}.ipynb" download>notebook</a>.']
    return "\n\n".join(lines)


def notebook(script: Path) -> str:
    """The script as a Jupyter notebook, to be run from the root of a clone."""
    docstring, (setup, *cells) = parts(script)
    path = repr(script.relative_to(ROOT).as_posix())
    made = [_cell("markdown", docstring), _cell("code", setup)]
    for heading, code in zip(cells[::2], cells[1::2], strict=True):
        made += [_cell("markdown", f"## {heading}"), _cell("code", code.replace("__file__", path))]
    for i, cell in enumerate(made):
        cell["id"] = f"cell-{i}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return json.dumps({"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def _code(code: str) -> str:
    return f"```python\n{code}\n```"


def _cell(kind: str, source: str) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": source}
    return cell | {"execution_count": None, "outputs": []} if kind == "code" else cell
