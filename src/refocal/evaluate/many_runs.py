"""Methods fitted and measured on every one of many trained networks, in one call."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np
from sklearn.base import clone

import refocal
from refocal._arrays import as_floating, row_blocks, to_numpy
from refocal._validation import check_integer, check_option, check_seed
from refocal.calibrators import Calibrator, TemperatureScaling
from refocal.calibrators.class_order import InOrder, check_labels, order_for
from refocal.calibrators.registry import NONE, MethodsLike, chosen_calibrators, title_of, with_input
from refocal.errors import DataError, FitWarning, ParameterError, RefocalError, warn
from refocal.evaluate._results import SEED, Progress, own_records
from refocal.evaluate.many import UNITS, ComparedMetric, ManyComparison, RunScores
from refocal.evaluate.many_tables import remarks
from refocal.evaluate.predicted import Predicted, log_proba
from refocal.evaluate.provenance import are_same_rows
from refocal.evaluate.runs import Run, read_runs
from refocal.metrics.inputs import check_level
from refocal.metrics.record import Metric
from refocal.rows import Predictions

__all__ = ["compare_many"]

FEWEST_CLUSTERS = 5
"""With fewer data sets, or networks, nothing is said of others: their variance would be a guess."""


def compare_many(
    runs: Any,
    methods: MethodsLike = None,
    *,
    metrics: Sequence[str | Metric | Callable[..., Any]] = ("log_loss", "brier_score", "ece", "accuracy"),
    against: str = NONE,
    unit: str | None = None,
    title: str = "networks",
    level: float = 0.95,
    n_draws: int = 20,
    seed: int = SEED,
    progress: Progress | None = None,
) -> ManyComparison:
    """Fit methods on the validation rows of many networks and measure them on their test rows, over all of them.

    Parameters
    ----------
    runs : list of Run, or a path, pattern, folder or table
        The networks, each with its data set, name and seed; what is no `Run` is read by `read_runs`.
    methods : list of str and calibrators, or a mapping of names to them, optional
        As for `compare`. One that fails on a run is left out of all, and listed in `failed`.
    metrics : list
        Names, records or functions `(y, p) → number` of your own. The first ranks.
    against : str
        The method that the others are compared with; by default the uncalibrated model.
    unit : "both", "dataset", "network" or "run", optional
        What counts as independent, in intervals and tests: data sets and networks, one of the two, or every network on
        its data set. By default data sets and networks where there are five of each, otherwise that of which there are
        five, or "run". Seeds never count: their means are compared. `scope` of the result says what follows.
    title : str
        What the report calls the networks.
    level, seed
        The level of intervals and tests, and the seed of simulated outcomes.
    n_draws : int
        Simulated outcomes of calibrated models, for what errors that noise raises would be by chance.
    progress : callable, optional
        Called with (steps done, all steps, what comes next).

    Examples
    --------
    >>> import numpy as np
    >>> from refocal.io import Predictions
    >>> rng = np.random.default_rng(0)
    >>> def rows(scale):
    ...     logits = rng.normal(size=(300, 3))
    ...     labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    ...     return Predictions.from_logits(scale * logits, labels)
    >>> runs = [Run(rows(3.0), rows(3.0), network=f"net {i}", seed=s) for i in range(6) for s in (1, 2)]
    >>> comparison = compare_many(runs, ["ts", "vs"])
    >>> best = comparison.table("log_loss")[0]
    >>> best.name, best.difference.high < 0.0, best.p_value < 0.1, comparison.unit
    ('ts', True, True, 'network')
    """
    check_level(level, "compare_many")
    check_integer(n_draws, "n_draws", "compare_many")
    if unit is not None:
        check_option(unit, UNITS, "unit", "compare_many")
    records = own_records(metrics, "compare_many")
    if not records:
        raise ParameterError("metrics", "compare_many", expected="at least one metric", got="none")
    report = progress or (lambda *_: None)
    measured = _Measurement(methods, records, n_draws, check_seed(seed, "compare_many"), against)
    every = _as_runs(runs)
    total = len(every) if isinstance(every, Sequence) else 0
    for i, run in enumerate(every):
        if not isinstance(run, Run):
            got = f"{type(runs).__name__} of {type(run).__name__}"
            raise ParameterError("runs", "compare_many", expected="a list of Run, or an iterator over them", got=got)
        report(i, max(total, i + 1), f"{run.dataset}, {run.network}, seed {run.seed}")
        measured.add(run)
    if not measured.runs:
        raise ParameterError("runs", "compare_many", expected="at least one run", got="none")
    names = [name for name in measured.names if name not in measured.failed]
    if len(names) == 1 and measured.failed:
        name, reason = next(iter(measured.failed.items()))
        raise ParameterError("methods", "compare_many", expected="methods that can be fitted", got=f"{name}: {reason}")
    if against in measured.failed:
        got = f"{against}: {measured.failed[against]}"
        raise ParameterError("against", "compare_many", expected="a method that can be fitted", got=got)
    comparison = ManyComparison(
        title=title,
        level=level,
        against=against,
        unit=unit or _default_unit(measured.runs),
        methods=names,
        titles={name: measured.titles[name] for name in names},
        metrics=[ComparedMetric.of(record) for record in records],
        runs=[_without(run, measured.failed) for run in measured.runs],
        failed=measured.failed,
        run=_described(),
    )
    for remark in remarks(comparison):
        warn(f"compare_many: {remark}", FitWarning)
    report(max(total, 1), max(total, 1), "done")
    return comparison


def _as_runs(runs: Any) -> Iterable[Run]:
    """Runs as they are, or read from where they are said to be."""
    if isinstance(runs, Run):
        return [runs]
    is_list = isinstance(runs, Iterable) and not isinstance(runs, (str, os.PathLike)) and not hasattr(runs, "columns")
    if not is_list:
        return read_runs(runs)
    given: Iterable[Run] = runs
    if not isinstance(runs, Sequence):  # each is made when its turn comes
        return given
    are_runs = [isinstance(run, Run) for run in runs]
    if all(are_runs):
        return given
    wrong = next((run for run in runs if not isinstance(run, (Run, str, os.PathLike, Mapping))), None)
    if any(are_runs) or wrong is not None:
        wrong = next(run for run in runs if not isinstance(run, Run))
        raise ParameterError("runs", "compare_many", expected="a list of Run", got=f"one with {type(wrong).__name__}")
    return read_runs(runs)


class _Measurement:
    """The metrics of methods on the runs so far."""

    def __init__(self, methods: MethodsLike, records: list[Metric], n_draws: int, seed: int, against: str) -> None:
        self.methods = methods
        self.records = records
        self.n_draws = n_draws
        self.seed = seed
        self.against = against
        self.calibrators: dict[str, Calibrator] = {}
        self.titles: dict[str, str] = {}
        self.runs: list[RunScores] = []
        self.failed: dict[str, str] = {}
        self.first_with: dict[bytes, RunScores] = {}
        """The first run with test rows of this digest."""

    @property
    def names(self) -> list[str]:
        """All methods, the model as it is first."""
        return [NONE, *self.calibrators]

    def add(self, run: Run) -> None:
        """Fit and measure every method that has not failed before on one more run."""
        if not isinstance(run, Run):
            raise ParameterError("runs", "compare_many", expected="runs of the class Run", got=type(run).__name__)
        self._check_repetition(run)
        n_classes = run.test.n_classes
        self._check_classes(run, n_classes)
        values: dict[str, dict[str, float]] = {record.name: {} for record in self.records}
        chance: dict[str, dict[str, float]] = {record.name: {} for record in self.records if record.raised_by_noise}
        floating = as_floating(run.validation.values, "validation", "compare_many")[0]
        rows = replace(run.validation, values=floating)
        dataset = TemperatureScaling(input=rows.input).dataset(rows)
        for name in self.names:
            if name in self.failed:
                continue
            try:
                fitted = None
                if name != NONE:
                    unfitted = with_input(clone(self.calibrators[name]), rows.input, "compare_many")
                    fitted = unfitted.fit(rows if unfitted.needs_groups else dataset)
                    self.titles.setdefault(name, title_of(name, fitted))
                predicted = Predicted.by(log_proba(run.test, _in_order(fitted, run.test)), run.test)
                for record in self.records:
                    of_metric = predicted.of(record)
                    values[record.name][name] = _finite(record, of_metric)
                    if record.raised_by_noise:
                        chance[record.name][name] = by_chance(record, of_metric, self.n_draws, self.seed)
            except Exception as error:
                if name == NONE:
                    raise
                text = " ".join(str(error).split())
                reason = text if isinstance(error, RefocalError) else f"{type(error).__name__}: {text}"
                self.failed[name] = f"{run.dataset}, {run.network}, seed {run.seed}: {reason}"
        sizes = (len(run.validation), len(run.test), n_classes)
        is_fitted_on_test = are_same_rows(run.validation, run.test)
        scores = RunScores(*run.key, str(run.seed), *sizes, values, chance, is_fitted_on_test)
        first = self.first_with.setdefault(_digest(run.test), scores)
        if (first.dataset, first.network) != run.key:
            scores = replace(scores, test_rows_of=first.title)
        self.runs.append(scores)

    def _check_repetition(self, run: Run) -> None:
        """Runs of one network on one data set must have different seeds: two names may have been meant."""
        key = (*run.key, str(run.seed))
        if key in [(other.dataset, other.network, other.seed) for other in self.runs]:
            expected = "runs that differ in data set, network or seed"
            raise ParameterError("runs", "compare_many", expected=expected, got=f"two of {', '.join(key)}")

    def _check_classes(self, run: Run, n_classes: int) -> None:
        """Methods and metrics for these rows; those by default are others for two classes than for more."""
        if not self.runs:
            self.titles = {NONE: title_of(NONE)}
            self.calibrators = chosen_calibrators(self.methods, n_classes)
            check_option(self.against, tuple(self.names), "against", "compare_many")
        elif self.methods is None and (n_classes == 2) != (self.runs[0].n_classes == 2):
            expected = "named, where some runs are of two classes and others of more"
            raise ParameterError("methods", "compare_many", expected=expected, got="None")
        for record in self.records:
            is_defined = not (record.two_classes if n_classes > 2 else record.many_classes)
            if not is_defined:
                got = f"{record.name} of {run.dataset}, {run.network}, which is of {n_classes} classes"
                raise ParameterError("metrics", "compare_many", expected="defined for all runs", got=got)


def _digest(rows: Predictions) -> bytes:
    """What rows are known by: the same for the same scores and labels."""
    digest = blake2b(np.ascontiguousarray(rows.labels).tobytes())
    for block in row_blocks(rows.values.shape[0], math.prod(rows.values.shape[1:]), entries=1 << 20):
        digest.update(np.ascontiguousarray(to_numpy(rows.values[block])).tobytes())
    return digest.digest()


def _in_order(fitted: Calibrator | None, rows: Predictions) -> Calibrator | InOrder | None:
    """The calibrator for rows whose columns may be in another order than those of the fit."""
    if fitted is None:
        return None
    order = order_for(fitted, rows, "compare_many")
    check_labels(fitted, rows, "compare_many")
    return fitted if order is None else InOrder(fitted, order)


def _finite(record: Metric, rows: Predictions) -> float:
    """A metric of some rows, which must be a finite number."""
    value = float(record.measure(rows))
    if not math.isfinite(value):
        raise DataError("test", "compare_many", expected=f"such that the {record.label} is finite", got=repr(value))
    return value


def by_chance(record: Metric, rows: Predictions, n_draws: int, seed: int) -> float:
    """The mean of a metric over outcomes that are drawn with the predicted probabilities, as of a calibrated model.

    >>> from refocal.metrics import METRICS
    >>> from refocal.metrics.inputs import read_probabilities
    >>> rows = read_probabilities([0, 1] * 50, [0.5] * 100, None, "example")
    >>> 0.02 < by_chance(METRICS["ece"], rows, n_draws=50, seed=0) < 0.06
    True
    """
    if record.of_confidence:
        rows = rows.reduced()
    rng = np.random.default_rng(seed)
    p = np.asarray(rows.values, dtype=np.float64)
    cumulative = None if rows.binary else np.cumsum(p, axis=1)
    simulated = []
    for _ in range(n_draws):
        uniform = rng.random(len(p))
        if cumulative is None:
            labels = (uniform < p).astype(np.int64)
        else:
            # Rows sum to 1 up to rounding: a number beyond the last sum is of the last class.
            below = (cumulative < uniform[:, None] * cumulative[:, -1:]).sum(axis=1)
            labels = np.minimum(below, p.shape[1] - 1)
        simulated.append(float(record.measure(replace(rows, labels=labels))))
    return float(np.mean(simulated))


def _without(run: RunScores, failed: dict[str, str]) -> RunScores:
    """The scores of a run without the methods that failed on another."""

    def kept(scores: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        return {
            metric: {method: value for method, value in of_metric.items() if method not in failed}
            for metric, of_metric in scores.items()
        }

    return replace(run, values=kept(run.values), by_chance=kept(run.by_chance))


def _default_unit(runs: list[RunScores]) -> str:
    """The unit that results are generalised over: data sets, networks or both, if there are enough of them; or runs."""
    has_datasets = len({run.dataset for run in runs}) >= FEWEST_CLUSTERS
    has_networks = len({run.network for run in runs}) >= FEWEST_CLUSTERS
    if has_datasets and has_networks:
        return "both"
    if has_datasets:
        return "dataset"
    return "network" if has_networks else "run"


def _described() -> dict[str, str]:
    """The versions of the run."""
    return {
        "refocal": refocal.__version__,
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "finished": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }
