"""The sums over the rows of a period, which can be added over machines, regions and days, and what they say."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np
from scipy.stats import t as student

from refocal._arrays import Vector, take_label
from refocal.errors import FormatError
from refocal.metrics.bins import uniform_index
from refocal.metrics.intervals import Interval, normal_interval, share_interval
from refocal.metrics.scores import brier_terms
from refocal.monitor.evidence import LEAST_INFORMATION
from refocal.monitor.independent import ALTERNATIVES, SMALLEST_P, log_ratios
from refocal.monitor.periods import Key, in_order
from refocal.rows import Predictions

N_BINS = 10
"""The bins of equal width of the ECE."""

MEAN = "mean/all rows"
SLOPE = "shape/slope"

NO_GROUP = ""
"""The group of rows in none, whose batch had no such column while others had; no group is called so."""

StreamSums = dict[str, list[float]]
"""Σ g (y - p), Σ g² p (1 - p) and the number of rows, by the name of a stream: its family, a slash and its own.

States of versions before 1.0.0 lack the number of rows."""


@dataclass(frozen=True)
class ScoreScale:
    """The mean and the spread of the log-odds of all predictions so far, which the slope is measured by.

    Rows are not kept, so that those of a period that comes in two calls are measured by what was known at each: the
    evidence on the shape is nearly, not exactly, that of one call. Both are valid, as labels have no say in the scale.
    """

    n: int = 0
    total: float = 0.0
    squares: float = 0.0

    def after(self, log_odds: Vector) -> ScoreScale:
        """With further predictions."""
        return ScoreScale(
            self.n + len(log_odds), self.total + float(log_odds.sum()), self.squares + float(log_odds @ log_odds)
        )

    def standardised(self, log_odds: Vector) -> Vector:
        """Log-odds less their mean, in standard deviations."""
        mean = self.total / max(self.n, 1)
        variance = self.squares / max(self.n, 1) - mean**2
        return (log_odds - mean) / math.sqrt(max(variance, 1e-12))


def log_odds_of(p: Vector) -> Vector:
    """The log-odds of probabilities, bounded."""
    # Log-odds beyond this count as this in the slope.
    largest = 12.0
    smallest = math.exp(-largest)
    p = np.clip(p, smallest, 1.0 - smallest)
    return np.log(p) - np.log1p(-p)


def stream_sums(rows: Predictions, scale: ScoreScale) -> StreamSums:
    """What some labelled rows add to each stream; with more than two classes the event is that the top class is right.

    Streams: the mean of all rows; the slope, g = (η - mean η) / 2 sd within ±1 of the log-odds η; high scores, more
    than a standard deviation above the mean; each class of several; each group.
    """
    # Classes have streams of their own up to this number, and so have groups; a state stays small.
    most_classes = 30
    p, happened = rows.confidence()
    residual = happened - p
    variance = p * (1.0 - p)
    place = scale.standardised(log_odds_of(p))
    slope = np.clip(0.5 * place, -1.0, 1.0)
    high = (place > 1.0).astype(np.float64)
    sums = {
        MEAN: _weighted(np.ones(len(p)), residual, variance),
        SLOPE: _weighted(slope, residual, variance),
        "shape/high scores": _weighted(high, residual, variance),
    }
    if 2 < rows.n_classes <= most_classes:
        for label in range(rows.n_classes):
            p_class, is_class = rows.event_of_column(label)
            name = f"class/{rows.name_of(label)}"
            sums[name] = _weighted(np.ones(len(p)), is_class - p_class, p_class * (1.0 - p_class))
    for column, groups in rows.groups.items():
        for group in np.setdiff1d(groups, [NO_GROUP]).tolist():
            is_member = (groups == group).astype(np.float64)
            sums[f"group/{column} = {group}"] = _weighted(is_member, residual, variance)
    return sums


def stream_in_words(name: str, residual: float) -> str:
    """A stream for people, and its direction: a residual Σ g (y - p) above 0 is of probabilities that are too low.

    >>> stream_in_words("group/region = north", -3.2)
    'region = north: probabilities too high'
    """
    family, own = name.split("/", 1)
    if name == SLOPE:
        return "probabilities too extreme" if residual < 0.0 else "probabilities too close to the mean"
    words = f"class {own}" if family == "class" else own
    return f"{words}: probabilities too {'high' if residual < 0.0 else 'low'}"


def _weighted(g: Vector, residual: Vector, variance: Vector) -> list[float]:
    """Σ g r, Σ g² v, and the number of rows with a weight."""
    return [float(g @ residual), float((g * g) @ variance), float(np.count_nonzero(g))]


def added(one: StreamSums, other: StreamSums) -> StreamSums:
    """The sums of both; without the number of rows where one of them lacks it."""
    both = {**one, **other}
    for name in one.keys() & other.keys():
        both[name] = [first + second for first, second in zip(one[name], other[name], strict=False)]
    return both


@dataclass(frozen=True)
class Expected:
    """What predictions say about their own performance, and what labels said later: sums over rows."""

    n: int = 0
    """The number of predictions, with and without labels."""
    correct: float = 0.0
    """Σ of the largest probability, the expected number of correct predictions."""
    log_loss: float = 0.0
    """Σ of the entropy."""
    labelled_correct: float = 0.0
    """The same sums over the rows that have labels now."""
    labelled_log_loss: float = 0.0
    n_correct: int = 0
    """How many of these were correct."""

    def plus(self, other: Expected) -> Expected:
        """The sums of both."""
        return Expected(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


def expected_of(rows: Predictions, *, labelled: bool, predicted: bool) -> Expected:
    """The sums of rows that are predicted now, labelled now, or both."""
    p = rows.values[:, None] if rows.binary else rows.values
    if rows.binary:
        p = np.concatenate([1.0 - p, p], axis=1)
    p = np.clip(p, SMALLEST_P, 1.0)
    correct = float(p.max(axis=1).sum())
    log_loss = -float(np.sum(p * np.log(p)))
    made = Expected()
    if predicted:
        made = replace(made, n=len(rows), correct=correct, log_loss=log_loss)
    if labelled:
        n_correct = int(np.count_nonzero(rows.top[1]))
        made = replace(made, labelled_correct=correct, labelled_log_loss=log_loss, n_correct=n_correct)
    return made


@dataclass(frozen=True)
class Period:
    """Sums over the labelled rows of a period, or of several, from `first` to `last`: plain values, for JSON."""

    first: Key
    last: Key
    n: int
    log_loss: float
    brier: float
    rows: list[int]  # in bins of equal width of the probability, as are the next two
    p: list[float]
    events: list[int]
    ratios: list[float] = field(default_factory=list)
    """Of independent rows; see `independent`."""
    sums: dict[str, list[float]] = field(default_factory=dict)
    """Of each stream; see `evidence`."""
    expected: Expected = field(default_factory=Expected)
    has_entered: bool = False
    """Whether it is part of the test."""

    @classmethod
    def empty(cls, key: Key) -> Period:
        """A period without rows."""
        nothing = [0] * N_BINS
        return cls(key, key, 0, 0.0, 0.0, nothing, [0.0] * N_BINS, nothing)

    @classmethod
    def of(cls, key: Key, rows: Predictions, scale: ScoreScale, *, independent: bool) -> Period:
        """A period of rows with their labels; with more than two classes the event is that the top class is right."""
        p, happened = rows.confidence()
        of_label = np.where(happened, p, 1.0 - p) if rows.binary else take_label(rows.values, rows.labels)
        index = uniform_index(p, N_BINS)
        return cls(
            first=key,
            last=key,
            n=len(p),
            log_loss=-float(np.sum(np.log(np.clip(of_label, SMALLEST_P, 1.0)))),
            brier=float(np.sum(brier_terms(rows))),
            rows=np.bincount(index, minlength=N_BINS).tolist(),
            p=np.bincount(index, p, N_BINS).tolist(),
            events=np.bincount(index[happened], minlength=N_BINS).tolist(),
            ratios=log_ratios(p, happened).tolist() if independent else [],
            sums=stream_sums(rows, scale),
            expected=expected_of(rows, labelled=True, predicted=False),
        )

    def plus(self, other: Period) -> Period:
        """A period with the rows of both."""
        ratios = [each for each in (self.ratios, other.ratios) if each]
        return Period(
            first=min(self.first, other.first, key=in_order),
            last=max(self.last, other.last, key=in_order),
            n=self.n + other.n,
            log_loss=self.log_loss + other.log_loss,
            brier=self.brier + other.brier,
            rows=np.add(self.rows, other.rows).tolist(),
            p=np.add(self.p, other.p).tolist(),
            events=np.add(self.events, other.events).tolist(),
            ratios=np.sum(ratios, axis=0).tolist() if ratios else [],
            sums=added(self.sums, other.sums),
            expected=self.expected.plus(other.expected),
            has_entered=self.has_entered or other.has_entered,
        )

    def check(self) -> None:
        """Refuse sums in a file that no rows can have."""
        if [len(values) for values in (self.rows, self.p, self.events)] != [N_BINS] * 3:
            raise FormatError(f"a period must have {N_BINS} bins.")
        if len(self.ratios) not in (0, len(ALTERNATIVES)) or any(
            len(of_stream) not in (2, 3) for of_stream in self.sums.values()
        ):
            raise FormatError(f"a period must have {len(ALTERNATIVES)} ratios and three sums of each stream.")
        rows, p, events = np.array([self.rows, self.p, self.events])
        is_within = np.all([p, events] <= rows + 1e-6)
        if min(self.n, rows.min(), p.min(), events.min()) < 0 or rows.sum() != self.n or not is_within:
            raise FormatError("the counts of a period must fit each other.")

    @property
    def n_events(self) -> int:
        """How many events there were."""
        return sum(self.events)

    @property
    def total_p(self) -> float:
        """Σ p, the expected number of events."""
        return sum(self.p)

    def summary(self, level: float, spread: Spread | None = None) -> WindowSummary | None:
        """The period in numbers; None without rows. `spread` is that of the periods within, where it is known."""
        if self.n == 0:
            return None
        n = self.n
        count = np.array(self.rows)
        p = np.array(self.p)
        events = np.array(self.events)
        mean = float(p.sum()) / n
        rate = float(events.sum()) / n
        # Of the events of each bin, if all of its rows had its mean probability: n p (1 - p).
        variance = p * (1.0 - p / np.maximum(count, 1))
        standard_error = math.sqrt(max(rate * (1.0 - rate), 1.0 / n) / n)
        rate_interval = share_interval(rate, n, level)
        bias = normal_interval(mean - rate, standard_error, level, (-1.0, 1.0))
        if spread is not None:
            margin = spread.quantile(level)
            reach = margin * max(spread.rate, standard_error)
            rate_interval = Interval(
                rate, max(0.0, rate - reach), min(1.0, rate + reach), level, reach / margin, 0.0, 0
            )
            reach = margin * max(spread.bias, standard_error)
            ends = (max(-1.0, mean - rate - reach), min(1.0, mean - rate + reach))
            bias = Interval(mean - rate, *ends, level, reach / margin, 0.0, 0)
        return WindowSummary(
            first=str(self.first),
            last=str(self.last),
            n=n,
            log_loss=self.log_loss / n,
            brier_score=self.brier / n,
            ece=float(np.abs(p - events).sum()) / n,
            ece_by_chance=float(np.sqrt(2.0 / np.pi * variance).sum()) / n,  # E|X| = σ √(2/π) of a normal X
            mean_p=mean,
            rate=rate_interval,
            bias=bias,
        )


@dataclass(frozen=True)
class Spread:
    """The standard errors of a rate and a bias by the scatter of periods, which are clusters of rows."""

    rate: float
    bias: float
    n_periods: int

    @classmethod
    def of(cls, periods: list[Period]) -> Spread | None:
        """√(m/(m-1) Σ_t d_t²) / n of the deviations d_t of m periods; None for a few."""
        fewest_periods = 5  # of which a scatter can be told
        some = [period for period in periods if period.n > 0]
        m = len(some)
        if m < fewest_periods:
            return None
        n = np.array([period.n for period in some], dtype=np.float64)
        events = np.array([period.n_events for period in some], dtype=np.float64)
        p = np.array([period.total_p for period in some])

        def standard_error(total: Vector) -> float:
            deviation = total - n * (total.sum() / n.sum())
            return math.sqrt(m / (m - 1) * float(deviation @ deviation)) / float(n.sum())

        return cls(standard_error(events), standard_error(p - events), m)

    def quantile(self, level: float) -> float:
        """Student's, of as many periods."""
        return float(student.ppf(0.5 + 0.5 * level, self.n_periods - 1))


@dataclass(frozen=True)
class WindowSummary:
    """The measures of some periods. With more than two classes p is the confidence, and the event a correct prediction.

    Intervals of several periods are by their scatter, unless rows are declared independent.

    >>> from refocal.monitor import CalibrationMonitor
    >>> monitor = CalibrationMonitor()
    >>> monitor.update([0.2, 0.9, 0.6], [0, 1, 0], period="Monday")
    3
    >>> found = monitor.summary()
    >>> found.n, round(found.mean_p, 3), round(found.rate.value, 3)
    (3, 0.567, 0.333)
    """

    first: str
    last: str
    n: int
    log_loss: float
    brier_score: float
    ece: float
    """Over ten bins of equal width, the same in all periods; that of an evaluation is over 15 of equal mass."""
    ece_by_chance: float
    """Its mean if the probabilities were right."""
    mean_p: float
    rate: Interval
    bias: Interval
    """Mean p less the rate."""


def start_of_change(periods: list[Period], stream: str) -> str:
    """The period with which a stream seems to have begun to move, from those that have entered a test, in their order.

    That from which to the last (Σ g (y - p))² / Σ g² p (1 - p) is largest: the likeliest start of a constant shift of
    the log-odds after calm periods, whatever the size of each. Of periods that were joined it is the first; empty where
    the sums of all are too little for a batch of the test.
    """
    start = ""
    largest = 0.0
    residual = 0.0
    information = 0.0
    for period in reversed(periods):
        if not period.has_entered or stream not in period.sums:
            continue
        residual += period.sums[stream][0]
        information += period.sums[stream][1]
        if information >= LEAST_INFORMATION and residual**2 / information > largest:
            largest = residual**2 / information
            start = str(period.first)
    return start


def summary_of(periods: list[Period], level: float, *, independent: bool = True) -> WindowSummary | None:
    """Some periods together; None without labelled rows."""
    if not periods:
        return None
    return reduce(Period.plus, periods).summary(level, None if independent else Spread.of(periods))
