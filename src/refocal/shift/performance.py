"""Performance without labels, from calibrated probabilities.

If p is right, then the accuracy of some rows is about the mean of max p, their log-loss the mean of -Σ p log p, and so
on: each is a mean over labels that are drawn from p. Intervals are by the spread of such draws, from probabilities that
are off by as much as a calibration on so many rows may be. They say nothing about a change that the probabilities do
not show: where what a row looks like says something else about its class than it did in the fit, the estimate is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from refocal._arrays import Indices, Matrix, Vector
from refocal._validation import check_number, check_seed
from refocal.calibrators import Calibrator
from refocal.calibrators.class_order import named_classes
from refocal.decide.costs import check_costs
from refocal.metrics.intervals import Interval, normal_interval
from refocal.shift.belief import replicate_parameters, softmax
from refocal.shift.rows import log_probabilities, rows_of_fit, weight_of_unlabelled

ASSUMES = (
    "This is to be expected if the probabilities are right on these rows: if what a row looks like says the same about "
    "its class as in the rows of the fit. Intervals have the chance of labels and the error of the calibration, and no "
    "other change."
)


@dataclass(frozen=True)
class Performance:
    """Expected measures of some rows without labels, each with an interval for what labels would show."""

    n_rows: int
    """The rows without labels."""
    accuracy: Interval
    """Of the predicted classes."""
    log_loss: Interval
    """Of the probabilities, in nats a row."""
    brier_score: Interval
    """Of two classes the mean of (p - y)², of more the sum over classes."""
    roc_auc: Interval | None
    """Of two classes."""
    cost: Interval | None
    """Of the best actions, where costs were given."""
    confusion: tuple[tuple[float, ...], ...]
    """The expected share of rows of each class (rows) that are predicted as each class (columns).

    Its diagonal has the expected accuracy."""
    assumes: str = ASSUMES
    """What must hold for all of this."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def estimate_performance(
    calibrator: Calibrator, rows: Any, *, costs: Any = None, level: float = 0.95, seed: int = 0
) -> Performance:
    """The performance to expect on rows without labels, if the calibrator's probabilities are right there.

    Parameters
    ----------
    calibrator : Calibrator
        Fitted, perhaps adapted to these rows before.
    rows : array, data frame or Predictions
        As `predict_proba` takes them; labels of Predictions are not looked at, and their weights count.
    costs : array (C, actions), optional
        The cost of each action for each class, as for `decide.best_actions`.
    level : float
        Of the intervals.
    seed : int
        Of the draws that they are made of.

    Examples
    --------
    >>> from refocal import TemperatureScaling
    >>> rng = np.random.default_rng(1)
    >>> logits = rng.normal(0.0, 3.0, size=(2000, 3))
    >>> labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> calibrator = TemperatureScaling().fit(logits[:1000], labels[:1000])
    >>> found = estimate_performance(calibrator, logits[1000:])
    >>> accuracy = np.mean(logits[1000:].argmax(axis=1) == labels[1000:])
    >>> bool(found.accuracy.low < accuracy < found.accuracy.high)
    True
    """
    check_number(level, "level", "estimate_performance", above=0.0, below=1.0)
    check_seed(seed, "estimate_performance")
    log_p = log_probabilities(calibrator, rows, "estimate_performance")
    n_fit = rows_of_fit(calibrator)
    weight = weight_of_unlabelled(rows, "estimate_performance")
    table = table_of_costs(costs, calibrator, "estimate_performance")
    return performance_of(log_p, n_fit, table, level, seed, weight=weight, excess=excess_of_slope(calibrator))


def excess_of_slope(calibrator: Calibrator) -> float:
    """By how much the probabilities are too extreme on the rows of their own fit; 0 where that is not known.

    Shrinkage towards the probabilities before can leave them so. Too cautious ones there are no error: a fit adjusts to
    its rows.
    """
    means = calibrator.fit_report_.get("mean_probabilities", {})
    return max(0.0, 1.0 - float(means.get("slope", 1.0)))


def table_of_costs(costs: Any, calibrator: Calibrator, function: str) -> Matrix | None:
    """The costs with a row for each class of a calibrator, in its order; None where none are given."""
    if costs is None:
        return None
    return check_costs(costs, len(calibrator.classes_), function, named_classes(calibrator))


@dataclass(frozen=True)
class Belief:
    """What the probabilities (N, C) of some rows may be instead of those that are used."""

    draws: Iterable[Matrix]
    """Replicates: their scatter is the error of an estimate, besides the chance of labels."""
    mean: Matrix
    """The best guess, of which a measure is expected."""
    alternative: Matrix | None = None
    """Another guess that the rows do not exclude: the distance to it is an error too."""


def performance_of(
    log_p: Matrix,
    n_fit: float,
    table: Matrix | None,
    level: float,
    seed: int,
    belief: Belief | None = None,
    weight: Vector | None = None,
    excess: float = 0.0,
) -> Performance:
    """The performance to expect of log-probabilities; by default, they are believed to have the error of a calibration.

    `excess` is that of `excess_of_slope`, for this belief.
    """
    rng = np.random.default_rng(seed)
    n, n_classes = log_p.shape
    count = np.ones(n) if weight is None else weight
    if belief is None:
        belief = _belief_of_calibration(log_p, count, n_fit, rng, excess)
    rows = _PredictedRows.of(log_p, count, table)
    drawn: dict[str, list[float]] = {}
    for q in belief.draws:
        for name, value in rows.measures(_drawn_labels(q, rng)).items():
            drawn.setdefault(name, []).append(value)
    expectation = rows.expected_measures(belief.mean)
    of_alternative = expectation
    if belief.alternative is not None:
        of_alternative = rows.expected_measures(belief.alternative)
    confusion = np.zeros((n_classes, n_classes))
    for k in range(n_classes):
        members = rows.predicted == k
        confusion[:, k] = rows.share[members] @ belief.mean[members]

    def interval(name: str) -> Interval:
        value = expectation[name]
        # Labels that were drawn without an event, or all of them events, have no AUC.
        values = [one for one in drawn[name] if not math.isnan(one)]
        scatter = float(np.std(values)) if values else math.inf
        error = math.hypot(scatter, of_alternative[name] - value)
        largest = {"log_loss": math.inf, "cost": math.inf, "brier_score": 2.0 if n_classes > 2 else 1.0}.get(name, 1.0)
        smallest = -math.inf if name == "cost" else 0.0
        estimate = normal_interval(value, error, level, (smallest, largest))
        if belief.alternative is None or not values:
            return estimate
        # Shares near zero scatter to one side, from which the prior has moved the guess: then the replicates reach
        # further than their standard deviation says.
        tail = 0.5 * (1.0 - level)
        low, high = np.quantile(values, [tail, 1.0 - tail])
        return replace(estimate, low=min(estimate.low, float(low)), high=max(estimate.high, float(high)))

    return Performance(
        n_rows=n,
        accuracy=interval("accuracy"),
        log_loss=interval("log_loss"),
        brier_score=interval("brier_score"),
        roc_auc=interval("roc_auc") if n_classes == 2 else None,
        cost=None if table is None else interval("cost"),
        confusion=tuple(tuple(row) for row in confusion.tolist()),
    )


def _belief_of_calibration(
    log_p: Matrix, count: Vector, n_fit: float, rng: np.random.Generator, excess: float
) -> Belief:
    """That a calibrator of `n_fit` rows like these may be wrong.

    The mean is over the replicates, since the largest of several probabilities is too large on average.
    """
    n_replicates = 200
    intercept, slope = replicate_parameters(log_p, count, n_fit, n_replicates, rng, excess)

    def probabilities(i: int) -> Matrix:
        return softmax((1.0 + slope[i]) * log_p + intercept[i])

    mean = np.zeros_like(log_p)
    for i in range(n_replicates):
        mean += probabilities(i) / n_replicates
    return Belief((probabilities(i) for i in range(n_replicates)), mean)


def _drawn_labels(p: Matrix, rng: np.random.Generator) -> Indices:
    """A label of each row, drawn from its probabilities."""
    drawn = (p.cumsum(axis=1) < rng.random((len(p), 1)) * p.sum(axis=1, keepdims=True)).sum(axis=1)
    return np.asarray(np.minimum(drawn, p.shape[1] - 1), dtype=np.int64)


@dataclass(frozen=True)
class _PredictedRows:
    """Rows without labels, and what is predicted of them."""

    log_p: Matrix
    p: Matrix
    share: Vector
    """The share of each row in the weight."""
    predicted: Indices
    """The class of the largest probability of each row."""
    table: Matrix | None
    """The costs of actions, if there are any."""
    action: Indices | None
    """The action of the least expected cost of each row."""

    @classmethod
    def of(cls, log_p: Matrix, count: Vector, table: Matrix | None) -> _PredictedRows:
        """Rows of these log-probabilities and weights."""
        p = np.exp(log_p)
        action = None if table is None else np.argmin(p @ table, axis=1)
        return cls(log_p, p, count / count.sum(), p.argmax(axis=1), table, action)

    def measures(self, labels: Indices) -> dict[str, float]:
        """The measures of the rows if these are their labels."""
        rows = np.arange(len(self.p))
        # Σ_k (p_k - y_k)² = Σ p² - 2 p_y + 1; half of it for two classes.
        squares = np.sum(self.p**2, axis=1) - 2.0 * self.p[rows, labels] + 1.0
        measured = {
            "accuracy": float(self.share @ (self.predicted == labels)),
            "log_loss": -float(self.share @ self.log_p[rows, labels]),
            "brier_score": float(self.share @ squares) * self._brier_factor,
        }
        if self.p.shape[1] == 2:
            measured["roc_auc"] = _auc(self.p[:, 1], labels.astype(np.float64), self.share)
        if self.table is not None:
            measured["cost"] = float(self.share @ self.table[labels, self.action])
        return measured

    def expected_measures(self, q: Matrix) -> dict[str, float]:
        """The expectations of the measures over labels that are drawn from the probabilities q (N, C)."""
        rows = np.arange(len(self.p))
        squares = 1.0 + np.sum(self.p**2 - 2.0 * q * self.p, axis=1)
        expected = {
            "accuracy": float(self.share @ q[rows, self.predicted]),
            "log_loss": -float(self.share @ np.sum(q * self.log_p, axis=1)),
            "brier_score": float(self.share @ squares) * self._brier_factor,
        }
        if self.table is not None:
            expected["cost"] = float(self.share @ (q @ self.table)[rows, self.action])
        if self.p.shape[1] == 2:
            expected["roc_auc"] = _auc(self.p[:, 1], q[:, 1], self.share)
        return expected

    @property
    def _brier_factor(self) -> float:
        """The Brier score of two classes is that of class 1 alone."""
        return 0.5 if self.p.shape[1] == 2 else 1.0


def _auc(score: Any, probability: Any, share: Any = 1.0) -> float:
    """The probability that an event has a larger score than another row, ties half.

    A row is an event with its probability, and counts by its share of the weight.
    """
    distinct, index = np.unique(score, return_inverse=True)
    events = np.bincount(index, share * probability, len(distinct))
    others = np.bincount(index, share * (1.0 - probability), len(distinct))
    total = float(events.sum() * others.sum())
    if total <= 0.0:
        return float("nan")
    below = np.cumsum(others) - others
    return float(np.sum(events * (below + 0.5 * others))) / total
