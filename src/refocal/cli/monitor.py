"""`refocal monitor`: batches of predictions into a file that remembers, a page of its history, advice."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

from typer import Exit

import refocal
from refocal.cli import options
from refocal.cli.options import HTML_FILE, JSON_FILE, ScoreOptions, about
from refocal.cli.printing import print_table, result, say
from refocal.cli.run import FileProblem, UsageError
from refocal.errors import InputWarning

ALARM = 3
SHOWN = 10
LEFT_OUT = ("Brier score", "by chance %")


def monitor(
    batches: list[Path] | None = None,
    *,
    state: Annotated[Path, JSON_FILE] = Path("monitor.json"),
    output: Annotated[Path | None, HTML_FILE] = None,
    period: str | None = None,
    ids: str | None = None,
    outcomes: list[Path] | None = None,
    merge: list[Path] | None = None,
    calibrator: Path | None = None,
    alpha: float | None = None,
    restart: bool = False,
    fail_if_alarm: bool = False,
    scores: ScoreOptions,
) -> None:
    """Watch calibration in production: add batches, join late labels, and say whether to recalibrate.

    BATCHES  Predictions, with their labels or ids: files as compare reads them.
    --state  State file of the monitor.
    -o, --output  Write a page of the history here.
    --period  Period of the batches, such as 2026-05-01; default: the file name.
    --ids NAME  Column with ids, for labels that arrive later.
    --outcomes  A file with ids and labels of earlier predictions.
    --merge  Add the state of another monitor.
    --calibrator  Written by refocal fit; applied first, as in production.
    --alpha  For a new state: the probability of a false alarm; default 0.05.
    --restart  Start over after recalibration; predictions without labels are kept.
    --fail-if-alarm  Exit code 3 if the advice is to recalibrate.

    refocal monitor monday.csv --probability-column p -o monitor.html
    refocal monitor tuesday.csv --probability-column p --ids id
    refocal monitor --outcomes labels.csv --ids id
    """
    made = refocal.monitor.CalibrationMonitor
    fitted = None if calibrator is None else options.load_calibrator(calibrator)
    reading = scores.applied_to(fitted)
    settings = {} if alpha is None else {"alpha": alpha}
    if state.is_file() and settings:
        raise UsageError(f"--alpha is for a new state; {state} has its own.")
    watched = made.load(state) if state.is_file() else made(**settings)
    for file in merge or []:
        with about(file):
            watched.merge(made.load(file))
    if restart:
        watched.restart()
    notes = [_add(watched, file, period or file.stem, ids, fitted, reading) for file in batches or []]
    notes += [_join(watched, file, ids, scores.labels) for file in outcomes or []]
    watched.save(state)
    advice, history = watched.advice(), watched.history()
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
    period: str,
    ids: str | None,
    fitted: refocal.calibrators.Calibrator | None,
    reading: dict[str, Any],
) -> str:
    """Add a batch; says what became of it."""
    groups, has = reading.get("groups", []), [] if ids is None else refocal.io.readers.names_in(file)
    found = options.read_unchecked(file, reading | {"groups": [*groups, ids]} if ids in has else reading)
    names = found.groups.get(str(ids))
    found = found._replace(groups={name: column for name, column in found.groups.items() if name in groups})
    if len(found.values) == 0:
        return f"{file}: no rows; ignored."
    if found.labels is None and names is None:
        why = "" if ids is None else f" and no column {ids!r}"
        say_which = "Name their column with --labels, or ids to wait for them with --ids."
        raise FileProblem(f"{file}: no labels{why}. {say_which}")
    with about(file):
        rows = options.checked(found, reading, fitted)
        p = options.probabilities_of(rows, fitted)
        if found.labels is not None:
            before = sum(each.n for each in watched.history() if each.first == each.last == period)
            again = f", which had {before:,} already; the same rows again count twice" if before else ""
            return f"{file}: {watched.update(p, rows.labels, period=period):,} rows counted in {period}{again}."
        watched.update(p, ids=names, period=period)
        return f"{file}: {len(p):,} rows wait for labels in {period}."


def _join(watched: refocal.monitor.CalibrationMonitor, file: Path, ids: str | None, labels: str | None) -> str:
    """Labels of predictions that waited; says how many there were."""
    has = refocal.io.readers.names_in(file)
    of_ids, of_labels = ids or "id", labels or next((name for name in ("label", "labels") if name in has), "label")
    for option, name in (("--ids", of_ids), ("--labels", of_labels)):
        if name not in has:
            raise FileProblem(f"{file}: no column {name!r}; name it with {option}. It has {', '.join(has)}.")
    found = refocal.io.read_values(file, values=of_labels, groups=[of_ids])
    if len(found.values) == 0:
        return f"{file}: no rows; ignored."
    given, true = found.groups[of_ids], found.values
    with about(file), warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        matched = watched.add_labels(given, true)
    left = f"; {len(given) - matched:,} ids match no waiting prediction" if matched < len(given) else ""
    return f"{file}: {matched:,} labels matched with predictions{left}."
