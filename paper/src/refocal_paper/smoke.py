"""A rehearsal of a sweep, in a minute on the CPU: every loss, a cell killed in the middle and continued, the table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from refocal_paper.datasets import synthetic
from refocal_paper.measure import measure_cell
from refocal_paper.recipe import LOSSES, Recipe, grid, short
from refocal_paper.sweep import Watch, run_cell, run_sweep
from refocal_paper.table import build_rows

RECIPE = short("synthetic", epochs=2, network="tiny")
KILLED = "focal-3"
PATIENCE = 120.0  # seconds for the other process to come to the middle of its second epoch

OnCheck = Callable[["Check"], None]


class Check(NamedTuple):
    """Something that was looked at, and whether it was as it should be."""

    what: str
    passed: bool


def smoke(out: Path, on_check: OnCheck = lambda _: None, losses: tuple[str, ...] = LOSSES) -> list[Check]:
    """Train every loss for two epochs, kill one cell with SIGKILL, continue it, and say what was checked."""
    checks: list[Check] = []

    def check(what: str, passed: bool) -> None:
        checks.append(Check(what, bool(passed)))
        on_check(checks[-1])

    data, cells = synthetic(), grid(RECIPE, losses, [1])
    whole, broken = out / "whole", out / "broken"
    swept = run_sweep(cells, data, whole, device="cpu")
    check(f"{len(cells)} losses trained for two epochs", swept.trained == [cell.key for cell in cells])
    logits = [_logits(whole, cell) for cell in cells]
    check("their logits are finite and differ from loss to loss", _finite_and_different(logits))
    check("a second sweep skips them all", run_sweep(cells, data, whole).skipped == swept.trained)

    cell = next(cell for cell in cells if cell.loss == KILLED)
    folder = broken / cell.key
    code = kill_in_the_middle(broken)
    check(f"{KILLED} was killed with SIGKILL in its second epoch", code == -signal.SIGKILL)
    left = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    check("it left a checkpoint, and neither logits nor 'done'", left == ["checkpoint.pt", "log.jsonl", "recipe.json"])
    watch = _Start()
    run_cell(cell, data, broken, checkpoint_every=1, watch=watch, device="cpu")
    check("it continued after the first epoch", watch.epochs == 1)
    same = all(np.array_equal(a, b) for a, b in zip(_logits(whole, cell), _logits(broken, cell), strict=True))
    check("its logits equal those of the unbroken run, bit by bit", same)
    rows = build_rows([measure_cell(whole / cell.key) for cell in cells])
    check(f"the table has {2 * len(cells)} rows", len(rows) == 2 * len(cells))
    return checks


def _logits(out: Path, cell: Recipe) -> list[np.ndarray]:
    with np.load(out / cell.key / "logits.npz") as file:
        return [file["val"], file["test"]]


def _finite_and_different(logits: list[list[np.ndarray]]) -> bool:
    parts = [part for pair in logits for part in pair]
    return all(np.isfinite(part).all() for part in parts) and len({p.tobytes() for p in parts}) == len(parts)


def kill_in_the_middle(out: Path) -> int:
    """Train the cell in another process, kill that once it is in its second epoch, and return how it ended."""
    # The same number of threads, since sums of floats depend on it.
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    command = [sys.executable, "-m", "refocal_paper.smoke", str(out)]
    process = subprocess.Popen(command, env=environment)  # noqa: S603
    try:
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and not (out / "in the middle").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        process.kill()
    return process.wait()


class _Start(Watch):
    """Remembers after how many epochs a cell went on."""

    epochs = -1

    def begin(self, recipe: Recipe, start_epoch: int, batches: int) -> None:
        self.epochs = start_epoch


class _Pause(Watch):
    """Stays in the middle of the second epoch, after its third batch, until it is killed."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def batch(self, epochs: int, batches: int) -> None:
        if (epochs, batches) == (1, 3):
            (self.out / "in the middle").touch()
            time.sleep(PATIENCE)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (victim,) = grid(RECIPE, [KILLED], [1])
    run_cell(victim, synthetic(), place, checkpoint_every=1, watch=_Pause(place), device="cpu")
