"""`refocal fit`, `apply` and `show`: calibrators are fitted, used and looked at."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

import refocal
from refocal._methods import SETS
from refocal._outputs import CALIBRATOR, guard_output
from refocal._validation import number_of_text
from refocal.cli import options
from refocal.cli.options import (
    JSON_FILE,
    METHOD_NAMES,
    ROWS,
    SET_NAMES,
    BlockOptions,
    ColumnOptions,
    RowOptions,
    read_or_open,
)
from refocal.cli.printing import left_out, print_calibrator, progress, result, say, say_read
from refocal.cli.run import FileProblem, Stopped, UsageError, explained
from refocal.errors import FormatError, InputWarning, RefocalError, Remedy


@dataclass(frozen=True)
class MethodOptions:
    """Which calibrator is fitted, and with which settings."""

    method: Annotated[
        str | None,
        Option(
            "--method",
            "-m",
            help=(
                f"Default: auto, or fts if one of its options is given. One of {METHOD_NAMES}; for "
                f"prediction sets {SET_NAMES}, which hold for each group with --groups; with --groups, group, "
                "which is then the default."
            ),
            autocompletion=options.complete_method,
        ),
    ] = None
    objective: Annotated[str | None, Option("--objective", help="auto, nll, ece or the name of a metric.")] = None
    tolerance: Annotated[
        float | None, Option("--tolerance", help="Share of the log-loss that may be given up for a lower ECE.", min=0.0)
    ] = None
    class_weight: Annotated[
        str | None,
        Option(
            "--class-weight",
            metavar="W,W,…",
            help="Class weights of the training loss, which are removed, or fit; for fts.",
        ),
    ] = None
    coverage: Annotated[
        float | None,
        Option("--coverage", metavar="SHARE", help=f"For {SET_NAMES}: share of sets that must contain the true class."),
    ] = None

    def settings(self) -> dict[str, Any]:
        """The settings that were given, by the names of a calibrator's parameters."""
        weight: Any = self.class_weight
        if weight not in (None, "fit"):
            try:
                weight = [number_of_text(each) for each in weight.split(",")]
            except ValueError:
                expected = "--class-weight must be numbers with commas between them, one for each class, or fit."
                raise UsageError(f"{expected} Got {weight!r} instead.") from None
        made = {"objective": self.objective, "nll_tolerance": self.tolerance, "class_weight": weight}
        return {name: value for name, value in (made | {"coverage": self.coverage}).items() if value is not None}


def fit(
    validation: Annotated[str, Argument(metavar="VALIDATION", help=ROWS)],
    *,
    how: MethodOptions,
    output: Annotated[Path, Option("-o", "--output", help="Where to write it.", **JSON_FILE)] = Path("calibrator.json"),
    overwrite: Annotated[bool, Option("--overwrite", help="Also replace a JSON file that is no calibrator.")] = False,
    rows: RowOptions,
    blocks: BlockOptions,
) -> None:
    """Fit a calibrator on held-out rows and write it as JSON.

    refocal fit val.npz -o calibrator.json
    refocal fit val.csv --method fts --objective ece --tolerance 0.01
    refocal fit logits.npy --labels labels.npy --method ts
    refocal fit val.npz --method aps --coverage 0.95 -o sets.json
    refocal fit 's3://bucket/val/*.parquet' --scheduler tcp://host:8786 --method fts-nll
    """
    guard_output(
        output, [validation], files=[rows.labels], kind=CALIBRATOR, overwrite=overwrite, function="refocal fit"
    )
    registry = refocal.calibrators.registry
    reading = rows.arguments()
    settings = how.settings()
    if rows.multi_label and settings:
        raise UsageError("--objective, --tolerance, --class-weight, --coverage cannot be combined with --multi-label.")
    default = "group" if rows.groups else "lac" if "coverage" in settings else "fts" if settings else "auto"
    method = default if how.method is None else registry.OTHER_NAMES.get(how.method, how.method)
    if method in SETS and rows.groups:
        settings["conditional"] = "group"
    calibrator = None if rows.multi_label else registry.make(method, **settings)
    if calibrator is not None and calibrator.needs_groups != bool(rows.groups):
        rule = f"--groups can only be used with --method group or {SET_NAMES}, and --method group needs --groups"
        raise UsageError(f"{rule}. Got {method!r}.")
    in_memory = "" if rows.multi_label or registry.METHODS[method].in_blocks else f"--method {method}"
    with (
        progress("reading") as update,
        read_or_open(validation, f"fitting {method}", update, blocks, reading, in_memory) as (found, in_blocks),
    ):
        if calibrator is None:
            calibrator = refocal.evaluate.multilabel.fit_method(found, method)
        elif in_blocks:
            calibrator.set_params(input=found.input).fit(found)
        else:
            words = f"fitting {method} on {len(found):,} rows"
            update(0.0, 1, words)
            calibrator.set_params(input=found.input).fit(found, progress=lambda share: update(share, 1, words))
        described = found.described()
    calibrator.save(output)
    print_calibrator(calibrator, described)
    report = calibrator.fit_report_
    where = "probs.npz" if not in_blocks else "probs.csv" if options.is_text_file(validation) else "probs"
    # The calibrator knows whether it takes probabilities.
    asked = options.as_given("logits", **{name: reading[name] for name in ("values", "renormalise") if name in reading})
    next_ = f"Next: refocal apply {shlex.quote(str(output))} {calibrator.input.upper()}{asked} -o {where}"
    say(*left_out(report.get("n_skipped", 0), report.get("n_bad_parts", 0)), f"Wrote {output}. {next_}")


def apply(
    calibrator: Annotated[Path, Argument(metavar="CALIBRATOR", help="A calibrator written by refocal fit.")],
    logits: Annotated[str, Argument(metavar="LOGITS", help="Logits, with or without labels: a file or a data set.")],
    *,
    output: Annotated[
        Path, Option("-o", "--output", help=".npz, .npy, .csv, .tsv, .jsonl, .parquet, or a folder of Parquet files.")
    ] = Path("probs.npz"),
    overwrite: Annotated[
        bool, Option("--overwrite", help="Remove other tables from a folder, as of files that are no longer there.")
    ] = False,
    columns: ColumnOptions,
    groups: Annotated[
        list[str] | None,
        Option("--groups", metavar="NAME", help="Column with groups, as in the fit; by default found by its name."),
    ] = None,
    blocks: BlockOptions,
) -> None:
    """Turn logits into calibrated probabilities.

    refocal apply calibrator.json logits.npz -o probs.npz
    refocal apply calibrator.json 'logits/*.parquet' -o probs
    """
    from refocal.calibrators import MultiLabelCalibration
    from refocal.calibrators.answers import further_names, group_columns, what_is_written
    from refocal.io.apply import ApplyReading, open_application

    _check_written(logits, output)
    guard_output(output, files=[calibrator], function="refocal apply")  # of rows and labels refocal.io.apply does
    fitted = options.load_calibrator(calibrator)
    if groups is not None and set(groups) != set(group_columns(fitted)):
        known = " and ".join(group_columns(fitted)) or "no groups"
        raise UsageError(f"--groups must be those of the calibrator: {known}. Got {', '.join(groups)} instead.")
    # Of several labels a table has a column of scores for each.
    several_labels = isinstance(fitted, MultiLabelCalibration)
    is_table = several_labels and refocal.io.readers.is_tables(logits)
    values = columns.named_values() or ("score_*" if is_table else None)
    with progress("reading") as update, options.about(logits), _explaining(fitted, logits, output) as files:
        start = time.monotonic()

        def tell(done: int, total: int, n_rows: int) -> None:
            files[:] = [done]
            rate = n_rows / max(time.monotonic() - start, 1e-9)
            update(done, total, f"applying: {n_rows:,} rows, {rate / 1e6:.2f} million rows/s")

        reading = ApplyReading(
            values,
            columns.labels,
            renormalise=columns.renormalise,
            skip_bad_rows=blocks.skip_bad_rows,
            skip_bad_parts=blocks.skip_bad_parts,
        )
        application = open_application(fitted, logits, output, reading)
        with options.cluster(blocks) as client:
            written = application.write(overwrite=overwrite, client=client, progress=tell)
    problems = [each.problem for each in written if each.problem is not None]
    n_files = len(written) - len(problems)
    n_before = sum(each.was_there for each in written)
    n_rows = sum(each.n_rows for each in written)
    n_skipped = sum(each.n_skipped for each in written)
    n_unseen = sum(each.n_unseen for each in written)
    columns_are = "labels" if several_labels else "classes"
    of_rows = {"rows": n_rows, columns_are: fitted.n_features_in_, "rows_skipped": n_skipped}
    of_rows |= {"rows_of_unseen_groups": n_unseen} if n_unseen else {}
    of_files = {"files": n_files, "files_skipped": len(problems), "files_there_before": n_before}
    result({"output": str(output), "read": application.described(), **of_rows, **of_files})
    say_read(application.described())
    of_before = f", {n_before} of them there before" if n_before else ""
    parts = "" if output.is_file() else f" in {n_files:,} {'file' if n_files == 1 else 'files'}{of_before}"
    unused = f" Rows that cannot be used, with NaN or left out: {n_skipped:,}." if n_skipped else ""
    unused += f" Rows of groups that the fit has not seen: {n_unseen:,}." if n_unseen else ""
    contents = what_is_written([] if output.suffix.lower() == ".npy" else further_names(fitted))
    say(f"Wrote {output}: {contents} of {n_rows:,} rows and {fitted.n_features_in_:,} {columns_are}{parts}.{unused}")
    if problems:
        say(f"Left out {len(problems):,} files: {' '.join(problems[:3])}{' …' if len(problems) > 3 else ''}")


def _check_written(place: str, output: Path) -> None:
    """Complain about where to write before anything is computed: a file, or a folder of Parquet files."""
    tables = refocal.io.files.TABLES
    if output.is_dir() or not (output.suffix or str(output) == "-"):  # nothing is written to standard output
        if output.is_file():
            raise UsageError(f"{output}: is a file; name a folder, or a file with an ending, with -o.")
        return
    if refocal.io.files.is_large(place) and not options.is_text_file(place) and output.suffix.lower() not in tables:
        wanted = f"a folder of Parquet files or one table ({', '.join(tables)}); name a folder or such a file with -o"
        raise UsageError(f"{output}: the probabilities of a data set are {wanted}.")
    options.check_output(output, (".npz", ".npy", *tables))


@contextmanager
def _explaining(calibrator: refocal.calibrators.Calibrator, place: str, output: Path) -> Iterator[list[int]]:
    """Say what does not suit the calibrator, and how many files, the number that is yielded, are there already."""
    files = [0]
    try:
        yield files
    except InputWarning as error:
        if error.remedy not in (Remedy.PROBABILITIES, Remedy.PERCENTAGES):
            if files[0] == 0 or not output.is_dir():
                raise
            raise FileProblem(f"{place}: {explained(error)} They were written to {output}.") from error
        like = "percentages" if error.remedy is Remedy.PERCENTAGES else "probabilities"
        wanted = f"look like {like}, but this calibrator takes logits; fit one with --probabilities"
        raise FileProblem(f"{place}: the rows {wanted}.") from error
    except (KeyboardInterrupt, RefocalError, OSError) as error:
        if isinstance(error, FormatError) and error.remedy in (Remedy.READ_LOGITS, Remedy.READ_PROBABILITIES):
            raise FileProblem(f"{place}: holds no {calibrator.input}, which this calibrator takes.") from error
        if files[0] == 0 or not output.is_dir():
            raise
        so_far = f"{files[0]:,} files are in {output}, and the same command continues with the others."
        if isinstance(error, KeyboardInterrupt):
            raise Stopped(f"stopped; {so_far}") from error
        raise FileProblem(f"{explained(error)} {so_far}") from error


def show(
    calibrator: Annotated[Path, Argument(metavar="CALIBRATOR", help="A calibrator written by refocal fit.")],
) -> None:
    """Show a calibrator and how it was fitted.

    refocal show calibrator.json
    """
    print_calibrator(options.load_calibrator(calibrator))
