"""Methods on many trained networks: data sets × networks × seeds, with tables, intervals and tests over all of them."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from refocal._arrays import Indices, Vector
from refocal._files import write_atomically
from refocal._json import build, read_json, to_json, without_format
from refocal._validation import check_option
from refocal.errors import FormatError
from refocal.evaluate.ranks import RankTests, SeedSpread, clustered_difference, clustered_rate, signed_rank, win_rates
from refocal.evaluate.statements import holm
from refocal.metrics import Interval, PairedDifference
from refocal.metrics.record import Metric
from refocal.metrics.records import METRICS, unknown_function

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ComparedMetric", "ManyComparison", "MethodOverRuns", "RunScores", "load_many"]

FORMAT = "refocal-many"
VERSION = 1
UNITS = ("both", "dataset", "network", "run")
"""What an interval over networks takes for independent; see `ManyComparison.scope`."""


@dataclass(frozen=True)
class ComparedMetric:
    """A metric of a comparison, without its function, so that a file of results has all of it.

    >>> ComparedMetric.of(METRICS["ece"]).record.heading
    'ECE %'
    """

    name: str
    label: str
    unit: str = ""
    lower_is_better: bool = True
    signed: bool = False
    target: float | None = None
    raised_by_noise: bool = False
    """Whether it is too high by chance: `RunScores.by_chance` then has what a calibrated model would show."""

    @classmethod
    def of(cls, metric: Metric) -> ComparedMetric:
        """What a record says."""
        names = ("name", "label", "unit", "lower_is_better", "signed", "target", "raised_by_noise")
        return cls(**{name: getattr(metric, name) for name in names})

    @property
    def record(self) -> Metric:
        """The record; of a metric that is not known here one without its function."""
        known = METRICS.get(self.name)
        if known is not None and ComparedMetric.of(known) == self:
            return known
        return Metric.of_function(unknown_function, **asdict(self))

    def cost(self, values: Any) -> Any:
        """What is lower for better values: of a metric that is best at a target, the distance from there."""
        return self.record.cost(values)

    def shown(self, costs: Vector) -> Vector:
        """Costs with the sign of the metric: of an accuracy, higher is better again."""
        return costs if self.is_cost else -costs

    @property
    def is_cost(self) -> bool:
        """Whether `cost` keeps the sign."""
        return self.record.is_cost


@dataclass(frozen=True)
class RunScores:
    """The metrics of every method on one network, trained once: by metric, then by method.

    `by_chance` has what a calibrated model with the same probabilities would show, of metrics that noise raises.

    >>> RunScores("CIFAR-10", "ResNet-50", "1", 5000, 10000, 10, {"ece": {"ts": 0.02}}).values["ece"]["ts"]
    0.02
    """

    dataset: str
    network: str
    seed: str
    n_validation: int
    n_test: int
    n_classes: int
    values: dict[str, dict[str, float]]
    by_chance: dict[str, dict[str, float]] = field(default_factory=dict)
    is_fitted_on_test: bool = False
    """Whether the test rows are the validation rows, which flatters methods."""
    test_rows_of: str = ""
    """The first run of another data set or network that has the same test rows, and so is not independent of this."""

    @property
    def title(self) -> str:
        """What the run is called in a sentence."""
        return f"{self.dataset}, {self.network}, seed {self.seed}"


class MethodOverRuns(NamedTuple):
    """One method by one metric over all networks.

    >>> from refocal.evaluate import Run, compare_many
    >>> from refocal.io import load_sample
    >>> runs = [Run(*load_sample("cifar10-focal3"), network=name) for name in ("a", "b")]
    >>> row = compare_many(runs, ["ts"]).table("ece")[0]
    >>> row.name, row.win_rate.value, row.excess < row.mean.mean
    ('ts', 1.0, True)
    """

    name: str
    title: str
    mean: SeedSpread
    """The mean over networks of the means over seeds, and the standard deviation over the seeds of a network.

    The latter is the root of the mean variance; None where no network has several seeds.
    """
    rank: float
    win_rate: Interval
    difference: PairedDifference | None
    """From the method that others are compared with; None of that method itself, and of a single network."""
    p_value: float | None
    """Of Wilcoxon's signed-rank test against that method, adjusted by Holm for all methods of the table."""
    excess: float | None
    """The mean less that of chance, of metrics that noise raises."""


class NetworkScores(NamedTuple):
    """One network on one data set: each method's mean and standard deviation over seeds."""

    dataset: str
    network: str
    n_seeds: int
    methods: dict[str, SeedSpread]


@dataclass(frozen=True)
class ManyComparison:
    """Methods on many networks: the metrics of each run, from which tables, tests and figures are made.

    >>> from refocal.evaluate import Run, compare_many
    >>> from refocal.io import load_sample
    >>> runs = [Run(*load_sample("cifar10-focal3"), network=name) for name in ("a", "b")]
    >>> comparison = compare_many(runs, ["ts"], metrics=["log_loss"])
    >>> comparison.methods, len(comparison.runs), comparison.unit
    (['none', 'ts'], 2, 'run')
    >>> ManyComparison.from_dict(comparison.to_dict()) == comparison
    True
    """

    title: str
    level: float
    against: str
    unit: str
    methods: list[str]
    titles: dict[str, str]
    metrics: list[ComparedMetric]
    runs: list[RunScores]
    failed: dict[str, str]
    """The methods that failed on a run, which are left out of all of them, and why."""
    run: dict[str, str]

    def metric(self, name: str | None = None) -> ComparedMetric:
        """A metric of the comparison, by default the first."""
        if name is None:
            return self.metrics[0]
        check_option(name, tuple(metric.name for metric in self.metrics), "metric", "ManyComparison")
        return next(metric for metric in self.metrics if metric.name == name)

    @cached_property
    def networks(self) -> list[tuple[str, str]]:
        """The networks, each on its data set, in the order of the runs."""
        return list(dict.fromkeys((run.dataset, run.network) for run in self.runs))

    @property
    def n_datasets(self) -> int:
        """How many data sets there are."""
        return len({dataset for dataset, _ in self.networks})

    @property
    def scope(self) -> str:
        """What the intervals and tests are about, in a sentence."""
        names = len({network for _, network in self.networks})
        n_units = {"dataset": self.n_datasets, "network": names, "run": len(self.networks)}
        n_units["both"] = min(self.n_datasets, names)
        if n_units[self.unit] == 1:
            unit = "data set" if self.n_datasets == 1 and self.unit in ("both", "dataset") else "network"
            return f"One {unit} says nothing of others: no difference can be told from chance."
        said = {
            "both": f"other data sets and other networks: the {self.n_datasets} data sets and the {names} networks "
            "count as draws, in intervals both ways",
            "dataset": f"other data sets: the {self.n_datasets} data sets count as independent, whatever the number of "
            "networks on each",
            "network": f"other networks on these data sets: the {names} networks count as independent, those of one "
            "name as one",
            "run": f"more networks such as these on these data sets: the {len(self.networks)} networks count as "
            "independent",
        }
        return f"Intervals and tests are about {said[self.unit]}."

    def by_network(self, metric: str | None = None) -> list[NetworkScores]:
        """Every network, with the mean and the standard deviation over its seeds of each method."""
        name = self.metric(metric).name
        runs_of: dict[tuple[str, str], list[RunScores]] = {key: [] for key in self.networks}
        for run in self.runs:
            runs_of[run.dataset, run.network].append(run)
        rows = []
        for (dataset, network), runs in runs_of.items():
            spreads = {method: SeedSpread.of([run.values[name][method] for run in runs]) for method in self.methods}
            rows.append(NetworkScores(dataset, network, len(runs), spreads))
        return rows

    def costs(self, metric: str | None = None) -> dict[str, Vector]:
        """For each method the metric of each network, a mean over seeds, such that lower is better.

        Of a metric that is best at 0 or at a target it is the mean of each run's distance from there, so that runs that
        are too high and too low do not cancel.
        """
        compared = self.metric(metric)
        place = {network: i for i, network in enumerate(self.networks)}
        network_of = np.array([place[run.dataset, run.network] for run in self.runs])
        n_seeds = np.bincount(network_of)
        costs = {}
        for method in self.methods:
            of_runs = compared.cost(np.array([run.values[compared.name][method] for run in self.runs]))
            costs[method] = np.bincount(network_of, of_runs) / n_seeds
        return costs

    def in_blocks(self, metric: str | None = None) -> dict[str, Vector]:
        """The same for what tests take for independent: means over the networks of each block."""
        clusters = self._test_blocks()
        sizes = np.bincount(clusters)
        return {method: np.bincount(clusters, costs) / sizes for method, costs in self.costs(metric).items()}

    def tests(self, metric: str | None = None) -> RankTests:
        """Friedman's test of all methods, their mean ranks and Nemenyi's critical difference.

        >>> from refocal.evaluate import Run, compare_many
        >>> from refocal.io import load_sample
        >>> runs = [Run(*load_sample("cifar10-focal3"), network=name) for name in "abcd"]
        >>> sorted(compare_many(runs, ["ts", "fts-nll"]).tests("log_loss").ranks)
        ['fts-nll', 'none', 'ts']
        """
        return RankTests.of(self.in_blocks(metric), self.level)

    def table(self, metric: str | None = None) -> list[MethodOverRuns]:
        """Every method by one metric, that of the lowest mean rank first.

        >>> from refocal.evaluate import Run, compare_many
        >>> from refocal.io import load_sample
        >>> runs = [Run(*load_sample("cifar10-focal3"), network=name) for name in ("a", "b")]
        >>> [row.name for row in compare_many(runs, ["ts"]).table("ece")]
        ['ts', 'none']
        """
        compared = self.metric(metric)
        networks = self.by_network(compared.name)
        costs = self.costs(compared.name)
        blocks = self.in_blocks(compared.name)
        ranks = RankTests.of(blocks, self.level).ranks
        rates = win_rates(costs) if len(self.methods) > 1 else {method: np.ones(len(networks)) for method in costs}
        others = [method for method in self.methods if method != self.against]
        p_values = holm({method: signed_rank(blocks[method] - blocks[self.against]) for method in others})
        clusterings = self._clusterings()
        rows = []
        for method in self.methods:
            means = np.array([row.methods[method].mean for row in networks])
            deviations = [row.methods[method].sd for row in networks]
            variances = [sd**2 for sd in deviations if sd is not None]
            difference = None
            if method != self.against and len(networks) > 1:
                difference = clustered_difference(
                    compared.shown(costs[method]), compared.shown(costs[self.against]), clusterings, self.level
                )
            rows.append(
                MethodOverRuns(
                    method,
                    self.titles[method],
                    SeedSpread(float(means.mean()), math.sqrt(np.mean(variances)) if variances else None),
                    ranks[method],
                    clustered_rate(rates[method], clusterings, self.level),
                    difference,
                    p_values.get(method) if len(networks) > 1 else None,
                    self._excess(compared, method),
                )
            )
        return sorted(rows, key=lambda row: (row.rank, -row.win_rate.value))

    def _excess(self, metric: ComparedMetric, method: str) -> float | None:
        """The mean over networks of a metric less that of chance."""
        if not metric.raised_by_noise:
            return None
        excesses: dict[tuple[str, str], list[float]] = {}
        for run in self.runs:
            excess = run.values[metric.name][method] - run.by_chance[metric.name][method]
            excesses.setdefault((run.dataset, run.network), []).append(excess)
        return float(np.mean([np.mean(of_network) for of_network in excesses.values()]))

    def _codes(self, place: int) -> Indices:
        """The number of each network's data set, place 0, or of its name, place 1."""
        return np.unique([key[place] for key in self.networks], return_inverse=True)[1]

    def _clusterings(self) -> list[Indices]:
        """What of the networks is independent, in the ways that `unit` says."""
        by = {"both": (0, 1), "dataset": (0,), "network": (1,), "run": ()}
        return [self._codes(place) for place in by[self.unit]]

    def _test_blocks(self) -> Indices:
        """The block of each network for tests, which know one way alone: of two that of fewer clusters."""
        clusterings = self._clusterings()
        return min(clusterings, key=lambda codes: int(codes.max()), default=np.arange(len(self.networks)))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Any) -> ManyComparison:
        """The comparison that `to_dict` described."""
        made = build(cls, without_format(data, "a comparison of many networks", FORMAT, VERSION), "comparison")
        _check_whole(made)
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write as JSON, whole or not at all; `load_many` reads it."""
        write_atomically(path, to_json(self.to_dict()) + "\n")

    def to_latex(self, metrics: Sequence[str] | None = None, *, networks: bool = False) -> str:
        r"""A table for LaTeX with booktabs: the methods by their metrics, or with `networks` each network by the first.

        Means ± standard deviations over seeds; the best is bold, and † marks methods that differ significantly from
        the one they are compared with.

        >>> from refocal.evaluate import Run, compare_many
        >>> from refocal.io import load_sample
        >>> runs = [Run(*load_sample("cifar10-focal3"), network=name) for name in ("a", "b")]
        >>> compare_many(runs, ["ts"]).to_latex(["log_loss"]).splitlines()[0]
        '\\begin{tabular}{lrrr}'
        """
        from refocal.evaluate.many_tables import latex_of_methods, latex_of_networks

        return latex_of_networks(self, metrics) if networks else latex_of_methods(self, metrics)

    def to_markdown(self, metric: str | None = None) -> str:
        """The table of methods by one metric, in Markdown.

        >>> from refocal.evaluate import Run, compare_many
        >>> from refocal.io import load_sample
        >>> runs = [Run(*load_sample("cifar10-focal3"), network=name) for name in ("a", "b")]
        >>> compare_many(runs, ["ts"]).to_markdown("ece").splitlines()[2].split(" | ")[0]
        '| ts'
        """
        from refocal.evaluate.many_tables import markdown_of_methods

        return markdown_of_methods(self, metric)

    def plot(self, metric: str | None = None) -> Figure:
        """The differences from the method compared with, and the mean ranks, as a figure of matplotlib.

        `figure.savefig("methods.pdf")` and ".svg" write it for a paper.

        >>> import matplotlib; matplotlib.use("agg")
        >>> from refocal.evaluate import Run, compare_many
        >>> from refocal.io import load_sample
        >>> runs = [Run(*load_sample("cifar10-focal3"), network=name) for name in "abc"]
        >>> [ax.get_xlabel() for ax in compare_many(runs, ["ts", "fts-nll"]).plot("log_loss").axes]
        ['log-loss less that of none', 'mean rank']
        """
        from refocal.report.figures import plot_many

        return plot_many(self, metric)

    def __repr__(self) -> str:
        return f"ManyComparison({len(self.methods)} methods, {len(self.networks)} networks, {len(self.runs)} runs)"


def _check_whole(comparison: ManyComparison) -> None:
    """Refuse a comparison that no call can have made: with fewer numbers than its tables need."""
    if not comparison.runs or not comparison.metrics or not comparison.methods:
        raise FormatError("a comparison must have runs, metrics and methods.")
    if comparison.unit not in UNITS or not 0.0 < comparison.level < 1.0:
        raise FormatError(f"'unit' must be one of {', '.join(UNITS)}, and 'level' lie between 0 and 1.")
    if comparison.against not in comparison.methods or not {*comparison.methods} <= comparison.titles.keys():
        raise FormatError(f"the methods must hold {comparison.against!r}, and each have a title.")
    for run in comparison.runs:
        for metric in comparison.metrics:
            needed = [run.values] + ([run.by_chance] if metric.raised_by_noise else [])
            if not all({*comparison.methods} <= scores.get(metric.name, {}).keys() for scores in needed):
                raise FormatError(f"every run must have the {metric.name!r} of every method.")


def load_many(path: str | os.PathLike[str]) -> ManyComparison:
    """Read a comparison of many networks from a JSON file.

    >>> import tempfile
    >>> from refocal.evaluate import Run, compare_many
    >>> from refocal.io import load_sample
    >>> comparison = compare_many([Run(*load_sample("cifar10-focal3"))], ["ts"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     comparison.save(f"{folder}/many.json")
    ...     load_many(f"{folder}/many.json") == comparison
    True
    """
    return read_json(path, ManyComparison.from_dict, what="a comparison of many networks", max_bytes=256 << 20)
