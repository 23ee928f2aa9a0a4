"""The networks that figures are drawn of: the embedded samples, and the finished cells of a sweep."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from refocal.engine import Block
from refocal.errors import FormatError
from refocal.fitting import Surface
from refocal.fitting.grid import scan_grid
from refocal.fitting.objective import Objective, as_objective
from refocal.io import Predictions, load_sample

GAMMAS = np.array([-0.5, -0.25, 0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0])
# The paper's step. Its range, 0.01 … 5, begins far below where any of these networks has its optimum, and cuts one off.
TEMPERATURES = np.round(np.arange(0.3, 8.005, 0.01), 2)
DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tinyimagenet": "TinyImageNet"}
EMBEDDED = {
    "cifar100-focal7": ("cifar100", "focal-7"),
    "cifar10-focal3": ("cifar10", "focal-3"),
    "cifar10-cross-entropy": ("cifar10", "cross-entropy"),
}


@dataclass(frozen=True, eq=False)
class Network:
    """A trained network's predictions on its validation and its test set."""

    dataset: str
    loss: str  # as recipes name it
    name: str
    validation: Predictions
    test: Predictions

    def surface(self, nll_tolerance: float | None = None, *, each_gamma: bool = False) -> Surface:
        """ECE and log-loss on the validation set over all pairs of γ and T, exact at the best of them."""
        return scan_grid(
            self._rows, self._objective, GAMMAS, TEMPERATURES, nll_tolerance, each_gamma=each_gamma
        )  # the tables at its nodes are kept with the rows

    @cached_property
    def _by_gamma(self) -> Surface:
        return self.surface(each_gamma=True)

    def least_ece(self, row: int) -> tuple[float, float]:
        """The temperature of least ECE for one γ, and that ECE."""
        best = int(np.argmin(self._by_gamma.value[row]))
        return float(TEMPERATURES[best]), float(self._by_gamma.value[row, best])

    @cached_property
    def _rows(self) -> Block:
        return Block(self.validation.values, self.validation.labels)

    @cached_property
    def _objective(self) -> Objective:
        return as_objective("ece", self._rows.n_rows, "reproduce")


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
        return embedded() + [read_cell(folder) for folder in self.cells]


def embedded() -> list[Network]:
    """The networks whose predictions come with refocal."""
    return [
        Network(dataset, loss, f"{dataset} {loss}, embedded", *load_sample(name))
        for name, (dataset, loss) in EMBEDDED.items()
    ]


def read_cell(folder: Path) -> Network:
    """A cell of a sweep; its logits are stored in half precision."""
    recipe: dict[str, Any] = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
    with np.load(folder / "logits.npz", allow_pickle=False) as data:
        parts = [
            Predictions.from_logits(data[rows].astype(np.float32), data[labels].astype(np.int64))
            for rows, labels in (("val", "yv"), ("test", "yt"))
        ]
    name = f"{recipe['dataset']} {recipe['loss']}, seed {recipe['seed']}, {recipe['epochs']} epochs"
    unusual = {str(recipe.get(setting, "")) for setting in ("network", "reduction", "precision")} - {"", "resnet50"}
    name = ", ".join([name, *sorted(unusual)])
    return Network(recipe["dataset"], recipe["loss"], name, *parts)


def _is_finished(folder: Path) -> bool:
    return (folder / "logits.npz").is_file()
