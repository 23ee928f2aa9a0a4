"""What a threshold decides, before and after: a table and a chart; with JavaScript a slider."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from refocal._svg import FIRST, MUTED, Axes, Line, Plot, Point
from refocal.evaluate import Evaluation
from refocal.evaluate.phrases import percent
from refocal.evaluate.two_classes import positive_name
from refocal.report.section import Section, fill
from refocal.report.terms import sides

TWO_CLASSES, MORE_CLASSES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9), (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)


def decisions(evaluation: Evaluation) -> Section | None:
    """How many rows are decided, how many of those wrongly, and at which cost, from a threshold on."""
    tables = {heading.lower(): method.decisions for _, heading, method in sides(evaluation)}
    shown = {name: table for name, table in tables.items() if table is not None}
    if len(shown) < len(tables):
        return None
    is_two, words = evaluation.n_classes == 2, _words(evaluation)
    *_, last = shown.values()
    thresholds = last.threshold
    cells, costs, examples = {}, {}, []
    # Text and slider start with this threshold: of two classes that of the rate.
    wanted = min(max(last.right[0], 0.01), 0.5) if is_two else 0.9
    start = min(range(len(thresholds)), key=lambda i: abs(thresholds[i] - wanted))
    for name, table in shown.items():
        t, decided, right = (np.array(column) for column in (table.threshold, table.decided, table.right))
        wrong = decided - right
        cost = 1000.0 * (t * wrong + (1.0 - t) * (right[0] - right) if is_two else wrong + (1.0 - t) * (1.0 - decided))
        error = wrong / np.where(decided > 0.0, decided, 1.0)
        shown_error = [percent(e) if d else "–" for e, d in zip(error, decided, strict=True)]
        cells[name] = list(zip(map(percent, decided), shown_error, (f"{each:.1f}" for each in cost), strict=True))
        costs[name] = cost.tolist()
        examples.append((percent(decided[start]), percent(error[start]), f"{cost[start]:.1f}"))
    rows = [
        (
            f"{at:g}",
            f"{(1 - at) / at:.3g} false alarms" if is_two else f"{1 - at:.3g} mistakes",
            *(cell for name in shown for cell in cells[name][thresholds.index(at)]),
        )
        for at in (TWO_CLASSES if is_two else MORE_CLASSES)
    ]
    heads = [f"{text} {name}" if len(shown) > 1 else text for name in shown for text in words["heads"]]
    html = fill(
        "decisions.html",
        heads=[words["threshold"], words["price"], *heads],
        rows=rows,
        words=words,
        names=list(shown),
        data={"two": is_two, "tables": [{"name": name, **asdict(table)} for name, table in shown.items()]},
        start=start,
        chart=_chart(thresholds, costs, words["threshold"]),
    )
    example = words["example"].format(f"{100 * thresholds[start]:g}", *examples[-1])
    if len(shown) > 1:
        example += "; before calibration {} %, {} % and {}".format(*examples[0])
    return Section("decisions", "What would be decided?", (words["fact"], f"{example}."), html)


def _words(evaluation: Evaluation) -> dict[str, Any]:
    """What the threshold and its consequences are called."""
    if evaluation.n_classes == 2:
        name = positive_name(evaluation)
        missed = name.removeprefix("a ")
        return {
            "threshold": f"probability of {name} from",
            "price": f"a missed {missed} costs",
            "heads": ("acted on %", "false alarms among them %", "cost"),
            "fact": f"Acting from a probability t of {name} on is the cheapest if a missed {missed} costs (1 - t) / t "
            "false alarms and the probabilities are right. Costs are per 1,000 rows, where a false alarm and a miss "
            "together cost 1.",
            "example": "From {} % on, {} % of the rows would be acted on, with {} % false alarms among "
            "them, at a cost of {}",
        }
    return {
        "threshold": "confidence from",
        "price": "cost of asking a person",
        "heads": ("automated %", "errors among them %", "cost"),
        "fact": "Predictions with a confidence of at least t are accepted, the others go to a person, which is the "
        "cheapest if asking costs 1 - t times as much as a mistake and the confidences are right. Costs are per 1,000 "
        "rows, in mistakes.",
        "example": "From {} % on, {} % of the rows would be automated, with {} % errors among them, at a cost of {}",
    }


def _chart(thresholds: list[float], costs: dict[str, list[float]], threshold: str) -> Plot:
    said = " and ".join(f"{name} it is at most {max(values):.1f}" for name, values in costs.items())
    plot = Plot(
        (0.0, 1.0),
        (0.0, 1.05 * (max(max(values) for values in costs.values()) or 1.0)),
        [Axes(threshold, "cost of 1,000 rows")],
        f"The cost of 1,000 rows against the threshold; {said}.",
        size=(440.0, 270.0),
        margins=(60.0, 12.0, 16.0, 44.0),
    )
    styles = ((MUTED, "6 4"), (FIRST, ""))[-len(costs) :]
    for (name, values), (color, dash) in zip(costs.items(), styles, strict=True):
        plot.marks.append(Line(thresholds, values, color, 1.8, dash))
        for t, value in list(zip(thresholds, values, strict=True))[5::10]:
            plot.marks.append(Point(t, value, color, f"{name}, {threshold} {t:g}: cost {value:.1f}", "hidden"))
    return plot
