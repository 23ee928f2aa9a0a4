"""Where is a model wrong? Segments of rows whose mean probability differs from their rate, found unasked.

One half of the rows proposes segments and the other half tests them, so that looking in many places costs nothing. A
segment is one condition on a feature, or two, such as "age < 25 and region = north". On the first half it has the score

    z² - 2 log M,    z = Σ_S w (y - p) / √Σ_S w² p (1 - p),

M being the number of candidates with as many conditions: about the largest z² of them where nothing is off. A line in
the log-odds of all rows comes first where it explains more, as where the model is not calibrated as a whole. The best
is taken, its log-odds are moved to its rate, and the search goes on until no score is above -6 or ten are found. On the
other half each has the interval of `metrics.mean_bias_interval`, at the level to the power of 1 over their number
(Šidák 1967); those that leave out 0, also without the rows of earlier ones, are reported, with the numbers of that
half.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Flags, Indices, Matrix, Vector
from refocal._digits import digits_apart
from refocal._groups import MISSING, as_column, columns_of_table, names_of_column
from refocal._validation import check_integer, check_seed, number_of_text
from refocal.errors import DataError, ParameterError, ShapeError
from refocal.metrics.bias_interval import exact_interval_of_shift
from refocal.metrics.bins import row_cells
from refocal.metrics.influence import variance_of_mean
from refocal.metrics.inputs import check_clusters, check_level
from refocal.metrics.intervals import Interval, number_of
from refocal.metrics.logistic_regression import fit_logistic, log_odds_of, sigmoid
from refocal.metrics.two_classes import read_two_classes
from refocal.rows import Predictions
from refocal.rows.keys import BOOLEAN_NUMBERS, number_keys

__all__ = ["Condition", "FeatureBias", "FoundSegments", "Segment", "find_segments"]

MOST_SEGMENTS = 10


@dataclass(frozen=True)
class Condition:
    """A condition on one feature: a range from `low` on and below `high`, or a value of text.

    >>> str(Condition("age", high=25.0)), str(Condition("age", low=25.0, high=40.0))
    ('age < 25', '25 ≤ age < 40')
    >>> str(Condition("region", value="north"))
    'region = north'
    """

    feature: str
    low: float | None = None
    high: float | None = None
    value: str | None = None

    def __str__(self) -> str:
        if self.value is not None:
            return f"{self.feature} = {self.value}"
        below = "" if self.high is None else f" < {_exact_text(self.high)}"
        if self.low is None:
            return f"{self.feature}{below}"
        low = _exact_text(self.low)
        return f"{low} ≤ {self.feature}{below}" if below else f"{self.feature} ≥ {low}"

    def holds(self, column: NDArray[Any]) -> Flags:
        """Which values of the feature it holds for; a missing number is in no range.

        Truths are 1 and 0, however they are stored.

        >>> Condition("vip", value="True").holds(np.array([1, 0]))
        array([ True, False])
        """
        if self.value is not None:
            names = _column(column, self.feature, None, "Condition.holds", is_number=False)
            if self.value not in BOOLEAN_NUMBERS:
                return np.asarray(names == self.value)
            distinct, place = np.unique(names, return_inverse=True)
            (wanted,) = number_keys([self.value])
            return np.array([key == wanted for key in number_keys(distinct)], dtype=np.bool_)[place]
        numbers: NDArray[np.float64] = _column(column, self.feature, None, "Condition.holds", is_number=True)
        inside = ~np.isnan(numbers)
        if self.low is not None:
            inside &= numbers >= self.low
        if self.high is not None:
            inside &= numbers < self.high
        return inside


def _exact_text(number: float) -> str:
    """A number in as few digits as say which it is: those of another range may differ in the last of them."""
    return repr(number).removesuffix(".0")


@dataclass(frozen=True)
class Segment:
    """Rows that conditions describe: how many were tested, what was predicted for them and what occurred.

    `difference` is the mean probability less the rate; its interval holds together with those of the other segments.

    >>> difference = Interval(-0.07, -0.1, -0.04, 0.995, 0.01, 0.0, 0)
    >>> str(Segment([Condition("age", high=25.0)], 1240, 0.12, 0.19, difference))
    'age < 25: predicted 12.00 %, occurred 19.00 %, 1,240 rows'
    """

    conditions: list[Condition]
    n: int
    predicted: float
    occurred: float
    difference: Interval

    @property
    def name(self) -> str:
        """The conditions in words."""
        return " and ".join(str(condition) for condition in self.conditions)

    def __str__(self) -> str:
        digits = digits_apart(100.0 * self.predicted, 100.0 * self.occurred, least=2)
        said = f"predicted {100.0 * self.predicted:.{digits}f} %, occurred {100.0 * self.occurred:.{digits}f} %"
        return f"{self.name}: {said}, {self.n:,} rows"


@dataclass(frozen=True)
class FeatureBias:
    """The mean probability and the rate over one numeric feature, in ranges of about equally many rows.

    Rows of a missing or infinite value are in none of them. `low` and `high` bound the difference of each range, for
    all ranges of the feature together.

    >>> FeatureBias("age", [20.0, 60.0], [10, 10], [0.2, 0.3], [0.2, 0.4], [-0.2, -0.3], [0.2, 0.1]).feature
    'age'
    """

    feature: str
    mean: list[float]
    """The mean of the feature in each range."""
    n: list[int]
    predicted: list[float]
    occurred: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class FoundSegments:
    """The segments whose mean is significantly off, and what was done to find them.

    >>> rng = np.random.default_rng(0)
    >>> p, age = rng.random(8000), rng.integers(18, 80, 8000)
    >>> y = rng.random(8000) < np.where(age < 25, 0.5 * p, p)
    >>> found = find_segments(y, p, {"age": age})
    >>> [segment.name for segment in found.segments]
    ['age < 26']
    >>> found.groups({"age": [20, 50]}).tolist()
    ['age < 26', 'rest']
    """

    segments: list[Segment]
    """The largest difference, in standard errors, first."""
    n_tested: int
    """How many segments were tested."""
    n_search: int
    n_test: int
    """The rows of the two halves."""
    level: float
    bias: list[FeatureBias]
    """Numeric features, over the rows of both halves; without those of no range that says something."""

    def groups(self, features: Any) -> NDArray[np.str_]:
        """The first segment of each row, or "rest": groups that `GroupCalibration` can be fitted on."""
        conditions = [condition for segment in self.segments for condition in segment.conditions]
        are_numbers = {condition.feature: condition.value is None for condition in conditions}
        columns = as_features(features, None, "FoundSegments.groups", are_numbers)
        lengths = {len(column) for column in columns.values()}
        names = np.full(lengths.pop() if lengths else 0, "rest", dtype=object)
        for segment in reversed(self.segments):
            names[_members(segment.conditions, columns, "FoundSegments.groups")] = segment.name
        return names.astype(np.str_)

    def sentence(self) -> str:
        """What was found, in a line."""
        tested = f"{self.n_tested} proposed on {self.n_search:,} rows and tested on {self.n_test:,} others"
        how = f"{tested if self.n_tested else 'none stood out'}, {100 * self.level:g} % for all together"
        n_segments = len(self.segments)
        are = "segments are" if n_segments > 1 else "segment is"
        return f"{n_segments or 'No'} {are} significantly off ({how})."


def find_segments(
    y_true: Any,
    probabilities: Any = None,
    features: Any = None,
    *,
    sample_weight: Any = None,
    clusters: Any = None,
    level: float = 0.95,
    most: int = MOST_SEGMENTS,
    seed: int = 0,
) -> FoundSegments:
    """Find segments of two classes whose mean probability is significantly off.

    Parameters
    ----------
    y_true, probabilities : array, or Predictions in the place of both
        Rows that the model was not trained on; at best calibrated, so that segments are what remains.
    features : data frame or mapping of columns
        One column of numbers or of text for each feature, whose rows are those of `y_true`. Numbers are cut at twenty
        quantiles; of text the twenty most frequent values are candidates.
    sample_weight, clusters : array, optional
        Weights, and what rows belong to, such as customers: a cluster is in one half as a whole.
    level : float
        The probability that no segment is reported where the probabilities of all segments are right.
    most : int
        The largest number of segments to test.
    seed : int
        Of the halves.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> n = 20_000
    >>> age, region = rng.integers(18, 80, n), rng.choice(["north", "south"], n)
    >>> p = rng.beta(1, 6, n)
    >>> is_off = (age < 30) & (region == "north")
    >>> y = rng.random(n) < np.where(is_off, 1.8 * p, p).clip(0, 1)
    >>> found = find_segments(y, p, {"age": age, "region": region})
    >>> [str(condition) for condition in found.segments[0].conditions]
    ['age < 29', 'region = north']
    """
    function = "find_segments"
    check_level(level, function)
    check_integer(most, "most", function)
    check_seed(seed, function)
    n_given = len(y_true.labels) if isinstance(y_true, Predictions) else len(np.ravel(as_column(y_true)))
    rows = read_two_classes(y_true, probabilities, sample_weight, (), function, both=False, clusters=clusters)
    check_clusters(rows.clusters, function)
    columns = as_features(features, n_given, function)
    if sample_weight is not None:  # rows of weight 0 have no say
        has_weight = np.ravel(as_column(sample_weight)) > 0.0
        columns = {name: column[has_weight] for name, column in columns.items()}
    return segments_of(rows, columns, level, most, seed)


def segments_of(
    rows: Predictions, columns: Mapping[str, NDArray[Any]], level: float, most: int, seed: int
) -> FoundSegments:
    """The segments of checked rows of two classes."""
    to_search, to_test = _halves(rows, seed)
    fields = [_Field.of(name, column, to_search) for name, column in columns.items()]
    proposed = _propose(rows, [field for field in fields if len(field.conditions)], to_search, most)
    level_of_one = level ** (1.0 / max(len(proposed), 1))
    segments = []
    is_reported = np.zeros(len(rows.labels), dtype=np.bool_)
    for conditions in proposed:
        members = to_test[_members(conditions, columns, "find_segments")[to_test]]
        segment = _tested(rows, conditions, members, level_of_one)
        # Its rows that are in no earlier segment must be off as well: the others are known already.
        further = _tested(rows, conditions, members[~is_reported[members]], level_of_one)
        if segment is not None and _is_off(segment) and further is not None and _is_off(further):
            segments.append(segment)
            is_reported[members] = True
    segments.sort(key=lambda segment: -abs(segment.difference.value) / max(segment.difference.standard_error, 1e-12))
    biases = [_feature_bias(rows, field.name, columns[field.name], level) for field in fields if field.is_number]
    bias = [of_feature for of_feature in biases if of_feature.n]
    return FoundSegments(segments, len(proposed), len(to_search), len(to_test), level, bias)


def _is_off(segment: Segment) -> bool:
    """Whether 0 lies outside of the interval of the difference."""
    return not segment.difference.low <= 0.0 <= segment.difference.high


def as_features(
    features: Any, n_rows: int | None, function: str, are_numbers: Mapping[str, bool] | None = None
) -> dict[str, NDArray[Any]]:
    """The columns of features by their names, as arrays of numbers or of text.

    `are_numbers` says which, of features that are known; those of others tell by themselves.
    """
    columns = columns_of_table(features)
    if columns is None:
        expected = "a data frame or a mapping of names to columns"
        raise ParameterError("features", function, expected=expected, got=type(features).__name__)
    if not columns:
        raise ParameterError("features", function, expected="of at least one column", got="none")
    known = are_numbers or {}
    return {name: _column(column, name, n_rows, function, known.get(name)) for name, column in columns.items()}


def _column(column: Any, name: str, n_rows: int | None, function: str, is_number: bool | None = None) -> NDArray[Any]:
    """One feature: numbers as float64, with NaN where they are missing, and all else as text.

    `is_number` says which it is, where that is known: codes such as 007 may be all that some rows of a text have.
    """
    values = np.array(column, dtype=object) if isinstance(column, (list, tuple)) else as_column(column)
    length = len(values) if n_rows is None else n_rows
    if values.shape != (length,):
        expected = f"of shape {(length,)} in every column, one value for each row"
        raise ShapeError("features", function, expected=expected, got=f"shape {values.shape} in {name!r}")
    if values.dtype.kind in "iuf" and is_number is not False:
        return values.astype(np.float64)
    names = names_of_column(values, name, length, "features", function)
    if is_number is False or (is_number is None and values.dtype.kind in "bmM"):
        return names
    # Columns of objects, and of text from a file, may hold numbers.
    distinct, place = np.unique(names, return_inverse=True)
    numbers = np.empty(len(distinct))
    for i, text in enumerate(distinct.tolist()):
        try:
            numbers[i] = math.nan if text == MISSING else number_of_text(text)
        except ValueError:
            if is_number is None:
                return names
            raise DataError("features", function, expected=f"numbers in {name!r}", got=repr(text)) from None
    return np.asarray(numbers[place])


def _halves(rows: Predictions, seed: int) -> tuple[Indices, Indices]:
    """The numbers of the rows to search and of those to test; a cluster is in one of them."""
    unit = np.arange(len(rows.labels)) if rows.clusters is None else np.unique(rows.clusters, return_inverse=True)[1]
    most_searched = 200_000  # where more propose nothing else
    n_units = int(unit.max()) + 1
    n_first = min(n_units // 2, most_searched)
    is_first = np.zeros(n_units, dtype=np.bool_)
    is_first[np.random.default_rng(seed).permutation(n_units)[:n_first]] = True
    return np.flatnonzero(is_first[unit]), np.flatnonzero(~is_first[unit])


class _Field(NamedTuple):
    """A feature of the rows to search: a code for each row, and which codes each candidate condition holds for."""

    name: str
    codes: Indices
    conditions: list[Condition]
    holds: Matrix
    """1 where a condition (first axis) holds for a code."""
    is_number: bool

    @classmethod
    def of(cls, name: str, column: NDArray[Any], members: Indices) -> _Field:
        """Ranges between quantiles of numbers, the most frequent values of text."""
        n_quantiles = 20
        n_values = 20
        values = column[members]
        conditions: list[Condition] = []
        if column.dtype.kind != "f":
            distinct, place, counts = np.unique(values, return_inverse=True, return_counts=True)
            # One value alone is all rows.
            n_frequent = n_values if len(distinct) > 1 else 0
            frequent = np.argsort(-counts, kind="stable")[:n_frequent]
            conditions = [Condition(name, value=str(distinct[i])) for i in frequent]
            holds = np.zeros((len(conditions), len(distinct)))
            holds[np.arange(len(conditions)), frequent] = 1.0
            return cls(name, place, conditions, holds, False)
        cuts = _cuts(values[np.isfinite(values)], n_quantiles)
        codes = np.searchsorted(cuts, values, side="right")
        n_ranges = len(cuts) + 1
        codes[np.isnan(values)] = n_ranges
        patterns = []
        for first in range(n_ranges):
            for last in range(first, n_ranges):
                if last - first + 1 == n_ranges:
                    continue  # all rows
                low = None if first == 0 else float(cuts[first - 1])
                high = None if last == n_ranges - 1 else float(cuts[last])
                conditions.append(Condition(name, low=low, high=high))
                patterns.append([float(first <= code <= last) for code in range(n_ranges + 1)])
        holds = np.array(patterns).reshape(len(conditions), n_ranges + 1)
        return cls(name, codes, conditions, holds, True)


def _cuts(values: Vector, n_quantiles: int) -> Vector:
    """Numbers of few digits at the quantiles of finite values: each lies above one value and not above the next."""
    distinct = np.unique(values)
    if len(distinct) < 2:
        return np.empty(0)
    quantiles = np.linspace(0.0, 1.0, n_quantiles + 1)[1:-1]
    at = np.unique(np.searchsorted(distinct, np.quantile(values, quantiles, method="higher")))
    cuts = []
    for place in at[at > 0].tolist():
        below, above = distinct[place - 1 : place + 1].tolist()
        most_digits = 17  # which tell any two numbers apart
        rounded = (float(f"{above:.{digits}g}") for digits in range(1, most_digits + 1))
        cuts.append(next(number for number in rounded if below < number <= above))
    return np.array(cuts)


def _propose(rows: Predictions, fields: Sequence[_Field], members: Indices, most: int) -> list[list[Condition]]:
    """The conditions of the segments of highest score, one after the other; none where there are too few rows."""
    fewest = max(30, len(members) // 200)  # rows of a segment: of fewer, both halves say too little
    p, happened = rows.event_of_column(1)
    weight = rows.weights[members]
    outcome = happened[members].astype(np.float64)
    log_odds = log_odds_of(p[members])
    proposed: list[list[Condition]] = []
    is_moved_as_a_whole = len(members) < fewest
    while len(proposed) < most:
        expected = sigmoid(log_odds)
        residual = weight * (outcome - expected)
        variance = np.square(weight) * expected * (1.0 - expected)
        best = _best_segment(fields, residual, variance, fewest)
        if best is None:
            break
        conditions, is_member, score = best
        if not is_moved_as_a_whole:
            line, score_of_line = _line_of_all(log_odds, outcome, weight)
            if score_of_line > score:
                log_odds = line
                is_moved_as_a_whole = True
                continue
        if conditions in proposed:
            break
        proposed.append(conditions)
        of_segment = fit_logistic(
            np.ones((int(is_member.sum()), 1)),
            (weight * outcome)[is_member],
            weight[is_member],
            log_odds[is_member],
        )
        # A segment of one outcome alone has no finite shift: it is left as it is, and the search ends with it.
        if of_segment is None:
            break
        log_odds[is_member] += of_segment.coefficients[0]
    return proposed


def _line_of_all(log_odds: Vector, outcome: Vector, weight: Vector) -> tuple[Vector, float]:
    """The log-odds after a line of them that fits all rows, and its score, 2 Δ log-likelihood less 4.

    The score is what two numbers gain beyond chance, by the criterion of Akaike, on the scale of z².
    """
    design = np.stack([np.ones_like(log_odds), log_odds], axis=1)
    fit = fit_logistic(design, weight * outcome, weight)
    if fit is None:
        return log_odds, -math.inf
    line = design @ fit.coefficients

    def loss(scores: Vector) -> float:
        return float(weight @ (np.logaddexp(0.0, scores) - outcome * scores))

    rows_of_weight = float(weight.sum()) / float(weight @ weight)
    return line, 2.0 * rows_of_weight * (loss(log_odds) - loss(line)) - 4.0


def _best_segment(
    fields: Sequence[_Field], residual: Vector, variance: Vector, fewest: int
) -> tuple[list[Condition], Flags, float] | None:
    """The conditions of the highest score, the rows that they hold for, and it; None where no score is high enough."""
    # Of a segment that is proposed: the other half decides, so that a weak proposal costs little
    # (benchmarks/segments.py). From 0 on next to nothing would be proposed by chance, and fewer segments that are off
    # would be found.
    least_score = -6.0

    def scores(sums: Vector, n_candidates: int) -> Vector:
        """z² - 2 log M from the residual, the variance and the number of rows, (3, …), of candidates."""
        of_residual, of_variance, count = sums
        usable = (count >= fewest) & (of_variance > 0.0)
        squares = np.divide(np.square(of_residual), of_variance, out=np.zeros_like(of_residual), where=usable)
        return np.asarray(np.where(usable, squares - 2.0 * math.log(n_candidates), -math.inf))

    n_single = sum(len(field.conditions) for field in fields)
    n_pairs = sum(len(a.conditions) * len(b.conditions) for i, a in enumerate(fields) for b in fields[:i])
    highest = least_score
    best: tuple[list[Condition], Flags, float] | None = None
    terms = (residual, variance, np.ones_like(residual))
    for i, field in enumerate(fields):
        n_codes = field.holds.shape[1]
        sums = np.stack([np.bincount(field.codes, term, n_codes) for term in terms])
        of_conditions = scores(sums @ field.holds.T, n_single)
        place = int(np.argmax(of_conditions))
        if of_conditions[place] > highest:
            highest = float(of_conditions[place])
            best = ([field.conditions[place]], field.holds[place][field.codes] > 0.0, highest)
        for other in fields[:i]:
            n_of_other = other.holds.shape[1]
            cell = other.codes * n_codes + field.codes
            table = np.stack([np.bincount(cell, term, n_of_other * n_codes) for term in terms])
            table = table.reshape(3, n_of_other, n_codes)
            of_pairs = scores(other.holds @ table @ field.holds.T, n_pairs)
            first, second = np.unravel_index(int(np.argmax(of_pairs)), of_pairs.shape)
            if of_pairs[first, second] > highest:
                highest = float(of_pairs[first, second])
                is_member = (other.holds[first][other.codes] * field.holds[second][field.codes]) > 0.0
                best = ([other.conditions[first], field.conditions[second]], is_member, highest)
    return best


def _members(conditions: Sequence[Condition], columns: Mapping[str, NDArray[Any]], function: str) -> Flags:
    """Which rows all conditions hold for."""
    missing = next((each.feature for each in conditions if each.feature not in columns), None)
    if missing is not None:
        raise ParameterError("features", function, expected=f"with the column {missing!r}", got=", ".join(columns))
    is_member = [condition.holds(columns[condition.feature]) for condition in conditions]
    return np.asarray(np.logical_and.reduce(is_member))


def _tested(rows: Predictions, conditions: list[Condition], members: Indices, level: float) -> Segment | None:
    """A segment with the numbers of some rows; None where it has none of them."""
    if not len(members):
        return None
    p, happened = rows.event_of_column(1)
    difference = _difference(rows, p, happened, members, level)
    if difference is None:
        return None
    weight = rows.weights[members]
    return Segment(
        conditions=conditions,
        n=len(members),
        predicted=float(np.average(p[members], weights=weight)),
        occurred=float(np.average(happened[members], weights=weight)),
        difference=difference,
    )


def _difference(rows: Predictions, p: Vector, happened: Flags, members: Indices, level: float) -> Interval | None:
    """The mean probability of some rows less their rate; None of one cluster alone."""
    weight = None if rows.weight is None else rows.weight[members]
    cells = row_cells(p[members], happened[members], weight)
    if rows.clusters is None:
        return exact_interval_of_shift(cells, level)
    clusters = np.unique(rows.clusters[members], return_inverse=True)[1]
    variance = float(variance_of_mean(p[members] - happened[members], weight, clusters))
    if not math.isfinite(variance):
        return None
    return exact_interval_of_shift(cells, level, variance, number_of(clusters))


def _feature_bias(rows: Predictions, name: str, column: NDArray[Any], level: float) -> FeatureBias:
    """The bias over a numeric feature, in ten ranges at most."""
    n_ranges = 10
    known = np.flatnonzero(np.isfinite(column))
    inner = np.linspace(0.0, 1.0, n_ranges + 1)[1:-1]
    cuts: Vector = np.unique(np.quantile(column[known], inner)) if len(known) else np.empty(0)
    code = np.searchsorted(cuts, column[known], side="right")
    present = np.unique(code)
    level_of_one = level ** (1.0 / max(len(present), 1))
    bias = FeatureBias(name, [], [], [], [], [], [])
    for number in present.tolist():
        members = known[code == number]
        segment = _tested(rows, [], members, level_of_one)
        if segment is None:
            continue
        bias.mean.append(float(np.average(column[members], weights=rows.weights[members])))
        bias.n.append(segment.n)
        bias.predicted.append(segment.predicted)
        bias.occurred.append(segment.occurred)
        bias.low.append(segment.difference.low)
        bias.high.append(segment.difference.high)
    return bias
