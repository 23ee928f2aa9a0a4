"""`refocal-paper reproduce`: the paper's figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refocal.cli import options
from refocal.cli.printing import out, print_json, print_table, progress
from refocal.cli.run import UsageError

ALL = "all"


def complete_figure(incomplete: str) -> list[str]:
    """Names of figures, for the shell."""
    from refocal_paper.figures import CELL_FIGURES, NAMES

    return [name for name in (ALL, *NAMES, *CELL_FIGURES) if name.startswith(incomplete)]


def reproduce(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Figures, or all.", autocompletion=complete_figure)
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for the files.")] = Path("figures"),
    runs: Annotated[
        Path | None, typer.Option(help="A folder with the cells of a sweep, drawn beside the embedded networks.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Draw the figures of the paper as SVG and PDF, with their data as CSV, and read them off."""
    from refocal_paper import figures

    known = (ALL, *figures.NAMES, *figures.CELL_FIGURES)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"{unknown[0]}: no such figure; known are {', '.join(known)}.")
    of_cells = [name for name in names if name in figures.CELL_FIGURES]
    if of_cells and runs is None:
        raise UsageError(f"{of_cells[0]}: is drawn of the cells of a sweep; name their folder with --runs.")
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
        print_table((made.figure.title, "ours", "the paper"), made.readings)
        out().print(f"Wrote {', '.join(str(file) for file in made.files)}.\n")
