"""The groups of an evaluation as a table of text and a sentence; the terminal and the report show the same."""

from __future__ import annotations

from refocal.evaluate.evaluation import Evaluation, GroupRow
from refocal.evaluate.phrases import percent
from refocal.metrics import METRICS, Interval

BIAS = METRICS["mean_bias"]


def group_table(evaluation: Evaluation) -> list[dict[str, str]]:
    """Each group with the method that is shown in detail as texts by their headings, the worst first."""
    mean, rate = ("mean p %", "rate %") if evaluation.positive is not None else ("confidence %", "accuracy %")
    before = {(row.column, row.name): row.difference.value for row in evaluation.before.groups}
    table = []
    for row in evaluation.after.groups:
        cells = {"group": group_name(row), "rows": f"{row.n:,}", mean: percent(row.mean), rate: percent(row.rate)}
        cells["difference"] = BIAS.text(row.difference.value)
        cells[f"{evaluation.level * 100:g} % for all groups"] = interval_text(row.difference)
        if evaluation.after is not evaluation.before:
            cells["before"] = BIAS.text(before[row.column, row.name])
        table.append(cells | {"ECE %": percent(row.ece), "by chance %": percent(row.ece_by_chance)})
    return table


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
