"""The figures, each drawn on an axes of matplotlib: for notebooks and papers, in the colours of the report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from refocal._svg import THEME
from refocal._validation import check_option
from refocal.evaluate import Evaluation, Histogram, Reliability, SearchSurface
from refocal.evaluate.summary import ranked
from refocal.metrics import METRICS, Interval, ReliabilityBand, ReliabilityCurve, StreamedCalibration
from refocal.metrics.record import Metric
from refocal.report.terms import CONFIDENCE, Terms, terms_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, LINE, FIRST, SECOND, BAND = THEME.values()
DEFAULT_TOLERANCE = 0.02
OBJECTIVES = {"nll": "log-loss", "ece": "ECE", "auto": "log-loss + ECE"}
"""The objectives of a search in words."""
# A method farther from the best than so many times the median's distance is shown by an arrow.
FAR = 4.0


def plot_reliability(
    reliability: Reliability | ReliabilityBand | ReliabilityCurve | StreamedCalibration,
    ax: Axes | None = None,
    *,
    title: str = "",
    terms: Terms = CONFIDENCE,
) -> Axes:
    """Accuracy against confidence, bin by bin, over the band from `low` to `high`.

    `terms` say what the two are called; `terms_of` an evaluation of two classes is about the positive one.

    The band of an evaluation is where calibrated predictions would lie; that of `metrics.reliability_curve` and of
    `CalibrationHistogram.compute` is where the accuracy may lie.

    >>> import matplotlib; matplotlib.use("agg")
    >>> curve = Reliability([10, 10], [0.4, 0.9], [0.3, 0.8], [0.1, 0.7], [0.7, 1.0])
    >>> plot_reliability(curve).get_xlabel()
    'confidence'
    """
    ax = _axes(ax, title)
    if isinstance(reliability, StreamedCalibration):
        reliability = reliability.curve
    ax.plot([0, 1], [0, 1], color=MUTED, linewidth=1.0, linestyle=(0, (4, 3)))
    ax.fill_between(reliability.confidence, reliability.low, reliability.high, color=BAND, linewidth=0)
    ax.plot(
        reliability.confidence,
        reliability.accuracy,
        color=FIRST,
        linewidth=1.6,
        marker="o",
        markersize=4.5,
        markeredgewidth=0,
        clip_on=False,
    )
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel=terms.probability, ylabel=terms.outcome, aspect="equal")
    return ax


def plot_confidence(histogram: Histogram, ax: Axes | None = None, *, title: str = "") -> Axes:
    """Histogram of the confidence: correct predictions below, wrong ones stacked on top.

    >>> import matplotlib; matplotlib.use("agg")
    >>> plot_confidence(Histogram([0.0, 0.5, 1.0], [1.0, 6.0], [2.0, 1.0])).get_ylabel()
    'predictions (%)'
    """
    ax = _axes(ax, title)
    left, width = histogram.edges[:-1], np.diff(histogram.edges)
    total = sum(histogram.right) + sum(histogram.wrong)
    right, wrong = (100.0 * np.array(counts) / total for counts in (histogram.right, histogram.wrong))
    options: dict[str, Any] = {"width": 0.9 * width, "align": "edge", "linewidth": 0}
    ax.bar(left, right, color=FIRST, label="right", **options)
    ax.bar(left, wrong, bottom=right, color=SECOND, label="wrong", **options)
    ax.set(xlim=(0, 1), xlabel="confidence", ylabel="predictions (%)")
    ax.legend(frameon=False, loc="upper left", labelcolor=INK)
    return ax


def plot_surface(surface: SearchSurface, ax: Axes | None = None, *, title: str = "") -> Axes:
    """The objective over γ and T on the validation set, the chosen point, and the contour of the log-loss tolerance.

    >>> import matplotlib; matplotlib.use("agg")
    >>> loss = [[0.50, 0.45, 0.60], [0.44, 0.40, 0.50], [0.50, 0.46, 0.55]]
    >>> surface = SearchSurface("fts", "nll", [0.0, 1.0, 2.0], [0.5, 1.0, 2.0], loss, loss, None, 1.0, 1.0)
    >>> plot_surface(surface).get_xlabel()
    'temperature T'
    """
    ax = _axes(ax, title)
    log_loss, value = np.array(surface.log_loss), np.array(surface.value)
    temperatures, height = np.array(surface.temperatures), np.log1p(surface.gammas)
    # Close together near the best value: far from it nothing needs to be told apart.
    best, far = float(value.min()), float(np.quantile(value, 0.7))
    levels = best + (max(far - best, 0.0) or 1e-6) * np.linspace(0.0, 1.0, 13) ** 2
    filled = ax.contourf(
        temperatures, height, np.clip(value, levels[0], levels[-1]), levels=levels, cmap="cividis", extend="max"
    )
    filled.set_edgecolor("face")  # without it a viewer shows the paper between two levels
    limit = (1.0 + tolerance_of(surface)) * log_loss.min()
    ax.contour(temperatures, height, log_loss, levels=[limit], colors="#ffffff", linewidths=1.6, linestyles="--")
    ax.plot(
        surface.temperature,
        math.log1p(surface.gamma),
        marker="o",
        markersize=9,
        markerfacecolor="none",
        markeredgecolor="#ffffff",
        markeredgewidth=2.2,
    )
    near = temperatures[(log_loss <= 1.6 * log_loss.min()).any(axis=0)]
    ax.set_xscale("log")
    ax.set(xlim=(near.min(), near.max()), xlabel="temperature T")
    ax.set_ylabel("γ", rotation=0)
    ticks = [t for t in (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 50) if near.min() <= t <= near.max()]
    if len(ticks) > 1:
        ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
        ax.set_xticks([], minor=True)
    has_room = np.diff(height, prepend=-np.inf) > 0.05 * (height[-1] - height[0])
    ax.set_yticks(height, [f"{g:g}" if room else "" for g, room in zip(surface.gammas, has_room, strict=True)])
    bar = ax.figure.colorbar(filled, ax=ax, pad=0.02, aspect=30, format="%.3g")
    bar.set_label(f"{OBJECTIVES.get(surface.objective, surface.objective)}: dark is good", color=INK)
    bar.ax.tick_params(color=LINE, labelcolor=INK)
    bar.outline.set_visible(False)
    return ax


def plot_comparison(evaluation: Evaluation, measure: str = "ece", ax: Axes | None = None, *, title: str = "") -> Axes:
    """One measure of every method with its interval, in the order of the table; an arrow for a method far off.

    The chosen method is filled.

    >>> import matplotlib; matplotlib.use("agg")
    >>> from refocal.io import load_sample
    >>> from refocal.evaluate import compare
    >>> found = compare(*load_sample("cifar10-focal3"), ["ts"], n_resamples=20)
    >>> [label.get_text() for label in plot_comparison(found, "ece").get_yticklabels()]
    ['none', 'ts']
    """
    check_option(measure, tuple(evaluation.before.measures), "measure", "plot_comparison")
    metric = METRICS[measure]
    ax = _axes(ax, title)
    methods = ranked(evaluation)[::-1]
    factor = metric.scale
    low, high = near_range([method.measures[measure] for method in methods], metric.lower_is_better)
    for y, method in enumerate(methods):
        found = method.measures[measure]
        color = FIRST if method.name == evaluation.chosen else MUTED
        if not low <= found.value <= high:
            beyond = found.value > high
            ax.plot(factor * (high if beyond else low), y, marker=">" if beyond else "<", color=color, clip_on=False)
            continue
        ax.plot([factor * found.low, factor * found.high], [y, y], color=color, linewidth=2.0, solid_capstyle="butt")
        face = color if method.name == evaluation.chosen else "none"
        ax.plot(factor * found.value, y, marker="o", markersize=7, color=color, markerfacecolor=face, linestyle="")
    ax.set_yticks(range(len(methods)), [method.name for method in methods])
    for label in ax.get_yticklabels():
        label.set_parse_math(False)  # a name may hold a dollar sign
    ax.set(xlabel=axis_label(metric), xlim=(factor * low, factor * high), ylim=(-0.6, len(methods) - 0.4))
    ax.grid(visible=True, axis="x", color=LINE, linewidth=0.8)
    return ax


def plot_evaluation(evaluation: Evaluation) -> Figure:
    """Reliability before and after, and a comparison of all methods, in a new figure."""
    import matplotlib.pyplot as plt

    before, after = evaluation.before, evaluation.after
    shown = [before] if after is before else [before, after]
    figure, axes = plt.subplots(1, len(shown) + 1, figsize=(4.4 * (len(shown) + 1), 4.0), layout="constrained")
    for ax, method in zip(axes, shown, strict=False):
        plot_reliability(method.reliability, ax, title=method.title, terms=terms_of(evaluation))
    plot_comparison(evaluation, ax=axes[-1], title="every method")
    return figure


def near_range(found: Sequence[Interval], lower_is_better: bool = True) -> tuple[float, float]:
    """From the lowest end to the highest, without the methods that are far worse than the others."""
    side = 1.0 if lower_is_better else -1.0
    values = sorted(side * each.value for each in found)
    limit = values[0] + FAR * (median(values) - values[0])
    is_spread = len(found) > 2 and limit > values[0]
    near = [each for each in found if side * each.value <= limit] if is_spread else found
    low = min(min(each.low, each.value) for each in near)
    high = max(max(each.high, each.value) for each in near)
    room = 0.04 * (high - low) or 0.01
    return low - room if low < 0.0 else max(low - room, 0.0), high + room


def tolerance_of(found: SearchSurface) -> float:
    """The tolerance of the search, or a usual one to draw where it had none."""
    return DEFAULT_TOLERANCE if found.tolerance is None else found.tolerance


def axis_label(metric: Metric) -> str:
    """What stands at the axis of a metric."""
    return f"{metric.label} ({metric.unit})" if metric.unit else metric.label


def _axes(ax: Axes | None, title: str) -> Axes:
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(4.2, 3.8), layout="constrained")[1]
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        ax.spines[side].set_color(MUTED)
    ax.tick_params(color=MUTED, labelcolor=INK)
    ax.xaxis.label.set_color(INK)
    ax.yaxis.label.set_color(INK)
    if title:
        ax.set_title(title, color=INK)
    return ax
