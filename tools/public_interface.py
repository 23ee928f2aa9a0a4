"""Writes what is promised of the interface, one name a line: `python tools/public_interface.py`.

`tests/docs/public_interface.txt` lists every public name with its signature, every option of the command line and every
file format. A test holds the package to it, so that a change of the interface is a change of that file, which a
reviewer sees. `docs/reference/names.md` is the table of these names for readers. docs/versioning.md says what is
promised.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import typer.main

import refocal
from refocal.maps.chain import Step

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "docs" / "public_interface.txt"
TABLE = ROOT / "docs" / "reference" / "names.md"
HEAD = "# Written by `python tools/public_interface.py`; what is promised of it: docs/versioning.md.\n"
TABLE_HEAD = """# Every public name

Written by `python tools/public_interface.py` from the package itself, and held to it by a test.
[What is promised](../versioning.md) of them. The calibrators and `load` are also in `refocal` itself."""
# For those who extend refocal: documented, but not promised to stay as they are.
EXTENDING = {"engine", "fitting", "rows"}
# What a class has besides functions that is listed.
MEMBERS = (property, classmethod, staticmethod, cached_property, Enum)


def text() -> str:
    """The whole file."""
    return HEAD + "".join(f"{line}\n" for line in [*python_lines(), *command_lines(), *file_lines()])


def python_lines() -> list[str]:
    """Every public name of Python with its signature, sorted."""
    hidden = _hidden()
    lines = []
    for name in refocal.__all__:
        thing = getattr(refocal, name)
        if not inspect.ismodule(thing):
            lines += _lines(f"refocal.{name}", thing, hidden)
        elif name not in EXTENDING:
            for member in thing.__all__:
                value = getattr(thing, member)
                if getattr(refocal, member, None) is not value:  # which has a shorter name
                    lines += _lines(f"refocal.{name}.{member}", value, hidden)
    return sorted(lines)


def table() -> str:
    """The page of public names: each with its first sentence, and where it is documented."""
    pages = {}
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        for subpackage in re.findall(r"^::: refocal\.(\w+)$", page.read_text(encoding="utf-8"), re.M):
            pages[subpackage] = page.name
    lines = [TABLE_HEAD]
    for subpackage in sorted(set(pages) - EXTENDING):
        module = import_module(f"refocal.{subpackage}")
        lines.append(f"\n## refocal.{subpackage}\n\n| name | what it is |\n|---|---|")
        for name in sorted(module.__all__):
            path = f"refocal.{subpackage}.{name}"
            thing = getattr(module, name)
            is_documented = inspect.isclass(thing) or inspect.isfunction(thing)
            first = (inspect.getdoc(thing) or "").partition("\n")[0] if is_documented else "a constant"
            if f"{path}.{name}" == f"{getattr(thing, '__module__', '')}.{name}":  # called as its module, which hides it
                path = f"{path}.{name}"
            lines.append(f"| [`{name}`]({pages[subpackage]}#{path}) | {first.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def command_lines() -> list[str]:
    """Every command with its arguments, and its options."""
    from refocal.cli.commands import app

    lines = []
    for name, command in sorted(typer.main.get_command(app).commands.items()):  # type: ignore[attr-defined]
        arguments = [each.name.upper() for each in command.params if each.param_type_name == "argument"]
        lines.append(" ".join(["$ refocal", name, *arguments]))
        options = (each for each in command.params if each.param_type_name == "option")
        spellings = ([*each.opts, *each.secondary_opts] for each in options)
        lines += sorted(f"$ refocal {name} {', '.join(names)}" for names in spellings)
    return lines


def file_lines() -> list[str]:
    """The JSON files, and the versions that are written."""
    modules = ("calibrators.serialize", "detection.calibrator", "evaluate.evaluation", "evaluate.many")
    modules += ("monitor.state",)
    written = [import_module(f"refocal.{module}") for module in modules]
    return sorted(f"file {module.FORMAT} {module.VERSION}" for module in written)


def _lines(path: str, thing: Any, hidden: re.Pattern[str]) -> Iterator[str]:
    """A function with its signature; a class with its fields or what it is made with, and its methods."""
    if inspect.isfunction(thing):
        yield f"{path}{_signature(thing)}"
        return
    if not inspect.isclass(thing):
        yield path
        return
    record = _fields(thing)
    has_settings = record is None and not issubclass(thing, (Enum, Exception))
    yield path + (_signature(thing) if has_settings else "")
    members = {name: _shown(member) for name, member in _own(thing)} | (record or {})
    for name, shown in sorted(members.items()):
        if not hidden.search(name):
            yield f"{path}.{name}{shown}"


def _shown(member: Any) -> str:
    """What follows the name of a method, its parameters, or of a property, nothing."""
    function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
    return _signature(function, is_method=not isinstance(member, staticmethod)) if inspect.isfunction(function) else ""


def _fields(kind: type) -> dict[str, str] | None:
    """The fields of a record, each with its default; None of an estimator, which has settings, and of other classes."""
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        defaults = {name: kind._field_defaults.get(name, MISSING) for name in kind._fields}
    elif is_dataclass(kind) and not hasattr(kind, "get_params"):
        defaults = {field.name: field.default for field in fields(kind) if field.init}
    else:
        return None
    return {name: "" if default is MISSING else f" = {default!r}" for name, default in defaults.items()}


def _own(kind: type) -> Iterator[tuple[str, Any]]:
    """The methods and properties that a class has from refocal, but those of a base that is itself public."""
    bases = [base for base in kind.__mro__ if base.__module__.startswith("refocal.")]
    public = [base for base in bases[1:] if base is Step or base.__name__ in import_module(_home(base)).__all__]
    seen: set[str] = set()
    for base in bases:
        if any(issubclass(shared, base) for shared in public):
            continue
        for name, member in vars(base).items():
            if name not in seen and (inspect.isfunction(member) or isinstance(member, MEMBERS)):
                seen.add(name)
                yield name, member


def _home(kind: type) -> str:
    """The subpackage that a class is of."""
    return ".".join(kind.__module__.split(".")[:2])


def _signature(thing: Any, is_method: bool = False) -> str:
    """The parameters with their defaults, without annotations."""
    parameters = list(inspect.signature(thing).parameters.values())[1 if is_method else 0 :]
    bare = [each.replace(annotation=inspect.Parameter.empty, default=_Shown.of(each.default)) for each in parameters]
    return str(inspect.Signature(bare))


class _Shown:
    """A default as it is written: a function by its name, without its address."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    @classmethod
    def of(cls, default: Any) -> Any:
        if default is inspect.Parameter.empty:
            return default
        return cls(getattr(default, "__name__", None) or repr(default))


def _hidden() -> re.Pattern[str]:
    """The names that the reference leaves out too, by the filters of mkdocs.yml."""
    filters = re.findall(r'^ +- "!(.*)"$', (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)
    return re.compile("|".join(filters))


if __name__ == "__main__":
    LIST.write_text(text(), encoding="utf-8")
    TABLE.write_text(table(), encoding="utf-8")
    typer.echo(f"Wrote {LIST} and {TABLE}.")
