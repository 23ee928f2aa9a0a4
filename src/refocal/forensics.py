"""Which loss a network was trained with, from its logits of training rows.

Training ends where the gradient of the loss is 0. The last layer of a network is linear, so that the loss could fall
neither by scaling all logits s nor by adding a number to those of a class. For focal loss with class weights w,

    dL/ds_j = w_y a (q_j - [j = y]),    a = (1 - q_y)^γ (1 + γ h(q_y)),    h(q) = -q log q / (1 - q),    q = softmax(s),

this is, summed over the training rows,

    Σ w_y a (Σ_j q_j s_j - s_y) = 0                 the scale: it determines γ
    Σ w_y a (q_j - [j = y]) = 0 for each class j     the intercepts: given γ, they determine w up to a factor

Rows that are right pull towards larger logits, wrong ones towards smaller; γ says how much less the former count. Where
no row is wrong any more, nothing holds the logits back, and γ cannot be told.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from refocal._arrays import Indices, Vector, as_floating, to_numpy
from refocal._validation import check_integer, check_number, check_option, check_seed
from refocal.errors import DataError
from refocal.maps import focal, log_softmax
from refocal.maps.row import softmax_row
from refocal.metrics.influence import variance_of_mean
from refocal.metrics.inputs import check_alone, check_clusters, check_level
from refocal.metrics.intervals import Interval, normal_interval
from refocal.rows import Predictions
from refocal.rows.gate import Arguments, read_labelled

__all__ = ["ConfidenceGap", "TrainingLoss", "training_loss"]

# The γ that are tried; the root lies between two of them.
GAMMAS = np.concatenate([np.linspace(-0.9, 10.0, 219), np.linspace(10.25, 30.0, 80)])


@dataclass(frozen=True)
class ConfidenceGap:
    """How far the mean confidence of new rows lies from their accuracy, split by its causes: total = loss + fitting.

    >>> gap = ConfidenceGap(*(normal_interval(value, 0.01, 0.95, (-1.0, 1.0)) for value in (-0.1, -0.15, 0.05)))
    >>> round(gap.by_loss.value + gap.by_fitting.value, 3) == gap.total.value
    True
    """

    total: Interval
    """Mean confidence less accuracy; below 0: underconfident."""
    by_loss: Interval
    """What the loss does: mean confidence less that after the map that undoes the loss."""
    by_fitting: Interval
    """What remains, confidence after the map less accuracy: above 0 for a network that fitted its training rows."""


@dataclass(frozen=True, eq=False)
class TrainingLoss:
    """The loss that training rows are stationary under; `gamma` is None where it cannot be told.

    >>> memorised = training_loss([0, 1, 2] * 50, 30.0 * np.tile(np.eye(3), (50, 1)))
    >>> memorised.gamma, memorised.reason
    (None, 'only 0 of 150 rows hold the logits back: memorised')
    """

    gamma: Interval | None
    """γ of focal loss, 0 for cross-entropy, with its interval."""
    class_weight: Vector | None
    """Weights of the classes, of mean 1; None where they were not asked for or cannot be told."""
    class_weight_interval: tuple[Vector, Vector] | None
    """Lower and upper ends of their intervals, each class by itself and for the estimated γ."""
    n_wrong: int
    """The number of training rows that pull towards smaller logits: those that γ rests on."""
    reason: str
    """Why γ cannot be told; empty where it can."""
    class_names: tuple[str, ...] | None = None
    """The names of the columns of the training rows; None where they had none."""

    def explain(self, y_true: Any, logits: Any = None) -> ConfidenceGap:
        """How much of the gap between confidence and accuracy of new rows the loss explains.

        The intervals are those of the new rows for the estimated γ, which counts as given.

        >>> rng = np.random.default_rng(0)
        >>> loss = TrainingLoss(normal_interval(2.0, 0.1, 0.95, (-1.0, 30.0)), None, None, 100, "")
        >>> truth = rng.normal(size=(5000, 2))
        >>> y = np.argmax(truth + rng.gumbel(size=truth.shape), axis=1)
        >>> from refocal.maps import inverse_focal
        >>> gap = loss.explain(y, inverse_focal(truth, 2.0))
        >>> gap.total.value < -0.05, abs(gap.by_fitting.value) < 0.02
        (True, True)
        """
        if self.gamma is None:
            raise DataError("gamma", "TrainingLoss.explain", expected="an estimate", got=f"none: {self.reason}")
        rows, numbers = _rows_of(y_true, logits, "TrainingLoss.explain", self.class_names)
        log_q = np.asarray(log_softmax(numbers))
        log_p = np.asarray(focal(numbers, self.gamma.value, class_weight=self.class_weight))
        before = np.exp(log_q.max(axis=1))
        after = np.exp(np.take_along_axis(log_p, log_q.argmax(axis=1)[:, None], axis=1)[:, 0])
        correct = (log_q.argmax(axis=1) == rows.labels).astype(np.float64)
        level = self.gamma.level
        return ConfidenceGap(
            total=_mean(before - correct, rows, level),
            by_loss=_mean(before - after, rows, level),
            by_fitting=_mean(after - correct, rows, level),
        )


def training_loss(
    y_true: Any,
    logits: Any = None,
    *,
    class_weight: str | None = None,
    level: float = 0.95,
    n_resamples: int = 200,
    min_wrong: int = 20,
    seed: int = 0,
) -> TrainingLoss:
    """The γ of the focal loss, 0 for cross-entropy, that a network was trained with, from logits of training rows.

    γ is the one under which scaling the logits does not lower the loss of these rows; the interval is that of resampled
    rows, or clusters, alone, and a lower end of -0.9, the least γ tried, says that they do not bound it below. A
    network that is not at a minimum on these very rows, as with weight decay or augmentation, has another γ: on the
    five networks where it was told it was off by up to 0.8, mostly upwards, and one of four intervals missed it
    (benchmarks/results/loss_forensics.md). Label smoothing is not told apart from γ.

    Parameters
    ----------
    y_true, logits : arrays, or Predictions alone
        Rows that the network was trained on.
    class_weight : "fit", optional
        Estimate weights of the classes too; without it the loss is taken to have none. They are right for a model at
        the minimum of its loss on these very rows; of networks trained with augmentation and without weights they came
        out from 0.01 to 7.4, and γ with them too high. Do not rely on them there.
    level : float
        Of the interval.
    n_resamples, seed : int
        Of the interval.
    min_wrong : int
        With fewer rows that pull towards smaller logits, γ cannot be told: the rows are memorised.

    Examples
    --------
    >>> from refocal.maps import inverse_focal
    >>> rng = np.random.default_rng(0)
    >>> truth = 2.0 * rng.normal(size=(20000, 3))
    >>> y = np.argmax(truth + rng.gumbel(size=truth.shape), axis=1)
    >>> loss = training_loss(y, inverse_focal(truth, 2.0))  # what a minimiser of focal loss predicts
    >>> loss.gamma.low < 2.0 < loss.gamma.high, loss.gamma.high - loss.gamma.low < 0.5
    (True, True)
    """
    name = "training_loss"
    check_level(level, name)
    check_integer(n_resamples, "n_resamples", name, least=20)
    check_seed(seed, name)
    check_number(min_wrong, "min_wrong", name, least=1.0)
    if class_weight is not None:
        check_option(class_weight, ("fit",), "class_weight", name)
    rows, numbers = _rows_of(y_true, logits, name)
    impossible = np.isneginf(numbers[np.arange(len(rows)), rows.labels])
    if impossible.any():
        got = f"-inf at the label of row {rows.numbers[np.argmax(impossible)]}"
        raise DataError("logits", name, expected="finite where the label points, as the loss of training is", got=got)
    pull = _Pull.of(numbers, rows.labels)
    weight = rows.weights
    n_wrong = int(np.count_nonzero(pull.scale > 0.0))
    if n_wrong < min_wrong:
        reason = f"only {n_wrong} of {len(rows)} rows hold the logits back: memorised"
        return TrainingLoss(None, None, None, n_wrong, reason)
    if class_weight is not None and len(np.unique(rows.labels)) < rows.n_classes:
        got = f"{len(np.unique(rows.labels))} of {rows.n_classes}"
        raise DataError("y_true", name, expected="of every class, to fit class weights", got=got)
    of_class = np.ones(rows.n_classes)
    gamma = _root(pull.moments(weight[None]))[0] if class_weight is None else pull.weighted_root(weight)
    if class_weight is not None and math.isfinite(gamma):
        of_class = pull.class_weight(gamma, weight)
    if not math.isfinite(gamma):
        reason = (
            f"no γ was found from {GAMMAS[0]:g} to {GAMMAS[-1]:g} at which the gradient of the scale rises through 0"
        )
        return TrainingLoss(None, None, None, n_wrong, reason)
    # Rows of one cluster are drawn together.
    unit = np.arange(len(rows)) if rows.clusters is None else np.unique(rows.clusters, return_inverse=True)[1]
    n_units = int(unit.max()) + 1
    check_clusters(rows.clusters, name)
    drawn = np.random.default_rng(seed).multinomial(n_units, np.full(n_units, 1.0 / n_units), size=n_resamples)
    counts = drawn[:, unit]
    replicates = _root(pull.moments(counts * (weight * of_class[rows.labels])))
    # Replicates that smaller logits would help under every γ do not bound γ below: they count as the least γ tried.
    replicates = np.maximum(replicates, GAMMAS[0])
    tails = [(1.0 - level) / 2.0, (1.0 + level) / 2.0]
    low, high = np.quantile(replicates, tails, method="inverted_cdf").tolist()
    finite = replicates[np.isfinite(replicates)]
    error = float(np.std(finite)) if len(finite) > 1 else math.inf
    interval = Interval(float(gamma), low, high, level, error, 0.0, n_resamples)
    if class_weight is None:
        return TrainingLoss(interval, None, None, n_wrong, "")
    ends = np.quantile([pull.class_weight(gamma, weight * count) for count in counts], tails, axis=0)
    return TrainingLoss(interval, of_class, (ends[0], ends[1]), n_wrong, "", rows.class_names)


@dataclass(frozen=True)
class _Pull:
    """What the gradient of each training row needs."""

    q: NDArray[np.float64]  # (N, C)
    labels: Indices
    scale: Vector  # Σ_j q_j s_j - s_y: above 0 where smaller logits would help
    log_not_q: Vector  # log(1 - q_y)
    h: Vector  # h(q_y)

    @classmethod
    def of(cls, logits: NDArray[np.float64], labels: Indices) -> _Pull:
        """Of checked logits (N, C) and their labels."""
        row = softmax_row(np, logits, 1.0)
        q = np.exp(np.asarray(log_softmax(logits)))
        at = np.arange(len(labels))
        finite = np.where(np.isfinite(row.gap), row.gap, 0.0)  # an impossible class has no share in the mean
        scale = (q * finite).sum(axis=1) - finite[at, labels]
        return cls(q, labels, scale, row.log_not_q[at, labels], row.h[at, labels])

    def factor(self, gamma: Any) -> NDArray[np.float64]:
        """How much each row counts, a = (1 - q_y)^γ (1 + γ h(q_y)), for each γ: (…, N)."""
        g = np.asarray(gamma)[..., None]
        return np.asarray(np.exp(g * self.log_not_q) * (1.0 + g * self.h))

    def moments(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Σ w a (Σ_j q_j s_j - s_y) for weights (B, N) and every γ: (B, number of γ)."""
        return np.asarray(weights @ (self.factor(GAMMAS) * self.scale).T)

    def weighted_root(self, weight: Vector) -> float:
        """The γ at which the scale is stationary with the class weights that belong to that γ; infinite without one."""

        def moment(gamma: float) -> float:
            of_row = weight * self.class_weight(gamma, weight)[self.labels]
            return float((of_row * self.factor(gamma)) @ self.scale)

        every = 8  # of the grid: each moment needs its class weights, and the rest is bisection
        grid = GAMMAS[::every]
        for low, high in itertools.pairwise(grid):
            if moment(low) <= 0.0 < moment(high):
                return float(brentq(moment, low, high))
        return math.inf

    def class_weight(self, gamma: float, weight: Vector) -> Vector:
        """Weights of the classes of mean 1 under which no intercept lowers the loss.

        With G_kj = Σ_{y=k} a (q_j - [j = y]), whose rows sum to 0, they solve wᵀG = 0: G is the generator of a Markov
        chain between the classes, and w its stationary distribution.
        """
        n_classes = self.q.shape[1]
        is_class = (np.arange(n_classes) == self.labels[:, None]).astype(np.float64)
        pulls = (weight * self.factor(gamma))[:, None] * (self.q - is_class)
        generator = is_class.T @ pulls
        # The smallest singular direction of Gᵀ; its entries have one sign.
        direction = np.abs(np.linalg.svd(generator.T)[2][-1])
        return np.asarray(direction * n_classes / direction.sum())


def _root(moments: NDArray[np.float64]) -> Vector:
    """The γ at which each row of moments (B, number of γ) first rises through 0.

    A moment may be above 0 at the least γ, fall through 0 and rise again; it is the rise that counts. Without one the γ
    is -∞ where the moment is above 0 for every γ, else ∞.
    """
    is_above = moments > 0.0
    rises = ~is_above[:, :-1] & is_above[:, 1:]
    before = np.argmax(rises, axis=1)
    at = np.arange(len(moments))
    lower = moments[at, before]
    has_rise = rises.any(axis=1)
    rise = np.where(has_rise, moments[at, before + 1] - lower, 1.0)
    root = GAMMAS[before] - lower / rise * (GAMMAS[before + 1] - GAMMAS[before])
    without = np.where(is_above.all(axis=1), -np.inf, np.inf)
    return np.where(has_rise, root, without)


def _rows_of(
    y_true: Any, logits: Any, function: str, class_names: tuple[str, ...] | None = None
) -> tuple[Predictions, NDArray[np.float64]]:
    """Checked rows and their logits in double precision; columns that have names are in the order of `class_names`."""
    rows = y_true
    if isinstance(y_true, Predictions):
        check_alone(y_true, function, logits=logits)
    else:
        names = Arguments("logits", "y_true", "sample_weight")
        rows = read_labelled(logits, y_true, "logits", names, function)
    rows = rows.in_order_of(class_names)
    return rows, to_numpy(as_floating(rows.logits, "logits", function)[0]).astype(np.float64)


def _mean(terms: Vector, rows: Predictions, level: float) -> Interval:
    """The mean of terms of rows, with an interval that rests on clusters if there are any."""
    value = float(np.average(terms, weights=rows.weights))
    error = math.sqrt(float(variance_of_mean(terms, rows.weight, rows.clusters)))
    n_clusters = None if rows.clusters is None else len(np.unique(rows.clusters))
    return normal_interval(value, error, level, (-1.0, 1.0), n_clusters)
