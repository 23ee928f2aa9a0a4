"""Selective prediction: the errors that remain where the most confident rows are predicted and others left out.

Let c be the confidence of a row and e = 1 if its top class is wrong; from the confidence t on the coverage is
B(t) = P(c ≥ t), the risk A(t)/B(t) with A(t) = P(e, c ≥ t), and the generalised risk A(t). With the confidence t of a
row drawn at random

    AURC     E[A(t) / B(t)]                     the area under the risk over the coverage (Geifman & El-Yaniv 2017)
    E-AURC   AURC - (r + (1 - r) log(1 - r))    less that of the best order, for an error rate r (Geifman et al. 2019)
    AUGRC    E[A(t)], ties by half              the mean rate of errors that are not left out (Traub et al. 2024)

`refocal.decide.automation_curve` has the whole curve, with costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from refocal._arrays import Indices, Vector
from refocal._validation import check_number
from refocal.metrics.histogram import ScoreCells
from refocal.metrics.influence import critical_value, variance_of_mean
from refocal.metrics.inputs import check_clusters, check_level, read_probabilities
from refocal.metrics.intervals import Interval, interval_of_share, number_of, positive_ends, share_ends, wilson
from refocal.metrics.record import BlockSums, Metric, StreamedMetric
from refocal.metrics.two_classes import integral_of_share, summary_of, sums_above
from refocal.rows import Predictions
from refocal.rows.labels import IgnoreIndex

ROUNDING = 1e-12
"""By how much sums of weights may be off when coverages and risks are compared with those that were asked for."""

__all__ = ["SelectiveRisk", "augrc", "aurc", "coverage_at_risk", "e_aurc", "risk_at_coverage"]


def aurc(
    y_true: Any,
    probabilities: Any = None,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """AURC: the error rate of the most confident rows, averaged over how many of them are predicted.

    >>> p = [[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.1, 0.2, 0.7], [0.6, 0.2, 0.2]]
    >>> aurc([0, 1, 2, 1], p)  # 0, 0, 0 and 1/4
    0.0625
    """
    return _aurc(
        read_probabilities(y_true, probabilities, sample_weight, "aurc", ignore_index, class_names=classes)
    ).value


def e_aurc(
    y_true: Any,
    probabilities: Any = None,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """E-AURC: by how much AURC exceeds that of the best order of the rows, with as many errors.

    >>> p = [[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.1, 0.2, 0.7], [0.6, 0.2, 0.2]]
    >>> round(e_aurc([0, 1, 2, 1], p), 4)  # of few rows the area of the best order is not that of a curve
    0.0283
    """
    return _e_aurc(
        read_probabilities(y_true, probabilities, sample_weight, "e_aurc", ignore_index, class_names=classes)
    ).value


def augrc(
    y_true: Any,
    probabilities: Any = None,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """AUGRC: the share of all rows that are predicted and wrong, averaged over how many are predicted.

    >>> p = [[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.1, 0.2, 0.7], [0.6, 0.2, 0.2]]
    >>> augrc([0, 1, 2, 1], p)  # half of the last row of four is below its own confidence
    0.03125
    """
    return _augrc(
        read_probabilities(y_true, probabilities, sample_weight, "augrc", ignore_index, class_names=classes)
    ).value


def _cells(source: Predictions | BlockSums) -> ScoreCells:
    """The weights of right and wrong rows by rising confidence of the top class."""
    if isinstance(source, BlockSums):
        return source.histogram.scores()
    _, right, _ = source.top
    values = np.unique(source.ranking)
    place_of_row = np.searchsorted(values, source.ranking)
    of_right = np.bincount(place_of_row, source.weights * right, len(values)).astype(np.float64)
    of_wrong = np.bincount(place_of_row, source.weights * ~right, len(values)).astype(np.float64)
    place: Callable[[Vector], Indices] = partial(np.searchsorted, values)  # type: ignore[assignment]
    return ScoreCells(of_right, of_wrong, np.zeros(len(values), dtype=np.bool_), place)


def _aurc(source: Predictions | BlockSums) -> StreamedMetric:
    """AURC; a row of confidence s moves it by R(s) - AURC + E[1[t ≤ s] (e - R(t)) / B(t)], R being the risk."""
    cells = _cells(source)
    total = float(cells.right.sum() + cells.wrong.sum())
    share = (cells.right + cells.wrong) / total
    coverage = np.cumsum(share[::-1])[::-1]
    errors = np.cumsum(cells.wrong[::-1])[::-1] / total
    risk = _ratio(errors, coverage)
    value = float(share @ risk)
    per_coverage = _ratio(share, coverage)
    sum_per_coverage = np.cumsum(per_coverage)
    sum_of_risk = np.cumsum(per_coverage * risk)
    of_right = risk - value - sum_of_risk
    of_wrong = of_right + sum_per_coverage
    form = partial(_risk_ends, _n_rows(source))
    influence = partial(_influence, of_right, of_wrong, cells.place)
    return StreamedMetric(value, _bound_of_aurc(cells, total), influence=influence, form=form)


def _e_aurc(source: Predictions | BlockSums) -> StreamedMetric:
    """E-AURC; a row also moves the area of the best order, by log(1 - r) (r - e)."""
    area = _aurc(source)
    cells = _cells(source)
    rate = float(cells.wrong.sum() / (cells.right.sum() + cells.wrong.sum()))
    log_accuracy = math.log1p(-min(rate, 1.0 - 1e-12))
    best = rate + (1.0 - rate) * log_accuracy

    def influence(rows: Predictions) -> Vector:
        _, right, _ = rows.top
        of_area = np.zeros(len(right)) if area.influence is None else area.influence(rows)
        return np.asarray(of_area + log_accuracy * (~right - rate))

    return StreamedMetric(
        max(area.value - best, 0.0), area.bound, influence=influence, form=partial(_excess_ends, _n_rows(source))
    )


def _augrc(source: Predictions | BlockSums) -> StreamedMetric:
    """AUGRC; a row of confidence s moves it by A(s) + e P(t < s) - 2 AUGRC, with ties by half."""
    cells = _cells(source)
    total = float(cells.right.sum() + cells.wrong.sum())
    share = (cells.right + cells.wrong) / total
    share_wrong = cells.wrong / total
    errors = np.cumsum(share_wrong[::-1])[::-1] - 0.5 * share_wrong
    below = np.cumsum(share) - 0.5 * share
    value = float(share @ errors)
    of_right = errors - 2.0 * value
    of_wrong = of_right + below
    # Pairs within a cell count by half; each may count as none or as one.
    bound = 0.5 * float((share * share_wrong)[cells.several].sum())
    influence = partial(_influence, of_right, of_wrong, cells.place)
    return StreamedMetric(value, bound, influence=influence, form=partial(_risk_ends, _n_rows(source)))


def _influence(of_right: Vector, of_wrong: Vector, place: Callable[[Vector], Indices], rows: Predictions) -> Vector:
    """The influence of each row, by its place and by whether it is right or wrong."""
    _, right, _ = rows.top
    place_of_row = place(rows.ranking)
    return np.where(right, of_right[place_of_row], of_wrong[place_of_row])


def _ratio(first: Vector, second: Vector) -> Vector:
    return np.divide(first, second, out=np.zeros_like(first), where=second > 0.0)


def _bound_of_aurc(cells: ScoreCells, total: float) -> float:
    """How far the AURC of the cells, each of which counts as rows of one confidence, can be off.

    Let A be the weight of wrong rows and B that of all rows above a cell, e that of wrong and r that of right rows in
    it. A row of the cell has the risk (A + x) / (B + x + y), x ≤ e being the weight of wrong and y ≤ r that of right
    rows in the cell from its confidence on. It rises with x, as A ≤ B, and falls with y. By falling confidence, the x
    of a wrong row is no less than the sum of the weights of wrong rows up to and including its own, and the y of a
    right row likewise. Weighted sums of such terms are upper sums of a rising function, lower sums of a falling one.

    At most, wrong rows have the risk (A + e) / (B + e), and right rows together ∫ (A + e) / (B + e + t) dt from 0 to r.
    At least, right rows have A / (B + r), and wrong rows together ∫ (A + t) / (B + r + t) dt from 0 to e. Right rows
    alone have different risks too, where an error is above them.
    """
    e = cells.wrong[cells.several]
    r = cells.right[cells.several]
    A = sums_above(cells.wrong)[cells.several]  # noqa: N806
    B = sums_above(cells.wrong + cells.right)[cells.several]  # noqa: N806
    counted = (e + r) * _ratio(A + e, B + e + r)
    most = e * _ratio(A + e, B + e) + (A + e) * np.log1p(_ratio(r, B + e))
    least = r * _ratio(A, B + r) + integral_of_share(e, A, B + r)
    return float(max((most - counted).sum(), (counted - least).sum()) / total)


def _n_rows(source: Predictions | BlockSums) -> float:
    """The effective number of rows."""
    if isinstance(source, BlockSums):
        bins = source.bins
        return float(bins.weight.sum() ** 2 / bins.squared_weight.sum())
    return float(source.weights.sum() ** 2 / (source.weights @ source.weights))


def _risk_ends(
    n_rows: float, value: float, variance: float, level: float, n_clusters: int | None
) -> tuple[float, float]:
    """The interval on the log scale; where no error was seen, up to the error rate that Wilson's interval allows."""
    if value > 0.0:
        return positive_ends(value, variance, level, n_clusters)
    return 0.0, share_ends(n_rows, 0.0, 0.0, level, n_clusters)[1]


def _excess_ends(
    n_rows: float, value: float, variance: float, level: float, n_clusters: int | None
) -> tuple[float, float]:
    """As `_risk_ends`, where the value is not much smaller than its error, as that of a nearly perfect order may be.

    With r the margin of the normal interval over the value, the upper end is value · e^r up to r = 2, and then goes on
    in proportion to the margin.
    """
    largest_ratio = 2.0
    low, high = _risk_ends(n_rows, value, variance, level, n_clusters)
    margin = critical_value(level, n_clusters) * math.sqrt(variance)
    if margin > largest_ratio * value > 0.0:
        high = value + margin * math.expm1(largest_ratio) / largest_ratio
    return low, high


@dataclass(frozen=True)
class SelectiveRisk:
    """The error rate among the rows from a confidence on, and the share of rows that these are.

    >>> found = risk_at_coverage([0, 1, 1, 0], [0.1, 0.8, 0.4, 0.3], coverage=0.5)
    >>> found.coverage, found.threshold, found.risk.value
    (0.5, 0.8, 0.0)
    """

    coverage: float
    threshold: float
    """The lowest confidence that is predicted."""
    risk: Interval


def risk_at_coverage(
    y_true: Any,
    probabilities: Any = None,
    *,
    coverage: float,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
    level: float = 0.95,
    clusters: Any = None,
) -> SelectiveRisk:
    """The error rate if the most confident share of the rows is predicted, with Wilson's interval.

    The interval is for the confidence from which that share of *these* rows lies, as of a threshold that is used from
    now on. Rows of one confidence are predicted together, so that the coverage may be larger than asked for.

    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(2000)
    >>> found = risk_at_coverage((rng.random(2000) < p).astype(int), p, coverage=0.5)
    >>> found.risk.low < 0.125 < found.risk.high  # rows beyond 1/4 and 3/4
    True
    """
    function = "risk_at_coverage"
    check_level(level, function)
    check_number(coverage, "coverage", function, above=0.0, most=1.0)
    rows = read_probabilities(
        y_true, probabilities, sample_weight, function, ignore_index, clusters=clusters, class_names=classes
    )
    check_clusters(rows.clusters, function)
    rows = _with_weight(rows)
    curve = _RiskCurve.of(rows)
    place = int(np.searchsorted(curve.coverage, coverage - ROUNDING))
    among = curve.order[: curve.last[place] + 1]
    of_weight = None if rows.weight is None else rows.weight[among]
    of_clusters = None if rows.clusters is None else rows.clusters[among]
    _, right, _ = rows.top
    risk = interval_of_share(~right[among], of_weight, level, of_clusters)
    return SelectiveRisk(float(curve.coverage[place]), float(curve.threshold[place]), risk)


def coverage_at_risk(
    y_true: Any,
    probabilities: Any = None,
    *,
    risk: float,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
    level: float = 0.95,
    clusters: Any = None,
) -> Interval:
    """The largest share of rows, the most confident first, whose error rate is at most `risk`; 0 if there is none.

    The ends of the interval are the largest shares at which the upper and the lower end of the error rate's interval
    reach `risk`: at the lower end, the error rate is at most `risk` in all but (1 - level) / 2 of samples. The share is
    that of the population: the interval allows for its lying at another confidence in each sample.

    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(5000)
    >>> found = coverage_at_risk((rng.random(5000) < p).astype(int), p, risk=0.125)
    >>> found.low < 0.5 < found.high
    True
    """
    function = "coverage_at_risk"
    check_level(level, function)
    check_number(risk, "risk", function, least=0.0, most=1.0)
    rows = read_probabilities(
        y_true, probabilities, sample_weight, function, ignore_index, clusters=clusters, class_names=classes
    )
    check_clusters(rows.clusters, function)
    rows = _with_weight(rows)
    curve = _RiskCurve.of(rows)

    def last_reached(risk_at: Callable[[Indices], Vector]) -> float:
        """The coverage of the last point whose risk is at most the one asked for, among some points, then between."""
        most_points = len(curve.coverage) if rows.clusters is None else 200  # each is a pass over rows with clusters
        first = 0
        last = len(curve.coverage) - 1
        reached = -1
        while True:
            places = np.unique(np.linspace(first, last, most_points).round().astype(np.int64))
            is_reached = risk_at(places) <= risk + ROUNDING
            if not is_reached.any():
                break
            i = int(np.flatnonzero(is_reached)[-1])
            reached = int(places[i])
            if i + 1 == len(places) or places[i + 1] == reached + 1:
                break
            first = reached
            last = int(places[i + 1])
        return float(curve.coverage[reached]) if reached >= 0 else 0.0

    is_kept = np.flatnonzero(curve.risk <= risk + ROUNDING)
    value = float(curve.coverage[is_kept[-1]]) if len(is_kept) else 0.0
    low = min(last_reached(lambda places: curve.ends_at_coverage(rows, places, level)[1]), value)
    high = max(last_reached(lambda places: curve.ends_at_coverage(rows, places, level)[0]), value)
    error = (high - low) / (2.0 * critical_value(level))
    return Interval(value, low, high, level, error, 0.0, 0)


def _with_weight(rows: Predictions) -> Predictions:
    """The rows that have a say: Predictions that were not read from arrays may have others."""
    if rows.weight is None or (rows.weight > 0.0).all():
        return rows
    return rows.take(rows.weight > 0.0)


@dataclass(frozen=True, eq=False)
class _RiskCurve:
    """The error rate over the coverage, (points,) each, at every distinct confidence, the highest first."""

    order: Indices
    """The rows by falling confidence."""
    last: Indices
    """The place of the last row of each point in that order."""
    coverage: Vector
    threshold: Vector
    risk: Vector

    @classmethod
    def of(cls, rows: Predictions) -> _RiskCurve:
        """The curve of checked rows with weights above 0."""
        confidence, right, _ = rows.top
        order = np.argsort(-rows.ranking, kind="stable")
        weight = rows.weights[order]
        last = np.flatnonzero(np.append(np.diff(rows.ranking[order]) < 0.0, True))
        predicted = np.cumsum(weight)[last]
        first = np.append(0, last[:-1] + 1)
        return cls(
            order=order,
            last=last,
            coverage=predicted / predicted[-1],
            # Of confidences that are equal but for rounding the lowest, so that all of them reach it.
            threshold=np.minimum.reduceat(confidence[order], first),
            risk=np.cumsum(weight * ~right[order])[last] / predicted,
        )

    def ends_at_coverage(self, rows: Predictions, places: Indices, level: float) -> tuple[Vector, Vector]:
        """The ends of Wilson's intervals of the risk at the coverages of some points."""
        weight = rows.weights[self.order]
        last = self.last[places]
        risk = self.risk[places]
        size = np.square(np.cumsum(weight)[last]) / np.cumsum(np.square(weight))[last]
        variance = self.variance_at_coverage(rows, places)
        own = risk * (1.0 - risk)
        by_units = np.divide(own, variance, out=size.copy(), where=(own > 0.0) & (variance > 0.0))
        size = np.maximum(np.minimum(size, by_units), 1e-9)
        return wilson(risk, size, level, number_of(rows.clusters, rows.weight))

    def variance_at_coverage(self, rows: Predictions, places: Indices) -> Vector:
        """The variance of the risk at the coverages of some points, (points,).

        Another sample has a coverage b from another confidence on. With η the error rate of the rows at the confidence
        t of a point, a row moves the risk at that coverage by ψ / b, ψ = 1[c ≥ t] (e - η) less its mean b (r - η). Of
        plain rows

            Var = (r (1 - r) + (1 - b) (r - η)²) / (b N),

        where the second term is due to the coverage at t, which varies much where clusters share their confidence.
        """
        _, right, _ = rows.top
        weight = rows.weights[self.order]
        wrong = ~right[self.order]
        last = self.last[places]
        coverage = self.coverage[places]
        rate = self._rate_at(coverage)
        if rows.clusters is None:
            mean = coverage * (self.risk[places] - rate)
            squares = np.square(weight)
            of_covered = np.cumsum(squares)[last]
            of_wrong = np.cumsum(squares * wrong)[last]
            variance = (
                of_wrong * np.square(1.0 - rate - mean)
                + (of_covered - of_wrong) * np.square(rate + mean)
                + (squares.sum() - of_covered) * np.square(mean)
            ) / weight.sum() ** 2
        else:
            variance = np.empty(len(places))
            influence = np.zeros(len(weight))
            for point, end in enumerate(last):
                influence[self.order[: end + 1]] = wrong[: end + 1] - rate[point]
                influence[self.order[end + 1 :]] = 0.0
                variance[point] = variance_of_mean(influence, rows.weight, rows.clusters)
        return np.asarray(variance / np.square(coverage))

    def _rate_at(self, coverage: Vector) -> Vector:
        """The error rate of the rows about some coverages, a tenth of all rows each."""
        half_width = 0.05
        below = np.maximum(coverage - half_width, 0.0)
        above = np.minimum(coverage + half_width, 1.0)
        coverages = np.append(0.0, self.coverage)
        errors = np.append(0.0, self.coverage * self.risk)
        rate = (np.interp(above, coverages, errors) - np.interp(below, coverages, errors)) / (above - below)
        return np.asarray(np.clip(rate, 0.0, 1.0))


def _fields(streamed: Callable[[Any], StreamedMetric]) -> dict[str, Any]:
    """The fields of the areas."""
    limits = (0.0, 1.0)
    return {
        "streamed": streamed,
        "summary": partial(summary_of, streamed, limits),
        "of_rows": lambda rows: streamed(rows).value,
        "range": limits,
        "unit": "%",
        "many_classes": True,
    }


METRICS = (
    Metric("aurc", aurc, "AURC", shown="with interval", **_fields(_aurc)),
    Metric("e_aurc", e_aurc, "E-AURC", shown="with interval", **_fields(_e_aurc)),
    Metric("augrc", augrc, "AUGRC", shown="with interval", **_fields(_augrc)),
)
