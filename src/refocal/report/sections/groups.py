"""Group by group: a table with the worst on top, and a small diagram for each of the worst."""

from __future__ import annotations

from refocal.evaluate import Evaluation
from refocal.evaluate.group_summary import group_headers, group_name, group_table, group_verdict, is_off
from refocal.report import charts
from refocal.report.section import Section, fill, inline
from refocal.report.terms import terms_of


def groups(evaluation: Evaluation) -> Section | None:
    """Whether each group can trust its probabilities."""
    rows = evaluation.after.groups
    if not rows:
        return None
    terms = terms_of(evaluation)
    curves = [(group_name(row), row.reliability) for row in rows if row.reliability is not None]
    top = charts.highest_point(curve for _, curve in curves)
    drawn = [
        {"title": name, "svg": inline(charts.small_reliability(curve, f"group-{i}", name, top, terms))}
        for i, (name, curve) in enumerate(curves)
    ]
    html = fill(
        "groups.html",
        headers=group_headers(evaluation),
        rows=[(cells, is_off(row)) for cells, row in zip(group_table(evaluation), rows, strict=True)],
        drawn=drawn,
        n_groups=len(rows),
        terms=terms,
    )
    facts = (
        group_verdict(evaluation),
        "The intervals hold for all groups at once: one of many is off by accident as rarely as a single one. "
        "ECE by chance is what perfectly calibrated predictions of as many rows would show.",
    )
    return Section("groups", "Is every group calibrated?", facts, html)
