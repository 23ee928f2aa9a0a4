"""What a training run is, as data: two runs with the same recipe are the same run."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from refocal.errors import FormatError, ParameterError

LOSSES = ("cross-entropy", "focal-1", "focal-2", "focal-3", "focal-5", "focal-7", "flsd-53", "adafocal")
# Others that calibration is compared on: Brier score, label smoothing (0.05), cross-entropy + 2 MMCE, and dual focal
# loss (γ = 5).
OTHER_LOSSES = ("brier", "label-smoothing", "mmce", "dual-focal")
ALL_LOSSES = LOSSES + OTHER_LOSSES
SHORT_EPOCHS = {"tinyimagenet": 20}
USUAL_SHORT_EPOCHS = 60

# What a setting must be: its type, in words, and as a test.
_Domain = tuple[type, str, Callable[[Any], bool]]


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_POSITIVE_INTEGER: _Domain = (int, "an integer of at least 1", lambda value: value >= 1)
_SEED: _Domain = (int, "an integer of at least 0", lambda value: value >= 0)
_POSITIVE: _Domain = (float, "a finite number above 0", lambda value: 0.0 < value < math.inf)
_DOMAINS: dict[str, _Domain] = {
    "dataset": (str, "the name of a data set", lambda value: value not in ("", ".", "..") and "/" not in value),
    "network": (str, "the name of a network", bool),
    "seed": _SEED,
    "epochs": _POSITIVE_INTEGER,
    "drops": (tuple, "integers that grow", lambda value: all(map(_is_integer, value)) and list(value) == sorted(value)),
    "learning_rate": _POSITIVE,
    "momentum": (float, "a number in [0, 1)", lambda value: 0.0 <= value < 1.0),
    "weight_decay": (float, "a finite number of at least 0", lambda value: 0.0 <= value < math.inf),
    "batch_size": _POSITIVE_INTEGER,
    "clip_norm": _POSITIVE,
    "validation_rows": _POSITIVE_INTEGER,
    "split_seed": _SEED,
    "reduction": (str, "'sum' or 'mean'", lambda value: value in ("sum", "mean")),
    "precision": (str, "'bfloat16' or 'float32'", lambda value: value in ("bfloat16", "float32")),
}


@dataclass(frozen=True)
class Recipe:
    """One training run. The defaults are the paper's for CIFAR (Komisarenko & Kull 2024, section 5.1).

    The loss is summed over the batch and the gradient's norm clipped at 2, as the authors' code does though their text
    does not say so; it matters, since it sets the size of a step. Drops divide the learning rate by ten. `precision` is
    that of a GPU; the CPU computes in float32.
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
    reduction: str = "sum"
    precision: str = "bfloat16"

    def __post_init__(self) -> None:
        if self.loss not in ALL_LOSSES:
            words = ", ".join(repr(name) for name in ALL_LOSSES)
            raise ParameterError("loss", "Recipe", expected=f"one of {words}", got=repr(self.loss))
        for name, (kind, expected, fits) in _DOMAINS.items():
            value = getattr(self, name)
            if kind is float and _is_integer(value):  # 1 and 1.0 are the same recipe
                value = float(value)
                object.__setattr__(self, name, value)
            if isinstance(value, bool) or not isinstance(value, kind) or not fits(value):
                raise ParameterError(name, "Recipe", expected=expected, got=repr(value))

    def rate(self, epoch: int) -> float:
        """The learning rate in an epoch, the first of which is 0."""
        return self.learning_rate * 0.1 ** sum(epoch >= drop for drop in self.drops)

    @property
    def gamma(self) -> float:
        """γ of the training loss; 0 for cross-entropy, NaN where it depends on the sample or there is none."""
        kind, _, value = self.loss.partition("-")
        return float(value) if kind == "focal" else 0.0 if kind == "cross" else math.nan

    @property
    def key(self) -> str:
        """A readable name with a hash of everything: the name of the run's folder."""
        text = json.dumps(self._settings(), sort_keys=True)
        return f"{self.dataset}-{self.network}-{self.loss}-{self.seed}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    def to_json(self) -> str:
        """The recipe as JSON text."""
        return json.dumps(self._settings(), indent=2) + "\n"

    def _settings(self) -> dict[str, Any]:
        """All settings but those that came later and are as they always were: runs keep their names."""
        return {
            k: v for k, v in asdict(self).items() if (k, v) not in (("reduction", "sum"), ("precision", "bfloat16"))
        }


def paper(dataset: str, **changes: Any) -> Recipe:
    """The paper's recipe for a data set."""
    recipe = Recipe(dataset)
    if dataset == "tinyimagenet":
        recipe = replace(recipe, epochs=100, drops=(40, 60), batch_size=64, validation_rows=10_000)
    if dataset == "synthetic":
        recipe = replace(recipe, batch_size=64, validation_rows=160)
    return replace(recipe, **changes)


def short(dataset: str, epochs: int | None = None, **changes: Any) -> Recipe:
    """The paper's recipe in fewer epochs, with the drops at the same fractions of the run."""
    fewer = SHORT_EPOCHS.get(dataset, USUAL_SHORT_EPOCHS) if epochs is None else epochs
    return replace(shortened(paper(dataset), fewer), **changes)


def shortened(recipe: Recipe, epochs: int) -> Recipe:
    """A recipe in another number of epochs, with the drops at the same fractions of the run."""
    drops = tuple(round(drop * epochs / recipe.epochs) for drop in recipe.drops)
    return replace(recipe, epochs=epochs, drops=drops)


def make_recipe(kind: str, dataset: str | None = None, *, epochs: int | None = None, **changes: Any) -> Recipe:
    """A recipe by its name ("paper" or "short") or from a TOML file, with changes; those that are None are none.

    Another number of epochs moves the drops along.
    """
    if kind in ("paper", "short"):
        recipe = (paper if kind == "paper" else short)(dataset or "cifar100")
    elif kind.endswith(".toml"):
        recipe = read_recipe(Path(kind))
        changes["dataset"] = dataset
    else:
        raise ParameterError("recipe", "make_recipe", expected="'paper', 'short' or a .toml file", got=repr(kind))
    if epochs is not None:
        recipe = shortened(recipe, epochs)
    return replace(recipe, **{name: value for name, value in changes.items() if value is not None})


def grid(recipe: Recipe, losses: Iterable[str], seeds: Iterable[int]) -> list[Recipe]:
    """The cells of a sweep: every loss with the first seed, then with the next."""
    names = list(losses)
    return [replace(recipe, loss=loss, seed=seed) for seed in seeds for loss in names]


def read_recipe(path: Path) -> Recipe:
    """A recipe from a TOML file; an unknown key is refused, since a misspelt setting would be a silent default."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: not a TOML file that can be read: {error}.") from error
    return from_dict(data, str(path))


def from_dict(data: dict[str, Any], source: str) -> Recipe:
    """A recipe from names and values, which `source` gave."""
    known = {field.name for field in fields(Recipe)}
    unknown = sorted(set(data) - known)
    if unknown:
        raise FormatError(f"{source}: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}.")
    if "dataset" not in data:
        raise FormatError(f"{source}: the key 'dataset' is missing.")
    try:
        values: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in data.items()}
        return Recipe(**values)
    except ParameterError as error:
        raise FormatError(f"{source}: {error.argument!r} must be {error.expected}. Got {error.got}.") from error
