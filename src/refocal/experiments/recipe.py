"""What a training run is, as data: two runs with the same recipe are the same run."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from refocal.errors import FormatError, ParameterError

LOSSES = ("cross-entropy", "focal-1", "focal-2", "focal-3", "focal-5", "focal-7", "flsd-53", "adafocal")
SHORT_EPOCHS = 60


@dataclass(frozen=True)
class Recipe:
    """One training run. The defaults are the paper's for CIFAR (Komisarenko & Kull 2024, section 5.1).

    The loss is summed over the batch and the gradient's norm clipped at 2, as the authors' code does though their text
    does not say so; it matters, since it sets the size of a step. Drops divide the learning rate by ten.
    """

    dataset: str
    network: str = "resnet50"
    loss: str = "cross-entropy"
    seed: int = 1
    epochs: int = 350
    drops: tuple[int, ...] = (150, 250)
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    batch_size: int = 128
    clip_norm: float = 2.0
    validation_rows: int = 5000
    split_seed: int = 1

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            words = ", ".join(repr(name) for name in LOSSES)
            raise ParameterError("loss", "Recipe", expected=f"one of {words}", got=repr(self.loss))
        for name in ("epochs", "batch_size", "validation_rows"):
            if not getattr(self, name) >= 1:
                raise ParameterError(name, "Recipe", expected="at least 1", got=repr(getattr(self, name)))

    def rate(self, epoch: int) -> float:
        """The learning rate in an epoch, the first of which is 0."""
        return self.learning_rate * 0.1 ** sum(epoch >= drop for drop in self.drops)

    @property
    def gamma(self) -> float:
        """γ of the training loss; 0 for cross-entropy, NaN where it depends on the sample."""
        kind, _, value = self.loss.partition("-")
        return float(value) if kind == "focal" else 0.0 if kind == "cross" else math.nan

    @property
    def key(self) -> str:
        """A readable name with a hash of everything: the name of the run's folder."""
        text = json.dumps(asdict(self), sort_keys=True)
        return f"{self.dataset}-{self.network}-{self.loss}-{self.seed}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    def to_json(self) -> str:
        """The recipe as JSON text."""
        return json.dumps(asdict(self), indent=2) + "\n"


def paper(dataset: str, **changes: Any) -> Recipe:
    """The paper's recipe for a data set."""
    recipe = Recipe(dataset)
    if dataset == "tinyimagenet":
        recipe = replace(recipe, epochs=100, drops=(40, 60), batch_size=64, validation_rows=10_000)
    if dataset == "synthetic":
        recipe = replace(recipe, batch_size=64, validation_rows=160)
    return replace(recipe, **changes)


def short(dataset: str, epochs: int = SHORT_EPOCHS, **changes: Any) -> Recipe:
    """The paper's recipe in fewer epochs, with the drops at the same fractions of the run."""
    full = paper(dataset)
    drops = tuple(round(drop * epochs / full.epochs) for drop in full.drops)
    return replace(full, epochs=epochs, drops=drops, **changes)


def read_recipe(path: Path) -> Recipe:
    """A recipe from a TOML file; an unknown key is refused, since a misspelt setting would be a silent default."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: not a TOML file that can be read: {error}.") from error
    known = {field.name for field in fields(Recipe)}
    unknown = sorted(set(data) - known)
    if unknown:
        raise FormatError(f"{path}: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}.")
    if "dataset" not in data:
        raise FormatError(f"{path}: the key 'dataset' is missing.")
    if "drops" in data:
        data["drops"] = tuple(data["drops"])
    return Recipe(**data)
