"""The mean of what a judge scored, corrected by a small sample with labels: prediction-powered inference."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Vector, as_array, to_numpy
from refocal._validation import check_finite
from refocal.errors import ShapeError
from refocal.metrics.influence import variance_of_mean
from refocal.metrics.inputs import check_level
from refocal.metrics.intervals import Interval, normal_interval, share_interval

__all__ = ["JudgedRate", "judged_rate"]


class JudgedRate(NamedTuple):
    """A mean of labels that a judge's scores helped to estimate.

    >>> rate = judged_rate([0.9, 0.2, 0.8, 0.7] * 50, [0.9, 0.2, 0.8, 0.1] * 10, [1, 0, 1, 0] * 10)
    >>> rate.interval.low < rate.interval.value < rate.interval.high
    True
    """

    interval: Interval
    """The mean with its interval."""
    of_labels: Interval
    """The mean of the labels alone."""
    of_judge: float
    """The mean of the judge's scores alone, which is off by as much as the judge is."""
    judge_weight: float
    """λ, how much of a difference between scores counts as one between labels; 0: the judge counts for nothing."""

    @property
    def label_factor(self) -> float:
        """How many times as many labels would give an interval as narrow without the judge; 1 if all labels agree."""
        if self.interval.standard_error == 0.0:
            return 1.0
        return (self.of_labels.standard_error / self.interval.standard_error) ** 2


def _numbers(values: Any, argument: str, function: str) -> Vector:
    """Finite numbers; verdicts that are booleans are 1 and 0."""
    return check_finite(to_numpy(as_array(values, argument, function)).astype(np.float64), argument, function)


def judged_rate(judged: Any, judged_of_labelled: Any, labels: Any, *, level: float = 0.95) -> JudgedRate:
    """The mean of a label over many rows that only a judge has scored, corrected by a sample with labels.

    With f the judge's scores of N rows without labels and of n with labels y (Angelopoulos, Duchi and Zrnic 2023),

        θ = mean y + λ (mean f over N - mean f over n),      λ = cov(y, f) / ((1 + n/N) var f)
        var θ = var(y - λ f) / n + λ² var(f) / N

    It is right on average, but for the choice of λ, whatever the judge is worth: the worse, the nearer is λ to 0.
    Labelled rows must be a random sample of the same rows. Scores may be probabilities or grades, labels 0 and 1 or any
    numbers. The interval has Student's t with n - 1 degrees of freedom. Of labels 0 and 1 it is Wilson's, of as many
    labels as would give var θ without the judge, and wider than 0 where all labels agree: of rates from 50 % to 99 % it
    covered 93 % to 97 % with 20, 50 and 200 labels (benchmarks/results/judged_coverage.md).

    Parameters
    ----------
    judged : array (N,)
        The judge's scores of rows without labels.
    judged_of_labelled, labels : array (n,)
        The judge's scores of the rows with labels, and these.
    level : float
        Of the intervals.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random(5000) < 0.7
    >>> judge = np.where(truth, 0.9, 0.5) + 0.1 * rng.random(5000)  # too kind: 0.83 on average
    >>> rate = judged_rate(judge[200:], judge[:200], truth[:200])
    >>> rate.interval.low < 0.7 < rate.interval.high, rate.label_factor > 5
    (True, True)
    """
    name = "judged_rate"
    check_level(level, name)
    f_many = _numbers(judged, "judged", name)
    f_few = _numbers(judged_of_labelled, "judged_of_labelled", name)
    y = _numbers(labels, "labels", name)
    if f_many.ndim != 1 or len(f_many) < 2:
        raise ShapeError("judged", name, expected="two or more scores, (N,)", got=f"shape {f_many.shape}")
    if y.ndim != 1 or len(y) < 2:
        raise ShapeError("labels", name, expected="two or more labels, (n,)", got=f"shape {y.shape}")
    if f_few.shape != y.shape:
        raise ShapeError("judged_of_labelled", name, expected=f"of shape {y.shape}", got=f"shape {f_few.shape}")
    ratio = len(y) / len(f_many)
    spread = float(np.var(np.append(f_many, f_few)))
    covariance = float(np.mean((y - y.mean()) * (f_few - f_few.mean())))
    weight = 0.0 if spread == 0.0 else covariance / ((1.0 + ratio) * spread)
    rate = float(y.mean() + weight * (f_many.mean() - f_few.mean()))
    variance = float(variance_of_mean(y - weight * f_few)) + weight**2 * float(variance_of_mean(f_many))
    is_rate = bool(np.isin(y, (0.0, 1.0)).all())
    variance_of_labels = float(variance_of_mean(y))
    factor = variance_of_labels / variance if variance > 0.0 else 1.0

    def interval_of(mean: float, variance: float, factor: float) -> Interval:
        """The interval of a mean that is as well known as from `factor` times as many labels."""
        error = math.sqrt(variance)
        if not is_rate:
            return normal_interval(mean, error, level, (-math.inf, math.inf), len(y))
        return replace(share_interval(mean, factor * len(y), level, len(y)), standard_error=error)

    return JudgedRate(
        interval=interval_of(rate, variance, factor),
        of_labels=interval_of(float(y.mean()), variance_of_labels, 1.0),
        of_judge=float(np.append(f_many, f_few).mean()),
        judge_weight=weight,
    )
