"""A grid of runs, filled in over time: finished cells are skipped, broken ones continue.

python -m refocal_paper.sweep --data IMAGES --out RUNS --dataset cifar100 --recipe short --time-budget 25m
"""

from __future__ import annotations

import argparse
import json
import math
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._files import write_atomically
from refocal.errors import FormatError, ParameterError, RefocalError
from refocal_paper.datasets import Dataset, load_dataset
from refocal_paper.parts import remove_parts
from refocal_paper.ranks import current_ranks, joined_ranks, share
from refocal_paper.recipe import ALL_LOSSES, LOSSES, Recipe, grid, make_recipe
from refocal_paper.training import CARRY_SECONDS, Trainer, write_arrays

if TYPE_CHECKING:
    from refocal_paper.shift import Unknown

TRAIN_ROWS = 5000  # of the images learnt from, whose logits are kept as well
KEPT = ("checkpoint_every", "logits_every", "checkpoint_to", "resume_from")  # options that change no result


class Swept(NamedTuple):
    """The cells of a sweep by name: trained now, done before, left for another time."""

    trained: list[str]
    skipped: list[str]
    left: list[str]


class Beyond(NamedTuple):
    """What is measured beyond the test set: the corrupted test images, and images of none of the classes."""

    unknown: Unknown | None = None


class Watch:
    """What a sweep tells while it runs; this one keeps silent. The command line draws a bar, a log prints lines."""

    def begin(self, recipe: Recipe, start_epoch: int, batches: int) -> None:
        """A cell begins, or goes on after `start_epoch` epochs; an epoch has `batches` batches."""

    def batch(self, epochs: int, batches: int) -> None:
        """`epochs` epochs are finished, and `batches` batches of the next one."""

    def epoch(self, log: dict[str, Any]) -> None:
        """An epoch is finished."""

    def say(self, text: str) -> None:
        """A cell is finished, skipped or left."""


def run_cell(
    recipe: Recipe,
    data: Dataset,
    out: Path,
    *,
    checkpoint_every: int = 10,
    watch: Watch | None = None,
    device: str | None = None,
    beyond: Beyond | None = None,
    logits_every: int | None = None,
    checkpoint_to: Path | None = None,
    carry_seconds: float = CARRY_SECONDS,
    resume_from: Path | None = None,
    leave: Callable[[], bool] | None = None,
) -> bool:
    """Train one cell and keep its logits; False if that was done before.

    The cell's folder holds recipe.json, log.jsonl, logits.npz (float16 `val`, `test` and `train`, labels `yv`, `yt` and
    `ytr`; `train` are some of the images learnt from, as they are), shift.json if asked for and, last of all, `done`.
    With `logits_every` it also holds `val`, `test`, `yv` and `yt` after every so many epochs but the last, such as
    logits-0100.npz.

    Every few minutes a checkpoint in parts that can be carried to another machine goes to a folder of the cell's name
    in `checkpoint_to`. A folder of that name in `resume_from` is gone on from: to the same logits, bit by bit, on a CPU
    of the same kind. The logits of earlier epochs are not in it and stay where they were kept.
    """
    folder = out / recipe.key
    if share(b"done" if (folder / "done").exists() else b""):
        return False
    carried = None if resume_from is None else resume_from / recipe.key
    going_on = share(b"carried" if carried is not None and carried.is_dir() else b"")
    trainer = Trainer(recipe, data, folder, device, resume_from=carried if going_on else None)
    first = trainer.ranks.is_first
    watch = watch if watch is not None and first else Watch()
    watch.begin(recipe, trainer.epoch, len(trainer.batches))
    if first:
        write_atomically(folder / "recipe.json", recipe.to_json())
    trainer.run(
        checkpoint_every=checkpoint_every,
        logits_every=logits_every,
        checkpoint_to=None if checkpoint_to is None else checkpoint_to / recipe.key,
        carry_seconds=carry_seconds,
        leave=leave,
        on_epoch=watch.epoch,
        on_batch=watch.batch,
    )
    if first:
        _keep_results(trainer, data, folder, beyond)
        if checkpoint_to is not None:
            remove_parts(checkpoint_to / recipe.key)
    return True


def _keep_results(trainer: Trainer, data: Dataset, folder: Path, beyond: Beyond | None) -> None:
    learnt = train_rows(trainer.split.train, trainer.recipe.split_seed)
    arrays = {
        **trainer.held_out_logits(),
        "train": trainer.logits(data.train[learnt]).astype(np.float16),
        "ytr": data.train_labels[learnt].astype(np.int16),
    }
    shift = None
    if beyond is not None:
        from refocal_paper.shift import measure_shift  # needs scikit-learn and Pillow

        val, y_val = (arrays[name].astype(np.float32) for name in ("val", "yv"))
        shift = measure_shift(trainer.logits, val, y_val.astype(np.int64), data, beyond.unknown)
    with trainer.disk():
        if shift is not None:
            write_atomically(folder / "shift.json", json.dumps(shift) + "\n")
        write_arrays(folder / "logits.npz", arrays)
        write_atomically(folder / "done", "")
        (folder / "checkpoint.pt").unlink(missing_ok=True)


def train_rows(rows: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """A seeded sample of the training rows, the same for every run of a sweep."""
    return np.sort(np.random.default_rng([seed, TRAIN_ROWS]).permutation(rows)[:TRAIN_ROWS])


def run_sweep(
    recipes: Sequence[Recipe],
    data: Dataset,
    out: Path,
    *,
    seconds: float = float("inf"),
    checkpoint_every: int = 10,
    watch: Watch | None = None,
    device: str | None = None,
    beyond: Beyond | None = None,
    **kept: Any,
) -> Swept:
    """Run cells in order until all are done or the time is up, on the GPU if there is one and no `device` is named.

    A cell is not begun if the longest one's time would not fit any more. What else is kept and gone on from, `kept`, is
    said to `run_cell`.
    """
    _check_resumable(recipes, out, kept.get("resume_from"))
    watch = watch if watch is not None and current_ranks().is_first else Watch()
    start, longest, swept = time.monotonic(), 0.0, Swept([], [], [])
    for i, recipe in enumerate(recipes):
        began = time.monotonic()
        if share(b"late" if began - start + longest > seconds else b""):
            swept.left.extend(other.key for other in recipes[i:])
            watch.say(f"stopped before {recipe.key}: the time budget is spent")
            break
        options: dict[str, Any] = {"checkpoint_every": checkpoint_every, "watch": watch, "device": device, **kept}
        if run_cell(recipe, data, out, beyond=beyond, **options):
            swept.trained.append(recipe.key)
            longest = max(longest, time.monotonic() - began)
            watch.say(f"finished {recipe.key} in {time.monotonic() - began:.0f} s")
        else:
            swept.skipped.append(recipe.key)
            watch.say(f"skipped {recipe.key}: done before")
    return swept


def _check_resumable(recipes: Sequence[Recipe], out: Path, resume_from: Path | None) -> None:
    """Refuse a folder in which no cell can be gone on from: a mislaid one would be a silent beginning anew."""
    waiting = [recipe.key for recipe in recipes if not (out / recipe.key / "done").exists()]
    if resume_from is None or not waiting or not current_ranks().is_first:
        return
    if not any((resume_from / key).is_dir() for key in waiting):
        raise FormatError(f"{resume_from}: holds a checkpoint of none of the cells, such as {waiting[0]}.")


@contextmanager
def told_to_stop() -> Iterator[Callable[[], bool]]:
    """Whether the process was sent SIGTERM since: a cell then ends its epoch, keeps a checkpoint and is left."""
    told: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only there can signals be caught
        yield lambda: False
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    try:
        yield lambda: bool(told)
    finally:
        signal.signal(signal.SIGTERM, before)


def load_beyond(shift: bool, ood: str | None, root: Path) -> Beyond | None:
    """What to measure beyond the test set; `ood` names a data set whose test images are of none of the classes."""
    if ood is None:
        return Beyond() if shift else None
    from refocal_paper.shift import Unknown

    return Beyond(Unknown(ood, load_dataset(ood, root).test))


def part_of(recipes: Sequence[Recipe], text: str) -> list[Recipe]:
    """The share of one of several machines: "2/8" is every eighth cell from the second on."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ParameterError("part", "sweep", expected="a share such as 1/8 … 8/8", got=repr(text))
    return list(recipes)[int(match[1]) - 1 :: int(match[2])]


def parse_duration(text: str) -> float:
    """Seconds of "90", "90s", "25m" or "2h"."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = math.nan
    if not seconds > 0.0:
        expected = "a positive number of seconds, or one with s, m or h"
        raise ParameterError("time-budget", "sweep", expected=expected, got=repr(text))
    return seconds


class Lines(Watch):
    """A line for each epoch, for logs and for machines without the command line's libraries."""

    def begin(self, recipe: Recipe, start_epoch: int, batches: int) -> None:
        """Remember the cell's name."""
        self.key = recipe.key

    def epoch(self, log: dict[str, Any]) -> None:
        """One line."""
        loss, accuracy = f"{log['loss']:.4f}", f"{log['accuracy']:.4f}"
        self.say(f"{self.key}: epoch {log['epoch']}, loss {loss}, accuracy {accuracy}, {log['seconds']:.2f} s")

    def say(self, text: str) -> None:
        """One line, at once."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Run a sweep with nothing but torch and NumPy installed; otherwise use `refocal-paper sweep`."""
    parser = argparse.ArgumentParser(prog="python -m refocal_paper.sweep", description="Run a grid of trainings.")
    parser.add_argument("--data", type=Path, default=Path("data"), help="the folder that holds the data sets")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="where the runs' folders go")
    parser.add_argument("--dataset")
    parser.add_argument("--network")
    parser.add_argument("--losses", nargs="+", default=list(LOSSES), choices=ALL_LOSSES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--recipe", default="paper", help="paper, short or a .toml file")
    parser.add_argument("--epochs", type=int, help="instead of the recipe's own number; the drops move along")
    parser.add_argument("--reduction", choices=("sum", "mean"), help="instead of the recipe's sum over a batch")
    parser.add_argument("--precision", choices=("bfloat16", "float32"), help="instead of the recipe's bfloat16")
    parser.add_argument("--shift", action="store_true", help="measure corrupted test images as well")
    parser.add_argument("--ood", metavar="DATASET", help="and images of another data set")
    parser.add_argument("--time-budget", default="inf", help="such as 25m: stop between cells")
    parser.add_argument("--part", default="1/1", help="such as 2/8: the share of one of several machines")
    parser.add_argument("--checkpoint-every", type=_counted, default=10, help="epochs between two checkpoints")
    parser.add_argument("--logits-every", type=_counted, metavar="N", help="keep logits after every N-th epoch as well")
    parser.add_argument("--checkpoint-to", type=Path, metavar="FOLDER", help="checkpoints in parts, to be carried away")
    parser.add_argument("--resume-from", type=Path, metavar="FOLDER", help="go on from such checkpoints")
    options = parser.parse_args(arguments)
    kept = {name: getattr(options, name) for name in KEPT}
    try:
        changes = {name: getattr(options, name) for name in ("network", "epochs", "reduction", "precision")}
        recipe = make_recipe(options.recipe, options.dataset, **changes)
        cells = part_of(grid(recipe, options.losses, options.seeds), options.part)
        seconds = parse_duration(options.time_budget)
        with joined_ranks(), told_to_stop() as leave:
            data = load_dataset(recipe.dataset, options.data)
            beyond = load_beyond(options.shift, options.ood, options.data)
            run_sweep(cells, data, options.out, seconds=seconds, watch=Lines(), beyond=beyond, leave=leave, **kept)
    except (RefocalError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _counted(text: str) -> int:
    """A count of at least one."""
    count = int(text)
    if count < 1:
        raise ValueError(text)
    return count


if __name__ == "__main__":
    sys.exit(main())
