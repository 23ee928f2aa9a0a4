"""What a search minimises: the log-loss, a calibration error, both in balance, or a metric of the caller's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal.errors import ParameterError
from refocal.metrics._ranked import norm_of_gaps, quantile_starts, rank, sum_bins

Vector = NDArray[np.float64]
Metric = Callable[..., float]

# The numbers of bins whose calibration errors are averaged: one number alone is a noisy guide on a few thousand rows.
RESOLUTIONS = (5, 8, 12, 15, 20, 30, 50)
# What a unit of that error weighs against a doubling of the best log-loss (docs/calibrators.md, "The default rule").
ECE_WEIGHT = 5.0


@dataclass(frozen=True)
class Objective:
    """How a point (γ, T) is scored; smaller is better.

    `error` measures (confidence, correct, weight), `metric` (labels, probabilities); one of them or neither is set.
    The score is `log_loss_weight` · log-loss / best log-loss + `error_weight` · error, or the log-loss itself.
    """

    name: str
    error: Callable[[Vector, NDArray[np.bool_], Vector | None], float] | None = None
    metric: Metric | None = None
    log_loss_weight: float = 0.0
    error_weight: float = 1.0

    def score(self, log_loss: Vector, error: Vector) -> Vector:
        """The score of every point, from its log-loss and its error."""
        if self.error is None and self.metric is None:
            return log_loss
        if self.log_loss_weight == 0.0:
            return error
        return self.log_loss_weight * log_loss / np.min(log_loss) + self.error_weight * error


def equal_mass_error(confidence: Vector, correct: NDArray[np.bool_], weight: Vector | None) -> float:
    """The paper's measure: ECE over 15 bins of equal mass."""
    return mean_error(confidence, correct, weight, (15,))


def mean_error(
    confidence: Vector, correct: NDArray[np.bool_], weight: Vector | None, resolutions: tuple[int, ...] = RESOLUTIONS
) -> float:
    """The mean of the equal-mass ECEs at several numbers of bins, from one sort."""
    ranked = rank(confidence, correct, weight)
    errors = [norm_of_gaps(sum_bins(ranked, quantile_starts(ranked, n_bins)), "l1") for n_bins in resolutions]
    return sum(errors) / len(errors)


NAMED = {
    "nll": Objective("nll"),
    "ece": Objective("ece", error=equal_mass_error),
    "auto": Objective("auto", error=mean_error, log_loss_weight=1.0, error_weight=ECE_WEIGHT),
}


def as_objective(objective: Any, function: str) -> Objective:
    """An objective by name, a metric of `refocal.metrics` by name, or a callable (y_true, probabilities) → float."""
    if isinstance(objective, str):
        if objective in NAMED:
            return NAMED[objective]
        from refocal import metrics

        if objective in METRICS:
            return Objective(objective, metric=getattr(metrics, objective))
        words = ", ".join(repr(name) for name in (*NAMED, *METRICS))
        raise ParameterError("objective", function, expected=f"one of {words}, or a callable", got=repr(objective))
    if callable(objective):
        return Objective(getattr(objective, "__name__", type(objective).__name__), metric=objective)
    raise ParameterError("objective", function, expected="a name or a callable", got=repr(objective))


METRICS = (
    "brier_score",
    "classwise_ece",
    "debiased_ece",
    "ece_sweep",
    "expected_calibration_error",
    "ks_calibration_error",
    "smooth_ece",
)
