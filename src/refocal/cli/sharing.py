"""What becomes of an evaluation: files, the terminal, requirements and their exit code; and `refocal diff`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refocal.cli import options
from refocal.cli.printing import out, print_evaluation, print_json, print_table, progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from refocal.evaluate import Evaluation

ONLY_HTML, ONLY_JSON = (".html", ".htm"), (".json",)
REQUIREMENT_FAILED = 3

Title = Annotated[str | None, typer.Option("--title", help="Title of the report; by default the file's name.")]
Notes = Annotated[
    Path | None, typer.Option("--notes", metavar="FILE.md", help="Markdown to show in the report.", exists=True)
]
Require = Annotated[
    list[str] | None,
    typer.Option(
        "--require",
        metavar="EXPRESSION",
        help="What must hold, such as 'ece<2%' or 'log_loss<=ts'; several with commas or by repeating the option. "
        f"Otherwise the exit code is {REQUIREMENT_FAILED}.",
    ),
]


def check_outputs(output: Path | None, report: Path | None, require: list[str] | None = None) -> None:
    """Complain about where to write and about what is required before anything is computed."""
    if require:
        from refocal.evaluate.requirements import parse_requirement

        for each in requirements_of(require):
            parse_requirement(each)
    if output is not None:
        options.check_output(output, ONLY_JSON)
    if report is not None:
        options.check_output(report, ONLY_HTML)


def draw(
    found: Evaluation | Sequence[Evaluation],
    report: Path,
    title: str | None,
    notes: Path | None,
    require: list[str] | None,
    quiet: bool,
) -> None:
    """Write the report."""
    from refocal.report import write_report

    text = "" if notes is None else notes.read_text(encoding="utf-8")
    with progress("drawing", quiet=quiet):
        write_report(found, report, title=title, notes=text, require=requirements_of(require))


def finish(
    found: Evaluation,
    output: Path | None,
    report: Path | None,
    json: bool,
    *,
    title: str | None = None,
    notes: Path | None = None,
    require: list[str] | None = None,
) -> None:
    """Write what was asked for, then print."""
    if report is not None:
        draw(found, report, title, notes, require, json)
    if output is not None:
        found.save(output)
    if json:
        print_json(found.to_dict())
        return
    print_evaluation(found)
    for file in (output, report):
        if file is not None:
            out().print(f"Wrote {file}.")


def requirements_of(require: list[str] | None) -> list[str]:
    """The requirements, one by one."""
    return [each for text in require or [] for each in text.split(",")]


def leave_by_requirements(found: Sequence[Evaluation], require: list[str] | None, json: bool) -> None:
    """Say which requirements hold; leave with an exit code of their own if one does not."""
    from refocal.evaluate import check_requirements

    checks = [check for each in found for check in check_requirements(each, requirements_of(require))]
    if not json:
        for check in checks:
            out().print(f"{'passed' if check.passed else 'FAILED'}: {check.text}", markup=False)
    if not all(check.passed for check in checks):
        raise typer.Exit(REQUIREMENT_FAILED)


def diff(
    old: Annotated[Path, typer.Argument(help="An evaluation (.json) made by compare or evaluate with -o.")],
    new: Annotated[Path, typer.Argument(help="Another one, of a later date or another model.")],
    fail_if_worse: Annotated[
        bool,
        typer.Option(
            "--fail-if-worse",
            help=f"Exit code {REQUIREMENT_FAILED} if the method shown in detail is worse beyond chance.",
        ),
    ] = False,
    json: options.Json = False,
) -> None:
    """Say what changed between two evaluations, and whether that is more than chance."""
    from refocal.evaluate import differences, load_evaluation
    from refocal.evaluate.difference import CHOSEN
    from refocal.metrics import METRICS

    first, second = load_evaluation(old), load_evaluation(new)
    changes = differences(first, second)
    if json:
        print_json([{**change._asdict(), "verdict": change.verdict} for change in changes])
    else:
        rows = []
        for change in changes:
            metric = METRICS[change.measure]
            low, high = (f"{metric.scale * end:+.{2 if metric.unit else 4}f}" for end in (change.low, change.high))
            numbers = (metric.text(change.old), metric.text(change.new), f"{low} – {high}".replace("-", "−"))
            rows.append((change.method, metric.heading, *numbers, change.verdict))
        console = out()
        print_table(console, ("method", "measure", "old", "new", "difference", "verdict"), rows, ("difference",))
        console.print(f"Shown in detail: {first.chosen} in {old.name}, {second.chosen} in {new.name}.", markup=False)
        console.print("Differences are new less old with 95 % intervals, for test rows that are independent.")
    if fail_if_worse and any(change.method == CHOSEN and change.verdict == "worse" for change in changes):
        raise typer.Exit(REQUIREMENT_FAILED)
