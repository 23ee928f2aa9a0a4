"""Accuracy against confidence, before and after."""

from __future__ import annotations

from refocal.calibrators.registry import NONE
from refocal.evaluate import Evaluation
from refocal.evaluate.summary import recommendation
from refocal.report import charts
from refocal.report.section import Section, fill, inline


def reliability(evaluation: Evaluation) -> Section:
    """Whether confidence matches accuracy."""
    shown = [("before", "Before", "the predictions as they are", evaluation.before)]
    if evaluation.chosen != NONE:
        shown.append(("after", "After", f"with {evaluation.after.title}", evaluation.after))
    figures = [
        {
            "id": f"fig-reliability-{key}",
            "heading": heading,
            "caption": caption,
            "svg": inline(charts.reliability(method.reliability, f"reliability-{key}", method.title, method.histogram)),
        }
        for key, heading, caption, method in shown
    ]
    facts = (
        "Of the predictions made with 80 % confidence, 80 % should be right: points on the dashed line. Points in the "
        "shaded band differ from it by no more than chance.",
        recommendation(evaluation),
    )
    return Section("reliability", "Does confidence match accuracy?", facts, fill("figures.html", figures=figures))
