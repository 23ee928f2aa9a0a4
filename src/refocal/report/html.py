"""One HTML file from an Evaluation: no network, no other file, light and dark, on paper and on a telephone."""

from __future__ import annotations

import json
import os
from functools import partial
from importlib.resources import files
from typing import Any, NamedTuple

from refocal._files import write_atomically
from refocal.calibrators.registry import NAMED, NONE
from refocal.evaluate import ClassRow, Evaluation, Measured, comparison_table, recommendation, verdict
from refocal.evaluate.summary import headers, interval_percent, percent, points, remarks
from refocal.metrics import METRICS, Interval
from refocal.report import figures
from refocal.report._svg import inline_svg

FROM_FILE = """import refocal

calibrator = refocal.load("calibrator.json")
calibrated = calibrator.predict_proba({input})  # NumPy, torch or JAX, on its own device"""
IN_TORCH = """import torch
from refocal.maps import focal_temperature

with torch.no_grad():
    logits = model(inputs)
    probabilities = {call}.exp()"""
FROM_NUMBERS = """import numpy as np
from refocal.maps import focal_temperature

probabilities = np.exp({call})"""
IN_SHELL = """refocal fit val.npz{option} -o calibrator.json
refocal apply calibrator.json {input}.npz -o calibrated.npz"""
LONGEST_SNIPPET = 20_000
SQUARE, WIDE, MARGINS = (4.0, 3.8), (4.6, 3.6), (0.55, 0.5)


class Snippet(NamedTuple):
    """A piece of code under a tab."""

    key: str
    label: str
    code: str


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
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((files(__package__) / "template.html").read_text(encoding="utf-8"))
    before, after = evaluation.before, evaluation.after
    return template.render(
        evaluation=evaluation,
        before=before,
        after=after,
        unchanged=after.name == NONE,
        verdict=_unbroken(verdict(evaluation)),
        recommendation=_unbroken(recommendation(evaluation)),
        remarks=[_unbroken(line) for line in remarks(evaluation)],
        facts=_facts(evaluation),
        headers=headers(evaluation),
        rows=comparison_table(evaluation),
        figures=_figures(evaluation),
        panels=[_panel(method, before, _top(evaluation)) for method in evaluation.methods],
        classes=_class_rows(evaluation),
        worst=_unbroken(_worst(evaluation)),
        snippets=snippets(after),
        tolerance=None if evaluation.surface is None else f"{100 * figures.tolerance_of(evaluation.surface):g}",
        run=_run(evaluation),
    )


def snippets(method: Measured) -> list[Snippet]:
    """How to use the calibrator: from its file, from its numbers alone, in torch and on the command line."""
    if method.calibrator is None:
        return []
    found, kind = method.parameters, method.calibrator["parameters"]["input"]
    made = [Snippet("file", "Python", FROM_FILE.format(input=kind))]
    if set(found) <= {"gamma", "temperature"} and kind == "logits":
        gamma, temperature = found.get("gamma", 0.0), found.get("temperature", 1.0)
        call = f"focal_temperature(logits, gamma={gamma!r}, temperature={temperature!r})"
        made.append(Snippet("torch", "torch", IN_TORCH.format(call=call)))
        made.append(Snippet("numbers", "the numbers alone", FROM_NUMBERS.format(call=call)))
    option = f" --method {method.name}" if method.name in NAMED else ""
    shell = IN_SHELL.format(option=option + (" --probabilities" if kind == "probabilities" else ""), input=kind)
    made.append(Snippet("shell", "command line", shell))
    content = json.dumps({name: value for name, value in method.calibrator.items() if name != "fitted"}, indent=2)
    if len(content) < LONGEST_SNIPPET:  # thousands of numbers are of no use on a page
        made.append(Snippet("json", "calibrator.json", content))
    return made


def _figures(evaluation: Evaluation) -> dict[str, str]:
    before, after = evaluation.before, evaluation.after
    made = {
        f"comparison_{measure}": inline_svg(
            partial(_draw_comparison, evaluation, measure),
            f"comparison-{measure}",
            figures.describe_comparison(evaluation, measure),
            (SQUARE[0], 0.8 + 0.32 * len(evaluation.methods)),
            (0.25 + 0.085 * max(len(method.name) for method in evaluation.methods), 0.5),
        )
        for measure in ("ece", "log_loss")
    }
    for key, method in (("before", before), ("after", after)):
        made[f"reliability_{key}"] = _reliability(method, f"reliability-{key}")
        made[f"confidence_{key}"] = _confidence(method, f"confidence-{key}", _top(evaluation))
    if evaluation.surface is not None:
        draw = partial(figures.plot_surface, evaluation.surface)
        made["surface"] = inline_svg(draw, "surface", figures.describe_surface(evaluation.surface), WIDE)
    return made


def _draw_comparison(evaluation: Evaluation, measure: str, ax: Any) -> None:
    figures.plot_comparison(evaluation, measure, ax)


def _reliability(method: Measured, name: str) -> str:
    words = figures.describe_reliability(method.reliability, method.title)
    return inline_svg(partial(figures.plot_reliability, method.reliability), name, words, SQUARE, MARGINS)


def _confidence(method: Measured, name: str, top: float) -> str:
    """`top` is the upper end of the axis, the same for all, so that they can be compared."""

    def draw(ax: Any) -> None:
        figures.plot_confidence(method.histogram, ax).set_ylim(0.0, top)

    return inline_svg(draw, name, figures.describe_confidence(method.histogram, method.title), SQUARE, MARGINS)


def _top(evaluation: Evaluation) -> float:
    """A little above the highest bar of all histograms, in percent."""
    highest = 0.0
    for method in evaluation.methods:
        right, wrong = method.histogram.right, method.histogram.wrong
        highest = max(highest, max(r + w for r, w in zip(right, wrong, strict=True)) / (sum(right) + sum(wrong)))
    return 105.0 * highest


def _unbroken(text: str) -> str:
    """No line ends between a number and its percent sign."""
    return text.replace(" %", "\u00a0%")


def _panel(method: Measured, before: Measured, top: float) -> dict[str, str]:
    words = f"ECE {percent(method.measures['ece'].value)} % ({interval_percent(method.measures['ece'])})"
    if method.name != NONE:
        change = method.measures["ece"].value - before.measures["ece"].value
        words += f"; against no calibration {points(change, method.against_none)}"
    return {
        "name": method.name,
        "title": method.title,
        "words": _unbroken(words),
        "reliability": _reliability(method, f"panel-reliability-{method.name}"),
        "confidence": _confidence(method, f"panel-confidence-{method.name}", top),
    }


def _facts(evaluation: Evaluation) -> list[tuple[str, str, str]]:
    """The three numbers that matter, before and after."""
    before, after = evaluation.before.measures, evaluation.after.measures
    names = {"ece": "calibration error (ECE)", "log_loss": "log-loss", "accuracy": "accuracy"}

    def shown(name: str, of: dict[str, Interval]) -> str:
        return f"{METRICS[name].text(of[name].value)} {METRICS[name].unit}".rstrip()

    return [(label, shown(name, before), shown(name, after)) for name, label in names.items()]


def _class_rows(evaluation: Evaluation) -> list[dict[str, Any]]:
    before, after = evaluation.before.classes or [], evaluation.after.classes or []
    return [
        {
            "name": evaluation.name_of(b.label),
            "cells": [
                (b.n, str(b.n)),
                (b.predicted, str(b.predicted)),
                _percent_cell(a.precision),
                _percent_cell(b.confidence),
                _percent_cell(a.confidence),
                _gap_cell(a),
                _percent_cell(b.ece),
                _percent_cell(a.ece),
            ],
        }
        for b, a in zip(before, after, strict=True)
    ]


def _percent_cell(value: float | None) -> tuple[float, str]:
    """What to sort by, and what to show."""
    return (-1.0, "–") if value is None else (value, percent(value))


def _gap(row: ClassRow) -> float | None:
    """How far the confidence lies above the share of right predictions."""
    return None if row.confidence is None or row.precision is None else row.confidence - row.precision


def _gap_cell(row: ClassRow) -> tuple[float, str]:
    gap = _gap(row)
    return (-1.0, "–") if gap is None else (abs(gap), f"{100 * gap:+.2f}".replace("-", "−"))


def _worst(evaluation: Evaluation) -> str:
    """The classes whose predictions keep their word least after calibration."""
    ranked = sorted(evaluation.after.classes or [], key=lambda row: abs(_gap(row) or 0.0), reverse=True)[:3]
    return "; ".join(
        f"{evaluation.name_of(row.label)} (says {percent(row.confidence)} %, right {percent(row.precision)} %)"
        for row in ranked
        if row.confidence is not None and row.precision is not None
    )


def _run(evaluation: Evaluation) -> list[tuple[str, str]]:
    rows = [
        ("test rows", f"{evaluation.n_test:,}"),
        ("validation rows", "–" if evaluation.n_validation is None else f"{evaluation.n_validation:,}"),
        ("classes", f"{evaluation.n_classes:,}"),
        ("given as", evaluation.input),
        ("methods", ", ".join(method.name for method in evaluation.methods)),
        ("level of intervals", f"{evaluation.level * 100:g} %"),
    ]
    rows += [("failed", f"{name}: {reason}") for name, reason in evaluation.failed.items()]
    return rows + list(evaluation.run.items())
