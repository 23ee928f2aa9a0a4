"""Results of methods on rows in blocks, in a few passes and constant memory.

Every pass adds up sums (`_block_passes`, `_block_sums`). The confidence and each class's probability have a histogram,
with cells as fine as a fixed memory allows, so that errors come with the bound that these leave. The smooth error is
that of memory but for rounding: its sums on a grid add up. Intervals come from the
covariance of influences: Wilson's for shares, on the log scale for losses, inverted tests for errors.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from refocal._arrays import Vector
from refocal.calibrators import MultiLabelCalibration
from refocal.calibrators.registry import NONE
from refocal.engine import BlockedDataset, Pass
from refocal.errors import DataError, ParameterError
from refocal.evaluate import _details as details
from refocal.evaluate._block_passes import (
    InfluenceSums,
    MetricInfluences,
    Predictor,
    sum_clusters_in_bins,
    sum_influences,
    sum_rows,
)
from refocal.evaluate._block_sums import SCORE, MethodSums, Sums
from refocal.evaluate._results import BINS_NOTE, SEED, Details, Progress, Result, Results, reported
from refocal.evaluate.evaluation import Histogram
from refocal.evaluate.predicted import Methods, warn_of_unseen
from refocal.evaluate.provenance import unit_notes
from refocal.evaluate.statements import ScoreTest
from refocal.metrics import METRICS
from refocal.metrics.influence import variance_of_mean
from refocal.metrics.inputs import check_clusters
from refocal.metrics.intervals import InfluenceSummary, SummedMean, has_equal_weights, mean_ends, share_ends, whole_rows
from refocal.metrics.inverted_error import ClusterNoise, InvertedError
from refocal.metrics.record import BlockSums, Metric, StreamedMetric
from refocal.metrics.reliability import UnitVariances
from refocal.metrics.squared import SquaredSummary
from refocal.metrics.two_classes import BiasSummary


def measure_in_blocks(rows: BlockedDataset, methods: Methods, report: Progress) -> Results:
    """Every metric of every method; a method that fails raises, since one pass over the rows serves all."""
    _refuse_methods(rows, methods)
    watch = rows.watch
    start = time.perf_counter()
    rows.watch = watch or (lambda done, total: report(done, total or 0, "measuring"))
    try:
        rows.start(needs_classes=False)
        total = sum_rows(rows, methods)
        check_clusters(None if total.terms.clusters is None else total.terms.clusters.keys, "evaluate")
        measured = _measure(rows, methods, total)
        in_bins = None if total.n_clusters is None else sum_clusters_in_bins(rows, methods, total)
    finally:
        rows.watch = watch
    seconds = (time.perf_counter() - start) / len(methods)
    results = {}
    score_errors = total.score_errors()
    for i, (name, of_method) in enumerate(zip(methods, total.methods, strict=True)):
        metrics_of_method = {metric: values[i] for metric, values in measured.items()}
        score = None
        if name != NONE:
            score = ScoreTest(of_method.means[SCORE], float(score_errors[i]), _n_units(total))
        result = _result(of_method, metrics_of_method, total.terms.weight, score, seconds)
        results[name] = result if in_bins is None else _by_clusters(result, of_method, in_bins.of_method(i))
    notes = BINS_NOTE | unit_notes(rows.reader.clusters or "", total.n_clusters)
    if rows.input == "probabilities":
        notes |= total.zeros.note(total.terms.weight)
    if rows.n_skipped:
        notes["rows skipped"] = str(rows.n_skipped)
    if rows.bad_parts:
        notes["files skipped"] = str(len(rows.bad_parts))
    group_names = total.methods[0].groups.names
    columns = list(dict(group_names))
    seen = {column: np.array([name for of, name in group_names if of == column]) for column in columns}
    for calibrator in methods.values():
        warn_of_unseen(calibrator, seen, "evaluate")
    return Results(results, rows.n_rows, columns, len(group_names), notes)


def refuse_options_of_memory(*, n_resamples: int | None, seed: int | None, **of_rows: Any) -> None:
    """Refuse the options that only rows in memory have; `of_rows` are the columns that come with rows."""
    for argument, value in (("n_resamples", n_resamples), ("seed", seed)):
        if value is not None:
            expected = "left out for rows in blocks, which are not resampled"
            raise ParameterError(argument, "evaluate", expected=expected, got=repr(value))
    for argument, value in of_rows.items():
        if value is not None:
            opened = f"open_rows(…, {argument}=…)"
            expected = f"left out for rows in blocks, which have those that they were opened with: {opened}"
            raise ParameterError(argument, "evaluate", expected=expected, got=type(value).__name__)


def _refuse_methods(rows: BlockedDataset, methods: Methods) -> None:
    """Refuse calibrators that take other rows than these."""
    for name, calibrator in methods.items():
        if calibrator is None:
            continue
        # Log-odds are logits of two classes; what a probability of 0 counts as differs from calibrator to calibrator.
        if (calibrator.input == "probabilities") != (rows.input == "probabilities"):
            expected = f"{calibrator.input}, as the calibrator {name!r} takes"
            raise DataError("test", "evaluate", expected=expected, got=rows.input)
        if isinstance(calibrator, MultiLabelCalibration):
            expected = "of classes that exclude one another, for rows in blocks"
            raise ParameterError("calibrators", "evaluate", expected=expected, got=f"{name!r}, one of labels")


def _measure(rows: BlockedDataset, methods: Methods, total: Sums) -> dict[str, list[StreamedMetric]]:
    """Every reported metric of every method, by its name; influences take one more pass."""
    covariances = total.covariances()
    del covariances[SCORE]
    measured: dict[str, list[StreamedMetric]] = {}
    influences: list[MetricInfluences] = []
    for metric in (*reported("with interval", rows.n_classes), *reported("value", rows.n_classes)):
        if metric.name in covariances:
            measured[metric.name] = [_streamed_mean(metric, of_method, rows.n_classes) for of_method in total.methods]
        elif metric.streamed is not None:
            answers = [metric.streamed(of_method) for of_method in total.methods]
            values = [answer for answer in answers if answer is not None and not math.isnan(answer.value)]
            if len(values) < len(methods):  # the sums lack what it needs
                continue
            measured[metric.name] = values
            of_methods = tuple(value.influence for value in values if value.influence is not None)
            if of_methods:
                influences.append(MetricInfluences(metric, of_methods))
    if influences:
        covariances |= _covariances_of_influences(rows, methods, total, influences)
    third_moments = total.third_moments()
    for name, covariance in covariances.items():
        metric = METRICS[name]
        influences_of_methods = _influences(covariance)
        for i, (value, influence) in enumerate(zip(measured[name], influences_of_methods, strict=True)):
            summary = _summary(metric, value, influence, total, i, third_moments, rows.n_classes)
            measured[name][i] = value._replace(summary=summary)
    return measured


def _covariances_of_influences(
    rows: BlockedDataset, methods: Methods, total: Sums, influences: Sequence[MetricInfluences]
) -> dict[str, Vector]:
    """The covariances of the methods' values of each metric, (methods, methods), from one pass over the influences."""
    predict = Predictor(methods, rows.input == "probabilities")
    weight = total.terms.weight
    count = partial(sum_influences, predict=predict, influences=tuple(influences), total_weight=weight)
    task = Pass(count, InfluenceSums.merge, InfluenceSums.finish)
    products = rows.reduce(task, for_fit=False) / total.terms.weight**2
    if total.n_clusters is None:
        with np.errstate(invalid="ignore"):  # one row says nothing about a variance: NaN
            products = products * (1.0 - 1.0 / rows.n_rows)
    return {metric.name: of_metric for (metric, _), of_metric in zip(influences, products, strict=True)}


def _summary(
    metric: Metric,
    value: StreamedMetric,
    influence: Vector,
    total: Sums,
    place: int,
    third_moments: Mapping[str, Vector],
    n_classes: int,
) -> InfluenceSummary:
    """The value of a metric with its interval, for the method in this `place`."""
    limits = metric.limits(n_classes)
    if metric.summary == BiasSummary.of:
        return _bias_summary(value.value, influence, total, place)
    if metric.summary is None and metric.terms is not None:
        return _summed_mean(value, influence, limits, total, place, third_moments[metric.name])
    of_pairs = value.influence is not None
    return InfluenceSummary(value.value, influence, limits, value.form, _n_units(total), of_pairs)


def _streamed_mean(metric: Metric, sums: BlockSums, n_classes: int) -> StreamedMetric:
    """A mean over rows with the form of its interval: a share has Wilson's, as in memory."""
    value = sums.means[metric.name]
    bins = sums.bins
    n_rows = float(bins.weight.sum() ** 2 / bins.squared_weight.sum())
    if metric.summary is None:
        return StreamedMetric(value, form=partial(mean_ends, metric.limits(n_classes), n_rows))
    return StreamedMetric(value, form=partial(share_ends, n_rows))


def _influences(covariance: Vector) -> Vector:
    """Influences of some units, (methods, units), with the products of a covariance.

    The summary of a method needs influences of rows, of which only products matter: with the covariance V Λ Vᵀ, the
    rows of V √Λ have the same products.
    """
    eigenvalues, eigenvectors = np.linalg.eigh(covariance)
    return np.asarray(eigenvectors * np.sqrt(np.maximum(eigenvalues, 0.0)))


def _bias_summary(value: float, influence: Vector, total: Sums, place: int) -> BiasSummary:
    """The mean bias, whose interval is the one of memory, of cells of the histogram."""
    cells = total.methods[place].histogram.equal_mass(BiasSummary.N_CELLS).bins
    return BiasSummary(value=value, influence=influence, limits=(-1.0, 1.0), n_clusters=total.n_clusters, cells=cells)


def _summed_mean(
    metric: StreamedMetric,
    influence: Vector,
    limits: tuple[float, float],
    total: Sums,
    place: int,
    third_moments: Vector,
) -> SummedMean:
    """A mean of terms, as `MeanSummary` in memory."""
    return SummedMean(
        value=metric.value,
        influence=influence,
        limits=limits,
        form=metric.form,
        n_clusters=total.n_clusters,
        place=place,
        third_moments=third_moments,
        n_units=whole_rows(total.terms.n_rows) if total.n_clusters is None else total.n_clusters,
    )


def _n_units(total: Sums) -> int | None:
    """What `number_of` is in memory: of clusters, or of rows of unequal weights, effectively."""
    if total.n_clusters is not None:
        return total.n_clusters
    if has_equal_weights(total.methods[0].bins):
        return None
    return max(whole_rows(total.terms.n_rows), 2)


def _result(
    sums: MethodSums, measured: dict[str, StreamedMetric], weight: float, score: ScoreTest | None, seconds: float
) -> Result:
    """The result of one method."""
    summaries = {}
    values = {}
    for name, metric in measured.items():
        if metric.summary is None:
            values[name] = metric.value
        else:
            summaries[name] = metric.summary
    for name, metric in measured.items():
        if metric.bound is not None:
            values[f"{name}_bound"] = metric.bound
    return Result(
        summaries=summaries,
        values=values,
        bins=sums.bins,
        units=None,
        histogram=Histogram(details.EDGES.tolist(), sums.calibration.right, sums.calibration.wrong),
        seconds=seconds,
        score=score,
        details=partial(_details_of, sums, weight),
    )


def _by_clusters(result: Result, sums: MethodSums, in_bins: tuple[Vector, Vector]) -> Result:
    """The result of a method whose calibration errors rest on clusters; the other intervals do already."""
    residual, weight = in_bins
    bins = sums.bins
    summaries = dict(result.summaries)
    error = summaries["ece"]
    if isinstance(error, InvertedError):
        noise = ClusterNoise(error.model.covariance_of_sums(residual, weight), weight.shape[1])
        summaries["ece"] = replace(error, clusters=noise)
    summaries["squared_ece"] = SquaredSummary.of_sums(bins, residual, weight)
    # The mean of a cluster in a bin, of which that of the bin is the mean with their weights.
    mean_of_cluster = np.divide(residual, weight, out=np.zeros_like(residual), where=weight > 0.0)
    pairs = zip(mean_of_cluster, weight, strict=True)
    of_rate = np.array([variance_of_mean(of_bin, weight_of_bin) for of_bin, weight_of_bin in pairs])
    return result._replace(summaries=summaries, units=UnitVariances(of_rate, (weight > 0.0).sum(axis=1)))


def _details_of(sums: MethodSums, weight: float, level: float, level_of_curve: float) -> Details:
    """Classes, groups and decisions; the flexible curve takes rows in memory."""
    return Details(
        classes=[
            details.class_row(sums.class_counts, label, of_class.ece) for label, of_class in enumerate(sums.classes)
        ],
        groups=details.measure_groups(sums.groups.groups(), level, SEED),
        decisions=details.decision_table(sums.decisions / weight),
        curve=None,
        group_errors=[],
        sets=None,
    )
