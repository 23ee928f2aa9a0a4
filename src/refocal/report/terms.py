"""What the charts and sentences of a page are about: the confidence, or of two classes the probability of one."""

from __future__ import annotations

from typing import NamedTuple

from refocal.calibrators.registry import NONE
from refocal.evaluate import Evaluation, Measured
from refocal.evaluate.multilabel import of_labels
from refocal.evaluate.summary import positive_name


class Terms(NamedTuple):
    """What the probability, the outcome and its two sides are called."""

    probability: str = "confidence"
    outcome: str = "accuracy"
    happened: str = "right"
    did_not: str = "wrong"
    question: str = "Does confidence match accuracy?"
    """What a reliability diagram answers."""


CONFIDENCE = Terms()


def sides(evaluation: Evaluation) -> list[tuple[str, str, Measured]]:
    """Before and after calibration, each with its heading; the predictions as they are alone where nothing is used."""
    if evaluation.chosen == NONE:
        return [("before", "As they are", evaluation.before)]
    return [("before", "Before", evaluation.before), ("after", "After", evaluation.after)]


def terms_of(evaluation: Evaluation) -> Terms:
    """The terms of an evaluation."""
    if evaluation.positive is None:
        return CONFIDENCE
    name = positive_name(evaluation)
    made = Terms(f"probability of {name}", f"share of {name}", name, f"not {name}")
    if of_labels(evaluation):
        made = Terms("probability of a label", "share of rows that have it", "true", "not true")
    return made._replace(question=f"Does the {made.probability} match the {made.outcome}?")
