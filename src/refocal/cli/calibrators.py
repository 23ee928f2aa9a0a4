"""`refocal fit`, `apply` and `show`: calibrators are fitted, used and looked at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refocal.cli import large, options
from refocal.cli.options import ONLY_JSON, BlockOptions, ColumnOptions, RowOptions, Source
from refocal.cli.printing import out, print_calibrator, print_json, print_left_out, progress
from refocal.cli.run import FileProblem, UsageError, explained
from refocal.errors import FormatError, InputError, InputWarning, Remedy

if TYPE_CHECKING:
    from refocal.calibrators import Calibrator


def fit(
    validation: Source,
    *,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            "-m",
            help=f"Default: auto, or fts if one of its options is given. One of {options.METHOD_NAMES}; "
            "for prediction sets lac, aps, raps; with --groups, group, which is then the default.",
            autocompletion=options.complete_method,
        ),
    ] = None,
    objective: Annotated[str | None, typer.Option(help="auto, nll, ece or the name of a metric.")] = None,
    tolerance: Annotated[
        float | None, typer.Option(min=0.0, help="Share of the log-loss that may be given up for a lower ECE.")
    ] = None,
    class_weight: Annotated[
        str | None,
        typer.Option(
            "--class-weight",
            metavar="W,W,…",
            help="Class weights of the training loss, which are removed, or fit; for fts.",
        ),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            "--coverage",
            metavar="SHARE",
            help="For lac, aps, raps: share of sets that must contain the true class.",
        ),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write it.")] = Path("calibrator.json"),
    rows: RowOptions,
    blocks: BlockOptions,
    json: options.Json = False,
) -> None:
    """Fit a calibrator on held-out rows and write it as JSON."""
    from refocal.calibrators.registry import make

    options.check_output(output, ONLY_JSON)
    reading = rows.arguments()
    settings = {
        "objective": objective,
        "nll_tolerance": tolerance,
        "class_weight": options.numbers_or_fit(class_weight),
        "coverage": coverage,
    }
    method = _method_of(method, rows, settings)
    with progress("reading", quiet=json) as update, options.about(validation):
        if rows.multi_label:
            calibrator = _fit_labels(Path(validation), method, settings, reading)
        else:
            calibrator = make(method, **settings, input=reading["input"])
            if calibrator.needs_groups != bool(rows.groups):
                raise UsageError(f"--groups requires the method group, which requires --groups. Got {method!r}.")
            _fit_rows(calibrator, validation, method, blocks, reading, update)
    in_blocks = large.is_large(validation, blocks) and not rows.multi_label
    where = "probs.npz" if not in_blocks else "probs.csv" if large.is_text(validation) else "probs"
    # The calibrator knows whether it takes probabilities.
    kept = {name: value for name, value in reading.items() if name in ("values", "renormalise")}
    _finish_fit(calibrator, output, json, options.as_given("logits", **kept) + f" -o {where}")


def _method_of(method: str | None, rows: RowOptions, settings: dict[str, Any]) -> str:
    """The method that is asked for, or else the one that has the options that are given."""
    from refocal.calibrators.registry import OTHER_NAMES

    if method is not None:
        return OTHER_NAMES.get(method, method)
    if rows.groups:
        return "group"
    if settings["coverage"] is not None:
        return "lac"
    return "fts" if any(value is not None for value in settings.values()) else "auto"


def _fit_labels(file: Path, method: str, settings: dict[str, Any], reading: dict[str, Any]) -> Calibrator:
    from refocal.evaluate.multilabel import fit_method

    if any(value is not None for value in settings.values()):
        raise UsageError("--objective, --tolerance, --class-weight, --coverage cannot be combined with --multi-label.")
    return fit_method(options.read_file(file, **reading), method)


def _fit_rows(
    calibrator: Calibrator,
    place: str,
    method: str,
    blocks: BlockOptions,
    reading: dict[str, Any],
    update: large.Update,
) -> None:
    """Fit on the rows of a file or a data set, in blocks where it is large; classes keep their names."""
    import numpy as np

    from refocal.calibrators.registry import GROUPED, NAMED, SETS

    suits = (NAMED | SETS | GROUPED)[method].in_blocks
    if large.is_large(place, blocks, reading, suits=suits):
        with large.open_rows(place, f"fitting {method}", update, blocks, reading) as opened:
            calibrator.fit(opened)
            names = opened.reading.class_names
    else:
        rows = options.read_file(Path(place), **reading)

        def tell(share: float) -> None:
            update(share, 1, f"fitting {method} on {len(rows):,} rows")

        tell(0.0)
        more: dict[str, Any] = {"groups": rows.groups} if calibrator.needs_groups else {}
        calibrator.fit_with_progress(rows.values, rows.labels, rows.weight, tell, **more)
        names = rows.class_names
    if names is not None:
        calibrator.classes_ = np.array(names)


def _finish_fit(calibrator: Calibrator, output: Path, json: bool, more: str) -> None:
    """Write a fitted calibrator and say what it is; `more` are the options of the next command."""
    from refocal.calibrators.serialize import to_dict

    calibrator.save(output)
    if json:
        print_json(to_dict(calibrator))
        return
    print_calibrator(calibrator)
    print_left_out(*(calibrator.fit_report_.get(name, 0) for name in ("n_skipped", "n_bad_parts")))
    out().print(f"Wrote {output}. Next: refocal apply {output} {calibrator.input.upper()}{more}")


def apply(
    calibrator: Annotated[Path, typer.Argument(help="A calibrator written by refocal fit.")],
    logits: Annotated[str, typer.Argument(help="Logits, with or without labels: a file or a data set.")],
    *,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help=".npz, .npy, .csv, .tsv, .jsonl, .parquet, or a folder of Parquet files."),
    ] = Path("probs.npz"),
    columns: ColumnOptions,
    blocks: BlockOptions,
    json: options.Json = False,
) -> None:
    """Turn logits into calibrated probabilities."""
    from refocal import load
    from refocal.cli.apply import ENDINGS

    options.check_calibrator_file(calibrator)
    in_blocks = large.is_applied_in_blocks(logits, output, blocks)
    if not in_blocks or output.suffix.lower() in ENDINGS:
        options.check_output(output, ENDINGS)
    fitted = load(calibrator)
    values = columns.values or columns.probability_column or options.score_columns(fitted, logits)
    reading: dict[str, Any] = {"values": values, "labels": columns.labels}
    with progress("reading", quiet=json) as update:
        if in_blocks:
            reading["renormalise"] = columns.renormalise
            with options.about(logits):
                large.apply_to_data_set(fitted, logits, output, update, blocks, reading, json=json)
        else:
            _apply_to_file(fitted, logits, output, update, reading, renormalise=columns.renormalise, json=json)


def _apply_to_file(
    fitted: Calibrator,
    file: str,
    output: Path,
    update: large.Update,
    reading: dict[str, Any],
    *,
    renormalise: bool,
    json: bool,
) -> None:
    """`refocal apply` for a file that is read whole."""
    from refocal._groups import as_groups
    from refocal._validation import renormalised
    from refocal.calibrators._answers import group_columns, what_is_written
    from refocal.cli.apply import apply_blocks, other_columns, write_answers
    from refocal.io import read_values

    try:
        found = read_values(file, input=fitted.input, groups=group_columns(fitted), **reading)  # type: ignore[arg-type]
    except FormatError as error:
        if error.remedy not in (Remedy.READ_LOGITS, Remedy.READ_PROBABILITIES):
            raise
        raise FileProblem(f"{file}: holds no {fitted.input}, which this calibrator takes.") from error
    try:
        given = renormalised(found.values, "probabilities", "apply") if renormalise else found.values
        groups = as_groups(found.groups, len(given), "apply")
        result = apply_blocks(fitted, given, update, found.class_names, groups=groups)
    except InputWarning as error:
        wanted = "look like probabilities, but this calibrator takes logits; fit one with --probabilities"
        raise FileProblem(f"{file}: the rows {wanted}.") from error
    except InputError as error:
        raise FileProblem(f"{file}: {explained(error)}") from error
    others = other_columns(Path(file), found.columns, len(result.probabilities))
    write_answers(output, result, found.labels, found.class_names, others)
    shape = {"output": str(output), "rows": len(result.probabilities), "classes": len(fitted.classes_)}
    if json:
        print_json(shape)
    else:
        what = what_is_written([] if output.suffix.lower() == ".npy" else list(result.further))
        out().print(f"Wrote {output}: {what} of {shape['rows']:,} rows and {shape['classes']:,} classes.")


def show(
    calibrator: Annotated[Path, typer.Argument(help="A calibrator written by refocal fit.")],
    json: options.Json = False,
) -> None:
    """Show a calibrator and how it was fitted."""
    from refocal import load
    from refocal.calibrators.serialize import to_dict

    options.check_calibrator_file(calibrator)
    fitted = load(calibrator)
    if json:
        print_json(to_dict(fitted))
    else:
        print_calibrator(fitted)
