"""Refinement: how much of a network's loss calibration removes and how much stays, by training loss and by epoch.

The expected loss of a network is calibration + refinement: the refinement is the loss after the best recalibration, the
calibration part what that recalibration saves (Berta, Holzmüller, Jordan & Bach 2025, arXiv 2501.19195). Here the best
recalibration at hand is AutoCalibration, each row predicted by one that was fitted on the other folds:

    total = (1/n) Σ ℓ(pᵢ, yᵢ),   refinement = (1/n) Σ ℓ(qᵢ, yᵢ),   calibration = total - refinement,

with p the network's probabilities, q the recalibrated ones and ℓ the log-loss or the Brier score Σₖ (pₖ - yₖ)². The
95 % intervals are mean ± 1.96 standard errors of the rows' values. They are about the test images: another seed of the
training is not in them, and neither is another draw of the rows that the recalibration was fitted on.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal.calibrators import AutoCalibration
from refocal.engine import Block
from refocal.errors import FormatError
from refocal.fitting.folds import folds
from refocal.maps import log_softmax
from refocal_paper.measure import find_cells
from refocal_paper.recipe import Recipe
from refocal_paper.table import Cell, group_cells, recipe_name, recipe_of

FILE = "refinement.json"
N_FOLDS = 5
NORMAL_QUANTILE = 1.959964  # of a two-sided 95 % interval
DIGITS = 6  # of the numbers that are kept
LOSSES_OF_ROWS = ("log_loss", "brier_score")
# A true class with less than this after recalibration costs much log-loss, while the Brier score of a row is at most 2.
IMPROBABLE = 0.05

Values = NDArray[np.float64]  # of a loss, one for each row
OnStep = Callable[[int, int, str], None]


class Interval(NamedTuple):
    """A mean over rows and its 95 % interval."""

    value: float
    low: float
    high: float


class Stop(NamedTuple):
    """An epoch that a rule chose on the held-out images, and the network of that epoch on the test images.

    `log_loss` and `brier_score` are those after AutoCalibration, fitted on the held-out images.
    """

    rule: str
    epoch: int
    accuracy: float
    log_loss: float
    brier_score: float


class SeedDifference(NamedTuple):
    """Log-loss after FTS chosen by log-loss: a training minus cross-entropy, for each seed that both have."""

    setting: str
    loss: str
    differences: list[float]


def row_losses(log_p: NDArray[Any], labels: NDArray[Any]) -> dict[str, Values]:
    """Log-loss and Brier score of each row."""
    rows = np.arange(len(labels))
    p = np.exp(log_p.astype(np.float64))
    right = p[rows, labels]
    return {
        "log_loss": -log_p[rows, labels].astype(np.float64),
        # Σₖ (pₖ - yₖ)² = Σₖ pₖ² - 2 p_y + 1
        "brier_score": (p**2).sum(axis=1) - 2.0 * right + 1.0,
    }


def cross_fitted(logits: NDArray[Any], labels: NDArray[Any]) -> NDArray[Any]:
    """Log-probabilities of each row by an AutoCalibration that was fitted on the other folds."""
    log_p = np.empty_like(logits)
    fold = folds(Block(logits, labels), N_FOLDS, 0)
    for i in range(N_FOLDS):
        held_out = fold == i
        calibrator = AutoCalibration().fit(logits[~held_out], labels[~held_out])
        log_p[held_out] = calibrator.predict_log_proba(logits[held_out])
    return log_p


def mean_interval(values: Values) -> Interval:
    """The mean of rows with its 95 % interval, from their standard error."""
    mean = float(values.mean())
    half_width = NORMAL_QUANTILE * float(values.std(ddof=1)) / float(np.sqrt(len(values)))
    return Interval(*(round(number, DIGITS) for number in (mean, mean - half_width, mean + half_width)))


def split_loss(total: Values, refined: Values) -> dict[str, Interval]:
    """Total, calibration and refinement from the losses of rows before and after recalibration."""
    return {
        "total": mean_interval(total),
        "calibration": mean_interval(total - refined),
        "refinement": mean_interval(refined),
    }


def measure_refinement(runs: Path, epochs: Path | None = None, on_step: OnStep | None = None) -> dict[str, Any]:
    """The split of every cell that kept its logits and, from logits kept on the way, against the epochs.

    `epochs` holds folders of cells' names with logits-0025.npz and so on, as --logits-every keeps them. What was
    measured of the epochs of other cells before and stands in the file of `runs` stays.
    """
    cells = [folder for folder in find_cells(runs)[0] if (folder / "logits.npz").is_file()]
    kept = runs / FILE
    steps = [] if epochs is None else _steps(epochs, runs)
    n_steps = len(cells) + len(steps)
    tell = on_step or (lambda done, total, words: None)
    measured = []
    refined = {}
    for i, folder in enumerate(cells):
        tell(i, n_steps, folder.name)
        recipe = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
        data = _read(folder / "logits.npz")
        total = row_losses(log_softmax(data["test"]), data["yt"])
        refined[folder.name] = row_losses(cross_fitted(data["test"], data["yt"]), data["yt"])
        accuracy = float((data["test"].argmax(axis=1) == data["yt"]).mean())
        improbable = float((refined[folder.name]["log_loss"] > -np.log(IMPROBABLE)).mean())
        row = {"recipe": recipe, "accuracy": round(accuracy, DIGITS), "improbable": round(improbable, DIGITS)}
        row |= {name: split_loss(total[name], refined[folder.name][name]) for name in LOSSES_OF_ROWS}
        measured.append(row)
    _compare(measured, list(refined.values()))
    by_epoch = []
    for i, (path, recipe, epoch) in enumerate(steps, len(cells)):
        tell(i, n_steps, f"{path.parent.name}, epoch {epoch}")
        by_epoch.append({"recipe": recipe, "epoch": epoch, **_measure_epoch(_read(path))})
    before = read_refinement(runs)["epochs"] if kept.is_file() else []
    measured_now = {recipe_of(row) for row in by_epoch}
    by_epoch += [row for row in before if recipe_of(row) not in measured_now]
    by_epoch.sort(key=lambda row: (recipe_of(row).key, row["epoch"]))
    return {"cells": measured, "epochs": by_epoch}


def _steps(epochs: Path, runs: Path) -> list[tuple[Path, dict[str, Any], int]]:
    """The files of logits kept on the way, with recipe and epoch; the finished cell's own is the last one."""
    steps = []
    for folder in sorted(path for path in epochs.iterdir() if path.is_dir()):
        own = runs / folder.name
        source = own if (own / "recipe.json").is_file() else folder
        recipe = json.loads((source / "recipe.json").read_text(encoding="utf-8"))
        for path in sorted(folder.glob("logits-*.npz")):
            steps.append((path, recipe, int(path.stem.removeprefix("logits-"))))
        if (own / "logits.npz").is_file():
            steps.append((own / "logits.npz", recipe, int(recipe["epochs"])))
    return steps


def _measure_epoch(data: dict[str, NDArray[Any]]) -> dict[str, Any]:
    total = row_losses(log_softmax(data["test"]), data["yt"])
    refined = row_losses(cross_fitted(data["test"], data["yt"]), data["yt"])
    held_out_total = row_losses(log_softmax(data["val"]), data["yv"])
    held_out_refined = row_losses(cross_fitted(data["val"], data["yv"]), data["yv"])
    calibrator = AutoCalibration().fit(data["val"], data["yv"])
    calibrated = row_losses(calibrator.predict_log_proba(data["test"]), data["yt"])
    held_out = {"total": held_out_total["log_loss"], "refinement": held_out_refined["log_loss"]}
    return {
        "accuracy": round(float((data["test"].argmax(axis=1) == data["yt"]).mean()), DIGITS),
        **{name: split_loss(total[name], refined[name]) for name in LOSSES_OF_ROWS},
        "held_out": {name: round(float(values.mean()), DIGITS) for name, values in held_out.items()},
        "calibrated": {name: round(float(values.mean()), DIGITS) for name, values in calibrated.items()},
    }


def _compare(rows: list[dict[str, Any]], refined: list[dict[str, Values]]) -> None:
    """Add to each cell its refinement minus that of cross-entropy in the same setting, paired over the test images."""
    plain = {
        _setting(row): values
        for row, values in zip(rows, refined, strict=True)
        if row["recipe"]["loss"] == "cross-entropy"
    }
    for row, values in zip(rows, refined, strict=True):
        other = plain.get(_setting(row))
        row["against_cross_entropy"] = None
        if other is not None and row["recipe"]["loss"] != "cross-entropy":
            row["against_cross_entropy"] = {name: mean_interval(values[name] - other[name]) for name in LOSSES_OF_ROWS}


def _setting(row: dict[str, Any]) -> tuple[Any, ...]:
    """All of a recipe but the loss."""
    recipe = recipe_of(row)
    return recipe.dataset, recipe.network, recipe_name(recipe), recipe.seed


def read_refinement(runs: Path) -> dict[str, Any]:
    """What `measure_refinement` kept in a folder of cells."""
    path = runs / FILE
    if not path.is_file():
        raise FormatError(f"{runs}: holds no {FILE}; write it with: refocal-paper refinement {runs} -o {runs}")
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return {"cells": kept["cells"], "epochs": kept["epochs"]}
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{path}: must hold the lists 'cells' and 'epochs': {error}.") from error


def stops(refinement: dict[str, Any]) -> dict[str, list[Stop]]:
    """For each cell whose epochs were kept to the last: which one each rule of early stopping takes.

    The rules: the last epoch, that of least log-loss on the held-out images, and that of least refinement there.
    Network and recipe are named where cells differ in these alone.
    """
    by_cell: dict[Recipe, list[dict[str, Any]]] = defaultdict(list)
    for row in refinement["epochs"]:
        by_cell[recipe_of(row)].append(row)
    short_names = {recipe: f"{recipe.dataset}, {recipe.loss}, seed {recipe.seed}" for recipe in by_cell}
    uses = Counter(short_names.values())
    chosen = {}
    for recipe, rows in by_cell.items():
        name = short_names[recipe]
        if uses[name] > 1:
            name = f"{name}, {recipe.network}, {recipe_name(recipe)}"
        last = max(rows, key=lambda row: row["epoch"])
        if last["epoch"] != last["recipe"]["epochs"]:
            continue
        by_loss = min(rows, key=lambda row: row["held_out"]["total"])
        by_refinement = min(rows, key=lambda row: row["held_out"]["refinement"])
        chosen[name] = [
            Stop(rule, row["epoch"], row["accuracy"], row["calibrated"]["log_loss"], row["calibrated"]["brier_score"])
            for rule, row in (
                ("last epoch", last),
                ("least log-loss", by_loss),
                ("least refined log-loss", by_refinement),
            )
        ]
    return chosen


def seed_differences(cells: list[Cell]) -> list[SeedDifference]:
    """Trainings against cross-entropy by log-loss after FTS, seed by seed; cells without logits have this as well."""
    groups = group_cells(cells)
    found = []
    for (dataset, network, loss, recipe), group in groups.items():
        plain = groups.get((dataset, network, "cross-entropy", recipe), [])
        losses = {cell["recipe"]["seed"]: cell["fts"]["nll"]["log_loss"] for cell in group}
        plain_losses = {cell["recipe"]["seed"]: cell["fts"]["nll"]["log_loss"] for cell in plain}
        shared = sorted(losses.keys() & plain_losses.keys())
        if loss != "cross-entropy" and shared:
            differences = [losses[seed] - plain_losses[seed] for seed in shared]
            found.append(SeedDifference(f"{dataset}, {network}, {recipe}", loss, differences))
    return found


def seed_deviations(cells: list[Cell]) -> dict[str, float]:
    """Standard deviation from seed to seed of the log-loss after FTS, pooled over the trainings of a setting."""
    variances: dict[str, list[float]] = defaultdict(list)
    for (dataset, network, _, recipe), group in group_cells(cells).items():
        losses = [cell["fts"]["nll"]["log_loss"] for cell in group]
        if len(losses) > 1:
            variances[f"{dataset}, {network}, {recipe}"].append(float(np.var(losses, ddof=1)))
    return {setting: float(np.sqrt(np.mean(some))) for setting, some in variances.items()}


def _read(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path, allow_pickle=False) as file:
        logits = {name: file[name].astype(np.float32) for name in ("val", "test")}
        labels = {name: file[name].astype(np.int64) for name in ("yv", "yt")}
        return {**logits, **labels}
