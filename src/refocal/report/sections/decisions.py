"""What a threshold decides, before and after: a table and a chart; with JavaScript a slider."""

from __future__ import annotations

from dataclasses import asdict
from typing import NamedTuple

from refocal._svg import FIRST, MUTED, Plot
from refocal.evaluate import DecisionTable, Evaluation
from refocal.evaluate.phrases import percent
from refocal.evaluate.two_classes import positive_name
from refocal.report.section import Section, asset, fill
from refocal.report.terms import sides

TWO_CLASSES, MORE_CLASSES = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9), (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)


class Outcome(NamedTuple):
    """What comes of a threshold: the share of rows decided, of those that of mistakes, and the cost of 1,000 rows."""

    decided: float
    error: float
    cost: float


class Words(NamedTuple):
    """What the threshold and its consequences are called."""

    threshold: str
    price: str
    heads: tuple[str, str, str]
    fact: str
    example: tuple[str, str]


def decisions(evaluation: Evaluation) -> Section | None:
    """How many rows are decided, how many of those wrongly, and at which cost, from a threshold on."""
    tables = {heading.lower(): method.decisions for _, heading, method in sides(evaluation)}
    shown = {name: table for name, table in tables.items() if table is not None}
    if len(shown) < len(tables):
        return None
    is_two, words = evaluation.n_classes == 2, _words(evaluation)
    outcomes = {name: _outcomes(table, is_two) for name, table in shown.items()}
    *_, last = shown.values()
    rows = []
    for at in TWO_CLASSES if is_two else MORE_CLASSES:
        cells = [f"{at:g}", f"{(1 - at) / at:.3g} false alarms" if is_two else f"{1 - at:.3g} mistakes"]
        for name, table in shown.items():
            found = outcomes[name][table.threshold.index(at)]
            cells += [percent(found.decided), percent(found.error) if found.decided else "–", f"{found.cost:.1f}"]
        rows.append(cells)
    heads = [f"{text} {name}" if len(shown) > 1 else text for name in shown for text in words.heads]
    # Text and slider start with this threshold: of two classes that of the rate.
    wanted = min(max(last.right[0], 0.01), 0.5) if is_two else 0.9
    start = min(range(len(last.threshold)), key=lambda i: abs(last.threshold[i] - wanted))
    html = fill(
        "decisions.html",
        heads=[words.threshold, words.price, *heads],
        rows=rows,
        words=words,
        names=list(shown),
        data={"two": is_two, "tables": [{"name": name, **asdict(table)} for name, table in shown.items()]},
        start=start,
        chart=_chart(last.threshold, {name: [each.cost for each in found] for name, found in outcomes.items()}, words),
        script=asset("decisions.js"),
    )
    at_start = [found[start] for found in outcomes.values()]
    old, new = at_start[0], at_start[-1]
    decided, wrong = words.example
    example = f"From {100 * last.threshold[start]:g} % on, {percent(new.decided)} % of the rows {decided}, with "
    example += f"{percent(new.error)} % {wrong} among them, at a cost of {new.cost:.1f}"
    if len(shown) > 1:
        example += f"; before calibration {percent(old.decided)} %, {percent(old.error)} % and {old.cost:.1f}"
    return Section("decisions", "What would be decided?", (words.fact, f"{example}."), html)


def _words(evaluation: Evaluation) -> Words:
    if evaluation.n_classes == 2:
        name = positive_name(evaluation)
        missed = name.removeprefix("a ")
        return Words(
            f"probability of {name} from",
            f"a missed {missed} costs",
            ("acted on %", "false alarms among them %", "cost"),
            f"Acting from a probability t of {name} on is the cheapest if a missed {missed} costs (1 - t) / t false "
            "alarms and the probabilities are right. Costs are per 1,000 rows, where a false alarm and a miss together "
            "cost 1.",
            ("would be acted on", "false alarms"),
        )
    return Words(
        "confidence from",
        "cost of asking a person",
        ("automated %", "errors among them %", "cost"),
        "Predictions with a confidence of at least t are accepted, the others go to a person, which is the cheapest if "
        "asking costs 1 - t times as much as a mistake and the confidences are right. Costs are per 1,000 rows, in "
        "mistakes.",
        ("would be automated", "errors"),
    )


def _outcomes(table: DecisionTable, is_two: bool) -> list[Outcome]:
    """What comes of each threshold."""
    found = []
    for t, decided, right in zip(table.threshold, table.decided, table.right, strict=True):
        wrong = decided - right
        cost = t * wrong + (1.0 - t) * (table.right[0] - right) if is_two else wrong + (1.0 - t) * (1.0 - decided)
        found.append(Outcome(decided, wrong / decided if decided else 0.0, 1000.0 * cost))
    return found


def _chart(thresholds: list[float], costs: dict[str, list[float]], words: Words) -> str:
    top = max(max(values) for values in costs.values()) or 1.0
    plot = Plot((0.0, 1.0), (0.0, 1.05 * top), size=(440.0, 270.0), margins=(60.0, 12.0, 16.0, 44.0))
    plot.axes(words.threshold, "cost of 1,000 rows")
    lines = ((MUTED, "6 4"), (FIRST, "")) if len(costs) > 1 else ((FIRST, ""),)
    for (name, values), (color, dash) in zip(costs.items(), lines, strict=True):
        plot.line(thresholds, values, color, 1.8, dash)
        for i in range(5, len(thresholds), 10):
            plot.mark(
                f'<circle cx="{plot.x(thresholds[i]):.1f}" cy="{plot.y(values[i]):.1f}" r="7" fill="transparent"/>',
                f"{name}, {words.threshold} {thresholds[i]:g}: cost {values[i]:.1f}",
            )
    said = " and ".join(f"{name} it is at most {max(values):.1f}" for name, values in costs.items())
    return plot.svg("decision-cost", f"The cost of 1,000 rows against the threshold; {said}.")
