"""A calibrator brought up to date by some labelled rows, shrunk towards what it was.

    p' ∝ exp(b l + a),    a ~ N(0, σ_a²) for each class, b ~ N(1, σ_b²)

of its log-probabilities l: the intercepts a and the slope b of largest posterior. Rows that share a period are worth
less than independent ones: with clusters the likelihood is divided by the design effect, the mean over clusters of
x_t², where x_t is the standardised number of events of cluster t less what is expected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from refocal._arrays import Indices, Matrix, Vector, to_numpy
from refocal._clusters import as_clusters
from refocal._validation import check_integer, check_number
from refocal.calibrators import Calibrator
from refocal.calibrators.class_order import labels_of
from refocal.calibrators.fitted import slope_of_labels
from refocal.errors import LabelError, ShapeError
from refocal.maps.steps import Offset, Temperature
from refocal.rows import Predictions
from refocal.rows.class_names import column_order
from refocal.rows.gate import Arguments, read_labelled
from refocal.shift.belief import softmax
from refocal.shift.likelihood import effective_weight
from refocal.shift.rows import (
    SMALLEST_LOG_P,
    check_changeable,
    followed_by,
    labelled,
    log_probabilities,
    weight_in_rows,
)

# A slope is at least this: probabilities are not turned round.
LEAST_SLOPE = 0.05


@dataclass(frozen=True)
class Prior:
    """How far the intercepts and the slope may be expected to have moved, as standard deviations."""

    intercept: float = 0.5
    """Of each class, in log-odds."""
    slope: float = 0.25
    """Around 1."""


@dataclass(frozen=True)
class Correction:
    """A slope b and the intercepts a (C,) of log-probabilities.

    >>> Correction.none(2).apply(np.log([[0.25, 0.75]])).round(3)
    array([[-1.386, -0.288]])
    """

    slope: float
    """Below 1 the probabilities were too extreme."""
    intercept: Vector
    """Of each class, in log-odds; their mean is 0."""

    @classmethod
    def none(cls, n_classes: int) -> Correction:
        """That which changes nothing."""
        return cls(1.0, np.zeros(n_classes))

    def apply(self, log_p: Matrix) -> Matrix:
        """The corrected log-probabilities."""
        scores = self.slope * log_p + self.intercept
        return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)

    def behind(self, calibrator: Calibrator, n_rows: float | None = None, **notes: Any) -> Calibrator:
        """The calibrator with the correction behind its own steps, and notes in its report.

        The shares that its probabilities stood for are no longer those; what they are now, notes may say. `n_rows` is
        how many independent rows the correction rests on, where it is known.
        """
        steps = (Temperature(1.0 / self.slope), Offset(self.intercept))
        updated: dict[str, Any] = {"slope": self.slope, "intercept": self.intercept.tolist()}
        if n_rows is not None:
            updated["n_rows"] = n_rows
        made = followed_by(calibrator, steps, {"updated": updated, **notes})
        # An adaptation before the correction is a part of what was corrected.
        for name in {"class_shares", "mean_probabilities", "before_adaptation"} - notes.keys():
            made.fit_report_.pop(name, None)
        return made


def fit_correction(
    log_p: Matrix,
    labels: Indices,
    weight: Vector,
    start: Correction,
    prior: Prior,
    *,
    intercept_only: bool = False,
    first: Correction | None = None,
) -> Correction:
    """The correction of largest posterior, whose prior is centred at `start`; the search begins at `first`.

    Newton's method on Σ w (log Σ exp(b l + a) - b l_y - a_y) + (a - a⁰)²/2σ_a² + (b - b⁰)²/2σ_b², which is convex:
    steps are halved until it falls.
    """
    # Newton's steps, halvings of one, and the fall of the objective that is not worth another, in log-likelihood.
    most_steps = 30
    most_halvings = 20
    tolerance = 1e-6
    n_classes = log_p.shape[1]
    centre = np.append(start.intercept, start.slope)
    precision = np.array([1.0 / prior.intercept**2] * n_classes + [1.0 / prior.slope**2])
    point = centre if first is None else np.append(first.intercept, first.slope)
    if intercept_only:
        point = np.append(point[:n_classes], start.slope)
    rows = np.arange(len(labels))

    def cost(x: Vector) -> float:
        scores = x[n_classes] * log_p + x[:n_classes]
        total = np.logaddexp.reduce(scores, axis=1)
        moved = x - centre
        return float(weight @ (total - scores[rows, labels])) + 0.5 * float(precision @ moved**2)

    present = cost(point)
    for _ in range(most_steps):
        gradient, information = log_likelihood_derivatives(point, log_p, labels, weight)
        gradient = gradient - precision * (point - centre)
        information = information + np.diag(precision)
        step = _newton_step(gradient, information, float(point[n_classes]), keep_slope=intercept_only)
        # Twice the fall that the quadratic model promises.
        promised = float(step @ gradient)
        if promised < tolerance:
            break
        for _ in range(most_halvings):
            proposed = point + step
            proposed[n_classes] = max(float(proposed[n_classes]), LEAST_SLOPE)
            value = cost(proposed)
            if value <= present:
                break
            step = 0.5 * step
        else:
            break
        point = proposed
        present = value
    intercept = point[:n_classes]
    return Correction(float(point[n_classes]), intercept - intercept.mean())


def _newton_step(gradient: Vector, information: Matrix, slope: float, *, keep_slope: bool = False) -> Vector:
    """Newton's step of the intercepts and the slope, (C + 1,).

    A slope at its lower bound stays there if the gradient would lower it, as any does with `keep_slope`: the step is
    then that of the intercepts.
    """
    step: Vector = np.zeros(len(gradient))
    if keep_slope or (slope <= LEAST_SLOPE and gradient[-1] < 0.0):
        step[:-1] = np.linalg.solve(information[:-1, :-1], gradient[:-1])
    else:
        step[:] = np.linalg.solve(information, gradient)
    return step


def log_likelihood_derivatives(x: Vector, log_p: Matrix, labels: Indices, weight: Vector) -> tuple[Vector, Matrix]:
    """The gradient and minus the Hessian of Σ w log p'_y in (a, b), (C + 1,) and (C + 1, C + 1)."""
    n = log_p.shape[1]
    p = softmax(x[n] * log_p + x[:n])
    weighted = weight[:, None] * p
    mean = np.sum(p * log_p, axis=1, keepdims=True)
    centred = log_p - mean
    of_label = log_p[np.arange(len(labels)), labels] - mean[:, 0]
    gradient = np.append(np.bincount(labels, weight, n) - weighted.sum(axis=0), float(weight @ of_label))
    information = np.zeros((n + 1, n + 1))
    information[:n, :n] = np.diag(weighted.sum(axis=0)) - weighted.T @ p
    information[:n, n] = np.sum(weighted * centred, axis=0)
    information[n, :n] = information[:n, n]
    information[n, n] = float(np.sum(weighted * centred**2))
    return gradient, information


def design_effect(log_p: Matrix, labels: Indices, clusters: Indices, weight: Vector | None = None) -> float:
    """The mean of x_t² over clusters, at least 1: how many rows of a cluster are worth an independent one.

    x_t = Σ w (y - p) / √Σ w p (1 - p) of class 1 of two, or of the top class, less its mean, which is what a correction
    is for.
    """
    p = np.exp(log_p)
    if p.shape[1] == 2:
        event = p[:, 1]
        happened = labels == 1
    else:
        event = p.max(axis=1)
        happened = p.argmax(axis=1) == labels
    n_clusters = int(clusters.max()) + 1
    count = np.ones(len(labels)) if weight is None else weight
    residual = np.bincount(clusters, count * (happened - event), n_clusters)
    variance = np.bincount(clusters, count * event * (1.0 - event), n_clusters)
    known = variance > 0.0
    if np.count_nonzero(known) < 2:
        return 1.0
    bias = residual[known].sum() / variance[known].sum()
    x = (residual[known] - bias * variance[known]) / np.sqrt(variance[known])
    return max(1.0, float(x @ x) / (np.count_nonzero(known) - 1))


def update(
    calibrator: Calibrator,
    rows: Any,
    labels: Any = None,
    *,
    clusters: Any = None,
    intercept_only: bool = False,
    prior: Prior | None = None,
) -> Calibrator:
    """The calibrator after some newly labelled rows, shrunk towards what it was: 200 rows are enough.

    Parameters
    ----------
    calibrator : Calibrator
        Fitted.
    rows : array, data frame or Predictions
        As `predict_proba` takes them; Predictions have their labels.
    labels : array (N,), optional
        The labels of rows that are no Predictions: the calibrator's classes, or column numbers.
    clusters : array (N,) or data frame of one column, optional
        The day, or whatever rows share: rows of one cluster count less. By default those of Predictions, if any.
    intercept_only : bool
        Whether the slope stays.
    prior : Prior, optional
        How far the intercepts and the slope may have moved.

    Examples
    --------
    >>> from refocal import LogisticCalibration
    >>> rng = np.random.default_rng(0)
    >>> log_odds = rng.normal(size=3000)
    >>> y = rng.random(3000) < 1 / (1 + np.exp(-log_odds))
    >>> calibrator = LogisticCalibration(input="log-odds").fit(log_odds[:2000], y[:2000])
    >>> later = rng.random(1000) < 1 / (1 + np.exp(-log_odds[2000:] - 0.8))
    >>> updated = update(calibrator, log_odds[2000:2200], later[:200])
    >>> from refocal.metrics import log_loss
    >>> before, after = (
    ...     log_loss(later[200:].astype(int), each.predict_log_proba(log_odds[2200:])) for each in (calibrator, updated)
    ... )
    >>> bool(after < before - 0.02)
    True
    """
    function = "update"
    check_changeable(calibrator, function)
    prior = prior or Prior()
    check_number(prior.intercept, "prior.intercept", function, above=0.0)
    check_number(prior.slope, "prior.slope", function, above=0.0)
    checked = labelled(calibrator, rows, labels, function)
    log_p = log_probabilities(calibrator, checked, function)
    numbers = labels_of(calibrator, checked, function)
    weight = weight_in_rows(checked)
    of_rows = checked.clusters if clusters is None else as_clusters(clusters, len(checked), function).numbers
    if of_rows is not None:
        weight = weight / design_effect(log_p, numbers, of_rows, weight)
    # Weights of clusters have been divided by what their sums scatter by; those of single rows count as repetitions.
    n_independent = min(float(weight.sum()), float(effective_weight(checked.weight, len(checked)).sum()))
    start = Correction.none(log_p.shape[1])
    correction = fit_correction(log_p, numbers, weight, start, prior, intercept_only=intercept_only)
    # The shares that the corrected probabilities stand for, for `adapt`, and what its prior has left of a slope.
    p = np.exp(correction.apply(log_p))
    shares = weight @ p / weight.sum()
    known = calibrator.fit_report_.get("mean_probabilities", {})
    means = {**known, "n_rows": n_independent, "values": shares.tolist()}
    if len(shares) == 2 and not intercept_only:
        means["slope"] = slope_of_labels(p[:, 1], numbers, weight)
    return correction.behind(calibrator, n_independent, mean_probabilities=means)


@dataclass
class OnlineUpdate:
    """A correction that follows a stream in one pass and bounded memory, with forgetting.

    The posterior of the intercepts and the slope is kept as a mean and a precision; before each batch it falls back
    towards the prior by a factor that halves it in `half_life` batches, and Newton's steps on the batch move it.

    >>> rng = np.random.default_rng(0)
    >>> online = OnlineUpdate(2)
    >>> for _ in range(40):
    ...     p = rng.beta(2, 3, 200)
    ...     log_p = np.log(np.stack([1 - p, p], axis=1))
    ...     y = rng.random(200) < 1 / (1 + np.exp(-np.log(p / (1 - p)) - 0.5))
    ...     _ = online.partial_fit(log_p, y.astype(int))
    >>> shift = online.correction.intercept
    >>> bool(0.35 < shift[1] - shift[0] < 0.65)
    True
    """

    n_classes: int
    half_life: float = 20.0
    prior: Prior = field(default_factory=Prior)

    def __post_init__(self) -> None:
        check_integer(self.n_classes, "n_classes", "OnlineUpdate", least=2)
        check_number(self.half_life, "half_life", "OnlineUpdate", above=0.0)
        variances = [self.prior.intercept**2] * self.n_classes + [self.prior.slope**2]
        self._prior_precision: Matrix = np.diag(1.0 / np.array(variances))
        self._centre: Vector = np.append(np.zeros(self.n_classes), 1.0)
        self._mean = self._centre.copy()
        self._precision = self._prior_precision.copy()
        self._squares = 0.0
        self._count = 0.0
        self._last_x: float | None = None
        self._class_names: tuple[str, ...] | None = None

    @property
    def correction(self) -> Correction:
        """The present one."""
        intercept = self._mean[: self.n_classes]
        return Correction(max(float(self._mean[self.n_classes]), LEAST_SLOPE), intercept - intercept.mean())

    def partial_fit(self, log_p: Any, labels: Any, sample_weight: Any = None) -> Self:
        """A batch of log-probabilities (N, C) of the calibrator, their labels, and their weights, as in fits.

        Columns with names may be in any order: their classes are those of the first batch that has names.
        """
        if np.size(labels) == 0:
            return self
        function = "OnlineUpdate.partial_fit"
        if np.ndim(log_p) != 2 or np.shape(log_p)[1] != self.n_classes:
            expected = f"of shape (N, {self.n_classes}), a column for each class"
            raise ShapeError("log_p", function, expected=expected, got=f"shape {np.shape(log_p)}")
        rows = read_labelled(log_p, labels, "logits", Arguments("log_p", "labels"), function, weight=sample_weight)
        rows = self._in_first_order(rows, function)
        values = np.maximum(np.asarray(to_numpy(rows.values), dtype=np.float64), SMALLEST_LOG_P)
        self._observe(values, rows.labels, weight_in_rows(rows))
        return self

    def _in_first_order(self, rows: Predictions, function: str) -> Predictions:
        """A batch with its columns in the order of the first one with names."""
        if self._class_names is None:
            self._class_names = rows.class_names
        order = column_order(rows.class_names, self._class_names, function)
        if order is None:
            return rows
        if rows.label_map is not None and rows.label_map.columns is None:
            expected = "names of classes where batches have their columns in several orders"
            got = "column numbers in a batch of another order than the first"
            raise LabelError("labels", function, expected=expected, got=got)
        return rows.reordered(order)

    def _observe(self, log_p: Matrix, labels: Indices, weight: Vector) -> None:
        """The posterior after a batch of checked rows."""
        kept = 0.5 ** (1.0 / self.half_life)
        weighted = kept * self._precision @ self._mean + (1.0 - kept) * self._prior_precision @ self._centre
        precision = kept * self._precision + (1.0 - kept) * self._prior_precision
        mean = np.linalg.solve(precision, weighted)
        corrected = self.correction.apply(log_p)
        x = _standardised_events(corrected, labels, weight)
        # Half the squared difference of neighbours, which a lasting bias does not raise. The first batch has none: its
        # own square is more than its design effect if there is a bias, and the batches after it correct that.
        square = x**2 if self._last_x is None else 0.5 * (x - self._last_x) ** 2
        self._count = kept * self._count + 1.0
        self._squares = kept * self._squares + square
        self._last_x = x
        effect = max(1.0, self._squares / self._count)
        point = mean.copy()
        n = self.n_classes
        for _ in range(3):
            gradient, information = log_likelihood_derivatives(point, log_p, labels, weight)
            posterior = precision + information / effect
            gradient = gradient / effect - precision @ (point - mean)
            point = point + _newton_step(gradient, posterior, point[n])
            point[n] = max(point[n], LEAST_SLOPE)
        self._mean = point
        self._precision = posterior


def _standardised_events(log_p: Matrix, labels: Indices, weight: Vector) -> float:
    """X of a batch: class 1 of two, or the top class."""
    p = np.exp(log_p)
    event = p[:, 1] if p.shape[1] == 2 else p.max(axis=1)
    happened = labels == 1 if p.shape[1] == 2 else p.argmax(axis=1) == labels
    variance = float(weight @ (event * (1.0 - event)))
    return float(weight @ (happened - event)) / math.sqrt(max(variance, 1e-12))
