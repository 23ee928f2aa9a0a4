"""A page about several evaluations side by side: models, or dates of one model."""

from __future__ import annotations

from collections.abc import Sequence

from refocal.evaluate import Evaluation, differences
from refocal.evaluate.difference import CHOSEN
from refocal.evaluate.phrases import interval_percent, percent
from refocal.evaluate.summary import columns
from refocal.metrics import METRICS
from refocal.report import charts
from refocal.report.section import Section, fill, inline
from refocal.report.terms import terms_of


def distinct_titles(evaluations: Sequence[Evaluation]) -> list[str]:
    """The titles, numbered where two are the same."""
    titles = [evaluation.title for evaluation in evaluations]
    return [f"{title} ({i})" if titles.count(title) > 1 else title for i, title in enumerate(titles, 1)]


def verdict_of(evaluations: Sequence[Evaluation]) -> str:
    """Which of them has the least calibration error; of two classes the least log-loss."""
    metric = columns(evaluations[0])[0]
    pairs = zip(distinct_titles(evaluations), (e.after.measures[metric.name].value for e in evaluations), strict=True)
    title, least = min(pairs, key=lambda pair: pair[1])
    value = f"{metric.text(least)} {metric.unit}".rstrip()
    return f"{len(evaluations)} evaluations side by side: {title} has the lowest {metric.label}, {value}."


def overview(evaluations: Sequence[Evaluation]) -> Section:
    """A table and a chart with a row for each evaluation."""
    titles = distinct_titles(evaluations)
    shared = [m for m in columns(evaluations[0]) if all(m.name in found.after.measures for found in evaluations)]
    others = [metric for metric in shared if metric.name != "ece"]
    heads = ["evaluation", "test rows", "shown in detail", "ECE before %", "ECE %", "interval"]
    heads += [metric.heading for metric in others]
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
        for title, found in zip(titles, evaluations, strict=True)
    ]
    figures = [
        {
            "id": f"fig-several-{metric.name}",
            "heading": metric.label[:1].upper() + metric.label[1:],
            "caption": "",
            "svg": inline(_chart(evaluations, titles, metric.name)),
        }
        for metric in (METRICS["ece"], METRICS["log_loss"])
    ]
    return Section(
        "overview",
        "Side by side",
        ("Each with the method that it shows in detail, in the order given.",),
        fill("several.html", heads=heads, rows=rows, figures=figures),
    )


def changes(evaluations: Sequence[Evaluation]) -> Section:
    """What each evaluation changes against the one before it."""
    titles = distinct_titles(evaluations)
    rows = [
        [
            f"{titles[i]} → {titles[i + 1]}",
            METRICS[change.measure].heading,
            METRICS[change.measure].text(change.old),
            METRICS[change.measure].text(change.new),
            change.verdict,
        ]
        for i in range(len(evaluations) - 1)
        for change in differences(evaluations[i], evaluations[i + 1])
        if change.method == CHOSEN
    ]
    facts = ("Each against the one before it; their test rows are taken to be independent.",)
    heads = ["change", "measure", "before", "after", "verdict"]
    return Section("changes", "What changed?", facts, fill("several.html", heads=heads, rows=rows, figures=[]))


def diagrams(evaluations: Sequence[Evaluation]) -> Section:
    """A reliability diagram of each."""
    terms = terms_of(evaluations[0])
    figures = [
        {
            "id": f"fig-diagram-{i}",
            "heading": title,
            "caption": f"With {found.after.title}",
            "svg": inline(
                charts.reliability(found.after.reliability, f"diagram-{i}", title, found.after.histogram, terms)
            ),
        }
        for i, (title, found) in enumerate(zip(distinct_titles(evaluations), evaluations, strict=True))
    ]
    facts = (f"On the dashed line {terms.probability} and {terms.outcome} are the same.",)
    return Section("diagrams", terms.question, facts, fill("figures.html", figures=figures))


def _chart(evaluations: Sequence[Evaluation], titles: Sequence[str], measure: str) -> str:
    rows = [(title, found.after.measures[measure], True) for title, found in zip(titles, evaluations, strict=True)]
    metric = METRICS[measure]
    listed = ", ".join(f"{title} {metric.text(found.value)}" for title, found, _ in rows)
    return charts.intervals(rows, measure, f"several-{measure}", f"{metric.heading} of each evaluation: {listed}.")
