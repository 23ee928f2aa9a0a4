"""`refocal monitor`: batches of predictions into a file that remembers, a page of its history, advice."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

import refocal
from refocal._outputs import guard_output
from refocal.cli import options
from refocal.cli.options import HTML_FILE, JSON_FILE, ScoreOptions, about
from refocal.cli.printing import print_table, result, say
from refocal.cli.run import FileProblem, UsageError
from refocal.errors import InputWarning

ALARM = 3
SHOWN = 10
LEFT_OUT = ("Brier score", "by chance %")


def monitor(
    batches: Annotated[
        list[Path] | None,
        Argument(
            metavar="BATCHES",
            help=(
                "Predictions, with their labels or ids: files as compare reads them. Named columns are "
                "matched with those of earlier batches, of which the second of two is the positive class "
                "unless --positive-label says which is."
            ),
        ),
    ] = None,
    *,
    state: Annotated[Path, Option("--state", help="State file of the monitor.", **JSON_FILE)] = Path("monitor.json"),
    output: Annotated[
        Path | None, Option("-o", "--output", help="Write a page of the history here.", **HTML_FILE)
    ] = None,
    period: Annotated[
        str | None,
        Option(
            "--period",
            help="Period of the batches, such as 2026-05-01; default: the file name. day2 is before day10.",
        ),
    ] = None,
    ids: Annotated[
        str | None, Option("--ids", metavar="NAME", help="Column with ids, for labels that arrive later.")
    ] = None,
    outcomes: Annotated[
        list[Path] | None,
        Option(
            "--outcomes",
            help="A file with ids and labels of earlier predictions, which are read as the labels of batches.",
        ),
    ] = None,
    merge: Annotated[list[Path] | None, Option("--merge", help="Add the state of another monitor.")] = None,
    calibrator: Annotated[
        Path | None,
        Option(
            "--calibrator",
            help=(
                "Written by refocal fit; applied first, as in production. Named columns are matched with "
                "its classes, and scores are of the kind that it was fitted on."
            ),
        ),
    ] = None,
    alpha: Annotated[
        float | None, Option("--alpha", help="For a new state: the probability of a false alarm; default 0.05.")
    ] = None,
    restart: Annotated[
        bool, Option("--restart", help="Start over after recalibration; predictions without labels are kept.")
    ] = False,
    fail_if_alarm: Annotated[
        bool, Option("--fail-if-alarm", help="Exit code 3 if the advice is to recalibrate.")
    ] = False,
    scores: ScoreOptions,
) -> None:
    """Watch calibration in production: add batches, join late labels, and say whether to recalibrate.

    refocal monitor monday.csv --probability-column p -o monitor.html
    refocal monitor tuesday.csv --probability-column p --ids id
    refocal monitor --outcomes labels.csv --ids id
    """
    from refocal.rows.labels import label_key

    rows = [*(batches or []), *(outcomes or [])]
    read: dict[str, Any] = {"files": [calibrator, scores.labels], "function": "refocal monitor"}
    for file in (state, refocal.monitor.monitor.waiting_file(state)):
        guard_output(file, rows, argument="state", **read)
    if output is not None:
        guard_output(output, rows, **read)
    made = refocal.monitor.CalibrationMonitor
    fitted = None if calibrator is None else options.load_calibrator(calibrator)
    reading = scores.applied_to(fitted)
    settings: dict[str, Any] = {} if alpha is None else {"alpha": alpha}
    if state.is_file() and settings:
        raise UsageError(f"--alpha is for a new state; {state} has its own.")
    watched = made.load(state) if state.is_file() else made(**settings)
    for file in merge or []:
        with about(file):
            watched.merge(made.load(file))
    positive = scores.positive_label
    names = watched.class_names or ()
    if positive is not None and len(names) == 2 and label_key(positive) != label_key(names[1]):
        raise UsageError(f"--positive-label must be {names[1]!r}, as in {state} so far. Got {positive!r} instead.")
    if restart:
        watched.restart()
    notes = [
        _add(watched, file, period or refocal.io.files.stem_of(file), ids, fitted, reading) for file in batches or []
    ]
    notes += [_join(watched, file, ids, reading) for file in outcomes or []]
    watched.save(state)
    advice = watched.advice()
    history = watched.history()
    if output is not None and history:
        refocal.report.write_monitor_page(watched, output, title=state.stem)
    result({"advice": advice._asdict(), "e_value": watched.e_value, "alarm": watched.alarm,
            "waiting": watched.n_waiting, "notes": notes, "state": str(state)})  # fmt: skip
    say(*notes)
    if history:
        table = refocal.report.details.periods_table(history[-SHOWN:], watched.compared)
        print_table([name for name in table[0] if name not in LEFT_OUT], table)
    waiting = [f"{watched.n_waiting:,} rows wait for labels."] if watched.n_waiting else []
    say(*waiting, advice.reason, f"Wrote {state}{f' and {output}' if output and history else ''}.")
    if output is not None and not history:
        say(f"No {output} yet: a page needs rows with labels.")
    if fail_if_alarm and advice.action == "recalibrate":
        raise Exit(ALARM)


def _add(
    watched: refocal.monitor.CalibrationMonitor,
    file: Path,
    period: str | None,
    ids: str | None,
    fitted: refocal.calibrators.Calibrator | None,
    reading: dict[str, Any],
) -> str:
    """Add a batch, whose period is by default called as the file is; says what became of it."""
    period = period or refocal.io.files.stem_of(file)
    groups = reading.get("groups", [])
    has_ids = ids is not None and ids in refocal.io.readers.names_in(file)
    raw, reader = options.read_unchecked(file, reading | {"groups": [*groups, ids]} if has_ids else reading, fitted)
    names = raw.groups.get(str(ids))
    raw = raw._replace(groups={name: column for name, column in raw.groups.items() if name in groups})
    if len(raw.values) == 0:
        return f"{file}: no rows; ignored."
    if raw.labels is None and names is None:
        why = "" if ids is None else f" and no column {ids!r}"
        say_which = "Name their column with --labels, or ids to wait for them with --ids."
        raise FileProblem(f"{file}: no labels{why}. {say_which}")
    known = watched.class_names
    if known is not None and reader.class_names is None and fitted is None and len(known) == reader.n_classes:
        reader = replace(reader, class_names=known)
    with about(file):
        rows = options.checked(raw, reader, fitted).in_order_of(known)
        if reader.positive_label is not None:  # which says what one number per row was about before
            watched.class_names = known or rows.class_names
        p = options.probabilities_of(rows, fitted)
        if raw.labels is not None:
            before = sum(each.n for each in watched.history() if each.first == each.last == period)
            again = f", which had {before:,} already; the same rows again count twice" if before else ""
            predicted = replace(rows, values=p, input="probabilities")
            counted = f"{watched.update(predicted, period=period):,} rows counted in {period}{again}"
            return f"{file}: {counted}. Read {rows.described()}."
        watched.update(replace(rows, values=p, input="probabilities"), ids=names, period=period)
        return f"{file}: {len(p):,} rows wait for labels in {period}. Read {rows.described()}."


def _join(watched: refocal.monitor.CalibrationMonitor, file: Path, ids: str | None, reading: dict[str, Any]) -> str:
    """Labels of predictions that waited; says how many there were."""
    import numpy as np

    from refocal.cli.decide import labelled
    from refocal.rows.gate import read_raw

    has = refocal.io.readers.names_in(file)
    usual = ("label", "labels")
    of_ids = ids or "id"
    of_labels = reading.get("labels") or next((name for name in usual if name in has), "label")
    for option, name in (("--ids", of_ids), ("--labels", of_labels)):
        if name not in has:
            raise FileProblem(f"{file}: no column {name!r}; name it with {option}. It has {', '.join(has)}.")
    of_rows = {name: reading[name] for name in options.OF_ROWS if name in reading}
    named = {"labels": of_labels, "groups": [of_ids]}
    raw, reader = options.read_unchecked(file, of_rows | named, only_labels=True)
    if len(raw.labels) == 0:
        return f"{file}: no rows; ignored."
    given = labelled(raw._replace(values=raw.labels), raw.groups, reader)[of_ids]
    matched = 0
    names = watched.class_names
    if watched.n_waiting and watched.n_classes is not None:
        with about(file), warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)
            # Labels are read as those of any rows of these classes.
            values = np.full((len(raw.labels), watched.n_classes), 1.0 / watched.n_classes)
            positive = reader.positive_label if names is None else None
            reader = replace(reader, n_classes=watched.n_classes, input="probabilities", class_names=names)
            uniform = raw._replace(values=values, groups={})
            rows = read_raw(uniform, replace(reader, positive_label=positive, whole_names=()))
            watched.class_names = names or rows.class_names
            classes = np.array([rows.name_of(i) for i in range(rows.n_classes)])
            labels = rows.labels if watched.class_names is None else classes[rows.labels]
            matched = watched.add_labels(given, labels)
    left = f"; {len(given) - matched:,} ids match no waiting prediction" if matched < len(given) else ""
    return f"{file}: {matched:,} labels matched with predictions{left}."
