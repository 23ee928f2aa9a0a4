"""The gate for the rows of a fit: arrays and data frames with labels in, checked `Predictions` out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from refocal._arrays import to_numpy
from refocal.errors import LabelError
from refocal.rows.gate import Aligned, Arguments, aligned, names_of_columns
from refocal.rows.labels import IgnoreIndex, LabelRule, Resolved, resolve
from refocal.rows.positive import check_series
from refocal.rows.predictions import Predictions
from refocal.rows.scores import read_scores, stored_kind


def read_rows_of_fit(
    values: Any,
    labels: Any,
    weight: Any,
    kind: str,
    *,
    estimator: str,
    function: str,
    ignore_index: IgnoreIndex = None,
    groups: Any = None,
) -> Predictions:
    """Checked rows that the `function` of an `estimator` fits on, whose labels are of two classes at least.

    Rows without a label or of weight 0 are left out. Axes of scores before the last, as of images, are rows.

    >>> read_rows_of_fit([[2.0, 0.0], [0.0, 1.0]], ["a", "b"], None, "logits", estimator="E", function="E.fit").classes
    array(['a', 'b'], dtype='<U1')
    """
    if labels is None:
        expected = "given: requires y to be passed, but the target y is None"
        raise LabelError("y", function, expected=expected, got="None")
    rows = aligned(
        values,
        labels,
        weight,
        Arguments(),
        function,
        ignore_index=ignore_index,
        kind=kind,
        classes_last=True,
        several_axes=True,
    )
    scores = read_scores(rows.scores, kind, "X", function, owner=estimator, row_numbers=rows.row_numbers)
    resolved = _resolved(rows, int(scores.shape[-1]), function)
    if rows.scores.ndim == 1:
        check_series(values, resolved.classes.tolist(), "X", function)
    checked = Predictions(scores, resolved.numbers, stored_kind(kind), rows.weight, given_classes=resolved.classes)
    if groups is None:
        return checked
    return replace(checked, groups=rows.groups_of(groups, function))


def _resolved(rows: Aligned, n_classes: int, function: str) -> Resolved:
    """Labels of a fit, of two classes at least; they name columns without names in sorted order, as in scikit-learn."""
    names, whole_names = names_of_columns(rows.column_names)
    rule = LabelRule(n_classes, names, whole_names, sorts=True, argument="y", function=function)
    resolved = resolve(rows.labels, rule)
    if resolved.numbers.size and int(resolved.numbers.min()) == int(resolved.numbers.max()):
        only = to_numpy(rows.labels.values).ravel()[0]
        got = f"only one class, {only.item() if hasattr(only, 'item') else only!r}"
        raise LabelError("y", function, expected="of at least two classes", got=got)
    return resolved
