"""The figures that need the cells of a sweep: refinement by training loss and epoch, and the step to new images.

Both are drawn from what was measured before (metrics.json, refinement.json), so that they take no time and need no
logits.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from refocal.report.figures import MUTED
from refocal_paper import claims
from refocal_paper.figures._base import BLUE, GREEN, ORANGE, VERMILION, PaperFigure, Reading, Tables, column
from refocal_paper.figures._networks import DATASETS
from refocal_paper.figures.trained import TRAININGS
from refocal_paper.measure import find_cells, measure_cell
from refocal_paper.recipe import LOSSES
from refocal_paper.refinement import read_refinement, stops
from refocal_paper.table import Cell, recipe_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELL_FIGURES = ("refinement", "generalisation")
FULL_LENGTH = 350  # epochs of the paper's recipe for CIFAR
SHORT = 60
FIRST_DROP = 150  # epochs after which the learning rate falls; before it the losses are several times as large
SHOWN = ("cifar10", "cifar100")


# refinement ----------------------------------------------------------------------------------------------------------


def compute_refinement(runs: Path) -> Tables:
    """Refinement minus that of cross-entropy by training, and both parts of the test log-loss by epoch."""
    refinement = read_refinement(runs)
    trainings = []
    for row in refinement["cells"]:
        recipe = recipe_of(row)
        usual = recipe == replace(recipe, network="resnet50", reduction="sum", precision="bfloat16")
        usual = usual and recipe.loss in LOSSES
        if usual and recipe.seed == 1 and row["against_cross_entropy"] is not None:
            trainings.append((recipe.dataset, recipe.epochs, recipe.loss, *row["against_cross_entropy"]["log_loss"]))
    epochs = []
    for row in refinement["epochs"]:
        recipe = recipe_of(row)
        total = row["log_loss"]["total"][0]
        epochs.append((recipe.dataset, recipe.loss, row["epoch"], total, *row["log_loss"]["refinement"]))
    chosen = [(name, stop.rule, stop.epoch, stop.log_loss) for name, some in stops(refinement).items() for stop in some]
    heads = {
        "trainings": ("dataset", "epochs", "loss", "difference", "low", "high"),
        "epochs": ("dataset", "loss", "epoch", "total", "refinement", "low", "high"),
        "stops": ("cell", "rule", "epoch", "log-loss"),
    }
    rows = {"trainings": trainings, "epochs": epochs, "stops": chosen}
    return {name: _columns(heads[name], rows[name]) for name in heads}


def _columns(heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> dict[str, list[Any]]:
    return {head: [row[i] for row in rows] for i, head in enumerate(heads)}


def draw_refinement(figure: Figure, tables: Tables) -> None:
    """Above the trainings against cross-entropy, short and long; below those whose epochs were kept."""
    axes = figure.subplots(2, len(SHOWN), squeeze=False)
    losses = [loss for loss in LOSSES if loss in tables["trainings"]["loss"]]
    table = tables["trainings"]
    for ax, dataset in zip(axes[0], SHOWN, strict=True):
        for epochs, color, marker, shift in ((SHORT, ORANGE, "s", -0.12), (FULL_LENGTH, BLUE, "o", 0.12)):
            rows = (np.array(table["dataset"]) == dataset) & (np.array(table["epochs"]) == epochs)
            x = np.array([losses.index(loss) for loss in np.array(table["loss"])[rows]]) + shift
            difference, low, high = (column(table, name)[rows] for name in ("difference", "low", "high"))
            ax.errorbar(
                x, difference, [difference - low, high - difference], color=color, marker=marker, markersize=4,
                linestyle="", linewidth=1.2, label=f"{epochs} epochs",
            )  # fmt: skip
        ax.axhline(0.0, color=MUTED, linewidth=0.8, zorder=0)
        words = [TRAININGS[loss][0].replace("focal, ", "") for loss in losses]
        ax.set_xticks(range(len(losses)), words, rotation=30, ha="right")
        ax.set(title=DATASETS[dataset], xlabel="trained with focal loss", xlim=(-0.5, len(losses) - 0.5))
    axes[0, 0].set_ylabel("refinement minus\ncross-entropy's (log-loss)")
    axes[0, 0].legend(loc="upper left")
    _draw_epochs(axes[1], tables)


def _draw_epochs(axes: Any, tables: Tables) -> None:
    table = tables["epochs"]
    for ax, dataset in zip(axes, SHOWN, strict=True):
        for loss in LOSSES:
            rows = (np.array(table["dataset"]) == dataset) & (np.array(table["loss"]) == loss)
            rows &= column(table, "epoch") > FIRST_DROP
            if not rows.any():
                continue
            label = TRAININGS[loss][0]
            color = {"adafocal": VERMILION, "flsd-53": GREEN}.get(loss, BLUE)
            epoch, total, refined, low, high = (
                column(table, name)[rows] for name in ("epoch", "total", "refinement", "low", "high")
            )
            ax.plot(epoch, total, color=color, linestyle="--", linewidth=1.0)
            ax.plot(epoch, refined, color=color, label=f"{label}: refinement")
            ax.fill_between(epoch, low, high, color=color, alpha=0.15, linewidth=0)
        ax.plot([], [], color=MUTED, linestyle="--", linewidth=1.0, label="log-loss of the same")
        bottom, top = ax.get_ylim()
        top += 0.35 * (top - bottom)  # room for the legend above the curves
        ax.set(xlabel="epoch", xlim=(FIRST_DROP, FULL_LENGTH), ylim=(bottom, top))
        ax.legend(loc="upper right")
    axes[0].set_ylabel("log-loss, test images")


def read_refinement_figure(tables: Tables) -> list[Reading]:
    """The differences with their intervals, and where each rule stops."""
    table = tables["trainings"]
    readings = []
    for dataset, epochs, loss, difference, low, high in zip(*table.values(), strict=True):
        what = f"{DATASETS[dataset]}, {epochs} epochs, {TRAININGS[loss][0]}: refinement minus cross-entropy's"
        readings.append(Reading(what, f"{difference:+.3f} ({low:+.3f} to {high:+.3f})"))
    for cell, rule, epoch, log_loss in zip(*tables["stops"].values(), strict=True):
        dataset, loss, _ = cell.split(", ")
        what = f"{DATASETS[dataset]}, {TRAININGS[loss][0]}, {rule}"
        readings.append(Reading(what, f"epoch {epoch}, log-loss {log_loss:.3f} after calibration"))
    return readings


# generalisation ------------------------------------------------------------------------------------------------------


def compute_generalisation(runs: Path) -> Tables:
    """For γ of training: T on training images, T on held-out images, the map's T and its product with the gap.

    T on training images is left out where all of them are right: the log-loss then has no least T. The gap is T of
    cross-entropy on held-out images.
    """
    cells = [cell for cell in map(measure_cell, find_cells(runs)[0]) if _is_full_length(cell)]
    on_training = {}
    for mechanism in claims.mechanisms(cells):
        if mechanism.accuracy < 1.0:
            on_training[mechanism.setting, mechanism.loss] = mechanism.temperature
    rows = []
    gaps = {}
    for c in claims.compositions(cells):
        dataset = c.setting.split(", ")[0]
        gaps[dataset] = c.gap
        product = None if c.map_measured is None else c.gap * c.map_measured
        training = on_training.get((c.setting, f"focal-{c.gamma:g}"))
        rows.append((dataset, c.gamma, training, c.found, c.map_measured, product))
    for dataset, gap in gaps.items():
        rows.append((dataset, 0.0, None, gap, 1.0, gap))
    rows.sort(key=lambda row: (row[0], row[1]))
    heads = ("dataset", "gamma", "T, training images", "T, held-out images", "T of the map", "T of the map × gap")
    return {"generalisation": _columns(heads, rows)}


def _is_full_length(cell: Cell) -> bool:
    recipe = recipe_of(cell)
    return recipe.epochs == FULL_LENGTH and recipe.network == "resnet50" and recipe.dataset in SHOWN


def draw_generalisation(figure: Figure, tables: Tables) -> None:
    """A panel for each data set, the temperatures against γ of training."""
    table = tables["generalisation"]
    looks = {
        "T, held-out images": (BLUE, "o", "-"),
        "T of the map × gap": (VERMILION, "s", "--"),
        "T of the map": (ORANGE, "^", "--"),
        "T, training images": (GREEN, "D", ":"),
    }
    for ax, dataset in zip(figure.subplots(1, len(SHOWN), sharey=True), SHOWN, strict=True):
        rows = np.array(table["dataset"]) == dataset
        for name, (color, marker, style) in looks.items():
            values = column(table, name)[rows]
            there = ~np.isnan(values)
            gamma = column(table, "gamma")[rows][there]
            ax.plot(gamma, values[there], color=color, marker=marker, markersize=4.5, linestyle=style, label=name)
        ax.axhline(1.0, color=MUTED, linewidth=0.8, zorder=0)
        ax.set(title=f"{DATASETS[dataset]}, {FULL_LENGTH} epochs", xlabel="γ of training", ylim=(0, None))
    figure.axes[0].set_ylabel("temperature")
    figure.axes[1].legend(loc="upper right")


def read_generalisation(tables: Tables) -> list[Reading]:
    """For each γ: the product, and T on held-out images."""
    table = tables["generalisation"]
    gap = {
        d: t for d, g, t in zip(table["dataset"], table["gamma"], table["T, held-out images"], strict=True) if g == 0
    }
    readings = []
    for dataset, gamma, training, found, of_map, product in zip(*table.values(), strict=True):
        if gamma == 0.0 or of_map is None:
            continue
        text = f"{of_map:.2f} × {gap[dataset]:.2f} = {product:.2f}, T found {found:.2f}"
        if training is not None:
            text += f"; on training images {training:.2f}"
        paper = "0.4–0.5 × 2–2.5 ≈ 1" if gamma == 3.0 else "–"
        readings.append(Reading(f"{DATASETS[dataset]}, γ = {gamma:g}: T of the map × gap", text, paper))
    return readings


def cell_figures(runs: Path) -> tuple[PaperFigure, ...]:
    """The figures of a folder of cells."""
    return (
        PaperFigure(
            "refinement",
            "Refinement of trained networks by training loss and by epoch",
            (8.4, 6.0),
            partial(compute_refinement, runs),
            draw_refinement,
            read_refinement_figure,
        ),
        PaperFigure(
            "generalisation",
            "Temperatures on training and on new images by γ of training",
            (8.0, 3.4),
            partial(compute_generalisation, runs),
            draw_generalisation,
            read_generalisation,
        ),
    )
