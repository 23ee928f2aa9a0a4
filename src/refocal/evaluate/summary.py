"""An evaluation as sentences and as a table of text: the terminal, the report and Jupyter show the same strings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from refocal.calibrators._words import FEW, FEW_ROWS, GUESSED, is_guessing
from refocal.calibrators.registry import NONE
from refocal.evaluate import two_classes
from refocal.evaluate._provenance import ABSENT_CLASSES, SAME, SAME_ROWS
from refocal.evaluate.evaluation import Evaluation, Measured
from refocal.evaluate.phrases import capital, change, interval_percent, p_value_text, percent, sign
from refocal.metrics import METRICS, PairedDifference
from refocal.metrics.record import Metric

WITH_INTERVAL = ("ece", "mean_bias")
MANY_CLASSES = ("ece", "log_loss", "brier_score", "accuracy")
TWO_CLASSES = ("log_loss", "log_loss_skill", "mean_bias", "ece", "brier_score", "roc_auc", "average_precision")
"""The columns of the comparison; the first ranks the methods."""


class Row(NamedTuple):
    """One method as text, in the order of the headers."""

    name: str
    cells: tuple[str, ...]
    chosen: bool


def columns(evaluation: Evaluation) -> list[Metric]:
    """The metrics of the comparison; it is ranked by the first."""
    names = MANY_CLASSES if evaluation.positive is None else TWO_CLASSES
    return [METRICS[name] for name in names if name in evaluation.before.measures]


def _point(evaluation: Evaluation) -> list[str]:
    """γ and T if the method has them; for two classes further measures take their place."""
    if evaluation.positive is not None:
        return []
    return [key for key in ("gamma", "temperature") if any(key in method.point for method in evaluation.methods)]


def headers(evaluation: Evaluation) -> tuple[str, ...]:
    """The headings of the comparison."""
    interval = f"{evaluation.level * 100:g} % interval"
    measured = (
        text
        for metric in columns(evaluation)
        for text in ([metric.heading, interval] if metric.name in WITH_INTERVAL else [metric.heading])
    )
    return ("method", *({"gamma": "γ", "temperature": "T"}[key] for key in _point(evaluation)), *measured, "fit s")


def comparison_table(evaluation: Evaluation) -> list[Row]:
    """One row per method, the lowest ECE first; for two classes the lowest log-loss.

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["ts"], n_resamples=20)
    >>> [row.name for row in comparison_table(found)]
    ['ts', 'none']
    """
    return [
        Row(method.name, _cells(evaluation, method), method.name == evaluation.chosen) for method in ranked(evaluation)
    ]


def ranked(evaluation: Evaluation) -> list[Measured]:
    """The methods in the order of all tables and charts: the lowest ECE first, for two classes the lowest log-loss."""
    first = columns(evaluation)[0].name
    return sorted(evaluation.methods, key=lambda method: method.measures[first].value)


def _cells(evaluation: Evaluation, method: Measured) -> tuple[str, ...]:
    found = method.point
    cells = [f"{found[key]:.3f}".replace("-", "−") if key in found else "–" for key in _point(evaluation)]
    for metric in columns(evaluation):
        measured = method.measures[metric.name]
        cells.append(metric.text(measured.value))
        if metric.name in WITH_INTERVAL:
            cells.append(f"{metric.text(measured.low)} – {metric.text(measured.high)}")
    return (method.name, *cells, "–" if method.fit_seconds is None else f"{method.fit_seconds:.2f}")


def verdict(evaluation: Evaluation) -> str:
    """The effect of calibration on this model, in one or two sentences.

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["ts"], n_resamples=20)
    >>> verdict(found)[:77]
    'Temperature scaling does not change the calibration error (ECE) significantly'
    """
    if evaluation.positive is not None:
        return two_classes.verdict(evaluation)
    after = evaluation.after
    if after.name == NONE:
        error = after.measures["ece"]
        as_it_is = f"{percent(error.value)} % ({interval_percent(error)})"
        if len(evaluation.methods) == 1 or not evaluation.recommended or ABSENT_CLASSES in evaluation.run:
            return f"The calibration error (ECE) of the predictions as they are is {as_it_is}."
        if error.low == 0.0:
            return f"The predictions need no calibration: their calibration error (ECE) is {as_it_is} as they are."
        return f"No method improves on the predictions as they are: their calibration error (ECE) is {as_it_is}."
    old, new = evaluation.before.measures["ece"].value, after.measures["ece"].value
    side = _side(new - old, after.against_none)
    ece_change = change(side, "calibration error (ECE)", f"{percent(old)} %", f"{percent(new)} %")
    loss = after.against_none["log_loss"]
    loss_change = change(sign(loss), "log-loss", f"{loss.second:.3f}", f"{loss.first:.3f}")
    accuracy = after.against_none["accuracy"]
    return f"{capital(after.title)} {ece_change} and {loss_change}; {_accuracy(accuracy.second, accuracy.first)}."


def _accuracy(old: float, new: float) -> str:
    if old == new:
        return f"accuracy stays at {percent(new)} %"
    return f"accuracy {'rises' if new > old else 'falls'} from {percent(old)} % to {percent(new)} %"


def recommendation(evaluation: Evaluation) -> str:
    """The recommended method, and how certain that is.

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["ts"], n_resamples=20)
    >>> recommendation(found)[:43]
    'Recommendation: ts (temperature scaling), t'
    """
    best, two = evaluation.after, evaluation.positive is not None
    if len(evaluation.methods) == 1:
        return "No calibrator was tried; refocal compare fits the usual ones and says which to use."
    if best.name == NONE and not evaluation.recommended:
        return "Shown in detail: the predictions as they are."
    by_loss = "methods for two classes are ranked by log-loss."
    if best.name == NONE:
        why = f"; {by_loss}" if two else f"{_why_nothing(evaluation)}."
        return f"Recommendation: leave the predictions as they are{why}"
    metric = columns(evaluation)[0]
    others = [method for method in evaluation.methods if method.name not in (NONE, best.name)]
    second = min(others, key=lambda method: method.measures[metric.name].value, default=best)
    gap = second.measures[metric.name].value - best.measures[metric.name].value
    what = metric.label if two else f"{metric.label} among the methods within 1 % of the best log-loss"
    said = f", the lowest {what}." if gap >= 0.0 else f": no {what} is significantly lower."
    said = f"Recommendation: {best.name} ({best.title}){said}{f' {capital(by_loss)}' if two else ''}"
    if not evaluation.recommended:
        said = f"Shown in detail: {best.name} ({best.title})."
    if not others:
        return said
    if two:
        tested = second.against_chosen["log_loss"]
        seen = f"{gap:+.4f}".replace("-", "−") if abs(gap) >= 5e-5 else "below 0.0001"
        side, difference = sign(tested, least=0.0), f"{seen}, {p_value_text(tested.p_value)}"
    else:
        side, difference = _side(gap, second.against_chosen), points(gap, second.against_chosen)
    words = {
        0: f"By {metric.label} it is statistically indistinguishable from {second.name} on these "
        f"{evaluation.n_test:,} rows",
        1: f"It is significantly better than {second.name} by {metric.label}",
        -1: f"By {metric.label} alone {second.name} is significantly better",
    }
    return f"{said} {words[side]} ({second.name} less {best.name}: {difference})."


def _why_nothing(evaluation: Evaluation) -> str:
    """Why nothing is recommended, with the methods that are better by ECE or by log-loss alone."""
    here = {name: evaluation.before.measures[name].value for name in ("ece", "log_loss")}
    others = [method for method in evaluation.methods if method.name != NONE]
    better = {name: min(others, key=lambda m: m.measures[name].value) for name in here}
    said = [
        f"{best.name} has a lower {METRICS[name].label} alone ({METRICS[name].text(best.measures[name].value)} against "
        f"{METRICS[name].text(here[name])}{METRICS[name].unit and ' ' + METRICS[name].unit})"
        for name, best in better.items()
        if best.measures[name].value < here[name]
    ]
    return f"; {' and '.join(said)}" if said else ": no method has a lower ECE or a lower log-loss"


def remarks(evaluation: Evaluation) -> list[str]:
    """Problems of the evaluation and of methods that failed, one per line."""
    said = [f"{name} failed and was left out: {reason}" for name, reason in evaluation.failed.items()]
    if all(is_guessing(method.measures["log_loss"].value, evaluation.n_classes) for method in evaluation.methods):
        said.insert(0, f"No method helps: {GUESSED}.")
    if SAME_ROWS in evaluation.run:
        said.insert(0, capital(SAME))
    fewest = min(evaluation.n_test, evaluation.n_validation or evaluation.n_test)
    if fewest < FEW_ROWS:
        said.append(f"{FEW.format(fewest)}.")
    if ABSENT_CLASSES in evaluation.run:
        n_absent = int(evaluation.run[ABSENT_CLASSES])
        said.append(
            f"{n_absent:,} of {evaluation.n_classes:,} classes {'does' if n_absent == 1 else 'do'} not occur among the "
            "rows that the methods were fitted on: nothing is known about their probabilities."
        )
    if any(method.measures["ece"].value >= method.measures["ece"].high for method in evaluation.methods):
        said.append(INTERVALS)
    return said


INTERVALS = (
    "ECE is measured too high on few rows, and its intervals allow for that: the measured value may lie at their upper "
    "end or above it."
)


def points(difference: float, tested: Mapping[str, PairedDifference]) -> str:
    """A difference of ECEs in points, with the p-value of the test that goes with it."""
    p_value = _test_of(tested).p_value
    return f"{100 * difference:+.2f} points, {p_value_text(p_value)}".replace("-", "−")


def _side(difference: float, tested: Mapping[str, PairedDifference]) -> int:
    """Whether an ECE is significantly lower (-1) or higher (1); otherwise 0.

    The test is that of the squared errors (`metrics.squared_ece_difference`): that of the ECEs would not hold.
    """
    side = sign(_test_of(tested), least=0.0)
    return side if side * difference >= 5e-5 else 0


def _test_of(tested: Mapping[str, PairedDifference]) -> PairedDifference:
    """The test of calibration errors; evaluations of version 0.1.0 have only a bootstrap of the ECEs."""
    return tested["squared_ece"] if "squared_ece" in tested else tested["ece"]
