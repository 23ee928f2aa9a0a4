"""Predictions and calibrators → Evaluation."""

from __future__ import annotations

import math
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
from refocal.calibrators.description import is_guessing
from refocal.calibrators.registry import GROUPED, NONE, MethodsLike, chosen_calibrators, make, title_of, with_input
from refocal.calibrators.serialize import to_dict
from refocal.engine import BlockedDataset
from refocal.errors import ParameterError, RefocalError, ShapeError
from refocal.evaluate._blocks import measure_in_blocks
from refocal.evaluate._details import banded, warn_of_groups
from refocal.evaluate._memory import N_RESAMPLES, measure_in_memory
from refocal.evaluate._requested import check_rows, requested_rows
from refocal.evaluate._results import SEED, Progress, Result, Results, own_records
from refocal.evaluate.evaluation import Evaluation, MapFacts, Measured
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
from refocal.evaluate.statements import FEWEST_ROWS_TO_RECOMMEND, LOG_LOSS_SHARE, holm, statement_levels
from refocal.io import MultiLabelPredictions, Predictions
from refocal.maps.chain import Chain
from refocal.maps.curves import LabelLines, OneVsRest
from refocal.maps.steps import Affine, Floor, Focal, Temperature
from refocal.metrics import PairedDifference
from refocal.metrics.influence import two_sided_p_value
from refocal.metrics.intervals import whole_rows
from refocal.metrics.record import Metric
from refocal.metrics.two_classes import BiasSummary
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
    report = progress or (lambda *_: None)
    failures = Failures(calibrators, chosen)
    everything: dict[str, Calibrator | None] = {NONE: None, **calibrators}
    if chosen is not None:
        check_option(chosen, tuple(everything), "chosen", "evaluate")
    usable = _usable(everything, rows, failures)
    methods_of_rows = _in_order(usable, rows)
    if isinstance(rows, BlockedDataset):
        results = measure_in_blocks(rows, methods_of_rows, report)
    else:
        results = measure_in_memory(
            rows,
            methods_of_rows,
            report,
            failures.of,
            groups=requested.groups,
            metrics=own_metrics,
            n_resamples=n_resamples,
            seed=seed,
        )
    warn_of_groups(usable, results.groups)
    notes = {**requested.notes, **results.notes, **_notes_of_rows(test, rows, results)}
    has_one_class = _has_one_class(results, rows.n_classes)
    is_left_open = chosen is not None or has_one_class
    recommendation = None if is_left_open else _recommendation(results, usable, rows.n_classes, level)
    picked = chosen or recommendation or NONE
    n_shown = 1 if picked == NONE else 2
    levels = statement_levels(level, len(results.of) - 1, results.n_groups, rows.n_classes, n_shown)
    report(len(everything), len(everything) + 1, "looking at classes")
    seconds = fit_seconds or {}
    methods = [
        _measured(
            name,
            usable[name],
            results.of,
            picked,
            level=level,
            level_of_one=levels.of_one,
            seconds=seconds,
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
        recommended=recommendation is not None,
        methods=methods,
        surface=surface_of(picked, calibrators, rows.n_classes),
        run=run_of(notes, calibrators),
        failed=failures.reasons,
        segments=segments,
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
        if name == NONE:
            expected = "called otherwise: 'none' is the uncalibrated model"
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
    n_worth = _rows_of_weights(results)
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


def _rows_of_weights(results: Results) -> int:
    """How many rows of equal weights the rows are worth: as many as they are, or fewer where weights differ."""
    bins = results.of[NONE].bins
    return min(whole_rows(float(bins.weight.sum() ** 2 / bins.squared_weight.sum())), results.n_rows)


def _has_one_class(results: Results, n_classes: int) -> bool:
    """Whether one of two classes does not occur: how methods differ on its rows is then unknown."""
    outcomes = results.of[NONE].histogram
    return n_classes == 2 and (sum(outcomes.right) == 0.0 or sum(outcomes.wrong) == 0.0)


def _are_guessing(results: Results, n_classes: int) -> bool:
    """Whether no method predicts better than guessing."""
    log_losses = [result.summaries["log_loss"].value for result in results.of.values()]
    return all(is_guessing(log_loss, n_classes) for log_loss in log_losses)


def _recommendation(
    results: Results, calibrators: Mapping[str, Calibrator | None], n_classes: int, level: float
) -> str | None:
    """The recommended method; None where there are too few rows for one, or where no method beats guessing.

    What is stated on methods, means and diagrams holds together at the level.
    """
    if _rows_of_weights(results) < FEWEST_ROWS_TO_RECOMMEND or _are_guessing(results, n_classes):
        return None
    levels = statement_levels(level, len(results.of) - 1, results.n_groups, n_classes)
    return recommended(results.of, calibrators, n_classes, levels.methods)


def recommended(
    results: Mapping[str, Result], calibrators: Mapping[str, Calibrator | None], n_classes: int, level: float
) -> str:
    """The method of lowest ECE among those with a log-loss close to the best; for two classes of lowest log-loss.

    Only methods that improve on the model as it is count: by the score test, of all methods together at the level, and
    by a log-loss that is lower by more than the standard error of the difference. Without any, the model is left as it
    is. Among methods that are statistically indistinguishable from the best, the one of lowest log-loss is preferred;
    if the log-losses are indistinguishable too, `AutoCalibration`, or else the method with the fewest parameters.
    """

    def least(names: list[str], measure: str) -> str:
        return min(names, key=lambda name: results[name].summaries[measure].value)

    def tied(names: list[str], best: str, measure: str) -> list[str]:
        mine = results[best].summaries[measure]
        ties = [best]
        for name in names:
            difference = None if name == best else results[name].summaries[measure].minus(mine, level=level)
            if difference is not None and difference.p_value > 1.0 - level:
                ties.append(name)
        return ties

    one_error = two_sided_p_value(1.0)  # of a difference that is as large as its standard error

    def is_lower(name: str) -> bool:
        difference = results[name].summaries["log_loss"].minus(results[NONE].summaries["log_loss"], level=level)
        return difference is not None and difference.difference < 0.0 and difference.p_value < one_error

    p_values = holm({name: result.score.p_value for name, result in results.items() if result.score is not None})
    names = [name for name in results if p_values.get(name, 1.0) <= 1.0 - level and is_lower(name)]
    if n_classes > 2:
        limit = (1.0 + LOG_LOSS_SHARE) * results[least(list(results), "log_loss")].summaries["log_loss"].value
        names = [name for name in names if results[name].summaries["log_loss"].value <= limit]
    if not names:
        return NONE
    best = least(names, "ece" if n_classes > 2 else "log_loss")
    if n_classes > 2:
        names = tied(names, best, "squared_ece")
        best = least(names, "log_loss")
    names = tied(names, best, "log_loss")

    def size(name: str) -> int:
        """The number of parameters; that of a mean of methods says nothing about how flexible it is."""
        calibrator = calibrators[name]
        return 0 if calibrator is None or calibrator.averages else _n_parameters(calibrator.chain_)

    return min(names, key=size)


def _measured(
    name: str,
    calibrator: Calibrator | None,
    results: Mapping[str, Result],
    picked: str,
    *,
    level: float,
    level_of_one: float,
    seconds: Mapping[str, float],
    are_tested: bool,
) -> Measured:
    """The results of one method, with its differences from the uncalibrated model and the chosen method.

    `are_tested`: whether the rows say how large such differences are by chance.
    """
    result = results[name]
    described = None
    facts = None
    if calibrator is not None:
        described = to_dict(calibrator)
        parameters = calibrator.chain_.parameters()
        described["fitted"] = {key: value for key, value in parameters if isinstance(value, float)}
        if name != picked:  # curves and matrices only for the method shown in detail
            del described["chain"]
        facts = _map_facts(calibrator.chain_)
    details = result.details(level_of_one, level) if name in (NONE, picked) else None
    stated_bias = None
    if name in (NONE, picked) and "mean_bias" in result.summaries:
        bias = result.summaries["mean_bias"]
        assert isinstance(bias, BiasSummary)  # noqa: S101 - of memory and of blocks
        stated_bias = bias.exact_interval(level=level_of_one)
    return Measured(
        name=name,
        title=title_of(name, calibrator),
        calibrator=described,
        measures={key: summary.interval(level=level) for key, summary in result.summaries.items()},
        values=result.values,
        against_none=_differences(result, results[NONE], level, are_tested),
        against_chosen=_differences(result, results[picked], level, are_tested),
        reliability=banded(result.bins, result.units, level_of_one),
        histogram=result.histogram,
        classes=None if details is None else details.classes,
        fit_seconds=seconds.get(name),
        predict_seconds=result.seconds,
        map=facts,
        groups=[] if details is None else details.groups,
        decisions=None if details is None else details.decisions,
        stated_bias=stated_bias,
        curve=None if details is None else details.curve,
        group_errors=[] if details is None else details.group_errors,
        sets=None if details is None else details.sets,
        improvement_p_value=None if result.score is None else result.score.p_value,
    )


def _map_facts(chain: Chain) -> MapFacts:
    """What a fitted map consists of."""
    step_types = {type(step) for step in chain.walk()}
    if step_types & {Affine, LabelLines, OneVsRest}:
        kind = "each class"
    elif step_types <= {Chain, Floor, Focal, Temperature}:
        kind = "numbers"
    else:
        kind = "shared"
    return MapFacts(kind, _n_parameters(chain), chain.keeps_order)


def _n_parameters(chain: Chain) -> int:
    """How many numbers a chain has."""
    return sum(np.size(value) for _, value in chain.parameters())


def _differences(result: Result, other: Result, level: float, are_tested: bool) -> dict[str, PairedDifference]:
    """Every metric less that of another method, by its name; for some metrics no interval of a difference holds.

    Where differences are not tested, their intervals are without end.
    """
    differences = {}
    for key, summary in result.summaries.items():
        # A constant has no slope, and no probabilities that separate the classes have one.
        if key not in other.summaries:
            continue
        difference = summary.minus(other.summaries[key], level=level)
        if difference is not None and not are_tested:
            difference = replace(difference, low=-math.inf, high=math.inf, p_value=1.0)
        if difference is not None:
            differences[key] = difference
    return differences
