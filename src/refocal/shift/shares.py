"""New class shares from rows without labels, and the calibrator for them.

Under label shift the shares π⁰ of the classes change to π, and what the rows of a class look like does not. Then

    p'_k ∝ p_k π_k / π⁰_k

are the new probabilities, and the π of largest likelihood is a fixed point, π = mean p' (Saerens, Latinne and
Decaestecker 2002). A prior worth a row of each class holds π near π⁰. Whether label shift fits is tested: the labelled
rows of the fit, weighted by π/π⁰, must have the scores of the new rows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Indices, Matrix, Vector
from refocal._validation import check_number
from refocal.calibrators import Calibrator
from refocal.errors import InputWarning, ParameterError, warn
from refocal.maps.steps import Offset
from refocal.rows import Predictions
from refocal.shift.belief import replicate_parameters, softmax
from refocal.shift.performance import Performance, performance_of
from refocal.shift.rows import check_plain, followed_by, labels_of, log_probabilities

# The weight of the prior on the shares of the fit, in rows for each class. With one row in all, 1,000 rows of 100
# classes were worse off adapted than not; benchmarks/results/adapt.md has the present figures.
PRIOR_ROWS = 1.0
# The change of any share that ends the iterations, and their largest number.
TOLERANCE = 1e-7
MOST_STEPS = 2_000
# Replicates, which scatter by more, begin at the shares of the rows and end sooner.
TOLERANCE_OF_REPLICATES = 1e-4
# No class has a share of 0: a class without rows in the fit had half a row.
LEAST_ROWS = 0.5
# Label shift is rejected where the test's p-value is below this; 1 in 50 adaptations that fit are refused.
LEVEL_OF_TEST = 0.02
N_REPLICATES = 200


@dataclass(frozen=True)
class LabelShiftTest:
    """Whether new class shares explain the new scores."""

    p_value: float
    statistic: float
    n_bins: int
    rejects: bool


@dataclass(frozen=True)
class Adaptation:
    """New class shares with intervals, what to expect with them, and whether they explain the rows.

    `refused` says why the calibrator was left as it was; it is empty where it was adapted.
    """

    classes: tuple[str, ...]
    shares_of_fit: tuple[float, ...]
    shares: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    level: float
    n_rows: int
    performance: Performance | None
    """Of the returned calibrator on these rows; None where no rows were given."""
    label_shift: LabelShiftTest | None
    """None where the rows of the fit were not given."""
    refused: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def adapt(
    calibrator: Calibrator,
    rows: Any = None,
    *,
    shares: Any = None,
    fit_rows: Predictions | None = None,
    shares_of_fit: Any = None,
    costs: Any = None,
    level: float = 0.95,
    force: bool = False,
    seed: int = 0,
) -> tuple[Calibrator, Adaptation]:
    """A calibrator for new class shares, and what is known about them; see `Calibrator.adapt`.

    Parameters
    ----------
    calibrator : Calibrator
        Fitted.
    rows : array, data frame or Predictions, optional
        New rows without labels, as `predict_proba` takes them. Labels of Predictions are not looked at.
    shares : sequence or mapping, optional
        The new shares, where they are known: nothing is estimated.
    fit_rows : Predictions, optional
        Labelled rows of the fit, or others of that time. With them it is tested whether label shift fits.
    shares_of_fit : sequence or mapping, optional
        The shares of the classes in the rows of the fit; by default the calibrator knows them.
    costs : array, optional
        The cost of each action (columns) for each class (rows): the expected cost is in the result.
    level : float
        Of the intervals.
    force : bool
        Adapt even where label shift is rejected.
    seed : int
        Of the replicates that intervals and the test are made of.

    Examples
    --------
    >>> import numpy as np
    >>> from refocal import TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(2, size=4000)
    >>> log_odds = rng.normal(3.0 * labels - 1.5, 1.0)
    >>> logits = np.stack([np.zeros(4000), 3.0 * log_odds], axis=1)
    >>> calibrator = TemperatureScaling().fit(logits, labels)
    >>> new = np.concatenate([logits[labels == 0], logits[labels == 1][:200]])
    >>> adapted, result = calibrator.adapt(new)
    >>> round(result.shares[1], 2), round(200 / len(new), 2)
    (0.1, 0.09)
    """
    function = f"{type(calibrator).__name__}.adapt"
    check_plain(calibrator, function)
    check_number(level, "level", function, above=0.0, below=1.0)
    old = _shares_of_fit(calibrator, fit_rows, shares_of_fit, function)
    names = tuple(str(name) for name in calibrator.classes_)
    if shares is not None:
        new = _as_shares(shares, "shares", calibrator, function)
        adapted = _adapted(calibrator, old, new)
        performance = None
        n_rows = 0
        if rows is not None:
            log_p = log_probabilities(adapted, rows, function)
            n_rows = len(log_p)
            performance = performance_of(log_p, _rows_of_fit(calibrator), costs, level, seed)
        known = tuple(new.tolist())
        return adapted, Adaptation(names, tuple(old.tolist()), known, known, known, level, n_rows, performance, None)
    if rows is None:
        expected = "rows without labels, or give the new shares with shares="
        raise ParameterError("rows", function, expected=expected, got="neither")
    rng = np.random.default_rng(seed)
    log_p = log_probabilities(calibrator, rows, function)
    p = np.exp(log_p)
    new = likely_shares(p, old)
    test = None
    if fit_rows is not None:
        reference = np.exp(log_probabilities(calibrator, fit_rows, function))
        test = label_shift_test(reference, labels_of(calibrator, fit_rows, function), p, old, rng)
    low, high, parameters = _share_intervals(log_p, old, new, _rows_of_fit(calibrator), level, rng)
    refused = ""
    adapted = _adapted(calibrator, old, new)
    if test is not None and test.rejects and not force:
        refused = (
            f"new class shares do not explain the new scores (p = {test.p_value:.3g}): something else has changed, and "
            "adapting could do harm. Label some rows, or say force=True."
        )
        adapted = calibrator
        warn(InputWarning(f"the calibrator is unchanged: {refused}", function=function))
    used = np.log(p) if refused else np.log(softmax(log_p + np.log(new / old)))
    replicates = None if refused else _replicated(log_p, parameters)
    performance = performance_of(used, _rows_of_fit(calibrator), costs, level, seed, replicates)
    result = Adaptation(
        classes=names,
        shares_of_fit=tuple(old.tolist()),
        shares=tuple(new.tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        level=level,
        n_rows=len(p),
        performance=performance,
        label_shift=test,
        refused=refused,
    )
    return adapted, result


def likely_shares(
    p: Matrix,
    old: Vector,
    weight: Vector | None = None,
    start: Vector | None = None,
    tolerance: float = TOLERANCE,
    prior: Vector | None = None,
) -> Vector:
    """The shares π of largest posterior: the fixed point of π = (Σ p' + C π⁰) / (N + C), p'_k ∝ p_k π_k/π⁰_k.

    >>> p = np.array([[0.9, 0.1], [0.8, 0.2], [0.9, 0.1], [0.2, 0.8]])
    >>> likely_shares(p, np.array([0.5, 0.5])).round(2)
    array([0.7, 0.3])
    """
    if weight is None:
        weight = np.ones(len(p))
    if prior is None:
        prior = PRIOR_ROWS * len(old) * old
    total = float(weight.sum()) + float(prior.sum())
    shares = old if start is None else start
    for _ in range(MOST_STEPS):
        ratio = shares / old
        evidence = p @ ratio
        proposed = (ratio * (p.T @ (weight / evidence)) + prior) / total
        change = float(np.max(np.abs(proposed - shares)))
        shares = proposed
        if change < tolerance:
            break
    return shares / float(shares.sum())


def label_shift_test(
    reference: Matrix, labels: Indices, p: Matrix, old: Vector, rng: np.random.Generator, n_draws: int = 99
) -> LabelShiftTest:
    """Chi-squared of binned scores: those of new rows, and of labelled rows weighted by π_k/π⁰_k.

    Its distribution if label shift holds is that of draws from the labelled rows, with the shares estimated again from
    each: half of these rows stand for the new ones, the others for those of the fit.
    """
    bins = _Bins(reference)
    place_of_reference = bins.of(reference)
    place = bins.of(p)
    n_classes = reference.shape[1]
    n = len(p)

    def statistic(new_place: Matrix, new_p: Matrix, known_place: Matrix, known_labels: Indices) -> float:
        counts = np.bincount(known_labels, minlength=n_classes)
        shares_known = np.maximum(counts, LEAST_ROWS) / np.maximum(counts, LEAST_ROWS).sum()
        shares = likely_shares(new_p, shares_known, start=start, tolerance=TOLERANCE_OF_REPLICATES)
        weight = (shares / shares_known)[known_labels]
        expected = weight @ known_place / weight.sum()
        observed = new_place.mean(axis=0)
        variance_known = weight**2 @ (known_place - expected) ** 2 / weight.sum() ** 2
        variance = expected * (1.0 - expected) / len(new_p) + variance_known + 1.0 / len(new_p) ** 2
        return float(np.sum((observed - expected) ** 2 / variance))

    start = likely_shares(p, old)
    observed = statistic(place, p, place_of_reference, labels)
    drawn = []
    by_class = [np.flatnonzero(labels == k) for k in range(n_classes)]
    present = np.array([len(members) > 1 for members in by_class])
    weights_of_classes = np.where(present, start, 0.0)
    weights_of_classes = weights_of_classes / weights_of_classes.sum()
    for _ in range(n_draws):
        # New rows and known ones share no row: each class is split at random.
        is_new = rng.random(len(labels)) < 0.5
        counts = rng.multinomial(n, weights_of_classes)
        chosen = []
        for k in np.flatnonzero(counts):
            members = by_class[k][is_new[by_class[k]]]
            members = members if len(members) else by_class[k]
            chosen.append(rng.choice(members, counts[k]))
        new_rows = np.concatenate(chosen)
        others = np.flatnonzero(~is_new)
        known = rng.choice(others, len(labels)) if len(others) else np.arange(len(labels))
        drawn.append(
            statistic(place_of_reference[new_rows], reference[new_rows], place_of_reference[known], labels[known])
        )
    p_value = float(1.0 + np.count_nonzero(np.array(drawn) >= observed)) / (1.0 + n_draws)
    return LabelShiftTest(p_value, observed, place.shape[1], p_value < LEVEL_OF_TEST)


class _Bins:
    """Bins of scores: predicted classes, and quantiles of the confidence; of two classes quantiles of p."""

    def __init__(self, reference: Matrix) -> None:
        self.n_classes = reference.shape[1]
        n_bins = 10
        score = reference[:, 1] if self.n_classes == 2 else reference.max(axis=1)
        self.edges = np.unique(np.quantile(score, np.arange(1, n_bins) / n_bins))
        predicted = np.bincount(reference.argmax(axis=1), minlength=self.n_classes)
        # Classes that are hardly predicted share a bin.
        self.common = np.flatnonzero(predicted >= 20)

    def of(self, p: Matrix) -> NDArray[np.float64]:
        """Which bins each row is in, (N, bins)."""
        score = p[:, 1] if self.n_classes == 2 else p.max(axis=1)
        index = np.searchsorted(self.edges, score, side="right")
        columns = [np.eye(len(self.edges) + 1)[index]]
        if self.n_classes > 2:
            columns.append((p.argmax(axis=1)[:, None] == self.common[None, :]).astype(np.float64))
        return np.concatenate(columns, axis=1)


@dataclass(frozen=True)
class _Replicates:
    """Errors of the calibration with the shares that go with them: a, b and log(π/π⁰)."""

    intercept: Matrix
    slope: Vector
    log_ratio: Matrix


def _share_intervals(
    log_p: Matrix, old: Vector, new: Vector, n_fit: float, level: float, rng: np.random.Generator
) -> tuple[Vector, Vector, _Replicates]:
    """Intervals of the shares by random weights of the rows, under replicates of the calibration."""
    p = np.exp(log_p)
    n, n_classes = p.shape
    # Rows of the fit, if label shift holds: those at hand, with this weight.
    weight_of_fit = 1.0 / (p @ (new / old))
    intercept, slope = replicate_parameters(log_p, weight_of_fit, n_fit, N_REPLICATES, rng)
    share = weight_of_fit / weight_of_fit.sum()
    shares = np.empty((N_REPLICATES, n_classes))
    log_ratio = np.empty((N_REPLICATES, n_classes))
    for i in range(N_REPLICATES):
        p_i = softmax((1.0 + slope[i]) * log_p + intercept[i])
        # The shares of the fit are the mean of its probabilities, which were calibrated there.
        old_i = share @ p_i
        old_i = np.maximum(old_i, 1e-12)
        old_i /= old_i.sum()
        # Random weights of rows and of the prior: a draw from about the posterior (Newton and Raftery 1994).
        weight = np.asarray(rng.exponential(size=n))
        prior = rng.gamma(PRIOR_ROWS * n_classes * old_i)
        shares[i] = likely_shares(p_i, old_i, weight, new, TOLERANCE_OF_REPLICATES, prior)
        log_ratio[i] = np.log(np.maximum(shares[i], 1e-12) / old_i)
    tail = 0.5 * (1.0 - level)
    low, high = np.quantile(shares, [tail, 1.0 - tail], axis=0)
    return np.minimum(low, new), np.maximum(high, new), _Replicates(intercept, slope, log_ratio)


def _replicated(log_p: Matrix, replicates: _Replicates) -> list[Matrix]:
    """The log-probabilities of the replicates, after their own adaptation."""
    scores = []
    for i in range(len(replicates.slope)):
        score = (1.0 + replicates.slope[i]) * log_p + replicates.intercept[i] + replicates.log_ratio[i]
        scores.append(np.log(np.maximum(softmax(score), 1e-300)))
    return scores


def _adapted(calibrator: Calibrator, old: Vector, new: Vector) -> Calibrator:
    """The calibrator with log(π/π⁰) added to its scores; its report has the new shares."""
    offset = np.log(np.maximum(new, 1e-12) / old)
    return followed_by(calibrator, (Offset(offset),), {"class_shares": new.tolist()})


def _rows_of_fit(calibrator: Calibrator) -> float:
    return float(calibrator.fit_report_.get("n_samples", 1_000))


def _shares_of_fit(calibrator: Calibrator, fit_rows: Any, given: Any, function: str) -> Vector:
    """The shares of the classes in the rows of the fit."""
    n_classes = len(calibrator.classes_)
    if given is not None:
        return _as_shares(given, "shares_of_fit", calibrator, function)
    if fit_rows is not None:
        if not isinstance(fit_rows, Predictions):
            expected = "Predictions, with their labels"
            raise ParameterError("fit_rows", function, expected=expected, got=type(fit_rows).__name__)
        labels = labels_of(calibrator, fit_rows, function)
        counts = np.bincount(labels, fit_rows.weights, n_classes)
        counts = np.maximum(counts, LEAST_ROWS)
        return np.asarray(counts / counts.sum())
    known = calibrator.fit_report_.get("class_shares")
    if known is None or len(known) != n_classes:
        expected = "given, or fit_rows: this calibrator does not know the class shares of its fit"
        raise ParameterError("shares_of_fit", function, expected=expected, got="neither")
    shares = np.maximum(np.array(known, dtype=np.float64), LEAST_ROWS / _rows_of_fit(calibrator))
    return np.asarray(shares / shares.sum())


def _as_shares(given: Any, argument: str, calibrator: Calibrator, function: str) -> Vector:
    """Shares of all classes, positive and of sum 1; a mapping has them by name."""
    names = [str(name) for name in calibrator.classes_]
    if isinstance(given, dict):
        by_name = {str(name): value for name, value in given.items()}
        if set(by_name) != set(names):
            raise ParameterError(
                argument, function, expected=f"of the classes {', '.join(names)}", got=str(list(by_name))
            )
        given = [by_name[name] for name in names]
    shares = np.asarray(given, dtype=np.float64)
    if shares.shape != (len(names),):
        raise ParameterError(argument, function, expected=f"{len(names)} numbers", got=f"shape {shares.shape}")
    if not np.all(shares > 0.0) or abs(float(shares.sum()) - 1.0) > 1e-3:
        raise ParameterError(argument, function, expected="positive numbers of sum 1", got=str(shares.tolist()))
    return np.asarray(shares / shares.sum())
