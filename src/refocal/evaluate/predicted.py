"""Log-probabilities of calibrators, or of the model itself, on rows to be measured."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, as_floating, to_numpy
from refocal._groups import Groups
from refocal.calibrators import Calibrator, GroupCalibration
from refocal.calibrators.class_order import InOrder
from refocal.engine import Block
from refocal.engine.apply import probabilities_of
from refocal.evaluate.provenance import RunNote
from refocal.maps.chain import Chain
from refocal.metrics.record import Metric
from refocal.rows import Predictions
from refocal.rows.predictions import probability_rows
from refocal.rows.scores import as_logits, model_log_probabilities

Methods = Mapping[str, Calibrator | InOrder | None]
"""Calibrators by their names, and None for the model as it is."""


class Predicted(NamedTuple):
    """Predictions for some rows: `rows` has their probabilities, for two classes those of class 1, `logs` the logs."""

    rows: Predictions
    logs: Predictions

    @classmethod
    def by(cls, log_p: NDArray[Any], rows: Predictions | Block) -> Predicted:
        """The predictions with these log-probabilities, for checked rows."""
        labels = to_numpy(rows.labels)
        logs = probability_rows(labels, log_p, rows.weight, "log-probabilities", rows.clusters)
        probabilities = probability_rows(labels, np.exp(log_p), rows.weight, clusters=rows.clusters).of_positive()
        return cls(probabilities, logs)

    def of(self, metric: Metric) -> Predictions:
        """The rows or the logs, whichever the metric takes."""
        return self.logs if metric.takes_logs else self.rows


class ZerosAtLabels(NamedTuple):
    """The rows to whose labels the model as it is gives a probability of 0, which counts as a machine epsilon."""

    n_rows: int
    cost: float
    """Σ w log(1 / ε) over these rows, their part of the sum that the log-loss is the mean of."""
    counted_as: float
    """The machine epsilon ε of the precision of the probabilities."""

    @classmethod
    def of(cls, log_p: NDArray[Any], rows: Predictions | Block) -> ZerosAtLabels:
        """Those among some rows, with the log-probabilities that were made of the model's probabilities."""
        counted_as = float(np.finfo(log_p.dtype).eps)
        of_label = np.take_along_axis(log_p, to_numpy(rows.labels)[:, None], axis=1)[:, 0]
        weight = to_numpy(rows.weights)
        # A row has been divided by its sum since.
        is_zero = (of_label < np.log(counted_as) + 1e-3) & (weight > 0.0)
        return cls(int(np.count_nonzero(is_zero)), -float(weight[is_zero] @ of_label[is_zero]), counted_as)

    def merge(self, other: ZerosAtLabels) -> ZerosAtLabels:
        """Those of the rows of both."""
        counted_as = max(self.counted_as, other.counted_as)
        return ZerosAtLabels(self.n_rows + other.n_rows, self.cost + other.cost, counted_as)

    def note(self, weight: float) -> dict[str, str]:
        """What must be said of rows of this weight together; nothing where no label has a probability of 0."""
        if self.n_rows == 0:
            return {}
        rows = "1 row has" if self.n_rows == 1 else f"{self.n_rows:,} rows have"
        epsilon = f"{self.counted_as:.1e}"
        text = (
            f"{rows} a probability of 0, or below {epsilon}, at the label: counted as {epsilon}, such rows "
            f"add {self.cost / weight:.4f} to the log-loss without calibration."
        )
        return {RunNote.ZEROS: text}


def log_proba(predictions: Predictions, calibrator: Calibrator | InOrder | None) -> NDArray[Any]:
    """Log-probabilities of a calibrator, or of the model itself, in float32 or float64.

    Predictions have been checked when they were made, and are not checked again.
    """
    predictions = predictions.in_columns()
    if calibrator is None and predictions.input == "probabilities":
        return log_proba_of_model(model_log_probabilities(predictions.values))
    takes_probabilities = calibrator is not None and calibrator.input == "probabilities"
    if predictions.input == "probabilities":  # each calibrator of probabilities has a floor of its own for zeros
        to_logs = partial(as_logits, kind="probabilities") if takes_probabilities else model_log_probabilities
        logits = to_logs(predictions.values)
    else:  # half precision would round the confidences that are to be measured
        logits = as_floating(predictions.values, "values", "evaluate")[0]
        if takes_probabilities:
            logits = probabilities_of(Chain(), logits, log=True)
    return log_proba_of_logits(calibrator, logits, predictions.groups)


def warn_of_unseen(calibrator: Calibrator | InOrder | None, groups: Groups, function: str) -> None:
    """Warn where a calibrator of groups has seen none of the groups of the rows."""
    own = calibrator.calibrator if isinstance(calibrator, InOrder) else calibrator
    if isinstance(own, GroupCalibration) and groups:
        own.warn_of_unused(groups, function)


def log_proba_of_logits(calibrator: Calibrator | InOrder | None, logits: Array, groups: Groups) -> NDArray[Any]:
    """Log-probabilities of checked logits of these groups, by a calibrator or by the model itself."""
    if calibrator is None:
        log_p = probabilities_of(Chain(), logits, log=True)
    else:
        log_p = calibrator.log_proba_in_groups(logits, groups)
    return np.asarray(to_numpy(log_p))


def log_proba_of_model(log_p: Array) -> NDArray[Any]:
    """Log-probabilities of the model as it is, from the logarithms of its checked probabilities.

    Each row is divided by its sum unless that is 1 but for rounding. There it would move equal probabilities of
    different rows apart by their last digit, and rows of equal confidence share a bin and a rank.

    >>> log_p = np.log([[0.6, 0.3, 0.1], [0.6, 0.2, 0.2]])
    >>> np.array_equal(log_proba_of_model(log_p), log_p)
    True
    """
    given = np.asarray(to_numpy(log_p))
    divided = log_proba_of_logits(None, log_p, {})
    # Every probability is rounded, and a zero counts as a machine epsilon.
    rounding = 4.0 * given.shape[1] * float(np.finfo(given.dtype).eps)
    log_sums = (given.max(axis=1) - divided.max(axis=1))[:, None]
    return np.where(np.abs(log_sums) <= rounding, given, divided)
