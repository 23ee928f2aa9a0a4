"""Results of methods on rows in memory: exact values, intervals from the rows themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import as_floating, to_numpy
from refocal._validation import check_integer
from refocal.calibrators import Calibrator, MultiLabelCalibration
from refocal.engine.apply import log_probabilities_of
from refocal.errors import DataError
from refocal.evaluate._failures import Failures
from refocal.evaluate._groups import groups_of, measure_groups, warn_of_groups
from refocal.evaluate._provenance import run_of
from refocal.evaluate._results import (
    EDGES,
    MOST_CLASSES,
    N_BINS,
    Progress,
    Result,
    Results,
    banded,
    class_row,
    count_classes,
    decision_sums,
    decision_table,
    reported,
)
from refocal.evaluate.evaluation import ClassDetail, ClassRow, GroupRow, Histogram
from refocal.io import Predictions
from refocal.io.multilabel import LABEL
from refocal.maps.chain import Chain, in_row_blocks
from refocal.metrics._bins import bins_of, make_bins, norm_of_gaps
from refocal.metrics._inputs import Rows
from refocal.metrics._resampling import forget_resamples
from refocal.metrics.bootstrap import MetricRows, summarise

N_RESAMPLES, SEED = 500, 0
CLASS_BINS = 10
# Confusions and examples that are kept of each class.
FEW = 5


def measure_rows(
    test: Predictions,
    methods: Mapping[str, Calibrator | None],
    report: Progress,
    failures: Failures,
    *,
    level: float,
    n_resamples: int | None,
    seed: int | None,
    groups: Any,
) -> Results:
    """Every metric of every method that can be measured."""
    test = test if groups is None else test.with_groups(groups)
    n_resamples = N_RESAMPLES if n_resamples is None else check_integer(n_resamples, "n_resamples", "evaluate")
    seed = SEED if seed is None else seed
    results: dict[str, Result] = {}
    for i, (name, calibrator) in enumerate(methods.items()):
        report(i, len(methods) + 1, f"measuring {name}")
        warn_of_groups(name, calibrator, test.groups)
        with failures.of(name):
            results[name] = _result_of(test, calibrator, level=level, n_resamples=n_resamples, seed=seed)
    forget_resamples()
    return Results(results, len(test), run_of(n_resamples, seed))


def _result_of(
    test: Predictions, calibrator: Calibrator | None, *, level: float, n_resamples: int, seed: int
) -> Result:
    """Every metric of one method."""
    start = time.perf_counter()
    log_p = log_proba(test, calibrator)
    seconds = time.perf_counter() - start
    rows = _rows(test, log_p).of_positive()
    logs = Rows(rows.labels, log_p, rows.weight)
    measured = []
    for metric in reported("with interval", test.n_classes):
        of = logs if metric.takes_logs else rows
        value = metric.measure(of)
        if metric.two_classes and np.isnan(value):  # only one of the classes occurs
            continue
        if not np.isfinite(value):
            raise DataError("test", "evaluate", expected=f"such that the {metric.label} is finite", got=repr(value))
        measured.append(MetricRows(metric, of, value))
    summaries = summarise(measured, n_resamples, seed)
    (confidence, correct), weight = rows.confidence(), rows.weights
    right, wrong = (np.histogram(confidence, EDGES, weights=weight * each)[0].tolist() for each in (correct, ~correct))
    return Result(
        summaries={each.record.name: summary for each, summary in zip(measured, summaries, strict=True)},
        values={m.name: float(m.measure(logs if m.takes_logs else rows)) for m in reported("value", test.n_classes)},
        reliability=banded(bins_of(rows, n_bins=N_BINS), level),
        histogram=Histogram(EDGES.tolist(), right, wrong),
        classes=partial(_classes, test, calibrator),
        seconds=seconds,
        groups=partial(_groups, test, calibrator, level, seed),
        decisions=decision_table(decision_sums(rows, weight / weight.sum())),
    )


def log_proba(predictions: Predictions, calibrator: Calibrator | None) -> NDArray[Any]:
    """Log-probabilities of a calibrator, or of the model itself, in float32 or float64."""
    if calibrator is None:
        return _by_rows(partial(log_probabilities_of, Chain()), predictions.logits)
    if isinstance(calibrator, MultiLabelCalibration):
        return np.asarray(calibrator.log_proba_of_labels(wide(predictions.values), predictions.groups[LABEL]))
    values = predictions.values if calibrator.input == predictions.input else predictions.logits
    if calibrator.input == "probabilities" and predictions.input == "logits":
        values = np.exp(_by_rows(partial(log_probabilities_of, Chain()), values))
    if calibrator.input == "log-odds":
        values = wide(values)[:, 1] - wide(values)[:, 0]
    if calibrator.needs_groups:
        return np.asarray(to_numpy(calibrator.predict_log_proba(wide(values), groups=predictions.groups)))  # type: ignore[call-arg]
    # Predictions have been checked when they were made: neither chains nor `log_proba_of` check them again.
    predict = calibrator.log_proba_of if calibrator.input == "logits" else calibrator.predict_log_proba
    return _by_rows(predict, values)


def _rows(test: Predictions, log_p: NDArray[Any]) -> Rows:
    """Labels, probabilities and weights for the metrics."""
    return Rows(np.asarray(test.labels, dtype=np.int64), np.exp(log_p), test.weight)


def _by_rows(function: Callable[[Any], Any], values: Any) -> NDArray[Any]:
    """A function of rows in float32 or float64; half precision is converted block by block."""
    found = function(wide(values)) if values.ndim == 1 else in_row_blocks(lambda rows: function(wide(rows)), values)
    return np.asarray(to_numpy(found))


def _groups(test: Predictions, calibrator: Calibrator | None, level: float, seed: int) -> list[GroupRow]:
    if not test.groups:
        return []
    rows = _rows(test, log_proba(test, calibrator)).of_positive()
    return measure_groups(groups_of(rows, test.groups, seed), level)


def wide(values: Any) -> Any:
    """At least float32: half precision would round the confidences that are to be measured."""
    return as_floating(values, "values", "evaluate")[0]


def _classes(test: Predictions, calibrator: Calibrator | None) -> list[ClassRow]:
    rows = _rows(test, log_proba(test, calibrator))
    top, _, predicted = rows.top
    confusions, counts = _confusions(rows.labels, predicted), count_classes(rows)
    # All classes, or those with the most rows where there are too many to show.
    labels = np.sort(np.argsort(-counts[0], kind="stable")[:MOST_CLASSES]).tolist()
    found = []
    for label, (p, occurs) in zip(labels, rows.events(labels), strict=True):
        bins = make_bins(p, occurs, rows.weight, n_bins=N_BINS, strategy="quantile")
        # For a diagram of one class, whose probability is small in most rows, bins of equal mass would all lie at 0.
        apart = make_bins(p, occurs, rows.weight, n_bins=CLASS_BINS, strategy="uniform")
        wrong = np.flatnonzero(occurs & (predicted != label))
        detail = ClassDetail(
            apart.count.tolist(),
            # Four digits are what a diagram shows; a file with thousands of classes stays small.
            (apart.confidence / apart.weight).round(4).tolist(),
            (apart.correct / apart.weight).round(4).tolist(),
            confusions.get((0, label), []),
            confusions.get((1, label), []),
            wrong[np.argsort(-top[wrong], kind="stable")[:FEW]].tolist(),
        )
        found.append(class_row(counts, label, norm_of_gaps(bins, "l1"), detail))
    return found


def _confusions(labels: NDArray[np.int64], predicted: NDArray[Any]) -> dict[tuple[int, int], list[list[int]]]:
    """The most frequent others by (0, class) for rows of a class and by (1, class) for rows predicted as it."""
    wrong = labels != predicted
    width = int(max(labels.max(), predicted.max())) + 1
    pairs, counts = np.unique(labels[wrong] * width + predicted[wrong], return_counts=True)
    found: dict[tuple[int, int], list[list[int]]] = {}
    for i in np.argsort(-counts, kind="stable").tolist():
        pair = divmod(int(pairs[i]), width)
        for side in (0, 1):
            listed = found.setdefault((side, pair[side]), [])
            if len(listed) < FEW:
                listed.append([pair[1 - side], int(counts[i])])
    return found
