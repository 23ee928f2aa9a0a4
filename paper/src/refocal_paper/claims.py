"""The paper's claims besides its table, checked on the finished cells.

Six claims: parameters chosen by ECE give an ECE about 20 % lower than those chosen by log-loss (and log-loss the other
way round about 1 %); the optimal temperature falls as γ of training grows; for the γ of the map, the best
temperatures lie near a line; the map's own temperature times the gap that cross-entropy shows is the temperature found;
cross-entropy is calibrated on the images learnt from and focal loss underconfident there, for which the gap makes up;
and, though the paper does not go there, whether any of it lasts on corrupted images and shows which are of no class.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from refocal.theory import closest_temperature
from refocal_paper.line import fit_line
from refocal_paper.recipe import ALL_LOSSES, LOSSES
from refocal_paper.table import Cell, group_cells, named_cells, recipe_of

# The paper's 0.4–0.5 for the focal map comes from three classes.
CLASSES = 3


class Change(NamedTuple):
    """A relative change of a test measure: its mean over the cells of a setting, and in how many it is below 0."""

    setting: str
    what: str
    mean: float
    smaller: int
    cells: int


class Training(NamedTuple):
    """A training's optimal temperatures by log-loss and by ECE, with its accuracy and ECE, as means over the seeds."""

    setting: str
    gamma: float
    temperature_nll: float
    temperature_ece: float
    accuracy: float
    ece: float


class MapLine(NamedTuple):
    """The best T as a line in γ of the map, in one cell: fitted to γ ≤ 1; R² also with γ = 5, which pulls at it."""

    cell: str
    criterion: str
    slope: float
    intercept: float
    r_squared: float
    r_squared_with_5: float


class Composition(NamedTuple):
    """A training with focal loss: `gap`, T of cross-entropy; the map's T, in theory and on the network; the T found."""

    setting: str
    gamma: float
    gap: float
    map_theory: float
    map_measured: float | None
    found: float


class MapAlone(NamedTuple):
    """A cell trained with focal loss, on the test images: as it is, and after the map with γ of training, unfitted."""

    cell: str
    gamma: float
    ece: float
    ece_mapped: float
    log_loss: float
    log_loss_mapped: float


class Equivalent(NamedTuple):
    """Focal temperature scaling as one temperature: the map's T at the chosen γ, times the chosen T, against TS's T."""

    cell: str
    gamma: float
    temperature: float
    product: float
    ts: float


class Mechanism(NamedTuple):
    """A training on images that it learnt from, as means over the seeds that kept them; T found on the held-out ones.

    `underconfidence` is accuracy minus mean confidence; `ece_mapped` is after the focal map with γ of training.
    """

    setting: str
    loss: str
    seeds: int
    accuracy: float
    underconfidence: float
    ece: float
    ece_mapped: float | None
    log_loss: float
    temperature: float
    temperature_held_out: float


class Shifted(NamedTuple):
    """A cell on corrupted test images, as means over the five strengths: accuracy, ECE for each way to calibrate."""

    cell: str
    images: str
    accuracy: float
    ece: dict[str, float]


class Detection(NamedTuple):
    """How well the largest probability tells the test images from those of another data set: AUROC for each way."""

    cell: str
    dataset: str
    auroc: dict[str, float]


# The ways to calibrate that are measured beyond the test set.
WAYS = {"raw": "as it is", "ts": "TS", "fts": "FTS", "default": "FTS, our rule", "auto": "AutoCalibration"}

_CHANGES = {
    "test ECE, TS chosen by ECE against by log-loss": ("ece", ("ts", "ece"), ("ts", "nll")),
    "test ECE, FTS chosen by ECE against by log-loss": ("ece", ("fts", "ece"), ("fts", "nll")),
    "test log-loss, TS chosen by log-loss against by ECE": ("log_loss", ("ts", "nll"), ("ts", "ece")),
    "test log-loss, FTS chosen by log-loss against by ECE": ("log_loss", ("fts", "nll"), ("fts", "ece")),
    "test ECE, FTS against TS, both chosen by ECE": ("ece", ("fts", "ece"), ("ts", "ece")),
    "test log-loss, FTS against TS, both chosen by log-loss": ("log_loss", ("fts", "nll"), ("ts", "nll")),
    "test log-loss, FTS chosen by ECE against TS chosen by log-loss": ("log_loss", ("fts", "ece"), ("ts", "nll")),
    "test ECE, our default against TS chosen by ECE": ("ece", ("default", "auto"), ("ts", "ece")),
    "test log-loss, our default against TS chosen by log-loss": ("log_loss", ("default", "auto"), ("ts", "nll")),
}


def changes(cells: list[Cell]) -> list[Change]:
    """What choosing by one measure or the other, and the second parameter, do."""
    settings: dict[str, list[Cell]] = defaultdict(list)
    for (dataset, network, loss, recipe), group in group_cells(cells).items():
        settings[f"{dataset}, {network}, {recipe}{'' if loss in LOSSES else ', other losses'}"] += group
    found = []
    for setting, some in sorted(settings.items()):
        for what, (measure, first, second) in _CHANGES.items():
            ratios = np.array([_at(cell, first, measure) / _at(cell, second, measure) for cell in some])
            found.append(Change(setting, what, float(ratios.mean() - 1.0), int((ratios < 1.0).sum()), len(ratios)))
    return found


def trainings(cells: list[Cell]) -> list[Training]:
    """Optimal temperatures by γ of training; trainings whose γ depends on the sample have no place in the order."""
    found = []
    for (dataset, network, _, recipe), group in group_cells(cells).items():
        gamma = recipe_of(group[0]).gamma
        if np.isfinite(gamma):
            means = [
                float(np.mean([_at(cell, ("ts", criterion), name) for cell in group]))
                for criterion, name in (("nll", "temperature"), ("ece", "temperature"), ("ece", "ece"))
            ]
            accuracy = float(np.mean([cell["accuracy"] for cell in group]))
            setting = f"{dataset}, {network}, {recipe}"
            found.append(Training(setting, gamma, means[0], means[1], accuracy, means[2]))
    return sorted(found, key=lambda training: (training.setting, training.gamma))


def falls(values: list[float]) -> tuple[int, int]:
    """In how many steps a sequence falls, and how many steps there are."""
    return int((np.diff(values) < 0.0).sum()), len(values) - 1


def lines(cells: list[Cell]) -> list[MapLine]:
    """Straight lines through the best T of each γ, for the cells that kept them."""
    found = []
    for name, cell in named_cells(cells):
        for criterion, pairs in cell.get("pairs", {}).items():
            gamma, temperature = np.array(pairs).T
            near = gamma <= 1.0
            line, whole = fit_line(gamma[near], temperature[near]), fit_line(gamma, temperature)
            found.append(MapLine(name, criterion, *line, whole.r_squared))
    return found


def compositions(cells: list[Cell]) -> list[Composition]:
    """Whether the map's temperature times the gap of cross-entropy is the temperature found."""
    groups = group_cells(cells)
    found = []
    for (dataset, network, _, recipe), group in groups.items():
        gamma, plain = recipe_of(group[0]).gamma, groups.get((dataset, network, "cross-entropy", recipe))
        if gamma > 0.0 and plain is not None:
            gap, own = (float(np.mean([_at(c, ("ts", "nll"), "temperature") for c in part])) for part in (plain, group))
            kept = [cell["map_temperature"] for cell in group if cell.get("map_temperature") is not None]
            measured = float(np.mean(kept)) if kept else None
            setting = f"{dataset}, {network}, {recipe}"
            found.append(Composition(setting, gamma, gap, _map_temperature(gamma), measured, own))
    return sorted(found, key=lambda composition: (composition.setting, composition.gamma))


def maps_alone(cells: list[Cell]) -> list[MapAlone]:
    """What the map with γ of training does without any rows to fit on, for the cells whose logits were there."""
    return [
        MapAlone(
            name,
            recipe_of(cell).gamma,
            cell["raw"]["ece"],
            cell["mapped"]["ece"],
            cell["raw"]["log_loss"],
            cell["mapped"]["log_loss"],
        )
        for name, cell in named_cells(cells)
        if cell.get("mapped") is not None
    ]


def equivalents(cells: list[Cell]) -> list[Equivalent]:
    """Focal temperature scaling chosen by log-loss, as one temperature."""
    found = []
    for name, cell in named_cells(cells):
        gamma, temperature = (_at(cell, ("fts", "nll"), part) for part in ("gamma", "temperature"))
        ts = _at(cell, ("ts", "nll"), "temperature")
        found.append(Equivalent(name, gamma, temperature, _map_temperature(gamma) * temperature, ts))
    return found


def mechanisms(cells: list[Cell]) -> list[Mechanism]:
    """Calibration on the training images by loss, for the cells that kept them."""
    found = []
    for (dataset, network, loss, recipe), group in group_cells(cells).items():
        kept = [cell for cell in group if "train" in cell]
        if kept:
            parts = [cell["train"] for cell in kept]
            names = ("accuracy", "confidence", "ece", "log_loss", "temperature")
            accuracy, confidence, ece, log_loss, temperature = (
                float(np.mean([part[name] for part in parts])) for name in names
            )
            mapped = [part["mapped"]["ece"] for part in parts if part["mapped"] is not None]
            held_out = float(np.mean([_at(cell, ("ts", "nll"), "temperature") for cell in kept]))
            setting, behind = f"{dataset}, {network}, {recipe}", float(np.mean(mapped)) if mapped else None
            row = (accuracy, accuracy - confidence, ece, behind, log_loss, temperature, held_out)
            found.append(Mechanism(setting, loss, len(kept), *row))
    return sorted(found, key=lambda mechanism: (mechanism.setting, ALL_LOSSES.index(mechanism.loss)))


def shifts(cells: list[Cell]) -> list[Shifted]:
    """The test images as they are and corrupted, for the cells that were measured on them."""
    found = []
    for name, cell in named_cells(cells):
        if "shift" in cell:
            shift = cell["shift"]
            for images, parts in {"as they are": [shift["clean"]], **shift["corrupted"]}.items():
                accuracy = float(np.mean([part["accuracy"] for part in parts]))
                ece = {way: float(np.mean([part[way]["ece"] for part in parts])) for way in WAYS}
                found.append(Shifted(name, images, accuracy, ece))
    return found


def detections(cells: list[Cell]) -> list[Detection]:
    """Images of another data set told from the test images, for the cells that were shown them."""
    shown = {name: cell["shift"]["unknown"] for name, cell in named_cells(cells) if "unknown" in cell.get("shift", {})}
    return [Detection(name, of["dataset"], {way: of["auroc"][way] for way in WAYS}) for name, of in shown.items()]


def all_claims(cells: list[Cell]) -> dict[str, list[Any]]:
    """Everything, by name."""
    return {
        "maps_alone": maps_alone(cells),
        "changes": changes(cells),
        "trainings": trainings(cells),
        "lines": lines(cells),
        "compositions": compositions(cells),
        "equivalents": equivalents(cells),
        "mechanisms": mechanisms(cells),
        "shifts": shifts(cells),
        "detections": detections(cells),
    }


def _at(cell: Cell, choice: tuple[str, str], name: str) -> float:
    return float(cell[choice[0]][choice[1]][name])


@cache
def _map_temperature(gamma: float) -> float:
    return closest_temperature(gamma, CLASSES).temperature
