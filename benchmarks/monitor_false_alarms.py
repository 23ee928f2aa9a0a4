"""False alarms of the monitor where rows share a day, labels are late, events rare, classes or groups many; its delay.

python benchmarks/monitor_false_alarms.py                writes benchmarks/results/monitor_false_alarms.md
python benchmarks/monitor_false_alarms.py --runs 100     fewer runs
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, logit

from refocal.metrics.intervals import share_interval
from refocal.monitor import CalibrationMonitor
from refocal.monitor.evidence import BatchTest
from refocal.monitor.independent import Wealth, log_ratios
from refocal.monitor.period_sums import ScoreScale, log_odds_of, stream_sums
from refocal.rows.predictions import probability_rows

RESULTS = Path(__file__).parent / "results" / "monitor_false_alarms.md"
ALPHA = 0.05
DAYS = 200
ROWS = 100
Batch = tuple[Any, Any, Any]
"""Probabilities, labels, and groups or None."""


def two_classes(sd: float, a: float = 2.0, b: float = 3.0, shift: float = 0.0) -> Callable[[Any], Batch]:
    """Probabilities from Beta(a, b), and a day effect of this sd in the log-odds."""

    def draw(rng: Any) -> Batch:
        p = np.clip(rng.beta(a, b, ROWS), 1e-9, 1.0 - 1e-9)
        q = expit(logit(p) + sd * rng.normal())
        return p, rng.random(ROWS) < np.clip(q + shift, 0.0, 1.0), None

    return draw


def ten_classes(rng: Any) -> Batch:
    p = rng.dirichlet(np.ones(10), ROWS)
    return p, (p.cumsum(axis=1) > rng.random((ROWS, 1))).argmax(axis=1), None


def twenty_groups(rng: Any) -> Batch:
    p, y, _ = two_classes(0.2)(rng)
    return p, y, {"group": rng.integers(20, size=ROWS).astype(str)}


class Watched:
    """The two tests of the monitor, without what it keeps for people."""

    def __init__(self) -> None:
        self.batches = BatchTest()
        self.rows = Wealth()
        self.scale = ScoreScale()

    def add(self, p: Any, y: Any, groups: Any) -> None:
        """A batch."""
        rows = probability_rows(np.asarray(y, dtype=np.int64), p)
        if groups:
            rows = rows.with_groups(groups)
        confidence, happened = rows.confidence()
        self.scale = self.scale.after(log_odds_of(confidence))
        self.batches.add({name: (pair[0], pair[1]) for name, pair in stream_sums(rows, self.scale).items()})
        self.rows = self.rows.after(log_ratios(confidence, happened))


def same_as_the_monitor() -> None:
    """The loop above is what the monitor does."""
    rng = np.random.default_rng(0)
    for draw in (two_classes(0.2), ten_classes, twenty_groups):
        monitor, independent, watched = CalibrationMonitor(), CalibrationMonitor(independent=True), Watched()
        for _ in range(70):
            p, y, groups = draw(rng)
            monitor.update(p, y, groups=groups)
            independent.update(p, y)
            watched.add(p, y, groups)
        assert math.isclose(monitor.e_value, math.exp(watched.batches.log_e), rel_tol=1e-9)
        assert math.isclose(independent.e_value, math.exp(watched.rows.log_e), rel_tol=1e-9)


def late_labels(rng: Any, sd: float, in_order: bool, independent: bool) -> bool:
    """Whether an alarm is raised by the labels of a backlog of 30 days of 40 rows, which come in 60 parts."""
    p = rng.beta(2, 3, (30, 40))
    y = rng.random(p.shape) < expit(logit(p) + sd * rng.normal(size=(30, 1)))
    ids = np.arange(p.size).reshape(p.shape)
    monitor = CalibrationMonitor(independent=independent)
    for day in range(30):
        monitor.update(p[day], ids=ids[day], period=day)
    order = np.arange(p.size) if in_order else rng.permutation(p.size)
    for some in np.array_split(order, 60):
        monitor.add_labels(ids.ravel()[some], y.ravel()[some])
    return monitor.alarm is not None


def growing_days(rng: Any, sd: float) -> bool:
    """Whether an alarm is raised in 60 days that come in six parts each, looked at after every part."""
    monitor = CalibrationMonitor()
    for day in range(60):
        p = rng.beta(2, 3, 96)
        y = rng.random(96) < expit(logit(p) + sd * rng.normal())
        for some in np.array_split(np.arange(96), 6):
            monitor.update(p[some], y[some], period=day)
    return monitor.alarm is not None


def shown(alarms: list[bool]) -> str:
    found = share_interval(float(np.mean(alarms)), len(alarms), 0.95)
    return f"{100 * found.value:.1f} % ({100 * found.low:.1f} – {100 * found.high:.1f})"


def false_alarms(runs: int) -> list[str]:
    lines = [
        f"| {DAYS} batches of {ROWS} rows | whole batches (default) | independent rows |",
        "|---|---|---|",
    ]
    cases: dict[str, Callable[[Any], Batch]] = {
        "independent rows": two_classes(0.0),
        "day effect, sd .1": two_classes(0.1),
        "day effect, sd .2": two_classes(0.2),
        "day effect, sd .4": two_classes(0.4),
        "rare events, 1 %": two_classes(0.0, 0.5, 49.5),
        "rare events, 1 %, day effect .2": two_classes(0.2, 0.5, 49.5),
        "ten classes": ten_classes,
        "twenty groups, day effect .2": twenty_groups,
    }
    for name, draw in cases.items():
        rng = np.random.default_rng(1)
        found = []
        for _ in range(runs):
            watched = Watched()
            alarms = [False, False]
            for _ in range(DAYS):
                watched.add(*draw(rng))
                alarms[0] = alarms[0] or watched.batches.log_e >= -math.log(ALPHA)
                alarms[1] = alarms[1] or watched.rows.log_e >= -math.log(ALPHA)
            found.append(alarms)
        lines.append(f"| {name} | {shown([each[0] for each in found])} | {shown([each[1] for each in found])} |")
        print(lines[-1], flush=True)
    return lines


def late_row(runs: int, sd: float, in_order: bool) -> str:
    """False alarms of both tests where labels come late."""
    both = []
    for independent in (False, True):
        rng = np.random.default_rng(2)
        both.append(shown([late_labels(rng, sd, in_order, independent) for _ in range(runs)]))
    order = "in order" if in_order else "in random order"
    line = f"| late labels {order}, day effect {sd:g} (30 days of 40) | {both[0]} | {both[1]} |"
    print(line, flush=True)
    return line


LATE_HEADER = ["| labels come late, or days grow | whole batches (default) | independent rows |", "|---|---|---|"]


def late_in_order(runs: int) -> list[str]:
    """Labels in the order of their rows."""
    return [late_row(runs, 0.0, in_order=True), late_row(runs, 0.2, in_order=True)]


def late_at_random(runs: int) -> list[str]:
    """The hardest: a day effect, and labels in random order."""
    return [late_row(runs, 0.2, in_order=False)]


def late_at_random_without_effect(runs: int) -> list[str]:
    """Labels in random order, days that do not differ."""
    return [late_row(runs, 0.0, in_order=False)]


def days_that_grow(runs: int) -> list[str]:
    """Days that come in parts."""
    rng = np.random.default_rng(3)
    growing = shown([growing_days(rng, 0.4) for _ in range(runs)])
    line = f"| 60 days that grow in six parts, day effect .4 | {growing} | |"
    print(line, flush=True)
    return [line]


def late_false_alarms(runs: int) -> list[str]:
    lines = [*LATE_HEADER, *late_in_order(runs), *late_at_random_without_effect(runs), *late_at_random(runs)]
    return [*lines, *days_that_grow(runs)]


def threshold_of(rng: Any, sd: float, runs: int, measure: Callable[[Any, Any], float]) -> float:
    """What the largest value of a measure within all batches exceeds in 5 % of calibrated runs."""
    largest = []
    for _ in range(runs):
        largest.append(max(measure(*two_classes(sd)(rng)[:2]) for _ in range(DAYS)))
    return float(np.quantile(largest, 1.0 - ALPHA))


def bias_of(p: Any, y: Any) -> float:
    return abs(float(np.sum(y - p))) / math.sqrt(float(np.sum(p * (1.0 - p))))


def ece_of(p: Any, y: Any) -> float:
    index = np.minimum((10 * p).astype(int), 9)
    return float(np.abs(np.bincount(index, p - y, 10)).sum()) / len(p)


def delays(runs: int) -> list[str]:
    lines = [
        "| day effect | shift | change after | whole batches | independent rows | threshold: bias | ECE |",
        "|---|---|---|---|---|---|---|",
    ]
    for sd in (0.0, 0.2, 0.4):
        rng = np.random.default_rng(4)
        thresholds = [(measure, threshold_of(rng, sd, max(200, runs), measure)) for measure in (bias_of, ece_of)]
        for shift in (0.02, 0.05, 0.1):
            for change in (0, 60):
                rng = np.random.default_rng(5)
                found: list[list[float]] = [[], [], [], []]
                for _ in range(runs):
                    watched = Watched()
                    first = [math.inf] * 4
                    for day in range(1, change + DAYS + 1):
                        p, y, _ = two_classes(sd, shift=shift if day > change else 0.0)(rng)
                        watched.add(p, y, None)
                        now = [watched.batches.log_e >= -math.log(ALPHA), watched.rows.log_e >= -math.log(ALPHA)]
                        now += [measure(p, y) >= threshold for measure, threshold in thresholds]
                        first = [min(a, day) if is_alarm else a for a, is_alarm in zip(first, now, strict=True)]
                        if first[0] < math.inf and min(first[2:]) < math.inf:
                            break
                    for delay, alarm in zip(found, first, strict=True):
                        if alarm > change:  # others were false alarms
                            delay.append(alarm - change)
                cells = []
                for i, delay in enumerate(found):
                    if len(delay) < runs / 2:
                        cells.append("false alarms")
                        continue
                    middle = float(np.median(delay))
                    cells.append(f"{middle:.0f}" if middle < math.inf else f"over {DAYS}")
                    if i == 1 and sd > 0.0:
                        cells[-1] += " (not at this rate)"
                lines.append(f"| {sd:g} | +{shift:g} | {change} batches | {' | '.join(cells)} |")
                print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500, help="of calibrated models; a tenth of them for delays")
    parts = {
        "batches": false_alarms,
        "late": late_false_alarms,
        "late-in-order": late_in_order,
        "late-at-random": late_at_random,
        "late-at-random-without-effect": late_at_random_without_effect,
        "growing": days_that_grow,
        "delays": delays,
    }
    parser.add_argument("--part", choices=[*parts], help="only print this part, with as many runs")
    given = parser.parse_args()
    runs = given.runs
    if given.part:
        parts[given.part](runs)
        return
    same_as_the_monitor()
    two_errors = 200.0 * math.sqrt(ALPHA * (1.0 - ALPHA) / runs)
    said = [
        "# False alarms of the monitor where rows share a day, and its delay",
        "",
        f"`python benchmarks/monitor_false_alarms.py --runs {runs}`. `alpha={ALPHA:g}`: at most {100 * ALPHA:g} % of",
        f"{runs} calibrated runs may have an alarm; two standard errors are {two_errors:.1f} points.",
        "",
        *false_alarms(runs),
        "",
        *late_false_alarms(runs),
        "",
        f"Median delay in batches of {ROWS} rows, {max(20, runs // 10)} runs: from some batch on the event has",
        "probability p + shift. The thresholds are those of drift tools, an alarm as soon as one batch exceeds a",
        "limit: here on the standardised bias and on the ECE of a batch, with the limit that 5 % of calibrated runs of",
        f"{DAYS} batches of the same day effect exceed, which one would not know in practice.",
        "",
        *delays(max(20, runs // 10)),
    ]
    RESULTS.write_text("\n".join(said) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
