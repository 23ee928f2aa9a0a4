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
    from refocal.calibrators import Calibrator
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
    from refocal.evaluate.summary import headers, remarks

    table = plain_table(*headers(evaluation))
    for row in comparison_table(evaluation):
        table.add_row(*row.cells, style="bold" if row.chosen else None)
    console = out()
    console.print(table)
    console.print(verdict(evaluation))
    console.print(recommendation(evaluation))
    for line in remarks(evaluation):
        console.print(line, markup=False)


def print_calibrator(calibrator: Calibrator) -> None:
    """What a calibrator is and how it was fitted."""
    from refocal.calibrators._words import GUESSED, describe, is_guessing, report_rows

    parameters = calibrator.get_params(deep=False)
    settings = ", ".join(f"{key}={value!r}" for key, value in parameters.items() if value is not None)
    solution, report = getattr(calibrator, "solution_", None), calibrator.fit_report_
    search = f"; search {solution.status}: {solution.message}" if solution else ""
    console = out()
    console.print(f"{type(calibrator).__name__}({settings})", markup=False)
    console.print(describe(calibrator.chain_) + search, markup=False)
    on, rows = report_rows(report)
    if rows:
        table = plain_table(on, "before", "after")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    else:
        console.print(on, markup=False)
    for sentence in report.get("sentences", ()):
        console.print(sentence, markup=False)
    if rows and is_guessing(report["after"]["log_loss"], report["n_classes"]):
        console.print(f"Beware: {GUESSED}.", markup=False)


def plain_table(*heads: str) -> Table:
    """A table without a frame: the first column to the left, numbers to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for i, head in enumerate(heads):
        table.add_column(head, justify="left" if i == 0 else "right", no_wrap=True)
    return table
