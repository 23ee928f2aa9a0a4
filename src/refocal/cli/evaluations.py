"""`refocal demo`, `compare`, `evaluate`, `report` and `diff`: evaluations are made, shown and compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Exit, Option

from refocal.cli import options
from refocal.cli.options import ONLY_HTML, ONLY_JSON, BlockOptions, RowOptions, Source, check_output
from refocal.cli.printing import left_out, print_evaluation, print_table, progress, result, say
from refocal.cli.rows import about, is_large, is_text, open_rows, read_file, with_groups_of
from refocal.cli.run import UsageError

if TYPE_CHECKING:
    from refocal.evaluate import Evaluation

REQUIREMENT_FAILED = 3
DEMO_METHODS = ("auto", "ts", "focal", "fts", "fts-nll")

Resamples = Annotated[int, Option(min=1, help="Resamples of the bootstrap.")]
Seed = Annotated[int, Option(min=0, help="Seed of the bootstrap and of splits.")]


@dataclass(frozen=True)
class CompareOptions:
    """Which methods are compared, and how.

    --method, --methods, -m  Several with commas, by default the usual ones, 'all' for every one: METHODS.
    """

    methods: Annotated[list[str] | None, {"autocompletion": options.complete_method}] = None
    resamples: Resamples = 500
    seed: Seed = 0


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

    def check(self, output: Path | None, report: Path | None) -> None:
        """Complain about where to write and about what is required before anything is computed."""
        from refocal.evaluate.requirements import parse_requirements

        parse_requirements(self.require or ())
        check_output(output, ONLY_JSON)
        check_output(report, ONLY_HTML)


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


def demo(
    sample: str = "cifar100-focal7",
    output: Path = Path("report.html"),
    resamples: Resamples = 500,
    seed: Seed = 0,
) -> None:
    """Calibrate a bundled example network and write a report about it.

    --sample  cifar100-focal7, cifar10-focal3 or cifar10-cross-entropy.
    -o, --output  Where to write the report.

    refocal demo --sample cifar10-focal3 -o report.html
    """
    from refocal._validation import check_option
    from refocal.evaluate import compare
    from refocal.io import SAMPLES, load_sample

    check_output(output, ONLY_HTML)
    check_option(sample, tuple(SAMPLES), "sample", "demo")
    parts, title = load_sample(sample), SAMPLES[sample]
    with progress("reading") as update:
        found = compare(*parts, DEMO_METHODS, title=title, n_resamples=resamples, seed=seed, progress=update)
    _finish(found, ResultOptions(report=output))


def evaluate(
    test: Source,
    calibrators: list[Path] | None = None,
    *,
    shared: ResultOptions,
    rows: RowOptions,
    resamples: Annotated[int | None, {"min": 1}] = None,
    seed: Annotated[int | None, {"min": 0}] = None,
    blocks: BlockOptions,
) -> None:
    """Measure calibrators on test rows, next to the uncalibrated model.

    CALIBRATORS  Written by refocal fit; without any, the model alone.
    --resamples  Resamples of the bootstrap, by default 500; in memory only.
    --seed  Seed of the bootstrap; in memory only.

    refocal evaluate test.npz calibrator.json --report report.html
    """
    from refocal.calibrators._labels import named_classes
    from refocal.evaluate import evaluate as measure

    shared.check(shared.output, shared.report)
    fitted: dict[str, Any] = {}
    for file in calibrators or []:
        if file.stem in fitted or file.stem == "none":
            raise UsageError(f"{file}: two calibrators would be called {file.stem!r}; give the files different names.")
        fitted[file.stem] = options.load_calibrator(file)
    reading = with_groups_of(rows.arguments(), *fitted.values())
    asked: dict[str, Any] = {
        "chosen": next(iter(fitted)) if len(fitted) == 1 else None,
        "title": shared.title or Path(test).stem,
        "n_resamples": resamples,
        "seed": seed,
    }
    in_memory, lines = resamples is not None or seed is not None, []
    with (
        progress("reading") as update,
        open_rows(test, "measuring", update, blocks, reading, suits=not in_memory) as (read, in_blocks),
    ):
        if in_blocks:
            found = measure(read, fitted, **asked)
            lines = left_out(read.n_skipped, len(read.bad_parts))
        else:
            if not rows.multi_label:  # whose labels are known by their names
                # In the order of the columns that the first was fitted on; a calibrator of another order is refused.
                read = read.in_order_of(next(filter(None, map(named_classes, fitted.values())), None))
            found = measure(read, fitted, progress=update, **asked)
    _finish(found, shared, *lines)


def compare(
    validation: Path,
    test: Path | None = None,
    *,
    how: CompareOptions,
    shared: ResultOptions,
    rows: RowOptions,
) -> None:
    """Fit every method on VALIDATION, rank them on TEST, and say which to use.

    VALIDATION  Logits and labels: .npz .npy .csv .tsv .jsonl .parquet .safetensors .pt
    TEST  Without it, half of the rows are held out for testing.

    refocal compare val.npz test.npz --report report.html
    refocal compare all.csv -m ts -m fts -o evaluation.json
    """
    from refocal.calibrators.registry import GROUPED

    shared.check(shared.output, shared.report)
    reading = rows.arguments()
    found = _compared(validation, test, how, shared.title, reading)
    if found.chosen not in GROUPED:
        reading.pop("groups", None)
    more = options.as_given(**reading)
    next_ = f"Next: refocal fit {validation} --method {found.chosen}{more} -o calibrator.json"
    _finish(found, shared, *([] if found.chosen == "none" else [next_]))


def report(
    sources: list[Path],
    *,
    output: Path = Path("report.html"),
    shared: SharingOptions,
    how: CompareOptions,
    rows: RowOptions,
) -> None:
    """Write the HTML report of an evaluation, or compare two files and report the result.

    SOURCES  An evaluation (.json) or several, side by side; or the validation and the test rows.
    -o, --output  Where to write it.

    refocal report evaluation.json -o report.html
    refocal report val.npz test.npz
    refocal report may.json june.json --title 'Our model' --notes notes.md --require 'ece<2%'
    """
    from refocal.evaluate import load_evaluation

    shared.check(None, output)
    are_evaluations = [source.suffix.lower() == ".json" for source in sources]
    if all(are_evaluations):
        found = [load_evaluation(source) for source in sources]
    elif any(are_evaluations) or len(sources) > 2:
        raise UsageError("report takes either evaluations (.json) or one or two files of rows, not both.")
    else:
        test = sources[1] if len(sources) == 2 else None
        found = [_compared(sources[0], test, how, shared.title, rows.arguments())]
    _finish(found, ResultOptions(report=output, **vars(shared)))


def diff(old: Path, new: Path, fail_if_worse: bool = False) -> None:
    """Say what changed between two evaluations, and whether that is more than chance.

    OLD  An evaluation (.json) made by compare or evaluate with -o.
    NEW  Another one, of a later date or another model.
    --fail-if-worse  Exit code 3 if the method shown in detail is significantly worse.

    refocal diff may.json june.json --fail-if-worse
    """
    from refocal.evaluate import differences, load_evaluation
    from refocal.evaluate.difference import CHOSEN
    from refocal.metrics import METRICS

    first, second = load_evaluation(old), load_evaluation(new)
    changes = differences(first, second)
    result([{**change._asdict(), "verdict": change.verdict} for change in changes])
    rows = []
    for change in changes:
        metric = METRICS[change.measure]
        low, high = (f"{metric.scale * end:+.{2 if metric.unit else 4}f}" for end in (change.low, change.high))
        numbers = (metric.text(change.old), metric.text(change.new), f"{low} – {high}".replace("-", "−"))
        rows.append((change.method, metric.heading, *numbers, change.verdict))
    print_table(("method", "measure", "old", "new", "difference", "verdict"), rows, ("difference",))
    say(
        f"Shown in detail: {first.chosen} in {old.name}, {second.chosen} in {new.name}.",
        "Differences are new less old with 95 % intervals, for test rows that are independent.",
    )
    if fail_if_worse and any(change.method == CHOSEN and change.verdict == "worse" for change in changes):
        raise Exit(REQUIREMENT_FAILED)


def _compared(
    validation: Path, test: Path | None, how: CompareOptions, title: str | None, reading: dict[str, Any]
) -> Evaluation:
    from refocal.calibrators.registry import chosen_methods
    from refocal.evaluate import compare as fit_and_measure
    from refocal.evaluate.multilabel import label_methods
    from refocal.io import split

    choose: Any = label_methods if "multi_label" in reading else chosen_methods
    methods = None if how.methods is None else choose([name for text in how.methods for name in text.split(",")])
    for place in filter(None, (validation, test)):
        size = place.stat().st_size if place.is_file() else 0
        # Said before memory is gone.
        if is_large(str(place), suits=False) or (is_text(str(place)) and size >= 1 << 30):
            what = f"{size / 1e9:.1f} GB" if size else "a data set"
            raise UsageError(
                f"{place}: {what}; compare needs all rows in memory. refocal fit and refocal evaluate take them "
                "in blocks, one method at a time."
            )
    with progress("reading") as update:
        first = read_file(validation, **reading)
        if test is None:
            first, second = split(first, seed=how.seed)
        else:
            with about(test):
                second = read_file(test, **reading).in_order_of(first.class_names)
        if first.n_classes != second.n_classes:
            sizes = f"{validation} has {first.n_classes} classes and {test} has {second.n_classes}"
            raise UsageError(f"{sizes}; give two files of the same model.")
        asked: dict[str, Any] = {"title": title or (test or validation).stem, "n_resamples": how.resamples}
        with about(validation):
            return fit_and_measure(first, second, methods, seed=how.seed, progress=update, **asked)


def _finish(found: Evaluation | list[Evaluation], shared: ResultOptions, *lines: str) -> None:
    """Write what was asked for, print an evaluation and `lines`; a code of its own if a requirement does not hold."""
    from refocal.evaluate import Evaluation, check_requirements

    every, data = [found] if isinstance(found, Evaluation) else found, {"output": str(shared.report)}
    if isinstance(found, Evaluation):
        data = found.to_dict()
        if shared.output is not None:
            found.save(shared.output)
        print_evaluation(found)
    if shared.report is not None:
        from refocal.report import write_report

        text = "" if shared.notes is None else shared.notes.read_text(encoding="utf-8")
        with progress("drawing"):
            write_report(every, shared.report, title=shared.title, notes=text, require=shared.require or ())
    checks = [check for each in every for check in check_requirements(each, shared.require or ())]
    result(data)
    say(*(f"Wrote {file}." for file in (shared.output, shared.report) if file is not None), *lines)
    say(*(f"{'passed' if check.passed else 'FAILED'}: {check.text}" for check in checks))
    if not all(check.passed for check in checks):
        raise Exit(REQUIREMENT_FAILED)
