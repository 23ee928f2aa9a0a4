"""The commands that draw: the paper's figures, and the page to explore the maps with."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from refocal.cli import options
from refocal.cli.printing import out, plain_table, print_json, progress
from refocal.cli.run import UsageError

ALL = "all"


def _complete_figure(incomplete: str) -> list[str]:
    from refocal.experiments.figures import NAMES

    return [name for name in (ALL, *NAMES) if name.startswith(incomplete)]


def reproduce(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Figures, or all.", autocompletion=_complete_figure)
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for the files.")] = Path("figures"),
    runs: Annotated[
        Path | None, typer.Option(help="A folder with the cells of a sweep, drawn beside the embedded networks.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Draw the figures of the paper as SVG and PDF, with their data as CSV, and read them off."""
    from refocal.experiments import figures

    unknown = [name for name in names if name not in (ALL, *figures.NAMES)]
    if unknown:
        raise UsageError(f"{unknown[0]}: no such figure; known are {', '.join((ALL, *figures.NAMES))}.")
    if output.exists() and not output.is_dir():
        raise UsageError(f"{output}: is a file; name a folder with -o.")
    if runs is not None and not runs.is_dir():
        raise UsageError(f"{runs}: no such directory.")
    chosen = figures.NAMES if ALL in names else tuple(dict.fromkeys(names))
    with progress("drawing", quiet=json) as update:
        done = figures.reproduce(chosen, output, runs, update)
    if json:
        print_json(
            [
                {
                    "figure": made.figure.name,
                    "files": [str(file) for file in made.files],
                    "readings": [reading._asdict() for reading in made.readings],
                }
                for made in done
            ]
        )
        return
    for made in done:
        table = plain_table(made.figure.title, "ours", "the paper")
        for reading in made.readings:
            table.add_row(*reading)
        out().print(table)
        out().print(f"Wrote {', '.join(str(file) for file in made.files)}.\n")


def explore(
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write it.")] = Path("explore.html"),
    show: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open it in a browser; by default where a terminal is.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Write a page with sliders for γ and T: the map, the loss, the closest temperature, live."""
    from refocal.explore import write_page

    options.check_output(output, (".html", ".htm"))
    write_page(output)
    if json:
        print_json({"output": str(output)})
    else:
        out().print(f"Wrote {output}.")
    if (sys.stdout.isatty() and not json) if show is None else show:
        webbrowser.open(output.resolve().as_uri())
