"""An evaluation as sentences and as a table of text: the terminal, the report and Jupyter show the same strings."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import NamedTuple

from refocal.calibrators._words import GUESSED, is_guessing
from refocal.calibrators.registry import NONE
from refocal.evaluate._provenance import ABSENT_CLASSES
from refocal.evaluate.evaluation import Evaluation, Measured
from refocal.metrics import METRICS, Interval, PairedDifference

RANKED_BY = METRICS["ece"]
"""What the comparison is ranked by; it is shown with its interval."""
OTHERS = tuple(METRICS[name] for name in ("log_loss", "brier_score", "accuracy"))


class Row(NamedTuple):
    """One method as text, in the order of the headers."""

    name: str
    cells: tuple[str, ...]
    chosen: bool


def headers(evaluation: Evaluation) -> tuple[str, ...]:
    """The headings of the comparison."""
    others = (metric.heading for metric in OTHERS)
    return ("method", "γ", "T", RANKED_BY.heading, f"{evaluation.level * 100:g} % interval", *others, "fit s")


def comparison_table(evaluation: Evaluation) -> list[Row]:
    """One row a method, the least ECE first.

    >>> from refocal.data import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["ts"], n_resamples=20)
    >>> [row.name for row in comparison_table(found)]
    ['ts', 'none']
    """
    return [Row(method.name, _cells(method), method.name == evaluation.chosen) for method in ranked(evaluation)]


def ranked(evaluation: Evaluation) -> list[Measured]:
    """The methods in the one order that tables and charts share: the least ECE first."""
    return sorted(evaluation.methods, key=lambda method: method.measures[RANKED_BY.name].value)


def _cells(method: Measured) -> tuple[str, ...]:
    of, found = method.measures, method.point
    return (
        method.name,
        *(f"{found[key]:.3f}" if key in found else "–" for key in ("gamma", "temperature")),
        RANKED_BY.text(of[RANKED_BY.name].value),
        interval_percent(of[RANKED_BY.name]),
        *(metric.text(of[metric.name].value) for metric in OTHERS),
        "–" if method.fit_seconds is None else f"{method.fit_seconds:.2f}",
    )


def verdict(evaluation: Evaluation) -> str:
    """What calibration did for this network, in one sentence.

    >>> from refocal.data import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["ts"], n_resamples=20)
    >>> verdict(found)[:77]
    'Temperature scaling does not change the calibration error (ECE) beyond chance'
    """
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
    ece_change = _change(side, "calibration error (ECE)", f"{percent(old)} %", f"{percent(new)} %")
    loss = after.against_none["log_loss"]
    loss_change = _change(_sign(loss), "log-loss", f"{loss.second:.3f}", f"{loss.first:.3f}")
    accuracy = after.against_none["accuracy"]
    return f"{_capital(after.title)} {ece_change} and {loss_change}; {_accuracy(accuracy.second, accuracy.first)}."


def _accuracy(old: float, new: float) -> str:
    if old == new:
        return f"accuracy stays at {percent(new)} %"
    return f"accuracy {'rises' if new > old else 'falls'} from {percent(old)} % to {percent(new)} %"


def recommendation(evaluation: Evaluation) -> str:
    """What to use and how sure that is.

    >>> from refocal.data import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["ts"], n_resamples=20)
    >>> recommendation(found)[:43]
    'Recommendation: ts (temperature scaling), t'
    """
    best = evaluation.after
    if best.name == NONE and len(evaluation.methods) == 1:
        return "No calibrator was tried; refocal compare fits the usual ones and says which to use."
    if best.name == NONE:
        return f"Recommendation: leave the predictions as they are{_why_nothing(evaluation)}."
    others = [method for method in evaluation.methods if method.name not in (NONE, best.name)]
    said = (
        f"Recommendation: {best.name} ({best.title}), the least ECE among the methods within 1 % of the best log-loss."
    )
    if not evaluation.recommended:
        said = f"Shown in detail: {best.name} ({best.title})."
    if not others:
        return said
    second = min(others, key=lambda method: method.measures["ece"].value)
    gap = second.measures["ece"].value - best.measures["ece"].value
    side = _side(gap, second.against_chosen)
    if side == 0:
        said += f" By ECE it is statistically indistinguishable from {second.name} on these {evaluation.n_test:,} rows"
    elif side > 0:
        said += f" It is better than {second.name} by ECE beyond chance"
    else:
        said += f" By ECE alone {second.name} is better beyond chance"
    return f"{said} (difference {points(gap, second.against_chosen)})."


def _why_nothing(evaluation: Evaluation) -> str:
    """Why nothing is recommended, with the methods that are better by ECE or by log-loss alone."""
    if not evaluation.recommended:
        return ", as was asked for"
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
    """What is wrong with the whole or went wrong with the methods that are missing from the table, a line each."""
    said = [f"{name} failed and was left out: {reason}" for name, reason in evaluation.failed.items()]
    if all(is_guessing(method.measures["log_loss"].value, evaluation.n_classes) for method in evaluation.methods):
        said.insert(0, f"No method helps: {GUESSED}.")
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
    said = "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"
    return f"{100 * difference:+.2f} points, {said}".replace("-", "−")


def percent(value: float) -> str:
    """A share as a percentage with two digits."""
    return f"{100 * value:.2f}"


def interval_percent(interval: Interval) -> str:
    """An interval of shares as percentages."""
    return f"{percent(interval.low)} – {percent(interval.high)}"


def html_table(evaluation: Evaluation) -> str:
    """The comparison as a small HTML table, for notebooks."""
    head = "".join(f"<th>{escape(text)}</th>" for text in headers(evaluation))
    body = "".join(
        ("<tr style='font-weight:bold'>" if row.chosen else "<tr>")
        + "".join(f"<td>{escape(cell)}</td>" for cell in row.cells)
        + "</tr>"
        for row in comparison_table(evaluation)
    )
    missing = "".join(f"<p>{escape(line)}</p>" for line in remarks(evaluation))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<p>{escape(verdict(evaluation))}</p>{missing}{table}"


def _change(side: int, what: str, before: str, after: str) -> str:
    if side == 0:
        return f"does not change the {what} beyond chance ({before}, then {after})"
    return f"{'lowers' if side < 0 else 'raises'} the {what} from {before} to {after}"


def _side(difference: float, tested: Mapping[str, PairedDifference]) -> int:
    """Whether an ECE is lower (-1) or higher (1) beyond chance; 0 if that is not sure.

    The test is that of the squared errors (`metrics.squared_ece_difference`): that of the ECEs would not hold.
    """
    side = _sign(_test_of(tested), least=0.0)
    return side if side * difference >= 5e-5 else 0


def _test_of(tested: Mapping[str, PairedDifference]) -> PairedDifference:
    """The test of calibration errors; evaluations of version 0.1.0 have only a bootstrap of the ECEs."""
    return tested["squared_ece"] if "squared_ece" in tested else tested["ece"]


def _sign(difference: PairedDifference, least: float = 5e-5) -> int:
    """The side of 0 that the whole interval lies on; 0 where it holds 0, or is too small to be seen."""
    if abs(difference.difference) < least or difference.low <= 0.0 <= difference.high:
        return 0
    return 1 if difference.difference > 0 else -1


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
