"""The figures on the triangle of three classes: isolines of risks, maps as arrows, where the two maps differ."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from refocal import losses, theory
from refocal.maps import focal, log_softmax
from refocal.report.figures import INK
from refocal_paper.figures._base import BLUE, GREEN, VERMILION, PaperFigure, Reading, Tables, Vector, column
from refocal_paper.figures._triangle import draw_triangle, to_plane, triangle_grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRUTH = (0.55, 0.3, 0.15)
PERCENTILES = (3, 12, 20)
RISKS: dict[str, Callable[..., Any]] = {
    "Brier score": losses.brier,
    "cross-entropy": losses.cross_entropy,
    "proper focal, γ = 1": partial(losses.proper_focal, gamma=1.0),
    "proper focal, γ = 3": partial(losses.proper_focal, gamma=3.0),
}
ARROW_GAMMAS = (1.0, 3.0)
# The paper's pairs of γ and T for its heat maps.
PAIRS = ((0.5, 0.8), (2.0, 0.46))
CLASSES = ("q1", "q2", "q3")


# isolines ------------------------------------------------------------------------------------------------------------


def compute_isolines() -> Tables:
    """The conditional risk of every loss on a grid in steps of 0.01, which holds the true probabilities."""
    q = triangle_grid(100, edges=False)
    risks = {name: theory.conditional_risk(np.array(TRUTH), q, loss) for name, loss in RISKS.items()}
    return {"isolines": {**dict(zip(CLASSES, q.T, strict=True)), **risks}}


def draw_isolines(figure: Figure, tables: Tables) -> None:
    """One triangle a loss, with the isolines and the point of least risk."""
    table = tables["isolines"]
    q = np.stack([column(table, name) for name in CLASSES], axis=-1)
    x, y = to_plane(q)
    axes = figure.subplots(1, 4)
    for ax, name in zip(axes, RISKS, strict=True):
        risk = column(table, name)
        draw_triangle(ax, name)
        levels = np.percentile(risk, PERCENTILES)
        ax.tricontour(x, y, risk, levels=levels, colors=[BLUE, GREEN, VERMILION], linewidths=1.4)
        ax.plot(*to_plane(q[risk.argmin()]), color=INK, marker="o", markersize=3.5)
    handles = [_proxy(color, f"{p} %") for color, p in zip((BLUE, GREEN, VERMILION), PERCENTILES, strict=True)]
    handles.append(_proxy(INK, "least risk, at q = p", marker="o"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4)


def _proxy(color: str, label: str, marker: str = "") -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=color, label=label, marker=marker, markersize=3.5, linestyle="" if marker else "-")


def read_isolines(tables: Tables) -> list[Reading]:
    """Where the risk is least, and how far from round the innermost isoline is."""
    table = tables["isolines"]
    q = np.stack([column(table, name) for name in CLASSES], axis=-1)
    readings = []
    for name in RISKS:
        risk = column(table, name)
        least = "(" + ", ".join(f"{v:g}" for v in q[risk.argmin()].round(6)) + ")"
        readings.append(Reading(f"{name}: least risk at", least, "(0.55, 0.3, 0.15)"))
    words = ("circular", "oval-like", "more akin to a curved triangle", "the same, more pronounced")
    for name, word in zip(RISKS, words, strict=True):
        ratio = elongation(q, column(table, name))
        readings.append(Reading(f"{name}: longest over shortest radius of the 3 % isoline", f"{ratio:.2f}", word))
    return readings


def elongation(q: Vector, risk: Vector) -> float:
    """The longest over the shortest distance from the truth to the isoline of the lowest percentile."""
    from matplotlib.figure import Figure as Canvas

    x, y = to_plane(q)
    isoline = Canvas().subplots().tricontour(x, y, risk, levels=[np.percentile(risk, PERCENTILES[0])])
    vertices = np.concatenate([path.vertices for path in isoline.get_paths()])
    radius = np.hypot(*(vertices - np.stack(to_plane(np.array(TRUTH)))).T)
    return float(radius.max() / radius.min())


# arrows --------------------------------------------------------------------------------------------------------------


def compute_arrows() -> Tables:
    """Where focal calibration and the closest temperature take the points of a uniform grid."""
    q = triangle_grid(13, edges=False)
    log_q = np.log(q)
    columns: dict[str, list[Any]] = {name: [] for name in ("map", "gamma", "temperature", *CLASSES, "p1", "p2", "p3")}
    for gamma in ARROW_GAMMAS:
        temperature = theory.closest_temperature(gamma, 3).temperature
        for name, log_p in (("focal", focal(log_q, gamma)), ("temperature", log_softmax(log_q, temperature))):
            for before, after in zip(q, np.exp(log_p), strict=True):
                for key, value in zip(columns, (name, gamma, temperature, *before, *after), strict=True):
                    columns[key].append(value)
    return {"arrows": columns}


def draw_arrows(figure: Figure, tables: Tables) -> None:
    """Above focal calibration, below the closest temperature."""
    table = tables["arrows"]
    before = np.stack([column(table, name) for name in CLASSES], axis=-1)
    after = np.stack([column(table, f"p{i}") for i in (1, 2, 3)], axis=-1)
    gamma, temperature, kind = column(table, "gamma"), column(table, "temperature"), np.array(table["map"])
    axes = figure.subplots(2, 2)
    for ax_column, g in zip(axes.T, ARROW_GAMMAS, strict=True):
        for ax, name, color in zip(ax_column, ("focal", "temperature"), (BLUE, VERMILION), strict=True):
            rows = (gamma == g) & (kind == name)
            (x, y), (to_x, to_y) = to_plane(before[rows]), to_plane(after[rows])
            text = f"focal calibration, γ = {g:g}" if name == "focal" else f"closest: T = {temperature[rows][0]:.2f}"
            draw_triangle(ax, text)
            shape = {
                "angles": "xy",
                "scale_units": "xy",
                "scale": 1,
                "width": 0.0042,
                "headwidth": 4,
                "headlength": 4.5,
            }
            ax.quiver(x, y, to_x - x, to_y - y, color=color, headaxislength=4, minlength=0.3, **shape)


def read_arrows(tables: Tables) -> list[Reading]:
    """The closest temperatures, and whose the paper's are; the longest arrows."""
    table = tables["arrows"]
    gamma, temperature, kind = column(table, "gamma"), column(table, "temperature"), np.array(table["map"])
    q, p = column(table, "q1"), column(table, "p1")
    readings = []
    for g, printed in zip(ARROW_GAMMAS, ("0.81", "0.46"), strict=True):
        readings.append(
            Reading(f"closest T for γ = {g:g}", f"{temperature[gamma == g][0]:.3f}", f"{printed} (caption)")
        )
    for g, printed in ((0.5, "0.81"), (2.0, "0.46")):
        found = theory.closest_temperature(g, 3).temperature
        readings.append(
            Reading(f"closest T for γ = {g:g}", f"{found:.3f}", f"{printed}, given to γ = {2 * g - (g > 1):g}")
        )
    for g in ARROW_GAMMAS:
        rows = (gamma == g) & (kind == "focal")
        readings.append(Reading(f"γ = {g:g}: largest rise of a class", f"{np.max(p[rows] - q[rows]):.3f}"))
    return readings


# difference ----------------------------------------------------------------------------------------------------------


def compute_difference() -> Tables:
    """Focal calibration minus temperature scaling: of the top class, and the largest of any class."""
    q = triangle_grid(120, edges=True)
    with np.errstate(divide="ignore"):
        log_q = np.log(q)
    top = q.argmax(axis=1)[:, None]
    columns: dict[str, Vector] = dict(zip(CLASSES, q.T, strict=True))
    for gamma, temperature in PAIRS:
        change = np.exp(focal(log_q, gamma)) - np.exp(log_softmax(log_q, temperature))
        columns[f"top class, gamma {gamma:g}"] = np.take_along_axis(change, top, axis=1)[:, 0]
        columns[f"largest, gamma {gamma:g}"] = np.abs(change).max(axis=1)
    return {"difference": columns}


def draw_difference(figure: Figure, tables: Tables) -> None:
    """A heat map a pair, each with a scale that is symmetric about 0."""
    table = tables["difference"]
    x, y = to_plane(np.stack([column(table, name) for name in CLASSES], axis=-1))
    for ax, (gamma, temperature) in zip(figure.subplots(1, 2), PAIRS, strict=True):
        value = column(table, f"top class, gamma {gamma:g}")
        draw_triangle(ax, f"γ = {gamma:g}, T = {temperature:g}")
        limit = float(np.abs(value).max())
        drawn = ax.tripcolor(x, y, value, cmap="PuOr", vmin=-limit, vmax=limit, shading="gouraud", rasterized=True)
        bar = figure.colorbar(drawn, ax=ax, shrink=0.8, aspect=24, pad=0.02)
        bar.outline.set_visible(False)
        bar.set_label("top class: focal - scaling")


def read_difference(tables: Tables) -> list[Reading]:
    """How far the maps are apart, and where."""
    table = tables["difference"]
    q = np.stack([column(table, name) for name in CLASSES], axis=-1)
    readings = []
    for gamma, temperature in PAIRS:
        top, largest = column(table, f"top class, gamma {gamma:g}"), column(table, f"largest, gamma {gamma:g}")
        where = np.sort(q[largest.argmax()])[::-1]
        place = "(" + ", ".join(f"{v:.2f}" for v in where) + ")"
        pair = f"γ = {gamma:g}, T = {temperature:g}"
        readings.append(Reading(f"{pair}: difference of the top class", f"{top.min():+.4f} … {top.max():+.4f}"))
        readings.append(
            Reading(f"{pair}: largest difference of any class", f"{largest.max():.4f} at {place}", "near the corners")
        )
    return readings


SIMPLEX = (
    PaperFigure(
        "isolines",
        "Isolines of the conditional risk at p = (0.55, 0.3, 0.15)",
        (9.0, 2.7),
        compute_isolines,
        draw_isolines,
        read_isolines,
    ),
    PaperFigure(
        "arrows",
        "Focal calibration and the closest temperature as arrows",
        (6.6, 6.2),
        compute_arrows,
        draw_arrows,
        read_arrows,
    ),
    PaperFigure(
        "difference",
        "Focal calibration minus temperature scaling",
        (7.6, 3.1),
        compute_difference,
        draw_difference,
        read_difference,
    ),
)
