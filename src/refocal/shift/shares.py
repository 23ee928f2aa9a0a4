"""New class shares from rows without labels, and the calibrator for them.

Under label shift the shares π⁰ of the classes change to π, and what the rows of a class look like does not. Then

    p'_k ∝ p_k π_k / π⁰_k

are the new probabilities, and the π of largest likelihood is a fixed point, π = mean p' (Saerens, Latinne and
Decaestecker 2002). A prior worth a row of each class holds π near π⁰, and the calibrator is adapted by no more than the
rows are evidence for. Whether label shift fits is tested: the labelled rows of the fit, weighted by π/π⁰, must have the
scores of the new rows.
"""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from refocal._arrays import Matrix, Vector, to_numpy
from refocal._validation import check_number, check_seed
from refocal.calibrators import Calibrator
from refocal.calibrators.class_order import labels_of, named_classes
from refocal.errors import InputWarning, ParameterError, warn
from refocal.maps.chain import Chain
from refocal.maps.steps import Offset
from refocal.rows import Predictions
from refocal.rows.gate import in_order_of_classes
from refocal.shift.belief import replicate_parameters, softmax
from refocal.shift.label_shift import LabelShiftTest, label_shift_test
from refocal.shift.likelihood import (
    TOLERANCE_OF_REPLICATES,
    ShareEvidence,
    effective_weight,
    likely_shares,
    share_evidence,
)
from refocal.shift.performance import Belief, Performance, excess_of_slope, performance_of, table_of_costs
from refocal.shift.rows import (
    check_changeable,
    followed_by,
    log_probabilities,
    rows_of_fit,
    weight_of_unlabelled,
    without_weights_of_fit,
)


@dataclass(frozen=True)
class Adaptation:
    """New class shares with intervals, what to expect with them, and whether they explain the rows.

    >>> from refocal import TemperatureScaling
    >>> logits = np.random.default_rng(0).normal(size=(300, 2))
    >>> calibrator = TemperatureScaling().fit(logits, np.arange(300) % 2)
    >>> _, result = calibrator.adapt(shares=[0.9, 0.1])
    >>> [round(share, 2) for share in result.shares_of_fit], result.shares
    ([0.5, 0.5], (0.9, 0.1))
    """

    classes: tuple[str, ...]
    """Their names, in the order of the shares."""
    shares_of_fit: tuple[float, ...]
    """Those of the calibrator's fit: the mean of its probabilities there."""
    shares: tuple[float, ...]
    """Those of the returned calibrator: what it was adapted to, or those of the fit where that was refused."""
    estimated: tuple[float, ...]
    """What the rows say the shares are if nothing else has changed, or those given: `shares` unless refused."""
    low: tuple[float, ...]
    """The lower ends of the intervals of the estimated shares."""
    high: tuple[float, ...]
    """The upper ends."""
    level: float
    """Of the intervals."""
    n_rows: int
    """The rows without labels."""
    performance: Performance | None
    """Of the returned calibrator on these rows; None where no rows were given."""
    label_shift: LabelShiftTest | None
    """None where the rows of the fit were not given."""
    evidence: ShareEvidence | None = None
    """For other shares than those of the fit: without it the calibrator stays as it was. None for known shares."""
    refused: str = ""
    """Why the calibrator was left as it was: something else than shares has changed. Empty otherwise."""

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

    The shares move from those of the fit only so far as the rows are evidence for others (`Adaptation.evidence`).

    Parameters
    ----------
    calibrator : Calibrator
        Fitted.
    rows : array, data frame or Predictions, optional
        New rows without labels, as `predict_proba` takes them. Labels of Predictions are not looked at; weights say
        how much each row counts, and all together are worth (Σ w)² / Σ w² rows.
    shares : sequence, mapping or Series, optional
        The new shares, where they are known: nothing is estimated.
    fit_rows : Predictions, optional
        Labelled rows of the fit, with its weights, or others of that time. With them it is tested whether label shift
        fits, and of a calibrator that was adapted before, it is the one that was fitted that is adapted.
    shares_of_fit : sequence, mapping or Series, optional
        The shares that the probabilities stand for, their mean over the rows of the fit; by default those of
        `fit_rows`, or what the calibrator knows.
    costs : array, optional
        The cost of each action (columns) for each class (rows), as for `decide.best_actions`: the result has what is
        expected.
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
    check_changeable(calibrator, function)
    check_number(level, "level", function, above=0.0, below=1.0)
    check_seed(seed, function)
    present = calibrator
    if fit_rows is not None:
        # On these rows an adapted calibrator is off, by as much as shares have changed since: a second adaptation takes
        # the place of the first.
        calibrator = _before_adaptation(calibrator)
    known = _shares_of_fit(calibrator, fit_rows, shares_of_fit, function)
    request = _Request(function, table_of_costs(costs, calibrator, function), level, seed)
    if shares is not None:
        new = _as_shares(shares, "shares", calibrator, function)
        return _adapt_to_known(calibrator, rows, known, new, request)
    if rows is None:
        expected = "rows without labels, or give the new shares with shares="
        raise ParameterError("rows", function, expected=expected, got="neither")
    return _adapt_to_rows(calibrator, present, rows, fit_rows, known, force, request)


@dataclass(frozen=True)
class _Request:
    """What is asked of a result, besides the shares."""

    function: str
    """As errors and warnings call it."""
    costs: Matrix | None
    level: float
    seed: int


def _adapt_to_known(
    calibrator: Calibrator, rows: Any, known: _SharesOfFit, new: Vector, request: _Request
) -> tuple[Calibrator, Adaptation]:
    """The calibrator for new shares that are known, and its performance on rows if there are any."""
    old = known.values
    adapted = _adapted(calibrator, known, new)
    performance = None
    n_rows = 0
    if rows is not None:
        log_p = log_probabilities(adapted, rows, request.function)
        n_rows = len(log_p)
        weight = weight_of_unlabelled(rows, request.function)
        n_fit = rows_of_fit(calibrator)
        performance = performance_of(
            log_p, n_fit, request.costs, request.level, request.seed, weight=weight, excess=known.excess
        )
    shares = tuple(new.tolist())
    result = Adaptation(
        classes=_names(calibrator),
        shares_of_fit=tuple(old.tolist()),
        shares=shares,
        estimated=shares,
        low=shares,
        high=shares,
        level=request.level,
        n_rows=n_rows,
        performance=performance,
        label_shift=None,
    )
    return adapted, result


def _adapt_to_rows(
    calibrator: Calibrator,
    present: Calibrator,
    rows: Any,
    fit_rows: Predictions | None,
    known: _SharesOfFit,
    force: bool,
    request: _Request,
) -> tuple[Calibrator, Adaptation]:
    """The calibrator for the shares that rows without labels are evidence for; the present one where that is refused.

    The present one is the calibrator itself, or an adaptation of it.
    """
    rng = np.random.default_rng(request.seed)
    old = known.values
    log_p = log_probabilities(calibrator, rows, request.function)
    weight = effective_weight(weight_of_unlabelled(rows, request.function), len(log_p))
    p = np.exp(log_p)
    n_fit = rows_of_fit(calibrator)
    likeliest = likely_shares(p, old, weight)
    evidence = share_evidence(p, old, likeliest, known.n_rows, weight)
    estimated = old + evidence.weight * (likeliest - old)
    test = None
    if fit_rows is not None:
        reference = np.exp(log_probabilities(calibrator, fit_rows, request.function))
        labels = labels_of(calibrator, fit_rows, request.function)
        test = label_shift_test(reference, labels, p, rng, weight_known=fit_rows.weight, weight_new=weight)
    low, high, replicates = _share_intervals(log_p, weight, known, likeliest, n_fit, request.level, rng)
    refused = "" if test is None or force else _refusal(test, _names(calibrator))
    if refused:
        warn(InputWarning(f"the calibrator is unchanged: {refused}", function=request.function))
        adapted = present
        shares = old if present is calibrator else np.array(present.fit_report_["class_shares"])
        used = log_p if present is calibrator else log_probabilities(present, rows, request.function)
        belief = None
    else:
        adapted = _adapted(calibrator, known, estimated) if evidence.weight > 0.0 else calibrator
        shares = estimated
        log_ratio = np.log(estimated / old)
        used = np.log(softmax(log_p + log_ratio))
        belief = _belief(log_p, replicates, log_ratio, np.log(likeliest / old))
    result = Adaptation(
        classes=_names(calibrator),
        shares_of_fit=tuple(old.tolist()),
        shares=tuple(shares.tolist()),
        estimated=tuple(estimated.tolist()),
        low=tuple(np.minimum(low, estimated).tolist()),
        high=tuple(np.maximum(high, estimated).tolist()),
        level=request.level,
        n_rows=len(p),
        performance=performance_of(
            used,
            n_fit,
            request.costs,
            request.level,
            request.seed,
            belief=belief,
            weight=weight,
            excess=known.excess,
        ),
        label_shift=test,
        evidence=evidence,
        refused=refused,
    )
    return adapted, result


def _refusal(test: LabelShiftTest, classes: tuple[str, ...]) -> str:
    """Why the calibrator stays as it was; empty where label shift is not rejected."""
    if not test.rejects:
        return ""
    why = f"p = {test.p_value:.3g}"
    if test.gone is not None:
        why = f"class {classes[test.gone]} would have no rows at all"
    return (
        f"new class shares do not explain the new scores ({why}): something else has changed, and "
        "adapting could do harm. Label some rows, or say force=True."
    )


def _names(calibrator: Calibrator) -> tuple[str, ...]:
    return tuple(str(name) for name in calibrator.classes_)


@dataclass(frozen=True)
class _Replicates:
    """Errors of the calibration with the shares that go with them: a, b and log(π/π⁰)."""

    intercept: Matrix
    slope: Vector
    log_ratio: Matrix


def _share_intervals(
    log_p: Matrix,
    weight_of_row: Vector,
    known: _SharesOfFit,
    likeliest: Vector,
    n_fit: float,
    level: float,
    rng: np.random.Generator,
) -> tuple[Vector, Vector, _Replicates]:
    """Intervals of the shares by random weights of the rows, under replicates of the calibration.

    The prior has no part in them, since it moves the shares towards those of the fit and not towards the truth. If no
    classes overlap, then c of N rows of a class have about Beta(c, N - c) for replicates s of its share. Clopper and
    Pearson's ends are the quantiles of Beta(c, N - c + 1) and Beta(c + 1, N - c): a row more, g ~ Exp(1), of the other
    classes, N s / (N + g), and of this one, (N s + g) / (N + g). Of two classes the intervals are complements.
    """
    n_replicates = 200
    # The prior in rows for each class that remains, next to nothing: likelihoods have maxima without shares of zero.
    prior_rows = 0.02
    p = np.exp(log_p)
    n, n_classes = p.shape
    n_effective = float(weight_of_row.sum())
    # Rows of the fit, if label shift holds: those at hand, with this weight.
    weight_of_fit = weight_of_row / (p @ (likeliest / known.values))
    intercept, slope = replicate_parameters(log_p, weight_of_fit, n_fit, n_replicates, rng, known.excess)
    share_of_fit = weight_of_fit / weight_of_fit.sum()
    shares = np.empty((n_replicates, n_classes))
    log_ratio = np.empty((n_replicates, n_classes))
    for i in range(n_replicates):
        p_i = softmax((1.0 + slope[i]) * log_p + intercept[i])
        # The shares of the fit are the mean of its probabilities over its rows, which are a sample too. Where classes
        # overlap that is most of their error: an error of the intercepts moves p and π⁰ together.
        old_i = rng.multinomial(round(known.n_rows), share_of_fit) @ p_i
        old_i = np.maximum(old_i, 1e-12)
        old_i /= old_i.sum()
        # Random weights of rows: a draw from about the posterior (Newton and Raftery 1994).
        weight = weight_of_row * np.asarray(rng.exponential(size=n))
        prior = prior_rows * n_classes * old_i
        shares[i] = likely_shares(p_i, old_i, weight, likeliest, TOLERANCE_OF_REPLICATES, prior)
        log_ratio[i] = np.log(np.maximum(shares[i], 1e-12) / old_i)
    tail = 0.5 * (1.0 - level)
    row_more = rng.exponential(size=(n_replicates, 1))
    low = np.quantile(n_effective * shares / (n_effective + row_more), tail, axis=0)
    high = np.quantile((n_effective * shares + row_more) / (n_effective + row_more), 1.0 - tail, axis=0)
    return low, high, _Replicates(intercept, slope, log_ratio)


def _belief(log_p: Matrix, replicates: _Replicates, log_ratio: Vector, log_ratio_of_likeliest: Vector) -> Belief:
    """What the probabilities of the rows may be: draws of the replicates, their mean, and that of the likeliest shares.

    The mean is over errors of the calibration, with the shares adapted to: those of the replicates have an error of
    their own, which makes 100 classes look worse on average than they are.
    """
    n_replicates = len(replicates.slope)

    def probabilities(i: int, ratio: Vector) -> Matrix:
        return softmax((1.0 + replicates.slope[i]) * log_p + replicates.intercept[i] + ratio)

    mean = np.zeros_like(log_p)
    of_likeliest = np.zeros_like(log_p)
    for i in range(n_replicates):
        mean += probabilities(i, log_ratio) / n_replicates
        of_likeliest += probabilities(i, log_ratio_of_likeliest) / n_replicates
    draws = (probabilities(i, replicates.log_ratio[i]) for i in range(n_replicates))
    return Belief(draws, mean, of_likeliest)


# What an adaptation writes into the report of a calibrator; what was there before is kept under the other name.
_NOTES_OF_ADAPTATION = ("class_shares", "mean_probabilities", "sentences")
_BEFORE_ADAPTATION = "before_adaptation"


def _adapted(calibrator: Calibrator, known: _SharesOfFit, new: Vector) -> Calibrator:
    """The calibrator with log(π/π⁰) added to its scores; its report has the new shares, and the slope that it had.

    The offset of an earlier adaptation is added to this one, so that both are a single step.
    """
    offset = np.log(np.maximum(new, 1e-12) / known.values)
    fitted = _before_adaptation(calibrator)
    if fitted is not calibrator:
        offset = offset + calibrator.chain_.steps[-1].find(Offset, "offset")
    shares = new.tolist()
    report = fitted.fit_report_
    means = {**report.get("mean_probabilities", {}), "n_rows": known.n_rows, "values": shares}
    before = {name: report[name] for name in _NOTES_OF_ADAPTATION if name in report}
    notes = {"class_shares": shares, "mean_probabilities": means, _BEFORE_ADAPTATION: before}
    return followed_by(fitted, (Offset(offset),), notes)


def _before_adaptation(calibrator: Calibrator) -> Calibrator:
    """The calibrator without the offset of its adaptations; the same object if it was not adapted."""
    report = calibrator.fit_report_
    if _BEFORE_ADAPTATION not in report:
        return calibrator
    made = copy.copy(calibrator)
    made.chain_ = Chain(calibrator.chain_.steps[:-1])
    others = {name: note for name, note in report.items() if name not in (*_NOTES_OF_ADAPTATION, _BEFORE_ADAPTATION)}
    made.fit_report_ = {**others, **report[_BEFORE_ADAPTATION]}
    return made


@dataclass(frozen=True)
class _SharesOfFit:
    """The shares π⁰ that the probabilities stand for, as a mean over so many rows."""

    values: Vector
    n_rows: float
    excess: float
    """Of `excess_of_slope`."""


def _shares_of_fit(calibrator: Calibrator, fit_rows: Any, given: Any, function: str) -> _SharesOfFit:
    """The means of the calibrated probabilities over the rows of the fit.

    With intercepts that are fitted freely they are the shares of the labels. Without them p_k/π⁰_k is nearer to what
    the rows of a class look like, up to a factor, with the shares that p itself has: an error of π⁰ alone is multiplied
    where classes overlap.
    """
    n_fit = rows_of_fit(calibrator)
    n_classes = len(calibrator.classes_)
    means = calibrator.fit_report_.get("mean_probabilities", {})
    excess = excess_of_slope(calibrator)
    if given is not None:
        return _SharesOfFit(_as_shares(given, "shares_of_fit", calibrator, function), n_fit, excess)
    if fit_rows is not None:
        if not isinstance(fit_rows, Predictions):
            expected = "Predictions, with their labels"
            raise ParameterError("fit_rows", function, expected=expected, got=type(fit_rows).__name__)
        if problem := without_weights_of_fit(calibrator, fit_rows):
            warn(InputWarning(f"'fit_rows': {problem}", function=function))
        weight = effective_weight(fit_rows.weight, len(fit_rows))
        n_rows = float(weight.sum())
        sums = weight @ np.exp(log_probabilities(calibrator, fit_rows, function))
        return _SharesOfFit(_positive(sums, n_rows), n_rows, excess)
    if len(means.get("values", [])) == n_classes:
        n_rows = float(means["n_rows"])
        return _SharesOfFit(_positive(np.array(means["values"], dtype=np.float64), n_rows), n_rows, excess)
    # Files of earlier versions have the shares of the labels alone.
    of_labels = calibrator.fit_report_.get("class_shares")
    if of_labels is None or len(of_labels) != n_classes:
        expected = "given, or fit_rows: this calibrator does not know the class shares of its fit"
        raise ParameterError("shares_of_fit", function, expected=expected, got="neither")
    return _SharesOfFit(_positive(np.array(of_labels, dtype=np.float64), n_fit), n_fit, excess)


def _positive(means: Vector, n_rows: float) -> Vector:
    """Shares of sum 1, none of them 0: a class that no row has has half a row."""
    least_rows = 0.5
    shares = means / means.sum()
    shares = np.maximum(shares, least_rows / n_rows)
    return np.asarray(shares / shares.sum())


def _as_shares(given: Any, argument: str, calibrator: Calibrator, function: str) -> Vector:
    """Shares of all classes, positive and of sum 1; a mapping or a Series has them by class."""
    names = named_classes(calibrator) or [str(name) for name in calibrator.classes_]
    shares = np.asarray(to_numpy(in_order_of_classes(given, names, argument, function)), dtype=np.float64)
    if shares.shape != (len(names),):
        raise ParameterError(argument, function, expected=f"{len(names)} numbers", got=f"shape {shares.shape}")
    if not np.all(shares > 0.0) or abs(float(shares.sum()) - 1.0) > 1e-3:
        raise ParameterError(argument, function, expected="positive numbers of sum 1", got=str(shares.tolist()))
    return np.asarray(shares / shares.sum())
