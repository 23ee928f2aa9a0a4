"""Charts that set methods beside each other: values with intervals, differences and ranks over networks."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from statistics import median

from refocal._svg import Axes, Color, Line, Plot, Point, Text
from refocal.evaluate import Evaluation, ManyComparison, Measured
from refocal.evaluate.many_tables import difference_text, ends_text
from refocal.evaluate.summary import ranked
from refocal.metrics import Interval, Metric
from refocal.metrics.records import shown_as
from refocal.report.charts.frames import shortened, with_room


def comparison(evaluation: Evaluation, measure: str) -> Plot:
    """One measure of every method with its interval, in the order of the table; the chosen method is filled."""
    methods = {method.name: method for method in ranked(evaluation)}
    of = f"every method with its {evaluation.level * 100:g} % interval"
    return intervals(methods, measure, of, marked=(evaluation.chosen,))


def intervals(methods: Mapping[str, Measured], measure: str, of: str, marked: Collection[str] | None = None) -> Plot:
    """Values with intervals, one below the other; those marked are filled, and what lies far off is an arrow.

    `of` says in words what they are of.
    """
    metric = shown_as(measure)
    label = f"{metric.label} ({metric.unit})" if metric.unit else metric.label
    interval_of = {name: method.measures[measure] for name, method in methods.items()}
    names = [shortened(name) for name in interval_of]
    lowest, highest = near_range(list(interval_of.values()), metric)
    low = metric.scale * lowest
    high = metric.scale * highest
    listed = ", ".join(f"{name} {metric.text(interval.value)}" for name, interval in interval_of.items())
    plot = Plot(
        (low, high),
        (len(names) - 0.4, -0.6),
        [Axes(label, names=names, grid=True)],
        f"{metric.heading} of {of}: {listed}.",
        (400.0, 56.0 + 24 * len(names)),
        (22 + 7.2 * max(map(len, names)), 8.0, 14.0, 44.0),
    )
    for i, (name, interval) in enumerate(interval_of.items()):
        is_marked = marked is None or name in marked
        color = Color.FIRST if is_marked else Color.MUTED
        value = metric.scale * interval.value
        start = metric.scale * interval.low
        end = metric.scale * interval.high
        text = metric.text(interval.value)
        tip = f"{name}: {label} {text} ({metric.text(interval.low)} to {metric.text(interval.high)})"
        if low <= value <= high:
            plot.marks.append(Line([max(start, low), min(end, high)], [i, i], color, 2))
            plot.marks.append(Point(value, i, color, tip, "dot" if is_marked else "ring"))
        else:
            at, side, anchor, x = (high, "right", "end", -16) if value > high else (low, "left", "start", 16)
            plot.marks += [Point(at, i, color, tip, side), Text(at, i, text, anchor, (x, 4))]
    return plot


def many_differences(comparison: ManyComparison, metric: str | None = None) -> Plot:
    """The difference of each method from the one that it is compared with, over networks; filled if it is not 0."""
    record = comparison.metric(metric).record
    rows = [row for row in comparison.table(metric) if row.difference is not None]
    label = f"{record.label} less that of {comparison.against}{f' ({record.unit})' if record.unit else ''}"
    names = [shortened(row.name) for row in rows]
    ends = [(row.difference.low, row.difference.high) for row in rows if row.difference is not None]
    shown = [row.difference.difference for row in rows if row.difference is not None]
    near = _near_zero(shown, ends)
    low = record.scale * near[0]
    high = record.scale * near[1]
    listed = ", ".join(f"{row.name} {difference_text(record, row.difference)}" for row in rows)
    plot = Plot(
        (low, high),
        (len(names) - 0.4, -0.6),
        [Axes(label, names=names, grid=True), Line([0.0, 0.0], [len(names) - 0.4, -0.6], dash="4 3")],
        f"{label} of every method, over {len(comparison.networks)} networks: {listed}.",
        (400.0, 56.0 + 24 * len(names)),
        (22 + 7.2 * max(map(len, names), default=0), 8.0, 14.0, 44.0),
    )
    for i, row in enumerate(rows):
        if row.difference is None:
            continue
        value = record.scale * row.difference.difference
        start = record.scale * row.difference.low
        end = record.scale * row.difference.high
        text = difference_text(record, row.difference)
        tip = f"{row.name}: {label} {text} ({ends_text(record, row.difference)})"
        is_filled = start > 0.0 or end < 0.0
        color = Color.FIRST if is_filled else Color.MUTED
        if low <= value <= high:
            plot.marks.append(Line([max(start, low), min(end, high)], [i, i], color, 2))
            plot.marks.append(Point(value, i, color, tip, "dot" if is_filled else "ring"))
        else:
            at, side, anchor, x = (high, "right", "end", -16) if value > high else (low, "left", "start", 16)
            plot.marks += [Point(at, i, color, tip, side), Text(at, i, text, anchor, (x, 4))]
    return plot


def _near_zero(values: Sequence[float], ends: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """A range with 0 and all intervals, but for differences that are far larger than the others."""
    far_from_others = 4.0  # in medians of the absolute differences: what lies beyond is shown by an arrow
    limit = far_from_others * median([abs(value) for value in values])
    near = [pair for value, pair in zip(values, ends, strict=True) if abs(value) <= limit or limit == 0.0]
    finite = [end for pair in near for end in pair if math.isfinite(end)]
    low = min([0.0, *finite])
    high = max([0.0, *finite])
    room = 0.04 * (high - low) or 0.01
    return low - room, high + room


def mean_ranks(comparison: ManyComparison, metric: str | None = None) -> Plot:
    """The mean rank of every method; bars join those that do not differ significantly (Nemenyi)."""
    tests = comparison.tests(metric)
    names = sorted(tests.ranks, key=tests.ranks.__getitem__)
    cliques = tests.cliques()
    label = "mean rank"
    listed = ", ".join(f"{name} {tests.ranks[name]:.2f}" for name in names)
    width_of_bar = 10.0  # pixels that each bar takes at the right end
    plot = Plot(
        (1.0 - 0.1, max(len(names), 2) + 0.1),
        (len(names) - 0.4, -0.6),
        [Axes(label, names=[shortened(name) for name in names], grid=True)],
        f"Mean ranks by {comparison.metric(metric).record.label} on {tests.n_blocks} blocks: {listed}. "
        f"{len(cliques)} sets of methods do not differ significantly.",
        (400.0, 56.0 + 24 * len(names)),
        (22 + 7.2 * max(map(len, names)), 8.0, 14.0 + width_of_bar * len(cliques), 44.0),
    )
    for i, name in enumerate(names):
        plot.marks.append(Point(tests.ranks[name], i, Color.FIRST, f"{name}: mean rank {tests.ranks[name]:.2f}"))
    low, high = plot.x
    left, _, right, _ = plot.margins
    unit = (high - low) / (plot.size[0] - left - right)  # ranks of a pixel
    for i, clique in enumerate(cliques):
        at = high + (i + 0.8) * width_of_bar * unit
        first = names.index(clique[0])
        last = names.index(clique[-1])
        plot.marks.append(Line([at, at], [first - 0.2, last + 0.2], Color.INK, 3))
    return plot


def near_range(intervals: Sequence[Interval], metric: Metric) -> tuple[float, float]:
    """From the lowest end to the highest, without the methods that are far worse than the others."""
    costs = [metric.cost(interval.value) for interval in intervals]
    lowest = min(costs)
    far_from_best = 4.0  # in distances of the median from the best: a method beyond is shown by an arrow
    limit = lowest + far_from_best * (median(costs) - lowest)
    is_spread = len(intervals) > 2 and limit > lowest
    near = [each for each, cost in zip(intervals, costs, strict=True) if cost <= limit or not is_spread]
    low = min(min(interval.low, interval.value) for interval in near)
    high = max(max(interval.high, interval.value) for interval in near)
    return with_room(low, high)
