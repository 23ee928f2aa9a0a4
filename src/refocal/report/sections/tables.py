"""The tables: every method, every group, every class, and what was run."""

from __future__ import annotations

from typing import Any

from refocal.calibrators.registry import NONE
from refocal.evaluate import ClassRow, Evaluation, comparison_table
from refocal.evaluate.group_summary import group_headers, group_name, group_table, group_verdict, is_off
from refocal.evaluate.phrases import interval_percent, percent
from refocal.evaluate.summary import columns, headers, points, ranked, remarks
from refocal.report import charts
from refocal.report.section import Section, fill
from refocal.report.sentences import about_classes, facts_of
from refocal.report.terms import terms_of

SORTED_BY, WORST = "gap", ("confidence\u00a0%", "right\u00a0%", "predicted")


def methods(evaluation: Evaluation) -> Section:
    """How the methods compare; the measures alone where there is but one."""
    rows, heads = comparison_table(evaluation), headers(evaluation)
    if len(rows) == 1:
        return Section("methods", "In numbers", remarks(evaluation), heads=heads[1:-1], rows=[rows[0].cells[1:-1]])
    words = {}
    for method in evaluation.methods:
        error = method.measures["ece"]
        change = points(error.value - evaluation.before.measures["ece"].value, method.against_none)
        against = "" if method.name == NONE else f"; against no calibration {change}"
        words[method.name] = f"ECE {percent(error.value)} % ({interval_percent(error)}){against}"
    html = fill(
        "methods.html",
        evaluation=evaluation,
        headers=heads,
        rows=[row.cells for row in rows],
        marked=[i for i, row in enumerate(rows) if row.chosen],
        methods=ranked(evaluation),
        words=words,
        top=charts.highest_bar(method.histogram for method in evaluation.methods),
        terms=terms_of(evaluation),
    )
    facts = (f"The lowest {columns(evaluation)[0].label} comes first, here and in the charts.", *remarks(evaluation))
    return Section("methods", "How do the methods compare?", facts, html)


def groups(evaluation: Evaluation) -> Section | None:
    """Whether each group can trust its probabilities: the worst on top, and a small diagram of each of the worst."""
    rows = evaluation.after.groups
    if not rows:
        return None
    curves = {group_name(row): row.reliability for row in rows if row.reliability is not None}
    html = fill(
        "groups.html",
        headers=group_headers(evaluation),
        rows=group_table(evaluation),
        marked=[i for i, row in enumerate(rows) if is_off(row)],
        curves=curves,
        top=charts.highest_point(curves.values()),
        terms=terms_of(evaluation),
    )
    facts = (
        group_verdict(evaluation),
        "The intervals hold for all groups at once: one of many is off by accident as rarely as a single one. "
        "ECE by chance is what perfectly calibrated predictions of as many rows would show.",
    )
    return Section("groups", "Is every group calibrated?", facts, html)


def classes(evaluation: Evaluation) -> Section | None:
    """Class by class, to search and sort; a click on a class shows its curve, confusions and rows."""
    before, after = evaluation.before.classes or [], evaluation.after.classes or []
    if not after or evaluation.positive is not None:  # of two classes all sections are about the positive one
        return None
    is_same = evaluation.after is evaluation.before
    names = [evaluation.name_of(row.label) for row in after]
    rows: list[dict[str, Any]] = [
        {"label": a.label, "name": name, "cells": _class_cells(b, a, is_same)}
        for name, b, a in zip(names, before, after, strict=True)
    ]
    rows.sort(key=lambda row: row["cells"][SORTED_BY][0], reverse=True)
    worst = "; ".join(
        f"{row['name']} (confidence {{}} %, right {{}} % of {{}})".format(*(row["cells"][name][1] for name in WORST))
        for row in rows[:3]
        if row["cells"][SORTED_BY][0] >= 0
    )
    # What the page draws of a class; small, because there may be thousands of them.
    details = [(b.detail, a.detail) for b, a in zip(before, after, strict=True) if b.detail and a.detail]
    data = {
        "names": names,
        "curves": [[[each.count, each.probability, each.frequency] for each in pair] for pair in details],
        "others": [[after.predicted_as, after.taken_for_it, after.examples] for _, after in details],
        "calibrated": not is_same,
    }
    html = fill(
        "classes.html",
        columns=list(rows[0]["cells"]),
        sorted_by=SORTED_BY,
        rows=rows,
        data=data if len(details) == len(after) else None,
    )
    facts = (
        f"The largest gaps{'' if is_same else ' that remain'}: {worst}. ",
        "Over the rows that are predicted as a class, confidence is what the model says on average and right the share "
        "that is; the gap is their difference and should be near 0. A few rows alone make large gaps. "
        + about_classes(facts_of(evaluation)),
    )
    return Section("classes", "Which classes can be trusted?", facts, html)


def _class_cells(before: ClassRow, after: ClassRow, is_same: bool) -> dict[str, tuple[float, str]]:
    """What to sort by and what to show, after calibration unless the heading says before."""
    gaps = [
        None if row.confidence is None or row.precision is None else row.confidence - row.precision
        for row in (before, after)
    ]
    cells: dict[str, tuple[float, str]] = {
        "rows": (after.n, f"{after.n:,}"),
        "predicted": (after.predicted, f"{after.predicted:,}"),
    }
    for name, value, sign in (
        ("right\u00a0%", after.precision, ""),
        ("confidence\u00a0%", after.confidence, ""),
        ("gap", gaps[1], "+"),
        ("gap before", gaps[0], "+"),
        ("ECE\u00a0%", after.ece, ""),
        ("ECE before\u00a0%", before.ece, ""),
    ):
        if not (is_same and "before" in name):
            text = "–" if value is None else f"{100 * value:{sign}.2f}".replace("-", "−")
            cells[name] = (-1.0 if value is None else round(abs(value), 6), text)
    return cells


def run(evaluation: Evaluation) -> Section:
    """What was run, and how to read the numbers."""
    return Section("run", "What was run", (), fill("run.html", found=evaluation, terms=terms_of(evaluation)))
