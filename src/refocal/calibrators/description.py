"""The description of a fitted calibrator in words and rows of a table, for the terminal and for notebooks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from refocal.maps.chain import Chain, Step
from refocal.maps.curves import Confidence, OneVsRest
from refocal.maps.steps import Floor, Focal, Offset, Temperature
from refocal.metrics import METRICS

# Below this number of rows a warning is given.
FEW_ROWS = 30
GUESSED = (
    "the scores predict the labels no better than guessing. Check that the labels belong to these rows and that the "
    "columns are in the order of the classes"
)


def short(value: Any) -> str:
    """A number or a short vector as text; for larger arrays their size."""
    if isinstance(value, np.ndarray):
        few = value.ndim == 1 and len(value) <= 4
        return f"[{', '.join(map(short, value.tolist()))}]" if few else f"{value.size:,} numbers"
    return f"{value:.4f}" if value == 0.0 or abs(value) >= 1e-3 else f"{value:.2g}"


def describe(chain: Chain) -> str:
    """The steps of a chain and their parameters on one line.

    >>> from refocal.maps.steps import Floor, Focal, Offset, Temperature
    >>> describe(Chain((Temperature(1.25), Focal(0.5))))
    'temperature = 1.2500 → gamma = 0.5000'
    >>> describe(Chain((Floor(-7.0), Offset(np.zeros(10)))))
    'Floor(log_p = -7.0000) → Offset(offset = 10 numbers)'
    """
    return " → ".join(map(_described, chain.steps)) or "unchanged"


def _described(step: Step) -> str:
    """The parameters of a step, with the name of its class unless it is named like its parameter."""
    parameters = ", ".join(f"{name} = {short(value)}" for name, value in step.parameters())
    return parameters if isinstance(step, (Temperature, Focal)) else f"{type(step).__name__}({parameters})"


def is_guessing(log_loss: float, n_classes: int) -> bool:
    """Whether a log-loss is no better than predicting 1/C for every class.

    >>> is_guessing(0.6931, 2), is_guessing(0.6, 2)
    (True, False)
    """
    as_guessing = 0.999  # of log C: a log-loss above this share is no better than guessing
    return log_loss >= as_guessing * math.log(n_classes)


def few_rows_remark(n_rows: int) -> str:
    """What is said of fewer rows than `FEW_ROWS`."""
    return f"{'1 row is' if n_rows == 1 else f'{n_rows} rows are'} few: the result may be due to chance"


def fit_warnings(report: dict[str, Any], chain: Chain) -> list[str]:
    """Warnings about a fit: few rows, measures that got worse by more than chance, or no better than guessing.

    >>> before, after = {"ece": 0.108, "log_loss": 0.55, "accuracy": 0.8}, {"ece": 0.149, "log_loss": 0.49}
    >>> report = {"n_samples": 2000, "n_classes": 2, "before": before, "after": after}
    >>> [message.partition(": ")[0] for message in fit_warnings(report, Chain())]
    ['on the rows of the fit the ECE rose from 0.108 to 0.149']
    """
    n_rows = report["n_samples"]
    before = report["before"]
    after = report["after"]
    messages = [few_rows_remark(n_rows)] if n_rows < FEW_ROWS else []
    accuracy = before.get("accuracy", 0.5)
    # The bins of the ECE in a report; under perfect calibration it is about √(bins · a(1-a) / rows).
    ece_bins = 15
    chance = math.sqrt(ece_bins * accuracy * (1.0 - accuracy) / max(1, n_rows))
    margins = {"ece": chance, "log_loss": 0.02 * before.get("log_loss", 0.0)}
    risen = [
        f"the {METRICS[name].label} rose from {before[name]:.3f} to {after[name]:.3f}"
        for name, margin in margins.items()
        if name in before and name in after and after[name] > before[name] + margin
    ]
    if risen:
        has_curve = any(isinstance(step, (Confidence, OneVsRest)) for step in chain.walk())
        remedy = "use more rows" if has_curve else "this map does not suit them. Try one with a curve, auto or isotonic"
        messages.append(f"on the rows of the fit {' and '.join(risen)}: {remedy}")
    if is_guessing(after["log_loss"], report["n_classes"]) and _order_is_wrong(report, chain):
        names = "(class names are assigned in sorted order, numbers as numbers, unless the columns have these names)"
        messages.append(f"{GUESSED} {names}")
    return messages


def _order_is_wrong(report: dict[str, Any], chain: Chain) -> bool:
    """Whether it is the order of the scores, and not their scale alone, that makes a fit no better than guessing.

    It is where the scale was fitted; where it was not, the accuracy tells.
    """
    if any(not isinstance(step, (Chain, Floor, Focal, Offset)) for step in chain.walk()):
        return True
    by_chance = 1.0 / report["n_classes"]
    error = math.sqrt(by_chance * (1.0 - by_chance) / max(1, report["n_samples"]))
    return bool(report["before"].get("accuracy", by_chance) <= by_chance + 2.0 * error)


def report_rows(report: dict[str, Any]) -> tuple[str, list[tuple[str, str, str]]]:
    """The data of the fit, in words, and the measures before and after as rows of a table."""
    rows = [
        (METRICS[name].heading, METRICS[name].text(report["before"][name]), METRICS[name].text(report["after"][name]))
        for name in report["before"]
        if name in report["after"] and name in METRICS
    ]
    if report["n_samples"] == 0:
        return f"made of the settings of the training, without rows; {report['n_classes']:,} classes", rows
    if "n_labels" in report:
        of_rows = f" of its {report['n_rows']:,} rows" if "n_rows" in report else ""
        return f"on {report['n_samples']:,} known labels{of_rows}, {report['n_labels']:,} a row", rows
    absent = f", {report['n_absent_classes']:,} of them without a row" if "n_absent_classes" in report else ""
    return f"on its {report['n_samples']:,} rows, {report['n_classes']:,} classes{absent}", rows
