"""The bar of a training: loss, accuracy and time left; one line an epoch where no terminal is."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from refocal_paper.recipe import Recipe
from refocal_paper.sweep import Watch


class Bar(Watch, AbstractContextManager["Bar"]):
    """Shows what a sweep tells, on standard error; nothing at all if `quiet`."""

    def __init__(self, cells: int, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
        self.cells, self.seen = cells, 0
        self.key, self.epochs, self.batches = "", 0, 1
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("epoch {task.fields[epoch]}"),
            TextColumn("{task.fields[words]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal)
        self.task = self.progress.add_task("", visible=False, epoch="", words="")

    def __enter__(self) -> Bar:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def begin(self, recipe: Recipe, start_epoch: int, batches: int) -> None:
        """A bar as long as all batches of the cell, moved to where it goes on."""
        self.key, self.epochs, self.batches = recipe.key, recipe.epochs, batches
        number = f"{self.seen + 1} of {self.cells}: " if self.cells > 1 else ""
        self.progress.reset(
            self.task,
            total=recipe.epochs * batches,
            completed=start_epoch * batches,
            description=f"{number}{recipe.key}",
            visible=True,
            epoch=f"{start_epoch}/{recipe.epochs}",
            words="",
        )
        if start_epoch:
            self.console.print(f"{recipe.key}: goes on after epoch {start_epoch}")

    def batch(self, epochs: int, batches: int) -> None:
        """Move the bar."""
        self.progress.update(self.task, completed=epochs * self.batches + batches)

    def epoch(self, log: dict[str, Any]) -> None:
        """Loss and accuracy on the training images of the epoch."""
        words = f"loss {log['loss']:.4f}, accuracy {log['accuracy']:.4f}"
        self.progress.update(self.task, epoch=f"{log['epoch']}/{self.epochs}", words=words)
        if not self.console.is_terminal:
            left = log["seconds"] * (self.epochs - log["epoch"])
            text = f"{self.key}: epoch {log['epoch']}/{self.epochs}, {words}, {log['seconds']:.2f} s, {left:.0f} s left"
            self.console.print(text)

    def say(self, text: str) -> None:
        """A line above the bar."""
        self.seen += 1
        self.console.print(text)
