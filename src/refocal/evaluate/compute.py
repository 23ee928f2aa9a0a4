"""Predictions and calibrators → Evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refocal import metrics
from refocal._arrays import as_floating, to_numpy
from refocal._validation import check_option
from refocal.calibrators import Calibrator
from refocal.calibrators._labels import check_class_order
from refocal.calibrators.registry import NONE, chosen_methods, make, title_of
from refocal.calibrators.serialize import to_dict
from refocal.data import Predictions
from refocal.engine import BlockedDataset
from refocal.errors import ShapeError
from refocal.evaluate._failures import Failures
from refocal.evaluate._origin import N_BINS, absent_classes_of, n_validation_of, run_of, surface_of
from refocal.evaluate.evaluation import ClassRow, Evaluation, Histogram, Measured, Reliability
from refocal.evaluate.streamed import StreamedLook
from refocal.maps import log_softmax
from refocal.metrics import Interval, Resamples

Progress = Callable[[float, int, str], None]
Vector = NDArray[np.float64]

# Measures with an interval. Calibration errors take the "basic" one: resampling adds noise to them (docs/metrics.md).
MEASURES: dict[str, tuple[Callable[..., Any], str]] = {
    "ece": (metrics.expected_calibration_error, "basic"),
    "log_loss": (metrics.log_loss, "percentile"),
    "brier_score": (metrics.brier_score, "percentile"),
    "accuracy": (metrics.accuracy, "percentile"),
}
# Measures whose resamples would take longer than all else.
VALUES: dict[str, Callable[..., float]] = {
    "classwise_ece": metrics.classwise_ece,
    "smooth_ece": metrics.smooth_ece,
    "max_calibration_error": partial(metrics.expected_calibration_error, norm="max"),
    "ks_calibration_error": metrics.ks_calibration_error,
}
# A method is recommended for its ECE among those that give up at most this share of the best log-loss.
LOG_LOSS_SHARE = 0.01
HISTOGRAM_BINS = 20


def compare(
    validation: Predictions,
    test: Predictions,
    methods: Sequence[str] | str | None = None,
    *,
    chosen: str | None = None,
    title: str = "predictions",
    n_resamples: int = 500,
    level: float = 0.95,
    seed: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Fit methods on the validation set and measure them on the test set, beside the network as it is.

    Parameters
    ----------
    validation, test : Predictions
        Two sets of rows that the network was not trained on.
    methods : list of str, optional
        Names of `refocal.calibrators.registry`, "all" for every one; by default the usual ones. A method that fails is
        left out and listed in `failed` with its reason, as long as another one works.
    chosen : str, optional
        The method to look at closely; by default the recommended one: the least ECE among the methods whose log-loss
        is within 1 % of the best.
    title : str
        What the predictions are of, for the report.
    n_resamples, level, seed
        Of the bootstrap.
    progress : callable, optional
        Called with (steps done, all steps, what comes next).

    Examples
    --------
    >>> from refocal.data import load_sample
    >>> validation, test = load_sample("cifar10-focal3")
    >>> found = compare(validation, test, ["ts", "fts-nll"], n_resamples=50)
    >>> found["fts-nll"].measures["log_loss"].value < found["ts"].measures["log_loss"].value
    True
    """
    names = chosen_methods(methods)
    if chosen is not None:
        check_option(chosen, (NONE, *names), "chosen", "compare")
    report = progress or _silent
    failures = Failures()
    fitted, seconds = _fit_all(validation, names, chosen, report, failures)

    def later(done: float, total: int, words: str) -> None:
        report(len(names) + done, len(names) + total, words)

    return evaluate(
        test,
        fitted,
        chosen=chosen,
        title=title,
        n_validation=len(validation),
        fit_seconds=seconds,
        n_resamples=n_resamples,
        level=level,
        seed=seed,
        progress=later,
        failures=failures,
    )


def _fit_all(
    validation: Predictions, names: Sequence[str], chosen: str | None, report: Progress, failures: Failures
) -> tuple[dict[str, Calibrator], dict[str, float]]:
    """The calibrators that could be fitted, and the seconds that each took."""
    fitted, seconds = {}, {}
    # One Dataset for all methods: they share their passes over the rows.
    first = make(names[0], input=validation.input)
    dataset = first.dataset(_wide(validation.values), validation.labels, validation.weight)
    for i, name in enumerate(names):
        start = time.perf_counter()

        def tell(share: float, before: int = i, what: str = f"fitting {name}") -> None:
            report(before + share, 2 * len(names) + 2, what)

        tell(0.0)
        with failures.of(name, needed=name == chosen or len(failures.errors) == len(names) - 1):
            calibrator = make(name, input=validation.input)
            calibrator.fit_with_progress(dataset, None, None, tell)
            fitted[name], seconds[name] = calibrator, time.perf_counter() - start
    return fitted, seconds


def evaluate(
    test: Predictions | BlockedDataset,
    calibrators: Mapping[str, Calibrator],
    *,
    chosen: str | None = None,
    title: str = "predictions",
    n_validation: int | None = None,
    fit_seconds: Mapping[str, float] | None = None,
    n_resamples: int = 500,
    level: float = 0.95,
    seed: int = 0,
    progress: Progress | None = None,
    failures: Failures | None = None,
) -> Evaluation:
    """Measure fitted calibrators on a test set, beside the network as it is.

    The arguments are those of `compare`; `calibrators` maps names to fitted calibrators, and `failures` holds what
    went wrong before. Rows of `refocal.scale` in place of Predictions are walked through in blocks: intervals are then
    those of the normal approximation, and `values` says how far an error that histograms count may be off.

    >>> from refocal import TemperatureScaling
    >>> from refocal.data import load_sample
    >>> validation, test = load_sample("cifar10-focal3")
    >>> fitted = TemperatureScaling().fit(validation.values, validation.labels)
    >>> found = evaluate(test, {"mine": fitted}, n_resamples=20)
    >>> found["mine"].measures["ece"].value < found.before.measures["ece"].value
    True
    """
    if isinstance(test, BlockedDataset):
        return _evaluate_rows(test, calibrators, chosen, title, n_validation, level)
    report = progress or _silent
    failures = failures or Failures()
    everything: dict[str, Calibrator | None] = {NONE: None, **calibrators}
    if chosen is not None:
        check_option(chosen, tuple(everything), "chosen", "evaluate")
    bootstrap = {"n_resamples": n_resamples, "level": level, "seed": seed}
    looks = _look_at_all(test, everything, chosen, report, failures, bootstrap)
    scores = {name: (look.draws["log_loss"].value, look.draws["ece"].value) for name, look in looks.items()}
    picked = _recommended(scores) if chosen is None else chosen
    report(len(everything), len(everything) + 1, "looking at classes")
    measured = [
        _measured(
            name, everything[name], looks, picked, level,
            classes=_classes(test, np.exp(log_proba(test, everything[name]))) if name in (NONE, picked) else None,
            fit_seconds=(fit_seconds or {}).get(name),
        )
        for name in looks
    ]  # fmt: skip
    report(len(everything) + 1, len(everything) + 1, "done")
    return Evaluation(
        title=title,
        n_validation=n_validation_of(calibrators) if n_validation is None else n_validation,
        n_test=len(test),
        n_classes=test.n_classes,
        class_names=None if test.class_names is None else list(test.class_names),
        input=test.input,
        level=level,
        chosen=picked,
        recommended=chosen is None,
        methods=measured,
        surface=surface_of(picked, calibrators),
        run=run_of(n_resamples, seed) | absent_classes_of(calibrators),
        failed=failures.reasons(),
    )


def _look_at_all(
    test: Predictions,
    everything: Mapping[str, Calibrator | None],
    chosen: str | None,
    report: Progress,
    failures: Failures,
    bootstrap: Mapping[str, Any],
) -> dict[str, _Look]:
    """A look at every method that can be measured."""
    looks: dict[str, _Look] = {}
    for i, (name, calibrator) in enumerate(everything.items()):
        report(i, len(everything) + 1, f"measuring {name}")
        last_hope = i == len(everything) - 1 and len(looks) <= 1 and len(everything) > 1
        with failures.of(name, needed=name in (NONE, chosen) or last_hope):
            _check_columns(test, name, calibrator)
            looks[name] = _look(test, calibrator, **bootstrap)
    return looks


def _measured(
    name: str, calibrator: Calibrator | None, looks: Mapping[str, _Look], picked: str, level: float, **also: Any
) -> Measured:
    """What a look has found, beside the network as it is and the method that was picked."""
    look, before, best = looks[name], looks[NONE].draws, looks[picked].draws
    return Measured(
        name=name,
        title=title_of(name, calibrator),
        calibrator=_described(calibrator, whole=name == picked),
        measures={key: _interval(look.draws[key], level, method) for key, (_, method) in MEASURES.items()},
        values=look.values,
        against_none={key: look.draws[key].minus(before[key], level=level) for key in MEASURES},
        against_chosen={key: look.draws[key].minus(best[key], level=level) for key in MEASURES},
        reliability=look.reliability,
        histogram=look.histogram,
        predict_seconds=look.seconds,
        **also,
    )


def _evaluate_rows(
    rows: BlockedDataset,
    calibrators: Mapping[str, Calibrator],
    chosen: str | None,
    title: str,
    n_validation: int | None,
    level: float,
) -> Evaluation:
    everything: dict[str, Calibrator | None] = {NONE: None, **calibrators}
    if chosen is not None:
        check_option(chosen, tuple(everything), "chosen", "evaluate")
    for calibrator in calibrators.values():
        check_class_order(calibrator, rows.reading.class_names, "test", "evaluate")
    look = StreamedLook(rows, everything, N_BINS, level)
    scores = {name: (look.value(name, "log_loss"), look.value(name, "ece")) for name in everything}
    picked = _recommended(scores) if chosen is None else chosen
    skipped = {"rows skipped": str(look.n_skipped)} if look.n_skipped else {}
    return Evaluation(
        title=title,
        n_validation=n_validation_of(calibrators) if n_validation is None else n_validation,
        n_test=look.n_rows,
        n_classes=rows.n_classes,
        class_names=None if rows.reading.class_names is None else list(rows.reading.class_names),
        input=rows.input,
        level=level,
        chosen=picked,
        recommended=chosen is None,
        methods=[
            look.measured(name, picked, NONE, _described(calibrator, whole=name == picked))
            for name, calibrator in everything.items()
        ],
        surface=surface_of(picked, calibrators),
        run={**run_of(0, 0), **skipped, **absent_classes_of(calibrators)},
    )


def log_proba(predictions: Predictions, calibrator: Calibrator | None) -> NDArray[Any]:
    """Log-probabilities of a calibrator, or of the network itself, in float32 or float64."""
    if calibrator is None:
        return np.asarray(to_numpy(log_softmax(_wide(predictions.logits))))
    values = _wide(predictions.values if calibrator.input == predictions.input else predictions.logits)
    if calibrator.input == "probabilities" and predictions.input == "logits":
        values = np.exp(to_numpy(log_softmax(values)))
    return np.asarray(to_numpy(calibrator.predict_log_proba(values)))


def _wide(values: Any) -> Any:
    """At least float32: half precision would round the confidences that are to be measured."""
    return as_floating(values, "values", "evaluate")[0]


def _described(calibrator: Calibrator | None, whole: bool) -> dict[str, Any] | None:
    """A calibrator as plain values; the curves and matrices only of the one that is looked at closely."""
    if calibrator is None:
        return None
    data = to_dict(calibrator)
    data["fitted"] = {name: value for name, value in calibrator.chain_.parameters() if isinstance(value, float)}
    if not whole:
        del data["chain"]
    return data


def _check_columns(test: Predictions, name: str, calibrator: Calibrator | None) -> None:
    needed = test.n_classes if calibrator is None else calibrator.n_features_in_
    if needed != test.n_classes:
        expected = f"of {needed} columns, as the calibrator {name!r} was fitted on"
        raise ShapeError("test", "evaluate", expected=expected, got=f"{test.n_classes} columns")
    if calibrator is not None:
        check_class_order(calibrator, test.class_names, "test", "evaluate")


class _Look(NamedTuple):
    """What is kept of a method's probabilities, which are not: for many rows and methods they would fill the memory."""

    draws: dict[str, Resamples]
    values: dict[str, float]
    reliability: Reliability
    histogram: Histogram
    seconds: float


def _look(test: Predictions, calibrator: Calibrator | None, n_resamples: int, level: float, seed: int) -> _Look:
    start = time.perf_counter()
    log_p = log_proba(test, calibrator)
    seconds = time.perf_counter() - start
    p = np.exp(log_p)
    options: dict[str, Any] = {"n_resamples": n_resamples, "seed": seed, "sample_weight": test.weight}
    draws = {
        key: metrics.resample(metric, test.labels, log_p if metric is metrics.log_loss else p, **options)
        for key, (metric, _) in MEASURES.items()
    }
    values = {key: float(metric(test.labels, p, sample_weight=test.weight)) for key, metric in VALUES.items()}
    return _Look(draws, values, _reliability(test, p, level, seed), _histogram(test, p), seconds)


def _recommended(scores: Mapping[str, tuple[float, float]]) -> str:
    """The name of the least ECE among those whose log-loss is close to the best; `scores` are (log-loss, ECE)."""
    limit = (1.0 + LOG_LOSS_SHARE) * min(log_loss for log_loss, _ in scores.values())
    good = [name for name, (log_loss, _) in scores.items() if log_loss <= limit]
    return min(good, key=lambda name: scores[name][1])


def _interval(draws: Resamples, level: float, method: str) -> Interval:
    found = draws.interval(level=level, method=method)
    if method == "percentile":
        return found
    # Mirrored at a value near 0 the interval can fall below 0, or miss the value itself.
    low, high = min(max(found.low, 0.0), found.value), max(found.high, found.value)
    return Interval(found.value, low, high, level, found.standard_error, found.bias, found.n_resamples)


def _reliability(test: Predictions, p: NDArray[Any], level: float, seed: int) -> Reliability:
    options: dict[str, Any] = {"n_bins": N_BINS, "level": level, "sample_weight": test.weight}
    curve = metrics.reliability_curve(test.labels, p, **options)
    band = metrics.reliability_band(test.labels, p, kind="consistency", n_resamples=200, seed=seed, **options)
    return Reliability(curve.count, curve.confidence, curve.accuracy, band.low, band.high)


def _histogram(test: Predictions, p: NDArray[Any]) -> Histogram:
    confidence, right = p.max(axis=1).astype(np.float64), p.argmax(axis=1) == test.labels
    weight = np.ones(len(test)) if test.weight is None else test.weight
    edges = np.linspace(0.0, 1.0, HISTOGRAM_BINS + 1)
    # Rounding may leave a confidence a little above 1; it belongs into the last bin.
    confidence = np.minimum(confidence, 1.0)
    counts = [np.histogram(confidence[rows], edges, weights=weight[rows])[0].tolist() for rows in (right, ~right)]
    return Histogram(edges.tolist(), *counts)


def _classes(test: Predictions, p: NDArray[Any]) -> list[ClassRow]:
    predicted, top = p.argmax(axis=1), p.max(axis=1).astype(np.float64)
    rows = []
    for label in range(test.n_classes):
        occurs, said = test.labels == label, predicted == label
        weight = None if test.weight is None else test.weight[said]
        any_said = bool(said.any()) and (weight is None or weight.sum() > 0)
        rows.append(
            ClassRow(
                label=label,
                n=int(occurs.sum()),
                predicted=int(said.sum()),
                precision=float(np.average(occurs[said], weights=weight)) if any_said else None,
                confidence=float(np.average(top[said], weights=weight)) if any_said else None,
                ece=metrics.expected_calibration_error(
                    occurs.astype(np.int64), np.minimum(p[:, label], 1.0), n_bins=N_BINS, sample_weight=test.weight
                ),
            )
        )
    return rows


def _silent(done: float, total: int, words: str) -> None:
    """Report to nobody."""
