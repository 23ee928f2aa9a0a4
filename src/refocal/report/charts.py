"""The charts of pages and figures, as data: every mark says its numbers, every chart says in words what it shows."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import numpy as np

from refocal._arrays import Indices, Vector
from refocal._svg import Axes, Band, Bar, Color, Line, Plot, Point, Text, tick_label
from refocal.evaluate import (
    Evaluation,
    Histogram,
    ManyComparison,
    Measured,
    Reliability,
    SearchSurface,
    SmoothCurve,
)
from refocal.evaluate.decisions import Decision
from refocal.evaluate.many_tables import difference_text, ends_text
from refocal.evaluate.summary import capital, percent, ranked
from refocal.fitting.objective import BALANCE, NAMED
from refocal.metrics import METRICS, Interval
from refocal.metrics.records import shown_as
from refocal.monitor import CalibrationMonitor, WindowSummary
from refocal.monitor.backtest import Backtest
from refocal.report.details import CONFIDENCE, Terms, period_name
from refocal.segments import FeatureBias

# Room for the density of the confidences below a reliability diagram, in pixels.
DENSITY = 44
# More columns of a surface are narrower than what can be pointed at; every second, or so, is then drawn.
MOST_COLUMNS = 64
# Shades of a surface from the best to the worst level; dark is good, in both themes.
SHADES = ["#00204c", "#123570", "#31446b", "#4a546c", "#61646f", "#757575", "#8b8778", "#a39876", "#bcaa6f", "#f1d24d"]


def reliability(
    curve: Reliability,
    title: str,
    histogram: Histogram | None = None,
    terms: Terms = CONFIDENCE,
    small_up_to: float | None = None,
) -> Plot:
    """Accuracy against confidence over the band of calibrated predictions; below it how many there are of each.

    Where the probabilities of a rare class are all small, the axes end with them. With `small_up_to`, the end of its
    axes, it is a small diagram for a row of many.
    """
    is_small = small_up_to is not None
    highest = highest_point([curve])
    cropped_below = 0.4  # a diagram of two classes in which no probability is larger ends at the largest
    top = small_up_to or (highest if terms is not CONFIDENCE and highest <= cropped_below else 1.0)
    bins = list(zip(curve.count, curve.confidence, curve.accuracy, curve.low, curve.high, strict=True))
    outside = sum(not low <= accuracy <= high for _, _, accuracy, low, high in bins)
    _, claimed, true, *_ = max(bins, key=lambda each: abs(each[2] - each[1]))
    axes = Axes(terms.probability, terms.outcome)
    plot = Plot((0, top), (0, top), size=(400, 400))
    plot.description = (
        f"Reliability diagram, {title}: {len(bins)} bins of equal mass, {outside} of them outside the band of "
        f"calibrated predictions. Largest gap: {terms.probability} {percent(claimed)} %, "
        f"{terms.outcome} {percent(true)} %."
    )
    if outside:
        farthest = max(bins, key=lambda point: max(point[3] - point[2], point[2] - point[4]))
        is_less = farthest[2] > farthest[1]
        plot.description += (
            f" Farthest from the band: {terms.probability} {percent(farthest[1])} %, where the predictions claim "
            f"{'less' if is_less else 'more'} than is true."
        )
    below = []
    if is_small:
        axes = Axes()
        plot.size = (200, 190)
        plot.margins = (40, 8, 8, 26)
    elif histogram is not None and top == 1.0:
        axes = Axes("", terms.outcome, ticks="y")
        plot.margins = (52, 12, 12, 44 + DENSITY)
        below = [_density(histogram, terms)]
    plot.marks += [
        Band(curve.confidence, curve.low, curve.high),
        Line([0, top], [0, top], dash="4 3"),
        axes,
        Line(curve.confidence, curve.accuracy, Color.FIRST, 1.6 if is_small else 1.8),
    ]
    for count, confidence, accuracy, low, high in bins:
        said = f"{terms.probability} {percent(confidence)} %, {terms.outcome} {percent(accuracy)} %"
        tip = f"{count:,} rows: {said}; by chance {percent(low)} to {percent(high)} %"
        plot.marks.append(Point(confidence, accuracy, Color.FIRST, tip))
    plot.marks += below
    return plot


def highest_point(curves: Iterable[Reliability]) -> float:
    """A little above the highest point of several reliability diagrams."""
    return min(1.0, 1.05 * max(max(*curve.confidence, *curve.accuracy, *curve.high) for curve in curves))


def flexible_curve(
    curve: SmoothCurve, points: Reliability, title: str, terms: Terms, level: float, on_logit: bool = False
) -> Plot:
    """The flexible curve over its band, the bins as rings; with `on_logit` both axes are even in log-odds."""
    lowest = 0.0
    highest = min(1.0, 1.05 * max(*curve.probability, *points.confidence, *points.accuracy))
    if on_logit:
        # A decade below the middle of the lowest bin, where next to no row is; and no end at 0 or 1.
        lowest = max(1e-5, points.confidence[0] / 10.0)
        highest = min(0.99, max(highest, 0.1))
    scale = _logit if on_logit else float
    ends = (scale(lowest), scale(highest))

    def inside(values: Sequence[float]) -> list[float]:
        return [scale(min(max(value, lowest), highest)) for value in values]

    shown = [i for i, p in enumerate(curve.probability) if lowest <= p <= highest]
    xs = inside([curve.probability[i] for i in shown])
    low = inside([curve.low[i] for i in shown])
    high = inside([curve.high[i] for i in shown])
    widest = max(range(len(curve.rate)), key=lambda i: abs(curve.rate[i] - curve.probability[i]))
    plot = Plot(ends, ends, size=(400, 400))
    plot.description = (
        f"Flexible calibration curve, {title}, with {100 * level:g} % bands at each point"
        f"{', both axes even in log-odds' if on_logit else ''}. Largest distance: {terms.probability} "
        f"{percent(curve.probability[widest])} %, {terms.outcome} {percent(curve.rate[widest])} %."
    )
    plot.marks += [Band(xs, low, high), Line(list(ends), list(ends), dash="4 3")]
    if on_logit:
        plot.marks.append(Axes(terms.probability, terms.outcome, ticks=""))
        for tick in (0.0001, 0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95):
            if lowest <= tick <= highest:
                text = tick_label(tick)
                plot.marks += [
                    Text(_logit(tick), ends[0], text, "middle", (0.0, 17.0)),
                    Text(ends[0], _logit(tick), text, "end", (-7.0, 4.0)),
                ]
    else:
        plot.marks.append(Axes(terms.probability, terms.outcome))
    plot.marks.append(Line(xs, inside([curve.rate[i] for i in shown]), Color.FIRST, 1.8))
    for count, p, rate in zip(points.count, points.confidence, points.accuracy, strict=True):
        if lowest <= p <= highest:
            tip = f"{count:,} rows: {terms.probability} {percent(p)} %, {terms.outcome} {percent(rate)} %"
            plot.marks.append(Point(inside([p])[0], inside([rate])[0], Color.FIRST, tip, "ring"))
    return plot


def feature_bias(bias: FeatureBias) -> Plot:
    """The mean probability less the rate over a numeric feature, in points, with an interval for each range."""
    points = [100.0 * (mean - rate) for mean, rate in zip(bias.predicted, bias.occurred, strict=True)]
    low = [100.0 * end for end in bias.low]
    high = [100.0 * end for end in bias.high]
    farthest = max(range(len(points)), key=lambda i: abs(points[i]))
    plot = Plot(
        _with_room(min(bias.mean), max(bias.mean)),
        _with_room(min(*low, 0.0), max(*high, 0.0)),
        size=(200, 190),
        margins=(40, 8, 8, 26),
    )
    plot.description = (
        f"Mean probability less rate over {bias.feature}, in {len(points)} ranges; the largest difference is "
        f"{points[farthest]:+.1f} points at {bias.mean[farthest]:g}."
    ).replace("-", "−")
    plot.marks += [Band(bias.mean, low, high), Line(plot.x, (0.0, 0.0), dash="4 3"), Axes()]
    plot.marks.append(Line(bias.mean, points, Color.FIRST, 1.6))
    for x, y, n in zip(bias.mean, points, bias.n, strict=True):
        tip = f"{n:,} rows: {bias.feature} {x:.4g}, {y:+.1f} points".replace("-", "−")
        plot.marks.append(Point(x, y, Color.FIRST, tip))
    return plot


def _logit(p: float) -> float:
    return math.log(p) - math.log1p(-p)


def _density(histogram: Histogram, terms: Terms) -> Plot:
    """Bars under a reliability diagram, and the axis of both."""
    bars = " (bars: how many predictions have it)" if terms is CONFIDENCE else ""
    below = Plot((0, 1), (0, 1), size=(400, 400), margins=(52, 362 - DENSITY, 12, 44))
    counts = np.add(histogram.right, histogram.wrong)
    for (low, high), count in zip(pairwise(histogram.edges), counts, strict=True):
        if count:
            share = f"{percent(count / counts.sum())} % of the predictions"
            tip = f"{terms.probability} {low:.2f} to {high:.2f}: {share}"
            below.marks.append(Bar((low, high - 0.1 * (high - low)), (0, count / counts.max()), Color.MUTED, tip))
    below.marks.append(Axes(terms.probability + bars, ticks="x"))
    return below


def confidence(histogram: Histogram, title: str, top: float, terms: Terms = CONFIDENCE) -> Plot:
    """How confident the predictions are, the right ones below and the wrong ones on top; `top` ends the axis."""
    total = sum(histogram.right) + sum(histogram.wrong)
    sure = sum(r + w for e, r, w in zip(histogram.edges, histogram.right, histogram.wrong, strict=False) if e >= 0.8999)
    side, share = (terms.did_not, histogram.wrong) if terms is CONFIDENCE else (terms.happened, histogram.right)
    said = (
        f"Histogram of the {terms.probability}, {title}: {percent(sure / total)} % of the predictions have a "
        f"{terms.probability} of 90 % or more; {percent(sum(share) / total)} % of all are {side}."
    )
    plot = Plot((0, 1), (0, 100 * top), [Axes(terms.probability, "predictions (%)")], said, margins=(52, 30, 12, 44))
    for (low, high), right, wrong in zip(pairwise(histogram.edges), histogram.right, histogram.wrong, strict=True):
        right_percent = 100 * right / total
        percent_of_both = 100 * (right + wrong) / total
        x = (low, high - 0.1 * (high - low))
        parts = (
            (terms.happened, (0.0, right_percent), Color.FIRST),
            (terms.did_not, (right_percent, percent_of_both), Color.SECOND),
        )
        for part, ends, color in parts:
            if ends[1] > ends[0]:
                tip = (
                    f"{terms.probability} {low:.2f} to {high:.2f}: {part}, {ends[1] - ends[0]:.2f} % of all predictions"
                )
                plot.marks.append(Bar(x, ends, color, tip))
    legend = _sheet(plot.size)
    left = plot.margins[0]
    for text, color in ((_shortened(terms.happened), Color.FIRST), (_shortened(terms.did_not), Color.SECOND)):
        legend.marks += [Bar((left, left + 10), (18, 8), color), Text(left + 16, 13, text)]
        left += 40 + 7.2 * len(text)
    plot.marks.append(legend)
    return plot


def highest_bar(histograms: Iterable[Histogram]) -> float:
    """A little above the highest bar of several histograms, as a share of the predictions."""
    counts = [np.add(each.right, each.wrong) for each in histograms]
    return 1.05 * max(float(each.max() / each.sum()) for each in counts)


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
    names = [_shortened(name) for name in interval_of]
    lowest, highest = near_range(list(interval_of.values()), metric.lower_is_better)
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


def many_differences(found: ManyComparison, metric: str | None = None) -> Plot:
    """The difference of each method from the one that it is compared with, over networks; filled if it is not 0."""
    record = found.metric(metric).record
    rows = [row for row in found.table(metric) if row.difference is not None]
    label = f"{record.label} less that of {found.against}{f' ({record.unit})' if record.unit else ''}"
    names = [_shortened(row.name) for row in rows]
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
        f"{label} of every method, over {len(found.networks)} networks: {listed}.",
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


def mean_ranks(found: ManyComparison, metric: str | None = None) -> Plot:
    """The mean rank of every method; bars join those that do not differ significantly (Nemenyi)."""
    tests = found.tests(metric)
    names = sorted(tests.ranks, key=tests.ranks.__getitem__)
    cliques = tests.cliques()
    label = "mean rank"
    listed = ", ".join(f"{name} {tests.ranks[name]:.2f}" for name in names)
    width_of_bar = 10.0  # pixels that each bar takes at the right end
    plot = Plot(
        (1.0 - 0.1, max(len(names), 2) + 0.1),
        (len(names) - 0.4, -0.6),
        [Axes(label, names=[_shortened(name) for name in names], grid=True)],
        f"Mean ranks by {found.metric(metric).record.label} on {tests.n_blocks} blocks: {listed}. "
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


def near_range(intervals: Sequence[Interval], lower_is_better: bool = True) -> tuple[float, float]:
    """From the lowest end to the highest, without the methods that are far worse than the others."""
    side = 1.0 if lower_is_better else -1.0
    values = sorted(side * interval.value for interval in intervals)
    far_from_best = 4.0  # in distances of the median from the best: a method beyond is shown by an arrow
    limit = values[0] + far_from_best * (median(values) - values[0])
    is_spread = len(intervals) > 2 and limit > values[0]
    near = [interval for interval in intervals if side * interval.value <= limit] if is_spread else intervals
    low = min(min(interval.low, interval.value) for interval in near)
    high = max(max(interval.high, interval.value) for interval in near)
    return _with_room(low, high)


def _with_room(low: float, high: float) -> tuple[float, float]:
    """A little more than a range; what cannot be negative stays so."""
    room = 0.04 * (high - low) or 0.01
    return low - room if low < 0.0 else max(low - room, 0.0), high + room


def costs(sides: Mapping[str, Sequence[Decision]], threshold: str) -> Plot:
    """The cost of deciding from a threshold on, before calibration dashed."""
    most = {name: max(decision.cost for decision in made) for name, made in sides.items()}
    said = " and ".join(f"{name} it is at most {cost:.1f}" for name, cost in most.items())
    top = 1.05 * (max(most.values()) or 1.0)
    plot = Plot((0.0, 1.0), (0.0, top), size=(440.0, 270.0), margins=(60.0, 12.0, 16.0, 44.0))
    plot.description = f"The cost of 1,000 rows against the threshold; {said}."
    plot.marks.append(Axes(threshold, "cost of 1,000 rows"))
    styles = ((Color.MUTED, "6 4"), (Color.FIRST, ""))[-len(sides) :]
    for (name, made), (color, dash) in zip(sides.items(), styles, strict=True):
        plot.marks.append(
            Line([decision.threshold for decision in made], [decision.cost for decision in made], color, 1.8, dash)
        )
        for decision in made[5::10]:
            tip = f"{name}, {threshold} {decision.threshold:g}: cost {decision.cost:.1f}"
            plot.marks.append(Point(decision.threshold, decision.cost, color, tip, "hidden"))
    return plot


class _Cells(NamedTuple):
    """The part of a surface that is drawn: a rectangle for each γ (G) and each of some temperatures (K)."""

    temperatures: list[float]
    """(K,)"""
    edges: list[float]
    """The temperatures between which the rectangles lie, (K + 1,)."""
    value: Vector
    """The objective, (G, K)."""
    log_loss: Vector
    """(G, K)"""
    limit: float
    """The largest log-loss within the tolerance."""

    @classmethod
    def of(cls, searched: SearchSurface) -> _Cells:
        """The temperatures at which some log-loss is close to the best, and no more of them than can be pointed at."""
        log_loss = np.array(searched.log_loss)
        limit = (1.0 + tolerance_of(searched)) * float(log_loss.min())
        far = 1.6 * limit  # beyond it nothing needs to be seen
        near = np.flatnonzero((log_loss <= far).any(axis=0))
        near = near[:: math.ceil(len(near) / MOST_COLUMNS)]
        temperatures = np.array(searched.temperatures)[near]
        value = np.array(searched.value)[:, near]
        return cls(temperatures.tolist(), _edges_around(temperatures), value, log_loss[:, near], limit)

    def border(self) -> Line:
        """The line around the cells whose log-loss is within the tolerance."""
        is_inside = self.log_loss <= self.limit
        points: list[tuple[float, float]] = []
        gap = (math.nan, math.nan)  # ends a piece of the line
        for g, k in np.argwhere(is_inside[:, 1:] != is_inside[:, :-1]):
            points += [(self.edges[k + 1], g - 0.5), (self.edges[k + 1], g + 0.5), gap]
        for g, k in np.argwhere(is_inside[1:] != is_inside[:-1]):
            points += [(self.edges[k], g + 0.5), (self.edges[k + 1], g + 0.5), gap]
        return Line([x for x, _ in points], [y for _, y in points], "#fff", 2, "5 3")


def _edges_around(temperatures: Vector) -> list[float]:
    """Half-way, in log T, between temperatures (K,), and as far outside the first and the last: (K + 1,)."""
    log_t = np.log(temperatures)
    middle = (log_t[1:] + log_t[:-1]) / 2 if len(log_t) > 1 else log_t - 0.1
    first_edge = 2 * log_t[0] - middle[0]
    last_edge = 2 * log_t[-1] - middle[-1]
    edges: list[float] = np.exp([first_edge, *middle, last_edge]).tolist()
    return edges


class _ShadeScale(NamedTuple):
    """From values of an objective to `SHADES`: shade s begins at best + spread (s / number of shades)²."""

    best: float
    spread: float

    @classmethod
    def of(cls, value: Vector) -> _ShadeScale:
        """The scale of all values of a surface; the three tenths that are worst share the last shade."""
        best = float(value.min())
        spread = float(np.sort(value, axis=None)[int(0.7 * value.size)]) - best
        return cls(best, spread or 1e-9)

    def shades(self, value: Vector) -> Indices:
        """The number of the shade of each value."""
        levels = np.sqrt((value - self.best) / self.spread) * len(SHADES)
        return np.asarray(np.minimum(len(SHADES) - 1, levels), dtype=np.int64)

    def beginning(self, shade: int) -> float:
        """The value at which a shade begins."""
        return self.best + self.spread * (shade / len(SHADES)) ** 2


def surface(searched: SearchSurface) -> Plot:
    """The objective over γ and T by shade, the point that was taken, and the border of the log-loss tolerance."""
    n_gammas = len(searched.gammas)
    cells = _Cells.of(searched)
    scale = _ShadeScale.of(np.array(searched.value))
    objective = NAMED[searched.objective].title if searched.objective in NAMED else searched.objective
    taken = f"γ = {searched.gamma:.3f}, T = {searched.temperature:.3f}"
    plot = Plot((cells.edges[0], cells.edges[-1]), (-0.5, n_gammas - 0.5), log_x=True, is_crisp=True)
    plot.size = (440.0, 400.0)
    plot.margins = (52.0, 12.0, 104.0, 44.0)
    plot.description = (
        f"Objective {searched.objective} of {searched.method} on the validation set over {n_gammas} values of γ and "
        f"{len(searched.temperatures)} of T. Taken: {taken}. The dashed border "
        f"encloses the points of a log-loss at most {100 * tolerance_of(searched):g} % above the best."
    )
    names = [tick_label(gamma) if n_gammas <= 16 or g % 2 == 0 else "" for g, gamma in enumerate(searched.gammas)]
    plot.marks.append(Axes("temperature T", "γ", names=names))
    for (g, k), shade in np.ndenumerate(scale.shades(cells.value)):
        numbers = f"{objective} {cells.value[g, k]:.4g}, log-loss {cells.log_loss[g, k]:.4g}"
        tip = f"γ {searched.gammas[g]:g}, T {cells.temperatures[k]:.3g}: {numbers}"
        across = (cells.edges[k], cells.edges[k + 1] * 1.0005)  # no gap shows between neighbours
        plot.marks.append(Bar(across, (g - 0.5, g + 0.5), SHADES[shade], tip))
    plot.marks.append(cells.border())
    temperature = min(max(searched.temperature, cells.edges[0]), cells.edges[-1])
    gamma = float(np.interp(searched.gamma, searched.gammas, range(n_gammas)))
    plot.marks.append(Point(temperature, gamma, Color.FIRST, f"the point taken: {taken}", "target"))
    plot.marks.append(_shade_legend(plot.size, objective, scale))
    return plot


def _shade_legend(size: tuple[float, float], objective: str, scale: _ShadeScale) -> Plot:
    """The shades at the right of a surface, with words and numbers beside them."""
    left = size[0] - 94
    height = 14  # pixels of a shade
    legend = _sheet(size)
    for text, y in ((objective, 12), ("best: dark", 28), ("worse: light", 52 + height * len(SHADES))):
        legend.marks.append(Text(left, y, text))
    for shade, color in enumerate(SHADES):
        legend.marks.append(Bar((left, left + 14), (54.5 + height * shade, 40 + height * shade), color))
        if shade % 2 == 0:
            legend.marks.append(Text(left + 20, 47 + height * shade, f"{scale.beginning(shade):.4g}"))
    return legend


def rates(history: Sequence[WindowSummary], probability: str, outcome: str) -> Plot:
    """The mean probability of each period of a monitor as a line, and the rates with their intervals."""
    ends = [end for period in history for end in (period.rate.low, period.rate.high)]
    plot = _over_periods(
        _ends(history), [period.mean_p for period in history], f"{probability} (line) and {outcome}", also=ends
    )
    plot.description = f"{probability} and {outcome} of {len(history)} periods; the table below has the numbers."
    for i, period in enumerate(history):
        low = percent(period.rate.low)
        high = percent(period.rate.high)
        said = f"{probability} {percent(period.mean_p)} %, {outcome} {percent(period.rate.value)} % ({low} to {high} %)"
        plot.marks.append(Line([i, i], [period.rate.low, period.rate.high], Color.SECOND, 1.4))
        plot.marks.append(
            Point(i, period.rate.value, Color.SECOND, f"{period_name(period)}: {said}, {period.n:,} rows")
        )
    return plot


def evidence(monitor: CalibrationMonitor) -> Plot:
    """The logarithm of a monitor's e-value after each period, and where the alarm is raised."""
    e_values = monitor.evidence()
    alarm = math.log10(1.0 / monitor.alpha)
    smallest = 1e-3  # an e-value beyond either is shown as this
    largest = 1e12
    shown = [math.log10(min(max(value, smallest), largest)) for _, value in e_values]
    tips = [f"{period}: e-value {value:.3g}" for period, value in e_values]
    ends = (e_values[0][0], e_values[-1][0])
    plot = _over_periods(ends, shown, "logarithm of the e-value (base 10)", tips, also=(0.0, 1.1 * alarm))
    plot.marks.append(Line(plot.x, [alarm, alarm], Color.SECOND, 1.4, "6 4"))
    where = f"the alarm was raised in {monitor.alarm}" if monitor.alarm else "there was no alarm"
    plot.description = f"The e-value after each period; now it is {monitor.e_value:.3g}, and {where}."
    return plot


def savings(found: Backtest, policy: str) -> Plot:
    """The log-loss that a policy has saved against keeping the calibrator, summed over the rows so far."""
    n_rows = np.array(found.n_rows)
    saved = np.cumsum(n_rows * (np.array(found.result("keep").path) - np.array(found.result(policy).path))).tolist()
    tips = [f"{period}: {value:+.2f}" for period, value in zip(found.periods, saved, strict=True)]
    plot = _over_periods((found.periods[0], found.periods[-1]), saved, "log-loss saved", tips, also=(0.0,))
    plot.marks.append(Line(plot.x, [0.0, 0.0], Color.SECOND, 1.4, "6 4"))
    plot.description = f"The log-loss that {policy} has saved after each batch; {saved[-1]:+.2f} in all."
    return plot


def loss(history: Sequence[WindowSummary], measure: str, by_chance: str = "") -> Plot:
    """A measure of each period of a monitor; dashed what it would be by chance."""
    heading = capital(METRICS[measure].label)
    values = [getattr(each, measure) for each in history]
    chance = [getattr(each, by_chance) for each in history] if by_chance else []
    tips = [f"{period_name(each)}: {heading} {x:.4f}, {each.n:,} rows" for each, x in zip(history, values, strict=True)]
    plot = _over_periods(_ends(history), values, heading, tips, chance)
    plot.size = (400.0, 260.0)
    plot.description = f"{heading} of {len(history)} periods."
    plot.marks += _line(chance, Color.SECOND, "6 4")
    return plot


def _over_periods(
    ends: tuple[str, str], values: Sequence[float], label: str, tips: Sequence[str] = (), also: Sequence[float] = ()
) -> Plot:
    """A line from period to period, the names of the first and the last; the axis holds what is `also` drawn."""
    x = (-0.5, len(values) - 0.5)
    y = _with_room(min([*values, *also]), max([*values, *also]))
    plot = Plot(x, y, [Axes("", label, ticks="y")], size=(440.0, 260.0), margins=(60.0, 12.0, 16.0, 44.0))
    plot.marks.append(Text(x[0], y[0], ends[0], offset=(0, 18)))
    if len(values) > 1:
        plot.marks.append(Text(x[1], y[0], ends[1], "end", (0, 18)))
    plot.marks += [*_line(values), *(Point(i, values[i], Color.FIRST, tip) for i, tip in enumerate(tips))]
    return plot


def _line(values: Sequence[float], color: str = Color.FIRST, dash: str = "") -> list[Line]:
    """A line from period to period, of a single one a level line."""
    if len(values) == 1:
        return [Line([-0.4, 0.4], [*values, *values], color, 1.8, dash)]
    return [Line(range(len(values)), values, color, 1.8, dash)] if values else []


def _ends(history: Sequence[WindowSummary]) -> tuple[str, str]:
    return history[0].first, history[-1].last


def _sheet(size: tuple[float, float]) -> Plot:
    """A plot whose units are pixels, counted from above."""
    return Plot((0, size[0]), (size[1], 0), size=size, margins=(0, 0, 0, 0))


def _shortened(text: str) -> str:
    longest = 20  # letters; the mark of the chart says all of it
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def tolerance_of(surface: SearchSurface) -> float:
    """The tolerance of the search, or a usual one to draw where it had none."""
    return BALANCE.nll_tolerance if surface.tolerance is None else surface.tolerance
