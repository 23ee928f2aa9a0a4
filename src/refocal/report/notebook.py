"""The notebook view of an evaluation: the verdict, two diagrams and the table."""

from __future__ import annotations

from refocal.evaluate import Evaluation
from refocal.report.page import ENVIRONMENT
from refocal.report.terms import sides, terms_of


def view(evaluation: Evaluation) -> str:
    """The evaluation as a piece of HTML.

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["ts"], n_resamples=20)
    >>> view(found).count("<svg")
    2
    """
    template = ENVIRONMENT.get_template("notebook.html")
    return template.render(found=evaluation, sides=sides(evaluation), terms=terms_of(evaluation))
