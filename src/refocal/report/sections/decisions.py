"""What a threshold decides, before and after: a table and a chart; with JavaScript a slider."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from refocal._svg import FIRST, MUTED, Axes, Line, Plot, Point
from refocal.evaluate import Evaluation
from refocal.evaluate.phrases import percent
from refocal.evaluate.two_classes import positive_name
from refocal.report.section import Section, fill
from refocal.report.terms import sides

TWO_CLASSES, MORE_CLASSES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9), (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
ACTED, AUTOMATED = ("acted on %", "false alarms among them %", "cost"), ("automated %", "errors among them %", "cost")


def decisions(evaluation: Evaluation) -> Section | None:
    """How many rows are decided, how many of those wrongly, and at which cost, from a threshold on."""
    tables = {heading.lower(): method.decisions for _, heading, method in sides(evaluation)}
    shown = {name: table for name, table in tables.items() if table is not None}
    if len(shown) < len(tables):
        return None
    is_two, (*_, last) = evaluation.n_classes == 2, shown.values()
    # Text and slider start with this threshold: of two classes that of the rate.
    wanted = min(max(last.right[0], 0.01), 0.5) if is_two else 0.9
    start = min(range(len(last.threshold)), key=lambda i: abs(last.threshold[i] - wanted))
    costs, examples, cells = {}, [], {at: [f"{at:g}"] for at in (TWO_CLASSES if is_two else MORE_CLASSES)}
    for at, row in cells.items():
        row.append(f"{(1 - at) / at:.3g} false alarms" if is_two else f"{1 - at:.3g} mistakes")
    for name, table in shown.items():
        t, decided, right = (np.array(column) for column in (table.threshold, table.decided, table.right))
        wrong = decided - right
        cost = 1000.0 * (t * wrong + (1.0 - t) * (right[0] - right) if is_two else wrong + (1.0 - t) * (1.0 - decided))
        error = wrong / np.where(decided > 0.0, decided, 1.0)
        costs[name] = cost.tolist()
        examples.append((percent(decided[start]), percent(error[start]), f"{cost[start]:.1f}"))
        for at, row in cells.items():
            i = table.threshold.index(at)
            row += [percent(decided[i]), percent(error[i]) if decided[i] else "–", f"{cost[i]:.1f}"]
    heads = ACTED if is_two else AUTOMATED
    threshold = f"probability of {positive_name(evaluation)} from" if is_two else "confidence from"
    html = fill(
        "decisions.html",
        positive=positive_name(evaluation) if is_two else None,
        threshold=threshold,
        heads=heads,
        columns=[f"{text} {name}" if len(shown) > 1 else text for name in shown for text in heads],
        rows=list(cells.values()),
        names=list(shown),
        data={"two": is_two, "tables": [{"name": name, **asdict(table)} for name, table in shown.items()]},
        start=start,
        at=f"{100 * last.threshold[start]:g}",
        examples=examples,
        chart=_chart(last.threshold, costs, threshold),
    )
    return Section("decisions", "What would be decided?", (), html)


def _chart(thresholds: list[float], costs: dict[str, list[float]], threshold: str) -> Plot:
    said = " and ".join(f"{name} it is at most {max(values):.1f}" for name, values in costs.items())
    top = 1.05 * (max(max(values) for values in costs.values()) or 1.0)
    plot = Plot((0.0, 1.0), (0.0, top), size=(440.0, 270.0), margins=(60.0, 12.0, 16.0, 44.0))
    plot.description = f"The cost of 1,000 rows against the threshold; {said}."
    plot.marks.append(Axes(threshold, "cost of 1,000 rows"))
    styles = ((MUTED, "6 4"), (FIRST, ""))[-len(costs) :]
    for (name, values), (color, dash) in zip(costs.items(), styles, strict=True):
        plot.marks.append(Line(thresholds, values, color, 1.8, dash))
        for t, value in list(zip(thresholds, values, strict=True))[5::10]:
            plot.marks.append(Point(t, value, color, f"{name}, {threshold} {t:g}: cost {value:.1f}", "hidden"))
    return plot
