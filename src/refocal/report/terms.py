"""What the charts and sentences of a page are about: the confidence, or of two classes the probability of one."""

from __future__ import annotations

from typing import NamedTuple

from refocal.data.multilabel import APPLIES
from refocal.evaluate import Evaluation
from refocal.evaluate.two_classes import positive_name


class Terms(NamedTuple):
    """What the probability, the outcome and its two sides are called."""

    probability: str = "confidence"
    outcome: str = "accuracy"
    happened: str = "right"
    did_not: str = "wrong"

    @property
    def question(self) -> str:
        """What a reliability diagram answers."""
        article = "" if self == CONFIDENCE else "the "
        return f"Does {article}{self.probability} match {article}{self.outcome}?"


CONFIDENCE = Terms()


def of_labels(evaluation: Evaluation) -> bool:
    """Whether it is about labels that do not exclude one another, each of which applies or not."""
    return evaluation.class_names == list(APPLIES)


def terms_of(evaluation: Evaluation) -> Terms:
    """The terms of an evaluation."""
    if evaluation.positive is None:
        return CONFIDENCE
    if of_labels(evaluation):
        return Terms("probability of a label", "share of rows that have it", "true", "not true")
    name = positive_name(evaluation)
    return Terms(f"probability of {name}", f"share of {name}", name, f"not {name}")
