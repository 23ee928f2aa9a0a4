"""A batch as it comes to a monitor: which columns it has, and how its labels are read."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from refocal.errors import LabelError, ParameterError, Remedy
from refocal.metrics.inputs import read_probabilities
from refocal.monitor.columns import KnownColumns, check_counted, given_names
from refocal.rows import Predictions
from refocal.rows.gate import names_of_columns
from refocal.rows.keys import order_of_numbers
from refocal.rows.labels import LabelRule, raw_labels, resolve
from refocal.rows.positive import check_series
from refocal.rows.scores import column_names


class UncheckedBatch(NamedTuple):
    """A batch whose columns are those of the batches before, and whose probabilities and labels are not checked yet."""

    n_rows: int
    given: Predictions | NDArray[Any]
    """Predictions, which have labels of their own, or probabilities."""
    names: tuple[str, ...] | None
    """The names of its classes; None if it has none."""
    columns: tuple[Any, ...] | None
    """What its columns are called, in the order of the classes; None for Predictions, and where they have no names."""


def batch_of_predictions(rows: Predictions, labels: Any, known: KnownColumns, function: str) -> UncheckedBatch:
    """A batch of rows with labels of their own; `labels` beside them are refused."""
    if labels is not None:
        expected = "left out where the batch are Predictions, which have their own"
        raise ParameterError("labels", function, expected=expected, got=type(labels).__name__)
    if rows.weight is not None:
        raise ParameterError("weight", function, expected="left out: rows of a monitor have none", got="weights")
    given: tuple[Any, ...] | None = rows.class_names
    if given is None and known.names is None and not known.has_rows:
        given = _numbers_that_labels_count(rows)
    names = known.beside(given, rows.n_classes, function)
    return UncheckedBatch(len(rows), rows, names, None)


def _numbers_that_labels_count(rows: Predictions) -> tuple[int, ...] | None:
    """The classes of columns without names where labels count them from another number than 0; None if they do not.

    They are the names of the classes, so that labels of later batches, of 1 and 2 alone too, are read as these are.

    >>> rows = Predictions.from_probabilities([[0.2, 0.5, 0.3]], [3], first_label=1)
    >>> _numbers_that_labels_count(rows)
    (1, 2, 3)
    """
    classes = rows.classes
    if classes.dtype.kind not in "iu" or classes[0] == 0:
        return None
    return tuple(classes.tolist())


def batch_of_array(given: Any, p: NDArray[Any], known: KnownColumns, function: str) -> UncheckedBatch:
    """A batch of probabilities `p`, which a caller has `given` as an array, a Series or a table."""
    columns = column_names(given) if p.ndim == 2 else None
    order = order_of_numbers(names_of_columns(columns)[0])
    if columns is not None and order is not None:
        p = p[:, order]
        columns = tuple(columns[i] for i in order)
    n_classes = int(p.shape[1]) if p.ndim == 2 else 2
    names = known.beside(given_names(columns, n_classes), n_classes, function)
    if p.ndim == 1:
        check_series(given, names, "probabilities", function)
    n_rows = len(p) if p.ndim > 0 else 0
    return UncheckedBatch(n_rows, p, names, columns)


def read_without_names(labels: Any, p: Any, function: str) -> Predictions:
    """Checked rows whose columns have no names: labels are their numbers."""
    try:
        return read_probabilities(labels, p, None, function, labels_name="labels")
    except LabelError as error:
        if error.remedy is not Remedy.NAMED_ROWS:
            raise
        raise LabelError("labels", function, error.expected, error.got, Remedy.NAMES_OF_MONITOR) from None


def read_with_names(
    labels: Any,
    p: Any,
    function: str,
    class_names: tuple[str, ...],
    whole_names: tuple[Any, ...] | None,
    labels_by_name: bool | None,
    *,
    moved: bool | None,
) -> tuple[Predictions, bool]:
    """Checked rows whose columns have names, and whether the labels are names rather than column numbers.

    Where columns are called by numbers, labels are read as those of earlier batches were, as `labels_by_name` says.
    Column numbers are refused if the columns may have `moved`.
    """
    whole = tuple(str(name) for name in whole_names or ())
    rule = LabelRule(len(class_names), class_names, whole, argument="labels", function=function)
    resolved = resolve(raw_labels(labels, "labels", function), rule)
    by_name = resolved.label_map.columns is not None
    if not by_name:
        check_counted(class_names, moved, function)
    if rule.needs_distinct and labels_by_name not in (None, by_name):
        ways = ("by the names of columns", "as column numbers")
        first, second = ways if labels_by_name else ways[::-1]
        raise LabelError("labels", function, expected=f"read {first}, as those before", got=f"labels read {second}")
    return read_probabilities(resolved.numbers, p, None, function, labels_name="labels"), by_name
