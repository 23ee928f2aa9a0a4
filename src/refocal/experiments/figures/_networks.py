"""The networks that figures are drawn of: the embedded samples, and the finished cells of a sweep."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from refocal.data import Predictions, load_sample
from refocal.errors import FormatError
from refocal.search import Problem, Surface
from refocal.search.grid import scan_grid
from refocal.search.objective import as_objective

GAMMAS = np.array([-0.5, -0.25, 0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0])
# The paper's step. Its range, 0.01 to 5, is far wider than where any of these networks has its optimum.
TEMPERATURES = np.round(np.arange(0.3, 4.005, 0.01), 2)
DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tinyimagenet": "TinyImageNet"}
EMBEDDED = {"cifar100-focal7": ("cifar100", "focal-7"), "cifar10-focal3": ("cifar10", "focal-3")}


@dataclass(frozen=True, eq=False)
class Network:
    """A trained network's predictions on its validation and its test set."""

    dataset: str
    loss: str  # as recipes name it
    name: str
    validation: Predictions
    test: Predictions

    @cached_property
    def surface(self) -> Surface:
        """ECE and log-loss on the validation set over all pairs of γ and T."""
        rows = self.validation
        problem = Problem(rows.values, rows.labels)
        return scan_grid(problem, as_objective("ece", problem.n_rows, "reproduce"), GAMMAS, TEMPERATURES)


class Networks:
    """All networks at hand, read when they are first needed."""

    def __init__(self, runs: Path | None = None) -> None:
        self.cells: list[Path] = []
        if runs is not None:
            self.cells = sorted(path.parent for path in runs.glob("*/recipe.json") if _is_finished(path.parent))
            if not self.cells:
                raise FormatError(f"{runs}: no finished cell; each is a folder with recipe.json and logits.npz.")

    @cached_property
    def all(self) -> list[Network]:
        """The embedded samples first, then the cells in the order of their folders' names."""
        found = []
        for name, (dataset, loss) in EMBEDDED.items():
            sample = load_sample(name)
            found.append(Network(dataset, loss, f"{dataset} {loss}, embedded", sample.validation, sample.test))
        return found + [read_cell(folder) for folder in self.cells]


def read_cell(folder: Path) -> Network:
    """A cell of a sweep; its logits are stored in half precision."""
    recipe: dict[str, Any] = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
    with np.load(folder / "logits.npz", allow_pickle=False) as data:
        parts = [
            Predictions.from_logits(data[rows].astype(np.float32), data[labels].astype(np.int64))
            for rows, labels in (("val", "yv"), ("test", "yt"))
        ]
    name = f"{recipe['dataset']} {recipe['loss']}, seed {recipe['seed']}"
    return Network(recipe["dataset"], recipe["loss"], name, *parts)


def _is_finished(folder: Path) -> bool:
    return (folder / "logits.npz").is_file()
