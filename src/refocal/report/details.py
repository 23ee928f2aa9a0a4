"""What the sections of a page show beyond the numbers of an evaluation: terms, decisions, classes, downloads."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
from dataclasses import asdict
from typing import Any, NamedTuple

from refocal.calibrators.registry import NONE
from refocal.evaluate import ClassRow, Evaluation, Measured
from refocal.evaluate.multilabel import of_labels
from refocal.evaluate.summary import positive_name, ranked

LONGEST_SNIPPET = 20_000
# Bytes of a calibrator that a page carries along.
LARGEST_DOWNLOAD = 500_000


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


class Decision(NamedTuple):
    """From a threshold on: the share of rows that is decided, that of errors among them, the cost of 1,000 rows."""

    threshold: float
    decided: float
    error: float
    cost: float


class DecisionCurves(NamedTuple):
    """The decisions before and after calibration, and the threshold that the text and the slider start with."""

    sides: dict[str, list[Decision]]
    start: int
    data: dict[str, Any]


def decisions(evaluation: Evaluation) -> DecisionCurves | None:
    """How many rows are decided, how many of those wrongly, and at which cost, before and after calibration."""
    is_two = evaluation.n_classes == 2
    made: dict[str, list[Decision]] = {}
    tables = []
    for _, heading, method in sides(evaluation):
        found, rows = method.decisions, []
        if found is None:  # in evaluations of version 0.1.0
            return None
        for t, decided, right in zip(found.threshold, found.decided, found.right, strict=True):
            wrong = decided - right
            missed = found.right[0] - right if is_two else 1.0 - decided
            cost = 1000.0 * ((t if is_two else 1.0) * wrong + (1.0 - t) * missed)
            rows.append(Decision(t, decided, wrong / decided if decided > 0.0 else 0.0, cost))
        made[heading.lower()] = rows
        tables.append({"name": heading.lower(), **asdict(found)})
        # Of two classes that of the rate.
        wanted = min(max(found.right[0], 0.01), 0.5) if is_two else 0.9
    start = min(range(len(rows)), key=lambda i: abs(rows[i].threshold - wanted))
    return DecisionCurves(made, start, {"two": is_two, "tables": tables})


def classes_by_gap(evaluation: Evaluation) -> list[tuple[ClassRow, ClassRow]]:
    """Every class before and after calibration, that of the largest gap after it first."""
    pairs = zip(evaluation.before.classes or (), evaluation.after.classes or (), strict=True)
    return sorted(pairs, key=lambda pair: -1.0 if pair[1].gap is None else round(abs(pair[1].gap), 6), reverse=True)


def class_data(evaluation: Evaluation) -> dict[str, Any] | None:
    """What the page draws of a class, where that is known; small, because there may be thousands of them."""
    before, after = evaluation.before.classes or (), evaluation.after.classes or ()
    details = [(b.detail, a.detail) for b, a in zip(before, after, strict=True) if b.detail and a.detail]
    if len(details) < len(after):
        return None
    return {
        "names": [evaluation.name_of(row.label) for row in after],
        "curves": [[[each.count, each.probability, each.frequency] for each in pair] for pair in details],
        "others": [[each.predicted_as, each.taken_for_it, each.examples] for _, each in details],
        "calibrated": evaluation.after is not evaluation.before,
    }


def downloads(evaluation: Evaluation) -> tuple[str, dict[str, str]]:
    """The calibrator as text where it is short, and files to download: it, where small enough, and all metrics."""
    after, files, text = evaluation.after, {}, ""
    if after.calibrator is not None and "chain" in after.calibrator:
        data = {name: value for name, value in after.calibrator.items() if name != "fitted"}
        text = json.dumps(data, indent=2)
        text = text if len(text) < LONGEST_SNIPPET else json.dumps(data)
        if len(text) < LONGEST_SNIPPET:
            files["calibrator.json"] = ("application/json", text.encode())
        elif len(text) <= LARGEST_DOWNLOAD:
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
    return text if len(text) < LONGEST_SNIPPET else "", encoded
