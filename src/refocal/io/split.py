"""Rows for calibration and rows for testing."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from refocal._validation import check_number
from refocal.errors import ParameterError
from refocal.io.multilabel import MultiLabelPredictions
from refocal.io.predictions import Predictions

Rows = TypeVar("Rows", Predictions, MultiLabelPredictions)


def split(predictions: Rows, fraction: float = 0.5, *, seed: int = 0) -> tuple[Rows, Rows]:
    """Two disjoint parts, the first with `fraction` of the rows, every class within one row of that share.

    Of labels that do not exclude one another, rows with as many labels are spread evenly.

    >>> rows = Predictions.from_logits(np.zeros((10, 2)), [0] * 6 + [1] * 4)
    >>> validation, test = split(rows, 0.5)
    >>> np.bincount(validation.labels), np.bincount(test.labels)
    (array([3, 2]), array([3, 2]))
    """
    check_number(fraction, "fraction", "split", above=0.0, below=1.0)
    n = len(predictions)
    shuffled = np.random.default_rng(seed).permutation(n)
    kind = predictions.labels.reshape(n, -1).sum(axis=1)
    by_class = shuffled[np.argsort(kind[shuffled], kind="stable")]
    # Every (1/fraction)-th row of the classes laid end to end: no class can miss its share by a whole row.
    steps = np.floor(np.arange(n + 1) * fraction + 1e-9)
    first = np.diff(steps) > 0
    if not 0 < np.count_nonzero(first) < n:
        raise ParameterError("fraction", "split", expected=f"such that {n} rows give two parts", got=repr(fraction))
    return predictions.take(np.sort(by_class[first])), predictions.take(np.sort(by_class[~first]))
