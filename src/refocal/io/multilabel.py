"""Multi-label predictions, checked once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from refocal._arrays import Array, Indices, as_array, in_library_of, log_probabilities, two_columns
from refocal._groups import LABEL
from refocal._validation import check_one_column, check_option, check_weight
from refocal.errors import ParameterError, ShapeError
from refocal.io.query import Query
from refocal.io.readers import read_source
from refocal.rows import Predictions
from refocal.rows.class_names import check_class_names, check_label_order, names_in_order, shared_beginning
from refocal.rows.gate import check_same_order
from refocal.rows.label_errors import listed
from refocal.rows.labels import IgnoreIndex
from refocal.rows.marks import check_targets
from refocal.rows.predictions import CheckedRows
from refocal.rows.scores import as_scores, column_names

APPLIES = ("no label", "a label")
"""The names of the two classes of pooled rows."""
UNKNOWN = -1
"""Marks labels of which it is unknown whether they apply."""


@dataclass(frozen=True, eq=False)
class MultiLabelPredictions(CheckedRows):
    """Multi-label scores (N, K) with their labels; made by `from_log_odds` or `from_probabilities`.

    `labels` are 1 where a label applies, 0 where not, -1 where that is unknown. One label is a two-class problem:

    >>> scores, labels = [[2.0, -1.0], [0.5, 0.3]], [[1, 0], [1, 1]]
    >>> rows = MultiLabelPredictions.from_log_odds(scores, labels, class_names=["cat", "dog"])
    >>> rows, rows["dog"].labels
    (MultiLabelPredictions(2 rows, 2 labels, log-odds), array([0, 1]))
    """

    input: Literal["log-odds", "probabilities"]
    class_names: tuple[str, ...] = ()

    @classmethod
    def from_log_odds(cls, log_odds: Any, labels: Any, **options: Any) -> MultiLabelPredictions:
        """Scores before the sigmoids; options are `class_names`, `weight` (N,) and `ignore_index`."""
        return cls._of(log_odds, labels, "log-odds", **options)

    @classmethod
    def from_probabilities(cls, probabilities: Any, labels: Any, **options: Any) -> MultiLabelPredictions:
        """Outputs of the sigmoids; options as for `from_log_odds`."""
        return cls._of(probabilities, labels, "probabilities", **options)

    @classmethod
    def _of(
        cls,
        values: Any,
        labels: Any,
        kind: Literal["log-odds", "probabilities"],
        *,
        class_names: Sequence[str] | None = None,
        weight: Any = None,
        ignore_index: IgnoreIndex = None,
    ) -> MultiLabelPredictions:
        argument = kind.replace("-", "_")
        name = f"{cls.__name__}.from_{argument}"
        columns = column_names(values)
        if class_names is not None:
            check_same_order(class_names, columns, name)
        check_label_order(columns if class_names is None else class_names, column_names(labels), "labels", name)
        if class_names is None and columns is not None:
            start = shared_beginning(columns)
            class_names = [str(column)[start:] for column in columns]
        array = as_array(as_scores(values), argument, name)
        labels = as_scores(labels)
        if array.ndim != 2 or 0 in array.shape:
            expected = "two-dimensional, one row per sample and one column per label"
            raise ShapeError(argument, name, expected=expected, got=f"shape {tuple(array.shape)}")
        check_one_column(array, kind, argument, name)
        target, known = check_targets(labels, tuple(array.shape), ignore_index, "labels", name)
        n_classes = int(array.shape[1])
        names = check_class_names(range(n_classes) if class_names is None else class_names, n_classes, name) or ()
        weights = None if weight is None else check_weight(weight, (len(target),), name, "weight")
        if weights is not None:
            known = known & (weights > 0.0)[:, None]  # rows of weight 0 do not count
        return cls(array, np.where(known, target, UNKNOWN), kind, weights, names)

    @property
    def logits(self) -> Array:
        """The log-odds, whatever the values are."""
        if self.input == "log-odds":
            return self.values
        log_p = log_probabilities(two_columns(self.values, self.input))
        return log_p[..., 1] - log_p[..., 0]

    @property
    def n_known(self) -> int:
        """How many labels of all rows are known to apply or not."""
        return int(np.count_nonzero(self.labels != UNKNOWN))

    def described(self) -> str:
        """What was read and how it was understood, in one line."""
        names = self.class_names or tuple(map(str, range(self.n_classes)))
        return self.source.sentence(names, None, "labels of a row")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} rows, {self.n_classes:,} labels, {self.input})"

    def __getitem__(self, label: str | int) -> Predictions:
        """One label by its name or number, as predictions of two classes; rows where it is unknown are left out."""
        if isinstance(label, str) and label not in self.class_names:
            expected = f"one of the labels {listed(self.class_names)}"
            raise ParameterError("label", type(self).__name__, expected=expected, got=repr(label))
        column = self.class_names.index(label) if isinstance(label, str) else label
        rows = np.flatnonzero(self.labels[:, column] != UNKNOWN)
        return self._two_classes(rows, np.full(len(rows), column))

    def pooled(self) -> Predictions:
        """Every label of every row that is known, as a row of two classes, in groups by its label.

        Labels of one row are not independent: they are a cluster, unless the rows have clusters themselves.

        >>> rows = MultiLabelPredictions.from_log_odds([[2.0, -1.0], [0.5, 0.3]], [[1, 0], [9, 1]], ignore_index=9)
        >>> rows.pooled().labels, rows.pooled().groups
        (array([1, 0, 1]), {'label': array(['0', '1', '1'], dtype='<U1')})
        """
        rows, columns = np.nonzero(self.labels != UNKNOWN)
        rows_of_two = self._two_classes(rows, columns, class_names=APPLIES)
        grouped = rows_of_two.with_groups({LABEL: np.array(self.class_names)[columns]})
        if self.clusters is not None:
            return grouped
        return replace(grouped, clusters=rows, cluster_name="row")  # the labels of one row are a cluster

    def _two_classes(self, rows: Indices, columns: Indices, **options: Any) -> Predictions:
        make = Predictions.from_log_odds if self.input == "log-odds" else Predictions.from_probabilities
        values = self.values[in_library_of(self.values, rows), in_library_of(self.values, columns)]
        weight = None if self.weight is None else self.weight[rows]
        made = make(values, self.labels[rows, columns], weight=weight, **options)
        return replace(
            made,
            groups={name: column[rows] for name, column in self.groups.items()},
            clusters=None if self.clusters is None else self.clusters[rows],
            cluster_name=self.cluster_name,
            cluster_names=self.cluster_names,
            row_numbers=self.numbers[rows],
        )


def read_multilabel(
    path: str | os.PathLike[str],
    *,
    input: Literal["log-odds", "probabilities"] = "log-odds",  # noqa: A002
    values: str | None = None,
    labels: str | None = None,
    weight: str | None = None,
    classes: Sequence[str] | None = None,
    ignore_index: IgnoreIndex = None,
) -> MultiLabelPredictions:
    r"""Scores and labels from a file.

    Parameters
    ----------
    path : path
        A table (.csv, .tsv, .parquet) with a column of scores and a column of labels for each label, or arrays (.npz,
        .safetensors, .pt) of shape (N, K).
    input : "log-odds" or "probabilities"
        What the scores are; never guessed.
    values, labels : str, optional
        In a table the patterns of the columns, by default "score_*" and "label_*": score_cat belongs to label_cat, and
        so do probabilities that are called cat, as `apply` writes them. Otherwise the names of the arrays, by default
        `log_odds` or `probabilities`, and `labels`.
    weight : str, optional
        Name of the array or column with the weights of the rows.
    classes : sequence of str, optional
        The labels of a calibrator, `calibrator.classes_`: those of arrays, which have no names for their columns.
    ignore_index : int, optional
        The entry that marks an unknown label.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "rows.csv"
    ...     _ = file.write_text("score_cat,score_dog,label_dog,label_cat\n1.5,-2.0,0,1\n0.3,0.7,1,0\n")
    ...     rows = read_multilabel(file)
    >>> rows.class_names, rows.labels.tolist()
    (('cat', 'dog'), [[1, 0], [0, 1]])
    """
    check_option(input, ("log-odds", "probabilities"), "input", "read_multilabel")
    known = None if classes is None else names_in_order(classes, "read_multilabel", "classes")
    raw, reader = read_source(path, Query(input, values, labels, weight, several=True))
    names = reader.class_names
    if names is None and known is not None and len(known) == reader.n_classes:
        names = tuple(str(name) for name in known)
    options = {"class_names": names, "weight": raw.weight, "ignore_index": ignore_index}
    made = MultiLabelPredictions._of(raw.values, raw.labels, input, **options)
    return replace(made, source=reader.source)
