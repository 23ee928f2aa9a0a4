"""Every method: the table, the chart of each measure, and a diagram of each."""

from __future__ import annotations

from typing import Any

from refocal.calibrators.registry import NONE
from refocal.evaluate import Evaluation, Measured, comparison_table
from refocal.evaluate.phrases import interval_percent, percent
from refocal.evaluate.summary import columns, headers, points, ranked, remarks
from refocal.report import charts
from refocal.report.section import Section, fill, inline, unbroken
from refocal.report.terms import terms_of


def methods(evaluation: Evaluation) -> Section:
    """How the methods compare; the measures alone where there is but one."""
    if len(evaluation.methods) == 1:
        ((_, *cells, _),) = (row.cells for row in comparison_table(evaluation))
        html = fill("several.html", heads=headers(evaluation)[1:-1], rows=[cells], figures=[])
        return Section("methods", "In numbers", tuple(remarks(evaluation)), html)
    top = charts.highest_bar(method.histogram for method in evaluation.methods)
    order = ranked(evaluation)
    html = fill(
        "methods.html",
        headers=headers(evaluation),
        rows=comparison_table(evaluation),
        methods=order,
        comparisons={name: inline(charts.comparison(evaluation, name)) for name in ("ece", "log_loss")},
        level=f"{evaluation.level * 100:g}",
        panels=[_panel(method, evaluation, top) for method in order],
        chosen=evaluation.chosen,
    )
    facts = (f"The lowest {columns(evaluation)[0].label} comes first, here and in the charts.", *remarks(evaluation))
    return Section("methods", "How do the methods compare?", facts, html)


def _panel(method: Measured, evaluation: Evaluation, top: float) -> dict[str, Any]:
    before, terms = evaluation.before, terms_of(evaluation)
    words = f"ECE {percent(method.measures['ece'].value)} % ({interval_percent(method.measures['ece'])})"
    if method.name != NONE:
        change = method.measures["ece"].value - before.measures["ece"].value
        words += f"; against no calibration {points(change, method.against_none)}"
    name = f"panel-{method.name}"
    return {
        "name": method.name,
        "title": method.title,
        "words": unbroken(words),
        "reliability": inline(
            charts.reliability(method.reliability, f"{name}-reliability", method.title, method.histogram, terms)
        ),
        "confidence": inline(charts.confidence(method.histogram, f"{name}-confidence", method.title, top, terms)),
    }
