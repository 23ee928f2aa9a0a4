"""The predictions of a calibrator for chunks of rows, some of which may be bad."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Flags, Indices
from refocal._groups import as_groups
from refocal.calibrators import Calibrator, GroupCalibration, MultiLabelCalibration, PredictionSets
from refocal.calibrators.answers import Answers, answers
from refocal.engine.c_engine import widened
from refocal.errors import DataError, InputWarning
from refocal.rows import RawRows, RowReader
from refocal.rows.scores import bad_rows, bad_rows_of_labels


@dataclass(frozen=True)
class ChunkPredictor:
    """The predictions of a calibrator for chunks.

    `order` has the positions of the calibrator's classes among the columns; None if they are in the same order. For one
    number per row of two classes the prediction is one number too.
    """

    calibrator: Calibrator
    reader: RowReader
    order: Indices | None
    precision_kept: bool = False
    """Whether answers are given in half precision where that is the precision of the rows."""

    def __call__(self, raw: RawRows) -> tuple[Answers, int]:
        """Probabilities in float32 or float64, NaN for bad rows, whose sets are empty, and how many those are."""
        reader = self.reader
        given = raw.values if self.precision_kept else widened(raw.values)
        matrix = reader.matrix(raw._replace(values=given))
        bad = self._bad_rows(widened(matrix))
        values = matrix if given.ndim == 2 else given
        if bad.any():
            if not reader.skip_bad_rows:
                row = int(np.argmax(bad))
                raise self._error_of(widened(matrix)[row], f"row {raw.first_row + row} of {raw.where}")
            values = values.copy()
            values[bad] = _placeholder(values, bad, reader)
        groups = as_groups(raw.groups, len(values), reader.function)
        with warnings.catch_warnings():
            # One chunk may well have no group that the fit has seen; all together should have some.
            warnings.filterwarnings("ignore", ".*no groups of ", InputWarning)
            # The columns are in the order of the calibrator's, also where it was fitted on a data frame.
            warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
            predicted = answers(self.calibrator, values, self.order, groups)
        for each in (predicted.probabilities, *predicted.further.values()) if bad.any() else ():
            each[bad] = False if each.dtype == np.bool_ else np.nan
        return predicted, int(bad.sum())

    def _bad_rows(self, matrix: NDArray[Any]) -> Flags:
        """Which rows the calibrator would refuse."""
        if isinstance(self.calibrator, MultiLabelCalibration):
            return bad_rows_of_labels(matrix, self.calibrator.input)
        return bad_rows(matrix, self.reader.input)

    def _error_of(self, values: NDArray[Any], place: str) -> DataError:
        """What is wrong with the scores of one row."""
        if not isinstance(self.calibrator, MultiLabelCalibration):
            return self.reader.score_error(values, place)
        is_bad = bad_rows_of_labels(values[:, None], self.calibrator.input)
        expected = "finite log-odds of each label"
        if self.calibrator.input == "probabilities":
            expected = "probabilities of each label, from 0 to 1"
        return DataError("X", self.reader.function, expected=expected, got=f"{values[is_bad][0]:g} in {place}")

    def unseen(self, raw: RawRows) -> tuple[int, set[str]]:
        """How many of these rows have a group that the fit has not seen, and the columns in which all of them do."""
        if not isinstance(self.calibrator, GroupCalibration | PredictionSets) or not self.calibrator.needs_groups:
            return 0, set()
        groups = as_groups(raw.groups, len(raw.values), self.reader.function)
        return self.calibrator.n_unseen(groups, len(raw.values)), set(self.calibrator.unused_columns(groups))

    def warn_of_columns(self, unused: Sequence[str]) -> None:
        """Warn of columns in which no row of all has a group that the fit has seen."""
        if isinstance(self.calibrator, GroupCalibration | PredictionSets):
            self.calibrator.warn_of_columns(unused, "apply")


def _placeholder(values: Any, bad: Any, reader: RowReader) -> Any:
    """The scores that replace those of bad rows until their predictions are removed: a good row, if there is one.

    A warning says if all logits look like probabilities; it must not depend on these scores.
    """
    if not bad.all():
        return values[np.argmin(bad)]
    return 1.0 / reader.n_classes if reader.input == "probabilities" else -1.0
