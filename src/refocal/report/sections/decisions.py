"""What a threshold decides, before and after: a table and a chart; with JavaScript a slider."""

from __future__ import annotations

from typing import NamedTuple

from refocal._svg import FIRST, MUTED, Plot
from refocal.evaluate import DecisionTable, Evaluation
from refocal.evaluate.phrases import percent
from refocal.evaluate.two_classes import positive_name
from refocal.report.section import Section, asset, fill, inline
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


def decisions(evaluation: Evaluation) -> Section | None:
    """How many rows are decided, how many of those wrongly, and at which cost, from a threshold on."""
    tables = [(heading.lower(), method.decisions) for _, heading, method in sides(evaluation)]
    shown = [(name, table) for name, table in tables if table is not None]
    if len(shown) < len(tables):
        return None
    is_two = evaluation.n_classes == 2
    words = _words(evaluation)
    costs = {name: [_outcome(table, i, is_two).cost for i in range(len(table.threshold))] for name, table in shown}
    rows = [
        [f"{at:g}", _price(at, is_two), *(cell for _, table in shown for cell in _cells(table, at, is_two))]
        for at in (TWO_CLASSES if is_two else MORE_CLASSES)
    ]
    both = len(shown) > 1
    heads = [words.threshold, words.price]
    heads += [f"{text} {name}" if both else text for name, _ in shown for text in words.heads]
    data = {"two": is_two, "tables": [{"name": name, **_plain(table)} for name, table in shown]}
    html = fill(
        "decisions.html",
        heads=heads,
        rows=rows,
        words=words,
        names=[name for name, _ in shown],
        data=data,
        start=_start(shown[-1][1], is_two),
        chart=inline(_chart(shown[0][1].threshold, costs, words.threshold)),
        script=asset("decisions.js"),
    )
    return Section("decisions", "What would be decided?", (words.fact, _example(evaluation, shown)), html)


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
        )
    return Words(
        "confidence from",
        "cost of asking a person",
        ("automated %", "errors among them %", "cost"),
        "Predictions with a confidence of at least t are accepted, the others go to a person, which is the cheapest if "
        "asking costs 1 - t times as much as a mistake and the confidences are right. Costs are per 1,000 rows, in "
        "mistakes.",
    )


def _price(at: float, is_two: bool) -> str:
    return f"{(1 - at) / at:.3g} false alarms" if is_two else f"{1 - at:.3g} mistakes"


def _outcome(table: DecisionTable, i: int, is_two: bool) -> Outcome:
    t, decided, right = table.threshold[i], table.decided[i], table.right[i]
    wrong = decided - right
    cost = t * wrong + (1.0 - t) * (table.right[0] - right) if is_two else wrong + (1.0 - t) * (1.0 - decided)
    return Outcome(decided, wrong / decided if decided else 0.0, 1000.0 * cost)


def _cells(table: DecisionTable, at: float, is_two: bool) -> tuple[str, str, str]:
    found = _outcome(table, table.threshold.index(at), is_two)
    return percent(found.decided), percent(found.error) if found.decided else "–", f"{found.cost:.1f}"


def _plain(table: DecisionTable) -> dict[str, list[float]]:
    return {"threshold": table.threshold, "decided": table.decided, "right": table.right, "promised": table.promised}


def _start(table: DecisionTable, is_two: bool) -> int:
    """The threshold that text and slider start with: of two classes that of the rate."""
    wanted = min(max(table.right[0], 0.01), 0.5) if is_two else 0.9
    return min(range(len(table.threshold)), key=lambda k: abs(table.threshold[k] - wanted))


def _example(evaluation: Evaluation, shown: list[tuple[str, DecisionTable]]) -> str:
    """What the chosen method changes at one threshold."""
    is_two = evaluation.n_classes == 2
    table = shown[-1][1]
    i = _start(table, is_two)
    found = [_outcome(each, i, is_two) for _, each in shown]
    what = "would be acted on" if is_two else "would be automated"
    wrong = "false alarms" if is_two else "errors"
    said = f"From {100 * table.threshold[i]:g} % on, {percent(found[-1].decided)} % of the rows {what}, with "
    said += f"{percent(found[-1].error)} % {wrong} among them, at a cost of {found[-1].cost:.1f}"
    if len(found) == 1:
        return f"{said}."
    old = found[0]
    return f"{said}; before calibration {percent(old.decided)} %, {percent(old.error)} % and {old.cost:.1f}."


def _chart(thresholds: list[float], costs: dict[str, list[float]], label: str) -> str:
    top = max(max(values) for values in costs.values()) or 1.0
    plot = Plot((0.0, 1.0), (0.0, 1.05 * top), size=(440.0, 270.0), margins=(60.0, 12.0, 16.0, 44.0))
    plot.axes(label, "cost of 1,000 rows")
    for (name, values), color, dash in zip(costs.items(), (MUTED, FIRST), ("6 4", ""), strict=False):
        plot.line(thresholds, values, color if len(costs) > 1 else FIRST, 1.8, dash if len(costs) > 1 else "")
        for i in range(5, len(thresholds), 10):
            plot.mark(
                f'<circle cx="{plot.x(thresholds[i]):.1f}" cy="{plot.y(values[i]):.1f}" r="7" fill="transparent"/>',
                f"{name}, {label} {thresholds[i]:g}: cost {values[i]:.1f}",
            )
    said = " and ".join(f"{name} it is at most {max(values):.1f}" for name, values in costs.items())
    return plot.svg("decision-cost", f"The cost of 1,000 rows against the threshold; {said}.")
