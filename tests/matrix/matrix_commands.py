"""Entries of files and commands: tables of runs, reports, shares, past batches, and several labels per row."""

from __future__ import annotations

from pathlib import Path

import matrix_oracle as oracle
import numpy as np
from matrix_cases import rows_of
from matrix_entries import (
    APPLIED,
    READ,
    SETS,
    WITHOUT_ZEROS,
    Entry,
    command,
    flags,
    multilabel_targets,
    plain,
    reading,
    seen,
    turned_calibrator,
    want_compare,
    want_log_loss,
    want_seen,
)
from matrix_measures import FEW_KINDS
from matrix_moved import turn, want_adapt

from refocal import MultiLabelCalibration, load
from refocal.evaluate import read_runs
from refocal.io import MultiLabelPredictions, read_multilabel
from refocal.monitor import CalibrationMonitor


def run_read_runs(carried, folder):
    table = [{"validation": carried.path, "test": carried.path, "network": "net"}]
    (run,) = read_runs(table, **reading(carried))
    assert seen(run.validation) == seen(run.test)
    return seen(run.test)


def run_command_compare_many(carried, folder):
    table = folder / "runs.csv"
    table.write_text(f"validation,test,network\n{carried.path},{carried.path},net\n")
    found = command("compare-many", table, "-m", "ts", "--metrics", "log_loss", *flags(carried))
    losses = found["runs"][0]["values"]["log_loss"]
    return {"log_loss": losses["none"], "after": losses["ts"]}


def run_command_report(carried, folder):
    page = folder / "page.html"
    asked = ("-m", "ts", "--resamples", 10, "-o", page)
    command("report", carried.path, carried.path, *asked, *flags(carried))
    return {"is_written": page.read_text().startswith("<!doctype html>")}


def want_report(reference):
    return {"is_written": True}


def run_command_adapt(carried, folder):
    """The calibrator's classes are in the other order than the file's columns."""
    case = carried.case
    command("adapt", turned_calibrator(case, folder), carried.path, "-o", folder / "adapted.json")
    values = rows_of(case).values
    given = values if case.is_one_number else values[:, turn(case)]
    return {"p": plain(load(folder / "adapted.json").predict_proba(given))[:, turn(case)]}


def want_adapted(reference):
    return {"p": want_adapt(reference)["p"]}


def run_command_backtest(carried, folder):
    found = command("monitor", carried.path, "--backtest", "--state", folder / "state.json", *flags(carried))
    return {"log_loss": next(result["log_loss"] for result in found["results"] if result["name"] == "keep")}


def run_command_watch(carried, folder):
    """A monitor of what a calibrator predicts, of which the second class is the positive one."""
    state = folder / "state.json"
    calibrator = turned_calibrator(carried.case, folder)
    command("monitor", carried.path, "--calibrator", calibrator, "--state", state, *flags(carried))
    summary = CalibrationMonitor.load(state).summary()
    return {"watched": [summary.mean_p, summary.rate.value]}


def want_watched(reference):
    p = np.exp(reference.log_p(2.0))
    if reference.case.n_classes == 2:
        positive = 1 if reference.case.columns is None else 0
        return {"watched": [reference.mean(p[:, positive]), reference.mean(reference.column == positive)]}
    return {"watched": [reference.mean(p.max(axis=1)), reference.mean(np.argmax(p, axis=1) == reference.column)]}


# Several labels per row.


def label_names(case):
    """The names of the labels: those of the columns, without what these share."""
    if case.columns is None:
        return ["rain", "snow", "wind"][: case.n_classes]
    names = {column: name for name, column in oracle.names_of(case.columns).items()}
    return [names[column] for column in range(case.n_classes)]


def log_losses(values, labels):
    """The log-loss of each label: log(1 + e^s) - y s."""
    values = np.asarray(values, dtype=np.float64)
    return np.mean(np.logaddexp(0.0, values) - labels * values, axis=0)


def targets_of(case):
    return multilabel_targets(len(rows_of(case).labels), case.n_classes)


def run_multilabel_rows(carried, folder):
    """Rows with their labels, and the same in the other order of these."""
    names = label_names(carried.case)
    rows = MultiLabelPredictions.from_log_odds(carried.X, targets_of(carried.case), class_names=names)
    turned = rows.in_order_of(names[::-1])
    pooled = rows.pooled()
    last_first = rows.take(np.arange(len(rows))[::-1])
    return {
        "last_first": log_losses(plain(last_first.values), plain(last_first.labels)),
        "log_losses": log_losses(plain(rows.values), plain(rows.labels)),
        "turned": log_losses(plain(turned.values), plain(turned.labels)),
        "pooled": seen(pooled)["log_loss"],
    }


def want_multilabel_rows(reference):
    losses = log_losses(rows_of(reference.case).logits, targets_of(reference.case))
    return {"log_losses": losses, "turned": losses[::-1], "pooled": losses.mean(), "last_first": losses}


def run_multilabel_probabilities(carried, folder):
    rows = MultiLabelPredictions.from_probabilities(carried.X, targets_of(carried.case))
    p = plain(rows.values)
    return {"log_losses": log_losses(np.log(p) - np.log1p(-p), plain(rows.labels))}


def want_multilabel_probabilities(reference):
    p = rows_of(reference.case).values
    return {"log_losses": log_losses(np.log(p) - np.log1p(-p), targets_of(reference.case))}


def multilabel_file(carried, folder):
    """A file of the format of the carrier; tables have the columns of labels in another order than those of scores."""
    case = carried.case
    values = rows_of(case).logits
    targets = targets_of(case)
    path = folder / f"labels{Path(carried.path).suffix}"
    if path.suffix in (".csv", ".tsv", ".parquet"):
        names = label_names(case)
        table = {f"score_{name}": values[:, i].tolist() for i, name in enumerate(names)}
        table |= {f"label_{name}": targets[:, i].tolist() for i, name in reversed([*enumerate(names)])}
        if path.suffix == ".parquet":
            import pyarrow.parquet

            pyarrow.parquet.write_table(pyarrow.table(table), path)
            return path
        separator = {".csv": ",", ".tsv": "\t"}[path.suffix]
        rows = [separator.join(map(str, row)) for row in zip(*table.values(), strict=True)]
        path.write_text("\n".join([separator.join(table), *rows]) + "\n")
    elif path.suffix == ".npz":
        np.savez(path, log_odds=values, labels=targets)
    elif path.suffix == ".safetensors":
        from safetensors.numpy import save_file

        save_file({"log_odds": values, "labels": targets}, path)
    else:
        import torch

        torch.save({"log_odds": torch.from_numpy(values), "labels": torch.from_numpy(targets)}, path)
    return path


def run_read_multilabel(carried, folder):
    names = label_names(carried.case)
    rows = read_multilabel(multilabel_file(carried, folder), classes=names)
    losses = dict(zip(rows.class_names, log_losses(rows.values, rows.labels), strict=True))
    return {"log_losses": [losses[name] for name in names]}


def want_read_multilabel(reference):
    return {"log_losses": log_losses(rows_of(reference.case).logits, targets_of(reference.case))}


def run_command_multilabel(carried, folder):
    path = multilabel_file(carried, folder)
    command("fit", path, "--multi-label", "-m", "ts", "-o", folder / "labels.json")
    fitted = load(folder / "labels.json")
    logits = rows_of(carried.case).logits
    is_table = path.suffix in (".csv", ".tsv", ".parquet")
    names = label_names(carried.case) if is_table else list(fitted.classes_)
    place = [names.index(name) for name in fitted.classes_]  # of each label of the calibrator among the columns
    p = np.empty(logits.shape)
    p[:, place] = plain(fitted.predict_proba(logits[:, place]))
    return {"p": p}


def want_command_multilabel(reference):
    logits = rows_of(reference.case).logits
    return {"p": MultiLabelCalibration(method="ts").fit(logits, targets_of(reference.case)).predict_proba(logits)}


OF_LABELS = ("from_log_odds", "in_order_of", "pooled", "take")
FEW = {"kinds": FEW_KINDS, **READ}
UNWEIGHTED = FEW | {"takes_weight": False, "without": SETS}
LABELS_IN_FILES = {
    "is_file": True,
    "reads_labels": False,
    "has_calibrator": True,  # as with one, columns are known by their names
    "takes_weight": False,
    "inputs": ("logits",),
    "kinds": ("int", "text"),
    "scores": ("plain", "nan", "inf"),
    "without": ("npy", "jsonl", *SETS),
}

ENTRIES = [
    Entry("read_runs", run_read_runs, want_seen, without=SETS, covers=("refocal.evaluate.read_runs",), **FEW),
    Entry(
        "refocal_compare_many",
        run_command_compare_many,
        want_compare,
        is_fit=True,
        without=SETS,
        covers=("$ refocal compare-many",),
        **FEW,
    ),
    Entry(
        "refocal_report",
        run_command_report,
        want_report,
        is_fit=True,
        covers=("$ refocal report",),
        **(FEW | {"kinds": ("int", "text"), "without": (*SETS, "pt", "safetensors", "tsv")}),
    ),
    Entry(
        "refocal_adapt",
        run_command_adapt,
        want_adapted,
        needs_both=True,
        kinds=FEW_KINDS,
        without=("folder",),
        covers=("$ refocal adapt",),
        **APPLIED,
    ),
    Entry("refocal_monitor_backtest", run_command_backtest, want_log_loss, covers=("$ refocal monitor",), **UNWEIGHTED),
    Entry(
        "refocal_monitor_calibrator",
        run_command_watch,
        want_watched,
        has_calibrator=True,
        scores=WITHOUT_ZEROS,
        **(UNWEIGHTED | {"takes_positive": False}),
    ),
    Entry(
        "multilabel_rows",
        run_multilabel_rows,
        want_multilabel_rows,
        takes_labels=False,
        takes_weight=False,
        inputs=("logits",),
        scores=("plain", "nan", "inf"),
        without=("dask_array", "dask_frame"),
        covers=tuple(f"refocal.io.MultiLabelPredictions.{name}" for name in OF_LABELS),
    ),
    Entry(
        "multilabel_probabilities",
        run_multilabel_probabilities,
        want_multilabel_probabilities,
        takes_labels=False,
        takes_weight=False,
        takes_probabilities=True,
        inputs=("logits", "probabilities"),
        scores=("plain", "nan", "inf"),
        without=("dask_array", "dask_frame"),
        covers=("refocal.io.MultiLabelPredictions.from_probabilities",),
    ),
    Entry(
        "read_multilabel",
        run_read_multilabel,
        want_read_multilabel,
        covers=("refocal.io.read_multilabel",),
        **LABELS_IN_FILES,
    ),
    Entry("refocal_fit_multilabel", run_command_multilabel, want_command_multilabel, **LABELS_IN_FILES),
]
