"""The commands of `refocal`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refocal.cli import large, options, sharing
from refocal.cli.decide import decide
from refocal.cli.explore import explore
from refocal.cli.monitor import monitor
from refocal.cli.printing import out, print_calibrator, print_json, progress
from refocal.cli.run import FileProblem, UsageError, explained
from refocal.cli.theory import theory
from refocal.errors import FormatError, InputError, InputWarning, Remedy

if TYPE_CHECKING:
    from refocal.calibrators import Calibrator
    from refocal.evaluate import Evaluation

DEMO_METHODS = ("auto", "ts", "focal", "fts", "fts-nll")

app = typer.Typer(
    name="refocal",
    help="Turn the logits of any classifier into probabilities that can be trusted.",
    epilog="Examples:\n\nrefocal demo\n\nrefocal compare val.npz test.npz --report report.html\n\n"
    "refocal fit val.npz -o calibrator.json",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

File = Annotated[Path, typer.Argument(help="Logits and labels: .npz .npy .csv .tsv .jsonl .parquet .safetensors .pt")]
Source = Annotated[
    str,
    typer.Argument(help="Logits and labels: .npz .npy .csv .tsv .jsonl .parquet .safetensors .pt; or larger than "
                   "memory: a folder or pattern of Parquet files, an address such as s3://…, Zarr, a large .npy."),
]  # fmt: skip
Methods = Annotated[
    list[str] | None,
    typer.Option("--method", "--methods", "-m", help=f"Several with commas, by default the usual ones, 'all' for "
                 f"every one: {options.METHOD_NAMES}.", autocompletion=options.complete_method),
]  # fmt: skip
Report = Annotated[Path | None, typer.Option("--report", help="Write the HTML report here as well.")]
EvaluationFile = Annotated[Path | None, typer.Option("-o", "--output", help="Write the evaluation here, as JSON.")]


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", help="The version, alone.")] = False,
) -> None:
    """Turn the logits of any classifier into probabilities that can be trusted."""
    if version:
        raise UsageError("--version stands alone.")


@app.command(epilog="Example: refocal demo --sample cifar10-focal3 -o report.html")
def demo(
    sample: Annotated[
        str, typer.Option(help="cifar100-focal7, cifar10-focal3 or cifar10-cross-entropy.")
    ] = "cifar100-focal7",
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write the report.")] = Path("report.html"),
    resamples: options.Resamples = 500,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Calibrate a bundled example network and write a report about it."""
    from refocal.data import SAMPLES, load_sample
    from refocal.evaluate import compare

    options.check_output(output, sharing.ONLY_HTML)
    parts = load_sample(sample)
    with progress("reading", quiet=json) as update:
        title = SAMPLES[sample]
        found = compare(*parts, DEMO_METHODS, title=title, n_resamples=resamples, seed=seed, progress=update)
    sharing.finish(found, None, output, json)


@app.command(
    epilog="Examples:\n\nrefocal fit val.npz -o calibrator.json\n\n"
    "refocal fit val.csv --method fts --objective ece --tolerance 0.01\n\n"
    "refocal fit logits.npy --labels labels.npy --method ts\n\n"
    "refocal fit val.npz --method aps --coverage 0.95 -o sets.json\n\n"
    "refocal fit 's3://bucket/val/*.parquet' --scheduler tcp://host:8786 --method fts-nll"
)
def fit(
    validation: Source,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            "-m",
            help=f"By default auto, or fts where one of its options is given. One of {options.METHOD_NAMES}; "
            "or, for sets of classes, lac, aps, raps; or, with --groups, group, which is then the default.",
            autocompletion=options.complete_method,
        ),
    ] = None,
    objective: Annotated[str | None, typer.Option(help="auto, nll, ece or a metric's name.")] = None,
    tolerance: Annotated[
        float | None, typer.Option(min=0.0, help="Share of the log-loss that may be given up.")
    ] = None,
    class_weight: options.ClassWeight = None,
    coverage: options.Coverage = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write it.")] = Path("calibrator.json"),
    probabilities: options.Probabilities = False,
    probability_column: options.ProbabilityColumn = None,
    values: options.Values = None,
    labels: options.Labels = None,
    positive_label: options.PositiveLabel = None,
    weights: options.Weights = None,
    first_label: options.FirstLabel = 0,
    ignore_index: options.IgnoreIndex = None,
    multi_label: options.MultiLabel = False,
    groups: options.Groups = None,
    renormalise: options.Renormalise = False,
    scheduler: large.Scheduler = None,
    skip_bad_rows: large.SkipBadRows = False,
    skip_bad_parts: large.SkipBadParts = False,
    json: options.Json = False,
) -> None:
    """Fit a calibrator on held-out rows and write it as JSON."""
    import numpy as np

    from refocal.calibrators.registry import GROUPED, NAMED, OTHER_NAMES, SETS, make
    from refocal.evaluate.multilabel import fit_method

    options.check_output(output, sharing.ONLY_JSON)
    reading = options.how_to_read(
        probabilities, probability_column, values=values, labels=labels, positive_label=positive_label, weight=weights,
        first_label=first_label, ignore_index=ignore_index, renormalise=renormalise, multi_label=multi_label,
        groups=groups,
    )  # fmt: skip
    settings = {
        "objective": objective,
        "nll_tolerance": tolerance,
        "class_weight": options.numbers_or_fit(class_weight),
    }
    if method is None and groups:
        method = "group"
    if method is None:
        method = "lac" if coverage is not None else "fts" if any(v is not None for v in settings.values()) else "auto"
    method = OTHER_NAMES.get(method, method)
    settings["coverage"] = coverage
    if multi_label:
        if any(value is not None for value in settings.values()):
            raise UsageError(
                "--objective, --tolerance, --class-weight and --coverage cannot be had with --multi-label."
            )
        with progress(f"fitting {method}", quiet=json), options.about(validation):
            fitted = fit_method(options.read_file(Path(validation), **reading), method)
        _finish_fit(fitted, output, json)
        return
    calibrator = make(method, **settings, input=reading["input"])
    if calibrator.needs_groups != bool(groups):
        raise UsageError(f"--groups and the method group belong together; {method!r} was to be fitted.")
    with progress("reading", quiet=json) as update, options.about(validation):
        suits = (NAMED | SETS | GROUPED)[method].in_blocks
        if large.is_large(validation, scheduler, skip_bad_rows, reading, suits=suits):
            reading |= {"scheduler": scheduler, "skip_bad_rows": skip_bad_rows, "skip_bad_parts": skip_bad_parts}
            with large.open_rows(validation, f"fitting {method}", update, **reading) as blocks:
                calibrator.fit(blocks)
                names = blocks.reading.class_names
        else:
            rows = options.read_file(Path(validation), **reading)

            def tell(share: float) -> None:
                update(share, 1, f"fitting {method} on {len(rows):,} rows")

            tell(0.0)
            more: dict[str, Any] = {"groups": rows.groups} if calibrator.needs_groups else {}
            calibrator.fit_with_progress(rows.values, rows.labels, rows.weight, tell, **more)
            names = rows.class_names
    if names is not None:
        calibrator.classes_ = np.array(names)
    in_blocks = large.is_large(validation, scheduler, skip_bad_rows)
    where = "probs.npz" if not in_blocks else "probs.csv" if large.is_text(validation) else "probs"
    _finish_fit(calibrator, output, json, where)


@app.command(
    epilog="Examples:\n\nrefocal apply calibrator.json logits.npz -o probs.npz\n\n"
    "refocal apply calibrator.json 'logits/*.parquet' -o probs"
)
def apply(
    calibrator: Annotated[Path, typer.Argument(help="Made by refocal fit.")],
    logits: Annotated[str, typer.Argument(help="Logits, with or without labels: a file or a data set.")],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help=".npz, .npy, .csv, .tsv, .jsonl, .parquet, or a folder of Parquet files."),
    ] = Path("probs.npz"),
    probability_column: options.ProbabilityColumn = None,
    values: options.Values = None,
    labels: options.Labels = None,
    renormalise: options.Renormalise = False,
    scheduler: large.Scheduler = None,
    skip_bad_rows: large.SkipBadRows = False,
    skip_bad_parts: large.SkipBadParts = False,
    json: options.Json = False,
) -> None:
    """Turn logits into calibrated probabilities."""
    from refocal import load
    from refocal._groups import as_groups
    from refocal._validation import renormalised
    from refocal.calibrators import GroupCalibration
    from refocal.cli.apply import ENDINGS, apply_blocks, further_columns, says_more, write_probabilities
    from refocal.data import read_values

    options.check_calibrator_file(calibrator)
    in_blocks = large.is_applied_in_blocks(logits, output, scheduler, skip_bad_rows)
    if not in_blocks or output.suffix.lower() in ENDINGS:
        options.check_output(output, ENDINGS)
    fitted = load(calibrator)
    if says_more(fitted) and output.suffix.lower() in ENDINGS:  # which are written from memory
        in_blocks = False
    values = values or probability_column or options.score_columns(fitted, logits)
    if in_blocks:
        reading = {"values": values, "labels": labels, "skip_bad_rows": skip_bad_rows, "renormalise": renormalise,
                   "skip_bad_parts": skip_bad_parts}  # fmt: skip
        with progress("reading", quiet=json) as update, options.about(logits):
            large.apply_to_data_set(fitted, logits, output, update, json=json, scheduler=scheduler, **reading)
        return
    with progress("reading", quiet=json) as update:
        try:
            columns = list(fitted.lines_) if isinstance(fitted, GroupCalibration) else []
            found = read_values(logits, input=fitted.input, values=values, labels=labels, groups=columns)
        except FormatError as error:
            if error.remedy not in (Remedy.READ_LOGITS, Remedy.READ_PROBABILITIES):
                raise
            raise FileProblem(f"{logits}: holds no {fitted.input}, which this calibrator takes.") from error
        try:
            given = renormalised(found.values, "probabilities", "apply") if renormalise else found.values
            groups = as_groups(found.groups, len(given), "apply")
            result = apply_blocks(fitted, given, update, found.class_names, groups=groups)
            only_one_array = output.suffix.lower() == ".npy"
            further = {} if only_one_array else further_columns(fitted, given, found.class_names)
        except InputWarning as error:
            wanted = "look like probabilities, but this calibrator takes logits; fit one with --probabilities"
            raise FileProblem(f"{logits}: the rows {wanted}.") from error
        except InputError as error:
            raise FileProblem(f"{logits}: {explained(error)}") from error
        write_probabilities(output, result, found.labels, found.class_names, further)
    shape = {"output": str(output), "rows": len(result), "classes": len(fitted.classes_)}
    if json:
        print_json(shape)
    else:
        what = " and ".join(["probabilities", *further])
        out().print(f"Wrote {output}: {what} of {shape['rows']:,} rows and {shape['classes']:,} classes.")


@app.command(epilog="Example: refocal evaluate test.npz calibrator.json --report report.html")
def evaluate(
    test: Source,
    calibrators: Annotated[
        list[Path] | None, typer.Argument(help="Made by refocal fit; none: the model alone.")
    ] = None,
    output: EvaluationFile = None,
    report: Report = None,
    title: sharing.Title = None,
    notes: sharing.Notes = None,
    require: sharing.Require = None,
    probabilities: options.Probabilities = False,
    probability_column: options.ProbabilityColumn = None,
    values: options.Values = None,
    labels: options.Labels = None,
    positive_label: options.PositiveLabel = None,
    weights: options.Weights = None,
    first_label: options.FirstLabel = 0,
    ignore_index: options.IgnoreIndex = None,
    groups: options.Groups = None,
    multi_label: options.MultiLabel = False,
    renormalise: options.Renormalise = False,
    resamples: options.MaybeResamples = None,
    seed: options.MaybeSeed = None,
    scheduler: large.Scheduler = None,
    skip_bad_rows: large.SkipBadRows = False,
    skip_bad_parts: large.SkipBadParts = False,
    json: options.Json = False,
) -> None:
    """Measure calibrators on test rows, beside the model as it is."""
    from refocal import load
    from refocal.calibrators._labels import named_classes
    from refocal.evaluate import evaluate as measure

    sharing.check_outputs(output, report, require)
    fitted = {}
    for file in calibrators or []:
        options.check_calibrator_file(file)
        if file.stem in fitted or file.stem == "none":
            raise UsageError(f"{file}: two calibrators would be called {file.stem!r}; give the files different names.")
        fitted[file.stem] = load(file)
    reading = options.how_to_read(
        probabilities, probability_column, values=values, labels=labels, positive_label=positive_label, weight=weights,
        first_label=first_label, ignore_index=ignore_index, renormalise=renormalise, groups=groups,
        multi_label=multi_label,
    )  # fmt: skip
    bootstrap: dict[str, Any] = {"n_resamples": resamples, "seed": seed}
    chosen, title = next(iter(fitted)) if len(fitted) == 1 else None, title or Path(test).stem
    with progress("reading", quiet=json) as update, options.about(test):
        if large.is_large(test, scheduler, skip_bad_rows, reading, suits=resamples is None and seed is None):
            reading |= {"scheduler": scheduler, "skip_bad_rows": skip_bad_rows, "skip_bad_parts": skip_bad_parts}
            with large.open_rows(test, "measuring", update, **reading) as blocks:
                found = measure(blocks, fitted, chosen=chosen, title=title, **bootstrap)
        else:
            rows = options.read_file(Path(test), **reading)
            if not multi_label:  # whose labels are known by their names
                # In the order of the columns that the first was fitted on; a calibrator of another order is refused.
                rows = rows.in_order_of(next(filter(None, map(named_classes, fitted.values())), None))
            found = measure(rows, fitted, chosen=chosen, title=title, progress=update, **bootstrap)
    sharing.finish(found, output, report, json, notes=notes, require=require)
    sharing.leave_by_requirements([found], require, json)


@app.command(
    epilog="Examples:\n\nrefocal compare val.npz test.npz --report report.html\n\n"
    "refocal compare all.csv -m ts -m fts -o evaluation.json"
)
def compare(
    validation: File,
    test: Annotated[Path | None, typer.Argument(help="Without it half of the rows are held back for testing.")] = None,
    methods: Methods = None,
    output: EvaluationFile = None,
    report: Report = None,
    title: sharing.Title = None,
    notes: sharing.Notes = None,
    require: sharing.Require = None,
    probabilities: options.Probabilities = False,
    probability_column: options.ProbabilityColumn = None,
    values: options.Values = None,
    labels: options.Labels = None,
    positive_label: options.PositiveLabel = None,
    weights: options.Weights = None,
    first_label: options.FirstLabel = 0,
    ignore_index: options.IgnoreIndex = None,
    groups: options.Groups = None,
    multi_label: options.MultiLabel = False,
    renormalise: options.Renormalise = False,
    resamples: options.Resamples = 500,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Fit every method on VALIDATION, rank them on TEST, and say which to use."""
    from refocal.calibrators.registry import GROUPED

    sharing.check_outputs(output, report, require)
    reading = options.how_to_read(
        probabilities, probability_column, values=values, labels=labels, positive_label=positive_label, weight=weights,
        first_label=first_label, ignore_index=ignore_index, renormalise=renormalise, groups=groups,
        multi_label=multi_label,
    )  # fmt: skip
    found = _compared(validation, test, methods, title, resamples, seed, json, reading)
    sharing.finish(found, output, report, json, notes=notes, require=require)
    if not json and found.chosen != "none":
        if found.chosen not in GROUPED:
            reading.pop("groups", None)
        more = options.as_given(**reading)
        out().print(f"Next: refocal fit {validation} --method {found.chosen}{more} -o calibrator.json", soft_wrap=True)
    sharing.leave_by_requirements([found], require, json)


@app.command(
    epilog="Examples:\n\nrefocal report evaluation.json -o report.html\n\nrefocal report val.npz test.npz\n\n"
    "refocal report may.json june.json --title 'Our model' --notes notes.md --require 'ece<2%'"
)
def report(
    sources: Annotated[
        list[Path],
        typer.Argument(help="An evaluation (.json) or several, side by side; or the validation and the test rows."),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to write it.")] = Path("report.html"),
    title: sharing.Title = None,
    notes: sharing.Notes = None,
    require: sharing.Require = None,
    methods: Methods = None,
    probabilities: options.Probabilities = False,
    probability_column: options.ProbabilityColumn = None,
    values: options.Values = None,
    labels: options.Labels = None,
    positive_label: options.PositiveLabel = None,
    weights: options.Weights = None,
    first_label: options.FirstLabel = 0,
    ignore_index: options.IgnoreIndex = None,
    groups: options.Groups = None,
    multi_label: options.MultiLabel = False,
    renormalise: options.Renormalise = False,
    resamples: options.Resamples = 500,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Write the HTML report of an evaluation, or of rows compared on the spot."""
    from refocal.evaluate import load_evaluation

    sharing.check_outputs(None, output, require)
    are_evaluations = [source.suffix.lower() == ".json" for source in sources]
    if all(are_evaluations):
        found = [load_evaluation(source) for source in sources]
    elif any(are_evaluations) or len(sources) > 2:
        raise UsageError(
            "report takes evaluations (.json), or one or two files of rows; give either the ones or the others."
        )
    else:
        reading = options.how_to_read(
            probabilities, probability_column, values=values, labels=labels, positive_label=positive_label,
            weight=weights, first_label=first_label, ignore_index=ignore_index, renormalise=renormalise, groups=groups,
            multi_label=multi_label,
        )  # fmt: skip
        test = sources[1] if len(sources) == 2 else None
        found = [_compared(sources[0], test, methods, title, resamples, seed, json, reading)]
    sharing.draw(found, output, title, notes, require, json)
    if json:
        print_json({"output": str(output)})
    else:
        out().print(f"Wrote {output}.")
    sharing.leave_by_requirements(found, require, json)


@app.command(epilog="Example: refocal show calibrator.json")
def show(
    calibrator: Annotated[Path, typer.Argument(help="Made by refocal fit.")],
    json: options.Json = False,
) -> None:
    """Say what a calibrator is and how it was fitted."""
    from refocal import load
    from refocal.calibrators.serialize import to_dict

    options.check_calibrator_file(calibrator)
    fitted = load(calibrator)
    if json:
        print_json(to_dict(fitted))
    else:
        print_calibrator(fitted)


app.command(epilog="Example: refocal diff may.json june.json --fail-if-worse")(sharing.diff)
app.command(
    epilog="Examples:\n\nrefocal decide test.csv --probability-column p --false-positive 1 --false-negative 9\n\n"
    "refocal decide new.npz --calibrator calibrator.json --costs '0,2,8;3,0,8;60,60,0' -o decisions.csv"
)(decide)
app.command(
    epilog="Examples:\n\nrefocal monitor monday.csv --probability-column p -o monitor.html\n\n"
    "refocal monitor tuesday.csv --probability-column p --ids id\n\nrefocal monitor --outcomes labels.csv --ids id"
)(monitor)
app.command(epilog="Example: refocal theory --gamma 2 --classes 3")(theory)
app.command(epilog="Example: refocal explore -o explore.html --no-open")(explore)


def _finish_fit(calibrator: Calibrator, output: Path, json: bool, where: str = "probs.npz") -> None:
    """Write a fitted calibrator and say what it is."""
    from refocal.calibrators.serialize import to_dict

    calibrator.save(output)
    if json:
        print_json(to_dict(calibrator))
        return
    print_calibrator(calibrator)
    rows, files = (calibrator.fit_report_.get(name, 0) for name in ("n_skipped", "n_bad_parts"))
    if rows or files:
        out().print(f"Left out: {rows:,} rows that cannot be used, {files:,} files that cannot be read.")
    out().print(f"Wrote {output}. Next: refocal apply {output} {calibrator.input.upper()} -o {where}")


def _compared(
    validation: Path,
    test: Path | None,
    methods: list[str] | None,
    title: str | None,
    resamples: int,
    seed: int,
    quiet: bool,
    reading: dict[str, Any],
) -> Evaluation:
    from refocal.calibrators.registry import chosen_methods
    from refocal.data import split
    from refocal.evaluate import compare as fit_and_measure
    from refocal.evaluate.multilabel import label_methods

    choose: Any = label_methods if "multi_label" in reading else chosen_methods
    names = None if methods is None else choose([name for text in methods for name in text.split(",")])
    for place in (validation, test):
        if place is not None:
            large.refuse(place, "compare")
    with progress("reading", quiet=quiet) as update:
        first = options.read_file(validation, **reading)
        if test is None:
            first, second = split(first, seed=seed)
        else:
            with options.about(test):
                second = options.read_file(test, **reading).in_order_of(first.class_names)
        if first.n_classes != second.n_classes:
            raise UsageError(
                f"{validation} has {first.n_classes} classes and {test} has {second.n_classes}; "
                "give two files of the same model."
            )
        title = title or (validation.stem if test is None else test.stem)
        with options.about(validation):
            return fit_and_measure(first, second, names, title=title, n_resamples=resamples, seed=seed, progress=update)
