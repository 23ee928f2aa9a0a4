"""What a page shows beyond the numbers of an evaluation: terms, decisions, classes, downloads; periods of a monitor."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from refocal.calibrators.registry import NONE
from refocal.evaluate import ClassRow, Evaluation, Measured
from refocal.evaluate.multilabel import of_labels
from refocal.evaluate.summary import interval_percent, percent, positive_name, ranked
from refocal.monitor import WindowSummary

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
    """From a threshold on: the share of rows that is decided, that of errors among them, the cost of 1,000 rows.

    `cells` is how tables show it, after the threshold and what it says about costs, with the shares of all rows that
    came true and that were promised.
    """

    threshold: float
    decided: float
    error: float
    cost: float
    cells: list[str]


def decisions(evaluation: Evaluation) -> tuple[dict[str, list[Decision]], int] | None:
    """What each threshold decides before and after calibration, and the one that the text and the slider start with."""
    is_two = evaluation.n_classes == 2
    made: dict[str, list[Decision]] = {}
    for _, heading, method in sides(evaluation):
        found, made[heading.lower()] = method.decisions, []
        if found is None:  # in evaluations of version 0.1.0
            return None
        for t, decided, right, promised in zip(*vars(found).values(), strict=True):
            wrong = decided - right
            error = wrong / decided if decided else 0.0
            missed = found.right[0] - right if is_two else 1.0 - decided
            cost = 1000.0 * ((t if is_two else 1.0) * wrong + (1.0 - t) * missed)
            price = f"{1.0 - t:.3g} mistakes"
            if is_two:
                price = f"{(1.0 - t) / t:.3g} false alarms" if t else "any number of false alarms"
            shares = [
                percent(decided),
                percent(error) if decided else "–",
                f"{cost:.1f}",
                percent(right),
                percent(promised),
            ]
            made[heading.lower()].append(Decision(t, decided, error, cost, [f"{t:g}", price, *shares]))
        # Of two classes that of the rate.
        wanted = min(max(found.right[0], 0.01), 0.5) if is_two else 0.9
        start = min(range(len(found.threshold)), key=lambda i: abs(found.threshold[i] - wanted))
    return made, start


def classes_by_gap(evaluation: Evaluation) -> list[tuple[ClassRow, ClassRow]]:
    """Every class before and after calibration, that of the largest gap after it first."""
    pairs = zip(evaluation.before.classes or (), evaluation.after.classes or (), strict=True)
    return sorted(pairs, key=lambda pair: -1.0 if pair[1].gap is None else round(abs(pair[1].gap), 6), reverse=True)


def class_data(evaluation: Evaluation) -> dict[str, Any] | None:
    """What the page draws of a class, where that is known; small, because there may be thousands of them."""
    shown = sides(evaluation)
    details = list(zip(*([row.detail for row in method.classes or ()] for _, _, method in shown), strict=True))
    if any(each is None for pair in details for each in pair):
        return None
    return {
        "names": [evaluation.name_of(row.label) for row in evaluation.after.classes or ()],
        "sides": [heading for _, heading, _ in shown],
        "curves": [[[each.count, each.probability, each.frequency] for each in pair] for pair in details],
        "others": [[each.predicted_as, each.taken_for_it, each.examples] for *_, each in details],
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


def periods_table(history: Sequence[WindowSummary], compared: tuple[str, str]) -> list[dict[str, str]]:
    """The periods of a monitor as rows of text by their headings; the terminal shows the same."""
    what, outcome = compared
    return [
        {
            "period": period_name(each),
            "rows": f"{each.n:,}",
            f"{what} %": percent(each.mean_p),
            f"{outcome} %": percent(each.rate.value),
            "interval": interval_percent(each.rate),
            "log-loss": f"{each.log_loss:.4f}",
            "Brier score": f"{each.brier_score:.4f}",
            "ECE %": percent(each.ece),
            "by chance %": percent(each.ece_by_chance),
        }
        for each in history
    ]


def period_name(each: WindowSummary) -> str:
    """The name of a period, or of the first and the last of several."""
    return each.first if each.first == each.last else f"{each.first} to {each.last}"
