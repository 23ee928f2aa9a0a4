"""The paper's table from the finished cells, as numbers; `layout` formats them."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from refocal.evaluate import ComparedMetric, ManyComparison, RunScores, ranks
from refocal.evaluate.many_runs import FEWEST_CLUSTERS
from refocal.evaluate.ranks import SeedSpread
from refocal.metrics import METRICS
from refocal_paper.printed import PRINTED, Printed
from refocal_paper.recipe import ALL_LOSSES, LOSSES, Recipe, from_dict, paper, short

Cell = dict[str, Any]

CRITERIA = ("nll", "ece")
MEASURES = ("log_loss", "ece")


class Score(NamedTuple):
    """A measure on the test set over the seeds, with the mean of the chosen parameters."""

    mean: float
    sd: float | None
    gamma: float
    temperature: float


class Row(NamedTuple):
    """One line of the table: a training, a recipe and a method. `scores` is by measure, then by criterion of choice."""

    dataset: str
    network: str
    loss: str
    recipe: str
    method: str
    seeds: list[int]
    accuracy: SeedSpread
    raw_ece: SeedSpread
    scores: dict[str, dict[str, Score]]
    paper: Printed | None


class Difference(NamedTuple):
    """Focal temperature scaling minus temperature scaling in one cell, on the same images, with a 95 % interval."""

    cell: str
    measure: str
    difference: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """What the interval says."""
        return "lower" if self.high < 0.0 else "higher" if self.low > 0.0 else "either"


def recipe_of(cell: Cell) -> Recipe:
    """The recipe of a measured cell."""
    return from_dict(cell["recipe"], "metrics.json")


def recipe_name(recipe: Recipe) -> str:
    """The recipe but for network, loss and seed: the paper's, the short one, or one's own with a mark to know it by.

    What the ablations change follows it.
    """
    changed = [", mean loss"] * (recipe.reduction == "mean") + [", float32"] * (recipe.precision == "float32")
    recipe = replace(recipe, reduction="sum", precision="bfloat16")
    same: dict[str, Any] = {"network": recipe.network, "loss": recipe.loss, "seed": recipe.seed}
    if recipe == paper(recipe.dataset, **same):
        kind = "paper"
    elif recipe == short(recipe.dataset, **same):
        kind = "short"
    else:
        rest = json.dumps(json.loads(replace(recipe, seed=0, loss=LOSSES[0]).to_json()), sort_keys=True)
        kind = f"own {hashlib.sha256(rest.encode()).hexdigest()[:4]}"
    return f"{kind}, {recipe.epochs} epochs{''.join(changed)}"


def group_cells(cells: list[Cell]) -> dict[tuple[str, str, str, str], list[Cell]]:
    """Cells that differ in nothing but the seed, by data set, network, loss and recipe; in the paper's order."""
    groups: dict[tuple[str, str, str, str], list[Cell]] = defaultdict(list)
    for cell in cells:
        recipe = recipe_of(cell)
        groups[recipe.dataset, recipe.network, recipe.loss, recipe_name(recipe)].append(cell)
    order = sorted(groups, key=lambda key: (key[0], key[1], ALL_LOSSES.index(key[2]), key[3]))
    return {key: sorted(groups[key], key=lambda cell: int(cell["recipe"]["seed"])) for key in order}


def named_cells(cells: list[Cell]) -> list[tuple[str, Cell]]:
    """Every cell with its name, in the paper's order."""
    groups = group_cells(cells).items()
    return [(f"{', '.join(key)}, seed {cell['recipe']['seed']}", cell) for key, group in groups for cell in group]


def build_rows(cells: list[Cell]) -> list[Row]:
    """Two lines for each training and recipe, temperature scaling and focal temperature scaling."""
    rows = []
    for (dataset, network, loss, recipe), group in group_cells(cells).items():
        for method in ("TS", "FTS"):
            scores = {
                measure: {criterion: _score(group, method.lower(), measure, criterion) for criterion in CRITERIA}
                for measure in MEASURES
            }
            seeds = [int(cell["recipe"]["seed"]) for cell in group]
            accuracy = SeedSpread.of([cell["accuracy"] for cell in group])
            raw = SeedSpread.of([cell["raw"]["ece"] for cell in group])
            printed = PRINTED.get((dataset, loss, method)) if network == "resnet50" else None
            rows.append(Row(dataset, network, loss, recipe, method, seeds, accuracy, raw, scores, printed))
    return rows


def build_differences(cells: list[Cell]) -> list[Difference]:
    """FTS against TS in every cell: the log-loss where both were chosen by it.

    Then, where both were chosen by ECE, the squared ECE, for the cells whose logits were there.
    """
    found = []
    for name, cell in named_cells(cells):
        pairs = {"log_loss": cell["differences"]["fts - ts, log_loss"]}
        if "squared_ece_difference" in cell:
            pairs["squared_ece"] = cell["squared_ece_difference"]
        found += [Difference(name, m, pair["difference"], pair["low"], pair["high"]) for m, pair in pairs.items()]
    return found


def ece_difference(cell: Cell) -> float:
    """The ECE of FTS minus that of TS, both chosen by ECE."""
    return float(cell["fts"]["ece"]["ece"] - cell["ts"]["ece"]["ece"])


def over_trainings(cells: list[Cell]) -> ManyComparison:
    """No calibration, TS and FTS over all trainings, each measure where it was also the criterion of choice."""
    runs = []
    for (dataset, network, loss, recipe), group in group_cells(cells).items():
        for cell in group:
            values = {
                measure: {"none": cell["raw"][measure]}
                | {method: cell[method][criterion][measure] for method in ("ts", "fts")}
                for measure, criterion in zip(MEASURES, CRITERIA, strict=True)
            }
            training = f"{network}, {loss}, {recipe}"
            seed = str(cell["recipe"]["seed"])
            n_validation = int(cell["recipe"]["validation_rows"])
            n_classes = {"cifar10": 10, "cifar100": 100, "tinyimagenet": 200}.get(dataset, 0)
            n_test = 10_000  # of all three data sets
            runs.append(RunScores(dataset, training, seed, n_validation, n_test, n_classes, values))
    described = [replace(ComparedMetric.of(METRICS[name]), raised_by_noise=False) for name in MEASURES]
    titles = {"none": "no calibration", "ts": "temperature scaling", "fts": "focal temperature scaling"}
    trainings = {run.network for run in runs}
    unit = "network" if len(trainings) >= FEWEST_CLUSTERS else "run"
    return ManyComparison("trainings", 0.95, "ts", unit, list(titles), titles, described, runs, {}, {})


def signed_rank(cells: list[Cell], measure: str, criterion: str) -> tuple[int, float]:
    """Wilcoxon's signed-rank test of FTS against TS over the trainings, each the mean of its seeds: how many, and p."""
    differences = [
        np.mean([cell["fts"][criterion][measure] - cell["ts"][criterion][measure] for cell in group])
        for group in group_cells(cells).values()
    ]
    return len(differences), ranks.signed_rank(np.array(differences))


def _score(group: list[Cell], method: str, measure: str, criterion: str) -> Score:
    found = [cell[method][criterion] for cell in group]
    gamma, temperature = (float(np.mean([f[name] for f in found])) for name in ("gamma", "temperature"))
    return Score(*SeedSpread.of([f[measure] for f in found]), gamma, temperature)
