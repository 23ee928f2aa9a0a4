"""What a search minimises: the log-loss, a calibration error, both in balance, or a user-defined metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refocal._arrays import Vector
from refocal.engine.block import Block, RowPredictions
from refocal.engine.scoring import squared_errors
from refocal.errors import ParameterError
from refocal.metrics import brier_score
from refocal.metrics.records import objectives

MetricFunction = Callable[..., float]

# The default rule (docs/calibrators.md). One number of bins alone is a noisy guide on a few thousand rows, so the
# calibration errors at several are averaged: all that leave MIN_BIN_ROWS rows to a bin, and the first in any case.
RESOLUTIONS = (5, 8, 12, 15, 20, 30, 50)
MIN_BIN_ROWS = 100
# What a unit of that error weighs against a doubling of the best log-loss; less below FULL_WEIGHT_ROWS rows, where the
# error is mostly noise.
ERROR_WEIGHT = 5.0
FULL_WEIGHT_ROWS = 2000
# The share of the log-loss that may be given up on the rows of the fit.
NLL_TOLERANCE = 0.02


@dataclass(frozen=True)
class Objective:
    """How a point (γ, T) is scored; smaller is better.

    The score is the log-loss; or an error: the mean of the ECEs at several numbers of bins, the `resolutions`;
    or the mean of one number per row computed from the predictions (`of_rows`); or a `metric` of
    (labels, probabilities); or, with `error_weight`, log-loss / best log-loss + error_weight · error.
    """

    name: str
    title: str = ""
    """What charts call it, if it is one of those below."""
    resolutions: tuple[int, ...] = ()
    of_rows: Callable[[RowPredictions, Block], Vector] | None = None
    metric: MetricFunction | None = None
    error_weight: float | None = None
    nll_tolerance: float | None = None

    @property
    def polished(self) -> bool:
        """Whether a search goes on between the points of the grid."""
        return self.of_rows is None and self.metric is None

    def score(self, log_loss: Vector, error: Vector) -> Vector:
        """The score of every point, from its log-loss and its error."""
        if self.polished and not self.resolutions:
            return log_loss
        if self.error_weight is None:
            return error
        # On separable data the best log-loss is 0 to all digits, and a ratio to it is meaningless.
        return log_loss / max(float(np.min(log_loss)), 1e-6) + self.error_weight * error


NAMED = {
    "nll": Objective("nll", "log-loss"),
    "ece": Objective("ece", "ECE", resolutions=(15,)),
    # Log-loss and calibration error in balance, within a small loss of log-loss.
    "auto": Objective("auto", "log-loss + ECE", RESOLUTIONS, error_weight=ERROR_WEIGHT, nll_tolerance=NLL_TOLERANCE),
    "brier_score": Objective("brier_score", "Brier score", of_rows=squared_errors),
}
"""The objectives that do not need all rows in memory."""


def as_objective(objective: Any, n_rows: float, function: str) -> Objective:
    """An objective by name, a metric of `refocal.metrics` by name, or a callable (y_true, probabilities) → float."""
    if objective is brier_score:
        objective = "brier_score"
    if isinstance(objective, str) and objective in NAMED:
        known = NAMED[objective]
        if known.error_weight is None:
            return known
        resolutions = tuple(n for n in RESOLUTIONS if n * MIN_BIN_ROWS <= n_rows) or RESOLUTIONS[:1]
        weight = known.error_weight * min(1.0, n_rows / FULL_WEIGHT_ROWS) ** 0.5
        return replace(known, resolutions=resolutions, error_weight=weight)
    named = objectives()
    if isinstance(objective, str) and objective in named:
        return Objective(objective, metric=named[objective])
    if callable(objective):
        return Objective(getattr(objective, "__name__", type(objective).__name__), metric=objective)
    words = ", ".join(repr(name) for name in ("auto", "nll", "ece", *named))
    raise ParameterError("objective", function, expected=f"one of {words}, or a callable", got=repr(objective))
