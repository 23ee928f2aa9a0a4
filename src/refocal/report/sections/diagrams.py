"""The diagrams before and after calibration, and how γ and T were searched."""

from __future__ import annotations

from refocal.calibrators.registry import NONE
from refocal.evaluate import Evaluation
from refocal.evaluate.summary import recommendation
from refocal.report import charts
from refocal.report.section import Figure, Section
from refocal.report.sentences import about_predictions, about_surface, facts_of
from refocal.report.terms import sides, terms_of


def reliability(evaluation: Evaluation) -> Section:
    """Whether confidence matches accuracy; of two classes whether the probability matches how often it comes true."""
    terms, figures, end = terms_of(evaluation), [], ""
    for key, heading, method in sides(evaluation):
        chart = charts.reliability(method.reliability, method.title, method.histogram, terms)
        caption = "the predictions as they are" if method.name == NONE else f"with {method.title}"
        figures.append(Figure(f"reliability-{key}", heading, chart, caption))
        if chart.x[1] < 1.0:
            end = " The axes end with the highest probability."
    fact = (
        f"Of the predictions with a {terms.probability} of 80 %, 80 % should be {terms.happened}: points on the dashed "
        f"line. Points in the shaded band differ from it by no more than chance.{end}"
    )
    return Section("reliability", terms.question, (fact, recommendation(evaluation)), figures=figures)


def confidence(evaluation: Evaluation) -> Section:
    """How sure the predictions are."""
    terms, shown = terms_of(evaluation), sides(evaluation)
    top = charts.highest_bar(method.histogram for _, _, method in shown)
    figures = [
        Figure(f"confidence-{key}", heading, charts.confidence(method.histogram, method.title, top, terms))
        for key, heading, method in shown
    ]
    fact = f"The share of predictions at each {terms.probability}. {about_predictions(facts_of(evaluation))}"
    title = "How sure are the predictions?" if evaluation.positive is None else "Which probabilities are predicted?"
    return Section("confidence", title, (fact,), figures=figures)


def surface(evaluation: Evaluation) -> Section | None:
    """How γ and T were chosen, where a search looked at both."""
    if evaluation.surface is None:
        return None
    figure = Figure("surface", "", charts.surface(evaluation.surface))
    return Section("surface", "How γ and T were chosen", (about_surface(evaluation),), figures=[figure])
