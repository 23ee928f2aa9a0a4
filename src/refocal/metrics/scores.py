"""Scores that are means over samples: log-loss, Brier score, accuracy; and Spiegelhalter's test."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refocal._arrays import Indices, Vector, in_library_of, namespace, on_gpu, take_label, to_numpy, without_warnings
from refocal._validation import check_integer, check_option
from refocal.metrics.bins import Bins, check_binning, isotonic_fit, make_bins, norm_of_gaps
from refocal.metrics.inputs import (
    can_use_kernels,
    mean,
    read_log_probabilities,
    read_probabilities,
    row_sums,
    sum_tolerance,
)
from refocal.metrics.intervals import ShareSummary
from refocal.metrics.record import Metric
from refocal.rows import Predictions
from refocal.rows.labels import IgnoreIndex

__all__ = [
    "BrierDecomposition",
    "SpiegelhalterResult",
    "accuracy",
    "brier_decomposition",
    "brier_score",
    "log_loss",
    "spiegelhalter_test",
]


@dataclass(frozen=True)
class BrierDecomposition:
    """brier = calibration + refinement + within_bin, and refinement = uncertainty - resolution.

    `within_bin` is the spread of the probabilities inside the bins; it is 0 without bins. `calibration_by_chance` is
    the calibration part that a calibrated model would have on average on so many rows.

    >>> found = brier_decomposition([0, 1, 1, 1], [0.25, 0.75, 0.75, 1.0])
    >>> found.brier == found.calibration + found.refinement, found.uncertainty
    (True, 0.1875)
    """

    brier: float
    calibration: float
    refinement: float
    resolution: float
    uncertainty: float
    within_bin: float
    calibration_by_chance: float = math.nan


@dataclass(frozen=True)
class SpiegelhalterResult:
    """The standardised excess of the Brier score over its expectation, and its two-sided p-value.

    >>> found = spiegelhalter_test([0, 1, 1, 1] * 10, [0.3, 0.6, 0.7, 0.9] * 10)  # right more often than they say
    >>> round(found.z, 2), found.p_value < 0.001
    (-3.45, True)
    """

    z: float
    p_value: float


def log_loss(
    y_true: Any,
    log_probabilities: Any = None,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """Mean of -log p(label), in nats, from log-probabilities.

    Log-probabilities keep tails that probabilities round to 0, so the loss is infinite only if the model gave a
    label the log-probability -inf. Values of the shape of `y_true` are log p(1); then log p(0) = log(1 - p(1)),
    which has lost its digits where a model saturates: pass two columns instead.

    >>> log_loss([0, 1], np.log([[0.5, 0.5], [0.75, 0.25]])) == 1.5 * math.log(2)
    True
    """
    rows = read_log_probabilities(
        y_true, log_probabilities, sample_weight, "log_loss", ignore_index, class_names=classes
    )
    return mean(log_loss_terms(rows), rows.weight)


@without_warnings
def log_loss_terms(rows: Predictions) -> Vector:
    """-log p(label) of each row; `rows` holds log-probabilities."""
    if rows.binary:
        log_p = np.minimum(to_numpy(rows.values).astype(np.float64), 0.0)
        return np.asarray(-np.where(rows.labels == 1, log_p, np.log(-np.expm1(log_p))))
    return -_of_label(rows)


def brier_score(
    y_true: Any,
    probabilities: Any = None,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """Mean of Σ_k (p_k - [label = k])², between 0 and 2; of two classes of (p(1) - label)², between 0 and 1.

    >>> brier_score([0, 2], [[0.75, 0.25, 0.0], [0.0, 0.5, 0.5]])
    0.3125
    >>> brier_score([0, 1], [0.25, 0.5]), brier_score([0, 1], [[0.75, 0.25], [0.5, 0.5]])
    (0.15625, 0.15625)
    """
    if sample_weight is None and ignore_index is None and classes is None:
        score = _brier_on_gpu(y_true, probabilities)
        if score is not None:
            return score
    rows = read_probabilities(y_true, probabilities, sample_weight, "brier_score", ignore_index, class_names=classes)
    return mean(brier_terms(rows), rows.weight)


def _brier_on_gpu(labels: Any, p: Any) -> float | None:
    """`brier_score` of tensors on one GPU, which are read once and stay there; None if they are of another kind.

    Nor is there an answer where `read_probabilities` would refuse them: it says why.
    """
    if not (on_gpu(p) and on_gpu(labels) and labels.device == p.device):
        return None
    xp = namespace(p)
    is_plain = xp.isdtype(p.dtype, "real floating") and xp.isdtype(labels.dtype, "signed integer")
    if not is_plain or p.ndim != 2 or p.shape[1] < 3 or labels.shape != p.shape[:1] or len(p) == 0:
        return None
    if not can_use_kernels(p):
        return None
    from refocal.engine import triton_rows

    terms, sums, lowest = triton_rows.brier(p.detach(), labels)
    n_classes = p.shape[1]
    tolerance = sum_tolerance(float(xp.finfo(p.dtype).eps), n_classes)
    is_label = (labels >= 0) & (labels < n_classes)
    is_valid = is_label & (lowest >= 0.0) & ((sums - 1.0).abs() <= tolerance)
    return float(terms.mean()) if bool(is_valid.all()) else None


def brier_terms(rows: Predictions) -> Vector:
    """The squared distance of each row from its label."""
    if rows.binary:
        p, happened = rows.event_of_column(1)
        return np.square(p - happened)
    label_p = _of_label(rows)
    squares = np.asarray(to_numpy(row_sums(rows.values, 2)), dtype=np.float64)
    # Written so that a sure and right row scores exactly 0: (1-p)² + the squares of the others.
    return np.square(1.0 - label_p) + np.maximum(squares - np.square(label_p), 0.0)


def accuracy(
    y_true: Any,
    probabilities: Any = None,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> float:
    """Share of the rows whose largest probability is that of the label; of equal ones the lowest class counts.

    >>> accuracy([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]], sample_weight=[1, 1, 2])
    0.5
    """
    rows = read_probabilities(y_true, probabilities, sample_weight, "accuracy", ignore_index, class_names=classes)
    return mean(accuracy_terms(rows), rows.weight)


def accuracy_terms(rows: Predictions) -> Vector:
    """1 where the top class is the label, else 0."""
    return rows.top[1].astype(np.float64)


def brier_decomposition(
    y_true: Any,
    probabilities: Any = None,
    *,
    method: str = "isotonic",
    n_bins: int = 15,
    strategy: str = "quantile",
    n_simulations: int = 20,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> BrierDecomposition:
    """The part of the Brier score that better calibration could remove, and the rest.

    With ȳ the recalibrated probability of a sample and o the base rate, for each class and summed over classes:
    refinement = mean ȳ(1 - ȳ), uncertainty = o(1 - o), resolution = uncertainty - refinement. Method "isotonic"
    takes for ȳ the isotonic regression of the outcome on the probability (CORP) and calibration = brier -
    refinement ≥ 0. Method "binned" is Murphy's: ȳ is the mean outcome of the sample's bin, calibration the mean
    squared gap of the bins, and `within_bin` the remainder.

    Recalibration also fits noise, so that the calibration part is too high on few rows: `calibration_by_chance` is its
    mean over `n_simulations` draws of labels from the probabilities themselves, NaN for 0 of them.

    >>> parts = brier_decomposition([0, 1, 1, 1], [0.25, 0.25, 0.75, 0.75])
    >>> parts.brier, parts.calibration, parts.refinement
    (0.1875, 0.0625, 0.125)
    """
    function = "brier_decomposition"
    rows = read_probabilities(y_true, probabilities, sample_weight, function, ignore_index, class_names=classes)
    check_option(method, ("isotonic", "binned"), "method", function)
    check_binning(n_bins, strategy, function)
    check_integer(n_simulations, "n_simulations", function, least=0)
    decomposition = _decomposed(rows, method, n_bins, strategy)
    if n_simulations == 0:
        return decomposition
    generator = np.random.default_rng(0)
    by_chance = []
    for _ in range(n_simulations):
        simulated = replace(rows, labels=_drawn_labels(rows, generator))
        by_chance.append(_decomposed(simulated, method, n_bins, strategy).calibration)
    return replace(decomposition, calibration_by_chance=float(np.mean(by_chance)))


def _decomposed(rows: Predictions, method: str, n_bins: int, strategy: str) -> BrierDecomposition:
    """The decomposition of checked rows."""
    parts = np.zeros(3)
    for p, happened in rows.events([1] if rows.binary else range(rows.n_classes)):
        if method == "isotonic":
            bins = isotonic_fit(p, happened, rows.weight)
        else:
            bins = make_bins(p, happened, rows.weight, n_bins=n_bins, strategy=strategy)
        parts += murphy(bins)
    brier = mean(brier_terms(rows), rows.weight)
    calibration, refinement, uncertainty = (float(x) for x in parts)
    if method == "isotonic":
        calibration = brier - refinement
    within = brier - calibration - refinement if method == "binned" else 0.0
    return BrierDecomposition(brier, calibration, refinement, uncertainty - refinement, uncertainty, within)


def _drawn_labels(rows: Predictions, generator: np.random.Generator) -> Indices:
    """Labels drawn from the probabilities of the rows, which stay on their device."""
    values = rows.values
    threshold = in_library_of(values, generator.random(len(rows.labels)))
    if rows.binary:
        return np.asarray(to_numpy(threshold < values), dtype=np.int64)
    threshold = threshold * row_sums(values)
    labels = np.zeros(len(rows.labels), dtype=np.int64)
    cumulative = 0.0 * threshold
    for column in range(rows.n_classes - 1):
        cumulative = cumulative + values[:, column]
        labels += np.asarray(to_numpy(threshold >= cumulative), dtype=np.int64)
    return labels


def murphy(bins: Bins) -> tuple[float, float, float]:
    """Mean squared gap of the bins, their refinement, and the uncertainty of the outcome."""
    base = float(bins.share @ bins.rate)
    calibration = norm_of_gaps(bins, "l2") ** 2
    refinement = float(bins.share @ (bins.rate * (1.0 - bins.rate)))
    return calibration, refinement, base * (1.0 - base)


def spiegelhalter_test(
    y_true: Any,
    probabilities: Any = None,
    *,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    classes: Any = None,
) -> SpiegelhalterResult:
    """Spiegelhalter's test of calibration (1986), for any number of classes.

    Under calibration the Brier score of row i has mean 1 - Σ_k p_k² and variance 4(Σ_k p_k³ - (Σ_k p_k²)²), so
    z = Σ(brier - mean) / √(Σ variance) is about standard normal; large z is over-confidence, small z
    under-confidence. For two classes this is the classical Σ(y-p)(1-2p) / √(Σ(1-2p)² p(1-p)). Probabilities that leave
    nothing to chance have variance 0: then z is 0 if they came true and ±inf if not. With weights, which may depend on
    the label, z = Σ w excess / √(v Σ w variance) with excess = brier - mean and v = Σ w² excess² / Σ w excess².

    >>> spiegelhalter_test([0, 1, 0, 1], [0.2, 0.8, 0.3, 0.7]).p_value > 0.05
    True
    """
    rows = read_probabilities(
        y_true, probabilities, sample_weight, "spiegelhalter_test", ignore_index, class_names=classes
    )
    # The excess of each row's Brier score over its mean under calibration, and the variance of that score.
    if rows.binary:
        p, happened = rows.event_of_column(1)
        slope = 1.0 - 2.0 * p
        excesses = (happened - p) * slope
        variances = np.square(slope) * p * (1.0 - p)
    else:
        squares = to_numpy(row_sums(rows.values, 2))
        cubes = to_numpy(row_sums(rows.values, 3))
        excesses = 2.0 * (squares - _of_label(rows))
        variances = 4.0 * np.maximum(cubes - np.square(squares), 0.0)
    excess = float(rows.weights @ excesses)
    variance = float(rows.weights @ variances)
    # The weight of rows by what they add, v: it may depend on the label.
    squared_excesses = np.square(excesses) if excess else variances
    total = float(rows.weights @ squared_excesses)
    variance *= float(np.square(rows.weights) @ squared_excesses) / (total or 1.0)
    if variance > 0.0:
        z = excess / math.sqrt(variance)
    elif excess:
        z = math.copysign(math.inf, excess)
    else:
        z = 0.0
    return SpiegelhalterResult(z, math.erfc(abs(z) / math.sqrt(2.0)))


def _of_label(rows: Predictions) -> Vector:
    """The entry of each row that its label names."""
    return np.asarray(to_numpy(take_label(rows.values, rows.labels_on_device)), dtype=np.float64)


METRICS = (
    Metric(
        "log_loss",
        log_loss,
        "log-loss",
        terms=log_loss_terms,
        range=(0.0, math.inf),
        takes_logs=True,
        shown="with interval",
        column=(2, 1),
    ),
    Metric(
        "brier_score",
        brier_score,
        "Brier score",
        terms=brier_terms,
        range=(0.0, 2.0),
        range_of_two=(0.0, 1.0),
        shown="with interval",
        column=(3, 5),
    ),
    Metric(
        "accuracy",
        accuracy,
        "accuracy",
        terms=accuracy_terms,
        summary=lambda rows: ShareSummary.of(rows.top[1], rows.weight, rows.clusters),
        unit="%",
        lower_is_better=False,
        shown="with interval",
        column=(4, None),
    ),
    Metric(
        "brier_decomposition",
        brier_decomposition,
        "calibration part of the Brier score",
        of_rows=lambda rows, **options: brier_decomposition(rows, None, n_simulations=0, **options).calibration,
        range=(0.0, 2.0),
        range_of_two=(0.0, 1.0),
        raised_by_noise=True,
    ),
    Metric(
        "spiegelhalter_test",
        spiegelhalter_test,
        "Spiegelhalter's z",
        of_rows=lambda rows: spiegelhalter_test(rows, None).z,
        range=(-math.inf, math.inf),
        signed=True,
    ),
)
