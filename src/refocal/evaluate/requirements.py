"""Requirements such as "ece<2%" and "log_loss<=ts", checked on an Evaluation."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Sequence
from typing import NamedTuple

from refocal._digits import digits_of
from refocal._validation import check_option, number_of_text
from refocal.errors import ParameterError
from refocal.evaluate.evaluation import Evaluation, Measured
from refocal.metrics import METRICS

__all__ = ["Check", "check_requirements"]


class Check(NamedTuple):
    """A requirement, whether the method shown in detail meets it, and the sentence that says so.

    >>> Check("ece<2%", True, "ECE 1.20 % of ts; required < 2.00 %").passed
    True
    """

    requirement: str
    passed: bool
    text: str


def check_requirements(evaluation: Evaluation, requirements: Sequence[str]) -> list[Check]:
    """Check requirements on the method shown in detail.

    A requirement compares a measure of the evaluation by <, <=, > or >= with a number, a percentage or the same measure
    of another method; several may be written with commas between them. A signed measure, mean p less the rate, is
    compared by its distance from 0: `mean_bias<1%` holds from -1 % to 1 %. One whose best value is 1, as that of O/E
    and of the calibration slope, is compared with a number as it is, `calibration_slope>0.9`, and with that of another
    method by the distance from 1.

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["ts", "fts"], chosen="fts", n_resamples=20)
    >>> [check.passed for check in check_requirements(found, ["ece < 2%", "log_loss <= ts", "accuracy > 0.99"])]
    [True, True, False]
    """
    operators = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
    checks = []
    for text, measure, sign, target, percent in parse_requirements(requirements):
        metric = METRICS[measure]
        measured = _value(evaluation, evaluation.after, measure)
        try:
            limit = number_of_text(target) / (100.0 if percent else 1.0)
            source = ""
            by_distance = metric.signed
            digits = digits_of(metric.scale * limit, metric.digits)
        except ValueError:
            check_option(target, tuple(method.name for method in evaluation.methods), "require", "check_requirements")
            limit = _value(evaluation, evaluation[target], measure)
            source = f" of {target}"
            digits = metric.digits
            by_distance = metric.best is not None
        distance = f" from {metric.best:g}" if by_distance else ""
        compared = (metric.judged(measured), metric.judged(limit)) if by_distance else (measured, limit)
        digits = max(digits, metric.digits_apart(*compared))
        required = f"required {sign} {metric.with_unit(limit, digits)}{distance}{source}"
        said = f"{metric.label} {metric.with_unit(measured, digits)} of {evaluation.chosen}; {required}"
        checks.append(Check(text, operators[sign](*compared), said))
    return checks


def parse_requirements(requirements: Sequence[str]) -> list[tuple[str, ...]]:
    """The requirements, each as its text, measure, comparison, target and percent sign.

    >>> parse_requirements(["ece < 2%,log_loss<=ts"])
    [('ece < 2%', 'ece', '<', '2', '%'), ('log_loss<=ts', 'log_loss', '<=', 'ts', '')]
    """
    form = re.compile(r"\s*(\w+)\s*(<=|>=|<|>)\s*([\w.+-]+?)\s*(%?)\s*")
    parsed = []
    known = tuple(name for name, metric in METRICS.items() if metric.shown != "no")
    for text in ",".join(requirements).split(",") if requirements else ():
        parts = form.fullmatch(text)
        if parts is None:
            expected = "of the form 'ece<2%', 'log_loss<=0.3' or 'log_loss<=ts'"
            raise ParameterError("require", "check_requirements", expected=expected, got=repr(text))
        check_option(parts[1], known, "require", "check_requirements")
        metric = METRICS[parts[1]]
        limit = _number(parts[3])
        if metric.signed and limit is not None and limit < 0.0:
            expected = f"a limit of 0 or more: {parts[1]} is compared by its distance from 0"
            raise ParameterError("require", "check_requirements", expected=expected, got=repr(text))
        if metric.unit == "%" and not parts[4] and limit is not None and limit > 1.0:
            expected = f"a share from 0 to 1 or a percentage, such as '{parts[1]}{parts[2]}{parts[3]}%'"
            raise ParameterError("require", "check_requirements", expected=expected, got=repr(text))
        lowest, highest = metric.range
        if limit is not None and not lowest <= limit / (100.0 if parts[4] else 1.0) <= highest:
            ends = (("at least", lowest), ("at most", highest))
            bounds = " and ".join(f"{word} {metric.with_unit(end, 0)}" for word, end in ends if math.isfinite(end))
            expected = f"a limit that {parts[1]} can reach, of {bounds or 'any finite number'}"
            raise ParameterError("require", "check_requirements", expected=expected, got=repr(text))
        parsed.append((text, *parts.groups()))
    return parsed


def _number(target: str) -> float | None:
    """The target of a requirement as a number; None of a method."""
    try:
        return number_of_text(target)
    except ValueError:
        return None


def _value(evaluation: Evaluation, method: Measured, measure: str) -> float:
    values = {**method.values, **{name: each.value for name, each in method.measures.items()}}
    if measure not in values:
        known = ", ".join(name for name in METRICS if name in values)
        expected = f"about a measure of this evaluation, which is of {evaluation.n_classes} classes: {known}"
        raise ParameterError("require", "check_requirements", expected=expected, got=repr(measure))
    return values[measure]
