"""The gate for rows in memory: arrays and data frames of any library in, checked `Predictions` out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import Array, Flags, Vector, as_array, as_floating, class_axes, in_library_of, namespace, to_numpy
from refocal._clusters import Clusters, as_clusters
from refocal._groups import Groups, as_groups
from refocal._validation import SUM_TOLERANCE, check_shape, check_weight
from refocal.errors import DataError, LabelError, ParameterError, Remedy, ShapeError
from refocal.rows.class_names import (
    check_class_names,
    check_label_order,
    names_in_order,
    shared_beginning,
    without_beginnings,
)
from refocal.rows.keys import label_key, number_keys, order_of_numbers
from refocal.rows.label_errors import listed, with_own_remedy
from refocal.rows.labels import (
    IgnoreIndex,
    LabelRule,
    RawLabels,
    distinct_labels,
    raw_labels,
    resolve,
    typed_classes,
    unless_usual,
)
from refocal.rows.marks import are_marks, check_marks, labelled_rows
from refocal.rows.positive import check_series, order_with_positive
from refocal.rows.predictions import Origin, Predictions
from refocal.rows.reader import RawRows, RowReader, moved_error, numbers_of_text
from refocal.rows.scores import as_scores, check_score_shape, column_names, read_scores, stored_kind


class Arguments(NamedTuple):
    """What the caller of a function calls the scores, the labels and the weights, for error messages."""

    values: str = "X"
    labels: str = "y"
    weight: str = "sample_weight"


def read_rows(
    values: Any,
    labels: Any,
    kind: str,
    *,
    names: Arguments,
    function: str,
    weight: Any = None,
    class_names: Sequence[Any] | None = None,
    whole_names: tuple[str, ...] = (),
    first_label: int | None = None,
    positive_label: Any = None,
    ignore_index: IgnoreIndex = None,
    renormalise: bool = False,
    groups: Any = None,
    clusters: Any = None,
    source: Origin | None = None,
    several_axes: bool = False,
) -> Predictions:
    """Checked rows; options are those of `Predictions.from_logits`, and `names` what a caller calls its arguments.

    `several_axes` as for `aligned`.
    """
    if renormalise and kind != "probabilities":
        raise ParameterError("renormalise", function, expected="left out: it is for probabilities", got="True")
    rows = aligned(
        values, labels, weight, names, function, ignore_index=ignore_index, kind=kind, several_axes=several_axes
    )
    has_one_column = rows.scores.ndim == 1
    scores = read_scores(
        rows.scores, kind, names.values, function, renormalise=renormalise, row_numbers=rows.row_numbers
    )
    rule = _rule_of_columns(
        rows.column_names,
        class_names,
        whole_names,
        n_classes=int(scores.shape[-1]),
        first_label=first_label,
        labels_name=names.labels,
        function=function,
    )
    checked = _labelled(scores, rows, rule, positive_label, has_one_column)
    checked = replace(checked, input=stored_kind(kind))
    if has_one_column:
        check_series(values, checked.class_names, names.values, function)
    if positive_label is None:
        checked = in_order_of_numbers(checked)
    if groups is not None and len(groups) > 0:
        checked = replace(checked, groups=rows.groups_of(groups, function))
    if clusters is not None:
        numbers, name, cluster_names = rows.clusters_of(clusters, function)
        checked = replace(checked, clusters=numbers, cluster_name=name, cluster_names=cluster_names)
    checked = replace(checked, row_numbers=rows.row_numbers)
    by = "" if checked.label_map is None else checked.label_map.by
    return replace(checked, source=replace(source or Origin(), labels_by=by, swapped=checked.source.swapped))


def _rule_of_columns(
    columns: tuple[Any, ...] | None,
    class_names: Sequence[Any] | None,
    whole_names: tuple[str, ...],
    *,
    n_classes: int,
    first_label: int | None,
    labels_name: str,
    function: str,
) -> LabelRule:
    """What decides how labels are read, from the names of the columns and those that a caller gives.

    Labels may be the whole names too: those given, or else those of the columns, unless the classes are called
    otherwise.
    """
    names, own_whole_names = names_of_columns(columns)
    if class_names is not None:
        class_names = names_in_order(class_names, function)
        check_same_order(class_names, columns, function)
        are_own = names is not None and list(map(label_key, names)) == list(map(label_key, class_names))
        if not are_own:
            own_whole_names = tuple(str(name) for name in class_names)
        names = tuple(class_names)
    return LabelRule(
        n_classes,
        check_class_names(names, n_classes, function),
        whole_names or own_whole_names,
        first_label,
        argument=labels_name,
        function=function,
    )


def read_labelled(
    values: Any,
    labels: Any,
    kind: str,
    names: Arguments,
    function: str,
    *,
    own: tuple[Remedy, ...] = (),
    **options: Any,
) -> Predictions:
    """`read_rows` for a function that has few of its options: an error names a remedy of its `own`, or Predictions."""
    try:
        return read_rows(values, labels, kind, names=names, function=function, **options)
    except LabelError as error:
        raise with_own_remedy(error, *own) from None


def check_same_order(
    class_names: Sequence[Any], columns: Sequence[Any] | None, function: str, argument: str = "class_names"
) -> None:
    """Refuse given names that are those of the columns in another order.

    A beginning that all names share does not count, and columns may be called by their numbers.
    """
    if columns is None:
        return
    own = without_beginnings(columns)
    given = number_keys(without_beginnings(class_names))
    known = number_keys(own)
    if given != known and {*given} == {*known}:
        expected = f"left out, or in the order of the columns, {', '.join(str(name) for name in own)}"
        raise ShapeError(argument, function, expected=expected, got=", ".join(str(name) for name in class_names))


def in_order_of_numbers(rows: Predictions) -> Predictions:
    """The rows with columns called 0 … C-1, or False and True, put in this order; other columns stay as they are.

    Such numbers then cease to be names: they are classes only where labels are text or booleans. False and True stay
    names.
    """
    order = order_of_numbers(rows.class_names)
    if rows.binary or order is None:
        return rows
    label_map = None if rows.label_map is None else rows.label_map.reordered(order)
    moved = replace(rows.reordered(np.array(order)), label_map=label_map)
    if {label_key(name) for name in rows.class_names or ()} == {"False", "True"}:
        return moved
    classes = moved.given_classes
    is_usual = classes is None or classes.dtype.kind in "iu"
    return replace(moved, class_names=None, given_classes=None if is_usual else classes)


def in_column_order(values: Any) -> Any:
    """Scores without labels: those of Predictions, or of a frame, whose columns called 0 … C-1 are in this order."""
    if isinstance(values, Predictions):
        return values.values
    names, _ = names_of_columns(column_names(values))
    order = order_of_numbers(names)
    return values if order is None else np.asarray(as_scores(values))[:, order]


def _labelled(scores: Array, rows: Aligned, rule: LabelRule, positive_label: Any, has_one_column: bool) -> Predictions:
    """Checked scores with their labels as column numbers; a positive class that is given becomes the second column."""
    if positive_label is None:
        names = None if rule.names is None else tuple(str(name) for name in rule.names)
        resolved = resolve(rows.labels, rule)
        classes = unless_usual(resolved.classes, names, rule, resolved.label_map)
        checked = Predictions(scores, resolved.numbers, "logits", rows.weight, names, label_map=resolved.label_map)
        return replace(checked, given_classes=classes)
    distinct = distinct_labels(rows.labels.values, rule.argument, rule.function)
    label_map, names, swaps = order_with_positive(positive_label, rule, distinct, has_one_column)
    numbers = label_map.numbers(rows.labels.values)
    classes = typed_classes(names, rule, label_map, distinct)
    checked = Predictions(scores, numbers, "logits", rows.weight, names, label_map=label_map, given_classes=classes)
    if not swaps:
        return checked
    return replace(checked.reordered(np.array([1, 0])), label_map=label_map, source=Origin(swapped=True))


def names_of_columns(columns: tuple[Any, ...] | None) -> tuple[tuple[Any, ...] | None, tuple[str, ...]]:
    """The names of the classes that columns of a table are called by, and the whole names where these are longer.

    Columns that only count, 0, 1, 2 or logit_0, logit_1, have no names but their numbers; labels may be their whole
    names all the same.

    >>> names_of_columns(("logit_cat", "logit_dog")), names_of_columns(("p_0", "p_1"))
    ((('cat', 'dog'), ('logit_cat', 'logit_dog')), (None, ('p_0', 'p_1')))
    """
    if columns is None or len(columns) < 2:
        return None, ()
    start = shared_beginning(columns)
    names = tuple(name[start:] for name in columns) if start else columns
    are_counted = [label_key(name) for name in names] == list(range(len(names)))
    return None if are_counted else names, columns if start else ()


def read_raw(raw: RawRows, reader: RowReader) -> Predictions:
    """Checked rows of a file or a data set that fits into memory, read as its `RowReader` says.

    Rows without labels get the label 0, and their columns stay in their order unless a positive label is given.
    Columns without names are called by their numbers, however the file stores its labels.
    """
    groups, clusters = reader.split_groups(raw)
    options: dict[str, Any] = {
        "weight": raw.weight,
        "class_names": reader.class_names,
        "whole_names": reader.whole_names,
        "renormalise": reader.renormalise,
        "groups": groups,
        "clusters": clusters,
        "source": reader.source,
    }
    values = raw.values[...] if hasattr(raw.values, "shape") else raw.values
    names = Arguments(reader.input.replace("-", "_"), "labels", "weight")
    if raw.labels is None:
        unknown = np.zeros(len(values), dtype=np.int64)
        # These labels are column numbers, whatever numbers the names have: columns may be called 1_prob and 0_prob.
        options["first_label"] = 0
        rows = read_rows(values, unknown, reader.input, names=names, function=reader.function, **options)
        # Also where columns called 1 and 0 were put in order.
        rows = replace(rows, labels=unknown[: len(rows)], given_classes=reader.numbers_of_columns())
        return _with_checked_column(_with_positive(rows, reader, np.ndim(values) == 1), reader)
    options |= {
        "first_label": reader.first_label,
        "positive_label": reader.positive_label,
        "ignore_index": reader.ignore_index or None,
    }
    rows = read_rows(values, raw.labels[...], reader.input, names=names, function=reader.function, **options)
    by_number = rows.label_map is not None and rows.label_map.columns is None
    if raw.is_moved and reader.class_names is not None and by_number:
        raise moved_error(raw.where, reader.function)
    if rows.class_names is None:
        rows = replace(rows, given_classes=reader.numbers_of_columns())
    elif rows.given_classes is not None and not reader.types_classes:
        rows = replace(rows, given_classes=np.array(numbers_of_text(tuple(rows.given_classes.tolist()))))
    return _with_checked_column(rows, reader)


def _with_checked_column(rows: Predictions, reader: RowReader) -> Predictions:
    """The rows, unless their one column of numbers is called by the class that it is not about."""
    if reader.has_one_number:
        reader.check_one_column(rows.class_names)
    return rows


def _with_positive(rows: Predictions, reader: RowReader, has_one_column: bool) -> Predictions:
    """Rows without labels, with the positive class of two as the second column; it may give names to the columns."""
    if reader.positive_label is None:
        return rows
    rule = reader.rule
    by_number = rule.by_number()
    distinct: list[Any] = []
    # Labels of columns without names are not known yet. If the positive one is a column number, they are expected to
    # be column numbers; otherwise only the positive one is known.
    if not rule.names:
        is_number = by_number.column(reader.positive_label) >= 0
        distinct = [*by_number.counted()] if is_number else [reader.positive_label]
    _, names, swaps = order_with_positive(reader.positive_label, rule, distinct, has_one_column)
    if rule.names is not None:
        # Columns called 0 and 1, which are now in this order, have no names but these.
        positive = number_keys(rule.names)[0 if swaps else 1]
        names = rows.class_names or ("0", "1")
        swaps = number_keys(names)[0] == positive
    named_rows = replace(rows, class_names=names)
    if not swaps:
        return named_rows
    swapped = named_rows.reordered(np.array([1, 0]))
    return replace(swapped, labels=rows.labels, source=replace(rows.source, swapped=True))


class Aligned(NamedTuple):
    """Scores, labels and weights with one row each: no rows without a label, none of weight 0."""

    scores: Array
    labels: RawLabels
    weight: Vector | None
    column_names: tuple[Any, ...] | None
    kept: Flags | None
    """Which of the given rows these are; None if all."""
    shape: tuple[int, ...]
    """That of all labels that were given: of several axes for tokens and pixels, each of which is a row."""

    @property
    def row_numbers(self) -> NDArray[np.int64] | None:
        """The numbers of these rows among those given; None if all are here."""
        return None if self.kept is None else np.flatnonzero(self.kept)

    @property
    def n_given(self) -> int:
        """The number of rows that were given."""
        return len(self.labels.values) if self.kept is None else len(self.kept)

    def groups_of(self, groups: Any, function: str) -> Groups:
        """The groups of these rows; the argument has those of all rows that were given."""
        columns = as_groups(groups, self.shape, function)
        return columns if self.kept is None else {name: column[self.kept] for name, column in columns.items()}

    def clusters_of(self, clusters: Any, function: str) -> Clusters:
        """The clusters of these rows; the argument has those of all rows that were given."""
        of_given = as_clusters(clusters, self.n_given, function)
        return of_given if self.kept is None else of_given._replace(numbers=of_given.numbers[self.kept])


def has_class_axis(scores: Any, labels: Any) -> bool:
    """Whether scores have an axis of classes beside those of their labels; columns of the labels' shape are labels."""
    return np.ndim(as_scores(scores)) != np.ndim(labels)


def aligned(
    values: Any,
    labels: Any,
    weight: Any,
    names: Arguments,
    function: str,
    *,
    ignore_index: IgnoreIndex = None,
    kind: str = "logits",
    classes_last: bool = False,
    several_axes: bool = False,
    label_each: bool = False,
) -> Aligned:
    """Scores, labels and weights as rows of samples, pixels or tokens, without rows that do not count.

    Images (N, C, H, W) with labels (N, H, W) have their classes moved to the last axis, unless `classes_last` says that
    they are there already. Log-odds must have one axis, unless `several_axes` says that each number is a row.
    Probabilities of the shape of their labels must have one axis too, unless `label_each` says that each of them is the
    probability of class 1 of a row of its own.
    """
    scores = as_array(as_scores(values), names.values, function)
    raw = raw_labels(labels, names.labels, function)
    shape = tuple(raw.values.shape)
    # Columns of one number for each label are no classes.
    columns = column_names(values) if kind != "log-odds" and has_class_axis(scores, raw.values) else None
    if columns is None:
        check_label_order(column_names(values), column_names(labels), names.labels, function)
    scores = scores if classes_last else _with_classes_last(scores, shape, kind, names, function)
    if kind == "log-odds" and scores.ndim != 1 and not several_axes:
        expected = "one-dimensional, one number per row, with at least one row"
        raise ShapeError(names.values, function, expected=expected, got=f"shape {tuple(scores.shape)}")
    if label_each and len(shape) == scores.ndim > 0 and not (shape[1:] == (1,) and scores.shape[-1] > 1):
        _check_label_each(scores, raw.values, ignore_index, names, function)
    else:
        check_one_label_per_row(tuple(scores.shape), shape, kind, names, function)
    if scores.ndim > 2 or (scores.ndim == 2 and len(shape) == 2):
        width = () if tuple(scores.shape) == shape else (int(scores.shape[-1]),)
        scores = namespace(scores).reshape(scores, (-1, *width))
    weights = None if weight is None else check_weight(weight, shape, function, names.weight)
    if raw.values.ndim != 1:
        raw = raw._replace(values=namespace(raw.values).reshape(raw.values, (-1,)))
    kept = rows_that_count(raw, weights, ignore_index, names, function)
    if kept is None:
        return Aligned(scores, raw, weights, columns, None, shape)
    if weights is not None:
        weights = weights[kept]
    raw = raw._replace(values=raw.values[in_library_of(raw.values, kept)])
    return Aligned(scores[in_library_of(scores, kept)], raw, weights, columns, kept, shape)


def _with_classes_last(scores: Array, shape: tuple[int, ...], kind: str, names: Arguments, function: str) -> Array:
    """Scores with the classes on the last axis, which labels of several axes tell from the others."""
    if len(shape) < 2 or kind == "log-odds":
        return scores
    axes = class_axes(tuple(scores.shape), shape)
    if len(axes) > 1:
        expected = f"two-dimensional: labels of shape {shape} fit classes on axis 1 and on the last"
        raise ShapeError(names.values, function, expected=expected, got=f"shape {tuple(scores.shape)}")
    return namespace(scores).moveaxis(scores, axes[0], -1) if axes else scores


def _check_label_each(p: Array, labels: Array, ignore_index: IgnoreIndex, names: Arguments, function: str) -> None:
    """Labels of the shape of the probabilities, at least one, which are not the ones and zeros of one-hot classes."""
    check_shape(labels, tuple(p.shape), names.labels, function)
    if math.prod(p.shape) == 0:
        expected = "an array with at least one row"
        raise ShapeError(names.values, function, expected=expected, got=f"shape {tuple(p.shape)}")
    ones = to_numpy(labels)
    if ones.ndim < 2 or ones.dtype.kind not in "biuf":
        return
    marks = check_marks(ignore_index, function)
    for axis in {1, ones.ndim - 1}:  # images (N, C, H, W) have their classes on axis 1
        if _are_one_hot(np.moveaxis(ones, axis, -1), namespace(p).moveaxis(p, axis, -1), marks, names, function):
            expected = "the number or the name of the class of each row: the argmax of one-hot labels"
            got = "one-hot labels of classes whose probabilities sum to 1"
            raise LabelError(names.labels, function, expected=expected, got=got)


def _are_one_hot(ones: NDArray[Any], p: Array, marks: Sequence[int], names: Arguments, function: str) -> bool:
    """Whether labels are the ones and zeros of one-hot classes, with the classes of both on the last axis."""
    if ones.shape[-1] < 2:
        return False
    labelled = ~are_marks(ones, marks).all(axis=-1)
    ones = ones[labelled]
    is_one_hot = len(ones) > 0 and ((ones == 0) | (ones == 1)).all() and (ones.sum(axis=-1) == 1).all()
    return bool(is_one_hot) and _are_of_classes(p[in_library_of(p, labelled)], names.values, function)


def _are_of_classes(scores: Array, argument: str, function: str) -> bool:
    """Whether each of some rows is of classes that exclude each other: its probabilities, or logarithms, sum to 1.

    Rounded to decimals they miss 1 by up to half a unit of the last for each class. Several labels may come as near to
    1, where a model is sure of one in each row, but hardly with decimals alone in all of ten rows or more: fewer rows,
    and numbers that are not rounded, must sum to 1 within the tolerance that probabilities have.
    """
    p, given = as_floating(scores, argument, function)
    xp = namespace(p)
    if bool(xp.all(p <= 0.0)):
        p = xp.exp(p)
    n_classes = int(p.shape[-1])
    furthest = float(xp.max(xp.abs(xp.sum(p, axis=-1) - 1.0)))
    if furthest <= max(SUM_TOLERANCE, float(xp.finfo(given).eps)):
        return True
    fewest_rounded = 10  # rows
    most_missed = 0.1  # beyond it a sum says nothing, however many classes are rounded
    if math.prod(p.shape) < fewest_rounded * n_classes or not furthest <= most_missed:
        return False
    for unit in (0.01, 0.001):
        is_rounded = bool(xp.all(xp.abs(p / unit - xp.round(p / unit)) < unit))
        if is_rounded and furthest <= 0.5 * unit * n_classes + SUM_TOLERANCE:
            return True
    return False


def check_one_label_per_row(
    given: tuple[int, ...], shape: tuple[int, ...], kind: str, names: Arguments, function: str
) -> None:
    """Labels of the `shape` of the rows of scores, which have the shape `given`."""
    if len(given) == 1 and len(shape) == 2 and shape[1] > 1:
        expected = "two-dimensional; the labels are, so the two or their names are swapped"
        raise ShapeError(names.values, function, expected=expected, got=f"shape {given}")
    if kind == "log-odds" and given == (*shape, 1):
        expected = f"of shape {shape}, one number per row: {names.values}[:, 0]"
        raise ShapeError(names.values, function, expected=expected, got=f"shape {given}")
    if len(given) != 1 and kind != "log-odds":
        check_score_shape(given, names.values, function)
    of_rows = given if len(given) == 1 or kind == "log-odds" else given[:-1]
    if shape != of_rows:
        hint = "; of one-hot labels take the argmax first" if shape == given else ""
        expected = f"of shape {of_rows}, one label for each row of {names.values}{hint}"
        raise ShapeError(names.labels, function, expected=expected, got=f"shape {shape}")


def rows_that_count(
    raw: RawLabels, weights: Vector | None, ignore_index: IgnoreIndex, names: Arguments, function: str
) -> Flags | None:
    """Which rows count: those with a label and a weight above 0; None if all do."""
    kept = None
    if check_marks(ignore_index, function):
        kept = labelled_rows(raw.values, ignore_index, names.labels, function)
    if weights is not None and not (weights > 0.0).all():
        kept = weights > 0.0 if kept is None else kept & (weights > 0.0)
    if kept is None or kept.all():
        return None
    if not kept.any():  # some have a label, and these have weight 0
        expected = "above 0 for at least one row that has a label"
        raise DataError(names.weight, function, expected=expected, got="none")
    return kept


def in_order_of_classes(values: Any, names: Sequence[Any], argument: str, function: str) -> Any:
    """One number per class, such as shares, in the order of the classes.

    A mapping or a pandas Series is ordered by its keys, which are read as labels are. Anything else has no keys, and is
    taken to be in this order already.

    >>> in_order_of_classes({"dog": 0.3, "cat": 0.7}, ("cat", "dog"), "shares", "f")
    [0.7, 0.3]
    """
    # A tensor has a method of this name.
    has_index = getattr(values, "ndim", 0) == 1 and not callable(getattr(values, "index", len))
    if not has_index and not isinstance(values, Mapping):
        return values
    keys = [*(values.index if has_index else values)]
    numbers = [*(values if has_index else values.values())]
    expected = f"of the classes {listed(names)}, each once"
    if len(keys) != len(names):
        raise ParameterError(argument, function, expected=expected, got=f"those of {listed(keys) or 'none'}")
    try:
        label_map = LabelRule(len(names), tuple(names), argument=argument, function=function).decide(keys)
    except LabelError:
        raise ParameterError(argument, function, expected=expected, got=f"those of {listed(keys)}") from None
    number_of = {label_map.column(key): number for key, number in zip(keys, numbers, strict=True)}
    if len(number_of) < len(names):
        raise ParameterError(argument, function, expected=expected, got=f"those of {listed(keys)}")
    return [number_of[i] for i in range(len(names))]
