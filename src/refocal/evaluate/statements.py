"""Which differences an evaluation states: those of methods, means and diagrams are right together at its level.

A report tests many things: every method against the model as it is; the mean probability against the rate, and the
reliability diagram against its band, of all rows and of each group. At 95 % each, a report on a calibrated model with
twelve methods and ten groups would nearly always state a difference. So the level is shared: methods are one family,
means and diagrams the other, of the level √(level) each; without methods the other has the whole level. Within the
family of methods, p-values are adjusted by Holm (1979): with p₁ ≤ … ≤ p_n,

    adjusted p_i = max_{j ≤ i} min(1, (n - j + 1) p_j).

Within the other, each mean and each diagram has the level of the family to the power of 1 over their number (Šidák
1967).

What only some reports have are families of their own, each of which is right together at the whole level: the coverage
of prediction sets by class and group, the segments of features, the ranges of each feature, and the decisions by group.
So a report that has all of them errs somewhere more often than one of methods, means and diagrams.

Whether the model is improved by a method is asked by the score test. Let a row have the probabilities p of the model
and q of the method, and the label y. The derivative of the log-loss, as the log-probabilities move from log p towards
log q, is at the model

    s = Σ_k (p_k - 1[y = k]) (log q_k - log p_k) = log(p_y / q_y) - KL(p ‖ q),

what the method costs less what it would cost if the model were right. If the model is right, s has the mean 0, and
given the scores the variance v = Σ_k p_k log²(p_k / q_k) - KL(p ‖ q)². A mean significantly below 0 says that the model
is not right and that a step towards the method lowers the log-loss; the difference of the log-losses itself needs about
four times as many rows to say so: near the model it is half as many standard errors away from 0.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Indices, Vector, row_blocks
from refocal.metrics import PairedDifference
from refocal.metrics.influence import two_sided_p_value

TestedT = TypeVar("TestedT", bound=Hashable)

FEWEST_ROWS_TO_RECOMMEND = 100
"""The tests rest on means of differences being normal, which those of fewer test rows are not."""
LOG_LOSS_SHARE = 0.01
"""A method of several classes is recommended for its ECE among those that give up at most this share of log-loss."""
SQUARED_ECE = "squared_ece"
"""The calibration error that is tested: the difference of two ECEs has no valid test."""


class StatementLevels(NamedTuple):
    """The levels at which a report states differences of methods, means and diagrams."""

    methods: float
    """Of all comparisons of methods together."""
    of_one: float
    """Of each mean, and of each diagram with all its points."""


def statement_levels(level: float, n_methods: int, n_groups: int, n_classes: int, n_shown: int = 1) -> StatementLevels:
    """The levels of what a report on a number of methods states, of which `n_shown` are shown in detail.

    Each that is shown has a diagram of all rows and, of two classes, their mean; and both for each group.

    >>> levels = statement_levels(0.95, n_methods=2, n_groups=10, n_classes=2)
    >>> round(levels.methods, 4), round(levels.of_one**22 * levels.methods, 4)
    (0.9747, 0.95)
    """
    n_statements = n_shown * (2 * n_groups + 1 + (n_classes == 2))
    of_family = level if n_methods == 0 else level**0.5
    return StatementLevels(methods=of_family, of_one=of_family ** (1.0 / n_statements))


def holm(p_values: Mapping[TestedT, float]) -> dict[TestedT, float]:
    """The p-values adjusted so that any number of them may be compared with the level.

    >>> holm({"ts": 0.01, "auto": 0.04, "beta": 0.03})
    {'ts': 0.03, 'beta': 0.06, 'auto': 0.06}
    """
    adjusted: dict[TestedT, float] = {}
    highest = 0.0
    for i, key in enumerate(sorted(p_values, key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - i) * p_values[key]))
        adjusted[key] = highest
    return adjusted


@dataclass(frozen=True)
class MethodTests:
    """The differences of methods from the model as it is, by method and measure, tested together.

    >>> lower = PairedDifference(-0.1, -0.2, -0.01, 0.95, 0.02, 0.4, 0.5, 0)
    >>> MethodTests({"ts": {"log_loss": lower}}, level=0.95).side("ts", "log_loss")
    -1
    >>> MethodTests(dict.fromkeys(["ts", "auto", "beta"], {"log_loss": lower}), level=0.95).side("ts", "log_loss")
    0
    """

    differences: Mapping[str, Mapping[str, PairedDifference]]
    level: float

    @classmethod
    def of(cls, differences: Mapping[str, Mapping[str, PairedDifference]], n_classes: int, level: float) -> MethodTests:
        """The tests of a comparison: by log-loss, and of more than two classes also by squared ECE."""
        tested = {}
        for method, of_method in differences.items():
            tested[method] = {"log_loss": of_method["log_loss"]}
            if n_classes > 2:
                # Evaluations of version 0.1.0 have only a bootstrap of the ECEs.
                tested[method][SQUARED_ECE] = of_method.get(SQUARED_ECE) or of_method["ece"]
        return cls(tested, level)

    @cached_property
    def p_values(self) -> dict[tuple[str, str], float]:
        """The adjusted p-values, by method and measure."""
        return holm({
            (method, measure): difference.p_value
            for method, of_method in self.differences.items()
            for measure, difference in of_method.items()
        })  # fmt: skip

    def side(self, method: str, measure: str) -> int:
        """-1 where the measure is significantly lower than without calibration, 1 where it is higher, otherwise 0."""
        if measure not in self.differences[method] or self.p_values[method, measure] > 1.0 - self.level:
            return 0
        return side_of(self.differences[method][measure])


class ScoreTest(NamedTuple):
    """The mean of s, the derivative of the log-loss at the model towards a method, and its standard error."""

    mean: float
    standard_error: float
    n_clusters: int | None = None
    """The number of clusters, or of rows of unequal weights, effectively."""

    @property
    def p_value(self) -> float:
        """One-sided, for no improvement: small where the mean is far below 0.

        >>> round(ScoreTest(-0.0196, 0.01).p_value, 3), ScoreTest(0.0, 0.0).p_value
        (0.025, 1.0)
        """
        if not self.standard_error > 0.0 or not math.isfinite(self.mean):
            return 1.0
        p_value = two_sided_p_value(self.mean / self.standard_error, self.n_clusters) / 2.0
        return p_value if self.mean < 0.0 else 1.0 - p_value


def score_terms(log_p: NDArray[Any], log_q: NDArray[Any], labels: Indices) -> tuple[Vector, Vector]:
    """The s and v of each row, (rows,), from the log-probabilities (rows, classes) of the model and of a method.

    >>> s, v = score_terms(np.log([[0.5, 0.5]]), np.log([[0.8, 0.2]]), np.array([0]))
    >>> s.round(4), v.round(4)
    (array([-0.6931]), array([0.4805]))
    """
    score = np.empty(len(labels))
    variance = np.empty(len(labels))
    for some in row_blocks(*log_p.shape):  # what is computed stays in the cache
        model = log_p[some].astype(np.float64)
        p = np.exp(model)
        with np.errstate(invalid="ignore"):  # -inf less -inf, where p is 0
            log_ratio = np.where(p > 0.0, model - log_q[some], 0.0)
        divergence = (p * log_ratio).sum(axis=1)
        cost = np.take_along_axis(log_ratio, labels[some][:, None], axis=1)[:, 0]
        score[some] = cost - divergence
        variance[some] = np.maximum((p * np.square(log_ratio)).sum(axis=1) - np.square(divergence), 0.0)
    return score, variance


def side_of(difference: PairedDifference) -> int:
    """The sign of a difference."""
    return (difference.difference > 0) - (difference.difference < 0)
