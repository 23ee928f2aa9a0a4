"""The groups of an evaluation as a table of text and a sentence; the terminal and the report show the same."""

from __future__ import annotations

from refocal.evaluate.evaluation import Evaluation, GroupRow
from refocal.evaluate.phrases import percent
from refocal.metrics import METRICS, Interval

BIAS = METRICS["mean_bias"]


def group_headers(evaluation: Evaluation) -> tuple[str, ...]:
    """The headings of the table of groups."""
    mean, rate = ("mean p %", "rate %") if evaluation.positive is not None else ("confidence %", "accuracy %")
    before = () if evaluation.after is evaluation.before else ("before",)
    interval = f"{evaluation.level * 100:g} % for all groups"
    return ("group", "rows", mean, rate, "difference", interval, *before, "ECE %", "by chance %")


def group_table(evaluation: Evaluation) -> list[tuple[str, ...]]:
    """A row for each group with the method that is shown in detail, the worst first."""
    before = {(row.column, row.name): row for row in evaluation.before.groups}
    calibrated = evaluation.after is not evaluation.before
    return [
        (
            group_name(row),
            f"{row.n:,}",
            percent(row.mean),
            percent(row.rate),
            BIAS.text(row.difference.value),
            interval_text(row.difference),
            *((BIAS.text(before[row.column, row.name].difference.value),) if calibrated else ()),
            percent(row.ece),
            percent(row.ece_by_chance),
        )
        for row in evaluation.after.groups
    ]


def group_name(row: GroupRow) -> str:
    """A group by its column and its value."""
    return f"{row.column} = {row.name}"


def interval_text(difference: Interval) -> str:
    """The ends of a difference, in points."""
    return f"{BIAS.text(difference.low)} – {BIAS.text(difference.high)}"


def group_verdict(evaluation: Evaluation) -> str:
    """The number of groups with a significant difference, and the worst of them."""
    rows = evaluation.after.groups
    off, off_before = (sum(map(is_off, method.groups)) for method in (evaluation.after, evaluation.before))
    what = "mean probability" if evaluation.positive is not None else "mean confidence"
    which = "rate" if evaluation.positive is not None else "accuracy"
    said = f"In {off} of {len(rows)} groups the {what} differs significantly from the {which}"
    if evaluation.after is not evaluation.before:
        said += f" with {evaluation.after.title}, and in {off_before} before"
    if not off:
        return f"{said}."
    worst = rows[0]
    return (
        f"{said}. The worst is {group_name(worst)}: {percent(worst.mean)} % against {percent(worst.rate)} %, "
        f"{BIAS.text(worst.difference.value)} points ({interval_text(worst.difference)})."
    )


def is_off(row: GroupRow) -> bool:
    """Whether 0 lies outside of the interval of a group's difference."""
    return not row.difference.low <= 0.0 <= row.difference.high
