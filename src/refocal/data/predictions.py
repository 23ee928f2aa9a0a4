"""What a classifier said and what was true, checked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, as_array, log_probabilities, to_numpy
from refocal._validation import (
    check_labels,
    check_logits,
    check_probabilities,
    check_weight,
    read_labels,
    warn_of_probabilities,
)
from refocal.errors import DataError, LabelError, Remedy, ShapeError

Input = Literal["logits", "probabilities"]
# So many classes a notebook shows by name.
MOST_SHOWN = 6


@dataclass(frozen=True, eq=False)
class Predictions:
    """Logits or probabilities (N, C) with their labels; made by `from_logits` or `from_probabilities`.

    Which of the two the numbers are is said by the caller and never guessed. `values` are kept as they came, with
    their dtype, and may be memory-mapped; `labels` are integers from 0 to C-1.

    >>> Predictions.from_logits([[2.0, 0.5], [0.1, 0.3]], [0, 1])
    Predictions(2 rows, 2 classes, logits, float64)
    """

    values: Array
    labels: NDArray[np.int64]
    input: Input
    weight: NDArray[np.float64] | None = None
    class_names: tuple[str, ...] | None = None

    @classmethod
    def from_logits(
        cls,
        logits: Any,
        labels: Any,
        *,
        weight: Any = None,
        class_names: Sequence[str] | None = None,
        first_label: int = 0,
    ) -> Predictions:
        """Rows of logits, before any softmax; `first_label` is 1 where the labels count from 1."""
        name = "Predictions.from_logits"
        values = _matrix(logits, labels, "logits", name)
        check_logits(values, "logits", name)
        warn_of_probabilities(values, "logits", name)
        return cls._of(values, labels, "logits", weight, class_names, first_label, name)

    @classmethod
    def from_probabilities(
        cls,
        probabilities: Any,
        labels: Any,
        *,
        weight: Any = None,
        class_names: Sequence[str] | None = None,
        first_label: int = 0,
    ) -> Predictions:
        """Rows of probabilities that sum to 1; `first_label` is 1 where the labels count from 1."""
        name = "Predictions.from_probabilities"
        values = _matrix(probabilities, labels, "probabilities", name)
        check_probabilities(values, "probabilities", name)
        return cls._of(values, labels, "probabilities", weight, class_names, first_label, name)

    @classmethod
    def _of(
        cls,
        values: Array,
        labels: Any,
        kind: Input,
        weight: Any,
        class_names: Sequence[str] | None,
        first_label: int,
        function: str,
    ) -> Predictions:
        n_classes = int(values.shape[-1])
        read, categories = read_labels(labels, "labels", function)
        if class_names is None and categories is not None and len(categories) == n_classes:
            class_names = categories
        names = None if class_names is None else tuple(str(name) for name in class_names)
        if names is not None and (len(names) != n_classes or len(set(names)) != n_classes):
            expected = f"{n_classes} different names, one for each column"
            raise ShapeError("class_names", function, expected=expected, got=f"{len(set(names))} different ones")
        if np.ndim(labels) == 2 and np.shape(labels)[1] == n_classes:
            expected = "one number a row; of one-hot labels take the argmax first"
            raise ShapeError("labels", function, expected=expected, got=f"shape {tuple(np.shape(labels))}")
        numbers = _numbers(to_numpy(read), names, function) - first_label
        _check_first_label(numbers, n_classes, function)
        checked = to_numpy(check_labels(numbers, np.empty((len(values), n_classes)), function))
        weights = None if weight is None else check_weight(weight, checked.shape, function)
        return cls(values, checked, kind, weights, names)

    @property
    def logits(self) -> Array:
        """The values themselves, or the logarithms of the probabilities."""
        return self.values if self.input == "logits" else log_probabilities(self.values)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.values.shape[-1])

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Predictions({len(self):,} rows, {self.n_classes:,} classes, {self.input}, {self.values.dtype})"

    def _repr_html_(self) -> str:
        """A small table, for notebooks; only the labels are looked at, so that mapped values stay where they are."""
        counts = np.bincount(self.labels, minlength=self.n_classes)
        order = np.argsort(-counts, kind="stable")
        some = [f"{self.name_of(int(k))} ({counts[k]:,})" for k in order[:MOST_SHOWN]]
        more = f" and {self.n_classes - MOST_SHOWN:,} more" if self.n_classes > MOST_SHOWN else ""
        facts = [
            ("rows", f"{len(self):,}"),
            ("classes", ", ".join(some) + more),
            ("rows of a class", f"{counts.min():,} to {counts.max():,}"),
            ("values", f"{self.input}, {self.values.dtype}"),
            ("weights", "none" if self.weight is None else f"{self.weight.min():g} to {self.weight.max():g}"),
        ]
        body = "".join(f"<tr><th>{escape(name)}</th><td>{escape(fact)}</td></tr>" for name, fact in facts)
        return f"<table><tbody>{body}</tbody></table>"

    def take(self, rows: NDArray[np.int64]) -> Predictions:
        """Some of the rows."""
        weight = None if self.weight is None else self.weight[rows]
        return Predictions(self.values[rows], self.labels[rows], self.input, weight, self.class_names)

    def in_order_of(self, class_names: Sequence[str] | None) -> Predictions:
        """The same rows with the columns in the order of these names; as they are where either has none.

        >>> rows = Predictions.from_logits([[2.0, 0.5]], ["dog"], class_names=["dog", "cat"])
        >>> other = rows.in_order_of(["cat", "dog"])
        >>> other.values, other.labels
        (array([[0.5, 2. ]]), array([1]))
        """
        if class_names is None or self.class_names is None:
            return self
        order = column_order(self.class_names, class_names, "Predictions.in_order_of")
        if order is None:
            return self
        labels = np.argsort(order)[self.labels]
        return Predictions(self.values[:, order], labels, self.input, self.weight, tuple(class_names))

    def name_of(self, label: int) -> str:
        """The name of a class; its number where there is none."""
        return str(label) if self.class_names is None else self.class_names[label]


def column_order(names: Sequence[str], wanted: Sequence[str], function: str) -> NDArray[np.int64] | None:
    """Where the columns called `wanted` lie among those called `names`; None if they lie so already.

    >>> column_order(("dog", "cat"), ("cat", "dog"), "f")
    array([1, 0])
    """
    here, there = list(map(str, names)), list(map(str, wanted))
    if here == there:
        return None
    if sorted(here) != sorted(there):
        strangers = [name for name in here if name not in there] or [name for name in there if name not in here]
        expected = "the same in both"
        raise ShapeError("class_names", function, expected=expected, got=f"{strangers[0]!r} in one of them only")
    at = {name: i for i, name in enumerate(here)}
    return np.array([at[name] for name in there])


def _matrix(values: Any, labels: Any, argument: str, function: str) -> Array:
    array = as_array(values, argument, function)
    if array.ndim == 1 and np.ndim(labels) == 2:
        raise ShapeError(
            argument,
            function,
            expected="two-dimensional; the labels are, so the two or their names are swapped",
            got=f"shape {tuple(array.shape)}",
        )
    if array.ndim != 2:
        raise ShapeError(
            argument,
            function,
            expected="two-dimensional, one row a sample and one column a class (0 and s for a single score s of two)",
            got=f"shape {tuple(array.shape)}",
        )
    if len(array) == 0:
        raise ShapeError(argument, function, expected="of at least one row", got=f"shape {tuple(array.shape)}")
    return array


def _numbers(labels: NDArray[Any], names: tuple[str, ...] | None, function: str) -> NDArray[Any]:
    """Labels as integers; names of classes become their numbers."""
    if labels.dtype.kind in "biu":
        return labels.astype(np.int64)
    if labels.dtype.kind != "U":
        raise DataError("labels", function, expected="integers or names", got=f"dtype {labels.dtype}")
    if names is None:
        raise LabelError("labels", function, expected="integers", got="text", remedy=Remedy.CLASS_NAMES)
    known = {name: i for i, name in enumerate(names)}
    strangers = [str(label) for label in np.unique(labels) if str(label) not in known]
    if strangers:
        few = ", ".join(names[:MOST_SHOWN]) + (", …" if len(names) > MOST_SHOWN else "")
        raise LabelError("labels", function, expected=f"among the class names ({few})", got=repr(strangers[0]))
    return np.array([known[str(label)] for label in labels], dtype=np.int64)


def _check_first_label(labels: NDArray[Any], n_classes: int, function: str) -> None:
    """The commonest mistake has its own remedy: classes that are counted from 1."""
    if labels.size and int(labels.min()) == 1 and int(labels.max()) == n_classes:
        raise LabelError(
            "labels",
            function,
            expected=f"between 0 and {n_classes - 1}",
            got=f"labels from 1 to {n_classes}",
            remedy=Remedy.FIRST_LABEL,
        )
