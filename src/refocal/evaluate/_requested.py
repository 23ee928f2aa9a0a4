"""What is asked of an evaluation: the rows with all that comes beside them, checked before anything is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from refocal._clusters import as_clusters
from refocal._groups import Groups, as_groups
from refocal._validation import check_integer, check_seed
from refocal.engine import BlockedDataset
from refocal.errors import ParameterError, ShapeError
from refocal.evaluate._blocks import refuse_options_of_memory
from refocal.evaluate.multilabel import are_of_labels
from refocal.evaluate.provenance import RunNote
from refocal.io import MultiLabelPredictions, Predictions
from refocal.metrics.inputs import check_clusters, check_level
from refocal.metrics.record import Metric, has_interval
from refocal.segments import as_features


class Requested(NamedTuple):
    """Rows to measure, those of several labels pooled; the groups to measure, and what is noted of the labels."""

    rows: Predictions | BlockedDataset
    groups: Groups
    notes: dict[str, str]


def requested_rows(
    test: Any,
    function: str,
    metrics: Sequence[Metric],
    *,
    level: float,
    n_resamples: int | None,
    seed: int | None,
    groups: Any,
    clusters: Any,
    features: Any,
) -> Requested:
    """The rows with the groups and clusters that a caller names beside them, if all can be measured that is asked."""
    check_level(level, function)
    if isinstance(test, BlockedDataset):
        refuse_options_of_memory(n_resamples=n_resamples, seed=seed, groups=groups, clusters=clusters)
    if n_resamples is not None:
        check_integer(n_resamples, "n_resamples", function)
    if seed is not None:
        check_seed(seed, function)
    rows = test if clusters is None else _with_clusters(test, clusters, function)
    check_rows(rows, "test", function)
    if features is not None:
        if not isinstance(rows, Predictions) or rows.n_classes != 2:
            expected = "left out, unless rows are Predictions of two classes"
            raise ParameterError("features", function, expected=expected, got=type(features).__name__)
        as_features(features, len(rows), function)
    notes: dict[str, str] = {}
    if isinstance(rows, MultiLabelPredictions):
        notes = {RunNote.ROWS_OF_LABELS: str(len(rows)), RunNote.LABELS_OF_ROWS: str(rows.n_classes)}
        rows = rows.pooled()
    rows, measured = _with_groups(rows, groups, function)
    _check_metrics(metrics, rows, function)
    return Requested(rows, measured, notes)


def _with_clusters(test: Any, clusters: Any, function: str) -> Any:
    """Rows in memory, with the clusters that the caller names beside them."""
    if isinstance(test, Predictions):
        return test.with_clusters(clusters)
    if isinstance(test, MultiLabelPredictions):  # all labels of a row are in its cluster
        numbers, name, names = as_clusters(clusters, len(test), function)
        return replace(test, clusters=numbers, cluster_name=name, cluster_names=names)
    return test


def _with_groups(
    rows: Predictions | BlockedDataset, groups: Any, function: str
) -> tuple[Predictions | BlockedDataset, Groups]:
    """The rows with the groups that a caller adds to theirs, and the groups to measure: the added ones, if any.

    A calibrator of groups is applied to all groups of the rows, also to those that are not measured.
    """
    if isinstance(rows, BlockedDataset):
        return rows, {}
    if groups is None:
        return rows, rows.groups
    if are_of_labels(rows):
        expected = "left out for rows of several labels, whose groups are the labels"
        raise ParameterError("groups", function, expected=expected, got=type(groups).__name__)
    measured = as_groups(groups, len(rows), function)
    return rows.with_groups({**rows.groups, **measured}), measured


def check_rows(rows: Any, argument: str, function: str) -> None:
    """Rows that have come through the gate."""
    if not isinstance(rows, (Predictions, MultiLabelPredictions, BlockedDataset)):
        expected = "Predictions, as Predictions.from_logits or refocal.io.read makes them"
        raise ParameterError(argument, function, expected=expected, got=type(rows).__name__)
    if not isinstance(rows, BlockedDataset) and len(rows) == 0:
        raise ShapeError(argument, function, expected="of at least one row", got="none")
    check_clusters(getattr(rows, "clusters", None), function)


def _check_metrics(metrics: Sequence[Metric], test: Predictions | BlockedDataset, function: str) -> None:
    """Metrics that the rows can be measured by."""
    for metric in metrics:
        if isinstance(test, BlockedDataset):
            expected = "left out for rows in blocks; refocal.register a Metric that is a mean of terms"
            raise ParameterError("metrics", function, expected=expected, got=metric.name)
        if (metric.two_classes and test.n_classes != 2) or (metric.many_classes and test.n_classes == 2):
            got = f"{metric.name} of rows of {test.n_classes} classes"
            raise ParameterError("metrics", function, expected="defined for the number of classes", got=got)
        if not has_interval(metric):
            expected = "metrics with an interval that holds, such as 'ece' or 'debiased_ece'"
            raise ParameterError("metrics", function, expected=expected, got=f"{metric.name}, which noise raises")
