"""Metrics of two classes: the mean probability against the rate, skill against the rate alone, AUC, average precision.

Their intervals come from influences: how much one row moves the metric (Hampel 1974; for the AUC that is DeLong's).
Those of the AUC and of the average precision also hold for a handful of rows of a class, and where the model makes no
mistake; with fewer than two rows of a class they are the whole range.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from refocal._arrays import Indices, Vector, without_warnings
from refocal.errors import LabelError, ShapeError
from refocal.metrics.bias_interval import exact_interval_of_shift, interval_of_shift
from refocal.metrics.bins import Bins, bins_of
from refocal.metrics.histogram import ScoreCells
from refocal.metrics.influence import critical_value, influences_of_units
from refocal.metrics.inputs import mean, read_log_probabilities, read_probabilities
from refocal.metrics.intervals import InfluenceSummary, Interval, number_of, positive_ends, whole_rows
from refocal.metrics.record import BlockSums, Metric, StreamedMetric
from refocal.metrics.scores import brier_terms, log_loss_terms
from refocal.rows import Predictions
from refocal.rows.labels import IgnoreIndex

__all__ = ["average_precision", "brier_skill", "log_loss_skill", "mean_bias", "roc_auc"]

LossOfRows = Callable[[Predictions], Vector]
FEWEST_OF_A_CLASS = 2.0
"""The effective rows of a class from which on the AUC and the average precision have an interval."""
OfRate = Callable[[float], tuple[float, float]]
"""The loss of a rate alone, and its derivative in the rate."""


def mean_bias(
    y_true: Any,
    probabilities: Any = None,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """Mean probability of class 1 less its rate, of two classes: above 0 the model expects too many.

    >>> mean_bias([0, 0, 0, 1], [0.5, 0.25, 0.5, 0.75])
    0.25
    """
    rows = read_two_classes(
        y_true, probabilities, sample_weight, ignore_index, "mean_bias", both=False, class_names=classes
    )
    return mean(bias_terms(rows), rows.weight)


def bias_terms(rows: Predictions) -> Vector:
    """Probability less outcome, row by row."""
    p, happened = rows.event_of_column(1)
    return p - happened


def log_loss_skill(
    y_true: Any,
    log_probabilities: Any = None,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """1 less the log-loss over that of the rate alone: 1 is perfect, 0 no better than always saying the rate.

    >>> p = np.array([0.2, 0.2, 0.8, 0.8])
    >>> round(log_loss_skill([0, 0, 1, 1], np.log(np.stack([1 - p, p], axis=1))), 3)
    0.678
    """
    rows = read_two_classes(
        y_true, log_probabilities, sample_weight, ignore_index, "log_loss_skill", logs=True, class_names=classes
    )
    return _log_skill(rows).value


def brier_skill(
    y_true: Any,
    probabilities: Any = None,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """1 less the Brier score over that of the rate alone: 1 is perfect, 0 no better than always saying the rate.

    >>> brier_skill([0, 0, 1, 1], [0.25, 0.25, 0.75, 0.75])
    0.75
    """
    return _square_skill(
        read_two_classes(y_true, probabilities, sample_weight, ignore_index, "brier_skill", class_names=classes)
    ).value


def roc_auc(
    y_true: Any,
    probabilities: Any = None,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """Area under the ROC curve: how often a row of class 1 has a higher probability than one of class 0, ties by half.

    >>> roc_auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    0.75
    """
    return _auc(
        read_two_classes(y_true, probabilities, sample_weight, ignore_index, "roc_auc", class_names=classes)
    ).value


def average_precision(
    y_true: Any,
    probabilities: Any = None,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """Mean, over the rows of class 1, of the share of class 1 among the rows with at least their probability.

    >>> round(average_precision([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]), 4)
    0.8333
    """
    return _precision(
        read_two_classes(y_true, probabilities, sample_weight, ignore_index, "average_precision", class_names=classes)
    ).value


def read_two_classes(
    y_true: Any,
    values: Any,
    weight: Any,
    ignored: IgnoreIndex,
    function: str,
    *,
    logs: bool = False,
    both: bool = True,
    clusters: Any = None,
    class_names: Any = None,
) -> Predictions:
    """Checked rows of two classes, which both occur where `both` asks for it."""
    read = read_log_probabilities if logs else read_probabilities
    rows = read(y_true, values, weight, function, ignored, clusters=clusters, class_names=class_names)
    if rows.n_classes != 2:
        argument = "log_probabilities" if logs else "probabilities"
        raise ShapeError(argument, function, expected="of two classes", got=f"{rows.n_classes} classes")
    if both and not 0.0 < _rate(rows) < 1.0:
        expected = "of both classes, with weight"
        raise LabelError("y_true", function, expected=expected, got=f"a rate of class 1 of {_rate(rows):g}")
    return rows


def _rate(rows: Predictions) -> float:
    return mean((rows.labels == 1).astype(np.float64), rows.weight)


def _entropy(rate: float) -> tuple[float, float]:
    return -rate * math.log(rate) - (1.0 - rate) * math.log1p(-rate), math.log((1.0 - rate) / rate)


def _variance(rate: float) -> tuple[float, float]:
    return rate * (1.0 - rate), 1.0 - 2.0 * rate


def _skill(name: str, terms: LossOfRows, of_rate: OfRate, source: Predictions | BlockSums) -> StreamedMetric:
    """1 - mean loss / loss of the rate alone; `name` is that of the mean."""
    if isinstance(source, BlockSums):
        average = source.means[name]
        rate = source.calibration.accuracy
    else:
        average = mean(terms(source), source.weight)
        rate = _rate(source)
    if not 0.0 < rate < 1.0:
        return StreamedMetric(math.nan)
    loss, slope = of_rate(rate)
    influence = partial(_influence_on_skill, terms, average, rate, loss, slope)
    return StreamedMetric(1.0 - average / loss, influence=influence, form=partial(skill_ends, sum(_sizes(source))))


def skill_ends(
    n_rows: float, value: float, variance: float, level: float, n_units: int | None = None
) -> tuple[float, float]:
    """The ends of a skill 1 - L / l: those of the ratio of the losses on the scale of its logarithm, `positive_ends`.

    A few confident mistakes make the ratio large, and a skill has no lowest value but a highest one. Student's t is of
    the rows of both classes, effectively, or of clusters.
    """
    if not math.isfinite(variance):  # of one cluster
        return -math.inf, 1.0
    low, high = positive_ends(1.0 - value, variance, level, whole_rows(n_rows) if n_units is None else n_units)
    return 1.0 - high, 1.0 - low


def _influence_on_skill(
    terms: LossOfRows, average: float, rate: float, loss: float, slope: float, rows: Predictions
) -> Vector:
    """The influence of each row on 1 - L / l(r), L being the mean loss and l(r) that of the rate r alone.

    It is L / l² · dl/dr · (y_i - r) - (L_i - L) / l.
    """
    loss_difference = terms(rows) - average
    rate_difference = (rows.labels == 1) - rate
    influence: Vector = average / loss**2 * slope * rate_difference - loss_difference / loss
    return influence


_log_skill = partial(_skill, "log_loss", log_loss_terms, _entropy)
_square_skill = partial(_skill, "brier_score", brier_terms, _variance)


def _influence_on_area(
    of_one: Vector, of_zero: Vector, place: Callable[[Vector], Indices], rows: Predictions
) -> Vector:
    """The influence of rows on an area under a curve; `of_one` and `of_zero` are those of each class by place."""
    p, happened = rows.event_of_column(1)
    place_of_row = place(p)
    return np.where(happened, of_one[place_of_row], of_zero[place_of_row])


def _scores(source: Predictions | BlockSums) -> ScoreCells:
    """The weight of each class at the distinct probabilities, or in cells of them."""
    if isinstance(source, BlockSums):
        return source.histogram.scores()
    p, happened = source.event_of_column(1)
    values = np.unique(p)
    n_values = len(values)
    place: Callable[[Vector], Indices] = partial(np.searchsorted, values)  # type: ignore[assignment]
    place_of_row = place(p)
    ones = np.bincount(place_of_row, source.weights * happened, n_values).astype(np.float64)
    zeros = np.bincount(place_of_row, source.weights * ~happened, n_values).astype(np.float64)
    return ScoreCells(ones, zeros, np.zeros(n_values, dtype=np.bool_), place)


@without_warnings
def _auc(source: Predictions | BlockSums) -> StreamedMetric:
    """The area under the ROC curve; the influence of a row is the share of the other class that it is on the right
    side of, less the area (DeLong et al. 1988).
    """
    scores = _scores(source)
    n_ones = scores.right.sum()
    n_zeros = scores.wrong.sum()
    if n_ones == 0.0 or n_zeros == 0.0:
        return StreamedMetric(math.nan)
    zeros_below = (np.cumsum(scores.wrong) - 0.5 * scores.wrong) / n_zeros
    ones_above = 1.0 - (np.cumsum(scores.right) - 0.5 * scores.right) / n_ones
    value = float(scores.right @ zeros_below / n_ones)
    total = n_ones + n_zeros
    of_one = (zeros_below - value) * total / n_ones
    of_zero = (ones_above - value) * total / n_zeros
    # Pairs of a row of each class in one cell count by half; each may count as none or as one.
    bound = 0.5 * float((scores.right * scores.wrong)[scores.several].sum() / (n_ones * n_zeros))
    influence = partial(_influence_on_area, of_one, of_zero, scores.place)
    return StreamedMetric(value, bound, influence=influence, form=partial(auc_ends, *_sizes(source)))


def _sizes(source: Predictions | BlockSums) -> tuple[float, float]:
    """The effective number of rows of class 1 and of class 0, (Σw)² / Σw² each."""
    if isinstance(source, BlockSums):
        cells = source.bins
        weight_of_ones = float(cells.correct.sum())
        squares_of_ones = float(cells.squared_correct.sum())
        weight_of_zeros = float(cells.weight.sum()) - weight_of_ones
        squares_of_zeros = float(cells.squared_weight.sum()) - squares_of_ones
        return weight_of_ones**2 / squares_of_ones, weight_of_zeros**2 / squares_of_zeros
    is_one = source.labels == 1
    of_ones = source.weights[is_one]
    of_zeros = source.weights[~is_one]
    return float(of_ones.sum() ** 2 / (of_ones @ of_ones)), float(of_zeros.sum() ** 2 / (of_zeros @ of_zeros))


def auc_ends(
    n_ones: float, n_zeros: float, value: float, variance: float, level: float, n_clusters: int | None
) -> tuple[float, float]:
    """The areas θ with |value - θ| ≤ z √(φ V(θ)), after Newcombe (2006, method 5).

    V(θ) = θ(1-θ) (1 + (m-1) ((1-θ)/(2-θ) + θ/(1+θ))) / (n₁ n₀), m = (n₁ + n₀)/2, is the variance for exponential
    scores (Hanley & McNeil 1982), which is not 0 where no pair was in the wrong order. The dispersion φ ≥ 1 is the
    variance by influences over V(value).
    """
    # SciPy loads when it is needed, as everywhere.
    from scipy.optimize import brentq

    if min(n_ones, n_zeros) < FEWEST_OF_A_CLASS:
        return 0.0, 1.0
    z = critical_value(level, n_clusters)
    mean_size = (n_ones + n_zeros) / 2.0

    def variance_at(area: float) -> float:
        of_pairs = (1.0 - area) / (2.0 - area) + area / (1.0 + area)
        return area * (1.0 - area) * (1.0 + (mean_size - 1.0) * of_pairs) / (n_ones * n_zeros)

    of_value = variance_at(value)
    dispersion = max(1.0, variance / of_value) if of_value > 0.0 else 1.0

    def excess(area: float) -> float:
        return (value - area) ** 2 - z**2 * dispersion * variance_at(area)

    smallest = 1e-12  # next to areas of 0 and 1, which solve the equation themselves
    low = 0.0 if value <= smallest else float(brentq(excess, 0.0, min(value, 1.0 - smallest)))
    high = 1.0 if value >= 1.0 - smallest else float(brentq(excess, max(value, smallest), 1.0))
    return low, high


def precision_ends(
    n_ones: float, n_zeros: float, value: float, variance: float, level: float, n_clusters: int | None
) -> tuple[float, float]:
    """The interval of the average precision P on the scale of log-odds, by Student's t of the rows of class 1.

    With few rows of class 1 the influences say too little: their variance is raised by the share k / (n₁ + k) of
    P(1 - P) / n₁, the variance of as many independent rows (Boyd, Eng & Page 2013). A precision of 1 counts as one of
    which a quarter of a row was missed.
    """
    borrowed_rows = 20.0  # k: of 2 to 20 covers 8 rows of class 1 and more no less than 92 %
    if min(n_ones, n_zeros) < FEWEST_OF_A_CLASS:
        return 0.0, 1.0
    inside = min(max(value, 0.25 / n_ones), 1.0 - 0.25 / n_ones)
    of_row = inside * (1.0 - inside)
    variance = variance + borrowed_rows / (n_ones + borrowed_rows) * of_row / n_ones
    n_units = whole_rows(n_ones) if n_clusters is None else min(whole_rows(n_ones), n_clusters)
    margin = critical_value(level, max(n_units, 2)) * math.sqrt(variance) / of_row
    centre = math.log(inside) - math.log1p(-inside)
    low = 1.0 / (1.0 + math.exp(min(margin - centre, 700.0)))
    high = 1.0 / (1.0 + math.exp(max(-margin - centre, -700.0)))
    return min(low, value), max(high, value)


@without_warnings
def _precision(source: Predictions | BlockSums) -> StreamedMetric:
    """The average precision U/π with U = E[y A(s)/B(s)], A and B the weights of class 1 and of all rows from s on."""
    scores = _scores(source)
    total = float(scores.right.sum() + scores.wrong.sum())
    n_ones = float(scores.right.sum())
    if n_ones == 0.0 or n_ones == total:
        return StreamedMetric(math.nan)
    ones = np.cumsum(scores.right[::-1])[::-1] / total
    all_rows = np.cumsum((scores.right + scores.wrong)[::-1])[::-1] / total
    precision = np.divide(ones, all_rows, out=np.zeros_like(ones), where=all_rows > 0.0)
    rate = n_ones / total
    value = float(scores.right @ precision) / n_ones
    # A row also changes the precision at every threshold below its own probability.
    share_of_ones = np.divide(scores.right / total, all_rows, out=np.zeros_like(ones), where=all_rows > 0.0)
    from_ones_below = np.cumsum(share_of_ones)
    from_precision_below = np.cumsum(share_of_ones * precision)
    of_one = (precision - value + from_ones_below - from_precision_below) / rate
    of_zero = -from_precision_below / rate
    influence = partial(_influence_on_area, of_one, of_zero, scores.place)
    form = partial(precision_ends, *_sizes(source))
    return StreamedMetric(value, _precision_bound(scores), influence=influence, form=form)


def _precision_bound(scores: ScoreCells) -> float:
    """How far the average precision of the cells, each of which counts as rows of one score, can be off.

    Let A be the weight of class 1 and B that of all rows above a cell, a that of class 1 and b that of class 0 in it. A
    row of class 1 in the cell has the precision (A + x) / (B + x + y), x ≤ a being the weight of class 1 and y ≤ b that
    of class 0 in the cell from its score on. It rises with x, as A ≤ B, and falls with y.

    At most it is (A + a) / (B + a), with which all a may count. At least it is (A + x) / (B + b + x). By falling score
    the x of a row is no less than the sum of the weights of class 1 up to and including its own, so that the weighted
    sum of these is an upper sum of a rising function: at least ∫ (A + t) / (B + b + t) dt from 0 to a. Both hold for
    a cell without rows of class 0 too: its rows of class 1 have different precisions.
    """
    ones = scores.right
    zeros = scores.wrong
    is_uncertain = scores.several & (ones > 0.0)
    a = ones[is_uncertain]
    b = zeros[is_uncertain]
    A = sums_above(ones)[is_uncertain]  # noqa: N806
    B = sums_above(ones + zeros)[is_uncertain]  # noqa: N806
    counted = a * (A + a) / (B + a + b)
    most = a * (A + a) / (B + a)
    least = integral_of_share(a, A, B + b)
    return float(max((most - counted).sum(), (counted - least).sum()) / scores.right.sum())


def sums_above(weights: Vector) -> Vector:
    """The sum of the weights after each one."""
    return np.append(np.cumsum(weights[:0:-1])[::-1], 0.0)


def integral_of_share(added: Vector, part: Vector, whole: Vector) -> Vector:
    """∫ (part + t) / (whole + t) dt from 0 to `added`, which is added - (whole - part) log(1 + added / whole)."""
    has_rows = whole > 0.0
    growth = np.divide(added, whole, out=np.zeros_like(added), where=has_rows)
    return np.asarray(added - (whole - part) * np.log1p(growth))


@dataclass(frozen=True, eq=False, kw_only=True)
class BiasSummary(InfluenceSummary):
    """The mean bias of rows in cells of equal mass, with the interval of `mean_bias_interval`, good for rare events."""

    cells: Bins

    N_CELLS: ClassVar[int] = 1000
    """The number of cells, of nearly equal probabilities, whose rows the interval sums up."""

    @classmethod
    def of(cls, rows: Predictions) -> BiasSummary:
        """That of some rows."""
        terms = bias_terms(rows)
        return cls(
            value=mean(terms, rows.weight),
            influence=influences_of_units(terms, rows.weight, rows.clusters),
            limits=(-1.0, 1.0),
            n_clusters=number_of(rows.clusters),
            cells=bins_of(rows, n_bins=cls.N_CELLS),
        )

    def interval(self, *, level: float = 0.95) -> Interval:
        """The interval by the score test of a shift of all log-odds."""
        return interval_of_shift(self.cells, level, self._variance_of_units, self.n_clusters)

    def exact_interval(self, *, level: float) -> Interval:
        """The same for a level close to 1, of statements that hold together."""
        return exact_interval_of_shift(self.cells, level, self._variance_of_units, self.n_clusters)

    @property
    def _variance_of_units(self) -> float | None:
        """The variance by clusters; None of rows that are independent, whose cells say it."""
        return None if self.n_clusters is None else self.variance


def summary_of(
    streamed: Callable[[Any], StreamedMetric], limits: tuple[float, float], rows: Predictions
) -> InfluenceSummary:
    """A metric of rows in memory, with the influence of each of them."""
    metric = streamed(rows)
    influence = np.zeros(len(rows.labels)) if metric.influence is None else metric.influence(rows)
    return InfluenceSummary(
        value=metric.value,
        influence=influences_of_units(influence, rows.weight, rows.clusters),
        limits=limits,
        form=metric.form,
        n_clusters=number_of(rows.clusters, rows.weight),
        of_pairs=True,
    )


SHOWN: dict[str, Any] = {"two_classes": True, "shown": "with interval"}
"""Fields of the metrics of two classes that reports show."""


def by_influence(
    streamed: Callable[[Any], StreamedMetric], lowest: float = 0.0, highest: float = 1.0
) -> dict[str, Any]:
    """The fields of a metric whose `streamed` form takes rows too, and returns how much each of them moves it."""
    limits = (lowest, highest)
    return {
        "streamed": streamed,
        "summary": partial(summary_of, streamed, limits),
        "of_rows": lambda rows: streamed(rows).value,
        "range": limits,
        "lower_is_better": False,
        **SHOWN,
    }


METRICS = (
    Metric(
        "mean_bias",
        mean_bias,
        "mean p − rate",
        terms=bias_terms,
        summary=BiasSummary.of,
        unit="%",
        range=(-1.0, 1.0),
        signed=True,
        column=(None, 3),
        column_with_interval=True,
        **SHOWN,
    ),
    Metric(
        "log_loss_skill",
        log_loss_skill,
        "log-loss skill",
        takes_logs=True,
        unit="%",
        column=(None, 2),
        **by_influence(_log_skill, -math.inf),
    ),
    Metric("brier_skill", brier_skill, "Brier skill", unit="%", **by_influence(_square_skill, -math.inf)),
    Metric("roc_auc", roc_auc, "AUC", column=(None, 6), **by_influence(_auc)),
    Metric("average_precision", average_precision, "average precision", column=(None, 7), **by_influence(_precision)),
)
