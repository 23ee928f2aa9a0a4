"""Entries of rows that have been read: parts and forms, many networks, past batches, shares and sets of classes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import matrix_oracle as oracle
import numpy as np
from matrix_cases import rows_of
from matrix_entries import (
    FRAMES,
    IN_BLOCKS,
    LABELLED,
    WITHOUT_ZEROS,
    Entry,
    features,
    fit,
    keys_of,
    plain,
    predictions,
    seen,
    settings,
    turned_calibrator,
    two_groups,
    want_compare,
    want_fit_of_blocks,
    want_log_loss,
    want_seen,
)
from matrix_measures import FEW_KINDS, brier_score

from refocal import PredictionSets, TemperatureScaling, VennAbersCalibration, load
from refocal.evaluate import Run, compare_many
from refocal.io import Predictions, split
from refocal.io import rows_of as blocks_of
from refocal.metrics import METRICS
from refocal.metrics import brier_score as metric_of_rows
from refocal.monitor import backtest
from refocal.shift import adapt, estimate_performance, update

# Parts and forms of Predictions.


def both(first, second):
    """The log-loss of two parts together."""
    log_losses = []
    weights = []
    for part in (first, second):
        weights.append(len(part) if part.weight is None else part.weight.sum())
        log_losses.append(seen(part)["log_loss"])
    return np.average(log_losses, weights=weights)


def run_split(carried, folder):
    rows = predictions(carried)
    first, second = split(rows, 0.5)
    counts = [np.bincount(plain(part.labels), minlength=rows.n_classes) for part in (first, second)]
    return {"log_loss": both(first, second), "uneven": max(0, int(np.abs(counts[0] - counts[1]).max()) - 1)}


def want_split(reference):
    """All rows, and of every class as many in both parts, or one more."""
    return want_log_loss(reference) | {"uneven": 0}


def run_split_time(carried, folder):
    rows = predictions(carried)
    earlier, later = split(rows, 0.5, time=np.arange(len(rows)))
    return {"earlier": seen(earlier)["log_loss"], "later": seen(later)["log_loss"]}


def want_split_time(reference):
    number = np.flatnonzero(reference.is_kept)
    is_early = number < len(reference.is_kept) / 2
    log_loss = -np.log(reference.of_label(reference.p))
    earlier = np.average(log_loss[is_early], weights=reference.weight[is_early])
    later = np.average(log_loss[~is_early], weights=reference.weight[~is_early])
    return {"earlier": earlier, "later": later}


def run_split_clusters(carried, folder):
    rows = predictions(carried)
    rows = rows.with_clusters(np.arange(len(rows)) // 4)
    first, second = split(rows, 0.5)
    shared = set(plain(first.clusters).tolist()) & set(plain(second.clusters).tolist())
    return {"log_loss": both(first, second), "shared": len(shared)}


def want_split_clusters(reference):
    return want_log_loss(reference) | {"shared": 0}


def run_forms(carried, folder):
    """The rows from the last to the first; logarithms; both classes of two; the names in the other order."""
    rows = predictions(carried)
    found = {
        "turned_rows": seen(rows.take(np.arange(len(rows))[::-1]))["log_loss"],
        "log_p": seen(rows.as_log_probabilities().in_columns())["log_loss"],
    }
    if rows.n_classes == 2:
        found["columns"] = seen(rows.as_probabilities().in_columns())["log_loss"]
        found["positive"] = np.average(plain(rows.event(rows.classes[1])[0]), weights=rows.weights)
    if has_names(carried.case):
        found["other_order"] = seen(rows.in_order_of(rows.class_names[::-1]))["log_loss"]
    return found


def has_names(case):
    """Whether columns are called otherwise than by their numbers."""
    counted = [str(column) for column in range(case.n_classes)]
    return case.columns is not None and sorted(map(oracle.key, case.columns)) != counted


def want_forms(reference):
    wanted = want_seen(reference)
    names = ["turned_rows", "log_p"]
    names += ["columns"] if reference.case.n_classes == 2 else []
    names += ["other_order"] if has_names(reference.case) else []
    more = {"positive": wanted["positive"]} if reference.case.n_classes == 2 else {}
    return dict.fromkeys(names, wanted["log_loss"]) | more


def run_measured(carried, folder):
    rows = predictions(carried)
    return {"brier": metric_of_rows(rows), "by_record": METRICS["brier_score"].measure(rows)}


def want_measured(reference):
    p, column = reference.in_order
    brier = brier_score(reference, p, column)
    return {"brier": brier, "by_record": brier}


def run_fit_rows(carried, folder):
    """Predictions in the place of X and y."""
    rows = predictions(carried)
    fitted = TemperatureScaling(**settings(carried.case)).fit(rows)
    p = plain(fitted.predict_proba(rows))
    log_loss = -np.log(p[np.arange(len(p)), plain(rows.in_columns().labels)])
    is_kept = rows.weights > 0.0
    return {
        "temperature": fitted.temperature_,
        "after": np.average(log_loss[is_kept], weights=rows.weights[is_kept]),
        "accuracy": fitted.score(rows),
    }


def want_fit_rows(reference):
    temperature = reference.temperature
    accuracy = reference.mean(np.argmax(reference.logits, axis=1) == reference.column)
    return {"temperature": temperature, "after": reference.log_loss(temperature), "accuracy": accuracy}


def run_rows_of(carried, folder):
    """Rows that are not in memory."""
    case = carried.case
    rows = blocks_of(carried.X, carried.y, carried.weight, input=case.input)
    fitted = TemperatureScaling(**settings(case)).fit(rows)
    return {"temperature": fitted.temperature_, "classes": keys_of(fitted.classes_)}


# Many networks, past batches.


def run_compare_many(carried, folder):
    rows = predictions(carried)
    found = compare_many([Run(rows, rows, network="net")], ["ts"], metrics=["log_loss"], n_draws=1)
    losses = found.runs[0].values["log_loss"]
    return {"log_loss": losses["none"], "after": losses["ts"]}


def run_backtest(carried, folder):
    """The rows in two batches, of which the second has its columns in another order where they have names."""
    rows = predictions(carried)
    half = len(rows) // 2
    number = np.arange(len(rows))
    later = rows.take(number[half:])
    if rows.class_names is not None and rows.n_classes > 2:
        later = later.in_order_of(rows.class_names[::-1])
    found = backtest([(0, rows.take(number[:half])), (1, later)])
    return {"log_loss": found.result("keep").log_loss}


# Calibrators on other rows than those of their fit.


def run_estimate(carried, folder):
    calibrator = load(turned_calibrator(carried.case, folder))
    found = estimate_performance(calibrator, predictions(carried))
    confusion = np.array(found.confusion)[turn(carried.case), turn(carried.case)]
    return {"confusion": np.ravel(confusion), "shares": confusion.sum(axis=0)}


def turn(case):
    """What puts the classes of `turned_calibrator` into the order of the columns, and back."""
    return slice(None, None, 1 if case.columns is None else -1)


def of_plain_arrays(reference):
    """The same calibrator of logits, its columns in their order, and new rows, both on plain arrays."""
    case = reference.case
    n_rows = "many" if case.rows == "one" else case.rows
    clean = rows_of(replace(case, scores="plain", rows=n_rows, is_weighted=False, positive=None, input="logits"))
    labels = np.arange(len(clean.logits)) % case.n_classes
    calibrator = TemperatureScaling(temperatures=(2.0,)).fit(clean.logits, labels)
    weight = None if reference.is_mean_of_all else reference.weight
    return calibrator, Predictions.from_logits(reference.logits[:, turn(case)], reference.column, weight=weight)


def want_estimate(reference):
    """The shares of rows in which each class is the largest, and the confusion on plain arrays."""
    predicted = np.eye(reference.case.n_classes)[np.argmax(reference.log_p(2.0), axis=1)]
    calibrator, rows = of_plain_arrays(reference)
    order = turn(reference.case)
    confusion = np.array(estimate_performance(calibrator, rows).confusion)[order, order]
    return {
        "confusion": np.ravel(confusion),
        "shares": reference.weight @ predicted / reference.weight.sum(),
    }


def run_adapt(carried, folder):
    calibrator = load(turned_calibrator(carried.case, folder))
    rows = predictions(carried)
    adapted, found = adapt(calibrator, rows)
    order = turn(carried.case)
    return {"shares": np.array(found.shares)[order], "p": plain(adapted.predict_proba(rows))[:, order]}


def want_adapt(reference):
    """The same on plain arrays."""
    calibrator, rows = of_plain_arrays(reference)
    adapted, found = adapt(calibrator, rows)
    order = turn(reference.case)
    return {"shares": np.array(found.shares)[order], "p": plain(adapted.predict_proba(rows.logits))[:, order]}


def run_update(carried, folder):
    fitted = fit(carried)
    updated = update(fitted, features(carried), carried.y)
    return {"p": plain(updated.predict_proba(features(carried)))}


def want_update(reference):
    fitted = TemperatureScaling().fit(reference.logits, reference.column)
    return {"p": plain(update(fitted, reference.logits, reference.column).predict_proba(reference.logits))}


# Sets of classes and intervals.


def sets(by_group, case):
    conditional = "group" if by_group else "none"
    return PredictionSets(coverage=0.7, randomised=False, conditional=conditional, **settings(case))


def run_sets(by_group, carried, folder):
    case = carried.case
    groups = {"groups": two_groups(len(rows_of(case).labels))} if by_group else {}
    weight = {} if carried.weight is None else {"sample_weight": carried.weight}
    fitted = sets(by_group, case).fit(carried.X, carried.y, **groups, **weight)
    return {"sets": plain(fitted.predict_set(features(carried), **groups)).astype(float)}


def want_sets(by_group, reference):
    groups = {"groups": reference.groups} if by_group else {}
    fitted = PredictionSets(coverage=0.7, randomised=False, conditional="group" if by_group else "none")
    fitted.fit(reference.logits, reference.column, reference.weight, **groups)
    return {"sets": fitted.predict_set(reference.logits, **groups).astype(float)}


def run_interval(carried, folder):
    fitted = VennAbersCalibration(**settings(carried.case)).fit(carried.X, carried.y)
    lower, upper = fitted.predict_interval(features(carried))
    return {"lower": plain(lower), "upper": plain(upper)}


def want_interval(reference):
    fitted = VennAbersCalibration().fit(reference.logits, reference.column)
    lower, upper = fitted.predict_interval(reference.logits)
    return {"lower": lower, "upper": upper}


IO = "refocal.io.Predictions"
FEW = {"kinds": FEW_KINDS, **LABELLED}
UNMARKED = FEW | {"takes_mark": False}
WITH_CALIBRATOR = UNMARKED | {"scores": WITHOUT_ZEROS, "has_calibrator": True, "takes_positive": False}
PLAIN_FIT = {"is_fit": True, "names_classes": True, "kinds": FEW_KINDS, "without": IN_BLOCKS}

ENTRIES = [
    Entry("split", run_split, want_split, needs_both=True, covers=("refocal.io.split",), **FEW),
    Entry("split_time", run_split_time, want_split_time, needs_both=True, **UNMARKED),
    Entry(
        "split_clusters",
        run_split_clusters,
        want_split_clusters,
        needs_both=True,
        covers=(f"{IO}.with_clusters",),
        **UNMARKED,
    ),
    Entry(
        "forms",
        run_forms,
        want_forms,
        covers=tuple(f"{IO}.{name}" for name in ("take", "in_columns", "in_order_of", "event")),
        **FEW,
    ),
    Entry("rows_measured", run_measured, want_measured, covers=("refocal.metrics.Metric.measure",), **FEW),
    Entry("fit_rows", run_fit_rows, want_fit_rows, is_fit=True, **FEW),
    Entry(
        "rows_of_fit",
        run_rows_of,
        want_fit_of_blocks,
        is_fit=True,
        names_classes=True,
        without=(
            "numpy_float64",
            "numpy_float32",
            "numpy_float16",
            "numpy_int64",
            "lists",
            "torch",
            "jax",
            *FRAMES[:3],
        ),
        covers=("refocal.io.rows_of",),
    ),
    Entry(
        "compare_many", run_compare_many, want_compare, is_fit=True, covers=("refocal.evaluate.compare_many",), **FEW
    ),
    Entry(
        "backtest",
        run_backtest,
        want_log_loss,
        needs_both=True,
        takes_weight=False,
        covers=("refocal.monitor.backtest",),
        **FEW,
    ),
    Entry(
        "estimate_performance",
        run_estimate,
        want_estimate,
        covers=("refocal.shift.estimate_performance",),
        **WITH_CALIBRATOR,
    ),
    Entry(
        "adapt",
        run_adapt,
        want_adapt,
        needs_both=True,
        covers=("refocal.shift.adapt", "refocal.Calibrator.adapt"),
        **WITH_CALIBRATOR,
    ),
    Entry("update", run_update, want_update, takes_weight=False, covers=("refocal.shift.update",), **PLAIN_FIT),
    *(
        Entry(
            name,
            partial(run_sets, by_group),
            partial(want_sets, by_group),
            covers=("refocal.PredictionSets.fit", "refocal.PredictionSets.predict_set"),
            **PLAIN_FIT,
        )
        for name, by_group in (("sets", False), ("sets_by_group", True))
    ),
    Entry(
        "predict_interval",
        run_interval,
        want_interval,
        takes_weight=False,
        covers=("refocal.VennAbersCalibration.predict_interval",),
        **PLAIN_FIT,
    ),
]
