"""One HTML file from an Evaluation: no network, no other file, light and dark, on paper and on a telephone."""

from __future__ import annotations

import os
from collections.abc import Sequence

from refocal._files import write_atomically
from refocal.calibrators.registry import NONE
from refocal.errors import ShapeError
from refocal.evaluate import Evaluation, check_requirements, verdict
from refocal.evaluate.multilabel import of_labels
from refocal.evaluate.phrases import percent
from refocal.evaluate.two_classes import mean_probability, positive_name
from refocal.metrics import METRICS
from refocal.report import several
from refocal.report.notes import notes_html
from refocal.report.section import fill
from refocal.report.sections.decisions import decisions
from refocal.report.sections.diagrams import confidence, reliability, surface
from refocal.report.sections.tables import classes, groups, methods, run
from refocal.report.sections.use import use

SECTIONS = (reliability, groups, methods, confidence, decisions, classes, surface, use, run)


def write_report(
    evaluation: Evaluation | Sequence[Evaluation],
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    notes: str = "",
    require: Sequence[str] = (),
) -> None:
    """Write the page, whole or not at all.

    Parameters
    ----------
    evaluation : Evaluation or several
        The evaluation to show; several are shown side by side.
    path : path-like
        Where to write it.
    title : str, optional
        A description of the predictions; by default the title of the evaluation.
    notes : str
        Markdown shown below the verdict.
    require : list of str
        Requirements such as "ece<2%" or "log_loss<=ts": `evaluate.check_requirements`.

    Examples
    --------
    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["ts"], n_resamples=20)
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(found, f"{folder}/report.html", title="my model", require=["ece<2%"])
    """
    write_atomically(path, render(evaluation, title=title, notes=notes, require=require))


def render(
    evaluation: Evaluation | Sequence[Evaluation],
    *,
    title: str | None = None,
    notes: str = "",
    require: Sequence[str] = (),
) -> str:
    """The page as text; the arguments are those of `write_report`.

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["ts"], n_resamples=20)
    >>> render(found).startswith("<!doctype html>")
    True
    """
    found = [evaluation] if isinstance(evaluation, Evaluation) else list(evaluation)
    if not found:
        raise ShapeError("evaluation", "render", expected="one evaluation or several", got="none")
    one, titled = found[0] if len(found) == 1 else None, several.by_title(found)
    if one is not None:
        sections = [made for make in SECTIONS if (made := make(one)) is not None]
        rows = [f"{one.n_test:,} test rows", f"{one.n_classes:,} classes"]
        about = [f"{one.n_test:,} known labels of the test rows"] if of_labels(one) else rows
    else:
        sections = [several.overview(titled), several.diagrams(titled), several.changes(titled)]
        about = [f"{len(found)} evaluations"]
    checks = [
        check._replace(text=f"{each.title}: {check.text}" if one is None else check.text)
        for each in found
        for check in check_requirements(each, require)
    ]
    html = fill(
        "page.html",
        title=title or ", ".join(dict.fromkeys(each.title for each in found)),
        about=about,
        verdict=verdict(one) if one else several.verdict_of(titled),
        sections=sections,
        numbers=_numbers(one) if one else [],
        calibrated=one is not None and one.chosen != NONE,
        checks=checks,
        notes=notes_html(notes) if notes else "",
        is_interactive=True,
    )
    return f"{html}\n"


def _numbers(evaluation: Evaluation) -> list[tuple[str, str, str]]:
    """The few numbers that matter, before and after."""
    sides, rows = (evaluation.before, evaluation.after), []
    names = {"ece": "calibration error (ECE)", "log_loss": "log-loss", "accuracy": "accuracy"}
    if evaluation.positive is not None:
        names = {"log_loss": "log-loss", "ece": "calibration error (ECE)", "roc_auc": "AUC"}
        label = f"mean probability of {positive_name(evaluation)}; it occurs in {percent(evaluation.rate)} %"
        before, after = (f"{percent(mean_probability(evaluation, side))} %" for side in sides)
        rows.append((label, before, after))
    for name, label in names.items():
        if name in evaluation.before.measures:
            metric = METRICS[name]
            before, after = (f"{metric.text(side.measures[name].value)} {metric.unit}".rstrip() for side in sides)
            rows.append((label, before, after))
    return rows
