"""A grid of runs, filled in over time: finished cells are skipped, broken ones continue.

python -m refocal.experiments.sweep --data IMAGES --out RUNS --dataset cifar100 --recipe short --time-budget 25m
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from refocal._files import replace_atomically, write_atomically
from refocal.errors import ParameterError, RefocalError
from refocal.experiments.datasets import Dataset, load_dataset
from refocal.experiments.recipe import LOSSES, Recipe, paper, short
from refocal.experiments.training import OnEpoch, Trainer


def run_cell(
    recipe: Recipe, data: Dataset, out: Path, *, checkpoint_every: int = 10, on_epoch: OnEpoch | None = None
) -> bool:
    """Train one cell and keep its logits; False if that was done before.

    The cell's folder holds recipe.json, log.jsonl, logits.npz (float16 `val` and `test`, labels `yv` and `yt`) and,
    last of all, `done`.
    """
    folder = out / recipe.key
    if (folder / "done").exists():
        return False
    trainer = Trainer(recipe, data, folder)
    write_atomically(folder / "recipe.json", recipe.to_json())
    trainer.run(checkpoint_every=checkpoint_every, on_epoch=on_epoch)
    held_out = trainer.split.validation
    with replace_atomically(folder / "logits.npz") as part, part.open("wb") as file:
        np.savez_compressed(
            file,
            val=trainer.logits(data.train[held_out]).astype(np.float16),
            yv=data.train_labels[held_out].astype(np.int16),
            test=trainer.logits(data.test).astype(np.float16),
            yt=data.test_labels.astype(np.int16),
        )
    (folder / "checkpoint.pt").unlink(missing_ok=True)
    write_atomically(folder / "done", "")
    return True


def run_sweep(recipes: Iterable[Recipe], data: Dataset, out: Path, *, seconds: float = float("inf")) -> int:
    """Run cells in order until all are done or the time is up; the number of cells that were trained now.

    A cell is not begun if the last one's time would not fit any more.
    """
    start, longest, trained = time.monotonic(), 0.0, 0
    for recipe in recipes:
        began = time.monotonic()
        if began - start + longest > seconds:
            _say(f"stopped before {recipe.key}: the time budget is spent")
            break
        if run_cell(recipe, data, out, on_epoch=lambda log, key=recipe.key: _report(key, log)):  # type: ignore[misc]
            trained += 1
            longest = max(longest, time.monotonic() - began)
            _say(f"finished {recipe.key} in {time.monotonic() - began:.0f} s")
        else:
            _say(f"skipped {recipe.key}: done before")
    return trained


def parse_duration(text: str) -> float:
    """Seconds of "90", "90s", "25m" or "2h"."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        return float(number) * unit
    except ValueError as error:
        expected = "a number of seconds, or one with s, m or h"
        raise ParameterError("time-budget", "sweep", expected=expected, got=repr(text)) from error


def _report(key: str, log: dict[str, float]) -> None:
    loss, accuracy = f"{log['loss']:.4f}", f"{log['accuracy']:.4f}"
    _say(f"{key}: epoch {log['epoch']}, loss {loss}, accuracy {accuracy}, {log['seconds']:.2f} s")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Run a sweep from the command line."""
    parser = argparse.ArgumentParser(prog="python -m refocal.experiments.sweep", description="Run a grid of trainings.")
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds the data sets' folders")
    parser.add_argument("--out", type=Path, required=True, help="where the runs' folders go")
    parser.add_argument("--dataset", default="cifar100")
    parser.add_argument("--network", default="resnet50")
    parser.add_argument("--losses", nargs="+", default=list(LOSSES), choices=LOSSES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--recipe", choices=("paper", "short"), default="paper")
    parser.add_argument("--epochs", type=int, help="instead of the recipe's own number")
    parser.add_argument("--time-budget", default="inf", help="such as 25m: stop between cells")
    options = parser.parse_args(arguments)
    try:
        make = paper if options.recipe == "paper" else short
        changes = {} if options.epochs is None else {"epochs": options.epochs}
        recipes = [
            make(options.dataset, network=options.network, loss=loss, seed=seed, **changes)
            for seed in options.seeds
            for loss in options.losses
        ]
        data = load_dataset(options.dataset, options.data)
        run_sweep(recipes, data, options.out, seconds=parse_duration(options.time_budget))
    except RefocalError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
