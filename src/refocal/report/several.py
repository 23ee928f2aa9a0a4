"""A page about several evaluations side by side: models, or dates of one model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from refocal.evaluate import Evaluation, differences
from refocal.evaluate.difference import CHOSEN
from refocal.evaluate.phrases import capital, interval_percent, percent
from refocal.evaluate.summary import columns
from refocal.metrics import METRICS
from refocal.report import charts
from refocal.report.section import Figure, Section
from refocal.report.terms import terms_of


def by_title(evaluations: Sequence[Evaluation]) -> dict[str, Evaluation]:
    """Evaluations by their titles, numbered where two are the same."""
    titles = [evaluation.title for evaluation in evaluations]
    return {
        f"{each.title} ({i})" if titles.count(each.title) > 1 else each.title: each
        for i, each in enumerate(evaluations, 1)
    }


def verdict_of(titled: dict[str, Evaluation]) -> str:
    """Which of them has the least calibration error; of two classes the least log-loss."""
    metric = columns(next(iter(titled.values())))[0]
    values = {title: each.after.measures[metric.name].value for title, each in titled.items()}
    least = min(values, key=values.__getitem__)
    value = f"{metric.text(values[least])} {metric.unit}".rstrip()
    return f"{len(titled)} evaluations side by side: {least} has the lowest {metric.label}, {value}."


def overview(titled: dict[str, Evaluation]) -> Section:
    """A table and a chart with a row for each evaluation."""
    first = next(iter(titled.values()))
    others = [m for m in columns(first) if m.name != "ece" and all(m.name in e.after.measures for e in titled.values())]
    heads = ["evaluation", "test rows", "shown in detail", "ECE before %", "ECE %", "interval"]
    rows = [
        [
            title,
            f"{found.n_test:,}",
            found.chosen,
            percent(found.before.measures["ece"].value),
            percent(found.after.measures["ece"].value),
            interval_percent(found.after.measures["ece"]),
            *(metric.text(found.after.measures[metric.name].value) for metric in others),
        ]
        for title, found in titled.items()
    ]
    drawn = []
    for name in ("ece", "log_loss"):
        values = [(title, found.after.measures[name], True) for title, found in titled.items()]
        chart = charts.intervals(values, name, "each evaluation")
        drawn.append(Figure(f"several-{name}", capital(METRICS[name].label), chart))
    facts = ("Each with the method that it shows in detail, in the order given.",)
    heads += [metric.heading for metric in others]
    return Section("overview", "Side by side", facts, heads=heads, rows=rows, figures=drawn)


def changes(titled: dict[str, Evaluation]) -> Section:
    """What each evaluation changes against the one before it."""
    rows = []
    for (old_title, old), (new_title, new) in pairwise(titled.items()):
        for change in differences(old, new):
            if change.method == CHOSEN:
                metric = METRICS[change.measure]
                values = (metric.text(change.old), metric.text(change.new))
                rows.append((f"{old_title} → {new_title}", metric.heading, *values, change.verdict))
    facts = ("Each against the one before it; their test rows are taken to be independent.",)
    heads = ["change", "measure", "before", "after", "verdict"]
    return Section("changes", "What changed?", facts, heads=heads, rows=rows)


def diagrams(titled: dict[str, Evaluation]) -> Section:
    """A reliability diagram of each."""
    terms, drawn = terms_of(next(iter(titled.values()))), []
    for i, (title, found) in enumerate(titled.items()):
        chart = charts.reliability(found.after.reliability, title, found.after.histogram, terms)
        drawn.append(Figure(f"diagram-{i}", title, chart, f"With {found.after.title}"))
    facts = (f"On the dashed line {terms.probability} and {terms.outcome} are the same.",)
    return Section("diagrams", terms.question, facts, figures=drawn)
