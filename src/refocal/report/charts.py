"""The charts of the page as inline SVG. Every mark says its numbers; every chart says in words what it shows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from refocal._svg import FIRST, LINE, MUTED, SECOND, Plot
from refocal.evaluate import Evaluation, Histogram, Reliability, SearchSurface
from refocal.evaluate.phrases import percent
from refocal.evaluate.summary import ranked
from refocal.metrics import METRICS, Interval
from refocal.report.figures import OBJECTIVES, axis_label, near_range, tolerance_of
from refocal.report.terms import CONFIDENCE, Terms

# Room for the density of the confidences below a reliability diagram, in pixels.
DENSITY = 44
# A diagram of two classes in which no probability is larger ends there.
SMALL = 0.4
# More columns of a surface are narrower than what can be pointed at; every second, or so, is then drawn.
MOST_COLUMNS = 64
# Shades of a surface from the best to the worst level; dark is good, in both themes.
SHADES = ["#00204c", "#123570", "#31446b", "#4a546c", "#61646f", "#757575", "#8b8778", "#a39876", "#bcaa6f", "#f1d24d"]
# Letters of a name beside a chart; its mark says all of it.
LONGEST_NAME = 20


def reliability(
    curve: Reliability,
    name: str,
    title: str,
    histogram: Histogram | None = None,
    terms: Terms = CONFIDENCE,
    small_up_to: float | None = None,
) -> str:
    """Accuracy against confidence over the band of calibrated predictions; below it how many there are of each.

    Where the probabilities of a rare class are all small, the axes end with them. With `small_up_to`, the end of its
    axes, it is a small diagram for a row of many.
    """
    is_small, top = small_up_to is not None, small_up_to or end_of_axes(curve, terms)
    has_density = top == 1.0 and not is_small
    margins = (40, 8, 8, 26) if is_small else (52, 12, 12, 44 + (DENSITY if has_density else 0))
    plot = Plot((0, top), (0, top), size=(200, 190) if is_small else (400, 400), margins=margins)
    plot.area(curve.confidence, curve.low, curve.high).line([0, top], [0, top], dash="4 3")
    labels = ("", "") if is_small else ("" if has_density else terms.probability, terms.outcome)
    plot.axes(*labels, x_ticks=() if has_density else None)
    plot.line(curve.confidence, curve.accuracy, FIRST, 1.6 if is_small else 1.8)
    points = zip(curve.count, curve.confidence, curve.accuracy, curve.low, curve.high, strict=True)
    for count, confidence, accuracy, low, high in points:
        said = f"{terms.probability} {percent(confidence)} %, {terms.outcome} {percent(accuracy)} %"
        tip = f"{count:,} rows: {said}; by chance {percent(low)} to {percent(high)} %"
        plot.dot(confidence, accuracy, FIRST, tip)
    if has_density:
        _density(plot, histogram, terms)
    gaps = [a - c for a, c in zip(curve.accuracy, curve.confidence, strict=True)]
    worst = max(range(len(gaps)), key=lambda i: abs(gaps[i]))
    outside = sum(not low <= a <= high for a, low, high in zip(curve.accuracy, curve.low, curve.high, strict=True))
    description = (
        f"Reliability diagram, {title}: {len(gaps)} bins of equal mass, {outside} of them outside the band of "
        f"calibrated predictions. Largest gap: {terms.probability} {percent(curve.confidence[worst])} %, "
        f"{terms.outcome} {percent(curve.accuracy[worst])} %, so the predictions there claim "
        f"{'less' if gaps[worst] > 0 else 'more'} than is true."
    )
    return plot.svg(name, description)


def highest_point(curves: Iterable[Reliability]) -> float:
    """A little above the highest point of several reliability diagrams."""
    return min(1.0, 1.05 * max(max(*curve.confidence, *curve.accuracy, *curve.high) for curve in curves))


def _density(plot: Plot, histogram: Histogram | None, terms: Terms) -> None:
    """Bars under the diagram, and the axis of both."""
    below = Plot((0, 1), (0, 1), size=plot.size, margins=(52, plot.y.start + 6, 12, 44))
    if histogram is not None:
        counts = [right + wrong for right, wrong in zip(histogram.right, histogram.wrong, strict=True)]
        for low, high, count in zip(histogram.edges, histogram.edges[1:], counts, strict=False):
            if count:
                share = f"{percent(count / sum(counts))} % of the predictions"
                tip = f"{terms.probability} {low:.2f} to {high:.2f}: {share}"
                below.bar((low, high - 0.1 * (high - low)), (0, count / max(counts)), MUTED, tip)
    bars = " (bars: how many predictions have it)" if histogram and terms is CONFIDENCE else ""
    below.axes(terms.probability + bars, y_ticks=False)
    plot.parts += below.parts


def confidence(histogram: Histogram, name: str, title: str, top: float, terms: Terms = CONFIDENCE) -> str:
    """How confident the predictions are, the right ones below and the wrong ones on top; `top` ends the axis."""
    plot = Plot((0, 1), (0, 100 * top), margins=(52, 30, 12, 44)).axes(terms.probability, "predictions (%)")
    total = sum(histogram.right) + sum(histogram.wrong)
    pairs = zip(histogram.edges, histogram.edges[1:], histogram.right, histogram.wrong, strict=False)
    for low, high, right, wrong in pairs:
        a, b, end = 100 * right / total, 100 * (right + wrong) / total, high - 0.1 * (high - low)
        span = f"{terms.probability} {low:.2f} to {high:.2f}"
        if right:
            plot.bar((low, end), (0, a), FIRST, f"{span}: {terms.happened}, {a:.2f} % of all predictions")
        if wrong:
            plot.bar((low, end), (a, b), SECOND, f"{span}: {terms.did_not}, {b - a:.2f} % of all predictions")
    x = plot.x.start
    for text, color in ((terms.happened, FIRST), (terms.did_not, SECOND)):
        plot.parts.append(f'<rect x="{x:g}" y="8" width="10" height="10" fill="{color}"/>')
        plot.text(x + 16, 17, _shortened(text))
        x += 40 + 7.2 * len(_shortened(text))
    sure = sum(r + w for e, r, w in zip(histogram.edges, histogram.right, histogram.wrong, strict=False) if e >= 0.8999)
    side, share = (terms.did_not, histogram.wrong) if terms is CONFIDENCE else (terms.happened, histogram.right)
    said = (
        f"Histogram of the {terms.probability}, {title}: {percent(sure / total)} % of the predictions have a "
        f"{terms.probability} of 90 % or more; {percent(sum(share) / total)} % of all are {side}."
    )
    return plot.svg(name, said)


def end_of_axes(curve: Reliability, terms: Terms) -> float:
    """1, or the highest probability of a rare class."""
    top = 1.0 if terms is CONFIDENCE else highest_point([curve])
    return top if top <= SMALL else 1.0


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def highest_bar(histograms: Iterable[Histogram]) -> float:
    """A little above the highest bar of several histograms, as a share of the predictions."""
    tops = (
        max(r + w for r, w in zip(each.right, each.wrong, strict=True)) / (sum(each.right) + sum(each.wrong))
        for each in histograms
    )
    return 1.05 * max(tops)


def comparison(evaluation: Evaluation, measure: str) -> str:
    """One measure of every method with its interval, in the order of the table; what lies far off is an arrow."""
    rows = [(each.name, each.measures[measure], each.name == evaluation.chosen) for each in ranked(evaluation)]
    of = f"every method with its {evaluation.level * 100:g} % interval"
    return intervals(rows, measure, f"comparison-{measure}", of)


def intervals(rows: list[tuple[str, Interval, bool]], measure: str, name: str, of: str) -> str:
    """Values with intervals, one below the other; those marked are filled. `of` says in words what they are of."""
    metric = METRICS[measure]
    shown = [_shortened(text) for text, _, _ in rows]
    left = 22 + 7.2 * max(map(len, shown))
    low, high = near_range([interval for _, interval, _ in rows], metric.lower_is_better)
    size = (400.0, 56.0 + 24 * len(rows))
    ends = (metric.scale * low, metric.scale * high)
    plot = Plot(ends, (len(rows) - 0.4, -0.6), size=size, margins=(left, 8, 14, 44))
    label = axis_label(metric)
    for tick in plot.x.ticks:
        plot.path([(plot.x(tick), plot.y.end), (plot.x(tick), plot.y.start)], LINE, 1)
    plot.axes(label, y_ticks=False)
    for i, (text, interval, is_marked) in enumerate(rows):
        value, start, end = (metric.scale * v for v in (interval.value, interval.low, interval.high))
        ends_text = f"{metric.text(interval.low)} to {metric.text(interval.high)}"
        tip = f"{text}: {label} {metric.text(interval.value)} ({ends_text})"
        color = FIRST if is_marked else MUTED
        plot.text(left - 8, plot.y(i) + 4, shown[i], anchor="end")
        if not ends[0] <= value <= ends[1]:
            side, y = (1, plot.y(i)) if value > ends[1] else (-1, plot.y(i))
            x = plot.x.end if side > 0 else plot.x.start
            tail = x - 10 * side
            arrow = f'<path d="M{tail:.1f} {y - 5:.1f}L{x:.1f} {y:.1f}L{tail:.1f} {y + 5:.1f}Z" fill="{color}"/>'
            anchor = "end" if side > 0 else "start"
            plot.mark(arrow, tip).text(x - 16 * side, y + 4, metric.text(interval.value), anchor=anchor)
            continue
        plot.line([max(start, ends[0]), min(end, ends[1])], [i, i], color, 2)
        plot.dot(value, i, color, tip, filled=is_marked)
    listed = ", ".join(f"{text} {metric.text(interval.value)}" for text, interval, _ in rows)
    return plot.svg(name, f"{metric.heading} of {of}: {listed}.")


def surface(found: SearchSurface) -> str:
    """The objective over γ and T by shade, the point that was taken, and the border of the log-loss tolerance."""
    limit = (1.0 + tolerance_of(found)) * min(map(min, found.log_loss))
    # Far from the best nothing needs to be seen.
    near = [i for i in range(len(found.temperatures)) if any(row[i] <= 1.6 * limit for row in found.log_loss)]
    near = near[:: math.ceil(len(near) / MOST_COLUMNS)]
    logs = [math.log(found.temperatures[i]) for i in near]
    between = [(a + b) / 2 for a, b in pairwise(logs)]
    first, last = (between[0], between[-1]) if between else (logs[0] - 0.1, logs[0] + 0.1)
    edges = [math.exp(v) for v in (2 * logs[0] - first, *between, 2 * logs[-1] - last)]
    rows = len(found.gammas)
    ends = (edges[0], edges[-1])
    plot = Plot(ends, (-0.5, rows - 0.5), size=(440, 400), margins=(52, 12, 104, 44), log_x=True)
    plot.axes("temperature T", "γ", y_ticks=False)
    best, objective = min(map(min, found.value)), OBJECTIVES.get(found.objective, found.objective)
    spread = sorted(v for row in found.value for v in row)[int(0.7 * rows * len(found.temperatures))] - best or 1e-9
    for g, gamma in enumerate(found.gammas):
        if rows <= 16 or g % 2 == 0:
            plot.text(45, plot.y(g) + 4, f"{gamma:g}".replace("-", "−"), anchor="end")
        plot.parts.append('<g shape-rendering="crispEdges">')  # without seams between the cells
        for k, i in enumerate(near):
            value, log_loss = found.value[g][i], found.log_loss[g][i]
            shade = min(len(SHADES) - 1, int(math.sqrt(max(value - best, 0.0) / spread) * len(SHADES)))
            numbers = ", ".join(f"{name} {v:.4g}" for name, v in {objective: value, "log-loss": log_loss}.items())
            tip = f"γ {gamma:g}, T {found.temperatures[i]:.3g}: {numbers}"
            plot.bar((edges[k], edges[k + 1] * 1.0005), (g - 0.5, g + 0.5), SHADES[shade], tip)
        plot.parts.append("</g>")
    _border(plot, [[row[i] <= limit for i in near] for row in found.log_loss], edges)
    x = plot.x(min(max(found.temperature, plot.x.low), plot.x.high))
    y = plot.y(float(np.interp(found.gamma, found.gammas, range(rows))))
    ring = f'cx="{x:.1f}" cy="{y:.1f}" r="7" fill="none"'
    taken = f"γ = {found.gamma:.3f}, T = {found.temperature:.3f}"
    circles = f'<circle {ring} stroke="#000" stroke-width="4"/><circle {ring} stroke="#fff" stroke-width="2.2"/>'
    plot.mark(circles, f"the point taken: {taken}")
    _legend(plot, objective, best, spread)
    said = (
        f"Objective {found.objective} of {found.method} on the validation set over {rows} values of γ and "
        f"{len(found.temperatures)} of T. Taken: {taken}. The dashed border "
        f"encloses the points of a log-loss at most {100 * tolerance_of(found):g} % above the best."
    )
    return plot.svg("surface", said)


def _border(plot: Plot, inside: list[list[bool]], edges: list[float]) -> None:
    """The lines between cells inside and outside."""
    drawn = []
    for g, row in enumerate(inside):
        low, high = plot.y(g - 0.5), plot.y(g + 0.5)
        for i, here in enumerate(row):
            start, end = plot.x(edges[i]), plot.x(edges[i + 1])
            if i and here != row[i - 1]:
                drawn.append(f"M{start:.1f} {low:.1f}V{high:.1f}")
            if g and here != inside[g - 1][i]:
                drawn.append(f"M{start:.1f} {low:.1f}H{end:.1f}")
    plot.parts.append(f'<path fill="none" stroke="#fff" stroke-width="2" stroke-dasharray="5 3" d="{"".join(drawn)}"/>')


def _legend(plot: Plot, objective: str, best: float, spread: float) -> None:
    """The shades with words and numbers beside them."""
    left, top, height = plot.size[0] - 94, 40.0, 14.0
    plot.text(left, 16, objective)
    plot.text(left, 32, "best: dark")
    for i, color in enumerate(SHADES):
        y = top + height * i
        plot.parts.append(f'<rect x="{left:g}" y="{y:g}" width="14" height="{height + 0.5:g}" fill="{color}"/>')
        if i % 2 == 0:
            plot.text(left + 20, y + 11, f"{best + spread * (i / len(SHADES)) ** 2:.4g}")
    plot.text(left, top + height * len(SHADES) + 16, "worse: light")
