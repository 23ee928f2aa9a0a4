"""Rows as the functions of this subpackage take them, and the calibrators that can be followed by further steps."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from refocal._arrays import Matrix, Vector, to_numpy
from refocal.calibrators import Calibrator, PredictionSets, VennAbersCalibration
from refocal.calibrators.class_order import named_classes
from refocal.engine.dataset import weight_unit
from refocal.errors import DataError, InputWarning, ParameterError, UnsupportedError, warn
from refocal.maps.chain import Chain, Step
from refocal.rows import Predictions
from refocal.rows.gate import Arguments, read_labelled

# Log-probabilities below this count as this: sums of them stay finite.
SMALLEST_LOG_P = -80.0


def log_probabilities(calibrator: Calibrator, rows: Any, function: str) -> Matrix:
    """The calibrated log-probabilities (N, C) of rows, whose labels, if any, are not looked at; float64."""
    check_plain(calibrator, function)
    log_p = np.asarray(to_numpy(calibrator.predict_log_proba(rows)), dtype=np.float64)
    log_p = log_p.reshape(-1, log_p.shape[-1])
    if len(log_p) == 0:
        raise DataError("X", function, expected="at least one row", got="none")
    return np.maximum(log_p, SMALLEST_LOG_P)


def labelled(calibrator: Calibrator, rows: Any, labels: Any, function: str) -> Predictions:
    """Rows with labels, which are matched with the names of the calibrator's classes, numbers too."""
    if isinstance(rows, Predictions):
        if labels is not None:
            expected = "left out where the rows are Predictions, which have their own"
            raise ParameterError("labels", function, expected=expected, got=type(labels).__name__)
        return rows
    if labels is None:
        raise ParameterError("labels", function, expected="given where the rows are no Predictions", got="None")
    names = Arguments("rows", "labels")
    return read_labelled(rows, labels, calibrator.input, names, function, class_names=named_classes(calibrator))


def weight_in_rows(rows: Predictions) -> Vector:
    """The weight of each row as a number of equal rows, as in fits: those of a mean below 1 have a mean of 1."""
    weight = rows.weights
    return weight * weight_unit(float(weight.sum()), len(weight))


def weight_of_unlabelled(rows: Any, function: str) -> Vector | None:
    """The weights of rows without labels; None where all count alike, as those of arrays do.

    Rows of one cluster are taken for independent ones, which is said.
    """
    if not isinstance(rows, Predictions):
        return None
    if rows.clusters is not None:
        warn(InputWarning("rows of one cluster count as independent: intervals are too narrow.", function=function))
    return rows.weight


def rows_of_fit(calibrator: Calibrator) -> float:
    """The number of rows that the calibrator was fitted on, or last updated with if it was updated.

    Weighted rows count as many as their weights are worth, (Σ w)² / Σ w²; those of a fit in blocks count one by one.

    >>> from refocal import TemperatureScaling
    >>> logits = np.random.default_rng(0).normal(size=(300, 2))
    >>> rows_of_fit(TemperatureScaling().fit(logits, np.arange(300) % 2))
    300.0
    """
    # Of calibrators that no rows were fitted to, as those from numbers alone.
    without_rows = 1_000.0
    report = calibrator.fit_report_
    n_updated = report.get("updated", {}).get("n_rows", 0.0)
    return float(n_updated or report.get("n_effective", 0.0) or report.get("n_samples", 0) or without_rows)


def without_weights_of_fit(calibrator: Calibrator, rows: Predictions) -> str:
    """A sentence on labelled rows without weights where those of the fit had some; empty otherwise.

    A fit in blocks does not tell. Weights that are all the same change nothing.

    >>> from refocal import TemperatureScaling
    >>> logits, labels = np.random.default_rng(0).normal(size=(300, 2)), np.arange(300) % 2
    >>> weighted = TemperatureScaling().fit(logits, labels, 1.0 + labels)
    >>> without_weights_of_fit(weighted, Predictions.from_logits(logits, labels)).split(":")[0]
    'the calibrator was fitted with weights, and these rows have none'
    """
    report = calibrator.fit_report_
    rounding = 1e-5  # of the number in the report
    is_weighted = 0.0 < report.get("n_effective", 0.0) < (1.0 - rounding) * report.get("n_samples", 0)
    if rows.weight is not None or not is_weighted:
        return ""
    return "the calibrator was fitted with weights, and these rows have none: shares are those of the rows as they are."


def check_plain(calibrator: Calibrator, function: str) -> None:
    """Refuse calibrators whose probabilities are not those of one chain for all rows."""
    has_chain = isinstance(getattr(calibrator, "chain_", None), Chain)
    if not has_chain or type(calibrator).predict_log_proba is not Calibrator.predict_log_proba:
        name = type(calibrator).__name__
        raise UnsupportedError(f"{function} needs a fitted calibrator that is one chain of steps; {name} is not.")


def check_changeable(calibrator: Calibrator, function: str) -> None:
    """Refuse also calibrators of which more than the chain would have to change."""
    check_plain(calibrator, function)
    if isinstance(calibrator, (PredictionSets, VennAbersCalibration)):
        kept = "threshold" if isinstance(calibrator, PredictionSets) else "interval"
        raise UnsupportedError(
            f"{function} is not possible: the {kept} of {type(calibrator).__name__} belongs to the old scores. Adapt "
            "or update the calibrator before it, and fit it again on labelled new rows."
        )


def followed_by(calibrator: Calibrator, steps: tuple[Step, ...], notes: dict[str, Any]) -> Calibrator:
    """The same calibrator with further steps behind its own, and notes in its report.

    The measures of its report, if it has any, stay those of the fit, and a sentence there says so.
    """
    made = copy.copy(calibrator)
    made.chain_ = Chain((*calibrator.chain_.steps, *steps))
    report = calibrator.fit_report_
    made.fit_report_ = {**report, **notes}
    if report.get("after"):
        sentence = "The measures are those of the fit, before the calibrator was adapted or updated."
        others = [known for known in report.get("sentences", ()) if known != sentence]
        made.fit_report_["sentences"] = [*others, sentence]
    return made
