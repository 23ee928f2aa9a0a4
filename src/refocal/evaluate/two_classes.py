"""An evaluation of two classes in words: the mean probability against the rate first, then the log-loss."""

from __future__ import annotations

from refocal.calibrators.registry import NONE
from refocal.evaluate.evaluation import Evaluation, Measured
from refocal.evaluate.phrases import capital, change, p_value_text, percent, sign


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


def recommendation(evaluation: Evaluation) -> str:
    """The recommended method, by log-loss, and how certain that is."""
    best = evaluation.after
    if len(evaluation.methods) == 1:
        return "No calibrator was tried; refocal compare fits the usual ones and says which to use."
    if best.name == NONE and evaluation.recommended:
        return "Recommendation: leave the predictions as they are; methods for two classes are ranked by log-loss."
    others = [method for method in evaluation.methods if method.name not in (NONE, best.name)]
    second = min(others, key=lambda method: method.measures["log_loss"].value, default=best)
    least = "no log-loss is significantly lower"
    if best.measures["log_loss"].value <= second.measures["log_loss"].value:
        least = "the lowest log-loss"
    said = f"Recommendation: {best.name} ({best.title}): {least}. Methods for two classes are ranked by log-loss."
    if not evaluation.recommended:
        said = f"Shown in detail: {best.name} ({best.title})."
    if not others:
        return said
    gap = second.against_chosen["log_loss"]
    side = sign(gap, least=0.0)
    words = {
        0: f"It is statistically indistinguishable from {second.name} on these {evaluation.n_test:,} rows",
        1: f"It is significantly better than {second.name}",
        -1: f"{capital(second.name)} is significantly better",
    }[side]
    difference = f"{gap.difference:+.4f}".replace("-", "−") if abs(gap.difference) >= 5e-5 else "below 0.0001"
    return f"{said} {words} (log-loss {second.name} less {best.name}: {difference}, {p_value_text(gap.p_value)})."
