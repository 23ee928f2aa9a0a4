"""The sentences of the page, each made from facts: none is written that could be false for another method."""

from __future__ import annotations

from typing import NamedTuple

from refocal.calibrators.registry import NONE
from refocal.evaluate import Evaluation
from refocal.evaluate.phrases import percent
from refocal.report.charts import tolerance_of


class Facts(NamedTuple):
    """What the sentences rest on."""

    kind: str
    """"none", "numbers", "shared" or "each class", as in `MapFacts`; "unknown" in evaluations of version 0.1.0."""
    n_numbers: int | None
    keeps_order: bool
    accuracy: tuple[float, float]
    is_binary: bool
    title: str


def facts_of(evaluation: Evaluation) -> Facts:
    """The facts about the method that is shown in detail."""
    after, found = evaluation.after, evaluation.after.map
    accuracy = (evaluation.before.measures["accuracy"].value, after.measures["accuracy"].value)
    kind = "none" if after.name == NONE else "unknown" if found is None else found.kind
    n_numbers = None if found is None else found.n_numbers
    keeps_order = kind == "none" or (found is not None and found.keeps_order)
    return Facts(kind, n_numbers, keeps_order, accuracy, evaluation.n_classes == 2, after.title)


def about_predictions(facts: Facts) -> str:
    """Whether the predicted classes change, and what that does to the accuracy."""
    before, after = facts.accuracy
    if facts.kind == "none":
        return "No calibrator is used."
    if facts.keeps_order:
        return "Only the confidences move: every row keeps its predicted class, so the accuracy stays the same."
    if before == after:
        return f"Predicted classes may change; the accuracy stays at {percent(after)} %."
    change = "rises" if after > before else "falls"
    return (
        f"Some predicted classes change as well: the accuracy {change} from {percent(before)} % to {percent(after)} %."
    )


def about_map(facts: Facts) -> str:
    """What the calibrator consists of."""
    numbers = "1 number" if facts.n_numbers == 1 else f"{facts.n_numbers or 0:,} numbers"
    if facts.is_binary and facts.kind in ("numbers", "shared", "each class"):
        return f"The calibrator is {numbers}."
    return {
        "none": "No calibrator is used.",
        "unknown": f"The calibrator is {facts.title}.",
        "numbers": f"The calibrator is {numbers}, the same for all classes.",
        "shared": f"The calibrator is {numbers} that treat all classes alike.",
        "each class": f"The calibrator has {numbers}, some of them for each class.",
    }[facts.kind]


def about_classes(facts: Facts) -> str:
    """Why gaps of single classes may remain."""
    if facts.is_binary or facts.kind in ("none", "unknown"):
        return ""
    if facts.kind == "each class":
        return "The calibrator has numbers for each class; gaps that remain are chance, or beyond its form."
    return "The calibrator treats all classes alike, so it cannot close the gap of a single class."


def about_surface(evaluation: Evaluation) -> str:
    """Whose search the surface shows, and what the ring and the border on it are."""
    found = evaluation.surface
    if found is None:
        return ""
    point = f"γ = {found.gamma:.3f} and T = {found.temperature:.3f}".replace("-", "−")
    ring = f"The ring is the choice: {point}."
    if found.method != evaluation.chosen:
        ring = f"The ring is the point that {found.method} took, {point}. The method shown in detail is "
        ring += f"{evaluation.after.title}, which was fitted otherwise."
    free = "" if found.tolerance is not None else ", though this search did not have to stay inside"
    share = 100 * tolerance_of(found)
    shades = {
        "auto": " Shades show log-loss and ECE in balance, relative to the best of each.",
        "nll": " Shades show the log-loss.",
        "ece": " Shades show the ECE.",
    }.get(found.objective, f" Shades show {found.objective}.")
    return (
        f"Every pair of γ and temperature that {found.method} looked at on the validation set. {ring} The "
        f"dashed border encloses the points whose log-loss is within {share:g} % of the best{free}.{shades}"
    )
