"""`refocal decide`: the cheapest action of each row, and what deciding so costs where labels are known."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

import refocal
from refocal._outputs import guard_output
from refocal._validation import number_of_text
from refocal.cli import options
from refocal.cli.options import DecidedOptions, about, output_file
from refocal.cli.printing import print_table, result, say, say_read
from refocal.cli.run import UsageError
from refocal.rows.class_names import without_beginnings
from refocal.rows.keys import label_key, number_keys

ABSTAINED = "abstain"


def decide(
    file: Annotated[Path, Argument(metavar="FILE", help="Predictions, with or without labels: as compare reads them.")],
    *,
    calibrator: Annotated[
        Path | None,
        Option(
            "--calibrator",
            help=(
                "Written by refocal fit; its probabilities are used. Named columns are matched with its "
                "classes, and scores are of the kind that it was fitted on."
            ),
        ),
    ] = None,
    false_positive: Annotated[
        float | None, Option("--false-positive", help="Two classes: the cost of a false alarm.")
    ] = None,
    false_negative: Annotated[
        float | None, Option("--false-negative", help="Two classes: the cost of a missed positive.")
    ] = None,
    costs: Annotated[
        str | None,
        Option(
            "--costs",
            metavar="TABLE",
            help=(
                "A row for each class, in the order of the calibrator's or of the file, and a column for "
                "each action: '0,1;5,0', or a .csv file of numbers."
            ),
        ),
    ] = None,
    abstain: Annotated[float | None, Option("--abstain", help="Cost of leaving a row undecided.")] = None,
    output: Annotated[
        Path | None,
        Option(
            "-o",
            "--output",
            help="Write the decisions here, .csv, beside the other columns of a table, such as ids.",
            **output_file(".csv"),
        ),
    ] = None,
    scores: DecidedOptions,
) -> None:
    """Take the action of least expected cost for each row, and measure the cost if labels are known.

    refocal decide test.csv --probability-column p --false-positive 1 --false-negative 9
    refocal decide new.npz --calibrator calibrator.json --costs '0,2,8;3,0,8;60,60,0' -o decisions.csv
    """
    if output is not None:
        guard_output(output, [file], files=[calibrator, costs, scores.labels], function="refocal decide")
    table = _table(costs, false_positive, false_negative)
    fitted = None if calibrator is None else _loaded(calibrator)
    with about(file):
        raw, reader = options.read_unchecked(file, scores.applied_to(fitted), fitted, keeping=output is not None)
        rows = options.checked(raw, reader, fitted)
        classes = _names_of_classes(rows, reader)
        actions = classes
        if costs is not None:
            table, actions = _in_order_of_rows(table, rows, reader, fitted, classes)
        actions = _names_of_actions(actions, table.shape[1], abstain)
        p = {"uncalibrated": options.probabilities_of(rows)}
        if fitted is not None:
            p["calibrated"] = options.probabilities_of(rows, fitted)
        rows = replace(rows, class_names=tuple(classes))
    say_read(rows.described())
    *_, used = p.values()
    decisions = refocal.decide.best_actions(used, table, abstain=abstain)
    n_abstained = int((decisions.action == -1).sum())
    said: dict[str, Any] = {"read": rows.described(), "rows": len(rows), "abstained": n_abstained}
    if table.shape == (2, 2):
        named = [f"class {name}" if isinstance(label_key(name), int) else name for name in actions]
        said |= _say_threshold(table, abstain, named)
    reports: dict[str, refocal.decide.DecisionReport] = {}
    if raw.labels is not None:
        reports = _measured(p, table, abstain, rows, scores.groups or [])
        _say_costs(reports, rows, actions)
    if n_abstained:
        say(f"{n_abstained:,} of {len(rows):,} rows are left undecided.")
    if output is not None:
        _write(output, rows, used, decisions, actions, raw, reader)
        said["output"] = str(output)
        n_left_out = len(raw.values) - len(rows)
        said["rows_left_out"] = n_left_out
        left_out = f" Rows of weight 0 or without a label have none: {n_left_out:,}." if n_left_out else ""
        say(f"Wrote {output}: a decision for each of {len(rows):,} rows.{left_out}")
    result(said | {"reports": {name: asdict(report) for name, report in reports.items()}})


def _loaded(calibrator: Path) -> refocal.calibrators.Calibrator:
    """A calibrator of rows that have one label each."""
    from refocal.calibrators import MultiLabelCalibration

    fitted = options.load_calibrator(calibrator)
    if isinstance(fitted, MultiLabelCalibration):
        why = "a row has several labels, and decide takes one action for a row"
        raise UsageError(f"{calibrator}: a calibrator of several labels; {why}. Decide label by label in Python.")
    return fitted


def _say_threshold(table: Any, abstain: float | None, actions: list[str]) -> dict[str, Any]:
    """Say from which probability on the second of two actions is taken; the same as values for JSON."""
    threshold = refocal.decide.optimal_threshold(table)
    said: dict[str, Any] = {"threshold": threshold}
    low = threshold
    high = threshold
    if abstain is not None:
        low, high = refocal.decide.abstention_interval(table, abstain)
        said["abstain_between"] = (low, high)
    # Leaving a row undecided may cost less than even the right decision.
    decided = [abstain is None or abstain >= cost_of_right for cost_of_right in table.diagonal().tolist()]
    first, second = actions
    above = f"{_beginning(second)} is decided above a probability of {threshold:.4g}"
    if low == high:  # where both decisions cost the same the first is taken
        say(f"{above}.")
    elif threshold < low:  # one class costs more than the other, whatever is decided
        say(f"{above} and up to {low:.4g}, {first} up to {threshold:.4g}.")
    elif threshold > high:
        say(f"{above}, {first} from {high:.4g} on and up to {threshold:.4g}.")
    elif not any(decided):
        say("No row is decided: each decision costs more than leaving a row undecided, even where it is right.")
    elif not decided[1]:
        say(f"{_beginning(first)} is decided up to a probability of {low:.4g}, {second} never.")
    else:
        up_to = f"up to {low:.4g}" if decided[0] else "never"
        say(f"{_beginning(second)} is decided from a probability of {high:.4g} on, {first} {up_to}.")
    return said


def _beginning(name: str) -> str:
    """A class at the beginning of a sentence, where its own name stays as it is written.

    >>> _beginning("class 1"), _beginning("late")
    ('Class 1', 'late')
    """
    return refocal.evaluate.summary.capital(name) if name.startswith("class ") else name


def _measured(
    probabilities: Mapping[str, Any],
    table: Any,
    abstain: float | None,
    rows: refocal.io.Predictions,
    groups: Sequence[str],
) -> dict[str, refocal.decide.DecisionReport]:
    """What decisions by each of the probabilities cost on rows with labels."""
    return {
        name: refocal.decide.evaluate_decisions(
            rows.labels,
            p,
            table,
            abstain=abstain,
            sample_weight=rows.weight,
            clusters=rows.clusters,
            groups={group: rows.groups[group] for group in groups},
        )
        for name, p in probabilities.items()
    }


def _say_costs(
    reports: Mapping[str, refocal.decide.DecisionReport], rows: refocal.io.Predictions, actions: list[str]
) -> None:
    """Print what decisions cost, the last of the reports group by group."""
    import numpy as np

    costs_of = [_cost_row(name, report) for name, report in reports.items()]
    print_table(costs_of[0], costs_of)
    name, last = list(reports.items())[-1]
    action = ABSTAINED if last.fixed_action < 0 else f"action {actions[last.fixed_action]}"
    say(f"One action for all rows costs {last.fixed_cost:.4f} at least ({action}).")
    if last.groups:
        together = f"{len(last.groups)} groups, with 95 % intervals that hold for all of these numbers together:"
        say(f"Decisions by the {name} probabilities in {together}")
        of_groups = [_group_row(group) for group in last.groups]
        print_table(of_groups[0], of_groups, ("cost",))
    if rows.clusters is not None:
        n_clusters = len(np.unique(rows.clusters))
        say(f"Intervals rest on {n_clusters:,} clusters ({rows.cluster_name}) of the {len(rows):,} rows.")


def _write(
    output: Path,
    rows: refocal.io.Predictions,
    p: Any,
    decisions: refocal.decide.Decisions,
    actions: list[str],
    raw: refocal.rows.RawRows,
    reader: refocal.rows.RowReader,
) -> None:
    """Write the probabilities, decisions, their expected costs and the labels, beside the other columns of a table."""
    names = {-1: ABSTAINED, **dict(enumerate(actions))}
    shown = range(1, 2) if rows.n_classes == 2 else range(rows.n_classes)
    columns: dict[str, Any] = {f"p_{rows.name_of(i)}": p[:, i] for i in shown}
    columns["decision"] = [names[action] for action in decisions.action.tolist()]
    columns["expected_cost"] = decisions.expected_cost
    kept = labelled(raw, raw.kept, reader)
    if raw.labels is not None:
        name = _label_column(rows, {*kept, *columns})
        columns[name] = [rows.name_of(int(label)) for label in rows.labels]
    refocal.io.writers.write_table(output, refocal.io.writers.beside(columns, kept, {}))


def _label_column(rows: refocal.io.Predictions, taken: set[str]) -> str:
    """What the column of the outcomes is called: as in the table that was read, where it is one."""
    name = rows.source.labels
    is_column = bool(name) and not Path(name).suffix
    return name if is_column and name not in taken else "label"


def _group_row(group: refocal.decide.GroupDecisions) -> dict[str, str]:
    """The decisions in a group, as text by headings."""

    def text(share: refocal.metrics.Interval | None) -> str:
        if share is None:
            return "–"
        return f"{100 * share.value:.1f} ({100 * share.low:.1f} – {100 * share.high:.1f})"

    cells = {
        "group": f"{group.column} = {group.name}",
        "rows": f"{group.n:,}",
        "cost": f"{group.cost.value:.4f} ({group.cost.low:.4f} – {group.cost.high:.4f})",
    }
    if group.selection_rate is None:
        return cells | {"automated %": text(group.automated)}
    rates = {
        "selected %": group.selection_rate,
        "FPR %": group.false_positive_rate,
        "FNR %": group.false_negative_rate,
        "PPV %": group.ppv,
    }
    return cells | {heading: text(rate) for heading, rate in rates.items()}


def _names_of_classes(rows: refocal.io.Predictions, reader: refocal.rows.RowReader) -> list[str]:
    """What the classes are called where decisions and labels are written: as labels call them.

    Columns without names are numbers, from the first label on. Of two classes the positive label may be all that is
    known; the other class is then called by it too.
    """
    if rows.class_names is not None:
        return list(rows.class_names)
    positive = reader.positive_label
    if positive is not None and label_key(positive) not in (0, 1, "True", "False"):
        return [f"not {positive}", str(positive)]
    first = reader.first_label or 0
    return [str(first + i) for i in range(rows.n_classes)]


def _names_of_actions(classes: list[str], n_actions: int, abstain: float | None) -> list[str]:
    """What the actions are called: as the classes, and by their numbers where they are more, or fewer, than these.

    >>> _names_of_actions(["1", "2"], 3, None), _names_of_actions(["1", "2", "3"], 2, None)
    (['1', '2', 'action 2'], ['0', '1'])
    """
    # Fewer actions than classes are none of these.
    names = classes if len(classes) <= n_actions else []
    further = [str(i) for i in range(len(names), n_actions)]
    actions = [*names, *(f"action {number}" if number in names else number for number in further)]
    if abstain is not None and ABSTAINED in actions:
        raise UsageError(f"--abstain: rows left undecided are called {ABSTAINED!r}, as a class is; rename the class.")
    return actions


def _in_order_of_rows(
    table: Any,
    rows: refocal.io.Predictions,
    reader: refocal.rows.RowReader,
    calibrator: refocal.calibrators.Calibrator | None,
    names: list[str],
) -> tuple[Any, list[str]]:
    """Costs whose rows are in the order of the calibrator's classes, or of the file's, in that of the rows.

    --positive-label may have moved them. Where each class has an action, the columns move along. The actions that are
    called as the classes are in the order of the columns.
    """
    from refocal.calibrators.class_order import named_classes

    counted = [str((reader.first_label or 0) + i) for i in range(rows.n_classes)]
    known = (None if calibrator is None else named_classes(calibrator)) or reader.class_names or counted
    wanted = number_keys(rows.class_names or counted)
    called = (number_keys(known), number_keys(without_beginnings(known)))
    given = next((keys for keys in called if {*keys} == {*wanted}), wanted)
    if given == wanted or table.shape[0] != len(given):
        return table, names
    order = [given.index(key) for key in wanted]
    if table.shape[0] == table.shape[1]:
        return table[order][:, order], names
    return table[order], [names[wanted.index(key)] for key in given]


def _cost_row(name: str, report: refocal.decide.DecisionReport) -> dict[str, str]:
    """What the decisions by some probabilities cost, as text by headings."""
    percent = refocal.evaluate.summary.percent
    return {
        "probabilities": name,
        "cost per row": f"{report.cost.value:.4f}",
        "95 % interval": f"{report.cost.low:.4f} – {report.cost.high:.4f}",
        "expected": f"{report.expected_cost:.4f}",
        "automated %": percent(report.automated.value),
        "errors %": "–" if report.error is None else percent(report.error.value),
    }


def _table(costs: str | None, false_positive: float | None, false_negative: float | None) -> Any:
    """The matrix of costs that the options say."""
    import numpy as np

    of_two = (false_positive, false_negative)
    if (costs is None) == (of_two == (None, None)):
        raise UsageError("Say what mistakes cost: either --false-positive and --false-negative, or --costs.")
    if costs is None:
        if false_positive is None or false_negative is None:
            raise UsageError("--false-positive and --false-negative must be given together.")
        for option, cost in (("--false-positive", false_positive), ("--false-negative", false_negative)):
            if cost <= 0.0:
                raise UsageError(f"{option} must be greater than 0. Got {cost:g} instead.")
        return refocal.decide.cost_matrix(false_positive=false_positive, false_negative=false_negative)
    # Path.is_file refuses a table that is longer than any name of a file.
    is_file = os.path.isfile(costs)
    if not is_file and Path(costs).suffix.lower() in (".csv", ".tsv", ".txt"):
        raise FileNotFoundError(f"{costs}: no such file.")
    expected = "numbers, as many in each row, such as '0,1;5,0', or a file of them"
    cells: list[list[str]] = []
    try:
        text = Path(costs).read_text(encoding="utf-8-sig") if is_file else costs.replace(";", "\n")
        cells = [line.split(",") for line in text.splitlines() if line.strip()]
        return np.array([[number_of_text(cell) for cell in row] for row in cells])
    except ValueError:
        texts = [cell.strip() for row in cells for cell in row if not _is_number(cell)]
        got = f"{texts[0]!r} in {costs}; a table of costs has no header" if texts and is_file else repr(costs)
        raise UsageError(f"--costs must be {expected}. Got {got}.") from None


def _is_number(cell: str) -> bool:
    try:
        number_of_text(cell)
    except ValueError:
        return False
    return True


def labelled(raw: refocal.rows.RawRows, columns: Mapping[str, Any], reader: refocal.rows.RowReader) -> dict[str, Any]:
    """Columns of the rows that are used: those with a label, where labels are known, and with a weight above 0."""
    import numpy as np

    from refocal.rows.marks import are_marks

    kept = np.ones(len(raw.values), dtype=np.bool_)
    if raw.labels is not None:
        kept &= ~are_marks(np.asarray(raw.labels), reader.ignore_index)
    if raw.weight is not None:
        kept &= np.asarray(raw.weight, dtype=np.float64) > 0.0
    return {name: np.asarray(column)[kept] for name, column in columns.items()}
