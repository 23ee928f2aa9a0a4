"""The entries: every public way to hand rows to the package, and the numbers that plain formulas have for them."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import matrix_oracle as oracle
import numpy as np
from matrix_cases import Case, rows_of

from refocal import MultiLabelCalibration, TemperatureScaling, load
from refocal.calibrators.registry import NAMED, make
from refocal.calibrators.serialize import from_dict, to_dict
from refocal.cli.run import run
from refocal.decide import cost_matrix, evaluate_decisions
from refocal.errors import DataError
from refocal.evaluate import compare, evaluate
from refocal.io import Predictions, apply, blocks, open_rows, read
from refocal.metrics import METRICS
from refocal.monitor import CalibrationMonitor

TWO_COSTS = [[0.0, 1.0], [5.0, 0.0]]
THREE_COSTS = [[0.0, 1.0, 2.0], [1.0, 0.0, 4.0], [3.0, 5.0, 0.0]]
IN_BLOCKS = ("dask_array", "dask_frame")
# What is larger than memory; compare, decide and monitor read files alone.
SETS = ("zarr", "folder")
FRAMES = ("pandas", "polars", "arrow", "dask_frame")
# What is not handed to a layer of torch or to a graph.
NO_TENSORS = ("lists", "jax", "map", "dask_array", "numpy_int64", "numpy_float16", *FRAMES)
PREDICT = ("predict_proba", "predict_log_proba", "predict")
# As few as there may be: what is compared are values, not their intervals.
RESAMPLES = 10


class Refused(Exception):  # noqa: N818
    """A command ended with an error, in one line that is no bug."""


@dataclass(frozen=True, eq=False)
class Reference:
    """What the rows of a case are after the oracle's reading; rows of weight 0 are left out of all."""

    case: Any
    column: np.ndarray
    is_kept: np.ndarray
    weight: np.ndarray
    positive: int
    dtype: Any = np.float64
    """The precision in which probabilities are given."""
    is_in_memory: bool = True
    """Whether the rows were no file."""

    @cached_property
    def logits(self):
        rows = rows_of(self.case)
        if self.case.input != "probabilities":
            return rows.logits[self.is_kept]
        # Rows of different logits and equal probabilities are equal rows.
        with np.errstate(divide="ignore"):
            log_p = np.log(rows.values[self.is_kept])
        # A zero counts as half the smallest probability that is none.
        return np.where(np.isinf(log_p), log_p[np.isfinite(log_p)].min() - np.log(2.0), log_p)

    @cached_property
    def temperature(self):
        """The root of Σ w (E_p[z] - z_y) in 1/T, by bisection: the temperature of least log-loss."""
        low, high = 1e-3, 1e3
        finite = np.where(np.isinf(self.logits), 0.0, self.logits)
        for _ in range(200):
            middle = np.sqrt(low * high)
            mean = np.sum(np.exp(self.log_p(1.0 / middle)) * finite, axis=1)
            slope = np.sum(self.weight * (mean - self.of_label(finite)))
            low, high = (middle, high) if slope < 0.0 else (low, middle)
        return 1.0 / middle

    def log_p(self, temperature=1.0):
        scores = self.logits / temperature
        return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)

    def of_label(self, values):
        return values[np.arange(len(values)), self.column]

    def mean(self, terms):
        return float(np.sum(self.weight * terms) / np.sum(self.weight))

    def log_loss(self, temperature=1.0):
        return self.mean(-self.of_label(self.log_p(temperature)))

    @property
    def p(self):
        """Probabilities without a floor of zeros: to the last digit those that are given, as bins need."""
        rows = rows_of(self.case)
        if self.case.input == "probabilities":
            return rows.values[self.is_kept].astype(self.dtype).astype(np.float64)
        if self.case.input == "probability":
            second = rows.values[self.is_kept].astype(self.dtype).astype(np.float64)
            return np.stack([1.0 - second, second], axis=1)
        logits = rows.logits[self.is_kept]
        return np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))

    @property
    def groups(self):
        return two_groups(len(self.is_kept))[self.is_kept]

    @property
    def in_order(self):
        """Probabilities with the positive class second, and the labels with them."""
        is_turned = self.case.n_classes == 2 and self.positive == 0
        return (self.p[:, ::-1], 1 - self.column) if is_turned else (self.p, self.column)

    @property
    def mean_positive(self):
        return self.mean(self.in_order[0][:, 1])

    @property
    def cost(self):
        p, column = self.in_order
        costs = np.array(TWO_COSTS if self.case.n_classes == 2 else THREE_COSTS)
        return self.mean(costs[column, np.argmin(p @ costs, axis=1)])

    @property
    def watched(self):
        """Of two classes the mean probability of the second and its rate, of more the confidence and the accuracy."""
        p, column = self.in_order
        if self.case.n_classes == 2:
            return [self.mean(p[:, 1]), self.mean(column == 1)]
        return [self.mean(p.max(axis=1)), self.mean(np.argmax(p, axis=1) == column)]

    @property
    def is_mean_of_all(self):
        return bool(np.all(self.weight == 1.0))


def fitted_reference(reference, method):
    """A calibrator of this package on plain arrays: float64, and the oracle's column numbers."""
    calibrator = make(method)
    more = {"groups": reference.groups} if method == "group" else {}
    return calibrator.fit(reference.logits, reference.column, reference.weight, **more)


def two_groups(n_rows):
    return np.array(["north", "south"])[np.arange(n_rows) % 2]


@dataclass(frozen=True)
class Entry:
    """A way in: `run` returns numbers by their names, and `want` what a reference says they are."""

    name: str
    run: Any
    want: Any
    is_file: bool = False
    is_fit: bool = False
    """Whether labels must have a finite logit."""
    names_classes: bool = False
    """Whether labels of unnamed columns may be as many names as there are columns: fits on arrays."""
    takes_positive: bool = False
    takes_weight: bool = True
    takes_first: bool = False
    takes_mark: bool = False
    takes_labels: bool = True
    """Whether it has labels at all."""
    reads_labels: bool = True
    """Whether it reads them; they may be passed on as they are."""
    takes_probabilities: bool = False
    has_calibrator: bool = False
    """Whether a calibrator comes with the rows, and with it the names of the classes."""
    gives_names: bool = False
    """Whether names of columns are given beside arrays."""
    without: tuple[str, ...] = ()
    """Carriers that are not documented for it."""
    inputs: tuple[str, ...] = ("logits", "probabilities", "log-odds")
    n_classes: tuple[int, ...] = (2, 3)
    needs_both: bool = False
    """Whether it has a value only where both of two classes occur."""
    scores: tuple[str, ...] = ()
    """What may be in a row, if not all: the zeros of a calibrator that was fitted on other rows count otherwise."""
    kinds: tuple[str, ...] = ()
    """How labels are stored, if not in all ways: entries that differ only in a formula need not try each."""
    without_namings: tuple[str, ...] = ()
    """Names of columns, and labels of them, that it does not take."""
    is_loose: bool = False
    """Whether its numbers are of single precision."""
    ends_within_tolerance: bool = False
    """Whether it fits by steps that end before the last digit of single precision."""
    covers: tuple[str, ...] = ()
    """The public names that it calls, as tools/public_interface.py has them."""
    is_permuted: bool = False
    """Whether columns in another order are an error."""

    @property
    def is_command(self):
        return self.name.startswith("refocal_")

    def case_for(self, case):
        """The case whose rows it takes; None if it takes none like that."""
        if case.input not in self.inputs or case.n_classes not in self.n_classes:
            return None
        if case.naming in self.without_namings:
            return None
        if (case.positive is not None and not self.takes_positive) or (case.is_weighted and not self.takes_weight):
            return None
        if (case.first and not self.takes_first) or (case.mark is not None and not self.takes_mark):
            return None
        if (self.scores and case.scores not in self.scores) or (self.kinds and case.stored not in self.kinds):
            return None
        if case.scores == "minus_inf_at_label" and not self.is_fit:
            return None  # an infinite log-loss
        if (self.is_fit or self.needs_both) and case.rows == "one":
            return None
        labels = rows_of(case).labels
        if case.extra and self.has_calibrator and not oracle.is_plain(case.columns, labels, has_others=True):
            return None  # the calibrator knows the names
        if not self.takes_labels and (case.stored != "int" or case.columns is not None or case.rows == "absent"):
            return None  # labels play no part
        if self.takes_probabilities and case.input != "probabilities":
            return replace(case, input="probability" if case.is_one_number else "probabilities")
        return case


def plain(values):
    """Numbers of any library as an array of NumPy."""
    if hasattr(values, "compute"):
        values = values.compute()
    return np.asarray(values.detach() if hasattr(values, "detach") else values)


def keys_of(classes):
    """The keys of labels; True is 1, which is as good as the other."""
    keys = [oracle.key(label) for label in plain(classes).tolist()]
    return [oracle.TRUTH.get(each, each) for each in keys]


def settings(case):
    return {} if case.input == "logits" else {"input": case.input}


# Fits on rows in memory, and what they predict.


def fit(carried, method="ts"):
    case = carried.case
    more = {"groups": two_groups(len(rows_of(case).labels))} if method == "group" else {}
    calibrator = make(method).set_params(**settings(case))
    if carried.weight is not None:
        more["sample_weight"] = carried.weight
    if case.mark is not None:
        more["ignore_index"] = case.mark
    return calibrator.fit(carried.X, carried.y, **more)


def features(carried):
    """The scores alone: a DataFrame of Dask has its labels and weights beside them."""
    X = carried.X
    return X[list(carried.case.columns)] if hasattr(X, "to_dask_array") else X


def run_fit_ts(carried, folder):
    fitted = fit(carried)
    return {"temperature": fitted.temperature_, "classes": keys_of(fitted.classes_)}


def want_fit(reference):
    return {"temperature": reference.temperature, "classes": classes_of(reference)}


def want_fit_of_blocks(reference):
    """Blocks whose columns are numbered from 0, or called False and True, are read in this order, as files are."""
    return want_fit(replace(reference, is_in_memory=False))


def classes_of(reference):
    case = reference.case
    known = rows_of(case).known_labels
    is_in_memory = reference.is_in_memory
    classes = oracle.classes_of(case.columns, known, case.n_classes, case.first, is_in_memory=is_in_memory)
    return None if classes is None else [oracle.TRUTH.get(each, each) for each in classes]


def run_fit(method, carried, folder):
    fitted = fit(carried, method)
    if method != "group":
        return {"p": plain(fitted.predict_proba(features(carried)))}
    groups = two_groups(len(rows_of(carried.case).labels))
    p = plain(fitted.predict_proba(features(carried), groups=groups))
    return {"p": p, "predicted": keys_of(fitted.predict(features(carried), groups=groups))}


def want_fitted(method, reference):
    fitted = fitted_reference(reference, method)
    if method != "group":
        return {"p": fitted.predict_proba(reference.logits)}
    p = fitted.predict_proba(reference.logits, groups=reference.groups)
    classes = classes_of(reference)
    predicted = None if classes is None else [classes[column] for column in np.argmax(p, axis=1)]
    return {"p": p, "predicted": predicted}


def run_predict(carried, folder):
    fitted = fit(carried)
    X = features(carried)
    return {
        "p": plain(fitted.predict_proba(X)),
        "log_p": plain(fitted.predict_log_proba(X)),
        "predicted": keys_of(fitted.predict(X)),
    }


def want_predict(reference):
    log_p = reference.log_p(reference.temperature)
    classes = classes_of(reference)
    predicted = None if classes is None else [classes[column] for column in np.argmax(log_p, axis=1)]
    return {"p": np.exp(log_p), "log_p": log_p, "predicted": predicted}


def run_permuted(carried, folder):
    fitted = fit(carried)
    turned = list(carried.case.columns)[::-1]
    X = features(carried)
    return {"p": plain(fitted.predict_proba(X.select(turned) if hasattr(X, "select") else X[turned]))}


@cache
def fitted_on_clean_rows(method, n_classes):
    """A calibrator of any method on clean rows: what it says of bad ones is another question than whether it fits."""
    clean = rows_of(Case(f"unnamed{n_classes}", "int"))
    return make(method).fit(clean.logits, clean.labels)


def run_predict_by(method, carried, folder):
    """All three kinds of predictions, which are refused together or not at all."""
    fitted = fitted_on_clean_rows(method, carried.case.n_classes)
    predictions_of = {}
    refusals = []
    for name in PREDICT:
        try:
            predictions_of[name] = plain(getattr(fitted, name)(carried.X))
        except DataError as error:
            refusals.append(error)
    assert not refusals or not predictions_of, f"{', '.join(predictions_of)} of rows that the others refuse"
    if refusals:
        raise refusals[0]
    return predictions_of


def want_predict_by(method, reference):
    fitted = fitted_on_clean_rows(method, reference.case.n_classes)
    logits = rows_of(reference.case).logits
    return {name: getattr(fitted, name)(logits) for name in PREDICT}


def run_layer(carried, folder, **more):
    import torch

    layer = reference_calibrator(carried.case, **more).to_torch()
    X = carried.X if isinstance(carried.X, torch.Tensor) else torch.from_numpy(carried.X)
    return {"log_p": plain(layer(X))}


def run_onnx(carried, folder, **more):
    import onnxruntime

    from refocal.export import to_onnx

    axes = {"n_axes": np.ndim(plain(carried.X))} if carried.case.is_one_number else {}
    to_onnx(reference_calibrator(carried.case, **more), folder / "calibrator.onnx", **axes)
    session = onnxruntime.InferenceSession(folder / "calibrator.onnx", providers=["CPUExecutionProvider"])
    (p,) = session.run(None, {session.get_inputs()[0].name: plain(carried.X).astype(np.float32)})
    with np.errstate(divide="ignore"):
        return {"log_p": np.log(p)}


def reference_calibrator(case, **more):
    """Temperature 2 for as many classes, whatever the rows are."""
    rows = "many" if case.rows == "one" else case.rows
    clean = rows_of(replace(case, scores="plain", rows=rows, is_weighted=False, positive=None, mark=None))
    column = np.arange(len(clean.logits)) % case.n_classes
    return TemperatureScaling(temperatures=(2.0,), **(settings(case) | more)).fit(clean.values, column)


def want_layer(reference):
    """Log-probabilities at temperature 2; a row with NaN or +inf has no number at all."""
    logits = rows_of(reference.case).logits / 2.0
    with np.errstate(invalid="ignore"):
        log_p = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    bad = np.isnan(logits).any(axis=1) | np.isposinf(logits).any(axis=1) | np.isneginf(logits).all(axis=1)
    log_p[bad] = np.nan
    return {"log_p": log_p}


def run_multilabel(carried, folder):
    """Scores of a carrier, and for each class whether it applies."""
    case = carried.case
    targets = multilabel_targets(len(rows_of(case).labels), case.n_classes)
    fitted = MultiLabelCalibration(method="ts").fit(carried.X, targets)
    predicted = {name: plain(getattr(fitted, name)(carried.X)) for name in PREDICT}
    return predicted | {"score": fitted.score(carried.X, targets)}


def multilabel_targets(n_rows, n_labels):
    return (np.arange(n_rows * n_labels).reshape(n_rows, n_labels) % 3 == 0).astype(np.int64)


def want_multilabel(reference):
    logits = rows_of(reference.case).logits
    targets = multilabel_targets(len(logits), reference.case.n_classes)
    fitted = MultiLabelCalibration(method="ts").fit(logits, targets)
    p = fitted.predict_proba(logits)
    with np.errstate(divide="ignore"):
        log_p = np.log(p)
    applies = (p > 0.5).astype(int)
    score = (applies == targets).all(axis=1).mean()
    return {"predict_proba": p, "predict_log_proba": log_p, "predict": applies, "score": score}


# Rows with labels: predictions, blocks, metrics, decisions, monitors.


def predictions(carried):
    case = carried.case
    make_rows = {
        "logits": Predictions.from_logits,
        "probabilities": Predictions.from_probabilities,
        "log-odds": Predictions.from_log_odds,
    }[case.input]
    options = {} if carried.weight is None else {"weight": carried.weight}
    if case.columns is not None and not hasattr(carried.X, "columns"):
        options["class_names"] = list(case.columns)
    return make_rows(carried.X, carried.y, **options, **said_of_labels(case))


def said_of_labels(case):
    """The options of readers about labels."""
    said = {"positive_label": case.positive, "first_label": case.first or None, "ignore_index": case.mark}
    return {name: value for name, value in said.items() if value is not None}


def seen(rows):
    """The log-loss of predictions by a plain formula, and the mean probability of the second class."""
    logits = plain(rows.logits).astype(np.float64)
    log_p = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    weight = np.ones(len(logits)) if rows.weight is None else plain(rows.weight)
    is_kept = weight > 0.0
    loss = -log_p[np.arange(len(logits)), plain(rows.labels)]
    p = np.exp(log_p[:, 1])
    return {
        "log_loss": np.average(loss[is_kept], weights=weight[is_kept]),
        "positive": np.average(p[is_kept], weights=weight[is_kept]),
    }


def want_seen(reference):
    loss = reference.mean(-np.log(reference.of_label(reference.p)))
    return {"log_loss": loss, "positive": reference.mean_positive}


def run_rows(carried, folder):
    return seen(predictions(carried))


def run_evaluate(carried, folder):
    rows = predictions(carried)
    found = evaluate(rows, {}, n_resamples=RESAMPLES)
    return {"log_loss": found.before.measures["log_loss"].value}


def want_log_loss(reference):
    return {"log_loss": want_seen(reference)["log_loss"]}


def run_compare(carried, folder):
    rows = predictions(carried)
    found = compare(rows, rows, ["ts"], n_resamples=RESAMPLES)
    return {"log_loss": found.before.measures["log_loss"].value, "after": found["ts"].measures["log_loss"].value}


def want_compare(reference):
    return want_log_loss(reference) | {"after": reference.log_loss(reference.temperature)}


def in_blocks(carried):
    """The rows in two blocks."""
    first = max(1, len(rows_of(carried.case).labels) // 2)
    parts = [slice(0, first), slice(first, None)]
    weight = carried.weight
    pairs = [(carried.X[some], carried.y[some], None if weight is None else weight[some]) for some in parts]
    pairs = [pair for pair in pairs if len(pair[1])]
    names = {} if carried.case.columns is None else {"class_names": list(carried.case.columns)}
    return blocks(pairs, input=carried.case.input, **names, **said_of_labels(carried.case))


def run_blocks_fit(carried, folder):
    fitted = TemperatureScaling(**settings(carried.case)).fit(in_blocks(carried))
    return {"temperature": fitted.temperature_, "classes": keys_of(fitted.classes_)}


def run_blocks_evaluate(carried, folder):
    return {"log_loss": evaluate(in_blocks(carried), {}).before.measures["log_loss"].value}


def run_metric(name, carried, folder):
    record = METRICS[name]
    weight = {} if carried.weight is None else {"sample_weight": carried.weight}
    if not record.takes_logs:
        return {name: number(record.function(carried.y, carried.X, **weight))}
    with np.errstate(divide="ignore"):
        log_p = logarithms(carried.X)
    return {name: number(record.function(carried.y, log_p, **weight))}


def logarithms(values):
    """Logarithms in the library of the values."""
    library = type(values).__module__.partition(".")[0]
    if library == "pyarrow":
        import pyarrow.compute

        return values.from_arrays([pyarrow.compute.ln(column) for column in values.columns], values.column_names)
    if library == "polars":
        import polars

        return values.select(polars.all().log())
    if library == "torch":
        return values.log()
    if library in ("jax", "jaxlib"):
        import jax.numpy as jnp

        return jnp.log(values)
    return np.log(values).tolist() if isinstance(values, list) else np.log(values)


def number(result):
    """The number of a result, or the first of several."""
    if isinstance(result, float):
        return result
    parts = result if isinstance(result, tuple) else vars(result).values()
    return float(next(part for part in parts if np.ndim(part) == 0))


def want_metric(name, reference):
    record = METRICS[name]
    p, column = reference.in_order
    with np.errstate(divide="ignore"):
        p = np.log(p) if record.takes_logs else p
    weight = {} if reference.is_mean_of_all else {"sample_weight": reference.weight}
    return {name: number(record.function(column, p, **weight))}


def run_decide(carried, folder):
    weight = {} if carried.weight is None else {"sample_weight": carried.weight}
    costs = cost_matrix(false_positive=1.0, false_negative=5.0) if carried.case.n_classes == 2 else THREE_COSTS
    return {"cost": evaluate_decisions(carried.y, carried.X, costs, **weight).cost.value}


def want_cost(reference):
    return {"cost": reference.cost}


def run_monitor(carried, folder):
    watched = CalibrationMonitor()
    watched.update(carried.X, carried.y)
    summary = watched.summary()
    return {"watched": [summary.mean_p, summary.rate.value]}


def want_watched(reference):
    return {"watched": reference.watched}


# Files.


def reading(carried):
    """The options of readers for a file."""
    case = carried.case
    options = {"input": case.input} | said_of_labels(case)
    if carried.labels is not None:
        options["labels"] = carried.labels
    if case.is_weighted:
        options["weight"] = "weight"
    return options


def run_read(carried, folder):
    return seen(read(carried.path, **reading(carried)))


def run_open_fit(carried, folder):
    fitted = TemperatureScaling(**settings(carried.case)).fit(open_rows(carried.path, **reading(carried)))
    return {"temperature": fitted.temperature_, "classes": keys_of(fitted.classes_)}


def run_open_evaluate(carried, folder):
    found = evaluate(open_rows(carried.path, **reading(carried)), {})
    return {"log_loss": found.before.measures["log_loss"].value}


def run_open_compare(carried, folder):
    rows = read(carried.path, **reading(carried))
    found = compare(rows, rows, ["ts"], n_resamples=RESAMPLES)
    return {"log_loss": found.before.measures["log_loss"].value, "after": found["ts"].measures["log_loss"].value}


def turned_calibrator(case, folder):
    """Temperature 2, saved; where columns have names its classes are in the reverse order of the file's."""
    data = to_dict(reference_calibrator(replace(case, scores="plain")))
    if case.columns is not None:
        names = {column: name for name, column in oracle.names_of(case.columns).items()}
        data["classes"] = [names[column] for column in range(case.n_classes)][::-1]
        data.pop("class_dtype", None)
    path = folder / "turned.json"
    from_dict(data).save(path)
    return path


def applied(path, case):
    """Probabilities of a file that apply wrote, in the order of the columns of the case."""
    header, *lines = Path(path).read_text().splitlines()
    cells = [line.split(",") for line in lines]
    written = header.split(",")
    if case.is_one_number:
        second = np.array([float(row[written.index("p")]) for row in cells])
        return np.stack([1.0 - second, second], axis=1)
    scores = [name for name in written if name not in ("label", "weight", case.extra)]
    place = oracle.names_of(scores)
    names = oracle.names_of(case.columns or [str(column) for column in range(case.n_classes)])
    order = {column: place[name] for name, column in names.items() if name in place}
    p = np.array([[float(row[written.index(name)]) for name in scores] for row in cells])
    return p[:, [order[column] for column in range(case.n_classes)]]


def run_apply(carried, folder):
    calibrator = load(turned_calibrator(carried.case, folder))
    more = {} if carried.labels is None else {"labels": carried.labels}
    apply(calibrator, carried.path, folder / "applied.csv", **more)
    return {"p": applied(folder / "applied.csv", carried.case)}


def want_applied(reference):
    logits = rows_of(reference.case).logits / 2.0
    return {"p": np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))}


# Commands.


def command(*arguments):
    """What a command prints as JSON."""
    out = io.StringIO()
    errors = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = run([*map(str, arguments), "--json"])
    if code != 0:
        said = errors.getvalue()
        assert "This is a bug" not in said, said
        raise Refused(f"exit code {code}: {said.strip()}")
    return json.loads(out.getvalue())


def flags(carried):
    """How a file is read, as options of a command."""
    case = carried.case
    options = ["--probabilities"] if case.input == "probabilities" else []
    options += [] if carried.labels is None else ["--labels", carried.labels]
    options += ["--weights", "weight"] if case.is_weighted else []
    for name, value in said_of_labels(case).items():
        options += [f"--{name.replace('_', '-')}", value]
    return options


def run_command_fit(carried, folder):
    command("fit", carried.path, "-m", "ts", "-o", folder / "calibrator.json", *flags(carried))
    fitted = load(folder / "calibrator.json")
    return {"temperature": fitted.temperature_}


def want_temperature(reference):
    return {"temperature": reference.temperature}


def run_command_evaluate(carried, folder):
    found = command("evaluate", carried.path, *flags(carried))
    return {"log_loss": found["methods"][0]["measures"]["log_loss"]["value"]}


def run_command_evaluate_calibrator(carried, folder):
    calibrator = turned_calibrator(carried.case, folder)
    found = command("evaluate", carried.path, calibrator, *flags(carried))
    return {"after": found["methods"][-1]["measures"]["log_loss"]["value"]}


def want_after(reference):
    return {"after": reference.log_loss(2.0)}


def run_command_compare(carried, folder):
    asked = ("-m", "ts", "--resamples", RESAMPLES)
    found = command("compare", carried.path, carried.path, *asked, *flags(carried))
    losses = [method["measures"]["log_loss"]["value"] for method in found["methods"]]
    return {"log_loss": losses[0], "after": losses[-1]}


def run_command_decide(carried, folder):
    costs = ["--false-positive", 1, "--false-negative", 5]
    if carried.case.n_classes == 3:
        costs = ["--costs", ";".join(",".join(map(str, row)) for row in THREE_COSTS)]
    found = command("decide", carried.path, *costs, *flags(carried))
    return {"cost": found["reports"]["uncalibrated"]["cost"]["value"]}


def run_command_monitor(carried, folder):
    command("monitor", carried.path, "--state", folder / "state.json", *flags(carried))
    summary = CalibrationMonitor.load(folder / "state.json").summary()
    return {"watched": [summary.mean_p, summary.rate.value]}


def run_command_apply(carried, folder):
    calibrator = turned_calibrator(carried.case, folder)
    labels = [] if carried.labels is None else ["--labels", carried.labels]
    command("apply", calibrator, carried.path, "-o", folder / "applied.csv", *labels)
    return {"p": applied(folder / "applied.csv", carried.case)}


IN_MEMORY_FIT = {"is_fit": True, "names_classes": True, "takes_mark": True}
SAID = {"takes_first": True, "takes_mark": True}
LABELLED = {"gives_names": True, "takes_positive": True, "without": IN_BLOCKS, **SAID}
MEASURED = {"takes_probabilities": True, "without": IN_BLOCKS}
BLOCKS = {"gives_names": True, "without": (*IN_BLOCKS, *FRAMES), **SAID}
FILE = {"is_file": True, **SAID}
READ = {"is_file": True, "takes_positive": True, **SAID}
WITHOUT_ZEROS = ("plain", "nan", "inf", "minus_inf", "only_minus_inf")
APPLIED = {
    "is_file": True,
    "has_calibrator": True,
    "takes_weight": False,
    "reads_labels": False,
    "scores": WITHOUT_ZEROS,
}
ENTRIES = [
    Entry("fit_ts", run_fit_ts, want_fit, **IN_MEMORY_FIT),
    Entry(
        "fit_auto", partial(run_fit, "auto"), partial(want_fitted, "auto"), ends_within_tolerance=True, **IN_MEMORY_FIT
    ),
    *(
        Entry(
            f"fit_{method}",
            partial(run_fit, method),
            partial(want_fitted, method),
            without=IN_BLOCKS,
            kinds=("int", "bool", "text"),
            ends_within_tolerance=method == "group",
            **IN_MEMORY_FIT,
        )
        for method in ("logistic", "isotonic", "group")
    ),
    Entry(
        "fit_multilabel",
        run_multilabel,
        want_multilabel,
        without=IN_BLOCKS,
        is_fit=True,
        takes_weight=False,
        takes_labels=False,
        inputs=("logits",),
        scores=("plain", "nan", "inf"),
    ),
    Entry("predict", run_predict, want_predict, **IN_MEMORY_FIT),
    Entry("predict_permuted", run_permuted, want_predict, is_permuted=True, **IN_MEMORY_FIT),
    Entry(
        "layer",
        run_layer,
        want_layer,
        takes_labels=False,
        is_loose=True,
        scores=WITHOUT_ZEROS,
        without=NO_TENSORS,
    ),
    Entry(
        "onnx",
        run_onnx,
        want_layer,
        takes_labels=False,
        is_loose=True,
        scores=WITHOUT_ZEROS,
        without=NO_TENSORS,
    ),
    *(
        Entry(
            f"{name}_of_one_logit",
            partial(run_one, input="logits"),
            want_layer,
            inputs=("log-odds",),
            takes_labels=False,
            is_loose=True,
            without=NO_TENSORS,
        )
        for name, run_one in (("layer", run_layer), ("onnx", run_onnx))
    ),
    *(
        Entry(
            f"predict_by_{method.replace('-', '_')}",
            partial(run_predict_by, method),
            partial(want_predict_by, method),
            inputs=("logits",),
            takes_labels=False,
            takes_weight=False,
        )
        for method in NAMED
    ),
    Entry("rows", run_rows, want_seen, **LABELLED),
    Entry("evaluate", run_evaluate, want_log_loss, **LABELLED),
    Entry("compare", run_compare, want_compare, is_fit=True, **LABELLED),
    Entry("blocks_fit", run_blocks_fit, want_fit_of_blocks, is_fit=True, **BLOCKS),
    Entry("blocks_evaluate", run_blocks_evaluate, want_log_loss, **BLOCKS),
    *(
        Entry(
            f"metric_{name}",
            partial(run_metric, name),
            partial(want_metric, name),
            n_classes=(2,) if record.two_classes else (2, 3),
            needs_both=record.two_classes,
            kinds=() if name in ("log_loss", "ece", "brier_score") else ("int", "bool", "category"),
            **MEASURED,
        )
        for name, record in METRICS.items()
    ),
    Entry("decide", run_decide, want_cost, **MEASURED),
    Entry("monitor", run_monitor, want_watched, takes_weight=False, **MEASURED),
    Entry("read", run_read, want_seen, **READ),
    Entry("read_compare", run_open_compare, want_compare, is_fit=True, **READ),
    Entry("open_rows_fit", run_open_fit, want_fit, is_fit=True, **FILE),
    Entry("open_rows_evaluate", run_open_evaluate, want_log_loss, **FILE),
    Entry("apply", run_apply, want_applied, **APPLIED),
    Entry("refocal_fit", run_command_fit, want_temperature, is_fit=True, **READ),
    Entry("refocal_evaluate", run_command_evaluate, want_log_loss, **READ),
    Entry(
        "refocal_evaluate_calibrator",
        run_command_evaluate_calibrator,
        want_after,
        scores=WITHOUT_ZEROS,
        has_calibrator=True,
        **READ,
    ),
    Entry("refocal_compare", run_command_compare, want_compare, is_fit=True, without=SETS, **READ),
    Entry("refocal_decide", run_command_decide, want_cost, without=SETS, **READ),
    Entry("refocal_monitor", run_command_monitor, want_watched, takes_weight=False, without=SETS, **READ),
    Entry("refocal_apply", run_command_apply, want_applied, **APPLIED),
]
