"""An evaluation of two classes in words: the mean probability against the rate first, then the log-loss."""

from __future__ import annotations

from refocal.calibrators.registry import NONE
from refocal.evaluate.evaluation import Evaluation, Measured
from refocal.evaluate.phrases import capital, change, percent, sign


def positive_name(evaluation: Evaluation) -> str:
    """The name of the positive class in a sentence."""
    return f"class {evaluation.positive}" if evaluation.class_names is None else str(evaluation.positive)


def mean_probability(evaluation: Evaluation, method: Measured) -> float:
    """The mean probability of the positive class by a method."""
    return evaluation.rate + method.measures["mean_bias"].value


def prior_error(evaluation: Evaluation) -> str:
    """Whether the mean probability of the uncalibrated model agrees with the rate."""
    found, name = evaluation.before.measures["mean_bias"], positive_name(evaluation)
    mean, rate = percent(mean_probability(evaluation, evaluation.before)), percent(evaluation.rate)
    if found.low <= 0.0 <= found.high:
        return f"The mean probability of {name}, {mean} %, agrees with its rate, {rate} %"
    side = "too high" if found.value > 0 else "too low"
    off = f"{percent(abs(found.value))} points {side}"
    return f"The mean probability of {name} is {mean} %, but it occurs in {rate} % of the rows: {off}"


def verdict(evaluation: Evaluation) -> str:
    """Whether the mean probability is right, and what the method that is shown does about it and to the log-loss."""
    after, first = evaluation.after, prior_error(evaluation)
    if after.name == NONE:
        tried = "" if len(evaluation.methods) == 1 else ", and no method that was tried has a lower one"
        return f"{first}. The log-loss is {after.measures['log_loss'].value:.4f}{tried}."
    loss = after.against_none["log_loss"]
    says = change(sign(loss), "log-loss", f"{loss.second:.4f}", f"{loss.first:.4f}")
    mean = percent(mean_probability(evaluation, after))
    return f"{first}. {capital(after.title)} makes it {mean} % and {says}."
