"""What the terminal shows: tables, and progress on everything that may take more than a second."""

from __future__ import annotations

import codecs
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import refocal
from refocal._json import to_json

# Whether a command prints its result as JSON, and nothing else.
IS_JSON = ContextVar("IS_JSON", default=False)
# Columns of a comparison that a narrow terminal does without, the first one first.
DROPPED = ("fit s", "Brier score", "γ", "T", "accuracy %")


def out() -> Console:
    """The terminal, or whatever standard output is just now."""
    # Into a file a table is as wide as it needs to be: nothing is cut off.
    width = None if sys.stdout.isatty() else 160
    # A name such as chr1:100:A holds no emoji, though :100: is the code of one.
    return Console(highlight=False, emoji=False, soft_wrap=width is not None, width=width)


def say(*lines: str) -> None:
    """Lines of plain text."""
    console = out()
    for line in () if IS_JSON.get() else lines:
        # A command to paste is not broken into lines.
        console.print(line, markup=False, soft_wrap="Next: " in line or None)


def say_read(sentence: str | None) -> None:
    """What was read and how it was understood."""
    if sentence:
        say(f"Read {sentence}.")


def result(data: Any) -> None:
    """What a command found, as data: printed with --json, in place of everything else."""
    if IS_JSON.get():
        print_json(data)


def print_json(data: Any) -> None:
    """One JSON document on standard output, with escapes where its encoding may lack characters."""
    has_all = codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
    sys.stdout.write(to_json(data, indent=2, ensure_ascii=not has_all) + "\n")


@contextmanager
def progress(first: str, quiet: bool = False) -> Iterator[Callable[[float, int, str], None]]:
    """A bar on standard error while the block runs, gone when it is done; without a terminal a line now and then."""
    console = Console(stderr=True)
    start = time.monotonic()
    last = start
    quiet = quiet or IS_JSON.get()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task(first, total=None)

        def update(done: float, total: int, words: str) -> None:
            nonlocal last
            # A total of 0 is unknown: the bar moves back and forth.
            bar.update(task, completed=done, total=total or None, description=words)
            bar.tasks[0].finished_time = None  # the end of a pass is not the end: the clock goes on
            now = time.monotonic()
            seconds_between_lines = 30.0  # of progress that is written to a file
            if not (quiet or console.is_terminal) and now >= last + seconds_between_lines:
                share = f", {done / total:.0%}" if total else ""
                sys.stderr.write(f"{words}{share}, {now - start:.0f} s so far\n")
                last = now

        yield update


def print_evaluation(evaluation: refocal.evaluate.Evaluation) -> None:
    """The comparison as a table, with what it says in words."""
    dropped_of_two = ("fit s", "Brier score", "average precision", "log-loss skill %", "AUC", "95 % interval")
    from refocal.evaluate.provenance import RunNote
    from refocal.evaluate.standards import READING, standards_table
    from refocal.evaluate.summary import group_table, group_verdict, set_table, set_verdict

    say_read(evaluation.run.get(RunNote.READ))
    rows = refocal.evaluate.comparison_table(evaluation)
    verdict = refocal.evaluate.verdict(evaluation)
    chosen = next(i for i, row in enumerate(rows) if row.chosen)
    is_two = evaluation.positive is not None
    if is_two:  # a wrong mean is the first thing to know
        say(verdict)
    dropped = dropped_of_two if is_two else DROPPED
    print_table(rows[0].headings, [row.cells for row in rows], dropped, bold=chosen)
    say(*([] if is_two else [verdict]), refocal.evaluate.recommendation(evaluation))
    standards = standards_table(evaluation)
    if standards:
        print_table(standards[0], standards, ("best", "before"))
        say(READING)
    shown_groups = 15
    if evaluation.after.groups:
        say(group_verdict(evaluation))
        groups = group_table(evaluation)
        print_table(groups[0], groups[:shown_groups], ("by chance %", "ECE %"))
        if len(groups) > shown_groups:
            say(f"{len(groups) - shown_groups:,} more groups are in the report and in the evaluation.")
    if evaluation.after.sets is not None:
        say(set_verdict(evaluation))
        parts = set_table(evaluation)
        print_table(parts[0], parts[:shown_groups])
    if evaluation.segments is not None:
        say(evaluation.segments.sentence(), *(f"  {segment}" for segment in evaluation.segments.segments))
    say(*refocal.evaluate.summary.remarks(evaluation))


def print_calibrator(calibrator: refocal.calibrators.Calibrator, read: str = "") -> None:
    """What a calibrator is and how it was fitted, on rows of which `read` says how they were understood."""
    from refocal.calibrators.description import describe, fit_warnings, report_rows

    described = {"read": read} if read else {}
    result({**refocal.calibrators.serialize.to_dict(calibrator), **described})
    say_read(read)
    parameters = calibrator.get_params(deep=False)
    settings = ", ".join(f"{key}={value!r}" for key, value in parameters.items() if value is not None)
    solution = getattr(calibrator, "solution_", None)
    report = calibrator.fit_report_
    search = f"; search {solution.status}: {solution.message}" if solution else ""
    say(f"{type(calibrator).__name__}({settings})", describe(calibrator.chain_) + search)
    on, rows = report_rows(report)
    if rows:
        print_table((on, "before", "after"), rows)
    else:
        say(on)
    warnings = [f"Warning: {each}." for each in fit_warnings(report, calibrator.chain_)] if rows else []
    say(*report.get("sentences", ()), *warnings)


def left_out(n_rows: int, n_files: int) -> list[str]:
    """A line about the rows and files that were left out, if any were."""
    rows = [f"{n_rows:,} row{'s' * (n_rows != 1)} that cannot be used"] if n_rows else []
    files = [f"{n_files:,} file{'s' * (n_files != 1)} that cannot be read"] if n_files else []
    return [f"Left out: {', '.join(rows + files)}."] if rows or files else []


def print_table(
    heads: Iterable[str],
    rows: Sequence[Sequence[str] | dict[str, str]],
    dropped: Sequence[str] = (),
    bold: int | None = None,
) -> None:
    """A table without a frame, of names and numbers that are never cut: where it is too wide, columns are left out,
    the first of `dropped` first, and named below it. A row is its texts, or has them by their headings.
    """
    if IS_JSON.get():
        return
    console = out()
    heads = list(heads)
    cells = [[row[head] for head in heads] if isinstance(row, dict) else row for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(heads, *cells, strict=True)]
    kept = list(range(len(heads)))
    left_out = []
    gap = 2  # blanks between two columns
    for head in dropped:
        if sum(widths[i] + gap for i in kept) - gap <= console.width:
            break
        if head in heads:
            kept.remove(heads.index(head))
            left_out.append(head)
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for i in kept:
        table.add_column(heads[i], justify="right" if i else "left", no_wrap=True)
    for n, row in enumerate(cells):
        table.add_row(*(row[i] for i in kept), style="bold" if n == bold else None)
    wide = max(console.width, sum(widths[i] + gap for i in kept))
    Console(file=console.file, highlight=False, emoji=False, width=wide).print(table, markup=False)
    if left_out:
        console.print(f"Too narrow for: {', '.join(left_out)}. A wider terminal or --json shows them.", style="dim")
