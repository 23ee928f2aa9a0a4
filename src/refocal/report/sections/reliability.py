"""Accuracy against confidence, before and after."""

from __future__ import annotations

from refocal.calibrators.registry import NONE
from refocal.evaluate import Evaluation
from refocal.evaluate.summary import recommendation
from refocal.report import charts
from refocal.report.section import Section, fill, inline
from refocal.report.terms import sides, terms_of


def reliability(evaluation: Evaluation) -> Section:
    """Whether confidence matches accuracy; of two classes whether the probability matches how often it comes true."""
    terms = terms_of(evaluation)
    shown = sides(evaluation)
    figures = [
        {
            "id": f"fig-reliability-{key}",
            "heading": heading,
            "caption": "the predictions as they are" if method.name == NONE else f"with {method.title}",
            "svg": inline(
                charts.reliability(method.reliability, f"reliability-{key}", method.title, method.histogram, terms)
            ),
        }
        for key, heading, method in shown
    ]
    is_cut = any(charts.end_of_axes(method.reliability, terms) < 1.0 for *_, method in shown)
    facts = (
        f"Of the predictions with a {terms.probability} of 80 %, 80 % should be {terms.happened}: points on the dashed "
        "line. Points in the shaded band differ from it by no more than chance."
        + (" The axes end with the highest probability." if is_cut else ""),
        recommendation(evaluation),
    )
    return Section("reliability", terms.question, facts, fill("figures.html", figures=figures))
