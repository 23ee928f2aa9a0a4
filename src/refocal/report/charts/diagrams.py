"""Charts of one method: reliability, the flexible curve, confidences, bias over a feature, costs of decisions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from refocal._svg import Axes, Band, Bar, Color, Line, Plot, Point, Text, tick_label
from refocal.evaluate import Histogram, Reliability, SmoothCurve
from refocal.evaluate.decisions import Decision
from refocal.evaluate.summary import percent
from refocal.report.charts.frames import sheet, shortened, with_room
from refocal.report.details import CONFIDENCE, Terms
from refocal.segments import FeatureBias

# Room for the density of the confidences below a reliability diagram, in pixels.
DENSITY = 44


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
    """The flexible curve over its band, the bins as rings; with `on_logit` both axes are even in log-odds.

    The axes hold the curve and the rings; the band may be cut. Rates of 0 and 1 have no place among log-odds.
    """
    shown = list(range(len(curve.probability)))
    if on_logit:
        # A decade below the middle of the lowest bin there is next to no row.
        shown = [i for i in shown if curve.probability[i] >= points.confidence[0] / 10.0]
    drawn = [*(curve.probability[i] for i in shown), *(curve.rate[i] for i in shown)]
    drawn += [*points.confidence, *points.accuracy]
    lowest = 0.0
    highest = min(1.0, 1.05 * max(drawn))
    if on_logit:
        lowest = max(1e-5, 0.7 * min(value for value in drawn if value > 0.0))
        highest = max(min(0.999, 1.4 * max(value for value in drawn if value < 1.0)), 0.1)
    scale = _logit if on_logit else float
    ends = (scale(lowest), scale(highest))

    def inside(values: Sequence[float]) -> list[float]:
        return [scale(min(max(value, lowest), highest)) for value in values]

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
        ticks = [0.0001, 0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99]
        if ends[1] - ends[0] > 9.0:  # of so many log-odds, these are too close to one another to be read
            ticks = [0.0001, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99]
        for tick in ticks:
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
        if lowest <= p <= highest and lowest <= rate <= highest:
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
        with_room(min(bias.mean), max(bias.mean)),
        with_room(min(*low, 0.0), max(*high, 0.0)),
        size=(200, 190),
        margins=(40, 8, 8, 26),
    )
    plot.description = (
        f"Mean probability less rate over {bias.feature}, in {len(points)} ranges; the largest difference is "
        f"{points[farthest]:+.2f} points at {bias.mean[farthest]:g}."
    ).replace("-", "−")
    plot.marks += [Band(bias.mean, low, high), Line(plot.x, (0.0, 0.0), dash="4 3"), Axes()]
    plot.marks.append(Line(bias.mean, points, Color.FIRST, 1.6))
    for x, y, n in zip(bias.mean, points, bias.n, strict=True):
        tip = f"{n:,} rows: {bias.feature} {x:.4g}, {y:+.2f} points".replace("-", "−")
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
    legend = sheet(plot.size)
    left = plot.margins[0]
    for text, color in ((shortened(terms.happened), Color.FIRST), (shortened(terms.did_not), Color.SECOND)):
        legend.marks += [Bar((left, left + 10), (18, 8), color), Text(left + 16, 13, text)]
        left += 40 + 7.2 * len(text)
    plot.marks.append(legend)
    return plot


def highest_bar(histograms: Iterable[Histogram]) -> float:
    """A little above the highest bar of several histograms, as a share of the predictions."""
    counts = [np.add(each.right, each.wrong) for each in histograms]
    return 1.05 * max(float(each.max() / each.sum()) for each in counts)


def costs(sides: Mapping[str, Sequence[Decision]], threshold: str, rate: float | None = None) -> Plot:
    """The cost of deciding from a threshold on, before calibration dashed.

    Of two classes with a `rate`, dotted: the lower cost of acting on all rows, t (1 - rate), and on none,
    (1 - t) rate. Where a model costs more than that it is of no use.
    """
    most = {name: max(decision.cost for decision in made) for name, made in sides.items()}
    said = " and ".join(f"{name} it is at most {cost:.1f}" for name, cost in most.items())
    top = 1.05 * (max(most.values()) or 1.0)
    plot = Plot((0.0, 1.0), (0.0, top), size=(440.0, 270.0), margins=(60.0, 12.0, 16.0, 44.0))
    plot.description = f"The cost of 1,000 rows against the threshold; {said}."
    plot.marks.append(Axes(threshold, "cost of 1,000 rows"))
    if rate is not None:
        ts = [decision.threshold for decision in next(iter(sides.values()))]
        without_model = [1000.0 * min(t * (1.0 - rate), (1.0 - t) * rate) for t in ts]
        plot.marks.append(Line(ts, without_model, Color.INK, 1.2, "1 3"))
    styles = ((Color.MUTED, "6 4"), (Color.FIRST, ""))[-len(sides) :]
    for (name, made), (color, dash) in zip(sides.items(), styles, strict=True):
        plot.marks.append(
            Line([decision.threshold for decision in made], [decision.cost for decision in made], color, 1.8, dash)
        )
        for decision in made[5::10]:
            tip = f"{name}, {threshold} {decision.threshold:g}: cost {decision.cost:.1f}"
            plot.marks.append(Point(decision.threshold, decision.cost, color, tip, "hidden"))
    return plot
