"""What clinicians and credit modellers report of two classes: O/E, calibration intercept and slope.

With the log-odds z = logit p of class 1 and the outcome y, after Cox (1958) and Van Calster et al. (2016, 2019):

    O/E           Σ w y / Σ w p
    intercept     the a of y ~ sigmoid(a + z): calibration in the large
    slope         the b of y ~ sigmoid(a + b z): below 1 the probabilities are too extreme

Log-odds are bounded to those of 2⁻⁵², ± 36: a probability of 0 that came true counts as a mistake of that size.
`calibration_curve` has the flexible curve, ICI and E-max.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from refocal._arrays import Vector
from refocal.metrics.influence import critical_value
from refocal.metrics.intervals import effective_rows
from refocal.metrics.logistic_regression import Outcomes, check_exists, fit_logistic, log_odds_of, sigmoid
from refocal.metrics.record import BlockSums, Metric, StreamedMetric
from refocal.metrics.two_classes import by_influence, read_two_classes
from refocal.rows import Predictions
from refocal.rows.labels import IgnoreIndex

__all__ = ["calibration_intercept", "calibration_slope", "observed_expected"]


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
    return check_exists(_ratio(rows).value, "observed_expected", "above 0 in some row")


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
    return check_exists(_intercept(rows).value, "calibration_intercept", "such that the intercept is finite")


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
    return check_exists(_slope(rows).value, "calibration_slope", expected)


def _ratio(source: Predictions | BlockSums) -> StreamedMetric:
    """O/E; a row moves it by (y - p O/E) / E."""
    outcomes = Outcomes.of(source)
    total = float(outcomes.weight.sum())
    expected = float(outcomes.weight @ outcomes.p) / total
    if expected <= 0.0:
        return StreamedMetric(math.nan)
    value = outcomes.rate / expected

    def influence(rows: Predictions) -> Vector:
        p, happened = rows.event_of_column(1)
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
    if value > 0.0 and not math.isfinite(variance):  # of a single row
        return 0.0, math.inf
    t = critical_value(level, n_clusters)
    unit = variance / value if value > 0.0 and variance > 0.0 else 1.0 / n_expected
    centre = value + t**2 * unit / 2.0
    margin = t * math.sqrt(unit * value + t**2 * unit**2 / 4.0)
    return max(centre - margin, 0.0), centre + margin


def _intercept(source: Predictions | BlockSums) -> StreamedMetric:
    """The shift a of all log-odds; a row moves it by (y - m) / mean of m (1 - m), with m = sigmoid(a + z)."""
    outcomes = Outcomes.of(source)
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
        p, happened = rows.event_of_column(1)
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
    outcomes = Outcomes.of(source)
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
        p, happened = rows.event_of_column(1)
        design = np.stack([np.ones_like(p), log_odds_of(p) - centre], axis=1)
        residual = happened - sigmoid(design @ fit.coefficients)
        return np.asarray(residual * (design @ of_slope))

    least_variance = float(fit.inverse_hessian[1, 1]) / _n_rows(source)
    return StreamedMetric(
        float(fit.coefficients[1]), influence=influence, form=partial(coefficient_ends, least_variance)
    )


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
)
