"""Every figure of the paper and five of our own: computed, drawn, written, and read off. None of it needs torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from refocal._files import write_atomically
from refocal._validation import check_option
from refocal_paper.figures._base import PaperFigure, Reading, draw, write
from refocal_paper.figures._networks import Networks
from refocal_paper.figures.binary import BINARY
from refocal_paper.figures.cells import CELL_FIGURES, cell_figures
from refocal_paper.figures.links import LINK_FIGURES
from refocal_paper.figures.multiclass import MULTICLASS
from refocal_paper.figures.simplex import SIMPLEX
from refocal_paper.figures.trained import trained_figures

__all__ = [
    "CELL_FIGURES",
    "NAMES",
    "PaperFigure",
    "Reading",
    "Reproduced",
    "draw",
    "make_figures",
    "reproduce",
    "write",
]

# In the order of the paper; the last three are ours.
NAMES = (
    "loss-and-link",
    "binary-fit",
    "bounds",
    "isolines",
    "arrows",
    "multiclass-fit",
    "difference",
    "gamma-temperature-line",
    "confidence",
    "tolerance",
    "links",
)


READINGS = "readings.json"


class Reproduced(NamedTuple):
    """A figure that was written: its files, and the numbers read off it."""

    figure: PaperFigure
    files: list[Path]
    readings: list[Reading]


def make_figures(runs: Path | None = None) -> dict[str, PaperFigure]:
    """The figures by name; `runs` is a folder with the cells of a sweep, drawn beside the embedded networks.

    With it come those of cells alone.
    """
    every = (*BINARY, *SIMPLEX, *MULTICLASS, *trained_figures(Networks(runs)), *LINK_FIGURES)
    known = {figure.name: figure for figure in every}
    of_cells = () if runs is None else cell_figures(runs)
    return {name: known[name] for name in NAMES} | {figure.name: figure for figure in of_cells}


def reproduce(
    names: Sequence[str],
    folder: Path,
    runs: Path | None = None,
    progress: Callable[[int, int, str], None] = lambda done, total, words: None,
) -> list[Reproduced]:
    """Compute figures, write them with their data into a folder, and read them off.

    What is read off is kept in readings.json; figures that were drawn there before keep theirs.
    """
    known = NAMES if runs is None else (*NAMES, *CELL_FIGURES)
    for name in names:
        check_option(name, known, "names", "reproduce")
    figures = make_figures(runs)
    folder.mkdir(parents=True, exist_ok=True)
    done = []
    for i, name in enumerate(names):
        progress(i, len(names), name)
        tables = figures[name].compute()
        done.append(Reproduced(figures[name], write(figures[name], tables, folder), figures[name].read(tables)))
    kept = folder / READINGS
    readings = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    readings |= {made.figure.name: [reading._asdict() for reading in made.readings] for made in done}
    write_atomically(kept, json.dumps(readings, indent=1, ensure_ascii=False) + "\n")
    return done
