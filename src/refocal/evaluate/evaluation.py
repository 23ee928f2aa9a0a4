"""The results of an evaluation as plain values, which JSON files hold and reports are drawn from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from refocal._files import write_atomically
from refocal._json import build, read_json, to_json, without_format
from refocal.calibrators.registry import NONE
from refocal.errors import FormatError, MissingExtraError
from refocal.evaluate.statements import MethodTests, statement_levels
from refocal.metrics import Interval, PairedDifference, SetCoverage
from refocal.segments import FoundSegments

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "ClassDetail",
    "ClassRow",
    "DecisionTable",
    "Evaluation",
    "GroupErrors",
    "GroupRow",
    "Histogram",
    "MapFacts",
    "Measured",
    "Reliability",
    "SearchSurface",
    "SmoothCurve",
    "load_evaluation",
]

FORMAT = "refocal-evaluation"
VERSION = 1


@dataclass(frozen=True)
class Reliability:
    """Confidence and accuracy of each bin; `low` and `high` bound what calibrated predictions would show there.

    For two classes these are the probability of class 1 and how often it occurred.

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["fts-nll"], n_resamples=20)
    >>> curve = found.before.reliability
    >>> len(curve.count), sum(curve.count)
    (15, 10000)
    """

    count: list[int]
    confidence: list[float]
    accuracy: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class Histogram:
    """How many predictions fell between each two `edges` of confidence, right and wrong ones (weights, if given).

    For two classes it is the probability of class 1, and `right` are the rows where it occurred.

    >>> shown = Histogram(edges=[0.0, 0.5, 1.0], right=[1.0, 6.0], wrong=[2.0, 1.0])
    >>> shown.right[1] / (shown.right[1] + shown.wrong[1]) > 0.8
    True
    """

    edges: list[float]
    right: list[float]
    wrong: list[float]


@dataclass(frozen=True)
class ClassDetail:
    """How often a class occurs against its probability, in bins; its confusions; rows worth inspecting.

    `predicted_as` has (other class, rows) for rows of this class that were predicted as another one, and `taken_for_it`
    for rows of others that were predicted as this class, the most frequent first. `examples` are the numbers of the
    rows of this class that are predicted wrongly with most confidence, counted from 0.

    >>> ClassDetail([8, 2], [0.1, 0.9], [0.0, 1.0], [[3, 1]], [], [7]).predicted_as
    [[3, 1]]
    """

    count: list[int]
    probability: list[float]
    frequency: list[float]
    predicted_as: list[list[int]]
    taken_for_it: list[list[int]]
    examples: list[int]


@dataclass(frozen=True)
class ClassRow:
    """One class: how often it occurs and is predicted, how often rightly, how confidently, and its own ECE.

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["fts-nll"], n_resamples=20)
    >>> first = found.after.classes[0]
    >>> found.name_of(first.label), first.n, first.predicted
    ('airplane', 1000, 1038)
    """

    label: int
    n: int
    predicted: int
    precision: float | None
    confidence: float | None
    ece: float
    detail: ClassDetail | None = None
    """None where rows are read in blocks."""

    @property
    def gap(self) -> float | None:
        """Mean confidence less precision; None where the class is never predicted."""
        return None if self.confidence is None or self.precision is None else self.confidence - self.precision


@dataclass(frozen=True)
class GroupRow:
    """One group: its mean probability and rate, their difference with an interval, and its ECE next to that of chance.

    The intervals of all groups hold together. For more than two classes mean and rate are confidence and accuracy.
    `reliability` is there for the worst groups alone.

    >>> from refocal.io import Predictions
    >>> from refocal.evaluate import evaluate
    >>> rows = Predictions.from_probabilities([0.2, 0.4] * 50, [0, 0, 0, 1] * 25)
    >>> found = evaluate(rows, {}, groups={"region": ["north", "south"] * 50}, n_resamples=20).before.groups
    >>> [(row.column, row.name, row.n, row.rate) for row in found]
    [('region', 'north', 50, 0.0), ('region', 'south', 50, 0.5)]
    """

    column: str
    name: str
    n: int
    mean: float
    rate: float
    difference: Interval
    ece: float
    ece_by_chance: float
    reliability: Reliability | None = None


@dataclass(frozen=True)
class DecisionTable:
    """Decisions from a threshold on: rows of two classes with that p(class 1), otherwise with that confidence.

    Shares of all rows: `decided` are at or above the threshold, in `right` of them the event occurred, and `promised`
    is the expected number of these, the sum of their probabilities.

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["fts-nll"], n_resamples=20).before.decisions
    >>> at = found.threshold.index(0.9)
    >>> round(found.decided[at], 2), round(1 - found.right[at] / found.decided[at], 3)
    (0.75, 0.012)
    """

    threshold: list[float]
    decided: list[float]
    right: list[float]
    promised: list[float]


@dataclass(frozen=True)
class GroupErrors:
    """Acting on the rows of a group from a threshold on, of two classes; intervals hold for all groups together.

    Rates are None where no row of the group can say something about them.

    >>> from refocal.io import Predictions
    >>> from refocal.evaluate import evaluate
    >>> rows = Predictions.from_probabilities([0.2, 0.4] * 50, [0, 0, 1, 1] * 25)
    >>> found = evaluate(rows.with_groups({"region": ["north", "south"] * 50}), {}, n_resamples=20)
    >>> [(group.name, group.threshold, group.selected.value) for group in found.before.group_errors]
    [('north', 0.5, 0.0), ('south', 0.5, 0.0)]
    """

    column: str
    name: str
    n: int
    threshold: float
    selected: Interval
    """The share of rows that are acted on."""
    false_positive_rate: Interval | None
    false_negative_rate: Interval | None
    ppv: Interval | None
    """The share of the positive class among the rows that are acted on."""


@dataclass(frozen=True)
class SmoothCurve:
    """The flexible curve of two classes: how often the positive one occurs at a probability, with a band.

    >>> from refocal.io import Predictions
    >>> from refocal.evaluate import evaluate
    >>> rows = Predictions.from_probabilities([0.2, 0.4] * 50, [0, 0, 1, 1] * 25)
    >>> curve = evaluate(rows, {}, n_resamples=20).before.curve
    >>> round(curve.probability[-1], 2), round(curve.rate[-1], 2), curve.low[-1] < 0.4 < curve.high[-1]
    (0.4, 0.5, True)
    """

    probability: list[float]
    rate: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class MapFacts:
    """What a fitted map is made of: `kind` is "numbers" (γ and T alone), "shared" or "each class".

    A shared map treats all classes alike; one of the kind "each class" has numbers of its own for each of them.

    >>> MapFacts(kind="numbers", n_numbers=2, keeps_order=True).kind
    'numbers'
    """

    kind: str
    n_numbers: int
    keeps_order: bool


@dataclass(frozen=True)
class Measured:
    """One method on the test set. `calibrator` is None for the model itself; `values` have no interval.

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["fts-nll"], n_resamples=20)
    >>> fts = found["fts-nll"]
    >>> fts.title, round(fts.parameters["temperature"], 2), fts.measures["ece"].low < fts.measures["ece"].value
    ('focal temperature scaling by log-loss', 1.51, True)
    >>> fts.against_none["accuracy"].difference
    0.0
    """

    name: str
    title: str
    calibrator: dict[str, Any] | None
    measures: dict[str, Interval]
    values: dict[str, float]
    against_none: dict[str, PairedDifference]
    against_chosen: dict[str, PairedDifference]
    reliability: Reliability
    histogram: Histogram
    classes: list[ClassRow] | None
    fit_seconds: float | None
    predict_seconds: float
    map: MapFacts | None = None
    """None for the uncalibrated model, and in evaluations of version 0.1.0."""
    groups: list[GroupRow] = field(default_factory=list)
    """The worst first; only for the uncalibrated model and the method shown in detail."""
    decisions: DecisionTable | None = None
    """Only for the uncalibrated model and the method shown in detail."""
    stated_bias: Interval | None = None
    """Mean probability less rate, of two classes, at the level of means and diagrams (`refocal.evaluate.statements`).

    Only for the uncalibrated model and the method shown in detail; None in evaluations of version 0.1.0.
    """
    improvement_p_value: float | None = None
    """Of the test whether a step from the model towards this method lowers the log-loss, before Holm's adjustment.

    None for the uncalibrated model, and in evaluations of version 0.1.0.
    """
    curve: SmoothCurve | None = None
    """Of two classes, for the uncalibrated model and the method shown in detail; of rows in memory."""
    group_errors: list[GroupErrors] = field(default_factory=list)
    """Of two classes and at most 100 groups, for the uncalibrated model and the method shown in detail."""
    sets: SetCoverage | None = None
    """Of prediction sets, where they are shown in detail; of rows in memory."""

    @property
    def parameters(self) -> dict[str, float]:
        """The fitted numbers that stand alone, such as γ and the temperature."""
        return {} if self.calibrator is None else dict(self.calibrator["fitted"])

    @property
    def point(self) -> dict[str, float]:
        """γ and T, where these are all that the method has."""
        parameters = self.parameters
        is_point = set(parameters) <= {"gamma", "temperature"} if self.map is None else self.map.kind == "numbers"
        return parameters if is_point else {}


@dataclass(frozen=True)
class SearchSurface:
    """Log-loss and objective on the validation set over `gammas` × `temperatures`, and the point that was chosen.

    >>> loss = [[0.5, 0.6], [0.4, 0.5]]
    >>> surface = SearchSurface("fts", "nll", [0.0, 1.0], [1.0, 2.0], loss, loss, None, 1.0, 1.0)
    >>> surface.value[surface.gammas.index(surface.gamma)][surface.temperatures.index(surface.temperature)]
    0.4
    """

    method: str
    objective: str
    gammas: list[float]
    temperatures: list[float]
    log_loss: list[list[float]]
    value: list[list[float]]
    tolerance: float | None
    gamma: float
    temperature: float


@dataclass(frozen=True)
class Evaluation:
    """Every method measured on one test set; the first is the uncalibrated model, `chosen` the one shown in detail.

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["fts-nll"], n_resamples=20)
    >>> [method.name for method in found.methods], found.chosen
    (['none', 'fts-nll'], 'fts-nll')
    >>> Evaluation.from_dict(found.to_dict()) == found
    True
    """

    title: str
    n_validation: int | None
    n_test: int
    n_classes: int
    class_names: list[str] | None
    input: str
    level: float
    chosen: str
    recommended: bool
    methods: list[Measured]
    surface: SearchSurface | None
    run: dict[str, str]
    failed: dict[str, str] = field(default_factory=dict)
    """The methods that could not be fitted or applied, and why."""
    segments: FoundSegments | None = None
    """Where the method shown in detail is off, of two classes; None where rows had no features."""

    def __getitem__(self, name: str) -> Measured:
        for method in self.methods:
            if method.name == name:
                return method
        raise KeyError(name)

    @property
    def before(self) -> Measured:
        """The uncalibrated model."""
        return self[NONE]

    @property
    def after(self) -> Measured:
        """The chosen method."""
        return self[self.chosen]

    @property
    def positive(self) -> str | None:
        """The positive class of two, which the measures are about; None for more classes."""
        return self.name_of(1) if self.n_classes == 2 and "mean_bias" in self.before.measures else None

    @property
    def rate(self) -> float:
        """How often the positive class of two occurs among the test rows."""
        happened = sum(self.before.histogram.right)
        did_not = sum(self.before.histogram.wrong)
        return happened / (happened + did_not)

    def name_of(self, label: int) -> str:
        """The name of a class; its number where there is none."""
        return str(label) if self.class_names is None else self.class_names[label]

    @property
    def level_of_methods(self) -> float:
        """The level of all statements on methods together."""
        n_methods = len(self.methods) - 1
        return statement_levels(self.level, n_methods, len(self.before.groups), self.n_classes).methods

    def tests_of(self, methods: Sequence[Measured]) -> MethodTests:
        """The differences of some methods from the model as it is, tested together."""
        differences = {method.name: method.against_none for method in methods if method.name != NONE}
        return MethodTests.of(differences, self.n_classes, self.level_of_methods)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Any) -> Evaluation:
        """The evaluation that `to_dict` described."""
        made = build(cls, without_format(data, "an evaluation", FORMAT, VERSION), "evaluation")
        names = [method.name for method in made.methods]
        if NONE not in names or made.chosen not in names:
            raise FormatError(f"the methods must hold {NONE!r} and the chosen {made.chosen!r}.")
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write as JSON, whole or not at all; `load_evaluation` reads it."""
        write_atomically(path, to_json(self.to_dict()) + "\n")

    def __repr__(self) -> str:
        from refocal.evaluate.summary import verdict

        return f"Evaluation({len(self.methods)} methods, {self.n_test:,} rows: {verdict(self)})"

    def plot(self) -> Figure:
        """Reliability before and after, and a comparison of all methods, as a matplotlib figure.

        >>> import matplotlib; matplotlib.use("agg")
        >>> from refocal.io import load_sample
        >>> from refocal.evaluate import compare
        >>> found = compare(*load_sample("cifar10-focal3"), ["fts-nll"], n_resamples=20)
        >>> [ax.get_title() for ax in found.plot().axes]
        ['no calibration', 'focal temperature scaling by log-loss', 'every method']
        """
        from refocal.report.figures import plot_evaluation

        return plot_evaluation(self)

    def _repr_html_(self) -> str | None:
        from refocal.report.page import notebook_view

        try:
            return notebook_view(self)
        except MissingExtraError:  # notebooks then show the text of __repr__
            return None


def load_evaluation(path: str | os.PathLike[str]) -> Evaluation:
    """Read an evaluation from a JSON file; invalid contents are refused with a reason.

    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["fts-nll"], n_resamples=20)
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found.save(f"{folder}/evaluation.json")
    ...     load_evaluation(f"{folder}/evaluation.json") == found
    True
    """
    return read_json(path, Evaluation.from_dict, what="an evaluation", max_bytes=256 << 20)
