"""What a stress case asks of a package, and how an answer is judged: by its own reference, never by refocal's answer.

fit       temperature scaling on X, y: probabilities of X whose log-loss is that of the best temperature
isotonic  isotonic calibration on X, y, applied to other rows: no true class may get probability 0
ece       the equal-width calibration error with 15 bins of the top class (or of class 1, if p is a vector)
gradient  the gradient of focal loss
refuse    as fit or ece, on input that has no answer: an error is right, any number is wrong
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

N_BINS = 15
# A log-loss counts as the best one within a thousandth of it, and an ECE within 1e-5.
RELATIVE, ABSOLUTE = 1e-3, 1e-5


@dataclass(frozen=True)
class Inputs:
    """What the package gets, as a user would have it, and the same in plain float64 and integers for the reference."""

    X: Any
    y: Any
    logits: Any = None
    labels: Any = None
    weight: Any = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    name: str
    task: str
    make: Callable[[], Inputs]
    right: str
    huge: bool = False


@dataclass(frozen=True)
class Verdict:
    passed: bool
    words: str


def judge(case: Case, inputs: Inputs, answer: Any) -> Verdict:
    return JUDGES[case.task](inputs, answer)


def log_softmax(logits):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def best_log_loss(logits, labels, weight=None):
    """The least mean log-loss over all temperatures: a grid over 1/T that spans e^28, then a bounded search."""
    possible, rows = np.isfinite(logits), np.arange(len(labels))
    finite = np.where(possible, logits - logits.max(axis=1, keepdims=True), 0.0)
    centre = -np.log(max(-float(finite.min(axis=1).mean()), 1e-300))

    def loss(log_slope):
        scaled = np.where(possible, finite * np.exp(log_slope), -np.inf)
        return float(np.average(-log_softmax(scaled)[rows, labels], weights=weight))

    grid = centre + np.linspace(-14, 14, 29)
    values = [loss(x) for x in grid]
    at = int(np.argmin(values))
    found = minimize_scalar(loss, bounds=(grid[max(at - 1, 0)], grid[min(at + 1, 28)]), method="bounded")
    return min(float(found.fun), *values)


def judge_fit(inputs, answer):
    p, temperature = answer
    says = f", T = {temperature:.4g}"
    p, epsilon = np.asarray(p, dtype=np.float64), inputs.extra.get("epsilon", 1e-6)
    if p.shape != inputs.logits.shape:
        return Verdict(False, f"shape {p.shape} instead of {inputs.logits.shape}")
    if not np.isfinite(p).all():
        return Verdict(False, f"probabilities that are not finite{says}")
    off = float(np.abs(p.sum(axis=1) - 1.0).max())
    if off > 1e-4 + 4 * epsilon:
        return Verdict(False, f"rows of probabilities off 1 by {off:.2g}{says}")
    with np.errstate(divide="ignore"):
        label_log_p = np.log(p[np.arange(len(p)), inputs.labels])
    used = slice(None) if inputs.weight is None else inputs.weight > 0
    weight = None if inputs.weight is None else inputs.weight[used]
    found = float(np.average(-label_log_p[used], weights=weight))
    best = best_log_loss(inputs.logits[used], inputs.labels[used], weight)
    return Verdict(
        found <= best * (1 + RELATIVE) + 1e-4 + epsilon + inputs.extra.get("slack", 0.0),
        f"log-loss {found:.4g}, best {best:.4g}{says}",
    )


def judge_isotonic(inputs, answer):
    p = np.asarray(answer, dtype=np.float64)
    lowest = float(p[np.arange(len(p)), inputs.extra["test_labels"]].min())
    return Verdict(np.isfinite(p).all() and lowest > 0, f"a true class has probability {lowest:.2g}")


def exact_ece(y, p):
    """By the definition, bin after bin, in float64: bin k holds k/15 ≤ confidence < (k+1)/15, the last also 1."""
    if p.ndim == 1:
        confidence, correct = p.astype(np.float64), np.asarray(y) == 1
    else:
        confidence, correct = p.max(axis=1).astype(np.float64), p.argmax(axis=1) == y
    total = 0.0
    for k in range(N_BINS):
        upper = confidence <= 1.0 if k == N_BINS - 1 else confidence < (k + 1) / N_BINS
        inside = upper & (confidence >= k / N_BINS)
        if inside.any():
            total += abs(float(correct[inside].sum()) - float(confidence[inside].sum(dtype=np.float64)))
    return total / len(confidence)


def judge_ece(inputs, answer):
    expected = inputs.extra["ece"] if "ece" in inputs.extra else exact_ece(inputs.labels, inputs.logits)
    found, allowed = float(answer), ABSOLUTE + inputs.extra.get("epsilon", 0.0)
    return Verdict(bool(abs(found - expected) <= allowed), f"{found:.6g}, exact {expected:.6g}")


def judge_gradient(inputs, answer):
    found, expected = np.asarray(answer, dtype=np.float64), inputs.extra["gradient"]
    if not np.isfinite(found).all():
        return Verdict(False, "NaN or infinity")
    off = float(np.abs(found - expected).max())
    return Verdict(off <= 1e-6, f"within {off:.1g} of the exact gradient")


def judge_refuse(inputs, answer):
    if isinstance(answer, tuple):
        p, temperature = answer
        nan = not np.isfinite(np.asarray(p, dtype=np.float64)).all()
        answer = (
            "probabilities" + (" with NaN" if nan else "") + ("" if temperature is None else f", T = {temperature:.4g}")
        )
    return Verdict(False, f"no error: {answer}")


JUDGES = {
    "fit": judge_fit,
    "isotonic": judge_isotonic,
    "ece": judge_ece,
    "gradient": judge_gradient,
    "refuse fit": judge_refuse,
    "refuse ece": judge_refuse,
}
