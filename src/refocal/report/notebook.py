"""The notebook view of an evaluation: the verdict, two diagrams and the table."""

from __future__ import annotations

from html import escape

from refocal.calibrators.registry import NONE
from refocal.evaluate import Evaluation, comparison_table, recommendation, verdict
from refocal.evaluate.summary import headers, remarks
from refocal.report import charts
from refocal.report.terms import terms_of


def view(evaluation: Evaluation) -> str:
    """The evaluation as a piece of HTML.

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["ts"], n_resamples=20)
    >>> view(found).count("<svg")
    2
    """
    shown = [evaluation.before] if evaluation.chosen == NONE else [evaluation.before, evaluation.after]
    terms = terms_of(evaluation)
    diagrams = "".join(
        f'<div style="flex:1 1 16rem;max-width:22rem"><b>{escape(method.title)}</b>'
        + charts.reliability(method.reliability, "", method.title, method.histogram, terms)
        + "</div>"
        for method in shown
    )
    head = "".join(f"<th>{escape(text)}</th>" for text in headers(evaluation))
    body = "".join(
        ("<tr style='font-weight:bold'>" if row.chosen else "<tr>")
        + "".join(f"<td>{escape(cell)}</td>" for cell in row.cells)
        + "</tr>"
        for row in comparison_table(evaluation)
    )
    said = (verdict(evaluation), recommendation(evaluation), *remarks(evaluation))
    lines = "".join(f"<p>{escape(line)}</p>" for line in said)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return (
        f'<div>{lines}<div style="display:flex;flex-wrap:wrap;gap:1.5rem">{diagrams}</div>'
        f'<div style="overflow-x:auto">{table}</div></div>'
    )
