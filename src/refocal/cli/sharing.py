"""What becomes of an evaluation: files, the terminal, requirements and their exit code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Exit

from refocal.cli import options
from refocal.cli.printing import print_evaluation, progress, result, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from refocal.evaluate import Evaluation

REQUIREMENT_FAILED = 3


@dataclass(frozen=True)
class SharingOptions:
    """What a report says beside its numbers, and what they must be.

    --title  Title of the report; by default the file's name.
    --notes FILE.md  Markdown to show in the report.
    --require EXPRESSION  A requirement such as 'ece<2%' or 'log_loss<=ts'; several with commas or by repeating the
        option. Otherwise the exit code is 3.
    """

    title: str | None = None
    notes: Annotated[Path | None, {"exists": True}] = None
    require: list[str] | None = None

    @property
    def requirements(self) -> list[str]:
        """The requirements, one by one."""
        return [each for text in self.require or [] for each in text.split(",")]

    def check(self, output: Path | None, report: Path | None) -> None:
        """Complain about where to write and about what is required before anything is computed."""
        if self.require:
            from refocal.evaluate.requirements import parse_requirement

            for each in self.requirements:
                parse_requirement(each)
        options.check_output(output, options.ONLY_JSON)
        options.check_output(report, options.ONLY_HTML)


@dataclass(frozen=True)
class OutputOptions:
    """Where an evaluation and its report are written.

    -o, --output  Write the evaluation here, as JSON.
    --report  Write the HTML report here as well.
    """

    output: Path | None = None
    report: Path | None = None


@dataclass(frozen=True)
class ResultOptions(SharingOptions, OutputOptions):
    """Both; where to write comes first in the help."""


def finish(found: Evaluation, shared: ResultOptions, *lines: str) -> None:
    """Write what was asked for and print the evaluation and `lines`; see `share`."""
    if shared.output is not None:
        found.save(shared.output)
    print_evaluation(found)
    written = [f"Wrote {file}." for file in (shared.output, shared.report) if file is not None]
    share([found], shared, shared.report, found.to_dict(), *written, *lines)


def share(found: Sequence[Evaluation], shared: SharingOptions, report: Path | None, data: Any, *lines: str) -> None:
    """Draw the report, print `data` or `lines`; exit with a code of its own if a requirement does not hold."""
    from refocal.evaluate import check_requirements

    if report is not None:
        from refocal.report import write_report

        text = "" if shared.notes is None else shared.notes.read_text(encoding="utf-8")
        with progress("drawing"):
            write_report(found, report, title=shared.title, notes=text, require=shared.requirements)
    checks = [check for each in found for check in check_requirements(each, shared.requirements)]
    result(data)
    say(*lines, *(f"{'passed' if check.passed else 'FAILED'}: {check.text}" for check in checks))
    if not all(check.passed for check in checks):
        raise Exit(REQUIREMENT_FAILED)
