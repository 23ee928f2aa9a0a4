"""Entries of labels beside probabilities or logits: metrics without records, decisions, decompositions, segments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import partial

import matrix_oracle as oracle
import numpy as np
from matrix_cases import rows_of
from matrix_entries import (
    IN_BLOCKS,
    MEASURED,
    RESAMPLES,
    THREE_COSTS,
    TWO_COSTS,
    Entry,
    features,
    fit,
    plain,
    two_groups,
)

from refocal import metrics
from refocal.decide import (
    automation_curve,
    best_actions,
    evaluate_decisions,
    net_benefit_curve,
    predictive_values,
)
from refocal.decomposition import RefinedStopping, log_loss_decomposition, refined_log_loss
from refocal.forensics import training_loss
from refocal.metrics import METRICS, CalibrationHistogram, by_label, scorer, set_coverage
from refocal.monitor import CalibrationMonitor
from refocal.segments import find_segments

# Some of the ways to store labels: a formula behind the same reading need not try each.
FEW_KINDS = ("int", "bool", "text")
NEEDED = {
    "risk_at_coverage": {"coverage": 0.5},
    "coverage_at_risk": {"risk": 0.3},
    "resample": {"n_resamples": RESAMPLES},
    "bootstrap_interval": {"method": "percentile", "n_resamples": RESAMPLES},
    "paired_bootstrap": {"n_resamples": RESAMPLES},
}
"""The arguments that a function has no default for, and as few resamples as there may be."""
ONLY_TWO = ("mean_bias_interval", "flexible_curve")
"""Those of two classes."""


def functions_of_probabilities():
    """The functions of `refocal.metrics` of labels and probabilities that are no records of metrics, by their names."""
    of_records = {record.function for record in METRICS.values()}
    functions = {name: getattr(metrics, name) for name in metrics.__all__}
    return {
        name: function
        for name, function in functions.items()
        if inspect.isfunction(function)
        and function not in of_records
        and {"probabilities", "first"} & set(inspect.signature(function).parameters)
        and name != "by_label"
    }


def numbers_of(result):
    """All numbers of a result in the order of its fields."""
    if result is None or isinstance(result, str):
        return []
    if is_dataclass(result):
        result = vars(result)
    if isinstance(result, Mapping):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        return [number for part in result for number in numbers_of(part)]
    values = np.asarray(result)
    return [] if values.dtype.kind not in "biuf" else values.astype(np.float64).ravel().tolist()


def weighted(carried):
    return {} if carried.weight is None else {"sample_weight": carried.weight}


def moved(values, factor, shift):
    """Each number times a factor plus a shift, in the library of the values."""
    if isinstance(values, list):
        return (factor * np.array(values) + shift).tolist()
    if type(values).__module__.partition(".")[0] == "pyarrow":
        import pyarrow.compute

        columns = [pyarrow.compute.add(pyarrow.compute.multiply(column, factor), shift) for column in values.columns]
        return values.from_arrays(columns, values.column_names)
    return values * factor + shift


def softened(p, n_classes):
    """Half of each probability and half of equal ones."""
    return moved(p, 0.5, 0.5 / n_classes)


def arguments_of(name, y, p, n_classes):
    """The arguments of a function: the metric to resample, labels, and one or two sets of probabilities."""
    parameters = inspect.signature(getattr(metrics, name)).parameters
    metric = ("brier_score",) if "metric" in parameters else ()
    return (*metric, y, p, softened(p, n_classes)) if "second" in parameters else (*metric, y, p)


def run_function(name, carried, folder):
    function = getattr(metrics, name)
    options = NEEDED.get(name, {}) | weighted(carried)
    if carried.case.mark is not None:
        options["ignore_index"] = carried.case.mark
    return {name: numbers_of(function(*arguments_of(name, carried.y, carried.X, carried.case.n_classes), **options))}


def want_function(name, reference):
    """The same function of plain arrays, after the oracle's reading."""
    p, column = reference.in_order
    weight = {} if reference.is_mean_of_all else {"sample_weight": reference.weight}
    arguments = arguments_of(name, column, p, reference.case.n_classes)
    return {name: numbers_of(getattr(metrics, name)(*arguments, **NEEDED.get(name, {}), **weight))}


def run_with_classes(carried, folder):
    """Probabilities of arrays, whose columns are named beside them."""
    case = carried.case
    names = {} if case.columns is None else {"classes": list(case.columns)}
    return {"brier": metrics.brier_score(carried.y, carried.X, **names, **weighted(carried))}


def want_brier(reference):
    p, column = reference.in_order
    return {"brier": brier_score(reference, p, column)}


def brier_score(reference, p, column):
    """Σ_k (p_k - [label = k])², of two classes half of it."""
    occurred = np.eye(p.shape[1])[column]
    squares = np.sum((p - occurred) ** 2, axis=1)
    return reference.mean(squares / 2.0 if p.shape[1] == 2 else squares)


def run_set_coverage(carried, folder):
    case = carried.case
    names = {} if case.columns is None else {"classes": list(case.columns)}
    sets = plain(carried.X) > 0.2
    groups = two_groups(len(sets))
    return {"coverage": set_coverage(carried.y, sets, groups=groups, **names, **weighted(carried)).coverage.value}


def want_set_coverage(reference):
    return {"coverage": reference.mean(reference.of_label(reference.p > 0.2))}


def run_by_label(carried, folder):
    n_rows = len(rows_of(carried.case).labels)
    targets = np.arange(3 * n_rows).reshape(n_rows, 3)[:, : carried.case.n_classes] % 2
    found = by_label("brier_score", targets, carried.X, **weighted(carried))
    return {"labels": found.labels, "mean": found.mean}


def want_by_label(reference):
    targets = np.arange(3 * len(reference.is_kept)).reshape(-1, 3)[reference.is_kept, : reference.case.n_classes] % 2
    labels = np.average((reference.p - targets) ** 2, axis=0, weights=reference.weight)
    return {"labels": labels, "mean": labels.mean()}


def run_histogram(carried, folder):
    histogram = CalibrationHistogram()
    histogram.update(carried.y, carried.X, **weighted(carried))
    return {"histogram": numbers_of(histogram.compute(n_bins=5))}


def want_histogram(reference):
    p, column = reference.in_order
    weight = {} if reference.is_mean_of_all else {"sample_weight": reference.weight}
    return {"histogram": numbers_of(CalibrationHistogram().update(column, p, **weight).compute(n_bins=5))}


def run_scorer(carried, folder):
    fitted = fit(carried)
    return {"brier": scorer("brier_score")(fitted, features(carried), carried.y)}


def want_scorer(reference):
    p = np.exp(reference.log_p(reference.temperature))
    return {"brier": -brier_score(reference, p, reference.column)}


def run_score(carried, folder):
    return {"accuracy": fit(carried).score(features(carried), carried.y, **weighted(carried))}


def want_score(reference):
    return {"accuracy": reference.mean(np.argmax(reference.logits, axis=1) == reference.column)}


# Decisions.


def costs_of(case):
    return TWO_COSTS if case.n_classes == 2 else THREE_COSTS


def run_decide_groups(carried, folder):
    groups = two_groups(len(rows_of(carried.case).labels))
    found = evaluate_decisions(carried.y, carried.X, costs_of(carried.case), groups=groups, **weighted(carried))
    cost_of = {group.name: group.cost.value for group in found.groups}
    return {"costs": [cost_of[name] for name in ("north", "south") if name in cost_of]}


def want_decide_groups(reference):
    p, column = reference.in_order
    costs = np.array(costs_of(reference.case))
    cost = costs[column, np.argmin(p @ costs, axis=1)]
    means = []
    for name in ("north", "south"):
        is_in = reference.groups == name
        if is_in.any():
            means.append(np.average(cost[is_in], weights=reference.weight[is_in]))
    return {"costs": means}


def run_actions(carried, folder):
    found = best_actions(carried.X, costs_of(carried.case))
    return {"action": found.action, "cost": found.expected_cost}


def want_actions(reference):
    case = reference.case
    p = rows_of(case).values
    p = np.stack([1.0 - p, p], axis=1) if case.is_one_number else p
    if case.n_classes == 2 and oracle.positive_column(case.columns, [], None, is_one_number=case.is_one_number) == 0:
        p = p[:, ::-1]
    expected = p @ np.array(costs_of(case))
    return {"action": np.argmin(expected, axis=1), "cost": expected.min(axis=1)}


def run_automation(carried, folder):
    curve = automation_curve(carried.y, carried.X, n_points=5, **weighted(carried))
    return {"all": [curve.share[-1], curve.error[-1], curve.cost[-1]]}


def want_automation(reference):
    p, column = reference.in_order
    error = reference.mean(np.argmax(p, axis=1) != column)
    return {"all": [1.0, error, error]}


def run_net_benefit(carried, folder):
    curve = net_benefit_curve(carried.y, carried.X, thresholds=[0.3], **weighted(carried))
    return {"net_benefit": curve.net_benefit}


def want_net_benefit(reference):
    """The share of true positives less that of false positives times t / (1 - t)."""
    p, column = reference.in_order
    acted_on = p[:, 1] >= 0.3
    net_benefit = reference.mean(acted_on & (column == 1)) - reference.mean(acted_on & (column == 0)) * 0.3 / 0.7
    return {"net_benefit": [net_benefit]}


def run_predictive(carried, folder):
    values = predictive_values(carried.y, carried.X, threshold=0.5, **weighted(carried))
    return {"values": [values.sensitivity.value, values.specificity.value, values.ppv.value, values.npv.value]}


def want_predictive(reference):
    p, column = reference.in_order
    acted_on = p[:, 1] >= 0.5
    is_one = column == 1
    hits = reference.mean(acted_on & is_one)
    rejections = reference.mean(~acted_on & ~is_one)
    shares = [reference.mean(is_one), reference.mean(~is_one), reference.mean(acted_on), reference.mean(~acted_on)]
    return {"values": [hits / shares[0], rejections / shares[1], hits / shares[2], rejections / shares[3]]}


# What is fitted within: decompositions, losses of training, segments. Halves of so few rows are warned of.

# Logits times this are those of a network that focal loss made too modest.
SMALL = 0.25
BY_TEMPERATURE = {"by": "temperature", "cv": 2}


def run_decomposition(carried, folder):
    options = weighted(carried)
    if carried.case.mark is not None:
        options["ignore_index"] = carried.case.mark
    found = log_loss_decomposition(carried.y, carried.X, **BY_TEMPERATURE, **options)
    return {"total": found.total, "refinement": found.refinement}


def want_decomposition(reference):
    weight = {} if reference.is_mean_of_all else {"sample_weight": reference.weight}
    found = log_loss_decomposition(reference.column, reference.logits, **BY_TEMPERATURE, **weight)
    return {"total": reference.log_loss(), "refinement": found.refinement}


def run_refined(carried, folder):
    return {"refined": refined_log_loss(carried.y, carried.X, **BY_TEMPERATURE, **weighted(carried))}


def want_refined(reference):
    weight = {} if reference.is_mean_of_all else {"sample_weight": reference.weight}
    return {"refined": refined_log_loss(reference.column, reference.p, **BY_TEMPERATURE, **weight)}


def run_stopping(carried, folder):
    stopping = RefinedStopping(**BY_TEMPERATURE)
    stopping.update(carried.y, carried.X)
    return {"refined": stopping.best}


def want_stopping(reference):
    refined = log_loss_decomposition(reference.column, reference.logits, **BY_TEMPERATURE).refinement
    return {"refined": refined}


def run_training_loss(carried, folder):
    logits = moved(carried.X, SMALL, 0.0)
    loss = training_loss(carried.y, logits, n_resamples=20, min_wrong=1)
    gap = loss.explain(carried.y, logits)
    return {"gamma": numbers_of(loss), "gap": numbers_of(gap)}


def want_training_loss(reference):
    logits = SMALL * reference.logits
    loss = training_loss(reference.column, logits, n_resamples=20, min_wrong=1)
    return {"gamma": numbers_of(loss), "gap": numbers_of(loss.explain(reference.column, logits))}


def ages(n_rows):
    return {"age": np.arange(n_rows) % 7, "region": two_groups(n_rows)}


def run_segments(carried, folder):
    found = find_segments(carried.y, carried.X, ages(len(rows_of(carried.case).labels)), **weighted(carried))
    return {"segments": numbers_of(found)}


def want_segments(reference):
    p, column = reference.in_order
    columns = {name: values[reference.is_kept] for name, values in ages(len(reference.is_kept)).items()}
    weight = {} if reference.is_mean_of_all else {"sample_weight": reference.weight}
    return {"segments": numbers_of(find_segments(column, p, columns, **weight))}


def run_late_labels(carried, folder):
    """Probabilities of a monitor, whose labels come later."""
    watched = CalibrationMonitor()
    names = [f"row {i}" for i in range(len(rows_of(carried.case).labels))]
    watched.update(carried.X, ids=names)
    watched.add_labels(names, carried.y)
    summary = watched.summary()
    return {"watched": [summary.mean_p, summary.rate.value]}


def want_watched(reference):
    return {"watched": reference.watched}


SCORED = {"is_fit": True, "names_classes": True, "kinds": FEW_KINDS, "without": IN_BLOCKS}
MEASURED_FEW = {"kinds": FEW_KINDS, **MEASURED}
NAMED_BESIDE = {"gives_names": True, "takes_probabilities": True, "kinds": FEW_KINDS}
OF_LOGITS = {"inputs": ("logits",), "without": IN_BLOCKS, "kinds": FEW_KINDS, "is_fit": True}
FRAMES_AND_BLOCKS = ("pandas", "polars", "arrow", "dask_frame", "dask_array")


def of(subpackage, *names):
    return {"covers": tuple(f"refocal.{subpackage}.{name}" for name in names)}


ENTRIES = [
    *(
        Entry(
            f"function_{name}",
            partial(run_function, name),
            partial(want_function, name),
            n_classes=(2,) if name in ONLY_TWO else (2, 3),
            needs_both=True,
            takes_mark=True,
            **of("metrics", name),
            **MEASURED_FEW,
        )
        for name in functions_of_probabilities()
    ),
    Entry("metric_with_classes", run_with_classes, want_brier, without=FRAMES_AND_BLOCKS, **NAMED_BESIDE),
    Entry(
        "set_coverage",
        run_set_coverage,
        want_set_coverage,
        inputs=("logits", "probabilities"),
        scores=("plain", "minus_inf"),
        without=FRAMES_AND_BLOCKS,
        **of("metrics", "set_coverage"),
        **NAMED_BESIDE,
    ),
    Entry(
        "by_label",
        run_by_label,
        want_by_label,
        inputs=("logits", "probabilities"),
        takes_labels=False,
        **of("metrics", "by_label"),
        **MEASURED,
    ),
    Entry("histogram", run_histogram, want_histogram, **of("metrics", "CalibrationHistogram.update"), **MEASURED_FEW),
    Entry(
        "scorer",
        run_scorer,
        want_scorer,
        takes_weight=False,
        without_namings=("prefixed3_whole",),  # scorers know `classes_` alone, which have no beginning of columns
        **of("metrics", "scorer"),
        **SCORED,
    ),
    Entry("score", run_score, want_score, covers=("refocal.Calibrator.score",), **SCORED),
    Entry("decide_groups", run_decide_groups, want_decide_groups, **MEASURED_FEW),
    Entry(
        "best_actions",
        run_actions,
        want_actions,
        reads_labels=False,
        takes_weight=False,
        **of("decide", "best_actions"),
        **MEASURED_FEW,
    ),
    Entry("automation_curve", run_automation, want_automation, **of("decide", "automation_curve"), **MEASURED_FEW),
    Entry(
        "net_benefit_curve",
        run_net_benefit,
        want_net_benefit,
        n_classes=(2,),
        **of("decide", "net_benefit_curve"),
        **MEASURED_FEW,
    ),
    Entry(
        "predictive_values",
        run_predictive,
        want_predictive,
        n_classes=(2,),
        needs_both=True,
        **of("decide", "predictive_values"),
        **MEASURED_FEW,
    ),
    Entry(
        "decomposition",
        run_decomposition,
        want_decomposition,
        takes_mark=True,
        **of("decomposition", "log_loss_decomposition"),
        **OF_LOGITS,
    ),
    Entry(
        "refined_log_loss",
        run_refined,
        want_refined,
        needs_both=True,
        takes_probabilities=True,
        kinds=FEW_KINDS,
        # Folds are in the order of log-losses, of which single precision unties those of equal rows.
        without=(*IN_BLOCKS, "numpy_float32"),
        **of("decomposition", "refined_log_loss"),
    ),
    Entry(
        "refined_stopping",
        run_stopping,
        want_stopping,
        takes_weight=False,
        **of("decomposition", "RefinedStopping.update"),
        **OF_LOGITS,
    ),
    Entry(
        "training_loss",
        run_training_loss,
        want_training_loss,
        takes_weight=False,
        covers=("refocal.forensics.training_loss", "refocal.forensics.TrainingLoss.explain"),
        **OF_LOGITS,
    ),
    Entry(
        "find_segments",
        run_segments,
        want_segments,
        n_classes=(2,),
        needs_both=True,
        **of("segments", "find_segments"),
        **MEASURED_FEW,
    ),
    Entry(
        "late_labels",
        run_late_labels,
        want_watched,
        takes_weight=False,
        without_namings=("prefixed3_whole",),  # a monitor keeps the names of classes, without a beginning of columns
        **of("monitor", "CalibrationMonitor.add_labels"),
        **MEASURED_FEW,
    ),
]
