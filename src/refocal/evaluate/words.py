"""An evaluation in words and in rows of text: the terminal, the report and Jupyter show the same strings."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from refocal.calibrators._words import GUESSED, is_guessing
from refocal.calibrators.registry import NONE
from refocal.evaluate._origin import ABSENT_CLASSES
from refocal.evaluate.evaluation import Evaluation, Measured
from refocal.metrics import Interval, PairedDifference

HEADERS = ("method", "γ", "T", "ECE %", "95 % interval", "log-loss", "Brier score", "accuracy %", "fit s")


class Row(NamedTuple):
    """One method as text, in the order of the headers."""

    name: str
    cells: tuple[str, ...]
    chosen: bool


def headers(evaluation: Evaluation) -> tuple[str, ...]:
    """The headings of the comparison."""
    return tuple(f"{evaluation.level * 100:g} % interval" if "interval" in text else text for text in HEADERS)


def comparison_table(evaluation: Evaluation) -> list[Row]:
    """One row a method, the least ECE first.

    >>> from refocal.data import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["ts"], n_resamples=20)
    >>> [row.name for row in comparison_table(found)]
    ['ts', 'none']
    """
    ranked = sorted(evaluation.methods, key=lambda method: method.measures["ece"].value)
    return [Row(method.name, _cells(method), method.name == evaluation.chosen) for method in ranked]


def _cells(method: Measured) -> tuple[str, ...]:
    of, found = method.measures, method.parameters
    return (
        method.name,
        *(f"{found[key]:.3f}" if key in found else "–" for key in ("gamma", "temperature")),
        percent(of["ece"].value),
        interval_percent(of["ece"]),
        f"{of['log_loss'].value:.4f}",
        f"{of['brier_score'].value:.4f}",
        percent(of["accuracy"].value),
        "–" if method.fit_seconds is None else f"{method.fit_seconds:.2f}",
    )


def verdict(evaluation: Evaluation) -> str:
    """What calibration did for this network, in one sentence.

    >>> from refocal.data import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["ts"], n_resamples=20)
    >>> verdict(found)[:63]
    'Temperature scaling lowers the calibration error (ECE) from 1.1'
    """
    after = evaluation.after
    if after.name == NONE:
        error = after.measures["ece"]
        as_it_is = f"{percent(error.value)} % ({interval_percent(error)})"
        if len(evaluation.methods) == 1 or ABSENT_CLASSES in evaluation.run:
            return f"The calibration error (ECE) of the predictions as they are is {as_it_is}."
        return f"The network needs no calibration: its calibration error (ECE) is {as_it_is} as it is."
    ece, loss = after.against_none["ece"], after.against_none["log_loss"]
    ece_change = _change(ece, "calibration error (ECE)", f"{percent(ece.second)} %", f"{percent(ece.first)} %")
    loss_change = _change(loss, "log-loss", f"{loss.second:.3f}", f"{loss.first:.3f}")
    accuracy = after.against_none["accuracy"]
    same = "the accuracy stays" if accuracy.difference == 0 else "the accuracy is then"
    return f"{_capital(after.title)} {ece_change} and {loss_change}; {same} {percent(accuracy.first)} %."


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
        return "Recommendation: leave the network as it is; no method is better without a worse log-loss."
    others = [method for method in evaluation.methods if method.name not in (NONE, best.name)]
    said = (
        f"Recommendation: {best.name} ({best.title}), the least ECE among the methods within 1 % of the best log-loss."
    )
    if not evaluation.recommended:
        said = f"Looked at closely: {best.name} ({best.title})."
    if not others:
        return said
    second = min(others, key=lambda method: method.measures["ece"].value)
    gap = second.against_chosen["ece"]
    if not _is_sure(gap):
        said += f" It cannot be told from {second.name} by ECE on these {evaluation.n_test:,} rows"
    elif gap.difference > 0:
        said += f" It is better than {second.name} by ECE beyond chance"
    else:
        said += f" By ECE alone {second.name} is better beyond chance"
    return f"{said} (difference {points(gap)})."


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


def points(difference: PairedDifference) -> str:
    """A difference of percentages with its interval, in points."""
    value, low, high = (
        f"{100 * x:+.2f}".replace("-", "−") for x in (difference.difference, difference.low, difference.high)
    )
    return f"{value} points, {difference.level * 100:g} % interval {low} to {high}"


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


def _change(difference: PairedDifference, what: str, before: str, after: str) -> str:
    if not _is_sure(difference):
        return f"does not change the {what} beyond chance ({before}, then {after})"
    return f"{'lowers' if difference.difference < 0 else 'raises'} the {what} from {before} to {after}"


def _is_sure(difference: PairedDifference) -> bool:
    """Beyond chance, and large enough to be seen."""
    return (difference.low > 0 or difference.high < 0) and abs(difference.difference) >= 5e-5


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
