"""Class by class: a table to search and sort; a click on a class shows its curve, confusions and rows."""

from __future__ import annotations

from typing import Any

from refocal.evaluate import ClassRow, Evaluation
from refocal.evaluate.phrases import percent
from refocal.report.section import Section, fill
from refocal.report.sentences import about_classes, facts_of

SORTED_BY = "gap"


def classes(evaluation: Evaluation) -> Section | None:
    """The table of classes."""
    before, after = evaluation.before.classes or [], evaluation.after.classes or []
    if not after or evaluation.positive is not None:  # of two classes all sections are about the positive one
        return None
    rows = [_row(evaluation, b, a) for b, a in zip(before, after, strict=True)]
    rows.sort(key=lambda row: row["cells"][SORTED_BY][0], reverse=True)
    is_same = evaluation.after is evaluation.before
    columns = [name for name in rows[0]["cells"] if not (is_same and "before" in name)]
    html = fill(
        "classes.html",
        columns=columns,
        sorted_by=SORTED_BY,
        rows=rows,
        data=_details(evaluation, before, after),
    )
    facts = (
        f"The largest gaps{'' if is_same else ' that remain'}: {_worst(evaluation)}. ",
        "Over the rows that are predicted as a class, confidence is what the model says on average and right the share "
        "that is; the gap is their difference and should be near 0. A few rows alone make large gaps. "
        + about_classes(facts_of(evaluation)),
    )
    return Section("classes", "Which classes can be trusted?", facts, html)


def _row(evaluation: Evaluation, before: ClassRow, after: ClassRow) -> dict[str, Any]:
    """Counts, shares and gaps are those after calibration, unless their heading says before."""
    return {
        "label": after.label,
        "name": evaluation.name_of(after.label),
        "cells": {
            "rows": (after.n, f"{after.n:,}"),
            "predicted": (after.predicted, f"{after.predicted:,}"),
            "right\u00a0%": _percent_cell(after.precision),
            "confidence\u00a0%": _percent_cell(after.confidence),
            "gap": _gap_cell(after),
            "gap before": _gap_cell(before),
            "ECE\u00a0%": _percent_cell(after.ece),
            "ECE before\u00a0%": _percent_cell(before.ece),
        },
    }


def _details(evaluation: Evaluation, before: list[ClassRow], after: list[ClassRow]) -> dict[str, Any] | None:
    """What the page draws of a class that is asked for; small, because there may be thousands of them."""
    if any(row.detail is None for row in (*before, *after)):
        return None

    def curve(row: ClassRow) -> list[list[float]]:
        of = row.detail
        return [] if of is None else [of.count, of.probability, of.frequency]  # type: ignore[list-item]

    return {
        "names": [evaluation.name_of(row.label) for row in after],
        "curves": [[curve(b), curve(a)] for b, a in zip(before, after, strict=True)],
        "others": [[a.detail.predicted_as, a.detail.taken_for_it, a.detail.examples] for a in after if a.detail],
        "calibrated": evaluation.after is not evaluation.before,
    }


def _percent_cell(value: float | None) -> tuple[float, str]:
    """What to sort by, and what to show."""
    return (-1.0, "–") if value is None else (round(value, 6), percent(value))


def _gap(row: ClassRow) -> float | None:
    """How far the confidence lies above the share of right predictions."""
    return None if row.confidence is None or row.precision is None else row.confidence - row.precision


def _gap_cell(row: ClassRow) -> tuple[float, str]:
    gap = _gap(row)
    return (-1.0, "–") if gap is None else (round(abs(gap), 6), f"{100 * gap:+.2f}".replace("-", "−"))


def _worst(evaluation: Evaluation) -> str:
    """The classes whose confidence and accuracy differ most."""
    ranked = sorted(evaluation.after.classes or [], key=lambda row: abs(_gap(row) or 0.0), reverse=True)[:3]
    return "; ".join(
        f"{evaluation.name_of(row.label)} (confidence {percent(row.confidence)} %, right {percent(row.precision)} % of "
        f"{row.predicted:,})"
        for row in ranked
        if row.confidence is not None and row.precision is not None
    )
