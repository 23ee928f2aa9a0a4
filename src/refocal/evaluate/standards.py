"""What clinicians and credit modellers look for first, as text: O/E, calibration intercept and slope, ICI, E-max."""

from __future__ import annotations

from refocal.evaluate.evaluation import Evaluation, Measured
from refocal.metrics import METRICS
from refocal.metrics.record import Metric

STANDARDS = ("observed_expected", "calibration_intercept", "calibration_slope", "ici", "e_max")
READING = (
    "O/E below 1, or an intercept below 0, means probabilities that are too high; a slope below 1 means probabilities "
    "that are too extreme, as of an overfitted model."
)


def standards_table(evaluation: Evaluation) -> list[dict[str, str]]:
    """Each measure with its best value, before and after calibration, by the headings of a table.

    Empty for more than two classes, and in evaluations that have none of them. It claims no
    deviation: five measures at a level each would claim one too often. `verdict` has what is stated.
    """
    sides = {"as it is": evaluation.before}
    if evaluation.after is not evaluation.before:
        sides = {"before": evaluation.before, "after": evaluation.after}
    table = []
    for name in STANDARDS:
        metric = METRICS[name]
        texts = {heading: _text(metric, method) for heading, method in sides.items()}
        if any(text != "–" for text in texts.values()):
            table.append({"measure": metric.heading, "best": f"{metric.best or 0.0:g}", **texts})
    return table


def _text(metric: Metric, method: Measured) -> str:
    """A value with its interval, or alone where it has none."""
    interval = method.measures.get(metric.name)
    if interval is not None:
        return f"{metric.text(interval.value)} ({metric.interval_text(interval)})"
    value = method.values.get(metric.name)
    return "–" if value is None else metric.text(value)


def still_off(evaluation: Evaluation) -> str:
    """What is significantly wrong with the method that is shown in detail, in a sentence; empty where nothing is.

    The mean, the reliability diagram and the groups have levels at which they and the methods are right together.
    """
    after = evaluation.after
    parts = []
    bias = after.stated_bias
    if bias is not None and not bias.low <= 0.0 <= bias.high:
        metric = METRICS["mean_bias"]
        digits = metric.digits_apart(bias.value, 0.0)
        parts.append(f"the mean probability ({metric.text(bias.value, digits)} points)")
    curve = after.reliability
    points = list(zip(curve.accuracy, curve.low, curve.high, strict=True))
    n_outside = sum(not low <= rate <= high for rate, low, high in points)
    if n_outside:
        parts.append(f"{n_outside} of {len(points)} points of the reliability diagram")
    n_groups = sum(not row.difference.low <= 0.0 <= row.difference.high for row in after.groups)
    if n_groups:
        parts.append(f"the mean of {n_groups} of {len(after.groups)} groups")
    if not parts:
        return ""
    return f"Still significantly off: {', '.join(parts)}."
