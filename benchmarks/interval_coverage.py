"""How often do 95 % intervals cover the truth? Writes benchmarks/results/interval_coverage.md.

python benchmarks/interval_coverage.py --folder FOLDER --seconds 600   some settings; call again to go on
python benchmarks/interval_coverage.py --folder FOLDER --write         the page, from what is there

Every interval that the package prints, and those of `bootstrap_interval`, on models whose truth is known:

- two classes: η ~ N(0, 1.5²), P(y = 1) = sigmoid(η), p = sigmoid(a η); ten classes: z ~ N(0, 2²) for each class,
  P(y = k) = softmax(z)_k, p = softmax(a z). a = 1 is calibrated, 1.2 slightly off, 2 and 3 are overconfident;
- plain rows; weighted ones, where rows of class 1 (of the first five classes) were kept with probability 0.3 and weigh
  1 / 0.3, times a factor exp(N(0, 0.5²)) for every row; clustered ones, where a cluster has a twentieth of 200, a
  fiftieth of 1,000 or a hundredth of 10,000 rows, whose scores and outcomes go together (Gaussian copulas of
  correlations 0.5 and 0.2): the model is as calibrated as without clusters.

Truths are those of a million rows. The error of a calibration measure is that of its 15 bins, as the population has
them. Curves count each point; a simultaneous band counts as one interval.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_softmax, ndtr, softmax

import refocal.metrics as rm
from refocal.decide import automation_curve, evaluate_decisions, net_benefit_curve
from refocal.metrics.bins import bins_of
from refocal.metrics.bootstrap import MetricRows, summarise
from refocal.metrics.inputs import read_log_probabilities, read_probabilities
from refocal.metrics.squared import SquaredSummary

PAGE = Path(__file__).parent / "results" / "interval_coverage.md"
POPULATION = 1_000_000
DRAWS = 200
DRAWS_OF_CLASSES = 1_000
SLOPES = {"calibrated": 1.0, "slightly off": 1.2, "overconfident, a = 2": 2.0, "overconfident, a = 3": 3.0}
SIZES = (200, 1_000, 10_000)
SCHEMES = ("plain", "weighted", "clustered")
N_CLUSTERS = {200: 20, 1_000: 50, 10_000: 100}
KEPT = 0.3
THRESHOLDS = (0.2, 0.5, 0.8)
COSTS = {2: [[0.0, 1.0], [4.0, 0.0]], 10: (1.0 - np.eye(10)).tolist()}
ABSTAIN = 0.3
SHARES = (0.5, 0.9)

Ends = dict[str, list[tuple[float, float, float]]]
"""For each interval its low end, its high end and the truth, one for each point."""


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
    """The true values by the names of intervals, and the outcome as a function of the confidence and of the cost."""

    values: dict[str, float]
    outcome: Cumulative
    error: Cumulative


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
    order = np.argsort(confidence)
    values["ks_calibration_error"] = np.abs(np.cumsum((confidence - outcome)[order])).max() / len(p)
    values["mean_bias"] = confidence.mean() - outcome.mean()
    values["accuracy"] = right.mean()
    values["log_loss"] = -(q * rows.model).sum(axis=1).mean()
    brier = np.square(p).sum(axis=1) - 2.0 * (p * q).sum(axis=1) + 1.0
    values["brier_score"] = brier.mean() / (2.0 if n_classes == 2 else 1.0)
    others = softmax(0.8 * rows.model, axis=1)
    of_others = np.square(others).sum(axis=1) - 2.0 * (others * q).sum(axis=1) + 1.0
    values["brier_score, difference"] = (brier - of_others).mean() / (2.0 if n_classes == 2 else 1.0)
    second = others[:, 1] if n_classes == 2 else others.max(axis=1)
    values["squared_ece, difference"] = np.square(gap).mean() - np.square(binned_gaps(second, outcome)).mean()
    sets = p >= 0.1
    values["set coverage"] = (sets * q).sum(axis=1).mean()
    if n_classes == 2:
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
    return Truth(
        {k: float(v) for k, v in values.items()}, Cumulative.of(confidence, outcome), Cumulative.of(lowest, wrong)
    )


def intervals(setting: Setting, sample: Sample) -> Iterator[tuple[str, float, float]]:
    """The name and the ends of every interval whose truth is one number."""
    weight, clusters = sample.weight, sample.clusters
    p = np.exp(sample.model)
    logs = read_log_probabilities(sample.labels, sample.model, weight, "benchmark", clusters=clusters)
    rows = read_probabilities(sample.labels, p, weight, "benchmark", clusters=clusters)
    is_two = setting.n_classes == 2
    names = ["log_loss", "brier_score", "accuracy", "ece", "squared_ece"]
    if setting.n_rows == 1_000:  # which no report prints
        names += ["debiased_ece", "max_calibration_error", "ks_calibration_error"]
    if is_two:
        names += ["mean_bias", "log_loss_skill", "brier_skill", "roc_auc", "average_precision"]
    records = [rm.METRICS[name] for name in names]
    measured = [MetricRows.of(record, logs if record.takes_logs else rows) for record in records]
    for name, summary in zip(names, summarise(measured, DRAWS, 0), strict=True):
        interval = summary.interval()
        yield name, interval.low, interval.high
    if not is_two:
        interval = rm.mean_bias_interval(rows)
        yield "mean_bias", interval.low, interval.high
        if setting.scheme != "clustered":
            # No report prints it, so that it has the draws of `bootstrap_interval`, whose ends are less rough.
            of_classes = [MetricRows.of(rm.METRICS["classwise_ece"], rows)]
            interval = summarise(of_classes, DRAWS_OF_CLASSES, 0)[0].interval()
            yield "classwise_ece", interval.low, interval.high
        if setting.scheme != "clustered" and setting.n_rows >= 1000:  # refused with fewer than 5 rows a bin
            top_label = [MetricRows.of(rm.METRICS["ece"], rows, kind="top_label")]
            interval = summarise(top_label, DRAWS, 0, kind="top_label")[0].interval()
            yield "ece, top label", interval.low, interval.high
    others = read_probabilities(
        sample.labels, softmax(0.8 * sample.model, axis=1), weight, "benchmark", clusters=clusters
    )
    brier = [MetricRows.of(rm.METRICS["brier_score"], each).mean() for each in (rows, others)]
    difference = brier[0].minus(brier[1])
    yield "brier_score, difference", difference.low, difference.high
    squared = SquaredSummary.of(rows).minus(SquaredSummary.of(others))
    yield "squared_ece, difference", squared.low, squared.high
    given = {"sample_weight": weight, "clusters": clusters}
    coverage = rm.set_coverage(sample.labels, p >= 0.1, **given).coverage
    yield "set coverage", coverage.low, coverage.high
    if is_two:
        curve = net_benefit_curve(sample.labels, p, thresholds=THRESHOLDS, **given)
        for i, t in enumerate(THRESHOLDS):
            yield f"net benefit, t = {t:g}", curve.low[i], curve.high[i]
    report = evaluate_decisions(sample.labels, p, COSTS[setting.n_classes], abstain=ABSTAIN, **given)
    yield "decisions: cost", report.cost.low, report.cost.high
    yield "decisions: automated", report.automated.low, report.automated.high
    if report.error is not None:
        yield "decisions: error", report.error.low, report.error.high


def curves(setting: Setting, sample: Sample, truth: Truth) -> Ends:
    """The curves and bands, whose truths depend on the bins of the sample."""
    p = np.exp(sample.model)
    given = {"sample_weight": sample.weight, "clusters": sample.clusters}
    rows = read_probabilities(sample.labels, p, sample.weight, "benchmark")
    bins = bins_of(rows, n_bins=15)
    confidence = np.sort(rows.confidence()[0])
    last = np.cumsum(bins.count)[:-1]
    edges = [-1.0, *((confidence[last - 1] + confidence[last]) / 2.0), 2.0]
    rates = [truth.outcome.mean(low, high) for low, high in pairwise(edges)]
    ends: Ends = {}
    for name, simultaneous in (("reliability_band", False), ("reliability_band, all bins", True)):
        band = rm.reliability_band(sample.labels, p, simultaneous=simultaneous, **given)
        points = list(zip(band.low, band.high, rates, strict=True))
        if simultaneous:
            is_inside = all(low <= rate <= high for low, high, rate in points)
            points = [(0.0, 1.0, 0.5 if is_inside else 2.0)]
        ends[name] = points
    if setting.model == "calibrated":
        band = rm.reliability_band(sample.labels, p, simultaneous=True, kind="consistency", **given)
        points = zip(band.low, band.high, band.accuracy, strict=True)
        is_inside = all(low <= accuracy <= high for low, high, accuracy in points)
        ends["consistency band, all bins"] = [(0.0, 1.0, 0.5 if is_inside else 2.0)]
    curve = automation_curve(sample.labels, p, COSTS[setting.n_classes], n_points=10, **given)
    for share in SHARES:
        i = int(np.argmin(np.abs(curve.share - share)))
        true = truth.error.mean(-1.0, float(curve.highest_expected_cost[i]) + 1e-9)
        ends[f"automation curve, {share:.0%}"] = [(float(curve.error_low[i]), float(curve.error_high[i]), true)]
    return ends


def run(setting: Setting, seed: int) -> dict[str, list[int]]:
    """For each interval how many points of a run are covered, and how many there are."""
    truth = truth_of(setting.n_classes, setting.model)
    sample = draw(setting, seed)
    ends: Ends = {name: [(low, high, truth.values[name])] for name, low, high in intervals(setting, sample)}
    ends |= curves(setting, sample, truth)
    rounding = 1e-9  # a true error of 0 is the end of an interval that begins there
    return {
        name: [sum(bool(low <= true + rounding and true - rounding <= high) for low, high, true in points), len(points)]
        for name, points in ends.items()
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


def keep(path: Path, counts: dict[str, Any]) -> None:
    """Write the counts of a setting, whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(counts))
    part.replace(path)


def go_on(folder: Path, seconds: float, n_runs: int, only: Callable[[Setting], bool]) -> None:
    """Run settings that are not finished until the time is over; every setting keeps its counts in a file."""
    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds
    for setting in filter(only, settings()):
        path = folder / f"{setting.name}.json"
        counts: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"runs": 0, "covered": {}}
        while counts["runs"] < n_runs and time.monotonic() < end:
            for name, (covered, points) in run(setting, counts["runs"]).items():
                before = counts["covered"].get(name, [0, 0])
                counts["covered"][name] = [before[0] + covered, before[1] + points]
            counts["runs"] += 1
            if counts["runs"] % 20 == 0 or counts["runs"] == n_runs:
                keep(path, counts)
        keep(path, counts)
        if time.monotonic() > end:
            return


def page(folder: Path, least: int) -> str:
    """The tables, one for each number of classes and way of sampling, of settings with so many runs at least."""
    found = {}
    for setting in settings():
        path = folder / f"{setting.name}.json"
        counts = json.loads(path.read_text()) if path.exists() else {"runs": 0}
        if counts["runs"] >= least:
            found[setting] = counts
    n_missing = len(settings()) - len(found)
    lines = [
        "# How often 95 % intervals cover",
        "",
        f"`python benchmarks/interval_coverage.py`, which says what models and rows are: at least {least} runs a cell,",
        f"in %. One standard deviation of a cell is {100 * math.sqrt(0.95 * 0.05 / least):.1f} points, of curves less;",
        "cells of one N have their draws in common.",
        f"Cells below {LEAST} are in bold and explained [below](#what-is-out-of-scope).",
    ]
    if n_missing:
        lines.append(f"{len(found)} of {len(settings())} settings were run so far; the others are left out.")
    for n_classes in (2, 10):
        for scheme in SCHEMES:
            chosen = [s for s in found if s.n_classes == n_classes and s.scheme == scheme]
            if not chosen:
                continue
            names = list(dict.fromkeys(name for s in chosen for name in found[s]["covered"]))
            lines += ["", f"## {'Two' if n_classes == 2 else 'Ten'} classes, {scheme} rows", ""]
            heads = [f"{SLOPES[s.model]:g}, {s.n_rows:,}" for s in chosen]
            lines += ["| a, N | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
            for name in names:
                cells = [_cell(found[s]["covered"].get(name), least) for s in chosen]
                if set(cells) == {"–"}:
                    continue
                lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


LEAST = 92.0
"""Coverage in % below which a cell must be named in the docs."""


def _cell(counted: list[int] | None, least: int) -> str:
    if counted is None or counted[1] < least:
        return "–"
    share = 100.0 * counted[0] / counted[1]
    return f"**{share:.1f}**" if share < LEAST else f"{share:.1f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--rows", type=int, nargs="*", default=SIZES)
    parser.add_argument("--classes", type=int, nargs="*", default=(2, 10))
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
            only=lambda setting: setting.n_rows in options.rows and setting.n_classes in options.classes,
        )
