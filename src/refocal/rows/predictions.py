"""The predictions of a classifier with their labels in memory: the one type that fits, metrics and evaluations take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from itertools import groupby
from typing import Any, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import (
    Array,
    Flags,
    Indices,
    Vector,
    in_library_of,
    in_single,
    namespace,
    on_gpu,
    take_label,
    to_numpy,
    two_columns,
)
from refocal._clusters import as_clusters
from refocal._groups import Groups, as_groups
from refocal.errors import ParameterError, ShapeError
from refocal.maps.softmax import log_softmax
from refocal.rows.class_names import column_order
from refocal.rows.labels import IgnoreIndex, LabelMap, LabelRule
from refocal.rows.scores import model_log_probabilities


class RowDetails(TypedDict, total=False):
    """Options of rows besides their scores and labels; see `Predictions.from_logits`."""

    weight: Any
    class_names: Sequence[str] | None
    first_label: int
    positive_label: Any
    ignore_index: IgnoreIndex
    renormalise: bool


@dataclass(frozen=True)
class Origin:
    """Where rows come from, and how their columns and labels were understood; empty where they were given as arrays.

    >>> Origin("test.csv", ("no", "yes"), "label", "by name").labels_by
    'by name'
    """

    place: str = ""
    columns: tuple[str, ...] = ()
    """The columns or arrays that hold the scores."""
    labels: str = ""
    """The column, the array or the file of the labels."""
    labels_by: str = ""
    """How labels became column numbers."""
    unused: tuple[str, ...] = ()
    """Columns that were not used."""
    n_columns: int = 0
    """The number of all columns."""
    swapped: bool = False
    """Whether the positive label moved the two columns."""
    repeated_id: str = ""
    """A column of a table that is called as ids are and has the same value in several rows; it is not used."""
    divided: str = ""
    """How `split` divided the rows of one source, where it did: "at random", "by customer", "by time"."""

    is_named: bool = False
    """Whether the caller named the columns that hold the scores."""
    class_names: tuple[str, ...] = ()
    """The names of the classes in the order of the file, of arrays that have them."""

    @property
    def named_columns(self) -> tuple[str, ...]:
        """The columns of a table that the caller named as those of the scores; none where their names say it."""
        return self.columns if self.n_columns and self.is_named else ()

    def sentence(self, classes: Sequence[Any], positive: int | None, called: str = "classes") -> str:
        """What was read, in one line; `called` is what the columns of scores are of.

        >>> source = Origin("test.csv", ("no", "yes"), "label", "by name", ("id",), 4)
        >>> source.sentence(("no", "yes"), positive=1)
        'classes: no, yes (columns of test.csv); labels: label, by name; positive: yes; 1 of 4 columns not used: id'
        """
        names = _listed([str(name) for name in classes])
        kind = "columns" if len(self.columns) > 1 else f"column {self.columns[0]}" if self.columns else "columns"
        parts = [f"{called}: {names} ({kind} of {self.place})" if self.place else f"{called}: {names}"]
        if self.labels:
            counted = f" of {_listed(self._in_own_order)}" if self._counts_moved(classes) else ""
            parts.append(f"labels: {self.labels}" + (f", {self.labels_by}{counted}" if self.labels_by else ""))
        if positive is not None:
            parts.append(f"positive: {classes[positive]}")
        if self.unused:
            unused = [name or "one without a name" for name in self.unused]
            parts.append(f"{len(self.unused)} of {self.n_columns} columns not used: {_listed(unused)}")
        return "; ".join(parts)

    def _counts_moved(self, classes: Sequence[Any]) -> bool:
        """Whether labels count columns that are in another order than the classes, which are those of a calibrator."""
        own = self._in_own_order
        if not self.labels_by.startswith("column numbers") or len(own) != len(classes):
            return False
        are_called = [column.endswith(str(name)) for column, name in zip(own, classes, strict=True)]
        is_called = [any(column.endswith(str(name)) for column in own) for name in classes]
        return all(is_called) and not all(are_called)

    @property
    def _in_own_order(self) -> tuple[str, ...]:
        """What the columns are called in the source, whose order labels count."""
        return self.class_names or self.columns


def _listed(names: Sequence[str]) -> str:
    most_shown = 6  # classes by name
    some = ", ".join(names[:most_shown])
    return f"{some} and {len(names) - most_shown:,} more" if len(names) > most_shown else some


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
    source: Origin = field(default_factory=Origin)
    clusters: Indices | None = None
    """The number of each row's cluster, from 0 on, (N,): rows of one cluster are not independent of one another."""
    cluster_name: str = ""
    """What the clusters are: the name of their column."""
    cluster_names: NDArray[np.str_] | None = None
    """The name of each cluster, by its number; None where it is not known."""
    row_numbers: Indices | None = None
    """The number of each row among those that were given, from 0 on; None where these are all of them, in order."""

    @property
    def n_classes(self) -> int:
        """Number of classes, or of labels."""
        return int(self.values.shape[-1])

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def numbers(self) -> Indices:
        """The number of each row among those that were given."""
        return np.arange(len(self)) if self.row_numbers is None else self.row_numbers

    def take(self, rows: Any) -> Self:
        """Some of the rows, possibly repeated: indices, flags or a slice."""
        if not isinstance(rows, slice):
            rows = self._checked_places(rows)
        weight = None if self.weight is None else self.weight[rows]
        groups = {name: column[rows] for name, column in self.groups.items()}
        clusters = None if self.clusters is None else self.clusters[rows]
        return replace(
            self,
            values=self.values[rows],
            labels=self.labels[rows],
            weight=weight,
            groups=groups,
            clusters=clusters,
            row_numbers=self.numbers[rows],
        )

    def _checked_places(self, rows: Any) -> NDArray[Any]:
        """Indices of rows that there are, or a flag for each row."""
        function = f"{type(self).__name__}.take"
        places: NDArray[Any] = to_numpy(rows) if hasattr(rows, "dtype") else np.asarray(rows)
        if places.size == 0 and places.dtype.kind == "f":  # an empty list
            places = places.astype(np.int64)
        if places.ndim != 1 or places.dtype.kind not in "iub":
            expected = "one-dimensional: indices or flags of rows"
            raise ShapeError("rows", function, expected=expected, got=repr(rows))
        n_rows = len(self)
        if places.dtype.kind == "b" and len(places) != n_rows:
            raise ShapeError("rows", function, expected=f"of {n_rows} flags, one for each row", got=str(len(places)))
        if places.dtype.kind != "b" and len(places) and not -n_rows <= places.min() <= places.max() < n_rows:
            got = f"indices from {places.min()} to {places.max()}"
            raise ShapeError("rows", function, expected=f"indices below {n_rows}, the number of rows", got=got)
        return places.copy()  # torch takes none that are reversed in place, not even one alone

    def in_order_of(self, class_names: Sequence[str] | None) -> Self:
        """The same rows with the columns in the order of these names; unchanged if either has none.

        >>> from refocal.io import Predictions
        >>> rows = Predictions.from_logits([[2.0, 0.5]], ["dog"], class_names=["dog", "cat"])
        >>> other = rows.in_order_of(["cat", "dog"])
        >>> other.values, other.labels
        (array([[0.5, 2. ]]), array([1]))
        """
        order = column_order(self.class_names, class_names, f"{type(self).__name__}.in_order_of")
        return self if order is None else self.reordered(order)

    def reordered(self, order: Indices) -> Self:
        """The same rows with the columns in another order; `order` has their present positions."""
        order = np.asarray(order)
        if not np.array_equal(np.sort(order), np.arange(self.n_classes)):
            expected = f"the numbers of all {self.n_classes} columns, each once"
            raise ShapeError("order", f"{type(self).__name__}.reordered", expected=expected, got=str(order.tolist()))
        values = self.values[:, in_library_of(self.values, order)]
        labels = np.argsort(order)[self.labels] if self.labels.ndim == 1 else self.labels[:, order]
        names = None if self.class_names is None else tuple(self.class_names[i] for i in order)
        return replace(self, values=values, labels=labels, class_names=names)


@dataclass(frozen=True, eq=False)
class Predictions(CheckedRows):
    """Logits or probabilities (N, C) with their labels; made by `from_logits`, `from_probabilities`, `from_log_odds`.

    The caller states which of them the numbers are; it is never guessed. `values` keep their dtype and may be
    memory-mapped; `labels` are integers from 0 to C-1. For two classes one number per row is enough, the probability or
    the log-odds of class 1, the positive class; it is stored as two columns. `classes` has the class of each column.

    If the columns have names, labels are matched with the names (numbers and booleans by their text; 2.0 is 2); they
    are column numbers only where the columns have no names, or no label is a name and all are whole numbers from 0.
    What fits both ways or neither is refused. Rows of weight 0 are left out.

    >>> Predictions.from_logits([[2.0, 0.5], [0.1, 0.3]], [0, 1])
    Predictions(2 rows, 2 classes, logits, float64)
    >>> rows = Predictions.from_probabilities([0.2, 0.9], ["on time", "late"], positive_label="late")
    >>> rows.labels, rows.class_names, rows.positive
    (array([0, 1]), ('on time', 'late'), 1)
    """

    label_map: LabelMap | None = None
    """How labels became column numbers, for labels that come later."""
    given_classes: NDArray[Any] | None = None
    """The class of each column in the type of the labels, where that is not its name, or its number from 0 on."""

    @classmethod
    def from_logits(cls, logits: Any, labels: Any, **options: Unpack[RowDetails]) -> Predictions:
        """Rows of logits, before any softmax.

        Options: `weight` is (N,); `class_names`, one for each column, are what labels may be; `first_label` is 1 if
        labels start at 1; `positive_label` is the label of class 1, the positive class of two. Rows whose label is
        `ignore_index`, or one of several, are left out. Images (N, C, H, W) or (N, H, W, C) with labels (N, H, W) have
        one row per pixel. The columns of a data frame are names of classes.

        >>> Predictions.from_logits([[2.0, 0.5], [0.1, 0.3]], [2, 1], first_label=1).labels
        array([1, 0])
        """
        return _of(logits, labels, "logits", **options)

    @classmethod
    def from_probabilities(cls, probabilities: Any, labels: Any, **options: Unpack[RowDetails]) -> Predictions:
        """Rows of probabilities that sum to 1, or the probability of class 1; the rest as for `from_logits`.

        `renormalise` divides each row by its sum, where probabilities were rounded.
        """
        return _of(probabilities, labels, "probabilities", **options)

    @classmethod
    def from_log_odds(cls, log_odds: Any, labels: Any, **options: Unpack[RowDetails]) -> Predictions:
        """Log-odds of class 1 of two, one number per row, such as a single logit or a margin; stored as logits 0 and s.

        >>> Predictions.from_log_odds([-1.5, 2.0], [0, 1]).values
        array([[ 0. , -1.5],
               [ 0. ,  2. ]])
        """
        return _of(log_odds, labels, "log-odds", **options)

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

    @property
    def n_classes(self) -> int:
        """Number of classes; 2 where only the probability of class 1 is stored."""
        return 2 if self.binary else int(self.values.shape[-1])

    @property
    def classes(self) -> NDArray[Any]:
        """The class of each column: its name, or its number where the columns have no names."""
        if self.given_classes is not None:
            return self.given_classes
        return np.arange(self.n_classes) if self.class_names is None else np.array(self.class_names)

    @property
    def positive(self) -> int | None:
        """The positive class, 1, of two-class data; None for more classes."""
        return 1 if self.n_classes == 2 else None

    @property
    def logits(self) -> Array:
        """The values themselves, or the logarithms of the probabilities, one column for each class."""
        rows = self.in_columns()
        return model_log_probabilities(rows.values) if rows.input == "probabilities" else rows.values

    def reordered(self, order: Indices) -> Self:
        """The same rows with the columns in another order; `order` has their present positions."""
        if self.binary:
            return self.in_columns().reordered(order)
        classes = None if self.given_classes is None else self.given_classes[order]
        return replace(super().reordered(order), given_classes=classes, label_map=None)

    def with_groups(self, groups: Any) -> Predictions:
        """The same rows with the groups that they belong to: one array, or several columns by their names.

        >>> rows = Predictions.from_probabilities([0.2, 0.9], [0, 1]).with_groups({"region": ["north", "south"]})
        >>> rows.groups["region"].tolist()
        ['north', 'south']
        """
        return replace(self, groups=as_groups(groups, len(self), "Predictions.with_groups"))

    def with_clusters(self, clusters: Any) -> Predictions:
        """The same rows with the clusters that they belong to, such as customers, days or patients: one array.

        Rows of one cluster are not independent; intervals and tests then rest on the number of clusters.

        >>> rows = Predictions.from_probabilities([0.2, 0.9, 0.4], [0, 1, 0]).with_clusters({"day": [3, 3, 4]})
        >>> rows.clusters, rows.cluster_name
        (array([0, 0, 1]), 'day')
        """
        numbers, name, names = as_clusters(clusters, len(self), "Predictions.with_clusters")
        return replace(self, clusters=numbers, cluster_name=name, cluster_names=names)

    def name_of(self, label: int) -> str:
        """The name of the class of a column; its number where there is none."""
        column = self._column_of(label, "name_of")
        return str(self.classes[column]) if self.class_names is None else self.class_names[column]

    @property
    def _names(self) -> tuple[str, ...]:
        """What the classes are called; empty where they are column numbers."""
        given = () if self.given_classes is None else self.given_classes
        return self.class_names or tuple(str(name) for name in given)

    def _column_of(self, label: Any, method: str) -> int:
        """The number of a column, which may be given by the name of its class."""
        names = self._names
        if isinstance(label, str) and label in names:
            return names.index(label)
        is_number = isinstance(label, (int, np.integer)) and not isinstance(label, (bool, np.bool_))
        if is_number and 0 <= label < self.n_classes:
            return int(label)
        expected = f"a column number from 0 to {self.n_classes - 1}"
        if names:
            expected += f", or one of the names {_listed(names)}"
        raise ParameterError("label", f"Predictions.{method}", expected=expected, got=repr(label))

    def described(self) -> str:
        """What was read and how it was understood, in one line."""
        return self.source.sentence(self.class_names or tuple(map(str, self.classes)), self.positive)

    def __repr__(self) -> str:
        return f"Predictions({len(self):,} rows, {self.n_classes:,} classes, {self.input}, {self.values.dtype})"

    def _repr_html_(self) -> str:
        """A small table for notebooks, from the labels alone: memory-mapped values are not read."""
        counts = np.bincount(self.labels, minlength=self.n_classes)
        order = np.argsort(-counts, kind="stable")
        names = [f"{self.name_of(int(k))} ({counts[k]:,})" for k in order]
        facts = [
            ("rows", f"{len(self):,}"),
            ("classes", _listed(names)),
            ("rows of a class", f"{counts.min():,} to {counts.max():,}"),
            ("values", f"{self.input}, {self.values.dtype}"),
            ("weights", "none" if self.weight is None else f"{self.weight.min():g} to {self.weight.max():g}"),
        ]
        body = "".join(f"<tr><th>{escape(name)}</th><td>{escape(fact)}</td></tr>" for name, fact in facts)
        return f"<table><tbody>{body}</tbody></table>"

    # What metrics measure: rows of probabilities, of two classes that of class 1 alone.

    def as_probabilities(self) -> Predictions:
        """The same rows with the model's probabilities, of two classes that of class 1.

        Those of scores in half precision are in float32, in which metrics and decisions are computed.
        """
        rows = self
        if self.input != "probabilities":
            values = in_single(self.values)
            values = log_softmax(values) if self.input == "logits" else values
            rows = replace(self, values=namespace(values).exp(values), input="probabilities")
        return rows.of_positive()

    def as_log_probabilities(self) -> Predictions:
        """The same rows with the logarithms of the model's probabilities."""
        if self.input == "log-probabilities":
            return self
        rows = self.in_columns()
        is_logits = rows.input == "logits"
        values = log_softmax(in_single(rows.values)) if is_logits else model_log_probabilities(rows.values)
        return replace(rows, values=values, input="log-probabilities")

    @property
    def binary(self) -> bool:
        """Whether only the probability of class 1 is stored."""
        return bool(self.values.ndim == 1)

    @property
    def weights(self) -> Vector:
        """The weight of each row; 1 where none was given."""
        return np.ones(len(self.labels)) if self.weight is None else self.weight

    def of_positive(self) -> Predictions:
        """Two classes as the probability of class 1, which their metrics use; more classes unchanged."""
        if self.binary or self.n_classes > 2:
            return self
        if self.input != "probabilities":  # a logit alone says nothing of the probability
            return self.as_probabilities()
        return replace(self, values=self.values[:, 1])

    def in_columns(self) -> Self:
        """The same rows with a column for each class: those of `of_positive` have two again.

        >>> Predictions.from_probabilities([0.25], [1]).as_probabilities().in_columns().values
        array([[0.75, 0.25]])
        """
        return replace(self, values=two_columns(self.values, self.input)) if self.binary else self

    def reduced(self) -> Predictions:
        """The same rows reduced to the confidence and whether the prediction was correct."""
        confidence, correct = self.confidence()
        return probability_rows(correct.astype(np.int64), confidence, self.weight, clusters=self.clusters)

    @property
    def _measured(self) -> Predictions:
        """The rows as the functions below read them: of probabilities, of two classes that of class 1."""
        if self.input == "probabilities" and (self.binary or self.n_classes > 2):
            return self
        return self._probabilities

    @cached_property
    def _probabilities(self) -> Predictions:
        return self.as_probabilities()

    def event(self, label: Any) -> tuple[Vector, Flags]:
        """The probability of class `label` in each row, and whether it occurred.

        The class is the one that is called so; a column number is one only where no class is.

        >>> Predictions.from_log_odds([0.0, 3.0], [0, 1]).event(1)[0].round(2).tolist()
        [0.5, 0.95]
        >>> Predictions.from_probabilities([[0.2, 0.8]], [1], class_names=[1, 2]).event(1)[0].round(2).tolist()
        [0.2]
        """
        column = LabelRule(self.n_classes, self._names).by_name().column(label)
        return self.event_of_column(self._column_of(label, "event") if column < 0 else column)

    def event_of_column(self, column: int) -> tuple[Vector, Flags]:
        """`event` of the class of a column, whatever the classes are called."""
        rows = self._measured
        p = unit(rows.values if rows.binary else rows.values[:, column])
        return (1.0 - p if rows.binary and column == 0 else p), self.labels == column

    @cached_property
    def labels_on_device(self) -> Array:
        """The labels in the library of the scores, and on their device: a tensor beside tensors."""
        return in_library_of(self.values, self.labels)

    def events(self, labels: Sequence[int]) -> Iterator[tuple[Array, Array]]:
        """`event_of_column` of rising columns, on a GPU where these are, as fast together as one alone."""
        rows = self._measured
        labels = [self._column_of(label, "events") for label in labels]
        if rows.binary:
            yield from map(rows.event_of_column, labels)
            return
        if on_gpu(rows.values):
            for label in labels:
                yield rows.values[:, label], rows.labels_on_device == label
            return
        n_columns = 16  # classes read together: as many as share the bytes that memory delivers at once
        for first, some in groupby(labels, key=lambda label: label - label % n_columns):
            table = unit(rows.values[:, first : first + n_columns].T)
            for label in some:
                yield table[label - first], self.labels == label

    def confidence_on_device(self) -> tuple[Array, Array]:
        """As `confidence`, on the device of the probabilities."""
        rows = self._measured
        if not on_gpu(rows.values) or rows.binary:
            return rows.confidence()
        confidence, predicted = rows.values.max(-1)
        return confidence, predicted == rows.labels_on_device

    @cached_property
    def top(self) -> tuple[Vector, Flags, Indices]:
        """The largest probability, whether its class occurred, and that class (the lowest of equal ones)."""
        rows = self._measured
        if rows.binary:
            p = unit(rows.values)
            predicted = (p > 0.5).astype(np.int64)
            return np.maximum(p, 1.0 - p), predicted == self.labels, predicted
        index = namespace(rows.values).argmax(rows.values, axis=1)
        confidence = unit(take_label(rows.values, index))
        predicted = to_numpy(index).astype(np.int64, copy=False)
        return confidence, predicted == self.labels, predicted

    @cached_property
    def ranking(self) -> Vector:
        """The largest probability of each row, to order rows by: values that differ by rounding alone are equal.

        >>> rows = Predictions.from_probabilities([0.07, 0.93], [0, 1])
        >>> rows.top[0].tolist(), rows.ranking.tolist()
        ([0.9299999999999999, 0.93], [0.93, 0.93])
        """
        rows = self._measured
        confidence, _, _ = rows.top
        return _with_ties(unit(rows.values), confidence) if rows.binary else confidence

    def confidence(self) -> tuple[Vector, Flags]:
        """What calibration is measured on, and whether it came true: the probability of class 1 of two, or the largest.

        >>> Predictions.from_logits([[2.0, 0.0, 1.0]], [0]).confidence()[0].round(3)
        array([0.665])
        """
        rows = self._measured
        if rows.binary:
            return rows.event_of_column(1)
        return rows.top[:2]


def probability_rows(
    labels: Indices,
    values: Array,
    weight: Vector | None = None,
    input: str = "probabilities",  # noqa: A002
    clusters: Indices | None = None,
) -> Predictions:
    """Checked probabilities, (N, C) or those of class 1 alone, with their labels, for metrics."""
    return Predictions(values, labels, input, weight, clusters=clusters)


def unit(values: Array) -> Vector:
    """float64 within [0, 1]; a copy only where one is needed."""
    vector = np.ascontiguousarray(to_numpy(values), dtype=np.float64)
    if vector.min() < 0.0 or vector.max() > 1.0:
        return np.clip(vector, 0.0, 1.0)
    return vector


def _with_ties(p: Vector, confidence: Vector) -> Vector:
    """Confidences of two classes where 1 - p of a row counts as the p of another if they differ by rounding alone.

    Rounding moves each of them by about a unit in the last place of numbers from 1/2 to 1, half of the machine epsilon:
    1 - 0.07 is not 0.93, in float64 or in float32. Rows of one class are told apart as they are, so that no chain of
    close values becomes a tie.
    """
    is_upper = p > 0.5
    upper = np.unique(p[is_upper])
    if not len(upper):
        return confidence
    is_single = np.array_equal(p, p.astype(np.float32))
    tolerance = float(np.finfo(np.float32 if is_single else np.float64).eps)
    lower = confidence[~is_upper]
    after = np.searchsorted(upper, lower)
    next_below = upper[np.maximum(after - 1, 0)]
    next_above = upper[np.minimum(after, len(upper) - 1)]
    nearest = np.where(np.abs(lower - next_below) < np.abs(next_above - lower), next_below, next_above)
    ranking = confidence.copy()
    ranking[~is_upper] = np.where(np.abs(lower - nearest) <= tolerance, nearest, lower)
    return ranking


def _of(values: Any, labels: Any, kind: str, **options: Any) -> Predictions:
    from refocal.rows.gate import Arguments, read_rows

    argument = kind.replace("-", "_")
    names = Arguments(argument, "labels", "weight")
    return read_rows(values, labels, kind, names=names, function=f"Predictions.from_{argument}", **options)
