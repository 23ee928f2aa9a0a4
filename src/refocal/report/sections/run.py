"""What was run, and how to read the numbers."""

from __future__ import annotations

from refocal.evaluate import Evaluation
from refocal.report.section import Section, fill
from refocal.report.terms import terms_of


def run(evaluation: Evaluation) -> Section:
    """What was run."""
    rows = [
        ("test rows", f"{evaluation.n_test:,}"),
        ("validation rows", "–" if evaluation.n_validation is None else f"{evaluation.n_validation:,}"),
        ("classes", f"{evaluation.n_classes:,}"),
        ("given as", evaluation.input),
        ("methods", ", ".join(method.name for method in evaluation.methods)),
        ("level of intervals", f"{evaluation.level * 100:g} %"),
    ]
    rows += [("failed", f"{name}: {reason}") for name, reason in evaluation.failed.items()]
    rows += evaluation.run.items()
    is_picked = evaluation.recommended and len(evaluation.methods) > 1
    picked = " The method was chosen on this test set, so its results are slightly optimistic." if is_picked else ""
    terms = terms_of(evaluation)
    note = (
        f"ECE is the mean gap between {terms.probability} and {terms.outcome} over bins of equal mass; even "
        "perfectly calibrated predictions have a small ECE by chance. Intervals reflect the sampling of the test rows, "
        "not of the rows of the fit."
        f"{picked}"
    )
    return Section("run", "What was run", (), fill("run.html", rows=rows, note=note))
