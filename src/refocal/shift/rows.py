"""Rows without labels, and the calibrators that can be followed by further steps."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from refocal._arrays import Matrix, to_numpy
from refocal.calibrators import Calibrator
from refocal.calibrators.class_order import order_of_columns
from refocal.errors import DataError, UnsupportedError
from refocal.maps.chain import Chain, Step
from refocal.rows import Predictions

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


def labels_of(calibrator: Calibrator, rows: Predictions, function: str) -> Any:
    """The labels of rows as positions of the calibrator's classes."""
    order = order_of_columns(calibrator, rows.class_names, function)
    return rows.labels if order is None else np.argsort(order)[rows.labels]


def check_plain(calibrator: Calibrator, function: str) -> None:
    """Refuse calibrators whose probabilities are not those of one chain for all rows."""
    has_chain = isinstance(getattr(calibrator, "chain_", None), Chain)
    if not has_chain or type(calibrator).predict_log_proba is not Calibrator.predict_log_proba:
        name = type(calibrator).__name__
        raise UnsupportedError(f"{function} needs a fitted calibrator that is one chain of steps; {name} is not.")


def followed_by(calibrator: Calibrator, steps: tuple[Step, ...], notes: dict[str, Any]) -> Calibrator:
    """The same calibrator with further steps behind its own, and notes in its report."""
    made = copy.copy(calibrator)
    made.chain_ = Chain((*calibrator.chain_.steps, *steps))
    made.fit_report_ = {**calibrator.fit_report_, **notes}
    return made
