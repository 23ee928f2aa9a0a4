"""The flexible calibration curve of two classes, and the distances of probabilities from it: ICI and E-max.

With the log-odds z = logit p of class 1 and the outcome y:

    curve         c(p) = sigmoid(s(z)), s being a restricted cubic spline (Harrell 2015)
    ICI           Σ w |p - c(p)| / Σ w (Austin & Steyerberg 2019); E-max is the largest |p - c(p)|
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from refocal._arrays import Matrix, Vector
from refocal.errors import DataError
from refocal.metrics.bins import bins_of, places_of_shares
from refocal.metrics.influence import critical_value, influences_of_units
from refocal.metrics.inputs import check_clusters, check_level
from refocal.metrics.intervals import number_of
from refocal.metrics.inverted_error import ErrorModel
from refocal.metrics.logistic_regression import LogisticFit, Outcomes, check_exists, fit_logistic, log_odds_of, sigmoid
from refocal.metrics.recalibration import _n_rows
from refocal.metrics.record import OF_CONFIDENCE, Metric
from refocal.metrics.two_classes import SHOWN, read_two_classes
from refocal.rows import Predictions
from refocal.rows.labels import IgnoreIndex

__all__ = ["FlexibleCurve", "flexible_curve", "integrated_calibration_index", "largest_calibration_error"]


def integrated_calibration_index(
    y_true: Any,
    probabilities: Any = None,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """ICI: the mean distance of the probability of class 1 from the flexible curve (Austin & Steyerberg 2019).

    >>> y, p = [0] * 3 + [1] + [0] + [1] * 3, [0.1] * 4 + [0.9] * 4
    >>> round(integrated_calibration_index(y, p), 4)  # |0.1 - 0.25| and |0.9 - 0.75|
    0.15
    """
    rows = read_two_classes(
        y_true, probabilities, sample_weight, ignore_index, "integrated_calibration_index", class_names=classes
    )
    return check_exists(_mean_distance(rows), "integrated_calibration_index", _CURVE_EXISTS)


def largest_calibration_error(
    y_true: Any,
    probabilities: Any = None,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """E-max: the largest distance of a row's probability of class 1 from the flexible curve (Harrell 2015).

    >>> y, p = [0] * 3 + [1] + [0] + [1] * 3, [0.1] * 4 + [0.8] * 4
    >>> round(largest_calibration_error(y, p), 4)  # |0.1 - 0.25|
    0.15
    """
    rows = read_two_classes(
        y_true, probabilities, sample_weight, ignore_index, "largest_calibration_error", class_names=classes
    )
    return check_exists(_largest_distance(rows), "largest_calibration_error", _CURVE_EXISTS)


_CURVE_EXISTS = "such that a curve of their outcomes exists: they must not separate the classes"


@dataclass(frozen=True, eq=False)
class Spline:
    """A restricted cubic spline of log-odds: cubic between its knots, straight beyond the first and the last."""

    knots: Vector

    def design(self, z: Vector) -> Matrix:
        """The columns 1, z and, for each knot t_j but the last two, of which t and u are those, (rows, knots).

        ((z - t_j)³₊ - (z - t)³₊ (u - t_j)/(u - t) + (z - u)³₊ (t - t_j)/(u - t)) / (u - t_1)².
        """
        columns = [np.ones_like(z), z]
        if len(self.knots) > 2:
            t, u = self.knots[-2:].tolist()

            def cube(knot: float) -> Vector:
                return np.asarray(np.maximum(z - knot, 0.0) ** 3)

            for knot in self.knots[:-2].tolist():
                bend = cube(knot) - cube(t) * (u - knot) / (u - t) + cube(u) * (t - knot) / (u - t)
                columns.append(bend / (u - self.knots[0]) ** 2)
        return np.stack(columns, axis=1)

    @classmethod
    def for_rows(cls, z: Vector, weight: Vector, n_rare: float) -> Spline:
        """The knots of Harrell (2015): quantiles of the log-odds, five of them where the rarer class has 100 rows."""
        quantiles: list[float] = []
        if n_rare >= 100.0:
            quantiles = [0.05, 0.275, 0.5, 0.725, 0.95]
        elif n_rare >= 50.0:
            quantiles = [0.05, 0.35, 0.65, 0.95]
        elif n_rare >= 20.0:
            quantiles = [0.1, 0.5, 0.9]
        order = np.argsort(z, kind="stable")
        knots = np.unique(z[order][places_of_shares(np.cumsum(weight[order]), np.array(quantiles))])
        nearest = 1e-3 * float(np.ptp(z))  # knots closer than this, as of tied rows, bend where nothing can be seen
        is_apart = np.diff(knots, prepend=-np.inf) > nearest
        return cls(knots[is_apart])


class _CurveFit(NamedTuple):
    """A fitted curve: its spline, the coefficients and, for their error, the inverse of the Hessian."""

    spline: Spline
    fit: LogisticFit

    @classmethod
    def of(cls, rows: Predictions) -> _CurveFit | None:
        """The curve of some rows; None where no curve exists."""
        outcomes = Outcomes.of(rows)
        if not 0.0 < outcomes.rate < 1.0:
            return None
        z = log_odds_of(outcomes.p)
        n_rare = _n_rows(rows) * min(outcomes.rate, 1.0 - outcomes.rate)
        spline = Spline.for_rows(z, outcomes.weight, n_rare)
        while True:
            design = spline.design(z)
            if np.ptp(z) < 1e-9:  # all probabilities are one: the curve is the rate
                design = design[:, :1]
            fit = fit_logistic(design, outcomes.ones, outcomes.weight)
            if fit is not None or len(spline.knots) <= 2:
                break
            spline = Spline(spline.knots[[0, *range(2, len(spline.knots))]])
        return None if fit is None else cls(spline, fit)

    def design(self, p: Vector) -> Matrix:
        """The columns of probabilities."""
        return self.spline.design(log_odds_of(p))[:, : len(self.fit.coefficients)]

    def at(self, p: Vector) -> Vector:
        """The curve, c(p)."""
        return sigmoid(self.design(p) @ self.fit.coefficients)


@dataclass(frozen=True, eq=False)
class FlexibleCurve:
    """How often class 1 occurs at a probability, by a spline of its log-odds; the band has its level at each point.

    >>> curve = flexible_curve([0] * 3 + [1] + [0] + [1] * 3, [0.1] * 4 + [0.9] * 4)
    >>> float(curve.probability[0]), float(curve.rate[0].round(3)), bool(curve.low[0] < 0.1 < curve.high[0])
    (0.1, 0.25, True)
    """

    probability: Vector
    rate: Vector
    low: Vector
    high: Vector
    level: float


def flexible_curve(
    y_true: Any,
    probabilities: Any = None,
    *,
    level: float = 0.95,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
    clusters: Any = None,
) -> FlexibleCurve:
    """The flexible calibration curve of two classes: logistic regression on a restricted cubic spline of log-odds.

    It has five knots where the rarer class has 100 rows, four from 50 rows on, three from 20 on, and is Cox's line
    below. The band rests on rows, or `clusters` of them, whether or not the spline is the truth.

    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(5000)
    >>> curve = flexible_curve(rng.random(5000) < p**2, p)
    >>> bool(abs(np.interp(0.5, curve.probability, curve.rate) - 0.25) < 0.03)
    True
    """
    function = "flexible_curve"
    check_level(level, function)
    rows = read_two_classes(
        y_true, probabilities, sample_weight, ignore_index, function, clusters=clusters, class_names=classes
    )
    check_clusters(rows.clusters, function)
    curve = curve_of_rows(rows, level)
    if curve is None:
        raise DataError("probabilities", function, expected=_CURVE_EXISTS, got="others")
    return curve


def curve_of_rows(rows: Predictions, level: float) -> FlexibleCurve | None:
    """The curve of checked rows; None where no curve exists."""
    curve = _CurveFit.of(rows)
    if curve is None:
        return None
    p, happened = rows.event_of_column(1)
    design = curve.design(p)
    residual = happened - sigmoid(design @ curve.fit.coefficients)
    influence = (design @ curve.fit.inverse_hessian).T * residual
    of_units = influences_of_units(influence, rows.weight, rows.clusters)
    # Points at ranks show where rows are; some at even distances fill the gaps between these.
    ranks = np.quantile(p, np.linspace(0.0, 1.0, 65))
    points = np.unique(np.concatenate([ranks, np.linspace(p.min(), p.max(), 33)]))
    at_points = curve.design(points)
    eta = at_points @ curve.fit.coefficients
    by_influences = np.square(at_points @ of_units).sum(axis=1)
    # As for the coefficients, influences say too little with few events.
    of_regression = (at_points @ curve.fit.inverse_hessian * at_points).sum(axis=1) / _n_rows(rows)
    error = np.sqrt(np.maximum(by_influences, of_regression))
    margin = critical_value(level, number_of(rows.clusters, rows.weight)) * error
    return FlexibleCurve(points, sigmoid(eta), sigmoid(eta - margin), sigmoid(eta + margin), level)


def _distances(rows: Predictions) -> Vector:
    """The distance |p - c(p)| of each row; NaN where no curve exists."""
    p, _ = rows.event_of_column(1)
    curve = _CurveFit.of(rows)
    return np.full(len(p), math.nan) if curve is None else np.abs(p - curve.at(p))


def _mean_distance(rows: Predictions) -> float:
    return float(np.average(_distances(rows), weights=rows.weight))


def _largest_distance(rows: Predictions) -> float:
    return float(_distances(rows)[rows.weights > 0.0].max())


def _curve_model(norm: Callable[[Vector, Vector], Any], rows: Predictions) -> ErrorModel | None:
    """A norm of the distances from the curve as a function of the gaps g of cells, p - g being their rates.

    With the design X of the cells at their mean probability p and their shares s, the curve of the mean of the
    replicates has the log-odds η and the rates c. A step of Newton's method from there moves the log-odds of each
    replicate to η + X (Xᵀ s c (1 - c) X)⁻¹ Xᵀ s (p - g - c).
    """
    n_cells = 200  # of nearly equal probabilities
    curve = _CurveFit.of(rows)
    if curve is None:
        return None
    if rows.clusters is not None:
        # What a cluster has in common does not show in a cell of one row, whose gap is its own.
        n_cells = min(n_cells, max(len(rows.labels) // 10, 1))
    cells = bins_of(rows, n_bins=n_cells)
    p = np.clip(cells.p, 0.0, 1.0)
    design = curve.design(p)
    fitted_rates = curve.at(p)
    identity = np.zeros(design.shape[1])
    identity[1:2] = 1.0  # the coefficient of the log-odds, where all probabilities are not one

    def statistic(gap: Vector) -> Any:
        rates = p - gap
        centre = rates if rates.ndim == 1 else rates.mean(axis=0)
        is_near_fit = np.abs(centre - fitted_rates) @ cells.share < np.abs(centre - p) @ cells.share
        start = curve.fit.coefficients if is_near_fit else identity
        log_odds = design @ _curve_through(design, cells.share, centre, start)
        curve_rates = sigmoid(log_odds)
        variance = curve_rates * (1.0 - curve_rates)
        if rows.clusters is not None:
            # The noise of clusters is that of the rows as they are, also where a model has rates next to 0 or 1.
            variance = np.maximum(variance, fitted_rates * (1.0 - fitted_rates))
        step = (rates - curve_rates) @ _to_coefficients(design, cells.share, variance).T
        return norm(np.abs(p - sigmoid(log_odds + step @ design.T)), cells.share)

    def true_error(gap: Vector) -> Any:
        return norm(np.abs(gap), cells.share)

    return ErrorModel(cells, statistic, true_error=true_error, error_scale=true_error, seen=p - fitted_rates)


def _curve_through(design: Matrix, share: Vector, rates: Vector, start: Vector) -> Vector:
    """The coefficients (k,) of the curve of some rates, by Newton's method."""
    most_steps = 8
    longest_step = 4.0  # in log-odds: Newton's method may leave for good where rates are 0 or 1
    tolerance = 1e-3  # in log-odds: the step of each replicate takes care of the rest
    coefficients = start
    for _ in range(most_steps):
        mean = sigmoid(design @ coefficients)
        step = _to_coefficients(design, share, mean * (1.0 - mean)) @ (rates - mean)
        length = float(np.abs(design @ step).max())
        if length < tolerance:
            break
        coefficients = coefficients + step * min(1.0, longest_step / length)
    return coefficients


def _to_coefficients(design: Matrix, share: Vector, variance: Vector) -> Matrix:
    """(Xᵀ s v X)⁻¹ Xᵀ s, (k, cells): from residuals to a step of Newton's method."""
    smallest_variance = 1e-9
    ridge = 1e-12  # of the mean curvature, where columns are nearly the same in all cells
    hessian = (design.T * (share * np.maximum(variance, smallest_variance))) @ design
    hessian += ridge * np.trace(hessian) * np.eye(len(hessian))
    return np.linalg.solve(hessian, design.T * share)


def _weighted_mean(distances: Vector, share: Vector) -> Any:
    return distances @ share


def _largest(distances: Vector, share: Vector) -> Any:
    return distances.max(axis=-1)


METRICS = (
    Metric(
        "ici",
        integrated_calibration_index,
        "ICI",
        error_model=partial(_curve_model, _weighted_mean),
        of_rows=_mean_distance,
        **OF_CONFIDENCE,
        **SHOWN,
    ),
    Metric(
        "e_max",
        largest_calibration_error,
        "E-max",
        error_model=partial(_curve_model, _largest),
        of_rows=_largest_distance,
        two_classes=True,
        shown="value",
        **OF_CONFIDENCE,
    ),
)
