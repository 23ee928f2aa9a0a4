"""The notebook view of an evaluation: the verdict, two diagrams and the table."""

from __future__ import annotations

from refocal.evaluate import Evaluation, comparison_table, recommendation, verdict
from refocal.evaluate.summary import headers, remarks
from refocal.report.section import fill
from refocal.report.terms import sides, terms_of


def view(evaluation: Evaluation) -> str:
    """The evaluation as a piece of HTML.

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["ts"], n_resamples=20)
    >>> view(found).count("<svg")
    2
    """
    return fill(
        "notebook.html",
        lines=(verdict(evaluation), recommendation(evaluation), *remarks(evaluation)),
        methods=[method for _, _, method in sides(evaluation)],
        terms=terms_of(evaluation),
        headers=headers(evaluation),
        rows=comparison_table(evaluation),
    )
