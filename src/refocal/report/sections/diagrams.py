"""The diagrams before and after calibration, and how γ and T were searched."""

from __future__ import annotations

from refocal.calibrators.registry import NONE
from refocal.evaluate import Evaluation
from refocal.evaluate.summary import recommendation
from refocal.report import charts
from refocal.report.section import Figure, Section, figures, wide_figure
from refocal.report.sentences import about_predictions, about_surface, facts_of
from refocal.report.terms import sides, terms_of


def reliability(evaluation: Evaluation) -> Section:
    """Whether confidence matches accuracy; of two classes whether the probability matches how often it comes true."""
    terms, shown = terms_of(evaluation), sides(evaluation)
    drawn = [
        Figure(
            f"reliability-{key}",
            heading,
            charts.reliability(method.reliability, f"reliability-{key}", method.title, method.histogram, terms),
            "the predictions as they are" if method.name == NONE else f"with {method.title}",
        )
        for key, heading, method in shown
    ]
    is_cut = any(charts.end_of_axes(method.reliability, terms) < 1.0 for *_, method in shown)
    facts = (
        f"Of the predictions with a {terms.probability} of 80 %, 80 % should be {terms.happened}: points on the dashed "
        "line. Points in the shaded band differ from it by no more than chance."
        + (" The axes end with the highest probability." if is_cut else ""),
        recommendation(evaluation),
    )
    return Section("reliability", terms.question, facts, figures(*drawn))


def confidence(evaluation: Evaluation) -> Section:
    """How sure the predictions are."""
    terms, shown = terms_of(evaluation), sides(evaluation)
    top = charts.highest_bar(method.histogram for _, _, method in shown)
    drawn = [
        Figure(key, heading, charts.confidence(method.histogram, key, method.title, top, terms))
        for key, heading, method in ((f"confidence-{side}", heading, method) for side, heading, method in shown)
    ]
    facts = (f"The share of predictions at each {terms.probability}. {about_predictions(facts_of(evaluation))}",)
    title = "How sure are the predictions?" if evaluation.positive is None else "Which probabilities are predicted?"
    return Section("confidence", title, facts, figures(*drawn))


def surface(evaluation: Evaluation) -> Section | None:
    """How γ and T were chosen, where a search looked at both."""
    if evaluation.surface is None:
        return None
    html = wide_figure("surface", charts.surface(evaluation.surface))
    return Section("surface", "How γ and T were chosen", (about_surface(evaluation),), html)
