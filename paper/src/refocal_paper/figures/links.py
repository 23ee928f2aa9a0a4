"""Other maps from scores to probabilities beside focal calibration, for two classes; a figure of our own.

Each is shown as the closest temperature scaling sees it: how far it stays from that, in a probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize_scalar

from refocal.report.figures import INK, MUTED
from refocal_paper.figures._base import PALETTE, PaperFigure, Reading, Tables, Vector, column
from refocal_paper.figures.binary import log_odds_after

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCORES = np.linspace(-12.0, 12.0, 2401)


def sparsemax(s: Vector) -> Vector:
    """The point of the simplex nearest to the scores (s, 0): Martins & Astudillo (2016)."""
    return np.clip((s + 1.0) / 2.0, 0.0, 1.0)


def entmax_15(s: Vector) -> Vector:
    """1.5-entmax of the scores (s, 0), between softmax and sparsemax: Peters et al. (2019). Sure from |s| = 2 on."""
    inside = np.clip(s, -2.0, 2.0)
    root: Vector = (inside / 2.0 + np.sqrt(2.0 - inside**2 / 4.0)) / 2.0
    return root**2


def tempered_2(s: Vector) -> Vector:
    """The heavy-tailed softmax of bi-tempered loss at t₂ = 2, with exp₂(x) = 1/(1-x): Amid et al. (2019)."""
    return 2.0 / (2.0 - s + np.sqrt(s * s + 4.0))


def _sigmoid(x: Vector) -> Vector:
    result: Vector = 0.5 + 0.5 * np.tanh(0.5 * x)
    return result


LINKS: dict[str, Callable[[Vector], Vector]] = {
    "focal, γ = 1": lambda s: _sigmoid(log_odds_after(s, 1.0)),
    "focal, γ = 3": lambda s: _sigmoid(log_odds_after(s, 3.0)),
    "1.5-entmax": entmax_15,
    "sparsemax": sparsemax,
    "tempered, t₂ = 2": tempered_2,
}


def closest(p: Vector) -> tuple[float, float]:
    """The temperature whose scaling of `SCORES` comes closest to p, and the largest difference that remains."""
    found = minimize_scalar(
        lambda log_t: float(np.abs(p - _sigmoid(SCORES / math.exp(log_t))).max()),
        bounds=(-3.0, 2.0),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return math.exp(found.x), float(found.fun)


def compute_links() -> Tables:
    """Every link and its closest temperature scaling."""
    columns: dict[str, Vector] = {"score": SCORES, "softmax": _sigmoid(SCORES)}
    names, temperatures, errors = [], [], []
    for name, link in LINKS.items():
        p = link(SCORES)
        temperature, error = closest(p)
        columns[name] = p
        columns[f"{name}, minus scaling"] = p - _sigmoid(SCORES / temperature)
        names.append(name)
        temperatures.append(temperature)
        errors.append(error)
    return {"links": columns, "closest": {"link": names, "temperature": temperatures, "error": errors}}


def draw_links(figure: Figure, tables: Tables) -> None:
    """Left the links, right what a temperature leaves of each."""
    left, right = figure.subplots(1, 2)
    table = tables["links"]
    s = column(table, "score")
    left.plot(s, column(table, "softmax"), color=MUTED, linestyle=":", label="softmax")
    for name, color in zip(LINKS, PALETTE, strict=False):
        left.plot(s, column(table, name), color=color, label=name)
        right.plot(s, column(table, f"{name}, minus scaling"), color=color)
    left.set(xlim=(-5, 5), xlabel="score of the first class, s", ylabel="probability")
    right.axhline(0.0, color=INK, linewidth=0.6, zorder=0)
    right.set(xlim=(-8, 8), xlabel="score of the first class, s", ylabel="link - closest scaling")
    left.legend(loc="upper left", handlelength=1.6)


def read_links(tables: Tables) -> list[Reading]:
    """The closest temperature of each link, and how far it is."""
    table = tables["closest"]
    rows = zip(table["link"], column(table, "temperature"), column(table, "error"), strict=True)
    return [Reading(f"{name}: closest T, largest error", f"{t:.3f}, {error:.4f}") for name, t, error in rows]


LINK_FIGURES = (
    PaperFigure(
        "links",
        "Focal calibration beside other links, two classes",
        (8.0, 3.2),
        compute_links,
        draw_links,
        read_links,
    ),
)
