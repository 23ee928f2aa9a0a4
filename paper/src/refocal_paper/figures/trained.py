"""The figures of trained networks: the line of γ and T, and what a tolerance of log-loss buys."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from refocal import metrics
from refocal.fitting.grid import by_score
from refocal.maps import focal_temperature
from refocal.report.figures import INK, MUTED
from refocal_paper.figures._base import PALETTE, PaperFigure, Reading, Tables, Vector, column
from refocal_paper.figures._networks import DATASETS, GAMMAS, Network, Networks
from refocal_paper.line import fit_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOLERANCES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, None)
# Light to dark as γ of training grows; sample-dependent losses have no γ of their own.
TRAININGS = {
    "cross-entropy": ("cross-entropy", "#E69F00", "o"),
    "focal-1": ("focal, γ = 1", "#9ecae1", "s"),
    "focal-2": ("focal, γ = 2", "#6baed6", "^"),
    "focal-3": ("focal, γ = 3", "#4292c6", "D"),
    "focal-5": ("focal, γ = 5", "#2171b5", "v"),
    "focal-7": ("focal, γ = 7", "#08306b", "p"),
    "flsd-53": ("FLSD-53", "#009E73", "h"),
    "adafocal": ("AdaFocal", "#CC79A7", "*"),
    "brier": ("Brier score", "#D55E00", "<"),
    "label-smoothing": ("label smoothing", "#F0E442", ">"),
    "mmce": ("MMCE", "#000000", "X"),
    "dual-focal": ("dual focal", "#999999", "P"),
}


# gamma-temperature-line ----------------------------------------------------------------------------------------------


def compute_line(networks: Networks) -> Tables:
    """For every network and γ, the temperature of least ECE on the validation set."""
    rows = [
        (network.dataset, network.loss, network.name, gamma, temperature, 100.0 * ece)
        for network in networks.all
        for i, gamma in enumerate(GAMMAS)
        for temperature, ece in [network.least_ece(i)]
    ]
    names = ("dataset", "loss", "network", "gamma", "temperature", "ECE, %")
    return {"line": dict(zip(names, zip(*rows, strict=True), strict=True))}


def draw_line(figure: Figure, tables: Tables) -> None:
    """A panel for each data set, a line for each network."""
    table = tables["line"]
    dataset, name = np.array(table["dataset"]), np.array(table["network"])
    shown = sorted(set(table["dataset"]))
    seen: dict[str, Any] = {}
    for ax, key in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        for network in dict.fromkeys(name[dataset == key]):
            rows = name == network
            label, color, marker = TRAININGS[str(np.array(table["loss"])[rows][0])]
            gamma, temperature = column(table, "gamma")[rows], column(table, "temperature")[rows]
            ax.plot(gamma, fit_line(gamma, temperature).at(gamma), color=color, linewidth=1.1)
            points = {"color": color, "marker": marker, "linestyle": "", "markersize": 4.5, "markeredgewidth": 0}
            seen[label] = ax.plot(gamma, temperature, **points)[0]
        ax.set(title=_title(key), xlabel="γ of calibration")
    figure.axes[0].set_ylabel("temperature of least ECE")
    order = [label for label, _, _ in TRAININGS.values() if label in seen]
    figure.legend([seen[label] for label in order], order, loc="outside right center", title="trained with")


def read_line(tables: Tables) -> list[Reading]:
    """The line of every network and how much of the spread it explains."""
    table = tables["line"]
    name = np.array(table["network"])
    readings = []
    for network in dict.fromkeys(name):
        rows = name == network
        line = fit_line(column(table, "gamma")[rows], column(table, "temperature")[rows])
        readings.append(Reading(f"{network}: T", f"{line}, R² {line.r_squared:.3f}", "close to linear"))
    return readings


# tolerance -----------------------------------------------------------------------------------------------------------


def compute_tolerance(networks: Networks) -> Tables:
    """For every network and tolerance, what is chosen on the validation set and how it does on the test set."""
    names = ("dataset", "network", "tolerance", "gamma", "temperature", "validation ECE, %", "validation log-loss",
             "test ECE, %", "test log-loss")  # fmt: skip
    rows = [
        (network.dataset, network.name, "none" if tolerance is None else tolerance, *_chosen(network, tolerance))
        for network in networks.all
        for tolerance in TOLERANCES
    ]
    return {"tolerance": dict(zip(names, zip(*rows, strict=True), strict=True))}


def _chosen(network: Network, tolerance: float | None) -> tuple[float, ...]:
    surface = network.surface(tolerance)
    at = np.unravel_index(by_score(surface.log_loss, surface.value, tolerance)[0], surface.value.shape)
    gamma, temperature = float(surface.gamma[at]), float(surface.temperature[at])
    validation = (100.0 * float(surface.value[at]), float(surface.log_loss[at]))
    return gamma, temperature, *validation, *_on_test(network, gamma, temperature)


@lru_cache(maxsize=256)  # several tolerances choose the same point
def _on_test(network: Network, gamma: float, temperature: float) -> tuple[float, float]:
    log_p = focal_temperature(network.test.values, gamma, temperature)
    ece = metrics.expected_calibration_error(network.test.labels, np.exp(log_p))
    return 100.0 * ece, metrics.log_loss(network.test.labels, log_p)


def draw_tolerance(figure: Figure, tables: Tables) -> None:
    """Left the calibration error, right the log-loss that was given up; means over the networks of a data set."""
    left, right = figure.subplots(1, 2)
    table = tables["tolerance"]
    dataset = np.array(table["dataset"])
    shown = sorted(set(table["dataset"]))
    x = np.arange(len(TOLERANCES))
    for key, color, marker in zip(shown, PALETTE, "os^Dvp", strict=False):
        for part, style, face in (("test", "-", color), ("validation", "--", "white")):
            ece, given_up = (_mean(table, key, f"{part} {what}") for what in ("ECE, %", "log-loss"))
            many = int((dataset == key).sum() / len(TOLERANCES))
            label = f"{_title(key)}, {part}" + (f" (mean of {many})" if many > 1 else "")
            look = {"color": color, "linestyle": style, "marker": marker, "markersize": 4, "markerfacecolor": face}
            left.plot(x, ece, label=label, **look)
            right.plot(x, given_up, **look)
    ticks = ["0", *(f"{100 * t:g}" for t in TOLERANCES[1:-1] if t is not None), "none"]
    for ax in (left, right):
        ax.set_xticks(x, ticks)
        ax.set_xlabel("nll_tolerance, %")
    left.set(ylim=(0, None), ylabel="ECE, %")
    right.axhline(0.0, color=MUTED, linewidth=0.8, zorder=0)
    right.set_ylabel("log-loss above that at tolerance 0, %")
    right.axvline(TOLERANCES.index(0.02), color=MUTED, linestyle=":", linewidth=1.0, zorder=0)
    right.annotate("default", (TOLERANCES.index(0.02), 0.97), xycoords=("data", "axes fraction"), xytext=(-4, 0),
                   textcoords="offset points", ha="right", va="top", color=INK, fontsize=8.0)  # fmt: skip
    figure.legend(loc="outside lower center", ncols=2)


def _mean(table: Any, key: str, name: str) -> Vector:
    """The mean over a data set's networks, for each tolerance; a log-loss as its percentage above the first."""
    values = column(table, name)[np.array(table["dataset"]) == key].reshape(-1, len(TOLERANCES))
    if "log-loss" in name:
        values = 100.0 * (values / values[:, :1] - 1.0)
    result: Vector = values.mean(axis=0)
    return result


def read_tolerance(tables: Tables) -> list[Reading]:
    """Error and log-loss on the test set at a few tolerances."""
    table = tables["tolerance"]
    shown = sorted(set(table["dataset"]))
    readings = []
    for key in shown:
        ece, given_up = (_mean(table, key, f"test {what}") for what in ("ECE, %", "log-loss"))
        for tolerance in (0.0, 0.005, 0.02, None):
            at = TOLERANCES.index(tolerance)
            words = "no tolerance" if tolerance is None else f"tolerance {100 * tolerance:g} %"
            text = f"test ECE {ece[at]:.2f} %, test log-loss {given_up[at]:+.2f} %"
            readings.append(Reading(f"{_title(key)}, {words}", text))
    return readings


def _title(dataset: str) -> str:
    return DATASETS.get(dataset, dataset)


def trained_figures(networks: Networks) -> tuple[PaperFigure, ...]:
    """The figures of these networks."""
    return (
        PaperFigure(
            "gamma-temperature-line",
            "Trained networks: the temperature of least ECE against γ",
            (8.4, 3.4),
            partial(compute_line, networks),
            draw_line,
            read_line,
        ),
        PaperFigure(
            "tolerance",
            "Trained networks: calibration error against log-loss",
            (8.0, 3.7),
            partial(compute_tolerance, networks),
            draw_tolerance,
            read_tolerance,
        ),
    )
