"""How confident the predictions are, before and after."""

from __future__ import annotations

from refocal.evaluate import Evaluation
from refocal.report import charts
from refocal.report.section import Section, fill, inline
from refocal.report.sentences import about_predictions, facts_of
from refocal.report.terms import sides, terms_of


def confidence(evaluation: Evaluation) -> Section:
    """How sure the predictions are."""
    shown = sides(evaluation)
    terms = terms_of(evaluation)
    top = charts.highest_bar(method.histogram for _, _, method in shown)
    figures = [
        {
            "id": f"fig-confidence-{key}",
            "heading": heading,
            "caption": "",
            "svg": inline(charts.confidence(method.histogram, f"confidence-{key}", method.title, top, terms)),
        }
        for key, heading, method in shown
    ]
    facts = (f"The share of predictions at each {terms.probability}. {about_predictions(facts_of(evaluation))}",)
    title = "How sure are the predictions?" if evaluation.positive is None else "Which probabilities are predicted?"
    return Section("confidence", title, facts, fill("figures.html", figures=figures))
