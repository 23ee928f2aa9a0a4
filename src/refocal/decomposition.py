"""How much of a log-loss recalibration removes, and how much is there to stay."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from refocal._arrays import Indices, Matrix, Vector, as_floating, to_numpy
from refocal._validation import check_integer, check_number, check_seed
from refocal.calibrators import AutoCalibration, Calibrator, FocalTemperatureScaling, TemperatureScaling
from refocal.engine import Block
from refocal.errors import FitWarning, ParameterError, Remedy
from refocal.fitting.folds import folds
from refocal.maps import log_softmax
from refocal.metrics.influence import variance_of_mean
from refocal.metrics.inputs import check_alone, check_level, mean
from refocal.metrics.intervals import Interval, MeanSummary
from refocal.metrics.scores import log_loss_terms
from refocal.rows import Predictions
from refocal.rows.gate import Arguments, read_labelled
from refocal.rows.labels import IgnoreIndex
from refocal.rows.predictions import probability_rows

__all__ = ["LogLossDecomposition", "RefinedStopping", "log_loss_decomposition", "refined_log_loss"]

BY = {
    "auto": AutoCalibration(),
    "temperature": TemperatureScaling(),
    "fts": FocalTemperatureScaling(objective="nll"),
}


class LogLossDecomposition(NamedTuple):
    """total = calibration + refinement: what recalibration removes, and what it cannot.

    >>> parts = LogLossDecomposition(total=0.9, calibration=0.2, refinement=0.7)
    >>> parts.calibration / parts.total  # the share that a calibrator can remove
    0.22222222222222224
    """

    total: float
    calibration: float
    refinement: float
    calibration_interval: Interval | None = None
    """The interval of the calibration part, from what calibrators save on rows they have not seen to what one saves on
    those it has. With clusters it is that of the clusters."""


def log_loss_decomposition(
    y_true: Any,
    logits: Any = None,
    *,
    by: str | Calibrator = "auto",
    cv: int = 5,
    sample_weight: Any = None,
    ignore_index: IgnoreIndex = None,
    seed: int = 0,
    level: float = 0.95,
    clusters: Any = None,
) -> LogLossDecomposition:
    """Log-loss split into the part that a recalibration removes and the rest (Berta et al. 2025).

    The refinement is the log-loss after recalibration, each row predicted by a calibrator fitted on the other folds,
    which hold equal shares of every class and do not depend on the order of the rows; the calibration part is what that
    saved, and can be slightly negative on calibrated predictions. It is what a calibrator finds, a lower bound of all
    miscalibration: `by` is "auto" (`AutoCalibration`), "temperature", "fts" (focal temperature scaling by log-loss) or
    any calibrator, and temperature scaling alone finds half where classes are off separately. Log-probabilities do as
    logits.

    The interval reaches from the lower end of what the calibrators saved on the rows left out, which is too little as
    they are fitted on fewer rows than there are, to the upper end of what one saves that has seen all rows, which is
    too much (benchmarks/results/interval_coverage.md has its coverage). Rows of one of the `clusters`, such as a
    customer or a day, stay in one fold, and the interval is that of independent clusters.

    >>> rng = np.random.default_rng(0)
    >>> logits = 2.0 * rng.normal(size=(5000, 4))
    >>> y = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> found = log_loss_decomposition(y, 3.0 * logits)
    >>> round(found.calibration, 1), abs(log_loss_decomposition(y, logits).calibration) < 3e-3
    (0.4, True)
    >>> found.calibration_interval.low > 0.35
    True
    """
    name = "log_loss_decomposition"
    if isinstance(y_true, Predictions):
        check_alone(y_true, name, logits=logits, sample_weight=sample_weight, ignore_index=ignore_index)
        checked = y_true if clusters is None else y_true.with_clusters(clusters)
    else:
        names = Arguments("logits", "y_true", "sample_weight")
        options = {"weight": sample_weight, "ignore_index": ignore_index, "clusters": clusters}
        checked = read_labelled(logits, y_true, "logits", names, name, own=(Remedy.IGNORE_INDEX,), **options)
    labels = checked.labels
    weight = checked.weight
    rows = to_numpy(as_floating(checked.logits, "logits", name)[0])
    calibrator = _calibrator_of(by, name)
    n_clusters = None if checked.clusters is None else len(np.unique(checked.clusters))
    check_integer(cv, "cv", name, least=2, most=len(rows) if n_clusters is None else n_clusters)
    check_level(level, name)
    check_seed(seed, name)
    if checked.clusters is None:
        fold = folds(Block(rows, labels), cv, seed)
    else:
        fold = _folds_of_clusters(checked.clusters, cv, seed)
    log_p = _predictions_left_out(calibrator, rows, labels, weight, fold, cv)
    of_all = clone(calibrator).fit(rows, labels, weight)

    def losses(log_probabilities: Any) -> MeanSummary:
        terms = log_loss_terms(probability_rows(labels, log_probabilities, weight, "log-probabilities"))
        return MeanSummary(mean(terms, weight), terms, weight, checked.clusters, (0.0, math.inf))

    before = losses(log_softmax(rows))
    after = losses(log_p)
    left_out = before.minus(after, level=level)
    seen = before.minus(losses(of_all.predict_log_proba(rows)), level=level)
    calibration = before.value - after.value
    return LogLossDecomposition(
        total=before.value,
        calibration=calibration,
        refinement=after.value,
        calibration_interval=Interval(
            value=calibration,
            low=min(left_out.low, seen.low),
            high=max(left_out.high, seen.high),
            level=level,
            standard_error=math.sqrt(variance_of_mean(before.terms - after.terms, weight, checked.clusters)),
            bias=0.0,
            n_resamples=0,
        ),
    )


def _calibrator_of(by: Any, function: str) -> Calibrator:
    """The calibrator of logits that `by` names, or is."""
    calibrator = BY.get(by) if isinstance(by, str) else by
    if not isinstance(calibrator, Calibrator):
        words = ", ".join(repr(word) for word in BY)
        raise ParameterError("by", function, expected=f"one of {words}, or a calibrator", got=repr(by))
    if calibrator.input == "probabilities":
        raise ParameterError("by", function, expected="a calibrator of logits, which it is given", got=repr(by))
    return calibrator


def _predictions_left_out(
    calibrator: Calibrator, logits: Matrix, labels: Indices, weight: Vector | None, fold: Indices, n_folds: int
) -> Matrix:
    """Log-probabilities (N, C), each row predicted by a calibrator fitted on the other folds."""
    log_p = np.empty_like(logits)
    for i in range(n_folds):
        held_out = fold == i
        train = ~held_out
        weight_of_train = None if weight is None else weight[train]
        fitted = clone(calibrator).fit(logits[train], labels[train], weight_of_train)
        log_p[held_out] = fitted.predict_log_proba(logits[held_out])
    return log_p


def _folds_of_clusters(clusters: Indices, n_folds: int, seed: int) -> Indices:
    """A random fold for each cluster, as the fold of each of its rows: a calibrator has seen none of those it predicts.

    Folds have the same number of clusters, or one more.
    """
    names, number = np.unique(clusters, return_inverse=True)
    fold_of_cluster = np.random.default_rng(seed).permutation(len(names)) % n_folds
    fold: Indices = fold_of_cluster[number]
    return fold


def refined_log_loss(
    y_true: Any,
    probabilities: Any = None,
    *,
    input: str = "probabilities",  # noqa: A002
    by: str | Calibrator = "auto",
    cv: int = 5,
    sample_weight: Any = None,
    seed: int = 0,
) -> float:
    """The log-loss that is left after recalibration, cross-fitted: what to stop training by (Berta et al. 2025).

    A network or booster that is calibrated afterwards should be stopped where this is least, which is later than where
    the log-loss is: over-confidence of the last epochs is removed, what they learnt stays. It is the `refinement` of
    `log_loss_decomposition`, for probabilities or, with `input="logits"`, logits; of two classes that of class 1 is
    enough. It is a metric of scikit-learn's form, as boosters take them, and `RefinedStopping` stops loops by it.

    >>> rng = np.random.default_rng(0)
    >>> logits = 2.0 * rng.normal(size=(2000, 3))
    >>> y = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    >>> honest, too_sure = (refined_log_loss(y, factor * logits, input="logits", by="temperature") for factor in (1, 5))
    >>> abs(honest - too_sure) < 0.001
    True
    """
    name = "refined_log_loss"
    rows = y_true
    if isinstance(y_true, Predictions):
        check_alone(y_true, name, probabilities=probabilities, sample_weight=sample_weight)
    else:
        names = Arguments("probabilities", "y_true", "sample_weight")
        options: dict[str, Any] = {"weight": sample_weight, "several_axes": True}
        rows = read_labelled(probabilities, y_true, input, names, name, **options)
    return _without_fit_warnings(rows, by, cv, seed).refinement


def _without_fit_warnings(rows: Predictions, by: str | Calibrator, cv: int, seed: int) -> LogLossDecomposition:
    """The parts of a log-loss in training, where it is no news that a fit helps little."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        return log_loss_decomposition(rows, by=by, cv=cv, seed=seed)


class RefinedStopping:
    """Early stopping by `refined_log_loss`: for loops, and for callbacks of trainers.

    After each epoch `update` takes a validation set and says whether the epoch is the best so far, so that its weights
    should be kept; `should_stop` says whether `patience` epochs have passed since then. `history` has the parts of the
    log-loss of every epoch. The rows have been seen: report figures of a calibrator on others.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(2000, 3))
    >>> y = np.argmax(truth + rng.gumbel(size=truth.shape), axis=1)
    >>> stopping = RefinedStopping(patience=2, by="temperature")
    >>> for noise in (2.0, 1.0, 0.5, 1.0, 1.5, 2.0):  # ever surer, and worse from the fourth epoch on
    ...     logits = (len(stopping.history) + 1) * (truth + noise * rng.normal(size=truth.shape))
    ...     is_best = stopping.update(y, logits)
    ...     if stopping.should_stop:
    ...         break
    >>> stopping.best_epoch, len(stopping.history)
    (2, 5)
    """

    def __init__(
        self,
        *,
        patience: int = 5,
        min_delta: float = 0.0,
        by: str | Calibrator = "auto",
        cv: int = 5,
        seed: int = 0,
    ) -> None:
        self.patience = check_integer(patience, "patience", "RefinedStopping")
        self.min_delta = check_number(min_delta, "min_delta", "RefinedStopping", least=0.0)
        self.by = by
        self.cv = cv
        self.seed = check_seed(seed, "RefinedStopping")
        self.history: list[LogLossDecomposition] = []
        self.best_epoch = -1

    def update(self, y_true: Any, logits: Any = None) -> bool:
        """Take in the validation set of an epoch, labels and logits or Predictions; whether it is the best so far."""
        rows = y_true
        if isinstance(y_true, Predictions):
            check_alone(y_true, "RefinedStopping.update", logits=logits)
        else:
            names = Arguments("logits", "y_true", "sample_weight")
            rows = read_labelled(logits, y_true, "logits", names, "RefinedStopping.update")
        parts = _without_fit_warnings(rows, self.by, self.cv, self.seed)
        is_best = self.best_epoch < 0 or parts.refinement < self.best - self.min_delta
        self.history.append(parts)
        if is_best:
            self.best_epoch = len(self.history) - 1
        return is_best

    @property
    def best(self) -> float:
        """The least refined log-loss so far; infinite before the first epoch."""
        return math.inf if self.best_epoch < 0 else self.history[self.best_epoch].refinement

    @property
    def should_stop(self) -> bool:
        """Whether `patience` epochs have passed without a better one."""
        return len(self.history) - 1 - self.best_epoch >= self.patience and self.best_epoch >= 0
