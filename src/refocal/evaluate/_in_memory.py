"""Results of methods on rows in memory: exact values, intervals from the rows themselves."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refocal._arrays import SMALLEST, Indices, as_floating, log_probabilities, to_numpy
from refocal._validation import check_integer
from refocal.calibrators import Calibrator
from refocal.decide import at_or_above
from refocal.engine.apply import probabilities_of
from refocal.errors import DataError
from refocal.evaluate._groups import groups_of, measure_groups
from refocal.evaluate._results import (
    BINS,
    DECISION_THRESHOLDS,
    EDGES,
    MOST_CLASSES,
    N_BINS,
    SEED,
    Details,
    Failures,
    Predicted,
    Progress,
    Result,
    Results,
    banded,
    class_row,
    count_classes,
    decision_table,
    log_proba_of,
    reported,
)
from refocal.evaluate.evaluation import ClassDetail, ClassRow, Histogram
from refocal.io import Predictions
from refocal.maps.chain import Chain
from refocal.metrics._bins import bins_of, make_bins, norm_of_gaps
from refocal.metrics._inputs import Rows
from refocal.metrics._resampling import forget_resamples
from refocal.metrics.bootstrap import MetricRows, summarise

N_RESAMPLES = 500
CLASS_BINS = 10
# The number of confusions and of examples that are kept for each class.
MOST_EXAMPLES = 5


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
        with failures.of(name):
            results[name] = _result_of(test, calibrator, level=level, n_resamples=n_resamples, seed=seed)
    forget_resamples()
    notes = {"resamples": str(n_resamples), "seed": str(seed), **BINS}
    return Results(results, len(test), list(test.groups), notes)


def _result_of(
    test: Predictions, calibrator: Calibrator | None, *, level: float, n_resamples: int, seed: int
) -> Result:
    """Every metric of one method."""
    start = time.perf_counter()
    log_p = log_proba(test, calibrator)
    seconds = time.perf_counter() - start
    rows = Rows(test.labels, np.exp(log_p), test.weight).of_positive()
    predicted = Predicted(rows, Rows(test.labels, log_p, test.weight))
    measured = []
    for metric in reported("with interval", test.n_classes):
        found = MetricRows.of(metric, predicted.of(metric))
        if metric.two_classes and np.isnan(found.value):  # only one of the classes occurs
            continue
        if not np.isfinite(found.value):
            expected = f"such that the {metric.label} is finite"
            raise DataError("test", "evaluate", expected=expected, got=repr(found.value))
        measured.append(found)
    summaries = summarise(measured, n_resamples, seed)
    (confidence, correct), weight = rows.confidence(), rows.weights
    right, wrong = (np.histogram(confidence, EDGES, weights=weight * each)[0].tolist() for each in (correct, ~correct))
    return Result(
        summaries={each.record.name: summary for each, summary in zip(measured, summaries, strict=True)},
        values={m.name: float(m.measure(predicted.of(m))) for m in reported("value", test.n_classes)},
        reliability=banded(bins_of(rows, n_bins=N_BINS), level),
        histogram=Histogram(EDGES.tolist(), right, wrong),
        seconds=seconds,
        details=partial(_details, test, calibrator, level, seed),
    )


def log_proba(predictions: Predictions, calibrator: Calibrator | None) -> NDArray[Any]:
    """Log-probabilities of a calibrator, or of the model itself, in float32 or float64.

    Predictions have been checked when they were made, and are not checked again.
    """
    of_probabilities = calibrator is not None and calibrator.input == "probabilities"
    if predictions.input == "probabilities":  # each calibrator of probabilities has a floor of its own for zeros
        logits = log_probabilities(predictions.values, SMALLEST if of_probabilities else None)
    else:  # half precision would round the confidences that are to be measured
        logits = as_floating(predictions.values, "values", "evaluate")[0]
        logits = probabilities_of(Chain(), logits, log=True) if of_probabilities else logits
    return np.asarray(to_numpy(log_proba_of(calibrator, logits, predictions.groups)))


def _details(test: Predictions, calibrator: Calibrator | None, level: float, seed: int) -> Details:
    """Every class, every group, and every decision, from new predictions."""
    rows = Rows(test.labels, np.exp(log_proba(test, calibrator)), test.weight)
    measured = rows.of_positive()
    (p, happened), share = measured.confidence(), measured.weights / measured.weights.sum()
    decided = at_or_above(DECISION_THRESHOLDS, p, share, share * happened, share * p)
    groups = measure_groups(groups_of(measured, test.groups), level, seed)
    return Details(_classes(rows), groups, decision_table(np.array(decided)))


def _classes(rows: Rows) -> list[ClassRow]:
    """All classes, or those with the most rows where there are too many to show."""
    top, _, predicted = rows.top
    counts, others = count_classes(rows), _confusions(rows.labels, predicted)
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
            apart.p.round(4).tolist(),
            apart.rate.round(4).tolist(),
            others.get((0, label), []),
            others.get((1, label), []),
            wrong[np.argsort(-top[wrong], kind="stable")[:MOST_EXAMPLES]].tolist(),
        )
        found.append(class_row(counts, label, norm_of_gaps(bins, "l1"), detail))
    return found


def _confusions(labels: Indices, predicted: NDArray[Any]) -> dict[tuple[int, int], list[list[int]]]:
    """The most frequent others by (0, class) for rows of a class and by (1, class) for rows predicted as it."""
    wrong = labels != predicted
    width = int(max(labels.max(), predicted.max())) + 1
    pairs, counts = np.unique(labels[wrong] * width + predicted[wrong], return_counts=True)
    found: dict[tuple[int, int], list[list[int]]] = {}
    for i in np.argsort(-counts, kind="stable").tolist():
        pair = divmod(int(pairs[i]), width)
        for side in (0, 1):
            listed = found.setdefault((side, pair[side]), [])
            if len(listed) < MOST_EXAMPLES:
                listed.append([pair[1 - side], int(counts[i])])
    return found
