"""What clinicians and credit modellers report of two classes: O/E, calibration intercept and slope, ICI, the curve.

With the log-odds z = logit p of class 1 and the outcome y, after Cox (1958) and Van Calster et al. (2016, 2019):

    O/E           Σ w y / Σ w p
    intercept     the a of y ~ sigmoid(a + z): calibration in the large
    slope         the b of y ~ sigmoid(a + b z): below 1 the probabilities are too extreme
    curve         c(p) = sigmoid(s(z)), s being a restricted cubic spline (Harrell 2015)
    ICI           Σ w |p - c(p)| / Σ w (Austin & Steyerberg 2019); E-max is the largest |p - c(p)|

Log-odds are bounded to those of 2⁻⁵², ± 36: a probability of 0 that came true counts as a mistake of that size.
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
from refocal.metrics.bins import bins_of
from refocal.metrics.influence import critical_value, influences_of_units
from refocal.metrics.inputs import check_level
from refocal.metrics.intervals import effective_rows, number_of
from refocal.metrics.inverted_error import ErrorModel
from refocal.metrics.record import OF_CONFIDENCE, BlockSums, Metric, StreamedMetric
from refocal.metrics.two_classes import SHOWN, by_influence, read_two_classes
from refocal.rows import Predictions
from refocal.rows.labels import IgnoreIndex

__all__ = [
    "FlexibleCurve",
    "calibration_intercept",
    "calibration_slope",
    "flexible_curve",
    "integrated_calibration_index",
    "largest_calibration_error",
    "observed_expected",
]


def observed_expected(
    y_true: Any,
    probabilities: Any = None,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """O/E of two classes, Σ w y / Σ w p: above 1 more rows are of class 1 than the probabilities say.

    >>> observed_expected([0, 0, 0, 1], [0.5, 0.25, 0.5, 0.75])
    0.5
    """
    rows = read_two_classes(
        y_true, probabilities, sample_weight, ignore_index, "observed_expected", both=False, class_names=classes
    )
    return _checked(_ratio(rows).value, "observed_expected", "above 0 in some row")


def calibration_intercept(
    y_true: Any,
    probabilities: Any = None,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """Calibration in the large: by how much all log-odds would have to rise for the mean to be the rate; best is 0.

    >>> round(calibration_intercept([0, 0, 0, 1], [0.5, 0.5, 0.5, 0.5]), 4)  # logit of 1/4
    -1.0986
    """
    rows = read_two_classes(
        y_true, probabilities, sample_weight, ignore_index, "calibration_intercept", class_names=classes
    )
    return _checked(_intercept(rows).value, "calibration_intercept", "such that the intercept is finite")


def calibration_slope(
    y_true: Any,
    probabilities: Any = None,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """Cox's slope of the outcome on the log-odds: below 1 probabilities are too extreme, above 1 too moderate.

    >>> y, p = [0] * 3 + [1] + [0] + [1] * 3, [0.1] * 4 + [0.9] * 4
    >>> round(calibration_slope(y, p), 4)  # log(3) / log(9)
    0.5
    """
    rows = read_two_classes(
        y_true, probabilities, sample_weight, ignore_index, "calibration_slope", class_names=classes
    )
    expected = "of several values that do not separate the classes, so that a slope exists"
    return _checked(_slope(rows).value, "calibration_slope", expected)


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
    return _checked(_mean_distance(rows), "integrated_calibration_index", _CURVE_EXISTS)


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
    return _checked(_largest_distance(rows), "largest_calibration_error", _CURVE_EXISTS)


_CURVE_EXISTS = "such that a curve of their outcomes exists: they must not separate the classes"


def _checked(value: float, function: str, expected: str) -> float:
    """A value that exists, or an error about the probabilities that have none."""
    if math.isnan(value):
        raise DataError("probabilities", function, expected=expected, got="others")
    return value


# Logistic regression, by Newton's method.


class LogisticFit(NamedTuple):
    """The coefficients (k,) of least log-loss, and the inverse of its Hessian (k, k), of rows of total weight 1."""

    coefficients: Vector
    inverse_hessian: Matrix


def fit_logistic(design: Matrix, ones: Vector, weight: Vector, offset: Vector | float = 0.0) -> LogisticFit | None:
    """Minimise Σ w log(1 + e^η) - Σ k η over η = offset + X β, (rows, k), k being the weight of class 1 in each row.

    None where no minimum exists, as where a column separates the classes or is a sum of others.
    """
    most_steps = 60
    tolerance = 1e-20  # of the squared Newton decrement, twice what the log-loss is above its minimum
    flattest = 1e-9  # a Hessian that is this much flatter than at the start has no minimum in that direction
    total = float(weight.sum())
    share = weight / total
    share_of_ones = ones / total

    def loss_at(coefficients: Vector) -> float:
        eta = offset + design @ coefficients
        return float(share @ np.logaddexp(0.0, eta) - share_of_ones @ eta)

    def derivatives_at(coefficients: Vector) -> tuple[Vector, Matrix]:
        mean = sigmoid(offset + design @ coefficients)
        gradient = design.T @ (share * mean - share_of_ones)
        hessian = (design.T * (share * mean * (1.0 - mean))) @ design
        return gradient, hessian

    coefficients = np.zeros(design.shape[1])
    gradient, hessian = derivatives_at(coefficients)
    scale = np.sqrt(np.diag(hessian))
    if not (scale > 0.0).all():
        return None
    loss = loss_at(coefficients)
    for _ in range(most_steps):
        if np.linalg.eigvalsh(hessian / np.outer(scale, scale))[0] < flattest:
            return None
        step = np.linalg.solve(hessian, gradient)
        if gradient @ step < tolerance:
            return LogisticFit(coefficients, np.linalg.inv(hessian))
        length = 1.0
        while loss_at(coefficients - length * step) > loss + 1e-15 and length > 1e-6:
            length /= 2.0
        coefficients = coefficients - length * step
        loss = loss_at(coefficients)
        gradient, hessian = derivatives_at(coefficients)
    # Rounding of the sums may be all that keeps the decrement from the tolerance.
    is_minimum = float(gradient @ np.linalg.solve(hessian, gradient)) < 1e-12
    return LogisticFit(coefficients, np.linalg.inv(hessian)) if is_minimum else None


def sigmoid(eta: Vector) -> Vector:
    """1 / (1 + e^-η), without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * eta)))


def log_odds_of(p: Vector) -> Vector:
    """Log-odds, bounded to those of 2⁻⁵² and 1 - 2⁻⁵²."""
    smallest = 2.0**-52
    inside = np.clip(p, smallest, 1.0 - smallest)
    return np.asarray(np.log(inside) - np.log1p(-inside))


class _Outcomes(NamedTuple):
    """Probabilities by rows or cells of rows, with the weight of class 1 and of all in each."""

    p: Vector
    ones: Vector
    weight: Vector

    @classmethod
    def of(cls, source: Predictions | BlockSums) -> _Outcomes:
        """Those of rows, or of the fine cells of a histogram, whose rows count as of their mean."""
        if isinstance(source, BlockSums):
            cells = source.histogram.equal_mass().cells
            return cls(np.clip(cells.p, 0.0, 1.0), cells.correct, cells.weight)
        p, happened = source.event(1)
        return cls(p, source.weights * happened, source.weights)

    @property
    def rate(self) -> float:
        """The share of class 1."""
        return float(self.ones.sum() / self.weight.sum())


# The ratio, the intercept and the slope: values with the influence of each row.


def _ratio(source: Predictions | BlockSums) -> StreamedMetric:
    """O/E; a row moves it by (y - p O/E) / E."""
    outcomes = _Outcomes.of(source)
    total = float(outcomes.weight.sum())
    expected = float(outcomes.weight @ outcomes.p) / total
    if expected <= 0.0:
        return StreamedMetric(math.nan)
    value = outcomes.rate / expected

    def influence(rows: Predictions) -> Vector:
        p, happened = rows.event(1)
        return np.asarray((happened - value * p) / expected)

    return StreamedMetric(value, influence=influence, form=partial(ratio_ends, _n_rows(source) * expected))


def _n_rows(source: Predictions | BlockSums) -> float:
    """The effective number of rows."""
    if isinstance(source, BlockSums):
        bins = source.bins
        return float(bins.weight.sum() ** 2 / bins.squared_weight.sum())
    return float(len(source.labels)) if source.weight is None else effective_rows(source.weight)


def ratio_ends(
    n_expected: float, value: float, variance: float, level: float, n_clusters: int | None
) -> tuple[float, float]:
    """The ratios R with (value - R)² ≤ t² V R / value, the variance V being proportional to the ratio as of counts.

    It is the score interval of a Poisson rate, which holds for a handful of events, and of none: V / value is then
    1 / n, n being the number of events that was expected.
    """
    t = critical_value(level, n_clusters)
    unit = variance / value if value > 0.0 and variance > 0.0 else 1.0 / n_expected
    centre = value + t**2 * unit / 2.0
    margin = t * math.sqrt(unit * value + t**2 * unit**2 / 4.0)
    return max(centre - margin, 0.0), centre + margin


def _intercept(source: Predictions | BlockSums) -> StreamedMetric:
    """The shift a of all log-odds; a row moves it by (y - m) / mean of m (1 - m), with m = sigmoid(a + z)."""
    outcomes = _Outcomes.of(source)
    if not 0.0 < outcomes.rate < 1.0:
        return StreamedMetric(math.nan)
    z = log_odds_of(outcomes.p)
    # A start at which no probability is far from its shifted one, so that Newton's method does not have to look for it.
    start = float(log_odds_of(np.array([outcomes.rate]))[0] - np.average(z, weights=outcomes.weight))
    fit = fit_logistic(np.ones((len(z), 1)), outcomes.ones, outcomes.weight, z + start)
    if fit is None:
        return StreamedMetric(math.nan)
    value = start + float(fit.coefficients[0])

    def influence(rows: Predictions) -> Vector:
        p, happened = rows.event(1)
        residual = happened - sigmoid(log_odds_of(p) + value)
        return np.asarray(residual * fit.inverse_hessian[0, 0])

    least_variance = float(fit.inverse_hessian[0, 0]) / _n_rows(source)
    return StreamedMetric(value, influence=influence, form=partial(coefficient_ends, least_variance))


def coefficient_ends(
    least_variance: float, value: float, variance: float, level: float, n_clusters: int | None
) -> tuple[float, float]:
    """The ends value ± t √max(V, v) of a coefficient of logistic regression.

    V is the variance by influences, which holds for any outcomes but is too small with few events; v is that of
    independent rows whose outcomes follow the regression, H⁻¹ / n.
    """
    margin = critical_value(level, n_clusters) * math.sqrt(max(variance, least_variance))
    return value - margin, value + margin


def _slope(source: Predictions | BlockSums) -> StreamedMetric:
    """Cox's slope b; a row moves (a, b) by H⁻¹ (1, z) (y - m), with m = sigmoid(a + b z)."""
    outcomes = _Outcomes.of(source)
    if not 0.0 < outcomes.rate < 1.0:
        return StreamedMetric(math.nan)
    z = log_odds_of(outcomes.p)
    centre = float(np.average(z, weights=outcomes.weight))
    if np.ptp(z) < 1e-9:
        return StreamedMetric(math.nan)
    fit = fit_logistic(np.stack([np.ones_like(z), z - centre], axis=1), outcomes.ones, outcomes.weight)
    if fit is None:
        return StreamedMetric(math.nan)
    of_slope = fit.inverse_hessian[1]

    def influence(rows: Predictions) -> Vector:
        p, happened = rows.event(1)
        design = np.stack([np.ones_like(p), log_odds_of(p) - centre], axis=1)
        residual = happened - sigmoid(design @ fit.coefficients)
        return np.asarray(residual * (design @ of_slope))

    least_variance = float(fit.inverse_hessian[1, 1]) / _n_rows(source)
    return StreamedMetric(
        float(fit.coefficients[1]), influence=influence, form=partial(coefficient_ends, least_variance)
    )


# The flexible curve.


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
        cumulative = np.cumsum(weight[order])
        place = np.searchsorted(cumulative, np.array(quantiles) * cumulative[-1])
        knots = np.unique(z[order][np.minimum(place, len(z) - 1)])
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
        outcomes = _Outcomes.of(rows)
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
    curve = curve_of_rows(rows, level)
    if curve is None:
        raise DataError("probabilities", function, expected=_CURVE_EXISTS, got="others")
    return curve


def curve_of_rows(rows: Predictions, level: float) -> FlexibleCurve | None:
    """The curve of checked rows; None where no curve exists."""
    curve = _CurveFit.of(rows)
    if curve is None:
        return None
    p, happened = rows.event(1)
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
    p, _ = rows.event(1)
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

    def population(gap: Vector) -> Any:
        return norm(np.abs(gap), cells.share)

    return ErrorModel(cells, statistic, population, seen=p - fitted_rates)


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
        "observed_expected",
        observed_expected,
        "O/E",
        target=1.0,
        **by_influence(_ratio, 0.0, math.inf),
    ),
    Metric(
        "calibration_intercept",
        calibration_intercept,
        "calibration intercept",
        signed=True,
        **by_influence(_intercept, -math.inf, math.inf),
    ),
    Metric(
        "calibration_slope",
        calibration_slope,
        "calibration slope",
        target=1.0,
        **by_influence(_slope, -math.inf, math.inf),
    ),
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
