"""Rows in memory that were checked: what predictions of one label and of several have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, Indices, in_library_of
from refocal._groups import Groups
from refocal._validation import check_number
from refocal.errors import ParameterError, Remedy, ShapeError


@dataclass(frozen=True, eq=False)
class CheckedRows:
    """Scores (N, C) with their labels, weights, names of classes and groups."""

    values: Array
    labels: Indices
    input: str
    weight: NDArray[np.float64] | None = None
    class_names: tuple[str, ...] | None = None
    groups: Groups = field(default_factory=dict)
    """The groups of the rows, one array for each column of groups."""

    @property
    def n_classes(self) -> int:
        """Number of classes, or of labels."""
        return int(self.values.shape[-1])

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: Indices) -> Self:
        """Some of the rows."""
        weight = None if self.weight is None else self.weight[rows]
        groups = {name: column[rows] for name, column in self.groups.items()}
        return replace(self, values=self.values[rows], labels=self.labels[rows], weight=weight, groups=groups)

    def in_order_of(self, class_names: Sequence[str] | None) -> Self:
        """The same rows with the columns in the order of these names; unchanged if either has none.

        >>> from refocal.io import Predictions
        >>> rows = Predictions.from_logits([[2.0, 0.5]], ["dog"], class_names=["dog", "cat"])
        >>> other = rows.in_order_of(["cat", "dog"])
        >>> other.values, other.labels
        (array([[0.5, 2. ]]), array([1]))
        """
        order = column_order(self.class_names, class_names, f"{type(self).__name__}.in_order_of")
        if order is None or class_names is None:
            return self
        values = self.values[:, in_library_of(self.values, order)]
        labels = np.argsort(order)[self.labels] if self.labels.ndim == 1 else self.labels[:, order]
        return replace(self, values=values, labels=labels, class_names=tuple(class_names))


def column_order(names: Sequence[str] | None, wanted: Sequence[str] | None, function: str) -> Indices | None:
    """The positions of the columns `wanted` among `names`; None if the order is the same, or there are no names.

    >>> column_order(("dog", "cat"), ("cat", "dog"), "f")
    array([1, 0])
    """
    if names is None or wanted is None:
        return None
    here, there = list(map(str, names)), list(map(str, wanted))
    if here == there:
        return None
    if sorted(here) != sorted(there):
        strangers = [name for name in here if name not in there] or [name for name in there if name not in here]
        got = f"{strangers[0]!r} in one of them only"
        raise ShapeError("class_names", function, expected="the same in both", got=got, remedy=Remedy.COLUMNS)
    at = {name: i for i, name in enumerate(here)}
    return np.array([at[name] for name in there])


CheckedRowsT = TypeVar("CheckedRowsT", bound=CheckedRows)


def split(predictions: CheckedRowsT, fraction: float = 0.5, *, seed: int = 0) -> tuple[CheckedRowsT, CheckedRowsT]:
    """Two disjoint parts, the first with `fraction` of the rows, every class within one row of that share.

    With several labels per row, rows with equally many labels are spread evenly.

    >>> from refocal.io import Predictions
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
