"""Log-probabilities of the k best classes, which is all that interfaces of language models return."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Indices, Vector, row_blocks, to_numpy
from refocal._validation import SUM_TOLERANCE, check_integer, check_label_range, check_option, check_shape
from refocal.errors import DataError, LabelError, ShapeError

if TYPE_CHECKING:
    from refocal.calibrators import Calibrator

TAILS = ("power law", "uniform")
# Exponents of a tail that are tried; far more than enough for k = 1, where p falls as j^-a.
EXPONENTS = 40.0 * np.linspace(0.0, 1.0, 801) ** 2
# What rounding leaves of the mass where the given probabilities sum to 1 or a little more.
LEAST_MASS = 1e-9
# The number of entries of the rows that are made at a time.
ENTRIES = 1 << 22
NAME = "TopK"


class TopK:
    """Rows of which only the k best classes are known, completed by an approximation of the others.

    The remaining probability is spread over the classes that are not given: evenly (`"uniform"`), or falling as a
    power of the rank from the least that is given (`"power law"`), with the exponent of each row that makes the sum 1.
    What depends on the top class alone (accuracy, its confidence, the ECE) is exact before calibration. A label that
    is not among the k best has the probability given by `label_log_p`, or else the tail's geometric mean, weighted by
    probability: what a label drawn from the tail has on average.

    Iterating gives blocks of (log-probabilities, labels), so that `refocal.io.blocks(top_k)` takes any number of
    rows; `Predictions.from_top_k` holds all of them.

    Parameters
    ----------
    log_p : array (N, k)
        Log-probabilities of the best classes, in any order.
    indices : array (N, k)
        Which classes these are.
    labels : array (N,) or None
        The true classes, 0 to n_classes - 1; None where rows are only to be calibrated.
    n_classes : int
        Number of all classes, such as the size of the vocabulary.
    tail : "power law" or "uniform"
        How the other classes share the remaining probability.
    label_log_p : array (N,), optional
        Log-probability of each label, if the interface returns it.

    Examples
    --------
    >>> rows = TopK(np.log([[0.5, 0.2], [0.7, 0.2]]), [[3, 0], [1, 2]], [3, 1], n_classes=4, tail="uniform")
    >>> np.exp(next(iter(rows))[0]).round(3)
    array([[0.2 , 0.15, 0.15, 0.5 ],
           [0.05, 0.7 , 0.2 , 0.05]], dtype=float32)
    """

    def __init__(
        self, log_p: Any, indices: Any, labels: Any, n_classes: int, *, tail: str = "power law", label_log_p: Any = None
    ) -> None:
        check_option(tail, TAILS, "tail", NAME)
        self.tail = tail
        self.log_p = np.asarray(to_numpy(log_p), dtype=np.float64)
        self.indices: Indices = np.asarray(to_numpy(indices), dtype=np.int64)
        self.labels: Indices | None = None if labels is None else np.asarray(to_numpy(labels), dtype=np.int64)
        self.n_classes = check_integer(n_classes, "n_classes", NAME, least=2)
        self.label_log_p = None if label_log_p is None else np.asarray(to_numpy(label_log_p), dtype=np.float64)
        if self.log_p.ndim != 2 or not 1 <= self.log_p.shape[1] < self.n_classes:
            expected = f"of shape (N, k) with k from 1 to {self.n_classes - 1}"
            raise ShapeError("log_p", NAME, expected=expected, got=f"shape {self.log_p.shape}")
        check_shape(self.indices, self.log_p.shape, "indices", NAME)
        check_shape(self.labels, (len(self),), "labels", NAME)
        check_shape(self.label_log_p, (len(self),), "label_log_p", NAME)
        sums = np.exp(self.log_p).sum(axis=1)
        good = np.isfinite(self.log_p).all(axis=1) & (sums <= 1.0 + SUM_TOLERANCE)
        if not good.all():
            row = int(np.argmin(good))
            expected = "finite logarithms of probabilities that sum to at most 1 in each row"
            raise DataError("log_p", NAME, expected=expected, got=f"a sum of {sums[row]:.6g} in row {row}")
        ordered = np.sort(self.indices, axis=1)
        if ordered.min() < 0 or ordered.max() >= self.n_classes or (ordered[:, 1:] == ordered[:, :-1]).any():
            expected = f"different classes from 0 to {self.n_classes - 1} in each row"
            raise DataError("indices", NAME, expected=expected, got=f"{ordered.min()} to {ordered.max()}, or one twice")
        if self.labels is not None:
            check_label_range(int(self.labels.min()), int(self.labels.max()), self.n_classes, "labels", NAME)
        ranks = np.arange(1, self.n_classes - self.log_p.shape[1] + 1)
        self._log_ranks: Vector = np.log1p(ranks / self.log_p.shape[1])

    def __len__(self) -> int:
        return len(self.log_p)

    def __iter__(self) -> Iterator[tuple[NDArray[np.float32], Indices]]:
        if self.labels is None:
            raise LabelError("labels", NAME, expected="given, to fit or to measure", got="None")
        for rows in row_blocks(len(self), self.n_classes, entries=ENTRIES):
            yield self.whole(rows), self.labels[rows]

    def predict_log_proba(self, calibrator: Calibrator) -> Vector:
        """The calibrated log-probabilities of the classes that were given, (N, k)."""
        parts = []
        for rows in row_blocks(len(self), self.n_classes, entries=ENTRIES):
            log_p = np.asarray(calibrator.predict_log_proba(self.whole(rows)))
            parts.append(np.take_along_axis(log_p, self.indices[rows], axis=1).astype(np.float64))
        return np.concatenate(parts)

    def whole(self, rows: slice) -> NDArray[np.float32]:
        """Log-probabilities of all classes for some of the rows."""
        log_p, indices = self.log_p[rows], self.indices[rows]
        at = np.arange(len(log_p))
        mass = np.maximum(1.0 - np.exp(log_p).sum(axis=1), LEAST_MASS)
        tail = self._tail(log_p.min(axis=1), mass)
        is_given = np.zeros((len(log_p), self.n_classes), dtype=np.bool_)
        is_given[at[:, None], indices] = True
        found = np.full(is_given.shape, np.inf)
        found[~is_given] = tail.reshape(-1)
        if self.labels is not None:
            labels = self.labels[rows]
            self._place_labels(found, tail, mass, at[~is_given[at, labels]], labels, rows)
        found[at[:, None], indices] = log_p
        return found.astype(np.float32)

    def _tail(self, last: Vector, mass: Vector) -> Vector:
        """Log-probabilities of the others by falling rank, which sum to the mass that is left."""
        # Sums fall with the exponent; a mass of more than all others at the last one's height is rounding.
        is_even = self.tail == "uniform"
        exponent = np.zeros(len(mass)) if is_even else np.interp(last - np.log(mass), -self._log_sums, EXPONENTS)
        shape = -exponent[:, None] * self._log_ranks
        return np.asarray(shape - np.log(np.exp(shape).sum(axis=1, keepdims=True)) + np.log(mass)[:, None])

    @cached_property
    def _log_sums(self) -> Vector:
        """For each exponent, the logarithm of the sum of all others relative to the last one given."""
        return np.log([np.exp(-a * self._log_ranks).sum() for a in EXPONENTS])

    def _place_labels(
        self, found: Vector, tail: Vector, mass: Vector, beyond: Indices, labels: Indices, rows: slice
    ) -> None:
        """Give labels that are not among the best their known probability, or else the average one."""
        for i in beyond.tolist():
            if self.label_log_p is None:  # the class of that probability and the label change places
                typical = float(np.exp(tail[i]) @ tail[i]) / mass[i]
                other = np.argmin(np.abs(found[i] - typical))
                found[i, [labels[i], other]] = found[i, [other, labels[i]]]
            else:
                given = self.label_log_p[rows][i]
                left = max(mass[i] - np.exp(given), LEAST_MASS) / (mass[i] - np.exp(found[i, labels[i]]))
                found[i] += np.log(left)
                found[i, labels[i]] = given
