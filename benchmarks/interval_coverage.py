"""How often do 95 % intervals cover the truth? Writes benchmarks/results/interval_coverage.md.

python benchmarks/interval_coverage.py --folder FOLDER --seconds 600   some settings; call again to go on
python benchmarks/interval_coverage.py --folder FOLDER --parts groups  one part of them, as after a change of its code
python benchmarks/interval_coverage.py --folder FOLDER --write         the page, from what is there

Every interval that the package prints, and those of `bootstrap_interval`, on models whose truth is known:

- two classes: η ~ N(0, 1.5²), P(y = 1) = sigmoid(η), p = sigmoid(a η); ten classes: z ~ N(0, 2²) for each class,
  P(y = k) = softmax(z)_k, p = softmax(a z). a = 1 is calibrated, 1.2 slightly off, 2 and 3 are overconfident;
- plain rows; weighted ones, where rows of class 1 (of the first five classes) were kept with probability 0.3 and weigh
  1 / 0.3, times a factor exp(N(0, 0.5²)) for every row; clustered ones, where a cluster has a twentieth of 200, a
  fiftieth of 1,000 or a hundredth of 10,000 rows, whose scores and outcomes go together (Gaussian copulas of
  correlations 0.5 and 0.2): the model is as calibrated as without clusters;
- four groups that mean nothing, of 40, 30, 20 and 10 % of the rows.

Truths are those of a million rows. The error of a calibration measure is that of its 15 bins, as the population has
them. Curves count each point; a simultaneous band, and all intervals of a table of groups, count as one interval.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, log_softmax, logit, ndtr, softmax

import refocal.metrics as rm
from refocal.decide import automation_curve, evaluate_decisions, net_benefit_curve, predictive_values
from refocal.evaluate._details import group_bias, groups_of
from refocal.metrics.bins import bins_of
from refocal.metrics.bootstrap import MetricRows, summarise
from refocal.metrics.calibration_curve import curve_of_rows
from refocal.metrics.inputs import read_log_probabilities, read_probabilities
from refocal.metrics.smooth import smooth_error
from refocal.metrics.squared import SquaredSummary
from refocal.rows import Predictions

PAGE = Path(__file__).parent / "results" / "interval_coverage.md"
POPULATION = 1_000_000
DRAWS = 200
DRAWS_OF_DEFAULT = 1_000  # those of `bootstrap_interval`
SLOPES = {"calibrated": 1.0, "slightly off": 1.2, "overconfident, a = 2": 2.0, "overconfident, a = 3": 3.0}
SIZES = (200, 1_000, 10_000)
SCHEMES = ("plain", "weighted", "clustered")
N_CLUSTERS = {200: 20, 1_000: 50, 10_000: 100}
KEPT = 0.3
THRESHOLDS = (0.2, 0.5, 0.8)
COSTS = {2: [[0.0, 1.0], [4.0, 0.0]], 10: (1.0 - np.eye(10)).tolist()}
ABSTAIN = 0.3
SHARES = (0.5, 0.9)
LEVEL = 0.95
RISK = 0.15
PREVALENCE = 0.05
GROUP_SHARES = (0.4, 0.3, 0.2, 0.1)
RATES = ("selection_rate", "false_positive_rate", "false_negative_rate", "ppv")
CURVE_POINTS = (0.1, 0.5, 0.9)  # the ranks of the probabilities at which the flexible curve is asked


class Setting(NamedTuple):
    """A model, a number of rows and how they were sampled."""

    n_classes: int
    model: str
    n_rows: int
    scheme: str

    @property
    def name(self) -> str:
        """The name of the file of this setting."""
        return f"{self.n_classes}-{SLOPES[self.model]:g}-{self.n_rows}-{self.scheme}"


class Sample(NamedTuple):
    """Rows: true log-probabilities (rows, classes), those of the model, labels, weights and clusters."""

    truth: Any
    model: Any
    labels: Any
    weight: Any = None
    clusters: Any = None


def scores(generator: np.random.Generator, n_rows: int, n_classes: int, place: Any) -> Any:
    """Logits (rows, classes); rows of one place among the clusters have a part in common."""
    shape = (n_rows, 1 if n_classes == 2 else n_classes)
    normal = generator.standard_normal(shape)
    if place is not None:
        common = generator.standard_normal((int(place.max()) + 1, shape[1]))
        normal = math.sqrt(0.5) * common[place] + math.sqrt(0.5) * normal
    if n_classes == 2:
        return np.hstack([np.zeros((n_rows, 1)), 1.5 * normal])
    return 2.0 * normal


def outcomes(generator: np.random.Generator, p: Any, place: Any) -> Any:
    """Labels of the probabilities p; those of rows of one cluster go together."""
    normal = generator.standard_normal(len(p))
    if place is not None:
        common = generator.standard_normal(int(place.max()) + 1)
        normal = math.sqrt(0.2) * common[place] + math.sqrt(0.8) * normal
    return np.minimum((ndtr(normal)[:, None] > np.cumsum(p, axis=1)).sum(axis=1), p.shape[1] - 1)


def draw(setting: Setting, seed: int) -> Sample:
    """A sample of a setting."""
    generator = np.random.default_rng([seed, setting.n_rows, setting.n_classes])
    n_rows = setting.n_rows
    n_drawn = 3 * n_rows if setting.scheme == "weighted" else n_rows
    place = np.repeat(np.arange(N_CLUSTERS[n_rows]), n_rows // N_CLUSTERS[n_rows])
    place = place if setting.scheme == "clustered" else None
    logits = scores(generator, n_drawn, setting.n_classes, place)
    truth = log_softmax(logits, axis=1)
    labels = outcomes(generator, np.exp(truth), place)
    model = log_softmax(SLOPES[setting.model] * logits, axis=1)
    if setting.scheme != "weighted":
        return Sample(truth, model, labels, None, place)
    is_sampled = labels == 1 if setting.n_classes == 2 else labels < 5
    is_kept = (generator.random(n_drawn) < KEPT) | ~is_sampled
    weight = np.where(is_sampled, 1.0 / KEPT, 1.0) * np.exp(0.5 * generator.standard_normal(n_drawn))
    some = np.flatnonzero(is_kept)[:n_rows]
    return Sample(truth[some], model[some], labels[some], weight[some])


@cache
def population(n_classes: int, model: str) -> Sample:
    """Many rows, whose outcomes count as their probabilities."""
    generator = np.random.default_rng(1)
    n_rows = POPULATION if n_classes == 2 else POPULATION // 2
    logits = scores(generator, n_rows, n_classes, None)
    return Sample(log_softmax(logits, axis=1), log_softmax(SLOPES[model] * logits, axis=1), None)


def binned_gaps(p: Any, q: Any, n_bins: int = 15) -> Any:
    """Mean p less mean q of bins of equal mass."""
    order = np.argsort(p)
    parts = np.array_split(order, n_bins)
    return np.array([p[part].mean() - q[part].mean() for part in parts])


class Cumulative(NamedTuple):
    """Sums of q over the rows up to each p, for the truth of any range of p."""

    p: Any
    below: Any

    @classmethod
    def of(cls, p: Any, q: Any) -> Cumulative:
        """The sums of some rows."""
        order = np.argsort(p)
        return cls(p[order], np.concatenate([[0.0], np.cumsum(q[order])]))

    def mean(self, low: float, high: float) -> float:
        """The mean of q over low ≤ p < high."""
        first, last = np.searchsorted(self.p, [low, high])
        return float((self.below[last] - self.below[first]) / max(last - first, 1))


class Truth(NamedTuple):
    """The true values by the names of intervals, and what happens as a function of the confidence and of the cost."""

    values: dict[str, float]
    outcome: Cumulative
    error: Cumulative
    """The share of wrong decisions by their expected cost."""
    risk: Cumulative
    """The share of wrong top classes by their probability."""
    points: Any
    """The probabilities at which the flexible curve is asked."""


@cache
def truth_of(n_classes: int, model: str) -> Truth:
    rows = population(n_classes, model)
    p, q = np.exp(rows.model), np.exp(rows.truth)
    values: dict[str, float] = {}
    top = p.argmax(axis=1)
    right = np.take_along_axis(q, top[:, None], axis=1)[:, 0]
    confidence, outcome = (p[:, 1], q[:, 1]) if n_classes == 2 else (p.max(axis=1), right)
    gap = binned_gaps(confidence, outcome)
    values["ece"] = np.abs(gap).mean()
    values["debiased_ece"] = math.sqrt(np.square(gap).mean())
    values["squared_ece"] = np.square(gap).mean()
    values["max_calibration_error"] = np.abs(gap).max()
    values["smooth_ece"] = smooth_error(confidence, outcome, None)
    order = np.argsort(confidence)
    values["ks_calibration_error"] = np.abs(np.cumsum((confidence - outcome)[order])).max() / len(p)
    values["mean_bias"] = confidence.mean() - outcome.mean()
    values["accuracy"] = right.mean()
    values["log_loss"] = -(q * rows.model).sum(axis=1).mean()
    brier = np.square(p).sum(axis=1) - 2.0 * (p * q).sum(axis=1) + 1.0
    values["brier_score"] = brier.mean() / (2.0 if n_classes == 2 else 1.0)
    others = softmax(0.8 * rows.model, axis=1)
    log_others = log_softmax(0.8 * rows.model, axis=1)
    values["log_loss, difference"] = (q * (log_others - rows.model)).sum(axis=1).mean()
    of_others = np.square(others).sum(axis=1) - 2.0 * (others * q).sum(axis=1) + 1.0
    values["brier_score, difference"] = (brier - of_others).mean() / (2.0 if n_classes == 2 else 1.0)
    second = others[:, 1] if n_classes == 2 else others.max(axis=1)
    values["squared_ece, difference"] = np.square(gap).mean() - np.square(binned_gaps(second, outcome)).mean()
    sets = p >= 0.1
    values["set coverage"] = (sets * q).sum(axis=1).mean()
    values |= selective_truths(p.max(axis=1), 1.0 - right)
    if n_classes == 2:
        # By symmetry the mean is right, and the true log-odds are those of the model over a.
        values["observed_expected"] = 1.0
        values["calibration_intercept"] = 0.0
        values["calibration_slope"] = 1.0 / SLOPES[model]
        values["ici"] = np.abs(confidence - outcome).mean()
        rate = outcome.mean()
        entropy = -rate * math.log(rate) - (1 - rate) * math.log1p(-rate)
        values["log_loss_skill"] = 1.0 - values["log_loss"] / entropy
        values["brier_skill"] = 1.0 - values["brier_score"] / (rate * (1 - rate))
        falling = np.argsort(-p[:, 1])
        ones, zeros = outcome[falling], 1.0 - outcome[falling]
        values["roc_auc"] = 1.0 - (ones * (np.cumsum(zeros) - zeros / 2)).sum() / ones.sum() / zeros.sum()
        values["average_precision"] = (ones * np.cumsum(ones) / np.arange(1, len(p) + 1)).sum() / ones.sum()
        for t in THRESHOLDS:
            acted = p[:, 1] >= t
            values[f"net benefit, t = {t:g}"] = (acted * (outcome - t / (1 - t) * (1 - outcome))).mean()
        values |= predictive_truths(confidence >= 0.5, outcome)
    else:
        errors = [np.abs(binned_gaps(p[:, k], q[:, k])).mean() for k in range(n_classes)]
        values["classwise_ece"] = np.mean(errors)
        parts = [np.flatnonzero(top == k) for k in range(n_classes)]
        by_label = [np.abs(binned_gaps(confidence[part], right[part])).mean() * len(part) for part in parts]
        values["ece, top label"] = sum(by_label) / len(p)
    table = np.array(COSTS[n_classes])
    expected = p @ table
    action = expected.argmin(axis=1)
    cost = (q @ table)[np.arange(len(p)), action]
    lowest = expected.min(axis=1)
    decided = lowest <= ABSTAIN
    wrong = 1.0 - np.take_along_axis(q, action[:, None], axis=1)[:, 0]
    values["decisions: cost"] = np.where(decided, cost, ABSTAIN).mean()
    values["decisions: automated"] = decided.mean()
    values["decisions: error"] = wrong[decided].mean()
    if n_classes == 2:
        selected = decided & (action == 1)
        values["selection_rate"] = selected.mean()
        values["false_positive_rate"] = (selected * (1.0 - outcome)).mean() / (1.0 - outcome).mean()
        values["false_negative_rate"] = (decided * (action == 0) * outcome).mean() / outcome.mean()
        values["ppv"] = outcome[selected].mean()
    return Truth(
        values={k: float(v) for k, v in values.items()},
        outcome=Cumulative.of(confidence, outcome),
        error=Cumulative.of(lowest, wrong),
        risk=Cumulative.of(p.max(axis=1), 1.0 - right),
        points=np.quantile(confidence, CURVE_POINTS),
    )


def selective_truths(confidence: Any, error: Any) -> dict[str, float]:
    """AURC, E-AURC, AUGRC, and the largest coverage of at most the risk that is asked for."""
    falling = np.argsort(-confidence)
    coverage = np.arange(1, len(error) + 1) / len(error)
    generalised_risk = np.cumsum(error[falling]) / len(error)
    risk = generalised_risk / coverage
    rate = generalised_risk[-1]
    best = rate + (1.0 - rate) * math.log1p(-rate)
    # The first rows have a risk of their own rather than one of the curve.
    kept = np.flatnonzero((risk <= RISK) & (coverage > 1e-3))
    return {
        "aurc": risk.mean(),
        "e_aurc": risk.mean() - best,
        "augrc": generalised_risk.mean(),
        f"coverage at risk {RISK:.0%}": coverage[kept[-1]] if len(kept) else 0.0,
    }


def predictive_truths(acts: Any, outcome: Any) -> dict[str, float]:
    """Sensitivity, specificity and predictive values, here and at another prevalence."""
    sensitivity = (acts * outcome).sum() / outcome.sum()
    specificity = (~acts * (1.0 - outcome)).sum() / (1.0 - outcome).sum()
    positive = PREVALENCE * sensitivity
    false_positive = (1.0 - PREVALENCE) * (1.0 - specificity)
    negative = (1.0 - PREVALENCE) * specificity
    false_negative = PREVALENCE * (1.0 - sensitivity)
    return {
        "sensitivity": sensitivity,
        "specificity": specificity,
        "PPV": outcome[acts].mean(),
        "NPV": (1.0 - outcome[~acts]).mean(),
        f"PPV at a prevalence of {PREVALENCE:.0%}": positive / (positive + false_positive),
        f"NPV at a prevalence of {PREVALENCE:.0%}": negative / (negative + false_negative),
    }


Ends = Iterator[tuple[str, list[tuple[float, float, float]]]]
"""For each interval its low end, its high end and the truth, one for each point."""


class Case(NamedTuple):
    """A sample of a setting with its truth, and the rows as metrics read them."""

    setting: Setting
    seed: int
    sample: Sample
    truth: Truth

    @property
    def is_two(self) -> bool:
        """Whether there are two classes."""
        return self.setting.n_classes == 2

    @property
    def p(self) -> Any:
        """The probabilities of the model."""
        return np.exp(self.sample.model)

    @property
    def given(self) -> dict[str, Any]:
        """The weights and clusters, as arguments."""
        return {"sample_weight": self.sample.weight, "clusters": self.sample.clusters}

    def rows(self, model: Any = None) -> Predictions:
        """The rows with the log-probabilities of a model as probabilities."""
        p = self.p if model is None else np.exp(model)
        return read_probabilities(self.sample.labels, p, function="benchmark", **self.given)

    def logs(self, model: Any = None) -> Predictions:
        """The rows with log-probabilities."""
        log_p = self.sample.model if model is None else model
        return read_log_probabilities(self.sample.labels, log_p, function="benchmark", **self.given)

    def ends(self, name: str, interval: Any) -> tuple[str, list[tuple[float, float, float]]]:
        """An interval whose truth is one number."""
        return name, [(interval.low, interval.high, self.truth.values[name])]

    def summaries(self, names: list[str]) -> Ends:
        """The intervals of metrics."""
        logs = self.logs()
        rows = self.rows()
        records = [rm.METRICS[name] for name in names]
        measured = [MetricRows.of(record, logs if record.takes_logs else rows) for record in records]
        for name, summary in zip(names, summarise(measured, DRAWS, 0), strict=True):
            yield self.ends(name, summary.interval())


def measures(case: Case) -> Ends:
    """Losses, calibration errors and, of two classes, areas."""
    names = ["log_loss", "brier_score", "accuracy", "ece", "squared_ece"]
    if case.is_two:
        names += ["mean_bias", "log_loss_skill", "brier_skill", "roc_auc", "average_precision"]
    yield from case.summaries(names)
    if not case.is_two:
        yield case.ends("mean_bias", rm.mean_bias_interval(case.rows()))


def errors(case: Case) -> Ends:
    """The largest errors, whose intervals no report prints."""
    yield from case.summaries(["max_calibration_error", "ks_calibration_error"])


def debiased(case: Case) -> Ends:
    """The debiased ECE with the draws of `bootstrap_interval`: those of reports, which do not print it, are too few."""
    measured = [MetricRows.of(rm.METRICS["debiased_ece"], case.rows())]
    yield case.ends("debiased_ece", summarise(measured, DRAWS_OF_DEFAULT, 0)[0].interval())


def smooth(case: Case) -> Ends:
    """The smooth ECE, which takes longer than the other errors together."""
    yield from case.summaries(["smooth_ece"])


def by_class(case: Case) -> Ends:
    """The errors of classes, which are for independent rows."""
    if case.is_two or case.setting.scheme == "clustered":
        return
    rows = case.rows()
    # No report prints it, so that it has the draws of `bootstrap_interval`, whose ends are less rough.
    of_classes = [MetricRows.of(rm.METRICS["classwise_ece"], rows)]
    yield case.ends("classwise_ece", summarise(of_classes, DRAWS_OF_DEFAULT, 0)[0].interval())
    if case.setting.n_rows >= 1000:  # refused with fewer than 5 rows a bin
        top_label = [MetricRows.of(rm.METRICS["ece"], rows, kind="top_label")]
        yield case.ends("ece, top label", summarise(top_label, DRAWS, 0, kind="top_label")[0].interval())


def differences(case: Case) -> Ends:
    """The model less one whose scores are 0.8 times as large."""
    model = log_softmax(0.8 * case.sample.model, axis=1)
    rows = case.rows()
    others = case.rows(model)
    pairs = {"log_loss": (case.logs(), case.logs(model)), "brier_score": (rows, others)}
    for name, (first, second) in pairs.items():
        record = rm.METRICS[name]
        difference = MetricRows.of(record, first).mean().minus(MetricRows.of(record, second).mean())
        yield case.ends(f"{name}, difference", difference)
    yield case.ends("squared_ece, difference", SquaredSummary.of(rows).minus(SquaredSummary.of(others)))


def standards(case: Case) -> Ends:
    """O/E, intercept, slope, ICI and the flexible curve."""
    if not case.is_two:
        return
    yield from case.summaries(["observed_expected", "calibration_intercept", "calibration_slope", "ici"])
    curve = curve_of_rows(case.rows(), LEVEL)
    if curve is not None:
        points = case.truth.points
        low = np.interp(points, curve.probability, curve.low)
        high = np.interp(points, curve.probability, curve.high)
        rates = expit(logit(points) / SLOPES[case.setting.model])
        yield "flexible curve", list(zip(low, high, rates, strict=True))


def selective(case: Case) -> Ends:
    """The areas under the risk over the coverage, and points of that curve."""
    yield from case.summaries(["aurc", "e_aurc", "augrc"])
    labels = case.sample.labels
    for share in SHARES:
        at_share = rm.risk_at_coverage(labels, case.p, coverage=share, **case.given)
        true = case.truth.risk.mean(at_share.threshold - 1e-12, 2.0)
        yield f"risk at coverage {share:.0%}", [(at_share.risk.low, at_share.risk.high, true)]
    yield case.ends(f"coverage at risk {RISK:.0%}", rm.coverage_at_risk(labels, case.p, risk=RISK, **case.given))


def decisions(case: Case) -> Ends:
    """Sets, net benefit, costs and the curve of automation."""
    labels = case.sample.labels
    costs = COSTS[case.setting.n_classes]
    yield case.ends("set coverage", rm.set_coverage(labels, case.p >= 0.1, **case.given).coverage)
    if case.is_two:
        benefit = net_benefit_curve(labels, case.p, thresholds=THRESHOLDS, **case.given)
        for i, t in enumerate(THRESHOLDS):
            name = f"net benefit, t = {t:g}"
            yield name, [(benefit.low[i], benefit.high[i], case.truth.values[name])]
    report = evaluate_decisions(labels, case.p, costs, abstain=ABSTAIN, **case.given)
    yield case.ends("decisions: cost", report.cost)
    yield case.ends("decisions: automated", report.automated)
    if report.error is not None:
        yield case.ends("decisions: error", report.error)
    curve = automation_curve(labels, case.p, costs, n_points=10, **case.given)
    for share in SHARES:
        i = int(np.argmin(np.abs(curve.share - share)))
        true = case.truth.error.mean(-1.0, float(curve.highest_expected_cost[i]) + 1e-9)
        yield f"automation curve, {share:.0%}", [(float(curve.error_low[i]), float(curve.error_high[i]), true)]


def predictive(case: Case) -> Ends:
    """Sensitivity, specificity and predictive values, here and at another prevalence."""
    if not case.is_two:
        return
    here = predictive_values(case.sample.labels, case.p, threshold=0.5, **case.given)
    yield case.ends("sensitivity", here.sensitivity)
    yield case.ends("specificity", here.specificity)
    yield case.ends("PPV", here.ppv)
    yield case.ends("NPV", here.npv)
    elsewhere = predictive_values(case.sample.labels, case.p, threshold=0.5, prevalence=PREVALENCE, **case.given)
    yield case.ends(f"PPV at a prevalence of {PREVALENCE:.0%}", elsewhere.ppv)
    yield case.ends(f"NPV at a prevalence of {PREVALENCE:.0%}", elsewhere.npv)


def bands(case: Case) -> Ends:
    """The bands of reliability, whose truths depend on the bins of the sample."""
    labels = case.sample.labels
    rows = read_probabilities(labels, case.p, case.sample.weight, "benchmark")
    bins = bins_of(rows, n_bins=15)
    confidence = np.sort(rows.confidence()[0])
    last = np.cumsum(bins.count)[:-1]
    edges = [-1.0, *((confidence[last - 1] + confidence[last]) / 2.0), 2.0]
    rates = [case.truth.outcome.mean(low, high) for low, high in pairwise(edges)]
    band = rm.reliability_band(labels, case.p, **case.given)
    yield "reliability_band", list(zip(band.low, band.high, rates, strict=True))
    band = rm.reliability_band(labels, case.p, simultaneous=True, **case.given)
    yield "reliability_band, all bins", as_one(list(zip(band.low, band.high, rates, strict=True)))
    if case.setting.model == "calibrated":
        band = rm.reliability_band(labels, case.p, simultaneous=True, kind="consistency", **case.given)
        yield "consistency band, all bins", as_one(list(zip(band.low, band.high, band.accuracy, strict=True)))


def groups(case: Case) -> Ends:
    """The tables of groups: means against rates, and decisions."""
    place = np.random.default_rng([case.seed, 1]).choice(len(GROUP_SHARES), len(case.p), p=GROUP_SHARES)
    columns = {"region": np.array([f"region {i}" for i in range(len(GROUP_SHARES))])[place]}
    level_of_one = LEVEL ** (1.0 / len(GROUP_SHARES))
    biases = [group_bias(group, level_of_one) for group in groups_of(case.rows(), columns)]
    true_bias = case.truth.values["mean_bias"]
    yield "groups: means, all", as_one([(bias.low, bias.high, true_bias) for bias in biases])
    costs = COSTS[case.setting.n_classes]
    report = evaluate_decisions(case.sample.labels, case.p, costs, abstain=ABSTAIN, groups=columns, **case.given)
    values = case.truth.values
    true = {"cost": values["decisions: cost"], "automated": values["decisions: automated"]}
    if case.is_two:
        true |= {name: values[name] for name in RATES}
    intervals = [(getattr(group, name), value) for group in report.groups for name, value in true.items()]
    ends = [(interval.low, interval.high, value) for interval, value in intervals if interval is not None]
    yield "groups: decisions, all", as_one(ends)


def as_one(points: list[tuple[float, float, float]]) -> list[tuple[float, float, float]]:
    """Intervals that are to hold together: one that covers if all do."""
    do_all_cover = all(low <= true <= high for low, high, true in points)
    return [(0.0, 1.0, 0.5 if do_all_cover else 2.0)]


PARTS: dict[str, Callable[[Case], Ends]] = {
    "measures": measures,
    "errors": errors,
    "debiased": debiased,
    "smooth": smooth,
    "by_class": by_class,
    "differences": differences,
    "standards": standards,
    "selective": selective,
    "decisions": decisions,
    "predictive": predictive,
    "bands": bands,
    "groups": groups,
}
"""What is counted on its own, so that a part whose code has changed can be counted again."""
OF_ORDER = ("selective", "predictive")
"""Parts that depend on the order of the probabilities alone, which is the same for all a of two classes."""


def run(setting: Setting, part: str, seed: int) -> dict[str, list[int]]:
    """For each interval of a part how many points of a run are covered, and how many there are."""
    case = Case(setting, seed, draw(setting, seed), truth_of(setting.n_classes, setting.model))
    rounding = 1e-9  # a true error of 0 is the end of an interval that begins there
    return {
        name: [sum(bool(low <= true + rounding and true - rounding <= high) for low, high, true in points), len(points)]
        for name, points in PARTS[part](case)
    }


def settings() -> list[Setting]:
    """All settings, those of few rows first."""
    return [
        Setting(n_classes, model, n_rows, scheme)
        for n_rows in SIZES
        for scheme in SCHEMES
        for n_classes in (2, 10)
        for model in SLOPES
    ]


def path_of(folder: Path, setting: Setting, part: str) -> Path:
    """The file of the counts of a part."""
    if setting.n_classes == 2 and part in OF_ORDER:
        setting = setting._replace(model="calibrated")
    return folder / f"{setting.name}-{part}.json"


def keep(path: Path, counts: dict[str, Any]) -> None:
    """Write the counts of a setting, whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(counts))
    part.replace(path)


def go_on(
    folder: Path, seconds: float, n_runs: int, first: int, parts: list[str], only: Callable[[Setting], bool]
) -> None:
    """Run settings that are not finished until the time is over; every part of a setting keeps its counts in a file."""
    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds
    for setting, part in product(filter(only, settings()), parts):
        path = path_of(folder, setting, part)
        counts: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"runs": 0, "covered": {}}
        while counts["runs"] < n_runs and time.monotonic() < end:
            for name, (covered, points) in run(setting, part, first + counts["runs"]).items():
                before = counts["covered"].get(name, [0, 0])
                counts["covered"][name] = [before[0] + covered, before[1] + points]
            counts["runs"] += 1
            if counts["runs"] % 20 == 0 or counts["runs"] == n_runs:
                keep(path, counts)
            if not counts["covered"]:  # a part that this setting does not have
                break
        if time.monotonic() > end:
            return


RUNS_OF_SMOOTH = 100
"""The least runs of the smooth ECE of two classes and 10,000 rows, which takes the longest."""


def counts_of(folder: Path, setting: Setting, least: int) -> dict[str, list[int]]:
    """What was counted of a setting, of the parts with so many runs at least."""
    covered: dict[str, list[int]] = {}
    for part in PARTS:
        path = path_of(folder, setting, part)
        counts = json.loads(path.read_text()) if path.exists() else {"runs": 0}
        is_slow = part == "smooth" and setting.n_rows == max(SIZES) and setting.n_classes == 2
        if counts["runs"] >= (RUNS_OF_SMOOTH if is_slow else least):
            covered |= counts["covered"]
    return covered


def page(folder: Path, least: int) -> str:
    """The tables, one for each number of classes and way of sampling, of parts with so many runs at least."""
    lines = [
        "# How often 95 % intervals cover",
        "",
        f"`python benchmarks/interval_coverage.py`, which says what models and rows are: at least {least} runs a cell,",
        f"in %. One standard deviation of a cell is {100 * math.sqrt(0.95 * 0.05 / least):.1f} points, of curves less;",
        f"cells of one N have their draws in common. The smooth ECE of two classes, N = 10,000, has {RUNS_OF_SMOOTH}.",
        f"Cells below {LEAST} are in bold and explained [below](#what-is-out-of-scope).",
    ]
    for n_classes in (2, 10):
        for scheme in SCHEMES:
            chosen = [s for s in settings() if s.n_classes == n_classes and s.scheme == scheme]
            covered = {setting: counts_of(folder, setting, least) for setting in chosen}
            names = list(dict.fromkeys(name for setting in chosen for name in covered[setting]))
            lines += ["", f"## {'Two' if n_classes == 2 else 'Ten'} classes, {scheme} rows", ""]
            heads = [f"{SLOPES[s.model]:g}, {s.n_rows:,}" for s in chosen]
            lines += ["| a, N | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
            for name in names:
                cells = [_cell(covered[setting].get(name)) for setting in chosen]
                if set(cells) != {"–"}:
                    lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


LEAST = 92.0
"""Coverage in % below which a cell must be named in the docs."""


def _cell(counted: list[int] | None) -> str:
    if counted is None:
        return "–"
    share = 100.0 * counted[0] / counted[1]
    return f"**{share:.1f}**" if share < LEAST else f"{share:.1f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first run, for other draws")
    parser.add_argument("--rows", type=int, nargs="*", default=SIZES)
    parser.add_argument("--classes", type=int, nargs="*", default=(2, 10))
    parser.add_argument("--schemes", nargs="*", default=SCHEMES)
    parser.add_argument("--slopes", type=float, nargs="*", default=tuple(SLOPES.values()))
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.write:
        own_words = PAGE.read_text() if PAGE.exists() else ""
        _, mark, remarks = own_words.partition("\n## What is out of scope")
        PAGE.write_text(page(options.folder, options.runs) + (mark + remarks if mark else ""))
    else:
        go_on(
            folder=options.folder,
            seconds=options.seconds,
            n_runs=options.runs,
            first=options.first,
            parts=options.parts,
            only=lambda setting: (
                setting.n_rows in options.rows
                and setting.n_classes in options.classes
                and setting.scheme in options.schemes
                and SLOPES[setting.model] in options.slopes
            ),
        )
