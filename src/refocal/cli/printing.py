"""What the terminal shows: tables, and progress on everything that may take more than a second."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from refocal.evaluate import Evaluation


def out() -> Console:
    """The terminal, or whatever standard output is just now."""
    # Into a file a table is as wide as it needs to be: nothing is cut off.
    width = None if sys.stdout.isatty() else 160
    return Console(highlight=False, soft_wrap=True, width=width)


def print_json(data: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


@contextmanager
def progress(first: str, quiet: bool = False) -> Iterator[Callable[[float, int, str], None]]:
    """A bar on standard error while the block runs; gone when it is done, absent where no terminal is."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task(first, total=None)

        def update(done: float, total: int, words: str) -> None:
            # A total of 0 is one that nobody knows: the bar moves to and fro.
            bar.update(task, completed=done, total=total or None, description=words)

        yield update


def print_evaluation(evaluation: Evaluation) -> None:
    """The comparison as a table, with what it says in words."""
    from refocal.evaluate import comparison_table, recommendation, verdict
    from refocal.evaluate.words import failures, headers

    table = plain_table(*headers(evaluation))
    for row in comparison_table(evaluation):
        table.add_row(*row.cells, style="bold" if row.chosen else None)
    console = out()
    console.print(table)
    console.print(verdict(evaluation))
    console.print(recommendation(evaluation))
    for line in failures(evaluation):
        console.print(line, markup=False)


def print_calibrator(data: dict[str, Any]) -> None:
    """What a calibrator is and how it was fitted."""
    settings = ", ".join(f"{key}={value!r}" for key, value in data["parameters"].items() if value is not None)
    found = ", ".join(f"{key} = {_short(value)}" for key, value in data["fitted"].items())
    search = f"; search {data['search']['status']}: {data['search']['message']}" if "search" in data else ""
    console = out()
    console.print(f"{data['method']}({settings})", markup=False)
    console.print(found + search, markup=False)
    fit = data["fit"]
    table = plain_table(f"on its {fit['n_samples']:,} rows, {fit['n_classes']:,} classes", "before", "after")
    for key in fit["before"]:
        table.add_row(key, f"{fit['before'][key]:.4f}", f"{fit['after'][key]:.4f}")
    console.print(table)


def _short(value: Any) -> str:
    """A fitted number or a few of them, or how many there are of something larger."""
    if isinstance(value, list):
        few = len(value) <= 4 and all(isinstance(entry, float) for entry in value)
        return f"[{', '.join(map(_short, value))}]" if few else f"{len(value):,} fitted"
    return f"{value:.4f}" if value == 0.0 or abs(value) >= 1e-3 else f"{value:.2g}"


def plain_table(*heads: str) -> Table:
    """A table without a frame: the first column to the left, numbers to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for i, head in enumerate(heads):
        table.add_column(head, justify="left" if i == 0 else "right", no_wrap=True)
    return table
