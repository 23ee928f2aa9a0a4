"""What a figure is: numbers that are computed, a picture that is drawn from them, and what can be read off."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._files import replace_atomically, write_atomically
from refocal.report.figures import INK, MUTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Vector = NDArray[np.float64]
Table = Mapping[str, Sequence[Any] | Vector]  # column → values, all of one length
Tables = dict[str, Table]


class Reading(NamedTuple):
    """A number read off a figure, beside the paper's."""

    what: str
    ours: str
    paper: str = "–"


@dataclass(frozen=True)
class PaperFigure:
    """`compute` makes the tables; `draw` and `read` know nothing else."""

    name: str
    title: str
    size: tuple[float, float]  # inches
    compute: Callable[[], Tables]
    draw: Callable[[Figure, Tables], None]
    read: Callable[[Tables], list[Reading]]


# Colours that stay apart for every kind of colour vision (Okabe & Ito 2008), in the order in which they are used.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)

STYLE: dict[Any, Any] = {
    "svg.fonttype": "path",  # the same picture wherever it is looked at
    "pdf.fonttype": 42,  # letters that can be searched; the kind that publishers ask for
    "font.family": "DejaVu Sans",
    "mathtext.fontset": "dejavusans",
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "lines.linewidth": 1.5,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "figure.facecolor": "white",
    "savefig.dpi": 130,  # of the layers that are pixels
}


def draw(figure: PaperFigure, tables: Tables) -> Figure:
    """The picture, on a figure of its own."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=figure.size, layout="constrained")
        figure.draw(canvas, tables)
    return canvas


def write(figure: PaperFigure, tables: Tables, folder: Path) -> list[Path]:
    """The picture as SVG and PDF and its tables as CSV: the same bytes whenever the numbers are the same."""
    import matplotlib as mpl

    written = []
    canvas = draw(figure, tables)
    with mpl.rc_context({**STYLE, "svg.hashsalt": figure.name}):
        for kind, metadata in (("svg", {"Date": None}), ("pdf", {"CreationDate": None})):
            path = folder / f"{figure.name}.{kind}"
            with replace_atomically(path) as part:
                canvas.savefig(part, format=kind, metadata=metadata)
            written.append(path)
    for name, table in tables.items():
        path = folder / (f"{figure.name}.csv" if len(tables) == 1 else f"{figure.name}.{name}.csv")
        write_atomically(path, to_csv(table))
        written.append(path)
    return written


def to_csv(table: Table) -> str:
    """One line per row; numbers with eight digits, missing ones empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows([_cell(value) for value in row] for row in zip(*table.values(), strict=True))
    return text.getvalue()


def column(table: Table, name: str) -> Vector:
    """A column of numbers; what is missing is NaN."""
    return np.array([np.nan if value is None else value for value in table[name]], dtype=np.float64)


def _cell(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return "" if np.isnan(value) else f"{value:.8g}"
    return "" if value is None else str(value)
