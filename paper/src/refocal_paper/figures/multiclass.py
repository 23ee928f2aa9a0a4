"""The figures about more than two classes: the closest temperature, and when the top probability falls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from refocal import theory
from refocal.report.figures import LINE, MUTED
from refocal_paper.figures._base import BLUE, PALETTE, VERMILION, PaperFigure, Reading, Tables, column
from refocal_paper.line import fit_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIT_GAMMAS = {3: np.arange(0.0, 10.01, 0.25), 4: np.arange(0.0, 10.01, 0.5)}
PAPER_LINES = {3: "0.64 γ + 0.91", 4: "0.47 γ + 0.85"}
THRESHOLD_GAMMAS = (0.5, 1.0, 3.0, 7.0)
N_CLASSES = (2, 3, 4, 5, 6, 7, 8, 10, 14, 20, 30, 45, 70, 100, 150, 300, 500, 1000)
FALL_GAMMA, FALL_CLASSES = 1.0, (4, 10, 100, 1000)


# multiclass-fit ------------------------------------------------------------------------------------------------------


def compute_multiclass_fit() -> Tables:
    """The closest temperature and its error for three and four classes."""
    rows = [
        (n, gamma, 1.0 / found.temperature, found.error)
        for n, gammas in FIT_GAMMAS.items()
        for gamma in gammas
        for found in [theory.closest_temperature(float(gamma), n)]
    ]
    names = ("classes", "gamma", "inverse temperature", "largest error")
    return {"fit": dict(zip(names, zip(*rows, strict=True), strict=True))}


def draw_multiclass_fit(figure: Figure, tables: Tables) -> None:
    """Left the lines, right the errors."""
    left, right = figure.subplots(1, 2)
    table = tables["fit"]
    for n, color, marker in ((3, BLUE, "o"), (4, VERMILION, "s")):
        rows = column(table, "classes") == n
        gamma, slope, error = (column(table, name)[rows] for name in ("gamma", "inverse temperature", "largest error"))
        line = fit_line(gamma, slope)
        step = slice(1, None, 2) if n == 3 else slice(None)
        left.plot(gamma, line.at(gamma), color=color, label=f"{n} classes: {line}")
        left.plot(gamma[step], slope[step], color=color, linestyle="", marker=marker, markersize=3.2)
        right.plot(gamma, 100 * error, color=color, marker=marker, markersize=2.8, label=f"{n} classes")
    left.set(xlim=(0, 10.2), ylim=(0, None), xlabel="γ", ylabel="1/T")
    right.set(xlim=(0, 10.2), ylim=(0, None), xlabel="γ", ylabel="largest error of a probability, %")
    left.legend(loc="upper left")
    right.legend(loc="lower right")


def read_multiclass_fit(tables: Tables) -> list[Reading]:
    """The lines and the errors."""
    table = tables["fit"]
    readings = []
    for n, printed in PAPER_LINES.items():
        rows = column(table, "classes") == n
        gamma, slope, error = (column(table, name)[rows] for name in ("gamma", "inverse temperature", "largest error"))
        line = fit_line(gamma, slope)
        readings.append(Reading(f"{n} classes: 1/T", f"{line} (R² {line.r_squared:.4f})", printed))
        at = int(np.abs(gamma - 9.0).argmin())
        paper = "8 % for γ = 9" if n == 3 else "up to 8 %"
        readings.append(Reading(f"{n} classes: largest error at γ = {gamma[at]:g}", f"{100 * error[at]:.1f} %", paper))
    return readings


# confidence ----------------------------------------------------------------------------------------------------------


def compute_confidence() -> Tables:
    """Which top probabilities can fall, and by how much."""
    limits = [
        (gamma, theory.confidence_threshold(gamma), n, theory.highest_lowered_top(gamma, n))
        for gamma in THRESHOLD_GAMMAS
        for n in N_CLASSES
    ]
    falls = [
        (n, top, theory.worst_top_change(float(top), FALL_GAMMA, n))
        for n in FALL_CLASSES
        for top in np.geomspace(1.0 / n, 0.5, 121)
    ]
    return {
        "limits": dict(zip(("gamma", "tau", "classes", "highest top"), zip(*limits, strict=True), strict=True)),
        "falls": dict(zip(("classes", "top", "worst change"), zip(*falls, strict=True), strict=True)),
    }


def draw_confidence(figure: Figure, tables: Tables) -> None:
    """Left up to where the top can fall, right how far."""
    left, right = figure.subplots(1, 2)
    limits, falls = tables["limits"], tables["falls"]
    for gamma, color in zip(THRESHOLD_GAMMAS, PALETTE, strict=False):
        rows = column(limits, "gamma") == gamma
        n, tau = column(limits, "classes")[rows], float(column(limits, "tau")[rows][0])
        left.axhline(tau, color=color, linestyle=(0, (4, 3)), linewidth=1.0)
        left.plot(n, column(limits, "highest top")[rows], color=color, marker="o", markersize=2.6)
        left.annotate(f"τ({gamma:g}) = {tau:.3f}", (1000, tau), xytext=(5, 0), textcoords="offset points",
                      va="center", fontsize=8.0, annotation_clip=False)  # fmt: skip
    left.plot(np.arange(2, 1001), 1.0 / np.arange(2.0, 1001), color=MUTED, linestyle=":", linewidth=1.0)
    left.annotate("1/n", (22, 1 / 22), xytext=(4, 3), textcoords="offset points", fontsize=8.0, color=MUTED)
    left.set(xscale="log", xlim=(2, 1000), ylim=(0, 0.5), xlabel="number of classes n")
    left.set_ylabel("highest top probability that can fall")
    left.set_xticks([2, 4, 10, 100, 1000], ["2", "4", "10", "100", "1000"])
    left.set_xticks([], minor=True)
    for n_classes, color in zip(FALL_CLASSES, PALETTE, strict=False):
        rows = column(falls, "classes") == n_classes
        change = np.minimum(column(falls, "worst change")[rows], 0.0)
        right.plot(column(falls, "top")[rows], 100 * change, color=color, label=f"n = {n_classes}")
    tau = theory.confidence_threshold(FALL_GAMMA)
    right.axvline(tau, color=MUTED, linestyle=(0, (4, 3)), linewidth=1.0)
    right.axhline(0.0, color=LINE, linewidth=0.8, zorder=0)
    right.annotate(f"τ({FALL_GAMMA:g}) = {tau:.3f}", (tau, 0.5), xycoords=("data", "axes fraction"), xytext=(4, 0),
                   textcoords="offset points", fontsize=8.0)  # fmt: skip
    right.set(xlim=(0, 0.6), xlabel="top probability before", ylabel="its largest fall, percentage points")
    right.legend(loc="lower right", title=f"γ = {FALL_GAMMA:g}", title_fontsize=8.0)


def read_confidence(tables: Tables) -> list[Reading]:
    """From how many classes on the top can fall, up to where, by how much."""
    limits, falls = tables["limits"], tables["falls"]
    readings = []
    for gamma in THRESHOLD_GAMMAS:
        rows = column(limits, "gamma") == gamma
        n, highest = column(limits, "classes")[rows], column(limits, "highest top")[rows]
        first = int(n[np.isfinite(highest)].min())
        text = f"from {first} classes on, up to {highest[-1]:.3f} with 1000; τ = {column(limits, 'tau')[rows][0]:.4f}"
        readings.append(Reading(f"γ = {gamma:g}: the top can fall", text, "never (Proposition 5)"))
    for n_classes in FALL_CLASSES:
        rows = column(falls, "classes") == n_classes
        change = column(falls, "worst change")[rows]
        at = column(falls, "top")[rows][change.argmin()]
        text = f"{100 * change.min():.3f} points, at {at:.3f}"
        readings.append(Reading(f"γ = {FALL_GAMMA:g}, {n_classes} classes: largest fall", text, "none (Proposition 5)"))
    return readings


MULTICLASS = (
    PaperFigure(
        "multiclass-fit",
        "Three and four classes: the temperature closest to focal calibration",
        (7.6, 3.1),
        compute_multiclass_fit,
        draw_multiclass_fit,
        read_multiclass_fit,
    ),
    PaperFigure(
        "confidence",
        "When focal calibration lowers the top probability",
        (7.6, 3.3),
        compute_confidence,
        draw_confidence,
        read_confidence,
    ),
)
