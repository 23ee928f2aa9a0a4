"""One HTML file from an Evaluation: no network, no other file, light and dark, on paper and on a telephone."""

from __future__ import annotations

import os

from refocal._files import write_atomically
from refocal.evaluate import Evaluation, verdict
from refocal.evaluate.phrases import percent
from refocal.evaluate.two_classes import mean_probability, positive_name
from refocal.metrics import METRICS, Interval
from refocal.report.section import asset, fill, unbroken
from refocal.report.sections import SECTIONS


def write_report(evaluation: Evaluation, path: str | os.PathLike[str]) -> None:
    """Write the page, whole or not at all.

    >>> from refocal.data import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["ts"], n_resamples=20)
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(found, f"{folder}/report.html")
    """
    write_atomically(path, render(evaluation))


def render(evaluation: Evaluation) -> str:
    """The page as text.

    >>> from refocal.data import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["ts"], n_resamples=20)
    >>> render(found).startswith("<!doctype html>")
    True
    """
    sections = [made for make in SECTIONS if (made := make(evaluation)) is not None]
    about = [f"{evaluation.n_test:,} test rows", f"{evaluation.n_classes:,} classes"]
    return (
        fill(
            "page.html",
            title=evaluation.title,
            about=about,
            verdict=unbroken(verdict(evaluation)),
            numbers=_numbers(evaluation),
            checks=[],
            notes="",
            sections=sections,
            style=asset("style.css"),
            script=asset("page.js"),
        )
        + "\n"
    )


def _numbers(evaluation: Evaluation) -> list[tuple[str, str, str]]:
    """The few numbers that matter, before and after."""
    before, after = evaluation.before.measures, evaluation.after.measures
    names = {"ece": "calibration error (ECE)", "log_loss": "log-loss", "accuracy": "accuracy"}
    made = []
    if evaluation.positive is not None:
        names = {"log_loss": "log-loss", "ece": "calibration error (ECE)", "roc_auc": "AUC"}
        label = f"mean probability of {positive_name(evaluation)}; it occurs in {percent(evaluation.rate)} %"
        first, second = (mean_probability(evaluation, each) for each in (evaluation.before, evaluation.after))
        made.append((label, f"{percent(first)} %", f"{percent(second)} %"))

    def shown(name: str, of: dict[str, Interval]) -> str:
        return f"{METRICS[name].text(of[name].value)} {METRICS[name].unit}".rstrip()

    return made + [(label, shown(name, before), shown(name, after)) for name, label in names.items() if name in before]
