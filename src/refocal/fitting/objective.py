"""What a search minimises: the log-loss, a calibration error, both in balance, or a user-defined metric."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from inspect import Parameter, signature
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Vector
from refocal.engine.block import Block, RowPredictions
from refocal.engine.scoring import squared_errors
from refocal.errors import ParameterError
from refocal.metrics import brier_score, log_loss
from refocal.metrics.inputs import read_probabilities
from refocal.metrics.record import Metric
from refocal.metrics.records import objectives, record_of_function

MetricFunction = Callable[..., float]


class Balance(NamedTuple):
    """The default rule, log-loss and calibration error in balance (docs/calibrators.md)."""

    resolutions: tuple[int, ...] = (5, 8, 12, 15, 20, 30, 50)
    """The numbers of bins at which calibration errors are averaged: one alone is a noisy guide on a few thousand rows.
    The first is always used."""
    min_bin_rows: int = 100
    """The others are used where they leave so many rows to a bin."""
    error_weight: float = 5.0
    """What a unit of that error weighs against a doubling of the best log-loss."""
    full_weight_rows: int = 2_000
    """With fewer rows it weighs less: the error is mostly noise."""
    nll_tolerance: float = 0.02
    """The share of the log-loss that may be given up on the rows of the fit."""

    def resolutions_for(self, n_rows: float) -> tuple[int, ...]:
        """The numbers of bins for so many rows."""
        enough = tuple(n_bins for n_bins in self.resolutions if n_bins * self.min_bin_rows <= n_rows)
        return enough or self.resolutions[:1]

    def weight_for(self, n_rows: float) -> float:
        """The weight of the error for so many rows."""
        return self.error_weight * math.sqrt(min(1.0, n_rows / self.full_weight_rows))


BALANCE = Balance()


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


def measure(metric: MetricFunction, name: str, labels: Any, p: Any, weight: Vector | None) -> float:
    """A metric of labels and probabilities; where rows have weights, it must take them."""
    if weight is None:
        return float(metric(labels, p))
    parameters = signature(metric).parameters
    takes_all = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
    if not takes_all and "sample_weight" not in parameters:
        expected = "a function of labels, probabilities and sample_weight, since the rows have weights"
        raise ParameterError("objective", "fit", expected=expected, got=f"{name} without sample_weight")
    return float(metric(labels, p, sample_weight=weight))


NAMED = {
    "nll": Objective("nll", "log-loss"),
    "ece": Objective("ece", "ECE", resolutions=(15,)),
    # Log-loss and calibration error in balance, within a small loss of log-loss.
    "auto": Objective(
        "auto",
        "log-loss + ECE",
        BALANCE.resolutions,
        error_weight=BALANCE.error_weight,
        nll_tolerance=BALANCE.nll_tolerance,
    ),
    "brier_score": Objective("brier_score", "Brier score", of_rows=squared_errors),
}
"""The objectives that do not need all rows in memory."""


def by_own_name(objective: Any) -> Any:
    """The objective, which is a name where it is a metric that searches minimise in a way of their own."""
    metric = objective.function if isinstance(objective, Metric) else objective
    if metric is log_loss or (isinstance(metric, str) and metric == "log_loss"):
        return "nll"
    return "brier_score" if metric is brier_score else objective


def as_objective(objective: Any, n_rows: float, function: str) -> Objective:
    """An objective by name, a metric of `refocal.metrics` by name, its record, or a callable (y_true, p) → float.

    Of a record, and of a function that has one, what is compared to say which of two values is better is minimised: of
    one that is best at 0 or at another target, the distance from there.
    """
    objective = by_own_name(objective)
    if isinstance(objective, str) and objective in NAMED:
        known = NAMED[objective]
        if known.error_weight is None:
            return known
        return replace(known, resolutions=BALANCE.resolutions_for(n_rows), error_weight=BALANCE.weight_for(n_rows))
    named = objectives()
    if isinstance(objective, str) and objective in named:
        return Objective(objective, metric=named[objective])
    if isinstance(objective, Metric):
        return Objective(objective.name, metric=partial(_cost, objective))
    if callable(objective):
        record = record_of_function(objective)
        cost = objective if record is None else partial(_cost, record)
        return Objective(getattr(objective, "__name__", type(objective).__name__), metric=cost)
    words = ", ".join(repr(name) for name in ("auto", "nll", "ece", *named))
    expected = f"one of {words}, a Metric, or a callable"
    raise ParameterError("objective", function, expected=expected, got=repr(objective))


def _cost(record: Metric, labels: Any, p: Any, **options: Any) -> float:
    """The metric of a record as a cost: lower is better."""
    rows = read_probabilities(labels, p, options.get("sample_weight"), "fit")
    return float(record.cost(record.measure(rows)))
