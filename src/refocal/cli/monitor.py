"""`refocal monitor`: batches of predictions into a file that remembers, a page of its history, advice."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

import refocal
from refocal._groups import name_of
from refocal._outputs import CALIBRATOR, guard_output
from refocal.cli import options
from refocal.cli.options import HTML_FILE, JSON_FILE, ScoreOptions, about
from refocal.cli.printing import print_table, result, say
from refocal.cli.run import ExitCode, FileProblem, UsageError, explained
from refocal.errors import InputWarning
from refocal.rows.keys import consecutive_numbers, number_keys


@dataclass(frozen=True)
class NewStateOptions:
    """Settings of a state that is new."""

    independent: Annotated[
        bool,
        Option(
            "--independent",
            help=(
                "For a new state: rows are independent even within a period, so that an earlier alarm is possible. By "
                "default whole periods are."
            ),
        ),
    ] = False
    alpha: Annotated[
        float | None,
        Option(
            "--alpha",
            help="For a new state: the probability of a false alarm; default: that of --merge, or else 0.05.",
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """Those that were given."""
        given: dict[str, Any] = {} if self.alpha is None else {"alpha": self.alpha}
        if self.independent:
            given["independent"] = True
        return given


@dataclass(frozen=True)
class BatchOptions:
    """Which period the rows of a batch are of, what other columns they have, and what is added besides."""

    period: Annotated[
        str | None,
        Option(
            "--period",
            help="Period of the batches, such as 2026-05-01; default: the file name. day2 is before day10.",
        ),
    ] = None
    ids: Annotated[
        str | None, Option("--ids", metavar="NAME", help="Column with ids, for labels that arrive later.")
    ] = None
    outcomes: Annotated[
        list[Path] | None,
        Option(
            "--outcomes",
            help="A file with ids and labels of earlier predictions, which are read as the labels of batches.",
        ),
    ] = None
    merge: Annotated[list[Path] | None, Option("--merge", help="Add the state of another monitor.")] = None
    calibrator: Annotated[
        Path | None,
        Option(
            "--calibrator",
            help=(
                "Written by refocal fit; applied first, as in production. Named columns are matched with "
                "its classes, and scores are of the kind that it was fitted on."
            ),
        ),
    ] = None
    cluster: Annotated[
        str | None,
        Option("--cluster", metavar="NAME", help="Column with the period of each row, such as day."),
    ] = None
    groups: Annotated[
        list[str] | None,
        Option("--groups", metavar="NAME", help="Column with groups to watch separately."),
    ] = None


@dataclass(frozen=True)
class BacktestOptions:
    """Whether policies are compared on past batches instead, and how."""

    backtest: Annotated[
        bool,
        Option(
            "--backtest",
            help=(
                "Compare policies of recalibration on these past batches, in the order of their periods; the state "
                "stays as it is."
            ),
        ),
    ] = False
    delay: Annotated[
        int | None,
        Option("--delay", help="For --backtest: how many batches later labels are known; default 0.", min=0),
    ] = None
    recalibrated: Annotated[
        Path | None,
        Option(
            "--recalibrated",
            help="For --backtest with --calibrator: write the calibrator that the recommended policy arrives at here.",
            **JSON_FILE,
        ),
    ] = None


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
    batch: BatchOptions,
    new: NewStateOptions,
    restart: Annotated[
        bool,
        Option(
            "--restart",
            help=(
                "Start over after recalibration: alarms are acknowledged, the test starts anew, with the --calibrator "
                "and the --groups of the next batches."
            ),
        ),
    ] = False,
    past: BacktestOptions,
    fail_if_alarm: Annotated[
        bool, Option("--fail-if-alarm", help="Exit code 3 if the advice is to recalibrate.")
    ] = False,
    scores: ScoreOptions,
) -> None:
    """Watch calibration in production: add batches, join late labels, and say whether to recalibrate.

    refocal monitor monday.csv --probability-column p -o monitor.html
    refocal monitor tuesday.csv --probability-column p --ids id
    refocal monitor --outcomes labels.csv --ids id
    refocal monitor year.parquet --cluster day --calibrator calibrator.json --backtest -o backtest.html
    """
    from refocal.monitor.together import entering_together

    _guard_outputs(state, output, batches or [], batch, scores)
    if not past.backtest:
        _refuse_options_of_no_rows(batches or [], batch, scores)
    fitted = None if batch.calibrator is None else options.load_calibrator(batch.calibrator)
    reading = scores.applied_to(fitted)
    options.check_own_labels(reading, batches or [])
    if past.backtest:
        _refuse_state_options(batch, new, restart=restart, fail_if_alarm=fail_if_alarm)
        _backtest(batches or [], batch, fitted, reading, past, output)
        return
    for option, value in (("--delay", past.delay), ("--recalibrated", past.recalibrated)):
        if value is not None:
            raise UsageError(f"{option} is for --backtest; add it or leave out {option}.")
    if state.is_file() and new.settings():
        raise UsageError(f"--{next(iter(new.settings()))} is for a new state; {state} has its own.")
    if batch.cluster is not None and batch.period is not None:
        raise UsageError("--cluster names the period of each row; leave out --period.")
    watched = _opened(state, new, batch.merge or [], scores.positive_label)
    if not (state.is_file() or batches or batch.merge):  # labels alone are of no predictions
        raise FileNotFoundError(f"{state}: no such file; a new state begins with batches.")
    if scores.positive_label is None and watched.class_names is None and watched.positive_label is not None:
        reading = reading | {"positive_label": watched.positive_label}
    if restart:
        watched.restart()
    if batches:
        _check_same_options(watched, batch, state)
    counted: Counter[str] = Counter()
    with entering_together(watched):
        notes = [_add(watched, file, batch, fitted, reading, counted) for file in batches or []]
        labels_of_ids: dict[str, int] = {}
        notes += [_join(watched, file, batch.ids, reading, labels_of_ids) for file in batch.outcomes or []]
    watched.save(state)
    if output is not None and watched.history():
        refocal.report.write_monitor_page(watched, output, title=state.stem)
    _say_state(watched, notes, state, output)
    if fail_if_alarm and watched.advice().action == "recalibrate":
        raise Exit(ExitCode.NEGATIVE)


def _guard_outputs(
    state: Path, output: Path | None, batches: list[Path], batch: BatchOptions, scores: ScoreOptions
) -> None:
    """Refuse to write over what is read."""
    rows = [*batches, *(batch.outcomes or [])]
    read: dict[str, Any] = {"files": [batch.calibrator, scores.labels], "function": "refocal monitor"}
    for file in (state, refocal.monitor.waiting.waiting_file(state)):
        guard_output(file, rows, argument="state", **read)
    if output is not None:
        guard_output(output, rows, **read)


def _refuse_state_options(batch: BatchOptions, new: NewStateOptions, *, restart: bool, fail_if_alarm: bool) -> None:
    """Refuse options of a state for a backtest, which has none."""
    of_state = {
        "--period": batch.period,
        "--ids": batch.ids,
        "--outcomes": batch.outcomes,
        "--merge": batch.merge,
        "--groups": batch.groups,
        "--alpha": new.alpha,
        "--independent": new.independent,
        "--restart": restart,
        "--fail-if-alarm": fail_if_alarm,
    }
    given = [option for option, value in of_state.items() if value not in (None, False, [])]
    if given:
        why = "--backtest compares policies on past batches and has no state"
        raise UsageError(f"{why}; leave out {', '.join(given)}.")


def _refuse_options_of_no_rows(batches: list[Path], batch: BatchOptions, scores: ScoreOptions) -> None:
    """Refuse options about rows where none are read: they would say nothing, or be those of all later batches."""
    of_rows = [name for name in options.given_options(batch, scores) if name != "--merge"]
    if of_rows and not (batches or batch.outcomes):
        raise UsageError(f"{', '.join(of_rows)}: for batches or --outcomes, of which none are given.")


def _opened(
    state: Path, new: NewStateOptions, merge: list[Path], positive: str | None
) -> refocal.monitor.CalibrationMonitor:
    """The monitor of a state file, or a new one, with what other monitors have seen."""
    made = refocal.monitor.CalibrationMonitor
    others: list[tuple[Path, refocal.monitor.CalibrationMonitor]] = []
    for file in merge:
        with about(file):
            others.append((file, made.load(file)))
    if state.is_file():
        watched = made.load(state)
    else:
        watched = made(**_alpha_of([other for _, other in others], new) | new.settings())
    # The result must not depend on the order of the options: the mean of tests of closed periods would.
    others.sort(key=lambda file_and_monitor: _rank_of_merge(file_and_monitor[1]))
    for place, (file, other) in enumerate(others, start=1):
        with about(file):
            watched.merge(other, raise_alarm=place == len(others))
    if positive is not None:
        known = _positive_so_far(watched, positive)
        if number_keys([positive]) != number_keys([known]):
            raise UsageError(f"--positive-label must be {known!r}, as in {state} so far. Got {positive!r} instead.")
        if not watched.class_names:
            watched.positive_label = positive
    return watched


def _alpha_of(others: list[refocal.monitor.CalibrationMonitor], new: NewStateOptions) -> dict[str, float]:
    """The probability of a false alarm of a new state, unless it is given: that of the monitors merged into it."""
    alphas = sorted({other.alpha for other in others})
    if len(alphas) > 1 and new.alpha is None:
        several = " and ".join(f"{alpha:g}" for alpha in alphas)
        raise UsageError(
            f"The monitors to merge have other probabilities of a false alarm, {several}; say which with --alpha."
        )
    return {"alpha": alphas[0]} if alphas else {}


def _positive_so_far(watched: refocal.monitor.CalibrationMonitor, positive: str) -> str:
    """What the positive class of earlier batches is called; `positive` if these do not say.

    Columns without names are the classes 0 and 1, of which 1 is the positive one. A word may be the name of it.
    """
    names = watched.class_names or ()
    if len(names) == 2:
        return names[1]
    if watched.positive_label is not None:
        return watched.positive_label
    is_number = consecutive_numbers(number_keys([positive])) is not None
    return "1" if is_number and watched.n_classes == 2 else positive


def _rank_of_merge(other: refocal.monitor.CalibrationMonitor) -> tuple[int, int, float, str]:
    """What monitors to merge are sorted by: groups, since a later one may have more; rows; evidence; the id."""
    return len(other.group_columns or ()), sum(period.n for period in other.history()), other.e_value, other.id


def _check_same_options(watched: refocal.monitor.CalibrationMonitor, batch: BatchOptions, state: Path) -> None:
    """Refuse batches that are not calibrated, or not grouped, as those before; otherwise note how these are."""
    again = "After a recalibration, add --restart."
    digest = "" if batch.calibrator is None else hashlib.sha256(batch.calibrator.read_bytes()).hexdigest()
    known = watched.calibrated_by
    if known is not None and known != digest:
        expected = "left out" if known == "" else "the same calibrator"
        got = batch.calibrator or "none"
        raise UsageError(f"--calibrator must be {expected}, as in {state} so far. Got {got} instead. {again}")
    columns = {*(batch.groups or ())}
    missing = [name for name in watched.group_columns or () if name not in columns]
    if missing:
        got = ", ".join(sorted(columns)) or "none"
        names = ", ".join(watched.group_columns or ())
        raise UsageError(f"--groups must name {names}, as in {state} so far. Got {got} instead. {again}")
    watched.calibrated_by = digest
    watched.group_columns = tuple(sorted(columns))


def _say_state(watched: refocal.monitor.CalibrationMonitor, notes: list[str], state: Path, output: Path | None) -> None:
    """Say what became of the batches, how the last periods were, and what is advised."""
    advice = watched.advice()
    history = watched.history()
    trust = watched.trust()
    result({"advice": advice._asdict(), "e_value": watched.e_value, "alarm": watched.alarm,
            "alarms": [asdict(alarm) for alarm in watched.alarms], "independent": watched.independent,
            "expected": [asdict(each) for each in watched.expected()],
            "trust": None if trust is None else trust.sentence,
            "waiting": watched.n_waiting, "notes": notes, "state": str(state)})  # fmt: skip
    say(*notes)
    shown = 10  # periods
    left_out = ("Brier score", "by chance %")  # columns of the page that the terminal does without
    if history:
        table = refocal.report.details.periods_table(history[-shown:], watched.compared)
        print_table([name for name in table[0] if name not in left_out], table)
        say(refocal.report.details.ECE_OF_MONITOR)
    waiting = [f"{watched.n_waiting:,} rows wait for labels."] if watched.n_waiting else []
    unlabelled = [each for each in watched.expected() if each.n_labelled < each.n_predicted]
    if watched.n_waiting and unlabelled:
        last = unlabelled[-1]
        of_all = f"all {last.n_predicted:,} predictions of {last.period}"
        expected = f"accuracy {100 * last.expected_accuracy:.2f} %, log-loss {last.expected_log_loss:.4f}"
        waiting.append(f"Expected of {of_all}, if the probabilities are right: {expected}.")
    if trust is not None and watched.n_waiting:
        waiting.append(trust.sentence)
    say(*waiting, advice.reason, f"Wrote {state}{f' and {output}' if output and history else ''}.")
    if output is not None and not history:
        say(f"No {output} yet: a page needs rows with labels.")


def _backtest(
    files: list[Path],
    batch: BatchOptions,
    fitted: refocal.calibrators.Calibrator | None,
    reading: dict[str, Any],
    past: BacktestOptions,
    output: Path | None,
) -> None:
    """Compare policies on past batches, and say which one is recommended."""
    from refocal.monitor.periods import check_order, in_order

    if not files:
        raise UsageError("--backtest needs past batches with labels.")
    if past.recalibrated is not None:
        if fitted is None:
            raise UsageError("--recalibrated needs the calibrator in use: name it with --calibrator.")
        guard_output(past.recalibrated, files, files=[batch.calibrator], kind=CALIBRATOR, function="refocal monitor")
    batches: list[tuple[str, refocal.io.Predictions]] = []
    known: tuple[str, ...] | None = None
    for file in files:
        raw, reader = options.read_unchecked(file, reading | {"clusters": batch.cluster}, fitted)
        if raw.labels is None:
            raise FileProblem(f"{file}: no labels. Name their column with --labels.")
        if len(raw.values) == 0:
            say(f"{file}: no rows; ignored.")
            continue
        with about(file):
            if fitted is None:
                reader = reader.of_classes(known)
            rows = options.checked(raw, reader, fitted)
            if fitted is None:
                rows = rows.in_order_of(known)
        known = known or rows.class_names
        batches += _by_period(rows, refocal.io.files.stem_of(file))
    # Files of one period need not follow one another.
    check_order([period for period, _ in batches], [], "refocal monitor")
    batches.sort(key=lambda period_and_rows: in_order(period_and_rows[0]))
    comparison = refocal.monitor.backtest(batches, calibrator=fitted, delay=past.delay or 0)
    if output is not None:
        title = "past batches" if batch.calibrator is None else batch.calibrator.stem
        refocal.report.page.write_backtest_page(comparison, output, title=title)
    if past.recalibrated is not None and fitted is not None:
        comparison.calibrator(fitted).save(past.recalibrated)
    result(comparison.to_dict())
    table = refocal.report.details.policies_table(comparison)
    print_table([*table[0]], table)
    say(comparison.reason, *(f"Wrote {file}." for file in (output, past.recalibrated) if file is not None))


def _by_period(rows: refocal.io.Predictions, period: str) -> list[tuple[str, refocal.io.Predictions]]:
    """The rows of each period: those of each cluster, or of one period where rows have no clusters."""
    import numpy as np

    from refocal.monitor.periods import keys_of_rows, period_key

    if rows.clusters is None or rows.cluster_names is None:
        return [(period_key(period, None, "refocal monitor"), rows)]
    names = rows.cluster_names.tolist()
    numbers = np.unique(rows.clusters).tolist()
    keys_of_rows(None, names, len(names), None, "refocal monitor")  # refuses what no order is known of
    return [(names[number], rows.take(np.flatnonzero(rows.clusters == number))) for number in numbers]


def _add(
    watched: refocal.monitor.CalibrationMonitor,
    file: Path,
    batch: BatchOptions,
    fitted: refocal.calibrators.Calibrator | None,
    reading: dict[str, Any],
    counted: Counter[str],
) -> str:
    """Add a batch; says what became of it. `counted` has the labelled rows of this command, by period."""
    # Predictions that wait may come again with labels, where --outcomes has theirs by its usual column of ids.
    ids = batch.ids or ("id" if watched.n_waiting else None)
    period = batch.period or refocal.io.files.stem_of(file)
    groups = reading.get("groups", [])
    of_monitor = batch.groups or []
    of_rows = [*dict.fromkeys([*groups, *of_monitor])]
    of_ids: list[str] = []
    if ids is not None and ids in refocal.io.readers.names_in(file) and ids not in (*of_rows, batch.cluster):
        of_ids = [ids]
    wanted = reading | {"groups": [*of_rows, *of_ids], "clusters": batch.cluster}
    raw, reader = options.read_unchecked(file, wanted, fitted)
    names = raw.groups.get(str(ids)) if batch.ids is not None or raw.labels is not None else None
    # Ids are no groups, of which there may be a few thousand only.
    raw = raw._replace(groups={name: column for name, column in raw.groups.items() if name not in of_ids})
    if len(raw.values) == 0:
        return f"{file}: no rows; ignored."
    if raw.labels is None and names is None:
        why = "" if batch.ids is None else f" and no column {ids!r}"
        say_which = "Name their column with --labels, or ids to wait for them with --ids."
        raise FileProblem(f"{file}: no labels{why}. {say_which}")
    known = watched.class_names
    with about(file):
        if raw.labels is not None and names is not None:
            of_rows_again = names if batch.ids is not None else {*names} - {""}
            refocal.monitor.monitor.check_ids(watched, of_rows_again, len(of_rows_again), "refocal monitor")
        if fitted is None:
            reader = reader.of_classes(known)
        rows = options.checked(raw, reader, fitted).in_order_of(known)
        if raw.is_moved or (reader.class_names and rows.class_names and reader.class_names != rows.class_names):
            watched.columns_moved = True
        watched_groups = {name: column for name, column in rows.groups.items() if name in of_monitor}
        when: dict[str, Any] = {"period": period}
        place = period
        in_periods = Counter({period: len(rows)})
        if rows.clusters is not None and rows.cluster_names is not None:
            periods = rows.cluster_names[rows.clusters].tolist()
            when = {"clusters": periods}
            in_periods = Counter(periods)
            place = f"{len(in_periods):,} periods of {batch.cluster}"
        rows = replace(rows, groups={name: column for name, column in rows.groups.items() if name in groups})
        if known is None and fitted is not None and _can_be_named(rows, fitted):
            watched.class_names = rows.class_names
        if reader.positive_label is not None:  # which says what one number per row was about before
            watched.class_names = known or rows.class_names
        p = options.probabilities_of(rows, fitted)
        before = sum(each.n for each in watched.history() if each.first == each.last and each.first in in_periods)
        before += sum(counted[name] for name in in_periods)
        again = f", which had {before:,} already; the same rows again count twice" if before else ""
        if raw.labels is not None:
            counted += in_periods
            predicted = replace(rows, values=p, input="probabilities", groups=watched_groups)
            n_added = watched.update(predicted, **when)
            _keep_whole_names(watched, reader)
            return f"{file}: {n_added:,} rows counted in {place}{again}. Read {rows.described()}."
        watched.update(replace(rows, values=p, input="probabilities", groups=watched_groups), ids=names, **when)
        _keep_whole_names(watched, reader)
        return f"{file}: {len(p):,} rows wait for labels in {place}{again}. Read {rows.described()}."


def _keep_whole_names(watched: refocal.monitor.CalibrationMonitor, reader: refocal.rows.RowReader) -> None:
    """Keep what the columns of a batch are called, in the order of the classes: later labels may be these names."""
    whole = dict(zip(map(str, reader.class_names or ()), reader.whole_names, strict=False))
    if watched.class_names is not None and {*whole} == {*watched.class_names}:
        watched.whole_names = tuple(whole[name] for name in watched.class_names)


def _can_be_named(rows: refocal.io.Predictions, calibrator: refocal.calibrators.Calibrator) -> bool:
    """Whether earlier batches without names are of the calibrator's classes, as these rows are.

    Where a class could be taken for a column number, their labels may have been.
    """
    from refocal.calibrators.class_order import named_classes
    from refocal.rows.labels import LabelRule

    names = rows.class_names
    if names is None or list(names) != named_classes(calibrator):
        return False
    return not LabelRule(len(names), names).needs_distinct


def _join(
    watched: refocal.monitor.CalibrationMonitor,
    file: Path,
    ids: str | None,
    reading: dict[str, Any],
    labels_of_ids: dict[str, int],
) -> str:
    """Labels of predictions that waited; says how many there were.

    `labels_of_ids` has the labels of the files before, which this one must not contradict.
    """
    import numpy as np

    from refocal.cli.decide import labelled
    from refocal.rows.gate import read_raw

    has = refocal.io.readers.names_in(file)
    usual = ("label", "labels")
    of_ids = ids or "id"
    present = [name for name in usual if name in has]
    if len(present) > 1 and "labels" not in reading:
        raise FileProblem(f"{file}: has 'label' and 'labels'; say which one holds the labels with --labels.")
    of_labels = reading.get("labels") or next(iter(present), "label")
    for option, name in (("--ids", of_ids), ("--labels", of_labels)):
        if name not in has:
            raise FileProblem(f"{file}: no column {name!r}; name it with {option}. It has {', '.join(has)}.")
    of_rows = {name: reading[name] for name in options.OF_ROWS if name in reading}
    named = {"labels": of_labels, "groups": [of_ids]}
    raw, reader = options.read_unchecked(file, of_rows | named, only_labels=True)
    if len(raw.labels) == 0:
        return f"{file}: no rows; ignored."
    given = labelled(raw._replace(values=raw.labels), raw.groups, reader)[of_ids]
    names_of_rows = [name_of(name) for name in given]
    labels: Any = np.zeros(len(given), dtype=np.int64)  # of no waiting prediction
    read = ""
    names = watched.class_names
    if (watched.n_waiting or labels_of_ids) and watched.n_classes is not None:
        with about(file), warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)
            # Labels are read as those of any rows of these classes.
            values = np.full((len(raw.labels), watched.n_classes), 1.0 / watched.n_classes)
            positive = reader.positive_label if names is None else None
            reader = replace(reader, n_classes=watched.n_classes, input="probabilities", class_names=names)
            numbers = None if names is None else consecutive_numbers(number_keys(names))
            if numbers is not None and reader.first_label == min(numbers):
                reader = replace(reader, first_label=None)  # classes called as labels count, in whatever order they are
            uniform = raw._replace(values=values, groups={})
            rows = read_raw(uniform, replace(reader, positive_label=positive, whole_names=watched.whole_names or ()))
            watched.class_names = names or rows.class_names
            if names is not None and rows.label_map is not None and rows.label_map.columns is None:
                refocal.monitor.columns.check_counted(names, watched.columns_moved, "monitor")
            classes = np.array([rows.name_of(i) for i in range(rows.n_classes)])
            labels = rows.labels if watched.class_names is None else classes[rows.labels]
            both = [*labels_of_ids, *names_of_rows]
            refocal.monitor.waiting.first_of_each_id(both, [*labels_of_ids.values(), *rows.labels.tolist()], "monitor")
            source = replace(rows.source, place="", labels=of_labels, columns=(), unused=())
            read = f" Read {source.sentence(classes.tolist(), None)}."
            labels_of_ids.update(zip(names_of_rows, rows.labels.tolist(), strict=True))
    with about(file), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InputWarning)
        matched = watched.add_labels(given, labels)
    said = [f"Warning: {explained(warning.message)}" for warning in caught if isinstance(warning.message, InputWarning)]
    return " ".join([f"{file}: {matched:,} labels matched with predictions.{read}", *said])
