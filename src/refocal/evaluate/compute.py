"""Predictions and calibrators → Evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from refocal._arrays import as_floating
from refocal._validation import check_option
from refocal.calibrators import Calibrator, MultiLabelCalibration, TemperatureScaling
from refocal.calibrators.class_order import InOrder, check_labels, order_for
from refocal.calibrators.registry import GROUPED, NONE, MethodsLike, chosen_calibrators, make, with_input
from refocal.engine import BlockedDataset
from refocal.errors import ParameterError, RefocalError, ShapeError
from refocal.evaluate._blocks import measure_in_blocks
from refocal.evaluate._details import warn_of_groups
from refocal.evaluate._measured import measured
from refocal.evaluate._memory import N_RESAMPLES, measure_in_memory
from refocal.evaluate._recommendation import recommended_method, rows_of_weights
from refocal.evaluate._requested import Requested, check_rows, requested_rows
from refocal.evaluate._results import SEED, Progress, Results, own_records
from refocal.evaluate.evaluation import Evaluation
from refocal.evaluate.multilabel import fit_method, label_methods
from refocal.evaluate.predicted import log_proba
from refocal.evaluate.provenance import (
    RunNote,
    as_text,
    division_notes,
    repeated_id_note,
    run_of,
    same_rows,
    surface_of,
)
from refocal.evaluate.statements import statement_levels
from refocal.io import MultiLabelPredictions, Predictions
from refocal.metrics.record import Metric
from refocal.rows.predictions import probability_rows
from refocal.segments import MOST_SEGMENTS, FoundSegments, as_features, segments_of

__all__ = ["compare", "evaluate"]


@dataclass
class Failures:
    """The methods that failed, by their names, and why. The error of a method that is needed is raised.

    Needed are the uncalibrated model, the method shown in detail, and the last method that has not failed.
    """

    methods: Iterable[str]
    chosen: str | None
    reasons: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Record an error in one line and continue, unless the method is needed."""
        try:
            yield
        except Exception as error:
            if name in (NONE, self.chosen) or {*self.methods} - {NONE} - self.reasons.keys() == {name}:
                raise
            text = " ".join(str(error).split())
            self.reasons[name] = text if isinstance(error, RefocalError) else f"{type(error).__name__}: {text}"


def compare(
    validation: Predictions | MultiLabelPredictions,
    test: Predictions | MultiLabelPredictions,
    methods: MethodsLike = None,
    *,
    metrics: Sequence[str | Metric | Callable[..., Any]] = (),
    chosen: str | None = None,
    title: str = "predictions",
    n_resamples: int = N_RESAMPLES,
    level: float = 0.95,
    seed: int = SEED,
    groups: Any = None,
    clusters: Any = None,
    features: Any = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Fit methods on the validation set and measure them on the test set, next to the uncalibrated model.

    Parameters
    ----------
    validation, test : Predictions or MultiLabelPredictions
        Two sets of rows that the model was not trained on. For multi-label data every label of every row is a row of
        the evaluation, and the labels are its groups; each method is fitted with and without a line for each label.
    methods : list of str and calibrators, or a mapping of names to them, optional
        Names of `refocal.calibrators.registry`, "all" for every one, and calibrators of this package or your own, whose
        settings are used: `["ts", Mine(k=3)]`. By default the usual ones, for two classes those that have an intercept
        (auto, logistic, beta, isotonic, venn-abers), and a correction for each group where the rows of two classes have
        groups (`Predictions.with_groups`). A method that fails is left out and listed in `failed` with its reason,
        unless all of them fail.
    metrics : list, optional
        Further metrics with intervals: names, records (`refocal.metrics.Metric`) or functions `(y, p) → number` of your
        own, whose intervals come from resampled rows.
    chosen : str, optional
        The method to show in detail; by default the recommended one: the lowest ECE among the methods whose log-loss
        is within 1 % of the best and which improve on the model as it is, by a test of all methods together
        (`refocal.evaluate.statements`). Among methods that are statistically indistinguishable from it, the one of
        lowest log-loss is preferred; if the log-losses are indistinguishable too, "auto", or else the simplest. Where
        no method improves significantly it is "none", as on fewer than 100 test rows or on those of one of two classes.
    title : str
        A description of the predictions, for the report.
    n_resamples, level, seed
        The number of resamples of the bootstrap, the confidence level, and the seed.
    groups : array, mapping or data frame, optional
        The groups of the test rows, in one or several columns: each group is measured separately. By default
        `test.groups`.
    clusters : array, mapping or data frame, optional
        The cluster of each test row, such as a customer, a day or a patient, in one column: rows of one cluster are not
        independent, and intervals and tests rest on the clusters. By default `test.clusters`.
    features : data frame or mapping of columns, optional
        Features of the test rows, of two classes: segments are sought in which the method shown in detail is off
        (`refocal.segments`).
    progress : callable, optional
        Called with (steps done, all steps, what comes next).

    Examples
    --------
    >>> from refocal.io import load_sample
    >>> validation, test = load_sample("cifar10-focal3")
    >>> found = compare(validation, test, ["ts", "fts-nll"], n_resamples=50)
    >>> found["fts-nll"].measures["log_loss"].value < found["ts"].measures["log_loss"].value
    True
    """
    _check_both(validation, test)
    if isinstance(validation, MultiLabelPredictions):
        calibrators = {}
        names = label_methods(methods)
    else:
        calibrators = _unfitted(methods, validation)
        names = list(calibrators)
    own_metrics = own_records(metrics, "compare")
    if chosen is not None:
        check_option(chosen, (NONE, *names), "chosen", "compare")
    asked: dict[str, Any] = {
        "level": level,
        "n_resamples": n_resamples,
        "seed": seed,
        "groups": groups,
        "clusters": clusters,
        "features": features,
    }
    requested_rows(test, "compare", own_metrics, **asked)  # what cannot be measured is known before the fits
    report = progress or (lambda *_: None)
    failures = Failures(names, chosen)
    fitted, seconds = _fit_all(validation, names, calibrators, report, failures)
    evaluation = evaluate(
        test,
        fitted,
        metrics=own_metrics,
        chosen=chosen,
        title=title,
        fit_seconds=seconds,
        progress=lambda done, total, words: report(len(names) + done, len(names) + total, words),
        **asked,
    )
    return replace(
        evaluation,
        n_validation=validation.n_known if isinstance(validation, MultiLabelPredictions) else len(validation),
        run=evaluation.run | as_text(same_rows(validation, test) | division_notes(validation, test)),
        failed=failures.reasons | evaluation.failed,
    )


def _check_both(validation: Any, test: Any) -> None:
    """Two sets of rows in memory, of one kind."""
    for argument, rows in (("validation", validation), ("test", test)):
        check_rows(rows, argument, "compare")
        if isinstance(rows, BlockedDataset):
            expected = "Predictions, in memory; of rows in blocks fit each method and call evaluate"
            raise ParameterError(argument, "compare", expected=expected, got="rows in blocks")
    if isinstance(validation, MultiLabelPredictions) != isinstance(test, MultiLabelPredictions):
        expected = f"{type(validation).__name__}, as the validation rows"
        raise ParameterError("test", "compare", expected=expected, got=type(test).__name__)
    if validation.n_classes != test.n_classes:
        expected = f"of {validation.n_classes} columns, as the validation rows"
        raise ShapeError("test", "compare", expected=expected, got=f"{test.n_classes} columns")


def _unfitted(methods: MethodsLike, validation: Predictions) -> dict[str, Calibrator]:
    """The calibrators to fit, by their names, for scores of the kind that the rows have."""
    calibrators = chosen_calibrators(methods, validation.n_classes)
    if methods is None and validation.groups and validation.n_classes == 2:
        calibrators |= {name: make(name) for name in GROUPED}
    return {name: with_input(calibrator, validation.input, "compare") for name, calibrator in calibrators.items()}


def _fit_all(
    validation: Predictions | MultiLabelPredictions,
    names: Sequence[str],
    calibrators: Mapping[str, Calibrator],
    report: Progress,
    failures: Failures,
) -> tuple[dict[str, Calibrator], dict[str, float]]:
    """The calibrators that could be fitted, which share their passes over the rows, and the seconds that each took.

    Those of several labels are made of their `names`.
    """
    fitted: dict[str, Calibrator] = {}
    seconds: dict[str, float] = {}
    if isinstance(validation, Predictions):
        values = as_floating(validation.values, "validation", "compare")[0]  # half precision in single
        rows = replace(validation, values=values)
        dataset = TemperatureScaling(input=validation.input).dataset(rows)

    def told(before: int, what: str, share: float) -> None:
        report(before + share, 2 * len(names) + 2, what)

    for i, name in enumerate(names):
        start = time.perf_counter()
        tell = partial(told, i, f"fitting {name}")
        tell(0.0)
        with failures.of(name):
            if isinstance(validation, MultiLabelPredictions):
                fitted[name] = fit_method(validation, name)
            elif calibrators[name].needs_groups:
                fitted[name] = calibrators[name].fit(rows)
            else:
                fitted[name] = calibrators[name].fit(dataset, progress=tell)
            seconds[name] = time.perf_counter() - start
    return fitted, seconds


def evaluate(
    test: Predictions | MultiLabelPredictions | BlockedDataset,
    calibrators: Mapping[str, Calibrator],
    *,
    metrics: Sequence[str | Metric | Callable[..., Any]] = (),
    chosen: str | None = None,
    title: str = "predictions",
    fit_seconds: Mapping[str, float] | None = None,
    n_resamples: int | None = None,
    level: float = 0.95,
    seed: int | None = None,
    groups: Any = None,
    clusters: Any = None,
    features: Any = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Measure fitted calibrators on a test set, next to the uncalibrated model.

    The arguments are those of `compare`; `calibrators` maps names to fitted calibrators, and `fit_seconds` to the time
    that their fits took. Rows of `refocal.io` instead of Predictions are processed in blocks: no interval is
    resampled there, so `n_resamples` and `seed` are refused, and `values` has the error bounds of measures
    that are computed from histograms.

    >>> from refocal import TemperatureScaling
    >>> from refocal.io import load_sample
    >>> validation, test = load_sample("cifar10-focal3")
    >>> fitted = TemperatureScaling().fit(validation.values, validation.labels)
    >>> found = evaluate(test, {"mine": fitted}, n_resamples=20)
    >>> found["mine"].measures["ece"].value < found.before.measures["ece"].value
    True
    """
    own_metrics = own_records(metrics, "evaluate")
    _check_calibrators(calibrators)
    requested = requested_rows(
        test,
        "evaluate",
        own_metrics,
        level=level,
        n_resamples=n_resamples,
        seed=seed,
        groups=groups,
        clusters=clusters,
        features=features,
    )
    rows = requested.rows
    failures = Failures(calibrators, chosen)
    everything: dict[str, Calibrator | None] = {NONE: None, **calibrators}
    if chosen is not None:
        check_option(chosen, tuple(everything), "chosen", "evaluate")
    usable = _usable(everything, rows, failures)
    methods_of_rows = _in_order(usable, rows)
    report = progress or (lambda *_: None)
    results = _results(requested, methods_of_rows, report, failures, own_metrics, n_resamples, seed)
    warn_of_groups(usable, results.groups)
    notes = {**requested.notes, **results.notes, **_notes_of_rows(test, rows, results)}

    has_one_class = _has_one_class(results, rows.n_classes)
    is_left_open = chosen is not None or has_one_class
    suggested = None if is_left_open else recommended_method(results, usable, rows.n_classes, level)
    picked = chosen or suggested or NONE

    n_shown = 1 if picked == NONE else 2
    levels = statement_levels(level, len(results.of) - 1, results.n_groups, rows.n_classes, n_shown)
    report(len(everything), len(everything) + 1, "looking at classes")
    seconds = fit_seconds or {}
    methods = [
        measured(
            name,
            usable[name],
            results.of,
            picked,
            level=level,
            level_of_one=levels.of_one,
            seconds=seconds.get(name),
            are_tested=not has_one_class,
        )
        for name in results.of
    ]
    segments = None if features is None else _segments(rows, methods_of_rows[picked], features, level, seed)
    report(len(everything) + 1, len(everything) + 1, "done")
    return Evaluation(
        title=title,
        n_validation=_rows_of_fits(calibrators),
        n_test=results.n_rows,
        n_classes=rows.n_classes,
        class_names=_names_of_classes(rows),
        input=rows.input,
        level=level,
        chosen=picked,
        recommended=suggested is not None,
        methods=methods,
        surface=surface_of(picked, calibrators, rows.n_classes),
        run=run_of(notes, calibrators),
        failed=failures.reasons,
        segments=segments,
    )


def _results(
    requested: Requested,
    methods: Mapping[str, Calibrator | InOrder | None],
    report: Progress,
    failures: Failures,
    metrics: Sequence[Metric],
    n_resamples: int | None,
    seed: int | None,
) -> Results:
    """What was measured of the methods on the rows, in memory or in blocks."""
    rows = requested.rows
    if isinstance(rows, BlockedDataset):
        return measure_in_blocks(rows, methods, report)
    return measure_in_memory(
        rows,
        methods,
        report,
        failures.of,
        groups=requested.groups,
        metrics=metrics,
        n_resamples=n_resamples,
        seed=seed,
    )


def _names_of_classes(rows: Any) -> list[str] | None:
    """What classes are called: by the names of the columns, or by numbers that labels do not count from 0."""
    if rows.class_names is not None:
        return list(rows.class_names)
    classes = rows.classes
    if classes is None or classes.dtype.kind not in "iu" or classes[0] == 0:
        return None
    return [str(number) for number in classes.tolist()]


def _segments(
    rows: Any, calibrator: Calibrator | InOrder | None, features: Any, level: float, seed: int | None
) -> FoundSegments:
    """Where a method is off, by the features of the rows."""
    columns = as_features(features, len(rows), "evaluate")
    p = np.exp(log_proba(rows, calibrator))
    predicted = probability_rows(rows.labels, p, rows.weight, clusters=rows.clusters).of_positive()
    return segments_of(predicted, columns, level, MOST_SEGMENTS, SEED if seed is None else seed)


def _usable(
    everything: Mapping[str, Calibrator | None], about: Predictions | BlockedDataset, failures: Failures
) -> dict[str, Calibrator | None]:
    """The methods that were fitted on the columns of these rows, in whatever order."""
    usable: dict[str, Calibrator | None] = {}
    for name, calibrator in everything.items():
        with failures.of(name):
            # A calibrator of several labels per row is measured label by label, whatever the columns.
            if calibrator is not None and not isinstance(calibrator, MultiLabelCalibration):
                if calibrator.n_features_in_ != about.n_classes:
                    expected = f"of {calibrator.n_features_in_} columns, as the calibrator {name!r} was fitted on"
                    raise ShapeError("test", "evaluate", expected=expected, got=f"{about.n_classes} columns")
                order_for(calibrator, about, "evaluate")
                check_labels(calibrator, about, "evaluate")
            usable[name] = calibrator
    return usable


def _check_calibrators(calibrators: Any) -> None:
    """A mapping of names to fitted calibrators; the name "none" is reserved for the uncalibrated model."""
    if not isinstance(calibrators, Mapping):
        expected = "a mapping of names to fitted calibrators"
        raise ParameterError("calibrators", "evaluate", expected=expected, got=type(calibrators).__name__)
    for name, calibrator in calibrators.items():
        if not isinstance(name, str) or name == NONE:
            expected = "called by names of your own, but 'none', which is the uncalibrated model"
            raise ParameterError("calibrators", "evaluate", expected=expected, got=f"a calibrator {name!r}")
        if not isinstance(calibrator, Calibrator) or not hasattr(calibrator, "chain_"):
            is_one = isinstance(calibrator, Calibrator)
            got = f"{name!r}, which is not fitted" if is_one else f"{name!r}, a {type(calibrator).__name__}"
            raise ParameterError("calibrators", "evaluate", expected="fitted calibrators", got=got)


def _notes_of_rows(
    test: Predictions | MultiLabelPredictions | BlockedDataset, rows: Predictions | BlockedDataset, results: Results
) -> dict[str, str]:
    """What a reader must know of the rows: the file they are from, ids that repeat, how many rows they are worth."""
    source = test.reader.source if isinstance(test, BlockedDataset) else test.source
    notes: dict[str, str] = {RunNote.READ: test.described()} if source.place else {}
    if RunNote.UNIT not in results.notes:
        notes |= repeated_id_note(rows, "evaluate")
    n_worth = rows_of_weights(results)
    if n_worth < results.n_rows:
        notes[RunNote.WORTH] = str(n_worth)
    return notes


def _rows_of_fits(calibrators: Mapping[str, Calibrator]) -> int | None:
    """How many rows the calibrators were fitted on; None where these differ."""
    sizes = {int(calibrator.fit_report_.get("n_samples", 0)) for calibrator in calibrators.values()}
    return sizes.pop() if len(sizes) == 1 else None


def _in_order(
    usable: Mapping[str, Calibrator | None], about: Predictions | BlockedDataset
) -> dict[str, Calibrator | InOrder | None]:
    """The methods; one that was fitted on the classes in another order gets the columns in its own order."""
    methods: dict[str, Calibrator | InOrder | None] = dict(usable)
    for name, calibrator in usable.items():
        if calibrator is None or isinstance(calibrator, MultiLabelCalibration):
            continue
        order = order_for(calibrator, about, "evaluate")
        if order is not None:
            methods[name] = InOrder(calibrator, order)
    return methods


def _has_one_class(results: Results, n_classes: int) -> bool:
    """Whether one of two classes does not occur: how methods differ on its rows is then unknown."""
    outcomes = results.of[NONE].histogram
    return n_classes == 2 and (sum(outcomes.right) == 0.0 or sum(outcomes.wrong) == 0.0)
