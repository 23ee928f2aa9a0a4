"""The predictions of a classifier and the true labels in memory, checked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import (
    Array,
    Indices,
    as_array,
    as_floating,
    class_axes,
    in_library_of,
    log_probabilities,
    namespace,
    to_numpy,
)
from refocal._groups import Groups, as_groups
from refocal._label_checks import IgnoreIndex, check_class_names, check_labels, column_order, without_ignored
from refocal._validation import (
    check_not_negative,
    check_number,
    check_one_column,
    check_probabilities,
    check_rows,
    check_weight,
    sum_of_parts,
    warn_of_sums,
)
from refocal.calibrators._labels import read_labels
from refocal.errors import DataError, LabelError, ParameterError, Remedy, ShapeError
from refocal.io.parts import number

Input = Literal["logits", "probabilities", "log-odds"]


class RowDetails(TypedDict, total=False):
    """Options of rows besides their scores and labels; see `Predictions.from_logits`."""

    weight: Any
    class_names: Sequence[str] | None
    first_label: int
    positive_label: Any
    ignore_index: IgnoreIndex
    renormalise: bool


# The number of classes that a notebook shows by name.
MOST_SHOWN = 6


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


@dataclass(frozen=True, eq=False)
class Predictions(CheckedRows):
    """Logits or probabilities (N, C) with their labels; made by `from_logits`, `from_probabilities`, `from_log_odds`.

    The caller states which of them the numbers are; it is never guessed. `values` keep their dtype and may be
    memory-mapped; `labels` are integers from 0 to C-1. For two classes one number per row is enough, the probability or
    the log-odds of class 1, the positive class; it is stored as two columns.

    >>> Predictions.from_logits([[2.0, 0.5], [0.1, 0.3]], [0, 1])
    Predictions(2 rows, 2 classes, logits, float64)
    >>> rows = Predictions.from_probabilities([0.2, 0.9], ["on time", "late"], positive_label="late")
    >>> rows.labels, rows.class_names, rows.positive
    (array([0, 1]), ('on time', 'late'), 1)
    """

    input: Input

    @classmethod
    def from_logits(cls, logits: Any, labels: Any, **options: Unpack[RowDetails]) -> Predictions:
        """Rows of logits, before any softmax.

        Options: `weight` is (N,); `class_names`, one for each column, are what labels may be; `first_label` is 1 if
        labels start at 1; `positive_label` is the label of class 1, the positive class of two. Rows whose label is
        `ignore_index`, or one of several, are left out. Images (N, C, H, W) or (N, H, W, C) with labels (N, H, W) have
        one row per pixel.

        >>> Predictions.from_logits([[2.0, 0.5], [0.1, 0.3]], [2, 1], first_label=1).labels
        array([1, 0])
        """
        return cls._of(logits, labels, "logits", **options)

    @classmethod
    def from_probabilities(cls, probabilities: Any, labels: Any, **options: Unpack[RowDetails]) -> Predictions:
        """Rows of probabilities that sum to 1, or the probability of class 1; the rest as for `from_logits`.

        `renormalise` divides each row by its sum, where probabilities were rounded.
        """
        return cls._of(probabilities, labels, "probabilities", **options)

    @classmethod
    def from_log_odds(cls, log_odds: Any, labels: Any, **options: Unpack[RowDetails]) -> Predictions:
        """Log-odds of class 1 of two, one number per row, such as a single logit or a margin; stored as logits 0 and s.

        >>> Predictions.from_log_odds([-1.5, 2.0], [0, 1]).values
        array([[ 0. , -1.5],
               [ 0. ,  2. ]])
        """
        return cls._of(log_odds, labels, "log-odds", **options)

    @classmethod
    def from_top_k(
        cls, log_p: Any, indices: Any, labels: Any, n_classes: int, *, weight: Any = None, **options: Any
    ) -> Predictions:
        """Log-probabilities of the k best classes (N, k), as returned by interfaces of language models.

        The others are approximated by `refocal.io.TopK`, which takes the options and more rows than fit into memory.

        >>> log_p, indices = np.log([[0.5, 0.2], [0.7, 0.2]]), [[3, 0], [1, 2]]
        >>> Predictions.from_top_k(log_p, indices, [3, 1], n_classes=1000)
        Predictions(2 rows, 1,000 classes, logits, float32)
        """
        from refocal.io.language import TopK

        rows = TopK(log_p, indices, labels, n_classes, **options)
        return cls.from_logits(np.concatenate([part for part, _ in rows]), rows.labels, weight=weight)

    @classmethod
    def _of(
        cls,
        given: Any,
        labels: Any,
        kind: Input,
        *,
        weight: Any = None,
        class_names: Sequence[str] | None = None,
        first_label: int = 0,
        positive_label: Any = None,
        ignore_index: IgnoreIndex = None,
        renormalise: bool = False,
    ) -> Predictions:
        argument = kind.replace("-", "_")
        function = f"Predictions.from_{argument}"
        given, labels, weight = _rows(given, labels, weight, ignore_index, argument, function)
        values = _matrix(given, labels, kind, argument, function)
        if renormalise and kind != "probabilities":
            raise ParameterError("renormalise", function, expected="left out: it is for probabilities", got="True")
        if kind == "logits":
            check_rows(values, argument, function)
            if (whole := sum_of_parts(values, argument, function)) is not None:
                warn_of_sums(whole, argument, function)
        elif kind == "probabilities":
            values = _renormalised(values, argument, function) if renormalise else values
            check_probabilities(values, argument, function)
        n_classes = int(values.shape[-1])
        if np.ndim(labels) == 2 and np.shape(labels)[1] == n_classes:
            expected = "one number per row; take the argmax of one-hot labels first"
            raise ShapeError("labels", function, expected=expected, got=f"shape {tuple(np.shape(labels))}")
        read, categories = read_labels(labels, "labels", function)
        if class_names is None and categories is not None and len(categories) == n_classes:
            class_names = categories
        names = check_class_names(class_names, n_classes, function)
        in_order = names
        if positive_label is not None:
            if n_classes != 2:
                expected = f"left out: it is for two classes, and there are {n_classes}"
                raise ParameterError("positive_label", function, expected=expected, got=repr(positive_label))
            first_label = first_label if names else 0
            read, names, in_order = _with_positive(to_numpy(read), names, positive_label, function)
        numbers = _numbers(to_numpy(read), names, tuple(values.shape), first_label, function)
        weights = None if weight is None else check_weight(weight, numbers.shape, function, "weight")
        stored: Input = "probabilities" if kind == "probabilities" else "logits"
        return cls(values, numbers, stored, weights, names).in_order_of(in_order)

    @property
    def logits(self) -> Array:
        """The values themselves, or the logarithms of the probabilities."""
        return self.values if self.input == "logits" else log_probabilities(self.values)

    @property
    def positive(self) -> int | None:
        """The positive class, 1, of two-class data; None for more classes."""
        return 1 if self.n_classes == 2 else None

    def __repr__(self) -> str:
        return f"Predictions({len(self):,} rows, {self.n_classes:,} classes, {self.input}, {self.values.dtype})"

    def _repr_html_(self) -> str:
        """A small table for notebooks, from the labels alone: memory-mapped values are not read."""
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

    def with_groups(self, groups: Any) -> Predictions:
        """The same rows with the groups that they belong to: one array, or several columns by their names.

        >>> rows = Predictions.from_probabilities([0.2, 0.9], [0, 1]).with_groups({"region": ["north", "south"]})
        >>> rows.groups["region"].tolist()
        ['north', 'south']
        """
        return replace(self, groups=as_groups(groups, len(self), "Predictions.with_groups"))

    def name_of(self, label: int) -> str:
        """The name of a class; its number where there is none."""
        return str(label) if self.class_names is None else self.class_names[label]


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


def _rows(
    values: Any, labels: Any, weight: Any, ignore_index: IgnoreIndex, argument: str, function: str
) -> tuple[Any, Any, Any]:
    """Values, labels and weights of the rows that have a label; pixels and tokens are rows."""
    if np.ndim(labels) > 1:
        values, labels = as_array(values, argument, function), as_array(labels, "labels", function)
        axes = class_axes(tuple(values.shape), tuple(labels.shape))
        if len(axes) > 1:
            expected = f"two-dimensional: labels of shape {tuple(labels.shape)} fit classes on axis 1 and on the last"
            raise ShapeError(argument, function, expected=expected, got=f"shape {tuple(values.shape)}")
        if axes:
            values = namespace(values).moveaxis(values, axes[0], -1)
            values, labels = values.reshape((-1, values.shape[-1])), labels.reshape((-1,))
            weight = None if weight is None else np.ravel(weight)
    return without_ignored((values, labels, weight), ignore_index, (argument, "labels", "weight"), function)


def _matrix(given: Any, labels: Any, kind: str, argument: str, function: str) -> Array:
    """One row per sample and one column per class; one number per row becomes two columns."""
    array = as_array(given, argument, function)
    expected = None
    if kind == "log-odds":
        if array.ndim != 1 or len(array) == 0:
            expected = "one-dimensional, one number per row, with at least one row"
    elif array.ndim == 1 and np.ndim(labels) == 2:
        expected = "two-dimensional; the labels are, so the two or their names are swapped"
    elif array.ndim not in (1, 2) or tuple(array.shape)[1:] == (1,) or len(array) == 0:
        expected = "two-dimensional, one column per class, or of shape (N,) for class 1 of two, with at least one row"
    if expected is not None:
        raise ShapeError(argument, function, expected=expected, got=f"shape {tuple(array.shape)}")
    return check_one_column(array, kind, argument, function) if array.ndim == 1 else array


def _numbers(
    labels: NDArray[Any], names: tuple[str, ...] | None, shape: tuple[int, ...], first_label: int, function: str
) -> Indices:
    """Labels of values of this shape as integers from 0 on; names of classes become their numbers."""
    if labels.dtype.kind == "U":
        if names is None:
            remedy = Remedy.POSITIVE_LABEL if len(np.unique(labels)) == 2 else Remedy.CLASS_NAMES
            raise LabelError("labels", function, expected="integers", got="text", remedy=remedy)
        known = {name: i + first_label for i, name in enumerate(names)}
        strangers = [str(label) for label in np.unique(labels) if str(label) not in known]
        if strangers:
            few = ", ".join(names[:MOST_SHOWN]) + (", …" if len(names) > MOST_SHOWN else "")
            raise LabelError("labels", function, expected=f"among the class names ({few})", got=repr(strangers[0]))
        labels = np.array([known[str(label)] for label in labels], dtype=np.int64)
    elif labels.dtype.kind not in "biu":
        raise DataError("labels", function, expected="integers or names", got=f"dtype {labels.dtype}")
    numbers = labels.astype(np.int64) - first_label
    if numbers.size and int(numbers.min()) == 1 and int(numbers.max()) == shape[1]:  # the most common mistake
        expected, got = f"between 0 and {shape[1] - 1}", f"labels from 1 to {shape[1]}"
        raise LabelError("labels", function, expected=expected, got=got, remedy=Remedy.FIRST_LABEL)
    if shape[1] == 2 and not np.isin(numbers, (0, 1)).all() and len(kinds := np.unique(numbers)) == 2:  # -1 and 1
        got = f"{kinds[0]} and {kinds[1]}"
        raise LabelError("labels", function, expected="0 and 1", got=got, remedy=Remedy.POSITIVE_LABEL)
    like = np.broadcast_to(0.0, shape)
    found: Indices = to_numpy(check_labels(numbers, like, function, remedy=Remedy.IGNORE_INDEX))
    return found


def _with_positive(
    labels: NDArray[Any], names: tuple[str, ...] | None, positive: Any, function: str
) -> tuple[NDArray[Any], tuple[str, ...] | None, tuple[str, ...] | None]:
    """Labels of two classes, their names, and these with the positive one second.

    Without names, labels of two kinds become 0 and 1, the positive one, and name the classes unless they are 0 and 1.
    """
    if names is not None:
        if str(positive) not in names:
            expected = f"one of {' and '.join(map(repr, names))}"
            raise ParameterError("positive_label", function, expected=expected, got=repr(positive))
        return labels, names, tuple(sorted(names, key=str(positive).__eq__))
    distinct = np.unique(labels)
    is_positive = distinct == (number(positive) if labels.dtype.kind in "biuf" else str(positive))
    if len(distinct) > 2 or not is_positive.any():
        expected = f"of at most two kinds, one of them the positive {positive!r}"
        few = ", ".join(repr(label) for label in distinct[:MOST_SHOWN].tolist())
        raise LabelError("labels", function, expected=expected, got=few)
    kinds = tuple(map(str, [*distinct[~is_positive].tolist(), *distinct[is_positive].tolist()]))
    names = None if len(kinds) < 2 or kinds == ("0", "1") else kinds
    return (labels == distinct[is_positive][0]).astype(np.int64), names, names


def _renormalised(values: Array, argument: str, function: str) -> Array:
    """Rows of probabilities that were rounded, divided by their sums."""
    p, _ = as_floating(values, argument, function)
    xp = namespace(p)
    check_not_negative(float(xp.min(p)), argument, function)
    sums = xp.sum(p, axis=-1)[..., None]
    if not float(xp.min(sums)) > 0.0:
        raise DataError(argument, function, expected="rows of probabilities with a sum above 0", got="a sum of 0")
    return p / sums
