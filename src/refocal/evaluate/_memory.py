"""Results of methods on rows in memory: exact values, and intervals from the rows themselves."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal._groups import Groups
from refocal._validation import check_integer
from refocal.calibrators import Calibrator
from refocal.calibrators.class_order import InOrder
from refocal.errors import DataError
from refocal.evaluate import _details as details
from refocal.evaluate._results import BINS_NOTE, SEED, Details, Progress, Result, Results, reported
from refocal.evaluate.evaluation import Histogram
from refocal.evaluate.multilabel import are_of_labels
from refocal.evaluate.predicted import Methods, Predicted, ZerosAtLabels, log_proba, warn_of_unseen
from refocal.evaluate.provenance import unit_notes
from refocal.evaluate.statements import ScoreTest, score_terms
from refocal.metrics.bins import bins_of, uniform_index
from refocal.metrics.bootstrap import MetricRows, summarise
from refocal.metrics.influence import variance_of_mean
from refocal.metrics.inputs import mean
from refocal.metrics.intervals import number_of
from refocal.metrics.record import Metric
from refocal.metrics.reliability import unit_variances
from refocal.metrics.resampling import forget_resamples
from refocal.rows import Predictions
from refocal.rows.predictions import probability_rows

N_RESAMPLES = 500


def measure_in_memory(
    test: Predictions,
    methods: Methods,
    report: Progress,
    attempt: Callable[[str], AbstractContextManager[None]],
    *,
    n_resamples: int | None,
    seed: int | None,
    groups: Groups,
    metrics: Sequence[Metric] = (),
) -> Results:
    """Every metric of every method on rows in memory, and what it does in each of the `groups`.

    `attempt` may pass over the errors of a method.
    """
    n_resamples = N_RESAMPLES if n_resamples is None else check_integer(n_resamples, "n_resamples", "evaluate")
    seed = SEED if seed is None else seed
    results: dict[str, Result] = {}
    model_log_p = log_proba(test, None)
    for i, (name, calibrator) in enumerate(methods.items()):
        report(i, len(methods) + 1, f"measuring {name}")
        with attempt(name):
            results[name] = _measure_method(test, calibrator, model_log_p, groups, metrics, n_resamples, seed)
    forget_resamples()
    n_clusters = None if test.clusters is None else len(np.unique(test.clusters))
    notes = {"resamples": str(n_resamples), "seed": str(seed), **BINS_NOTE, **unit_notes(test.cluster_name, n_clusters)}
    if test.input == "probabilities":
        notes |= ZerosAtLabels.of(model_log_p, test).note(float(test.weights.sum()))
    n_groups = sum(len(np.unique(column)) for column in groups.values())
    return Results(results, len(test), list(test.groups), n_groups, notes)


def _measure_method(
    test: Predictions,
    calibrator: Calibrator | InOrder | None,
    model_log_p: NDArray[Any],
    groups: Groups,
    metrics: Sequence[Metric],
    n_resamples: int,
    seed: int,
) -> Result:
    """Every metric of one method, and what it does in each of the `groups`.

    `model_log_p` are the log-probabilities of the model itself.
    """
    start = time.perf_counter()
    warn_of_unseen(calibrator, test.groups, "evaluate")
    log_p = model_log_p if calibrator is None else log_proba(test, calibrator)
    predicted = Predicted.by(log_p, test)
    seconds = time.perf_counter() - start
    measured = []
    for metric in reported("with interval", test.n_classes, metrics):
        metric_rows = MetricRows.of(metric, predicted.of(metric))
        if metric.two_classes and np.isnan(metric_rows.value):  # only one of the classes occurs
            continue
        if not np.isfinite(metric_rows.value):
            expected = f"such that the {metric.label} is finite"
            impossible = np.isneginf(log_p[np.arange(len(test)), test.labels])
            row = f": a probability of 0 at the label of row {test.numbers[np.argmax(impossible)]}"
            got = f"{metric_rows.value!r}{row if impossible.any() else ''}"
            raise DataError("test", "evaluate", expected=expected, got=got)
        measured.append(metric_rows)
    names = [metric_rows.record.name for metric_rows in measured]
    summaries = summarise(measured, n_resamples, seed)
    values = {}
    for metric in reported("value", test.n_classes, metrics):
        value = float(metric.measure(predicted.of(metric)))
        if not (metric.two_classes and np.isnan(value)):
            values[metric.name] = value
    bins = bins_of(predicted.rows, n_bins=details.N_BINS)
    return Result(
        summaries=dict(zip(names, summaries, strict=True)),
        values=values,
        bins=bins,
        units=unit_variances(predicted.rows, bins),
        histogram=_confidence_histogram(predicted.rows),
        seconds=seconds,
        score=None if calibrator is None else _score_test(test, model_log_p, log_p),
        details=partial(_details_of, test, calibrator, groups, seed),
    )


def _score_test(test: Predictions, model_log_p: NDArray[Any], log_p: NDArray[Any]) -> ScoreTest:
    """Whether the model is improved by a method, with the larger of two variances: as seen, and as of a right model."""
    score, variance = score_terms(model_log_p, log_p, test.labels)
    weight = test.weights
    as_seen = variance_of_mean(score, test.weight, test.clusters)
    of_right_model = float(np.square(weight) @ variance) / float(weight.sum()) ** 2
    n_units = number_of(test.clusters, test.weight)
    return ScoreTest(mean(score, test.weight), math.sqrt(max(as_seen, of_right_model)), n_units)


def _confidence_histogram(rows: Predictions) -> Histogram:
    """The weight of right and wrong rows in intervals of equal width of the confidence."""
    confidence, correct = rows.confidence()
    weight = rows.weights
    n_bins = len(details.EDGES) - 1
    index = uniform_index(confidence, n_bins)
    right = np.bincount(index, weight * correct, n_bins)
    wrong = np.bincount(index, weight * ~correct, n_bins)
    return Histogram(details.EDGES.tolist(), right.tolist(), wrong.tolist())


def _details_of(
    test: Predictions,
    calibrator: Calibrator | InOrder | None,
    measured: Groups,
    seed: int,
    level: float,
    level_of_curve: float,
) -> Details:
    """Classes, groups, decisions and the flexible curve, from new predictions."""
    rows = probability_rows(test.labels, np.exp(log_proba(test, calibrator)), test.weight, clusters=test.clusters)
    positive = rows.of_positive()
    groups = details.groups_of(positive, measured)
    decisions = details.decision_table(details.sum_decisions(positive) / positive.weights.sum())
    # The labels of a multi-label model are no groups that errors are compared of.
    compared = {} if are_of_labels(test) else measured
    return Details(
        classes=details.classes_of(rows, test.numbers),
        groups=details.measure_groups(groups, level, seed),
        decisions=decisions,
        curve=details.smooth_curve(positive, level_of_curve) if rows.n_classes == 2 else None,
        group_errors=details.errors_of_groups(positive, compared, decisions, level_of_curve),
        sets=details.coverage_of_sets(rows, calibrator, test.groups, measured, level_of_curve, seed),
    )
