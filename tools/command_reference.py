"""Writes the pages of commands from the programs themselves: `python tools/command_reference.py`."""

from __future__ import annotations

import inspect
import re
import types
import typing
from pathlib import Path

import typer
from typer.models import ArgumentInfo, CommandInfo, OptionInfo

from refocal.cli.commands import app
from refocal_paper.cli.commands import app as paper_app

ROOT = Path(__file__).parents[1]
HEAD = """# {title}

Written by `python tools/command_reference.py` from the program itself, and held to it by a test. {more} Every command also has `-h` and `--help`.
"""  # noqa: E501


class Program(typing.NamedTuple):
    """A program, and the page of its commands."""

    app: typer.Typer
    page: Path
    title: str
    more: str


PROGRAMS = {
    "refocal": Program(
        app,
        ROOT / "docs" / "reference" / "commands.md",
        "Commands",
        "Files, formats and how\nthe commands go together: [the command line](../command-line.md).",
    ),
    "refocal-paper": Program(
        paper_app,
        ROOT / "paper" / "docs" / "commands.md",
        "Commands of the paper's experiments",
        "How\nthey go together: [training the networks](training.md).",
    ),
}


class Parameter(typing.NamedTuple):
    """One argument or option of a command, as it is typed and as it is explained."""

    usage: str
    names: str
    meaning: str
    default: str


def page(name: str) -> str:
    """The whole page of a program."""
    program = PROGRAMS[name]
    head = HEAD.format(title=program.title, more=program.more)
    return "\n".join([head, *(_command(name, command) for command in program.app.registered_commands)])


def _command(program: str, command: CommandInfo) -> str:
    callback = command.callback
    if callback is None:
        raise TypeError("a command without a function")
    name = command.name or callback.__name__.replace("_", "-")
    hints = typing.get_type_hints(callback, include_extras=True)
    found = [_parameter(p, hints[p.name]) for p in inspect.signature(callback).parameters.values()]
    arguments = " ".join(parameter.usage for parameter in found if parameter.usage)
    rows = [f"| {p.names} | {p.meaning} | {p.default} |" for p in found]
    examples = [line for line in re.split(r"\n+", command.epilog or "") if "refocal" in line]
    return "\n".join(
        [
            f"## {name}",
            "",
            inspect.getdoc(callback) or "",
            "",
            f"    {' '.join(part for part in (program, name, arguments, '[OPTIONS]') if part)}",
            "",
            "| | | by default |",
            "|---|---|---|",
            *rows,
            "",
            "```bash",
            *(line.removeprefix("Example: ") for line in examples),
            "```",
            "",
        ]
    )


def _parameter(parameter: inspect.Parameter, hint: typing.Any) -> Parameter:
    kind, about = typing.get_args(hint)[:2] if typing.get_origin(hint) is typing.Annotated else (hint, None)
    meaning = (getattr(about, "help", None) or "").replace("|", "\\|")
    optional = parameter.default is not inspect.Parameter.empty
    if isinstance(about, ArgumentInfo):
        name = parameter.name.upper()
        several = "…" if _is_list(kind) else ""
        return Parameter(f"[{name}]{several}" if optional else name + several, f"`{name}`", meaning, "")
    if not isinstance(about, OptionInfo):
        raise TypeError(f"{parameter.name} is neither an argument nor an option")
    # In Annotated the first name stands where a default would.
    first = (about.default,) if isinstance(about.default, str) else ()
    declared = (*first, *(about.param_decls or ())) or (f"--{parameter.name.replace('_', '-')}",)
    names = ", ".join(f"`{name}`" for part in declared for name in part.split("/"))
    return Parameter("", names, meaning + (" May be repeated." if _is_list(kind) else ""), _shown(parameter.default))


def _is_list(kind: typing.Any) -> bool:
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return any(_is_list(part) for part in typing.get_args(kind))
    return typing.get_origin(kind) is list


def _shown(default: typing.Any) -> str:
    unsaid = default is None or default is False or default is inspect.Parameter.empty
    return "" if unsaid else f"`{default}`"


if __name__ == "__main__":
    for name, program in PROGRAMS.items():
        program.page.write_text(page(name), encoding="utf-8")
        typer.echo(f"Wrote {program.page}.")
