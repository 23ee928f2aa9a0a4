"""Policies compared on past batches: each batch is predicted by what was known before it.

The recommended policy is that of the least mean log-loss, if it is lower than that of keeping the calibrator by more
than its standard error over batches; otherwise the calibrator is kept.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student

from refocal._arrays import Matrix, to_numpy
from refocal._validation import check_integer, check_number
from refocal.calibrators import Calibrator
from refocal.calibrators.class_order import labels_of
from refocal.errors import DataError, ParameterError, ShapeError
from refocal.metrics.intervals import Interval
from refocal.monitor.policies import Batch, Keep, Policy, usual_policies
from refocal.rows import Predictions
from refocal.rows.class_names import column_order
from refocal.shift.correction import Correction
from refocal.shift.rows import SMALLEST_LOG_P, log_probabilities


@dataclass(frozen=True)
class PolicyResult:
    """A policy on past batches."""

    name: str
    """Of the policy."""
    log_loss: float
    """Of all rows, each predicted by what was known before its batch."""
    accuracy: float
    """Likewise."""
    difference: Interval
    """Of the log-loss, to keeping the calibrator, by the scatter of batches: below 0 is better. Of one batch it has no
    ends."""
    path: tuple[float, ...]
    """The log-loss of each batch."""
    slope: float
    """That of the correction after the last batch."""
    intercept: tuple[float, ...]
    """Those of the correction after the last batch."""


@dataclass(frozen=True)
class Backtest:
    """The policies, best first, and which one is recommended."""

    periods: tuple[str, ...]
    """The names of the batches."""
    n_rows: tuple[int, ...]
    """The rows of each."""
    results: tuple[PolicyResult, ...]
    """By their log-loss."""
    recommended: str
    """The name of a policy."""
    reason: str
    """Why that one, in a sentence."""
    delay: int
    """How many batches later the labels of a batch were known."""

    def result(self, name: str) -> PolicyResult:
        """That of a policy."""
        return next(result for result in self.results if result.name == name)

    def calibrator(self, calibrator: Calibrator, name: str = "") -> Calibrator:
        """The calibrator after the last batch by a policy, the recommended one by default."""
        chosen = self.result(name or self.recommended)
        if chosen.name == "keep":
            return calibrator
        return Correction(chosen.slope, np.array(chosen.intercept)).behind(calibrator)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def backtest(
    batches: Iterable[tuple[Any, Predictions]],
    policies: Sequence[Policy] | None = None,
    *,
    calibrator: Calibrator | None = None,
    delay: int = 0,
    level: float = 0.95,
) -> Backtest:
    """Compare policies on past batches.

    Parameters
    ----------
    batches : iterable of (period, Predictions)
        In the order of time; what the calibrator takes, or the probabilities that were used. Neighbours of the same
        period are one batch. Columns are matched by their names with those of the first.
    policies : sequence of Policy, optional
        By default `usual_policies()`; keeping the calibrator is always among them.
    calibrator : Calibrator, optional
        That in use; None if the batches hold its probabilities.
    delay : int
        How many batches later the labels of a batch are known: 0 if before the next one.
    level : float
        Of the intervals.

    Examples
    --------
    >>> from refocal.io import Predictions
    >>> rng = np.random.default_rng(0)
    >>> def day(shift):
    ...     log_odds = rng.normal(-1.0, 1.0, 300)
    ...     y = rng.random(300) < 1 / (1 + np.exp(-log_odds - shift))
    ...     return Predictions.from_probabilities(1 / (1 + np.exp(-log_odds)), y.astype(int))
    >>> found = backtest((i, day(0.0 if i < 10 else 0.8)) for i in range(30))
    >>> found.recommended != "keep", found.results[0].difference.high < 0.0
    (True, True)
    """
    function = "backtest"
    check_integer(delay, "delay", function, least=0)
    check_number(level, "level", function, above=0.0, below=1.0)
    chosen = [*usual_policies()] if policies is None else [*policies]
    if not any(isinstance(policy, Keep) for policy in chosen):
        chosen.insert(0, Keep())
    names = [policy.name for policy in chosen]
    if len({*names}) < len(names):
        raise ParameterError("policies", function, expected="of different names", got=", ".join(names))
    periods: list[str] = []
    n_rows: list[int] = []
    losses: dict[str, list[float]] = {name: [] for name in names}
    correct: dict[str, list[int]] = {name: [] for name in names}
    waiting: deque[Batch] = deque()
    for batch in _joined(batches, calibrator, function):
        if not periods:
            for policy in chosen:
                policy.begin(batch.log_p.shape[1])
        periods.append(batch.period)
        n_rows.append(len(batch.labels))
        index = np.arange(len(batch.labels))
        for policy in chosen:
            log_q = policy.correction.apply(batch.log_p)
            losses[policy.name].append(-float(np.mean(log_q[index, batch.labels])))
            correct[policy.name].append(int(np.count_nonzero(log_q.argmax(axis=1) == batch.labels)))
        waiting.append(batch)
        while len(waiting) > delay:
            known = waiting.popleft()
            for policy in chosen:
                policy.observe(known)
    if not periods:
        raise DataError("batches", function, expected="at least one batch", got="none")
    n = np.array(n_rows, dtype=np.float64)
    kept = np.array(losses["keep"])
    results = []
    for policy in chosen:
        path = np.array(losses[policy.name])
        correction = policy.correction
        results.append(
            PolicyResult(
                name=policy.name,
                log_loss=float(n @ path / n.sum()),
                accuracy=sum(correct[policy.name]) / float(n.sum()),
                difference=_mean_difference(path - kept, n, level),
                path=tuple(path.tolist()),
                slope=correction.slope,
                intercept=tuple(correction.intercept.tolist()),
            )
        )
    results.sort(key=lambda result: result.log_loss)
    recommended, reason = _recommendation(results, len(periods))
    return Backtest(tuple(periods), tuple(n_rows), tuple(results), recommended, reason, delay)


def _joined(
    batches: Iterable[tuple[Any, Predictions]], calibrator: Calibrator | None, function: str
) -> Iterator[Batch]:
    """The batches, neighbours of one period as one, with the columns of all in the order of the first."""
    first: Predictions | None = None
    batch: Batch | None = None
    for pair in batches:
        is_pair = isinstance(pair, (tuple, list)) and len(pair) == 2
        if not is_pair or not isinstance(pair[1], Predictions):
            expected = "pairs of a period and Predictions"
            got = f"a {type(pair[1]).__name__}" if is_pair else f"a {type(pair).__name__} alone"
            raise DataError("batches", function, expected=expected, got=got)
        period, rows = pair
        first = rows if first is None else first
        if calibrator is None:
            rows = _in_order_of(rows, first, str(period), function)
        part = _read(str(period), rows, calibrator, function)
        if batch is None:
            batch = part
        elif batch.period == part.period:
            log_p = np.concatenate([batch.log_p, part.log_p])
            labels = np.concatenate([batch.labels, part.labels])
            batch = Batch(part.period, log_p, labels)
        else:
            yield batch
            batch = part
    if batch is not None:
        yield batch


def _in_order_of(rows: Predictions, first: Predictions, period: str, function: str) -> Predictions:
    """Rows with their columns in the order of those of the first batch.

    Columns without names are called 0 … C-1 where those of the other batch are numbers too; where only the first batch
    has names, they are in its order, and where only a later one has, its order is not known.
    """
    if rows.n_classes != first.n_classes:
        expected = f"of {first.n_classes} classes, as the first"
        raise ShapeError("batches", function, expected=expected, got=f"{rows.n_classes} classes in {period}")
    counted = tuple(str(i) for i in range(rows.n_classes))
    wanted = first.class_names
    names = rows.class_names
    if wanted is None and names is not None:
        if {*names} != {*counted}:
            expected = "of columns without names, as the first"
            raise ShapeError("batches", function, expected=expected, got=f"{', '.join(names)} in {period}")
        wanted = counted
    if names is None and wanted is not None:
        names = counted if {*wanted} == {*counted} else wanted
    order = column_order(names, wanted, function)
    return rows if order is None else rows.reordered(order)


def _read(period: str, rows: Predictions, calibrator: Calibrator | None, function: str) -> Batch:
    """The log-probabilities of the calibrator in use, and the labels."""
    if rows.weight is not None:
        expected = "of rows without weights, as those of a monitor"
        raise DataError("batches", function, expected=expected, got=f"weights in {period}")
    if calibrator is not None:
        return Batch(period, log_probabilities(calibrator, rows, function), labels_of(calibrator, rows, function))
    values: Matrix = np.asarray(to_numpy(rows.as_log_probabilities().values), dtype=np.float64)
    if values.ndim == 1:
        values = _two_columns(values)
    return Batch(period, np.maximum(values, SMALLEST_LOG_P), rows.labels)


def _two_columns(log_p: Any) -> Matrix:
    """Log-probabilities of both classes from those of class 1."""
    p = np.clip(np.exp(log_p), 1e-12, 1.0 - 1e-12)
    return np.asarray(np.stack([np.log1p(-p), np.log(p)], axis=1), dtype=np.float64)


def _mean_difference(difference: Any, n: Any, level: float) -> Interval:
    """The mean over rows of a difference by batch, with its interval over batches: that of one has no ends."""
    m = len(n)
    mean = float(n @ difference / n.sum())
    if m < 2:
        return Interval(mean, -math.inf, math.inf, level, math.inf, 0.0, 0)
    deviation = n * (difference - mean)
    error = math.sqrt(m / (m - 1) * float(deviation @ deviation)) / float(n.sum())
    reach = float(student.ppf(0.5 + 0.5 * level, m - 1)) * error
    return Interval(mean, mean - reach, mean + reach, level, error, 0.0, 0)


def _recommendation(results: list[PolicyResult], n_batches: int) -> tuple[str, str]:
    """The policy to use, and why."""
    # Of fewer batches nothing is recommended but to keep the calibrator.
    fewest_batches = 10
    best = results[0]
    keep = next(result for result in results if result.name == "keep")
    if n_batches < fewest_batches:
        batches = "One batch is" if n_batches == 1 else f"{n_batches} batches are"
        return "keep", f"{batches} too few to tell; {fewest_batches} are needed."
    change = 100.0 * (best.log_loss / keep.log_loss - 1.0)
    said = f"{best.name}: log-loss {best.log_loss:.4f}, {change:+.2f} % to keeping the calibrator ({keep.log_loss:.4f})"
    if best.name == "keep":
        return "keep", f"Keep the calibrator: no policy was better than {keep.log_loss:.4f}."
    if best.difference.value > -best.difference.standard_error:
        return "keep", f"Keep the calibrator: the best policy was hardly better ({said})."
    return best.name, f"{said}."
