"""What a page shows beyond the numbers of an evaluation: terms, decisions, classes, downloads; periods of a monitor."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from refocal.calibrators.registry import METHODS, NONE, make
from refocal.calibrators.serialize import to_plain
from refocal.evaluate import Evaluation, Measured
from refocal.evaluate.decisions import Decision, decisions_of, usual_threshold
from refocal.evaluate.difference import check_same_classes
from refocal.evaluate.multilabel import PER_LABEL, of_labels
from refocal.evaluate.summary import interval_percent, percent, positive_name, ranked
from refocal.metrics import METRICS, Metric
from refocal.monitor import CalibrationMonitor, WindowSummary
from refocal.monitor.advice import ExpectedPerformance
from refocal.monitor.backtest import Backtest
from refocal.monitor.history import Alarm
from refocal.shift.likelihood import ShareEvidence
from refocal.shift.performance import Performance
from refocal.shift.shares import Adaptation


def lowest_of(titled: Mapping[str, Evaluation], metric: Metric) -> str:
    """Which of several evaluations has the lowest value of a metric, with the method that it shows in detail.

    In as many digits as tell it from the next one.
    """
    values = {title: each.after.measures[metric.name].value for title, each in titled.items()}
    lowest = min(values.values())
    names = [title for title, value in values.items() if value == lowest]
    others = [value for value in values.values() if value > lowest]
    digits = metric.digits_apart(lowest, min(others)) if others else metric.digits
    have = f"{names[0]} has" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} share"
    return f"{have} the lowest {metric.label}, {metric.with_unit(lowest, digits)}"


class Terms(NamedTuple):
    """What the probability, the outcome and its two sides are called."""

    probability: str = "confidence"
    outcome: str = "accuracy"
    happened: str = "right"
    did_not: str = "wrong"
    question: str = "Does confidence match accuracy?"
    """What a reliability diagram answers."""


CONFIDENCE = Terms()


def sides(evaluation: Evaluation) -> list[tuple[str, str, Measured]]:
    """Before and after calibration, each with its heading; the predictions as they are alone where nothing is used."""
    if evaluation.chosen == NONE:
        return [("before", "As they are", evaluation.before)]
    return [("before", "Before", evaluation.before), ("after", "After", evaluation.after)]


def terms_of(evaluation: Evaluation) -> Terms:
    """The terms of an evaluation."""
    if evaluation.positive is None:
        return CONFIDENCE
    name = positive_name(evaluation)
    made = Terms(f"probability of {name}", f"share of {name}", name, f"not {name}")
    if of_labels(evaluation):
        made = Terms("probability of a label", "share of rows that have it", "true", "not true")
    return made._replace(question=f"Does the {made.probability} match the {made.outcome}?")


def check_same_terms(first: Evaluation, other: Evaluation, function: str) -> None:
    """Refuse two evaluations side by side whose diagrams and measures are about different things.

    Of more than two classes confidence and accuracy mean the same whatever the classes are.
    """
    if terms_of(first) != terms_of(other):
        check_same_classes(first, other, function)


class SideDecisions(NamedTuple):
    """What each threshold decides, before and after calibration."""

    made: dict[str, list[Decision]]
    cells: dict[str, list[list[str]]]
    """How tables show each of them: see `decision_cells`."""
    start: int
    """The place of the threshold that the text and the slider start with."""


def decisions(evaluation: Evaluation) -> SideDecisions | None:
    """The decisions of an evaluation; None where it has none, as of version 0.1.0."""
    made: dict[str, list[Decision]] = {}
    cells: dict[str, list[list[str]]] = {}
    start = 0
    for _, heading, method in sides(evaluation):
        if method.decisions is None:
            return None
        side = heading.lower()
        made[side] = decisions_of(method.decisions, evaluation.n_classes)
        cells[side] = [decision_cells(decision, evaluation.n_classes) for decision in made[side]]
        start = usual_threshold(method.decisions, evaluation.n_classes)
    return SideDecisions(made, cells, start)


def decision_cells(decision: Decision, n_classes: int) -> list[str]:
    """A decision as a row of a table.

    The threshold, what it says about costs, the share of decided rows, that of errors among them, the cost of 1,000
    rows, and the shares of all rows that came true and that were promised.
    """
    threshold = decision.threshold
    if n_classes > 2:
        price = f"{1.0 - threshold:.3g} mistakes"
    elif threshold:
        number = f"{(1.0 - threshold) / threshold:.3g}"
        price = f"{number} false {'alarm' if number == '1' else 'alarms'}"
    else:
        price = "any number of false alarms"
    return [
        f"{threshold:g}",
        price,
        percent(decision.decided),
        percent(decision.error) if decision.decided else "–",
        f"{decision.cost:.1f}",
        percent(decision.right),
        percent(decision.promised),
    ]


def class_data(evaluation: Evaluation) -> dict[str, Any] | None:
    """What the page draws of a class, where that is known; small, because there may be thousands of them.

    All is by label: of very many classes an evaluation has rows for some only, and any of the others may be one that
    they are confused with.
    """
    shown = sides(evaluation)
    rows_of_sides = list(zip(*(method.classes or () for _, _, method in shown), strict=True))
    curves: dict[int, Any] = {}
    others: dict[int, Any] = {}
    for rows in rows_of_sides:
        details = [row.detail for row in rows if row.detail is not None]
        if len(details) < len(rows):
            return None
        label = rows[-1].label
        curves[label] = [[each.count, each.probability, each.frequency] for each in details]
        others[label] = [details[-1].predicted_as, details[-1].taken_for_it, details[-1].examples]
    confused = {label for each in others.values() for pairs in each[:2] for label, _ in pairs}
    return {
        "names": {label: evaluation.name_of(label) for label in sorted({*others, *confused})},
        "sides": [heading for _, heading, _ in shown],
        "curves": curves,
        "others": others,
    }


def downloads(evaluation: Evaluation) -> tuple[str, dict[str, str]]:
    """The calibrator as text where it is short, and files to download: it, where small enough, and all metrics."""
    longest_snippet = 20_000  # bytes of a calibrator that a page shows as text
    largest_download = 500_000  # bytes of one that a page carries along
    after = evaluation.after
    files = {}
    text = ""
    if after.calibrator is not None and "chain" in after.calibrator:
        data = {name: value for name, value in after.calibrator.items() if name != "fitted"}
        text = json.dumps(data, indent=2)
        text = text if len(text) < longest_snippet else json.dumps(data)
        if len(text) < longest_snippet:
            files["calibrator.json"] = ("application/json", text.encode())
        elif len(text) <= largest_download:
            files["calibrator.json.gz"] = ("application/gzip", gzip.compress(text.encode(), mtime=0))
    metrics = io.StringIO()
    table = csv.writer(metrics, lineterminator="\n")
    table.writerow(["method", "measure", "value", "low", "high"])
    for method in ranked(evaluation):
        measured = method.measures.items()
        table.writerows([method.name, name, found.value, found.low, found.high] for name, found in measured)
        table.writerows([method.name, name, value, "", ""] for name, value in method.values.items())
    files["metrics.csv"] = ("text/csv", metrics.getvalue().encode())
    encoded = {name: f"data:{kind};base64,{base64.b64encode(data).decode()}" for name, (kind, data) in files.items()}
    # Thousands of numbers are of no use on a page.
    return text if len(text) < longest_snippet else "", encoded


def fit_command(calibrator: Mapping[str, Any]) -> str | None:
    """The command that fits such a calibrator, as JSON, again; None where the command line has no options for it.

    The names of an evaluation say nothing of it: they may be those of files. A fit alone does not make what was adapted
    or updated after it.

    >>> fit_command({"method": "TemperatureScaling", "parameters": {"objective": "ece", "input": "probabilities"}})
    'refocal fit val.npz --method ts-ece --probabilities -o calibrator.json'
    >>> fit_command({"method": "TemperatureScaling", "parameters": {"search": "grid"}})
    """
    parameters = calibrator["parameters"]
    report = calibrator.get("fit", {})
    if {"before_adaptation", "updated"} & {*report}:
        return None
    columns = list(calibrator.get("groups") or report.get("least_of_groups", ()))
    if calibrator["method"] == "MultiLabelCalibration":
        method = parameters["method"] + (PER_LABEL if parameters["per_label"] else "")
        said = ["--method", method, "--multi-label"]
    else:
        found = _method_options(calibrator["method"], parameters, {"conditional": "group"} if columns else {})
        if found is None:
            return None
        said = found
    for column in columns:
        said += ["--groups", column]
    if parameters.get("input") == "probabilities":
        said.append("--probabilities")
    return shlex.join(["refocal", "fit", "val.npz", *said, "-o", "calibrator.json"])


def _method_options(kind: str, parameters: Mapping[str, Any], by_groups: Mapping[str, Any]) -> list[str] | None:
    """The method of a class, and the options for the settings in which it differs; None where there are none.

    `by_groups` are settings that follow from columns of groups.
    """
    options = {
        "objective": "--objective",
        "nll_tolerance": "--tolerance",
        "class_weight": "--class-weight",
        "coverage": "--coverage",
    }
    ways: list[tuple[str, dict[str, Any]]] = []
    for name, method in METHODS.items():
        if method.class_name != kind:
            continue
        made = {key: to_plain(value) for key, value in make(name).get_params(deep=False).items()}
        made |= {key: value for key, value in by_groups.items() if key in made}
        made["input"] = parameters.get("input")
        differing = {key: value for key, value in parameters.items() if key not in made or value != made[key]}
        if differing.keys() <= options.keys() and all(map(_can_be_said, differing, differing.values())):
            ways.append((name, differing))
    if not ways:
        return None
    name, differing = min(ways, key=lambda way: len(way[1]))
    said = ["--method", name]
    for key, value in differing.items():
        said += [options[key], ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return said


def _can_be_said(setting: str, value: Any) -> bool:
    """Whether a setting can be given on the command line: None cannot, nor a function of one's own."""
    if setting == "objective":
        return value in ("auto", "nll", "ece", *METRICS)
    return value is not None


ECE_OF_MONITOR = "The ECE of a monitor is over 10 bins of equal width, that of an evaluation over 15 of equal mass."
"""A sum over periods needs bins that are the same in all of them."""


def periods_table(history: Sequence[WindowSummary], compared: tuple[str, str]) -> list[dict[str, str]]:
    """The periods of a monitor as rows of text by their headings; the terminal shows the same."""
    probability, outcome = compared
    return [
        {
            "period": period_name(each),
            "rows": f"{each.n:,}",
            f"{probability} %": percent(each.mean_p),
            f"{outcome} %": percent(each.rate.value),
            "interval": interval_percent(each.rate),
            "log-loss": f"{each.log_loss:.4f}",
            "Brier score": f"{each.brier_score:.4f}",
            "ECE %": percent(each.ece),
            "by chance %": percent(each.ece_by_chance),
        }
        for each in history
    ]


def alarms_table(alarms: Sequence[Alarm]) -> list[dict[str, str]]:
    """The alarms of a monitor as rows of text."""
    return [
        {
            "alarm": alarm.period,
            "e-value": f"{alarm.e_value:.3g}",
            "rows": f"{alarm.n_rows:,}",
            "what moved": "; ".join(alarm.moved),
            "since about": alarm.since,
            "acknowledged": alarm.acknowledged or "no",
        }
        for alarm in alarms
    ]


def streams_table(monitor: CalibrationMonitor) -> list[dict[str, str]]:
    """The streams of a monitor with their e-values, largest first."""
    streams = sorted(monitor.streams().items(), key=lambda entry: -entry[1])
    return [{"stream": name.replace("/", ": ", 1), "e-value": f"{e_value:.3g}"} for name, e_value in streams]


def expected_table(expected: Sequence[ExpectedPerformance]) -> list[dict[str, str]]:
    """What the predictions of periods say about their performance, and what labels said."""
    return [
        {
            "period": each.period,
            "rows": f"{each.n_predicted:,}",
            "labelled": f"{each.n_labelled:,}",
            "expected accuracy %": percent(each.expected_accuracy),
            "accuracy %": "" if each.accuracy is None else percent(each.accuracy),
            "expected log-loss": f"{each.expected_log_loss:.4f}",
            "log-loss": "" if each.log_loss is None else f"{each.log_loss:.4f}",
        }
        for each in expected
    ]


def shares_table(found: Adaptation) -> list[dict[str, str]]:
    """The class shares before an adaptation, and those now: where it was refused, if only shares had changed."""
    columns = zip(found.classes, found.shares_of_fit, found.estimated, found.low, found.high, strict=True)
    interval = f"{100 * found.level:g} % interval"
    heading = "share if nothing else had changed %" if found.refused else "share now %"
    return [
        {
            "class": name,
            "share of the fit %": percent(before),
            heading: percent(now),
            interval: f"{percent(low)} – {percent(high)}",
        }
        for name, before, now, low, high in columns
    ]


def no_evidence_sentence(evidence: ShareEvidence) -> str:
    """Why rows left the calibrator as it was."""
    return (
        f"The rows are no evidence of other shares than those of the fit (gain {evidence.gain:.1f}; by chance up to "
        f"{evidence.gain_by_chance:.1f}): the probabilities stay as they were."
    )


def performance_table(performance: Performance) -> list[dict[str, str]]:
    """What to expect of rows without labels."""
    measures = {
        "accuracy": performance.accuracy,
        "log-loss": performance.log_loss,
        "Brier score": performance.brier_score,
        "AUC": performance.roc_auc,
        "cost": performance.cost,
    }
    return [
        {
            "measure": name,
            "expected": f"{found.value:.4f}",
            f"{100 * found.level:g} % interval": f"{found.low:.4f} – {found.high:.4f}",
        }
        for name, found in measures.items()
        if found is not None
    ]


def performance_sentence(performance: Performance) -> str:
    """The same in a line, for the terminal."""
    accuracy, log_loss = performance.accuracy, performance.log_loss
    return (
        f"Expected on {performance.n_rows:,} rows, if the probabilities are right: "
        f"accuracy {percent(accuracy.value)} % ({percent(accuracy.low)} – {percent(accuracy.high)}), "
        f"log-loss {log_loss.value:.4f} ({log_loss.low:.4f} – {log_loss.high:.4f})."
    )


def policies_table(found: Backtest) -> list[dict[str, str]]:
    """The policies of a backtest, best first."""
    several = len(found.periods) > 1  # by whose scatter intervals are
    return [
        {
            "policy": f"{result.name} (recommended)" if result.name == found.recommended else result.name,
            "log-loss": f"{result.log_loss:.4f}",
            "to keeping": f"{result.difference.value:+.4f}",
            "interval": f"{result.difference.low:+.4f} – {result.difference.high:+.4f}" if several else "no interval",
            "accuracy %": percent(result.accuracy),
        }
        for result in found.results
    ]


def period_name(each: WindowSummary) -> str:
    """The name of a period, or of the first and the last of several."""
    return each.first if each.first == each.last else f"{each.first} to {each.last}"
