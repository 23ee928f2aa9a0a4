"""The figures about two classes: the loss and its link, the closest temperature, the bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from refocal import losses, theory
from refocal.maps import focal, log_softmax
from refocal.report.figures import INK, LINE, MUTED
from refocal_paper.figures._base import (
    BLUE,
    ORANGE,
    PALETTE,
    VERMILION,
    PaperFigure,
    Reading,
    Table,
    Tables,
    Vector,
    column,
)
from refocal_paper.line import fit_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN_GAMMAS = (0.5, 3.0)
LINK_GAMMAS = (-0.9, -0.5, 0.0, 0.5, 1.0, 3.0, 7.0)
FIT_GAMMAS = np.round(np.arange(0.0, 10.01, 0.1), 1)
BOUND_GAMMAS = np.round(np.arange(0.0, 10.01, 0.1), 1)
MAX_LOGIT = 20.0


def log_odds_after(s: Vector, gamma: float) -> Vector:
    """Log-odds of binary focal calibration at log-odds s."""
    log_p = focal(np.stack([s, np.zeros_like(s)], axis=-1), gamma)
    result: Vector = log_p[..., 0] - log_p[..., 1]
    return result


# loss-and-link -------------------------------------------------------------------------------------------------------


def compute_loss_and_link() -> Tables:
    """Losses of the true class, and the map, against the probability."""
    q = np.linspace(0.0, 1.0, 401)[1:-1]
    log_q = np.log(np.stack([q, 1.0 - q], axis=-1))
    label = np.zeros(len(q), dtype=np.int64)
    loss: dict[str, Vector] = {"probability": q, "cross-entropy": losses.cross_entropy(log_q, label)}
    for gamma in SHOWN_GAMMAS:
        loss[f"focal {gamma:g}"] = losses.focal(log_q, label, gamma)
        loss[f"proper {gamma:g}"] = losses.proper_focal(log_q, label, gamma)
    link = {"probability": q, **{f"gamma {g:g}": np.exp(focal(log_q, g))[:, 0] for g in LINK_GAMMAS}}
    return {"loss": loss, "link": link}


def draw_loss_and_link(figure: Figure, tables: Tables) -> None:
    """Left the losses, right the maps."""
    left, right = figure.subplots(1, 2)
    loss, link = tables["loss"], tables["link"]
    q = column(loss, "probability")
    left.plot(q, column(loss, "cross-entropy"), color=MUTED, linestyle=":", label="cross-entropy")
    for gamma, color in zip(SHOWN_GAMMAS, PALETTE, strict=False):
        left.plot(q, column(loss, f"focal {gamma:g}"), color=color, linestyle="--", label=f"focal loss, γ = {gamma:g}")
        left.plot(q, column(loss, f"proper {gamma:g}"), color=color, label=f"its proper part, γ = {gamma:g}")
    left.set(xlim=(0, 1), ylim=(0, 3), xlabel="predicted probability of the true class", ylabel="loss")
    left.legend(loc="upper right")
    right.plot([0, 1], [0, 1], color=LINE, linewidth=1.0)
    # Light to dark as γ grows: seven colours would be too many.
    shades = ("#b06a00", "#e0a43a", MUTED, "#7fb2d6", "#3d8fc4", BLUE, "#003f66")
    for gamma, color in zip(LINK_GAMMAS, shades, strict=True):
        style = ":" if gamma == 0 else "-" if gamma > 0 else "--"
        right.plot(
            q, column(link, f"gamma {gamma:g}"), color=color, linestyle=style, label=f"γ = {gamma:g}".replace("-", "−")
        )
    right.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="probability q before", ylabel="probability after")
    right.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def read_loss_and_link(tables: Tables) -> list[Reading]:
    """Where loss and proper part cross, and the motivating example."""
    loss = tables["loss"]
    q = column(loss, "probability")
    readings = []
    for gamma in SHOWN_GAMMAS:
        lower = column(loss, f"proper {gamma:g}") < column(loss, f"focal {gamma:g}") * (1 - 1e-12)
        last, first = q[lower].max(), q[~lower & (np.abs(q - 0.5) > 1e-9)].min()
        text = f"below focal loss up to {last:.4f}, above it from {first:.4f}"
        readings.append(Reading(f"the proper part, γ = {gamma:g}", text, "below it under 0.5, above it otherwise"))
    found = theory.focal_minimizer([0.8, 0.2], 2.0)[0]
    readings.append(
        Reading("what focal loss with γ = 2 predicts where the truth is 0.8", f"{found:.4f}", "around 0.62")
    )
    return readings


# binary-fit ----------------------------------------------------------------------------------------------------------


def compute_binary_fit() -> Tables:
    """The closest temperature for every γ, and the two maps with their difference for two γ."""
    found = [theory.closest_temperature(float(gamma), 2) for gamma in FIT_GAMMAS]
    fit: Table = {
        "gamma": FIT_GAMMAS,
        "inverse temperature": [1.0 / closest.temperature for closest in found],
        "largest error": [closest.error for closest in found],
    }
    s = np.linspace(-8.0, 8.0, 401)
    row = np.stack([s, np.zeros_like(s)], axis=-1)
    maps: dict[str, Vector] = {"log-odds": s}
    for gamma in SHOWN_GAMMAS:
        temperature = theory.closest_temperature(gamma, 2).temperature
        maps[f"focal {gamma:g}"] = np.exp(focal(row, gamma))[:, 0]
        maps[f"temperature {gamma:g}"] = np.exp(log_softmax(row, temperature))[:, 0]
    chosen: Table = {
        "gamma": SHOWN_GAMMAS,
        "temperature": [theory.closest_temperature(g, 2).temperature for g in SHOWN_GAMMAS],
    }
    return {"fit": fit, "maps": maps, "closest": chosen}


def draw_binary_fit(figure: Figure, tables: Tables) -> None:
    """The line, the maps, and how little lies between them."""
    first, second, third = figure.subplots(1, 3)
    fit, maps = tables["fit"], tables["maps"]
    gamma, slope = column(fit, "gamma"), column(fit, "inverse temperature")
    line = fit_line(gamma, slope)
    first.plot(gamma, line.at(gamma), color=VERMILION, label=f"{line}")
    first.plot(gamma[::5], slope[::5], color=BLUE, linestyle="", marker="o", markersize=3.2, label="closest 1/T")
    first.set(xlim=(0, 10.2), ylim=(0, None), xlabel="γ", ylabel="1/T")
    first.legend(loc="upper left")
    s = column(maps, "log-odds")
    chosen = zip(SHOWN_GAMMAS, column(tables["closest"], "temperature"), PALETTE, strict=False)
    for g, temperature, color in chosen:
        after, scaled = column(maps, f"focal {g:g}"), column(maps, f"temperature {g:g}")
        second.plot(s, after, color=color, label=f"focal, γ = {g:g}")
        second.plot(s, scaled, color=INK, linestyle=(0, (1, 2)), label=f"scaling, T = {temperature:.2f}")
        third.plot(s, 1e3 * (after - scaled), color=color, label=f"γ = {g:g}")
    second.set(xlim=(-6, 6), ylim=(0, 1), xlabel="log-odds s", ylabel="probability after")
    second.legend(loc="upper left", bbox_to_anchor=(-0.02, 1.02), fontsize=7.0, handlelength=1.6)
    third.axhline(0.0, color=LINE, linewidth=0.8, zorder=0)
    third.set(xlim=(-8, 8), xlabel="log-odds s", ylabel="difference of the probabilities, 10⁻³")
    third.legend(loc="lower right")


def read_binary_fit(tables: Tables) -> list[Reading]:
    """The line, the temperatures, the error."""
    fit = tables["fit"]
    gamma, slope, error = (column(fit, name) for name in ("gamma", "inverse temperature", "largest error"))
    line, near = fit_line(gamma, slope), gamma <= 5.0
    low, high = column(tables["closest"], "temperature")
    return [
        Reading("1/T, line through γ = 0 … 10", f"{line}", "0.95 γ + 0.85"),
        Reading("1/T, line through γ = 0 … 5", f"{fit_line(gamma[near], slope[near])}"),
        Reading("R² of the line, γ = 0 … 10", f"{line.r_squared:.5f}"),
        Reading(
            "largest error of a probability", f"{error.max():.2e} (at γ = {gamma[error.argmax()]:g})", "below 1e-3"
        ),
        Reading("closest T for γ = 0.5", f"{low:.3f}", "0.76"),
        Reading("closest T for γ = 3", f"{high:.3f}", "0.36"),
    ]


# bounds --------------------------------------------------------------------------------------------------------------


def compute_bounds() -> Tables:
    """The paper's bounds, the tight ones, and those found by trying every log-odds."""
    s = np.linspace(0.0, MAX_LOGIT, 20_001)[1:]
    rows = []
    for gamma in BOUND_GAMMAS:
        tried = s / log_odds_after(s, float(gamma))
        rows.append(
            (
                gamma,
                *theory.temperature_bounds(gamma),
                *theory.tight_temperature_bounds(gamma, MAX_LOGIT),
                *theory.tight_temperature_bounds(gamma),
                tried.min(),
                tried.max(),
            )
        )
    names = ["gamma"] + [
        f"{kind} {end}" for kind in ("paper", "tight", "tight for all s", "tried") for end in ("low", "high")
    ]
    return {"bounds": dict(zip(names, np.array(rows, dtype=np.float64).T, strict=True))}


def draw_bounds(figure: Figure, tables: Tables) -> None:
    """The temperatures on a logarithmic scale, and the widths."""
    left, right = figure.subplots(1, 2)
    table = tables["bounds"]
    gamma = column(table, "gamma")
    kinds = (
        ("paper", "the paper's, all s", VERMILION, "--"),
        ("tight for all s", "tight, all s", ORANGE, "-"),
        ("tight", "tight, |s| ≤ 20", BLUE, "-"),
    )
    positive = gamma > 0
    for kind, label, color, style in kinds:
        low, high = column(table, f"{kind} low"), column(table, f"{kind} high")
        _band(left, gamma, low, high, color, style, label)
        right.plot(gamma[positive], (high - low)[positive], color=color, linestyle=style, label=label)
    low, high = column(table, "tried low"), column(table, "tried high")
    some = slice(5, None, 10)
    points = {"color": INK, "linestyle": "", "marker": "o", "markersize": 2.6}
    for values in (low, high):
        left.plot(
            gamma[some], (values * (gamma + 1))[some], **points, label="tried, |s| ≤ 20" if values is low else None
        )
    right.plot(gamma[some], (high - low)[some], **points, label="tried, |s| ≤ 20")
    left.set(xlim=(0, 10), ylim=(0.98, None), xlabel="γ", ylabel="T (γ + 1)")
    right.set(xlim=(0, 10), ylim=(0, None), xlabel="γ", ylabel="width of the range of T")
    right.legend(loc="upper right")


def _band(ax: Axes, gamma: Vector, low: Vector, high: Vector, color: str, style: str, label: str) -> None:
    for values in (low, high):
        ax.plot(gamma, values * (gamma + 1), color=color, linestyle=style, label=label if values is low else None)


def read_bounds(tables: Tables) -> list[Reading]:
    """The ends at γ = 4, and where the range is widest."""
    table = tables["bounds"]
    gamma = column(table, "gamma")
    at = int(np.flatnonzero(gamma == 4.0)[0])

    def ends(kind: str, digits: int) -> str:
        return " … ".join(f"{column(table, f'{kind} {end}')[at]:.{digits}f}" for end in ("low", "high"))

    s = np.linspace(0.0, 6.0, 6001)[1:]
    offset = 10.0 - log_odds_after(s, 9.0) / s
    peak = int(offset.argmax())
    text = f"{offset[peak]:.4f} at s = {s[peak]:.1f}; {offset[0]:.4f} at s → 0"
    return [
        Reading("γ = 4: Proposition 3", ends("paper", 4), "0.2 … 0.238"),
        Reading("γ = 4: tight, |s| ≤ 20", ends("tight", 4), "0.206 … 0.218 (by trial)"),
        Reading("γ = 4: by trying every s in steps of 0.001", ends("tried", 4), "0.206 … 0.218 (by trial)"),
        Reading("γ = 4: tight for all s", ends("tight for all s", 4)),
        Reading("γ = 9: the largest γ + 1 - 1/T", text),
    ]


BINARY = (
    PaperFigure(
        "loss-and-link",
        "The proper part of focal loss, and the binary focal calibration map",
        (7.6, 3.1),
        compute_loss_and_link,
        draw_loss_and_link,
        read_loss_and_link,
    ),
    PaperFigure(
        "binary-fit",
        "Two classes: the temperature closest to focal calibration",
        (9.0, 3.0),
        compute_binary_fit,
        draw_binary_fit,
        read_binary_fit,
    ),
    PaperFigure(
        "bounds",
        "Two classes: the temperatures between which focal calibration lies",
        (7.6, 3.1),
        compute_bounds,
        draw_bounds,
        read_bounds,
    ),
)
