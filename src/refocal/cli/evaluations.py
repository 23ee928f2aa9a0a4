"""`refocal demo`, `compare`, `evaluate`, `report` and `diff`: evaluations are made, shown and compared."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

import refocal
from refocal._digits import p_value_text
from refocal._limits import large_file
from refocal._methods import DEMO
from refocal._outputs import EVALUATION, MANY, format_of, guard_output
from refocal.cli import options
from refocal.cli.options import (
    HTML_FILE,
    JSON_FILE,
    ROWS,
    BlockOptions,
    MeasuredOptions,
    MethodNames,
    about,
    read_or_open,
    split_names,
)
from refocal.cli.printing import left_out, print_evaluation, print_table, progress, result, say
from refocal.cli.run import ExitCode, FileProblem, UsageError
from refocal.errors import DataError

ResampleCount = Annotated[int, Option("--resamples", help="Resamples of the bootstrap.", min=1)]
Seed = Annotated[int, Option("--seed", help="Seed of the bootstrap and of splits.", min=0)]


@dataclass(frozen=True)
class CompareOptions:
    """Which methods are compared, and how."""

    methods: MethodNames = None
    time: Annotated[
        str | None,
        Option(
            "--time",
            metavar="NAME",
            help="One file: column with a date or a number; the earlier half is fitted on, the later one tests. "
            "Without it rows are divided at random, those of one of --clusters together.",
        ),
    ] = None
    resamples: ResampleCount = 500
    seed: Seed = 0


def _check_required(require: list[str] | None) -> list[str] | None:
    """Complain about what is required before anything is computed."""
    refocal.evaluate.requirements.parse_requirements(require or ())
    return require


def _check_notes(file: Any) -> Any:
    """Complain about notes that cannot be shown before anything is computed."""
    if file is not None:
        _text_of(Path(file))
    return file


def _text_of(notes: Path) -> str:
    try:
        return notes.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FileProblem(f"{notes}: --notes must be text in UTF-8; {error}.") from error


@dataclass(frozen=True)
class SharingOptions:
    """The texts of a report besides its numbers, and the requirements on these."""

    title: Annotated[str | None, Option("--title", help="Title of the report; by default the file's name.")] = None
    notes: Annotated[
        Path | None,
        Option(
            "--notes",
            metavar="FILE.md",
            help="Markdown to show in the report.",
            exists=True,
            dir_okay=False,
            callback=_check_notes,
        ),
    ] = None
    require: Annotated[
        list[str] | None,
        Option(
            "--require",
            metavar="EXPRESSION",
            help=(
                "A requirement such as 'ece<2%' or 'log_loss<=ts'; several with commas or by repeating "
                "the option. Otherwise the exit code is 3. mean_bias is compared by its distance from 0."
            ),
            callback=_check_required,
        ),
    ] = None


@dataclass(frozen=True)
class EvaluationFiles:
    """Where a command that makes an evaluation writes it."""

    output: Annotated[
        Path | None, Option("-o", "--output", help="Write the evaluation here, as JSON.", **JSON_FILE)
    ] = None
    report: Annotated[Path | None, Option("--report", help="Write the HTML report here as well.", **HTML_FILE)] = None
    overwrite: Annotated[
        bool, Option("--overwrite", help="With -o, also replace a JSON file that is no evaluation.")
    ] = False

    def guard(self, rows: list[Any], files: list[Any], command: str) -> None:
        """Refuse outputs that are inputs, rows or other files, or files of another kind."""
        function = f"refocal {command}"
        if self.output is not None:
            guard_output(self.output, rows, files=files, kind=EVALUATION, overwrite=self.overwrite, function=function)
        if self.report is not None:
            guard_output(self.report, rows, files=files, argument="report", function=function)


FEATURES = Annotated[
    list[str] | None,
    Option(
        "--features",
        metavar="NAMES",
        help="Two classes: columns, with commas, by which segments are sought whose mean probability is off.",
    ),
]


def demo(
    sample: Annotated[
        str, Option("--sample", help="cifar100-focal7, cifar10-focal3 or cifar10-cross-entropy.")
    ] = "cifar100-focal7",
    output: Annotated[Path, Option("-o", "--output", help="Where to write the report.", **HTML_FILE)] = Path(
        "report.html"
    ),
    resamples: ResampleCount = 500,
    seed: Seed = 0,
) -> None:
    """Calibrate a bundled example network and write a report about it.

    refocal demo --sample cifar10-focal3 -o report.html
    """
    from refocal._validation import check_option

    check_option(sample, tuple(refocal.io.SAMPLES), "sample", "demo")
    title = refocal.io.SAMPLES[sample]
    parts = refocal.io.load_sample(sample)
    with progress("reading") as update:
        asked: dict[str, Any] = {"title": title, "n_resamples": resamples, "seed": seed}
        evaluation = refocal.evaluate.compare(*parts, DEMO, progress=update, **asked)
    _finish(evaluation, SharingOptions(), report=output)


def evaluate(
    test: Annotated[str, Argument(metavar="TEST", help=ROWS)],
    calibrators: Annotated[
        list[Path] | None, Argument(metavar="CALIBRATORS", help="Written by refocal fit; without any, the model alone.")
    ] = None,
    *,
    files: EvaluationFiles,
    features: FEATURES = None,
    shared: SharingOptions,
    rows: MeasuredOptions,
    resamples: Annotated[
        int | None, Option("--resamples", help="Resamples of the bootstrap, by default 500; in memory only.", min=1)
    ] = None,
    seed: Annotated[int | None, Option("--seed", help="Seed of the bootstrap; in memory only.", min=0)] = None,
    blocks: BlockOptions,
) -> None:
    """Measure calibrators on test rows, next to the uncalibrated model.

    refocal evaluate test.npz calibrator.json --report report.html
    """
    from refocal.calibrators import MultiLabelCalibration
    from refocal.calibrators.class_order import called_classes, in_order_of, named_classes
    from refocal.io.apply import columns_of_fit

    files.guard([test], [*(calibrators or []), rows.labels, shared.notes], "evaluate")
    fitted: dict[str, Any] = {}
    for file in calibrators or []:
        if file.stem in fitted or file.stem == "none":
            raise UsageError(f"{file}: two calibrators would be called {file.stem!r}; give the files different names.")
        fitted[file.stem] = options.load_calibrator(file)
        if isinstance(fitted[file.stem], MultiLabelCalibration) and not rows.multi_label:
            raise UsageError(f"{file}: a calibrator of several labels; add --multi-label.")
        if rows.multi_label and fitted[file.stem].input == "logits":
            raise UsageError(f"{file}: a calibrator of one label for each row; leave out --multi-label.")
    reading = rows.arguments(*fitted.values())
    if reading["input"] is None and fitted:
        reading["input"] = next(iter(fitted.values())).input  # a contradiction with the names of columns is refused
    known = next(filter(None, map(named_classes, fitted.values())), None)
    if known is None and fitted and rows.positive_label is not None:  # which may contradict even numbers
        known = called_classes(next(iter(fitted.values())))
    if rows.multi_label and fitted:
        reading["classes"] = next(iter(fitted.values())).classes_.tolist()
    elif known is not None:
        reading["classes"] = known
    if fitted and "values" not in reading and not rows.multi_label:
        columns = columns_of_fit(next(iter(fitted.values())), test)
        if columns is not None:
            reading["values"] = columns
    needs_memory = {"--resamples": resamples, "--seed": seed, "--features": features}
    in_memory = next((option for option, value in needs_memory.items() if value is not None), "")
    with (
        progress("reading") as update,
        read_or_open(test, "measuring", update, blocks, reading, in_memory) as (read, in_blocks),
    ):
        if not rows.multi_label:  # whose labels are known by their names
            # In the order of the columns that the first was fitted on, unless the positive class is said.
            first = next(iter(fitted.values()), None)
            read = read if rows.positive_label is not None else in_order_of(read, first)
        asked: dict[str, Any] = {"title": shared.title or Path(test).stem, "n_resamples": resamples, "seed": seed}
        only = next(iter(fitted)) if len(fitted) == 1 else None
        if features:
            asked["features"] = _read_columns("--features", test, features, reading, read, in_blocks)
            read = _using(read, asked["features"])
        evaluation = refocal.evaluate.evaluate(read, fitted, chosen=only, progress=update, **asked)
    for file in calibrators or []:
        if file.stem in evaluation.failed:
            raise FileProblem(f"{file}: cannot be measured on {test}: {evaluation.failed[file.stem]}")
    lines = left_out(read.n_skipped, len(read.bad_parts)) if in_blocks else []
    _finish(evaluation, shared, *lines, output=files.output, report=files.report)


def compare(
    validation: Annotated[
        Path,
        Argument(metavar="VALIDATION", help="Logits and labels: .npz .npy .csv .tsv .jsonl .parquet .safetensors .pt"),
    ],
    test: Annotated[
        Path | None,
        Argument(metavar="TEST", help="Without it, half of the rows are held out for testing, see --time."),
    ] = None,
    *,
    how: CompareOptions,
    files: EvaluationFiles,
    features: FEATURES = None,
    shared: SharingOptions,
    rows: MeasuredOptions,
) -> None:
    """Fit every method on VALIDATION, rank them on TEST, and say which to use.

    refocal compare val.npz test.npz --report report.html
    refocal compare all.csv -m ts -m fts -o evaluation.json
    refocal compare all.csv --time date --clusters customer
    """
    files.guard([validation, test], [rows.labels, shared.notes], "compare")
    reading = rows.arguments()
    evaluation = _compared(validation, test, how, shared.title, reading, features)
    if evaluation.chosen not in refocal.calibrators.registry.GROUPED:
        reading.pop("groups", None)
    reading.pop("clusters", None)  # a fit has no intervals
    asked = f"{shlex.quote(str(validation))} --method {evaluation.chosen}{options.as_given(**reading)}"
    next_ = f"Next: refocal fit {asked} -o calibrator.json"
    lines = [] if evaluation.chosen == "none" else [next_]
    _finish(evaluation, shared, *lines, output=files.output, report=files.report)


def report(
    sources: Annotated[
        list[Path],
        Argument(
            metavar="SOURCES",
            help="An evaluation (.json) or several, side by side; a comparison of many networks; or the validation and "
            "the test rows.",
        ),
    ],
    *,
    output: Annotated[Path, Option("-o", "--output", help="Where to write it.", **HTML_FILE)] = Path("report.html"),
    over_time: Annotated[
        bool, Option("--over-time", help="The evaluations are of one model, in the order of time: say what changed.")
    ] = False,
    shared: SharingOptions,
    how: CompareOptions,
    rows: MeasuredOptions,
) -> None:
    """Write the HTML report of an evaluation, or compare two files and report the result.

    refocal report evaluation.json -o report.html
    refocal report val.npz test.npz
    refocal report may.json june.json --over-time --title 'Our model' --notes notes.md --require 'ece<2%'
    """
    guard_output(output, sources, files=[rows.labels, shared.notes], function="refocal report")
    are_evaluations = [source.suffix.lower() == ".json" for source in sources]
    if over_time and (not all(are_evaluations) or len(sources) < 2):
        raise UsageError("--over-time is for several evaluations (.json), in their order.")
    of_rows = options.given_options(how, rows) if all(are_evaluations) else []
    if of_rows:
        raise UsageError(f"{', '.join(of_rows)}: for files of rows; an evaluation (.json) has been measured.")
    if len(sources) == 1 and are_evaluations[0] and format_of(sources[0]) == MANY:
        _report_many(sources[0], output, shared)
        return
    if all(are_evaluations):
        evaluations = [refocal.evaluate.load_evaluation(source) for source in sources]
        for source, each in zip(sources, evaluations, strict=True):
            with about(source):
                refocal.report.details.check_same_terms(evaluations[0], each, "refocal report")
    elif any(are_evaluations) or len(sources) > 2:
        raise UsageError("report takes either evaluations (.json) or one or two files of rows, not both.")
    else:
        test = sources[1] if len(sources) == 2 else None
        evaluations = [_compared(sources[0], test, how, shared.title, rows.arguments())]
    files = sources if all(are_evaluations) else []
    _finish(evaluations, shared, report=output, over_time=over_time, sources=files)


def _report_many(source: Path, output: Path, shared: SharingOptions) -> None:
    """The page of a comparison of many networks."""
    if shared.require:
        raise UsageError("--require is for evaluations of one model.")
    notes = "" if shared.notes is None else _text_of(shared.notes)
    refocal.report.write_report(refocal.evaluate.load_many(source), output, title=shared.title, notes=notes)
    result({"output": str(output)})
    say(f"Wrote {output}.")


def diff(
    old: Annotated[Path, Argument(metavar="OLD", help="An evaluation (.json) made by compare or evaluate with -o.")],
    new: Annotated[Path, Argument(metavar="NEW", help="Another one, of a later date or another model.")],
    fail_if_worse: Annotated[
        bool, Option("--fail-if-worse", help="Exit code 3 if the method shown in detail is significantly worse.")
    ] = False,
) -> None:
    """Say what changed between two evaluations, and whether that is more than chance.

    refocal diff may.json june.json --fail-if-worse
    """
    first, second = map(refocal.evaluate.load_evaluation, (old, new))
    with about(new):
        changes = refocal.evaluate.differences(first, second)
    result([{**change._asdict(), "compared": change.compared, "verdict": change.verdict} for change in changes])
    measured = {change.measure: refocal.metrics.METRICS[change.measure] for change in changes}
    rows = []
    for change in changes:
        metric = measured[change.measure]
        low, high = (f"{metric.scale * end:+.{2 if metric.unit else 4}f}" for end in (change.low, change.high))
        numbers = (metric.text(change.old), metric.text(change.new), f"{low} – {high}".replace("-", "−"))
        p_value = p_value_text(change.p_value, 1.0 - change.level).removeprefix("= ")
        rows.append((change.method, metric.heading, *numbers, p_value, change.verdict))
    print_table(("method", "measure", "old", "new", "difference", "p", "verdict"), rows, ("difference",))
    unit_of = refocal.evaluate.summary.unit_of
    units = f"{unit_of(first)} of {old.name} and {unit_of(second)} of {new.name}"
    level = f"{100 * second.level:g} %"
    say(
        f"Shown in detail: {first.chosen} in {old.name}, {second.chosen} in {new.name}.",
        f"Differences are new less old, each with its {level} interval; {units} count as independent.",
        f"The p-values are adjusted (Holm), so that all verdicts are right together in {level} of cases.",
        *(
            f"Those of {metric.label} are of its distance from {metric.best:g}."
            for metric in measured.values()
            if metric.best is not None
        ),
        *filter(None, [refocal.evaluate.difference.unnamed_classes(first, second)]),
    )
    shown = refocal.evaluate.difference.CHOSEN
    if fail_if_worse and any(change.method == shown and change.verdict == "worse" for change in changes):
        raise Exit(ExitCode.NEGATIVE)


def _read_columns(
    option: str,
    place: Path | str,
    names: list[str],
    reading: dict[str, Any],
    rows: Any,
    in_blocks: bool = False,
) -> dict[str, Any]:
    """The columns of a table that an option names, for the rows that were read from it."""
    import numpy as np

    wanted = split_names(names)
    if in_blocks or reading.get("multi_label"):
        rows_have = "one label per row" if option == "--time" else "two classes"
        raise UsageError(f"{option} is for a table of {rows_have} that is read whole; {place} is not.")
    with about(place):
        raw, _ = options.read_unchecked(Path(place), reading, keeping=True)
    for name in wanted:
        if name not in raw.kept:
            known = ", ".join(raw.kept) or "none"
            raise UsageError(f"{option} must name columns of {place}: {known}. Got {name!r}.")
    return {name: np.asarray(raw.kept[name])[rows.numbers] for name in wanted}


def _using(rows: Any, columns: Mapping[str, Any]) -> Any:
    """The same rows, of which some columns that were not asked for as rows were read are used as well."""
    unused = tuple(name for name in rows.source.unused if name not in columns)
    return replace(rows, source=replace(rows.source, unused=unused))


def _compared(
    validation: Path,
    test: Path | None,
    how: CompareOptions,
    title: str | None,
    reading: dict[str, Any],
    features: list[str] | None = None,
) -> refocal.evaluate.Evaluation:
    registry = refocal.calibrators.registry
    multilabel = refocal.evaluate.multilabel
    choose: Any = multilabel.label_methods if "multi_label" in reading else registry.chosen_methods
    methods = None if how.methods is None else choose(split_names(how.methods))
    options.check_own_labels(reading, filter(None, (validation, test)))
    for place in filter(None, (validation, test)):
        size = place.stat().st_size if place.is_file() else 0
        # Said before memory is gone.
        if size >= large_file() if options.is_text_file(place) else refocal.io.files.is_large(str(place)):
            amount = f"{size / 1e9:.1f} GB" if size else "a data set"
            instead = "refocal fit and refocal evaluate take them in blocks, one method at a time."
            raise UsageError(f"{place}: {amount}; compare needs all rows in memory. {instead}")
    with progress("reading") as update:
        first = options.read_file(validation, **reading)
        if test is None:
            times = None if how.time is None else _read_columns("--time", validation, [how.time], reading, first)
            with about(validation):
                first, second = refocal.io.split(_using(first, times or {}), seed=how.seed, time=times)
        elif how.time is not None:
            raise UsageError(f"--time divides one file into an earlier and a later part; leave out {test}.")
        else:
            with about(test):
                second = options.read_file(test, **reading, **_known_classes(first)).in_order_of(first.class_names)
        if first.input != second.input:
            raise UsageError(f"{validation} holds {first.input} and {test} {second.input}; give two files of one kind.")
        if first.n_classes != second.n_classes:
            sizes = f"{validation} has {first.n_classes} classes and {test} has {second.n_classes}"
            raise UsageError(f"{sizes}; give two files of the same model.")
        asked: dict[str, Any] = {"title": title or (test or validation).stem, "n_resamples": how.resamples}
        if features:
            asked["features"] = _read_columns("--features", test or validation, features, reading, second)
            first = _using(first, asked["features"])
            second = _using(second, asked["features"])
        with about(validation):
            try:
                return refocal.evaluate.compare(first, second, methods, seed=how.seed, progress=update, **asked)
            except DataError as error:
                if error.argument != "test" or test is None:
                    raise
                with about(test):
                    raise


def _known_classes(
    validation: refocal.io.Predictions | refocal.io.MultiLabelPredictions,
) -> dict[str, Any]:
    """The classes of test rows whose columns have no names: those of the validation rows, if these have names."""
    if isinstance(validation, refocal.io.MultiLabelPredictions) or validation.class_names is None:
        return {}
    return {"classes": validation.class_names}


def _finish(
    evaluated: refocal.evaluate.Evaluation | list[refocal.evaluate.Evaluation],
    shared: SharingOptions,
    *lines: str,
    output: Path | None = None,
    report: Path | None = None,
    over_time: bool = False,
    sources: Sequence[Path] = (),
) -> None:
    """Write what was asked for, print an evaluation and `lines`; a code of its own if a requirement does not hold.

    `sources` are the files of several evaluations, which tell their requirements apart.
    """
    every = evaluated if isinstance(evaluated, list) else [evaluated]
    data = {"output": str(report)}
    require = shared.require or ()
    names = [f"{source}: " for source in sources] if len(sources) > 1 else [""] * len(every)
    checks = [
        (name, check)
        for name, each in zip(names, every, strict=True)
        for check in refocal.evaluate.check_requirements(each, require)
    ]
    if not isinstance(evaluated, list):
        data = evaluated.to_dict()
        if output is not None:
            evaluated.save(output)
        print_evaluation(evaluated)
    if report is not None:
        text = "" if shared.notes is None else _text_of(shared.notes)
        with progress("drawing"):
            asked: dict[str, Any] = {"title": shared.title, "notes": text, "require": require}
            refocal.report.write_report(every, report, over_time=over_time, **asked)
    result(data)
    say(*(f"Wrote {file}." for file in (output, report) if file is not None), *lines)
    say(*(f"{'passed' if check.passed else 'FAILED'}: {name}{check.text}" for name, check in checks))
    if not all(check.passed for _, check in checks):
        raise Exit(ExitCode.NEGATIVE)
